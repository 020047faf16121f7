"""Starts a scheduled run again, once and with more memory, after it was killed for memory; and says so.

A run is never started twice: the request has a token made from the killed task's id, the result is kept in the table of
notices, and a retry is not retried. ECS forgets tokens, so that an old event starts nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from profiler.aws_account.scheduled_targets import ScheduledTarget, Schedules
from profiler.core.aws_clients import SERVER_FAULT, AwsClient, error_code, error_status, is_throttled
from profiler.core.ecs_terms import task_id
from profiler.core.text import on_one_line
from profiler.forwarder.delivery_errors import DeliveryError
from profiler.forwarder.function_settings import RetrySettings
from profiler.forwarder.notices.announcements import EndedTask, MemoryRetry
from profiler.forwarder.retry_plan import (
    RETRY_STARTER,
    SHORT_ID_LENGTH,
    RetryRefusedError,
    is_on_fargate,
    larger_memory,
    run_task_request,
    should_retry,
)
from profiler.forwarder.search_cluster.family_runs import FamilyMemory
from profiler.record.record_model import TaskSize
from profiler.record.spot_price import FARGATE_SPOT
from profiler.record.units import format_memory, format_usd
from profiler.schedules.task_matching import STARTERS, may_be_starter
from profiler.sizing.prices import PriceOverrides, prices

_Result = TypeVar("_Result")


class MemoryRetries(Struct, frozen=True):
    """Starts killed runs again, and recognizes the retries.

    ``aws`` returns the client of ECS, and the schedules. ``family`` connects to the search cluster; None without one.
    ``remember`` returns the result of the work for a key, now or of an earlier invocation. An error is not kept.
    """

    settings: RetrySettings
    aws: Callable[[], tuple[AwsClient, Schedules]]
    family: Callable[[], FamilyMemory | None]
    remember: Callable[[str, Callable[[], str]], str]
    now: Callable[[], datetime]
    warn: Callable[[str], None]

    def handle(self, ended: EndedTask, definition: Mapping[str, object] | None) -> MemoryRetry | None:
        """Start the run again if it was killed for memory; None if there is nothing to say about a retry.

        Raises ForwarderError if AWS or the search cluster did not respond: Lambda must retry the event.
        """
        if (ended.task.started_by or "").startswith(RETRY_STARTER):
            return self._of_retry(ended)
        if not should_retry(ended, self.settings.families):
            return None
        key = f"{ended.task.arn}#retry"
        kept = self.remember(key, lambda: msgspec.json.encode(self._start(ended, definition)).decode())
        return msgspec.json.decode(kept, type=MemoryRetry)

    def _start(self, ended: EndedTask, definition: Mapping[str, object] | None) -> MemoryRetry:
        try:
            return self._started(ended, definition)
        except RetryRefusedError as refusal:
            sentence = f"Not started again: {refusal}."
            self.warn(f"Task {ended.task.id}: {sentence}")
            return MemoryRetry(sentence=sentence)

    def _started(self, ended: EndedTask, definition: Mapping[str, object] | None) -> MemoryRetry:
        task, batch = ended.task, ended.container
        stopped_at = task.stopped_at or task.execution_stopped_at
        if stopped_at is None or self.now() - stopped_at > timedelta(hours=12):
            raise RetryRefusedError("it ended more than 12 hours ago")
        if definition is None or batch is None:
            raise RetryRefusedError("its task definition could not be read")
        family = self.family()
        peak_mb = None if family is None else family.highest_peak_mb(ended)
        memory = larger_memory(task, definition, batch, peak_mb, self.settings.max_memory_mb)
        ecs, schedules = self.aws()
        requests = [run_task_request(target, task, batch, memory) for target in _targets(schedules, ended)]
        if not requests:
            raise RetryRefusedError("its schedule no longer exists")
        if any(request != requests[0] for request in requests):
            raise RetryRefusedError("several schedules can have started it")
        change = f"{format_memory(memory.new_mb)} (was {format_memory(memory.old_mb)})"
        return _run_task(ecs, requests[0], change)

    def _of_retry(self, ended: EndedTask) -> MemoryRetry:
        """What there is to say about the end of a retry."""
        task, short_id = ended.task, (ended.task.started_by or "").removeprefix(RETRY_STARTER)
        family = self.family()
        killed_id, killed = (None, None) if family is None else family.killed_run(ended, short_id)
        new, old = TaskSize(vcpu=task.vcpu, memory_mb=task.memory_mb), None if killed is None else killed.task_size
        if not is_on_fargate(task):
            listed = (one.memory_mb for one in task.containers if one.name == ended.container)
            new = TaskSize(memory_mb=next(listed, None))
            old = None if killed is None else TaskSize(memory_mb=killed.metrics.memory_size_mb)
        with_size = "" if new.memory_mb is None else f" with {format_memory(new.memory_mb)}"
        if ended.outcome.status != "success":
            sentence = f"This was the retry of {short_id}{with_size}: it is not started again."
        elif old is None or (old.memory_mb or new.memory_mb or 0) >= (new.memory_mb or 0):
            sentence = f"This was the retry of {short_id}: it succeeded{with_size}."
        else:
            little, advice = format_memory(old.memory_mb or 0), f"set{with_size.removeprefix(' with')}"
            sentence = f"Succeeded{with_size} after {little} were too little: {advice}{_price(ended, old, new)}."
        return MemoryRetry(sentence=sentence, retry_of=killed_id)


def _price(ended: EndedTask, old: TaskSize, new: TaskSize) -> str:
    """What a run costs more at the new size; empty if the prices or the billed time are unknown."""
    task, billed_ms, cost = ended.task, ended.metrics.billed_duration_ms, ended.cost
    on_spot = task.capacity_provider == FARGATE_SPOT
    listed = prices(task.region, task.cpu_architecture, PriceOverrides(), on_spot=on_spot)
    if billed_ms is None or listed is None or "TASK_PROFILER_PRICE" in ((cost and cost.price_basis) or ""):
        return ""
    if old.vcpu is None or old.memory_mb is None or new.vcpu is None or new.memory_mb is None:
        return ""
    hour_usd = listed.size_hour_usd(new.vcpu, new.memory_mb) - listed.size_hour_usd(old.vcpu, old.memory_mb)
    return f" (+{format_usd(hour_usd * billed_ms / 3_600_000)} a run)"


def _targets(schedules: Schedules, ended: EndedTask) -> tuple[ScheduledTarget, ...]:
    """The targets of the schedule or rule that started the task."""
    starter = ended.task.started_by or ""

    def read() -> Iterator[ScheduledTarget | None]:
        rule = starter.removeprefix(STARTERS["rule"])
        if rule != starter:
            yield from schedules.targets_of_rule({"Name": rule})
            return
        for summary in schedules.summaries(starter.removeprefix(STARTERS["schedule"])):
            if may_be_starter("schedule", summary["Name"], starter):
                yield schedules.target_of_schedule(summary)

    found = _called("its schedule could not be read", lambda: tuple(read()))
    return tuple(target for target in found if target is not None and target.family == ended.task.family)


def _run_task(ecs: AwsClient, request: Mapping[str, Any], change: str) -> MemoryRetry:
    """Start the task. A token that is in use has started it, perhaps with another size."""

    def call() -> tuple[Mapping[str, Any], bool]:
        try:
            return ecs.run_task(**request), False
        except ecs.exceptions.ConflictException as error:
            return {"tasks": [{"taskArn": arn} for arn in error.response.get("resourceIds", ())]}, True

    answer, was_started = _called("ECS did not start it", call)
    started = next((task_id(task["taskArn"]) for task in answer.get("tasks", ())), None)
    if started is None and not was_started:
        reasons = ", ".join(str(one.get("reason") or one.get("detail")) for one in answer.get("failures", ()))
        raise RetryRefusedError(_reason(f"ECS did not start it ({reasons or 'it gave no reason'})"))
    name = "" if started is None else f": task {started[:SHORT_ID_LENGTH]}"
    return MemoryRetry(
        sentence=f"Started again with {'more memory' if was_started else change}{name}.", retried_as=started
    )


def _called(what: str, call: Callable[[], _Result]) -> _Result:
    """Call AWS. An answer that a later attempt can change raises DeliveryError, any other RetryRefusedError."""
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError  # slow to import

    try:
        return call()
    except (ClientError, BotoCoreError) as error:
        code, status, answer = error_code(error), error_status(error), getattr(error, "response", None) or {}
        is_unanswered = not answer and not isinstance(error, ParamValidationError)
        if is_unanswered or is_throttled(code, status) or status >= SERVER_FAULT:
            raise DeliveryError(
                f"A killed run is not started again yet, because {what} ({code}): Lambda retries."
            ) from error
        message = answer.get("Error", {}).get("Message") or "the request is not valid"
        raise RetryRefusedError(_reason(f"{what} ({code}: {message})")) from error


def _reason(sentence: str) -> str:
    return on_one_line(sentence)[:400].rstrip(".")
