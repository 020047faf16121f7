"""Parses a line of neuron-monitor.

Fields without a name here are skipped, such as the long list of loaded models.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from profiler.core.json_fields import count
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import sum_known
from profiler.readers import Unavailable

_MAX_INDEX_DIGITS = 4
_Value = TypeVar("_Value")

_MAX_COUNT = 2**50  # no node has more bytes or executions
_Count = Annotated[int, Meta(ge=0, le=_MAX_COUNT)]
_Seconds = Annotated[float, Meta(ge=0, le=86_400)]


class _Group(Struct):
    """A part of the report; ``error`` is the reason if neuron-monitor could not read it.

    It then has no values.
    """

    period: _Seconds | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__ if self.error else ():
            if name != "error":
                setattr(self, name, None)


class _Utilization(Struct):
    neuroncore_utilization: float | None = None


class _CoreCounters(_Group):
    neuroncores_in_use: dict[str, _Utilization | None] | None = None


class _Breakdown(Struct):
    # Bytes by category. New versions of neuron-monitor add some.
    neuroncore_memory_usage: dict[str, dict[str, Any] | None] | None = None


class _UsedBytes(Struct):
    neuron_device: _Count | None = None
    usage_breakdown: _Breakdown | None = None


class _MemoryUsed(_Group):
    neuron_runtime_used_bytes: _UsedBytes | None = None


class Latency(Struct, frozen=True, kw_only=True, rename=lambda name: name.removesuffix("_seconds")):
    """Seconds per execution in one period; percentiles as the runtime computed them."""

    p50_seconds: _Seconds | None = None
    p99_seconds: _Seconds | None = None
    p100_seconds: _Seconds | None = None


class _LatencyStats(Struct):
    total_latency: Latency | None = None
    device_latency: Latency | None = None


class _ExecutionStats(_Group):
    """The executions; runtime 1.x calls them inferences."""

    execution_summary: dict[str, _Count] | None = None
    inference_summary: dict[str, _Count] | None = None
    latency_stats: _LatencyStats | None = None


class _Device(Struct):
    neuron_device_index: _Count
    mem_ecc_uncorrected: _Count | None = None
    sram_ecc_uncorrected: _Count | None = None


class _HardwareCounters(_Group):
    neuron_devices: list[_Device] | None = None


class _RuntimeGroups(Struct):
    """The groups of a process that uses the devices; only runtime 1.x has ``inference_stats``
    and ``hw_counters``.
    """

    neuroncore_counters: _CoreCounters | None = None
    memory_used: _MemoryUsed | None = None
    execution_stats: _ExecutionStats | None = None
    inference_stats: _ExecutionStats | None = None
    hw_counters: _HardwareCounters | None = None


class _Runtime(Struct):
    error: str | None = None
    report: _RuntimeGroups | None = None


class _SystemData(Struct):
    neuron_hw_counters: _HardwareCounters | None = None


class _HardwareInfo(_Group):
    neuron_device_count: _Count | None = None
    neuron_device_memory_size: _Count | None = None


class _Document(Struct):
    neuron_runtime_data: list[_Runtime] | None = None
    system_data: _SystemData | None = None
    neuron_hardware_info: _HardwareInfo | None = None


class RuntimeReport(Struct, frozen=True, kw_only=True):
    """One process that uses the devices, over one period.

    ``utilization_percent`` (0 to 100) and ``core_memory_bytes`` are by the core's index on the
    node. Every runtime lists all cores, with 0 for the cores of others. Memory is a reading of the
    moment; its categories are sums over all cores. ``completed`` and ``failed`` are the executions
    in the period.
    """

    utilization_percent: Mapping[int, float] | None = None
    utilization_period_seconds: float | None = None
    core_memory_bytes: Mapping[int, int] = {}
    memory_bytes_by_category: Mapping[str, int] = {}
    device_memory_bytes: int | None = None
    memory_period_seconds: float | None = None
    completed: int | None = None
    failed: int | None = None
    latency: Latency | None = None


class NeuronReport(Struct, frozen=True, kw_only=True):
    """One report.

    ``ecc_uncorrected`` is by device and adds memory and SRAM; the size is one device's.
    """

    runtimes: tuple[RuntimeReport, ...] = ()
    ecc_uncorrected: Mapping[int, int] = {}
    device_count: int | None = None
    device_memory_size_bytes: int | None = None
    problems: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(_Document)


def decode_report(line: bytes) -> NeuronReport | Unavailable:
    """Decode one line; returns the reason if it is not a report."""
    try:
        document = _decoder.decode(within_levels(line))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Unavailable(f"it printed a line that is not a report: {error}")
    if document == _Document():
        return Unavailable("it printed a JSON object that is not a report")
    runtimes = document.neuron_runtime_data or ()
    groups = [runtime.report for runtime in runtimes if runtime.report is not None]
    info = document.neuron_hardware_info or _HardwareInfo()
    counters = [entry.hw_counters for entry in groups]
    counters.append((document.system_data or _SystemData()).neuron_hw_counters)
    parts: list[_Runtime | _Group | None] = [*runtimes, info]
    for entry in groups:
        parts.extend(astuple(entry))
    parts.append(counters[-1])
    problems: dict[str, None] = {}
    for part in parts:
        if part is not None and part.error:
            problems[part.error] = None
    return NeuronReport(
        runtimes=tuple(_runtime(entry) for entry in groups if entry != _RuntimeGroups()),
        ecc_uncorrected=_ecc_uncorrected(counters),
        device_count=info.neuron_device_count,
        device_memory_size_bytes=info.neuron_device_memory_size,
        problems=tuple(problems)[:8],
    )


def _runtime(groups: _RuntimeGroups) -> RuntimeReport:
    cores = groups.neuroncore_counters or _CoreCounters()
    # The measured period may be slightly too short, so a value can be slightly above 100.
    percents: dict[int, float] | None = None
    if cores.neuroncores_in_use is not None:
        percents = {}
        for index, core in _by_index(cores.neuroncores_in_use):
            if core.neuroncore_utilization is not None:
                percents[index] = min(max(core.neuroncore_utilization, 0.0), 100.0)
    memory = groups.memory_used or _MemoryUsed()
    used = memory.neuron_runtime_used_bytes or _UsedBytes()
    core_memory = (used.usage_breakdown or _Breakdown()).neuroncore_memory_usage or {}
    categories = {index: _sizes(listed) for index, listed in _by_index(core_memory)}
    stats = groups.execution_stats or groups.inference_stats or _ExecutionStats()
    latency = stats.latency_stats or _LatencyStats()
    summary = stats.execution_summary or stats.inference_summary or {}
    failed = None
    for name, number in summary.items():
        if name != "completed":
            failed = sum_known(failed, number)
    known_latency = latency.total_latency
    if known_latency in (None, Latency()):
        known_latency = latency.device_latency
    if known_latency == Latency():
        known_latency = None
    return RuntimeReport(
        utilization_percent=percents,
        utilization_period_seconds=cores.period,
        core_memory_bytes={
            core: sum(sizes.values()) for core, sizes in categories.items() if sizes
        },
        memory_bytes_by_category=_by_category(categories.values()),
        device_memory_bytes=used.neuron_device,
        memory_period_seconds=memory.period,
        completed=summary.get("completed"),
        failed=failed,
        latency=known_latency,
    )


def _ecc_uncorrected(groups: Iterable[_HardwareCounters | None]) -> Mapping[int, int]:
    errors_by_device: dict[int, int] = {}
    for group in groups:
        for device in (group or _HardwareCounters()).neuron_devices or ():
            errors = sum_known(device.mem_ecc_uncorrected, device.sram_ecc_uncorrected)
            if errors is not None:
                # With runtime 1.x, every daemon reports the same devices.
                index = device.neuron_device_index
                errors_by_device[index] = max(errors, errors_by_device.get(index, 0))
    return errors_by_device


def _by_index(cores: Mapping[str, _Value | None]) -> Iterator[tuple[int, _Value]]:
    """The cores by their index on the node; the parts of Trn2's logical cores, such as
    ``nc_v3.0``, are skipped.
    """
    for core, value in cores.items():
        if value is not None and core.isdecimal() and len(core) <= _MAX_INDEX_DIGITS:
            yield int(core), value


def _sizes(categories: Mapping[str, Any]) -> Mapping[str, int]:
    """The bytes by category; other values, such as new groups of categories, are skipped."""
    sizes: dict[str, int] = {}
    for name, value in categories.items():
        size = count(value)
        if size is not None and size <= _MAX_COUNT:
            sizes[name] = size
    return sizes


def _by_category(cores: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    totals: Counter[str] = Counter()
    for sizes in cores:
        # Most cores belong to other runtimes and have only zeros: skipping these saves two thirds
        # of the time.
        if not totals or any(sizes.values()):
            totals.update(sizes)
    return totals
