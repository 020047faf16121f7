"""The document of a run as its task's event tells it, to be merged with the report's in any order."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from forwarder.documents import Document, event_outcome, pruned, report_document, stamp
from forwarder.lines import Broken
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
    own = _own_fields(task, outcome)
    known = _known_fields(task, batch)
    numbers = _numbers(found, prefix)
    measured = {} if numbers is None else dict(numbers.everything)
    if numbers is not None and found is not None and found.is_final:
        return Document(index=numbers.index, id=numbers.id, fields=_merged(measured, own))
    began = task.pull_started_at or task.created_at or task.started_at or task.stopped_at
    if began is None:
        return None
    # A checkpoint's interval is none of the run's, and no report would write over it.
    measured.pop("interval", None)
    everything = _merged(known, measured, _final(task), own)
    return Document(
        index=f"{prefix}-reports-{began:%Y.%m}", id=f"{task.id}/{batch.name}", fields=own, upsert=everything
    )


def _numbers(found: FoundReport | None, prefix: str) -> Document | None:
    document = None if found is None else report_document(found.report, found.text, prefix=prefix)
    return None if isinstance(document, Broken) else document


def _own_fields(task: StoppedTask, outcome: Outcome) -> dict[str, Any]:
    """What nobody else writes."""
    return pruned(
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


def _known_fields(task: StoppedTask, batch: EventContainer) -> dict[str, Any]:
    """The identity of the run."""
    return pruned(
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


def _final(task: StoppedTask) -> dict[str, Any]:
    """What makes a final document of it, over the fields of a checkpoint."""
    ended = task.execution_stopped_at or task.stopped_at
    return pruned(
        {
            "@timestamp": _stamp(ended or task.created_at),
            "event": {
                "kind": "metric",
                "dataset": "task.report",
                "start": _stamp(task.started_at),
                "end": _stamp(ended),
                "duration": None if task.duration_ms is None else round(task.duration_ms * 1_000_000),
            },
            "task": {"complete": False},
            "usage": {"duration_ms": task.duration_ms},
        }
    )


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else stamp(moment)


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Objects merged at every level; later parts win."""
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            present = merged.get(name)
            if isinstance(present, dict) and isinstance(value, dict):
                merged[name] = _merged(present, value)
            else:
                merged[name] = value
    return merged
