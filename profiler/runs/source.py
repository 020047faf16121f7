"""Past runs and where they come from: one interface for the local history, files, a cluster and CloudWatch Logs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import parse_ns
from profiler.record.model import Report, encode, known_status

CHECKPOINT = "task.checkpoint"


class TaskEvent(Struct, frozen=True, kw_only=True):
    """What ECS reported about the end of a task."""

    stop_code: str | None = None
    stop_category: str | None = None
    stopped_reason: str | None = None
    started_by: str | None = None
    out_of_memory: bool | None = None


class PastRun(Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        report: The report, or the last checkpoint of a run without a report. Its status is the one to show: where
            ECS's event corrected the status, it differs from that of ``line``.
        line: The record line; None if the run left no record.
        checkpoints: The checkpoints that the source has at hand, in no particular order.
        event: What ECS reported about the end; None if unknown.
    """

    report: Report
    line: bytes | None = None
    checkpoints: tuple[Report, ...] = ()
    event: TaskEvent | None = None

    @property
    def started_at(self) -> str:
        """The start, or the time of the line if the start is unknown."""
        return self.report.record.started_at or self.report.time

    @property
    def started_ns(self) -> int:
        """The start in nanoseconds since 1970; 0 if no time of the run can be parsed."""
        return parse_ns(self.started_at) or 0

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of the run: two lines with the same key describe the same run."""
        return run_key(self.report)

    def json_line(self) -> bytes:
        """The record line; for a run without a record, a line with what is known."""
        return encode(self.report) if self.line is None else self.line


def run_key(report: Report) -> tuple[str, str, str]:
    """The identity of a report's run: task, container, start."""
    record = report.record
    return record.task_id, record.container.name, record.started_at or ""


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to read. Empty conditions match every run.

    Attributes:
        families: Shell patterns; a run matches one of them.
        clusters: Names of clusters; a run is in one of them.
        tags: Names and values; a run has all of them.
        statuses: Statuses; a run has one of them.
        since_ns: Start time of the first run.
        until_ns: Start time before which the last run started.
        run: The beginning of a task id, or a family or a pattern of families.
        reads_checkpoints: Also read runs that have only checkpoints, where that is expensive.
    """

    families: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    statuses: tuple[str, ...] = ()
    since_ns: int | None = None
    until_ns: int | None = None
    run: str | None = None
    reads_checkpoints: bool = False

    def matches(self, run: PastRun) -> bool:
        """Whether the run matches all conditions."""
        record = run.report.record
        family = record.family or record.container.name
        return (
            (not self.families or any(fnmatchcase(family, pattern) for pattern in self.families))
            and (not self.clusters or record.cluster in self.clusters)
            and all((record.tags or {}).get(name) == value for name, value in self.tags)
            and (not self.statuses or known_status(record) in self.statuses)
            and (self.since_ns is None or run.started_ns >= self.since_ns)
            and (self.until_ns is None or run.started_ns < self.until_ns)
            and (self.run is None or record.task_id.startswith(self.run) or fnmatchcase(family, self.run))
        )

    @property
    def is_empty(self) -> bool:
        """Whether every run matches."""
        return self == RunFilter(reads_checkpoints=self.reads_checkpoints)


class RunSource(Protocol):
    """A source of past runs.

    ``place`` names the source in a sentence, ``remedy`` says what to do if the source has no run. ``notes`` are
    sentences about limits and about lines that were left out. They are complete after the last run was read.
    """

    @property
    def place(self) -> str:
        """The name of the source in a sentence."""
        ...

    @property
    def remedy(self) -> str:
        """What to do if the source has no run."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about limits and about what was left out so far."""
        ...

    def runs(self, wanted: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs, newest start first. Raises TaskProfilerError if the source cannot be read."""
        ...

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        """The checkpoints of one run, as far as the source has them."""
        ...


# Receives the progress of a long read: the number of runs found, and the part that is done (0 to 1).
OnProgress = Callable[[int, float], None]


def no_progress(runs: int, part: float) -> None:
    """Ignore the progress."""


class RunLine(Struct, frozen=True):
    """A record line and its decoded report."""

    line: bytes
    report: Report


def group_lines(lines: Iterable[RunLine]) -> list[PastRun]:
    """Group record lines by run, newest run first.

    Of several lines of a run, its report takes precedence over checkpoints, and a later line over an earlier one.
    """
    chosen: dict[tuple[str, str, str], RunLine] = {}
    checkpoints: dict[tuple[str, str, str], list[Report]] = {}
    for line in lines:
        key = run_key(line.report)
        if key not in chosen or _precedence(line.report) >= _precedence(chosen[key].report):
            chosen[key] = line
        if line.report.type == CHECKPOINT:
            checkpoints.setdefault(key, []).append(line.report)
    runs = [
        PastRun(report=line.report, line=line.line, checkpoints=tuple(checkpoints.get(key, ())))
        for key, line in chosen.items()
    ]
    return newest_first(runs)


def newest_first(runs: Iterable[PastRun]) -> list[PastRun]:
    """Sort by start, newest first. Runs whose time cannot be parsed come last."""
    return sorted(runs, key=lambda run: run.started_ns, reverse=True)


def _precedence(report: Report) -> tuple[bool, int]:
    return report.type != CHECKPOINT, parse_ns(report.time) or 0


def find_run(source: RunSource, wanted: RunFilter) -> PastRun:
    """Find one run: the newest that matches, or the one that ``wanted.run`` names.

    ``wanted.run`` is a family or a pattern of families (its newest run), or the beginning of one task id. A family
    takes precedence.

    Raises:
        TaskProfilerError: if no run matches, or several task ids begin with ``wanted.run``.
    """
    similar: list[PastRun] = []
    for run in source.runs(wanted):
        record = run.report.record
        if wanted.run is None or record.task_id == wanted.run or _is_in_family(run, wanted.run):
            return run
        similar.append(run)
    ids = {run.report.record.task_id for run in similar}
    if len(ids) == 1:
        return similar[0]
    if ids:
        raise TaskProfilerError(
            f"{len(ids)} runs in {source.place} have an id that begins with {wanted.run!r}: give more of the id."
        )
    raise TaskProfilerError(no_run_sentence(source, wanted))


def _is_in_family(run: PastRun, pattern: str) -> bool:
    record = run.report.record
    return fnmatchcase(record.family or record.container.name, pattern)


def no_run_sentence(source: RunSource, wanted: RunFilter) -> str:
    """Say that no run was found and what to do."""
    if wanted.run is not None:
        return (
            f"There is no run or family {wanted.run!r} in {source.place}: task-profiler history lists the runs; "
            "give it the same source."
        )
    if not wanted.is_empty:
        return f"No run in {source.place} matches: use fewer filters."
    return f"There are no runs in {source.place}: {source.remedy}."
