"""Finds the peers of sockets by their inodes, in the kernel's tables of connections.

No name is ever looked up.
"""

import math
import os
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.files import close_files, open_or_none
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux import proc

_UNIX_SOCKET = "unix socket"
# A table of a host with many thousand sockets is read up to here.
_MAX_TABLE_BYTES = 1 << 20
# Reading the first of them takes no measurable time. The kernel goes through all places of a table
# of connections, also the empty ones: 5 ms where the table is large. So this takes at most a share
# of a CPU, and at most this much of it in advance.
_STREAMS = ("tcp", "tcp6")
_DATAGRAMS = ("udp", "udp6")
_TABLES = ("unix", *_DATAGRAMS, *_STREAMS)
_MAX_CPU_SHARE = 0.003
_ADVANCE_NS = 20 * NS_PER_MS
# The kernel searches until it has the requested number of bytes. The first read is small, so that
# it stops early.
_FIRST_READ_BYTES = 512
_MAX_READ_BYTES = 1 << 16
# A socket that is not connected may be connected later.
_UNCONNECTED_LASTS_NS = 10 * NS_PER_SECOND
# A connection whose other end was not asked for, because no budget was left.
_UNASKED_LASTS_NS = NS_PER_SECOND
# Positions in a line of these tables.
_LOCAL = 1
_REMOTE = 2
_INODE = 9
_UNIX_FLAGS = 3
_UNIX_INODE = 6
_UNIX_PATH = 7
_V4_BYTES = 4
# The messages of sock_diag(7) about Unix sockets, from linux/netlink.h, sock_diag.h and
# unix_diag.h.
_NETLINK_SOCK_DIAG = 4
_AF_UNIX = 1
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_SHOW_PEER = 4
_ATTRIBUTE_PEER = 2
_ANY = 0xFFFF_FFFF
_NO_COOKIE = 0xFFFF_FFFF
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")
_ANSWER = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")
# In net/snmp: a line of names, and one of numbers.
_ACCEPTED = b"PassiveOpens"
_MAX_COUNTERS_BYTES = 8192
# The same about TCP connections, from linux/inet_diag.h and linux/tcp.h: a family and a socket's
# addresses follow the request, and a socket's inode and attributes the answer.
_INET_REQUEST = struct.Struct("=BBBxI")
_SOCKET_ID = struct.Struct("!HH16s16s")
_ANY_INTERFACE = b"\0\0\0\0" + b"\xff" * 8
_STREAM_PROTOCOL = 6
_ASK_INFO = 2
_ATTRIBUTE_INFO = 2
_INET_INODE = 68
_NLM_F_DUMP = 0x300
_NLMSG_DONE = 3
_NLMSG_ERROR = 2
# Of a connection that is over, the kernel keeps only the addresses.
_STATES_WITH_INODE = _ANY & ~(1 << 6)
_IPV4, _IPV6 = 2, 10
_MAX_DUMPED_BYTES = 1 << 20
_INET_ANSWER_BYTES = 72
_LAST_SENT = 44
_LAST_RECEIVED = 52
_RECEIVED_BYTES = slice(128, 136)
_RECEIVED_SEGMENTS = slice(152, 156)  # since Linux 4.6
_SENT_SEGMENTS = slice(156, 160)


class Socket(Struct, frozen=True):
    """A socket.

    ``peer`` is its peer's address and port, or the path of a Unix socket; None if it has no peer.
    ``listens``: clients connect to it by TCP.
    ``pair_inode`` is the inode of the other end if ``socketpair`` made both: they connect processes
    of one program, as a pipe does. ``end_inode`` is that of the other end of another Unix
    connection, or of UDP on this machine. ``stream`` are the addresses of a TCP connection, in the
    form that sock_diag(7) expects, ``datagram`` those of UDP, as the table has them.
    """

    peer: str | None = None
    listens: bool = False
    is_unix: bool = False
    pair_inode: int | None = None
    end_inode: int | None = None
    stream: bytes = b""
    datagram: tuple[bytes, bytes] | None = None

    @property
    def may_be_paired(self) -> bool:
        """Whether ``socketpair`` may have made it: it has no path, and its other end is unknown."""
        return self.peer == _UNIX_SOCKET and self.end_inode is None


FindStreams = Callable[[Collection[int]], Mapping[int, Socket]]


class SocketTable:
    """Looks up sockets by their inode. The tables are read only when an unknown inode appears.

    ``peer_inode`` returns the inode of a Unix socket's peer, None if it is not known, and
    ``find_streams`` those of TCP sockets that the kernel knows without a search of its tables.
    ``lookup_cpu_ns`` is the CPU time that this has taken, by the thread's clock ``own_cpu_ns``.
    ``has_postponed`` is whether a search for the last wait has left inodes for later, because it
    may take no more time now.
    """

    def __init__(
        self,
        proc_folder: str,
        own_cpu_ns: Callable[[], int],
        peer_inode: Callable[[int], int | None],
        find_streams: FindStreams = lambda _: {},
    ) -> None:
        self._folder = proc_folder
        self._find_streams = find_streams
        self._own_cpu_ns = own_cpu_ns
        self._peer_inode = peer_inode
        self._known: dict[int, tuple[Socket, float]] = {}  # until when they are known
        self._endless: dict[int, int] = {}  # when the other end was not known first
        self._budget_ns = float(_ADVANCE_NS)
        self._budget_at_ns = 0
        self.lookup_cpu_ns = 0
        self.has_postponed = False

    def find_sockets(self, pid: int, inodes: Collection[int], now_ns: int) -> list[Socket]:
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
            self._endless.clear()
        earned_ns = (now_ns - self._budget_at_ns) * _MAX_CPU_SHARE
        self._budget_ns = min(self._budget_ns + earned_ns, _ADVANCE_NS)
        self._budget_at_ns = now_ns
        until_ns = now_ns + _UNCONNECTED_LASTS_NS
        began_ns = self._own_cpu_ns()
        datagrams: dict[int, Socket] = {}
        for name in _TABLES:
            if not missing:
                break
            if name in _STREAMS and self._budget_ns <= 0:
                self.has_postponed = True
                break
            of_unix: dict[int, str] = {}
            for inode, socket in self._search(pid, name, missing):
                if socket.is_unix and socket.peer is not None:
                    of_unix[inode] = socket.peer
                    continue
                if socket.datagram is not None:
                    datagrams[inode] = socket
                is_lasting = name in _STREAMS and socket.peer is not None
                self._known[inode] = (socket, math.inf if is_lasting else until_ns)
            self._find_other_ends(pid, of_unix, now_ns, began_ns)
        else:
            self._known.update((inode, (Socket(), until_ns)) for inode in missing)
        for inode, socket in self._with_datagram_ends(pid, datagrams):
            self._known[inode] = (socket, until_ns)
        took_ns = self._own_cpu_ns() - began_ns
        self._budget_ns -= took_ns
        self.lookup_cpu_ns += took_ns

    def _search(self, pid: int, name: str, missing: set[int]) -> Iterator[tuple[int, Socket]]:
        """The missing sockets that are in this table, or in a list of TCP sockets."""
        if name == _STREAMS[0]:
            found = self._find_streams(missing)
            missing.difference_update(found)
            yield from found.items()
        if missing:
            path = f"{self._folder}/{pid}/net/{name}"
            yield from _search_table(path, missing, is_unix=name == "unix")

    def _with_datagram_ends(
        self, pid: int, datagrams: Mapping[int, Socket]
    ) -> Iterator[tuple[int, Socket]]:
        """The sockets with the other ends of their UDP connections in the network of ``pid``."""
        if not datagrams:
            return
        tables = [_table_pieces(f"{self._folder}/{pid}/net/{name}") for name in _DATAGRAMS]
        by_port = _rows_by_port(line for lines in chain(*tables) for line in lines.splitlines())
        for inode, socket in datagrams.items():
            if socket.datagram is not None:
                own, peer = socket.datagram
                yield inode, replace(socket, end_inode=_datagram_receiver_inode(by_port, own, peer))

    def _find_other_ends(
        self, pid: int, of_unix: Mapping[int, str], now_ns: int, began_ns: int
    ) -> None:
        """Connected Unix sockets, with a server's path or without one: clients of a server, or ends
        of a pair.

        Where no budget is left, those without a path are postponed, and the others have it alone.
        """
        others: dict[int, int | None] = {}
        for inode, path in of_unix.items():
            is_spent = self._own_cpu_ns() - began_ns > self._budget_ns
            other_inode = None if is_spent else self._peer_inode(inode)
            if path != _UNIX_SOCKET:
                socket = Socket(path, is_unix=True, end_inode=other_inode)
                lasts_ns = _UNASKED_LASTS_NS if is_spent else _UNCONNECTED_LASTS_NS
                until_ns = math.inf if other_inode is not None else now_ns + lasts_ns
                self._known[inode] = (socket, until_ns)
            elif is_spent:
                self.has_postponed = True
            else:
                others[inode] = other_inode
        wanted = {other_inode for other_inode in others.values() if other_inode}
        ends: dict[int, Socket] = {}
        if wanted:  # an end that is missing is in another network namespace
            ends = dict(_search_table(f"{self._folder}/{pid}/net/unix", wanted, is_unix=True))
        for inode, other_inode in others.items():
            end = ends.get(other_inode or 0)
            if end is None:
                socket = Socket(_UNIX_SOCKET, is_unix=True)
                self._known[inode] = (socket, self._endless_until_ns(inode, now_ns))
            elif end.peer == _UNIX_SOCKET:
                self._known[inode] = (Socket(is_unix=True, pair_inode=other_inode), math.inf)
            else:
                socket = Socket(end.peer, is_unix=True, end_inode=other_inode)
                self._known[inode] = (socket, math.inf)

    def _endless_until_ns(self, inode: int, now_ns: int) -> int:
        """Until when a client has no other end: the server has not accepted it yet, or is in
        another network namespace. It is asked again at the next look, and then ever more rarely.
        """
        first_ns = self._endless.setdefault(inode, now_ns)
        return now_ns + min(now_ns - first_ns, _UNCONNECTED_LASTS_NS)


def read_accepted_connections(proc_folder: str, pid: int) -> int | None:
    """How many TCP connections others have made in the network of ``pid`` so far; None if that is
    not readable.
    """
    text = proc.read_beginning(f"{proc_folder}/{pid}/net/snmp", _MAX_COUNTERS_BYTES)
    lines = [line.split() for line in text.splitlines() if line.startswith(b"Tcp:")]
    for names, numbers in pairwise(lines):
        if _ACCEPTED in names:
            return int(numbers[names.index(_ACCEPTED)])
    return None


class UnknownSockets:
    """Nobody knows anything of a socket."""

    def ask_peer_inode(self, inode: int) -> int | None:  # noqa: ARG002
        """The inode of a Unix socket's peer; None if it is not known."""
        return None

    def ask_stream_state(
        self,
        inode: int,  # noqa: ARG002
        stream: bytes,  # noqa: ARG002
    ) -> "TcpStreamState | None":
        """The state of one TCP connection, by its addresses; None if it is not known. An inode of 0
        is that of any.
        """
        return None

    def find_streams(self, inodes: Collection[int]) -> "Mapping[int, Socket]":  # noqa: ARG002
        """Those of these TCP sockets that are known, by inode."""
        return {}

    def close(self) -> None:
        """Close what is open for this."""


class KernelSockets(UnknownSockets):
    """Asks the kernel for the sockets of this process's network namespace (``sock_diag``), over a
    connection that stays open until :meth:`close`: to open one takes as long as the question. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._connection: int | None = None
        self._number = 0  # of the last question; each answer has its own

    def ask_peer_inode(self, inode: int) -> int | None:
        """The inode of a Unix socket's peer; None if the kernel does not know it."""
        request = _REQUEST.pack(_AF_UNIX, 0, 0, _ANY, inode, _SHOW_PEER, _NO_COOKIE, _NO_COOKIE)
        return parse_peer_inode(self._ask(request))

    def ask_stream_state(self, inode: int, stream: bytes) -> "TcpStreamState | None":
        """The state of one TCP connection, by its addresses; None if the kernel does not know it,
        as one of another network namespace. An inode of 0 is that of any.
        """
        request = _INET_REQUEST.pack(stream[0], _STREAM_PROTOCOL, _ASK_INFO, _ANY) + stream[1:]
        return parse_stream_state(self._ask(request), inode)

    def find_streams(self, inodes: Collection[int]) -> Mapping[int, Socket]:
        """Those of these TCP sockets that are in this process's network namespace, by inode: to
        list all takes a tenth of the time of reading the tables.
        """
        found: dict[int, Socket] = {}
        for family in (_IPV4, _IPV6):
            if len(found) < len(inodes):
                request = _INET_REQUEST.pack(family, _STREAM_PROTOCOL, 0, _STATES_WITH_INODE)
                for message in self._list(request + bytes(_SOCKET_ID.size + len(_ANY_INTERFACE))):
                    found.update(parse_streams(message, inodes))
        return found

    def close(self) -> None:
        """Close the connection; the next question opens another one."""
        close_files((self._connection,))
        self._connection = None

    def _list(self, request: bytes) -> Iterator[bytes]:
        """The parts of a long answer, up to a limit."""
        left = _MAX_DUMPED_BYTES
        answer = self._ask(request, _NLM_F_DUMP)
        while answer and left > 0 and self._connection is not None:
            yield answer
            if _ends_list(answer):
                return
            left -= len(answer)
            try:
                answer = os.read(self._connection, _MAX_READ_BYTES)
            except OSError:
                break
        self.close()  # the rest is no answer to the next question

    def _ask(self, request: bytes, flags: int = 0) -> bytes:
        """The answer; empty if there is none."""
        self._number += 1
        length = _HEADER.size + len(request)
        flags |= _NLM_F_REQUEST
        header = _HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, flags, self._number, 0)
        answer = b""
        with suppress(OSError):
            if self._connection is None:
                self._connection = _connect_to_kernel()
            os.write(self._connection, header + request)
            answer = os.read(self._connection, _MAX_READ_BYTES)
        if len(answer) >= _HEADER.size and _HEADER.unpack_from(answer)[3] == self._number:
            return answer
        self.close()  # what may be left there is no answer to the next question
        return b""


def _connect_to_kernel() -> int:
    """The descriptor of a connection that never waits. Raises OSError."""
    # Not for a run whose threads never wait for a connection. The module `socket` makes
    # enumerations of all constants, which takes as long as several looks.
    import _socket

    kind = _socket.SOCK_RAW | _socket.SOCK_NONBLOCK
    return _socket.socket(_socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG).detach()


def parse_peer_inode(message: bytes) -> int | None:
    """Parse the answer of ``sock_diag``; None for an error, or a socket without a peer."""
    place = _HEADER.size + _ANSWER.size
    if len(message) < place or _HEADER.unpack_from(message)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    for kind, content in _netlink_attributes(message, place):
        if kind == _ATTRIBUTE_PEER:
            return int.from_bytes(content, sys.byteorder) or None
    return None


class TcpStreamState(Struct, frozen=True, gc=False):
    """What the kernel knows of a TCP connection: the bytes that came, in how many segments, None if
    it does not say that, and how long ago the last one; whether something was sent later than that,
    and in how many segments; and its inode.
    """

    received_bytes: int
    owes: bool
    inode: int = 0
    received_segments: int | None = None
    sent_segments: int | None = None
    came_before_ns: int = 0


def reversed_addresses(stream: bytes) -> bytes | None:
    """The addresses of a TCP connection as its other end has them; None if that is on another
    machine.
    """
    own_port, port, own, peer = _SOCKET_ID.unpack_from(stream, 1)
    if own != peer:
        return None
    return stream[:1] + _SOCKET_ID.pack(port, own_port, peer, own) + _ANY_INTERFACE


def parse_stream_state(message: bytes, inode: int) -> TcpStreamState | None:
    """Parse the answer of ``sock_diag`` about a TCP connection; None if it is another socket's."""
    place = _HEADER.size + _INET_ANSWER_BYTES
    if len(message) < place or _HEADER.unpack_from(message)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    (found_inode,) = struct.unpack_from("=I", message, _HEADER.size + _INET_INODE)
    if inode not in (found_inode, 0):
        return None
    for kind, content in _netlink_attributes(message, place):
        if kind == _ATTRIBUTE_INFO and len(content) >= _RECEIVED_BYTES.stop:
            (sent_ms,) = struct.unpack_from("=I", content, _LAST_SENT)
            (came_ms,) = struct.unpack_from("=I", content, _LAST_RECEIVED)
            return TcpStreamState(
                int.from_bytes(content[_RECEIVED_BYTES], sys.byteorder),
                owes=sent_ms < came_ms,
                inode=found_inode,
                received_segments=_number_at(content, _RECEIVED_SEGMENTS),
                sent_segments=_number_at(content, _SENT_SEGMENTS),
                came_before_ns=came_ms * NS_PER_MS,
            )
    return None


def parse_streams(message: bytes, inodes: Collection[int]) -> Iterator[tuple[int, Socket]]:
    """Those of these TCP sockets that are in a part of a list, by inode."""
    if not any((inode & _ANY).to_bytes(4, sys.byteorder) in message for inode in inodes):
        return  # a machine may have thousands of others
    for kind, begin, end in _netlink_messages(message):
        if kind != _SOCK_DIAG_BY_FAMILY or end - begin < _HEADER.size + _INET_ANSWER_BYTES:
            continue
        place = begin + _HEADER.size
        (inode,) = struct.unpack_from("=I", message, place + _INET_INODE)
        if inode not in inodes:
            continue
        own_port, port, own, packed = _SOCKET_ID.unpack_from(message, place + _ATTRIBUTE.size)
        family = message[place]
        size = _V4_BYTES if family == _IPV4 else len(packed)
        yield inode, _tcp_socket(own[:size], own_port, packed[:size], port)


def _netlink_messages(message: bytes) -> Iterator[tuple[int, int, int]]:
    """The kind of each message of an answer, and where it begins and ends."""
    place = 0
    while place + _HEADER.size <= len(message):
        length, kind, *_ = _HEADER.unpack_from(message, place)
        if not _HEADER.size <= length <= len(message) - place:
            return
        yield kind, place, place + length
        place += -(-length // 4) * 4


def _ends_list(message: bytes) -> bool:
    """Whether no part follows this one."""
    ends = (_NLMSG_DONE, _NLMSG_ERROR)
    return any(kind in ends for kind, _, _ in _netlink_messages(message))


def _number_at(content: bytes, place: slice) -> int | None:
    """The number in a place; None if the content ends before."""
    return int.from_bytes(content[place], sys.byteorder) if len(content) >= place.stop else None


def _netlink_attributes(message: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """The attributes of an answer from a place on."""
    while place + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, place)
        if length < _ATTRIBUTE.size:
            return
        yield kind, message[place + _ATTRIBUTE.size : place + length]
        place += -(-length // 4) * 4


def _search_table(path: str, missing: set[int], *, is_unix: bool) -> Iterator[tuple[int, Socket]]:
    """The missing sockets that are in one table, which are missing no more.

    It is read only up to the last one.
    """
    is_stream = path.endswith(_STREAMS)
    position = _UNIX_INODE if is_unix else _INODE
    for lines in _table_pieces(path):
        for inode in tuple(missing):
            line = _line_with_inode(lines, inode, position)
            if line is not None:
                missing.discard(inode)
                yield inode, parse_unix(line) if is_unix else parse_inet(line, is_stream=is_stream)
        if not missing:
            break


def parse_inet(line: bytes, *, is_stream: bool = False) -> Socket:
    """Parse a line of ``/proc/net/tcp``, ``tcp6``, ``udp`` or ``udp6``."""
    words = line.split()
    packed, port = _parse_address(words[_REMOTE])
    if is_stream:
        own, own_port = _parse_address(words[_LOCAL])
        return _tcp_socket(own, own_port, packed, port)
    if not port:
        return Socket()
    return Socket(_shown_address(packed, port), datagram=(words[_LOCAL], words[_REMOTE]))


def _tcp_socket(own: bytes, own_port: int, packed: bytes, port: int) -> Socket:
    """A TCP socket with these addresses."""
    if not port:
        return Socket(listens=True)
    family = _IPV4 if len(packed) == _V4_BYTES else _IPV6
    stream = bytes((family,)) + _SOCKET_ID.pack(own_port, port, own, packed) + _ANY_INTERFACE
    return Socket(_shown_address(packed, port), stream=stream)


def _shown_address(packed: bytes, port: int) -> str:
    # Not for a run whose threads never wait for a connection.
    from _socket import AF_INET, AF_INET6, inet_ntop

    packed = packed.removeprefix(bytes(10) + b"\xff\xff")  # of an IPv4 address in an IPv6 one
    if len(packed) == _V4_BYTES:
        return f"{inet_ntop(AF_INET, packed)}:{port}"
    return f"[{inet_ntop(AF_INET6, packed)}]:{port}"


def _rows_by_port(lines: Iterable[bytes]) -> Mapping[bytes, Sequence[Sequence[bytes]]]:
    """The words of the lines of a table of UDP sockets, by the port of the socket itself."""
    rows: dict[bytes, list[list[bytes]]] = {}
    for line in lines:
        words = line.split()
        if len(words) > _INODE:
            rows.setdefault(words[_LOCAL].rpartition(b":")[2], []).append(words)
    return rows


def _datagram_receiver_inode(
    by_port: Mapping[bytes, Sequence[Sequence[bytes]]], own: bytes, peer: bytes
) -> int | None:
    """The inode of the UDP socket that receives what is sent from ``own`` to ``peer``, which are
    addresses as in the table; None if it is on another machine. One that is connected to ``own``
    comes before one that receives from everybody.
    """
    address, _, port = peer.partition(b":")
    if address != own.partition(b":")[0]:
        return None
    found: int | None = None
    for words in by_port.get(port, ()):
        local = words[_LOCAL].partition(b":")[0]
        if local != address and local.strip(b"0"):
            continue
        if words[_REMOTE] == own:
            return int(words[_INODE])
        if words[_REMOTE].endswith(b":0000"):
            found = int(words[_INODE])
    return found


def _parse_address(text: bytes) -> tuple[bytes, int]:
    """An address and a port: the kernel prints each word of an address as a number of the
    machine's byte order.
    """
    address, _, port = text.partition(b":")
    numbers = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    return b"".join(number.to_bytes(4, sys.byteorder) for number in numbers), int(port, 16)


def parse_unix(line: bytes) -> Socket:
    """Parse a line of ``/proc/net/unix``. Only the server's end has a path."""
    words = line.split(None, _UNIX_PATH)
    if int(words[_UNIX_FLAGS], 16) & 0x10000:  # it listens
        return Socket(is_unix=True)
    path = ""
    if len(words) > _UNIX_PATH:
        path = words[_UNIX_PATH].strip().decode(errors="replace")
    return Socket(path or _UNIX_SOCKET, is_unix=True)


def _line_with_inode(table: bytes, inode: int, position: int) -> bytes | None:
    """The line whose word at ``position`` is the inode.

    The same number in another column does not count.
    """
    number = b"%d" % inode
    if number not in table:
        return None
    for line in table.splitlines():
        if number in line and line.split()[position : position + 1] == [number]:
            return line
    return None


def _table_pieces(path: str) -> Iterator[bytes]:
    """The beginning of a table in pieces of whole lines."""
    descriptor = open_or_none(path)
    if descriptor is None:
        return
    rest = b""
    left = _MAX_TABLE_BYTES
    size = _FIRST_READ_BYTES
    try:
        while left > 0 and (chunk := os.read(descriptor, size)):
            lines, newline, rest = (rest + chunk).rpartition(b"\n")
            yield lines + newline
            left = left - len(chunk)
            size = min(2 * size, _MAX_READ_BYTES)
    except OSError:
        return
    finally:
        os.close(descriptor)
