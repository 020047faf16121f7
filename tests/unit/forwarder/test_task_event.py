"""Events of stopped tasks: parsing, outcome, and the batch container.

The events have the shape of real ones.
"""

import pytest

from profiler.forwarder.report_finder import identify_containers
from profiler.record.ecs_event_outcome import end_of_event
from profiler.record.run_outcome import EndStatus
from profiler.record.stop_causes import outcome_of
from profiler.record.stopped_task import EventContainer, parse_stopped_task
from tests.cases import each_case
from tests.stopped_tasks import judged_task
from tests.task_events import ARN, container, definition, event, task


def test_a_stopped_task_is_parsed() -> None:
    parsed = task()
    assert parsed.id == ARN.rsplit("/", 1)[-1]
    assert parsed.cluster == "jobs"
    assert parsed.family == "nightly"
    assert parsed.revision == "5"
    assert parsed.region == "us-west-2"
    assert parsed.account_id == "111122223333"
    assert parsed.launch_type == "FARGATE"
    assert parsed.duration_ms == 63216
    assert not parsed.is_service_task
    assert parsed.containers[1] == EventContainer(
        name="batch",
        arn="arn:aws:ecs:us-west-2:111122223333:container/jobs/4dd5/0fee",
        image="etl:7",
        image_digest="sha256:59",
        runtime_id="4dd5-119",
        exit_code=1,
    )


@each_case(
    "other",
    [
        *(
            event(lastStatus=status)
            for status in ("PROVISIONING", "PENDING", "RUNNING", "DEPROVISIONING", None)
        ),
        None,
        {},
        [],
        {"detail": None},
        {"detail": {"lastStatus": "STOPPED"}},
        event(taskArn=5),
        "text",
    ],
)
def test_tasks_in_other_states_and_other_events_are_ignored(other: object) -> None:
    assert parse_stopped_task(other) is None


def test_an_end_before_the_start_gives_no_duration() -> None:
    """startedAt is when the control plane saw the task running; a task that crashes at once ends
    before that.
    """
    assert (
        task(executionStoppedAt="2026-03-01T10:11:24.000Z").duration_ms
        is task(startedAt=None).duration_ms
        is None
    )
    assert task(group="service:web").is_service_task
    assert task(startedBy="ecs-svc/5888882704497679006").is_service_task


EXITED, GENERIC = "EssentialContainerExited", "Essential container in task exited"
NO_START, RESOURCES = "TaskFailedToStart", "failure resources"
OOM = "OutOfMemoryError: Container killed due to memory usage"
CANNOT_PULL = "CannotPullContainerError: pull image manifest has been retried 5 time(s)"
# The stop code and the reason of the task, the exit code and the reason of the batch, and what they
# mean.
CASES: list[tuple[str | None, str | None, int | None, str | None, str]] = [
    (EXITED, GENERIC, 0, None, "success exit"),
    (EXITED, GENERIC, 1, None, "failure exit"),
    (EXITED, GENERIC, 137, OOM, "failure oom"),
    (EXITED, GENERIC, 137, OOM.replace("Container", "container"), "failure oom"),
    (EXITED, GENERIC, 0, OOM, "success oom"),
    (EXITED, GENERIC, None, OOM, "failure oom"),
    (EXITED, GENERIC, 137, None, "failure exit"),
    (EXITED, GENERIC, None, None, "unknown unknown"),
    ("UserInitiated", "Task stopped by user", 143, None, "stopped user"),
    ("UserInitiated", "Out of memory guard, before a spot interruption", 137, None, "stopped user"),
    ("SpotInterruption", None, 143, None, "stopped spot"),
    ("TerminationNotice", "Your Spot Task was interrupted.", None, None, "stopped spot"),
    (None, "Your Spot Task was interrupted.", None, None, "stopped spot"),
    (None, "userinitiated: deploy", 0, None, "stopped user"),
    (None, "Host EC2 (instance i-1) terminated.", 137, None, "stopped infrastructure"),
    (
        "ServiceSchedulerInitiated",
        "Scaling activity by (deployment ecs-svc/1)",
        143,
        None,
        "stopped scheduler",
    ),
    ("ServiceSchedulerInitiated", GENERIC, 137, OOM, "stopped scheduler"),
    (
        None,
        "Task failed ELB health checks in (target-group arn:aws:x)",
        0,
        None,
        "stopped scheduler",
    ),
    ("InfrastructureHealth", None, 0, None, "stopped infrastructure"),
    ("infrastructurehealth", GENERIC, None, None, "stopped infrastructure"),
    (
        None,
        "ECS is performing maintenance on the underlying infrastructure.",
        143,
        None,
        "stopped infrastructure",
    ),
    ("TaskFailedToStart", CANNOT_PULL, None, None, "failure image"),
    (
        NO_START,
        "ResourceInitializationError: The task cannot pull registry auth from ECR",
        None,
        None,
        RESOURCES,
    ),
    (
        NO_START,
        "Timeout waiting for EphemeralStorage provisioning to complete.",
        None,
        None,
        "failure resources",
    ),
    (
        "TaskFailedToStart",
        "Capacity is unavailable at this time. Please try again",
        None,
        None,
        "failure resources",
    ),
    ("TaskFailedToStart", "Something new", None, None, "failure unknown"),
    (
        None,
        GENERIC,
        None,
        "CannotCreateContainerError: Error response from daemon: x",
        "failure resources",
    ),
    (
        None,
        "Timeout waiting for network interface provisioning to complete.",
        None,
        None,
        "failure resources",
    ),
    (
        None,
        None,
        None,
        "DockerTimeoutError: Could not transition to started; timed out",
        "failure resources",
    ),
    (
        None,
        None,
        None,
        "ContainerRuntimeError: failed to create container task",
        "failure resources",
    ),
    (
        None,
        "Fetching secret data from SSM Parameter Store in us-west-2: invalid",
        None,
        None,
        "failure resources",
    ),
    (
        None,
        "Unexpected EC2 error while attempting to Create Network Interface",
        None,
        None,
        "failure resources",
    ),
]


@each_case(("stop_code", "stated", "exit_code", "own", "expected"), CASES)
def test_the_outcome_of_each_case(
    stop_code: str | None, stated: str | None, exit_code: int | None, own: str | None, expected: str
) -> None:
    batch = EventContainer(name="batch", exit_code=exit_code, reason=own)
    end = end_of_event(task(stopCode=stop_code, stoppedReason=stated), batch)
    outcome = outcome_of(None, end)
    assert f"{outcome.status} {outcome.stop_category}" == expected
    assert outcome.exit_code == exit_code
    assert end.out_of_memory == ((own or "").lower() == OOM.lower())


@pytest.mark.parametrize(
    ("stated", "batch", "others", "expected"),
    [
        (GENERIC, None, {}, None),
        (GENERIC, OOM, {"proxy": CANNOT_PULL}, OOM),
        ("Task stopped by user", OOM, {}, OOM),
        ("Task stopped by user", None, {"proxy": OOM}, "Task stopped by user"),
        (GENERIC, None, {"proxy": CANNOT_PULL}, f"proxy: {CANNOT_PULL}"),
        ("Task failed to start", None, {}, "Task failed to start"),
        (GENERIC, None, {"task-monitor": OOM}, None),
    ],
)
def test_the_most_specific_reason(
    stated: str | None, batch: str | None, others: dict[str, str], expected: str | None
) -> None:
    listed = [{"name": "batch", "exitCode": 1, "reason": batch}]
    listed += [{"name": name, "reason": reason} for name, reason in others.items()]
    parsed = task(stoppedReason=stated, containers=listed)
    end = end_of_event(parsed, parsed.container_or_name_only("batch"), monitor="task-monitor")
    assert end.reason == expected


@pytest.mark.parametrize("wanted", ["renamed", "Batch", ""])
def test_a_setting_that_names_a_missing_container_is_ignored(wanted: str) -> None:
    environment = [{"name": "TASK_PROFILER_CONTAINER", "value": wanted}]
    monitor = container("task-monitor", essential=False, environment=environment)
    chosen = identify_containers(
        definition(container("proxy", essential=False), monitor, container("batch")), task()
    )
    assert chosen.batch == "batch"
    assert chosen.monitor is not None
    assert chosen.batch_log is not None


OWN = "111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0"


def test_a_container_that_starts_the_monitor_is_never_the_batch() -> None:
    """Even if no other container is essential: the batch is then unknown."""
    watch = container("watch", image=OWN, command=["monitor"])
    chosen = identify_containers(definition(watch, container("batch", essential=False)), task())
    assert chosen.batch is None
    assert chosen.monitor == "watch"


@pytest.mark.parametrize(
    ("images", "batch", "monitor"),
    [
        ({"batch": OWN, "task-monitor": OWN}, "batch", "task-monitor"),
        ({"batch": OWN}, "batch", None),
        ({"a": "x", "b": "x"}, None, None),
        ({"one": OWN, "two": OWN}, None, None),
        ({}, None, None),
    ],
)
def test_without_a_definition_the_image_shows_the_monitor(
    images: dict[str, str], batch: str | None, monitor: str | None
) -> None:
    """Without a definition the image shows the monitor and a single candidate is the batch."""
    parsed = task(containers=[{"name": name, "image": image} for name, image in images.items()])
    chosen = identify_containers(None, parsed)
    assert chosen.batch == batch
    assert chosen.monitor == monitor


# The exit codes of the essential containers by name, or OOM; the expected status, batch and exit
# code. The definition lists the sidecar first.
TOGETHER: dict[str, tuple[dict[str, int | str | None], EndStatus, str, int | None]] = {
    "the sidecar crashed": ({"xray": 2, "batch": 143}, "failure", "xray", 2),
    "the batch ran out of memory": ({"xray": 143, "batch": OOM}, "failure", "batch", 137),
    "all succeeded": ({"xray": 0, "batch": 0}, "success", "xray", 0),
    "the end of the batch is unknown": ({"xray": 0, "batch": None}, "unknown", "xray", None),
    "both were killed": ({"xray": 137, "batch": 143}, "failure", "xray", 137),
    "nothing is known": ({}, "unknown", "xray", None),
}


@each_case("is_reversed", [False, True])
@each_case(("ends", "status", "batch", "exit_code"), TOGETHER.values(), ids=TOGETHER)
def test_possible_batch_containers_are_judged_together(
    ends: dict[str, int | str | None],
    status: EndStatus,
    batch: str,
    exit_code: int | None,
    *,
    is_reversed: bool,
) -> None:
    killed = {"exitCode": 137, "reason": OOM}
    listed = [
        {"name": name, **(killed if end == OOM else {"exitCode": end})}
        for name, end in ends.items()
    ]
    parsed = task(containers=listed[::-1] if is_reversed else listed)
    described = definition(
        container("xray"), container("batch"), container("task-monitor", essential=False)
    )
    end, judged = judged_task(parsed, described)
    outcome = outcome_of(None, end)
    assert outcome.status == status
    assert judged == batch
    assert outcome.exit_code == exit_code


def test_without_a_definition_candidates_with_the_same_end_have_no_batch() -> None:
    """The order of the containers in the event has no meaning."""
    parsed = task(containers=[{"name": "xray", "exitCode": 0}, {"name": "batch", "exitCode": 0}])
    end, batch = judged_task(parsed, None)
    assert batch is None
    assert outcome_of(None, end).status == "success"
