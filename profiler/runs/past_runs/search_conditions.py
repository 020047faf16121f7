"""What a selection of runs, and a family, are in searches of the forwarder's documents."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from profiler.core.timestamps import NS_PER_MS
from profiler.record.batch_job import WHOLE_NUMBERS
from profiler.record.family_identity import FamilyKey
from profiler.record.query_clauses import (
    ACCOUNT,
    CLUSTER,
    CONFIRMED,
    FAMILY,
    IN_TRUSTED_GROUP,
    JOB_ID,
    REGION,
    START,
    STATUS,
    TASK_ID,
    JsonObject,
    all_of,
    any_of,
    begins_with,
    exists,
    in_range,
    none_of,
    one_of,
    term,
)
from profiler.record.run_labels import BATCH_PREFIX
from profiler.record.run_outcome import Status
from profiler.runs.past_runs.run_source import RunFilter

JOB_DEFINITION = "batch.job_definition"
# The fields of a family's identity, by their names in the buckets of an aggregation.
FAMILY_FIELDS: Mapping[str, str] = {"name": FAMILY, "account": ACCOUNT, "region": REGION}


def _matches_pattern(field: str, pattern: str) -> JsonObject:
    """The field matches a shell pattern.

    A set of characters becomes ``?``: filter the result again.
    """
    if not any(character in pattern for character in "*?["):
        return term(field, pattern)
    text = re.sub(r"\[[!^]?\]?[^\]]*\]", "?", pattern.replace("\\", "\\\\"))
    return {"wildcard": {field: {"value": text}}}


def filter_conditions(selection: RunFilter, time_field: str) -> list[JsonObject]:
    """The conditions of a filter, without its ``run``: filter the result by family again."""
    conditions: list[JsonObject] = []
    time: JsonObject = {"format": "epoch_millis"}
    if selection.since_ns is not None:
        time["gte"] = -(-selection.since_ns // NS_PER_MS)
    if selection.until_ns is not None:
        time["lt"] = -(-selection.until_ns // NS_PER_MS)
    if len(time) > 1:
        conditions.append(in_range(time_field, **time))
    if selection.families:
        families = [_matches_pattern(FAMILY, family) for family in selection.families]
        conditions.append(any_of(families))
    for field, values in (
        (CLUSTER, selection.clusters),
        (ACCOUNT, selection.accounts),
        (REGION, selection.regions),
    ):
        known_values = [value for value in values if value]
        if known_values:
            conditions.append(one_of(field, known_values))
    conditions += [term("tags", f"{name}={value}") for name, value in selection.tags]
    conditions += [_has_label(name, value) for name, value in selection.labels]
    if selection.statuses:
        conditions.append(_has_status(selection.statuses))
    if selection.only_counting:
        conditions.append(none_of([is_unconfirmed()]))
    return conditions


def _has_label(name: str, value: str) -> JsonObject:
    """The run has the label, or the value of its job of AWS Batch."""
    if not name.startswith(BATCH_PREFIX):
        return term("task.labels", f"{name}={value}")
    is_number = name.removeprefix(BATCH_PREFIX) in WHOLE_NUMBERS
    if is_number and not re.fullmatch("[0-9]{1,9}", value):
        return {"match_none": {}}  # the server refuses to look for it
    return term(name, int(value) if is_number else value)


def is_unconfirmed() -> JsonObject:
    """The run does not count: see :func:`profiler.record.line_trust.does_run_count`."""
    return all_of([term(CONFIRMED, value=False)], but_none_of=[IN_TRUSTED_GROUP])


def _has_status(statuses: Sequence[str]) -> JsonObject:
    """The run has one of the statuses.

    A stopped run has none until ECS's event; a newer word is ``unknown``.
    """
    conditions: list[JsonObject] = [one_of(STATUS, statuses)]
    if "stopped" in statuses:
        conditions.append(none_of([exists(STATUS)]))
    if "unknown" in statuses:
        is_known = one_of(STATUS, get_args(Status))
        conditions.append(all_of([exists(STATUS)], but_none_of=[is_known]))
    return any_of(conditions)


def run_conditions(selection: RunFilter, order: str) -> list[JsonObject]:
    """The conditions that the search cluster can check.

    Runs without a start are those sorted by ``@timestamp``.
    """
    has_start = exists(START)
    conditions = [has_start if order == START else none_of([has_start])]
    conditions += filter_conditions(selection, order)
    if selection.run:
        task_id = begins_with(TASK_ID, selection.run.partition("/")[0])
        job_id = begins_with(JOB_ID, selection.run)
        conditions.append(any_of([task_id, job_id, _matches_pattern(FAMILY, selection.run)]))
    return conditions


def is_of_trusted_stream(container_ids: Sequence[str]) -> JsonObject:
    """A line is from a stream that names the task, or one of its containers, or is the instance
    monitor's.
    """
    named_by_task = none_of([exists("task.voucher")])
    named_by_container = one_of("task.voucher_stream", container_ids)
    return any_of([named_by_task, named_by_container, term("task.voucher", "instance-monitor")])


def windows_query(
    selection: RunFilter, last: int, size: int, after: Mapping[str, Any] | None
) -> JsonObject:
    """The query for a page of families after the ``after_key`` of another, with the starts of
    their last runs, and how many are of jobs.
    """
    conditions = [exists(FAMILY), exists(START), *filter_conditions(selection, START)]
    composite = composite_aggregation(FAMILY_FIELDS, size)
    if after is not None:
        composite["after"] = dict(after)
    starts = {"terms": {"field": START, "size": last, "order": {"_key": "desc"}}}
    return {
        "size": 0,
        "track_total_hits": False,
        "query": all_of(conditions),
        "aggs": {
            "families": {
                "composite": composite,
                "aggs": {"starts": starts, "jobs": {"filter": exists(JOB_ID)}},
            }
        },
    }


def composite_aggregation(fields: Mapping[str, str], size: int) -> JsonObject:
    """The aggregation of documents that have the same values in all fields, by the fields' names
    in its buckets; ``size`` buckets a page.
    """
    sources: list[JsonObject] = []
    for name, field in fields.items():
        sources.append({name: {"terms": {"field": field, "missing_bucket": True}}})
    return {"size": size, "sources": sources}


def term_or_missing(field: str, value: object) -> JsonObject:
    """The field has the value; it has none if the value is None."""
    return none_of([exists(field)]) if value is None else term(field, value)


def family_conditions(family: FamilyKey) -> list[JsonObject]:
    """The run is of the family."""
    return [
        term_or_missing(FAMILY, family.name),
        term_or_missing(ACCOUNT, family.account_id),
        term_or_missing(REGION, family.region),
    ]


def family_of_bucket(bucket: Mapping[str, Any]) -> FamilyKey:
    """The family in the key of a bucket, whose fields are name, account and region."""
    key = bucket["key"]
    return FamilyKey(str(key["name"]), key["account"], key["region"])


def is_in_window(bucket: Mapping[str, Any], family: FamilyKey) -> JsonObject:
    """The condition that a run is of the family, and not older than the oldest of its last runs."""
    oldest_ms = int(bucket["starts"]["buckets"][-1]["key"])
    is_last = in_range(START, gte=oldest_ms, format="epoch_millis")
    return all_of([*family_conditions(family), is_last])
