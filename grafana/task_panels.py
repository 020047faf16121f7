"""The panels of tasks, their instance and the monitor, and the rows of the dashboard."""

from typing import Final

from grafana.accelerator_panels import GPU, NEURON
from grafana.grafana_model import Panel, Query, Row, Variable
from grafana.promql import CONTAINER_NAME, TASK, TASK_NAME, metric, per_task, rate, share

TITLE: Final = "Task Profiler"
DESCRIPTION: Final = "Resource usage of running ECS batch tasks: containers, GPUs, NeuronCores, and the EC2 instance."

VARIABLES: Final = (
    Variable(name="family", label="Family", query="label_values(task_profiler_task_info, task_family)"),
    Variable(name="task", label="Task", query='label_values(task_profiler_task_info{task_family=~"$family"}, task_id)'),
)


def _network(direction: str, legend: str) -> tuple[Query, ...]:
    """Network traffic of each task.

    In bridge mode each container has its own counters. In awsvpc mode the task has counters that its containers share.
    """
    return tuple(
        Query(expr=per_task(f"{whose}_network_{direction}_bytes_total"), legend=f"{TASK_NAME} {legend}")
        for whose in ("container", "task")
    )


_OVERVIEW = Row(
    title="Tasks",
    panels=(
        Panel(
            title="Running tasks",
            description="Tasks whose monitor Prometheus has scraped.",
            kind="stat",
            unit="none",
            queries=(Query(expr=f"count(count by ({TASK}) ({metric('task_info')}))", legend="Tasks"),),
            width=4,
            height=5,
        ),
        Panel(
            title="vCPU in use",
            description="Total over all containers of the selected tasks.",
            kind="stat",
            unit="short",
            queries=(Query(expr=f"sum({metric('container_cpu_used_vcpus')})", legend="vCPU"),),
            width=4,
            height=5,
        ),
        Panel(
            title="Memory in use",
            description="Excluding reclaimable page cache.",
            kind="stat",
            unit="bytes",
            queries=(Query(expr=f"sum({metric('container_memory_used_bytes')})", legend="Memory"),),
            width=4,
            height=5,
        ),
        Panel(
            title="Highest memory utilization",
            description="The container closest to its memory limit. At 100 %, the kernel kills a process in it.",
            kind="stat",
            unit="percentunit",
            queries=(
                Query(
                    expr=f"max({share('container_memory_used_bytes', 'container_memory_limit_bytes')})",
                    legend="Memory",
                ),
            ),
            axis_max=1,
            width=8,
            height=5,
        ),
        Panel(
            title="Unavailable sources",
            description="Sources that a running monitor cannot read: task metadata endpoint, GPUs, Neuron devices.",
            kind="stat",
            unit="none",
            queries=(Query(expr=f"sum(1 - {metric('monitor_source_up')})", legend="Sources"),),
            width=4,
            height=5,
        ),
        Panel(
            title="Running for",
            description="Time since the start of the task's first container, longest first.",
            kind="table",
            unit="s",
            queries=(
                Query(
                    expr=f"sort_desc(time() - min by ({TASK}) ({metric('container_start_time_seconds')}))",
                    legend=TASK_NAME,
                ),
            ),
            width=24,
            height=6,
        ),
        Panel(
            title="vCPU",
            description="CPU usage over the last interval of the container's stats (1 s on EC2, 10 s on Fargate).",
            unit="short",
            queries=(Query(expr=metric("container_cpu_used_vcpus"), legend=CONTAINER_NAME),),
        ),
        Panel(
            title="CPU utilization",
            description="CPU time as a share of the task's vCPUs, else of the instance. At 100 % it waits for CPU.",
            unit="percentunit",
            queries=(
                Query(
                    expr=f"{rate('container_cpu_seconds_total')} / {metric('container_cpu_limit_vcpus')}",
                    legend=CONTAINER_NAME,
                ),
            ),
        ),
        Panel(
            title="Memory",
            description="Memory usage excluding reclaimable page cache.",
            unit="bytes",
            queries=(Query(expr=metric("container_memory_used_bytes"), legend=CONTAINER_NAME),),
        ),
        Panel(
            title="Memory utilization",
            description="Memory usage as a share of the limit. At 100 %, the kernel kills a process in the container.",
            unit="percentunit",
            queries=(
                Query(
                    expr=share("container_memory_used_bytes", "container_memory_limit_bytes"),
                    legend=CONTAINER_NAME,
                ),
            ),
            axis_max=1,
        ),
        Panel(
            title="Network",
            description="Bytes per second. Traffic that containers share (awsvpc) is counted once.",
            unit="Bps",
            queries=(*_network("receive", "received"), *_network("transmit", "sent")),
        ),
        Panel(
            title="Block devices",
            description="Bytes read and written per second.",
            unit="Bps",
            queries=(
                Query(expr=per_task("container_block_read_bytes_total"), legend=f"{TASK_NAME} read"),
                Query(expr=per_task("container_block_write_bytes_total"), legend=f"{TASK_NAME} written"),
            ),
        ),
    ),
)

_INSTANCE = Row(
    title="Instance (EC2)",
    panels=(
        Panel(
            title="Available memory",
            description="Memory of the instance that is available without swapping, as a share of its size.",
            unit="percentunit",
            queries=(
                Query(expr=share("instance_memory_available_bytes", "instance_memory_size_bytes"), legend=TASK_NAME),
            ),
            axis_max=1,
        ),
        Panel(
            title="Swapping",
            description="Bytes swapped per second. Swapping on the instance slows the batch down.",
            unit="Bps",
            queries=(
                Query(expr=rate("instance_swap_out_bytes_total"), legend=f"{TASK_NAME} out"),
                Query(expr=rate("instance_swap_in_bytes_total"), legend=f"{TASK_NAME} in"),
            ),
        ),
        Panel(
            title="Swap in use",
            description="Swap space of the instance in use; 0 if it has none.",
            unit="bytes",
            queries=(
                Query(
                    expr=f"{metric('instance_swap_size_bytes')} - {metric('instance_swap_free_bytes')}",
                    legend=TASK_NAME,
                ),
            ),
        ),
        Panel(
            title="Available disk space",
            description="Free share of each file system that is mounted in the monitor's container.",
            unit="percentunit",
            queries=(
                Query(
                    expr=share("instance_disk_available_bytes", "instance_disk_size_bytes"),
                    legend=f"{TASK_NAME} {{{{mount_point}}}}",
                ),
            ),
            axis_max=1,
        ),
    ),
)

_MONITOR = Row(
    title="The monitor itself",
    is_collapsed=True,
    panels=(
        Panel(
            title="CPU of the monitor",
            description="CPU usage as a share of one core.",
            unit="percentunit",
            queries=(Query(expr=rate("monitor_cpu_seconds_total"), legend=TASK_NAME),),
        ),
        Panel(
            title="Memory of the monitor",
            description="Peak resident memory so far.",
            unit="bytes",
            queries=(Query(expr=metric("monitor_memory_peak_bytes"), legend=TASK_NAME),),
        ),
        Panel(
            title="Failed readings",
            description="Failed readings of the containers' stats per second.",
            unit="ops",
            queries=(Query(expr=rate("monitor_read_failures_total"), legend=TASK_NAME),),
        ),
        Panel(
            title="Late ticks",
            description="Missed ticks per second: the monitor had no CPU, or waited for a response.",
            unit="ops",
            queries=(Query(expr=rate("monitor_missed_ticks_total"), legend=TASK_NAME),),
        ),
    ),
)

ROWS: Final = (_OVERVIEW, _INSTANCE, GPU, NEURON, _MONITOR)
PANELS: Final = tuple(panel for row in ROWS for panel in row.panels)
