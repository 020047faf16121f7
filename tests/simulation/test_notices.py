"""Precision and recall of the notices over generated nights with injected faults.

The batches come from night_batches.py, and know nothing of the detectors. A notice is right if the run has the fault
that it names. The same seed gives the same nights. Some batches also go through the monitor's loop, on a fake clock,
which must print the same notices.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

import pytest
from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.run_notices import NoticeReading, NoticeSettings, RunNotices
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from tests.fakes import START_NS
from tests.simulation.night_batches import (
    FARGATE_PERIOD,
    FAULTS,
    MIB,
    POLLS_WITH_IO,
    SILENT_POLLS,
    Batch,
    Point,
    night,
)
from tests.unit.monitor.test_loop import OWN, World

_CHECKPOINT_SECONDS = 60


class Outcome(Struct, frozen=True, kw_only=True):
    """A run and the notices that it got, with the second of each."""

    name: str
    fault: str | None
    since_seconds: int
    end_seconds: int
    notices: Mapping[str, int]


def watch(batch: Batch) -> Outcome:
    """Run the detectors over a batch's readings, as the monitor does. On Fargate, its lines pass the same network."""
    notices = RunNotices(NoticeSettings(expected_seconds=batch.expected_seconds), 0)
    is_fargate, own_line_ns = batch.traits.is_fargate, None

    def prints(second: int) -> bool:
        nonlocal own_line_ns
        now_ns = second * NS_PER_SECOND
        if second % _CHECKPOINT_SECONDS or (is_fargate and notices.wants_silence(now_ns)):
            return False
        own_line_ns = now_ns if is_fargate else None
        return True

    found: dict[str, int] = {}
    for point in batch.points(prints):
        reading = _reading(point, batch, own_line_ns)
        overdue = notices.overdue(reading.at_ns)
        for finding in (*notices.add(reading), *(() if overdue is None else (overdue,))):
            found.setdefault(finding.kind, point.at_seconds)
    return Outcome(
        name=batch.name,
        fault=batch.fault,
        since_seconds=batch.since_seconds,
        end_seconds=batch.end_seconds,
        notices=found,
    )


class _MonitoredBatch(World):
    """A task whose batch is a generated one, for the monitor's loop on a fake clock."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch_ends=batch.end_seconds + 0.5, expected_seconds=batch.expected_seconds)
        self.stop.max_simulated_seconds = batch.end_seconds + 100
        self._batch = batch
        self._lines_seen = 0
        self._points = batch.points(self._has_printed)
        self._point: Point | None = None
        self._next = next(self._points, None)
        self.task_at, self.stats_at = self._generated_task, self._generated_stats

    def _has_printed(self, _: int) -> bool:
        before, self._lines_seen = self._lines_seen, len(self.output.lines)
        return self._lines_seen > before

    def _container_at(self, at: float) -> ContainerMetadata:
        attempts = [second for second in self._batch.course.restarts if at >= second]
        return replace(
            self.batch(at),
            docker_id=f"b{len(attempts)}",
            started_ns=START_NS + (max(attempts, default=0)) * NS_PER_SECOND,
            memory_limit_bytes=self._batch.course.memory_limit_mb * MIB,
            network_mode="awsvpc",
        )

    def _generated_task(self, at: float) -> TaskMetadata:
        disk = None if self._point is None else self._point.disk_used_mb
        return replace(
            self.usual_task(at),
            launch_type="FARGATE" if self._batch.traits.is_fargate else "EC2",
            memory_limit_bytes=None,
            containers=(self._container_at(at), OWN),
            ephemeral_storage_used_mib=disk,
            ephemeral_storage_size_mib=None if disk is None else self._batch.course.disk_size_mb,
        )

    def _generated_stats(self, at: float) -> StatsReading | Unavailable:
        while self._next is not None and self._next.at_seconds <= at:
            self._point, self._next = self._next, next(self._points, None)
        if self._point is None or (at - self._point.at_seconds > FARGATE_PERIOD and at < self._batch.end_seconds):
            return Unavailable("no answer")
        sample = replace(self._point.sample, read_ns=START_NS + self._point.sample.read_ns)
        docker_id = self._container_at(self._point.at_seconds).docker_id or ""
        return {docker_id: sample}


def watch_by_monitor(batch: Batch) -> Outcome:
    """Run the monitor's loop over a batch's readings, and read the lines that it prints."""
    world = _MonitoredBatch(batch).run()
    assert not [event for event in world.log.events("error") if "defect" in event]
    lines = [line for line in world.printed() if line["type"] == "task.notice"]
    found = {line["notice"]["kind"]: ((parse_ns(line["time"]) or 0) - START_NS) // NS_PER_SECOND for line in lines}
    assert len(found) == len(lines)  # once for each kind
    return Outcome(
        name=batch.name,
        fault=batch.fault,
        since_seconds=batch.since_seconds,
        end_seconds=batch.end_seconds,
        notices=found,
    )


def _reading(point: Point, batch: Batch, own_line_ns: int | None) -> NoticeReading:
    sample = point.sample
    return NoticeReading(
        at_ns=sample.read_ns,
        cpu_ns=sample.cpu_ns,
        network_bytes=_sum(sample.network_rx_bytes, sample.network_tx_bytes),
        block_bytes=_sum(sample.block_read_bytes, sample.block_write_bytes),
        memory_used_bytes=sample.memory_used_bytes,
        memory_size_bytes=batch.course.memory_limit_mb * MIB,
        disk_used_mb=point.disk_used_mb,
        disk_size_mb=batch.course.disk_size_mb,
        own_line_ns=own_line_ns,
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def expected_kind(outcome: Outcome) -> str | None:
    """The notice that the run should get."""
    return None if outcome.fault is None else FAULTS[outcome.fault][0]


class Score(Struct, frozen=True, kw_only=True):
    """The counts of one kind of notice."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        """The share of the notices that were right, in percent."""
        return 100 * self.right / max(self.right + self.wrong, 1)

    @property
    def recall(self) -> float:
        """The share of the faults that were noticed, in percent."""
        return 100 * self.right / max(self.right + self.missed, 1)


def score(kind: str, outcomes: Iterable[Outcome]) -> Score:
    """Count the right, wrong and missing notices of a kind, but for batches that did nothing on purpose."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        is_raised, is_expected = kind in outcome.notices, expected_kind(outcome) == kind
        if (kind != "stuck" or outcome.name not in SILENT_POLLS) and (is_raised or is_expected):
            counts["right" if is_raised and is_expected else "wrong" if is_raised else "missed"] += 1
    return Score(right=counts["right"], wrong=counts["wrong"], missed=counts["missed"])


def differences(seeds: Iterable[int]) -> list[str]:
    """The batches for which the monitor's lines differ from the detectors' findings."""
    found = []
    for seed in seeds:
        for batch, again in zip(night(seed), night(seed), strict=True):
            by_detectors, by_monitor = watch(batch).notices, watch_by_monitor(again).notices
            if set(by_detectors) != set(by_monitor):
                found.append(f"night {seed}, {batch.name}: {by_detectors} and {by_monitor}")
    return found


SEEDS = (3, 8)


def batches(seed: int) -> list[Batch]:
    """Eight batches without a fault, and one of half of the faults."""
    return list(night(seed, batches=8 + len(FAULTS) // 2, faults=len(FAULTS) // 2))


OUTCOMES = [watch(batch) for seed in SEEDS for batch in batches(seed)]


def test_a_batch_that_polls_with_io_is_not_stuck() -> None:
    found = ["stuck" in outcome.notices for outcome in OUTCOMES if outcome.name in POLLS_WITH_IO]
    assert set(found) == {False}


# A thread that sends metrics looks like a poll, and files that come minutes apart are steps.
@pytest.mark.parametrize(
    "fault",
    [name for name, (kind, _) in FAULTS.items() if kind and "metrics" not in name and "file by file" not in name],
)
def test_a_fault_is_noticed(fault: str) -> None:
    found = [expected_kind(outcome) in outcome.notices for outcome in OUTCOMES if outcome.fault == fault]
    assert (set(found), len(found)) == ({True}, 1)


def test_the_monitor_prints_what_the_detectors_find() -> None:
    chosen = [batch for batch in islice(night(4), 30) if batch.end_seconds < 4000 and batch.traits.is_fargate]
    noticed = [batch for batch in chosen if batch.fault is not None][:2]
    for batch in noticed:
        assert set(watch_by_monitor(batch).notices) == set(watch(batch).notices)


@pytest.mark.slow
def test_the_notices_of_thirty_nights() -> None:
    """A thread that sends metrics looks like a poll, and a straight rise may stop below the limit."""
    outcomes = [watch(batch) for seed in range(1, 31) for batch in night(seed)]
    assert [one for one in outcomes if one.name in POLLS_WITH_IO and "stuck" in one.notices] == []
    least = {"stuck": (100, 75), "overdue": (100, 100), "memory": (64, 100), "disk": (82, 93)}
    for kind, (precision, recall) in least.items():
        found = score(kind, outcomes)
        assert found.precision >= precision, kind
        assert found.recall >= recall, kind


@pytest.mark.slow
def test_the_monitor_prints_the_notices_of_a_whole_night() -> None:
    assert differences([1]) == []
