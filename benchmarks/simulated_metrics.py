"""Serve live metrics of simulated containers, GPUs and NeuronCores, without sampling.

    python -m benchmarks.simulated_metrics PORT CONTAINERS GPUS CORES [ticks]

The program serves until it is killed. With ``ticks``, each scrape has new numbers, as if a second had passed.
"""

import itertools
import sys
import threading
from collections.abc import Callable

from profiler.aggregation.task_record import ResourceLimits
from profiler.collectors.neuron.neuron_monitor_reports import Latency
from profiler.collectors.neuron.neuron_usage import LiveNeuron
from profiler.collectors.nvidia.gpu_reading_types import GpuFacts, GpuSample
from profiler.collectors.nvidia.gpu_usage import THROTTLE_REASONS, LatestGpu, LiveGpus
from profiler.core.clock import SystemClock
from profiler.core.log import Log
from profiler.core.timestamps import NS_PER_SECOND
from profiler.prometheus.exporter import RenderCache
from profiler.prometheus.exposition import metrics_text
from profiler.prometheus.server import MetricsServer
from profiler.prometheus.snapshot import ContainerSnapshot, Snapshot
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.task_metadata import TaskMetadata
from profiler.readers.linux.host import Disk, InstanceReading, OwnUsage, SwapCounters

_GIB = 2**30
_CATEGORIES = ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")


def make_container(number: int, tick: int) -> ContainerSnapshot:
    """A container on an EC2 instance, with its own network."""
    return ContainerSnapshot(
        name=f"container-{number}",
        started_ns=(1_763_600_000 + number) * NS_PER_SECOND,
        sample=ContainerSample(
            read_ns=0,
            cpu_ns=round((0.4 * tick + number) * NS_PER_SECOND),
            memory_used_bytes=123_456_789 + tick,
            network_rx_bytes=1000 * tick,
            network_tx_bytes=2000 * tick,
            block_read_bytes=4096 * tick,
            block_write_bytes=8192 * tick,
        ),
        vcpu_used=0.39999 + tick % 7 / 100,
        limits=ResourceLimits(vcpu=1.0, memory_bytes=_GIB),
    )


def make_gpu(number: int, tick: int) -> LatestGpu:
    """A busy GPU."""
    facts = GpuFacts(uuid=f"GPU-{number:08d}-0000-0000-0000-000000000000", index=number, name="NVIDIA H100 80GB HBM3")
    sample = GpuSample(
        facts=facts,
        utilization_percent=98.0,
        memory_used_bytes=8 * _GIB + tick,
        memory_size_bytes=80 * _GIB,
        power_watts=690.1,
        temperature_celsius=60 + tick % 7,
        sm_clock_mhz=1700,
    )
    throttled = dict.fromkeys(THROTTLE_REASONS.values(), 1.5 * tick)
    return LatestGpu(sample=sample, energy_joules=690.1 * tick, throttled_seconds=throttled)


def make_neuron(cores: int, tick: int) -> LiveNeuron | None:
    """Readings of busy NeuronCores."""
    if cores == 0:
        return None
    return LiveNeuron(
        reports=tick,
        utilization_percent=dict.fromkeys(range(cores), 98.7 - tick % 7),
        core_memory_bytes={core: _GIB + core + tick for core in range(cores)},
        device_memory_bytes=cores * _GIB,
        device_memory_size_bytes=16 * cores * _GIB,
        memory_bytes_by_category=dict.fromkeys(_CATEGORIES, cores * _GIB // 5),
        completed=100 * tick,
        failed=0,
        latency=Latency(p50_seconds=0.1, p99_seconds=0.2, p100_seconds=0.3),
        ecc_uncorrected=0,
    )


def make_snapshot(containers: int, gpus: int, cores: int, tick: int) -> Snapshot:
    """A task on an EC2 instance."""
    return Snapshot(
        valid_until_ns=tick,
        own_usage=OwnUsage(cpu_seconds=0.001 * tick, max_rss_mb=28.5),
        sources={"task-metadata-v4": True, "nvml": True, "instance": True},
        task=TaskMetadata(family="bench", arn="0" * 32, revision="1", cluster="bench", launch_type="EC2"),
        containers=tuple(make_container(number, tick) for number in range(containers)),
        gpus=LiveGpus(readings=tick, gpus=tuple(make_gpu(number, tick) for number in range(gpus))),
        neuron=make_neuron(cores, tick),
        instance=InstanceReading(
            memory_size_bytes=64 * _GIB,
            memory_available_bytes=32 * _GIB - tick,
            swap_size_bytes=_GIB,
            swap_free_bytes=_GIB,
            swap_counters=SwapCounters(out_bytes=tick, in_bytes=tick),
            disks=(Disk(mount_point="/", size_bytes=100 * _GIB, available_bytes=50 * _GIB),),
        ),
    )


def scrape_function(containers: int, gpus: int, cores: int, *, ticks: bool) -> Callable[[], bytes]:
    """A function that returns the text of a scrape.

    It uses snapshots that exist before the scrape, because the monitor does not create them during a scrape either.
    """
    snapshots = [make_snapshot(containers, gpus, cores, tick) for tick in range(1, 3 if ticks else 2)]
    rendered, cycle = RenderCache(metrics_text), itertools.cycle(snapshots)
    return lambda: rendered.render(next(cycle))


def main(arguments: list[str]) -> None:
    """Serve the metrics."""
    port, containers, gpus, cores = map(int, arguments[:4])
    render = scrape_function(containers, gpus, cores, ticks=arguments[4:] == ["ticks"])
    MetricsServer(("127.0.0.1", port), render, SystemClock(), Log()).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
