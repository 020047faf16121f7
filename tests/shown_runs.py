"""Runs of each kind of end, with time series, for ``task-profiler show`` and its documentation."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_SECOND, format_ms, parse_ns
from profiler.record import activity_model as activity
from profiler.record import notice_model as notices
from profiler.record import record_model as model
from profiler.record import stacks_line
from profiler.record.record_model import NO_RECOMMENDATION, UNKNOWN_COST

STARTED = "2026-11-20T03:12:45.000Z"
STARTED_NS = parse_ns(STARTED) or 0
NOW_NS = STARTED_NS + 6 * 3600 * NS_PER_SECOND
STEP_MS = 10_000


def at(seconds: float) -> str:
    """A time of the runs."""
    return format_ms(STARTED_NS + round(seconds * NS_PER_SECOND))


def cpu_course(length: int) -> list[float]:
    """A quiet start, a third with all of 2 vCPU, an idle stretch, and a busy end."""
    thirds = length // 6
    busy = [0.15] * thirds + [2.0] * (2 * thirds) + [0.01] * thirds
    return busy + [1.1 + 0.02 * (step % 7) for step in range(length - len(busy))]


def memory_digits(length: int, peak_mb: float) -> list[float]:
    """Memory that grows to the peak near the end."""
    return [
        float(f"{120 + (peak_mb - 120) * ((step + 1) / length) ** 2:.3g}") for step in range(length)
    ]


def etl(
    task_id: str = "158d1c8044f24c1d9d1b0f7c3f1e8a90", *, days_ago: int = 0, **record: Any
) -> model.Report:
    """A run of nightly-etl on Fargate that succeeded: 19 minutes 42 seconds with 2 vCPU and 4
    GB.
    """
    started_ns = STARTED_NS - days_ago * 86_400 * NS_PER_SECOND
    slowdowns = ("0.25", 4.4, 5.0), ("0.5", 2.2, 2.6), ("1", 1.33, 1.55)
    metrics = model.Metrics(
        duration_ms=1_182_000,
        billed_duration_ms=1_201_000,
        init_duration_ms=18_400,
        vcpu_size=2,
        memory_size_mb=4096,
        cpu_seconds=1290.4,
        vcpu_used=model.Distribution(avg=1.09, p50=1.1, p95=1.98, p99=2.0, max=2.0),
        cpu_utilization_percent=model.Distribution(avg=54.6, p95=99, max=100),
        memory_used_mb=model.Distribution(avg=1420, p95=3120, max=3310),
        max_memory_used_mb=3310,
        max_memory_used_at=format_ms(started_ns + 1_146 * NS_PER_SECOND),
        memory_peak_source="sampled",
        vcpu_saturated_percent=32.5,
        slowdown_at_vcpu={
            vcpu: model.SlowdownBounds(min=least, max=most) for vcpu, least, most in slowdowns
        },
        network_rx_bytes=2_900_000_000,
        network_tx_bytes=48_000_000,
        block_read_bytes=1_200_000_000,
        block_write_bytes=380_000_000,
        max_pids=14,
    )
    made = model.Record(
        task_id=task_id,
        task_arn=f"arn:aws:ecs:us-west-2:111122223333:task/jobs/{task_id}",
        cluster="jobs",
        family="nightly-etl",
        revision="26",
        region="us-west-2",
        account_id="111122223333",
        availability_zone="us-west-2d",
        launch_type="FARGATE",
        cpu_architecture="X86_64",
        container=model.Container(
            name="batch", image="111122223333.dkr.ecr.us-west-2.amazonaws.com/etl:7"
        ),
        log_group="/ecs/nightly-etl",
        log_stream=f"ecs/batch/{task_id}",
        status="success",
        exit_code=0,
        likely_out_of_memory=False,
        started_at=format_ms(started_ns),
        finished_at=format_ms(started_ns + 1_182 * NS_PER_SECOND),
        sampling=model.Sampling(samples=118, stats_period_ms=10_000),
        metrics=metrics,
        task_size=model.TaskSize(vcpu=2, memory_mb=4096),
        cost=model.Cost(usd=0.0329),
        recommendation=model.Recommendation(
            vcpu=2,
            memory_mb=4096,
            saving_percent=0,
            reasons=("1 run used up to 3.2 GB or more of memory (sampled).",),
        ),
        processes=(
            model.Process(
                name="python",
                count=4,
                cpu_seconds=1240.1,
                max_memory_used_mb=2980,
                max_memory_used_processes=4,
            ),
            model.Process(name="gzip", cpu_seconds=41.2, max_memory_used_mb=12),
        ),
        series=series(119, 3310, started_ns),
    )
    return model.Report(
        time=format_ms(started_ns + 1_183 * NS_PER_SECOND),
        type="task.report",
        record=replace(made, **record),
    )


def series(
    length: int,
    peak_mb: float,
    started_ns: int = STARTED_NS,
    *,
    gpu: Sequence[float] | None = None,
    neuron: Sequence[float] | None = None,
) -> model.Series:
    return model.Series(
        started_at=format_ms(started_ns),
        step_ms=STEP_MS,
        vcpu_used=tuple(cpu_course(length)),
        memory_used_mb=tuple(memory_digits(length, peak_mb)),
        gpu_utilization_percent=None if gpu is None else tuple(gpu),
        neuron_utilization_percent=None if neuron is None else tuple(neuron),
    )


def waiting(**record: Any) -> model.Report:
    """The batch of :func:`etl`, seen with all privileges: it waited for its database."""
    report = etl("7b3f0c2d9e1a4855b6d0aa41c7f2e893")
    made = report.record
    steps = series(119, 3310)
    vcpu, memory = steps.vcpu_used or (), steps.memory_used_mb or ()
    breakdown = activity.TimeBreakdown(
        on_cpu_percent=31.2,
        waiting_for_cpu_percent=4.1,
        disk_percent=3.0,
        network_percent=55.4,
        sleep_percent=5.0,
        lock_percent=0.2,
        pipe_percent=0.0,
        child_percent=0.0,
        other_percent=1.1,
        waiting_for=(
            activity.WaitTarget(kind="network", target="10.0.3.9:5432", percent=48.3),
            activity.WaitTarget(kind="network", target="[2600:1f14::7]:443", percent=7.1),
            activity.WaitTarget(kind="disk", target="/data/orders-2025.parquet", percent=3.0),
        ),
        covered_percent=99.2,
    )
    loads = ("<module> (job.py:14)", "load_orders (etl/load.py:40)", "recv (socket.py:706)")
    merges = (
        "<module> (job.py:18)",
        "merge (etl/merge.py:112)",
        "concat (pandas/core/reshape/concat.py:372)",
    )
    stacks = activity.Stacks(
        source="py-spy 0.4.3",
        samples=412,
        top=(
            activity.StackFunction(
                function="parse_row",
                file="etl/parse.py",
                line=88,
                self_percent=31.2,
                total_percent=64.0,
            ),
            activity.StackFunction(
                function="<module>", file="job.py", line=18, self_percent=0.0, total_percent=100.0
            ),
        ),
        moments=(
            activity.StackMoment(
                kind="idle", from_at=at(420), to_at=at(480), samples=58, stack=loads, percent=92.0
            ),
            activity.StackMoment(
                kind="memory",
                from_at=at(900),
                to_at=at(960),
                samples=60,
                stack=merges,
                percent=71.7,
            ),
        ),
    )
    commands = (
        activity.ProcessSeries(
            command=command,
            vcpu_used=tuple(value and round(value * of_vcpu, 3) for value in vcpu),
            memory_used_mb=tuple(value and round(value * of_memory, 1) for value in memory),
        )
        for command, of_vcpu, of_memory in (("python3 export.py", 0.8, 0.9), ("gzip", 0.2, 0.1))
    )
    other = activity.ProcessSeries(
        command="other", vcpu_used=(None, *(0.0,) * (len(vcpu) - 1)), memory_used_mb=None
    )
    changes = {
        "processor": model.Processor(
            model="Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", count=4
        ),
        "metrics": replace(made.metrics, cpu_wait_seconds=61.4, cpu_wait_percent=4.6),
        "time_breakdown": breakdown,
        "stacks": stacks,
        "series": replace(steps, cpu_wait=(0.1,) * len(vcpu), processes=(*commands, other)),
    }
    return replace(report, record=replace(made, **{**changes, **record}))


def waiting_stacks() -> stacks_line.StacksLine:
    record = waiting().record
    load = "<module> (job.py);load_orders (etl/load.py);recv (socket.py)" + activity.WAITING_SUFFIX
    parse = "<module> (job.py);transform (etl/transform.py);parse_row (etl/parse.py)"
    merge = "<module> (job.py);merge (etl/merge.py);concat (pandas/core/reshape/concat.py)"
    steps = (
        stacks_line.StackStep(offset_ms=0, duration_ms=420_000, stacks={parse: 80, load: 12}),
        stacks_line.StackStep(offset_ms=420_000, duration_ms=60_000, stacks={load: 54, parse: 4}),
        stacks_line.StackStep(
            offset_ms=480_000, duration_ms=703_000, stacks={parse: 90, merge: 172}
        ),
    )
    return stacks_line.StacksLine(
        type="task.stacks", task_id=record.task_id, container=record.container.name, steps=steps
    )


def out_of_memory() -> model.Report:
    """The same batch with more input: killed after 14 minutes."""
    made = etl().record
    metrics = replace(
        made.metrics,
        duration_ms=846_000,
        billed_duration_ms=865_000,
        cpu_seconds=951.0,
        vcpu_used=model.Distribution(avg=1.12, p95=1.98, max=2.0),
        cpu_utilization_percent=model.Distribution(avg=56.2, p95=99, max=100),
        memory_used_mb=model.Distribution(avg=1890, p95=3850, max=4060),
        max_memory_used_mb=4060,
        max_memory_used_at=at(844),
        block_read_bytes=2_100_000_000,
    )
    reasons = (
        "1 run used up to 4 GB or more of memory (sampled).",
        "It ran out of memory at 4 GB: it needs more than that, and how much more is not known.",
    )
    report = etl(
        "9c41d07be1a54f6e8f0d2b7755aa10c3",
        status="failure",
        exit_code=137,
        likely_out_of_memory=True,
        out_of_memory_evidence="exit-137-at-limit",
        finished_at=at(846),
        metrics=metrics,
        processes=tuple(
            replace(process, cpu_seconds=seconds)
            for process, seconds in zip(made.processes, (912.3, 30.4), strict=True)
        ),
        cost=model.Cost(usd=0.0237),
        recommendation=model.Recommendation(
            vcpu=2, memory_mb=5120, saving_percent=-4.5, reasons=reasons
        ),
        series=series(85, 4060),
    )
    return replace(report, time=at(847))


def failure() -> model.Report:
    return etl("77aa0b3c", status="failure", exit_code=3)


def stopped() -> model.Report:
    return etl("5b0e9d21", status="stopped", exit_code=143)


def running() -> model.Report:
    """A checkpoint after 12 minutes."""
    metrics = replace(
        etl().record.metrics, duration_ms=720_000, billed_duration_ms=None, max_memory_used_at=None
    )
    unknown = (
        "exit_code",
        "likely_out_of_memory",
        "finished_at",
        "series",
    )
    known: dict[str, Any] = {
        "status": "running",
        "metrics": metrics,
        "cost": model.UNKNOWN_COST,
        "recommendation": model.NO_RECOMMENDATION,
    }
    report = etl("c0ffee00", **known | dict.fromkeys(unknown))
    return replace(report, time=at(720), type="task.checkpoint")


def checkpoints() -> tuple[model.Report, ...]:
    """The checkpoints of a run that goes on, one a minute; the sixth is missing."""
    last = running()
    found = []
    for minute in range(12):
        time = at((minute + 1) * 60)
        interval = model.Interval(
            started_at=at(minute * 60),
            finished_at=time,
            vcpu_used=model.Distribution(avg=2.0 if 3 <= minute < 8 else 0.4, max=2.0),
            memory_used_mb=model.Distribution(avg=300 + 200 * minute, max=320 + 200 * minute),
        )
        if minute != 5:
            found.append(replace(last, time=time, record=replace(last.record, interval=interval)))
    return tuple(found)


def gpu() -> model.Report:
    """Training on four GPUs, one of which was never used."""
    gpus = tuple(
        model.Gpu(uuid=f"GPU-{number}", index=number, name="NVIDIA H100 80GB HBM3",
            utilization_percent=model.Distribution(avg=use, p95=min(use * 1.2, 100), max=min(use * 1.25, 100)),
            utilization_source="driver-samples",
            sm_active_percent=model.Distribution(avg=use / 2, max=use),
            idle_seconds=11.82 * (98 - use), idle_percent=98 - use,
            memory_used_mb=model.Distribution(avg=use * 100, max=use * 800), memory_size_mb=81559)
        for number, use in enumerate((81.0, 79.0, 80.0, 0.0))
    )  # fmt: skip
    waiting_for = activity.TimeBreakdown(
        on_cpu_percent=31, disk_percent=48, sleep_percent=2, other_percent=19,
        waiting_for=(activity.WaitTarget(kind="disk", target="/data/train.tar", percent=45),), covered_percent=100,
    )  # fmt: skip
    idle = model.GpuIdle(percent=38, gpu_hours=0.499067, usd=1.226, waiting_for=waiting_for)
    with_gpu = series(119, 3310, gpu=[60 + step % 30 for step in range(119)])
    return etl(
        "6b0a11ee",
        gpus=gpus,
        gpu_idle=idle,
        launch_type="EC2",
        family="train",
        cost=UNKNOWN_COST,
        series=with_gpu,
    )


def neuron() -> model.Report:
    """Inference on two NeuronCores."""
    cores = tuple(
        model.NeuronCore(
            index=index, utilization_percent=model.Distribution(avg=44.0 + index, p95=90, max=98)
        )
        for index in range(2)
    )
    devices = model.Neuron(
        cores=cores,
        device_memory_used_mb=model.Distribution(avg=6000, max=7000),
        device_memory_size_mb=16384,
    )
    with_neuron = series(119, 3310, neuron=[40 + step % 9 for step in range(119)])
    return etl(
        "7c2211aa",
        launch_type="EC2",
        family="infer",
        cost=UNKNOWN_COST,
        neuron=devices,
        series=with_neuron,
    )


def local() -> model.Report:
    """``task-profiler run`` on a laptop, with a child process that was killed."""
    unmeasured = ("billed_duration_ms", "init_duration_ms", "network_rx_bytes", "network_tx_bytes")
    known: dict[str, Any] = {
        "memory_peak_source": "kernel",
        "memory_cache_mb": model.AverageAndMaximum(max=900),
    }
    place = (
        "task_arn",
        "cluster",
        "revision",
        "region",
        "account_id",
        "availability_zone",
        "log_group",
        "log_stream",
    )
    record: dict[str, Any] = {
        "launch_type": "LOCAL",
        "labels": {"host": "laptop", "user": "ann", "gitCommit": "0123456789abcdef"},
        "metrics": replace(etl().record.metrics, **known | dict.fromkeys(unmeasured)),
        "likely_out_of_memory": True,
        "memory_kills": model.MemoryKills(
            count=2, processes=(model.Process(name="worker", max_memory_used_mb=2100),)
        ),
    }
    absent: dict[str, Any] = dict.fromkeys(place)
    absent["task_size"] = model.UNKNOWN_SIZE
    absent["cost"] = model.UNKNOWN_COST
    absent["recommendation"] = model.NO_RECOMMENDATION
    return etl("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", **record | absent)


def unmeasured() -> model.Report:
    """A run that ended before its first sample."""
    return etl("00000001", metrics=model.Metrics(duration_ms=400), series=None, processes=(),
               recommendation=NO_RECOMMENDATION, cost=UNKNOWN_COST, sampling=model.Sampling(samples=0), finished_at=None)  # fmt: skip


def night() -> tuple[model.Report, ...]:
    return (out_of_memory(), etl(days_ago=1), etl("2f6b7788", days_ago=2))


def stuck_notice() -> notices.NoticeLine:
    """The batch of :func:`waiting` has waited for its database for half an hour."""
    run = waiting().record
    return notices.NoticeLine(
        time=at(45 * 60),
        notice=notices.Notice(
            kind="stuck",
            message="The run used less than 0.01 vCPU and 1 KB/s of network and disk for 30 minutes; "
            "it has waited mostly for the network (10.0.3.9:5432).",
            since=at(900),
            evidence=notices.NoticeEvidence(
                minutes=30,
                vcpu_used=0.004,
                network_bytes_per_second=212,
                block_bytes_per_second=0,
                waiting_for="the network (10.0.3.9:5432)",
            ),
        ),
        record=replace(
            running().record, task_id=run.task_id, task_arn=run.task_arn, log_stream=run.log_stream
        ),
    )


def missed_notice() -> notices.ScheduleNoticeLine:
    """The schedule of nightly-etl started no task."""
    return notices.ScheduleNoticeLine(
        time="2026-11-20T03:15:12.000Z",
        notice=notices.ScheduleNotice(
            kind="missed",
            message="nightly-etl was due at 03:00 and no task was started: "
            "RunTask was refused, because the capacity is unavailable at this time.",
            due_at="2026-11-20T03:00:00.000Z",
            reason="RunTask was refused, because the capacity is unavailable at this time.",
        ),
        schedule=notices.NoticedSchedule(
            kind="schedule",
            name="nightly-etl",
            group="default",
            expression="cron(0 3 * * ? *)",
            time_zone="UTC",
        ),
        cluster="jobs",
        family="nightly-etl",
        region="us-west-2",
        account_id="111122223333",
    )
