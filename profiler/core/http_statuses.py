"""HTTP statuses that several clients read alike."""

from typing import Final

TOO_MANY_REQUESTS: Final = 429
# The server is busy or away, or a proxy did not reach it: the same request can succeed later.
RETRYABLE_STATUSES: Final = frozenset({TOO_MANY_REQUESTS, 502, 503, 504})
# The server refuses the sender.
UNAUTHORIZED_STATUSES: Final = frozenset({401, 403})
