"""The record of a run, which every part of Task Profiler writes or reads, and its JSON Schema."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, cast, get_args

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import all_known, first_known
from profiler.core.timestamps import parse_ns
from profiler.record.activity_model import (
    NO_BREAKDOWN,
    NO_STACKS,
    ProcessSeries,
    Stacks,
    TimeBreakdown,
)
from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.measured import Measured, Number, measured_from
from profiler.record.model_base import Model, json_schema_of_type
from profiler.record.run_outcome import OutOfMemoryEvidence, Status
from profiler.record.units import format_task_size

SCHEMA_VERSION = "1.4"

RecordType = Literal["task.report", "task.checkpoint"]
CHECKPOINT: Final = "task.checkpoint"
PeakSource = Literal["kernel", "sampled"]
CONTAINER_INSIGHTS = "container-insights"
"""The source of records that are made of Container Insights' log events, one a minute."""
LOCAL: Final = "LOCAL"  # the launch type of `run`
# The ``gpuScope`` if it is not known which of the instance's GPUs belong to the batch.
WHOLE_INSTANCE: Final = "instance"

# Below what profiler.record.max_possible_cost allows any run.
_SMALL_COST_USD = 3.0

# A newer writer may use words that this reader does not know: it keeps them and treats them as
# unknown. So the fields below are any text for the decoder; the closed lists above are for writers.
_STATUSES: Final = frozenset(get_args(Status))
_AnyStatus = Annotated[str, Meta(extra_json_schema={"examples": list(get_args(Status))})]
_AnyPeakSource = Annotated[str, Meta(extra_json_schema={"examples": list(get_args(PeakSource))})]
_AnyEvidence = Annotated[
    str, Meta(extra_json_schema={"examples": list(get_args(OutOfMemoryEvidence))})
]


class Distribution(Model, frozen=True, kw_only=True):
    """A quantity over the run: time-weighted mean, time-weighted percentiles (1 % relative
    error), and maximum.
    """

    avg: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


NOT_MEASURED: Final = Distribution()
# The sources of a GPU's use that see all of its work.
_GAP_FREE = ("driver-samples", "gpm")


class AverageAndMaximum(Model, frozen=True, kw_only=True):
    """The mean and the maximum of a quantity over the run, or of all readings of all devices."""

    avg: float | None = None
    max: float | None = None


NO_READINGS: Final = AverageAndMaximum()


class SlowdownBounds(Model, frozen=True, kw_only=True):
    """How many times as long the same work would have taken with fewer vCPUs: at least ``min``,
    at most ``max``.
    """

    min: float
    max: float


class Metrics(Model, frozen=True, kw_only=True):
    """The resource usage of one container.

    ``durationMs`` is the time from the container's start to its end. ``billedDurationMs`` is the
    time from the start of the image pull to the end, rounded up to whole seconds, at least 60 s.
    Memory used is what the kernel cannot drop before it kills. ``memoryCacheMB`` is the rest of the
    usage: pages of files, mapped or not, and reclaimable kernel memory. ``memoryMappedFileMB`` is
    what of its files the container kept mapped. ``memoryHugePagesMB`` are its reserved huge pages,
    which are not in the usage. ``maxMemoryUsedMB`` is the largest memory used,
    ``memoryUsedBoundMB`` the most that it may have been where a notable part is not certain,
    ``memoryUsagePeakMB`` the largest usage including all page cache. ``memoryPeakSource`` is the
    method by which ``maxMemoryUsedMB`` was measured, ``maxMemoryUsedAt`` the time of the highest
    reading.
    ``vcpuSize`` is the task's size, else the host's; ``vcpuShare`` is the container's own CPU
    share, which is not a limit. ``vcpuSaturatedPercent`` is the share of the time in which all
    containers of the task together used at least 95 % of its vCPUs. ``slowdownAtVcpu`` maps smaller
    sizes to the bounds of the slowdown; a size without slowdown is left out. ``cpuWaitSeconds`` is
    the time for which threads that could run waited for a CPU, summed over all threads;
    ``cpuWaitPercent`` is its share of this time and of the CPU time together.
    """

    duration_ms: Number | None = None
    billed_duration_ms: Number | None = None
    memory_size_mb: Number | None = None
    max_memory_used_mb: Number | None = None
    init_duration_ms: Number | None = None
    vcpu_size: Number | None = None
    vcpu_share: Number | None = None
    cpu_seconds: float | None = None
    cpu_wait_seconds: float | None = None
    cpu_wait_percent: float | None = None
    vcpu_used: Distribution = NOT_MEASURED
    cpu_utilization_percent: Distribution = NOT_MEASURED
    memory_used_mb: Distribution = NOT_MEASURED
    memory_utilization_percent: Distribution = NOT_MEASURED
    memory_cache_mb: AverageAndMaximum = NO_READINGS
    memory_mapped_file_mb: AverageAndMaximum = NO_READINGS
    memory_huge_pages_mb: AverageAndMaximum = NO_READINGS
    memory_peak_source: _AnyPeakSource | None = None
    max_memory_used_at: str | None = None
    memory_used_bound_mb: Number | None = None
    memory_usage_peak_mb: Number | None = None
    vcpu_saturated_percent: float | None = None
    slowdown_at_vcpu: Mapping[str, SlowdownBounds] | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    max_pids: int | None = None
    ephemeral_storage_used_mb: Number | None = None
    ephemeral_storage_size_mb: Number | None = None

    @property
    def max_memory_used_at_ns(self) -> int | None:
        """``max_memory_used_at`` in nanoseconds since 1970."""
        return parse_ns(self.max_memory_used_at)

    @property
    def has_memory(self) -> bool:
        """Whether the memory used was measured."""
        return self.max_memory_used_mb is not None

    @property
    def memory_peak(self) -> Measured:
        """The largest memory used; one that the kernel did not count may have been higher."""
        return measured_from(self.max_memory_used_mb, is_least=self.memory_peak_source != "kernel")

    @property
    def mapped_files_mb(self) -> float | None:
        """The most that was kept of mapped files."""
        return self.memory_mapped_file_mb.max

    @property
    def counts_files(self) -> bool:
        """Whether the memory used may include pages of mapped files: see
        :mod:`profiler.record.mapped_files`.
        """
        return self.has_memory and self.mapped_files_mb is None


class Interval(Model, frozen=True, kw_only=True):
    """The resource usage since the last checkpoint (in checkpoints only)."""

    started_at: str | None = None
    finished_at: str | None = None
    cpu_seconds: float | None = None
    vcpu_used: Distribution = NOT_MEASURED
    cpu_utilization_percent: Distribution = NOT_MEASURED
    memory_used_mb: Distribution = NOT_MEASURED
    memory_utilization_percent: Distribution = NOT_MEASURED
    gpu_utilization_percent: AverageAndMaximum = NO_READINGS
    gpu_memory_used_mb: AverageAndMaximum = NO_READINGS
    neuron_utilization_percent: AverageAndMaximum = NO_READINGS

    @property
    def started_ns(self) -> int | None:
        """``started_at`` in nanoseconds since 1970."""
        return parse_ns(self.started_at)

    @property
    def finished_ns(self) -> int | None:
        """``finished_at`` in nanoseconds since 1970."""
        return parse_ns(self.finished_at)


NO_INTERVAL: Final = Interval()


class Container(Model, frozen=True, kw_only=True):
    """The batch container.

    ``restarts`` counts its restarts in place, which ECS does by its restart policy.
    """

    name: str
    id: str | None = None
    arn: str | None = None
    image: str | None = None
    image_digest: str | None = None
    restarts: int | None = None


class OtherContainer(Model, frozen=True, kw_only=True):
    """Another container of the task; the monitor's own container is one of them."""

    name: str
    status: str | None = None
    exit_code: int | None = None
    metrics: Metrics | None = None


class Sampling(Model, frozen=True, kw_only=True):
    """How the batch container was sampled.

    ``duplicates`` counts readings that the source had not refreshed, ``failures`` failed reads, and
    ``missedTicks`` sampling times without a reading. ``longestGapMs`` is the longest time between
    two readings, ``statsPeriodMs`` the median time. ``cpuCoveredPercent`` is the share of the run
    up to the last reading of the CPU time, ``cpuWaitCoveredPercent`` the share of the CPU time that
    was read, with the waits for a CPU, before threads ended.
    """

    interval_ms: Number | None = None
    samples: int | None = None
    duplicates: int | None = None
    failures: int | None = None
    missed_ticks: int | None = None
    longest_gap_ms: int | None = None
    stats_period_ms: int | None = None
    cpu_covered_percent: float | None = None
    cpu_wait_covered_percent: float | None = None
    sources: tuple[str, ...] = field(default_factory=lambda: ())


NOT_SAMPLED: Final = Sampling()


class Process(Model, frozen=True, kw_only=True):
    """All observed processes with one name: their number, and the CPU time that was read of them.

    The name of an interpreter is followed by the file name of its script, or by its module.

    The last one of a record can be ``other``, with the rest of the run's CPU time: of names that
    are not listed, and of processes that ended before it was read. Then it lacks a ``count``, and
    the CPU time of each name is a lower bound.

    ``maxMemoryUsedMB`` is their memory together at its highest moment, and
    ``maxMemoryUsedProcesses`` the number of processes that held it. Shared memory counts once where
    that can be read. Records of schema 1.1 and earlier lack the
    second: the first is then the high-water mark of the largest process.
    """

    name: str
    arguments: str | None = None
    count: int | None = None
    cpu_seconds: float | None = None
    max_memory_used_mb: Number | None = None
    max_memory_used_processes: int | None = None


class MemoryKills(Model, frozen=True, kw_only=True):
    """The processes that the kernel killed because memory was exhausted.

    ``count`` is their number. ``processes`` are those that were observed, with their memory at the
    last observation.
    """

    count: int
    processes: tuple[Process, ...] = field(default_factory=lambda: ())


class Gpu(Model, frozen=True, kw_only=True):
    """One NVIDIA GPU. ``throttleReasons`` maps each reason to its share of the sampled time in
    percent.

    ``utilizationPercent`` is the share of time in which a kernel or a copy ran, by
    ``utilizationSource``; ``idlePercent`` is the rest of the run. The four values from
    ``smActivePercent`` on, and the bytes, exist on Hopper and newer. With ``shared``, another
    program used the GPU in the run: all values but the memory are of all programs.
    ``utilizationCoveredPercent`` is the share of the run in which the work of the GPU is known, if
    that is less than 95: the idle time is then a lower bound, and below 50 it is absent.
    """

    uuid: str
    index: int | None = None
    name: str | None = None
    utilization_percent: Distribution = NOT_MEASURED
    utilization_source: str | None = None
    utilization_covered_percent: float | None = None
    shared: bool | None = None
    sm_active_percent: Distribution = NOT_MEASURED
    sm_occupancy_percent: Distribution = NOT_MEASURED
    tensor_active_percent: Distribution = NOT_MEASURED
    dram_active_percent: Distribution = NOT_MEASURED
    idle_seconds: float | None = None
    idle_percent: float | None = None
    first_used_seconds: float | None = None
    last_used_seconds: float | None = None
    idle_before_seconds: float | None = None
    idle_between_seconds: float | None = None
    idle_after_seconds: float | None = None
    memory_used_mb: Distribution = NOT_MEASURED
    memory_size_mb: Number | None = None
    memory_limit_mb: Number | None = None
    compute_limit_percent: float | None = None
    copy_seconds: float | None = None
    copy_bytes_per_second: int | None = None
    link_bytes_per_second: int | None = None
    pcie_tx_bytes: int | None = None
    pcie_rx_bytes: int | None = None
    nvlink_tx_bytes: int | None = None
    nvlink_rx_bytes: int | None = None
    power_watts: Distribution = NOT_MEASURED
    energy_joules: float | None = None
    temperature_celsius: Distribution = NOT_MEASURED
    sm_clock_mhz: Distribution = NOT_MEASURED
    throttle_reasons: Mapping[str, float] | None = None
    xids: tuple[int, ...] = field(default_factory=lambda: ())
    ecc_uncorrected: int | None = None

    @property
    def is_use_estimated(self) -> bool:
        """Whether its use is an estimate: the driver gave one value each second, which counts some
        work twice and misses other work. Records before ``utilizationSource`` have no other use.
        """
        has_use = self.utilization_percent != NOT_MEASURED
        return has_use and self.utilization_source not in _GAP_FREE

    @property
    def is_use_partial(self) -> bool:
        """Whether its work is not known for more than a twentieth of the run."""
        return self.utilization_covered_percent is not None

    @property
    def is_use_approximate(self) -> bool:
        """Whether its use may be another one than that of the whole run: an estimate, or the mean
        of the time in which it is known.
        """
        return self.is_use_estimated or (
            self.is_use_partial and self.utilization_percent != NOT_MEASURED
        )


class GpuMemoryEvidence(Model, frozen=True, kw_only=True):
    """What speaks for a lack of GPU memory.

    ``kind`` is ``memory-at-limit`` (the values are of the GPU) or ``log`` (``text`` is the line).
    """

    kind: str
    uuid: str | None = None
    own_mb: Number | None = None
    used_mb: Number | None = None
    limit_mb: Number | None = None
    text: str | None = None


class GpuIdle(Model, frozen=True, kw_only=True):
    """The idle time of the batch's GPUs; of all visible GPUs if ``gpuScope`` is ``instance``.

    ``percent`` is the mean of the GPUs' ``idlePercent``, ``gpuHours`` the sum of their idle time.
    ``usd`` is that share of the run's price by ``TASK_PROFILER_PRICE_HOUR``. ``waitingFor`` divides
    the time in which every GPU was idle by what the batch did.
    """

    percent: float
    before_percent: float | None = None
    between_percent: float | None = None
    after_percent: float | None = None
    gpu_hours: float
    usd: float | None = None
    waiting_for: TimeBreakdown = NO_BREAKDOWN
    waiting_before: TimeBreakdown = NO_BREAKDOWN


class NeuronCore(Model, frozen=True, kw_only=True):
    """One NeuronCore. ``index`` is its index on the instance."""

    index: int
    utilization_percent: Distribution = NOT_MEASURED
    memory_used_mb: Distribution = NOT_MEASURED


class NeuronExecutions(Model, frozen=True, kw_only=True):
    """The numbers of model executions in the run."""

    completed: int | None = None
    failed: int | None = None


class NeuronLatency(Model, frozen=True, kw_only=True):
    """The largest latency percentiles of any period, in seconds (percentiles of periods cannot
    be merged).
    """

    p50_max: float | None = None
    p99_max: float | None = None
    p100_max: float | None = None


class Neuron(Model, frozen=True, kw_only=True):
    """AWS Neuron devices. ``restarts`` counts restarts of neuron-monitor."""

    cores: tuple[NeuronCore, ...] = field(default_factory=lambda: ())
    device_memory_used_mb: Distribution = NOT_MEASURED
    device_memory_size_mb: Number | None = None
    executions: NeuronExecutions | None = None
    latency_seconds: NeuronLatency | None = None
    ecc_uncorrected: int | None = None
    restarts: int | None = None


NO_NEURON: Final = Neuron()


class Series(Model, frozen=True, kw_only=True):
    """The time series of the run: one value for each step of ``stepMs`` milliseconds from
    ``startedAt`` on.

    ``vcpuUsed`` is the mean of a step, ``memoryUsedMB`` its maximum. The devices' utilization is
    the mean of all readings of all devices. ``cpuWait`` is the mean number of threads that waited
    for a CPU. ``processes`` are the commands with the most CPU time and the highest memory peaks;
    the others together are the command ``other``. ``null`` is a step without a measurement.
    """

    started_at: str
    step_ms: Number
    vcpu_used: tuple[float | None, ...] | None = None
    memory_used_mb: tuple[float | None, ...] | None = None
    gpu_utilization_percent: tuple[float | None, ...] | None = None
    neuron_utilization_percent: tuple[float | None, ...] | None = None
    cpu_wait: tuple[float | None, ...] | None = None
    processes: tuple[ProcessSeries, ...] = ()


class Processor(Model, frozen=True, kw_only=True):
    """The machine's processor: its model and its number of logical CPUs, from ``/proc/cpuinfo``.

    ``othersVcpuUsed`` is the mean number of CPUs that other programs used while a local run ran,
    from ``/proc/stat``.
    """

    model: str | None = None
    count: int | None = None
    others_vcpu_used: Number | None = None


UNKNOWN_PROCESSOR: Final = Processor()


class Visible(Model, frozen=True, kw_only=True):
    """The machine's memory and its number of CPUs, and EC2's type of the instance, which instances
    on Xen do not tell.

    Programs see them instead of the task's limits.
    """

    memory_mb: Number | None = None
    cpus: Number | None = None
    instance_type: str | None = None


NOTHING_VISIBLE: Final = Visible()


class TaskSize(Model, frozen=True, kw_only=True):
    """The limits of the task: the size that Fargate bills and that users can change."""

    vcpu: Number | None = None
    memory_mb: Number | None = None

    @property
    def text(self) -> str:
        """The size as ``1 vCPU, 2 GB``, without what is unknown."""
        return format_task_size(self.vcpu, self.memory_mb)


UNKNOWN_SIZE: Final = TaskSize()


class Cost(Model, frozen=True, kw_only=True):
    """The cost of the run, and the price list that it was calculated with."""

    usd: float | None = None
    price_basis: str | None = None


UNKNOWN_COST: Final = Cost()


class Recommendation(Model, frozen=True, kw_only=True):
    """The recommended task size, and the reasons."""

    vcpu: Number | None = None
    memory_mb: Number | None = None
    saving_percent: float | None = None
    reasons: tuple[str, ...] = field(default_factory=lambda: ())


NO_RECOMMENDATION: Final = Recommendation()


class Monitor(Model, frozen=True, kw_only=True):
    """The profiler itself: its own resource usage, and warnings about the measurement."""

    version: str | None = None
    cpu_seconds: float | None = None
    max_rss_mb: Number | None = None
    restarts: int | None = None
    warnings: tuple[str, ...] = field(default_factory=lambda: ())


NO_MONITOR: Final = Monitor()


class RaisedNotice(Model, frozen=True, kw_only=True):
    """A notice that was raised while the batch ran: its kind and its time."""

    kind: str
    at: str

    @property
    def at_ns(self) -> int | None:
        """``at`` in nanoseconds since 1970."""
        return parse_ns(self.at)


class Record(Model, frozen=True, kw_only=True):
    """One run of one batch container.

    ``status``: ``success`` (exit code 0), ``failure`` (another exit code), ``stopped`` (a stop of
    the task was requested before the batch ended), ``running`` (checkpoints), ``unknown`` (the end
    was not observed). A record without a status, or with another word, counts as ``unknown``
    (:func:`known_status`). ``logRegion`` is the Region of the log stream if it is not the task's.
    ``batch`` is the job of AWS Batch.
    ``labels`` are detected from the environment or set by the user. ``tags`` are the ECS task's.
    ``truncated`` is true if lists or tags were cut to keep the line below 64 KiB. Lists and tags
    are the last fields, because Logs Insights reads a limited number of fields.
    """

    task_id: str
    task_arn: str | None = None
    cluster: str | None = None
    family: str | None = None
    revision: str | None = None
    region: str | None = None
    account_id: str | None = None
    availability_zone: str | None = None
    launch_type: str | None = None
    cpu_architecture: str | None = None
    processor: Processor = UNKNOWN_PROCESSOR
    labels: Mapping[str, str] | None = None
    batch: BatchJob = NO_JOB
    container: Container
    log_group: str | None = None
    log_stream: str | None = None
    log_region: str | None = None
    # A plain default would be left out of the line.
    status: _AnyStatus = field(default_factory=lambda: "unknown")
    exit_code: int | None = None
    likely_out_of_memory: bool | None = None
    out_of_memory_evidence: _AnyEvidence | None = None
    memory_kills: MemoryKills | None = None
    likely_out_of_gpu_memory: bool | None = None
    gpu_memory_evidence: "GpuMemoryEvidence | None" = None
    started_at: str | None = None
    finished_at: str | None = None
    sampling: Sampling = NOT_SAMPLED
    # A bare class would be left out when empty.
    metrics: Metrics = field(default_factory=lambda: Metrics())  # noqa: PLW0108
    time_breakdown: TimeBreakdown = NO_BREAKDOWN
    interval: Interval = NO_INTERVAL
    task_size: TaskSize = UNKNOWN_SIZE
    visible: Visible = NOTHING_VISIBLE
    cost: Cost = UNKNOWN_COST
    recommendation: Recommendation = NO_RECOMMENDATION
    monitor: Monitor = NO_MONITOR
    processes: tuple[Process, ...] = ()
    containers: tuple[OtherContainer, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    gpu_scope: str | None = None
    gpu_idle: GpuIdle | None = None
    neuron: Neuron = NO_NEURON
    stacks: Stacks = NO_STACKS
    notices: tuple[RaisedNotice, ...] = ()
    tags: Mapping[str, str] | None = None
    series: Series | None = None
    truncated: bool | None = None

    @property
    def started_ns(self) -> int | None:
        """``started_at`` in nanoseconds since 1970."""
        return parse_ns(self.started_at)

    @property
    def finished_ns(self) -> int | None:
        """``finished_at`` in nanoseconds since 1970."""
        return parse_ns(self.finished_at)

    @property
    def is_sampled_each_minute(self) -> bool:
        """Whether Container Insights measured the run, and no monitor: it knows the mean of each
        minute.
        """
        return CONTAINER_INSIGHTS in self.sampling.sources

    @property
    def are_gpus_of_instance(self) -> bool:
        """Whether the numbers of the GPUs may be other programs': it is not known which GPUs are
        the run's, or who used them.
        """
        return self.gpu_scope == WHOLE_INSTANCE


class Report(Model, frozen=True, kw_only=True):
    """The line: the time at which it was written, its type, and the record."""

    time: str
    type: RecordType
    schema_version: str = field(default_factory=lambda: SCHEMA_VERSION)
    record: Record

    @property
    def time_ns(self) -> int | None:
        """``time`` in nanoseconds since 1970."""
        return parse_ns(self.time)


# What a part of a record is that says nothing.
ABSENT_PARTS: Final = (
    None,
    NOT_MEASURED,
    NOT_SAMPLED,
    UNKNOWN_PROCESSOR,
    NOTHING_VISIBLE,
    UNKNOWN_SIZE,
    UNKNOWN_COST,
    NO_RECOMMENDATION,
    NO_READINGS,
    NO_JOB,
    NO_BREAKDOWN,
    NO_INTERVAL,
    NO_MONITOR,
    NO_NEURON,
    NO_STACKS,
)


def with_warnings(record: Record, warnings: Iterable[str]) -> Record:
    """Return the record with more warnings about the measurement."""
    added = tuple(warnings)
    if not added or record.monitor is NO_MONITOR:
        return record
    return replace(
        record, monitor=replace(record.monitor, warnings=(*record.monitor.warnings, *added))
    )


def without_large_parts(record: Record) -> Record:
    """The record without its large parts: thousands of records may be in memory."""
    return replace(record, series=None, stacks=NO_STACKS, processes=())


def known_status(record: Record) -> Status:
    """The status of a record; ``unknown`` for a word that only a newer version knows."""
    return parse_status(record.status)


def parse_status(word: str) -> Status:
    """The status with this name; ``unknown`` for a word that only a newer version knows."""
    if word in _STATUSES:
        return cast("Status", word)
    return "unknown"


def known_peak_source(metrics: Metrics) -> PeakSource | None:
    """How the memory peak was measured; None if unknown, or for a word that only a newer version
    knows.
    """
    source = metrics.memory_peak_source
    if source in get_args(PeakSource):
        return cast("PeakSource", source)
    return None


_encoder = msgspec.json.Encoder()


def encode(report: Report) -> bytes:
    """Encode a report as one JSON line, without newline and without a limit on its length."""
    return _encoder.encode(report)


def decode(line: bytes | str) -> Report:
    """Decode a JSON line; impossible numbers, times and costs count as missing.

    Raises msgspec.DecodeError for other lines.
    """
    # Only readers import it.
    from profiler.record.impossible_values import decode_without_impossible

    return _with_possible_amounts(decode_without_impossible(Report, line))


def possible_report(report: Report) -> Report:
    """A report that was read, in which impossible numbers, times and costs count as missing."""
    # Only readers import it.
    from profiler.record.impossible_values import without_impossible

    return _with_possible_amounts(without_impossible(report) or report)


def _with_possible_amounts(report: Report) -> Report:
    record = _with_possible_cost(report.record)
    return report if record is report.record else replace(report, record=record)


def possible_record(record: Record) -> Record:
    """The record, itself if all is possible, in which impossible numbers, times and costs count
    as missing.

    A record that was made here has them, too: the task metadata endpoint, or a driver, may have
    delivered anything.
    """
    # The monitor imports it at the end of a run.
    from profiler.record.impossible_values import without_impossible

    return _with_possible_cost(without_impossible(record) or record)


def possible_cost(record: Record, longest_ms: float | None = None) -> Cost:
    """The cost of a record, without the amount if its task cannot have cost so much.

    ``longest_ms``: the time from the task's creation to its end, if ECS says it.
    """
    cost = record.cost
    if cost.usd is None or cost.usd <= _SMALL_COST_USD:
        return cost
    # Only for a record with a high cost.
    from profiler.record import max_possible_cost as bounds

    metrics = record.metrics
    size = record.task_size
    billed_ms = first_known(
        longest_ms,
        bounds.longest_billed_ms(
            record.started_ns,
            record.finished_ns,
            metrics.init_duration_ms,
            metrics.billed_duration_ms,
            metrics.duration_ms,
        ),
    )
    whole_size = all_known(size.vcpu, size.memory_mb)
    if record.launch_type == FARGATE and whole_size is not None:
        vcpu, memory_mb = whole_size
        most_usd = bounds.most_on_fargate_usd(vcpu, memory_mb, billed_ms)
    else:
        most_usd = bounds.most_on_a_machine_usd(billed_ms)
    return cost if cost.usd <= most_usd else UNKNOWN_COST


def _with_possible_cost(record: Record) -> Record:
    """The record without a cost or a saving that cannot be: each counts as unknown."""
    cost = possible_cost(record)
    advised = record.recommendation
    # A size can save all that a run costs, and no more.
    if (advised.saving_percent or 0) > 100:  # noqa: PLR2004
        advised = replace(advised, saving_percent=None)
    if cost is record.cost and advised is record.recommendation:
        return record
    return replace(record, cost=cost, recommendation=advised)


def json_schema() -> dict[str, Any]:
    """Generate the JSON Schema (2020-12) of a line."""
    return json_schema_of_type(Report, "Task Profiler report, schema version " + SCHEMA_VERSION)
