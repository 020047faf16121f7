"""The peers of sockets, by their inode, from ``/proc/PID/net``. No name is ever looked up."""

import os
import sys
from collections.abc import Collection, Mapping

from msgspec import Struct

from profiler.core.timestamps import NS_PER_SECOND

UNIX_SOCKET = "unix socket"
# A table of a host with many thousand sockets is read up to here.
_MAX_TABLE_BYTES = 1 << 20
_MAX_KNOWN = 1024
# A socket that is not connected may be connected later.
_UNCONNECTED_NS = 10 * NS_PER_SECOND
_STREAMS = ("tcp", "tcp6")
_TABLES = (*_STREAMS, "udp", "udp6", "unix")
# Positions in a line of these tables.
_REMOTE, _INODE = 2, 9
_UNIX_FLAGS, _UNIX_INODE, _UNIX_PATH = 3, 6, 7
_UNIX_LISTENS = 0x10000
_V4_BYTES = 4
_V4_MAPPED = bytes(10) + b"\xff\xff"


class Socket(Struct, frozen=True):
    """A socket. ``peer`` is its peer's address and port, or the path of a Unix socket; None if it has no peer."""

    peer: str | None = None
    is_unix: bool = False


class Sockets:
    """Looks up sockets by their inode. The tables are read only when an unknown inode appears."""

    def __init__(self, proc_folder: str) -> None:
        self._folder = proc_folder
        self._known: dict[int, tuple[Socket | None, int | None]] = {}

    def find(self, pid: int, inodes: Collection[int], now_ns: int) -> Mapping[int, Socket]:
        """The sockets with these inodes; those that are in no table are left out.

        Args:
            pid: A process in whose network namespace the sockets are.
            inodes: The inodes.
            now_ns: The monotonic time.
        """
        missing = {inode for inode in inodes if not self._is_known(inode, now_ns)}
        if missing:
            self._read_tables(pid, missing, now_ns)
        return {inode: socket for inode in inodes if (socket := self._known[inode][0]) is not None}

    def _is_known(self, inode: int, now_ns: int) -> bool:
        entry = self._known.get(inode)
        return entry is not None and (entry[1] is None or now_ns < entry[1])

    def _read_tables(self, pid: int, missing: set[int], now_ns: int) -> None:
        if len(self._known) + len(missing) > _MAX_KNOWN:
            self._known.clear()
        until_ns = now_ns + _UNCONNECTED_NS
        for name in _TABLES:
            if not missing:
                break
            table = _read_start(f"{self._folder}/{pid}/net/{name}")
            parse, position = (parse_unix, _UNIX_INODE) if name == "unix" else (parse_inet, _INODE)
            for inode in tuple(missing):
                line = _line_of(table, inode, position)
                socket = None if line is None else parse(line)
                if socket is not None:
                    self._known[inode] = socket, None if socket.peer and name in _STREAMS else until_ns
                    missing.discard(inode)
        for inode in missing:
            self._known[inode] = None, until_ns


def parse_inet(line: bytes) -> Socket | None:
    """Parse a line of ``/proc/net/tcp``, ``tcp6``, ``udp`` or ``udp6``; None if it has another format."""
    words = line.split()
    if len(words) <= _INODE:
        return None
    address, _, port = words[_REMOTE].partition(b":")
    try:
        return _inet_socket(address.decode("ascii"), int(port, 16))
    except ValueError:
        return None


def _inet_socket(address: str, port: int) -> Socket | None:
    """The kernel prints each word of an address as a number of the machine's byte order."""
    from socket import AF_INET, AF_INET6, inet_ntop  # not for a run whose threads never wait for a connection

    words = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    if len(address) not in (8, 32) or min(words) < 0:
        return None
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    if not port:
        return Socket()
    packed = packed.removeprefix(_V4_MAPPED)
    if len(packed) == _V4_BYTES:
        return Socket(f"{inet_ntop(AF_INET, packed)}:{port}")
    return Socket(f"[{inet_ntop(AF_INET6, packed)}]:{port}")


def parse_unix(line: bytes) -> Socket | None:
    """Parse a line of ``/proc/net/unix``; None if it has another format. Only the server's end has a path."""
    words = line.split(None, _UNIX_PATH)
    if len(words) <= _UNIX_INODE:
        return None
    path = words[_UNIX_PATH].strip().decode(errors="replace") if len(words) > _UNIX_PATH else ""
    try:
        is_listening = bool(int(words[_UNIX_FLAGS], 16) & _UNIX_LISTENS)
    except ValueError:
        return None
    return Socket(None if is_listening else path or UNIX_SOCKET, is_unix=True)


def _line_of(table: bytes, inode: int, position: int) -> bytes | None:
    """The line whose word at ``position`` is the inode. The same number in another column is not it."""
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


def _read_start(path: str) -> bytes:
    chunks, left = [], _MAX_TABLE_BYTES
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        while left > 0 and (chunk := os.read(descriptor, left)):
            chunks.append(chunk)
            left -= len(chunk)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(chunks)
