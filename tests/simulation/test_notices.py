"""Precision and recall of the notices over generated nights with injected faults.

The batches come from night_batches.py, and know nothing of the detectors. A notice is right if the run has the fault
that it names. The same seed gives the same nights.
"""

from collections.abc import Iterable, Mapping

import pytest

from profiler.aggregation.idle_time import NoticeReading
from profiler.aggregation.run_notices import RunNotices
from profiler.core.timestamps import NS_PER_SECOND
from tests.simulation.night_batches import FAULTS, MIB, POLLS_WITH_IO, SILENT_POLLS, Batch, Point, night

_CHECKPOINT_SECONDS = 60


Outcome = tuple[Batch, Mapping[str, int]]
"""A run and the notices that it got, with the second of each."""


def watch(batch: Batch) -> Outcome:
    """Run the detectors over a batch's readings, as the monitor does. On Fargate, its lines pass the same network."""
    notices = RunNotices(0, expected_seconds=batch.expected_seconds)
    is_fargate, own_line_ns = batch.is_fargate, None

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
        for finding in (*notices.add(reading), *notices.overdue(reading.at_ns)):
            found.setdefault(finding.kind, point.at_seconds)
    return batch, found


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


def expected_kind(batch: Batch) -> str | None:
    """The notice that the run should get."""
    return None if batch.fault is None else FAULTS[batch.fault][0]


def precision_and_recall(kind: str, outcomes: Iterable[Outcome]) -> tuple[float, float]:
    """The share of right notices of a kind in its notices and in its faults, in percent.

    Batches that did nothing on purpose do not count.
    """
    judged = [one for one in outcomes if kind != "stuck" or one[0].name not in SILENT_POLLS]
    raised = [expected_kind(batch) == kind for batch, notices in judged if kind in notices]
    faults = sum(expected_kind(batch) == kind for batch, _ in judged)
    return 100 * sum(raised) / max(len(raised), 1), 100 * sum(raised) / max(faults, 1)


SEEDS = (3, 8)


def batches(seed: int) -> list[Batch]:
    """Eight batches without a fault, and one of half of the faults."""
    return list(night(seed, batches=8 + len(FAULTS) // 2, faults=len(FAULTS) // 2))


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [watch(batch) for seed in SEEDS for batch in batches(seed)]


def test_a_batch_that_polls_with_io_is_not_stuck(outcomes: list[Outcome]) -> None:
    found = ["stuck" in notices for batch, notices in outcomes if batch.name in POLLS_WITH_IO]
    assert set(found) == {False}


# A thread that sends metrics looks like a poll, and files that come minutes apart are steps.
@pytest.mark.parametrize(
    "fault",
    [name for name, (kind, _) in FAULTS.items() if kind and "metrics" not in name and "file by file" not in name],
)
def test_a_fault_is_noticed(fault: str, outcomes: list[Outcome]) -> None:
    found = [expected_kind(batch) in notices for batch, notices in outcomes if batch.fault == fault]
    assert (set(found), len(found)) == ({True}, 1)


@pytest.mark.slow
def test_the_notices_of_thirty_nights() -> None:
    """A thread that sends metrics looks like a poll, and a straight rise may stop below the limit."""
    outcomes = [watch(batch) for seed in range(1, 31) for batch in night(seed)]
    assert not [one for one, notices in outcomes if one.name in POLLS_WITH_IO and "stuck" in notices]
    least = {"stuck": (100, 75), "overdue": (100, 100), "memory": (64, 100), "disk": (82, 93)}
    for kind, (precision, recall) in least.items():
        found = precision_and_recall(kind, outcomes)
        assert found[0] >= precision, kind
        assert found[1] >= recall, kind
