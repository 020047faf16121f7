"""Elasticsearch 7.17 to 9, through the official client."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import elasticsearch

from profiler.forwarder.documents import Document
from profiler.forwarder.function_settings import Credentials
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.search_cluster import interface
from profiler.forwarder.search_cluster.interface import ItemResult

_OPENSEARCH_HINT = " For OpenSearch set SEARCH_ENGINE=opensearch."


class ElasticsearchCluster:
    """The official client without its own retries: ``deliver`` retries, within the remaining time."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        headers = interface.authorization(credentials)
        with interface.checked_url(url):
            self._client = elasticsearch.Elasticsearch(
                url, headers=headers, max_retries=0, retry_on_timeout=False, http_compress=True
            )

    def bulk(self, documents: Sequence[Document], timeout_seconds: float) -> list[ItemResult]:
        client = self._client.options(request_timeout=timeout_seconds)
        with _translate_errors():
            # The client sends lines of text unchanged; its type annotations allow only objects.
            response = client.bulk(operations=interface.bulk_lines(documents))  # type: ignore[arg-type]
            return interface.bulk_results(response.body, len(documents))

    def search(self, index: str, body: Mapping[str, object], timeout_seconds: float) -> Mapping[str, object]:
        with _translate_errors():
            response = self._client.options(request_timeout=timeout_seconds).search(index=index, body=dict(body))
            result: Mapping[str, object] = response.body
            return result

    def get(self, index: str, document_id: str, timeout_seconds: float) -> Mapping[str, object] | None:
        """A multi-get has the id in its body: no proxy or signature changes its slash."""
        with _translate_errors():
            client = self._client.options(request_timeout=timeout_seconds)
            return interface.document_source(client.mget(index=index, ids=[document_id]).body)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except elasticsearch.ApiError as error:
        # 406: OpenSearch's response to the media type of Elasticsearch 8.
        hint = _OPENSEARCH_HINT if error.status_code == 406 else ""  # noqa: PLR2004
        message = interface.rejection_message("Elasticsearch", error.status_code, error.error) + hint
        # Not "from": the client's error contains the whole response.
        raise SearchClusterError(message, status=error.status_code) from None
    except elasticsearch.UnsupportedProductError as error:
        raise SearchClusterError(
            f"The server is not Elasticsearch 7.14 or later.{_OPENSEARCH_HINT}", status=0
        ) from error
    except elasticsearch.TransportError as error:
        raise SearchClusterError(f"Elasticsearch cannot be reached ({type(error).__name__}).", status=None) from error
    except ValueError as error:
        raise SearchClusterError(f"Elasticsearch sent an invalid response: {error}.", status=0) from error
