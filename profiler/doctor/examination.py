"""Everything the doctor looks at, in the order in which it is told; what takes long comes last."""

from collections.abc import Callable, Collection, Iterator

from msgspec import Struct

from profiler.accelerators.gpu_scope import Choice, choice_of
from profiler.batch import choose_batch
from profiler.clock import Clock
from profiler.delivery import log_target
from profiler.doctor.devices import gpu_findings, neuron_findings
from profiler.doctor.finding import Finding, fine, problem
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
from profiler.sinks import Undelivered
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
    reads_group: Callable[[str], bool]
    find_neuron_monitor: Callable[[], str | None]
    neuron_devices: Callable[[], Collection[str]]
    may_put: Callable[[LogTarget], Undelivered | None]


class Patient(Struct, frozen=True, kw_only=True):
    """The task to look at."""

    settings: MonitorSettings
    source: TaskSource
    clock: Clock
    at_most_seconds: float


def examine(patient: Patient | None, probes: Probes) -> Iterator[Finding]:
    """All findings, each as soon as it is known; ``patient`` is None outside of ECS."""
    if patient is None:
        yield outside_of_ecs()
        yield from _devices(Choice(), probes)
        return
    settings = patient.settings
    yield from settings_findings(settings.problems)
    task = patient.source.task()
    yield task_finding(task, settings.endpoint_version)
    if isinstance(task, Unavailable):
        yield from _devices(Choice(), probes)
        return
    found = patient.source.own_container()
    own = None if isinstance(found, Unavailable) else found
    choice = choose_batch(task, wanted=settings.container, own=own)
    yield batch_finding(choice)
    batches = [batch for batch in (task.container(name) for name in choice.names) if batch is not None]
    for batch in batches:
        yield from limits_findings(batch, task, own)
        found_by = batch.docker_id or batch.name
        yield processes_finding(batch, probes.count_processes(found_by), reads_group=probes.reads_group(found_by))
    yield from _devices(_gpus_of(batches, settings, probes), probes)
    for batch in batches:
        yield from _log(batch, task, settings, probes)
        if batch.docker_id is not None:
            yield refresh_finding(patient.source, batch.docker_id, patient.clock, patient.at_most_seconds)


def _devices(choice: Choice, probes: Probes) -> Iterator[Finding]:
    yield from gpu_findings(probes.read_gpus(), choice)
    yield from neuron_findings(probes.find_neuron_monitor(), probes.neuron_devices())


def _gpus_of(batches: list[ContainerMetadata], settings: MonitorSettings, probes: Probes) -> Choice:
    configured = settings.accelerators.gpu_uuids
    if configured:
        return Choice(wanted=frozenset(configured), is_known=True)
    for batch in batches:
        value = None if batch.docker_id is None else probes.visible_devices(batch.docker_id)
        if value is not None:
            return choice_of(value)
    return Choice()


def _log(batch: ContainerMetadata, task: TaskMetadata, settings: MonitorSettings, probes: Probes) -> Iterator[Finding]:
    """Where the report would go, and whether it may."""
    target = log_target(batch, task, settings)
    if isinstance(target, Undelivered):
        yield problem(_LOG, target.reason, "Until then the report goes to the monitor's own output.")
        return
    refused = probes.may_put(target)
    if refused is None:
        yield fine(_LOG, f"The report may be put into {target.group}, stream {target.stream}.")
    else:
        yield problem(_LOG, refused.reason, "Until then the report goes to the monitor's own output.")
