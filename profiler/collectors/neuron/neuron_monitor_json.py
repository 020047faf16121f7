"""The used part of neuron-monitor's reports as msgspec types; the decoder skips the rest.

Skipping saves time: the list of loaded models, which is not used, is three quarters of a large report. Where these
types expect an object or a list they also accept any other JSON value (``UnexpectedJson``), so that one field of an
unexpected type does not cost the others.
"""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

Scalar = None | bool | int | float | str
# What may appear in place of an object, and in place of a list.
UnexpectedJson = Scalar | list[Any]
NonListJson = Scalar | dict[str, Any]
Numbers = dict[str, Any] | UnexpectedJson


class Group(Struct, frozen=True):
    """One metric group: the seconds that it covers, and its error ("" for none)."""

    period: Any = None
    error: Any = None


class Core(Struct, frozen=True):
    """A core's counters."""

    neuroncore_utilization: Any = None


class CoreCounters(Group, frozen=True):
    """``neuroncore_counters``: all cores of the node by index, as text."""

    neuroncores_in_use: dict[str, Core | UnexpectedJson] | UnexpectedJson = None


class Breakdown(Struct, frozen=True):
    """Bytes by core and category."""

    neuroncore_memory_usage: dict[str, Numbers] | UnexpectedJson = None


class UsedBytes(Struct, frozen=True):
    """The memory of a runtime on the devices."""

    neuron_device: Any = None
    usage_breakdown: Breakdown | UnexpectedJson = None


class MemoryUsed(Group, frozen=True):
    """``memory_used``, without the list of models."""

    neuron_runtime_used_bytes: UsedBytes | UnexpectedJson = None


class Latencies(Struct, frozen=True):
    """Seconds by percentile; null if nothing ran."""

    total_latency: Numbers = None
    device_latency: Numbers = None


class ExecutionStats(Group, frozen=True):
    """``execution_stats``, and ``inference_stats`` with its older name for the summary."""

    execution_summary: Numbers = None
    inference_summary: Numbers = None
    latency_stats: Latencies | UnexpectedJson = None


class Device(Struct, frozen=True):
    """The uncorrected memory errors of a device."""

    neuron_device_index: Any = None
    mem_ecc_uncorrected: Any = None
    sram_ecc_uncorrected: Any = None


class HardwareCounters(Group, frozen=True):
    """``neuron_hw_counters``; null instead of a list if no device is visible."""

    neuron_devices: list[Device | UnexpectedJson] | NonListJson = None


class RuntimeGroups(Struct, frozen=True):
    """The groups of one runtime; only runtime 1.x has hardware counters here."""

    neuroncore_counters: CoreCounters | UnexpectedJson = None
    memory_used: MemoryUsed | UnexpectedJson = None
    execution_stats: ExecutionStats | UnexpectedJson = None
    inference_stats: ExecutionStats | UnexpectedJson = None
    hw_counters: HardwareCounters | UnexpectedJson = None


class Runtime(Struct, frozen=True):
    """One process that uses the devices (runtime 1.x: one daemon)."""

    error: Any = None
    report: RuntimeGroups | UnexpectedJson = None


class SystemData(Struct, frozen=True):
    """The groups of the node."""

    neuron_hw_counters: HardwareCounters | UnexpectedJson = None


class HardwareInfo(Struct, frozen=True):
    """The installed devices; the memory size is that of one device."""

    neuron_device_count: Any = None
    neuron_device_memory_size: Any = None
    error: Any = None


class Document(Struct, frozen=True):
    """A report."""

    neuron_runtime_data: list[Runtime | UnexpectedJson] | NonListJson | UnsetType = UNSET
    system_data: SystemData | UnexpectedJson | UnsetType = UNSET
    neuron_hardware_info: HardwareInfo | UnexpectedJson | UnsetType = UNSET
