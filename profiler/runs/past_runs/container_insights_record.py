"""The record of a run from what Container Insights wrote of its task: one performance log event
each minute.

CPU, memory and the network are the means of a minute, which counts for its part between the start
and the end of the run. The numbers cover the whole task. Memory used may include pages of files: in
version 2 of the control groups, the agent subtracts the inactive ones only. ECS's event of the
stopped task, if there is one, adds the end. The CloudWatch User Guide describes the values:
"Container Insights performance log events for Amazon ECS".
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.record_assembly import with_cpu_demand
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.statistics import TimeWeightedStatistics, percent_of
from profiler.core.container_roles import TaskContainer, container_roles
from profiler.core.optional_math import first_known, known, known_members, rounded
from profiler.core.timestamps import (
    MS_PER_MINUTE,
    NS_PER_MINUTE,
    NS_PER_MS,
    NS_PER_SECOND,
    format_ms,
    span_ms,
)
from profiler.record.ecs_event_outcome import judge_candidates
from profiler.record.equal_steps import rounded_column
from profiler.record.measured import Number
from profiler.record.model_base import absent_if_empty
from profiler.record.record_model import (
    CONTAINER_INSIGHTS,
    UNKNOWN_COST,
    UNKNOWN_SIZE,
    Container,
    Metrics,
    Record,
    Report,
    Sampling,
    Series,
    TaskSize,
)
from profiler.record.spot_price import cost_on_provider
from profiler.record.stop_causes import outcome_of
from profiler.record.stopped_task import EventContainer, StoppedTask
from profiler.record.units import (
    CPU_SECONDS_DIGITS,
    VCPU_DIGITS,
    billed_time_ms,
    bytes_to_mebibytes,
    rounded_number,
)
from profiler.runs.past_runs.past_run import PastRun, TaskEvent
from profiler.sizing.advice import with_recommendation
from profiler.sizing.prices import X86, PriceOverrides

_MAX_MS = 7.3e12  # the year 2200
_UNITS_PER_VCPU = 1024
_GB_BYTES = 1e9
_GIB_BYTES = 2**30
_MB_PER_GIB = 1024


class PerformanceEvent(Struct, frozen=True, kw_only=True, rename="pascal"):
    """A performance log event of a task or a container, without its values.

    A field that the event lacks is None.

    Times are in milliseconds since 1970; ``timestamp`` is the end of the minute. Ephemeral storage
    is in GB.
    """

    type: str
    task_id: str
    timestamp: float
    service_name: str | None = None
    container_name: str | None = None
    image: str | None = None
    task_definition_family: str | None = None
    task_definition_revision: str | int | None = None
    account_id: str | None = field(name="AccountID", default=None)
    region: str | None = None
    availability_zone: str | None = None
    launch_type: str | None = None
    known_status: str | None = None
    pull_started_at: float | None = None
    started_at: float | None = None
    cpu_reserved: float | None = None
    memory_reserved: float | None = None
    ephemeral_storage_utilized: float | None = None
    ephemeral_storage_reserved: float | None = None


class MinuteValues(Struct, frozen=True, gc=False, rename="pascal"):
    """The values of an event.

    Storage bytes are counted from the start of the task on, network bytes are per second.
    """

    timestamp: float
    cpu_utilized: float | None = None
    memory_utilized: float | None = None
    storage_read_bytes: float | None = None
    storage_write_bytes: float | None = None
    network_rx_bytes: float | None = None
    network_tx_bytes: float | None = None

    @property
    def vcpu(self) -> float | None:
        """The mean number of vCPUs in use."""
        return _possible_number(self.cpu_utilized, _UNITS_PER_VCPU)

    @property
    def memory_mb(self) -> float | None:
        return _possible_number(self.memory_utilized)

    @property
    def end_ns(self) -> int:
        return int(self.timestamp) * NS_PER_MS


class SeenTask(Struct):
    """A task that Container Insights saw: the latest event that has its start, and its minutes
    in any order.
    """

    cluster: str
    event: PerformanceEvent
    minutes: dict[float, MinuteValues] = field(default_factory=dict)

    def add_event(self, event: PerformanceEvent, minute: MinuteValues) -> None:
        """Add an event and its values. An event that was delivered twice counts once."""
        self.minutes[minute.timestamp] = minute
        if _event_precedence(event) > _event_precedence(self.event):
            self.event = event


def _event_precedence(event: PerformanceEvent) -> tuple[bool, float]:
    """The order of a task's events: the highest one has its description."""
    return event.started_at is not None, event.timestamp


def _possible_number(value: float | None, per: float = 1) -> float | None:
    return value / per if value is not None and 0 <= value < math.inf else None


def task_without_minutes(end: StoppedTask) -> SeenTask:
    """A task without minutes: it ended before Container Insights saw it."""
    event = PerformanceEvent(
        type="Task",
        task_id=end.id,
        timestamp=0,
        task_definition_family=end.family,
        task_definition_revision=end.revision,
    )
    return SeenTask(end.cluster or "", event)


class _RunTimes(Struct, frozen=True, kw_only=True):
    """Times of a run in ns since 1970.

    Without ECS's event, ``until_ns`` is whole minutes after the start.
    """

    pulled_ns: int | None
    started_ns: int | None
    finished_ns: int | None
    until_ns: int | None

    def part_of_minute_ns(self, minute: MinuteValues) -> int:
        """The part of a minute that belongs to the run; 0 or less: none."""
        from_ns = max(minute.end_ns - NS_PER_MINUTE, self.started_ns or 0)
        to_ns = min(minute.end_ns, self.finished_ns or minute.end_ns)
        return to_ns - from_ns


def _run_times(
    event: PerformanceEvent, end: StoppedTask, minutes: Sequence[MinuteValues]
) -> _RunTimes:
    started_ns = _first_known_ns(event.started_at, end.started_at)
    finished_ns = _first_known_ns(None, end.execution_stopped_at)
    until_ns = finished_ns
    if started_ns is not None and until_ns is None and minutes:
        last_minute = _step_number_of(minutes[-1], started_ns) + 1
        until_ns = started_ns + max(last_minute, 0) * NS_PER_MINUTE
    return _RunTimes(
        pulled_ns=_first_known_ns(event.pull_started_at, end.pull_started_at),
        started_ns=started_ns,
        finished_ns=finished_ns,
        until_ns=until_ns,
    )


def _step_number_of(minute: MinuteValues, started_ns: int) -> int:
    """The number of the minute after the start, from 0 on, in or at whose end this one ends."""
    return -((started_ns - minute.end_ns) // NS_PER_MINUTE) - 1


def _first_known_ns(time_ms: float | None, moment: datetime | None) -> int | None:
    if time_ms and 0 < time_ms < _MAX_MS:
        return int(time_ms) * NS_PER_MS
    return None if moment is None else round(moment.timestamp() * 1000) * NS_PER_MS


def run_of_minutes(
    task: SeenTask,
    end: StoppedTask | None,
    images: Mapping[str, str | None],
    prices: PriceOverrides,
) -> PastRun | None:
    """The run of a task; None if it never started.

    ``images`` by name are for an ``end`` that lists no containers.
    """
    event = task.event
    minutes = [task.minutes[end_ms] for end_ms in sorted(task.minutes)]
    known_end = end or StoppedTask(arn="")
    span = _run_times(event, known_end, minutes)
    if span.started_ns is None and event.known_status != "RUNNING":
        return None
    listing = known_end
    if not known_end.containers:
        containers = tuple(EventContainer(name=name, image=images[name]) for name in images)
        listing = replace(known_end, containers=containers)
    roles = container_roles(
        [TaskContainer(name=listed.name, image=listed.image) for listed in listing.containers]
    )
    batch = listing.container_or_name_only(roles.batch or event.task_definition_family or "unknown")
    candidates = [known_end.container_or_name_only(name) for name in roles.candidates]
    judged, _ = judge_candidates(known_end, candidates, monitor=roles.monitor)
    outcome = outcome_of(None, judged, container=batch.name)
    record = replace(
        _record_of_description(task, known_end),
        container=Container(
            name=batch.name,
            id=batch.runtime_id,
            arn=batch.arn,
            image=batch.image,
            image_digest=batch.image_digest,
        ),
        status=outcome.status,
        exit_code=outcome.exit_code,
        likely_out_of_memory=outcome.ran_out_of_memory or None,
        started_at=known(format_ms, span.started_ns),
        finished_at=known(format_ms, span.finished_ns),
        metrics=_metrics_of_minutes(event, minutes, span),
        series=_series_of_minutes(minutes, span.started_ns),
    )
    time = format_ms(span.until_ns or int(event.timestamp) * NS_PER_MS)
    report = Report(
        time=time, type="task.report", record=_with_advice_and_cost(record, known_end, prices, time)
    )
    if end is None:
        return PastRun(report=report)
    task_event = TaskEvent(
        end=judged,
        stop_code=end.stop_code,
        started_by=end.started_by,
    )
    return PastRun(report=report, event=task_event)


def _record_of_description(task: SeenTask, end: StoppedTask) -> Record:
    """The record with what the task's description says: identity, place and size."""
    event = task.event
    launch_type = event.launch_type or end.launch_type
    revision = event.task_definition_revision
    size = _task_size(event)
    return Record(
        task_id=event.task_id,
        task_arn=end.arn or None,
        cluster=task.cluster,
        family=event.task_definition_family,
        revision=known(str, revision),
        region=event.region or end.region,
        account_id=event.account_id or end.account_id,
        availability_zone=event.availability_zone or end.availability_zone,
        launch_type=launch_type,
        cpu_architecture=end.cpu_architecture or (launch_type and X86),
        container=Container(name=""),
        sampling=Sampling(interval_ms=MS_PER_MINUTE, sources=(CONTAINER_INSIGHTS,)),
        task_size=absent_if_empty(size, UNKNOWN_SIZE),
    )


def _task_size(event: PerformanceEvent) -> TaskSize:
    return TaskSize(
        vcpu=_reserved_size(event.cpu_reserved, _UNITS_PER_VCPU),
        memory_mb=_reserved_size(event.memory_reserved, 1),
    )


def _reserved_size(reserved: float | None, per: int) -> Number | None:
    """A size; None if nothing is reserved, as for the CPU of tasks on EC2."""
    return rounded_number(_possible_number(reserved, per)) or None


def _with_advice_and_cost(
    record: Record, end: StoppedTask, prices: PriceOverrides, time: str
) -> Record:
    """Add recommendation and cost.

    The price basis names Spot, and an architecture that is only assumed.
    """
    record = with_recommendation(record, prices, time=time)
    cost = record.cost
    if cost != UNKNOWN_COST and end.cpu_architecture is None:
        cost = replace(cost, price_basis=(cost.price_basis or "").replace(X86, f"{X86} (assumed)"))
    return replace(record, cost=cost_on_provider(end.capacity_provider, cost))


def _metrics_of_minutes(
    event: PerformanceEvent, minutes: Sequence[MinuteValues], span: _RunTimes
) -> Metrics:
    metrics = Metrics(
        duration_ms=span_ms(span.started_ns, span.until_ns),
        billed_duration_ms=billed_time_ms(span.pulled_ns, span.until_ns),
        init_duration_ms=span_ms(span.pulled_ns, span.started_ns),
        **_storage_sizes_mb(event),
    )
    parts: list[tuple[MinuteValues, int]] = []
    for minute in minutes:
        part_ns = span.part_of_minute_ns(minute)
        if part_ns > 0:
            parts.append((minute, part_ns))
    size = _task_size(event)
    metrics = _with_traffic(metrics, parts)
    metrics = _with_memory(metrics, parts, size.memory_mb)
    return _with_cpu(metrics, parts, size.vcpu)


# Minutes in the order of time, each with its part of the run in nanoseconds.
_Parts = Sequence[tuple[MinuteValues, int]]


def _with_cpu(metrics: Metrics, parts: _Parts, vcpu_size: float | None) -> Metrics:
    statistics = TimeWeightedStatistics()
    demand = CpuDemand(vcpu_size)
    cpu_seconds: float | None = None
    for minute, part_ns in parts:
        vcpu = minute.vcpu
        if vcpu is not None:
            statistics.add_value(vcpu, part_ns)
            demand.add_step(vcpu, part_ns)
            cpu_seconds = (cpu_seconds or 0.0) + vcpu * part_ns / NS_PER_SECOND
    metrics = replace(
        metrics,
        vcpu_size=vcpu_size,
        cpu_seconds=rounded(cpu_seconds, CPU_SECONDS_DIGITS),
        vcpu_used=statistics.distribution(digits=VCPU_DIGITS),
        cpu_utilization_percent=percent_of(statistics, vcpu_size),
    )
    return with_cpu_demand(metrics, demand, vcpu_size=vcpu_size, max_threads=None)


def _with_memory(metrics: Metrics, parts: _Parts, size_mb: Number | None) -> Metrics:
    statistics = TimeWeightedStatistics()
    peak_ns: int | None = None
    for minute, part_ns in parts:
        memory_mb = minute.memory_mb
        if memory_mb is not None:
            if memory_mb > first_known(statistics.maximum, -1):
                peak_ns = minute.end_ns
            statistics.add_value(memory_mb, part_ns)
    return replace(
        metrics,
        memory_size_mb=size_mb,
        max_memory_used_mb=rounded_number(statistics.maximum),
        memory_used_mb=statistics.distribution(),
        memory_utilization_percent=percent_of(statistics, size_mb),
        memory_peak_source=None if peak_ns is None else "sampled",
        max_memory_used_at=known(format_ms, peak_ns),
    )


def _with_traffic(metrics: Metrics, parts: _Parts) -> Metrics:
    """The metrics with the bytes of network and storage; a storage counter's last value counts."""
    totals: dict[str, float] = {}
    for minute, part_ns in parts:
        rates = {
            "network_rx_bytes": minute.network_rx_bytes,
            "network_tx_bytes": minute.network_tx_bytes,
        }
        possible = known_members({name: _possible_number(value) for name, value in rates.items()})
        for name, bytes_per_second in possible.items():
            growth = bytes_per_second * part_ns / NS_PER_SECOND
            totals[name] = totals.get(name, 0) + growth
        counters = {
            "block_read_bytes": minute.storage_read_bytes,
            "block_write_bytes": minute.storage_write_bytes,
        }
        totals |= known_members({name: _possible_number(value) for name, value in counters.items()})
    whole_bytes: dict[str, Any] = {name: round(total) for name, total in totals.items()}
    return replace(metrics, **whole_bytes)


def _storage_sizes_mb(event: PerformanceEvent) -> dict[str, Any]:
    """The fields of the ephemeral storage that are known."""
    fields: dict[str, Any] = {}
    used_gb = _possible_number(event.ephemeral_storage_utilized)
    if used_gb is not None:
        fields["ephemeral_storage_used_mb"] = bytes_to_mebibytes(used_gb * _GB_BYTES)
    size_gb = _possible_number(event.ephemeral_storage_reserved)
    if size_gb is not None:
        # AWS writes whole GiB in GB with two decimals: 21.47 GB are 20 GiB.
        size_gib = round(size_gb * _GB_BYTES / _GIB_BYTES)
        fields["ephemeral_storage_size_mb"] = size_gib * _MB_PER_GIB
    return fields


def _series_of_minutes(minutes: Sequence[MinuteValues], started_ns: int | None) -> Series | None:
    """A step has the value of the event after its start, at or before its end."""
    if started_ns is None:
        return None
    minute_of_step = {_step_number_of(minute, started_ns): minute for minute in minutes}
    step_count = max(minute_of_step, default=-1) + 1
    if step_count <= 0:
        return None
    vcpu: list[float | None] = [None] * step_count
    memory_mb: list[float | None] = [None] * step_count
    for step, minute in minute_of_step.items():
        if step >= 0:
            vcpu[step] = minute.vcpu
            memory_mb[step] = minute.memory_mb
    return Series(
        started_at=format_ms(started_ns),
        step_ms=MS_PER_MINUTE,
        vcpu_used=rounded_column(tuple(vcpu)),
        memory_used_mb=rounded_column(tuple(memory_mb)),
    )
