"""The notices of the monitor on the fake clock: one line for each kind and batch, and what must
not raise one.
"""

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from profiler.aggregation.record_parts import RecordPart
from profiler.core.timestamps import format_ms, parse_ns
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.notice_model import NoticeLine, decode_notice_json
from profiler.record.record_model import NO_INTERVAL, NO_MONITOR
from tests.fakes import START_NS, FakeStdout, sample, seconds
from tests.monitor_world import MIB, FakeCollector, PlayedMonitor

STUCK = 60  # seconds
Sample = Callable[[float], ContainerSample]


def idle(at: float, **more: int) -> ContainerSample:
    """The batch does nothing: its statistics are refreshed every 10 s."""
    counters = {
        "network_rx_bytes": 0,
        "network_tx_bytes": 0,
        "block_read_bytes": 0,
        "block_write_bytes": 0,
    }
    return sample(START_NS + seconds(at // 10 * 10), 0.5, 100 * MIB, **{**counters, **more})


def world_of(batch: Sample = idle, *, ends: float = 200.5, **settings: Any) -> PlayedMonitor:
    fakes = PlayedMonitor(
        batch_ends=ends, **{"checkpoint_seconds": 0, "stuck_minutes": STUCK / 60, **settings}
    )
    fakes.batch_sample = batch  # type: ignore[method-assign, assignment]
    return fakes


def notices_of(fakes: PlayedMonitor) -> list[NoticeLine]:
    lines = [line for line in fakes.output.lines if b'"task.notice"' in line]
    found = [notice for line in lines if isinstance(notice := decode_notice_json(line), NoticeLine)]
    assert len(found) == len(lines)
    return found


def kinds(fakes: PlayedMonitor) -> list[str]:
    return [line.notice.kind for line in notices_of(fakes.run())]


def test_a_stuck_batch_has_one_line_and_is_in_the_report() -> None:
    fakes = world_of()
    fakes.collectors = (FakeCollector(fakes),)
    (line,) = notices_of(fakes.run())
    assert line.time == format_ms(START_NS + seconds(70))
    assert line.notice.message == (
        "The run used less than 0.01 vCPU and 1 KB/s of network and disk for 1 minute."
    )
    assert line.notice.since == format_ms(START_NS + seconds(10))
    record = line.record
    assert record.task_id == "0123"
    assert record.family == "etl"
    assert record.status == "running"
    assert record.metrics.duration_ms == 70_000
    assert record.metrics.cpu_seconds == 0.5
    assert [(one.kind, one.at) for one in record.notices] == [("stuck", line.time)]
    lists = (
        record.containers,
        record.processes,
        record.gpus,
        record.series,
    )
    assert not any(lists)
    assert (record.interval, record.monitor) == (NO_INTERVAL, NO_MONITOR)
    assert fakes.report()["notices"] == [{"kind": "stuck", "at": line.time}]
    assert fakes.log.events("error") == []


class UnreadStdout(FakeStdout):
    """Nothing reads it until the end."""

    def keep(self, data: bytes) -> str | None:
        self.lines += data.splitlines()
        return self.failure


def test_a_notice_is_kept_while_nothing_reads_the_output() -> None:
    """A checkpoint is dropped then: another one follows."""
    fakes = world_of(checkpoint_seconds=20)
    fakes.output = UnreadStdout(failure="takes no more bytes")
    fakes.run()
    assert [line["type"] for line in fakes.printed()] == ["task.notice"]
    assert fakes.report()["notices"][0]["kind"] == "stuck"


def test_all_kinds_in_their_order() -> None:
    def growing(at: float) -> ContainerSample:
        return replace(idle(at), memory_used_bytes=round((100 + 24 * at / 60) * MIB))

    fakes, size = (
        world_of(growing, ends=2000.5, expected_seconds=89.4),
        {"ephemeral_storage_size_mib": 20_000},
    )
    fakes.of_task = lambda at: {"ephemeral_storage_used_mib": round(4000 + 9 * at), **size}
    assert kinds(fakes) == ["stuck", "overdue", "disk", "memory"]
    overdue = notices_of(fakes)[1]
    assert overdue.notice.message == "The run has taken 1m 30s; 1m 29s were expected."
    assert [one["kind"] for one in fakes.report()["notices"]] == [
        "stuck",
        "overdue",
        "disk",
        "memory",
    ]


def test_a_batch_is_overdue_on_time_while_the_statistics_repeat() -> None:
    fakes = world_of(stuck_minutes=0, expected_seconds=83.5)
    usual_stats = cache(fakes.usual_stats)
    fakes.source.stats_at = lambda at: usual_stats(at // 10 * 10)
    (overdue,) = notices_of(fakes.run())
    assert overdue.time == format_ms(START_NS + seconds(84))


def test_checkpoints_after_a_notice_list_it() -> None:
    fakes = world_of(checkpoint_seconds=20).run()
    listed = [
        len(line["record"].get("notices", ()))
        for line in fakes.printed()
        if line["type"] == "task.checkpoint"
    ]
    assert listed == [0] * 3 + [1] * 7


def fills(at: float) -> ContainerSample:
    """Half of its GB is in use, from 100 to 130 s on more each second, then half again, and at
    170 s the same as before.
    """
    used_mb = 512.0
    if 100 <= at < 130:
        used_mb += 16 * (at - 100)
    if at >= 170:
        used_mb = 970
    return sample(START_NS + seconds(at), at / 10, round(used_mb * MIB))


def seconds_of_checkpoints(fakes: PlayedMonitor) -> list[float]:
    """When they were written, after the start."""
    lines = fakes.run().printed()
    times = [parse_ns(line["time"]) or 0 for line in lines if line["type"] == "task.checkpoint"]
    return [(time - START_NS) / seconds(1) for time in times]


def test_a_checkpoint_is_written_as_soon_as_memory_passes_another_step_of_its_size() -> None:
    """From 70 % on, each 2 %, and never the same step twice: 717 MB are reached at 113 s."""
    fakes = world_of(fills, checkpoint_seconds=60)
    times = seconds_of_checkpoints(fakes)
    early = [time for time in times if time % 60 > 1]
    assert early[0] == 113
    assert early == sorted(set(early))
    assert all(113 <= time < 130 for time in early)
    assert 8 <= len(early) <= 15
    checkpoints = [line for line in fakes.printed() if line["type"] == "task.checkpoint"]
    seen = [line["record"]["interval"]["memoryUsedMB"]["max"] for line in checkpoints]
    assert seen[1] == 512 + 16 * 13


def test_without_checkpoints_there_is_none_for_memory_either() -> None:
    assert seconds_of_checkpoints(world_of(fills)) == []


def test_a_batch_that_works_or_polls_is_not_stuck() -> None:
    """A batch that works or polls is not stuck nor one whose settings say so."""
    assert kinds(world_of(stuck_minutes=0)) == []
    assert kinds(world_of(stuck_minutes=4)) == []
    assert kinds(PlayedMonitor(batch_ends=100.5, stuck_minutes=0.2, checkpoint_seconds=0)) == []


@pytest.mark.parametrize("counter", ["network_rx_bytes", "block_write_bytes"])
def test_a_batch_whose_bytes_grow_is_not_stuck(counter: str) -> None:
    grows = world_of(lambda at: idle(at, **{counter: int(at // 30) * 2000}))
    assert kinds(grows) == []


@pytest.mark.parametrize(("others_read", "expected"), [(5, ["stuck"]), (None, [])])
def test_a_batch_without_block_counters_has_done_no_io_where_others_have_them(
    others_read: int | None, expected: list[str]
) -> None:
    fakes = world_of(lambda at: replace(idle(at), block_read_bytes=None, block_write_bytes=None))
    other = ContainerSample(read_ns=START_NS, block_read_bytes=others_read)
    fakes.source.stats_at = lambda at: {**fakes.usual_stats(at), "m": other}
    assert kinds(fakes) == expected


def test_a_batch_that_was_restarted_is_not_idle() -> None:
    fakes = world_of()
    fakes.of_batch = lambda at: {"restart_count": 1 if at >= 50 else 0}
    (line,) = notices_of(fakes.run())
    assert line.notice.since == format_ms(START_NS + seconds(70))


def test_each_of_several_batches_has_its_own_notices() -> None:
    fakes, started_ns = world_of(expected_seconds=100), START_NS + seconds(30)
    fakes.others = (
        ContainerMetadata(
            name="second", docker_id="s", known_status="RUNNING", started_ns=started_ns
        ),
    )
    fakes.source.stats_at = lambda at: {
        **fakes.usual_stats(at),
        "s": sample(START_NS + seconds(at), at * 0.5, 10 * MIB),
    }
    fakes.stop.at_seconds = 180.5
    found = [(line.record.container.name, line.notice.kind) for line in notices_of(fakes.run())]
    assert found == [("batch", "stuck"), ("batch", "overdue"), ("second", "overdue")]
    (report,) = (
        json.loads(line)["record"]
        for _, line in fakes.streams.lines
        if b'"name":"batch"' in line[:2000]
    )
    assert [one["kind"] for one in report["notices"]] == ["stuck", "overdue"]


def test_an_overdue_batch_needs_no_statistics() -> None:
    fakes = world_of(expected_seconds=30)
    fakes.source.stats_at = lambda _at: Unavailable("no answer")
    assert kinds(fakes) == ["overdue"]


def test_a_clock_that_is_set_makes_no_batch_overdue() -> None:
    fakes = world_of(ends=90.5, stuck_minutes=0, expected_seconds=100)
    usual = fakes.source.stats_at

    def stats_at(at: float) -> StatsReading | Unavailable:
        if at == 50:
            fakes.clock.wall_offset_ns += seconds(3600)
        return usual(at)

    fakes.source.stats_at = stats_at
    assert kinds(fakes) == []


def on_fargate(fakes: PlayedMonitor, traffic: Callable[[float], int]) -> PlayedMonitor:
    """The task's network counters have the bytes of the monitor's lines, which leave 5 s later,
    and the traffic.
    """

    def batch_sample(at: float) -> ContainerSample:
        refreshed = at // 10 * 10
        lines = [json.loads(line) for line in fakes.output.lines]
        sent = [
            line
            for line in lines
            if line["time"] <= format_ms(START_NS + seconds(max(refreshed - 5, 0)))
        ]
        return idle(at, network_tx_bytes=20_000 * len(sent) + traffic(refreshed))

    fakes.of_batch, fakes.of_task = (
        lambda _at: {"network_mode": "awsvpc"},
        lambda _at: {"launch_type": "FARGATE"},
    )
    fakes.batch_sample = batch_sample  # type: ignore[method-assign]
    return fakes


@pytest.mark.slow
def test_the_monitors_own_lines_do_not_hide_that_a_batch_is_stuck() -> None:
    fakes = on_fargate(world_of(ends=1500.5, stuck_minutes=10, checkpoint_seconds=60), lambda _: 0)
    assert kinds(fakes) == ["stuck"]
    times = [line["time"] for line in fakes.printed() if line["type"] == "task.checkpoint"]
    gaps = [(parse_ns(after) or 0) - (parse_ns(before) or 0) for before, after in pairwise(times)]
    assert max(gaps) <= seconds(240)  # those of the last minutes before the notice waited for it
    assert sum(gap > seconds(60) for gap in gaps) == 1


def test_a_defect_of_the_notices_does_not_end_the_sampling() -> None:
    """The first record, which fails, is that of the notice."""
    fakes = world_of(expected_seconds=100)
    collector = Mock(
        spec=FakeCollector,
        **{"part.side_effect": [RecordPart(values={"unheard": 1}), RecordPart()]},
    )
    collector.on_batch_started.return_value = None
    fakes.collectors = (collector,)
    assert kinds(fakes) == []
    report = fakes.report()
    assert report["status"] == "success"
    assert report["sampling"]["samples"] == 21
    (warning,) = report["monitor"]["warnings"]
    assert warning.startswith("The notifications failed (TypeError in ")
