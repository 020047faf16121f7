"""Lines of tasks that run now, and runs that every source of past runs is tested with, by the
filters they pass.
"""

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms, parse_ns
from profiler.record.batch_job import BatchJob
from profiler.record.notice_model import Notice, NoticeLine, encode_notice_line
from profiler.record.record_model import NO_INTERVAL, Distribution, Interval, Report, encode
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import RunFilter, RunSource, newest_first
from tests.batch_jobs import job_id
from tests.runs import report

MINUTE_NS = 60 * NS_PER_SECOND
MESSAGE = "The run used less than 0.01 vCPU and 1 KB/s of network and disk for 30 minutes."


def checkpoint_at(
    now_ns: int,
    minutes: float = 10,
    *,
    age_seconds: float = 20,
    period_minutes: float = 1,
    **record: Any,
) -> Report:
    """The newest checkpoint of a run that started so many minutes ago."""
    time_ns = now_ns - round(age_seconds * NS_PER_SECOND)
    started_ns = now_ns - round(minutes * MINUTE_NS)
    interval = Interval(
        started_at=format_ms(time_ns - round(period_minutes * MINUTE_NS)),
        finished_at=format_ms(time_ns),
        vcpu_used=Distribution(avg=0.4, max=0.9),
        memory_used_mb=Distribution(avg=900, max=1024),
    )
    measured = {"duration_ms": (time_ns - started_ns) / 1e6, "billed_duration_ms": None}
    known: dict[str, Any] = {
        "status": "running",
        "exit_code": None,
        "started_at": format_ms(started_ns),
        "finished_at": None,
        "interval": interval,
    }
    return replace(
        report(metrics=measured, **{**known, **record}),
        time=format_ms(time_ns),
        type="task.checkpoint",
    )


def ended(running: Report, status: str = "success", exit_code: int = 0) -> Report:
    """The report of the same run, a second after the checkpoint."""
    record = replace(running.record, status=status, exit_code=exit_code, interval=NO_INTERVAL)
    return replace(running, type="task.report", record=record)


def text(made: Report) -> str:
    return encode(made).decode()


LAMBDA_STREAM = "2026/11/20/[$LATEST]7b3f0c2d9e1a4855b6d0aa41c7f2e893"


def log_event(message: str, prefix: str = "ecs") -> dict[str, Any]:
    """An event of FilterLogEvents: a line of a task is in its monitor's stream, and another one in
    that of a Lambda function. It has the time of the line.
    """
    try:
        line = json.loads(message)
        record = line.get("record", line)
        stream, moment = f"{prefix}/task-monitor/{record['taskId']}", line.get("time")
    except (ValueError, KeyError, AttributeError):
        stream, moment = LAMBDA_STREAM, None
    timestamp_ms = (parse_ns(moment) or 0) // NS_PER_MS
    return {"logStreamName": stream, "timestamp": timestamp_ms, "message": message}


def put_in_own_streams(logs: Any, group: str, *messages: str, prefix: str = "ecs") -> None:
    """Put each line into the stream of its task's monitor: see :func:`log_event`.

    Into moto's own state: two requests a line would take most of the time of a test.
    """
    from moto.core.models import DEFAULT_ACCOUNT_ID  # noqa: PLC0415  slow to import
    from moto.logs.models import logs_backends  # noqa: PLC0415  as above

    played = logs_backends[DEFAULT_ACCOUNT_ID][logs.meta.region_name]
    for message in messages:
        event = log_event(message, prefix)
        stream = event.pop("logStreamName")
        if stream not in played.groups[group].streams:
            played.create_log_stream(group, stream)
        played.put_log_events(group, stream, [event])


def notice_text(running: Report, kind: str = "stuck") -> str:
    """The line of a notice about a run, from the time of its checkpoint."""
    record = replace(running.record, interval=NO_INTERVAL)
    return encode_notice_line(
        NoticeLine(time=running.time, notice=Notice(kind=kind, message=MESSAGE), record=record)
    ).decode()


HOUR_NS = 3600 * NS_PER_SECOND
# A whole millisecond, as the record has it.
NOW_NS = time.time_ns() // 1_000_000 * 1_000_000


def run(task_id: str, hours_ago: float, **record: Any) -> Report:
    """A run of ten minutes that started so many hours ago."""
    started_ns = NOW_NS - round(hours_ago * HOUR_NS)
    made = report(task_id=task_id, started_at=format_ms(started_ns), finished_at=None, **record)
    return replace(made, time=format_ms(started_ns + 600 * NS_PER_SECOND))


EU: dict[str, Any] = {"family": "nightly-etl", "region": "eu-west-1", "cluster": "jobs"}
RUNS = (
    run("abc1", 1, account_id="1", tags={"team": "data", "cost centre": "7"}, **EU),
    run("abc2", 2, account_id="2", status="failure", exit_code=3, **EU),
    run(
        "bcd1",
        30,
        family="nightly-load",
        account_id="2",
        cluster="other",
        tags={"team": "web"},
        labels={"gitCommit": "0a1b", "airflow.dag": "etl"},
        batch=BatchJob(job_id=f"{job_id(1)}:7", queue="low", attempt=2, array_index=7),
    ),
    run(
        "bcd2",
        100,
        family="hourly",
        cluster="jobs",
        status="stopped",
        exit_code=None,
        tags={"team": "data"},
    ),
    run("cde1", 200, family="hourly", cluster="jobs", status="unknown", exit_code=None),
    run(
        "cde2",
        300,
        family="nightly-etl",
        cluster="other",
        status="failure",
        exit_code=137,
        likely_out_of_memory=True,
    ),
)
IDS = [one.record.task_id for one in RUNS]
CASES: tuple[tuple[dict[str, Any], list[str]], ...] = (
    ({}, IDS),
    ({"families": ("nightly-etl",)}, ["abc1", "abc2", "cde2"]),
    ({"families": ("nightly-*", "hourly")}, IDS),
    ({"families": ("nightly-[el]*",)}, ["abc1", "abc2", "bcd1", "cde2"]),
    ({"families": ("nightly-?tl",)}, ["abc1", "abc2", "cde2"]),
    ({"families": ("nightly-[!e]*", "%", "'; DROP TABLE run; --")}, ["bcd1"]),
    ({"families": ("NIGHTLY-*",)}, []),
    ({"clusters": ("other",)}, ["bcd1", "cde2"]),
    ({"clusters": ("other", "jobs")}, IDS),
    ({"accounts": ("2",)}, ["abc2", "bcd1"]),
    ({"accounts": ("1", "2"), "regions": ("eu-west-1",)}, ["abc1", "abc2"]),
    ({"regions": ("eu-west-1", "mars-1")}, ["abc1", "abc2"]),
    ({"families": ("nightly-etl",), "accounts": ("1",), "regions": ("eu-west-1",)}, ["abc1"]),
    ({"families": ("nightly-etl",), "accounts": (None,), "regions": ("us-east-1",)}, ["cde2"]),
    ({"tags": (("team", "data"),)}, ["abc1", "bcd2"]),
    ({"tags": (("team", "data"), ("cost centre", "7"))}, ["abc1"]),
    ({"labels": (("gitCommit", "0a1b"),)}, ["bcd1"]),
    ({"labels": (("airflow.dag", "etl"), ("batch.queue", "low"))}, ["bcd1"]),
    ({"labels": (("batch.attempt", "2"), ("batch.array_index", "7"))}, ["bcd1"]),
    ({"labels": (("batch.attempt", "1"),)}, []),
    ({"labels": (("batch.attempt", "two"),)}, []),
    ({"labels": (("batch.job_id", f"{job_id(1)}:7"),)}, ["bcd1"]),
    ({"labels": (("batch.job_name", "*"),)}, []),
    ({"labels": (("team", "web"),)}, []),
    ({"run": job_id(1)}, ["bcd1"]),
    ({"run": f"{job_id(1)}:7"}, ["bcd1"]),
    ({"run": job_id(2)}, []),
    ({"statuses": ("failure",)}, ["abc2", "cde2"]),
    ({"statuses": ("stopped", "unknown")}, ["bcd2", "cde1"]),
    ({"statuses": ("failure", "stopped")}, ["abc2", "bcd2", "cde2"]),
    ({"since_ns": NOW_NS - 100 * HOUR_NS}, ["abc1", "abc2", "bcd1", "bcd2"]),
    ({"since_ns": NOW_NS - 100 * HOUR_NS + 1_000_000}, ["abc1", "abc2", "bcd1"]),
    ({"until_ns": NOW_NS - 100 * HOUR_NS}, ["cde1", "cde2"]),
    ({"until_ns": NOW_NS - 100 * HOUR_NS + 1}, ["bcd2", "cde1", "cde2"]),
    (
        {"since_ns": NOW_NS - 250 * HOUR_NS, "until_ns": NOW_NS - 2 * HOUR_NS},
        ["bcd1", "bcd2", "cde1"],
    ),
    ({"run": "abc"}, ["abc1", "abc2"]),
    ({"run": "abc1/batch"}, ["abc1"]),
    ({"run": "abc1/other"}, []),
    ({"run": "hourly"}, ["bcd2", "cde1"]),
    ({"run": "nightly-l*"}, ["bcd1"]),
    ({"run": "zzz"}, []),
    ({"families": ("nightly-*",), "statuses": ("failure",), "clusters": ("jobs",)}, ["abc2"]),
)


class ListedRuns(RunSource):
    """A source with these runs, which counts how many of them were read."""

    place, remedy = "the list", "add one"

    def __init__(self, runs: Iterable[PastRun]) -> None:
        self._runs = newest_first(runs)
        self.read = 0

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        for run in self._runs:
            if selection.matches(run.report):
                self.read += 1
                yield run


def check_source(source: RunSource) -> None:
    """Check that a source with the runs finds those of each filter, newest first, with their
    records.
    """
    for conditions, expected in CASES:
        assert [
            one.report.record.task_id for one in source.runs(RunFilter(**conditions))
        ] == expected, conditions
    by_id = {one.record.task_id: one for one in RUNS}
    for found_run in source.runs(RunFilter()):
        assert found_run.report.record == by_id[found_run.report.record.task_id].record
        assert found_run.line is not None
