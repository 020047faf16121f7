"""Carries a proof out: makes what it needs, runs the tasks, waits for what arrives, and removes all
of it.

A request to stop is looked at between calls, so that what each call made is known. Each step says
first how it is undone.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct, field

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.clusters_and_log_groups import create_log_group, log_group_class
from profiler.aws_account.doctor.cluster_checks import ClusterChecks, family_health
from profiler.aws_account.doctor.deployment_checks import deployment_findings
from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.family_monitors import FamilyMonitor
from profiler.aws_account.proof.arrivals import QUEUES, EvidenceReader, ProofTask
from profiler.aws_account.proof.plan import BATCH, ON_INSTANCE, SCENARIOS, ProofPlan
from profiler.aws_account.proof.proof_checks import (
    Row,
    queue_rows,
    rows,
    subscription_row,
    unreadable,
    with_remedies,
)
from profiler.aws_account.registered_definitions import TaskDefinitions, read_items
from profiler.aws_account.report_paths import ReportPaths
from profiler.aws_account.setup.group_filters import FilterPlan, GroupFilters
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND
from profiler.task_definitions.permissions import policy

WAIT_SECONDS = 360.0
_POLL_SECONDS = 3.0
_STOP_SECONDS = 180.0  # a monitor's stop timeout is 120 s
_STOPPED = "STOPPED"


class Undo(Struct, frozen=True):
    """How something that the proof makes is removed, and the command for it, if that fails."""

    remove: Callable[[], object]
    command: str


class Proof(Struct, kw_only=True):
    """One proof. ``is_stopped``: whether somebody asked to stop; ``on_wait`` gets the share of the
    time that has passed.
    """

    plan: ProofPlan
    open_client: OpenClient
    clock: Clock
    reader: EvidenceReader
    on_step: Callable[[str], object]
    is_stopped: Callable[[], bool] = lambda: False
    on_wait: Callable[[float], object] = lambda _share: None
    wait_seconds: float = WAIT_SECONDS
    keeps_group: bool = False
    tasks: list[ProofTask] = field(default_factory=list)
    queues_before: Mapping[str, int] = field(default_factory=dict)
    _revisions: list[str] = field(default_factory=list)
    _undo: list[Undo] = field(default_factory=list)
    _stop_ns: int | None = None

    def run(self) -> None:
        """Make everything, and wait. Raises TaskProfilerError, or KeyboardInterrupt if stopped."""
        plan = self.plan
        logs = f"aws logs delete-log-group --log-group-name {plan.group}"
        if log_group_class(self.open_client, plan.group) is not None:
            raise TaskProfilerError(f"The log group {plan.group} exists: run the command again.")
        self._do(self._create_group, None if self.keeps_group else Undo(self._delete_group, logs))
        self.on_step(f"created the log group {plan.group}")
        if plan.delivery is not None:
            self._do(self._subscribe, Undo(self._unsubscribe, logs))
            self.on_step("subscribed it")
        if plan.policy_streams:
            names = f"--role-name {plan.role} --policy-name {plan.name}"
            command = f"aws iam delete-role-policy {names}"
            self._do(self._put_policy, Undo(self._delete_policy, command))
            self.on_step(f"attached the policy {plan.name} to the role {plan.role}")
        revisions = "aws ecs list-task-definitions --family-prefix task-profiler-proof"
        self._do(lambda: None, Undo(self._delete_revisions, revisions))
        definitions = TaskDefinitions(self.open_client("ecs"))
        if ON_INSTANCE in plan.scenarios:
            self._do(lambda: self._revisions.append(definitions.register(plan.plain)))
        self._do(lambda: self._revisions.append(definitions.register(plan.definition)))
        self.on_step(f"registered {plan.planned.family}")
        self.queues_before = self.reader.queue_counts()
        tasks = f"aws ecs list-tasks --cluster {plan.cluster} --started-by {plan.name}"
        self._do(lambda: None, Undo(self._stop_tasks, tasks))
        for scenario in plan.scenarios:
            self._do(partial(self._run_task, scenario))
        self.on_step(f"started {len(plan.scenarios)} tasks")
        self._wait()

    def _do(self, call: Callable[[], object], undo: Undo | None = None) -> None:
        """Take a step, unless somebody asked to stop."""
        if self.is_stopped():
            raise KeyboardInterrupt
        if undo is not None:
            self._undo.append(undo)
        call()

    def _create_group(self) -> None:
        create_log_group(self.open_client, self.plan.group)

    def _delete_group(self) -> None:
        logs = self.open_client("logs")
        with aws_errors(f"The log group {self.plan.group} stays", "logs:DeleteLogGroup"):
            try:
                logs.delete_log_group(logGroupName=self.plan.group)
            except logs.exceptions.ResourceNotFoundException:
                return

    @property
    def _filters(self) -> GroupFilters:
        return GroupFilters(self.plan.stack.name, self.open_client, self.on_step)

    def _subscribe(self) -> None:
        change = FilterPlan(name=self._filters.name, put=(self.plan.group,))
        for failure in self._filters.carry_out(
            change, self.plan.delivery, self.clock, lambda _step: None
        ):
            raise TaskProfilerError(failure)

    def _unsubscribe(self) -> None:
        change = FilterPlan(name=self._filters.name, delete=(self.plan.group,))
        for failure in self._filters.carry_out(change, None, self.clock, lambda _step: None):
            raise TaskProfilerError(failure)

    def _put_policy(self) -> None:
        document = json.dumps(policy(self.plan.policy_streams))
        with aws_errors(f"The policy of {self.plan.role} was not changed", "iam:PutRolePolicy"):
            self.open_client("iam").put_role_policy(
                RoleName=self.plan.role, PolicyName=self.plan.name, PolicyDocument=document
            )

    def _delete_policy(self) -> None:
        iam = self.open_client("iam")
        with aws_errors(f"The policy {self.plan.name} stays", "iam:DeleteRolePolicy"):
            try:
                iam.delete_role_policy(RoleName=self.plan.role, PolicyName=self.plan.name)
            except iam.exceptions.NoSuchEntityException:
                return

    def _delete_revisions(self) -> None:
        ecs = self.open_client("ecs")
        permission = "ecs:DeregisterTaskDefinition and ecs:DeleteTaskDefinitions"
        with aws_errors(f"Revisions of {self.plan.planned.family} stay", permission):
            for arn in self._revisions:
                ecs.deregister_task_definition(taskDefinition=arn)
            if self._revisions:
                ecs.delete_task_definitions(taskDefinitions=self._revisions)

    def _run_task(self, scenario: str) -> None:
        """Start a task. The token lets a repeated call start it once."""
        task = ProofTask(scenario=scenario)
        self.tasks.append(task)
        program = SCENARIOS[0] if scenario == ON_INSTANCE else scenario
        revision = self._revisions[0 if scenario == ON_INSTANCE else -1]
        overrides = {"containerOverrides": [{"name": BATCH, "command": [program]}]}
        try:
            with aws_errors("ECS did not start the task", "ecs:RunTask and iam:PassRole"):
                answer = self.open_client("ecs").run_task(
                    cluster=self.plan.cluster,
                    taskDefinition=revision,
                    startedBy=self.plan.name,
                    clientToken=f"{self.plan.name}-{scenario}",
                    overrides=overrides,
                    **self.plan.place.run,
                )
        except TaskProfilerError as error:
            task.failure = str(error)
            return
        for started in answer["tasks"]:
            task.arn = started["taskArn"]
        for refused in answer.get("failures", ()):
            task.failure = str(refused.get("reason") or refused.get("detail"))

    def _wait(self) -> None:
        """Read what arrives until everything has, or the time is over."""
        start_ns = self.clock.monotonic_ns()
        while True:
            self.reader.read(self.tasks)
            passed = (self.clock.monotonic_ns() - start_ns) / NS_PER_SECOND
            if passed >= self.wait_seconds or all(map(self._is_complete, self.tasks)):
                return
            self.on_wait(passed / self.wait_seconds)
            if self.is_stopped():
                raise KeyboardInterrupt
            self.clock.sleep(_POLL_SECONDS)

    def _is_complete(self, task: ProofTask) -> bool:
        """Whether nothing more is to be expected of a task."""
        if task.arn is None:
            return True
        if task.end is None:
            return False
        if task.end.container(BATCH).exit_code is None:
            return True
        is_awaited = self.plan.reads_documents and self.plan.has_stack
        if task.run is None or (task.document is None and is_awaited):
            return False
        if "TaskStoppedFunctionName" not in self.plan.stack.outputs:
            return True
        ended = task.ended or {}
        is_notified = not self.plan.notifies_of(task.scenario) or ended.get("notified") is not None
        return bool(ended) and is_notified and (bool(ended["indexed"]) or not self.plan.indexes)

    def _stop_tasks(self) -> None:
        """Stop all tasks of the proof, also those of which no answer arrived, and wait for it."""
        ecs = self.open_client("ecs")
        cluster = self.plan.cluster
        with aws_errors("The proof's tasks were not stopped", "ecs:ListTasks and ecs:StopTask"):
            name = self.plan.name
            running = [*read_items(ecs, "list_tasks", "taskArns", cluster=cluster, startedBy=name)]
            for arn in running:
                ecs.stop_task(cluster=cluster, task=arn, reason="task-profiler setup proof")
            listed = [*{*running, *(task.arn for task in self.tasks if task.arn is not None)}]
        if self._stop_ns is None:
            self._stop_ns = self.clock.monotonic_ns() + round(_STOP_SECONDS * NS_PER_SECOND)
        with aws_errors("Whether the proof's tasks stopped is unknown", "ecs:DescribeTasks"):
            while listed:
                tasks = ecs.describe_tasks(cluster=cluster, tasks=listed)["tasks"]
                listed = [task["taskArn"] for task in tasks if task["lastStatus"] != _STOPPED]
                if listed and self.clock.monotonic_ns() >= self._stop_ns:
                    raise TaskProfilerError("The proof's tasks did not stop within 3 minutes.")
                if listed:
                    self.clock.sleep(_POLL_SECONDS)

    def rows(self) -> Sequence[Row]:
        """Compare what arrived. Where a row differs, ask doctor for the remedies."""
        compared = [*rows(self.plan, self.tasks, self.reader.problems, self.wait_seconds)]
        paths = ReportPaths(self.open_client)
        compared.append(subscription_row(self.plan, paths.log_group(self.plan.group)))
        after = self.reader.queue_counts()
        grown = [name for name, count in after.items() if count > self.queues_before.get(name, 0)]
        with_own = self.reader.queues_with(self.tasks, grown)
        compared += queue_rows(self.queues_before, after, with_own)
        if not self.plan.has_stack:
            compared.append(
                Row(task="all", check=QUEUES, state="not checked", seen=self.plan.no_stack)
            )
        if QUEUES in self.reader.problems:
            row = Row(task="all", check=QUEUES, state="not checked")
            compared.append(unreadable(row, self.reader.problems[QUEUES]))
        if any(row.state == "differs" for row in compared):
            return [*with_remedies(compared, self._findings(paths))]
        return compared

    def _findings(self, paths: ReportPaths) -> Sequence[Finding]:
        """What doctor finds about the family and the stack."""
        monitor = FamilyMonitor(state="current", planned=self.plan.planned)
        checks = ClusterChecks((), None, self.clock.wall_ns(), is_indexed=self.plan.indexes)
        (health,) = checks.judged([monitor], [family_health(monitor, paths)])
        if not self.plan.has_stack:
            return health.findings
        stack = deployment_findings(self.plan.stack.name, self.open_client, self.clock)
        return [*health.findings, *stack]

    def clean_up(self) -> Sequence[str]:
        """Remove everything, the newest first; what fails is tried a second time.

        Returns a sentence about each thing that stays.
        """
        left: list[tuple[Undo, str]] = []
        waiting = [*reversed(self._undo)]
        for _ in range(2):
            left = []
            for undo in waiting:
                try:
                    undo.remove()
                except TaskProfilerError as error:
                    left.append((undo, str(error)))
            waiting = [undo for undo, _ in left]
        return [f"{sentence} See {undo.command}." for undo, sentence in left]
