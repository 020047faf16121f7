"""All metrics: name, type, labels, and where in a Snapshot their values are. What is None makes no series."""

from collections.abc import Callable, Iterator

from profiler.prometheus.accelerator_metrics import GPU_METRICS, NEURON_METRICS
from profiler.prometheus.metric import Kind, Metric, Row
from profiler.prometheus.snapshot import ContainerSnapshot, Snapshot
from profiler.sources.instance import Disk, InstanceReading


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
