"""Waits for what descriptors are open for, by their links, and for any of several."""

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.core.text import without_surrogates
from profiler.readers.linux.connection_waits import ConnectionWaits
from profiler.readers.linux.own_pairs import NO_OWN_PAIR, OwnPair, OwnPairs
from profiler.readers.linux.pseudoterminals import link_of_other_end
from profiler.readers.linux.shared_links import SharedLinks
from profiler.readers.linux.sockets import Socket, SocketTable
from profiler.readers.linux.wait_types import BlockedThread, Wait
from profiler.readers.linux.watched_descriptors import EPOLL, PIPE, SOCKET, WatchedDescriptors

_MAX_PATH_CHARS = 256
_EVENT = "anon_inode:[eventfd]"
_TIMER = "anon_inode:[timerfd]"
_PROCESS = "anon_inode:[pidfd]"
_SIGNALS = "anon_inode:[signalfd]"
_FILE_CHANGES = ("anon_inode:inotify", "anon_inode:[fanotify]")
OTHER = BlockedThread(wait=Wait("other"))
SLEEP = BlockedThread(wait=Wait("sleep"))
CHILD = BlockedThread(wait=Wait("child"), helpers="children")
# A signal may come from anybody; a server's first process waits so beside those that serve.
SIGNAL = BlockedThread(wait=Wait("other"), helpers="children")
# A wait for a child, or for a signal, for a limited time.
TIMED_CHILD = BlockedThread(wait=Wait("sleep"), helpers="children")
# A loop that watches nothing but its own wake-up, which another of its threads sends.
OWN_WAKE_UP = BlockedThread(wait=Wait("other"), helpers="threads")
# The loop for a limited time: of one that nobody has woken before, it is a sleep.
_TIMED_WAKE_UP = BlockedThread(wait=Wait("sleep"), has_timeout=True)
# Another thread wakes it, or a child changes a file that is watched.
_CHANGE_OR_WAKE_UP = BlockedThread(wait=Wait("other"), helpers="memory")
# Anybody may change a file that is watched.
_FOR_CHANGES = BlockedThread(wait=Wait("other"), may_be_idle=True)
_BY_DESCRIPTOR = {
    _TIMER: SLEEP,
    _PROCESS: CHILD,
    _SIGNALS: SIGNAL,
    _EVENT: OWN_WAKE_UP,
    **dict.fromkeys(_FILE_CHANGES, _FOR_CHANGES),
}
_REQUESTED_KINDS = ("disk", "network", "pipe", "sleep", "child")


class _WatchedEnds(Struct):
    """The links of the other ends of pipes and socket pairs: of those ``pipes`` of which a process
    has one end, and of ``own_pairs``, which others may have, too; and the ``sockets`` that are
    neither, by inode.
    """

    pipes: list[str] = field(default_factory=list)
    own_pairs: list[str] = field(default_factory=list)
    sockets: dict[int, Socket] = field(default_factory=dict)

    def add_end(self, link: str, pair: OwnPair) -> None:
        if not pair.has_both_ends:
            self.pipes.append(link)
        elif pair.is_blocking:
            self.own_pairs.append(link)


class LinkWaits:
    """Says what a wait for links is for."""

    def __init__(
        self,
        watched: WatchedDescriptors,
        sockets: SocketTable,
        shared: SharedLinks,
        pairs: OwnPairs,
        connections: ConnectionWaits,
    ) -> None:
        self._watched = watched
        self._sockets = sockets
        self._shared = shared
        self._pairs = pairs
        self._connections = connections

    def _wait_for_link(self, pid: int, link: str, now_ns: int) -> BlockedThread:
        """The wait for one descriptor, by its link."""
        if link.startswith(SOCKET):
            inode = int(link[len(SOCKET) : -1])
            (socket,) = self._sockets.find_sockets(pid, [inode], now_ns)
            if socket.pair_inode is not None:
                return self.wait_for_pipe(pid, (f"{SOCKET}{socket.pair_inode}]",), now_ns)
            return self._connections.wait_for_sockets(pid, {inode: socket}, now_ns)
        if link.startswith(PIPE):
            return self.wait_for_pipe(pid, (link,), now_ns)
        if link.startswith("/") and not link.startswith("/dev/"):  # a terminal is not a disk
            path = without_surrogates(link.removesuffix(" (deleted)"))
            if len(path) > _MAX_PATH_CHARS:
                path = f"{path[: _MAX_PATH_CHARS - 1]}…"
            return BlockedThread(wait=Wait("disk", path))
        ends = self._ends_of_terminals(pid, (link,), now_ns)
        return self.wait_for_pipe(pid, ends, now_ns) if ends else _BY_DESCRIPTOR.get(link, OTHER)

    def _ends_of_terminals(self, pid: int, links: Iterable[str], now_ns: int) -> Sequence[str]:
        """The links of the other ends of pseudoterminals that processes of the batch have: at that
        of a user's terminal, a person is waited for.
        """
        ends = filter(None, map(link_of_other_end, links))
        return [end for end in ends if self._shared.other_holders_of(pid, (end,), now_ns)]

    def wait_for_pipe(self, pid: int, links: Collection[str], now_ns: int) -> BlockedThread:
        """The wait for the other ends of pipes, which other processes of the batch have."""
        pids = self._shared.other_holders_of(pid, links, now_ns)
        return BlockedThread(wait=Wait("pipe"), helpers="pipe", helper_pids=pids)

    def wait_for_any_link(self, pid: int, links: Sequence[str], now_ns: int) -> BlockedThread:
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
        return waits["other"][0][1] if waits else OTHER

    def _wait_for_socket_links(self, pid: int, links: Sequence[str], now_ns: int) -> BlockedThread:
        """The wait for something to come on any of these sockets."""
        inodes = [int(link[len(SOCKET) : -1]) for link in links]
        sockets = self._sockets.find_sockets(pid, inodes, now_ns)
        by_inode = dict(zip(inodes, sockets, strict=True))
        return self._connections.wait_for_sockets(pid, by_inode, now_ns)

    def wait_for_any(
        self, pid: int, descriptors: Sequence[int], now_ns: int, *, has_timeout: bool
    ) -> BlockedThread:
        """The wait for one of several descriptors: connections first, then pipes, sockets on which
        somebody may come, a timeout, and the others.
        """
        if not descriptors:
            return SLEEP
        links = self._watched.links_of(pid, descriptors)
        if not links:
            return OTHER
        found = self._find_ends(pid, links, now_ns)
        if self._sockets.has_postponed:
            return BlockedThread(wait=Wait("network"))
        sockets = self._connections.without_connections_to_itself(found.sockets, links)
        pipes = [*found.pipes, *self._ends_of_terminals(pid, links, now_ns)]
        watched = _wait_for_watched(links)
        if pipes or self._shared.other_holders_of(pid, found.own_pairs, now_ns):
            watched = self.wait_for_pipe(pid, [*pipes, *found.own_pairs], now_ns)
            helpers = watched.helpers if pipes else "memory"  # the process's own threads may send
            watched = replace(watched, helpers=helpers, has_timeout=has_timeout)
        if sockets:
            blocked = self._connections.wait_for_sockets(
                pid, sockets, now_ns, has_timeout=has_timeout
            )
            has_other = watched.wait.kind != OTHER.wait.kind
            return replace(blocked, otherwise=watched) if has_other else blocked
        if has_timeout and watched.wait.kind != "pipe":
            return _for_limited_time(watched)
        return watched

    def _find_ends(self, pid: int, links: Sequence[str], now_ns: int) -> _WatchedEnds:
        """The other ends of what the process watches, without its own wake-ups."""
        found = _WatchedEnds()
        for link in [link for link in links if link.startswith(PIPE)]:
            found.add_end(link, self._pairs.find_pair(pid, link, now_ns))
        inodes = {int(link[len(SOCKET) : -1]): link for link in links if link.startswith(SOCKET)}
        sockets = dict(zip(inodes, self._sockets.find_sockets(pid, inodes, now_ns), strict=True))
        for inode, socket in sockets.items():
            pair = NO_OWN_PAIR
            if socket.pair_inode is not None or socket.may_be_paired:
                pair = self._pairs.find_pair(pid, inodes[inode], now_ns, socket.pair_inode)
            if socket.pair_inode is not None:
                found.add_end(f"{SOCKET}{socket.pair_inode}]", pair)
            elif not pair.has_both_ends:
                found.sockets[inode] = socket
        return found


def _wait_for_watched(links: Sequence[str]) -> BlockedThread:
    """The wait for descriptors without a limit that are neither sockets nor others' pipes."""
    for link in (_TIMER, _PROCESS, _SIGNALS):
        if link in links:
            return _BY_DESCRIPTOR[link]
    own = [link for link in links if link.startswith((SOCKET, PIPE, _EVENT, EPOLL))]
    changes = [link for link in links if link in _FILE_CHANGES]
    if len(own) + len(changes) < len(links):
        return OTHER
    if not changes:
        return OWN_WAKE_UP
    return replace(_FOR_CHANGES, otherwise=_CHANGE_OR_WAKE_UP) if own else _FOR_CHANGES


def _for_limited_time(watched: BlockedThread) -> BlockedThread:
    """The wait for descriptors for a limited time that are neither sockets nor others' pipes."""
    if watched is OWN_WAKE_UP:
        return _TIMED_WAKE_UP
    return TIMED_CHILD if watched.helpers == "children" else SLEEP
