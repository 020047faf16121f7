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


class _Files:
    def __init__(self, held_mib: int) -> None:
        self._held_mib = held_mib

    def look(self, pids: object, growth_bytes: int) -> None:
        """They are known."""

    def held_bytes(self) -> int:
        return self._held_mib * MIB


class _Segments:
    are_known = True

    def held_bytes(self, pids: object) -> int:
        return 100 * MIB if pids == _PIDS else 0

    def follow(self, pids: object) -> None:
        """The makers are known."""


@pytest.mark.parametrize(
    ("growth_mib", "files_mib", "huge_mib", "held_mib"),
    [
        (100, 0, 0, 100),
        (0, 0, 0, 100),  # another program has freed as much
        (40, 0, 0, 100),
        (0, 0, 100, 0),  # it is perhaps one of huge pages
        (40, 0, 100, 40),
        (0, 0, 30, 70),
        (0, 0, None, 0),
        (105, 105, 0, 205),
        (105, 105, 100, 105),  # the growth is the files'
        (105, 80, 100, 105),
        (105, 80, None, 105),
    ],
)
def test_a_segment_counts_unless_it_may_be_of_huge_pages(
    growth_mib: int, files_mib: int, huge_mib: int | None, held_mib: int
) -> None:
    huge_bytes = None if huge_mib is None else huge_mib * MIB
    shared: Any = _Shared(growth_mib)
    files: Any = _Files(files_mib)
    segments: Any = _Segments()
    memory = UnmappedMemory(
        shared, files, segments, lambda: 0, lambda: 0, huge_bytes=lambda: huge_bytes
    )
    assert memory.read(10 * MIB, 0, _PIDS) == held_mib * MIB
    assert memory.read_quickly(10 * MIB, _PIDS) == held_mib * MIB
    mapped_mib = files_mib + 110
    assert memory.read((mapped_mib + 10) * MIB, mapped_mib * MIB, _PIDS) == 0, "they map it"
