"""Carries a proof out: makes what it needs, runs the programs, waits for what arrives, and removes
all of it.

A request to stop is looked at between calls, so that what each call made is known. Each step says
first how it is undone.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct, field

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.clusters_and_log_groups import create_log_group, log_group_class
from profiler.aws_account.doctor.deployment_checks import deployment_findings
from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.proof.arrivals import QUEUES, EvidenceReader, ProofTask
from profiler.aws_account.proof.plan import ProofPlan
from profiler.aws_account.proof.proof_checks import (
    ProofRow,
    queue_rows,
    subscription_row,
    task_rows,
    unreadable_row,
    with_remedies,
)
from profiler.aws_account.report_prerequisites import ReportPathReader
from profiler.aws_account.setup.group_filters import FilterPlan, GroupFilters
from profiler.core.clock import Clock
from profiler.core.commands_to_copy import aws_command_line
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND

WAIT_SECONDS = 360.0
POLL_SECONDS = 3.0


class UndoStep(Struct, frozen=True):
    """How something that the proof makes is removed, and the command for it, if that fails."""

    remove: Callable[[], object]
    command: str


class TakeStep(Protocol):
    """Takes a step that has been told how to undo, unless somebody asked to stop."""

    def __call__(self, call: Callable[[], object], undo: UndoStep | None = None) -> None: ...


class Runner(Protocol):
    """Where the programs of a proof run: in tasks of a cluster, or in jobs of a queue."""

    def register_definitions(self, take_step: TakeStep, on_step: Callable[[str], object]) -> None:
        """Register the definitions, with all that they need. Raises TaskProfilerError."""

    def start_program(self, task: ProofTask) -> None:
        """Start a program; why it was refused is the task's ``failure``."""

    def undo_starts(self, tasks: Sequence[ProofTask]) -> UndoStep:
        """How all that was started is stopped, also that of which no answer arrived."""

    def add_answers_of_aws(self, tasks: Sequence[ProofTask]) -> None:
        """Add AWS's own word to the tasks. Raises TaskProfilerError."""

    def definition_findings(self, paths: ReportPathReader) -> Sequence[Finding]:
        """What doctor finds about the definitions."""


class ProofRun(Struct, kw_only=True):
    """One proof. ``check_stop`` raises an exception if somebody asked to stop; ``on_wait`` gets the
    share of the time that has passed.
    """

    plan: ProofPlan
    runner: Runner
    open_client: OpenClient
    clock: Clock
    reader: EvidenceReader
    on_step: Callable[[str], object]
    check_stop: Callable[[], object] = lambda: None
    on_wait: Callable[[float], object] = lambda _share: None
    wait_seconds: float = WAIT_SECONDS
    keeps_group: bool = False
    tasks: list[ProofTask] = field(default_factory=list)
    queues_before: Mapping[str, int] = field(default_factory=dict)
    _undo: list[UndoStep] = field(default_factory=list)

    def run_to_end(self) -> None:
        """Make everything, and wait. Raises TaskProfilerError, or what ``check_stop`` raises."""
        plan = self.plan
        logs = aws_command_line("logs", "delete-log-group", "--log-group-name", plan.log_group_name)
        if log_group_class(self.open_client, plan.log_group_name) is not None:
            raise TaskProfilerError(
                f"The log group {plan.log_group_name} exists: run the command again."
            )
        self._take_step(
            self._create_group, None if self.keeps_group else UndoStep(self._delete_group, logs)
        )
        self.on_step(f"created the log group {plan.log_group_name}")
        if plan.delivery is not None:
            self._take_step(self._subscribe, UndoStep(self._unsubscribe, logs))
            self.on_step("subscribed it")
        self.runner.register_definitions(self._take_step, self.on_step)
        self.queues_before = self.reader.message_counts()
        self._take_step(lambda: None, self.runner.undo_starts(self.tasks))
        for scenario in plan.scenarios:
            self._take_step(partial(self._start_program, scenario))
        self.on_step(f"started {len(plan.scenarios)} programs")
        self._wait_for_evidence()

    def _take_step(self, call: Callable[[], object], undo: UndoStep | None = None) -> None:
        """Take a step, unless somebody asked to stop."""
        self.check_stop()
        if undo is not None:
            self._undo.append(undo)
        call()

    def _create_group(self) -> None:
        create_log_group(self.open_client, self.plan.log_group_name)

    def _delete_group(self) -> None:
        logs = self.open_client("logs")
        with aws_errors(f"The log group {self.plan.log_group_name} stays", "logs:DeleteLogGroup"):
            try:
                logs.delete_log_group(logGroupName=self.plan.log_group_name)
            except logs.exceptions.ResourceNotFoundException:
                return

    @property
    def _group_filters(self) -> GroupFilters:
        return GroupFilters(self.plan.stack.name, self.open_client, self.on_step)

    def _subscribe(self) -> None:
        change = FilterPlan(name=self._group_filters.filter_name, put=(self.plan.log_group_name,))
        for failure in self._group_filters.carry_out(
            change, self.plan.delivery, self.clock, lambda _step: None
        ):
            raise TaskProfilerError(failure)

    def _unsubscribe(self) -> None:
        change = FilterPlan(
            name=self._group_filters.filter_name, delete=(self.plan.log_group_name,)
        )
        for failure in self._group_filters.carry_out(change, None, self.clock, lambda _step: None):
            raise TaskProfilerError(failure)

    def _start_program(self, scenario: str) -> None:
        task = ProofTask(
            scenario=scenario,
            container=self.plan.container,
            stream_prefix=self.plan.stream_prefix,
        )
        self.tasks.append(task)
        self.runner.start_program(task)

    def _wait_for_evidence(self) -> None:
        """Read what arrives until everything has, or the time is over."""
        start_ns = self.clock.monotonic_ns()
        while True:
            self.reader.read_new_evidence(self.tasks)
            passed = (self.clock.monotonic_ns() - start_ns) / NS_PER_SECOND
            if passed >= self.wait_seconds or all(map(self._is_complete, self.tasks)):
                return
            self.on_wait(passed / self.wait_seconds)
            self.check_stop()
            self.clock.sleep(POLL_SECONDS)

    def _is_complete(self, task: ProofTask) -> bool:
        """Whether nothing more is to be expected of a task."""
        if task.failure:
            return True
        if not task.has_stopped:
            return False
        if task.exit_code is None:
            return True
        # A search shows a document only after the index's next refresh, so that the line of
        # task_stopped can be there before the document that its event confirmed.
        is_awaited = self.plan.reads_documents and self.plan.has_stack
        has_document = task.document is not None and task.document.is_confirmed
        if task.run is None or (is_awaited and not has_document):
            return False
        if "TaskStoppedFunctionName" not in self.plan.stack.outputs:
            return True
        ended = task.ended
        is_notified = not self.plan.notifies_of(task.scenario) or bool(ended.get("notified"))
        return bool(ended) and is_notified and (bool(ended["indexed"]) or not self.plan.indexes)

    def compare_and_list_rows(self) -> Sequence[ProofRow]:
        """Compare what arrived. Where a row differs, ask doctor for the remedies."""
        compared = [*task_rows(self.plan, self.tasks, self.reader.problems, self.wait_seconds)]
        paths = ReportPathReader(self.open_client)
        compared.append(subscription_row(self.plan, paths.log_group(self.plan.log_group_name)))
        after, with_own = self.reader.grown_queues(self.queues_before, self.tasks)
        compared += queue_rows(self.queues_before, after, with_own)
        if not self.plan.has_stack:
            compared.append(
                ProofRow(
                    task="all",
                    check=QUEUES,
                    state="not checked",
                    seen=self.plan.why_no_stack_checks,
                )
            )
        if QUEUES in self.reader.problems:
            row = ProofRow(task="all", check=QUEUES, state="not checked")
            compared.append(unreadable_row(row, self.reader.problems[QUEUES]))
        if any(row.state == "differs" for row in compared):
            findings = [*self.runner.definition_findings(paths)]
            if self.plan.has_stack:
                name = self.plan.stack.name
                findings += deployment_findings(name, self.open_client, self.clock)
            return [*with_remedies(compared, findings, self.plan.kind)]
        return compared

    def clean_up(self) -> Sequence[str]:
        """Remove everything, the newest first; what fails is tried a second time.

        Returns a sentence about each thing that stays.
        """
        left: list[tuple[UndoStep, str]] = []
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
