"""The live metrics: a row for each, with its name, its help text and its value in a snapshot.

The record has a separate catalogue (``profiler/record/metric_catalogue.py``): it describes a whole
run, and not in the base units and names that Prometheus' conventions require
(https://prometheus.io/docs/practices/naming/). The plain text format is read by every version of
Prometheus. prometheus_client would take six times as long to write it, because it formats the
labels of each series again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from profiler.collectors.nvidia.gpu_usage import GpuSoFar
from profiler.core.ecs_terms import cluster_name, task_id
from profiler.core.optional_math import known, known_values
from profiler.core.text import without_surrogates
from profiler.core.timestamps import NS_PER_SECOND
from profiler.core.version import __version__
from profiler.monitor.prometheus.snapshot import Snapshot
from profiler.record.batch_job import NO_JOB
from profiler.record.bounded_json_line import MAX_GPUS, MAX_NEURON_CORES
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
# Of one GPU: more would be a driver that invents them.
_MAX_XIDS = 16
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


# A series of some metrics: the values of its labels, and the part of a snapshot that the metrics
# read.
Subject = tuple[tuple[str, ...], Any]


class LiveMetric(Struct, frozen=True):
    """A live metric: its name without the prefix, and its labels, in addition to the labels of
    every series.

    ``get`` reads its value of a subject; None makes no series.
    """

    name: str
    labels: tuple[str, ...]
    help: str
    get: Callable[[Any], float | None]

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith(_COUNTER_SUFFIX) else "gauge"


class MetricGroup(Struct, frozen=True):
    """Metrics with the same labels and subjects."""

    labels: tuple[str, ...]
    subjects: Callable[[Snapshot], Iterable[Subject]]
    metrics: tuple[LiveMetric, ...]


# The subjects of a snapshot


def _part_of_snapshot(name: str) -> Callable[[Snapshot], list[Subject]]:
    """A part of the snapshot."""

    def subjects(snapshot: Snapshot) -> list[Subject]:
        return [((), getattr(snapshot, name))]

    return subjects


def _known_neuron(snapshot: Snapshot) -> "tuple[LiveNeuron, ...]":
    """The Neuron devices, if there are any."""
    return known_values((snapshot.neuron,))


def _neuron_devices(snapshot: Snapshot) -> list[Subject]:
    return [((), neuron) for neuron in _known_neuron(snapshot)]


def _each_of_neuron(name: str) -> Callable[[Snapshot], Iterator[Subject]]:
    """The values of a mapping of the Neuron devices, each with its key as the label."""

    def subjects(snapshot: Snapshot) -> Iterator[Subject]:
        for neuron in _known_neuron(snapshot):
            values: Mapping[Any, float] = getattr(neuron, name)
            for key, value in sorted(values.items())[:MAX_NEURON_CORES]:
                yield (str(key),), value

    return subjects


def _source_subjects(snapshot: Snapshot) -> Iterator[Subject]:
    for name, is_up in sorted(snapshot.sources.items()):
        yield (name,), is_up


def _whole_snapshot(snapshot: Snapshot) -> list[Subject]:
    return [((), snapshot)]


def _task_subjects(snapshot: Snapshot) -> Iterator[Subject]:
    task = snapshot.task
    if task.arn is not None:
        place = (task.launch_type or "", task.availability_zone or "")
        yield (task.revision or "", cluster_name(task.cluster) or "", *place), task


def _batch_job(snapshot: Snapshot) -> Iterator[Subject]:
    """One series a task, as its own labels are."""
    job = snapshot.batch_job
    if job is not NO_JOB:
        values = (job.job_id, job.queue, job.compute_environment, job.attempt, job.array_index)
        yield tuple("" if value is None else str(value) for value in values), job


def _container_subjects(snapshot: Snapshot) -> Iterator[Subject]:
    for shown in snapshot.containers:
        yield (shown.container.name,), shown


def _containers_with_network(snapshot: Snapshot) -> Iterator[Subject]:
    for shown in snapshot.containers:
        if not shown.container.shares_network:
            yield (shown.container.name,), shown


def _gpus(snapshot: Snapshot) -> tuple[GpuSoFar, ...]:
    return snapshot.gpus.gpus[:MAX_GPUS]


def _gpu_facts(snapshot: Snapshot) -> Iterator[Subject]:
    for gpu in _gpus(snapshot):
        facts = gpu.sample.facts
        yield (facts.uuid, str(facts.index), facts.name or "", gpu.scope or _BATCH_SCOPE), facts


def _gpu_readings(snapshot: Snapshot) -> Iterator[Subject]:
    for gpu in _gpus(snapshot):
        yield (gpu.sample.facts.uuid,), gpu


def _gpu_throttling(snapshot: Snapshot) -> Iterator[Subject]:
    for gpu in _gpus(snapshot):
        for reason, seconds in (gpu.throttled_seconds or {}).items():
            yield (gpu.sample.facts.uuid, reason), seconds


def _gpu_errors(snapshot: Snapshot) -> Iterator[Subject]:
    for gpu in _gpus(snapshot):
        for xid in gpu.xids[:_MAX_XIDS]:
            yield (gpu.sample.facts.uuid, str(xid)), gpu


def _execution_subjects(snapshot: Snapshot) -> Iterator[Subject]:
    for neuron in _known_neuron(snapshot):
        yield ("completed",), neuron.completed
        yield ("failed",), neuron.failed


def _latency_subjects(snapshot: Snapshot) -> Iterator[Subject]:
    for neuron in _known_neuron(snapshot):
        yield ("p50",), neuron.latency.p50_seconds
        yield ("p99",), neuron.latency.p99_seconds
        yield ("p100",), neuron.latency.p100_seconds


def _swap_counters(snapshot: Snapshot) -> Iterator[Subject]:
    for counters in known_values((snapshot.instance.swap_counters,)):
        yield (), counters


def _disk_subjects(snapshot: Snapshot) -> Iterator[Subject]:
    for disk in snapshot.instance.disks:
        yield (disk.mount_point,), disk


def _version_subject(snapshot: Snapshot) -> list[Subject]:
    return [((__version__,), snapshot)]


# The values of a subject


def _value_itself(value: float | None) -> float | None:
    """The subject is the value."""
    return value


def _always_one(_: object) -> float:
    return 1


def _value_at(path: str, unit: Callable[[float], float] = float) -> Callable[[Any], float | None]:
    """The value at a path of the subject, converted to the base unit."""
    get = attrgetter(path)

    def value(subject: Any) -> float | None:  # noqa: ANN401  any part of a snapshot
        number = get(subject)
        return known(unit, number)

    return value


def _ns_to_seconds(time_ns: float) -> float:
    return time_ns / NS_PER_SECOND


def _percent_to_ratio(percent: float) -> float:
    return percent / _PERCENT


def _mhz_to_hertz(frequency_mhz: float) -> float:
    return frequency_mhz * _HERTZ_PER_MHZ


def _mib_to_bytes(size_mib: float) -> float:
    return round(size_mib * MIB)


def _gpu_total(field: str, gpu: GpuSoFar) -> float | None:
    return gpu.totals.get(field)


Row = tuple[str, str, Callable[[Any], float | None]]


def _metric_group(
    labels: tuple[str, ...], subjects: Callable[[Snapshot], Iterable[Subject]], *rows: Row
) -> MetricGroup:
    metrics = tuple(LiveMetric(name, labels, text, get) for name, text, get in rows)
    return MetricGroup(labels, subjects, metrics)


GROUPS: tuple[MetricGroup, ...] = (
    _metric_group(
        ("revision", "cluster", "launch_type", "availability_zone"),
        _task_subjects,
        ("task_info", "The task, always 1; unknown labels are empty.", _always_one),
    ),
    _metric_group(
        ("job_id", "queue", "compute_environment", "attempt", "array_index"),
        _batch_job,
        (
            "batch_job_info",
            "The job of AWS Batch, always 1; unknown labels are empty.",
            _always_one,
        ),
    ),
    _metric_group(
        (),
        _whole_snapshot,
        (
            "task_network_receive_bytes_total",
            "Bytes received by the task in awsvpc mode.",
            _value_at("task_rx_bytes"),
        ),
        (
            "task_network_transmit_bytes_total",
            "Bytes sent by the task in awsvpc mode.",
            _value_at("task_tx_bytes"),
        ),
    ),
    _metric_group(
        ("container",),
        _container_subjects,
        (
            "container_start_time_seconds",
            "Start time, in seconds since 1970.",
            _value_at("container.started_ns", _ns_to_seconds),
        ),
        (
            "container_cpu_seconds_total",
            "CPU time used.",
            _value_at("sample.cpu_ns", _ns_to_seconds),
        ),
        (
            "container_cpu_used_vcpus",
            "Mean vCPU used between the last two samples.",
            _value_at("vcpu_used"),
        ),
        (
            "container_cpu_limit_vcpus",
            "vCPUs that the container can use.",
            _value_at("limits.vcpu"),
        ),
        (
            "container_memory_used_bytes",
            "Memory in use without what the kernel can drop: pages of files, its own caches.",
            _value_at("sample.memory_used_bytes"),
        ),
        (
            "container_memory_mapped_file_bytes",
            "Pages of files that the container keeps mapped, which the kernel can drop.",
            _value_at("sample.memory_mapped_file_bytes"),
        ),
        (
            "container_memory_huge_pages_bytes",
            "Huge pages of the machine's pool, which the container's limit does not count.",
            _value_at("sample.memory_huge_page_bytes"),
        ),
        (
            "container_memory_limit_bytes",
            "Memory limit of the container.",
            _value_at("limits.memory_bytes"),
        ),
    ),
    _metric_group(
        ("container",),
        _containers_with_network,
        (
            "container_network_receive_bytes_total",
            "Bytes received on the container's own network.",
            _value_at("sample.network_rx_bytes"),
        ),
        (
            "container_network_transmit_bytes_total",
            "Bytes sent on the container's own network.",
            _value_at("sample.network_tx_bytes"),
        ),
    ),
    _metric_group(
        ("container",),
        _container_subjects,
        (
            "container_block_read_bytes_total",
            "Bytes read from block devices.",
            _value_at("sample.block_read_bytes"),
        ),
        (
            "container_block_write_bytes_total",
            "Bytes written to block devices.",
            _value_at("sample.block_write_bytes"),
        ),
    ),
    _metric_group(
        ("uuid", "index", "name", "scope"),
        _gpu_facts,
        (
            "gpu_info",
            "The GPU, always 1. Its values are the batch's, or of all programs: shared, instance.",
            _always_one,
        ),
    ),
    _metric_group(
        ("uuid",),
        _gpu_readings,
        (
            "gpu_utilization_ratio",
            "Share of the driver's last period in which a kernel or a copy ran, 0 to 1.",
            _value_at("sample.utilization_percent", _percent_to_ratio),
        ),
        (
            "gpu_sm_active_ratio",
            "Share of time and of multiprocessors in which a warp ran, 0 to 1. From Hopper on.",
            _value_at("sample.sm_active_percent", _percent_to_ratio),
        ),
        (
            "gpu_sm_occupancy_ratio",
            "Active warps divided by the warps that the multiprocessors can hold. From Hopper on.",
            _value_at("sample.sm_occupancy_percent", _percent_to_ratio),
        ),
        (
            "gpu_tensor_active_ratio",
            "Share of time in which the tensor cores worked, 0 to 1. From Hopper on.",
            _value_at("sample.tensor_active_percent", _percent_to_ratio),
        ),
        (
            "gpu_dram_active_ratio",
            "Share of time in which the device memory transferred data, 0 to 1. From Hopper on.",
            _value_at("sample.dram_active_percent", _percent_to_ratio),
        ),
        (
            "gpu_idle_seconds_total",
            "Time in which neither a kernel nor a copy ran, as far as it was seen.",
            _value_at("idle_seconds"),
        ),
        (
            "gpu_known_seconds_total",
            "Time for which it is known whether the GPU worked: the idle time is a part of it.",
            _value_at("known_seconds"),
        ),
        *(
            (metric.live_name, metric.live_help, partial(_gpu_total, metric.gpu_field))
            for metric in LIVE_GPU_TOTALS
        ),
        ("gpu_memory_used_bytes", "Memory in use.", _value_at("sample.memory_used_bytes")),
        ("gpu_memory_size_bytes", "Memory size.", _value_at("sample.memory_size_bytes")),
        ("gpu_power_watts", "Power draw.", _value_at("sample.power_watts")),
        (
            "gpu_energy_joules_total",
            "Energy used, by the driver's counter or the integrated power.",
            _value_at("energy_joules"),
        ),
        ("gpu_temperature_celsius", "Temperature.", _value_at("sample.temperature_celsius")),
        (
            "gpu_sm_clock_hertz",
            "Clock frequency of the multiprocessors.",
            _value_at("sample.sm_clock_mhz", _mhz_to_hertz),
        ),
    ),
    _metric_group(
        ("uuid", "reason"),
        _gpu_throttling,
        ("gpu_throttled_seconds_total", "Time throttled for this reason.", _value_itself),
    ),
    _metric_group(
        ("uuid", "xid"),
        _gpu_errors,
        ("gpu_error_info", "The driver has reported this error (Xid), always 1.", _always_one),
    ),
    _metric_group(
        ("neuron_core",),
        _each_of_neuron("utilization_percent"),
        (
            "neuron_core_utilization_ratio",
            "Share of the last period in which the core computed, 0 to 1.",
            _percent_to_ratio,
        ),
    ),
    _metric_group(
        ("neuron_core",),
        _each_of_neuron("core_memory_bytes"),
        ("neuron_core_memory_used_bytes", "Device memory in use by the core.", _value_itself),
    ),
    _metric_group(
        ("category",),
        _each_of_neuron("memory_bytes_by_category"),
        (
            "neuron_memory_used_bytes",
            "Device memory in use on all devices, by category.",
            _value_itself,
        ),
    ),
    _metric_group(
        (),
        _neuron_devices,
        (
            "neuron_device_memory_used_bytes",
            "Device memory in use on all devices.",
            _value_at("device_memory_bytes"),
        ),
        (
            "neuron_device_memory_size_bytes",
            "Memory of all visible devices.",
            _value_at("device_memory_size_bytes"),
        ),
    ),
    _metric_group(
        ("outcome",),
        _execution_subjects,
        ("neuron_executions_total", "Executions by outcome: completed or failed.", _value_itself),
    ),
    _metric_group(
        ("percentile",),
        _latency_subjects,
        (
            "neuron_execution_latency_seconds",
            "Latency of executions in the last period.",
            _value_itself,
        ),
    ),
    _metric_group(
        (),
        _neuron_devices,
        (
            "neuron_ecc_uncorrected_errors_total",
            "Uncorrected memory errors on all devices.",
            _value_at("ecc_uncorrected"),
        ),
    ),
    _metric_group(
        (),
        _part_of_snapshot("instance"),
        ("instance_memory_size_bytes", "Memory of the instance.", _value_at("memory_size_bytes")),
        (
            "instance_memory_available_bytes",
            "Memory that is available without swapping.",
            _value_at("memory_available_bytes"),
        ),
        ("instance_swap_size_bytes", "Swap space of the instance.", _value_at("swap_size_bytes")),
        ("instance_swap_free_bytes", "Free swap space.", _value_at("swap_free_bytes")),
    ),
    _metric_group(
        (),
        _swap_counters,
        ("instance_swap_out_bytes_total", "Bytes written to swap space.", _value_at("out_bytes")),
        ("instance_swap_in_bytes_total", "Bytes read from swap space.", _value_at("in_bytes")),
    ),
    _metric_group(
        ("mount_point",),
        _disk_subjects,
        ("instance_disk_size_bytes", "Size of the file system.", _value_at("size_bytes")),
        (
            "instance_disk_available_bytes",
            "Bytes available to users other than root.",
            _value_at("available_bytes"),
        ),
    ),
    _metric_group(
        ("version",),
        _version_subject,
        ("monitor_info", "The monitor, always 1.", _always_one),
    ),
    _metric_group(
        (),
        _part_of_snapshot("own_usage"),
        ("monitor_cpu_seconds_total", "CPU time of the monitor.", _value_at("cpu_seconds")),
        (
            "monitor_memory_peak_bytes",
            "Peak resident memory of the monitor.",
            _value_at("max_rss_mb", _mib_to_bytes),
        ),
    ),
    _metric_group(
        ("source",),
        _source_subjects,
        ("monitor_source_up", "1 if the source answers, else 0.", _value_itself),
    ),
    _metric_group(
        (),
        _whole_snapshot,
        (
            "monitor_read_failures_total",
            "Failed reads of the containers' stats.",
            _value_at("read_failures"),
        ),
        (
            "monitor_missed_ticks_total",
            "Sampling times that the monitor missed.",
            _value_at("missed_ticks"),
        ),
    ),
)
LIVE_METRICS = tuple(chain.from_iterable(group.metrics for group in GROUPS))


def metrics_text(snapshot: Snapshot) -> bytes:
    """The text of a snapshot: each series once, with label values cut and escaped."""
    task = snapshot.task
    task_values = (task.family or "", "" if task.arn is None else task_id(task.arn))
    parts: list[str] = []
    for group in GROUPS:
        subjects = [
            (_labels_text(group.labels, task_values + values), subject)
            for values, subject in group.subjects(snapshot)
        ]
        for metric in group.metrics:
            parts += _metric_lines(metric, subjects)
    return "".join(parts).encode()


def _metric_lines(metric: LiveMetric, subjects: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """The lines of a metric; ``subjects`` have the text of their labels."""
    # By labels: with two names that are equal after the cut, a series would be there twice, and
    # Prometheus would reject the whole scrape.
    series: dict[str, float] = {}
    for labels, subject in subjects:
        value = metric.get(subject)
        if value is not None:
            series[labels] = value
    name = metric.full_name
    if series:
        yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
    for labels, value in series.items():
        yield f"{name}{labels} {float(value)!r}\n"


@lru_cache(_LABEL_CACHE_SIZE)
def _labels_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """The labels of a series in braces: the task's and the metric's ``names``, sorted by name."""
    cut = (without_surrogates(value[:_MAX_LABEL_LENGTH]) for value in values)
    pairs = sorted(zip((*TASK_LABELS, *names), cut, strict=True))
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs) + "}"
