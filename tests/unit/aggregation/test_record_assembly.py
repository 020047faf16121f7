from collections.abc import Mapping
from typing import Any

import pytest

from profiler.aggregation.memory_peak import EvidenceSource, Exactness, evidence_from
from profiler.aggregation.record_assembly import RecordDraft
from profiler.aggregation.record_evidence import (
    CpuEvidence,
    KillEvidence,
    ProcessRows,
    RunEvidence,
    choose_cpu_evidence,
    combined_evidence,
)
from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.run_end import RunEnd, run_end_of_exit
from profiler.readers.container_sample import ResourceLimits
from profiler.record.record_model import (
    NOT_SAMPLED,
    AverageAndMaximum,
    Container,
    MemoryKills,
    Metrics,
    Monitor,
    Record,
    Sampling,
)
from profiler.record.units import MIB
from tests.fakes import START_NS, seconds

KILLED = run_end_of_exit(137, START_NS, was_stopped=False)


def draft(end: RunEnd, *seen: RunEvidence, **options: Any) -> RecordDraft:
    run = Record(
        task_id="t",
        container=Container(name="batch"),
        status=end.status,
        exit_code=end.exit_code,
        sampling=Sampling(sources=("stats",)),
        monitor=Monitor(),
    )
    return RecordDraft(run, end, ResourceLimits(memory_bytes=100 * MIB), seen, **options)


@pytest.mark.parametrize(
    ("own", "expected_seconds", "expected_until"),
    [
        ({"cpu_seconds": 5.0, "until_ns": 9}, 6.0, 7),
        ({"cpu_seconds": 8.0, "until_ns": 9}, 8.0, 9),
        ({"cpu_seconds": 6.0, "until_ns": 9}, 6.0, 9),
        ({"cpu_seconds": 6.0}, 6.0, 7),
        ({"cpu_seconds": 1.0, "is_exact": True}, 1.0, None),
    ],
)
def test_an_exact_cpu_time_counts_or_the_largest_or_the_later_of_equal_ones(
    own: Mapping[str, Any], expected_seconds: float, expected_until: int | None
) -> None:
    statistics = CpuEvidence(cpu_seconds=6.0, until_ns=7)
    for evidence in ((statistics, CpuEvidence(**own)), (CpuEvidence(**own), statistics)):
        chosen = choose_cpu_evidence(evidence)
        assert chosen is not None
        assert chosen.cpu_seconds == expected_seconds
        assert chosen.until_ns == expected_until


def test_a_kill_that_the_runtime_reported_is_the_evidence_also_at_the_limit() -> None:
    statistics = RunEvidence(
        memory=evidence_from("statistics", 99 * MIB), kills=KillEvidence(own_count=1)
    )
    processes = RunEvidence(
        memory=evidence_from("samples", 99 * MIB), kills=KillEvidence(own_count=0)
    )
    record = draft(KILLED, statistics, processes).build_record()
    assert record.likely_out_of_memory is True
    assert record.out_of_memory_evidence == "kernel-counter"


def test_hits_of_the_limit_count_for_the_peak_of_all_sources() -> None:
    statistics = RunEvidence(memory=evidence_from("statistics", 50 * MIB), limit_hits=1)
    processes = RunEvidence(memory=evidence_from("samples", 80 * MIB))
    assert draft(KILLED, statistics).build_record().likely_out_of_memory is None
    assert draft(KILLED, statistics, processes).build_record().likely_out_of_memory is True


@pytest.mark.parametrize(
    ("source", "cache_mb", "marked_mb", "bound_mb"),
    [
        ("statistics", 10, None, 390),
        ("statistics", 170, None, None),  # no more than a runtime needs for a moment
        ("statistics", None, None, None),
        ("statistics", 170, 390, 390),  # page cache that came later
        ("group mark", 10, 390, None),  # the peak is exact
    ],
)
def test_a_mark_above_all_samples_and_their_page_cache_is_a_bound(
    source: EvidenceSource, cache_mb: float | None, marked_mb: float | None, bound_mb: float | None
) -> None:
    """As of a parent of 200 MB, of which each child is a copy for some milliseconds."""
    exactness: Exactness = "exact" if source == "group mark" else "at least"
    metrics = Metrics(
        memory_usage_peak_mb=400, memory_cache_mb=AverageAndMaximum(avg=cache_mb, max=cache_mb)
    )
    memory = evidence_from(source, 205 * MIB, exactness)
    seen = RunEvidence(metrics=metrics, memory=memory, memory_marked_mb=marked_mb)
    success = run_end_of_exit(0, START_NS, was_stopped=False)
    record = draft(success, seen).build_record()
    assert record.metrics.memory_used_bound_mb == bound_mb
    expected = ["The memory peak may have been 390 MB"] * (bound_mb is not None)
    assert [text.partition(":")[0] for text in record.monitor.warnings] == expected
    assert draft(success, seen, sees_all_exits=True).build_record().monitor.warnings == ()


def test_kills_on_the_machine_leave_the_verdict_open_unless_all_exits_are_seen() -> None:
    success = run_end_of_exit(0, START_NS, was_stopped=False)
    missed = RunEvidence(kills=KillEvidence(may_have_missed=True))
    assert draft(success, missed).build_record().likely_out_of_memory is None
    assert draft(success, missed, sees_all_exits=True).build_record().likely_out_of_memory is False


def test_the_record_has_only_kills_of_its_own_group() -> None:
    kills = KillEvidence(own_count=2, own=MemoryKills(count=2), shared_count=5)
    assert draft(KILLED, RunEvidence(kills=kills)).build_record().memory_kills == MemoryKills(
        count=2
    )


@pytest.mark.parametrize(
    ("exit_code", "held_mb", "marked_mb", "likely"),
    [
        (137, 50, 0, True),
        (1, 50, 0, True),  # of which a child was killed
        (137, 49, 0, None),
        (137, 49, 50, True),
        (0, 99, 0, None),
        (137, None, 0, True),  # nothing was read of it
    ],
)
def test_a_kill_in_a_shared_group_explains_a_failure_that_held_much_and_nothing_else(
    *, exit_code: int, held_mb: float | None, marked_mb: float, likely: bool | None
) -> None:
    end = run_end_of_exit(exit_code, START_NS, was_stopped=False)
    memory = () if held_mb is None else evidence_from("samples", held_mb * MIB)
    kills = KillEvidence(shared_count=1, marked_bytes=marked_mb * MIB)
    record = draft(end, RunEvidence(memory=memory, kills=kills)).build_record()
    assert record.likely_out_of_memory is likely
    assert record.out_of_memory_evidence == ("kernel-counter" if likely else None)


def test_of_what_several_sources_saw_all_memory_and_the_largest_lower_bounds_count() -> None:
    first = RunEvidence(
        max_pids=3,
        usage_peak_mb=10.0,
        huge_pages=AverageAndMaximum(avg=1, max=4),
        memory=evidence_from("statistics", MIB),
        kills=KillEvidence(own_count=0, excludes_kill_at_end=True),
    )
    second = RunEvidence(
        max_pids=2,
        usage_peak_mb=20.0,
        huge_pages=AverageAndMaximum(avg=2, max=3),
        memory=evidence_from("samples", 2 * MIB),
        kills=KillEvidence(own_count=1, own=MemoryKills(count=1), may_have_missed=True),
    )
    for sources in ((first, second), (second, first)):
        seen = combined_evidence(sources)
        assert seen.max_pids == 3
        assert seen.usage_peak_mb == 20.0
        assert seen.huge_pages == AverageAndMaximum(avg=1, max=4)
        assert set(seen.memory) == {*first.memory, *second.memory}
        assert seen.kills == KillEvidence(
            own_count=1,
            own=MemoryKills(count=1),
            excludes_kill_at_end=True,
            may_have_missed=True,
        )
    assert combined_evidence(()) == RunEvidence()


def test_a_partial_cpu_time_covers_nothing_of_the_run() -> None:
    cpu = CpuEvidence(cpu_seconds=1.0, until_ns=START_NS + seconds(1), is_partial=True)
    sampling = draft(KILLED, RunEvidence(cpu=cpu)).build_record().sampling
    assert sampling != NOT_SAMPLED
    assert sampling.cpu_covered_percent == 0.0


def test_a_source_is_named_whatever_the_order_of_the_collectors() -> None:
    gpus = RecordPart(source="nvml")
    processes = RecordPart(source="processes", evidence=RunEvidence())
    for parts in ((gpus, processes), (processes, gpus)):
        sampling = draft(KILLED).build_record(parts).sampling
        assert sampling != NOT_SAMPLED
        assert sampling.sources == ("stats", *(part.source for part in parts))


def test_a_defect_in_the_evidence_of_a_collector_costs_only_that_evidence() -> None:
    def broken(_: object) -> None:
        raise KeyError("secret")

    drafted = draft(KILLED, RunEvidence(memory=evidence_from("statistics", 50 * MIB)))
    rows = ProcessRows(rows=(), with_commands=broken)
    parts = (
        RecordPart(source="processes", evidence=RunEvidence(rows=rows)),
        RecordPart(source="nvml", warnings=("GPU.",)),
    )
    record = drafted.build_record(parts)
    assert record.metrics.max_memory_used_mb == 50
    assert record.sampling == Sampling(sources=("stats", "nvml"))
    assert record.monitor.warnings == (
        "GPU.",
        "Values are left out because of an error in the profiler (KeyError in RecordDraft).",
    )
