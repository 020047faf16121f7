"""Two dozen runs and more, most of them awkward, that each screen has to show alike: lower bounds,
mapped files, a shared CPU, GPUs, a job of AWS Batch, kills, short ones.

``tests/data/local_runs.jsonl`` has what ``task-profiler run`` wrote of real programs on a busy
machine: one killed in a control group of 64 MB, ``make`` with its compilers (lower bounds), a
pipeline as a job of AWS Batch, threads whose stacks were sampled, a failure and a success without
statistics.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from profiler.record.activity_model import NO_STACKS, TimeBreakdown, WaitTarget
from profiler.record.batch_job import BatchJob
from profiler.record.record_model import (
    UNKNOWN_SIZE,
    AverageAndMaximum,
    Cost,
    Distribution,
    MemoryKills,
    Process,
    Processor,
    Report,
    Sampling,
    SlowdownBounds,
    Visible,
    decode,
)
from profiler.sizing.advice import with_recommendation
from profiler.sizing.prices import PriceOverrides
from tests import shown_runs
from tests.gpu_runs import gpu_run
from tests.values import present


def changed(report: Report, *, metrics: Mapping[str, Any] | None = None, **fields: Any) -> Report:
    """The report of the run with other fields."""
    record = report.record
    known = replace(record.metrics, **(metrics or {}))
    return replace(report, record=replace(record, **{"metrics": known, **fields}))


def shared_cpu() -> Report:
    """A local run of one thread, whose CPU other programs used, and whose threads ended unread.

    Its numbers relate as in a recorded run beside six busy programs on two CPUs.
    """
    made = shown_runs.local()
    times = TimeBreakdown(on_cpu_percent=20, waiting_for_cpu_percent=79, covered_percent=99)
    vcpu = tuple(0.16 + 0.01 * (step % 9) for step in range(119))
    return changed(
        made,
        metrics={
            "cpu_seconds": 237.6,
            "vcpu_used": Distribution(avg=0.201, p50=0.2, p95=0.24, p99=0.26, max=0.31),
            "cpu_utilization_percent": Distribution(avg=10.05, p50=10, p95=12, p99=13, max=15.5),
            "cpu_wait_seconds": 760.0,
            "cpu_wait_percent": 76.2,
            "max_pids": 1,
            "vcpu_saturated_percent": 0.0,
            "slowdown_at_vcpu": {
                "0.25": SlowdownBounds(min=1, max=1.08),
                "0.5": SlowdownBounds(min=1, max=1.02),
            },
            "memory_peak_source": "sampled",
        },
        processor=Processor(model="EPYC", count=2, others_vcpu_used=1.78),
        sampling=Sampling(samples=1182, stats_period_ms=1000, cpu_wait_covered_percent=80),
        time_breakdown=times,
        memory_kills=None,
        likely_out_of_memory=False,
        stacks=NO_STACKS,
        processes=(
            Process(name="python", count=4, cpu_seconds=229.9, max_memory_used_mb=2980),
            Process(name="gzip", cpu_seconds=7.1, max_memory_used_mb=12),
        ),
        series=replace(present(made.record.series), vcpu_used=vcpu, cpu_wait=(0.79,) * 119),
    )


def missed_peak() -> Report:
    """The mark of a process shows a peak that no sample saw."""
    return changed(
        shown_runs.local(),
        metrics={
            "max_memory_used_mb": 3400,
            "max_memory_used_at": None,
            "memory_peak_source": "sampled",
        },
        processes=(Process(name="load.py", count=1, cpu_seconds=900.0, max_memory_used_mb=1210),),
        memory_kills=None,
        likely_out_of_memory=False,
    )


def mapped_files() -> Report:
    return changed(
        shown_runs.etl(),
        metrics={
            "memory_mapped_file_mb": AverageAndMaximum(avg=400.0, max=731.0),
            "memory_huge_pages_mb": AverageAndMaximum(avg=512.0, max=512.0),
        },
    )


def short() -> Report:
    """Less than a second, with one sample."""
    return changed(
        shown_runs.etl(),
        metrics={
            "duration_ms": 640,
            "cpu_seconds": 0.41,
            "vcpu_used": Distribution(avg=0.64, p95=0.64, max=0.64),
            "cpu_utilization_percent": Distribution(avg=32, p95=32, max=32),
            "max_memory_used_at": None,
            "vcpu_saturated_percent": None,
        },
        series=None,
        processes=(Process(name="python", count=4, cpu_seconds=0.4, max_memory_used_mb=2980),),
        sampling=Sampling(samples=1, stats_period_ms=1000),
    )


def batch_job() -> Report:
    job = BatchJob(
        job_id="0f8fad5b-d9cb-469f-a165-70867728950e",
        job_name="load-7",
        queue="spot",
        job_definition="load",
        attempt=2,
    )
    return changed(shown_runs.etl(), batch=job, launch_type="EC2", family="load", revision="3")


def job_on_an_instance(used: float) -> Report:
    """A job that asked for 2 of the instance's 16 vCPUs, and used so many."""
    return changed(
        batch_job(),
        cluster="AWSBatch-spot-0a1b2c3d-1111-2222-3333-444455556666",
        task_size=UNKNOWN_SIZE,
        metrics={
            "cpu_seconds": 1182 * used,
            "vcpu_used": Distribution(avg=used, p95=1.2 * used, max=1.25 * used),
            "vcpu_size": 16,
            "vcpu_share": 2,
            "cpu_utilization_percent": Distribution(
                avg=used / 0.16, p95=1.2 * used / 0.16, max=1.25 * used / 0.16
            ),
            "vcpu_saturated_percent": 0.0,
        },
    )


def gpu_failure() -> Report:
    """The driver reported an error, after which the program failed."""
    report = gpu_run("two")
    (gpu, *others) = report.record.gpus
    failed = (replace(gpu, xids=(79,)), *others)
    return changed(report, gpus=failed, status="failure", exit_code=1)


def shared_gpu() -> Report:
    report = gpu_run("two")
    shared = tuple(replace(gpu, shared=True) for gpu in report.record.gpus)
    return changed(report, gpus=shared)


def child_killed() -> Report:
    rows = (Process(name="w", max_memory_used_mb=900), Process(name="w", max_memory_used_mb=901))
    kills = MemoryKills(count=3, processes=rows)
    return changed(shown_runs.etl(), memory_kills=kills, likely_out_of_memory=True)


def unseen_limits() -> Report:
    """A killed run of a program that sees the machine, with too many threads for the task."""
    return changed(
        shown_runs.out_of_memory(),
        visible=Visible(cpus=8, memory_mb=16_000),
        metrics={
            "cpu_seconds": 1573.6,
            "vcpu_used": Distribution(avg=1.86, p95=2.0, max=2.0),
            "cpu_utilization_percent": Distribution(avg=93, p95=100, max=100),
            "cpu_wait_seconds": 9_000.0,
            "vcpu_saturated_percent": 90.0,
        },
    )


def on_spot() -> Report:
    cost = Cost(
        usd=0.0101, price_basis="2026-10 us-west-2 on-demand, capacity provider FARGATE_SPOT"
    )
    return changed(shown_runs.etl(), cost=cost)


def partial() -> Report:
    """The end of the run was measured by nobody, and processes ended unread."""
    made = shown_runs.waiting()
    return changed(
        made,
        metrics={"cpu_seconds": 903.3},
        sampling=Sampling(
            samples=90, sources=("task-metadata",), cpu_covered_percent=70, stats_period_ms=10_000
        ),
        processes=(
            Process(name="python", count=2, cpu_seconds=700.0, max_memory_used_mb=2980),
            Process(name="other", cpu_seconds=203.3),
        ),
    )


def lonely_wait() -> Report:
    """One address, for which the run waited twice, with the stack of the first time alone."""
    made = shown_runs.waiting()
    times = TimeBreakdown(
        on_cpu_percent=70,
        network_percent=30,
        waiting_for=(WaitTarget(kind="network", target="10.0.3.9:5432", percent=30),),
        covered_percent=99,
    )
    return changed(made, time_breakdown=times)


LOCAL_LINES = (Path(__file__).parent / "data/local_runs.jsonl").read_bytes().splitlines()
LOCAL_RUNS = {
    f"real: {decode(line).record.family}": functools.partial(decode, line) for line in LOCAL_LINES
}
RUNS: Mapping[str, Callable[[], Report]] = {
    "success": shown_runs.etl,
    "killed": shown_runs.out_of_memory,
    "failure": shown_runs.failure,
    "stopped": shown_runs.stopped,
    "local, child killed": shown_runs.local,
    "waiting": shown_runs.waiting,
    "waiting for one address": lonely_wait,
    "unmeasured": shown_runs.unmeasured,
    "neuron": shown_runs.neuron,
    "four GPUs": shown_runs.gpu,
    "GPU of a tape": lambda: gpu_run("two"),
    "shared CPU": shared_cpu,
    "missed peak": missed_peak,
    "mapped files": mapped_files,
    "short": short,
    "job of Batch": batch_job,
    "job below its request": lambda: job_on_an_instance(1.1),
    "job above its request": lambda: job_on_an_instance(3.2),
    "failure of a GPU": gpu_failure,
    "shared GPU": shared_gpu,
    "child killed": child_killed,
    "unseen limits": unseen_limits,
    "Spot": on_spot,
    "partial": partial,
    **LOCAL_RUNS,
}


def recommended(make: Callable[[], Report]) -> Report:
    """The report with the cost and the advice that its monitor writes."""
    report = make()
    record = with_recommendation(report.record, PriceOverrides(), time=report.time)
    return replace(report, record=replace(record, cost=report.record.cost))
