"""One GPU, read field by field: an unsupported or impossible field is absent alone. The error
events (Xid) of all GPUs.
"""

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from profiler.collectors.impossible_readings import possible_percent
from profiler.collectors.nvidia.driver_samples import DriverSamples
from profiler.collectors.nvidia.gpm import REFUSED, GpmReader
from profiler.collectors.nvidia.nvml_calls import ErrorAction, Failure, Nvml, call_nvml
from profiler.collectors.nvidia.process_lists import LISTS, ProcessLists
from profiler.collectors.nvidia.visible_gpus import ENERGY, GpuFacts, GpuSample, Xid
from profiler.core.clock import Clock
from profiler.core.optional_math import known, quotient
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.device_limits import MAX_CELSIUS, MAX_MEMORY_BYTES, MAX_MHZ, MAX_WATTS

# More events in one second are one fault repeated.
_MAX_EVENTS_PER_READ = 64

_DEVICE_WIDE = (ErrorAction.DEVICE_LOST, ErrorAction.REINITIALIZE)
# The driver's counters: NVML's function, and the names of its arguments.
_COUNTERS = {
    ENERGY: ("nvmlDeviceGetTotalEnergyConsumption",),
    "ecc_uncorrected": (
        "nvmlDeviceGetTotalEccErrors",
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED",
        "NVML_VOLATILE_ECC",
    ),
}
_MOST = {
    "power_watts": MAX_WATTS,
    "sm_clock_mhz": MAX_MHZ,
    "temperature_celsius": MAX_CELSIUS,
}
# Of a mask in which each bit is set, idle and busy at once, nothing is true.
_ALL_REASONS = 2**32 - 1
_MAX_ERRORS = 2**40
_MAX_MILLIJOULES = 2**60  # of 7,000 years at the largest power
# A counter of energy may be late.
_COUNTER_LATENESS_NS = 10 * NS_PER_SECOND


def _value_if_possible(name: str, value: float) -> float | None:
    if name == "utilization_percent":
        return possible_percent(value)
    return value if 0 <= value <= _MOST[name] else None


class _EnergyReadings:
    """Which values of the counter of energy are possible.

    A driver that is loaded again begins at 0: two values that grow from a small one are believed.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._restart = math.inf  # a value below the last one, if it may be a new start

    def is_possible(self, millijoules: int, now_ns: int) -> bool:
        if self._last is None:
            is_possible = millijoules <= _MAX_MILLIJOULES
        else:
            last, last_ns = self._last
            passed_seconds = (now_ns - last_ns + _COUNTER_LATENESS_NS) / NS_PER_SECOND
            most = _MOST["power_watts"] * 1000 * passed_seconds
            is_back = millijoules < last
            is_restarted = self._restart < millijoules
            self._restart = millijoules if is_back else math.inf
            growth = millijoules if is_back else millijoules - last
            is_possible = growth <= most and (is_restarted or not is_back)
        if is_possible:
            self._last = (millijoules, now_ns)
            self._restart = math.inf
        return is_possible


# What NVML has only of a whole GPU (nvml.h: "MIG devices are not supported").
_OF_WHOLE_GPUS = (
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    *(function for function, *_ in _COUNTERS.values()),
)
# What it has only of the parts, where MIG divides a GPU.
_OF_PARTS = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", *LISTS)


def _unsupported_by_mig(facts: GpuFacts) -> Sequence[str]:
    """The functions that need not be asked where MIG divides a GPU."""
    if facts.part is not None:
        return _OF_WHOLE_GPUS
    return _OF_PARTS if facts.is_divided else ()


class Device:
    """Reads one device by its handle, which is valid until NVML is shut down."""

    # As above.
    def __init__(
        self,
        nvml: Nvml,
        handle: Any,  # noqa: ANN401
        facts: GpuFacts,
        clock: Clock,
    ) -> None:
        self._nvml = nvml
        self._unsupported = set(_unsupported_by_mig(facts))
        self._failure: Failure | None = None
        self._clock = clock
        self._energy = _EnergyReadings()
        self.handle = handle
        self.facts = facts
        is_whole = not self._unsupported
        self.gpm = GpmReader(nvml, handle, clock, is_available=is_whole)
        self._driver_samples = DriverSamples(nvml, handle, clock, is_available=is_whole)
        self._lists = ProcessLists(self._field, clock)
        self.silent_reads = 0
        self._is_permission_denied = False

    @property
    def notes(self) -> Iterator[str]:
        if self._is_permission_denied:
            yield (
                "The driver does not allow this container to read all numbers of the GPU "
                f"{self.facts.uuid}."
            )
        if self.gpm.is_refused:
            yield REFUSED
        if self.facts.part is not None:
            yield (
                f"MIG divides the GPU {self.facts.part.gpu_uuid}: the memory and the processes of "
                "its parts are read, not how much they work."
            )
        if self.facts.is_divided:
            yield (
                f"MIG divides the GPU {self.facts.uuid}, and its parts are not visible here: "
                "how much they work and what memory they use is not known."
            )

    def read_quickly(self, *, with_memory: bool) -> GpuSample:
        """Between two readings: the processes, with their memory, or that of the device."""
        if with_memory:
            sample = self._with_memory(GpuSample(facts=self.facts))
        else:
            sample = GpuSample(facts=self.facts, processes=self._lists.read_processes())
        self._failure = None
        return sample

    def answers(self) -> bool:
        """Whether the driver answers for the device; what it has counted is read later."""
        self._with_memory(GpuSample(facts=self.facts))
        failure = self._failure
        self._failure = None
        return failure is None

    def _with_memory(self, sample: GpuSample) -> GpuSample:
        # Version 2 of the call leaves out the memory that the driver reserves.
        memory = self._field("nvmlDeviceGetMemoryInfo", version=self._nvml.nvmlMemory_v2)
        if memory is None:
            return sample
        if not (0 <= memory.used <= memory.total and 0 < memory.total <= MAX_MEMORY_BYTES):
            return replace(sample, impossible=(*sample.impossible, "memory_used_bytes"))
        self._lists.device_bytes = int(memory.total)
        return replace(
            sample, memory_used_bytes=int(memory.used), memory_size_bytes=int(memory.total)
        )

    def read_sample(self, *, counters: bool) -> GpuSample | Failure:
        """Read the fast fields and, with ``counters`` or when they are due, the slow ones;
        returns a failure if errors leave no field.
        """
        nvml = self._nvml
        sample = self._with_memory(GpuSample(facts=self.facts))
        utilization = self._field("nvmlDeviceGetUtilizationRates")
        power_milliwatts = self._field("nvmlDeviceGetPowerUsage")
        readings: dict[str, float | None] = {
            "utilization_percent": known(attrgetter("gpu"), utilization),
            "power_watts": quotient(power_milliwatts, 1000),
            "sm_clock_mhz": self._field("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "temperature_celsius": self._field(
                "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU
            ),
        }
        values: dict[str, Any] = {}
        impossible: list[str] = []
        for name, value in readings.items():
            if value is not None:
                values[name] = _value_if_possible(name, value)
                if values[name] is None:
                    impossible.append(name)
        # Newer drivers call these event reasons, and still have the function under its old name.
        reasons = self._field("nvmlDeviceGetCurrentClocksThrottleReasons")
        if reasons is not None and reasons & _ALL_REASONS == _ALL_REASONS:
            reasons = None
            impossible.append("throttle_reasons")
        counted = self._read_counters(impossible) if counters else {}
        sample = replace(
            sample,
            throttle_reasons=reasons,
            counters=counted,
            impossible=(*sample.impossible, *impossible),
            **values,
        )
        processes = self._lists.read_processes(
            memory_bytes=sample.memory_used_bytes, is_complete=counters
        )
        impossible = [*sample.impossible, *["processes"] * self._lists.impossible]
        self._lists.impossible = 0
        failure = self._failure
        self._failure = None
        is_silent = failure is not None and sample == GpuSample(facts=self.facts)
        sample = replace(sample, processes=processes, impossible=tuple(impossible))
        sample = self._with_windows(sample, is_complete=counters)
        if is_silent:
            self.silent_reads += 1
        else:
            self.silent_reads = 0
        if failure is not None and (is_silent or failure.action in _DEVICE_WIDE):
            return failure
        return self.gpm.with_gpm_metrics(sample, is_complete=counters)

    def _with_windows(self, sample: GpuSample, *, is_complete: bool) -> GpuSample:
        before = self._driver_samples.impossible
        windows = self._driver_samples.read_new_windows(is_complete=is_complete)
        names = ("samples",) * (self._driver_samples.impossible - before)
        return replace(sample, windows=windows, impossible=(*sample.impossible, *names))

    def _read_counters(self, impossible: list[str]) -> Mapping[str, int]:
        """The counters; adds the names of impossible ones to ``impossible``."""
        counted: dict[str, int] = {}
        for name, (function, *kinds) in _COUNTERS.items():
            value = self._field(function, *[getattr(self._nvml, kind) for kind in kinds])
            if value is None:
                continue
            is_possible = value <= _MAX_ERRORS
            if name == ENERGY:
                is_possible = self._energy.is_possible(value, self._clock.monotonic_ns())
            if is_possible:
                counted[name] = value
            else:
                impossible.append(name)
        return counted

    # The driver's types.
    def _field(self, function: str, *arguments: int, **options: int) -> Any | None:  # noqa: ANN401
        if function in self._unsupported or (
            self._failure is not None and self._failure.action in _DEVICE_WIDE
        ):
            return None
        answer = call_nvml(self._nvml, function, self.handle, *arguments, **options)
        if not isinstance(answer, Failure):
            return answer
        if answer.action is ErrorAction.UNSUPPORTED:
            self._unsupported.add(function)
        elif answer.action is ErrorAction.PERMISSION_DENIED:
            self._is_permission_denied = True
        else:
            self._failure = answer
        return None


class XidEvents:
    """The error events since the registration, which is lost when NVML is shut down.

    Those of a part of a GPU come from the whole GPU, with the number of the part.
    """

    def __init__(self, nvml: Nvml, devices: Sequence[Device]) -> None:
        self._nvml = nvml
        self._parts: dict[tuple[str, int | None], str] = {}
        self._divided: set[str] = set()
        self._uuids: dict[int | None, str] = {}  # by the address of the handle
        # A GPU of the set is lost: until a new one is made, the driver waits for no GPU.
        self.is_broken = False
        events = call_nvml(nvml, "nvmlEventSetCreate")
        self._events = None if isinstance(events, Failure) else events
        self._unregistered: dict[str, None] = {}
        self._registered: dict[str, None] = {}
        for device in devices:
            self.register(device)
        if len(self._unregistered) == len(devices):
            self.close()

    @property
    def notes(self) -> Iterator[str]:
        if self._unregistered:  # an empty list of errors proves nothing there
            uuids = ", ".join(self._unregistered)
            yield f"The driver does not report the errors (Xid) of {uuids}: xids stay empty there."

    def register(self, device: Device) -> None:
        handle = device.handle
        part = device.facts.part
        uuid = device.facts.uuid
        if part is not None:
            uuid = part.gpu_uuid
            self._parts[uuid, part.instance] = device.facts.uuid
            if uuid in self._divided:
                return
            handle = call_nvml(self._nvml, "nvmlDeviceGetHandleByUUID", uuid)
        kind = self._nvml.nvmlEventTypeXidCriticalError
        if (
            self._events is None
            or isinstance(handle, Failure)
            or isinstance(
                call_nvml(self._nvml, "nvmlDeviceRegisterEvents", handle, kind, self._events),
                Failure,
            )
        ):
            self._unregistered[device.facts.uuid] = None
            return
        self._registered[device.facts.uuid] = None
        self._uuids[_handle_address(handle)] = uuid
        if part is not None:
            self._divided.add(uuid)

    def take_events(self) -> tuple[Xid, ...]:
        xids: list[Xid] = []
        for _ in range(0 if self._events is None else _MAX_EVENTS_PER_READ):
            # The shortest timeout is 1 ms. Without an event the driver returns "timeout" after it.
            event = call_nvml(self._nvml, "nvmlEventSetWait_v2", self._events, 1)
            if isinstance(event, Failure):
                self.is_broken = event.action is ErrorAction.DEVICE_LOST
                if event.action in (ErrorAction.UNSUPPORTED, ErrorAction.PERMISSION_DENIED):
                    self._unregistered |= self._registered
                break
            xids.append(Xid(self._gpu_of(event), int(event.eventData)))
        return tuple(xids)

    # The driver's type.
    def _gpu_of(self, event: Any) -> str | None:  # noqa: ANN401
        # A GPU that has fallen off the bus does not say its UUID any more.
        uuid = self._uuids.get(_handle_address(event.device))
        if uuid in self._divided:
            return self._parts.get((uuid, event.gpuInstanceId))
        return uuid

    def close(self) -> None:
        if self._events is not None:
            call_nvml(self._nvml, "nvmlEventSetFree", self._events)
            self._events = None


# The driver's type.
def _handle_address(handle: Any) -> int | None:  # noqa: ANN401
    return ctypes.cast(handle, ctypes.c_void_p).value
