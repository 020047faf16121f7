"""The ingest pipeline: it converts a line of the monitor into a search document inside the cluster.

It serves shippers other than the forwarder (docs/dashboards.md). Fields that the record contains are moved;
fields that only the forwarder can calculate are missing.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Final, get_args

from kibana.dashboard_model import Json
from profiler.record.run_outcome import Status
from profiler.record.search_document_fields import FIELDS, DocumentField

_DESCRIPTION = "Task Profiler: lines of the monitor into the documents of its dashboards. See docs/dashboards.md"
_RECORD = "line.record."
_IS_REPORT = "ctx.line.type == 'task.report'"
_IS_CHECKPOINT = "ctx.line.type == 'task.checkpoint'"
_ID = "{{{line.record.taskId}}}/{{{line.record.container.name}}}"
_STATISTICS = frozenset({"avg", "p50", "p95", "p99", "max"})
# The objects of the document in the order in which they are filled.
_OBJECTS: Final = (
    *("task", "cloud", "orchestrator", "host", "container", "aws", "event"),
    *("usage", "interval", "cost", "recommendation", "monitor"),
)
# The memory peak waits here: its place is inside an object that is moved as a whole.
_PEAK = "line.peak"
_PEAK_FIELD = "usage.memory.used_mb.max"


def build_ingest_pipeline() -> str:
    """Generate the text of the pipeline's file, with one processor on each line."""
    processors = ",\n".join(f"  {json.dumps(processor)}" for processor in _processors())
    return f'{{\n "description": {json.dumps(_DESCRIPTION)},\n "processors": [\n{processors}\n ]\n}}\n'


def _processors() -> Iterator[Json]:
    yield from _parse()
    yield _remove(sorted({field.name.split(".")[0] for field in FIELDS} - {"@timestamp", "record"}))
    yield from _choose_index_and_id()
    yield from _calculate()
    # The document has the peak instead.
    yield _remove(f"{_RECORD}metrics.memoryUsedMB.max")
    moved = (field for field in FIELDS if field.record_path is not None)
    yield from _move(sorted(moved, key=lambda field: _OBJECTS.index(field.name.split(".")[0])))
    yield _rename(_PEAK, _PEAK_FIELD)
    yield _rename("message", "record")
    yield _remove(["line", "schemaVersion"])


def _parse() -> Iterator[Json]:
    """Accept a document whose ``message`` is a line, and one that is the line itself; drop all others."""
    yield {"json": {"field": "message", "target_field": "line", "if": "ctx.message != null", "ignore_failure": True}}
    yield _set("line", {}, "!(ctx.line instanceof Map)")
    yield {"rename": {"field": "record", "target_field": "line.record", "if": "ctx.record instanceof Map"}}
    for name in ("type", "time"):
        condition = f"ctx.line.{name} == null"
        yield {"rename": {"field": name, "target_field": f"line.{name}", "if": condition, "ignore_missing": True}}
    is_other = "ctx.line.type != 'task.report' && ctx.line.type != 'task.checkpoint'"
    yield {"drop": {"if": f"!(ctx.line.record instanceof Map) || ({is_other})"}}


def _choose_index_and_id() -> Iterator[Json]:
    """The forwarder's index and id, and the document's time."""
    for kind, condition in (("reports", _IS_REPORT), ("checkpoints", _IS_CHECKPOINT)):
        for field, operator in (("line.record.startedAt", "!="), ("line.time", "==")):
            yield {
                "date_index_name": {
                    "field": field,
                    "index_name_prefix": f"task-{kind}-",
                    "date_formats": ["ISO8601"],
                    "date_rounding": "M",
                    "index_name_format": "yyyy.MM",
                    "if": f"{condition} && ctx.line.record.startedAt {operator} null",
                }
            }
    yield _set("_id", _ID, _IS_REPORT)
    yield _set("_id", _ID + "/{{{line.time}}}", _IS_CHECKPOINT)
    yield _set("@timestamp", "{{{line.time}}}")
    yield _set("@timestamp", "{{{line.record.finishedAt}}}", f"{_IS_REPORT} && ctx.line.record.finishedAt != null")


def _calculate() -> Iterator[Json]:
    """The fields that the record does not contain as such."""
    status, task_arn = "ctx.line.record.status", "ctx.line.record.taskArn"
    yield _set("event.kind", "metric")
    yield _set("event.dataset", "{{{line.type}}}")
    yield _set("event.outcome", "{{{line.record.status}}}", f"{status} == 'success' || {status} == 'failure'")
    yield _set("event.outcome", "unknown", f"{status} != 'success' && {status} != 'failure'")
    yield _set(f"{_RECORD}status", "unknown", f"!{list(get_args(Status))}.contains({status})")
    yield _set("cloud.provider", "aws", f"{task_arn} != null")
    yield _set("orchestrator.type", "ecs", f"{task_arn} != null")
    yield _set("service.name", "{{{line.record.family}}}", "ctx.line.record.family != null")
    yield _set("task.complete", value=True, condition=_IS_REPORT)


def _move(fields: Iterable[DocumentField]) -> Iterator[Json]:
    """One processor for each field; the statistics of a distribution are moved together with their object."""
    moved: set[str] = set()
    for field in fields:
        source, target = f"{_RECORD}{field.record_path}", field.name
        source_object, source_name = source.rsplit(".", 1)
        if field.is_list:
            condition = f"ctx.{source_object}?.{source_name} != null"
            yield {"append": {"field": target, "value": [f"{{{{{{{source}}}}}}}"], "if": condition}}
            continue
        target_object, target_name = target.rsplit(".", 1)
        if target == _PEAK_FIELD:
            target = _PEAK
        elif source_name == target_name and source_name in _STATISTICS:
            source, target = source_object, target_object
        if target not in moved:
            moved.add(target)
            yield _rename(source, target)


def _rename(source: str, target: str) -> Json:
    return {"rename": {"field": source, "target_field": target, "ignore_missing": True}}


def _remove(fields: str | list[str]) -> Json:
    return {"remove": {"field": fields, "ignore_missing": True}}


def _set(field: str, value: object, condition: str | None = None) -> Json:
    return {"set": {"field": field, "value": value, **({} if condition is None else {"if": condition})}}
