"""The index templates of reports, checkpoints, log lines and notices, each with a closed mapping."""

import json
from collections.abc import Iterable
from typing import Final

from kibana.dashboard_model import Index, Json
from profiler.record.search_document_fields import FIELDS, INTERVAL_PREFIX, DocumentField

_LOG_MESSAGE = "message"
_DATA_VIEW_TYPES: Final = {"keyword": "string", "date": "date", "boolean": "boolean"}


def _keywords(names: str) -> tuple[DocumentField, ...]:
    return tuple(DocumentField(name=name) for name in names.split())


_TIME: Final = DocumentField(name="@timestamp", index_type="date")
# The keywords of a log line's document; the message itself is full text.
_LOG_FIELDS: Final = (
    _TIME,
    *_keywords(f"aws.cloudwatch.log_group aws.cloudwatch.log_stream {_LOG_MESSAGE} event.kind event.dataset"),
    *_keywords("cloud.provider task.id container.name"),
)
# The fields of both kinds of notices (profiler/forwarder/documents.py).
_NOTICE_FIELDS: Final = (
    _TIME,
    *_keywords("event.kind event.dataset notice.kind notice.message"),
    *(DocumentField(name=name, index_type="date") for name in ("notice.since", "notice.due_at")),
    *_keywords("notice.reason schedule.kind schedule.name schedule.group schedule.expression schedule.time_zone"),
    *_keywords("cloud.provider cloud.region cloud.account.id orchestrator.type orchestrator.cluster.name service.name"),
    *_keywords("container.name aws.cloudwatch.log_group aws.cloudwatch.log_stream"),
    *_keywords("task.id task.arn task.family task.revision links.run links.logs links.task"),
    DocumentField(name="record", is_searchable=False),
)


def build_index_templates() -> dict[str, str]:
    """Generate the text of each index template, by the template's name."""
    templates = (
        ("task-reports", _report_fields(), "Final reports of Task Profiler, one document a run."),
        ("task-checkpoints", _checkpoint_fields(), "Checkpoints of Task Profiler: the time series of a run."),
        ("task-logs", _LOG_FIELDS, "Log lines of batches, in addition to their reports."),
        ("task-notices", _NOTICE_FIELDS, "Notifications of running tasks and of schedules."),
    )
    return {
        name: json.dumps(_template(name, fields, description), indent=2) + "\n"
        for name, fields, description in templates
    }


def data_view_fields(index: Index) -> list[Json]:
    """The fields of these documents, as a data view lists them."""
    fields = {"reports": _report_fields(), "checkpoints": _checkpoint_fields(), "notices": _NOTICE_FIELDS}[index]
    listed = [
        *(_listed(name, "string", name, is_searchable=True) for name in ("_id", "_index")),
        _listed("_score", "number"),
        _listed("_source", "_source"),
        *(
            _listed(
                field.name,
                _DATA_VIEW_TYPES.get(field.index_type, "number"),
                field.index_type,
                is_searchable=field.is_searchable,
                is_stored=field.is_searchable,
            )
            for field in fields
        ),
    ]
    return sorted(listed, key=lambda entry: str(entry["name"]))


def _listed(
    name: str, shown_type: str, *index_types: str, is_searchable: bool = False, is_stored: bool = False
) -> Json:
    return {
        "name": name,
        "type": shown_type,
        "esTypes": [*index_types],
        "count": 0,
        "scripted": False,
        "searchable": is_searchable,
        "aggregatable": is_searchable,
        "readFromDocValues": is_stored,
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
    off = dict.fromkeys(("dynamic", "date_detection", "numeric_detection"), False)
    return {
        "index_patterns": [f"{name}-*"],
        "priority": 200,
        "template": {
            "settings": {"index": index_settings},
            "mappings": {**off, "properties": _properties(fields)},
        },
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
        return {"type": "keyword", "ignore_above": 1024}
    return {"type": field.index_type}
