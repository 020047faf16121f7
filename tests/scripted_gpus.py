"""A source of GPU readings that plays a script."""

import threading

from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import DriverReading, GpuFacts, GpuSample
from profiler.readers import Unavailable
from tests.fake_nvml import MIB


class ScriptedSource(NvmlSource):
    """Returns the given answers; a cleared ``release`` makes a call hang like a hung driver."""

    name = "nvml"
    is_driver_missing = False

    def __init__(self, *answers: DriverReading | Unavailable | Exception) -> None:
        self._answers = list(answers)
        self.counters_read: list[bool] = []
        self.permanently_unavailable = False
        self.closed = False
        self.release = threading.Event()
        self.release.set()
        self.called = threading.Event()

    def read_all_gpus(self, *, counters: bool) -> DriverReading | Unavailable:
        self.counters_read.append(counters)
        self.called.set()
        self.release.wait()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def reading(*uuids: str, percent: float = 0.0) -> DriverReading:
    return DriverReading(
        samples=tuple(
            GpuSample(
                facts=GpuFacts(uuid=uuid, index=index),
                utilization_percent=percent,
                memory_used_bytes=MIB,
            )
            for index, uuid in enumerate(uuids)
        )
    )
