"""Schedules, and the tasks that they started."""

from typing import Any

from profiler.core.timestamps import parse_ns
from profiler.schedules.schedule_model import Schedule, StartedTask

MIDNIGHT = parse_ns("2026-11-20T00:00:00Z") or 0
MINUTE = 60_000_000_000


CLUSTER = "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs"


def at(minutes: float) -> int:
    return MIDNIGHT + round(minutes * MINUTE)


def schedule(
    name: str = "nightly", expression: str = "cron(0 * * * ? *)", **values: Any
) -> Schedule:
    family = values.pop("family", "etl")
    arn = f"arn:aws:ecs:eu-west-1:123456789012:task-definition/{family}"
    identity: dict[str, Any] = {
        "kind": "schedule",
        "name": name,
        "cluster_arn": CLUSTER,
        "definition_arn": arn,
    }
    return Schedule(**identity | {"expression": expression, "created_ns": at(-10_000)} | values)


def task(created: float, stopped: float | None = None, **values: Any) -> StartedTask:
    by = values.pop("by", "chronos-schedule/nightly")
    identity: dict[str, Any] = {
        "arn": f"arn:task/{created}-{by}",
        "family": "etl",
        "started_by": by,
    }
    stopped_ns = None if stopped is None else at(stopped)
    return StartedTask(**identity | {"created_ns": at(created), "stopped_ns": stopped_ns} | values)
