"""Plays ECS's agent for one task in moto: what ``aws ecs wait`` waits for.

    python -m tests.integration.ecs_agent ecs wait tasks-stopped --cluster C --tasks ARN

The log streams of the batch and of the monitor get what is written there in ECS: a line of the
batch, and what the real monitor does beside a served metadata endpoint. MONITOR_PROGRAM is the
monitor's program; its settings are those of the definition's container.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import boto3

from tests.log_subscriptions import put_lines
from tests.task_endpoint import Task, TaskEndpoint
from tools.waiting import LIMIT_SECONDS, wait_until

_STATS_READS = 5


class PlayedTask(Task):
    """The task of an ARN, with the log options of its definition."""

    def __init__(self, arn: str, definition: dict[str, Any]) -> None:
        super().__init__(2)
        self._arn = arn
        self._definition = definition
        containers = {one["name"]: one for one in definition["containerDefinitions"]}
        self.options = containers["batch"]["logConfiguration"]["options"]
        variables = containers["task-monitor"].get("environment", [])
        self.settings: dict[str, str] = {one["name"]: one["value"] for one in variables}

    def stream(self, name: str) -> str:
        return f"{self.options['awslogs-stream-prefix']}/{name}/{self._arn.rpartition('/')[2]}"

    def container(self, name: str) -> dict[str, object]:
        stream = {"awslogs-stream": self.stream(name)}
        return super().container(name) | {"LogOptions": self.options | stream}

    def task(self) -> dict[str, object]:
        name = {"Family": self._definition["family"], "Revision": str(self._definition["revision"])}
        place = {"TaskARN": self._arn, "Cluster": self._arn.split("/")[1]}
        return super().task() | name | place | {"LaunchType": "FARGATE"}


def main(words: Sequence[str]) -> None:
    given = dict(zip(words[3::2], words[4::2], strict=True))
    ecs, logs = boto3.client("ecs"), boto3.client("logs")
    (run,) = ecs.describe_tasks(cluster=given["--cluster"], tasks=[given["--tasks"]])["tasks"]
    described = ecs.describe_task_definition(taskDefinition=run["taskDefinitionArn"])[
        "taskDefinition"
    ]
    task = PlayedTask(run["taskArn"], described)
    group = task.options["awslogs-group"]
    put_lines(logs, group, task.stream("batch"), "[  0.00 s] extracting 4,000,000 orders")
    said = _played(task)
    if said:
        put_lines(logs, group, task.stream("task-monitor"), *said.splitlines())


def _played(task: PlayedTask) -> str:
    """What the monitor's container wrote to its standard output."""
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    } | task.settings
    with TaskEndpoint(task) as found:
        environment |= {
            "ECS_CONTAINER_METADATA_URI_V4": found.address,
            "TASK_PROFILER_INTERVAL_SECONDS": "0.1",
        }
        words = [os.environ["MONITOR_PROGRAM"], "monitor"]
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                wait_until(lambda: task.stats_reads >= _STATS_READS, "samples of the monitor")
                task.ended = time.time()
                output, _ = process.communicate(timeout=LIMIT_SECONDS)
            finally:
                process.kill()
    return output


if __name__ == "__main__":
    main(sys.argv[1:])
