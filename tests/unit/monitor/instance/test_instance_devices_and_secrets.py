"""What the monitor of an instance keeps of several tasks: the GPUs of each, and no value of their environments."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import GpuScope
from profiler.monitor.reporter import Reporter
from profiler.readers import Unavailable
from profiler.readers.docker.ecs_container import EcsContainer, decode_container
from tests.fake_docker_daemon import RECORDED
from tests.fake_nvml import FakeGpu, FakeNvml
from tests.fakes import seconds
from tests.instance_world import Box, Instance

CANARY = "canary-7f3a"


class TickedGpus(GpuCollector):
    """Is read by the test, not in a thread."""

    def start(self) -> None:
        self.tick()


def test_each_task_has_its_own_gpu_and_a_task_without_one_has_none(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a", utilization_percent=20), FakeGpu("GPU-b", utilization_percent=70))
    world = Instance(
        Box(task="a", runs=((2.0, 12.4),), gpus=("GPU-a",)),
        Box(task="b", runs=((3.0, 14.4),), gpus=("GPU-b",)),
        Box(task="none", runs=((2.0, 12.4),)),
        Box(task="short", runs=((5.0, 5.002),)),
        folder=tmp_path,
    )
    scope = GpuScope((), lambda docker_id: world.loop.gpus_of(docker_id), has_all_ids=True)  # noqa: PLW0108  made later
    collector = TickedGpus(
        NvmlSource(lambda: nvml.binding, world.clock), scope, world.clock, world.log, seconds(1), is_required=False
    )
    world.collectors, world.on_wait = (collector,), collector.tick
    records = world.run().records()
    found = {name: [gpu["uuid"] for gpu in record.get("gpus", ())] for name, record in records.items()}
    assert found == {"a-batch": ["GPU-a"], "b-batch": ["GPU-b"], "none-batch": [], "short-batch": []}
    for name, percent in (("a-batch", 20), ("b-batch", 70)):
        series = records[name]["series"]["gpuUtilizationPercent"]
        assert {value for value in series if value is not None} == {percent}
        assert records[name].get("gpuScope") is None
    assert scope.known == {}  # forgotten after the reports
    assert not [one for record in records.values() for one in record["monitor"].get("warnings", ())]


def secret_document(known: EcsContainer) -> dict[str, Any]:
    """The inspect document of a container, with a secret wherever an owner can put one."""
    document: dict[str, Any] = json.loads(json.dumps(RECORDED["running"]))
    state = {"Running": known.is_running, "ExitCode": known.exit_code or 0, "StartedAt": "2025-11-20T00:53:22Z"}
    state["FinishedAt"] = "0001-01-01T00:00:00Z" if known.is_running else "2025-11-20T00:53:32.4Z"
    document |= {"Id": known.docker_id, "Args": [CANARY], "Path": CANARY, "Name": CANARY}
    document["State"] |= {**state, "Error": CANARY}
    names = ("PASSWORD", "TASK_PROFILER_CONTAINER", "AWS_SECRET_ACCESS_KEY", CANARY, "NVIDIA_VISIBLE_DEVICES")
    document["Config"]["Env"] = [*(f"{name}={CANARY}" for name in names), CANARY]
    document["Config"] |= {"Cmd": [CANARY], "Entrypoint": [CANARY], "Hostname": CANARY}
    document["HostConfig"]["LogConfig"] = {
        "Type": "awslogs",
        "Config": {"awslogs-group": "/ecs/jobs", "awslogs-stream": "ecs/batch/0123", "splunk-token": CANARY},
    }
    return document


def fail(*_args: Any, **_more: Any) -> None:
    raise ValueError(CANARY)


DEFECTS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "the agent does not answer": {"agent": None},
    "the report cannot be built": {"target": Reporter, "method": "report"},
    "the documents are malformed": {"malformed": True},
}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_no_value_of_an_environment_variable_is_in_anything_that_is_written(
    defect: Mapping[str, Any], tmp_path: Path
) -> None:
    world = Instance(Box(runs=((2.0, 12.4),), exit_code=3), folder=tmp_path)
    if "agent" in defect:
        world.tasks["0123"] = None

    def secretly(known: EcsContainer) -> EcsContainer | Unavailable:
        document = secret_document(known)
        if "malformed" in defect:
            document["State"] = document["Config"] = [CANARY]
        return decode_container(json.dumps(document).encode())

    world.docker.change = secretly
    with patch.object(defect.get("target", Instance), defect.get("method", "record"), fail):
        world.run()
    assert bool(world.streams.lines) == ("malformed" not in defect)
    written = [*(line for _, line in world.streams.lines), *world.output.lines, repr(world.log.lines).encode()]
    written += [path.read_bytes() for path in tmp_path.iterdir()]
    assert not [text for text in written if CANARY.encode() in text]
    assert CANARY not in repr([vars(task) for task in world.made])
