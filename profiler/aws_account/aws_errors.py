"""Errors of AWS as sentences. botocore is imported with the first call: it takes a quarter
second.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct

from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import (
    ACCESS_DENIED,
    EXPIRED,
    SERVER_FAULT,
    denial_remedy,
    error_status,
    is_throttled,
)
from profiler.core.aws_lost_answers import has_surely_changed_nothing
from profiler.core.commands_to_copy import aws_command_line
from profiler.core.errors import TaskProfilerError

_EXPIRED = EXPIRED | {"RequestExpired"}
_UNKNOWN_KEY = frozenset(
    {"UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException"}
)
_NOT_FOUND = frozenset({"ResourceNotFoundException", "404"})
# SQS, SNS, Kinesis, Lambda and S3 return KMS's errors under their own names; Secrets Manager under
# these two.
_KEY_ERROR = re.compile(r"kms|(?:de|en)cryptionfailure", re.IGNORECASE)
# Of reading, and of subscriptions, in CloudWatch Logs. The error's code depends on the operation.
_LOG_CLASS = re.compile(r"log[ -](?:group[ -])?class", re.IGNORECASE)
# ECS's ClientException for two registrations of one family at once, and EventBridge's
# ConcurrentModificationException.
_AT_ONCE = re.compile(r"^Concurrent|too many concurrent attempts", re.IGNORECASE)
# IAM's LimitExceeded for the inline policies of a role. No quota of them can be raised.
_FULL_POLICY = re.compile(r"Maximum policy size of \d+ bytes exceeded")
_QUOTA = re.compile(
    r"LimitExceeded|QuotaExceeded|reached the (?:limit|maximum)|exceeded the (?:limit|quota)",
    re.IGNORECASE,
)
# A signature holds for some minutes.
_WRONG_CLOCK = re.compile(
    r"Signature expired|Signature not yet current|^Request(?:TimeTooSkewed|InTheFuture)"
)
UNKNOWN_REGION = "the Region is unknown: use --region, or set AWS_REGION."

# Makes boto3's client of a service.
OpenClient = Callable[[str], AwsClient]


@contextmanager
def aws_errors(
    what: str, permission: str | None = None, *, not_found: str | None = None
) -> Iterator[None]:
    """Turn an error of AWS into a sentence that begins with ``what``, the failure in words.

    ``permission`` has the names in IAM; None: only AWS's own sentence has one. ``not_found`` is the
    sentence for a missing resource.
    """
    # See the module's docstring.
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        needed = permission or f"the operation {error.operation_name}"
        details = error.response.get("Error", {})
        status = error_status(error)
        reason = _refusal_cause(details, status, needed)
        if not_found is not None and details.get("Code") in _NOT_FOUND:
            reason = not_found
        raise TaskProfilerError(f"{what}: {reason}") from error
    except ParamValidationError as error:
        report = " ".join(str(error.kwargs["report"]).split())
        cause = "wrong name"
        if "Unknown parameter" in report:
            cause = "boto3 is too old for some fields, so upgrade boto3"
        raise TaskProfilerError(f"{what}: {cause} ({report}).") from error
    except ResponseParserError as error:  # the error's text contains the response
        raise TaskProfilerError(
            f"{what}: the response is not one of AWS: check HTTPS_PROXY, AWS_ENDPOINT_URL and the "
            "network."
        ) from error
    except BotoCoreError as error:
        raise TaskProfilerError(f"{what}: {_describe_unanswered(error)}") from error


def answer_unless(
    is_absence: Callable[[Exception], bool], call: Callable[..., Any], **arguments: object
) -> Any:  # noqa: ANN401  boto3's own
    """The answer of a call; None for an error of AWS that means that there is nothing.

    Raises boto3's other errors.
    """
    from botocore.exceptions import ClientError  # see the module's docstring

    try:
        return call(**arguments)
    except ClientError as error:
        if is_absence(error):
            return None
        raise


def check_lost_call_was_done(
    lost: TaskProfilerError, is_done: Callable[[], bool], what: str
) -> None:
    """Return if a call was carried out that failed without AWS's answer.

    ``is_done`` reads what the call changes. Raises ``lost``, the call's error, if AWS has refused
    the call, or it was not carried out; if that cannot be read, TaskProfilerError with ``what``,
    such as "the schedule was moved".
    """
    if has_surely_changed_nothing(lost.__cause__):
        raise lost
    try:
        is_found = is_done()
    except TaskProfilerError as error:
        raise TaskProfilerError(f"It is unknown whether {what}: look at it. {lost}") from error
    if not is_found:
        raise lost


@contextmanager
def noted_errors(note: Callable[[str], object], what: str, permission: str) -> Iterator[None]:
    """Break off at an error of AWS, and give its sentence to ``note``."""
    try:
        with aws_errors(what, permission):
            yield
    except TaskProfilerError as error:
        note(str(error))


def note_only_first(note: Callable[[str], object]) -> Callable[[str], object]:
    """A ``note`` for the first sentence alone: AWS's answers about one missing right differ in the
    resource that they name.
    """
    said: list[str] = []

    def note_first(sentence: str) -> None:
        if not said:
            said.append(sentence)
            note(sentence)

    return note_first


class _Refusal(Struct, frozen=True, kw_only=True):
    """An answer of AWS that is an error; ``permission`` names what may be missing."""

    code: str
    message: str
    status: int
    permission: str

    @property
    def answer(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code

    @property
    def denial_remedy(self) -> str:
        return denial_remedy(self.message, self.permission)

    @property
    def sign_in(self) -> str:
        return aws_command_line("sso", "login")


class _RefusalKind(Struct, frozen=True):
    """A kind of refusals: how it is known, and its cause with what to do, in which ``{0}`` is the
    refusal.
    """

    is_this: Callable[[_Refusal], object]
    text: str


# The first kind of a refusal decides.
_REFUSAL_KINDS: Final = (
    _RefusalKind(
        lambda refusal: refusal.code in ACCESS_DENIED,
        "AWS refused ({0.answer}): {0.denial_remedy}.",
    ),
    _RefusalKind(
        lambda refusal: _WRONG_CLOCK.search(refusal.answer),
        "AWS refused ({0.answer}): the clock of this machine is wrong, so set it.",
    ),
    _RefusalKind(
        lambda refusal: refusal.code in _EXPIRED,
        "AWS refused ({0.code}): the credentials have expired, so sign in again ({0.sign_in}).",
    ),
    _RefusalKind(
        lambda refusal: refusal.code in _UNKNOWN_KEY,
        "AWS refused ({0.code}): check the credentials, or choose others with --profile.",
    ),
    _RefusalKind(
        lambda refusal: is_throttled(refusal.code),
        "AWS returned {0.code} ({0.message}), because there are too many calls: wait a minute.",
    ),
    _RefusalKind(
        lambda refusal: _AT_ONCE.search(refusal.answer),
        "AWS refused ({0.answer}), because somebody else changes it at this moment: try again in a "
        "minute.",
    ),
    _RefusalKind(
        lambda refusal: refusal.status >= SERVER_FAULT,
        "AWS failed ({0.answer}): try again in a minute.",
    ),
    _RefusalKind(
        lambda refusal: _FULL_POLICY.search(refusal.message),
        "AWS refused ({0.answer}): the role's inline policies are full, so remove what it does not "
        "need, or attach a part as a managed policy.",
    ),
    _RefusalKind(
        lambda refusal: _QUOTA.search(refusal.answer),
        "AWS refused ({0.answer}): wait until there is less, or ask AWS for a larger quota.",
    ),
    _RefusalKind(
        lambda refusal: _KEY_ERROR.search(refusal.code),
        "AWS KMS refused ({0.answer}): check the key's state, and allow kms:Decrypt and "
        "kms:GenerateDataKey on it.",
    ),
    _RefusalKind(
        lambda refusal: _LOG_CLASS.search(refusal.message),
        "AWS refused ({0.answer}): read it by Logs Insights, or use a Standard group.",
    ),
    _RefusalKind(
        lambda refusal: refusal.code in _NOT_FOUND,
        "AWS cannot find it ({0.message}): check the name, --region and --profile.",
    ),
    _RefusalKind(
        lambda refusal: refusal.code == "ValidationError",
        "{0.message}.",  # CloudFormation's own sentence
    ),
)
_OTHER_REFUSAL: Final = (
    "AWS returned {0.code} ({0.message}): check the name, --region and --profile."
)


def _refusal_cause(error: Mapping[str, Any], status: int, permission: str) -> str:
    """The cause of an answer of AWS, and what to do; ``permission`` names what may be missing."""
    refusal = _Refusal(
        code=str(error.get("Code", "unknown error")),
        message=" ".join(str(error.get("Message", "")).split()).rstrip("."),
        status=status,
        permission=permission,
    )
    texts = (kind.text for kind in _REFUSAL_KINDS if kind.is_this(refusal))
    return next(texts, _OTHER_REFUSAL).format(refusal)


def _describe_unanswered(error: Exception) -> str:
    """Describe an error before any answer of AWS."""
    from botocore import exceptions  # see the module's docstring

    details = getattr(error, "kwargs", {})
    if isinstance(error, exceptions.NoRegionError):
        return UNKNOWN_REGION
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        ways = ", ".join((aws_command_line("sso", "login"), aws_command_line("configure")))
        return f"there are no AWS credentials: sign in ({ways}), or choose a --profile."
    if isinstance(error, exceptions.ProfileNotFound):
        return (
            f"there is no profile {details.get('profile', '')!r}: aws configure list-profiles "
            "shows the profiles."
        )
    if isinstance(error, exceptions.SSLError):
        return (
            "the certificate of AWS's endpoint is not trusted: set AWS_CA_BUNDLE to the file of "
            "your private CA."
        )
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        endpoint = details.get("endpoint_url")
        at = f" at {endpoint}" if endpoint else ""
        return (
            f"AWS cannot be reached{at}: check --region, the network, and HTTPS_PROXY if you need "
            "a proxy."
        )
    return (
        f"the AWS client failed ({str(error).rstrip('.')}): check credentials, --region and "
        "--profile."
    )
