"""Wires what watches GPUs and Neuron cores; where there are none, nothing of it is imported."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.accelerators.accelerator import Collector
from profiler.clock import Clock
from profiler.logs import Log, NullLog
from profiler.settings import AcceleratorSettings, problems_message, read_accelerator_settings
from profiler.sources.neuron.program import find_neuron_monitor
from profiler.sources.nvml.library import is_driver_present
from profiler.times import NS_PER_SECOND

if TYPE_CHECKING:
    from profiler.accelerators.gpu_scope import GpuScope
    from profiler.accelerators.gpu_watch import GpuListener

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
        from profiler.accelerators.gpu_scope import GpuScope  # noqa: PLC0415  see the module's docstring
        from profiler.sources.container_processes import visible_devices  # noqa: PLC0415

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
        from profiler.accelerators.gpu_scope import GpuScope, own_selection  # noqa: PLC0415  see the module's docstring

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
    from profiler.accelerators.gpu_watch import GpuCollector  # noqa: PLC0415  see the module's docstring
    from profiler.sources.nvml.library import load_binding  # noqa: PLC0415
    from profiler.sources.nvml.source import NvmlSource  # noqa: PLC0415

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
    from profiler.accelerators.neuron_watch import NeuronCollector  # noqa: PLC0415  see the module's docstring
    from profiler.sources.neuron.config import neuron_period_seconds  # noqa: PLC0415
    from profiler.sources.neuron.reports import NeuronReport  # noqa: PLC0415
    from profiler.sources.neuron.source import NeuronMonitorSource  # noqa: PLC0415

    period_seconds = neuron_period_seconds(interval_ns / NS_PER_SECOND)

    def make(listener: Callable[[NeuronReport], None]) -> NeuronMonitorSource:
        return NeuronMonitorSource(program or "", period_seconds, listener, clock, log)

    yield NeuronCollector(None if program is None else make, period_seconds, log, is_required=settings.neuron == "on")
