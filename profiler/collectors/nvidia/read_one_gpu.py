"""One GPU, read field by field: an unsupported field is absent alone. The error events (Xid) of all GPUs."""

from collections.abc import Callable, Iterable
from enum import Enum
from importlib import import_module
from typing import Any, TypeAlias

from msgspec import Struct

from profiler.collectors.nvidia.visible_gpus import GpuFacts, GpuSample, Xid
from profiler.core.text import install_hint
from profiler.readers import Unavailable

NOT_INSTALLED = f"there is an NVIDIA driver, but no package nvidia-ml-py: {install_hint('nvidia-ml-py')}"
# More events in one second are one fault repeated.
_MAX_EVENTS_PER_READ = 64

# The module pynvml, which has no types. ``call_nvml`` calls its functions by name.
Nvml: TypeAlias = Any


def load_binding(import_name: Callable[[str], Any] = import_module) -> Nvml | Unavailable:
    """Import the module ``pynvml``, if it is installed."""
    try:
        return import_name("pynvml")
    except ImportError:
        return Unavailable(NOT_INSTALLED)


class ErrorAction(Enum):
    """What to do about an NVML error."""

    UNSUPPORTED = "this GPU does not support the call: do not repeat it"
    PERMISSION_DENIED = "the container lacks the permission for the call"
    RETRY = "the error may be transient: try again"
    DEVICE_LOST = "this GPU is lost; the others still work"
    REINITIALIZE = "the driver was replaced: shut NVML down and initialize it again"
    NO_DRIVER = "no driver is installed or loaded"


# The error numbers of nvml.h; others are retried.
_ACTIONS: dict[int | None, ErrorAction] = {
    **dict.fromkeys((3, 13, 25), ErrorAction.UNSUPPORTED),  # not supported, function not found, argument version
    4: ErrorAction.PERMISSION_DENIED,
    **dict.fromkeys((15, 16, 28), ErrorAction.DEVICE_LOST),  # lost, reset required, not found
    **dict.fromkeys((1, 18), ErrorAction.REINITIALIZE),  # uninitialized, other version of the library
    **dict.fromkeys((9, 12), ErrorAction.NO_DRIVER),  # driver not loaded, library not found
}
_DEVICE_WIDE = (ErrorAction.DEVICE_LOST, ErrorAction.REINITIALIZE)


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
        return Failure(_ACTIONS.get(value, ErrorAction.RETRY), f"{error} (NVML error {value})")


# The driver's other counters by the record's field: NVML's function, and the names of its arguments.
_COUNTERS = {
    "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"),
}


class Device:
    """Reads one device by its handle, which is valid until NVML is shut down."""

    def __init__(self, nvml: Nvml, handle: Any, facts: GpuFacts) -> None:  # noqa: ANN401  a pointer of the driver's
        self._nvml = nvml
        self._unsupported: set[str] = set()
        self._failure: Failure | None = None
        self.handle = handle
        self.facts = facts
        self.silent_reads = 0
        self._is_permission_denied = False

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._is_permission_denied:
            return ()
        return (f"The driver does not allow this container to read all numbers of the GPU {self.facts.uuid}.",)

    def read(self, *, counters: bool) -> GpuSample | Failure:
        """Read the fast fields and, with ``counters``, the slow ones; returns a failure if errors leave no field."""
        nvml = self._nvml
        # Version 2 of the call leaves out the memory that the driver reserves.
        memory = self._field("nvmlDeviceGetMemoryInfo", version=nvml.nvmlMemory_v2)
        utilization = self._field("nvmlDeviceGetUtilizationRates")
        power_milliwatts = self._field("nvmlDeviceGetPowerUsage")
        energy, counted = None, dict[str, int | None]()
        if counters:
            energy = self._field("nvmlDeviceGetTotalEnergyConsumption")
            for name, (function, *kinds) in _COUNTERS.items():
                counted[name] = self._field(function, *(getattr(nvml, kind) for kind in kinds))
        sample = GpuSample(
            facts=self.facts,
            utilization_percent=None if utilization is None else float(min(utilization.gpu, 100)),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_size_bytes=None if memory is None else int(memory.total),
            power_watts=None if power_milliwatts is None else power_milliwatts / 1000,
            sm_clock_mhz=self._field("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            temperature_celsius=self._field("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            # Newer drivers call these event reasons, and still have the function under its old name.
            throttle_reasons=self._field("nvmlDeviceGetCurrentClocksThrottleReasons"),
            energy_millijoules=energy,
            counters={name: value for name, value in counted.items() if value is not None},
        )
        failure, self._failure = self._failure, None
        is_silent = failure is not None and sample == GpuSample(facts=self.facts)
        self.silent_reads = self.silent_reads + 1 if is_silent else 0
        return failure if failure is not None and (is_silent or failure.action in _DEVICE_WIDE) else sample

    def _field(self, function: str, *arguments: int, **options: int) -> Any | None:  # noqa: ANN401  the driver's types
        if function in self._unsupported or (self._failure is not None and self._failure.action in _DEVICE_WIDE):
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
        answer, kind = None, self._nvml.nvmlEventTypeXidCriticalError
        if self._events is not None:
            answer = call_nvml(self._nvml, "nvmlDeviceRegisterEvents", device.handle, kind, self._events)
        self._is_registered[device.facts.uuid] = self._events is not None and not isinstance(answer, Failure)

    def drain(self) -> tuple[Xid, ...]:
        xids: list[Xid] = []
        for _ in range(0 if self._events is None else _MAX_EVENTS_PER_READ):
            # The shortest timeout is 1 ms. Without an event the driver returns "timeout" after it.
            event = call_nvml(self._nvml, "nvmlEventSetWait_v2", self._events, 1)
            if isinstance(event, Failure):
                break
            uuid = call_nvml(self._nvml, "nvmlDeviceGetUUID", event.device)
            xids.append(Xid(None if isinstance(uuid, Failure) else uuid, int(event.eventData)))
        return tuple(xids)

    def close(self) -> None:
        if self._events is not None:
            call_nvml(self._nvml, "nvmlEventSetFree", self._events)
            self._events = None
