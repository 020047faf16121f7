from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.memory_peak import (
    MemoryPeak,
    choose_memory_peak,
    mark_bytes_perhaps_of_files,
)
from profiler.aggregation.memory_peak import evidence_from as memory_observed
from profiler.aggregation.process_tree_usage import GroupPeak, ProcessMarks, TreeBlocks, TreeCpu
from profiler.aggregation.record_parts import build_sampling
from profiler.aggregation.run_end import RunEnd, run_end_of_exit
from profiler.aggregation.slowdown import CpuDemand
from profiler.core.background_call import BackgroundCall, NoCall
from profiler.core.timestamps import format_ms
from profiler.local_run.command_supervisor import CommandExit, ReapedUsage
from profiler.local_run.local_notices import LocalNotices, RequestPeak
from profiler.local_run.local_record import (
    RunIdentity,
    RunObservation,
    TaskPlacement,
    apply_placement,
    draft_run_record,
    memory_evidence,
)
from profiler.local_run.prepared_run import read_caller_environment
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux import proc
from profiler.readers.linux.host import Host
from profiler.record.family_statistics import HighestPeak
from profiler.record.notice_model import NoticeLine
from profiler.record.record_model import (
    UNKNOWN_SIZE,
    Container,
    MemoryKills,
    Metrics,
    Monitor,
    OtherContainer,
    PeakSource,
    RaisedNotice,
    Record,
    Sampling,
    Visible,
)
from profiler.record.units import MIB
from tests.cases import each_case
from tests.fakes import START_NS, FakeClock, process, sample, seconds
from tests.values import present

_MIB = 2**20
_MS = 1_000_000


def test_time_handed_to_the_parent_is_counted_once() -> None:
    cpu = TreeCpu()
    assert (
        cpu.add_reading([process(1, own_cpu_ns=100 * _MS), process(2, own_cpu_ns=500 * _MS)], 0)
        == 600 * _MS
    )
    assert (
        cpu.add_reading([process(1, own_cpu_ns=100 * _MS, children_cpu_ns=520 * _MS)], 0)
        == 620 * _MS
    )


def _blocks(read_bytes: int, write_bytes: int = 0) -> proc.ProcessBlockBytes:
    return proc.ProcessBlockBytes(read_bytes=read_bytes, write_bytes=write_bytes)


def test_what_a_tree_has_read_and_written_includes_children_for_which_nobody_waited() -> None:
    """The sum is not known while one of the tree cannot be read."""
    blocks, none = TreeBlocks(), _blocks(0)
    tree = [process(1, blocks=_blocks(100, 1)), process(2, blocks=_blocks(20, 2))]
    assert blocks.add_reading(tree, none, none) == _blocks(120, 3)
    # The second has ended, and the first has waited for it; an orphan was waited for here.
    assert blocks.add_reading([process(1, blocks=_blocks(125, 4))], _blocks(5, 6), none) == _blocks(
        130, 10
    )
    blocks = TreeBlocks()
    blocks.add_reading(
        [process(1, blocks=_blocks(10)), process(2, blocks=_blocks(500, 50))], none, none
    )
    assert blocks.add_reading([process(1, blocks=_blocks(10))], none, none) == _blocks(510, 50)
    lost = _blocks(500, 50)
    assert (
        blocks.add_reading([process(1, blocks=_blocks(12)), process(3, blocks=None)], none, lost)
        is None
    )
    assert blocks.add_reading([process(1, blocks=_blocks(13))], none, lost) == _blocks(513, 50)


class _Peak(Struct, frozen=True, kw_only=True):
    """What is known of the memory of a command, in MiB."""

    sampled: int | None = None
    read: int | None = None  # as sampled
    mark: int
    written: int = 0
    group: GroupPeak = GroupPeak()
    alone: bool = True
    several_seen: bool = False
    floor: int | None = 20
    seen: int = 0  # the largest mark of a reading
    uncounted: int = 0  # what of the mark is of files or mapped again
    most: int = 0


def _group(size: int, cache_bytes: int = 0, foreign: int = 0, *, whole: bool = True) -> GroupPeak:
    return GroupPeak(
        size_bytes=size * _MIB,
        cache_bytes=cache_bytes,
        foreign_bytes=foreign * _MIB,
        includes_all_processes=whole,
    )


_SEVERAL = _Peak(sampled=50, mark=40, alone=False, several_seen=True)
_PEAKS = {
    "one process": (_Peak(sampled=800, mark=810, seen=810, most=805), 800, "kernel"),
    "one process, of which a mark shows little more than a reading": (
        _Peak(sampled=804, read=801, mark=810, seen=810, most=805),
        804,
        "kernel",
    ),
    "a mark between two readings, perhaps of a file that is gone": (
        _Peak(sampled=103, read=5, mark=111, seen=111, uncounted=8, most=103),
        103,
        "sampled",
    ),
    "the pages of files changed": (
        _Peak(sampled=800, mark=900, seen=900, most=820),
        800,
        "sampled",
    ),
    "a mark after the last reading, perhaps of the same pages several times": (
        _Peak(sampled=10, mark=800, seen=18, uncounted=8, most=11),
        10,
        "sampled",
    ),
    "a mark after the last reading in a group, less what the process maps of files": (
        _Peak(sampled=10, mark=800, seen=18, uncounted=8, most=11, group=_group(900, 90 * _MIB)),
        792,
        "sampled",
    ),
    "a mark after the last reading, of files that others had mapped before": (
        _Peak(sampled=8, mark=290, seen=240, uncounted=232, most=8),
        8,
        "sampled",
    ),
    "a mark after the last reading, of a file that the group has in memory": (
        _Peak(sampled=8, mark=240, seen=16, uncounted=8, group=_group(256, 240 * _MIB)),
        16,
        "sampled",
    ),
    "a heap that is mapped three times": (
        _Peak(sampled=336, mark=944, seen=944, uncounted=608, most=936),
        336,
        "sampled",
    ),
    "a heap that is mapped three times, in a group": (
        _Peak(sampled=336, mark=944, seen=944, uncounted=608, most=936, group=_group(339)),
        339,
        "kernel",
    ),
    "a heap that is mapped three times, of which no share was read": (
        _Peak(sampled=36, mark=944, seen=944, uncounted=908, most=936),
        36,
        "sampled",
    ),
    "a mark up to the profiler's own memory": (_Peak(sampled=10, mark=20), 10, "sampled"),
    "a mark within the kernel's rounding": (_Peak(sampled=10, mark=21), 10, "sampled"),
    "only the profiler's own memory": (_Peak(mark=20), None, None),
    "the profiler's own memory is unknown": (_Peak(mark=800, floor=None), None, None),
    "it has waited for a child": (
        _Peak(sampled=800, mark=800, seen=800, most=800, alone=False),
        800,
        "sampled",
    ),
    "two processes were seen": (
        _Peak(sampled=800, mark=800, seen=800, most=800, several_seen=True),
        800,
        "sampled",
    ),
    "a sample above the mark: the kernel's memory": (
        _Peak(sampled=900, mark=800, seen=800, most=800, group=_group(950, 10**8)),
        900,
        "sampled",
    ),
    "the group of several processes": (replace(_SEVERAL, group=_group(800)), 800, "kernel"),
    "the group, little below the profiler's own memory": (
        _Peak(mark=20, group=_group(17)),
        17,
        "kernel",
    ),
    "the group of a run without a sample": (_Peak(mark=20, group=_group(1)), 1, "kernel"),
    "a group of several, below a process's mark": (
        _Peak(mark=60, group=_group(3), alone=False),
        3,
        "kernel",
    ),
    "a group with page cache, below a process's mark": (
        _Peak(mark=60, group=_group(30, 2**20)),
        29,
        "sampled",
    ),
    "the larger mark of one process": (
        _Peak(sampled=58, mark=60, seen=60, most=58, group=_group(55)),
        55,
        "kernel",
    ),
    "a group with page cache": (replace(_SEVERAL, group=_group(800, 8 * _MIB)), 50, "sampled"),
    "a group that had the cache of a deleted file": (
        replace(_SEVERAL, group=_group(800), written=8),
        50,
        "sampled",
    ),
    "a group without a mark": (replace(_SEVERAL, group=GroupPeak()), 50, "sampled"),
    "a process outside of the group": (
        replace(_SEVERAL, group=_group(800, whole=False)),
        800,
        "sampled",
    ),
    "one process, and one that was outside": (
        _Peak(sampled=10, mark=60, group=_group(80, whole=False)),
        80,
        "sampled",
    ),
    "shared memory that another group made": (
        _Peak(sampled=20, mark=230, group=_group(60, 2**20, 200)),
        30,
        "sampled",
    ),
    "cache below the unit of the kernel": (
        _Peak(mark=1, group=_group(1, 200_000), floor=2**20),
        1,
        "kernel",
    ),
    "cache above the unit of the kernel": (
        _Peak(mark=20, group=_group(1, 300_000), floor=2**20),
        None,
        None,
    ),
}


@each_case(("known", "size", "source"), _PEAKS.values(), ids=_PEAKS)
def test_the_peak_is_the_kernels_only_where_a_mark_covers_the_whole_command(
    known: _Peak, size: int | None, source: PeakSource | None
) -> None:
    reaped = ReapedUsage(max_rss_bytes=known.mark * _MIB, blocks=_blocks(0, known.written * _MIB))
    ending = CommandExit(
        exit_code=0,
        is_stop_requested=False,
        was_only_process=known.alone,
        ignored_sigchld=False,
        reaped=reaped,
    )
    sampled, floor, found = (
        None if one is None else one * _MIB for one in (known.sampled, known.floor, size)
    )
    marks = ProcessMarks(
        seen_bytes=known.seen * _MIB,
        uncounted_bytes=known.uncounted * _MIB,
        most_bytes=known.most * _MIB,
    )
    evidence = memory_evidence(
        sampled,
        ending,
        known.group,
        read_bytes=sampled if known.read is None else known.read * _MIB,
        marks=marks,
        had_several_processes=known.several_seen,
        floor_bytes=floor,
    )
    assert choose_memory_peak(evidence) == MemoryPeak(size_bytes=found, source=source)


def _end_of_only_process(
    *, max_rss_mib: int, faulted_mib: int, written_mib: int = 0
) -> CommandExit:
    reaped = ReapedUsage(
        max_rss_bytes=max_rss_mib * _MIB,
        faulted_bytes=faulted_mib * _MIB,
        blocks=_blocks(0, written_mib * _MIB),
    )
    return CommandExit(
        exit_code=0,
        is_stop_requested=False,
        was_only_process=True,
        ignored_sigchld=False,
        reaped=reaped,
    )


@pytest.mark.parametrize(
    ("files", "faulted", "huge_pages", "size", "unsure"),
    [
        (1, 201, b"always [madvise] never", 200, 0),  # 150 MB of its own since the last reading
        (1, 60, b"always [madvise] never", 50, 200),  # files, or huge pages that it asked for
        (1, 60, b"[always] madvise never", 200, 0),
        (1, 60, None, 50, 200),
        (1, 0, b"always madvise [never]", 200, 0),  # the kernel counts none
        (160, 201, b"always [madvise] never", 50, 200),  # its own, or as many files again
        (160, 60, b"always [madvise] never", 50, 0),
        (160, 60, b"[always] madvise never", 50, 200),
    ],
)
def test_what_a_mark_has_without_page_faults_or_beside_as_many_files_may_be_files(
    *,
    files: int,
    faulted: int,
    huge_pages: bytes | None,
    size: int,
    unsure: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proc, "read_or_none", lambda _: huge_pages)
    ending = _end_of_only_process(max_rss_mib=200 + files, faulted_mib=faulted)
    marks = ProcessMarks(seen_bytes=51 * _MIB, uncounted_bytes=files * _MIB, most_bytes=50 * _MIB)
    for group, size_mib, unsure_mib in (
        (GroupPeak(size_bytes=700 * _MIB, cache_bytes=400 * _MIB), size, unsure),
        (GroupPeak(), 50, max(size, unsure) if size > 50 or unsure else 0),
    ):
        evidence = memory_evidence(
            50 * _MIB,
            ending,
            group,
            read_bytes=50 * _MIB,
            marks=marks,
            had_several_processes=False,
            floor_bytes=20 * _MIB,
        )
        assert choose_memory_peak(evidence) == MemoryPeak(
            size_bytes=size_mib * _MIB, source="sampled"
        )
        assert mark_bytes_perhaps_of_files(evidence) == unsure_mib * _MIB


@pytest.mark.parametrize(("written_mib", "size_mib", "unsure_mib"), [(9, 200, 0), (11, 50, 200)])
def test_in_a_group_a_mark_beside_notable_files_is_a_bound(
    written_mib: int, size_mib: int, unsure_mib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "read_or_none", lambda _: b"always [madvise] never")
    ending = _end_of_only_process(max_rss_mib=201, faulted_mib=201, written_mib=written_mib)
    evidence = memory_evidence(
        50 * _MIB,
        ending,
        GroupPeak(size_bytes=700 * _MIB, cache_bytes=400 * _MIB),
        read_bytes=50 * _MIB,
        marks=ProcessMarks(seen_bytes=51 * _MIB, uncounted_bytes=_MIB, most_bytes=50 * _MIB),
        had_several_processes=False,
        floor_bytes=20 * _MIB,
    )
    assert choose_memory_peak(evidence) == MemoryPeak(size_bytes=size_mib * _MIB, source="sampled")
    assert mark_bytes_perhaps_of_files(evidence) == unsure_mib * _MIB


def _observed(
    exit_code: int = 0, *, is_stop_requested: bool = False, **more: Any
) -> RunObservation:
    facts: dict[str, Any] = {"memory": (), "shared_oom_kills": 0, **more}
    finished_ns = 10**18 + 2_500 * _MS
    return RunObservation(
        started_ns=10**18,
        finished_ns=finished_ns,
        end=run_end_of_exit(exit_code, finished_ns, was_stopped=is_stop_requested),
        duration_ns=2_500_250_000,
        was_only_process=True,
        usage=ContainerUsage(10**9),
        demand=CpuDemand(),
        cpu_ns=1_234_567_000,
        **facts,
    )


def _record(observed: RunObservation) -> Record:
    identity = RunIdentity(task_id="1", family="etl", host=Host(vcpu=4.0, memory_bytes=1024 * _MIB))
    sizes = ResourceLimits(vcpu=4.0, memory_bytes=1024 * _MIB)
    sampling = build_sampling(
        observed.usage, ("processes",), interval_ns=20 * _MS, failures=0, missed=0
    )
    draft = draft_run_record(identity, observed, sizes)
    run = replace(draft.run, sampling=sampling, monitor=Monitor(version="1"))
    return replace(draft, run=run).build_record()


def test_a_run_without_samples_has_the_kernels_totals_only() -> None:
    record = _record(_observed())
    assert record.metrics == Metrics(
        duration_ms=2500.25, cpu_seconds=1.234567, vcpu_size=4, memory_size_mb=1024
    )
    assert record.sampling == Sampling(
        interval_ms=20, samples=0, duplicates=0, failures=0, missed_ticks=0, sources=("processes",)
    )
    assert record.status == "success"
    assert record.exit_code == 0
    assert record.launch_type == "LOCAL"
    assert record.visible == Visible(memory_mb=1024, cpus=4)
    assert record.task_size == UNKNOWN_SIZE
    assert not present(record.monitor).warnings
    mark = memory_observed("process mark", 60 * _MIB)
    (warning,) = present(_record(_observed(memory=mark)).monitor).warnings
    assert "largest process" in warning
    reaped = ReapedUsage(blocks=_blocks(1, 2), changed_bytes=2)
    metrics = _record(_observed(has_block_io=True, reaped=reaped)).metrics
    assert metrics.block_read_bytes == 1
    assert metrics.block_write_bytes == 2


@pytest.mark.parametrize(
    ("unread_mib", "cancelled_mib", "written_mib", "is_said"),
    [
        (0, 0, 300, False),  # the counters of all ended processes were readable
        (0, 300, 300, False),
        (300, 300, 0, False),
        (300, 100, 200, True),
        (300, 0, 300, True),
    ],
)
def test_what_rusage_counts_is_less_by_what_the_samples_saw_deleted(
    unread_mib: int, cancelled_mib: int, written_mib: int, *, is_said: bool
) -> None:
    reaped = ReapedUsage(blocks=_blocks(0, 300 * _MIB), unread_write_bytes=unread_mib * _MIB)
    cancelled_bytes = cancelled_mib * _MIB
    seen = _observed(has_block_io=True, reaped=reaped, cancelled_write_bytes=cancelled_bytes)
    record = _record(seen)
    assert record.metrics.block_write_bytes == written_mib * _MIB
    warnings = present(record.monitor).warnings
    assert any("deleted before they were stored" in one for one in warnings) is is_said


@pytest.mark.parametrize(("changed_mib", "is_said"), [(300, False), (299, True)])
def test_more_bytes_written_than_the_calls_changed_may_be_too_many(
    changed_mib: int, *, is_said: bool
) -> None:
    reaped = ReapedUsage(blocks=_blocks(0, 300 * _MIB), changed_bytes=changed_mib * _MIB)
    record = _record(_observed(has_block_io=True, reaped=reaped))
    assert record.metrics.block_write_bytes == 300 * _MIB
    warnings = present(record.monitor).warnings
    assert any("may be too high" in one for one in warnings) is is_said


@pytest.mark.parametrize(
    ("facts", "likely"),
    [
        ({}, None),
        ({"memory_kills": 0}, False),
        ({"memory_kills": 0, "memory": memory_observed("samples", 940 * _MIB)}, False),
        ({"memory": memory_observed("samples", 940 * _MIB)}, True),
        ({"memory": memory_observed("group mark", 10 * _MIB, "exact")}, False),
    ],
)
def test_only_the_kernel_excludes_a_memory_kill_of_a_killed_command(
    facts: dict[str, Any], *, likely: bool | None
) -> None:
    sampled = memory_observed("samples", 10 * _MIB)
    assert _record(_observed(137, **{"memory": sampled, **facts})).likely_out_of_memory is likely


@given(st.integers(0, 255), st.booleans(), st.none() | st.integers(0, 3), st.integers(0, 3))
def test_a_counted_kill_is_never_denied(
    exit_code: int,
    stopped: bool,  # noqa: FBT001
    own: int | None,
    shared: int,
) -> None:
    kills = {"memory_kills": own, "shared_oom_kills": 0 if own else shared}
    record = _record(_observed(exit_code, is_stop_requested=stopped, **kills))
    assert record.memory_kills == (MemoryKills(count=own) if own else None)
    if own or (shared and exit_code):
        assert record.likely_out_of_memory is True
        assert record.out_of_memory_evidence == "kernel-counter"
    elif shared:  # in a group that others share, a command that succeeded may not be the victim
        assert record.likely_out_of_memory is None


@each_case(
    ("used_mib", "marked_mib", "likely"),
    [(3, 0, None), (400, 400, None), (600, 0, True), (3, 600, True)],
)
@each_case("exit_code", [1, 137])
def test_a_kill_of_a_sibling_is_not_that_of_a_small_run(
    exit_code: int, used_mib: int, marked_mib: int, *, likely: bool | None
) -> None:
    """The group of 1024 MB has other programs: the kernel killed a larger one. What no sample saw
    of the run's processes, their marks have.
    """
    memory = memory_observed("samples", used_mib * _MIB)
    facts: dict[str, Any] = {"memory": memory, "marked_bytes": marked_mib * _MIB}
    record = _record(_observed(exit_code, shared_oom_kills=1, **facts))
    assert record.likely_out_of_memory is likely


def test_what_python_adds_to_the_environment_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {b"LC_CTYPE": b"C.UTF-8", b"HOME": b"/"}
    for initial, kept in (
        (b"HOME=/\0", {b"HOME": b"/"}),
        (b"HOME=/\0LC_CTYPE=C.UTF-8\0", own),
        (None, own),
    ):
        monkeypatch.setattr(proc, "read_or_none", lambda _path, initial=initial: initial)
        assert read_caller_environment(own) == kept


GIB = 2**30
OWN = ContainerMetadata(
    name="batch",
    docker_id="b",
    image="etl:7",
    log_driver="awslogs",
    log_options={
        "awslogs-group": "/ecs/jobs",
        "awslogs-stream": "ecs/batch/0123",
        "awslogs-region": "eu-central-1",
    },
)
TASK = TaskMetadata(
    arn="arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
    family="nightly",
    revision="7",
    launch_type="FARGATE",
    vcpu_limit=0.5,
    memory_limit_bytes=2 * GIB,
    pull_started_ns=START_NS - seconds(20),
    containers=(OWN,),
)
LOCAL = Record(
    task_id="local",
    family="etl.py",
    launch_type="LOCAL",
    container=Container(name="etl.py"),
    status="success",
    exit_code=0,
    metrics=Metrics(duration_ms=100_000, cpu_seconds=5.0),
)


def test_what_ecs_does_not_say_stays_as_it_was() -> None:
    placement = TaskPlacement(
        task=TaskMetadata(containers=()), container=ContainerMetadata(name="batch")
    )
    sizes = ResourceLimits(vcpu=2, memory_bytes=8 * GIB)
    identity = RunIdentity(task_id="local", family="etl.py", host=Host(), placement=placement)
    draft = draft_run_record(identity, _observed(), sizes)
    metrics = draft.build_record().metrics
    assert metrics.vcpu_size == 2
    assert metrics.memory_size_mb == 8192
    record = apply_placement(
        LOCAL, placement, is_named=False, started_ns=START_NS, finished_ns=START_NS + seconds(100)
    )
    assert record.family == "etl.py"
    assert record.launch_type == "LOCAL"
    assert record.metrics == Metrics(duration_ms=100_000, cpu_seconds=5.0)
    assert record.log_group is None
    assert record.task_size == UNKNOWN_SIZE
    placement = TaskPlacement(task=TASK, container=OWN)
    named = apply_placement(LOCAL, placement, is_named=True, started_ns=START_NS, finished_ns=None)
    assert named.family == "etl.py"
    assert named.task_id == "0123"
    assert named.log_region == "eu-central-1"


def test_a_run_of_a_killed_profiler_belongs_to_its_task() -> None:
    so_far = replace(
        _observed(),
        started_ns=START_NS,
        finished_ns=START_NS + seconds(5),
        duration_ns=None,
        was_only_process=False,
        end=RunEnd(status="unknown"),
    )
    placement = TaskPlacement(task=TASK, container=OWN)
    identity = RunIdentity(task_id="local", family="etl.py", host=Host(vcpu=4), placement=placement)
    record = draft_run_record(identity, so_far, ResourceLimits(vcpu=2)).build_record()
    identity_of_task = record.task_id, record.family, record.launch_type, record.status
    assert identity_of_task == ("0123", "nightly", "FARGATE", "unknown")
    assert record.metrics.vcpu_size == 0.5
    assert record.metrics.memory_size_mb == 2048
    assert record.metrics.init_duration_ms == 20_000
    assert record.metrics.duration_ms is None
    assert record.metrics.billed_duration_ms is None


RUN = Record(
    task_id="t",
    container=Container(name="etl"),
    finished_at="2026-01-01T00:00:00Z",
    containers=(OtherContainer(name="x"),),
)


def lines(
    *,
    cpu_seconds: Callable[[int], float] = lambda _: 0.5,
    network: Callable[[], int | None] = lambda: 7,
    blocks: int | None = 0,
    until: int = 200,
    size_mb: int = 10_000,
    peak: RequestPeak = NoCall,
    **limits: float,
) -> list[NoticeLine]:
    given: dict[str, Any] = {"stuck_minutes": 1, **limits}
    notices = LocalNotices(START_NS, seconds(0.5), network, **given, request_earlier_peak=peak)
    found: list[NoticeLine] = []
    for half in range(2 * until):
        one = sample(START_NS + seconds(half / 2), cpu_seconds(half // 2), (50 + half) * MIB)
        one = replace(one, block_read_bytes=blocks, block_write_bytes=blocks)
        notices.add_sample(one, size_mb * MIB, lambda: RUN, lambda _: None, found.append)
    assert notices.raised_notices == tuple(
        RaisedNotice(kind=line.notice.kind, at=line.time) for line in found
    )
    return found


def test_an_idle_command_is_stuck_and_overdue_once() -> None:
    stuck, overdue = lines(expected_seconds=90)
    assert stuck.notice.kind == "stuck"
    assert stuck.time == format_ms(START_NS + seconds(60))
    assert overdue.notice.kind == "overdue"
    assert overdue.time == format_ms(START_NS + seconds(90.5))
    record = overdue.record
    assert record.status == "running"
    assert record.finished_at is None
    assert record.containers == ()
    assert [one.kind for one in record.notices] == ["stuck", "overdue"]
    # Ticks of the CPU time are no activity: the kernel shows 0.4 % of a vCPU as 10 ms in every
    # third second.
    (stuck,) = lines(cpu_seconds=lambda second: second // 3 / 100)
    assert present(present(stuck.notice.evidence).vcpu_used) < 0.01


def read_peak(peak: HighestPeak | None) -> BackgroundCall[HighestPeak]:
    """The history has been read."""
    call = BackgroundCall(lambda: peak, FakeClock(), 10)
    call.result()
    return call


BUSY: dict[str, Any] = {"cpu_seconds": float, "stuck_minutes": 0, "size_mb": 400}


def test_a_run_above_everything_in_the_history_says_so_once() -> None:
    """The command takes a megabyte each half second, from 50 MB on: it has 280 MB after 115 s."""
    asked = []

    def request() -> BackgroundCall[HighestPeak]:
        asked.append(1)
        return read_peak(HighestPeak(peak_mb=300, runs=12))

    (line,) = lines(peak=request, **BUSY)
    assert line.notice.kind == "memory"
    assert line.notice.message == (
        "The run's memory is at 80 % of 400 MB, above everything that 12 earlier runs reached "
        "(75 %)."
    )
    evidence = present(line.notice.evidence)
    assert (evidence.used_mb, evidence.earlier_peak_mb, evidence.earlier_runs) == (320, 300, 12)
    assert asked == [1]
    assert lines(peak=request, **BUSY, until=130) == []
    assert lines(peak=request, **{**BUSY, "size_mb": 10_000}) == []
    assert asked == [1, 1], "the history is read from most of the memory in use on"


def test_where_the_history_knows_nothing_only_the_forecast_counts() -> None:
    never = read_peak(None)
    assert lines(peak=NoCall, **BUSY) == lines(peak=lambda: never, **BUSY) == []
    leak: dict[str, Any] = {**BUSY, "size_mb": 3400, "until": 1500}
    (forecast,) = lines(**leak)
    assert "it reaches the limit in" in forecast.notice.message
    reached = read_peak(HighestPeak(peak_mb=3300, runs=12))
    assert lines(peak=lambda: reached, **leak) == []


def test_unknown_bytes_are_no_idleness() -> None:
    """Unknown bytes are no idleness and traffic of the machine may be that of the command."""
    assert lines(network=lambda: None) == []
    assert lines(blocks=None) == []
    received = iter(range(0, 10**9, 20_000))
    assert lines(network=lambda: next(received)) == []


def test_a_defect_ends_the_notices_and_is_a_warning() -> None:
    asked = Mock(side_effect=KeyError)
    notices = LocalNotices(START_NS, seconds(1), asked, stuck_minutes=1)
    for second in range(20):
        one = sample(START_NS + seconds(second), 0, MIB)
        notices.add_sample(one, None, lambda: RUN, lambda _: None, lambda _: None)
    asked.assert_called_once_with()
    assert notices.warnings == (
        "The notifications failed (KeyError): report this as a defect of task-profiler.",
    )


@pytest.mark.parametrize(("stuck_minutes", "first_second"), [(30, 5), (1, 0), (0, 5)])
def test_a_short_run_is_not_looked_at_unless_notices_may_be_early(
    stuck_minutes: float, first_second: int
) -> None:
    asked = Mock(return_value=0)
    notices = LocalNotices(START_NS, seconds(1), asked, stuck_minutes=stuck_minutes)
    for second in range(first_second):
        one = sample(START_NS + seconds(second), 0, MIB)
        notices.add_sample(one, None, lambda: RUN, lambda _: None, lambda _: None)
    asked.assert_not_called()
    one = sample(START_NS + seconds(first_second), 0, MIB)
    notices.add_sample(one, None, lambda: RUN, lambda _: None, lambda _: None)
    asked.assert_called_once_with()
