"""One GPU, or one MIG instance: reads its fields, each for itself.

A field that this GPU will never answer is not asked for again; one that failed otherwise is
absent this time and leaves the others alone.
"""

from typing import Any

from msgspec import Struct

from profiler.sources.nvml.library import Nvml
from profiler.sources.nvml.readings import GpuFacts, GpuSample
from profiler.sources.nvml.remedies import Remedy, remedy_for

_MILLIWATTS_PER_WATT = 1000
_PERCENT = 100
_MEMORY = "nvmlDeviceGetMemoryInfo"
_CONCERNS_ALL = (Remedy.LOST, Remedy.START_ANEW)
_OLD_DRIVER = (
    "The NVIDIA driver is too old to tell what it reserves for itself: memoryUsedMB of the GPUs includes that."
)


class Failure(Struct, frozen=True):
    """A call that failed: what to do about it, and the driver's words."""

    remedy: Remedy
    reason: str


def ask(nvml: Nvml, function: str, *arguments: Any, **options: Any) -> Any | Failure:  # noqa: ANN401  the driver's types
    """The answer of one of NVML's functions, or its failure as a value."""
    try:
        return getattr(nvml, function)(*arguments, **options)
    except nvml.NVMLError as error:
        value = getattr(error, "value", None)
        return Failure(remedy_for(value), f"{error} (NVML error {value})")
    except AttributeError:
        # A binding older than the function: the same as a driver older than it.
        return Failure(Remedy.NEVER_AGAIN, f"the installed nvidia-ml-py has no {function}")


class Device:
    """Reads one device by its handle, which stays valid until the driver is shut down.

    ``board_handle`` is the whole GPU's where this is an instance of one.
    """

    def __init__(
        self,
        nvml: Nvml,
        handle: Any,  # noqa: ANN401  a pointer of the driver's
        facts: GpuFacts,
        board_handle: Any = None,  # noqa: ANN401  as above
    ) -> None:
        self._nvml = nvml
        self._never: set[tuple[str, bool]] = set()
        self._reserves_unknown = False
        self._trouble: Failure | None = None
        self.handle = handle
        self.board_handle = handle if board_handle is None else board_handle
        self.facts = facts
        self.silent_reads = 0
        self.forbidden = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know."""
        forbidden = f"The GPU {self.facts.uuid} does not allow this container to read all of its numbers."
        noted = ((self._reserves_unknown, _OLD_DRIVER), (self.forbidden, forbidden))
        return tuple(text for is_so, text in noted if is_so)

    def read(self, *, counters: bool) -> GpuSample | Failure:
        """The cheap fields, and with ``counters`` the slow ones; a failure if the device itself failed.

        A device that answers nothing at all, and not because it cannot, is silent: ``silent_reads``
        counts how often in a row.
        """
        sample, trouble = self._sample(counters=counters)
        if trouble is not None and trouble.remedy in _CONCERNS_ALL:
            return trouble
        is_silent = trouble is not None and sample == GpuSample(facts=self.facts)
        self.silent_reads = self.silent_reads + 1 if is_silent else 0
        return sample if trouble is None or not is_silent else trouble

    def _sample(self, *, counters: bool) -> tuple[GpuSample, Failure | None]:
        """What was answered, and what went wrong in the meantime."""
        self._trouble = None
        sample = self._instance() if self.facts.is_instance else self._whole(counters=counters)
        return sample, self._trouble

    def _instance(self) -> GpuSample:
        """Only memory is an instance's own; utilization is not measured, the rest is the whole GPU's."""
        used_bytes, size_bytes = self._memory()
        return GpuSample(facts=self.facts, memory_used_bytes=used_bytes, memory_size_bytes=size_bytes)

    def _whole(self, *, counters: bool) -> GpuSample:
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
        if memory is None and (_MEMORY, True) in self._never:
            memory = self._field(_MEMORY)
            self._reserves_unknown = self._reserves_unknown or memory is not None
        return (None, None) if memory is None else (int(memory.used), int(memory.total))

    def _field(self, function: str, *arguments: int, **options: int) -> Any | None:  # noqa: ANN401  the driver's types
        is_off = self._trouble is not None and self._trouble.remedy in _CONCERNS_ALL
        if (function, bool(options)) in self._never or is_off:
            return None
        answer = ask(self._nvml, function, self.handle, *arguments, **options)
        if not isinstance(answer, Failure):
            return answer
        if answer.remedy is Remedy.NEVER_AGAIN:
            self._never.add((function, bool(options)))
        elif answer.remedy is Remedy.FORBIDDEN:
            self.forbidden = True
        elif answer.remedy is not Remedy.NOTHING_NEW:
            self._trouble = answer
        return None
