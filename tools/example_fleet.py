"""The account of the pictures: 40 families of batches, and the course of their runs.

The same seed gives the same course.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final
from uuid import NAMESPACE_DNS, uuid5

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.slowdown import CpuDemand
from profiler.core.optional_math import known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.batch_job import BatchJob
from profiler.record.record_model import Distribution, Metrics, Series
from tools.example_runs import Batch

# In the morning after the last night of the pictures whose time is fixed.
MORNING: Final = datetime(2026, 11, 20, 8, tzinfo=UTC)

_HOURLY: Final = tuple(range(24))
_NIGHT: Final = (1,)
_MORNING_AND_EVENING: Final = (5, 17)
_SHIFTS: Final = (2, 10, 18)
_SIX_HOURLY: Final = (0, 6, 12, 18)
_FOUR_HOURLY: Final = (1, 5, 9, 13, 17, 21)
_MAX_POINTS: Final = 120
_WAITING_CPU: Final = 0.0003
_THREADS: Final = (1, 2, 4, 8, 16)
# What a program can use at least, as a multiple of what it uses on average.
_BUSIEST: Final = 1.05

# Family, hours, minutes, vCPU, memory in GiB, mean CPU and memory peak as shares, growth of the
# memory over the week, share of failures.
_FAMILIES: Final = (
    ("nightly-etl", _NIGHT, 92, 4, 8, 0.72, 0.74, 0.3, 0.01),
    ("orders-to-warehouse", _HOURLY, 11, 2, 8, 0.44, 0.31, 0, 0.01),
    ("clickstream-rollup", tuple(range(0, 24, 2)), 24, 4, 16, 0.66, 0.58, 0, 0.02),
    ("thumbnails", tuple(range(0, 24, 3)), 16, 2, 4, 0.93, 0.72, 0, 0.01),
    ("search-index", _FOUR_HOURLY, 38, 4, 16, 0.85, 0.47, 0, 0.02),
    ("geo-tiles", _FOUR_HOURLY, 57, 8, 32, 0.31, 0.22, 0, 0.05),
    ("price-import", _SIX_HOURLY, 19, 2, 8, 0.22, 0.28, 0, 0.03),
    ("stock-sync", _SIX_HOURLY, 9, 1, 4, 0.18, 0.21, 0, 0.06),
    ("log-compaction", _SIX_HOURLY, 31, 2, 16, 0.37, 0.35, 0, 0.01),
    ("fraud-scores", _SIX_HOURLY, 44, 8, 32, 0.61, 0.66, 0.12, 0.02),
    ("mail-digest", _SHIFTS, 7, 0.5, 2, 0.12, 0.27, 0, 0.01),
    ("currency-rates", _SHIFTS, 4, 0.25, 1, 0.09, 0.24, 0, 0.02),
    ("session-export", _SHIFTS, 48, 4, 16, 0.28, 0.33, 0, 0.02),
    ("invoice-export", _MORNING_AND_EVENING, 26, 2, 8, 0.48, 0.62, 0, 0.01),
    ("ledger-close", _MORNING_AND_EVENING, 74, 4, 30, 0.52, 0.83, 0.16, 0.02),
    ("partner-feeds", _MORNING_AND_EVENING, 35, 2, 4, 0.41, 0.91, 0.12, 0.04),
    ("recommendations", _MORNING_AND_EVENING, 112, 8, 32, 0.78, 0.69, 0, 0.02),
    ("image-moderation", _MORNING_AND_EVENING, 63, 4, 8, 0.88, 0.55, 0, 0.01),
    ("video-transcode", _MORNING_AND_EVENING, 131, 16, 32, 0.94, 0.41, 0, 0.03),
    ("address-cleanup", _MORNING_AND_EVENING, 22, 2, 8, 0.16, 0.19, 0, 0.01),
    ("db-vacuum", _NIGHT, 41, 2, 8, 0.21, 0.22, 0, 0.01),
    ("db-backup", _NIGHT, 85, 2, 4, 0.34, 0.38, 0, 0.01),
    ("customer-360", _NIGHT, 158, 8, 60, 0.57, 0.62, 0.05, 0.03),
    ("churn-features", _NIGHT, 96, 8, 60, 0.24, 0.26, 0, 0.01),
    ("attribution", _NIGHT, 121, 4, 30, 0.63, 0.71, 0.18, 0.02),
    ("ad-reports", _NIGHT, 47, 4, 16, 0.33, 0.29, 0, 0.02),
    ("tax-documents", _NIGHT, 52, 2, 8, 0.29, 0.36, 0, 0.01),
    ("gdpr-erasure", _NIGHT, 33, 1, 4, 0.14, 0.18, 0, 0.01),
    ("catalog-diff", _NIGHT, 28, 2, 16, 0.46, 0.52, 0, 0.02),
    ("sitemap", _NIGHT, 14, 1, 2, 0.51, 0.44, 0, 0.01),
    ("inventory-forecast", _NIGHT, 142, 8, 32, 0.81, 0.77, 0, 0.02),
    ("route-planning", _NIGHT, 107, 16, 60, 0.48, 0.31, 0, 0.02),
    ("sensor-downsample", _NIGHT, 66, 4, 16, 0.74, 0.63, 0, 0.01),
    ("payroll", _NIGHT, 39, 2, 8, 0.26, 0.41, 0, 0.01),
    ("a-b-tests", _NIGHT, 58, 4, 30, 0.35, 0.24, 0, 0.02),
    ("label-sync", _NIGHT, 12, 0.5, 1, 0.38, 0.66, 0, 0.03),
    ("support-summaries", _NIGHT, 45, 2, 8, 0.59, 0.49, 0, 0.02),
    ("audit-archive", _NIGHT, 71, 1, 8, 0.31, 0.23, 0, 0.01),
    ("train-ranker", _NIGHT, 175, 8, 32, 0.55, 0.81, 0, 0.05),
    ("embed-texts", _NIGHT, 98, 8, 32, 0.4, 0.5, 0, 0.01),
)
_GPU_SHARES: Final = {"train-ranker": 0.86}
# What of their files they keep mapped, as shares of the memory; in MB, huge pages.
_MAPPED_FILES: Final = {"search-index": 0.32, "geo-tiles": 0.41, "nightly-etl": 0.12}
_HUGE_PAGES_MB: Final = {"fraud-scores": 2048}
_NEURON_FAMILY: Final = "embed-texts"
# Job definitions of AWS Batch, with the queue of their jobs.
JOB_QUEUES: Final = {
    "image-moderation": "media-spot",
    "video-transcode": "media-spot",
    "sensor-downsample": "science",
}
# Families that were resized on a day of the week, from twice the size.
RESIZED: Final = {"invoice-export": 2, "search-index": 3, "support-summaries": 4, "label-sync": 2}


def _batch(
    row: tuple[str, Sequence[int], float, float, float, float, float, float, float],
) -> Batch:
    family, hours, minutes, vcpu, memory_gib, cpu, memory, growth, failure_rate = row
    return Batch(
        family=family,
        hours=tuple(hours),
        minutes=minutes,
        vcpu=vcpu,
        memory_mb=int(memory_gib * 1024),
        cpu=cpu,
        memory=memory,
        growth=growth,
        failure_rate=failure_rate,
        gpu=_GPU_SHARES.get(family),
        has_neuron=family == _NEURON_FAMILY,
        mapped_files=_MAPPED_FILES.get(family, 0),
        huge_pages_mb=_HUGE_PAGES_MB.get(family, 0),
    )


FLEET: Final = tuple(map(_batch, _FAMILIES))


def job_of(family: str, started_at: datetime, revision: str | None) -> BatchJob | None:
    """The job of AWS Batch of which the run of a family is the only attempt; None for tasks.

    ``revision``: the number of the job definition's revision.
    """
    queue = JOB_QUEUES.get(family)
    if queue is None:
        return None
    named = f"{family}-{started_at:%Y-%m-%d-%H}"
    return BatchJob(
        job_id=str(uuid5(NAMESPACE_DNS, named)),
        job_name=named,
        job_definition=family,
        job_definition_revision=known(int, revision),
        queue=queue,
        compute_environment=queue,
        attempt=1,
    )


def cluster_of(job: BatchJob) -> str:
    """The cluster that AWS Batch makes for the job's compute environment."""
    environment = str(job.compute_environment)
    return f"AWSBatch-{environment}-{uuid5(NAMESPACE_DNS, environment)}"


class UsageCourse(Struct, frozen=True, kw_only=True):
    """CPU and memory of a run as shares of its size, in equal steps."""

    cpu: tuple[float, ...]
    memory: tuple[float, ...]

    def step_at(self, elapsed: float) -> int:
        """The step at a share of the duration, from 0 to 1."""
        return min(int(elapsed * len(self.cpu)), len(self.cpu) - 1)

    def is_waiting(self, step: int) -> bool:
        """Whether the run used next to nothing in a step."""
        return self.cpu[step] <= _WAITING_CPU


def waiting_from(drawn: UsageCourse, share: float) -> UsageCourse:
    """The course of a run that waits for an answer from a share of its duration on."""
    first = drawn.step_at(share)
    count = len(drawn.cpu) - first
    return UsageCourse(
        cpu=(*drawn.cpu[:first], *(_WAITING_CPU,) * count),
        memory=(*drawn.memory[:first], *(drawn.memory[first],) * count),
    )


def demand(drawn: UsageCourse, batch: Batch) -> CpuDemand:
    """What the course says of other CPU sizes."""
    made = CpuDemand(batch.vcpu)
    for cpu in drawn.cpu:
        made.add_step(cpu * batch.vcpu, NS_PER_SECOND)
    return made


def threads_of(batch: Batch) -> int:
    """How many threads a family's program has; it never uses more vCPUs."""
    return next(count for count in _THREADS if count >= _BUSIEST * batch.cpu * batch.vcpu)


def draw_course(
    family: str,
    *,
    cpu: float,
    most_cpu: float,
    peak: float,
    is_killed: bool,
    steps: int,
    rng: random.Random,
) -> UsageCourse:
    """A run in phases, which are the family's: reading, a few of work, writing.

    The mean of the CPU usage is about ``cpu``, and it is never above ``most_cpu``; the highest
    memory is ``peak``. A killed run ends with it.
    """
    own = random.Random(family)
    phases = [(own.uniform(0.06, 0.16), 0.3, 0.35)]
    for _ in range(own.randint(2, 4)):
        phases.append((own.uniform(0.15, 0.4), own.uniform(0.8, 1.4), own.uniform(0.55, 1)))
    phases.append((own.uniform(0.05, 0.15), 0.4, own.uniform(0.3, 0.6)))
    if is_killed:
        phases.pop()
        phases[-1] = (phases[-1][0], phases[-1][1], 1.1)
    total = sum(share for share, _, _ in phases)
    mean = sum(share * level for share, level, _ in phases) / total
    cpu_values = []
    memory_values = []
    used = 0.08
    for share, level, memory_level in phases:
        count = max(1, round(steps * share / total))
        for number in range(count):
            used += (memory_level - used) * min(1.0, 3.0 * (number + 1) / count) * 0.35
            used_cpu = cpu * level / mean * rng.uniform(0.82, 1.15)
            cpu_values.append(min(max(used_cpu, 0.01), most_cpu, 1.0))
            memory_values.append(used * rng.uniform(0.985, 1.01))
    highest = max(memory_values)
    if is_killed:
        memory_values[-1] = highest
    scaled = tuple(value / highest * peak for value in memory_values)
    return UsageCourse(cpu=tuple(cpu_values), memory=scaled)


def series_of_course(
    drawn: UsageCourse, batch: Batch, started_at: str, duration_ms: float
) -> Series:
    """The course as the record has it."""
    return Series(
        started_at=started_at,
        step_ms=round(duration_ms / len(drawn.cpu), 3),
        vcpu_used=tuple(round(value * batch.vcpu, 3) for value in drawn.cpu),
        memory_used_mb=tuple(round(value * batch.memory_mb, 1) for value in drawn.memory),
        gpu_utilization_percent=known(partial(_gpu_course, drawn.cpu), batch.gpu),
    )


def _gpu_course(cpu: Sequence[float], share: float) -> tuple[float, ...]:
    """A GPU that works while the CPU does, with this mean."""
    mean = sum(cpu) / len(cpu)
    return tuple(round(min(100 * share * value / mean, 100), 1) for value in cpu)


def with_course(metrics: Metrics, drawn: UsageCourse, batch: Batch) -> Metrics:
    """The metrics with the use that the course shows, so that curves and numbers agree."""
    vcpu = _distribution_of_shares(drawn.cpu, batch.vcpu)
    return replace(
        metrics,
        cpu_seconds=round((vcpu.avg or 0) * (metrics.duration_ms or 0) / 1000, 3),
        vcpu_used=vcpu,
        cpu_utilization_percent=_distribution_of_shares(drawn.cpu, 100),
        memory_used_mb=_distribution_of_shares(drawn.memory, batch.memory_mb),
        memory_utilization_percent=_distribution_of_shares(drawn.memory, 100),
    )


def _distribution_of_shares(shares: Sequence[float], whole: float) -> Distribution:
    ordered = sorted(share * whole for share in shares)
    last = len(ordered) - 1
    return Distribution(
        avg=round(sum(ordered) / len(ordered), 4),
        p50=round(ordered[int(0.5 * last)], 4),
        p95=round(ordered[int(0.95 * last)], 4),
        p99=round(ordered[int(0.99 * last)], 4),
        max=round(ordered[last], 4),
    )


def steps_of(duration_ms: float) -> int:
    """The number of steps of a run: of 10 seconds or more."""
    return max(4, min(_MAX_POINTS, int(duration_ms / 10_000)))
