"""What stays of the forwarder's stack after its deletion, and whose it may be.

A command that deletes something is only printed where the stack alone has it: two forwarders of an
account have one bucket, and may have one secret or one set of indices.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.forwarder_stack import (
    ForwarderStack,
    monitor_log_group,
    other_forwarders,
)
from profiler.aws_account.setup.change_sets import CloudFormationEvent
from profiler.aws_account.setup.forwarder_secrets import (
    SecretOwner,
    foreign_secret_clause,
    own_secret_names,
    read_secret_owner,
)
from profiler.core.commands_to_copy import aws_command_line
from profiler.core.errors import TaskProfilerError
from profiler.core.index_names import DEFAULT_PREFIX
from profiler.core.text import first_names

# What `setup stack` uploads.
_OWN_FILES = ("--exclude", "*", "--include", "forwarder-*.zip", "--include", "template-*.yaml")
_SECRET_ARN = re.compile(r"arn:[^:]+:secretsmanager:[^:]*:\d*:secret:(.+)")
# Secrets Manager appends it to the name in an ARN.
_RANDOM_END = re.compile(r"-[A-Za-z0-9]{6}")


class OtherUsers(Struct, frozen=True, kw_only=True):
    """The other forwarders of the account and Region, if they are known."""

    stacks: tuple[ForwarderStack, ...] = ()
    are_known: bool = True

    def clause_of_users(self, is_user: Callable[[ForwarderStack], bool]) -> str:
        """Who uses something, too, or may do so, as the end of its name; empty: nobody."""
        if not self.are_known:
            return ", which another forwarder may use"
        names = [stack.name for stack in self.stacks if is_user(stack)]
        if not names:
            return ""
        stacks, use = ("stack", "uses") if len(names) == 1 else ("stacks", "use")
        return f", which the {stacks} {first_names(names)} {use}, too"


def read_other_users(
    open_client: OpenClient, name: str, warn: Callable[[str], object]
) -> OtherUsers:
    """The forwarders beside the stack with this name. ``warn`` gets a sentence if they cannot be
    read.
    """
    try:
        return OtherUsers(stacks=other_forwarders(open_client, name))
    except TaskProfilerError as error:
        warn(f"Who else uses what stays is unknown. {error}")
        return OtherUsers(are_known=False)


def read_remaining_resources(
    open_client: OpenClient,
    state: ForwarderStack,
    kept: Iterable[CloudFormationEvent],
    warn: Callable[[str], object],
) -> Iterator[str]:
    """The lines of :func:`remaining_resource_lines`. ``warn`` gets a sentence for what cannot be
    read.
    """
    others = read_other_users(open_client, state.name, warn)
    owner = partial(read_secret_owner, open_client, warn=warn)
    yield from remaining_resource_lines(state, kept, others, owner)


def remaining_resource_lines(
    state: ForwarderStack,
    kept: Iterable[CloudFormationEvent],
    others: OtherUsers,
    secret_owner: Callable[[str], SecretOwner],
) -> Iterator[str]:
    """The remaining resources, each with the command that deletes it, or with whose it may be;
    ``state`` is from before the deletion. ``secret_owner`` reads the tags of a secret.
    """
    delete = partial(aws_command_line, region=state.region)
    for event in kept:
        text = f"{event.resource} ({event.physical_id})"
        if event.type == "AWS::Logs::LogGroup":
            continue  # the stack's parameters name it, also one that an earlier stack made
        if event.type == "AWS::SQS::Queue":
            command = delete("sqs", "delete-queue", "--queue-url", event.physical_id)
            text = f"{event.resource} (its messages may exist nowhere else): {command}"
        yield text
    yield from _code_lines(state, others)
    for name, value in state.parameters.items():
        if name.endswith("SecretId") and value:
            yield from _secret_lines(state, name, value, others, secret_owner)
    yield from _index_lines(state, others)
    if state.parameters.get("InstanceMonitorCluster"):
        group = monitor_log_group(state.name)
        command = delete("logs", "delete-log-group", "--log-group-name", group)
        yield f"the log group of the instance monitor, with reports: {command}"
    yield "the log groups of the batches and their monitors, with the reports"


def _code_lines(state: ForwarderStack, others: OtherUsers) -> Iterator[str]:
    """The files in the bucket. CloudFormation needs those of a stack to undo its next update."""
    bucket = state.parameters.get("CodeBucket")
    if not bucket:
        return
    if state.version is None:
        key = state.parameters.get("CodeKey", "")
        yield f"the code, which setup stack did not upload: s3://{bucket}/{key}"
        return
    folder = f"s3://{bucket}/task-profiler/"
    users = others.clause_of_users(lambda stack: stack.parameters.get("CodeBucket") == bucket)
    if users:
        yield f"code and templates in {folder}{users}"
        return
    words = ("s3", "rm", "--recursive", folder, *_OWN_FILES)
    command = aws_command_line(*words, region=state.region)
    yield f"code and templates: {command}"


def _secret_lines(
    state: ForwarderStack,
    parameter: str,
    value: str,
    others: OtherUsers,
    secret_owner: Callable[[str], SecretOwner],
) -> Iterator[str]:
    """A secret, whose name alone does not prove that `setup stack` made it."""
    what = f"the secret {value}"
    if value != own_secret_names(state.name).get(parameter):
        yield f"{what}, which setup stack did not make"
        return
    users = others.clause_of_users(lambda stack: _has_secret(stack, value))
    if users:
        yield f"{what}{users}"
        return
    match secret_owner(value):
        case "gone":
            return
        case "foreign":
            yield f"{what}, which {foreign_secret_clause()}"
        case "unknown":
            yield f"{what}, which may be another program's"
        case "ours":
            words = ("secretsmanager", "delete-secret", "--secret-id", value)
            yield f"{what}: {aws_command_line(*words, region=state.region)}"


def _has_secret(stack: ForwarderStack, name: str) -> bool:
    values = (value for key, value in stack.parameters.items() if key.endswith("SecretId"))
    return any(_is_secret(value, name) for value in values)


def _is_secret(value: str, name: str) -> bool:
    """Whether a secret's name or ARN is of the secret of this name."""
    in_arn = _SECRET_ARN.fullmatch(value)
    if not in_arn:
        return value == name
    has_random_end = _RANDOM_END.fullmatch(in_arn[1], len(name))
    return in_arn[1] == name or (in_arn[1].startswith(name) and bool(has_random_end))


def _index_lines(state: ForwarderStack, others: OtherUsers) -> Iterator[str]:
    address, prefix = _indices(state.parameters)
    if not address:
        return
    users = others.clause_of_users(
        lambda stack: _indices(stack.parameters) == _indices(state.parameters)
    )
    what = f"indices, index templates and dashboards of {prefix} in {address}"
    yield f"{what}{users}: see Uninstall in docs/operate.md"


def _indices(parameters: Mapping[str, str]) -> tuple[str, str]:
    """The address of the cluster and the prefix of the indices."""
    address = parameters.get("ElasticsearchUrl", "").rstrip("/")
    return address, parameters.get("IndexPrefix") or DEFAULT_PREFIX
