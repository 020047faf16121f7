"""Requests of botocore that a call answers, made without a signature, which nothing verifies, and
without the objects between, whose headers take a fifth of the time of a call.
"""
# ruff: noqa: SLF001  botocore's own

from types import SimpleNamespace
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSRequestPreparer
from botocore.compat import get_current_datetime
from botocore.endpoint import Endpoint
from botocore.handlers import add_retry_headers
from botocore.retries.standard import MaxAttemptsSeeder
from botocore.signers import RequestSigner
from botocore.useragent import UserAgentString

from tools.local_answers import is_answered_here, local_headers

_create_request = Endpoint.create_request
_prepare_body = AWSRequestPreparer()._prepare_body
# They write headers that nothing here reads.
_UNREAD: frozenset[Any] = frozenset(
    {
        add_retry_headers,
        MaxAttemptsSeeder.seed_max_attempts,
        UserAgentString.rebuild_and_replace_user_agent_handler,
    }
)
_UNREAD_MODULE = "aws_lambda_powertools.shared.user_agent"  # of all sessions, once it is imported


def create_request(
    endpoint: Endpoint,
    params: dict[str, Any],
    operation_model: Any = None,  # noqa: ANN401  botocore has no types
) -> AWSPreparedRequest:
    """As botocore's ``Endpoint.create_request``. The header Authorization has the key, the Region
    and the service, which moto looks for.
    """
    context = params["context"]
    signer = None
    if is_answered_here(params["url"]) and context.get("auth_type") in (None, "v4"):
        signer = _only_signer(endpoint, operation_model)
    if signer is None or signer._credentials is None:
        return _create_request(endpoint, params, operation_model)
    headers = local_headers(params["headers"])
    signing = context.get("signing", {})
    region = signing.get("region") or signer.region_name
    service = signing.get("signing_name") or signer.signing_name
    key = signer._credentials.get_frozen_credentials().access_key
    day = get_current_datetime().strftime("%Y%m%d")
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key}/{day}/{region}/{service}/aws4_request, "
        "SignedHeaders=host, Signature="
    )
    return AWSPreparedRequest(
        params["method"],
        params["url"],
        headers,
        _prepare_body(SimpleNamespace(data=params["body"])),
        operation_model.has_streaming_output or operation_model.has_event_stream_output,
        context,
    )


def _only_signer(endpoint: Endpoint, operation: Any) -> RequestSigner | None:  # noqa: ANN401
    """What signs the requests of an operation; None if a handler changes what is read of them, as
    those of S3, whose sums are in its answers.
    """
    emitter = endpoint._event_emitter._emitter
    known: dict[Any, Any] = emitter._lookup_cache  # empty again after each change of the handlers
    name = f"{operation.service_model.service_id.hyphenize()}.{operation.name}"
    if (name, "signer") not in known:
        left = [
            one
            for one in emitter._handlers.prefix_search(f"request-created.{name}")
            if getattr(one, "__func__", one) not in _UNREAD and one.__module__ != _UNREAD_MODULE
        ]
        is_only = [getattr(one, "__func__", one) for one in left] == [RequestSigner.handler]
        is_only = is_only and not emitter._handlers.prefix_search(f"before-sign.{name}")
        known[name, "signer"] = left[0].__self__ if is_only else None
    signer: RequestSigner | None = known[name, "signer"]
    return signer
