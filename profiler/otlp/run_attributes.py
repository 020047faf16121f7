"""The attributes of an ended run: the semantic conventions' attributes, and ours below ``task_profiler``.

https://opentelemetry.io/docs/specs/semconv/registry/attributes/: service, cloud, aws, container, process, error.
"""

from collections.abc import Mapping, Sequence

from profiler.core.ecs_terms import arn_part
from profiler.core.text import without_surrogates
from profiler.otlp.otlp_encoding import Message
from profiler.record.family_identity import family_key
from profiler.record.record_model import Container, Record, known_status

_Known = str | int | float | bool | Sequence[str]
Value = _Known | None

_LOCAL = "LOCAL"
_MAX_TEXT = 4096
_MAX_LABELS = 64


def attributes(values: Mapping[str, Value]) -> list[Message]:
    """The known values as ``KeyValue`` messages."""
    return [
        {"key": text(name), "value": any_value(value)}
        for name, value in values.items()
        if value is not None and value not in ("", ())
    ]


def any_value(value: _Known) -> Message:
    """A value as an ``AnyValue`` message."""
    if isinstance(value, str):
        return {"stringValue": text(value)}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"arrayValue": {"values": [any_value(item) for item in value]}}


def text(value: str) -> str:
    """The text without lone surrogates, limited to the length that a backend takes."""
    return without_surrogates(value[:_MAX_TEXT], "\N{REPLACEMENT CHARACTER}")


def service_name(record: Record) -> str:
    """The family, which is also the span's name; else the name that the conventions require."""
    return text(family_key(record).name) or "unknown_service"


def resource_attributes(record: Record, user: Mapping[str, str]) -> list[Message]:
    """The resource of all signals: the environment of the run. The user's attributes take precedence."""
    is_ecs = record.task_arn is not None or record.launch_type not in (None, _LOCAL)
    return attributes(
        {
            "service.name": service_name(record),
            "service.version": record.revision,
            **(_ecs_attributes(record) if is_ecs else {}),
            "aws.log.group.names": _listed(record.log_group),
            "aws.log.stream.names": _listed(record.log_stream),
            "container.id": record.container.id,
            "container.name": record.container.name,
            **_image_attributes(record.container),
            **user,
        }
    )


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
        "aws.ecs.task.id": None if record.task_arn is None else record.task_id,
        "aws.ecs.task.family": record.family,
        "aws.ecs.task.revision": record.revision,
    }


def _cluster_arn(record: Record) -> str | None:
    """The cluster of a task has the partition, the Region and the account of the task's ARN."""
    parts = [arn_part(record.task_arn, position) for position in (1, 3, 4)]
    if not record.cluster or None in parts:
        return None
    partition, region, account = parts
    return f"arn:{partition}:ecs:{region}:{account}:cluster/{record.cluster.rsplit('/', 1)[-1]}"


def _image_attributes(container: Container) -> dict[str, Value]:
    """The image ``REPOSITORY[:TAG][@DIGEST]``. A colon before the last slash belongs to the registry's port."""
    name, _, own_digest = (container.image or "").partition("@")
    path, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    repository, digest = f"{path}{slash}{last}", container.image_digest or own_digest
    return {
        "container.image.name": repository,
        "container.image.tags": _listed(tag),
        "container.image.repo_digests": _listed(f"{repository}@{digest}" if repository and digest else None),
    }


def run_attributes(record: Record, category: str | None, reason: str | None, *, is_complete: bool) -> list[Message]:
    """How the run ended: attributes of its span and of its log record."""
    is_failure = known_status(record) == "failure"
    return attributes(
        {
            "process.exit.code": record.exit_code,
            "error.type": (category or ("oom" if record.likely_out_of_memory else "exit")) if is_failure else None,
            "task_profiler.task.id": record.task_id,
            "task_profiler.status": known_status(record),
            "task_profiler.complete": is_complete,
            "task_profiler.stop_category": category,
            "task_profiler.stopped_reason": reason,
            "task_profiler.out_of_memory": record.likely_out_of_memory,
        }
    )


def label_attributes(record: Record) -> list[Message]:
    """The labels of the run and the tags of the task."""
    named = [(f"task_profiler.label.{name}", value) for name, value in (record.labels or {}).items()]
    named += [(f"task_profiler.tag.{name}", value) for name, value in (record.tags or {}).items()]
    return attributes(dict(named[:_MAX_LABELS]))


def _listed(value: str | None) -> tuple[str, ...]:
    return (value,) if value else ()
