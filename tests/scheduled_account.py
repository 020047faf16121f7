"""An account on moto with schedules, rules and tasks; CloudTrail's LookupEvents and the times of
tasks are added.
"""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import botocore.client
import pytest
from botocore.exceptions import ClientError
from moto.stepfunctions.models import stepfunctions_backends

from tests.step_functions import machine_arn, publish, running

REGION, ACCOUNT = "eu-west-1", "123456789012"


def event(name: str, time: str, request: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """An event as CloudTrail stores it."""
    return {"eventName": name, "eventTime": time, "requestParameters": request, **fields}


def run_task(
    time: str, *, failure: str | None = None, family: str = "nightly", **given: Any
) -> dict[str, Any]:
    """A call of RunTask by EventBridge Scheduler, which started a task unless it has a failure."""
    arn = f"arn:aws:ecs:{REGION}:{ACCOUNT}"
    request = {
        "cluster": f"{arn}:cluster/{given.pop('cluster', 'jobs')}",
        "taskDefinition": f"{arn}:task-definition/{family}:3",
        "startedBy": given.pop("started_by", "chronos-schedule/nightly"),
        "count": 1,
        "overrides": "HIDDEN_DUE_TO_SECURITY_REASONS",
    }
    failures = [{"arn": "", "reason": failure}] if failure else []
    answer = {
        "failures": failures,
        "tasks": [] if failure else [{"taskArn": f"{arn}:task/jobs/0123"}],
    }
    return event("RunTask", time, request, **{"responseElements": answer, **given})


class FakeCloudTrail:
    """The client. Its events are in no order; a page has two."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = list(events)
        self.requests: list[dict[str, Any]] = []

    def lookup_events(self, **given: Any) -> dict[str, Any]:
        """Answer as CloudTrail, newest first."""
        self.requests.append(given)
        (attribute,) = given["LookupAttributes"]
        assert attribute["AttributeKey"] == "EventName"
        found = [
            one
            for one in self.events
            if one["eventName"] == attribute["AttributeValue"]
            and given["StartTime"] <= datetime.fromisoformat(one["eventTime"]) <= given["EndTime"]
        ]
        found.sort(key=lambda one: str(one["eventTime"]), reverse=True)
        start = int(given.get("NextToken", 0))
        page = {
            "Events": [{"CloudTrailEvent": json.dumps(one)} for one in found[start : start + 2]]
        }
        return page | ({"NextToken": str(start + 2)} if len(found) > start + 2 else {})


TARGET: dict[str, Any] = {
    "Arn": f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/jobs",
    "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/schedules",
    "EcsParameters": {
        "LaunchType": "FARGATE",
        "NetworkConfiguration": {"awsvpcConfiguration": {"Subnets": ["subnet-0a"]}},
        "TaskDefinitionArn": f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/nightly",
        "TaskCount": 1,
    },
}


class ScheduledAccount:
    """Inside of ``mock_aws``: its clock, ``time.time_ns``, goes on when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trail = FakeCloudTrail()
        self.created = datetime.now(UTC)
        self.minutes = 0.0
        self.refused: set[str] = set()  # operations
        self.operations: list[str] = []
        self._times: dict[str, dict[str, datetime]] = {}
        call = botocore.client.BaseClient._make_api_call

        def answer(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
            if operation == "LookupEvents":
                return self.trail.lookup_events(**arguments)
            self.operations.append(operation)
            if operation in self.refused:
                error = {"Code": "AccessDeniedException", "Message": "no"}
                raise ClientError({"Error": error}, operation)
            response = call(client, operation, arguments)
            if operation == "DescribeTasks":
                response["tasks"] = [
                    task | self._times.get(task["taskArn"], {}) for task in response["tasks"]
                ]
            return response

        monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", answer)
        monkeypatch.setattr(
            time, "time_ns", lambda: round(self.at(self.minutes).timestamp() * 1000) * 1_000_000
        )

    def at(self, minutes: float) -> datetime:
        """A time after the account was made."""
        return self.created + timedelta(minutes=minutes)

    def make_cluster(self) -> None:
        ecs = boto3.client("ecs")
        ecs.create_cluster(clusterName="jobs")
        container = {"name": "batch", "image": "x", "memory": 64}
        ecs.register_task_definition(family="nightly", containerDefinitions=[container])

    def make_schedule(self, name: str, expression: str, queue_arn: str | None = None) -> None:
        """A schedule of EventBridge Scheduler that starts a task of the family nightly."""
        target = TARGET if queue_arn is None else {**TARGET, "DeadLetterConfig": {"Arn": queue_arn}}
        boto3.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=target,
        )

    def make_rule(self, name: str, expression: str) -> None:
        """A rule of EventBridge that starts a task of the family nightly."""
        events = boto3.client("events")
        events.put_rule(Name=name, ScheduleExpression=expression)
        events.put_targets(Rule=name, Targets=[{"Id": "1", **TARGET}])

    def make_job_rule(self, name: str, expression: str, queue: str, job: str) -> None:
        """A rule of EventBridge that submits a job of the definition etl to a queue of AWS Batch."""
        events = boto3.client("events")
        events.put_rule(Name=name, ScheduleExpression=expression)
        target = {
            "Id": "1",
            "Arn": f"arn:aws:batch:{REGION}:{ACCOUNT}:job-queue/{queue}",
            "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/schedules",
            "BatchParameters": {"JobDefinition": "etl", "JobName": job},
        }
        events.put_targets(Rule=name, Targets=[target])

    def make_job_schedule(self, name: str, expression: str, queue: str, job: str) -> None:
        """A schedule of EventBridge Scheduler that submits such a job."""
        asked = {"JobName": job, "JobQueue": queue, "JobDefinition": "etl"}
        boto3.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
                "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/schedules",
                "Input": json.dumps(asked),
            },
        )

    def make_universal_schedule(self, name: str, expression: str, **more: str) -> None:
        """A schedule of EventBridge Scheduler that calls RunTask for the family nightly."""
        asked = {"TaskDefinition": "nightly", "Cluster": "jobs", **more}
        boto3.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:ecs:runTask",
                "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/schedules",
                "Input": json.dumps(asked),
            },
        )

    def make_machine_schedule(
        self, name: str, expression: str, *families: str, alias: str = "", kind: str = "STANDARD"
    ) -> None:
        """A schedule that starts a state machine of its name, which runs a task of each family;
        with ``alias``, by that one.
        """
        client = boto3.client("stepfunctions")
        states: dict[str, object] = {
            family: running({"TaskDefinition": family}) for family in families
        } or {"Wait": {"Type": "Wait", "Seconds": 1, "End": True}}
        made = client.create_state_machine(
            name=name,
            definition=json.dumps({"StartAt": next(iter(states)), "States": states}),
            roleArn=f"arn:aws:iam::{ACCOUNT}:role/machines",
            type=kind,
        )
        arn = made["stateMachineArn"]
        if alias:
            publish(client, name, alias)
        boto3.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": f"{arn}:{alias}" if alias else arn,
                "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/schedules",
            },
        )

    def execute(self, machine: str, minutes: float) -> None:
        """An execution of a state machine begins."""
        client = boto3.client("stepfunctions")
        client.start_execution(stateMachineArn=machine_arn(client, machine))
        of_region = stepfunctions_backends[ACCOUNT][REGION].state_machines
        (found,) = (one for one in of_region if one.name == machine)
        found.executions[-1].start_date = self.at(minutes)

    def start_task(self, name: str, minutes: float, starter: str = "chronos-schedule/") -> str:
        """A task that a schedule, or a rule, has started, or whoever calls RunTask. Returns its
        ARN.
        """
        (task,) = boto3.client("ecs").run_task(
            cluster="jobs",
            taskDefinition="nightly",
            launchType="FARGATE",
            startedBy=f"{starter}{name}"[:36],
            networkConfiguration={"awsvpcConfiguration": {"subnets": ["subnet-0a"]}},
        )["tasks"]
        self._times[task["taskArn"]] = {
            "createdAt": self.at(minutes),
            "startedAt": self.at(minutes + 0.5),
        }
        return str(task["taskArn"])

    def stop_task(self, arn: str, minutes: float) -> None:
        boto3.client("ecs").stop_task(cluster="jobs", task=arn)
        self._times[arn]["stoppedAt"] = self.at(minutes)

    @staticmethod
    def make_queue(name: str) -> str:
        """A queue. Returns its ARN."""
        boto3.client("sqs").create_queue(QueueName=name)
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"

    @staticmethod
    def send(queue_arn: str, **attributes: str) -> None:
        """A message with attributes, as EventBridge Scheduler sends it to a dead-letter queue."""
        sqs = boto3.client("sqs")
        url = sqs.get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]
        values = {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
        }
        sqs.send_message(QueueUrl=url, MessageBody="{}", MessageAttributes=values)
