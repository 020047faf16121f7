"""The entry points of both Lambda functions, and the only module that builds real clients.

Clients are built for the first event that needs them, not at import.
"""

import json
import os
import random
from collections.abc import Callable, Mapping
from functools import cache
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
from forwarder.invocation import RESERVED_SECONDS, Context, InvocationTime, configure_library_logging
from forwarder.notices.channel import NoticeChannel
from forwarder.notices.comparison import COMPARISON_SECONDS, compare
from forwarder.notices.idempotency import Idempotently, run_idempotently
from forwarder.notices.notice import Notice
from forwarder.notices.slack_settings import read_targets
from forwarder.search_cluster.document_delivery import Delivery, DeliveryResult
from forwarder.search_cluster.failure_store import (
    MAX_LOGGED_REASON_LENGTH,
    Failure,
    FailureStore,
    LogFailureStore,
    SqsFailureStore,
)
from forwarder.search_cluster.interface import SearchCluster
from forwarder.search_cluster.report_search import IndexedReports
from forwarder.stream import forward_records, is_stream_event
from forwarder.subscription import Counts, decode_event, forward
from forwarder.task.run_log import LogTail, ReportFinder
from forwarder.task.task_event import parse_stopped_task
from forwarder.task_stopped import Definitions, Index, TaskStoppedHandler, TaskStoppedResult
from profiler.core.aws_clients import AwsClient, bounded_client

_NOTICE_RESERVE_SECONDS = 20.0
_MAX_LOGGED_REASONS = 10


def forward_logs(event: Mapping[str, Any], context: Context) -> Mapping[str, object]:
    """CloudWatch Logs subscription, or a Kinesis data stream that receives subscriptions: index the reports.

    Returns:
        ``{"indexed": n, "skipped": n, "failed": n}``; for a stream, ``{"batchItemFailures": […]}``.

    Raises:
        ForwarderError: the event cannot be decoded, or Lambda must retry it.
    """
    configure_library_logging()
    if is_stream_event(event):
        settings = _settings()
        writer, store = _LazyDelivery(settings, context), _failure_store(settings.failed_items_queue_url)
        result = forward_records(event, settings, writer, store, _warn)
        _log({"level": "info", "event": "Forwarded the records of a stream.", **result.counts.as_response()})
        return result.as_response()
    payloads = decode_event(event)
    if not any(payload.lines or payload.damaged for payload in payloads):
        return Counts().as_response()
    settings = _settings()
    store = _failure_store(settings.failed_items_queue_url)
    return forward(payloads, settings, _LazyDelivery(settings, context), store, _warn).as_response()


def task_stopped(event: Mapping[str, Any], context: Context) -> Mapping[str, object]:
    """EventBridge "ECS Task State Change": complete the run's document and post a notice.

    Returns:
        ``{"status": …, "indexed": bool, "notified": "success" | "failure" | None}``.

    Raises:
        ForwarderError: one of them failed, and Lambda must retry the event; both were tried.
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
        definitions=_definitions(),
        run_log=lambda of, container: ReportFinder(_tail(), budget, of.id, container),
        index=lambda: _index(context),
        channels=lambda settings: _channels(settings, budget),
        once=lambda settings: _idempotently(settings.idempotency_table, context),
        warn=_warn,
    )
    return handler.handle(task).as_response()


class _LazyDelivery:
    """Connects to the cluster only if there are documents for it: most lines are not reports."""

    def __init__(self, settings: ForwarderSettings, context: Context) -> None:
        self._settings = settings
        self._budget = InvocationTime(context)

    def deliver(self, documents: list[Document]) -> DeliveryResult:
        """See ``DocumentWriter``."""
        return Delivery(_cluster(self._settings), self._budget, random.random).deliver(documents)


class _IndexWriter:
    """Writes the document of a stopped task, within a part of the time that is left by then."""

    def __init__(self, cluster: SearchCluster, context: Context) -> None:
        self._cluster = cluster
        self._context = context

    def deliver(self, documents: list[Document]) -> DeliveryResult:
        """See ``DocumentWriter``."""
        return Delivery(self._cluster, _index_budget(self._context), random.random).deliver(documents)


def _index(context: Context) -> Index | None:
    settings = _settings()
    if settings.url is None:
        return None
    cluster = _cluster(settings)
    reports = IndexedReports(cluster, settings.index_prefix, settings.index_period, InvocationTime(context))
    return Index(
        prefix=settings.index_prefix,
        period=settings.index_period,
        writer=_IndexWriter(cluster, context),
        find=reports.find,
        compare=_comparison(cluster, settings.index_prefix, context),
    )


def _index_budget(context: Context) -> InvocationTime:
    """Return the time for the cluster, without the time for the notice: an unavailable cluster must not use that.

    The notice gets 20 s, or half of the time if less than 40 s are left. The seconds that every retry keeps at the end
    are a part of the notice's time.
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
    from forwarder.notices.ended_run import LogLineChannel  # forward_logs needs no channels
    from forwarder.notices.event_bus import EventBusChannel
    from forwarder.notices.slack_channel import SlackNoticeChannel

    channels: list[NoticeChannel] = [
        SlackNoticeChannel(lambda: read_targets(os.environ, fetch_secret), budget, kibana_url=settings.kibana_url)
    ]
    if settings.event_bus_name is not None:
        channels.append(EventBusChannel(settings.event_bus_name, _events_client, kibana_url=settings.kibana_url))
    if not _has_cluster():
        channels.append(LogLineChannel(_print_line, kibana_url=settings.kibana_url))
    return channels


def _has_cluster() -> bool:
    """Whether a cluster is set, even if its settings are not valid."""
    try:
        return _settings().url is not None
    except SettingsError:
        return True


def _comparison(cluster: SearchCluster, prefix: str, context: Context) -> Callable[[Notice], str | None]:
    def compare_notice(notice: Notice) -> str | None:
        left_seconds = InvocationTime(context).remaining_seconds() / 2 - RESERVED_SECONDS
        if left_seconds <= 0:
            return None
        return compare(cluster, notice, prefix=prefix, timeout_seconds=min(left_seconds, COMPARISON_SECONDS))

    return compare_notice


@cache
def _definitions() -> Definitions:
    from forwarder.task.run_log import EcsDefinitions

    return EcsDefinitions(bounded_client("ecs"), _warn)


@cache
def _tail() -> LogTail:
    from forwarder.task.run_log import CloudWatchTail

    return CloudWatchTail(_logs_client, _warn)


@cache
def _logs_client(region: str | None) -> AwsClient:
    return bounded_client("logs", region)


@cache
def _events_client() -> AwsClient:
    return bounded_client("events")


def _warn(sentence: str) -> None:
    _log({"level": "warning", "event": sentence})


def _log(line: Mapping[str, object]) -> None:
    _print_line(json.dumps(line))


def _print_line(line: str) -> None:
    print(line)  # noqa: T201  Lambda copies standard output to the function's log


class _LoggingFailureStore:
    """Logs the number of failed documents and the reasons, without their content, then stores the documents."""

    def __init__(self, store: FailureStore) -> None:
        self._store = store

    def keep(self, failures: list[Failure]) -> None:
        """See ``FailureStore``."""
        reasons = sorted({failure.reason[:MAX_LOGGED_REASON_LENGTH] for failure in failures})
        _log(
            {
                "level": "error",
                "event": "Documents cannot be indexed.",
                "count": len(failures),
                "reasons": reasons[:_MAX_LOGGED_REASONS],
            }
        )
        self._store.keep(failures)


@cache
def _settings() -> ForwarderSettings:
    return read_settings(os.environ)


def _cluster(settings: ForwarderSettings) -> SearchCluster:
    """Return the cluster's client. Invocations share it as long as the credentials are the same."""
    if settings.url is None:
        raise SettingsError("ELASTICSEARCH_URL is not set: set it to the cluster's address.")
    credentials = settings.credentials
    if settings.secret_id is not None and credentials.api_key is None and credentials.basic is None:
        credentials = read_credentials(settings.secret_id, fetch_secret)
    key = (credentials.api_key, credentials.basic, credentials.aws)
    if _client_cache.key != key or _client_cache.cluster is None:
        _client_cache.key, _client_cache.cluster = key, _connect(settings, settings.url, credentials)
    return _client_cache.cluster


class _ClientCache:
    """The last client, and the credentials that it was built with."""

    def __init__(self) -> None:
        self.key: object = None
        self.cluster: SearchCluster | None = None


_client_cache = _ClientCache()


def _connect(settings: ForwarderSettings, url: str, credentials: Credentials) -> SearchCluster:
    if settings.engine == "opensearch":
        from forwarder.search_cluster.opensearch import (
            OpenSearchCluster,  # a function needs only one of the two clients
        )

        return OpenSearchCluster(url, credentials, settings.region)
    from forwarder.search_cluster.elasticsearch import ElasticsearchCluster

    return ElasticsearchCluster(url, credentials)


@cache
def _failure_store(queue_url: str | None) -> FailureStore:
    if queue_url is None:
        return LogFailureStore(_log)
    return _LoggingFailureStore(SqsFailureStore(queue_url, bounded_client("sqs")))
