"""The evidence for a size recommendation, by family, from any source of past runs."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from profiler.past_runs.run_source import CHECKPOINT, PastRun, RunFilter, RunPlace, RunSource, family_of
from profiler.record.family import FamilyKey
from profiler.record.units import format_count
from profiler.sizing.evidence import Evidence, Families


class FamilyEvidence(Struct, frozen=True, kw_only=True):
    """A family and the evidence of its last runs; None if none of them was measured."""

    family: FamilyKey
    evidence: Evidence | None


class FamilySource(RunPlace, Protocol):
    """A source of past runs that knows the evidence of each family."""

    def families(self, wanted: RunFilter, last: int) -> Sequence[FamilyEvidence]:
        """The families of the matching runs in order, each with the evidence of its ``last`` newest matching runs.

        Raises TaskProfilerError if the source cannot be read.
        """
        ...


class RunFamilies:
    """The families of a source's runs, whose evidence is calculated here.

    Args:
        source: The runs.
        on_fargate: The Region in which runs outside Fargate count as if they had run on Fargate; None: they do not.
    """

    def __init__(self, source: RunSource, on_fargate: str | None = None) -> None:
        self._source = source
        self._on_fargate = on_fargate
        self._unfinished = 0
        self.place = source.place
        self.remedy = source.remedy

    @property
    def notes(self) -> Sequence[str]:
        """The source's notes, and how many runs have no report."""
        unfinished = f"{self.place}: {format_count(self._unfinished, 'run')} with checkpoints but no report left out."
        return (*self._source.notes, *([unfinished] if self._unfinished else ()))

    def families(self, wanted: RunFilter, last: int) -> Sequence[FamilyEvidence]:
        """See FamilySource. Reading stops early if all runs of the only family were read."""
        families = Families(last, self._on_fargate)
        count, oldest_ns = 0, 0
        for run in self._source.runs(wanted):
            if wanted.selects_one_family and count >= last and run.started_ns < oldest_ns:
                break
            if run.report.type == CHECKPOINT:
                self._unfinished += 1
                continue
            families.add(run.report)
            count, oldest_ns = count + 1, run.started_ns if count < last else oldest_ns
        return [FamilyEvidence(family=key, evidence=evidence) for key, evidence in families.evidence().items()]


def last_success(run: PastRun, source: RunSource) -> PastRun | None:
    """The newest success of the run's family that started before the run; one in the same cluster is preferred."""
    anywhere = RunFilter(family=family_of(run.report), statuses=("success",), until_ns=run.started_ns)
    cluster = run.report.record.cluster
    in_cluster = None if cluster is None else next(source.runs(replace(anywhere, clusters=(cluster,))), None)
    return in_cluster or next(source.runs(anywhere), None)
