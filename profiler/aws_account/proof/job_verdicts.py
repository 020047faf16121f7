"""What is assumed of a job of AWS Batch alone: its names, and what the wrapper measures."""

from profiler.aws_account.proof.arrivals import ProofTask
from profiler.aws_account.proof.check_results import (
    NO,
    NO_WITNESS,
    CheckResult,
    reported_record_of,
    unknown_result,
)
from profiler.aws_account.proof.plan import ProofPlan
from profiler.core.ecs_terms import family_of
from profiler.core.optional_math import first_known, known_values
from profiler.core.text import words_if_known
from profiler.record.batch_job import NO_JOB
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.units import MIB

_TOLERANCE = 0.02
_CLUSTER = "AWSBatch-… or …_Batch_…"


def check_stream_of_job(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    """The log stream that Batch names, beside the one by this project's rule."""
    expected = f"{task.stream_prefix}/{task.container}/TASK"
    if not task.log_stream:
        return unknown_result("Batch names no stream")
    return CheckResult(
        task.log_stream == task.expected_stream,
        expected,
        task.log_stream.replace(task.id, "TASK"),
    )


def check_cluster_of_job(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    """Whether the task's cluster is known as Batch's by its name, which is the account's own."""
    if not task.has_stopped:
        return unknown_result("the task has not stopped")
    is_known = task.end.is_of_aws_batch
    return CheckResult(is_known, _CLUSTER, _CLUSTER if is_known else "another name")


def check_family_of_job(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    """Whether ECS's family is the name of the job definition."""
    if not task.has_stopped:
        return unknown_result("the task has not stopped")
    family = family_of(task.end.definition_arn or "")
    return CheckResult(family == PROOF_FAMILY, PROOF_FAMILY, family or "none")


def check_report_names_job(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    """Whether the report names the job, by the variables that Batch sets."""
    job = reported_record_of(task).batch
    expected = "the job, its queue, attempt 1"
    if job == NO_JOB:
        return CheckResult(NO, expected, "no job")
    seen = [
        "the job" if job.job_id == task.job_id else "another job",
        "its queue" if job.queue == task.queue else "another queue",
        f"attempt {job.attempt}",
    ]
    return CheckResult(", ".join(seen) == expected, expected, ", ".join(seen))


def check_memory_of_command(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    """The wrapper measures its command: what that held at least, and less than the container has,
    in which the wrapper is, too.
    """
    needed = known_values(line.needed_bytes for line in task.witness)
    held_bytes = max((line.held_bytes for line in task.witness), default=0)
    if not held_bytes or not needed:
        return NO_WITNESS
    seen_mb = reported_record_of(task).metrics.max_memory_used_mb
    least_mb = (1 - _TOLERANCE) * held_bytes / MIB
    most_mb = (1 + _TOLERANCE) * max(needed) / MIB
    return CheckResult(
        least_mb <= first_known(seen_mb, 0) <= most_mb,
        f"{least_mb:.2f} to {most_mb:.2f} MB",
        words_if_known("{:.2f} MB", seen_mb) or "absent",
    )
