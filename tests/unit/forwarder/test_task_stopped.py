"""The handling of stopped tasks: document and notice, with fakes for all external services."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from forwarder.delivery_errors import DeliveryError, ForwarderError, SearchClusterError, SettingsError
from forwarder.documents import Document
from forwarder.function_settings import NoticeSettings
from forwarder.notices.channel import Announcement, ChannelKind, NoticeChannel, announcement_key
from forwarder.notices.ended_task import Comparison, EndedTask, UnusualMeasure
from forwarder.notices.family_comparison import compare
from forwarder.search_cluster.document_delivery import DeliveryResult
from forwarder.search_cluster.failure_store import Failure
from forwarder.task.batch_log_stream import LogStream
from forwarder.task.find_report import ReportFinder, ReportLine
from forwarder.task.stop_classification import Outcome
from forwarder.task.task_event import EventContainer, StoppedTask
from forwarder.task_lines import read_line
from forwarder.task_stopped import Index, TaskStoppedHandler
from profiler.record.notice_model import encode_notice
from profiler.record.record_model import Container, Distribution, Metrics, Processor, Record, Report
from tests.fakes import FakeInvocationTime
from tests.shown_runs import stuck_notice, waiting_stacks
from tests.unit.forwarder.task.test_task_event import ARN, container, definition, task

BATCH_STREAM = "ecs/batch/4dd5853f44b341ee8281f38229bee377"
MONITOR_STREAM = "ecs/task-monitor/4dd5853f44b341ee8281f38229bee377"
WITH_MONITOR = definition(container("task-monitor", essential=False), container("batch"))
WITHOUT_MONITOR = definition(container("batch"))


def report(kind: str = "task.report", **record: Any) -> str:
    metrics = {
        "durationMs": 60000,
        "cpuUtilizationPercent": {"avg": 50.0, "max": 90.0},
        "memoryUtilizationPercent": {"avg": 40.0, "max": 97.0},
        "memorySizeMB": 512,
        "maxMemoryUsedMB": 500,
    }
    whole = {
        "taskId": "4dd5853f44b341ee8281f38229bee377",
        "family": "nightly",
        "container": {"name": "batch"},
        "status": "failure",
        "exitCode": 1,
        "startedAt": "2026-03-01T10:11:28Z",
        "metrics": metrics,
        **record,
    }
    return json.dumps({"time": "2026-03-01T10:12:33Z", "type": kind, "record": whole})


AS_EVER = Comparison(text="As long as ever.")


class World:
    """Fakes of everything that TaskStoppedHandler uses."""

    def __init__(
        self, lines: dict[str, list[str]] | None = None, described: Mapping[str, Any] | None = WITH_MONITOR
    ) -> None:
        self.lines = lines or {}
        self.described = described
        self.time = FakeInvocationTime(300)
        self.documents: list[Document] = []
        self.notices: list[tuple[EndedTask, str]] = []
        self.cluster_error: DeliveryError | None = None
        self.slack_error: DeliveryError | None = None
        self.index_error: SettingsError | None = None
        self.channel_error: SettingsError | None = None
        self.compare_error: ForwarderError | None = None
        self.comparison = AS_EVER
        self.rejected: tuple[Failure, ...] = ()
        self.log_errors: list[DeliveryError] = []
        self.reads = 0
        self.other_channels: list[NoticeChannel] = []
        self.done: set[str] = set()
        self.warnings: list[str] = []
        self.exported: list[tuple[EndedTask, int]] = []
        self.indexed_reports: list[ReportLine | SearchClusterError | None] | None = None

    def newest(self, place: LogStream) -> Iterator[str]:
        self.reads += 1
        if self.log_errors:
            raise self.log_errors.pop(0)
        return reversed(self.lines.get(place.stream, []))

    @property
    def runs(self) -> set[str]:
        """The ids of the written documents."""
        return {document.id for document in self.documents}

    def index(self) -> Index:
        if self.index_error is not None:
            raise self.index_error
        find = None if self.indexed_reports is None else self.find
        return Index(prefix="task", deliver=self.deliver, find=find, compare=self.compare)

    def find(self, task: StoppedTask, batch: EventContainer) -> ReportLine | None:
        """Return the next report, and repeat the last one."""
        assert self.indexed_reports
        found = self.indexed_reports.pop(0) if len(self.indexed_reports) > 1 else self.indexed_reports[0]
        if isinstance(found, SearchClusterError):
            raise found
        return found

    def once(self, key: str, work: Callable[[], bool]) -> bool:
        if key not in self.done:
            work()
            self.done.add(key)
        return True

    name = "world"
    is_selective = True

    def channels(self, settings: NoticeSettings) -> list[NoticeChannel]:
        return [self, *self.other_channels]

    def accepts(self, kind: ChannelKind) -> bool:
        if self.channel_error is not None:
            raise self.channel_error
        return True

    def compare(self, notice: EndedTask) -> Comparison | None:
        if self.compare_error is not None:
            raise self.compare_error
        return self.comparison

    def describe(self, arn: str) -> Mapping[str, object] | None:
        assert arn.endswith("nightly:5")
        return self.described

    def deliver(self, documents: Sequence[Document]) -> DeliveryResult:
        if self.cluster_error is not None:
            raise self.cluster_error
        self.documents += documents
        return DeliveryResult(indexed=len(documents) - len(self.rejected), rejected=self.rejected)

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:
        assert isinstance(announcement, EndedTask)
        if self.slack_error is not None:
            raise self.slack_error
        self.notices.append((announcement, kind))

    def handle(
        self, ended: StoppedTask | None = None, *, cluster: bool = True, **settings: Any
    ) -> Mapping[str, object]:
        handling = TaskStoppedHandler(
            lambda: NoticeSettings(**settings),
            describe=self.describe,
            run_log=lambda task, name: ReportFinder(self.newest, self.time, task.id, name),
            index=lambda: self.index() if cluster else None,
            channels=self.channels,
            once=lambda _settings: self.once,
            export=lambda ended: self.exported.append((ended, len(self.notices))),
            warn=self.warnings.append,
        )
        return handling.handle(ended or task()).as_response()


def test_the_report_in_the_batch_stream_provides_the_numbers() -> None:
    world = World({BATCH_STREAM: ["a line", report(), "another"]})
    assert world.handle() == {"status": "failure", "indexed": True, "notified": "failure"}
    ((notice, kind),) = world.notices
    assert (kind, notice.family, notice.task.revision, notice.outcome.exit_code) == ("failure", "nightly", "5", 1)
    assert (notice.duration_ms, notice.metrics.cpu_utilization_percent) == (60000, Distribution(avg=50.0, max=90.0))
    assert notice.is_complete
    numbers, own = world.documents
    assert (numbers.index, numbers.id) == (own.index, own.id) == ("task-reports-2026.03", f"{task().id}/batch")
    assert numbers.fields["task"]["complete"] is True
    assert own.fields["task"]["stop_code"] == "EssentialContainerExited"
    assert world.time.pauses == []


def test_the_report_in_the_monitor_stream_is_used() -> None:
    world = World({MONITOR_STREAM: [report("task.checkpoint"), report()]})
    world.handle()
    assert world.notices[0][0].is_complete


def test_the_last_checkpoint_is_used_after_the_wait() -> None:
    world = World(
        {MONITOR_STREAM: [report("task.checkpoint", metrics={"maxMemoryUsedMB": 7}), report("task.checkpoint")]}
    )
    world.handle(report_wait_seconds=5.0)
    assert world.time.pauses == [2.0, 2.0, 1.0]
    notice = world.notices[0][0]
    assert not notice.is_complete
    assert (notice.metrics.max_memory_used_mb, notice.duration_ms) == (500, 63216)
    (document,) = world.documents
    assert document.fields == {
        "task": {
            "status": "failure",
            "exit_code": 1,
            "stop_code": "EssentialContainerExited",
            "stop_category": "exit",
            "started_by": "chronos-schedule/nightly",
            "out_of_memory": False,
        },
        "event": {"outcome": "failure"},
    }
    assert document.upsert is not None
    assert document.upsert["usage"]["memory"]["used_mb"]["max"] == 500
    assert document.upsert["usage"]["duration_ms"] == 63216
    assert document.upsert["task"]["complete"] is False
    assert document.upsert["event"]["dataset"] == "task.report"
    assert document.upsert["@timestamp"] == "2026-03-01T10:12:32.316Z"


def test_without_report_and_checkpoint_the_notice_has_only_the_event() -> None:
    world = World(described=WITHOUT_MONITOR)
    assert world.handle() == {"status": "failure", "indexed": True, "notified": "failure"}
    assert world.time.pauses == []
    assert world.notices[0][0].duration_ms == 63216
    assert (world.documents[0].index, world.documents[0].id) == (
        "task-reports-2026.03",
        "4dd5853f44b341ee8281f38229bee377/batch",
    )


def test_without_an_end_of_execution_only_the_duration_is_unknown() -> None:
    world = World(described=WITHOUT_MONITOR)
    world.handle(task(executionStoppedAt=None))
    assert world.notices[0][0].duration_ms is None
    document = world.documents[0].upsert
    assert document is not None
    assert "usage" not in document
    assert "duration" not in document["event"]
    assert document["event"]["end"] == document["@timestamp"] == "2026-03-01T10:12:56.341Z"


def test_a_task_that_never_started_causes_no_wait() -> None:
    world = World()
    world.handle(task(startedAt=None, stopCode="TaskFailedToStart", containers=[{"name": "batch"}]))
    assert world.time.pauses == []


@pytest.mark.parametrize(
    "described", [None, definition({"name": "task-monitor", "essential": False}, {"name": "batch"})]
)
def test_unknown_log_streams_cause_no_wait(described: Mapping[str, Any] | None) -> None:
    world = World(described=described)
    world.handle(task(containers=[{"name": "batch", "exitCode": 0}, {"name": "task-monitor"}]))
    assert (world.time.pauses, world.reads) == ([], 0)
    assert len(world.runs) == len(world.notices) == 1


@pytest.mark.parametrize("silent", ["task-monitor", "batch"])
def test_one_known_log_stream_is_enough_to_wait(silent: str) -> None:
    known = [container("task-monitor", essential=False), container("batch")]
    for one in known:
        if one["name"] == silent:
            del one["logConfiguration"]
    world = World(described=definition(*known))
    world.handle(report_wait_seconds=4.0)
    assert world.time.pauses == [2.0, 2.0]


def test_the_wait_ends_ten_seconds_before_the_invocation() -> None:
    world = World()
    world.time.left = 15
    world.handle(report_wait_seconds=60.0)
    assert sum(world.time.pauses) <= 5


def test_reports_of_other_containers_and_tasks_are_ignored() -> None:
    world = World({BATCH_STREAM: [report(taskId="other"), report(container={"name": "proxy"})]})
    world.handle(report_wait_seconds=0.0)
    assert not world.notices[0][0].is_complete


def test_a_cluster_that_rejects_everything_does_not_prevent_the_notice() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.cluster_error = SearchClusterError("The cluster is away.", status=None)
    with pytest.raises(DeliveryError, match="The cluster is away"):
        world.handle()
    assert len(world.notices) == 1


def test_a_slack_failure_does_not_prevent_the_document() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.slack_error = DeliveryError("Slack is away.")
    with pytest.raises(DeliveryError, match="Slack is away"):
        world.handle()
    assert len(world.runs) == 1


def test_invalid_cluster_settings_do_not_prevent_the_notice() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.index_error = SettingsError("The secret of the cluster cannot be read.")
    with pytest.raises(SettingsError, match=r"^The secret of the cluster cannot be read\.$"):
        world.handle()
    ((notice, kind),) = world.notices
    assert (kind, notice.outcome.exit_code, notice.comparison) == ("failure", 1, None)


def test_invalid_slack_settings_do_not_prevent_the_document() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.channel_error = SettingsError("The secret of Slack cannot be read.")
    with pytest.raises(SettingsError, match=r"^The secret of Slack cannot be read\.$"):
        world.handle()
    assert len(world.runs) == 1


def test_slack_settings_are_not_read_for_unselected_tasks() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.channel_error = SettingsError("The secret of Slack cannot be read.")
    assert world.handle(families=("weekly",)) == {"status": "failure", "indexed": True, "notified": None}


def test_invalid_notice_settings_do_not_prevent_the_document() -> None:
    world = World({BATCH_STREAM: [report()]})

    def wrong() -> NoticeSettings:
        raise SettingsError("NOTIFY must be.")

    handling = TaskStoppedHandler(
        wrong,
        describe=world.describe,
        run_log=lambda task, name: ReportFinder(world.newest, world.time, task.id, name),
        index=world.index,
        channels=world.channels,
    )
    with pytest.raises(SettingsError, match="NOTIFY must be"):
        handling.handle(task())
    assert (len(world.runs), world.notices) == (1, [])


def test_two_failures_raise_one_error() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.index_error = SettingsError("The address is none.")
    world.slack_error = DeliveryError("Slack is away.")
    with pytest.raises(DeliveryError, match=r"^The address is none\. Slack is away\.$"):
        world.handle()


def test_a_failed_comparison_is_left_out_of_the_notice() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.compare_error = ForwarderError("no")
    assert world.handle() == {"status": "failure", "indexed": True, "notified": "failure"}
    assert world.notices[0][0].comparison is None
    world.compare_error = None
    world.done.clear()
    world.handle()
    assert world.notices[1][0].comparison == AS_EVER


UNUSUAL = Comparison(text="", unusual=(UnusualMeasure(metric="cpuSeconds", value=0, usual=900),) * 2)


@pytest.mark.parametrize(
    ("comparison", "settings", "notified"),
    [
        (UNUSUAL, {}, "success"),
        (UNUSUAL, {"unusual_as_failures": True}, "failure"),
        (UNUSUAL, {"unusual_as_failures": True, "subjects": frozenset({"failure"})}, "failure"),
        (UNUSUAL, {"unusual_as_failures": True, "subjects": frozenset({"success"})}, "failure"),
        (UNUSUAL, {"unusual_as_failures": True, "subjects": frozenset({"running"})}, None),
        (UNUSUAL, {"unusual_as_failures": True, "families": ("weekly",)}, None),
        (UNUSUAL, {"subjects": frozenset({"failure"})}, None),
        (AS_EVER, {"unusual_as_failures": True}, "success"),
        (AS_EVER, {"unusual_as_failures": True, "subjects": frozenset({"failure"})}, None),
    ],
)
def test_a_success_unlike_its_family_is_announced_as_a_failure_if_wanted(
    comparison: Comparison, settings: dict[str, Any], notified: str | None
) -> None:
    world = World({BATCH_STREAM: [report(status="success", exitCode=0)]})
    world.comparison = comparison
    succeeded = task(containers=[{"name": "batch", "exitCode": 0}, {"name": "task-monitor", "exitCode": 0}])
    assert world.handle(succeeded, **settings) == {"status": "success", "indexed": True, "notified": notified}
    assert [kind for _, kind in world.notices] == ([] if notified is None else [notified])


def report_line(**record: Any) -> ReportLine:
    line = report(**record)
    parsed = read_line(line)
    assert isinstance(parsed, Report)
    return ReportLine(parsed, line)


def test_an_indexed_report_needs_no_log_stream() -> None:
    world = World()
    world.indexed_reports = [report_line()]
    assert world.handle() == {"status": "failure", "indexed": True, "notified": "failure"}
    assert (world.reads, world.time.pauses) == (0, [])
    assert world.notices[0][0].is_complete
    assert world.documents[0].fields["task"]["complete"] is True


def test_the_cluster_is_queried_until_the_report_is_indexed() -> None:
    world = World()
    world.indexed_reports = [None, None, report_line()]
    world.handle()
    assert (world.reads, world.time.pauses) == (0, [2.0, 2.0])
    assert world.notices[0][0].is_complete


def test_the_log_streams_are_read_once_if_the_report_is_not_indexed() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.indexed_reports = [None]
    world.handle(report_wait_seconds=5.0)
    assert (world.reads, world.time.pauses) == (1, [2.0, 2.0, 1.0])
    assert world.notices[0][0].is_complete


def test_without_a_response_from_the_cluster_the_wait_is_spent_on_the_log_streams() -> None:
    world = World()
    world.indexed_reports = [SearchClusterError("away", status=None)]
    world.handle(report_wait_seconds=4.0)
    assert world.time.pauses == [2.0, 2.0]
    assert world.reads == 7  # both streams three times, and the checkpoints


def test_a_task_without_a_monitor_is_looked_up_once() -> None:
    world = World(described=WITHOUT_MONITOR)
    world.indexed_reports = [None]
    world.handle()
    assert (world.reads, world.time.pauses) == (1, [])


class OtherChannel:
    """Another channel next to Slack."""

    def __init__(self, name: str = "other", *, is_selective: bool = True) -> None:
        self.name = name
        self.is_selective = is_selective
        self.error: ForwarderError | None = None
        self.posted: list[str] = []

    def accepts(self, kind: ChannelKind) -> bool:
        return True

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:
        if self.error is not None:
            raise self.error
        self.posted.append(announcement_key(announcement).rpartition("/")[2])


def test_a_failed_channel_raises_after_the_other_channels_posted() -> None:
    world, other = World({BATCH_STREAM: [report()]}), OtherChannel()
    world.other_channels = [other]
    world.slack_error = DeliveryError("Slack is away.")
    with pytest.raises(DeliveryError, match=r"^Slack is away\.$"):
        world.handle()
    assert (len(world.notices), len(other.posted), len(world.runs)) == (0, 1, 1)


def test_a_retry_repeats_only_the_channel_that_failed() -> None:
    world, other = World({BATCH_STREAM: [report()]}), OtherChannel()
    world.other_channels = [other]
    other.error = DeliveryError("The bus is away.")
    with pytest.raises(DeliveryError, match="The bus is away"):
        world.handle()
    other.error = None
    assert world.handle()["notified"] == "failure"
    assert (len(world.notices), len(other.posted)) == (1, 1)
    assert world.done == {f"{ARN}#world", f"{ARN}#other"}


def test_failures_of_all_channels_raise_one_error() -> None:
    world, other = World({BATCH_STREAM: [report()]}), OtherChannel()
    world.other_channels = [other]
    world.slack_error, other.error = DeliveryError("Slack is away."), DeliveryError("The bus is away.")
    with pytest.raises(DeliveryError, match=r"^Slack is away\. The bus is away\.$"):
        world.handle()


def test_a_non_selective_channel_receives_unselected_tasks() -> None:
    world, line = World({BATCH_STREAM: [report()]}), OtherChannel("log", is_selective=False)
    world.other_channels = [line]
    assert world.handle(families=("weekly",))["notified"] is None
    assert (len(world.notices), len(line.posted)) == (0, 1)


LINES = ["one", "two", "three", report(), report("task.checkpoint"), "REPORT TaskId: 4dd5\tDuration: 1 ms", "{}"]


@pytest.mark.parametrize(("count", "shown"), [(0, ()), (2, ("three", "{}")), (20, ("one", "two", "three", "{}"))])
def test_a_failure_shows_the_last_lines_of_the_batch(count: int, shown: tuple[str, ...]) -> None:
    world = World({BATCH_STREAM: LINES})
    world.handle(log_lines=count)
    assert world.notices[0][0].log_lines == shown


def test_call_stacks_and_notices_before_the_report_are_neither_in_its_way_nor_shown() -> None:
    stacks = msgspec.json.encode(waiting_stacks()).decode()
    world = World({BATCH_STREAM: ["one", encode_notice(stuck_notice()).decode(), stacks, report()]})
    world.handle(log_lines=5)
    ((notice, _),) = world.notices
    assert (world.reads, notice.log_lines, notice.duration_ms) == (2, ("one",), 60000)


@pytest.mark.parametrize("detail", [{"containers": [{"name": "batch", "exitCode": 0}]}, {"stopCode": "UserInitiated"}])
def test_only_a_failure_shows_log_lines(detail: dict[str, Any]) -> None:
    world = World({BATCH_STREAM: LINES})
    world.handle(task(**detail), log_lines=5)
    assert world.notices[0][0].log_lines == ()


def test_a_task_that_is_not_indexed_is_named_in_a_warning() -> None:
    world = World(described=None)
    world.handle(task(containers=[]))
    (sentence,) = world.warnings
    assert "4dd5853f44b341ee8281f38229bee377 is not indexed" in sentence


def test_a_rejected_document_is_an_error() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.rejected = (Failure({}, "bad mapping"),)
    with pytest.raises(DeliveryError, match="bad mapping"):
        world.handle()


def test_without_a_cluster_the_notice_is_posted() -> None:
    world = World({BATCH_STREAM: [report()]})
    assert world.handle(cluster=False) == {"status": "failure", "indexed": False, "notified": "failure"}


@pytest.mark.parametrize(
    ("detail", "settings", "notified"),
    [
        ({}, {}, "failure"),
        ({"containers": [{"name": "batch", "exitCode": 0}]}, {}, "success"),
        ({"containers": [{"name": "batch", "exitCode": 0}]}, {"subjects": frozenset({"failure"})}, None),
        ({"stopCode": "UserInitiated"}, {"subjects": frozenset({"failure"})}, "failure"),
        ({}, {"families": ("week*", "night*")}, "failure"),
        ({}, {"families": ("week*",)}, None),
        ({"group": "service:web"}, {}, None),
        ({"group": "service:web"}, {"services": True}, "failure"),
    ],
)
def test_the_settings_select_the_tasks_that_get_a_notice(
    detail: dict[str, Any], settings: dict[str, Any], notified: str | None
) -> None:
    world = World(described=WITHOUT_MONITOR)
    assert world.handle(task(**detail), **settings)["notified"] == notified
    assert len(world.runs) == 1


def test_a_task_with_an_unknown_batch_gets_a_notice_but_no_document() -> None:
    world = World(described=None)
    answer = world.handle(task(containers=[]))
    assert (answer["indexed"], answer["notified"]) == (False, "failure")
    assert world.documents == []


@pytest.mark.parametrize("listed", [[], [{"name": "task-monitor", "exitCode": 0}]])
def test_a_batch_missing_from_the_event_is_indexed_by_its_name_in_the_definition(listed: list[dict[str, Any]]) -> None:
    never_started = {
        "containers": listed,
        "stopCode": "TaskFailedToStart",
        "stoppedReason": "ResourceInitializationError: unable to pull secrets or registry auth",
        "startedAt": None,
        "executionStoppedAt": None,
    }
    world = World()
    assert world.handle(task(**never_started)) == {"status": "failure", "indexed": True, "notified": "failure"}
    (document,) = world.documents
    assert (document.index, document.id) == ("task-reports-2026.03", "4dd5853f44b341ee8281f38229bee377/batch")
    assert document.upsert is not None
    assert document.upsert["container"] == {"name": "batch"}
    assert (document.fields["task"]["status"], document.fields["task"]["stop_category"]) == ("failure", "resources")
    assert "duration_ms" not in document.upsert.get("usage", {})
    assert world.notices[0][0].container == "batch"


def ended(duration_ms: float | None, *, processor: Processor | None = None, **of_task: Any) -> EndedTask:
    metrics = Metrics(duration_ms=duration_ms)
    record = Record(task_id="1", container=Container(name="batch"), metrics=metrics, processor=processor)
    fields = {"arn": "1", "definition_arn": "nightly:1", **of_task}
    return EndedTask(
        task=StoppedTask(**fields),
        outcome=Outcome(status="success", category="exit", out_of_memory=False),
        report_line=ReportLine(Report(time="", type="task.report", record=record), ""),
    )


class FakeCluster:
    """A search cluster with successful runs of these durations, some of them in the ECS cluster ``jobs``."""

    def __init__(
        self,
        durations: list[float],
        error: SearchClusterError | None = None,
        in_jobs: int = 0,
        models: Sequence[str | None] = (),
    ) -> None:
        self._durations = durations
        self._models = models or [None] * len(durations)
        self._error = error
        self._in_jobs = in_jobs
        self.body: Mapping[str, Any] = {}

    def search(self, index: str, body: Mapping[str, object], timeout_seconds: float) -> Mapping[str, object]:
        if self._error is not None:
            raise self._error
        assert index == "task-reports-*"
        self.body = body
        sources = [
            {
                "usage": {"duration_ms": value},
                "orchestrator": {"cluster": {"name": "jobs" if number < self._in_jobs else "test"}},
                **({} if model is None else {"host": {"cpu": {"model": model}}}),
            }
            for number, (value, model) in enumerate(zip(self._durations, self._models, strict=True))
        ]
        return {"hits": {"hits": [{"_source": source} for source in sources]}}

    def bulk(self, documents: Sequence[Document], timeout_seconds: float) -> Any:
        raise NotImplementedError

    def get(self, index: str, document_id: str, timeout_seconds: float) -> Mapping[str, object] | None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("durations", "duration", "sentence"),
    [
        ([1000.0] * 20, 3100, "3.1× longer than the median of the last 20 successful runs."),
        ([1000.0] * 5, 400, "2.5× shorter than the median of the last 5 successful runs."),
        ([1000.0] * 5, 1100, "About as long as the median of the last 5 successful runs."),
    ],
)
def test_the_comparison_with_recent_runs(durations: list[float], duration: float, sentence: str) -> None:
    comparison = compare(FakeCluster(durations), ended(duration), prefix="task")
    assert comparison == Comparison(text=sentence, is_slow=duration > 3000)


@pytest.mark.parametrize(
    ("durations", "duration"), [([1000.0] * 4, 9000), ([], 9000), ([0.0] * 20, 9000), ([1000.0] * 20, None)]
)
def test_without_a_duration_or_enough_runs_there_is_no_comparison(
    durations: list[float], duration: float | None
) -> None:
    assert compare(FakeCluster(durations), ended(duration), prefix="task") is None


XEON_8259CL = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"
XEON_8375C = "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"


@pytest.mark.parametrize(
    ("own", "last_success", "words"),
    [
        (XEON_8259CL, XEON_8375C, " It ran on Xeon 8259CL, the last success on 8375C."),
        (XEON_8259CL, XEON_8259CL, ""),
        (None, XEON_8375C, ""),
        (XEON_8259CL, None, ""),
    ],
)
def test_a_processor_other_than_that_of_the_last_success_is_named(
    own: str | None, last_success: str | None, words: str
) -> None:
    """The first answer of the search is the last success; what the runs before it ran on does not count."""
    cluster = FakeCluster([1000.0] * 6, models=[last_success, *["Neoverse-N1"] * 5])
    comparison = compare(cluster, ended(1000, processor=Processor(model=own)), prefix="task")
    assert comparison is not None
    assert comparison.text == "About as long as the median of the last 6 successful runs." + words
    assert "host.cpu.model" in cluster.body["_source"]


@pytest.mark.parametrize(
    ("in_jobs", "sentence"),
    [
        (5, "About as long as the median of the last 5 successful runs."),
        (4, "4.0× shorter than the median of the last 12 successful runs."),
    ],
)
def test_recent_runs_in_the_same_cluster_are_preferred(in_jobs: int, sentence: str) -> None:
    runs = FakeCluster([1000.0] * in_jobs + [4000.0] * (12 - in_jobs), in_jobs=in_jobs)
    assert compare(runs, ended(1000, cluster="jobs"), prefix="task") == Comparison(text=sentence)


def test_recent_runs_are_those_of_the_same_account_and_region() -> None:
    cluster = FakeCluster([])
    arn = "arn:aws:ecs:eu-west-1:111122223333:task/jobs/1"
    compare(cluster, ended(5, arn=arn, region="eu-west-1"), prefix="task")
    terms = cluster.body["query"]["bool"]["filter"]
    assert {"term": {"cloud.account.id": "111122223333"}} in terms
    assert {"term": {"cloud.region": "eu-west-1"}} in terms


def test_without_a_response_from_the_cluster_there_is_no_comparison() -> None:
    cluster = FakeCluster([], SearchClusterError("away", status=None))
    assert compare(cluster, ended(5), prefix="task") is None


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"hits": None},
        {"hits": {"hits": None}},
        {"hits": {"hits": ["no object"]}},
        {"hits": {"hits": [{"_source": {"usage": None}}] * 9}},
        {"hits": {"hits": [{"_source": {"usage": {"duration_ms": "long"}}}] * 9}},
        {"hits": {"hits": [{}] * 9}},
        {"hits": {"hits": [{"_source": {"host": {"cpu": "fast"}, "usage": {}}}] * 9}},
    ],
)
def test_an_unexpected_search_response_gives_no_comparison(answer: dict[str, Any]) -> None:
    class Odd(FakeCluster):
        def search(self, index: str, body: Mapping[str, object], timeout_seconds: float) -> Mapping[str, object]:
            return answer

    assert compare(Odd([]), ended(5), prefix="task") is None


XRAY_AND_BATCH = definition(container("xray-daemon"), container("batch"), container("task-monitor", essential=False))


def test_a_failed_batch_next_to_an_essential_sidecar_is_announced_as_a_failure() -> None:
    """The X-Ray daemon comes first in the definition and ends with 0 after ECS stops it."""
    world = World(described=XRAY_AND_BATCH)
    ended = task(containers=[{"name": "xray-daemon", "exitCode": 0}, {"name": "batch", "exitCode": 1}])
    assert world.handle(ended) == {"status": "failure", "indexed": True, "notified": "failure"}
    ((notice, _),) = world.notices
    assert (notice.container, notice.outcome.exit_code, notice.log and notice.log.stream) == ("batch", 1, BATCH_STREAM)
    assert world.documents[-1].id == "4dd5853f44b341ee8281f38229bee377/batch"
    (warning,) = world.warnings
    assert "xray-daemon, batch" in warning
    assert "TASK_PROFILER_CONTAINER" in warning


def test_throttled_log_reads_are_repeated() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.log_errors = [DeliveryError("CloudWatch Logs is busy.")]
    assert world.handle(report_wait_seconds=4.0)["notified"] == "failure"
    assert world.notices[0][0].is_complete


def test_logs_that_stay_throttled_raise_before_the_notice_is_posted() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.log_errors = [DeliveryError("CloudWatch Logs is busy.")] * 10
    with pytest.raises(DeliveryError, match="busy"):
        world.handle(report_wait_seconds=4.0)
    assert (world.notices, world.documents, world.done) == ([], [], set())
    world.log_errors.clear()
    assert world.handle()["notified"] == "failure"


@pytest.mark.parametrize("settings", [{}, {"subjects": frozenset({"success"})}, {"families": ("other",)}])
def test_every_ended_run_is_exported_last(settings: dict[str, Any]) -> None:
    world = World({BATCH_STREAM: [report()]})
    world.handle(cluster=False, **settings)
    ((ended, notices),) = world.exported
    assert (ended.is_complete, notices) == (True, len(world.notices))


def test_a_run_is_exported_although_everything_else_fails() -> None:
    world = World({BATCH_STREAM: [report()]})
    world.cluster_error = SearchClusterError("The cluster is away.", status=None)
    world.slack_error = DeliveryError("Slack is away.")
    with pytest.raises(DeliveryError):
        world.handle()
    assert len(world.exported) == 1


def test_the_docker_labels_of_the_batch_are_known() -> None:
    batch = {**container("batch"), "dockerLabels": {"TRACEPARENT": "00-…", "number": 1}}
    world = World(described=definition(container("task-monitor", essential=False), batch))
    world.handle(report_wait_seconds=0.0)
    assert world.exported[0][0].labels == {"TRACEPARENT": "00-…", "number": "1"}
