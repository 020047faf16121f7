"""OpenSearch and Amazon OpenSearch Service, through opensearch-py."""

from collections.abc import Mapping
from typing import Any

import opensearchpy

from profiler.core.aws_clients import open_session
from profiler.core.aws_signature import AwsSignature
from profiler.core.json_fields import mapping_or_empty
from profiler.core.search_answers import closed_index
from profiler.forwarder.function_settings import Credentials
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.search_cluster import bulk_client


class _CompressingConnection(opensearchpy.RequestsHttpConnection):
    """A connection that compresses requests in a fraction of the client's time."""

    def _gzip_compress(self, body: bytes) -> bytes:
        return bulk_client.gzip_compressed(body)


class OpenSearchCluster(bulk_client.SearchCluster):
    """opensearch-py without its own retries."""

    engine = "OpenSearch"

    def __init__(
        self, url: str, credentials: Credentials, region: str | None, ca_file: str | None = None
    ) -> None:
        headers = bulk_client.authorization_headers(credentials)
        signature = None
        if credentials.aws and not headers:  # a function of Lambda always has a Region and a role
            signature = AwsSignature(
                open_session(region, None).get_credentials(), region or "", credentials.aws
            )
        with bulk_client.raise_on_bad_url(url):
            self._client = opensearchpy.OpenSearch(
                hosts=[url],
                http_auth=signature,
                headers=headers,
                ca_certs=ca_file,
                connection_class=_CompressingConnection,
                max_retries=0,
                retry_on_timeout=False,
                retry_on_status=(),
                http_compress=True,
            )

    # JSON.
    def request(
        self,
        path: str,
        body: bytes | Mapping[str, object],
        timeout_seconds: float,
    ) -> Any:  # noqa: ANN401
        limits = {"request_timeout": timeout_seconds}
        try:
            return self._client.transport.perform_request("POST", path, params=limits, body=body)
        except opensearchpy.ConnectionError as error:
            raise SearchClusterError(
                f"OpenSearch cannot be reached ({type(error).__name__}).", status=None
            ) from error
        except opensearchpy.SerializationError:
            raise bulk_client.undecodable_answer(self.engine) from None
        except opensearchpy.TransportError as error:
            status = error.status_code if isinstance(error.status_code, int) else None
            message = bulk_client.rejection_sentence(self.engine, status, error.error)
            # Not "from": the client's error contains the whole response.
            raise SearchClusterError(
                message, status=status, closed_index=closed_index(mapping_or_empty(error.info))
            ) from None
