"""The index templates of reports, checkpoints, log lines and notices, each with a closed mapping."""

import json
from collections.abc import Iterable
from typing import Final

from kibana.dashboard_model import Index, Json
from profiler.record.search_document_fields import FIELDS, INTERVAL_PREFIX, DocumentField

# The largest value of a keyword that is indexed, in characters.
_MAX_KEYWORD_LENGTH = 1024
_PRIORITY = 200
_LOG_MESSAGE = "message"
_DATA_VIEW_TYPES: Final = {"keyword": "string", "date": "date", "boolean": "boolean"}
# The keywords of a log line's document; the message itself is full text.
_LOG_FIELDS: Final = (
    DocumentField(name="@timestamp", index_type="date"),
    DocumentField(name="aws.cloudwatch.log_group"),
    DocumentField(name="aws.cloudwatch.log_stream"),
    DocumentField(name=_LOG_MESSAGE),
    DocumentField(name="event.kind"),
    DocumentField(name="event.dataset"),
    DocumentField(name="cloud.provider"),
    DocumentField(name="task.id"),
    DocumentField(name="container.name"),
)
# The fields of both kinds of notices (lambda/forwarder/notice_documents.py).
_NOTICE_FIELDS: Final = (
    DocumentField(name="@timestamp", index_type="date"),
    DocumentField(name="event.kind"),
    DocumentField(name="event.dataset"),
    DocumentField(name="notice.kind"),
    DocumentField(name="notice.message"),
    DocumentField(name="notice.since", index_type="date"),
    DocumentField(name="notice.due_at", index_type="date"),
    DocumentField(name="notice.reason"),
    DocumentField(name="schedule.kind"),
    DocumentField(name="schedule.name"),
    DocumentField(name="schedule.group"),
    DocumentField(name="schedule.expression"),
    DocumentField(name="schedule.time_zone"),
    DocumentField(name="cloud.provider"),
    DocumentField(name="cloud.region"),
    DocumentField(name="cloud.account.id"),
    DocumentField(name="orchestrator.type"),
    DocumentField(name="orchestrator.cluster.name"),
    DocumentField(name="service.name"),
    DocumentField(name="container.name"),
    DocumentField(name="aws.cloudwatch.log_group"),
    DocumentField(name="aws.cloudwatch.log_stream"),
    DocumentField(name="task.id"),
    DocumentField(name="task.arn"),
    DocumentField(name="task.family"),
    DocumentField(name="task.revision"),
    DocumentField(name="links.run"),
    DocumentField(name="links.logs"),
    DocumentField(name="links.task"),
    DocumentField(name="record", is_searchable=False),
)


def _meta_fields() -> tuple[Json, ...]:
    return (
        _meta_field("_id", "string", is_searchable=True),
        _meta_field("_index", "string", is_searchable=True),
        _meta_field("_score", "number", is_searchable=False),
        _meta_field("_source", "_source", is_searchable=False),
    )


def build_index_templates() -> dict[str, str]:
    """Generate the text of each index template, by the template's name."""
    templates = (
        ("task-reports", _report_fields(), "Final reports of Task Profiler, one document a run."),
        ("task-checkpoints", _checkpoint_fields(), "Checkpoints of Task Profiler: the time series of a run."),
        ("task-logs", _LOG_FIELDS, "Log lines of batches, beside their reports."),
        ("task-notices", _NOTICE_FIELDS, "Notices of running tasks and of schedules."),
    )
    return {
        name: json.dumps(_template(name, fields, description), indent=2) + "\n"
        for name, fields, description in templates
    }


def data_view_fields(index: Index) -> list[Json]:
    """The fields of these documents, as a data view lists them."""
    fields = {"reports": _report_fields(), "checkpoints": _checkpoint_fields(), "notices": _NOTICE_FIELDS}[index]
    listed = [_listed(item) for item in fields]
    return sorted([*_meta_fields(), *listed], key=lambda entry: str(entry["name"]))


def _listed(field: DocumentField) -> Json:
    return {
        "name": field.name,
        "type": _DATA_VIEW_TYPES.get(field.index_type, "number"),
        "esTypes": [field.index_type],
        "count": 0,
        "scripted": False,
        "searchable": field.is_searchable,
        "aggregatable": field.is_searchable,
        "readFromDocValues": field.is_searchable,
    }


def _meta_field(name: str, shown_type: str, *, is_searchable: bool) -> Json:
    return {
        "name": name,
        "type": shown_type,
        "esTypes": [name] if is_searchable else [],
        "count": 0,
        "scripted": False,
        "searchable": is_searchable,
        "aggregatable": is_searchable,
        "readFromDocValues": False,
    }


def _report_fields() -> list[DocumentField]:
    return [field for field in FIELDS if not field.name.startswith(INTERVAL_PREFIX)]


def _checkpoint_fields() -> list[DocumentField]:
    return [*_report_fields(), *(field for field in FIELDS if field.name.startswith(INTERVAL_PREFIX))]


def _template(name: str, fields: Iterable[DocumentField], description: str) -> Json:
    index_settings = {
        "number_of_shards": 1,
        "auto_expand_replicas": "0-1",
        "refresh_interval": "5s",
        "mapping": {"ignore_malformed": True},
    }
    mappings = {
        "dynamic": False,
        "date_detection": False,
        "numeric_detection": False,
        "properties": _properties(fields),
    }
    return {
        "index_patterns": [f"{name}-*"],
        "priority": _PRIORITY,
        "template": {"settings": {"index": index_settings}, "mappings": mappings},
        "_meta": {"description": description, "managed_by": "task-profiler"},
    }


def _properties(fields: Iterable[DocumentField]) -> Json:
    properties: Json = {}
    for field in fields:
        *objects, name = field.name.split(".")
        inside = properties
        for part in objects:
            inside = inside.setdefault(part, {"dynamic": False, "properties": {}})["properties"]
        inside[name] = _mapping(field)
    return properties


def _mapping(field: DocumentField) -> Json:
    if field.name == _LOG_MESSAGE:
        return {"type": "text"}
    if not field.is_searchable:
        return {"type": field.index_type, "index": False, "doc_values": False}
    if field.index_type == "keyword":
        return {"type": "keyword", "ignore_above": _MAX_KEYWORD_LENGTH}
    return {"type": field.index_type}
