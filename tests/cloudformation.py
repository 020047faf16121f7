"""CloudFormation templates deployed on moto.

Of moto's own insides it uses a stack's resource map: what stands in the template with every function resolved.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import botocore.session
import yaml  # type: ignore[import-untyped]  # moto depends on it
from botocore.validate import ParamValidator
from cfnlint.api import lint
from cfnlint.config import ManualArgs
from cfnlint.decode import decode
from moto.cloudformation.models import cloudformation_backends
from moto.cloudformation.parsing import clean_json
from moto.cloudformation.utils import yaml_tag_constructor

REGION = "eu-west-1"
ACCOUNT = "123456789012"  # moto's


# moto reads templates by yaml.Loader, in Python, which takes a third of the time of a deployment.
FastLoader: Any = type("FastLoader", (yaml.CLoader,), {})
FastLoader.add_multi_constructor("", yaml_tag_constructor)


@cache
def read_template(path: Path) -> dict[str, Any]:
    """A template as it stands, short functions in their long form."""
    parsed, problems = decode(str(path))
    assert parsed is not None, problems
    return dict(parsed)


def lint_template(text: str) -> list[str]:
    """Every rule counts, the informational ones too."""
    config = ManualArgs(include_checks=["I", "W", "E"], regions=["us-east-1", "eu-west-1", "ap-northeast-1"])
    return [f"{match.rule.id} {match.message}" for match in lint(text, config=config)]


@dataclass(frozen=True, slots=True)
class MotoStack:
    """A deployed stack; ``unsupported_types``: types of resources that moto's CloudFormation does not make."""

    name: str
    path: Path
    unsupported_types: frozenset[str] = frozenset()

    @property
    def outputs(self) -> dict[str, str]:
        (described,) = boto3.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return {one["OutputKey"]: one["OutputValue"] for one in described.get("Outputs", [])}

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """The resolved properties of each resource of a type whose condition holds, by logical id."""
        resource_map = self._resource_map()
        found = {}
        for logical_id, resource in read_template(self.path)["Resources"].items():
            condition = resource.get("Condition")
            if resource["Type"] == kind and (condition is None or resource_map.lazy_condition_map[condition]):
                resolved = clean_json(resource_map._resource_json_map[logical_id], resource_map)
                found[logical_id] = drop_no_values(resolved["Properties"])
        return found

    def statements(self, logical_id: str) -> list[dict[str, Any]]:
        """What a role may do."""
        (policy,) = self.resources("AWS::IAM::Role")[logical_id]["Policies"]
        return list(policy["PolicyDocument"]["Statement"])

    def physical_id(self, logical_id: str) -> str:
        """What a deployed resource is called."""
        return str(clean_json({"Ref": logical_id}, self._resource_map()))

    def set_physical_id(self, logical_id: str, name: str) -> None:
        """Let a resource that was made by hand be found by the others, and by the outputs."""
        self._resource_map()._parsed_resources[logical_id] = name

    def _resource_map(self) -> Any:
        stacks = cloudformation_backends[ACCOUNT][REGION].stacks.values()
        return next(stack for stack in stacks if stack.name == self.name).resource_map


def create_stack(name: str, path: Path, parameters: Mapping[str, str]) -> frozenset[str]:
    """Deploy a template (inside of ``mock_aws``); the types of resources that moto left out."""
    with warnings.catch_warnings(record=True) as said, patch.object(yaml, "Loader", FastLoader):
        warnings.simplefilter("always")
        boto3.client("cloudformation").create_stack(
            StackName=name,
            TemplateBody=path.read_text(),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
            Capabilities=["CAPABILITY_IAM"],
        )
    return frozenset(str(one.message).split()[3] for one in said if str(one.message).startswith("Tried to parse"))


def drop_no_values(value: Any) -> Any:
    """CloudFormation drops AWS::NoValue from lists, moto leaves a None."""
    if isinstance(value, dict):
        return {key: drop_no_values(one) for key, one in value.items()}
    if isinstance(value, list):
        return [drop_no_values(one) for one in value if one is not None]
    return value


@cache
def _service_model(service: str) -> Any:
    return botocore.session.get_session().get_service_model(service)


def validate_arguments(service: str, operation: str, arguments: Mapping[str, object]) -> None:
    """Whether an API would take these arguments, for calls that moto does not have."""
    shape = _service_model(service).operation_model(operation).input_shape
    report = ParamValidator().validate(dict(arguments), shape)
    assert not report.has_errors(), report.generate_report()
