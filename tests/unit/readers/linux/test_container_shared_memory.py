from pathlib import Path
from typing import Any

import pytest

from profiler.readers.linux.container_shared_memory import SharedMemoryParts
from profiler.readers.linux.process_tree import ProcessReading
from tests import fakes

_MIB = 2**20


class _Machine:
    """A folder like /proc with the shares of some processes, in MiB."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.now_ns = 0
        self.cpu_ns = 0
        self.cost_ns = 2 * 10**7
        self.unread: dict[int, int] = {}
        self._parts = SharedMemoryParts(str(folder), lambda: self.now_ns, self._next_cpu_ns)

    def _next_cpu_ns(self) -> int:
        self.cpu_ns += self.cost_ns
        return self.cpu_ns

    def share(self, pid: int, size_mib: int) -> None:
        folder = self._folder / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "smaps_rollup").write_text(f"Rss: 1 kB\nPss_Shmem: {size_mib * 1024} kB\n")

    def read(self, **mapped: int) -> dict[int, int]:
        processes = [_mapping(int(name[1:]), size) for name, size in mapped.items()]
        parts = self._parts.read_parts(processes)
        self.unread = {one.pid: self._parts.unread_bytes(one) // _MIB for one in processes}
        return {pid: part_bytes // _MIB for (pid, _), part_bytes in parts.items()}

    @property
    def is_behind(self) -> bool:
        return self._parts.is_behind


def _mapping(pid: int, size_mib: int) -> ProcessReading:
    more: dict[str, Any] = {"shmem_bytes": size_mib * _MIB}
    return fakes.process(pid, **more)


@pytest.fixture
def machine(tmp_path: Path) -> _Machine:
    return _Machine(tmp_path)


def test_a_part_counts_each_page_once_and_is_read_again_after_a_notable_change(
    machine: _Machine,
) -> None:
    machine.share(7, 300)
    assert machine.read(p7=900) == {7: 300}
    assert machine.cpu_ns == 2 * machine.cost_ns
    assert machine.read(p7=903) == {7: 300}
    assert machine.cpu_ns == 2 * machine.cost_ns, "not notable"
    machine.share(7, 150)
    machine.share(8, 150)
    assert machine.read(p7=900, p8=300) == {7: 300}, "the budget is spent"
    assert machine.unread == {7: 0, 8: 300}
    assert machine.is_behind
    machine.now_ns = 10**12
    assert machine.read(p7=900, p8=300) == {7: 150, 8: 150}
    assert machine.unread == {7: 0, 8: 0}
    assert not machine.is_behind


def test_nothing_is_left_to_read_after_the_end_of_a_process_that_was_not_read(
    machine: _Machine,
) -> None:
    machine.share(7, 300)
    machine.read(p7=300)
    machine.now_ns = 10**12
    machine.cost_ns = 10**9
    machine.read()
    machine.read(p8=300)
    assert machine.is_behind, "the budget is spent"
    machine.read()
    assert not machine.is_behind


def test_a_heap_that_grows_in_the_first_seconds_is_read_each_second(machine: _Machine) -> None:
    """ZGC's, which it maps three times."""
    machine.cost_ns = 3 * 10**6
    for second, size_mib in enumerate((30, 70, 120, 180, 226)):
        machine.now_ns = second * 10**9
        machine.share(7, size_mib)
        assert machine.read(p7=3 * size_mib) == {7: size_mib}


def test_a_heap_that_has_grown_is_read_once_more_when_it_rests(machine: _Machine) -> None:
    machine.cost_ns = 4 * 10**6
    for size_mib in (100, 200, 290):
        machine.share(7, size_mib)
        assert machine.read(p7=3 * size_mib) == {7: size_mib}
    machine.share(7, 310)
    assert machine.read(p7=930) == {7: 290}, "it may still grow"
    assert machine.unread == {7: 60}
    assert machine.read(p7=930) == {7: 310}
    assert machine.unread == {7: 0}


def test_what_was_unmapped_may_be_what_counted(machine: _Machine) -> None:
    machine.share(7, 300)
    machine.read(p7=900)
    assert machine.read(p7=700) == {7: 100}
    assert machine.read(p7=100) == {7: 0}
    assert machine.read() == {7: 0}


def test_of_another_user_no_part_is_known(machine: _Machine) -> None:
    assert machine.read(p7=900) == {}
    assert machine.unread == {7: 900}
    assert machine.read(p8=0) == {}


def test_without_shared_memory_nothing_is_read(machine: _Machine) -> None:
    assert machine.read(p7=0, p8=0) == {}
    assert machine.cpu_ns == 0
