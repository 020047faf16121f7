"""The functions' entry points, the only place where real clients are built (at the first event, not at import)."""

import json
import os
import random
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol

from forwarder.documents import Document
from forwarder.errors import SettingsError
from forwarder.invocation import configure_library_logging
from forwarder.notices.channel import run_idempotently
from forwarder.notices.notice import Notice, compare
from forwarder.notices.slack_settings import read_targets
from forwarder.search.cluster import Cluster
from forwarder.search.delivery import Delivery, DeliveryResult, Failure, FailureStore, NoFailureStore, SqsFailureStore
from forwarder.settings import (
    Credentials,
    ForwarderSettings,
    NoticeSettings,
    fetch_secret,
    read_credentials,
    read_notice_settings,
    read_settings,
)
from forwarder.subscription import Counts, decode_payload, forward
from forwarder.task.event import parse_stopped_task
from forwarder.task.run_log import LogTail, ReportFinder
from forwarder.task_stopped import Definitions, Index, NoticeChannel, TaskStoppedHandler, TaskStoppedResult

_MS_PER_SECOND = 1000
_SLACK_RESERVE_SECONDS = 20.0
_MAX_LOGGED_REASON_LENGTH = 300


class Context(Protocol):
    """What is used of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the invocation."""
        ...


class InvocationTime:
    """The time of one invocation, less what is kept for something else."""

    def __init__(self, context: Context, reserved_seconds: float = 0) -> None:
        self._context = context
        self._reserved_seconds = reserved_seconds

    def remaining_seconds(self) -> float:
        """What is left of it."""
        return self._context.get_remaining_time_in_millis() / _MS_PER_SECOND - self._reserved_seconds

    def sleep(self, seconds: float) -> None:
        """``time.sleep``."""
        time.sleep(seconds)


def forward_logs(event: Mapping[str, Any], context: Context) -> Mapping[str, int]:
    """CloudWatch Logs subscription: index the reports of one log stream.

    Returns ``{"indexed": n, "skipped": n, "failed": n}``. Raises what Lambda is to try again, and
    what cannot be decoded.
    """
    configure_library_logging()
    payload = decode_payload(event)
    if not payload.lines:
        return Counts().as_response()
    settings = _settings()
    store = _LoggingFailureStore(_failure_store(settings.failed_items_queue_url))
    return forward(payload, settings, _LazyDelivery(settings, context), store).as_response()


class _LazyDelivery:
    """Asks for the cluster only when it has documents for it: most lines of a batch are none."""

    def __init__(self, settings: ForwarderSettings, context: Context) -> None:
        self._settings = settings
        self._time = InvocationTime(context)

    def deliver(self, documents: list[Document]) -> DeliveryResult:
        """See forwarder.search.delivery."""
        return Delivery(_cluster(self._settings), self._time, random.random).deliver(documents)


def task_stopped(event: Mapping[str, Any], context: Context) -> Mapping[str, object]:
    """EventBridge "ECS Task State Change": complete the run's document, tell Slack.

    Returns ``{"status": …, "indexed": bool, "notified": "success" | "failure" | None}``. Raises
    after having tried both, so that Lambda tries again what failed.
    """
    task = parse_stopped_task(event)
    if task is None:
        return TaskStoppedResult().as_response()
    configure_library_logging()
    time_left, index_time = InvocationTime(context), _time_excluding_slack(context)
    ended = TaskStoppedHandler(
        lambda: read_notice_settings(os.environ),
        definitions=_definitions(),
        run_log=lambda of, container: ReportFinder(_tail(), time_left, of.id, container),
        index=lambda: _index(index_time),
        channel=lambda settings: _open_channel(settings, time_left, context),
    )
    return ended.handle(task).as_response()


def _index(time_left: InvocationTime) -> Index | None:
    settings = _settings()
    if settings.url is None:
        return None
    cluster = _cluster(settings)
    return Index(
        prefix=settings.index_prefix,
        writer=Delivery(cluster, time_left, random.random),
        compare=_comparison(cluster, settings.index_prefix),
    )


def _time_excluding_slack(context: Context) -> InvocationTime:
    """A cluster that is away must not use up the time in which Slack is to be told."""
    whole_seconds = InvocationTime(context).remaining_seconds()
    return InvocationTime(context, reserved_seconds=min(_SLACK_RESERVE_SECONDS, whole_seconds / 2))


def _open_channel(settings: NoticeSettings, time_left: InvocationTime, context: Context) -> NoticeChannel:
    from forwarder.notices.channel import SlackNoticeChannel  # slack_sdk, which forward_logs does not need

    table = settings.idempotency_table

    def run_once(key: str, work: Callable[[], bool]) -> bool:
        return work() if table is None else run_idempotently(table, context, key, work)

    targets = read_targets(os.environ, fetch_secret)
    return SlackNoticeChannel(targets, time_left, run_once, kibana_url=settings.kibana_url)


def _comparison(cluster: Cluster, prefix: str) -> Callable[[Notice], str | None]:
    def compared(notice: Notice) -> str | None:
        return compare(
            cluster,
            prefix=prefix,
            family=notice.family,
            task_id=notice.task_id,
            duration_ms=notice.numbers.duration_ms,
        )

    return compared


@cache
def _definitions() -> Definitions:
    import boto3  # in Lambda's runtime

    from forwarder.task.run_log import EcsDefinitions

    return EcsDefinitions(boto3.client("ecs"), _warn)


@cache
def _tail() -> LogTail:
    from forwarder.task.run_log import CloudWatchTail

    return CloudWatchTail(_logs_client, _warn)


@cache
def _logs_client(region: str | None) -> Any:  # noqa: ANN401  boto3 makes its clients at run time
    import boto3

    return boto3.client("logs", region_name=region)


def _warn(sentence: str) -> None:
    print(json.dumps({"level": "warning", "event": sentence}))  # noqa: T201  into the function's log


class _LoggingFailureStore:
    """Says on stderr how many documents failed and why, without their content."""

    def __init__(self, store: FailureStore) -> None:
        self._store = store

    def keep(self, failures: list[Failure]) -> None:
        """Log, then keep."""
        reasons = sorted({failure.reason[:_MAX_LOGGED_REASON_LENGTH] for failure in failures})
        line = {
            "level": "error",
            "event": "Documents cannot be indexed.",
            "count": len(failures),
            "reasons": reasons[:10],
        }
        print(json.dumps(line))  # noqa: T201  Lambda carries standard output into the function's log
        self._store.keep(failures)


@cache
def _settings() -> ForwarderSettings:
    return read_settings(os.environ)


def _cluster(settings: ForwarderSettings) -> Cluster:
    """The cluster's client, kept between invocations for as long as the credentials are the same."""
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
    """The last client and what it signed in with."""

    def __init__(self) -> None:
        self.key: object = None
        self.cluster: Cluster | None = None


_client_cache = _ClientCache()


def _connect(settings: ForwarderSettings, url: str, credentials: Credentials) -> Cluster:
    if settings.engine == "opensearch":
        from forwarder.search.opensearch import OpenSearchCluster  # one client or the other

        return OpenSearchCluster(url, credentials, settings.region)
    from forwarder.search.elasticsearch import ElasticsearchCluster

    return ElasticsearchCluster(url, credentials)


@cache
def _failure_store(queue_url: str | None) -> FailureStore:
    if queue_url is None:
        return NoFailureStore()
    import boto3  # only where a queue is set

    return SqsFailureStore(queue_url, boto3.client("sqs"))
