"""ProcessExitWaiter with real processes."""

import os
import subprocess
import threading
from collections.abc import Iterator

import pytest

from profiler.readers.linux.followed_process import ProcessExitWaiter
from tests.open_files import open_files
from tests.values import present

_LONG_SECONDS = 60.0


@pytest.fixture
def waiter() -> Iterator[ProcessExitWaiter]:
    before = open_files("anon_inode:")
    made = ProcessExitWaiter()
    made.open()
    yield made
    made.close()
    assert open_files("anon_inode:") <= before


def test_the_end_of_a_process_ends_one_wait(waiter: ProcessExitWaiter) -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    waiter.watch((process.pid,))
    present(process.stdin).close()
    assert waiter.wait(_LONG_SECONDS)
    process.wait()
    waiter.watch((process.pid,))
    assert not waiter.wait(0)


def test_an_event_of_a_file_ends_one_wait(waiter: ProcessExitWaiter) -> None:
    """Like a changed ``cgroup.events``, a pipe without a reader is reported with POLLERR until something is done."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        waiter.watch((), (writer,))
        assert waiter.wait(_LONG_SECONDS)
        assert not waiter.wait(0)
        waiter.watch((), (writer,))
        assert waiter.wait(_LONG_SECONDS)
    finally:
        os.close(writer)


def test_wake_ends_the_wait_but_is_not_the_end_of_a_process(waiter: ProcessExitWaiter) -> None:
    thread = threading.Thread(target=waiter.wake)
    thread.start()
    assert not waiter.wait(_LONG_SECONDS)
    thread.join()
    waiter.wake()
    assert not waiter.wait(_LONG_SECONDS)
