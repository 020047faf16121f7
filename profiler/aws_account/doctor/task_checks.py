"""Diagnoses the task, the batch, the accelerators and the log stream from within a container."""

from collections.abc import Callable, Collection, Iterable, Iterator

from msgspec import Struct

from profiler.aggregation.record_parts import record_task_size_of, visible_hardware_of
from profiler.aws_account.doctor.findings import Finding, note, ok, problem
from profiler.collectors.nvidia.visible_gpus import (
    DriverReading,
    GpuSelection,
    parse_visible_devices,
)
from profiler.core.clock import Clock
from profiler.core.ecs_terms import task_id
from profiler.core.optional_math import first_known, known
from profiler.core.text import words_if_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.report_destination import OwnStream, batch_streams
from profiler.monitor.task_sampler import TaskSource
from profiler.readers import Unavailable
from profiler.readers.ecs.task_metadata import (
    BatchSelection,
    ContainerMetadata,
    TaskMetadata,
    select_batch,
)
from profiler.readers.linux.host import Host
from profiler.readers.linux.kernel_view import KernelView
from profiler.record.hardware import unseen_cpu_limit, unseen_memory_limit
from profiler.record.units import MIB, format_count, format_memory, format_period
from profiler.settings import MonitorSettings, StacksMode
from profiler.sinks import DeliveryFailure, LogTarget

# The topics of the findings.
_TASK = "task metadata"
BATCH = "batch"
MEMORY = "memory limit"
_OWN = "own limit"
PIDS = "processes"
GPUS = "GPUs"
_SCOPE = "batch's GPUs"
NEURON = "Neuron"
_STATS = "stats"
LOG = "log stream"
_VISIBLE = "visible size"
GPU_ADVICE = (
    "If the task has a GPU, set NVIDIA_VISIBLE_DEVICES=all and "
    "NVIDIA_DRIVER_CAPABILITIES=utility in the environment of the monitor's container "
    "definition, without a GPU requirement."
)
NEURON_ADVICE = (
    "If the task has Neuron devices, list them in linuxParameters.devices of the monitor, add "
    "IPC_LOCK, run it as root, and use an image with neuron-monitor in /opt/aws/neuron/bin."
)
_SET_MEMORY = (
    'Set "memory" for the container of the batch, or -Xmx/max_old_space_size/workers in the batch.'
)
_OWN_LIMIT = '"memory": 128, "memoryReservation": 32'
_PREFERRED_VERSION = 4
_STEP_SECONDS = 0.2
_MIN_REFRESHES = 2
_OK_SECONDS = 2.0
LEVEL = "level"
STACKS = "call stacks"
KERNEL = "kernel"
_ACCESS = (
    'set "pidMode": "task", the capability SYS_PTRACE and "user": "0": task-profiler taskdef '
    "add-monitor --stacks."
)
_NEXT_LEVEL = (
    f"For level 2, which also shows network, sleep, locks, pipes and child processes, {_ACCESS}"
)


class MachineProbes(Struct, frozen=True, kw_only=True):
    """The functions that inspect the machine; tests pass their own."""

    read_gpus: Callable[[], DriverReading | Unavailable | None]
    visible_devices: Callable[[str], str | None]
    count_processes: Callable[[str], int]
    # The view of a container's first process, by its Docker id; None: of this process.
    kernel_view: Callable[[str | None], KernelView]
    py_spy_version: Callable[[], str | None]
    can_read_cgroup: Callable[[str], bool]
    find_neuron_monitor: Callable[[], str | None]
    neuron_devices: Callable[[], Collection[str]]
    may_put: Callable[[LogTarget], DeliveryFailure | None]
    read_host: Callable[[], Host] = Host


class DoctorContext(Struct, frozen=True, kw_only=True):
    """The task to diagnose."""

    settings: MonitorSettings
    source: TaskSource
    clock: Clock
    max_seconds: float


def diagnose_task(context: DoctorContext | None, probes: MachineProbes) -> Iterator[Finding]:
    """All findings, each as soon as it is known. ``context`` None: outside of ECS."""
    if context is None:
        yield note(
            _TASK,
            "This is not an ECS task: ECS_CONTAINER_METADATA_URI_V4 is not set.",
            (
                "task-profiler run -- CMD profiles a command here; doctor with FILE, FAMILY or "
                "--cluster checks ECS tasks."
            ),
        )
        yield kernel_finding(probes.kernel_view(None))
        gpus = probes.read_gpus()
        if gpus is not None:
            yield from driver_findings(gpus)
        return
    settings = context.settings
    yield from settings_findings(settings.problems)
    task = context.source.read_task()
    yield task_finding(task, settings.endpoint_version)
    if isinstance(task, Unavailable):
        yield from _device_findings(GpuSelection(), probes)
        return
    container = context.source.read_own_container()
    own = None if isinstance(container, Unavailable) else container
    selection = select_batch(task, requested=settings.task.container, own=own)
    yield batch_finding(selection)
    batches = [*filter(None, map(task.container_or_name_only, selection.names))]
    host = probes.read_host()
    for batch in batches:
        yield from limits_findings(batch, task, own)
        yield from unseen_limits_findings(batch, task, host)
        yield from _process_findings(batch, settings, probes)
    yield from _device_findings(_select_gpus(batches, settings, probes), probes)
    for batch in batches:
        yield log_finding(batch, task, settings, own, probes.may_put)
        if batch.docker_id is not None:
            yield refresh_finding(
                context.source, batch.docker_id, context.clock, context.max_seconds
            )


def task_finding(task: TaskMetadata | Unavailable, version: int) -> Finding:
    """Whether the endpoint responds, and which task it describes."""
    if isinstance(task, Unavailable):
        text = f"The task metadata endpoint of version {version} does not answer: {task.reason}."
        return problem(
            _TASK,
            text,
            "Check whether a proxy or a firewall in this container blocks 169.254.170.2.",
        )
    name = task.family or "an unknown family"
    if task.revision:
        name = f"{task.family}:{task.revision}"
    name += words_if_known(" on {}", task.launch_type)
    text = f"Version {version} answers: task {task_id(task.arn)} of {name}."
    if version < _PREFERRED_VERSION:
        return note(
            _TASK,
            f"{text} It does not return the log configuration of containers.",
            "Set TASK_PROFILER_LOG_GROUP and TASK_PROFILER_LOG_STREAM, or update: version 4 "
            "requires Fargate platform 1.4.0 or container agent 1.39.0.",
        )
    return ok(_TASK, text)


def batch_finding(selection: BatchSelection) -> Finding:
    """The container of the report."""
    if selection.problem:
        return problem(
            BATCH, selection.problem, "Set TASK_PROFILER_CONTAINER in the monitor's environment."
        )
    return ok(BATCH, f"The batch is the container {', '.join(selection.names)}.")


def limits_findings(
    batch: ContainerMetadata, task: TaskMetadata, own: ContainerMetadata | None
) -> Iterator[Finding]:
    """The memory limits of the batch and of the monitor."""
    limit_bytes = batch.memory_limit_bytes or task.memory_limit_bytes
    if limit_bytes:
        whose = "its own" if batch.memory_limit_bytes else "the task's"
        yield ok(MEMORY, f"The batch may use {format_memory(limit_bytes / MIB)}, {whose} limit.")
    else:
        yield note(
            MEMORY,
            (
                "Neither the batch nor the task has a memory limit, so a report cannot show how "
                "close the batch came."
            ),
            'Set "memory" for the container of the batch or for the task.',
        )
    if own is not None and own.memory_limit_bytes is None:
        advice = (
            f"Add {_OWN_LIMIT} to its container definition, so that it never uses memory of the "
            "batch."
        )
        yield note(_OWN, "The monitor has no memory limit.", advice)


def unseen_limits_findings(
    batch: ContainerMetadata, task: TaskMetadata, host: Host
) -> Iterator[Finding]:
    """The task's limits that programs do not see; a memory limit of the batch's own is in its
    control group.
    """
    visible = visible_hardware_of(host)
    size = record_task_size_of(task)
    limit_mb = None
    if not batch.memory_limit_bytes:
        limit_mb = size.memory_mb
    memory = unseen_memory_limit(visible, size, limit_mb)
    limits = [*filter(None, (memory, unseen_cpu_limit(visible, size)))]
    if limits:
        seen, may_use = (" and ".join(texts) for texts in zip(*limits, strict=True))
        yield note(
            _VISIBLE,
            f"Programs see {seen}; the task may use {may_use}.",
            _SET_MEMORY if memory else "Set the number of workers in the batch.",
        )


def processes_not_visible_finding(batch: str) -> Finding:
    """The finding that the monitor, in its own process namespace, cannot see the batch's
    processes.
    """
    return note(
        PIDS,
        f"The processes of {batch} are not visible from the monitor's container.",
        'With "pidMode": "task" in the task definition the report has memory peaks between two '
        "samples, kills of child processes, CPU and memory of every second on Fargate too, the "
        "largest processes, and which GPUs are the batch's.",
    )


def settings_findings(problems: Iterable[str]) -> Iterator[Finding]:
    """Invalid values in the environment."""
    for text in problems:
        yield problem(
            "settings", f"{text}; its default is used.", "Correct it in the monitor's environment."
        )


def gpu_findings(
    reading: DriverReading | Unavailable | None, selection: GpuSelection
) -> Iterator[Finding]:
    """The GPUs, and which of them belong to the batch.

    ``reading`` None: no NVIDIA driver is visible.
    """
    if reading is None:
        yield note(GPUS, "No NVIDIA driver is visible here.", GPU_ADVICE)
        return
    if isinstance(reading, Unavailable):
        yield from driver_findings(reading, GPU_ADVICE)
        return
    yield from driver_findings(reading)
    if not selection.is_known:
        yield note(
            _SCOPE,
            "The batch's GPUs are unknown, so the report includes all GPUs.",
            (
                'If the instance runs other tasks, set TASK_PROFILER_GPU_UUIDS, or "pidMode": '
                '"task" in the definition.'
            ),
        )
    elif selection.selectors is None:
        yield ok(_SCOPE, "All GPUs belong to the batch.")
    else:
        yield ok(_SCOPE, f"GPUs of the batch: {', '.join(sorted(selection.selectors)) or 'none'}.")


def driver_findings(
    reading: DriverReading | Unavailable, advice: str | None = None
) -> Iterator[Finding]:
    """The GPUs that the driver has, or why they cannot be read, with the advice."""
    if isinstance(reading, Unavailable):
        reason = f"There is an NVIDIA driver, but no GPU can be read: {reading.reason}."
        yield problem(GPUS, reason, advice)
        return
    for sample in reading.samples:
        facts = sample.facts
        yield ok(GPUS, f"GPU {facts.index}: {facts.name or 'unknown model'} ({facts.uuid}).")
    for text in reading.notes:
        yield note(GPUS, text)


def neuron_findings(program: str | None, devices: Collection[str]) -> Iterator[Finding]:
    """The Neuron devices. ``program`` is the path of neuron-monitor, None if it was not found."""
    listed = ", ".join(sorted(devices))
    if program and devices:
        yield ok(
            NEURON, f"{format_count(len(devices), 'Neuron device')} ({listed}), read by {program}."
        )
    elif program:
        yield problem(
            NEURON, f"{program} exists, but there is no device /dev/neuron*.", NEURON_ADVICE
        )
    elif devices:
        yield problem(
            NEURON, f"There are Neuron devices ({listed}), but no neuron-monitor.", NEURON_ADVICE
        )
    else:
        yield note(NEURON, "There is neither a Neuron device nor neuron-monitor.", NEURON_ADVICE)


def refresh_finding(
    source: TaskSource, docker_id: str, clock: Clock, max_seconds: float
) -> Finding:
    """How often the stats of the batch are refreshed, measured for at most ``max_seconds``."""
    end_ns = clock.monotonic_ns() + round(max_seconds * NS_PER_SECOND)
    reads: list[int] = []
    reason = "they do not contain the batch"
    while len(reads) <= _MIN_REFRESHES:
        stats = source.read_stats()
        sample = stats if isinstance(stats, Unavailable) else stats.get(docker_id)
        if isinstance(sample, Unavailable):
            reason = sample.reason
        elif sample is not None and sample.read_ns not in reads:
            reads.append(sample.read_ns)
        if clock.monotonic_ns() >= end_ns:
            break
        clock.sleep(_STEP_SECONDS)
    if not reads:
        advice = (
            "Start the batch; if it is running, check the container agent's log on the instance."
        )
        return problem(_STATS, f"There are no stats of the batch: {reason}.", advice)
    if len(reads) == 1:
        return note(
            _STATS,
            f"The stats were not refreshed within {max_seconds:g} s; the report will be coarse.",
        )
    seconds = (reads[-1] - reads[0]) / (len(reads) - 1) / NS_PER_SECOND
    text = f"The stats are refreshed every {format_period(seconds * 1000)}"
    if seconds <= _OK_SECONDS:
        return ok(_STATS, f"{text}.")
    return note(
        _STATS,
        f"{text}: shorter memory peaks can be missed. Fargate refreshes the stats every 10 s.",
    )


def _process_findings(
    batch: ContainerMetadata, settings: MonitorSettings, probes: MachineProbes
) -> Iterator[Finding]:
    """What of the batch's processes the monitor sees, and the level of the time breakdown."""
    lookup_id = batch.docker_id or batch.name
    visible = probes.count_processes(lookup_id)
    verb = "is" if visible == 1 else "are"
    seen = (
        f"{format_count(visible, 'process')} of the batch {verb} visible (shared process namespace)"
    )
    if not visible:
        yield processes_not_visible_finding(batch.name)
    elif probes.can_read_cgroup(lookup_id):
        yield ok(PIDS, f"{seen}, and the kernel's own peak of the container can be read.")
    else:
        yield note(
            PIDS,
            (
                f"{seen}; this user cannot read the kernel's own peak of the container, so peaks "
                "are sampled."
            ),
            (
                "Run the monitor as the batch's user with no fewer capabilities, or as root with "
                "SYS_PTRACE."
            ),
        )
    view = probes.kernel_view(lookup_id if visible else None)
    may_trace = visible > 0 and view.system_calls
    yield level_finding(sees_processes=visible > 0, may_trace=may_trace)
    if settings.stacks != "off":
        yield call_stacks_finding(
            settings.stacks, may_trace=may_trace, py_spy=probes.py_spy_version()
        )
    yield kernel_finding(view)


def _device_findings(selection: GpuSelection, probes: MachineProbes) -> Iterator[Finding]:
    yield from gpu_findings(probes.read_gpus(), selection)
    yield from neuron_findings(probes.find_neuron_monitor(), probes.neuron_devices())


def _select_gpus(
    batches: list[ContainerMetadata], settings: MonitorSettings, probes: MachineProbes
) -> GpuSelection:
    configured = settings.accelerators.gpu_uuids
    if configured:
        return GpuSelection(selectors=frozenset(configured), is_known=True)
    for batch in batches:
        value = known(probes.visible_devices, batch.docker_id)
        if value is not None:
            return parse_visible_devices(value)
    return GpuSelection()


def log_finding(
    batch: ContainerMetadata,
    task: TaskMetadata,
    settings: MonitorSettings,
    own: ContainerMetadata | None,
    may_put: Callable[[LogTarget], DeliveryFailure | None] | None = None,
) -> Finding:
    """The log stream of the report, and with ``may_put`` whether the task role may write to it."""
    target = batch_streams(batch, task, settings.task, own).report
    if isinstance(target, OwnStream):
        if not (target.group and target.stream):
            return ok(
                LOG,
                "The report goes to the monitor's own stream, by the log driver of its container.",
            )
        return ok(
            LOG,
            f"The report goes to the monitor's own stream: {target.group}, stream {target.stream}.",
        )
    if isinstance(target, LogTarget):
        refused = None
        what = "The report goes to the batch's stream:"
        if may_put is not None:
            refused = may_put(target)
            what = "The monitor may write the report to"
        if refused is None:
            return ok(LOG, f"{what} {target.group}, stream {target.stream}.")
        target = refused
    return problem(LOG, target.reason, "Until then the report goes to the monitor's own output.")


def level_finding(*, sees_processes: bool, may_trace: bool) -> Finding:
    """The level of the time breakdown, and the requirements of the next one."""
    if not sees_processes:
        return note(
            LEVEL,
            "There is no time breakdown, because the batch's processes are not visible.",
            (
                'For level 1, the time on a CPU, waiting for one, and on disks, set "pidMode": '
                f'"task". {_NEXT_LEVEL}'
            ),
        )
    if may_trace:
        return ok(LEVEL, "The time breakdown has level 2: it shows what the batch waits for.")
    return note(
        LEVEL,
        "The time breakdown has level 1: the time on a CPU, waiting for one, and on disks.",
        _NEXT_LEVEL,
    )


def call_stacks_finding(mode: StacksMode, *, may_trace: bool, py_spy: str | None) -> Finding:
    """Whether the enabled call stacks can be read.

    ``py_spy`` is its version, empty if unknown; None: not found.
    """
    setting = f"TASK_PROFILER_STACKS is {mode}"
    if not may_trace:
        return problem(
            STACKS,
            f"{setting}, but the monitor may not read the batch's call stacks.",
            f"S{_ACCESS[1:]}",
        )
    if py_spy is None:
        advice = "Build the image with EXTRAS=gpu,stacks, the default."
        return problem(STACKS, f"{setting}, but the image has no py-spy.", advice)
    return ok(STACKS, f"{setting}{py_spy and f', and {py_spy} reads the call stacks'}.")


def kernel_finding(view: KernelView) -> Finding:
    """The features of the kernel, regardless of the monitor's privileges."""
    scope = first_known(view.ptrace_scope, "none")
    version = words_if_known("version {}", view.cgroup_version) or "none"
    rest = (
        f"PSI: {'yes' if view.pressure else 'no'}. Yama's ptrace_scope: {scope}. Control groups: "
        f"{version}."
    )
    if view.schedstat:
        return ok(
            KERNEL, f"The kernel counts the time that processes wait for a CPU (schedstat). {rest}"
        )
    return note(
        KERNEL,
        f"The kernel does not count the time that processes wait for a CPU (schedstat). {rest}",
    )
