"""The live metrics: name, labels and help text, and their values in a snapshot.

The record has a separate catalogue (``profiler/record/metric_catalogue.py``), because the quantities differ. The
record describes a whole run: averages, percentiles and maxima in MiB, percent and milliseconds. A snapshot
has the latest readings and running counters of each device and each container, in the base units and with the names
that Prometheus' conventions require (bytes, seconds, ratios; https://prometheus.io/docs/practices/naming/). The limits
on the numbers of devices are those of the record.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from profiler.collectors.neuron.neuron_usage import LiveNeuron
from profiler.collectors.nvidia.gpu_usage import LiveGpus
from profiler.core.ecs_terms import cluster_name, task_id
from profiler.core.timestamps import NS_PER_SECOND
from profiler.core.version import __version__
from profiler.prometheus.snapshot import ContainerSnapshot, Snapshot
from profiler.readers.linux.host import InstanceReading
from profiler.record.bounded_json_line import MAX_GPUS, MAX_NEURON_CORES
from profiler.record.hardware import WHOLE_INSTANCE
from profiler.record.units import MIB

PREFIX = "task_profiler_"
# The labels of every series.
TASK_LABELS = ("task_family", "task_id")
_COUNTER_SUFFIX = "_total"
_BATCH_SCOPE = "batch"
_PERCENT = 100
_HERTZ_PER_MHZ = 1_000_000


class LiveMetric(Struct, frozen=True):
    """A live metric.

    Attributes:
        name: The name without the prefix; that of a counter ends with ``_total``.
        labels: The names of the labels, in addition to those of every series.
        help: The help text.
    """

    name: str
    labels: tuple[str, ...]
    help: str

    @property
    def full_name(self) -> str:
        """The name in queries."""
        return PREFIX + self.name

    @property
    def kind(self) -> str:
        """The type."""
        return "counter" if self.name.endswith(_COUNTER_SUFFIX) else "gauge"


def _metrics(*labels: str, **help_texts: str) -> tuple[LiveMetric, ...]:
    """Metrics with the same labels: their names and help texts."""
    return tuple(LiveMetric(name, labels, text) for name, text in help_texts.items())


LIVE_METRICS: tuple[LiveMetric, ...] = (
    *_metrics(
        *("revision", "cluster", "launch_type", "availability_zone"),
        task_info="The task, always 1; unknown labels are empty.",
    ),
    *_metrics(
        task_network_receive_bytes_total="Bytes received by the task in awsvpc mode.",
        task_network_transmit_bytes_total="Bytes sent by the task in awsvpc mode.",
    ),
    *_metrics(
        "container",
        container_start_time_seconds="Start time, in seconds since 1970.",
        container_cpu_seconds_total="CPU time used.",
        container_cpu_used_vcpus="Mean vCPU used between the last two samples.",
        container_cpu_limit_vcpus="vCPUs that the container can use.",
        container_memory_used_bytes="Memory in use without reclaimable page cache.",
        container_memory_limit_bytes="Memory limit of the container.",
        container_network_receive_bytes_total="Bytes received on the container's own network.",
        container_network_transmit_bytes_total="Bytes sent on the container's own network.",
        container_block_read_bytes_total="Bytes read from block devices.",
        container_block_write_bytes_total="Bytes written to block devices.",
    ),
    *_metrics("uuid", "index", "name", "scope", gpu_info="The GPU, always 1."),
    *_metrics(
        "uuid",
        gpu_utilization_ratio="Share of the driver's last period in which a kernel ran, 0 to 1.",
        gpu_memory_used_bytes="Memory in use.",
        gpu_memory_size_bytes="Memory size.",
        gpu_power_watts="Power draw.",
        gpu_energy_joules_total="Energy used, by the driver's counter or the integrated power.",
        gpu_temperature_celsius="Temperature.",
        gpu_sm_clock_hertz="Clock frequency of the multiprocessors.",
    ),
    *_metrics("uuid", "reason", gpu_throttled_seconds_total="Time throttled for this reason."),
    *_metrics(
        "neuron_core",
        neuron_core_utilization_ratio="Share of the last period in which the core computed, 0 to 1.",
        neuron_core_memory_used_bytes="Device memory in use by the core.",
    ),
    *_metrics(
        "category",
        neuron_memory_used_bytes="Device memory in use on all devices, by category.",
    ),
    *_metrics(
        neuron_device_memory_used_bytes="Device memory in use on all devices.",
        neuron_device_memory_size_bytes="Memory of all visible devices.",
    ),
    *_metrics("outcome", neuron_executions_total="Executions by outcome: completed or failed."),
    *_metrics("percentile", neuron_execution_latency_seconds="Latency of executions in the last period."),
    *_metrics(
        neuron_ecc_uncorrected_errors_total="Uncorrected memory errors on all devices.",
        instance_memory_size_bytes="Memory of the instance.",
        instance_memory_available_bytes="Memory that is available without swapping.",
        instance_swap_size_bytes="Swap space of the instance.",
        instance_swap_free_bytes="Free swap space.",
        instance_swap_out_bytes_total="Bytes written to swap space.",
        instance_swap_in_bytes_total="Bytes read from swap space.",
    ),
    *_metrics(
        "mount_point",
        instance_disk_size_bytes="Size of the file system.",
        instance_disk_available_bytes="Bytes available to users other than root.",
    ),
    *_metrics("version", monitor_info="The monitor, always 1."),
    *_metrics(
        monitor_cpu_seconds_total="CPU time of the monitor.",
        monitor_memory_peak_bytes="Peak resident memory of the monitor.",
    ),
    *_metrics("source", monitor_source_up="1 if the source answers, else 0."),
    *_metrics(
        monitor_read_failures_total="Failed reads of the containers' stats.",
        monitor_missed_ticks_total="Sampling times that the monitor missed.",
    ),
)

# The values of labels, and the values of the metrics with these labels by name. A value of None makes no series.
Values = tuple[tuple[str, ...], Mapping[str, float | None]]


def _values(*labels: str, **values: float | None) -> Values:
    return labels, values


def task_labels(snapshot: Snapshot) -> tuple[str, str]:
    """The values of the labels that every series has; empty if they are unknown."""
    task = snapshot.task
    return ("", "") if task is None else (task.family or "", "" if task.arn is None else task_id(task.arn))


def live_values(snapshot: Snapshot) -> Iterator[Values]:
    """The values of all live metrics."""
    task, own = snapshot.task, snapshot.own_usage
    if task is not None and task.arn is not None:
        labels = (task.revision, cluster_name(task.cluster), task.launch_type, task.availability_zone)
        yield _values(*(label or "" for label in labels), task_info=1)
    yield _values(
        task_network_receive_bytes_total=snapshot.task_rx_bytes,
        task_network_transmit_bytes_total=snapshot.task_tx_bytes,
    )
    yield from map(_container_values, snapshot.containers)
    if snapshot.gpus is not None:
        yield from _gpu_values(snapshot.gpus)
    if snapshot.neuron is not None:
        yield from _neuron_values(snapshot.neuron)
    if snapshot.instance is not None:
        yield from _instance_values(snapshot.instance)
    yield _values(__version__, monitor_info=1)
    yield _values(
        monitor_cpu_seconds_total=own.cpu_seconds,
        monitor_memory_peak_bytes=None if own.max_rss_mb is None else round(own.max_rss_mb * MIB),
        monitor_read_failures_total=snapshot.read_failures,
        monitor_missed_ticks_total=snapshot.missed_ticks,
    )
    for name, is_up in snapshot.sources.items():
        yield _values(name, monitor_source_up=int(is_up))


def _container_values(container: ContainerSnapshot) -> Values:
    sample, limits, has_network = container.sample, container.limits, not container.shares_network
    return _values(
        container.name,
        container_start_time_seconds=_divided(container.started_ns, NS_PER_SECOND),
        container_cpu_seconds_total=_divided(sample.cpu_ns, NS_PER_SECOND),
        container_cpu_used_vcpus=container.vcpu_used,
        container_cpu_limit_vcpus=limits.vcpu,
        container_memory_used_bytes=sample.memory_used_bytes,
        container_memory_limit_bytes=limits.memory_bytes,
        container_network_receive_bytes_total=sample.network_rx_bytes if has_network else None,
        container_network_transmit_bytes_total=sample.network_tx_bytes if has_network else None,
        container_block_read_bytes_total=sample.block_read_bytes,
        container_block_write_bytes_total=sample.block_write_bytes,
    )


def _gpu_values(readings: LiveGpus) -> Iterator[Values]:
    scope = _BATCH_SCOPE if readings.is_known else WHOLE_INSTANCE
    for gpu in readings.gpus[:MAX_GPUS]:
        sample, facts = gpu.sample, gpu.sample.facts
        yield _values(facts.uuid, str(facts.index), facts.name or "", scope, gpu_info=1)
        yield _values(
            facts.uuid,
            gpu_utilization_ratio=_divided(sample.utilization_percent, _PERCENT),
            gpu_memory_used_bytes=sample.memory_used_bytes,
            gpu_memory_size_bytes=sample.memory_size_bytes,
            gpu_power_watts=sample.power_watts,
            gpu_energy_joules_total=gpu.energy_joules,
            gpu_temperature_celsius=sample.temperature_celsius,
            gpu_sm_clock_hertz=None if sample.sm_clock_mhz is None else sample.sm_clock_mhz * _HERTZ_PER_MHZ,
        )
        for reason, seconds in (gpu.throttled_seconds or {}).items():
            yield _values(facts.uuid, reason, gpu_throttled_seconds_total=seconds)


def _neuron_values(neuron: LiveNeuron) -> Iterator[Values]:
    for core, percent in _first_cores(neuron.utilization_percent):
        yield _values(core, neuron_core_utilization_ratio=percent / _PERCENT)
    for core, used_bytes in _first_cores(neuron.core_memory_bytes):
        yield _values(core, neuron_core_memory_used_bytes=used_bytes)
    for category, used_bytes in neuron.memory_bytes_by_category.items():
        yield _values(category, neuron_memory_used_bytes=used_bytes)
    yield _values("completed", neuron_executions_total=neuron.completed)
    yield _values("failed", neuron_executions_total=neuron.failed)
    yield _values("p50", neuron_execution_latency_seconds=neuron.latency.p50_seconds)
    yield _values("p99", neuron_execution_latency_seconds=neuron.latency.p99_seconds)
    yield _values("p100", neuron_execution_latency_seconds=neuron.latency.p100_seconds)
    yield _values(
        neuron_device_memory_used_bytes=neuron.device_memory_bytes,
        neuron_device_memory_size_bytes=neuron.device_memory_size_bytes,
        neuron_ecc_uncorrected_errors_total=neuron.ecc_uncorrected,
    )


def _first_cores(values: Mapping[int, float]) -> Iterable[tuple[str, float]]:
    return ((str(index), value) for index, value in sorted(values.items())[:MAX_NEURON_CORES])


def _instance_values(instance: InstanceReading) -> Iterator[Values]:
    swap = instance.swap_counters
    yield _values(
        instance_memory_size_bytes=instance.memory_size_bytes,
        instance_memory_available_bytes=instance.memory_available_bytes,
        instance_swap_size_bytes=instance.swap_size_bytes,
        instance_swap_free_bytes=instance.swap_free_bytes,
        instance_swap_out_bytes_total=None if swap is None else swap.out_bytes,
        instance_swap_in_bytes_total=None if swap is None else swap.in_bytes,
    )
    for disk in instance.disks:
        yield _values(
            disk.mount_point,
            instance_disk_size_bytes=disk.size_bytes,
            instance_disk_available_bytes=disk.available_bytes,
        )


def _divided(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor
