"""Whether the execution role of a definition may read the secrets that ECS gives the containers.
Only policies are read, and no secret.

https://docs.aws.amazon.com/AmazonECS/latest/developerguide/secrets-envvar-secrets-manager.html
"""

import re
from collections.abc import Iterator, Mapping

from profiler.aws_account.doctor.findings import Finding, problem
from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.report_prerequisites import READ_VALUE, ReportPathReader
from profiler.core.ecs_terms import arn_account, arn_part, arn_region
from profiler.core.json_fields import mapping_or_empty, mappings_in_list
from profiler.core.json_fields import text_or_none as string
from profiler.core.text import first_names

SECRETS = "secrets"
_GET_PARAMETERS = "ssm:GetParameters"
_SECRET_PARTS = 7  # of an ARN; a key, a stage and a version may follow
# What Secrets Manager adds to a name, without which the whole ARN is not known.
_WHOLE_NAME = re.compile(r".+-[A-Za-z0-9]{6}")


def secret_problem_findings(planned: PlannedFamily, paths: ReportPathReader) -> Iterator[Finding]:
    """The secrets that the execution role certainly may not read, so that no task starts."""
    definition = planned.changed.definition
    role = string(definition.get("executionRoleArn"))
    if not role:  # ECS registers no secrets without one
        return
    for action, resources in _resources_by_action(definition, planned.revision_arn).items():
        for permission, refused in paths.refused_resources(role, action, resources).items():
            names = first_names([resources[arn] for arn in refused])
            denial = paths.denial_of_role(
                permission,
                "execution role",
                role.rpartition("/")[2],
                f"{action} on {names}, without which no task starts",
                f"Allow {action} on {first_names(refused)}.",
            )
            if denial is not None:
                yield problem(SECRETS, denial.text, denial.remedy)


def _resources_by_action(
    definition: Mapping[str, object], definition_arn: str
) -> Mapping[str, Mapping[str, str]]:
    """What the role must read, by the action: the ARNs, each with the name for a person."""
    found: dict[str, dict[str, str]] = {READ_VALUE: {}, _GET_PARAMETERS: {}}
    for address in _secret_addresses(definition):
        service = arn_part(address, 2)
        if service == "secretsmanager":
            arn = ":".join(address.split(":")[:_SECRET_PARTS])
            name = arn.rpartition(":")[2]
            if _WHOLE_NAME.fullmatch(name):
                found[READ_VALUE][arn] = f"the secret {name[:-7]}"
            continue
        name = address
        arn = address
        if service == "ssm":
            name = (arn_part(address, 5) or "").removeprefix("parameter")
        elif region := arn_region(definition_arn):
            place = f"{arn_part(definition_arn, 1)}:ssm:{region}:{arn_account(definition_arn)}"
            arn = f"arn:{place}:parameter/{address.removeprefix('/')}"
        else:
            continue
        found[_GET_PARAMETERS][arn] = f"the parameter {name}"
    return {action: resources for action, resources in found.items() if resources}


def _secret_addresses(definition: Mapping[str, object]) -> Iterator[str]:
    """Where ECS reads secrets of containers, of their log drivers, and of private registries."""
    for container in mappings_in_list(definition.get("containerDefinitions")):
        log = mapping_or_empty(container.get("logConfiguration"))
        registry = mapping_or_empty(container.get("repositoryCredentials"))
        secrets = [
            *mappings_in_list(container.get("secrets")),
            *mappings_in_list(log.get("secretOptions")),
        ]
        for address in (
            *(secret.get("valueFrom") for secret in secrets),
            registry.get("credentialsParameter"),
        ):
            if isinstance(address, str) and address:
                yield address
