"""The division of a tree's memory: no page counts twice, and the pages may be read again when
that is needed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from profiler.core.clock import CpuBudget
from profiler.readers.linux import proc
from profiler.readers.linux.memory_shares import MemoryShares
from profiler.readers.linux.process_tree import ProcessReading
from tests import fakes

_MIB, _PAGE_BYTES = 2**20, 4096


class _Tree:
    """A division whose PSS is given, if any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = self.cpu_ns = 0
        self.cost_ns = 5
        self.pss: Mapping[int, tuple[int, int, int]] = {}
        self.shared_by_two_mib = 0
        monkeypatch.setattr(proc, "read", self._read)
        self.shares = MemoryShares(
            CpuBudget(0.01, 30), _PAGE_BYTES, lambda: self.now_ns, lambda: self.cpu_ns
        )

    def _read(self, path: str) -> bytes | None:
        self.cpu_ns += self.cost_ns
        pid = int(path.split("/")[2])
        if pid not in self.pss:
            return None
        anonymous, own, private = (size * 1024 for size in self.pss[pid])
        rollup = {
            "Rss": anonymous + self.shared_by_two_mib * 1024,
            "Pss": own + self.shared_by_two_mib * 512,
            "Pss_Anon": own,
            "Private_Dirty": private,
            "Private_Clean": 0,
            "Pss_Shmem": self.shared_by_two_mib * 512,
        }
        return "".join(
            f"{name}: {size} kB\n" for name, size in {**rollup, "Anonymous": anonymous}.items()
        ).encode()

    def divide(self, processes: Iterable[ProcessReading]) -> list[int | None]:
        sizes = [process.share_bytes for process in self.shares.divide(tuple(processes))]
        return [None if size is None else size // _MIB for size in sizes]


def _process(
    pid: int, anonymous: int, files: int = 0, *, copied: int = 0, **more: Any
) -> ProcessReading:
    mark = more.pop("mark", anonymous + files)
    return fakes.process(
        pid,
        held=(anonymous + files) * _MIB,
        mark=mark * _MIB,
        anonymous_bytes=anonymous * _MIB,
        faults=copied * _MIB // _PAGE_BYTES,
        **more,
    )


def _fork(pid: int, anonymous: int, *, copied: int = 0) -> ProcessReading:
    return _process(pid, anonymous, copied=copied, is_forked=True, parent_pid=1)


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> _Tree:
    return _Tree(monkeypatch)


def test_a_fork_has_only_what_it_allocated_itself(tree: _Tree) -> None:
    assert tree.divide([_process(1, 300)]) == [300]
    assert tree.divide([_process(1, 300), _fork(2, 300)]) == [300, 0]
    assert tree.divide([_process(1, 300), _fork(2, 320, copied=20)]) == [300, 20]
    assert tree.shares.is_exact
    assert tree.cpu_ns == 0, "the pages need not be read"


def test_pages_that_may_have_been_copied_are_read_as_often_as_the_budget_allows(
    tree: _Tree,
) -> None:
    tree.divide([_process(1, 300)])
    forks = [_process(1, 300), _fork(2, 300), _fork(3, 300)]
    tree.divide(forks)
    tree.pss = {1: (300, 125, 0), 2: (300, 200, 150), 3: (300, 125, 0)}
    copying = [_process(1, 300), _fork(2, 300, copied=150), _fork(3, 300)]
    assert tree.divide(copying) == [125, 200, 125]
    assert tree.shares.is_exact
    more = [_process(1, 300), _fork(2, 300, copied=300), _fork(3, 300)]
    tree.pss = {1: (300, 75, 0), 2: (300, 300, 300), 3: (300, 225, 150)}
    assert tree.divide(more) == [125, 200, 125], "the budget is spent"
    assert not tree.shares.is_exact
    tree.now_ns += 1000
    done = [_process(1, 300), _fork(2, 300, copied=300), _fork(3, 300, copied=150)]
    assert tree.divide(done) == [125, 200, 125], (
        "the copies go on, and no second reading could be paid"
    )
    assert tree.shares.unsure_bytes == 300 * _MIB
    assert tree.divide(done) == [75, 300, 225]
    assert tree.shares.is_exact


def test_a_file_that_several_processes_map_counts_once(tree: _Tree) -> None:
    tree.divide([_process(1, 10)])
    workers = [_process(1, 10), *(_process(pid, 5, 300) for pid in (2, 3, 4))]
    assert sum(size or 0 for size in tree.divide(workers)) == 10 + 3 * 5 + 300
    assert tree.shares.unsure_bytes == 600 * _MIB, "they may be different files"
    assert not tree.shares.is_exact


def test_what_an_ended_process_shared_may_still_be_held(tree: _Tree) -> None:
    tree.divide([_process(1, 300)])
    tree.divide([_process(1, 300), _fork(2, 300), _fork(3, 300)])
    assert tree.divide([_fork(2, 300), _fork(3, 300)]) == [300, 0], (
        "all together hold at least what the largest holds"
    )
    assert tree.divide([_fork(3, 300)]) == [300]
    assert tree.shares.is_exact


def test_what_shares_nothing_makes_nothing_unsure(tree: _Tree) -> None:
    tree.divide([_process(1, 300)])
    tree.divide([_process(1, 300), _fork(2, 300)])
    assert tree.divide([_process(1, 300), _process(2, 40, parent_pid=1)]) == [300, 40], (
        "it has executed a program"
    )
    assert tree.divide([_process(1, 300), _process(3, 20)]) == [300, 20], (
        "the ended one shared nothing"
    )
    assert tree.shares.unsure_bytes == 0
    # A process that did not change remains the same object.
    processes = (_process(1, 10), _process(2, 20))
    assert all(
        map(
            lambda one, two: one is two,
            tree.shares.divide(processes),
            tree.shares.divide(processes),
        )
    )


def test_mapped_shared_memory_is_known_of_one_process(tree: _Tree) -> None:
    processes = [_process(1, 10, 100, shmem_bytes=90 * _MIB)]
    tree.divide(processes)
    assert tree.shares.mapped_shmem(processes) == (90 * _MIB, 90 * _MIB)
    assert tree.shares.mapped_shmem([_process(1, 10)]) == (0, 0)


def test_of_several_processes_their_parts_are_known_once_read(tree: _Tree) -> None:
    processes = [_process(pid, 10, 100, shmem_bytes=100 * _MIB) for pid in (1, 2)]
    tree.divide(processes)
    assert tree.shares.mapped_shmem(processes) == (100 * _MIB, 200 * _MIB)
    tree.now_ns += 10_000
    tree.shared_by_two_mib = 120
    tree.pss = dict.fromkeys((1, 2), (10, 10, 10))
    more = [_process(pid, 10, 120, shmem_bytes=120 * _MIB) for pid in (1, 2)]
    assert tree.divide(more) == [70, 70]
    assert tree.shares.mapped_shmem(more) == (120 * _MIB, 120 * _MIB)
