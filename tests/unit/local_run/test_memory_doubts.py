"""Why the command of a run may have needed more memory than the record says."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock

import pytest

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.memory_peak import MemoryPeak
from profiler.core.timestamps import NS_PER_SECOND
from profiler.local_run.command_usage import UnreadMemory
from profiler.local_run.memory_doubts import MemoryDoubts, memory_doubts
from profiler.record.record_model import PeakSource

_MIB = 2**20


def _memory_doubts(
    *,
    source: PeakSource = "sampled",
    pinned_mib: int = 0,
    swap_mib: int = 0,
    shared_bound_mib: int | None = None,
    tells_shared: bool = True,
    has_hidden: bool = False,
    counts_memory: bool = False,
    kernel_bound_mib: int = 0,
    unassigned_mib: int = 0,
    huge_mib: int = 0,
    merged_mib: int = 0,
    unmerged_mib: int = 0,
    locked_mib: int = 0,
    high_mib: int | None = None,
    readings_mib: Mapping[float, int] = MappingProxyType({}),
    at_end_seconds: float = 1.0,
    marked_mib: int = 0,
    shared_swapped_mib: int = 0,
) -> MemoryDoubts:
    """The doubts about a peak of 100 MiB."""
    command = Mock(
        memory_bound_bytes=0,
        swap_peak_bytes=swap_mib * _MIB,
        shared_bound_bytes=None if shared_bound_mib is None else shared_bound_mib * _MIB,
        shared_swapped_bytes=shared_swapped_mib * _MIB,
        tells_shared_memory=tells_shared,
        has_hidden_processes=has_hidden,
        kernel_bound_bytes=kernel_bound_mib * _MIB,
        average_bound_bytes=unassigned_mib * _MIB,
        huge_pages_bound_bytes=huge_mib * _MIB,
        merged_peak_bytes=merged_mib * _MIB,
        merged_bound_bytes=unmerged_mib * _MIB,
        locked_bound_bytes=locked_mib * _MIB,
        unread_memory=UnreadMemory(),
    )
    for at_seconds, size_mib in readings_mib.items():
        command.unread_memory.add_size(round(at_seconds * NS_PER_SECOND), size_mib * _MIB)
    usage = ContainerUsage(1)
    usage.memory_max_bytes = 100 * _MIB
    usage.memory_bound_bytes = (100 + pinned_mib) * _MIB
    usage.run.memory_bytes.add_value(50 * _MIB, 10 * NS_PER_SECOND)
    peak = MemoryPeak(size_bytes=100 * _MIB, source=source)
    return memory_doubts(
        peak,
        usage,
        command,
        finished_ns=round((max(readings_mib, default=0) + at_end_seconds) * NS_PER_SECOND),
        counts_hidden=counts_memory,
        marked_bytes=marked_mib * _MIB,
        throttling_limit_bytes=None if high_mib is None else high_mib * _MIB,
    )


def _doubts(**evidence: Any) -> tuple[str, ...]:
    return _memory_doubts(**evidence).sentences


def _bound_mb(**evidence: Any) -> float | None:
    return _memory_doubts(**evidence).bound_mb


def test_what_a_process_mapped_beyond_the_readings_is_a_doubt() -> None:
    (sentence,) = _doubts(marked_mib=250)
    assert sentence.startswith("The memory peak may have been 250 MB: a process mapped more than")
    assert _bound_mb(marked_mib=250) == 250
    assert _doubts(marked_mib=101) == ()
    assert _doubts(marked_mib=250, source="kernel") == ()


def test_without_evidence_there_is_no_doubt() -> None:
    assert _doubts() == ()
    assert _doubts(shared_bound_mib=104, swap_mib=4) == ()


@pytest.mark.parametrize("source", ["sampled", "kernel"])
def test_memory_in_swap_is_not_in_the_peak(source: PeakSource) -> None:
    (doubt,) = _doubts(source=source, swap_mib=300)
    assert doubt == (
        "Up to 300 MB of the processes' memory was in swap: the memory values do not include it."
    )


@pytest.mark.parametrize("source", ["sampled", "kernel"])
def test_huge_pages_that_no_process_mapped_may_be_the_commands(source: PeakSource) -> None:
    (doubt,) = _doubts(source=source, huge_mib=300)
    assert doubt == (
        "Up to 300 MB of huge pages were taken during the run that none of its processes mapped, "
        "perhaps by other programs: the memory values do not include them."
    )
    assert _bound_mb(source=source, huge_mib=300) == 400


@pytest.mark.parametrize("source", ["sampled", "kernel"])
def test_a_peak_at_the_limit_where_processes_wait_for_memory_is_a_doubt(source: PeakSource) -> None:
    doubts = _memory_doubts(source=source, high_mib=105)
    (doubt,) = doubts.sentences
    assert doubt == (
        "The memory peak may be too low: a control group holds the command down at 105 MB "
        "(memory.high), which the peak has nearly reached."
    )
    assert doubts.bound_mb is None, "how much it needs is unknown"
    assert _doubts(source=source, high_mib=100) != ()
    assert _doubts(source=source, high_mib=120) == ()


@pytest.mark.parametrize("source", ["sampled", "kernel"])
def test_locked_files_that_others_read_first_are_a_doubt(source: PeakSource) -> None:
    doubts = _memory_doubts(source=source, locked_mib=250)
    (doubt,) = doubts.sentences
    assert doubt.startswith("The memory peak may have been 250 MB: the processes locked pages")
    assert doubts.bound_mb == 250
    assert _doubts(source=source, locked_mib=101) == ()


@pytest.mark.parametrize("source", ["sampled", "kernel"])
def test_a_group_that_counts_merged_pages_once_needs_them_elsewhere(source: PeakSource) -> None:
    doubts = _memory_doubts(source=source, merged_mib=290, unmerged_mib=300)
    (doubt,) = doubts.sentences
    assert doubt.startswith("The memory peak may be 300 MB on a machine that does not merge")
    assert doubts.bound_mb == 300
    assert doubts.notes == ()
    # They were merged after the peak.
    assert _memory_doubts(source=source, merged_mib=90, unmerged_mib=101) == MemoryDoubts()


@pytest.mark.parametrize("source", ["sampled", "kernel"])
def test_merged_pages_that_count_are_said_and_hold_no_advice_back(source: PeakSource) -> None:
    doubts = _memory_doubts(source=source, merged_mib=90)
    assert doubts.sentences == ()
    assert doubts.bound_mb is None
    (note,) = doubts.notes
    assert note.startswith("The kernel merged up to 90 MB of the processes' memory with equal")
    assert _memory_doubts(source=source, merged_mib=4) == MemoryDoubts()


def test_shared_memory_of_an_unknown_program_may_be_the_commands() -> None:
    (doubt,) = _doubts(shared_bound_mib=300)
    assert doubt.startswith("The memory peak may have been 300 MB, and the average is a lower")


def test_memory_that_is_not_told_apart_may_be_the_commands() -> None:
    (sentence,) = _doubts(shared_bound_mib=300, shared_swapped_mib=150)
    assert sentence.endswith("and so did the machine's memory in swap, perhaps by them.")
    (sentence,) = _doubts(shared_bound_mib=300, tells_shared=False)
    assert sentence.startswith("The memory peak may have been 300 MB")
    assert "the memory of the sandbox grew" in sentence


def test_hidden_processes_are_a_doubt_unless_a_group_counts_them() -> None:
    (doubt,) = _doubts(has_hidden=True)
    assert "hidepid" in doubt
    assert _doubts(has_hidden=True, counts_memory=True) == ()


def test_what_open_files_may_keep_is_a_doubt() -> None:
    (doubt,) = _doubts(pinned_mib=75)
    assert doubt.startswith("The memory peak may have been 175 MB: open files")
    assert _doubts(pinned_mib=75, source="kernel") == ()


def test_kernel_memory_of_an_unknown_program_may_be_the_commands() -> None:
    (doubt,) = _doubts(kernel_bound_mib=448)
    assert doubt.startswith("The memory peak may have been 448 MB, and the average is a lower")
    assert "perhaps by other programs" in doubt


@pytest.mark.parametrize("source", ["sampled", "kernel"])
def test_shared_memory_of_an_unknown_program_may_be_missing_in_the_average_only(
    source: PeakSource,
) -> None:
    (doubt,) = _doubts(source=source, unassigned_mib=40)
    assert doubt.startswith("The average memory use may have been 90 MB: shared memory grew")
    assert _doubts(source=source, unassigned_mib=2) == ()
    (doubt,) = _doubts(source=source, unassigned_mib=70)
    assert "may have been 100 MB:" in doubt, "as much as the peak"
    assert len(_doubts(shared_bound_mib=300, unassigned_mib=40)) == 1, "said once"


def test_the_record_has_the_largest_bound_of_all_doubts() -> None:
    assert _bound_mb() is None
    assert _bound_mb(swap_mib=4, shared_bound_mib=104) is None
    assert _bound_mb(shared_bound_mib=300, kernel_bound_mib=448) == 448
    assert _bound_mb(source="kernel", shared_bound_mib=300) is None
    assert _bound_mb(source="kernel", swap_mib=300) == 400


def test_memory_that_could_not_be_read_for_long_makes_the_average_an_estimate() -> None:
    """As in gVisor, where a reading costs so much that there are few. The kernel's peak is right."""
    child_began = {1.0: 93, 4.5: 164, 5.0: 164}
    sentence = (
        "The average memory use may be up to 25 MB too high or too low: the memory could not be "
        "read for 3.5 s."
    )
    assert _doubts(readings_mib=child_began) == (sentence,)
    of_kernel = _memory_doubts(source="kernel", readings_mib=child_began)
    assert of_kernel == MemoryDoubts(unread=(sentence,))
    assert _doubts(readings_mib={1.0: 93, 2.0: 93, 3.0: 164, 4.0: 164}) == ()
    assert _doubts(readings_mib={1.0: 93, 4.5: 94}) == ()
    (doubt,) = _doubts(readings_mib={1.0: 93}, at_end_seconds=2.3)
    assert doubt.endswith("for 2.3 s.")
