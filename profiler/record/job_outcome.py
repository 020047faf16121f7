"""How a job of AWS Batch ended, by Batch's event: in words, each attempt by the rule for a task.

A reason can be a user's text, of TerminateJob: then nothing is read in it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from msgspec import Struct

from profiler.core.ecs_terms import MONITOR_NAME
from profiler.core.json_fields import (
    Json,
    count_or_none,
    integer_or_none,
    mapping_or_empty,
    text_or_none,
)
from profiler.core.optional_math import difference, known_values
from profiler.core.redaction import redact_line
from profiler.core.text import as_sentence, listed, listed_and_more, on_one_line
from profiler.core.timestamps import datetime_of_ms
from profiler.record.batch_job_detail import FAILED, SUCCEEDED, ContainerEnd, JobAttempt, JobDetail
from profiler.record.ecs_event_outcome import judge_candidates
from profiler.record.measured import Known, total_of_known
from profiler.record.run_outcome import Outcome
from profiler.record.stop_causes import outcome_of
from profiler.record.stopped_task import EventContainer, StoppedTask
from profiler.record.units import format_count, format_duration, format_memory, format_usd

# The reasons of jobs that never had an attempt, and of which another job's message tells.
_FAILED_WITH_ANOTHER: Final = frozenset({"Dependent Job failed", "Array Child Job failed"})
# The beginnings of AWS's reasons for which a job does not start, and what to change.
_REMEDIES: Final = {
    "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE": (
        "Raise maxvCpus of the compute environment (aws batch update-compute-environment), or ask "
        "for fewer vCPUs."
    ),
    "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT": (
        "No allowed instance has what the job asks for: lower its vCPUs, memory or GPUs, or allow "
        "larger instance types (aws batch update-compute-environment)."
    ),
    "MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS": (
        "Give the service role of the compute environment the policy AWSBatchServiceRole."
    ),
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY": (
        "AWS has no instance of the allowed types: allow more types, zones, or On-Demand "
        "(aws batch update-compute-environment)."
    ),
}
# The queue's own limit on the time in a state, which Batch may report as a cancelled job.
_STATE_TIME_LIMIT: Final = "Canceled by JobStateTimeLimit action due to reason: "
_LOST_HOST: Final = re.compile(r"Host EC2 \(instance (i-[0-9a-f]{1,32})\) terminated\.?")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_USER_STOP = "UserInitiated"
_BATCH_CLUSTER = "AWSBatch-"
_ONE_END_MS = 60_000
_MAX_INDICES = 10
_MAX_GROUPS = 5


class EndedChild(Struct, frozen=True, kw_only=True):
    """A child of an array that failed: its index, and why."""

    index: int
    why: str


# The costs of attempts by their numbers.
AttemptCosts = Mapping[int, Known]


def has_own_end_message(job: JobDetail) -> bool:
    """Whether the end of the job is a message of its own: a child's is its array's, and where
    another job failed, that one's.
    """
    if not job.has_ended or job.parent_id is not None:
        return False
    # Batch may cancel a dependent job. It terminates none.
    is_others = not job.attempts and job.status_reason in _FAILED_WITH_ANOTHER
    return job.is_terminated or not is_others or job.is_array_parent


def attempt_outcome(job: JobDetail, attempt: JobAttempt) -> Outcome:
    """How an attempt ended, judged by its essential containers."""
    return judge_attempt(job, attempt)[0]


def judge_attempt(job: JobDetail, attempt: JobAttempt) -> tuple[Outcome, str | None]:
    """How an attempt ended, and its container that is judged; None: one of several."""
    others = {one.name for one in job.containers if not one.is_essential} | {MONITOR_NAME}
    ends = [end for end in attempt.containers if end.name not in others]
    return _outcome_of_ends(
        ends,
        attempt.status_reason,
        is_users=_was_terminated(job, attempt),
        has_started=attempt.started_ms is not None,
    )


def _was_terminated(job: JobDetail, attempt: JobAttempt) -> bool:
    """Whether the attempt ran when somebody terminated the job: then both end at once.

    A job can be terminated between two attempts, too. One that is cancelled never runs.
    """
    if not job.is_terminated or not job.has_ended or attempt.number != len(job.attempts):
        return False
    ends_ms = (job.stopped_ms, attempt.stopped_ms)
    return None in ends_ms or (job.stopped_ms or 0) - (attempt.stopped_ms or 0) < _ONE_END_MS


def _outcome_of_ends(
    ends: Sequence[ContainerEnd], reason: str | None, *, is_users: bool, has_started: bool
) -> tuple[Outcome, str | None]:
    containers = [
        EventContainer(name=end.name or "default", exit_code=end.exit_code, reason=end.reason)
        for end in ends
    ]
    task = StoppedTask(
        arn="",
        cluster=_BATCH_CLUSTER,
        stop_code=_USER_STOP if is_users else None,
        stopped_reason=None if is_users else reason,
        started_at=datetime.fromtimestamp(0, UTC) if has_started else None,
        containers=tuple(containers),
    )
    end, name = judge_candidates(task, task.containers)
    return outcome_of(None, end, container=name), name


def failure_cause_words(outcome: Outcome, memory_mb: float | None) -> str:
    """The cause in a few words: ``ran out of memory with 4 GB``, ``exit code 3``."""
    if outcome.cause == "oom":
        return "ran out of memory" + (f" with {format_memory(memory_mb)}" if memory_mb else "")
    if outcome.cause == "failure" and outcome.exit_code_text:
        return f"exit code {outcome.exit_code_text}"
    if outcome.cause in ("failure", "unknown"):
        return outcome.reason or "no exit code"
    host = _LOST_HOST.fullmatch(outcome.reason or "")
    if outcome.cause == "infrastructure" and host:
        return f"lost its host {host[1]}"
    return f"{outcome.title[:1].lower()}{outcome.title[1:]}"


def failed_child(summary: Json, memory_mb: float | None) -> EndedChild | None:
    """A failed child in an answer of ListJobs; None without an index."""
    values = mapping_or_empty(summary)
    index = count_or_none(mapping_or_empty(values.get("arrayProperties")).get("index"))
    if index is None:
        return None
    container = mapping_or_empty(values.get("container"))
    end = ContainerEnd(
        exit_code=integer_or_none(container.get("exitCode")),
        reason=_redacted_reason(container, "reason"),
    )
    is_users = values.get("isTerminated") is True or values.get("isCancelled") is True
    reason = _redacted_reason(values, "statusReason")
    has_started = count_or_none(values.get("startedAt")) is not None
    outcome, _ = _outcome_of_ends([end], reason, is_users=is_users, has_started=has_started)
    return EndedChild(index=index, why=failure_cause_words(outcome, memory_mb))


def _redacted_reason(values: Mapping[str, Json], name: str) -> str | None:
    return redact_line(on_one_line(text_or_none(values.get(name)) or "")) or None


def job_name(job: JobDetail) -> str:
    """The job's name, else its id."""
    return job.name or job.id


def job_title(job: JobDetail) -> str:
    """The end in short: ``orders succeeded at its third attempt``."""
    name = job_name(job)
    number = len(job.attempts)
    if job.status == SUCCEEDED:
        at = f" at its {_ordinal_word(number)} attempt" if number > 1 else ""
        return f"{name} succeeded{at}"
    if job.has_no_attempt:
        if _may_be_users_text(job):
            return f"{name} was cancelled before it started"
        return f"{name} failed before it started"
    if _may_be_users_text(job):
        return f"{name} was stopped"
    after = f" after {format_count(number, 'attempt')}" if number > 1 else ""
    return f"{name} failed{after}"


def job_fact_texts(
    job: JobDetail, children: Sequence[EndedChild] | None, costs: AttemptCosts | None = None
) -> list[str]:
    """What is known of an ended job, each fact in a few words, the cause first.

    ``children`` are those that failed, None: they are not known.
    """
    if job.is_array_parent:
        return [*_array_fact_texts(job, children), *_duration_texts(job)]
    facts = []
    phrases = [
        failure_cause_words(attempt_outcome(job, one), job.memory_mb) for one in job.attempts
    ]
    if job.status == FAILED and phrases:
        return [
            *_failed_attempt_texts(phrases),
            *_duration_texts(job),
            *_cost_texts(job, costs or {}),
        ]
    if job.status == FAILED and (_is_state_time_limit(job) or not _may_be_users_text(job)):
        facts.append(job.status_reason or "AWS gives no reason")
    facts += _attempt_texts(enumerate(phrases[:-1], 1))
    return [*facts, *_duration_texts(job), *_cost_texts(job, costs or {})]


def _cost_texts(job: JobDetail, costs: AttemptCosts) -> list[str]:
    """What all attempts cost, if that of each is known, and what of it the failed ones did."""
    numbers = range(1, len(job.attempts) + 1)
    if not job.attempts or any(number not in costs for number in numbers):
        return []
    last = len(job.attempts) if job.status == SUCCEEDED else 0
    failed_usd = sum(costs[number].value for number in numbers if number != last)
    cost = total_of_known(costs[number] for number in numbers).text(format_usd)
    if not last or last == 1:
        return [cost]
    return [f"{cost} ({format_usd(failed_usd)} of it for failed attempts)"]


def _failed_attempt_texts(phrases: Sequence[str]) -> list[str]:
    """The cause of the last attempt, then the causes of the others that ended differently."""
    last = phrases[-1]
    same = [number for number, phrase in enumerate(phrases, 1) if phrase == last]
    if len(same) == 1:
        return [last, *_attempt_texts(enumerate(phrases[:-1], 1))]
    if len(same) == len(phrases):
        return [f"all {len(same)} attempts: {last}"]
    others = [item for item in enumerate(phrases, 1) if item[0] not in same]
    return [*_attempt_texts((number, last) for number in same), *_attempt_texts(others)]


def _attempt_texts(phrases: Iterable[tuple[int, str]]) -> list[str]:
    """Attempts by their numbers: ``attempts 1 and 2: ran out of memory with 4 GB``."""
    facts = []
    for phrase, group in groupby(phrases, key=lambda item: item[1]):
        numbers = [str(number) for number, _ in group]
        noun = "attempt" if len(numbers) == 1 else "attempts"
        facts.append(f"{noun} {listed(numbers)}: {phrase}")
    return facts


def _array_fact_texts(job: JobDetail, children: Sequence[EndedChild] | None) -> list[str]:
    """``997 of 1,000 succeeded; children 17, 204 and 998 failed: exit code 3 (3)``."""
    succeeded = job.array.children.get(SUCCEEDED, 0)
    facts = [f"{succeeded:,} of {job.array.size or 0:,} succeeded"]
    if children is None:
        return [*facts, "which children failed is not known"]
    if not children:
        return facts
    indices = [str(child.index) for child in sorted(children, key=lambda one: one.index)]
    shown = listed_and_more(indices, _MAX_INDICES)
    numbers: dict[str, int] = {}
    for child in children:
        numbers[child.why] = numbers.get(child.why, 0) + 1
    largest = sorted(numbers.items(), key=lambda item: -item[1])[:_MAX_GROUPS]
    causes = ", ".join(f"{why} ({number:,})" for why, number in largest)
    noun = "child" if len(indices) == 1 else "children"
    return [*facts, f"{noun} {shown} failed: {causes}"]


def _duration_texts(job: JobDetail) -> list[str]:
    """The time from the first attempt's start to the end."""
    starts = known_values(one.started_ms for one in job.attempts)
    started_ms = min(starts, default=job.started_ms)
    took_ms = difference(job.stopped_ms, started_ms)
    return [] if took_ms is None or took_ms < 0 else [format_duration(took_ms)]


def blocked_job_title(job: JobDetail, queue: str | None) -> str:
    """A few words about a job that is the first of its queue, and cannot start."""
    place = f" and blocks the queue {queue}" if queue else ""
    return f"{job_name(job)} cannot start{place}"


def remedy_for_job(job: JobDetail) -> str | None:
    """What to change where AWS's reason names it; None for a user's text, and an unknown reason."""
    if _may_be_users_text(job) and not _is_state_time_limit(job):
        return None
    reason = (job.status_reason or "").removeprefix(_STATE_TIME_LIMIT)
    for beginning, remedy in _REMEDIES.items():
        if reason.startswith(beginning):
            return remedy
    return None


def _may_be_users_text(job: JobDetail) -> bool:
    """Whether the reason can be a user's text."""
    return job.is_terminated or job.is_cancelled


def _is_state_time_limit(job: JobDetail) -> bool:
    """Whether the queue's limit ended the job before an attempt, or a user wrote the same."""
    return not job.attempts and (job.status_reason or "").startswith(_STATE_TIME_LIMIT)


def job_end_time(job: JobDetail) -> datetime | None:
    """When the job ended; None for no time that a calendar has."""
    return datetime_of_ms(job.stopped_ms)


def facts_sentence(facts: Iterable[str]) -> str:
    """The facts as one sentence."""
    joined = "; ".join(facts)
    return as_sentence(joined) if joined else ""


def _ordinal_word(number: int) -> str:
    return _ORDINALS[number - 1] if number <= len(_ORDINALS) else f"{number}th"
