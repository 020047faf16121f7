"""Ended runs and notices as data for other programs: details of EventBridge events, and the
``task.ended`` line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from operator import add
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from profiler.core.ecs_terms import cluster_name
from profiler.core.notice_channels import ChannelKind
from profiler.core.optional_math import all_known, known, known_members
from profiler.core.text import as_sentence, words_if_known
from profiler.core.timestamps import datetime_of_ms, format_datetime, parse_datetime
from profiler.forwarder.ended_run import EndedRun, UnusualMeasure
from profiler.forwarder.job_notice import JobNotice
from profiler.forwarder.notifications import value_formats
from profiler.forwarder.notifications.embedded_texts import embeddable_text, markdown_escaped
from profiler.forwarder.notifications.next_steps import (
    STEP_SEPARATOR,
    NextStep,
    is_command_shown_whole,
    steps_after_due_time,
    steps_after_job,
    steps_after_run,
    steps_in_words,
    steps_while_running,
)
from profiler.forwarder.notifications.notification import NightSummary, Notification
from profiler.forwarder.notifications.run_advice import advice_after
from profiler.forwarder.run_links import (
    RunLinks,
    links_of_job,
    links_of_line,
    links_of_schedule_notice,
)
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown
from profiler.record.batch_job import NO_JOB, BatchJob, job_text
from profiler.record.gpu_facts import cause_sentence
from profiler.record.model_base import absent_if_empty
from profiler.record.notice_model import (
    Notice,
    NoticedSchedule,
    NoticeLine,
    ScheduleNotice,
    ScheduleNoticeLine,
)
from profiler.record.record_model import (
    NO_RECOMMENDATION,
    UNKNOWN_COST,
    Cost,
    Metrics,
    Recommendation,
)
from profiler.record.run_outcome import (
    PREDICATES,
    Outcome,
    Status,
    StopCategory,
)
from profiler.record.run_summary import UNSEEN_LIMITS, Story, story_of
from profiler.record.stop_causes import outcome_of
from profiler.record.units import format_duration, format_minutes

LINE_TYPE = "task.ended"
REPEATED_TYPE = "job.repeated"
_MAX_TEXT_LENGTH = 400
# The limits of texts that may be longer.
_MAX_LENGTHS = {
    **dict.fromkeys(("text", "message", "reason", "stopped_reason", "summary"), 1024),
    "next_steps": 6000,
}
# " · 3 commands are left out here"
_LEFT_OUT_LENGTH = 40
_MAX_URL_LENGTH = 2048
_MAX_SIZE_LENGTH = 64
_MAX_LINE_LENGTH = 1024
# Between the lines of the morning message, where they follow one another on one line.
_BULLET = " • "
_RUN_PREDICATES = {
    "stuck": "seems to be stuck",
    "overdue": "runs longer than expected",
    "memory": "is running out of memory",
    "disk": "is running out of disk space",
}
_SCHEDULE_PREDICATES = {
    "missed": "did not run",
    "late": "started late",
    "overlapped": "started while its previous run was running",
    "slow": "takes longer than usual",
}
_UNKNOWN = "unknown"
_Data = TypeVar("_Data", bound=Struct)
_AnyDetail = TypeVar("_AnyDetail", bound="_DetailTexts")


class _DetailTexts(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The texts that templates embed.

    ``markdown`` is ``text`` for receivers that draw Markdown: it shows the same and has no link.
    ``summary`` and ``nextSteps`` are whole sentences, so that a template needs nothing that may be
    unknown: the times and numbers, and where to look, with commands. Markdown can show both.
    """

    text: str
    markdown: str = ""
    summary: str = ""
    next_steps: str = ""


class _RunDetail(_DetailTexts, frozen=True, kw_only=True):
    task_id: str
    task_arn: str | None = None
    cluster: str | None = None
    family: str
    revision: str | None = None
    container: str | None = None


class EndedRunDetail(_RunDetail, frozen=True, kw_only=True):
    """One ended run. What is unknown is left out.

    ``text`` is one sentence about the run, or two: the second contains what a failed or slow run
    waited for most of the time. It contains no quotation mark, backslash or control character: the
    input transformers of EventBridge insert texts as they are, so that these would break the JSON
    of a template. ``container`` is the name of the batch container, ``batch`` the job of AWS Batch.
    ``outcome`` is the cause of the end in one word, ``outcomeSentence`` in a sentence without its
    full stop, ``stopCategory`` in the words before ``outcome``, ``stoppedReason`` the text from
    ECS. ``metrics``, ``cost`` and ``recommendation`` come from the run's report; without a report,
    ``metrics`` has the numbers of the last checkpoint, or only the duration, and ``cost`` is left
    out. ``timeBreakdown`` comes from the report or the checkpoint, with at most three targets.
    ``unusual`` are the metrics in which a success lies far outside its family, with the median of
    the family's recent successes.
    """

    batch: BatchJob = NO_JOB
    status: Status
    outcome: str | None = None
    outcome_sentence: str | None = None
    stop_category: StopCategory
    stopped_reason: str | None = None
    exit_code: int | None = None
    started_at: str | None = None
    finished_at: str | None = None
    metrics: Metrics | None = None
    time_breakdown: TimeBreakdown = NO_BREAKDOWN
    cost: Cost = UNKNOWN_COST
    recommendation: Recommendation = NO_RECOMMENDATION
    unusual: tuple[UnusualMeasure, ...] = ()
    links: RunLinks | None = None


class _BilledDuration(Struct, frozen=True, kw_only=True, rename="camel"):
    """Without a report, only the duration is known."""

    billed_duration_ms: float | None = None


class EndedLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """A ``task.ended`` line as the morning message needs it, which holds a night's of a whole
    account at once: the fields of :class:`EndedRunDetail` that it reads. ``service``: the task was
    one of a service.
    """

    task_id: str
    family: str
    container: str | None = None
    batch: BatchJob = NO_JOB
    status: Status
    outcome: str | None = None
    outcome_sentence: str | None = None
    stop_category: StopCategory
    stopped_reason: str | None = None
    exit_code: int | None = None
    finished_at: str | None = None
    metrics: _BilledDuration | None = None
    cost: Cost = UNKNOWN_COST
    links: RunLinks | None = None
    service: bool = False

    @property
    def has_report(self) -> bool:
        return self.metrics is not None and self.metrics.billed_duration_ms is not None


class RepeatedAttemptLine(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag=REPEATED_TYPE
):
    """The line of an attempt of a job of AWS Batch after which Batch makes another one."""

    job_id: str
    attempt: int


def bus_event(notification: Notification, *, kibana_url: str | None) -> tuple[str, Struct]:
    """Return the type of a notification's event, and its detail: texts truncated, in JSON
    smaller than 32 KB.
    """
    if isinstance(notification, EndedRun):
        return "Task Run Ended", ended_run_detail(notification, kibana_url=kibana_url)
    if isinstance(notification, JobNotice):
        return "Batch Job Notice", job_notice_detail(notification)
    if isinstance(notification, NoticeLine):
        return "Task Run Notice", run_notice_detail(notification, kibana_url=kibana_url)
    if isinstance(notification, NightSummary):
        return "Night Summary", night_summary_detail(notification)
    return "Schedule Notice", schedule_notice_detail(notification, kibana_url=kibana_url)


def ended_run_detail(notice: EndedRun, *, kibana_url: str | None) -> EndedRunDetail:
    """The detail of an ended run."""
    task = notice.task
    record = notice.record
    outcome = notice.outcome
    links = _bounded_links(notice.console_links(kibana_url))
    times = record.time_breakdown
    breakdown = replace(times, waiting_for=times.waiting_for[:3])
    run = EndedRunDetail(
        text=_end_sentence(notice),
        summary=_run_summary_text(notice),
        next_steps=_next_steps_text(
            f"Task {task.id}",
            task.cluster,
            links,
            (*steps_after_run(notice), *advice_after(notice).steps),
        ),
        task_id=task.id,
        task_arn=task.arn,
        cluster=task.cluster,
        family=notice.family,
        revision=task.revision,
        container=notice.container,
        batch=notice.record.batch,
        status=outcome.status,
        outcome=outcome.cause,
        outcome_sentence=outcome.sentence,
        stop_category=outcome.stop_category,
        stopped_reason=notice.reason or None,
        exit_code=outcome.exit_code,
        started_at=known(format_datetime, task.started_at),
        finished_at=known(format_datetime, notice.run.ended_at),
        metrics=None if notice.metrics == Metrics() else notice.metrics,
        time_breakdown=absent_if_empty(breakdown, NO_BREAKDOWN),
        cost=notice.cost,
        recommendation=record.recommendation,
        unusual=notice.unusual,
        links=links,
    )
    return _with_markdown_texts(_with_bounded_texts(run))


def ended_line(
    ended: EndedRun, *, kibana_url: str | None, indexed: bool, notified: ChannelKind | None
) -> str:
    """The ``task.ended`` line: the event's detail without what only templates need, whether the
    run's document was written, the kind of the posted notification, and whether the task was one
    of a service.
    """
    line = _ended_line_members(
        ended_run_detail(ended, kibana_url=kibana_url), indexed=indexed, notified=notified
    )
    if ended.task.is_service_task:
        line["service"] = True
    return msgspec.json.encode(line).decode()


def job_ended_line(
    notice: JobNotice, outcome: Outcome, *, indexed: bool, notified: ChannelKind | None
) -> str:
    """The ``task.ended`` line of a job of AWS Batch whose end is that of no task, so that no task's
    event tells of it: it had no attempt, or waited for another one. The job takes the place of the
    task.
    """
    job = notice.job
    identity = job.batch_job_of_attempt()
    detail = job_notice_detail(notice)
    run = EndedRunDetail(
        text=detail.text,
        task_id=job.id,
        family=identity.job_definition or _UNKNOWN,
        revision=known(str, identity.job_definition_revision),
        batch=identity,
        status=outcome.status,
        outcome=outcome.cause,
        outcome_sentence=outcome.sentence,
        stop_category=outcome.stop_category,
        stopped_reason=detail.status_reason,
        finished_at=detail.finished_at,
    )
    line = _ended_line_members(_with_bounded_texts(run), indexed=indexed, notified=notified)
    return msgspec.json.encode(line).decode()


def _ended_line_members(
    detail: EndedRunDetail, *, indexed: bool, notified: ChannelKind | None
) -> dict[str, object]:
    run = msgspec.to_builtins(replace(detail, markdown="", summary="", next_steps=""))
    return {"type": LINE_TYPE, **run, "indexed": indexed, "notified": notified}


def _end_sentence(notice: EndedRun) -> str:
    """Return a sentence such as "nightly:5 failed with exit code 1: out of disk.", and one about
    its longest wait.
    """
    name = notice.family + words_if_known(":{}", notice.task.revision)
    outcome = notice.outcome
    code = outcome.exit_code_text if outcome.exit_code else None
    exit_code = words_if_known(" with exit code {}", code)
    said = "" if outcome.cause == "failure" else cause_sentence(outcome, notice.record)
    causes = (said, notice.additional_reason)
    why = ". ".join(cause.strip().rstrip(".") for cause in causes if cause)
    reason = f": {why}" if why else ""
    unusual = value_formats.unusual_success_words(notice)
    wait = value_formats.longest_wait_sentence(notice)
    predicate = words_if_known("ended with success, but {}", unusual) or PREDICATES[outcome.status]
    sentences = (f"{name} {predicate}{exit_code}{reason}.", wait, notice.retry.sentence)
    return _truncated_before_command(" ".join(filter(None, sentences)), notice.reduced_memory)


def _truncated_before_command(text: str, last: str | None) -> str:
    """The text, truncated where the ``last`` sentence, which ends with a command, would be."""
    left = _MAX_LENGTHS["text"] - len(last or "") - 1
    return f"{embeddable_text(text, left)} {last}" if last and left > 0 else text


def _with_bounded_texts(data: _Data) -> _Data:
    """Return the data with each text truncated and embeddable, and without the ends of long
    lists.
    """
    values = {
        name: _with_bounded_text(value, _MAX_LENGTHS.get(name, _MAX_TEXT_LENGTH))
        for name, value in asdict(data).items()
    }
    bounded = replace(data, **values)
    # JSON leaves out a part that is the constant for an absent one, and no copy of it.
    return data if bounded == data else bounded


def _bounded_links(links: RunLinks) -> RunLinks | None:
    """The links without those that are too long."""
    too_long = [name for name, url in asdict(links).items() if len(url or "") > _MAX_URL_LENGTH]
    bounded = replace(links, **dict.fromkeys(too_long))
    return None if bounded == RunLinks() else bounded


def _with_markdown_texts(detail: _AnyDetail) -> _AnyDetail:
    """The detail with its texts for receivers that draw Markdown."""
    return replace(
        detail, markdown=markdown_escaped(detail.text), summary=markdown_escaped(detail.summary)
    )


def _run_summary_text(notice: EndedRun) -> str:
    """The times, the numbers and the advice, as far as they are known."""
    story = story_of(notice.record, notice.outcome)
    cpu, memory = value_formats.cpu_and_memory_words(story)
    name_of_cost, cost = value_formats.billed_or_cost(notice)
    advice = advice_after(notice)
    reasons = advice.reasons[:1]
    sentences = [
        _sentence_if_value("Job: {}.", story.first_text_named("job")),
        _run_times_sentence(notice),
        _sentence_if_value(f"{name_of_cost}: {{}}.", cost),
        _sentence_if_value("CPU: {}.", cpu),
        _sentence_if_value("Memory: {}.", memory),
        story.first_sentence_named("killed"),
        *(row.sentence for row in story.rows_named(*UNSEEN_LIMITS)),
        *_gpu_sentences(notice, story, reasons),
        story.first_sentence_named("Neuron use"),
        *(row.sentence for row in story.rows_named("ECC")),
        notice.comparison.text,
        value_formats.numbers_source_sentence(notice, story),
    ]
    sentences += (advice.size, *map(as_sentence, reasons))
    return " ".join(filter(None, sentences))


def _gpu_sentences(notice: EndedRun, story: Story, reasons: Sequence[str]) -> Iterator[str]:
    """The use of the GPUs, and what shows that they were the cause of a failure, or whose the
    numbers are and when they were idle. That some were never used may be one of the reasons that
    follow.
    """
    if not notice.record.gpus:
        return
    yield story.first_sentence_named("GPU use")
    unused = story.usage.gpus.unused_text
    if unused and not any(reason.startswith(unused) for reason in reasons):
        yield as_sentence(unused)
    yield from value_formats.gpu_memory_sentences(notice)
    yield from (row.sentence for row in story.rows_named("GPU idle"))


def _sentence_if_value(sentence: str, value: str | None) -> str:
    return sentence.format(value) if value else ""


def _run_times_sentence(notice: EndedRun) -> str:
    """When the run started and ended; of one that did not start, when ECS gave up."""
    task = notice.task
    if notice.has_started:
        sentence = "The task ran" + words_if_known(
            " {}", known(format_duration, notice.duration_ms)
        )
        started_at, ended_at = task.started_at, notice.run.ended_at
        # ECS sees a task running a moment later, when one that fails at once is over.
        period = all_known(started_at, ended_at)
        is_seen_late = period is not None and period[1] < period[0]
        moments = {"started at": None if is_seen_late else started_at, "ended at": ended_at}
    else:
        sentence = "The task did not run"
        moments = {"created at": task.created_at, "stopped at": task.stopped_at}
    return _with_moments(sentence, moments)


def _job_times_sentence(notice: JobNotice, started_ms: int | None) -> str:
    """When the first attempt started and the job ended; of one without an attempt, since when it
    has waited.
    """
    job = notice.job
    ended_at = datetime_of_ms(job.stopped_ms)
    if started_ms is not None:
        moments = {"started at": datetime_of_ms(started_ms), "ended at": ended_at}
        return _with_moments("The job ran", moments)
    sentence = "The job has not started" if notice.is_blocked else "The job did not run"
    moments = {"created at": datetime_of_ms(job.created_ms), "ended at": ended_at}
    return _with_moments(sentence, moments)


def _with_moments(sentence: str, moments: Mapping[str, datetime | None]) -> str:
    told = [f"{event} {at:%Y-%m-%d %H:%M:%S} UTC" for event, at in known_members(moments).items()]
    return f"{sentence}: {', '.join(told)}." if told else f"{sentence}."


def _next_steps_text(
    subject: str, cluster: str | None, links: RunLinks | None, steps: Iterable[NextStep]
) -> str:
    """Where to look, and the commands. Markdown can show it: only our own addresses are links."""
    where = (subject + words_if_known(" in cluster {}", cluster))[:_MAX_TEXT_LENGTH]
    addresses = _bounded_links(links or RunLinks()) or RunLinks()

    def shown(commands: str) -> str:
        # At once, as one of them can begin a stress that the other one ends.
        said = markdown_escaped(f"{where}\n{commands}").partition("\n")[0]
        parts = (
            said + words_if_known(": {}", addresses.ecs_task),
            words_if_known("Log: {}", addresses.log_stream),
            commands,
        )
        return STEP_SEPARATOR.join(filter(None, parts))

    def fits(commands: str) -> bool:
        if markdown_escaped(commands) != commands:
            return False
        text = shown(commands)
        max_length = _MAX_LENGTHS["next_steps"] - _LEFT_OUT_LENGTH
        # The limits of an embedded text.
        return len(text) <= max_length and len(text.encode(errors="replace")) <= 2 * max_length

    return shown(steps_in_words(steps, fits))


def _with_bounded_text(value: object, max_length: int) -> object:
    if isinstance(value, str):
        return embeddable_text(value, max_length)
    if isinstance(value, RunLinks):
        return _bounded_links(value)
    if isinstance(value, Struct):
        return _with_bounded_texts(value)
    if isinstance(value, tuple):
        return tuple(_with_bounded_text(item, max_length) for item in value[:5])
    if isinstance(value, Mapping):
        return {
            name: item for name, item in islice(value.items(), 16) if len(name) <= _MAX_SIZE_LENGTH
        }
    return value


class RunNotice(_RunDetail, frozen=True, kw_only=True):
    """A notice of a running task. What is unknown is left out.

    ``text`` is what the run does, and the notice's sentence with the numbers. No text has a
    quotation mark, backslash or control character: input transformers insert texts as they are.
    ``notice.kind`` is ``stuck``, ``overdue``, ``memory``, ``disk``, or one that a newer monitor
    knows; ``notice.since`` is the time from which on its condition was met. ``container`` is the
    name of the batch container. ``metrics`` are those so far.
    """

    notice: Notice
    started_at: str | None = None
    metrics: Metrics | None = None
    links: RunLinks | None = None


class ScheduleNoticeDetail(_DetailTexts, frozen=True, kw_only=True):
    """A notice of a schedule. What is unknown is left out.

    ``text`` is the notice's sentence, with the limits of ``text`` in an ended run. ``notice.kind``
    is ``missed``, ``late``, ``overlapped``, ``slow``, or one that a newer function knows;
    ``notice.dueAt`` is the due time, ``notice.taskId`` the task or the job concerned.
    ``schedule.kind`` is ``schedule`` or ``rule``; ``schedule.group`` is the schedule group or the
    event bus. Of a schedule that submits jobs to a ``queue`` of AWS Batch, ``family`` is their
    definition's name.
    """

    schedule: NoticedSchedule
    notice: ScheduleNotice
    cluster: str | None = None
    queue: str | None = None
    family: str | None = None
    links: RunLinks | None = None


class NightSummaryDetail(_DetailTexts, frozen=True, kw_only=True):
    """The runs whose ends became known since the last message: ``text`` is the whole message, its
    lines after one another.

    ``night`` is the day on which that time began, ``lines`` are the single lines. The texts have
    the same characters as those of an ended run.
    """

    night: str
    lines: tuple[str, ...] = ()


class JobNoticeDetail(_DetailTexts, frozen=True, kw_only=True):
    """A job of AWS Batch that has ended, or that cannot start and blocks its queue (``isBlocked``).
    What is unknown is left out.

    ``text`` is one sentence about the job: how it ended, what earlier attempts ended with, how long
    it took, and what all attempts cost. ``batch`` names it. ``attempts`` is the number of its
    attempts. ``statusReason`` is AWS's, or the text of whoever terminated the job. The texts have
    the same characters as those of an ended run.
    """

    batch: BatchJob
    job_arn: str | None = None
    region: str | None = None
    account_id: str | None = None
    status: str | None = None
    status_reason: str | None = None
    is_blocked: bool = False
    attempts: int = 0
    started_at: str | None = None
    finished_at: str | None = None


# The types of the details that have a JSON Schema in docs/, and its title, by the name of its file.
DETAILS: Mapping[str, tuple[type[Struct], str]] = {
    "task-run-ended": (EndedRunDetail, "Detail of the event Task Run Ended"),
    "task-run-notice": (RunNotice, "Detail of the event Task Run Notice"),
    "schedule-notice": (ScheduleNoticeDetail, "Detail of the event Schedule Notice"),
    "night-summary": (NightSummaryDetail, "Detail of the event Night Summary"),
    "batch-job-notice": (JobNoticeDetail, "Detail of the event Batch Job Notice"),
}


def job_notice_detail(notice: JobNotice) -> JobNoticeDetail:
    """The detail of a job's end, or of a job that waits."""
    job = notice.job
    identity = job.batch_job_of_attempt()
    first = job.attempts[0].started_ms if job.attempts else job.started_ms
    facts = notice.facts_and_advice_text
    detail = _with_bounded_texts(
        JobNoticeDetail(
            text=_truncated_before_command(
                f"{notice.title}{': ' if facts else '.'}{facts}",
                notice.reduced_memory,
            ),
            summary=_job_times_sentence(notice, first),
            next_steps=_next_steps_text(
                f"Job {job_text(identity)}", None, links_of_job(job), steps_after_job(notice)
            ),
            batch=identity,
            job_arn=job.arn,
            region=job.region,
            account_id=job.account_id,
            status=job.status,
            status_reason=job.status_reason,
            is_blocked=notice.is_blocked,
            attempts=len(job.attempts),
            started_at=_rfc3339_time(first),
            finished_at=_rfc3339_time(job.stopped_ms),
        )
    )
    return _with_markdown_texts(detail)


def _rfc3339_time(moment_ms: int | None) -> str | None:
    return known(format_datetime, datetime_of_ms(moment_ms))


def run_notice_detail(line: NoticeLine, *, kibana_url: str | None) -> RunNotice:
    """The detail of a notice of a running task."""
    record = line.record
    cluster = cluster_name(record.cluster)
    links = _bounded_links(links_of_line(line, kibana_url))
    detail = _with_bounded_texts(
        RunNotice(
            text=f"{run_title(line)}. {line.notice.message}",
            summary=_notice_summary_text(line),
            next_steps=_next_steps_text(
                f"Task {record.task_id}", cluster, links, steps_while_running(line)
            ),
            task_id=record.task_id,
            task_arn=record.task_arn,
            cluster=cluster,
            family=record.family or _UNKNOWN,
            revision=record.revision,
            container=record.container.name,
            notice=line.notice,
            started_at=record.started_at,
            metrics=record.metrics,
            links=links,
        )
    )
    return _with_markdown_texts(detail)


def schedule_notice_detail(
    line: ScheduleNoticeLine, *, kibana_url: str | None
) -> ScheduleNoticeDetail:
    """The detail of a notice of a schedule."""
    cluster = cluster_name(line.cluster)
    links = _bounded_links(links_of_schedule_notice(line, kibana_url))
    subject = f"Family {line.family or _UNKNOWN}"
    if line.is_of_jobs:
        subject = f"Job definition {line.family or _UNKNOWN} in queue {line.queue}"
    detail = _with_bounded_texts(
        ScheduleNoticeDetail(
            text=line.notice.message or schedule_title(line),
            summary=_schedule_summary_text(line),
            next_steps=_next_steps_text(subject, cluster, links, steps_after_due_time(line)),
            schedule=line.schedule,
            notice=line.notice,
            cluster=cluster,
            queue=line.queue,
            family=line.family,
            links=links,
        )
    )
    return _with_markdown_texts(detail)


def _notice_summary_text(line: NoticeLine) -> str:
    """How long the run has been running, and its numbers so far."""
    metrics = line.record.metrics
    story = story_of(line.record, outcome_of(line.record))
    cpu, memory = value_formats.cpu_and_memory_words(story)
    duration = known(format_duration, metrics.duration_ms)
    sentences = (
        f"Running for {duration}." if duration else "It is running.",
        _sentence_if_value("CPU: {}.", cpu),
        _sentence_if_value("Memory: {}.", memory),
        story.first_sentence_named("GPU use"),
        story.first_sentence_named("Neuron use"),
    )
    return " ".join(filter(None, sentences))


def _schedule_summary_text(line: ScheduleNoticeLine) -> str:
    """What the schedule is, and when it is due next."""
    schedule = line.schedule
    when = " ".join(filter(None, (schedule.expression, schedule.time_zone)))
    kind = "rule" if schedule.kind == "rule" else "schedule"
    sentence = f"The {kind} {schedule.name} is {when}." if when else f"The {kind} {schedule.name}."
    at = parse_datetime(line.notice.next_due_at)
    return sentence + words_if_known(" It is due next on {0:%Y-%m-%d} at {0:%H:%M} UTC.", at)


def night_summary_detail(summary: NightSummary) -> NightSummaryDetail:
    """The detail of the morning message. Its commands are our own, and Markdown shows them whole:
    with the address of the search cluster, which somebody copies: no full stop follows them.
    """
    sentence = embeddable_text(summary.sentence, _MAX_LINE_LENGTH)
    lines = []
    said = [sentence]
    commands = [""]
    for line in summary.lines:
        at = words_if_known(", {:%Y-%m-%d %H:%M} UTC", line.at)
        text = embeddable_text(line.text, _MAX_TEXT_LENGTH)
        command = (
            f" {line.command}" if line.command and is_command_shown_whole(line.command) else ""
        )
        lines.append(f"{text}{at}{command}")
        said.append(f"{text}{at}" if command else f"{f'{text}{at}'.removesuffix('.')}.")
        commands.append(command)
    # At once, as a line can begin a stress that a later one ends.
    marked = markdown_escaped("\n".join(said)).split("\n")
    return NightSummaryDetail(
        text=_BULLET.join(map(add, said, commands)),
        markdown=_BULLET.join(map(add, marked, commands)),
        night=summary.night,
        lines=tuple(lines),
    )


def run_title(line: NoticeLine) -> str:
    """Return the notice in short, such as "nightly-etl:5 has been stuck for 30 minutes"; the
    texts are not escaped.
    """
    record = line.record
    notice = line.notice
    name = record.family or _UNKNOWN
    if record.revision:
        name = f"{name}:{record.revision}"
    minutes = None if notice.evidence is None else notice.evidence.minutes
    if notice.kind == "stuck" and minutes:
        return f"{name} has been stuck for {format_minutes(minutes)}"
    return f"{name} {_RUN_PREDICATES.get(notice.kind, f'has a notification of kind {notice.kind}')}"


def schedule_title(line: ScheduleNoticeLine) -> str:
    """Return the outcome of the schedule, such as "nightly-etl did not run"; the texts are not
    escaped.
    """
    kind = line.notice.kind
    return (
        f"{line.schedule.name} "
        f"{_SCHEDULE_PREDICATES.get(kind, f'has a notification of kind {kind}')}"
    )
