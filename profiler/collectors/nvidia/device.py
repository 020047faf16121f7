"""One GPU, or one MIG instance: reads each field separately. Also its Xid events (79: "fallen off the bus")."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from profiler.collectors.nvidia.library import ErrorAction, Nvml, action_for_error
from profiler.collectors.nvidia.readings import GpuFacts, GpuSample, Xid

_MILLIWATTS_PER_WATT = 1000
_PERCENT = 100
_MEMORY = "nvmlDeviceGetMemoryInfo"
_DEVICE_WIDE_ACTIONS = (ErrorAction.DEVICE_LOST, ErrorAction.REINITIALIZE)
_OLD_DRIVER = (
    "The NVIDIA driver is too old to tell what it reserves for itself: memoryUsedMB of the GPUs includes that."
)


class Failure(Struct, frozen=True):
    """A call that failed: what to do about it, and the driver's words."""

    action: ErrorAction
    reason: str


def call_nvml(nvml: Nvml, function: str, *arguments: Any, **options: Any) -> Any | Failure:  # noqa: ANN401  the driver's types
    """The answer of one of NVML's functions, or its failure as a value."""
    try:
        return getattr(nvml, function)(*arguments, **options)
    except nvml.NVMLError as error:
        value = getattr(error, "value", None)
        return Failure(action_for_error(value), f"{error} (NVML error {value})")
    except AttributeError:
        # A binding older than the function: the same as a driver older than it.
        return Failure(ErrorAction.UNSUPPORTED, f"the installed nvidia-ml-py has no {function}")


class Device:
    """Reads one device by its handle, which stays valid until the driver is shut down.

    ``physical_handle`` is the whole GPU's where this is an instance of one.
    """

    def __init__(
        self,
        nvml: Nvml,
        handle: Any,  # noqa: ANN401  a pointer of the driver's
        facts: GpuFacts,
        physical_handle: Any = None,  # noqa: ANN401  as above
    ) -> None:
        self._nvml = nvml
        self._unsupported: set[tuple[str, bool]] = set()
        self._includes_reserved_memory = False
        self._last_failure: Failure | None = None
        self.handle = handle
        self.physical_handle = handle if physical_handle is None else physical_handle
        self.facts = facts
        self.consecutive_silent_reads = 0
        self.is_permission_denied = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know."""
        is_permission_denied = f"The GPU {self.facts.uuid} does not allow this container to read all of its numbers."
        noted = ((self._includes_reserved_memory, _OLD_DRIVER), (self.is_permission_denied, is_permission_denied))
        return tuple(text for is_so, text in noted if is_so)

    def read(self, *, counters: bool) -> GpuSample | Failure:
        """The cheap fields, and with ``counters`` the slow ones; a failure if the device itself failed.

        A device that answers nothing at all, and not because it cannot, is silent: ``consecutive_silent_reads``
        counts how often in a row.
        """
        sample, failure = self._sample(counters=counters)
        if failure is not None and failure.action in _DEVICE_WIDE_ACTIONS:
            return failure
        is_silent = failure is not None and sample == GpuSample(facts=self.facts)
        self.consecutive_silent_reads = self.consecutive_silent_reads + 1 if is_silent else 0
        return sample if failure is None or not is_silent else failure

    def _sample(self, *, counters: bool) -> tuple[GpuSample, Failure | None]:
        """What was answered, and what went wrong in the meantime."""
        self._last_failure = None
        sample = self._sample_instance() if self.facts.is_instance else self._sample_whole_gpu(counters=counters)
        return sample, self._last_failure

    def _sample_instance(self) -> GpuSample:
        """Only memory is an instance's own; utilization is not measured, the rest is the whole GPU's."""
        used_bytes, size_bytes = self._memory()
        return GpuSample(facts=self.facts, memory_used_bytes=used_bytes, memory_size_bytes=size_bytes)

    def _sample_whole_gpu(self, *, counters: bool) -> GpuSample:
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
            # Newer drivers call them event reasons; all have the old name too.
            throttle_reasons=self._field("nvmlDeviceGetCurrentClocksThrottleReasons"),
            energy_millijoules=energy,
            ecc_uncorrected=ecc,
        )

    def _memory(self) -> tuple[int | None, int | None]:
        """Bytes in use and in all. Version 2 of the call leaves out what the driver reserves, version 1 does not."""
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


# The shortest wait there is; with nothing to tell, the driver answers "timeout" after it.
_WAIT_MS = 1
# More in one second would be one fault repeated.
_MAX_EVENTS_PER_READ = 64
_NO_INSTANCE = 0xFFFFFFFF


class XidEvents:
    """Events since the registration, which has to be made anew after each start of NVML."""

    def __init__(self, nvml: Nvml, devices: Iterable[Device]) -> None:
        self._nvml = nvml
        events = call_nvml(nvml, "nvmlEventSetCreate")
        self._events = None if isinstance(events, Failure) else events
        self._is_registered: dict[str, bool] = {}
        for device in devices:
            if device.facts.physical_uuid not in self._is_registered:
                self.register(device)
        if not any(self._is_registered.values()):
            self.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """Of which GPUs there are no events: what is told of none did not happen, or nobody would know."""
        silent = ", ".join(
            physical_uuid for physical_uuid, is_registered in self._is_registered.items() if not is_registered
        )
        return (f"The driver does not report the errors (Xid) of {silent}: xids stay empty there.",) if silent else ()

    def register(self, device: Device) -> None:
        """Hear of this device, too; of an instance by its GPU."""
        answer: Any | Failure | None = None
        if self._events is not None:
            kind = self._nvml.nvmlEventTypeXidCriticalError
            answer = call_nvml(self._nvml, "nvmlDeviceRegisterEvents", device.physical_handle, kind, self._events)
        self._is_registered[device.facts.physical_uuid] = self._events is not None and not isinstance(answer, Failure)

    def drain(self) -> tuple[Xid, ...]:
        """What happened since the last call."""
        found: list[Xid] = []
        for _ in range(0 if self._events is None else _MAX_EVENTS_PER_READ):
            event = call_nvml(self._nvml, "nvmlEventSetWait_v2", self._events, _WAIT_MS)
            if isinstance(event, Failure):
                break
            if event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
                found.append(self._xid(event))
        return tuple(found)

    def _xid(self, event: Any) -> Xid:  # noqa: ANN401  the binding's structure
        uuid = call_nvml(self._nvml, "nvmlDeviceGetUUID", event.device)
        instance = getattr(event, "gpuInstanceId", _NO_INSTANCE)  # no binding before MIG has it
        return Xid(
            None if isinstance(uuid, Failure) else uuid,
            int(event.eventData),
            None if instance == _NO_INSTANCE else int(instance),
        )

    def close(self) -> None:
        """Give the event set back."""
        if self._events is not None:
            call_nvml(self._nvml, "nvmlEventSetFree", self._events)
            self._events = None
