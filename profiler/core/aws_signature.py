"""Signs HTTP requests with SigV4, the sign-in of AWS."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

from profiler.core.errors import UsageError

SERVERLESS = "aoss"
_AMAZON = re.compile(
    r"https?://[^/]*?(?:"
    r"(?P<region>[a-z0-9-]+)\.(?P<service>es|aoss)(?:-fips)?\.amazonaws\.(?:com(?:\.cn)?|eu)"
    # The dual-stack addresses.
    r"|\.(?P<dual_service>aos|aoss)(?:-fips)?\.(?P<dual_region>[a-z0-9-]+)"
    r"\.on\.(?:aws|amazonwebservices\.(?:com\.cn|eu))"
    r")(?::\d*)?(?:/|$)",
    re.IGNORECASE,
)
NO_SERVERLESS = (
    "OpenSearch Serverless is not supported, because its collections refuse the IDs of the "
    "reports: use a domain of Amazon OpenSearch Service."
)


def signing_service(url: str, environment: Mapping[str, str]) -> str | None:
    """``es``, ``aoss`` or None: ELASTICSEARCH_AWS_AUTH, else the address if no user is set.

    Raises UsageError.
    """
    named = environment.get("ELASTICSEARCH_AWS_AUTH", "").strip().lower()
    if named not in ("", "es", SERVERLESS):
        raise UsageError(
            "ELASTICSEARCH_AWS_AUTH must be es (a domain of Amazon OpenSearch Service) or aoss "
            "(OpenSearch Serverless)."
        )
    if named:
        return named
    match = _AMAZON.match(url)
    if not match or environment.get("ELASTICSEARCH_USER", "").strip():
        return None
    service = (match["service"] or match["dual_service"]).lower()
    return SERVERLESS if service == SERVERLESS else "es"


def signing_region(url: str) -> str | None:
    """The Region in an address of Amazon."""
    match = _AMAZON.match(url)
    return (match["region"] or match["dual_region"]).lower() if match else None


class AwsSignature(Struct, eq=False):
    """Signs requests to one service, such as ``es``, in one Region.

    It is also an ``auth`` of a session of requests.
    """

    credentials: Any  # botocore's; they renew themselves
    region: str
    service: str

    def signed_headers(
        self,
        method: str,
        url: str,
        body: bytes | str | None,
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, str]:
        """The request's headers, which are signed, too, and the signature's headers."""
        from botocore.auth import SigV4Auth  # slow to import
        from botocore.awsrequest import AWSRequest

        # The service signs parameters in their encoded form (%2C), regardless of the request;
        # botocore does not.
        parts = urlsplit(url)
        query = urlencode(parse_qsl(parts.query, keep_blank_values=True), quote_via=quote, safe="~")
        signed = dict(headers or {})
        if self.service == SERVERLESS:  # which requires the hash among the headers
            data = body.encode() if isinstance(body, str) else body or b""
            signed["X-Amz-Content-SHA256"] = sha256(data).hexdigest()
        request = AWSRequest(
            method, parts._replace(query=query).geturl(), headers=signed, data=body
        )
        SigV4Auth(self.credentials.get_frozen_credentials(), self.service, self.region).add_auth(
            request
        )
        return dict(request.headers.items())

    def __call__(self, request: Any) -> Any:  # noqa: ANN401  requests is not everywhere
        """Sign a prepared request of requests.

        Its headers, which proxies may change, are not signed.
        """
        request.headers.update(self.signed_headers(request.method, request.url, request.body))
        return request
