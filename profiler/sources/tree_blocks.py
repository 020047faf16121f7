"""What a process tree has read from and written to storage, from readings of its processes. Pure."""

from collections.abc import Iterable

from profiler.sources.proc import BlockBytes
from profiler.sources.process_tree import ProcessReading


class TreeBlocks:
    """The total of a tree: it never falls.

    A process's counters hold those of the children it has waited for, and a parent is read before
    its children: nobody is counted twice. Who ended between the two readings is in neither, so
    that moment's sum is not known; the next one holds it.
    """

    def __init__(self) -> None:
        self._unreaped = BlockBytes(read_bytes=0, write_bytes=0)
        self._total = self._unreaped

    def add(self, processes: Iterable[ProcessReading], reaped: BlockBytes) -> BlockBytes | None:
        """The total now; ``reaped`` is what this process itself has waited for so far. None: not known now."""
        blocks = [process.blocks for process in processes]
        known = [one for one in blocks if one is not None]
        if len(known) < len(blocks):
            return None
        read_bytes = reaped.read_bytes + sum(one.read_bytes for one in known)
        write_bytes = reaped.write_bytes + sum(one.write_bytes for one in known)
        # Less than before: somebody ended whom nobody waited for. What that one had is kept.
        self._unreaped = BlockBytes(
            read_bytes=max(self._unreaped.read_bytes, self._total.read_bytes - read_bytes),
            write_bytes=max(self._unreaped.write_bytes, self._total.write_bytes - write_bytes),
        )
        self._total = BlockBytes(
            read_bytes=read_bytes + self._unreaped.read_bytes, write_bytes=write_bytes + self._unreaped.write_bytes
        )
        return self._total
