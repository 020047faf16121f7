"""Wires what watches GPUs and Neuron cores; where there are none, nothing of it is imported."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.accelerators.accelerator import Accelerator
from profiler.clock import Clock
from profiler.logs import Log, SilentLog
from profiler.settings import AcceleratorSettings, problems_message, read_accelerator_settings
from profiler.sources.neuron.program import find_neuron_monitor
from profiler.sources.nvml.library import driver_is_near
from profiler.times import NS_PER_SECOND

if TYPE_CHECKING:
    from profiler.accelerators.gpu_scope import GpuScope
    from profiler.accelerators.gpu_watch import GpuListener

# The driver's own window for utilization is no shorter.
_SHORTEST_GPU_STEP_NS = NS_PER_SECOND // 10


class LocalAccelerators(Struct, frozen=True, kw_only=True):
    """What ``run`` watches, and what was wrong with its settings."""

    accelerators: tuple[Accelerator, ...]
    problems: tuple[str, ...] = ()


def task_accelerators(
    settings: AcceleratorSettings, environment: Mapping[str, str], clock: Clock, log: Log, interval_ns: int
) -> tuple[Accelerator, ...]:
    """The accelerators that the monitor watches in its task."""

    def scope() -> "GpuScope":
        from profiler.accelerators.gpu_scope import GpuScope  # noqa: PLC0415  see the module's docstring
        from profiler.sources.container_processes import visible_devices  # noqa: PLC0415

        return GpuScope(settings.gpu_uuids, visible_devices)

    return _watches(settings, environment, scope, clock, log, interval_ns, None)


def local_accelerators(
    environment: Mapping[str, str],
    clock: Clock,
    interval_seconds: float,
    listener: "GpuListener | None",
) -> LocalAccelerators:
    """The accelerators beside a local command.

    Which of the GPUs are the command's, the environment may tell: others may use those that are visible, too.
    """
    settings = read_accelerator_settings(environment)
    problems = (problems_message(settings.problems),) if settings.problems else ()

    def scope() -> "GpuScope":
        from profiler.accelerators.gpu_scope import GpuScope, own_choice  # noqa: PLC0415  see the module's docstring

        return GpuScope(settings.gpu_uuids, otherwise=own_choice(environment.get("NVIDIA_VISIBLE_DEVICES", "")))

    interval_ns = round(interval_seconds * NS_PER_SECOND)
    watches = _watches(settings, environment, scope, clock, SilentLog(), interval_ns, listener)
    return LocalAccelerators(accelerators=watches, problems=problems)


def _watches(
    settings: AcceleratorSettings,
    environment: Mapping[str, str],
    scope: "Callable[[], GpuScope]",
    clock: Clock,
    log: Log,
    interval_ns: int,
    listener: "GpuListener | None",
) -> tuple[Accelerator, ...]:
    """``scope`` is asked for only where there are GPUs: which of them are the batch's."""
    gpus = _gpus_are_wanted(settings, environment)
    return (
        *((_gpu_watch(settings, scope(), clock, log, interval_ns, listener),) if gpus else ()),
        *_neuron_watches(settings, environment, clock, log, interval_ns),
    )


def _gpus_are_wanted(settings: AcceleratorSettings, environment: Mapping[str, str]) -> bool:
    if settings.gpu == "auto":
        return driver_is_near(environment.get("LD_LIBRARY_PATH"), os.path.exists)
    return settings.gpu == "on"


def _gpu_watch(
    settings: AcceleratorSettings,
    scope: "GpuScope",
    clock: Clock,
    log: Log,
    interval_ns: int,
    listener: "GpuListener | None",
) -> Accelerator:
    from profiler.accelerators.gpu_watch import GpuWatch  # noqa: PLC0415  see the module's docstring
    from profiler.sources.nvml.library import load_binding  # noqa: PLC0415
    from profiler.sources.nvml.source import NvmlSource  # noqa: PLC0415

    return GpuWatch(
        NvmlSource(load_binding, clock),
        scope,
        clock,
        log,
        max(interval_ns, _SHORTEST_GPU_STEP_NS),
        asked_for=settings.gpu == "on",
        listener=listener,
    )


def _neuron_watches(
    settings: AcceleratorSettings, environment: Mapping[str, str], clock: Clock, log: Log, interval_ns: int
) -> Iterator[Accelerator]:
    if settings.neuron == "off":
        return
    program = find_neuron_monitor(environment.get("PATH"))
    if program is None and settings.neuron == "auto":
        return
    from profiler.accelerators.neuron_watch import NeuronWatch  # noqa: PLC0415  see the module's docstring
    from profiler.sources.neuron.config import neuron_period_seconds  # noqa: PLC0415
    from profiler.sources.neuron.reports import NeuronReport  # noqa: PLC0415
    from profiler.sources.neuron.source import NeuronMonitorSource  # noqa: PLC0415

    period_seconds = neuron_period_seconds(interval_ns / NS_PER_SECOND)

    def make(listener: Callable[[NeuronReport], None]) -> NeuronMonitorSource:
        return NeuronMonitorSource(program or "", period_seconds, listener, clock, log)

    yield NeuronWatch(None if program is None else make, period_seconds, log, asked_for=settings.neuron == "on")
