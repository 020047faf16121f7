"""A batch with the monitor beside it, and what the monitor put into the batch's log stream."""

import json
from collections.abc import Callable
from typing import Any

from tests.e2e.container import BATCH, MONITOR
from tests.e2e.task import Task
from tools.moto_server import FakeAws
from tools.waiting import wait_until

LOG_GROUP = "/e2e/batch"

# Starts a batch, with the monitor beside it.
Start = Callable[..., Task]


def finished(aws: FakeAws, task: Task) -> dict[str, Any]:
    """The record of the one report in the batch's stream, once the task has ended."""
    task.wait_stopped()
    events = aws.events(LOG_GROUP, task.log_stream(BATCH))
    assert len(events) == 1, task[MONITOR].logs()
    document: dict[str, Any] = json.loads(events[0].message)
    assert document["type"] == "task.report"
    record: dict[str, Any] = document["record"]
    return record


def checkpoints(task: Task) -> list[dict[str, Any]]:
    """The records on the monitor's own output, in their order."""
    output, _ = task[MONITOR].logs()
    return [json.loads(line)["record"] for line in output.splitlines()]


def wait_for_samples(task: Task, requests: int) -> None:
    """Wait until the monitor has asked so often, so that it has numbers of the batch."""
    task[BATCH].wait_until_ready()
    wait_until(
        lambda: task.endpoint.paths.count("/task/stats") >= requests,
        f"{requests} requests of the monitor",
    )
