"""Documents: Elastic Common Schema names, plus ``task``, ``usage``, ``cost``, ``recommendation``."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from forwarder.lines import InvalidReport
from forwarder.task.event import EventContainer, StoppedTask
from forwarder.task.outcome import Outcome
from forwarder.task.run_log import FoundReport
from profiler.core.optional_math import max_known, mean_known
from profiler.core.timestamps import parse_datetime, subtract_ms
from profiler.record.model import Distribution, Gpu, Interval, Metrics, Neuron, Record, Report
from profiler.sizing.requirements import requirements_of


def gpu_fields(gpus: Sequence[Gpu]) -> dict[str, Any] | None:
    """All GPUs of the run: mean of the averages, largest of the maxima, sum of the energy."""
    if not gpus:
        return None
    percents = [gpu.utilization_percent or Distribution() for gpu in gpus]
    memories = [gpu.memory_used_mb or Distribution() for gpu in gpus]
    energies = [gpu.energy_joules for gpu in gpus if gpu.energy_joules is not None]
    return {
        "count": len(gpus),
        "percent": {
            "avg": mean_known(*[one.avg for one in percents]),
            "max": max_known(*[one.max for one in percents]),
        },
        "memory_mb": {
            "avg": mean_known(*[one.avg for one in memories]),
            "max": max_known(*[one.max for one in memories]),
        },
        "energy_joules": sum(energies) if energies else None,
    }


def neuron_fields(neuron: Neuron | None) -> dict[str, Any] | None:
    """All cores of the run: mean of the averages, largest of the maxima."""
    if neuron is None:
        return None
    percents = [core.utilization_percent or Distribution() for core in neuron.cores]
    memory = neuron.device_memory_used_mb or Distribution()
    return {
        "cores": len(neuron.cores),
        "percent": {
            "avg": mean_known(*[one.avg for one in percents]),
            "max": max_known(*[one.max for one in percents]),
        },
        "memory_mb": {"max": memory.max},
    }


_NS_PER_MS = 1_000_000
_STATUS_FROM_EVENT = "stopped"
_UNKNOWN = "unknown"
_EVENT_OWNED_FIELDS = ("status", "exit_code")
_CHECKPOINT = "task.checkpoint"
# A longer id makes both engines refuse the whole request, with all other documents in it.
_MAX_ID_BYTES = 512

Fields = dict[str, Any]


class Document(Struct, frozen=True, kw_only=True):
    """What to write where. ``id`` makes writing it again the same document.

    ``fields`` are set whatever is there; ``upsert`` is written instead if nothing is there (None:
    the fields are).
    """

    index: str
    id: str
    fields: Mapping[str, Any]
    upsert: Mapping[str, Any] | None = None

    @property
    def initial_fields(self) -> Mapping[str, Any]:
        """What stands there if nothing did before."""
        return self.fields if self.upsert is None else self.upsert


def report_document(report: Report, text: str, *, prefix: str) -> Document | InvalidReport:
    """The document of a report or checkpoint; ``text`` is its line, kept whole.

    All writers of one run meet in the index of the month in which its image pull started.
    """
    record = report.record
    written = parse_datetime(report.time)
    if written is None:
        return InvalidReport(f"The report's time {report.time[:40]!r} is no RFC 3339 time.")
    is_checkpoint = report.type == _CHECKPOINT
    started = parse_datetime(record.started_at)
    began = written if started is None else subtract_ms(started, record.metrics.init_duration_ms)
    kind = "checkpoints" if is_checkpoint else "reports"
    identity = f"{record.task_id}/{record.container.name}" + (f"/{report.time}" if is_checkpoint else "")
    if len(identity.encode()) > _MAX_ID_BYTES:
        return InvalidReport(f"Task id and container name are longer than {_MAX_ID_BYTES} bytes.")
    fields = drop_empty(_fields(report, written, text, is_checkpoint=is_checkpoint))
    has_unknown_end = not is_checkpoint and record.status == _UNKNOWN
    return Document(
        index=f"{prefix}-{kind}-{began:%Y.%m}",
        id=identity,
        fields=_without_outcome(fields) if has_unknown_end else fields,
        upsert=fields if has_unknown_end else None,
    )


def _without_outcome(fields: Fields) -> Fields:
    """What a report that did not see the end may set where the task's event may have told of it already."""
    task = {name: value for name, value in fields["task"].items() if name not in _EVENT_OWNED_FIELDS}
    event = {name: value for name, value in fields["event"].items() if name != "outcome"}
    return {**fields, "task": task, "event": event}


def _fields(report: Report, written: datetime, text: str, *, is_checkpoint: bool) -> Fields:
    record = report.record
    finished = parse_datetime(record.finished_at)
    return {
        "@timestamp": format_time(written if is_checkpoint or finished is None else finished),
        "event": _event(report),
        "cloud": {
            "provider": "aws" if record.task_arn is not None else None,
            "region": record.region,
            "availability_zone": record.availability_zone,
            "account": {"id": record.account_id},
        },
        "orchestrator": {"type": "ecs" if record.task_arn is not None else None, "cluster": {"name": record.cluster}},
        "service": {"name": record.family},
        "container": {
            "id": record.container.id,
            "name": record.container.name,
            "image": {
                "name": record.container.image,
                "hash": {"all": [record.container.image_digest] if record.container.image_digest else None},
            },
        },
        "aws": {"cloudwatch": {"log_group": record.log_group, "log_stream": record.log_stream}},
        "task": _task(record, is_complete=not is_checkpoint),
        "usage": _usage(record),
        "interval": _interval(record.interval),
        "cost": _cost(record),
        "recommendation": _recommendation(record),
        "monitor": _monitor(record),
        "record": text,
    }


def event_outcome(status: str) -> str:
    """``event.outcome`` as the Elastic Common Schema allows it: success, failure or unknown."""
    return status if status in {"success", "failure"} else _UNKNOWN


def _event(report: Report) -> Fields:
    record = report.record
    duration_ms = record.metrics.duration_ms
    return {
        "kind": "metric",
        "dataset": report.type,
        "outcome": None if record.status == _STATUS_FROM_EVENT else event_outcome(record.status),
        "duration": None if duration_ms is None else round(duration_ms * _NS_PER_MS),
        "start": _format_known_time(record.started_at),
        "end": _format_known_time(record.finished_at),
    }


def _task(record: Record, *, is_complete: bool) -> Fields:
    """A stop is told best by ECS's own event: status and exit code are left to it then."""
    decided_here = record.status != _STATUS_FROM_EVENT
    return {
        "id": record.task_id,
        "arn": record.task_arn,
        "family": record.family,
        "revision": record.revision,
        "launch_type": record.launch_type,
        "status": record.status if decided_here else None,
        "exit_code": record.exit_code if decided_here else None,
        "likely_out_of_memory": record.likely_out_of_memory,
        "complete": True if is_complete else None,
    }


def _usage(record: Record) -> Fields:
    metrics = record.metrics
    return {
        "duration_ms": metrics.duration_ms,
        "billed_duration_ms": metrics.billed_duration_ms,
        "init_duration_ms": metrics.init_duration_ms,
        "cpu": {
            "size": metrics.vcpu_size,
            "seconds": metrics.cpu_seconds,
            "used": _distribution(metrics.vcpu_used),
            "percent": _distribution(metrics.cpu_utilization_percent),
        },
        "memory": _memory(metrics),
        "task": _task_requirements(record),
        "network": {"rx_bytes": metrics.network_rx_bytes, "tx_bytes": metrics.network_tx_bytes},
        "block": {"read_bytes": metrics.block_read_bytes, "write_bytes": metrics.block_write_bytes},
        "gpu": gpu_fields(record.gpus),
        "neuron": neuron_fields(record.neuron),
    }


def _task_requirements(record: Record) -> Fields:
    """What all containers of the run needed together; nothing if the batch is the only container.

    ``task-profiler recommend`` searches for the largest values, which the cluster could not add up itself.
    """
    if not record.containers:
        return {}
    needed = requirements_of(record)
    return {"memory_mb": needed.memory_mb, "vcpu_p95": needed.vcpu}


def _memory(metrics: Metrics) -> Fields:
    used = _distribution(metrics.memory_used_mb)
    return {
        "size_mb": metrics.memory_size_mb,
        "used_mb": {**used, "max": metrics.max_memory_used_mb},
        "percent": _distribution(metrics.memory_utilization_percent),
        "peak_source": metrics.memory_peak_source,
        "usage_peak_mb": metrics.memory_usage_peak_mb,
    }


def _interval(interval: Interval | None) -> Fields | None:
    """Of the time since the last checkpoint: mean CPU, largest memory."""
    if interval is None:
        return None
    cpu = interval.cpu_utilization_percent or Distribution()
    memory = interval.memory_used_mb or Distribution()
    return {
        "start": _format_known_time(interval.started_at),
        "end": _format_known_time(interval.finished_at),
        "cpu_percent": cpu.avg,
        "memory_mb": memory.max,
    }


def _cost(record: Record) -> Fields:
    """Waste is what the recommended size would have saved of this run."""
    usd = record.cost.usd if record.cost is not None else None
    saving = record.recommendation.saving_percent if record.recommendation is not None else None
    waste = usd * saving / 100 if usd is not None and saving is not None and saving >= 0 else None
    return {"usd": usd, "waste_usd": waste}


def _recommendation(record: Record) -> Fields | None:
    advice = record.recommendation
    if advice is None:
        return None
    return {"vcpu": advice.vcpu, "memory_mb": advice.memory_mb, "saving_percent": advice.saving_percent}


def _monitor(record: Record) -> Fields | None:
    monitor = record.monitor
    if monitor is None:
        return None
    return {"version": monitor.version, "cpu_seconds": monitor.cpu_seconds, "max_rss_mb": monitor.max_rss_mb}


def _distribution(distribution: Distribution | None) -> Fields:
    if distribution is None:
        return {}
    return {
        "avg": distribution.avg,
        "p50": distribution.p50,
        "p95": distribution.p95,
        "p99": distribution.p99,
        "max": distribution.max,
    }


def _format_known_time(text: str | None) -> str | None:
    moment = parse_datetime(text)
    return None if moment is None else format_time(moment)


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def drop_empty(fields: Fields) -> Fields:
    """Without what is absent, and without objects that are empty then."""
    kept: Fields = {}
    for name, value in fields.items():
        rest = drop_empty(value) if isinstance(value, dict) else value
        if rest is not None and rest != {}:
            kept[name] = rest
    return kept


def event_document(
    task: StoppedTask, batch: EventContainer | None, outcome: Outcome, found: FoundReport | None, *, prefix: str
) -> Document | None:
    """What to write of an ended task; None if its container is not known.

    With the report at hand both are written. Without, the event sets only what it owns, so that
    a report that is there already is never overwritten by less; all that is known is written
    where nothing is there yet. All writers of one run meet in the month of its image pull.
    """
    if batch is None:
        return None
    own = _event_fields(task, outcome)
    known = _identity_fields(task, batch)
    numbers = _reported_document(found, prefix)
    measured = {} if numbers is None else dict(numbers.initial_fields)
    if numbers is not None and found is not None and found.is_final:
        return Document(index=numbers.index, id=numbers.id, fields=_merge(measured, own))
    began = task.pull_started_at or task.created_at or task.started_at or task.stopped_at
    if began is None:
        return None
    # A checkpoint's interval is none of the run's, and no report would write over it.
    measured.pop("interval", None)
    everything = _merge(known, measured, _final_fields(task), own)
    return Document(
        index=f"{prefix}-reports-{began:%Y.%m}", id=f"{task.id}/{batch.name}", fields=own, upsert=everything
    )


def _reported_document(found: FoundReport | None, prefix: str) -> Document | None:
    document = None if found is None else report_document(found.report, found.text, prefix=prefix)
    return None if isinstance(document, InvalidReport) else document


def _event_fields(task: StoppedTask, outcome: Outcome) -> dict[str, Any]:
    """What nobody else writes."""
    return drop_empty(
        {
            "task": {
                "status": outcome.verdict,
                "exit_code": outcome.exit_code,
                "stop_code": task.stop_code,
                "stop_category": outcome.category,
                "stopped_reason": task.stopped_reason,
                "started_by": task.started_by,
                "out_of_memory": outcome.out_of_memory,
            },
            "event": {"outcome": event_outcome(outcome.verdict)},
        }
    )


def _identity_fields(task: StoppedTask, batch: EventContainer) -> dict[str, Any]:
    """The identity of the run."""
    return drop_empty(
        {
            "cloud": {
                "provider": "aws",
                "region": task.region,
                "availability_zone": task.availability_zone,
                "account": {"id": task.account_id},
            },
            "orchestrator": {"type": "ecs", "cluster": {"name": task.cluster}},
            "service": {"name": task.family},
            "container": {
                "id": batch.runtime_id,
                "name": batch.name,
                "image": {"name": batch.image, "hash": {"all": [batch.image_digest] if batch.image_digest else None}},
            },
            "task": {
                "id": task.id,
                "arn": task.arn,
                "family": task.family,
                "revision": task.revision,
                "launch_type": task.launch_type,
            },
        }
    )


def _final_fields(task: StoppedTask) -> dict[str, Any]:
    """What makes a final document of it, over the fields of a checkpoint."""
    ended = task.execution_stopped_at or task.stopped_at
    return drop_empty(
        {
            "@timestamp": _format_known_moment(ended or task.created_at),
            "event": {
                "kind": "metric",
                "dataset": "task.report",
                "start": _format_known_moment(task.started_at),
                "end": _format_known_moment(ended),
                "duration": None if task.duration_ms is None else round(task.duration_ms * 1_000_000),
            },
            "task": {"complete": False},
            "usage": {"duration_ms": task.duration_ms},
        }
    )


def _format_known_moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)


def _merge(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Objects merged at every level; later parts win."""
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            present = merged.get(name)
            if isinstance(present, dict) and isinstance(value, dict):
                merged[name] = _merge(present, value)
            else:
                merged[name] = value
    return merged
