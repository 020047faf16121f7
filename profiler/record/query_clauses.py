"""The words of a search in the forwarder's documents: its conditions, and the fields they name.

The forwarder's own searches and those of the command line are built of these.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

JsonObject = dict[str, Any]
FAMILY = "task.family"
CLUSTER = "orchestrator.cluster.name"
ACCOUNT = "cloud.account.id"
REGION = "cloud.region"
START = "event.start"
STATUS = "task.status"
TIME = "@timestamp"
TASK_ID = "task.id"
JOB_ID = "batch.job_id"
ATTEMPT = "batch.attempt"
CONTAINER = "container.name"
CONFIRMED = "task.confirmed"
COST_USD = "cost.usd"
DURATION_MS = "usage.duration_ms"
MEMORY_PEAK_MB = "usage.memory.used_mb.max"
MAPPED_FILES_MB = "usage.memory.mapped_file_mb.max"
NEWEST_FIRST: Final[Sequence[JsonObject]] = [{TIME: {"order": "desc", "unmapped_type": "date"}}]


def term(field: str, value: object) -> JsonObject:
    """The field has the value."""
    return {"term": {field: value}}


def one_of(field: str, values: Iterable[object]) -> JsonObject:
    """The field has one of the values."""
    return {"terms": {field: list(values)}}


def begins_with(field: str, text: str) -> JsonObject:
    """The field's text begins with this one."""
    return {"prefix": {field: text}}


def exists(field: str) -> JsonObject:
    """The field has any value."""
    return {"exists": {"field": field}}


def in_range(field: str, **bounds: object) -> JsonObject:
    """The field is within the bounds, which have the names of the search: ``gt``, ``gte``, ``lt``,
    and the ``format`` of a time.
    """
    return {"range": {field: bounds}}


def of_last_days(days: int) -> JsonObject:
    """The document is of the last days, by the clock of the search cluster."""
    return in_range(TIME, gte=f"now-{days}d")


def any_of(conditions: Sequence[JsonObject]) -> JsonObject:
    """The run meets at least one of the conditions."""
    return {"bool": {"should": list(conditions), "minimum_should_match": 1}}


def none_of(conditions: Sequence[JsonObject]) -> JsonObject:
    """The run meets none of the conditions."""
    return {"bool": {"must_not": list(conditions)}}


def all_of(
    conditions: Sequence[JsonObject], *, but_none_of: Sequence[JsonObject] = ()
) -> JsonObject:
    """The run meets all of the conditions, and none of the others."""
    meets = {"filter": list(conditions)}
    return {"bool": {**meets, "must_not": list(but_none_of)} if but_none_of else meets}


def place_conditions(place: Mapping[str, str | None]) -> list[JsonObject]:
    """The fields of the place have their values; what is unknown is not asked for."""
    return [term(field, value) for field, value in place.items() if value is not None]


# A report alone can name any family.
IS_CONFIRMED: Final = term(CONFIRMED, value=True)
IS_SUCCESS: Final = term(STATUS, "success")
IN_TRUSTED_GROUP: Final = term("task.voucher", "trusted-group")
# A document from before ``task.event_outcome`` has the flags, and its index fills ``task.outcome``
# with the words of then.
RAN_OUT_OF_MEMORY: Final = any_of(
    [
        term("task.outcome", "oom"),
        {
            "bool": {
                "must_not": [exists("task.event_outcome")],
                "should": [
                    term("task.out_of_memory", value=True),
                    term("task.likely_out_of_memory", value=True),
                ],
                "minimum_should_match": 1,
            }
        },
    ]
)
