"""The evidence for a size recommendation, by family, from any source of past runs."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.past_runs.run_source import CHECKPOINT, PastRun, RunFilter, RunSource
from profiler.record.family_identity import FamilyKey, family_key
from profiler.record.record_model import Metrics, Report, decode
from profiler.record.units import format_count
from profiler.sizing.evidence import Evidence, Families


class FamilyEvidence(Struct, frozen=True, kw_only=True):
    """A family and the evidence of its last runs; None if none of them was measured."""

    family: FamilyKey
    evidence: Evidence | None


class FoundFamilies(Struct, frozen=True, kw_only=True):
    """The families in order, and sentences about what was left out."""

    families: Sequence[FamilyEvidence]
    notes: Sequence[str]


def read_families(source: RunSource, selection: RunFilter, last: int, on_fargate: str | None = None) -> FoundFamilies:
    """The families of the matching runs, each with the evidence of its ``last`` newest matching runs.

    Args:
        source: The runs.
        selection: Which runs count.
        last: The number of runs of each family.
        on_fargate: The Region in which runs outside Fargate count as if they had run on Fargate; None: they do not.

    Raises:
        TaskProfilerError: if the source cannot be read.
    """
    families = Families(last, on_fargate)
    unfinished = count = oldest_ns = 0
    for run in source.last_runs(selection, last):
        if selection.selects_one_family and count >= last and run.started_ns < oldest_ns:
            break
        report = final_report(run)
        if report is None:
            unfinished += 1
            continue
        families.add(report)
        count, oldest_ns = count + 1, run.started_ns if count < last else oldest_ns
    note = f"{source.place}: skipped {format_count(unfinished, 'run')} with checkpoints but no report."
    return FoundFamilies(
        families=[FamilyEvidence(family=key, evidence=evidence) for key, evidence in families.evidence().items()],
        notes=(*source.notes, *([note] if unfinished else ())),
    )


def final_report(run: PastRun) -> Report | None:
    """The report of an ended run; None for a run that has only checkpoints and whose end is not known.

    If ECS's event brought the end of such a run, its numbers count if it ran out of memory. The status in the line of
    a checkpoint does not show an end: it can be a word of a newer version.
    """
    report = run.report
    if report.type != CHECKPOINT:
        return report
    record = report.record
    line_status = record.status if run.line is None else decode(run.line).record.status
    if run.event is None and record.status == line_status:
        return None
    if not record.likely_out_of_memory:
        record = replace(record, metrics=Metrics(), containers=())
    return replace(report, type="task.report", record=record)


def last_success(run: PastRun, source: RunSource) -> PastRun | None:
    """The newest success of the run's family that started before the run; one in the same ECS cluster is preferred."""
    anywhere = RunFilter(family=family_key(run.report.record), statuses=("success",), until_ns=run.started_ns)
    cluster = run.report.record.cluster
    in_cluster = None if cluster is None else next(source.runs(replace(anywhere, clusters=(cluster,))), None)
    return in_cluster or next(source.runs(anywhere), None)
