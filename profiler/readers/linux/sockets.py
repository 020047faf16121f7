"""The peers of sockets, by their inode, from ``/proc/PID/net``. No name is ever looked up."""

import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping

from msgspec import Struct

from profiler.core.files import open_or_none
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND

UNIX_SOCKET = "unix socket"
# A table of a host with many thousand sockets is read up to here.
_MAX_TABLE_BYTES = 1 << 20
# Reading the first of them takes no measurable time. The kernel goes through all places of a table of connections, also
# the empty ones: 5 ms where the table is large. So this takes at most a share of a CPU, and at most this much of it in
# advance.
_STREAMS = ("tcp", "tcp6")
_TABLES = ("unix", "udp", "udp6", *_STREAMS)
_MAX_CPU_SHARE, _ADVANCE_NS = 0.003, 20 * NS_PER_MS
# The kernel searches until it has the requested number of bytes. The first read is small, so that it stops early.
_FIRST_READ_BYTES, _LARGEST_READ_BYTES = 512, 1 << 16
# Positions in a line of these tables.
_REMOTE, _INODE = 2, 9
_UNIX_FLAGS, _UNIX_INODE, _UNIX_PATH = 3, 6, 7
_V4_BYTES = 4


class Socket(Struct, frozen=True):
    """A socket. ``peer`` is its peer's address and port, or the path of a Unix socket; None if it has no peer."""

    peer: str | None = None
    is_unix: bool = False


_UNKNOWN = None, -math.inf


class Sockets:
    """Looks up sockets by their inode. The tables are read only when an unknown inode appears.

    ``lookup_ns`` is the CPU time that this has taken, by the thread's clock ``own_cpu_ns``. ``has_postponed`` is
    whether the last search has left inodes for later, because it may take no more time now.
    """

    def __init__(self, proc_folder: str, own_cpu_ns: Callable[[], int]) -> None:
        self._folder = proc_folder
        self._own_cpu_ns = own_cpu_ns
        self._known: dict[int, tuple[Socket | None, float]] = {}  # until when they are known
        self._budget_ns, self._budget_at_ns = float(_ADVANCE_NS), 0
        self.lookup_ns = 0
        self.has_postponed = False

    def find(self, pid: int, inodes: Collection[int], now_ns: int) -> Mapping[int, Socket]:
        """The sockets with these inodes in the network of ``pid``, as far as they were found. The time is monotonic."""
        self.has_postponed = False
        missing = {inode for inode in inodes if now_ns >= self._known.get(inode, _UNKNOWN)[1]}
        if missing:
            self._look_up(pid, missing, now_ns)
        entries = ((inode, self._known.get(inode, _UNKNOWN)[0]) for inode in inodes)
        return {inode: socket for inode, socket in entries if socket is not None}

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
            for inode, socket in _search(f"{self._folder}/{pid}/net/{name}", missing, is_unix=name == "unix"):
                self._known[inode] = socket, math.inf if socket.peer and name in _STREAMS else until_ns
                missing.discard(inode)
        else:
            self._known.update((inode, (None, until_ns)) for inode in missing)
        took_ns = self._own_cpu_ns() - began_ns
        self._budget_ns -= took_ns
        self.lookup_ns += took_ns


def _search(path: str, inodes: Collection[int], *, is_unix: bool) -> Iterator[tuple[int, Socket]]:
    """The sockets with these inodes in one table. It is read only up to the last one."""
    parse, position = (parse_unix, _UNIX_INODE) if is_unix else (parse_inet, _INODE)
    left = set(inodes)
    for lines in _pieces(path):
        for inode in tuple(left):
            line = _line_of(lines, inode, position)
            socket = None if line is None else parse(line)
            if socket is not None:
                left.discard(inode)
                yield inode, socket
        if not left:
            break


def parse_inet(line: bytes) -> Socket | None:
    """Parse a line of ``/proc/net/tcp``, ``tcp6``, ``udp`` or ``udp6``; None if it has another format."""
    from socket import AF_INET, AF_INET6, inet_ntop  # not for a run whose threads never wait for a connection

    words = line.split()
    if len(words) <= _INODE:
        return None
    address, _, port_text = words[_REMOTE].partition(b":")
    try:
        port = int(port_text, 16)
        # The kernel prints each word of an address as a number of the machine's byte order.
        numbers = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
        packed = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
    except (ValueError, OverflowError):
        return None
    if len(address) not in (8, 32):
        return None
    if not port:
        return Socket()
    packed = packed.removeprefix(bytes(10) + b"\xff\xff")  # of an IPv4 address in an IPv6 one
    is_v4 = len(packed) == _V4_BYTES
    return Socket(f"{inet_ntop(AF_INET, packed)}:{port}" if is_v4 else f"[{inet_ntop(AF_INET6, packed)}]:{port}")


def parse_unix(line: bytes) -> Socket | None:
    """Parse a line of ``/proc/net/unix``; None if it has another format. Only the server's end has a path."""
    words = line.split(None, _UNIX_PATH)
    if len(words) <= _UNIX_INODE:
        return None
    path = words[_UNIX_PATH].strip().decode(errors="replace") if len(words) > _UNIX_PATH else ""
    try:
        is_listening = bool(int(words[_UNIX_FLAGS], 16) & 0x10000)
    except ValueError:
        return None
    return Socket(None if is_listening else path or UNIX_SOCKET, is_unix=True)


def _line_of(table: bytes, inode: int, position: int) -> bytes | None:
    """The line whose word at ``position`` is the inode. The same number in another column does not count."""
    number = str(inode).encode()
    start = table.find(number)
    while start >= 0:
        line_start = table.rfind(b"\n", 0, start) + 1
        line_end = table.find(b"\n", start)
        line = table[line_start : line_end if line_end >= 0 else len(table)]
        words = line.split(None, position + 1)
        if len(words) > position and words[position] == number:
            return line
        start = table.find(number, start + 1)
    return None


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
