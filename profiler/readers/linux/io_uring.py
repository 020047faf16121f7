"""What the requests of an io_uring are for, by its queue, if its memory is readable: files and
sockets, or a time to pass.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from profiler.readers.linux import proc

_FIELD = re.compile(rb"^(\w+):\s*(\w+)", re.MULTILINE)
_REGISTERED_FILE = re.compile(rb"^\s+(\d+): (.+)$", re.MULTILINE)
# In a line of /proc/PID/maps: where the queue begins, and the ring's inode.
_QUEUE = re.compile(rb"^(\w+)-\w+ \S+ 10000000 \S+ (\d+) +anon_inode:\[io_uring\]", re.MULTILINE)
_ENTRY_BYTES = 64
_OPERATION = 0
# From linux/io_uring.h: a timeout of its own, and that of the request before it.
_TIMEOUTS = (11, 15)
_FLAGS = 1
_DESCRIPTOR = slice(4, 8)
_HAS_REGISTERED_FILE = 1
_MAX_REQUESTS = 8
_MAX_KNOWN_RINGS = 256


class RingRequests(Struct, frozen=True, gc=False):
    """The links of what the requests are for that are not completed, and whether one of them is
    that a time passes.
    """

    links: Sequence[str] = ()
    has_timeout: bool = False


_NO_REQUESTS = RingRequests()


class IoUringRings:
    """Finds what the requests of rings are for.

    ``link_of`` returns the link of a process's descriptor.
    """

    def __init__(self, proc_folder: str, link_of: Callable[[int, int], str]) -> None:
        self._folder = proc_folder
        self._link_of = link_of
        self._queues: dict[tuple[int, int], int] = {}  # the addresses, by pid and inode

    def pending_requests(self, pid: int, ring: int) -> RingRequests:
        """The requests that are not completed, as far as they are readable."""
        info = proc.read_or_none(f"{self._folder}/{pid}/fdinfo/{ring}") or b""
        fields = dict(_FIELD.findall(info))
        try:
            inode = int(fields[b"ino"], 0)
            mask = int(fields[b"SqMask"], 0)
            taken = int(fields[b"CachedSqHead"], 0)
            completed = int(fields[b"CachedCqTail"], 0)
        except (KeyError, ValueError):
            return _NO_REQUESTS
        address = self._queue_address(pid, inode)
        if address is None:
            return _NO_REQUESTS
        # One request that completes again and again has more completions than the queue had
        # requests.
        count = min(taken - completed, mask + 1, _MAX_REQUESTS)
        if count <= 0:
            return _NO_REQUESTS
        entries = self._read_used_entries(pid, address, mask, range(taken - count, taken))
        if not entries:  # the program does not use them in their order
            entries = self._read_used_entries(
                pid, address, mask, range(min(mask + 1, _MAX_REQUESTS))
            )
        registered = dict(_REGISTERED_FILE.findall(info.partition(b"UserBufs:")[0]))
        links = []
        for entry in entries:
            descriptor = int.from_bytes(entry[_DESCRIPTOR], "little", signed=True)
            if entry[_FLAGS] & _HAS_REGISTERED_FILE:
                links.append(
                    registered.get(b"%d" % descriptor, b"").decode(errors="surrogateescape")
                )
            elif descriptor >= 0:
                links.append(self._link_of(pid, descriptor))
        has_timeout = any(entry[_OPERATION] in _TIMEOUTS for entry in entries)
        return RingRequests(links, has_timeout)

    def _read_used_entries(
        self, pid: int, address: int, mask: int, numbers: Iterable[int]
    ) -> list[bytes]:
        """The entries of the queue that have been used, as far as they are readable."""
        entries: list[bytes] = []
        for number in numbers:
            place = address + (number & mask) * _ENTRY_BYTES
            entry = proc.read_beginning(f"{self._folder}/{pid}/mem", _ENTRY_BYTES, place)
            if len(entry) == _ENTRY_BYTES and entry[_OPERATION]:
                entries.append(entry)
        return entries

    def _queue_address(self, pid: int, inode: int) -> int | None:
        """The address of a ring's queue in the memory of the process."""
        if (pid, inode) not in self._queues:
            if len(self._queues) >= _MAX_KNOWN_RINGS:
                self._queues.clear()
            maps = proc.read_or_none(f"{self._folder}/{pid}/maps") or b""
            for start, mapped_inode in _QUEUE.findall(maps):
                self._queues[pid, int(mapped_inode)] = int(start, 16)
        return self._queues.get((pid, inode))
