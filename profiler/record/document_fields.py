"""The fields of a search document, with the names of the Elastic Common Schema where it has one.

``FIELDS`` lists the fields that identify a run, and those of the metric catalogue. The forwarder's documents
(``lambda/forwarder/documents.py``), the index templates and the ingest pipeline for other shippers (``kibana/``) are
made from it.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from profiler.core.json_fields import integer
from profiler.record.metric_catalogue import METRICS, IndexType, RunView
from profiler.record.model import known_status

# The fields of this object are in checkpoints only.
INTERVAL_PREFIX = "interval."


class DocumentField(Struct, frozen=True, kw_only=True):
    """A field of a search document.

    Attributes:
        name: The path of the field: names of objects and of the field, separated by points.
        index_type: The field's type in the index.
        get: Reads the value from the record; None if the forwarder or the task's event provides it.
        record_path: Where the record's JSON contains the value, for the ingest pipeline; None if it is calculated.
        is_list: Whether the field holds a list, of which the record contains the only element.
        is_searchable: Whether the value is indexed; if not, the index only stores it.
    """

    name: str
    index_type: IndexType = "keyword"
    get: Callable[[RunView], Any] | None = None
    record_path: str | None = None
    is_list: bool = False
    is_searchable: bool = True


def _image_digests(run: RunView) -> list[str] | None:
    digest = run.record.container.image_digest
    return [digest] if digest else None


def _tags(run: RunView) -> list[str] | None:
    """Texts ``name=value``: an object of all names would add a field to the index for each name."""
    tags = run.record.tags
    return [f"{name}={value}" for name, value in tags.items()] if tags else None


def _status(run: RunView) -> str:
    return known_status(run.record)


def _exit_code(run: RunView) -> int | None:
    return integer(run.record.exit_code)


IDENTITY_FIELDS: tuple[DocumentField, ...] = (
    DocumentField(name="@timestamp", index_type="date"),
    DocumentField(name="event.kind"),
    DocumentField(name="event.dataset"),
    DocumentField(name="event.outcome"),
    DocumentField(name="event.duration", index_type="long"),
    DocumentField(
        name="event.start", index_type="date", get=lambda run: run.record.started_at, record_path="startedAt"
    ),
    DocumentField(
        name="event.end", index_type="date", get=lambda run: run.record.finished_at, record_path="finishedAt"
    ),
    DocumentField(name="cloud.provider", get=lambda run: None if run.record.task_arn is None else "aws"),
    DocumentField(name="cloud.region", get=lambda run: run.record.region, record_path="region"),
    DocumentField(
        name="cloud.availability_zone",
        get=lambda run: run.record.availability_zone,
        record_path="availabilityZone",
    ),
    DocumentField(name="cloud.account.id", get=lambda run: run.record.account_id, record_path="accountId"),
    DocumentField(name="orchestrator.type", get=lambda run: None if run.record.task_arn is None else "ecs"),
    DocumentField(name="orchestrator.cluster.name", get=lambda run: run.record.cluster, record_path="cluster"),
    DocumentField(name="service.name", get=lambda run: run.record.family),
    DocumentField(name="container.name", get=lambda run: run.record.container.name, record_path="container.name"),
    DocumentField(name="container.id", get=lambda run: run.record.container.id, record_path="container.id"),
    DocumentField(
        name="container.image.name", get=lambda run: run.record.container.image, record_path="container.image"
    ),
    DocumentField(
        name="container.image.hash.all", get=_image_digests, record_path="container.imageDigest", is_list=True
    ),
    DocumentField(name="aws.cloudwatch.log_group", get=lambda run: run.record.log_group, record_path="logGroup"),
    DocumentField(name="aws.cloudwatch.log_stream", get=lambda run: run.record.log_stream, record_path="logStream"),
    DocumentField(name="task.id", get=lambda run: run.record.task_id, record_path="taskId"),
    DocumentField(name="task.arn", get=lambda run: run.record.task_arn, record_path="taskArn"),
    DocumentField(name="task.family", get=lambda run: run.record.family, record_path="family"),
    DocumentField(name="task.revision", get=lambda run: run.record.revision, record_path="revision"),
    DocumentField(name="task.launch_type", get=lambda run: run.record.launch_type, record_path="launchType"),
    DocumentField(name="task.status", get=_status, record_path="status"),
    DocumentField(name="task.exit_code", index_type="long", get=_exit_code, record_path="exitCode"),
    DocumentField(name="task.stop_code"),
    DocumentField(name="task.stop_category"),
    DocumentField(name="task.stopped_reason"),
    DocumentField(name="task.started_by"),
    DocumentField(name="task.out_of_memory", index_type="boolean"),
    DocumentField(
        name="task.likely_out_of_memory",
        index_type="boolean",
        get=lambda run: run.record.likely_out_of_memory,
        record_path="likelyOutOfMemory",
    ),
    DocumentField(name="task.complete", index_type="boolean"),
    DocumentField(name="tags", get=_tags),
)
METRIC_FIELDS = tuple(
    DocumentField(
        name=metric.document_field, index_type=metric.index_type, get=metric.get, record_path=metric.record_path
    )
    for metric in METRICS
    if metric.document_field is not None
)
# The forwarder adds the whole line as text.
FIELDS = (*IDENTITY_FIELDS, *METRIC_FIELDS, DocumentField(name="record", is_searchable=False))
