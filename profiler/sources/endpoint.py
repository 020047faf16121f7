"""HTTP to the task metadata endpoint: one kept-alive connection, bounded in time and size.

By urllib3, which is what requests speaks through: a request costs half as much, and beside the batch
5 MiB less are held. It follows neither redirects nor the proxies that the environment may name.
"""

from typing import Protocol

import urllib3

from profiler.clock import Clock
from profiler.sources import Unavailable
from profiler.times import NS_PER_SECOND

# A task has ten containers at most and 10 kB of stats each. What decodes to the most objects becomes
# 44 times as large: 88 MiB, which the monitor's own memory limit (128 MiB) still holds.
LARGEST_ANSWER_BYTES = 2 * 1024 * 1024
LONGEST_TIMEOUT_SECONDS = 5.0
_CHUNK_BYTES = 64 * 1024
_TIMEOUTS_BEFORE_PATIENCE = 2
_HTTP_OK = 200
_HEADERS = {"Accept": "application/json"}


class Endpoint(Protocol):
    """What the task metadata source needs of a transport."""

    def get(self, path: str, at_most_seconds: float | None = None) -> bytes | Unavailable:
        """The body of ``path`` below the endpoint's address, or why there is none."""
        ...


class Patience:
    """The timeout: 0.9 of the interval at first, doubled after two timeouts in a row, at most 5 s.

    It stays where it got: an endpoint that needs 2 s needs them each time.
    """

    def __init__(self, interval_seconds: float) -> None:
        self.timeout_seconds = min(0.9 * interval_seconds, LONGEST_TIMEOUT_SECONDS)
        self._in_a_row = 0

    def answered(self) -> None:
        """The endpoint answered in time."""
        self._in_a_row = 0

    def timed_out(self) -> None:
        """The endpoint did not answer in time."""
        self._in_a_row += 1
        if self._in_a_row >= _TIMEOUTS_BEFORE_PATIENCE:
            self._in_a_row = 0
            self.timeout_seconds = min(2 * self.timeout_seconds, LONGEST_TIMEOUT_SECONDS)


class HttpEndpoint:
    """The real endpoint, at the address that ECS gives in ``ECS_CONTAINER_METADATA_URI_V4``."""

    def __init__(self, address: str, patience: Patience, clock: Clock) -> None:
        self._address = address.rstrip("/")
        self._patience = patience
        self._clock = clock
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._folder = ""

    def get(self, path: str, at_most_seconds: float | None = None) -> bytes | Unavailable:
        """The body of a 200 answer; anything else is a reason."""
        timeout_seconds = self._patience.timeout_seconds
        if at_most_seconds is not None:
            timeout_seconds = min(timeout_seconds, at_most_seconds)
        shown = path or "/"
        try:
            answer = self._send(path, timeout_seconds)
        except urllib3.exceptions.NewConnectionError as error:  # refused; a timeout, by its class
            return Unavailable(f"{shown} cannot be read: {type(error).__name__}")
        except urllib3.exceptions.TimeoutError:
            self._patience.timed_out()
            return Unavailable(f"{shown} did not answer within {timeout_seconds:g} s", timed_out=True)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            return Unavailable(f"{shown} cannot be read: {type(error).__name__}")
        if not isinstance(answer, Unavailable):
            self._patience.answered()
        return answer

    def _send(self, path: str, timeout_seconds: float) -> bytes | Unavailable:
        deadline_ns = self._clock.monotonic_ns() + round(timeout_seconds * NS_PER_SECOND)
        response = self._connection().urlopen(
            "GET",
            self._folder + path,
            headers=_HEADERS,
            retries=False,
            redirect=False,
            timeout=timeout_seconds,
            preload_content=False,
            decode_content=False,
        )
        with response:
            if response.status != _HTTP_OK:
                # A short answer is read to its end by this, so that the connection can serve again. Asking
                # for all of it would wait for as long as one that drips goes on.
                response.read1(_CHUNK_BYTES)
                return Unavailable(f"{path or '/'} answered HTTP {response.status}")
            chunks: list[bytes] = []
            size_bytes = 0
            # Nothing is unpacked: no compressed answer was asked for, and a small one may become a huge one.
            while chunk := response.read1(_CHUNK_BYTES):
                chunks.append(chunk)
                size_bytes += len(chunk)
                if size_bytes > LARGEST_ANSWER_BYTES:
                    return Unavailable(f"{path or '/'} answered more than {LARGEST_ANSWER_BYTES} bytes")
                if self._clock.monotonic_ns() > deadline_ns:
                    raise urllib3.exceptions.TimeoutError
            return b"".join(chunks)

    def _connection(self) -> urllib3.HTTPConnectionPool:
        """One connection, made when it is first needed: an address that is none is a reason like others."""
        if self._pool is None:
            self._folder = urllib3.util.parse_url(self._address).path or ""
            self._pool = urllib3.connection_from_url(self._address, maxsize=1)
        return self._pool
