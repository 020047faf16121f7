"""What is known at one moment, immutable: made by the main loop, shown by the server's threads."""

from collections.abc import Mapping

from msgspec import Struct

from profiler.accelerators.gpu_usage import LatestGpu
from profiler.accelerators.neuron_usage import NeuronReadings
from profiler.sources.instance import InstanceReading


class ContainerSnapshot(Struct, frozen=True, kw_only=True):
    """A container by its last sample. Counters count from its start; what is not known is None."""

    name: str
    started_seconds: float | None = None
    cpu_seconds: float | None = None
    vcpu_used: float | None = None
    vcpu_limit: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: float | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None


class ContainersSnapshot(Struct, frozen=True, kw_only=True):
    """All containers with a sample; the counters of a network that they share are the task's."""

    containers: tuple[ContainerSnapshot, ...] = ()
    task_rx_bytes: int | None = None
    task_tx_bytes: int | None = None


class TaskSnapshot(Struct, frozen=True, kw_only=True):
    """Which task this is."""

    family: str | None = None
    task_id: str | None = None
    revision: str | None = None
    cluster: str | None = None
    launch_type: str | None = None
    availability_zone: str | None = None


class GpusSnapshot(Struct, frozen=True, kw_only=True):
    """The GPUs; ``scope`` is ``batch`` where they are known to be the batch's, else ``instance``."""

    gpus: tuple[LatestGpu, ...] = ()
    scope: str = "instance"


class MonitorSnapshot(Struct, frozen=True, kw_only=True):
    """The monitor itself."""

    version: str
    cpu_seconds: float
    memory_peak_bytes: int | None = None
    read_failures: int = 0
    missed_ticks: int = 0


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything, as known at ``taken_ns`` (monotonic).

    ``sources`` tells which of them answer; what one that does not has told before is left out.
    """

    taken_ns: int
    monitor: MonitorSnapshot
    sources: Mapping[str, bool] = {}
    task: TaskSnapshot = TaskSnapshot()
    containers: ContainersSnapshot = ContainersSnapshot()
    gpus: GpusSnapshot = GpusSnapshot()
    neuron: NeuronReadings | None = None
    instance: InstanceReading | None = None


def without_readings(snapshot: Snapshot) -> Snapshot:
    """What is still true of a snapshot that was not followed by another: who, but not how much."""
    return Snapshot(
        taken_ns=snapshot.taken_ns,
        monitor=snapshot.monitor,
        sources=dict.fromkeys(snapshot.sources, False),
        task=snapshot.task,
    )
