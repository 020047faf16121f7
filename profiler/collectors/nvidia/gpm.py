"""GPM: the hardware counters of a GPU of the Hopper generation or newer, through NVML.

The driver derives values from two samples. One ends a reading and starts the next: fewer samples leave no gap.
"""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.collectors.nvidia.read_one_gpu import ErrorAction, Failure, Nvml, call_nvml
from profiler.collectors.nvidia.visible_gpus import GpuSample
from profiler.core.clock import Clock, DutyCycle
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.record.units import MIB

# The fields of a sample and NVML's numbers of the metrics: in percent, and in MiB/s.
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


class _Pair(Struct):
    """The two samples of a device: the last one, taken at ``taken_ns``, and the one to be taken next."""

    last: Any
    following: Any
    duty_cycle: DutyCycle
    taken_ns: int | None = None


class GpmReader:
    """Reads the metrics of all devices of one NVML context; to be closed before the context."""

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
        """A sentence if the driver refuses the metrics, the same for all GPUs."""
        return (_REFUSED,) if self._is_refused else ()

    def added_to(self, sample: GpuSample, handle: Any, *, is_complete: bool) -> GpuSample:  # noqa: ANN401  a pointer of the driver
        """Return the sample with the metrics since this device's sample before, if they are available.

        A reading with the slow counters (``is_complete``) has them however long the driver took before.
        """
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

    def _read(self, uuid: str, handle: Any, *, is_complete: bool) -> Mapping[str, float] | Failure:  # noqa: ANN401  as above
        """The values by field; empty after the first sample, and too early after the one before, which is then kept."""
        pair = self._pairs.get(uuid) or self._open(uuid, handle)
        if isinstance(pair, Failure):
            return pair
        now_ns = self._clock.monotonic_ns()
        span_ns = None if pair.taken_ns is None else now_ns - pair.taken_ns
        is_due = is_complete or pair.duty_cycle.is_due(now_ns)
        if span_ns is not None and (span_ns < _MIN_SPAN_NS or not is_due):
            return {}
        values: Mapping[str, float] | Failure = {}
        taken = call_nvml(self._nvml, "nvmlGpmSampleGet", handle, pair.following)
        if isinstance(taken, Failure):
            values = taken
        else:
            pair.last, pair.following, pair.taken_ns = pair.following, pair.last, now_ns
            if span_ns is not None:
                values = self._metrics(pair.following, pair.last, span_ns)
        pair.duty_cycle.add_cost(self._clock.monotonic_ns() - now_ns, now_ns)
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
        self._pairs[uuid] = _Pair(first, second, DutyCycle(0.0005))
        return self._pairs[uuid]

    def _metrics(self, first: Any, second: Any, span_ns: int) -> Mapping[str, float] | Failure:  # noqa: ANN401  as above
        request = self._request
        request.sample1, request.sample2 = first, second
        answer = call_nvml(self._nvml, "nvmlGpmMetricsGet", request)
        if isinstance(answer, Failure):
            return answer
        values: dict[str, float] = {"gpm_ns": span_ns}
        for name, metric in zip(_METRICS, request.metrics, strict=False):
            if metric.nvmlReturn == 0 and math.isfinite(metric.value):
                value = max(metric.value, 0.0)
                values[name] = round(value * MIB * span_ns / NS_PER_SECOND) if name in _RATES else min(value, 100.0)
        return values
