"""Schedules and rules that are pinned to a revision: which of them a new revision concerns, and
their move to it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import check_lost_call_was_done
from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.eventbridge_calls import WITHOUT_START, ScheduleReader
from profiler.aws_account.gone_revisions import why_revision_is_gone
from profiler.aws_account.planned_family import DeadTarget, PlannedFamily
from profiler.aws_account.registered_definitions import revision_of
from profiler.aws_account.scheduled_targets import (
    ScheduledTarget,
    is_target_over,
    may_begin_again,
    may_start_target,
)
from profiler.aws_account.starter_roles import StarterRoleReader
from profiler.aws_account.target_overrides import why_target_is_refused
from profiler.aws_account.target_placement import TargetClusterReader, unsupported_launch_type
from profiler.core.commands_to_copy import NameArgument, command_line
from profiler.core.ecs_terms import arn_region, revision_number, revision_text
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import first_known, known
from profiler.core.text import as_sentence
from profiler.core.timestamps import NS_PER_HOUR
from profiler.task_definitions.containers import monitor_of
from profiler.task_definitions.definition_difference import Difference, Part, difference
from profiler.task_definitions.definition_json import TaskDefinitionDocument, read_described
from profiler.task_definitions.size_changes import definition_size, without_size_tags

MoveOutcome: TypeAlias = Literal["moved", "skipped", "unchanged"]
# Scheduler's and ECS's clocks differ, and somebody may change a schedule while a size is put back.
_CLOCKS_APART_NS = NS_PER_HOUR


class PinnedTargetPlanner(Struct, frozen=True, kw_only=True):
    """Compares the revisions of pinned targets with a plan, and moves targets."""

    part: Part  # what targets may differ by to be moved
    globs: tuple[str, ...] = ()  # the families that the user names
    image: str | None = None  # of the monitor
    owners: CloudFormationOwners | None = None  # asked before a target is moved
    roles: StarterRoleReader | None = None  # likewise
    clusters: TargetClusterReader | None = None
    describe: Callable[[str], bytes]
    describe_again: Callable[[str], bytes]  # a revision before a target is moved to it
    # A target that starts no task later is never dead. One whose schedule is over is not moved:
    # AWS does not say what an update of such a schedule starts. A person may let the plan wait.
    wall_ns: Callable[[], int]
    moves: bool = False  # pinned targets to a new revision
    # Many schedules may start one revision, which never changes.
    revisions: dict[str, TaskDefinitionDocument] = {}

    @property
    def now_ns(self) -> int:
        return self.wall_ns()

    def remember_revision(self, revision: str, document: TaskDefinitionDocument) -> None:
        """Keep a revision that was read, so that it is not read again."""
        self.revisions[revision] = document

    def plan_with_pinned_targets(
        self, planned: PlannedFamily, targets: Iterable[ScheduledTarget]
    ) -> PlannedFamily:
        """The plan with those of the targets that start another revision than its last.

        A target whose revision cannot be read counts as pinned, with the reason.
        """
        notes = [*planned.notes]
        pinned = []
        unmonitored = []
        movable = []
        dead = []
        for target in targets:
            is_pinned = target.is_pin_of(planned.revision_arn)
            if not is_pinned or is_target_over(target, self.now_ns):
                continue
            death = self._why_starts_nothing(target)
            if death is not None and self.part == "size":
                # Whoever only changes a size starts nothing that has stopped.
                notes.append(_make_dead_target(target, death, is_movable=False).problem_text)
                continue
            try:
                pin_difference = self._pin_difference(planned, target)
                if pin_difference == "none" and not death:
                    continue
                obstacle = self._move_obstacle(planned, target, pin_difference)
                starts_monitor = self._starts_monitor(target)
            except TaskProfilerError as error:
                obstacle = f". {error}"
                starts_monitor = True
            if target.kind != "state":  # a person changes its definition
                pinned.append(target)
            if not obstacle:
                movable.append(target)
                obstacle = self._ownership_sentence(target)
            pin = f"The {target.title} is pinned to {target.pinned_revision}"
            if death:
                dead.append(_make_dead_target(target, death, is_movable=not obstacle))
                continue
            notes.append(f"{pin}{obstacle or '.'}")
            if not starts_monitor:
                unmonitored.append(target)
        return replace(
            planned,
            notes=tuple(notes),
            pinned=tuple(pinned),
            movable=tuple(movable),
            unmonitored=tuple(unmonitored),
            dead=tuple(dead),
        )

    def plan_with_dead_targets(
        self, planned: PlannedFamily, targets: Iterable[ScheduledTarget]
    ) -> PlannedFamily:
        """The plan of a family that is left alone, with those of its targets that start nothing."""
        dead = []
        for target in targets:
            if target.is_pin_of(planned.revision_arn):
                death = self._why_starts_nothing(target)
                if death:
                    dead.append(_make_dead_target(target, death, is_movable=False))
        return replace(planned, dead=tuple(dead))

    def plan_with_refused_inputs(
        self, planned: PlannedFamily, targets: Iterable[ScheduledTarget]
    ) -> PlannedFamily:
        """The plan with those of the targets whose input RunTask refuses; an obstacle is a new
        revision that it would refuse, and one to which targets are moved. A size is compared with
        the inputs where it is chosen.
        """
        if self.part == "size":
            return planned
        last = planned.changed if planned.is_new_revision else planned.document
        dead = [*planned.dead]
        obstacles = []
        for target in targets:
            is_its = target.is_of_family_of(planned.revision_arn)
            if not is_its or not may_start_target(target, self.now_ns):
                continue
            if target in [other.target for other in dead]:
                continue
            lack = self.clusters and self.clusters.why_refused(target)
            started = None if lack else self._started_document(planned, target)
            lack = lack or known(partial(unsupported_launch_type, target), started)
            if lack is not None:
                sentence = f"The {target.title} starts nothing, because {lack.reason}."
                remedy = as_sentence(lack.remedy)
                dead.append(DeadTarget(target=target, sentence=sentence, remedy=remedy))
                continue
            refusal = started and why_target_is_refused(target, started.definition)
            if refusal:
                sentence = f"The {target.title} starts nothing, because {refusal}."
                where = " in the state machine" if target.kind == "state" else ""
                remedy = f"Change its input{where}."
                dead.append(DeadTarget(target=target, sentence=sentence, remedy=remedy))
                continue
            is_moved = self.moves and target in planned.pinned
            later = why_target_is_refused(target, last.definition)
            if later and (is_moved or target.pinned_revision is None):
                obstacles.append(
                    f"With this revision, the {target.title} would start nothing, because {later}: "
                    "change its input first."
                )
        return replace(
            planned,
            dead=tuple(dead),
            problems=(*planned.problems, *obstacles),
            obstacle=planned.obstacle or next(iter(obstacles), None),
        )

    def check_roles(
        self,
        planned: PlannedFamily,
        targets: Iterable[ScheduledTarget],
        note: Callable[[str], object],
    ) -> None:
        """Raise TaskProfilerError if a target that starts the newest revision could not start the
        one that the plan makes the newest. ``note`` gets a sentence about a role that cannot be
        read.
        """
        for target in targets:
            is_its = target.is_of_family_of(planned.revision_arn)
            is_unpinned = is_its and target.pinned_revision is None
            if not self.roles or not (is_unpinned and may_start_target(target, self.now_ns)):
                continue
            newest = "a new revision"
            refusal = self._why_tags_are_refused(planned, target, planned.document.definition)
            if refusal:
                raise TaskProfilerError(would_start_nothing_sentence(target, newest, refusal))
            try:
                if planned.uncovered_arn:
                    newest = f"{revision_of(planned.uncovered_arn)} as the newest revision"
                    present = replace(target, definition_arn=planned.revision_arn)
                    refusal = self.roles.why_role_refuses(present, planned.uncovered_arn)
                else:
                    refusal = self.roles.why_role_refuses_newer(target, planned.revision_arn)
            except TaskProfilerError as error:
                note(str(error))
                continue
            if refusal:
                raise TaskProfilerError(would_start_nothing_sentence(target, newest, refusal))

    def plan_with_refused_roles(
        self, planned: PlannedFamily, targets: Iterable[ScheduledTarget]
    ) -> PlannedFamily:
        """The plan with why it would not be carried out, if a role that may be read says so."""
        if not planned.is_new_revision:
            return planned
        try:
            self.check_roles(planned, targets, lambda _unread: None)
        except TaskProfilerError as error:
            return replace(planned, notes=(*planned.notes, str(error)))
        return planned

    def check_registered_starts(
        self, planned: PlannedFamily, targets: Iterable[ScheduledTarget], arn: str
    ) -> None:
        """Raise TaskProfilerError if a target that started the plan's revision as the newest one
        cannot start the one that was registered: its number is higher than the plan's if somebody
        registered another one meanwhile, or if it puts a size back.
        """
        for target in targets:
            is_unpinned = target.pinned_revision is None
            if not (is_unpinned and target.is_of_family_of(arn)) or not self.roles:
                continue
            if may_start_target(target, self.now_ns):
                present = replace(target, definition_arn=planned.revision_arn)
                refusal = None
                with suppress(TaskProfilerError):  # it was said before the registration
                    refusal = self.roles.why_role_refuses(present, arn)
                if refusal:
                    newest = f"{revision_of(arn)} as the newest revision"
                    raise TaskProfilerError(would_start_nothing_sentence(target, newest, refusal))

    def _why_tags_are_refused(
        self, planned: PlannedFamily, target: ScheduledTarget, present: Mapping[str, object]
    ) -> str | None:
        """Why a target could not give its tasks the tags of the plan's last revision in place of
        the present one's. Raises TaskProfilerError.
        """
        last = planned.changed if planned.is_new_revision else planned.document
        arn = planned.revision_arn
        if not self.roles:
            return None
        return self.roles.why_role_refuses_tags(target, present, last.definition, arn)

    def role_allows_revision(self, target: ScheduledTarget, revision_arn: str) -> bool:
        """Whether the role of a pinned target lets it start another revision, as far as it is
        known. Raises TaskProfilerError.
        """
        return not self.roles or not self.roles.why_role_refuses(target, revision_arn)

    def _started_document(
        self, planned: PlannedFamily, target: ScheduledTarget
    ) -> TaskDefinitionDocument | None:
        """The revision that a target starts; None if it could not be read."""
        if target.pinned_revision in (None, planned.revision):
            return planned.document
        with suppress(TaskProfilerError):
            return self._pinned_document(target.pinned_revision or "")
        return None

    def _ownership_sentence(self, target: ScheduledTarget) -> str | None:
        """Why --update-schedules will leave a target to its stack, after its revision's name."""
        try:
            owner = self._why_stack_owns(target)
        except TaskProfilerError as error:
            return f". {error}"
        return known(", and {}: set the new revision there.".format, owner)

    def _why_stack_owns(self, target: ScheduledTarget) -> str | None:
        """Why a stack owns the target, if that is to be asked."""
        return None if self.owners is None else self.owners.why_stack_owns_target(target)

    def _starts_monitor(self, target: ScheduledTarget) -> bool:
        if self.part == "size":
            return True
        return monitor_of(self._pinned_definition(target), self.image) is not None

    def _why_starts_nothing(self, target: ScheduledTarget) -> str | None:
        """Why a target that may still be due starts nothing; None: it starts tasks, or this could
        not be read.
        """
        if not may_start_target(target, self.now_ns):
            return None
        return why_revision_is_gone(self._pinned_document, target.pinned_revision or "")

    def _move_obstacle(
        self, planned: PlannedFamily, target: ScheduledTarget, pin_difference: Difference
    ) -> str | None:
        """Why --update-schedules leaves a pinned target as it is, after its revision's name; None
        if it moves the target. Raises TaskProfilerError.

        For a size, a target is moved once: from the revision that this call replaces, or an equal
        older one, or the failed one that an earlier call has replaced without moving the target.
        Somebody has put any other one there, and may have a reason.
        """
        fixed = ""
        if target.kind == "state":
            fixed = "by its definition: set the revision there by hand"
        elif target.request is not None:
            fixed = "by the input of aws-sdk:ecs:runTask: set the revision there by hand"
        elif may_begin_again(target, self.now_ns):
            fixed = (
                "and AWS does not document whether an update starts its rate again, at once: set "
                "the revision there by hand"
            )
        elif pin_difference == "other":
            fixed = f"which differs by more than the {self.part}: --update-schedules skips it"
        if fixed:
            return f", {fixed}."
        if self.part != "size" or target.pinned_revision == planned.revision:
            return None
        if self._is_named_by_user(planned) or self._was_left_behind(planned, target):
            return None
        name_it = _target_remedy_words(planned, target)
        if not planned.is_new_revision:
            return f", although a newer revision differs only by the size: {name_it}."
        number = revision_number(revision_text(target.pinned_revision or ""))
        is_older = first_known(number, math.inf) < int(revision_text(planned.revision))
        replaced = planned.document.definition
        pinned = without_size_tags(self._pinned_definition(target))
        if is_older and difference(pinned, without_size_tags(replaced)) == "none":
            return None
        return f", which has another size than {planned.revision}: {name_it}."

    def _was_left_behind(self, planned: PlannedFamily, target: ScheduledTarget) -> bool:
        """Whether a schedule starts the revision that has failed, and nobody has changed it since
        the next revision, which is the newest, put the family back: whoever puts the schedule on
        the failed one again changes it. AWS has no date of a rule. Raises TaskProfilerError.
        """
        failed = planned.failed
        if failed is None or target.pinned_revision != f"{planned.family}:{failed.revision}":
            return False
        if int(revision_text(planned.revision)) != int(failed.revision) + 1:
            return False  # the newest one's date is not that at which the family was put back
        changed_ns = first_known(target.changed_ns, math.inf)
        restored_ns = first_known(planned.document.registered_ns, -math.inf)
        if changed_ns + _CLOCKS_APART_NS > restored_ns:
            return False
        return definition_size(self._pinned_definition(target)) == failed.size

    def _is_named_by_user(self, planned: PlannedFamily) -> bool:
        """Whether the user names the family. A pattern names no family of which nothing is
        registered: somebody may have pinned its targets for a reason.
        """
        if not planned.is_new_revision:
            return planned.family in self.globs
        return any(fnmatchcase(planned.family, glob) for glob in self.globs)

    def _pin_difference(self, planned: PlannedFamily, target: ScheduledTarget) -> Difference:
        """How a pinned target's revision differs from the one that the plan ends with.

        Raises TaskProfilerError.
        """
        if target.pinned_revision == planned.revision:
            return self.part if planned.is_new_revision else "none"
        pin_difference = difference(
            self._pinned_definition(target), planned.changed.definition, self.image, part=self.part
        )
        if pin_difference == "none" and self._why_starts_nothing(target):
            return self.part  # an equal revision that starts its task
        return pin_difference

    def _pinned_definition(self, target: ScheduledTarget) -> Mapping[str, object]:
        return self._pinned_document(target.pinned_revision or "").definition

    def _pinned_document(self, revision: str) -> TaskDefinitionDocument:
        """Raises TaskProfilerError."""
        if revision not in self.revisions:
            self.revisions[revision] = read_described(self.describe, revision)
        return self.revisions[revision]

    def move_if_unchanged(
        self,
        schedules: ScheduleReader,
        planned: PlannedFamily,
        target: ScheduledTarget,
        arn: str,
        shown: Mapping[tuple[str, ...], ScheduledTarget],
    ) -> tuple[MoveOutcome, str]:
        """Move a pinned target to the revision, unless it is pinned to another version of the job
        at this moment. Returns what was done, and the sentence about it.

        ``shown`` are the targets that the printed plan was made from, by their keys. Raises
        TaskProfilerError, also if the target differs from that one.
        """
        current = schedules.read_target_now(target)
        if current is None or not current.is_pin_of(arn):
            reason = f"no longer pinned to a revision of {planned.family}"
            return "skipped", f"{target.title} skipped: {reason}"
        pin_difference = self._pin_difference(planned, current)
        if pin_difference == "none":
            return "unchanged", ""
        left = None
        if is_target_over(current, self.now_ns):
            left = "it is not due any more"
        elif self._move_obstacle(planned, current, pin_difference):
            left = f"pinned to {current.pinned_revision}"
        if left:
            return "skipped", f"{current.title} skipped: {left}"
        remedy = "run the command again"
        # Its revision is the newest now.
        if self.part == "size" and not self._is_named_by_user(planned):
            remedy = _target_remedy_words(planned, current)
        _check_as_shown(current, shown, remedy)
        owner = self._why_stack_owns(current)
        if owner:
            return "skipped", f"{current.title} skipped: {owner}: set {revision_of(arn)} there"
        refusal = self.roles.why_role_refuses(current, arn) if self.roles else None
        present = self._pinned_definition(current)
        refusal = refusal or self._why_tags_are_refused(planned, current, present)
        if refusal:
            return "skipped", f"{current.title} skipped: {refusal}"
        revision = revision_of(arn) or arn
        if not read_described(self.describe_again, revision).is_active:
            raise TaskProfilerError(
                f"The {current.title} was not moved, because {revision} was deregistered "
                f"meanwhile: it goes on starting {current.pinned_revision}."
            )
        without = move_target(schedules, current, arn)
        return "moved", f"moved {current.title} to {revision}{without}"


def would_start_nothing_sentence(target: ScheduledTarget, newest: str, refusal: str) -> str:
    """The sentence on a target of which a role refuses the newest revision."""
    return f"With {newest}, the {target.title} would start nothing: {refusal}."


def move_target(schedules: ScheduleReader, current: ScheduledTarget, arn: str) -> str:
    """Move a target, and read it again if no answer arrived. Returns a clause about what else has
    changed. Raises TaskProfilerError.
    """
    changes: tuple[str, ...] = ()

    def is_moved() -> bool:
        nonlocal changes
        now = schedules.read_target_now(current)
        if now is None or now.pinned_revision != revision_of(arn):
            return False
        changes = current.changed_field_names(now)
        return True

    try:
        return schedules.move_to_revision(current, arn)
    except TaskProfilerError as error:
        check_lost_call_was_done(error, is_moved, f"the {current.title} was moved")
    return WITHOUT_START if "StartDate" in changes else ""


def _target_remedy_words(planned: PlannedFamily, target: ScheduledTarget) -> str:
    """What lets ``resize`` move a target that it leaves to the user."""
    name = (
        ("--job-definition", planned.family)
        if target.is_of_job
        else (NameArgument(planned.family),)
    )
    words = ("taskdef", "resize", *name, "--register", "--update-schedules")
    command = command_line(*words, region=arn_region(planned.revision_arn))
    return f"name the family to move it: {command}"


def _check_as_shown(
    current: ScheduledTarget, shown: Mapping[tuple[str, ...], ScheduledTarget], remedy: str
) -> None:
    """Raise TaskProfilerError if somebody has made or changed a target since the plan."""
    why = "it is newer than the plan"
    if current.identity_key in shown:
        fields = shown[current.identity_key].changed_field_names(current)
        if not fields:
            return
        why = f"somebody has changed it since the plan ({', '.join(fields)})"
    raise TaskProfilerError(f"The {current.title} was not moved, because {why}: {remedy}.")


def _make_dead_target(target: ScheduledTarget, death: str, *, is_movable: bool) -> DeadTarget:
    sentence = (
        f"The {target.title} is pinned to {target.pinned_revision}, which {death}, so it starts "
        "nothing."
    )
    return DeadTarget(target=target, sentence=sentence, is_movable=is_movable)
