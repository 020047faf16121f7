"""What a run does on a GPU, by hand-made readings: each test is one rule."""

from typing import Any

import pytest

from profiler.aggregation.statistics import UseWindow
from profiler.collectors.nvidia.gpu_aggregates import GpuPeriod, GpuRun, TimedSample
from profiler.collectors.nvidia.gpu_record_entry import GpuInRun
from profiler.collectors.nvidia.recent_gpu_samples import GpuTimeline
from profiler.collectors.nvidia.run_use import GpuReading, ProcessOnGpu, RunUse
from profiler.collectors.nvidia.visible_gpus import GpuFacts, GpuLimits, GpuSample, parse_limits
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import NOT_MEASURED, Gpu
from tests.fakes import seconds
from tests.values import present

FACTS = GpuFacts(uuid="GPU-a", index=0)
OWN = ProcessOnGpu("own", 1 << 30)
LINK = 10e9


def use(*lists: tuple[ProcessOnGpu, ...]) -> RunUse:
    """The use of a GPU with these processes, a second each; their memory is all that is in use."""
    made = RunUse(0, lambda identity: identity == "own")
    for number, processes in enumerate(lists):
        reading = GpuReading(
            start_ns=seconds(number),
            end_ns=seconds(number + 1),
            processes=processes,
            used_bytes=sum(process.memory_bytes or 0 for process in processes),
        )
        made.note_reading(reading)
        made.add_reading(reading)
    return made


def sample(at: float, **values: Any) -> TimedSample:
    """A sample of a tick; its span of GPM is as long."""
    made = GpuSample(facts=FACTS, **{"gpm_ns": seconds(1), **values})
    return TimedSample(sample=made, start_ns=seconds(at - 1), end_ns=seconds(at))


def entry(made: RunUse, length: float, period: GpuPeriod | None = None) -> Gpu:
    """The record's entry of a run of so many seconds."""
    return (
        GpuInRun(
            facts=FACTS,
            period=period or GpuPeriod(),
            use=made,
            source="driver-samples",
            memory_size_bytes=80 << 30,
            mps=GpuLimits(),
            duration_ms=length * 1000,
            finished_ns=seconds(length),
            lost_ns=None,
        )
        .record_entry()
        .gpu
    )


@pytest.mark.parametrize(
    ("before_percent", "length", "used_seconds"),
    [(100, 0.2, 0.3), (0, 0.2, 0), (100, 1, 1.5), (0, 1, 0.5)],
    ids=["works", "only leaves", "works for a second", "works in its last second"],
)
def test_the_last_process_leaves_in_the_middle_of_two_lists(
    before_percent: float, length: float, used_seconds: float
) -> None:
    """Its last window counts if the one before it had work, or if it is long: the driver clears its
    memory.
    """
    made = use((OWN,), (OWN,), ())
    begin = 2.5 - length / 2
    made.add_window(UseWindow(seconds(begin - length), seconds(begin), before_percent))
    made.add_window(UseWindow(seconds(begin), seconds(begin + length), 100))
    assert made.own_work.used_ns == used_seconds * NS_PER_SECOND


def test_a_program_that_only_draws_shares_no_gpu() -> None:
    display = ProcessOnGpu("Xorg", 1 << 30, is_only_graphics=True)
    made = use((OWN, display))
    assert not made.is_shared
    assert not made.is_seen_shared
    other = use((OWN, ProcessOnGpu("other", 1 << 30)))
    assert other.is_shared
    assert other.is_seen_shared


@pytest.mark.parametrize("held", [None, 1 << 30])
def test_what_a_display_holds_is_not_the_runs(held: int | None) -> None:
    """Where the driver does not say it, nothing that no process holds is known to be the run's."""
    made = RunUse(0, lambda identity: identity == "own")
    processes = (OWN, ProcessOnGpu("Xorg", held, is_only_graphics=True))
    used_bytes = (2 << 30) + (9 << 20)
    reading = GpuReading(start_ns=0, end_ns=seconds(1), processes=processes, used_bytes=used_bytes)
    made.add_reading(reading)
    assert made.own_memory.maximum == (1 << 30) + (0 if held is None else 9 << 20)


def test_the_largest_process_is_held_against_the_limit_of_mps() -> None:
    """Each of two holds 1 GiB of the 2 GiB that each may hold."""
    both = (OWN, OWN)
    made = RunUse(0, lambda identity: identity == "own")
    for number in range(1, 40):
        held = (number << 30) // 40
        made.add_reading(
            GpuReading(
                start_ns=seconds(number / 10 - 0.1),
                end_ns=seconds(number / 10),
                processes=tuple(ProcessOnGpu(process.identity, held) for process in both),
            )
        )
    assert made.growth.memory_at_process_limit(2 << 30) is None
    assert made.growth.memory_at_process_limit(1 << 30) is not None


@pytest.mark.parametrize(
    ("covered", "idle_seconds", "bound"),
    [(10, 5.0, None), (9.6, 5.0, None), (9.4, 4.7, 94.0), (5.1, 2.55, 51.0), (4.9, None, 49.0)],
)
def test_what_is_not_known_of_a_run_is_as_the_rest_or_not_said(
    covered: float, idle_seconds: float | None, bound: float | None
) -> None:
    """Half of 10 s was idle as far as its work is known: up to a twentieth is taken as the rest,
    and of less than half nothing is said.
    """
    made = use(*([(OWN,)] * 10))
    for number in range(round(covered * 10)):
        made.add_window(UseWindow(seconds(number / 10), seconds((number + 1) / 10), 50))
    gpu = entry(made, 10)
    assert gpu.idle_seconds == (None if idle_seconds is None else pytest.approx(idle_seconds))
    assert gpu.utilization_percent.avg == (None if idle_seconds is None else pytest.approx(50))
    assert gpu.utilization_covered_percent == bound


def test_memory_that_was_read_for_less_than_half_of_the_run_is_unknown() -> None:
    assert entry(use((), ()), 3.9).memory_used_mb.max == 0
    assert entry(use((), ()), 4.1).memory_used_mb == NOT_MEASURED


def test_a_list_says_nothing_of_a_gap_before_it() -> None:
    """A reading counts for the time since the one before, for 2 s at most."""
    made = RunUse(0, lambda identity: identity == "own")
    made.add_reading(GpuReading(start_ns=0, end_ns=seconds(1), processes=()))
    made.add_reading(GpuReading(start_ns=seconds(1), end_ns=seconds(11), processes=()))
    assert made.listed_ns == made.watched_ns == seconds(3)


def test_the_variable_that_mps_always_has_is_enough() -> None:
    assert parse_limits({"CUDA_MPS_PIPE_DIRECTORY": "/run/mps-ecs"}).is_mps
    assert not parse_limits({}).is_mps


# GPM


@pytest.mark.parametrize(("length", "is_known"), [(3.9, True), (4.1, False)])
def test_gpms_values_are_of_a_run_of_which_its_spans_cover_half(
    length: float, *, is_known: bool
) -> None:
    period = GpuPeriod()
    for at in (1, 2):
        period.add_sample(sample(at, sm_active_percent=50.0))
    active = entry(use((OWN,), (OWN,)), length, period).sm_active_percent
    assert (active.avg == 50) == is_known
    assert (active == NOT_MEASURED) != is_known


@pytest.mark.parametrize(("memory_bytes", "avg"), [(0, 30), (1 << 30, 60)], ids=["unused", "used"])
def test_before_gpms_first_sample_an_unused_gpu_did_nothing(memory_bytes: int, avg: float) -> None:
    run = GpuRun(seconds(1))
    unused = {"is_gpm_begun": True, "gpm_ns": None, "processes": ()}
    run.add_old_sample(sample(2, memory_used_bytes=memory_bytes, **unused))
    run.add_old_sample(sample(3, sm_active_percent=60.0))
    assert run.period_until(None, ()).record_values()["sm_active_percent"].avg == avg


def test_what_gpm_saw_in_the_span_of_the_end_was_before_the_end() -> None:
    """20 % of a second are 40 % of the half that the run had of it."""
    run = GpuRun(seconds(1))
    last = sample(2, sm_active_percent=20.0, amounts={"pcie_rx_bytes": 7})
    values = run.period_until(seconds(1.5), (last,)).record_values()
    assert values["sm_active_percent"].avg == 40
    assert values["pcie_rx_bytes"] == 7


@pytest.mark.parametrize(
    ("moved", "sm_percent", "copied"),
    [(5.0e9, 4.9, 1), (4.9e9, 4.9, None), (5.0e9, 5.0, None)],
    ids=["copies", "less than half of the link", "kernels run"],
)
def test_copies_fill_half_of_the_link_while_hardly_a_kernel_runs(
    moved: float, sm_percent: float, copied: float | None
) -> None:
    period = GpuPeriod(LINK)
    period.add_sample(
        sample(1, sm_active_percent=sm_percent, amounts={"pcie_tx_bytes": int(moved)})
    )
    values = period.record_values()
    assert values.get("copy_seconds") == copied
    assert present(values["sm_active_percent"]).avg == sm_percent


def test_windows_are_a_runs_also_where_neither_processes_nor_memory_are_read() -> None:
    """A GPU that shares the machine's memory says none; some drivers list no processes."""
    timeline = GpuTimeline(seconds(15))
    timeline.begin_run("run", 0, lambda: None)
    for second in range(100):
        window = UseWindow(seconds(second), seconds(second + 1), 50.0)
        timeline.add_windows((window,), "driver-samples")
    assert timeline.runs["run"].device_work.covered_ns >= seconds(80)
    whole = present(timeline.use_until("run", seconds(100)))
    assert whole.device_work.covered_ns == seconds(100)


def test_the_work_of_a_run_is_an_estimate_if_a_part_of_it_is() -> None:
    """A driver that had no samples for half a minute has them then."""
    timeline = GpuTimeline(seconds(15))
    timeline.begin_run("before", 0, lambda: None)
    for second in range(40):
        window = UseWindow(seconds(second), seconds(second + 1), 50)
        timeline.add_windows((window,), "once-a-second")
    timeline.begin_run("after", seconds(40), lambda: None)
    timeline.add_windows((UseWindow(seconds(40), seconds(41), 50),), "driver-samples")
    sources = [
        timeline.source_of(timeline.use_until(run, seconds(41))) for run in ("before", "after")
    ]
    assert sources == ["once-a-second", "driver-samples"]
    assert timeline.known_ns(0, seconds(41)) == seconds(1)


@pytest.mark.parametrize(("ends", "covered"), [(3.0, 3), (5.0, 2)], ids=["just seen", "long ago"])
def test_after_the_last_list_nobody_knows_when_a_process_left(ends: float, covered: float) -> None:
    """The lists and the memory are not answered any more; the work is."""
    made = use((OWN,), (OWN,))
    made.end_presence(seconds(ends))
    for second in range(int(ends)):
        made.add_window(UseWindow(seconds(second), seconds(second + 1), 100))
    assert made.own_work.covered_ns == covered * NS_PER_SECOND
    assert made.device_work.covered_ns == seconds(ends)
