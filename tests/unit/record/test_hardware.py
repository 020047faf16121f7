"""The names of processors and what a program sees of the machine; what is said about GPUs that
were idle.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown, WaitTarget
from profiler.record.gpu_sentences import gpu_idle_sentence, gpu_idle_texts
from profiler.record.hardware import (
    processor_difference,
    short_processor_name,
    visible_cpus_advice,
    visible_memory_advice,
)
from profiler.record.record_model import (
    NOT_MEASURED,
    NOTHING_VISIBLE,
    UNKNOWN_PROCESSOR,
    UNKNOWN_SIZE,
    WHOLE_INSTANCE,
    Container,
    Distribution,
    Gpu,
    GpuIdle,
    Metrics,
    Processor,
    Record,
    Sampling,
    TaskSize,
    Visible,
)
from profiler.record.run_outcome import Status
from tests.cases import each_case
from tests.gpu_runs import advice_on

TRAIN_TAR = WaitTarget(kind="disk", target="/data/train.tar", percent=48)
FILES_AND_CPU = TimeBreakdown(
    disk_percent=48,
    on_cpu_percent=31,
    sleep_percent=21,
    waiting_for=(TRAIN_TAR,),
    covered_percent=100,
)
DATABASE = WaitTarget(kind="network", target="10.0.0.3:5432", percent=60)
WAITED = "The GPU waited for {} % of the time between its first and last work, for {}"
LOADER = f"{WAITED.format(63, 'the disk')}: use more loader workers or prefetch."
MORE_WORKERS = f"{WAITED.format(63, 'one CPU')}: use more workers."
SMALLER = "use a smaller GPU or a larger batch size."


def run_on(model: str | None) -> Record:
    processor = UNKNOWN_PROCESSOR if model is None else Processor(model=model, count=4)
    return Record(task_id="a", container=Container(name="app"), processor=processor)


def test_the_short_name_has_only_what_tells_models_apart() -> None:
    short = {
        "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz": "Xeon 8259CL",
        "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz": "Xeon E5-2686 v4",
        "Intel(R) Xeon(R) Processor @ 2.90GHz": "Xeon @ 2.90GHz",
        "13th Gen Intel(R) Core(TM) i7-1360P": "13th Gen Core i7-1360P",
        "AMD EPYC 7763 64-Core Processor": "EPYC 7763",
        "Neoverse-N1": "Neoverse-N1",
        "Processor": "Processor",
    }
    assert {model: short_processor_name(model) for model in short} == short


def test_a_difference_names_a_common_brand_once() -> None:
    one, two = (
        "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz",
        "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz",
    )
    for own, other, said in (
        (one, two, "ran on Xeon 8259CL, the last success on 8375C"),
        (one, "AMD EPYC 7R13 Processor", "ran on Xeon 8259CL, the last success on EPYC 7R13"),
        ("Neoverse-N1", "Neoverse-V1", "ran on Neoverse-N1, the last success on Neoverse-V1"),
    ):
        assert processor_difference(run_on(own), run_on(other), "the last success") == said
    assert (
        processor_difference(run_on(one), run_on(two))
        == "ran on Xeon 8259CL, the other run on 8375C"
    )


# A Java batch on Fargate with 0.5 vCPU and 2 GB, whose heap is a part of the 7.8 GB that it sees:
# killed.
JAVA = Record(
    task_id="a",
    container=Container(name="batch"),
    likely_out_of_memory=True,
    metrics=Metrics(duration_ms=90_000, memory_size_mb=2048, max_memory_used_mb=1600),
    task_size=TaskSize(vcpu=0.5, memory_mb=2048),
    visible=Visible(memory_mb=7987.2, cpus=2),
)


def test_a_killed_program_that_saw_more_memory_gets_the_remedy() -> None:
    for seen_mb, task_mb, container_mb, words in (
        (7987.2, 2048, 2048, "7.8 GB and may use 2"),
        (3900, 512, 512, "3.8 GB and may use 512 MB"),
        (7987.2, 2048, 1024, None),  # programs see the container's own limit
        (7987.2, 2048, None, None),
        (7987.2, None, 2048, None),  # on EC2, the task has no memory of its own
        (2457.6, 2048, 2048, None),  # 1.2 times the limit
        (None, 2048, 2048, None),
    ):
        sizes = {
            "task_size": TaskSize(memory_mb=task_mb),
            "metrics": Metrics(memory_size_mb=container_mb),
        }
        advice = visible_memory_advice(
            replace(JAVA, visible=Visible(memory_mb=seen_mb), **sizes), is_out_of_memory=True
        )
        remedy = "set the container's `memory`, or -Xmx/max_old_space_size/workers."
        assert advice == (words and f"the program sees {words}: {remedy}")


# A worker for each of the 8 CPUs that it sees; the task has 2.
WORKERS = replace(
    JAVA,
    metrics=Metrics(
        duration_ms=100_000,
        cpu_seconds=190,
        cpu_wait_seconds=500,
        vcpu_saturated_percent=96,
        max_pids=9,
    ),
    task_size=TaskSize(vcpu=2, memory_mb=4096),
    visible=Visible(cpus=8),
)


def test_a_saturated_run_with_too_many_workers_gets_the_remedy() -> None:
    words: dict[Any, str] = {(8, 2): "8 CPUs and may use 2", (2, 0.25): "2 CPUs and may use 0.25"}
    for cpus, vcpu in (*words, (2, 2), (None, 2), (8, None)):
        said = words.get((cpus, vcpu))
        record = replace(WORKERS, visible=Visible(cpus=cpus), task_size=TaskSize(vcpu=vcpu))
        assert visible_cpus_advice(record) == (
            said and f"it sees {said}: set the number of workers."
        )
    assert visible_cpus_advice(replace(WORKERS, task_size=UNKNOWN_SIZE)) is None
    for changes in (
        {"visible": NOTHING_VISIBLE},
        {"task_size": UNKNOWN_SIZE, "launch_type": "LOCAL"},
    ):  # an older report, a local run
        assert visible_memory_advice(replace(JAVA, **changes), is_out_of_memory=True) is None


def test_no_advice_on_workers_without_saturation_by_threads_that_could_run() -> None:
    changes: list[dict[str, Any]] = [
        {"cpu_wait_seconds": 210},  # on average, twice as many threads as vCPUs could run
        {"cpu_wait_seconds": 10, "max_pids": 400},  # threads that sleep
        {"cpu_wait_seconds": None, "max_pids": 400},
        *(
            {"cpu_seconds": None},
            {"duration_ms": 0},
            {"vcpu_saturated_percent": 4.9},
            {"vcpu_saturated_percent": None},
        ),
    ]
    for each in changes:
        assert (
            visible_cpus_advice(replace(WORKERS, metrics=replace(WORKERS.metrics, **each))) is None
        ), each


def test_cpu_time_that_was_not_measured_to_the_end_counts_with_its_average() -> None:
    half = replace(
        WORKERS.metrics, cpu_seconds=95, cpu_wait_seconds=215, vcpu_used=Distribution(avg=1.9)
    )
    for covered_percent, has_advice in ((50, True), (96, False)):
        record = replace(
            WORKERS, metrics=half, sampling=Sampling(cpu_covered_percent=covered_percent)
        )
        assert (visible_cpus_advice(record) is not None) is has_advice


def test_a_run_without_a_kill_needs_a_high_peak_or_the_word_of_ecs() -> None:
    record = replace(JAVA, likely_out_of_memory=False)
    for peak_mb, by_ecs, has_advice in (
        (1843.2, False, True),
        (1843, False, False),
        (None, False, False),
        (600, True, True),
    ):
        made = replace(record, metrics=replace(JAVA.metrics, max_memory_used_mb=peak_mb))
        assert (visible_memory_advice(made, is_out_of_memory=by_ecs) is not None) is has_advice


def gpu(
    use: float = 50, memory_percent: float = 80, sm_active: float | None = None, **values: Any
) -> Gpu:
    return Gpu(
        uuid="GPU-a",
        utilization_percent=Distribution(avg=use, max=min(2 * use, 100)),
        utilization_source="driver-samples",
        sm_active_percent=NOT_MEASURED
        if sm_active is None
        else Distribution(avg=sm_active, max=100),
        memory_used_mb=Distribution(max=memory_percent),
        memory_size_mb=100,
        **values,
    )


def run(percent: float = 63, waiting_for: TimeBreakdown = FILES_AND_CPU, **values: Any) -> Record:
    """A run of an hour with one GPU, which used at most one CPU of eight."""
    metrics = Metrics(
        duration_ms=3_600_000, vcpu_size=8, vcpu_used=Distribution(avg=0.6, p95=1.05, max=2)
    )
    idle = GpuIdle(percent=percent, gpu_hours=percent / 100, waiting_for=waiting_for)
    made = Record(
        task_id="1",
        container=Container(name="batch"),
        status="success",
        metrics=metrics,
        gpus=(gpu(),),
        gpu_idle=idle,
    )
    made = replace(made, **values)
    return replace(made, gpus=tuple(working(one, percent) for one in made.gpus))


def working(one: Gpu, idle_percent: float) -> Gpu:
    """A GPU whose work began with the run, ended with it, and paused."""
    return replace(
        one,
        first_used_seconds=0,
        last_used_seconds=3600,
        idle_between_seconds=36 * idle_percent,
    )


def using(p95: float | None, vcpu_size: float = 8) -> Metrics:
    return Metrics(vcpu_size=vcpu_size, vcpu_used=Distribution(p95=p95))


@pytest.mark.parametrize(
    ("record", "sentence", "advice"),
    [
        pytest.param(
            run(gpus=(gpu(use=37, sm_active=30),)),
            "the GPU was idle 63 % of the run; meanwhile the batch read files (48 %: "
            "/data/train.tar), used one CPU (31 %) and slept (21 %)",
            [LOADER],
            id="loader-bound",
        ),
        pytest.param(
            run(
                71,
                TimeBreakdown(on_cpu_percent=96, disk_percent=2.5),
                gpus=(gpu(use=29, sm_active=26),),
            ),
            "the GPU was idle 71 % of the run; meanwhile the batch used one CPU (96 %)",
            [f"{WAITED.format(71, 'one CPU')}: use more workers."],
            id="one-cpu",
        ),
        pytest.param(
            run(
                4.2,
                TimeBreakdown(on_cpu_percent=100),
                gpus=(gpu(use=95.8, sm_active=9, memory_percent=12),),
            ),
            "the GPU was idle 4 % of the run; meanwhile the batch used one CPU (100 %)",
            [
                f"The GPU is larger than needed (memory peak 12 %, SM active 9 % while it worked): {SMALLER}"
            ],
            id="small-model",
        ),
        pytest.param(
            run(
                38,
                TimeBreakdown(
                    network_percent=64.2,
                    on_cpu_percent=22,
                    lock_percent=13.8,
                    waiting_for=(DATABASE,),
                ),
                gpus=(gpu(use=24, memory_percent=8, sm_active=3),),
            ),
            "the GPU was idle 38 % of the run; meanwhile the batch waited for the network (64 %: "
            "10.0.0.3:5432), used one CPU (22 %) and waited for a lock (14 %)",
            [
                f"{WAITED.format(38, 'the network')}: use more loader workers or prefetch.",
                (
                    "The GPU is larger than needed (memory peak 8 %, SM active 13 % while it "
                    f"worked): {SMALLER}"
                ),
            ],
            id="mixed",
        ),
    ],
)
def test_typical_jobs(record: Record, sentence: str | None, advice: list[str]) -> None:
    assert gpu_idle_sentence(record) == sentence
    assert advice_on(record) == advice


@each_case(
    ("record", "sentence"),
    [
        (run(waiting_for=TimeBreakdown(other_percent=100)), "the GPU was idle 63 % of the run"),
        (run(waiting_for=NO_BREAKDOWN, gpus=()), "the GPUs were idle 63 % of the run on average"),
        (run(0), None),
        (run(gpu_idle=None), None),
        (
            run(waiting_for=NO_BREAKDOWN, gpu_scope=WHOLE_INSTANCE),
            None,
        ),
        (
            run(waiting_for=TimeBreakdown(sleep_percent=100), gpus=(gpu(), gpu())),
            (
                "the 2 GPUs were idle 63 % of the run on average; while all were idle, the batch "
                "slept (100 %)"
            ),
        ),
        (
            run(waiting_for=TimeBreakdown(on_cpu_percent=80), metrics=using(3.9)),
            "the GPU was idle 63 % of the run; meanwhile the batch used the CPU (80 %)",
        ),
        (
            run(
                waiting_for=TimeBreakdown(
                    disk_percent=90, waiting_for=(replace(TRAIN_TAR, percent=4),)
                )
            ),
            (
                "the GPU was idle 63 % of the run; meanwhile the batch read files (90 %, 4 % for "
                "/data/train.tar)"
            ),
        ),
        (
            run(
                waiting_for=TimeBreakdown(
                    disk_percent=90, waiting_for=(replace(TRAIN_TAR, target="disk"),)
                )
            ),
            "the GPU was idle 63 % of the run; meanwhile the batch read files (90 %)",
        ),
    ],
)
def test_no_part_of_the_sentence_is_invented(record: Record, sentence: str | None) -> None:
    assert gpu_idle_sentence(record) == sentence


@each_case(
    ("record", "advice"),
    [
        (run(waiting_for=TimeBreakdown(sleep_percent=60, disk_percent=40)), []),
        (run(waiting_for=TimeBreakdown(other_percent=60, disk_percent=40)), []),
        (run(waiting_for=TimeBreakdown(on_cpu_percent=90), metrics=using(3.9)), []),
        (
            run(waiting_for=TimeBreakdown(on_cpu_percent=90), metrics=using(1, vcpu_size=1)),
            [f"{WAITED.format(63, 'one CPU')}: use more workers, and more vCPUs."],
        ),
        (run(9.9), []),
        (run(9, NO_BREAKDOWN, gpus=(gpu(use=90, memory_percent=9, sm_active=30),)), []),
        (run(9, NO_BREAKDOWN, gpus=(gpu(use=90, memory_percent=30, sm_active=9),)), []),
        (
            run(9, NO_BREAKDOWN, gpus=(gpu(use=90, memory_percent=9),)),
            [],
        ),  # only Hopper has the SMs
        (
            run(9, NO_BREAKDOWN, gpus=(gpu(use=90, memory_percent=9, sm_active=9), Gpu(uuid="b"))),
            [],
        ),
        (
            run(
                9,
                NO_BREAKDOWN,
                gpus=(
                    gpu(use=90, memory_percent=8, sm_active=9),
                    gpu(use=70, memory_percent=9, sm_active=14),
                ),
            ),
            [
                (
                    "The GPUs are larger than needed (memory peak 9 %, SM active 20 % while it "
                    f"worked): {SMALLER}"
                )
            ],
        ),
        (
            run(gpus=(gpu(use=0, memory_percent=0),)),
            [
                (
                    "No GPU was ever used: run the task without one, or check why the batch did "
                    "not find it."
                )
            ],
        ),
    ],
)
def test_the_advice_follows_from_the_numbers(record: Record, advice: list[str]) -> None:
    assert advice_on(record) == advice


@pytest.mark.parametrize("status", ["failure", "stopped", "unknown"])
def test_a_run_that_did_not_do_its_work_gets_no_advice_on_gpus(status: Status) -> None:
    starved = run(waiting_for=TimeBreakdown(on_cpu_percent=90), metrics=using(1))
    assert advice_on(starved) == [MORE_WORKERS]
    assert advice_on(replace(starved, status=status)) == []
    unused = run(gpus=(gpu(use=0, memory_percent=0),), status=status)
    assert advice_on(unused) == []


def test_a_gpu_whose_memory_was_in_use_was_not_never_used() -> None:
    """A reading once a second misses 0.4 s of kernels; the context holds 600 MB."""
    for used in (Distribution(avg=20, max=623), Distribution(max=64), NOT_MEASURED):
        record = run(waiting_for=NO_BREAKDOWN, gpus=(replace(gpu(use=0), memory_used_mb=used),))
        assert advice_on(record) == []


def test_the_price_follows_the_sentence() -> None:
    idle = GpuIdle(percent=63, gpu_hours=0.631234, usd=1.2699)
    assert list(gpu_idle_texts(run(gpu_idle=idle))) == [
        "the GPU was idle 63 % of the run",
        "0.63 idle GPU-hours ($1.27)",
    ]
    assert list(gpu_idle_texts(run(gpu_idle=replace(idle, usd=None))))[1] == "0.63 idle GPU-hours"
    assert list(gpu_idle_texts(run(0))) == []
