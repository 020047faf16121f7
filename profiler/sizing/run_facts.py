"""The facts of a run that size recommendations use: what its task needed, and how the run went."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import any_known, first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.record.container_engine_clients import container_client
from profiler.record.device_totals import was_never_used
from profiler.record.family_identity import FamilyKey, family_key
from profiler.record.model_base import absent_if_empty
from profiler.record.record_model import (
    NOT_MEASURED,
    UNKNOWN_COST,
    UNKNOWN_SIZE,
    Metrics,
    Record,
    Report,
    SlowdownBounds,
    TaskSize,
    without_large_parts,
)
from profiler.record.run_outcome import Outcome
from profiler.record.task_needs import (
    may_have_lost_a_child,
    memory_with_files_mb,
    needed_memory_mb,
    needed_vcpu,
    others_memory_mb,
    task_size_of,
)
from profiler.record.units import billed_time_ms
from profiler.sizing.fargate_sizes import LEGAL_SIZES, whole_size
from profiler.sizing.prices import PriceOverrides, cost_of, priced_record


class RunFacts(Struct, frozen=True, kw_only=True):
    """What the task of one run needed, and its record without the large parts.

    ``began`` is when its line was written if the record has no start. ``needed_memory_mb`` is the
    sum of the peaks of all containers, None if the batch was not measured or had a container engine
    do its work; ``needed_vcpu`` alike, of 95th percentiles, at most the size. ``counts_files``: the
    memory may include mapped files; ``memory_with_files_mb`` has them where they are known apart.
    ``slowdown`` has the bounds for each vCPU size at which the run would have been slower; None for
    records of schema 1.0 and without CPU measurements.
    ``is_moved``: it counts as if it had run on Fargate, although it ran elsewhere.
    ``is_confirmed``: its source vouches for the task and its family; only then it is a reason to
    change something.
    """

    record: Record
    family: FamilyKey
    began: str
    began_ns: int
    needed_memory_mb: float | None
    memory_with_files_mb: float | None = None
    counts_files: bool
    needed_vcpu: float | None
    slowdown: Mapping[float, SlowdownBounds] | None
    is_moved: bool
    outcome: Outcome
    is_confirmed: bool = True

    @property
    def container_key(self) -> tuple[str, str, str]:
        """Each container of a task may have a report."""
        return self.record.task_id, self.record.container.name, self.began

    @property
    def has_memory(self) -> bool:
        return self.needed_memory_mb is not None

    @property
    def is_measured(self) -> bool:
        """Whether the record has measurements of the batch's memory or CPU."""
        return any_known(self.needed_memory_mb, self.needed_vcpu)


def run_facts_of(
    report: Report,
    outcome: Outcome,
    on_fargate: str | None = None,
    *,
    is_confirmed: bool = True,
) -> RunFacts:
    """The facts of the final report of a run that ended so; with a Region, as if it had been on
    Fargate there.
    """
    given = report.record
    record = without_large_parts(record_on_fargate(given, on_fargate) if on_fargate else given)
    began = record.started_at or report.time
    measured = record
    if container_client(given):  # a daemon did the work: what was measured says nothing of it
        measured = replace(record, metrics=Metrics(), containers=())
    return RunFacts(
        record=record,
        family=family_key(given),
        began=began,
        began_ns=record.started_ns or report.time_ns or 0,
        needed_memory_mb=needed_memory_mb(measured),
        memory_with_files_mb=memory_with_files_mb(measured),
        counts_files=record.metrics.counts_files,
        needed_vcpu=needed_vcpu(measured),
        slowdown=_slowdown_by_vcpu(measured.metrics),
        is_moved=record.launch_type != given.launch_type,
        outcome=outcome,
        is_confirmed=is_confirmed,
    )


def runs_in_time_order(runs: Iterable[RunFacts]) -> list[RunFacts]:
    """The runs in the order of time."""
    return sorted(runs, key=lambda run: (run.began_ns, run.container_key))


def stats_period_ms(record: Record) -> int | None:
    """The time between two values of the statistics."""
    sampling = record.sampling
    if record.is_sampled_each_minute:
        return int(sampling.interval_ms or 0)
    return sampling.stats_period_ms


def were_gpus_idle(record: Record) -> bool | None:
    """Whether the run used none of its GPUs; None without GPUs that are known to belong to the
    batch.
    """
    knows_gpus = bool(record.gpus) and all(
        gpu.utilization_percent != NOT_MEASURED for gpu in record.gpus
    )
    if knows_gpus and not record.are_gpus_of_instance:
        return all(map(was_never_used, record.gpus))
    return None


def possible_kill_size_mb(record: Record) -> float | None:
    """The size at which a child may have been killed."""
    task_mb = task_size_of(record).memory_mb
    reached_mb = first_known(task_mb, record.metrics.memory_size_mb)
    if may_have_lost_a_child(record.metrics):
        return reached_mb
    return None


def _slowdown_by_vcpu(metrics: Metrics) -> Mapping[float, SlowdownBounds] | None:
    if metrics.slowdown_at_vcpu is None:
        return None
    slowdowns = {}
    for name, bounds in metrics.slowdown_at_vcpu.items():
        try:
            vcpu = float(name)
        except ValueError:
            continue
        least = _possible_factor(bounds.min)
        slowdowns[vcpu] = SlowdownBounds(min=least, max=max(_possible_factor(bounds.max), least))
    return slowdowns


def _possible_factor(factor: float) -> float:
    """No run is faster with fewer vCPUs, or slower by more than any number of CPUs."""
    return round(min(max(factor, 1.0), 1e6), 3)


def oom_size_mb(record: Record) -> float | None:
    """Return the size that was too small: the task's memory, or the batch's own limit plus the
    other containers.
    """
    size = task_size_of(record)
    limit_mb = record.metrics.memory_size_mb
    if limit_mb is None:
        return size.memory_mb
    if size.memory_mb is None or limit_mb >= size.memory_mb:
        return limit_mb
    return min(limit_mb + (others_memory_mb(record) or 0), size.memory_mb)


def record_on_fargate(record: Record, region: str) -> Record:
    """The record, as if its run had been on Fargate.

    Its duration in whole seconds, at least 60, is billed.

    The machine counts as the size of a task without one. A run that used devices stays: Fargate has
    none.
    """
    # A GPU that may be another task's does not count.
    uses_gpus = not record.are_gpus_of_instance and any(
        not was_never_used(gpu) for gpu in record.gpus
    )
    if record.launch_type == FARGATE or uses_gpus or record.neuron.cores:
        return record
    metrics = record.metrics
    size = task_size_of(record)
    duration_ns = None
    if metrics.duration_ms is not None:
        duration_ns = round(metrics.duration_ms * NS_PER_MS)
    known_size = TaskSize(
        vcpu=first_known(size.vcpu, metrics.vcpu_size),
        memory_mb=first_known(size.memory_mb, metrics.memory_size_mb),
    )
    return replace(
        record,
        launch_type=FARGATE,
        region=region,
        task_size=absent_if_empty(known_size, UNKNOWN_SIZE),
        metrics=replace(
            metrics,
            billed_duration_ms=billed_time_ms(0, duration_ns),
            init_duration_ms=0,
            ephemeral_storage_size_mb=None,
        ),
    )


def priced_as_if_on_fargate(
    record: Record, overrides: PriceOverrides, on_fargate: str | None
) -> Record:
    """The priced record; with a Region, a run elsewhere costs what it would cost on Fargate there,
    and nothing is known of a size that Fargate does not have.
    """
    priced = priced_record(record, overrides)
    if not on_fargate or record.launch_type == FARGATE:
        return priced
    moved = record_on_fargate(record, on_fargate)
    cost = UNKNOWN_COST
    if moved.launch_type == FARGATE and whole_size(moved.task_size) in LEGAL_SIZES:
        cost = cost_of(moved, overrides)
    return replace(priced, cost=cost)
