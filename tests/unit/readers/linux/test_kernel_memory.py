"""What of a group's kernel memory is certainly reclaimable, by what the machine has."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.optional_math import known
from profiler.readers.linux import proc
from profiler.readers.linux.kernel_memory import (
    FreeMemory,
    KernelMemory,
    KernelMemoryEstimate,
    KernelMemoryGrowth,
    SocketQueues,
    parse_kernel_memory,
    parse_pinned_bytes,
    parse_socket_queue_bytes,
    unassigned_kernel_bytes,
)
from tests.cases import each_case
from tests.values import present

_MIB = 2**20
# Recorded on Linux 6.18, shortened.
_MEMINFO = (
    b"MemTotal:       24683656 kB\nMemFree:        21345400 kB\nBuffers:          104876 kB\n"
    b"Cached:          2546276 kB\nSwapCached:            0 kB\nAnonPages:         21880 kB\n"
    b"SReclaimable:     510880 kB\nSUnreclaim:        58920 kB\n"
)
_ZONEINFO = (
    b"Node 0, zone   Normal\n  pages free     5336350\n  pagesets\n    cpu: 0\n"
    b"              count:    7000\n              high:     9000\n    cpu: 1\n"
    b"              count:    3000\n              high:     9000\n"
)


def _machine(reclaimable_mib: int, fixed_mib: int) -> KernelMemory:
    return KernelMemory(reclaimable_bytes=reclaimable_mib * _MIB, fixed_bytes=fixed_mib * _MIB)


def _estimate(*machine: KernelMemory | None) -> KernelMemoryEstimate:
    readings: Iterator[KernelMemory | None] = iter(machine)
    return KernelMemoryEstimate(lambda: next(readings))


def _reclaimable_mib(estimate: KernelMemoryEstimate, kernel_mib: int, used_mib: int) -> float:
    return estimate.reclaimable_bytes(kernel_mib * _MIB, used_mib * _MIB) / _MIB


def test_the_free_pages_of_each_processor_are_no_kernel_memory() -> None:
    machine = present(parse_kernel_memory(_MEMINFO, _ZONEINFO, 4096))
    assert machine.reclaimable_bytes == 510880 * 1024
    of_others = 21345400 + 104876 + 2546276 + 21880 + 510880
    assert machine.fixed_bytes == (24683656 - of_others) * 1024 - 10_000 * 4096


def test_without_a_line_nothing_is_known() -> None:
    assert parse_kernel_memory(_MEMINFO.replace(b"AnonPages", b"Other"), _ZONEINFO, 4096) is None
    assert parse_kernel_memory(_MEMINFO, b"", 4096) is None


def test_what_a_walk_through_many_files_leaves_is_reclaimable() -> None:
    estimate = _estimate(_machine(50, 60), _machine(380, 62))
    assert _reclaimable_mib(estimate, 0, 8) == 0
    assert _reclaimable_mib(estimate, 330, 340) == 328


def test_pipes_and_sockets_are_not_reclaimable_while_another_program_walks_through_files() -> None:
    estimate = _estimate(_machine(50, 60), _machine(380, 360))
    assert _reclaimable_mib(estimate, 0, 8) == 0
    assert _reclaimable_mib(estimate, 300, 310) == 0


def test_what_the_group_held_before_the_first_reading_is_unknown() -> None:
    estimate = _estimate(_machine(50, 60), _machine(380, 60), _machine(380, 60))
    assert _reclaimable_mib(estimate, 330, 340) == 0
    assert _reclaimable_mib(estimate, 330, 340) == 0


def test_no_file_is_read_for_a_small_part_of_the_memory() -> None:
    estimate = _estimate(_machine(50, 60))  # a second reading would raise StopIteration
    assert _reclaimable_mib(estimate, 0, 8) == 0
    assert _reclaimable_mib(estimate, 3, 8) == 0
    assert _reclaimable_mib(estimate, 40, 1000) == 0


def test_a_moment_of_others_fixed_memory_does_not_take_the_estimate_back() -> None:
    estimate = _estimate(_machine(50, 60), _machine(380, 60), _machine(380, 260))
    assert _reclaimable_mib(estimate, 0, 8) == 0
    assert _reclaimable_mib(estimate, 330, 340) == 330
    assert _reclaimable_mib(estimate, 330, 340) == 330


def test_what_the_kernel_has_dropped_since_is_taken_back() -> None:
    estimate = _estimate(_machine(50, 60), _machine(380, 60), _machine(100, 340))
    assert _reclaimable_mib(estimate, 0, 8) == 0
    assert _reclaimable_mib(estimate, 330, 340) == 330
    assert _reclaimable_mib(estimate, 330, 340) == 50


_growths = st.lists(
    st.tuples(*[st.integers(0, 300)] * 4), min_size=1, max_size=8
)  # the group's and others' reclaimable and fixed memory


@given(_growths)
def test_fixed_memory_of_the_group_is_never_taken_as_reclaimable(
    steps: Sequence[tuple[int, int, int, int]],
) -> None:
    """As long as no memory is freed, whatever others allocate at the same time."""
    machine = [_machine(50, 60)]
    groups = [(0, 0)]
    for own_reclaimable, own_fixed, reclaimable, fixed in steps:
        last = machine[-1]
        machine.append(
            _machine(
                last.reclaimable_bytes // _MIB + own_reclaimable + reclaimable,
                last.fixed_bytes // _MIB + own_fixed + fixed,
            )
        )
        groups.append((groups[-1][0] + own_reclaimable, groups[-1][1] + own_fixed))
    current = [machine[0]]
    estimate = KernelMemoryEstimate(lambda: current[0])
    estimate.reclaimable_bytes(0, 0)
    for reading, (reclaimable, fixed) in zip(machine[1:], groups[1:], strict=True):
        current[0] = reading
        known_mib = _reclaimable_mib(estimate, reclaimable + fixed, reclaimable + fixed)
        assert known_mib <= reclaimable


def test_open_files_keep_their_inodes() -> None:
    before, after = _machine(50, 60), replace(_machine(380, 62), pinned_bytes=100 * _MIB)
    estimate = _estimate(before, after)
    assert _reclaimable_mib(estimate, 0, 8) == 0
    assert _reclaimable_mib(estimate, 330, 340) == 228


def test_files_that_were_open_before_are_not_the_groups() -> None:
    before = replace(_machine(50, 60), pinned_bytes=100 * _MIB)
    estimate = _estimate(before, replace(_machine(380, 62), pinned_bytes=100 * _MIB))
    assert _reclaimable_mib(estimate, 0, 8) == 0
    assert _reclaimable_mib(estimate, 330, 340) == 328


def test_files_opened_later_keep_what_was_reclaimable() -> None:
    walked = _machine(380, 62)
    estimate = _estimate(_machine(50, 60), walked, replace(walked, pinned_bytes=100 * _MIB))
    assert _reclaimable_mib(estimate, 0, 8) == 0
    assert _reclaimable_mib(estimate, 330, 340) == 328
    assert _reclaimable_mib(estimate, 330, 340) == 228


def test_the_number_of_open_files_is_the_first_of_three() -> None:
    assert parse_pinned_bytes(b"1000\t0\t9223372036854775807\n") == 3_072_000
    assert parse_pinned_bytes(b"") is None


@each_case(
    ("start_mib", "now_mib", "again_mib", "growth_mib"),
    [
        (60, 410, 420, 350),
        (60, 410, 380, 320),
        (60, 165, 61, 0),  # a program's end between two lines of /proc/meminfo
        (60, 410, None, 0),
        (60, 123, 410, 0),
        (60, 40, 410, 0),
        (60, None, 410, 0),
        (None, 410, 410, 0),
    ],
)
def test_growth_that_other_programs_usually_cause_is_nothing(
    start_mib: int | None, now_mib: int | None, again_mib: int | None, growth_mib: int
) -> None:
    readings = iter([known(_MIB.__mul__, mib) for mib in (start_mib, now_mib, again_mib)])
    assert KernelMemoryGrowth(lambda: next(readings)).growth_bytes() == growth_mib * _MIB


def test_free_memory_that_falls_by_a_quarter_more_is_told_again() -> None:
    readings = iter(mib * _MIB for mib in (1000, 950, 890, 880, 800, 790, 1000))
    memory = FreeMemory(lambda: next(readings))
    fallen = [
        memory.has_unexplained_fall(known_mib * _MIB) for known_mib in (0, 20, 20, 20, 100, 0)
    ]
    assert fallen == [False, True, False, True, False, False]


def test_what_processes_show_is_no_unassigned_kernel_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {
        "/proc/meminfo": _MEMINFO + b"PageTables: 2048 kB\nKernelStack: 1024 kB\n",
        "/proc/zoneinfo": _ZONEINFO,
        "/proc/sys/fs/file-nr": b"1\t0\t2\n",
    }
    monkeypatch.setattr(proc, "read_or_none", files.get)
    machine = present(parse_kernel_memory(_MEMINFO, _ZONEINFO, os.sysconf("SC_PAGE_SIZE")))
    assert unassigned_kernel_bytes() == machine.fixed_bytes - 3 * _MIB
    files.clear()
    assert unassigned_kernel_bytes() is None


@pytest.mark.parametrize(
    ("lines", "pages"),
    [
        (b"TCP: inuse 6 orphan 0 tw 12 alloc 6 mem 300\nUDP: inuse 0 mem 9\nRAW: inuse 0\n", 309),
        (b"TCP: inuse 6 orphan 0 tw 12 alloc 6 mem 300\nUDPLITE: inuse 0\n", 300),
        (b"UDP: inuse 900 mem 60000\nFRAG: inuse 0 memory 5\n", 60_000),
    ],
)
def test_the_queues_of_tcp_and_udp(lines: bytes, pages: int) -> None:
    sockstat = b"sockets: used 21\n" + lines
    assert parse_socket_queue_bytes(sockstat) == pages * os.sysconf("SC_PAGE_SIZE")
    assert parse_socket_queue_bytes(b"") is None


def test_the_queues_are_read_from_a_file_that_stays_open(tmp_path: Path) -> None:
    file = tmp_path / "sockstat"
    file.write_bytes(b"sockets: used 21\nTCP: inuse 6 mem 3\n")
    queues = SocketQueues(str(file))
    for pages in (3, 4):
        file.write_bytes(b"sockets: used 21\nTCP: inuse 6 mem %d\n" % pages)
        assert queues.size_bytes() == pages * os.sysconf("SC_PAGE_SIZE")
    assert SocketQueues(str(tmp_path / "absent")).size_bytes() is None


def test_the_pool_of_huge_pages_is_no_kernel_memory() -> None:
    machine = present(parse_kernel_memory(_MEMINFO, _ZONEINFO, 4096))
    with_pool = _MEMINFO + b"PageTables:         2048 kB\nHugetlb:            1024 kB\n"
    pooled = present(parse_kernel_memory(with_pool, _ZONEINFO, 4096))
    assert pooled.fixed_bytes == machine.fixed_bytes - _MIB
    assert pooled.process_bytes == 2 * _MIB
