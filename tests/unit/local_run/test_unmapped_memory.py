"""What of the new shared memory counts as the command's, and what may be."""

import itertools
from unittest.mock import Mock

import pytest

from profiler.local_run.unmapped_memory import UnmappedMemory

_MIB = 2**20
_TREE_MIB = 10


class _World:
    """The shared memory in MiB: all growth, the files of the command, and whether others run."""

    def __init__(self) -> None:
        self.growth: int | None = 0
        self.in_files = 0
        self.is_alone = False
        self.now_ns = 0
        self._cpu_ns = itertools.count(0, 10**9)
        shared = Mock()
        shared.growth_bytes = self._growth_bytes
        shared.is_growth_of = lambda _: self.is_alone
        self.files = Mock()
        self.files.held_bytes = lambda: self.in_files * _MIB
        self.unmapped = UnmappedMemory(
            shared, self.files, lambda: self.now_ns, lambda: next(self._cpu_ns)
        )

    def _growth_bytes(self) -> int | None:
        if self.growth is None:
            return None
        return self.growth * _MIB

    def read(self, *, tree: int = _TREE_MIB, least: int = 0, most: int = 0) -> int:
        mapped_shmem = (least * _MIB, most * _MIB)
        return self.unmapped.read(tree * _MIB, mapped_shmem, {1}) // _MIB

    @property
    def bound(self) -> int:
        return self.unmapped.bound_bytes // _MIB


@pytest.fixture
def world() -> _World:
    return _World()


def test_growth_that_nobody_is_known_to_have_made_is_a_bound(world: _World) -> None:
    world.growth = 300
    assert world.read() == 0
    assert world.bound == 310
    world.growth = 0
    world.read()
    assert world.bound == 310, "it stays: the command may have held it"


def test_a_growth_that_is_not_notable_is_nothing(world: _World) -> None:
    world.growth = 3
    assert world.read() == 0
    world.growth = 40
    assert world.read(tree=1000) == 0
    assert world.bound == 0
    world.files.look.assert_not_called()


def test_the_files_of_the_command_count(world: _World) -> None:
    world.growth = 302
    world.in_files = 300
    assert world.read() == 300
    assert world.bound == 0, "2 MiB more are not notable"
    world.growth = 400
    assert world.read() == 300
    assert world.bound == 410


def test_all_growth_counts_where_no_other_process_runs(world: _World) -> None:
    world.is_alone = True
    world.growth = 300
    assert world.read() == 300
    assert world.bound == 0


def test_what_the_processes_map_counts_once(world: _World) -> None:
    world.is_alone = True
    world.growth = 300
    assert world.read(tree=210, least=200, most=200) == 100
    assert world.bound == 0


def test_what_the_processes_may_map_is_neither_added_nor_excluded(world: _World) -> None:
    world.is_alone = True
    world.growth = 300
    assert world.read(tree=210, least=100, most=300) == 0
    assert world.bound == 410


def test_between_two_full_readings_more_memory_may_be_mapped(world: _World) -> None:
    world.is_alone = True
    assert world.read() == 0
    world.growth = 300
    assert world.unmapped.read_quickly(310 * _MIB, {1}) == 0
    assert world.unmapped.read_quickly(_TREE_MIB * _MIB, {1}) == 300 * _MIB
    assert world.bound == 0


def test_an_unknown_growth_is_nothing(world: _World) -> None:
    world.growth = None
    assert world.read() == 0
    assert world.bound == 0


def test_files_are_looked_for_when_the_growth_has_changed_and_the_budget_allows(
    world: _World,
) -> None:
    world.growth = 300
    world.read()
    world.read()
    assert world.files.look.call_count == 1, "nothing new"
    world.growth = 400
    world.read()
    assert world.files.look.call_count == 1, "the first look was expensive"
    world.now_ns = 10**13
    world.read()
    assert world.files.look.call_count == 2


def test_the_cpu_time_of_a_look_is_counted(world: _World) -> None:
    world.growth = 300
    world.read()
    assert world.unmapped.used_cpu_ns == 10**9
    world.read()
    assert world.unmapped.used_cpu_ns == 10**9, "no look"
