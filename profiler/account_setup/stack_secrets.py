"""Secrets of the forwarder in Secrets Manager. The template gets their names only."""

import json
from typing import Literal

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.errors import TaskProfilerError

_SIGN_IN = frozenset({"api_key", "username", "password"})  # a new one replaces all of the old one


def store_secret(
    open_client: OpenClient, name: str, values: dict[str, str], key_arn: str = ""
) -> Literal["created", "updated", "unchanged"]:
    """Store values in a secret's JSON object. Other values there stay, and so does the key of an existing secret.

    Args:
        open_client: Makes boto3's client of a service.
        name: The secret's name.
        values: The values.
        key_arn: The KMS key of a new secret; empty: that of AWS.

    Raises:
        TaskProfilerError: AWS refuses, or the secret is something else. The message contains no value.
    """
    client = open_client("secretsmanager")
    actions = "secretsmanager:GetSecretValue, CreateSecret, PutSecretValue and TagResource"
    if key_arn:
        actions += f", and kms:GenerateDataKey and Decrypt with {key_arn}"
    with aws_errors(f"The secret {name} cannot be stored", actions):
        present = _read(client, name)
        if present is None:
            client.create_secret(
                Name=name,
                Description="Settings of Task Profiler's forwarder",
                SecretString=json.dumps(values),
                Tags=[{"Key": "application", "Value": "task-profiler"}],
                **({"KmsKeyId": key_arn} if key_arn else {}),
            )
            return "created"
        kept = {key: value for key, value in present.items() if not (key in _SIGN_IN and _SIGN_IN & values.keys())}
        if kept | values == present:
            return "unchanged"
        client.put_secret_value(SecretId=name, SecretString=json.dumps(kept | values))
        return "updated"


def _read(client: AwsClient, name: str) -> dict[str, str] | None:
    try:
        text = client.get_secret_value(SecretId=name).get("SecretString", "")
    except client.exceptions.ResourceNotFoundException:
        return None
    try:
        present = json.loads(text)
    except ValueError:
        present = None
    if not isinstance(present, dict):
        raise TaskProfilerError(f"The secret {name} is not a JSON object: delete it, or store its settings by hand.")
    return present
