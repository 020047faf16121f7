"""The roles of lambda/template.yaml allow what the functions do, and nothing else.

The handlers run with the deployed settings, and each of their calls is held against the role's
statements.
"""

import ast
import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import botocore.client
import pytest
from botocore import xform_name

import handler
import profiler.forwarder
from profiler.aws_account import eventbridge_calls, missed_reasons
from profiler.core.timestamps import format_datetime
from profiler.forwarder.invocation import ForwarderError
from profiler.record.notice_model import encode_notice_line
from tests import batch_jobs
from tests.cloudformation import ACCOUNT, LOG_GROUPS, REGION, Stack, deploy, listed, template
from tests.fake_batch import FakeBatch
from tests.fake_slack import Answer, FakeSlack
from tests.http_server import FakeElasticsearch, OneAnswer
from tests.lambda_environment import (
    DigestContext,
    InvocationContext,
    forget_environment,
    function_environment,
)
from tests.log_subscriptions import REPORT, TASK_ID, subscription_event
from tests.memory_retries import BATCH, KILLED
from tests.scheduled_account import ScheduledAccount
from tests.shown_runs import stuck_notice
from tests.sidecars import awslogs, run_instance_monitor
from tests.task_events import event

FORWARDER = Path(profiler.forwarder.__file__).parent
DOMAIN = f"arn:aws:es:{REGION}:{ACCOUNT}:domain/runs"
# A notice, as the monitor of the task in the subscription's stream would write it.
NOTICE = {
    **json.loads(encode_notice_line(stuck_notice())),
    "record": {"taskId": TASK_ID, "container": {"name": "batch"}, "status": "unknown"},
}
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0f3c"

# Statements for what the functions' code never calls, and who does.
CALLED_BY_AWS = {
    "WriteOwnLog": "Lambda, for the function's log",
    "ExportRuns": "the export to CloudWatch's own endpoints, by SigV4",
    "ReadStream": "Lambda, for the event source mapping of a data stream",
    "KeepDeadLetters": "Lambda, for the destination of events that are given up",
    "DecryptSecrets": "Secrets Manager and Parameter Store, with a customer managed key",
    "DecryptSchedulesAndQueues": "EventBridge Scheduler and SQS, with customer managed keys",
    "ManageNetworkInterfaces": "Lambda, for functions in a VPC",
    "FindNetworkInterfaces": "Lambda, for functions in a VPC",
    "TagStartedTasks": "ECS, for the tags of RunTask",
    "TagSubmittedJobs": "AWS Batch, for the tags of SubmitJob",
    "PassTaskRoles": "ECS, for the roles of the task definition",
}
# Powertools calls it where a refused PutItem does not bring the item along, as before boto3
# 1.26.194.
RARELY_CALLED = {"dynamodb:GetItem"}
# Of operations that IAM knows by another name ("Actions, resources, and condition keys for Amazon
# SQS").
PERMISSIONS = {
    "SendMessageBatch": "SendMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
}
OF_MORNING_MESSAGE = {"FilterLogEvents"}
FUNCTIONS = ("ForwardLogs", "TaskStopped", "WatchSchedules")
# Actions that know no resource, so that only "*" allows them (Service Authorization Reference).
WITHOUT_RESOURCE = {
    "batch:DescribeComputeEnvironments",
    "batch:DescribeJobDefinitions",
    "batch:DescribeJobQueues",
    "batch:DescribeJobs",
    "batch:ListJobs",
    "ecs:DescribeTaskDefinition",
    "ecs:ListServices",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "scheduler:ListSchedules",
    "events:ListEventBuses",
    "events:ListRuleNamesByTarget",
    "events:ListRules",
    "cloudtrail:LookupEvents",
    "xray:PutSpans",
    "xray:PutSpansForIndexing",
    "xray:PutTraceSegments",
}
# It has a resource, a container instance. For the tasks of a cluster, IAM looks at "*":
# https://github.com/cdklabs/construct-hub/pull/1207
# CloudWatch's resource is a data set, which metrics of OTLP do not have.
WITHOUT_THEIR_RESOURCE = {"ecs:ListTasks", "cloudwatch:PutMetricData"}


@dataclass
class Calls:
    """What was called: actions as IAM names them, and the ARN of what they were about."""

    account: ScheduledAccount
    made: set[tuple[str, str]] = field(default_factory=set)
    is_on: bool = False


# The resources whose ARN follows from the arguments.
NAMED: dict[str, Callable[[dict[str, Any]], str]] = {
    "logs:GetLogEvents": lambda given: (
        f"log-group:{given['logGroupName']}:log-stream:{given['logStreamName']}"
    ),
    "logs:FilterLogEvents": lambda given: f"log-group:{given['logGroupName']}",
    **dict.fromkeys(
        (
            f"sqs:{name}"
            for name in (
                "SendMessage",
                "ReceiveMessage",
                "ChangeMessageVisibility",
                "GetQueueAttributes",
            )
        ),
        lambda given: given["QueueUrl"].rsplit("/", 1)[-1],
    ),
    "sqs:GetQueueUrl": lambda given: given["QueueName"],
    "scheduler:GetSchedule": lambda given: f"schedule/{given['GroupName']}/{given['Name']}",
    "events:ListTargetsByRule": lambda given: f"rule/{given['Rule']}",
    "ecs:RunTask": lambda given: given["taskDefinition"].split(":", 5)[5],
    "batch:SubmitJob": lambda given: given["jobDefinition"].split(":", 5)[5],
    "ecs:DescribeContainerInstances": lambda given: given["containerInstances"][0].split(":", 5)[5],
    "ecs:DescribeTasks": lambda given: given["tasks"][0].split(":", 5)[5],
    "ecs:DescribeServices": lambda given: given["services"][0].split(":", 5)[5],
    "events:PutEvents": lambda given: f"event-bus/{given['Entries'][0]['EventBusName']}",
}


def arn_of(action: str, arguments: dict[str, Any]) -> str:
    """The resource that IAM looks at."""
    if action in NAMED:
        return f"arn:aws:{action.split(':', maxsplit=1)[0]}:{REGION}:{ACCOUNT}:{NAMED[action](arguments)}"
    if action.startswith("dynamodb:"):
        return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{arguments['TableName']}"
    if action.startswith("states:"):
        names = [name for name in arguments if name.startswith("stateMachine")]
        return str(arguments[names[0]])
    if action == "secretsmanager:GetSecretValue":
        return str(
            boto3.client("secretsmanager").describe_secret(SecretId=arguments["SecretId"])["ARN"]
        )
    if action == "ssm:GetParameter":
        return str(boto3.client("ssm").get_parameter(Name=arguments["Name"])["Parameter"]["ARN"])
    assert action in WITHOUT_RESOURCE | WITHOUT_THEIR_RESOURCE, (
        f"say here what resource {action} is about"
    )
    return "*"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    recorded = Calls(ScheduledAccount(monkeypatch))
    call = botocore.client.BaseClient._make_api_call

    def recording(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
        if recorded.is_on:
            recorded.is_on = False  # not what arn_of asks
            action = (
                f"{client.meta.service_model.signing_name}:{PERMISSIONS.get(operation, operation)}"
            )
            recorded.made.add((action, arn_of(action, arguments)))
            if action == "batch:SubmitJob":
                queue = arguments["jobQueue"].split(":", 5)[5]
                recorded.made.add((action, f"arn:aws:batch:{REGION}:{ACCOUNT}:{queue}"))
            recorded.is_on = True
        return call(client, operation, arguments)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", recording)
    with function_environment(monkeypatch, AWS_DEFAULT_REGION=REGION, AWS_REGION=REGION):
        yield recorded


class Refusing(FakeElasticsearch):
    """Takes no document, finds none, and keeps what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: set[tuple[str, str]] = set()

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        path = request.path.split("?")[0]
        self.requests.add((request.command, path))
        text = gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body
        answer: dict[str, Any] = {"hits": {"hits": []}}
        if path == "/_bulk":
            reason = "failed to parse field [task.exit_code] of type [integer]"
            error = {"type": "mapper_parsing_exception", "reason": reason}
            refused = {"status": 400, "error": error}
            answer = {
                "errors": True,
                "items": [{"update": refused}] * (len(text.splitlines()) // 2),
            }
        headers = {"X-Elastic-Product": "Elasticsearch", "Content-Type": "application/json"}
        return 200, headers, json.dumps(answer).encode()


class Ran:
    """A stack whose functions were run with its settings: a poison report, and its task's end
    told three times.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: Calls, **given: str) -> None:
        self._monkeypatch, self._calls = monkeypatch, calls
        self._cluster, self._slack = cluster, slack = Refusing(), FakeSlack()
        self._signs_for = given.get("OpenSearchArn", "")
        keep_secret(given.get("SlackSecretId", ""), slack_failure_webhook_url=slack.webhook_url)
        keep_secret(given.get("ElasticsearchSecretId", ""), api_key="a2V5")
        keep_secret(given.get("OtlpSecretId", ""), otlp_headers="api-key=a2V5")
        backend = OneAnswer(400)
        if "OtlpSecretId" in given:
            given["OtlpEndpoint"] = backend.url
        given = {
            name: secret_arn(value) if value.startswith(SECRET) else value
            for name, value in given.items()
        }
        self._account = calls.account
        queue = self._account.make_queue("failed-starts")
        given |= {
            "ElasticsearchUrl": cluster.url,
            "ReportWaitSeconds": "0",
            "ScheduleQueueArns": queue,
        }
        self.stack = deploy(WatchSchedules="true", **given)
        self._schedule(queue)
        written = datetime.now(UTC)
        lines = [{**line, "time": format_datetime(written)} for line in (REPORT, NOTICE)]
        written_ms = round(written.timestamp() * 1000)
        report = subscription_event(*map(json.dumps, lines), timestamp_ms=written_ms)
        task_arn = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/jobs/0123"
        ended = [event(taskDefinitionArn=register(), taskArn=task_arn)]
        if "RetryOutOfMemory" in given:
            now = format_datetime(datetime.now(UTC))
            killed: dict[str, Any] = {
                "containers": [BATCH],
                "cpu": "256",
                "memory": "512",
                "stoppedAt": now,
            }
            killed["overrides"] = {"containerOverrides": [{"name": "batch"}]}
            for starter in ("chronos-schedule/nightly", "events-rule/hourly"):
                again = event(**{**ended[0]["detail"], **killed, "startedBy": starter})
                again["detail"]["taskArn"] += str(len(ended))
                ended.append(again)
        on_instance = {"taskDefinitionArn": register("batch"), "launchType": "EC2"}
        ended.append(event(taskArn=f"{task_arn}4", **on_instance))
        batch = FakeBatch()
        batch.now_ms = written_ms
        if given.get("BatchJobs") == "true":
            ended += jobs_that_failed(batch)
        for name, value in batch.environment().items():
            monkeypatch.setenv(name, value)
        self.made = {
            "ForwardLogs": self._made_by(
                "ForwardLogs", lambda: handler.forward_logs(report, InvocationContext())
            ),
            "TaskStopped": self._made_by("TaskStopped", lambda: stop_all(ended)),
            "WatchSchedules": self._made_by(
                "WatchSchedules", lambda: handler.watch_schedules({}, InvocationContext())
            ),
        }
        assert len(slack.messages) == len(FUNCTIONS) + len(ended) - 1
        assert {one["api-key"] for one in backend.headers} == (
            {"a2V5"} if "OtlpSecretId" in given else set()
        )
        backend.close()
        batch.close()
        cluster.close()
        slack.close()

    def _schedule(self, queue: str) -> None:
        """The due time after the creation is missed after a quarter of an hour; a task of a rule
        runs.
        """
        self._account.make_cluster()
        run_instance_monitor(boto3.client("ecs"))
        self._account.make_schedule("nightly", "rate(5 minutes)", queue)
        self._account.send(queue, SCHEDULE_ARN="another")
        self._account.make_rule("hourly", "rate(1 hour)")
        self._account.make_machine_schedule("machine", "rate(1 hour)", "nightly", alias="live")
        self._account.make_job_rule("jobs", "rate(1 hour)", "nights", "load")
        self._account.start_task("hourly", 0, "events-rule/")
        self._account.minutes = 21

    def _made_by(self, name: str, invoke: Callable[[], object]) -> set[tuple[str, str]]:
        """What three invocations call. Slack refuses the first notice, which frees its key."""
        self._slack.script = [Answer(404, text="no_service")]
        made: set[tuple[str, str]] = set()
        for _ in range(3):
            forget_environment()
            with self._monkeypatch.context() as environment, contextlib.suppress(ForwarderError):
                for variable, value in self.stack.environment(f"{name}Function").items():
                    environment.setenv(variable, value)
                self._calls.made, self._calls.is_on = set(), True
                invoke()
            self._calls.is_on = False
            made |= self._calls.made
        requests, self._cluster.requests = self._cluster.requests, set()
        return made | signed(self._signs_for, requests)


def jobs_that_failed(batch: FakeBatch) -> list[dict[str, Any]]:
    """Batch's events of jobs that were killed for memory, on Fargate and on an instance, and of an
    array.
    """
    batch.add_queue("nights", "spot")
    batch.define("nightly", 1, 8192)
    on_fargate = batch.submit("load", "nights", "nightly")
    batch.begin(on_fargate)
    batch.end(on_fargate, 137, KILLED)
    instance = f"arn:aws:ecs:{REGION}:{ACCOUNT}:container-instance/AWSBatch-spot/0123"
    on_ec2 = batch.submit("load", "nights", "nightly:1")
    on_ec2 |= {"platformCapabilities": ["EC2"]}
    batch.begin(on_ec2, instance_arn=instance)
    batch.end(on_ec2, 137, KILLED)
    array = batch.submit("load", "nights", "nightly", arrayProperties={"size": 2})
    array["arrayProperties"]["statusSummary"] = {"FAILED": 1}
    batch_jobs.end_without_attempt(array, batch.now_ms, "Array Child Job failed")
    return [batch.event(one) for one in (on_fargate, on_ec2, array)]


def stop_all(ended: list[dict[str, Any]]) -> None:
    """Slack can refuse the notice of one, which then raises."""
    for one in ended:
        with contextlib.suppress(ForwarderError):
            handler.task_stopped(one, InvocationContext())


def signed(arn: str, requests: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """What IAM makes of signed requests to a domain."""
    return {(f"es:ESHttp{method.title()}", f"{arn}{path}") for method, path in requests if arn}


def keep_secret(name: str, **content: str) -> None:
    text = json.dumps(content)
    if name.startswith("ssm:"):
        boto3.client("ssm").put_parameter(
            Name=name.removeprefix("ssm:"), Value=text, Type="SecureString"
        )
    elif name:
        boto3.client("secretsmanager").create_secret(
            Name=name.rsplit(":", 1)[-1], SecretString=text
        )


def secret_arn(name: str) -> str:
    """Secrets Manager gives a secret's ARN six more characters."""
    secrets = boto3.client("secretsmanager").list_secrets()["SecretList"]
    (arn,) = [str(one["ARN"]) for one in secrets if name.endswith(one["Name"])]
    return arn


def register(*names: str) -> str:
    containers = []
    for name, group in zip(names or ("batch", "task-monitor"), LOG_GROUPS, strict=False):
        logged = awslogs(group, region=REGION)
        containers.append({"name": name, "image": "x", "memory": 64, "logConfiguration": logged})
    registered = boto3.client("ecs").register_task_definition(
        family="nightly", containerDefinitions=containers
    )
    return str(registered["taskDefinition"]["taskDefinitionArn"])


def is_allowed(stack: Stack, name: str, action: str, arn: str) -> bool:
    """As IAM would decide, but for conditions: ``*`` and ``?`` in resources are those of
    ``fnmatch``.
    """
    return any(
        action in listed(one["Action"])
        and any(fnmatchcase(arn, pattern) for pattern in listed(one["Resource"]))
        for one in stack.statements(f"{name}Role")
    )


def unused(stack: Stack, name: str, made: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Each action with each resource that the role allows and that no call needed."""
    return {
        (action, pattern)
        for one in stack.statements(f"{name}Role")
        for action in listed(one["Action"])
        for pattern in listed(one["Resource"])
        if one["Sid"] not in CALLED_BY_AWS and action not in RARELY_CALLED
        if not any(action == called and fnmatchcase(arn, pattern) for called, arn in made)
    }


SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:"
SIGN_INS: dict[str, dict[str, str]] = {
    "none": {},
    "names, a bus and retries": {
        "ElasticsearchSecretId": "team/search",
        "SlackSecretId": "team/slack",
        "OtlpSecretId": "team/otlp",
        "EventBusName": "runs",
        "RetryOutOfMemory": "*ly,night??",
        "BatchJobs": "true",
    },
    "ARNs, a VPC and a key": {
        "ElasticsearchSecretId": f"{SECRET}team-search",
        "SlackSecretId": f"{SECRET}team-slack",
        "OtlpSecretId": f"{SECRET}team-otlp",
        "SubnetIds": "subnet-0a",
        "SecurityGroupIds": "sg-0c",
        "SecretsKeyArn": KEY,
    },
    "parameters and all log groups": {
        "ElasticsearchSecretId": "ssm:/team/search",
        "SlackSecretId": "ssm:/team/slack",
        "OtlpSecretId": "ssm:/team/otlp",
        "Subscribe": "account",
        "LogGroups": "",
        "NotifyLogLines": "5",
    },
    "parameters without a slash": {
        "ElasticsearchSecretId": "ssm:search",
        "SlackSecretId": "ssm:slack",
    },
    "domain": {"SearchEngine": "opensearch", "OpenSearchArn": DOMAIN, "SlackSecretId": "slack"},
}


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("sign_in", SIGN_INS)
def test_each_role_allows_what_its_function_calls_and_no_more(
    sign_in: str, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    given = {"SlackSecretId": "slack", **SIGN_INS[sign_in]}
    ran = Ran(monkeypatch, calls, **given)
    for name, made in ran.made.items():
        assert {call for call in made if not is_allowed(ran.stack, name, *call)} == set()
        assert unused(ran.stack, name, made) == set()
    if "RetryOutOfMemory" in given:
        named = {action.split(":")[1] for made in ran.made.values() for action, _ in made}
        check_that_all_calls_were_made({*named, *OF_MORNING_MESSAGE})


def test_the_morning_messages_role_reads_the_lines_of_task_stopped_alone(
    monkeypatch: pytest.MonkeyPatch, calls: Calls, slack: FakeSlack
) -> None:
    """Without a search cluster."""
    keep_secret("slack", slack_success_webhook_url=slack.webhook_url)
    stack = deploy(DigestSchedule="rate(1 day)", SlackSecretId="slack", ElasticsearchUrl="")
    for name, value in stack.environment("MorningDigestFunction").items():
        monkeypatch.setenv(name, value)
    forget_environment()
    slack.script = [Answer(404, text="no_service")]  # which frees the key
    for _ in range(2):
        calls.is_on = True
        with contextlib.suppress(ForwarderError):
            handler.morning_digest({}, DigestContext())
        calls.is_on = False
    made = {call for call in calls.made if not call[0].startswith("dynamodb:")}
    assert {action.partition(":")[2] for action, _ in made} == {
        "GetSecretValue",
        *OF_MORNING_MESSAGE,
    }
    assert {call for call in calls.made if not is_allowed(stack, "MorningDigest", *call)} == set()
    assert unused(stack, "MorningDigest", calls.made) == set()


def check_that_all_calls_were_made(made: set[str]) -> None:
    """Each method of a boto3 client in the forwarder's source is among these operations."""
    trees = [
        ast.parse(path.read_text()) for path in (Path(handler.__file__), *FORWARDER.rglob("*.py"))
    ]
    called = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    shared = [
        ast.parse(Path(file).read_text())
        for file in (missed_reasons.__file__, eventbridge_calls.__file__)
    ]
    opened = [node for tree in shared for node in ast.walk(tree) if isinstance(node, ast.Call)]
    clients = {
        str(call.args[0].value)
        for call in (*called, *opened)
        if ast.unparse(call.func).rpartition(".")[2] in {"_client", "open_client"}
        and isinstance(call.args[0], ast.Constant)
    }
    assert clients == {
        *("batch", "cloudtrail", "dynamodb", "ecs", "events", "logs", "scheduler", "sqs")
    }
    methods = {call.func.attr for call in called if isinstance(call.func, ast.Attribute)}
    for service in clients:
        operations = boto3.client(service).meta.service_model.operation_names
        assert {
            PERMISSIONS.get(name, name) for name in operations if xform_name(name) in methods
        } <= made


def test_forward_logs_asks_ecs_about_the_cluster_of_the_instance_monitor_alone(
    calls: Calls,
) -> None:
    boto3.client("ecs").create_cluster(clusterName="gpu")
    with_monitor = deploy("with", InstanceMonitorCluster="gpu")
    task = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task"
    assert is_allowed(with_monitor, "ForwardLogs", "ecs:DescribeTasks", f"{task}/gpu/1")
    assert not is_allowed(with_monitor, "ForwardLogs", "ecs:DescribeTasks", f"{task}/jobs/1")
    (listing,) = [
        one
        for one in with_monitor.statements("ForwardLogsRole")
        if "ecs:ListTasks" in one["Action"]
    ]
    cluster = f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/gpu"
    assert listing["Condition"] == {"ArnEquals": {"ecs:cluster": cluster}}
    without = deploy("without")
    assert not is_allowed(without, "ForwardLogs", "ecs:DescribeTasks", f"{task}/gpu/1")


def test_no_action_and_no_resource_is_wide(calls: Calls) -> None:
    boto3.client("ecs").create_cluster(clusterName="gpu")
    given = {
        "SlackSecretId": "slack", "SecretsKeyArn": KEY, "SubnetIds": "subnet-0a", "SecurityGroupIds": "sg-0c",
        "Ingestion": "stream", "NoticeEmail": "ops@example.com", "WatchSchedules": "true",
        "InstanceMonitorCluster": "gpu",
        "RetryOutOfMemory": "nightly", "BatchJobs": "true",
        "ScheduleQueueArns": f"arn:aws:sqs:{REGION}:{ACCOUNT}:failed-starts",
        "OtlpEndpoint": "https://xray.eu-west-1.amazonaws.com", "OtlpAwsAuth": "true", "OtlpSecretId": "otlp",
    }  # fmt: skip
    domain = {"SearchEngine": "opensearch", "OpenSearchArn": DOMAIN}
    stacks = (
        deploy("secret", ElasticsearchSecretId="search", **given),
        deploy("signed", **domain, **given),
    )
    for name in FUNCTIONS:
        statements = [
            statement for stack in stacks for statement in stack.statements(f"{name}Role")
        ]
        for statement in statements:
            actions = listed(statement["Action"])
            assert not [action for action in actions if "*" in action]
            if "*" in listed(statement["Resource"]):
                assert set(actions) <= WITHOUT_RESOURCE | WITHOUT_THEIR_RESOURCE
            if "kms:Decrypt" in actions:
                services = statement["Condition"]["StringEquals"]["kms:ViaService"]
                used = (
                    ("secretsmanager", "ssm")
                    if statement["Resource"] == KEY
                    else ("scheduler", "sqs")
                )
                assert services == [f"{service}.{REGION}.amazonaws.com" for service in used]
        # Every statement that the template has was there, so none escaped the look at it.
        (policy,) = template()["Resources"][f"{name}Role"]["Properties"]["Policies"]
        shared = [
            one["Properties"]
            for one in template()["Resources"].values()
            if one["Type"] == "AWS::IAM::Policy"
        ]
        own = [one for one in shared if f"'{name}Role'" in str(one["Roles"])]
        count = sum(len(one["PolicyDocument"]["Statement"]) for one in (policy, *own))
        assert count == len({statement["Sid"] for statement in statements})
