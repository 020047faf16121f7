"""What the statements of policies say about an action, also those with conditions whose values are
known.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html, and its
pages reference_policies_elements_condition_operators.html and
reference_policies_condition-single-vs-multi-valued-context-keys.html.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Literal, TypeAlias

from msgspec import Struct

from profiler.core.json_fields import mapping_or_empty
from profiler.task_definitions.permissions import (
    covers_resource,
    is_about_action,
    is_covered,
    statements_of,
    values_of_field,
)

Policies: TypeAlias = tuple[Mapping[str, object], ...]
# The values of condition keys, by their names in small letters; ``()``: the request has none. A key
# that is not there has an unknown value. A tag's key that is not there has none, beside TAG_KEYS.
Context: TypeAlias = Mapping[str, tuple[str, ...]]
Answer: TypeAlias = Literal["yes", "no", "unknown"]
TAG_KEYS = "aws:tagkeys"
TAG = "aws:requesttag/"
_VARIABLE = "${"
_ARN_PARTS = 5  # the colons before the resource
_ALL, _ANY, _IF_EXISTS, _NOT = "forallvalues:", "foranyvalue:", "ifexists", "not"
_OPERATORS = frozenset(
    {"stringequals", "stringequalsignorecase", "stringlike", "arnequals", "arnlike"}
)


class PolicyQuestion(Struct, frozen=True, kw_only=True):
    """An action on a resource, which may end in ``*``, with what is known of its request."""

    action: str
    resource: str
    context: Context = {}


class StatementEffects(Struct, frozen=True):
    """Whether each statement of policies applies to a question, in their order."""

    allows: tuple[Answer, ...]
    denies: tuple[Answer, ...]

    @property
    def verdict(self) -> Literal["allowed", "denied", "denied by policy", "unknown"]:
        """``denied``: no statement allows it. ``denied by policy``: one denies it."""
        if "yes" in self.denies:
            return "denied by policy"
        if {*self.allows} <= {"no"}:
            return "denied"
        return "allowed" if "yes" in self.allows and "unknown" not in self.denies else "unknown"

    def are_as_good_as(self, other: "StatementEffects") -> bool:
        """Whether the same policies that allow another question allow this one as well, whatever
        the conditions say that are not known.
        """
        levels = ("no", "unknown", "yes")

        def is_least(mine: Iterable[Answer], of_other: Iterable[Answer]) -> bool:
            pairs = zip(mine, of_other, strict=True)
            return all(levels.index(one) >= levels.index(least) for one, least in pairs)

        return is_least(self.allows, other.allows) and is_least(other.denies, self.denies)


def statement_effects(documents: Policies, question: PolicyQuestion) -> StatementEffects:
    """What the statements of policies say."""
    allows: list[Answer] = []
    denies: list[Answer] = []
    for statement in chain.from_iterable(map(statements_of, documents)):
        applies = _does_statement_apply(statement, question)
        is_deny = statement.get("Effect") == "Deny"
        (denies if is_deny else allows).append(applies)
    return StatementEffects(tuple(allows), tuple(denies))


def _does_statement_apply(statement: Mapping[str, object], question: PolicyQuestion) -> Answer:
    if not is_about_action(statement, question.action):
        return "no"
    covered = covers_resource(statement, question.resource)
    return _all_answers([covered, *_condition_answers(statement, question.context)])


def _all_answers(parts: Iterable[Answer]) -> Answer:
    kinds = {*parts}
    if "no" in kinds:
        return "no"
    return "unknown" if "unknown" in kinds else "yes"


def _condition_answers(statement: Mapping[str, object], context: Context) -> Iterator[Answer]:
    """Whether each condition of a statement is met."""
    for operator, keys in mapping_or_empty(statement.get("Condition")).items():
        for key, wanted in mapping_or_empty(keys).items():
            values = _values_of_key(key.lower(), context)
            patterns = [*map(str, values_of_field(wanted))]
            is_variable = any(_VARIABLE in pattern for pattern in patterns)
            if values is None or is_variable:
                yield "unknown"
            else:
                yield _condition_answer(operator.lower(), values, patterns)


def _values_of_key(key: str, context: Context) -> tuple[str, ...] | None:
    """The values of a key; None if they are not known."""
    if key in context:
        return context[key]
    return () if key.startswith(TAG) and TAG_KEYS in context else None


def _condition_answer(operator: str, values: tuple[str, ...], patterns: list[str]) -> Answer:
    """Whether values meet a condition of this operator, in small letters."""
    if operator == "null":
        wants_none = [pattern.lower() == "true" for pattern in patterns]
        return "yes" if (not values) in wants_none else "no"
    name = operator.removeprefix(_ALL).removeprefix(_ANY)
    if not values and name.endswith(_IF_EXISTS):
        return "yes"
    name = name.removesuffix(_IF_EXISTS)
    is_negated = _NOT in name
    name = name.replace(_NOT, "", 1)
    if name not in _OPERATORS:
        return "unknown"
    met = [_matches_any_pattern(name, value, patterns) != is_negated for value in values]
    if operator.startswith(_ALL):
        is_met = all(met)
    elif operator.startswith(_ANY):
        is_met = any(met)
    elif len(values) > 1:  # AWS does not say what this means
        return "unknown"
    else:
        is_met = all(met) if values else is_negated
    return "yes" if is_met else "no"


def _matches_any_pattern(operator: str, value: str, patterns: list[str]) -> bool:
    """Whether a value is one of those of a condition."""
    if operator == "stringequals":
        return value in patterns
    if operator == "stringequalsignorecase":
        return value.lower() in [pattern.lower() for pattern in patterns]
    if operator == "stringlike":
        return is_covered(value, patterns)
    parts = value.split(":", _ARN_PARTS)
    wanted = (pattern.split(":", _ARN_PARTS) for pattern in patterns)
    return "*" in patterns or any(
        len(parts) == len(of_pattern) and all(map(_is_part_covered, parts, of_pattern))
        for of_pattern in wanted
    )


def _is_part_covered(part: str, pattern: str) -> bool:
    return is_covered(part, (pattern,))
