"""Which evidence makes the memory peak of a run."""

import pytest

from profiler.aggregation.memory_peak import (
    MemoryEvidence,
    MemoryPeak,
    choose_memory_peak,
    evidence_from,
    group_evidence,
)
from profiler.aggregation.process_tree_usage import GroupPeak

_MIB = 2**20
_SAMPLES = evidence_from("samples", 50 * _MIB)
_GROUP = evidence_from("group mark", 100 * _MIB, "exact")
_PROCESS = evidence_from("process mark", 60 * _MIB, "exact")


@pytest.mark.parametrize(
    ("evidence", "size_mib", "source"),
    [
        pytest.param((), None, None, id="nothing was seen"),
        pytest.param(_SAMPLES, 50, "sampled", id="samples alone"),
        pytest.param((*_SAMPLES, *_GROUP), 100, "kernel", id="the group's mark"),
        pytest.param((*_SAMPLES, *_PROCESS), 60, "kernel", id="the mark of the only process"),
        pytest.param(
            (*evidence_from("statistics", 40 * _MIB, "exact"), *_GROUP),
            40,
            "kernel",
            id="the statistics' mark after the end comes first",
        ),
        pytest.param(
            (
                *evidence_from("samples", 120 * _MIB),
                *evidence_from("process mark", 130 * _MIB),
                *_GROUP,
            ),
            100,
            "kernel",
            id="processes never overrule the group",
        ),
        pytest.param(
            (*evidence_from("statistics", 101 * _MIB), *_GROUP), 101, "kernel", id="statistics may"
        ),
        pytest.param(
            (*_PROCESS, *evidence_from("group mark", 70 * _MIB)),
            70,
            "sampled",
            id="a process's mark below the group's",
        ),
        pytest.param(
            (*_PROCESS, *evidence_from("shared memory", 120 * _MIB, "unsure")),
            60,
            "sampled",
            id="shared memory that the only process may have made",
        ),
        pytest.param(
            (*_PROCESS, *evidence_from("shared memory", 62 * _MIB, "unsure")),
            60,
            "kernel",
            id="shared memory that is not notable",
        ),
        pytest.param(
            (*_GROUP, *evidence_from("shared memory", 120 * _MIB, "unsure")),
            100,
            "kernel",
            id="a group counts shared memory",
        ),
        pytest.param(
            (*_PROCESS, *evidence_from("kernel memory", 160 * _MIB, "unsure")),
            60,
            "sampled",
            id="kernel memory that the only process may have caused",
        ),
        pytest.param(
            (*_GROUP, *evidence_from("kernel memory", 200 * _MIB, "unsure")),
            100,
            "sampled",
            id="kernel memory that version 1 does not count",
        ),
    ],
)
def test_the_first_exact_evidence_that_nothing_contradicts_is_the_peak(
    evidence: tuple[MemoryEvidence, ...], size_mib: int | None, source: str | None
) -> None:
    peak = choose_memory_peak(evidence)
    assert peak.source == source
    assert peak.size_bytes == (None if size_mib is None else size_mib * _MIB)
    assert choose_memory_peak(reversed(evidence)) == peak


def test_a_mark_with_page_cache_is_no_evidence() -> None:
    mark = GroupPeak(size_bytes=100 * _MIB)
    assert choose_memory_peak(group_evidence(mark)).source == "kernel"
    assert group_evidence(mark, transferred_bytes=50 * _MIB) == ()
    with_cache = GroupPeak(size_bytes=100 * _MIB, cache_bytes=50 * _MIB)
    assert group_evidence(with_cache) == ()
    assert choose_memory_peak(group_evidence(GroupPeak())) == MemoryPeak()
    of_some = GroupPeak(size_bytes=100 * _MIB, includes_all_processes=False)
    assert choose_memory_peak(group_evidence(of_some)).source == "sampled"
