"""The threat model of docs/security.md, "Untrusted input": each sentence, and the attack on it.

Each test is named for its sentence. The attacks go through the forwarder (``forward``), through a
reader of log groups (``listed``) and, for running tasks, through ``watch``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.aws_account.running_tasks.running_runs import RunningRuns
from profiler.cli.show_command import log_lines
from profiler.core.ecs_terms import LogTarget
from profiler.core.errors import TaskProfilerError
from profiler.core.index_names import IndexNames
from profiler.core.timestamps import MS_PER_DAY, NS_PER_MS, format_datetime
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings, NoticeSettings
from profiler.forwarder.notifications.running_task_notices import RunningTaskNotices
from profiler.forwarder.report_finder import ReportFinder, TaskContainers, identify_containers
from profiler.forwarder.search_cluster.document_delivery import DeliveryResult, FailedItem
from profiler.forwarder.stopped_task_reads import StreamLine
from profiler.forwarder.subscription import LineCounts, LineForwarder, decode_subscription_event
from profiler.record.line_trust import AccountTrust, InstanceMonitorGroup, TrustedGroups
from profiler.record.record_model import Report
from profiler.record.stopped_task import EventContainer, StoppedTask
from profiler.runs.past_runs.family_evidence import (
    earlier_successes,
    last_success,
    read_families,
)
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from profiler.runs.past_runs.log_places import DefinedLogPlaces, LogOptions
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_lookup import find_runs
from profiler.runs.past_runs.run_source import RunFilter
from profiler.runs.past_runs.search_documents import run_of_document
from profiler.runs.past_runs.verdict_sentence import verdict_of
from tests.cases import each_case
from tests.fakes import FakeInvocationTime
from tests.log_subscriptions import event, packed_data, record
from tests.notices import FakeChannel, fake_channel
from tests.shown_runs import waiting_stacks

ACCOUNT, OTHER_ACCOUNT = "111122223333", "444455556666"
GROUP = "/ecs/jobs"
TASK, OTHER_TASK = "158d1c8083dd49d6b527399fd6414f5c", "4dd5853f44b341ee8281f38229bee377"
OLD_TASK = "158d1c80-83dd-49d6-b527-399fd6414f5c"
CONTAINER_ID, OTHER_CONTAINER_ID = "a1" * 32, "b2" * 32
STREAM = f"ecs/batch/{TASK}"
MONITOR_STREAM = f"ecs/task-monitor/{TASK}"
LAMBDA_STREAM = f"2026/03/01/[$LATEST]{TASK}"
NOW = datetime(2026, 3, 1, 10, 0, 3, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)
INSTANCE_GROUP = "/ecs/task-profiler-instance-monitor"
MONITOR_TASK, UNKNOWN_TASK = "ab" * 16, "cd" * 16
INSTANCE_STREAM = f"instance/task-monitor/{MONITOR_TASK}"


class PlayedEcs:
    """What ECS says of the cluster ``gpu``: its instance monitor, and whether ``TASK`` is on
    EC2.
    """

    streams: Mapping[str, bool] = {
        INSTANCE_STREAM: True,
        CONTAINER_ID: True,
        f"instance/task-monitor/{OTHER_TASK}": False,
    }

    def __init__(self, *on_ec2: str) -> None:
        self._on_ec2 = on_ec2

    def has_stream(self, monitor: InstanceMonitorGroup, log_stream: str) -> bool | None:
        assert monitor.cluster == "gpu"
        return self.streams.get(log_stream)

    def is_on_ec2(self, monitor: InstanceMonitorGroup, task_id: str) -> bool:
        assert monitor.cluster == "gpu"
        return task_id in self._on_ec2


BATCH = ("batch", "task-monitor")
INSTANCE_MONITOR = InstanceMonitorGroup(
    account_id=ACCOUNT, log_group=INSTANCE_GROUP, cluster="gpu", family="instance-monitor"
)
GROUPS = TrustedGroups(
    instance_monitors=(INSTANCE_MONITOR,),
    globs=("/builds/*",),
    tasks=PlayedEcs(TASK, OTHER_TASK),
)

INDEXED, SKIPPED = LineCounts(indexed=1), LineCounts(skipped=1)
UNTRUSTED, FAILED = LineCounts(untrusted=1), LineCounts(failed=1)


def line(kind: str = "task.report", at: datetime = NOW, **changes: Any) -> str:
    """A line of the batch of ``TASK``, with other fields of the record."""
    known = {"taskId": TASK, "family": "payroll", "container": {"name": "batch"}}
    times = {"startedAt": format_datetime(at - timedelta(minutes=10))}
    if kind == "task.report":
        times["finishedAt"] = format_datetime(at)
    whole = {"status": "success", **known, **times, **changes}
    kept = {name: value for name, value in whole.items() if value is not None}
    document: dict[str, Any] = {"time": format_datetime(at), "type": kind, "record": kept}
    if kind == "task.notice":
        document["notice"] = {"kind": "stuck", "message": "It is stuck."}
    return json.dumps(document)


class TrustingForwarder:
    """The forwarder with a cluster, a failure queue and a channel that keep what they get."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.failures: list[FailedItem] = []
        self.warnings: list[str] = []
        self.channel: FakeChannel = fake_channel("slack", "failure")

    def deliver(self, documents: Sequence[Document]) -> DeliveryResult:
        self.documents += documents
        return DeliveryResult(indexed=len(documents))

    def forwarder(self, *, forward_log_lines: bool = False) -> LineForwarder:
        notices = RunningTaskNotices(
            NoticeSettings, channels=lambda _settings: [self.channel], now=lambda: NOW
        )
        settings = ForwarderSettings(forward_log_lines=forward_log_lines, trusted_groups=GROUPS)
        return LineForwarder(
            settings, self.deliver, self.failures.extend, notices, self.warnings.append
        )

    def forward(
        self,
        *lines: str,
        stream: str = STREAM,
        group: str = GROUP,
        owner: str = ACCOUNT,
        at_ms: int = NOW_MS,
        **settings: bool,
    ) -> LineCounts:
        payload = payload_of(*lines, stream=stream, group=group, owner=owner, at_ms=at_ms)
        return self.forwarder(**settings).forward_payload(decode_subscription_event(event(payload)))


def payload_of(
    *lines: str,
    stream: str = STREAM,
    group: str = GROUP,
    owner: str = ACCOUNT,
    at_ms: int = NOW_MS,
) -> dict[str, Any]:
    events = [
        {"id": str(number), "timestamp": at_ms, "message": text}
        for number, text in enumerate(lines)
    ]
    return {"owner": owner, "logGroup": group, "logStream": stream, "logEvents": events}


# A line of a log group: its log stream, the seconds after NOW, and the text.
Stored = tuple[str, float, str]


def source_of(
    *stored: Stored, group: str = GROUP, account_id: str | None = ACCOUNT
) -> LogGroupRuns:
    """A reader of a log group with these lines."""

    def read_pages(**parameters: Any) -> Iterator[Mapping[str, Any]]:
        streams = parameters.get("logStreamNames")
        first_ms, last_ms = parameters["startTime"], parameters.get("endTime", 2**62)
        events = []
        for stream, seconds, text in stored:
            at_ms = NOW_MS + round(1000 * seconds)
            if first_ms <= at_ms <= last_ms and (streams is None or stream in streams):
                events.append({"logStreamName": stream, "timestamp": at_ms, "message": text})
        yield {"events": events}

    trust = AccountTrust(account_id=account_id, groups=GROUPS)
    return LogGroupRuns(read_pages, (group,), (NOW_MS + 3_600_000) * NS_PER_MS, trust=trust)


def listed(*stored: Stored, group: str = GROUP) -> list[PastRun]:
    return list(source_of(*stored, group=group).runs(RunFilter(reads_checkpoints=True)))


HONEST: Stored = (STREAM, 0, line())
NOT_OF_THE_TASK = "/ecs/jobs: skipped 1 report not of their log stream's task."

# Log streams that are not PREFIX/CONTAINER/TASK-ID of this task and container.
FOREIGN_STREAMS = {
    "a web function": LAMBDA_STREAM,
    "a web function that ends in a task id": f"2026/03/01/{TASK}",
    "a stream of its own": "a stream of its own",
    "another task": f"ecs/batch/{OTHER_TASK}",
    "another container": f"ecs/proxy/{TASK}",
    "no prefix": f"batch/{TASK}",
    "an empty prefix": f"/batch/{TASK}",
    "an empty container": f"ecs//{TASK}",
    "a slash at the end": f"{STREAM}/",
    "a newline at the end": f"{STREAM}\n",
    "a newline in the container": f"ecs/ba\ntch/{TASK}",
    "upper case": STREAM.upper(),
    "an upper-case task id": f"ecs/batch/{TASK.upper()}",
    "dots": f"ecs/batch/../task-monitor/{TASK}/.",
    "digits of another script": f"ecs/batch/{TASK[:-1]}\u0661",
    "a letter of another script": f"ecs/b\u0430tch/{TASK}",
    "a full-width slash": f"ecs/batch\uff0f{TASK}",
    "a container that looks like the monitor": f"ecs/task-monitor-2/{TASK}",
    "the monitor in upper case": f"ecs/Task-Monitor/{TASK}",
    "the monitor of another task": f"ecs/task-monitor/{OTHER_TASK}",
    "FireLens": f"batch-firelens-{TASK}",
    "API Gateway": TASK,
    "63 digits": CONTAINER_ID[:-1],
    "an upper-case container id": CONTAINER_ID.upper(),
    "nothing": "",
}
KINDS = ("task.report", "task.checkpoint", "task.notice")


@each_case("kind", KINDS)
@each_case("stream", FOREIGN_STREAMS.values(), ids=FOREIGN_STREAMS)
def test_a_line_counts_only_in_its_tasks_stream(stream: str, kind: str) -> None:
    fakes = TrustingForwarder()
    assert fakes.forward(line(kind), stream=stream) == UNTRUSTED
    assert fakes.documents == []
    assert fakes.failures == []
    assert fakes.channel.posted == []


def test_a_container_speaks_for_itself_alone() -> None:
    fakes = TrustingForwarder()
    assert fakes.forward(line(), stream=f"2026/03/01/{TASK}") == UNTRUSTED
    assert fakes.forward(line(container={"name": "proxy"})) == UNTRUSTED
    assert fakes.forward(line(container={"name": "task-monitor"})) == UNTRUSTED
    assert fakes.forward(line(container={"name": "Batch"})) == UNTRUSTED


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_speaks_for_itself_and_its_monitor_for_its_containers(kind: str) -> None:
    for stream in (STREAM, MONITOR_STREAM, f"a/long/prefix/batch/{TASK}"):
        assert TrustingForwarder().forward(line(kind), stream=stream) == INDEXED
    old = line(kind, taskId=OLD_TASK)
    assert TrustingForwarder().forward(old, stream=f"ecs/batch/{OLD_TASK}") == INDEXED


def test_a_batch_called_task_monitor_speaks_for_its_own_task_alone() -> None:
    of_other_task = line(taskId=OTHER_TASK)
    assert TrustingForwarder().forward(of_other_task, stream=MONITOR_STREAM) == UNTRUSTED


def test_an_old_task_id_is_not_the_new_one_without_dashes() -> None:
    assert TrustingForwarder().forward(line(), stream=f"ecs/batch/{OLD_TASK}") == UNTRUSTED


@pytest.mark.parametrize("kind", KINDS)
def test_an_account_speaks_for_its_own_tasks_alone(kind: str) -> None:
    fakes = TrustingForwarder()
    assert fakes.forward(line(kind, accountId=OTHER_ACCOUNT)) == UNTRUSTED
    assert fakes.forward(line(kind, accountId=ACCOUNT), owner=OTHER_ACCOUNT) == UNTRUSTED
    assert fakes.forward(line(kind, accountId=ACCOUNT), owner="") == UNTRUSTED
    assert fakes.forward(line(kind, accountId=ACCOUNT)) == INDEXED


def test_a_line_without_an_account_is_of_the_log_groups_account() -> None:
    fakes = TrustingForwarder()
    assert fakes.forward(line(accountId=None), owner=OTHER_ACCOUNT) == INDEXED
    assert fakes.documents[0].fields["cloud"]["account"]["id"] == OTHER_ACCOUNT


ARNS = {
    "another task": f"arn:aws:ecs:us-east-1:{ACCOUNT}:task/jobs/{OTHER_TASK}",
    "another account": f"arn:aws:ecs:us-east-1:{OTHER_ACCOUNT}:task/jobs/{TASK}",
    "another cluster": f"arn:aws:ecs:us-east-1:{ACCOUNT}:task/other/{TASK}",
    "another service": f"arn:aws:batch:us-east-1:{ACCOUNT}:task/jobs/{TASK}",
    "another resource": f"arn:aws:ecs:us-east-1:{ACCOUNT}:service/jobs/{TASK}",
    "no ARN": "x",
    "an empty one": "",
}


@each_case("kind", KINDS)
@each_case("arn", ARNS.values(), ids=ARNS)
def test_an_arn_agrees_with_task_account_and_cluster(arn: str, kind: str) -> None:
    assert TrustingForwarder().forward(line(kind, taskArn=arn, cluster="jobs")) == UNTRUSTED


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov", "aws-iso"])
def test_every_partition_and_the_old_form_of_arns_are_accepted(partition: str) -> None:
    place = f"arn:{partition}:ecs:us-east-1:{ACCOUNT}"
    cluster = f"{place}:cluster/jobs"
    for arn in (f"{place}:task/jobs/{TASK}", f"{place}:task/{TASK}"):
        assert TrustingForwarder().forward(line(taskArn=arn, cluster=cluster)) == INDEXED


# Instance monitors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [INSTANCE_STREAM, CONTAINER_ID])
def test_an_instance_monitor_speaks_for_the_tasks_of_its_cluster(stream: str, kind: str) -> None:
    fakes = TrustingForwarder()
    place: dict[str, Any] = {"group": INSTANCE_GROUP, "stream": stream}
    assert fakes.forward(line(kind, cluster="gpu"), **place) == INDEXED
    task = fakes.documents[0].fields["task"]
    assert (task["confirmed"], task["voucher"]) == (False, "instance-monitor")
    assert len(fakes.channel.posted) == (kind == "task.notice")
    assert fakes.forward(line(kind, cluster="jobs"), **place) == UNTRUSTED
    assert fakes.forward(line(kind), **place) == UNTRUSTED
    forged = f"arn:aws:ecs:us-east-1:{ACCOUNT}:task/jobs/{TASK}"
    assert fakes.forward(line(kind, cluster="gpu", taskArn=forged), **place) == UNTRUSTED


@each_case("kind", KINDS)
@each_case(
    "stream",
    [
        f"ecs/batch/{OTHER_TASK}",
        f"instance/task-monitor/{OTHER_TASK}",
        f"instance/monitor/{MONITOR_TASK}",
        LAMBDA_STREAM,
        "a stream of its own",
    ],
)
def test_a_task_whose_definition_names_the_instance_monitors_group_speaks_for_itself_alone(
    stream: str, kind: str
) -> None:
    """Every task definition can name every group, and the monitor's prefix and container."""
    fakes = TrustingForwarder()
    place: dict[str, Any] = {"group": INSTANCE_GROUP, "stream": stream}
    assert fakes.forward(line(kind, cluster="gpu"), **place) == UNTRUSTED
    assert fakes.channel.posted == []
    own: dict[str, Any] = {"group": INSTANCE_GROUP, "stream": STREAM}
    assert fakes.forward(line(kind, cluster="gpu"), **own) == INDEXED
    assert "voucher" not in fakes.documents[0].fields["task"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_monitor_that_ecs_does_not_know_any_more_is_unconfirmed_and_sends_no_notice(
    kind: str,
) -> None:
    """A replay is later than the hour in which ECS knows an ended task."""
    fakes = TrustingForwarder()
    stream = f"instance/task-monitor/{UNKNOWN_TASK}"
    assert fakes.forward(line(kind, cluster="gpu"), group=INSTANCE_GROUP, stream=stream) == INDEXED
    assert fakes.documents[0].fields["task"]["voucher"] == "unproven-monitor"
    assert fakes.channel.posted == []


@pytest.mark.parametrize("stream", [INSTANCE_STREAM, CONTAINER_ID])
def test_a_notice_of_an_instance_monitor_is_no_news_beside_its_report(stream: str) -> None:
    """Such as after a redrive of both."""
    fakes = TrustingForwarder()
    place: dict[str, Any] = {"group": INSTANCE_GROUP, "stream": stream}
    both = line("task.notice", cluster="gpu"), line("task.report", cluster="gpu")
    assert fakes.forward(*both, **place) == LineCounts(indexed=2)
    assert fakes.channel.posted == []


def test_an_instance_monitor_sends_notices_of_tasks_on_ec2_alone() -> None:
    fakes = TrustingForwarder()
    made_up = line("task.notice", cluster="gpu", taskId=UNKNOWN_TASK)
    assert fakes.forward(made_up, group=INSTANCE_GROUP, stream=INSTANCE_STREAM) == INDEXED
    assert fakes.channel.posted == []


def test_an_instance_monitors_group_of_another_account_is_a_group_like_others() -> None:
    place: dict[str, Any] = {"group": INSTANCE_GROUP, "stream": "ecs/x", "owner": OTHER_ACCOUNT}
    assert TrustingForwarder().forward(line(cluster="gpu"), **place) == UNTRUSTED


def test_notices_of_an_instance_monitor_are_limited_by_task() -> None:
    fakes = TrustingForwarder()
    kinds = [f"kind{number}" for number in range(12)]
    lines = []
    for task_id in (TASK, OTHER_TASK):
        for kind in kinds:
            text = json.loads(line("task.notice", taskId=task_id, cluster="gpu"))
            lines.append(json.dumps({**text, "notice": {"kind": kind, "message": "m"}}))
    fakes.forward(*lines, group=INSTANCE_GROUP, stream=CONTAINER_ID)
    posted = [notice.record.task_id for notice in fakes.channel.posted]
    assert posted.count(TASK) == 8
    assert posted.count(OTHER_TASK) == 8


# Streams named by Docker's container id, and trusted groups


@pytest.mark.parametrize(
    "place",
    [{"stream": CONTAINER_ID}, {"group": "/builds/linux", "stream": "agent-7"}],
    ids=["container id", "trusted group"],
)
def test_what_no_stream_vouches_for_is_unconfirmed_and_sends_no_notice(
    place: dict[str, Any],
) -> None:
    fakes = TrustingForwarder()
    for kind in KINDS:
        assert fakes.forward(line(kind), **place) == INDEXED
    for document in fakes.documents:
        assert document.fields["task"]["confirmed"] is False
    for document in fakes.documents[:2]:
        assert document.fields["task"]["voucher_stream"] == place["stream"]
    assert fakes.channel.posted == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_unproven_line_with_a_long_name_is_a_failure(kind: str) -> None:
    """Its id would be longer than an engine takes: a bulk request with it fails as a whole."""
    fakes = TrustingForwarder()
    for length in range(430, 512):
        text = line(kind, container={"name": "b" * length}, accountId=ACCOUNT)
        fakes.forward(text, group="/builds/linux", stream="x" * 512)
    assert all(len(document.id.encode()) <= 512 for document in fakes.documents)
    assert len(fakes.documents) + len(fakes.failures) == 82
    assert fakes.failures


def test_a_trusted_group_speaks_for_no_other_account_and_no_other_tasks_stream() -> None:
    fakes, group = TrustingForwarder(), "/builds/linux"
    assert fakes.forward(line(accountId=OTHER_ACCOUNT), group=group, stream="x") == UNTRUSTED
    other = f"ecs/batch/{OTHER_TASK}"
    assert fakes.forward(line(), group=group, stream=other) == UNTRUSTED
    assert fakes.forward(line(), group="/BUILDS/linux", stream="x") == UNTRUSTED


def finder(
    task: StoppedTask, lines: Mapping[str, str], at_ms: int = NOW_MS, monitor: str | None = None
) -> ReportFinder:
    def newest(place: LogTarget) -> Iterator[Sequence[StreamLine]]:
        yield [StreamLine(lines[place.stream], at_ms)] if place.stream in lines else []

    containers = TaskContainers(batch="batch", monitor=monitor)
    return ReportFinder(newest, FakeInvocationTime(60), task, containers)


STOPPED = StoppedTask(
    arn=f"arn:aws:ecs:us-east-1:{ACCOUNT}:task/jobs/{TASK}",
    account_id=ACCOUNT,
    containers=(
        EventContainer(name="batch", runtime_id=CONTAINER_ID),
        EventContainer(name="proxy", runtime_id=OTHER_CONTAINER_ID),
    ),
)


def test_the_tasks_event_vouches_for_the_stream_of_its_container_id() -> None:
    group = {"logDriver": "awslogs", "options": {"awslogs-group": GROUP}}
    definition = {
        "containerDefinitions": [
            {"name": "batch", "image": "x", "logConfiguration": group},
            {"name": "proxy", "image": "x", "essential": False, "logConfiguration": group},
        ]
    }
    batch_log = identify_containers(definition, STOPPED).batch_log
    assert batch_log == LogTarget(group=GROUP, stream=CONTAINER_ID)
    found = finder(STOPPED, {CONTAINER_ID: line()}).find([batch_log], 0)
    assert found is not None
    assert found.is_final
    unknown = replace(batch_log, stream="c3" * 32)
    assert finder(STOPPED, {unknown.stream: line()}).find([unknown], 0) is None
    other_task = finder(STOPPED, {CONTAINER_ID: line(taskId=OTHER_TASK)})
    assert other_task.find([batch_log], 0) is None


@each_case(
    ("stream", "text", "is_found"),
    [
        (STREAM, line(), True),
        (MONITOR_STREAM, line(), True),
        (f"ecs/watcher/{TASK}", line(), True),
        (STREAM, line(container={"name": "proxy"}), False),
        (STREAM, line(accountId=OTHER_ACCOUNT), False),
        ("shared", line(), False),
        (STREAM, line(at=NOW + timedelta(days=2)), False),
        (STREAM, line(startedAt="2019-01-01T00:00:00Z"), False),
    ],
)
def test_task_stopped_takes_numbers_from_the_streams_of_the_tasks_definition_alone(
    stream: str, text: str, *, is_found: bool
) -> None:
    """The definition may call the monitor otherwise: here ``watcher``."""
    monitor = "watcher" if "/watcher/" in stream else None
    reports = finder(STOPPED, {stream: text}, monitor=monitor)
    found = reports.find([LogTarget(group=GROUP, stream=stream)], 0)
    assert (found is not None) is is_found


# What is counted, and where it is not kept


def test_an_outsider_fills_neither_the_cluster_nor_the_failure_queue() -> None:
    """Also not with damaged reports, and not if every line is indexed."""
    fakes = TrustingForwarder()
    lines = [line(), '{"type": "task.report", "record": 5}', '{"type": "task.notice"', "hello"]
    counts = fakes.forward(*lines, stream=LAMBDA_STREAM)
    assert counts == LineCounts(untrusted=3, skipped=1)
    counts = fakes.forward(*lines, stream=LAMBDA_STREAM, forward_log_lines=True)
    assert counts == LineCounts(untrusted=3, indexed=1)
    assert [document.fields["message"] for document in fakes.documents] == ["hello"]
    assert fakes.failures == []


def test_untrusted_lines_are_logged_once_with_group_and_stream() -> None:
    fakes = TrustingForwarder()
    fakes.forward(*[line()] * 50, stream=LAMBDA_STREAM, group="/aws/lambda/web")
    (sentence,) = fakes.warnings
    assert "50 in 1 log streams" in sentence
    assert f"/aws/lambda/web, {LAMBDA_STREAM}: " in sentence
    fakes.forward(line())
    assert len(fakes.warnings) == 1


def test_a_data_stream_obeys_the_same_rule() -> None:
    fakes = TrustingForwarder()
    payloads = [
        payload_of(line()),
        payload_of(line(), stream=LAMBDA_STREAM),
        payload_of(line(), owner=OTHER_ACCOUNT, stream=f"ecs/batch/{OTHER_TASK}"),
    ]
    records = [record(number, packed_data(each)) for number, each in enumerate(payloads)]
    counts, repeated = fakes.forwarder().forward_kinesis_records(records, fakes.warnings.append)
    assert counts == LineCounts(indexed=1, untrusted=2)
    assert repeated == ()
    assert len(fakes.warnings) == 1
    assert "2 in 2 log streams" in fakes.warnings[0]


def test_a_huge_forged_line_is_untrusted() -> None:
    huge = line(tags={"x": "y" * 200_000})
    assert TrustingForwarder().forward(huge, stream=LAMBDA_STREAM) == UNTRUSTED


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_that_no_monitor_writes_is_a_failure_that_is_cut(kind: str) -> None:
    fakes = TrustingForwarder()
    huge = line(kind, tags={"x": "y" * 66_000})
    assert fakes.forward(huge) == FAILED
    (failure,) = fakes.failures
    assert failure.document == huge[:20_000]
    assert "longer than 64 KiB" in failure.reason
    assert list(source_of((STREAM, 0, huge)).runs(RunFilter(reads_checkpoints=True))) == []
    assert watched((STREAM, 0, huge)) == ()
    long = line(kind, tags={"x": "y" * 60_000})
    assert fakes.forward(long) == INDEXED
    assert len(listed((STREAM, 0, long))) == (kind != "task.notice")


# Times


DAY = timedelta(days=1)
IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "the time is ahead": {"at": NOW + 1.01 * DAY},
    "the time is behind": {"at": NOW - 1.01 * DAY},
    "the end is ahead": {"finishedAt": format_datetime(NOW + 1.01 * DAY)},
    "the end is behind": {"finishedAt": format_datetime(NOW - 1.01 * DAY)},
    "the start is ahead": {"startedAt": format_datetime(NOW + 1.01 * DAY)},
    "it started for more than a day": {"metrics": {"initDurationMs": MS_PER_DAY + 1}},
}


TOO_LONG: dict[str, dict[str, Any]] = {
    "the start is long ago": {"startedAt": format_datetime(NOW - 60.1 * DAY)},
    "it never ended": {"startedAt": "1970-01-02T00:00:00Z", "finishedAt": None},
}


@pytest.mark.parametrize("changes", TOO_LONG.values(), ids=TOO_LONG)
def test_a_report_of_more_than_60_days_is_invalid(changes: dict[str, Any]) -> None:
    fakes = TrustingForwarder()
    assert fakes.forward(line(**changes)) == FAILED
    assert "60 days before its end" in fakes.failures[0].reason


@pytest.mark.parametrize("kind", ["task.checkpoint", "task.notice"])
@pytest.mark.parametrize("changes", TOO_LONG.values(), ids=TOO_LONG)
def test_a_batch_of_more_than_60_days_is_seen_and_fills_no_queue(
    changes: dict[str, Any], kind: str
) -> None:
    fakes = TrustingForwarder()
    assert fakes.forward(line(kind, **changes)) == INDEXED
    expected = "2025.12" if kind == "task.checkpoint" else "2026.03"
    assert fakes.documents[0].index.endswith(expected)
    assert len(fakes.channel.posted) == (kind == "task.notice")


@each_case("kind", KINDS)
@each_case("changes", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_times_that_are_not_cloudwatchs_make_a_line_invalid(
    changes: dict[str, Any], kind: str
) -> None:
    fakes = TrustingForwarder()
    text = line(kind, **changes)
    assert fakes.forward(text) == FAILED
    assert [failure.document for failure in fakes.failures] == [text]
    assert any(word in fakes.failures[0].reason for word in ("timestamp", "days before", "a day"))


def test_a_long_run_and_a_slow_start_within_the_limits_are_indexed() -> None:
    started = format_datetime(NOW - 59 * DAY)
    assert TrustingForwarder().forward(line(startedAt=started)) == INDEXED
    slow = {"initDurationMs": MS_PER_DAY}
    assert TrustingForwarder().forward(line(startedAt=started, metrics=slow)) == INDEXED


def test_a_replayed_line_has_its_original_timestamp() -> None:
    long_ago = NOW - 300 * DAY
    at_ms = round(long_ago.timestamp() * 1000)
    assert TrustingForwarder().forward(line(at=long_ago), at_ms=at_ms) == INDEXED


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(("period", "most"), [("month", 4), ("day", 79)])
def test_a_hostile_stream_names_at_most_four_monthly_or_79_daily_indices(
    period: Any, most: int
) -> None:
    """Thousands of lines with every time that may pass, at every timestamp that CloudWatch takes:
    14 days ago to two hours ahead.
    """
    settings = ForwarderSettings(indices=IndexNames(period=period))
    fakes = TrustingForwarder()
    forwarder = replace(fakes.forwarder(), settings=settings)
    stamps = [NOW - 14 * DAY, NOW - 7 * DAY, NOW, NOW + timedelta(hours=2)]
    hours = range(-24 * 100, 24 * 100, 23)
    for stamp in stamps:
        texts = []
        for hour in hours:
            moment = stamp + timedelta(hours=hour)
            started = format_datetime(moment)
            texts.append(line(at=moment))
            for init_ms in (0, MS_PER_DAY, -MS_PER_DAY, 1e300):
                changes: dict[str, Any] = {
                    "startedAt": started,
                    "metrics": {"initDurationMs": init_ms},
                }
                texts.append(line(at=stamp - DAY, **changes))
                texts.append(line("task.checkpoint", at=stamp + DAY, **changes))
        at_ms = round(stamp.timestamp() * 1000)
        forwarder.forward_payload(decode_subscription_event(event(payload_of(*texts, at_ms=at_ms))))
    indices: dict[str, set[str]] = {}
    for document in fakes.documents:
        kind, _, _period = document.index.rpartition("-")
        indices.setdefault(kind, set()).add(document.index)
    assert set(indices) == {"task-reports", "task-checkpoints"}
    for kind, names in indices.items():
        assert 1 < len(names) <= most, kind


@given(
    started=st.datetimes(timezones=st.just(UTC)),
    written=st.datetimes(timezones=st.just(UTC)),
    init_ms=st.floats() | st.integers(),
    at_ms=st.integers(0, 7_289_654_399_999),
)
def test_no_times_break_the_rule(
    started: datetime, written: datetime, init_ms: float, at_ms: int
) -> None:
    text = line(
        startedAt=started.isoformat(),
        finishedAt=written.isoformat(),
        metrics={"initDurationMs": init_ms},
    )
    fakes = TrustingForwarder()
    counts = fakes.forward(text, at_ms=at_ms)
    assert counts.indexed + counts.failed == 1


# Readers of log groups


def test_a_line_in_another_tasks_stream_does_not_replace_a_run() -> None:
    forged = line(status="failure", exitCode=9)
    source = source_of(HONEST, (f"ecs/batch/{OTHER_TASK}", 60, forged))
    (run,) = source.runs(RunFilter())
    assert run.report.record.status == "success"
    assert run.is_confirmed
    assert run.place == LogTarget(group=GROUP, stream=STREAM)
    assert NOT_OF_THE_TASK in source.notes


# One batch and another family's advice


@pytest.mark.parametrize(
    ("stream", "container", "does_count"),
    [
        (STREAM, "batch", True),
        (MONITOR_STREAM, "batch", False),
        (MONITOR_STREAM, "made-up", False),
        (CONTAINER_ID, "batch", False),
    ],
)
def test_before_its_event_a_document_counts_if_it_is_of_the_containers_own_stream(
    stream: str, container: str, *, does_count: bool
) -> None:
    """The event of the task names its containers: others stay unconfirmed for good."""
    fakes = TrustingForwarder()
    assert fakes.forward(line(container={"name": container}), stream=stream) == INDEXED
    (document,) = fakes.documents
    assert run_of_document(document.fields).counts == does_count
    task = document.fields["task"]
    assert run_of_document({**document.fields, "task": {**task, "confirmed": True}}).counts


def test_a_run_of_a_trusted_log_group_counts_and_is_not_confirmed() -> None:
    fakes = TrustingForwarder()
    assert fakes.forward(line(), group="/builds/linux", stream="agent-7") == INDEXED
    run = run_of_document(fakes.documents[0].fields)
    assert run.counts
    assert not run.is_confirmed


THUMBS_STREAM = f"thumbs/batch/{OTHER_TASK}"
THUMBS_MONITOR = f"thumbs/task-monitor/{OTHER_TASK}"
OPTIONS_OF_FAMILIES: dict[str, LogOptions] = {
    "payroll": {name: {"awslogs-group": GROUP, "awslogs-stream-prefix": "ecs"} for name in BATCH},
    "thumbs": {name: {"awslogs-group": GROUP, "awslogs-stream-prefix": "thumbs"} for name in BATCH},
    "splunked": {"batch": {}},
}


def read_by_family(*stored: Stored, group: str = GROUP) -> LogGroupRuns:
    """A reader that knows where the families' definitions send their lines."""
    source = source_of(*stored, group=group)
    source.places = DefinedLogPlaces(OPTIONS_OF_FAMILIES.get)
    return source


def failed_payroll(stream: str, container: str = "batch", **changes: Any) -> Stored:
    failed: dict[str, Any] = {"status": "failure", "likelyOutOfMemory": True}
    return (stream, 60, line(container={"name": container}, taskId=OTHER_TASK, **failed, **changes))


HONEST_RUNS: dict[str, tuple[Stored, str]] = {
    "the batch's stream": (HONEST, GROUP),
    "the monitor's stream": ((MONITOR_STREAM, 0, line()), GROUP),
    "a family without a definition": (
        (f"x/batch/{OTHER_TASK}", 0, line(taskId=OTHER_TASK, family="local")),
        GROUP,
    ),
    "a trusted group": (("agent-7", 0, line(family="built")), "/builds/linux"),
    "the instance's monitor, of another log driver": (
        (INSTANCE_STREAM, 0, line(family="splunked", cluster="gpu")),
        INSTANCE_GROUP,
    ),
}
UNCONFIRMED_RUNS: dict[str, tuple[Stored, str]] = {
    "another family in the own stream": (failed_payroll(THUMBS_STREAM), GROUP),
    "another family in the monitor's stream": (failed_payroll(THUMBS_MONITOR), GROUP),
    "a container that the task does not have": (
        failed_payroll(THUMBS_MONITOR, container="made-up", family="thumbs"),
        GROUP,
    ),
    "a container's id": (failed_payroll(CONTAINER_ID), GROUP),
    "a family with awslogs in the instance monitor's stream": (
        failed_payroll(INSTANCE_STREAM, cluster="gpu"),
        INSTANCE_GROUP,
    ),
    "a monitor that ECS does not know": (
        failed_payroll(f"instance/task-monitor/{UNKNOWN_TASK}", family="splunked", cluster="gpu"),
        INSTANCE_GROUP,
    ),
}


@pytest.mark.parametrize(("stored", "group"), HONEST_RUNS.values(), ids=HONEST_RUNS)
def test_an_honest_run_of_a_log_group_counts(stored: Stored, group: str) -> None:
    source = read_by_family(stored, group=group)
    (run,) = source.runs(RunFilter(only_counting=True))
    assert run.counts
    assert not any("unconfirmed" in note for note in source.notes)


@pytest.mark.parametrize(("stored", "group"), UNCONFIRMED_RUNS.values(), ids=UNCONFIRMED_RUNS)
def test_an_unconfirmed_run_is_listed_and_counts_nowhere(stored: Stored, group: str) -> None:
    source = read_by_family(stored, group=group)
    (run,) = source.runs(RunFilter(reads_checkpoints=True))
    assert not run.counts
    assert "Unconfirmed" in (verdict_of(run, NOW_MS * NS_PER_MS).evidence or "")
    assert not any("unconfirmed" in note for note in source.notes)
    assert list(source.runs(RunFilter(only_counting=True))) == []
    assert f"{group}: 1 unconfirmed run left out, because nothing proves" in " ".join(source.notes)


def test_advice_is_of_the_runs_that_count() -> None:
    forged: list[Stored] = [HONEST]
    for number in range(60):
        stream = f"thumbs/batch/{number:032x}"
        failed: dict[str, Any] = {"status": "failure", "taskId": f"{number:032x}"}
        forged.append((stream, number, line(**failed)))
    source = read_by_family(*forged)
    found = read_families(source, RunFilter(), 50)
    assert sum(tasks.tasks for tasks in found.tasks_read.values()) == 1
    assert any("60 unconfirmed runs left out" in note for note in found.notes)
    shown = find_runs(source, RunFilter(run="payroll", reads_checkpoints=True))
    assert [run.report.record.task_id for run in shown] == [TASK]
    newer = replace(shown[0], report=later(shown[0]))
    assert last_success(newer, earlier_successes(newer, source), source) == shown[0]


def later(run: PastRun) -> Report:
    started = format_datetime(NOW + timedelta(minutes=5))
    return replace(run.report, record=replace(run.report.record, started_at=started))


FORGED: dict[str, Stored] = {
    "another account": (STREAM, 60, line(accountId=OTHER_ACCOUNT)),
    "another container": (STREAM, 60, line(container={"name": "proxy"})),
    "another task's ARN": (STREAM, 60, line(taskArn=ARNS["another task"])),
    "a web function": (LAMBDA_STREAM, 60, line()),
    "a damaged line of a web function": (LAMBDA_STREAM, 60, '{"type": "task.report", "x": 1}'),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_what_is_not_its_streams_is_not_listed_and_counted_in_one_sentence(forged: Stored) -> None:
    source = source_of(forged)
    assert list(source.runs(RunFilter())) == []
    assert NOT_OF_THE_TASK in source.notes


def test_the_lines_of_a_container_are_one_run_and_the_last_one_counts() -> None:
    """A batch prints what it wants, with any times; the monitor's report comes after its end."""
    stored: list[Stored] = [HONEST]
    for number in range(60):
        started = format_datetime(NOW - timedelta(minutes=number))
        ahead = NOW + timedelta(hours=23, minutes=number)
        text = json.loads(line(startedAt=started, status="failure"))
        stored.append((STREAM, -100 + number, json.dumps({**text, "time": format_datetime(ahead)})))
    (run,) = listed(*stored)
    assert run.report.record.status == "success"


def test_a_checkpoint_never_replaces_a_report() -> None:
    (run,) = listed(HONEST, (STREAM, 60, line("task.checkpoint", status="running")))
    assert run.report.type == "task.report"


@pytest.mark.parametrize("hours", [1, 40])
def test_an_unconfirmed_line_neither_replaces_nor_hides_a_run(hours: float) -> None:
    """Also not if it is in a newer part of the log, which is read first."""
    at = NOW - timedelta(hours=hours)
    honest = (STREAM, -hours * 3600, line(at=at))
    forged = (CONTAINER_ID, -60, line(at=NOW - timedelta(seconds=60), status="failure"))
    runs = listed(honest, forged)
    assert [run.report.record.status for run in runs if run.is_confirmed] == ["success"]
    assert len(runs) == (1 if hours == 1 else 2)


def test_runs_without_a_voucher_are_listed_and_not_confirmed() -> None:
    (run,) = listed((CONTAINER_ID, 0, line()))
    assert not run.is_confirmed
    (run,) = listed(("agent-7", 0, line()), group="/builds/linux")
    assert not run.is_confirmed
    (run,) = source_of(HONEST, account_id=None).runs(RunFilter())
    assert not run.is_confirmed, "the account of the log group is unknown"


def test_a_reader_skips_lines_with_impossible_times() -> None:
    source = source_of((STREAM, 0, line(startedAt="1999-01-01T00:00:00Z")))
    assert list(source.runs(RunFilter())) == []
    assert "/ecs/jobs: skipped 1 report whose times differ from CloudWatch's." in source.notes


@pytest.mark.parametrize("version", ["1.2", "1.3", "1.4", "9.0"])
def test_stacks_count_only_in_their_tasks_stream(version: str) -> None:
    stacks = replace(waiting_stacks(), task_id=TASK, container="batch")
    text = json.dumps({**json.loads(msgspec.json.encode(stacks)), "schemaVersion": version})
    report = listed(HONEST)[0].report
    for stream in (STREAM, MONITOR_STREAM):
        assert source_of(HONEST, (stream, 0, text)).stacks(report) is not None
    for stream in (f"ecs/proxy/{TASK}", f"ecs/batch/{OTHER_TASK}", LAMBDA_STREAM):
        assert source_of(HONEST, (stream, 0, text)).stacks(report) is None


def test_a_batch_or_a_web_function_cannot_say_that_a_schedule_missed_a_run() -> None:
    notice = {
        "type": "schedule.notice",
        "time": format_datetime(NOW),
        "notice": {"kind": "missed", "message": "m", "dueAt": format_datetime(NOW)},
        "schedule": {"kind": "schedule", "name": "payroll"},
    }
    watch = "/aws/lambda/tp-watch-schedules"
    for group, stream, expected in (
        (watch, LAMBDA_STREAM, 1),
        (watch, f"2026/03/01/tp-watch-schedules[$LATEST][{TASK}]", 1),
        (watch, f"2026/03/01/web[$LATEST][{TASK}]", 0),
        (watch, f"{LAMBDA_STREAM}/batch/{TASK}", 0),
        (watch, f"{LAMBDA_STREAM}\n", 0),
        (watch, "a stream of its own", 0),
        (watch, f"2026/03/{TASK}", 0),
        (watch, STREAM, 0),
        (watch, CONTAINER_ID, 0),
        (GROUP, STREAM, 0),
        (GROUP, LAMBDA_STREAM, 0),
        ("/aws/lambda/web", LAMBDA_STREAM, 0),
        ("/mine/tp-watch-schedules", LAMBDA_STREAM, 0),
    ):
        source = source_of((stream, 0, json.dumps(notice)), group=group)
        assert list(source.runs(RunFilter())) == []
        assert len(source.schedule_notices(RunFilter())) == expected
        assert any("not of their log stream" in note for note in source.notes) == (not expected)


def test_show_prints_no_lines_of_another_tasks_stream() -> None:
    def get_log_events(**_parameters: object) -> Mapping[str, Any]:
        pytest.fail("no line of another task is read")

    (run,) = listed((STREAM, 0, line(logGroup=GROUP, logStream=f"ecs/batch/{OTHER_TASK}")))
    with pytest.raises(TaskProfilerError, match=f"names the log stream of task {OTHER_TASK}"):
        list(log_lines(get_log_events, run.report.record, (), 5))


# watch


def watched(*stored: Stored) -> Sequence[Any]:
    runs, trust = RunningRuns(), AccountTrust(account_id=ACCOUNT, groups=GROUPS)
    for stream, seconds, text in stored:
        runs.add_line(text, trust.trust_in_stream(GROUP, stream), NOW_MS + round(1000 * seconds))
    return runs.current_runs(NOW_MS * NS_PER_MS)


RUNNING: Stored = (MONITOR_STREAM, 0, line("task.checkpoint", status="running"))


def test_watch_shows_a_task_by_its_own_streams_alone() -> None:
    assert len(watched(RUNNING)) == 1
    for stream in (LAMBDA_STREAM, f"ecs/proxy/{TASK}", f"ecs/batch/{OTHER_TASK}"):
        for kind in ("task.checkpoint", "task.notice"):
            assert watched((stream, 0, line(kind, status="running"))) == ()
        (run,) = watched(RUNNING, (stream, 0, line("task.notice")), (stream, 0, line()))
        assert run.is_running
        assert run.notices == ()


def test_watch_prefers_what_a_stream_vouches_for() -> None:
    forged: Stored = (CONTAINER_ID, 0, line())
    for order in ((forged, RUNNING), (RUNNING, forged)):
        (run,) = watched(*order)
        assert run.is_running


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("1.4", None),
        ("1.99", None),
        ("2.0", "1 line of schema 2.0, which a newer Task Profiler wrote"),
        ("one", "1 line of schema one, which no Task Profiler writes"),
    ],
)
def test_a_line_of_another_schema_counts_with_a_word(schema: str, said: str | None) -> None:
    """As in a file."""
    text = line().replace('{"time"', f'{{"schemaVersion": "{schema}", "time"', 1)
    source = source_of((STREAM, 0, text))
    assert len([*source.runs(RunFilter())]) == 1
    remarks = " ".join(source.remarks)
    assert ("schema" in remarks, (said or "") in remarks) == (said is not None, True)
