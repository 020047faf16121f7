"""The record of one simulated run, with all fields that a monitor on Fargate writes."""

import math
import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import format_ms
from profiler.record.record_model import (
    NO_RECOMMENDATION,
    UNKNOWN_COST,
    AverageAndMaximum,
    Container,
    Cost,
    Distribution,
    Gpu,
    GpuIdle,
    Interval,
    Metrics,
    Monitor,
    OtherContainer,
    Recommendation,
    Record,
    Report,
    Sampling,
    TaskSize,
)
from profiler.record.run_outcome import Status
from tools.example_runs import Batch

REGION = "us-east-1"
ACCOUNT = "111122223333"
CLUSTER = "jobs"
# List price in us-east-1 for Linux on x86, 2026-03.
_USD_PER_VCPU_HOUR = 0.04048
_USD_PER_GIB_HOUR = 0.004445
_MS_PER_HOUR = 3_600_000
_MIN_BILLED_MS = 60_000
_CHECKPOINT_SECONDS = 60
_STATS_PERIOD_MS = 10_000
_DAYS_PER_DEPLOYMENT = 10
_MEMORY_MARGIN = 1.2
GPU_MEMORY_MB = 81_559
# Shares of a run before and after its work on the GPU.
_GPU_BEFORE, _GPU_AFTER = 0.04, 0.01
_SM_SHARE = 0.62  # of the time in which a kernel ran
_READ_FILES_MB = 96
_MB = 2**20


class RunProfile(Struct, frozen=True, kw_only=True):
    """Parameters of one run. ``cpu`` is the mean and ``memory`` the peak, as shares of the size."""

    status: Status
    exit_code: int | None
    is_killed: bool
    duration_ms: int
    init_ms: int
    cpu: float
    memory: float


def generate_report(
    batch: Batch, profile: RunProfile, started_at: datetime, rng: random.Random
) -> Report:
    """Generate the report of a run, with a time shortly after its end."""
    started_ns = round(started_at.timestamp() * 1000) * 1_000_000
    finished_ns = started_ns + profile.duration_ms * 1_000_000
    task_id = f"{rng.getrandbits(128):032x}"
    metrics = _generate_metrics(batch, profile, rng)
    deployment = deployment_at(started_at)
    record = Record(
        task_id=task_id,
        task_arn=f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/{CLUSTER}/{task_id}",
        cluster=CLUSTER,
        family=batch.family,
        revision=str(deployment),
        region=REGION,
        account_id=ACCOUNT,
        availability_zone=REGION + rng.choice("abc"),
        launch_type="EC2" if batch.has_accelerator else "FARGATE",
        cpu_architecture="X86_64",
        container=Container(
            name="batch",
            id=f"{task_id}-{rng.randrange(10**10):010d}",
            arn=f"arn:aws:ecs:{REGION}:{ACCOUNT}:container/{CLUSTER}/{task_id}/"
            f"{rng.getrandbits(64):016x}",
            image=f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{batch.family}:{deployment}",
            image_digest=f"sha256:{random.Random(batch.family).getrandbits(256):064x}",
        ),
        log_group=f"/ecs/{batch.family}",
        log_stream=f"ecs/batch/{task_id}",
        status=profile.status,
        exit_code=profile.exit_code,
        likely_out_of_memory=profile.is_killed,
        started_at=format_ms(started_ns),
        finished_at=format_ms(finished_ns),
        sampling=Sampling(
            interval_ms=1000,
            samples=profile.duration_ms // _STATS_PERIOD_MS + 1,
            duplicates=profile.duration_ms * 9 // _STATS_PERIOD_MS,
            failures=0,
            longest_gap_ms=rng.randint(10_000, 10_090),
            stats_period_ms=_STATS_PERIOD_MS,
            sources=("task-metadata-v4", *_device_metric_sources(batch)),
        ),
        metrics=metrics,
        containers=(_monitor_container(rng),),
        gpus=() if batch.gpu is None else (_generate_gpu(batch.gpu, profile.duration_ms, rng),),
        gpu_idle=None if batch.gpu is None else _gpu_idle(batch.gpu, profile.duration_ms),
        task_size=TaskSize(vcpu=batch.vcpu, memory_mb=batch.memory_mb),
        cost=_fargate_cost(batch, metrics),
        recommendation=_recommend_half(batch, metrics),
        monitor=Monitor(
            version="0.1.0",
            cpu_seconds=round(profile.duration_ms / 8e5 + 0.2, 3),
            max_rss_mb=28.7,
            restarts=0,
        ),
    )
    return Report(time=format_ms(finished_ns + 60_000_000), type="task.report", record=record)


def deployment_at(moment: datetime) -> int:
    """The number of the deployment that a moment's runs have: their image's and revision's."""
    return moment.toordinal() // _DAYS_PER_DEPLOYMENT % 100


def checkpoints_before(final_report: Report) -> Iterator[Report]:
    """Yield the checkpoints that the monitor writes each minute before this report."""
    record = final_report.record
    metrics = final_report.record.metrics
    duration_ms = int(metrics.duration_ms or 0)
    started_at = datetime.fromisoformat(record.started_at or "")
    for number in range(1, duration_ms // (1000 * _CHECKPOINT_SECONDS) + 1):
        elapsed_ms = number * _CHECKPOINT_SECONDS * 1000
        now = _timestamp(started_at, elapsed_ms)
        share = elapsed_ms / duration_ms
        so_far = replace(
            metrics,
            duration_ms=elapsed_ms,
            billed_duration_ms=None,
            cpu_seconds=round((metrics.cpu_seconds or 0) * share, 3),
            network_rx_bytes=int((metrics.network_rx_bytes or 0) * share),
            network_tx_bytes=int((metrics.network_tx_bytes or 0) * share),
            block_read_bytes=int((metrics.block_read_bytes or 0) * share),
            block_write_bytes=int((metrics.block_write_bytes or 0) * share),
        )
        interval = Interval(
            started_at=_timestamp(started_at, elapsed_ms - _CHECKPOINT_SECONDS * 1000),
            finished_at=now,
            cpu_seconds=round(
                (metrics.cpu_seconds or 0) * _CHECKPOINT_SECONDS * 1000 / duration_ms, 3
            ),
            vcpu_used=metrics.vcpu_used,
            cpu_utilization_percent=metrics.cpu_utilization_percent,
            memory_used_mb=metrics.memory_used_mb,
            memory_utilization_percent=metrics.memory_utilization_percent,
        )
        running = replace(
            record,
            status="running",
            exit_code=None,
            likely_out_of_memory=None,
            likely_out_of_gpu_memory=None,
            gpu_memory_evidence=None,
            finished_at=None,
            metrics=so_far,
            interval=interval,
            cost=UNKNOWN_COST,
            recommendation=NO_RECOMMENDATION,
        )
        yield Report(time=now, type="task.checkpoint", record=running)


def _timestamp(started_at: datetime, elapsed_ms: int) -> str:
    return format_ms(
        round((started_at + timedelta(milliseconds=elapsed_ms)).timestamp() * 1000) * 1_000_000
    )


def _generate_metrics(batch: Batch, profile: RunProfile, rng: random.Random) -> Metrics:
    vcpu = _draw_distribution(profile.cpu * batch.vcpu, batch.vcpu, rng)
    peak_mb = round(profile.memory * batch.memory_mb, 2)
    memory = _draw_distribution(peak_mb * rng.uniform(0.55, 0.9), peak_mb, rng)
    seconds = profile.duration_ms / 1000
    return Metrics(
        duration_ms=profile.duration_ms,
        billed_duration_ms=max(
            -(-(profile.init_ms + profile.duration_ms) // 1000) * 1000, _MIN_BILLED_MS
        ),
        memory_size_mb=batch.memory_mb,
        max_memory_used_mb=peak_mb,
        init_duration_ms=profile.init_ms,
        vcpu_size=batch.vcpu,
        cpu_seconds=round((vcpu.avg or 0) * seconds, 3),
        vcpu_used=vcpu,
        cpu_utilization_percent=_percent_of_size(vcpu, batch.vcpu),
        memory_used_mb=memory,
        memory_utilization_percent=_percent_of_size(memory, batch.memory_mb),
        memory_peak_source="sampled",
        memory_cache_mb=_mapped_and_read_files(batch),
        memory_mapped_file_mb=batch.mapped_file_memory_mb,
        memory_huge_pages_mb=batch.held_pages_mb,
        network_rx_bytes=int(batch.read_mb_s * _MB * seconds * rng.random()),
        network_tx_bytes=int(batch.written_mb_s * _MB * seconds * rng.random()),
        block_read_bytes=int(batch.read_mb_s * _MB * seconds * rng.random() / 8),
        block_write_bytes=int(batch.written_mb_s * _MB * seconds * rng.random() / 8),
        max_pids=max(rng.randint(1, 40), math.ceil(vcpu.max or 0)),
        ephemeral_storage_used_mb=rng.randint(200, 2000),
        ephemeral_storage_size_mb=20_496,
    )


def _mapped_and_read_files(batch: Batch) -> AverageAndMaximum:
    """What the kernel could drop: the mapped files and others that were read."""
    files = batch.mapped_file_memory_mb
    return AverageAndMaximum(
        avg=(files.avg or 0) + _READ_FILES_MB / 2, max=(files.max or 0) + _READ_FILES_MB
    )


def _draw_distribution(average: float, maximum: float, rng: random.Random) -> Distribution:
    """Draw a distribution with this average and this maximum."""
    p95, p99 = (
        average + (maximum - average) * share
        for share in (rng.uniform(0.5, 0.85), rng.uniform(0.85, 1))
    )
    p50 = average * rng.uniform(0.9, 1)
    values = [round(value, 4) for value in (average, p50, p95, p99, maximum)]
    return Distribution(avg=values[0], p50=values[1], p95=values[2], p99=values[3], max=values[4])


def _percent_of_size(used: Distribution, size: float) -> Distribution:
    shares = [
        None if value is None else round(100 * value / size, 3)
        for value in (used.avg, used.p50, used.p95, used.p99, used.max)
    ]
    return Distribution(avg=shares[0], p50=shares[1], p95=shares[2], p99=shares[3], max=shares[4])


def _monitor_container(rng: random.Random) -> OtherContainer:
    memory_mb_used = round(rng.uniform(27, 31), 2)
    return OtherContainer(
        name="task-monitor",
        status="RUNNING",
        metrics=Metrics(
            memory_size_mb=128,
            max_memory_used_mb=memory_mb_used,
            vcpu_used=Distribution(avg=0.0013, p50=0.0012, p95=0.002, p99=0.0031, max=0.0334),
            memory_used_mb=Distribution(avg=memory_mb_used - 1, max=memory_mb_used),
            memory_peak_source="sampled",
        ),
    )


def _device_metric_sources(batch: Batch) -> tuple[str, ...]:
    if batch.has_neuron:
        return ("neuron-monitor",)
    return () if batch.gpu is None else ("nvml",)


def _generate_gpu(utilization: float, duration_ms: int, rng: random.Random) -> Gpu:
    percent = Distribution(
        avg=round(100 * utilization, 2), p95=round(min(100 * utilization * 1.2, 100), 2), max=100.0
    )
    seconds = duration_ms / 1000
    idle_seconds = seconds * (1 - utilization)
    before_seconds, after_seconds = seconds * _GPU_BEFORE, seconds * _GPU_AFTER
    return Gpu(
        uuid=f"GPU-{rng.getrandbits(128):032x}",
        index=0,
        name="NVIDIA H100 80GB HBM3",
        utilization_percent=percent,
        utilization_source="driver-samples",
        shared=False,
        sm_active_percent=Distribution(avg=round(100 * utilization * _SM_SHARE, 2), max=97.0),
        idle_seconds=round(idle_seconds, 3),
        idle_percent=round(100 * (1 - utilization), 2),
        first_used_seconds=round(before_seconds, 3),
        last_used_seconds=round(seconds - after_seconds, 3),
        idle_before_seconds=round(before_seconds, 3),
        idle_between_seconds=round(idle_seconds - before_seconds - after_seconds, 3),
        idle_after_seconds=round(after_seconds, 3),
        memory_used_mb=Distribution(
            avg=GPU_MEMORY_MB * 0.5, max=round(GPU_MEMORY_MB * rng.uniform(0.5, 0.95), 1)
        ),
        memory_size_mb=GPU_MEMORY_MB,
        energy_joules=round(rng.uniform(1e4, 1e6), 1),
    )


def _gpu_idle(utilization: float, duration_ms: int) -> GpuIdle:
    percent = 100 * (1 - utilization)
    return GpuIdle(
        percent=round(percent, 2),
        before_percent=100 * _GPU_BEFORE,
        between_percent=round(percent - 100 * (_GPU_BEFORE + _GPU_AFTER), 2),
        after_percent=100 * _GPU_AFTER,
        gpu_hours=round(duration_ms * (1 - utilization) / _MS_PER_HOUR, 3),
    )


def _fargate_cost(batch: Batch, metrics: Metrics) -> Cost:
    """The cost of a run on Fargate. A run on EC2 has no cost."""
    if batch.has_accelerator:
        return UNKNOWN_COST
    hours = (metrics.billed_duration_ms or 0) / _MS_PER_HOUR
    usd = round(hours * _usd_per_hour(batch.vcpu, batch.memory_mb), 6)
    return Cost(usd=usd, price_basis=f"{REGION} FARGATE X86_64 2026-03")


def _recommend_half(batch: Batch, metrics: Metrics) -> Recommendation:
    """Recommend half the memory if Fargate offers it for this vCPU size and the peak fits with a
    margin.
    """
    smaller_mb = max(batch.memory_mb // 2, int(1024 * 2 * batch.vcpu))
    needed_mb = _MEMORY_MARGIN * (metrics.max_memory_used_mb or 0)
    if batch.has_accelerator or smaller_mb >= batch.memory_mb or needed_mb > smaller_mb:
        return NO_RECOMMENDATION
    saving = 1 - _usd_per_hour(batch.vcpu, smaller_mb) / _usd_per_hour(batch.vcpu, batch.memory_mb)
    return Recommendation(
        vcpu=batch.vcpu,
        memory_mb=smaller_mb,
        saving_percent=round(100 * saving, 1),
        reasons=(
            (
                f"The peak of {metrics.max_memory_used_mb} MB with 20 % to spare fits into "
                f"{smaller_mb} MB."
            ),
        ),
    )


def _usd_per_hour(vcpu: float, memory_mb: float) -> float:
    return vcpu * _USD_PER_VCPU_HOUR + memory_mb / 1024 * _USD_PER_GIB_HOUR
