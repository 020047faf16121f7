"""How a stopped task ended: success, failure, stopped or unknown, and why.

The same rules for the task's event, for DescribeTasks, and for every other place that shows the end of a task.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from profiler.record.run_outcome import SIGKILL_EXIT_CODE, SIGTERM_EXIT_CODE, EndStatus, StopCategory, end_status

_NO_REASON = "essential container in task exited"
_VAGUE_REASON = "task failed to start"
_FAILED_TO_START = "taskfailedtostart"
# Substrings of stop codes and reasons in lower case. The spelling and spacing depend on the version of the agent.
_OUT_OF_MEMORY = ("outofmemory", "out of memory", "killed due to memory usage")
_EXTERNAL_STOPS: Mapping[StopCategory, tuple[str, ...]] = {
    "spot": (
        "spot task was interrupted",
        "spot interruption",
        "spotinterruption",
        "termination notice",
        "terminationnotice",
    ),
    "user": ("stopped by user", "userinitiated"),
    "scheduler": (
        "serviceschedulerinitiated",
        "scaling activity initiated",
        "failed elb health checks",
        "failed container health checks",
    ),
    # A failing or retired host:
    # https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html
    "infrastructure": (
        "infrastructurehealth",
        "infrastructure health",
        "underlying infrastructure",
        "host ec2 (instance",
    ),
}
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


class EndedContainer(Struct, frozen=True, kw_only=True):
    """A container of a stopped task."""

    name: str
    exit_code: int | None = None
    reason: str | None = None


class TaskEnd(Struct, frozen=True, kw_only=True):
    """ECS's data on the end of a task. The order of the containers has no meaning."""

    stop_code: str | None = None
    stopped_reason: str | None = None
    containers: tuple[EndedContainer, ...] = ()

    def container(self, name: str) -> EndedContainer:
        """The container; with its name alone if ECS does not list it, as after a failed start."""
        return next((one for one in self.containers if one.name == name), EndedContainer(name=name))


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


def judge_candidates(
    task: TaskEnd, candidates: Sequence[str], *, default: str | None = None, monitor: str | None = None
) -> tuple[Outcome, str | None]:
    """Determine the outcome of a task, and which of the candidates is its batch; None: unknown.

    If several containers could be the batch, they are judged together: one that failed is the batch, and the run is a
    success only if all exited with 0. Those that ECS stopped because another one ended do not count.

    ``default`` is the batch if the end does not distinguish the candidates. The reason of the ``monitor`` does not
    explain the end of the batch.
    """
    listed = [task.container(name) for name in candidates]
    if len(listed) <= 1:
        batch = next(iter(listed), None)
        return determine_outcome(task, batch, monitor=monitor), None if batch is None else batch.name
    not_stopped = [container for container in listed if not _may_be_stopped_by_ecs(task, container)]
    ended = not_stopped if any(container.exit_code is not None for container in not_stopped) else listed
    failed = next((container for container in ended if _has_failed(container)), None)
    is_success = all(container.exit_code == 0 for container in ended)
    judged = failed or (ended[0] if is_success else None)
    is_alone = failed is not None or (is_success and len(ended) == 1)
    return (
        determine_outcome(task, judged, monitor=monitor),
        judged.name if judged is not None and is_alone else default,
    )


def _may_be_stopped_by_ecs(task: TaskEnd, container: EndedContainer) -> bool:
    """Whether the exit code is the one of a container that ECS stops after another one of the task ended."""
    if container.exit_code == SIGKILL_EXIT_CODE:
        return not (ran_out_of_memory(container) or _contains_any((task.stopped_reason or "").lower(), _OUT_OF_MEMORY))
    return container.exit_code == SIGTERM_EXIT_CODE


def _has_failed(container: EndedContainer) -> bool:
    return ran_out_of_memory(container) if container.exit_code is None else container.exit_code != 0


def ran_out_of_memory(container: EndedContainer) -> bool:
    """Whether ECS's reason for the end of the container is that memory ran out."""
    return _contains_any((container.reason or "").lower(), _OUT_OF_MEMORY)


def determine_outcome(task: TaskEnd, batch: EndedContainer | None, *, monitor: str | None = None) -> Outcome:
    """Determine the outcome of a task whose batch is None if it is unknown; the ``monitor``'s reason explains nothing.

    A stop from outside takes precedence over the exit code: a batch that handles SIGTERM exits with 0 although its
    work is not done. Only the batch's own exit code counts.
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


def _category(task: TaskEnd, reasons: str, exit_code: int | None, *, out_of_memory: bool) -> StopCategory:
    """The first matching category. A missing image or resource can be the cause only if nothing ran."""
    stated, nothing_ran = f"{task.stop_code or ''} {reasons}".lower(), exit_code is None
    matches: tuple[tuple[StopCategory, bool], ...] = (
        *((category, _contains_any(stated, words)) for category, words in _EXTERNAL_STOPS.items()),
        ("oom", out_of_memory),
        ("image", nothing_ran and _contains_any(reasons, _IMAGE)),
        ("resources", nothing_ran and _contains_any(reasons, _RESOURCES)),
        ("exit", not nothing_ran),
    )
    return next((category for category, is_match in matches if is_match), "unknown")


def _specific_reason(task: TaskEnd, batch: EndedContainer | None, monitor: str | None) -> str | None:
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
