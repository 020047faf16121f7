"""Reads all visible GPUs through NVML, in one thread, and continues after driver errors, restarts and lost GPUs."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.collectors.nvidia.read_one_gpu import Device, ErrorAction, Failure, Nvml, XidEvents, call_nvml
from profiler.collectors.nvidia.visible_gpus import DriverReading, GpuFacts, GpuSample
from profiler.core.clock import Clock, CpuBudget
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.record.units import MIB

# The fields of a sample, and of its amounts, and NVML's numbers of the metrics: in percent, and in MiB/s.
_PERCENTS = {"sm_active_percent": 2, "sm_occupancy_percent": 3, "tensor_active_percent": 5, "dram_active_percent": 10}
_RATES = {"pcie_tx_bytes": 20, "pcie_rx_bytes": 21, "nvlink_tx_bytes": 61, "nvlink_rx_bytes": 60}
_METRICS = {**_PERCENTS, **_RATES}
# The values of two samples that are less apart are invalid.
_MIN_SPAN_NS = 100 * NS_PER_MS
_REFUSED = (
    "The driver does not allow this container to read the GPUs' performance counters (GPM), so the values from them "
    "(smActivePercent to dramActivePercent, PCIe and NVLink) end there: run the monitor as root with the capability "
    "SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0."
)
_MAX_SILENT_READS = 3
_RETRY_NS = 30 * NS_PER_SECOND


class _Pair(Struct):
    """The two samples of a device: the last one, taken at ``taken_ns``, and the one to be taken next."""

    last: Any
    following: Any
    budget: CpuBudget
    taken_ns: int | None = None


class _GpmReader:
    """Reads GPM, the counters of Hopper and newer: one sample ends a reading and starts the next, without a gap."""

    def __init__(self, nvml: Nvml, clock: Clock) -> None:
        self._nvml = nvml
        self._clock = clock
        self._pairs: dict[str, _Pair] = {}
        self._unavailable: set[str] = set()
        self._is_refused = False
        self._request: Any = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version, self._request.numMetrics = 1, len(_METRICS)
        for position, number in enumerate(_METRICS.values()):
            self._request.metrics[position].metricId = number

    @property
    def notes(self) -> tuple[str, ...]:
        return (_REFUSED,) if self._is_refused else ()

    def added_to(self, sample: GpuSample, handle: Any, *, is_complete: bool) -> GpuSample:  # noqa: ANN401  a pointer of the driver
        """Add the metrics since this device's sample before; a complete reading has them whatever they cost."""
        uuid = sample.facts.uuid
        if uuid in self._unavailable:
            return sample
        values = self._read(uuid, handle, is_complete=is_complete)
        if not isinstance(values, Failure):
            return replace(sample, **values)
        if values.action in (ErrorAction.UNSUPPORTED, ErrorAction.PERMISSION_DENIED):
            self.forget(uuid)
            self._unavailable.add(uuid)
            self._is_refused = self._is_refused or values.action is ErrorAction.PERMISSION_DENIED
        return sample

    def forget(self, uuid: str) -> None:
        """Free the samples of a device, which may be read again later."""
        self._unavailable.discard(uuid)
        pair = self._pairs.pop(uuid, None)
        if pair is not None:
            self._free(pair.last)
            self._free(pair.following)

    def close(self) -> None:
        for uuid in tuple(self._pairs):
            self.forget(uuid)

    def _free(self, sample: Any) -> None:  # noqa: ANN401  as above
        call_nvml(self._nvml, "nvmlGpmSampleFree", sample)

    def _read(self, uuid: str, handle: Any, *, is_complete: bool) -> Mapping[str, Any] | Failure:  # noqa: ANN401  as above
        """The values by field; empty after the first sample, and too early after the one before."""
        pair = self._pairs.get(uuid) or self._open(uuid, handle)
        if isinstance(pair, Failure):
            return pair
        now_ns = self._clock.monotonic_ns()
        span_ns = None if pair.taken_ns is None else now_ns - pair.taken_ns
        is_due = is_complete or pair.budget.allows(now_ns)
        if span_ns is not None and (span_ns < _MIN_SPAN_NS or not is_due):
            return {}
        values = call_nvml(self._nvml, "nvmlGpmSampleGet", handle, pair.following)
        if not isinstance(values, Failure):
            pair.last, pair.following, pair.taken_ns = pair.following, pair.last, now_ns
            values = {} if span_ns is None else self._metrics(pair.following, pair.last, span_ns)
        pair.budget.add_cost(self._clock.monotonic_ns() - now_ns, now_ns)
        return values

    def _open(self, uuid: str, handle: Any) -> _Pair | Failure:  # noqa: ANN401  as above
        support = call_nvml(self._nvml, "nvmlGpmQueryDeviceSupport", handle)
        if isinstance(support, Failure):
            return support
        if not support.isSupportedDevice:
            return Failure(ErrorAction.UNSUPPORTED, "the device is older than GPM")
        first, second = (call_nvml(self._nvml, "nvmlGpmSampleAlloc") for _ in range(2))
        for failed, other in ((first, second), (second, first)):
            if isinstance(failed, Failure):
                if not isinstance(other, Failure):
                    self._free(other)
                return failed
        # The share of the time in the driver, between the readings with all counters: 0.4 % for eight GPUs.
        self._pairs[uuid] = _Pair(first, second, CpuBudget(0.0005))
        return self._pairs[uuid]

    def _metrics(self, first: Any, second: Any, span_ns: int) -> Mapping[str, Any] | Failure:  # noqa: ANN401  as above
        request = self._request
        request.sample1, request.sample2 = first, second
        answer = call_nvml(self._nvml, "nvmlGpmMetricsGet", request)
        if isinstance(answer, Failure):
            return answer
        known = {
            name: max(metric.value, 0.0)
            for name, metric in zip(_METRICS, request.metrics, strict=False)
            if metric.nvmlReturn == 0 and math.isfinite(metric.value)
        }
        amounts = {name: round(known[name] * MIB * span_ns / NS_PER_SECOND) for name in _RATES if name in known}
        percents = {name: min(known[name], 100.0) for name in _PERCENTS if name in known}
        return {"gpm_ns": span_ns, "amounts": amounts, **percents}


class _OpenDriver:
    """NVML until its shutdown; devices are by UUID, because an index may mean another GPU after a restart."""

    def __init__(self, nvml: Nvml, devices: dict[str, Device], unreadable: Sequence[str], clock: Clock) -> None:
        self.nvml = nvml
        self._unreadable = unreadable
        self.devices = devices
        self.events = XidEvents(nvml, devices.values())
        self.gpm = _GpmReader(nvml, clock)

    def close(self) -> None:
        self.events.close()
        self.gpm.close()
        call_nvml(self.nvml, "nvmlShutdown")

    @property
    def notes(self) -> tuple[str, ...]:
        of_devices = (note for device in self.devices.values() for note in device.notes)
        return tuple(dict.fromkeys((*self._unreadable, *of_devices, *self.events.notes, *self.gpm.notes)))


class NvmlSource:
    """Reads every visible GPU."""

    name = "nvml"

    def __init__(self, load: Callable[[], Nvml | Unavailable], clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._nvml: Nvml | None = None
        self._driver: _OpenDriver | None = None
        self._known_gpus: dict[str, GpuFacts] = {}
        self._lost_ns: dict[str, int] = {}  # lost GPUs, and when they were last looked for
        self._next_try_ns = 0
        self._reason = Unavailable("NVML was not initialized yet")
        self.permanently_unavailable = False
        self.is_driver_missing = False

    def read(self, *, counters: bool) -> DriverReading | Unavailable:
        """Read all GPUs now; ``counters`` includes energy and ECC errors, which take 4 ms per GPU."""
        driver = self._driver or self._try_open()
        if isinstance(driver, Unavailable):
            return driver
        samples: list[GpuSample] = []
        for uuid, device in list(driver.devices.items()):
            answer = device.read(counters=counters)
            if not isinstance(answer, Failure):
                samples.append(driver.gpm.added_to(answer, device.handle, is_complete=counters))
            elif answer.action is ErrorAction.DEVICE_LOST:
                del driver.devices[uuid]
                driver.gpm.forget(uuid)
            # NVML is initialized again for a silent device: twice a minute at most.
            elif answer.action is ErrorAction.REINITIALIZE or (
                device.silent_reads >= _MAX_SILENT_READS and self._clock.monotonic_ns() >= self._next_try_ns
            ):
                self.close()
                self._reason = Unavailable(answer.reason)
                self._next_try_ns = 0
                return self._reason
        # The GPUs that are lost since the last reading, or not visible since NVML was initialized again.
        gone = [uuid for uuid in self._known_gpus if uuid not in driver.devices and uuid not in self._lost_ns]
        self._lost_ns.update((uuid, self._clock.monotonic_ns()) for uuid in gone)
        xids = driver.events.drain()
        self._recover_lost(driver)
        lost = tuple(self._known_gpus[uuid] for uuid in gone)
        return DriverReading(samples=tuple(samples), xids=xids, lost=lost, notes=driver.notes)

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _try_open(self) -> _OpenDriver | Unavailable:
        now_ns = self._clock.monotonic_ns()
        if self.permanently_unavailable or now_ns < self._next_try_ns:
            return self._reason
        self._next_try_ns = now_ns + _RETRY_NS
        driver = self._open()
        if not isinstance(driver, Failure):
            self._driver = driver
            return driver
        self._reason = Unavailable(driver.reason)
        self.is_driver_missing = driver.action is ErrorAction.NO_DRIVER
        return self._reason

    def _open(self) -> _OpenDriver | Failure:
        nvml = self._nvml or self._load()
        if isinstance(nvml, Unavailable):
            self.permanently_unavailable = True
            return Failure(ErrorAction.UNSUPPORTED, nvml.reason)
        self._nvml = nvml
        failure = call_nvml(nvml, "nvmlInit")
        if isinstance(failure, Failure):
            return failure
        count = call_nvml(nvml, "nvmlDeviceGetCount")
        found = [_open_device(nvml, index) for index in range(0 if isinstance(count, Failure) else count)]
        devices = {device.facts.uuid: device for device in found if isinstance(device, Device)}
        unreadable = [device for device in found if isinstance(device, str)]
        if not devices:
            call_nvml(nvml, "nvmlShutdown")
            reason = count if isinstance(count, Failure) else Failure(ErrorAction.NO_DRIVER, "no GPU is visible here")
            return next((Failure(ErrorAction.RETRY, note) for note in unreadable), reason)
        self._known_gpus.update((uuid, device.facts) for uuid, device in devices.items())
        self._lost_ns = {uuid: tried_ns for uuid, tried_ns in self._lost_ns.items() if uuid not in devices}
        return _OpenDriver(nvml, devices, unreadable, self._clock)

    def _recover_lost(self, driver: _OpenDriver) -> None:
        now_ns = self._clock.monotonic_ns()
        for uuid, tried_ns in list(self._lost_ns.items()):
            if now_ns - tried_ns < _RETRY_NS:
                continue
            self._lost_ns[uuid] = now_ns
            handle = call_nvml(driver.nvml, "nvmlDeviceGetHandleByUUID", uuid)
            if isinstance(handle, Failure):
                continue
            device = Device(driver.nvml, handle, self._known_gpus[uuid])
            if not isinstance(device.read(counters=False), Failure):
                driver.devices[uuid] = device
                del self._lost_ns[uuid]
                driver.events.register(device)


def _open_device(nvml: Nvml, index: int) -> Device | str:
    """A visible device; a sentence if it cannot be opened."""
    handle = call_nvml(nvml, "nvmlDeviceGetHandleByIndex", index)
    uuid = handle if isinstance(handle, Failure) else call_nvml(nvml, "nvmlDeviceGetUUID", handle)
    if isinstance(uuid, Failure):
        return f"GPU {index} is visible and cannot be read: {uuid.reason}."
    name = call_nvml(nvml, "nvmlDeviceGetName", handle)
    return Device(nvml, handle, GpuFacts(uuid=uuid, index=index, name=None if isinstance(name, Failure) else name))
