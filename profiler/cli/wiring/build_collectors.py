"""Builds the collectors of GPUs, Neuron devices and processes, and the client of the task
metadata endpoint.

The modules of a collector are imported only if this machine has its devices or visible processes,
or if the settings enable it. `run` outside of ECS does without the client's modules, and the
monitor without the modules of `run`.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from profiler.collectors.collector import Collectors
from profiler.collectors.neuron import find_neuron_monitor, neuron_devices
from profiler.collectors.nvidia import is_driver_present
from profiler.core.clock import Clock, SystemClock
from profiler.core.ecs_terms import MPS_VARIABLES
from profiler.core.log import Log
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.settings import AcceleratorSettings, Arguments, MonitorSettings

if TYPE_CHECKING:
    from profiler.collectors.collector_kinds import Collector
    from profiler.collectors.nvidia.gpu_collector import GpuCollector as _GpuCollector
    from profiler.collectors.nvidia.gpu_owners import GpuOwners
    from profiler.collectors.nvidia.visible_gpus import GpuLimits, GpuScope
    from profiler.collectors.processes.discovery import ProcessDiscovery
    from profiler.collectors.processes.process_collector import ProcessCollector
    from profiler.core.signal_handler import SignalHandler
    from profiler.local_run.local_record import TaskPlacement
    from profiler.readers.ecs.endpoint_client import TaskMetadataSource
    from profiler.readers.linux.process_tree import ProcessReading


# The driver's own averaging window for utilization is at least as long.
_MIN_GPU_INTERVAL_NS = NS_PER_SECOND // 10
# Long enough for the longest timeout.
_MAX_INTERVAL_SECONDS = 60.0


def process_discovery(
    settings: MonitorSettings,
    clock: Clock,
    interval_ns: int,
    accelerators: "tuple[Collector, ...]",
    is_alone: Callable[[], bool],
) -> "ProcessDiscovery":
    """The collector of the batch's processes.

    ``is_alone``: nothing but them and this process uses the machine.
    """
    # `run` has its own collector.
    from profiler.collectors.processes.discovery import ProcessDiscovery, is_in_container, pids_of

    def make_collector() -> "ProcessCollector":
        # See the module's docstring.
        from profiler.collectors.processes.container_processes import ContainerProcesses
        from profiler.collectors.processes.machine_processes import MachineProcesses
        from profiler.collectors.processes.process_collector import ProcessAccess, ProcessCollector
        from profiler.readers.cgroup.container_group import find_container_cgroup
        from profiler.readers.cgroup.group_pressure import open_group_pressure
        from profiler.readers.cgroup.hierarchy import MachineOomKills
        from profiler.readers.cgroup.process_groups import is_frozen
        from profiler.readers.linux.followed_process import ProcessExitWaiter
        from profiler.readers.linux.host import memory_of_others
        from profiler.readers.linux.sockets import KernelSockets
        from profiler.readers.linux.thread_reader import ThreadReader

        processes = MachineProcesses(clock.monotonic_ns)
        machine = ProcessAccess(
            begin_tick=processes.mark_out_of_date,
            open_processes=lambda docker_id: ContainerProcesses(
                docker_id, processes, with_arguments=settings.process_arguments != "off"
            ),
            open_cgroup=find_container_cgroup,
            oom_kills=MachineOomKills().count,
            own_cpu_ns=time.thread_time_ns,
            exit_waiter=ProcessExitWaiter(),
            open_threads=lambda docker_id: ThreadReader(
                time.thread_time_ns,
                sockets=KernelSockets(),
                open_pressure=open_group_pressure,
                is_frozen=is_frozen,
                is_of_batch=lambda pid: is_in_container(f"/proc/{pid}", docker_id),
            ),
            machine_memory=lambda: memory_of_others() if is_alone() else None,
        )
        show = _argument_formatter(settings.process_arguments)
        idle_of = Collectors(*accelerators).idle_gpus
        return ProcessCollector(
            machine, clock, interval_ns, show, settings.task.series_points, idle_of=idle_of
        )

    return ProcessDiscovery(lambda docker_id: any(True for _ in pids_of(docker_id)), make_collector)


def _argument_formatter(arguments: Arguments) -> "Callable[[ProcessReading], str | None]":
    if arguments == "off":
        return lambda _: None
    from profiler.core.redaction import redact  # rarely used

    show = redact if arguments == "redacted" else " ".join
    return lambda process: show(process.arguments) or None


def accelerator_collectors(
    settings: AcceleratorSettings,
    clock: Clock,
    log: Log,
    interval_seconds: float,
    *,
    is_local: bool = False,
    hour_usd: float | None = None,
    gpus_of: Callable[[str], str | None] | None = None,
    mps_of: Callable[[str], Mapping[str, str]] | None = None,
) -> "tuple[Collector, ...]":
    """The collectors of the devices that the settings ask for or, with ``auto``, that this
    machine has.

    ``is_local``: for ``run``. ``hour_usd``: the task's price. ``gpus_of``:
    ``NVIDIA_VISIBLE_DEVICES`` of a Docker id, ``mps_of``: its variables of MPS; None: by the
    environment of the container's processes.
    """
    collectors: list[Collector] = []
    gpu: _GpuCollector | None = None
    has_driver = settings.gpu != "off" and is_driver_present(
        os.environ.get("LD_LIBRARY_PATH"), os.path.exists
    )
    if settings.gpu == "on" or has_driver:
        # See the module's docstring.
        from profiler.collectors.nvidia.gpu_collector import GpuCollector, GpuSurroundings
        from profiler.collectors.nvidia.nvml_calls import load_binding
        from profiler.collectors.nvidia.nvml_source import NvmlSource

        gpu = GpuCollector(
            NvmlSource(partial(load_binding, has_driver=has_driver), clock),
            _gpu_scope(settings.gpu_uuids, gpus_of, is_local=is_local),
            clock,
            log,
            max(round(interval_seconds * NS_PER_SECOND), _MIN_GPU_INTERVAL_NS),
            is_required=settings.gpu == "on",
            hour_usd=hour_usd,
            surroundings=GpuSurroundings(
                owners=_make_gpu_owners(is_local=is_local),
                limits_of=_make_gpu_limits(mps_of, is_local=is_local),
                is_local=is_local,
            ),
        )
        collectors.append(gpu)
    if gpus_of is not None and settings.gpu != "off":
        # Only for an instance's monitor.
        from profiler.collectors.nvidia.visible_gpus import UnseenGpus

        collectors.append(UnseenGpus(gpus_of, gpu))
    program = None if settings.neuron == "off" else find_neuron_monitor(os.environ.get("PATH"))
    # Elsewhere than in our image, another program may have the name neuron-monitor: only a device
    # node is evidence.
    has_neuron = program is not None and (not is_local or bool(neuron_devices()))
    if settings.neuron == "on" or (settings.neuron == "auto" and has_neuron):
        is_required = settings.neuron == "on"
        collectors.append(
            _neuron_collector(program, interval_seconds, clock, log, is_required=is_required)
        )
    return tuple(collectors)


def _make_gpu_owners(*, is_local: bool) -> "GpuOwners":
    # See the module's docstring.
    from profiler.collectors.nvidia.gpu_owners import GroupMembers, descendants_of_this_process

    if is_local:
        return descendants_of_this_process()
    from profiler.collectors.processes.discovery import is_group_of, pids_of

    def docker_id_of(batch: str) -> str | None:
        is_visible = any(True for _ in pids_of(batch))
        return batch if is_visible else None

    return GroupMembers(docker_id_of, is_group_of)


def _make_gpu_limits(
    mps_of: Callable[[str], Mapping[str, str]] | None, *, is_local: bool
) -> "Callable[[str], GpuLimits]":
    # See the module's docstring.
    from profiler.collectors.nvidia.visible_gpus import parse_limits

    if is_local:
        return lambda _: parse_limits(os.environ)
    if mps_of is not None:
        return lambda batch: parse_limits(mps_of(batch))
    from profiler.collectors.processes.discovery import environment_of

    return lambda batch: parse_limits(environment_of(batch, MPS_VARIABLES))


def _gpu_scope(
    uuids: tuple[str, ...], gpus_of: Callable[[str], str | None] | None, *, is_local: bool
) -> "GpuScope":
    """Which GPUs are the batch's. Other programs may use the visible ones, so only the
    environment shows which are the command's.
    """
    # See the module's docstring.
    from profiler.collectors.nvidia.visible_gpus import GpuScope

    if is_local:
        return GpuScope(
            uuids,
            own=os.environ.get("NVIDIA_VISIBLE_DEVICES", ""),
            # Elsewhere, other programs of the container may use them.
            is_own_assigned="ECS_CONTAINER_METADATA_URI_V4" in os.environ,
        )
    # `run` does without it.
    from profiler.collectors.processes.discovery import visible_devices

    return GpuScope(uuids, gpus_of or visible_devices, has_all_ids=gpus_of is not None)


def _neuron_collector(
    program: str | None, interval_seconds: float, clock: Clock, log: Log, *, is_required: bool
) -> "Collector":
    # See the module's docstring.
    from profiler.collectors.neuron.neuron_collector import NeuronCollector
    from profiler.collectors.neuron.neuron_monitor_supervisor import (
        NeuronMonitorSource,
        neuron_period_seconds,
    )

    period_seconds = neuron_period_seconds(interval_seconds)
    source = None
    if program is not None:
        source = NeuronMonitorSource(program, period_seconds, clock, log)
    return NeuronCollector(source, period_seconds, log, is_required=is_required)


def metadata_source(
    address: str,
    version: int,
    interval_seconds: float,
    clock: Clock,
    stop_signal: "SignalHandler | None" = None,
) -> "TaskMetadataSource":
    """The client of the endpoint at ``address``; the interval of the reads determines their
    timeout.
    """
    # `run` outside of ECS does without them.
    from profiler.readers.ecs.container_stats import parse_device_mapper_majors
    from profiler.readers.ecs.endpoint_client import HttpEndpoint, TaskMetadataSource
    from profiler.readers.linux import proc

    return TaskMetadataSource(
        HttpEndpoint(address, interval_seconds, clock, stop_signal),
        version,
        parse_device_mapper_majors(proc.read_text("/proc/devices")),
    )


def read_tags(address: str, version: int, clock: Clock) -> Mapping[str, str] | Unavailable:
    """Read the task's tags over a connection of its own, within 5 s: in a background thread."""
    with closing(metadata_source(address, version, _MAX_INTERVAL_SECONDS, clock)) as source:
        return source.read_tags()


def read_placement(address: str, version: int) -> "TaskPlacement | None":
    """Read the ECS task of this process, within 5 s for each of two responses: in a background
    thread.
    """
    # The monitor does without the modules of `run`.
    from profiler.local_run.local_record import TaskPlacement

    with closing(metadata_source(address, version, _MAX_INTERVAL_SECONDS, SystemClock())) as source:
        task = source.read_task()
        if isinstance(task, Unavailable):
            return None
        own = source.read_own_container()
    return None if isinstance(own, Unavailable) else TaskPlacement(task=task, container=own)
