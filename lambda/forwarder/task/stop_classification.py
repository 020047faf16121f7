"""Determines the outcome of a stopped task: success, failure, stopped or unknown, and why."""

from msgspec import Struct

from forwarder.task.batch_log_stream import TaskContainers, batch_container
from forwarder.task.task_event import EventContainer, StoppedTask
from profiler.record.run_outcome import SIGKILL_EXIT_CODE, SIGTERM_EXIT_CODE, EndStatus, StopCategory, end_status

_NO_REASON = "essential container in task exited"
_VAGUE_REASON = "task failed to start"
_EXTERNAL_STOPS = frozenset({"user", "spot", "scheduler", "infrastructure"})
_FAILED_TO_START = "taskfailedtostart"
# Substrings of reasons in lower case. The spelling and spacing depend on the version of the agent.
_OUT_OF_MEMORY = ("outofmemory", "out of memory", "killed due to memory usage")
_SPOT = (
    "spot task was interrupted",
    "spot interruption",
    "spotinterruption",
    "termination notice",
    "terminationnotice",
)
_USER = ("stopped by user", "userinitiated")
_SCHEDULER = ("scaling activity initiated", "failed elb health checks", "failed container health checks")
# Of a failing or retired host: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html
_INFRASTRUCTURE = ("infrastructurehealth", "infrastructure health", "underlying infrastructure", "host ec2 (instance")
_IMAGE = ("cannotpull", "pull image", "image pull", "manifest unknown")
_RESOURCES = (
    "resourceinitializationerror",
    "network interface provisioning",
    "unable to place",
    "resource:",
    "cannotstartcontainererror",
    "cannotcreatevolumeerror",
    "cannotcreatecontainererror",
    "dockertimeouterror",
    "containerruntimeerror",
    "containerruntimetimeouterror",
    "fetching secret data",
    "unexpected ec2 error",
)
_STOP_CODES: dict[str, StopCategory] = {
    "spotinterruption": "spot",
    "terminationnotice": "spot",
    "userinitiated": "user",
    "serviceschedulerinitiated": "scheduler",
    "infrastructurehealth": "infrastructure",
}


class Outcome(Struct, frozen=True, kw_only=True):
    """How a task ended, and why.

    ``reason`` is the most specific text from ECS: the batch's own reason, else the task's, else the reason of another
    container after its name. None without any.
    """

    status: EndStatus
    category: StopCategory
    out_of_memory: bool
    exit_code: int | None = None
    reason: str | None = None


class Judgement(Struct, frozen=True, kw_only=True):
    """The outcome of a task and its batch container; None: unknown. ``warning`` is a sentence for the operator."""

    outcome: Outcome
    batch: EventContainer | None
    warning: str | None = None


def judge(task: StoppedTask, containers: TaskContainers) -> Judgement:
    """Determine the batch and the outcome of a task.

    If several containers could be the batch, they are judged together: one that failed is the batch, and the run is a
    success only if all exited with 0. Those that ECS stopped because another one ended do not count.
    """
    if len(containers.candidates) <= 1:
        batch = batch_container(task, containers.batch)
        return Judgement(outcome=determine_outcome(task, batch, monitor=containers.monitor), batch=batch)
    listed = (batch_container(task, name) for name in containers.candidates)
    candidates = [container for container in listed if container is not None]
    not_stopped = [container for container in candidates if not _may_be_stopped_by_ecs(task, container)]
    ended = not_stopped if any(container.exit_code is not None for container in not_stopped) else candidates
    failed = next((container for container in ended if _has_failed(container)), None)
    is_success = all(container.exit_code == 0 for container in ended)
    judged = failed or (ended[0] if is_success else None)
    is_alone = failed is not None or (is_success and len(ended) == 1)
    batch = judged if is_alone else batch_container(task, containers.default)
    return Judgement(
        outcome=determine_outcome(task, judged, monitor=containers.monitor),
        batch=batch,
        warning=f"Task {task.id} has several possible batch containers ({', '.join(containers.candidates)}), which are "
        "judged together: set TASK_PROFILER_CONTAINER in the monitor's environment to the batch's name.",
    )


def _may_be_stopped_by_ecs(task: StoppedTask, container: EventContainer) -> bool:
    """Whether the exit code is the one of a container that ECS stops after another one of the task ended."""
    if container.exit_code == SIGKILL_EXIT_CODE:
        return not (_ran_out_of_memory(container) or _contains_any((task.stopped_reason or "").lower(), _OUT_OF_MEMORY))
    return container.exit_code == SIGTERM_EXIT_CODE


def _has_failed(container: EventContainer) -> bool:
    return _ran_out_of_memory(container) if container.exit_code is None else container.exit_code != 0


def _ran_out_of_memory(container: EventContainer) -> bool:
    return _contains_any((container.reason or "").lower(), _OUT_OF_MEMORY)


def determine_outcome(task: StoppedTask, batch: EventContainer | None, *, monitor: str | None = None) -> Outcome:
    """Determine the outcome of a task.

    A stop from outside takes precedence over the exit code: a batch that handles SIGTERM exits with 0 although its
    work is not done. Only the batch's own exit code counts.

    Args:
        task: the stopped task.
        batch: its batch container; None if it is unknown.
        monitor: the name of its monitor, whose reason does not explain the end of the batch.
    """
    own_reason = f"{(batch.reason if batch else None) or ''} {task.stopped_reason or ''}".lower()
    reasons = " ".join([own_reason, *((container.reason or "").lower() for container in task.containers)])
    out_of_memory = _contains_any(own_reason, _OUT_OF_MEMORY)
    exit_code = batch.exit_code if batch is not None else None
    category = _category(task, reasons, exit_code, out_of_memory=out_of_memory)
    failed_to_start = (task.stop_code or "").lower() == _FAILED_TO_START or category in {"image", "resources"}
    return Outcome(
        status=end_status(
            exit_code, was_stopped=category in _EXTERNAL_STOPS, has_failed=out_of_memory or failed_to_start
        ),
        category=category,
        out_of_memory=out_of_memory,
        exit_code=exit_code,
        reason=_specific_reason(task, batch, monitor),
    )


def _category(task: StoppedTask, reasons: str, exit_code: int | None, *, out_of_memory: bool) -> StopCategory:
    """Return the first matching category. A missing image or resource can be the cause only if nothing ran."""
    by_code = _STOP_CODES.get((task.stop_code or "").lower())
    nothing_ran = exit_code is None
    matches: tuple[tuple[StopCategory, bool], ...] = (
        ("spot", by_code == "spot" or _contains_any(reasons, _SPOT)),
        ("user", by_code == "user" or _contains_any(reasons, _USER)),
        ("scheduler", by_code == "scheduler" or _contains_any(reasons, _SCHEDULER)),
        ("infrastructure", by_code == "infrastructure" or _contains_any(reasons, _INFRASTRUCTURE)),
        ("oom", out_of_memory),
        ("image", nothing_ran and _contains_any(reasons, _IMAGE)),
        ("resources", nothing_ran and _contains_any(reasons, _RESOURCES)),
        ("exit", not nothing_ran),
    )
    return next((category for category, is_match in matches if is_match), "unknown")


def _specific_reason(task: StoppedTask, batch: EventContainer | None, monitor: str | None) -> str | None:
    """Return the most specific reason from ECS."""
    own = batch.reason if batch is not None and not _is_only(batch.reason, _NO_REASON) else None
    others = (
        f"{container.name}: {container.reason}"
        for container in task.containers
        if container.reason and container.name not in {monitor, None if batch is None else batch.name}
    )
    stated = None if _is_only(task.stopped_reason, _NO_REASON) else task.stopped_reason
    if own or (stated and not _is_only(stated, _VAGUE_REASON)):
        return own or stated
    return next(others, stated)


def _is_only(reason: str | None, sentence: str) -> bool:
    """Whether the reason is this sentence alone."""
    return (reason or "").strip().rstrip(".").lower() == sentence


def _contains_any(text: str, patterns: tuple[str, ...]) -> bool:
    return any(pattern in text for pattern in patterns)
