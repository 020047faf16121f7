"""What an account says about a family whose size may change: its schedules and rules, what they
override, what starts it, and who owns it.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.registered_definitions import (
    TaggedRevisions,
    TaskDefinitions,
    revision_of,
)
from profiler.aws_account.scheduled_targets import (
    MAX_TASK_TAGS,
    ScheduledTarget,
    has_due_times,
    is_target_over,
    may_start_target,
    schedule_of,
)
from profiler.aws_account.size_before import EarlierRevisionReader
from profiler.aws_account.started_tasks import SCHEDULE
from profiler.aws_account.target_overrides import SizeOverrides, size_overrides
from profiler.core.ecs_terms import CPU_UNITS, revision_number, revision_text
from profiler.core.json_fields import mapping_or_empty, text_or_none
from profiler.core.optional_math import known_members, known_values
from profiler.schedules.due_times import shortest_gaps_ms
from profiler.schedules.schedule_model import Schedule
from profiler.sizing.family_window import OLDER_REVISIONS, FamilyWindow
from profiler.sizing.sized_revision import TAG_PREFIX, FamilyCircumstances, TargetOverride
from profiler.task_definitions.containers import first_sign_of_windows, read_containers, roles_of
from profiler.task_definitions.definition_json import TaskDefinitionDocument
from profiler.task_definitions.job_as_task_definition import (
    is_job_definition,
    is_on_fargate,
    job_timeout_ms,
    least_job_vcpu,
    why_not_sized,
)
from profiler.task_definitions.size_changes import (
    LEAST_CPU_UNITS,
    SeenMemory,
    definition_size,
)

OFF_TAG = f"{TAG_PREFIX}resize"
# YAML reads ``off`` without quotes as false, and CloudFormation makes a text of that.
_OFF_WORDS = frozenset({"off", "false", "no"})


def circumstances_of(document: TaskDefinitionDocument) -> FamilyCircumstances:
    """What a definition alone says."""
    platform = mapping_or_empty(document.definition.get("runtimePlatform"))
    linux = text_or_none(platform.get("operatingSystemFamily"))
    is_off = document.tags.get(OFF_TAG, "").strip().lower() in _OFF_WORDS
    circumstances = FamilyCircumstances(
        operating_system=first_sign_of_windows(document.definition) or linux,
        off_tag=OFF_TAG if is_off else None,
        stack=document.stack,
    )
    if not is_job_definition(document.definition):
        return circumstances
    return replace(
        circumstances,
        is_job=True,
        left_to=why_not_sized(document.definition),
        least_vcpu=least_job_vcpu(document.definition),
        timeout_ms=job_timeout_ms(document.definition),
    )


class OverridingTarget(Struct, frozen=True, kw_only=True):
    """A schedule or a rule that sets sizes in place of the definition's."""

    title: str
    overrides: SizeOverrides
    definition_arn: str  # or a family
    may_start: bool  # it is enabled, and still due

    def why_refused(self, document: TaskDefinitionDocument) -> str | None:
        """Why RunTask will refuse it the definition, which is on Fargate; None if it accepts it, if
        this is not known, or if it calls RunTask no more.
        """
        starts = revision_of(self.definition_arn)
        is_other = starts is not None and starts != revision_of(document.arn or "")
        if is_other or self.overrides.unknown or not self.may_start:
            return None
        return self.overrides.why_definition_is_refused(document.definition)

    def known_override(self, document: TaskDefinitionDocument, seen: SeenMemory) -> TargetOverride:
        """What is known of it for a decision: nothing of an input that cannot be read."""
        size = definition_size(self.overrides.task)
        return TargetOverride(
            target=f"the {self.title}",
            vcpu=size.vcpu,
            memory_mb=size.memory_mb,
            least_vcpu=self._least_cpu_units(document) / CPU_UNITS,
            least_memory_mb=self.overrides.least_memory_mb(document.definition, seen),
        )

    def _least_cpu_units(self, document: TaskDefinitionDocument) -> int:
        """What the containers need of the task's CPU units, if all others are lowered."""
        if "cpu" in self.overrides.task:
            return 0
        containers = read_containers(self.overrides.definition_with_overrides(document.definition))
        monitor = roles_of(containers).monitor
        units = 0
        for container in containers:
            is_fixed = container.name == monitor or container.name in self.overrides.containers
            units += container.cpu_units if is_fixed else min(container.cpu_units, LEAST_CPU_UNITS)
        return units


# Step Functions and other programs may start a family with other sizes, and say it nowhere.
_UNKNOWN_STARTER = "what starts its runs"


def overrides_of_runs(
    document: TaskDefinitionDocument, window: FamilyWindow, seen: SeenMemory
) -> tuple[TargetOverride, ...]:
    """What the runs of the window show of overrides by starters that nobody knows: limits of
    containers, and a part of the task's size.
    """
    limits_mb = _largest_limit_mb_by_container(document, window)
    overrides = list(_overridden_sizes(document, window))
    if limits_mb:
        containers = {name: {"memory": round(limit_mb)} for name, limit_mb in limits_mb.items()}
        least_mb = SizeOverrides(containers=containers).least_memory_mb(document.definition, seen)
        overrides.append(TargetOverride(target=_UNKNOWN_STARTER, least_memory_mb=least_mb))
    return tuple(overrides)


def _largest_limit_mb_by_container(
    document: TaskDefinitionDocument, window: FamilyWindow
) -> Mapping[str, float]:
    """The largest limits by the containers' names that the definition did not give them.

    What an older revision defined is not read: one limit of all its runs is its own, and of several
    each may be an override.
    """
    newest = _newest_revision_number(document, window)
    overridden: dict[str, float] = {}
    limits_mb = _limits_by_revision(window)
    for container in read_containers(document.definition):
        for revision, by_container in limits_mb.items():
            of_revision = by_container.get(container.name, set())
            if revision != newest and len(of_revision) <= 1:
                continue
            for limit_mb in known_values(of_revision - {container.memory_mb}):
                overridden[container.name] = max(overridden.get(container.name, 0), limit_mb)
    return overridden


def _limits_by_revision(window: FamilyWindow) -> Mapping[str, Mapping[str, set[float | None]]]:
    """The limits of each container, by the revision and the container's name."""
    limits_mb: dict[str, dict[str, set[float | None]]] = {}
    for _, runs in window.runs_at_all_sizes():
        for revision, of_revision in runs.revisions.items():
            by_container = limits_mb.setdefault(revision, {})
            for name, of_container in of_revision.limits_mb.items():
                by_container.setdefault(name, set()).update(of_container)
    return limits_mb


def _overridden_sizes(
    document: TaskDefinitionDocument, window: FamilyWindow
) -> Iterator[TargetOverride]:
    """Sizes of runs that differ from the definition's in one part: a starter may override that
    alone, and ECS takes the other one from the definition.
    """
    size = definition_size(document.definition)
    newest = _newest_revision_number(document, window)
    at_size = window.runs_at(size)
    revisions = {newest} | (at_size.revisions.keys() - {OLDER_REVISIONS})
    for other, runs in window.sizes.items():
        if None in (other.vcpu, other.memory_mb) or revisions.isdisjoint(runs.revisions):
            continue
        if other.vcpu == size.vcpu and other.memory_mb != size.memory_mb:
            yield TargetOverride(target=_UNKNOWN_STARTER, memory_mb=other.memory_mb)
        if other.memory_mb == size.memory_mb and other.vcpu != size.vcpu:
            yield TargetOverride(target=_UNKNOWN_STARTER, vcpu=other.vcpu)


def _newest_revision_number(document: TaskDefinitionDocument, window: FamilyWindow) -> str:
    """The definition's; for a file, the newest that has run at its size."""
    if document.arn:
        return revision_text(document.arn)
    revisions = window.runs_at(definition_size(document.definition)).revisions
    return max(revisions, key=lambda revision: revision_number(revision) or 0, default="")


class FamilyCircumstancesReader(Struct, frozen=True, kw_only=True):
    """Reads the circumstances of families in an account.

    ``targets`` are all schedules and rules that start tasks, and ``of_services`` the families that
    services run; both raise TaskProfilerError. ``other_starters`` name what started
    the tasks of a family that ECS lists. ``newest_withdrawn`` is the number of a family's newest
    deregistered revision, and ``tagged`` are the tags of our revisions by their numbers, of the
    family of an ARN; both raise TaskProfilerError. ``overrides_of`` a target are its sizes, and
    ``machine_schedules`` start the state machines of some names at due times; it raises
    TaskProfilerError. ``outer_states`` start executions of the state machines of some names.
    ``timeout_ms_of`` it the timeout that it sets. ``most_vcpu`` is what the environments of job
    queues allow; it raises TaskProfilerError. ``refusal_of_tags`` is why a target could not give
    its tasks the tags of a new definition in place of the present one's, in words, for the family
    of an ARN; it raises TaskProfilerError.
    """

    targets: Callable[[], Sequence[ScheduledTarget]]
    of_services: Callable[[], Collection[str]]
    owners: CloudFormationOwners
    tagged: Callable[[str], Mapping[int, Mapping[str, str]]]
    other_starters: Callable[[str], Sequence[str]] = lambda _family: ()
    newest_withdrawn: Callable[[str], int | None] = lambda _family: None
    overrides_of: Callable[[ScheduledTarget], SizeOverrides] = size_overrides
    timeout_ms_of: Callable[[ScheduledTarget], float | None] = lambda _target: None
    most_vcpu: Callable[[frozenset[str]], float] = lambda _queues: math.inf
    machine_schedules: Callable[[Collection[str]], Sequence[Schedule]] = lambda _names: ()
    outer_states: Callable[[Collection[str]], Sequence[ScheduledTarget]] = lambda _names: ()
    refusal_of_tags: Callable[
        [ScheduledTarget, Mapping[str, object], Mapping[str, object], str], str | None
    ] = lambda _target, _present, _new, _arn: None
    now_ns: int

    def circumstances_of_family(
        self, family: str, document: TaskDefinitionDocument, seen: SeenMemory
    ) -> FamilyCircumstances:
        """What is known without a call for this family alone."""
        targets = self._targets_of_family(family)
        timed = [schedule_of(target) for target in targets if has_due_times(target)]
        machines = {target.machine_name for target in targets if target.kind == "state"}
        outer: Sequence[ScheduledTarget] = ()
        if machines:
            outer = self.outer_states(machines)
            machines |= {state.machine_name for state in outer}
            timed += self.machine_schedules(machines)
        enabled = [schedule for schedule in timed if schedule.is_enabled]
        overrides = [
            target
            for target in self.overriding_targets(family, document)
            if not target.overrides.unknown
        ]
        known = circumstances_of(document)
        timeouts_ms = known_values([known.timeout_ms, *map(self.timeout_ms_of, targets)])
        return replace(
            known,
            timeout_ms=min(timeouts_ms, default=None),
            time_limits_ms=known_members(
                {target.title: target.state_timeout_ms for target in (*targets, *outer)}
            ),
            is_service=family in self.of_services(),
            intervals_ms=shortest_gaps_ms(enabled, self.now_ns),
            overrides=tuple(target.known_override(document, seen) for target in overrides),
        )

    def titles_starting_older_revisions(
        self, family: str, document: TaskDefinitionDocument
    ) -> tuple[str, ...]:
        """What starts a revision before the newest one, as far as it is known: the schedules and
        rules that are pinned to one, and what else started tasks that ECS still lists.
        """
        newest_arn = document.arn or ""
        titles = []
        for target in self._targets_of_family(family):
            is_pinned = target.is_pin_of(newest_arn) and target.pinned_revision is not None
            if is_pinned and target.pinned_revision != revision_of(newest_arn):
                titles.append(f"the {target.title}")
        others = [name for name in self.other_starters(family) if name != SCHEDULE]
        return (*titles, *others)

    def overriding_targets(
        self, family: str, document: TaskDefinitionDocument
    ) -> tuple[OverridingTarget, ...]:
        """The schedules and rules of the family that override sizes, or may do so. A job on EC2
        can have any size.
        """
        overriding: list[OverridingTarget] = []
        definition = document.definition
        if is_job_definition(definition) and not is_on_fargate(definition):
            return ()
        for target in self._targets_of_family(family):
            overrides = self.overrides_of(target)
            if not overrides.is_empty:
                one = OverridingTarget(
                    title=target.title,
                    overrides=overrides,
                    definition_arn=target.definition_arn,
                    may_start=may_start_target(target, self.now_ns),
                )
                overriding.append(one)
        return tuple(overriding)

    def titles_with_too_many_tags(
        self, family: str, definition: Mapping[str, object]
    ) -> Iterator[str]:
        """The titles of what would give a task more tags than it can have, those of this definition
        included.
        """
        for target in self._targets_of_family(family):
            is_of_task = not target.is_of_job
            if is_of_task and len(target.tags_of_task(definition)) > MAX_TASK_TAGS:
                yield target.title

    def titles_that_cannot_tag(
        self, family: str, document: TaskDefinitionDocument, new: Mapping[str, object]
    ) -> Iterator[tuple[str, str]]:
        """The titles of what starts the newest revision, and could not start one with the tags of a
        new definition, each with the reason. Raises TaskProfilerError.
        """
        for target in self._targets_of_family(family):
            if target.pinned_revision is not None or not may_start_target(target, self.now_ns):
                continue
            arn = document.arn or ""
            refusal = self.refusal_of_tags(target, document.definition, new, arn)
            if refusal:
                yield target.title, refusal

    def stack_owning_revisions(self, revisions: EarlierRevisionReader) -> str | None:
        """The stack that owns the newest revision, or one from which it was made.

        Raises TaskProfilerError if CloudFormation may not be asked.
        """
        return self.owners.stack_of_definition(revisions.owned_arns())

    def _targets_of_family(self, family: str) -> list[ScheduledTarget]:
        """What starts the family, or may do so again."""
        return [
            target
            for target in self.targets()
            if target.family == family and not is_target_over(target, self.now_ns)
        ]


def read_account(
    open_client: OpenClient,
    targets: Callable[[], Sequence[ScheduledTarget]],
    of_services: Callable[[], Collection[str]],
    now_ns: int,
    *,
    other_starters: Callable[[str], Sequence[str]] = lambda _family: (),
) -> FamilyCircumstancesReader:
    """The account of these clients."""
    return FamilyCircumstancesReader(
        targets=targets,
        of_services=of_services,
        owners=CloudFormationOwners(open_client),
        tagged=TaggedRevisions(open_client).of_family,
        other_starters=other_starters,
        newest_withdrawn=TaskDefinitions(open_client("ecs")).newest_withdrawn,
        now_ns=now_ns,
    )
