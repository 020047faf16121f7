"""What the input of a schedule or a rule sets in place of its definition's sizes.

RunTask refuses a task whose containers do not fit into it, and on Fargate a size that does not
exist; then the schedule starts nothing.
https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_TaskOverride.html
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-transform-target-input.html
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.scheduled_targets import (
    UNKNOWN_VALUE,
    ScheduledTarget,
    is_started_by_events,
)
from profiler.core.ecs_terms import FARGATE
from profiler.core.json_fields import (
    count_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
    with_uncapitalized_names,
)
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import known, known_members
from profiler.record.record_model import TaskSize
from profiler.record.spot_price import FARGATE_SPOT
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.task_definitions.containers import DefinedContainer, read_containers
from profiler.task_definitions.job_as_task_definition import attempt_timeout_ms, is_on_fargate
from profiler.task_definitions.size_changes import (
    CONTAINER_SIZES,
    TASK_SIZES,
    SeenMemory,
    definition_size,
)

# A variable of a transformer; Scheduler's own are inside texts.
_VARIABLE = re.compile(r"<[\w.-]+>")
_PART_OF_EVENT = "its input is a part of the event, which can override sizes"
_UNREADABLE = "its input cannot be read, so it can override sizes"


class _UnreadableError(ValueError):
    """What a target submits cannot be known; the message says why."""


class SizeOverrides(Struct, frozen=True, kw_only=True):
    """The sizes that a target sets: of the task, and of its containers by name, in RunTask's form.

    ``unknown`` says why they cannot be known; nothing if they are. ``names`` are all containers
    that the target overrides, in sizes or others; empty: it does not say which.
    """

    task: Mapping[str, object] = {}
    containers: Mapping[str, Mapping[str, object]] = {}
    unknown: str = ""
    names: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not (self.task or self.containers or self.unknown)

    @property
    def can_be_refused(self) -> bool:
        """Whether RunTask can accept the definition and refuse these overrides."""
        return bool(self.names or not (self.is_empty or self.unknown))

    def definition_with_overrides(self, definition: Mapping[str, object]) -> Mapping[str, object]:
        """The definition as RunTask reads it with these overrides."""
        containers = [
            {**container, **self.containers.get(str(container.get("name")), {})}
            for container in mappings_in_list(definition.get("containerDefinitions"))
        ]
        return {**definition, **self.task, "containerDefinitions": containers}

    def least_memory_mb(self, definition: Mapping[str, object], seen: SeenMemory) -> int:
        """The least memory of the task into which the containers fit with their overrides.

        0 if the target also sets the task's own memory.
        """
        if self.unknown or "memory" in self.task:
            return 0
        needs_mb = dict(seen.needs_mb)
        overridden = self.definition_with_overrides(definition)
        for container in read_containers(overridden):
            if container.name in self.containers:
                fixed = (container.memory_mb, container.memory_reservation_mb)
                needs_mb[container.name] = max(limit_mb or 0 for limit_mb in fixed)
        return replace(seen, needs_mb=needs_mb).task_mb(overridden)

    def why_names_are_refused(self, definition: Mapping[str, object]) -> str | None:
        """Why RunTask refuses the definition for the containers that are named; None if it has all
        of them.
        """
        defined = {container.name for container in read_containers(definition)}
        missing = sorted(self.names - defined)
        if not missing:
            return None
        if "" in missing:
            return "its input overrides a container without its name"
        of_several = "s" if len(missing) > 1 else ""
        return (
            f"its input overrides the container{of_several} {', '.join(missing)}, which the "
            "definition does not have"
        )

    def why_definition_is_refused(self, definition: Mapping[str, object]) -> str | None:
        """Why RunTask would refuse the definition, which is on Fargate, with these sizes; None if
        it accepts them.
        """
        if self.unknown:
            return self.unknown
        if self.is_empty:
            return None
        overridden = self.definition_with_overrides(definition)
        size = definition_size(overridden)
        shown = size.text or "an unknown size"
        # AWS has accepted the definition's own size, which may be newer than the list.
        is_accepted = bool(size.text) and size == definition_size(definition)
        is_legal = is_accepted or Size(size.vcpu or 0, size.memory_mb or 0) in LEGAL_SIZES
        if not is_legal:
            return f"its input makes it {shown}, which Fargate does not have"
        if not _do_containers_fit(read_containers(overridden), size):
            return f"its input gives containers more than the task's {shown}"
        return None


def _do_containers_fit(containers: tuple[DefinedContainer, ...], size: TaskSize) -> bool:
    memory_mb = size.memory_mb or 0
    reserved_mb = 0
    cpu_units = 0
    for container in containers:
        limit_mb = container.memory_mb or 0
        reservation_mb = container.memory_reservation_mb or 0
        if limit_mb > memory_mb or (limit_mb and reservation_mb > limit_mb):
            return False
        reserved_mb += reservation_mb or limit_mb
        cpu_units += container.cpu_units
    return reserved_mb <= memory_mb and cpu_units <= (size.vcpu or 0) * 1024


class SubmittedTags(Struct, frozen=True, kw_only=True):
    """Whether a submission gives a job tags, and whether its task gets them and the definition's;
    None: as the definition says.
    """

    are_given: bool = False
    are_propagated: bool | None = None


def size_overrides(target: ScheduledTarget) -> SizeOverrides:
    """The sizes that a target sets in place of the definition's."""
    if target.request is not None:
        return _overrides_of_template(
            json.dumps(with_uncapitalized_names(target.request.get("Overrides")))
        )
    started = target.content if target.kind == "rule" else target.content["Target"]
    transformer = mapping_or_empty(started.get("InputTransformer"))
    if transformer:
        return _overrides_of_template(text_or_none(transformer.get("InputTemplate")) or "")
    if _is_given_part_of_event(target, started):
        return SizeOverrides(unknown=_PART_OF_EVENT)
    # Without an input, the rule's event is the input: no event has overrides at its top.
    source = text_or_none(started.get("Input")) or "{}"
    return _overrides_of_text(source) if target.kind == "rule" else _overrides_of_template(source)


def why_target_is_refused(target: ScheduledTarget, definition: Mapping[str, object]) -> str | None:
    """Why RunTask refuses a target the definition that it starts; None if it accepts it, or if
    this is not known. On EC2, the sizes are not judged.
    """
    if target.is_of_job:
        return None
    overrides = size_overrides(target)
    refusal = overrides.why_names_are_refused(definition)
    is_judged = _starts_on_fargate(target, definition) and not overrides.unknown
    return refusal or (overrides.why_definition_is_refused(definition) if is_judged else None)


def _starts_on_fargate(target: ScheduledTarget, definition: Mapping[str, object]) -> bool:
    """Whether a target certainly starts the definition on Fargate."""
    return asked_launch_type(target) == FARGATE or is_on_fargate(definition)


def asked_launch_type(target: ScheduledTarget) -> str | None:
    """The launch type that a target asks for, also by Fargate's capacity providers; None: none, or
    that of its cluster or of other providers.
    """
    place = target.task_request
    providers = {
        str(item.get("capacityProvider"))
        for item in map(
            with_uncapitalized_names, mappings_in_list(place.get("CapacityProviderStrategy"))
        )
    }
    if providers:
        return FARGATE if providers <= {FARGATE, FARGATE_SPOT} else None
    return text_or_none(place.get("LaunchType"))


def job_size_overrides(target: ScheduledTarget) -> SizeOverrides:
    """The sizes that a target that submits a job sets in place of its definition's."""
    try:
        return _overrides_of_job(_submitted_input(target))
    except _UnreadableError as error:
        return SizeOverrides(unknown=str(error))


def submitted_timeout_ms(target: ScheduledTarget) -> float | None:
    """The timeout that a target sets in place of its job definition's; None if it is not known to
    set one.
    """
    try:
        return attempt_timeout_ms(mapping_or_empty(_submitted_input(target)))
    except _UnreadableError:
        return None


def submitted_tags(target: ScheduledTarget) -> SubmittedTags:
    """What a target that submits a job says of tags; nothing if it cannot be read."""
    try:
        asked = mapping_or_empty(_submitted_input(target))
    except _UnreadableError:
        return SubmittedTags()
    propagates = asked.get("propagateTags")
    return SubmittedTags(
        are_given=bool(asked.get("tags")),
        are_propagated=known(bool, propagates),  # also a value that is computed
    )


def _is_given_part_of_event(target: ScheduledTarget, started: Mapping[str, object]) -> bool:
    return started.get("InputPath") is not None and is_started_by_events(target)


def _submitted_input(target: ScheduledTarget) -> object:
    """What a target submits, with the names of SubmitJob. Raises _UnreadableError."""
    if target.request is not None:
        return with_uncapitalized_names(target.request)
    started = target.content if target.kind == "rule" else target.content["Target"]
    transformer = mapping_or_empty(started.get("InputTransformer"))
    source = text_or_none(started.get("Input")) or "{}"
    if transformer:
        source = text_or_none(transformer.get("InputTemplate")) or ""
    elif _is_given_part_of_event(target, started):
        raise _UnreadableError(_PART_OF_EVENT)
    try:
        read: Any = json.loads(within_levels(_without_variables(source)))
    except ValueError as error:
        raise _UnreadableError(_UNREADABLE) from error
    return with_uncapitalized_names(read)


def _overrides_of_job(asked: object) -> SizeOverrides:
    """The sizes in the input of a submission."""
    if not isinstance(asked, dict):  # as in _overrides_of_text
        return SizeOverrides(unknown=_UNREADABLE if _is_unknown(asked) else "")
    of_tasks = asked.get("ecsPropertiesOverride")
    if _is_unknown(of_tasks) or mapping_or_empty(of_tasks).get("taskProperties"):
        return SizeOverrides(unknown="its input overrides what its containers have")
    given = asked.get("containerOverrides")
    if given is None:
        return SizeOverrides()
    listed = mapping_or_empty(given).get("resourceRequirements") or []
    if not (isinstance(listed, list) and all(map(_is_known_requirement, listed))):
        given = None
    if not isinstance(given, dict):
        return SizeOverrides(unknown="its input overrides what its container has")
    return _overrides_if_readable(SizeOverrides(task=_job_sizes(given)))


def _is_known_requirement(requirement: object) -> bool:
    """Whether an item of a list is known to be a size, or none."""
    return isinstance(requirement, dict) and not _is_unknown(requirement.get("type"))


def _job_sizes(overrides: Mapping[str, object]) -> dict[str, object]:
    """The sizes of a submission's overrides, in RunTask's form."""
    asked = {"VCPU": overrides.get("vcpus"), "MEMORY": overrides.get("memory")}
    for requirement in mappings_in_list(overrides.get("resourceRequirements")):
        asked[str(requirement.get("type"))] = requirement.get("value")
    return known_members(
        {"cpu": known("{} vCPU".format, asked["VCPU"]), "memory": known(str, asked["MEMORY"])}
    )


def _overrides_of_template(template: str) -> SizeOverrides:
    """Variables inside and outside of texts become a text, which is looked for in the sizes."""
    return _overrides_of_text(_without_variables(template))


def _without_variables(template: str) -> str:
    inside = re.sub(
        r'"(?:[^"\\]|\\.)*"', lambda quoted: _VARIABLE.sub(UNKNOWN_VALUE, quoted[0]), template
    )
    return _VARIABLE.sub(f'"{UNKNOWN_VALUE}"', inside)


def _overrides_of_text(source: str) -> SizeOverrides:
    try:
        read: Any = json.loads(within_levels(source))
    except ValueError:
        return SizeOverrides(unknown=_UNREADABLE)
    # A text, such as the template of a mail, has no overrides; a variable can be anything.
    if not isinstance(read, dict):
        return _overrides_if_readable(
            SizeOverrides(task={"cpu": read} if _is_unknown(read) else {})
        )
    listed = read.get("containerOverrides")
    containers: dict[str, Mapping[str, object]] = {}
    for override in mappings_in_list(listed):
        sizes = _known_sizes(override, CONTAINER_SIZES)
        if sizes:
            containers[str(override.get("name"))] = sizes
    has_unknown_part = _is_unknown(listed) or (
        isinstance(listed, list) and any(map(_is_unknown, listed))
    )
    task = {"cpu": UNKNOWN_VALUE} if has_unknown_part else _known_sizes(read, TASK_SIZES)
    # RunTask ignores an empty override.
    names = (
        text_or_none(override.get("name")) or ""
        for override in mappings_in_list(listed)
        if override
    )
    known_names = frozenset(name for name in names if not _is_unknown(name))
    return replace(
        _overrides_if_readable(SizeOverrides(task=task, containers=containers)), names=known_names
    )


def _known_sizes(value: Mapping[str, object], names: tuple[str, ...]) -> dict[str, object]:
    return known_members({name: value.get(name) for name in names})


def _is_unknown(value: object) -> bool:
    return isinstance(value, str) and UNKNOWN_VALUE in value


def _overrides_if_readable(overrides: SizeOverrides) -> SizeOverrides:
    """The overrides, if all of their values can be read."""
    sizes = definition_size(overrides.task)
    is_readable = ("cpu" not in overrides.task or sizes.vcpu is not None) and (
        "memory" not in overrides.task or sizes.memory_mb is not None
    )
    numbers: Mapping[str, list[object]] = {
        name: list(given.values()) for name, given in overrides.containers.items()
    }
    for name, values in numbers.items():
        is_readable = is_readable and UNKNOWN_VALUE not in name
        is_readable = is_readable and all(count_or_none(value) is not None for value in values)
    if is_readable:
        return overrides
    return SizeOverrides(unknown="its input overrides a size with a value that is not known")
