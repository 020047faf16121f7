"""A stopped task: how it ended by its event, and the report in its log stream."""

import json
from collections.abc import Mapping
from typing import Any

from profiler.forwarder.report_finder import identify_containers
from profiler.record.ecs_event_outcome import judge_candidates
from profiler.record.stop_causes import EventEnd
from profiler.record.stopped_task import StoppedTask
from tests.task_events import container, definition

WRITTEN_MS = 1772359953000  # the time of a report
BATCH_STREAM = "ecs/batch/4dd5853f44b341ee8281f38229bee377"


WITH_MONITOR = definition(container("task-monitor", essential=False), container("batch"))


def judged_task(
    task: StoppedTask, described: Mapping[str, Any] | None
) -> tuple[EventEnd, str | None]:
    """How a task ended by its event and its definition, and its batch container."""
    containers = identify_containers(described, task)
    candidates = [task.container_or_name_only(name) for name in containers.candidates]
    return judge_candidates(
        task, candidates, default=containers.default, monitor=containers.monitor
    )


def report(kind: str = "task.report", **record: Any) -> str:
    metrics = {
        "durationMs": 60000,
        "cpuUtilizationPercent": {"avg": 50.0, "max": 90.0},
        "memoryUtilizationPercent": {"avg": 40.0, "max": 97.0},
        "memorySizeMB": 512,
        "maxMemoryUsedMB": 500,
    }
    whole = {
        "taskId": "4dd5853f44b341ee8281f38229bee377",
        "accountId": "111122223333",
        "family": "nightly",
        "container": {"name": "batch"},
        "status": "failure",
        "exitCode": 1,
        "startedAt": "2026-03-01T10:11:28Z",
        "metrics": metrics,
        **record,
    }
    return json.dumps({"time": "2026-03-01T10:12:33Z", "type": kind, "record": whole})
