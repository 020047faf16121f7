"""lambda/template.yaml deployed on moto, completed by API calls where moto's CloudFormation leaves something out."""

import io
import json
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import boto3

from profiler.aws_account.setup.stack_template import parameter_values, with_subscriptions
from tests.cloudformation import REGION, MotoStack, create_stack, read_template, validate_arguments

TEMPLATE = Path(__file__).parents[1] / "lambda" / "template.yaml"
LOG_GROUPS = ("/ecs/jobs", "/ecs/monitor")
_folder = tempfile.TemporaryDirectory(prefix="task-profiler-template-")
BUCKET, KEY = "code-of-functions", "forwarder.zip"

# What moto's CloudFormation does not make, and how Stack.complete makes it or checks it from the resolved template.
UNSUPPORTED_TYPES = {
    "AWS::CloudWatch::Alarm": "PutMetricAlarm",
    "AWS::Lambda::EventInvokeConfig": "PutFunctionEventInvokeConfig",
    "AWS::Logs::QueryDefinition": "moto has no PutQueryDefinition either: checked against its shape in botocore",
    "AWS::Logs::SubscriptionFilter": "PutSubscriptionFilter",
    "AWS::SNS::TopicPolicy": "SetTopicAttributes",
    "AWS::SQS::QueuePolicy": "SetQueueAttributes",
}
# Types that only their shape in botocore checks; moto has no PutAccountPolicy.
_ONLY_VALIDATED = {
    "AWS::Logs::AccountPolicy": "PutAccountPolicy",
    "AWS::Logs::QueryDefinition": "PutQueryDefinition",
}
# Of resources that it makes it leaves out: Architectures and LoggingConfig of functions, a table's time to live.


def template() -> dict[str, Any]:
    """The template as it stands, short functions in their long form."""
    return read_template(TEMPLATE)


def broken_rules(values: Mapping[str, str]) -> list[str]:
    """What CloudFormation says about contradictory parameters."""

    def holds(function: Any) -> bool:
        ((name, arguments),) = function.items()
        if name == "Fn::Equals":
            left, right = (values[one["Ref"]] if isinstance(one, dict) else one for one in arguments)
            return bool(left == right)
        results = [holds(one) for one in arguments]
        return {"Fn::And": all(results), "Fn::Or": any(results), "Fn::Not": not results[0]}[name]

    return [
        assertion["AssertDescription"]
        for rule in template()["Rules"].values()
        if "RuleCondition" not in rule or holds(rule["RuleCondition"])
        for assertion in rule["Assertions"]
        if not holds(assertion["Assert"])
    ]


@dataclass(frozen=True, slots=True)
class Stack(MotoStack):
    """The forwarder's stack."""

    def environment(self, logical_id: str) -> dict[str, str]:
        """A deployed function's variables. CloudFormation makes texts of numbers, moto does not."""
        name = self.resources("AWS::Lambda::Function")[logical_id]["FunctionName"]
        configuration = boto3.client("lambda").get_function_configuration(FunctionName=name)
        return {name: str(value) for name, value in configuration["Environment"]["Variables"].items()}

    def _validate(self) -> None:
        for kind, operation in _ONLY_VALIDATED.items():
            for properties in self.resources(kind).values():
                arguments = {name[0].lower() + name[1:]: value for name, value in properties.items()}
                validate_arguments("logs", operation, arguments)

    def complete(self) -> None:
        """Make what moto's CloudFormation left out, from the same properties."""
        client = cache(boto3.client)  # making one takes longer than its call
        for properties in self.resources("AWS::Logs::SubscriptionFilter").values():
            client("logs").put_subscription_filter(
                logGroupName=properties["LogGroupName"],
                filterName=properties["FilterName"],
                filterPattern=properties["FilterPattern"],
                destinationArn=properties["DestinationArn"],
                **({"roleArn": properties["RoleArn"]} if "RoleArn" in properties else {}),
            )
        for properties in self.resources("AWS::Lambda::EventInvokeConfig").values():
            client("lambda").put_function_event_invoke_config(**properties)
        for properties in self.resources("AWS::CloudWatch::Alarm").values():
            client("cloudwatch").put_metric_alarm(**properties)
        for properties in self.resources("AWS::SQS::QueuePolicy").values():
            for queue in properties["Queues"]:
                attributes = {"Policy": json.dumps(properties["PolicyDocument"])}
                client("sqs").set_queue_attributes(QueueUrl=queue, Attributes=attributes)
        for properties in self.resources("AWS::SNS::TopicPolicy").values():
            for topic in properties["Topics"]:
                client("sns").set_topic_attributes(
                    TopicArn=topic, AttributeName="Policy", AttributeValue=json.dumps(properties["PolicyDocument"])
                )
        self._validate()
        for table, properties in self.resources("AWS::DynamoDB::Table").items():
            client("dynamodb").update_time_to_live(
                TableName=self.physical_id(table), TimeToLiveSpecification=properties["TimeToLiveSpecification"]
            )


def deploy(name: str = "tp", **parameters: str) -> Stack:
    """Deploy what ``setup stack`` uploads (inside of ``mock_aws``), with log groups and a cluster unless given."""
    groups = parameters.get("LogGroups", ",".join(LOG_GROUPS))
    return deploy_template(_uploaded_template(groups), name, **parameters)


def deploy_template(path: Path, name: str = "tp", **parameters: str) -> Stack:
    """Deploy and complete a template, as ``deploy``."""
    _prepare()
    given = {"CodeBucket": BUCKET, "CodeKey": KEY, "ElasticsearchUrl": "https://search:9200"}
    given |= {"LogGroups": ",".join(LOG_GROUPS), **parameters}
    assert not broken_rules(parameter_values(TEMPLATE.read_text(), given, {}))  # moto ignores rules
    stack = Stack(name, path, create_stack(name, path, given))
    stack.complete()
    return stack


@cache
def _uploaded_template(groups: str) -> Path:
    uploaded = with_subscriptions(TEMPLATE.read_text(), (name for name in groups.split(",") if name))
    path = Path(_folder.name) / f"{crc32(groups.encode())}.yaml"
    path.write_text(uploaded)
    return path


def _prepare() -> None:
    s3, logs = boto3.client("s3"), boto3.client("logs")
    if not s3.list_buckets()["Buckets"]:
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("handler.py", "")
        s3.put_object(Bucket=BUCKET, Key=KEY, Body=archive.getvalue())
        for group in LOG_GROUPS:
            logs.create_log_group(logGroupName=group)
