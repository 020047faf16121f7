"""Simulated past runs for screenshots and tests. The same seed gives the same runs."""

import math
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec import Struct

from profiler.core.timestamps import format_ms
from profiler.record.record_model import (
    NO_READINGS,
    AverageAndMaximum,
    Container,
    Distribution,
    Gpu,
    Metrics,
    Record,
    Report,
)
from profiler.record.run_outcome import Status

SEED = 20261120
END = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
_MB = 2**20
_KILLED = 137
_FAILED = 1
_IDLE_FROM = 0.42
_IDLE_UNTIL = 0.5
_GPU_MEMORY_MB = 24_576
_MEAN_SHARE = 0.75


class Batch(Struct, frozen=True, kw_only=True):
    """Parameters of the runs of one family.

    ``cpu``, ``memory`` and ``gpu`` are shares of the size, as are ``mapped_files``, the most that
    is kept of them.
    """

    family: str
    hours: tuple[int, ...]
    minutes: float
    vcpu: float
    memory_mb: int
    cpu: float
    memory: float
    growth: float = 0.0
    failure_rate: float = 0.01
    read_mb_s: float = 1.6
    written_mb_s: float = 0.4
    gpu: float | None = None
    has_neuron: bool = False
    mapped_files: float = 0.0
    huge_pages_mb: float = 0.0

    @property
    def has_accelerator(self) -> bool:
        """Whether it needs an instance: Fargate has neither GPUs nor NeuronCores."""
        return self.gpu is not None or self.has_neuron

    @property
    def mapped_file_memory_mb(self) -> AverageAndMaximum:
        """What is kept of mapped files."""
        most_mb = round(self.mapped_files * self.memory_mb, 1)
        return AverageAndMaximum(avg=round(_MEAN_SHARE * most_mb, 1), max=most_mb)

    @property
    def held_pages_mb(self) -> AverageAndMaximum:
        """The huge pages, if there are any."""
        if not self.huge_pages_mb:
            return NO_READINGS
        return AverageAndMaximum(avg=self.huge_pages_mb, max=self.huge_pages_mb)


BATCHES = (
    Batch(
        family="nightly-etl",
        hours=(2,),
        minutes=42,
        vcpu=2,
        memory_mb=4096,
        cpu=0.72,
        memory=0.66,
        growth=0.28,
        read_mb_s=24,
        written_mb_s=9,
    ),
    Batch(
        family="invoice-export",
        hours=(5,),
        minutes=6.5,
        vcpu=1,
        memory_mb=2048,
        cpu=0.34,
        memory=0.31,
    ),
    Batch(
        family="search-index",
        hours=(0, 6, 12, 18),
        minutes=18,
        vcpu=4,
        memory_mb=8192,
        cpu=0.88,
        memory=0.47,
        mapped_files=0.3,
    ),
    Batch(
        family="thumbnails",
        hours=tuple(range(0, 24, 3)),
        minutes=2.2,
        vcpu=1,
        memory_mb=1024,
        cpu=0.93,
        memory=0.72,
    ),
    Batch(
        family="train-ranker",
        hours=(21,),
        minutes=95,
        vcpu=8,
        memory_mb=32768,
        cpu=0.55,
        memory=0.81,
        failure_rate=0.08,
        read_mb_s=60,
        written_mb_s=3,
        gpu=0.86,
        huge_pages_mb=2048,
    ),
    Batch(
        family="mail-digest",
        hours=(7, 16),
        minutes=0.8,
        vcpu=0.5,
        memory_mb=1024,
        cpu=0.12,
        memory=0.17,
    ),
    Batch(
        family="geo-tiles",
        hours=(3, 15),
        minutes=27,
        vcpu=2,
        memory_mb=4096,
        cpu=0.63,
        memory=0.54,
        failure_rate=0.06,
    ),
    Batch(
        family="db-vacuum", hours=(4,), minutes=11, vcpu=1, memory_mb=2048, cpu=0.21, memory=0.22
    ),
)


class UsageStep(NamedTuple):
    """The usage in one step, as the history's JSON keeps it."""

    elapsed_ms: int
    vcpu_used: float
    memory_used_bytes: int
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None


def generate_runs(
    count: int, *, batches: Sequence[Batch] = BATCHES, max_points: int = 2000, seed: int = SEED
) -> Iterator[tuple[Report, tuple[UsageStep, ...]]]:
    """Yield the last ``count`` runs of these batches before ``END``, oldest first."""
    rng = random.Random(seed)
    starts: list[tuple[datetime, Batch]] = []
    day = 0
    while len(starts) < count:
        midnight = END.replace(hour=0) - timedelta(days=day)
        for batch in batches:
            starts += [
                (midnight + timedelta(hours=hour, seconds=rng.uniform(0, 240)), batch)
                for hour in batch.hours
                if midnight + timedelta(hours=hour, minutes=2 * batch.minutes) < END
            ]
        day += 1
    latest = sorted(starts, key=lambda start: start[0])[-count:]
    for index, (started_at, batch) in enumerate(latest):
        yield _generate_run(batch, started_at, index / max(count - 1, 1), rng, max_points)


def _generate_run(
    batch: Batch, started_at: datetime, progress: float, rng: random.Random, max_points: int
) -> tuple[Report, tuple[UsageStep, ...]]:
    duration_ms = int(batch.minutes * 60_000 * rng.lognormvariate(0, 0.18))
    level = min(batch.memory + batch.growth * progress + rng.gauss(0, 0.03), 1.05)
    status, exit_code, is_killed = draw_outcome(level, batch, rng)
    if status == "failure":
        duration_ms = int(duration_ms * rng.uniform(0.3, 0.9))
    points = _usage_steps(
        batch, duration_ms, 0.995 if is_killed else min(level, 0.97), rng, max_points
    )
    started_ns = int(started_at.timestamp()) * 1_000_000_000
    record = Record(
        task_id=f"{rng.getrandbits(128):032x}",
        family=batch.family,
        launch_type="LOCAL",
        container=Container(name="batch"),
        labels={"git.commit": f"{rng.getrandbits(28):07x}", "host": "batch-1"},
        status=status,
        exit_code=exit_code,
        likely_out_of_memory=is_killed,
        started_at=format_ms(started_ns),
        finished_at=format_ms(started_ns + duration_ms * 1_000_000),
        metrics=_metrics(batch, duration_ms, points),
        gpus=_gpus(points),
    )
    return Report(
        time=format_ms(started_ns + (duration_ms + 40) * 1_000_000),
        type="task.report",
        record=record,
    ), points


def draw_outcome(level: float, batch: Batch, rng: random.Random) -> tuple[Status, int, bool]:
    """Draw status, exit code and whether memory ran out; ``level`` is the memory peak as a share
    of the size.
    """
    if level > 1:
        return "failure", _KILLED, True
    if rng.random() < batch.failure_rate:
        return "failure", _FAILED, False
    return "success", 0, False


def _usage_steps(
    batch: Batch, duration_ms: int, level: float, rng: random.Random, max_points: int
) -> tuple[UsageStep, ...]:
    step_ms = max(1000, duration_ms // max_points)
    points = []
    for elapsed_ms in range(step_ms, duration_ms + 1, step_ms):
        share = elapsed_ms / duration_ms
        wave = 0.16 * math.sin(share * 19) + (-0.45 if _IDLE_FROM < share < _IDLE_UNTIL else 0)
        cpu = min(max(batch.cpu + wave + rng.gauss(0, 0.05), 0.01), 1.02)
        memory = level * (0.22 + 0.78 * min(share * 1.15, 1) ** 0.7) * (1 + rng.gauss(0, 0.006))
        point = UsageStep(
            elapsed_ms=elapsed_ms,
            vcpu_used=round(cpu * batch.vcpu, 4),
            memory_used_bytes=int(min(memory, 0.998) * batch.memory_mb * _MB),
        )
        points.append(_with_devices(point, batch, share, step_ms))
    return tuple(points)


def _with_devices(point: UsageStep, batch: Batch, share: float, step_ms: int) -> UsageStep:
    """Add block I/O and GPU usage: reads at the beginning and after the idle phase, writes
    towards the end.
    """
    is_idle = _IDLE_FROM < share < _IDLE_UNTIL
    reads = 0.05 if is_idle else max(math.cos(share * 17) + 0.6, 0) * (1.2 - share)
    writes = max(math.sin(share * 31), 0) * share * 2
    mb_a_step = step_ms / 1000 * _MB
    point = point._replace(
        block_read_bytes=int(batch.read_mb_s * reads * mb_a_step),
        block_write_bytes=int(batch.written_mb_s * writes * mb_a_step),
    )
    if batch.gpu is None:
        return point
    if is_idle:
        utilization = 0.04
    else:
        utilization = batch.gpu * min(share * 6, 1) * (0.93 + 0.07 * math.sin(share * 160))
    gpu_memory_mb = _GPU_MEMORY_MB * (0.12 + 0.7 * min(share * 5, 1))
    return point._replace(
        gpu_percent=round(100 * utilization, 2), gpu_memory_bytes=int(gpu_memory_mb * _MB)
    )


def _gpus(points: Sequence[UsageStep]) -> tuple[Gpu, ...]:
    percents = [point.gpu_percent for point in points if point.gpu_percent is not None]
    if not percents:
        return ()
    gpu_memory_mb = max(point.gpu_memory_bytes or 0 for point in points) / _MB
    return (
        Gpu(
            uuid="GPU-6b1d",
            name="NVIDIA A10G",
            utilization_percent=Distribution(
                avg=round(sum(percents) / len(percents), 3), max=max(percents)
            ),
            memory_used_mb=Distribution(max=round(gpu_memory_mb, 3)),
            memory_size_mb=_GPU_MEMORY_MB,
        ),
    )


def _metrics(batch: Batch, duration_ms: int, points: Sequence[UsageStep]) -> Metrics:
    vcpus = sorted(point.vcpu_used or 0 for point in points)
    memory_bytes = [point.memory_used_bytes or 0 for point in points]
    if not points:
        return Metrics(
            duration_ms=duration_ms, memory_size_mb=batch.memory_mb, vcpu_size=batch.vcpu
        )
    vcpu = Distribution(
        avg=round(sum(vcpus) / len(vcpus), 4),
        p95=vcpus[int(0.95 * (len(vcpus) - 1))],
        max=vcpus[-1],
    )
    average_mb = sum(memory_bytes) / len(memory_bytes) / _MB
    return Metrics(
        duration_ms=duration_ms,
        memory_size_mb=batch.memory_mb,
        max_memory_used_mb=round(max(memory_bytes) / _MB, 2),
        memory_peak_source="sampled",
        vcpu_size=batch.vcpu,
        cpu_seconds=round((vcpu.avg or 0) * duration_ms / 1000, 3),
        vcpu_used=vcpu,
        cpu_utilization_percent=Distribution(avg=round(100 * (vcpu.avg or 0) / batch.vcpu, 3)),
        memory_used_mb=Distribution(avg=round(average_mb, 3)),
        memory_utilization_percent=Distribution(avg=round(100 * average_mb / batch.memory_mb, 3)),
        memory_mapped_file_mb=batch.mapped_file_memory_mb,
        memory_huge_pages_mb=batch.held_pages_mb,
        block_read_bytes=sum(point.block_read_bytes or 0 for point in points),
        block_write_bytes=sum(point.block_write_bytes or 0 for point in points),
    )
