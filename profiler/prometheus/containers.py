"""The containers at their last sample, from the same answers that the record is made of."""

from collections.abc import Mapping

from msgspec import Struct

from profiler.figures import vcpu_between
from profiler.known import max_known
from profiler.prometheus.snapshot import ContainerSnapshot, ContainersSnapshot
from profiler.sources.container_stats import ContainerSample, StatsReading
from profiler.sources.host import Host
from profiler.sources.task_metadata import ContainerMetadata, TaskMetadata
from profiler.summary import container_limits
from profiler.times import NS_PER_SECOND
from profiler.usage import ContainerUsage

# ECS allows 10 in a task definition and adds a few of its own.
MAX_CONTAINERS = 16
# Stats that have not moved for so long are no longer made by anybody: agents renew them every 20 s at least.
_MAX_SAMPLE_AGE_NS = 60 * NS_PER_SECOND


class _LastSample(Struct, frozen=True):
    """A container's last sample, when it came (monotonic), and the vCPU of the step that ended with it."""

    sample: ContainerSample
    received_ns: int
    vcpu: float | None = None


class ContainerTracker:
    """Remembers one sample of each container, for the step to the next one."""

    def __init__(self, host: Host, hold_ns: int) -> None:
        self._host = host
        self._max_sample_age_ns = max(_MAX_SAMPLE_AGE_NS, hold_ns)
        self._last: dict[str, _LastSample] = {}
        self._task_rx_bytes: int | None = None
        self._task_tx_bytes: int | None = None

    def update(
        self, task: TaskMetadata, reading: StatsReading, usages: Mapping[str, ContainerUsage], now_ns: int
    ) -> ContainersSnapshot:
        """Take an answer, again or anew; what it does not show is forgotten."""
        self._last = {docker_id: self._next(docker_id, sample, now_ns) for docker_id, sample in reading.samples.items()}
        found: dict[str, ContainerSnapshot] = {}
        has_task_network = False
        for container in task.containers:
            last = self._last.get(container.docker_id or "")
            if (
                last is None
                or now_ns - last.received_ns > self._max_sample_age_ns
                or task.container(container.name) is not container
            ):
                continue
            found[container.name] = self._now(container, task, last, usages.get(container.name))
            if container.shares_network:
                self._add_task_network(last.sample)
                has_task_network = True
            if len(found) == MAX_CONTAINERS:
                break
        return ContainersSnapshot(
            containers=tuple(found.values()),
            task_rx_bytes=self._task_rx_bytes if has_task_network else None,
            task_tx_bytes=self._task_tx_bytes if has_task_network else None,
        )

    def _next(self, docker_id: str, sample: ContainerSample, now_ns: int) -> _LastSample:
        before = self._last.get(docker_id)
        if before is not None and before.sample.read_ns == sample.read_ns:
            return before
        return _LastSample(sample, now_ns, vcpu_between(before.sample if before is not None else None, sample))

    def _add_task_network(self, sample: ContainerSample) -> None:
        """The containers' samples are of different moments: only the largest so far never falls."""
        self._task_rx_bytes = max_known(self._task_rx_bytes, sample.network_rx_bytes)
        self._task_tx_bytes = max_known(self._task_tx_bytes, sample.network_tx_bytes)

    def _now(
        self, container: ContainerMetadata, task: TaskMetadata, last: _LastSample, usage: ContainerUsage | None
    ) -> ContainerSnapshot:
        sizes = container_limits(container, task, usage, self._host)
        sample = last.sample
        own_network = not container.shares_network
        return ContainerSnapshot(
            name=container.name,
            started_seconds=_seconds(container.started_ns),
            cpu_seconds=_seconds(sample.cpu_ns),
            vcpu_used=last.vcpu,
            vcpu_limit=sizes.vcpu,
            memory_used_bytes=sample.memory_used_bytes,
            memory_limit_bytes=sizes.memory_bytes,
            network_rx_bytes=sample.network_rx_bytes if own_network else None,
            network_tx_bytes=sample.network_tx_bytes if own_network else None,
            block_read_bytes=sample.block_read_bytes,
            block_write_bytes=sample.block_write_bytes,
        )


def _seconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / NS_PER_SECOND
