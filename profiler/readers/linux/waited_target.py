"""What a thread that is blocked in a system call waits for: the kind of the wait, and a peer or
a path.

Links, socket tables and lists of watched descriptors are read, never data. No name is ever looked
up.
"""

import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from profiler.core.files import open_or_none
from profiler.core.text import without_surrogates
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux import proc

if TYPE_CHECKING:
    from profiler.readers.linux.io_uring import Rings

_UNIX_SOCKET = "unix socket"
# A table of a host with many thousand sockets is read up to here.
_MAX_TABLE_BYTES = 1 << 20
# Reading the first of them takes no measurable time. The kernel goes through all places of a table
# of connections, also the empty ones: 5 ms where the table is large. So this takes at most a share
# of a CPU, and at most this much of it in advance.
_STREAMS = ("tcp", "tcp6")
_TABLES = ("unix", "udp", "udp6", *_STREAMS)
_MAX_CPU_SHARE, _ADVANCE_NS = 0.003, 20 * NS_PER_MS
# The kernel searches until it has the requested number of bytes. The first read is small, so that
# it stops early.
_FIRST_READ_BYTES, _LARGEST_READ_BYTES = 512, 1 << 16
# Positions in a line of these tables.
_REMOTE, _INODE = 2, 9
_UNIX_FLAGS, _UNIX_INODE, _UNIX_PATH = 3, 6, 7
_V4_BYTES = 4
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
    "lock": "futex futex_wait futex_waitv flock semop semtimedop",
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
_SOCKET, _PIPE = "socket:[", "pipe:["
_ANONYMOUS_KINDS = {"anon_inode:[timerfd]": "sleep", "anon_inode:[pidfd]": "child"}


class Socket(Struct, frozen=True):
    """A socket.

    ``peer`` is its peer's address and port, or the path of a Unix socket; None if it has no peer.
    """

    peer: str | None = None
    is_unix: bool = False


class Sockets:
    """Looks up sockets by their inode. The tables are read only when an unknown inode appears.

    ``lookup_ns`` is the CPU time that this has taken, by the thread's clock ``own_cpu_ns``.
    ``has_postponed`` is whether a search for the last wait has left inodes for later, because it
    may take no more time now.
    """

    def __init__(self, proc_folder: str, own_cpu_ns: Callable[[], int]) -> None:
        self._folder = proc_folder
        self._own_cpu_ns = own_cpu_ns
        self._known: dict[int, tuple[Socket, float]] = {}  # until when they are known
        self._budget_ns, self._budget_at_ns = float(_ADVANCE_NS), 0
        self.lookup_ns = 0
        self.has_postponed = False

    def find(self, pid: int, inodes: Collection[int], now_ns: int) -> list[Socket]:
        """The sockets in the network of ``pid``, without a peer if they are in no table.

        The time is monotonic.
        """
        known = self._known
        missing = {inode for inode in inodes if inode not in known or now_ns >= known[inode][1]}
        if missing:
            self._look_up(pid, missing, now_ns)
        return [known[inode][0] if inode in known else Socket() for inode in inodes]

    def _look_up(self, pid: int, missing: set[int], now_ns: int) -> None:
        if len(self._known) + len(missing) > 1024:  # noqa: PLR2004  the most that are kept
            self._known.clear()
        earned_ns = (now_ns - self._budget_at_ns) * _MAX_CPU_SHARE
        self._budget_ns, self._budget_at_ns = min(self._budget_ns + earned_ns, _ADVANCE_NS), now_ns
        # A socket that is not connected may be connected later.
        until_ns, began_ns = now_ns + 10 * NS_PER_SECOND, self._own_cpu_ns()
        for name in _TABLES:
            if not missing:
                break
            if name in _STREAMS and self._budget_ns <= 0:
                self.has_postponed = True
                break
            for inode, socket in _search(
                f"{self._folder}/{pid}/net/{name}", missing, is_unix=name == "unix"
            ):
                self._known[inode] = (
                    socket,
                    math.inf if socket.peer and name in _STREAMS else until_ns,
                )
        else:
            self._known.update((inode, (Socket(), until_ns)) for inode in missing)
        took_ns = self._own_cpu_ns() - began_ns
        self._budget_ns -= took_ns
        self.lookup_ns += took_ns


def _search(path: str, missing: set[int], *, is_unix: bool) -> Iterator[tuple[int, Socket]]:
    """The missing sockets that are in one table, which are missing no more.

    It is read only up to the last one.
    """
    parse, position = (parse_unix, _UNIX_INODE) if is_unix else (parse_inet, _INODE)
    for lines in _pieces(path):
        for inode in tuple(missing):
            line = _line_of(lines, inode, position)
            if line is not None:
                missing.discard(inode)
                yield inode, parse(line)
        if not missing:
            break


def parse_inet(line: bytes) -> Socket:
    """Parse a line of ``/proc/net/tcp``, ``tcp6``, ``udp`` or ``udp6``."""
    from socket import (
        AF_INET,
        AF_INET6,
        inet_ntop,
    )  # not for a run whose threads never wait for a connection

    address, _, port_text = line.split()[_REMOTE].partition(b":")
    port = int(port_text, 16)
    # The kernel prints each word of an address as a number of the machine's byte order.
    numbers = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    packed = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
    if not port:
        return Socket()
    packed = packed.removeprefix(bytes(10) + b"\xff\xff")  # of an IPv4 address in an IPv6 one
    is_v4 = len(packed) == _V4_BYTES
    return Socket(
        f"{inet_ntop(AF_INET, packed)}:{port}"
        if is_v4
        else f"[{inet_ntop(AF_INET6, packed)}]:{port}"
    )


def parse_unix(line: bytes) -> Socket:
    """Parse a line of ``/proc/net/unix``. Only the server's end has a path."""
    words = line.split(None, _UNIX_PATH)
    path = words[_UNIX_PATH].strip().decode(errors="replace") if len(words) > _UNIX_PATH else ""
    is_listening = bool(int(words[_UNIX_FLAGS], 16) & 0x10000)
    return Socket(None if is_listening else path or _UNIX_SOCKET, is_unix=True)


def _line_of(table: bytes, inode: int, position: int) -> bytes | None:
    """The line whose word at ``position`` is the inode.

    The same number in another column does not count.
    """
    number = b"%d" % inode
    lines = (line for line in table.splitlines() if number in line) if number in table else ()
    return next((line for line in lines if line.split()[position : position + 1] == [number]), None)


def _pieces(path: str) -> Iterator[bytes]:
    """The beginning of a table in pieces of whole lines."""
    descriptor = open_or_none(path)
    if descriptor is None:
        return
    rest, left, size = b"", _MAX_TABLE_BYTES, _FIRST_READ_BYTES
    try:
        while left > 0 and (chunk := os.read(descriptor, size)):
            lines, newline, rest = (rest + chunk).rpartition(b"\n")
            yield lines + newline
            left, size = left - len(chunk), min(2 * size, _LARGEST_READ_BYTES)
    except OSError:
        return
    finally:
        os.close(descriptor)


class SystemCall(Struct, frozen=True):
    """A system call in progress.

    ``number`` is -1 for a thread that is blocked outside of one, as in a page fault.
    """

    number: int
    arguments: tuple[int, ...] = ()

    def int_argument(self, position: int) -> int:
        """An argument of the type ``int``: the kernel ignores the upper half of the register."""
        value = self.arguments[position] & _MAX_UINT
        return value if value <= _MAX_UINT >> 1 else value - _MAX_UINT - 1


def calls_of(machine: str) -> Mapping[int, tuple[str, Action]]:
    """The calls of an architecture that a thread may wait in, by number; empty for one without a
    table.
    """
    table = f"{_NUMBERS[machine]} {_SINCE_2019}" if machine in _NUMBERS else ""
    actions = {name: action for action, names in _ACTIONS.items() for name in names.split()}
    words = (word.partition("=") for word in table.split())
    return {int(number): (name, actions[name]) for name, _, number in words}


def parse_system_call(text: bytes) -> SystemCall | None:
    """Parse ``/proc/PID/task/TID/syscall``; None for a thread that is not blocked, or another
    format.
    """
    words = text.split()
    try:
        number, values = int(words[0]), tuple(int(word, 16) for word in words[1:])
    except (IndexError, ValueError):
        return None
    # The last two are the stack pointer and the instruction pointer. Below 4 GiB they belong to a
    # 32-bit program, whose calls have other numbers.
    if number < 0 or (values and max(values[-2:]) <= _MAX_UINT):
        return SystemCall(-1)
    return SystemCall(number, values[:_ARGUMENTS]) if len(values) == _ARGUMENTS + 2 else None


class Wait(Struct, frozen=True):
    """The kind of a wait, and the peer or path if it has one."""

    kind: str
    target: str | None = None


_OTHER = Wait("other")
_REQUESTED_KINDS = ("disk", "network", "pipe", "sleep", "child")


class WaitResolver:
    """Finds what blocked threads wait for, by the links of ``/proc/PID/fd``."""

    def __init__(
        self,
        calls: Mapping[int, tuple[str, Action]],
        proc_folder: str,
        own_cpu_ns: Callable[[], int],
    ) -> None:
        self._calls = calls
        self._folder = proc_folder
        self.sockets = Sockets(proc_folder, own_cpu_ns)
        self._own_pairs: dict[tuple[int, str], bool] = {}
        self._rings: Rings | None = None

    def resolve(self, pid: int, call: SystemCall, now_ns: int) -> Wait:
        """The wait of a thread of the process in this call; ``other`` if it is unknown."""
        self.sockets.has_postponed = False
        name, action = self._calls.get(call.number, ("", None))
        match action:
            case "disk" | "sleep" | "lock" | "child":
                return Wait(action)
            case "record lock":  # fcntl with F_SETLKW or F_OFD_SETLKW
                return Wait("lock") if call.int_argument(1) in (7, 38) else _OTHER
            case "accept":
                return Wait("network")
            case "file" | "socket" | "ring":
                descriptor = call.int_argument(0)
                links = (
                    self._requested(pid, descriptor)
                    if action == "ring"
                    else [self._link(pid, descriptor)]
                )
                return self._wait_for_one(pid, links, now_ns)
            case "poll" | "select" | "epoll":
                descriptors, has_timeout = self._watched(pid, name, call)
                if descriptors is not None:
                    return self._wait_for_any(
                        pid, tuple(dict.fromkeys(descriptors)), now_ns, has_timeout=has_timeout
                    )
        return _OTHER

    def _link(self, pid: int, descriptor: int) -> str:
        try:
            return os.readlink(f"{self._folder}/{pid}/fd/{descriptor}")  # noqa: PTH115  faster
        except OSError:
            return ""

    def _wait_for(self, pid: int, link: str, now_ns: int) -> Wait:
        if link.startswith(_SOCKET):
            (socket,) = self.sockets.find(pid, [int(link[len(_SOCKET) : -1])], now_ns)
            return Wait("network", socket.peer)
        if link.startswith(_PIPE):
            return Wait("pipe")
        if link.startswith("/") and not link.startswith("/dev/"):  # a terminal is not a disk
            path = without_surrogates(link.removesuffix(" (deleted)"))
            return Wait(
                "disk", path if len(path) <= _MAX_PATH_CHARS else f"{path[: _MAX_PATH_CHARS - 1]}…"
            )
        return Wait(_ANONYMOUS_KINDS.get(link, "other"))

    def _requested(self, pid: int, ring: int) -> Sequence[str]:
        """The links of what a ring's requests are for."""
        if self._rings is None:
            from profiler.readers.linux.io_uring import Rings  # few programs have one

            self._rings = Rings(self._folder, self._link)
        return self._rings.links(pid, ring)

    def _wait_for_one(self, pid: int, links: Sequence[str], now_ns: int) -> Wait:
        """The wait for any of these: for files first."""
        waits = [self._wait_for(pid, link, now_ns) for link in dict.fromkeys(links)]
        kind = next(
            (kind for kind in _REQUESTED_KINDS if any(wait.kind == kind for wait in waits)),
            _OTHER.kind,
        )
        found = [wait for wait in waits if wait.kind == kind]
        return found[0] if len(found) == 1 else Wait(kind)

    def _watched(self, pid: int, name: str, call: SystemCall) -> tuple[Sequence[int] | None, bool]:
        """The descriptors that poll, select or epoll watch, None if not readable; and whether
        for a limited time.
        """
        if name.startswith("epoll"):
            has_timeout = (
                bool(call.arguments[3]) if name == "epoll_pwait2" else call.int_argument(3) >= 0
            )
            text = proc.read(f"{self._folder}/{pid}/fdinfo/{call.int_argument(0)}")
            numbers = (
                None if text is None else [int(word) for word in _WATCHED_BY_EPOLL.findall(text)]
            )
        elif name in ("poll", "ppoll"):
            has_timeout = bool(call.arguments[2]) if name == "ppoll" else call.int_argument(2) >= 0
            size = min(call.arguments[1] * _POLLFD_BYTES, _MAX_LIST_BYTES)
            memory = self._read_memory(pid, call.arguments[0], size)
            numbers = None if memory is None else poll_descriptors(memory)
        else:
            has_timeout = bool(call.arguments[4])
            size = min(
                (call.int_argument(0) + 8 * _LONG_BYTES - 1) // (8 * _LONG_BYTES) * _LONG_BYTES,
                _MAX_LIST_BYTES,
            )
            parts = [
                self._read_memory(pid, address, size) for address in call.arguments[1:4] if address
            ]
            known = [part for part in parts if part is not None]
            numbers = select_descriptors(known) if len(known) == len(parts) else None
        return numbers, has_timeout

    def _read_memory(self, pid: int, address: int, size: int) -> bytes | None:
        """The list of descriptors in the memory of the process; None if it is not readable."""
        return (
            (proc.read_beginning(f"{self._folder}/{pid}/mem", size, address) or None)
            if size > 0
            else b""
        )

    def _wait_for_any(
        self, pid: int, descriptors: Sequence[int], now_ns: int, *, has_timeout: bool
    ) -> Wait:
        """The wait for one of several descriptors: connections first, then a timeout, then the
        others.
        """
        links = [self._link(pid, number) for number in descriptors[:_MAX_DESCRIPTORS]]
        links = [link for link in links if link]
        socket_links = [link for link in links if link.startswith(_SOCKET)]
        found = self.sockets.find(
            pid, [int(link[len(_SOCKET) : -1]) for link in socket_links], now_ns
        )
        sockets = dict(zip(socket_links, found, strict=True))
        others = [
            socket
            for link, socket in sockets.items()
            if not (socket.is_unix and self._is_own_pair(pid, link))
        ]
        connections = [socket for socket in others if socket.peer is not None]
        if self.sockets.has_postponed:
            return Wait("network")
        if connections:
            return Wait(
                "network",
                connections[0].peer if len(connections) == 1 else f"{len(connections)} connections",
            )
        if any(link.startswith(_PIPE) and not self._is_own_pair(pid, link) for link in links):
            return Wait("pipe")
        if has_timeout or not descriptors:
            return Wait("sleep")
        if others:
            return Wait("network")
        kinds = {_ANONYMOUS_KINDS.get(link, "other") for link in links}
        return Wait(next((kind for kind in ("sleep", "child") if kind in kinds), "other"))

    def _is_own_pair(self, pid: int, link: str) -> bool:
        """Whether the process has both ends of a pipe (one inode) or a socket pair (neighbours):
        its own wake-up.
        """
        known = self._own_pairs.get((pid, link))
        if known is None:
            if len(self._own_pairs) >= _MAX_OWN_PAIRS:
                self._own_pairs.clear()
            numbers = proc.all_pids(f"{self._folder}/{pid}/fd")
            links = [self._link(pid, number) for number in numbers[:_MAX_DESCRIPTORS]]
            if link.startswith(_PIPE):
                known = links.count(link) > 1
            else:
                inode = int(link[len(_SOCKET) : -1])
                known = any(
                    f"{_SOCKET}{neighbour}]" in links for neighbour in (inode - 1, inode + 1)
                )
            self._own_pairs[pid, link] = known
        return known


def poll_descriptors(memory: bytes) -> list[int]:
    """The descriptors in an array of ``struct pollfd``; negative descriptors are not watched."""
    words = memoryview(memory[: len(memory) // _POLLFD_BYTES * _POLLFD_BYTES]).cast("i")
    return [number for number in words[::2] if number >= 0]


def select_descriptors(sets: Iterable[bytes]) -> list[int]:
    """The descriptors in bit sets, on machines with little-endian words: all that have a table
    of calls.
    """
    found = 0
    for bits in sets:
        found |= int.from_bytes(bits, "little")
    return [number for number in range(found.bit_length()) if found >> number & 1]
