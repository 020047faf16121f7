"""The searches of all dashboard panels on real servers, with lines of the real monitor that the
handlers indexed.

The numbers are worked out by hand from the scripts of :mod:`tests.search.produced`.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import boto3
import pytest
import requests
from msgspec.structs import replace

import handler
from kibana import colours, vega_parts
from kibana.build import DRAWINGS, PANELS
from kibana.dashboard_model import (
    Drawing,
    Json,
    Panel,
    cases_id,
    numbered_metrics,
    terms_id,
    time_id,
)
from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.job_changed import attempt_documents, job_document
from profiler.forwarder.notice_documents import schedule_notice_document
from profiler.record import units
from profiler.record.batch_job_detail import parse_job
from profiler.record.notice_model import encode_notice_line
from profiler.record.record_model import (
    UNKNOWN_COST,
    Distribution,
    Gpu,
    GpuIdle,
    Recommendation,
    decode,
    encode,
)
from tests import batch_jobs
from tests.documentation import ROOT
from tests.fake_batch import FakeBatch
from tests.fake_slack import FakeSlack
from tests.formats import DOLLARS, DOLLARS_A_MONTH, DURATIONS, MEMORY, PERCENTS
from tests.search.forwarding import (
    CONTAINERS,
    Context,
    Forward,
    event,
    forwarding,
    played_aws,
    put,
    search,
)
from tests.search.produced import GROUP, SCRIPTS, Script, arn, produced, stream
from tests.shown_runs import missed_notice, stuck_notice
from tests.task_events import event as task_event
from tests.values import present
from tests.vega_views import VERSIONS, evaluate, search_bodies
from tools.panel_searches import MATCHING, search_body
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.search

START, END = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
TEN, ELEVEN = "2026-03-01T10:00:00.000Z", "2026-03-01T11:00:00.000Z"
ONE_MINUTE, TWO_MINUTES = "60000.0", "120000.0"  # of elapsed time, in ms
ONE, TWO = "2026-03-01T10:01:00.000Z", "2026-03-01T10:02:00.000Z"
PANEL = {panel.key: panel for panel in PANELS}
DRAWING = {drawing.key: drawing for drawing in DRAWINGS}
SCRIPT = {script.task_id: script for script in SCRIPTS}
OF_A = stream("batch", SCRIPT["a"])
KILLED_REASON = "OutOfMemoryError: Container killed due to memory usage"
BY_USER = "Task stopped by user"

Bucket = dict[str, Any]
Rows = dict[tuple[str, ...], tuple[Any, ...]]
Shown = Callable[..., Rows]  # by a panel's key, and a task's id


def stopped_event(
    script: Script, *, code: int, stopped_at: str, reason: str | None = None, **more: Any
) -> Any:
    """ECS's event of the task's end."""
    batch = {"name": "batch", "exitCode": code, "lastStatus": "STOPPED", "image": "etl:7"}
    return task_event(
        taskArn=arn(script),
        taskDefinitionArn=f"arn:aws:ecs:us-west-2:111122223333:task-definition/{script.family}:1",
        containers=[
            batch if reason is None else {**batch, "reason": reason},
            {"name": "task-monitor", "exitCode": 0},
        ],
        createdAt=script.started,
        pullStartedAt=script.started,
        startedAt=script.started,
        executionStoppedAt=stopped_at,
        stoppedAt=stopped_at,
        group=f"family:{script.family}",
        **more,
    )


KILLED = stopped_event(
    SCRIPT["killed"], code=137, reason=KILLED_REASON, stopped_at="2026-03-01T10:45:20.500Z"
)
STOPPED = stopped_event(
    SCRIPT["stopped"],
    code=143,
    stopped_at="2026-03-01T11:45:30.000Z",
    stopCode="UserInitiated",
    stoppedReason=BY_USER,
)


@pytest.fixture(scope="module")
def filled(search_server: SearchServer) -> Iterator[SearchServer]:
    """A server with all lines.

    ECS's event comes before the report of the killed task, after the stopped one's.
    """
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        slack = stack.enter_context(FakeSlack())
        forward = stack.enter_context(forwarding(search_server, patch))
        aws = stack.enter_context(played_aws(patch, slack))
        boto3.client("ecs").register_task_definition(
            family="hourly",
            containerDefinitions=CONTAINERS,
            tags=[{"key": "task-profiler:resized-from", "value": "1/4096/8192"}],
        )
        batch = stream("batch", SCRIPT["killed"])
        aws.create_log_stream(logGroupName=GROUP, logStreamName=batch)
        put(aws, produced()[batch][0], batch)
        assert handler.task_stopped(KILLED, Context())["indexed"] is True
        for name, of_it in produced().items():
            answer = forward(event(*of_it, stream=name), Context())
            assert answer == {"indexed": len(of_it), "skipped": 0, "failed": 0, "untrusted": 0}
        assert handler.task_stopped(STOPPED, Context())["indexed"] is True
        send_notices(forward, search_server)
        yield search_server


def asked(server: SearchServer, key: str, task: str | None = None) -> dict[str, Any]:
    """The answer to what a panel asks, of all tasks or of one."""
    panel = PANEL[key]
    body = search_body(panel, START, END, interval="1m" if panel.index == "checkpoints" else "1h")
    if task is not None:
        body["query"]["bool"]["filter"].append({"term": {"task.id": task}})
    aggregations: dict[str, Any] = search(server, f"task-{panel.index}-*", **body)["aggregations"]
    return aggregations


@pytest.fixture
def shown(filled: SearchServer) -> Shown:
    def rows(key: str, task: str | None = None) -> Rows:
        return table(asked(filled, key, task), PANEL[key])

    return rows


def send_notices(forward: Forward, server: SearchServer) -> None:
    """A notice of a running task by subscription, and two of a schedule as ``watch_schedules``
    indexes them.
    """
    stuck = stuck_notice()
    started = "2026-03-01T10:31:00.000Z"
    record = replace(stuck.record, task_id="c", task_arn=None, family="nightly", started_at=started)
    line = encode_notice_line(
        replace(stuck, time="2026-03-01T11:00:01.000Z", record=record)
    ).decode()
    assert (
        forward(event(line, stream=stream("task-monitor", SCRIPT["c"])), Context())["indexed"] == 1
    )
    for time, kind in (
        ("2026-03-01T10:16:00.000Z", "missed"),
        ("2026-03-01T10:40:00.000Z", "late"),
    ):
        missed = missed_notice()
        schedule_line = replace(missed, time=time, notice=replace(missed.notice, kind=kind))
        document = schedule_notice_document(
            schedule_line, encode_notice_line(schedule_line).decode(), ForwarderSettings()
        )
        address = f"{server.url}/{document.index}/_doc/{quote(document.id, safe='')}"
        requests.put(address, json=document.fields, timeout=LIMIT_SECONDS).raise_for_status()


def drawn(
    server: SearchServer,
    key: str,
    task: str | None = None,
    *,
    dataset: str | None = None,
    width: int = 1000,
) -> dict[str, Any]:
    """What a drawing shows, of all tasks or of one: the same with the oldest and the newest
    Vega, which warn of nothing.
    """
    conditions = []
    if task is not None:
        conditions.append({"term": {"task.id": task}})
    if dataset is not None:
        conditions.append({"term": {"event.dataset": dataset}})
    drawing = DRAWING[key]
    bodies = search_bodies(drawing, START.isoformat(), END.isoformat(), *conditions)
    answers = {}
    for data in drawing.spec["data"]:
        if data["name"] in bodies:
            index = data["url"]["index"]
            answers[data["name"]] = search(server, index, **bodies[data["name"]])
    oldest, newest = (evaluate(drawing, answers, version, width=width) for version in VERSIONS)
    assert oldest["data"] == newest["data"]
    assert oldest["warnings"] == newest["warnings"] == []
    return newest


@contextlib.contextmanager
def one_more(server: SearchServer, name: str, **differences: Any) -> Iterator[None]:
    """One more run like `c`, of a family of its own."""
    report = decode(produced()[stream("batch", SCRIPT["c"])][-1])
    identity = {"task_id": name, "task_arn": None, "family": name}
    record = replace(report.record, **identity, **differences)
    line = encode(replace(report, record=record)).decode()
    assert handler.forward_logs(event(line, stream=f"ecs/batch/{name}"), Context())["indexed"] == 1
    yield
    (hit,) = search(server, query={"term": {"task.id": name}})["hits"]["hits"]
    document = f"{server.url}/{hit['_index']}/_doc/{quote(hit['_id'], safe='')}"
    requests.delete(document, params={"refresh": "true"}, timeout=LIMIT_SECONDS).raise_for_status()


def too_small(server: SearchServer) -> AbstractContextManager[None]:
    """A run that needs more memory than its task has."""
    needed = Recommendation(
        vcpu=2, memory_mb=5120, saving_percent=-4.5, reasons=("It needs 5 GB.",)
    )
    return one_more(server, "tight", recommendation=needed)


def on_instances(server: SearchServer) -> AbstractContextManager[None]:
    """A run on an EC2 instance."""
    return one_more(server, "fleet", launch_type="EC2", cost=UNKNOWN_COST)


def on_a_gpu(server: SearchServer, name: str, **differences: Any) -> AbstractContextManager[None]:
    """A run on a GPU whose use is no exact number of the run's own."""
    gpu = Gpu(
        uuid="G9",
        utilization_percent=Distribution(avg=40, max=60),
        utilization_source="once-a-second",
        memory_used_mb=Distribution(max=9000),
    )
    idle = GpuIdle(percent=60, gpu_hours=7)
    return one_more(server, name, gpus=(gpu,), gpu_idle=idle, **differences)


def table(answer: dict[str, Any], panel: Panel) -> Rows:
    """The panel's metrics by the values of its rows, and its time if it has one."""
    names = [cases_id(panel)] if panel.cases else []
    names += [terms_id(panel, number) for number in range(len(panel.terms))]
    names += [time_id(panel)] if panel.has_time_axis else []
    level: list[tuple[tuple[str, ...], Bucket]] = [((), answer)]
    for name in names:
        level = [
            ((*path, label), bucket)
            for path, outer in level
            for label, bucket in buckets_of(outer[name]["buckets"])
        ]
    return {
        path: tuple(value(bucket, panel, n) for n in range(len(panel.metrics)))
        for path, bucket in level
    }


def by_family(rows: Rows) -> Rows:
    """The rows of a table that also has an account and a Region, here one of each for a family."""
    found = {path[:1]: values for path, values in rows.items()}
    assert len(found) == len(rows)
    return found


def by_hour(ten: dict[str, Any], eleven: dict[str, Any]) -> Rows:
    """The rows with a value for each name, of these two hours."""
    return {
        (name, at): (one,)
        for at, of_it in ((TEN, ten), (ELEVEN, eleven))
        for name, one in of_it.items()
    }


def of_minutes(first: Any, second: Any) -> Rows:
    return {("nightly", ONE_MINUTE): (first,), ("nightly", TWO_MINUTES): (second,)}


def buckets_of(buckets: Any) -> list[tuple[str, Bucket]]:
    if isinstance(buckets, dict):
        return list(buckets.items())
    return [(str(bucket.get("key_as_string", bucket["key"])), bucket) for bucket in buckets]


def value(bucket: Bucket, panel: Panel, n: int) -> Any:
    metric = panel.metrics[n]
    name = list(numbered_metrics(panel))[n]
    whole = number(bucket[name])
    return whole if metric.share_of is None else number(bucket[f"{name}-{MATCHING}"][name]) / whole


def number(metric: dict[str, Any]) -> Any:
    if "hits" in metric:
        (hit,) = metric["hits"]["hits"]
        ((value,),) = hit.get("fields", {"absent": [None]}).values()
        return value
    return metric["value"]


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-5)  # fields are 32-bit floats


def test_the_documents_come_from_lines_of_the_monitor(filled: SearchServer) -> None:
    """Eight reports (one task has two containers) and two checkpoints; each document holds its
    line.
    """
    written = {line for of_it in produced().values() for line in of_it}
    for index, number_of_lines in (("reports", 8), ("checkpoints", 2)):
        hits = search(filled, f"task-{index}-*")["hits"]["hits"]
        found = {hit["_source"]["record"] for hit in hits}
        assert len(hits) == len(found) == number_of_lines
        assert found <= written


def test_families_without_a_known_cost_are_named(shown: Shown, filled: SearchServer) -> None:
    """The side container of `a` has no cost either, but its task runs on Fargate, and has one."""
    with on_instances(filled):
        assert shown("no-cost-table") == {
            ("fleet", "EC2"): (1, None, "fleet", 2, 2, 1024, 4096, close(75))
        }


def test_estimates_and_other_programs_numbers_are_in_no_chart_of_exact_ones(
    shown: Shown, filled: SearchServer
) -> None:
    exact = ("gpu-usage", "gpu-families", "gpu-idle", "gpu-sm-active")
    before = [shown(key) for key in exact]
    assert shown("gpu-estimates") == {}
    with on_a_gpu(filled, "virtual"), on_a_gpu(filled, "unknown", gpu_scope="instance"):
        assert [shown(key) for key in exact] == before
        assert shown("gpu-estimates") == {("virtual",): (1, 1, 40, 60, 9000, "virtual")}
        facts = "".join(drawn(filled, "run-curves", "virtual")["texts"])
        for fact in ("GPU mean ≈ 40 %", "GPU idle ≈ 60 %", "GPU memory peak ≥8.8 GB"):
            assert fact in facts
        assert "GPU of the instance mean " in "".join(
            drawn(filled, "run-curves", "unknown")["texts"]
        )


def test_every_panel_has_buckets_and_a_number_in_each_column(
    shown: Shown, filled: SearchServer
) -> None:
    with too_small(filled), on_instances(filled), on_a_gpu(filled, "virtual"):
        rows_of = {panel.key: shown(panel.key) for panel in PANELS}
    for panel in PANELS:
        found = rows_of[panel.key]
        assert found, panel.key
        for column, metric in enumerate(panel.metrics):
            # No Kibana is known, and the task on an instance has no GPU.
            if metric.field in {"links.run", "usage.gpu.count"}:
                continue
            assert any(row[column] is not None for row in found.values()), (panel.key, metric.label)


# Worked out by hand.
ROWS: dict[str, Rows] = {
    "task-count-by-outcome": by_hour(
        {"Success": 3, "Out of memory": 1}, {"Success": 1, "Failure": 1, "Stopped": 1}
    ),
    # Two of seven tasks failed, one of them because memory ran out.
    "task-count": {(): (7,)},
    "failure-rate": {(): (pytest.approx(2 / 7),)},
    "out-of-memory-count": {(): (1,)},
    # Means of `a` and `b`; only `a` knows what it waited for. No run of hourly has a breakdown.
    "time-by-family": {("nightly",): tuple(map(close, (40, 10, 2.5, 40, 5, 2, 1.5, 0.5, 23)))},
    # Two GPUs, of which the second is 20 points above the first, and a NeuronCore like the first.
    "run-gpu": of_minutes(close(20), close(40)),
    "run-gpu-memory": of_minutes(6000, 6000),
    "run-neuron": of_minutes(close(10), close(30)),
    "run-neuron-memory": of_minutes(1500, 1500),
    "gpu-usage": {("nightly", TEN): (close(60),)},
    "neuron-usage": {("nightly", TEN): (close(50),)},
    "gpu-families": {("nightly",): (1, 2, close(60), 99, close(25), close(10), 6000, "a")},
    "gpu-idle": {("nightly",): (0.25,)},
    "gpu-sm-active": {("nightly",): (close(60), close(25))},
    "gpu-errors": {("nightly", "success"): (1, 31, 6000, "a")},
    "neuron-families": {("nightly",): (1, 1, close(50), 51, 1500, "a")},
    "running-notices": {("Stuck", ELEVEN): (1,)},
    "missed-runs": {("Missed", TEN): (1,), ("Late", TEN): (1,)},
}


def test_the_rows_of_panels(shown: Shown) -> None:
    for key, rows in ROWS.items():
        assert shown(key) == rows, key


def test_totals(filled: SearchServer) -> None:
    billed = 171 + 621 + 60 + 921 + 621 + 721 + 323
    for key in ("cost-total", "sizing-cost"):
        assert drawn(filled, key)["texts"] == [units.format_usd(usd(billed))]
    saved = usd(621) / 2 + usd(621) * 0.451
    assert drawn(filled, "waste-total")["texts"] == [units.format_usd(saved)]


def test_families(shown: Shown) -> None:
    families = by_family(shown("families"))
    assert list(families) == [("nightly",), ("hourly",)]  # most tasks first
    tasks, mean, longest, peak, latest = families[("hourly",)]
    assert tasks == 3
    assert longest == 700_500
    assert latest == "stopped"
    assert mean == close((302_150 + 600_500 + 700_500) / 3)
    assert peak == close(100 * 256 / 1024)


def parts_of_time(view: dict[str, Any]) -> dict[str, float]:
    return {part["row"]["name"]: part["row"]["value"] for part in view["data"]["time_parts"]}


def test_where_the_time_of_a_run_went(filled: SearchServer) -> None:
    names = ("On CPU", "CPU wait", "Disk", "Network", "Sleep", "Lock", "Pipe", "Child", "Other")
    shares = (30, 10, 5, 40, 5, 2, 1.5, 0.5, 6)
    assert parts_of_time(drawn(filled, "run-details", "a")) == dict(
        zip(names, map(close, shares), strict=True)
    )


def test_parts_of_the_time_that_are_unknown_or_zero_are_not_drawn(filled: SearchServer) -> None:
    parts = parts_of_time(drawn(filled, "run-details", "b"))
    assert parts == {"On CPU": close(50), "CPU wait": close(10), "Other": close(40)}


def test_a_run_without_parts_of_its_time_says_so(filled: SearchServer) -> None:
    view = drawn(filled, "run-details", "c")
    assert view["data"]["time_parts"] == []
    assert "Not measured in this run" in view["texts"]


def test_the_containers_of_a_run(filled: SearchServer) -> None:
    """The side container of `a` had ended before it could be read."""
    batch, side = drawn(filled, "run-details", "a")["data"]["containers"]
    assert batch["name"] == "batch"
    assert batch["cpu"]["percent"]["avg"] == close(32)
    assert batch["memory"]["used_mb"]["max"] == 512
    assert batch["network"]["rx_bytes"] > 120_000
    assert batch["image"] == "etl:7"
    assert side["name"] == "side"
    assert "percent" not in side["cpu"]


def test_the_containers_of_a_run_that_goes_on_are_those_of_its_newest_checkpoint(
    filled: SearchServer,
) -> None:
    """After 120 s, `a` had received 120 x 1000."""
    (batch,) = drawn(filled, "run-details", "a", dataset="task.checkpoint")["data"]["containers"]
    assert batch["network"] == {"rx_bytes": 120_000, "tx_bytes": 1200}
    assert batch["block"] == {"read_bytes": 120 * 4096, "write_bytes": 120 * 512}


def test_the_durations_at_smaller_sizes(filled: SearchServer) -> None:
    """`c` used 1.8 of 2 vCPU: with one, it would have taken 1.8 times as long."""
    rows = drawn(filled, "run-details", "c")["data"]["slowdowns"]
    found = {row["row"]["vcpu"]: row["row"]["value"] for row in rows}
    assert [*found] == [0.25, 0.5, 1, 2]
    assert found[0.25] > found[0.5] > found[1] >= 1.8
    assert found[2] == 1


def uses(server: SearchServer, key: str) -> Rows:
    """The cells of a drawing of use, which have an hour each on a screen of this width."""
    cells = drawn(server, key)["data"]["cells"]
    return {
        (cell["key"], format_ms(int(cell["start"]) * NS_PER_MS)): (cell["use"],) for cell in cells
    }


def test_use_by_family(filled: SearchServer) -> None:
    """Batches of 2 vCPU and 1024 MiB, read once a second until half a second before their end; a
    cell has the mean of those that ended in the hour. Between 10 and 11 o'clock, of nightly:

    - `a`, 10:02:30.5. CPU: 24 s in the first 60 s (0.4 vCPU), 72 s in 90 s more (0.8 vCPU), so
      96 s / 150 s / 2 = 32 %. Memory: (60 s x 256 + 90 s x 512) / 150 s = 409.6, 40 %. Its second
      container had ended before it could be read.
    - `b`, 10:30:00.5. 600 s in 600 s, 50 %; 512 MiB, 50 %.
    - `killed`, 10:45:20.5. 32 s in 20 s, 80 %; (10 s x 512 + 10 s x 1000) / 20 s = 756, 73.828 %.

    `c` ended at 11:10 and is the next cell alone: 1620 s in 900 s, 90 %. Of hourly, failed 20 %,
    stopped 30 %.
    """
    assert uses(filled, "task-usage-cpu") == by_hour(
        {"hourly": close(10), "nightly": close(54)}, {"hourly": close(25), "nightly": close(90)}
    )
    assert uses(filled, "task-usage-memory") == by_hour(
        {"hourly": close(6.25), "nightly": close((40 + 50 + 73.828) / 3)},
        {"hourly": close(18.75), "nightly": close(75)},
    )
    texts = drawn(filled, "task-usage-memory")["texts"]
    assert texts.index("nightly") < texts.index("hourly")  # the most runs first


def test_peaks(filled: SearchServer) -> None:
    """In percent of the container's limit of 1024 MiB: `killed` 1000 MiB, `d` 64, `failed` 128,
    `stopped` 256.
    """
    found = uses(filled, "task-peak-memory")
    assert found[("nightly", TEN)] == (close(100_000 / 1024),)
    assert found[("hourly", TEN)] == (close(6.25),)
    assert found[("hourly", ELEVEN)] == (close(25),)
    # On a phone, a cell has several hours: the highest of them.
    cells = drawn(filled, "task-peak-memory", width=200)["data"]["cells"]
    assert len(cells) <= len(found)


def test_failures_and_reasons(shown: Shown) -> None:
    """Those of which ECS told have its words; of the other only the monitor's exit code is
    known.
    """
    rows = shown("failures")
    assert {path: (*values[:5], values[6]) for path, values in rows.items()} == {
        ("nightly", "failure"): (
            1,
            "oom",
            KILLED_REASON,
            137,
            "killed",
            "2026-03-01T10:45:20.500Z",
        ),
        ("hourly", "stopped"): (1, "user", BY_USER, 143, "stopped", "2026-03-01T11:45:02.150Z"),
        ("hourly", "failure"): (1, "failure", None, 3, "failed", "2026-03-01T11:31:40.500Z"),
    }
    assert all(f"task.id:%22{values[4]}%22" in values[5] for values in rows.values())


def usd(billed_seconds: float) -> float:
    """Of 2 vCPU and 4 GiB in us-west-2."""
    return (2 * 0.04048 + 4 * 0.004445) * billed_seconds / 3600


def test_cost_and_waste(filled: SearchServer) -> None:
    """Billed is from 20 s before the start, at least 60 s: `a` 171 s, `killed` 60 s; the side of
    `a` has no cost.

    Waste by hand. A run may take at most 1.25 times as long. `b` used 1 vCPU: with 1 vCPU and 2
    GiB, half the price, it takes as long. Pull and start take as long with any size. The rest of
    `d` takes at most 1.101 times as long with 1 vCPU: 682 instead of 621 s at half the price save
    45.1 %. `failed` saves nothing: a failure alone does not show how much a run needs. The others
    would take too long with 1 vCPU: `a` up to 1.321 times, `stopped` 1.3, `killed` 1.8, `c` 1.9.
    Successes of `nightly` are `a`, `b` and `c`, which save half of 621 s together; `hourly` has
    `d` alone, which saves 45.1 % of it.
    """
    hourly, nightly = drawn(filled, "savings-by-family")["data"]["families"]
    assert nightly["key"] == "nightly"
    assert nightly["usd"] == close(usd(621) / 2 / 3)  # of one run: the family's rate is not known
    assert nightly["size"] == "1 vCPU, 2 GB"
    assert nightly["memory"] == close(100_000 / 1024)
    assert nightly["paid"] == close(usd(171 + 621 + 60 + 921))
    assert hourly["key"] == "hourly"
    assert hourly["usd"] == close(usd(621) * 0.451)
    (day,) = drawn(filled, "cost-by-day")["data"]["days"]
    assert day["date"] == "2026-03-01"
    assert day["usd"] == close(usd(171 + 621 + 60 + 921 + 621 + 721 + 323))
    assert day["usd"] - day["useful"] == close(usd(621) / 2 + usd(621) * 0.451)


def newest(*documents: Json) -> Json:
    """The answer of an aggregation to the newest document, if there is one."""
    hits = [{"_source": document} for document in documents]
    return {"doc_count": len(hits), "newest": {"hits": {"hits": hits}}}


def cheaper_run(size: Json, saving_usd: float = 0.1, runs: float = 35) -> Json:
    """The document of a run that could have been cheaper, in a family with so many runs a month."""
    advice = {"saving_usd_per_month": saving_usd * runs, "vcpu": 1, "memory_mb": 2048}
    return {"recommendation": advice, "cost": {"waste_usd": saving_usd}, "task": {"size": size}}


def run_with_too_little(needed_mb: float) -> Json:
    """The document of a run that needed more memory than it had."""
    advice = {"saving_percent": -4.5, "vcpu": 2, "memory_mb": needed_mb}
    return {"recommendation": advice, "task": {"id": "tight", "size": {"vcpu": 2}}}


def families_with_a_saving(
    advised: Json, latest: Json, peak_mb: float = 100, small: tuple[Json, ...] = ()
) -> list[str]:
    """The families of the drawing, of one whose newest run has another size than the advised.

    ``small``: its run that needed the most of those that had too little.
    """
    family = {
        "key": "nightly",
        "advice": newest(cheaper_run(advised)),
        "small": {**newest(*small), "tasks": {"value": len(small)}},
        "successes": {"saved": {"value": 0.3}, "known": {"value": 6}},
        "sized": newest({"task": {"size": latest}}),
        "need": {"value": peak_mb},
        **{name: {"value": 10} for name in ("peak", "cpu", "cost")},
    }
    answers = {"families": {"aggregations": {"family": {"buckets": [family]}}}}
    rows = evaluate(DRAWING["savings-by-family"], answers, VERSIONS[0])["data"]["families"]
    too_small = evaluate(DRAWING["too-small-families"], answers, VERSIONS[0])["data"]["families"]
    assert not (rows and too_small)  # one answer
    # The mean of the successes times the runs a month, not the newest run's own saving.
    assert [row["usd"] for row in rows] in ([], [close(0.3 / 6 * 35)])
    return [row["key"] for row in rows]


def test_advice_about_a_size_that_the_family_no_longer_has_is_not_drawn() -> None:
    large = {"vcpu": 2, "memory_mb": 4096}
    assert families_with_a_saving(large, large) == ["nightly"]
    assert families_with_a_saving(large, {"vcpu": 1, "memory_mb": 4096}) == []
    assert families_with_a_saving(large, {"vcpu": 2, "memory_mb": 5120}) == []


def test_a_size_that_another_run_would_not_fit_into_is_not_drawn_as_a_saving() -> None:
    """A family with a red peak was told to take less than that peak."""
    size = {"vcpu": 2, "memory_mb": 4096}
    assert families_with_a_saving(size, size, peak_mb=2048) == ["nightly"]
    assert families_with_a_saving(size, size, peak_mb=2049) == []


def families_that_are_too_small(latest: Json, needed_mb: float) -> list[tuple[str, str]]:
    """The families of the drawing with their sizes, of one of which a run needed so much."""
    needed = run_with_too_little(needed_mb)
    family = {
        "key": "nightly",
        "small": {**newest(needed), "tasks": {"value": 1}},
        "sized": newest({"task": {"size": latest}}),
        "peak": {"value": 88},
    }
    answers = {"families": {"aggregations": {"family": {"buckets": [family]}}}}
    rows = evaluate(DRAWING["too-small-families"], answers, VERSIONS[0])["data"]["families"]
    return [(row["key"], row["change"]) for row in rows]


def test_a_family_of_which_a_run_had_too_little_memory_is_too_small_and_saves_nothing() -> None:
    """Its newest run, a small one, could have been cheaper: it was in both lists."""
    size = {"vcpu": 2, "memory_mb": 4096}
    assert families_with_a_saving(size, size, small=(run_with_too_little(5120),)) == []
    assert families_that_are_too_small(size, 5120) == [
        ("nightly", "2 vCPU, 4 GB → 2 vCPU, 5 GB"),
    ]


def test_a_family_that_has_been_enlarged_enough_since_is_not_too_small() -> None:
    size = {"vcpu": 2, "memory_mb": 8192}
    assert families_with_a_saving(size, size, small=(run_with_too_little(5120),)) == ["nightly"]
    assert families_that_are_too_small(size, 5120) == []
    assert families_that_are_too_small(size, 8192) == []
    assert families_that_are_too_small(size, 9216) != []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("as_expression", "as_text", "cases"),
    [
        (vega_parts.usd_text, units.format_usd, DOLLARS),
        (vega_parts.usd_a_month_text, units.format_usd_a_month, DOLLARS_A_MONTH),
        (vega_parts.memory_text, units.format_memory, MEMORY),
        (vega_parts.duration_text, units.format_duration, DURATIONS),
        (vega_parts.percent_text, units.format_percent, PERCENTS),
    ],
)
def test_a_value_is_written_as_on_the_other_screens(
    as_expression: Callable[[str], str],
    as_text: Callable[[float], str],
    cases: Sequence[tuple[float, str]],
    version: str,
) -> None:
    values = [value for value, _ in cases if value >= 0]
    data = {
        "name": "values",
        "values": [{"value": value} for value in values],
        "transform": [{"type": "formula", "as": "text", "expr": as_expression("datum.value")}],
    }
    drawing = Drawing(key="k", title="t", description="d", spec={"data": [data]})
    rows = evaluate(drawing, {}, version)["data"]["values"]
    assert [row["text"] for row in rows] == list(map(as_text, values))


def test_a_run_without_an_image_is_drawn() -> None:
    """A run outside a container. What a search returns of a document lacks empty parts."""
    document = {
        "usage": {
            "cpu": {"percent": {"avg": 99.86}},
            "memory": {"used_mb": {"max": 1800}},
            "time": {"on_cpu": {"percent": 71.8}, "disk": {"percent": 0.4}},
        }
    }
    task = {"container": {"buckets": [{"key": "", **newest(document)}]}}
    answers = {"containers": {"aggregations": {"task": {"buckets": [task]}}}}
    view = evaluate(DRAWING["run-details"], answers, VERSIONS[0])
    assert [row["image"] for row in view["data"]["containers"]] == [""]
    assert {"99.9 %", "1.8 GB", "72 %", "0.4 %"} <= {*view["texts"]}


@pytest.mark.parametrize(
    ("advice", "shown"),
    [({"memory_mb": 2048}, "2 GB"), ({"vcpu": 0.5}, "0.5 vCPU"), ({"saving_percent": 0}, "-")],
)
def test_a_part_of_the_recommended_size_that_is_unknown_is_left_out(
    advice: Json, shown: str
) -> None:
    """A task on EC2 that was killed before its CPU was measured has no recommended vCPU."""
    document = {
        "event": {"start": "2026-03-01T10:00:00.000Z"},
        "task": {"id": "a", "family": "nightly", "status": "failure"},
        "container": {"name": "batch"},
        "usage": {"memory": {"percent": {"avg": 5}, "used_mb": {"avg": 5}}},
        "recommendation": advice,
    }
    run = {"report": newest(document), "checkpoint": {**newest(), "at": {"buckets": []}}}
    task = {"run": {"buckets": [run]}}
    answers = {"run": {"aggregations": {"task": {"buckets": [task]}}}}
    texts = evaluate(DRAWING["run-curves"], answers, VERSIONS[0])["texts"]
    assert shown in texts
    assert not [text for text in texts if "NaN" in text or "undefined" in text]


def texts_of_report(usage: Json) -> list[str]:
    """The texts of the drawing of a run without series, of which a report has this use."""
    document = {
        "event": {"dataset": "task.report"},
        "task": {"id": "a", "family": "nightly", "status": "success"},
        "usage": usage,
    }
    run = {"report": newest(document), "checkpoint": {**newest(), "at": {"buckets": []}}}
    answers = {"run": {"aggregations": {"task": {"buckets": [{"run": {"buckets": [run]}}]}}}}
    view = evaluate(DRAWING["run-curves"], answers, VERSIONS[0])
    assert view["warnings"] == []
    return list(view["texts"])


def test_a_peak_without_a_share_is_told_in_megabytes() -> None:
    """A task on an instance may have neither a size nor a limit."""
    assert "512 MB" in texts_of_report({"memory": {"used_mb": {"max": 512}}})


@pytest.mark.parametrize(
    ("usage", "why"),
    [
        ({"memory": {"used_mb": {"max": 512}}}, "the report has totals, but no values over time"),
        ({"memory": {"percent": {"max": 50}}}, "the report has totals, but no values over time"),
        ({"cpu": {"percent": {"avg": 5}}}, "the report has totals, but no values over time"),
        ({"cpu": {"size": 2}, "memory": {"size_mb": 4096}}, "the run has no measurement"),
        ({"duration_ms": 5000}, "the run has no measurement"),
    ],
)
def test_why_a_run_has_no_curve(usage: Json, why: str) -> None:
    """A run with its peak in a tile was said to have no measurement."""
    assert [text for text in texts_of_report(usage) if "curve" in text] == [f"No curve: {why}"]


def verdict_of(**task: Any) -> tuple[str, str, str]:
    """The verdict of a run's drawing, its colour, and the line that explains it."""
    document = {
        "event": {"start": "2026-03-01T10:00:00.000Z"},
        "task": {"id": "a", "family": "nightly", "exit_code": 1, **task},
        "container": {"name": "batch"},
    }
    run = {"report": newest(document), "checkpoint": {**newest(), "at": {"buckets": []}}}
    task = {"run": {"buckets": [run]}}
    answers = {"run": {"aggregations": {"task": {"buckets": [task]}}}}
    view = evaluate(DRAWING["run-curves"], answers, VERSIONS[0])
    (drawn_run,) = view["data"]["run"]
    (facts,) = (text for text in view["texts"] if text.startswith("Exit code"))
    return drawn_run["verdict"], drawn_run["colour"], facts


@pytest.mark.parametrize(
    ("status", "outcome", "colour", "facts"),
    [
        ("success", "success", colours.SUCCESS, "Exit code 1"),
        ("failure", "failure", colours.FAILURE, "Exit code 1"),
        ("failure", "timeout", colours.FAILURE, "Exit code 1  ·  Cause: Timed out"),
        ("failure", "image", colours.FAILURE, "Exit code 1  ·  Cause: Image could not be pulled"),
        ("stopped", "spot", colours.STOPPED, "Exit code 1  ·  Cause: Spot capacity reclaimed"),
        ("unknown", "unknown", colours.UNKNOWN, "Exit code 1"),
    ],
)
def test_a_result_is_the_status_in_its_colour_with_the_cause_below(
    status: str, outcome: str, colour: str, facts: str
) -> None:
    shown = verdict_of(status=status, outcome=outcome, event_outcome=outcome)
    assert shown == (status, colour, facts)


@pytest.mark.parametrize(
    ("confirmed", "facts"),
    [
        ({"confirmed": False}, "Exit code 1  ·  Unconfirmed"),
        ({"confirmed": False, "voucher": "trusted-group"}, "Exit code 1"),
        ({"confirmed": True}, "Exit code 1"),
        ({}, "Exit code 1"),
    ],
)
def test_an_unconfirmed_run_is_drawn_as_such(confirmed: Json, facts: str) -> None:
    assert verdict_of(status="failure", outcome="failure", **confirmed)[2] == facts


def test_what_a_resize_has_saved(filled: SearchServer) -> None:
    """ECS's event of `stopped` alone has read the definition, whose tag names the size before."""
    (family,) = drawn(filled, "saved-by-resizes")["data"]["families"]
    assert family["key"] == "hourly"
    assert family["change"] == "4 vCPU, 8 GB → 2 vCPU, 4 GB"
    assert family["runs"] == 1
    assert family["before"] == close((usd(621) + usd(721)) / 2)
    assert family["after"] == close(usd(323))
    assert family["saved"] == close((usd(621) + usd(721)) / 2 - usd(323))


def test_families_by_night(filled: SearchServer) -> None:
    found = drawn(filled, "families-by-night")["data"]
    assert [night["night"] for night in found["nights"]] == [START.timestamp() * 1000]
    nightly, hourly = sorted(found["cells"], key=lambda cell: -cell["peak"])
    assert nightly["key"] == "nightly"
    assert nightly["peak"] == close(100_000 / 1024)
    assert nightly["killed"] == 1
    assert nightly["failed"] == 0
    assert nightly["runs"] == 5  # a report for each of two containers of `a`
    assert hourly["key"] == "hourly"
    assert hourly["killed"] == 0
    assert hourly["failed"] == 1


def test_durations(filled: SearchServer) -> None:
    """Nightly: 2 (the side container), 20.5, 150.5, 600.5 and 900.5 s; hourly: 302.15, 600.5 and
    700.5 s.
    """
    view = drawn(filled, "durations-by-family")
    nightly, hourly = view["data"]["points"]
    assert nightly["key"] == "nightly"
    assert nightly["median"] == 150_500
    assert 600_500 < nightly["p95"] <= 900_500
    assert hourly["median"] == 600_500
    assert 600_500 < hourly["p95"] <= 700_500
    assert any(text.startswith("2m 31s · ") for text in view["texts"])


def test_the_curves_of_a_run(filled: SearchServer) -> None:
    """By hand: 0.4 of 2 vCPU and 256 MiB in the first minute of `a`, then 0.8 and 512."""
    view = drawn(filled, "run-curves", "a")
    steps = view["data"]["steps"]
    assert steps[1]["used_vcpu"] == close(0.4)
    assert steps[1]["used_mb"] == 256
    assert steps[-2]["used_vcpu"] == close(0.8)
    assert max(step["used_mb"] or 0 for step in steps) == 512
    assert view["data"]["intervals"] == []
    assert view["data"]["kill"] == []
    assert {"success", "nightly", "2m 31s", "of 2 vCPU"} <= {*view["texts"]}


def test_the_curves_of_a_killed_run_end_with_the_kill(filled: SearchServer) -> None:
    view = drawn(filled, "run-curves", "killed")
    (kill,) = view["data"]["kill"]
    assert kill["ms"] == 20_500
    assert {"killed: out of memory", "✕ killed"} <= {*view["texts"]}


def test_a_run_that_goes_on_has_a_point_for_each_checkpoint(filled: SearchServer) -> None:
    """Without its report, `a` is a run of which two checkpoints have come."""
    view = drawn(filled, "run-curves", "a", dataset="task.checkpoint")
    first, second = view["data"]["curve"]
    assert first["used_vcpu"] == close(0.4)
    assert first["used_mb"] == 256
    assert second["used_vcpu"] == close(0.8)
    assert second["ms"] == 120_000
    assert {"running", "so far"} <= {*view["texts"]}


def test_without_a_selected_run_the_newest_by_start_is_drawn(filled: SearchServer) -> None:
    (run,) = drawn(filled, "run-curves")["data"]["run"]
    assert run["doc"]["task"]["id"] == "stopped"


@contextlib.contextmanager
def two_that_began_together(server: SearchServer) -> Iterator[None]:
    """Two more runs with the same, newest start, of which the second one's log stream is first."""
    (found,) = search(server, query={"term": {"task.id": "stopped"}})["hits"]["hits"]
    addresses = []
    for name, log_stream, peak_mb in (("x-first", "z", 111), ("y-second", "a", 222)):
        document = json.loads(json.dumps(found["_source"]))
        document["event"]["start"] = "2026-03-01T11:58:00.000Z"
        document["task"] |= {"id": name}
        document["usage"]["memory"]["used_mb"]["max"] = peak_mb
        document["aws"]["cloudwatch"]["log_stream"] = log_stream
        addresses.append(f"{server.url}/{found['_index']}/_doc/{name}?refresh=true")
        requests.put(addresses[-1], json=document, timeout=LIMIT_SECONDS).raise_for_status()
    yield
    for address in addresses:
        requests.delete(address, timeout=LIMIT_SECONDS).raise_for_status()


def test_of_runs_that_began_together_all_drawings_show_the_same(filled: SearchServer) -> None:
    """One searched the newest task, the other the newest log stream."""
    with two_that_began_together(filled):
        (run,) = drawn(filled, "run-curves")["data"]["run"]
        (container,) = drawn(filled, "run-details")["data"]["containers"]
    assert run["doc"]["task"]["id"] == "x-first"
    assert run["memory"]["used_mb"]["max"] == container["memory"]["used_mb"]["max"] == 111


@contextlib.contextmanager
def put_documents(server: SearchServer, *documents: Json) -> Iterator[None]:
    """These documents of a task in the indices of their kind."""
    addresses = []
    for number, document in enumerate(documents):
        is_checkpoint = document["event"]["dataset"] == "task.checkpoint"
        index = f"task-{'checkpoints' if is_checkpoint else 'reports'}-2026.03"
        name = f"{document['task']['id']}-{number}"
        addresses.append(f"{server.url}/{index}/_doc/{name}?refresh=true")
        requests.put(addresses[-1], json=document, timeout=LIMIT_SECONDS).raise_for_status()
    yield
    for address in addresses:
        requests.delete(address, timeout=LIMIT_SECONDS).raise_for_status()


def unstarted_job() -> Json:
    """The document of a job that somebody cancelled before it ran."""
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("orders")
        job = batch.submit("orders", "nightly", "orders")
    batch_jobs.end_without_attempt(
        job, 1_772_361_000_000, "Cancelled by the operator", isCancelled=True
    )
    document = job_document(present(parse_job(job)), ForwarderSettings())
    return dict(present(document).initial_fields)


def attempt_of_unknown_task() -> Json:
    """The document of a failed attempt of whose task no event and no report has come."""
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("orders")
        job = batch.submit("orders", "nightly", "orders", retryStrategy={"attempts": 2})
    for _ in range(2):
        batch_jobs.begin(job, 1_772_360_000_000)
        batch_jobs.end(job, 1_772_361_000_000, 3)
    first, _ = attempt_documents(present(parse_job(job)), ForwarderSettings())
    return dict(first.initial_fields)


def unstarted_task() -> Json:
    """The document of a task whose image could not be pulled."""
    return {
        "@timestamp": "2026-03-01T11:30:00.000Z",
        "event": {"dataset": "task.report", "end": "2026-03-01T11:30:00.000Z"},
        "container": {"name": "batch"},
        "task": {
            "id": "unpulled",
            "family": "nightly",
            "status": "failure",
            "outcome": "image",
            "event_outcome": "image",
            "stopped_reason": "CannotPullContainerError: not found",
        },
    }


@pytest.mark.parametrize(
    ("made", "result", "facts"),
    [
        (unstarted_job, "stopped", "Cause: Stopped on request  ·  Cancelled by the operator"),
        (attempt_of_unknown_task, "failure", "Exit code 3"),
        (
            unstarted_task,
            "failure",
            "Cause: Image could not be pulled  ·  CannotPullContainerError: not found",
        ),
    ],
)
def test_a_run_of_which_an_event_alone_tells_has_its_result_and_no_axes(
    filled: SearchServer, made: Callable[[], Json], result: str, facts: str
) -> None:
    document = made()
    with put_documents(filled, document):
        texts = drawn(filled, "run-curves", document["task"]["id"])["texts"]
    assert {result, facts, document["task"]["family"]} <= {*texts}
    assert "No curve: the run has no measurement" in texts
    assert not {"vCPU", "MB", "0"} & {*texts}
    assert not [text for text in texts if "NaN" in text or "undefined" in text]


def test_a_task_whose_report_is_missing_ended_and_has_the_curve_of_its_checkpoints(
    filled: SearchServer,
) -> None:
    """ECS's event does not know the log stream of the checkpoints, and says another start."""
    hits = search(filled, "task-checkpoints-*", query={"term": {"task.id": "a"}})["hits"]["hits"]
    checkpoints = [json.loads(json.dumps(hit["_source"])) for hit in hits]
    for checkpoint in checkpoints:
        checkpoint["task"] |= {"id": "silent"}
    ended = unstarted_task()
    ended["event"]["start"] = "2026-03-01T09:59:59.000Z"
    ended["task"] |= {"id": "silent", "outcome": "failure", "event_outcome": "failure"}
    with put_documents(filled, ended, *checkpoints):
        view = drawn(filled, "run-curves", "silent")
    assert view["data"]["run"][0]["verdict"] == "failure"
    assert "so far" not in view["texts"]
    batch = [point for point in view["data"]["curve"] if point["used_vcpu"] is not None]
    assert [point["used_vcpu"] for point in batch] == [close(0.4), close(0.8)]
    assert [point["used_mb"] for point in batch] == [256, 512]
    assert "of 2 vCPU" in view["texts"]


def test_the_scale_of_the_nights_is_not_wider_than_its_cells_on_a_phone() -> None:
    """Beside long names, its red part was cut."""
    hour = {"key": START.timestamp() * 1000, "doc_count": 1, "peak": {"value": 50}}
    hour |= {"killed": {"doc_count": 0}, "failed": {"doc_count": 0}}
    families = [{"key": "SEQ.ALIGN_AND_INDEX.SORT", "hour": {"buckets": [hour]}}]
    answers = {"cells": {"aggregations": {"family": {"buckets": families}}}}
    for version in VERSIONS:
        view = evaluate(DRAWING["families-by-night"], answers, version, width=340)
        assert 40 < view["legend"] < 340 - 100
        assert view["warnings"] == []


@pytest.mark.parametrize("width", [340, 700, 1000])
def test_no_time_above_the_cells_is_cut_at_their_edge(width: int) -> None:
    """The first of a month is its name, which is longer than other days: December was "Dece"."""
    last = datetime(2026, 12, 1, tzinfo=UTC)
    hours = [
        {"key": (last - timedelta(hours=before)).timestamp() * 1000, "use": {"count": 1, "sum": 9}}
        for before in range(1, 168)
    ]
    families = [{"key": "nightly", "hour": {"buckets": hours}}]
    answers = {"hours": {"aggregations": {"family": {"buckets": families}}}}
    for version in VERSIONS:
        view = evaluate(DRAWING["task-usage-memory"], answers, version, width=width)
        times = [label for label in view["labels"] if label[0] != "nightly"]
        assert len(times) > 1
        assert max(right for _, _, _, right, _ in times) <= view["width"] + vega_parts.PADDING_PX
        assert view["warnings"] == []


def overlapping(boxes: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """Texts that are on each other."""
    return [
        (one[0], other[0])
        for one, other in itertools.combinations(boxes, 2)
        if one[1] < other[3] and other[1] < one[3] and one[2] < other[4] and other[2] < one[4]
    ]


@pytest.mark.parametrize("width", [340, 700, 1380])
@pytest.mark.parametrize("key", ["run-curves", "run-details"])
def test_no_text_of_a_run_is_on_another_one_or_outside(
    filled: SearchServer, key: str, width: int
) -> None:
    """On a phone, a tablet and a laptop: with eight tiles in a row, all of a phone overlapped."""
    for task in ("a", "killed"):
        view = drawn(filled, key, task, width=width)
        boxes = view["boxes"]
        assert len(boxes) > 10
        assert overlapping(boxes) == []
        if key == "run-details":
            assert view["rects"]
            assert overlapping([*boxes, *(["", *rect] for rect in view["rects"])]) == []
        assert max(box[3] for box in boxes) <= width + 20


def money_rows(rows: int, *small: Json) -> dict[str, Json]:
    """What the searches of sizes by family answer, with long names and amounts.

    ``small``: the run of each that had too little memory.
    """
    size = {"vcpu": 16, "memory_mb": 73_728}
    advice = {"saving_usd_per_month": 2602.92, "vcpu": 8, "memory_mb": 49_152}
    run = {"recommendation": advice, "cost": {"waste_usd": 1.0}, "task": {"size": size}}
    families = [
        {
            "key": f"RNASEQ_ALIGN_STAR_BAM_SORT_SAMTOOLS_SORT_{number}",
            "advice": newest(run),
            "sized": newest({"task": {"size": size}}),
            "small": {**newest(*small), "tasks": {"value": 1234}},
            "successes": {"saved": {"value": 50}, "known": {"value": 50}},
            "size": newest({"task": {"size": advice, "resized_from": "definition/16384/73728"}}),
            "before": {"cost": {"value": 12.34}},
            "after": {"doc_count": 1234, "cost": {"value": 10.2}},
            **{name: {"value": 88.8} for name in ("peak", "cpu", "cost", "need")},
        }
        for number in range(rows)
    ]
    return {"families": {"aggregations": {"family": {"buckets": families}}}}


TOO_LITTLE = (
    {
        "recommendation": {"vcpu": 16, "memory_mb": 122_880},
        "task": {"id": "0123456789abcdef0123456789abcdef"},
    },
)


@pytest.mark.parametrize("width", [340, 480, 700, 950, 1380])
@pytest.mark.parametrize(
    ("key", "rows"),
    [("savings-by-family", 25), ("saved-by-resizes", 12), ("too-small-families", 12)],
)
def test_no_text_of_money_by_family_is_on_another_one_or_outside(
    key: str, rows: int, width: int
) -> None:
    """On a phone, all columns were on each other."""
    for version in VERSIONS:
        answers = money_rows(rows, *TOO_LITTLE if key == "too-small-families" else ())
        view = evaluate(DRAWING[key], answers, version, width=width)
        assert view["warnings"] == []
        assert len(view["boxes"]) > rows
        assert overlapping(view["boxes"]) == []
        assert max(box[3] for box in view["boxes"]) <= width


def test_long_names_leave_room_for_the_cells_of_use_on_a_phone() -> None:
    """The products' heatmaps had no cell there."""
    hours = [
        {"key": (START.timestamp() + 3600 * n) * 1000, "use": {"count": 1, "sum": 5, "max": 5}}
        for n in range(168)
    ]
    name = "RNASEQ_ALIGN_STAR_BAM_SORT_SAMTOOLS_BAM_STATS_SAMTOOLS_SAMTOOLS_FLAGSTAT"
    families = [{"key": name, "hour": {"buckets": hours}}]
    answers = {"hours": {"aggregations": {"family": {"buckets": families}}}}
    for version in VERSIONS:
        view = evaluate(DRAWING["task-usage-memory"], answers, version, width=340)
        assert view["warnings"] == []
        assert 7 <= len(view["data"]["cells"]) <= 28
        assert sum(cell["runs"] for cell in view["data"]["cells"]) == 168
        assert 40 < view["legend"] < 340 - 100


def test_names_of_workflows_that_differ_at_one_place_are_told_apart() -> None:
    """A name that is cut at its end alone was that of its neighbour."""
    names = [
        "RNASEQ:QUANTIFY_SALMON:SALMON_TX2GENE",
        "RNASEQ:QUANTIFY_STAR_SALMON:SALMON_TX2GENE",
        "METHYLSEQ:BISMARK:BISMARK_DEDUPLICATE",
        "METHYLSEQ:BISMARK:BISMARK_ALIGN",
        *(f"{'SEQ.ALIGN_AND_INDEX.' * 4}_{end}" for end in ("FIRST", "SECOND")),
    ]
    counts = {"killed": {"doc_count": 0}, "failed": {"doc_count": 0}}
    hour = {"key": START.timestamp() * 1000, "doc_count": 1, "peak": {"value": 50}, **counts}
    families = [{"key": name, "hour": {"buckets": [hour]}} for name in names]
    answers = {"cells": {"aggregations": {"family": {"buckets": families}}}}
    for version in VERSIONS:
        texts = evaluate(DRAWING["families-by-night"], answers, version)["texts"]
        shown = [text for text in texts if text.startswith(("RNASEQ", "METHYLSEQ", "SEQ"))]
        assert len({*shown}) == len(shown) == len(names)
        # What is longer than the room of a name is cut at its end.
        assert max(map(len, shown)) * 7.2 <= 300


def test_a_drawing_without_runs_says_so(filled: SearchServer) -> None:
    for key in DRAWING.keys() - {"cost-total", "sizing-cost", "waste-total"}:
        assert any("No run" in text for text in drawn(filled, key, "none")["texts"]), key
    assert drawn(filled, "cost-total", "none")["texts"] == ["-"]


def test_curves_without_a_run_have_no_axes(filled: SearchServer) -> None:
    assert not {"vCPU", "MB"} & {*drawn(filled, "run-curves", "none")["texts"]}


def test_families_that_are_too_small(shown: Shown, filled: SearchServer) -> None:
    """The retry of a killed run with more memory does not make its family's size larger."""
    assert drawn(filled, "too-small-families")["data"]["families"] == []
    with too_small(filled):
        (hit,) = search(filled, query={"term": {"task.id": "tight"}})["hits"]["hits"]
        retry = json.loads(json.dumps(hit["_source"]))
        retry["task"] |= {"id": "again", "retry_of": "tight"}
        retry["task"]["size"]["memory_mb"] = 8192
        retry["@timestamp"] = "2026-03-01T11:59:00.000Z"
        del retry["recommendation"]
        with put_documents(filled, retry):
            assert shown("sizing-too-small") == {(): (1,)}
            view = drawn(filled, "too-small-families")
    (row,) = view["data"]["families"]
    assert row["key"] == row["task"] == "tight"
    assert row["change"] == "2 vCPU, 4 GB → 2 vCPU, 5 GB"
    assert (row["tasks"], row["percent"]) == (1, close(75))
    assert {"tight", "75 %", "2 vCPU, 4 GB → 2 vCPU, 5 GB"} <= {*view["texts"]}


def facts_of(server: SearchServer, task: str) -> str:
    """The line that explains the result of a run."""
    (line,) = (text for text in drawn(server, "run-curves", task)["texts"] if " · " in text)
    return str(line)


def test_a_killed_run_names_exit_code_category_and_reason(filled: SearchServer) -> None:
    line = facts_of(filled, "killed")
    assert line.startswith("Exit code 137  ·  ")
    assert line.endswith(f"Memory peak ≥1,000 MB  ·  Cause: Out of memory  ·  {KILLED_REASON}")


def test_a_successful_run_names_exit_code_and_peaks_alone(filled: SearchServer) -> None:
    assert facts_of(filled, "c") == "Exit code 0  ·  CPU peak 90 %  ·  Memory peak ≥768 MB"


def test_the_list_of_outcomes_has_the_causes(filled: SearchServer) -> None:
    found = {}
    for outcome in ("success", "failure", "oom", "user"):
        hits = search(filled, query={"term": {"task.outcome": outcome}})["hits"]["hits"]
        found[outcome] = {hit["_source"]["task"]["id"] for hit in hits}
    assert found == {
        "success": {"a", "b", "c", "d"},
        "failure": {"failed"},
        "oom": {"killed"},
        "user": {"stopped"},
    }


def test_notices(shown: Shown) -> None:
    rows = shown("latest-notices")
    message = missed_notice().notice.message
    assert rows == {
        ("nightly-etl", "late"): (1, message, None, "2026-03-01T10:40:00.000Z"),
        ("nightly-etl", "missed"): (1, message, None, "2026-03-01T10:16:00.000Z"),
        ("nightly", "stuck"): (1, stuck_notice().notice.message, "c", "2026-03-01T11:00:01.000Z"),
    }
    assert next(iter(rows))[0] == "nightly-etl"  # the most notices


def test_the_examples_of_alerts_find_the_failed_runs(filled: SearchServer) -> None:
    """Two runs failed. A monitor puts the time of its search into the query."""
    folder = ROOT / "examples" / "alerts"
    rule = json.loads((folder / "kibana_rule.json").read_text())["params"]
    found = search(filled, rule["index"][0], **json.loads(rule["esQuery"]))
    assert {hit["_source"]["task"]["id"] for hit in found["hits"]["hits"]} == {"killed", "failed"}
    (given,) = json.loads((folder / "opensearch_monitor.json").read_text())["inputs"]
    end = round(datetime(2026, 3, 1, 11, 40, tzinfo=UTC).timestamp() * 1000)
    body = json.loads(json.dumps(given["search"]["query"]).replace("{{period_end}}", str(end)))
    found = search(filled, given["search"]["indices"][0], **body)
    assert found["hits"]["total"]["value"] == 1  # only one of them in the last 15 minutes
