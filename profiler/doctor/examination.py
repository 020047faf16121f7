"""Everything the doctor looks at, in the order in which it is told; what takes long comes last."""

from collections.abc import Callable, Collection, Iterator

from msgspec import Struct

from profiler.accelerators.gpu_scope import GpuSelection, parse_visible_devices
from profiler.batch import select_batch
from profiler.clock import Clock
from profiler.delivery import log_target
from profiler.doctor.devices import gpu_findings, neuron_findings
from profiler.doctor.finding import Finding, ok, problem
from profiler.doctor.refresh import refresh_finding
from profiler.doctor.task import (
    batch_finding,
    limits_findings,
    outside_of_ecs,
    processes_finding,
    settings_findings,
    task_finding,
)
from profiler.settings import MonitorSettings
from profiler.sinks import DeliveryFailure
from profiler.sinks.cloudwatch_logs import LogTarget
from profiler.sources import Unavailable
from profiler.sources.nvml.readings import GpuReading
from profiler.sources.task import TaskSource
from profiler.sources.task_metadata import ContainerMetadata, TaskMetadata

_LOG = "log stream"


class Probes(Struct, frozen=True, kw_only=True):
    """How to look: each asks the real machine, or a test's."""

    read_gpus: Callable[[], GpuReading | Unavailable | None]
    visible_devices: Callable[[str], str | None]
    count_processes: Callable[[str], int]
    can_read_cgroup: Callable[[str], bool]
    find_neuron_monitor: Callable[[], str | None]
    neuron_devices: Callable[[], Collection[str]]
    may_put: Callable[[LogTarget], DeliveryFailure | None]


class DoctorContext(Struct, frozen=True, kw_only=True):
    """The task to look at."""

    settings: MonitorSettings
    source: TaskSource
    clock: Clock
    max_seconds: float


def diagnose(context: DoctorContext | None, probes: Probes) -> Iterator[Finding]:
    """All findings, each as soon as it is known; ``context`` is None outside of ECS."""
    if context is None:
        yield outside_of_ecs()
        yield from _devices(GpuSelection(), probes)
        return
    settings = context.settings
    yield from settings_findings(settings.problems)
    task = context.source.task()
    yield task_finding(task, settings.endpoint_version)
    if isinstance(task, Unavailable):
        yield from _devices(GpuSelection(), probes)
        return
    found = context.source.own_container()
    own = None if isinstance(found, Unavailable) else found
    selection = select_batch(task, requested=settings.container, own=own)
    yield batch_finding(selection)
    batches = [batch for batch in (task.container(name) for name in selection.names) if batch is not None]
    for batch in batches:
        yield from limits_findings(batch, task, own)
        lookup_id = batch.docker_id or batch.name
        yield processes_finding(
            batch, probes.count_processes(lookup_id), can_read_cgroup=probes.can_read_cgroup(lookup_id)
        )
    yield from _devices(_gpu_selection(batches, settings, probes), probes)
    for batch in batches:
        yield from _log(batch, task, settings, probes)
        if batch.docker_id is not None:
            yield refresh_finding(context.source, batch.docker_id, context.clock, context.max_seconds)


def _devices(selection: GpuSelection, probes: Probes) -> Iterator[Finding]:
    yield from gpu_findings(probes.read_gpus(), selection)
    yield from neuron_findings(probes.find_neuron_monitor(), probes.neuron_devices())


def _gpu_selection(batches: list[ContainerMetadata], settings: MonitorSettings, probes: Probes) -> GpuSelection:
    configured = settings.accelerators.gpu_uuids
    if configured:
        return GpuSelection(selectors=frozenset(configured), is_known=True)
    for batch in batches:
        value = None if batch.docker_id is None else probes.visible_devices(batch.docker_id)
        if value is not None:
            return parse_visible_devices(value)
    return GpuSelection()


def _log(batch: ContainerMetadata, task: TaskMetadata, settings: MonitorSettings, probes: Probes) -> Iterator[Finding]:
    """Where the report would go, and whether it may."""
    target = log_target(batch, task, settings)
    if isinstance(target, DeliveryFailure):
        yield problem(_LOG, target.reason, "Until then the report goes to the monitor's own output.")
        return
    refused = probes.may_put(target)
    if refused is None:
        yield ok(_LOG, f"The report may be put into {target.group}, stream {target.stream}.")
    else:
        yield problem(_LOG, refused.reason, "Until then the report goes to the monitor's own output.")
