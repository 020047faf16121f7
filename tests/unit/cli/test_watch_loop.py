"""``task-profiler watch`` in a terminal: what is read and drawn as time goes on."""

import re
from collections.abc import Sequence
from functools import partial

import pytest

from profiler.cli.watch import _draw, _watch
from profiler.core.errors import TaskProfilerError
from tests.fakes import START_NS, FakeClock
from tests.running import checkpoint_at, ended, text
from tests.unit.running_tasks.test_watched_tasks import MISSING, FakeLogs, watched_tasks


class InterruptedClock(FakeClock):
    """Ctrl-C comes after so many seconds."""

    def __init__(self, seconds: int) -> None:
        super().__init__()
        self.left = seconds

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_a_read_every_15_seconds_and_a_table_every_second() -> None:
    logs, clock = FakeLogs(), InterruptedClock(40)
    shown: list[Sequence[str]] = []
    with pytest.raises(KeyboardInterrupt):
        _watch(watched_tasks(logs, clock, MISSING), shown.append, clock)
    assert len(logs.requests) == 3
    assert len(shown) == 41
    assert shown[0] == ("Reading what runs now …",)
    assert shown[-1] == (f"{MISSING} cannot be read: allow logs:FilterLogEvents on the log group.",)


def test_past_runs_are_read_while_the_table_is_there() -> None:
    logs, clock = FakeLogs(), InterruptedClock(1)
    logs.put(START_NS, text(checkpoint_at(START_NS)))
    shown: list[Sequence[str]] = []

    def refused() -> None:
        raise TaskProfilerError("Refused.")

    with pytest.raises(KeyboardInterrupt):
        _watch(watched_tasks(logs, clock, past=refused), shown.append, clock)
    assert shown[1:] == [("Reading the usual durations …",), ("The usual durations are unknown. Refused.",)]


@pytest.mark.parametrize("size", [(100, 24), (30, 5), (1, 1)])
def test_what_is_drawn_fits_the_terminal(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    columns, rows = size
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(rows))
    monkeypatch.setenv("NO_COLOR", "1")
    logs, clock = FakeLogs(), FakeClock()
    line = checkpoint_at(START_NS, task_id="first")
    logs.put(START_NS, text(line))
    watched = watched_tasks(logs, clock)
    draw = partial(_draw, watched, "/ecs/jobs")
    draw(["Reading …"])
    assert "nothing" not in capfdbinary.readouterr().out.decode()
    watched.refresh()
    draw(["A sentence that is longer than the terminal, so that it is wrapped."])
    logs.put(START_NS, text(ended(line)))
    watched.refresh()
    draw([])
    for drawn in capfdbinary.readouterr().out.decode().split("\x1b[H")[1:]:
        lines = re.sub(r"\x1b\[[KJ]", "", drawn).split("\r\n")
        assert len(lines) <= rows
        assert max(map(len, lines)) <= columns
