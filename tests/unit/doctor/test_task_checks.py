"""What the doctor finds, in tasks of all kinds."""

import pytest
from msgspec.structs import replace

from profiler.collectors.nvidia.gpu_reading_types import DriverReading, GpuFacts, GpuSample
from profiler.doctor.findings import Finding
from profiler.doctor.task_checks import DoctorContext, Probes, diagnose
from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.kernel_view import KernelView
from profiler.settings import MonitorSettings, read_settings
from profiler.sinks import DeliveryFailure
from tests.fakes import START_NS, FakeClock, FakeTaskSource, sample, seconds, stats

MIB = 1024 * 1024
SETTINGS = MonitorSettings(endpoint_address="http://x", endpoint_version=4)
OWN = ContainerMetadata(name="task-monitor", docker_id="m", memory_limit_bytes=128 * MIB)
BATCH = ContainerMetadata(
    name="batch",
    docker_id="b",
    memory_limit_bytes=1024 * MIB,
    log_driver="awslogs",
    log_options={"awslogs-group": "/ecs/jobs", "awslogs-stream": "ecs/batch/0123", "awslogs-region": "eu-west-1"},
)
TASK = TaskMetadata(
    arn="arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
    family="etl",
    revision="26",
    launch_type="FARGATE",
    memory_limit_bytes=2048 * MIB,
    containers=(BATCH, OWN),
)
GPU = GpuFacts(uuid="GPU-a", index=0, name="NVIDIA A10G")
VIEW = KernelView(schedstat=True, system_calls=True, pressure=True, ptrace_scope=None, cgroup_version=2)
HEALTHY = Probes(
    read_gpus=lambda: None,
    visible_devices=lambda _: None,
    count_processes=lambda _: 3,
    can_read_cgroup=lambda _: True,
    kernel_view=lambda _: VIEW,
    py_spy_version=lambda: "py-spy 0.4.3",
    find_neuron_monitor=lambda: None,
    neuron_devices=lambda: (),
    may_put=lambda _: None,
)


def refreshed_every(step_seconds: float, clock: FakeClock) -> StatsReading:
    at = clock.now_ns // seconds(step_seconds) * seconds(step_seconds)
    return stats({"b": sample(START_NS + at, 1.0, MIB)})


def context(
    task: TaskMetadata | Unavailable = TASK,
    *,
    own: ContainerMetadata | Unavailable = OWN,
    settings: MonitorSettings = SETTINGS,
    step_seconds: float = 1,
    reading: StatsReading | Unavailable | None = None,
) -> DoctorContext:
    clock = FakeClock()
    source = FakeTaskSource(clock, lambda _: task, lambda _: reading or refreshed_every(step_seconds, clock), own)
    return DoctorContext(settings=settings, source=source, clock=clock, max_seconds=25)


def found(one: DoctorContext | None, probes: Probes = HEALTHY) -> dict[str, list[Finding]]:
    by_topic: dict[str, list[Finding]] = {}
    for finding in diagnose(one, probes):
        by_topic.setdefault(finding.topic, []).append(finding)
    return by_topic


def only(findings: dict[str, list[Finding]], topic: str) -> Finding:
    (finding,) = findings[topic]
    return finding


def test_a_healthy_task_has_no_problem() -> None:
    findings = found(context())
    assert {topic: [finding.level for finding in group] for topic, group in findings.items()} == {
        "task metadata": ["ok"],
        "batch": ["ok"],
        "memory limit": ["ok"],
        "processes": ["ok"],
        "level": ["ok"],
        "kernel": ["ok"],
        "GPUs": ["note"],
        "Neuron": ["note"],
        "log stream": ["ok"],
        "stats": ["ok"],
    }
    assert only(findings, "task metadata").text == "Version 4 answers: task 0123 of etl:26 on FARGATE."
    assert only(findings, "log stream").text == "The monitor may write the report to /ecs/jobs, stream ecs/batch/0123."
    assert only(findings, "memory limit").text == "The batch may use 1 GB, its own limit."


def test_every_problem_has_an_advice() -> None:
    probes = replace(HEALTHY, count_processes=lambda _: 0, may_put=lambda _: DeliveryFailure("It may not."))
    two = replace(TASK, containers=(BATCH, replace(BATCH, name="other", docker_id="o"), OWN))
    for findings in (found(None), found(context(two), probes), found(context(Unavailable("HTTP 500")))):
        for group in findings.values():
            for finding in group:
                assert finding.advice or finding.level != "problem"


def test_outside_of_ecs_the_findings_name_what_works_there() -> None:
    finding = only(found(None), "task metadata")
    assert finding.level == "note"
    assert "task-profiler run -- CMD" in (finding.advice or "")


def test_an_endpoint_that_does_not_respond_ends_the_checks_of_the_task() -> None:
    findings = found(context(Unavailable("HTTP 500")))
    assert only(findings, "task metadata").level == "problem"
    assert "HTTP 500" in only(findings, "task metadata").text
    assert "batch" not in findings


def test_version_3_lacks_the_log_options() -> None:
    finding = only(found(context(settings=replace(SETTINGS, endpoint_version=3))), "task metadata")
    assert finding.level == "note"
    assert "TASK_PROFILER_LOG_GROUP" in (finding.advice or "")


def test_bad_settings_are_problems_one_by_one() -> None:
    environment = {
        "ECS_CONTAINER_METADATA_URI_V4": "http://x",
        "TASK_PROFILER_GPU": "maybe",
        "TASK_PROFILER_STOP_SECONDS": "soon",
    }
    findings = found(context(settings=read_settings(environment)))["settings"]
    assert [finding.level for finding in findings] == ["problem", "problem"]


def test_several_candidates_are_a_problem_and_each_is_checked() -> None:
    other = replace(BATCH, name="other", docker_id="o")
    findings = found(context(replace(TASK, containers=(BATCH, other, OWN))))
    assert only(findings, "batch").level == "problem"
    assert "batch, other" in only(findings, "batch").text
    assert len(findings["log stream"]) == 2


@pytest.mark.parametrize(
    ("own_mib", "task_mib", "level", "text"),
    [
        (1024, 2048, "ok", "1 GB, its own"),
        (None, 2048, "ok", "2 GB, the task's"),
        (None, None, "note", "Neither"),
    ],
)
def test_the_memory_limit_of_the_batch(own_mib: int | None, task_mib: int | None, level: str, text: str) -> None:
    batch = replace(BATCH, memory_limit_bytes=own_mib and own_mib * MIB)
    task = replace(TASK, containers=(batch, OWN), memory_limit_bytes=task_mib and task_mib * MIB)
    finding = only(found(context(task)), "memory limit")
    assert finding.level == level
    assert text in finding.text


def test_a_monitor_without_a_memory_limit_is_noted() -> None:
    finding = only(found(context(own=replace(OWN, memory_limit_bytes=None))), "own limit")
    assert '"memory": 128' in (finding.advice or "")


def test_processes_that_are_not_visible_are_a_note() -> None:
    finding = only(found(context(), replace(HEALTHY, count_processes=lambda _: 0)), "processes")
    assert finding.level == "note"
    assert '"pidMode": "task"' in (finding.advice or "")
    assert "kills of child processes" in (finding.advice or "")


def test_a_control_group_that_another_user_may_not_read_is_a_note() -> None:
    finding = only(found(context(), replace(HEALTHY, can_read_cgroup=lambda _: False)), "processes")
    assert finding.level == "note"
    assert "sampled" in finding.text
    assert "SYS_PTRACE" in (finding.advice or "")


@pytest.mark.parametrize(
    ("step_seconds", "level", "text"),
    [(1, "ok", "every 1.0 s"), (10, "note", "every 10.0 s"), (60, "note", "not refreshed within")],
)
def test_how_often_the_stats_move(step_seconds: float, level: str, text: str) -> None:
    one = context(step_seconds=step_seconds)
    finding = only(found(one), "stats")
    assert (finding.level, text in finding.text) == (level, True)
    assert one.clock.monotonic_ns() <= seconds(26)


def test_without_time_the_stats_are_read_once() -> None:
    one = replace(context(), max_seconds=0)
    assert only(found(one), "stats").level == "note"


def test_stats_that_never_come_are_a_problem() -> None:
    assert "timed out" in only(found(context(reading=Unavailable("timed out"))), "stats").text
    assert only(found(context(reading=stats({}))), "stats").level == "problem"


def test_a_log_driver_without_a_known_stream_is_a_problem() -> None:
    batch = replace(BATCH, log_driver="splunk", log_options={})
    finding = only(found(context(replace(TASK, containers=(batch, OWN)))), "log stream")
    assert finding.level == "problem"
    assert "splunk" in finding.text


def test_a_refused_put_is_a_problem_with_the_reason_of_the_sink() -> None:
    refusal = "The task role may not write to log group /ecs/jobs: allow logs:PutLogEvents on it."
    finding = only(found(context(), replace(HEALTHY, may_put=lambda _: DeliveryFailure(refusal))), "log stream")
    assert (finding.level, finding.text) == ("problem", refusal)


def gpus(*facts: GpuFacts) -> DriverReading:
    return DriverReading(samples=tuple(GpuSample(facts=one) for one in facts))


def test_the_gpus_and_those_of_the_batch_are_named() -> None:
    probes = replace(HEALTHY, read_gpus=lambda: gpus(GPU))
    findings = found(context(), probes)
    assert only(findings, "GPUs").text == "GPU 0: NVIDIA A10G (GPU-a)."
    assert only(findings, "batch's GPUs").level == "note"
    findings = found(context(), replace(probes, visible_devices=lambda _: "GPU-a"))
    assert only(findings, "batch's GPUs").text == "GPUs of the batch: GPU-a."
    findings = found(context(), replace(probes, visible_devices=lambda _: "all"))
    assert only(findings, "batch's GPUs").text == "All GPUs belong to the batch."
    chosen = replace(SETTINGS, accelerators=replace(SETTINGS.accelerators, gpu_uuids=("GPU-a",)))
    assert only(found(context(settings=chosen), probes), "batch's GPUs").level == "ok"


def test_a_driver_that_shows_no_gpu_is_a_problem() -> None:
    finding = only(found(None, replace(HEALTHY, read_gpus=lambda: Unavailable("no GPU is visible here"))), "GPUs")
    assert finding.level == "problem"
    assert "NVIDIA_VISIBLE_DEVICES=all" in (finding.advice or "")


@pytest.mark.parametrize(
    ("program", "devices", "level"),
    [
        ("/opt/aws/neuron/bin/neuron-monitor", ("/dev/neuron0",), "ok"),
        ("/opt/aws/neuron/bin/neuron-monitor", (), "problem"),
        (None, ("/dev/neuron0",), "problem"),
        (None, (), "note"),
    ],
)
def test_neuron_needs_the_devices_and_the_program(program: str | None, devices: tuple[str, ...], level: str) -> None:
    probes = replace(HEALTHY, find_neuron_monitor=lambda: program, neuron_devices=lambda: devices)
    assert only(found(None, probes), "Neuron").level == level


@pytest.mark.parametrize(
    ("tags", "level", "stated"),
    [
        ({"team": "data", "stage": ""}, "ok", "team, stage"),
        ({}, "note", "the task has none, or the agent may not read them"),
        (Unavailable("/taskWithTags answered HTTP 403"), "problem", "/taskWithTags answered HTTP 403"),
    ],
)
def test_the_tags_are_read_if_they_are_enabled(tags: dict[str, str] | Unavailable, level: str, stated: str) -> None:
    probes = replace(HEALTHY, read_tags=lambda: tags)
    finding = only(found(context(settings=replace(SETTINGS, tags=True)), probes), "tags")
    assert finding.level == level
    assert stated in finding.text
    assert level == "ok" or "ecs:ListTagsForResource" in (finding.advice or "")
    assert "tags" not in found(context(), probes)


def test_without_the_right_to_trace_it_is_level_1_and_stacks_are_a_problem() -> None:
    probes = replace(HEALTHY, kernel_view=lambda _: replace(VIEW, system_calls=False))
    findings = found(context(settings=replace(SETTINGS, stacks="moments")), probes)
    assert "level 1" in findings["level"][0].text
    assert findings["call stacks"][0].level == "problem"


def test_this_process_is_not_taken_for_the_batch() -> None:
    asked: list[str | None] = []

    def kernel_view(docker_id: str | None) -> KernelView:
        asked.append(docker_id)
        return VIEW

    findings = found(context(), replace(HEALTHY, kernel_view=kernel_view, count_processes=lambda _: 0))
    assert asked == [None]
    assert "no time breakdown" in findings["level"][0].text
    assert "call stacks" not in findings


def test_stacks_without_py_spy_are_a_problem() -> None:
    probes = replace(HEALTHY, py_spy_version=lambda: None)
    (finding,) = found(context(settings=replace(SETTINGS, stacks="on")), probes)["call stacks"]
    assert (finding.level, "py-spy" in finding.text) == ("problem", True)
