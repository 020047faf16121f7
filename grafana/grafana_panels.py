"""The rows and panels of the dashboard: tasks, their instance, GPUs, NeuronCores and the monitor."""

from typing import Any, Final, Literal

from msgspec import Struct

Kind = Literal["timeseries", "stat", "table"]
Unit = Literal["none", "short", "bytes", "Bps", "percentunit", "s", "watt", "celsius", "hertz", "ops"]


class Query(Struct, frozen=True):
    """A PromQL expression, and the legend of its series. Grafana replaces ``{{label}}`` by the label's value."""

    expr: str
    legend: str


class Panel(Struct, frozen=True, kw_only=True):
    """One chart, number or table. ``axis_max`` is the end of the axis, if the unit has a maximum (1 for a ratio)."""

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
    """Panels under a heading. Grafana runs the queries of a collapsed row only when a user opens it."""

    title: str
    panels: tuple[Panel, ...]
    is_collapsed: bool = False


def chart(title: str, description: str, unit: Unit, *queries: Query, **options: Any) -> Panel:  # noqa: ANN401  fields
    """Lines over time; ``options`` are other fields of the panel."""
    return Panel(title=title, description=description, unit=unit, queries=queries, **options)


def ratio(title: str, description: str, *queries: Query, **options: Any) -> Panel:  # noqa: ANN401  as of chart
    """Lines over time, from 0 to 100 %."""
    return chart(title, description, "percentunit", *queries, axis_max=1, **options)


def number(title: str, description: str, unit: Unit, query: Query, **options: Any) -> Panel:  # noqa: ANN401  as of chart
    """One large number."""
    return chart(title, description, unit, query, **({"kind": "stat", "width": 4, "height": 5} | options))


_SELECTED_TASKS: Final = '{task_family=~"$family",task_id=~"$task"}'
_TASK: Final = "task_family, task_id"
_TASK_NAME: Final = "{{task_family}} {{task_id}}"
_CONTAINER_NAME: Final = "{{task_family}} {{container}} {{task_id}}"

# Name, label, and the query of the values that the user selects from.
VARIABLES: Final = (
    ("family", "Family", "label_values(task_profiler_task_info, task_family)"),
    ("task", "Task", 'label_values(task_profiler_task_info{task_family=~"$family"}, task_id)'),
)


def _metric(name: str) -> str:
    """The series of the selected tasks."""
    return f"task_profiler_{name}{_SELECTED_TASKS}"


def _rate(name: str) -> str:
    """The increase of a counter per second."""
    return f"rate({_metric(name)}[$__rate_interval])"


def _per_task(name: str) -> str:
    """The increase of a counter per second, summed over all series of a task."""
    return f"sum by ({_TASK}) ({_rate(name)})"


def _share(used: str, size: str) -> str:
    """The used share of a size."""
    return f"{_metric(used)} / {_metric(size)}"


def _network(direction: str, legend: str) -> tuple[Query, ...]:
    """Network traffic of each task.

    In bridge mode each container has its own counters. In awsvpc mode the task has counters that its containers share.
    """
    return tuple(
        Query(_per_task(f"{owner}_network_{direction}_bytes_total"), f"{_TASK_NAME} {legend}")
        for owner in ("container", "task")
    )


_OVERVIEW = Row(
    title="Tasks",
    panels=(
        number(
            "Running tasks",
            "Tasks whose monitor Prometheus has scraped.",
            "none",
            Query(f"count(count by ({_TASK}) ({_metric('task_info')}))", "Tasks"),
        ),
        number(
            "vCPU in use",
            "Total over all containers of the selected tasks.",
            "short",
            Query(f"sum({_metric('container_cpu_used_vcpus')})", "vCPU"),
        ),
        number(
            "Memory in use",
            "Excluding reclaimable page cache.",
            "bytes",
            Query(f"sum({_metric('container_memory_used_bytes')})", "Memory"),
        ),
        number(
            "Highest memory utilization",
            "The container closest to its memory limit. At 100 %, the kernel kills a process in it.",
            "percentunit",
            Query(f"max({_share('container_memory_used_bytes', 'container_memory_limit_bytes')})", "Memory"),
            axis_max=1,
            width=8,
        ),
        number(
            "Unavailable sources",
            "Sources that a running monitor cannot read: task metadata endpoint, GPUs, Neuron devices.",
            "none",
            Query(f"sum(1 - {_metric('monitor_source_up')})", "Sources"),
        ),
        Panel(
            title="Running for",
            description="Time since the start of the task's first container, longest first.",
            unit="s",
            queries=(
                Query(f"sort_desc(time() - min by ({_TASK}) ({_metric('container_start_time_seconds')}))", _TASK_NAME),
            ),
            kind="table",
            width=24,
            height=6,
        ),
        chart(
            "vCPU",
            "CPU usage over the last interval of the container's stats (1 s on EC2, 10 s on Fargate).",
            "short",
            Query(_metric("container_cpu_used_vcpus"), _CONTAINER_NAME),
        ),
        chart(
            "CPU utilization",
            "CPU time as a share of the task's vCPUs, else of the instance. At 100 % it waits for CPU.",
            "percentunit",
            Query(f"{_rate('container_cpu_seconds_total')} / {_metric('container_cpu_limit_vcpus')}", _CONTAINER_NAME),
        ),
        chart(
            "Memory",
            "Memory usage excluding reclaimable page cache.",
            "bytes",
            Query(_metric("container_memory_used_bytes"), _CONTAINER_NAME),
        ),
        ratio(
            "Memory utilization",
            "Memory usage as a share of the limit. At 100 %, the kernel kills a process in the container.",
            Query(_share("container_memory_used_bytes", "container_memory_limit_bytes"), _CONTAINER_NAME),
        ),
        chart(
            "Network",
            "Bytes per second. Traffic that containers share (awsvpc) is counted once.",
            "Bps",
            *_network("receive", "received"),
            *_network("transmit", "sent"),
        ),
        chart(
            "Block devices",
            "Bytes read and written per second.",
            "Bps",
            Query(_per_task("container_block_read_bytes_total"), f"{_TASK_NAME} read"),
            Query(_per_task("container_block_write_bytes_total"), f"{_TASK_NAME} written"),
        ),
    ),
)

_INSTANCE = Row(
    title="Instance (EC2)",
    panels=(
        ratio(
            "Available memory",
            "Memory of the instance that is available without swapping, as a share of its size.",
            Query(_share("instance_memory_available_bytes", "instance_memory_size_bytes"), _TASK_NAME),
        ),
        chart(
            "Swapping",
            "Bytes swapped per second. Swapping on the instance slows the batch down.",
            "Bps",
            Query(_rate("instance_swap_out_bytes_total"), f"{_TASK_NAME} out"),
            Query(_rate("instance_swap_in_bytes_total"), f"{_TASK_NAME} in"),
        ),
        chart(
            "Swap in use",
            "Swap space of the instance in use; 0 if it has none.",
            "bytes",
            Query(f"{_metric('instance_swap_size_bytes')} - {_metric('instance_swap_free_bytes')}", _TASK_NAME),
        ),
        ratio(
            "Available disk space",
            "Free share of each file system that is mounted in the monitor's container.",
            Query(
                _share("instance_disk_available_bytes", "instance_disk_size_bytes"), f"{_TASK_NAME} {{{{mount_point}}}}"
            ),
        ),
    ),
)


_GPU_NAME = "{{task_family}} {{uuid}}"


def _gpu_ratios(title: str, description: str, **legends: str) -> Panel:
    """A line for each ratio of each GPU; the names of the lines end with these texts."""
    lines = (Query(_metric(f"gpu_{name}_ratio"), f"{_GPU_NAME}{legend}") for name, legend in legends.items())
    return ratio(title, description, *lines)


_GPU = Row(
    title="GPUs",
    is_collapsed=True,
    panels=(
        _gpu_ratios(
            "GPU utilization",
            "Share of time in which a kernel ran. At 100 %, most of a GPU's units can still be idle.",
            utilization="",
        ),
        _gpu_ratios(
            "GPU multiprocessors (SM)",
            "Share of the multiprocessors that worked, and of their warps. Hopper and newer.",
            sm_active=" active",
            sm_occupancy=" occupancy",
        ),
        number(
            "Idle GPU-hours",
            "Time of the selected range in which no kernel ran on a GPU, by family.",
            "short",
            Query(
                f"sum by (task_family) (increase({_metric('gpu_idle_seconds_total')}[$__range])) / 3600",
                "{{task_family}}",
            ),
            width=12,
            height=8,
        ),
        _gpu_ratios(
            "GPU tensor cores and memory transfers",
            "Share of time in which they were active. Hopper and newer.",
            tensor_active=" tensor cores",
            dram_active=" memory",
        ),
        chart(
            "GPU transfers",
            "Bytes per second. Hopper and newer.",
            "Bps",
            *(
                Query(_rate(f"gpu_{link.lower()}_{direction}_bytes_total"), f"{_GPU_NAME} {link} {direction}")
                for link in ("PCIe", "NVLink")
                for direction in ("receive", "transmit")
            ),
            width=24,
        ),
        ratio(
            "GPU memory",
            "Memory in use as a share of the GPU's memory.",
            Query(_share("gpu_memory_used_bytes", "gpu_memory_size_bytes"), _GPU_NAME),
        ),
        chart(
            "GPU power", "Power draw at the time of the reading.", "watt", Query(_metric("gpu_power_watts"), _GPU_NAME)
        ),
        chart(
            "GPU energy",
            "Mean power from the energy counter, which includes all peaks.",
            "watt",
            Query(_rate("gpu_energy_joules_total"), _GPU_NAME),
        ),
        chart(
            "GPU temperature",
            "Temperature of the GPU chip.",
            "celsius",
            Query(_metric("gpu_temperature_celsius"), _GPU_NAME),
        ),
        chart(
            "GPU clock",
            "Clock of the streaming multiprocessors (SM).",
            "hertz",
            Query(_metric("gpu_sm_clock_hertz"), _GPU_NAME),
        ),
        ratio(
            "GPU throttled",
            "Share of time in which the driver reported this reason for a reduced clock.",
            # Scrapes and readings happen at different times, so a rate can slightly exceed 1.
            Query(f"clamp_max({_rate('gpu_throttled_seconds_total')}, 1) > 0", f"{_GPU_NAME} {{{{reason}}}}"),
            width=24,
        ),
    ),
)

_CORE_NAME = "{{task_family}} core {{neuron_core}}"
_NEURON = Row(
    title="Neuron",
    is_collapsed=True,
    panels=(
        ratio(
            "NeuronCore utilization",
            "Measured while a process uses the devices. An unused core has 0.",
            Query(_metric("neuron_core_utilization_ratio"), _CORE_NAME),
        ),
        chart(
            "NeuronCore memory",
            "Device memory in use per core.",
            "bytes",
            Query(_metric("neuron_core_memory_used_bytes"), _CORE_NAME),
        ),
        chart(
            "Device memory by category",
            "Device memory in use on all devices of the task.",
            "bytes",
            Query(_metric("neuron_memory_used_bytes"), "{{task_family}} {{category}}"),
            is_stacked=True,
        ),
        ratio(
            "Device memory utilization",
            "Device memory in use as a share of the memory of all devices.",
            Query(_share("neuron_device_memory_used_bytes", "neuron_device_memory_size_bytes"), _TASK_NAME),
        ),
        chart(
            "Executions",
            "Executions per second by outcome.",
            "ops",
            Query(_rate("neuron_executions_total"), "{{task_family}} {{outcome}}"),
        ),
        chart(
            "Execution latency",
            "Latency percentiles of the last period, from the slowest process.",
            "s",
            Query(_metric("neuron_execution_latency_seconds"), "{{task_family}} {{percentile}}"),
        ),
        number(
            "Memory errors",
            "Uncorrected ECC errors in the selected time range.",
            "none",
            Query(f"increase({_metric('neuron_ecc_uncorrected_errors_total')}[$__range])", _TASK_NAME),
            width=24,
            height=4,
        ),
    ),
)

_MONITOR = Row(
    title="The monitor itself",
    is_collapsed=True,
    panels=(
        chart(
            "CPU of the monitor",
            "CPU usage as a share of one core.",
            "percentunit",
            Query(_rate("monitor_cpu_seconds_total"), _TASK_NAME),
        ),
        chart(
            "Memory of the monitor",
            "Peak resident memory so far.",
            "bytes",
            Query(_metric("monitor_memory_peak_bytes"), _TASK_NAME),
        ),
        chart(
            "Failed readings",
            "Failed readings of the containers' stats per second.",
            "ops",
            Query(_rate("monitor_read_failures_total"), _TASK_NAME),
        ),
        chart(
            "Late ticks",
            "Missed ticks per second: the monitor had no CPU, or waited for a response.",
            "ops",
            Query(_rate("monitor_missed_ticks_total"), _TASK_NAME),
        ),
    ),
)

ROWS: Final = (_OVERVIEW, _INSTANCE, _GPU, _NEURON, _MONITOR)
PANELS: Final = tuple(panel for row in ROWS for panel in row.panels)
