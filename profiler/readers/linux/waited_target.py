"""What a thread that is blocked in a system call waits for: the kind of the wait, and a peer or
a path.

Links, socket tables and lists of watched descriptors are read, never data. No name is ever looked
up.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from profiler.core.optional_math import known
from profiler.core.text import without_surrogates
from profiler.readers.linux import proc
from profiler.readers.linux.named_pipes import kind_of_sleep
from profiler.readers.linux.sockets import Socket, Sockets

if TYPE_CHECKING:
    from profiler.readers.linux.io_uring import Rings

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
    "disk",
    "sleep",
    "futex",
    "lock",
    "child",
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
    "lock": "flock semop semtimedop",
    # A thread in vfork waits until the child has executed its program.
    "child": "wait4 waitid clone clone3 vfork",
}
_SINCE_2019 = "io_uring_enter=426 clone3=435 epoll_pwait2=441 futex_waitv=449 futex_wait=455"
_X86_64 = (
    "read=0 write=1 poll=7 pread64=17 pwrite64=18 readv=19 writev=20 select=23 msync=26 "
    "nanosleep=35 sendfile=40 connect=42 accept=43 sendto=44 recvfrom=45 sendmsg=46 recvmsg=47 "
    "clone=56 vfork=58 wait4=61 semop=65 fcntl=72 flock=73 fsync=74 fdatasync=75 ftruncate=77 "
    "sync=162 readahead=187 futex=202 io_getevents=208 getdents64=217 semtimedop=220 "
    "clock_nanosleep=230 epoll_wait=232 waitid=247 pselect6=270 ppoll=271 splice=275 "
    "sync_file_range=277 epoll_pwait=281 fallocate=285 accept4=288 preadv=295 pwritev=296 "
    "recvmmsg=299 syncfs=306 sendmmsg=307 copy_file_range=326 preadv2=327 pwritev2=328 "
    "io_pgetevents=333"
)
_AARCH64 = (
    "io_getevents=4 epoll_pwait=22 fcntl=25 flock=32 ftruncate=46 fallocate=47 getdents64=61 "
    "read=63 write=64 readv=65 writev=66 pread64=67 pwrite64=68 preadv=69 pwritev=70 sendfile=71 "
    "pselect6=72 ppoll=73 splice=76 sync=81 fsync=82 fdatasync=83 sync_file_range=84 waitid=95 "
    "futex=98 nanosleep=101 clock_nanosleep=115 semtimedop=192 semop=193 accept=202 connect=203 "
    "sendto=206 recvfrom=207 sendmsg=211 recvmsg=212 readahead=213 clone=220 msync=227 "
    "accept4=242 recvmmsg=243 wait4=260 syncfs=267 sendmmsg=269 copy_file_range=285 preadv2=286 "
    "pwritev2=287 io_pgetevents=292"
)
_NUMBERS = {"x86_64": _X86_64, "aarch64": _AARCH64}
_ARGUMENTS = 6
# From linux/futex.h: the operations that may have a timeout, without their flags, and the timeout's
# position among the arguments. LOCK_PI and its like always wait for a lock that a thread holds.
_FUTEX_COMMAND = 0x7F
_FUTEX_WAIT = 0
_FUTEX_WAIT_BITSET = 9
_FUTEX_TIMEOUTS = {"futex": 3, "futex_waitv": 3, "futex_wait": 4}
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
_WATCHED_BY_EPOLL = re.compile(rb"^tfd:\s*(\d+)", re.MULTILINE)
_SOCKET = "socket:["
_PIPE = "pipe:["
_ANONYMOUS_KINDS = {"anon_inode:[timerfd]": "sleep", "anon_inode:[pidfd]": "child"}


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


def calls_of(machine: str) -> Mapping[int, tuple[str, Action]]:
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
        values = tuple(int(word, 16) for word in words[1:])
    except (IndexError, ValueError):
        return None
    # The last two are the stack pointer and the instruction pointer. Below 4 GiB they belong to a
    # 32-bit program, whose calls have other numbers.
    if number < 0 or (values and max(values[-2:]) <= _MAX_UINT):
        return SystemCall(-1)
    if len(values) != _ARGUMENTS + 2:
        return None
    return SystemCall(number, values[:_ARGUMENTS])


class Wait(Struct, frozen=True):
    """The kind of a wait, and the peer or path if it has one."""

    kind: str
    target: str | None = None


_OTHER = Wait("other")
_LOCK = Wait("lock")
# A wait for a futex for a limited time, as of Java's Thread.sleep, Python's Event.wait and a
# condition variable. It is no kind of the record, but a weak sleep.
TIMER = Wait("timer")
_WATCHED_KINDS = ("network", "sleep", "child")
_REQUESTED_KINDS = ("disk", "network", "pipe", "sleep", "child")


class WaitResolver:
    """Finds what blocked threads wait for, by the links of ``/proc/PID/fd``."""

    def __init__(
        self,
        calls: Mapping[int, tuple[str, Action]],
        proc_folder: str,
        own_cpu_ns: Callable[[], int],
        peer_inode: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self._calls = calls
        self._folder = proc_folder
        self.sockets = Sockets(proc_folder, own_cpu_ns, peer_inode)
        self._own_pairs: dict[tuple[int, str], bool] = {}
        self._rings: Rings | None = None

    def resolve(self, pid: int, call: SystemCall, now_ns: int) -> Wait:
        """The wait of a thread of the process in this call; ``other`` if it is unknown."""
        self.sockets.has_postponed = False
        name, action = self._calls.get(call.number, ("", None))
        wait = _OTHER
        match action:
            case "disk" | "sleep" | "lock" | "child":
                wait = Wait(action)
            case "accept":
                wait = Wait("network")
            case "record lock":  # fcntl with F_SETLKW or F_OFD_SETLKW
                wait = _LOCK if call.int_argument(1) in (7, 38) else _OTHER
            case "futex":
                wait = self._wait_for_futex(pid, name, call)
            case "ring":
                links = self._requested(pid, call.int_argument(0))
                wait = self._wait_for_one(pid, links, now_ns)
            case "file" | "socket":
                wait = self._wait_for_one(pid, [self._link(pid, call.int_argument(0))], now_ns)
            case "poll" | "select" | "epoll":
                descriptors, has_timeout = self._watched(pid, name, call)
                if descriptors is not None:
                    descriptors = tuple(dict.fromkeys(descriptors))
                    wait = self._wait_for_any(pid, descriptors, now_ns, has_timeout=has_timeout)
        return wait

    def asleep(self, pid: int, call: SystemCall, wait: Wait) -> Wait:
        """What a thread in an interruptible sleep waits for, if its ``wait`` in this call is for a
        path.
        """
        _, action = self._calls.get(call.number, ("", None))
        if action != "file":  # the requests of an io_uring
            return wait
        kind = kind_of_sleep(pid, call.int_argument(0), self._folder)
        return wait if kind == wait.kind else Wait(kind)

    def _wait_for_futex(self, pid: int, name: str, call: SystemCall) -> Wait:
        """A lock, or a :data:`TIMER`: a wait for a limited time, in which nobody need hold a lock.

        Such a wait is a lock's if the futex is a POSIX mutex, which names the thread that holds it.
        """
        address, operation, value = call.arguments[:3]
        if name != "futex":
            is_timed = bool(call.arguments[_FUTEX_TIMEOUTS[name]])
            return TIMER if is_timed else _LOCK
        is_wait = operation & _FUTEX_COMMAND in (_FUTEX_WAIT, _FUTEX_WAIT_BITSET)
        if not (is_wait and call.arguments[_FUTEX_TIMEOUTS[name]]):
            return _LOCK
        if value & _MAX_UINT == _MUTEX_WITH_WAITERS:
            mutex = self._read_memory(pid, address, _MUTEX_OWNER.stop) or b""
            owner = int.from_bytes(mutex[_MUTEX_OWNER], sys.byteorder)
            thread = f"{self._folder}/{pid}/task/{owner}"
            if owner and os.path.exists(thread):  # noqa: PTH110  faster
                return _LOCK
        return TIMER

    def _link(self, pid: int, descriptor: int) -> str:
        """What the descriptor is open for, such as ``socket:[4711]``; empty if not readable."""
        try:
            return os.readlink(f"{self._folder}/{pid}/fd/{descriptor}")  # noqa: PTH115  faster
        except OSError:
            return ""

    def _wait_for(self, pid: int, link: str, now_ns: int) -> Wait:
        """The wait for one descriptor, by its link."""
        if link.startswith(_SOCKET):
            (socket,) = self.sockets.find(pid, [int(link[len(_SOCKET) : -1])], now_ns)
            if socket.pair_inode is not None:
                return Wait("pipe")
            return Wait("network", socket.peer)
        if link.startswith(_PIPE):
            return Wait("pipe")
        if link.startswith("/") and not link.startswith("/dev/"):  # a terminal is not a disk
            path = without_surrogates(link.removesuffix(" (deleted)"))
            if len(path) > _MAX_PATH_CHARS:
                path = f"{path[: _MAX_PATH_CHARS - 1]}…"
            return Wait("disk", path)
        return Wait(_ANONYMOUS_KINDS.get(link, "other"))

    def _requested(self, pid: int, ring: int) -> Sequence[str]:
        """The links of what a ring's requests are for."""
        if self._rings is None:
            from profiler.readers.linux.io_uring import Rings  # few programs have one

            self._rings = Rings(self._folder, self._link)
        return self._rings.links(pid, ring)

    def _wait_for_one(self, pid: int, links: Sequence[str], now_ns: int) -> Wait:
        """The wait for any of these: for files first."""
        waits: dict[str, list[Wait]] = {}
        for link in dict.fromkeys(links):
            wait = self._wait_for(pid, link, now_ns)
            waits.setdefault(wait.kind, []).append(wait)
        for kind in _REQUESTED_KINDS:
            if kind in waits:
                return waits[kind][0] if len(waits[kind]) == 1 else Wait(kind)
        return _OTHER

    def _watched(self, pid: int, name: str, call: SystemCall) -> tuple[Sequence[int] | None, bool]:
        """The descriptors that poll, select or epoll watch, None if not readable; and whether
        for a limited time.
        """
        if name.startswith("epoll"):
            has_timeout = call.int_argument(3) >= 0
            if name == "epoll_pwait2":
                has_timeout = bool(call.arguments[3])
            return self._watched_by_epoll(pid, call), has_timeout
        if name in ("poll", "ppoll"):
            has_timeout = call.int_argument(2) >= 0
            if name == "ppoll":
                has_timeout = bool(call.arguments[2])
            size = min(call.arguments[1] * _POLLFD_BYTES, _MAX_LIST_BYTES)
            memory = self._read_memory(pid, call.arguments[0], size)
            return known(poll_descriptors, memory), has_timeout
        return self._watched_by_select(pid, call), bool(call.arguments[4])

    def _watched_by_epoll(self, pid: int, call: SystemCall) -> Sequence[int] | None:
        """The descriptors in the list of an epoll descriptor; None if not readable."""
        text = proc.read(f"{self._folder}/{pid}/fdinfo/{call.int_argument(0)}")
        if text is None:
            return None
        return [int(word) for word in _WATCHED_BY_EPOLL.findall(text)]

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
        """The list of descriptors in the memory of the process; None if it is not readable."""
        if size <= 0:
            return b""
        return proc.read_beginning(f"{self._folder}/{pid}/mem", size, address) or None

    def _wait_for_any(
        self, pid: int, descriptors: Sequence[int], now_ns: int, *, has_timeout: bool
    ) -> Wait:
        """The wait for one of several descriptors: connections first, then a timeout, then the
        others.
        """
        links = [self._link(pid, number) for number in descriptors[:_MAX_DESCRIPTORS]]
        inodes = {link: int(link[len(_SOCKET) : -1]) for link in links if link.startswith(_SOCKET)}
        sockets = self.sockets.find(pid, inodes.values(), now_ns)
        others: list[Socket] = []
        has_pipe = False
        for link, socket in zip(inodes, sockets, strict=True):
            if socket.is_unix and self._is_own_pair(pid, link, socket.pair_inode):
                continue
            if socket.pair_inode is None:
                others.append(socket)
            else:
                has_pipe = True
        connections = [socket for socket in others if socket.peer is not None]
        if self.sockets.has_postponed:
            return Wait("network")
        if len(connections) == 1:
            return Wait("network", connections[0].peer)
        if connections:
            return Wait("network", f"{len(connections)} connections")
        if has_pipe or self._has_pipe(pid, links):
            return Wait("pipe")
        if has_timeout or not descriptors:
            return Wait("sleep")
        return _wait_for_watched(links, has_socket=bool(others))

    def _has_pipe(self, pid: int, links: Sequence[str]) -> bool:
        """Whether one of them is a pipe to another process."""
        pipes = [link for link in links if link.startswith(_PIPE)]
        return any(not self._is_own_pair(pid, link) for link in pipes)

    def _is_own_pair(self, pid: int, link: str, pair_inode: int | None = None) -> bool:
        """Whether the process has both ends of a pipe (one inode) or a socket pair: its own
        wake-up.

        The ends of a pair whose other inode is not known are neighbours.
        """
        is_own = self._own_pairs.get((pid, link))
        if is_own is None:
            if len(self._own_pairs) >= _MAX_OWN_PAIRS:
                self._own_pairs.clear()
            numbers = proc.all_pids(f"{self._folder}/{pid}/fd")
            links = [self._link(pid, number) for number in numbers[:_MAX_DESCRIPTORS]]
            if link.startswith(_PIPE):
                is_own = links.count(link) > 1
            elif pair_inode is not None:
                is_own = f"{_SOCKET}{pair_inode}]" in links
            else:
                inode = int(link[len(_SOCKET) : -1])
                is_own = f"{_SOCKET}{inode - 1}]" in links or f"{_SOCKET}{inode + 1}]" in links
            self._own_pairs[pid, link] = is_own
        return is_own


def _wait_for_watched(links: Sequence[str], *, has_socket: bool) -> Wait:
    """The wait for descriptors without a limit: sockets without a peer first."""
    kinds = {_ANONYMOUS_KINDS.get(link) for link in links}
    if has_socket:
        kinds.add("network")
    for kind in _WATCHED_KINDS:
        if kind in kinds:
            return Wait(kind)
    return _OTHER


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
