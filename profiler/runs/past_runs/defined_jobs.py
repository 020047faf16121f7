"""The runs of AWS Batch's job definitions, which decide on their sizes.

A run's family and revision are those of the definition of its job, as Batch has named it: a
container knows neither, and a task definition of the same name is another thing.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from profiler.core.ecs_terms import FARGATE
from profiler.record.family_identity import FamilyKey
from profiler.record.task_needs import is_job
from profiler.runs.past_runs.past_run import PastRun
from profiler.sizing.family_window import FamilyWindow, WindowSpan


class AllRunsByFamily:
    """The runs of all families, each under its own name.

    ``of_definitions``: only those of job definitions, under their names.
    """

    of_definitions = False

    def reads_name(self, name: str) -> bool:  # noqa: ARG002
        return True

    def run_under_read_name(self, run: PastRun) -> PastRun | None:
        """The run under the name that it is read by; None for one that is not."""
        return run

    def indexed_run_under_read_name(self, run: PastRun) -> PastRun | None:
        """The run of a document, as `run_under_read_name` names it."""
        return run

    def new_window(self, family: FamilyKey, span: WindowSpan) -> FamilyWindow:  # noqa: ARG002
        """An empty window for the runs of a family."""
        return FamilyWindow(span)


EVERY_RUN: Final = AllRunsByFamily()


class RunsOfDefinedJobs(AllRunsByFamily):
    """The definitions whose runs are read: ``launch_types`` has where their jobs run.

    ``unnamed`` counts the jobs whose definition no record says.
    """

    of_definitions = True

    def __init__(self, launch_types: Mapping[str, str]) -> None:
        self._launch_types = launch_types
        self.unnamed = 0

    def reads_name(self, name: str) -> bool:
        return name in self._launch_types

    def run_under_read_name(self, run: PastRun) -> PastRun | None:
        """The run under its job's definition."""
        record = run.record
        if not is_job(record):
            return None
        job = record.batch
        if job.job_definition is None or job.job_definition_revision is None:
            self.unnamed += 1
            return None
        if not self.reads_name(job.job_definition):
            return None
        revision = str(job.job_definition_revision)
        named = replace(record, family=job.job_definition, revision=revision)
        return run.with_record(named)

    def indexed_run_under_read_name(self, run: PastRun) -> PastRun | None:
        """The run of a document, as `run_under_read_name` names it.

        The forwarder names the task after the definition that Batch has named: a document in which
        they differ has the definition from its own line.
        """
        record = run.record
        named = self.run_under_read_name(run)
        if named is None:
            return None
        same = named.report.record
        is_same = (same.family, same.revision) == (record.family, record.revision)
        return named if is_same else None

    def new_window(self, family: FamilyKey, span: WindowSpan) -> FamilyWindow:
        """An empty window for the runs of a definition."""
        return FamilyWindow(span, self._launch_types.get(family.name, FARGATE))
