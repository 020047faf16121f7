"""The IAM policy that lets the monitor write the report, and its union with an existing policy."""

import json
from collections.abc import Iterable, Mapping

from profiler.core.ecs_terms import AWSLOGS, arn_account, arn_part, arn_region
from profiler.core.json_fields import mapping, mappings, text
from profiler.task_definitions.containers import own_log_group, read_containers

POLICY_NAME = "task-profiler"
_VERSION = "2012-10-17"
_ACTION = "logs:PutLogEvents"
_SID = "PutTheReportIntoTheBatchsStream"


def report_streams(
    definition: Mapping[str, object], batch: str, revision_arn: str, *, image: str | None = None
) -> frozenset[str]:
    """The ARNs of the log streams to which the monitor of the definition writes the report.

    None are needed if the report goes to the monitor's own stream.

    Args:
        definition: A definition with the monitor.
        batch: The name of the batch container.
        revision_arn: The ARN of a revision of the family.
        image: The monitor's image, if its repository has a name of the user's own.
    """
    container = next((container for container in read_containers(definition) if container.name == batch), None)
    if container is None or container.log_driver != AWSLOGS or own_log_group(definition, image) is not None:
        return frozenset()
    options = container.log_options
    group = text(options.get("awslogs-group"))
    if group is None:
        return frozenset()
    prefix = text(options.get("awslogs-stream-prefix"))
    stream = f"{prefix}/{batch}/*" if prefix else "*"
    partition, account = arn_part(revision_arn, 1) or "aws", arn_account(revision_arn) or ""
    region = text(options.get("awslogs-region")) or arn_region(revision_arn) or ""
    return frozenset({f"arn:{partition}:logs:{region}:{account}:log-group:{group}:log-stream:{stream}"})


def policy(streams: Iterable[str]) -> Mapping[str, object]:
    """The policy document that allows writing to these log streams."""
    statement = {"Sid": _SID, "Effect": "Allow", "Action": _ACTION, "Resource": sorted(streams)}
    return {"Version": _VERSION, "Statement": [statement]}


def merged_policy(existing: Mapping[str, object] | None, streams: frozenset[str]) -> Mapping[str, object]:
    """The existing policy with these log streams added; the other statements are kept.

    Returns:
        The existing policy itself if it allows the streams already.
    """
    if existing is None:
        return policy(streams)
    present = existing.get("Statement")
    statements = list(mappings(present if isinstance(present, list) else [present]))  # IAM accepts one without a list
    for index, statement in enumerate(statements):
        if statement.get("Sid") == _SID:
            allowed = _listed(statement.get("Resource"))
            if streams <= allowed:
                return existing
            statements[index] = {**statement, "Resource": sorted(allowed | streams)}
            return {**existing, "Statement": statements}
    return {**existing, "Statement": [*statements, *mappings(policy(streams)["Statement"])]}


def _listed(value: object) -> frozenset[str]:
    return frozenset(str(item) for item in value) if isinstance(value, list) else frozenset({str(value)})


def read_policy(document: object) -> Mapping[str, object]:
    """The policy that IAM returns, as an object or as JSON text."""
    return mapping(json.loads(document) if isinstance(document, str) else document)
