"""Each row of a proof: when it agrees, when it differs, and what the remedy is."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aws_account.doctor.findings import Finding, problem
from profiler.aws_account.forwarder_stack import ForwarderStack
from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.proof.arrivals import FUNCTION_LOG, NOT_STOPPED, ProofTask, WitnessLine
from profiler.aws_account.proof.plan import ProofPlan
from profiler.aws_account.proof.proof_checks import (
    CHECKS,
    ProofRow,
    queue_rows,
    subscription_row,
    task_rows,
    with_remedies,
)
from profiler.aws_account.proof.task_plan import TaskPlace, TasksPlan
from profiler.aws_account.report_prerequisites import LogGroupState
from profiler.core.ecs_terms import LogTarget
from profiler.core.timestamps import format_datetime
from profiler.record.record_model import (
    Container,
    Cost,
    Metrics,
    Record,
    Report,
    Sampling,
    TaskSize,
)
from profiler.record.stopped_task import EventContainer, StoppedTask
from profiler.runs.past_runs.past_run import PastRun
from profiler.task_definitions.definition_json import ChangedDefinition
from tests.cases import each_case

MIB = 1 << 20
ID = "158d1c8083dd49d6b527399fd6414f5c"
ARN = f"arn:aws:ecs:us-east-1:123456789012:task/jobs/{ID}"
START = datetime(2026, 11, 25, 3, tzinfo=UTC)
END = START + timedelta(seconds=40)
USD = 2 * 0.004445 + 0.04048
MEMBERS: Mapping[str, tuple[str, ...]] = {
    "task": (
        "Cluster",
        "TaskARN",
        "Family",
        "Revision",
        "KnownStatus",
        "Containers",
        "PullStartedAt",
    ),
    "container": (
        "DockerId",
        "Name",
        "Image",
        "KnownStatus",
        "Limits",
        "CreatedAt",
        "StartedAt",
        "Type",
        "LogDriver",
        "LogOptions",
        "ContainerARN",
        "Labels",
    ),
    "stats": ("read", "cpu_stats", "memory_stats", "blkio_stats"),
}
STACK = ForwarderStack(
    name="task-profiler",
    status="CREATE_COMPLETE",
    parameters={"ElasticsearchUrl": "https://search:9200", "SlackSecretId": "slack"},
    outputs={
        "TaskStoppedFunctionName": "task-profiler-task-stopped",
        "ForwardLogsFunctionName": "task-profiler-forward-logs",
    },
)


def plan(network_mode: str = "awsvpc", compatibility: str = "FARGATE", **more: Any) -> TasksPlan:
    definition = {
        "family": "task-profiler-proof",
        "networkMode": network_mode,
        "requiresCompatibilities": [compatibility],
    }
    planned = PlannedFamily(
        family="task-profiler-proof",
        action="add monitor",
        changed=ChangedDefinition(definition=definition),
    )
    values: dict[str, Any] = {
        "kind": "tasks",
        "id": "0a1b2c3d",
        "container": "batch",
        "stream_prefix": "ecs",
        "memory_mb": 256,
        "network_mode": network_mode,
        "is_on_fargate": compatibility == "FARGATE",
        "capacity_remedy": "Give the cluster capacity.",
        "region": "us-east-1",
        "cluster": "jobs",
        "stack": STACK,
        "place": TaskPlace(source="The schedule night", definition="nightly"),
        "planned": planned,
        "plain": definition,
        "scenarios": ("success", "failure", "memory"),
        "delivery": None,
        "policy_streams": (),
        "problems": (),
        "usd": None,
    }
    return TasksPlan(**values | more)


def line(seconds: float, cpu_seconds: float, **more: Any) -> WitnessLine:
    values: dict[str, Any] = {
        "type": "proof.witness",
        "step": "step",
        "time": START.timestamp() + seconds,
        "cpu_seconds": cpu_seconds,
        "needed_bytes": 160 * MIB,
        "written_bytes": 64 * MIB,
        "started_at": {
            "batch": format_datetime(START),
            "task-monitor": format_datetime(START + timedelta(seconds=1)),
        },
        "members": MEMBERS,
    }
    return WitnessLine(**values | more)


def task(scenario: str = "success", **more: Any) -> ProofTask:
    """A task of which everything is as it is assumed."""
    code = {"success": 0, "failure": 3, "memory": 137, "instance": 0}[scenario]
    record = Record(
        task_id=ID,
        family="task-profiler-proof",
        region="us-east-1",
        launch_type="FARGATE",
        cpu_architecture="X86_64",
        container=Container(name="batch"),
        exit_code=code,
        started_at=format_datetime(START),
        finished_at=format_datetime(END),
        task_size=TaskSize(vcpu=1, memory_mb=2048),
        sampling=Sampling(stats_period_ms=10_000, cpu_covered_percent=95.0),
        cost=Cost(usd=USD / 60),
        metrics=Metrics(
            duration_ms=40_000,
            billed_duration_ms=60_000,
            init_duration_ms=10_000,
            memory_size_mb=256,
            max_memory_used_mb=160,
            memory_peak_source="sampled",
            cpu_seconds=20.0,
            block_write_bytes=64 * MIB,
            network_rx_bytes=10_000,
        ),
    )
    report = Report(
        time=format_datetime(END + timedelta(seconds=1)), type="task.report", record=record
    )
    place = LogTarget(group="/ecs/task-profiler-proof-0a1b2c3d", stream=f"ecs/batch/{ID}")
    end = StoppedTask(
        arn=ARN,
        pull_started_at=START - timedelta(seconds=10),
        execution_stopped_at=END,
        containers=(
            EventContainer(name="batch", exit_code=code),
            EventContainer(name="task-monitor", exit_code=0),
        ),
    )
    values: dict[str, Any] = {
        "scenario": scenario,
        "container": "batch",
        "stream_prefix": "ecs",
        "arn": ARN,
        "end": end,
        "witness": (line(0.5, 0.05), line(20.5, 20.0), line(40, 20.0)),
        "run": PastRun(report=report, place=place),
        "ended": {
            "stopCategory": "oom" if scenario == "memory" else "exit",
            "indexed": True,
            "notified": "success" if code == 0 else "failure",
        },
    }
    return ProofTask(**values | more)


def reporting(scenario: str = "success", *, metrics: Any = None, **record: Any) -> ProofTask:
    """A task whose report has other values."""
    made = task(scenario)
    assert made.run is not None
    report = made.run.report
    changed = replace(report.record, **record)
    changed = replace(changed, metrics=replace(changed.metrics, **(metrics or {})))
    made.run = replace(made.run, report=replace(report, record=changed))
    return made


def row_of(check: str, tested: ProofTask, planned: ProofPlan | None = None) -> ProofRow:
    (row,) = [
        one for one in task_rows(planned or plan(), [tested], {}, 360.0) if one.check == check
    ]
    return row


@pytest.mark.parametrize("scenario", ["success", "failure", "memory", "instance"])
def test_a_task_that_is_as_assumed_has_rows_that_are_ok(scenario: str) -> None:
    found = list(task_rows(plan(), [task(scenario)], {}, 360.0))
    assert {row.state for row in found} == {"ok"}
    of_tasks = [check for check in CHECKS if "tasks" in check.kinds]
    names = {check.name for check in of_tasks if scenario in check.scenarios}
    assert {row.check for row in found} == {"task", *names}


def ended(**values: Any) -> Callable[[], ProofTask]:
    return lambda: task("memory", ended={"stopCategory": "oom", "indexed": True, **values})


def without_batch_code() -> StoppedTask:
    return StoppedTask(
        arn=ARN,
        containers=(
            EventContainer(name="batch", exit_code=0),
            EventContainer(name="task-monitor", exit_code=1),
        ),
    )


LATE = format_datetime(START - timedelta(seconds=2))
EARLY = {"batch": format_datetime(START), "task-monitor": LATE}
NEW = {**MEMBERS, "task": (*MEMBERS["task"], "Novelty")}
LESS = {**MEMBERS, "stats": ("read", "cpu_stats", "memory_stats")}


@each_case(
    ("check", "make", "seen"),
    [
        (
            "the batch starts without waiting for the monitor",
            lambda: task(witness=(line(0, 0, started_at=EARLY),)),
            "-2.00 s before it",
        ),
        ("report", lambda: task(run=None), "no report within 6 minutes"),
        (
            "report",
            lambda: reporting(finished_at=format_datetime(END - timedelta(seconds=40))),
            "41.00 s after the exit",
        ),
        ("CPU time", lambda: reporting(metrics={"cpu_seconds": 19.0}), "19.00 s"),
        ("CPU time", lambda: reporting(metrics={"cpu_seconds": None}), "absent"),
        ("memory peak", lambda: reporting(metrics={"max_memory_used_mb": 164}), "≥164.00 MB"),
        (
            "memory peak",
            lambda: reporting(metrics={"max_memory_used_mb": 150, "memory_peak_source": "kernel"}),
            "150.00 MB",
        ),
        ("written bytes", lambda: reporting(metrics={"block_write_bytes": 0}), "0.00 MiB"),
        ("network", lambda: reporting(metrics={"network_rx_bytes": None}), "absent"),
        ("exit code", lambda: reporting(exit_code=1), "1 in the report, 0 in ECS"),
        ("verdict and limit", ended(stopCategory="exit"), "exit at 256 MB"),
        (
            "verdict and limit",
            lambda: reporting("memory", metrics={"memory_size_mb": 2048}),
            "killed for memory at 2048 MB",
        ),
        (
            "period of the statistics",
            lambda: reporting(sampling=Sampling(stats_period_ms=1000)),
            "1.00 s",
        ),
        (
            "members of the metadata",
            lambda: task(witness=(line(0, 0, members=NEW),)),
            "new task.Novelty",
        ),
        (
            "members of the metadata",
            lambda: task(witness=(line(0, 0, members=LESS),)),
            "no stats.blkio_stats",
        ),
        ("time to start", lambda: reporting(metrics={"init_duration_ms": 2_000}), "2.00 s"),
        ("end of the monitor", lambda: task(end=without_batch_code()), "exit code 1"),
        ("ECS's event", lambda: task(ended={}), "none"),
        ("ECS's event", ended(indexed=False), "no document"),
        ("notification", ended(notified=None), "none"),
        ("cost", lambda: reporting(cost=Cost(usd=USD / 30)), "1.65 USD per 1,000 runs"),
    ],
)
def test_a_value_that_is_not_as_assumed_differs(
    check: str, make: Callable[[], ProofTask], seen: str
) -> None:
    row = row_of(check, make())
    assert row.state == "differs"
    assert row.seen == seen
    assert row.expected


def test_a_report_in_the_monitors_stream_differs() -> None:
    made = task()
    assert made.run is not None
    made.run = replace(made.run, place=LogTarget(group="g", stream=f"ecs/task-monitor/{ID}"))
    assert row_of("report", made).seen == "the stream of task-monitor"


@pytest.mark.parametrize("peak", [20, 159, 163])
def test_a_sampled_peak_may_be_below_and_never_above(peak: int) -> None:
    assert row_of("memory peak", reporting(metrics={"max_memory_used_mb": peak})).state == "ok"


def test_cpu_time_is_compared_up_to_the_last_reading() -> None:
    """Fargate's statistics can end 10 s before the batch."""
    covered = reporting(sampling=Sampling(cpu_covered_percent=25.0), metrics={"cpu_seconds": 9.5})
    row = row_of("CPU time", covered)
    assert row.state == "ok"
    assert row.expected == "9.53 s"


@each_case(
    ("check", "tested", "planned"),
    [
        ("CPU time", task(witness=()), plan()),
        ("memory peak", task(witness=(line(0, 0, needed_bytes=None),)), plan()),
        ("written bytes", task(witness=(line(0, 0, written_bytes=0),)), plan()),
        ("time to start", task(witness=(line(0, 0, members={}),)), plan()),
        ("cost", task(), plan(compatibility="EC2")),
        ("notification", task(), plan(stack=replace(STACK, parameters={}))),
        (
            "notification",
            task(),
            plan(stack=replace(STACK, parameters={"SlackSecretId": "slack", "Notify": "failure"})),
        ),
        ("ECS's event", task(), plan(stack=replace(STACK, outputs={}))),
    ],
)
def test_what_cannot_be_known_is_not_checked(
    check: str, tested: ProofTask, planned: ProofPlan
) -> None:
    row = row_of(check, tested, planned)
    assert row.state == "not checked"
    assert row.seen


def test_in_host_mode_no_network_is_measured() -> None:
    host = plan("host", "EC2")
    assert row_of("network", task(), host).state == "differs"
    assert row_of("network", reporting(metrics={"network_rx_bytes": None}), host).state == "ok"


def test_on_ec2_the_statistics_come_each_second() -> None:
    on_ec2 = plan("bridge", "EC2")
    assert row_of("period of the statistics", task(), on_ec2).state == "differs"
    each_second = reporting(sampling=Sampling(stats_period_ms=1003))
    assert row_of("period of the statistics", each_second, on_ec2).state == "ok"


@pytest.mark.parametrize(
    ("document", "state"),
    [
        (None, "differs"),
        (task().run, "ok"),
        (replace(task().run or PastRun(report=None), is_confirmed=False), "differs"),  # type: ignore[arg-type]
    ],
)
def test_with_a_search_cluster_the_document_must_be_confirmed(
    document: PastRun | None, state: str
) -> None:
    row = row_of("ECS's event", task(document=document), plan(reads_documents=True))
    assert row.state == state


NO_ROUTE_TO_SIGN_IN = (
    "ResourceInitializationError: unable to pull secrets or registry auth: The task cannot pull "
    "registry auth from Amazon ECR: There is a connection issue between the task and Amazon ECR."
)
NO_ROUTE_TO_IMAGE = (
    "CannotPullContainerError: pull image manifest has been retried 5 time(s): failed to do "
    'request: Head "https://registry/v2/": dial tcp 10.0.0.1:443: i/o timeout'
)
NO_RIGHT = (
    "ResourceInitializationError: unable to pull secrets or registry auth: AccessDeniedException: "
    "not authorized to perform: ecr:GetAuthorizationToken"
)


def stopped(reason: str) -> StoppedTask:
    return StoppedTask(arn=ARN, stopped_reason=reason)


NOT_RUN = (
    ({"arn": None, "failure": "RESOURCE:CPU"}, "resources", "Give the cluster capacity"),
    ({"state": "PROVISIONING"}, "resources", "Give the cluster capacity"),
    (
        {"end": StoppedTask(arn=ARN, stopped_reason="CannotPullContainerError: no such image")},
        "image",
        "Run task-profiler setup image",
    ),
    ({"arn": None, "failure": "AWS refused (AccessDenied)"}, "refused", "Correct what AWS names"),
    ({"end": stopped(NO_ROUTE_TO_SIGN_IN)}, "resources", "The subnets lead neither to"),
    ({"end": stopped(NO_ROUTE_TO_IMAGE)}, "image", "The subnets lead neither to"),
    ({"end": stopped(NO_RIGHT)}, "secrets", "please send"),
)


@pytest.mark.parametrize(("values", "category", "remedy"), NOT_RUN)
def test_a_task_that_did_not_run_is_a_row_and_its_others_are_not_checked(
    values: dict[str, Any], category: str, remedy: str
) -> None:
    nothing: dict[str, Any] = {"end": NOT_STOPPED, "witness": (), "run": None, "ended": {}}
    first, *others = with_remedies(
        [*task_rows(plan(), [task(**nothing | values)], {}, 360.0)], (), "tasks"
    )
    assert first.state == "differs"
    assert first.seen == f"it did not run ({category})"
    assert first.detail is not None
    assert remedy in (first.remedy or "")
    assert {row.state for row in others} == {"not checked"}


@pytest.mark.parametrize(
    "values", [values for values, category, _ in NOT_RUN if category != "secrets"]
)
def test_the_remedy_of_a_job_names_no_option_of_tasks(values: dict[str, Any]) -> None:
    """The queue's compute environments have their subnets."""
    nothing: dict[str, Any] = {"end": NOT_STOPPED, "witness": (), "run": None, "ended": {}}
    of_jobs = plan(kind="jobs", capacity_remedy="See why: task-profiler doctor --queue spot.")
    first, *_ = with_remedies(
        [*task_rows(of_jobs, [task(**nothing | values)], {}, 360.0)], (), "jobs"
    )
    assert first.remedy
    for option in ("--subnets", "--security-groups", "--task-role"):
        assert option not in first.remedy


def test_what_the_functions_did_is_not_checked_if_their_log_cannot_be_read() -> None:
    problems = {FUNCTION_LOG: "AWS refused: allow logs:FilterLogEvents."}
    found = list(task_rows(plan(), [task(ended={})], problems, 360.0))
    states = {row.check: row.state for row in found}
    assert states["ECS's event"] == "not checked"
    assert states["notification"] == "not checked"
    assert states["CPU time"] == "ok"


def test_only_a_message_of_these_tasks_in_a_queue_differs() -> None:
    before = {"Old": 3, "Own": 1, "Empty": 0}
    old, own, empty = queue_rows(before, {"Old": 4, "Own": 2, "Empty": 0}, ["Own"])
    assert old.state == "ok"
    assert old.seen == "3 messages before this proof"
    assert own.state == "differs"
    assert own.seen == "1 message before this proof, 2 after it, some about its tasks"
    assert empty.state == "ok"


@pytest.mark.parametrize(
    ("group", "stack", "state"),
    [
        (LogGroupState(exists=True, forwarded_to=("forward-logs",)), STACK, "ok"),
        (LogGroupState(exists=True), STACK, "differs"),
        (LogGroupState(exists=None), STACK, "not checked"),
        (LogGroupState(exists=True, is_forwarding_known=False), STACK, "not checked"),
        (LogGroupState(exists=True), replace(STACK, outputs={}), "not checked"),
    ],
)
def test_the_groups_subscription_is_a_row(
    group: LogGroupState, stack: ForwarderStack, state: str
) -> None:
    assert subscription_row(plan(stack=stack), group).state == state


FINDINGS: Sequence[Finding] = (
    problem("role", "The role lacks logs:PutLogEvents.", "Allow it."),
    problem("subscription", "No subscription of the group.", "Subscribe it."),
    problem("queues", "Events failed.", "Send them again."),
    problem("task_stopped", "The rule is disabled.", "Enable it."),
    problem("execution role", "It does not allow the pull.", "Attach the policy."),
)


@pytest.mark.parametrize(
    ("row", "remedy"),
    [
        (row_of("report", task(run=None)), "The role lacks logs:PutLogEvents. Allow it."),
        (row_of("CPU time", task(run=None)), "The role lacks logs:PutLogEvents. Allow it."),
        (
            subscription_row(plan(), LogGroupState(exists=True)),
            "No subscription of the group. Subscribe it.",
        ),
        (
            next(iter(queue_rows({"Own": 0}, {"Own": 1}, ["Own"]))),
            "Events failed. Send them again.",
        ),
        (
            row_of("notification", task("memory", ended={"notified": None})),
            "The rule is disabled. Enable it. Events failed. Send them again.",
        ),
        (
            row_of("CPU time", reporting(metrics={"cpu_seconds": 1.0})),
            (
                "This project assumes otherwise: please send the table, which task-profiler setup "
                "proof --markdown prints."
            ),
        ),
    ],
)
def test_a_row_that_differs_has_doctors_remedy(row: ProofRow, remedy: str) -> None:
    (judged,) = with_remedies([row], FINDINGS, "tasks")
    assert judged.remedy == remedy
