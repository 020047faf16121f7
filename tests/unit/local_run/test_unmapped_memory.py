"""What of the new shared memory counts as the command's, and what may be; segments may be of huge
pages.
"""

import itertools
from unittest.mock import Mock

import pytest

from profiler.core.optional_math import known
from profiler.local_run.unmapped_memory import UnmappedMemory

_MIB = 2**20
_TREE_MIB = 10


class _PlayedMemory:
    """The shared memory in MiB: all growth, the files and the segments of the command, and whether
    others run; ``huge`` are the huge pages that the machine's processes have taken, ``swap`` what
    is in swap.
    """

    def __init__(self) -> None:
        self.growth: int | None = 0
        self.in_files = 0
        self.in_segments = 0
        self.huge: int | None = 0
        self.swap: int | None = 0
        self.is_alone = False
        self.now_ns = 0
        self._cpu_ns = itertools.count(0, 10**9)
        self.shared = shared = Mock(has_all_memory=False)
        shared.growth_bytes = self._growth_bytes
        shared.is_growth_of = lambda _: self.is_alone
        self.files = Mock(has_lost=False)
        self.files.held_bytes = lambda: self.in_files * _MIB
        segments = Mock()
        segments.held_bytes = lambda _: self.in_segments * _MIB
        self.unmapped = UnmappedMemory(
            shared,
            self.files,
            segments,
            lambda: self.now_ns,
            lambda: next(self._cpu_ns),
            huge_bytes=lambda: known(_bytes, self.huge),
            swap_bytes=lambda: known(_bytes, self.swap),
        )

    def _growth_bytes(self) -> int | None:
        return known(_bytes, self.growth)

    def read(self, *, tree: int = _TREE_MIB, shmem: int = 0) -> int:
        return self.unmapped.unmapped_bytes(tree * _MIB, shmem * _MIB, {1}) // _MIB

    @property
    def bound(self) -> int:
        return self.unmapped.bound_bytes // _MIB


def _bytes(size_mib: int) -> int:
    return size_mib * _MIB


@pytest.fixture
def played() -> _PlayedMemory:
    return _PlayedMemory()


def test_what_went_to_swap_since_the_start_may_be_new_shared_memory(played: _PlayedMemory) -> None:
    """A file of 300 MiB of which 177 are in swap: shared memory grew by the others."""
    played.swap = 50
    played.is_alone = True
    assert played.read() == 0
    played.growth, played.swap = 123, 227
    assert played.read() == 123
    assert played.bound == 310
    assert played.unmapped.swapped_bytes == 177 * _MIB
    played.growth, played.swap = 0, 350
    assert played.read() == 0
    assert played.bound == 310
    played.growth, played.swap = 0, 400
    played.read()
    assert played.bound == 360, "all of the file may be in swap"


@pytest.mark.parametrize("swap", [None, 500])
def test_without_new_shared_memory_swap_is_other_programs(
    played: _PlayedMemory, swap: int | None
) -> None:
    played.swap = None if swap is None else 0
    played.read()
    played.swap = swap
    played.read()
    assert (played.bound, played.unmapped.swapped_bytes) == (0, 0)


def test_growth_that_nobody_is_known_to_have_made_is_a_bound(played: _PlayedMemory) -> None:
    played.growth = 300
    assert played.read() == 0
    assert played.bound == 310
    played.growth = 0
    played.read()
    assert played.bound == 310, "it stays: the command may have held it"


def test_a_growth_that_is_not_notable_is_nothing(played: _PlayedMemory) -> None:
    played.growth = 3
    assert played.read() == 0
    played.growth = 40
    assert played.read(tree=1000) == 0
    assert played.bound == 0
    played.files.find_open_files.assert_not_called()


def test_the_files_of_the_command_count(played: _PlayedMemory) -> None:
    played.growth = 302
    played.in_files = 300
    assert played.read() == 300
    assert played.bound == 0, "2 MiB more are not notable"
    played.growth = 400
    assert played.read() == 300
    assert played.bound == 410


@pytest.mark.parametrize(("growth", "bound"), [(73, 0), (220, 220)])
def test_memory_beyond_that_of_the_processes_is_a_bound_where_it_is_not_told_apart(
    played: _PlayedMemory, growth: int, bound: int
) -> None:
    """As in gVisor; what the profiler and other programs need meanwhile is no sign."""
    played.shared.has_all_memory = True
    played.growth = growth
    assert played.read(tree=10, shmem=2) == 0
    assert played.bound == bound


def test_all_growth_counts_where_no_other_process_runs(played: _PlayedMemory) -> None:
    played.is_alone = True
    played.growth = 300
    assert played.read() == 300
    assert played.bound == 0


def test_what_the_processes_map_counts_once(played: _PlayedMemory) -> None:
    played.is_alone = True
    played.growth = 300
    assert played.read(tree=210, shmem=200) == 100
    assert played.bound == 0


def test_what_the_processes_map_is_a_part_of_what_they_made_or_was_there_before(
    played: _PlayedMemory,
) -> None:
    played.is_alone = True
    played.growth = 300
    assert played.read(tree=311, shmem=301) == 0
    assert played.bound == 0


def test_what_was_there_before_hides_nothing_that_is_made_and_not_mapped(
    played: _PlayedMemory,
) -> None:
    """They map 400 MiB, at least 370 of them of another program, and have written 30."""
    played.growth = 30
    played.in_files = 30
    assert played.read(tree=410, shmem=400) == 0
    assert played.bound == 440


def test_between_two_full_readings_the_processes_map_as_much_as_at_the_last(
    played: _PlayedMemory,
) -> None:
    played.is_alone = True
    played.growth = 100
    assert played.read(tree=110, shmem=100) == 0
    played.growth = 300
    assert played.unmapped.read_quickly(110 * _MIB, {1}) == 200 * _MIB
    assert played.bound == 0


def test_an_unknown_growth_is_nothing(played: _PlayedMemory) -> None:
    played.growth = None
    assert played.read() == 0
    assert played.bound == 0


def test_files_are_looked_for_when_the_growth_has_changed_and_the_budget_allows(
    played: _PlayedMemory,
) -> None:
    played.growth = 300
    played.read()
    played.read()
    assert played.files.find_open_files.call_count == 1, "nothing new"
    played.growth = 400
    played.read()
    assert played.files.find_open_files.call_count == 1, "the first look was expensive"
    played.now_ns = 10**13
    played.read()
    assert played.files.find_open_files.call_count == 2


def test_a_file_of_which_another_process_may_have_a_descriptor_is_looked_for_again(
    played: _PlayedMemory,
) -> None:
    played.growth = 300
    played.read()
    played.now_ns += 10**15  # the budget has grown
    played.files.has_lost = True
    played.read()
    assert played.files.find_open_files.call_count == 2
    played.growth = 0
    played.now_ns += 10**15
    played.read()
    assert played.files.find_open_files.call_count == 3, "others may have freed as much"
    played.files.has_lost = False
    played.now_ns += 10**15
    played.read()
    assert played.files.find_open_files.call_count == 3, "nothing is lost, and nothing has grown"


def test_a_lost_file_is_looked_for_once_the_budget_allows_it(played: _PlayedMemory) -> None:
    played.growth = 300
    played.in_files = 300
    assert played.read() == 300
    played.files.has_lost = True
    played.in_files = 0
    for _ in range(3):
        assert played.read() == 0
        assert played.files.find_open_files.call_count == 1, "the first look was expensive"
        assert played.bound == 310, "it may be there"

    def look(*_: object) -> None:
        played.in_files = 300
        played.files.has_lost = False

    played.files.find_open_files.side_effect = look
    played.now_ns += 10**15
    assert played.read() == 300
    assert played.files.find_open_files.call_count == 2


def test_the_cpu_time_of_a_look_is_counted(played: _PlayedMemory) -> None:
    played.growth = 300
    played.read()
    assert played.unmapped.used_cpu_ns == 10**9
    played.read()
    assert played.unmapped.used_cpu_ns == 10**9, "no look"


def test_the_segments_of_the_command_count_attached_or_not(played: _PlayedMemory) -> None:
    played.growth = 302
    played.in_segments = 300
    assert played.read(tree=310, shmem=300) == 0, "attached: the process counts it"
    assert played.read() == 300
    assert played.bound == 0


def test_segments_of_huge_pages_are_not_shared_memory(played: _PlayedMemory) -> None:
    played.growth = 30
    played.in_segments = 300
    played.huge = 300
    assert played.read() == 30


@pytest.mark.parametrize(
    ("growth", "files", "huge", "held"),
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
    growth: int, files: int, huge: int | None, held: int, played: _PlayedMemory
) -> None:
    played.growth, played.in_files, played.in_segments = growth, files, 100
    played.huge = huge
    assert played.read() == held
    assert played.unmapped.read_quickly(_TREE_MIB * _MIB, {1}) == held * _MIB
    assert played.read(tree=files + 120, shmem=files + 110) == 0, "the processes map it"


def test_the_mean_of_what_nobody_is_known_to_have_made(played: _PlayedMemory) -> None:
    played.read()
    played.growth = 300
    played.now_ns = 10
    played.read()
    played.now_ns = 30
    played.in_files = 300
    played.read()
    played.now_ns = 40
    played.read()
    assert played.unmapped.average_bound_bytes == 300 * _MIB * 20 / 40
