"""The tasks, the instance below them, the monitor; and the dashboard of all rows, which ``build.py`` writes."""

from typing import Final

from grafana.accelerator_panels import GPU, NEURON
from grafana.model import Panel, Query, Row, Variable
from grafana.promql import CONTAINER_NAME, TASK, TASK_NAME, metric, per_task, rate, share

TITLE: Final = "Task Profiler"
DESCRIPTION: Final = "What running ECS batch tasks use: containers, GPUs, Neuron cores, the instance below them."

VARIABLES: Final = (
    Variable(name="family", label="Family", query="label_values(task_profiler_task_info, task_family)"),
    Variable(name="task", label="Task", query='label_values(task_profiler_task_info{task_family=~"$family"}, task_id)'),
)


def _network(direction: str, legend: str) -> tuple[Query, ...]:
    """Of the containers where each has a network of its own (bridge), of the task where they share one (awsvpc)."""
    return tuple(
        Query(expr=per_task(f"{whose}_network_{direction}_bytes_total"), legend=f"{TASK_NAME} {legend}")
        for whose in ("container", "task")
    )


_OVERVIEW = Row(
    title="Tasks",
    panels=(
        Panel(
            title="Running tasks",
            description="Tasks whose monitor was scraped.",
            kind="stat",
            unit="none",
            queries=(Query(expr=f"count(count by ({TASK}) ({metric('task_info')}))", legend="Tasks"),),
            width=4,
            height=5,
        ),
        Panel(
            title="vCPU in use",
            description="Over all containers of the tasks.",
            kind="stat",
            unit="short",
            queries=(Query(expr=f"sum({metric('container_cpu_used_vcpus')})", legend="vCPU"),),
            width=4,
            height=5,
        ),
        Panel(
            title="Memory in use",
            description="Without page cache that can be reclaimed.",
            kind="stat",
            unit="bytes",
            queries=(Query(expr=f"sum({metric('container_memory_used_bytes')})", legend="Memory"),),
            width=4,
            height=5,
        ),
        Panel(
            title="Nearest to its memory limit",
            description="The container that uses most of what bounds it: at 100 % the kernel kills.",
            kind="stat",
            unit="percentunit",
            queries=(
                Query(
                    expr=f"max({share('container_memory_used_bytes', 'container_memory_limit_bytes')})",
                    legend="Memory",
                ),
            ),
            largest=1,
            width=8,
            height=5,
        ),
        Panel(
            title="Sources that do not answer",
            description="Of a monitor that is still there: the task metadata endpoint, GPUs, Neuron devices.",
            kind="stat",
            unit="none",
            queries=(Query(expr=f"sum(1 - {metric('monitor_source_up')})", legend="Sources"),),
            width=4,
            height=5,
        ),
        Panel(
            title="Running for",
            description="Since the start of the task's first container, the longest first.",
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
            description="In use over the last step of the container's stats (1 s on EC2, 10 s on Fargate).",
            unit="short",
            queries=(Query(expr=metric("container_cpu_used_vcpus"), legend=CONTAINER_NAME),),
        ),
        Panel(
            title="vCPU of what bounds it",
            description="CPU time as a share of the limit: at 100 % the container waits for CPU.",
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
            description="Without page cache that can be reclaimed.",
            unit="bytes",
            queries=(Query(expr=metric("container_memory_used_bytes"), legend=CONTAINER_NAME),),
        ),
        Panel(
            title="Memory of what bounds it",
            description="A share of the limit: at 100 % the kernel kills.",
            unit="percentunit",
            queries=(
                Query(
                    expr=share("container_memory_used_bytes", "container_memory_limit_bytes"),
                    legend=CONTAINER_NAME,
                ),
            ),
            largest=1,
        ),
        Panel(
            title="Network",
            description="Each byte of a task once, whether its containers share a network (awsvpc) or not.",
            unit="Bps",
            queries=(*_network("receive", "received"), *_network("transmit", "sent")),
        ),
        Panel(
            title="Block devices",
            description="Bytes read from and written to them.",
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
            title="Memory left",
            description="Of the instance, without swapping: a share of what it has.",
            unit="percentunit",
            queries=(
                Query(expr=share("instance_memory_available_bytes", "instance_memory_size_bytes"), legend=TASK_NAME),
            ),
            largest=1,
        ),
        Panel(
            title="Swapping",
            description="An instance that swaps explains a slow batch.",
            unit="Bps",
            queries=(
                Query(expr=rate("instance_swap_out_bytes_total"), legend=f"{TASK_NAME} out"),
                Query(expr=rate("instance_swap_in_bytes_total"), legend=f"{TASK_NAME} in"),
            ),
        ),
        Panel(
            title="Swap in use",
            description="Of the instance; 0 where it has none.",
            unit="bytes",
            queries=(
                Query(
                    expr=f"{metric('instance_swap_size_bytes')} - {metric('instance_swap_free_bytes')}",
                    legend=TASK_NAME,
                ),
            ),
        ),
        Panel(
            title="Disk left",
            description="A share of each file system that the monitor has mounted.",
            unit="percentunit",
            queries=(
                Query(
                    expr=share("instance_disk_available_bytes", "instance_disk_size_bytes"),
                    legend=f"{TASK_NAME} {{{{mount_point}}}}",
                ),
            ),
            largest=1,
        ),
    ),
)

_MONITOR = Row(
    title="The monitor itself",
    collapsed=True,
    panels=(
        Panel(
            title="CPU of the monitor",
            description="A share of one core.",
            unit="percentunit",
            queries=(Query(expr=rate("monitor_cpu_seconds_total"), legend=TASK_NAME),),
        ),
        Panel(
            title="Memory of the monitor",
            description="The largest so far.",
            unit="bytes",
            queries=(Query(expr=metric("monitor_memory_peak_bytes"), legend=TASK_NAME),),
        ),
        Panel(
            title="Failed readings",
            description="A second; of the containers' stats.",
            unit="ops",
            queries=(Query(expr=rate("monitor_read_failures_total"), legend=TASK_NAME),),
        ),
        Panel(
            title="Late ticks",
            description="A second; the monitor had no CPU, or waited for an answer.",
            unit="ops",
            queries=(Query(expr=rate("monitor_missed_ticks_total"), legend=TASK_NAME),),
        ),
    ),
)

ROWS: Final = (_OVERVIEW, GPU, NEURON, _INSTANCE, _MONITOR)
PANELS: Final = tuple(panel for row in ROWS for panel in row.panels)
