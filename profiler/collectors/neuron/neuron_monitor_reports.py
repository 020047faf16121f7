"""Parses a line of neuron-monitor.

Fields without a name here are skipped, such as the long list of loaded models. The type of all
numbers is ``object``, so that an impossible one makes only itself absent. A line in which a part
has another type is decoded again without that part.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, astuple

from profiler.collectors.impossible_readings import possible_percent
from profiler.core.json_fields import Json, count_or_none
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import all_known, first_known, known, known_values, sum_known
from profiler.readers import Unavailable

_MAX_INDEX_DIGITS = 4
_Value = TypeVar("_Value")
_Found = TypeVar("_Found", int, float)

_MAX_COUNT = 2**50  # no node has more bytes or executions
_MAX_SECONDS = 86_400.0
_MAX_PERCENT = 100


class _Group(Struct):
    """A part of the report; ``error`` is the reason if neuron-monitor could not read it.

    It then has no values.
    """

    period: Json = None
    error: str | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__ if self.error else ():
            if name != "error":
                setattr(self, name, None)


class _Utilization(Struct):
    neuroncore_utilization: Json = None


class _CoreCounters(_Group):
    neuroncores_in_use: dict[str, _Utilization | None] | None = None


class _Breakdown(Struct):
    # Bytes by category. New versions of neuron-monitor add some.
    neuroncore_memory_usage: dict[str, dict[str, Json] | None] | None = None


class _UsedBytes(Struct):
    neuron_device: Json = None
    usage_breakdown: _Breakdown | None = None


class _MemoryUsed(_Group):
    neuron_runtime_used_bytes: _UsedBytes | None = None


class Latency(Struct, frozen=True, kw_only=True):
    """Seconds per execution in one period; percentiles as the runtime computed them."""

    p50_seconds: float | None = None
    p99_seconds: float | None = None
    p100_seconds: float | None = None


class _Percentiles(Struct):
    p50: Json = None
    p99: Json = None
    p100: Json = None


class _LatencyStats(Struct):
    total_latency: _Percentiles | None = None
    device_latency: _Percentiles | None = None


class _ExecutionStats(_Group):
    """The executions; runtime 1.x calls them inferences."""

    execution_summary: dict[str, Json] | None = None
    inference_summary: dict[str, Json] | None = None
    latency_stats: _LatencyStats | None = None


class _Device(Struct):
    neuron_device_index: Json = None
    mem_ecc_uncorrected: Json = None
    sram_ecc_uncorrected: Json = None


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
    neuron_device_count: Json = None
    neuron_device_memory_size: Json = None


class _Document(Struct):
    neuron_runtime_data: list[_Runtime] | None = None
    system_data: _SystemData | None = None
    neuron_hardware_info: _HardwareInfo | None = None


class RuntimeReport(Struct, frozen=True, kw_only=True):
    """One process that uses the devices, over one period.

    ``utilization_percent`` (0 to 100) and ``core_memory_bytes`` are by the core's index on the
    node. Every runtime lists all cores, with 0 for the cores of others. Memory is a reading of the
    moment; its categories are sums over all cores. ``completed`` and ``failed`` are the executions
    in the period. A core's number is None, and a category None, if the report had an impossible one
    for it. ``problem`` is why the use or the memory could not be read; "" without one.
    """

    utilization_percent: Mapping[int, float | None] | None = None
    utilization_period_seconds: float | None = None
    core_memory_bytes: Mapping[int, int | None] = {}
    memory_bytes_by_category: Mapping[str, int | None] = {}
    device_memory_bytes: int | None = None
    memory_period_seconds: float | None = None
    completed: int | None = None
    failed: int | None = None
    latency: Latency = Latency()
    problem: str = ""


class NeuronReport(Struct, frozen=True, kw_only=True):
    """One report.

    ``ecc_uncorrected`` is by device and adds memory and SRAM; the size is one device's.
    ``impossible`` is the number of values that cannot be, and are missing.
    """

    runtimes: tuple[RuntimeReport, ...] = ()
    ecc_uncorrected: Mapping[int, int] = {}
    device_count: int | None = None
    device_memory_size_bytes: int | None = None
    problems: tuple[str, ...] = ()
    impossible: int = 0


_decoder = msgspec.json.Decoder(_Document)
# Numbers that JSON does not have. As a text, each is an impossible value.
_NOT_FINITE = re.compile(rb"(?<=[:\[,\s])([-+]?(?:NaN|Infinity|Inf))(?=[\s,}\]])", re.IGNORECASE)


def _document_and_unfit(line: bytes) -> tuple[_Document, int]:
    """The report, and how many of its parts had another type and are missing."""
    try:
        return _decoder.decode(line), 0
    except msgspec.DecodeError:
        # Unlike msgspec's decoder, this one knows numbers of any size.
        value = json.loads(_NOT_FINITE.sub(rb'"\1"', line))
    parts = _TypedParts()
    document = msgspec.convert(parts.typed_parts_of(value, _Document), _Document)
    for runtime in document.neuron_runtime_data or ():
        if (runtime.report or _RuntimeGroups()) == _RuntimeGroups():
            runtime.error = runtime.error or "its report is malformed"
    return document, parts.unfit


class _TypedParts:
    """Takes the parts of a value that have the type of the report; counts the others."""

    def __init__(self) -> None:
        self.unfit = 0

    # Annotations are of any type.
    def typed_parts_of(self, value: Json, kind: Any) -> Json:  # noqa: ANN401
        """The value without parts of another type; None if it has one itself."""
        if get_origin(kind) is UnionType:  # or None
            kind = get_args(kind)[0]
        if value is None or kind is Json:
            return value
        if kind is str:
            return value if isinstance(value, str) else str(value)
        if isinstance(value, list) and get_origin(kind) is list:
            return [self._typed_member(item, get_args(kind)[0]) or {} for item in value]
        if isinstance(value, dict) and get_origin(kind) is dict:
            return {key: self._typed_member(item, get_args(kind)[1]) for key, item in value.items()}
        if isinstance(value, dict) and get_origin(kind) is None:
            hints = get_type_hints(kind)
            return {
                name: self.typed_parts_of(item, hints[name])
                for name, item in value.items()
                if name in hints
            }
        self.unfit += 1
        return None

    # As above.
    def _typed_member(self, item: Json, kind: Any) -> Json:  # noqa: ANN401
        """A core or a process; without its members if it has another type, as it is one."""
        typed_parts_of = self.typed_parts_of(item, kind)
        return {} if typed_parts_of is None and item is not None else typed_parts_of


def decode_report(line: bytes) -> NeuronReport | Unavailable:
    """Decode one line; returns the reason if it is not a report."""
    try:
        document, unfit = _document_and_unfit(within_levels(line))
    except (msgspec.DecodeError, ValueError) as error:
        return Unavailable(f"it printed a line that is not a report: {error}")
    if document == _Document():
        return Unavailable("it printed a JSON object that is not a report")
    runtimes = document.neuron_runtime_data or ()
    groups = known_values(runtime.report for runtime in runtimes)
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
    numbers = _Numbers(unfit)
    devices = numbers.count(info.neuron_device_count)
    size_bytes = numbers.count(info.neuron_device_memory_size)
    most_bytes = (devices or 0) * (size_bytes or 0) or _MAX_COUNT
    return NeuronReport(
        device_count=devices,
        device_memory_size_bytes=size_bytes,
        # Of a process with an error and without groups nothing is known.
        runtimes=tuple(
            _runtime(runtime, numbers, most_bytes)
            for runtime in runtimes
            if runtime.error or (runtime.report or _RuntimeGroups()) != _RuntimeGroups()
        ),
        ecc_uncorrected=_ecc_uncorrected(counters, numbers),
        problems=tuple(problems)[:8],
        impossible=numbers.impossible,
    )


class _Numbers:
    """Reads the numbers of a report, and counts those that cannot be, and parts that are no
    such values.
    """

    def __init__(self, unfit: int) -> None:
        self.impossible = unfit

    def count(self, value: Json, most: int = _MAX_COUNT) -> int | None:
        found = count_or_none(value)
        return self._noting_impossible(
            value, found if first_known(found, math.inf) <= most else None
        )

    def seconds(self, value: Json) -> float | None:
        found = _number(value)
        is_possible = 0 <= first_known(found, -1) <= _MAX_SECONDS
        return self._noting_impossible(value, found if is_possible else None)

    def percent(self, value: Json) -> float | None:
        # The fast way of nearly all values.
        if (type(value) is float or type(value) is int) and 0 <= value <= _MAX_PERCENT:
            return float(value)
        found = _number(value)
        return self._noting_impossible(value, known(possible_percent, found))

    def latency(self, percentiles: _Percentiles | None) -> Latency:
        read: dict[str, float | None] = {}
        for name, value in asdict(percentiles or _Percentiles()).items():
            read[f"{name}_seconds"] = self.seconds(value)
        return Latency(**read)

    def _noting_impossible(self, value: Json, found: _Found | None) -> _Found | None:
        self.impossible += value is not None and found is None
        return found


def _number(value: Json) -> float | None:
    return float(value) if type(value) in (int, float) and isinstance(value, int | float) else None


def _runtime(runtime: _Runtime, numbers: _Numbers, most_bytes: int) -> RuntimeReport:
    """``most_bytes``: of memory on all devices."""
    groups = runtime.report or _RuntimeGroups()
    cores = groups.neuroncore_counters or _CoreCounters()
    percents: dict[int, float | None] | None = None
    if cores.neuroncores_in_use is not None:
        percents = {}
        for index, core in _cores_by_index(cores.neuroncores_in_use):
            if core is not None:
                percents[index] = numbers.percent(core.neuroncore_utilization)
    memory = groups.memory_used or _MemoryUsed()
    used = memory.neuron_runtime_used_bytes or _UsedBytes()
    core_memory = (used.usage_breakdown or _Breakdown()).neuroncore_memory_usage or {}
    categories = {
        index: _sizes_by_category(listed or {}, numbers, most_bytes)
        for index, listed in _cores_by_index(core_memory)
    }
    stats = groups.execution_stats or groups.inference_stats or _ExecutionStats()
    stated = stats.latency_stats or _LatencyStats()
    device_latency = numbers.latency(stated.device_latency)
    latency = numbers.latency(stated.total_latency)
    summary = stats.execution_summary or stats.inference_summary or {}
    failed = None
    for name, number in summary.items():
        if name != "completed":
            failed = sum_known(failed, numbers.count(number))
    return RuntimeReport(
        utilization_percent=percents,
        utilization_period_seconds=numbers.seconds(cores.period),
        core_memory_bytes={
            core: _total_if_all_known(sizes) for core, sizes in categories.items() if sizes
        },
        memory_bytes_by_category=_sums_by_category(categories.values()),
        device_memory_bytes=numbers.count(used.neuron_device, most_bytes),
        memory_period_seconds=numbers.seconds(memory.period),
        completed=numbers.count(summary.get("completed")),
        failed=failed,
        latency=device_latency if latency == Latency() else latency,
        problem=runtime.error or cores.error or memory.error or "",
    )


def _ecc_uncorrected(
    groups: Iterable[_HardwareCounters | None], numbers: _Numbers
) -> Mapping[int, int]:
    errors_by_device: dict[int, int] = {}
    for group in groups:
        for device in (group or _HardwareCounters()).neuron_devices or ():
            before = numbers.impossible
            index = numbers.count(device.neuron_device_index)
            errors = sum_known(
                numbers.count(device.mem_ecc_uncorrected),
                numbers.count(device.sram_ecc_uncorrected),
            )
            # A part of the errors would look like a counter that begins again.
            read = all_known(index, errors)
            if read is not None and numbers.impossible == before:
                index, errors = read
                # With runtime 1.x, every daemon reports the same devices.
                errors_by_device[index] = max(errors, errors_by_device.get(index, 0))
    return errors_by_device


def _cores_by_index(cores: Mapping[str, _Value]) -> Iterator[tuple[int, _Value]]:
    """The cores by their index on the node; the parts of Trn2's logical cores, such as
    ``nc_v3.0``, are skipped.
    """
    for core, value in cores.items():
        if core.isdecimal() and len(core) <= _MAX_INDEX_DIGITS:
            yield int(core), value


def _sizes_by_category(
    categories: Mapping[str, Json], numbers: _Numbers, most_bytes: int
) -> Mapping[str, int | None]:
    """The bytes by category; what is no number, such as new groups of categories, is skipped."""
    sizes: dict[str, int | None] = {}
    for name, value in categories.items():
        if type(value) is int and 0 <= value <= most_bytes:  # the fast way of nearly all
            sizes[name] = value
        elif _number(value) is not None:
            sizes[name] = numbers.count(value, most_bytes)
    return sizes


def _total_if_all_known(sizes: Mapping[str, int | None]) -> int | None:
    """The sum of the sizes; None if one is unknown."""
    return known(sum, all_known(*sizes.values()))


def _sums_by_category(cores: Iterable[Mapping[str, int | None]]) -> Mapping[str, int | None]:
    totals: Counter[str] = Counter()
    unknown: dict[str, None] = {}
    for sizes in cores:
        # Most cores belong to other runtimes and have only zeros: skipping these saves two thirds
        # of the time.
        if totals and not any(sizes.values()) and None not in sizes.values():
            continue
        for name, size in sizes.items():
            if size is None:
                unknown[name] = None
            else:
                totals[name] += size
    return {**totals, **unknown}
