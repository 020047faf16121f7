"""The forwarder's template, as far as a deployment needs it: parameters, rules, and a subscription for each log group.

The command line has no parser of YAML. The template's own tests compare what is read here with a parser's result. Some
checks of parameters are not CloudFormation's: it would fail after minutes, and roll back.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.monitor_log_groups import listed_groups
from profiler.core.errors import TaskProfilerError, UsageError

# The parameters that `setup stack` sets itself.
_CODE = {"CodeBucket": "use --bucket", "CodeKey": "the command sets it"}
_NAME = re.compile(r"^  (\w+):$", re.MULTILINE)
_FIELD = re.compile(r"^    (\w+): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"RuleCondition: (.+?)\n    Assertions:", re.DOTALL)
_ASSERTION = re.compile(r'Assert: (.+?)\n +AssertDescription: "(.+?)"', re.DOTALL)
_WORD = re.compile(r'![A-Za-z]+|"[^"]*"|[][]|[^\s\[\],"]+')
_SUBSCRIPTION = re.compile(r"^  Subscription:\n.*?\n\n", re.MULTILINE | re.DOTALL)
_ONE_GROUP = re.compile(r"^  SubscribesOneGroup: .+\n", re.MULTILINE)
_HASH_DIGITS = 8
_MAX_PATTERN_CHARACTERS = 2048  # EventBridge's default quota
_CHANNELS = ("SlackSecretId", "EventBusName", "NoticeEmail")
_SUBSCRIBABLE = "STANDARD"


class StackTemplate:
    """lambda/template.yaml.

    Args:
        text: The template.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._fields = {name: dict(_FIELD.findall(part)) for name, part in _parts(text, "Parameters")}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(self._fields)

    def values(self, given: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
        """The value of each parameter after a deployment: given now, kept, or the default."""
        return {
            name: given.get(name, current.get(name, fields.get("Default", "").strip('"')))
            for name, fields in self._fields.items()
        }

    def check_values(self, given: Mapping[str, str]) -> None:
        """Check values as CloudFormation will, after the upload. Raises UsageError, which contains no value."""
        for name, fields in self._fields.items():
            wanted = _expected(fields, given[name]) if name in given else None
            if wanted is not None:
                raise UsageError(f"The parameter {name} of the template has a wrong value: use {wanted}")

    def check_rules(self, values: Mapping[str, str]) -> None:
        """Check the template's rules, which forbid contradictory parameters. Raises UsageError with their sentences."""
        broken = [
            sentence
            for _, part in _parts(self.text, "Rules")
            if all(_holds(condition, values) for condition in _CONDITION.findall(part))
            for assertion, sentence in _ASSERTION.findall(part)
            if not _holds(assertion, values)
        ]
        if broken:
            raise UsageError(" ".join(broken))

    def with_subscriptions(self, groups: Iterable[str]) -> "StackTemplate":
        """The template with a subscription of each log group, in place of the subscription of a single group.

        A subscription's logical id depends only on the group's name. With an id by position, CloudFormation would
        replace the filters of the groups after a removed one, and create a filter before it deletes the old one.
        """
        (block,) = _SUBSCRIPTION.findall(self.text)
        copies = "".join(_subscription(block, name) for name in groups)
        return StackTemplate(_ONE_GROUP.sub("", self.text).replace(block, copies)) if copies else self


def _parts(template: str, section: str) -> Iterator[tuple[str, str]]:
    """The name and the text of each entry of a section."""
    found = re.search(rf"^{section}:\n(.*?)^\S", template, re.MULTILINE | re.DOTALL)
    _, *parts = _NAME.split(found[1] if found else "")
    return zip(parts[::2], parts[1::2], strict=True)


def _expected(fields: Mapping[str, str], value: str) -> str | None:
    """A description of the valid values; None if this value is valid."""
    if "AllowedValues" in fields:
        allowed = [one.strip(' "') for one in fields["AllowedValues"].strip("[]").split(",")]
        return None if value in allowed else f"one of {', '.join(allowed)}."
    if "MinValue" in fields:
        least, most = int(fields["MinValue"]), int(fields["MaxValue"])
        is_right = re.fullmatch(r"\d{1,9}", value, re.ASCII) is not None and least <= int(value) <= most
        return None if is_right else f"a whole number from {least} to {most}."
    if re.fullmatch(fields.get("AllowedPattern", "(?s:.*)"), value, re.ASCII) is None:
        return fields["ConstraintDescription"]
    return None


def _holds(condition: str, values: Mapping[str, str]) -> bool:
    """Evaluate the functions of a rule, in their short forms."""
    return bool(_evaluate(iter(_WORD.findall(condition)), values))


def _evaluate(words: Iterator[str], values: Mapping[str, str]) -> object:
    """The value of the next expression; None at the end of a list."""
    word = next(words)
    if word == "[":
        return list(iter(lambda: _evaluate(words, values), None))
    if not word.startswith("!"):
        return None if word == "]" else word.strip('"')
    argument = _evaluate(words, values)
    if isinstance(argument, str):  # !Ref
        return values[argument]
    items = argument if isinstance(argument, list) else []
    return {"!Equals": len(set(items)) == 1, "!Not": not items[0], "!And": all(items), "!Or": any(items)}[word]


def _subscription(block: str, group: str) -> str:
    digest = sha256(group.encode()).hexdigest()[:_HASH_DIGITS]
    for old, new in (
        ("  Subscription:", f"  Subscription{digest}:"),
        ("SubscribesOneGroup", "SubscribesGroups"),
        ("!Ref AWS::StackName", f"!Sub ${{AWS::StackName}}-{digest}"),
        ("!Ref LogGroups", f'"{group}"'),
    ):
        block = block.replace(old, new, 1)
    return block


def parse_parameters(texts: Iterable[str], names: Sequence[str]) -> dict[str, str]:
    """Parse ``Name=Value``. Raises UsageError for another form or an unknown name."""
    parsed = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError("A --parameter is not NAME=VALUE: write the parameter's name, =, and its value.")
        if name in _CODE:
            raise UsageError(f"--parameter {name} cannot be given: {_CODE[name]}.")
        if name not in names:
            similar = get_close_matches(name, names, n=1)
            hint = f"did you mean {similar[0]}?" if similar else "docs/commands.md lists the parameters."
            raise UsageError(f"The template has no parameter {name!r}: {hint}")
        parsed[name] = value
    return parsed


def changed_parameters(
    names: Iterable[str], given: Mapping[str, str], current: Mapping[str, str]
) -> list[dict[str, object]]:
    """The parameters as CloudFormation takes them: given values, then those that the stack keeps.

    CloudFormation uses the defaults of the rest, and rejects parameters that the template no longer has.
    """
    return [
        {"ParameterKey": name, "ParameterValue": given[name]}
        if name in given
        else {"ParameterKey": name, "UsePreviousValue": True}
        for name in names
        if name in given or name in current
    ]


class Gap(Struct, frozen=True):
    """Why a stack does nothing for its owner, as the end of a sentence, and what ``setup stack`` then needs."""

    reason: str
    options: tuple[str, ...]


_NO_CHANNEL = Gap(
    "has neither a search cluster nor a channel for notifications", ("--slack-failure-webhook", "@webhook.txt")
)
_NO_LOG_GROUP = Gap("indexes nothing, because it subscribes no log group", ("--all-log-groups",))


def find_gap(values: Mapping[str, str]) -> Gap | None:
    """The gap in the parameters of a stack; None without a gap."""
    if not any(values.get(name) for name in ("ElasticsearchUrl", "OtlpEndpoint", *_CHANNELS)):
        return _NO_CHANNEL
    is_fed = values.get("LogGroups") or values.get("Subscribe") == "account" or values.get("Ingestion") == "stream"
    return _NO_LOG_GROUP if values.get("ElasticsearchUrl") and not is_fed else None


def check_pattern(values: Mapping[str, str]) -> None:
    """Refuse more clusters than the event pattern of a rule can contain. Raises UsageError."""
    clusters = values["ClusterArns"].split(",")
    detail = {"lastStatus": ["STOPPED"], "clusterArn": clusters}
    pattern = {"source": ["aws.ecs"], "detail-type": ["ECS Task State Change"], "detail": detail}
    if len(json.dumps(pattern, separators=(",", ":"))) > _MAX_PATTERN_CHARACTERS:
        raise UsageError(
            f"ClusterArns has {len(clusters)} clusters, which exceed the {_MAX_PATTERN_CHARACTERS:,} characters of an "
            "EventBridge pattern: leave it empty for all clusters, or name fewer."
        )


def subscribes_groups(values: Mapping[str, str]) -> bool:
    """Whether the stack subscribes its log groups. Raises UsageError if ``Notify`` needs them and there are none."""
    if values["Subscribe"] == "account":
        return False
    if values["ElasticsearchUrl"] or "running" not in values["Notify"].split(","):
        return bool(values["ElasticsearchUrl"])
    if not values["LogGroups"] or not any(values[channel] for channel in _CHANNELS):
        raise UsageError(
            "Notify=running without ElasticsearchUrl needs log groups and a channel: add --log-group and one of "
            f"{', '.join(_CHANNELS)}, or leave running out."
        )
    return True


def check_groups(names: Iterable[str], open_client: OpenClient) -> None:
    """Refuse groups that are missing or cannot be subscribed. Only this check needs logs:DescribeLogGroups."""
    try:
        classes = {name: _log_class(name, open_client) for name in names}
    except TaskProfilerError:
        return
    missing = [name for name, found in classes.items() if found is None]
    if missing:
        raise TaskProfilerError(
            f"Log groups that are to be subscribed do not exist ({', '.join(missing)}): create them, or check "
            "--log-group and --region."
        )
    unfit = [name for name, found in classes.items() if found != _SUBSCRIBABLE]
    if unfit:
        raise TaskProfilerError(
            f"Only log groups of the class Standard can be subscribed, unlike {', '.join(unfit)}: leave them out, "
            "and let the batches log to others."
        )


def _log_class(name: str, open_client: OpenClient) -> str | None:
    """The class of a log group; None if there is no such group."""
    for group in listed_groups(open_client, name):
        if group["logGroupName"] == name:
            return str(group.get("logGroupClass", _SUBSCRIBABLE))
    return None
