"""A driver in the shape of the module ``pynvml``, with an error script for every call.

The constants are the real binding's. Numbers that a test does not set stay what an idle GPU shows.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MIB = 1024 * 1024


class FakeNvmlError(Exception):
    """Like ``pynvml.NVMLError``."""

    def __init__(self, value: int) -> None:
        super().__init__(f"fake error {value}")
        self.value = value


@dataclass
class FakeGpu:
    """One GPU, or with ``parent`` a MIG instance of one."""

    uuid: str = "GPU-0"
    name: str = "NVIDIA A10G"
    utilization_percent: int = 0
    used_bytes: int = 0
    reserved_bytes: int = 600 * MIB
    total_bytes: int = 24_000 * MIB
    power_milliwatts: int = 60_000
    clock_mhz: int = 210
    celsius: int = 30
    reasons: int = 1
    energy_millijoules: int = 5_000_000
    ecc_uncorrected: int = 0
    instances: list["FakeGpu"] = field(default_factory=list)
    xids: list[int] = field(default_factory=list)
    instance_id: int = 0xFFFFFFFF
    xid_instance_id: int = 0xFFFFFFFF


class FakeNvml:
    """``fail(function, value, …)`` scripts errors; ``calls`` counts what was asked."""

    NVMLError = FakeNvmlError
    nvmlMemory_v2 = 33554472  # noqa: N815
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    nvmlEventTypeXidCriticalError = 8  # noqa: N815
    _OF_A_GPU = {  # noqa: RUF012
        "nvmlDeviceGetPowerUsage": "power_milliwatts",
        "nvmlDeviceGetClockInfo": "clock_mhz",
        "nvmlDeviceGetTemperature": "celsius",
        "nvmlDeviceGetCurrentClocksThrottleReasons": "reasons",
        "nvmlDeviceGetTotalEnergyConsumption": "energy_millijoules",
        "nvmlDeviceGetTotalEccErrors": "ecc_uncorrected",
        "nvmlDeviceGetUUID": "uuid",
        "nvmlDeviceGetName": "name",
        "nvmlDeviceGetGpuInstanceId": "instance_id",
    }

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.calls: Counter[str] = Counter()
        self.starts = 0
        self.is_open = False
        self._scripts: dict[tuple[str, str | None], list[int | None]] = {}
        self._always: dict[tuple[str, str | None], int] = {}

    def fail(self, function: str, *values: int | None, uuid: str | None = None, always: bool = False) -> None:
        """The next calls of ``function`` (of one GPU, or of all) fail with ``values``; None lets one through."""
        if always:
            self._always[function, uuid] = next(value for value in values if value is not None)
        else:
            self._scripts.setdefault((function, uuid), []).extend(values)

    def clear_failures(self) -> None:
        """Nothing fails any more."""
        self._scripts.clear()
        self._always.clear()

    def __getattr__(self, function: str) -> Any:
        if function in self._OF_A_GPU:
            return lambda gpu, *_arguments: self._answer(function, gpu, getattr(gpu, self._OF_A_GPU[function]))
        raise AttributeError(function)

    def _answer(self, function: str, gpu: FakeGpu | None, value: Any) -> Any:
        self._check(function, gpu)
        if not self.is_open:
            raise FakeNvmlError(1)
        return value

    def _check(self, function: str, gpu: FakeGpu | None) -> None:
        self.calls[function] += 1
        for key in _keys(function, gpu):
            script = self._scripts.get(key)
            value = script.pop(0) if script else self._always.get(key)
            if value is not None:
                raise FakeNvmlError(value)

    def nvmlInit(self) -> None:  # noqa: N802
        self._check("nvmlInit", None)
        self.starts += 1
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._answer("nvmlShutdown", None, None)
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return int(self._answer("nvmlDeviceGetCount", None, len(self.gpus)))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        gpu: FakeGpu = self._answer("nvmlDeviceGetHandleByIndex", self.gpus[index], self.gpus[index])
        return gpu

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        every = (one for gpu in self.gpus for one in (gpu, *gpu.instances))
        found = next((gpu for gpu in every if gpu.uuid == uuid), None)
        gpu: FakeGpu | None = self._answer("nvmlDeviceGetHandleByUUID", found, found)
        if gpu is None:
            raise FakeNvmlError(6)
        return gpu

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:  # noqa: N802
        is_cut = int(bool(gpu.instances))
        return list(self._answer("nvmlDeviceGetMigMode", gpu, [is_cut, is_cut]))

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:  # noqa: N802
        return int(self._answer("nvmlDeviceGetMaxMigDeviceCount", gpu, 7))

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:  # noqa: N802
        if index >= len(gpu.instances):
            raise FakeNvmlError(6)
        instance: FakeGpu = self._answer("nvmlDeviceGetMigDeviceHandleByIndex", gpu, gpu.instances[index])
        return instance

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: FakeGpu) -> FakeGpu:  # noqa: N802
        board: FakeGpu = next(gpu for gpu in self.gpus if instance in gpu.instances)
        self._answer("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", board, None)
        return board

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return self._answer(
            "nvmlDeviceGetUtilizationRates", gpu, SimpleNamespace(gpu=gpu.utilization_percent, memory=0)
        )

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, version: int | None = None) -> Any:  # noqa: N802
        function = "nvmlDeviceGetMemoryInfo" + ("_v2" if version else "")
        used_bytes = gpu.used_bytes if version else gpu.used_bytes + gpu.reserved_bytes
        return self._answer(function, gpu, SimpleNamespace(used=used_bytes, total=gpu.total_bytes))

    def nvmlEventSetCreate(self) -> list[FakeGpu]:  # noqa: N802
        return list(self._answer("nvmlEventSetCreate", None, []))

    def nvmlDeviceRegisterEvents(self, gpu: FakeGpu, kind: int, events: list[FakeGpu]) -> None:  # noqa: N802
        self._answer("nvmlDeviceRegisterEvents", gpu, None)
        events.append(gpu)

    def nvmlEventSetWait_v2(self, events: list[FakeGpu], timeout_ms: int) -> Any:  # noqa: N802
        self._answer("nvmlEventSetWait_v2", None, None)
        for gpu in events:
            if gpu.xids:
                code, of_instance = gpu.xids.pop(0), gpu.xid_instance_id
                return SimpleNamespace(device=gpu, eventType=8, eventData=code, gpuInstanceId=of_instance)
        raise FakeNvmlError(10)

    def nvmlEventSetFree(self, events: list[FakeGpu]) -> None:  # noqa: N802
        self._answer("nvmlEventSetFree", None, None)


def _keys(function: str, gpu: FakeGpu | None) -> Iterable[tuple[str, str | None]]:
    return ((function, None), *(((function, gpu.uuid),) if gpu is not None else ()))
