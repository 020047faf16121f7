"""Plays the account-wide subscription: the deployed function forward_logs gets the reports of
all log groups.

    python -m tests.search.deployed_forwarder

The function is the zip in the stack's bucket with the stack's variables, run by a new process that
sees nothing else.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any

import boto3
import requests

from tests.log_subscriptions import DOCUMENT, event
from tools.waiting import LIMIT_SECONDS

_STACK = "task-profiler"
_PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import handler
class Context:
    function_name, function_version, memory_limit_in_mb = "task-profiler-forward-logs", "1", 512
    invoked_function_arn, aws_request_id = "arn:aws:lambda:us-east-1:123456789012:function:f", "1"
    def get_remaining_time_in_millis(self): return 900_000
print(json.dumps(handler.forward_logs(json.load(sys.stdin), Context())))
"""


def main() -> None:
    stack = boto3.client("cloudformation").describe_stacks(StackName=_STACK)["Stacks"][0]
    given = {one["ParameterKey"]: one["ParameterValue"] for one in stack["Parameters"]}
    code = (
        boto3.client("s3")
        .get_object(Bucket=given["CodeBucket"], Key=given["CodeKey"])["Body"]
        .read()
    )
    function = boto3.client("lambda").get_function_configuration(
        FunctionName=f"{_STACK}-forward-logs"
    )
    variables = {name: str(value) for name, value in function["Environment"]["Variables"].items()}
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(io.BytesIO(code)).extractall(folder)
        for subscribed in subscription_events(boto3.client("logs")):
            done = subprocess.run(
                [sys.executable, "-I", "-c", _PROGRAM, folder],
                env={**os.environ, **variables},
                input=json.dumps(subscribed),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            answer = json.loads(done.stdout.splitlines()[-1])
            assert answer["indexed"] > 0, done.stdout
            assert answer["failed"] == 0, done.stdout
    requests.post(
        f"{given['ElasticsearchUrl']}/task-*/_refresh", timeout=LIMIT_SECONDS
    ).raise_for_status()


def subscription_events(
    logs: Any, prefix: str = "/ecs/", task_id: str = ""
) -> Iterator[dict[str, Any]]:
    """An event for each log stream, of one task or of all, with lines that the filter pattern
    selects.
    """
    groups = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix)
    for group in (one["logGroupName"] for page in groups for one in page["logGroups"]):
        for stream in logs.describe_log_streams(logGroupName=group)["logStreams"]:
            name = stream["logStreamName"]
            if not name.endswith(task_id):
                continue
            lines = logs.get_log_events(logGroupName=group, logStreamName=name, startFromHead=True)[
                "events"
            ]
            selected = [
                {"id": str(number), "timestamp": one["timestamp"], "message": one["message"]}
                for number, one in enumerate(lines)
                if '"type":"task.' in one["message"]
            ]
            if selected:
                stream_lines = {"logGroup": group, "logStream": name, "logEvents": selected}
                yield event({**DOCUMENT, "owner": "123456789012", **stream_lines})


if __name__ == "__main__":
    main()
