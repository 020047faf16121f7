"""Reads the ECS task metadata endpoint, with a time limit that follows its answers."""

import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from msgspec.structs import replace

from profiler.core.clock import Clock
from profiler.core.errors import UsageError
from profiler.core.optional_math import first_known
from profiler.core.signal_handler import SignalHandler
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import StatsReading, UndecodedSample, decode_stats_lazily
from profiler.readers.ecs.task_metadata import (
    ContainerMetadata,
    TaskMetadata,
    decode_container,
    decode_tags,
    decode_task,
)
from profiler.readers.keep_alive_http import HttpConnection, HttpError, Response
from profiler.readers.linux.kernel_memory import KernelMemoryEstimate
from profiler.readers.memory_usage import is_notable

# A task has at most ten containers with 10 kB of stats each. A response that decodes to the most
# objects possible grows 44 times: to 88 MiB, which is still within the monitor's own memory limit
# (128 MiB).
MAX_RESPONSE_BYTES = 2 * 1024 * 1024
MAX_TIMEOUT_SECONDS = 5.0
_HTTP_OK = 200
_HTTP_NOT_FOUND = 404

_T = TypeVar("_T")


class HttpEndpoint:
    """The endpoint at an address.

    With another connection than one there (``connect``), no request or response is kept.

    The timeout of a request is 0.9 of the sampling interval, doubled after two timeouts in a row,
    at most 5 s. It never becomes shorter again: an endpoint that takes 2 s for a response takes
    them each time. After a stop request each response gets at most half a second, unless the
    request has its own time limit.
    """

    def __init__(
        self,
        address: str,
        interval_seconds: float,
        clock: Clock,
        stop_signal: SignalHandler | None = None,
        *,
        connect: Callable[[float], socket.socket] | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._address = address.rstrip("/")
        self._connect = connect
        self._max_response_bytes = max_response_bytes
        self._timeout_seconds = min(0.9 * interval_seconds, MAX_TIMEOUT_SECONDS)
        self._has_timed_out = False
        self._clock = clock
        self._stop_signal = stop_signal
        self._has_own_timeout = False
        self._request_started_ns = 0
        self._connection: HttpConnection | None = None
        self._base_path = ""
        self._deadline_ns = 0

    def get_body(self, path: str, max_seconds: float | None = None) -> bytes | Unavailable:
        """The body of a response with status 200, else the reason.

        ``max_seconds`` limits the adaptive timeout.
        """
        self._has_own_timeout = max_seconds is not None
        most_seconds = first_known(max_seconds, MAX_TIMEOUT_SECONDS)
        timeout_seconds = min(self._timeout_seconds, most_seconds)
        shown = path or "/"
        try:
            response = self._fetch(
                self._connection or self._new_connection(), path, timeout_seconds
            )
        except TimeoutError:
            self.close()
            if self._has_timed_out:
                self._timeout_seconds = min(2 * self._timeout_seconds, MAX_TIMEOUT_SECONDS)
            self._has_timed_out = not self._has_timed_out
            waited_seconds = (
                self._effective_deadline_ns() - self._request_started_ns
            ) / NS_PER_SECOND
            return Unavailable(
                f"{shown} did not answer within {waited_seconds:.3g} s", timed_out=True
            )
        except (
            HttpError,
            OSError,
            ValueError,
        ) as error:  # ValueError: an invalid address, see check_address()
            self.close()
            cause = error if isinstance(error, HttpError) else type(error).__name__
            return Unavailable(f"{shown} cannot be read: {cause}")
        if response.body is None or response.status != _HTTP_OK:
            if response.body is None:
                answer = f"more than {self._max_response_bytes} bytes"
            else:
                answer = f"HTTP {response.status}"
            return Unavailable(
                f"{shown} answered {answer}", is_gone=response.status == _HTTP_NOT_FOUND
            )
        self._has_timed_out = False
        return response.body

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _new_connection(self) -> HttpConnection:
        parts, address = _split_address(self._address)
        self._base_path = parts.path
        self._connection = HttpConnection(
            self._connect
            or (lambda timeout_seconds: socket.create_connection(address, timeout_seconds)),
            parts.netloc.rpartition("@")[2],
            self._wait_readable,
            self._max_response_bytes,
            keeps_responses=self._connect is None,
        )
        return self._connection

    def _fetch(self, connection: HttpConnection, path: str, timeout_seconds: float) -> Response:
        self._request_started_ns = self._clock.monotonic_ns()
        self._deadline_ns = self._request_started_ns + round(timeout_seconds * NS_PER_SECOND)
        was_kept = connection.is_open
        target = (self._base_path + path) or "/"
        try:
            return connection.get(target, timeout_seconds)
        except ConnectionError:
            if not was_kept:
                raise
            connection.close()  # the endpoint had closed the idle connection
            return connection.get(target, timeout_seconds)

    def _effective_deadline_ns(self) -> int:
        requested_ns = None if self._stop_signal is None else self._stop_signal.requested_ns
        if requested_ns is None or self._has_own_timeout:
            return self._deadline_ns
        # A healthy endpoint responds within milliseconds.
        return min(
            self._deadline_ns, max(requested_ns, self._request_started_ns) + NS_PER_SECOND // 2
        )

    def _wait_readable(self, source: socket.socket) -> None:
        """Wait until the deadline, then raise TimeoutError.

        A socket's own timeout restarts with every read.
        """
        while (remaining_ns := self._effective_deadline_ns() - self._clock.monotonic_ns()) > 0:
            remaining_seconds = remaining_ns / NS_PER_SECOND
            if self._stop_signal is None:
                source.settimeout(remaining_seconds)
                return
            if self._stop_signal.wait_readable(source, remaining_seconds):
                if source.gettimeout():
                    source.settimeout(0)  # else each call polls once more
                return
        raise TimeoutError


def check_endpoint_address(address: str) -> None:
    """Raise UsageError for what is not the address of an endpoint: no attempt can succeed."""
    try:
        _split_address(address.rstrip("/"))
    except ValueError as error:
        raise UsageError(
            f"The monitor cannot read its task, because {address!r} is not the address of a task "
            "metadata endpoint: remove ECS_CONTAINER_METADATA_URI_V4, which ECS sets itself, "
            "from the container definition."
        ) from error


def _split_address(address: str) -> tuple[SplitResult, tuple[str, int]]:
    """The parts of an endpoint's address, and where to connect.

    Raises ValueError if it is not valid.
    """
    parts = urlsplit(address)
    is_printable = all("!" <= character <= "~" for character in address)
    if parts.scheme != "http" or parts.hostname is None or not is_printable:
        raise ValueError(address)
    return parts, (parts.hostname, first_known(parts.port, 80))


class TaskMetadataSource:
    """The ECS task metadata endpoint; for ``device_mapper_majors`` see :func:`decode_stats`."""

    has_news = False
    is_resumed = False

    def __init__(
        self,
        endpoint: HttpEndpoint,
        version: int,
        device_mapper_majors: frozenset[int] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._device_mapper_majors = device_mapper_majors
        self._decoded: dict[str, tuple[bytes, Any]] = {}
        self._kernel_memory: dict[str, KernelMemoryEstimate] = {}
        self.name = f"task-metadata-v{version}"

    def close(self) -> None:
        self._endpoint.close()

    def read_task(self, max_seconds: float | None = None) -> TaskMetadata | Unavailable:
        """The task's metadata: the object of last time if the response has not changed."""
        return self._read_and_decode("/task", decode_task, max_seconds)

    def read_stats(self, max_seconds: float | None = None) -> StatsReading | Unavailable:
        """The stats: the object of last time if the response has not changed, which on Fargate it
        does every 10 s.
        """
        return self._read_and_decode("/task/stats", self._decode_stats, max_seconds)

    def _decode_stats(self, body: bytes) -> StatsReading | Unavailable:
        """The stats; those of version 1 without the kernel memory that is known as reclaimable,
        for which the machine is asked at once.
        """
        samples = decode_stats_lazily(body, self._device_mapper_majors)
        if isinstance(samples, Unavailable):
            return samples
        for docker_id in self._kernel_memory.keys() - samples.keys():
            del self._kernel_memory[docker_id]
        for docker_id, late in samples.items():
            if isinstance(late, UndecodedSample):
                kernel_bytes = late.kernel_bytes
                # Of a container whose kernel memory is little, only the first one is noted.
                if kernel_bytes is not None and (
                    docker_id not in self._kernel_memory or is_notable(kernel_bytes, 0)
                ):
                    samples[docker_id] = self._without_reclaimable_kernel(
                        docker_id, late.decoded_sample()
                    )
        return samples

    def _without_reclaimable_kernel(
        self, docker_id: str, sample: ContainerSample
    ) -> ContainerSample:
        if sample.memory_kernel_bytes is None:
            return sample
        used_bytes = sample.memory_used_bytes or 0
        if docker_id not in self._kernel_memory:
            self._kernel_memory[docker_id] = KernelMemoryEstimate()
        estimate = self._kernel_memory[docker_id]
        kernel_bytes = sample.memory_kernel_bytes
        known_bytes = min(estimate.reclaimable_bytes(kernel_bytes, used_bytes), used_bytes)
        if not known_bytes:
            return sample
        return replace(
            sample,
            memory_used_bytes=used_bytes - known_bytes,
            memory_cache_bytes=(sample.memory_cache_bytes or 0) + known_bytes,
            memory_kernel_bytes=kernel_bytes - known_bytes,
        )

    def read_own_container(self) -> ContainerMetadata | Unavailable:
        return self._read_and_decode("", decode_container)

    def read_tags(self) -> Mapping[str, str] | Unavailable:
        """The task's tags. The endpoint asks the ECS API for them, which may take seconds."""
        return self._read_and_decode("/taskWithTags", decode_tags)

    def _read_and_decode(
        self,
        path: str,
        decode: Callable[[bytes], _T | Unavailable],
        max_seconds: float | None = None,
    ) -> _T | Unavailable:
        body = self._endpoint.get_body(path, max_seconds)
        if isinstance(body, Unavailable):
            return body
        before, decoded = self._decoded.get(path, (None, None))
        # The connection returns the same object for a response that repeats the last one.
        if body != before:
            decoded = decode(body)
            self._decoded[path] = body, decoded
        return cast("_T | Unavailable", decoded)
