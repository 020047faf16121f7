"""Collects the last runs of each family, of any number of runs that are read, as the evidence for
a recommendation.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from profiler.core.optional_math import max_known, min_known
from profiler.record.family_identity import FamilyKey
from profiler.record.record_model import Record, Report
from profiler.record.run_outcome import Outcome
from profiler.sizing.evidence import (
    Evidence,
    evidence_of_runs,
    is_on_fargate,
    is_priced_on_fargate,
    task_ids_of,
)
from profiler.sizing.job_grouping import (
    JobKind,
    JobsBy,
    RowsByAskedSize,
    RunKinds,
    RunsOf,
    row_with_common_name,
)
from profiler.sizing.run_facts import RunFacts, run_facts_of, runs_in_time_order

LAST_RUNS = 50


class ReadTaskCounts(Struct, frozen=True, kw_only=True):
    """The tasks of a family that were read, of which only the last ones are evidence."""

    tasks: int = 0
    first_ns: int | None = None
    last_ns: int | None = None

    @property
    def window_ns(self) -> int:
        """The time from the first to the last start."""
        return (self.last_ns or 0) - (self.first_ns or 0)

    def sum_with(self, other: "ReadTaskCounts") -> "ReadTaskCounts":
        return ReadTaskCounts(
            tasks=self.tasks + other.tasks,
            first_ns=min_known(self.first_ns, other.first_ns),
            last_ns=max_known(self.last_ns, other.last_ns),
        )


class FamilyRunCollector:
    """Collects the ``last`` runs of each family, or row of jobs: see ``job_grouping``.

    Memory is bounded: older runs are dropped on the way, and only counted.
    """

    def __init__(
        self, last: int = LAST_RUNS, on_fargate: str | None = None, jobs_by: JobsBy | None = None
    ) -> None:
        self._last = last
        self._on_fargate = on_fargate
        self._kinds = RunKinds()
        self._asked = RowsByAskedSize(jobs_by)
        self._runs: dict[RunsOf, dict[tuple[str, str, str], RunFacts]] = {}
        # All, and those on Fargate.
        self._dropped: dict[RunsOf, tuple[ReadTaskCounts, ReadTaskCounts]] = {}

    def add_run(self, report: Report, outcome: Outcome, *, is_confirmed: bool = True) -> None:
        """Add the run of a final report, which ended so, to its family; a repeated line of the
        same run is ignored.
        """
        run = run_facts_of(report, outcome, self._on_fargate, is_confirmed=is_confirmed)
        kind = self._kinds.kind_of_run(report.record)
        if isinstance(kind, JobKind):
            self._asked.add_job_run(kind, report.record)
        runs = self._runs.setdefault(kind, {})
        runs.setdefault(run.container_key, run)
        if len(runs) >= 2 * self._last + 100:
            self._drop_older_runs(kind, runs)

    def _drop_older_runs(self, kind: RunsOf, runs: Mapping[tuple[str, str, str], RunFacts]) -> None:
        """Keep the last runs of a kind, and count the tasks of the others."""
        kept = {run.container_key: run for run in self._newest_runs(runs.values())}
        self._runs[kind] = kept
        dropped = [run for run in runs.values() if run.container_key not in kept]
        kept_ids = task_ids_of(kept.values())
        of_all = _tasks_read(dropped, kept_ids)
        on_fargate = _tasks_read(filter(is_on_fargate, dropped), kept_ids)
        before, before_on_fargate = self._dropped.get(kind, (ReadTaskCounts(), ReadTaskCounts()))
        self._dropped[kind] = (
            before.sum_with(of_all),
            before_on_fargate.sum_with(on_fargate),
        )

    def evidence_by_row(self) -> Mapping[FamilyKey, Evidence | None]:
        """Aggregate the last runs of each row, in the order of the rows; None if none of them was
        measured.
        """
        return {
            row: evidence_of_runs(row, runs, self._on_fargate)
            for row, runs in self.runs_by_row().items()
        }

    def evidence_with(self, record: Record) -> Evidence | None:
        """The evidence of the row that has the record's run."""
        kind = self._kinds.kind_of_run(record)
        return self.evidence_by_row().get(
            self._rows_by_kind().get(kind) or self._asked.row_of(kind)
        )

    def tasks_read_by_row(self) -> Mapping[FamilyKey, ReadTaskCounts]:
        """The tasks that were added, those on Fargate alone where these are priced; one whose lines
        came far apart may count twice.
        """
        read: dict[FamilyKey, ReadTaskCounts] = {}
        rows = self._rows_by_kind()
        windows = self.runs_by_row()
        for kind, runs in self._runs.items():
            row = rows[kind]
            dropped, dropped_on_fargate = self._dropped.get(
                kind, (ReadTaskCounts(), ReadTaskCounts())
            )
            counted: Iterable[RunFacts] = runs.values()
            if is_priced_on_fargate(windows[row]):
                dropped = dropped_on_fargate
                counted = filter(is_on_fargate, counted)
            of_kind = _tasks_read(counted).sum_with(dropped)
            read[row] = of_kind.sum_with(read.get(row, ReadTaskCounts()))
        return read

    def runs_by_row(self) -> Mapping[FamilyKey, Sequence[RunFacts]]:
        """The last runs of each row, in the order of the rows and of time."""
        runs_of_rows: dict[FamilyKey, list[RunFacts]] = {}
        for kind, row in self._rows_by_kind().items():
            runs_of_rows.setdefault(row, []).extend(self._runs[kind].values())
        rows = sorted(runs_of_rows, key=lambda row: row.sort_key)
        return {row: self._newest_runs(runs_of_rows[row]) for row in rows}

    def _rows_by_kind(self) -> Mapping[RunsOf, FamilyKey]:
        """The row of each kind of runs."""
        kinds_of_rows: dict[FamilyKey, list[RunsOf]] = {}
        for kind in self._runs:
            kinds_of_rows.setdefault(self._asked.row_of(kind), []).append(kind)
        rows: dict[RunsOf, FamilyKey] = {}
        for row, kinds in kinds_of_rows.items():
            of_row = (run.record for kind in kinds for run in self._runs[kind].values())
            rows.update(dict.fromkeys(kinds, row_with_common_name(row, of_row)))
        return rows

    def _newest_runs(self, runs: Iterable[RunFacts]) -> Sequence[RunFacts]:
        return runs_in_time_order(runs)[-self._last :]


def _tasks_read(runs: Iterable[RunFacts], others: Collection[str] = ()) -> ReadTaskCounts:
    """The tasks of these runs, without those of others, and the time of the runs."""
    listed = list(runs)
    starts_ns = [run.began_ns for run in listed]
    return ReadTaskCounts(
        tasks=len(task_ids_of(listed).difference(others)),
        first_ns=min_known(*starts_ns),
        last_ns=max_known(*starts_ns),
    )
