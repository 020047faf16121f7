"""What a thread that is blocked in a system call waits for: the kind of the wait, and a peer or a path.

Links, socket tables and lists of watched descriptors are read, never data: as the same user or with SYS_PTRACE.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from profiler.core.files import open_or_none
from profiler.core.text import without_surrogates
from profiler.readers.linux import proc
from profiler.readers.linux.sockets import Socket, Sockets
from profiler.readers.linux.system_calls import Calls, SystemCall

_POLLFD_BYTES = 8
_MAX_LIST_BYTES = 65_536
_LONG_BYTES = 8
# The loop of an asynchronous program watches its own wake-up pipe with at most this many other descriptors.
_MAX_DESCRIPTORS = 256
_MAX_PATH_CHARS = 256
_MAX_OWN_PAIRS = 256
_WATCHED_BY_EPOLL = re.compile(rb"^tfd:\s*(\d+)", re.MULTILINE)
_SOCKET, _PIPE = "socket:[", "pipe:["
_ANONYMOUS_KINDS = {"anon_inode:[timerfd]": "sleep", "anon_inode:[pidfd]": "child"}


class Wait(Struct, frozen=True):
    """The kind of a wait, and the peer or path if it has one."""

    kind: str
    target: str | None = None


_OTHER = Wait("other")


class WaitResolver:
    """Finds what blocked threads wait for. ``has_postponed``: the last wait's peer is to be asked for again later."""

    def __init__(self, calls: Calls, proc_folder: str, own_cpu_ns: Callable[[], int]) -> None:
        self._calls = calls
        self._folder = proc_folder
        self._sockets = Sockets(proc_folder, own_cpu_ns)
        self._own_pairs: dict[tuple[int, str], bool] = {}
        self.has_postponed = False

    @property
    def lookup_ns(self) -> int:
        """The CPU time that the search for peers has taken."""
        return self._sockets.lookup_ns

    def resolve(self, pid: int, call: SystemCall, now_ns: int) -> Wait:
        """The wait of a thread of the process in this call; ``other`` if it is unknown."""
        action, self.has_postponed = self._calls.action(call), False
        match action:
            case "disk" | "sleep" | "lock" | "child":
                return Wait(action)
            case "record lock":  # fcntl with F_SETLKW or F_OFD_SETLKW
                return Wait("lock") if call.int_argument(1) in (7, 38) else _OTHER
            case "accept":
                return Wait("network")
            case "file" | "socket":
                return self._wait_for(pid, self._link(pid, call.int_argument(0)), now_ns)
            case "poll" | "select" | "epoll":
                descriptors, has_timeout = self._watched(pid, call)
                if descriptors is not None:
                    return self._wait_for_any(pid, tuple(dict.fromkeys(descriptors)), now_ns, has_timeout=has_timeout)
        return _OTHER

    def _link(self, pid: int, descriptor: int) -> str:
        try:
            return os.readlink(f"{self._folder}/{pid}/fd/{descriptor}")  # noqa: PTH115  faster
        except OSError:
            return ""

    def _wait_for(self, pid: int, link: str, now_ns: int) -> Wait:
        """The wait for one descriptor."""
        if link.startswith(_SOCKET):
            return Wait("network", self._find(pid, [link], now_ns)[0].peer)
        if link.startswith(_PIPE):
            return Wait("pipe")
        if link.startswith("/") and not link.startswith("/dev/"):  # a terminal is not a disk
            path = without_surrogates(link.removesuffix(" (deleted)"))
            return Wait("disk", path if len(path) <= _MAX_PATH_CHARS else f"{path[: _MAX_PATH_CHARS - 1]}…")
        return Wait(_ANONYMOUS_KINDS.get(link, "other"))

    def _find(self, pid: int, links: Iterable[str], now_ns: int) -> list[Socket]:
        """The sockets of the links. A socket that is in no table, such as one of another protocol, has no peer."""
        inodes = [int(link[len(_SOCKET) : -1]) for link in links if link[len(_SOCKET) : -1].isdigit()]
        found = self._sockets.find(pid, inodes, now_ns)
        self.has_postponed = self._sockets.has_postponed
        return [found.get(inode, Socket()) for inode in inodes]

    def _watched(self, pid: int, call: SystemCall) -> tuple[Sequence[int] | None, bool]:
        """The descriptors that poll, select or epoll watch, None if not readable; and whether for a limited time."""
        name = self._calls.name(call)
        if name.startswith("epoll"):
            has_timeout = bool(call.arguments[3]) if name == "epoll_pwait2" else call.int_argument(3) >= 0
            text = proc.read(f"{self._folder}/{pid}/fdinfo/{call.int_argument(0)}")
            numbers = None if text is None else [int(word) for word in _WATCHED_BY_EPOLL.findall(text)]
        elif name in ("poll", "ppoll"):
            has_timeout = bool(call.arguments[2]) if name == "ppoll" else call.int_argument(2) >= 0
            size = min(call.arguments[1] * _POLLFD_BYTES, _MAX_LIST_BYTES)
            memory = self._read_memory(pid, call.arguments[0], size)
            numbers = None if memory is None else poll_descriptors(memory)
        else:
            has_timeout = bool(call.arguments[4])
            size = min((call.int_argument(0) + 8 * _LONG_BYTES - 1) // (8 * _LONG_BYTES) * _LONG_BYTES, _MAX_LIST_BYTES)
            parts = [self._read_memory(pid, address, size) for address in call.arguments[1:4] if address]
            known = [part for part in parts if part is not None]
            numbers = select_descriptors(known) if len(known) == len(parts) else None
        return numbers, has_timeout

    def _read_memory(self, pid: int, address: int, size: int) -> bytes | None:
        """The list of descriptors in the memory of the process; None if it is not readable."""
        if size <= 0:
            return b""
        descriptor = open_or_none(f"{self._folder}/{pid}/mem")
        if descriptor is None:
            return None
        try:
            return os.pread(descriptor, size, address)
        except (OSError, OverflowError):
            return None
        finally:
            os.close(descriptor)

    def _wait_for_any(self, pid: int, descriptors: Sequence[int], now_ns: int, *, has_timeout: bool) -> Wait:
        """The wait for one of several descriptors: connections first, then a timeout, then the others."""
        links = [self._link(pid, number) for number in descriptors[:_MAX_DESCRIPTORS]]
        links = [link for link in links if link]
        socket_links = [link for link in links if link.startswith(_SOCKET)]
        sockets = dict(zip(socket_links, self._find(pid, socket_links, now_ns), strict=True))
        others = [socket for link, socket in sockets.items() if not (socket.is_unix and self._is_own_pair(pid, link))]
        connections = [socket for socket in others if socket.peer is not None]
        if self.has_postponed:
            return Wait("network")
        if connections:
            return Wait("network", connections[0].peer if len(connections) == 1 else f"{len(connections)} connections")
        if any(link.startswith(_PIPE) and not self._is_own_pair(pid, link) for link in links):
            return Wait("pipe")
        if has_timeout or not descriptors:
            return Wait("sleep")
        if others:
            return Wait("network")
        kinds = {_ANONYMOUS_KINDS.get(link, "other") for link in links}
        return Wait(next((kind for kind in ("sleep", "child") if kind in kinds), "other"))

    def _is_own_pair(self, pid: int, link: str) -> bool:
        """Whether the process has both ends of a pipe, or of a socket pair, with which its threads wake each other.

        Both ends of a pipe have one inode. The ends of a socket pair have neighbouring inodes.
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
                known = any(f"{_SOCKET}{neighbour}]" in links for neighbour in (inode - 1, inode + 1))
            self._own_pairs[pid, link] = known
        return known


def poll_descriptors(memory: bytes) -> list[int]:
    """The descriptors in an array of ``struct pollfd``; negative descriptors are not watched."""
    words = memoryview(memory[: len(memory) // _POLLFD_BYTES * _POLLFD_BYTES]).cast("i")
    return [number for number in words[::2] if number >= 0]


def select_descriptors(sets: Iterable[bytes]) -> list[int]:
    """The descriptors in bit sets, whose words have the machine's byte order."""
    found = 0
    for bits in sets:
        for position, word in enumerate(memoryview(bits[: len(bits) // _LONG_BYTES * _LONG_BYTES]).cast("Q")):
            found |= word << (8 * _LONG_BYTES * position)
    return [number for number in range(found.bit_length()) if found >> number & 1]
