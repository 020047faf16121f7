"""The dashboards of one run: its result, its sizes, its checkpoints, and its accelerators."""

from functools import partial
from typing import Final

from msgspec.structs import replace

from kibana import dashboard_model as model
from kibana import panel_builders as parts
from kibana.dashboard_model import Dashboard, Panel, PanelMetric, SavedSearch, Terms
from kibana.run_drawing import RUN_CURVES

_TABLE_HEIGHT: Final = 6
# One run at a time, as in its drawing: the newest, if none is selected.
_NEWEST_TASK: Final = replace(parts.TASK_ROWS, size=1)
_FAMILIES_OF_CHART: Final = Terms(
    field="task.family", label="Family", size=10, order_by=model.BY_COUNT
)


_run_table = partial(parts.table, terms=(_NEWEST_TASK, parts.CONTAINER_ROWS), height=_TABLE_HEIGHT)


def _device_chart(key: str, title: str, description: str, metric: PanelMetric) -> Panel:
    """A line for each family over the elapsed time: a clock's axis would join runs of different
    days.
    """
    description = f"{description} by the time since the start. All runs of a family are combined."
    return parts.line(
        *(key, title, description, metric),
        index="checkpoints",
        terms=(_FAMILIES_OF_CHART,),
        condition=f"{metric.field}: *",
        has_time_axis=True,
        time_field=model.ELAPSED_FIELD,
    )


_RUN_COLUMNS: Final = (
    "task.family",
    "task.id",
    "task.status",
    parts.DURATION,
    "usage.memory.percent.max",
    "links.run",
    "links.logs",
    "links.task",
)
NEWEST_RUNS: Final = SavedSearch(
    key="newest-runs",
    title="Newest runs",
    description=(
        "The runs of the time range, newest first, with links to charts, log and ECS task of a run."
    ),
    columns=_RUN_COLUMNS,
)
FAILURES: Final = SavedSearch(
    key="failures",
    title="Failures",
    description="The runs that did not succeed, newest first.",
    columns=(
        *_RUN_COLUMNS[:3],
        "task.stop_category",
        "task.exit_code",
        "task.stopped_reason",
        *_RUN_COLUMNS[4:],
    ),
    condition=parts.NOT_SUCCESSFUL,
)

RUN: Final = Dashboard(
    key="task-run",
    title="Task run",
    description=(
        "One task: its result, what it used of its size, and its usage over time. Select it by "
        "task.id. The link in a notification and every task id on the other dashboards do so. "
        "Without a task, it is the newest run."
    ),
    controls=(*parts.PLACE_CONTROLS[:2], parts.FAMILY_CONTROL, parts.TASK_CONTROL),
    panels=(
        RUN_CURVES,
        _run_table(
            "run-summary",
            "Result and sizes",
            "Category and reason, as ECS and the monitor report them. Saturated: share of the time "
            "in which the task used all CPUs. Killed: processes that the kernel killed.",
            parts.latest("task.exit_code", "Exit code"),
            parts.latest("task.stop_category", "Category"),
            parts.latest("task.stopped_reason", "Reason"),
            parts.highest("usage.cpu.size", "vCPU"),
            parts.highest("usage.cpu.percent.max", "CPU peak %"),
            parts.highest("usage.cpu.saturated_percent", "Saturated %"),
            parts.highest("usage.memory.size_mb", "Memory MB"),
            parts.highest("usage.memory.used_mb.max", "Peak MB"),
            parts.highest("usage.memory.kills", "Killed"),
        ),
        _run_table(
            "run-time",
            "Where the time went",
            "Parts of the duration in percent.",
            *parts.TIME_PARTS,
            width=28,
        ),
        _run_table(
            "run-what-if",
            "Slowdown at another size",
            (
                "How many times as long the run would have taken at most with this number of "
                "vCPUs. 1: not slower."
            ),
            *(
                parts.highest(f"usage.cpu.slowdown.max.v{size.replace('.', '_')}", f"{size} vCPU")
                for size in ("0.25", "0.5", "1", "2", "4", "8")
            ),
            width=20,
        ),
        _run_table(
            "run-containers",
            "Containers",
            "Totals over all checkpoints of each container.",
            parts.average("interval.cpu_percent", "CPU %"),
            parts.highest("interval.memory_mb", "Peak MB"),
            parts.highest("usage.memory.cache_mb.max", "Cache MB"),
            parts.highest("usage.network.rx_bytes", "Received"),
            parts.highest("usage.network.tx_bytes", "Sent"),
            parts.highest("usage.block.read_bytes", "Read"),
            parts.highest("usage.block.write_bytes", "Written"),
            parts.latest("container.image.name", "Image"),
            index="checkpoints",
        ),
        NEWEST_RUNS,
    ),
)


def _accelerator_table(
    key: str, title: str, description: str, field: str, *metrics: PanelMetric
) -> Panel:
    columns = (parts.TASKS, *metrics, parts.LATEST_TASK)
    return parts.table(
        key,
        title,
        description,
        *columns,
        terms=(parts.FAMILIES,),
        condition=f"{field}: *",
        height=12,
    )


GPU: Final = Dashboard(
    key="task-gpu",
    title="GPU",
    description="GPU utilization, idle time and memory of runs, and of one run over time.",
    controls=(*parts.PLACE_CONTROLS[:2], parts.FAMILY_CONTROL, parts.TASK_CONTROL),
    panels=(
        _device_chart(
            "run-gpu",
            "GPU % during a run",
            "Mean GPU utilization, over all GPUs of a task,",
            parts.average("interval.gpu_percent", "GPU %"),
        ),
        _device_chart(
            "run-gpu-memory",
            "GPU memory during a run (MB)",
            "Maximum memory usage of a single GPU",
            parts.highest("interval.gpu_memory_mb", "Used (MB)"),
        ),
        parts.heatmap(
            "gpu-usage",
            "GPU % by family",
            "Mean GPU utilization. Families by the end time of their tasks.",
            parts.average("usage.gpu.percent.avg", "GPU %"),
        ),
        parts.ranking(
            "gpu-idle",
            "Idle GPU-hours by family",
            "Time in which no kernel ran on a GPU, summed over runs and GPUs. If it is not known "
            "which GPUs of an instance belong to a task, all of them count.",
            PanelMetric(operation="sum", field="usage.gpu.idle.hours", label="Idle GPU-hours"),
        ),
        parts.ranking(
            "gpu-sm-active",
            "GPU % and SM active % by family",
            (
                "Mean GPU utilization: a kernel ran. Mean share of the multiprocessors (SM) that "
                "worked, from Hopper on."
            ),
            parts.average("usage.gpu.percent.avg", "GPU %"),
            parts.average("usage.gpu.sm_active.percent.avg", "SM active %"),
            axis="%",
        ),
        _accelerator_table(
            "gpu-families",
            "GPUs by family",
            "Runs that had a GPU.",
            "usage.gpu.count",
            parts.highest("usage.gpu.count", "GPUs"),
            parts.average("usage.gpu.percent.avg", "GPU %"),
            parts.highest("usage.gpu.percent.max", "Highest %"),
            parts.average("usage.gpu.sm_active.percent.avg", "SM active %"),
            parts.average("usage.gpu.idle.percent", "Idle %"),
            parts.highest("usage.gpu.memory_mb.max", "Memory peak (MB)"),
        ),
    ),
)

NEURON: Final = Dashboard(
    key="task-neuron",
    title="Neuron",
    description="NeuronCore utilization of runs, and of one run over time.",
    controls=(*parts.PLACE_CONTROLS[:2], parts.FAMILY_CONTROL, parts.TASK_CONTROL),
    panels=(
        _device_chart(
            "run-neuron",
            "Neuron % during a run",
            "Mean NeuronCore utilization, over all NeuronCores of a task,",
            parts.average("interval.neuron_percent", "Neuron %"),
        ),
        _device_chart(
            "run-neuron-memory",
            "Neuron device memory during a run (MB)",
            "Maximum device memory until then,",
            parts.highest("usage.neuron.memory_mb.max", "Used (MB)"),
        ),
        parts.heatmap(
            "neuron-usage",
            "Neuron % by family",
            "Mean NeuronCore utilization. Families by the end time of their tasks.",
            parts.average("usage.neuron.percent.avg", "Neuron %"),
        ),
        _accelerator_table(
            "neuron-families",
            "Neuron by family",
            "Runs that used NeuronCores.",
            "usage.neuron.cores",
            parts.highest("usage.neuron.cores", "Cores"),
            parts.average("usage.neuron.percent.avg", "Neuron %"),
            parts.highest("usage.neuron.percent.max", "Highest %"),
            parts.highest("usage.neuron.memory_mb.max", "Memory peak (MB)"),
        ),
    ),
)
