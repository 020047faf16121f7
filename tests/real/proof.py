"""Plays Amazon ECS and the deliveries of AWS for ``task-profiler setup proof``: the command's calls
start tasks of the real agent, and a thread delivers what AWS delivers.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from tests.aws_proxy import AwsProxy
from tests.e2e.images import MONITOR_IMAGE
from tests.log_subscriptions import put_lines
from tests.proof_account import STACK, deploy_stack
from tests.real.control_plane import StartedTask
from tests.real.lab import Lab
from tests.search.deployed_forwarder import subscription_events
from tools.waiting import wait_until

_FUNCTION_GROUP = f"/aws/lambda/{STACK}-task-stopped"
_FUNCTION_STREAM = "2026/11/26/[$LATEST]7b3f0c2d9e1a4855b6d0aa41c7f2e893"
ROLE = "proof-task"
# The command, with another time to wait.
_PROGRAM = """
import sys
from functools import partial
from profiler.cli.app import run_command_line
from profiler.cli.setup import proof_output
proof_output.print_proof = partial(proof_output.print_proof, wait_seconds=float(sys.argv.pop(1)))
run_command_line()
"""


class Proving(Struct):
    """One proof: the calls of its command, and what happens to its tasks.

    ``change`` sees each task's definition before it is started; where it returns False, ECS has no
    capacity. ``delivers_events``: EventBridge invokes task_stopped.
    """

    lab: Lab
    proxy: AwsProxy
    change: Callable[[dict[str, Any]], object]
    delivers_events: Callable[[StartedTask], bool]
    is_agent_away: bool = False
    started: dict[str, tuple[StartedTask, str]] = {}

    def run_task(self, request: dict[str, Any]) -> dict[str, Any]:
        ecs = self.lab.aws.client("ecs")
        described = ecs.describe_task_definition(taskDefinition=request["taskDefinition"])
        definition = described["taskDefinition"]
        (override,) = request["overrides"]["containerOverrides"]
        for container in definition["containerDefinitions"]:
            if container["name"] == override["name"]:
                container["command"] = override["command"]
            container["logConfiguration"]["options"]["awslogs-endpoint"] = self.lab.aws.url
            address = {"name": "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", "value": self.lab.aws.url}
            container["environment"] = [*container.get("environment", ()), address]
        if self.change(definition) is False:
            return {"tasks": [], "failures": [{"reason": "RESOURCE:CPU"}]}
        if self.is_agent_away:
            task = StartedTask(definition)
            self.lab.plane.tasks[task.arn] = task
        else:
            task = self.lab.plane.start(definition)
        self.started[task.arn] = task, request["startedBy"]
        return {"tasks": [self.described(task)], "failures": []}

    def described(self, task: StartedTask) -> dict[str, Any]:
        """The task as DescribeTasks returns it: times are numbers, and ECS knows what the agent
        has reported.
        """
        detail: dict[str, Any] = task.stopped_event()["detail"] if task.has_stopped else {}
        status = "PENDING"
        if task.has_stopped:
            status = "STOPPED"
        elif task.containers:
            status = "RUNNING"
        return {
            **detail,
            **task.times,
            "taskArn": task.arn,
            "lastStatus": status,
        }

    def describe_tasks(self, request: dict[str, Any]) -> dict[str, Any]:
        found = [self.started[arn][0] for arn in request["tasks"]]
        return {"tasks": [self.described(task) for task in found], "failures": []}

    def list_tasks(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "taskArns": [
                arn
                for arn, (task, starter) in self.started.items()
                if starter == request.get("startedBy") and not task.has_stopped
            ]
        }

    def stop_task(self, request: dict[str, Any]) -> dict[str, Any]:
        task, _ = self.started[request["task"]]
        if self.is_agent_away:  # ECS itself stops what no agent has taken
            task.times["stoppedAt"] = time.time()
        else:
            self.lab.plane.stop(task)
        return {"task": self.described(task)}

    def run(self, wait_seconds: float, *words: str) -> tuple[int, dict[str, Any], str]:
        """Run the command. Returns its exit code, its JSON and its standard error."""
        environment = self.lab.aws.environment() | {"AWS_ENDPOINT_URL": self.proxy.url}
        options = ["--cluster", "jobs", "--like", "proven"]
        if "--image" not in words:
            options += ["--image", MONITOR_IMAGE]
        command = [sys.executable, "-c", _PROGRAM, str(wait_seconds), "setup", "proof", *options]
        done = subprocess.run(
            [*command, *words, "--yes", "--json"],
            env=environment | {"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@contextmanager
def proving(
    lab: Lab,
    change: Callable[[dict[str, Any]], object] = lambda _definition: None,
    delivers_events: Callable[[StartedTask], bool] = lambda _task: True,
    *,
    is_agent_away: bool = False,
) -> Iterator[Proving]:
    """A proof of the family "proven"."""
    proxy = AwsProxy(lab.aws.url)
    made = Proving(lab, proxy, change, delivers_events, is_agent_away)
    proxy.answers = {
        "RunTask": made.run_task,
        "DescribeTasks": made.describe_tasks,
        "ListTasks": made.list_tasks,
        "StopTask": made.stop_task,
        "DescribeAccountPolicies": {"accountPolicies": []},
    }
    ended = threading.Event()
    deliverer = threading.Thread(target=_deliver, args=(made, ended))
    deliverer.start()
    try:
        yield made
    finally:
        ended.set()
        deliverer.join()
        proxy.close()


def prepare(lab: Lab) -> None:
    """The stack, and a family of EC2 that has run in the cluster."""
    deploy_stack(lab.aws, ElasticsearchUrl=lab.search.url)
    iam = lab.aws.client("iam")
    role = iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")["Role"]
    ecs = lab.aws.client("ecs")
    ecs.create_cluster(clusterName="jobs")
    ecs.register_task_definition(
        family="proven",
        requiresCompatibilities=["EC2"],
        networkMode="bridge",
        taskRoleArn=role["Arn"],
        containerDefinitions=[{"name": "etl", "image": "etl:1", "memory": 64}],
    )


def _deliver(made: Proving, ended: threading.Event) -> None:
    """Invoke the functions for each task that has ended, as subscriptions and EventBridge do."""
    lab = made.lab
    logs = lab.aws.client("logs")
    delivered: set[str] = set()
    while not ended.wait(0.5):
        for task, _ in list(made.started.values()):
            if not task.has_stopped or task.id in delivered:
                continue
            delivered.add(task.id)
            logging = task.definition["containerDefinitions"][0]["logConfiguration"]
            group = logging["options"]["awslogs-group"]
            try:
                filters = logs.describe_subscription_filters(logGroupName=group)
            except logs.exceptions.ResourceNotFoundException:
                continue  # the proof is over, and has stopped the task
            for event in subscription_events(logs, group, task.id):
                if filters["subscriptionFilters"]:
                    with _INVOCATION:
                        lab.forward_logs.invoke(event)
            if made.delivers_events(task):
                with _INVOCATION:
                    _invoke_task_stopped(lab, task)


# The emulator takes one invocation at a time.
_INVOCATION = threading.Lock()


def _invoke_task_stopped(lab: Lab, task: StartedTask) -> None:
    """Invoke it; Lambda copies what it prints to its log group."""
    before = lab.task_stopped.log.stat().st_size
    lab.task_stopped.invoke(task.stopped_event())

    def printed() -> list[str]:
        with lab.task_stopped.log.open() as file:
            file.seek(before)
            return [line.strip() for line in file if '"task.ended"' in line and task.id in line]

    wait_until(printed, f"the line of {task.id}")
    put_lines(lab.aws.client("logs"), _FUNCTION_GROUP, _FUNCTION_STREAM, *printed())
