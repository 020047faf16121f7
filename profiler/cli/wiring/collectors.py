"""Wires the collectors of GPUs, Neuron cores and processes. Where there are none, nothing of them is imported."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.collectors.base import Collector
from profiler.collectors.neuron import find_neuron_monitor
from profiler.collectors.nvidia.library import is_driver_present
from profiler.collectors.processes.discovery import LazyProcessCollector, SampleComparingCollector, pids_of
from profiler.core.clock import Clock
from profiler.core.log import Log, NullLog
from profiler.core.timestamps import NS_PER_SECOND
from profiler.settings import AcceleratorSettings, Arguments, problems_message, read_accelerator_settings

if TYPE_CHECKING:
    from profiler.collectors.nvidia.collector import GpuListener
    from profiler.collectors.nvidia.ownership import GpuScope
    from profiler.sources.linux.process_tree import ProcessReading


def batch_processes(arguments: Arguments, clock: Clock, interval_ns: int) -> LazyProcessCollector:
    """The processes of the task's batch, watched from when they are seen."""
    return LazyProcessCollector(
        is_visible=lambda docker_id: any(True for _ in pids_of(docker_id)),
        make_collector=lambda: _make_collector(arguments, clock, interval_ns),
    )


def _make_collector(arguments: Arguments, clock: Clock, interval_ns: int) -> SampleComparingCollector:
    from profiler.collectors.processes.collector import ProcessAccess, ProcessCollector  # see the module's docstring
    from profiler.collectors.processes.reader import ContainerProcesses
    from profiler.sources.cgroup.container import find_container_cgroup, machine_oom_kills
    from profiler.sources.linux.followed_process import ProcessExitWaiter

    machine = ProcessAccess(
        open_processes=lambda docker_id: ContainerProcesses(
            docker_id, clock.monotonic_ns, with_arguments=arguments != "off"
        ),
        open_cgroup=find_container_cgroup,
        oom_kills=machine_oom_kills,
        own_cpu_ns=time.thread_time_ns,
        exit_waiter=ProcessExitWaiter(),
    )
    return ProcessCollector(machine, clock, interval_ns, _argument_formatter(arguments))


def _argument_formatter(arguments: Arguments) -> "Callable[[ProcessReading], str | None]":
    if arguments == "off":
        return lambda _: None
    from profiler.collectors.processes.commands import redact  # most do not ask for them

    show = redact if arguments == "redacted" else " ".join
    return lambda process: show(process.arguments) or None


# The driver's own window for utilization is no shorter.
_MIN_GPU_INTERVAL_NS = NS_PER_SECOND // 10


class LocalCollectors(Struct, frozen=True, kw_only=True):
    """What ``run`` collectors, and what was wrong with its settings."""

    accelerators: tuple[Collector, ...]
    problems: tuple[str, ...] = ()


def task_collectors(
    settings: AcceleratorSettings, environment: Mapping[str, str], clock: Clock, log: Log, interval_ns: int
) -> tuple[Collector, ...]:
    """The accelerators that the monitor collectors in its task."""

    def scope() -> "GpuScope":
        from profiler.collectors.nvidia.ownership import GpuScope  # see the module's docstring
        from profiler.collectors.processes.discovery import visible_devices

        return GpuScope(settings.gpu_uuids, visible_devices)

    return _collectors(settings, environment, scope, clock, log, interval_ns, None)


def local_collectors(
    environment: Mapping[str, str],
    clock: Clock,
    interval_seconds: float,
    listener: "GpuListener | None",
) -> LocalCollectors:
    """The accelerators beside a local command.

    Which of the GPUs are the command's, the environment may tell: others may use those that are visible, too.
    """
    settings = read_accelerator_settings(environment)
    problems = (problems_message(settings.problems),) if settings.problems else ()

    def scope() -> "GpuScope":
        from profiler.collectors.nvidia.ownership import GpuScope, own_selection  # see the module's docstring

        return GpuScope(settings.gpu_uuids, default=own_selection(environment.get("NVIDIA_VISIBLE_DEVICES", "")))

    interval_ns = round(interval_seconds * NS_PER_SECOND)
    collectors = _collectors(settings, environment, scope, clock, NullLog(), interval_ns, listener)
    return LocalCollectors(accelerators=collectors, problems=problems)


def _collectors(
    settings: AcceleratorSettings,
    environment: Mapping[str, str],
    scope: "Callable[[], GpuScope]",
    clock: Clock,
    log: Log,
    interval_ns: int,
    listener: "GpuListener | None",
) -> tuple[Collector, ...]:
    """``scope`` is asked for only where there are GPUs: which of them are the batch's."""
    gpus = _is_gpu_enabled(settings, environment)
    return (
        *((_gpu_collector(settings, scope(), clock, log, interval_ns, listener),) if gpus else ()),
        *_neuron_collectors(settings, environment, clock, log, interval_ns),
    )


def _is_gpu_enabled(settings: AcceleratorSettings, environment: Mapping[str, str]) -> bool:
    if settings.gpu == "auto":
        return is_driver_present(environment.get("LD_LIBRARY_PATH"), os.path.exists)
    return settings.gpu == "on"


def _gpu_collector(
    settings: AcceleratorSettings,
    scope: "GpuScope",
    clock: Clock,
    log: Log,
    interval_ns: int,
    listener: "GpuListener | None",
) -> Collector:
    from profiler.collectors.nvidia.collector import GpuCollector  # see the module's docstring
    from profiler.collectors.nvidia.driver import NvmlSource
    from profiler.collectors.nvidia.library import load_binding

    return GpuCollector(
        NvmlSource(load_binding, clock),
        scope,
        clock,
        log,
        max(interval_ns, _MIN_GPU_INTERVAL_NS),
        is_required=settings.gpu == "on",
        listener=listener,
    )


def _neuron_collectors(
    settings: AcceleratorSettings, environment: Mapping[str, str], clock: Clock, log: Log, interval_ns: int
) -> Iterator[Collector]:
    if settings.neuron == "off":
        return
    program = find_neuron_monitor(environment.get("PATH"))
    if program is None and settings.neuron == "auto":
        return
    from profiler.collectors.neuron.collector import NeuronCollector  # see the module's docstring
    from profiler.collectors.neuron.process import neuron_period_seconds
    from profiler.collectors.neuron.reports import NeuronReport
    from profiler.collectors.neuron.supervisor import NeuronMonitorSource

    period_seconds = neuron_period_seconds(interval_ns / NS_PER_SECOND)

    def make(listener: Callable[[NeuronReport], None]) -> NeuronMonitorSource:
        return NeuronMonitorSource(program or "", period_seconds, listener, clock, log)

    yield NeuronCollector(None if program is None else make, period_seconds, log, is_required=settings.neuron == "on")
