"""Registers a revision. RegisterTaskDefinition has no token, so that of a lost answer only the
family's newest revision tells what came; and it has no condition, so that the new revision hides
one that somebody registers meanwhile.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.registered_definitions import may_definition_exist, revision_of
from profiler.core.aws_lost_answers import has_surely_changed_nothing
from profiler.core.ecs_terms import revision_number, revision_text
from profiler.core.errors import TaskProfilerError
from profiler.sizing.sized_revision import RESIZED_FROM, RESTORED_OVER, REVERTED_FROM
from profiler.task_definitions.definition_difference import difference
from profiler.task_definitions.definition_json import (
    TaskDefinitionDocument,
    read_described,
    tags_of,
)
from profiler.task_definitions.size_changes import with_tag


class Definitions(Protocol):
    """The account's task definitions; both raise TaskProfilerError."""

    def describe(self, name: str) -> bytes:
        """ECS's response for ``family:revision``."""
        ...

    def register(self, definition: Mapping[str, object]) -> str:
        """Register a revision, and return its ARN."""
        ...


def register_or_find(definitions: Definitions, planned: PlannedFamily) -> str:
    """Register the plan's revision, and return its ARN: that of the newest one if no answer
    arrived, and it is the same.

    Raises TaskProfilerError.
    """
    definition = planned.changed.definition
    try:
        return definitions.register(definition)
    except TaskProfilerError as error:
        if has_surely_changed_nothing(error.__cause__):
            raise
        lost = error
    family = planned.family
    try:
        newest = read_described(definitions.describe, family)
    except TaskProfilerError as error:
        raise TaskProfilerError(
            f"It is unknown whether a revision of {family} was registered: look at its newest one. "
            f"{lost}"
        ) from error
    if newest.arn is None or newest.arn == planned.revision_arn:
        raise lost
    if difference(newest.definition, definition) == "none":
        return newest.arn
    raise TaskProfilerError(
        f"{revision_of(newest.arn)} was registered meanwhile, and perhaps one of this plan before "
        f"it: call it again. {lost}"
    )


def register_overtaken_again(
    definitions: Definitions, planned: PlannedFamily, new_arn: str
) -> None:
    """Register the revision again that the new one hides, as it was. If ours has a size's tag, the
    copy says that ours does not count.

    Raises TaskProfilerError if there was one: the family waits for the next time.
    """
    overtaken = _find_overtaken_revision(definitions, planned, new_arn)
    if overtaken is None:
        return
    hidden = revision_of(overtaken.arn or "")
    new = revision_of(new_arn)
    try:
        restored = overtaken.definition
        if tags_of(planned.changed.definition.get("tags")).keys() & {RESIZED_FROM, REVERTED_FROM}:
            restored = with_tag(restored, RESTORED_OVER, revision_text(new_arn))
        again = revision_of(definitions.register(restored))
    except TaskProfilerError as error:
        raise TaskProfilerError(
            f"{hidden} was registered meanwhile, and {new} hides it: register it again. {error}"
        ) from error
    raise TaskProfilerError(
        f"{hidden} was registered meanwhile, so it was registered again as {again}, after {new}: "
        "call it again."
    )


def restoring_plan(
    definitions: Definitions, planned: PlannedFamily, new_arn: str
) -> PlannedFamily | None:
    """The plan that registers the revision again that the plan's new one has replaced, with a tag
    that says that ours does not count; None if ours is not the newest any more. Raises
    TaskProfilerError.
    """
    newest = read_described(definitions.describe, planned.family)
    if newest.arn != new_arn:
        return None
    number = revision_text(new_arn)
    restored = with_tag(planned.document.definition, RESTORED_OVER, number)
    return replace(planned, document=newest, changed=replace(planned.changed, definition=restored))


def _find_overtaken_revision(
    definitions: Definitions, planned: PlannedFamily, new_arn: str
) -> TaskDefinitionDocument | None:
    """The revision before the new one and its repetitions, if it is active, not the plan's base,
    and different.

    Raises TaskProfilerError if it cannot be read, unless it was deleted.
    """
    family, _, new_text = (revision_of(new_arn) or "").rpartition(":")
    for number in range((revision_number(new_text) or 0) - 1, 0, -1):
        name = f"{family}:{number}"
        if planned.revision == name:
            return None
        try:
            document = read_described(definitions.describe, name)
        except TaskProfilerError as error:
            if may_definition_exist(error):
                raise TaskProfilerError(
                    f"{name} could not be read, so it is unknown whether {family}:{new_text} hides "
                    f"a deployment: compare the two. {error}"
                ) from error
            return None  # it was deleted
        if not document.is_active:
            return None
        if difference(document.definition, planned.changed.definition) != "none":
            return document
        # Another call of the same plan, such as boto3's after a lost answer.
    return None
