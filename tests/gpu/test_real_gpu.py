"""The first GPU of this machine under load: what is reported against readings of the driver made
beside it.

The load multiplies matrices with PyTorch where that is installed, else it runs a kernel on all
multiprocessors.

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
from msgspec import Struct

from profiler.collectors.nvidia import is_driver_present
from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.nvml_calls import load_binding
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import GpuScope
from profiler.core.clock import SystemClock
from profiler.record.record_model import NOT_MEASURED, Container, Gpu, Record, decode
from tests.collected import with_collected
from tests.fakes import FakeLog, seconds
from tests.values import present
from tools.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.gpu

LOAD = Path(__file__).parents[2] / "examples" / "gpu_burn" / "gpu_burn.py"
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
def load(nvml: Any, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A full load, or one with the options that are the fixture's parameter."""
    options = [
        "--gib",
        str(_LOAD_GIB),
        "--seconds",
        str(3 * _WATCHED_SECONDS),
        *getattr(request, "param", ()),
    ]
    words = [sys.executable, str(LOAD), *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert present(process.stdout).readline() == "ready\n"
        yield process
        process.kill()


class Watched(Struct, frozen=True):
    """The record's entry of a GPU, and what the test read beside the profiler.

    The profiler's energy is of a time that is longer than that of ``least_millijoules``, and
    shorter than that of ``most_millijoules`` (the driver's counter). ``power_joules`` is the power
    of the shorter time, read 20 times a second.
    """

    gpu: Gpu
    least_millijoules: int
    most_millijoules: int
    power_joules: float
    max_bytes: int


def watched_beside(nvml: Any) -> Watched:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)

    def counted_millijoules() -> int:
        return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))

    clock = SystemClock()
    watch = GpuCollector(
        NvmlSource(load_binding, clock),
        GpuScope(()),
        clock,
        FakeLog(),
        seconds(1),
        is_required=True,
    )
    outer_millijoules = counted_millijoules()
    watch.start()
    wait_until(lambda: watch.has_data, "the first reading")
    joules, max_bytes = 0.0, 0
    inner_millijoules = counted_millijoules()
    before = time.monotonic()
    end = before + _WATCHED_SECONDS
    while before < end:
        time.sleep(0.05)  # the period of our own readings
        now = time.monotonic()
        joules += nvml.nvmlDeviceGetPowerUsage(handle) / 1000 * (now - before)
        max_bytes = max(
            max_bytes, nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used
        )
        before = now
    inner_millijoules = counted_millijoules() - inner_millijoules
    watch.final_reading(10)
    watch.stop(10)
    outer_millijoules = counted_millijoules() - outer_millijoules
    record = with_collected(
        Record(task_id="1", container=Container(name="batch"), status="success"), (watch,)
    )
    return Watched(record.gpus[0], inner_millijoules, outer_millijoules, joules, max_bytes)


def test_memory_energy_and_utilization_under_load(nvml: Any, load: subprocess.Popen[str]) -> None:
    watched = watched_beside(nvml)
    gpu = watched.gpu
    assert watched.max_bytes >= _LOAD_GIB * 2**30
    assert present(gpu.memory_used_mb).max == pytest.approx(watched.max_bytes / 2**20, rel=0.01)
    # The counter may not have moved between two calls: whole millijoules compare exactly.
    millijoules = round(1000 * present(gpu.energy_joules))
    assert watched.least_millijoules <= millijoules <= watched.most_millijoules
    assert 1000 * watched.power_joules == pytest.approx(watched.least_millijoules, rel=0.03)
    assert present(present(gpu.utilization_percent).p50) > 90
    assert present(gpu.idle_percent) <= 2
    assert sm_active_percent(gpu) > 90


def sm_active_percent(gpu: Gpu) -> float:
    if gpu.sm_active_percent == NOT_MEASURED or gpu.sm_active_percent.avg is None:
        pytest.skip("this GPU or its driver has no GPM, or does not allow it")
    return gpu.sm_active_percent.avg


@pytest.mark.parametrize("load", [("--blocks", "1")], indirect=True)
def test_a_loop_on_one_multiprocessor_is_neither_idle_nor_active(
    nvml: Any, load: subprocess.Popen[str]
) -> None:
    gpu = watched_beside(nvml).gpu
    assert present(present(gpu.utilization_percent).p50) > 90
    assert present(gpu.idle_percent) <= 2
    assert sm_active_percent(gpu) < 5


def test_the_idle_time_of_a_program_that_sleeps_is_true_and_named(nvml: Any) -> None:
    """It works for 20 s twice; the rest of the run, with the start of CUDA, is idle time."""
    load = [sys.executable, str(LOAD), "--seconds", "120", "--work", "20", "--pause", "40"]
    profiled = [sys.executable, "-m", "profiler", "run", "--json", "--", *load]
    environment = {
        **os.environ,
        "TASK_PROFILER_GPU_UUIDS": nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0)),
    }
    ran = subprocess.run(
        profiled, env=environment, capture_output=True, check=True, text=True, timeout=LIMIT_SECONDS
    )
    record = decode(ran.stderr.splitlines()[-1]).record
    idle, duration_ms = present(record.gpu_idle), present(record.metrics.duration_ms)
    assert idle.percent == pytest.approx(100 * (1 - 2 * 20_000 / duration_ms), abs=3)
    assert present(present(idle.waiting_for).sleep_percent) > 80


def test_an_idle_gpu_is_reported_as_it_is(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    watched = watched_beside(nvml)
    gpu = watched.gpu
    assert gpu.uuid == nvml.nvmlDeviceGetUUID(handle)
    assert gpu.name == nvml.nvmlDeviceGetName(handle)
    assert present(gpu.memory_used_mb).max == pytest.approx(
        watched.max_bytes / 2**20, rel=0.01, abs=1
    )
    assert present(present(gpu.power_watts).avg) > 0
