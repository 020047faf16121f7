"""Starts a scheduled run again, once and with more memory, after it was killed for memory; and
says so.

Never twice: the request's token is made from the killed task's id, the result is kept in the table
of notices, a retry is not retried, and an old event starts nothing, because ECS forgets tokens.
"""

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct

from profiler.aws_account.eventbridge_calls import ScheduleReader
from profiler.aws_account.scheduled_targets import MAX_TASK_TAGS, ScheduledTarget, why_target_is_off
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import (
    RETRY_OF,
    SHORT_ID_LENGTH,
    cluster_name,
    task_id,
)
from profiler.core.json_fields import (
    integer_or_none,
    mappings_in_list,
    text_or_none,
    with_uncapitalized_names,
)
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import all_known, first_known, known, known_members
from profiler.core.timestamps import MS_PER_HOUR, NS_PER_SECOND, nanoseconds_of
from profiler.forwarder.ended_run import EndedTask, MemoryRetry
from profiler.forwarder.family_runs import FamilyRunReader
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.memory_retry_rules import (
    EC2_STEP_MB,
    RetryRefusedError,
    call_aws_for_retry,
    end_of_retry_sentence,
    grown_mb,
    growth_text,
    is_family_selected,
    is_memory_failure,
    refuse_disallowed_memory,
    refuse_old_end,
    retry_later_error,
    shortened_reason,
    smallest_fargate_size,
)
from profiler.record.family_statistics import NeedAtSize
from profiler.record.record_model import TaskSize
from profiler.record.run_outcome import explained_refusal
from profiler.record.spot_price import FARGATE_SPOT
from profiler.record.stopped_task import StoppedTask, work_digest
from profiler.record.units import format_usd
from profiler.schedules.schedule_model import STARTERS, may_be_starter
from profiler.sizing.fargate_sizes import whole_size
from profiler.sizing.prices import PriceOverrides, fargate_prices
from profiler.task_definitions.containers import task_memory_mb

_RETRY_STARTER = "task-profiler-retry/"
_NONE = "none"
_UNKNOWN = (
    "It is not known whether it was started again, because ECS did not answer: look for a task "
    "with startedBy {}."
)
_UNREMEMBERED = (
    "Without IDEMPOTENCY_TABLE, nobody knows what an earlier attempt of this event did: look for a "
    "task with startedBy {}."
)
_SIZE_OUTSIDE_FARGATE = "the size of a task is changed on Fargate only"
_UNREADABLE = "ECS's answer to RunTask cannot be read"


class LargerMemorySize(Struct, frozen=True, kw_only=True):
    """The memory of the retry.

    ``vcpu``: None on EC2. ``limit_mb``: the batch container's hard limit, if it has one.
    """

    old_mb: int
    new_mb: int
    vcpu: float | None = None
    limit_mb: int | None = None


def should_retry(ended: EndedTask, families: tuple[str, ...]) -> bool:
    """Whether a schedule started the selected run, and ECS's reason or the kernel's counter in a
    whole report proves the kill.
    """
    is_scheduled = (ended.task.started_by or "").startswith(tuple(STARTERS.values()))
    outcome = ended.outcome
    if not is_family_selected(ended.family, families) or not is_scheduled or not ended.container:
        return False
    is_proven = outcome.memory_evidence == "ecs" or (
        outcome.memory_evidence == "kernel-counter" and ended.has_final_report
    )
    return is_memory_failure(outcome) and is_proven


def choose_larger_memory(
    task: StoppedTask,
    definition: Mapping[str, object],
    batch: str,
    need: NeedAtSize,
    max_memory_mb: float,
) -> LargerMemorySize:
    """Choose the memory of the retry; ``need`` is of the window's runs at the definition's size.

    Raises RetryRefusedError.
    """
    limits = _hard_memory_limits(task, definition)
    limit_mb = limits.pop(batch, None)
    others_mb = sum(limits.values())
    grown_limit_mb = 0
    if limit_mb:
        defined_mb = _defined_limit_mb(definition, batch) or limit_mb
        grown_limit_mb = math.ceil(grown_mb(limit_mb, defined_mb, need))
    if not task.is_on_fargate:
        if definition.get("memory"):
            raise RetryRefusedError(_SIZE_OUTSIDE_FARGATE)
        if not limit_mb:
            raise RetryRefusedError("its batch container has no memory limit of its own")
        grown_limit_mb = math.ceil(grown_limit_mb / EC2_STEP_MB) * EC2_STEP_MB
        refuse_disallowed_memory(grown_limit_mb, max_memory_mb)
        return LargerMemorySize(old_mb=limit_mb, new_mb=grown_limit_mb, limit_mb=grown_limit_mb)
    present = whole_size(TaskSize(vcpu=task.vcpu, memory_mb=task.memory_mb))
    if present is None:
        raise RetryRefusedError("the size of its task is unknown")
    memory_mb = int(present.memory_mb)
    needed_mb = grown_mb(memory_mb, task_memory_mb(definition) or memory_mb, need)
    if limit_mb:
        needed_mb = max(needed_mb, grown_limit_mb + others_mb)
    size = smallest_fargate_size(present.vcpu, needed_mb)
    refuse_disallowed_memory(size.memory_mb, max_memory_mb)
    return LargerMemorySize(
        old_mb=memory_mb,
        new_mb=int(size.memory_mb),
        vcpu=size.vcpu,
        limit_mb=grown_limit_mb or None,
    )


def defined_size_mb(
    task: StoppedTask, definition: Mapping[str, object], batch: str
) -> float | None:
    """The memory that the definition gives to a run: the task's; on EC2, the batch's limit."""
    if task.is_on_fargate:
        return task_memory_mb(definition) or task.memory_mb
    return _defined_limit_mb(definition, batch)


def _defined_limit_mb(definition: Mapping[str, object], batch: str) -> int | None:
    for container in mappings_in_list(definition.get("containerDefinitions")):
        if container.get("name") == batch:
            return integer_or_none(container.get("memory"))
    return None


def _hard_memory_limits(task: StoppedTask, definition: Mapping[str, object]) -> dict[str, int]:
    """The memory limits of the containers that have one: those of the killed task, else the
    definition's.
    """
    defined = mappings_in_list(definition.get("containerDefinitions"))
    limits = {
        str(container.get("name")): integer_or_none(container.get("memory"))
        for container in defined
    }
    of_task = known_members({one.name: one.memory_mb for one in task.containers})
    limits |= of_task
    return {name: limit_mb for name, limit_mb in limits.items() if limit_mb}


def run_task_arguments(
    target: ScheduledTarget,
    task: StoppedTask,
    batch: str,
    memory: LargerMemorySize,
    definition: Mapping[str, object],
) -> Mapping[str, object]:
    """The arguments of RunTask: the schedule's target with the killed revision.

    Raises RetryRefusedError.
    """
    if target.kind == "rule":
        started = target.content
    else:
        started = target.content["Target"]
    parameters = started["EcsParameters"]
    replaced = ("TaskDefinitionArn", "TaskCount", "Tags")
    tags = target.task_tags
    if (
        len(target.tags_of_task(definition)) < MAX_TASK_TAGS
    ):  # ``startedBy`` has the killed task's id, too
        tags.append({"key": RETRY_OF, "value": task.id})
    passed_on = {name: value for name, value in parameters.items() if name not in replaced}
    return {
        "cluster": target.cluster_arn,
        "taskDefinition": task.definition_arn,
        "count": 1,
        "startedBy": _started_by_of_retry(task),
        "clientToken": f"task-profiler-retry-{task.id}",
        **with_uncapitalized_names(passed_on),
        "overrides": _with_memory(_overrides_of_target(started), batch, memory),
        "tags": tags,
    }


def _started_by_of_retry(task: StoppedTask) -> str:
    """``startedBy`` of the killed task's retry."""
    return f"{_RETRY_STARTER}{task.id[:SHORT_ID_LENGTH]}"


def _is_changed_since(target: ScheduledTarget, task: StoppedTask) -> bool:
    """Whether somebody has changed a schedule after it had started the task: its input may be that
    of another run.
    """
    created_ns = known(nanoseconds_of, task.created_at)
    return first_known(target.changed_ns, 0) > first_known(created_ns, math.inf)


def _gives_same_work(target: ScheduledTarget, task: StoppedTask) -> bool:
    """Whether a rule gives its tasks now what the event says that this one had. AWS returns no date
    of a rule's last change, as it does of a schedule's.
    """
    if target.kind != "rule":
        return True
    overrides = mappings_in_list(_overrides_of_target(target.content).get("containerOverrides"))
    is_of_cluster = cluster_name(target.cluster_arn) == task.cluster
    return is_of_cluster and work_digest(overrides) == task.work


def _overrides_of_target(started: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides that the target passes to each task."""
    source = text_or_none(started.get("Input")) or "{}"
    if started.get("InputPath") or started.get("InputTransformer") or "<aws.scheduler." in source:
        raise RetryRefusedError("the input of its schedule is different for each run")
    try:
        return msgspec.json.decode(within_levels(source), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        raise RetryRefusedError("the input of its schedule is not a JSON object") from None


def _with_memory(overrides: dict[str, Any], batch: str, memory: LargerMemorySize) -> dict[str, Any]:
    if memory.vcpu is not None:
        overrides |= {"cpu": str(round(memory.vcpu * 1024)), "memory": str(memory.new_mb)}
    elif overrides.get("memory"):
        raise RetryRefusedError(_SIZE_OUTSIDE_FARGATE)
    if memory.limit_mb is None:
        return overrides
    containers = [
        dict(container) for container in mappings_in_list(overrides.get("containerOverrides"))
    ]
    if batch not in [container.get("name") for container in containers]:
        containers.append({"name": batch})
    for container in containers:
        if container.get("name") == batch:
            container["memory"] = memory.limit_mb
    return {**overrides, "containerOverrides": containers}


class TaskRetrier(Struct, frozen=True):
    """Starts killed runs again.

    ``remember`` returns the work's result for a key, now or of an earlier invocation, if
    ``knows_earlier`` ones: without a table, it knows none.
    """

    families: tuple[str, ...]  # as globs
    max_memory_mb: float
    aws: Callable[[], tuple[AwsClient, ScheduleReader]]
    family: Callable[[], FamilyRunReader | None]
    remember: Callable[[str, Callable[[], str]], str]
    now: Callable[[], datetime]
    warn: Callable[[str], None]
    knows_earlier: bool = True

    def retry_killed_task(
        self, ended: EndedTask, definition: Mapping[str, object] | None
    ) -> MemoryRetry | None:
        """Start a run again that was killed for memory; None without a retry.

        Raises ForwarderError.
        """
        if (ended.task.started_by or "").startswith(_RETRY_STARTER):
            return self._sentence_on_ended_retry(ended)
        if not should_retry(ended, self.families):
            return None
        key = f"{ended.task.arn}#retry"
        kept = self.remember(
            key, lambda: msgspec.json.encode(self._start_retry(ended, definition)).decode()
        )
        return msgspec.json.decode(kept, type=MemoryRetry)

    def _start_retry(
        self, ended: EndedTask, definition: Mapping[str, object] | None
    ) -> MemoryRetry:
        attempt = uuid4().hex
        try:
            return self._run_retry(ended, definition, attempt)
        except RetryRefusedError as refusal:
            sentence = f"Not started again: {refusal}."
            if self._first_attempt_to_call(ended, _NONE) not in (_NONE, attempt):
                sentence = _UNKNOWN.format(_started_by_of_retry(ended.task))
            elif not self.knows_earlier:
                sentence = f"{sentence} {_UNREMEMBERED.format(_started_by_of_retry(ended.task))}"
            self.warn(f"Task {ended.task.id}: {sentence}")
            return MemoryRetry(sentence=sentence)

    def _first_attempt_to_call(self, ended: EndedTask, attempt: str) -> str:
        """The first attempt that has called RunTask, which is this one if none has."""
        return self.remember(f"{ended.task.arn}#retry-call", lambda: attempt)

    def _run_retry(
        self, ended: EndedTask, definition: Mapping[str, object] | None, attempt: str
    ) -> MemoryRetry:
        task = ended.task
        batch = ended.container
        refuse_old_end(task.stopped_at or task.execution_stopped_at, self.now())
        if not (definition and batch):
            raise RetryRefusedError("its task definition could not be read")
        need = self._family_need(ended, defined_size_mb(task, definition, batch))
        memory = choose_larger_memory(task, definition, batch, need, self.max_memory_mb)
        ecs, schedules = self.aws()
        targets = _possible_targets(schedules, ended)
        for target in targets:
            off = why_target_is_off(target, round(self.now().timestamp()) * NS_PER_SECOND)
            if off or _is_changed_since(target, task):
                why = off or "was changed after it had started this run"
                raise RetryRefusedError(f"its {target.title} {why}")
        if not targets:
            raise RetryRefusedError("its schedule no longer exists")
        same = [target for target in targets if _gives_same_work(target, task)]
        if not same:
            raise RetryRefusedError(
                f"its {targets[0].title} is not known to give it the same command, environment and "
                "cluster now as this run had"
            )
        requests = [run_task_arguments(target, task, batch, memory, definition) for target in same]
        if any(request != requests[0] for request in requests):
            raise RetryRefusedError("several schedules can have started it")
        self._first_attempt_to_call(ended, attempt)
        return _run_task(ecs, requests[0], growth_text(memory.old_mb, memory.new_mb))

    def _family_need(self, ended: EndedTask, defined_mb: float | None) -> NeedAtSize:
        """What the family needed at the definition's size, as far as the search cluster knows
        all of it.
        """
        family = self.family()
        if family is None or defined_mb is None:
            return NeedAtSize()
        try:
            return family.read_need_at_size(ended, defined_mb)
        except SearchClusterError as error:
            if error.is_retryable:
                raise
            return NeedAtSize()

    def _sentence_on_ended_retry(self, ended: EndedTask) -> MemoryRetry:
        """What there is to say about the end of a retry."""
        task = ended.task
        short_id = (ended.task.started_by or "").removeprefix(_RETRY_STARTER)
        family = self.family()
        killed_id = None
        old = TaskSize()
        if family is not None:
            killed_id, old = family.find_killed_run(ended, short_id)
        new = TaskSize(vcpu=task.vcpu, memory_mb=task.memory_mb)
        if not task.is_on_fargate:
            new = TaskSize(memory_mb=ended.batch_container.memory_mb)
        sentence = end_of_retry_sentence(
            short_id,
            succeeded=ended.outcome.status == "success",
            old_mb=old.memory_mb,
            new_mb=new.memory_mb,
            price=_retry_price_sentence(ended, old, new),
        )
        return MemoryRetry(sentence=sentence, retry_of=killed_id)


def _retry_price_sentence(ended: EndedTask, old: TaskSize, new: TaskSize) -> str:
    """What a run costs more at the new size; empty if the prices or the billed time are unknown."""
    task = ended.task
    billed_ms = ended.metrics.billed_duration_ms
    cost = ended.cost
    on_spot = task.capacity_provider == FARGATE_SPOT
    listed = fargate_prices(task.region, task.cpu_architecture, PriceOverrides(), on_spot=on_spot)
    sizes = all_known(whole_size(old), whole_size(new))
    if not billed_ms or listed is None or "TASK_PROFILER_PRICE" in (cost.price_basis or ""):
        return ""
    if sizes is None:
        return ""
    before, after = sizes
    hour_usd = listed.size_hour_price_usd(after.vcpu, after.memory_mb) - listed.size_hour_price_usd(
        before.vcpu, before.memory_mb
    )
    return f" (+{format_usd(hour_usd * billed_ms / MS_PER_HOUR)} a run)"


def _possible_targets(schedules: ScheduleReader, ended: EndedTask) -> tuple[ScheduledTarget, ...]:
    """The targets that can have started the task: ECS cuts the name of the schedule or rule."""
    task = ended.task
    starter = ended.task.started_by or ""
    rule, name = (starter.removeprefix(STARTERS[kind]) for kind in ("rule", "schedule"))
    place = task.arn.partition(":task/")[0] + ":"  # the task's account and Region

    def read_targets() -> list[ScheduledTarget | None]:
        targets: list[ScheduledTarget | None] = []
        if rule != starter:
            for found_rule in schedules.rules_named(rule):
                if may_be_starter("rule", found_rule["Name"], starter):
                    targets += schedules.targets_of_rule(found_rule)
            return targets
        for schedule in schedules.summaries(name):
            if may_be_starter("schedule", schedule["Name"], starter):
                targets.append(
                    schedules.target_of_schedule(schedule["Name"], schedule["GroupName"])
                )
        return targets

    own = []
    for target in filter(None, call_aws_for_retry("its schedule could not be read", read_targets)):
        is_own = target.family == task.family and target.cluster_arn.startswith(place)
        # A universal target gives its tasks the ``startedBy`` of its request.
        if is_own and target.request is None:
            own.append(target)
    return tuple(own)


def _run_task(ecs: AwsClient, request: Mapping[str, Any], change: str) -> MemoryRetry:
    """Start the task. A token that is in use has started it, perhaps with another size. An answer
    that cannot be read is asked for again, which the token makes harmless.
    """
    # Slow to import.
    from botocore.exceptions import BotoCoreError, ClientError

    def call() -> tuple[Mapping[str, Any], bool]:
        try:
            return ecs.run_task(**request), False
        except ecs.exceptions.ConflictException as error:
            return {
                "tasks": [{"taskArn": arn} for arn in error.response.get("resourceIds", ())]
            }, True
        except (ClientError, BotoCoreError):
            raise
        # What botocore raises for an answer that it cannot read is of no class of its own.
        except Exception as error:
            raise retry_later_error(_UNREADABLE, type(error).__name__) from error

    answer, was_started = call_aws_for_retry("ECS did not start it", call)
    started = next((task_id(task["taskArn"]) for task in answer.get("tasks", ())), None)
    if not started and not was_started:
        failures = answer.get("failures")
        if not failures:
            raise retry_later_error(_UNREADABLE, "neither a task nor a failure")
        reasons = [str(failure.get("reason") or failure.get("detail")) for failure in failures]
        reason = ", ".join(map(explained_refusal, reasons))
        raise RetryRefusedError(shortened_reason(f"ECS did not start it ({reason})"))
    name = f": task {started[:SHORT_ID_LENGTH]}" if started else ""
    return MemoryRetry(
        sentence=f"Started again with {'more memory' if was_started else change}{name}.",
        retried_as=started,
    )
