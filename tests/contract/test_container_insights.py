"""``--from insights:CLUSTER``: what the reading commands make of the events that CloudWatch Logs
returns.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from threading import Event, Thread, current_thread, main_thread
from typing import Any

import boto3
import pytest

from profiler.cli.options import SourceOptions
from profiler.cli.wiring.open_past_runs import open_source
from profiler.core.errors import TaskProfilerError
from profiler.record.record_model import Record, decode
from profiler.runs.past_runs.container_insights import ContainerInsightsRuns
from profiler.runs.past_runs.run_source import RunFilter, no_progress
from profiler.sizing.prices import PriceOverrides
from tests.command_line import run_here
from tests.container_insights import (
    LIFECYCLE,
    MINUTE_MS,
    PERFORMANCE,
    PlayedLogs,
    container_minute,
    minutes,
    stopped,
)
from tests.values import present

# Half a minute into a minute, some hours ago.
START_MS = (time.time_ns() // 60_000_000_000 - 300) * MINUTE_MS + 30_000
DAY_MS = 86_400_000


@pytest.fixture
def logs() -> Iterator[PlayedLogs]:
    with PlayedLogs("jobs", "jobs-old", "web") as logs:
        yield logs


def run(logs: PlayedLogs, *words: str, cluster: str = "jobs") -> Any:
    return run_here(logs.environment(), *words, "--from", f"insights:{cluster}")


def records(logs: PlayedLogs, *words: str) -> list[Record]:
    done = run(logs, "history", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [decode(line).record for line in done.stdout.splitlines()]


def test_a_task_becomes_a_run(logs: PlayedLogs) -> None:
    """Half a minute of the first minute, a lost one, one that came twice, numbers that are
    texts.
    """
    events = minutes(START_MS, 12, cpu=512)
    lost = {4, 5}
    events[8] |= {"CpuUtilized": "1024", "MemoryUtilized": "3000"}
    events[0] |= {"CpuUtilized": -1, "LaunchType": None}
    logs.put(PERFORMANCE, [event for place, event in enumerate(events) if place not in lost])
    logs.put(PERFORMANCE, [events[8], '{"Type": "Task"', "Task"], START_MS)
    logs.put(PERFORMANCE, [events[0] | {"Timestamp": 1e18}, events[0] | {"Timestamp": 0}])
    (found,) = records(logs)
    assert found.family == "nightly-etl"
    assert found.revision == "26"
    assert found.container.name == "batch"
    assert found.cluster == "jobs"
    assert found.status == "unknown"
    assert found.finished_at is None
    assert found.likely_out_of_memory is None
    metrics = found.metrics
    # Without the CPU of the first half minute and of the lost minute.
    assert metrics.duration_ms == 12 * MINUTE_MS
    assert metrics.cpu_seconds == 9 * 30 + 60
    assert metrics.max_memory_used_mb == 3000
    assert metrics.memory_size_mb == 4096
    assert metrics.vcpu_size == 1
    assert metrics.network_rx_bytes == 600 * (30 + 10 * 60)
    assert metrics.block_read_bytes == 1_000 * (11 * MINUTE_MS + 30_000)
    assert metrics.ephemeral_storage_size_mb == 20480
    assert metrics.init_duration_ms == 20_000
    assert metrics.vcpu_saturated_percent == round(100 / 10, 3)
    assert None not in (metrics.slowdown_at_vcpu, found.recommendation)
    series, sampling = present(found.series), present(found.sampling)
    assert series.step_ms == MINUTE_MS
    assert series.vcpu_used == (None, 0.5, None, 0.5, 1.0, *[0.5] * 7)
    assert series.memory_used_mb == (1000, 1000, None, 1000, 3000, *[1000] * 7)
    assert sampling.interval_ms == MINUTE_MS
    assert sampling.sources == ("container-insights",)
    assert "X86_64 (assumed)" in (present(found.cost).price_basis or "")
    assert logs.operations == {"FilterLogEvents"}


def test_an_event_of_ecs_brings_the_end(logs: PlayedLogs) -> None:
    events = minutes(START_MS, 3)
    killed = {
        "name": "batch",
        "exitCode": 137,
        "reason": "OutOfMemoryError: Container killed due to memory usage",
    }
    monitor = {"name": "task-monitor", "exitCode": 0}
    logs.put(PERFORMANCE, events)
    own = {"architecture": "arm64", "capacityProviderName": "FARGATE_SPOT"}
    end = stopped(events[0], START_MS + 100_000, killed, monitor, **own)
    logs.put(
        LIFECYCLE,
        [end, end | {"detail": end["detail"] | {"lastStatus": "RUNNING"}}],
        START_MS + 120_000,
    )
    (found,) = records(logs)
    assert found.status == "failure"
    assert found.exit_code == 137
    assert found.likely_out_of_memory is True
    assert found.metrics.duration_ms == 100_000
    assert found.metrics.billed_duration_ms == 120_000
    assert found.metrics.cpu_seconds == 50  # the last event's minute began before the end
    assert found.cpu_architecture == "ARM64"
    basis, shown = (
        present(found.cost).price_basis or "",
        run(logs, "show", found.task_id[:8]).stdout,
    )
    assert "assumed" not in basis
    assert "FARGATE_SPOT" in basis
    for text in (
        "ran out of memory after 1m 40s",
        "ECS reported: OutOfMemoryError",
        "sampled each minute",
    ):
        assert text in shown


def test_several_containers_and_137_alone(logs: PlayedLogs) -> None:
    """Neither is the batch: the family names the run, and an exit code is no reason."""
    events = minutes(START_MS, 3)
    others = [
        container_minute(event, name)
        for event in events[::2]
        for name in ("helper", "task-monitor")
    ]
    logs.put(PERFORMANCE, [*events, *others])
    assert records(logs)[0].container.name == "nightly-etl"
    both = ({"name": "batch", "exitCode": 137}, {"name": "helper", "exitCode": 1})
    logs.put(LIFECYCLE, [stopped(events[0], START_MS + 100_000, *both)], START_MS + 120_000)
    (found,) = records(logs)
    end = found.container.name, found.status, found.exit_code, found.likely_out_of_memory
    assert end == ("nightly-etl", "failure", 1, None)


def test_a_run_is_chosen_by_its_start_and_read_as_a_whole(logs: PlayedLogs) -> None:
    for number in range(3):
        start_ms = START_MS + 1 - number * DAY_MS
        logs.put(PERFORMANCE, minutes(start_ms, 30, TaskId=f"{number}" * 32))
    until = ("--until", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START_MS // 1000 + 60)))
    whole = records(logs, "--since", "3d", *until)
    assert [one.metrics.duration_ms for one in whole] == [30 * MINUTE_MS] * 3
    since = (
        "--since",
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START_MS // 1000 - DAY_MS // 1000 + 60)),
    )
    assert [one.task_id[0] for one in records(logs, *since)] == ["0"]
    # As a floating-point number, these nanoseconds would be rounded down.
    assert [one.task_id[0] for one in records(logs, "--since", whole[0].started_at or "")] == ["0"]


def test_tasks_of_services_count_only_on_request(logs: PlayedLogs) -> None:
    logs.put(PERFORMANCE, minutes(START_MS, 12, TaskId="a" * 32, ServiceName="api"))
    grouped = minutes(START_MS, 12, TaskId="b" * 32)
    logs.put(PERFORMANCE, grouped)
    logs.put(
        LIFECYCLE,
        [stopped(grouped[0], START_MS + 700_000, group="service:api")],
        START_MS + 700_000,
    )
    done = run(logs, "recommend")
    assert done.returncode == 1
    assert (
        "Container Insights of jobs has only 2 tasks of services: --services includes them."
        in done.stderr
    )
    assert len(records(logs, "--services")) == 2
    assert run_here({}, "history", "--services").returncode == 2


@pytest.mark.slow
def test_runs_that_no_minute_caught_are_counted(logs: PlayedLogs) -> None:
    logs.put(PERFORMANCE, minutes(START_MS, 12))
    short = [
        stopped(minutes(START_MS, 1, TaskId=f"{number:032}")[0], START_MS + 20_000)
        for number in range(4)
    ]
    short[2]["detail"]["group"] = "service:api"
    del short[3]["detail"]["startedAt"]
    logs.put(LIFECYCLE, short[:1], START_MS + 60_000)
    assert ": 1 run shorter than a minute has no values." in run(logs, "recommend").stderr
    logs.put(LIFECYCLE, short[1:], START_MS + 60_000)
    done = run(logs, "recommend")
    assert "Container Insights of jobs: 2 runs shorter than a minute have no values." in done.stderr
    assert "no values" not in run(logs, "recommend", "other").stderr


def test_clusters_by_names_and_globs(logs: PlayedLogs) -> None:
    logs.put(PERFORMANCE, minutes(START_MS, 12))
    both = ("--from", "insights:job*", "--from", "insights:x*")
    done = run_here(logs.environment(), "recommend", *both)
    assert done.returncode == 1
    assert "No ECS cluster matches 'x*'" in done.stderr
    assert "Container Insights is off for jobs-old: " in done.stderr
    schedules = {"ListRules", "/schedules"}
    assert logs.operations == {"FilterLogEvents", "ListClusters", *schedules}
    for glob, sentence in (
        ("x*", "No ECS cluster matches 'x*'"),
        ("web", "Container Insights is off for web"),
    ):
        done = run(logs, "history", cluster=glob)
        assert done.returncode == 1, done.stderr
        assert done.stdout == ""
        assert sentence in done.stderr


def test_what_may_not_be_read(logs: PlayedLogs) -> None:
    logs.page_size = 5
    events = minutes(START_MS, 12)
    logs.put(PERFORMANCE, events)
    logs.put(LIFECYCLE, [stopped(events[0], START_MS + 700_000)], START_MS + 700_000)
    logs.refused = {LIFECYCLE}
    done = run(logs, "history")
    assert done.returncode == 0
    assert f"{LIFECYCLE} cannot be read: AWS refused" in done.stderr
    assert "How the runs of jobs ended is unknown." in done.stderr
    logs.throttled = {PERFORMANCE}
    done = run(logs, "history")
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "too many calls" in done.stderr
    logs.refused = {PERFORMANCE}
    assert "allow logs:FilterLogEvents" in run(logs, "recommend").stderr


def test_after_a_day_that_cannot_be_read_no_other_one_is_begun() -> None:
    """Only the four days that are read at a time; of a throttled group, each takes half a
    minute.
    """
    days: list[int] = []
    has_failed = Event()

    def read_pages(**asked: Any) -> Iterator[Mapping[str, Any]]:
        days.append(asked["startTime"])
        yield {"events": []}
        if asked["startTime"] == 0:
            has_failed.wait()
        has_failed.set()
        raise TaskProfilerError("throttled")

    times = {"since_ns": 0, "now_ns": 100 * DAY_MS * 1_000_000}
    source = ContainerInsightsRuns(
        read_pages, ("jobs",), PriceOverrides(), no_progress, **times, with_services=False
    )
    with pytest.raises(TaskProfilerError, match="throttled"):
        list(source.runs(RunFilter()))
    assert len(days) <= 4


def test_the_threads_share_a_session_that_was_made_before_them(
    logs: PlayedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3 cannot make one in several threads at the same time."""
    made, session = list[Thread](), boto3.Session

    def make(**options: Any) -> Any:
        made.append(current_thread())
        return session(**options)

    monkeypatch.setattr(boto3, "Session", make)
    for name, value in logs.environment().items():
        monkeypatch.setenv(name, value)
    logs.put(PERFORMANCE, minutes(START_MS, 3))
    assert (
        len(
            [
                *open_source(SourceOptions(sources=("insights:jobs",)), shows_progress=False).runs(
                    RunFilter()
                )
            ]
        )
        == 1
    )
    assert made == [main_thread()]


def test_what_was_read_and_how_far_back_it_goes(logs: PlayedLogs) -> None:
    logs.put(PERFORMANCE, minutes(START_MS, 12))
    done = run(logs, "recommend")
    assert " read by FilterLogEvents, which is free; jobs back to " in done.stderr
    retention = (
        f"aws logs put-retention-policy --log-group-name {PERFORMANCE} --retention-in-days 14"
    )
    assert retention in done.stderr
    assert "retention" not in run(logs, "recommend", "--since", "12h").stderr
    assert "retention" not in run(logs, "history").stderr


def advice(logs: PlayedLogs, *words: str) -> dict[str, Any]:
    done = run(logs, "recommend", "nightly-etl", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_advice_knows_that_minutes_hide_peaks(logs: PlayedLogs) -> None:
    """1400 MB: 2 GB would hold 1.2 × as much, and not 1.5 ×."""
    logs.put(PERFORMANCE, minutes(START_MS, 12, memory=1400, size=(1024, 4096)))
    found = advice(logs)
    assert found["recommended"] == {"vcpu": 1, "memoryMB": 3072}
    assert found["evidence"]["statsPeriodMs"] == MINUTE_MS
    assert any("sampled each minute" in reason and "50 %" in reason for reason in found["reasons"])
    assert advice(logs, "--memory-margin", "10")["recommended"] == {"vcpu": 1, "memoryMB": 3072}
    assert advice(logs, "--memory-margin", "120")["recommended"] == {"vcpu": 1, "memoryMB": 4096}
    table = run(logs, "recommend").stdout
    assert table.startswith("Container Insights: runs were sampled each minute.")


def test_the_first_answer_is_grouped(logs: PlayedLogs) -> None:
    """A size that only the margin exceeds fits: nothing failed. 768 of 1024 MB; 960 are more
    than 90 %.
    """
    sizes = {"tight": (768, (256, 1024)), "full": (960, (256, 1024)), "idle": (300, (1024, 4096))}
    for name, (memory, size) in sizes.items():
        task = {"TaskId": name * 8, "TaskDefinitionFamily": name}
        logs.put(PERFORMANCE, minutes(START_MS, 12, cpu=200, memory=memory, size=size, **task))
    rows = run(logs, "recommend").stdout.splitlines()[3:9]
    assert [re.split("  +", row.strip())[0] for row in rows] == [
        "Too small",
        "full",
        "Saves",
        "idle",
        "Fits",
        "tight",
    ]
    assert [re.split("  +", row)[-2] for row in rows[1::2]] == ["-31 %", "50 %", "more is safer"]
    alone = run(logs, "recommend", "tight").stdout
    assert "more is safer" in alone
    assert "Fits" not in alone


def test_runs_below_ten_minutes_keep_their_memory(logs: PlayedLogs) -> None:
    logs.put(PERFORMANCE, minutes(START_MS, 9, memory=100))
    found = advice(logs)
    assert found["recommended"]["memoryMB"] == 4096
    assert any("10 minutes" in reason for reason in found["reasons"])
    logs.put(PERFORMANCE, minutes(START_MS - DAY_MS, 10, memory=50, TaskId="b" * 32))
    found = advice(logs)
    assert found["recommended"] == {"vcpu": 1, "memoryMB": 2048}
    assert found["evidence"]["peakMB"] == 100
    assert not any("10 minutes" in reason for reason in found["reasons"])


BATCH_CLUSTER = "AWSBatch-spot-0a1b2c3d-1111-2222-3333-444455556666"


def job_minutes(task: str, count: int, cpu: float, size: tuple[int, int]) -> list[dict[str, Any]]:
    """The events of a job of AWS Batch on EC2, where a task may use more CPU than it reserves."""
    events = minutes(
        START_MS,
        count,
        cpu=cpu,
        memory=0.6 * size[1],
        size=size,
        TaskId=task * 32,
        TaskDefinitionFamily="nf-quay-io-star",
        ClusterName=BATCH_CLUSTER,
        LaunchType="EC2",
    )
    return [event for event in events if event["Type"] == "Task"]


def test_jobs_of_aws_batch_without_deploying_anything() -> None:
    group = PERFORMANCE.replace("/jobs/", f"/{BATCH_CLUSTER}/")
    off = "AWSBatch-large-0a1b2c3d-1111-2222-3333-444455556666"
    with PlayedLogs(BATCH_CLUSTER, off, "web") as logs:
        logs.put(group, job_minutes("a", 20, 14.6 * 1024, (4096, 65_536)))
        logs.put(group, job_minutes("b", 20, 512, (2048, 4096)))
        done = run(logs, "recommend", "--json", cluster="AWSBatch-*")
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert {(row["family"], row["current"]["memoryMB"]) for row in rows} == {
            ("nf-quay-io-star", 4096),
            ("nf-quay-io-star", 65_536),
        }
        large = next(row for row in rows if row["current"]["vcpu"] == 4)
        assert large["recommended"]["vcpu"] == 14.75
        said = " ".join(large["reasons"])
        assert "The jobs asked for 4 vCPU and used 14.6 vCPU" in said
        assert "all of its" not in said
        assert (
            f"Container Insights is off for {off}: turn it on (aws batch "
            "update-compute-environment --compute-environment large --ecs-settings "
            "containerInsights=ENABLED), or check the name and --region."
        ) in done.stderr
        assert logs.operations == {"ListClusters", "FilterLogEvents"}
        listed = run(logs, "history", cluster="AWSBatch-*").stdout
    assert " 14.6 of 4 vCPU " in listed
    assert " 25 % " in listed
    assert "365 %" not in listed
