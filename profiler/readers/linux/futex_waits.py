"""Waits for a futex: a lock of another thread or of another process, or a sleep."""

import os
import sys
from collections.abc import Callable

from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_HOUR
from profiler.readers.linux.process_memory import ProcessMemory
from profiler.readers.linux.shared_links import SharedLinks
from profiler.readers.linux.system_calls import MAX_UINT, SystemCall
from profiler.readers.linux.wait_types import BlockedThread, Wait

# From linux/futex.h: the operations that may have a timeout, without their flags, and the timeout's
# position among the arguments. LOCK_PI and its like always wait for a lock that a thread holds.
# Threads of one process use the private flag.
_FUTEX_COMMAND = 0x7F
_FUTEX_WAIT = 0
_FUTEX_WAIT_BITSET = 9
_FUTEX_TIMEOUTS = {"futex": 3, "futex_waitv": 3, "futex_wait": 4}
_FUTEX_PRIVATE = 0x80
_FUTEX_FLAGS = {"futex": 1, "futex_wait": 3}
_FUTEX_BY_WALL_CLOCK = 0x100
# So long, nobody sleeps: Java's ExecutorService.close waits for its tasks a day at a time.
_ENDLESS_NS = 12 * NS_PER_HOUR
# glibc's and musl's pthread_mutex_t: a thread waits for it with this value; glibc's has its owner.
_MUTEX_WITH_WAITERS = 2
_MUTEX_OWNER = slice(8, 12)
# A wait for a futex for a limited time, as of Java's Thread.sleep, Python's Event.wait and a
# condition variable: of a thread that is not known to wait for another one, it is a sleep.
_TIMED_FUTEX = BlockedThread(wait=Wait("sleep"), helpers="threads")
_LOCK_OF_THREAD = BlockedThread(wait=Wait("lock"), helpers="threads")
# In a look, of so many locks it is asked in which memory they are.
_MAX_MEMORIES = 16


class FutexWaits:
    """Says what a wait for a futex is for; ``wall_ahead_ns`` is what the wall clock is ahead of the
    monotonic one.
    """

    def __init__(
        self,
        proc_folder: str,
        memory: ProcessMemory,
        shared: SharedLinks,
        wall_ahead_ns: Callable[[], int],
    ) -> None:
        self._folder = proc_folder
        self._memory = memory
        self._shared = shared
        self._wall_ahead_ns = wall_ahead_ns
        self._memories_left = 0  # in the present look

    def begin_look(self) -> None:
        self._memories_left = _MAX_MEMORIES

    def wait_for_futex(
        self, pid: int, name: str, call: SystemCall, now_ns: int, since_ns: int
    ) -> BlockedThread:
        """The wait for threads, or for other processes of the batch that share the memory."""
        blocked = self._wait_for_threads(pid, name, call, now_ns, since_ns)
        if name not in _FUTEX_FLAGS or call.arguments[_FUTEX_FLAGS[name]] & _FUTEX_PRIVATE:
            return blocked
        address = call.arguments[0]
        link = self._shared.known_link_at(pid, address)
        if link is None and self._memories_left > 0:
            self._memories_left -= 1
            link = self._shared.find_link_at(pid, address, now_ns)
        if not link:
            return blocked  # pthread_join has no private flag, either
        pids = self._shared.other_holders_of(pid, (link,), now_ns)
        return replace(blocked, helpers="memory", helper_pids=pids)

    def _wait_for_threads(
        self, pid: int, name: str, call: SystemCall, now_ns: int, since_ns: int
    ) -> BlockedThread:
        """A lock, or a sleep: a wait for a limited time, in which nobody need hold a lock.

        Such a wait is a lock's if the futex is a POSIX mutex, which names the thread that holds it.
        """
        address, operation, value = call.arguments[:3]
        if name != "futex":
            is_timed = bool(call.arguments[_FUTEX_TIMEOUTS[name]])
            return _TIMED_FUTEX if is_timed else _LOCK_OF_THREAD
        is_wait = operation & _FUTEX_COMMAND in (_FUTEX_WAIT, _FUTEX_WAIT_BITSET)
        if not (is_wait and call.arguments[_FUTEX_TIMEOUTS[name]]):
            thread = value & MAX_UINT
            is_join = is_wait and not operation & _FUTEX_PRIVATE and self._has_thread(pid, thread)
            return replace(_LOCK_OF_THREAD, helper_thread=thread) if is_join else _LOCK_OF_THREAD
        if value & MAX_UINT == _MUTEX_WITH_WAITERS:
            mutex = self._memory.read(pid, address, _MUTEX_OWNER.stop) or b""
            if self._has_thread(pid, int.from_bytes(mutex[_MUTEX_OWNER], sys.byteorder)):
                return _LOCK_OF_THREAD
        if self._memory.timeouts_left == 0:
            return _TIMED_FUTEX
        timeout_ns = self._memory.read_timeout_ns(pid, call.arguments[_FUTEX_TIMEOUTS[name]])
        until_ns = self._end_ns(operation, timeout_ns, since_ns)
        begin_ns = since_ns
        if not since_ns and operation & _FUTEX_COMMAND != _FUTEX_WAIT:
            # A thread that was seen first in this wait may have waited at any time before.
            begin_ns = now_ns
        if until_ns is not None and until_ns - begin_ns >= _ENDLESS_NS:
            return _LOCK_OF_THREAD
        is_exact = operation & _FUTEX_COMMAND != _FUTEX_WAIT
        return replace(_TIMED_FUTEX, until_ns=until_ns, until_within_ns=0 if is_exact else None)

    def _has_thread(self, pid: int, thread: int) -> bool:
        path = f"{self._folder}/{pid}/task/{thread}"
        return thread > 0 and os.path.exists(path)  # noqa: PTH110  faster

    def _end_ns(self, operation: int, timeout_ns: int | None, since_ns: int) -> int | None:
        """When the timeout of a futex ends a wait at the earliest; None if it is not readable."""
        if timeout_ns is None:
            return None
        if operation & _FUTEX_COMMAND == _FUTEX_WAIT:
            return since_ns + timeout_ns
        if operation & _FUTEX_BY_WALL_CLOCK:
            return timeout_ns - self._wall_ahead_ns()
        return timeout_ns
