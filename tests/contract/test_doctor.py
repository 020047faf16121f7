"""``task-profiler doctor`` for the forwarder's stack on moto, for a task's endpoint, and for
task definitions.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from profiler.search_setup.template_install import setup_files
from tests.aws_proxy import AwsProxy
from tests.cloudformation import LOG_GROUPS, REGION, deploy
from tests.command_line import run_here
from tests.log_subscriptions import put_lines
from tests.setup_cluster import Cluster
from tests.task_endpoint import TASK_ID, Task, TaskEndpoint
from tools.moto_server import FakeAws, fake_aws
from tools.waiting import LIMIT_SECONDS


class Deployment:
    def __init__(self, aws: FakeAws, proxy: AwsProxy) -> None:
        self._environment = aws.environment() | {
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_REGION": REGION,
        }
        self.proxy = proxy

    def doctor(self, *words: str, stack: str = "tp") -> tuple[int, dict[str, list[dict[str, Any]]]]:
        """Exit code, and the findings by topic."""
        done = run_here(self._environment, "doctor", "--deployed", stack, "--json", *words)
        assert done.stderr == ""
        found: dict[str, list[dict[str, Any]]] = {}
        for line in done.stdout.splitlines():
            finding = json.loads(line)
            found.setdefault(finding["topic"], []).append(finding)
        return done.returncode, found


def levels(findings: list[dict[str, Any]]) -> set[str]:
    return {one["level"] for one in findings}


def problems(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [one for findings in found.values() for one in findings if one["level"] == "problem"]


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    with fake_aws() as aws:
        for name, value in (
            aws.environment() | {"AWS_DEFAULT_REGION": REGION, "AWS_REGION": REGION}
        ).items():
            monkeypatch.setenv(name, value)
        proxy = AwsProxy(
            aws.url, page_size=1, answers={"DescribeAccountPolicies": {"accountPolicies": []}}
        )
        yield Deployment(aws, proxy)
        proxy.close()


def put_metric(function: str, metric: str, value: int) -> None:
    dimensions = [{"Name": "FunctionName", "Value": function}]
    moment = datetime.now(UTC) - timedelta(minutes=5)  # moto compares whole seconds
    datum = {"MetricName": metric, "Dimensions": dimensions, "Timestamp": moment, "Value": value}
    boto3.client("cloudwatch").put_metric_data(Namespace="AWS/Lambda", MetricData=[datum])


def test_a_new_stack_works_and_waits_for_the_first_report(deployment: Deployment) -> None:
    deploy(WatchSchedules="true")
    code, found = deployment.doctor()
    assert code == 0, problems(found)
    assert [one["level"] for one in found["watch_schedules"]] == ["ok", "ok", "note"]
    assert levels(found["stack"]) == levels(found["queues"]) == {"ok"}
    assert [one["text"] for one in found["subscription"]] == [
        f"{group} is subscribed." for group in LOG_GROUPS
    ]
    assert [one["level"] for one in found["forward_logs"]] == ["ok", "note"]
    assert "was not invoked" in found["forward_logs"][1]["text"]


def test_jobs_without_their_rule_are_said_to_have_no_notification(
    deployment: Deployment,
) -> None:
    """With ``BatchJobs``, the tasks of jobs have none of their own."""
    deploy(BatchJobs="true")
    code, found = deployment.doctor()
    assert code == 0, problems(found)
    assert [one["level"] for one in found["task_stopped"]] == ["ok", "ok", "ok", "note"]
    events = boto3.client("events")
    (rule,) = [one for one in events.list_rules()["Rules"] if "aws.batch" in one["EventPattern"]]
    for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]:
        events.remove_targets(Rule=rule["Name"], Ids=[target["Id"]])
    events.delete_rule(Name=rule["Name"])
    code, found = deployment.doctor()
    assert code == 1
    (one,) = problems(found)
    assert "jobs and their tasks have no notification" in one["text"]
    assert "Update the stack with task-profiler setup stack --name tp;" in one["advice"]


def test_the_groups_of_a_prefix_are_checked_as_they_were_subscribed(
    deployment: Deployment,
) -> None:
    logs = boto3.client("logs")
    deploy(LogGroups="/ecs/*")
    logs.create_log_group(logGroupName="/ecs/tp-instance-monitor")  # the template's own
    _, found = deployment.doctor()
    assert [one["text"] for one in found["subscription"]] == [
        "All log groups of /ecs/* are subscribed (2)."
    ]
    logs.create_log_group(logGroupName="/ecs/new")
    code, found = deployment.doctor()
    assert code == 1
    assert [one["text"] for one in found["subscription"]] == [
        "/ecs/new has no subscription filter that delivers Task Profiler's lines to this stack."
    ]


def test_everything_that_is_broken_is_found_in_one_run(deployment: Deployment) -> None:
    """A filter is gone, another passes other lines, the rule is disabled, queues have messages,
    a function fails.
    """
    stack = deploy()
    logs = boto3.client("logs")
    filters = [
        logs.describe_subscription_filters(logGroupName=group)["subscriptionFilters"]
        for group in LOG_GROUPS
    ]
    (gone,), (found,) = filters
    logs.delete_subscription_filter(logGroupName=LOG_GROUPS[0], filterName=gone["filterName"])
    fields = ("logGroupName", "filterName", "destinationArn")
    logs.put_subscription_filter(**{name: found[name] for name in fields}, filterPattern="ERROR")
    (rule,) = boto3.client("events").list_rules()["Rules"]
    boto3.client("events").disable_rule(Name=rule["Name"])
    for output in ("ForwardLogsDeadLetterQueueUrl", "FailedItemsQueueUrl"):
        boto3.client("sqs").send_message(QueueUrl=stack.outputs[output], MessageBody="{}")
    function = stack.outputs["ForwardLogsFunctionName"]
    put_metric(function, "Invocations", 5)
    put_metric(function, "Errors", 2)
    put_lines(logs, f"/aws/lambda/{function}", "s", "[ERROR] ForwarderError: no route\n")
    code, found = deployment.doctor()
    assert code == 1
    texts = [one["text"] for one in problems(found)]
    no_filter = "has no subscription filter that delivers Task Profiler's lines to this stack."
    assert {f"{group} {no_filter}" for group in LOG_GROUPS} < {*texts}
    failed = "2 of 5 invocations of tp-forward-logs failed in 24 hours. Last error: "
    assert f"{failed}[ERROR] ForwarderError: no route" in texts
    assert sum("is disabled" in text for text in texts) == 1
    assert sum("about 1 message in" in text for text in texts) == 2
    assert len(texts) == 6
    assert all(one["advice"] for one in problems(found))
    deployment.proxy.refused = {"FilterLogEvents"}
    texts = [one["text"] for one in problems(deployment.doctor()[1])]
    assert (
        sum(text.startswith(f"{failed}unknown. The log of tp-forward-logs") for text in texts) == 1
    )


def test_the_account_wide_subscription_is_checked_also_behind_a_data_stream(
    deployment: Deployment,
) -> None:
    stack = deploy(Subscribe="account", Ingestion="stream", LogGroups="/ecs/*")
    code, found = deployment.doctor()
    assert code == 1
    assert "account-wide" in found["subscription"][0]["text"]
    (policy,) = stack.resources("AWS::Logs::AccountPolicy").values()
    assert (
        json.loads(policy["PolicyDocument"])["DestinationArn"] == stack.outputs["ReportStreamArn"]
    )
    answer = {"accountPolicies": [{"policyName": "tp", "policyDocument": policy["PolicyDocument"]}]}
    deployment.proxy.answers["DescribeAccountPolicies"] = answer
    code, found = deployment.doctor()
    assert code == 0, problems(found)
    assert levels(found["subscription"]) == levels(found["data stream"]) == {"ok"}
    queues = [stack.outputs[f"{name}DeadLetterQueueUrl"] for name in ("ForwardLogs", "TaskStopped")]
    for queue in queues:
        boto3.client("sqs").send_message(QueueUrl=queue, MessageBody="{}")
    _, found = deployment.doctor()
    assert [
        one["advice"].partition("task-profiler ")[2]
        for one in found["queues"]
        if one["level"] == "problem"
    ] == [
        "replay, for each log group, and empty the queue.",  # the messages have no event
        "setup redrive --name tp.",
    ]
    for queue in queues:
        boto3.client("sqs").purge_queue(QueueUrl=queue)
    put_metric(
        stack.outputs["ForwardLogsFunctionName"], "Invocations", 5
    )  # of the day before it was disabled
    (source,) = boto3.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    boto3.client("lambda").update_event_source_mapping(UUID=source["UUID"], Enabled=False)
    code, found = deployment.doctor()
    (one,) = problems(found)
    assert code == 1
    assert one["topic"] == "data stream"
    assert "event source mapping: Disabled" in one["text"]


def test_what_a_stack_leaves_out_is_noted_and_what_is_missing_is_a_sentence(
    deployment: Deployment,
) -> None:
    code, found = deployment.doctor(stack="other")
    assert code == 1
    assert list(found) == ["stack"]
    assert "There is no stack 'other'" in found["stack"][0]["text"]
    deploy("bare", ElasticsearchUrl="", TaskStopped="false", WatchSchedules="true")
    code, found = deployment.doctor(stack="bare")
    assert code == 0
    assert levels(found["forward_logs"]) == {"note"}
    assert levels(found["task_stopped"]) == {"note"}
    deploy()
    boto3.client("logs").delete_log_group(logGroupName=LOG_GROUPS[0])
    code, found = deployment.doctor()
    assert code == 1
    (one,) = problems(found)
    assert f"The subscriptions of {LOG_GROUPS[0]} cannot be read" in one["text"]


def test_the_index_templates_of_the_cluster_are_checked(deployment: Deployment) -> None:
    deploy()
    with Cluster("task-logs") as cluster:
        code, found = deployment.doctor("--from", cluster.url)
        assert code == 1
        assert (
            "lacks the index templates task-checkpoints, task-notices, task-reports"
            in found["templates"][0]["text"]
        )
        install = f"Install them: task-profiler kibana import --elasticsearch {cluster.url}"
        assert found["templates"][0]["advice"] == f"{install}."
        _, found = deployment.doctor("--from", f"{cluster.url}/batch/")
        assert found["templates"][0]["advice"] == f"{install} --prefix batch."
        cluster.templates = [name.replace("task-", "batch-") for name in setup_files().templates]
        code, found = deployment.doctor("--from", f"{cluster.url}/batch")
        assert code == 0
        assert levels(found["templates"]) == {"ok"}


GROUP, STREAM = "/ecs/doctor", f"ecs/batch/{TASK_ID}"


def doctor(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_here({"PATH": os.environ["PATH"], **environment}, "doctor", *options)


def doctor_process(**environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "profiler", "doctor", "--json", "--seconds", "5"]
    variables = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        words, env=variables, capture_output=True, check=False, text=True, timeout=LIMIT_SECONDS
    )


def by_topic(output: str) -> dict[str, Any]:
    return {finding["topic"]: finding for finding in map(json.loads, output.splitlines())}


def test_a_served_task_is_examined_and_nothing_is_written() -> None:
    settings = {"TASK_PROFILER_LOG_GROUP": GROUP, "TASK_PROFILER_LOG_STREAM": STREAM}
    with TaskEndpoint(Task(2)) as task, fake_aws() as aws:
        settings |= {"ECS_CONTAINER_METADATA_URI_V4": task.address, **aws.environment()}
        aws.create_log_group(GROUP)
        refused = doctor_process(**settings)
        aws.create_log_stream(GROUP, STREAM)
        allowed = doctor_process(**settings)
        assert aws.events(GROUP, STREAM) == ()
    assert refused.returncode == 1, refused.stderr
    missing = by_topic(refused.stdout)["log stream"]
    assert missing["level"] == "problem"
    assert "does not exist" in missing["text"]
    assert allowed.returncode == 0, allowed.stdout + allowed.stderr
    found = by_topic(allowed.stdout)
    assert (
        found["log stream"]["text"]
        == f"The monitor may write the report to {GROUP}, stream {STREAM}."
    )
    assert found["stats"]["level"] == "ok"
    assert ("visible size" in found) is (os.cpu_count() != 1)  # the task's size is one vCPU


def test_outside_of_ecs_it_says_so_in_plain_words_and_without_colours() -> None:
    told = doctor()
    assert told.returncode == 0
    assert told.stdout.startswith("note     task metadata")
    assert "\x1b" not in told.stdout


def test_a_task_definition_and_a_template_are_examined_before_the_first_run(tmp_path: Path) -> None:
    batch = {"name": "etl", "image": "etl:26", "memory": 256}
    file = tmp_path / "nightly etl.json"
    file.write_text(json.dumps({"family": "etl", "containerDefinitions": [batch]}))
    examined = doctor(str(file))
    assert examined.returncode == 1
    assert f"Add it: task-profiler taskdef add-monitor '{file}' --in-place." in examined.stdout
    image = "111122223333.dkr.ecr.us-east-1.amazonaws.com/task-profiler:1"
    add = [
        "taskdef",
        "add-monitor",
        str(file),
        "--region",
        "us-east-1",
        "--image",
        image,
        "--in-place",
    ]
    assert run_here({}, *add).returncode == 0
    again = doctor(str(file))
    assert again.returncode == 0, again.stdout
    assert "PROBLEM" not in again.stdout

    template = tmp_path / "stack.json"
    task = {"ContainerDefinitions": [{"Name": "etl", "Image": {"Ref": "Image"}}]}
    template.write_text(
        json.dumps(
            {"Resources": {"Task": {"Type": "AWS::ECS::TaskDefinition", "Properties": task}}}
        )
    )
    assert "There is no monitor" in doctor(str(template)).stdout


def test_the_latest_revision_of_a_family_is_examined() -> None:
    with fake_aws() as aws:
        batch = {"name": "etl", "image": "etl:26", "memory": 256}
        aws.client("ecs").register_task_definition(family="etl", containerDefinitions=[batch])
        examined = doctor("etl", **aws.environment())
        missing = doctor("other", **aws.environment())
    assert "Add it: task-profiler taskdef add-monitor --family etl --register." in examined.stdout
    assert missing.returncode == 1, missing.stderr
    assert missing.stderr.count("\n") == 1
    assert "There is no task definition 'other': check the name" in missing.stderr
