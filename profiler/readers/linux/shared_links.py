"""Which processes of a batch have the same pipe, socket or memory.

A pipe or socket is named by its link in ``/proc/PID/fd``, memory by a link of the same form that is
made of ``/proc/PID/maps``.
"""

import mmap
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux import proc

# A virtual machine of Java has hundreds of archives open before its first connection.
_MAX_LINKS = 1024
_MEMORY = "memory:["
# Where shared memory that can be written begins and ends, its device and its inode.
_SHARED_MEMORY = re.compile(rb"^(\w+)-(\w+) \Sw\Ss \w+ (\S+) (\d+)", re.MULTILINE)
_MAX_PROCESSES = 64
_MAX_KEPT = 1024
# If a batch has few processes, all are asked for a link that is new.
_MAX_ASKED_AT_ONCE = 16
_LINKS_LAST_NS = 5 * NS_PER_SECOND
# Reading the memory of a process costs some ms, and who shares memory keeps it.
_MEMORIES_LAST_NS = 60 * NS_PER_SECOND


class SharedMapping(Struct, frozen=True, gc=False):
    """A part of a process's memory that others may have, too."""

    begin: int
    end: int
    link: str


class _LinkHolders(Struct, frozen=True, gc=False):
    """Which of the ``asked`` processes have a link, and until when this is known."""

    pids: frozenset[int]
    asked: frozenset[int]
    until_ns: int


class _ProcessLinks(Struct, frozen=True, gc=False):
    """What a process has, when it was asked, and until when this is known."""

    links: frozenset[str]
    asked_ns: int
    until_ns: int
    memories: Sequence[SharedMapping] = ()


def parse_shared_mappings(maps: bytes) -> Sequence[SharedMapping]:
    """The shared memory in ``/proc/PID/maps``."""
    return [
        SharedMapping(int(begin, 16), int(end, 16), f"{_MEMORY}{device.decode()} {inode.decode()}]")
        for begin, end, device, inode in _SHARED_MEMORY.findall(maps)
    ]


class SharedLinks:
    """Asks the processes of a batch what they have open, or mapped, and keeps it for a few seconds;
    shared memory for a minute.

    ``link_of`` reads the link of a descriptor.
    """

    def __init__(
        self,
        proc_folder: str,
        batch_pids: Callable[[], Collection[int]],
        link_of: Callable[[int, int], str],
    ) -> None:
        self._folder = proc_folder
        self._batch_pids = batch_pids
        self._link_of = link_of
        self._opened: dict[int, _ProcessLinks] = {}
        self._mapped: dict[int, _ProcessLinks] = {}
        self._holders: dict[str, _LinkHolders] = {}
        self._memory_at: dict[tuple[int, int], str] = {}

    def other_holders_of(self, pid: int, links: Iterable[str], now_ns: int) -> frozenset[int]:
        """The other processes of the batch that have any of these; of too many, none is asked."""
        return self.holders_of(links, now_ns) - {pid}

    def holders_of(self, links: Iterable[str], now_ns: int) -> frozenset[int]:
        """The processes of the batch that have any of these; of too many, none is asked."""
        pids: set[int] = set()
        batch = self._batch_pids()
        if len(batch) > _MAX_PROCESSES:
            return frozenset()
        for link in links:
            pids.update(self._find_holders(link, batch, now_ns))
        return frozenset(pids)

    def _find_holders(self, link: str, batch: Collection[int], now_ns: int) -> frozenset[int]:
        before = self._holders.get(link)
        pids: frozenset[int] = frozenset()
        asked: frozenset[int] = frozenset()
        until_ns = now_ns + _LINKS_LAST_NS
        is_memory = link.startswith(_MEMORY)
        if before is None:
            _forget_earlier_answers(self._mapped if is_memory else self._opened, batch, now_ns)
        elif now_ns < before.until_ns:
            pids, asked, until_ns = before.pids, before.asked, before.until_ns
        if before is None or not asked.issuperset(batch):
            asked_now = [pid for pid in batch if pid not in asked]
            links_of = self._mapped_links if is_memory else self._open_links
            pids |= {pid for pid in asked_now if link in links_of(pid, now_ns)}
            if len(self._holders) >= _MAX_KEPT:
                self._holders.clear()
            self._holders[link] = _LinkHolders(pids, asked.union(asked_now), until_ns)
        return pids

    def _open_links(self, pid: int, now_ns: int) -> frozenset[str]:
        """What a process has open."""
        known = self._opened.get(pid)
        if known is not None and now_ns < known.until_ns:
            return known.links
        if len(self._opened) > _MAX_PROCESSES:
            self._opened.clear()
        numbers = proc.numeric_entries(f"{self._folder}/{pid}/fd")[:_MAX_LINKS]
        links = frozenset([self._link_of(pid, number) for number in numbers])
        self._opened[pid] = _ProcessLinks(links, now_ns, now_ns + _LINKS_LAST_NS)
        return links

    def _mapped_links(self, pid: int, now_ns: int) -> frozenset[str]:
        """The shared memory that a process has."""
        known = self._mapped.get(pid)
        if known is not None and now_ns < known.until_ns:
            return known.links
        return self._read_mapped_links(pid, now_ns).links

    def _read_mapped_links(self, pid: int, now_ns: int) -> _ProcessLinks:
        if len(self._mapped) > _MAX_PROCESSES:
            self._mapped.clear()
        memories = parse_shared_mappings(proc.read_or_none(f"{self._folder}/{pid}/maps") or b"")
        links = frozenset([memory.link for memory in memories])
        last_ns = _MEMORIES_LAST_NS if memories else _LINKS_LAST_NS
        self._mapped[pid] = _ProcessLinks(links, now_ns, now_ns + last_ns, memories)
        return self._mapped[pid]

    def known_link_at(self, pid: int, address: int) -> str | None:
        """The link of the memory at an address; empty if no other process can have it, None if it
        was not asked yet.
        """
        return self._memory_at.get((pid, address // mmap.PAGESIZE))

    def find_link_at(self, pid: int, address: int, now_ns: int) -> str:
        """Ask for the memory at an address."""
        known = self._mapped.get(pid)
        if known is None or known.asked_ns != now_ns:
            known = self._read_mapped_links(pid, now_ns)
        link = ""
        for memory in known.memories:
            if memory.begin <= address < memory.end:
                link = memory.link
        if len(self._memory_at) >= _MAX_KEPT:
            self._memory_at.clear()
        self._memory_at[pid, address // mmap.PAGESIZE] = link
        return link


def _forget_earlier_answers(
    known: dict[int, _ProcessLinks], batch: Collection[int], now_ns: int
) -> None:
    """Forget what was asked at earlier looks, if all can be asked again."""
    if len(batch) <= _MAX_ASKED_AT_ONCE:
        for pid in [pid for pid, links in known.items() if links.asked_ns < now_ns]:
            del known[pid]
