"""Posts requests with urllib3, which requests and botocore bring along, and signs them with botocore."""

import ssl
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError, SSLError

from profiler.core.errors import UsageError
from profiler.otlp.otlp_export import MAX_ANSWER_BYTES, HttpAnswer, Sign, TransportError
from profiler.otlp.otlp_settings import Target

# OpenSSL's codes: self-signed, self-signed in the chain, and an issuer that is not known.
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"})


class HttpTransport:
    """See ``Transport``. Requests to one host share a connection.

    Args:
        ca_file: The certificates that servers are verified with; None: those of the system.
        ca_setting: The variable that names this file; OpenSSL itself reads the default.
    """

    def __init__(self, ca_file: str | None = None, *, ca_setting: str = "SSL_CERT_FILE") -> None:
        self._pool = urllib3.PoolManager(retries=False, ca_certs=ca_file)
        self._ca_setting = ca_setting
        self._answered: set[str] = set()

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> HttpAnswer:
        """Post the body. Raises TransportError."""
        try:
            try:
                return self._post(url, headers, body, timeout_seconds)
            except ProtocolError:
                if urlsplit(url).netloc not in self._answered:
                    raise
                return self._post(url, headers, body, timeout_seconds)  # the server has closed the shared connection
        except SSLError as error:
            raise TransportError(self._tls_reason(error)) from error
        except (HTTPError, HTTPException, OSError) as error:
            raise TransportError(f"the server cannot be reached ({type(error).__name__})") from error

    def _tls_reason(self, error: SSLError) -> str:
        cause = error.args[0] if error.args else None
        if isinstance(cause, ssl.SSLCertVerificationError):
            advice = "renew it, or check the address"
            if cause.verify_code in _UNKNOWN_ISSUER:
                advice = f"set {self._ca_setting} to the file of your private CA"
            return f"the server's certificate is not trusted ({cause.verify_message.rstrip('.')}): {advice}"
        if not isinstance(cause, ssl.SSLError):
            return (
                f"the file of {self._ca_setting} cannot be read ({getattr(cause, 'strerror', cause)}): check its path"
            )
        if cause.library in ("X509", "PEM"):
            return f"the file of {self._ca_setting} has no certificate: use one in PEM format"
        if cause.reason in _NO_TLS:
            return "the server does not speak TLS: check whether the address begins with http:// or https://"
        advice = "check the server's TLS version, and whether it wants a client certificate"
        return f"the TLS connection failed ({cause.reason or 'connection closed'}): {advice}"

    def _post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> HttpAnswer:
        answer = self._pool.request(
            "POST",
            url,
            headers=dict(headers),
            body=body,
            timeout=urllib3.Timeout(total=timeout_seconds),
            redirect=False,
            preload_content=False,
        )
        with answer:
            content = answer.read(MAX_ANSWER_BYTES)
        self._answered.add(urlsplit(url).netloc)
        return HttpAnswer(
            status=answer.status,
            headers={name.lower(): value for name, value in answer.headers.items()},
            body=content,
        )


def aws_signer(find_credentials: Callable[[], Any]) -> Sign:
    """A function that signs requests with SigV4.

    Args:
        find_credentials: Returns botocore's credentials, or None without any.
    """

    def sign(target: Target, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        from botocore.auth import SigV4Auth  # only for CloudWatch
        from botocore.awsrequest import AWSRequest

        credentials = find_credentials()
        if credentials is None or target.aws is None:
            raise UsageError("OTLP_AWS_AUTH finds no AWS credentials: give the function a role.")
        request = AWSRequest("POST", target.url, headers=dict(headers), data=body)
        SigV4Auth(credentials, target.aws.name, target.aws.region).add_auth(request)
        return dict(request.headers.items())

    return sign
