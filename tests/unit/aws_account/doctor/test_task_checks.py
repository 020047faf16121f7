"""What the doctor finds, in tasks of all kinds."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.doctor.task_checks import DoctorContext, MachineProbes, diagnose_task
from profiler.collectors.nvidia.nvml_calls import NOT_INSTALLED
from profiler.collectors.nvidia.visible_gpus import DriverReading, GpuFacts, GpuSample
from profiler.core.text import install_hint
from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.host import Host
from profiler.readers.linux.kernel_view import KernelView
from profiler.settings import MonitorSettings, read_settings
from profiler.sinks import DeliveryFailure
from tests.cases import each_case
from tests.fakes import (
    START_NS,
    FakeClock,
    FakeTaskSource,
    monitor_settings,
    sample,
    seconds,
    task_settings,
)

MIB = 1024 * 1024
SETTINGS = monitor_settings()
OWN = ContainerMetadata(name="task-monitor", docker_id="m", memory_limit_bytes=128 * MIB)
BATCH = ContainerMetadata(
    name="batch",
    docker_id="b",
    memory_limit_bytes=1024 * MIB,
    log_driver="awslogs",
    log_options={
        "awslogs-group": "/ecs/jobs",
        "awslogs-stream": "ecs/batch/0123",
        "awslogs-region": "eu-west-1",
    },
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
VIEW = KernelView(
    schedstat=True, system_calls=True, pressure=True, ptrace_scope=None, cgroup_version=2
)
HEALTHY = MachineProbes(
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
    return {"b": sample(START_NS + at, 1.0, MIB)}


def context(
    task: TaskMetadata | Unavailable = TASK,
    *,
    own: ContainerMetadata | Unavailable = OWN,
    settings: MonitorSettings = SETTINGS,
    step_seconds: float = 1,
    reading: StatsReading | Unavailable | None = None,
) -> DoctorContext:
    clock = FakeClock()
    refreshed = partial(refreshed_every, step_seconds, clock)
    source = FakeTaskSource(
        clock, lambda _: task, lambda _: refreshed() if reading is None else reading, own
    )
    return DoctorContext(settings=settings, source=source, clock=clock, max_seconds=25)


def found(one: DoctorContext | None, probes: MachineProbes = HEALTHY) -> dict[str, list[Finding]]:
    by_topic: dict[str, list[Finding]] = {}
    for finding in diagnose_task(one, probes):
        by_topic.setdefault(finding.topic, []).append(finding)
    return by_topic


def only(findings: dict[str, list[Finding]], topic: str) -> Finding:
    (finding,) = findings[topic]
    return finding


def test_a_healthy_task_has_no_problem() -> None:
    findings = found(context())
    levels = {topic: finding.level for topic, (finding,) in findings.items()}
    assert levels.pop("GPUs") == "note"
    assert levels.pop("Neuron") == "note"
    assert {*levels.values()} == {"ok"}
    assert (
        " ".join(levels)
        == "task metadata batch memory limit processes level kernel log stream stats"
    )
    assert (
        only(findings, "task metadata").text == "Version 4 answers: task 0123 of etl:26 on FARGATE."
    )
    assert (
        only(findings, "log stream").text
        == "The monitor may write the report to /ecs/jobs, stream ecs/batch/0123."
    )
    assert only(findings, "memory limit").text == "The batch may use 1 GB, its own limit."


@pytest.mark.parametrize(
    ("own_limit", "limits", "text"),
    [
        (None, (0.5, 2048), "Programs see 23.5 GB and 2 CPUs; the task may use 2 GB and 0.5 vCPU."),
        (None, (2, 2048), "Programs see 23.5 GB; the task may use 2 GB."),
        (None, (0.5, 20_480), "Programs see 2 CPUs; the task may use 0.5 vCPU."),
        (2048, (2, 2048), None),  # programs see the container's limit
        (None, (2, 20_480), None),
        (None, (None, None), None),
    ],
)
def test_limits_that_programs_do_not_see_are_named_with_the_remedy(
    own_limit: int | None, limits: tuple[float | None, int | None], text: str | None
) -> None:
    vcpu, memory_mb = limits
    batch = replace(BATCH, memory_limit_bytes=own_limit and own_limit * MIB)
    task = replace(
        TASK,
        vcpu_limit=vcpu,
        memory_limit_bytes=memory_mb and memory_mb * MIB,
        containers=(batch, OWN),
    )
    host = Host(memory_bytes=24_064 * MIB, vcpu=2)
    findings = found(context(task), replace(HEALTHY, read_host=lambda: host)).get(
        "visible size", []
    )
    advice = "Set the number of workers in the batch."
    if text is not None and "GB" in text:
        advice = (
            'Set "memory" for the container of the batch, or -Xmx/max_old_space_size/workers in '
            "the batch."
        )
    assert [(one.level, one.text, one.advice) for one in findings] == (
        [] if text is None else [("note", text, advice)]
    )


def task_with(batch: ContainerMetadata, **fields: object) -> DoctorContext:
    return context(replace(TASK, containers=(batch, OWN), **fields))


UNLIMITED = replace(BATCH, memory_limit_bytes=None)
REFUSED = DeliveryFailure(
    "The task role may not write to log group /ecs/jobs: allow logs:PutLogEvents on it."
)
STACKS = context(settings=replace(SETTINGS, stacks="on"))
BAD = context(
    settings=read_settings(
        {"ECS_CONTAINER_METADATA_URI_V4": "http://x", "TASK_PROFILER_GPU": "maybe"}
    )
)
UNTRACED = {"kernel_view": lambda _: replace(VIEW, system_calls=False)}
VERSION_3 = context(settings=replace(SETTINGS, endpoint_version=3))
NEURON_MONITOR = {"find_neuron_monitor": lambda: "/opt/aws/neuron/bin/neuron-monitor"}
NEURON_DEVICE = {"neuron_devices": lambda: ("/dev/neuron0",)}
YAMA = {"kernel_view": lambda _: replace(VIEW, ptrace_scope=1)}
BARE = {
    "kernel_view": lambda _: replace(VIEW, schedstat=False, pressure=False, cgroup_version=None)
}
NO_PROCESSES = ('"pidMode": "task"', "kills of child processes")


@each_case(
    ("topic", "level", "words", "given", "probes"),
    [
        ("task metadata", "note", ("task-profiler run -- CMD",), None, {}),
        ("task metadata", "problem", ("HTTP 500",), context(Unavailable("HTTP 500")), {}),
        ("task metadata", "note", ("TASK_PROFILER_LOG_GROUP",), VERSION_3, {}),
        ("memory limit", "ok", ("2 GB, the task's",), task_with(UNLIMITED), {}),
        ("memory limit", "note", ("Neither",), task_with(UNLIMITED, memory_limit_bytes=None), {}),
        (
            "own limit",
            "note",
            ('"memory": 128',),
            context(own=replace(OWN, memory_limit_bytes=None)),
            {},
        ),
        ("processes", "note", NO_PROCESSES, context(), {"count_processes": lambda _: 0}),
        (
            "processes",
            "note",
            ("sampled", "SYS_PTRACE"),
            context(),
            {"can_read_cgroup": lambda _: False},
        ),
        ("stats", "note", (), replace(context(), max_seconds=0), {}),
        ("stats", "problem", ("timed out",), context(reading=Unavailable("timed out")), {}),
        ("stats", "problem", (), context(reading={}), {}),
        (
            "log stream",
            "problem",
            ("splunk",),
            task_with(replace(BATCH, log_driver="splunk", log_options={})),
            {},
        ),
        ("log stream", "problem", (REFUSED.reason,), context(), {"may_put": lambda _: REFUSED}),
        (
            "GPUs",
            "problem",
            ("NVIDIA_VISIBLE_DEVICES=all",),
            context(),
            {"read_gpus": lambda: Unavailable("no GPU")},
        ),
        ("Neuron", "ok", (), context(), {**NEURON_MONITOR, **NEURON_DEVICE}),
        ("Neuron", "problem", (), context(), NEURON_MONITOR),
        ("Neuron", "problem", (), context(), NEURON_DEVICE),
        ("Neuron", "note", (), context(), {}),
        ("call stacks", "problem", ("py-spy",), STACKS, {"py_spy_version": lambda: None}),
        ("call stacks", "problem", ("may not read",), STACKS, UNTRACED),
        ("level", "note", ("level 1",), STACKS, UNTRACED),
        ("settings", "problem", ("TASK_PROFILER_GPU",), BAD, {}),
        (
            "kernel",
            "ok",
            ("counts", "PSI: yes. Yama's ptrace_scope: 1. Control groups: version 2."),
            None,
            YAMA,
        ),
        (
            "kernel",
            "note",
            ("does not count", "PSI: no. Yama's ptrace_scope: none. Control groups: none."),
            None,
            BARE,
        ),
    ],
)
def test_each_finding_has_its_level_and_says_what_to_change(
    topic: str,
    level: str,
    words: tuple[str, ...],
    given: DoctorContext | None,
    probes: dict[str, Any],
) -> None:
    findings = found(given, replace(HEALTHY, **probes))
    finding = only(findings, topic)
    assert finding.level == level
    assert [word for word in words if word not in f"{finding.text} {finding.advice}"] == []


def test_several_candidates_are_a_problem_and_each_is_checked() -> None:
    other = replace(BATCH, name="other", docker_id="o")
    findings = found(context(replace(TASK, containers=(BATCH, other, OWN))))
    assert only(findings, "batch").level == "problem"
    assert "batch, other" in only(findings, "batch").text
    assert len(findings["log stream"]) == 2


@pytest.mark.parametrize(
    ("step_seconds", "level", "text"),
    [(1, "ok", "every 1 s"), (10, "note", "every 10 s"), (60, "note", "not refreshed within")],
)
def test_how_often_the_stats_move(step_seconds: float, level: str, text: str) -> None:
    one = context(step_seconds=step_seconds)
    finding = only(found(one), "stats")
    assert finding.level == level
    assert text in finding.text
    assert one.clock.monotonic_ns() <= seconds(26)


@pytest.mark.parametrize(
    ("driver", "place"),
    [("awslogs", "/ecs/jobs, stream ecs/task-monitor/0123"), ("awsfirelens", "the log driver")],
)
def test_the_monitors_own_stream_is_named_and_no_permission_is_probed(
    driver: str, place: str
) -> None:
    options = {"awslogs-group": "/ecs/jobs", "awslogs-stream": "ecs/task-monitor/0123"}
    own = replace(OWN, log_driver=driver, log_options=options)
    given = replace(SETTINGS, task=task_settings(report_stream="monitor"))
    probes = replace(HEALTHY, may_put=lambda target: pytest.fail(f"probed {target}"))
    finding = only(found(context(own=own, settings=given), probes), "log stream")
    assert finding.level == "ok"
    assert "the monitor's own stream" in finding.text
    assert place in finding.text


def test_the_gpus_and_those_of_the_batch_are_named() -> None:
    probes = replace(HEALTHY, read_gpus=lambda: DriverReading(samples=(GpuSample(facts=GPU),)))
    findings = found(context(), probes)
    assert only(findings, "GPUs").text == "GPU 0: NVIDIA A10G (GPU-a)."
    assert only(findings, "batch's GPUs").level == "note"
    for visible, text in (
        ("GPU-a", "GPUs of the batch: GPU-a."),
        ("all", "All GPUs belong to the batch."),
    ):
        seen = replace(probes, visible_devices=lambda _, visible=visible: visible)
        assert only(found(context(), seen), "batch's GPUs").text == text
    chosen = replace(SETTINGS, accelerators=replace(SETTINGS.accelerators, gpu_uuids=("GPU-a",)))
    assert only(found(context(settings=chosen), probes), "batch's GPUs").level == "ok"


def test_the_missing_package_of_the_driver_is_named_once() -> None:
    probes = replace(HEALTHY, read_gpus=lambda: Unavailable(NOT_INSTALLED))
    finding = only(found(context(), probes), "GPUs")
    assert finding.level == "problem"
    assert finding.text == (
        "There is an NVIDIA driver, but no GPU can be read: the package nvidia-ml-py is missing: "
        f"{install_hint('nvidia-ml-py')}."
    )


def test_this_process_is_not_taken_for_the_batch() -> None:
    """This process is not taken for the batch and outside of ECS there is none."""
    assert list(found(None)) == ["task metadata", "kernel"]
    asked: list[str | None] = []

    def kernel_view(docker_id: str | None) -> KernelView:
        asked.append(docker_id)
        return VIEW

    findings = found(
        context(), replace(HEALTHY, kernel_view=kernel_view, count_processes=lambda _: 0)
    )
    assert asked == [None]
    assert "no time breakdown" in findings["level"][0].text
    assert "call stacks" not in findings
