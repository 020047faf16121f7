from typing import Any

import pytest

from profiler.collectors.processes.process_usage import SourceComparison
from tests.fakes import START_NS, sample, seconds

MIB = 2**20


def compared(
    *, stats_cpu: float = 0.5, processes_cpu: float = 0.5, stats_mib: int = 200, processes_mib: int = 200
) -> SourceComparison:
    """A minute at constant rates, with stats every ten seconds that come late."""
    agreement = SourceComparison()
    for second in range(61):
        agreement.on_reading(sample(START_NS + seconds(second), second * processes_cpu, processes_mib * MIB))
        if second % 10 == 5:
            at = second - 2.3
            agreement.on_sample(sample(START_NS + seconds(at), at * stats_cpu, stats_mib * MIB))
    return agreement


@pytest.mark.parametrize(
    ("rates", "cpu_agrees", "memory_agrees", "said"),
    [
        ({}, True, True, ()),
        ({"processes_cpu": 0.49}, True, True, ()),
        ({"processes_mib": 170}, True, True, ()),
        ({"stats_mib": 2000, "processes_mib": 1850}, True, True, ()),
        ({"stats_cpu": 0.5, "processes_cpu": 0.2}, False, True, ("25.0 s against 10.0 s",)),  # processes never seen
        ({"stats_mib": 900, "processes_mib": 300}, True, False, ("900 MB against 300 MB", "page cache")),
        ({"stats_mib": 300, "processes_mib": 2400}, True, False, ("memory that the processes share",)),
    ],
)
def test_the_sources_agree_within_a_tolerance(
    rates: dict[str, Any], said: tuple[str, ...], *, cpu_agrees: bool, memory_agrees: bool
) -> None:
    agreement = compared(**rates)
    assert (agreement.cpu_agrees, agreement.memory_agrees) == (cpu_agrees, memory_agrees)
    assert agreement.counts_shared_memory_twice == ("memory that the processes share" in said)
    assert len(agreement.warnings()) == bool(said)
    assert all(text in agreement.warnings()[0] for text in said)


def test_a_sample_between_two_readings_is_held_against_both() -> None:
    """Memory that moves fast is no contradiction."""
    agreement = SourceComparison()
    for second in range(20):
        size_bytes = (100 if second % 2 else 900) * MIB
        agreement.on_reading(sample(START_NS + seconds(second), second, size_bytes))
        agreement.on_sample(sample(START_NS + seconds(second + 0.5), second + 0.5, 500 * MIB))
    assert agreement.memory_agrees
    assert agreement.cpu_agrees


def test_a_spike_in_one_source_alone_and_nothing_to_compare_are_no_contradiction() -> None:
    agreement = compared()
    agreement.on_sample(sample(START_NS + seconds(59.5), 29.75, 5000 * MIB))
    agreement.on_reading(sample(START_NS + seconds(61), 30.5, 200 * MIB))
    assert agreement.warnings() == ()
    agreement = SourceComparison()
    agreement.on_sample(sample(START_NS, 5.0, MIB))
    assert (agreement.cpu_agrees, agreement.memory_agrees, agreement.warnings()) == (True, True, ())
