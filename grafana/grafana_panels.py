"""The rows and panels of the dashboard: tasks, their instance, GPUs, NeuronCores and the
monitor.
"""

import re
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct

Kind = Literal["timeseries", "stat", "table"]
Unit = Literal[
    "none", "short", "bytes", "Bps", "percentunit", "s", "watt", "celsius", "hertz", "ops"
]


class Query(Struct, frozen=True):
    """A PromQL expression, and the legend of its series.

    Grafana replaces ``{{label}}`` by the label's value.
    """

    expr: str
    legend: str


class Panel(Struct, frozen=True, kw_only=True):
    """One chart, number or table.

    ``axis_max`` is the end of the axis, if the unit has a maximum (1 for a ratio).
    """

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    is_stacked: bool = False
    axis_max: float | None = None
    width: int = 12  # of 24 columns
    height: int = 8


class Row(Struct, frozen=True, kw_only=True):
    """Panels under a heading.

    Grafana runs the queries of a collapsed row only when a user opens it.
    """

    title: str
    panels: tuple[Panel, ...]
    is_collapsed: bool = False


_SELECTED_TASKS: Final = '{task_family=~"$family",task_id=~"$task"}'
_TASK_NAME: Final = "{{task_family}} {{task_id}}"
# Name, label, and the query of the values that the user selects from.
VARIABLES: Final = (
    ("family", "Family", "label_values(task_profiler_task_info, task_family)"),
    ("task", "Task", 'label_values(task_profiler_task_info{task_family=~"$family"}, task_id)'),
)


def chart(
    legend: str,
    title: str,
    description: str,
    unit: Unit,
    *lines: str,
    **options: Any,  # noqa: ANN401  fields
) -> Panel:
    """Lines over time; ``options`` are other fields of the panel.

    A line is an expression, in which ``<name>`` are the series of a metric of the selected tasks,
    and ``rate(<name>)`` is its increase per second. What follows ``|`` is added to the legend of
    the line.
    """
    queries = []
    for line in lines:
        expr, _, end = line.partition("|")
        expr = re.sub(r"rate\(<(\w+)>\)", r"rate(<\1>[$__rate_interval])", expr)
        expr = re.sub(r"<(\w+)>", lambda found: f"task_profiler_{found[1]}{_SELECTED_TASKS}", expr)
        queries.append(Query(expr, f"{legend} {end}".rstrip()))
    return Panel(title=title, description=description, unit=unit, queries=tuple(queries), **options)


# As of chart.
def ratio(legend: str, title: str, description: str, *lines: str, **options: Any) -> Panel:  # noqa: ANN401
    """Lines over time, from 0 to 100 %."""
    return chart(legend, title, description, "percentunit", *lines, axis_max=1, **options)


_number = partial(chart, kind="stat", width=4, height=5)
_of_task, _share_of_task = partial(chart, _TASK_NAME), partial(ratio, _TASK_NAME)
_of_container = partial(chart, "{{task_family}} {{container}} {{task_id}}")
_of_gpu, _share_of_gpu = (
    partial(chart, "{{task_family}} {{uuid}}"),
    partial(ratio, "{{task_family}} {{uuid}}"),
)
# In bridge mode each container has its own counters. In awsvpc mode the task has counters that its
# containers share.
_NETWORK: Final = tuple(
    f"sum by (task_family, task_id) (rate(<{owner}_network_{direction}_bytes_total>))|{legend}"
    for direction, legend in (("receive", "received"), ("transmit", "sent"))
    for owner in ("container", "task")
)

_OVERVIEW = Row(
    title="Tasks",
    panels=(
        _number(
            "Tasks",
            "Running tasks",
            "Tasks whose monitor Prometheus has scraped.",
            "none",
            "count(count by (task_family, task_id) (<task_info>))",
        ),
        _number(
            "vCPU",
            "vCPU in use",
            "Total over all containers of the selected tasks.",
            "short",
            "sum(<container_cpu_used_vcpus>)",
        ),
        _number(
            "Memory",
            "Memory in use",
            "Excluding reclaimable page cache.",
            "bytes",
            "sum(<container_memory_used_bytes>)",
        ),
        _number(
            "Memory",
            "Highest memory utilization",
            (
                "The container closest to its memory limit. At 100 %, the kernel kills a process "
                "in it."
            ),
            "percentunit",
            "max(<container_memory_used_bytes> / <container_memory_limit_bytes>)",
            axis_max=1,
            width=8,
        ),
        _number(
            "Sources",
            "Unavailable sources",
            (
                "Sources that a running monitor cannot read: task metadata endpoint, GPUs, "
                "Neuron devices."
            ),
            "none",
            "sum(1 - <monitor_source_up>)",
        ),
        _of_task(
            "Running for",
            "Time since the start of the task's first container, longest first.",
            "s",
            "sort_desc(time() - min by (task_family, task_id) (<container_start_time_seconds>))",
            kind="table",
            width=24,
            height=6,
        ),
        _of_container(
            "vCPU",
            (
                "CPU usage over the last interval of the container's stats (1 s on EC2, 10 s on "
                "Fargate)."
            ),
            "short",
            "<container_cpu_used_vcpus>",
        ),
        _of_container(
            "CPU utilization",
            (
                "CPU time as a share of the task's vCPUs, else of the instance. At 100 % it "
                "waits for CPU."
            ),
            "percentunit",
            "rate(<container_cpu_seconds_total>) / <container_cpu_limit_vcpus>",
        ),
        _of_container(
            "Memory",
            "Memory usage excluding reclaimable page cache.",
            "bytes",
            "<container_memory_used_bytes>",
        ),
        _of_container(
            "Memory utilization",
            (
                "Memory usage as a share of the limit. At 100 %, the kernel kills a process in "
                "the container."
            ),
            "percentunit",
            "<container_memory_used_bytes> / <container_memory_limit_bytes>",
            axis_max=1,
        ),
        _of_task(
            "Network",
            "Bytes per second. Traffic that containers share (awsvpc) is counted once.",
            "Bps",
            *_NETWORK,
        ),
        _of_task(
            "Block devices",
            "Bytes read and written per second.",
            "Bps",
            "sum by (task_family, task_id) (rate(<container_block_read_bytes_total>))|read",
            "sum by (task_family, task_id) (rate(<container_block_write_bytes_total>))|written",
        ),
    ),
)

_INSTANCE = Row(
    title="Instance (EC2)",
    panels=(
        _share_of_task(
            "Available memory",
            "Memory of the instance that is available without swapping, as a share of its size.",
            "<instance_memory_available_bytes> / <instance_memory_size_bytes>",
        ),
        _of_task(
            "Swapping",
            "Bytes swapped per second. Swapping on the instance slows the batch down.",
            "Bps",
            "rate(<instance_swap_out_bytes_total>)|out",
            "rate(<instance_swap_in_bytes_total>)|in",
        ),
        _of_task(
            "Swap in use",
            "Swap space of the instance in use; 0 if it has none.",
            "bytes",
            "<instance_swap_size_bytes> - <instance_swap_free_bytes>",
        ),
        _share_of_task(
            "Available disk space",
            "Free share of each file system that is mounted in the monitor's container.",
            "<instance_disk_available_bytes> / <instance_disk_size_bytes>|{{mount_point}}",
        ),
    ),
)

_GPU = Row(
    title="GPUs",
    is_collapsed=True,
    panels=(
        _share_of_gpu(
            "GPU utilization",
            (
                "Share of time in which a kernel ran. At 100 %, most of a GPU's units can still "
                "be idle."
            ),
            "<gpu_utilization_ratio>",
        ),
        _share_of_gpu(
            "GPU multiprocessors (SM)",
            "Share of the multiprocessors that worked, and of their warps. Hopper and newer.",
            "<gpu_sm_active_ratio>|active",
            "<gpu_sm_occupancy_ratio>|occupancy",
        ),
        _number(
            "{{task_family}}",
            "Idle GPU-hours",
            "Time of the selected range in which no kernel ran on a GPU, by family.",
            "short",
            "sum by (task_family) (increase(<gpu_idle_seconds_total>[$__range])) / 3600",
            width=12,
            height=8,
        ),
        _share_of_gpu(
            "GPU tensor cores and memory transfers",
            "Share of time in which they were active. Hopper and newer.",
            "<gpu_tensor_active_ratio>|tensor cores",
            "<gpu_dram_active_ratio>|memory",
        ),
        _of_gpu(
            "GPU transfers",
            "Bytes per second. Hopper and newer.",
            "Bps",
            *(
                f"rate(<gpu_{link.lower()}_{direction}_bytes_total>)|{link} {direction}"
                for link in ("PCIe", "NVLink")
                for direction in ("receive", "transmit")
            ),
            width=24,
        ),
        _share_of_gpu(
            "GPU memory",
            "Memory in use as a share of the GPU's memory.",
            "<gpu_memory_used_bytes> / <gpu_memory_size_bytes>",
        ),
        _of_gpu("GPU power", "Power draw at the time of the reading.", "watt", "<gpu_power_watts>"),
        _of_gpu(
            "GPU energy",
            "Mean power from the energy counter, which includes all peaks.",
            "watt",
            "rate(<gpu_energy_joules_total>)",
        ),
        _of_gpu(
            "GPU temperature",
            "Temperature of the GPU chip.",
            "celsius",
            "<gpu_temperature_celsius>",
        ),
        _of_gpu(
            "GPU clock",
            "Clock of the streaming multiprocessors (SM).",
            "hertz",
            "<gpu_sm_clock_hertz>",
        ),
        _share_of_gpu(
            "GPU throttled",
            "Share of time in which the driver reported this reason for a reduced clock.",
            # Scrapes and readings happen at different times, so a rate can slightly exceed 1.
            "clamp_max(rate(<gpu_throttled_seconds_total>), 1) > 0|{{reason}}",
            width=24,
        ),
    ),
)

_NEURON = Row(
    title="Neuron",
    is_collapsed=True,
    panels=(
        ratio(
            "{{task_family}} core {{neuron_core}}",
            "NeuronCore utilization",
            "Measured while a process uses the devices. An unused core has 0.",
            "<neuron_core_utilization_ratio>",
        ),
        chart(
            "{{task_family}} core {{neuron_core}}",
            "NeuronCore memory",
            "Device memory in use per core.",
            "bytes",
            "<neuron_core_memory_used_bytes>",
        ),
        chart(
            "{{task_family}} {{category}}",
            "Device memory by category",
            "Device memory in use on all devices of the task.",
            "bytes",
            "<neuron_memory_used_bytes>",
            is_stacked=True,
        ),
        _share_of_task(
            "Device memory utilization",
            "Device memory in use as a share of the memory of all devices.",
            "<neuron_device_memory_used_bytes> / <neuron_device_memory_size_bytes>",
        ),
        chart(
            "{{task_family}} {{outcome}}",
            "Executions",
            "Executions per second by outcome.",
            "ops",
            "rate(<neuron_executions_total>)",
        ),
        chart(
            "{{task_family}} {{percentile}}",
            "Execution latency",
            "Latency percentiles of the last period, from the slowest process.",
            "s",
            "<neuron_execution_latency_seconds>",
        ),
        _number(
            _TASK_NAME,
            "Memory errors",
            "Uncorrected ECC errors in the selected time range.",
            "none",
            "increase(<neuron_ecc_uncorrected_errors_total>[$__range])",
            width=24,
            height=4,
        ),
    ),
)

_MONITOR = Row(
    title="The monitor itself",
    is_collapsed=True,
    panels=(
        _of_task(
            "CPU of the monitor",
            "CPU usage as a share of one core.",
            "percentunit",
            "rate(<monitor_cpu_seconds_total>)",
        ),
        _of_task(
            "Memory of the monitor",
            "Peak resident memory so far.",
            "bytes",
            "<monitor_memory_peak_bytes>",
        ),
        _of_task(
            "Failed readings",
            "Failed readings of the containers' stats per second.",
            "ops",
            "rate(<monitor_read_failures_total>)",
        ),
        _of_task(
            "Late ticks",
            "Missed ticks per second: the monitor had no CPU, or waited for a response.",
            "ops",
            "rate(<monitor_missed_ticks_total>)",
        ),
    ),
)

ROWS: Final = (_OVERVIEW, _INSTANCE, _GPU, _NEURON, _MONITOR)
PANELS: Final = tuple(panel for row in ROWS for panel in row.panels)
