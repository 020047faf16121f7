"""ECS terms that the monitor, ``taskdef`` and the forwarder share: each side finds the same log stream."""

import pytest

from profiler.core.ecs_terms import AwslogsTarget, awslogs_target
from profiler.forwarder.task.task_containers import LogStream, identify_containers
from profiler.local_run.local_record import Placement, apply_placement
from profiler.monitor.report_delivery import log_target
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.record.record_model import Container, Record
from profiler.record.task_end import StoppedTask
from profiler.settings import MonitorSettings
from profiler.sinks import LogTarget

ARN = "arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123"
GROUP = {"awslogs-group": "/ecs/jobs", "awslogs-region": "eu-west-1"}
STREAMS = [
    ({"awslogs-stream-prefix": "ecs"}, "ecs/batch/0123"),
    ({"awslogs-stream": "mine"}, "mine"),
    ({"awslogs-stream": "mine", "awslogs-stream-prefix": "ecs"}, "mine"),
]


@pytest.mark.parametrize(("options", "stream"), STREAMS)
def test_the_monitor_the_local_run_and_the_forwarder_find_the_same_stream(options: dict[str, str], stream: str) -> None:
    options = GROUP | options
    assert awslogs_target(options, "batch", ARN) == AwslogsTarget(group="/ecs/jobs", stream=stream, region="eu-west-1")
    container = ContainerMetadata(name="batch", log_driver="awslogs", log_options=options)
    task = TaskMetadata(arn=ARN, containers=(container,))
    settings = MonitorSettings(endpoint_address="http://x", endpoint_version=4)
    assert log_target(container, task, settings, None) == LogTarget(
        group="/ecs/jobs", stream=stream, region="eu-west-1"
    )
    local = Record(task_id="local", container=Container(name="etl"), status="success")
    record = apply_placement(
        local, Placement(task=task, container=container), is_named=False, started_ns=0, finished_ns=0
    )
    assert (record.log_group, record.log_stream) == ("/ecs/jobs", stream)
    definition = {
        "containerDefinitions": [{"name": "batch", "logConfiguration": {"logDriver": "awslogs", "options": options}}]
    }
    found = identify_containers(definition, StoppedTask(arn=ARN)).batch_log
    assert found == LogStream(group="/ecs/jobs", stream=stream, region="eu-west-1")
