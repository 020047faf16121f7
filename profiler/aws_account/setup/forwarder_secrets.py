"""The secrets of a stack in Secrets Manager."""

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.errors import TaskProfilerError

_TAGS = {"application": "task-profiler"}
# A new sign-in replaces the whole old one.
_SIGN_IN = frozenset({"api_key", "username", "password"})


def store_secret(
    open_client: OpenClient,
    name: str,
    values: dict[str, str],
    key_arn: str = "",
    tags: Mapping[str, str] | None = None,
) -> Literal["created", "updated", "unchanged", "restored"]:
    """Store values in a secret's JSON object, where other values stay.

    No message of an error contains a value.

    A secret of this name without our tag may be another program's: it stays as it is, and
    TaskProfilerError is raised. A deleted secret, whose name Secrets Manager keeps for 7 to 30
    days, is restored without its values. ``key_arn`` is the KMS key of a new secret, empty for
    AWS's own; ``tags`` are a new secret's, too.
    """
    client = open_client("secretsmanager")
    actions = (
        "secretsmanager:GetSecretValue, DescribeSecret, CreateSecret, PutSecretValue, "
        "RestoreSecret and TagResource"
    )
    if key_arn:
        actions += f", and kms:GenerateDataKey and Decrypt with {key_arn}"
    with aws_errors(f"The secret {name} cannot be stored", actions):
        try:
            present = _read_secret(client, name)
        except client.exceptions.InvalidRequestException:
            # The answer to this call only if the secret is deleted.
            _check_is_ours(client, name)
            client.restore_secret(SecretId=name)
            client.put_secret_value(SecretId=name, SecretString=json.dumps(values))
            return "restored"
        if present is None:
            client.create_secret(
                Name=name,
                Description="Settings of Task Profiler's forwarder",
                SecretString=json.dumps(values),
                Tags=[
                    {"Key": key, "Value": value} for key, value in {**_TAGS, **(tags or {})}.items()
                ],
                **({"KmsKeyId": key_arn} if key_arn else {}),
            )
            return "created"
        kept = {
            key: value
            for key, value in present.items()
            if not (key in _SIGN_IN and _SIGN_IN & values.keys())
        }
        if kept | values == present:
            return "unchanged"
        _check_is_ours(client, name)
        client.put_secret_value(SecretId=name, SecretString=json.dumps(kept | values))
        return "updated"


def _check_is_ours(client: AwsClient, name: str) -> None:
    """Raise TaskProfilerError for a secret that lacks our tag: another program may read it."""
    tags = client.describe_secret(SecretId=name).get("Tags") or ()
    if _TAGS.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items():
        return
    ((key, value),) = _TAGS.items()
    raise TaskProfilerError(
        f"The secret {name} was not changed, because it has no tag {key}={value}, and may be "
        "another program's: choose another --name for the stack, or add the tag if it is the "
        "stack's."
    )


def _read_secret(client: AwsClient, name: str) -> dict[str, str] | None:
    try:
        text = client.get_secret_value(SecretId=name).get("SecretString", "")
    except client.exceptions.ResourceNotFoundException:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        said = f"The secret {name} is not a JSON object: delete it, or store its settings by hand."
        raise TaskProfilerError(said) from error
