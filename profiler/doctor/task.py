"""What the task metadata tells about the task, its batch and the monitor's own container. Pure."""

from collections.abc import Iterable, Iterator

from profiler.batch import BatchSelection
from profiler.doctor.finding import Finding, note, ok, problem
from profiler.figures import mebibytes
from profiler.sources import Unavailable
from profiler.sources.task_metadata import ContainerMetadata, TaskMetadata
from profiler.summary import task_id

_TASK, _BATCH, _MEMORY, _OWN, _PIDS = "task metadata", "batch", "memory limit", "own limit", "processes"
_PREFERRED_VERSION = 4
_OWN_LIMIT = '"memory": 128, "memoryReservation": 32'


def outside_of_ecs() -> Finding:
    """There is no task to speak of."""
    return note(
        _TASK,
        "This is no ECS task: ECS_CONTAINER_METADATA_URI_V4 is not set.",
        "Start it in the monitor's container, or profile a command here: task-profiler run -- CMD.",
    )


def task_finding(task: TaskMetadata | Unavailable, version: int) -> Finding:
    """Whether the endpoint answers, and which task it is."""
    if isinstance(task, Unavailable):
        return problem(
            _TASK,
            f"The task metadata endpoint of version {version} does not answer: {task.reason}.",
            "Look whether a proxy or a firewall in this container stands before 169.254.170.2.",
        )
    name = task.family if task.revision is None else f"{task.family}:{task.revision}"
    launch = "" if task.launch_type is None else f" on {task.launch_type}"
    text = f"Version {version} answers: task {task_id(task.arn)} of {name or 'an unknown family'}{launch}."
    if version < _PREFERRED_VERSION:
        return note(
            _TASK,
            f"{text} It does not tell where containers log to.",
            "Set TASK_PROFILER_LOG_GROUP and TASK_PROFILER_LOG_STREAM, or update: version 4 comes with "
            "Fargate platform 1.4.0 and with container agent 1.39.0.",
        )
    return ok(_TASK, text)


def batch_finding(selection: BatchSelection) -> Finding:
    """Which container is reported on."""
    if selection.problem is not None:
        return problem(_BATCH, selection.problem, "Set TASK_PROFILER_CONTAINER in the monitor's environment.")
    return ok(_BATCH, f"The batch is the container {', '.join(selection.names)}.")


def limits_findings(batch: ContainerMetadata, task: TaskMetadata, own: ContainerMetadata | None) -> Iterator[Finding]:
    """What bounds the batch, and whether the monitor is bounded."""
    if batch.memory_limit_bytes is not None:
        yield ok(_MEMORY, f"The batch may use {mebibytes(batch.memory_limit_bytes)} MB, its own limit.")
    elif task.memory_limit_bytes is not None:
        yield ok(_MEMORY, f"The batch may use {mebibytes(task.memory_limit_bytes)} MB, the task's limit.")
    else:
        yield note(
            _MEMORY,
            "Neither the batch nor the task has a memory limit, so a report cannot tell how near the batch came to it.",
            'Give the batch\'s container a "memory", or the task.',
        )
    if own is not None and own.memory_limit_bytes is None:
        yield note(
            _OWN,
            "The monitor has no memory limit of its own.",
            f"Write {_OWN_LIMIT} into its container definition, so that it can never take the batch's.",
        )


def processes_finding(batch: ContainerMetadata, visible_processes: int, *, can_read_cgroup: bool) -> Finding:
    """Whether the batch's processes can be seen from here, and the kernel's own count of the container read."""
    if not visible_processes:
        return note(
            _PIDS,
            f"The processes of {batch.name} are not visible from this container.",
            'With "pidMode": "task" in the task definition the report has memory peaks between two samples, kills of '
            "child processes, CPU and memory of every second on Fargate too, the largest processes, and which GPUs "
            "are the batch's.",
        )
    seen = f"{visible_processes} processes of the batch are visible (shared pid namespace)"
    if can_read_cgroup:
        return ok(_PIDS, f"{seen}, and the kernel's own peak of the container can be read.")
    return note(
        _PIDS,
        f"{seen}; the kernel's own peak of the container is not this user's to read, so peaks are sampled.",
        "Run the monitor as the batch's user with no fewer capabilities, or as root with SYS_PTRACE.",
    )


def settings_findings(problems: Iterable[str]) -> Iterator[Finding]:
    """Bad values in the environment."""
    for text in problems:
        yield problem("settings", f"{text}; its default is used.", "Correct it in the monitor's environment.")
