"""Waits for something to come on sockets: from whom, who of the batch has the other ends, and what
has come since.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from profiler.core.optional_math import difference, first_known
from profiler.readers.linux.poll_outcome import ConnectionArrival
from profiler.readers.linux.shared_links import SharedLinks
from profiler.readers.linux.sockets import (
    Socket,
    SocketTable,
    TcpStreamState,
    reversed_addresses,
)
from profiler.readers.linux.wait_types import BlockedThread, Connection, Wait
from profiler.readers.linux.watched_descriptors import SOCKET

# A loop with more connections, or beside more processes, is not asked for each.
_MAX_CONNECTIONS = 16
# So many other ends of pipes and connections are kept in mind.
_MAX_ENDS = 1024
AskStream = Callable[[int, bytes], TcpStreamState | None]


class AskedStreams:
    """The states of connections, each asked once in a look: of two waits of a thread, the end of
    one and the begin of the next.
    """

    def __init__(self, ask_stream: AskStream) -> None:
        self._ask_stream = ask_stream
        self._states: dict[tuple[int, bytes], TcpStreamState | None] = {}

    def begin_look(self) -> None:
        self._states = {}

    def ask(self, inode: int, stream: bytes) -> TcpStreamState | None:
        """The state of a connection; the inode of its other end is not known."""
        asked = (inode, stream)
        if asked not in self._states:
            self._states[asked] = self._ask_stream(inode, stream)
        return self._states[asked]


class ConnectionWaits:
    """Says what a wait for sockets is for.

    ``quiet_ns``: so long nothing has come on the connections of the present wait; None if that is
    not known.
    """

    def __init__(self, sockets: SocketTable, shared: SharedLinks, ask_stream: AskStream) -> None:
        self._sockets = sockets
        self._shared = shared
        self._ask_stream = ask_stream
        self.quiet_ns: int | None = None
        self._ends: dict[int, int] = {}  # the inodes of connections and of their other ends
        self._telling: dict[bytes, None] = {}  # the connections on which something came unasked

    def wait_for_sockets(
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
        may_be_idle = len(connected) <= _MAX_CONNECTIONS and not self._sockets.has_postponed
        asks_ends = len(connected) <= _MAX_CONNECTIONS
        connections: list[Connection] = []
        pids: set[int] = set()
        for inode, socket in connected.items():
            state = None
            if may_be_idle and socket.stream:
                state = self._ask_stream(inode, socket.stream)
            may_be_idle = may_be_idle and state is not None
            if state is not None:
                self.quiet_ns = min(state.came_before_ns, first_known(self.quiet_ns, now_ns))
            ends = self.links_of_ends({inode: socket}) if asks_ends else ()
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

    def links_of_ends(self, connected: Mapping[int, Socket]) -> Iterator[str]:
        """The links of the other ends of connections, where these are on this machine."""
        for inode, socket in connected.items():
            end_inode = socket.end_inode or self._ends.get(inode)
            if end_inode is None and socket.stream:
                end_inode = self._ask_other_end_inode(inode, socket.stream)
            if end_inode is not None:
                yield f"{SOCKET}{end_inode}]"

    def without_connections_to_itself(
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
            if not any(end in links for end in self.links_of_ends({inode: socket}))
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
            came = state.received_bytes != connection.received_bytes
            sent = difference(state.sent_segments, connection.sent_segments)
            if came and not sent and not connection.awaits_answer:
                self._note_telling(connection.stream)
            is_answer = bool(came and sent and not state.owes)
            arrivals.append(
                ConnectionArrival(
                    came=came,
                    segments=difference(state.received_segments, connection.received_segments),
                    sent=sent,
                    before_ns=state.came_before_ns,
                    is_answer=is_answer and connection.stream not in self._telling,
                )
            )
        return arrivals

    def _note_telling(self, stream: bytes) -> None:
        """Note that something has come on a connection that nobody had asked for."""
        if len(self._telling) >= _MAX_ENDS:
            self._telling.clear()
        self._telling[stream] = None
