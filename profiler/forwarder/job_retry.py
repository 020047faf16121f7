"""Submits a job of AWS Batch again, once and with more memory, after its last attempt ran out of
memory; and says so.

Of Batch's event, only the job's id is believed: DescribeJobs says what the job is, how it ended,
and what it was submitted with. That has secrets in it: it goes from this answer into SubmitJob's
request, and nowhere else. Of a refused request, AWS's code alone is said, since its message may
quote what was sent.

Never twice, although SubmitJob has no token: the key of the call is written before it, and only a
certain refusal takes it back.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from profiler.aws_account.scheduled_targets import ScheduledTarget, why_target_is_off
from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import ACCESS_DENIED, error_code, may_succeed_later
from profiler.core.aws_lost_answers import has_surely_changed_nothing
from profiler.core.ecs_terms import EC2, FARGATE, RETRY_OF, SHORT_ID_LENGTH
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.optional_math import all_known, known, known_members, without_float_error
from profiler.core.timestamps import NS_PER_SECOND, datetime_of_ms
from profiler.forwarder.ended_run import MemoryRetry
from profiler.forwarder.invocation import DeliveryError, InProgressError
from profiler.forwarder.job_room import JobRoomChecker
from profiler.forwarder.memory_retry_rules import (
    EC2_STEP_MB,
    RetryRefusedError,
    call_aws_for_retry,
    end_of_retry_sentence,
    grown_mb,
    growth_text,
    is_family_selected,
    is_memory_failure,
    refuse_disallowed_memory,
    refuse_old_end,
    retry_later_error,
    shortened_reason,
    smallest_fargate_size,
)
from profiler.record.batch_job import resource_name
from profiler.record.batch_job_detail import (
    FAILED,
    NO_ARRAY,
    NO_NODES,
    SUCCEEDED,
    JobDetail,
    parse_job,
)
from profiler.record.family_statistics import NeedAtSize
from profiler.record.job_outcome import judge_attempt
from profiler.sizing.fargate_sizes import Size
from profiler.sizing.job_grouping import engine_of_definition
from profiler.task_definitions.job_as_task_definition import job_containers, with_amounts

_PLATFORMS = frozenset({FARGATE, EC2})
_MAX_TAGS = 50
_SIZES = ("resourceRequirements", "vcpus", "memory")
_PLACEHOLDER = "Ref::"
_STEP_FUNCTIONS = "MANAGED_BY_AWS"  # in the environment of its jobs
# Answered by DescribeJobs as SubmitJob takes it.
_PASSED_ON = ("jobName", "jobQueue", "jobDefinition", "shareIdentifier", "parameters", "timeout")
_UNKNOWN = (
    "It is not known whether it was started again, because AWS Batch did not answer: look for a "
    f"job with the tag {RETRY_OF}."
)


class LargerContainerSize(Struct, frozen=True, kw_only=True):
    """The size of the retry: that of the container which was killed, by its place, and of the
    whole job before and after.
    """

    place: int
    container: Size
    old: Size
    new: Size


def should_retry(job: JobDetail, families: tuple[str, ...]) -> bool:
    """Whether the selected job failed because its last attempt was killed for memory, by AWS's
    word.

    Of the child of an array, its array's message tells.
    """
    if job.status != FAILED or job.is_terminated or job.is_cancelled or not job.attempts:
        return False
    if job.array is not NO_ARRAY or job.is_child:
        return False
    outcome, _ = judge_attempt(job, job.attempts[-1])
    is_proven = is_memory_failure(outcome) and outcome.memory_evidence == "ecs"
    return is_proven and is_family_selected(
        job.batch_job_of_attempt().job_definition or "", families
    )


def choose_larger_size(job: JobDetail, max_memory_mb: float) -> LargerContainerSize:
    """Choose the size: half more memory than the killed container had, in a legal size on Fargate.

    What the job asked for counts, which is often more than its definition says. Raises
    RetryRefusedError.
    """
    place = _killed_container_index(job)
    killed = job.containers[place]
    if not (job.vcpu and job.memory_mb and killed.vcpu and killed.memory_mb):
        raise RetryRefusedError("its size is unknown")
    old = Size(job.vcpu, job.memory_mb)
    wanted_mb = math.ceil(grown_mb(killed.memory_mb, killed.memory_mb, NeedAtSize()))
    if FARGATE in job.platforms:
        new = smallest_fargate_size(old.vcpu, old.memory_mb - killed.memory_mb + wanted_mb)
    else:
        wanted_mb = math.ceil(wanted_mb / EC2_STEP_MB) * EC2_STEP_MB
        new = Size(old.vcpu, old.memory_mb - killed.memory_mb + wanted_mb)
    refuse_disallowed_memory(new.memory_mb, max_memory_mb)
    container = Size(
        without_float_error(killed.vcpu + new.vcpu - old.vcpu),
        killed.memory_mb + new.memory_mb - old.memory_mb,
    )
    return LargerContainerSize(place=place, container=container, old=old, new=new)


def _killed_container_index(job: JobDetail) -> int:
    """The place of the container that was killed."""
    if len(job.containers) == 1:
        return 0
    _, name = judge_attempt(job, job.attempts[-1])
    names = [container.name for container in job.containers]
    if None in names or names.count(name) != 1:
        raise RetryRefusedError("which of its containers was killed is not known")
    return names.index(name)


def _refuse_unsupported_kind(job: JobDetail) -> None:
    if job.retry_of:
        raise RetryRefusedError("it was a retry")
    if job.depends_on:
        raise RetryRefusedError("it depends on other jobs")
    if job.nodes is not NO_NODES:
        raise RetryRefusedError("it has several nodes")
    if job.is_on_eks or not _PLATFORMS.issuperset(job.platforms):
        raise RetryRefusedError("it ran neither on Fargate nor on EC2")


def _refuse_submitter_that_retries(job: Mapping[str, Any], detail: JobDetail) -> None:
    """Refuse the jobs of those who decide themselves what is repeated."""
    for container in _containers_of_job(job):
        names = [one.get("name") for one in mappings_in_list(container.get("environment"))]
        if _STEP_FUNCTIONS in names:
            raise RetryRefusedError("AWS Step Functions submitted it, and repeats its jobs itself")
    engine = engine_of_definition(detail.batch_job_of_attempt().job_definition or "")
    if engine:
        raise RetryRefusedError(f"{engine.capitalize()} submitted it, and repeats its jobs itself")


def _refuse_disabled_schedules(
    schedules: "JobScheduleReader", job: JobDetail, now: datetime
) -> None:
    """Refuse the job of schedules and rules that somebody switched off, or that have ended. Who
    submitted a job is not known: other jobs of its name and definition count as theirs, too.
    """
    identity = job.batch_job_of_attempt()
    known_names = all_known(identity.job_name, identity.job_definition, job.queue_arn)
    if known_names is None:
        return
    name, definition, queue_arn = known_names
    targets = call_aws_for_retry(
        "its schedule could not be read",
        lambda: schedules.targets_of_job(name, definition, queue_arn),
    )
    now_ns = round(now.timestamp()) * NS_PER_SECOND
    reasons = [why_target_is_off(target, now_ns) for target in targets]
    if reasons and None not in reasons:
        raise RetryRefusedError(f"its {targets[0].title} {reasons[0]}")


def submit_job_arguments(
    job: Mapping[str, Any], definition: Mapping[str, Any], larger: LargerContainerSize
) -> dict[str, Any]:
    """The arguments of SubmitJob: the job of DescribeJobs with this size, one attempt, and the
    tag of a retry.

    Raises RetryRefusedError.
    """
    tags = {
        name: value
        for name, value in mapping_or_empty(job.get("tags")).items()
        if not name.startswith("aws:")
    }
    tags[RETRY_OF] = job["jobId"]
    # Batch fails a job that propagates more tags, those of its definition included.
    propagates = job.get("propagateTags", definition.get("propagateTags"))
    inherited = mapping_or_empty(definition.get("tags")) if propagates else {}
    if len({**inherited, **tags}) > _MAX_TAGS:
        raise RetryRefusedError(f"it has {_MAX_TAGS} tags, so that none can be added")
    request = {name: job[name] for name in _PASSED_ON if job.get(name)}
    request |= {"retryStrategy": {"attempts": 1}, "tags": tags}
    request |= known_members({"propagateTags": job.get("propagateTags")})
    if request.get("shareIdentifier"):
        priority = {"schedulingPriorityOverride": job.get("schedulingPriority")}
        request |= known_members(priority)
    consumed = job.get("consumableResourceProperties")
    if consumed and consumed != definition.get("consumableResourceProperties"):
        request["consumableResourcePropertiesOverride"] = consumed
    overrides = list(_container_overrides(job, definition, larger))
    if job.get("ecsProperties"):
        request["ecsPropertiesOverride"] = {"taskProperties": [{"containers": overrides}]}
    else:
        (request["containerOverrides"],) = overrides
    return request


def _container_overrides(
    job: Mapping[str, Any], definition: Mapping[str, Any], larger: LargerContainerSize
) -> Iterator[dict[str, Any]]:
    """What a container's submission changed, with the new size: only what differs from the
    definition, because ECS bounds the length of overrides.
    """
    defined_by_name = {one.get("name"): one for one in job_containers(definition)}
    for place, container in enumerate(_containers_of_job(job)):
        changed: dict[str, Any] = {}
        if container.get("name"):
            changed["name"] = container["name"]
        defined = defined_by_name.get(container.get("name"), {})
        command = _changed_command(container, defined, mapping_or_empty(job.get("parameters")))
        if command:
            changed["command"] = command
        environment = _changed_variables(container, defined)
        if environment:
            changed["environment"] = environment
        yield changed | _size_overrides(
            container, larger.container if place == larger.place else None
        )


def _containers_of_job(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The containers of a job of DescribeJobs."""
    if job.get("ecsProperties"):
        return job_containers({"ecsProperties": job["ecsProperties"]})
    return job_containers({"containerProperties": mapping_or_empty(job.get("container"))})


def _changed_command(
    container: Mapping[str, Any], defined: Mapping[str, Any], parameters: Mapping[str, Any]
) -> list[str] | None:
    """The command if it is not the definition's, with or without the values of its parameters."""
    command = container.get("command")
    own = defined.get("command") or []
    by_placeholder = {f"{_PLACEHOLDER}{name}": value for name, value in parameters.items()}
    filled = [by_placeholder.get(word, word) for word in own]
    if not command or command in (own, filled):
        return None
    if any(_PLACEHOLDER in str(value) for value in parameters.values()):
        raise RetryRefusedError("its parameters name others")
    return list(command)


def _changed_variables(
    container: Mapping[str, Any], defined: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The variables that the definition does not have; Batch's own are not passed on."""
    own = list(mappings_in_list(defined.get("environment")))
    return [
        variable
        for variable in mappings_in_list(container.get("environment"))
        if variable not in own
        and not (text_or_none(variable.get("name")) or "").startswith("AWS_BATCH")
    ]


def _size_overrides(container: Mapping[str, Any], larger: Size | None) -> dict[str, Any]:
    """What the container asks for, in the members that it has: a requirement, or the deprecated
    ones, whose override changes no requirement.
    """
    sized = dict(container)
    if larger is not None:
        sized = with_amounts(container, larger.vcpu, larger.memory_mb)
    return {name: sized[name] for name in _SIZES if container.get(name)}


class JobScheduleReader(Protocol):
    """What submits jobs."""

    def targets_of_job(
        self, job_name: str, definition: str, queue_arn: str
    ) -> Sequence[ScheduledTarget]:
        """The targets that submit jobs of this name and definition: of rules, to this queue."""


class JobAwsClients(Struct, frozen=True):
    """``submit`` sends each request once: botocore's own repetition would be a second job."""

    batch: AwsClient
    submit: AwsClient
    ecs: AwsClient
    schedules: JobScheduleReader


class JobRetrier(Struct, frozen=True):
    """Submits killed jobs again.

    ``remember`` returns the work's result for a key, now or of an earlier invocation. ``begin``
    does as well, but work that was interrupted it never does again: InProgressError. Without it,
    nothing is started.
    """

    families: tuple[str, ...]  # as globs
    max_memory_mb: float
    aws: Callable[[], JobAwsClients]
    remember: Callable[[str, Callable[[], str]], str]
    begin: Callable[[str, Callable[[], str]], str] | None
    now: Callable[[], datetime]
    warn: Callable[[str], None]

    def retry_killed_job(self, job: JobDetail) -> MemoryRetry | None:
        """Submit a job again that was killed for memory; None without a retry.

        Raises ForwarderError.
        """
        if not job.has_ended or job.is_child:
            return None
        if job.retry_of and is_family_selected(
            job.batch_job_of_attempt().job_definition or "", self.families
        ):
            return self._sentence_on_ended_retry(job, job.retry_of)
        if not should_retry(job, self.families):
            return None
        kept = self.remember(
            f"job/{job.id}#retry", lambda: msgspec.json.encode(self._start_retry(job)).decode()
        )
        return msgspec.json.decode(kept, type=MemoryRetry)

    def _start_retry(self, job: JobDetail) -> MemoryRetry:
        try:
            return self._submit_once(job)
        except RetryRefusedError as refusal:
            return self._remembered_refusal(
                job.id, MemoryRetry(sentence=f"Not started again: {refusal}.")
            )

    def _remembered_refusal(self, job_id: str, now: MemoryRetry) -> MemoryRetry:
        """What is said of a job that is not submitted ``now``, and never will be; else what an
        earlier attempt said, or did, that ended before its result was kept.
        """
        if self.begin is None:
            return self._with_warning_if_not_submitted(job_id, now)
        return self._outcome_of_first_attempt(self.begin, job_id, msgspec.json.encode(now).decode)

    def _outcome_of_first_attempt(
        self, begin: Callable[[str, Callable[[], str]], str], job_id: str, work: Callable[[], str]
    ) -> MemoryRetry:
        """What the first attempt has said or done that came so far; this one's if none has. An
        attempt that was interrupted may have submitted the job.
        """
        try:
            kept = begin(_submit_key(job_id), work)
        except InProgressError:
            return self._with_warning_if_not_submitted(job_id, MemoryRetry(sentence=_UNKNOWN))
        return self._with_warning_if_not_submitted(
            job_id, msgspec.json.decode(kept, type=MemoryRetry)
        )

    def _submit_once(self, job_of_event: JobDetail) -> MemoryRetry:
        if self.begin is None:
            raise RetryRefusedError("without IDEMPOTENCY_TABLE, it could be started twice")
        clients = self.aws()
        raw = _describe_job(clients.batch, job_of_event.id)
        job = parse_job(raw)
        is_same = job is not None and job.id == job_of_event.id
        if raw is None or job is None or not is_same or job_of_event.arn not in (None, job.arn):
            raise RetryRefusedError("AWS Batch knows no such job in this account and Region")
        if not job.has_ended:  # an answer can be older than the event
            raise retry_later_error("AWS Batch says that the job", str(job.status))
        if not should_retry(job, self.families):
            raise RetryRefusedError("AWS Batch does not say that it was killed for memory")
        _refuse_unsupported_kind(job)
        _refuse_submitter_that_retries(raw, job)
        _refuse_disabled_schedules(clients.schedules, job, self.now())
        refuse_old_end(datetime_of_ms(job.stopped_ms), self.now())
        definition = _describe_active_definition(clients.batch, job)
        larger = choose_larger_size(job, self.max_memory_mb)
        request = submit_job_arguments(raw, definition, larger)
        room = JobRoomChecker(clients.batch, clients.ecs)
        if FARGATE in job.platforms:
            room.refuse_too_many_vcpus(job, larger.old, larger.new)
        else:
            room.refuse_too_much_instance_memory(job, larger.new.memory_mb)
        change = growth_text(larger.old.memory_mb, larger.new.memory_mb)

        def call() -> str:
            return msgspec.json.encode(_submit_job(clients.submit, request, change)).decode()

        return self._outcome_of_first_attempt(self.begin, job.id, call)

    def _with_warning_if_not_submitted(self, job_id: str, retry: MemoryRetry) -> MemoryRetry:
        """The retry, with a line in the log if no job is known to be submitted."""
        if not retry.retried_as:
            self.warn(f"Job {job_id}: {retry.sentence}")
        return retry

    def _sentence_on_ended_retry(self, job: JobDetail, killed_id: str) -> MemoryRetry:
        """What there is to say about the end of a retry."""
        old_mb = None
        if job.status == SUCCEEDED:
            try:
                killed = parse_job(_describe_job(self.aws().batch, killed_id))
            except (RetryRefusedError, DeliveryError):
                killed = None
            old_mb = known(attrgetter("memory_mb"), killed)
        sentence = end_of_retry_sentence(
            killed_id, succeeded=job.status == SUCCEEDED, old_mb=old_mb, new_mb=job.memory_mb
        )
        return MemoryRetry(sentence=sentence, retry_of=killed_id)


def _submit_key(job_id: str) -> str:
    return f"job/{job_id}#submit"


def _describe_job(batch: AwsClient, job_id: str) -> dict[str, Any] | None:
    """The job as DescribeJobs returns it, with what users put into it."""
    answer = call_aws_for_retry(
        "the job could not be read (batch:DescribeJobs)",
        lambda: batch.describe_jobs(jobs=[job_id]),
    )
    return next(iter(answer["jobs"]), None)


def _describe_active_definition(batch: AwsClient, job: JobDetail) -> Mapping[str, Any]:
    arn = job.definition_arn or ""
    answer = call_aws_for_retry(
        "its job definition could not be read (batch:DescribeJobDefinitions)",
        lambda: batch.describe_job_definitions(jobDefinitions=[arn]),
    )
    definition: dict[str, Any] = next(iter(answer["jobDefinitions"]), {})
    if definition.get("status") != "ACTIVE":
        raise RetryRefusedError(f"its job definition {resource_name(arn)} is deregistered")
    return dict(definition)


def _submit_job(batch: AwsClient, request: Mapping[str, Any], change: str) -> MemoryRetry:
    """Submit the job. Without a job in it, the retry says that nobody knows."""
    try:
        answer = batch.submit_job(**request)
    # What botocore raises for an answer that it cannot read is of no class of its own.
    except Exception as error:  # noqa: BLE001  after any other end, the key would be taken back
        code = error_code(error)
        if not has_surely_changed_nothing(error):
            return MemoryRetry(sentence=_UNKNOWN)
        if may_succeed_later(error):
            raise retry_later_error("AWS Batch did not take it", code) from None
        raise RetryRefusedError(shortened_reason(_refusal_text(error, code))) from None
    submitted = text_or_none(answer.get("jobId"))
    if not submitted:
        return MemoryRetry(sentence=_UNKNOWN)
    name = submitted[:SHORT_ID_LENGTH]
    return MemoryRetry(sentence=f"Started again with {change}: job {name}.", retried_as=submitted)


def _refusal_text(error: Exception, code: str) -> str:
    """AWS's message names a missing right; another one may quote what was sent."""
    answer = getattr(error, "response", None) or {}
    message = answer.get("Error", {}).get("Message")
    if code in ACCESS_DENIED and message:
        return f"AWS Batch did not take it ({code}: {message})"
    return f"AWS Batch did not take it ({code})"
