"""The signals of an ended run: a trace, a log record and metrics, with one resource and ids of
the task.

The attributes are those of the semantic conventions, and ours below ``task_profiler``:
https://opentelemetry.io/docs/specs/semconv/registry/attributes/ (service, cloud, aws, container,
process, error).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import arn_part
from profiler.core.optional_math import first_known, first_of
from profiler.core.text import without_surrogates
from profiler.core.timestamps import MS_PER_SECOND, NS_PER_MS, format_ms
from profiler.core.version import __version__
from profiler.otlp.otlp_encoding import Message, Signal
from profiler.record.batch_job import BatchJob, known_job_fields
from profiler.record.bounded_json_line import encode_line
from profiler.record.device_totals import gpu_totals
from profiler.record.fact_list import estimated_paths, lower_bound_paths
from profiler.record.family_identity import family_key
from profiler.record.hardware import most_telling_gpu_error
from profiler.record.model_base import MAX_LINE_BYTES
from profiler.record.record_model import LOCAL, Container, Record, Report, possible_record
from profiler.record.record_paths import RunView, may_be_of_others, view_reader
from profiler.record.run_outcome import Outcome
from profiler.record.stop_causes import outcome_of
from profiler.runs.past_runs.run_moments import find_moments

_Known = str | int | float | bool | Sequence[str]
Value = _Known | None
_MAX_TEXT = 4096
_MAX_LABELS = 64
# https://www.w3.org/TR/trace-context/: a later version may append fields; version ff is invalid.
_TRACEPARENT = re.compile(
    r"(?!ff|00-.{52}-)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
    r"(?:-.*)?",
    re.DOTALL,
)
_SCOPE: Message = {"name": "task_profiler", "version": __version__}
_KIND_INTERNAL = 1
_STATUS_UNSET = 0
_STATUS_ERROR = 2
# The parent's context is known, and is of another process (SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK,
# …_IS_REMOTE_MASK).
_REMOTE_PARENT = 0x300
_INFO_SEVERITY = (9, "INFO")
_ERROR = (17, "ERROR")
_SECONDS_PER_HOUR = 3600
_PERCENT = 100
_MB_PER_BYTE = 2**-20
# The attribute of a number that may have been larger.
_AT_LEAST = "task_profiler.at_least"
_ESTIMATED = "task_profiler.estimated"
# That of a number which may be other programs'.
_SCOPE_OF_GPUS = "task_profiler.gpu.scope"


class _Gauge(NamedTuple):
    """A metric of a run: the value at ``path`` of the record's view, divided by ``divisor``, in
    ``unit``.
    """

    name: str
    unit: str
    divisor: float
    path: str
    # Two metrics of one name differ in it.
    direction: str = ""


_GAUGES = (
    _Gauge("duration", "s", MS_PER_SECOND, "metrics.duration_ms"),
    _Gauge("billed_duration", "s", MS_PER_SECOND, "metrics.billed_duration_ms"),
    _Gauge("init_duration", "s", MS_PER_SECOND, "metrics.init_duration_ms"),
    _Gauge("cpu.time", "s", 1, "metrics.cpu_seconds"),
    _Gauge("cpu.utilization.avg", "1", _PERCENT, "metrics.cpu_utilization_percent.avg"),
    _Gauge("cpu.utilization.max", "1", _PERCENT, "metrics.cpu_utilization_percent.max"),
    _Gauge("cpu.wait", "s", 1, "metrics.cpu_wait_seconds"),
    _Gauge("memory.used.avg", "By", _MB_PER_BYTE, "metrics.memory_used_mb.avg"),
    _Gauge("memory.peak", "By", _MB_PER_BYTE, "metrics.max_memory_used_mb"),
    _Gauge("memory.mapped_file.max", "By", _MB_PER_BYTE, "metrics.memory_mapped_file_mb.max"),
    _Gauge("memory.huge_pages.max", "By", _MB_PER_BYTE, "metrics.memory_huge_pages_mb.max"),
    _Gauge("memory.limit", "By", _MB_PER_BYTE, "metrics.memory_size_mb"),
    _Gauge("gpu.utilization.avg", "1", _PERCENT, "gpus.utilization_percent.avg"),
    _Gauge("gpu.sm_active.avg", "1", _PERCENT, "gpus.sm_active_percent.avg"),
    _Gauge("gpu.tensor_active.avg", "1", _PERCENT, "gpus.tensor_active_percent.avg"),
    _Gauge("gpu.dram_active.avg", "1", _PERCENT, "gpus.dram_active_percent.avg"),
    _Gauge("gpu.idle", "1", _PERCENT, "record.gpu_idle.percent"),
    _Gauge("gpu.idle.time", "s", 1 / _SECONDS_PER_HOUR, "record.gpu_idle.gpu_hours"),
    _Gauge("gpu.idle.between", "1", _PERCENT, "record.gpu_idle.between_percent"),
    _Gauge("gpu.memory.peak", "By", _MB_PER_BYTE, "gpus.memory_used_mb.max"),
    _Gauge("cost", "{USD}", 1, "record.cost.usd"),
    _Gauge("network.io", "By", 1, "metrics.network_rx_bytes", "receive"),
    _Gauge("network.io", "By", 1, "metrics.network_tx_bytes", "transmit"),
    _Gauge("disk.io", "By", 1, "metrics.block_read_bytes", "read"),
    _Gauge("disk.io", "By", 1, "metrics.block_write_bytes", "write"),
)


def attribute_messages(values: Mapping[str, Value]) -> list[Message]:
    """The known values as ``KeyValue`` messages."""
    return [
        {"key": bounded_text(name), "value": any_value(value)}
        for name, value in values.items()
        if value not in (None, "", ())
    ]


def any_value(value: _Known) -> Message:
    """A value as an ``AnyValue`` message."""
    if isinstance(value, str):
        return {"stringValue": bounded_text(value)}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"arrayValue": {"values": [any_value(item) for item in value]}}


def bounded_text(value: str) -> str:
    """The text without lone surrogates, limited to the length that a backend takes."""
    return without_surrogates(value[:_MAX_TEXT], "\N{REPLACEMENT CHARACTER}")


def service_name(record: Record) -> str:
    """The family, which is also the span's name; else the name that the conventions require."""
    return bounded_text(family_key(record).name) or "unknown_service"


def _resource_attributes(record: Record, user: Mapping[str, str]) -> list[Message]:
    """The resource of all signals: the environment of the run.

    The user's attributes take precedence.
    """
    values: dict[str, Value] = {
        "service.name": service_name(record),
        "service.version": record.revision,
    }
    if record.task_arn or record.launch_type not in (None, LOCAL):
        values |= _ecs_attributes(record)
    values |= {
        "aws.log.group.names": _list_if_known(record.log_group),
        "aws.log.stream.names": _list_if_known(record.log_stream),
        "container.id": record.container.id,
        "container.name": record.container.name,
    }
    values |= _image_attributes(record.container)
    values |= user
    return attribute_messages(values)


def _ecs_attributes(record: Record) -> dict[str, Value]:
    return {
        "cloud.provider": "aws",
        "cloud.platform": "aws_ecs",
        "cloud.region": record.region,
        "cloud.availability_zone": record.availability_zone,
        "cloud.account.id": record.account_id,
        "aws.ecs.cluster.arn": _cluster_arn(record),
        "aws.ecs.container.arn": record.container.arn,
        "aws.ecs.launchtype": (record.launch_type or "").lower(),
        "aws.ecs.task.arn": record.task_arn,
        "aws.ecs.task.id": record.task_id if record.task_arn else None,
        "aws.ecs.task.family": record.family,
        "aws.ecs.task.revision": record.revision,
    }


def _cluster_arn(record: Record) -> str | None:
    """The cluster of a task has the partition, the Region and the account of the task's ARN."""
    partition, region, account = (arn_part(record.task_arn, position) for position in (1, 3, 4))
    if not (record.cluster and partition and region and account):
        return None
    return f"arn:{partition}:ecs:{region}:{account}:cluster/{record.cluster.rsplit('/', 1)[-1]}"


def _image_attributes(container: Container) -> dict[str, Value]:
    """The image ``REPOSITORY[:TAG][@DIGEST]``.

    A colon before the last slash belongs to the registry's port.
    """
    name, _, own_digest = (container.image or "").partition("@")
    path, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    repository = f"{path}{slash}{last}"
    digest = container.image_digest or own_digest
    values: dict[str, Value] = {
        "container.image.name": repository,
        "container.image.tags": _list_if_known(tag),
    }
    if repository and digest:
        values["container.image.repo_digests"] = (f"{repository}@{digest}",)
    return values


def _list_if_known(value: str | None) -> tuple[str, ...]:
    return (value,) if value else ()


class SpanParent(Struct, frozen=True, kw_only=True):
    """The span that started the run, in hexadecimal digits, and its trace flags."""

    trace_id: str
    span_id: str
    flags: int


def trace_id(task_id: str) -> str:
    """The trace id of a run without a parent: the same for every export of the task."""
    return _digest("trace", task_id, 16)


def span_id(task_id: str, span: str) -> str:
    """The id of one of the run's spans: the same for every export of the task."""
    return _digest(f"span/{span}", task_id, 8)


def find_parent(*labels: Mapping[str, str] | None) -> SpanParent | None:
    """The parent in the first of the maps that has a valid ``TRACEPARENT``, in any letter case."""
    for values in labels:
        for name, value in (values or {}).items():
            if name.lower() != "traceparent":
                continue
            match = _TRACEPARENT.fullmatch(value.strip())
            if match:
                trace, span, flags = match.groups()
                return SpanParent(trace_id=trace, span_id=span, flags=int(flags, 16))
    return None


def _digest(purpose: str, task_id: str, length_bytes: int) -> str:
    name = f"task-profiler/{purpose}/{task_id}"
    digest = sha256(name.encode(errors="replace")).digest()
    return digest[:length_bytes].hex()


class ExportedRun(Struct, frozen=True, kw_only=True):
    """An ended run: its record, and the data that only ECS or the caller has. None is unknown."""

    record: Record
    line: str | None = None  # the report as it was printed; None: it is encoded from the record
    pull_started_ns: int | None = None
    pull_stopped_ns: int | None = None
    reason: str | None = None
    judged: Outcome | None = None  # None: the record alone says how the run ended
    is_complete: bool = True  # the record covers the whole run
    # The batch's labels or a command's environment: may have a TRACEPARENT.
    context: Mapping[str, str] | None = None
    resource: Mapping[str, str] = {}  # the user's attributes, which take precedence
    part: str = ""  # distinguishes the runs of one task
    observed_ns: int

    @property
    def outcome(self) -> Outcome:
        return self.judged or outcome_of(self.record)

    @property
    def started_ns(self) -> int | None:
        return self.record.started_ns

    @property
    def begin_ns(self) -> int:
        """The start of the root span; the end if no start is known."""
        begin_ns = first_of((self.pull_started_ns, self.started_ns))
        return first_known(begin_ns, self._finished_ns)

    @property
    def end_ns(self) -> int:
        """The end of all spans. A clock that was set back makes a run of length zero."""
        return max(self._finished_ns, self.begin_ns)

    @property
    def _finished_ns(self) -> int:
        finished_ns = self.record.finished_ns
        end_ns = first_of((finished_ns, self.started_ns, self.pull_started_ns))
        return first_known(end_ns, self.observed_ns)


def signals_of(run: ExportedRun) -> Mapping[Signal, Message]:
    """The export requests of a run, without what is impossible in its record.

    The request of metrics is missing if nothing was measured.
    """
    record = possible_record(run.record)
    if record is not run.record:
        run = replace(run, record=record, line=None)
    parent = find_parent(record.labels, run.context)
    own = {
        "traceId": trace_id(record.task_id),
        "spanId": span_id(record.task_id, f"run{run.part}"),
    }
    ids = own if parent is None else {**own, "traceId": parent.trace_id}
    resource: Message = {"attributes": _resource_attributes(record, run.resource)}
    ended = _run_attributes(run)
    spans = _spans(run, ids, parent, ended)
    log_records = [_log_record(run, ids, ended)]
    signals: dict[Signal, Message] = {
        "traces": _export_request("resourceSpans", resource, "scopeSpans", "spans", spans),
        "logs": _export_request("resourceLogs", resource, "scopeLogs", "logRecords", log_records),
    }
    metrics = _metrics(record, run.end_ns)
    if metrics:
        signals["metrics"] = _export_request(
            "resourceMetrics", resource, "scopeMetrics", "metrics", metrics
        )
    return signals


def _run_attributes(run: ExportedRun) -> list[Message]:
    """How the run ended: attributes of its span and of its log record."""
    record = run.record
    outcome = run.outcome
    error_type = outcome.cause if outcome.status == "failure" else None
    return attribute_messages(
        {
            "process.exit.code": outcome.exit_code,
            "error.type": error_type,
            "task_profiler.task.id": record.task_id,
            "task_profiler.status": outcome.status,
            "task_profiler.outcome": outcome.cause,
            "task_profiler.complete": run.is_complete,
            "task_profiler.stop_category": outcome.stop_category,
            "task_profiler.stopped_reason": run.reason,
            "task_profiler.out_of_memory": outcome.ran_out_of_memory,
            "task_profiler.gpu.out_of_memory": record.likely_out_of_gpu_memory,
            "task_profiler.gpu.error": most_telling_gpu_error(record),
            **_batch_attributes(record.batch),
        }
    )


def _batch_attributes(job: BatchJob) -> Mapping[str, Value]:
    """The job of AWS Batch, by the names of documents: the conventions have none for it."""
    return {f"task_profiler.batch.{name}": value for name, value in known_job_fields(job).items()}


def _export_request(
    of_resource: str, resource: Message, of_scope: str, name: str, items: Sequence[Message]
) -> Message:
    return {of_resource: [{"resource": resource, of_scope: [{"scope": _SCOPE, name: items}]}]}


def _spans(
    run: ExportedRun, ids: Message, parent: SpanParent | None, ended: list[Message]
) -> list[Message]:
    """The span of the run, and those of the image's pull and of the container's start, if their
    times are known.
    """
    record = run.record
    root = dict(ids)
    if parent is not None:
        root["parentSpanId"] = parent.span_id
        root["flags"] = _REMOTE_PARENT | parent.flags
    root |= {
        "name": service_name(record),
        "kind": _KIND_INTERNAL,
        "startTimeUnixNano": str(run.begin_ns),
        "endTimeUnixNano": str(run.end_ns),
        "attributes": [*ended, *_label_attributes(record)],
        "events": list(_events(run)),
        "status": _span_status(run),
    }
    spans: list[Message] = [root]
    phases = (
        ("pull", run.pull_started_ns, run.pull_stopped_ns),
        ("init", run.pull_stopped_ns, run.started_ns),
    )
    for name, begin_ns, end_ns in phases:
        if begin_ns is not None and end_ns is not None and begin_ns <= end_ns:
            spans.append(
                {
                    "traceId": ids["traceId"],
                    "spanId": span_id(record.task_id, name),
                    "parentSpanId": ids["spanId"],
                    "name": name,
                    "kind": _KIND_INTERNAL,
                    "startTimeUnixNano": str(begin_ns),
                    "endTimeUnixNano": str(end_ns),
                }
            )
    return spans


def _label_attributes(record: Record) -> list[Message]:
    """The first labels and tags."""
    values: dict[str, Value] = {}
    for name, value in (record.labels or {}).items():
        values[f"task_profiler.label.{name}"] = value
    for name, value in (record.tags or {}).items():
        values[f"task_profiler.tag.{name}"] = value
    return attribute_messages(dict(islice(values.items(), _MAX_LABELS)))


def _span_status(run: ExportedRun) -> Message:
    """The status of the root span. Only a failure is an error: a run that was stopped is not
    known to have failed.
    """
    if run.outcome.status != "failure":
        return {"code": _STATUS_UNSET}
    title = run.outcome.title
    message = f"{title}: {run.reason}" if run.reason else title
    return {"code": _STATUS_ERROR, "message": bounded_text(message)}


def _events(run: ExportedRun) -> Iterator[Message]:
    """The moments of the run and the notices that were raised while it ran."""
    record = run.record
    started_ns = run.started_ns
    if started_ns is not None:
        for moment in find_moments(record):
            duration_ms = round(moment.end_ms - moment.start_ms)
            begin_ns = started_ns + round(moment.start_ms * NS_PER_MS)
            about_moment: dict[str, Value] = {
                "task_profiler.moment.text": moment.text,
                "task_profiler.moment.duration": duration_ms / MS_PER_SECOND,
            }
            yield _event(begin_ns, f"task_profiler.moment.{moment.kind}", about_moment)
    for notice in record.notices:
        notice_ns = notice.at_ns
        if notice_ns is not None:
            about_notice = {"task_profiler.notice.kind": notice.kind}
            yield _event(notice_ns, "task_profiler.notice", about_notice)


def _event(time_ns: int, name: str, values: Mapping[str, Value]) -> Message:
    return {"timeUnixNano": str(time_ns), "name": name, "attributes": attribute_messages(values)}


def _log_record(run: ExportedRun, ids: Message, ended: list[Message]) -> Message:
    severity_number, severity_text = _INFO_SEVERITY
    if run.outcome.status == "failure":
        severity_number, severity_text = _ERROR
    line = run.line or ""
    if not line or len(line.encode(errors="replace")) > MAX_LINE_BYTES:
        report = Report(time=format_ms(run.end_ns), type="task.report", record=run.record)
        line = encode_line(report).decode()
    return {
        "timeUnixNano": str(run.end_ns),
        "observedTimeUnixNano": str(max(run.observed_ns, 0)),
        "severityNumber": severity_number,
        "severityText": severity_text,
        "body": {"stringValue": without_surrogates(line, "\N{REPLACEMENT CHARACTER}")},
        "attributes": ended,
        **ids,
    }


def _metrics(record: Record, end_ns: int) -> list[Message]:
    """Gauges at the end of the run; unknown values are left out."""
    run = RunView(record)
    least = lower_bound_paths(run)
    estimated = estimated_paths(run)
    points_by_metric: dict[tuple[str, str], list[Message]] = {}
    for gauge in _GAUGES:
        value = view_reader(gauge.path)(run)
        if value is None:
            continue
        point: dict[str, Any] = {}
        if gauge.unit == "By":
            point["asInt"] = str(round(value / gauge.divisor))
        else:
            point["asDouble"] = float(value / gauge.divisor)
        point["timeUnixNano"] = str(end_ns)
        qualifiers: dict[str, Value] = {}
        if gauge.direction:
            qualifiers[f"{gauge.name}.direction"] = gauge.direction
        if gauge.path in least:
            qualifiers[_AT_LEAST] = True
        if gauge.path in estimated:
            qualifiers[_ESTIMATED] = True
        if may_be_of_others(gauge.path, record):
            qualifiers[_SCOPE_OF_GPUS] = gpu_totals(record).scope
        if qualifiers:
            point["attributes"] = attribute_messages(qualifiers)
        points_by_metric.setdefault((gauge.name, gauge.unit), []).append(point)
    metrics: list[Message] = []
    for (name, unit), points in points_by_metric.items():
        metrics.append(
            {
                "name": f"task_profiler.run.{name}",
                "unit": unit,
                "gauge": {"dataPoints": points},
            }
        )
    return metrics
