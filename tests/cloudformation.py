"""CloudFormation templates deployed on moto: lambda/template.yaml, and taskdef/cluster-*.yaml.

Of moto's own insides it uses a stack's resource map: what stands in the template with every
function resolved. API calls complete what moto's CloudFormation leaves out.
"""

import io
import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
import yaml  # type: ignore[import-untyped]  # moto depends on it
from botocore.validate import ParamValidator
from moto.cloudformation import parsing
from moto.cloudformation.models import cloudformation_backends

from profiler.aws_account.forwarder_stack import read_forwarder
from profiler.aws_account.setup.group_filters import GroupFilters, delivery_of_stack_values
from profiler.aws_account.setup.template_parameters import parameter_values, without_subscription
from profiler.record.record_model import json_schema
from profiler.task_definitions.container_snippets import camel_case
from tests.fakes import FakeClock
from tools.moto_server import FastLoader, patched_moto

REGION = "eu-west-1"
ACCOUNT = "123456789012"  # moto's


@cache
def read_template(path: Path) -> dict[str, Any]:
    """A template as it stands, short functions in their long form."""
    parsed: dict[str, Any] = yaml.load(path.read_text(), FastLoader)
    return parsed


def lint_template(text: str) -> list[str]:
    """Every rule counts, the informational ones too."""
    # Every process imports this module, and few lint; the linter takes half a second to import.
    from cfnlint.api import lint  # noqa: PLC0415
    from cfnlint.config import ManualArgs  # noqa: PLC0415

    config = ManualArgs(
        include_checks=["I", "W", "E"], regions=["us-east-1", "eu-west-1", "ap-northeast-1"]
    )
    return [f"{match.rule.id} {match.message}" for match in lint(text, config=config)]


@dataclass(frozen=True, slots=True)
class MotoStack:
    name: str
    path: Path

    @property
    def outputs(self) -> dict[str, str]:
        (described,) = boto3.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return {one["OutputKey"]: one["OutputValue"] for one in described.get("Outputs", [])}

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """The resolved properties of each resource of a type whose condition holds, by logical
        id.
        """
        resource_map = self._resource_map()
        found = {}
        for logical_id, resource in read_template(self.path)["Resources"].items():
            condition = resource.get("Condition")
            if resource["Type"] == kind and (
                condition is None or resource_map.lazy_condition_map[condition]
            ):
                with patched_moto():
                    resolved = parsing.clean_json(
                        resource_map._resource_json_map[logical_id], resource_map
                    )
                found[logical_id] = resolved["Properties"]
        return found

    def statements(self, logical_id: str) -> list[dict[str, Any]]:
        """What a role may do, by its own policy and by those that it shares with others."""
        (own,) = self.resources("AWS::IAM::Role")[logical_id]["Policies"]
        role = self.physical_id(logical_id)
        shared = [
            one for one in self.resources("AWS::IAM::Policy").values() if role in one["Roles"]
        ]
        return [
            statement
            for policy in (own, *shared)
            for statement in policy["PolicyDocument"]["Statement"]
        ]

    def physical_id(self, logical_id: str) -> str:
        """What a deployed resource is called."""
        return str(parsing.clean_json({"Ref": logical_id}, self._resource_map()))

    def set_physical_id(self, logical_id: str, name: str) -> None:
        """Let a resource that was made by hand be found by the others, and by the outputs."""
        self._resource_map()._parsed_resources[logical_id] = name

    def _resource_map(self) -> Any:
        stacks = cloudformation_backends[ACCOUNT][REGION].stacks.values()
        return next(stack for stack in stacks if stack.name == self.name).resource_map


def create_stack(name: str, path: Path, parameters: Mapping[str, str]) -> None:
    """Deploy a template (inside of ``mock_aws``). moto warns of the types of resources that it
    leaves out.
    """
    with warnings.catch_warnings(), patched_moto():
        warnings.simplefilter("ignore")
        boto3.client("cloudformation").create_stack(
            StackName=name,
            TemplateBody=path.read_text(),
            Parameters=[
                {"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()
            ],
            Capabilities=["CAPABILITY_IAM"],
        )


def listed(value: str | list[str]) -> list[str]:
    """The actions or resources of a statement."""
    return [value] if isinstance(value, str) else value


@cache
def _service_model(service: str) -> Any:
    return botocore.session.get_session().get_service_model(service)


def validate_arguments(service: str, operation: str, arguments: Mapping[str, object]) -> None:
    """Whether an API would take these arguments, for calls that moto does not have."""
    shape = _service_model(service).operation_model(operation).input_shape
    report = ParamValidator().validate(dict(arguments), shape)
    assert not report.has_errors(), report.generate_report()


TEMPLATE = Path(__file__).parents[1] / "lambda" / "template.yaml"
LOG_GROUPS = ("/ecs/jobs", "/ecs/monitor")
_folder = tempfile.TemporaryDirectory(prefix="task-profiler-template-")
BUCKET, KEY = "code-of-functions", "forwarder.zip"

# moto has no PutAccountPolicy. Of the resources that it makes it leaves out: Architectures and
# LoggingConfig of functions, a table's time to live.


def template() -> dict[str, Any]:
    """The template as it stands, short functions in their long form."""
    return read_template(TEMPLATE)


PARAMETERS: dict[str, Any] = template()["Parameters"]
QUERIES = {name: one["Text"] for name, one in template()["Mappings"]["Query"].items()}


def properties_of(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties of a part of the schema, through references and "or null"."""
    for option in [part, *part.get("anyOf", [])]:
        if "$ref" in option:
            return dict(schema["$defs"][option["$ref"].rsplit("/", 1)[-1]]["properties"])
    return {}


def is_in_the_record(path: str) -> bool:
    schema = json_schema()
    part: Mapping[str, Any] = schema
    for name in path.split("."):
        properties = properties_of(part, schema)
        if name not in properties:
            return False
        part = properties[name]
    return not properties_of(part, schema)  # a number or a text, no object


def broken_rules(values: Mapping[str, str]) -> list[str]:
    """What CloudFormation says about contradictory parameters."""

    def holds(function: Any) -> bool:
        ((name, arguments),) = function.items()
        if name == "Fn::Equals":
            left, right = (
                values[one["Ref"]] if isinstance(one, dict) else one for one in arguments
            )
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
    def environment(self, logical_id: str) -> dict[str, str]:
        """A deployed function's variables. CloudFormation makes texts of numbers, moto does not."""
        name = self.resources("AWS::Lambda::Function")[logical_id]["FunctionName"]
        configuration = boto3.client("lambda").get_function_configuration(FunctionName=name)
        return {
            name: str(value) for name, value in configuration["Environment"]["Variables"].items()
        }

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
                    TopicArn=topic,
                    AttributeName="Policy",
                    AttributeValue=json.dumps(properties["PolicyDocument"]),
                )
        for table, properties in self.resources("AWS::DynamoDB::Table").items():
            client("dynamodb").update_time_to_live(
                TableName=self.physical_id(table),
                TimeToLiveSpecification=properties["TimeToLiveSpecification"],
            )


def deploy(name: str = "tp", **parameters: str) -> Stack:
    """Deploy what ``setup stack`` uploads (inside of ``mock_aws``), with log groups and a
    cluster unless given.
    """
    stack = deploy_template(_uploaded_template(), name, **parameters)
    values = parameter_values(
        TEMPLATE.read_text(),
        {"ElasticsearchUrl": "https://search:9200", "LogGroups": ",".join(LOG_GROUPS)} | parameters,
        {},
    )
    if values["Subscribe"] == "groups" and "ForwardLogsFunctionName" in stack.outputs:
        filters = GroupFilters(name, boto3.client, pytest.fail)
        wanted = filters.select_groups(filter(None, values["LogGroups"].split(",")), are_given=True)
        delivery = delivery_of_stack_values(values, read_forwarder(boto3.client, name))
        failures = filters.carry_out(
            filters.plan_filters(wanted, (), delivery), delivery, FakeClock(), str
        )
        assert not failures
    return stack


def deploy_template(path: Path, name: str = "tp", **parameters: str) -> Stack:
    """Deploy and complete a template, as ``deploy``."""
    _prepare()
    given = {"CodeBucket": BUCKET, "CodeKey": KEY, "ElasticsearchUrl": "https://search:9200"}
    given |= {"LogGroups": ",".join(LOG_GROUPS), **parameters}
    assert not broken_rules(parameter_values(TEMPLATE.read_text(), given, {}))  # moto ignores rules
    create_stack(name, path, given)
    stack = Stack(name, path)
    stack.complete()
    return stack


@cache
def _uploaded_template() -> Path:
    path = Path(_folder.name) / "template.yaml"
    path.write_text(without_subscription(TEMPLATE.read_text()))
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


FOLDER = Path(__file__).parents[1] / "taskdef"
in_camel_case: Callable[[Any], Any] = camel_case
# Each template, and the task definition that its batch is made of.
CLUSTERS = {
    FOLDER / "cluster-gpu.yaml": FOLDER / "ec2-gpu.json",
    FOLDER / "cluster-neuron.yaml": FOLDER / "neuron.json",
}


@dataclass(frozen=True, slots=True)
class ClusterStack(MotoStack):
    def complete(self) -> None:
        """Make what moto's CloudFormation left out, from the same properties."""
        ecs = boto3.client("ecs")
        (provider,) = self.resources("AWS::ECS::CapacityProvider").values()
        ecs.create_capacity_provider(**in_camel_case(provider))
        self.set_physical_id("CapacityProvider", provider["Name"])
        (capacity,) = self.resources("AWS::ECS::ClusterCapacityProviderAssociations").values()
        ecs.put_cluster_capacity_providers(**in_camel_case(capacity))
        (schedule,) = self.resources("AWS::Scheduler::Schedule").values()
        target = schedule["Target"]
        # CloudFormation's spelling differs from the API's in this one member.
        strategy = in_camel_case(target["EcsParameters"]["CapacityProviderStrategy"])
        target["EcsParameters"]["CapacityProviderStrategy"] = strategy
        name = f"{self.name}-Schedule-1"  # CloudFormation makes one up
        boto3.client("scheduler").create_schedule(Name=name, **schedule)
        self.set_physical_id("Schedule", name)

    @property
    def schedule(self) -> dict[str, Any]:
        found: dict[str, Any] = boto3.client("scheduler").get_schedule(
            Name=self.physical_id("Schedule")
        )
        return found

    @property
    def definition(self) -> dict[str, Any]:
        """The task definition as RegisterTaskDefinition takes it. moto registers a part of it
        only.
        """
        (properties,) = self.resources("AWS::ECS::TaskDefinition").values()
        definition: dict[str, Any] = in_camel_case(properties)
        for container in definition["containerDefinitions"]:
            for one in container.get("resourceRequirements", []):
                one["value"] = str(
                    one["value"]
                )  # CloudFormation makes texts of numbers, moto does not
        return definition


def deploy_cluster(path: Path, **parameters: str) -> ClusterStack:
    """Deploy and complete a template (inside of ``mock_aws``) in moto's own VPC."""
    ec2 = boto3.client("ec2")
    subnets = [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]][:2]
    given = {"VpcId": ec2.describe_vpcs()["Vpcs"][0]["VpcId"], "SubnetIds": ",".join(subnets)}
    given |= {"BatchImage": "python:3.13-slim", "MonitorImage": "task-profiler:0.1.0", **parameters}
    create_stack("night", path, given)
    stack = ClusterStack("night", path)
    stack.complete()
    return stack
