"""What is said of a GPU, for the runs of the laboratory as the prototype would record them."""

import pytest
from msgspec.structs import replace

from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown
from profiler.record.gpu_sentences import (
    gpu_idle_sentence,
    sharing_sentence,
)
from profiler.record.record_model import Container, Distribution, Gpu, GpuIdle, Metrics, Record
from profiler.record.xids import xid_sentence
from tests.cases import each_case
from tests.gpu_runs import advice_on
from tests.values import present


def run_of(
    seconds: float,
    first: float,
    last: float,
    used: float,
    *,
    sm: float = 90.0,
    memory_mb: float = 1103,
    between: TimeBreakdown = NO_BREAKDOWN,
    **gpu: object,
) -> Record:
    idle_between = last - first - used
    entry = Gpu(
        uuid="GPU-a",
        index=0,
        utilization_percent=Distribution(avg=100 * used / seconds, max=100.0),
        utilization_source="driver-samples",
        shared=False,
        sm_active_percent=Distribution(avg=sm * used / seconds, max=sm),
        idle_seconds=seconds - used,
        idle_percent=100 * (seconds - used) / seconds,
        first_used_seconds=first,
        last_used_seconds=last,
        idle_before_seconds=first,
        idle_between_seconds=idle_between,
        idle_after_seconds=seconds - last,
        memory_used_mb=Distribution(avg=memory_mb, max=memory_mb),
        memory_size_mb=81_559,
    )
    return Record(
        task_id="1",
        container=Container(name="batch"),
        status="success",
        exit_code=0,
        metrics=Metrics(duration_ms=1000 * seconds, vcpu_used=Distribution(p95=1.0)),
        gpus=(replace(entry, **gpu),),
        gpu_idle=GpuIdle(
            percent=100 * (seconds - used) / seconds,
            before_percent=100 * first / seconds,
            between_percent=100 * idle_between / seconds,
            after_percent=100 * (seconds - last) / seconds,
            gpu_hours=(seconds - used) / 3600,
            waiting_for=between,
            waiting_before=TimeBreakdown(on_cpu_percent=98.0, covered_percent=100),
        ),
    )


CPU = TimeBreakdown(on_cpu_percent=95.0, covered_percent=100)
DISK = TimeBreakdown(disk_percent=80.0, on_cpu_percent=15.0, covered_percent=100)


def test_a_run_whose_only_idle_time_is_its_start_gets_no_advice_on_workers() -> None:
    """bf16 of the laboratory: 6 s of imports, then 8 s of matrices."""
    record = run_of(14, 6, 14, 8, between=CPU)
    (advice,) = advice_on(record)
    assert advice == (
        "Its work on the GPU began after 6.0 s (43 % of the run); until then it used one CPU (98 %)."
    )
    assert gpu_idle_sentence(record) == (
        "the GPU was idle 43 % of the run: 43 % before its work began (after 6.0 s)"
    )


def run_of_two(spans: list[tuple[float, float, float]], seconds: float = 120.0) -> Record:
    """A run whose GPUs each worked from ``first`` to ``last`` and were busy for ``used`` of it."""
    runs = [run_of(seconds, first, last, used, between=CPU) for first, last, used in spans]
    idles = [run.gpu_idle or GpuIdle(percent=0, gpu_hours=0) for run in runs]
    parts = {
        name: sum(getattr(idle, name) for idle in idles) / len(idles)
        for name in ("percent", "before_percent", "between_percent", "after_percent")
    }
    gpus = tuple(replace(run.gpus[0], uuid=f"GPU-{place}") for place, run in enumerate(runs))
    return replace(runs[0], gpus=gpus, gpu_idle=replace(idles[0], **parts))


@pytest.mark.parametrize(
    ("second", "places"),
    [
        ((61.5, 120.0, 58.5), "26 % before their work began (after 1.5 s to 1m 02s)"),
        ((1.5, 120.0, 118.5), "1 % before their work began (after 1.5 s)"),
        ((1.5, 60.0, 58.5), "1 % before their work began (after 1.5 s), 25 % after their work"),
    ],
)
def test_of_several_gpus_the_idle_time_is_that_around_the_work_of_each(
    second: tuple[float, float, float], places: str
) -> None:
    """A mean beside the time of the earliest one says of no GPU what it says."""
    sentence = gpu_idle_sentence(run_of_two([(1.5, 120.0, 118.5), second]))
    assert sentence is not None
    assert sentence.startswith("the 2 GPUs were idle ")
    assert sentence.partition(": ")[2] == places


def test_gpus_that_work_one_after_the_other_wait_for_nothing_between() -> None:
    """Each worked without a pause for its half of the run."""
    one_each = [(0.0, 60.0, 58.0), (60.0, 120.0, 58.0)]
    assert not any("waited" in text for text in advice_on(run_of_two(one_each)))
    starved = [(0.0, 60.0, 6.0), (60.0, 120.0, 6.0)]
    (advice,) = advice_on(run_of_two(starved))
    assert advice.startswith("The GPUs waited for 90 % of the time between their first and last")


@pytest.mark.parametrize(
    ("times", "said"), [(CPU, "one CPU: use more workers."), (DISK, "the disk: use more loader")]
)
def test_a_long_run_that_waits_between_its_work_gets_advice(
    times: TimeBreakdown, said: str
) -> None:
    (advice,) = advice_on(run_of(120, 10, 118, 9, between=times))
    assert advice.startswith(
        "The GPU waited for 92 % of the time between its first and last work, for"
    )
    assert said in advice


def test_a_short_run_gets_none() -> None:
    """Its workers had no time to be ahead."""
    (startup,) = advice_on(run_of(20.5, 11, 20, 0.8, between=CPU))
    assert startup.startswith("Its work on the GPU began after 11.0 s")


def test_a_starved_gpu_is_not_called_too_large() -> None:
    """Its kernels fill it, when they run: 3 % of the run, all multiprocessors meanwhile."""
    advice = advice_on(run_of(120, 10, 118, 9, sm=95, between=CPU))
    assert not any("larger than needed" in text for text in advice)


def test_a_loop_on_one_multiprocessor_is_called_too_large_a_gpu() -> None:
    (advice,) = advice_on(run_of(60, 1, 59, 56, sm=0.7))
    assert advice == (
        "The GPU is larger than needed (memory peak 1 %, SM active 0.7 % while it worked): use a "
        "smaller GPU or a larger batch size."
    )


def copying(seconds: float, copied: float, *, used: float = 7.0) -> Record:
    """A run that did hardly anything but copies on the GPU, from its beginning to its end."""
    return run_of(
        seconds,
        0,
        seconds,
        used,
        sm=0.0,
        copy_seconds=copied,
        copy_bytes_per_second=59_000_000_000,
        link_bytes_per_second=63_000_000_000,
    )


STARTUP, DATA, COPIES, SIZE = "began after", "waited for", "copied over PCIe", "larger than needed"
# Each limit of a sentence, from both sides: what is said just within it, and not just outside.
LIMITS = {
    "a start of 2 s": (STARTUP, run_of(19, 2.0, 19, 17), run_of(18, 1.9, 18, 16.1)),
    "a start of 10 %": (STARTUP, run_of(30, 3.0, 30, 27), run_of(30, 2.9, 30, 27.1)),
    "a work of 30 s": (
        DATA,
        run_of(60, 15, 45, 3, between=CPU),
        run_of(60, 15, 44.9, 3, between=CPU),
    ),
    "a wait of 10 s": (
        DATA,
        run_of(60, 0, 40, 30, between=CPU),
        run_of(60, 0, 40, 30.1, between=CPU),
    ),
    "a wait of 10 %": (
        DATA,
        run_of(300, 0, 300, 270, between=CPU),
        run_of(300, 0, 300, 270.5, between=CPU),
    ),
    "copies of 2 s": (COPIES, copying(10, 2.0), copying(10, 1.9)),
    "copies of 10 %": (COPIES, copying(40, 4.0), copying(40, 3.9)),
    "a size after 10 s": (SIZE, run_of(20, 5, 15, 9, sm=5), run_of(20, 5, 14.9, 9, sm=5)),
    "a size of one that waits for less than half": (
        SIZE,
        run_of(60, 0, 60, 30.1, sm=5, between=CPU),
        run_of(60, 0, 60, 30, sm=5, between=CPU),
    ),
    "a size without copies": (SIZE, copying(40, 3.9, used=30), copying(40, 4.0, used=30)),
    "a size with less than a quarter of the SMs": (
        SIZE,
        run_of(60, 0, 60, 60, sm=24.9),
        run_of(60, 0, 60, 60, sm=25),
    ),
    "a size with less than a quarter of the memory": (
        SIZE,
        run_of(60, 0, 60, 60, sm=5, memory_mb=20_300),
        run_of(60, 0, 60, 60, sm=5, memory_mb=20_400),
    ),
}


@each_case(("words", "within", "outside"), LIMITS.values(), ids=LIMITS)
def test_a_sentence_ends_at_its_limits(words: str, within: Record, outside: Record) -> None:
    assert [text for text in advice_on(within) if words in text]
    assert not [text for text in advice_on(outside) if words in text]


def test_a_start_of_which_no_activity_is_half_is_imports_and_loading() -> None:
    record = run_of(30, 15, 30, 15)
    for percent, said in ((51, "until then it used one CPU (51 %)"), (49, "imports and loading")):
        before = TimeBreakdown(on_cpu_percent=percent, disk_percent=30.0, covered_percent=100)
        idle = replace(present(record.gpu_idle), waiting_before=before)
        (advice,) = advice_on(replace(record, gpu_idle=idle))
        assert said in advice


@pytest.mark.parametrize(
    ("first", "last", "used", "places"),
    [
        (0.9, 99.1, 97.3, ""),
        (1.0, 99.1, 97.2, ": 1 % before its work began (after 1.0 s)"),
        (0.9, 99.1, 97.1, ": 1 % between"),
        (0.9, 99.0, 97.2, ": 1 % after its work"),
    ],
)
def test_parts_of_the_idle_time_below_one_percent_are_left_out(
    first: float, last: float, used: float, places: str
) -> None:
    assert gpu_idle_sentence(run_of(100, first, last, used)) == (
        f"the GPU was idle 3 % of the run{places}"
    )


def test_copies_are_named_and_no_smaller_gpu() -> None:
    record = run_of(
        11.2,
        4.1,
        11.1,
        7,
        sm=0.0,
        copy_seconds=7.0,
        copy_bytes_per_second=59_000_000_000,
        link_bytes_per_second=63_000_000_000,
    )
    advice, startup = advice_on(record)
    assert startup.startswith("Its work on the GPU began after 4.1 s")
    assert advice == (
        "It copied over PCIe at 59 of 63 GB/s for 63 % of the run, while no kernel ran: keep the "
        "data on the GPU, or copy while kernels run."
    )


def test_nothing_is_advised_on_a_failed_run_or_a_shared_gpu() -> None:
    record = run_of(120, 10, 118, 9, between=CPU)
    assert advice_on(replace(record, status="failure", exit_code=1)) == []
    shared = replace(record, gpus=(replace(record.gpus[0], shared=True),))
    assert advice_on(shared) == []
    assert sharing_sentence(shared.gpus[0]) == (
        "another program used this GPU, too: utilization, power and energy are of all programs on it"
    )


def test_what_mps_allows_is_said() -> None:
    gpu = replace(
        run_of(60, 1, 59, 30).gpus[0],
        shared=True,
        memory_limit_mb=4096,
        compute_limit_percent=25,
        memory_size_mb=23_034,
    )
    assert sharing_sentence(gpu) == (
        "the run may use 4 GB of 22.5 GB and 25 % of its multiprocessors (MPS); utilization, power "
        "and energy are of all programs on the GPU"
    )


@each_case("number", range(1, 175))
def test_an_error_is_never_silent_and_never_a_guess(number: int) -> None:
    text = xid_sentence((number,), is_shared=False, is_local=False)
    assert text.startswith("The GPU's driver reported")
    assert str(number) in text


def test_the_machines_fault_wins_over_what_follows_from_it() -> None:
    text = xid_sentence((45, 94), is_shared=True, is_local=False)
    assert "Xid 94" in text
    assert "the machine's fault, not the program's: run it on another instance" in text
    assert "Another program" in str(xid_sentence((31,), is_shared=True, is_local=False))
