"""What goes wrong on an instance costs no run, delays no other task, and invents no number.

What the monitor keeps of several tasks: the GPUs of each, and no value of their environments.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from profiler.collectors.nvidia.gpu_collector import GpuCollector, GpuSurroundings
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import GpuScope, UnseenGpus, parse_limits
from profiler.monitor.instance.instance_task import InstanceTask
from profiler.monitor.line_builder import LineBuilder
from profiler.readers import Unavailable
from profiler.readers.docker.ecs_container import EcsContainer, decode_container
from profiler.readers.ecs.task_metadata import TaskMetadata
from tests.fake_docker_daemon import RECORDED
from tests.fake_nvml import FakeGpu, FakeNvml
from tests.fakes import seconds
from tests.instance_world import FakeContainer, FakeInstance

BATCH = FakeContainer(runs=((2.0, 12.4),))
ENDED = {"batch": ((2.0, 12.4),), "task-monitor": ((99.0, None),)}
CANARY = "canary-7f3a"
HUNG = Unavailable("it did not answer", timed_out=True)


def only_the_batch(docker_id: str) -> Unavailable | None:
    return None if docker_id == BATCH.docker_id else Unavailable("HTTP 500")


@pytest.mark.parametrize("method", ["on_event", "settle_ends", "ask_agent"])
def test_a_defect_with_a_running_task_costs_neither_its_report_nor_another_task(
    method: str, tmp_path: Path
) -> None:
    fakes = FakeInstance(BATCH, FakeContainer(task="4567", runs=((1.0, 15.0),)), folder=tmp_path)
    original = getattr(InstanceTask, method)

    def broken(task: InstanceTask, *args: Any, **more: Any) -> Any:
        if task.docker_ids == ("0123-batch",) and fakes.now > 12:
            raise AttributeError(method)
        return original(task, *args, **more)

    with patch.object(InstanceTask, method, broken):
        records = fakes.run().records()
    assert {name: one["status"] for name, one in records.items()} == {
        "0123-batch": "unknown",
        "4567-batch": "success",
    }
    assert not fakes.loop._tasks


@pytest.mark.parametrize("is_first", [True, False])
def test_two_containers_that_ended_before_the_monitor_began_do_not_get_each_others_numbers(
    *, is_first: bool, tmp_path: Path
) -> None:
    """Only their sum is known."""
    boxes = [
        FakeContainer(name="a", runs=((1.0, 11.0),), vcpu=1),
        FakeContainer(name="b", runs=((1.0, 11.2),), vcpu=0.1),
    ]
    fakes = FakeInstance(*(boxes if is_first else boxes[::-1]), folder=tmp_path, began=20)
    records = fakes.run().records()
    assert len(records) == 2
    for record in records.values():
        metrics = record["metrics"]
        assert metrics.get("cpuSeconds") is None
        assert metrics.get("maxMemoryUsedMB") is None


@pytest.mark.parametrize("name", ["log_router", "aws-guardduty-agent-1"])
def test_the_mark_of_a_task_with_a_second_program_is_not_the_batchs(
    name: str, tmp_path: Path
) -> None:
    other = FakeContainer(name=name, runs=((1.0, 12.9),), memory_mib=lambda _at: 80)
    metrics = FakeInstance(BATCH, other, folder=tmp_path).run().records()["0123-batch"]["metrics"]
    assert metrics["maxMemoryUsedMB"] == 100
    assert metrics["memoryPeakSource"] == "sampled"


def test_the_mark_is_not_the_batchs_if_another_container_cannot_be_inspected(
    tmp_path: Path,
) -> None:
    other = FakeContainer(name="log_router", runs=((1.0, 12.9),), memory_mib=lambda _at: 80)
    fakes = FakeInstance(BATCH, other, folder=tmp_path)
    fakes.docker.failing, started_ns = only_the_batch, other.inspect(2.0).started_ns
    fakes.change = lambda task: replace(
        task, containers=tuple(replace(one, started_ns=started_ns) for one in task.containers)
    )
    metrics = fakes.run().records()["0123-batch"]["metrics"]
    assert metrics["memoryPeakSource"] == "sampled"


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_container_that_docker_does_not_show_yet_gives_no_numbers(
    *, is_listed: bool, tmp_path: Path
) -> None:
    """It is known from the list or from its events alone, because the agent does not answer."""
    other = FakeContainer(
        name="other", runs=((0.5 if is_listed else 3.0, 12.9),), memory_mib=lambda _at: 80
    )
    fakes = FakeInstance(BATCH, other, folder=tmp_path, began=1.0)
    fakes.tasks["0123"], fakes.docker.failing = None, only_the_batch
    metrics = fakes.run().records()["0123-batch"]["metrics"]
    assert 4.5 < metrics["cpuSeconds"] <= 5.2
    assert metrics["maxMemoryUsedMB"] == 100
    assert metrics["memoryPeakSource"] == "sampled"


def test_two_containers_that_end_at_once_do_not_get_each_others_cpu_time(tmp_path: Path) -> None:
    boxes = [
        FakeContainer(name="a", runs=((1.0, 11.9),), vcpu=0.1),
        FakeContainer(name="b", runs=((1.0, 11.9),), vcpu=2),
    ]
    records = FakeInstance(*boxes, folder=tmp_path).run().records()
    found = {name: one["metrics"]["cpuSeconds"] for name, one in records.items()}
    assert found["0123-a"] <= 1.1
    assert found["0123-b"] <= 21.9


def test_a_pause_container_takes_nothing_from_the_batch(tmp_path: Path) -> None:
    pause = FakeContainer(
        name="~internal~ecs~pause", runs=((1.0, 12.9),), vcpu=0, memory_mib=lambda _at: 0
    )
    for began in (0, 20):
        fakes = FakeInstance(BATCH, pause, folder=tmp_path / str(began), began=began)
        metrics = fakes.run().records()["0123-batch"]["metrics"]
        assert metrics["cpuSeconds"] == 5.2
        assert metrics["memoryPeakSource"] == "kernel"


@pytest.mark.parametrize(
    ("name", "is_known"), [("~internal~ecs~pause", True), ("log_router", False)]
)
def test_a_kill_in_the_tasks_group_is_the_only_programs(
    *, name: str, is_known: bool, tmp_path: Path
) -> None:
    """A kill in the task's group is the batchs if it is the only program."""
    killed = FakeContainer(runs=((1.0, 11.0),), exit_code=5, group_kills=1)
    other = FakeContainer(name=name, runs=((1.0, 10.9),), vcpu=0, memory_mib=lambda _at: 0)
    record = FakeInstance(killed, other, folder=tmp_path).run().records()["0123-batch"]
    assert record["likelyOutOfMemory"] is is_known


def test_docker_that_hangs_delays_the_samples_once_in_ten_seconds(tmp_path: Path) -> None:
    running = FakeContainer(task="runs", runs=((1.0, 40.0),))
    fakes = FakeInstance(
        running,
        *(FakeContainer(task=f"{n}", runs=((5.0, 39.0),)) for n in range(20)),
        folder=tmp_path,
        until=50,
    )

    def hanging(docker_id: str) -> Unavailable | None:
        if docker_id == "runs-batch" or fakes.now > 35:
            return None
        fakes.clock.advance(5)
        return HUNG

    fakes.docker.failing = hanging
    records = fakes.run().records()
    assert len(records) == 21
    assert records["runs-batch"]["sampling"]["samples"] >= 15


def test_an_end_while_docker_hangs_has_dockers_time(
    tmp_path: Path,
) -> None:
    """An end while docker hangs has docker's time and not that of its late event."""
    fakes = FakeInstance(BATCH, folder=tmp_path)
    fakes.docker.failing = lambda _: HUNG if 12 < fakes.now < 15 else None
    late = fakes.events._event

    def event(action: str, box: FakeContainer, at: float, **more: int) -> Any:
        return late(action, box, at + 4 * (action == "die"), **more)

    with patch.object(fakes.events, "_event", event):
        record = fakes.run().record()
    assert record["metrics"]["durationMs"] == 10_400


@pytest.mark.parametrize("hangs_at", [64, 65.5])
def test_an_attempt_that_docker_does_not_show_is_known_from_its_events(
    hangs_at: float, tmp_path: Path
) -> None:
    """Whether the first one's end was inspected or not."""
    fakes = FakeInstance(
        FakeContainer(runs=((1.0, 65.3), (66.0, 100.0)), exit_code=3), folder=tmp_path, until=150
    )
    fakes.policies = {"0123-batch"}
    fakes.docker.failing = lambda _: HUNG if fakes.now > hangs_at else None
    record = fakes.run().record()
    assert record["metrics"]["cpuSeconds"] == pytest.approx((64.3 + 34) / 2, abs=1e-5)
    assert record["metrics"]["durationMs"] == 99_000
    assert record["exitCode"] == 3


def test_an_attempt_before_the_first_inspection_is_known_from_its_events(tmp_path: Path) -> None:
    fakes = FakeInstance(
        FakeContainer(runs=((1.0, 2.5), (2.8, 63.0), (63.3, 70.0)), exit_code=3),
        folder=tmp_path,
        until=150,
    )
    fakes.policies = {"0123-batch"}
    fakes.docker.failing = lambda _: HUNG if fakes.now < 3 else None
    record = fakes.run().record()
    assert record["metrics"]["cpuSeconds"] == pytest.approx((1.5 + 60.2 + 6.7) / 2, abs=1e-5)
    assert record["metrics"]["durationMs"] == pytest.approx(69_000, abs=2)
    assert record["container"]["restarts"] == 2


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        (FakeContainer(runs=((2.0, 12.4),), killed_at=12.0, exit_code=143), {"status": "stopped"}),
        (
            FakeContainer(runs=((2.0, 12.4),), is_out_of_memory=True, exit_code=5),
            {"likelyOutOfMemory": True},
        ),
        (
            FakeContainer(
                runs=((2.0, 5.0), (5.3, 12.4)),
                killed_at=4.5,
                exit_code=143,
                is_stopped_by_ecs=False,
            ),
            {"status": "failure"},
        ),
    ],
)
def test_events_before_the_first_inspection_count_for_the_attempt_that_they_belong_to(
    box: FakeContainer, expected: dict[str, Any], tmp_path: Path
) -> None:
    fakes = FakeInstance(box, folder=tmp_path, until=60)
    fakes.policies = {"0123-batch"}
    if not box.is_stopped_by_ecs:
        fakes.tasks = {"0123": {"desired_status": "RUNNING"}}
    fakes.docker.change = lambda found: HUNG if fakes.now < 13 else replace(found, oom_killed=False)
    record = fakes.run().record()
    assert {name: record[name] for name in expected} == expected


def test_docker_that_is_slow_while_many_tasks_start_delays_no_sample_for_long(
    tmp_path: Path,
) -> None:
    boxes = [FakeContainer(task=f"{number}", runs=((5.0, 60.0),)) for number in range(30)]
    fakes = FakeInstance(
        *boxes, FakeContainer(task="runs", runs=((1.0, 40.0),)), folder=tmp_path, until=120
    )
    fakes.docker.failing = lambda _: fakes.clock.advance(0.8)
    records = fakes.run().records()
    assert len(records) == 31
    assert records["runs-batch"]["sampling"]["longestGapMs"] < 3000


@pytest.mark.slow
def test_an_agent_that_hangs_does_not_delay_the_others_while_many_tasks_end(tmp_path: Path) -> None:
    """It never says whether their own monitors will start."""
    ended = [
        FakeContainer(task=f"{n}", name=name, runs=runs)
        for n in range(50)
        for name, runs in ENDED.items()
    ]
    fakes = FakeInstance(
        *ended, FakeContainer(task="runs", runs=((1.0, 80.0),)), folder=tmp_path, until=90
    )

    def hanging(task: TaskMetadata) -> TaskMetadata | Unavailable:
        if 12 < fakes.now < 79:
            fakes.clock.advance(0.2)
            return HUNG
        return task

    fakes.change = hanging
    records = fakes.run().records()
    assert len(records) == 51
    assert records["runs-batch"]["sampling"]["missedTicks"] == 0


def test_the_reported_batches_that_docker_has_removed_are_forgotten(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, folder=tmp_path)
    for number in range(5):
        fakes.reported.on_reported(f"removed-{number}")
    fakes.events.gap, fakes.docker.is_empty_from = (18.0, 20.0), 14
    fakes.run()
    assert not fakes.reported._reported


def test_a_chosen_container_is_the_batch_only_where_the_task_has_it(tmp_path: Path) -> None:
    boxes = [FakeContainer(name=name, runs=((2.0, 12.4),)) for name in ("job", "proxy")]
    fakes = FakeInstance(
        *boxes, FakeContainer(task="4567", runs=((3.0, 9.0),)), folder=tmp_path, container="job"
    )
    records = fakes.run().records()
    assert {name: one["status"] for name, one in records.items()} == {
        "0123-job": "success",
        "4567-batch": "success",
    }


def test_a_signal_to_an_attempt_that_is_followed_by_another_is_no_stop(tmp_path: Path) -> None:
    fakes = FakeInstance(
        FakeContainer(runs=((1.0, 65.3), (65.6, 130.0)), killed_at=65.2, is_stopped_by_ecs=False),
        folder=tmp_path,
        until=150,
    )
    fakes.policies = {"0123-batch"}
    assert fakes.run().record()["status"] == "success"


class TickedGpus(GpuCollector):
    """Is read by the test, not in a thread."""

    def start(self) -> None:
        self.take_reading()


def test_each_task_has_its_own_gpu_and_a_task_without_one_has_none(tmp_path: Path) -> None:
    nvml = FakeNvml(
        FakeGpu("GPU-a", utilization_percent=20), FakeGpu("GPU-b", utilization_percent=70)
    )
    mps = {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    }
    fakes = FakeInstance(
        FakeContainer(task="a", runs=((2.0, 12.4),), gpus=("GPU-a",)),
        FakeContainer(task="b", runs=((3.0, 14.4),), gpus=("GPU-b",), mps=mps),
        FakeContainer(task="none", runs=((2.0, 12.4),)),
        FakeContainer(task="short", runs=((5.0, 5.002),)),
        folder=tmp_path,
    )
    # Made later.
    scope = GpuScope((), lambda docker_id: fakes.loop.gpus_of(docker_id), has_all_ids=True)  # noqa: PLW0108
    collector = TickedGpus(
        NvmlSource(lambda: nvml.binding, fakes.clock),
        scope,
        fakes.clock,
        fakes.log,
        seconds(1),
        is_required=False,
        surroundings=GpuSurroundings(
            limits_of=lambda batch: parse_limits(fakes.loop.mps_of(batch))
        ),
    )
    fakes.collectors, fakes.on_wait = (collector,), collector.take_reading
    records = fakes.run().records()
    assert records["b-batch"]["gpus"][0]["memoryLimitMB"] == 4096
    assert records["b-batch"]["gpus"][0]["computeLimitPercent"] == 25
    assert "memoryLimitMB" not in records["a-batch"]["gpus"][0]
    found = {
        name: [gpu["uuid"] for gpu in record.get("gpus", ())] for name, record in records.items()
    }
    assert found == {
        "a-batch": ["GPU-a"],
        "b-batch": ["GPU-b"],
        "none-batch": [],
        "short-batch": [],
    }
    for name, percent in (("a-batch", 20), ("b-batch", 70)):
        series = records[name]["series"]["gpuUtilizationPercent"]
        assert {value for value in series if value is not None} == {percent}
        assert records[name].get("gpuScope") is None
    assert scope.known == {}  # forgotten after the reports
    assert not [one for record in records.values() for one in record["monitor"].get("warnings", ())]


class UnreadGpus:
    """The collector of GPUs that were never read, for a reason."""

    def __init__(self, unseen_reason: str | None) -> None:
        self.unseen_reason = unseen_reason


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        (None, "NVIDIA's driver is not in its container"),
        (UnreadGpus("no GPU is visible here"), "no GPU is visible here"),
        (UnreadGpus(None), None),
    ],
)
def test_a_batch_whose_gpus_the_monitor_cannot_see_has_a_warning(
    readings: UnreadGpus | None, words: str | None, tmp_path: Path
) -> None:
    """A batch without GPUs has none, and a batch of an instance whose GPUs were read."""
    fakes = FakeInstance(
        FakeContainer(task="a", runs=((2.0, 12.4),), gpus=("GPU-a",)),
        FakeContainer(task="none", runs=((2.0, 12.4),)),
        folder=tmp_path,
    )
    # Made later.
    unseen = UnseenGpus(lambda docker_id: fakes.loop.gpus_of(docker_id), readings)  # noqa: PLW0108
    fakes.collectors = (unseen,)
    records = fakes.run().records()
    assert records["none-batch"]["monitor"].get("warnings", []) == []
    warnings = records["a-batch"]["monitor"].get("warnings", [])
    assert len(warnings) == (words is not None)
    assert words is None or f"cannot see the container's GPUs ({words})" in warnings[0]


def test_nvml_that_shows_no_gpu_or_none_of_the_batchs_is_a_warning(tmp_path: Path) -> None:
    for number, visible in enumerate(((), (FakeGpu("GPU-other"),))):
        box = FakeContainer(task="a", runs=((2.0, 12.4),), gpus=("GPU-a",))
        fakes = FakeInstance(box, folder=tmp_path / str(number))
        (tmp_path / str(number)).mkdir()
        nvml = FakeNvml(*visible)
        scope = GpuScope((), world_gpus(fakes), has_all_ids=True)
        source = NvmlSource(lambda: nvml.binding, fakes.clock)  # noqa: B023
        collector = TickedGpus(source, scope, fakes.clock, fakes.log, seconds(1), is_required=False)
        fakes.collectors = (collector, UnseenGpus(world_gpus(fakes), collector))
        fakes.on_wait = collector.take_reading
        (warning,) = fakes.run().record()["monitor"]["warnings"]
        expected = "None of the visible GPUs" if visible else "no GPU is visible here"
        assert expected in warning


def world_gpus(fakes: FakeInstance) -> Callable[[str], str | None]:
    """What the world's loop, which is made later, knows of a container's GPUs."""
    return lambda docker_id: fakes.loop.gpus_of(docker_id)  # noqa: PLW0108


def secret_document(known: EcsContainer) -> dict[str, Any]:
    """The inspect document of a container, with a secret wherever an owner can put one."""
    document: dict[str, Any] = json.loads(json.dumps(RECORDED["running"]))
    state = {
        "Running": known.is_running,
        "ExitCode": known.exit_code or 0,
        "StartedAt": "2025-11-20T00:53:22Z",
    }
    state["FinishedAt"] = "0001-01-01T00:00:00Z" if known.is_running else "2025-11-20T00:53:32.4Z"
    document |= {"Id": known.docker_id, "Args": [CANARY], "Path": CANARY, "Name": CANARY}
    document["State"] |= {**state, "Error": CANARY}
    names = (
        "PASSWORD",
        "TASK_PROFILER_CONTAINER",
        "AWS_SECRET_ACCESS_KEY",
        CANARY,
        "NVIDIA_VISIBLE_DEVICES",
    )
    document["Config"]["Env"] = [*(f"{name}={CANARY}" for name in names), CANARY]
    document["Config"] |= {"Cmd": [CANARY], "Entrypoint": [CANARY], "Hostname": CANARY}
    document["HostConfig"]["LogConfig"] = {
        "Type": "awslogs",
        "Config": {
            "awslogs-group": "/ecs/jobs",
            "awslogs-stream": "ecs/batch/0123",
            "splunk-token": CANARY,
        },
    }
    return document


def fail(*_args: Any, **_more: Any) -> None:
    raise ValueError(CANARY)


DEFECTS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "the agent does not answer": {"agent": None},
    "the report cannot be built": {"target": LineBuilder, "method": "report_lines"},
    "the documents are malformed": {"malformed": True},
}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_no_value_of_an_environment_variable_is_in_anything_that_is_written(
    defect: Mapping[str, Any], tmp_path: Path
) -> None:
    fakes = FakeInstance(FakeContainer(runs=((2.0, 12.4),), exit_code=3), folder=tmp_path)
    if "agent" in defect:
        fakes.tasks["0123"] = None

    def secretly(known: EcsContainer) -> EcsContainer | Unavailable:
        document = secret_document(known)
        if "malformed" in defect:
            document["State"] = document["Config"] = [CANARY]
        return decode_container(json.dumps(document).encode())

    fakes.docker.change = secretly
    with patch.object(defect.get("target", FakeInstance), defect.get("method", "record"), fail):
        fakes.run()
    assert bool(fakes.streams.lines) == ("malformed" not in defect)
    written = [
        *(line for _, line in fakes.streams.lines),
        *fakes.output.lines,
        repr(fakes.log.lines).encode(),
    ]
    written += [path.read_bytes() for path in tmp_path.iterdir()]
    assert not [text for text in written if CANARY.encode() in text]
    assert CANARY not in repr([vars(task) for task in fakes.made])
