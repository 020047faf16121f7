"""Handles Batch's events: one message a job, at its end, and the document of a job that failed
without an attempt, which no task's event tells of.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.aws_error_codes import may_succeed_later
from profiler.core.ecs_terms import arn_account, arn_region, task_id
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import (
    Json,
    count_or_none,
    field_at,
    mapping_or_empty,
    mappings_in_list,
    positive_number,
    text_or_none,
)
from profiler.core.notice_channels import ChannelKind
from profiler.core.optional_math import known, known_members, known_values
from profiler.core.timestamps import datetime_of_ms, format_datetime
from profiler.forwarder.document_fields import Fields, fields_of_outcome, merged_fields
from profiler.forwarder.document_updates import (
    JOB_DATASET,
    Document,
    EventDocument,
    EventWithTaskId,
    run_document_id,
)
from profiler.forwarder.end_outputs import (
    EndDocumentIndex,
    EndOutputs,
    post_notice,
    print_once,
    write_documents,
)
from profiler.forwarder.ended_run import NO_RETRY, MemoryRetry, retry_or_reason
from profiler.forwarder.function_settings import (
    NO_NOTICES,
    ForwarderSettings,
    NoticeSettings,
    Subject,
)
from profiler.forwarder.invocation import (
    DeliveryError,
    ForwarderError,
    SearchClusterError,
    call_collecting_error,
    raise_errors,
)
from profiler.forwarder.job_notice import JobNotice
from profiler.forwarder.kill_after_resize import reduced_memory_sentence_of_job
from profiler.forwarder.notifications.event_details import RepeatedAttemptLine, job_ended_line
from profiler.forwarder.run_event import RunEvent
from profiler.record.batch_job import known_job_fields
from profiler.record.batch_job_detail import (
    FAILED,
    NO_NODES,
    SUCCEEDED,
    JobAttempt,
    JobDetail,
    JobEvent,
)
from profiler.record.ecs_event_outcome import JOB_ENDS, document_outcome
from profiler.record.job_outcome import (
    AttemptCosts,
    EndedChild,
    attempt_outcome,
    failed_child,
    has_own_end_message,
    job_end_time,
    judge_attempt,
)
from profiler.record.measured import AtLeast, Exactly, Known
from profiler.record.query_clauses import ATTEMPT, COST_USD, JOB_ID, all_of, exists, term
from profiler.record.run_outcome import Outcome
from profiler.record.spot_price import FARGATE_SPOT

# The children of an array that a message is about: its words and numbers are then of a part.
MAX_CHILDREN = 10_000
# An attempt has a document for each container: Batch allows ten attempts, and ten containers.
_MAX_COSTS = 100


class HandledJob(Struct, frozen=True, kw_only=True):
    """The job's status, whether a document was written, and the kind of the notice that every
    channel has.
    """

    status: str | None = None
    indexed: bool = False
    notified: ChannelKind | None = None


class JobDocumentIndex(EndDocumentIndex, Protocol):
    """The search cluster."""

    def search_attempts(self, query: Mapping[str, object]) -> Mapping[str, object]:
        """The whole answer to a search in the reports. Raises SearchClusterError."""


class JobOutputs(EndOutputs, Protocol):
    """Where a job's notice and document go, and the settings of that."""

    def document_index(self) -> JobDocumentIndex | None:
        """The search cluster; None without one. Raises SettingsError."""


class JobChangedHandler(Struct, frozen=True, kw_only=True):
    """Handles the events of jobs.

    ``list_failed`` yields the failed children of an array, as ListJobs returns them; it raises
    TaskProfilerError, whose cause is boto3's error. ``definition`` returns the job definition of an
    ARN, None if it may not be read. ``start_again`` submits a job that was killed for memory again,
    and returns None if it must not be; it raises ForwarderError.
    """

    outputs: JobOutputs
    list_failed: Callable[[str], Iterator[Json]]
    definition: Callable[[str], Mapping[str, Json] | None]
    start_again: Callable[[JobDetail], MemoryRetry | None]

    def handle(self, event: JobEvent) -> HandledJob:
        """Write the documents, post the message. Raises ForwarderError after both were tried."""
        job = event.job
        is_told = event.is_queue_blocked or has_own_end_message(job)
        if not is_told and not _knows_more_attempts_than_ecs(job):
            return HandledJob(status=job.status)
        errors: list[ForwarderError] = []
        retry = NO_RETRY
        if is_told and not event.is_queue_blocked:
            retry = retry_or_reason(partial(self.start_again, job), errors)
        settings = NO_NOTICES
        if is_told:
            settings = call_collecting_error(self.outputs.settings, errors) or NO_NOTICES
        index = call_collecting_error(self.outputs.document_index, errors)
        indexed = (
            index is not None
            and not event.is_queue_blocked
            and self._index_job(index, job, retry, errors)
        )
        notice = JobNotice(job=job, is_blocked=event.is_queue_blocked, retry=retry)
        notified: ChannelKind | None = None
        subject: Subject = "success" if notice.is_success else "failure"
        if settings.selects(subject, notice.family):
            notified = self._post_job_notice(notice, settings, index, errors)
        result = HandledJob(status=job.status, indexed=indexed, notified=notified)
        if not event.is_queue_blocked:
            self._print_ended_line(notice, result, errors, is_told=is_told)
        raise_errors(errors)
        return result

    def _print_ended_line(
        self,
        notice: JobNotice,
        result: HandledJob,
        errors: list[ForwarderError],
        *,
        is_told: bool,
    ) -> None:
        """Print what no task's event tells of a job: that its last attempt is repeated, and the end
        of one without an attempt, without a task of the last one, or that waited for another one.
        """
        job = notice.job
        outcome = None
        if job.attempts:
            if self._was_announced_as_repeated(job, errors) or _has_no_task(job):
                outcome = attempt_outcome(job, job.attempts[-1])
        elif is_told:
            task = _task_fields_of_unstarted_job(job)
            outcome = document_outcome(task) if task else None
        if outcome is None:
            return
        line = job_ended_line(notice, outcome, indexed=result.indexed, notified=result.notified)
        print_once(line, f"{notice.notification_key}#log", self.outputs, errors)

    def _was_announced_as_repeated(self, job: JobDetail, errors: list[ForwarderError]) -> bool:
        """Whether the job ended after it was said that its last attempt is repeated; says so if it
        has not ended. Of the two events, the first one decides.
        """
        last_attempt = job.attempts[-1].number
        repeated = RepeatedAttemptLine(job_id=job.id, attempt=last_attempt)

        def say() -> str:
            if not job.has_ended:
                self.outputs.print_line(msgspec.json.encode(repeated).decode())
            return str(job.status)

        key = f"job/{job.arn or job.id}/{last_attempt}#repeated"
        first = call_collecting_error(lambda: self.outputs.run_once(key, say), errors)
        return job.has_ended and first not in (None, job.status)

    def _index_job(
        self,
        index: JobDocumentIndex,
        job: JobDetail,
        retry: MemoryRetry,
        errors: list[ForwarderError],
    ) -> bool:
        """Write the document of a job without an attempt, or complete those of its attempts' tasks.

        Returns whether that succeeded.
        """
        alone = known_values((job_document(job, index.settings),))
        documents = [*(alone or attempt_documents(job, index.settings, retry))]
        if not documents:
            return False
        return write_documents(index, documents, "job", errors)

    def _post_job_notice(
        self,
        notice: JobNotice,
        settings: NoticeSettings,
        index: JobDocumentIndex | None,
        errors: list[ForwarderError],
    ) -> ChannelKind | None:
        """Post the message, but for one whose children Batch does not tell now: Lambda retries."""
        job = notice.job
        try:
            children = self._find_failed_children(job)
        except ForwarderError as error:
            errors.append(error)
            return None
        reduced = None
        if _ran_out_of_memory(job):
            definition = known(self.definition, job.definition_arn)
            reduced = reduced_memory_sentence_of_job(job, definition)
        complete = replace(
            notice,
            children=children,
            costs=self._find_attempt_costs(job, index),
            reduced_memory=reduced,
        )
        return post_notice(self.outputs, complete, settings, errors, is_success=complete.is_success)

    def _find_failed_children(self, job: JobDetail) -> tuple[EndedChild, ...] | None:
        """The failed children of an array; None, and a warning, if Batch may not be asked.

        Raises DeliveryError if it is busy.
        """
        if not job.is_array_parent or not job.array.children.get(FAILED):
            return ()
        children: list[EndedChild] = []
        try:
            for summary in self.list_failed(job.id):
                children += known_values((failed_child(summary, job.memory_mb),))
                if len(children) == MAX_CHILDREN:
                    break
        except TaskProfilerError as error:
            if isinstance(error.__cause__, Exception) and may_succeed_later(error.__cause__):
                raise DeliveryError(
                    f"The message of job {job.id} is not posted yet. {error}"
                ) from error
            self.outputs.warn(f"The message of job {job.id} does not name its children. {error}")
            return None
        return tuple(children)

    def _find_attempt_costs(self, job: JobDetail, index: JobDocumentIndex | None) -> AttemptCosts:
        """What the attempts' documents say; nothing if they cannot be searched."""
        if index is None or not job.attempts:
            return {}
        try:
            answer = index.search_attempts(
                {
                    "size": _MAX_COSTS,
                    "query": all_of([term(JOB_ID, job.id), exists(COST_USD)]),
                    "_source": [ATTEMPT, COST_USD, "task.capacity_provider"],
                }
            )
        except SearchClusterError as error:
            self.outputs.warn(f"The message of the job {job.id} has no cost. {error}")
            return {}
        return attempt_costs_of_answer(answer)


def _has_no_task(job: JobDetail) -> bool:
    """Whether the job ended with an attempt that never became a task; of nodes, it is not known."""
    return job.has_ended and not job.attempts[-1].task_arn and job.nodes is NO_NODES


def _ran_out_of_memory(job: JobDetail) -> bool:
    """Whether the job failed because its last attempt ran out of memory."""
    if job.status != FAILED or not job.attempts:
        return False
    outcome, _ = judge_attempt(job, job.attempts[-1])
    return outcome.ran_out_of_memory


def attempt_costs_of_answer(answer: Mapping[str, object]) -> AttemptCosts:
    """The costs in the documents of a job's attempts; of one with several, the highest, and the
    least of what it has cost if any of them says Spot.
    """
    costs: dict[int, Known] = {}
    for hit in mappings_in_list(mapping_or_empty(answer.get("hits")).get("hits")):
        source = mapping_or_empty(hit.get("_source"))
        attempt_number = count_or_none(field_at(source, "batch.attempt"))
        cost_usd = positive_number(field_at(source, "cost.usd"))
        if not (attempt_number and cost_usd):
            continue
        before = costs.get(attempt_number, Exactly(0))
        is_on_spot = text_or_none(field_at(source, "task.capacity_provider")) == FARGATE_SPOT
        as_known = AtLeast if is_on_spot or isinstance(before, AtLeast) else Exactly
        costs[attempt_number] = as_known(max(cost_usd, before.value))
    return costs


def job_document(job: JobDetail, settings: ForwarderSettings) -> Document | None:
    """The document of a job that failed without an attempt; None for another job. It has no
    numbers.
    """
    task = _task_fields_of_unstarted_job(job)
    ended = job_end_time(job)
    if not task or ended is None:
        return None
    identity = job.batch_job_of_attempt()
    created = datetime_of_ms(job.created_ms) or ended
    outcome = "unknown" if task["status"] == "stopped" else "failure"
    fields = {
        "@timestamp": format_datetime(ended),
        "event": {"kind": "event", "dataset": JOB_DATASET, "outcome": outcome},
        "cloud": {
            "provider": "aws",
            "region": job.region,
            "account": {"id": job.account_id},
        },
        "service": {"name": identity.job_definition},
        "task": task,
        "batch": known_job_fields(identity),
    }
    return Document(index=settings.indices.index_name("reports", created), id=job.id, fields=fields)


def _task_fields_of_unstarted_job(job: JobDetail) -> Fields:
    """What a job that failed without an attempt is in place of a task; empty for another job."""
    ended = job_end_time(job)
    if not job.has_no_attempt or job.status != FAILED or ended is None:
        return {}
    identity = job.batch_job_of_attempt()
    is_stopped = job.is_terminated or job.is_cancelled
    word = "user" if is_stopped else "not-started"
    task = {
        "id": job.id,
        "arn": job.arn,
        "family": identity.job_definition,
        "revision": known(str, identity.job_definition_revision),
        "status": "stopped" if is_stopped else "failure",
        "outcome": word,
        "event_outcome": word,
        "stopped_reason": job.status_reason,
        "confirmed": True,
        "complete": False,
        "created_at": format_datetime(datetime_of_ms(job.created_ms) or ended),
        "stopped_at": format_datetime(ended),
    }
    return known_members(task)


def _knows_more_attempts_than_ecs(job: JobDetail) -> bool:
    """Whether the event can know more of the job's attempts than ECS: not of a single success."""
    is_single = job.status == SUCCEEDED and not job.retry_of
    return len(job.attempts) > (1 if is_single else 0)


def attempt_documents(
    job: JobDetail, settings: ForwarderSettings, retry: MemoryRetry = NO_RETRY
) -> Iterator[Document]:
    """What Batch knows of the job's attempts, for the documents of their tasks, which are in the
    job's account and Region. ``retry``: the job that was submitted again, which the last one names.
    """
    if not _knows_more_attempts_than_ecs(job):
        return
    last = job.attempts[-1]
    for each in job.attempts:
        outcome, container = judge_attempt(job, each)
        ended = datetime_of_ms(each.stopped_ms) or datetime_of_ms(each.started_ms)
        if not (each.task_arn and container) or ended is None:
            continue
        if (arn_account(each.task_arn), arn_region(each.task_arn)) != (job.account_id, job.region):
            continue
        task = {
            "job_end": outcome.cause if outcome.cause in JOB_ENDS else None,
            "repeated": (each is not last or not job.has_ended) or None,
            "last_attempt": (each is last and _has_unused_attempts(job)) or None,
            "retry_of": job.retry_of,
            "retried_as": retry.retried_as if each is last else None,
        }
        known_fields: Fields = {"batch": known_job_fields(job.batch_job_of_attempt(each.number))}
        if any(task.values()):
            known_fields["task"] = known_members(task)
        began = datetime_of_ms(each.started_ms) or ended
        yield EventDocument(
            index=settings.indices.index_name("reports", began),
            id=run_document_id(task_id(each.task_arn), container),
            fields=known_fields,
            upsert=merged_fields(
                known_fields, _unreported_attempt_fields(job, each, outcome, container)
            ),
            event=EventWithTaskId(event=RunEvent(), task_id=task_id(each.task_arn), is_of_job=True),
            searched=settings.indices.names_for_runs(ended),
        )


def _has_unused_attempts(job: JobDetail) -> bool:
    """Whether the job has ended with fewer attempts than it had: a person may have ended it while
    it waited for another one.
    """
    return job.has_ended and len(job.attempts) < job.allowed_attempts


def _unreported_attempt_fields(
    job: JobDetail, each: JobAttempt, outcome: Outcome, container: str
) -> Fields:
    """The document of an attempt of whose task nothing else is known yet: no run, no numbers."""
    identity = job.batch_job_of_attempt(each.number)
    moment = datetime_of_ms(each.stopped_ms) or datetime_of_ms(each.started_ms)
    task = {
        "id": task_id(each.task_arn),
        "arn": each.task_arn,
        "family": identity.job_definition,
        "complete": False,
    }
    fields: Fields = {
        "@timestamp": known(format_datetime, moment),
        "event": {"kind": "event", "dataset": JOB_DATASET},
        "cloud": {
            "provider": "aws",
            "region": arn_region(each.task_arn),
            "account": {"id": arn_account(each.task_arn)},
        },
        "service": {"name": identity.job_definition},
        "container": {"name": container},
        "task": known_members(task),
    }
    return merged_fields(fields, fields_of_outcome(outcome, is_of_event=False))
