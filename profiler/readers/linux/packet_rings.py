"""The rings of packet sockets that the processes of a run map.

The kernel charges their pages to no control group, and cannot drop them. A process's RSS counts
them as pages of files.
"""

from collections.abc import Iterable

from profiler.readers.linux import proc
from profiler.readers.linux.kernel_memory import MIN_GROWTH_BYTES
from profiler.readers.linux.memory_shares import mapped_of_files
from profiler.readers.linux.process_tree import ProcessReading

# The name of a ring's mapping, after so many fields; other names are paths.
_SOCKET = b" socket:["
_FIELDS_BEFORE_NAME = 5
# A process is looked at again when it maps so much more of files than at the last look.
_GROWTH = 1.1


class PacketRings:
    """The rings of the processes that map notably more of files than their control group counts.
    Else it counts the files, or another group has loaded them.
    """

    def __init__(self, proc_folder: str = "/proc") -> None:
        self._folder = proc_folder
        self._looked_at: dict[tuple[int, int], int] = {}
        self._rings: dict[tuple[int, int], dict[bytes, int]] = {}

    def held_bytes(self, processes: Iterable[ProcessReading], counted_bytes: int) -> int:
        """The most that the rings take, each one once. The group counts ``counted_bytes`` of mapped
        files.
        """
        large = [one for one in processes if (one.rss_bytes or 0) >= MIN_GROWTH_BYTES]
        mapped = {process.identity: mapped_of_files(process) for process in large}
        if sum(mapped.values()) - counted_bytes < MIN_GROWTH_BYTES:
            return 0
        for gone in self._rings.keys() - mapped.keys():
            del self._looked_at[gone], self._rings[gone]
        rings = dict[bytes, int]()
        for identity, mapped_bytes in mapped.items():
            if mapped_bytes >= MIN_GROWTH_BYTES:
                rings |= self._rings_of(identity, mapped_bytes)
        return sum(rings.values())

    def _rings_of(self, identity: tuple[int, int], mapped_bytes: int) -> dict[bytes, int]:
        if mapped_bytes >= _GROWTH * self._looked_at.get(identity, 0):
            self._looked_at[identity] = mapped_bytes
            self._rings[identity] = parse_rings(
                proc.read(f"{self._folder}/{identity[0]}/maps") or b""
            )
        return self._rings[identity]


def parse_rings(maps: bytes) -> dict[bytes, int]:
    """The size of each socket's ring by its inode; a ring is mapped as a whole."""
    rings = dict[bytes, int]()
    for line in maps.split(b"\n"):
        place, _, inode = line.partition(_SOCKET)
        fields = place.split()
        if inode and len(fields) == _FIELDS_BEFORE_NAME:
            begin, _, end = fields[0].partition(b"-")
            rings[inode] = int(end, 16) - int(begin, 16)
    return rings
