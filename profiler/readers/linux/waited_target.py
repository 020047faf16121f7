"""What a thread that is blocked in a system call waits for: the kind of the wait, and a peer or
a path.

Links, socket tables and lists of watched descriptors are read, never data. No name is ever looked
up.
"""

import os
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.connection_waits import AskStream, ConnectionWaits
from profiler.readers.linux.futex_waits import FutexWaits
from profiler.readers.linux.link_waits import (
    CHILD,
    OTHER,
    OWN_WAKE_UP,
    SIGNAL,
    SLEEP,
    TIMED_CHILD,
    LinkWaits,
)
from profiler.readers.linux.named_pipes import is_in_local_filesystem, kind_of_io_wait
from profiler.readers.linux.own_pairs import OwnPairs
from profiler.readers.linux.poll_outcome import ConnectionArrival
from profiler.readers.linux.process_memory import ProcessMemory
from profiler.readers.linux.shared_links import SharedLinks
from profiler.readers.linux.sockets import FindStreams, SocketTable
from profiler.readers.linux.system_calls import Action, SystemCall
from profiler.readers.linux.wait_types import BlockedThread, Wait
from profiler.readers.linux.watched_descriptors import WatchedDescriptors

if TYPE_CHECKING:
    from profiler.readers.linux.io_uring import IoUringRings

# By the function of the kernel in which the thread waits: a sleep has none of its own then.
_RESTARTED = {b"futex": "futex", b"poll": "poll"}
_RESTARTED_SLEEP = "nanosleep"
_HIDDEN_PLACES = (b"", b"0")
# The end of a shorter poll is always near: clients poll so until their answer comes.
_MIN_TIMEOUT_NS = 250 * NS_PER_MS
_LOCK_COMMANDS = (7, 38)  # of fcntl: F_SETLKW, F_OFD_SETLKW
_SIGNAL_TIMEOUT = 2  # the position of the timeout of rt_sigtimedwait among its arguments
# What another process holds. Nobody knows who uses a semaphore or a queue of System V.
_SEMAPHORE = BlockedThread(wait=Wait("lock"), helpers="memory")
_TIMED_SEMAPHORE = BlockedThread(wait=Wait("sleep"), helpers="memory")
_SEMAPHORE_TIMEOUT = 3  # the position of the timeout of semtimedop among its arguments
_MESSAGE = BlockedThread(wait=Wait("pipe"), helpers="memory")
_LOCK = BlockedThread(wait=Wait("lock"))
# Others of its threads say what it watches, as they do to the pollers of Java's virtual threads.
_WATCHES_NOTHING = replace(OWN_WAKE_UP, others_add=True)
_FOR_COMERS = BlockedThread(wait=Wait("network"), may_be_idle=True)
_BY_ACTION = {
    "disk": BlockedThread(wait=Wait("disk")),
    "sleep": SLEEP,
    "child": CHILD,
    "accept": _FOR_COMERS,
}
# The others' targets are in the arguments; a wait for a disk may be one for memory.
_UNCONDITIONAL_ACTIONS = ("sleep", "accept")
# From linux/io_uring.h: where io_uring_enter has its flags, followed by the place of its limits, of
# which the last is that of the timeout, and the flag that it has any.
_RING_FLAGS = 3
_RING_HAS_LIMITS = 1 << 3
_RING_LIMITS = struct.Struct("=16xQ")
# Calls that send wait for the peer to read: what comes meanwhile says nothing of them.
_RECEIVES = ("read", "recv", "pread")


class WaitResolver:
    """Finds what blocked threads wait for, by the links of ``/proc/PID/fd``."""

    def __init__(
        self,
        calls: Mapping[int, tuple[str, Action]],
        proc_folder: str,
        own_cpu_ns: Callable[[], int],
        *,
        peer_inode: Callable[[int], int | None] = lambda _: None,
        find_streams: FindStreams = lambda _: {},
        ask_stream: AskStream = lambda _inode, _stream: None,
        batch_pids: Callable[[], Collection[int]] = lambda: (),
        wall_ahead_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._calls = calls
        self._numbers = {name: number for number, (name, _) in calls.items()}
        self._restart_number = self._numbers.get("restart_syscall")
        self._unconditional = {
            number: _BY_ACTION[action]
            for number, (_, action) in calls.items()
            if action in _UNCONDITIONAL_ACTIONS
        }
        self._folder = proc_folder
        self._batch_pids = batch_pids
        self._now_ns: int | None = None
        self._rings: IoUringRings | None = None
        self.sockets = sockets = SocketTable(proc_folder, own_cpu_ns, peer_inode, find_streams)
        self._memory = ProcessMemory(proc_folder)
        self._watched = WatchedDescriptors(proc_folder, self._memory)
        link_of = self._watched.link_of
        shared = SharedLinks(proc_folder, batch_pids, link_of)
        self._connections = ConnectionWaits(sockets, shared, ask_stream)
        pairs = OwnPairs(proc_folder, sockets, link_of)
        self._links = LinkWaits(self._watched, sockets, shared, pairs, self._connections)
        self._futexes = FutexWaits(proc_folder, self._memory, shared, wall_ahead_ns)

    def is_restarted(self, call: SystemCall) -> bool:
        """Whether the call goes on after a stop, as that by SIGSTOP, Ctrl-Z, a debugger or the
        suspension of the machine.
        """
        return call.number == self._restart_number

    def unconditional_wait(self, call: SystemCall) -> BlockedThread | None:
        """What each thread in this call waits for, whatever the call's arguments are; None for
        other calls: see :meth:`resolve_wait`.
        """
        return self._unconditional.get(call.number)

    def restarted_call(self, call: SystemCall, place: bytes) -> SystemCall:
        """The call that goes on, by the function of the kernel in which its thread waits
        (``/proc/PID/task/TID/wchan``); the same call if that is not shown.
        """
        if place in _HIDDEN_PLACES:
            return call
        names = [name for word, name in _RESTARTED.items() if word in place]
        name = names[0] if names else _RESTARTED_SLEEP
        return SystemCall(self._numbers.get(name, call.number), call.arguments)

    def resolve_wait(self, pid: int, call: SystemCall, now_ns: int, since_ns: int) -> BlockedThread:
        """The wait of a thread of the process in this call, which has begun after ``since_ns``;
        ``other`` if it is unknown.
        """
        self._begin_resolving(now_ns)
        name, action = self._calls.get(call.number, ("", None))
        blocked = _BY_ACTION.get(action or "", OTHER)
        match action:
            case "record lock" | "file lock":
                blocked = self._wait_for_lock(pid, name, call)
            case "semaphore" | "message" | "message queue":
                blocked = self._wait_for_message(pid, name, call, now_ns)
            case "child" | "signal":
                blocked = _wait_for_child_or_signal(name, call)
            case "futex":
                blocked = self._futexes.wait_for_futex(pid, name, call, now_ns, since_ns)
            case "ring":
                blocked = self._wait_for_ring(pid, call, now_ns)
            case "file" | "socket":
                links = [self._watched.link_of(pid, call.int_argument(0))]
                blocked = self._links.wait_for_any_link(pid, links, now_ns)
                if blocked.may_be_idle and not name.startswith(_RECEIVES):
                    blocked = replace(blocked, may_be_idle=False)
            case "poll" | "select" | "epoll":
                blocked = self._wait_in_poll(pid, name, call, now_ns)
                is_repeated = blocked.is_timeout_of_own_wake_up or blocked.is_timeout_of_listeners
                if is_repeated or blocked.may_go_on:
                    timeout_ns = self._watched.timeout_ns(pid, name, call)
                    blocked = self._with_poll_timeout(blocked, timeout_ns, now_ns, since_ns)
        return blocked

    def _begin_resolving(self, now_ns: int) -> None:
        """Begin with the wait of one thread, which may be the first of a look."""
        self.sockets.has_postponed = False
        if now_ns != self._now_ns:
            self._now_ns = now_ns
            self._memory.begin_look()
            self._futexes.begin_look()

    def _wait_in_poll(self, pid: int, name: str, call: SystemCall, now_ns: int) -> BlockedThread:
        self._watched.others_add = False
        self._connections.quiet_ns = None
        descriptors, has_timeout = self._watched.watched_in_call(pid, name, call)
        if descriptors is None:
            return OTHER
        descriptors = tuple(dict.fromkeys(descriptors))
        if name.startswith("epoll") and not (descriptors or has_timeout):
            return _WATCHES_NOTHING
        blocked = self._links.wait_for_any(pid, descriptors, now_ns, has_timeout=has_timeout)
        return replace(blocked, others_add=True) if self._watched.others_add else blocked

    def _with_poll_timeout(
        self, blocked: BlockedThread, timeout_ns: int | None, now_ns: int, since_ns: int
    ) -> BlockedThread:
        """The poll with when its timeout ends it: what came would have ended it before."""
        if timeout_ns is None:
            return blocked
        if self._connections.quiet_ns is not None:
            since_ns = max(since_ns, now_ns - self._connections.quiet_ns)
        within_ns = max(now_ns - since_ns, 0) if timeout_ns >= _MIN_TIMEOUT_NS else None
        return replace(blocked, until_ns=since_ns + timeout_ns, until_within_ns=within_ns)

    def resolve_sleep(
        self, pid: int, call: SystemCall, blocked: BlockedThread, now_ns: int
    ) -> BlockedThread:
        """What a thread in an interruptible sleep waits for, if its wait in this call is for a
        path.
        """
        _, action = self._calls.get(call.number, ("", None))
        if action != "file":  # the requests of an io_uring
            return blocked
        kind = kind_of_io_wait(pid, call.int_argument(0), self._folder)
        if kind == blocked.wait.kind:
            return blocked
        if kind != "pipe":
            return BlockedThread(wait=Wait(kind))
        return self._links.wait_for_pipe(
            pid, (self._watched.link_of(pid, call.int_argument(0)),), now_ns
        )

    def read_arrivals(self, blocked: BlockedThread) -> Sequence[ConnectionArrival]:
        """What has come on each connection of a wait since it was resolved."""
        return self._connections.read_arrivals(blocked)

    def _wait_for_lock(self, pid: int, name: str, call: SystemCall) -> BlockedThread:
        """The wait for the lock of a file, by who holds it, which is asked of local files only."""
        if name == "fcntl" and call.int_argument(1) not in _LOCK_COMMANDS:
            return OTHER
        descriptor = call.int_argument(0)
        if not is_in_local_filesystem(pid, descriptor, self._folder):
            return _LOCK
        try:
            file = os.stat(f"{self._folder}/{pid}/fd/{descriptor}")  # noqa: PTH116  faster
        except OSError:
            return _LOCK
        place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
        holders = lock_holder_pids(
            proc.read_or_none(f"{self._folder}/locks") or b"", place.encode()
        ) - {pid}
        return replace(_LOCK, helpers="pipe", helper_pids=holders) if holders else _LOCK

    def _wait_for_message(
        self, pid: int, name: str, call: SystemCall, now_ns: int
    ) -> BlockedThread:
        """The wait for another process by a semaphore of System V or a message of a queue."""
        if name.startswith("mq_"):
            link = self._watched.link_of(pid, call.int_argument(0))
            return self._links.wait_for_pipe(pid, (link,), now_ns)
        blocked = _SEMAPHORE
        if name == "semtimedop" and call.arguments[_SEMAPHORE_TIMEOUT]:
            blocked = _TIMED_SEMAPHORE
        elif name.startswith("msg"):
            blocked = _MESSAGE
        return replace(blocked, helper_pids=frozenset(self._batch_pids()).difference((pid,)))

    def _wait_for_ring(self, pid: int, call: SystemCall, now_ns: int) -> BlockedThread:
        """The wait for the requests of an io_uring, perhaps for a limited time: by a request of its
        own, or by the call.
        """
        if self._rings is None:
            from profiler.readers.linux.io_uring import IoUringRings  # few programs have one

            self._rings = IoUringRings(self._folder, self._watched.link_of)
        requests = self._rings.pending_requests(pid, call.int_argument(0))
        blocked = self._links.wait_for_any_link(pid, requests.links, now_ns)
        if not (requests.has_timeout or self._has_ring_timeout(pid, call)):
            return blocked
        if blocked.wait.kind == "network":
            return replace(blocked, has_timeout=True)
        return SLEEP if blocked.wait.kind == OTHER.wait.kind else blocked

    def _has_ring_timeout(self, pid: int, call: SystemCall) -> bool:
        """Whether the call itself limits its time."""
        flags, place = call.arguments[_RING_FLAGS : _RING_FLAGS + 2]
        if not (flags & _RING_HAS_LIMITS and place):
            return False
        limits = self._memory.read(pid, place, _RING_LIMITS.size)
        if limits is None or len(limits) < _RING_LIMITS.size:
            return False
        (timeout,) = _RING_LIMITS.unpack(limits)
        return bool(timeout)

    def end_look(self) -> None:
        """Close the memory of the process that was asked last."""
        self._memory.close()


def lock_holder_pids(locks: bytes, place: bytes) -> frozenset[int]:
    """Who holds locks of a file, by ``/proc/locks``; a line of one that waits has an arrow. A lock
    of an open file has no process.
    """
    lines = [line.split() for line in locks.splitlines() if place in line]
    return frozenset(
        [
            int(words[4])
            for words in lines
            if words[5:6] == [place] and b"->" not in words and words[4].isdigit()
        ]
    )


def _wait_for_child_or_signal(name: str, call: SystemCall) -> BlockedThread:
    """The wait for a signal, for any child, or for one by its id."""
    if name == "rt_sigtimedwait" and call.arguments[_SIGNAL_TIMEOUT]:
        return TIMED_CHILD
    if name in ("rt_sigtimedwait", "pause", "rt_sigsuspend"):
        return SIGNAL
    pid = -1
    if name == "wait4":
        pid = call.int_argument(0)
    elif name == "waitid" and call.int_argument(0) == os.P_PID:
        pid = call.int_argument(1)
    return replace(CHILD, helper_pids=frozenset((pid,))) if pid > 0 else CHILD
