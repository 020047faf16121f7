"""Why a job of AWS Batch does not start, and what its queue lacks.

What Batch or EC2 may not be asked is a note; the rest is looked at all the same.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.doctor.batch_reads import MAX_LISTED, BatchAccountReader
from profiler.aws_account.doctor.findings import Finding, note, ok, problem
from profiler.aws_account.job_queues import missing_queue_error
from profiler.core.commands_to_copy import aws_command_line, command_line
from profiler.core.ecs_terms import EC2, FARGATE, MANAGED_INSTANCES, family_of, revision_text
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import count_or_none
from profiler.core.optional_math import (
    all_known,
    difference,
    first_known,
    known,
    known_values,
    median,
)
from profiler.core.text import on_one_line
from profiler.core.timestamps import NS_PER_MS
from profiler.record.batch_job import resource_name
from profiler.record.batch_job_detail import (
    ENDED,
    FAILED,
    RUNNABLE,
    RUNNING,
    STARTING,
    SUCCEEDED,
    JobDetail,
    children_text,
)
from profiler.record.job_outcome import (
    facts_sentence,
    job_fact_texts,
    job_name,
    job_title,
    remedy_for_job,
)
from profiler.record.units import format_count, format_duration, format_memory, format_vcpu
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.instance_memory import registered_mb

_JOB = "job"
_DEFINITION = "definition"
_INACTIVE = "INACTIVE"
_QUEUE = "queue"
_ENVIRONMENT = "environment"
_SIZE = "size"
_CAPACITY = "capacity"
_PLACE = "place"
_UNKNOWN = "unknown"
_MAX_ENDED = 100
# By the type of an environment.
_PLATFORM_OF = {
    "FARGATE": FARGATE,
    "FARGATE_SPOT": FARGATE,
    "EC2": EC2,
    "SPOT": EC2,
    "ECS_MANAGED_INSTANCES": MANAGED_INSTANCES,
}


def findings_of_job(open_client: OpenClient, job_id: str, now_ns: int) -> Iterator[Finding]:
    """Where a job stands, and why it does not go on. Raises TaskProfilerError for no such job."""
    reads = BatchAccountReader(open_client)
    jobs = reads.read_jobs([job_id])
    if not jobs:
        reason = next(iter(reads.problems), None) or (
            f"AWS Batch knows no job {job_id}: it forgets jobs seven days after their end. Check "
            "the id and the Region."
        )
        raise TaskProfilerError(reason)
    (job,) = jobs
    yield from _state_findings(job, reads, now_ns)
    yield from _definition_findings(job, reads)
    if job.status not in ENDED and job.status not in (STARTING, RUNNING):
        yield from _wait_findings(job, reads)
        queues = reads.read_described("describe_job_queues", [job.queue_arn or ""])
        yield from _queue_findings(queues, job.queue_arn or "", reads, job)
        child = reads.read_waiting_child(job) if job.is_array_parent else None
        if child is not None:
            yield from _reason_findings(child)
        yield from _place_findings(child or job, reads)
    yield from _unread_findings(reads)


def findings_of_queue(open_client: OpenClient, queue: str, now_ns: int) -> Iterator[Finding]:
    """What keeps the jobs of a queue from starting, by the one that waits longest. Raises
    TaskProfilerError for no such queue.
    """
    reads = BatchAccountReader(open_client)
    queues = reads.read_described("describe_job_queues", [queue])
    if not queues:
        if reads.problems:
            raise TaskProfilerError(reads.problems[0])
        raise missing_queue_error(open_client, queue)
    waiting = reads.read_job_summaries(queue, RUNNABLE, MAX_LISTED)
    oldest = sorted(waiting, key=_submission_ms)[:1]
    first = reads.read_jobs([oldest[0]["jobId"]]) if oldest else []
    arrays = reads.read_unended_arrays(queue)
    if not first:
        first = list(islice(known_values(map(reads.read_waiting_child, arrays)), 1))
    counts = [
        f"{_job_count_text(reads.read_job_summaries(queue, status, MAX_LISTED))} {status}"
        for status in (STARTING, RUNNING)
    ]
    waits = f"{_job_count_text(waiting)} RUNNABLE"
    yield ok(_QUEUE, f"The queue {resource_name(queue)} has {waits}, {', '.join(counts)}.")
    for array in arrays:
        yield note(_JOB, _children_sentence(array), f"See it: {command_line('doctor', array.id)}.")
    yield from _queue_findings(queues, queue, reads, first[0] if first else None)
    for job in first:
        yield from _waiting_findings(job, reads, now_ns)
    yield from _unread_findings(reads)


def _submission_ms(summary: Mapping[str, Any]) -> float:
    """When a job of ListJobs was submitted; infinite if this is unknown."""
    return first_known(count_or_none(summary.get("createdAt")), math.inf)


def _job_count_text(jobs: Sequence[object]) -> str:
    """The number of jobs, ``1,000+`` of those of which only the first were listed."""
    if len(jobs) < MAX_LISTED:
        return format_count(len(jobs), "job")
    return f"{len(jobs):,}+ jobs"


def _unread_findings(reads: BatchAccountReader) -> Iterator[Finding]:
    for sentence in dict.fromkeys(reads.problems):
        yield note(_UNKNOWN, sentence)


def _where_to_look_text(job: JobDetail) -> str:
    """The commands that show the newest attempt, and its log: jobs without a monitor have no
    report.
    """
    command = command_line("show", job.id, log_group=job.log_group, region=job.region)
    stream = job.attempts[-1].failed_log_stream if job.attempts else None
    if stream is None:
        return f"Look: {command}."
    tail = ("logs", "tail", job.log_group, "--log-stream-names", stream, "--since", "7d")
    return f"Look: {command}. Its log: {aws_command_line(*tail, region=job.region)}."


def _state_findings(job: JobDetail, reads: BatchAccountReader, now_ns: int) -> Iterator[Finding]:
    """The job's status, since when, and AWS's reason."""
    name = job_name(job)
    if job.status == SUCCEEDED:
        yield ok(_JOB, f"{job_title(job)}.")
    elif job.status in ENDED:
        advice = remedy_for_job(job) if job.has_no_attempt else _where_to_look_text(job)
        facts = facts_sentence(job_fact_texts(job, None))
        yield problem(_JOB, f"{job_title(job)}. {facts}".rstrip(), advice)
    elif job.status in (STARTING, RUNNING):
        yield ok(_JOB, f"{name} is {job.status}.")
    else:
        yield from _waiting_findings(job, reads, now_ns)


def _waiting_findings(job: JobDetail, reads: BatchAccountReader, now_ns: int) -> Iterator[Finding]:
    """Since when a job waits, AWS's reason, and how long others waited in its queue."""
    since = ""
    if job.created_ms is not None:
        waited_ms = max(now_ns / NS_PER_MS - job.created_ms, 0)
        since = f", {format_duration(waited_ms)} after its submission"
    yield note(_JOB, f"{job_name(job)} is {job.status}{since}.")
    if job.is_array_parent:
        yield note(_JOB, _children_sentence(job))
    yield from _reason_findings(job)
    usual = _usual_wait_text(job, reads)
    if usual:
        yield note(_JOB, usual)


def _children_sentence(array: JobDetail) -> str:
    """An array is PENDING until the last of its children has ended."""
    counts = children_text(array.array) or "not counted yet"
    return f"The children of the array {job_name(array)}: {counts}."


def _definition_findings(job: JobDetail, reads: BatchAccountReader) -> Iterator[Finding]:
    """Whether the next submission can name the job's definition: Terraform, CDK and CloudFormation
    deregister the old revision when they register a new one.
    """
    if not job.definition_arn:
        return
    named = reads.read_definitions(jobDefinitions=[job.definition_arn])
    statuses = {definition.get("status") for definition in named}
    if statuses != {_INACTIVE}:
        return
    name = family_of(job.definition_arn)
    revision = revision_text(job.definition_arn)
    active = reads.read_definitions(jobDefinitionName=name, status="ACTIVE")
    text = f"Its definition {name}:{revision} is deregistered: Batch refuses jobs of this revision."
    if not active:
        yield problem(_DEFINITION, text, f"No revision of {name} is active: register it again.")
        return
    newest = max(definition["revision"] for definition in active)
    advice = f"Submit {name} without a revision, or {name}:{newest}."
    yield note(_DEFINITION, text, advice)


def _reason_findings(job: JobDetail) -> Iterator[Finding]:
    """AWS's reason for a job that waits."""
    if job.status_reason and not (job.is_terminated or job.is_cancelled):
        yield problem(
            _JOB, f"AWS says of {job_name(job)}: {job.status_reason}", remedy_for_job(job)
        )


def _usual_wait_text(job: JobDetail, reads: BatchAccountReader) -> str | None:
    """How long the queue's last successes waited."""
    waits = []
    for success in reads.read_job_summaries(job.queue_arn or "", SUCCEEDED, _MAX_ENDED):
        wait_ms = difference(success.get("startedAt"), success.get("createdAt"))
        if wait_ms is not None and wait_ms >= 0:
            waits.append(float(wait_ms))
    if not waits:
        return None
    jobs = format_count(len(waits), "job")
    usual = format_duration(median(sorted(waits)))
    return f"The last {jobs} of this queue that succeeded waited {usual} (median)."


def _wait_findings(job: JobDetail, reads: BatchAccountReader) -> Iterator[Finding]:
    """Jobs that it depends on, and consumable resources that are used up."""
    for other in reads.read_jobs(job.depends_on) if job.depends_on else ():
        text = f"It waits for the job {job_name(other)} ({other.id}), which is {other.status}."
        if other.status == FAILED:
            yield problem(_JOB, text)
        elif other.status != SUCCEEDED:
            yield note(_JOB, text, f"See it: {command_line('doctor', other.id)}.")
    for name, quantity in job.consumables.items():
        left = reads.read_available_amount(name)
        if left is not None and left < quantity:
            more = ("--operation", "ADD", "--quantity", str(quantity - left))
            resource = ("update-consumable-resource", "--consumable-resource", name)
            yield problem(
                _CAPACITY,
                f"It needs {quantity} of the consumable resource {name}, and {left} is left.",
                f"Wait, or raise it: {_aws_batch_command(job, *resource, *more)}.",
            )


def _aws_batch_command(job: JobDetail | None, *words: str) -> str:
    return aws_command_line("batch", *words, region=known(attrgetter("region"), job))


def _queue_findings(
    queues: Sequence[Mapping[str, Any]],
    queue: str,
    reads: BatchAccountReader,
    job: JobDetail | None,
) -> Iterator[Finding]:
    """The queue, its environments, and whether they can hold the job."""
    arns: list[str] = []
    for described in queues:
        name = described["jobQueueName"]
        state = described["state"]
        if state != "ENABLED":
            command = _aws_batch_command(
                job, "update-job-queue", "--job-queue", name, "--state", "ENABLED"
            )
            yield problem(_QUEUE, f"The queue {name} is {state}.", f"Enable it: {command}.")
        if described.get("status") not in (None, "VALID"):
            reason = _text_on_one_line(described.get("statusReason"))
            yield problem(_QUEUE, f"The queue {name} is {described['status']}: {reason}")
        order = sorted(described["computeEnvironmentOrder"], key=lambda place: place["order"])
        arns += [place["computeEnvironment"] for place in order]
    if not arns:
        return
    environments = reads.read_described("describe_compute_environments", arns)
    for environment in environments:
        yield from _environment_findings(environment, job)
    usable = list(filter(_is_usable, environments))
    if job is None or not usable:
        return
    yield from _size_findings(job, usable, reads)
    yield from _capacity_findings(job, usable, queue, reads)


def _is_usable(environment: Mapping[str, Any]) -> bool:
    is_valid = environment.get("status") in (None, "VALID")
    return is_valid and environment.get("state") in (None, "ENABLED")


def _text_on_one_line(text: object) -> str:
    return on_one_line(str(text or "AWS gives no reason"))


def _environment_findings(
    environment: Mapping[str, Any], job: JobDetail | None
) -> Iterator[Finding]:
    name = environment["computeEnvironmentName"]
    update = ("update-compute-environment", "--compute-environment", name)
    if environment.get("state") == "DISABLED":
        command = _aws_batch_command(job, *update, "--state", "ENABLED")
        yield problem(
            _ENVIRONMENT, f"The environment {name} is DISABLED.", f"Enable it: {command}."
        )
    if environment.get("status") not in (None, "VALID"):
        reason = _text_on_one_line(environment.get("statusReason"))
        yield problem(
            _ENVIRONMENT,
            f"The environment {name} is {environment['status']}: {reason}",
            "Mend what the reason names (often the service role, the subnets or the launch "
            "template), then disable and enable it.",
        )


def _size_findings(
    job: JobDetail, environments: Sequence[Mapping[str, Any]], reads: BatchAccountReader
) -> Iterator[Finding]:
    """Whether an environment of the queue can hold the job at all."""
    amounts = all_known(job.vcpu, job.memory_mb)
    if amounts is None:
        return
    vcpu, memory_mb = amounts
    asked = f"{format_vcpu(vcpu)} and {format_memory(memory_mb)}"
    resources = [environment.get("computeResources", {}) for environment in environments]
    platforms = {_PLATFORM_OF.get(str(resource.get("type"))) for resource in resources}
    wanted = set(job.platforms)
    if None not in platforms and len(wanted) == 1 and platforms.isdisjoint(wanted):
        yield problem(
            _SIZE,
            f"It is for {job.platforms[0]}, and its queue's environments are for "
            f"{' and '.join(sorted(known_values(platforms)))}.",
            "Submit it to another queue, or change platformCapabilities in its job definition.",
        )
        return
    if platforms == {FARGATE}:
        yield from _fargate_findings(job, Size(vcpu, memory_mb), asked)
        return
    types = [resource.get("instanceTypes", ()) for resource in resources]
    names = sorted(set(chain.from_iterable(types)))
    if not names or any(name == "optimal" or name.startswith("default") for name in names):
        return
    yield from _instance_findings(job, reads.read_instance_types(names), asked)


def _fargate_findings(job: JobDetail, size: Size, asked: str) -> Iterator[Finding]:
    """Whether Fargate has the size, and no GPU is asked for."""
    if size not in LEGAL_SIZES:
        yield problem(
            _SIZE,
            f"It asks for {asked}, which is no size of Fargate.",
            "Ask for one of Fargate's sizes in the job definition or the submission.",
        )
    gpus = _gpu_count(job)
    if gpus:
        yield problem(_SIZE, f"It asks for {format_count(gpus, 'GPU')}, and Fargate has none.")


def _gpu_count(job: JobDetail) -> int:
    """What all containers ask for."""
    return sum(known_values(container.gpus for container in job.containers))


def _instance_findings(
    job: JobDetail, types: Sequence[Mapping[str, Any]], asked: str
) -> Iterator[Finding]:
    """Whether the largest allowed instance registers what the job asks for."""
    if not types:
        return
    gpus = _gpu_count(job)
    if any(_has_room(instance_type, job, gpus) for instance_type in types):
        return
    largest = max(types, key=lambda instance_type: instance_type["MemoryInfo"]["SizeInMiB"])
    memory_mb = registered_mb(largest["MemoryInfo"]["SizeInMiB"])
    needs = f"{asked} and {format_count(gpus, 'GPU')}" if gpus else asked
    yield problem(
        _SIZE,
        f"It asks for {needs}, which no allowed instance registers: the largest, "
        f"{largest['InstanceType']}, has {format_vcpu(largest['VCpuInfo']['DefaultVCpus'])} and "
        f"about {format_memory(memory_mb)} for jobs.",
        "Ask for less, or allow larger instance types (aws batch update-compute-environment).",
    )


def _has_room(instance_type: Mapping[str, Any], job: JobDetail, gpus: int) -> bool:
    """Whether an instance of the type registers what the job, with so many GPUs, asks for."""
    vcpu = instance_type["VCpuInfo"]["DefaultVCpus"]
    memory_mb = registered_mb(instance_type["MemoryInfo"]["SizeInMiB"])
    its_gpus = sum(gpu["Count"] for gpu in instance_type.get("GpuInfo", {}).get("Gpus", ()))
    has_cpus_and_memory = vcpu >= (job.vcpu or 0) and memory_mb >= (job.memory_mb or 0)
    return has_cpus_and_memory and its_gpus >= gpus


def _capacity_findings(
    job: JobDetail, environments: Sequence[Mapping[str, Any]], queue: str, reads: BatchAccountReader
) -> Iterator[Finding]:
    """Whether maxvCpus of the environments are used up, and by what."""
    most = [environment.get("computeResources", {}).get("maxvCpus") for environment in environments]
    limits = known_values(most)
    if len(limits) != len(most) or job.vcpu is None:
        return
    names = [environment["computeEnvironmentName"] for environment in environments]
    update = ("update-compute-environment", "--compute-environment", names[0])
    advice = f"Raise it: {_aws_batch_command(job, *update)} --compute-resources maxvCpus=N."
    shown = ", ".join(names)
    if job.vcpu > max(limits):
        text = f"It asks for {format_vcpu(job.vcpu)}, and maxvCpus of {shown} is {max(limits)}."
        yield problem(_CAPACITY, text, advice)
        return
    running: list[Mapping[str, Any]] = []
    is_part = False
    for status in (STARTING, RUNNING):
        summaries = reads.read_job_summaries(queue, status, MAX_LISTED)
        is_part |= len(summaries) >= MAX_LISTED
        running += summaries
    jobs = reads.read_jobs([summary["jobId"] for summary in running])
    used = sum(known_values(running_job.vcpu for running_job in jobs))
    number = len(jobs)
    for array in reads.read_unended_arrays(queue):
        children = array.array.children
        active = children.get(STARTING, 0) + children.get(RUNNING, 0)
        number += active
        used += active * (array.vcpu or 0)
    if used + job.vcpu > sum(limits):
        yield problem(
            _CAPACITY,
            f"{format_count(number, 'job')} of this queue{', which are not all,' * is_part} use "
            f"{format_vcpu(used)} of the {sum(limits)} that maxvCpus of {shown} allows.",
            f"Wait for them. {advice}",
        )


def _place_findings(job: JobDetail, reads: BatchAccountReader) -> Iterator[Finding]:
    if job.status != RUNNABLE:
        return
    front = reads.read_first_runnable_arns(job.queue_arn or "")
    if front is None:
        return
    if job.arn in front:
        yield note(_PLACE, f"It is number {front.index(job.arn) + 1} of the queue.")
    elif front:
        yield note(_PLACE, f"It is not among the first {len(front)} of the queue.")
