"""The metrics of GPUs and Neuron devices."""

from collections.abc import Callable, Iterable, Iterator

from profiler.accelerators.gpu_usage import LatestGpu
from profiler.accelerators.neuron_usage import NeuronReadings
from profiler.prometheus.metric import Kind, Metric, Row
from profiler.prometheus.snapshot import Snapshot

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
