"""One GPU, or one MIG instance: reads its fields, each for itself.

A field that this GPU will never answer is not asked for again; one that failed otherwise is
absent this time and leaves the others alone.
"""

from typing import Any

from msgspec import Struct

from profiler.sources.nvml.library import Nvml
from profiler.sources.nvml.readings import GpuFacts, GpuSample
from profiler.sources.nvml.remedies import ErrorAction, action_for_error

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
