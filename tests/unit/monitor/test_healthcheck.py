"""The health check: a monitor in this container that wakes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.core.errors import TaskProfilerError
from profiler.monitor.healthcheck import check_monitor

HERE = "0::/\n"
ELSEWHERE = "0::/../0123456789ab\n"
MONITOR = ("/opt/task-profiler/bin/python3", "/usr/local/bin/task-profiler", "monitor")


def process(proc: Path, name: str, arguments: tuple[str, ...], group: str = HERE, wakes: int = 7) -> Path:
    folder = proc / name
    folder.mkdir(parents=True)
    (folder / "cmdline").write_text("".join(f"{argument}\0" for argument in arguments))
    (folder / "cgroup").write_text(group)
    set_wakes(folder, wakes)
    return folder


def set_wakes(folder: Path, wakes: int) -> None:
    (folder / "status").write_text(
        f"Name:\ttask-profiler\nvoluntary_ctxt_switches:\t{wakes}\nnonvoluntary_ctxt_switches:\t{wakes + 1}\n"
    )


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with the check itself and what is no process."""
    process(tmp_path, "self", ("python3", "task-profiler", "healthcheck"))
    process(tmp_path, "90", ("python3", "task-profiler", "healthcheck"))
    (tmp_path / "net").mkdir()
    (tmp_path / "uptime").write_text("1.0 1.0\n")
    return tmp_path


class Sleeps:
    """Counts the seconds slept; `then` happens after so many of them."""

    def __init__(self, at_seconds: float = 0, then: Callable[[], object] = lambda: None) -> None:
        self.seconds = 0.0
        self._at_seconds = at_seconds
        self._then = then

    def __call__(self, seconds: float) -> None:
        self.seconds += seconds
        if self.seconds >= self._at_seconds:
            self._then()


def test_a_monitor_that_wakes_is_healthy_as_soon_as_it_does(proc: Path) -> None:
    monitor = process(proc, "1", MONITOR)
    sleeps = Sleeps(1, lambda: set_wakes(monitor, 8))
    check_monitor(proc, 1.0, sleeps)
    assert sleeps.seconds == 1


def test_a_monitor_that_does_not_wake_is_not_healthy(proc: Path) -> None:
    process(proc, "1", MONITOR)
    sleeps = Sleeps()
    with pytest.raises(TaskProfilerError, match="has not woken for 10 seconds: restart its container"):
        check_monitor(proc, 5.0, sleeps)
    assert sleeps.seconds == 10


def test_of_a_monitor_that_samples_rarely_only_the_process_is_checked(proc: Path) -> None:
    process(proc, "1", MONITOR)
    sleeps = Sleeps()
    check_monitor(proc, 60.0, sleeps)
    assert sleeps.seconds == 0


def test_a_container_without_a_monitor_is_not_healthy(proc: Path) -> None:
    process(proc, "1", ("python3", "task-profiler", "run", "--", "monitor-everything"))
    with pytest.raises(TaskProfilerError, match="No monitor runs in this container"):
        check_monitor(proc, 1.0, Sleeps())


def test_the_monitor_of_another_container_does_not_count(proc: Path) -> None:
    """With a shared process namespace all containers of the task are seen."""
    other = process(proc, "7", MONITOR, group=ELSEWHERE)
    with pytest.raises(TaskProfilerError, match="No monitor runs in this container"):
        check_monitor(proc, 1.0, Sleeps(0, lambda: set_wakes(other, 8)))


def test_a_monitor_that_ends_meanwhile_is_not_healthy(proc: Path) -> None:
    monitor = process(proc, "1", MONITOR)
    with pytest.raises(TaskProfilerError, match="ended during the check"):
        check_monitor(proc, 1.0, Sleeps(0.5, lambda: (monitor / "status").unlink(missing_ok=True)))


def test_processes_that_vanish_while_they_are_listed_are_survived(proc: Path) -> None:
    (proc / "91").mkdir()  # its files are gone already
    monitor = process(proc, "92", MONITOR)
    check_monitor(proc, 1.0, Sleeps(0.25, lambda: set_wakes(monitor, 8)))
