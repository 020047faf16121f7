"""What runs show of a family: the evidence for a recommendation, as answers to four questions.

A run without measurements counts only if it ran out of memory: its size was too small.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import (
    any_known,
    first_known,
    known,
    known_values,
    max_known,
    mean_known,
)
from profiler.core.timestamps import MS_PER_MINUTE
from profiler.record.cpu_wait import (
    CpuWait,
    is_cpu_wait_partial,
    is_starved,
    long_cpu_wait,
    notable_cpu_wait_percent,
)
from profiler.record.family_identity import FamilyKey
from profiler.record.family_statistics import MonthlyTasks, measured_month
from profiler.record.gpu_facts import gpu_family_text
from profiler.record.hardware import short_processor_name
from profiler.record.held_huge_pages import huge_pages_mb
from profiler.record.mapped_files import runs_of_one_meaning
from profiler.record.measured import UNKNOWN, Measured, measured_from
from profiler.record.mention_limits import (
    SATURATED_PERCENT,
    is_gpu_use_estimated,
    is_gpu_use_partial,
)
from profiler.record.record_model import (
    UNKNOWN_SIZE,
    Metrics,
    PeakSource,
    Record,
    TaskSize,
    known_peak_source,
)
from profiler.record.spot_price import is_on_spot
from profiler.record.task_needs import (
    bound_memory_mb,
    is_cpu_limited,
    needed_memory_of,
    task_size_of,
    vcpu_limit,
)
from profiler.sizing.billed_tasks import BilledTasks, collect_billed_tasks
from profiler.sizing.containers_apart import ContainerNeeds, container_needs_of
from profiler.sizing.memory_margin import NeedSpread, PeakPrecision, spread_of_needs
from profiler.sizing.run_facts import (
    RunFacts,
    oom_size_mb,
    possible_kill_size_mb,
    stats_period_ms,
    were_gpus_idle,
)
from profiler.sizing.slowdown_factors import (
    FACTOR_DIGITS,
    Factors,
    duration_factors_of_runs,
    with_factors_of_saturated_runs,
)
from profiler.sizing.trend import CourseOverRuns, course_of_values

# With a longer period of the statistics, sampled peaks can miss a short spike.
MAX_FINE_PERIOD_MS = 2000
# A shorter run is too short for the means of minutes to show its memory peak.
MIN_MINUTES = 10
# As many readings, where the peak is not the kernel's.
MIN_SAMPLES = 10


class OutcomeCounts(Struct, frozen=True, kw_only=True):
    """How many runs were there, and how did they end?

    ``runs`` are measured tasks; ``out_of_memory_unmeasured`` and ``ignored`` are not among them.
    A task that ran out of memory is not among the failed and stopped ones.
    """

    runs: int
    failed: int = 0
    stopped: int = 0
    has_success: bool = True
    out_of_memory: int = 0
    out_of_memory_unmeasured: int = 0
    ignored: int = 0
    first_started_at: str | None = None
    last_started_at: str | None = None


class MemoryAndCpuNeeds(Struct, frozen=True, kw_only=True):
    """How much memory and CPU did the runs need?

    ``required_memory_mb`` includes the other containers; ``batch_peak_mb`` and ``batch_p99_mb`` are
    the batch's in the run with the largest need. ``with_files_mb`` are what a run used and kept of
    mapped files, at most its size, and ``mapped_files_mb`` the batch's files in that run.
    ``huge_pages_mb`` are the most that a task had in addition. ``bound_mb`` is the most that a run
    may have used whose peak is a lower bound.
    ``has_older``: some runs may count mapped files as used, unlike others; ``older_memory_mb`` is
    their largest need where the others alone count. ``slowdowns`` are the bounds at each vCPU size
    at which a run would be slower than now, None if no run has any; ``vcpu_without_slowdown`` is
    the largest need of the runs without them (schema 1.0). ``reached_size_mb`` is the largest size
    at whose limit a child may have been killed. ``peaks_mb`` are the batch's, ``needs_mb`` the
    task's, and ``apart`` what its containers needed one by one in the run that needed the most.
    ``spread`` is of the needs at any size.
    """

    required_memory_mb: float | None = None
    required_vcpu: float | None = None
    batch_peak_mb: float | None = None
    batch_p99_mb: float | None = None
    with_files_mb: float | None = None
    mapped_files_mb: float | None = None
    huge_pages_mb: float | None = None
    bound_mb: float | None = None
    older_memory_mb: float | None = None
    has_older: bool = False
    slowdowns: Factors | None = None
    vcpu_without_slowdown: float | None = None
    oom_size_mb: float | None = None
    reached_size_mb: float | None = None
    peaks_mb: CourseOverRuns = CourseOverRuns()
    needs_mb: CourseOverRuns = CourseOverRuns()
    apart: ContainerNeeds = ContainerNeeds()
    spread: NeedSpread | None = None

    @property
    def has_cpu(self) -> bool:
        """Whether CPU was measured in any run."""
        return any_known(self.required_vcpu, self.slowdowns)

    @property
    def has_memory(self) -> bool:
        """Whether anything is known about the memory that the runs need."""
        return any_known(self.required_memory_mb, self.oom_size_mb)


class UsageOfTasks(Struct, frozen=True, kw_only=True):
    """How busy were the tasks, and how much time is paid for?

    Saturation, CPU wait and ``durations_ms``, those of the successes, are of the runs at the
    current vCPU size; ``billed`` too, unless none had it. ``on_spot``: one of these
    was on Spot, so their price is the least. The window's time and tasks include unmeasured runs.
    """

    saturated_percent: float | None = None
    cpu_wait_percent: Measured = UNKNOWN
    gpus_idle: bool = False
    gpu_text: str = ""
    idle_gpu_hours: Measured = UNKNOWN
    billed: BilledTasks = ()
    on_spot: bool = False
    durations_ms: CourseOverRuns = CourseOverRuns()
    has_run_at_current_vcpu: bool = True
    window_ns: int = 0
    window_tasks: int = 0

    @property
    def tasks_in_a_month(self) -> MonthlyTasks | None:
        """The tasks a month; None if the window is too short to measure them, or has few."""
        return measured_month(self.window_tasks, self.window_ns)

    @property
    def runs_per_month(self) -> float | None:
        """The tasks a month, if they were measured."""
        return known(attrgetter("runs"), self.tasks_in_a_month)

    @property
    def is_saturated(self) -> bool:
        """Whether the runs used all of the current vCPU size for 5 % of the time or more."""
        return (self.saturated_percent or 0) >= SATURATED_PERCENT


class MeasurementPrecision(Struct, frozen=True, kw_only=True):
    """How exact are the measurements?

    ``peak_source`` is the least exact one, ``stats_period_ms`` the longest. ``unknown_memory``:
    containers with neither a measurement nor a limit of memory. ``is_by_minute``: some runs were
    measured by the means of minutes; ``is_too_short``: all, and too short. ``is_starved``: each
    waited for CPUs that other programs used, so that its CPU use is less than it needs.
    """

    peak_source: PeakSource | None = None
    stats_period_ms: int | None = None
    unknown_memory: tuple[str, ...] = ()
    is_by_minute: bool = False
    is_too_short: bool = False
    is_starved: bool = False
    processors: tuple[tuple[str, int], ...] = ()

    @property
    def peak_precision(self) -> PeakPrecision:
        return PeakPrecision(
            source=self.peak_source,
            period_ms=self.stats_period_ms,
            is_by_minute=self.is_by_minute,
        )


class Evidence(Struct, frozen=True, kw_only=True):
    """What a family's measured runs show, and those that ran out of memory.

    ``latest`` is the latest measured record, with the size of the latest run, measured or not.
    ``on_fargate`` is a Region in which runs outside Fargate count as if they had run there;
    ``is_moved``: some do.
    """

    family: FamilyKey
    latest: Record
    outcomes: OutcomeCounts
    needs: MemoryAndCpuNeeds
    usage: UsageOfTasks
    precision: MeasurementPrecision
    on_fargate: str | None = None
    is_moved: bool = False

    @property
    def task_size(self) -> TaskSize:
        return task_size_of(self.latest)

    @property
    def is_cpu_limited(self) -> bool:
        """Whether the task can use no more vCPUs than its size."""
        return is_cpu_limited(self.latest)

    @property
    def vcpu_limit(self) -> float | None:
        """The vCPUs that bound the task: its size, else the machine's or the container's."""
        return vcpu_limit(self.latest)

    @property
    def has_cpu(self) -> bool:
        """Whether the CPU that the runs need is known."""
        return self.needs.has_cpu and not self.precision.is_starved

    @property
    def latest_cpu_wait(self) -> CpuWait:
        """What is said of the latest run's wait for a CPU."""
        return long_cpu_wait(self.latest)

    @property
    def needed_memory(self) -> Measured:
        """The memory that the runs needed; at least that, unless the kernel counted each peak."""
        is_least = self.precision.peak_source != "kernel"
        return measured_from(self.needs.required_memory_mb, is_least=is_least)


def is_on_fargate(run: RunFacts) -> bool:
    """Whether the run was on Fargate."""
    return run.record.launch_type == FARGATE


def is_priced_on_fargate(window: Sequence[RunFacts]) -> bool:
    """Whether runs on Fargate were measured, and not only before the family went elsewhere."""
    measured_ns = [run.began_ns for run in window if run.is_measured and is_on_fargate(run)]
    elsewhere_ns = [run.began_ns for run in window if not is_on_fargate(run)]
    return bool(measured_ns) and measured_ns[-1] >= min(elsewhere_ns, default=0)


def evidence_of_runs(
    family: FamilyKey, window: Sequence[RunFacts], on_fargate: str | None = None
) -> Evidence | None:
    """Aggregate a family's runs, given in the order of time; None if none of them was measured.

    Of a family on Fargate and elsewhere, those on Fargate alone have a size and a price; what the
    others needed counts.
    """
    runs = [run for run in window if run.is_measured]
    if not runs:
        return None
    priced = window
    if is_priced_on_fargate(window):
        priced = [run for run in window if is_on_fargate(run)]
    latest_measured = [run for run in priced if run.is_measured][-1]
    latest = record_with_known_size(latest_measured.record, priced[-1].record)
    current_vcpu = task_size_of(latest).vcpu
    needs = needs_of(window, current_vcpu)
    slowdowns = with_factors_of_saturated_runs(needs.slowdowns, runs, current_vcpu)
    return Evidence(
        family=family,
        latest=latest,
        outcomes=outcomes_of(window),
        needs=replace(needs, slowdowns=slowdowns),
        usage=usage_of_tasks(priced, current_vcpu),
        precision=precision_of(runs),
        on_fargate=on_fargate,
        is_moved=any(run.is_moved for run in runs),
    )


def record_with_known_size(latest: Record, newest: Record) -> Record:
    """The record with the task's size of a newer run, if that is known."""
    if newest.task_size == UNKNOWN_SIZE:
        return latest
    metrics = replace(
        latest.metrics,
        vcpu_size=newest.metrics.vcpu_size,
        memory_size_mb=newest.metrics.memory_size_mb,
    )
    return replace(latest, task_size=newest.task_size, metrics=metrics)


def outcomes_of(window: Sequence[RunFacts]) -> OutcomeCounts:
    """How runs ended, of which some are measured. A task is one run, however many of its containers
    have a report: its worst end counts.
    """
    runs = [run for run in window if run.is_measured]
    measured_tasks = task_ids_of(runs)
    killed = task_ids_of(run for run in window if run.outcome.ran_out_of_memory)
    failed = task_ids_of(run for run in runs if run.outcome.status == "failure")
    stopped = task_ids_of(run for run in runs if run.outcome.status == "stopped")
    return OutcomeCounts(
        runs=len(measured_tasks),
        failed=len(failed - killed),
        stopped=len(stopped - failed - killed),
        has_success=any(map(has_succeeded, runs)),
        out_of_memory=len(killed),
        out_of_memory_unmeasured=len(killed - measured_tasks),
        ignored=len(task_ids_of(window) - measured_tasks - killed),
        first_started_at=runs[0].began,
        last_started_at=runs[-1].began,
    )


def task_ids_of(runs: Iterable[RunFacts]) -> set[str]:
    """The tasks of the runs: several containers of one can have a report."""
    return {run.record.task_id for run in runs}


def needs_of(window: Sequence[RunFacts], current_vcpu: float | None) -> MemoryAndCpuNeeds:
    """What runs needed, of which some are measured; compared with a vCPU size."""
    runs = [run for run in window if run.is_measured]
    killed = [run for run in window if run.outcome.ran_out_of_memory]
    needs = MemoryAndCpuNeeds(
        required_vcpu=max_known(*(run.needed_vcpu for run in runs)),
        slowdowns=duration_factors_of_runs(runs, current_vcpu),
        vcpu_without_slowdown=max_known(*(run.needed_vcpu for run in runs if run.slowdown is None)),
        oom_size_mb=max_known(*(oom_size_mb(run.record) for run in killed)),
        reached_size_mb=max_known(*(possible_kill_size_mb(run.record) for run in runs)),
    )
    needs = with_needs_over_time(with_memory_needs_of(needs, runs), runs)
    return replace(needs, spread=spread_of_runs(runs))


def spread_of_runs(runs: Iterable[RunFacts]) -> NeedSpread | None:
    """How far the needs of measured runs differ; None without any that counts. A peak that may
    include mapped files and one without them differ by the files: those like the largest count.
    """
    needs_mb: list[float] = []
    killed_used_mb: list[float] = []
    counted = runs_that_count(runs)
    largest = max(counted, key=_needed_memory_mb, default=None)
    for run in counted:
        if largest is not None and run.counts_files != largest.counts_files:
            continue
        of_kind = killed_used_mb if run.outcome.ran_out_of_memory else needs_mb
        of_kind.append(_needed_memory_mb(run))
    return spread_of_needs(needs_mb, killed_used_mb)


def with_memory_needs_of(needs: MemoryAndCpuNeeds, runs: Iterable[RunFacts]) -> MemoryAndCpuNeeds:
    """The needs, with the memory that runs needed."""
    measured_runs = [run for run in runs if run.has_memory]
    counted = runs_that_count(measured_runs)
    older_mb = [_needed_memory_mb(run) for run in measured_runs if run.counts_files]
    of_largest = Metrics()
    apart = ContainerNeeds()
    if counted:
        largest = max(counted, key=_needed_memory_mb).record
        of_largest = largest.metrics
        apart = container_needs_of(largest)
    fullest = max(measured_runs, key=_memory_with_files_mb, default=None)
    return replace(
        needs,
        required_memory_mb=max_known(*map(_needed_memory_mb, counted)),
        batch_peak_mb=of_largest.max_memory_used_mb,
        batch_p99_mb=of_largest.memory_used_mb.p99,
        with_files_mb=max_known(*(run.memory_with_files_mb for run in measured_runs)),
        mapped_files_mb=(Metrics() if fullest is None else fullest.record.metrics).mapped_files_mb,
        huge_pages_mb=max_known(*(huge_pages_mb(run.record) for run in measured_runs)),
        bound_mb=max_known(*(bound_memory_mb(run.record) for run in measured_runs)),
        older_memory_mb=max(older_mb) if len(counted) < len(measured_runs) else None,
        has_older=0 < len(older_mb) < len(measured_runs),
        apart=apart,
    )


def with_needs_over_time(needs: MemoryAndCpuNeeds, runs: Iterable[RunFacts]) -> MemoryAndCpuNeeds:
    """The needs, with those of runs in the order of time."""
    course = runs_that_count(runs)
    return replace(
        needs,
        peaks_mb=course_of_values(
            (run.began_ns, run.record.metrics.max_memory_used_mb) for run in course
        ),
        needs_mb=course_of_values((run.began_ns, run.needed_memory_mb) for run in course),
    )


def runs_that_count(runs: Iterable[RunFacts]) -> Sequence[RunFacts]:
    """The runs whose memory calls for a size. Those whose peak may include mapped files do not,
    once enough others are known: see :mod:`profiler.record.mapped_files`.
    """
    measured_runs = [run for run in runs if run.has_memory]
    return runs_of_one_meaning(measured_runs, lambda run: run.counts_files)


def _needed_memory_mb(run: RunFacts) -> float:
    return run.needed_memory_mb or 0


def _memory_with_files_mb(run: RunFacts) -> float:
    return run.memory_with_files_mb or 0


def usage_of_tasks(window: Sequence[RunFacts], current_vcpu: float | None) -> UsageOfTasks:
    """How busy tasks were, of which some are measured."""
    runs = [run for run in window if run.is_measured]
    records = [run.record for run in runs]
    # Runs at another vCPU size do not show how busy the task is now.
    runs_now = [run for run in runs if task_size_of(run.record).vcpu == current_vcpu]
    records_now = [run.record for run in runs_now]
    idle_flags = known_values(were_gpus_idle(record) for record in records)
    # An estimate of the idle time is no reason to act, and that of other programs' GPUs neither.
    with_idle = [
        record
        for record in records
        if not is_gpu_use_estimated(record) and not record.are_gpus_of_instance
    ]
    idle_gpus = known_values(record.gpu_idle for record in with_idle)
    succeeded = [run for run in runs_now if has_succeeded(run)]
    return UsageOfTasks(
        saturated_percent=_mean_percent(records_now, _saturated_percent),
        cpu_wait_percent=measured_from(
            _mean_percent(records_now, notable_cpu_wait_percent),
            is_least=any(is_cpu_wait_partial(record) for record in records_now),
        ),
        gpus_idle=bool(idle_flags) and all(idle_flags),
        gpu_text=gpu_family_text(records),
        idle_gpu_hours=measured_from(
            mean_known(*(idle.gpu_hours for idle in idle_gpus)),
            is_least=any(is_gpu_use_partial(record) for record in with_idle if record.gpu_idle),
        ),
        billed=collect_billed_tasks(records_now or records),
        on_spot=any(is_on_spot(record.cost) for record in records_now or records),
        durations_ms=course_of_values(
            (run.began_ns, run.record.metrics.duration_ms) for run in succeeded
        ),
        has_run_at_current_vcpu=bool(records_now),
        window_ns=window[-1].began_ns - window[0].began_ns,
        window_tasks=len(task_ids_of(window)),
    )


def precision_of(runs: Sequence[RunFacts]) -> MeasurementPrecision:
    """How exactly measured runs were measured."""
    records = [run.record for run in runs]
    newest = records[-1]
    sources = {known_peak_source(record.metrics) for record in records}
    peak_source: PeakSource | None = None
    if "sampled" in sources:
        peak_source = "sampled"
    elif "kernel" in sources:
        peak_source = "kernel"
    models = [record.processor.model for record in records]
    processors = Counter(short_processor_name(model) for model in models if model)
    without_memory = [
        other for other in newest.containers if needed_memory_of(other, newest) is None
    ]
    return MeasurementPrecision(
        peak_source=peak_source,
        stats_period_ms=max_known(*(stats_period_ms(record) for record in records)),
        unknown_memory=tuple(container.name for container in without_memory),
        is_by_minute=any(record.is_sampled_each_minute for record in records),
        is_too_short=all(_is_too_short(record) for record in records),
        is_starved=all(map(is_starved, records)),
        processors=tuple(processors.most_common()),
    )


def _saturated_percent(record: Record) -> float | None:
    return record.metrics.vcpu_saturated_percent


def _mean_percent(
    records: Iterable[Record], read: Callable[[Record], float | None]
) -> float | None:
    """Return the mean weighted by the runs' durations. A run of unknown duration hardly counts."""
    products: list[float] = []
    durations_ms: list[float] = []
    for record in records:
        percent = read(record)
        if percent is None:
            continue
        duration_ms = first_known(record.metrics.duration_ms, 1.0)
        products.append(percent * duration_ms)
        durations_ms.append(duration_ms)
    total_ms = math.fsum(durations_ms)
    if not total_ms:
        return None
    return round(math.fsum(products) / total_ms, FACTOR_DIGITS)


def has_succeeded(run: RunFacts) -> bool:
    """Whether the run succeeded, or perhaps: Container Insights alone does not know how a run
    ended.
    """
    status = run.outcome.status
    return status == "success" or (status == "unknown" and run.record.is_sampled_each_minute)


def _is_too_short(record: Record) -> bool:
    """Whether the memory of the run was read too rarely to show its peak.

    On Fargate, the stats of a run of 19 s have one reading.
    """
    if record.is_sampled_each_minute:
        return (record.metrics.duration_ms or 0) < MIN_MINUTES * MS_PER_MINUTE
    samples = first_known(record.sampling.samples, MIN_SAMPLES)
    return known_peak_source(record.metrics) == "sampled" and samples < MIN_SAMPLES
