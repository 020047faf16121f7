"""A sign of life on a pipe, where no progress is drawn."""

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import pytest

from profiler.cli import progress


class PlayedTimer:
    """A timer that ends when the test says so."""

    made: ClassVar["list[PlayedTimer]"] = []

    def __init__(self, seconds: float, function: Callable[..., object], words: tuple[str]) -> None:
        self.seconds = seconds
        self.is_cancelled = False
        self.is_started = False
        self.end: Callable[[], object] = partial(function, *words)
        self.made.append(self)

    def start(self) -> None:
        self.is_started = True

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[PlayedTimer]:
    made: list[PlayedTimer] = []
    monkeypatch.setattr(PlayedTimer, "made", made)
    monkeypatch.setattr(threading, "Timer", PlayedTimer)
    return made


def test_a_pipe_gets_a_sentence_if_the_reading_lasts(
    timers: list[PlayedTimer], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.say_if_slow("Reading …"):
        assert capsys.readouterr().err == ""
        assert timers[0].is_started
        timers[0].end()
    assert capsys.readouterr().err == "task-profiler: Reading …\n"


def test_a_short_reading_ends_without_a_sentence(
    timers: list[PlayedTimer], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.say_if_slow("Reading …"):
        pass
    assert timers[0].is_cancelled
    assert capsys.readouterr().err == ""


def test_a_reading_that_fails_ends_the_timer(timers: list[PlayedTimer]) -> None:
    with pytest.raises(ValueError, match="no"), progress.say_if_slow("Reading …"):
        raise ValueError("no")
    assert timers[0].is_cancelled


def test_a_terminal_gets_no_sentence(
    timers: list[PlayedTimer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "isatty", lambda _descriptor: True)
    with progress.say_if_slow("Reading …"):
        pass
    assert timers == []
