"""examples/gpu_burn: the load without a GPU, on a played driver; what its README shows is what the profiler makes."""

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from examples.gpu_burn.gpu_burn import CudaLoad, TorchLoad, burn, create_load, main

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


def test_a_number_that_is_none_is_an_error_of_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    invalid = {"--gib": ("nan", "inf", "-inf", "-1", "0", "four", "1e30"), "--seconds": ("nan", "inf", "-1", "long")}
    for option, value in ((option, value) for option, values in invalid.items() for value in values):
        monkeypatch.setattr(sys, "argv", ["gpu_burn.py", f"{option}={value}"])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert f"argument {option}: {value} is no" in capsys.readouterr().err
