"""The runs of an instance whose monitor is stopped, killed or replaced, through the whole way: the
lines of its monitors and ECS's events, the forwarder, a real search cluster, notices, the morning
message with and without the cluster, and the commands.
"""

import json
from collections.abc import Iterator
from datetime import UTC
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec.structs import replace

import handler
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms, parse_ns
from profiler.forwarder.night_period import NightPeriod, remembered_before_first
from profiler.forwarder.night_searches import NightReader
from profiler.record.line_trust import InstanceMonitorGroup
from profiler.record.record_model import Container, encode
from profiler.sinks import LogTarget
from tests import log_subscriptions
from tests.command_line import run_here
from tests.fake_slack import FakeSlack
from tests.fakes import START_NS
from tests.instance_lives import Instance, Life
from tests.instance_world import FakeContainer
from tests.lambda_environment import forget_environment
from tests.printed_lines import runs_of_lines
from tests.runs import report
from tests.search.conftest import TWO_SERVERS
from tests.search.forwarding import ACCOUNT, Context, Forward, played_aws, search
from tests.task_events import event as task_event
from tests.values import present
from tools.search_server import SearchServer

pytestmark = [pytest.mark.search, TWO_SERVERS]

MONITORS = "/ecs/task-profiler-instance-monitor"
MONITOR_STREAM = f"instance/task-monitor/{'ab' * 16}"
UNTIL = 80.0


@pytest.fixture
def printed(
    monkeypatch: pytest.MonkeyPatch, slack: FakeSlack, forward: Forward
) -> Iterator[list[str]]:
    """The lines that the functions print."""
    lines: list[str] = []
    assert forward is not None
    with played_aws(monkeypatch, slack):
        monkeypatch.delenv("TRUSTED_LOG_GROUPS")
        monkeypatch.setenv(
            "INSTANCE_MONITOR_LOG_GROUP", f"arn:aws:logs:us-west-2:{ACCOUNT}:log-group:{MONITORS}"
        )
        monkeypatch.setenv("INSTANCE_MONITOR_CLUSTER", "jobs")
        forget_environment()
        monkeypatch.setattr(handler, "_print_line", lines.append)
        yield lines


def boxes() -> list[FakeContainer]:
    """Runs that end before, while and after a monitor is away, and one that goes on."""
    ends = [5.0, 20.0, 39.5, 40.5, 41.5, 43.0, 60.0, 70.0, 5_000.0]
    return [
        FakeContainer(
            task=f"{number:032x}",
            family="nightly",
            runs=((number / 4, end),),
            exit_code=3 * (number % 2),
        )
        for number, end in enumerate(ends, 1)
    ]


def subscribed(line: dict[str, Any], group: str, stream: str) -> dict[str, Any]:
    written_ms = (parse_ns(line["time"]) or 0) // NS_PER_MS
    one = {"id": "e", "timestamp": written_ms, "message": json.dumps(line)}
    place = {"owner": ACCOUNT, "logGroup": group, "logStream": stream}
    return log_subscriptions.event({**place, "logEvents": [one]})


def ended(box: FakeContainer) -> dict[str, Any]:
    """ECS's event of the task."""
    ((start, end),) = box.runs
    times = {
        "createdAt": start - 1,
        "pullStartedAt": start - 1,
        "startedAt": start,
        "executionStoppedAt": present(end),
        "stoppedAt": present(end) + 1,
    }
    moments = {name: format_ms(START_NS + round(at * NS_PER_SECOND)) for name, at in times.items()}
    containers = [{"name": "batch", "exitCode": box.exit_code, "image": "etl"}]
    arn = box.arn.replace("eu-west-1", "us-west-2")
    return task_event(taskArn=arn, launchType="EC2", containers=containers, **moments)


LIVES = {
    "it goes on": ([Life(0, UNTIL)], {1, 2, 3, 4, 5, 6, 7, 8}),
    "replaced": ([Life(0, 40), Life(42, UNTIL)], {1, 2, 3, 4, 5, 6, 7, 8}),
    "killed and replaced": (
        [Life(0, 40, is_killed=True), Life(42, UNTIL)],
        {1, 2, 3, 4, 5, 6, 7, 8},
    ),
    "stopped for good": ([Life(0, 40)], {1, 2, 3}),
    "killed for good": ([Life(0, 40, is_killed=True)], {1, 2}),
}


@cache
def lines_of(name: str) -> tuple[list[tuple[LogTarget, bytes]], list[bytes]]:
    """The lines in the batches' streams, and in the monitors' own."""
    with TemporaryDirectory() as folder:
        instance = Instance(boxes(), Path(folder))
        for life in LIVES[name][0]:
            instance.live(life)
    return instance.streams.lines, instance.output.lines


@pytest.mark.diagonal
@pytest.mark.parametrize("name", LIVES)
@pytest.mark.parametrize("events_first", [False, True], ids=["reports first", "events first"])
def test_each_run_is_told_once_and_its_checkpoint_is_no_end(
    name: str,
    printed: list[str],
    slack: FakeSlack,
    search_server: SearchServer,
    tmp_path: Path,
    *,
    events_first: bool,
) -> None:
    reported = LIVES[name][1]
    in_streams, printed_by_monitors = lines_of(name)
    over = {number: box for number, box in enumerate(boxes(), 1) if present(box.runs[0][1]) < UNTIL}
    assert {json.loads(text)["type"] for text in printed_by_monitors} <= {"task.checkpoint"}
    assert (name != "killed for good") is bool(printed_by_monitors)

    def put() -> None:
        of_monitors = [(text, MONITORS, MONITOR_STREAM) for text in printed_by_monitors]
        of_batches = [(text, target.group, target.stream) for target, text in in_streams]
        for text, *place in (*of_monitors, *of_batches):
            line = subscribed(json.loads(text), *place)
            assert handler.forward_logs(line, Context())["indexed"] == 1

    def end() -> None:
        for box in over.values():
            assert handler.task_stopped(ended(box), Context())["indexed"]

    for step in (end, put, end) if events_first else (put, end, put):
        step()
    hits = search(search_server)["hits"]["hits"]
    tasks = {int(hit["_source"]["task"]["id"], 16): hit["_source"] for hit in hits}
    assert len(hits) == len(tasks)
    assert tasks.keys() == over.keys()
    for number, source in tasks.items():
        has_report = number in reported
        assert source["task"].get("complete", False) is has_report, number
        assert ("memory" in source.get("usage", {})) is has_report, number
        assert source["task"]["exit_code"] == over[number].exit_code
    messages = [json.dumps(message) for message in slack.messages]
    for number in over:
        assert sum(f"{number:032x}" in message for message in messages) == 1, number
    assert len(messages) == len(over)
    counts = {"success": {"nightly": 4}, "failure": {"nightly": 4}}
    now_ns = present(parse_ns(max(source["task"]["known_at"] for source in tasks.values())))
    period = NightPeriod(
        last=remembered_before_first(now_ns), end_ns=now_ns + NS_PER_SECOND, zone=UTC
    )
    night = NightReader(
        cluster=handler._search_cluster(handler._settings()),
        prefix="task",
        account_id=None,
        region=None,
        timeout_seconds=60,
    )
    assert night.read_runs(period).counts == counts
    lines = [(now_ns // NS_PER_MS, line) for line in printed if '"task.ended"' in line]
    assert runs_of_lines(lines, period).counts == counts
    environment = {"TASK_PROFILER_FROM": search_server.url, "HOME": str(tmp_path)}
    done = run_here(environment, "history", "--since", "2025-11-01", "--json")
    listed = [json.loads(text)["record"] for text in done.stdout.splitlines()]
    assert sorted(int(one["taskId"], 16) for one in listed) == sorted(over)
    done = run_here(environment, "show", f"{4:032x}")
    assert done.returncode == 0
    assert ("Memory" in done.stdout) is (4 in reported)


RUNS = 30


def splunked(number: int) -> FakeContainer:
    """A batch with another log driver, of which only the instance's monitor can print a report."""
    return FakeContainer(
        task=f"{number:032x}", family="nightly", runs=((number * 700.0, number * 700.0 + 600),)
    )


class OneMonitor:
    """ECS's word on the streams of the instance's monitor."""

    def has_stream(self, _: InstanceMonitorGroup, log_stream: str) -> bool:
        return log_stream == MONITOR_STREAM


def report_on(box: FakeContainer) -> dict[str, Any]:
    ((start, end),) = box.runs
    began, finished = (
        format_ms(START_NS + round(present(at) * NS_PER_SECOND)) for at in (start, end)
    )
    made = report(
        family=box.family,
        task_id=box.task,
        cluster="jobs",
        launch_type="EC2",
        account_id=ACCOUNT,
        region="us-west-2",
        container=Container(name="batch"),
        started_at=began,
        finished_at=finished,
    )
    return dict(json.loads(encode(replace(made, time=finished))))


@pytest.mark.diagonal
@pytest.mark.parametrize("events_first", [False, True], ids=["reports first", "events first"])
def test_reports_of_batches_with_another_driver_are_read_where_ecs_tells_of_their_tasks(
    printed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    search_server: SearchServer,
    tmp_path: Path,
    *,
    events_first: bool,
) -> None:
    """Not those of a task without an event or on Fargate, nor from another stream of the group."""
    monkeypatch.setattr(handler, "_monitor_tasks", OneMonitor)
    runs = [splunked(number) for number in range(1, RUNS + 1)]
    on_fargate, untold = splunked(RUNS + 1), splunked(RUNS + 2)

    def put() -> None:
        for box in (*runs, on_fargate, untold):
            line = subscribed(report_on(box), MONITORS, MONITOR_STREAM)
            found = handler.forward_logs(line, Context())
            assert found["failed"] == found["untrusted"] == 0
            assert found["indexed"] == 1 or box is on_fargate
            forged = report_on(box) | {"time": format_ms(START_NS)}
            line = subscribed(forged, MONITORS, f"instance/task-monitor/{'cd' * 16}")
            assert handler.forward_logs(line, Context())["untrusted"] == 1

    def end() -> None:
        for box in runs:
            assert handler.task_stopped(ended(box), Context())["indexed"]
        event = ended(on_fargate)
        event["detail"] |= {"launchType": "FARGATE"}
        assert handler.task_stopped(event, Context())["indexed"]

    for step in (end, put, end) if events_first else (put, end, put):
        step()
    hits = search(search_server)["hits"]["hits"]
    confirmed = {
        int(source["task"]["id"], 16): source["task"].get("complete", False)
        for source in (hit["_source"] for hit in hits)
        if source["task"].get("confirmed")
    }
    assert confirmed == {**dict.fromkeys(range(1, RUNS + 1), True), RUNS + 1: False}
    environment = {"TASK_PROFILER_FROM": search_server.url, "HOME": str(tmp_path)}
    since = ("--since", "2025-11-01", "--json")
    done = run_here(environment, "history", *since, "--last", "100")
    listed = {
        int(one["taskId"], 16): "maxMemoryUsedMB" in one["metrics"]
        for one in (json.loads(text)["record"] for text in done.stdout.splitlines())
    }
    assert listed == {**confirmed, RUNS + 2: True}
    assert "1 run unconfirmed" in done.stderr
    (advice,) = map(json.loads, run_here(environment, "recommend", *since).stdout.splitlines())
    assert (advice["family"], advice["runs"]) == ("nightly", RUNS)
