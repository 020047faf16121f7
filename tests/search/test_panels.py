"""What each panel of the dashboards searches for, on real servers, over documents that the real handlers wrote."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import handler
from kibana.aggregations import metric_id, rows_id, search_body, time_id
from kibana.panels import PANELS
from tests.fake_slack import FakeSlack
from tests.search.server import SearchServer
from tests.search.test_forwarder import Context, Forward, event, forward, report, search
from tests.search.test_task_stopped import TASK_ID, LambdaContext, aws, put, run_report, slack
from tests.unit.test_task_event import event as task_event

__all__ = ["aws", "forward", "slack"]  # the fixtures

pytestmark = pytest.mark.search

START, END = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
TEN, ELEVEN = "2026-03-01T10:00:00.000Z", "2026-03-01T11:00:00.000Z"
PANEL = {panel.key: panel for panel in PANELS}
REASON = "Essential container in task exited"

Bucket = dict[str, Any]
Ask = Callable[[str], dict[str, Any]]


def ended(
    task_id: str,
    end: str,
    seconds: int,
    cpu: float,
    memory: float,
    *,
    usd: float = 0.01,
    saving: float = 50.0,
    **more: Any,
) -> str:
    """A run that ended at 10 or 11 o'clock and so many minutes, of a task with 2 vCPU and 1000 MB."""
    metrics = {
        "durationMs": seconds * 1000,
        "vcpuSize": 2,
        "memorySizeMB": 1000,
        "maxMemoryUsedMB": memory * 12,
        "cpuUtilizationPercent": {"avg": cpu, "max": cpu + 5},
        "memoryUtilizationPercent": {"avg": memory},
    }
    return report(
        task_id,
        startedAt="2026-03-01T09:00:00Z",
        finishedAt=f"2026-03-01T{end}:00Z",
        cluster="jobs",
        **{
            "exitCode": 0,
            "metrics": metrics,
            "cost": {"usd": usd},
            "recommendation": {"vcpu": 1, "memoryMB": 512, "savingPercent": saving},
            **more,
        },
    )


REPORTS = (
    ended("a", "10:05", 10, cpu=30.0, memory=20.0, usd=0.01),
    ended("b", "10:35", 30, cpu=50.0, memory=45.0, usd=0.03),
    ended("c", "11:10", 20, cpu=90.0, memory=70.0, usd=0.04, saving=25.0),
    # The same task once more, by another container: one document more, no task more.
    ended("a", "10:06", 10, cpu=0, memory=0, container={"name": "side"}, metrics={}, cost=None, recommendation=None),
    ended("d", "10:20", 600, cpu=10.0, memory=5.0, usd=0.5, saving=60.0, family="hourly"),
    ended("e", "11:40", 700, cpu=20.0, memory=9.0, usd=0.7, saving=60.0, family="hourly", status="failure", exitCode=3),
)


def checkpoint(minute: int, cpu: float, memory: float, gpu: float, received: int) -> str:
    line = report(
        "a",
        status="running",
        finishedAt=None,
        container={"name": "batch", "image": "etl:7"},
        metrics={"memorySizeMB": 1000, "networkRxBytes": received, "networkTxBytes": 5, "blockReadBytes": 6,
                 "blockWriteBytes": 7},
        interval={"cpuUtilizationPercent": {"avg": cpu}, "memoryUsedMB": {"max": memory}},
        gpus=[
            {"uuid": "G0", "utilizationPercent": {"avg": gpu, "max": gpu + 10}, "memoryUsedMB": {"max": 4000}},
            {"uuid": "G1", "utilizationPercent": {"avg": gpu + 20, "max": 99}, "memoryUsedMB": {"max": 6000}},
        ],
        neuron={"cores": [{"index": 0, "utilizationPercent": {"avg": gpu, "max": gpu + 1}}]},
    )  # fmt: skip
    written = json.loads(line)
    return json.dumps({**written, "type": "task.checkpoint", "time": f"2026-03-01T10:{minute:02d}:00Z"})


CHECKPOINTS = (
    checkpoint(1, cpu=40.0, memory=300.0, gpu=10.0, received=100),
    checkpoint(2, cpu=60.0, memory=350.0, gpu=30.0, received=300),
)


@pytest.fixture
def ask(aws: Any, slack: FakeSlack, forward: Forward, search_server: SearchServer) -> Ask:
    """Ask what a panel asks. Of one task, TASK_ID, ECS's event came too, and it had failed."""
    put(aws, run_report(status="failure", exitCode=1))
    answer = handler.task_stopped(task_event(), LambdaContext())
    assert (answer["status"], answer["indexed"]) == ("failure", True)
    lines = (*REPORTS, *CHECKPOINTS, run_report(status="failure", exitCode=1))
    assert forward(event(*lines), Context()) == {"indexed": len(lines), "skipped": 0, "failed": 0}

    def answers(key: str) -> dict[str, Any]:
        panel = PANEL[key]
        interval = "1h" if panel.index == "reports" else "1m"
        body = search_body(panel, START, END, interval=interval)
        aggregations: dict[str, Any] = search(search_server, f"task-{panel.index}-*", **body)["aggregations"]
        return aggregations

    return answers


def table(answer: dict[str, Any], key: str) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """The panel's metrics by the values of its rows, and its time if it has one."""
    panel = PANEL[key]
    names = [rows_id(panel, number) for number in range(len(panel.rows))]
    names += [time_id(panel)] if panel.over_time else []
    level: list[tuple[tuple[str, ...], Bucket]] = [((), answer)]
    for name in names:
        level = [
            ((*path, bucket.get("key_as_string", bucket["key"])), bucket)
            for path, outer in level
            for bucket in outer[name]["buckets"]
        ]
    return {path: tuple(number(bucket[metric_id(n)]) for n in range(len(panel.metrics))) for path, bucket in level}


def number(metric: dict[str, Any]) -> Any:
    if "values" in metric:
        return metric["values"][0]["value"]
    if "hits" in metric:
        (hit,) = metric["hits"]["hits"]
        ((value,),) = hit.get("fields", {"absent": [None]}).values()
        return value
    return metric["value"]


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-5)  # fields are 32-bit floats


def test_every_panel_has_buckets_and_a_number_in_each_column(ask: Ask) -> None:
    for panel in PANELS:
        found = table(ask(panel.key), panel.key)
        assert found, panel.key
        for column, metric in enumerate(panel.metrics):
            assert any(row[column] is not None for row in found.values()), (panel.key, metric.label)


def test_a_cell_of_the_heatmap(ask: Ask) -> None:
    """Worked out by hand: the family nightly, CPU %, between 10 and 11 o'clock.

    Ended in that hour: `a` at 10:05 with a mean of 30 %, `b` at 10:35 with 50 %, the second container of `a`, and at
    10:12 the task of ECS's event. The second container measured nothing and counts nothing; the task of the event says
    50 %.
    So (30 + 50 + 50) / 3 = 43.33. `c` ended at 11:10 and is the next cell alone: 90.
    """
    found = table(ask("task-usage-cpu"), "task-usage-cpu")
    assert found == {
        ("hourly", TEN): (close(10),),
        ("hourly", ELEVEN): (close(20),),
        ("nightly", TEN): (close(43.3333333),),
        ("nightly", ELEVEN): (close(90),),
    }
    found = table(ask("task-usage-memory"), "task-usage-memory")
    assert found[("nightly", TEN)] == (close(32.5),)  # 20 and 45; the task of the event has no memory
    assert next(iter(found))[0] == "hourly"  # rows by name, so that they stay where they are


def test_tasks_are_counted_once(ask: Ask) -> None:
    """Three of nightly in the first hour, though it has four documents there."""
    found = table(ask("task-count-by-family"), "task-count-by-family")
    assert found == {
        ("nightly", TEN): (3,),
        ("nightly", ELEVEN): (1,),
        ("hourly", TEN): (1,),
        ("hourly", ELEVEN): (1,),
    }
    found = table(ask("task-count-by-outcome"), "task-count-by-outcome")
    assert found == {
        ("failure", TEN): (1,),
        ("failure", ELEVEN): (1,),
        ("success", TEN): (3,),
        ("success", ELEVEN): (1,),
    }


def test_durations(ask: Ask) -> None:
    median = table(ask("task-duration-median"), "task-duration-median")
    assert median[("hourly", TEN)] == (600_000,)
    assert median[("nightly", ELEVEN)] == (20_000,)
    high = table(ask("task-duration-p95"), "task-duration-p95")
    assert high[("hourly", ELEVEN)] == (700_000,)
    assert 10_000 < high[("nightly", TEN)][0] <= 30_000
    rows = table(ask("task-duration-table"), "task-duration-table")
    assert list(rows) == [("nightly",), ("hourly",)]  # most tasks first
    tasks, middle, _, longest = rows[("nightly",)]
    assert (tasks, longest) == (4, 30_000)
    assert 2_000 <= middle <= 30_000
    assert rows[("hourly",)][3] == 700_000


def test_failures_and_why(ask: Ask) -> None:
    """The one of which ECS told has its words; of the other only the monitor's exit code is known."""
    rows = table(ask("failures"), "failures")
    assert set(rows) == {("nightly", "exit", REASON), ("hourly", "__missing__", "__missing__")}
    assert rows[("nightly", "exit", REASON)] == (1, 1, TASK_ID, "2026-03-01T10:12:32.000Z")
    assert rows[("hourly", "__missing__", "__missing__")] == (1, 3, "e", "2026-03-01T11:40:00.000Z")


def test_cost_and_waste(ask: Ask) -> None:
    """Waste by hand: nightly 0.01 x 50 % + 0.03 x 50 % + 0.04 x 25 % = 0.03; hourly 1.2 x 60 % = 0.72."""
    cost = table(ask("cost-by-family"), "cost-by-family")
    assert cost[("nightly", TEN)] == (close(0.04),)
    assert cost[("hourly", ELEVEN)] == (close(0.7),)
    waste = table(ask("waste-by-family"), "waste-by-family")
    assert list(waste.items()) == [(("hourly",), (close(0.72),)), (("nightly",), (close(0.03),))]
    over_time = table(ask("waste-over-time"), "waste-over-time")
    assert over_time[("nightly", ELEVEN)] == (close(0.01),)
    saving = table(ask("saving-by-family"), "saving-by-family")
    assert saving == {("hourly",): (close(60),), ("nightly",): (close(125 / 3),)}


def test_the_right_size(ask: Ask) -> None:
    peaks = table(ask("memory-peak-against-size"), "memory-peak-against-size")
    assert peaks == {("hourly",): (close(108), 1000), ("nightly",): (close(840), 1000)}
    rows = table(ask("right-size-table"), "right-size-table")
    assert rows[("nightly",)] == (close(0.03), 4, close(125 / 3), 2, 1, close(95), 1000, 512, close(840))


def test_one_task(ask: Ask) -> None:
    summary = table(ask("run-summary"), "run-summary")
    assert summary[("a", "batch")] == ("success", 0, None, 10_000, close(240), 1000, close(0.01))
    assert summary[(TASK_ID, "batch")][:3] == ("failure", 1, REASON)
    one, two = "2026-03-01T10:01:00.000Z", "2026-03-01T10:02:00.000Z"
    assert table(ask("run-cpu"), "run-cpu") == {("batch", one): (close(40),), ("batch", two): (close(60),)}
    assert table(ask("run-memory"), "run-memory") == {(one,): (close(300), 1000), (two,): (close(350), 1000)}
    assert table(ask("run-containers"), "run-containers") == {
        ("a", "batch"): (close(50), close(350), 300, 5, 6, 7, "etl:7")
    }
    assert table(ask("run-gpu"), "run-gpu") == {(one,): (close(20), 99), (two,): (close(40), 99)}
    assert table(ask("run-gpu-memory"), "run-gpu-memory") == {(one,): (6000,), (two,): (6000,)}
    assert table(ask("run-neuron"), "run-neuron") == {(one,): (close(10), close(11)), (two,): (close(30), close(31))}
