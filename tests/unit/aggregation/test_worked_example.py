"""Two samples of a real Fargate container, ten seconds apart, and what follows from them by hand.

CPU: (322633383 - 242770940) ns / 9.999690512 s = 0.0079865 vCPU, which is 3.19 % of 0.25 vCPU.
Memory: 84111360 - 39100416 = 45010944 bytes = 42.926 MiB of the task's 512.
"""

import json

import pytest

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.task_record import container_limits, usage_metrics
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import StatsReading, decode_stats
from profiler.readers.ecs.task_metadata import TaskMetadata, decode_task
from profiler.readers.linux.host import Host
from tests.fakes import seconds

ID = "0123-4159844948"
TASK = {
    "TaskARN": "arn:aws:ecs:us-east-1:111122223333:task/jobs/0123",
    "Limits": {"CPU": 0.25, "Memory": 512},
    "LaunchType": "FARGATE",
    "Containers": [
        {
            "DockerId": ID,
            "Name": "exporter",
            "KnownStatus": "RUNNING",
            "Limits": {"CPU": 2},
            "StartedAt": "2025-02-27T05:06:19.394790335Z",
            "Networks": [{"NetworkMode": "awsvpc"}],
        }
    ],
}


def stats(read: str, total_usage: int) -> ContainerSample:
    document = {
        ID: {
            "read": read,
            "cpu_stats": {"cpu_usage": {"total_usage": total_usage}, "online_cpus": 2},
            "memory_stats": {
                "usage": 84111360,
                "max_usage": 84238336,
                "stats": {"total_inactive_file": 39100416, "total_cache": 42442752},
                "limit": 9223372036854771712,
            },
        }
    }
    reading = decode_stats(json.dumps(document).encode())
    assert isinstance(reading, StatsReading)
    return reading.samples[ID]


def test_the_numbers_worked_out_by_hand() -> None:
    task = decode_task(json.dumps(TASK).encode())
    assert isinstance(task, TaskMetadata)
    (container,) = task.containers
    usage = ContainerUsage(seconds(1))
    for received, sample in (
        (0, stats("2025-02-27T05:22:39.406479661Z", 242770940)),
        (10, stats("2025-02-27T05:22:49.406170373Z", 322633383)),
    ):
        usage.add(sample, epoch=ID, received_ns=seconds(received), started_ns=None)
    sizes = container_limits(container, task, usage, Host(vcpu=2, memory_bytes=2**32))
    metrics = usage_metrics(usage, sizes)
    assert (metrics.vcpu_size, metrics.memory_size_mb) == (0.25, 512)
    assert metrics.vcpu_used is not None
    assert metrics.vcpu_used.avg == 0.00799
    assert metrics.cpu_utilization_percent is not None
    assert metrics.cpu_utilization_percent.avg == pytest.approx(3.19, abs=0.01)
    assert metrics.max_memory_used_mb == pytest.approx(45010944 / 2**20, abs=0.001)
    assert metrics.memory_usage_peak_mb == pytest.approx(84238336 / 2**20, abs=0.001)
