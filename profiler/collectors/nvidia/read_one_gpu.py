"""One GPU, read field by field: an unsupported field is absent alone.

The error events (Xid) of all GPUs.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from profiler.collectors.nvidia.visible_gpus import ENERGY, GpuFacts, GpuSample, Xid
from profiler.core.clock import Clock, CpuBudget
from profiler.core.text import install_hint
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.record.units import MIB

NOT_INSTALLED = (
    f"there is an NVIDIA driver, but no package nvidia-ml-py: {install_hint('nvidia-ml-py')}"
)
# GPM's fields of a sample, and of its amounts, and NVML's numbers of the metrics: in percent, and
# in MiB/s.
_PERCENTS = {
    "sm_active_percent": 2,
    "sm_occupancy_percent": 3,
    "tensor_active_percent": 5,
    "dram_active_percent": 10,
}
_RATES = {"pcie_tx_bytes": 20, "pcie_rx_bytes": 21, "nvlink_tx_bytes": 61, "nvlink_rx_bytes": 60}
_METRICS = {**_PERCENTS, **_RATES}
# The values of two samples that are less apart are invalid.
_MIN_SPAN_NS = 100 * NS_PER_MS
_REFUSED = (
    "The driver does not allow this container to read the GPUs' performance counters (GPM), so "
    "the values from them (smActivePercent to dramActivePercent, PCIe and NVLink) end there: run "
    "the monitor as root with the capability SYS_ADMIN, or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0."
)
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
    **dict.fromkeys(
        (3, 13, 25), ErrorAction.UNSUPPORTED
    ),  # not supported, function not found, argument version
    4: ErrorAction.PERMISSION_DENIED,
    **dict.fromkeys((15, 16, 28), ErrorAction.DEVICE_LOST),  # lost, reset required, not found
    **dict.fromkeys(
        (1, 18), ErrorAction.REINITIALIZE
    ),  # uninitialized, other version of the library
    **dict.fromkeys((9, 12), ErrorAction.NO_DRIVER),  # driver not loaded, library not found
}
_DEVICE_WIDE = (ErrorAction.DEVICE_LOST, ErrorAction.REINITIALIZE)


class Failure(Struct, frozen=True):
    """A failed NVML call: what to do about it, and the driver's message."""

    action: ErrorAction
    reason: str


# The driver's types.
def call_nvml(nvml: Nvml, function: str, *arguments: Any, **options: Any) -> Any | Failure:  # noqa: ANN401
    """Call an NVML function by name; returns its result, or the failure as a value."""
    try:
        return getattr(nvml, function)(*arguments, **options)
    except nvml.NVMLError as error:
        value = getattr(error, "value", None)
        return Failure(_ACTIONS.get(value, ErrorAction.RETRY), f"{error} (NVML error {value})")


# The driver's counters: NVML's function, and the names of its arguments.
_COUNTERS = {
    ENERGY: ("nvmlDeviceGetTotalEnergyConsumption",),
    "ecc_uncorrected": (
        "nvmlDeviceGetTotalEccErrors",
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED",
        "NVML_VOLATILE_ECC",
    ),
}


class _Gpm:
    """Reads GPM, the counters of Hopper and newer: one sample ends a reading and starts the
    next, without a gap.
    """

    # A pointer of the driver's.
    def __init__(self, nvml: Nvml, handle: Any, clock: Clock) -> None:  # noqa: ANN401
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        self._samples: tuple[
            Any, ...
        ] = ()  # the last one, taken at ``_taken_ns``, and the one to be taken next
        self._taken_ns: int | None = None
        self._request: Any = None  # of the metrics between two samples
        # The share of the time in the driver, between the readings with all counters: 0.4 % for
        # eight GPUs.
        self._budget = CpuBudget(0.0005)
        self._is_available = True
        self.is_refused = False

    def added_to(self, sample: GpuSample, *, is_complete: bool) -> GpuSample:
        """Add the metrics since the device's sample before; a complete reading has them whatever
        they cost.
        """
        values = self._read(is_complete=is_complete) if self._is_available else {}
        if not isinstance(values, Failure):
            return replace(sample, **values)
        if values.action in (ErrorAction.UNSUPPORTED, ErrorAction.PERMISSION_DENIED):
            self.close()
            self._is_available = False
            self.is_refused = values.action is ErrorAction.PERMISSION_DENIED
        return sample

    def close(self) -> None:
        for sample in self._samples:
            call_nvml(self._nvml, "nvmlGpmSampleFree", sample)
        self._samples = ()

    def _read(self, *, is_complete: bool) -> Mapping[str, Any] | Failure:
        """The values by field; empty after the first sample, and too early after the one before."""
        failure = None if self._samples else self._open()
        if failure is not None:
            return failure
        now_ns = self._clock.monotonic_ns()
        span_ns = None if self._taken_ns is None else now_ns - self._taken_ns
        is_due = is_complete or self._budget.allows(now_ns)
        if span_ns is not None and (span_ns < _MIN_SPAN_NS or not is_due):
            return {}
        last, following = self._samples
        values = call_nvml(self._nvml, "nvmlGpmSampleGet", self._handle, following)
        if not isinstance(values, Failure):
            self._samples = (following, last)
            self._taken_ns = now_ns
            values = {} if span_ns is None else self._metrics(last, following, span_ns)
        self._budget.add_cost(self._clock.monotonic_ns() - now_ns, now_ns)
        return values

    def _open(self) -> Failure | None:
        support = call_nvml(self._nvml, "nvmlGpmQueryDeviceSupport", self._handle)
        if isinstance(support, Failure):
            return support
        if not support.isSupportedDevice:
            return Failure(ErrorAction.UNSUPPORTED, "the device is older than GPM")
        for _ in range(2):
            sample = call_nvml(self._nvml, "nvmlGpmSampleAlloc")
            if isinstance(sample, Failure):
                self.close()
                return sample
            self._samples = (*self._samples, sample)
        self._request = self._nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = 1
        self._request.numMetrics = len(_METRICS)
        for position, number in enumerate(_METRICS.values()):
            self._request.metrics[position].metricId = number
        return None

    # As above.
    def _metrics(self, first: Any, second: Any, span_ns: int) -> Mapping[str, Any] | Failure:  # noqa: ANN401
        request = self._request
        request.sample1 = first
        request.sample2 = second
        answer = call_nvml(self._nvml, "nvmlGpmMetricsGet", request)
        if isinstance(answer, Failure):
            return answer
        known = {
            name: max(metric.value, 0.0)
            for name, metric in zip(_METRICS, request.metrics, strict=False)
            if metric.nvmlReturn == 0 and math.isfinite(metric.value)
        }
        amounts = {
            name: round(known[name] * MIB * span_ns / NS_PER_SECOND)
            for name in _RATES
            if name in known
        }
        percents = {name: min(known[name], 100.0) for name in _PERCENTS if name in known}
        return {"gpm_ns": span_ns, "amounts": amounts, **percents}


class Device:
    """Reads one device by its handle, which is valid until NVML is shut down."""

    # As above.
    def __init__(self, nvml: Nvml, handle: Any, facts: GpuFacts, clock: Clock) -> None:  # noqa: ANN401
        self._nvml = nvml
        self._unsupported: set[str] = set()
        self._failure: Failure | None = None
        self.handle = handle
        self.facts = facts
        self.gpm = _Gpm(nvml, handle, clock)
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
            yield _REFUSED

    def read(self, *, counters: bool) -> GpuSample | Failure:
        """Read the fast fields and, with ``counters``, the slow ones; returns a failure if
        errors leave no field.
        """
        nvml = self._nvml
        # Version 2 of the call leaves out the memory that the driver reserves.
        memory = self._field("nvmlDeviceGetMemoryInfo", version=nvml.nvmlMemory_v2)
        utilization = self._field("nvmlDeviceGetUtilizationRates")
        power_milliwatts = self._field("nvmlDeviceGetPowerUsage")
        counted = {
            name: self._field(function, *(getattr(nvml, kind) for kind in kinds))
            for name, (function, *kinds) in (_COUNTERS if counters else {}).items()
        }
        sample = GpuSample(
            facts=self.facts,
            utilization_percent=None if utilization is None else float(min(utilization.gpu, 100)),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_size_bytes=None if memory is None else int(memory.total),
            power_watts=None if power_milliwatts is None else power_milliwatts / 1000,
            sm_clock_mhz=self._field("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            temperature_celsius=self._field("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            # Newer drivers call these event reasons, and still have the function under its old
            # name.
            throttle_reasons=self._field("nvmlDeviceGetCurrentClocksThrottleReasons"),
            counters={name: value for name, value in counted.items() if value is not None},
        )
        failure = self._failure
        self._failure = None
        is_silent = failure is not None and sample == GpuSample(facts=self.facts)
        self.silent_reads = self.silent_reads + 1 if is_silent else 0
        if failure is not None and (is_silent or failure.action in _DEVICE_WIDE):
            return failure
        return self.gpm.added_to(sample, is_complete=counters)

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
    """The error events since the registration, which is lost when NVML is shut down."""

    def __init__(self, nvml: Nvml, devices: Sequence[Device]) -> None:
        self._nvml = nvml
        events = call_nvml(nvml, "nvmlEventSetCreate")
        self._events = None if isinstance(events, Failure) else events
        self._unregistered: dict[str, None] = {}
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
        kind = self._nvml.nvmlEventTypeXidCriticalError
        if self._events is None or isinstance(
            call_nvml(self._nvml, "nvmlDeviceRegisterEvents", device.handle, kind, self._events),
            Failure,
        ):
            self._unregistered[device.facts.uuid] = None

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
