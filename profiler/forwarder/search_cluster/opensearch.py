"""OpenSearch and Amazon OpenSearch Service, through opensearch-py."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import opensearchpy

from profiler.core.aws_clients import open_session
from profiler.core.aws_signature import AwsSignature
from profiler.forwarder.documents import Document
from profiler.forwarder.function_settings import Credentials
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.search_cluster import interface
from profiler.forwarder.search_cluster.interface import ItemResult


class OpenSearchCluster:
    """opensearch-py without its own retries: ``deliver`` retries, within the remaining time."""

    def __init__(self, url: str, credentials: Credentials, region: str | None) -> None:
        headers, signature = interface.authorization(credentials), None
        if credentials.aws and not headers:  # a function of Lambda always has a Region and a role
            signature = AwsSignature(open_session(region, None).get_credentials(), region or "", "es")
        with interface.checked_url(url):
            self._client = opensearchpy.OpenSearch(
                hosts=[url],
                http_auth=signature,
                headers=headers,
                connection_class=opensearchpy.RequestsHttpConnection,
                max_retries=0,
                retry_on_timeout=False,
                retry_on_status=(),
                http_compress=True,
            )

    def bulk(self, documents: Sequence[Document], timeout_seconds: float) -> list[ItemResult]:
        body = "\n".join(interface.bulk_lines(documents)) + "\n"
        with _translate_errors():
            response = self._client.bulk(body=body, params={"request_timeout": timeout_seconds})
            return interface.bulk_results(response, len(documents))

    def search(self, index: str, body: Mapping[str, object], timeout_seconds: float) -> Mapping[str, object]:
        with _translate_errors():
            result: Mapping[str, object] = self._client.search(
                index=index, body=dict(body), params={"request_timeout": timeout_seconds}
            )
            return result

    def get(self, index: str, document_id: str, timeout_seconds: float) -> Mapping[str, object] | None:
        """A multi-get has the id in its body: no proxy or signature changes its slash."""
        with _translate_errors():
            body = {"ids": [document_id]}
            return interface.document_source(
                self._client.mget(body=body, index=index, params={"request_timeout": timeout_seconds})
            )


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except opensearchpy.ConnectionError as error:
        raise SearchClusterError(f"OpenSearch cannot be reached ({type(error).__name__}).", status=None) from error
    except opensearchpy.TransportError as error:
        status = error.status_code if isinstance(error.status_code, int) else None
        # Not "from": the client's error contains the whole response.
        raise SearchClusterError(
            interface.rejection_message("OpenSearch", status, error.error), status=status
        ) from None
    except ValueError as error:
        raise SearchClusterError(f"OpenSearch sent an invalid response: {error}.", status=0) from error
