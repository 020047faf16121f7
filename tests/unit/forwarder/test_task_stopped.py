"""The handling of stopped tasks: document and notice, with fakes for all external services.

No event is lost.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from profiler.core.notice_channels import ChannelKind
from profiler.forwarder import invocation
from profiler.forwarder.document_updates import Document, ReportDocument
from profiler.forwarder.ended_run import (
    EndedRun,
    EndedTask,
    FamilyComparison,
    MemoryRetry,
    UnusualMeasure,
)
from profiler.forwarder.function_settings import ForwarderSettings, NoticeSettings
from profiler.forwarder.invocation import (
    DeliveryError,
    ForwarderError,
    SearchClusterError,
    SettingsError,
)
from profiler.forwarder.merged_run import merge_report_and_event, runs_of_witnesses
from profiler.forwarder.notifications.event_details import ended_run_detail
from profiler.forwarder.notifications.notification import NoticeChannel, Notification
from profiler.forwarder.notifications.slack_messages import ended_task_message
from profiler.forwarder.report_finder import ReportFinder, ReportLine, TaskContainers
from profiler.forwarder.report_verification import OWN_STREAM, LogStreamClaim
from profiler.forwarder.run_event import seen_report
from profiler.forwarder.run_export import exported_run
from profiler.forwarder.search_cluster.bulk_client import bulk_lines
from profiler.forwarder.search_cluster.document_delivery import DeliveryResult, FailedItem
from profiler.forwarder.stopped_task_reads import MissingStreamError, StreamLine
from profiler.forwarder.task_stopped import TaskStoppedHandler, notice_selection
from profiler.record.notice_model import encode_notice_line
from profiler.record.record_model import Cost, Distribution
from profiler.record.stop_causes import outcome_of
from profiler.record.stopped_task import EventContainer, StoppedTask, parse_stopped_task
from profiler.sinks import LogTarget
from tests.batch_jobs import CLUSTER as BATCH_CLUSTER
from tests.batch_jobs import arn, job_id
from tests.cases import each_case
from tests.counted_calls import counted_calls
from tests.fakes import FakeInvocationTime
from tests.notices import KeyTable, fake_channel, report_line
from tests.otlp_schema import check
from tests.shown_runs import stuck_notice, waiting_stacks
from tests.sidecars import INJECTED, ROUTER, SIDECARS, awslogs
from tests.stopped_tasks import BATCH_STREAM, WITH_MONITOR, WRITTEN_MS, report
from tests.task_events import ARN, EVENT, container, definition, event, task
from tests.values import present

MONITOR_STREAM = "ecs/task-monitor/4dd5853f44b341ee8281f38229bee377"
WITHOUT_MONITOR = definition(container("batch"))


AS_EVER = FamilyComparison(text="As long as ever.")


class StoppedTaskFakes:
    """Fakes of everything that TaskStoppedHandler uses."""

    def __init__(
        self,
        lines: dict[str, list[str]] | None = None,
        described: Mapping[str, Any] | None = WITH_MONITOR,
    ) -> None:
        self.lines = lines or {}
        self.described = described
        self.time = FakeInvocationTime(300)
        self.documents: list[Document] = []
        self.notices: list[tuple[EndedRun, str]] = []
        self.errors: dict[
            str, ForwarderError
        ] = {}  # by what fails: cluster, slack, index, channel, retry
        self.comparison = AS_EVER
        self.rejected: tuple[FailedItem, ...] = ()
        self.log_errors: list[DeliveryError] = []
        self.reads = 0
        self.other_channels: list[NoticeChannel] = []
        self.table = KeyTable()
        self.printed: list[str] = []  # the function's log
        self.warnings: list[str] = []
        self.exported: list[tuple[EndedTask, int]] = []
        self.on_instance: list[str] = []  # the tasks of whose instances a monitor was looked for
        self.has_instance_monitor = False
        self.indexed_reports: list[ReportLine | None] | None = None
        self.has_cluster = True
        self.reads_without_streams = 0.0
        self.is_table_denied = False
        self.notice_settings: Mapping[str, Any] = {}
        self.retry: MemoryRetry | None = None
        self.asked_to_retry: list[EndedTask] = []
        self.documents_at_retry: list[Document] = []
        self.reads_at_retry = 0

    def newest(self, place: LogTarget) -> Iterator[Sequence[StreamLine]]:
        self.reads += 1
        if self.log_errors:
            raise self.log_errors.pop(0)
        if self.reads <= self.reads_without_streams:
            raise MissingStreamError(place.stream)
        lines = self.lines.get(place.stream, [])
        yield [StreamLine(text, WRITTEN_MS) for text in reversed(lines)]

    def may_fail(self, what: str) -> None:
        if what in self.errors:
            raise self.errors[what]

    @property
    def notice(self) -> EndedRun:
        return self.notices[0][0]

    @property
    def cost(self) -> Cost | None:
        """The cost in the notice, which the export has too."""
        assert self.exported[0][0].record == self.notice.record
        return present(self.notice.record).cost

    @property
    def runs(self) -> set[str]:
        """The ids of the written documents."""
        return {document.id for document in self.documents}

    def document_index(self) -> "FakeIndex | None":
        self.may_fail("index")
        return FakeIndex(self) if self.has_cluster else None

    def describe_definition(self, _arn: str) -> Mapping[str, Any] | None:
        return self.described

    def report_finder(self, stopped: StoppedTask, containers: TaskContainers) -> ReportFinder:
        return ReportFinder(self.newest, self.time, stopped, containers)

    def settings(self) -> NoticeSettings:
        return NoticeSettings(**self.notice_settings)

    def channels(self, _settings: NoticeSettings) -> list[NoticeChannel]:
        return [NoticeChannel("world", self.post, self.accepts), *self.other_channels]

    def run_once(self, key: str, work: Callable[[], object]) -> object:
        if self.is_table_denied:
            raise DeliveryError("The table cannot be used.")
        return self.table.once(key, work)

    def print_line(self, line: str) -> None:
        self.printed.append(line)

    def export(self, ended: EndedTask) -> None:
        self.exported.append((ended, len(self.notices)))

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)

    def start_again(
        self, ended: EndedTask, definition: Mapping[str, object] | None
    ) -> MemoryRetry | None:
        self.documents_at_retry = list(self.documents)
        self.reads_at_retry = self.reads
        assert definition in (None, self.described)
        self.asked_to_retry.append(ended)
        self.may_fail("retry")
        return self.retry

    def find(self, task: StoppedTask, batch: EventContainer) -> ReportLine | None:
        """Return the next report, and repeat the last one."""
        if self.indexed_reports is None:
            raise SearchClusterError("away", status=None)
        return (
            self.indexed_reports.pop(0)
            if len(self.indexed_reports) > 1
            else self.indexed_reports[0]
        )

    def accepts(self, kind: ChannelKind) -> bool:
        self.may_fail("channel")
        return True

    def deliver(self, documents: Sequence[Document]) -> DeliveryResult:
        self.may_fail("cluster")
        self.documents += documents
        return DeliveryResult(indexed=len(documents) - len(self.rejected), rejected=self.rejected)

    def post(self, notification: Notification, kind: ChannelKind) -> None:
        assert isinstance(notification, EndedRun)
        self.may_fail("slack")
        self.notices.append((notification, kind))

    def handle(
        self, ended: StoppedTask | None = None, *, cluster: bool = True, **settings: Any
    ) -> Mapping[str, object]:
        self.has_cluster = cluster
        self.notice_settings = settings
        return asdict(TaskStoppedHandler(self, self).handle(ended or task()))

    def is_on_instance(self, task: StoppedTask) -> bool:
        self.on_instance.append(task.id)
        return self.has_instance_monitor


class FakeIndex:
    """The search cluster of the fakes."""

    def __init__(self, fakes: StoppedTaskFakes) -> None:
        self.settings = ForwarderSettings()
        self.find_report, self.deliver = fakes.find, fakes.deliver
        self.fakes = fakes

    def compare_with_family(self, _ended: EndedTask) -> FamilyComparison:
        return self.fakes.comparison


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DeliveryError("ThrottlingException"), ["It is not known yet"]),
        (SettingsError("RETRY_MAX_MEMORY_MB"), [""]),
        (invocation.InProgressError("busy"), []),
    ],
    ids=[
        "not possible yet",
        "an invalid setting says nothing",
        "another invocation posts the notice",
    ],
)
def test_a_retry_that_fails_raises_after_document_and_notice(
    error: ForwarderError, said: list[str]
) -> None:
    fakes = StoppedTaskFakes()
    fakes.errors["retry"] = error
    with pytest.raises(type(error), match=str(error)):
        fakes.handle()
    (asked,) = fakes.asked_to_retry
    assert fakes.documents_at_retry == []
    assert asked.container == "batch"
    assert [notice.retry.sentence[:19] for notice, _ in fakes.notices] == said
    assert all("retried_as" not in document.fields["task"] for document in fakes.documents)


def test_the_report_in_the_batch_stream_provides_the_numbers() -> None:
    fakes = StoppedTaskFakes({BATCH_STREAM: ["a line", report(), "another"]})
    assert fakes.handle() == {"status": "failure", "indexed": True, "notified": "failure"}
    ((notice, kind),) = fakes.notices
    assert kind == "failure"
    assert notice.family == "nightly"
    assert notice.task.revision == "5"
    assert notice.outcome.exit_code == 1
    assert notice.duration_ms == 60000
    assert notice.metrics.cpu_utilization_percent == Distribution(avg=50.0, max=90.0)
    assert notice.has_final_report
    numbers, own = fakes.documents
    assert numbers.index == own.index == "task-reports-2026.03"
    assert numbers.id == own.id == f"{task().id}/batch"
    assert numbers.fields["task"]["complete"] is True
    assert own.fields["task"]["stop_code"] == "EssentialContainerExited"
    assert fakes.time.pauses == []
    assert fakes.on_instance == []


CHECKPOINT_LINE = report("task.checkpoint")


@each_case("cluster", [True, False], ids=["cluster", "no cluster"])
@each_case(
    ("lines", "detail", "verdicts"),
    [
        ({BATCH_STREAM: [report()]}, {}, 3),
        (
            {BATCH_STREAM: [report(cost=None)]},
            {"containers": [{"name": "batch", "exitCode": 0}]},
            3,
        ),
        ({MONITOR_STREAM: [CHECKPOINT_LINE]}, {}, 2),
        ({}, {}, 1),
        ({}, {"stopCode": "TaskFailedToStart", "startedAt": None}, 1),
    ],
    ids=["report", "without cost", "checkpoint", "no report", "never started"],
)
def test_an_event_is_merged_with_its_report_once(
    lines: dict[str, list[str]], detail: dict[str, Any], verdicts: int, *, cluster: bool
) -> None:
    """Document, notification, export, retry and the printed line read the same run.

    ``verdicts``: by both witnesses, by the event, and by the final report, which has a document.
    """
    fakes = StoppedTaskFakes(lines)
    fakes.retry = MemoryRetry(sentence="Started again.", retried_as="1" * 32)
    with counted_calls(runs_of_witnesses, merge_report_and_event, outcome_of) as calls:
        fakes.handle(task(**detail), cluster=cluster, log_lines=5, report_wait_seconds=0)
    assert calls == ["runs_of_witnesses", *["outcome_of"] * verdicts]
    assert len(fakes.notices) == len(fakes.exported) == len(fakes.printed) == 1
    assert fakes.exported[0][0].run is fakes.notice.run is fakes.asked_to_retry[0].run


def test_a_line_of_the_log_is_judged_with_the_report_that_was_read() -> None:
    """Two verdicts more: by both witnesses and by the event. The settings are asked once."""
    failed = report(status="failure", exitCode=1)
    fakes = StoppedTaskFakes({BATCH_STREAM: [LACK, failed]})
    with counted_calls(seen_report, outcome_of, notice_selection) as calls:
        fakes.handle(task(), log_lines=5)
    assert calls == ["seen_report", *["outcome_of"] * 3, "notice_selection", *["outcome_of"] * 2]
    assert fakes.notice.outcome.cause == "gpu-oom"


def test_a_report_that_names_no_account_is_written_in_the_account_of_its_task() -> None:
    fakes = StoppedTaskFakes({BATCH_STREAM: [report(accountId=None)]})
    fakes.handle()
    numbers, _own = fakes.documents
    assert isinstance(numbers, ReportDocument)
    assert numbers.fields["cloud"]["account"]["id"] == "111122223333"
    assert numbers.report_account == "111122223333"


def test_the_last_checkpoint_is_used_after_the_wait() -> None:
    fakes = StoppedTaskFakes(
        {
            MONITOR_STREAM: [
                report("task.checkpoint", metrics={"maxMemoryUsedMB": 7}),
                report("task.checkpoint"),
            ]
        }
    )
    fakes.handle(report_wait_seconds=5.0)
    assert fakes.time.pauses == [2.0, 3.0]
    notice = fakes.notice
    assert not notice.has_final_report
    assert notice.metrics.max_memory_used_mb == 500
    assert notice.duration_ms == 63216
    (document,) = fakes.documents
    assert document.fields["task"] == {
        "confirmed": True,
        "arn": ARN,
        "family": "nightly",
        "revision": "5",
        "launch_type": "FARGATE",
        "runtime_ids": ["4dd5-119"],
        "created_at": "2026-03-01T10:11:07.314Z",
        "stopped_at": "2026-03-01T10:12:56.341Z",
        "status": "failure",
        "exit_code": 1,
        "stop_code": "EssentialContainerExited",
        "outcome": "failure",
        "event_outcome": "failure",
        "stop_category": "exit",
        "started_by": "chronos-schedule/nightly",
        "out_of_memory": False,
    }
    assert document.fields["event"] == {"outcome": "failure"}
    assert document.fields["cloud"] == {
        "provider": "aws",
        "account": {"id": "111122223333"},
        "region": "us-west-2",
        "availability_zone": "us-west-2b",
    }
    assert document.fields["container"] == {
        "id": "4dd5-119",
        "image": {"name": "etl:7", "hash": {"all": ["sha256:59"]}},
    }
    assert set(document.fields) == {
        *("task", "event", "cloud", "container", "orchestrator", "service", "links"),
    }
    upsert = document.initial_fields
    assert upsert["usage"]["memory"]["used_mb"]["max"] == 500
    assert upsert["usage"]["duration_ms"] == 63216
    assert upsert["task"]["complete"] is False
    assert upsert["event"]["dataset"] == "task.report"
    assert upsert["@timestamp"] == "2026-03-01T10:12:32.316Z"


BOTH = {"containers": [{"name": "batch", "exitCode": 0}, {"name": "task-monitor"}]}
NOT_STARTED = {
    "startedAt": None,
    "stopCode": "TaskFailedToStart",
    "containers": [{"name": "batch"}],
}
SILENT = {"name": "batch"}, {"name": "task-monitor", "essential": False}
KNOWN = container("task-monitor", essential=False), container("batch")
# The definition, the event, the seconds that are left, whether the instance has a monitor, and the
# pauses.
WAITS: dict[str, tuple[Mapping[str, Any] | None, dict[str, Any], float, bool, list[float]]] = {
    "no definition": (None, BOTH, 300, False, []),
    "no logs": (definition(*SILENT), BOTH, 300, False, []),
    "never started": (WITH_MONITOR, NOT_STARTED, 300, False, []),
    "only the monitor's log": (definition(SILENT[0], KNOWN[0]), {}, 300, False, [2, 3]),
    "only the batch's log": (definition(SILENT[1], KNOWN[1]), {}, 300, False, [2, 3]),
    "ten seconds left": (WITH_MONITOR, {}, 14, False, [2, 2]),
    "instance: no monitor of its own": (WITHOUT_MONITOR, {}, 300, True, [2, 3]),
    "instance: a batch of milliseconds": (WITH_MONITOR, {"startedAt": None}, 300, True, [2, 3]),
    "instance: never started": (WITHOUT_MONITOR, NOT_STARTED, 300, True, []),
    "instance: no logs": (definition(SILENT[0]), {}, 300, True, []),
}


@each_case(("described", "detail", "left", "on_instance", "pauses"), WAITS.values(), ids=WAITS)
def test_how_long_a_report_is_waited_for(
    described: Mapping[str, Any] | None,
    detail: dict[str, Any],
    left: float,
    *,
    on_instance: bool,
    pauses: list[float],
) -> None:
    """In the log streams: the search cluster does not respond."""
    fakes = StoppedTaskFakes(described=described)
    fakes.time.left, fakes.has_instance_monitor = left, on_instance
    fakes.handle(task(**detail), report_wait_seconds=5.0)
    assert fakes.time.pauses == pauses
    assert len(fakes.runs) == len(fakes.notices) == 1
    assert not on_instance or len(fakes.on_instance) == bool(pauses)


PRINTS = [{"name": "TASK_PROFILER_REPORT_STREAM", "value": "monitor"}]


@pytest.mark.parametrize(
    ("kind", "environment", "group"),
    [
        ("report", [], "/ecs/jobs"),
        ("report", PRINTS, "/ecs/monitor"),
        ("checkpoint", [], "/ecs/monitor"),
    ],
)
def test_the_command_in_the_notification_reads_the_log_group_that_has_the_run(
    kind: str, environment: list[dict[str, str]], group: str
) -> None:
    """Without a report, the monitor's group has the checkpoints."""
    log = awslogs(group="/ecs/monitor", region="us-west-2")
    monitor = container(
        "task-monitor", essential=False, environment=environment, logConfiguration=log
    )
    fakes = StoppedTaskFakes(
        {BATCH_STREAM: [report(f"task.{kind}")]}, definition(monitor, container("batch"))
    )
    fakes.handle(report_wait_seconds=0.0)
    shown = json.dumps(ended_task_message(fakes.notice, kibana_url=None).blocks)
    assert f"task-profiler show {task().id} --from logs:{group} --region us-west-2`" in shown


def test_reports_of_other_containers_and_tasks_are_ignored() -> None:
    fakes = StoppedTaskFakes(
        {BATCH_STREAM: [report(taskId="other"), report(container={"name": "proxy"})]}
    )
    fakes.handle(report_wait_seconds=0.0)
    assert not fakes.notice.has_final_report


CLUSTER, SLACK, BUS = (
    DeliveryError(f"{name} is away.") for name in ("The cluster", "Slack", "The bus")
)
NO_SECRET = SettingsError("The secret cannot be read.")


@pytest.mark.parametrize(
    ("failing", "message", "documents", "notices"),
    [
        ({"cluster": CLUSTER}, "The cluster is away.", 0, 1),
        ({"rejected": None}, "The cluster refused the task's document: bad mapping", 2, 1),
        ({"slack": SLACK}, "Slack is away.", 2, 0),
        ({"index": NO_SECRET}, "The secret cannot be read.", 0, 1),
        ({"channel": NO_SECRET}, "The secret cannot be read.", 2, 0),
        ({"index": NO_SECRET, "slack": SLACK}, "The secret cannot be read. Slack is away.", 0, 0),
        ({"bus": BUS, "slack": SLACK}, "Slack is away. The bus is away.", 2, 0),
    ],
)
def test_what_fails_is_raised_after_everything_else_is_done(
    failing: dict[str, Any], message: str, documents: int, notices: int
) -> None:
    fakes, other = StoppedTaskFakes({BATCH_STREAM: [report()]}), fake_channel("other")
    fakes.other_channels = [other]
    fakes.errors, other.error = failing, failing.get("bus")
    fakes.rejected = (FailedItem({}, "bad mapping"),) if "rejected" in failing else ()
    with pytest.raises(ForwarderError) as raised:
        fakes.handle()
    assert str(raised.value) == message
    assert len(fakes.documents) == documents
    assert len(fakes.notices) == notices
    assert len(fakes.exported) == 1
    assert len(other.posted) == (other.error is None)


def test_the_ended_run_is_printed_once_with_what_was_done() -> None:
    fakes = StoppedTaskFakes({BATCH_STREAM: [report()]})
    fakes.handle()
    fakes.handle()
    (line,) = [json.loads(line) for line in fakes.printed]
    assert line["type"] == "task.ended"
    assert line["indexed"] is True
    assert line["notified"] == "failure"
    assert line["metrics"]["durationMs"] == 60000


def test_an_attempt_that_fails_is_printed_too_and_the_last_line_counts() -> None:
    fakes = StoppedTaskFakes()
    fakes.errors = {"slack": SLACK}
    with pytest.raises(DeliveryError):
        fakes.handle()
    fakes.errors = {}
    fakes.handle()
    lines = [json.loads(line) for line in fakes.printed]
    assert [line["notified"] for line in lines] == [None, "failure"]
    assert [line["indexed"] for line in lines] == [True, True]


def test_a_notice_that_one_of_two_channels_has_is_not_called_posted() -> None:
    bus: list[Notification] = []
    fakes = StoppedTaskFakes()
    fakes.errors = {"slack": SLACK}
    fakes.other_channels = [NoticeChannel("bus", lambda notice, _kind: bus.append(notice))]
    with pytest.raises(DeliveryError):
        fakes.handle()
    (line,) = [json.loads(line) for line in fakes.printed]
    assert len(bus) == 1
    assert line["notified"] is None


def test_a_task_that_nobody_is_told_about_is_printed() -> None:
    fakes = StoppedTaskFakes()
    fakes.handle(cluster=False, subjects=frozenset())
    (line,) = [json.loads(line) for line in fakes.printed]
    assert line["indexed"] is False
    assert line["notified"] is None


UNUSUAL = FamilyComparison(
    text="",
    unusual=(UnusualMeasure(metric="cpuSeconds", value=0, usual=900),) * 2,
)


SUCCEEDED = {"containers": [{"name": "batch", "exitCode": 0}]}
JOB_VARIABLE = {"name": "AWS_BATCH_JOB_ID", "value": job_id(1)}
OF_JOB = {
    "clusterArn": arn("cluster", BATCH_CLUSTER, service="ecs"),
    "overrides": {"containerOverrides": [{"name": "batch", "environment": [JOB_VARIABLE]}]},
}
FAILURES: dict[str, Any] = {"subjects": frozenset({"failure"})}
AS_FAILURES: dict[str, Any] = {"unusual_as_failures": True}


@each_case(
    ("detail", "comparison", "settings", "notified"),
    [
        ({}, AS_EVER, {}, "failure"),
        (SUCCEEDED, AS_EVER, {}, "success"),
        (SUCCEEDED, AS_EVER, FAILURES, None),
        ({"stopCode": "UserInitiated"}, AS_EVER, FAILURES, "failure"),
        ({}, AS_EVER, {"families": ("week*", "night*")}, "failure"),
        ({}, AS_EVER, {"families": ("week*",)}, None),
        ({"group": "service:web"}, AS_EVER, {}, None),
        ({"group": "service:web"}, AS_EVER, {"services": True}, "failure"),
        (OF_JOB, AS_EVER, {"batch_jobs": True}, None),  # the job has one
        (OF_JOB, AS_EVER, {}, "failure"),
        ({}, AS_EVER, {"batch_jobs": True}, "failure"),
        (SUCCEEDED, UNUSUAL, {}, "success"),
        (SUCCEEDED, UNUSUAL, AS_FAILURES, "failure"),
        (SUCCEEDED, UNUSUAL, AS_FAILURES | FAILURES, "failure"),
        (SUCCEEDED, UNUSUAL, AS_FAILURES | {"subjects": frozenset({"running"})}, None),
        (SUCCEEDED, UNUSUAL, AS_FAILURES | {"families": ("weekly",)}, None),
        (SUCCEEDED, UNUSUAL, FAILURES, None),
        (SUCCEEDED, AS_EVER, AS_FAILURES, "success"),
    ],
)
def test_the_settings_select_the_tasks_that_get_a_notice(
    detail: dict[str, Any],
    comparison: FamilyComparison,
    settings: dict[str, Any],
    notified: str | None,
) -> None:
    """A success unlike its family is sent as a failure if that is wanted."""
    fakes = StoppedTaskFakes(described=WITHOUT_MONITOR)
    fakes.comparison = comparison
    assert fakes.handle(task(**detail), **settings)["notified"] == notified
    assert [kind for _, kind in fakes.notices] == ([] if notified is None else [notified])
    assert len(fakes.runs) == 1
    assert [notices for _, notices in fakes.exported] == [len(fakes.notices)], (
        "every run is exported, last"
    )


def test_the_cluster_is_queried_until_the_report_is_indexed() -> None:
    fakes = StoppedTaskFakes()
    fakes.indexed_reports = [None, None, report_line(report())]
    fakes.handle()
    assert fakes.reads == 0
    assert fakes.time.pauses == [2.0, 6.0]
    assert fakes.notice.has_final_report


@pytest.mark.parametrize(
    ("claim", "is_said"),
    [(OWN_STREAM, True), (LogStreamClaim(voucher="trusted-group", stream="anything"), False)],
)
def test_only_a_confirmed_report_says_that_a_run_was_killed_for_memory(
    *, claim: LogStreamClaim, is_said: bool
) -> None:
    tags = [{"key": "task-profiler:resized-from", "value": "4/2048/8192"}]
    fakes = StoppedTaskFakes(described={**WITH_MONITOR, "memory": "512", "tags": tags})
    line = report_line(report(likelyOutOfMemory=True))
    fakes.indexed_reports = [ReportLine(line.report, line.text, claim=claim)]
    fakes.handle(task(memory="512"))
    assert (fakes.notice.reduced_memory is not None) == is_said
    (asked,) = fakes.asked_to_retry
    assert (asked.has_final_report, asked.outcome.ran_out_of_memory) == (is_said, is_said)


OWN_LINES = [
    encode_notice_line(stuck_notice()).decode(),
    msgspec.json.encode(waiting_stacks()).decode(),
    report(),
]
LINES = [
    "one",
    "two",
    "three",
    *OWN_LINES,
    report("task.checkpoint"),
    "REPORT TaskId: 4dd5\tDuration: 1 ms",
    "{}",
]


@pytest.mark.parametrize(
    ("count", "detail", "shown"),
    [
        (0, {}, ()),
        (2, {}, ("three", "{}")),
        (20, {}, ("one", "two", "three", "{}")),
        (5, {"stopCode": "UserInitiated"}, ()),
    ],
)
def test_only_a_failure_shows_the_last_lines_of_the_batch(
    count: int, detail: dict[str, Any], shown: tuple[str, ...]
) -> None:
    fakes = StoppedTaskFakes({BATCH_STREAM: LINES})
    fakes.handle(task(**detail), log_lines=count)
    assert fakes.reads == 1
    assert fakes.notice.log_lines == shown
    assert fakes.notice.duration_ms == 60000


def test_the_container_that_stopped_the_task_is_named_with_its_last_lines() -> None:
    described = definition(
        container("router"), container("batch"), container("task-monitor", essential=False)
    )
    environment = [{"name": "TASK_PROFILER_CONTAINER", "value": "batch"}]
    described["containerDefinitions"][2]["environment"] = environment
    lines = {
        BATCH_STREAM: [report(status="stopped", exitCode=143)],
        BATCH_STREAM.replace("/batch/", "/router/"): ["no such output plugin"],
    }
    fakes = StoppedTaskFakes(lines, described)
    ends = [{"name": "batch", "exitCode": 143}, {"name": "router", "exitCode": 1}]
    fakes.handle(task(containers=ends), log_lines=5, report_wait_seconds=0)
    assert fakes.notice.outcome.cause == "sidecar"
    assert fakes.notice.log_lines == ("no such output plugin",)
    said = "router exited with 1 before batch ended, so ECS stopped the task."
    assert said in json.dumps(ended_task_message(fakes.notice, kibana_url=None).blocks)


def test_a_run_starts_again_before_the_lines_of_the_notice_are_read() -> None:
    fakes = StoppedTaskFakes({BATCH_STREAM: LINES})
    fakes.indexed_reports = [report_line(report(status="failure", exitCode=1))]
    fakes.handle(log_lines=5)
    assert (fakes.reads_at_retry, fakes.reads) == (0, 1)
    assert fakes.notice.log_lines


LACK = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. token=s3cr3t-0f-2026"
)


def test_the_log_says_that_a_run_ran_out_of_gpu_memory() -> None:
    lines = ["loading", LACK, *[f"frame {n}" for n in range(50)]]
    failed = report(status="failure", exitCode=1)
    fakes = StoppedTaskFakes({BATCH_STREAM: [*lines, failed]})
    fakes.handle(task(), log_lines=5)
    assert fakes.notice.outcome.cause == "gpu-oom"
    assert fakes.notice.log_lines[-1] == "frame 49"
    assert fakes.reads == 1, "nothing is read for it"
    record = present(fakes.notice.record)
    assert record.likely_out_of_gpu_memory is True
    evidence = present(record.gpu_memory_evidence)
    assert present(evidence.text).startswith("torch.OutOfMemoryError: CUDA out of memory.")
    written = json.dumps([document.fields for document in fakes.documents], default=str)
    assert "CUDA out of memory" in written
    assert "s3cr3t" not in written + present(evidence.text)
    # The forwarder, which writes the report later, finds the same from the event's document.
    event = present(fakes.notice.run.event)
    assert (
        merge_report_and_event(present(fakes.notice.run.report), event).outcome.cause == "gpu-oom"
    )


@pytest.mark.parametrize(
    ("lines", "failed", "detail"),
    [
        ([LACK, *[f"frame {n}" for n in range(100)]], {"exitCode": 1}, {}),  # long ago
        ([LACK], {"exitCode": 137}, {"containers": [{"name": "batch", "exitCode": 137}]}),
        ([LACK], {"exitCode": 1, "gpus": [{"uuid": "GPU-a", "xids": [31]}]}, {}),
        ([LACK], {"status": "success", "exitCode": 0}, {"exitCode": 0}),
    ],
)
def test_other_ends_are_not_explained_by_the_log(
    lines: list[str], failed: dict[str, Any], detail: dict[str, Any]
) -> None:
    line = report(**{"status": "failure", **failed})
    fakes = StoppedTaskFakes({BATCH_STREAM: [*lines, line]})
    detail = dict(detail)
    code = detail.pop("exitCode", None)
    if code is not None:
        detail["containers"] = [{"name": "batch", "exitCode": code}]
    fakes.handle(task(**detail), log_lines=20)
    assert all(run.outcome.cause != "gpu-oom" for run, _ in fakes.exported)


CHANNELS = ("world", "bus", "other")


@given(
    failures=st.lists(st.sets(st.sampled_from(CHANNELS)), max_size=4).map(
        lambda failing: [*failing, set()]
    )
)
def test_each_channel_has_a_run_once_whichever_fail_and_however_often_lambda_retries(
    failures: list[set[str]],
) -> None:
    """Also if the event is delivered again after all: its key is kept."""
    fakes = StoppedTaskFakes({BATCH_STREAM: [report()]})
    others = {name: fake_channel(name) for name in CHANNELS[1:]}
    fakes.other_channels = [*others.values()]
    notified = None
    for failing in [*failures, set()]:
        fakes.errors = {"slack": DeliveryError("world is away")} if "world" in failing else {}
        for name, channel in others.items():
            channel.error = DeliveryError(f"{name} is away") if name in failing else None
        before = {name: len(channel.posted) for name, channel in others.items()}
        before["world"] = len(fakes.notices)
        missing = {name for name in failing if not before[name]}
        told = ""
        try:
            notified = fakes.handle()["notified"]
        except ForwarderError as error:
            told = str(error)
        assert {name for name in CHANNELS if name in told} == missing
    assert notified == "failure"
    assert [len(fakes.notices), *(len(channel.posted) for channel in others.values())] == [1, 1, 1]
    assert len({document.id for document in fakes.documents}) == 1
    assert json.loads(fakes.printed[-1])["notified"] == "failure"


def test_two_invocations_at_once_post_to_each_channel_once() -> None:
    """The second begins while the first posts, and is retried by Lambda."""
    fakes = StoppedTaskFakes({BATCH_STREAM: [report()]})
    raised: list[ForwarderError] = []

    def second(_notification: Notification) -> None:
        if not raised:
            with pytest.raises(invocation.InProgressError) as error:
                fakes.handle()
            raised.append(error.value)

    slow = fake_channel("slow", check=second)
    bus = fake_channel("bus")
    fakes.other_channels = [slow, bus]
    assert fakes.handle()["notified"] == "failure"
    assert len(raised) == len(fakes.notices) == len(slow.posted) == len(bus.posted) == 1
    assert fakes.handle()["notified"] == "failure", "Lambda's retry of the second"
    assert len(fakes.notices) == len(slow.posted) == len(bus.posted) == 1


@pytest.mark.parametrize(
    "denied", ["definition", "logs", "cluster", "table", "retry", "everything"]
)
def test_with_a_part_of_the_rights_the_run_is_told_or_the_event_kept(denied: str) -> None:
    fakes = StoppedTaskFakes({BATCH_STREAM: [report()]})

    def is_denied(part: str) -> bool:
        return denied in (part, "everything")

    refusal = DeliveryError("AccessDenied")
    if is_denied("definition"):
        fakes.described = None
    if is_denied("logs"):
        fakes.lines = {}  # CloudWatchTail warns, and returns no page
    if is_denied("cluster"):
        fakes.errors["cluster"] = refusal
    if is_denied("retry"):
        fakes.errors["retry"] = refusal
    if is_denied("table"):
        fakes.is_table_denied = True
    if denied in ("definition", "logs"):
        assert fakes.handle(report_wait_seconds=0)["notified"] == "failure"
    else:
        with pytest.raises(DeliveryError):
            fakes.handle(report_wait_seconds=0)
    assert bool(fakes.notices) != is_denied("table"), "never twice, so not without the table"
    assert len(fakes.printed) == 1
    assert len(fakes.exported) == 1
    assert fakes.documents or is_denied("cluster")


FORGED = '`[x](https://evil.example)` <!channel> <@U1> " \\ \u202e\x1b[2J\n{}'


def test_forged_texts_of_the_event_stay_texts_everywhere() -> None:
    """In the definition's and the task's names, reasons, groups: whoever starts a task writes
    them.
    """
    forged = task(
        stoppedReason=FORGED,
        startedBy=FORGED,
        group=FORGED,
        clusterArn=f"arn:aws:ecs:us-west-2:111122223333:cluster/{FORGED}",
        taskDefinitionArn=f"arn:aws:ecs:us-west-2:111122223333:task-definition/{FORGED}:5",
        containers=[{"name": "batch", "exitCode": 1, "reason": FORGED, "image": FORGED}],
    )
    fakes = StoppedTaskFakes({BATCH_STREAM: [FORGED]})
    fakes.handle(forged, log_lines=5, report_wait_seconds=0)
    message = ended_task_message(fakes.notice, kibana_url=None)
    sent = json.dumps(msgspec.to_builtins(message))
    for word in ("<!channel>", "<@U1>", "\\u202e", "\\u001b"):
        assert word not in sent
    detail = ended_run_detail(fakes.notice, kibana_url=None)
    assert "](" not in detail.markdown + detail.next_steps
    json.loads(fakes.printed[0])


def test_nothing_leads_to_a_log_stream_that_does_not_exist() -> None:
    """Neither document, notice, event nor the printed line; the log group is still named."""
    fakes = StoppedTaskFakes()
    never_started = task(**NOT_STARTED, stoppedReason="CannotPullContainerError: no such image")
    fakes.handle(never_started)
    assert fakes.notice.console_links(None).log_stream is not None, "the stream may exist"
    fakes = StoppedTaskFakes()
    fakes.reads_without_streams = math.inf
    fakes.handle(never_started)
    assert fakes.notice.console_links(None).log_stream is None
    assert fakes.notice.console_links(None).ecs_task is not None
    assert fakes.notice.log is not None
    (document,) = fakes.documents
    assert "logs" not in document.initial_fields["links"]
    assert "logStream" not in fakes.printed[0]


def test_a_stream_that_exists_at_last_has_its_link() -> None:
    fakes = StoppedTaskFakes({BATCH_STREAM: [report()]})
    fakes.reads_without_streams = 2
    fakes.handle(report_wait_seconds=20)
    assert fakes.notice.has_final_report
    assert fakes.notice.console_links(None).log_stream is not None


def test_a_batch_that_waited_for_another_container_shows_the_lines_of_that_one() -> None:
    init = container("migrate", essential=False)
    fakes = StoppedTaskFakes(described=definition(container("batch"), init))
    fakes.lines = {
        "ecs/migrate/4dd5853f44b341ee8281f38229bee377": ["connecting", "no route <host>"]
    }
    fakes.handle(
        task(
            startedAt=None,
            stopCode="TaskFailedToStart",
            stoppedReason="Task failed to start",
            containers=[{"name": "migrate", "exitCode": 3}, {"name": "batch"}],
        ),
        log_lines=5,
    )
    assert fakes.notice.outcome.cause == "dependency"
    assert fakes.notice.log_lines == ("connecting", "no route <host>")
    message = ended_task_message(fakes.notice, kibana_url=None)
    assert message.text.endswith(": no route &lt;host&gt;")
    assert "*Last lines of the log of migrate*" in json.dumps(message.blocks)
    assert "migrate exited with 3" in json.dumps(message.blocks)


def test_a_failure_is_sent_without_log_lines_that_cannot_be_read() -> None:
    fakes = StoppedTaskFakes({BATCH_STREAM: LINES})
    fakes.indexed_reports = [report_line(report())]
    fakes.log_errors = [
        DeliveryError("CloudWatch Logs did not return the log stream (ThrottlingException).")
    ]
    assert fakes.handle(log_lines=5, report_wait_seconds=0)["notified"] == "failure"
    assert fakes.notice.log_lines == ()
    assert fakes.notice.duration_ms == 60000
    (warning,) = fakes.warnings
    assert warning.endswith(
        "has no log lines. CloudWatch Logs did not return the log stream (ThrottlingException)."
    )


def test_the_notification_and_the_export_of_a_task_on_spot_have_its_price() -> None:
    basis = "us-west-2 FARGATE X86_64 2026-09 on-demand price"
    for provider, usd, of in (
        ("FARGATE_SPOT", 0.006, "at least, on FARGATE_SPOT: 30% of "),
        (None, 0.02, ""),
    ):
        fakes = StoppedTaskFakes({BATCH_STREAM: [report(cost={"usd": 0.02, "priceBasis": basis})]})
        fakes.handle(task(capacityProviderName=provider))
        assert fakes.cost == Cost(usd=usd, price_basis=of + basis)


@pytest.mark.parametrize("stream", [BATCH_STREAM.replace("/batch/", "/xray/"), MONITOR_STREAM])
def test_a_batch_that_ends_before_a_sidecar_has_the_cost_of_the_task(stream: str) -> None:
    """Only the last report of a task contains its cost, so that the documents of the task have
    it once.
    """
    sidecar = container("xray", essential=False)
    described = definition(container("task-monitor", essential=False), sidecar, container("batch"))
    cost = {"usd": 0.0123, "priceBasis": "us-west-2 FARGATE X86_64 2026-09"}
    fakes = StoppedTaskFakes(
        {BATCH_STREAM: [report()], stream: [report(container={"name": "xray"}, cost=cost)]},
        described,
    )
    fakes.handle(
        task(containers=[{"name": "xray", "exitCode": 143}, {"name": "batch", "exitCode": 1}])
    )
    assert fakes.cost == Cost(usd=0.0123, price_basis="us-west-2 FARGATE X86_64 2026-09")
    assert all("cost" not in document.fields for document in fakes.documents)


def test_a_task_with_an_unknown_batch_gets_a_notice_but_no_document() -> None:
    fakes = StoppedTaskFakes(described=None)
    answer = fakes.handle(task(containers=[]))
    assert answer["indexed"] is False
    assert answer["notified"] == "failure"
    assert fakes.documents == []
    (sentence,) = fakes.warnings
    assert "4dd5853f44b341ee8281f38229bee377 is not indexed" in sentence


@pytest.mark.parametrize("listed", [[], [{"name": "task-monitor", "exitCode": 0}]])
def test_a_batch_missing_from_the_event_is_indexed_by_its_name_in_the_definition(
    listed: list[dict[str, Any]],
) -> None:
    reason = "ResourceInitializationError: unable to pull secrets or registry auth"
    never_started = {
        **NOT_STARTED,
        "containers": listed,
        "stoppedReason": reason,
        "executionStoppedAt": None,
    }
    fakes = StoppedTaskFakes()
    assert fakes.handle(task(**never_started)) == {
        "status": "failure",
        "indexed": True,
        "notified": "failure",
    }
    (document,) = fakes.documents
    assert document.index == "task-reports-2026.03"
    assert document.id == "4dd5853f44b341ee8281f38229bee377/batch"
    assert document.initial_fields["container"] == {"name": "batch"}
    assert document.fields["task"]["status"] == "failure"
    assert document.fields["task"]["stop_category"] == "resources"
    assert "duration_ms" not in document.initial_fields.get("usage", {})
    assert fakes.notice.container == "batch"


@each_case("sidecar", [*SIDECARS.values(), ROUTER], ids=lambda sidecar: sidecar["name"])
@each_case(
    ("code", "sidecar_code", "status"),
    [(1, 0, "failure"), (0, 143, "success"), (0, 137, "success")],
)
def test_an_essential_sidecar_does_not_decide_how_the_task_ended(
    sidecar: dict[str, Any], code: int, sidecar_code: int, status: str
) -> None:
    """With what AWS injects, and with the event's containers in another order than the
    definition's.
    """
    fakes = StoppedTaskFakes(
        described=definition(
            sidecar, container("batch"), container("task-monitor", essential=False)
        )
    )
    codes = {
        **{one["name"]: 0 for one in INJECTED},
        "task-monitor": 0,
        "batch": code,
        sidecar["name"]: sidecar_code,
    }
    ended = task(
        containers=[{"name": name, "exitCode": exit_code} for name, exit_code in codes.items()]
    )
    assert fakes.handle(ended) == {"status": status, "indexed": True, "notified": status}
    assert sidecar is ROUTER or f"containers ({sidecar['name']}, batch), which" in fakes.warnings[0]
    (document,) = [one for one in fakes.documents if one.id.endswith("/batch")]
    assert document.fields["task"]["exit_code"] == code
    assert document.fields["event"]["outcome"] == status


def test_logs_that_do_not_respond_raise_before_the_notice_is_posted() -> None:
    fakes = StoppedTaskFakes({BATCH_STREAM: [report()]})
    fakes.log_errors = [DeliveryError("CloudWatch Logs is busy.")] * 10
    with pytest.raises(DeliveryError, match="busy"):
        fakes.handle(report_wait_seconds=4.0)
    assert fakes.notices == []
    assert fakes.documents == []
    assert fakes.table.done == {}
    fakes.log_errors.clear()
    assert fakes.handle()["notified"] == "failure"


@pytest.mark.parametrize(("failures", "pauses"), [(2, [4.0, 4.0]), (99, [4.0, 4.0, 4.0])])
def test_throttling_is_waited_for_and_fails_no_invocation(
    failures: int, pauses: list[float]
) -> None:
    """Also without a monitor: the batch may be wrapped by ``run``."""
    fakes = StoppedTaskFakes({BATCH_STREAM: [report()]}, WITHOUT_MONITOR)
    fakes.log_errors = [invocation.ThrottledError("Too many.")] * failures
    assert fakes.handle(report_wait_seconds=12.0)["notified"] == "failure"
    assert fakes.time.pauses == pauses
    assert fakes.notice.has_final_report == (failures == 2)
    assert len(fakes.warnings) == (failures > 2)


@pytest.mark.parametrize(
    ("described", "detail", "settings", "reads"),
    [
        (WITHOUT_MONITOR, {"group": "service:web"}, {}, 0),
        (WITHOUT_MONITOR, {"group": "service:web"}, {"services": True}, 1),
        (WITHOUT_MONITOR, {"group": "service:web"}, {"services": True, "families": ("other",)}, 0),
        (WITHOUT_MONITOR, {}, {"families": ("other",)}, 1),
        (WITH_MONITOR, {"group": "service:web"}, {"report_wait_seconds": 0}, 2),
    ],
)
def test_the_log_of_a_service_without_a_monitor_is_read_for_its_notice_alone(
    described: Any, detail: dict[str, Any], settings: dict[str, Any], reads: int
) -> None:
    fakes = StoppedTaskFakes(described=described)
    fakes.handle(task(**detail), **settings)
    assert fakes.reads == reads
    assert fakes.time.pauses == []
    assert len(fakes.documents) == 1


# Any event


ODD_TIMES = (
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "10000-01-01T00:00:00Z",
)
TIMES = st.sampled_from(
    [None, "2026-03-01T10:11:29.1Z", "9999-12-31T23:59:59.999-14:00", *ODD_TIMES]
)
TEXTS = (
    st.none()
    | st.text(st.characters(codec=None), max_size=20)
    | st.sampled_from(["\ud800", "x" * 600, ""])
)
EXIT_CODES = (
    st.none() | st.integers() | st.sampled_from([0, 1, 137, 2**31, 2**70, -(2**70), True, 1.5, "1"])
)
ANYTHING = (
    TEXTS
    | EXIT_CODES
    | TIMES
    | st.lists(TEXTS, max_size=2)
    | st.dictionaries(st.text(max_size=3), TEXTS, max_size=2)
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["batch", "task-monitor", "proxy", "\udcff"]) | ANYTHING}
    )
    | st.fixed_dictionaries({"name": st.just("batch"), "exitCode": EXIT_CODES, "reason": TEXTS}),
    max_size=3,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(EVENT["detail"].keys() - {"taskArn"}, ANYTHING),
    **dict.fromkeys(
        (
            "createdAt",
            "pullStartedAt",
            "pullStoppedAt",
            "startedAt",
            "executionStoppedAt",
            "stoppedAt",
        ),
        TIMES | ANYTHING,
    ),
    **dict.fromkeys(
        ("stopCode", "stoppedReason", "startedBy", "group", "launchType", "clusterArn"),
        TEXTS | ANYTHING,
    ),
    "containers": CONTAINERS | ANYTHING,
    "lastStatus": st.sampled_from(["STOPPED", "STOPPED", "STOPPED", "RUNNING"]) | ANYTHING,
}
EVENTS = st.fixed_dictionaries({}, optional=FIELDS).map(lambda detail: event(**detail))
FAILING = st.sampled_from(["", "cluster", "refused", "slack", "other", "cluster and slack"])
TIMELESS = event(
    containers=[], **dict.fromkeys(name for name in EVENT["detail"] if name.endswith("At"))
)


@settings(deadline=None)
@given(event=EVENTS, failing=FAILING, is_described=st.booleans(), has_report=st.booleans())
@example(event=TIMELESS, failing="", is_described=True, has_report=True)
def test_every_event_is_indexed_raises_or_is_named_in_a_warning(
    event: dict[str, Any], failing: str, *, is_described: bool, has_report: bool
) -> None:
    task = parse_stopped_task(event)
    if task is None:
        assert event["detail"]["lastStatus"] != "STOPPED"
        return
    fakes, other = (
        StoppedTaskFakes({BATCH_STREAM: [report()]} if has_report else {}),
        fake_channel("other"),
    )
    fakes.other_channels = [other]
    fakes.described = fakes.described if is_described else None
    errors = {
        "cluster": SearchClusterError("away", status=None),
        "slack": DeliveryError("Slack is away."),
    }
    fakes.errors = {name: error for name, error in errors.items() if name in failing}
    fakes.rejected = (FailedItem({}, "bad mapping"),) if failing == "refused" else ()
    other.error = DeliveryError("The bus is away.") if failing == "other" else None
    raised, indexed = "", False
    try:
        indexed = fakes.handle(task, services=True, report_wait_seconds=0.0)["indexed"] is True
    except ForwarderError as error:
        raised = str(error)
    is_named = any(task.id in sentence for sentence in fakes.warnings)
    assert indexed or raised or is_named
    assert (task.duration_ms or 0) >= 0
    assert is_named or bool(fakes.documents) or "away" in raised
    assert bool(fakes.notices) != ("Slack is away." in raised)
    assert bool(other.posted) != ("The bus is away." in raised)
    ((ended, _),) = fakes.exported
    check(exported_run(ended, 1))
    msgspec.json.encode(
        bulk_lines(fakes.documents)
    )  # valid JSON and UTF-8, whatever the event contained
    for document in fakes.documents:
        assert document.index.startswith("task-reports-20")
        task_fields = document.initial_fields["task"]
        assert -(2**31) <= task_fields.get("exit_code", 0) < 2**31
        assert task_fields["status"] in {"success", "failure", "stopped", "unknown"}
