"""The first GPU of this machine under load: what is reported against readings of the driver made beside it.

Run by ``make gpu`` on a machine with a GPU; skipped everywhere else.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.collectors.nvidia import is_driver_present
from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.gpu_ownership import GpuScope
from profiler.collectors.nvidia.nvml_library import load_binding
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.core.clock import SystemClock
from profiler.record.record_model import Container, Gpu, Record
from tests.fakes import FakeLog, seconds
from tests.waiting import wait_until

pytestmark = pytest.mark.gpu

LOAD = Path(__file__).parents[2] / "examples" / "gpu_burn" / "gpu_burn.py"
GIB = 2**30
_LOAD_GIB = 4
_WATCHED_SECONDS = 10


@pytest.fixture
def nvml() -> Iterator[Any]:
    if not is_driver_present(os.environ.get("LD_LIBRARY_PATH"), os.path.exists):
        pytest.skip("there is no NVIDIA driver on this machine")
    pynvml: Any = load_binding()
    pynvml.nvmlInit()
    yield pynvml
    pynvml.nvmlShutdown()


@pytest.fixture
def load(nvml: Any) -> Iterator[subprocess.Popen[str]]:
    options = ["--by", "cuda", "--gib", str(_LOAD_GIB), "--seconds", str(3 * _WATCHED_SECONDS)]
    words = [sys.executable, str(LOAD), *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def watched_beside(nvml: Any) -> tuple[Gpu, float, int]:
    """The record's entry, and by our own readings 20 times a second: joules, and the most bytes in use."""
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    clock = SystemClock()
    watch = GpuCollector(NvmlSource(load_binding, clock), GpuScope(()), clock, FakeLog(), seconds(1), is_required=True)
    watch.start()
    wait_until(lambda: watch.has_data, 30, "the first reading")
    joules, max_bytes = 0.0, 0
    before = time.monotonic()
    end = before + _WATCHED_SECONDS
    while before < end:
        time.sleep(0.05)  # the period of our own readings
        now = time.monotonic()
        joules += nvml.nvmlDeviceGetPowerUsage(handle) / 1000 * (now - before)
        max_bytes = max(max_bytes, nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)
        before = now
    watch.final_reading(10)
    watch.stop(10)
    record = watch.add_to_record(Record(task_id="1", container=Container(name="batch"), status="success"))
    return record.gpus[0], joules, max_bytes


def test_memory_energy_and_utilization_under_load(nvml: Any, load: subprocess.Popen[str]) -> None:
    gpu, joules, max_bytes = watched_beside(nvml)
    assert gpu.memory_used_mb is not None
    assert max_bytes >= _LOAD_GIB * GIB
    assert gpu.memory_used_mb.max == pytest.approx(max_bytes / 2**20, rel=0.01)
    assert gpu.energy_joules == pytest.approx(joules, rel=0.03)
    assert gpu.utilization_percent is not None
    assert gpu.utilization_percent.p50 is not None
    assert gpu.utilization_percent.p50 > 90


def test_an_idle_gpu_is_reported_as_it_is(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    gpu, _, max_bytes = watched_beside(nvml)
    assert gpu.uuid == nvml.nvmlDeviceGetUUID(handle)
    assert gpu.name == nvml.nvmlDeviceGetName(handle)
    assert gpu.memory_used_mb is not None
    assert gpu.memory_used_mb.max == pytest.approx(max_bytes / 2**20, rel=0.01, abs=1)
    assert gpu.power_watts is not None
    assert (gpu.power_watts.avg or 0) > 0
