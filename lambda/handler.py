"""The entry points of the Lambda functions.

Real clients are built here alone, for the first event that needs them.
"""

import gc
import json
import os
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from profiler.core.aws_clients import bounded_client, open_session
from profiler.core.ecs_terms import arn_account
from profiler.core.json_fields import mapping_or_empty
from profiler.core.timestamps import NS_PER_DAY, NS_PER_SECOND, format_datetime
from profiler.forwarder import function_settings
from profiler.forwarder.document_updates import Document
from profiler.forwarder.ended_run import EndedTask, FamilyComparison, MemoryRetry
from profiler.forwarder.family_runs import (
    COMPARISON_SECONDS,
    FamilyContainer,
    FamilyDurations,
    FamilyPeaksCache,
    FamilyRatesCache,
    FamilyRunReader,
)
from profiler.forwarder.function_settings import Credentials, ForwarderSettings, NoticeSettings
from profiler.forwarder.indexed_report import find_indexed_report
from profiler.forwarder.invocation import (
    NO_TIME_TO_NOTIFY,
    RESERVED_SECONDS,
    DeliveryError,
    ForwarderError,
    InvocationTime,
    LambdaContext,
    NamedContext,
    RetryBackoff,
    SearchClusterError,
    SettingsError,
    configure_library_logging,
    raise_errors,
)
from profiler.forwarder.notice_documents import schedule_notice_document
from profiler.forwarder.notifications.idempotency import EndlessLambdaContext, run_idempotently
from profiler.forwarder.notifications.notification import NoticeChannel
from profiler.forwarder.notifications.running_task_notices import RunningTaskNotices
from profiler.forwarder.report_finder import ReportFinder, ReportLine, TaskContainers
from profiler.forwarder.search_cluster import document_delivery as delivery
from profiler.forwarder.search_cluster.bulk_client import SearchCluster, SecretCluster
from profiler.forwarder.stopped_task_reads import LogStreamTailReader, TaskDefinitionReader
from profiler.forwarder.subscription import LineCounts, LineForwarder, decode_subscription_event
from profiler.forwarder.task_stopped import TaskStoppedHandler, TaskStoppedResult
from profiler.record.batch_job import NO_JOB
from profiler.record.family_identity import matches_any
from profiler.record.family_statistics import HighestPeak
from profiler.record.line_trust import TrustedGroups, read_trusted_globs
from profiler.record.notice_model import ScheduleNoticeLine, encode_notice_line
from profiler.record.stopped_task import (
    EventContainer,
    StoppedTask,
    parse_stopped_task,
)
from profiler.record.units import format_count

if TYPE_CHECKING:  # imported for the events that need them
    from profiler.aws_account.eventbridge_calls import FoundSchedules, ScheduleReader
    from profiler.aws_account.instance_monitors import EcsMonitorTasks, InstanceMonitorReader
    from profiler.aws_account.job_descriptions import BatchJobReader
    from profiler.forwarder.digest_delivery import NightMessage
    from profiler.forwarder.ended_lines import PrintedRuns
    from profiler.forwarder.morning_digest import NightSaving
    from profiler.forwarder.night_period import NightPeriod
    from profiler.forwarder.night_runs import FamilyHistory, MissedTimes, NightRuns
    from profiler.forwarder.night_searches import NightReader
    from profiler.record.batch_job_detail import JobDetail
    from profiler.schedules.remembered_tasks import EndedScheduleMemory, RuleMemory, TaskMemory
    from profiler.schedules.schedule_model import ReadTasks, Schedule

# The documents of lines contain no cycles: with Python's own limit of 700, the collector takes a
# seventh of the time of forward_logs to find none.
_NEW_OBJECTS_TO_COLLECT = 50_000
_NOTICE_RESERVE_SECONDS = 20.0
# Slack leaves this time to the other channels and to the table. Afterwards, no notice of a running
# task is begun.
_MAX_LAST_SECONDS = 8.0
# The time for the report, the document and the notice, once the task definition is known.
_AFTER_DEFINITION_SECONDS = 40.0
# The time for an attempt of a call of AWS that gets no answer, and then for the morning message.
_AFTER_READING_SECONDS = 20.0
_MONITORS_KEPT_NS = 300 * NS_PER_SECOND
_RATES_KEPT_NS = 3600 * NS_PER_SECOND
_PEAKS_KEPT_NS = 600 * NS_PER_SECOND
# The time of the export, which comes last; of an invocation that is nearly over, it has a quarter
# at most.
_EXPORT_SECONDS = 5.0
# Due times of the last day are judged, by what was submitted since, and by what still ran then.
_LISTED_NS = 3 * NS_PER_DAY


def forward_logs(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, object]:
    """CloudWatch Logs subscription, or a Kinesis data stream: index reports and notices, and
    send the notices.

    Returns ``{"indexed": n, "skipped": n, "failed": n, "untrusted": n}``; for a stream,
    ``{"batchItemFailures": […]}``. Raises ForwarderError if Lambda must retry the event.
    """
    configure_library_logging()
    records = event.get("Records")
    if isinstance(records, list):
        counts, repeated = _line_forwarder(context).forward_kinesis_records(records, _warn)
        _log({"level": "info", "event": "Forwarded the records of a stream.", **asdict(counts)})
        return {"batchItemFailures": [{"itemIdentifier": number} for number in repeated]}
    payload = decode_subscription_event(event)
    if not payload.has_log_lines:
        return asdict(LineCounts())
    return asdict(_line_forwarder(context).forward_payload(payload))


def _line_forwarder(context: LambdaContext) -> LineForwarder:
    gc.set_threshold(_NEW_OBJECTS_TO_COLLECT)
    notices = _task_notices(context)
    settings = _with_monitor_tasks(_settings())
    keep_failures = partial(_keep_failures, settings.failed_items_queue_url)
    return LineForwarder(
        settings,
        partial(_index_documents, settings, context, notices),
        keep_failures,
        notices,
        _warn,
    )


def task_stopped(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, object]:
    """EventBridge "ECS Task State Change": complete the run's document and post a notice.

    Returns ``{"status": …, "indexed": bool, "notified": "success" | "failure" | None}``. Raises
    ForwarderError if Lambda must retry the event.
    """
    if mapping_or_empty(event).get("source") == "aws.batch":  # a rule of the stack sends both here
        return batch_job_changed(event, context)
    task = parse_stopped_task(event)
    if task is None:
        return asdict(TaskStoppedResult())
    configure_library_logging()
    if task.batch is not NO_JOB and function_settings.read_batch_jobs(os.environ):
        # With its name and its definition, which ECS does not know.
        task = replace(task, batch=_job_reader().with_batch_names(task.batch))
    if task.unusable:
        names = ", ".join(task.unusable)
        _warn(f"The event of task {task.id} has values that cannot be used: {names}.")
    handler = TaskStoppedHandler(_InvocationAccount(context), _InvocationOutputs(context))
    return asdict(handler.handle(task))


def batch_job_changed(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, object]:
    """EventBridge "Batch Job State Change" and "Batch Job Queue Blocked": one message a job.

    Returns ``{"status": …, "indexed": bool, "notified": "success" | "failure" | None}``. Raises
    ForwarderError if Lambda must retry the event.
    """
    # Seldom needed.
    from profiler.forwarder.job_changed import HandledJob, JobChangedHandler
    from profiler.record.batch_job_detail import parse_job_event

    changed = parse_job_event(event)
    if changed is None:
        return asdict(HandledJob())
    configure_library_logging()
    jobs = _job_reader()
    handler = JobChangedHandler(
        outputs=_InvocationOutputs(context),
        list_failed=jobs.failed_children,
        definition=jobs.describe_definition,
        start_again=partial(_submit_again, context),
    )
    return asdict(handler.handle(changed))


def _submit_again(context: LambdaContext, job: "JobDetail") -> MemoryRetry | None:
    """Submit a job that was killed for memory again; None if it must not be."""
    if not os.environ.get("RETRY_OUT_OF_MEMORY", "").strip():
        return None
    from profiler.forwarder.job_retry import JobAwsClients, JobRetrier  # only for a retry

    table = function_settings.read_key_table(os.environ)
    retries = JobRetrier(
        *function_settings.read_retry_settings(os.environ),
        # One attempt of a submission: after a lost answer, botocore's next one would be a second
        # job.
        aws=lambda: JobAwsClients(
            _client("batch"), _client("batch", None, 1), _client("ecs"), _schedule_reader()
        ),
        remember=_idempotently(context),
        begin=None if table is None else partial(run_idempotently, table, EndlessLambdaContext()),
        now=lambda: datetime.now(UTC),
        warn=_warn,
    )
    return retries.retry_killed_job(job)


class _InvocationAccount:
    """The account of a stopped task, in an invocation."""

    def __init__(self, context: LambdaContext) -> None:
        self._context = context
        self._budget = InvocationTime(context)

    def describe_definition(self, definition_arn: str) -> Mapping[str, object] | None:
        return _definitions().describe_definition(definition_arn, _definition_wait(self._context))

    def report_finder(self, task: StoppedTask, containers: TaskContainers) -> ReportFinder:
        trusted = TrustedGroups(globs=read_trusted_globs(os.environ))
        return ReportFinder(_log_tail().read_newest_pages, self._budget, task, containers, trusted)

    def is_on_instance(self, task: StoppedTask) -> bool:
        return _instance_monitors(time.time_ns() // _MONITORS_KEPT_NS).is_task_reported(task)

    def start_again(
        self, ended: EndedTask, definition: Mapping[str, object] | None
    ) -> MemoryRetry | None:
        if not os.environ.get("RETRY_OUT_OF_MEMORY", "").strip():
            return None
        from profiler.forwarder.task_retry import TaskRetrier  # only for a retry

        retries = TaskRetrier(
            *function_settings.read_retry_settings(os.environ),
            aws=lambda: (_client("ecs"), _schedule_reader()),
            family=lambda: (
                _family_reader(self._budget.remaining_seconds() / 4)
                if _settings().has_cluster
                else None
            ),
            remember=_idempotently(self._context),
            now=lambda: datetime.now(UTC),
            warn=_warn,
            knows_earlier=function_settings.read_key_table(os.environ) is not None,
        )
        return retries.retry_killed_task(ended, definition)


class _InvocationIndex:
    """The search cluster, in an invocation."""

    def __init__(self, context: LambdaContext, settings: ForwarderSettings) -> None:
        self.settings = settings
        self._context = context
        self._cluster = _search_cluster(settings)

    def find_report(self, task: StoppedTask, batch: EventContainer) -> ReportLine | None:
        budget = InvocationTime(self._context)
        return find_indexed_report(self._cluster, budget, self.settings, task, batch)

    def deliver(self, documents: Sequence[Document]) -> delivery.DeliveryResult:
        with_savings = _with_savings(documents, self._context)
        return _write_documents(self._cluster, _index_budget(self._context), with_savings)

    def search_attempts(self, query: Mapping[str, object]) -> Mapping[str, object]:
        left_seconds = InvocationTime(self._context).remaining_seconds() / 4
        reports = f"{self.settings.indices.prefix}-reports-*"
        return self._cluster.search(reports, query, max(1.0, left_seconds))

    def compare_with_family(self, ended: EndedTask) -> FamilyComparison | None:
        left_seconds = InvocationTime(self._context).remaining_seconds() / 2 - RESERVED_SECONDS
        if left_seconds <= 0:
            return None
        return _family_reader(left_seconds).compare_with_family(ended)


class _InvocationOutputs:
    """The channels, the cluster, the export and the function's log, in an invocation."""

    def __init__(self, context: LambdaContext) -> None:
        self._context = context

    def settings(self) -> NoticeSettings:
        return function_settings.read_notice_settings(os.environ)

    def document_index(self) -> _InvocationIndex | None:
        settings = _settings()
        return _InvocationIndex(self._context, settings) if settings.has_cluster else None

    def channels(self, settings: NoticeSettings) -> list[NoticeChannel]:
        return _all_channels(settings, _notice_budget(self._context))

    def run_once(self, key: str, work: Callable[[], object]) -> object:
        return _idempotently(self._context)(key, work)

    def print_line(self, line: str) -> None:
        _print_line(line)

    def export(self, ended: EndedTask) -> None:
        _export(ended, self._context)

    def warn(self, sentence: str) -> None:
        _warn(sentence)


def _family_reader(left_seconds: float) -> FamilyRunReader:
    settings = _settings()
    timeout_seconds = max(1.0, min(left_seconds, COMPARISON_SECONDS))
    return FamilyRunReader(
        cluster=_search_cluster(settings),
        prefix=settings.indices.prefix,
        timeout_seconds=timeout_seconds,
        now=datetime.now(UTC),
    )


def watch_schedules(_event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, object]:
    """Every few minutes: alert to missed, late, overlapping and slow runs of schedules.

    Returns the numbers of schedules, of those whose due times are unknown, and of the new notices
    of each kind. Raises ForwarderError if a part failed after all were tried.
    """
    # The other functions seldom need these.
    from profiler.aws_account.missed_reasons import MissedReasonFinder
    from profiler.forwarder.notifications.channels import configured_channels
    from profiler.forwarder.schedule_watch import ScheduleNotifier, ScheduleWatch

    configure_library_logging()
    settings = function_settings.read_notice_settings(os.environ)
    if not function_settings.read_key_table(os.environ):
        raise SettingsError(
            "IDEMPOTENCY_TABLE is not set: without it, every invocation would repeat the "
            "notifications."
        )
    whole = InvocationTime(context)
    # A search cluster or Slack that does not respond must not take the time of the others.
    reading, storing, posting = (
        InvocationTime(context, reserved_seconds=part * whole.remaining_seconds())
        for part in (0.5, 0.35, 0.15)
    )
    tasks, rules, ended, finished = _schedule_watch_state()
    watch = ScheduleWatch(
        schedules=partial(_watched_schedules, reading),
        tasks=partial(_started_by_schedules, reading),
        remember=tasks.remember_tasks,
        rules=rules,
        ended=ended,
        reasons=MissedReasonFinder(_client, pause=whole.sleep, warn=_warn),
        usual=partial(_usual_durations, storing) if _has_cluster() else None,
        notifier=ScheduleNotifier(
            settings,
            configured_channels(settings, os.environ, posting, lambda: _client("events")),
            _idempotently(context),
            partial(_store_notice, storing),
            finished,
        ),
        grace_minutes=function_settings.read_grace_minutes(os.environ),
        now_ns=time.time_ns(),
        may_read=lambda: reading.remaining_seconds() > 0,
        may_notify=lambda: whole.remaining_seconds() > RESERVED_SECONDS,
    )
    return watch.judge_and_notify()


def _watched_schedules(budget: InvocationTime) -> "FoundSchedules":
    """The schedules and timed rules, also those of state machines that start tasks or jobs, as far
    as these can be read and list their executions.
    """
    # As in watch_schedules.
    from profiler.aws_account.scheduled_machines import read_machine_schedules

    found = _schedule_reader().read_timed_schedules(
        lambda: budget.remaining_seconds() > 0, with_jobs=True, with_machines=True
    )
    machines = read_machine_schedules(
        _client,
        found.of_machines,
        _warn,
        now_ns=time.time_ns(),
        idle=_idle_machines(),
        may_continue=lambda: budget.remaining_seconds() > 0,
    )
    judged = [one.schedule for one in machines if not (one.is_gone or one.is_express)]
    return replace(found, schedules=(*found.schedules, *judged))


def _started_by_schedules(
    budget: InvocationTime, arn: str, schedules: "Sequence[Schedule]", now_ns: int
) -> "ReadTasks":
    """What these schedules started in a cluster, in a queue of AWS Batch or of a state machine."""
    # As in watch_schedules.
    from profiler.aws_account.scheduled_jobs import read_queues
    from profiler.aws_account.scheduled_machines import read_executions
    from profiler.aws_account.started_tasks import read_clusters
    from profiler.schedules.schedule_model import ReadTasks

    if any(schedule.is_of_machine for schedule in schedules):
        return read_executions(_client, schedules, now_ns, now_ns - _LISTED_NS)[arn]
    if not any(schedule.is_of_jobs for schedule in schedules):
        return read_clusters(_client("ecs"), [arn], now_ns)[arn]
    queues = read_queues(
        _client,
        schedules,
        now_ns,
        pause=budget.sleep,
        since_ns=now_ns - _LISTED_NS,
        may_continue=lambda: budget.remaining_seconds() > 0,
    )
    return queues.get(arn, ReadTasks())


def _usual_durations(
    budget: InvocationTime, families: Collection[str], place: str
) -> FamilyDurations:
    return _family_reader(budget.remaining_seconds()).read_usual_durations(families, place)


def morning_digest(_event: Mapping[str, Any], context: NamedContext) -> Mapping[str, object]:
    """Each morning: one message about the runs whose ends became known since the last one.

    Returns the day of the ``night``, and whether a channel was ``notified``. Raises ForwarderError
    if Lambda must retry.
    """
    # The other functions do not need these.
    from profiler.forwarder.digest_delivery import DigestSender, StoredLastMessages
    from profiler.forwarder.night_period import NightPeriod
    from profiler.record.last_night import last_night

    configure_library_logging()
    settings = function_settings.read_notice_settings(os.environ)
    table = function_settings.read_key_table(os.environ)
    if not table:
        raise SettingsError(
            "IDEMPOTENCY_TABLE is not set: without it, a retry would repeat the morning message."
        )
    zone = function_settings.read_digest_zone(os.environ)
    now = datetime.now(zone)
    now_ns = round(now.timestamp() * NS_PER_SECOND)
    delivery_of_today = DigestSender(
        last_messages=StoredLastMessages(table=table, client=_client("dynamodb")),
        message_of=partial(_night_message, settings=settings, context=context),
        once=_idempotently(context),
        period_of=lambda last: NightPeriod(last=last, end_ns=now_ns, zone=zone),
        now_ns=now_ns,
    )
    errors: list[ForwarderError] = []
    sent = delivery_of_today.send(_all_channels(settings, InvocationTime(context)), errors)
    raise_errors(errors)
    return {"night": last_night(now).day.isoformat(), "notified": bool(sent)}


def _night_message(
    period: "NightPeriod", *, settings: NoticeSettings, context: NamedContext
) -> "NightMessage":
    """What became known in the period. Raises ForwarderError."""
    # The other functions do not need these.
    from profiler.forwarder.digest_delivery import NightMessage
    from profiler.forwarder.morning_digest import NO_SAVING, DigestPlace, summarize_night
    from profiler.forwarder.night_runs import (
        FamilyHistory,
        MissedTimes,
        night_runs_of_printed,
    )
    from profiler.forwarder.night_searches import NightReader

    searched = _settings()
    missed = MissedTimes()
    history = FamilyHistory()
    saving = NO_SAVING
    if not searched.has_cluster:
        printed = _printed_runs(period, context)
        period = printed.read_part_of(period)
        runs = night_runs_of_printed(
            printed,
            period,
            lambda run: (
                matches_any(run.family, settings.families)
                and (settings.services or not run.service)
            ),
            kept_days=function_settings.read_kept_days(os.environ),
        )
    else:
        cluster = NightReader(
            cluster=_search_cluster(searched),
            prefix=searched.indices.prefix,
            account_id=arn_account(context.invoked_function_arn),
            region=searched.region,
            timeout_seconds=InvocationTime(context).remaining_seconds() / 5,
            globs=settings.families,
            with_services=settings.services,
        )
        runs, missed, history = _searched_night(cluster, period)
        saving = _night_saving(history, period.end_ns, context)
    place = DigestPlace(
        region=searched.region,
        source=searched.cluster_source_argument,
        stack=context.function_name.removesuffix("-morning-digest"),
    )
    return NightMessage(
        summary=summarize_night(period, runs, missed, history, place, saving=saving),
        remembered=period.next_remembered(
            runs.remembered,
            missed.remembered,
            jobs=runs.told_jobs,
            until_ns=runs.until_ns,
            due_until_ns=missed.until_ns,
        ),
    )


def _printed_runs(period: "NightPeriod", context: LambdaContext) -> "PrintedRuns":
    """What `task_stopped` has printed of the period. Raises ReadError."""
    from profiler.forwarder.ended_lines import EndedLineReader

    left_seconds = InvocationTime(context).remaining_seconds()
    reserved_seconds = min(_AFTER_READING_SECONDS, left_seconds / 2)
    lines = EndedLineReader(
        client=_client("logs", None, 1),  # it repeats a call itself, within its time
        group=os.environ.get("TASK_STOPPED_LOG_GROUP", "").strip(),
        budget=InvocationTime(context, reserved_seconds=reserved_seconds),
    )
    return lines.read_printed_runs(period)


def _searched_night(
    cluster: "NightReader", period: "NightPeriod"
) -> "tuple[NightRuns, MissedTimes, FamilyHistory]":
    """The runs, and the rest as far as it can be searched. Raises SearchClusterError."""
    from profiler.forwarder.night_runs import FamilyHistory, MissedTimes

    runs = cluster.read_runs(period)
    try:
        missed = cluster.read_missed_times(period)
    except SearchClusterError as error:
        missed = MissedTimes(
            remembered=period.last.due_times, until_ns=period.due_from_ns, problem=str(error)
        )
    try:
        history = cluster.read_history(runs.family_names)
    except SearchClusterError as error:
        history = FamilyHistory(problem=str(error))
    return runs, missed, history


def _night_saving(history: "FamilyHistory", now_ns: int, context: LambdaContext) -> "NightSaving":
    """What `taskdef resize` would save, of the families with the largest savings; nothing if no
    family's last runs recommend a cheaper size.
    """
    from profiler.forwarder.morning_digest import MAX_SIZED, NO_SAVING, families_with_saving

    families = families_with_saving(history)
    if not families:
        return NO_SAVING
    from profiler.forwarder.night_savings import (
        BudgetedSearchCluster,
        NightSavingPlanner,
        ReadBudget,
    )

    settings = _settings()
    whole_seconds = InvocationTime(context).remaining_seconds()
    reserved_seconds = max(whole_seconds / 2, _AFTER_READING_SECONDS)
    reading = InvocationTime(context, reserved_seconds=reserved_seconds)
    budget = ReadBudget(lambda: reading.remaining_seconds() > 0)
    sizes = NightSavingPlanner(
        cluster=BudgetedSearchCluster(
            cluster=_search_cluster(settings), budget=budget, timeout_seconds=whole_seconds / 5
        ),
        prefix=settings.indices.prefix,
        open_client=budget.clients_with_counted_calls(bounded_client),
        on_problem=_warn,
        now_ns=now_ns,
    )
    return sizes.plan_saving(families[:MAX_SIZED])


def _store_notice(budget: InvocationTime, line: ScheduleNoticeLine) -> None:
    """Index a notice of a schedule or, without a search cluster, print it: the function's log is
    their list.
    """
    settings = _settings()
    text = encode_notice_line(line).decode()
    if not settings.has_cluster:
        _print_line(text)
        return
    document = schedule_notice_document(line, text, settings)
    for rejected in delivery.deliver_documents(
        _search_cluster(settings), budget, [document]
    ).rejected:
        raise DeliveryError(
            f"The cluster refused the notice of {line.schedule.name}: {rejected.reason}"
        )


def _index_documents(
    settings: ForwarderSettings,
    context: LambdaContext,
    notices: RunningTaskNotices,
    documents: Sequence[Document],
) -> delivery.DeliveryResult:
    """Connect to the search cluster only if there are documents for it.

    Without one, notices are only sent.
    """
    if not settings.has_cluster and all(document.notice for document in documents):
        return delivery.DeliveryResult(indexed=0)
    budget = InvocationTime(context) if notices.is_empty else _index_budget(context)
    return _write_documents(_search_cluster(settings), budget, _with_savings(documents, context))


def _write_documents(
    cluster: SearchCluster, budget: InvocationTime, documents: Sequence[Document]
) -> delivery.DeliveryResult:
    """Write the documents, and say if the indices of their runs were not searched as a whole, or
    a pipeline of the cluster has dropped some.
    """
    now = format_datetime(datetime.now(UTC))
    delivered = delivery.deliver_documents(cluster, budget, documents, now)
    for index, count in delivered.dropped.items():
        _warn(
            f"An ingest pipeline of the search cluster dropped {format_count(count, 'document')} "
            f"of {index}, which no chart and no command can show: look at "
            "index.default_pipeline and index.final_pipeline of the index and its template."
        )
    for index, fields in delivered.left_out.items():
        if fields:
            _warn_once(
                f"The index {index} takes no field that its mapping lacks, so documents were "
                f"written without {', '.join(fields)}: run `task-profiler kibana import`, whose "
                'templates the next index has, or set "dynamic" of this index to false.'
            )
    for gap in delivered.completeness.gaps:
        _warn_once(
            f"Where {gap.place} has runs already is only known in part, so a run may have two "
            f"documents ({gap.reason}): check the health of its indices."
        )
    return delivered


def _with_savings(documents: Sequence[Document], context: LambdaContext) -> Sequence[Document]:
    """Add the savings of a month, if there is time to look the families' runs up."""
    left_seconds = InvocationTime(context).remaining_seconds() / 10
    if left_seconds < 1:
        return documents
    return _rates().documents_with_monthly_savings(
        documents, lambda: _family_reader(left_seconds), time.time_ns()
    )


def _task_notices(context: LambdaContext) -> RunningTaskNotices:
    whole = InvocationTime(context)

    @cache
    def last_seconds() -> float:
        # From the first notice on, this time stays the same.
        return min(_MAX_LAST_SECONDS, whole.remaining_seconds() / 4)

    def once(key: str, work: Callable[[], object]) -> object:
        if whole.remaining_seconds() < last_seconds():
            raise DeliveryError(NO_TIME_TO_NOTIFY)
        return _idempotently(context)(key, work)

    return RunningTaskNotices(
        lambda: function_settings.read_notice_settings(os.environ),
        channels=lambda settings: _all_channels(
            settings, InvocationTime(context, reserved_seconds=last_seconds())
        ),
        once=once,
        now=lambda: datetime.now(UTC),
        warn=_warn_once,
        peaks=partial(_known_peaks, whole),
        ends=partial(_known_ends, whole),
        told=_told_notices(),
    )


def _known_peaks(
    whole: InvocationTime, wanted: Sequence[tuple[str, FamilyContainer]]
) -> Mapping[FamilyContainer, HighestPeak]:
    """Return what earlier successes reached, if there is time to look it up in the cluster."""
    left_seconds = whole.remaining_seconds() / 10
    if not wanted or not _has_cluster() or left_seconds < 1:
        return {}
    return _peaks().known_peaks(wanted, lambda: _family_reader(left_seconds), time.time_ns())


def _known_ends(whole: InvocationTime, runs: Sequence[str]) -> Mapping[str, datetime]:
    """Return when the runs ended that have, if there is time to look it up in the cluster."""
    left_seconds = min(whole.remaining_seconds() / 10, COMPARISON_SECONDS)
    if not _has_cluster() or left_seconds < 1:
        return {}
    settings = _settings()
    searched = f"{settings.indices.prefix}-reports-*"
    try:
        return _search_cluster(settings).ends_of_runs(searched, runs, left_seconds)
    except ForwarderError:  # a notice too many is better than none
        return {}


def _index_budget(context: LambdaContext) -> InvocationTime:
    """Return the search cluster's time: without 20 s for the notice, or half if less than 40 s
    are left.
    """
    remaining_seconds = InvocationTime(context).remaining_seconds()
    notice_seconds = min(_NOTICE_RESERVE_SECONDS, remaining_seconds / 2)
    # The seconds that every retry reserves at the end are a part of the notice's time.
    return InvocationTime(context, reserved_seconds=max(0.0, notice_seconds - RESERVED_SECONDS))


def _notice_budget(context: LambdaContext) -> InvocationTime:
    """Return the time for notices, without the time of the export."""
    if not function_settings.has_export_address(os.environ):
        return InvocationTime(context)
    left_seconds = InvocationTime(context).remaining_seconds()
    return InvocationTime(context, reserved_seconds=min(_EXPORT_SECONDS, left_seconds / 4))


def _export(ended: EndedTask, context: LambdaContext) -> None:
    """Export the run, if a target is configured. What fails goes into the queue."""
    if not function_settings.has_export_address(os.environ):
        return
    # Only for an export.
    from profiler.core.clock import SystemClock
    from profiler.forwarder.run_export import EndedRunExporter
    from profiler.otlp.otlp_export import HttpTransport, OtlpExporter, aws_signer

    queue_url = os.environ.get("FAILED_ITEMS_QUEUE_URL", "").strip()
    keep = None
    if queue_url:
        keep = partial(_keep_unexported, queue_url)
    sign = aws_signer(lambda: open_session(None, None).get_credentials())
    export = EndedRunExporter(
        partial(function_settings.read_export_targets, os.environ),
        OtlpExporter(HttpTransport(), SystemClock(), jitter=random.random, sign=sign),
        keep=keep,
        warn=_warn,
        warn_once=_warn_once,
        now_ns=time.time_ns,
    )
    budget = InvocationTime(context, reserved_seconds=RESERVED_SECONDS)
    export.export(
        ended, _idempotently(context), lambda: min(_EXPORT_SECONDS, budget.remaining_seconds())
    )


def _keep_unexported(queue_url: str, failures: Sequence[delivery.FailedItem]) -> None:
    delivery.send_failures(queue_url, _client("sqs"), failures)


def _idempotently(context: LambdaContext) -> "partial[Any]":
    return partial(run_idempotently, function_settings.read_key_table(os.environ), context)


def _all_channels(settings: NoticeSettings, budget: InvocationTime) -> list[NoticeChannel]:
    """Return every notice channel. One that is not configured accepts no notice."""
    from profiler.forwarder.notifications.channels import configured_channels  # slow to import

    return configured_channels(settings, os.environ, budget, lambda: _client("events"))


def _has_cluster() -> bool:
    """Whether a search cluster is set, even with invalid settings."""
    try:
        return _settings().has_cluster
    except SettingsError:
        return True


def _definition_wait(context: LambdaContext) -> Callable[[], bool]:
    """Return the wait for a throttled task definition, which leaves the time for everything
    else.
    """
    left_seconds = InvocationTime(context).remaining_seconds()
    budget = InvocationTime(
        context, reserved_seconds=min(_AFTER_DEFINITION_SECONDS, left_seconds / 2)
    )
    return RetryBackoff(budget, initial_seconds=1, max_seconds=16, max_request_seconds=1).wait


def _warn(sentence: str) -> None:
    _log({"level": "warning", "event": sentence})


_warn_once = lru_cache(_warn)
_client = cache(bounded_client)
_definitions = cache(lambda: TaskDefinitionReader(_client("ecs"), _warn))
# One attempt: ReportFinder repeats it. botocore would too soon, when tasks stop by the hundred.
_log_tail = cache(
    lambda: LogStreamTailReader(lambda region: _client("logs", region, 1), _warn_once)
)
_peaks = cache(lambda: FamilyPeaksCache(_PEAKS_KEPT_NS))
_rates = cache(lambda: FamilyRatesCache(_RATES_KEPT_NS))
_settings = cache(lambda: function_settings.read_settings(os.environ))


@cache
def _job_reader() -> "BatchJobReader":
    # Only for jobs of AWS Batch.
    from profiler.aws_account.job_descriptions import BatchJobReader

    return BatchJobReader(
        lambda: _client("batch"), _warn_once, now_s=time.monotonic, pause=time.sleep
    )


@cache
def _schedule_reader() -> "ScheduleReader":
    # As in watch_schedules, and only for a retry.
    from profiler.aws_account.eventbridge_calls import ScheduleReader

    return ScheduleReader(_client)


@lru_cache(maxsize=1)
def _instance_monitors(_period: int) -> "InstanceMonitorReader":
    """Return the instance monitors as they are read in this period."""
    # Only for tasks on EC2 without a monitor.
    from profiler.aws_account.instance_monitors import InstanceMonitorReader

    return InstanceMonitorReader(_client("ecs"), _warn_once)


def _with_monitor_tasks(settings: ForwarderSettings) -> ForwarderSettings:
    """Return the settings with ECS's word on instance monitors, if there is one."""
    groups = settings.trusted_groups
    if not groups.instance_monitors:
        return settings
    return replace(settings, trusted_groups=replace(groups, tasks=_monitor_tasks()))


@cache
def _monitor_tasks() -> "EcsMonitorTasks":
    # As above.
    from profiler.aws_account.instance_monitors import EcsMonitorTasks

    return EcsMonitorTasks(_client("ecs"), _warn_once)


@cache
def _told_notices() -> set[str]:
    """Return the keys of notices about memory that every channel has."""
    return set()


@cache
def _idle_machines() -> dict[str, int]:
    """Since when state machines are known to start no tasks and no jobs, by their ARNs."""
    return {}


@cache
def _schedule_watch_state() -> "tuple[TaskMemory, RuleMemory, EndedScheduleMemory, set[str]]":
    """Return what watch_schedules keeps for the next invocation: tasks, rules, schedules that end,
    and the keys of finished notices.
    """
    # As in watch_schedules.
    from profiler.schedules.remembered_tasks import EndedScheduleMemory, RuleMemory, TaskMemory

    return TaskMemory(), RuleMemory(), EndedScheduleMemory(), set()


def _log(line: Mapping[str, object]) -> None:
    _print_line(json.dumps(line))


def _print_line(line: str) -> None:
    print(line)  # noqa: T201  Lambda copies standard output to the function's log


def _search_cluster(settings: ForwarderSettings) -> SearchCluster:
    """Return the search cluster's client.

    Invocations share it as long as the credentials are the same.
    """
    url = settings.url
    secret_id = settings.secret_id
    credentials = settings.credentials
    if not url:
        raise SettingsError("ELASTICSEARCH_URL is not set: set it to the cluster's address.")
    if not secret_id or credentials.api_key or credentials.user_and_password:
        return _connect(settings, url, credentials)
    return SecretCluster(
        lambda fetch: _connect(settings, url, function_settings.read_credentials(secret_id, fetch))
    )


@lru_cache(maxsize=1)
def _connect(settings: ForwarderSettings, url: str, credentials: Credentials) -> SearchCluster:
    if settings.engine == "opensearch":
        # A function needs only one of the two clients.
        from profiler.forwarder.search_cluster.opensearch import OpenSearchCluster

        return OpenSearchCluster(url, credentials, settings.region, settings.ca_file)
    from profiler.forwarder.search_cluster.elasticsearch import ElasticsearchCluster  # as above

    return ElasticsearchCluster(url, credentials, settings.ca_file)


def _keep_failures(queue_url: str | None, failures: Sequence[delivery.FailedItem]) -> None:
    delivery.log_failures(_log, failures)
    if queue_url:
        delivery.send_failures(queue_url, _client("sqs"), failures)
