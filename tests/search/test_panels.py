"""The searches of all dashboard panels on real servers, with documents that profiler and forwarder wrote.

The lines are the real monitor's (see :mod:`tests.search.produced`), the documents those of the real
handlers; the numbers are worked out by hand from what each script says.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import boto3
import pytest
import requests
from msgspec.structs import replace

import handler
from kibana.aggregations import cases_id, grouped_metrics, terms_id, time_id
from kibana.build import PANELS
from kibana.dashboard_model import Panel
from profiler.forwarder.documents import schedule_notice_document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.record.notice_model import encode_notice
from profiler.record.record_model import Recommendation, decode, encode
from tests.documentation import ROOT
from tests.fake_slack import FakeSlack
from tests.panel_searches import MATCHING, other_search_body, search_body
from tests.search.produced import GROUP, SCRIPTS, Script, arn, produced, stream
from tests.search.server import SearchServer
from tests.search.test_forwarder import Context, Forward, event, forwarding, search
from tests.search.test_task_stopped import LambdaContext, played_aws, put
from tests.shown_runs import missed_notice, stuck_notice
from tests.unit.forwarder.task.test_task_event import container, definition
from tests.unit.forwarder.task.test_task_event import event as task_event

pytestmark = pytest.mark.search

START, END = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
TEN, ELEVEN = "2026-03-01T10:00:00.000Z", "2026-03-01T11:00:00.000Z"
ONE_MINUTE, TWO_MINUTES = "60000.0", "120000.0"  # of elapsed time, in ms
ONE, TWO = "2026-03-01T10:01:00.000Z", "2026-03-01T10:02:00.000Z"
PANEL = {panel.key: panel for panel in PANELS}
SCRIPT = {script.task_id: script for script in SCRIPTS}
KILLED_REASON = "OutOfMemoryError: Container killed due to memory usage"
BY_USER = "Task stopped by user"

Bucket = dict[str, Any]
Ask = Callable[..., dict[str, Any]]


def stopped_event(script: Script, *, code: int, stopped_at: str, reason: str | None = None, **more: Any) -> Any:
    """ECS's event of the task's end."""
    batch = {"name": "batch", "exitCode": code, "lastStatus": "STOPPED", "image": "etl:7"}
    return task_event(
        taskArn=arn(script),
        taskDefinitionArn=f"arn:aws:ecs:us-west-2:111122223333:task-definition/{script.family}:1",
        containers=[batch if reason is None else {**batch, "reason": reason}, {"name": "task-monitor", "exitCode": 0}],
        createdAt=script.started,
        pullStartedAt=script.started,
        startedAt=script.started,
        executionStoppedAt=stopped_at,
        stoppedAt=stopped_at,
        group=f"family:{script.family}",
        **more,
    )


KILLED = stopped_event(
    SCRIPT["killed"],
    code=137,
    reason=KILLED_REASON,
    stopped_at="2026-03-01T10:45:20.500Z",
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
    """A server to which all lines have come through the handlers.

    Of two tasks ECS's event comes too: of the killed one before its report comes by subscription, but
    with the report in the log stream; of the stopped one after it.
    """
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        slack = stack.enter_context(contextlib.closing(FakeSlack()))
        forward = stack.enter_context(forwarding(search_server, patch))
        aws = stack.enter_context(played_aws(patch, slack))
        register("hourly")
        batch = stream("batch", SCRIPT["killed"])
        aws.create_log_stream(logGroupName=GROUP, logStreamName=batch)
        lines = {name: of_it for run in produced() for name, of_it in run.by_stream.items()}
        put(aws, lines[batch][0], batch)
        assert handler.task_stopped(KILLED, LambdaContext())["indexed"] is True
        for name, of_it in lines.items():
            answer = forward(event(*of_it, stream=name), Context())
            assert answer == {"indexed": len(of_it), "skipped": 0, "failed": 0}
        assert handler.task_stopped(STOPPED, LambdaContext())["indexed"] is True
        send_notices(forward, search_server)
        yield search_server


@pytest.fixture
def ask(filled: SearchServer) -> Ask:
    """Ask what a panel asks."""

    def answers(key: str, others_after: int = 0) -> dict[str, Any]:
        panel = PANEL[key]
        interval = "1m" if panel.index == "checkpoints" else "1h"
        body = search_body(panel, START, END, interval=interval)
        aggregations: dict[str, Any] = search(filled, f"task-{panel.index}-*", **body)["aggregations"]
        if any(terms.has_other_bucket for terms in panel.terms):  # as the products do, by a second request
            families = [bucket["key"] for bucket in aggregations[terms_id(panel, 0)]["buckets"]]
            rest = other_search_body(body, panel, families[:others_after]) if others_after else None
            if rest is not None:
                return {"Other": search(filled, f"task-{panel.index}-*", **rest)["aggregations"]}
        return aggregations

    return answers


def send_notices(forward: Forward, server: SearchServer) -> None:
    """A notice of a running task by subscription, and two of a schedule as ``watch_schedules`` indexes them."""
    stuck = stuck_notice()
    record = replace(stuck.record, task_id="c", task_arn=None, family="nightly")
    line = encode_notice(replace(stuck, time="2026-03-01T11:00:01.000Z", record=record)).decode()
    assert forward(event(line, stream=stream("task-monitor", SCRIPT["c"])), Context())["indexed"] == 1
    for time, kind in (("2026-03-01T10:16:00.000Z", "missed"), ("2026-03-01T10:40:00.000Z", "late")):
        missed = missed_notice()
        schedule_line = replace(missed, time=time, notice=replace(missed.notice, kind=kind))
        document = schedule_notice_document(schedule_line, encode_notice(schedule_line).decode(), ForwarderSettings())
        address = f"{server.url}/{document.index}/_doc/{quote(document.id, safe='')}"
        requests.put(address, json=document.fields, timeout=120).raise_for_status()


def register(family: str) -> None:
    """Have ECS know the family's task definition, as it knows nightly's."""
    described = definition(container("task-monitor", essential=False, memory=64), container("batch", memory=64))
    boto3.client("ecs").register_task_definition(family=family, containerDefinitions=described["containerDefinitions"])


@contextlib.contextmanager
def one_more(server: SearchServer, name: str, **differences: Any) -> Iterator[None]:
    """One more run like `c`, of a family of its own."""
    (line,) = [one for run in produced() for one in run.by_stream.get(stream("batch", SCRIPT["c"]), ())]
    report = decode(line)
    record = replace(report.record, task_id=name, family=name, **differences)
    line = encode(replace(report, record=record)).decode()
    assert handler.forward_logs(event(line, stream=f"ecs/batch/{name}"), Context())["indexed"] == 1
    yield
    document = f"{server.url}/task-reports-2026.03/_doc/{name}%2Fbatch"
    requests.delete(document, params={"refresh": "true"}, timeout=120).raise_for_status()


@pytest.fixture
def too_small(filled: SearchServer) -> Iterator[None]:
    """A run that needs more memory than its task has."""
    needed = Recommendation(vcpu=2, memory_mb=5120, saving_percent=-4.5, reasons=("It needs 5 GB.",))
    with one_more(filled, "tight", recommendation=needed):
        yield


@pytest.fixture
def on_instances(filled: SearchServer) -> Iterator[None]:
    """A run on an EC2 instance."""
    with one_more(filled, "fleet", launch_type="EC2", cost=None):
        yield


def table(answer: dict[str, Any], key: str) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """The panel's metrics by the values of its rows, and its time if it has one."""
    panel = PANEL[key]
    names = [cases_id(panel)] if panel.cases else []
    names += [terms_id(panel, number) for number in range(len(panel.terms))]
    names += [time_id(panel)] if panel.has_time_axis else []
    level: list[tuple[tuple[str, ...], Bucket]] = [((), answer)]
    for name in names:
        level = [
            ((*path, label), bucket) for path, outer in level for label, bucket in buckets_of(outer[name]["buckets"])
        ]
    return {path: tuple(value(bucket, panel, n) for n in range(len(panel.metrics))) for path, bucket in level}


def by_family(rows: dict[tuple[str, ...], tuple[Any, ...]]) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """The rows of a table that also has an account and a Region, here one of each for a family."""
    found = {path[:1]: values for path, values in rows.items()}
    assert len(found) == len(rows)
    return found


def buckets_of(buckets: Any) -> list[tuple[str, Bucket]]:
    if isinstance(buckets, dict):
        return list(buckets.items())
    return [(str(bucket.get("key_as_string", bucket["key"])), bucket) for bucket in buckets]


def value(bucket: Bucket, panel: Panel, n: int) -> Any:
    metric = panel.metrics[n]
    name = next(name for name, group in grouped_metrics(panel).items() if metric in group)
    if metric.operation == "percentile":
        return {one["key"]: one["value"] for one in bucket[name]["values"]}[metric.percent]
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


def test_the_documents_come_from_lines_of_the_monitor(ask: Ask, search_server: SearchServer) -> None:
    """Eight reports (one task has two containers) and two checkpoints; each document holds its line."""
    ask("task-count-by-family")
    written = {line for run in produced() for of_it in run.by_stream.values() for line in of_it}
    for index, number_of_lines in (("reports", 8), ("checkpoints", 2)):
        hits = search(search_server, f"task-{index}-*")["hits"]["hits"]
        found = {hit["_source"]["record"] for hit in hits}
        assert len(hits) == len(found) == number_of_lines
        assert found <= written


@pytest.mark.usefixtures("on_instances")
def test_families_without_a_known_cost_are_named(ask: Ask) -> None:
    """The side container of `a` has no cost either, but its task runs on Fargate, and has one."""
    found = table(ask("no-cost-table"), "no-cost-table")
    assert found == {("fleet", "EC2"): (1, None, "fleet", 2, 2, 1024, 4096, close(75))}
    assert ("fleet",) not in by_family(table(ask("cost-table"), "cost-table"))


@pytest.mark.usefixtures("too_small", "on_instances")
def test_every_panel_has_buckets_and_a_number_in_each_column(ask: Ask) -> None:
    for panel in PANELS:
        found = table(ask(panel.key), panel.key)
        assert found, panel.key
        for column, metric in enumerate(panel.metrics):
            # No kernel kills a process in a played task, no Kibana is known, and the task on an instance has no GPU.
            if metric.field in {"usage.memory.kills", "links.run", "usage.gpu.count"}:
                continue
            assert any(row[column] is not None for row in found.values()), (panel.key, metric.label)


def test_a_cell_of_the_cpu_heatmap(ask: Ask) -> None:
    """Worked out by hand: the family nightly, CPU %, between 10 and 11 o'clock.

    Three batches ended in that hour, each of 2 vCPU, read once a second until half a second before its end:

    - `a`, 10:02:30.5. Its counter stood at 24 s of CPU after the first 60 s (0.4 vCPU), and at 24 + 72 = 96 s after
      90 s more (0.8 vCPU): 96 s / 150 s = 0.64 vCPU, which is 0.64 / 2 = 32 %.
    - `b`, 10:30:00.5: 600 s in 600 s, 1 vCPU, 50 %.
    - `killed`, 10:45:20.5: 32 s in 20 s, 1.6 vCPU, 80 %.

    The second container of `a` had ended before it could be read and counts nothing. So (32 + 50 + 80) / 3 = 54. `c`
    ended at 11:10 and is the next cell alone: 1620 s in 900 s, 1.8 vCPU, 90 %.
    """
    found = table(ask("task-usage-cpu"), "task-usage-cpu")
    assert found == {
        ("hourly", TEN): (close(10),),
        ("hourly", ELEVEN): (close(25),),  # failed 20 %, stopped 30 %
        ("nightly", TEN): (close(54),),
        ("nightly", ELEVEN): (close(90),),
    }


def test_a_cell_of_the_memory_heatmap(ask: Ask) -> None:
    """By hand, of 1024 MiB: `a` (60 s x 256 + 90 s x 512) / 150 s = 409.6, 40 %; `b` 512, 50 %; `killed`
    (10 s x 512 + 10 s x 1000) / 20 s = 756, 73.828 %. Their mean is 54.609 %.
    """
    found = table(ask("task-usage-memory"), "task-usage-memory")
    assert found == {
        ("hourly", TEN): (close(6.25),),
        ("hourly", ELEVEN): (close(18.75),),
        ("nightly", TEN): (close((40 + 50 + 73.828) / 3),),
        ("nightly", ELEVEN): (close(75),),
    }
    assert next(iter(found))[0] == "nightly"  # the highest first


def test_tasks_are_counted_once(ask: Ask) -> None:
    """Three of nightly in the first hour, though it has four documents there."""
    found = table(ask("task-count-by-family"), "task-count-by-family")
    assert found == {
        ("nightly", TEN): (3,),
        ("nightly", ELEVEN): (1,),
        ("hourly", TEN): (1,),
        ("hourly", ELEVEN): (2,),
    }
    found = table(ask("task-count-by-outcome"), "task-count-by-outcome")
    assert found == {
        ("Success", TEN): (3,),
        ("Success", ELEVEN): (1,),
        ("Out of memory", TEN): (1,),
        ("Failure", ELEVEN): (1,),
        ("Stopped", ELEVEN): (1,),
    }


def test_the_large_numbers(ask: Ask) -> None:
    """Two of seven tasks failed, one of them because memory ran out."""
    assert table(ask("task-count"), "task-count") == {(): (7,)}
    assert table(ask("failure-rate"), "failure-rate") == {(): (pytest.approx(2 / 7),)}
    assert table(ask("out-of-memory-count"), "out-of-memory-count") == {(): (1,)}
    assert table(ask("task-out-of-memory"), "task-out-of-memory") == {("nightly", TEN): (1,)}
    cost = sum(amount for (amount,) in table(ask("cost-by-family"), "cost-by-family").values())
    waste = sum(amount for (amount,) in table(ask("waste-by-family"), "waste-by-family").values())
    for prefix in ("cost-total", "sizing-cost"):
        assert table(ask(prefix), prefix) == {(): (close(cost),)}
    for prefix in ("waste-total", "sizing-waste"):
        assert table(ask(prefix), prefix) == {(): (close(waste),)}


def test_durations(ask: Ask) -> None:
    """Nightly: 2 (the side container), 20.5, 150.5, 600.5 and 900.5 s; hourly: 302.15, 600.5 and 700.5 s."""
    rows = table(ask("task-duration"), "task-duration")
    assert list(rows) == [("nightly",), ("hourly",)]  # most reports first
    assert rows[("nightly",)][0] == 150_500
    assert rows[("hourly",)][0] == 600_500
    assert 600_500 < rows[("nightly",)][1] <= 900_500
    assert 600_500 < rows[("hourly",)][1] <= 700_500
    rest = ask("task-duration", others_after=1)["Other"]
    assert value(rest, PANEL["task-duration"], 0) == 600_500  # hourly
    families = by_family(table(ask("families"), "families"))
    assert list(families) == [("nightly",), ("hourly",)]  # most tasks first
    tasks, mean, longest, peak, latest = families[("hourly",)]
    assert (tasks, longest, latest) == (3, 700_500, "stopped")
    assert mean == close((302_150 + 600_500 + 700_500) / 3)
    assert peak == close(100 * 256 / 1024)


def test_where_the_time_went(ask: Ask) -> None:
    """Means of `a` and `b`; only `a` knows what it waited for. No run of hourly has a breakdown."""
    by_family = table(ask("time-by-family"), "time-by-family")
    known_by_both = (close(40), close(10), close(2.5))
    assert by_family == {("nightly",): (*known_by_both, *map(close, (40, 5, 2, 1.5, 0.5)), close(23))}
    of_one = table(ask("run-time"), "run-time")
    assert of_one[("a", "batch")] == tuple(map(close, (30, 10, 5, 40, 5, 2, 1.5, 0.5, 6)))
    assert of_one[("b", "batch")] == (close(50), close(10), 0, None, None, None, None, None, close(40))
    assert of_one[("c", "batch")] == (None,) * 9


def test_peaks(ask: Ask) -> None:
    """In percent of the container's limit of 1024 MiB: `killed` 1000 MiB, `d` 64, `failed` 128, `stopped` 256."""
    found = table(ask("task-peak-memory"), "task-peak-memory")
    assert found[("nightly", TEN)] == (close(100_000 / 1024),)
    assert found[("hourly", TEN)] == (close(6.25),)
    assert found[("hourly", ELEVEN)] == (close(25),)


def test_failures_and_reasons(ask: Ask) -> None:
    """Those of which ECS told have its words; of the other only the monitor's exit code is known."""
    rows = table(ask("failures"), "failures")
    assert {path: (*values[:5], values[6]) for path, values in rows.items()} == {
        ("nightly", "failure"): (1, "oom", KILLED_REASON, 137, "killed", "2026-03-01T10:45:20.500Z"),
        ("hourly", "stopped"): (1, "user", BY_USER, 143, "stopped", "2026-03-01T11:45:02.150Z"),
        ("hourly", "failure"): (1, None, None, 3, "failed", "2026-03-01T11:31:40.500Z"),
    }
    assert all(f"task.id:%22{values[4]}%22" in values[5] for values in rows.values())


def usd(billed_seconds: float) -> float:
    """Of 2 vCPU and 4 GiB in us-west-2."""
    return (2 * 0.04048 + 4 * 0.004445) * billed_seconds / 3600


def test_cost_and_waste(ask: Ask) -> None:
    """Billed is from 20 s before the start, at least 60 s: `a` 171 s, `killed` 60 s; the side of `a` has no cost.

    Waste by hand. A run may take at most 1.25 times as long. `b` used 1 vCPU: with 1 vCPU and 2 GiB, half the price, it
    takes as long. Pull and start take as long with any size. The rest of `d` takes at most 1.101 times as long with
    1 vCPU: 682 instead of 621 s at half the price save 45.1 %. That of `failed` takes 1.2 times as long: 861 instead of
    721 s save 40.3 %. The others would take too long with 1 vCPU: `a` up to 1.321 times, `stopped` 1.3, `killed` 1.8,
    `c` 1.9.
    """
    cost = table(ask("cost-by-family"), "cost-by-family")
    assert cost[("nightly", TEN)] == (close(usd(171) + usd(621) + usd(60)),)
    assert cost[("hourly", ELEVEN)] == (close(usd(721) + usd(323)),)
    waste = table(ask("waste-by-family"), "waste-by-family")
    hourly = usd(621) * 0.451 + usd(721) * 0.403
    assert list(waste.items()) == [(("hourly",), (close(hourly),)), (("nightly",), (close(usd(621) / 2),))]
    by_cost = by_family(table(ask("cost-table"), "cost-table"))
    assert by_cost[("hourly",)] == (close(usd(621) + usd(721) + usd(323)), 3, "stopped")
    over_time = table(ask("waste-over-time"), "waste-over-time")
    assert over_time[("nightly", TEN)] == (close(usd(621) / 2),)


def test_the_recommended_sizes(ask: Ask) -> None:
    peaks = table(ask("memory-peak-against-size"), "memory-peak-against-size")
    assert peaks == {("hourly",): (256, 1024), ("nightly",): (1000, 1024)}
    rows = by_family(table(ask("right-size-table"), "right-size-table"))
    assert rows[("nightly",)] == (close(usd(621) / 2), "b", 2, 1, 1024, 2048, close(50), close(50))


@pytest.mark.usefixtures("too_small")
def test_families_that_are_too_small(ask: Ask) -> None:
    assert table(ask("sizing-too-small"), "sizing-too-small") == {(): (1,)}
    found = by_family(table(ask("too-small-table"), "too-small-table"))
    assert found == {("tight",): (1, "tight", 2, 2, 1024, 5120, close(75))}


def test_one_task(ask: Ask) -> None:
    summary = table(ask("run-summary"), "run-summary")
    done = (0, None, None, "2026-03-01T10:00:00.000Z")
    assert summary[("a", "batch")] == ("nightly", "success", 150_500, close(usd(171)), *done)
    assert summary[("a", "side")] == ("nightly", "success", 2000, None, *done)  # the task is paid once
    killed = (20_500, close(usd(60)), 137, "oom", KILLED_REASON, "2026-03-01T10:45:00.000Z")
    assert summary[("killed", "batch")] == ("nightly", "failure", *killed)
    stopped = (302_150, close(usd(323)), 143, "user", BY_USER, "2026-03-01T11:40:00.000Z")
    assert summary[("stopped", "batch")] == ("hourly", "stopped", *stopped)


def test_the_sizes_of_one_task(ask: Ask) -> None:
    """`c` used 1.8 of 2 vCPU and 768 of 1024 MiB throughout; with one vCPU it would have taken 1.8 times as long."""
    sizes = table(ask("run-size"), "run-size")
    cpu_size, cpu, saturated, size, peak, peak_percent, kills, vcpu, memory = sizes[("c", "batch")]
    assert (cpu_size, cpu, saturated) == (2, close(90), 0)
    assert (size, peak, peak_percent, kills) == (1024, 768, close(75), None)
    assert (vcpu, memory) == (2, 4096)
    quarter, half, one, two, four, eight = table(ask("run-what-if"), "run-what-if")[("c", "batch")]
    assert quarter > half > one >= 1.8
    assert (two, four, eight) == (1, 1, 1)


def test_the_checkpoints_of_one_task(ask: Ask) -> None:
    """By hand: 0.4 of 2 vCPU in the first minute of `a`, 0.8 in the second; after 120 s it had received 120 x 1000."""
    own = stream("batch", SCRIPT["a"])
    assert table(ask("run-cpu"), "run-cpu") == {(own, ONE): (close(20),), (own, TWO): (close(40),)}
    assert table(ask("run-memory"), "run-memory") == {
        (own, ONE): (256, 1024),
        (own, TWO): (512, 1024),
    }
    assert table(ask("run-containers"), "run-containers") == {
        ("a", "batch"): (close(30), 512, 0, 120_000, 1200, 120 * 4096, 120 * 512, "etl:7")
    }


def test_notices(ask: Ask) -> None:
    missed, late = (("Missed", TEN), (1,)), (("Late", TEN), (1,))
    assert table(ask("missed-runs"), "missed-runs") == dict([missed, late])
    assert table(ask("running-notices"), "running-notices") == {("Stuck", ELEVEN): (1,)}
    rows = table(ask("latest-notices"), "latest-notices")
    message = missed_notice().notice.message
    assert rows == {
        ("nightly-etl", "late"): (1, message, None, "2026-03-01T10:40:00.000Z"),
        ("nightly-etl", "missed"): (1, message, None, "2026-03-01T10:16:00.000Z"),
        ("nightly", "stuck"): (1, stuck_notice().notice.message, "c", "2026-03-01T11:00:01.000Z"),
    }
    assert next(iter(rows))[0] == "nightly-etl"  # the most notices


def test_devices(ask: Ask) -> None:
    """Two GPUs, of which the second is 20 points above the first, and a NeuronCore like the first."""
    assert table(ask("run-gpu"), "run-gpu") == {
        ("nightly", ONE_MINUTE): (close(20),),
        ("nightly", TWO_MINUTES): (close(40),),
    }
    assert table(ask("run-gpu-memory"), "run-gpu-memory") == {
        ("nightly", ONE_MINUTE): (6000,),
        ("nightly", TWO_MINUTES): (6000,),
    }
    assert table(ask("run-neuron"), "run-neuron") == {
        ("nightly", ONE_MINUTE): (close(10),),
        ("nightly", TWO_MINUTES): (close(30),),
    }
    assert table(ask("run-neuron-memory"), "run-neuron-memory") == {
        ("nightly", ONE_MINUTE): (1500,),
        ("nightly", TWO_MINUTES): (1500,),
    }
    assert table(ask("gpu-usage"), "gpu-usage") == {("nightly", TEN): (close(60),)}
    assert table(ask("neuron-usage"), "neuron-usage") == {("nightly", TEN): (close(50),)}
    assert table(ask("gpu-families"), "gpu-families") == {
        ("nightly",): (1, 2, close(60), 99, close(25), close(10), 6000, "a")
    }
    assert table(ask("gpu-idle"), "gpu-idle") == {("nightly",): (0.25,)}
    assert table(ask("gpu-sm-active"), "gpu-sm-active") == {("nightly",): (close(60), close(25))}
    assert table(ask("neuron-families"), "neuron-families") == {("nightly",): (1, 1, close(50), 51, 1500, "a")}


def test_the_examples_of_alerts_find_the_failed_runs(ask: Ask, search_server: SearchServer) -> None:
    """Two runs failed. A monitor puts the time of its search into the query."""
    ask("task-count")
    folder = ROOT / "examples" / "alerts"
    rule = json.loads((folder / "kibana_rule.json").read_text())["params"]
    found = search(search_server, rule["index"][0], **json.loads(rule["esQuery"]))
    assert {hit["_source"]["task"]["id"] for hit in found["hits"]["hits"]} == {"killed", "failed"}
    (given,) = json.loads((folder / "opensearch_monitor.json").read_text())["inputs"]
    end = round(datetime(2026, 3, 1, 11, 40, tzinfo=UTC).timestamp() * 1000)
    body = json.loads(json.dumps(given["search"]["query"]).replace("{{period_end}}", str(end)))
    found = search(search_server, given["search"]["indices"][0], **body)
    assert found["hits"]["total"]["value"] == 1  # only one of them in the last 15 minutes
