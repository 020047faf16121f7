"""Runs the programs of a proof as jobs of a queue of AWS Batch."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.doctor.findings import Finding, problem
from profiler.aws_account.proof.arrivals import ProofTask
from profiler.aws_account.proof.job_plan import (
    JobsPlan,
    log_group_of_definition,
    own_name_definitions,
)
from profiler.aws_account.proof.proof_steps import POLL_SECONDS, TakeStep, UndoStep
from profiler.aws_account.proof.task_run import describe_tasks
from profiler.aws_account.registered_definitions import read_items
from profiler.aws_account.report_prerequisites import ReportPathReader
from profiler.core.aws_clients import AwsClient
from profiler.core.aws_lost_answers import has_surely_changed_nothing
from profiler.core.clock import Clock
from profiler.core.commands_to_copy import aws_command_line
from profiler.core.ecs_terms import cluster_of_arn
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.optional_math import known_members, known_values
from profiler.core.text import on_one_line
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.batch_job_detail import ENDED
from profiler.record.family_identity import PROOF_FAMILY

_STOP_SECONDS = 180.0
_REASON = "task-profiler setup proof"


class JobRunner(Struct, kw_only=True):
    """The jobs of one proof."""

    plan: JobsPlan
    open_client: OpenClient
    clock: Clock
    _definitions: dict[str, str] = field(default_factory=dict)  # ARNs by the program's name
    _stop_ns: int | None = None

    def register_definitions(self, take_step: TakeStep, on_step: Callable[[str], object]) -> None:
        """Register a revision for each program."""
        name = ("--job-definition-name", PROOF_FAMILY)
        command = aws_command_line("batch", "describe-job-definitions", *name, "--status", "ACTIVE")
        take_step(lambda: None, UndoStep(self._deregister_revisions, command))
        for scenario in self.plan.scenarios:
            take_step(partial(self._register_revision, scenario))
        on_step(f"registered {PROOF_FAMILY}")

    def _register_revision(self, scenario: str) -> None:
        with aws_errors("The job definition was not registered", "batch:RegisterJobDefinition"):
            answer = self.open_client("batch").register_job_definition(
                **self.plan.definitions[scenario]
            )
        self._definitions[scenario] = answer["jobDefinitionArn"]

    def _deregister_revisions(self) -> None:
        """Deregister the revisions that log into the proof's group, also those of which no answer
        arrived.
        """
        client = self.open_client("batch")
        own = [
            definition["jobDefinitionArn"]
            for definition in own_name_definitions(client)
            if log_group_of_definition(definition) == self.plan.log_group_name
        ]
        with aws_errors(f"Revisions of {PROOF_FAMILY} stay", "batch:DeregisterJobDefinition"):
            for arn in own:
                client.deregister_job_definition(jobDefinition=arn)

    def start_program(self, task: ProofTask) -> None:
        """Submit a job."""
        share = known_members({"shareIdentifier": self.plan.share})
        try:
            with aws_errors("Batch took no job", "batch:SubmitJob and iam:PassRole"):
                answer = self.open_client("batch").submit_job(
                    jobName=f"{self.plan.resource_name}-{task.scenario}",
                    jobQueue=self.plan.queue_arn,
                    jobDefinition=self._definitions[task.scenario],
                    **share,
                )
        except TaskProfilerError as error:
            task.failure = str(error)
            if not has_surely_changed_nothing(error.__cause__):
                task.failure += (
                    f" It may have taken one, whose name begins with {self.plan.resource_name}."
                )
            return
        task.job_id = answer["jobId"]
        task.queue = self.plan.queue

    def undo_starts(self, tasks: Sequence[ProofTask]) -> UndoStep:
        """How all jobs of the proof are ended, also those of which no answer arrived."""
        words = ("--job-queue", self.plan.queue, "--filters")
        names = f"name=JOB_NAME,values={self.plan.resource_name}*"
        command = aws_command_line("batch", "list-jobs", *words, names)
        return UndoStep(partial(self._terminate_jobs, tasks), command)

    def _terminate_jobs(self, tasks: Sequence[ProofTask]) -> None:
        """Terminate what has not ended, and wait for it."""
        client = self.open_client("batch")
        known = {*known_values(task.job_id for task in tasks)}
        with aws_errors("The proof's jobs were not ended", "batch:ListJobs and batch:TerminateJob"):
            listed = read_items(
                client,
                "list_jobs",
                "jobSummaryList",
                jobQueue=self.plan.queue_arn,
                filters=[{"name": "JOB_NAME", "values": [f"{self.plan.resource_name}*"]}],
            )
            known |= {str(job["jobId"]) for job in listed}
            waiting = self._running_job_ids(client, sorted(known))
            for job_id in waiting:
                client.terminate_job(jobId=job_id, reason=_REASON)
        if self._stop_ns is None:
            self._stop_ns = self.clock.monotonic_ns() + round(_STOP_SECONDS * NS_PER_SECOND)
        with aws_errors("Whether the proof's jobs ended is unknown", "batch:DescribeJobs"):
            while waiting := self._running_job_ids(client, waiting):
                if self.clock.monotonic_ns() >= self._stop_ns:
                    raise TaskProfilerError("The proof's jobs did not end within 3 minutes.")
                self.clock.sleep(POLL_SECONDS)

    @staticmethod
    def _running_job_ids(client: AwsClient, ids: Sequence[str]) -> list[str]:
        """The jobs that have not ended, as far as is known: one that is left out of an answer may
        run.
        """
        if not ids:
            return []
        jobs = client.describe_jobs(jobs=list(ids))["jobs"]
        ended = {job["jobId"] for job in jobs if job["status"] in ENDED}
        return [job_id for job_id in ids if job_id not in ended]

    def add_answers_of_aws(self, tasks: Sequence[ProofTask]) -> None:
        """Add Batch's word on the jobs, and ECS's on their tasks."""
        started = {
            task.job_id: task
            for task in tasks
            if task.job_id is not None and not (task.has_stopped or task.failure)
        }
        if not started:
            return
        with aws_errors("The proof's jobs cannot be read", "batch:DescribeJobs"):
            jobs = self.open_client("batch").describe_jobs(jobs=list(started))["jobs"]
        for job in jobs:
            _add_job_facts(started[job["jobId"]], job)
        clusters: dict[str, list[ProofTask]] = {}
        for task in started.values():
            cluster = cluster_of_arn(task.arn or "")
            if cluster is not None:
                clusters.setdefault(cluster, []).append(task)
        for cluster, of_cluster in clusters.items():
            describe_tasks(self.open_client, cluster, of_cluster)

    def definition_findings(self, _paths: ReportPathReader) -> Sequence[Finding]:
        """What the plan found wrong with the role."""
        return [problem("execution role", sentence) for sentence in self.plan.problems]


def _add_job_facts(task: ProofTask, job: Mapping[str, Any]) -> None:
    """What Batch says of a job: its task and its log stream, or why it has none."""
    attempts = [*mappings_in_list(job.get("attempts"))]
    container = dict(mapping_or_empty(job.get("container")))
    if attempts:
        container |= mapping_or_empty(attempts[-1].get("container"))
    task.state = job["status"]
    task.arn = text_or_none(container.get("taskArn")) or task.arn
    task.log_stream = text_or_none(container.get("logStreamName")) or task.log_stream
    if not task.has_started and job["status"] in ENDED:
        task.failure = on_one_line(job.get("statusReason") or "Batch gave no reason")
