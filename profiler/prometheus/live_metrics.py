"""The live metrics: name, type, labels, help text, and the getter of the values in a snapshot.

The record has a separate catalogue (``profiler/record/metric_catalogue.py``), because the quantities differ. The
record describes a whole run: averages, percentiles and maxima in MiB, percent and milliseconds. A snapshot
has the latest readings and running counters of each device and each container, in the base units and with the names
that Prometheus' conventions require (bytes, seconds, ratios; https://prometheus.io/docs/practices/naming/). The limits
on the numbers of devices are those of the record.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from profiler.collectors.neuron.neuron_usage import LiveNeuron
from profiler.collectors.nvidia.gpu_usage import LatestGpu
from profiler.prometheus.snapshot import ContainerSnapshot, Snapshot
from profiler.readers.linux.host import Disk, InstanceReading
from profiler.record.json_line import MAX_GPUS, MAX_NEURON_CORES

Kind = Literal["gauge", "counter"]
# The label values and the value of a series. A value of None makes no series.
Row = tuple[tuple[str, ...], float | None]

PREFIX = "task_profiler_"
# The labels of every series.
TASK_LABELS = ("task_family", "task_id")
_PERCENT = 100
_HERTZ_PER_MHZ = 1_000_000


class LiveMetric(Struct, frozen=True):
    """A live metric.

    Attributes:
        name: The name without the prefix, and without the ``_total`` of a counter.
        kind: The type.
        labels: The names of the labels, in addition to those of every series.
        help: The help text.
        rows: Reads the series from a snapshot.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    rows: Callable[[Snapshot], Iterable[Row]]

    @property
    def full_name(self) -> str:
        """The name in queries."""
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")


def _gpu(name: str, kind: Kind, help_text: str, value: Callable[[LatestGpu], float | None]) -> LiveMetric:
    def rows(snapshot: Snapshot) -> Iterator[Row]:
        for gpu in snapshot.gpus.gpus[:MAX_GPUS]:
            yield (gpu.sample.facts.uuid,), value(gpu)

    return LiveMetric(f"gpu_{name}", kind, ("uuid",), help_text, rows)


def _neuron(
    name: str, kind: Kind, labels: tuple[str, ...], help_text: str, rows: Callable[[LiveNeuron], Iterable[Row]]
) -> LiveMetric:
    return LiveMetric(
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


def _core_rows(value: Callable[[LiveNeuron], Iterable[tuple[int, float]]]) -> Callable[[LiveNeuron], list[Row]]:
    return lambda neuron: [((str(index),), number) for index, number in sorted(value(neuron))[:MAX_NEURON_CORES]]


def _latencies(neuron: LiveNeuron) -> list[Row]:
    latency = neuron.latency
    return [(("p50",), latency.p50_seconds), (("p99",), latency.p99_seconds), (("p100",), latency.p100_seconds)]


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / _PERCENT


def _hertz(mhz: int | None) -> int | None:
    return None if mhz is None else mhz * _HERTZ_PER_MHZ


def _container(name: str, kind: Kind, help_text: str, value: Callable[[ContainerSnapshot], float | None]) -> LiveMetric:
    def rows(snapshot: Snapshot) -> Iterator[Row]:
        for container in snapshot.containers.containers:
            yield (container.name,), value(container)

    return LiveMetric(f"container_{name}", kind, ("container",), help_text, rows)


def _instance(name: str, kind: Kind, help_text: str, value: Callable[[InstanceReading], float | None]) -> LiveMetric:
    return LiveMetric(
        f"instance_{name}",
        kind,
        (),
        help_text,
        lambda snapshot: [((), value(snapshot.instance))] if snapshot.instance is not None else (),
    )


def _disk(name: str, help_text: str, value: Callable[[Disk], float]) -> LiveMetric:
    def rows(snapshot: Snapshot) -> Iterator[Row]:
        for disk in snapshot.instance.disks if snapshot.instance is not None else ():
            yield (disk.mount_point,), value(disk)

    return LiveMetric(f"instance_disk_{name}", "gauge", ("mount_point",), help_text, rows)


def _task_info(snapshot: Snapshot) -> Iterator[Row]:
    task = snapshot.task
    if task.task_id is not None:
        yield (task.revision or "", task.cluster or "", task.launch_type or "", task.availability_zone or ""), 1


_GPUS = (
    LiveMetric("gpu_info", "gauge", ("uuid", "index", "name", "scope"), "The GPU, always 1.", _gpu_info),
    _gpu(
        "utilization_ratio",
        "gauge",
        "Share of the driver's last period in which a kernel ran, 0 to 1.",
        lambda gpu: _ratio(gpu.sample.utilization_percent),
    ),
    _gpu("memory_used_bytes", "gauge", "Memory in use.", lambda gpu: gpu.sample.memory_used_bytes),
    _gpu("memory_size_bytes", "gauge", "Memory size.", lambda gpu: gpu.sample.memory_size_bytes),
    _gpu("power_watts", "gauge", "Power draw.", lambda gpu: gpu.sample.power_watts),
    _gpu(
        "energy_joules",
        "counter",
        "Energy used, by the driver's counter or the integrated power.",
        lambda gpu: gpu.energy_joules,
    ),
    _gpu("temperature_celsius", "gauge", "Temperature.", lambda gpu: gpu.sample.temperature_celsius),
    _gpu(
        "sm_clock_hertz",
        "gauge",
        "Clock frequency of the multiprocessors.",
        lambda gpu: _hertz(gpu.sample.sm_clock_mhz),
    ),
    LiveMetric(
        "gpu_throttled_seconds",
        "counter",
        ("uuid", "reason"),
        "Time throttled for this reason.",
        _throttled,
    ),
)

_NEURON = (
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
        "Device memory in use on all devices, by category.",
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
        "Latency of executions in the last period.",
        _latencies,
    ),
    _neuron(
        "ecc_uncorrected_errors",
        "counter",
        (),
        "Uncorrected memory errors on all devices.",
        lambda neuron: [((), neuron.ecc_uncorrected)],
    ),
)

_TASK = (
    LiveMetric(
        "task_info",
        "gauge",
        ("revision", "cluster", "launch_type", "availability_zone"),
        "The task, always 1; unknown labels are empty.",
        _task_info,
    ),
    LiveMetric(
        "task_network_receive_bytes",
        "counter",
        (),
        "Bytes received by the task in awsvpc mode.",
        lambda snapshot: [((), snapshot.containers.task_rx_bytes)],
    ),
    LiveMetric(
        "task_network_transmit_bytes",
        "counter",
        (),
        "Bytes sent by the task in awsvpc mode.",
        lambda snapshot: [((), snapshot.containers.task_tx_bytes)],
    ),
)

_CONTAINERS = (
    _container("start_time_seconds", "gauge", "Start time, in seconds since 1970.", lambda one: one.started_seconds),
    _container("cpu_seconds", "counter", "CPU time used.", lambda one: one.cpu_seconds),
    _container("cpu_used_vcpus", "gauge", "Mean vCPU used between the last two samples.", lambda one: one.vcpu_used),
    _container(
        "cpu_limit_vcpus",
        "gauge",
        "vCPUs that the container can use.",
        lambda one: one.vcpu_limit,
    ),
    _container(
        "memory_used_bytes", "gauge", "Memory in use without reclaimable page cache.", lambda one: one.memory_used_bytes
    ),
    _container("memory_limit_bytes", "gauge", "Memory limit of the container.", lambda one: one.memory_limit_bytes),
    _container(
        "network_receive_bytes",
        "counter",
        "Bytes received on the container's own network.",
        lambda one: one.network_rx_bytes,
    ),
    _container(
        "network_transmit_bytes",
        "counter",
        "Bytes sent on the container's own network.",
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
        "Memory that is available without swapping.",
        lambda one: one.memory_available_bytes,
    ),
    _instance("swap_size_bytes", "gauge", "Swap space of the instance.", lambda one: one.swap_size_bytes),
    _instance("swap_free_bytes", "gauge", "Free swap space.", lambda one: one.swap_free_bytes),
    _instance(
        "swap_out_bytes",
        "counter",
        "Bytes written to swap space.",
        lambda one: one.swap_counters.out_bytes if one.swap_counters is not None else None,
    ),
    _instance(
        "swap_in_bytes",
        "counter",
        "Bytes read from swap space.",
        lambda one: one.swap_counters.in_bytes if one.swap_counters is not None else None,
    ),
    _disk("size_bytes", "Size of the file system.", lambda disk: disk.size_bytes),
    _disk("available_bytes", "Bytes available to users other than root.", lambda disk: disk.available_bytes),
)

_MONITOR = (
    LiveMetric(
        "monitor_info", "gauge", ("version",), "The monitor, always 1.", lambda one: [((one.monitor.version,), 1)]
    ),
    LiveMetric(
        "monitor_cpu_seconds", "counter", (), "CPU time of the monitor.", lambda one: [((), one.monitor.cpu_seconds)]
    ),
    LiveMetric(
        "monitor_memory_peak_bytes",
        "gauge",
        (),
        "Peak resident memory of the monitor.",
        lambda one: [((), one.monitor.memory_peak_bytes)],
    ),
    LiveMetric(
        "monitor_source_up",
        "gauge",
        ("source",),
        "1 if the source answers, else 0.",
        lambda one: [((name,), int(is_up)) for name, is_up in one.sources.items()],
    ),
    LiveMetric(
        "monitor_read_failures",
        "counter",
        (),
        "Failed reads of the containers' stats.",
        lambda one: [((), one.monitor.read_failures)],
    ),
    LiveMetric(
        "monitor_missed_ticks",
        "counter",
        (),
        "Sampling times that the monitor missed.",
        lambda one: [((), one.monitor.missed_ticks)],
    ),
)

LIVE_METRICS = (*_TASK, *_CONTAINERS, *_GPUS, *_NEURON, *_INSTANCE, *_MONITOR)
