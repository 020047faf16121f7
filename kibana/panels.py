"""The dashboards, once: what each panel shows of which documents.

``classic.py`` and ``lens.py`` write them down for each product, ``aggregations.py`` says what they search for.
"""

from typing import Final

from kibana.model import PERCENT_BANDS, TIME_FIELD, Choice, Dashboard, Metric, Panel, Rows, Unless

_TASKS = Metric(operation="count_distinct", field="task.id", label="Tasks")
_FAMILIES = Rows(field="task.family", label="Family")
_WORST_FAMILIES = Rows(field="task.family", label="Family", by_metric=0)
_DURATION = "usage.duration_ms"
_CLUSTER_CHOICE = Choice(field="orchestrator.cluster.name", label="Cluster")
_FAMILY_CHOICE = Choice(field="task.family", label="Family")
_OUTCOME_CHOICE = Choice(field="event.outcome", label="Outcome")
_MEAN_OF_MEANS = (
    "Each cell is the plain mean of the averages of the tasks that ended in it; a wide cell hides short tasks."
)


def _duration(percent: int, label: str = "Duration") -> Metric:
    return Metric(operation="percentile", field=_DURATION, percent=percent, label=label)


def _latest(field: str, label: str) -> Metric:
    return Metric(operation="latest", field=field, label=label)


_OVERVIEW = Dashboard(
    key="task-overview",
    title="Task overview",
    description="How many tasks ran, how long, what they used of what was given to them, and what went wrong.",
    choices=(_CLUSTER_CHOICE, _FAMILY_CHOICE, _OUTCOME_CHOICE),
    period="now-7d",
    panels=(
        Panel(
            key="task-count-by-family",
            title="Task Count by family",
            description="Tasks by the time of their end.",
            index="reports",
            kind="bars",
            metrics=(_TASKS,),
            rows=(_WORST_FAMILIES,),
            over_time=True,
        ),
        Panel(
            key="task-count-by-outcome",
            title="Task Count by outcome",
            description="By the time of their end. Unknown: somebody stopped them, or AWS took the capacity back.",
            index="reports",
            kind="bars",
            metrics=(_TASKS,),
            rows=(Rows(field="event.outcome", label="Outcome", size=5, with_missing=True),),
            over_time=True,
        ),
        Panel(
            key="task-duration-median",
            title="Task Duration by family: median",
            description="Half of the tasks took no longer than this.",
            index="reports",
            kind="line",
            metrics=(_duration(50, "Median"),),
            rows=(_FAMILIES,),
            over_time=True,
        ),
        Panel(
            key="task-duration-p95",
            title="Task Duration by family: 95th percentile",
            description="One task in twenty took longer than this.",
            index="reports",
            kind="line",
            metrics=(_duration(95, "95th percentile"),),
            rows=(_FAMILIES,),
            over_time=True,
        ),
        Panel(
            key="task-usage-cpu",
            title="Task Resource Usage Average: CPU %",
            description=f"Mean CPU use in percent of the task's size. {_MEAN_OF_MEANS}",
            index="reports",
            kind="heatmap",
            metrics=(Metric(operation="average", field="usage.cpu.percent.avg", label="CPU %"),),
            rows=(Rows(field="task.family", label="Family", size=50),),
            over_time=True,
            bands=PERCENT_BANDS,
        ),
        Panel(
            key="task-usage-memory",
            title="Task Resource Usage Average: memory %",
            description=f"Mean memory use in percent of the task's size. {_MEAN_OF_MEANS}",
            index="reports",
            kind="heatmap",
            metrics=(Metric(operation="average", field="usage.memory.percent.avg", label="Memory %"),),
            rows=(Rows(field="task.family", label="Family", size=50),),
            over_time=True,
            bands=PERCENT_BANDS,
        ),
        Panel(
            key="task-duration-table",
            title="Task Duration by family",
            description="The families with the most tasks first.",
            index="reports",
            kind="table",
            metrics=(
                _TASKS,
                _duration(50, "Median"),
                _duration(95, "95th percentile"),
                Metric(operation="max", field=_DURATION, label="Longest"),
            ),
            rows=(Rows(field="task.family", label="Family", size=100, by_metric=0),),
        ),
        Panel(
            key="cost-by-family",
            title="Cost by family (USD)",
            description="Fargate's list price of the tasks that ended then.",
            index="reports",
            kind="bars",
            metrics=(Metric(operation="sum", field="cost.usd", label="USD"),),
            rows=(_WORST_FAMILIES,),
            over_time=True,
        ),
        Panel(
            key="failures",
            title="Failures and why",
            description="All that did not succeed: families, what stopped them, and ECS's own words.",
            index="reports",
            kind="table",
            metrics=(
                _TASKS,
                _latest("task.exit_code", "Latest exit code"),
                _latest("task.id", "Latest task"),
                _latest(TIME_FIELD, "Latest"),
            ),
            rows=(
                Rows(field="task.family", label="Family", size=50, by_metric=0),
                Rows(field="task.stop_category", label="Why", size=10, by_metric=0, with_missing=True),
                Rows(field="task.stopped_reason", label="Reason", size=10, by_metric=0, with_missing=True),
            ),
            unless=(Unless(field="event.outcome", value="success"),),
            width=48,
        ),
    ),
)

_TASK_RUN = Dashboard(
    key="task-run",
    title="Task run",
    description="One task, checkpoint by checkpoint. Choose it by task.id; a Slack notice leads here with it chosen.",
    choices=(_FAMILY_CHOICE, Choice(field="task.id", label="Task")),
    period=None,
    panels=(
        Panel(
            key="run-summary",
            title="Run",
            description="What the run came to.",
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
            rows=(
                Rows(field="task.id", label="Task", size=20),
                Rows(field="container.name", label="Container", size=10, with_missing=True),
            ),
            width=48,
            height=9,
        ),
        Panel(
            key="run-cpu",
            title="CPU %",
            description="Mean of each interval between checkpoints, in percent of the task's size.",
            index="checkpoints",
            kind="line",
            metrics=(Metric(operation="average", field="interval.cpu_percent", label="CPU %"),),
            rows=(Rows(field="container.name", label="Container", size=10),),
            over_time=True,
        ),
        Panel(
            key="run-memory",
            title="Memory against size (MB)",
            description="Largest of each interval between checkpoints, and the size it may grow to.",
            index="checkpoints",
            kind="line",
            metrics=(
                Metric(operation="max", field="interval.memory_mb", label="Used (MB)"),
                Metric(operation="max", field="usage.memory.size_mb", label="Size (MB)"),
            ),
            over_time=True,
        ),
        Panel(
            key="run-containers",
            title="Containers",
            description="All checkpoints of each container together.",
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
            rows=(
                Rows(field="task.id", label="Task", size=20),
                Rows(field="container.name", label="Container", size=10),
            ),
            width=48,
            height=9,
        ),
        Panel(
            key="run-gpu",
            title="GPU %",
            description="Of the run so far, all GPUs together: mean of the averages, largest maximum.",
            index="checkpoints",
            kind="line",
            metrics=(
                Metric(operation="average", field="usage.gpu.percent.avg", label="Average %"),
                Metric(operation="max", field="usage.gpu.percent.max", label="Highest %"),
            ),
            over_time=True,
            width=16,
        ),
        Panel(
            key="run-gpu-memory",
            title="GPU memory (MB)",
            description="Of the run so far, the fullest GPU.",
            index="checkpoints",
            kind="line",
            metrics=(Metric(operation="max", field="usage.gpu.memory_mb.max", label="Used (MB)"),),
            over_time=True,
            width=16,
        ),
        Panel(
            key="run-neuron",
            title="Neuron %",
            description="Of the run so far, all NeuronCores together: mean of the averages, largest maximum.",
            index="checkpoints",
            kind="line",
            metrics=(
                Metric(operation="average", field="usage.neuron.percent.avg", label="Average %"),
                Metric(operation="max", field="usage.neuron.percent.max", label="Highest %"),
            ),
            over_time=True,
            width=16,
        ),
    ),
)

_WASTE = Metric(operation="sum", field="cost.waste_usd", label="Waste (USD)")

_RIGHT_SIZING = Dashboard(
    key="right-sizing",
    title="Right-sizing",
    description="What was given to tasks and not used, what that cost, and the size that would do.",
    choices=(_CLUSTER_CHOICE, _FAMILY_CHOICE),
    period="now-30d",
    panels=(
        Panel(
            key="memory-peak-against-size",
            title="Memory peak against size (MB)",
            description="The highest peak of all runs of a family, and the largest size it was given.",
            index="reports",
            kind="ranking",
            metrics=(
                Metric(operation="max", field="usage.memory.used_mb.max", label="Peak (MB)"),
                Metric(operation="max", field="usage.memory.size_mb", label="Size (MB)"),
            ),
            rows=(_FAMILIES,),
        ),
        Panel(
            key="waste-by-family",
            title="Waste by family (USD)",
            description="What the recommended size would have saved of these runs.",
            index="reports",
            kind="ranking",
            metrics=(_WASTE,),
            rows=(_WORST_FAMILIES,),
        ),
        Panel(
            key="waste-over-time",
            title="Waste over time (USD)",
            description="What the recommended size would have saved of the runs that ended then.",
            index="reports",
            kind="bars",
            metrics=(_WASTE,),
            rows=(_WORST_FAMILIES,),
            over_time=True,
        ),
        Panel(
            key="saving-by-family",
            title="Possible saving by family (%)",
            description="Mean saving of the recommended size, in percent of the run's cost.",
            index="reports",
            kind="ranking",
            metrics=(Metric(operation="average", field="recommendation.saving_percent", label="Saving %"),),
            rows=(_WORST_FAMILIES,),
        ),
        Panel(
            key="right-size-table",
            title="The right size by family",
            description="The largest recommendation of all runs: the size that would have done for each of them.",
            index="reports",
            kind="table",
            metrics=(
                _WASTE,
                _TASKS,
                Metric(operation="average", field="recommendation.saving_percent", label="Saving %"),
                Metric(operation="max", field="usage.cpu.size", label="vCPU"),
                Metric(operation="max", field="recommendation.vcpu", label="vCPU that would do"),
                Metric(operation="max", field="usage.cpu.percent.max", label="CPU peak %"),
                Metric(operation="max", field="usage.memory.size_mb", label="Memory (MB)"),
                Metric(operation="max", field="recommendation.memory_mb", label="Memory that would do (MB)"),
                Metric(operation="max", field="usage.memory.used_mb.max", label="Memory peak (MB)"),
            ),
            rows=(Rows(field="task.family", label="Family", size=100, by_metric=0),),
            width=48,
        ),
    ),
)

DASHBOARDS: Final = (_OVERVIEW, _TASK_RUN, _RIGHT_SIZING)
PANELS: Final = tuple(panel for dashboard in DASHBOARDS for panel in dashboard.panels)
