"""What a thread that is blocked in a system call waits for: the kind of the wait, and a peer or
a path.

Links, socket tables and lists of watched descriptors are read, never data. No name is ever looked
up.
"""

import os
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.core.files import close_files, open_or_none
from profiler.core.optional_math import difference, first_known, known
from profiler.core.text import without_surrogates
from profiler.core.timestamps import NS_PER_HOUR, NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux import proc
from profiler.readers.linux.named_pipes import is_in_local_filesystem, kind_of_io_wait
from profiler.readers.linux.poll_outcome import ConnectionArrival
from profiler.readers.linux.pseudoterminals import link_of_other_end, with_terminal_number
from profiler.readers.linux.shared_links import SharedLinks
from profiler.readers.linux.sockets import (
    FindStreams,
    Socket,
    SocketTable,
    TcpStreamState,
    reversed_addresses,
)
from profiler.readers.linux.wait_types import BlockedThread, Connection, Wait

if TYPE_CHECKING:
    from profiler.readers.linux.io_uring import IoUringRings

# How to find the target of a wait from a call's arguments; a wait without a target has only its
# kind.
Action = Literal[
    "file",
    "socket",
    "accept",
    "poll",
    "select",
    "epoll",
    "ring",
    "record lock",
    "file lock",
    "disk",
    "sleep",
    "futex",
    "semaphore",
    "message",
    "message queue",
    "child",
    "signal",
    "restart",
]

_ACTIONS: Mapping[Action, str] = {
    "file": "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 fsync "
    "fdatasync syncfs ftruncate fallocate sync_file_range readahead getdents64 sendfile "
    "splice copy_file_range",
    "socket": "connect sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg",
    "accept": "accept accept4",
    "poll": "poll ppoll",
    "select": "select pselect6",
    "epoll": "epoll_wait epoll_pwait epoll_pwait2",
    "ring": "io_uring_enter",
    "record lock": "fcntl",
    "disk": "sync msync io_getevents io_pgetevents",
    "sleep": "nanosleep clock_nanosleep",
    "futex": "futex futex_wait futex_waitv",
    "file lock": "flock",
    "semaphore": "semop semtimedop",
    "message": "msgsnd msgrcv",
    "message queue": "mq_timedsend mq_timedreceive",
    # A thread in vfork waits until the child has executed its program.
    "child": "wait4 waitid clone clone3 vfork",
    "signal": "pause rt_sigsuspend rt_sigtimedwait",
    # After a stop of the thread, a call with a timeout goes on as this one, with its arguments.
    "restart": "restart_syscall",
}
_SINCE_2019 = "io_uring_enter=426 clone3=435 epoll_pwait2=441 futex_waitv=449 futex_wait=455"
_X86_64 = (
    "read=0 write=1 poll=7 pread64=17 pwrite64=18 readv=19 writev=20 select=23 msync=26 "
    "pause=34 nanosleep=35 sendfile=40 connect=42 accept=43 sendto=44 recvfrom=45 sendmsg=46 "
    "recvmsg=47 "
    "clone=56 vfork=58 wait4=61 semop=65 msgsnd=69 msgrcv=70 fcntl=72 flock=73 fsync=74 "
    "fdatasync=75 ftruncate=77 "
    "sync=162 readahead=187 futex=202 io_getevents=208 getdents64=217 semtimedop=220 "
    "clock_nanosleep=230 epoll_wait=232 mq_timedsend=242 mq_timedreceive=243 waitid=247 "
    "pselect6=270 ppoll=271 splice=275 "
    "sync_file_range=277 epoll_pwait=281 fallocate=285 accept4=288 preadv=295 pwritev=296 "
    "recvmmsg=299 syncfs=306 sendmmsg=307 copy_file_range=326 preadv2=327 pwritev2=328 "
    "io_pgetevents=333 rt_sigtimedwait=128 rt_sigsuspend=130 restart_syscall=219"
)
_AARCH64 = (
    "io_getevents=4 epoll_pwait=22 fcntl=25 flock=32 ftruncate=46 fallocate=47 getdents64=61 "
    "read=63 write=64 readv=65 writev=66 pread64=67 pwrite64=68 preadv=69 pwritev=70 sendfile=71 "
    "pselect6=72 ppoll=73 splice=76 sync=81 fsync=82 fdatasync=83 sync_file_range=84 waitid=95 "
    "futex=98 nanosleep=101 clock_nanosleep=115 mq_timedsend=182 mq_timedreceive=183 msgrcv=188 "
    "msgsnd=189 semtimedop=192 semop=193 accept=202 connect=203 "
    "sendto=206 recvfrom=207 sendmsg=211 recvmsg=212 readahead=213 clone=220 msync=227 "
    "accept4=242 recvmmsg=243 wait4=260 syncfs=267 sendmmsg=269 copy_file_range=285 preadv2=286 "
    "pwritev2=287 io_pgetevents=292 rt_sigsuspend=133 rt_sigtimedwait=137 restart_syscall=128"
)
_NUMBERS = {"x86_64": _X86_64, "aarch64": _AARCH64}
# By the function of the kernel in which the thread waits: a sleep has none of its own then.
_RESTARTED = {b"futex": "futex", b"poll": "poll"}
_RESTARTED_SLEEP = "nanosleep"
_HIDDEN_PLACES = (b"", b"0")
_ARGUMENTS = 6
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
_TIMESPEC = struct.Struct("=qq")
# The end of a shorter poll is always near: clients poll so until their answer comes.
_MIN_TIMEOUT_NS = 250 * NS_PER_MS
# So long, nobody sleeps: Java's ExecutorService.close waits for its tasks a day at a time.
_ENDLESS_NS = 12 * NS_PER_HOUR
# Where poll and epoll have their timeout in milliseconds, and where others have that of a struct
# timespec.
_MS_TIMEOUTS = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
_TIMESPEC_TIMEOUTS = {"ppoll": 2, "epoll_pwait2": 3, "pselect6": 4}
# glibc's and musl's pthread_mutex_t: a thread waits for it with this value; glibc's has its owner.
_MUTEX_WITH_WAITERS = 2
_MUTEX_OWNER = slice(8, 12)
_MAX_UINT = 0xFFFF_FFFF
_POLLFD_BYTES = 8
_MAX_LIST_BYTES = 65_536
_LONG_BYTES = 8
# The loop of an asynchronous program watches its own wake-up pipe with at most this many other
# descriptors.
_MAX_DESCRIPTORS = 256
_MAX_PATH_CHARS = 256
_MAX_OWN_PAIRS = 256
_WATCHED_BY_EPOLL = re.compile(rb"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)", re.MULTILINE)
# Of the events of an epoll, those that say how, not for what: a descriptor with none but these has
# been reported once, and is not watched until a thread asks for it again.
_HOW_EVENTS = 0xF000_0000
# Once, or at an edge: so watch runtimes of which any thread adds to what is watched.
_EVENTS_OF_THREADS = 0xC000_0000
_SOCKET = "socket:["
_PIPE = "pipe:["
_EVENT = "anon_inode:[eventfd]"
_EPOLL = "anon_inode:[eventpoll]"
_TIMER = "anon_inode:[timerfd]"
_PROCESS = "anon_inode:[pidfd]"
_SIGNALS = "anon_inode:[signalfd]"
_FILE_CHANGES = ("anon_inode:inotify", "anon_inode:[fanotify]")


class SystemCall(Struct, frozen=True):
    """A system call in progress.

    ``number`` is -1 for a thread that is blocked outside of one, as in a page fault.
    """

    number: int
    arguments: tuple[int, ...] = ()

    def int_argument(self, position: int) -> int:
        """An argument of the type ``int``: the kernel ignores the upper half of the register."""
        value = self.arguments[position] & _MAX_UINT
        if value > _MAX_UINT >> 1:
            value -= _MAX_UINT + 1
        return value


def waiting_calls_of_machine(machine: str) -> Mapping[int, tuple[str, Action]]:
    """The calls of an architecture that a thread may wait in, by number; empty for one without a
    table.
    """
    if machine not in _NUMBERS:
        return {}
    actions: dict[str, Action] = {}
    for action, names in _ACTIONS.items():
        actions.update(dict.fromkeys(names.split(), action))
    calls: dict[int, tuple[str, Action]] = {}
    for word in f"{_NUMBERS[machine]} {_SINCE_2019}".split():
        name, _, number = word.partition("=")
        calls[int(number)] = (name, actions[name])
    return calls


def parse_system_call(text: bytes) -> SystemCall | None:
    """Parse ``/proc/PID/task/TID/syscall``; None for a thread that is not blocked, or another
    format.
    """
    words = text.split()
    try:
        number = int(words[0])
        values = tuple([int(word, 16) for word in words[1:]])
    except (IndexError, ValueError):
        return None
    # The last two are the stack pointer and the instruction pointer. Below 4 GiB they belong to a
    # 32-bit program, whose calls have other numbers.
    if number < 0 or (values and max(values[-2:]) <= _MAX_UINT):
        return SystemCall(-1)
    if len(values) != _ARGUMENTS + 2:
        return None
    return SystemCall(number, values[:_ARGUMENTS])


class _OwnPair(Struct, frozen=True):
    """Whether a process has both ends of a pipe or socket pair, and who waits for one waits in the
    read, too.

    Who wakes its own loop must neither wait for room to write nor read in vain: libraries make
    the ends of such a pair non-blocking, and a child that has them, too, inherited them. Those of
    Python's ``multiprocessing`` are blocking, and a parent has both ends of its children's queues.
    """

    has_both_ends: bool = False
    is_blocking: bool = False


_NO_OWN_PAIR = _OwnPair()


class _WatchedEnds(Struct):
    """The links of the other ends of pipes and socket pairs: of those ``pipes`` of which a process
    has one end, and of ``own_pairs``, which others may have, too; and the ``sockets`` that are
    neither, by inode.
    """

    pipes: list[str] = field(default_factory=list)
    own_pairs: list[str] = field(default_factory=list)
    sockets: dict[int, Socket] = field(default_factory=dict)

    def add_end(self, link: str, pair: _OwnPair) -> None:
        if not pair.has_both_ends:
            self.pipes.append(link)
        elif pair.is_blocking:
            self.own_pairs.append(link)


_OTHER = BlockedThread(wait=Wait("other"))
_SLEEP = BlockedThread(wait=Wait("sleep"))
# A wait for a futex for a limited time, as of Java's Thread.sleep, Python's Event.wait and a
# condition variable: of a thread that is not known to wait for another one, it is a sleep.
_TIMED_FUTEX = BlockedThread(wait=Wait("sleep"), helpers="threads")
# A signal may come from anybody; a server's first process waits so beside those that serve.
_SIGNAL = BlockedThread(wait=Wait("other"), helpers="children")
# A wait for a child, or for a signal, for a limited time.
_TIMED_CHILD = BlockedThread(wait=Wait("sleep"), helpers="children")
_LOCK_COMMANDS = (7, 38)  # of fcntl: F_SETLKW, F_OFD_SETLKW
_SIGNAL_TIMEOUT = 2  # the position of the timeout of rt_sigtimedwait among its arguments
# What another process holds. Nobody knows who uses a semaphore or a queue of System V.
_SEMAPHORE = BlockedThread(wait=Wait("lock"), helpers="memory")
_TIMED_SEMAPHORE = BlockedThread(wait=Wait("sleep"), helpers="memory")
_SEMAPHORE_TIMEOUT = 3  # the position of the timeout of semtimedop among its arguments
_MESSAGE = BlockedThread(wait=Wait("pipe"), helpers="memory")
_LOCK = BlockedThread(wait=Wait("lock"))
_LOCK_OF_THREAD = BlockedThread(wait=Wait("lock"), helpers="threads")
_CHILD = BlockedThread(wait=Wait("child"), helpers="children")
# A loop that watches nothing but its own wake-up, which another of its threads sends.
_OWN_WAKE_UP = BlockedThread(wait=Wait("other"), helpers="threads")
# Others of its threads say what it watches, as they do to the pollers of Java's virtual threads.
_WATCHES_NOTHING = replace(_OWN_WAKE_UP, others_add=True)
# The loop for a limited time: of one that nobody has woken before, it is a sleep.
_TIMED_WAKE_UP = BlockedThread(wait=Wait("sleep"), has_timeout=True)
_FOR_COMERS = BlockedThread(wait=Wait("network"), may_be_idle=True)
# Another thread wakes it, or a child changes a file that is watched.
_CHANGE_OR_WAKE_UP = BlockedThread(wait=Wait("other"), helpers="memory")
# Anybody may change a file that is watched.
_FOR_CHANGES = BlockedThread(wait=Wait("other"), may_be_idle=True)
_BY_DESCRIPTOR = {
    _TIMER: _SLEEP,
    _PROCESS: _CHILD,
    _SIGNALS: _SIGNAL,
    _EVENT: _OWN_WAKE_UP,
    **dict.fromkeys(_FILE_CHANGES, _FOR_CHANGES),
}
_BY_ACTION = {
    "disk": BlockedThread(wait=Wait("disk")),
    "sleep": _SLEEP,
    "child": _CHILD,
    "accept": _FOR_COMERS,
}
# The others' targets are in the arguments; a wait for a disk may be one for memory.
_UNCONDITIONAL_ACTIONS = ("sleep", "accept")
_REQUESTED_KINDS = ("disk", "network", "pipe", "sleep", "child")
# From linux/io_uring.h: where io_uring_enter has its flags, followed by the place of its limits, of
# which the last is that of the timeout, and the flag that it has any.
_RING_FLAGS = 3
_RING_HAS_LIMITS = 1 << 3
_RING_LIMITS = struct.Struct("=16xQ")
# Calls that send wait for the peer to read: what comes meanwhile says nothing of them.
_RECEIVES = ("read", "recv", "pread")
# A loop with more connections, or beside more processes, is not asked for each.
_MAX_CONNECTIONS = 16
# In a look, the timeouts of so many locks are read: of a process, those of its first threads, which
# make the tasks of the others.
_MAX_TIMEOUTS = 16
# Also, of so many locks it is asked in which memory they are.
_MAX_MEMORIES = 16
# So many other ends of pipes and connections are kept in mind.
_MAX_ENDS = 1024
AskStream = Callable[[int, bytes], TcpStreamState | None]


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
        self._ask_stream = ask_stream
        self._batch_pids = batch_pids
        self._wall_ahead_ns = wall_ahead_ns
        self._now_ns: int | None = None
        self._timeouts_left = 0  # in the present look
        self._memories_left = 0
        self._others_add = False  # to what the present thread watches
        self._quiet_ns: int | None = None  # since something came on what it watches
        self._memory: int | None = None
        self._memory_pid: int | None = None
        self.sockets = SocketTable(proc_folder, own_cpu_ns, peer_inode, find_streams)
        self._shared = SharedLinks(proc_folder, batch_pids, self._link_of_descriptor)
        self._ends: dict[int, int] = {}  # the inodes of connections and of their other ends
        self._own_pairs: dict[tuple[int, str], _OwnPair] = {}
        self._rings: IoUringRings | None = None

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
        blocked = _BY_ACTION.get(action or "", _OTHER)
        match action:
            case "record lock" | "file lock":
                blocked = self._wait_for_lock(pid, name, call)
            case "semaphore" | "message" | "message queue":
                blocked = self._wait_for_message(pid, name, call, now_ns)
            case "child" | "signal":
                blocked = _wait_for_child_or_signal(name, call)
            case "futex":
                blocked = self._wait_for_futex(pid, name, call, now_ns, since_ns)
            case "ring":
                blocked = self._wait_for_ring(pid, call, now_ns)
            case "file" | "socket":
                links = [self._link_of_descriptor(pid, call.int_argument(0))]
                blocked = self._wait_for_any_link(pid, links, now_ns)
                if blocked.may_be_idle and not name.startswith(_RECEIVES):
                    blocked = replace(blocked, may_be_idle=False)
            case "poll" | "select" | "epoll":
                blocked = self._wait_in_poll(pid, name, call, now_ns)
                is_repeated = blocked.is_timeout_of_own_wake_up or blocked.is_timeout_of_listeners
                if is_repeated or blocked.may_go_on:
                    blocked = self._with_poll_timeout(pid, name, call, blocked, since_ns)
        return blocked

    def _with_poll_timeout(
        self, pid: int, name: str, call: SystemCall, blocked: BlockedThread, since_ns: int
    ) -> BlockedThread:
        """The poll with when its timeout ends it: what came would have ended it before."""
        now_ns = first_known(self._now_ns, since_ns)
        if self._quiet_ns is not None:
            since_ns = max(since_ns, now_ns - self._quiet_ns)
        timeout_ns = self._poll_timeout_ns(pid, name, call)
        if timeout_ns is None:
            return blocked
        within_ns = max(now_ns - since_ns, 0) if timeout_ns >= _MIN_TIMEOUT_NS else None
        return replace(blocked, until_ns=since_ns + timeout_ns, until_within_ns=within_ns)

    def _poll_timeout_ns(self, pid: int, name: str, call: SystemCall) -> int | None:
        """For how long a poll waits at most; None if that is not readable."""
        if name in _MS_TIMEOUTS:
            return call.int_argument(_MS_TIMEOUTS[name]) * NS_PER_MS
        if name not in _TIMESPEC_TIMEOUTS or self._timeouts_left == 0:
            return None
        self._timeouts_left -= 1
        place = call.arguments[_TIMESPEC_TIMEOUTS[name]]
        timeout = self._read_memory(pid, place, _TIMESPEC.size)
        if timeout is None or len(timeout) < _TIMESPEC.size:
            return None
        whole_seconds, rest_ns = _TIMESPEC.unpack(timeout)
        return int(whole_seconds * NS_PER_SECOND + rest_ns)

    def _begin_resolving(self, now_ns: int) -> None:
        """Begin with the wait of one thread, which may be the first of a look."""
        self.sockets.has_postponed = False
        if now_ns != self._now_ns:
            self.end_look()
            self._now_ns = now_ns
            self._timeouts_left = _MAX_TIMEOUTS
            self._memories_left = _MAX_MEMORIES

    def _wait_in_poll(self, pid: int, name: str, call: SystemCall, now_ns: int) -> BlockedThread:
        self._others_add = False
        self._quiet_ns = None
        descriptors, has_timeout = self._watched_descriptors(pid, name, call)
        if descriptors is None:
            return _OTHER
        descriptors = tuple(dict.fromkeys(descriptors))
        if name.startswith("epoll") and not (descriptors or has_timeout):
            return _WATCHES_NOTHING
        blocked = self._wait_for_any(pid, descriptors, now_ns, has_timeout=has_timeout)
        return replace(blocked, others_add=True) if self._others_add else blocked

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
        return self._wait_for_pipe(
            pid, (self._link_of_descriptor(pid, call.int_argument(0)),), now_ns
        )

    def read_arrivals(self, blocked: BlockedThread) -> Sequence[ConnectionArrival]:
        """What has come on each connection of a wait since it was resolved."""
        arrivals: list[ConnectionArrival] = []
        for connection in blocked.connections:
            state = None
            if connection.inode:
                state = self._ask_stream(connection.inode, connection.stream)
            if state is None:
                arrivals.append(ConnectionArrival(came=None, is_closed=bool(connection.inode)))
                continue
            arrivals.append(
                ConnectionArrival(
                    came=state.received_bytes != connection.received_bytes,
                    segments=difference(state.received_segments, connection.received_segments),
                    sent=difference(state.sent_segments, connection.sent_segments),
                    before_ns=state.came_before_ns,
                )
            )
        return arrivals

    def _wait_for_futex(
        self, pid: int, name: str, call: SystemCall, now_ns: int, since_ns: int
    ) -> BlockedThread:
        """The wait for threads, or for other processes of the batch that share the memory."""
        blocked = self._wait_for_threads(pid, name, call, since_ns)
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
        self, pid: int, name: str, call: SystemCall, since_ns: int
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
            thread = value & _MAX_UINT
            is_join = is_wait and not operation & _FUTEX_PRIVATE and self._has_thread(pid, thread)
            return replace(_LOCK_OF_THREAD, helper_thread=thread) if is_join else _LOCK_OF_THREAD
        if value & _MAX_UINT == _MUTEX_WITH_WAITERS:
            mutex = self._read_memory(pid, address, _MUTEX_OWNER.stop) or b""
            if self._has_thread(pid, int.from_bytes(mutex[_MUTEX_OWNER], sys.byteorder)):
                return _LOCK_OF_THREAD
        if self._timeouts_left == 0:
            return _TIMED_FUTEX
        self._timeouts_left -= 1
        timeout = self._read_memory(pid, call.arguments[_FUTEX_TIMEOUTS[name]], _TIMESPEC.size)
        until_ns = self._futex_end_ns(operation, timeout, since_ns)
        begin_ns = since_ns
        if not since_ns and operation & _FUTEX_COMMAND != _FUTEX_WAIT:
            # A thread that was seen first in this wait may have waited at any time before.
            begin_ns = first_known(self._now_ns, since_ns)
        if until_ns is not None and until_ns - begin_ns >= _ENDLESS_NS:
            return _LOCK_OF_THREAD
        is_exact = operation & _FUTEX_COMMAND != _FUTEX_WAIT
        return replace(_TIMED_FUTEX, until_ns=until_ns, until_within_ns=0 if is_exact else None)

    def _has_thread(self, pid: int, thread: int) -> bool:
        path = f"{self._folder}/{pid}/task/{thread}"
        return thread > 0 and os.path.exists(path)  # noqa: PTH110  faster

    def _futex_end_ns(self, operation: int, timeout: bytes | None, since_ns: int) -> int | None:
        """When the timeout of a futex ends a wait at the earliest; None if it is not readable."""
        if timeout is None or len(timeout) < _TIMESPEC.size:
            return None
        whole_seconds, rest_ns = _TIMESPEC.unpack(timeout)
        time_ns: int = whole_seconds * NS_PER_SECOND + rest_ns
        if operation & _FUTEX_COMMAND == _FUTEX_WAIT:
            return since_ns + time_ns
        return time_ns - self._wall_ahead_ns() if operation & _FUTEX_BY_WALL_CLOCK else time_ns

    def _wait_for_lock(self, pid: int, name: str, call: SystemCall) -> BlockedThread:
        """The wait for the lock of a file, by who holds it, which is asked of local files only."""
        if name == "fcntl" and call.int_argument(1) not in _LOCK_COMMANDS:
            return _OTHER
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

    def _link_of_descriptor(self, pid: int, descriptor: int) -> str:
        """What the descriptor is open for, such as ``socket:[4711]``; empty if not readable."""
        folder = f"{self._folder}/{pid}"
        try:
            link = os.readlink(f"{folder}/fd/{descriptor}")  # noqa: PTH115  faster
        except OSError:
            return ""
        return with_terminal_number(link, folder, descriptor)

    def _wait_for_message(
        self, pid: int, name: str, call: SystemCall, now_ns: int
    ) -> BlockedThread:
        """The wait for another process by a semaphore of System V or a message of a queue."""
        if name.startswith("mq_"):
            link = self._link_of_descriptor(pid, call.int_argument(0))
            return self._wait_for_pipe(pid, (link,), now_ns)
        blocked = _SEMAPHORE
        if name == "semtimedop" and call.arguments[_SEMAPHORE_TIMEOUT]:
            blocked = _TIMED_SEMAPHORE
        elif name.startswith("msg"):
            blocked = _MESSAGE
        return replace(blocked, helper_pids=frozenset(self._batch_pids()).difference((pid,)))

    def _wait_for_link(self, pid: int, link: str, now_ns: int) -> BlockedThread:
        """The wait for one descriptor, by its link."""
        if link.startswith(_SOCKET):
            inode = int(link[len(_SOCKET) : -1])
            (socket,) = self.sockets.find_sockets(pid, [inode], now_ns)
            if socket.pair_inode is not None:
                return self._wait_for_pipe(pid, (f"{_SOCKET}{socket.pair_inode}]",), now_ns)
            return self._wait_for_sockets(pid, {inode: socket}, now_ns)
        if link.startswith(_PIPE):
            return self._wait_for_pipe(pid, (link,), now_ns)
        if link.startswith("/") and not link.startswith("/dev/"):  # a terminal is not a disk
            path = without_surrogates(link.removesuffix(" (deleted)"))
            if len(path) > _MAX_PATH_CHARS:
                path = f"{path[: _MAX_PATH_CHARS - 1]}…"
            return BlockedThread(wait=Wait("disk", path))
        ends = self._ends_of_terminals(pid, (link,), now_ns)
        return self._wait_for_pipe(pid, ends, now_ns) if ends else _BY_DESCRIPTOR.get(link, _OTHER)

    def _ends_of_terminals(self, pid: int, links: Iterable[str], now_ns: int) -> Sequence[str]:
        """The links of the other ends of pseudoterminals that processes of the batch have: at that
        of a user's terminal, a person is waited for.
        """
        ends = filter(None, map(link_of_other_end, links))
        return [end for end in ends if self._shared.other_holders_of(pid, (end,), now_ns)]

    def _wait_for_sockets(
        self, pid: int, sockets: Mapping[int, Socket], now_ns: int, *, has_timeout: bool = False
    ) -> BlockedThread:
        """The wait for something to come on these sockets, by inode, from processes of the batch or
        others.
        """
        connected = {inode: socket for inode, socket in sockets.items() if socket.peer is not None}
        target = f"{len(connected)} connections"
        if len(connected) == 1:
            (socket,) = connected.values()
            target = socket.peer or ""
        may_be_idle = len(connected) <= _MAX_CONNECTIONS and not self.sockets.has_postponed
        asks_ends = len(connected) <= _MAX_CONNECTIONS
        connections: list[Connection] = []
        pids: set[int] = set()
        for inode, socket in connected.items():
            state = None
            if may_be_idle and socket.stream:
                state = self._ask_stream(inode, socket.stream)
            may_be_idle = may_be_idle and state is not None
            if state is not None:
                self._quiet_ns = min(state.came_before_ns, first_known(self._quiet_ns, now_ns))
            ends = self._links_of_ends({inode: socket}) if asks_ends else ()
            holders = self._shared.holders_of(ends, now_ns)
            pids |= holders
            connections.append(
                Connection(
                    socket.peer or "",
                    state.received_bytes if state is not None else 0,
                    owes=state is not None and state.owes,
                    inode=inode if state is not None else 0,
                    stream=socket.stream,
                    received_segments=None if state is None else state.received_segments,
                    sent_segments=None if state is None else state.sent_segments,
                    is_within=bool(holders),
                )
            )
        # A process that has both ends may have inherited one of them, and does not use it.
        pids = pids - {pid} or pids
        return BlockedThread(
            wait=Wait("network", target if connected else None),
            helpers="pipe" if pids else "nobody",
            helper_pids=frozenset(pids),
            may_be_idle=may_be_idle and all(each.received_bytes for each in connections),
            only_listens=all(socket.listens for socket in sockets.values()),
            has_timeout=has_timeout,
            connections=tuple(connections) if asks_ends else (),
        )

    def _links_of_ends(self, connected: Mapping[int, Socket]) -> Iterator[str]:
        """The links of the other ends of connections, where these are on this machine."""
        for inode, socket in connected.items():
            end_inode = socket.end_inode or self._ends.get(inode)
            if end_inode is None and socket.stream:
                end_inode = self._ask_other_end_inode(inode, socket.stream)
            if end_inode is not None:
                yield f"{_SOCKET}{end_inode}]"

    def _without_connections_to_itself(
        self, sockets: dict[int, Socket], links: Collection[str]
    ) -> dict[int, Socket]:
        """The watched sockets but those whose other end is watched by the same thread, as by the
        loop of a client and its server: only the loop sends something there.
        """
        if not 1 < len(sockets) <= _MAX_CONNECTIONS:
            return sockets
        return {
            inode: socket
            for inode, socket in sockets.items()
            if not any(end in links for end in self._links_of_ends({inode: socket}))
        }

    def _ask_other_end_inode(self, inode: int, stream: bytes) -> int | None:
        """The inode of the other end of a TCP connection; None if it is on another machine or not
        accepted yet, or the kernel does not know this end: in another network namespace, the same
        addresses may be those of another connection.
        """
        addresses = reversed_addresses(stream)
        if addresses is None or self._ask_stream(inode, stream) is None:
            return None
        end = self._ask_stream(0, addresses)
        if end is None or not end.inode:
            return None
        if len(self._ends) >= _MAX_ENDS:
            self._ends.clear()
        self._ends[inode] = end.inode
        return end.inode

    def _wait_for_pipe(self, pid: int, links: Collection[str], now_ns: int) -> BlockedThread:
        """The wait for the other ends of pipes, which other processes of the batch have."""
        pids = self._shared.other_holders_of(pid, links, now_ns)
        return BlockedThread(wait=Wait("pipe"), helpers="pipe", helper_pids=pids)

    def _wait_for_ring(self, pid: int, call: SystemCall, now_ns: int) -> BlockedThread:
        """The wait for the requests of an io_uring, perhaps for a limited time: by a request of its
        own, or by the call.
        """
        if self._rings is None:
            from profiler.readers.linux.io_uring import IoUringRings  # few programs have one

            self._rings = IoUringRings(self._folder, self._link_of_descriptor)
        requests = self._rings.pending_requests(pid, call.int_argument(0))
        blocked = self._wait_for_any_link(pid, requests.links, now_ns)
        if not (requests.has_timeout or self._has_ring_timeout(pid, call)):
            return blocked
        if blocked.wait.kind == "network":
            return replace(blocked, has_timeout=True)
        return _SLEEP if blocked.wait.kind == _OTHER.wait.kind else blocked

    def _has_ring_timeout(self, pid: int, call: SystemCall) -> bool:
        """Whether the call itself limits its time."""
        flags, place = call.arguments[_RING_FLAGS : _RING_FLAGS + 2]
        if not (flags & _RING_HAS_LIMITS and place):
            return False
        limits = self._read_memory(pid, place, _RING_LIMITS.size)
        if limits is None or len(limits) < _RING_LIMITS.size:
            return False
        (timeout,) = _RING_LIMITS.unpack(limits)
        return bool(timeout)

    def _wait_for_any_link(self, pid: int, links: Sequence[str], now_ns: int) -> BlockedThread:
        """The wait for any of these: for files first."""
        waits: dict[str, list[tuple[str, BlockedThread]]] = {}
        for link in dict.fromkeys(links):
            blocked = self._wait_for_link(pid, link, now_ns)
            waits.setdefault(blocked.wait.kind, []).append((link, blocked))
        for kind in _REQUESTED_KINDS:
            if kind not in waits:
                continue
            if len(waits[kind]) == 1:
                return waits[kind][0][1]
            if kind == "network":
                return self._wait_for_socket_links(pid, [link for link, _ in waits[kind]], now_ns)
            return BlockedThread(wait=Wait(kind))
        return waits["other"][0][1] if waits else _OTHER

    def _wait_for_socket_links(self, pid: int, links: Sequence[str], now_ns: int) -> BlockedThread:
        """The wait for something to come on any of these sockets."""
        inodes = [int(link[len(_SOCKET) : -1]) for link in links]
        sockets = self.sockets.find_sockets(pid, inodes, now_ns)
        return self._wait_for_sockets(pid, dict(zip(inodes, sockets, strict=True)), now_ns)

    def _watched_descriptors(
        self, pid: int, name: str, call: SystemCall
    ) -> tuple[Sequence[int] | None, bool]:
        """The descriptors that poll, select or epoll watch, None if not readable; and whether
        for a limited time.
        """
        if name.startswith("epoll"):
            has_timeout = call.int_argument(3) >= 0
            if name == "epoll_pwait2":
                has_timeout = bool(call.arguments[3])
            return self._watched_by_epoll(pid, call.int_argument(0)), has_timeout
        if name in ("poll", "ppoll"):
            has_timeout = call.int_argument(2) >= 0
            if name == "ppoll":
                has_timeout = bool(call.arguments[2])
            size = min(call.arguments[1] * _POLLFD_BYTES, _MAX_LIST_BYTES)
            memory = self._read_memory(pid, call.arguments[0], size)
            return known(poll_descriptors, memory), has_timeout
        return self._watched_by_select(pid, call), bool(call.arguments[4])

    def _watched_by_epoll(self, pid: int, descriptor: int) -> Sequence[int] | None:
        """The descriptors that an epoll descriptor watches now; None if not readable."""
        text = proc.read_or_none(f"{self._folder}/{pid}/fdinfo/{descriptor}")
        if text is None:
            return None
        entries = [(int(each), int(how, 16)) for each, how in _WATCHED_BY_EPOLL.findall(text)]
        if not entries or any(events & _EVENTS_OF_THREADS for _, events in entries):
            self._others_add = True
        return [number for number, events in entries if events & ~_HOW_EVENTS]

    def _links_of_descriptors(self, pid: int, descriptors: Sequence[int]) -> Sequence[str]:
        """What the descriptors are open for, and those that the epoll descriptors among them watch;
        empty if one of these lists is not readable.
        """
        links = {
            number: self._link_of_descriptor(pid, number)
            for number in descriptors[:_MAX_DESCRIPTORS]
        }
        pending = [number for number, link in links.items() if link == _EPOLL]
        while pending:
            numbers = self._watched_by_epoll(pid, pending.pop())
            if numbers is None:
                return ()
            for number in numbers[: _MAX_DESCRIPTORS - len(links)]:
                if number not in links:
                    links[number] = self._link_of_descriptor(pid, number)
                    if links[number] == _EPOLL:
                        pending.append(number)
        return tuple(links.values())

    def _watched_by_select(self, pid: int, call: SystemCall) -> Sequence[int] | None:
        """The descriptors of three sets, each of which may be absent."""
        words = -(-call.int_argument(0) // (8 * _LONG_BYTES))
        sets: list[bytes] = []
        for address in call.arguments[1:4]:
            if not address:
                continue
            memory = self._read_memory(pid, address, min(words * _LONG_BYTES, _MAX_LIST_BYTES))
            if memory is None:
                return None
            sets.append(memory)
        return select_descriptors(sets)

    def _read_memory(self, pid: int, address: int, size: int) -> bytes | None:
        """A list of descriptors, or a timeout, in the memory of the process; None if it is not
        readable.
        """
        if size <= 0:
            return b""
        if self._memory_pid != pid:
            self.end_look()
            self._memory_pid = pid
            self._memory = open_or_none(f"{self._folder}/{pid}/mem")
        if self._memory is None:
            return None
        try:
            return os.pread(self._memory, size, address) or None
        except (OSError, OverflowError):  # a tagged pointer is beyond all offsets
            return None

    def end_look(self) -> None:
        """Close the memory of the process that was asked last: its threads are asked together."""
        close_files((self._memory,))
        self._memory = None
        self._memory_pid = None

    def _wait_for_any(
        self, pid: int, descriptors: Sequence[int], now_ns: int, *, has_timeout: bool
    ) -> BlockedThread:
        """The wait for one of several descriptors: connections first, then pipes, sockets on which
        somebody may come, a timeout, and the others.
        """
        if not descriptors:
            return _SLEEP
        links = self._links_of_descriptors(pid, descriptors)
        if not links:
            return _OTHER
        found = self._find_ends(pid, links, now_ns)
        if self.sockets.has_postponed:
            return BlockedThread(wait=Wait("network"))
        sockets = self._without_connections_to_itself(found.sockets, links)
        pipes = [*found.pipes, *self._ends_of_terminals(pid, links, now_ns)]
        watched = _wait_for_watched(links)
        if pipes or self._shared.other_holders_of(pid, found.own_pairs, now_ns):
            watched = self._wait_for_pipe(pid, [*pipes, *found.own_pairs], now_ns)
            helpers = watched.helpers if pipes else "memory"  # the process's own threads may send
            watched = replace(watched, helpers=helpers, has_timeout=has_timeout)
        if sockets:
            blocked = self._wait_for_sockets(pid, sockets, now_ns, has_timeout=has_timeout)
            has_other = watched.wait.kind != _OTHER.wait.kind
            return replace(blocked, otherwise=watched) if has_other else blocked
        if has_timeout and watched.wait.kind != "pipe":
            return _for_limited_time(watched)
        return watched

    def _find_ends(self, pid: int, links: Sequence[str], now_ns: int) -> _WatchedEnds:
        """The other ends of what the process watches, without its own wake-ups."""
        found = _WatchedEnds()
        for link in [link for link in links if link.startswith(_PIPE)]:
            found.add_end(link, self._find_pair(pid, link, now_ns))
        inodes = {int(link[len(_SOCKET) : -1]): link for link in links if link.startswith(_SOCKET)}
        sockets = dict(zip(inodes, self.sockets.find_sockets(pid, inodes, now_ns), strict=True))
        for inode, socket in sockets.items():
            pair = _NO_OWN_PAIR
            if socket.pair_inode is not None or socket.may_be_paired:
                pair = self._find_pair(pid, inodes[inode], now_ns, socket.pair_inode)
            if socket.pair_inode is not None:
                found.add_end(f"{_SOCKET}{socket.pair_inode}]", pair)
            elif not pair.has_both_ends:
                found.sockets[inode] = socket
        return found

    def _find_pair(
        self, pid: int, link: str, now_ns: int, pair_inode: int | None = None
    ) -> _OwnPair:
        """What the process has of a pipe (one inode) or a socket pair.

        The ends of a pair whose other inode is not known are neighbours. A listener, and an end
        whose server is known, may be a neighbour, too.
        """
        pair = self._own_pairs.get((pid, link))
        if pair is None:
            if len(self._own_pairs) >= _MAX_OWN_PAIRS:
                self._own_pairs.clear()
            numbers = proc.numeric_entries(f"{self._folder}/{pid}/fd")[:_MAX_DESCRIPTORS]
            links = {number: self._link_of_descriptor(pid, number) for number in numbers}
            here = [number for number, each in links.items() if each == link]
            if link.startswith(_PIPE):
                has_both_ends = len(here) > 1
            elif pair_inode is not None:
                has_both_ends = f"{_SOCKET}{pair_inode}]" in links.values()
            else:
                inode = int(link[len(_SOCKET) : -1])
                neighbours = (inode - 1, inode + 1)
                beside = [one for one in neighbours if f"{_SOCKET}{one}]" in links.values()]
                ends = self.sockets.find_sockets(pid, beside, now_ns)
                if self.sockets.has_postponed:
                    return _NO_OWN_PAIR
                has_both_ends = any(end.may_be_paired for end in ends)
            is_blocking = has_both_ends and all(self._is_blocking(pid, number) for number in here)
            pair = _OwnPair(has_both_ends, is_blocking)
            self._own_pairs[pid, link] = pair
        return pair

    def _is_blocking(self, pid: int, descriptor: int) -> bool:
        """Whether who reads or writes there waits for it."""
        information = proc.read_or_none(f"{self._folder}/{pid}/fdinfo/{descriptor}") or b""
        flags = proc.number_after(information, b"flags:", base=8)
        return flags is not None and not flags & os.O_NONBLOCK


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
        return _TIMED_CHILD
    if name in ("rt_sigtimedwait", "pause", "rt_sigsuspend"):
        return _SIGNAL
    pid = -1
    if name == "wait4":
        pid = call.int_argument(0)
    elif name == "waitid" and call.int_argument(0) == os.P_PID:
        pid = call.int_argument(1)
    return replace(_CHILD, helper_pids=frozenset((pid,))) if pid > 0 else _CHILD


def _wait_for_watched(links: Sequence[str]) -> BlockedThread:
    """The wait for descriptors without a limit that are neither sockets nor others' pipes."""
    for link in (_TIMER, _PROCESS, _SIGNALS):
        if link in links:
            return _BY_DESCRIPTOR[link]
    own = [link for link in links if link.startswith((_SOCKET, _PIPE, _EVENT, _EPOLL))]
    changes = [link for link in links if link in _FILE_CHANGES]
    if len(own) + len(changes) < len(links):
        return _OTHER
    if not changes:
        return _OWN_WAKE_UP
    return replace(_FOR_CHANGES, otherwise=_CHANGE_OR_WAKE_UP) if own else _FOR_CHANGES


def _for_limited_time(watched: BlockedThread) -> BlockedThread:
    """The wait for descriptors for a limited time that are neither sockets nor others' pipes."""
    if watched is _OWN_WAKE_UP:
        return _TIMED_WAKE_UP
    return _TIMED_CHILD if watched.helpers == "children" else _SLEEP


def poll_descriptors(memory: bytes) -> list[int]:
    """The descriptors in an array of ``struct pollfd``; negative descriptors are not watched."""
    words = memoryview(memory[: len(memory) // _POLLFD_BYTES * _POLLFD_BYTES]).cast("i")
    return [number for number in words[::2] if number >= 0]


def select_descriptors(sets: Iterable[bytes]) -> list[int]:
    """The descriptors in bit sets, on machines with little-endian words: all that have a table
    of calls.
    """
    watched = 0
    for bits in sets:
        watched |= int.from_bytes(bits, "little")
    return [number for number in range(watched.bit_length()) if watched >> number & 1]
