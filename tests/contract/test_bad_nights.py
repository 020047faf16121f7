"""From the notification of a bad night to its cause by the printed commands alone: each runs as it is
printed, and says the cause or names the command that does.
"""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from uuid import uuid4

import boto3
import msgspec
import pytest
from moto.moto_api import state_manager
from msgspec.structs import replace

from profiler.core.ecs_terms import BATCH_LOG_GROUP, LogTarget
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.forwarder.job_notice import JobNotice
from profiler.forwarder.notifications.event_details import bus_event
from profiler.forwarder.notifications.notification import Notification
from profiler.record import notice_model as notices
from profiler.record.batch_job_detail import parse_job
from profiler.record.record_model import encode
from tests.aws_proxy import AwsProxy
from tests.batch_jobs import REGION as BATCH_REGION
from tests.command_line import run_here
from tests.ended_runs import report_line, run_of
from tests.fake_batch import FakeBatch
from tests.gpu_runs import gpu_run
from tests.resize_account import ACCOUNT, BATCH, KILLED, OLD, Account, logs_to
from tests.run_sources import put_in_own_streams
from tests.runs import report
from tests.stopped_tasks import WITH_MONITOR, judged_task
from tests.task_events import task
from tests.values import present
from tools.moto_server import FakeAws, fake_aws

_ARN = f"arn:aws:ecs:us-east-1:{ACCOUNT}"
_LOG_LINE = "KeyError: 'customer_id'"
_FAMILY = "nightly-etl"
_GROUP = f"/ecs/{_FAMILY}"
_ANSWERS: dict[str, Any] = {
    "LookupEvents": {"Events": []},
    "DescribeAccountPolicies": {"accountPolicies": []},
}


class Night:
    """An account with one scheduled family, and a notification's commands in it."""

    def __init__(self, aws: FakeAws, proxy: AwsProxy, batch: FakeBatch, folder: Path) -> None:
        self.aws, self.batch = aws, batch
        self._account = Account(aws, folder)
        own = {"AWS_ENDPOINT_URL": proxy.url, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
        self._environment = aws.environment() | batch.environment() | own
        self._logs = aws.client("logs")
        aws.client("iam").create_role(RoleName="nightly", AssumeRolePolicyDocument="{}")
        role = f"arn:aws:iam::{ACCOUNT}:role/nightly"
        container = {**BATCH, **logs_to(_GROUP)}
        self._account.family(_FAMILY, containerDefinitions=[container], taskRoleArn=role)
        self._account.schedule(_FAMILY, _FAMILY)
        self._account.runs(_FAMILY, 5, cluster="jobs", log_group=_GROUP)
        self._account.put_reports(_GROUP)

    def run(self, command: str, *more: str) -> CompletedProcess[str]:
        program, *words = shlex.split(command)
        assert program == "task-profiler", command
        done = run_here(self._environment, *words, *more)
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 1), done.stderr
        return done

    def ended(self, exit_code: int | None, *, is_reported: bool = True, **given: Any) -> list[str]:
        """The commands of the notification of a run that ended so."""
        event, record = given.get("event", {}), given.get("record", {})
        task_id = uuid4().hex
        stream = LogTarget(group=_GROUP, stream=f"ecs/batch/{task_id}", region="us-east-1")
        stopped = task(
            taskArn=f"{_ARN}:task/jobs/{task_id}",
            clusterArn=f"{_ARN}:cluster/jobs",
            taskDefinitionArn=f"{_ARN}:task-definition/{_FAMILY}:1",
            containers=[{"name": "batch", "exitCode": exit_code}],
            **event,
        )
        stopped = replace(stopped, region="us-east-1", account_id=ACCOUNT)
        end, container = judged_task(stopped, WITH_MONITOR)
        line = None
        if is_reported:
            now_ns = time.time_ns()
            made = report(
                family=_FAMILY,
                task_id=task_id,
                account_id=ACCOUNT,
                cluster="jobs",
                size=OLD,
                log_group=_GROUP,
                log_stream=stream.stream,
                started_at=format_ms(now_ns - 600 * NS_PER_SECOND),
                finished_at=format_ms(now_ns - 10 * NS_PER_SECOND),
                **({"status": "failure", "exit_code": exit_code} | record),
            )
            made = replace(made, time=format_ms(now_ns - 9 * NS_PER_SECOND))
            put_in_own_streams(self._logs, _GROUP, encode(made).decode())
            self.aws.create_log_stream(_GROUP, present(stream.stream))
            event_ms = (now_ns - 30 * NS_PER_SECOND) // NS_PER_MS
            self._logs.put_log_events(
                logGroupName=_GROUP,
                logStreamName=stream.stream,
                logEvents=[{"timestamp": event_ms, "message": _LOG_LINE}],
            )
            line = report_line(made.record)
        place = stream if is_reported else None
        return commands_of(run_of(stopped, end, container, line, report_log=place, log=stream))


def commands_of(notification: Notification) -> list[str]:
    """As the mail and the card of Teams have them."""
    _, detail = bus_event(notification, kibana_url=None)
    steps = msgspec.json.decode(msgspec.json.encode(detail))["nextSteps"]
    return re.findall(r"To [^:]+: (.+?)(?= · |$)", steps)


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    with (
        fake_aws() as aws,
        AwsProxy(aws.url, answers=_ANSWERS) as proxy,
        FakeBatch() as batch,
    ):
        # A task runs on, however often it is described.
        state_manager.set_transition("ecs::task", {"progression": "manual", "times": 1_000_000})
        try:
            yield Night(aws, proxy, batch, tmp_path)
        finally:
            state_manager.unset_transition("ecs::task")


@pytest.mark.parametrize(
    ("exit_code", "record", "cause"),
    [
        (137, {"peak_mb": 2040, **KILLED}, "ran out of memory"),
        (1, {"metrics": {"duration_ms": 3000}}, "failed with exit code 1 after 3.0 s"),
        (1, {"gpus": gpu_run("illegal").record.gpus}, "reported Xid 31"),
        (143, {"exit_code": 143, "status": "stopped"}, "stopped"),
    ],
    ids=["killed", "exit code", "Xid", "stopped"],
)
def test_a_run_with_a_report_leads_to_its_page_and_its_log(
    night: Night, exit_code: int, record: dict[str, Any], cause: str
) -> None:
    (show,) = night.ended(exit_code, record=record)
    page = night.run(show).stdout
    assert cause in page
    assert (f"log      {_GROUP}: --logs shows the last lines" in page) == (exit_code != 143)
    assert _LOG_LINE in night.run(show, "--logs").stdout


_NO_CAPACITY = "Capacity is unavailable at this time. Please try again later"
_NO_SECRET = "ResourceInitializationError: unable to pull secrets or registry auth"


@pytest.mark.parametrize("reason", [_NO_CAPACITY, _NO_SECRET], ids=["capacity", "secret"])
def test_a_run_that_did_not_start_leads_to_its_definition_and_its_next_due_time(
    night: Night, reason: str
) -> None:
    event = {
        "stopCode": "TaskFailedToStart",
        "stoppedReason": reason,
        "startedAt": None,
        "startedBy": f"chronos-schedule/{_FAMILY}",
    }
    doctor, schedules = night.ended(None, is_reported=False, event=event)
    assert "There is no monitor, so the runs have no report." in night.run(doctor).stdout
    assert _FAMILY in night.run(schedules).stdout


def test_a_reclaimed_run_without_a_report_leads_to_why_it_has_none(night: Night) -> None:
    event = {"stopCode": "SpotInterruption", "stoppedReason": "Your Spot Task was interrupted."}
    (doctor,) = night.ended(143, is_reported=False, event=event)
    assert "There is no monitor, so the runs have no report." in night.run(doctor).stdout


def test_a_hung_run_leads_to_the_task_and_to_its_stop(night: Night) -> None:
    arn = f"{_ARN}:task/jobs/{night.aws.start_task(_FAMILY)}"
    record = report(
        family=_FAMILY,
        task_id=arn.rpartition("/")[2],
        task_arn=arn,
        cluster="jobs",
        status="running",
        exit_code=None,
    ).record
    notice = notices.Notice(kind="stuck", message="It waits.", since=record.started_at)
    line = notices.NoticeLine(time=present(record.started_at), notice=notice, record=record)
    watch, stop = commands_of(line)
    assert "jobs: 1 running" in night.run(watch).stdout
    words = shlex.split(stop)
    assert words[:3] == ["aws", "ecs", "stop-task"]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    stopped = night.aws.client("ecs").stop_task(cluster=given["--cluster"], task=given["--task"])
    assert stopped["task"]["taskArn"] == arn


def test_a_run_that_silently_never_started_leads_to_its_schedule(night: Night) -> None:
    due_at = "2026-11-20T03:00:00.000Z"
    line = notices.ScheduleNoticeLine(
        time="2026-11-20T03:15:00.000Z",
        notice=notices.ScheduleNotice(kind="missed", message="It was due.", due_at=due_at),
        schedule=notices.NoticedSchedule(
            kind="schedule", name=_FAMILY, expression="cron(0 3 * * ? *)", time_zone="UTC"
        ),
        cluster="jobs",
        family=_FAMILY,
        region="us-east-1",
        account_id=ACCOUNT,
    )
    schedules, doctor = commands_of(line)
    assert "cron(0 3 * * ? *) UTC" in night.run(schedules).stdout
    assert "There is no monitor, so the runs have no report." in night.run(doctor).stdout


@pytest.mark.parametrize("status_reason", ["Essential container in task exited", "timeout"])
def test_a_job_without_a_report_leads_to_the_log_of_its_last_attempt(
    night: Night, status_reason: str
) -> None:
    batch = night.batch
    batch.now_ms = time.time_ns() // NS_PER_MS - 3_600_000
    batch.add_queue("nightly", "spot")
    batch.define("etl")
    job = batch.submit("orders", "nightly", "etl", retryStrategy={"attempts": 3})
    for _ in range(3):
        batch.begin(job)
        batch.end(job, 1, status_reason=status_reason)
    logs = boto3.client(
        "logs",
        region_name=BATCH_REGION,
        endpoint_url=night.aws.url,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    logs.create_log_group(logGroupName=BATCH_LOG_GROUP)
    (show,) = commands_of(JobNotice(job=present(parse_job(job))))
    (doctor,) = re.findall(r"task-profiler doctor .+(?= says how the job)", night.run(show).stderr)
    found = " ".join(night.run(doctor).stdout.split())
    assert f"--log-stream-names {job['container']['logStreamName']} --since 7d" in found
