"""The dashboards of one run: its result, its sizes, its checkpoints, and its accelerators."""

from typing import Final

from msgspec.structs import replace

from kibana import colours
from kibana import dashboard_model as model
from kibana import panel_builders as parts
from kibana.dashboard_model import Dashboard, Panel, PanelMetric, SavedSearch, TermsBuckets
from kibana.run_details import RUN_DETAILS
from kibana.run_drawing import RUN_CURVES

_FAMILIES_OF_CHART: Final = TermsBuckets(
    field="task.family", label="Family", size=10, order_by=model.BY_COUNT
)


_OF_INSTANCE: Final = 'usage.gpu.scope: "instance"'
_NOT_OF_OTHERS: Final = (
    "Runs whose GPUs' numbers may be other programs' are left out: usage.gpu.scope names them."
)
# The mean of exact numbers and of estimates would look exact.
_WITHOUT_ESTIMATES: Final = f"Estimates are in a table below. {_NOT_OF_OTHERS}"
_IS_PARTLY_KNOWN: Final = (
    'usage.estimated: "usage.gpu.percent.avg" or usage.at_least: "usage.gpu.idle.percent"'
)


def _condition_of_exact(field: str) -> str:
    """The condition of the runs with this number of their GPUs, that is no estimate."""
    return f'{field}: * and not usage.estimated: "{field}" and not {_OF_INSTANCE}'


def _device_chart(
    key: str, title: str, description: str, metric: PanelMetric, condition: str = ""
) -> Panel:
    """A line for each family over the elapsed time: a clock's axis would join runs of different
    days.
    """
    description = (
        f"{description} by the time since the start. All runs of a family are combined. A run that "
        "ended before its first checkpoint is not in it."
    )
    if condition:
        description = f"{description} {_NOT_OF_OTHERS}"
    return parts.line(
        *(key, title, description, metric),
        index="checkpoints",
        terms=(_FAMILIES_OF_CHART,),
        condition=condition or f"{metric.field}: *",
        has_time_axis=True,
        time_field=model.ELAPSED_FIELD,
    )


_RUN_COLUMNS: Final = (
    "task.family",
    "task.id",
    "task.status",
    parts.DURATION,
    "usage.cpu.percent.max",
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
        "task.outcome",
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
    controls=(*parts.PLACE_CONTROLS, parts.FAMILY_CONTROL, parts.TASK_CONTROL),
    panels=(
        RUN_CURVES,
        RUN_DETAILS,
        replace(NEWEST_RUNS, height=9),  # of a selected run, one row
    ),
    shows_unconfirmed=True,
)


def _accelerator_table(
    key: str, title: str, description: str, condition: str, *metrics: PanelMetric
) -> Panel:
    columns = (parts.TASKS, *metrics, parts.LATEST_TASK)
    return parts.table(
        key,
        title,
        description,
        *columns,
        terms=(parts.FAMILIES,),
        condition=condition,
        is_short=True,
        height=8,
    )


GPU: Final = Dashboard(
    key="task-gpu",
    title="GPU",
    description="GPU utilization, idle time, memory and errors of runs, and of one run over time.",
    controls=(*parts.PLACE_CONTROLS, parts.FAMILY_CONTROL, parts.TASK_CONTROL),
    panels=(
        _device_chart(
            "run-gpu",
            "GPU % during a run",
            "Mean GPU utilization, over all GPUs of a task,",
            parts.average("interval.gpu_percent", "GPU %"),
            f"{_condition_of_exact('interval.gpu_percent')} and not usage.gpu.scope: *",
        ),
        _device_chart(
            "run-gpu-memory",
            "GPU memory during a run (MB)",
            "Largest memory of a single GPU that was seen in use",
            parts.highest("interval.gpu_memory_mb", "Used (MB, ≥)"),
            "interval.gpu_memory_mb: * and not usage.gpu.scope: *",
        ),
        parts.heatmap(
            "gpu-usage",
            "GPU % by family",
            f"Mean GPU utilization. Families by the end time of their tasks. {_WITHOUT_ESTIMATES}",
            parts.average("usage.gpu.percent.avg", "GPU %"),
            condition=_condition_of_exact("usage.gpu.percent.avg"),
            bands=colours.DEVICE_USE_BANDS,
        ),
        parts.ranking(
            "gpu-idle",
            "Idle GPU-hours by family",
            "Time in which neither a kernel nor a copy ran on a GPU, summed over runs and GPUs "
            f"that are not shared, as far as it was seen. {_WITHOUT_ESTIMATES}",
            PanelMetric(
                operation="sum",
                field="usage.gpu.idle.hours",
                label="Idle GPU-hours",
                colour=colours.USED,
            ),
            condition=_condition_of_exact("usage.gpu.idle.hours"),
        ),
        parts.ranking(
            "gpu-sm-active",
            "GPU % and SM active % by family",
            (
                "Mean GPU utilization: a kernel or a copy ran. Mean share of the multiprocessors "
                f"(SM) that worked, from Hopper on. {_WITHOUT_ESTIMATES}"
            ),
            parts.average("usage.gpu.percent.avg", "GPU %", colours.USED),
            parts.average("usage.gpu.sm_active.percent.avg", "SM active %", colours.HIGH),
            axis="%",
            condition=_condition_of_exact("usage.gpu.percent.avg"),
        ),
        _accelerator_table(
            "gpu-families",
            "GPUs by family",
            "Runs that had a GPU. The use of a GPU that other programs shared does not count. (≥): "
            f"memory is sampled. {_WITHOUT_ESTIMATES}",
            f"usage.gpu.count: * and not ({_IS_PARTLY_KNOWN}) and not {_OF_INSTANCE}",
            parts.highest("usage.gpu.count", "GPUs"),
            parts.average("usage.gpu.percent.avg", "GPU %"),
            parts.highest("usage.gpu.percent.max", "Highest %"),
            parts.average("usage.gpu.sm_active.percent.avg", "SM active %"),
            parts.average("usage.gpu.idle.percent", "Idle %"),
            parts.highest("usage.gpu.memory_mb.max", "Peak MB (≥)"),
        ),
        _accelerator_table(
            "gpu-estimates",
            "GPUs by family: estimates and lower bounds",
            "Runs whose GPU's use was read once a second, which is an estimate, or is not known "
            f"throughout: then Idle % is at least this. {_NOT_OF_OTHERS}",
            f"({_IS_PARTLY_KNOWN}) and not {_OF_INSTANCE}",
            parts.highest("usage.gpu.count", "GPUs"),
            parts.average("usage.gpu.percent.avg", "GPU % (≈)"),
            parts.average("usage.gpu.idle.percent", "Idle % (≈, ≥)"),
            parts.highest("usage.gpu.memory_mb.max", "Peak MB (≥)"),
        ),
        parts.table(
            "gpu-errors",
            "GPU errors by family",
            "Runs that probably ran out of GPU memory, or whose GPU's driver reported an error "
            "(Xid). NVIDIA's Xid catalog says what a number means. Where usage.gpu.scope is set, "
            "the error may be another program's.",
            parts.TASKS,
            parts.highest("task.gpu_error", "Xid"),
            parts.highest("usage.gpu.memory_mb.max", "Peak MB (≥)"),
            parts.LATEST_TASK,
            terms=(
                parts.FAMILIES,
                TermsBuckets(
                    field="task.outcome",
                    label="Outcome",
                    size=10,
                    order_by=model.BY_COUNT,
                    has_missing_bucket=True,
                ),
            ),
            condition="task.gpu_error: * or usage.gpu.out_of_memory: true",
            is_short=True,
            height=8,
        ),
    ),
)

NEURON: Final = Dashboard(
    key="task-neuron",
    title="Neuron",
    description="NeuronCore utilization of runs, and of one run over time.",
    controls=(*parts.PLACE_CONTROLS, parts.FAMILY_CONTROL, parts.TASK_CONTROL),
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
            bands=colours.DEVICE_USE_BANDS,
        ),
        _accelerator_table(
            "neuron-families",
            "Neuron by family",
            "Runs that used NeuronCores.",
            "usage.neuron.cores: *",
            parts.highest("usage.neuron.cores", "Cores"),
            parts.average("usage.neuron.percent.avg", "Neuron %"),
            parts.highest("usage.neuron.percent.max", "Highest %"),
            parts.highest("usage.neuron.memory_mb.max", "Peak MB"),
        ),
    ),
)
