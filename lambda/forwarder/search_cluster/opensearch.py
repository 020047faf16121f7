"""OpenSearch and Amazon OpenSearch Service, through opensearch-py."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import opensearchpy

from forwarder.delivery_errors import SearchClusterError, SettingsError
from forwarder.documents import Document
from forwarder.function_settings import Credentials
from forwarder.search_cluster.interface import (
    ItemResult,
    authorization,
    bulk_lines,
    bulk_results,
    checked_url,
    document_source,
    rejection_message,
)

_SERVERLESS_HOST = ".aoss."


class OpenSearchCluster:
    """opensearch-py without its own retries: ``deliver`` retries, within the remaining time."""

    def __init__(self, url: str, credentials: Credentials, region: str | None) -> None:
        headers = authorization(credentials)
        with checked_url(url):
            self._client = opensearchpy.OpenSearch(
                hosts=[_without_user(url) if headers else url],
                http_auth=_signature(url, region) if credentials.aws and not headers else None,
                headers=headers,
                connection_class=opensearchpy.RequestsHttpConnection,
                max_retries=0,
                retry_on_timeout=False,
                retry_on_status=(),
                http_compress=True,
            )

    def bulk(self, documents: Sequence[Document], timeout_seconds: float) -> list[ItemResult]:
        """See ``SearchCluster``."""
        body = "\n".join(bulk_lines(documents)) + "\n"
        with _translate_errors():
            response = self._client.bulk(body=body, params={"request_timeout": timeout_seconds})
            return bulk_results(response, len(documents))

    def search(self, index: str, body: Mapping[str, object], timeout_seconds: float) -> Mapping[str, object]:
        """See ``SearchCluster``."""
        with _translate_errors():
            result: Mapping[str, object] = self._client.search(
                index=index, body=dict(body), params={"request_timeout": timeout_seconds}
            )
            return result

    def get(self, index: str, document_id: str, timeout_seconds: float) -> Mapping[str, object] | None:
        """See ``SearchCluster``. A multi-get has the id in its body: no proxy or signature changes its slash."""
        with _translate_errors():
            body = {"ids": [document_id]}
            return document_source(
                self._client.mget(body=body, index=index, params={"request_timeout": timeout_seconds})
            )


def _without_user(url: str) -> str:
    """Remove the user: opensearch-py prefers a user in the address to the header; Elasticsearch's client does not."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except opensearchpy.ConnectionError as error:
        raise SearchClusterError(f"OpenSearch cannot be reached ({type(error).__name__}).", status=None) from error
    except opensearchpy.TransportError as error:
        status = error.status_code if isinstance(error.status_code, int) else None
        # Not "from": the client's error contains the whole response.
        raise SearchClusterError(rejection_message("OpenSearch", status, error.error), status=status) from None
    except ValueError as error:
        raise SearchClusterError(f"OpenSearch sent an invalid response: {error}.", status=0) from error


def _signature(url: str, region: str | None) -> Any:  # noqa: ANN401  a class of opensearch-py without types
    if region is None:
        raise SettingsError("OPENSEARCH_AWS_AUTH needs a region: set AWS_REGION.")
    import boto3  # in Lambda's runtime; only for SigV4

    credentials = boto3.Session().get_credentials()
    if credentials is None:
        raise SettingsError("OPENSEARCH_AWS_AUTH finds no AWS credentials: give the function a role.")
    service = "aoss" if _SERVERLESS_HOST in (urlsplit(url).hostname or "") else "es"
    return opensearchpy.RequestsAWSV4SignerAuth(credentials, region, service)
