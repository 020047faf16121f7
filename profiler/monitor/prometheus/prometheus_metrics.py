"""The live metrics: name, labels and help text, and their values in a snapshot.

The record has a separate catalogue (``profiler/record/metric_catalogue.py``): it describes a whole
run, and not in the base units and names that Prometheus' conventions require
(https://prometheus.io/docs/practices/naming/). The plain text format is read by every version of
Prometheus. prometheus_client would take six times as long to write it, because it formats the
labels of each series again.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.collectors.nvidia.gpu_usage import LiveGpus
from profiler.core.ecs_terms import cluster_name, task_id
from profiler.core.text import without_surrogates
from profiler.core.timestamps import NS_PER_SECOND
from profiler.core.version import __version__
from profiler.monitor.prometheus.snapshot import ContainerSnapshot, Snapshot
from profiler.readers.linux.host import InstanceReading
from profiler.record.bounded_json_line import MAX_GPUS, MAX_NEURON_CORES
from profiler.record.hardware import WHOLE_INSTANCE
from profiler.record.metric_catalogue import LIVE_GPU_TOTALS
from profiler.record.units import MIB

if TYPE_CHECKING:
    from profiler.collectors.neuron.neuron_collector import LiveNeuron

PREFIX = "task_profiler_"
# The labels of every series.
TASK_LABELS = ("task_family", "task_id")
_COUNTER_SUFFIX = "_total"
_BATCH_SCOPE = "batch"
_PERCENT = 100
_HERTZ_PER_MHZ = 1_000_000
# The longest name in ECS.
_MAX_LABEL_LENGTH = 255
# Twice the largest possible number: 16 containers, 32 GPUs with 8 reasons each, 128 NeuronCores.
_LABEL_CACHE_SIZE = 1024
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class LiveMetric(Struct, frozen=True):
    """A live metric: its name without the prefix, and its labels, in addition to the labels of
    every series.
    """

    name: str
    labels: tuple[str, ...]
    help: str

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def kind(self) -> str:
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
        container_memory_used_bytes="Memory in use without what the kernel can reclaim: page cache and kernel memory.",
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
        gpu_sm_active_ratio="Share of time and of multiprocessors in which a warp ran, 0 to 1. From Hopper on.",
        gpu_sm_occupancy_ratio="Active warps divided by the warps that the multiprocessors can hold. From Hopper on.",
        gpu_tensor_active_ratio="Share of time in which the tensor cores worked, 0 to 1. From Hopper on.",
        gpu_dram_active_ratio="Share of time in which the device memory transferred data, 0 to 1. From Hopper on.",
        gpu_idle_seconds_total="Time in which no kernel ran.",
        **{metric.live_name: metric.live_help for metric in LIVE_GPU_TOTALS},
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
        "category", neuron_memory_used_bytes="Device memory in use on all devices, by category."
    ),
    *_metrics(
        neuron_device_memory_used_bytes="Device memory in use on all devices.",
        neuron_device_memory_size_bytes="Memory of all visible devices.",
    ),
    *_metrics("outcome", neuron_executions_total="Executions by outcome: completed or failed."),
    *_metrics(
        "percentile", neuron_execution_latency_seconds="Latency of executions in the last period."
    ),
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

_LABELS_BY_METRIC = {metric.name: metric.labels for metric in LIVE_METRICS}

# The values of labels, and the values of the metrics with these labels by name. A value of None
# makes no series.
Values = tuple[tuple[str, ...], Mapping[str, float | None]]


def metrics_text(snapshot: Snapshot) -> bytes:
    """The text of a snapshot: each series once, with label values cut and escaped."""
    # By labels: with two names that are equal after the cut, a series would be there twice, and
    # Prometheus would reject the whole scrape.
    series: dict[str, dict[str, float]] = {metric.name: {} for metric in LIVE_METRICS}
    task = snapshot.task
    if task is None:
        labels_of_task = ("", "")
    else:
        labels_of_task = (task.family or "", "" if task.arn is None else task_id(task.arn))
    for labels, values in live_values(snapshot):
        text = ""
        for name, value in values.items():
            if value is not None:
                text = text or _labels(_LABELS_BY_METRIC[name], labels_of_task + labels)
                series[name][text] = value
    parts: list[str] = []
    for metric in LIVE_METRICS:
        name = metric.full_name
        if series[metric.name]:
            parts.append(f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n")
            parts += [
                f"{name}{labels} {float(value)!r}\n"
                for labels, value in series[metric.name].items()
            ]
    return "".join(parts).encode()


@lru_cache(_LABEL_CACHE_SIZE)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """The labels of a series in braces: the task's and the metric's ``names``, sorted by name."""
    cut = (without_surrogates(value[:_MAX_LABEL_LENGTH]) for value in values)
    pairs = sorted(zip((*TASK_LABELS, *names), cut, strict=True))
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs) + "}"


def _values(*labels: str, **values: float | None) -> Values:
    return labels, values


def live_values(snapshot: Snapshot) -> Iterator[Values]:
    """The values of all live metrics."""
    task = snapshot.task
    own = snapshot.own_usage
    if task is not None and task.arn is not None:
        labels = (
            task.revision,
            cluster_name(task.cluster),
            task.launch_type,
            task.availability_zone,
        )
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


def _container_values(shown: ContainerSnapshot) -> Values:
    sample = shown.sample
    limits = shown.limits
    has_network = not shown.container.shares_network
    return _values(
        shown.container.name,
        container_start_time_seconds=_divided(shown.container.started_ns, NS_PER_SECOND),
        container_cpu_seconds_total=_divided(sample.cpu_ns, NS_PER_SECOND),
        container_cpu_used_vcpus=shown.vcpu_used,
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
        sample = gpu.sample
        facts = gpu.sample.facts
        yield _values(facts.uuid, str(facts.index), facts.name or "", scope, gpu_info=1)
        yield _values(
            facts.uuid,
            gpu_utilization_ratio=_divided(sample.utilization_percent, _PERCENT),
            gpu_sm_active_ratio=_divided(sample.sm_active_percent, _PERCENT),
            gpu_sm_occupancy_ratio=_divided(sample.sm_occupancy_percent, _PERCENT),
            gpu_tensor_active_ratio=_divided(sample.tensor_active_percent, _PERCENT),
            gpu_dram_active_ratio=_divided(sample.dram_active_percent, _PERCENT),
            gpu_idle_seconds_total=gpu.idle_seconds,
            **{metric.live_name: gpu.totals.get(metric.gpu_field) for metric in LIVE_GPU_TOTALS},
            gpu_memory_used_bytes=sample.memory_used_bytes,
            gpu_memory_size_bytes=sample.memory_size_bytes,
            gpu_power_watts=sample.power_watts,
            gpu_energy_joules_total=gpu.energy_joules,
            gpu_temperature_celsius=sample.temperature_celsius,
            gpu_sm_clock_hertz=None
            if sample.sm_clock_mhz is None
            else sample.sm_clock_mhz * _HERTZ_PER_MHZ,
        )
        for reason, seconds in (gpu.throttled_seconds or {}).items():
            yield _values(facts.uuid, reason, gpu_throttled_seconds_total=seconds)


def _neuron_values(neuron: "LiveNeuron") -> Iterator[Values]:
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
