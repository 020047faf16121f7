"""examples/gpu_burn: the load without a GPU, or a driver."""

import ctypes
import sys
from types import SimpleNamespace

import pytest

from examples.gpu_burn.gpu_burn import burn, load_driver, main


class CountingLoad:
    """Each step takes a second of the clock."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self._clock = clock
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        self._clock.now += 1.0


def test_it_sleeps_after_each_span_of_work_and_ends_in_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The time counts from the first kernel."""
    clock = SimpleNamespace(now=100.0)
    load, pauses = CountingLoad(clock), list[float]()
    burn(load, 5, lambda: clock.now)
    assert load.steps == 1 + 5
    assert capsys.readouterr().out == "ready\n"
    load.steps = 0

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.now += seconds

    burn(load, 25, lambda: clock.now, sleep, work_seconds=4, pause_seconds=7.5)
    assert load.steps == 1 + 4 + 4 + 2
    assert pauses == [7.5, 7.5]
    burn(load, 6, lambda: clock.now, sleep, work_seconds=4, pause_seconds=7.5)
    assert pauses[2:] == [2]


def test_a_machine_without_a_driver_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(
        SystemExit, match=r"^The NVIDIA driver is missing \(libcuda\.so\.1\): run this on"
    ):
        load_driver()


def test_a_number_that_is_none_is_an_error_of_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    invalid = {
        "--gib": ("nan", "inf", "-inf", "-1", "0", "four", "1e30"),
        "--seconds": ("nan", "inf", "-1", "long"),
    }
    for option, value in (
        (option, value) for option, values in invalid.items() for value in values
    ):
        monkeypatch.setattr(sys, "argv", ["gpu_burn.py", f"{option}={value}"])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert f"argument {option}: {value} is no" in capsys.readouterr().err
