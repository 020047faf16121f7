"""The alarm on real processes."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from profiler.sources.exit_alarm import ProcessExitWaiter
from profiler.sources.proc import all_pids

_LONG_SECONDS = 60.0


@pytest.fixture
def alarm() -> Iterator[ProcessExitWaiter]:
    before = len(all_pids("/proc/self/fd"))
    made = ProcessExitWaiter()
    made.open()
    yield made
    made.close()
    assert len(all_pids("/proc/self/fd")) == before


def program(code: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)


def test_a_processs_end_ends_the_pause_once(alarm: ProcessExitWaiter) -> None:
    process = program("input()")
    alarm.watch((process.pid,))
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    assert alarm.wait(_LONG_SECONDS)
    process.wait()
    alarm.watch((process.pid,))
    assert not alarm.wait(0)


def test_who_is_no_longer_watched_does_not_wake(alarm: ProcessExitWaiter) -> None:
    process = program("input()")
    alarm.watch((process.pid,))
    alarm.watch(())
    process.communicate(b"\n")
    assert not alarm.wait(0)


def test_the_bell_ends_the_pause_and_is_no_end_of_a_process(alarm: ProcessExitWaiter) -> None:
    thread = threading.Thread(target=alarm.wake)
    thread.start()
    assert not alarm.wait(_LONG_SECONDS)
    thread.join()
    alarm.wake()
    assert not alarm.wait(_LONG_SECONDS)


def test_a_process_that_is_not_there_is_not_waited_for(alarm: ProcessExitWaiter) -> None:
    process = program("")
    process.communicate()
    alarm.watch((process.pid,))
    assert not alarm.wait(0)


def test_the_bell_may_be_rung_before_it_is_opened_and_after_it_is_closed() -> None:
    alarm = ProcessExitWaiter()
    alarm.wake()
    alarm.open()
    alarm.close()
    alarm.wake()
