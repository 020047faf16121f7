"""Why a task ended: ECS's texts, the category and the status that follow from them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from profiler.record.run_outcome import (
    SIGKILL_EXIT_CODE,
    SIGTERM_EXIT_CODE,
    EndStatus,
    StopCategory,
    end_status,
)
from profiler.record.stopped_task import STOPPED_BY_USER, EventContainer, StoppedTask

_NO_REASON = "essential container in task exited"
_VAGUE_REASON = "task failed to start"
_FAILED_TO_START = "taskfailedtostart"
# Substrings of reasons, and stop codes, in lower case, found with and without their spaces: agents
# differ in them.
_OUT_OF_MEMORY = ("out of memory", "killed due to memory usage")
_EXTERNAL_STOPS: Mapping[StopCategory, tuple[str, ...]] = {
    "spot": ("spot task was interrupted", "spot interruption", "termination notice"),
    "user": ("stopped by user", STOPPED_BY_USER),
    "scheduler": (
        *("serviceschedulerinitiated", "scaling activity initiated"),
        *("failed elb health checks", "failed container health checks"),
    ),
    # A failing or retired host:
    # https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html
    "infrastructure": ("infrastructure health", "underlying infrastructure", "host ec2 (instance"),
}
_IMAGE = ("cannotpull", "pull image", "image pull", "manifest unknown")
_RESOURCES = (
    *(
        "resourceinitializationerror",
        "provisioning to complete",
        "capacity is unavailable",
        "unable to place",
    ),
    *(
        "resource:",
        "cannotstartcontainererror",
        "cannotcreatevolumeerror",
        "cannotcreatecontainererror",
    ),
    *("dockertimeouterror", "containerruntimeerror", "containerruntimetimeouterror"),
    *("fetching secret data", "unexpected ec2 error"),
)


class Outcome(Struct, frozen=True, kw_only=True):
    """How a task ended.

    ``reason``: the batch's own, else the task's, else another container's, after its name.
    """

    status: EndStatus
    category: StopCategory
    out_of_memory: bool
    exit_code: int | None = None
    reason: str | None = None


def judge_candidates(
    task: StoppedTask,
    candidates: Sequence[str],
    *,
    default: str | None = None,
    monitor: str | None = None,
) -> tuple[Outcome, str | None]:
    """The outcome of a task, and which of the candidates is its batch; ``default`` if the end
    does not tell.

    Several are judged together: one that failed is the batch, and the run is a success only if all
    exited with 0. Those that ECS stopped because another one ended do not count.
    """
    listed = [task.container(name) for name in candidates]
    if not listed:
        return determine_outcome(task, None, monitor=monitor), None
    if len(listed) == 1:
        return determine_outcome(task, listed[0], monitor=monitor), listed[0].name
    not_stopped = [container for container in listed if not _may_be_stopped_by_ecs(task, container)]
    if any(container.exit_code is not None for container in not_stopped):
        ended = not_stopped
    else:
        ended = listed
    failed = next((container for container in ended if _has_failed(container)), None)
    is_success = all(container.exit_code == 0 for container in ended)
    judged = failed or (ended[0] if is_success else None)
    is_alone = failed is not None or (is_success and len(ended) == 1)
    return (
        determine_outcome(task, judged, monitor=monitor),
        judged.name if judged is not None and is_alone else default,
    )


def _may_be_stopped_by_ecs(task: StoppedTask, container: EventContainer) -> bool:
    """Whether the exit code is the one of a container that ECS stops after another one of the
    task ended.
    """
    if container.exit_code == SIGKILL_EXIT_CODE:
        return not (
            ran_out_of_memory(container) or _contains_any(task.reason_of_ecs, _OUT_OF_MEMORY)
        )
    return container.exit_code == SIGTERM_EXIT_CODE


def _has_failed(container: EventContainer) -> bool:
    if container.exit_code is None:
        return ran_out_of_memory(container)
    return container.exit_code != 0


def ran_out_of_memory(container: EventContainer) -> bool:
    """Whether ECS's reason for the end of the container is that memory ran out."""
    return _contains_any((container.reason or "").lower(), _OUT_OF_MEMORY)


def determine_outcome(
    task: StoppedTask, batch: EventContainer | None, *, monitor: str | None = None
) -> Outcome:
    """The outcome, by the batch's exit code alone (None: unknown).

    The ``monitor``'s reason does not explain it.
    """
    exit_code = None
    own_reason = f" {task.reason_of_ecs}".lower()
    if batch is not None:
        exit_code = batch.exit_code
        own_reason = f"{batch.reason or ''}{own_reason}".lower()
    reasons = own_reason
    for container in task.containers:
        reasons += f" {container.reason or ''}".lower()
    out_of_memory = _contains_any(own_reason, _OUT_OF_MEMORY)
    stop_code = (task.stop_code or "").lower()
    nothing_ran = exit_code is None
    # The first match counts. A missing image or resource can be the cause only if nothing ran.
    matches: tuple[tuple[StopCategory, bool], ...] = (
        *(
            (kind, _contains_any(f"{reasons} {stop_code}", words))
            for kind, words in _EXTERNAL_STOPS.items()
        ),
        ("oom", out_of_memory),
        ("image", nothing_ran and _contains_any(reasons, _IMAGE)),
        ("resources", nothing_ran and _contains_any(reasons, _RESOURCES)),
        ("exit", not nothing_ran),
    )
    category: StopCategory = next((kind for kind, is_match in matches if is_match), "unknown")
    failed_to_start = stop_code == _FAILED_TO_START or category in {"image", "resources"}
    return Outcome(
        status=end_status(
            exit_code,
            was_stopped=category in _EXTERNAL_STOPS,
            has_failed=out_of_memory or failed_to_start,
        ),
        category=category,
        out_of_memory=out_of_memory,
        exit_code=exit_code,
        reason=_specific_reason(task, batch, monitor),
    )


def _specific_reason(
    task: StoppedTask, batch: EventContainer | None, monitor: str | None
) -> str | None:
    own = None
    not_others = {monitor}
    if batch is not None:
        not_others.add(batch.name)
        if not _is_only(batch.reason, _NO_REASON):
            own = batch.reason
    others = (
        f"{container.name}: {container.reason}"
        for container in task.containers
        if container.reason and container.name not in not_others
    )
    stated = None
    if not _is_only(task.stopped_reason, _NO_REASON):
        stated = task.stopped_reason
    if own or (stated and not _is_only(stated, _VAGUE_REASON)):
        return own or stated
    return next(others, stated)


def _is_only(reason: str | None, sentence: str) -> bool:
    return (reason or "").strip().rstrip(".").lower() == sentence


def _contains_any(text: str, patterns: tuple[str, ...]) -> bool:
    return any(pattern in text or pattern.replace(" ", "") in text for pattern in patterns)
