"""What Airflow says about the tasks whose names are on standard input.

Runs in an environment of its own.
"""

import json
import logging
import sys
from datetime import timedelta
from typing import Any

import boto3
from airflow.providers.amazon.aws.executors.ecs.boto_schema import BotoDescribeTasksSchema
from airflow.providers.amazon.aws.operators import ecs
from airflow.providers.amazon.aws.operators.ecs import EcsRunTaskOperator

ecs.sleep = lambda _seconds: None  # 10 s before it asks for the first container


class Instance:
    def xcom_push(self, **_: object) -> None:
        pass


def operator(name: str, container: str | None) -> EcsRunTaskOperator:
    return EcsRunTaskOperator(
        task_id="etl",
        cluster=name,
        task_definition="etl:1",
        overrides={},
        launch_type="FARGATE",
        awslogs_group="/ecs/jobs",
        awslogs_stream_prefix="ecs",
        awslogs_fetch_interval=timedelta(seconds=60),
        container_name=container,
        aws_conn_id=None,
        region_name="us-east-1",
        waiter_delay=1,
        waiter_max_attempts=2,
    )


def executed(name: str, container: str | None) -> tuple[str, str | None]:
    try:
        return "ok", operator(name, container).execute({"ti": Instance()})
    except ecs.AirflowException:
        return "fails", None


def verdicts(name: str) -> dict[str, Any]:
    said, xcom = executed(name, "batch")
    _, of_first = executed(name, None)
    described = boto3.client("ecs").describe_tasks(cluster=name, tasks=[name])
    (task,) = BotoDescribeTasksSchema().load(described)["tasks"]
    deferred = None
    if said == "ok":
        event = {"status": "success", "task_arn": described["tasks"][0]["taskArn"], "cluster": name}
        deferred = operator(name, "batch").execute_complete({}, event)
    return {
        "EcsRunTaskOperator": said,
        "executor": {"success": "ok", "failed": "fails", "running": "runs on"}[
            str(task.get_task_state().value)
        ],
        "xcom": xcom,
        "xcom without container_name": of_first,
        "xcom deferrable": deferred,
    }


if __name__ == "__main__":
    logging.disable()
    sys.stdout.write(json.dumps({name: verdicts(name) for name in json.load(sys.stdin)}))
