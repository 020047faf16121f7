from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.task_record import ResourceLimits
from profiler.local_run.local_record import (
    MemoryPeak,
    Placement,
    RunIdentity,
    RunObservation,
    apply_placement,
    apply_placement_limits,
    build_run_record,
)
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.host import Host
from profiler.record.record_model import Container, Metrics, Monitor, Record, Sampling, TaskSize
from tests.fakes import START_NS, seconds

GIB = 2**30
OWN = ContainerMetadata(
    name="batch",
    docker_id="b",
    image="etl:7",
    log_driver="awslogs",
    log_options={"awslogs-group": "/ecs/jobs", "awslogs-stream": "ecs/batch/0123"},
)
TASK = TaskMetadata(
    arn="arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
    family="nightly",
    revision="7",
    launch_type="FARGATE",
    vcpu_limit=0.5,
    memory_limit_bytes=2 * GIB,
    pull_started_ns=START_NS - seconds(20),
    containers=(OWN,),
)
LOCAL = Record(
    task_id="local",
    family="etl.py",
    launch_type="LOCAL",
    container=Container(name="etl.py"),
    status="success",
    exit_code=0,
    metrics=Metrics(duration_ms=100_000, cpu_seconds=5.0),
)


def place(placement: Placement) -> Record:
    return apply_placement(LOCAL, placement, is_named=False, started_ns=START_NS, finished_ns=START_NS + seconds(100))


def test_the_task_gives_the_identity_and_the_measurement_stays() -> None:
    record = place(Placement(task=TASK, container=OWN))
    identity = record.task_id, record.family, record.launch_type, record.region
    assert identity == ("0123", "nightly", "FARGATE", "eu-west-1")
    assert record.container == Container(name="batch", id="b", image="etl:7")
    assert (record.log_group, record.log_stream) == ("/ecs/jobs", "ecs/batch/0123")
    assert record.task_size == TaskSize(vcpu=0.5, memory_mb=2048)
    assert record.metrics == Metrics(
        duration_ms=100_000, cpu_seconds=5.0, init_duration_ms=20_000, billed_duration_ms=120_000
    )
    assert (record.status, record.exit_code) == ("success", 0)

    # What ECS does not say stays as it was.
    record = place(Placement(task=TaskMetadata(containers=()), container=ContainerMetadata(name="batch")))
    assert (record.family, record.launch_type) == ("etl.py", "LOCAL")
    assert (record.log_group, record.task_size, record.metrics.billed_duration_ms) == (None, None, None)


def test_the_tasks_limits_bound_the_command() -> None:
    cgroup = ResourceLimits(vcpu=2, memory_bytes=8 * GIB)
    tasks = ResourceLimits(vcpu=0.5, memory_bytes=2 * GIB)
    for task, limits in ((TASK, tasks), (TaskMetadata(), cgroup)):
        assert apply_placement_limits(cgroup, Placement(task=task, container=OWN), Host(vcpu=4)) == limits


def test_a_run_of_a_killed_profiler_belongs_to_its_task() -> None:
    so_far = RunObservation(
        started_ns=START_NS,
        finished_ns=START_NS + seconds(5),
        usage=ContainerUsage(seconds(1)),
        demand=CpuDemand(),
        cpu_ns=seconds(2),
        peak=MemoryPeak(size_bytes=GIB, source="sampled"),
    )
    placement = Placement(task=TASK, container=OWN)
    identity = RunIdentity(task_id="local", family="etl.py", host=Host(vcpu=4), placement=placement)
    record = build_run_record(identity, so_far, ResourceLimits(vcpu=2), Sampling(), monitor=Monitor(version="1"))
    identity_of_task = record.task_id, record.family, record.launch_type, record.status
    assert identity_of_task == ("0123", "nightly", "FARGATE", "unknown")
    assert (record.metrics.vcpu_size, record.metrics.memory_size_mb) == (0.5, 2048)
    assert record.metrics.init_duration_ms == 20_000
    assert (record.metrics.duration_ms, record.metrics.billed_duration_ms) == (None, None)
