"""The rings of packet sockets that the processes of a run map.

The kernel charges their pages to no control group, and cannot drop them. A process's RSS counts
them as pages of files, before Linux 6.2 only after 64 page faults of the thread that mapped them.
"""

from collections.abc import Iterable

from msgspec import Struct

from profiler.readers.linux import proc
from profiler.readers.linux.kernel_memory import MIN_GROWTH_BYTES
from profiler.readers.linux.process_tree import ProcessReading

# The name of a ring's mapping, after so many fields; other names are paths.
_SOCKET = b" socket:["
_FIELDS_BEFORE_NAME = 5


class _ProcessRings(Struct, frozen=True, gc=False, kw_only=True):
    """What a process mapped of rings, by their inodes, when its virtual memory had this size."""

    virtual_bytes: int
    rings: dict[bytes, int]


class PacketRings:
    """The rings of the processes. A process is looked at when its virtual memory has changed by as
    much as rings count from, which few do often.
    """

    def __init__(self, proc_folder: str = "/proc") -> None:
        self._folder = proc_folder
        self._looks: dict[tuple[int, int], _ProcessRings] = {}
        self._last: tuple[Iterable[ProcessReading], int] = ((), 0)

    def held_bytes(self, processes: Iterable[ProcessReading]) -> int:
        """The most that the rings take, each one once; 0 below :data:`MIN_GROWTH_BYTES`. The same
        reading again is not looked at.
        """
        last_processes, last_bytes = self._last
        if processes is last_processes:
            return last_bytes
        ring_bytes = self._ring_bytes(processes)
        self._last = processes, ring_bytes
        return ring_bytes

    def _ring_bytes(self, processes: Iterable[ProcessReading]) -> int:
        sizes = {
            process.identity: process.virtual_bytes
            for process in processes
            if process.virtual_bytes >= MIN_GROWTH_BYTES
        }
        for gone in self._looks.keys() - sizes.keys():
            del self._looks[gone]
        rings = dict[bytes, int]()
        for identity, virtual_bytes in sizes.items():
            rings |= self._rings_of_process(identity, virtual_bytes).rings
        ring_bytes = sum(rings.values())
        return ring_bytes if ring_bytes >= MIN_GROWTH_BYTES else 0

    def _rings_of_process(self, identity: tuple[int, int], virtual_bytes: int) -> _ProcessRings:
        """The look at a process of this size, the last one if that still holds."""
        look = self._looks.get(identity)
        if look is None or abs(virtual_bytes - look.virtual_bytes) >= MIN_GROWTH_BYTES:
            rings = self._read_rings(f"{self._folder}/{identity[0]}")
            look = _ProcessRings(virtual_bytes=virtual_bytes, rings=rings)
            self._looks[identity] = look
        return look

    def _read_rings(self, process_folder: str) -> dict[bytes, int]:
        # The list costs a fraction of the mappings, and has no more than its head in most networks.
        sockets = proc.read_or_none(f"{process_folder}/net/packet")
        if sockets is not None and sockets.count(b"\n") <= 1:
            return {}
        return parse_ring_sizes(proc.read_or_none(f"{process_folder}/maps") or b"")


def parse_ring_sizes(maps: bytes) -> dict[bytes, int]:
    """The size of each socket's ring by its inode; a ring is mapped as a whole."""
    rings = dict[bytes, int]()
    for line in maps.split(b"\n"):
        place, _, inode = line.partition(_SOCKET)
        fields = place.split()
        if inode and len(fields) == _FIELDS_BEFORE_NAME:
            begin, _, end = fields[0].partition(b"-")
            rings[inode] = int(end, 16) - int(begin, 16)
    return rings
