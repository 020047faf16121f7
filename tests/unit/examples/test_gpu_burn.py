"""examples/gpu_burn: the load without a GPU, on a played driver; what its README shows is what the profiler makes."""

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from examples.gpu_burn.gpu_burn import _PTX, CudaLoad, TorchLoad, burn, create_load, main
from profiler.collectors.collector import with_collected
from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import GpuScope
from profiler.record.record_model import Container, Metrics, Record
from tests.fake_nvml import MIB, FakeGpu, FakeNvml
from tests.fakes import FakeClock, FakeLog, seconds

FOLDER = Path(__file__).parents[3] / "examples" / "gpu_burn"
GIB = 2**30


class AcceptingDriver(ctypes.CDLL):
    """A ``libcuda`` that takes every call; tests/integration/test_gpu.py has one that looks at the arguments."""

    def __init__(self) -> None:  # super().__init__ would open a library
        self.blocks: list[int] = []

    def __getattr__(self, function: str) -> Any:
        if not function.startswith("cu"):
            raise AttributeError(function)
        return self._launch if function == "cuLaunchKernel" else lambda *_: 0

    def _launch(self, _kernel: Any, blocks: int, *_: Any) -> int:
        self.blocks.append(blocks)
        return 0


class CountingLoad:
    """Each step takes a second of the clock."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self._clock = clock
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        self._clock.now += 1.0


def test_it_sleeps_after_each_span_of_work_and_ends_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The time counts from the first kernel."""
    clock = SimpleNamespace(now=100.0)
    load, pauses = CountingLoad(clock), list[float]()
    burn(load, 5, lambda: clock.now)
    assert (load.steps, capsys.readouterr().out) == (1 + 5, "ready\n")
    load.steps = 0

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.now += seconds

    burn(load, 25, lambda: clock.now, sleep, work_seconds=4, pause_seconds=7.5)
    assert (load.steps, pauses) == (1 + 4 + 4 + 2, [7.5, 7.5])
    burn(load, 6, lambda: clock.now, sleep, work_seconds=4, pause_seconds=7.5)
    assert pauses[2:] == [2]


def test_one_block_keeps_one_multiprocessor_busy() -> None:
    driver = AcceptingDriver()
    CudaLoad(driver, GIB, 1).step()
    assert driver.blocks == [1]


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="NVIDIA's assembler, ptxas, is not installed")
@pytest.mark.parametrize("architecture", ["sm_50", "sm_70", "sm_90", "sm_120"])
def test_nvidias_assembler_takes_the_kernel(architecture: str, tmp_path: Path) -> None:
    code = tmp_path / "burn.ptx"
    code.write_bytes(_PTX.rstrip(b"\0"))
    command = ["ptxas", f"--gpu-name={architecture}", f"--output-file={tmp_path / 'burn.cubin'}", str(code)]
    assembled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (assembled.returncode, assembled.stdout, assembled.stderr) == (0, "", "")


def played_torch(calls: list[str], *, sees_a_gpu: bool = True) -> Any:
    """PyTorch as far as the load goes; the real one is 2 GB, and without a GPU it would not do."""
    return SimpleNamespace(
        uint8="uint8",
        float16="float16",
        empty=lambda size, **_options: calls.append(f"hold {size}"),
        randn=lambda rows, columns, **options: f"{rows}x{columns} {options['dtype']} {options['device']}",
        matmul=lambda left, right: calls.append(f"{left} * {right}"),
        cuda=SimpleNamespace(is_available=lambda: sees_a_gpu, synchronize=lambda: calls.append("wait")),
    )


def test_pytorch_holds_the_memory_multiplies_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setitem(sys.modules, "torch", played_torch(calls))
    load = create_load("auto", GIB)
    assert isinstance(load, TorchLoad)
    load.step()
    matrix = "8192x8192 float16 cuda"
    assert calls == [f"hold {GIB}", f"{matrix} * {matrix}", "wait"]


@pytest.mark.parametrize("torch", [None, played_torch([], sees_a_gpu=False)], ids=["missing", "without a GPU"])
def test_without_pytorch_or_its_gpu_the_driver_is_next(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: {"libcuda.so.1": AcceptingDriver()}[name])
    assert isinstance(create_load("auto", GIB), CudaLoad)
    with pytest.raises(SystemExit, match="PyTorch is not installed or sees no GPU"):
        create_load("torch", GIB)


def test_a_machine_without_a_driver_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(SystemExit, match=r"^The NVIDIA driver is missing \(libcuda\.so\.1\): run this on"):
        create_load("cuda", GIB)


def test_it_runs_as_a_program_of_its_own_without_this_project(tmp_path: Path) -> None:
    """As in its image: the one file, and Python."""
    words = [sys.executable, "-I", str(FOLDER / "gpu_burn.py"), "--help"]
    helped = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "--gib" in helped.stdout
    dockerfile = (FOLDER / "Dockerfile").read_text()
    assert "COPY gpu_burn.py /gpu_burn.py" in dockerfile
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in dockerfile


def test_a_number_that_is_none_is_an_error_of_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    invalid = {"--gib": ("nan", "inf", "-inf", "-1", "0", "four", "1e30"), "--seconds": ("nan", "inf", "-1", "long")}
    for option, value in ((option, value) for option, values in invalid.items() for value in values):
        monkeypatch.setattr(sys, "argv", ["gpu_burn.py", f"{option}={value}"])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert f"argument {option}: {value} is no" in capsys.readouterr().err


def test_the_readme_shows_what_the_profiler_makes_of_the_played_driver() -> None:
    """60 s: 4 GiB held, busy after a second, slowed by the power cap in the last quarter."""
    gpu = FakeGpu(uuid="GPU-00000000-0000-0000-0000-000000000000", name="a GPU of the test driver")
    nvml, clock = FakeNvml(gpu), FakeClock()
    watch = GpuCollector(
        NvmlSource(lambda: nvml.binding, clock), GpuScope(()), clock, FakeLog(), seconds(1), is_required=True
    )
    gpu.used_bytes, gpu.clock_mhz, gpu.power_milliwatts = 4400 * MIB, 1700, 290_000
    for second in range(61):
        gpu.utilization_percent = 0 if second <= 1 else 100
        gpu.celsius = 40 + second // 3
        gpu.reasons = 4 if second > 45 else 0
        watch.tick(counters=second in {0, 60})
        clock.advance(1)
        gpu.energy_millijoules += gpu.power_milliwatts
    minute = Metrics(duration_ms=60_000)
    record = Record(task_id="1", container=Container(name="batch"), status="success", metrics=minute)
    gpus = msgspec.json.encode({"gpus": with_collected(record, (watch,)).gpus})
    (block,) = (FOLDER / "README.md").read_text().split("```json\n")[1:]
    assert json.loads(block.split("```")[0]) == json.loads(gpus)
