"""The IAM policy that lets the monitor write the report, and its union with an existing policy.

IAM limits the inline policies of a role to 10,240 characters together, without whitespace: about a
hundred log groups. The most similar log streams are joined to a prefix, until the policy fits.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import cache
from itertools import pairwise
from os.path import commonprefix
from typing import Literal

from msgspec import Struct

from profiler.core.ecs_terms import arn_account, arn_part, arn_region
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mappings_in_list, text_or_none
from profiler.core.text import listed_and_more
from profiler.task_definitions.containers import DefinedContainer, calls_cloudwatch_logs, log_target
from profiler.task_definitions.definition_json import ChangedDefinition

POLICY_NAME = "task-profiler"
_SID = "PutTheReportIntoTheBatchsStream"
MAX_INLINE_CHARACTERS = 10_240
_MAX_NAMED = 5
_LOG_GROUP = ":log-group:"
# Of IAM, such as ${aws:PrincipalTag/team}.
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_WILDCARD = re.compile(r"[*?]")
_STAR = frozenset("*")
_OF_IDS = frozenset("0123456789abcdef-*?")  # and the wildcards that stand for them
# Up to the first folder or word: a shorter prefix would allow the log groups of everybody.
_SHORTEST_PREFIX = re.compile(rf"arn:[^:]*:logs:[^:]*:[^:]*{_LOG_GROUP}/*[^:/_.-]+[:/_.-]")


def report_streams(changed: ChangedDefinition, revision_arn: str) -> frozenset[str]:
    """The ARNs of the log streams to which an added monitor writes the report; none if its log
    driver does.
    """
    if changed.monitor is None or not calls_cloudwatch_logs(changed.monitor.environment):
        return frozenset()
    batch = next(container for container in changed.containers if container.name == changed.batch)
    return frozenset(filter(None, (streams_of_container(batch, revision_arn),)))


def streams_of_container(container: DefinedContainer, revision_arn: str) -> str | None:
    """The ARN of the log streams of a container, one for each task; None if it does not log by
    awslogs.
    """
    target = log_target(container)
    prefix = text_or_none(container.log_options.get("awslogs-stream-prefix"))
    if target.group is None:
        return None
    stream = f"{prefix}/{container.name}/*" if prefix else "*"
    partition = arn_part(revision_arn, 1) or "aws"
    account = arn_account(revision_arn) or ""
    region = target.region or arn_region(revision_arn) or ""
    return f"arn:{partition}:logs:{region}:{account}:log-group:{target.group}:log-stream:{stream}"


def report_policy(streams: Iterable[str]) -> Mapping[str, object]:
    """The policy document that allows writing to these log streams."""
    statement = {
        "Sid": _SID,
        "Effect": "Allow",
        "Action": "logs:PutLogEvents",
        "Resource": sorted(streams),
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


class RolePolicy(Struct, frozen=True, kw_only=True):
    """The planned inline policy of a role for these log streams; ``document`` None: it suffices.

    ``prefixes`` replace log streams.
    """

    role: str
    streams: frozenset[str]
    document: Mapping[str, object] | None = None
    exact_characters: int = 0
    prefixes: tuple[str, ...] = ()

    @property
    def is_sufficient(self) -> bool:
        return self.document is None

    @property
    def prefix_sentence(self) -> str | None:
        """The sentence about the prefixes, if there are any."""
        if not self.prefixes:
            return None
        named = [prefix.partition(_LOG_GROUP)[2] for prefix in self.prefixes]
        return (
            f"The role {self.role} would need a policy of {self.exact_characters:,} characters, "
            f"and IAM allows {MAX_INLINE_CHARACTERS:,} in a role's inline policies, so the policy "
            f"gets prefixes of log groups: {listed_and_more(named, _MAX_NAMED)}."
        )


def planned_policy(
    role: str,
    streams: frozenset[str],
    existing: Mapping[str, object] | None = None,
    *,
    other_characters: int = 0,
) -> RolePolicy:
    """The existing policy of the role with these log streams.

    Raises TaskProfilerError if not even prefixes fit.
    """
    statements = statements_of(existing)
    own = None
    allowed = frozenset[str]()
    for statement in statements:
        if statement.get("Sid") == _SID:
            own = statement
            allowed = frozenset(map(str, values_of_field(own.get("Resource"))))
            break
    if existing is not None and all(is_covered(stream, allowed) for stream in streams):
        return RolePolicy(role=role, streams=streams)

    def document(resources: Iterable[str]) -> Mapping[str, object]:
        (new,) = mappings_in_list(report_policy(resources)["Statement"])
        changed = [*statements]
        if own is None:
            changed.append(new)
        else:
            changed[statements.index(own)] = {**own, "Resource": new["Resource"]}
        return {**(existing or report_policy(())), "Statement": changed}

    exact = _without_covered(sorted(allowed | streams))
    resources = exact
    exact_characters = iam_policy_length(document(exact))
    while iam_policy_length(document(resources)) > MAX_INLINE_CHARACTERS - other_characters:
        prefix = max(map(commonprefix, pairwise(resources)), key=len, default="")
        if not _SHORTEST_PREFIX.match(prefix):
            raise TaskProfilerError(
                f"The policy of the role {role!r} was not changed. The policy has "
                f"{exact_characters} characters, the role's other inline policies "
                f"{other_characters}, and IAM allows {MAX_INLINE_CHARACTERS}: attach what "
                "--policy prints as managed policies instead."
            )
        resources = _without_covered([*resources, f"{prefix}*"])
    prefixes = tuple(resource for resource in resources if resource not in exact)
    return RolePolicy(
        role=role,
        streams=streams,
        document=document(resources),
        exact_characters=exact_characters,
        prefixes=prefixes,
    )


def is_covered(stream: str, resources: Iterable[str]) -> bool:
    """Whether one of the resources of a statement covers the log stream, which may end in ``*``
    itself.
    """
    return any(_regex_of_resource(resource).match(stream) for resource in resources)


@cache
def _regex_of_resource(resource: str) -> re.Pattern[str]:
    """A resource as IAM reads it: its wildcards are ``*`` and ``?``."""
    return re.compile(translate(resource.replace("[", "[[]")))


def _without_covered(resources: Sequence[str]) -> list[str]:
    """The resources, sorted, without those that a shorter one with a final ``*`` covers."""
    kept: list[str] = []
    for resource in sorted(set(resources), key=lambda resource: resource.removesuffix("*")):
        if not (kept and kept[-1].endswith("*") and resource.startswith(kept[-1][:-1])):
            kept.append(resource)
    return kept


def iam_policy_length(document: Mapping[str, object]) -> int:
    """The length that IAM counts: without whitespace."""
    return len("".join(json.dumps(document, separators=(",", ":"), ensure_ascii=False).split()))


def statements_of(document: Mapping[str, object] | None) -> list[Mapping[str, object]]:
    """The statements of a policy. IAM accepts a single one without a list."""
    return list(mappings_in_list(values_of_field((document or {}).get("Statement"))))


def is_about_action(statement: Mapping[str, object], action: str) -> bool:
    """Whether a statement is about the action.

    Patterns ignore case; ``NotAction`` has all actions but its own.
    """
    field = "NotAction" if "NotAction" in statement else "Action"
    patterns = [str(pattern).lower() for pattern in values_of_field(statement.get(field))]
    return any(fnmatchcase(action.lower(), pattern) for pattern in patterns) == (field == "Action")


def covers_resource(
    statement: Mapping[str, object], resource: str
) -> Literal["yes", "no", "unknown"]:
    """Whether a statement is about the resource, which may end in ``*``.

    The values of variables are unknown, and so is whether a refused part of a pattern is met: that
    of a Deny, or the exception of an Allow.
    """
    field = "NotResource" if "NotResource" in statement else "Resource"
    patterns = [*map(str, values_of_field(statement.get(field)))]
    if is_covered(resource, patterns):
        return "yes" if field == "Resource" else "no"
    anyhow = [_VARIABLE.sub("*", pattern) for pattern in patterns]
    names_refused = (statement.get("Effect") == "Deny") == (field == "Resource")
    # The resource ``*`` is that of an action that has none.
    is_part = (
        names_refused and resource != "*" and any(may_name_stream(resource, one) for one in anyhow)
    )
    if is_part or is_covered(resource, anyhow):
        return "unknown"
    return "no" if field == "Resource" else "yes"


def may_name_stream(stream: str, pattern: str) -> bool:
    """Whether a pattern of IAM, whose wildcards are ``*`` and ``?``, names one of the log streams,
    whose last ``*`` is the id of a task or a container; one before it is any name.
    """
    begins = (_WILDCARD.split(one, maxsplit=1)[0] for one in (stream, pattern))
    shorter, longer = sorted(begins, key=len)
    if not longer.startswith(shorter):
        return False
    # The lengths of the beginnings of the pattern that fit the beginning of the stream so far.
    reached = _longer_beginnings(pattern, {0}, _STAR)
    for index, character in enumerate(stream):
        met = set[int]()
        for length in reached - {len(pattern)}:
            other = pattern[length]
            if other == "*":
                met.add(length)
            elif character != "*" and other in f"{character}?":
                met.add(length + 1)
        if character == "*":
            is_id = index == len(stream) - 1
            met |= _longer_beginnings(pattern, reached, _OF_IDS if is_id else frozenset(pattern))
        reached = _longer_beginnings(pattern, met, _STAR)
    return len(pattern) in reached


def _longer_beginnings(pattern: str, lengths: set[int], accepted: frozenset[str]) -> set[int]:
    """The lengths of beginnings of a pattern, and those that accepted characters make longer."""
    longer = set[int]()
    for beginning in lengths:
        length = beginning
        while length not in longer:
            longer.add(length)
            length += pattern[length : length + 1] in accepted
    return longer


def values_of_field(value: object) -> list[object]:
    """The values of a field of a policy, which has a list, or one value alone."""
    return value if isinstance(value, list) else [value]
