"""Signs HTTP requests with SigV4, the sign-in of AWS."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

NO_SERVERLESS = (
    "OpenSearch Serverless is not supported, because its collections refuse the IDs of the reports: use a domain of "
    "Amazon OpenSearch Service."
)


def is_serverless(url: str) -> bool:
    """Whether it is the address of a collection of OpenSearch Serverless, such as ``ID.REGION.aoss.amazonaws.com``."""
    return ".aoss." in url.lower().partition("://")[2].partition("/")[0]


class AwsSignature(Struct, eq=False):
    """Signs requests to one service, such as ``es``, in one Region. It is also an ``auth`` of a session of requests."""

    credentials: Any  # botocore's; they renew themselves
    region: str
    service: str

    def sign(
        self, method: str, url: str, body: bytes | str | None, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, str]:
        """The request's headers, which are signed, too, and the signature's headers."""
        from botocore.auth import SigV4Auth  # slow to import
        from botocore.awsrequest import AWSRequest

        # The service signs parameters in their encoded form (%2C), regardless of the request; botocore does not.
        parts = urlsplit(url)
        query = urlencode(parse_qsl(parts.query, keep_blank_values=True), quote_via=quote, safe="~")
        request = AWSRequest(method, parts._replace(query=query).geturl(), headers=dict(headers or {}), data=body)
        SigV4Auth(self.credentials.get_frozen_credentials(), self.service, self.region).add_auth(request)
        return dict(request.headers.items())

    def __call__(self, request: Any) -> Any:  # noqa: ANN401  requests is not everywhere
        """Sign a prepared request of requests. Its headers, which proxies may change, are not signed."""
        request.headers.update(self.sign(request.method, request.url, request.body))
        return request
