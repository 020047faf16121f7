"""How a run ended by ECS's event alone: read in the event's texts and codes, or in a document."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from profiler.core.ecs_terms import MONITOR_NAME
from profiler.core.json_fields import integer_or_none, text_or_none
from profiler.core.optional_math import any_known
from profiler.record.record_model import parse_status
from profiler.record.run_outcome import (
    SIGKILL_EXIT_CODE,
    SIGTERM_EXIT_CODE,
    Cause,
    Outcome,
    describe_exit_code,
    is_vague,
)
from profiler.record.spot_price import FARGATE_SPOT
from profiler.record.stop_causes import (
    NO_REASON,
    TABLE,
    EventEnd,
    EventTexts,
    cause_of_event,
    written_outcome,
)
from profiler.record.stopped_task import UNKNOWN_CONTAINER, EventContainer, StoppedTask

# The ends of an attempt that Batch's event knows, for which the container's own end says nothing.
JOB_ENDS: Final[tuple[Cause, ...]] = ("timeout", "user", "spot", "infrastructure")
_OF_BATCH_ALONE = ("timeout", "user")
_MAX_NAMED = 3
_OUT_OF_MEMORY = ("out of memory", "killed due to memory usage")
# For the words before ``task.outcome``.
_CAUSES: Final[Mapping[str, Cause]] = {
    "oom": "oom",
    "spot": "spot",
    "user": "user",
    "scheduler": "scheduler",
    "infrastructure": "infrastructure",
    "image": "image",
    "resources": "resources",
}


def end_of_event(
    task: StoppedTask, batch: EventContainer, *, monitor: str | None = None
) -> EventEnd:
    """How the batch ended by the event alone.

    The ``monitor``'s reason does not explain it.
    """
    reasons = [task.reason_of_ecs, *(container.reason or "" for container in task.containers)]
    reasons.append(batch.reason or "")
    failed = failures_of_others(task, batch, monitor)
    first_end = _container_ends_text(failed)
    reason = _specific_reason(task, batch, monitor)
    said = EventTexts(
        code=(task.stop_code or "").lower(),
        stated=_normalized_reason(task.stopped_reason),
        reasons="\n".join(reasons).lower(),
        texts=_joined_without_spaces(*reasons, task.stop_code or ""),
        exit_code=batch.exit_code,
        is_out_of_memory=_is_out_of_memory(task, batch),
        has_started=task.started_at is not None,
        is_on_fargate_spot=task.capacity_provider == FARGATE_SPOT,
        is_of_aws_batch=task.is_of_aws_batch,
        has_failed_container=bool(failed),
    )
    return EventEnd(
        cause=cause_of_event(said),
        exit_code=batch.exit_code,
        reason=reason,
        out_of_memory=said.is_out_of_memory,
        first_end=first_end,
    )


def end_of_other(task: StoppedTask, container: EventContainer) -> EventEnd:
    """How another container than the batch ended, as far as the event says that: the task's end is
    the batch's, and the status of another container is its report's.
    """
    end = end_of_event(task, container)
    return replace(end, cause="oom" if end.out_of_memory else "unknown", exit_code=None)


def written_event_end(task: Mapping[str, object]) -> EventEnd | None:
    """The event's end in the ``task`` of a document, with Batch's word on a job's; None if no event
    was written.

    Before ``task.event_outcome``, the word was ``task.stop_category``.
    """
    cause = next((row.cause for row in TABLE if row.cause == task.get("event_outcome")), None)
    category = text_or_none(task.get("stop_category"))
    if not any_known(cause, category):
        return None
    exit_code = integer_or_none(task.get("exit_code"))
    is_out_of_memory = task.get("out_of_memory") is True
    stop_code = text_or_none(task.get("stop_code"))
    reason = text_or_none(task.get("stopped_reason"))
    if cause is None:
        said = EventTexts(
            code=(stop_code or "").lower(),
            stated=_normalized_reason(reason),
            reasons=(reason or "").lower(),
            texts=_joined_without_spaces(reason or "", stop_code or ""),
            exit_code=exit_code,
            is_out_of_memory=is_out_of_memory,
            has_started=True,
            is_on_fargate_spot=task.get("capacity_provider") == FARGATE_SPOT,
            is_of_aws_batch=False,
            has_failed_container=False,
        )
        cause = cause_of_event(said)
        if cause in ("success", "failure", "unknown", "not-started"):
            cause = _CAUSES.get(category or "", cause)
    return EventEnd(
        cause=cause_with_job_end(cause, text_or_none(task.get("job_end"))),
        exit_code=exit_code,
        reason=reason,
        out_of_memory=is_out_of_memory,
        first_end=text_or_none(task.get("first_end")),
    )


def cause_with_job_end(cause: Cause, job_end: str | None) -> Cause:
    """The cause of ECS's event and Batch's word for the end of the attempt, one of ``JOB_ENDS``.

    Batch alone knows who stopped a job: the text of a stop is anybody's. A host that is lost can be
    Spot capacity: ECS says so.
    """
    said = next((known for known in JOB_ENDS if known == job_end), None)
    if said is None or (said not in _OF_BATCH_ALONE and cause in JOB_ENDS):
        return cause
    return said


def _joined_without_spaces(*texts: str) -> str:
    return "\n".join(texts).lower().replace(" ", "")


def _is_out_of_memory(task: StoppedTask, batch: EventContainer) -> bool:
    """Whether ECS says so of the batch: a reason of the task can be about another container."""
    if ran_out_of_memory(batch):
        return True
    if any(ran_out_of_memory(container) for container in task.containers):
        return False
    return _says_out_of_memory(task.reason_of_ecs)


def ran_out_of_memory(container: EventContainer) -> bool:
    """Whether ECS's reason for the end of the container is that memory ran out."""
    return _says_out_of_memory(container.reason or "")


def _says_out_of_memory(reason: str) -> bool:
    joined = _joined_without_spaces(reason)
    return any(words.replace(" ", "") in joined for words in _OUT_OF_MEMORY)


def failures_of_others(
    task: StoppedTask, batch: EventContainer, monitor: str | None
) -> Sequence[EventContainer]:
    """The other containers that failed by themselves; the monitor only if it is the only one.

    ECS stops the others after one has ended: with SIGTERM, later with SIGKILL.
    """
    failed = [
        container
        for container in task.containers
        if container.name != batch.name
        and container.exit_code not in (None, 0)
        and not _may_be_stopped_by_ecs(task, container)
    ]
    monitor = monitor or MONITOR_NAME
    return [container for container in failed if container.name != monitor] or failed


def _container_ends_text(containers: Sequence[EventContainer]) -> str | None:
    """How containers ended; with several, the event does not tell which was the first."""
    ends = [
        f"{container.name} exited with {describe_exit_code(container.exit_code or 0)}"
        for container in containers[:_MAX_NAMED]
    ]
    return " or ".join(ends) or None


def judge_candidates(
    task: StoppedTask,
    candidates: Sequence[EventContainer],
    *,
    default: str | None = None,
    monitor: str | None = None,
) -> tuple[EventEnd, str | None]:
    """How a task ended by its event, and which of the candidates is its batch; ``default`` if the
    end does not tell.

    Several are judged together: one that failed is the batch, and the run is a success only if all
    exited with 0. Those that ECS stopped because another one ended do not count.
    """
    if not candidates:
        return end_of_event(task, UNKNOWN_CONTAINER, monitor=monitor), None
    if len(candidates) == 1:
        return end_of_event(task, candidates[0], monitor=monitor), candidates[0].name
    not_stopped = [
        container for container in candidates if not _may_be_stopped_by_ecs(task, container)
    ]
    has_ended = any_known(*(container.exit_code for container in not_stopped))
    ended = not_stopped if has_ended else candidates
    for container in ended:
        if _has_failed(container):
            return end_of_event(task, container, monitor=monitor), container.name
    if not all(container.exit_code == 0 for container in ended):
        return end_of_event(task, UNKNOWN_CONTAINER, monitor=monitor), default
    name = ended[0].name if len(ended) == 1 else default
    return end_of_event(task, ended[0], monitor=monitor), name


def _may_be_stopped_by_ecs(task: StoppedTask, container: EventContainer) -> bool:
    """Whether the exit code is the one of a container that ECS stops after another one of the
    task ended.
    """
    if container.exit_code == SIGKILL_EXIT_CODE:
        return not (ran_out_of_memory(container) or _says_out_of_memory(task.reason_of_ecs))
    return container.exit_code == SIGTERM_EXIT_CODE


def _has_failed(container: EventContainer) -> bool:
    if container.exit_code is None:
        return ran_out_of_memory(container)
    return container.exit_code != 0


def _specific_reason(task: StoppedTask, batch: EventContainer, monitor: str | None) -> str | None:
    """The batch's own reason, else the task's; if that is vague, rather another container's."""
    own = _reason_if_given(batch.reason)
    if own:
        return own
    of_task = _reason_if_given(task.stopped_reason)
    if of_task and not is_vague(of_task):
        return of_task
    for container in task.containers:
        if container.reason and container.name not in (monitor, batch.name):
            return f"{container.name}: {container.reason}"
    return of_task


def _reason_if_given(reason: str | None) -> str | None:
    """The reason; None for a text that says that there is none."""
    return None if _normalized_reason(reason) == NO_REASON else reason


def _normalized_reason(reason: str | None) -> str:
    return (reason or "").strip().rstrip(".").lower()


def document_outcome(task: Mapping[str, object], container: str | None = None) -> Outcome:
    """The outcome in the ``task`` of a document, also of one from before ``task.outcome``."""
    cause = text_or_none(task.get("outcome"))
    end = written_event_end(task)
    if cause is None and end is not None and end.cause != "unknown":
        cause = end.cause
    if cause is None and task.get("likely_out_of_memory") is True:
        cause = "oom"
    return written_outcome(
        cause,
        parse_status(text_or_none(task.get("status")) or "unknown"),
        exit_code=integer_or_none(task.get("exit_code")),
        reason=text_or_none(task.get("stopped_reason")),
        first_end=text_or_none(task.get("first_end")),
        container=container,
        xid=integer_or_none(task.get("gpu_error")),
    )
