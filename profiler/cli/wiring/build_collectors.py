"""Builds the collectors of GPUs, Neuron devices and processes, and what adds the task's tags to its records.

The modules of a collector are imported only if this machine has its devices or visible processes, or if the settings
enable it.
"""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from profiler.collectors.collector import Collector, idle_gpu_ns
from profiler.collectors.neuron import find_neuron_monitor, neuron_devices
from profiler.collectors.nvidia import is_driver_present
from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.threads import BackgroundCall
from profiler.core.timestamps import NS_PER_SECOND
from profiler.settings import AcceleratorSettings, Arguments, MonitorSettings

if TYPE_CHECKING:
    from profiler.collectors.collector import TaskTags
    from profiler.collectors.nvidia.visible_gpus import GpuScope
    from profiler.collectors.processes.discovery import LazyProcessCollector
    from profiler.readers.linux.process_tree import ProcessReading

# The driver's own averaging window for utilization is at least as long.
_MIN_GPU_INTERVAL_NS = NS_PER_SECOND // 10


def batch_processes(
    arguments: Arguments, clock: Clock, interval_ns: int, series_points: int, accelerators: tuple[Collector, ...] = ()
) -> "LazyProcessCollector":
    """The collector of the batch's processes, which starts when they become visible."""
    from profiler.collectors.processes.discovery import LazyProcessCollector, pids_of  # `run` has its own collector

    return LazyProcessCollector(
        is_visible=lambda docker_id: any(True for _ in pids_of(docker_id)),
        make_collector=lambda: _make_collector(arguments, clock, interval_ns, series_points, accelerators),
    )


def _make_collector(
    arguments: Arguments, clock: Clock, interval_ns: int, series_points: int, accelerators: tuple[Collector, ...]
) -> Collector:
    from profiler.collectors.processes.process_collector import ProcessAccess, ProcessCollector  # as the docstring says
    from profiler.collectors.processes.process_reader import ContainerProcesses
    from profiler.readers.cgroup.container_group import find_container_cgroup, machine_oom_kills
    from profiler.readers.linux.followed_process import ProcessExitWaiter
    from profiler.readers.linux.thread_times import ThreadReader

    machine = ProcessAccess(
        open_processes=lambda docker_id: ContainerProcesses(
            docker_id, clock.monotonic_ns, with_arguments=arguments != "off"
        ),
        open_cgroup=find_container_cgroup,
        oom_kills=machine_oom_kills,
        own_cpu_ns=time.thread_time_ns,
        exit_waiter=ProcessExitWaiter(),
        open_threads=lambda: ThreadReader(time.thread_time_ns),
    )
    show, idle_ns = _argument_formatter(arguments), partial(idle_gpu_ns, accelerators)
    return ProcessCollector(machine, clock, interval_ns, show, series_points, idle_ns=idle_ns)


def _argument_formatter(arguments: Arguments) -> "Callable[[ProcessReading], str | None]":
    if arguments == "off":
        return lambda _: None
    from profiler.collectors.processes.process_reader import redact  # rarely used

    show = redact if arguments == "redacted" else " ".join
    return lambda process: show(process.arguments) or None


def accelerator_collectors(
    settings: MonitorSettings, environment: Mapping[str, str], clock: Clock, log: Log
) -> tuple[Collector, ...]:
    """The collectors of the monitor's accelerators."""

    def make_scope() -> "GpuScope":
        from profiler.collectors.nvidia.visible_gpus import GpuScope  # see the module's docstring
        from profiler.collectors.processes.discovery import visible_devices

        return GpuScope(settings.accelerators.gpu_uuids, visible_devices)

    hour_usd = None if settings.prices is None else settings.prices.hour_usd
    interval_seconds = settings.interval_seconds
    return _accelerators(
        settings.accelerators, environment, clock, log, interval_seconds, make_scope, hour_usd=hour_usd
    )


def requested_tags(settings: MonitorSettings, clock: Clock) -> "tuple[TaskTags, ...]":
    """Request the tags of the task, if the settings enable them."""
    if not settings.tags:
        return ()
    from profiler.cli.wiring.task_endpoint import tag_lookup  # only where it is enabled
    from profiler.collectors.collector import TaskTags

    read_tags = tag_lookup(settings.endpoint_address, settings.endpoint_version, clock)
    return (TaskTags(BackgroundCall(read_tags, clock, seconds=0)),)


def local_collectors(
    settings: AcceleratorSettings, environment: Mapping[str, str], clock: Clock, interval_seconds: float
) -> tuple[Collector, ...]:
    """The collectors of ``run``: the accelerators of this machine.

    Other programs may use the visible GPUs, too, so only the environment shows which belong to the command.
    """

    def make_scope() -> "GpuScope":
        from profiler.collectors.nvidia.visible_gpus import GpuScope, own_selection  # see the module's docstring

        return GpuScope(settings.gpu_uuids, default=own_selection(environment.get("NVIDIA_VISIBLE_DEVICES", "")))

    # Elsewhere than in our image, another program may have the name neuron-monitor: only a device node is evidence.
    return _accelerators(
        settings,
        environment,
        clock,
        Log(),
        interval_seconds,
        make_scope,
        has_neuron_devices=lambda: bool(neuron_devices()),
    )


def _accelerators(
    settings: AcceleratorSettings,
    environment: Mapping[str, str],
    clock: Clock,
    log: Log,
    interval_seconds: float,
    make_scope: "Callable[[], GpuScope]",
    *,
    has_neuron_devices: Callable[[], bool] = lambda: True,
    hour_usd: float | None = None,
) -> tuple[Collector, ...]:
    """The collectors of the devices that the settings ask for or, with ``auto``, that this machine has.

    ``make_scope`` is called only where there are GPUs, ``has_neuron_devices`` only where there is a program named
    neuron-monitor. ``hour_usd`` is the price of the task.
    """
    collectors: list[Collector] = []
    library_path = environment.get("LD_LIBRARY_PATH")
    if settings.gpu == "on" or (settings.gpu == "auto" and is_driver_present(library_path, os.path.exists)):
        from profiler.collectors.nvidia.gpu_collector import GpuCollector  # see the module's docstring
        from profiler.collectors.nvidia.nvml_source import NvmlSource
        from profiler.collectors.nvidia.read_one_gpu import load_binding

        gpu = GpuCollector(
            NvmlSource(load_binding, clock),
            make_scope(),
            clock,
            log,
            max(round(interval_seconds * NS_PER_SECOND), _MIN_GPU_INTERVAL_NS),
            is_required=settings.gpu == "on",
            hour_usd=hour_usd,
        )
        collectors.append(gpu)
    program = None if settings.neuron == "off" else find_neuron_monitor(environment.get("PATH"))
    if settings.neuron == "on" or (settings.neuron == "auto" and program is not None and has_neuron_devices()):
        from profiler.collectors.neuron.neuron_collector import NeuronCollector  # see the module's docstring
        from profiler.collectors.neuron.neuron_monitor_supervisor import NeuronMonitorSource, neuron_period_seconds

        period_seconds = neuron_period_seconds(interval_seconds)
        source = None if program is None else NeuronMonitorSource(program, period_seconds, clock, log)
        collectors.append(NeuronCollector(source, period_seconds, log, is_required=settings.neuron == "on"))
    return tuple(collectors)
