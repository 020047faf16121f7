"""The monitor's loop on a fake clock, with a task that is a function of time."""

import json
import sys
from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.aggregation.record_parts import RecordPart
from profiler.collectors.stacks.stack_collector import StackCollector
from profiler.core.clock import ClockJumpDetector
from profiler.core.timestamps import format_ms
from profiler.monitor.prometheus.exporter import PrometheusExporter
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.record.batch_job import BatchJob
from profiler.settings import problems_message
from profiler.sinks import DeliveryFailure
from tests.batch_jobs import job_id
from tests.fakes import START_NS, FakeClock, FakeStdout, sample, seconds
from tests.monitor_world import MIB, OWN, FakeCollector, FakeDevices, PlayedMonitor


def test_the_end_is_seen_by_polling() -> None:
    fakes = PlayedMonitor(batch_ends=30.5).run()
    record = fakes.report()
    assert fakes.clock.now_ns == seconds(31)
    assert record["status"] == "success"
    assert record["exitCode"] == 0
    assert record["likelyOutOfMemory"] is False
    assert record["startedAt"] == "2025-11-20T00:53:20.000Z"
    assert record["finishedAt"] == "2025-11-20T00:53:50.500Z"
    metrics = record["metrics"]
    assert metrics["durationMs"] == 30500
    assert metrics["initDurationMs"] == 20000
    assert metrics["billedDurationMs"] == 60000
    assert metrics["cpuSeconds"] == 15.0
    assert metrics["vcpuSize"] == 1
    assert metrics["memorySizeMB"] == 1024
    assert metrics["vcpuUsed"]["avg"] == 0.5
    assert metrics["cpuUtilizationPercent"]["max"] == 50.0
    assert metrics["maxMemoryUsedMB"] == 100
    assert metrics["memoryUtilizationPercent"]["max"] == 9.766
    assert record["sampling"] == {
        "intervalMs": 1000,
        "samples": 30,
        "duplicates": 0,
        "failures": 0,
        "missedTicks": 0,
        "longestGapMs": 1000,
        "statsPeriodMs": 1000,
        "cpuCoveredPercent": 98.4,
        "sources": ["task-metadata-v4"],
    }
    assert record["taskSize"] == {"vcpu": 1, "memoryMB": 2048}
    assert record["logGroup"] == "/ecs/jobs"
    assert record["region"] == "eu-west-1"
    assert record["logRegion"] == "eu-central-1"
    assert record["containers"][0]["name"] == "task-monitor"
    assert record["monitor"] == {
        "version": "0.1.0",
        "cpuSeconds": 0.5,
        "maxRssMB": 27.1,
        "restarts": 0,
        "warnings": [],
    }
    assert fakes.log.lines == []
    assert fakes.output.lines == []


@pytest.mark.parametrize(
    ("ends", "exit_code", "stop_at", "status", "metrics", "over"),
    [
        # The batch's exit and our SIGTERM come together, between two ticks.
        (20.3, 3, 20.4, "failure", {"durationMs": 20_300}, 20.4),
        # An end that shows shortly after the stop is waited for; the batch is measured until the
        # signal.
        (21.2, 0, 20.1, "stopped", {"durationMs": 21_200}, 21.4),
        (21.2, 0, 20.9, "stopped", {"cpuSeconds": 10.45}, 22),
        # No time is left for another read, or the exit code never shows.
        (16.9, None, 15.2, "stopped", {"durationMs": 16_900}, 17.2),
        (10.0, None, None, "unknown", {"durationMs": 10_000}, 12),
    ],
)
def test_a_batch_that_ends_about_when_the_monitor_is_stopped(
    ends: float,
    exit_code: int | None,
    stop_at: float | None,
    status: str,
    metrics: dict[str, float],
    over: float,
) -> None:
    fakes = PlayedMonitor(batch_ends=ends, exit_code=exit_code, stop_at=stop_at).run()
    record = fakes.report()
    assert record["status"] == status
    assert record.get("exitCode") == exit_code
    assert record["metrics"] | metrics == record["metrics"]
    assert fakes.clock.now_ns <= seconds(over)


def test_stop_while_the_batch_runs_leaves_within_two_seconds() -> None:
    fakes = PlayedMonitor(stop_at=15.5).run()
    record = fakes.report()
    assert seconds(17.2) <= fakes.clock.now_ns <= seconds(17.5)
    assert {"likelyOutOfMemory", "exitCode", "finishedAt"}.isdisjoint(record)
    assert record["status"] == "stopped"
    assert record["metrics"]["durationMs"] == 17250
    assert record["metrics"]["cpuSeconds"] == 8.625
    assert fakes.budget.seconds == [pytest.approx(22.25, abs=0.1)]
    early = PlayedMonitor(stop_at=0.6).run().report()  # before the first sample
    assert early["status"] == "stopped"
    assert early["sampling"]["samples"] == 2
    assert early["metrics"]["cpuSeconds"] == pytest.approx(
        early["metrics"]["durationMs"] / 1000 * 0.5
    )


def slow_from(fakes: PlayedMonitor, at_seconds: float, lasts: float) -> None:
    """From then on the stats take so long and fail."""

    def stats_at(at: float) -> StatsReading | Unavailable:
        if at < at_seconds:
            return fakes.usual_stats(at)
        fakes.clock.advance(lasts)
        return Unavailable("/task/stats did not answer", timed_out=True)

    fakes.source.stats_at = stats_at


def test_the_stop_budget_counts_from_the_signal_and_not_from_its_answer() -> None:
    """The signal comes while a reading is waited for."""
    fakes = PlayedMonitor(stop_at=15.2, stop_seconds=10)
    slow_from(fakes, 15, lasts=1.7)
    assert fakes.run().report()["status"] == "stopped"
    assert fakes.clock.now_ns == pytest.approx(seconds(16.7 + 2), abs=seconds(0.1))
    assert fakes.budget.seconds == [pytest.approx(10 - 1.5 - 2 - 1, abs=0.1)]
    long_ago = PlayedMonitor(batch_ends=15.1, stop_at=15.2)
    slow_from(long_ago, 15, lasts=8)
    assert long_ago.run().report()["status"] == "success"
    assert long_ago.budget.seconds == [pytest.approx(25 - 7.8 - 1)]


def test_an_endpoint_that_takes_its_time_still_tells_how_the_batch_ended() -> None:
    fakes = PlayedMonitor(batch_ends=14.9, exit_code=3, stop_at=15.2)
    slow_from(fakes, 15, lasts=0.7)  # as long as a reading is waited for that the signal comes into
    prompt = fakes.source.read_task

    def slow_task(max_seconds: float | None = None) -> TaskMetadata | Unavailable:
        if max_seconds is None:
            return prompt()
        fakes.clock.advance(min(max_seconds, 1.7))
        return (
            prompt() if max_seconds >= 1.7 else Unavailable("/task did not answer", timed_out=True)
        )

    fakes.source.read_task = slow_task  # type: ignore[method-assign]
    record = fakes.run().report()
    assert record["status"] == "failure"
    assert record["exitCode"] == 3


def test_a_put_in_progress_does_not_stop_the_sampling_of_another_batch() -> None:
    fakes = PlayedMonitor(batch_ends=30.5)
    fakes.budget.last_seconds = 20
    web = replace(fakes.batch(0), name="web", docker_id="w")
    ended = replace(web, known_status="STOPPED", exit_code=0, finished_ns=START_NS + seconds(5))
    fakes.of_task = lambda at: {"containers": (fakes.batch(at), ended if at >= 5 else web, OWN)}
    first, second = (json.loads(line)["record"] for _, line in fakes.run().streams.lines)
    assert first["container"]["name"] == "web"
    assert second["container"]["name"] == "batch"
    found = (
        second["sampling"]["samples"],
        second["sampling"]["missedTicks"],
        second["metrics"]["cpuSeconds"],
    )
    assert found == (30, 0, 15.0)


@pytest.mark.parametrize(("stop_seconds", "left"), [(25, 24), (4, 3), (2, 1.5), (1, 0.75)])
def test_a_short_budget_leaves_most_of_it_to_the_put(stop_seconds: float, left: float) -> None:
    fakes = PlayedMonitor(batch_ends=3.5, stop_seconds=stop_seconds).run()
    assert fakes.budget.seconds == [left]
    assert fakes.report()["status"] == "success"


def stopping_from(fakes: PlayedMonitor, at_seconds: float, **fields: Any) -> None:
    """From then on the task is to stop, and has these fields."""
    fakes.of_task = lambda at: {"desired_status": "STOPPED", **fields} if at >= at_seconds else {}


@pytest.mark.parametrize("exit_code", [0, 1, 137, 143])
def test_a_batch_that_ends_after_another_essential_container_or_the_monitors_signal_was_stopped(
    exit_code: int,
) -> None:
    """Without dependsOn both are signalled at once. The signal comes while an answer is awaited."""
    beside = PlayedMonitor(batch_ends=34.4, exit_code=exit_code)
    beside.others = (replace(ENDED_WEB, finished_ns=START_NS + seconds(34.04)),)
    stopping_from(beside, 34.1, execution_stopped_ns=START_NS + seconds(34.05))
    signalled = PlayedMonitor(batch_ends=15.5, exit_code=exit_code, stop_at=15.2)
    slow_from(signalled, 15, lasts=0.7)
    for record in (fakes.run().report() for fakes in (beside, signalled)):
        assert record["status"] == "stopped"
        assert record["exitCode"] == exit_code


def test_a_stop_that_shows_when_the_batchs_stats_vanish_or_before() -> None:
    """The task is read at once when they vanish: the agent may list the batch as running for a
    moment.
    """
    fakes = PlayedMonitor(batch_ends=34.4)
    fakes.source.stats_at = lambda at: fakes.usual_stats(at) if at < 33 else {}
    stopping_from(fakes, 32.5)
    record = fakes.run().report()
    assert record["status"] == "stopped"
    assert record["exitCode"] == 0
    before = PlayedMonitor(
        batch_ends=35.0, exit_code=143
    )  # the batch depends on the monitor: ECS stops it first
    stopping_from(before, 25)
    record = before.run().report()
    assert record["status"] == "stopped"
    assert record["exitCode"] == 143
    assert record["metrics"]["durationMs"] == 35000


def test_a_batch_whose_end_shows_later_than_the_tasks_ended_by_itself() -> None:
    fakes = PlayedMonitor(batch_ends=20.0, stop_at=20.6)
    stopping_from(fakes, 20)
    fakes.of_batch = lambda at: (
        {} if at >= 21 else {"known_status": "RUNNING", "exit_code": None, "finished_ns": None}
    )
    record = fakes.run().report()
    assert record["status"] == "success"
    assert record["exitCode"] == 0


def test_a_batch_that_was_gone_before_the_first_tick() -> None:
    record = PlayedMonitor(batch_ends=-1.0, exit_code=5).run().report()
    assert record["status"] == "failure"
    assert record["sampling"]["samples"] == 0
    assert set(record["metrics"]) == {
        "billedDurationMs",
        "initDurationMs",
        "memorySizeMB",
        "vcpuSize",
    }


def test_a_batch_that_vanishes_counts_as_lost_after_three_reads() -> None:
    fakes = PlayedMonitor()
    fakes.memory_mib = lambda _at: 1000

    def is_listed(at: float) -> bool:
        return at < 16 or 18 <= at < 20

    fakes.of_task = lambda at: {} if is_listed(at) else {"containers": (OWN,)}
    fakes.source.stats_at = lambda at: fakes.usual_stats(at) if is_listed(at) else {}
    record = fakes.run().report()
    assert fakes.clock.now_ns == seconds(22)
    assert record["status"] == "unknown"
    assert record["finishedAt"] == "2025-11-20T00:53:39.000Z"
    assert record["metrics"]["cpuSeconds"] == 9.5
    assert {"exitCode", "likelyOutOfMemory"}.isdisjoint(record)
    assert {"durationMs", "billedDurationMs"}.isdisjoint(record["metrics"])


def test_an_endpoint_that_dies_for_good_leaves_an_unknown_end() -> None:
    fakes = PlayedMonitor(stop_at=50.0)
    fakes.source.stats_at = lambda at: Unavailable("refused") if at > 30 else fakes.usual_stats(at)
    fakes.source.task_at = lambda at: Unavailable("refused") if at > 30 else fakes.usual_task(at)
    record = fakes.run().report()
    assert record["status"] == "unknown"
    assert record["metrics"]["cpuSeconds"] == 15.0
    assert fakes.clock.now_ns <= seconds(52.2)


def test_an_endpoint_that_never_shows_the_task_is_quoted() -> None:
    fakes, reason = PlayedMonitor(stop_at=5.0), "/task did not answer within 0.9 s"
    fakes.source.stats_at = lambda _at: Unavailable("refused")
    fakes.source.task_at = lambda at: Unavailable("refused" if at < 1 else reason)
    fakes.run()
    assert fakes.streams.lines == []
    assert f"never showed the task ({reason})" in fakes.log.events("error")[-1]


def test_checkpoints_are_cumulative_and_carry_their_interval() -> None:
    fakes = PlayedMonitor(batch_ends=150.5, checkpoint_seconds=60.0)
    fakes.memory_mib = lambda at: 100 if at <= 60 else 200
    fakes.run()
    (kind, first), (_, second) = ((line["type"], line["record"]) for line in fakes.printed())
    assert kind == "task.checkpoint"
    assert first["status"] == "running"
    assert "likelyOutOfMemory" not in first
    metrics, interval = second["metrics"], second["interval"]
    assert first["metrics"]["cpuSeconds"] == 30.0
    assert metrics["cpuSeconds"] == 60.0
    assert metrics["durationMs"] == 120_000
    assert interval["startedAt"] == "2025-11-20T00:54:20.000Z"
    assert interval["finishedAt"] == "2025-11-20T00:55:20.000Z"
    assert interval["cpuSeconds"] == 30.0
    assert interval["memoryUsedMB"]["avg"] == 200
    assert "interval" not in fakes.report()


AT_THE_END = {"task.report": {"family": "etl", "durationMs": 90_500, "failed": 0}}
ON_THE_WAY = {"task.checkpoint": {"family": "etl", "durationMs": 60_000}}


@pytest.mark.parametrize(
    ("emf", "carried"),
    [("off", {}), ("report", AT_THE_END), ("live", {**ON_THE_WAY, **AT_THE_END})],
)
def test_lines_have_metrics_for_cloudwatch_if_enabled(emf: str, carried: dict[str, Any]) -> None:
    fakes = PlayedMonitor(
        batch_ends=90.5, checkpoint_seconds=60.0, emf=emf, emf_metrics=("durationMs", "failed")
    ).run()
    ((_, put),) = fakes.streams.lines
    own = {"time", "type", "schemaVersion", "record", "_aws"}
    assert {
        document["type"]: {name: value for name, value in document.items() if name not in own}
        for document in [*fakes.printed(), json.loads(put)]
        if "_aws" in document
    } == carried


ENDED_WEB = ContainerMetadata(
    name="web",
    docker_id="w",
    known_status="STOPPED",
    exit_code=0,
    started_ns=START_NS,
    finished_ns=START_NS + seconds(2),
)


def test_several_candidates_get_a_report_each_and_one_error() -> None:
    """Several candidates get a report each and one error and the last report the cost of the task."""
    fakes = PlayedMonitor(batch_ends=50.5)
    fakes.others, fakes.of_task = (ENDED_WEB,), lambda _at: {"launch_type": "FARGATE"}
    (first,) = fakes.run().printed()
    (error, _) = fakes.log.events("error")  # the other is web's unknown log stream
    assert "batch, web" in error
    assert [target.stream for target, _ in fakes.streams.lines] == ["ecs/batch/0123"]
    assert first["record"]["container"]["name"] == "web"
    assert "cost" not in first["record"]
    assert fakes.report()["monitor"]["warnings"] == [error]
    assert fakes.report()["cost"]["usd"] > 0


def test_a_batch_that_was_over_before_it_could_be_listed_is_reported() -> None:
    """An endpoint of version 3 may list running containers only."""
    fakes = PlayedMonitor(container="batch", log_group="/ecs/jobs", log_stream="s")
    fakes.of_task = lambda _at: {"known_status": "RUNNING", "containers": (OWN,)}
    fakes.source.stats_at = lambda _at: {}
    record = fakes.run().report()
    assert fakes.clock.now_ns == seconds(2)
    assert record["container"] == {"name": "batch"}
    assert record["status"] == "unknown"
    assert record["family"] == "etl"
    assert record["sampling"]["samples"] == 0
    assert record["taskSize"] == {"vcpu": 1, "memoryMB": 2048}
    assert {"startedAt", "finishedAt", "likelyOutOfMemory"}.isdisjoint(record)


@pytest.mark.parametrize("known_status", ["NONE", "CREATED", None])
def test_a_batch_that_may_still_start_is_waited_for_and_leaves_a_record(
    known_status: str | None,
) -> None:
    fakes = PlayedMonitor(container="bach", stop_at=300.5)
    fakes.of_task = lambda _at: {"known_status": known_status, "containers": (OWN,)}
    (document,) = fakes.run().printed()
    assert document["record"]["container"] == {"name": "bach"}
    assert document["record"]["status"] == "unknown"
    assert any("'bach'" in error for error in fakes.log.events("error"))
    assert fakes.clock.now_ns > seconds(300)


@pytest.mark.parametrize("container", [None, "batch"])
def test_a_batch_that_is_listed_late_leaves_no_complaint_in_the_record(
    container: str | None,
) -> None:
    fakes = PlayedMonitor(batch_ends=30.5, container=container)
    fakes.of_task = lambda at: {} if at >= 2 else {"containers": (OWN,)}
    record = fakes.run().report()
    assert len(fakes.log.events("error")) == 1
    assert record["status"] == "success"
    assert record["monitor"]["warnings"] == []
    lost = PlayedMonitor(container=container)
    lost.of_task = lambda at: {} if at < 20 else {"containers": (OWN,)}
    lost.source.stats_at = lambda at: lost.usual_stats(at) if at < 20 else {}
    assert lost.run().report()["monitor"]["warnings"] == []
    assert lost.log.events("error") == []


def test_a_batch_that_starts_after_the_monitor() -> None:
    """The layout in which the batch depends on the monitor: at first it is listed without id and
    start.
    """
    fakes = PlayedMonitor(batch_ends=30.5)
    pulled = ContainerMetadata(name="batch", known_status="PULLED")
    fakes.of_task = lambda at: {} if at >= 5 else {"containers": (pulled, OWN)}
    fakes.source.stats_at = lambda at: fakes.usual_stats(at) if at >= 6 else {}
    record = fakes.run().report()
    assert record["status"] == "success"
    assert record["sampling"]["samples"] == 25
    assert record["metrics"]["cpuSeconds"] == 15.0


def test_collectors_take_a_final_reading_before_the_report_and_stop_after_it() -> None:
    fakes = PlayedMonitor(batch_ends=25.5)
    accelerator = FakeCollector(fakes)
    fakes.collectors = (accelerator,)
    record = fakes.run().report()
    steps = list(dict.fromkeys(accelerator.calls))
    assert steps == [("start", 0), ("started b", 0), ("final reading", 0), ("stop", 1)]
    assert [gpu["uuid"] for gpu in record["gpus"]] == ["GPU-a"]
    assert record["monitor"]["warnings"] == ["A warning."]
    assert record["sampling"]["sources"] == ["task-metadata-v4", "fake"]


@pytest.mark.parametrize(("fails_at", "samples"), [(20, 20), (1, 1), (0, 0)])
def test_a_monitor_that_fails_reports_what_it_has_measured(
    fails_at: int, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "traceback", None)  # no module can be imported any more
    fakes = PlayedMonitor(batch_ends=30.5)

    def fail_later(_batch: str, taken: ContainerSample, _sizes: ResourceLimits) -> None:
        if taken.read_ns >= START_NS + seconds(fails_at):
            raise KeyError("secret")

    fakes.on_sample = fail_later
    record = fakes.run().report()
    assert record["status"] == "unknown"
    assert record["container"]["id"] == "b"
    assert record["startedAt"] == "2025-11-20T00:53:20.000Z"
    assert {"exitCode", "finishedAt", "likelyOutOfMemory"}.isdisjoint(record)
    assert record["metrics"].get("cpuSeconds") == (samples / 2 or None)
    assert record["sampling"].get("samples", 0) == samples
    (warning,) = record["monitor"]["warnings"]
    assert warning.startswith("The monitor failed (KeyError in tests.unit.monitor.test_loop, line ")
    assert "secret" not in warning
    assert fakes.log.events("error") == [warning]


def test_a_report_that_cannot_be_built_is_replaced_by_one_without_measurements() -> None:
    fakes = PlayedMonitor(batch_ends=10.5, exit_code=3)
    broken = FakeCollector(fakes)
    broken.part = Mock(return_value=RecordPart(values={"unheard": 1}))  # type: ignore[method-assign]
    fakes.collectors = (broken,)
    record = fakes.run().report()
    assert record["status"] == "failure"
    assert record["exitCode"] == 3
    assert record["metrics"]["durationMs"] == 10500
    assert record["monitor"]["warnings"] == fakes.log.events("error")[:1]
    assert "cpuSeconds" not in record["metrics"]
    assert broken.calls[-1] == ("stop", 1)


def test_a_report_whose_log_stream_cannot_be_determined_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("profiler.monitor.loop.batch_streams", Mock(side_effect=KeyError("secret")))
    fakes = PlayedMonitor(batch_ends=10.5)
    fakes.run()
    assert fakes.streams.lines == []
    (line,) = fakes.printed()
    assert line["type"] == "task.report"
    record = line["record"]
    assert record["container"]["id"] == "b"
    assert record["status"] == "unknown"
    assert "logGroup" not in record
    assert any("its log stream" in error.lower() for error in fakes.log.events("error"))


class BreakingClock(FakeClock):
    """Has no wall clock from second 20 on: no line can be built then."""

    def wall_ns(self) -> int:
        if self.now_ns >= seconds(20):
            raise OverflowError
        return super().wall_ns()


def test_a_report_on_its_way_is_not_lost_when_the_last_handler_fails_too() -> None:
    """The upload of the first batch's report is refused, but only after the monitor has failed."""
    fakes = PlayedMonitor(batch_ends=10.5, clock=BreakingClock())
    fakes.others = (
        ContainerMetadata(
            name="second", docker_id="s", known_status="RUNNING", started_ns=START_NS
        ),
    )
    fakes.streams.failure = DeliveryFailure("It refuses.")
    fakes.budget.last_seconds = 15
    collector = FakeCollector(fakes)
    fakes.collectors, fakes.exporter = (
        (collector,),
        Mock(spec=PrometheusExporter, **{"start.return_value": None}),
    )
    fakes.run()
    assert [line["record"]["container"]["name"] for line in fakes.printed()] == ["batch"]
    assert any("OverflowError" in event for event in fakes.log.events("error"))
    assert collector.calls[-1][0] == "stop"
    fakes.exporter.close.assert_called_once_with()


def test_a_report_that_cannot_be_printed_does_not_fail_the_monitor() -> None:
    """A report that cannot even be printed does not end the monitor with an error."""
    fakes = PlayedMonitor(batch_ends=10.5)
    fakes.streams.failure, fakes.budget.last_seconds = DeliveryFailure("It refuses."), 15
    fakes.output = Mock(spec=FakeStdout, **{"keep.side_effect": ValueError})
    collector, stuck = (
        FakeCollector(fakes),
        Mock(spec=StackCollector, **{"on_batch_started.return_value": None}),
    )
    stuck.part.return_value, stuck.stop.side_effect = RecordPart(), TimeoutError
    fakes.collectors = (collector, stuck)
    printing, stopping = fakes.run().log.events("error")[-2:]
    assert "ValueError" in printing
    assert "TimeoutError" in stopping
    assert collector.calls[-1][0] == "stop"


@pytest.mark.parametrize(
    ("jump", "direction"),
    [
        (5, "forward"),
        (20, "forward"),
        (3600, "forward"),
        (-5, "back"),
        (-40, "back"),
        (-3600, "back"),
    ],
)
def test_a_wall_clock_that_is_set_changes_no_number_and_is_said(jump: int, direction: str) -> None:
    """The stamps of the container runtime jump with the clock; by how much is known."""
    fakes = PlayedMonitor(batch_ends=40.0)
    fakes.memory_mib = lambda at: 200 if at == 30 else 100
    jump_ns = seconds(jump)

    def jump_at(at: float) -> int:
        return jump_ns if at >= 20 else 0

    def stats_at(at: float) -> StatsReading:
        fakes.clock.wall_offset_ns = START_NS + jump_at(at)
        usual = fakes.usual_stats(at)
        return {
            key: replace(taken, read_ns=taken.read_ns + jump_at(at)) for key, taken in usual.items()
        }

    fakes.source.stats_at = stats_at
    fakes.of_batch = lambda at: (
        {"finished_ns": START_NS + seconds(40) + jump_ns} if at >= 40 else {}
    )
    reads: list[int] = []
    fakes.on_sample = lambda batch, taken, _: reads.append(taken.read_ns) if batch == "b" else None
    record = fakes.run().report()
    assert reads == [START_NS + seconds(at) for at in range(1, 40)]
    assert record["status"] == "success"
    assert record["exitCode"] == 0
    metrics = record["metrics"]
    assert metrics["durationMs"] == 40_000
    assert metrics["billedDurationMs"] == 60_000
    assert metrics["initDurationMs"] == 20_000
    (monitor,) = record["containers"]
    assert monitor["metrics"]["durationMs"] == 40_000
    assert metrics["cpuSeconds"] == 19.5
    assert metrics["maxMemoryUsedAt"] == format_ms(START_NS + seconds(30))
    assert {*metrics["vcpuUsed"].values(), *record["series"]["vcpuUsed"]} == {0.5}
    assert None not in record["series"]["memoryUsedMB"]
    assert record["sampling"]["samples"] == 39
    assert record["sampling"]["longestGapMs"] == 1000
    (warning,) = record["monitor"]["warnings"]
    assert f"set {direction} by {abs(jump)} s" in warning
    assert fakes.log.events("warning") == [warning]


@pytest.mark.parametrize("jump", [-40, 40])
def test_a_clock_that_is_set_after_the_end_does_not_change_the_duration(jump: int) -> None:
    fakes = PlayedMonitor(batch_ends=5.3)

    def stats_at(at: float) -> StatsReading:
        if at > 5.5:
            fakes.clock.wall_offset_ns = START_NS + seconds(jump)
        return fakes.usual_stats(at)

    fakes.source.stats_at = stats_at
    assert fakes.run().report()["metrics"]["durationMs"] == 5_300


def test_a_clock_that_is_set_while_the_end_is_read_does_not_change_the_duration() -> None:
    fakes = PlayedMonitor(batch_ends=5.5)

    def task_at(at: float) -> TaskMetadata:
        if at > 5.5:
            fakes.clock.wall_offset_ns = START_NS + seconds(3600)
        return fakes.usual_task(at)

    fakes.source.task_at = task_at
    fakes.of_batch = lambda at: {"finished_ns": START_NS + seconds(3605.5)} if at > 5.5 else {}
    assert fakes.run().report()["metrics"]["durationMs"] == 5_500


def test_a_stopped_process_is_not_a_clock_jump() -> None:
    """SIGSTOP, or a machine that is busy, between two readings of the clocks or between two
    looks.
    """

    class StandingStill(FakeClock):
        def wall_ns(self) -> int:
            self.advance(30)
            return super().wall_ns()

    clock = FakeClock()
    for looking in (ClockJumpDetector(StandingStill()), ClockJumpDetector(clock)):
        for _ in range(3):
            assert looking.check() == looking.jumped_ns == 0
            clock.advance(30)
    for _ in range(1000):  # a clock that is steered
        clock.advance(1)
        clock.wall_offset_ns += seconds(0.5)
        assert looking.check() == 0


@pytest.mark.parametrize("stale", [False, True])
def test_a_batch_that_gets_a_new_id_is_counted_on_and_that_is_said(*, stale: bool) -> None:
    """The endpoint may go on to list the old container, and to repeat its last reading."""
    fakes = PlayedMonitor(batch_ends=60.5)
    changed = 30

    def new(at: float) -> ContainerMetadata:
        return replace(fakes.batch(at), docker_id="b2", started_ns=START_NS + seconds(changed))

    def of_task(at: float) -> dict[str, Any]:
        old = replace(
            fakes.batch(0), known_status="STOPPED" if at >= changed else "RUNNING", exit_code=1
        )
        return {"containers": (*((new(at), old) if at >= changed else (old,)), OWN)}

    def stats_at(at: float) -> StatsReading:
        usual = fakes.usual_stats(at)
        if at <= changed or "b" not in usual:
            return usual
        samples = {
            "m": usual["m"],
            "b2": sample(START_NS + seconds(at), (at - changed) * 0.5, 200 * MIB),
        }
        if stale:
            samples["b"] = fakes.batch_sample(changed)
        return samples

    fakes.of_task, fakes.source.stats_at = of_task, stats_at
    record = fakes.run().report()
    assert record["status"] == "success"
    assert record["exitCode"] == 0
    assert record["container"]["id"] == "b2"
    metrics = record["metrics"]
    assert metrics["cpuSeconds"] == 30.0
    assert metrics["vcpuUsed"]["max"] == 0.5
    assert metrics["maxMemoryUsedMB"] == 200
    assert set(record["series"]["vcpuUsed"]) == {0.5}
    is_one_run_with_a_restart(record)


def is_one_run_with_a_restart(record: dict[str, Any]) -> None:
    metrics = record["metrics"]
    assert record["startedAt"] == record["series"]["startedAt"] == "2025-11-20T00:53:20.000Z"
    assert metrics["durationMs"] == 60_500
    assert metrics["initDurationMs"] == 20_000
    assert record["container"]["restarts"] == 1
    (warning,) = record["monitor"]["warnings"]
    assert "restarted the container once" in warning


@pytest.mark.parametrize("are_counters_reset", [False, True])
@pytest.mark.parametrize("shows", ["count", "start", "both"])
def test_a_batch_that_is_restarted_in_place_is_one_run(
    *, are_counters_reset: bool, shows: str
) -> None:
    """The Docker id stays, and the statistics never vanish. The agent may continue the counters."""
    fakes = PlayedMonitor(batch_ends=60.5)
    restarted = 25.5
    shown = {"count": {"restart_count": 1}, "start": {"started_ns": START_NS + seconds(restarted)}}
    changes = {**shown["count"], **shown["start"]} if shows == "both" else shown[shows]

    def stats_at(at: float) -> StatsReading:
        usual = fakes.usual_stats(at)
        if not are_counters_reset or at < restarted or "b" not in usual:
            return usual
        anew = replace(usual["b"], cpu_ns=seconds((at - restarted) * 0.5))
        return {**usual, "b": anew}

    fakes.of_batch, fakes.source.stats_at = lambda at: changes if at >= restarted else {}, stats_at
    record = fakes.run().report()
    lost = (
        0.25 if are_counters_reset else 0
    )  # from the last reading of the first attempt to its end
    assert record["metrics"]["cpuSeconds"] == pytest.approx(30.0 - lost)
    is_one_run_with_a_restart(record)


def test_impossible_values_are_absent_with_one_warning() -> None:
    fakes = PlayedMonitor(batch_ends=40.5)

    def stats_at(at: float) -> StatsReading:
        usual = fakes.usual_stats(at)
        if at not in (6, 20, 21, 22):
            return usual
        wrong: dict[int, dict[str, Any]] = {
            6: {"cpu_ns": seconds(24_282)},
            20: {"memory_used_bytes": 10**15},
            21: {"cpu_ns": seconds(24_282)},
            22: {"memory_used_bytes": None, "is_memory_impossible": True},
        }
        return {**usual, "b": replace(usual["b"], **wrong[int(at)])}

    fakes.source.stats_at = stats_at
    record = fakes.run().report()
    metrics = record["metrics"]
    assert metrics["cpuSeconds"] == 20.0
    assert metrics["vcpuUsed"]["max"] == 0.5
    assert metrics["maxMemoryUsedMB"] == 100
    assert set(record["series"]["vcpuUsed"]) == {0.5}
    assert record["series"]["memoryUsedMB"].count(None) == 2
    (warning,) = record["monitor"]["warnings"]
    assert "4 values of CPU time or memory that cannot be right on this machine" in warning


@pytest.mark.parametrize(("malformed", "is_batch"), [("m", False), ("b", True)])
def test_malformed_stats_cost_only_their_container_and_are_a_warning(
    malformed: str, *, is_batch: bool
) -> None:
    fakes = PlayedMonitor(batch_ends=10.5)
    fakes.source.stats_at = lambda at: {**fakes.usual_stats(at), malformed: Unavailable("an array")}
    record = fakes.run().report()
    assert fakes.clock.now_ns == seconds(11)
    assert (record["sampling"]["failures"] > 0) == is_batch
    assert ("cpuSeconds" in record["metrics"]) == (not is_batch)
    sentence = "The task stats of the container could never be read: an array."
    assert record["monitor"]["warnings"] == [sentence][: int(is_batch)]
    assert len(fakes.log.events("warning")) == int(is_batch)
    assert fakes.log.events("info") == []


@pytest.mark.parametrize(
    ("launch_type", "others", "is_alone"),
    [("FARGATE", 0, True), ("FARGATE", 1, False), ("EC2", 0, False)],
)
def test_a_batch_on_fargate_without_a_sidecar_has_the_machine_for_itself(
    launch_type: str, others: int, *, is_alone: bool
) -> None:
    fakes = PlayedMonitor(batch_ends=3.5, stop_at=5)
    fakes.others = (replace(OWN, name="sidecar", docker_id="s"),) * others
    fakes.of_task = lambda _at: {"launch_type": launch_type}
    assert fakes.run().sampler.is_batch_alone is is_alone


@pytest.mark.parametrize(("ends", "covered"), [(19.5, 51.3), (100.5, 99.5), (9.5, None)])
def test_the_share_of_the_run_until_the_last_refresh_of_the_cpu_time(
    ends: float, covered: float | None
) -> None:
    """The stats of Fargate are refreshed every ten seconds."""
    fakes = PlayedMonitor(batch_ends=ends)
    fakes.source.stats_at = lambda at: fakes.usual_stats(at // 10 * 10) if at < ends else {}
    record = fakes.run().report()
    assert record["sampling"].get("cpuCoveredPercent") == covered
    assert record["metrics"].get("cpuSeconds") == (covered and ends // 10 * 5)


def test_cpu_time_that_the_stats_lose_does_not_cover_the_rest_of_the_run() -> None:
    fakes = PlayedMonitor(batch_ends=100.0)

    def stats_at(at: float) -> StatsReading:
        usual = fakes.usual_stats(at)
        if at <= 40 or "b" not in usual:
            return usual
        return {**usual, "b": replace(usual["b"], cpu_ns=None)}

    fakes.source.stats_at = stats_at
    record = fakes.run().report()
    assert record["metrics"]["cpuSeconds"] == 20.0
    assert record["sampling"]["cpuCoveredPercent"] == 40.0


def test_the_report_has_the_series_and_checkpoints_have_none() -> None:
    fakes = PlayedMonitor(batch_ends=100.5, checkpoint_seconds=60.0, series_points=4)
    fakes.memory_mib = lambda at: 100 if at <= 50 else 200
    record = fakes.run().report()
    assert record["series"] == {
        "startedAt": "2025-11-20T00:53:20.000Z",
        "stepMs": 16_000,
        "vcpuUsed": [0.5] * 7,
        "memoryUsedMB": [100.0] * 3 + [200.0] * 4,
    }
    assert record["metrics"]["maxMemoryUsedAt"] == "2025-11-20T00:54:11.000Z"
    assert all("series" not in line["record"] for line in fakes.printed())


def test_the_series_and_checkpoints_can_be_switched_off() -> None:
    """The series and checkpoints can be switched off and bad settings are in the record."""
    fakes = PlayedMonitor(batch_ends=70.5, series_points=0, checkpoint_seconds=0)
    fakes.warnings = (problems_message(["SERIES_POINTS='x'"]),)
    report = fakes.run().report()
    assert "series" not in report
    assert fakes.output.lines == []
    assert "SERIES_POINTS='x'" in report["monitor"]["warnings"][0]
    assert report["metrics"]["slowdownAtVcpu"]["0.25"] == {"min": 2.004, "max": 2.503}


def test_saturation_and_slowdown_are_those_of_all_containers_of_the_task() -> None:
    """The batch uses half a vCPU, the proxy 0.45 for 8 of 20 s: the task of 1 vCPU is full for
    40 % of the time.
    """
    fakes = PlayedMonitor(batch_ends=20.5)
    fakes.others = (
        ContainerMetadata(name="proxy", docker_id="p", known_status="RUNNING", started_ns=START_NS),
    )

    def stats_at(at: float) -> StatsReading:
        proxy = sample(START_NS + seconds(at), 0.46 * min(at, 8), MIB, pids=3)
        return {**fakes.usual_stats(at), "p": proxy}

    fakes.settings = replace(fakes.settings, container="batch")
    fakes.source.stats_at = stats_at
    metrics = fakes.run().report()["metrics"]
    assert metrics["vcpuSaturatedPercent"] == 40.0
    assert set(metrics["slowdownAtVcpu"]) == {"0.25", "0.5"}
    # With 0.5 vCPU: 8 s at 0.961 and 12 s at 0.501, of which the monitor uses 0.001.
    bounds = {
        "min": (8 * 0.961 / 0.5 + 12 * 0.501 / 0.5) / 20,
        "max": 1 + (0.961 * 8 + 0.501 * 12) / 20,
    }
    assert metrics["slowdownAtVcpu"]["0.5"] == pytest.approx(bounds, abs=1e-3)


def test_an_endpoint_that_answers_slowly_for_a_minute_costs_samples_and_nothing_else() -> None:
    """Half of the minute it does not answer in time, then the timeout is long enough."""
    fakes = PlayedMonitor(batch_ends=200.5)

    def stats_at(at: float) -> StatsReading | Unavailable:
        if 60 <= at < 90:
            fakes.clock.advance(1.8)
            return Unavailable("/task/stats did not answer within 1.8 s", timed_out=True)
        if 90 <= at < 120:
            fakes.clock.advance(2.5)
        return fakes.usual_stats(fakes.clock.now_ns / seconds(1))

    fakes.source.stats_at = stats_at
    record = fakes.run().report()
    metrics, sampling = record["metrics"], record["sampling"]
    assert metrics["cpuSeconds"] == 100.0
    assert metrics["vcpuUsed"]["max"] == 0.5
    assert metrics["durationMs"] == 200_500
    assert fakes.source.task_reads < 30  # none only because the statistics did not answer in time
    assert sampling["failures"] == 15
    assert sampling["longestGapMs"] == 33_500
    assert sampling["samples"] + sampling["failures"] + sampling["missedTicks"] == 200
    assert [level for level, _, _ in fakes.log.lines] == ["warning", "info"]


def test_devices_are_in_the_interval_and_in_the_series() -> None:
    fakes = PlayedMonitor(batch_ends=100.5, checkpoint_seconds=40.0, series_points=2)
    fakes.devices = (FakeDevices(fakes.clock),)
    record = fakes.run().report()
    first, second = (line["record"]["interval"] for line in fakes.printed())
    assert first["gpuUtilizationPercent"] == {"avg": 20.25, "max": 40.0}
    assert second["gpuUtilizationPercent"] == {"avg": 40.25, "max": 80.0}
    assert second["gpuMemoryUsedMB"] == {"avg": 2048.0, "max": 3072.0}
    assert second["neuronUtilizationPercent"] == {"avg": 7.0, "max": 7.0}
    series = {
        "stepMs": 32_000,
        "gpuUtilizationPercent": [18.0, 33.8, 49.8, 59.4],
        "neuronUtilizationPercent": [7.0] * 4,
    }
    assert record["series"] | series == record["series"]


def test_the_call_stacks_are_delivered_before_the_report_and_not_with_checkpoints() -> None:
    fakes = PlayedMonitor(batch_ends=30.5, checkpoint_seconds=10)
    stacks = Mock(spec=StackCollector, **{"stacks_line.return_value": b'{"type":"task.stacks"}'})
    stacks.part.return_value, stacks.on_batch_started.return_value = RecordPart(), None
    fakes.collectors = (stacks,)
    fakes.run()
    assert [json.loads(line)["type"] for _, line in fakes.streams.lines] == [
        "task.stacks",
        "task.report",
    ]
    assert {line["type"] for line in fakes.printed()} == {"task.checkpoint"}


def test_the_monitor_of_a_job_of_aws_batch_says_which_job_it_is() -> None:
    """Batch's variables are overrides of the containers, its own perhaps among them."""
    job = BatchJob(job_id=job_id(1), queue="nightly", attempt=2)
    record = PlayedMonitor(batch_ends=3, batch_job=job).run().report()
    assert record["batch"] == {"jobId": job_id(1), "queue": "nightly", "attempt": 2}
    assert "batch" not in PlayedMonitor(batch_ends=3).run().report()


def played(
    *, waits: bool, ends: float, levels_mib: list[int], read_seconds: float, **settings: Any
) -> PlayedMonitor:
    """A run whose memory has each level for three seconds, the last one until its end; each reading
    of the statistics takes ``read_seconds``.
    """
    fakes = PlayedMonitor(batch_ends=ends, exit_code=137, series_points=10, **settings)
    fakes.takes_late_samples = waits

    def stats_at(at: float) -> dict[str, ContainerSample]:
        fakes.clock.advance(read_seconds)
        return fakes.usual_stats(at)

    fakes.source.stats_at = stats_at
    fakes.memory_mib = lambda at: levels_mib[min(int(at / 3), len(levels_mib) - 1)]
    return fakes.run()


_STEADY: Mapping[str, Any] = {
    "ends": 20,
    "levels_mib": [100],
    "read_seconds": 0.003,
    "checkpoint_seconds": 0,
    "stuck_minutes": 0,
    "expected_seconds": None,
    "interval_seconds": 1,
    "stop_at": None,
}


@given(
    ends=st.floats(0.5, 90),
    levels_mib=st.lists(st.integers(0, 1024), min_size=1, max_size=20),
    read_seconds=st.sampled_from([0.0, 0.003, 0.7]),
    checkpoint_seconds=st.sampled_from([0.0, 7.0, 7.002, 60.0]),
    stuck_minutes=st.sampled_from([0.0, 0.3]),
    expected_seconds=st.sampled_from([None, 15.3, 47.0]),
    interval_seconds=st.sampled_from([0.5, 1.0, 3.0, 20.0]),
    stop_at=st.one_of(st.none(), st.floats(10, 80)),
)
@example(**{**_STEADY, "checkpoint_seconds": 7.002})  # due while the statistics are read
@example(**{**_STEADY, "expected_seconds": 15.3})  # a line between two readings of the task
@example(**{**_STEADY, "expected_seconds": 19.3})  # over when the end is read
@settings(max_examples=40)
def test_samples_that_wait_give_the_same_lines(**choices: Any) -> None:
    waiting, prompt = (played(waits=waits, **choices) for waits in (True, False))
    assert waiting.report() == prompt.report()
    assert waiting.printed() == prompt.printed()
    assert waiting.clock.now_ns == prompt.clock.now_ns


def test_samples_wait_for_the_next_reading_of_the_task_unless_memory_is_short() -> None:
    """At 70 % of the memory, each line may be the last one."""
    fakes = PlayedMonitor(batch_ends=60.5, checkpoint_seconds=60)
    fakes.takes_late_samples = True
    fakes.memory_mib = lambda at: 720 if 30 <= at < 40 else 100
    late: list[tuple[float, float]] = []

    def on_sample(_batch: str, added: ContainerSample, _sizes: ResourceLimits) -> None:
        taken = (added.read_ns - START_NS) / seconds(1)
        late.append((taken, fakes.clock.now_ns / seconds(1) - taken))

    fakes.on_sample = on_sample
    fakes.run()
    assert [taken for taken, _ in late] == [*range(61)]
    prompt = {taken for taken, waited in late if not waited}
    assert prompt > {*range(30, 40)}
    assert len(prompt) < 25
    assert max(waited for _, waited in late) == 9
