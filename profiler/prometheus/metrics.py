"""All metrics: name, type, labels, and the getter of their values in a Snapshot. A None value makes no series."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from profiler.collectors.neuron.usage import NeuronReadings
from profiler.collectors.nvidia.usage import LatestGpu
from profiler.prometheus.snapshot import ContainerSnapshot, Snapshot
from profiler.sources.linux.host import Disk, InstanceReading

Kind = Literal["gauge", "counter"]
# The values of a metric's labels, and its value.
Row = tuple[tuple[str, ...], float | None]

PREFIX = "task_profiler_"
TASK_LABELS = ("task_family", "task_id")


class Metric(Struct, frozen=True):
    """A metric. ``name`` stands without the prefix, and a counter's without ``_total``."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    rows: Callable[[Snapshot], Iterable[Row]]

    @property
    def full_name(self) -> str:
        """As in a query."""
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")


# As many as in the record.
MAX_GPUS = 32
MAX_CORES = 128
_PERCENT = 100
_HERTZ_PER_MHZ = 1_000_000


def _gpu(name: str, kind: Kind, help_text: str, value: Callable[[LatestGpu], float | None]) -> Metric:
    def rows(snapshot: Snapshot) -> Iterator[Row]:
        for gpu in snapshot.gpus.gpus[:MAX_GPUS]:
            yield (gpu.sample.facts.uuid,), value(gpu)

    return Metric(f"gpu_{name}", kind, ("uuid",), help_text, rows)


def _neuron(
    name: str, kind: Kind, labels: tuple[str, ...], help_text: str, rows: Callable[[NeuronReadings], Iterable[Row]]
) -> Metric:
    return Metric(
        f"neuron_{name}",
        kind,
        labels,
        help_text,
        lambda snapshot: rows(snapshot.neuron) if snapshot.neuron is not None else (),
    )


def _gpu_info(snapshot: Snapshot) -> Iterator[Row]:
    for gpu in snapshot.gpus.gpus[:MAX_GPUS]:
        facts = gpu.sample.facts
        yield (facts.uuid, str(facts.index), facts.name or "", snapshot.gpus.scope), 1


def _throttled(snapshot: Snapshot) -> Iterator[Row]:
    for gpu in snapshot.gpus.gpus[:MAX_GPUS]:
        for reason, seconds in (gpu.throttled_seconds or {}).items():
            yield (gpu.sample.facts.uuid, reason), seconds


def _core_rows(value: Callable[[NeuronReadings], Iterable[tuple[int, float]]]) -> Callable[[NeuronReadings], list[Row]]:
    return lambda neuron: [((str(index),), number) for index, number in sorted(value(neuron))[:MAX_CORES]]


def _latencies(neuron: NeuronReadings) -> list[Row]:
    latency = neuron.latency
    return [(("p50",), latency.p50_seconds), (("p99",), latency.p99_seconds), (("p100",), latency.p100_seconds)]


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / _PERCENT


def _hertz(mhz: int | None) -> int | None:
    return None if mhz is None else mhz * _HERTZ_PER_MHZ


GPU_METRICS = (
    Metric("gpu_info", "gauge", ("uuid", "index", "name", "scope"), "The GPU, always 1.", _gpu_info),
    _gpu(
        "utilization_ratio",
        "gauge",
        "Share of the driver's last window (1/6 to 1 s) in which a kernel ran, 0 to 1.",
        lambda gpu: _ratio(gpu.sample.utilization_percent),
    ),
    _gpu("memory_used_bytes", "gauge", "Memory in use.", lambda gpu: gpu.sample.memory_used_bytes),
    _gpu("memory_size_bytes", "gauge", "Memory there is.", lambda gpu: gpu.sample.memory_size_bytes),
    _gpu("power_watts", "gauge", "Power drawn.", lambda gpu: gpu.sample.power_watts),
    _gpu(
        "energy_joules",
        "counter",
        "Energy used, by the driver's own counter where it has one.",
        lambda gpu: gpu.energy_joules,
    ),
    _gpu("temperature_celsius", "gauge", "Temperature.", lambda gpu: gpu.sample.temperature_celsius),
    _gpu("sm_clock_hertz", "gauge", "Clock of the multiprocessors.", lambda gpu: _hertz(gpu.sample.sm_clock_mhz)),
    Metric(
        "gpu_throttled_seconds",
        "counter",
        ("uuid", "reason"),
        "Time in which the driver gave this reason for a lower clock.",
        _throttled,
    ),
)

NEURON_METRICS = (
    _neuron(
        "core_utilization_ratio",
        "gauge",
        ("neuron_core",),
        "Share of the last period in which the core computed, 0 to 1.",
        _core_rows(
            lambda neuron: ((index, percent / _PERCENT) for index, percent in neuron.utilization_percent.items())
        ),
    ),
    _neuron(
        "core_memory_used_bytes",
        "gauge",
        ("neuron_core",),
        "Device memory in use by the core.",
        _core_rows(lambda neuron: neuron.core_memory_bytes.items()),
    ),
    _neuron(
        "memory_used_bytes",
        "gauge",
        ("category",),
        "Device memory in use on all devices, by neuron-monitor's category.",
        lambda neuron: [((name,), used) for name, used in neuron.memory_bytes_by_category.items()],
    ),
    _neuron(
        "device_memory_used_bytes",
        "gauge",
        (),
        "Device memory in use on all devices.",
        lambda neuron: [((), neuron.device_memory_bytes)],
    ),
    _neuron(
        "device_memory_size_bytes",
        "gauge",
        (),
        "Memory of all visible devices.",
        lambda neuron: [((), neuron.device_memory_size_bytes)],
    ),
    _neuron(
        "executions",
        "counter",
        ("outcome",),
        "Executions by outcome: completed or failed.",
        lambda neuron: [(("completed",), neuron.completed), (("failed",), neuron.failed)],
    ),
    _neuron(
        "execution_latency_seconds",
        "gauge",
        ("percentile",),
        "Latency of the executions in the last period.",
        _latencies,
    ),
    _neuron(
        "ecc_uncorrected_errors",
        "counter",
        (),
        "Memory errors that could not be corrected, on all devices.",
        lambda neuron: [((), neuron.ecc_uncorrected)],
    ),
)


def _container(name: str, kind: Kind, help_text: str, value: Callable[[ContainerSnapshot], float | None]) -> Metric:
    def rows(snapshot: Snapshot) -> Iterator[Row]:
        for container in snapshot.containers.containers:
            yield (container.name,), value(container)

    return Metric(f"container_{name}", kind, ("container",), help_text, rows)


def _instance(name: str, kind: Kind, help_text: str, value: Callable[[InstanceReading], float | None]) -> Metric:
    return Metric(
        f"instance_{name}",
        kind,
        (),
        help_text,
        lambda snapshot: [((), value(snapshot.instance))] if snapshot.instance is not None else (),
    )


def _disk(name: str, help_text: str, value: Callable[[Disk], float]) -> Metric:
    def rows(snapshot: Snapshot) -> Iterator[Row]:
        for disk in snapshot.instance.disks if snapshot.instance is not None else ():
            yield (disk.mount_point,), value(disk)

    return Metric(f"instance_disk_{name}", "gauge", ("mount_point",), help_text, rows)


def _task_info(snapshot: Snapshot) -> Iterator[Row]:
    task = snapshot.task
    if task.task_id is not None:
        yield (task.revision or "", task.cluster or "", task.launch_type or "", task.availability_zone or ""), 1


_TASK = (
    Metric(
        "task_info",
        "gauge",
        ("revision", "cluster", "launch_type", "availability_zone"),
        "The task, always 1; labels are empty where the endpoint does not tell.",
        _task_info,
    ),
    Metric(
        "task_network_receive_bytes",
        "counter",
        (),
        "Bytes that the task received, where its containers share a network (awsvpc).",
        lambda snapshot: [((), snapshot.containers.task_rx_bytes)],
    ),
    Metric(
        "task_network_transmit_bytes",
        "counter",
        (),
        "Bytes that the task sent, where its containers share a network (awsvpc).",
        lambda snapshot: [((), snapshot.containers.task_tx_bytes)],
    ),
)

_CONTAINERS = (
    _container("start_time_seconds", "gauge", "Start, in seconds since 1970.", lambda one: one.started_seconds),
    _container("cpu_seconds", "counter", "CPU time used.", lambda one: one.cpu_seconds),
    _container("cpu_used_vcpus", "gauge", "vCPU in use over the step to the last sample.", lambda one: one.vcpu_used),
    _container("cpu_limit_vcpus", "gauge", "vCPU that bounds the container.", lambda one: one.vcpu_limit),
    _container(
        "memory_used_bytes", "gauge", "Memory in use without reclaimable page cache.", lambda one: one.memory_used_bytes
    ),
    _container("memory_limit_bytes", "gauge", "Memory that bounds the container.", lambda one: one.memory_limit_bytes),
    _container(
        "network_receive_bytes",
        "counter",
        "Bytes received, where the container has a network of its own.",
        lambda one: one.network_rx_bytes,
    ),
    _container(
        "network_transmit_bytes",
        "counter",
        "Bytes sent, where the container has a network of its own.",
        lambda one: one.network_tx_bytes,
    ),
    _container("block_read_bytes", "counter", "Bytes read from block devices.", lambda one: one.block_read_bytes),
    _container("block_write_bytes", "counter", "Bytes written to block devices.", lambda one: one.block_write_bytes),
)

_INSTANCE = (
    _instance("memory_size_bytes", "gauge", "Memory of the instance.", lambda one: one.memory_size_bytes),
    _instance(
        "memory_available_bytes",
        "gauge",
        "Memory that could be had without swapping.",
        lambda one: one.memory_available_bytes,
    ),
    _instance("swap_size_bytes", "gauge", "Swap of the instance.", lambda one: one.swap_size_bytes),
    _instance("swap_free_bytes", "gauge", "Swap not in use.", lambda one: one.swap_free_bytes),
    _instance(
        "swap_out_bytes",
        "counter",
        "Bytes moved to swap.",
        lambda one: one.swap_counters.out_bytes if one.swap_counters is not None else None,
    ),
    _instance(
        "swap_in_bytes",
        "counter",
        "Bytes brought back from swap.",
        lambda one: one.swap_counters.in_bytes if one.swap_counters is not None else None,
    ),
    _disk("size_bytes", "Size of the file system.", lambda disk: disk.size_bytes),
    _disk("available_bytes", "Bytes that others than root can still write.", lambda disk: disk.available_bytes),
)

_MONITOR = (
    Metric("monitor_info", "gauge", ("version",), "The monitor, always 1.", lambda one: [((one.monitor.version,), 1)]),
    Metric(
        "monitor_cpu_seconds", "counter", (), "CPU time of the monitor.", lambda one: [((), one.monitor.cpu_seconds)]
    ),
    Metric(
        "monitor_memory_peak_bytes",
        "gauge",
        (),
        "Largest resident memory of the monitor so far.",
        lambda one: [((), one.monitor.memory_peak_bytes)],
    ),
    Metric(
        "monitor_source_up",
        "gauge",
        ("source",),
        "1 if the source answers, 0 if it does not: then its series are gone.",
        lambda one: [((name,), int(is_up)) for name, is_up in one.sources.items()],
    ),
    Metric(
        "monitor_read_failures",
        "counter",
        (),
        "Readings of the containers' stats that failed.",
        lambda one: [((), one.monitor.read_failures)],
    ),
    Metric(
        "monitor_missed_ticks",
        "counter",
        (),
        "Ticks at which the monitor was late.",
        lambda one: [((), one.monitor.missed_ticks)],
    ),
)

CATALOGUE = (*_TASK, *_CONTAINERS, *GPU_METRICS, *NEURON_METRICS, *_INSTANCE, *_MONITOR)
