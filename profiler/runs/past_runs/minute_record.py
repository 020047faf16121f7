"""The record of a run from what Container Insights wrote of its task: one performance log event
each minute.

CPU, memory and the network are the means of a minute, which counts for its part between the start
and the end of the run. The numbers cover the whole task. ECS's event of the stopped task, if there
is one, adds the end. The CloudWatch User Guide describes the values: "Container Insights
performance log events for Amazon ECS".
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.statistics import TimeWeightedStatistics, percent_of
from profiler.aggregation.task_record import with_cpu_demand
from profiler.core.container_roles import TaskContainer, container_roles
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.equal_steps import rounded_column
from profiler.record.record_model import (
    CONTAINER_INSIGHTS,
    Container,
    Metrics,
    Number,
    Record,
    Report,
    Sampling,
    Series,
    TaskSize,
)
from profiler.record.spot_price import cost_on
from profiler.record.task_end import EventContainer, StoppedTask, judge_candidates
from profiler.record.units import (
    CPU_SECONDS_DIGITS,
    VCPU_DIGITS,
    as_number,
    billed_ms,
    mebibytes,
    span_ms,
)
from profiler.runs.past_runs.run_source import PastRun, TaskEvent
from profiler.sizing.advice import with_recommendation
from profiler.sizing.prices import X86, PriceOverrides

MINUTE_MS = 60_000
_MINUTE_NS = MINUTE_MS * NS_PER_MS
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


class Minute(Struct, frozen=True, gc=False, rename="pascal"):
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
        return _possible(self.cpu_utilized, _UNITS_PER_VCPU)

    @property
    def end_ns(self) -> int:
        return int(self.timestamp) * NS_PER_MS


class SeenTask(Struct):
    """A task that Container Insights saw: the latest event that has its start, and its minutes
    in any order.
    """

    cluster: str
    event: PerformanceEvent
    minutes: dict[float, Minute] = field(default_factory=dict)

    def add(self, event: PerformanceEvent, minute: Minute) -> None:
        """Add an event and its values. An event that was delivered twice counts once."""
        self.minutes[minute.timestamp] = minute
        if (event.started_at is not None, event.timestamp) > (
            self.event.started_at is not None,
            self.event.timestamp,
        ):
            self.event = event


def _possible(value: float | None, per: float = 1) -> float | None:
    return value / per if value is not None and 0 <= value < math.inf else None


def unseen_task(end: StoppedTask) -> SeenTask:
    """A task without minutes: it ended before Container Insights saw it."""
    family = end.family
    revision = end.revision
    event = PerformanceEvent(
        type="Task",
        task_id=end.id,
        timestamp=0,
        task_definition_family=family,
        task_definition_revision=revision,
    )
    return SeenTask(end.cluster or "", event)


class _Span(Struct, frozen=True, kw_only=True):
    """Times of a run in ns since 1970.

    Without ECS's event, ``until_ns`` is whole minutes after the start.
    """

    pulled_ns: int | None
    started_ns: int | None
    finished_ns: int | None
    until_ns: int | None

    def part_ns(self, minute: Minute) -> int:
        """The part of a minute that belongs to the run; 0 or less: none."""
        end_ns = minute.end_ns
        return min(end_ns, self.finished_ns or end_ns) - max(
            end_ns - _MINUTE_NS, self.started_ns or 0
        )


def _span(event: PerformanceEvent, ended: StoppedTask, minutes: Sequence[Minute]) -> _Span:
    started_ns = _known_ns(event.started_at, ended.started_at)
    finished_ns = until_ns = _known_ns(None, ended.execution_stopped_at)
    if started_ns is not None and until_ns is None and minutes:
        count = -((started_ns - minutes[-1].end_ns) // _MINUTE_NS)
        until_ns = started_ns + max(count, 0) * _MINUTE_NS
    pulled_ns = _known_ns(event.pull_started_at, ended.pull_started_at)
    return _Span(
        pulled_ns=pulled_ns, started_ns=started_ns, finished_ns=finished_ns, until_ns=until_ns
    )


def _known_ns(time_ms: float | None, moment: datetime | None) -> int | None:
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
    minutes = [task.minutes[end] for end in sorted(task.minutes)]
    ended = end or StoppedTask(arn="")
    span = _span(event, ended, minutes)
    if span.started_ns is None and event.known_status != "RUNNING":
        return None
    listed = ended.containers or tuple(
        EventContainer(name=name, image=image) for name, image in images.items()
    )
    roles = container_roles([TaskContainer(name=one.name, image=one.image) for one in listed])
    name = roles.batch or event.task_definition_family or "unknown"
    batch = next((one for one in listed if one.name == name), EventContainer(name=name))
    outcome, _ = judge_candidates(ended, roles.candidates, monitor=roles.monitor)
    launch_type = event.launch_type or ended.launch_type
    size = TaskSize(
        vcpu=_size(event.cpu_reserved, _UNITS_PER_VCPU), memory_mb=_size(event.memory_reserved, 1)
    )
    record = Record(
        task_id=event.task_id,
        task_arn=ended.arn or None,
        cluster=task.cluster,
        family=event.task_definition_family,
        revision=None
        if event.task_definition_revision is None
        else str(event.task_definition_revision),
        region=event.region or ended.region,
        account_id=event.account_id or ended.account_id,
        availability_zone=event.availability_zone or ended.availability_zone,
        launch_type=launch_type,
        cpu_architecture=ended.cpu_architecture or (launch_type and X86),
        container=Container(
            name=batch.name,
            id=batch.runtime_id,
            arn=batch.arn,
            image=batch.image,
            image_digest=batch.image_digest,
        ),
        status=outcome.status,
        exit_code=outcome.exit_code,
        likely_out_of_memory=outcome.out_of_memory or None,
        started_at=None if span.started_ns is None else format_ms(span.started_ns),
        finished_at=None if span.finished_ns is None else format_ms(span.finished_ns),
        sampling=Sampling(interval_ms=MINUTE_MS, sources=(CONTAINER_INSIGHTS,)),
        metrics=_metrics(event, minutes, span, size),
        task_size=None if size == TaskSize() else size,
        series=_series(minutes, span.started_ns),
    )
    time = format_ms(span.until_ns or int(event.timestamp) * NS_PER_MS)
    report = Report(time=time, type="task.report", record=_priced(record, ended, prices, time))
    at_the_end = TaskEvent(
        stop_code=ended.stop_code,
        stop_category=outcome.category,
        stopped_reason=outcome.reason,
        started_by=ended.started_by,
        out_of_memory=outcome.out_of_memory,
    )
    return PastRun(report=report, event=None if end is None else at_the_end)


def _size(reserved: float | None, per: int) -> Number | None:
    """A size; None if nothing is reserved, as for the CPU of tasks on EC2."""
    return as_number(_possible(reserved, per)) or None


def _priced(record: Record, end: StoppedTask, prices: PriceOverrides, time: str) -> Record:
    """Add recommendation and cost.

    The price basis names Spot, and an architecture that is only assumed.
    """
    record = with_recommendation(record, prices, time=time)
    cost = record.cost
    if cost is not None and end.cpu_architecture is None:
        cost = replace(cost, price_basis=(cost.price_basis or "").replace(X86, f"{X86} (assumed)"))
    return replace(record, cost=cost_on(end.capacity_provider, cost))


def _metrics(
    event: PerformanceEvent, minutes: Sequence[Minute], span: _Span, size: TaskSize
) -> Metrics:
    cpu = TimeWeightedStatistics()
    memory = TimeWeightedStatistics()
    demand = CpuDemand(size.vcpu)
    cpu_seconds = 0.0
    highest_ns = 0
    traffic: dict[str, Any] = {}
    for minute in minutes:
        part_ns = span.part_ns(minute)
        vcpu = minute.vcpu
        memory_mb = _possible(minute.memory_utilized)
        if part_ns <= 0:
            continue
        if vcpu is not None:
            cpu.add(vcpu, part_ns)
            demand.add(vcpu, part_ns)
            cpu_seconds += vcpu * part_ns / NS_PER_SECOND
        if memory_mb is not None:
            highest_ns = minute.end_ns if memory_mb > (memory.maximum or -1) else highest_ns
            memory.add(memory_mb, part_ns)
        for name in ("network_rx_bytes", "network_tx_bytes"):
            rate = _possible(getattr(minute, name))
            if rate is not None:
                traffic[name] = traffic.get(name, 0) + rate * part_ns / NS_PER_SECOND
        counters = (
            ("block_read_bytes", minute.storage_read_bytes),
            ("block_write_bytes", minute.storage_write_bytes),
        )
        traffic |= {name: total for name, total in counters if _possible(total) is not None}
    used_gb = _possible(event.ephemeral_storage_utilized)
    size_gb = _possible(event.ephemeral_storage_reserved)
    metrics = Metrics(
        duration_ms=span_ms(span.started_ns, span.until_ns),
        billed_duration_ms=billed_ms(span.pulled_ns, span.until_ns),
        init_duration_ms=span_ms(span.pulled_ns, span.started_ns),
        memory_size_mb=size.memory_mb,
        vcpu_size=size.vcpu,
        max_memory_used_mb=as_number(memory.maximum),
        cpu_seconds=None if cpu.maximum is None else round(cpu_seconds, CPU_SECONDS_DIGITS),
        vcpu_used=cpu.distribution(digits=VCPU_DIGITS),
        cpu_utilization_percent=percent_of(cpu, size.vcpu),
        memory_used_mb=memory.distribution(),
        memory_utilization_percent=percent_of(memory, size.memory_mb),
        memory_peak_source=None if memory.maximum is None else "sampled",
        max_memory_used_at=format_ms(highest_ns) if highest_ns else None,
        ephemeral_storage_used_mb=None if used_gb is None else mebibytes(used_gb * _GB_BYTES),
        # AWS writes whole GiB in GB with two decimals: 21.47 GB are 20 GiB.
        ephemeral_storage_size_mb=None
        if size_gb is None
        else round(size_gb * _GB_BYTES / _GIB_BYTES) * _MB_PER_GIB,
        **{name: round(total) for name, total in traffic.items()},
    )
    return with_cpu_demand(metrics, demand, vcpu_size=size.vcpu, max_threads=None)


def _series(minutes: Sequence[Minute], started_ns: int | None) -> Series | None:
    """A step has the value of the event after its start, at or before its end."""
    if started_ns is None:
        return None
    steps = {-((started_ns - one.end_ns) // _MINUTE_NS) - 1: one for one in minutes}
    found = [steps.get(index) for index in range(max(steps, default=-1) + 1)]
    if not found:
        return None
    return Series(
        started_at=format_ms(started_ns),
        step_ms=MINUTE_MS,
        vcpu_used=rounded_column(tuple(None if one is None else one.vcpu for one in found)),
        memory_used_mb=rounded_column(
            tuple(None if one is None else _possible(one.memory_utilized) for one in found)
        ),
    )
