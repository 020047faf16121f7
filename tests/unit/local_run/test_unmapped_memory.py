"""What a command holds of shared memory, by segments that may be of huge pages."""

from typing import Any

import pytest

from profiler.local_run.unmapped_memory import UnmappedMemory
from profiler.record.units import MIB

_PIDS = (7,)


class _Shared:
    """The growth of the machine's shared memory."""

    def __init__(self, growth_mib: int) -> None:
        self._growth_mib = growth_mib

    def growth_bytes(self) -> int:
        return self._growth_mib * MIB

    def is_growth_of(self, pids: object) -> bool:
        return pids is None


class _NoFiles:
    def look(self, pids: object, growth_bytes: int) -> None:
        """Nothing is open."""

    def held_bytes(self) -> int:
        return 0


class _Segments:
    are_known = True

    def held_bytes(self, pids: object) -> int:
        return 100 * MIB if pids == _PIDS else 0

    def follow(self, pids: object) -> None:
        """The makers are known."""


@pytest.mark.parametrize(
    ("growth_mib", "huge_mib", "held_mib"),
    [
        (100, 0, 100),
        (0, 0, 100),  # another program has freed as much
        (40, 0, 100),
        (0, 100, 0),  # it is perhaps one of huge pages
        (40, 100, 40),
        (0, 30, 70),
        (0, None, 0),
    ],
)
def test_a_segment_counts_unless_it_may_be_of_huge_pages(
    growth_mib: int, huge_mib: int | None, held_mib: int
) -> None:
    huge_bytes = None if huge_mib is None else huge_mib * MIB
    shared: Any = _Shared(growth_mib)
    files: Any = _NoFiles()
    segments: Any = _Segments()
    memory = UnmappedMemory(
        shared, files, segments, lambda: 0, lambda: 0, huge_bytes=lambda: huge_bytes
    )
    assert memory.read(10 * MIB, 0, _PIDS) == held_mib * MIB
    assert memory.read_quickly(10 * MIB, _PIDS) == held_mib * MIB
    assert memory.read(120 * MIB, 110 * MIB, _PIDS) == 0, "the processes map it"
