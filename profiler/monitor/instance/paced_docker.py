"""Docker's API, which is asked seldom while it hangs: the samples wait for its answers."""

from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import SourceHealth, Unavailable
from profiler.readers.docker.docker_api import DockerApi
from profiler.readers.docker.ecs_container import EcsContainer, ListedContainer

# Inspections between two samples take at most so long.
_INSPECTIONS_NS = NS_PER_SECOND // 2
_RETRY_NS = NS_PER_SECOND
_RETRY_HUNG_NS = 10 * NS_PER_SECOND


class PacedDocker:
    """The API with the times of the next attempts (monotonic)."""

    def __init__(self, docker: DockerApi, clock: Clock, log: Log) -> None:
        self._docker = docker
        self._clock = clock
        self._health = SourceHealth("Docker's API", log)
        self._hung_until_ns = 0
        self._inspect_until_ns = 0

    def begin_step(self) -> None:
        """Give the inspections of a step their time."""
        self._inspect_until_ns = self._clock.monotonic_ns() + _INSPECTIONS_NS

    def on_stream_begun(self) -> None:
        """The stream of events has begun: Docker answers."""
        self._hung_until_ns = 0

    @property
    def is_time_used(self) -> bool:
        """Whether the step has no time for another inspection."""
        return self._clock.monotonic_ns() > self._inspect_until_ns

    @property
    def postponed_ns(self) -> int | None:
        """When the next inspection may be; None: now."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._hung_until_ns or self.is_time_used:
            return max(now_ns, self._hung_until_ns)
        return None

    def running_containers(self) -> tuple[ListedContainer, ...] | Unavailable:
        """The containers that run, or why they are not known."""
        listed = self._docker.list_containers()
        if not isinstance(listed, Unavailable):
            self._health.on_success()
        return listed

    def inspect_container(self, docker_id: str) -> EcsContainer | Unavailable:
        """The container of this id, or why it is not known."""
        inspected = self._docker.inspect_container(docker_id)
        if not isinstance(inspected, Unavailable):
            self._health.on_success()
        return inspected

    def retry_at_ns(self, failure: Unavailable) -> int:
        """Note a failure; return when to ask again."""
        self._health.on_failure(failure)
        now_ns = self._clock.monotonic_ns()
        if not failure.timed_out:
            return now_ns + _RETRY_NS
        self._hung_until_ns = now_ns + _RETRY_HUNG_NS
        return self._hung_until_ns
