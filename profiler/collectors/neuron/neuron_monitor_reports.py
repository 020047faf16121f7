"""Parses a line of neuron-monitor into immutable values.

A few msgspec types make the decoder skip the list of loaded models, which is three quarters of a large report. These
types also accept any other JSON value in place of an object or a list: a field of an unexpected type is then absent,
and the other fields are still read.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from profiler.core.json_fields import Json, count, mapping, mappings, text
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable

MAX_BYTES = 2**50
MAX_EVENTS = 10**12  # in one period
MAX_SECONDS = 86_400
# Twice the cores of the largest node. A record lists 128 and states how many more there are.
MAX_CORES = 256
_MAX_DEVICES = 256
_MAX_CATEGORIES = 16  # neuron-monitor has 5 to 7
_MAX_INDEX_DIGITS = 4
_MAX_PROBLEMS = 8
_MIN_PERCENT, _MAX_PERCENT = -1, 105
_MAX_SHOWN_CHARS = 40

_Value = TypeVar("_Value")
_Scalar = None | bool | int | float | str
_NoObject = _Scalar | list[Any]


class _Core(Struct):
    neuroncore_utilization: Any = None


class _CoreCounters(Struct):
    period: Any = None
    error: Any = None
    neuroncores_in_use: dict[str, _Core | _NoObject] | _NoObject = None


class _MemoryUsed(Struct):
    period: Any = None
    error: Any = None
    neuron_runtime_used_bytes: Any = None


class _RuntimeGroups(Struct):
    """The groups of a process that uses the devices; only runtime 1.x has ``inference_stats`` and ``hw_counters``."""

    neuroncore_counters: _CoreCounters | _NoObject = None
    memory_used: _MemoryUsed | _NoObject = None
    execution_stats: Any = None
    inference_stats: Any = None
    hw_counters: Any = None


class _Runtime(Struct):
    error: Any = None
    report: _RuntimeGroups | _NoObject = None


class _Document(Struct):
    neuron_runtime_data: list[_Runtime | _NoObject] | _Scalar | dict[str, Any] | UnsetType = UNSET
    system_data: Any = UNSET
    neuron_hardware_info: Any = UNSET


_Group = TypeVar("_Group", _CoreCounters, _MemoryUsed)


def bounded_count(limit: int, value: Json) -> int | None:
    """The value if it is a whole number from 0 to ``limit``, else None."""
    number = count(value)
    return number if number is not None and number <= limit else None


def bounded_sum(limit: int, values: Iterable[Json]) -> int | None:
    """The sum of the values that are whole numbers from 0 to ``limit``; None if no value is left."""
    total: int | None = None
    for value in values:
        # A large report has 5,000 values, nearly all of them plain integers: the first test halves the time.
        number = value if type(value) is int and 0 <= value <= limit else bounded_count(limit, value)
        if number is not None:
            total = (total or 0) + number
    return total


def percent(value: Json) -> float | None:
    """The value limited to 0 to 100; None if it is not a number, or outside by more than rounding.

    The measured period may be slightly too short, so a valid value can be slightly outside.
    """
    if not _is_number(value) or not _MIN_PERCENT <= value <= _MAX_PERCENT:
        return None
    return float(min(max(value, 0), 100))


def seconds(value: Json) -> float | None:
    """The value if it is a number of seconds from 0 to one day, else None."""
    return float(value) if _is_number(value) and 0 <= value <= MAX_SECONDS else None


def nanoseconds(value: Json) -> int | None:
    """A number of seconds, in whole nanoseconds."""
    known = seconds(value)
    return None if known is None else round(known * NS_PER_SECOND)


def _is_number(value: Json) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Latency(Struct, frozen=True, kw_only=True):
    """Seconds per execution in one period; percentiles as the runtime computed them."""

    p50_seconds: float | None = None
    p99_seconds: float | None = None
    p100_seconds: float | None = None


class RuntimeReport(Struct, frozen=True, kw_only=True):
    """One process that uses the devices, over one period.

    ``utilization_percent`` (0 to 100) and ``core_memory_bytes`` are by the core's index on the node. Every runtime
    lists all cores, with 0 for the cores of others. Memory is a reading of the moment; its categories are sums over all
    cores. ``completed`` and ``failed`` are the executions in the period.
    """

    utilization_percent: Mapping[int, float] | None = None
    utilization_period_ns: int | None = None
    core_memory_bytes: Mapping[int, int] = {}
    memory_bytes_by_category: Mapping[str, int] = {}
    device_memory_bytes: int | None = None
    memory_period_ns: int | None = None
    completed: int | None = None
    failed: int | None = None
    latency: Latency | None = None


class NeuronReport(Struct, frozen=True, kw_only=True):
    """One report. Without runtimes, no process uses the devices.

    ``ecc_uncorrected`` is by device and adds memory and SRAM; ``device_memory_size_bytes`` is the size of one device;
    ``problems`` are the errors that neuron-monitor reports for parts of the report, and the values that are left out
    because they are impossible.
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
        document = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Unavailable(f"it printed a line that is not a JSON object: {error}")
    if document == _Document():
        return Unavailable("it printed a JSON object that is not a report")
    return _ReportParser().report(document)


class _ReportParser:
    """Parses one document and collects the errors in it."""

    def __init__(self) -> None:
        self._problems: dict[str, None] = {}

    def report(self, document: _Document) -> NeuronReport:
        entries = document.neuron_runtime_data
        runtimes = [entry for entry in entries if isinstance(entry, _Runtime)] if isinstance(entries, list) else []
        for runtime in runtimes:
            self._has_no_error(runtime.error)
        groups = [runtime.report for runtime in runtimes if isinstance(runtime.report, _RuntimeGroups)]
        info = self._valid(document.neuron_hardware_info)
        return NeuronReport(
            runtimes=tuple(self._runtime(entry) for entry in groups if entry != _RuntimeGroups()),
            ecc_uncorrected=self._ecc_uncorrected(
                [*(entry.hw_counters for entry in groups), mapping(document.system_data).get("neuron_hw_counters")]
            ),
            device_count=bounded_count(_MAX_DEVICES, info.get("neuron_device_count")),
            device_memory_size_bytes=bounded_count(MAX_BYTES, info.get("neuron_device_memory_size")),
            problems=tuple(self._problems)[:_MAX_PROBLEMS],
        )

    def _has_no_error(self, error: Json) -> bool:
        problem = text(error)
        if problem is not None:
            self._problems[problem] = None
        return problem is None

    def _valid(self, group: Json) -> Mapping[str, Json]:
        """The group if neuron-monitor could read it, else an empty one."""
        fields = mapping(group)
        return fields if self._has_no_error(fields.get("error")) else {}

    def _valid_struct(self, group: Json, kind: type[_Group]) -> _Group:
        return group if isinstance(group, kind) and self._has_no_error(group.error) else kind()

    def _runtime(self, groups: _RuntimeGroups) -> RuntimeReport:
        cores = self._valid_struct(groups.neuroncore_counters, _CoreCounters)
        memory = self._valid_struct(groups.memory_used, _MemoryUsed)
        used = mapping(memory.neuron_runtime_used_bytes)
        core_memory = mapping(mapping(used.get("usage_breakdown")).get("neuroncore_memory_usage"))
        stats = self._valid(groups.execution_stats) or self._valid(groups.inference_stats)
        completed, failed = _executions(stats)
        return RuntimeReport(
            utilization_percent=self._utilization_percent(cores),
            utilization_period_ns=nanoseconds(cores.period),
            core_memory_bytes=self._core_memory_bytes(core_memory),
            memory_bytes_by_category=_memory_bytes_by_category(core_memory),
            device_memory_bytes=bounded_count(MAX_BYTES, used.get("neuron_device")),
            memory_period_ns=nanoseconds(memory.period),
            completed=completed,
            failed=failed,
            latency=_latency(mapping(stats.get("latency_stats"))),
        )

    def _ecc_uncorrected(self, groups: list[Json]) -> Mapping[int, int]:
        errors_by_device: dict[int, int] = {}
        for group in groups:
            for device in mappings(self._valid(group).get("neuron_devices")):
                index = bounded_count(_MAX_DEVICES - 1, device.get("neuron_device_index"))
                counts = (device.get("mem_ecc_uncorrected"), device.get("sram_ecc_uncorrected"))
                errors = bounded_sum(MAX_EVENTS, counts)
                if index is not None and errors is not None:
                    # With runtime 1.x, every daemon reports the same devices.
                    errors_by_device[index] = max(errors, errors_by_device.get(index, 0))
        return errors_by_device

    def _utilization_percent(self, group: _CoreCounters) -> Mapping[int, float] | None:
        cores = group.neuroncores_in_use
        if not isinstance(cores, dict):
            return None
        percent_by_core = {}
        for index, core in self._iter_cores(cores):
            value = core.neuroncore_utilization if isinstance(core, _Core) else None
            used = percent(value)
            if used is not None:
                percent_by_core[index] = used
            elif _is_number(value):
                self._add_impossible(f"the utilization of core {index}", value)
        return percent_by_core

    def _core_memory_bytes(self, core_memory: Mapping[str, Json]) -> Mapping[int, int]:
        """The sum over all categories, because newer versions of neuron-monitor add some."""
        bytes_by_core = {}
        for index, categories in self._iter_cores(core_memory):
            used = bounded_sum(MAX_BYTES, categories.values()) if isinstance(categories, dict) else None
            if used is not None:
                bytes_by_core[index] = used
        return bytes_by_core

    def _iter_cores(self, cores: Mapping[str, _Value]) -> Iterator[tuple[int, _Value]]:
        for key, value in cores.items():
            index = _core_index(key)
            if index is not None:
                yield index, value
            else:
                self._add_impossible("the index of a core", key)

    def _add_impossible(self, name: str, value: float | str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems[f"{name} is {repr(value)[:_MAX_SHOWN_CHARS]}"] = None


def _memory_bytes_by_category(core_memory: Mapping[str, Json]) -> Mapping[str, int]:
    """The sum over the cores, by the categories of the report."""
    totals: dict[str, int] = {}
    for categories in core_memory.values():
        # Most cores belong to other runtimes and have only zeros: skipping these saves two thirds of the time.
        if not isinstance(categories, dict) or (totals and not any(categories.values())):
            continue
        for name, value in categories.items():
            used = bounded_count(MAX_BYTES, value)
            if used is not None and (name in totals or len(totals) < _MAX_CATEGORIES):
                totals[name] = totals.get(name, 0) + used
    return totals


def _executions(stats: Mapping[str, Json]) -> tuple[int | None, int | None]:
    """The completed executions, and the failed ones: all keys but ``completed``."""
    summary = mapping(stats.get("execution_summary")) or mapping(stats.get("inference_summary"))
    failures = (value for name, value in summary.items() if name != "completed")
    return bounded_count(MAX_EVENTS, summary.get("completed")), bounded_sum(MAX_EVENTS, failures)


def _latency(stats: Mapping[str, Json]) -> Latency | None:
    """The total latency, else the latency of the device; None if neither has a number."""
    for name in ("total_latency", "device_latency"):
        percentiles = mapping(stats.get(name))
        latency = Latency(
            p50_seconds=seconds(percentiles.get("p50")),
            p99_seconds=seconds(percentiles.get("p99")),
            p100_seconds=seconds(percentiles.get("p100")),
        )
        if latency != Latency():
            return latency
    return None


@lru_cache(2 * MAX_CORES)  # Cached: each of 32 runtimes lists the same 32 cores every second.
def _core_index(key: str) -> int | None:
    """The index of a core from its key; None for text that is not a plain index, such as ``01``."""
    is_index = key.isdecimal() and key.isascii() and len(key) <= _MAX_INDEX_DIGITS and key == str(int(key))
    return int(key) if is_index and int(key) < MAX_CORES else None
