"""What is said about GPUs that were idle: the sentence, the advice, and in which outputs they are."""

from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.gpu_idle import gpu_advice, gpu_idle_sentence, gpu_idle_texts
from profiler.record.hardware import WHOLE_INSTANCE
from profiler.record.record_model import Container, Distribution, Gpu, GpuIdle, Metrics, Record

TRAIN_TAR = WaitTarget(kind="disk", target="/data/train.tar", percent=48)
FILES_AND_CPU = TimeBreakdown(
    disk_percent=48, on_cpu_percent=31, sleep_percent=21, waiting_for=(TRAIN_TAR,), covered_percent=100
)
DATABASE = WaitTarget(kind="network", target="10.0.0.3:5432", percent=60)
LOADER = "The GPU waited for the disk: use more loader workers or prefetch."
WORKERS = "The GPU waited for one CPU: use more workers."
SMALLER = "use a smaller GPU or a larger batch size."


def gpu(use: float = 50, memory_percent: float = 80, sm_active: float | None = None, **values: Any) -> Gpu:
    return Gpu(
        uuid="GPU-a",
        utilization_percent=Distribution(avg=use, max=min(2 * use, 100)),
        sm_active_percent=None if sm_active is None else Distribution(avg=sm_active, max=100),
        memory_used_mb=Distribution(max=memory_percent),
        memory_size_mb=100,
        **values,
    )


def run(percent: float = 63, waiting_for: TimeBreakdown | None = FILES_AND_CPU, **values: Any) -> Record:
    """A run of an hour with one GPU, which used at most one CPU of eight."""
    metrics = Metrics(duration_ms=3_600_000, vcpu_size=8, vcpu_used=Distribution(avg=0.6, p95=1.05, max=2))
    idle = GpuIdle(percent=percent, gpu_hours=percent / 100, waiting_for=waiting_for)
    made = Record(task_id="1", container=Container(name="batch"), metrics=metrics, gpus=(gpu(),), gpu_idle=idle)
    return replace(made, **values)


def using(p95: float | None, vcpu_size: float = 8) -> Metrics:
    return Metrics(vcpu_size=vcpu_size, vcpu_used=Distribution(p95=p95))


@pytest.mark.parametrize(
    ("record", "sentence", "advice"),
    [
        pytest.param(
            run(gpus=(gpu(use=37, sm_active=30),)),
            "the GPU was idle 63 % of the run; meanwhile the batch read files (48 %: /data/train.tar), used one CPU "
            "(31 %) and slept (21 %)",
            [LOADER],
            id="loader-bound",
        ),
        pytest.param(
            run(71, TimeBreakdown(on_cpu_percent=96, disk_percent=2.5), gpus=(gpu(use=29, sm_active=26),)),
            "the GPU was idle 71 % of the run; meanwhile the batch used one CPU (96 %)",
            [WORKERS],
            id="one-cpu",
        ),
        pytest.param(
            run(4.2, TimeBreakdown(on_cpu_percent=100), gpus=(gpu(use=95.8, sm_active=9, memory_percent=12),)),
            "the GPU was idle 4 % of the run; meanwhile the batch used one CPU (100 %)",
            [f"The GPU is larger than needed (memory peak 12 %, SM active 9 %): {SMALLER}"],
            id="small-model",
        ),
        pytest.param(
            run(
                38,
                TimeBreakdown(network_percent=64.2, on_cpu_percent=22, lock_percent=13.8, waiting_for=(DATABASE,)),
                gpus=(gpu(use=24, memory_percent=8, sm_active=11),),
            ),
            "the GPU was idle 38 % of the run; meanwhile the batch waited for the network (64 %: 10.0.0.3:5432), "
            "used one CPU (22 %) and waited for a lock (14 %)",
            [
                "The GPU waited for the network: use more loader workers or prefetch.",
                f"The GPU is larger than needed (memory peak 8 %, SM active 11 %): {SMALLER}",
            ],
            id="mixed",
        ),
    ],
)
def test_typical_jobs(record: Record, sentence: str | None, advice: list[str]) -> None:
    assert gpu_idle_sentence(record) == sentence
    assert list(gpu_advice(record)) == advice


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (run(waiting_for=TimeBreakdown(other_percent=100)), "the GPU was idle 63 % of the run"),
        (run(waiting_for=None, gpus=()), "the GPUs were idle 63 % of the run on average"),
        (run(0), None),
        (run(gpu_idle=None), None),
        (run(waiting_for=None, gpu_scope=WHOLE_INSTANCE), "the GPU of the instance was idle 63 % of the run"),
        (
            run(waiting_for=TimeBreakdown(sleep_percent=100), gpus=(gpu(), gpu()), gpu_scope=WHOLE_INSTANCE),
            (
                "the 2 GPUs of the instance were idle 63 % of the run on average; while all were idle, the batch slept "
                "(100 %)"
            ),
        ),
        (
            run(waiting_for=TimeBreakdown(on_cpu_percent=80), metrics=using(3.9)),
            "the GPU was idle 63 % of the run; meanwhile the batch used the CPU (80 %)",
        ),
        (
            run(waiting_for=TimeBreakdown(disk_percent=90, waiting_for=(replace(TRAIN_TAR, percent=4),))),
            "the GPU was idle 63 % of the run; meanwhile the batch read files (90 %, 4 % for /data/train.tar)",
        ),
        (
            run(waiting_for=TimeBreakdown(disk_percent=90, waiting_for=(replace(TRAIN_TAR, target="disk"),))),
            "the GPU was idle 63 % of the run; meanwhile the batch read files (90 %)",
        ),
    ],
)
def test_no_part_of_the_sentence_is_invented(record: Record, sentence: str | None) -> None:
    assert gpu_idle_sentence(record) == sentence


@pytest.mark.parametrize(
    ("record", "advice"),
    [
        (run(waiting_for=TimeBreakdown(sleep_percent=60, disk_percent=40)), []),
        (run(waiting_for=TimeBreakdown(other_percent=60, disk_percent=40)), []),
        (run(waiting_for=TimeBreakdown(on_cpu_percent=90), metrics=using(3.9)), []),
        (
            run(waiting_for=TimeBreakdown(on_cpu_percent=90), metrics=using(1, vcpu_size=1)),
            ["The GPU waited for one CPU: use more workers, and more vCPUs."],
        ),
        (run(9.9), []),
        (run(waiting_for=None, gpus=(gpu(use=9, memory_percent=9, sm_active=30),)), []),
        (run(waiting_for=None, gpus=(gpu(use=9, memory_percent=30, sm_active=9),)), []),
        (run(waiting_for=None, gpus=(gpu(use=9, memory_percent=9), Gpu(uuid="b"))), []),
        (
            run(waiting_for=None, gpus=(gpu(use=9, memory_percent=8), gpu(use=7, memory_percent=9))),
            [f"The GPUs are larger than needed (memory peak 9 %, utilization 9 %): {SMALLER}"],
        ),
        (
            run(gpus=(gpu(use=0),)),
            ["The GPU was allocated but never used: run the task without it, or check why the batch did not find it."],
        ),
    ],
)
def test_the_advice_follows_from_the_numbers(record: Record, advice: list[str]) -> None:
    assert list(gpu_advice(record)) == advice


def test_the_price_follows_the_sentence() -> None:
    idle = GpuIdle(percent=63, gpu_hours=0.631234, usd=1.2699)
    assert list(gpu_idle_texts(run(gpu_idle=idle))) == [
        "the GPU was idle 63 % of the run",
        "0.63 idle GPU-hours ($1.27)",
    ]
    assert list(gpu_idle_texts(run(gpu_idle=replace(idle, usd=None))))[1] == "0.63 idle GPU-hours"
    assert list(gpu_idle_texts(run(0))) == []
