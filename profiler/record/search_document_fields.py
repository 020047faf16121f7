"""The fields of a search document, with the names of the Elastic Common Schema where it has one."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from profiler.core.json_fields import integer_or_none
from profiler.core.optional_math import known, product
from profiler.core.timestamps import NS_PER_MS, format_datetime, parse_datetime
from profiler.record.batch_job import WHOLE_NUMBERS, BatchJob
from profiler.record.equal_steps import with_longer_steps
from profiler.record.fact_list import estimated_paths, lower_bound_paths
from profiler.record.hardware import most_telling_gpu_error
from profiler.record.metric_catalogue import METRICS, IndexType
from profiler.record.record_model import NO_INTERVAL, known_status
from profiler.record.record_paths import RunView, json_path, view_reader

# The fields of this object are in checkpoints only.
INTERVAL_PREFIX = "interval."
# A document grows by at most this much for the curves of its run.
MAX_SERIES_POINTS = 240
MAX_SERIES_BYTES = 8192
# A number has at most 25 characters with its comma: fewer values never exceed the bytes.
_ALWAYS_FITTING_VALUES = 300


class DocumentField(Struct, frozen=True, kw_only=True):
    """A field of a search document.

    ``get`` is None if the forwarder or the task's event provides the value. ``path`` is where the
    view of a record has it, if it is not calculated.

    ``record_path`` is its place in the record's JSON, if it is not calculated. ``is_list``: the
    record has the only element of the list. A field of type ``object`` is only stored.
    """

    name: str
    index_type: IndexType = "keyword"
    get: Callable[[RunView], Any] | None = None
    path: str = ""
    record_path: str = ""
    is_list: bool = False
    is_searchable: bool = True


def _tag_texts(run: RunView) -> list[str] | None:
    """Texts ``name=value``: an object of all names would add a field to the index for each name."""
    return _named_value_texts(run.record.tags)


def _label_texts(run: RunView) -> list[str] | None:
    """The labels, each a field."""
    return _named_value_texts(run.record.labels)


def _named_value_texts(values: Mapping[str, str] | None) -> list[str] | None:
    return [f"{name}={value}" for name, value in values.items()] if values else None


def _copied_field(name: str, path: str, index_type: IndexType = "keyword") -> DocumentField:
    path = f"record.{path}"
    return DocumentField(
        name=name,
        index_type=index_type,
        get=view_reader(path),
        path=path,
        record_path=json_path(path),
    )


def _batch_fields() -> Iterator[DocumentField]:
    """The job of AWS Batch."""
    for name in BatchJob.__struct_fields__:
        is_number = name in WHOLE_NUMBERS
        yield _copied_field(f"batch.{name}", f"batch.{name}", "long" if is_number else "keyword")


def keyword_fields(names: str) -> Iterator[DocumentField]:
    """Fields with these names, which are not in the record."""
    return (DocumentField(name=name) for name in names.split())


def _series_of_document(run: RunView) -> dict[str, object] | None:
    """The run's curves: means of CPU and maxima of memory in equal steps from ``start`` on.

    None for a checkpoint: its run has a document for each of its intervals.
    """
    series = run.record.series
    if series is None or run.interval is not NO_INTERVAL or series.step_ms <= 0:
        return None
    steps = max(len(series.vcpu_used or ()), len(series.memory_used_mb or ()))
    if steps == 0:
        return None
    if steps > MAX_SERIES_POINTS:
        series = with_longer_steps(series, -(-steps // MAX_SERIES_POINTS) * series.step_ms)
    vcpu_used = series.vcpu_used or ()
    memory_mb = series.memory_used_mb or ()
    curves: dict[str, object] = {
        "start": known(format_datetime, parse_datetime(series.started_at)),
        "step_ms": series.step_ms,
        "vcpu_used": list(vcpu_used),
        "memory_used_mb": list(memory_mb),
    }
    if curves["start"] is None:
        return None
    is_long = len(vcpu_used) + len(memory_mb) > _ALWAYS_FITTING_VALUES
    if is_long and len(msgspec.json.encode(curves)) > MAX_SERIES_BYTES:
        return None
    return curves


def _fields_that_may_be_larger(run: RunView) -> list[str] | None:
    """The fields of the numbers that may have been larger."""
    return _document_fields_or_none(lower_bound_paths(run))


def _estimated_fields(run: RunView) -> list[str] | None:
    """The fields of the numbers that are estimates."""
    return _document_fields_or_none(estimated_paths(run))


def _document_fields_or_none(paths: frozenset[str]) -> list[str] | None:
    return list(_document_fields_at(paths)) or None


@lru_cache(maxsize=64)  # most runs have the same ones
def _document_fields_at(paths: frozenset[str]) -> tuple[str, ...]:
    fields = (metric.document_field for metric in METRICS if metric.path in paths)
    return tuple(filter(None, fields))


def _getter_only_on_ecs(value: str) -> Callable[[RunView], str | None]:
    return lambda run: None if run.record.task_arn is None else value


def _duration_ns(run: RunView) -> int | None:
    return known(round, product(run.metrics.duration_ms, NS_PER_MS))


IDENTITY_FIELDS: tuple[DocumentField, ...] = (
    DocumentField(name="@timestamp", index_type="date"),
    *keyword_fields("event.kind event.dataset event.outcome"),
    DocumentField(name="event.duration", index_type="long", get=_duration_ns),
    _copied_field("event.start", "started_at", "date"),
    _copied_field("event.end", "finished_at", "date"),
    DocumentField(name="event.ingested", index_type="date"),
    DocumentField(name="cloud.provider", get=_getter_only_on_ecs("aws")),
    _copied_field("cloud.region", "region"),
    _copied_field("cloud.availability_zone", "availability_zone"),
    _copied_field("cloud.account.id", "account_id"),
    DocumentField(name="orchestrator.type", get=_getter_only_on_ecs("ecs")),
    _copied_field("orchestrator.cluster.name", "cluster"),
    DocumentField(name="service.name", get=view_reader("record.family"), path="record.family"),
    _copied_field("host.cpu.model", "processor.model"),
    _copied_field("container.name", "container.name"),
    _copied_field("container.id", "container.id"),
    _copied_field("container.image.name", "container.image"),
    DocumentField(
        name="container.image.hash.all",
        get=lambda run: [digest] if (digest := run.record.container.image_digest) else None,
        record_path="container.imageDigest",
        is_list=True,
    ),
    _copied_field("aws.cloudwatch.log_group", "log_group"),
    _copied_field("aws.cloudwatch.log_stream", "log_stream"),
    # Whole addresses: the run's dashboard, its log stream and its task in the AWS console.
    *keyword_fields("links.run links.logs links.task"),
    _copied_field("task.id", "task_id"),
    _copied_field("task.arn", "task_arn"),
    _copied_field("task.family", "family"),
    _copied_field("task.revision", "revision"),
    _copied_field("task.launch_type", "launch_type"),
    DocumentField(
        name="task.status", get=lambda run: known_status(run.record), record_path="status"
    ),
    DocumentField(
        name="task.exit_code",
        index_type="long",
        get=lambda run: integer_or_none(run.record.exit_code),
        record_path="exitCode",
    ),
    # How the run ended in one word, and the event's own word; how another container ended first.
    *keyword_fields("task.outcome task.event_outcome task.first_end"),
    *keyword_fields(
        "task.stop_code task.stop_category task.stopped_reason task.started_by "
        "task.capacity_provider"
    ),
    # The ids of the other task, where a run that was killed for memory was started again.
    *keyword_fields("task.retry_of task.retried_as"),
    # The size before the last resize of the task definition, as its tag has it.
    *keyword_fields("task.resized_from"),
    DocumentField(name="task.out_of_memory", index_type="boolean"),
    # The line of the batch's log that reports a lack of GPU memory.
    *keyword_fields("task.gpu_memory_error"),
    # How the attempt ended by the event of its job of AWS Batch, where its container does not tell.
    *keyword_fields("task.job_end"),
    # By Batch's events, in whatever order they come: it makes another attempt after this one; the
    # job ended with this one all the same.
    DocumentField(name="task.repeated", index_type="boolean"),
    DocumentField(name="task.last_attempt", index_type="boolean"),
    # When ECS's first event arrived, by the forwarder's clock, or the end of a job that waited for
    # another attempt. It decides which morning message has the run.
    DocumentField(name="task.known_at", index_type="date"),
    _copied_field("task.likely_out_of_memory", "likely_out_of_memory", "boolean"),
    # The error (Xid) of the GPU's driver that says most about the run.
    DocumentField(
        name="task.gpu_error", index_type="long", get=lambda run: most_telling_gpu_error(run.record)
    ),
    _copied_field("usage.gpu.out_of_memory", "likely_out_of_gpu_memory", "boolean"),
    DocumentField(name="task.complete", index_type="boolean"),
    # Whether ECS's event agrees with the report; absent until there is an event.
    DocumentField(name="task.confirmed", index_type="boolean"),
    # The bounds of the container's start and end, by the event.
    DocumentField(name="task.created_at", index_type="date"),
    DocumentField(name="task.stopped_at", index_type="date"),
    # Docker's ids of the batch and of its monitor, by the event; the log stream of a report that
    # does not name the task, and what vouches for it.
    *keyword_fields("task.runtime_ids task.voucher task.voucher_stream"),
    # The account of the log group that has the report.
    *keyword_fields("task.report_account"),
    *_batch_fields(),
    DocumentField(name="tags", get=_tag_texts),
    DocumentField(name="task.labels", get=_label_texts),
)
# The forwarder adds the whole line as text.
FIELDS = (
    *IDENTITY_FIELDS,
    *(
        DocumentField(
            name=metric.document_field,
            index_type=metric.index_type,
            get=metric.get,
            path=metric.path,
            record_path=metric.record_path,
        )
        for metric in METRICS
        if metric.document_field
    ),
    # The fields of the numbers that may have been larger.
    DocumentField(name="usage.at_least", get=_fields_that_may_be_larger),
    # The fields of the numbers that are estimates.
    DocumentField(name="usage.estimated", get=_estimated_fields),
    # Of the family's runs a month, which the forwarder looks up; else of the run alone.
    DocumentField(name="recommendation.saving_usd_per_month", index_type="double"),
    DocumentField(name="series", index_type="object", get=_series_of_document, is_searchable=False),
    DocumentField(name="record", is_searchable=False),
)
