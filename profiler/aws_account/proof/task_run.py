"""Runs the programs of a proof as tasks of an ECS cluster."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct, field

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.doctor.cluster_checks import ClusterChecks, family_health
from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.family_monitors import FamilyMonitor
from profiler.aws_account.proof.arrivals import NOT_STOPPED, ProofTask
from profiler.aws_account.proof.plan import ON_INSTANCE, SCENARIOS
from profiler.aws_account.proof.proof_steps import POLL_SECONDS, TakeStep, UndoStep
from profiler.aws_account.proof.task_plan import TasksPlan
from profiler.aws_account.registered_definitions import TaskDefinitions, read_items
from profiler.aws_account.report_prerequisites import ReportPathReader
from profiler.core.aws_clients import AwsClient
from profiler.core.aws_lost_answers import has_surely_changed_nothing
from profiler.core.bounded_batches import batches
from profiler.core.clock import Clock
from profiler.core.commands_to_copy import aws_command_line, option_words
from profiler.core.ecs_terms import task_id
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.optional_math import known_values
from profiler.core.timestamps import NS_PER_SECOND, format_datetime
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.run_outcome import explained_refusal
from profiler.record.stopped_task import parse_stopped_task
from profiler.task_definitions.permissions import report_policy

_STOP_SECONDS = 180.0  # a monitor's stop timeout is 120 s
_STOPPED = "STOPPED"
_DELETED_PER_CALL = 10


class TaskRunner(Struct, kw_only=True):
    """The tasks of one proof."""

    plan: TasksPlan
    open_client: OpenClient
    clock: Clock
    _revisions: list[str] = field(default_factory=list)
    _deregistered: list[str] = field(default_factory=list)
    _is_deleting: bool = False
    _stop_ns: int | None = None

    def register_definitions(self, take_step: TakeStep, on_step: Callable[[str], object]) -> None:
        """Allow the reports for the time, and register the family."""
        plan = self.plan
        if plan.policy_streams:
            names = option_words({"--role-name": plan.role, "--policy-name": plan.resource_name})
            command = aws_command_line("iam", "delete-role-policy", *names)
            take_step(self._put_policy, UndoStep(self._delete_policy, command))
            on_step(f"attached the policy {plan.resource_name} to the role {plan.role}")
        family = ("--family-prefix", PROOF_FAMILY)
        revisions = aws_command_line("ecs", "list-task-definitions", *family)
        take_step(lambda: None, UndoStep(self._delete_revisions, revisions))
        if ON_INSTANCE in plan.scenarios:
            take_step(partial(self._register_revision, plan.plain))
        take_step(partial(self._register_revision, plan.definition))
        on_step(f"registered {plan.planned.family}")

    def _register_revision(self, definition: Mapping[str, object]) -> None:
        self._revisions.append(TaskDefinitions(self.open_client("ecs")).register(definition))

    def _put_policy(self) -> None:
        document = json.dumps(report_policy(self.plan.policy_streams))
        with aws_errors(f"The policy of {self.plan.role} was not changed", "iam:PutRolePolicy"):
            self.open_client("iam").put_role_policy(
                RoleName=self.plan.role, PolicyName=self.plan.resource_name, PolicyDocument=document
            )

    def _delete_policy(self) -> None:
        iam = self.open_client("iam")
        with aws_errors(f"The policy {self.plan.resource_name} stays", "iam:DeleteRolePolicy"):
            try:
                iam.delete_role_policy(RoleName=self.plan.role, PolicyName=self.plan.resource_name)
            except iam.exceptions.NoSuchEntityException:
                return

    def _delete_revisions(self) -> None:
        """Delete the revisions that log into the proof's group, also those of which no answer
        arrived: boto3 registers another one after a lost answer.
        """
        ecs = self.open_client("ecs")
        permission = "ecs:DeregisterTaskDefinition and ecs:DeleteTaskDefinitions"
        with aws_errors(f"Revisions of {PROOF_FAMILY} stay", permission):
            for arn in (*self._revisions, *self._unknown_active_revisions(ecs)):
                if arn not in self._deregistered:
                    ecs.deregister_task_definition(taskDefinition=arn)
                    self._deregistered.append(arn)
            left = self._deregistered
            if self._is_deleting:  # ECS deregisters and deletes no revision that it is deleting
                listed = {*_own_revisions(ecs, "INACTIVE")}
                left = [arn for arn in left if arn in listed]
            self._is_deleting = True
            for some in batches(left, _DELETED_PER_CALL):
                answer = ecs.delete_task_definitions(taskDefinitions=some)
                for failed in answer.get("failures", ()):
                    raise TaskProfilerError(
                        f"Revisions of {PROOF_FAMILY} stay ({failed.get('reason')})."
                    )

    def _unknown_active_revisions(self, ecs: AwsClient) -> list[str]:
        """The active revisions of the proof that are not known yet."""
        listed = _own_revisions(ecs, "ACTIVE")
        unknown = [arn for arn in listed if arn not in self._revisions]
        return [
            arn
            for arn in unknown
            if _log_group_of_answer(ecs.describe_task_definition(taskDefinition=arn))
            == self.plan.log_group_name
        ]

    def start_program(self, task: ProofTask) -> None:
        """Start a task. The token lets a repeated call start it once."""
        is_on_instance = task.scenario == ON_INSTANCE
        program = SCENARIOS[0] if is_on_instance else task.scenario
        revision = self._revisions[0 if is_on_instance else -1]
        overrides = {"containerOverrides": [{"name": task.container, "command": [program]}]}
        try:
            with aws_errors("ECS did not start the task", "ecs:RunTask and iam:PassRole"):
                answer = self.open_client("ecs").run_task(
                    cluster=self.plan.cluster,
                    taskDefinition=revision,
                    startedBy=self.plan.resource_name,
                    clientToken=f"{self.plan.resource_name}-{task.scenario}",
                    overrides=overrides,
                    **self.plan.place.run,
                )
        except TaskProfilerError as error:
            task.failure = str(error)
            if not has_surely_changed_nothing(error.__cause__):
                task.failure += f" It may have started: {self.plan.resource_name} is its startedBy."
            return
        for started in answer["tasks"]:
            task.arn = started["taskArn"]
        for refused in answer.get("failures", ()):
            task.failure = explained_refusal(str(refused.get("reason") or refused.get("detail")))
        if not (task.has_started or task.failure):
            task.failure = "ECS gave no reason"

    def undo_starts(self, tasks: Sequence[ProofTask]) -> UndoStep:
        """How all tasks of the proof are stopped, also those of which no answer arrived."""
        started = ("--cluster", self.plan.cluster, "--started-by", self.plan.resource_name)
        command = aws_command_line("ecs", "list-tasks", *started)
        return UndoStep(partial(self._stop_tasks, tasks), command)

    def _stop_tasks(self, tasks: Sequence[ProofTask]) -> None:
        """Stop them, and wait for it."""
        ecs = self.open_client("ecs")
        cluster = self.plan.cluster
        with aws_errors("The proof's tasks were not stopped", "ecs:ListTasks and ecs:StopTask"):
            name = self.plan.resource_name
            pages = read_items(ecs, "list_tasks", "taskArns", cluster=cluster, startedBy=name)
            try:
                running = [*pages]
            except ecs.exceptions.ClusterNotFoundException:
                return  # somebody has deleted it, which needs that no task runs
            for arn in running:
                ecs.stop_task(cluster=cluster, task=arn, reason="task-profiler setup proof")
            listed = [*{*running, *known_values(task.arn for task in tasks)}]
        if self._stop_ns is None:
            self._stop_ns = self.clock.monotonic_ns() + round(_STOP_SECONDS * NS_PER_SECOND)
        with aws_errors("Whether the proof's tasks stopped is unknown", "ecs:DescribeTasks"):
            while listed:
                described = ecs.describe_tasks(cluster=cluster, tasks=listed)["tasks"]
                # A task that is left out of an answer may run.
                ended = {one["taskArn"] for one in described if one["lastStatus"] == _STOPPED}
                listed = [arn for arn in listed if arn not in ended]
                if listed and self.clock.monotonic_ns() >= self._stop_ns:
                    raise TaskProfilerError("The proof's tasks did not stop within 3 minutes.")
                if listed:
                    self.clock.sleep(POLL_SECONDS)

    def add_answers_of_aws(self, tasks: Sequence[ProofTask]) -> None:
        """Add ECS's own word to the tasks that it started."""
        describe_tasks(self.open_client, self.plan.cluster, tasks)

    def definition_findings(self, paths: ReportPathReader) -> Sequence[Finding]:
        """What doctor finds about the family."""
        monitor = FamilyMonitor(state="current", planned=self.plan.planned)
        checks = ClusterChecks((), None, self.clock.wall_ns(), is_indexed=self.plan.indexes)
        (health,) = checks.judge_families([monitor], [family_health(monitor, paths)])
        return health.findings


def _own_revisions(ecs: AwsClient, status: str) -> Iterator[str]:
    """The revisions of the proof's family. Raises boto3's errors."""
    family = {"familyPrefix": PROOF_FAMILY, "status": status}
    yield from read_items(ecs, "list_task_definitions", "taskDefinitionArns", **family)


def _log_group_of_answer(answer: Mapping[str, Any]) -> str | None:
    """The log group of the first container of a definition that ECS describes."""
    first = next(
        mappings_in_list(mapping_or_empty(answer["taskDefinition"]).get("containerDefinitions")), {}
    )
    return text_or_none(
        mapping_or_empty(mapping_or_empty(first.get("logConfiguration")).get("options")).get(
            "awslogs-group"
        )
    )


def describe_tasks(open_client: OpenClient, cluster: str, tasks: Sequence[ProofTask]) -> None:
    """Add what ECS says of the tasks that are known, and have not ended. Raises
    TaskProfilerError.
    """
    known = {task.id: task for task in tasks if task.has_started and not task.has_stopped}
    if not known:
        return
    with aws_errors("The proof's tasks cannot be read", "ecs:DescribeTasks"):
        arns = [task.arn for task in known.values()]
        described = open_client("ecs").describe_tasks(cluster=cluster, tasks=arns)
    for description in described["tasks"]:
        task = known[task_id(description["taskArn"])]
        task.state = description["lastStatus"]
        task.platform = description.get("platformVersion")
        task.instance_arn = description.get("containerInstanceArn")
        task.end = parse_stopped_task({"detail": _with_times_as_text(description)}) or NOT_STOPPED


def _with_times_as_text(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task of boto3 with the times as in ECS's event."""
    return {
        name: format_datetime(value) if isinstance(value, datetime) else value
        for name, value in task.items()
    }
