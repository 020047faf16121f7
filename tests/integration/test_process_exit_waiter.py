"""ProcessExitWaiter with real processes."""

import os
import subprocess
import threading

from profiler.readers.linux.followed_process import ProcessExitWaiter
from tests.open_files import open_files
from tests.values import present
from tools.waiting import LIMIT_SECONDS


def test_an_event_of_a_file_ends_one_wait() -> None:
    """Like a changed ``cgroup.events``, a pipe without a reader is reported with POLLERR until
    something is done.
    """
    before, waiter = open_files("anon_inode:"), ProcessExitWaiter()
    waiter.open()
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    waiter.watch_only((process.pid,))
    present(process.stdin).close()
    assert waiter.wait(LIMIT_SECONDS)
    process.wait()
    waiter.watch_only((process.pid,))
    assert not waiter.wait(0)
    reader, writer = os.pipe()
    os.close(reader)
    for _ in range(2):
        waiter.watch_only((), (writer,))
        assert waiter.wait(LIMIT_SECONDS)
        assert not waiter.wait(0)
    os.close(writer)
    waiter.watch_only(())
    thread = threading.Thread(target=waiter.wake)
    thread.start()
    assert not waiter.wait(LIMIT_SECONDS)
    thread.join()
    waiter.wake()
    assert not waiter.wait(LIMIT_SECONDS)
    waiter.close()
    assert open_files("anon_inode:") <= before
