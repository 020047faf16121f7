import pytest
from msgspec.structs import replace

from profiler.sources.host import Host
from profiler.sources.task_metadata import ContainerMetadata, TaskMetadata
from profiler.summary import Sizes, arn_part, batch_record, container_sizes, other_container, task_id
from profiler.usage import ContainerUsage
from profiler.verdict import ended, lost
from tests.fakes import START_NS, sample, seconds

MIB = 2**20
GIB = 2**30
HOST = Host(vcpu=8, memory_bytes=32 * GIB)
UNLIMITED = 9223372036854771712


def usage_with(**fields: int) -> ContainerUsage:
    usage = ContainerUsage(seconds(1))
    taken = sample(START_NS + seconds(1), 0.5, 100 * MIB, **fields)
    usage.add(taken, docker_id="b", received_ns=seconds(1), started_ns=START_NS)
    return usage


@pytest.mark.parametrize(
    ("container", "task", "stats_limit", "vcpu", "memory"),
    [
        (
            {"vcpu_limit": 0.5, "memory_limit_bytes": GIB},
            {"vcpu_limit": 1.0, "memory_limit_bytes": 2 * GIB},
            None,
            0.5,
            GIB,
        ),
        ({"vcpu_limit": 4.0}, {"vcpu_limit": 1.0, "memory_limit_bytes": 2 * GIB}, UNLIMITED, 1.0, 2 * GIB),
        ({}, {}, 3 * GIB, 8, 3 * GIB),
        ({}, {}, UNLIMITED, 8, None),
        ({}, {}, 33 * GIB, 8, None),
        ({}, {}, None, 8, None),
    ],
)
def test_what_bounds_a_container(
    container: dict[str, float], task: dict[str, float], stats_limit: int | None, vcpu: float, memory: float | None
) -> None:
    usage = usage_with(memory_limit_bytes=stats_limit) if stats_limit else None
    sizes = container_sizes(ContainerMetadata(name="b", **container), TaskMetadata(**task), usage, HOST)  # type: ignore[arg-type]
    assert sizes == Sizes(vcpu=vcpu, memory_bytes=memory)


def test_a_machine_of_unknown_size_still_has_no_unlimited_memory() -> None:
    sizes = container_sizes(
        ContainerMetadata(name="b"), TaskMetadata(), usage_with(memory_limit_bytes=UNLIMITED), Host()
    )
    assert sizes == Sizes(vcpu=None, memory_bytes=None)


def test_in_awsvpc_mode_the_network_is_counted_once() -> None:
    usage = usage_with(network_rx_bytes=1000, network_tx_bytes=10)
    task = TaskMetadata()
    bridge = ContainerMetadata(name="b", docker_id="b", known_status="RUNNING", network_mode="bridge")
    awsvpc = replace(bridge, network_mode="awsvpc")
    seen = {
        container.network_mode: other_container(container, task, usage, START_NS, HOST).metrics
        for container in (bridge, awsvpc)
    }
    assert seen["bridge"] is not None
    assert seen["bridge"].network_rx_bytes == 1000
    assert seen["awsvpc"] is not None
    assert seen["awsvpc"].network_rx_bytes is None
    assert batch_record(awsvpc, task, usage, lost(None), HOST).metrics.network_rx_bytes == 1000


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
    pull: float | None, start: float, finish: float, duration: int | None, init: int | None, billed: int | None
) -> None:
    container = ContainerMetadata(name="b", started_ns=START_NS + seconds(start))
    task = TaskMetadata(pull_started_ns=None if pull is None else START_NS + seconds(pull))
    end = ended(0, START_NS + seconds(finish), stop_was_asked=False)
    metrics = batch_record(container, task, None, end, HOST).metrics
    assert (metrics.duration_ms, metrics.init_duration_ms, metrics.billed_duration_ms) == (duration, init, billed)


@pytest.mark.parametrize(
    ("arn", "task", "region", "account"),
    [
        ("arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123", "0123", "eu-west-1", "111122223333"),
        ("arn:aws-cn:ecs:cn-north-1:111122223333:task/9781c248-0edd", "9781c248-0edd", "cn-north-1", "111122223333"),
        (None, "unknown", None, None),
        ("nonsense", "nonsense", None, None),
    ],
)
def test_identity_from_the_arn(arn: str | None, task: str, region: str | None, account: str | None) -> None:
    assert (task_id(arn), arn_part(arn, 3), arn_part(arn, 4)) == (task, region, account)
    record = batch_record(ContainerMetadata(name="b"), TaskMetadata(arn=arn), None, lost(None), HOST)
    assert (record.task_id, record.region, record.account_id) == (task, region, account)


def test_a_cluster_is_shown_by_its_name() -> None:
    for cluster in ("jobs", "arn:aws:ecs:us-east-1:111122223333:cluster/jobs"):
        task = TaskMetadata(cluster=cluster)
        assert batch_record(ContainerMetadata(name="b"), task, None, lost(None), HOST).cluster == "jobs"
