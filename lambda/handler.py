"""The functions' entry points, the only place where real clients are built (at the first event, not at import)."""

import json
import os
import random
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from forwarder.cluster import Cluster
from forwarder.delivery import Delivery
from forwarder.errors import SettingsError
from forwarder.failures import Failure, FailureStore, NoFailureStore, SqsFailureStore
from forwarder.forward import forward
from forwarder.payload import decode_payload
from forwarder.secrets import fetch_secret, read_credentials
from forwarder.settings import Credentials, ForwarderSettings, read_settings

_MS_PER_SECOND = 1000
_LONGEST_LOGGED_REASON = 300


class Context(Protocol):
    """What is used of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the invocation."""
        ...


class InvocationTime:
    """The time of one invocation."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def remaining_seconds(self) -> float:
        """What is left of it."""
        return self._context.get_remaining_time_in_millis() / _MS_PER_SECOND

    def sleep(self, seconds: float) -> None:
        """``time.sleep``."""
        time.sleep(seconds)


def forward_logs(event: Mapping[str, Any], context: Context) -> Mapping[str, int]:
    """CloudWatch Logs subscription: index the reports of one log stream.

    Returns ``{"indexed": n, "skipped": n, "failed": n}``. Raises what Lambda is to try again, and
    what cannot be decoded.
    """
    settings = _settings()
    payload = decode_payload(event)
    delivery = Delivery(_cluster(settings), InvocationTime(context), random.random)
    counts = forward(payload, settings, delivery, _LoggedStore(_failure_store(settings.failed_items_queue_url)))
    return counts.as_answer()


class _LoggedStore:
    """Says on stderr how many documents failed and why, without their content."""

    def __init__(self, store: FailureStore) -> None:
        self._store = store

    def keep(self, failures: list[Failure]) -> None:
        """Log, then keep."""
        reasons = sorted({failure.reason[:_LONGEST_LOGGED_REASON] for failure in failures})
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
    if settings.secret_id is not None:
        credentials = read_credentials(settings.secret_id, fetch_secret)
    key = (credentials.api_key, credentials.basic, credentials.aws)
    if _clients.key != key or _clients.cluster is None:
        _clients.key, _clients.cluster = key, _connect(settings, settings.url, credentials)
    return _clients.cluster


class _Clients:
    """The last client and what it signed in with."""

    def __init__(self) -> None:
        self.key: object = None
        self.cluster: Cluster | None = None


_clients = _Clients()


def _connect(settings: ForwarderSettings, url: str, credentials: Credentials) -> Cluster:
    if settings.engine == "opensearch":
        from forwarder.opensearch_cluster import OpenSearchCluster  # noqa: PLC0415  one client or the other

        return OpenSearchCluster(url, credentials, settings.region)
    from forwarder.elasticsearch_cluster import ElasticsearchCluster  # noqa: PLC0415

    return ElasticsearchCluster(url, credentials)


@cache
def _failure_store(queue_url: str | None) -> FailureStore:
    if queue_url is None:
        return NoFailureStore()
    import boto3  # noqa: PLC0415  only where a queue is set

    return SqsFailureStore(queue_url, boto3.client("sqs"))
