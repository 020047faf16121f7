"""Whether a call of AWS has certainly changed nothing: botocore repeats a call without an answer,
and the repetition may be refused because the first attempt has done it.
"""

from collections.abc import Mapping
from typing import Any

from profiler.core.aws_error_codes import SERVER_FAULT, error_status

_IS_LOST = "IsAnswerLost"  # of ours, beside botocore's own RetryAttempts


def note_lost_answers(client: Any) -> None:  # noqa: ANN401  boto3 has no types
    """Let the errors of a client's calls tell whether an earlier attempt of the same call was
    lost: botocore repeats a call without an answer, and the repetition may be refused because the
    first attempt has done it.
    """
    service = client.meta.service_model.service_id.hyphenize()
    # Before botocore's legacy retries, which raise the last error of a call themselves.
    client.meta.events.register_first(f"needs-retry.{service}", _note_lost)


def _note_lost(
    request_dict: Mapping[str, Any],
    response: tuple[object, dict[str, Any]] | None,
    caught_exception: Exception | None,
    **_: object,
) -> None:
    """Mark what an attempt ended with, if an earlier one of the call was lost. botocore raises the
    last one of them.
    """
    context = request_dict["context"]
    marks: dict[str, Any] = {}
    status = 0
    if response is not None:
        marks = response[1].setdefault("ResponseMetadata", {})
        status = int(marks.get("HTTPStatusCode", 0))
    elif caught_exception is not None:
        marks = getattr(caught_exception, "kwargs", marks)
    if context.get(_IS_LOST):
        marks[_IS_LOST] = True
    context[_IS_LOST] = context.get(_IS_LOST) or not _has_changed_nothing(caught_exception, status)


def has_lost_attempt(answer: Mapping[str, Any]) -> bool:
    """Whether an earlier attempt of the call of this answer was lost."""
    return bool(answer.get("ResponseMetadata", {}).get(_IS_LOST))


def has_surely_changed_nothing(error: BaseException | None) -> bool:
    """Whether a call has certainly changed nothing: AWS refused each attempt, or was not asked.

    Of a client that repeats calls, only ``note_lost_answers`` lets the earlier attempts be known.
    """
    is_lost = getattr(error, "kwargs", {}).get(_IS_LOST)
    if is_lost or has_lost_attempt(getattr(error, "response", None) or {}):
        return False
    return isinstance(error, Exception) and _has_changed_nothing(error, error_status(error))


def _has_changed_nothing(error: Exception | None, status: int) -> bool:
    """Whether an attempt has changed nothing, by its error, and its HTTP status (0: no answer)."""
    # Slow to import.
    from botocore.exceptions import (
        ConnectTimeoutError,
        EndpointConnectionError,
        NoCredentialsError,
        ParamValidationError,
    )

    not_asked = (
        ConnectTimeoutError,
        EndpointConnectionError,
        NoCredentialsError,
        ParamValidationError,
    )
    return isinstance(error, not_asked) or 0 < status < SERVER_FAULT
