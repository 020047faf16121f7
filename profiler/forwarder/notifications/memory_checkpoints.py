"""The checkpoints of an invocation that show most of a run's memory in use: where the search
cluster knows what earlier successes of the family reached, one above that is worth a notice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from profiler.forwarder.family_runs import FamilyContainer
from profiler.record.family_statistics import HighestPeak
from profiler.record.memory_news import memory_now
from profiler.record.record_model import Record, Report

# Of a log stream. A task has few containers, and one task a stream.
_MAX_RUNS_OF_A_STREAM = 8

Peaks = Mapping[FamilyContainer, HighestPeak]
# The known peaks of those that runs of log streams name.
ReadPeaks = Callable[[Sequence[tuple[str, FamilyContainer]]], Peaks]


class NearFullCheckpoint(Struct, frozen=True):
    """A checkpoint, its log stream, and the Kinesis record that contains it."""

    place: str
    report: Report
    source: str | None


class FullestCheckpoints(Struct):
    """Holds the checkpoints of an invocation, of each run the one with the most memory."""

    _held: dict[str, dict[tuple[str, str], NearFullCheckpoint]] = field(default_factory=dict)

    def iterate_fullest(self) -> Iterator[NearFullCheckpoint]:
        """The checkpoint of each run that shows the most memory."""
        for runs in self._held.values():
            yield from runs.values()

    def add(self, near_full: NearFullCheckpoint) -> None:
        record = near_full.report.record
        runs = self._held.setdefault(near_full.place, {})
        key = (record.task_id, record.container.name)
        if key not in runs and len(runs) == _MAX_RUNS_OF_A_STREAM:
            return
        present = runs.setdefault(key, near_full)
        if _used_memory_mb(record) > _used_memory_mb(present.report.record):
            runs[key] = near_full


def family_container_of(record: Record) -> FamilyContainer:
    """The container of the family of which the run is one; "" where the record does not say."""
    return (
        record.account_id or "",
        record.region or "",
        record.family or "",
        record.container.name,
    )


def _used_memory_mb(record: Record) -> float:
    now = memory_now(record)
    return 0 if now is None else now.used_mb
