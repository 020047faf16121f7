"""GPM, the performance counters of Hopper and newer GPUs: which of their parts worked, and how much
they moved over PCIe and NVLink.
"""

import math
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from profiler.collectors.impossible_readings import possible_amount, possible_percent
from profiler.collectors.nvidia.nvml_calls import ErrorAction, Failure, Nvml, call_nvml
from profiler.collectors.nvidia.reading_pace import SlowCall
from profiler.collectors.nvidia.visible_gpus import GpuSample
from profiler.core.clock import Clock
from profiler.core.optional_math import difference
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.record.units import MIB

# GPM's fields of a sample, and of its amounts, and NVML's numbers of the metrics: in percent, and
# in MiB/s.
_PERCENTS = {
    "kernel_percent": 1,
    "sm_active_percent": 2,
    "sm_occupancy_percent": 3,
    "tensor_active_percent": 5,
    "dram_active_percent": 10,
}
_RATES = {"pcie_tx_bytes": 20, "pcie_rx_bytes": 21, "nvlink_tx_bytes": 61, "nvlink_rx_bytes": 60}
_METRICS = {**_PERCENTS, **_RATES}
# No GPU moves so much: 100 TB a second.
_MAX_MIB_PER_SECOND = 100_000_000
# These are shares of clock cycles: over a span in which the clock rises from 345 to 1980 MHz, they
# count the busy part six times as much. So they are read over two ticks at most.
_OF_CYCLES = frozenset(_PERCENTS) - {"kernel_percent"}
_MAX_TICKS_LEFT_OUT = 1
# The values of two samples that are less apart are invalid.
_MIN_SPAN_NS = 100 * NS_PER_MS
REFUSED = (
    "The driver does not allow this container to read the GPUs' performance counters (GPM), so "
    "the values from them (smActivePercent to dramActivePercent, PCIe and NVLink) end there: run "
    "the monitor as root with the capability SYS_ADMIN, or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0."
)


class GpmReader:
    """Reads GPM, the counters of Hopper and newer: one sample ends a reading and starts the
    next, without a gap; not ``is_available`` for one that MIG divides.
    """

    # A pointer of the driver's.
    def __init__(
        self,
        nvml: Nvml,
        handle: Any,  # noqa: ANN401
        clock: Clock,
        *,
        is_available: bool = True,
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        # The last one, taken at ``_taken_ns``, and the one to be taken next.
        self._samples: tuple[Any, ...] = ()
        self._taken_ns: int | None = None
        self._request: Any = None  # of the metrics between two samples
        self._call = SlowCall()
        self._ticks_left_out = 0  # since the last sample, as the call is slow
        self._is_available = is_available
        self.is_refused = False

    def with_gpm_metrics(self, sample: GpuSample, *, is_complete: bool) -> GpuSample:
        """Add the metrics since the device's sample before; a complete reading has them whatever
        they cost.
        """
        if not self._is_available:
            return sample
        values = self._read(is_complete=is_complete)
        if not isinstance(values, Failure):
            impossible = (*sample.impossible, *values.get("impossible", ()))
            return replace(sample, **{**values, "impossible": impossible})
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
        if not self._samples:
            failure = self._allocate_samples()
            if failure is not None:
                return failure
        now_ns = self._clock.monotonic_ns()
        span_ns = difference(now_ns, self._taken_ns)
        is_due = is_complete or self._call.is_due(now_ns)
        if span_ns is not None and (span_ns < _MIN_SPAN_NS or not is_due):
            self._ticks_left_out += not is_due
            return {}
        last, following = self._samples
        values = call_nvml(self._nvml, "nvmlGpmSampleGet", self._handle, following)
        if not isinstance(values, Failure):
            self._samples = (following, last)
            self._taken_ns = now_ns
            values = {"is_gpm_begun": True}
            if span_ns is not None:
                values = self._metrics(last, following, span_ns)
            self._ticks_left_out = 0
        self._call.add_call(now_ns, self._clock.monotonic_ns())
        return values

    def _allocate_samples(self) -> Failure | None:
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
    def _metrics(
        self,
        first: Any,  # noqa: ANN401
        second: Any,  # noqa: ANN401
        span_ns: int,
    ) -> Mapping[str, Any] | Failure:
        request = self._request
        request.sample1 = first
        request.sample2 = second
        answer = call_nvml(self._nvml, "nvmlGpmMetricsGet", request)
        if isinstance(answer, Failure):
            return answer
        amounts: dict[str, int] = {}
        impossible: list[str] = []
        values: dict[str, Any] = {"gpm_ns": span_ns, "amounts": amounts}
        for name, metric in zip(_METRICS, request.metrics, strict=False):
            if metric.nvmlReturn != 0 or not math.isfinite(metric.value):
                continue
            if name in _OF_CYCLES and self._ticks_left_out > _MAX_TICKS_LEFT_OUT:
                continue
            if name in _RATES:
                value = possible_amount(metric.value, _MAX_MIB_PER_SECOND)
            else:
                value = possible_percent(metric.value)
            if value is None:
                impossible.append(name)
            elif name in _RATES:
                amounts[name] = round(value * MIB * span_ns / NS_PER_SECOND)
            else:
                values[name] = value
        return {**values, "impossible": tuple(impossible)}
