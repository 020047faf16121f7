"""One GPU, read field by field, and the error events (Xid) of all GPUs.

A field that one driver or GPU does not support is absent; the others are still read.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from profiler.collectors.nvidia.gpu_reading_types import GpuFacts, GpuSample, Xid
from profiler.collectors.nvidia.nvml_library import ErrorAction, Nvml, action_for_error

_MILLIWATTS_PER_WATT = 1000
_PERCENT = 100
_MEMORY = "nvmlDeviceGetMemoryInfo"
_DEVICE_WIDE_ACTIONS = (ErrorAction.DEVICE_LOST, ErrorAction.REINITIALIZE)
_OLD_DRIVER = (
    "The NVIDIA driver is too old to report the memory that it reserves for itself: memoryUsedMB of the GPUs "
    "includes that memory."
)
# The shortest timeout of the call; without an event the driver returns "timeout" after it.
_EVENT_TIMEOUT_MS = 1
# More events in one second are one fault repeated.
_MAX_EVENTS_PER_READ = 64


class Failure(Struct, frozen=True):
    """A failed NVML call: what to do about it, and the driver's message."""

    action: ErrorAction
    reason: str


def call_nvml(nvml: Nvml, function: str, *arguments: Any, **options: Any) -> Any | Failure:  # noqa: ANN401  the driver's types
    """Call an NVML function by name; returns its result, or the failure as a value."""
    try:
        return getattr(nvml, function)(*arguments, **options)
    except nvml.NVMLError as error:
        value = getattr(error, "value", None)
        return Failure(action_for_error(value), f"{error} (NVML error {value})")
    except AttributeError:
        # The binding is older than the function: the same as a driver that lacks it.
        return Failure(ErrorAction.UNSUPPORTED, f"the installed nvidia-ml-py has no {function}")


class Device:
    """Reads one device by its handle, which stays valid until NVML is shut down."""

    def __init__(
        self,
        nvml: Nvml,
        handle: Any,  # noqa: ANN401  a pointer of the driver's
        facts: GpuFacts,
    ) -> None:
        self._nvml = nvml
        self._unsupported: set[tuple[str, bool]] = set()
        self._includes_reserved_memory = False
        self._last_failure: Failure | None = None
        self.handle = handle
        self.facts = facts
        self.consecutive_silent_reads = 0
        self.is_permission_denied = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about gaps in this device's numbers."""
        denied = f"The driver does not allow this container to read all numbers of the GPU {self.facts.uuid}."
        notes = ((self._includes_reserved_memory, _OLD_DRIVER), (self.is_permission_denied, denied))
        return tuple(text for applies, text in notes if applies)

    def read(self, *, counters: bool) -> GpuSample | Failure:
        """Read the fast fields and, with ``counters``, the slow ones; returns a failure if the device itself failed.

        A device is silent if it returns no field at all although it supports some. ``consecutive_silent_reads`` counts
        the silent readings in a row.
        """
        sample, failure = self._sample(counters=counters)
        if failure is not None and failure.action in _DEVICE_WIDE_ACTIONS:
            return failure
        is_silent = failure is not None and sample == GpuSample(facts=self.facts)
        self.consecutive_silent_reads = self.consecutive_silent_reads + 1 if is_silent else 0
        return sample if failure is None or not is_silent else failure

    def _sample(self, *, counters: bool) -> tuple[GpuSample, Failure | None]:
        """The sample, and the last failure while it was taken."""
        self._last_failure = None
        sample = self._sample_fields(counters=counters)
        return sample, self._last_failure

    def _sample_fields(self, *, counters: bool) -> GpuSample:
        nvml = self._nvml
        used_bytes, size_bytes = self._memory()
        utilization = self._field("nvmlDeviceGetUtilizationRates")
        power_milliwatts = self._field("nvmlDeviceGetPowerUsage")
        energy = ecc = None
        if counters:
            energy = self._field("nvmlDeviceGetTotalEnergyConsumption")
            ecc = self._field(
                "nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        return GpuSample(
            facts=self.facts,
            utilization_percent=None if utilization is None else float(min(utilization.gpu, _PERCENT)),
            memory_used_bytes=used_bytes,
            memory_size_bytes=size_bytes,
            power_watts=None if power_milliwatts is None else power_milliwatts / _MILLIWATTS_PER_WATT,
            sm_clock_mhz=self._field("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            temperature_celsius=self._field("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            # Newer drivers call these event reasons, and still have the function under its old name.
            throttle_reasons=self._field("nvmlDeviceGetCurrentClocksThrottleReasons"),
            energy_millijoules=energy,
            ecc_uncorrected=ecc,
        )

    def _memory(self) -> tuple[int | None, int | None]:
        """Bytes in use, and the size in bytes.

        Version 2 of the call leaves out the memory that the driver reserves; version 1 includes it.
        """
        memory = self._field(_MEMORY, version=self._nvml.nvmlMemory_v2)
        if memory is None and (_MEMORY, True) in self._unsupported:
            memory = self._field(_MEMORY)
            self._includes_reserved_memory = self._includes_reserved_memory or memory is not None
        return (None, None) if memory is None else (int(memory.used), int(memory.total))

    def _field(self, function: str, *arguments: int, **options: int) -> Any | None:  # noqa: ANN401  the driver's types
        has_failed = self._last_failure is not None and self._last_failure.action in _DEVICE_WIDE_ACTIONS
        if (function, bool(options)) in self._unsupported or has_failed:
            return None
        answer = call_nvml(self._nvml, function, self.handle, *arguments, **options)
        if not isinstance(answer, Failure):
            return answer
        if answer.action is ErrorAction.UNSUPPORTED:
            self._unsupported.add((function, bool(options)))
        elif answer.action is ErrorAction.PERMISSION_DENIED:
            self.is_permission_denied = True
        elif answer.action is not ErrorAction.NO_VALUE:
            self._last_failure = answer
        return None


class XidEvents:
    """The error events since the registration, which is lost when NVML is shut down."""

    def __init__(self, nvml: Nvml, devices: Iterable[Device]) -> None:
        self._nvml = nvml
        events = call_nvml(nvml, "nvmlEventSetCreate")
        self._events = None if isinstance(events, Failure) else events
        self._is_registered: dict[str, bool] = {}
        for device in devices:
            self.register(device)
        if not any(self._is_registered.values()):
            self.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence about the GPUs whose driver reports no events: an empty list proves nothing there."""
        unregistered = ", ".join(uuid for uuid, is_registered in self._is_registered.items() if not is_registered)
        if not unregistered:
            return ()
        return (f"The driver does not report the errors (Xid) of {unregistered}: xids stay empty there.",)

    def register(self, device: Device) -> None:
        """Register for the events of this device."""
        answer: Any | Failure | None = None
        if self._events is not None:
            kind = self._nvml.nvmlEventTypeXidCriticalError
            answer = call_nvml(self._nvml, "nvmlDeviceRegisterEvents", device.handle, kind, self._events)
        self._is_registered[device.facts.uuid] = self._events is not None and not isinstance(answer, Failure)

    def drain(self) -> tuple[Xid, ...]:
        xids: list[Xid] = []
        for _ in range(0 if self._events is None else _MAX_EVENTS_PER_READ):
            event = call_nvml(self._nvml, "nvmlEventSetWait_v2", self._events, _EVENT_TIMEOUT_MS)
            if isinstance(event, Failure):
                break
            if event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
                xids.append(self._xid(event))
        return tuple(xids)

    def _xid(self, event: Any) -> Xid:  # noqa: ANN401  a structure of the binding
        uuid = call_nvml(self._nvml, "nvmlDeviceGetUUID", event.device)
        return Xid(None if isinstance(uuid, Failure) else uuid, int(event.eventData))

    def close(self) -> None:
        if self._events is not None:
            call_nvml(self._nvml, "nvmlEventSetFree", self._events)
            self._events = None
