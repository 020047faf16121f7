"""The secrets of a stack in Secrets Manager."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, answer_unless, aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import error_code
from profiler.core.errors import TaskProfilerError
from profiler.core.notice_channels import SLACK

_TAGS = {"application": "task-profiler"}
# The parameters of the template with a secret's name, and the end of the name of the stack's own.
_SECRETS = {SLACK.parameter: "slack", "ElasticsearchSecretId": "search", "OtlpSecretId": "otlp"}
# A new sign-in replaces the whole old one.
_SIGN_IN = frozenset({"api_key", "username", "password"})


# ``foreign``: it lacks our tag, and may be another program's. ``gone``: there is none, or it is
# deleted, and only its name is kept.
SecretOwner: TypeAlias = Literal["ours", "foreign", "gone", "unknown"]


def own_secret_names(stack: str) -> Mapping[str, str]:
    """The names of the secrets that ``setup stack`` makes for a stack, by the parameter."""
    return {parameter: f"{stack}/{end}" for parameter, end in _SECRETS.items()}


class SecretStore(Struct, frozen=True, kw_only=True):
    """Stores the values of secrets, each a JSON object, where other values stay.

    No message of an error contains a value.

    A secret without our tag may be another program's: it stays as it is, and ``plan_change``
    raises TaskProfilerError. A deleted secret, whose name Secrets Manager keeps for 7 to 30 days,
    is restored without its values. ``key_arn`` is the KMS key of a new secret, empty for AWS's own;
    ``tags`` are a new secret's, too.
    """

    open_client: OpenClient
    key_arn: str = ""
    tags: Mapping[str, str] = {}

    def plan_change(self, name: str, values: dict[str, str]) -> "SecretChange":
        """What is to do, which changes nothing yet. Raises TaskProfilerError."""
        client = self.open_client("secretsmanager")
        with aws_errors(f"The secret {name} cannot be stored", self._actions):
            try:
                present, version = _read_secret(client, name)
            except client.exceptions.InvalidRequestException:
                # The answer to this call only if the secret is deleted.
                _check_is_ours(client, name)
                return SecretChange(name=name, effect="restored", values=values)
            if present is None:
                return SecretChange(name=name, effect="created", values=values)
            kept = {
                key: value
                for key, value in present.items()
                if not (key in _SIGN_IN and _SIGN_IN & values.keys())
            }
            if kept | values == present:
                return SecretChange(name=name, effect="unchanged", values=present)
            _check_is_ours(client, name)
            return SecretChange(name=name, effect="updated", values=kept | values, version=version)

    def store(self, change: "SecretChange") -> None:
        """Raises TaskProfilerError."""
        client = self.open_client("secretsmanager")
        name, text = change.name, json.dumps(change.values)
        what = f"The secret {name} cannot be stored"
        with aws_errors(what, self._actions):
            if change.effect == "created":
                client.create_secret(
                    Name=name,
                    Description="Settings of Task Profiler's forwarder",
                    SecretString=text,
                    Tags=[
                        {"Key": key, "Value": value}
                        for key, value in {**_TAGS, **self.tags}.items()
                    ],
                    **({"KmsKeyId": self.key_arn} if self.key_arn else {}),
                )
                return
            if change.effect == "restored":
                client.restore_secret(SecretId=name)
                what = f"The secret {name} is restored with its old values, and cannot be changed"
        if change.effect != "unchanged":
            with aws_errors(what, self._actions):
                put = client.put_secret_value(SecretId=name, SecretString=text)
                _check_replaced_version(client, change, put["VersionId"])

    @property
    def _actions(self) -> str:
        actions = (
            "secretsmanager:GetSecretValue, DescribeSecret, CreateSecret, PutSecretValue, "
            "RestoreSecret and TagResource"
        )
        if self.key_arn:
            actions += f", and kms:GenerateDataKey and Decrypt with {self.key_arn}"
        return actions


class SecretChange(Struct, frozen=True, kw_only=True):
    """The effect on a secret, and the values that it will have: it has no other ones.

    ``version`` is the id of the version that they were made from; None: of none.
    """

    name: str
    effect: Literal["created", "updated", "unchanged", "restored"]
    values: dict[str, str]
    version: str | None = None


def read_secret_owner(
    open_client: OpenClient, name: str, warn: Callable[[str], object]
) -> SecretOwner:
    """Whose a secret is, by its tags. ``warn`` gets a sentence if they cannot be read."""
    client = open_client("secretsmanager")
    what = f"The tags of the secret {name} cannot be read"
    try:
        with aws_errors(what, "secretsmanager:DescribeSecret"):
            described = answer_unless(_is_absent, client.describe_secret, SecretId=name)
    except TaskProfilerError as error:
        warn(str(error))
        return "unknown"
    if described is None or described.get("DeletedDate"):
        return "gone"
    return "ours" if _has_our_tag(described) else "foreign"


def _is_absent(error: Exception) -> bool:
    return error_code(error) == "ResourceNotFoundException"


def _has_our_tag(described: Mapping[str, Any]) -> bool:
    """Whether DescribeSecret's answer has our tag."""
    tags = described.get("Tags") or ()
    return _TAGS.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items()


def foreign_secret_clause() -> str:
    """Why a secret without our tag stays as it is."""
    ((key, value),) = _TAGS.items()
    return f"has no tag {key}={value}, and may be another program's"


def _check_is_ours(client: AwsClient, name: str) -> None:
    """Raise TaskProfilerError for a secret that lacks our tag: another program may read it."""
    if _has_our_tag(client.describe_secret(SecretId=name)):
        return
    raise TaskProfilerError(
        f"The secret {name} was not changed, because it {foreign_secret_clause()}: choose another "
        "--name for the stack, or add the tag if it is the stack's."
    )


def _check_replaced_version(client: AwsClient, change: SecretChange, own: str) -> None:
    """Raise TaskProfilerError if somebody has stored another version since the plan was made."""
    if change.version is None:
        return
    stages = client.describe_secret(SecretId=change.name)["VersionIdsToStages"]
    for version, labels in stages.items():
        if "AWSPREVIOUS" in labels and version not in (change.version, own):
            raise TaskProfilerError(
                f"Somebody else has changed the secret {change.name} at the same moment, and those "
                "settings are replaced: give the other command again, too."
            )


def _read_secret(client: AwsClient, name: str) -> tuple[dict[str, str] | None, str | None]:
    """The values and the id of their version; None without the secret."""
    try:
        answer = client.get_secret_value(SecretId=name)
    except client.exceptions.ResourceNotFoundException:
        return None, None
    try:
        values = msgspec.json.decode(answer.get("SecretString", ""), type=dict[str, Any])
    except msgspec.DecodeError as error:
        said = f"The secret {name} is not a JSON object: delete it, or store its settings by hand."
        raise TaskProfilerError(said) from error
    return values, answer["VersionId"]
