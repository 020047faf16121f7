"""HTTP statuses, and the pause beside one, that several clients read alike."""

from typing import Final

TOO_MANY_REQUESTS: Final = 429
# The server is busy or away, or a proxy did not reach it: the same request can succeed later.
RETRYABLE_STATUSES: Final = frozenset({TOO_MANY_REQUESTS, 502, 503, 504})
# The server refuses the sender.
UNAUTHORIZED_STATUSES: Final = frozenset({401, 403})


def retry_after_seconds(text: str) -> float:
    """The pause that a server asks for in ``Retry-After``, in seconds or as a date; 0 without a
    valid one.
    """
    # Slow to import, and seldom needed.
    from urllib3 import Retry
    from urllib3.exceptions import InvalidHeader

    try:
        return Retry().parse_retry_after(text)
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0
