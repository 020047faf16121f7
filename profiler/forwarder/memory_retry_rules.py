"""What holds for each retry of a run that was killed for memory, of a task and of a job of AWS
Batch: who may be retried, with how much memory, how AWS is asked, and what is said.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import TypeVar

from profiler.core.aws_error_codes import error_code, may_succeed_later
from profiler.core.ecs_terms import SHORT_ID_LENGTH
from profiler.core.optional_math import known
from profiler.core.text import on_one_line, words_if_known
from profiler.forwarder.invocation import DeliveryError
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.family_statistics import NeedAtSize
from profiler.record.run_outcome import Outcome
from profiler.record.units import format_memory
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.memory_margin import UNKNOWN_MARGIN

_Result = TypeVar("_Result")
EC2_STEP_MB = 128  # of the memory of a larger attempt on EC2
_MAX_AGE = timedelta(hours=12)
_GROWTH = 1.5
# A retry is no reason for more than so many times what the definition has.
_MAX_GROWTH = 4
_MAX_REASON_CHARS = 400


class RetryRefusedError(Exception):
    """Why a run cannot be started again, as the rest of a sentence."""


def is_family_selected(family: str, families: tuple[str, ...]) -> bool:
    """Whether the setting has a glob of the family."""
    return family != PROOF_FAMILY and any(fnmatchcase(family, glob) for glob in families)


def is_memory_failure(outcome: Outcome) -> bool:
    """Whether the run failed because memory ran out, by whatever evidence."""
    return outcome.status == "failure" and outcome.ran_out_of_memory


def refuse_old_end(ended_at: datetime | None, now: datetime) -> None:
    """Refuse an old end: AWS forgets the tokens of calls, and its jobs."""
    if ended_at is None or now - ended_at > _MAX_AGE:
        raise RetryRefusedError("it ended more than 12 hours ago")


def grown_mb(killed_mb: float, defined_mb: float, need: NeedAtSize) -> float:
    """Half more than that at which this run, or another at the definition's size, was killed, and
    the margin of what only the largest need is known of above the highest success at that size; at
    most four times the definition's.
    """
    too_little_mb = max(killed_mb, defined_mb) if need.was_killed else killed_mb
    wanted_mb = max(_GROWTH * too_little_mb, UNKNOWN_MARGIN.factor * (need.peak_mb or 0))
    wanted_mb = min(wanted_mb, _MAX_GROWTH * defined_mb)
    if wanted_mb <= killed_mb:
        raise RetryRefusedError(
            f"it had {format_memory(killed_mb)}, and a retry has at most {_MAX_GROWTH} times the "
            f"{format_memory(defined_mb)} of its definition"
        )
    return wanted_mb


def smallest_fargate_size(vcpu: float, needed_mb: float) -> Size:
    """The least size of Fargate with at least so much of both."""
    sizes = [size for size in LEGAL_SIZES if size.vcpu >= vcpu and size.memory_mb >= needed_mb]
    size = min(sizes, default=None)
    if size is None:
        raise RetryRefusedError(f"Fargate has no size with {format_memory(needed_mb)}")
    return size


def refuse_disallowed_memory(memory_mb: float, max_memory_mb: float) -> None:
    """Refuse what the setting does not allow."""
    if memory_mb > max_memory_mb:
        raise RetryRefusedError(
            f"it needs {format_memory(memory_mb)}, and RETRY_MAX_MEMORY_MB allows "
            f"{format_memory(max_memory_mb)}"
        )


def call_aws_for_retry(what: str, call: Callable[[], _Result]) -> _Result:
    """Call AWS. An answer that a later attempt can change raises DeliveryError, any other
    RetryRefusedError.
    """
    # Slow to import.
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return call()
    except (ClientError, BotoCoreError) as error:
        code = error_code(error)
        answer = getattr(error, "response", None) or {}
        if may_succeed_later(error):
            raise retry_later_error(what, code) from error
        message = answer.get("Error", {}).get("Message") or "the request is not valid"
        raise RetryRefusedError(shortened_reason(f"{what} ({code}: {message})")) from error


def retry_later_error(what: str, code: str) -> DeliveryError:
    """The error with which Lambda repeats the event."""
    return DeliveryError(
        f"A killed run is not started again yet, because {what} ({code}): Lambda retries."
    )


def shortened_reason(sentence: str) -> str:
    """The reason on one line, of a bounded length, without its full stop."""
    return on_one_line(sentence)[:_MAX_REASON_CHARS].rstrip(".")


def growth_text(old_mb: float, new_mb: float) -> str:
    """``4 GB (was 2 GB)``."""
    return f"{format_memory(new_mb)} (was {format_memory(old_mb)})"


def end_of_retry_sentence(
    killed_id: str, *, succeeded: bool, old_mb: float | None, new_mb: float | None, price: str = ""
) -> str:
    """What the end of a retry says, of the run with this id; ``price``: what the new size costs
    more, in parentheses.
    """
    short_id = killed_id[:SHORT_ID_LENGTH]
    with_size = words_if_known(" with {}", known(format_memory, new_mb))
    if not succeeded:
        return f"This was the retry of {short_id}{with_size}: it is not started again."
    if (old_mb or new_mb or 0) >= (new_mb or 0):
        return f"This was the retry of {short_id}: it succeeded{with_size}."
    advice = f"set{with_size.removeprefix(' with')}"
    little = format_memory(old_mb or 0)
    return f"Succeeded{with_size} after {little} were too little: {advice}{price}."
