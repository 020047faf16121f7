import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.usage_by_command import ProcessTotals
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.record_model import Process

MIB = 2**20


def process(
    pid: int,
    name: str,
    *,
    cpu: float = 0,
    mark: int | None = 10,
    held: int | None = None,
    arguments: tuple[str, ...] = (),
) -> ProcessReading:
    return ProcessReading(
        pid=pid,
        started_ticks=1,
        own_cpu_ns=round(cpu * 1e9),
        children_cpu_ns=0,
        name=name,
        arguments=arguments,
        rss_bytes=None if mark is None else (held or mark) * MIB,
        share_bytes=None if mark is None else (held or mark) * MIB,
        peak_bytes=None if mark is None else mark * MIB,
    )


def test_processes_of_one_name_are_one_entry() -> None:
    totals = ProcessTotals()
    totals.add([process(1, "sh", cpu=0.1), process(2, "worker", cpu=1, mark=300)])
    totals.add([process(1, "sh", cpu=0.1), process(3, "worker", cpu=2, mark=200)])
    assert totals.top() == (
        Process(name="worker", count=2, cpu_seconds=3.0, max_memory_used_mb=300, max_memory_used_processes=1),
        Process(name="sh", count=1, cpu_seconds=0.1, max_memory_used_mb=10, max_memory_used_processes=1),
    )


def test_the_memory_of_a_name_is_that_of_its_processes_at_the_highest_moment() -> None:
    totals = ProcessTotals()
    totals.add([process(1, "python3", held=40, mark=60)])
    totals.add([process(pid, "python3", held=40, mark=60) for pid in range(1, 10)])
    totals.add([process(pid, "python3", held=100, mark=100) for pid in (1, 2)])
    (shown,) = totals.top()
    assert (shown.count, shown.max_memory_used_mb, shown.max_memory_used_processes) == (9, 360, 9)


def test_a_spike_of_one_process_counts_with_what_the_others_held() -> None:
    totals = ProcessTotals()
    totals.add([process(1, "job", held=50), process(2, "job", held=50), process(3, "other", held=500, mark=500)])
    totals.add([process(1, "job", held=50, mark=300), process(2, "job", held=50), process(4, "job", held=1, mark=1)])
    shown = {one.name: one for one in totals.top()}
    assert (shown["job"].max_memory_used_mb, shown["job"].max_memory_used_processes) == (350, 2)
    assert (shown["other"].max_memory_used_mb, shown["other"].max_memory_used_processes) == (500, 1)


def test_peaks_of_processes_that_follow_each_other_are_not_added() -> None:
    totals = ProcessTotals()
    for pid in range(1, 9):
        totals.add([process(pid, "turn", held=200, mark=200)])
    (shown,) = totals.top()
    assert (shown.count, shown.max_memory_used_mb, shown.max_memory_used_processes) == (8, 200, 1)


def test_shared_memory_that_cannot_be_told_apart_is_not_summed() -> None:
    totals = ProcessTotals()
    totals.add([process(pid, "worker", held=200, mark=210) for pid in range(8)])
    (shown,) = totals.top(is_memory_shared=True)
    assert (shown.max_memory_used_mb, shown.max_memory_used_processes) == (210, 1)


def test_a_zombie_keeps_its_high_water_mark() -> None:
    totals = ProcessTotals()
    totals.add([process(1, "worker", cpu=1, mark=300)])
    totals.add([process(1, "worker", cpu=1, mark=None)])
    totals.add([])
    (shown,) = totals.top()
    assert (shown.count, shown.cpu_seconds, shown.max_memory_used_mb) == (1, 1.0, 300)


def test_a_process_that_executes_another_program_goes_by_its_last_name() -> None:
    totals = ProcessTotals()
    totals.add([process(1, "sh")])
    totals.add([process(1, "java", cpu=5)])
    assert [shown.name for shown in totals.top()] == ["java"]


def test_five_by_cpu_time_and_five_by_mark_are_shown() -> None:
    totals = ProcessTotals()
    totals.add([process(pid, f"p{pid}", cpu=pid, mark=100 - pid) for pid in range(20)])
    assert [shown.name for shown in totals.top()] == [
        "p19", "p18", "p17", "p16", "p15", "p4", "p3", "p2", "p1", "p0",
    ]  # fmt: skip


def test_shown_arguments_distinguish_processes_of_one_name() -> None:
    totals = ProcessTotals(lambda shown: " ".join(shown.arguments) or None)
    totals.add([process(1, "python3", arguments=("a.py",)), process(2, "python3", cpu=1, arguments=("b.py",))])
    assert [shown.arguments for shown in totals.top()] == ["b.py", "a.py"]


def test_any_number_of_names_takes_the_same_memory() -> None:
    totals = ProcessTotals()
    tracemalloc.start()
    sizes = []
    try:
        for number in range(6000):
            totals.add([process(number, f"job-{number}", cpu=number % 7, mark=number)])
            if number in (1999, 5999):
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 100_000
    assert max(shown.max_memory_used_mb or 0 for shown in totals.top()) == 5999


_readings = st.lists(
    st.builds(process, st.integers(1, 5), st.sampled_from("ab"), cpu=st.floats(0, 1e6), mark=st.integers(0, 1000)),
    max_size=5,
    unique_by=lambda reading: reading.pid,
)


@given(st.lists(_readings, max_size=10))
def test_no_mark_is_lost_and_everybody_is_counted(steps: list[list[ProcessReading]]) -> None:
    totals = ProcessTotals()
    for processes in steps:
        totals.add(processes)
    shown = totals.top()
    assert len(shown) <= 2
    assert all((one.count or 0) > 0 and (one.cpu_seconds or 0) >= 0 for one in shown)
    last = max((reading.peak_bytes or 0 for reading in steps[-1]), default=0) if steps else 0
    assert max((one.max_memory_used_mb or 0 for one in shown), default=0) * MIB >= last
