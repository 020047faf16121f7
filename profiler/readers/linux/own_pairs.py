"""Pipes and socket pairs of which a process has both ends: with most, it wakes its own loop."""

import os
from collections.abc import Callable

from msgspec import Struct

from profiler.readers.linux import proc
from profiler.readers.linux.sockets import SocketTable
from profiler.readers.linux.watched_descriptors import MAX_DESCRIPTORS, PIPE, SOCKET

_MAX_OWN_PAIRS = 256


class OwnPair(Struct, frozen=True):
    """Whether a process has both ends of a pipe or socket pair, and who waits for one waits in the
    read, too.

    Who wakes its own loop must neither wait for room to write nor read in vain: libraries make
    the ends of such a pair non-blocking, and a child that has them, too, inherited them. Those of
    Python's ``multiprocessing`` are blocking, and a parent has both ends of its children's queues.
    """

    has_both_ends: bool = False
    is_blocking: bool = False


NO_OWN_PAIR = OwnPair()


class OwnPairs:
    """Finds such pairs; ``link_of`` reads the link of a descriptor."""

    def __init__(
        self, proc_folder: str, sockets: SocketTable, link_of: Callable[[int, int], str]
    ) -> None:
        self._folder = proc_folder
        self._sockets = sockets
        self._link_of = link_of
        self._pairs: dict[tuple[int, str], OwnPair] = {}

    def find_pair(self, pid: int, link: str, now_ns: int, pair_inode: int | None = None) -> OwnPair:
        """What the process has of a pipe (one inode) or a socket pair.

        The ends of a pair whose other inode is not known are neighbours. A listener, and an end
        whose server is known, may be a neighbour, too.
        """
        pair = self._pairs.get((pid, link))
        if pair is None:
            if len(self._pairs) >= _MAX_OWN_PAIRS:
                self._pairs.clear()
            numbers = proc.numeric_entries(f"{self._folder}/{pid}/fd")[:MAX_DESCRIPTORS]
            links = {number: self._link_of(pid, number) for number in numbers}
            here = [number for number, each in links.items() if each == link]
            if link.startswith(PIPE):
                has_both_ends = len(here) > 1
            elif pair_inode is not None:
                has_both_ends = f"{SOCKET}{pair_inode}]" in links.values()
            else:
                inode = int(link[len(SOCKET) : -1])
                neighbours = (inode - 1, inode + 1)
                beside = [one for one in neighbours if f"{SOCKET}{one}]" in links.values()]
                ends = self._sockets.find_sockets(pid, beside, now_ns)
                if self._sockets.has_postponed:
                    return NO_OWN_PAIR
                has_both_ends = any(end.may_be_paired for end in ends)
            is_blocking = has_both_ends and all(self._is_blocking(pid, number) for number in here)
            pair = OwnPair(has_both_ends, is_blocking)
            self._pairs[pid, link] = pair
        return pair

    def _is_blocking(self, pid: int, descriptor: int) -> bool:
        """Whether who reads or writes there waits for it."""
        information = proc.read_or_none(f"{self._folder}/{pid}/fdinfo/{descriptor}") or b""
        flags = proc.number_after(information, b"flags:", base=8)
        return flags is not None and not flags & os.O_NONBLOCK
