"""Builds the collectors of GPUs, Neuron devices and processes, and what adds the task's tags to its records.

The modules of a collector are imported only if this machine has its devices or visible processes, or if the settings
enable it.
"""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

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
    from profiler.collectors.nvidia.gpu_ownership import GpuScope
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
    from profiler.collectors.processes.process_collector import (  # see the module's docstring
        ProcessAccess,
        ProcessCollector,
    )
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
    from profiler.collectors.processes.redaction import redact  # rarely used

    show = redact if arguments == "redacted" else " ".join
    return lambda process: show(process.arguments) or None


def accelerator_collectors(
    settings: MonitorSettings, environment: Mapping[str, str], clock: Clock, log: Log
) -> tuple[Collector, ...]:
    """The collectors of the monitor's accelerators."""

    def make_scope() -> "GpuScope":
        from profiler.collectors.nvidia.gpu_ownership import GpuScope  # see the module's docstring
        from profiler.collectors.processes.discovery import visible_devices

        return GpuScope(settings.accelerators.gpu_uuids, visible_devices)

    interval_ns = round(settings.interval_seconds * NS_PER_SECOND)
    hour_usd = None if settings.prices is None else settings.prices.hour_usd
    accelerators = _AcceleratorFactory(settings.accelerators, environment, clock, log, interval_ns, hour_usd=hour_usd)
    return accelerators.gpu_collectors(make_scope) + accelerators.neuron_collectors()


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

    Which GPUs belong to the command is known from the environment alone, because other programs may use the visible
    GPUs too.
    """

    def make_scope() -> "GpuScope":
        from profiler.collectors.nvidia.gpu_ownership import GpuScope, own_selection  # see the module's docstring

        return GpuScope(settings.gpu_uuids, default=own_selection(environment.get("NVIDIA_VISIBLE_DEVICES", "")))

    interval_ns = round(interval_seconds * NS_PER_SECOND)
    # Elsewhere than in our image, another program may have the name neuron-monitor: only a device node is evidence.
    accelerators = _AcceleratorFactory(
        settings, environment, clock, Log(), interval_ns, has_neuron_devices=lambda: bool(neuron_devices())
    )
    return accelerators.gpu_collectors(make_scope) + accelerators.neuron_collectors()


class _AcceleratorFactory(Struct, frozen=True):
    """Makes the collectors of the devices that the settings ask for or, with ``auto``, that this machine has.

    ``has_neuron_devices`` is asked only where there is a program named neuron-monitor. ``hour_usd`` is the price of the
    task.
    """

    settings: AcceleratorSettings
    environment: Mapping[str, str]
    clock: Clock
    log: Log
    interval_ns: int
    has_neuron_devices: Callable[[], bool] = lambda: True
    hour_usd: float | None = None

    def gpu_collectors(self, make_scope: "Callable[[], GpuScope]") -> tuple[Collector, ...]:
        """One collector of all GPUs, or none. ``make_scope`` is called only where there are GPUs."""
        library_path = self.environment.get("LD_LIBRARY_PATH")
        is_present = self.settings.gpu == "auto" and is_driver_present(library_path, os.path.exists)
        if not (is_present or self.settings.gpu == "on"):
            return ()
        from profiler.collectors.nvidia.gpu_collector import GpuCollector  # see the module's docstring
        from profiler.collectors.nvidia.nvml_library import load_binding
        from profiler.collectors.nvidia.nvml_source import NvmlSource

        collector = GpuCollector(
            NvmlSource(load_binding, self.clock),
            make_scope(),
            self.clock,
            self.log,
            max(self.interval_ns, _MIN_GPU_INTERVAL_NS),
            is_required=self.settings.gpu == "on",
            hour_usd=self.hour_usd,
        )
        return (collector,)

    def neuron_collectors(self) -> tuple[Collector, ...]:
        """One collector of all Neuron devices, or none."""
        if self.settings.neuron == "off":
            return ()
        program = find_neuron_monitor(self.environment.get("PATH"))
        if self.settings.neuron == "auto" and not (program is not None and self.has_neuron_devices()):
            return ()
        from profiler.collectors.neuron.neuron_collector import NeuronCollector  # see the module's docstring
        from profiler.collectors.neuron.neuron_monitor_process import neuron_period_seconds
        from profiler.collectors.neuron.neuron_monitor_supervisor import NeuronMonitorSource

        period_seconds = neuron_period_seconds(self.interval_ns / NS_PER_SECOND)
        source = None if program is None else NeuronMonitorSource(program, period_seconds, self.clock, self.log)
        return (NeuronCollector(source, period_seconds, self.log, is_required=self.settings.neuron == "on"),)
