"""The definitions of all dashboards and panels.

``classic.py`` and ``lens.py`` generate each product's files from them. ``aggregations.py`` compiles their searches.
"""

from typing import Final

from kibana.model import PERCENT_BANDS, TIME_FIELD, Control, Dashboard, Exclusion, Metric, Panel, Terms

_TASKS = Metric(operation="count_distinct", field="task.id", label="Tasks")
_FAMILIES = Terms(field="task.family", label="Family")
_TOP_FAMILIES = Terms(field="task.family", label="Family", order_by_metric=0)
_DURATION = "usage.duration_ms"
_CLUSTER_CONTROL = Control(field="orchestrator.cluster.name", label="Cluster")
_FAMILY_CONTROL = Control(field="task.family", label="Family")
_OUTCOME_CONTROL = Control(field="event.outcome", label="Outcome")
_MEAN_OF_MEANS = (
    "Each cell is the unweighted mean of the averages of the tasks that ended in it. A wide cell hides short tasks."
)


def _duration(percent: int, label: str = "Duration") -> Metric:
    return Metric(operation="percentile", field=_DURATION, percent=percent, label=label)


def _latest(field: str, label: str) -> Metric:
    return Metric(operation="latest", field=field, label=label)


_OVERVIEW = Dashboard(
    key="task-overview",
    title="Task overview",
    description="Number of tasks, durations, resource usage, cost and failures.",
    controls=(_CLUSTER_CONTROL, _FAMILY_CONTROL, _OUTCOME_CONTROL),
    time_range="now-7d",
    panels=(
        Panel(
            key="task-count-by-family",
            title="Task Count by family",
            description="Tasks by end time.",
            index="reports",
            kind="bars",
            metrics=(_TASKS,),
            terms=(_TOP_FAMILIES,),
            has_time_axis=True,
        ),
        Panel(
            key="task-count-by-outcome",
            title="Task Count by outcome",
            description="Tasks by end time. Unknown: a user stopped the task, or AWS reclaimed the capacity.",
            index="reports",
            kind="bars",
            metrics=(_TASKS,),
            terms=(Terms(field="event.outcome", label="Outcome", size=5, has_missing_bucket=True),),
            has_time_axis=True,
        ),
        Panel(
            key="task-duration-median",
            title="Task Duration by family: median",
            description="Half of the tasks took at most this long.",
            index="reports",
            kind="line",
            metrics=(_duration(50, "Median"),),
            terms=(_FAMILIES,),
            has_time_axis=True,
        ),
        Panel(
            key="task-duration-p95",
            title="Task Duration by family: 95th percentile",
            description="One task in twenty took longer than this.",
            index="reports",
            kind="line",
            metrics=(_duration(95, "95th percentile"),),
            terms=(_FAMILIES,),
            has_time_axis=True,
        ),
        Panel(
            key="task-usage-cpu",
            title="Task Resource Usage Average: CPU %",
            description=f"Mean CPU usage in percent of the task size. {_MEAN_OF_MEANS}",
            index="reports",
            kind="heatmap",
            metrics=(Metric(operation="average", field="usage.cpu.percent.avg", label="CPU %"),),
            terms=(Terms(field="task.family", label="Family", size=50),),
            has_time_axis=True,
            bands=PERCENT_BANDS,
        ),
        Panel(
            key="task-usage-memory",
            title="Task Resource Usage Average: memory %",
            description=f"Mean memory usage in percent of the task size. {_MEAN_OF_MEANS}",
            index="reports",
            kind="heatmap",
            metrics=(Metric(operation="average", field="usage.memory.percent.avg", label="Memory %"),),
            terms=(Terms(field="task.family", label="Family", size=50),),
            has_time_axis=True,
            bands=PERCENT_BANDS,
        ),
        Panel(
            key="task-duration-table",
            title="Task Duration by family",
            description="Families with the most tasks first.",
            index="reports",
            kind="table",
            metrics=(
                _TASKS,
                _duration(50, "Median"),
                _duration(95, "95th percentile"),
                Metric(operation="max", field=_DURATION, label="Longest"),
            ),
            terms=(Terms(field="task.family", label="Family", size=100, order_by_metric=0),),
        ),
        Panel(
            key="cost-by-family",
            title="Cost by family (USD)",
            description="Fargate list price of tasks, by end time.",
            index="reports",
            kind="bars",
            metrics=(Metric(operation="sum", field="cost.usd", label="USD"),),
            terms=(_TOP_FAMILIES,),
            has_time_axis=True,
        ),
        Panel(
            key="failures",
            title="Failures and reasons",
            description="Tasks that did not succeed, with their stop category and the reason that ECS gives.",
            index="reports",
            kind="table",
            metrics=(
                _TASKS,
                _latest("task.exit_code", "Latest exit code"),
                _latest("task.id", "Latest task"),
                _latest(TIME_FIELD, "Latest"),
            ),
            terms=(
                Terms(field="task.family", label="Family", size=50, order_by_metric=0),
                Terms(
                    field="task.stop_category", label="Category", size=10, order_by_metric=0, has_missing_bucket=True
                ),
                Terms(field="task.stopped_reason", label="Reason", size=10, order_by_metric=0, has_missing_bucket=True),
            ),
            exclusions=(Exclusion(field="event.outcome", value="success"),),
            width=48,
        ),
    ),
)

_TASK_RUN = Dashboard(
    key="task-run",
    title="Task run",
    description="One task over time. Select it by task.id; the link in a Slack notice does so.",
    controls=(_FAMILY_CONTROL, Control(field="task.id", label="Task")),
    time_range=None,
    panels=(
        Panel(
            key="run-summary",
            title="Run",
            description="Outcome, duration, memory and cost of the run.",
            index="reports",
            kind="table",
            metrics=(
                _latest("event.outcome", "Outcome"),
                _latest("task.exit_code", "Exit code"),
                _latest("task.stopped_reason", "Reason"),
                Metric(operation="max", field=_DURATION, label="Duration"),
                Metric(operation="max", field="usage.memory.used_mb.max", label="Memory peak (MB)"),
                Metric(operation="max", field="usage.memory.size_mb", label="Memory size (MB)"),
                Metric(operation="sum", field="cost.usd", label="USD"),
            ),
            terms=(
                Terms(field="task.id", label="Task", size=20),
                Terms(field="container.name", label="Container", size=10, has_missing_bucket=True),
            ),
            width=48,
            height=9,
        ),
        Panel(
            key="run-cpu",
            title="CPU %",
            description="Mean CPU usage in each checkpoint interval, in percent of the task size.",
            index="checkpoints",
            kind="line",
            metrics=(Metric(operation="average", field="interval.cpu_percent", label="CPU %"),),
            terms=(Terms(field="container.name", label="Container", size=10),),
            has_time_axis=True,
        ),
        Panel(
            key="run-memory",
            title="Memory against size (MB)",
            description="Maximum memory usage in each checkpoint interval, and the memory size.",
            index="checkpoints",
            kind="line",
            metrics=(
                Metric(operation="max", field="interval.memory_mb", label="Used (MB)"),
                Metric(operation="max", field="usage.memory.size_mb", label="Size (MB)"),
            ),
            has_time_axis=True,
        ),
        Panel(
            key="run-containers",
            title="Containers",
            description="Totals over all checkpoints of each container.",
            index="checkpoints",
            kind="table",
            metrics=(
                Metric(operation="average", field="interval.cpu_percent", label="CPU %"),
                Metric(operation="max", field="interval.memory_mb", label="Memory peak (MB)"),
                Metric(operation="max", field="usage.network.rx_bytes", label="Received"),
                Metric(operation="max", field="usage.network.tx_bytes", label="Sent"),
                Metric(operation="max", field="usage.block.read_bytes", label="Read"),
                Metric(operation="max", field="usage.block.write_bytes", label="Written"),
                _latest("container.image.name", "Image"),
            ),
            terms=(
                Terms(field="task.id", label="Task", size=20),
                Terms(field="container.name", label="Container", size=10),
            ),
            width=48,
            height=9,
        ),
        Panel(
            key="run-gpu",
            title="GPU %",
            description="GPU utilization of the run so far: mean and maximum over all GPUs.",
            index="checkpoints",
            kind="line",
            metrics=(
                Metric(operation="average", field="usage.gpu.percent.avg", label="Average %"),
                Metric(operation="max", field="usage.gpu.percent.max", label="Highest %"),
            ),
            has_time_axis=True,
            width=16,
        ),
        Panel(
            key="run-gpu-memory",
            title="GPU memory (MB)",
            description="Maximum memory usage of a single GPU in the run so far.",
            index="checkpoints",
            kind="line",
            metrics=(Metric(operation="max", field="usage.gpu.memory_mb.max", label="Used (MB)"),),
            has_time_axis=True,
            width=16,
        ),
        Panel(
            key="run-neuron",
            title="Neuron %",
            description="NeuronCore utilization of the run so far: mean and maximum over all NeuronCores.",
            index="checkpoints",
            kind="line",
            metrics=(
                Metric(operation="average", field="usage.neuron.percent.avg", label="Average %"),
                Metric(operation="max", field="usage.neuron.percent.max", label="Highest %"),
            ),
            has_time_axis=True,
            width=16,
        ),
    ),
)

_WASTE = Metric(operation="sum", field="cost.waste_usd", label="Waste (USD)")

_RIGHT_SIZING = Dashboard(
    key="right-sizing",
    title="Right-sizing",
    description="Unused capacity of tasks, its cost, and the recommended size.",
    controls=(_CLUSTER_CONTROL, _FAMILY_CONTROL),
    time_range="now-30d",
    panels=(
        Panel(
            key="memory-peak-against-size",
            title="Memory peak against size (MB)",
            description="The highest memory peak and the largest memory size of all runs of a family.",
            index="reports",
            kind="ranking",
            metrics=(
                Metric(operation="max", field="usage.memory.used_mb.max", label="Peak (MB)"),
                Metric(operation="max", field="usage.memory.size_mb", label="Size (MB)"),
            ),
            terms=(_FAMILIES,),
        ),
        Panel(
            key="waste-by-family",
            title="Waste by family (USD)",
            description="The amount that the recommended size would have saved.",
            index="reports",
            kind="ranking",
            metrics=(_WASTE,),
            terms=(_TOP_FAMILIES,),
        ),
        Panel(
            key="waste-over-time",
            title="Waste over time (USD)",
            description="The amount that the recommended size would have saved, by end time of the runs.",
            index="reports",
            kind="bars",
            metrics=(_WASTE,),
            terms=(_TOP_FAMILIES,),
            has_time_axis=True,
        ),
        Panel(
            key="saving-by-family",
            title="Possible saving by family (%)",
            description="Mean saving with the recommended size, in percent of the cost of a run.",
            index="reports",
            kind="ranking",
            metrics=(Metric(operation="average", field="recommendation.saving_percent", label="Saving %"),),
            terms=(_TOP_FAMILIES,),
        ),
        Panel(
            key="right-size-table",
            title="Recommended size by family",
            description="The largest recommendation over all runs of a family: a size that is enough for each of them.",
            index="reports",
            kind="table",
            metrics=(
                _WASTE,
                _TASKS,
                Metric(operation="average", field="recommendation.saving_percent", label="Saving %"),
                Metric(operation="max", field="usage.cpu.size", label="vCPU"),
                Metric(operation="max", field="recommendation.vcpu", label="Recommended vCPU"),
                Metric(operation="max", field="usage.cpu.percent.max", label="CPU peak %"),
                Metric(operation="max", field="usage.memory.size_mb", label="Memory (MB)"),
                Metric(operation="max", field="recommendation.memory_mb", label="Recommended memory (MB)"),
                Metric(operation="max", field="usage.memory.used_mb.max", label="Memory peak (MB)"),
            ),
            terms=(Terms(field="task.family", label="Family", size=100, order_by_metric=0),),
            width=48,
        ),
    ),
)

DASHBOARDS: Final = (_OVERVIEW, _TASK_RUN, _RIGHT_SIZING)
PANELS: Final = tuple(panel for dashboard in DASHBOARDS for panel in dashboard.panels)
