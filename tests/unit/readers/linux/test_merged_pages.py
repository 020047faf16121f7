"""The merged pages of processes whose files are played."""

import os

import pytest

from profiler.readers.linux import proc
from profiler.readers.linux.merged_pages import MergedPages
from profiler.readers.linux.process_tree import ProcessReading

_MIB = 2**20
_PAGES_PER_MIB = _MIB // os.sysconf("SC_PAGE_SIZE")
_RUN = "/sys/kernel/mm/ksm/run"


def _process(pid: int, mib: int = 300, *, fork_of: int | None = None) -> ProcessReading:
    return ProcessReading(
        pid=pid,
        started_ticks=0,
        own_cpu_ns=0,
        children_cpu_ns=0,
        rss_bytes=mib * _MIB,
        anonymous_bytes=mib * _MIB,
        parent_pid=fork_of or 1,
        is_forked=fork_of is not None,
    )


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files that exist; each look at one is noted under ``""``."""
    contents = {_RUN: b"1\n", "": b""}

    def read(path: str) -> bytes | None:
        contents[""] += path.encode() + b" "
        return contents.get(path)

    monkeypatch.setattr(proc, "read_or_none", read)
    return contents


def _merge(files: dict[str, bytes], pid: int, mib: int) -> None:
    files[f"/proc/{pid}/ksm_merging_pages"] = b"%d\n" % (mib * _PAGES_PER_MIB)


def test_each_mapping_of_a_merged_page_counts(files: dict[str, bytes]) -> None:
    _merge(files, 7, 200)
    _merge(files, 8, 50)
    assert MergedPages().mapped_bytes([_process(7), _process(8)]) == 250 * _MIB


def test_what_a_fork_has_of_its_parent_counts_once(files: dict[str, bytes]) -> None:
    _merge(files, 7, 200)
    _merge(files, 8, 200)
    _merge(files, 9, 230)
    family = [_process(7), _process(8, fork_of=7), _process(9, fork_of=7)]
    assert MergedPages().mapped_bytes(family) == 230 * _MIB
    # The parent has merged nothing: the pages are the child's own.
    _merge(files, 7, 0)
    assert MergedPages().mapped_bytes(family[:2]) == 200 * _MIB


def test_no_more_is_merged_than_a_process_has(files: dict[str, bytes]) -> None:
    _merge(files, 7, 200)
    assert MergedPages().mapped_bytes([_process(7, mib=20)]) == 20 * _MIB


@pytest.mark.parametrize("answer", [None, b"", b"-1", b"x"])
def test_an_older_kernel_or_another_users_process_shows_none(
    files: dict[str, bytes], answer: bytes | None
) -> None:
    if answer is not None:
        files["/proc/7/ksm_merging_pages"] = answer
    assert MergedPages().mapped_bytes([_process(7)]) == 0


@pytest.mark.parametrize("run", [b"0\n", b"2\n", None])
def test_a_machine_that_merges_nothing_is_asked_once(
    files: dict[str, bytes], run: bytes | None
) -> None:
    _merge(files, 7, 200)
    del files[_RUN]
    if run is not None:
        files[_RUN] = run
    pages = MergedPages()
    assert pages.mapped_bytes([_process(7)]) == 0
    assert pages.mapped_bytes([_process(7)]) == 0
    assert files[""] == _RUN.encode() + b" "


def test_small_processes_are_not_asked(files: dict[str, bytes]) -> None:
    _merge(files, 7, 3)
    assert MergedPages().mapped_bytes([_process(7, mib=3)]) == 0
    assert files[""] == _RUN.encode() + b" "
