"""Revisions of which ECS starts no task any more, or AWS Batch takes no job, and schedules that
start nothing.
"""

from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import (
    TaskDefinitions,
    is_definition_missing,
    read_items,
    revision_of,
)
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.target_overrides import (
    asked_launch_type,
    size_overrides,
    why_target_is_refused,
)
from profiler.aws_account.target_placement import (
    PlaceRefusal,
    TargetClusterReader,
    unsupported_launch_type,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import any_known, first_known
from profiler.schedules.due_outcomes import JudgedSchedule
from profiler.schedules.due_times import may_start_again
from profiler.schedules.schedule_model import Schedule
from profiler.task_definitions.definition_json import TaskDefinitionDocument, read_described

_ACTIVE = "ACTIVE"


def why_revision_is_gone(
    read: Callable[[str], TaskDefinitionDocument],
    revision: str,
    on_unread: Callable[[TaskProfilerError], object] = lambda _: None,
) -> str | None:
    """Why ECS starts no task of a revision, in words; None: it starts them, or the revision could
    not be read. ``read`` raises TaskProfilerError.
    """
    try:
        return None if read(revision).is_active else "was deregistered"
    except TaskProfilerError as error:
        if is_definition_missing(error):
            return "does not exist"
        on_unread(error)
        return None


def why_job_definition_gone(
    open_client: OpenClient,
    revision: str,
    on_unread: Callable[[TaskProfilerError], object] = lambda _: None,
) -> str | None:
    """Why AWS Batch starts no job of a ``name:revision``, in words; None: it starts them, or the
    revision could not be read. It is described until 180 days after its end.
    """
    try:
        described = _describe_any_job_definition(open_client, revision, jobDefinitions=[revision])
    except TaskProfilerError as error:
        on_unread(error)
        return None
    if described is None:
        return "does not exist"
    return None if described.get("status") == _ACTIVE else "was deregistered"


def has_no_active_job_definition(
    open_client: OpenClient,
    name: str,
    on_unread: Callable[[TaskProfilerError], object] = lambda _: None,
) -> bool:
    """Whether no revision of a job definition is active, as far as it can be read."""
    try:
        active = _describe_any_job_definition(
            open_client, name, jobDefinitionName=name, status=_ACTIVE
        )
    except TaskProfilerError as error:
        on_unread(error)
        return False
    return active is None


def _describe_any_job_definition(
    open_client: OpenClient, name: str, **selection: object
) -> Mapping[str, object] | None:
    """A job definition of the selection, if there is one. Raises TaskProfilerError."""
    with aws_errors(f"The job definition {name} could not be read", "batch:DescribeJobDefinitions"):
        batch = open_client("batch")
        described = read_items(batch, "describe_job_definitions", "jobDefinitions", **selection)
        return next(described, None)


class GoneRevisionFinder:
    """Finds the schedules that start nothing, because a revision, or all of a family, was
    deregistered or deleted, or because RunTask refuses their input. ``targets`` have the inputs.
    What cannot be read goes to ``on_unread``.
    """

    def __init__(
        self,
        open_client: OpenClient,
        on_unread: Callable[[TaskProfilerError], object],
        targets: Mapping[Schedule, tuple[ScheduledTarget, ...]],
    ) -> None:
        self._open = open_client
        self._definitions = TaskDefinitions(open_client("ecs"))
        self._on_unread = on_unread
        self._targets = targets
        self._clusters = TargetClusterReader(
            open_client, lambda sentence: on_unread(TaskProfilerError(sentence))
        )
        self._read = cache(partial(read_described, self._definitions.describe))
        self._why_gone = cache(self._read_why_gone)
        self._has_no_active_job = cache(
            lambda name: has_no_active_job_definition(open_client, name, on_unread)
        )

    def why_schedule_starts_nothing(self, judged: JudgedSchedule, now_ns: int) -> str | None:
        """Why a schedule that may still be due starts nothing, as a sentence; None: it starts tasks
        or jobs, or this could not be read.
        """
        schedule = judged.schedule
        if schedule.is_of_machine or not may_start_again(schedule, now_ns):
            return None  # of a machine, its states are judged
        if not schedule.definition_arn:
            return "Its input names no definition, so it starts nothing."
        pin = revision_of(schedule.definition_arn)
        has_started = any_known(*(due.task for due in judged.due_times))
        if pin is not None:
            why = self._why_gone(pin, schedule.is_of_jobs)
            if why is not None:
                return f"It is pinned to {pin}, which {why}, so it starts nothing."
            return self._why_schedule_is_refused(schedule, pin, has_started=has_started)
        if not has_started and self._has_no_active_revision(
            schedule.family, is_of_job=schedule.is_of_jobs
        ):
            return f"{schedule.family} has no active revision, so it starts nothing."
        return self._why_schedule_is_refused(schedule, schedule.family, has_started=has_started)

    def _why_schedule_is_refused(
        self, schedule: Schedule, name: str, *, has_started: bool
    ) -> str | None:
        """Why RunTask refuses a schedule the definition of this name, as a sentence."""
        for target in self._targets.get(schedule, ()):
            if target.is_of_job:
                continue
            lack = self._clusters.why_refused(target)
            if lack is None and not has_started:  # each definition is a call
                lack = self._unsupported_launch_type(target, name)
            if lack is not None:
                return f"It starts nothing, because {lack.reason}: {lack.remedy}."
            refusal = self._why_target_is_refused(target, name)
            if refusal:
                return f"It starts nothing, because {refusal}: change its input."
        return None

    def _why_target_is_refused(self, target: ScheduledTarget, name: str) -> str | None:
        """Why RunTask refuses a target the definition of this name, in words."""
        if not size_overrides(target).can_be_refused:
            return None
        try:
            return why_target_is_refused(target, self._read(name).definition)
        except TaskProfilerError as error:
            self._on_unread(error)
            return None

    def _unsupported_launch_type(self, target: ScheduledTarget, name: str) -> PlaceRefusal | None:
        """Why RunTask refuses a target the definition of this name on its launch type."""
        if asked_launch_type(target) is None:
            return None
        try:
            return unsupported_launch_type(target, self._read(name))
        except TaskProfilerError as error:
            self._on_unread(error)
            return None

    def why_state_starts_nothing(self, state: ScheduledTarget) -> str | None:
        """Why a state of Step Functions starts nothing, as a sentence; None: it starts tasks or
        jobs, or this could not be read.
        """
        pin = state.pinned_revision
        why = None if pin is None else self._why_gone(pin, state.is_of_job)
        if why is not None:
            return f"The {state.title} is pinned to {pin}, which {why}, so it starts nothing."
        is_named = pin is None and state.definition_arn == state.family
        if is_named and self._has_no_active_revision(state.family, is_of_job=state.is_of_job):
            return f"The {state.title} starts nothing: {state.family} has no active revision."
        if state.is_of_job:
            return None
        name = first_known(pin, state.family)
        lack = self._clusters.why_refused(state)
        if lack is None and (pin is not None or is_named):
            lack = self._unsupported_launch_type(state, name)
        if lack is not None:
            return f"The {state.title} starts nothing, because {lack.reason}: {lack.remedy}."
        refusal = self._why_target_is_refused(state, name)
        if refusal is None:
            return None
        return f"The {state.title} starts nothing, because {refusal}: change its input there."

    def _has_no_active_revision(self, family: str, *, is_of_job: bool) -> bool:
        if is_of_job:
            return self._has_no_active_job(family)
        active = self._active_families
        return active is not None and family not in active

    @cached_property
    def _active_families(self) -> frozenset[str] | None:
        try:
            return self._definitions.families("*")
        except TaskProfilerError as error:
            self._on_unread(error)
            return None

    def _read_why_gone(self, revision: str, is_of_job: bool) -> str | None:  # noqa: FBT001  cached
        if is_of_job:
            return why_job_definition_gone(self._open, revision, self._on_unread)
        return why_revision_is_gone(self._read, revision, self._on_unread)
