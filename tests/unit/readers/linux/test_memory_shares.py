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
_FILES_MIB = 30  # what each process maps of files


class _Tree:
    """A division whose PSS is given, if any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = self.cpu_ns = 0
        self.cost_ns = 5
        self.pss: Mapping[int, tuple[int, int, int]] = {}
        self.shmem: Mapping[int, tuple[int, int]] = {}
        self.is_pss_divided = True
        self.locked = 0
        self.mappings = ""
        self.private_files = 0  # of its _FILES_MIB
        self.lazily_freed = 0
        self.freed_pages: int | None = 0
        self.limits: tuple[int, int] | None = None
        self.pids_read: list[int] = []
        monkeypatch.setattr(proc, "read_or_none", self._read)
        self.shares = MemoryShares(
            CpuBudget(0.01, 30),
            _PAGE_BYTES,
            lambda: self.now_ns,
            lambda: self.cpu_ns,
            lambda: self.freed_pages,
            freed_before=self.freed_pages,
            limits=lambda: self.limits,
        )

    def _read(self, path: str) -> bytes | None:
        self.cpu_ns += self.cost_ns
        if path.endswith("/smaps"):
            return self.mappings.encode()
        pid = int(path.split("/")[2])
        self.pids_read.append(pid)
        if pid not in self.pss:
            return None
        anonymous, own, private = self.pss[pid]
        mapped, shmem = self.shmem.get(pid, (0, 0))
        rollup = {
            "Rss": anonymous + mapped + _FILES_MIB,
            "Pss": own + shmem + _FILES_MIB,
            "Private_Dirty": private,
            "Private_Clean": self.private_files,
            "Anonymous": anonymous,
            "Locked": self.locked,
            "LazyFree": self.lazily_freed,
        }
        if self.is_pss_divided:
            rollup |= {"Pss_Anon": own, "Pss_File": _FILES_MIB, "Pss_Shmem": shmem}
        return "".join(f"{name}: {size * 1024} kB\n" for name, size in rollup.items()).encode()

    def divide(self, processes: Iterable[ProcessReading]) -> list[int | None]:
        sizes = [
            process.share_bytes for process in self.shares.readings_with_shares(tuple(processes))
        ]
        return [None if size is None else size // _MIB for size in sizes]


def _process(
    pid: int, anonymous: int, shmem: int = 0, *, copied: int = 0, **more: Any
) -> ProcessReading:
    rss = anonymous + shmem + _FILES_MIB
    fields: dict[str, Any] = {"shmem_bytes": shmem * _MIB, "mark": rss * _MIB, **more}
    return fakes.process(
        pid,
        held=rss * _MIB,
        anonymous_bytes=anonymous * _MIB,
        faults=1 + copied * _MIB // _PAGE_BYTES,
        **fields,
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
    assert tree.shares.open_shmem_bytes == 0
    assert tree.divide(done) == [75, 300, 225]
    assert tree.shares.is_exact


def test_private_pages_of_files_are_none_that_a_fork_has_copied(tree: _Tree) -> None:
    """What it inherited can still be copied, and is then read again."""
    tree.private_files = _FILES_MIB
    tree.divide([_process(1, 30)])
    tree.pss = {1: (30, 15, 0), 2: (30, 15, 0)}
    assert tree.divide([_process(1, 30), _fork(2, 30, copied=5)]) == [15, 15]
    tree.now_ns += 10_000
    tree.pss = {1: (30, 30, 30), 2: (30, 30, 30)}
    assert tree.divide([_process(1, 30), _fork(2, 30, copied=35)]) == [30, 30]


def test_a_fork_that_executes_a_program_between_two_files_is_not_counted_in_full(
    tree: _Tree,
) -> None:
    """The status shows the parent's pages, and smaps_rollup the program's own few."""
    tree.divide([_process(1, 300)])
    tree.pss = {1: (300, 300, 300), 2: (2, 2, 2)}
    assert tree.divide([_process(1, 300), _fork(2, 300, copied=100)]) == [300, 2]
    assert tree.divide([_process(1, 300), _process(2, 5, parent_pid=1)]) == [300, 5]


def test_pages_of_files_do_not_count(tree: _Tree) -> None:
    workers = [_process(pid, 5) for pid in range(1, 501)]
    assert sum(size or 0 for size in tree.divide(workers)) == 500 * 5
    assert tree.shares.is_exact
    assert tree.cpu_ns == 0, "the pages need not be read"


def test_what_a_process_has_locked_of_files_beyond_its_share_is_known(tree: _Tree) -> None:
    """A page that other programs map, too, is in its share only in part."""
    tree.pss = {1: (10, 10, 10), 2: (10, 10, 10)}
    tree.locked = 20  # with 10 of files by the PSS: another program has locked them, too
    locking = [_process(pid, 10, locked_bytes=30 * _MIB) for pid in (1, 2)]
    assert tree.divide(locking) == [20, 20]
    assert tree.shares.own_locked_bytes == 20 * _MIB
    # Each has locked 20 of files: if they are the same pages, no more.
    assert tree.shares.lacking_locked_bytes == 0
    assert tree.divide(locking[:1]) == [20]
    assert tree.shares.lacking_locked_bytes == 10 * _MIB
    assert tree.divide([_process(1, 10, locked_bytes=0)]) == [10]
    assert tree.shares.lacking_locked_bytes == 0


def test_locked_memory_that_may_be_anonymous_lacks_nothing(tree: _Tree) -> None:
    tree.pss = {1: (100, 100, 100)}
    tree.locked = 100
    tree.divide([_process(1, 100, locked_bytes=100 * _MIB)])
    assert tree.shares.own_locked_bytes == 0
    assert tree.shares.lacking_locked_bytes == 0


def _mapping(device: str, size: int, *, anonymous: int = 0, locked: int = 0, pss: int = 0) -> str:
    sizes = {"Size": size, "Rss": size, "Pss": pss or size, "Anonymous": anonymous}
    lines = [f"{name}: {mib * 1024} kB\n" for name, mib in {**sizes, "Locked": locked}.items()]
    return f"7f00-7f99 rw-p 00000000 {device} 12 /a file\n{''.join(lines)}VmFlags: rd wr\n"


@pytest.mark.parametrize(
    ("mappings", "shared", "counted"),
    [
        # The heap, and a file on a disk, of which one is locked, or both.
        (_mapping("00:00", 100, anonymous=100) + _mapping("fe:00", 30, locked=30), 0, 130),
        (_mapping("00:00", 100, anonymous=100, locked=30) + _mapping("fe:00", 30), 0, 100),
        # A private mapping of a file, of which the process has written half.
        (_mapping("fe:00", 30, anonymous=15, locked=30), 0, 115),
        # Shared memory has no disk, nor has a file of an overlay: they are not told apart.
        (_mapping("00:01", 30, locked=30), 40, 140),
        (_mapping("00:01", 40) + _mapping("fe:00", 30, locked=30), 40, 170),
        (_mapping("00:2a", 30, locked=30), 0, 130),
        ("", 0, 100),
        ("Locked: 30720 kB\n", 0, 130),
        ("x\nVmFlags:\nLocked: x\n", 0, 100),
    ],
)
def test_locked_files_beside_as_much_other_memory_are_told_by_the_mappings(
    tree: _Tree, mappings: str, shared: int, counted: int
) -> None:
    tree.pss = {1: (100, 100, 100)}
    tree.shmem = {1: (shared, shared)}
    tree.locked = 30
    tree.mappings = mappings
    locking = _process(1, 100, shared, locked_bytes=30 * _MIB)
    assert tree.divide([locking]) == [counted]
    assert tree.shares.own_locked_bytes == (counted - 100 - shared) * _MIB
    assert tree.shares.lacking_locked_bytes == 0


def test_locked_files_that_others_map_lack_their_part_beside_a_heap(tree: _Tree) -> None:
    tree.pss = {1: (100, 100, 100)}
    tree.locked = 15
    tree.mappings = _mapping("fe:00", 30, locked=15, pss=15)
    tree.divide([_process(1, 100, locked_bytes=30 * _MIB)])
    assert tree.shares.own_locked_bytes == 15 * _MIB
    assert tree.shares.lacking_locked_bytes == 15 * _MIB


def test_what_is_unlocked_may_have_been_of_files_until_it_is_read_again(tree: _Tree) -> None:
    tree.pss = {1: (100, 100, 100)}
    tree.locked = 130
    assert tree.divide([_process(1, 100, locked_bytes=130 * _MIB)]) == [130]
    tree.pss = {}  # not readable now
    assert tree.divide([_process(1, 120, locked_bytes=110 * _MIB)]) == [130]
    tree.pss = {1: (120, 120, 120)}
    tree.locked = 110
    tree.mappings = _mapping("fe:00", 30, locked=30)
    tree.now_ns += 10_000
    assert tree.divide([_process(1, 120, locked_bytes=110 * _MIB)]) == [150]


def test_pages_of_files_that_are_locked_count(tree: _Tree) -> None:
    tree.pss = {1: (10, 10, 10)}
    assert tree.divide([_process(1, 10)]) == [10]
    assert tree.pids_read == [], "nothing is locked"
    tree.locked = 35
    tree.now_ns += 10_000
    locking = _process(1, 10, locked_bytes=90 * _MIB)
    assert tree.divide([locking]) == [35], "its anonymous memory may be locked, too"
    assert tree.shares.file_bytes == 5 * _MIB
    tree.now_ns += 10_000
    assert tree.divide([_process(1, 20, locked_bytes=91 * _MIB)]) == [45]
    assert tree.pids_read == [1], "it has hardly locked more"
    assert tree.divide([_process(1, 20, locked_bytes=0)]) == [20]


def test_files_that_wait_for_a_reading_are_unknown_and_may_be_the_same_pages_again(
    tree: _Tree,
) -> None:
    def mapping(files_mib: int) -> ProcessReading:
        held = (10 + files_mib) * _MIB
        return fakes.process(
            1, held=held, anonymous_bytes=10 * _MIB, shmem_bytes=0, mark=held, faults=1
        )

    tree.pss = {1: (10, 10, 10)}
    tree.cost_ns = 10
    assert tree.divide([mapping(100)]) == [10]
    assert tree.shares.file_bytes == _FILES_MIB * _MIB, "each page counts once"
    tree.divide([mapping(105)])
    assert tree.shares.file_bytes == (_FILES_MIB + 5) * _MIB
    waiting = mapping(200)
    tree.divide([waiting])
    assert tree.shares.file_bytes is None, "the budget is spent"
    tree.now_ns += 10_000
    tree.divide([waiting])
    assert tree.shares.file_bytes == _FILES_MIB * _MIB, "it is read also if nothing has run since"
    del tree.pss[1]
    tree.now_ns += 10_000
    tree.divide([mapping(300)])
    assert tree.shares.file_bytes == (_FILES_MIB + 100) * _MIB, "what cannot be read counts"


def test_memory_that_a_process_maps_three_times_counts_once(tree: _Tree) -> None:
    heap = _process(1, 36, 900)
    assert tree.divide([heap]) == [36]
    assert tree.shares.unsure_bytes == tree.shares.open_shmem_bytes == 900 * _MIB
    tree.now_ns += 10_000
    tree.pss = {1: (36, 36, 36)}
    tree.shmem = {1: (900, 300)}
    assert tree.divide([heap]) == [336]
    assert tree.shares.is_exact
    assert tree.shares.shmem_bytes == 300 * _MIB
    tree.cpu_ns = 0
    assert tree.divide([_process(1, 40, 910)]) == [340]
    assert tree.cpu_ns == 0, "the rest is not notable"


def test_what_rests_is_read_once_more_and_then_no_more(tree: _Tree) -> None:
    """Of a segment of 150 MiB that was read while it was filled, 5 % were missing while it was
    held.
    """
    tree.now_ns += 10_000
    tree.pss = {1: (6, 6, 6)}
    tree.shmem = {1: (143, 143)}
    assert tree.divide([_process(1, 6, 143)]) == [149]
    held = _process(1, 6, 150)
    tree.shmem = {1: (150, 150)}
    tree.now_ns += 10_000
    assert tree.divide([held]) == [149], "it may go on"
    assert tree.divide([held]) == [156]
    tree.pids_read.clear()
    tree.divide([held])
    assert tree.pids_read == []
    tree.pss = {}
    more = _process(1, 6, 156)
    for _ in range(4):
        tree.now_ns += 10_000
        tree.divide([more])
    assert tree.pids_read == [1], "a reading that fails is not repeated while it rests"


def test_of_what_was_unmapped_only_the_rest_is_known(tree: _Tree) -> None:
    tree.now_ns += 10_000
    tree.pss = {1: (36, 36, 36)}
    tree.shmem = {1: (900, 300)}
    tree.divide([_process(1, 36, 900)])
    tree.pss = {}
    assert tree.divide([_process(1, 36, 700)]) == [136], "views of the same pages, or pages"
    assert tree.shares.unsure_bytes == 200 * _MIB
    assert tree.divide([_process(1, 36)]) == [36]
    assert tree.shares.unsure_bytes == 0
    assert tree.divide([_process(1, 36, 200)]) == [36]
    assert tree.shares.unsure_bytes == 200 * _MIB


def test_shared_memory_that_processes_may_share_is_certain_once_read(tree: _Tree) -> None:
    processes = [_process(pid, 10, 100) for pid in (1, 2)]
    assert tree.divide([*processes, _process(3, 10)]) == [10, 10, 10]
    assert tree.shares.unsure_bytes == 200 * _MIB
    tree.now_ns += 10_000
    tree.pss = dict.fromkeys((1, 2), (10, 10, 10))
    tree.shmem = dict.fromkeys((1, 2), (120, 60))
    tree.pids_read.clear()
    more = [_process(pid, 10, 120) for pid in (1, 2)]
    assert tree.divide([*more, _process(3, 10)]) == [70, 70, 10]
    assert tree.pids_read == [1, 2], "the third shares nothing"
    assert tree.shares.shmem_bytes == 120 * _MIB
    tree.pss = {}
    assert tree.divide([more[1]]) == [70]
    assert tree.shares.unsure_bytes == 60 * _MIB, "the other's part"


def test_before_linux_5_4_the_rest_of_the_share_may_be_of_files(tree: _Tree) -> None:
    tree.now_ns += 10_000
    tree.is_pss_divided = False
    tree.pss = {1: (36, 36, 36)}
    tree.shmem = {1: (900, 300)}
    assert tree.divide([_process(1, 36, 900)]) == [336]
    assert tree.shares.unsure_bytes == _FILES_MIB * _MIB


def test_before_linux_4_5_all_that_is_mapped_may_be_shared_memory(tree: _Tree) -> None:
    assert tree.divide([_process(1, 36, 900, shmem_bytes=None)]) == [36]
    assert tree.shares.unsure_bytes == (900 + _FILES_MIB) * _MIB


def test_a_fork_without_a_count_of_faults_may_have_copied_all(tree: _Tree) -> None:
    """As in gVisor, which shows neither faults nor marks."""
    nothing: dict[str, Any] = {"mark": None, "shmem_bytes": None}
    parent = fakes.process(1, held=73 * _MIB, anonymous_bytes=73 * _MIB, **nothing)
    fork = fakes.process(
        2, held=80 * _MIB, anonymous_bytes=80 * _MIB, is_forked=True, parent_pid=1, **nothing
    )
    assert tree.divide([parent, fork]) == [73, 7]
    assert tree.shares.unsure_bytes == 73 * _MIB
    child = fakes.process(2, held=53 * _MIB, anonymous_bytes=53 * _MIB, parent_pid=1, **nothing)
    assert tree.divide([parent, child]) == [73, 53]


def _in_gvisor(pid: int, held: int, **more: Any) -> ProcessReading:
    return fakes.process(
        pid, held=held * _MIB, anonymous_bytes=held * _MIB, mark=None, shmem_bytes=None, **more
    )


def test_pages_that_gvisors_processes_share_count_no_more_than_all_of_its_memory(
    tree: _Tree,
) -> None:
    """A pool whose workers all fill one array, of 200 MiB, which is anonymous memory there."""
    tree.limits = (225 * _MIB, 250 * _MIB)
    workers = [_in_gvisor(pid, 15, is_forked=True, parent_pid=1) for pid in (2, 3, 4)]
    assert tree.divide([_in_gvisor(1, 15), *workers]) == [15, 0, 0, 0]
    assert tree.shares.unsure_bytes == 3 * 15 * _MIB
    workers = [_in_gvisor(pid, 215, is_forked=True, parent_pid=1) for pid in (2, 3, 4)]
    assert tree.divide([_in_gvisor(1, 15), *workers]) == [5, 73, 73, 73]
    assert tree.shares.unsure_bytes == pytest.approx(25 * _MIB, abs=4)


def test_what_gvisors_other_programs_free_makes_the_memory_a_lower_bound(tree: _Tree) -> None:
    tree.limits = (100 * _MIB, 250 * _MIB)
    assert tree.divide([_in_gvisor(1, 150)]) == [100]
    assert tree.shares.unsure_bytes == 50 * _MIB
    assert not tree.shares.is_exact
    tree.limits = (150 * _MIB, 250 * _MIB)
    assert tree.divide([_in_gvisor(1, 150)]) == [150]
    assert tree.shares.is_exact


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
            tree.shares.readings_with_shares(processes),
            tree.shares.readings_with_shares(processes),
        )
    )


def test_what_was_freed_lazily_is_not_held_and_may_be_used_again(tree: _Tree) -> None:
    tree.pss = {1: (300, 300, 300)}
    assert tree.divide([_process(1, 300)]) == [300]
    tree.freed_pages = 250 * _MIB // _PAGE_BYTES
    tree.lazily_freed = 250
    (process,) = tree.shares.readings_with_shares((_process(1, 300, copied=1),))
    assert process.share_bytes == 50 * _MIB
    assert process.lazily_freed_bytes == 250 * _MIB
    assert tree.shares.unsure_bytes == 250 * _MIB
    tree.now_ns += 10_000
    tree.lazily_freed = 100  # it has written to the others
    assert tree.divide([_process(1, 300, copied=2)]) == [200]


@pytest.mark.parametrize("pages", [None, 4 * _MIB // _PAGE_BYTES])
def test_nothing_is_read_where_no_program_has_freed_much_lazily(
    tree: _Tree, pages: int | None
) -> None:
    tree.pss = {1: (300, 300, 300)}
    tree.divide([_process(1, 300)])
    tree.freed_pages = pages
    tree.divide([_process(1, 300, copied=1)])
    assert not tree.pids_read
