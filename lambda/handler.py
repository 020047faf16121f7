"""The entry points of both Lambda functions, and the only module that builds real clients.

Clients are built for the first event that needs them, not at import.
"""

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from typing import Any

from forwarder.delivery_errors import SettingsError
from forwarder.documents import Document
from forwarder.function_settings import (
    Credentials,
    ForwarderSettings,
    NoticeSettings,
    fetch_secret,
    read_credentials,
    read_notice_settings,
    read_settings,
)
from forwarder.invocation_time import RESERVED_SECONDS, Context, InvocationTime, configure_library_logging
from forwarder.kinesis_records import forward_records, is_stream_event
from forwarder.notices.channel import NoticeChannel
from forwarder.notices.ended_task import Comparison, EndedTask
from forwarder.notices.family_comparison import COMPARISON_SECONDS, compare
from forwarder.notices.idempotency import Idempotently, run_idempotently
from forwarder.search_cluster.document_delivery import DeliverDocuments, DeliveryResult, deliver
from forwarder.search_cluster.failure_store import (
    Failure,
    KeepFailures,
    log_failure_count,
    log_failures,
    send_failures,
)
from forwarder.search_cluster.interface import SearchCluster
from forwarder.search_cluster.report_search import find_report
from forwarder.subscription import Counts, decode_event, forward
from forwarder.task.find_report import CloudWatchTail, EcsDefinitions, ReportFinder
from forwarder.task.task_event import parse_stopped_task
from forwarder.task_notices import TaskNotices
from forwarder.task_stopped import Index, TaskStoppedHandler, TaskStoppedResult
from profiler.core.aws_clients import AwsClient, bounded_client

_NOTICE_RESERVE_SECONDS = 20.0


def forward_logs(event: Mapping[str, Any], context: Context) -> Mapping[str, object]:
    """CloudWatch Logs subscription, or a Kinesis data stream that receives subscriptions.

    Index the reports, and index and announce the notices of running tasks.

    Returns:
        ``{"indexed": n, "skipped": n, "failed": n}``; for a stream, ``{"batchItemFailures": […]}``.

    Raises:
        ForwarderError: the event cannot be decoded, or Lambda must retry it.
    """
    configure_library_logging()
    notices = _task_notices(context)
    if is_stream_event(event):
        settings = _settings()
        keep_failures = _failure_store(settings.failed_items_queue_url)
        result = forward_records(
            event, settings, _lazy_delivery(settings, context, notices), keep_failures, _warn, notices=notices
        )
        _log({"level": "info", "event": "Forwarded the records of a stream.", **result.counts.as_response()})
        return result.as_response()
    items = decode_event(event)
    if not any(isinstance(item, Failure) or item.lines for item in items):
        return Counts().as_response()
    settings = _settings()
    keep_failures = _failure_store(settings.failed_items_queue_url)
    delivery = _lazy_delivery(settings, context, notices)
    return forward(items, settings, delivery, keep_failures, _warn, notices=notices).as_response()


def task_stopped(event: Mapping[str, Any], context: Context) -> Mapping[str, object]:
    """EventBridge "ECS Task State Change": complete the run's document and post a notice.

    Returns:
        ``{"status": …, "indexed": bool, "notified": "success" | "failure" | None}``.

    Raises:
        ForwarderError: at least one of the two failed after both were tried; Lambda must retry the event.
    """
    task = parse_stopped_task(event)
    if task is None:
        return TaskStoppedResult().as_response()
    configure_library_logging()
    if task.flaws:
        _warn(f"The event of task {task.id} contains invalid values: {'; '.join(task.flaws)}.")
    budget = InvocationTime(context)
    handler = TaskStoppedHandler(
        lambda: read_notice_settings(os.environ),
        describe=_definitions().describe,
        run_log=lambda task, container: ReportFinder(_log_tail().newest, budget, task.id, container),
        index=lambda: _index(context),
        channels=lambda settings: _channels(settings, budget),
        once=lambda settings: _idempotently(settings.idempotency_table, context),
        warn=_warn,
    )
    return handler.handle(task).as_response()


def _lazy_delivery(settings: ForwarderSettings, context: Context, notices: TaskNotices) -> DeliverDocuments:
    """Connect to the search cluster only if there are documents for it: most lines are not reports.

    Without a cluster, the notices alone are not indexed: they are announced.
    """

    def deliver_documents(documents: Sequence[Document]) -> DeliveryResult:
        if settings.url is None and all(document.notice is not None for document in documents):
            return DeliveryResult(indexed=0)
        budget = InvocationTime(context) if notices.is_empty else _index_budget(context)
        return deliver(_cluster(settings), budget, random.random, documents)

    return deliver_documents


def _task_notices(context: Context) -> TaskNotices:
    return TaskNotices(
        lambda: read_notice_settings(os.environ),
        channels=lambda settings: _channels(settings, InvocationTime(context)),
        once=lambda settings: _idempotently(settings.idempotency_table, context),
        now=lambda: datetime.now(UTC),
        warn=_warn,
    )


def _index(context: Context) -> Index | None:
    settings = _settings()
    if settings.url is None:
        return None
    cluster = _cluster(settings)
    prefix, period = settings.index_prefix, settings.index_period
    return Index(
        prefix=prefix,
        period=period,
        deliver=lambda documents: deliver(cluster, _index_budget(context), random.random, documents),
        find=partial(find_report, cluster, InvocationTime(context), prefix=prefix, period=period),
        compare=_comparison(cluster, prefix, context),
    )


def _index_budget(context: Context) -> InvocationTime:
    """Return the time for the search cluster, without the time that is reserved for the notice.

    The notice gets 20 s, or half of the time if less than 40 s are left. The seconds that every retry reserves at the
    end are a part of the notice's time.
    """
    remaining_seconds = InvocationTime(context).remaining_seconds()
    notice_seconds = min(_NOTICE_RESERVE_SECONDS, remaining_seconds / 2)
    return InvocationTime(context, reserved_seconds=max(0.0, notice_seconds - RESERVED_SECONDS))


def _idempotently(table: str | None, context: Context) -> Idempotently:
    """Return the guard that runs work once for a key, if there is a table for the keys."""
    if table is None:
        return lambda _key, work: work()
    return lambda key, work: run_idempotently(table, context, key, work)


def _channels(settings: NoticeSettings, budget: InvocationTime) -> list[NoticeChannel]:
    """Return every notice channel. One that is not configured accepts no notice."""
    from forwarder.notices.configured_channels import configured_channels  # forward_logs seldom needs them
    from forwarder.notices.ended_run import LogLineChannel

    channels = configured_channels(settings, os.environ, budget, _events_client)
    if not _has_cluster():
        channels.append(LogLineChannel(_print_line, kibana_url=settings.kibana_url))
    return channels


def _has_cluster() -> bool:
    """Whether a search cluster is set, even with invalid settings."""
    try:
        return _settings().url is not None
    except SettingsError:
        return True


def _comparison(cluster: SearchCluster, prefix: str, context: Context) -> Callable[[EndedTask], Comparison | None]:
    def compare_notice(notice: EndedTask) -> Comparison | None:
        left_seconds = InvocationTime(context).remaining_seconds() / 2 - RESERVED_SECONDS
        if left_seconds <= 0:
            return None
        return compare(cluster, notice, prefix=prefix, timeout_seconds=min(left_seconds, COMPARISON_SECONDS))

    return compare_notice


@cache
def _definitions() -> EcsDefinitions:
    return EcsDefinitions(bounded_client("ecs"), _warn)


@cache
def _log_tail() -> CloudWatchTail:
    return CloudWatchTail(cache(lambda region: bounded_client("logs", region)), _warn)


@cache
def _events_client() -> AwsClient:
    return bounded_client("events")


def _warn(sentence: str) -> None:
    _log({"level": "warning", "event": sentence})


def _log(line: Mapping[str, object]) -> None:
    _print_line(json.dumps(line))


def _print_line(line: str) -> None:
    print(line)  # noqa: T201  Lambda copies standard output to the function's log


@cache
def _settings() -> ForwarderSettings:
    return read_settings(os.environ)


def _cluster(settings: ForwarderSettings) -> SearchCluster:
    """Return the search cluster's client. Invocations share it as long as the credentials are the same."""
    if settings.url is None:
        raise SettingsError("ELASTICSEARCH_URL is not set: set it to the cluster's address.")
    credentials = settings.credentials
    if settings.secret_id is not None and credentials.api_key is None and credentials.basic is None:
        credentials = read_credentials(settings.secret_id, fetch_secret)
    return _connect(settings, settings.url, credentials)


@lru_cache(maxsize=1)
def _connect(settings: ForwarderSettings, url: str, credentials: Credentials) -> SearchCluster:
    if settings.engine == "opensearch":
        from forwarder.search_cluster.opensearch import (
            OpenSearchCluster,  # a function needs only one of the two clients
        )

        return OpenSearchCluster(url, credentials, settings.region)
    from forwarder.search_cluster.elasticsearch import ElasticsearchCluster

    return ElasticsearchCluster(url, credentials)


@cache
def _failure_store(queue_url: str | None) -> KeepFailures:
    if queue_url is None:
        return partial(log_failures, _log)
    sqs = bounded_client("sqs")

    def keep(failures: Sequence[Failure]) -> None:
        log_failure_count(_log, failures)
        send_failures(queue_url, sqs, failures)

    return keep
