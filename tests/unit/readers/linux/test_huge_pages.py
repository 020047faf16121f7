"""The huge pages of a tree's processes."""

from pathlib import Path

import pytest

from profiler.readers.linux import proc
from profiler.readers.linux.huge_pages import HugePagesOfTree, huge_page_files_of_group, taken_bytes
from profiler.readers.linux.process_tree import ProcessReading

_MIB = 2**20


def _process(pid: int, mib: int) -> ProcessReading:
    return ProcessReading(
        pid=pid, started_ticks=1, own_cpu_ns=0, children_cpu_ns=0, huge_page_bytes=mib * _MIB
    )


class _PlayedPages:
    """Processes with private and shared huge pages in MiB, and the pages of the machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pools: Path) -> None:
        self.parts: dict[int, tuple[int, int]] = {}
        self.looks = 0
        self.now_ns = 0
        self._pools = pools
        self.take(10_000)
        self.kib = 6000 * 2048
        self.pages = HugePagesOfTree(lambda: self.now_ns, self._cpu_ns, str(pools))
        read = proc.read_or_none

        def read_played(path: str) -> bytes | None:
            if path == "/proc/meminfo":
                return b"Hugetlb: %d kB\n" % self.kib
            if not path.endswith("smaps_rollup"):
                return read(path)
            self.looks += 1
            private, shared = self.parts.get(int(path.split("/")[2]), (0, 0))
            return b"Shared_Hugetlb: %d kB\nPrivate_Hugetlb: %d kB\n" % (
                shared * 1024,
                private * 1024,
            )

        monkeypatch.setattr(proc, "read_or_none", read_played)

    def take(self, mib: int) -> None:
        """The machine's processes together have so much."""
        self._taken_mib = mib
        folder = self._pools / "hugepages-2048kB"
        folder.mkdir(exist_ok=True)
        (folder / "nr_hugepages").write_text("6000\n")
        (folder / "free_hugepages").write_text(f"{6000 - mib // 2}\n")

    def _cpu_ns(self) -> int:
        return self.looks * 10**9

    def held_mib(self, *, before_mib: int | None = None, **processes: int) -> int:
        """``before_mib``: what was taken before the processes were read, if it was not so much."""
        now_mib = self._taken_mib
        if before_mib is not None:
            self.take(before_mib)
        self.pages.note_pools_before()
        self.take(now_mib)
        readings = [_process(int(name[1:]), mib) for name, mib in processes.items()]
        return self.pages.held_bytes(readings) // _MIB


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _PlayedPages:
    return _PlayedPages(monkeypatch, tmp_path)


def test_one_process_has_its_own_pages_without_a_look(played: _PlayedPages) -> None:
    assert played.held_mib(p1=300, p2=0) == 300
    assert played.held_mib(p1=0) == 0
    assert played.looks == 0


def test_pages_that_processes_share_count_once(played: _PlayedPages) -> None:
    """A database's segment of 400 MiB, of which each process has touched a part."""
    played.parts = {1: (100, 300), 2: (0, 400)}
    assert played.held_mib(p1=400, p2=400) == 500
    assert played.looks == 2
    assert played.held_mib(p1=400, p2=400) == 500
    assert played.looks == 2, "nothing has changed"


def test_without_the_cpu_time_for_a_look_the_largest_counts(played: _PlayedPages) -> None:
    played.parts = {1: (400, 0), 2: (400, 0)}
    assert played.held_mib(p1=400, p2=400) == 800
    assert played.held_mib(p1=400, p2=500) == 500
    played.parts = {1: (400, 0), 2: (500, 0)}
    played.now_ns = 10**13
    assert played.held_mib(p1=400, p2=500) == 900
    assert played.pages.used_cpu_ns == 4 * 10**9


def test_pages_that_one_process_maps_twice_are_within_those_of_the_machine(
    played: _PlayedPages,
) -> None:
    played.take(300)
    assert played.held_mib(p1=600) == 300


def test_an_unreadable_pool_is_no_limit(played: _PlayedPages, tmp_path: Path) -> None:
    assert taken_bytes(str(tmp_path / "absent")) is None
    (tmp_path / "hugepages-2048kB" / "free_hugepages").write_text("")
    assert taken_bytes(str(tmp_path)) is None
    assert played.held_mib(p1=600) == 600


def test_a_groups_files_of_huge_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    meminfo = b"MemTotal: 1 kB\nHugetlb: 2048 kB\n"
    monkeypatch.setattr(proc, "read_or_none", lambda _: meminfo)
    assert huge_page_files_of_group(str(tmp_path / "absent")) == ()
    for name in ("hugetlb.2MB.current", "hugetlb.1GB.usage_in_bytes"):
        (tmp_path / name).touch()
    for name in ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.current", "memory.current"):
        (tmp_path / name).touch()
    found = sorted(huge_page_files_of_group(str(tmp_path)))
    assert found == ["hugetlb.1GB.usage_in_bytes", "hugetlb.2MB.current"]
    monkeypatch.setattr(proc, "read_or_none", lambda _: b"MemTotal: 1 kB\nHugetlb: 0 kB\n")
    assert huge_page_files_of_group(str(tmp_path)) == ()


def test_pages_that_no_process_of_the_tree_maps_may_be_its_own(played: _PlayedPages) -> None:
    played.take(40)
    played.pages.note_others_bytes()
    assert played.held_mib() == 0
    assert played.pages.unmapped_bytes == 0, "they were taken before"
    played.take(140)
    assert played.held_mib(p1=100) == 100
    assert played.pages.unmapped_bytes == 0
    assert played.held_mib() == 0
    assert played.pages.unmapped_bytes == 0, "the end of the process may not be over"
    assert played.held_mib() == 0
    assert played.pages.unmapped_bytes == 100 * _MIB
    played.take(40)
    assert played.held_mib() == 0
    assert played.pages.unmapped_bytes == 100 * _MIB, "they were there"


def test_pages_that_are_unmapped_before_the_first_reading_are_none_of_before(
    played: _PlayedPages,
) -> None:
    played.take(0)
    played.pages.note_others_bytes()
    played.take(100)
    assert played.held_mib() == 0
    assert played.held_mib() == 0
    assert played.pages.unmapped_bytes == 100 * _MIB


def test_short_processes_that_follow_each_other_leave_no_pages(played: _PlayedPages) -> None:
    """Whether one begins after the processes were read, or one ends before."""
    played.take(0)
    played.pages.note_others_bytes()
    for _ in range(3):
        played.take(100)
        assert played.held_mib(before_mib=0) == 0
        assert played.held_mib(p1=100) == 100
        played.take(0)
        assert played.held_mib(before_mib=100) == 0
        assert played.held_mib(p2=100, before_mib=100) == 100, "it had them when it was read"
    assert played.pages.unmapped_bytes == 0


def test_without_pools_nothing_of_them_is_read(played: _PlayedPages) -> None:
    played.kib = 0
    assert played.held_mib() == 0
    played.take(10_100)
    assert played.held_mib() == 0
    assert played.pages.unmapped_bytes == 0
