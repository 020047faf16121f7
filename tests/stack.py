"""lambda/template.yaml deployed on moto, completed by API calls where moto's CloudFormation leaves something out.

Of moto's own insides it uses a stack's resource map: what stands in the template with every function resolved.
"""

import io
import json
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.validate import ParamValidator
from cfnlint.decode import decode
from moto.cloudformation.models import cloudformation_backends
from moto.cloudformation.parsing import clean_json

TEMPLATE = Path(__file__).parents[1] / "lambda" / "template.yaml"
REGION = "eu-west-1"
ACCOUNT = "123456789012"  # moto's
LOG_GROUPS = ("/ecs/jobs", "/ecs/monitor")
BUCKET, KEY = "code-of-functions", "forwarder.zip"

# What moto's CloudFormation does not make, and how Stack.complete makes it or checks it from the resolved template.
LEFT_OUT = {
    "AWS::CloudWatch::Alarm": "PutMetricAlarm",
    "AWS::Lambda::EventInvokeConfig": "PutFunctionEventInvokeConfig",
    "AWS::Logs::QueryDefinition": "moto has no PutQueryDefinition either: checked against its shape in botocore",
    "AWS::Logs::SubscriptionFilter": "PutSubscriptionFilter",
    "AWS::SQS::QueuePolicy": "SetQueueAttributes",
}
# Of resources that it makes it leaves out: Architectures and LoggingConfig of functions, a table's time to live.


@cache
def template() -> dict[str, Any]:
    """The template as it stands, short functions in their long form."""
    parsed, problems = decode(str(TEMPLATE))
    assert parsed is not None, problems
    return dict(parsed)


@dataclass(frozen=True, slots=True)
class Stack:
    """A deployed stack."""

    name: str
    left_out: frozenset[str] = frozenset()

    @property
    def outputs(self) -> dict[str, str]:
        (described,) = boto3.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return {one["OutputKey"]: one["OutputValue"] for one in described.get("Outputs", [])}

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """The resolved properties of each resource of a type whose condition holds, by logical id."""
        resource_map = self._resource_map()
        found = {}
        for logical_id, resource in template()["Resources"].items():
            condition = resource.get("Condition")
            if resource["Type"] == kind and (condition is None or resource_map.lazy_condition_map[condition]):
                resolved = clean_json(resource_map._resource_json_map[logical_id], resource_map)
                found[logical_id] = without_nothing(resolved["Properties"])
        return found

    def environment(self, logical_id: str) -> dict[str, str]:
        """A deployed function's variables. CloudFormation makes texts of numbers, moto does not."""
        name = self.resources("AWS::Lambda::Function")[logical_id]["FunctionName"]
        configuration = boto3.client("lambda").get_function_configuration(FunctionName=name)
        return {name: str(value) for name, value in configuration["Environment"]["Variables"].items()}

    def statements(self, logical_id: str) -> list[dict[str, Any]]:
        """What a role may do."""
        (policy,) = self.resources("AWS::IAM::Role")[logical_id]["Policies"]
        return list(policy["PolicyDocument"]["Statement"])

    def complete(self) -> None:
        """Make what moto's CloudFormation left out, from the same properties."""
        for properties in self.resources("AWS::Logs::SubscriptionFilter").values():
            boto3.client("logs").put_subscription_filter(
                logGroupName=properties["LogGroupName"],
                filterName=properties["FilterName"],
                filterPattern=properties["FilterPattern"],
                destinationArn=properties["DestinationArn"],
            )
        for properties in self.resources("AWS::Lambda::EventInvokeConfig").values():
            boto3.client("lambda").put_function_event_invoke_config(**properties)
        for properties in self.resources("AWS::CloudWatch::Alarm").values():
            boto3.client("cloudwatch").put_metric_alarm(**properties)
        for properties in self.resources("AWS::SQS::QueuePolicy").values():
            for queue in properties["Queues"]:
                attributes = {"Policy": json.dumps(properties["PolicyDocument"])}
                boto3.client("sqs").set_queue_attributes(QueueUrl=queue, Attributes=attributes)
        for properties in self.resources("AWS::Logs::QueryDefinition").values():
            check_shape(
                "logs", "PutQueryDefinition", {name[0].lower() + name[1:]: properties[name] for name in properties}
            )
        for table, properties in self.resources("AWS::DynamoDB::Table").items():
            boto3.client("dynamodb").update_time_to_live(
                TableName=self.physical_id(table), TimeToLiveSpecification=properties["TimeToLiveSpecification"]
            )

    def physical_id(self, logical_id: str) -> str:
        """What a deployed resource is called."""
        return str(clean_json({"Ref": logical_id}, self._resource_map()))

    def _resource_map(self) -> Any:
        stacks = cloudformation_backends[ACCOUNT][REGION].stacks.values()
        return next(stack for stack in stacks if stack.name == self.name).resource_map


def deploy(name: str = "tp", **parameters: str) -> Stack:
    """Deploy and complete it (inside of ``mock_aws``), with log groups and a cluster unless said otherwise."""
    _prepare()
    given = {"CodeBucket": BUCKET, "CodeKey": KEY, "ElasticsearchUrl": "https://search:9200"}
    given |= {"LogGroups": ",".join(LOG_GROUPS), **parameters}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        boto3.client("cloudformation").create_stack(
            StackName=name,
            TemplateBody=TEMPLATE.read_text(),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()],
            Capabilities=["CAPABILITY_IAM"],
        )
    left_out = {str(one.message).split()[3] for one in said if str(one.message).startswith("Tried to parse")}
    stack = Stack(name, frozenset(left_out))
    stack.complete()
    return stack


def without_nothing(value: Any) -> Any:
    """CloudFormation drops AWS::NoValue from lists, moto leaves a None."""
    if isinstance(value, dict):
        return {key: without_nothing(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_nothing(one) for one in value if one is not None]
    return value


def check_shape(service: str, operation: str, arguments: Mapping[str, object]) -> None:
    """Whether an API would take these arguments, for calls that moto does not have."""
    shape = boto3.client(service).meta.service_model.operation_model(operation).input_shape
    report = ParamValidator().validate(dict(arguments), shape)
    assert not report.has_errors(), report.generate_report()


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
