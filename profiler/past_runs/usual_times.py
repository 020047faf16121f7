"""How long the runs of a family usually take: the durations of its last successes."""

from collections.abc import Callable, Iterable
from statistics import median, quantiles

from msgspec import Struct

from profiler.past_runs.run_source import RunFilter, RunSource, pattern_of
from profiler.record.family_identity import FamilyKey, family_key

MAX_RUNS_OF_A_FAMILY = 20
_TWENTIETHS = 20


class UsualDuration(Struct, frozen=True, kw_only=True):
    """The median and the 95th percentile of the durations of some successes."""

    median_ms: float
    p95_ms: float
    runs: int


def usual_duration(durations_ms: list[float]) -> UsualDuration | None:
    """The usual duration; None without a duration."""
    if not durations_ms:
        return None
    p95_ms = quantiles(durations_ms, n=_TWENTIETHS, method="inclusive")[-1] if durations_ms[1:] else durations_ms[0]
    return UsualDuration(median_ms=median(durations_ms), p95_ms=p95_ms, runs=len(durations_ms))


class UsualDurations:
    """Reads the last successes of families, each family once.

    Args:
        open_source: Opens the past runs; None, or a source that is None: no usual duration is known.
        since_ns: Start time of the first run that counts.
    """

    def __init__(self, open_source: Callable[[], RunSource | None] | None, since_ns: int) -> None:
        self._open_source = open_source
        self._since_ns = since_ns
        self._known: dict[FamilyKey, UsualDuration | None] = {}

    def of(self, family: FamilyKey) -> UsualDuration | None:
        """The usual duration of a family, as far as it was read."""
        return self._known.get(family)

    def lacks(self, families: Iterable[FamilyKey]) -> tuple[FamilyKey, ...]:
        """The families that were not read yet."""
        return tuple(
            {family: None for family in families if self._open_source is not None and family not in self._known}
        )

    def read(self, families: Iterable[FamilyKey]) -> None:
        """Read the families that were not read yet. Raises TaskProfilerError, and does not try them again."""
        missing = self.lacks(families)
        if self._open_source is None or not missing:
            return
        self._known.update(dict.fromkeys(missing))
        source = self._open_source()
        if source is not None:
            self._known.update(self._read_from(source, missing))

    def _read_from(self, source: RunSource, families: tuple[FamilyKey, ...]) -> dict[FamilyKey, UsualDuration | None]:
        durations: dict[FamilyKey, list[float]] = {family: [] for family in families}
        names = tuple(sorted({pattern_of(family.name) for family in families}))
        selection = RunFilter(families=names, statuses=("success",), since_ns=self._since_ns)
        wanted = len(durations)
        for run in source.last_runs(selection, MAX_RUNS_OF_A_FAMILY):
            record = run.report.record
            of_family = durations.get(family_key(record))
            if of_family is None or len(of_family) == MAX_RUNS_OF_A_FAMILY or record.metrics.duration_ms is None:
                continue
            of_family.append(record.metrics.duration_ms)
            wanted -= len(of_family) == MAX_RUNS_OF_A_FAMILY
            if not wanted:
                break
        return {family: usual_duration(of_family) for family, of_family in durations.items()}
