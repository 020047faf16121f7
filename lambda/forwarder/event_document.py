"""The document of a run as its task's event tells it, to be merged with the report's in any order."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from forwarder.documents import Document, drop_empty, event_outcome, format_time, report_document
from forwarder.lines import InvalidReport
from forwarder.outcome import Outcome
from forwarder.run_log import FoundReport
from forwarder.task_event import EventContainer, StoppedTask


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
            "@timestamp": _format_known_time(ended or task.created_at),
            "event": {
                "kind": "metric",
                "dataset": "task.report",
                "start": _format_known_time(task.started_at),
                "end": _format_known_time(ended),
                "duration": None if task.duration_ms is None else round(task.duration_ms * 1_000_000),
            },
            "task": {"complete": False},
            "usage": {"duration_ms": task.duration_ms},
        }
    )


def _format_known_time(moment: datetime | None) -> str | None:
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
