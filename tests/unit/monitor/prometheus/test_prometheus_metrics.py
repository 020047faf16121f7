"""What a scrape shows of a snapshot, read back by prometheus_client's own parser."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from profiler.collectors.neuron.neuron_collector import LiveNeuron
from profiler.collectors.neuron.neuron_monitor_reports import Latency
from profiler.collectors.nvidia.gpu_usage import GpuSoFar, LiveGpus
from profiler.collectors.nvidia.visible_gpus import GpuFacts, GpuSample
from profiler.core.text import without_surrogates
from profiler.monitor.prometheus.prometheus_metrics import (
    LIVE_METRICS,
    PREFIX,
    TASK_LABELS,
    metrics_text,
)
from profiler.monitor.prometheus.snapshot import ContainerSnapshot, Snapshot
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.host import OwnUsage
from profiler.readers.linux.instance import Disk, InstanceReading, SwapCounters
from profiler.record.batch_job import BatchJob
from profiler.record.bounded_json_line import MAX_GPUS, MAX_NEURON_CORES
from profiler.record.units import MIB
from tests.cases import each_case

EMPTY = Snapshot(valid_until_ns=0, own_usage=OwnUsage(cpu_seconds=0.25))
FULL = Snapshot(
    valid_until_ns=0,
    task=TaskMetadata(
        family="etl",
        arn="0123",
        revision="7",
        cluster="jobs",
        launch_type="EC2",
        availability_zone="eu-west-1a",
    ),
    own_usage=OwnUsage(cpu_seconds=0.25, max_rss_mb=30_000_000 / MIB),
    batch_job=BatchJob(
        job_id="4109c2d6-7c5e-4b0e-9f5a-1d2e3f4a5b6c:3", queue="nightly", attempt=2, array_index=3
    ),
    read_failures=2,
    missed_ticks=3,
    sources={"task-metadata-v4": True, "nvml": False},
    containers=(
        ContainerSnapshot(
            container=ContainerMetadata(name="batch", started_ns=1_763_600_000 * 10**9),
            sample=ContainerSample(
                read_ns=0,
                cpu_ns=12_500_000_000,
                memory_used_bytes=100,
                memory_mapped_file_bytes=40,
                memory_huge_page_bytes=32,
                network_rx_bytes=1,
                network_tx_bytes=2,
                block_read_bytes=3,
                block_write_bytes=4,
            ),
            vcpu_used=0.75,
            limits=ResourceLimits(vcpu=2.0, memory_bytes=1000.0),
        ),
    ),
    task_rx_bytes=5,
    task_tx_bytes=6,
    gpus=LiveGpus(
        readings=1,
        gpus=(
            GpuSoFar(
                sample=GpuSample(
                    facts=GpuFacts(uuid="GPU-a", index=0, name="NVIDIA A10G"),
                    utilization_percent=75.0,
                    memory_used_bytes=10,
                    memory_size_bytes=20,
                    power_watts=150.5,
                    sm_clock_mhz=1410,
                    temperature_celsius=61,
                    sm_active_percent=40.0,
                    sm_occupancy_percent=30.0,
                    tensor_active_percent=20.0,
                    dram_active_percent=10.0,
                ),
                energy_joules=1000.5,
                idle_seconds=12.5,
                known_seconds=50.0,
                xids=(31,),
                totals={
                    "pcie_tx_bytes": 11,
                    "pcie_rx_bytes": 12,
                    "nvlink_tx_bytes": 13,
                    "nvlink_rx_bytes": 14,
                },
                throttled_seconds={"swPowerCap": 2.5, "hwSlowdown": 0.0},
            ),
        ),
    ),
    neuron=LiveNeuron(
        reports=1,
        utilization_percent={1: 50.0},
        core_memory_bytes={1: 7},
        device_memory_bytes=8,
        device_memory_size_bytes=9,
        memory_bytes_by_category={"tensors": 7},
        completed=10,
        failed=1,
        latency=Latency(p50_seconds=0.1, p99_seconds=0.2, p100_seconds=0.3),
        ecc_uncorrected=0,
    ),
    instance=InstanceReading(
        memory_size_bytes=1,
        memory_available_bytes=2,
        swap_size_bytes=3,
        swap_free_bytes=4,
        swap_counters=SwapCounters(out_bytes=5, in_bytes=6),
        disks=(Disk(mount_point="/data", size_bytes=7, available_bytes=8),),
    ),
)

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(snapshot: Snapshot) -> Series:
    """Name and labels to value; a series that stands there twice is refused, as Prometheus does."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(metrics_text(snapshot).decode()):
        for one in family.samples:
            key = (one.name, frozenset(one.labels.items()))
            assert key not in found
            found[key] = one.value
    return found


def values(snapshot: Snapshot, name: str) -> dict[frozenset[tuple[str, str]], float]:
    """The series of a metric by their own labels."""
    return {
        frozenset(pair for pair in labels if pair[0] not in TASK_LABELS): value
        for (series, labels), value in scraped(snapshot).items()
        if series == PREFIX + name
    }


@each_case(
    ("name", "labels", "value"),
    [
        ("container_cpu_seconds_total", {"container": "batch"}, 12.5),
        ("container_cpu_used_vcpus", {"container": "batch"}, 0.75),
        ("container_memory_used_bytes", {"container": "batch"}, 100),
        ("container_memory_mapped_file_bytes", {"container": "batch"}, 40),
        ("container_memory_huge_pages_bytes", {"container": "batch"}, 32),
        ("container_memory_limit_bytes", {"container": "batch"}, 1000),
        ("container_network_transmit_bytes_total", {"container": "batch"}, 2),
        ("container_block_read_bytes_total", {"container": "batch"}, 3),
        ("task_network_receive_bytes_total", {}, 5),
        ("gpu_utilization_ratio", {"uuid": "GPU-a"}, 0.75),
        ("gpu_sm_active_ratio", {"uuid": "GPU-a"}, 0.4),
        ("gpu_sm_occupancy_ratio", {"uuid": "GPU-a"}, 0.3),
        ("gpu_tensor_active_ratio", {"uuid": "GPU-a"}, 0.2),
        ("gpu_dram_active_ratio", {"uuid": "GPU-a"}, 0.1),
        ("gpu_idle_seconds_total", {"uuid": "GPU-a"}, 12.5),
        ("gpu_known_seconds_total", {"uuid": "GPU-a"}, 50),
        ("gpu_pcie_transmit_bytes_total", {"uuid": "GPU-a"}, 11),
        ("gpu_pcie_receive_bytes_total", {"uuid": "GPU-a"}, 12),
        ("gpu_nvlink_transmit_bytes_total", {"uuid": "GPU-a"}, 13),
        ("gpu_nvlink_receive_bytes_total", {"uuid": "GPU-a"}, 14),
        ("gpu_energy_joules_total", {"uuid": "GPU-a"}, 1000.5),
        ("gpu_sm_clock_hertz", {"uuid": "GPU-a"}, 1.41e9),
        ("gpu_info", {"uuid": "GPU-a", "index": "0", "name": "NVIDIA A10G", "scope": "batch"}, 1),
        ("gpu_error_info", {"uuid": "GPU-a", "xid": "31"}, 1),
        ("neuron_core_utilization_ratio", {"neuron_core": "1"}, 0.5),
        ("neuron_memory_used_bytes", {"category": "tensors"}, 7),
        ("neuron_ecc_uncorrected_errors_total", {}, 0),
        ("instance_swap_out_bytes_total", {}, 5),
        ("instance_disk_available_bytes", {"mount_point": "/data"}, 8),
        ("monitor_memory_peak_bytes", {}, 30_000_000),
    ],
)
def test_a_series_has_its_value_in_base_units(
    name: str, labels: dict[str, str], value: float
) -> None:
    assert values(FULL, name) == {frozenset(labels.items()): value}


@pytest.mark.parametrize(
    ("name", "label", "found"),
    [
        ("gpu_throttled_seconds_total", "reason", {"swPowerCap": 2.5, "hwSlowdown": 0}),
        ("neuron_executions_total", "outcome", {"completed": 10, "failed": 1}),
        ("neuron_execution_latency_seconds", "percentile", {"p50": 0.1, "p99": 0.2, "p100": 0.3}),
        ("monitor_source_up", "source", {"task-metadata-v4": 1, "nvml": 0}),
    ],
)
def test_series_of_several_labels(name: str, label: str, found: dict[str, float]) -> None:
    assert {dict(labels)[label]: value for labels, value in values(FULL, name).items()} == found


def test_every_metric_can_be_seen_and_every_series_tells_its_task() -> None:
    found = scraped(FULL)
    assert {name for name, _ in found} == {metric.full_name for metric in LIVE_METRICS}
    for metric in LIVE_METRICS:
        names = {frozenset(dict(labels)) for name, labels in found if name == metric.full_name}
        assert names == {frozenset({*TASK_LABELS, *metric.labels})}
    assert {(dict(labels)["task_family"], dict(labels)["task_id"]) for _, labels in found} == {
        ("etl", "0123")
    }


def test_what_was_not_measured_makes_no_series() -> None:
    always = (
        "monitor_info",
        "monitor_cpu_seconds_total",
        "monitor_read_failures_total",
        "monitor_missed_ticks_total",
    )
    assert {name for name, _ in scraped(EMPTY)} == {PREFIX + name for name in always}
    unread = ContainerSnapshot(
        container=ContainerMetadata(name="batch"), sample=ContainerSample(read_ns=0)
    )
    unknown = replace(FULL, containers=(unread,))
    assert not [name for name, _ in scraped(unknown) if "container" in name]


def test_names_follow_the_conventions() -> None:
    units = "bytes|seconds|ratio|vcpus|joules|watts|celsius|hertz"
    plain = "info|up|executions|errors|failures|ticks"
    for metric in LIVE_METRICS:
        assert re.fullmatch(
            rf"task_profiler_[a-z_]+_({units}|{plain})(_total)?", metric.full_name
        ), metric


def test_lists_are_as_long_as_in_a_record_at_most() -> None:
    gpus = tuple(
        GpuSoFar(sample=GpuSample(facts=GpuFacts(uuid=f"GPU-{n}", index=n))) for n in range(64)
    )
    neuron = LiveNeuron(reports=1, utilization_percent=dict.fromkeys(range(200), 1.0))
    many = replace(FULL, gpus=LiveGpus(readings=1, gpus=gpus), neuron=neuron)
    assert len(values(many, "gpu_info")) == MAX_GPUS == 32
    assert len(values(many, "neuron_core_utilization_ratio")) == MAX_NEURON_CORES == 128


def named(*names: str) -> Snapshot:
    sample = ContainerSample(read_ns=0, memory_used_bytes=1)
    containers = (
        ContainerSnapshot(container=ContainerMetadata(name=name), sample=sample) for name in names
    )
    return replace(EMPTY, containers=tuple(containers))


def containers_of(snapshot: Snapshot) -> list[str]:
    return [
        dict(labels).get("container", "")
        for labels in values(snapshot, "container_memory_used_bytes")
    ]


def test_names_that_are_equal_up_to_the_bound_do_not_break_the_scrape() -> None:
    assert containers_of(named("x" * 300 + "a", "x" * 300 + "b")) == ["x" * 255]


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_any_text_is_a_label_that_can_be_read_back(text: str) -> None:
    assert containers_of(named(text)) == [without_surrogates(text[:255])]
    assert containers_of(replace(named("batch"), task=TaskMetadata(family=text, arn=text))) == [
        "batch"
    ]


def test_a_job_of_aws_batch_is_one_series_of_the_task() -> None:
    found = metrics_text(FULL).decode()
    (line,) = re.findall(r"^task_profiler_batch_job_info{(.*)} 1.0$", found, re.MULTILINE)
    assert 'job_id="4109c2d6-7c5e-4b0e-9f5a-1d2e3f4a5b6c:3"' in line
    assert 'array_index="3",attempt="2",compute_environment=""' in line
    assert b"batch_job_info{" not in metrics_text(EMPTY)
