"""The addresses in a notice, as its message names them. An unknown address is None."""

from datetime import datetime, timedelta

from forwarder.notices.ended_task import EndedTask
from forwarder.run_links import ecs_task, kibana_task, log_stream
from profiler.core.ecs_terms import cluster_name
from profiler.core.timestamps import parse_datetime
from profiler.record.record_model import Record


def links_of(notice: EndedTask, kibana_url: str | None) -> dict[str, str | None]:
    """Return the addresses of the log stream, the ECS task, and the dashboard "Task run"; None where unknown."""
    task, log = notice.task, notice.log
    return {
        "log_stream": None if log is None else log_stream(task.region, log.group, log.stream),
        "ecs_task": ecs_task(task.region, task.cluster, task.id),
        "kibana": kibana_task(kibana_url, task.id, task.started_at, _end(task.started_at, notice.duration_ms)),
    }


def links_of_record(record: Record, kibana_url: str | None) -> dict[str, str | None]:
    """Return the same addresses of a run in progress."""
    return {
        "log_stream": log_stream(record.region, record.log_group, record.log_stream),
        "ecs_task": ecs_task(record.region, cluster_name(record.cluster), record.task_id),
        "kibana": kibana_task(kibana_url, record.task_id, parse_datetime(record.started_at)),
    }


def links_of_task(
    region: str | None, cluster: str | None, task_id: str, kibana_url: str | None
) -> dict[str, str | None]:
    """Return the addresses of a task of which only the id is known."""
    return {
        "ecs_task": ecs_task(region, cluster_name(cluster), task_id),
        "kibana": kibana_task(kibana_url, task_id, None),
    }


def _end(started: datetime | None, duration_ms: float | None) -> datetime | None:
    if started is None or duration_ms is None:
        return None
    try:
        return started + timedelta(milliseconds=duration_ms)
    except (OverflowError, ValueError):  # after year 9999, or not a number
        return None
