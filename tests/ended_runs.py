"""Ended runs as notifications, any of them, and the texts that a message shows."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from profiler.core.ecs_terms import MONITOR_NAME
from profiler.forwarder.ended_run import EndedRun, UnusualMeasure
from profiler.forwarder.merged_run import runs_of_witnesses
from profiler.forwarder.notifications.notification import Notification
from profiler.forwarder.notifications.slack_messages import SlackMessage, slack_message_of
from profiler.forwarder.report_finder import ReportLine
from profiler.forwarder.run_event import run_event_of_task, seen_report
from profiler.record import record_model as model
from profiler.record.activity_model import WaitTarget
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.stop_causes import EventEnd
from profiler.record.stopped_task import StoppedTask
from profiler.sinks import LogTarget
from tests.values import present

KIBANA = "https://kibana.example.com/s/ops"
TASK = StoppedTask(
    arn="arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
    cluster="jobs",
    region="eu-west-1",
    definition_arn="arn:aws:ecs:eu-west-1:111122223333:task-definition/etl_daily:7",
    started_at=datetime(2026, 3, 1, 10, 0, 3, tzinfo=UTC),
)
RECORD = model.Record(
    task_id="0123",
    container=model.Container(name="batch"),
    metrics=model.Metrics(
        duration_ms=7_980_000,
        billed_duration_ms=8_040_000,
        vcpu_size=0.5,
        cpu_utilization_percent=model.Distribution(avg=42.4, max=97.2),
        memory_size_mb=1024,
        memory_utilization_percent=model.Distribution(avg=61.0, max=97.0),
        max_memory_used_mb=993.3,
    ),
    cost=model.Cost(usd=0.0123),
)


def report_line(record: model.Record, kind: model.RecordType = "task.report") -> ReportLine:
    return ReportLine(model.Report(time="2026-03-01T12:13:03Z", type=kind, record=record), "")


LOG = LogTarget(group="/ecs/jobs", stream="ecs/batch/0123")


def run_of(
    task: StoppedTask,
    end: EventEnd,
    container: str | None = None,
    report_line: ReportLine | None = None,
    *,
    resized_from: str | None = None,
    **more: Any,
) -> EndedRun:
    """The run of a stopped task, merged of its event and its report."""
    event = run_event_of_task(
        task,
        end,
        task.container_or_name_only(container or ""),
        task.container_or_name_only(MONITOR_NAME),
        log=more.get("log"),
        resized_from=resized_from,
    )
    reported = None
    if report_line is not None:
        reported = seen_report(report_line.report, report_line.claim, event)
    runs = runs_of_witnesses(event, reported)
    return EndedRun(
        task=task,
        runs=runs,
        container=container,
        report_line=report_line,
        **more,
    )


NOTICE = run_of(
    TASK,
    EventEnd(cause="success", exit_code=0),
    "batch",
    report_line(RECORD),
    report_log=LOG,
    log=LOG,
)


def end_of(notice: EndedRun) -> EventEnd:
    """How the run ended by its event alone."""
    return present(notice.run.event).combined_end


def changed(notice: EndedRun, **changes: Any) -> EndedRun:
    """The notice with other parts, merged again."""
    parts = {name: value for name, value in asdict(notice).items() if name != "runs"}
    parts["end"] = end_of(notice)
    return run_of(**(parts | changes))


def recorded(notice: EndedRun, **changes: Any) -> EndedRun:
    """The notice with other fields of the record."""
    return changed(
        notice,
        report_line=report_line(
            replace(RECORD if notice.report_line is None else notice.record, **changes)
        ),
    )


def ended(notice: EndedRun, **changes: Any) -> EndedRun:
    """The notice with another end in its event."""
    return changed(notice, end=replace(end_of(notice), **changes))


def in_task(notice: EndedRun, **changes: Any) -> EndedRun:
    return changed(notice, task=replace(notice.task, **changes))


OOM = recorded(
    ended(
        NOTICE,
        cause="oom",
        out_of_memory=True,
        exit_code=137,
        reason="OutOfMemoryError: Container killed due to memory usage",
    ),
    recommendation=model.Recommendation(
        memory_mb=2048, saving_percent=-20, reasons=("Memory was short.",)
    ),
)


def objects(value: Any) -> list[dict[str, Any]]:
    """Return all text objects."""
    if isinstance(value, list):
        return [found for each in value for found in objects(each)]
    if not isinstance(value, dict):
        return []
    if value.get("type") in ("plain_text", "mrkdwn"):
        return [value]
    return [found for each in value.values() for found in objects(each)]


def texts(value: Any) -> list[str]:
    return [each["text"] for each in objects(value)]


def shown(message: SlackMessage) -> str:
    return "\n".join(texts(message.blocks))


def text_of(notice: Notification) -> str:
    return shown(slack_message_of(notice, kibana_url=KIBANA))


ANY_CHARACTER = st.characters(codec=None)
ANY_TEXT = (
    st.text(ANY_CHARACTER)
    | st.text(st.sampled_from("<>&`*_~|:@!\n '\"\\é🧮\ud800")).map(lambda text: text * 200)
    | st.sampled_from(
        [
            "",
            "<!channel>",
            "x" * 21_000,
            "&" * 21_000,
            "🧮" * 21_000,
            "<" * 149,
            "0001-01-01T00:00:00+14:00",
        ]
    )
)
MAYBE_TEXT = st.none() | ANY_TEXT
# By type. Decoding has removed negative numbers, NaN and numbers beyond any machine.
ANY: dict[Any, st.SearchStrategy[Any]] = {
    str: ANY_TEXT,
    float: st.floats(0, 9e12) | st.floats(0, 100),
    int: st.integers(0, 2**53),
    bool: st.booleans(),
    type(None): st.none(),
    datetime: st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
}


def any_value(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    parts = get_args(kind)
    if kind in ANY:
        return ANY[kind]
    if get_origin(kind) is Literal:
        return st.sampled_from(parts)
    if get_origin(kind) is Annotated:
        return any_value(parts[0])
    if get_origin(kind) is tuple:
        return st.lists(any_value(parts[0]), max_size=4).map(tuple)
    return st.one_of(*map(any_value, parts)) if parts else any_struct(kind)


def any_struct(
    struct: Any, /, names: str = "", **own: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """Structs with any values of these fields, or of all; the others have their defaults."""
    drawn = {
        field.name: any_value(field.type)
        for field in msgspec.structs.fields(struct)
        if field.name not in own and field.name in (names.split() or (field.name,))
    }
    return st.builds(struct, **drawn, **own)


ANY_POINTS = st.none() | st.lists(st.none() | ANY[float], max_size=130).map(tuple)
ANY[model.Distribution] = any_struct(model.Distribution, "avg max")
ANY[model.Process] = any_struct(
    model.Process, "name max_memory_used_mb count max_memory_used_processes"
)
ANY[model.Metrics] = any_struct(
    model.Metrics,
    "duration_ms billed_duration_ms vcpu_size memory_size_mb max_memory_used_mb "
    "cpu_utilization_percent memory_utilization_percent",
)
ANY[model.Gpu] = any_struct(model.Gpu, "uuid utilization_percent memory_used_mb")
ANY[model.NeuronCore] = any_struct(model.NeuronCore, "index utilization_percent")
ANY[model.Neuron] = any_struct(model.Neuron, "cores device_memory_used_mb")
ANY[model.Series] = any_struct(
    model.Series, "started_at", step_ms=st.just(1), vcpu_used=ANY_POINTS, memory_used_mb=ANY_POINTS
)
ANY[model.Recommendation] = any_struct(
    model.Recommendation, saving_percent=st.none() | st.floats(-1e6, 100)
)
ANY[WaitTarget] = any_struct(
    WaitTarget, kind=st.sampled_from(["network", "other"]) | ANY_TEXT, percent=st.floats(0, 100)
)
ANY[model.Record] = any_struct(
    model.Record,
    "task_id finished_at metrics cost series processes memory_kills recommendation task_size "
    "time_breakdown gpus neuron",
    container=st.just(model.Container(name="batch")),
    status=st.sampled_from(["success", "stopped"]),
)
ANY[UnusualMeasure] = any_struct(
    UnusualMeasure,
    metric=st.sampled_from(["durationMs", "cpuSeconds", "blockReadBytes", "blockWriteBytes"]),
    value=st.floats(0, 2**63),
    usual=st.floats(0, 2**63),
)
ANY[StoppedTask] = any_struct(
    StoppedTask,
    "arn cluster started_at execution_stopped_at",
    definition_arn=MAYBE_TEXT | st.tuples(ANY_TEXT, ANY_TEXT).map(":".join),
    region=MAYBE_TEXT | st.just("eu-west-1"),
)
ANY[ReportLine] = st.builds(
    report_line, ANY[model.Record], st.sampled_from(["task.report", "task.checkpoint"])
)
_ENDED = "task container report_line comparison report_log log log_lines"
NOTICES = st.fixed_dictionaries(
    {"end": any_value(EventEnd)}
    | {
        field.name: any_value(field.type)
        for field in msgspec.structs.fields(EndedRun)
        if field.name in _ENDED.split()
    }
).map(lambda parts: run_of(**parts))
RUN_NOTICES = any_struct(
    NoticeLine,
    "time notice",
    record=any_struct(
        model.Record,
        (
            "task_id task_arn family revision log_group log_stream started_at metrics gpus "
            "neuron series processes"
        ),
        container=st.just(model.Container(name="batch")),
        status=st.just("running"),
        region=MAYBE_TEXT | st.just("eu-west-1"),
    ),
)
SCHEDULE_NOTICES = any_struct(
    ScheduleNoticeLine,
    "time notice schedule cluster family account_id",
    region=MAYBE_TEXT | st.just("eu-west-1"),
)
