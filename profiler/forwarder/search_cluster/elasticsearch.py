"""Elasticsearch 7.17 to 9, through the official client."""

from collections.abc import Mapping
from typing import Any

import elasticsearch
from elastic_transport import HttpHeaders, NdjsonSerializer, Urllib3HttpNode
from elastic_transport.client_utils import DEFAULT, DefaultType

from profiler.core.json_fields import mapping_or_empty
from profiler.core.search_answers import closed_index
from profiler.forwarder.function_settings import Credentials
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.search_cluster import bulk_client

_OPENSEARCH_HINT = " For OpenSearch set SEARCH_ENGINE=opensearch."


class _CompressingNode(Urllib3HttpNode):
    """A connection that compresses requests itself, in a fraction of the client's time."""

    def perform_request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: HttpHeaders | None = None,
        request_timeout: DefaultType | float | None = DEFAULT,
    ) -> Any:  # noqa: ANN401  the client does not export its type
        sent = HttpHeaders(headers or {})
        sent["accept-encoding"] = "gzip"
        if body:
            body = bulk_client.gzip_compressed(body)
            sent["content-encoding"] = "gzip"
        return super().perform_request(method, target, body, sent, request_timeout)

    def _log_request(self, *_: object, **__: object) -> None:
        """Nothing: the client decodes each body for a log that the forwarder does not have."""


class _EncodedLines(NdjsonSerializer):
    """Passes lines on as they are: the client's own copies a body of megabytes three times."""

    def dumps(self, data: bytes) -> bytes:
        return data


class ElasticsearchCluster(bulk_client.SearchCluster):
    """The official client without its own retries."""

    engine = "Elasticsearch"

    def __init__(self, url: str, credentials: Credentials, ca_file: str | None = None) -> None:
        headers = bulk_client.authorization_headers(credentials)
        with bulk_client.raise_on_bad_url(url):
            self._client = elasticsearch.Elasticsearch(
                url,
                headers=headers,
                max_retries=0,
                retry_on_timeout=False,
                node_class=_CompressingNode,
                serializers={_EncodedLines.mimetype: _EncodedLines()},
                ca_certs=ca_file or DEFAULT,
            )

    # JSON.
    def request(
        self,
        path: str,
        body: bytes | Mapping[str, object],
        timeout_seconds: float,
    ) -> Any:  # noqa: ANN401
        if isinstance(body, bytes):
            sent = "application/x-ndjson"
        else:
            sent = "application/json"
        types = {"accept": "application/json", "content-type": sent}
        client = self._client.options(request_timeout=timeout_seconds)
        try:
            return client.perform_request("POST", path, headers=types, body=body).body
        except elasticsearch.ApiError as error:
            # 406: OpenSearch's response to the media type of Elasticsearch 8.
            hint = _OPENSEARCH_HINT if error.status_code == 406 else ""  # noqa: PLR2004
            message = (
                bulk_client.rejection_sentence(self.engine, error.status_code, error.error) + hint
            )
            # Not "from": the client's error contains the whole response.
            raise SearchClusterError(
                message,
                status=error.status_code,
                closed_index=closed_index(mapping_or_empty(error.body)),
            ) from None
        except elasticsearch.UnsupportedProductError as error:
            raise SearchClusterError(
                f"The server is not Elasticsearch 7.14 or later.{_OPENSEARCH_HINT}", status=0
            ) from error
        except elasticsearch.SerializationError:
            raise bulk_client.undecodable_answer(self.engine) from None
        except elasticsearch.TransportError as error:
            raise SearchClusterError(
                f"Elasticsearch cannot be reached ({type(error).__name__}).", status=None
            ) from error
