from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.memory_peak import MemoryPeak, with_peak
from profiler.aggregation.record_assembly import RecordDraft, with_cpu_demand, with_idle_parts
from profiler.aggregation.record_evidence import ProcessActivity, RunEvidence
from profiler.aggregation.record_parts import (
    RecordPart,
    build_interval,
    build_other_container,
    build_sampling,
    container_limits,
    metadata_evidence,
    pinned_memory_warnings,
    statistics_evidence,
    unmeasured_record,
    usage_metrics,
    visible_hardware_of,
)
from profiler.aggregation.run_end import RunEnd, run_end_of_exit
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.statistics import DeviceReadings
from profiler.core.ecs_terms import arn_part, task_id
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.host import Host
from profiler.record.activity_model import TimeBreakdown
from profiler.record.record_model import (
    NOTHING_VISIBLE,
    AverageAndMaximum,
    Container,
    Distribution,
    Gpu,
    GpuIdle,
    Interval,
    Metrics,
    Monitor,
    OtherContainer,
    Processor,
    Record,
    Sampling,
    SlowdownBounds,
    TaskSize,
    Visible,
)
from tests.collected import draft_of
from tests.fakes import START_NS, sample, seconds
from tests.values import present

MIB = 2**20
GIB = 2**30
RUNNING = RunEnd(status="running", until_ns=START_NS)
HOST = Host(vcpu=8, memory_bytes=32 * GIB)
UNLIMITED = 9223372036854771712
OF_TASK = {"vcpu_limit": 1.0, "memory_limit_bytes": 2 * GIB}


def steady(value: float) -> Distribution:
    """The distribution of a quantity that never changed."""
    return Distribution(avg=value, p50=value, p95=value, p99=value, max=value)


def usage_with(
    cpu_seconds: float | None = 0.5, *, at: Sequence[float] = (1,), mib: float = 100, **fields: int
) -> ContainerUsage:
    usage = ContainerUsage(seconds(1))
    for second in at:
        taken = sample(START_NS + seconds(second), cpu_seconds, round(mib * MIB), **fields)
        usage.add_sample(taken, epoch="b", received_ns=seconds(second), started_ns=START_NS)
    return usage


def batch_record(
    container: ContainerMetadata,
    task: TaskMetadata,
    usage: ContainerUsage | None,
    end: RunEnd,
    host: Host,
    *,
    others: Sequence[OtherContainer] = (),
) -> Record:
    """The record of a batch by the task stats alone."""
    limit_bytes = None if usage is None else usage.memory_limit_bytes
    sizes = container_limits(container, task, host, limit_bytes)
    run = unmeasured_record(container, task, end, host, sizes)
    run = replace(run, containers=tuple(others))
    evidence = [metadata_evidence(container)]
    if usage is not None:
        evidence.append(statistics_evidence(usage, sizes))
    return RecordDraft(run, end, sizes, tuple(evidence)).build_record()


def interval(usage: ContainerUsage, lasts: float = 0) -> Interval:
    until_ns = START_NS + seconds(lasts)
    return build_interval(
        usage.end_interval(), DeviceReadings(), SIZES, started_ns=START_NS, finished_ns=until_ns
    )


@pytest.mark.parametrize(
    ("container", "task", "stats_limit", "vcpu", "memory"),
    [
        ({"vcpu_share": 0.5, "memory_limit_bytes": GIB}, OF_TASK, None, 1.0, GIB),
        ({"vcpu_share": 4.0}, OF_TASK, UNLIMITED, 1.0, 2 * GIB),
        ({"vcpu_share": 0.5}, {}, 3 * GIB, 8, 3 * GIB),
        ({}, {}, UNLIMITED, 8, None),
        ({}, {}, 32 * GIB, 8, 32 * GIB),
        ({}, {}, 33 * GIB, 8, None),
        ({}, {}, None, 8, None),
    ],
)
def test_the_limits_of_a_container(
    container: dict[str, Any],
    task: dict[str, Any],
    stats_limit: int | None,
    vcpu: float,
    memory: float | None,
) -> None:
    sizes = container_limits(
        ContainerMetadata(name="b", **container), TaskMetadata(**task), HOST, stats_limit
    )
    assert sizes == ResourceLimits(vcpu=vcpu, memory_bytes=memory)


SIZES = ResourceLimits(vcpu=2, memory_bytes=400 * MIB)
USED = Metrics(
    vcpu_size=2,
    memory_size_mb=400,
    max_memory_used_mb=100,
    cpu_seconds=0.123457,
    vcpu_used=steady(0.12346),
    cpu_utilization_percent=steady(6.173),
    memory_used_mb=steady(100.0),
    memory_utilization_percent=steady(25.0),
    memory_peak_source="sampled",
    max_memory_used_at="2025-11-20T00:53:21.000Z",
)


def test_usage_is_relative_to_the_limits() -> None:
    usage = usage_with(
        0.123456789,
        memory_cache_bytes=30 * MIB,
        memory_mapped_file_bytes=20 * MIB,
        memory_usage_peak_bytes=150 * MIB,
        network_rx_bytes=1,
        network_tx_bytes=2,
        block_read_bytes=3,
        block_write_bytes=4,
        pids=5,
    )
    assert usage_metrics(usage, SIZES) == replace(
        USED,
        memory_cache_mb=AverageAndMaximum(avg=30, max=30),
        memory_mapped_file_mb=AverageAndMaximum(avg=20, max=20),
        memory_usage_peak_mb=150,
        network_rx_bytes=1,
        network_tx_bytes=2,
        block_read_bytes=3,
        block_write_bytes=4,
        max_pids=5,
    )


def with_kernel_peak(metrics: Metrics, size_bytes: float) -> Metrics:
    peak = MemoryPeak(size_bytes=size_bytes, source="kernel")
    return with_peak(metrics, peak, SIZES.memory_bytes)


def test_no_value_is_above_a_peak_that_is_cut_to_the_limit() -> None:
    usage = usage_with(None, at=(1, 2), mib=400.5)
    metrics = with_kernel_peak(usage_metrics(usage, SIZES), 400.5 * MIB)
    used, percent = present(metrics.memory_used_mb), present(metrics.memory_utilization_percent)
    assert {metrics.max_memory_used_mb, used.avg, used.p99, used.max} == {400}
    assert {percent.avg, percent.p99, percent.max} == {100}


@pytest.mark.parametrize(("pinned_mib", "bound_mb"), [(0, None), (3, None), (50, 150)])
def test_what_open_files_may_keep_bounds_the_memory_used(
    pinned_mib: int, bound_mb: float | None
) -> None:
    usage = usage_with(None, mib=100, memory_pinned_bytes=pinned_mib * MIB)
    metrics = usage_metrics(usage, SIZES)
    assert metrics.memory_used_bound_mb == bound_mb
    assert len(pinned_memory_warnings(usage)) == (bound_mb is not None)
    certain = with_kernel_peak(metrics, 120 * MIB)
    assert certain.memory_used_bound_mb == bound_mb, "a mark of the processes lacks kernel memory"
    assert with_kernel_peak(metrics, 150 * MIB).memory_used_bound_mb is None


def test_unknown_counters_are_absent() -> None:
    """No sample, and a sample without values."""
    silent = ContainerUsage(seconds(1))
    silent.add_sample(sample(START_NS), received_ns=0, started_ns=None)
    bounds = Metrics(vcpu_size=2, memory_size_mb=400)
    unread = ContainerUsage(seconds(1))
    assert usage_metrics(unread, SIZES) == usage_metrics(silent, SIZES) == bounds
    begin = "2025-11-20T00:53:20.000Z"
    assert interval(silent) == Interval(started_at=begin, finished_at=begin)


def test_an_interval_has_the_numbers_since_the_last() -> None:
    assert interval(usage_with(0.123456789), 60) == Interval(
        started_at="2025-11-20T00:53:20.000Z",
        finished_at="2025-11-20T00:54:20.000Z",
        **{name: getattr(USED, name) for name in Interval.__struct_fields__ if hasattr(USED, name)},
    )


def test_the_demand_for_cpu_is_that_of_the_tasks_threads() -> None:
    """The demand for CPU is added for the size and the threads of the task."""
    demand = CpuDemand()
    assert with_cpu_demand(USED, demand, vcpu_size=2, max_threads=1) == USED
    demand.add_step(0.5, seconds(100))
    of_one_thread = {"0.25": SlowdownBounds(min=2, max=2.5), "0.5": SlowdownBounds(min=1, max=1.5)}
    of_any_threads = {
        "0.25": SlowdownBounds(min=2, max=2.75),
        "0.5": SlowdownBounds(min=1, max=1.75),
        "1": SlowdownBounds(min=1, max=1.25),
    }
    for max_threads, slowdown in ((1, of_one_thread), (None, of_any_threads)):
        assert with_cpu_demand(USED, demand, vcpu_size=2, max_threads=max_threads) == replace(
            USED, vcpu_saturated_percent=0.0, slowdown_at_vcpu=slowdown
        )


def test_the_sampling_is_described_in_milliseconds() -> None:
    usage = usage_with(at=(1, 2, 2, 3, 3, 9, 9))
    assert build_sampling(
        usage, ["stats", "cgroup"], interval_ns=seconds(0.5), failures=4, missed=5
    ) == Sampling(
        interval_ms=500,
        samples=4,
        duplicates=3,
        failures=4,
        missed_ticks=5,
        longest_gap_ms=6000,
        stats_period_ms=1002,  # a percentile: within 1 %
        sources=("stats", "cgroup"),
    )
    none = ContainerUsage(seconds(1))
    unread = build_sampling(none, (), interval_ns=seconds(1), failures=1, missed=0)
    assert unread == Sampling(interval_ms=1000, samples=0, duplicates=0, failures=1, missed_ticks=0)


def test_another_peak_than_that_of_the_samples_is_the_maximum_everywhere() -> None:
    """123456789 bytes are 117.738 MiB and 29.434 % of 400."""
    assert with_kernel_peak(USED, 123456789) == replace(
        USED,
        max_memory_used_mb=117.738,
        max_memory_used_at=None,
        memory_peak_source="kernel",
        memory_used_mb=replace(steady(100.0), max=117.738),
        memory_utilization_percent=replace(steady(25.0), max=29.434),
    )


@pytest.mark.parametrize(
    ("peak_mib", "at"),
    [(100, USED.max_memory_used_at), (111, USED.max_memory_used_at), (112, None), (200, None)],
)
def test_a_peak_has_a_time_if_a_sample_was_near_it(peak_mib: int, at: str | None) -> None:
    assert with_kernel_peak(USED, peak_mib * MIB).max_memory_used_at == at


def test_another_container_is_shown_with_its_end_or_up_to_now() -> None:
    running = ContainerMetadata(
        name="side", known_status="RUNNING", started_ns=START_NS, memory_limit_bytes=400 * MIB
    )
    stopped = replace(
        running, known_status="STOPPED", exit_code=3, finished_ns=START_NS + seconds(7)
    )
    usage = usage_with(0.123456789)
    task = TaskMetadata(vcpu_limit=2)
    now = RunEnd(status="running", until_ns=START_NS + seconds(20))
    assert build_other_container(running, task, usage, now, HOST) == OtherContainer(
        name="side", status="RUNNING", metrics=replace(USED, duration_ms=20_000)
    )
    assert build_other_container(stopped, task, usage, now, HOST) == OtherContainer(
        name="side", status="STOPPED", exit_code=3, metrics=replace(USED, duration_ms=7_000)
    )


def test_the_share_of_a_container_is_recorded_and_percentages_are_of_the_task() -> None:
    """A batch with a share of 0.5 vCPU that uses 0.515 of the task's 2 vCPU: 26 % and not 103 %."""
    container, task = ContainerMetadata(name="b", vcpu_share=0.5), TaskMetadata(vcpu_limit=2)
    usage = usage_with(0.515)
    other = build_other_container(container, task, usage, RUNNING, HOST).metrics
    for metrics in (
        other,
        batch_record(container, task, usage, RunEnd(status="unknown"), HOST).metrics,
    ):
        assert metrics is not None
        assert metrics.vcpu_size == 2
        assert metrics.vcpu_share == 0.5
        assert present(metrics.cpu_utilization_percent).max == 25.75


def test_the_record_describes_the_batch_and_its_task() -> None:
    arn = "arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123"
    of_task: dict[str, Any] = {
        "cluster": "jobs",
        "family": "nightly",
        "revision": "7",
        "launch_type": "FARGATE",
    }
    of_container: dict[str, Any] = {
        "name": "batch",
        "arn": "arn:c",
        "image": "jobs:1",
        "image_digest": "sha256:0",
    }
    task = TaskMetadata(
        arn=arn,
        **of_task,
        availability_zone="eu-west-1b",
        vcpu_limit=2,
        memory_limit_bytes=400 * MIB,
        pull_started_ns=START_NS - seconds(5),
        ephemeral_storage_used_mib=261,
        ephemeral_storage_size_mib=20496,
    )
    container = ContainerMetadata(docker_id="0123-1", started_ns=START_NS, **of_container)
    side = OtherContainer(name="side")
    end = run_end_of_exit(3, START_NS + seconds(90), was_stopped=False)
    host = replace(HOST, cpu_architecture="ARM64", processor_model="Neoverse-N1", processor_count=4)
    assert batch_record(
        container, task, usage_with(0.123456789), end, host, others=[side]
    ) == Record(
        task_id="0123",
        task_arn=arn,
        **of_task,
        region="eu-west-1",
        account_id="111122223333",
        availability_zone="eu-west-1b",
        cpu_architecture="ARM64",
        processor=Processor(model="Neoverse-N1", count=4),
        container=Container(id="0123-1", **of_container),
        status="failure",
        exit_code=3,
        likely_out_of_memory=False,
        started_at="2025-11-20T00:53:20.000Z",
        finished_at="2025-11-20T00:54:50.000Z",
        metrics=replace(
            USED,
            duration_ms=90_000,
            billed_duration_ms=95_000,
            init_duration_ms=5_000,
            ephemeral_storage_used_mb=261,
            ephemeral_storage_size_mb=20496,
        ),
        containers=(side,),
        task_size=TaskSize(vcpu=2, memory_mb=400),
        visible=Visible(memory_mb=32 * 1024, cpus=4),
    )


@pytest.mark.parametrize(
    ("fields", "limit_bytes", "likely"),
    [
        ({}, 110 * MIB, True),
        ({}, None, None),
        ({"memory_limit_hits": 1}, 140 * MIB, True),
        ({"memory_limit_hits": 1}, 2000 * MIB, None),  # at 5 %: the hits were page cache
        (None, 110 * MIB, None),
    ],
)
def test_a_killed_batch_is_held_against_its_limit_and_the_hits_of_it(
    fields: dict[str, Any] | None, limit_bytes: int | None, *, likely: bool | None
) -> None:
    usage = None if fields is None else usage_with(**fields)
    container = ContainerMetadata(name="b", memory_limit_bytes=limit_bytes)
    record = batch_record(
        container, TaskMetadata(), usage, run_end_of_exit(137, START_NS, was_stopped=False), Host()
    )
    assert record.likely_out_of_memory is likely
    assert record.out_of_memory_evidence == ("exit-137-at-limit" if likely else None)


@pytest.mark.parametrize(
    ("peak_mib", "cache_mib", "restarts", "likely"),
    [
        (380, 0, 0, None),
        (379, 0, 0, False),
        (400, 20, 0, None),
        (400, 21, 0, False),
        (None, 0, 0, False),
        (None, 0, 1, None),  # an earlier attempt may have been killed
    ],
)
def test_usage_at_the_limit_without_a_sample_leaves_a_childs_kill_open(
    peak_mib: int | None, cache_mib: int, restarts: int, *, likely: bool | None
) -> None:
    """The batch held 100 of its 400 MiB whenever it was sampled, and ended with 0."""
    fields: dict[str, Any] = {} if peak_mib is None else {"memory_usage_peak_bytes": peak_mib * MIB}
    usage = usage_with(memory_cache_bytes=cache_mib * MIB, **fields)
    container = ContainerMetadata(name="b", memory_limit_bytes=400 * MIB, restart_count=restarts)
    end = run_end_of_exit(0, START_NS, was_stopped=False)
    record = batch_record(container, TaskMetadata(), usage, end, Host())
    assert record.likely_out_of_memory is likely
    assert record.out_of_memory_evidence is None
    assert record.container.restarts == (restarts or None)


def test_the_mark_of_every_container_is_a_bound() -> None:
    usage = usage_with(memory_cache_bytes=10 * MIB, memory_usage_peak_bytes=300 * MIB)
    container = ContainerMetadata(name="b", docker_id="b", memory_limit_bytes=400 * MIB)
    beside = build_other_container(container, TaskMetadata(), usage, RUNNING, HOST)
    assert present(beside.metrics).memory_used_bound_mb == 290
    record = batch_record(container, TaskMetadata(), usage, RUNNING, HOST)
    assert record.metrics.memory_used_bound_mb == 290


def test_in_awsvpc_mode_the_network_is_counted_once() -> None:
    usage, task = usage_with(network_rx_bytes=1000, network_tx_bytes=10), TaskMetadata()
    for mode, received, sent in (("bridge", 1000, 10), ("awsvpc", None, None)):
        container = ContainerMetadata(
            name="b", docker_id="b", known_status="RUNNING", network_mode=mode
        )
        beside = present(build_other_container(container, task, usage, RUNNING, HOST).metrics)
        assert beside.network_rx_bytes == received
        assert beside.network_tx_bytes == sent
        batch = batch_record(container, task, usage, RunEnd(status="unknown"), HOST)
        assert batch.metrics.network_rx_bytes == 1000


@pytest.mark.parametrize(
    ("pull", "start", "finish", "duration", "init", "billed"),
    [
        (0, 18, 630.345, 612345, 18000, 631000),
        (0, 2, 10, 8000, 2000, 60000),
        (0, 1, 60, 59000, 1000, 60000),
        (0, 1, 60.001, 59001, 1000, 61000),
        (None, 1, 2, 1000, None, None),
        (5, 10, 4, None, 5000, None),
    ],
)
def test_durations(
    pull: float | None,
    start: float,
    finish: float,
    duration: int | None,
    init: int | None,
    billed: int | None,
) -> None:
    container = ContainerMetadata(name="b", started_ns=START_NS + seconds(start))
    task = TaskMetadata(pull_started_ns=None if pull is None else START_NS + seconds(pull))
    end = run_end_of_exit(0, START_NS + seconds(finish), was_stopped=False)
    metrics = batch_record(container, task, None, end, HOST).metrics
    assert metrics.duration_ms == duration
    assert metrics.init_duration_ms == init
    assert metrics.billed_duration_ms == billed


@pytest.mark.parametrize(
    ("arn", "task", "region", "account"),
    [
        ("arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123", "0123", "eu-west-1", "111122223333"),
        (
            "arn:aws-cn:ecs:cn-north-1:111122223333:task/9781c248-0edd",
            "9781c248-0edd",
            "cn-north-1",
            "111122223333",
        ),
        (None, "unknown", None, None),
        ("nonsense", "nonsense", None, None),
        (
            "arn:aws:ecs:eu-west-1:111122223333:task/jobs/a:b:c",
            "a:b:c",
            "eu-west-1",
            "111122223333",
        ),
        ("arn:aws:ecs::111122223333:task/jobs/0123", "0123", None, "111122223333"),
    ],
)
def test_identity_from_the_arn(
    arn: str | None, task: str, region: str | None, account: str | None
) -> None:
    assert task_id(arn) == task
    assert arn_part(arn, 3) == region
    assert arn_part(arn, 4) == account


def of_parts(record: Record, parts: Sequence[RecordPart]) -> Record:
    return draft_of(record).build_record(parts)


def test_the_order_of_the_parts_has_no_effect_on_values() -> None:
    record = Record(
        task_id="1",
        container=Container(name="batch"),
        status="success",
        started_at="1970-01-01T00:00:10.000Z",
        monitor=Monitor(),
        sampling=Sampling(),
    )
    divisions = {
        (11_500_000_000, 13_000_000_000): (
            TimeBreakdown(on_cpu_percent=100),
            TimeBreakdown(sleep_percent=100),
        )
    }
    idle = ProcessActivity(idle_parts=lambda first_ns, last_ns: divisions[first_ns, last_ns])
    gpus = (
        Gpu(uuid="GPU-a", first_used_seconds=1.5, last_used_seconds=2),
        Gpu(uuid="GPU-b", first_used_seconds=2, last_used_seconds=3),
        Gpu(uuid="GPU-c"),
    )
    parts = (
        RecordPart(
            values={"tags": {"team": "data"}}, source="a", warnings=("A.",), reader_cpu_ns=1
        ),
        RecordPart(values={"gpus": gpus, "gpu_idle": GpuIdle(percent=5, gpu_hours=0.1)}),
        RecordPart(source="b", evidence=RunEvidence(activity=idle)),
    )
    first, second = of_parts(record, parts), of_parts(record, parts[::-1])
    assert first.tags == {"team": "data"}
    assert first.gpus == gpus
    assert first.monitor == Monitor(warnings=("A.",))
    assert first.gpu_idle == GpuIdle(
        percent=5,
        gpu_hours=0.1,
        waiting_for=TimeBreakdown(sleep_percent=100),
        waiting_before=TimeBreakdown(on_cpu_percent=100),
    )
    assert of_parts(record, parts[2:]).gpu_idle is None
    assert first.sampling == Sampling(sources=("a", "b"))
    assert replace(second, sampling=first.sampling) == first


def test_the_idle_time_of_gpus_that_never_worked_is_not_divided() -> None:
    record = Record(
        task_id="1",
        container=Container(name="batch"),
        started_at="1970-01-01T00:00:10.000Z",
        gpus=(Gpu(uuid="GPU-a"),),
        gpu_idle=GpuIdle(percent=100, gpu_hours=0.1),
    )
    asked = Mock(return_value=(TimeBreakdown(on_cpu_percent=100), None))
    assert with_idle_parts(record, ProcessActivity(idle_parts=asked)) == record
    asked.assert_not_called()


def test_programs_see_the_memory_and_the_cpus_of_the_machine() -> None:
    assert visible_hardware_of(Host(memory_bytes=8_000_000 * 1024, vcpu=2)) == Visible(
        memory_mb=7812.5, cpus=2
    )
    assert visible_hardware_of(Host(vcpu=1, processor_count=4)) == Visible(cpus=4)
    assert visible_hardware_of(Host(cpu_architecture="ARM64")) is NOTHING_VISIBLE
