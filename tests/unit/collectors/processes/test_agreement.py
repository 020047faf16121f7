from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.processes.process_usage import SourceComparison, TreeReading
from profiler.readers.container_sample import ContainerSample
from tests.fakes import START_NS, sample, seconds

MIB = 2**20


def compared(
    *, stats_cpu: float = 0.5, processes_cpu: float = 0.5, stats_mib: int = 200, processes_mib: int = 200
) -> SourceComparison:
    """A minute at constant rates, with stats every ten seconds that come late."""
    agreement = SourceComparison()
    for second in range(61):
        agreement.on_reading(
            TreeReading(START_NS + seconds(second), seconds(second * processes_cpu), processes_mib * MIB)
        )
        if second % 10 == 5:
            at = second - 2.3
            agreement.on_sample(sample(START_NS + seconds(at), at * stats_cpu, stats_mib * MIB))
    return agreement


def test_what_is_equal_agrees() -> None:
    agreement = compared()
    assert agreement.cpu_agrees
    assert agreement.memory_agrees
    assert agreement.counts_shared_memory_twice is False
    assert agreement.warnings() == ()


def test_small_differences_are_within_tolerance() -> None:
    assert compared(processes_cpu=0.49).cpu_agrees
    assert compared(processes_mib=170).memory_agrees
    assert compared(stats_mib=2000, processes_mib=1850).memory_agrees


def test_processes_that_were_never_seen_show_in_the_cpu_time() -> None:
    agreement = compared(stats_cpu=0.5, processes_cpu=0.2)
    assert not agreement.cpu_agrees
    (warning,) = agreement.warnings()
    assert "25.0 s against 10.0 s" in warning


def test_page_cache_in_use_shows_in_the_memory() -> None:
    agreement = compared(stats_mib=900, processes_mib=300)
    assert not agreement.memory_agrees
    assert not agreement.counts_shared_memory_twice
    (warning,) = agreement.warnings()
    assert "900 MB against 300 MB" in warning
    assert "page cache" in warning


def test_shared_memory_that_counts_for_each_process_is_recognized() -> None:
    agreement = compared(stats_mib=300, processes_mib=2400)
    assert agreement.counts_shared_memory_twice
    assert "memory that the processes share" in agreement.warnings()[0]


def test_a_sample_between_two_readings_is_held_against_both() -> None:
    """Memory that moves fast is no contradiction."""
    agreement = SourceComparison()
    for second in range(20):
        size_bytes = (100 if second % 2 else 900) * MIB
        agreement.on_reading(TreeReading(START_NS + seconds(second), seconds(second), size_bytes))
        agreement.on_sample(sample(START_NS + seconds(second + 0.5), second + 0.5, 500 * MIB))
    assert agreement.memory_agrees
    assert agreement.cpu_agrees


def test_a_spike_in_one_source_alone_is_no_contradiction() -> None:
    agreement = compared()
    agreement.on_sample(sample(START_NS + seconds(59.5), 29.75, 5000 * MIB))
    agreement.on_reading(TreeReading(START_NS + seconds(61), seconds(30.5), 200 * MIB))
    assert agreement.warnings() == ()


def test_without_anything_to_compare_nothing_speaks_against_it() -> None:
    agreement = SourceComparison()
    agreement.on_sample(sample(START_NS, 5.0, MIB))
    assert (agreement.cpu_agrees, agreement.memory_agrees, agreement.warnings()) == (True, True, ())


_reading = st.builds(
    TreeReading, st.integers(0, 2**61), st.none() | st.integers(0, 2**60), st.none() | st.integers(0, 2**50)
)
_sample = st.builds(
    ContainerSample,
    read_ns=st.integers(0, 2**61),
    cpu_ns=st.none() | st.integers(0, 2**60),
    memory_used_bytes=st.none() | st.integers(0, 2**50),
)


@given(st.lists(_reading | _sample, max_size=40))
def test_any_order_of_anything_can_be_compared(feed: list[TreeReading | ContainerSample]) -> None:
    agreement = SourceComparison()
    for taken in feed:
        if isinstance(taken, TreeReading):
            agreement.on_reading(taken)
        else:
            agreement.on_sample(taken)
    assert len(agreement.warnings()) == (not agreement.cpu_agrees) + (not agreement.memory_agrees)
