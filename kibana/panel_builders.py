"""Parts that the panels of several dashboards share: metrics, buckets, controls and the outcomes of a run."""

from typing import Final, TypedDict, Unpack

from kibana import dashboard_model as model
from kibana.dashboard_model import (
    AllOf,
    AnyOf,
    Band,
    Case,
    Condition,
    Control,
    Exists,
    Index,
    Is,
    Kind,
    Metric,
    Not,
    Panel,
    Terms,
)

DEFAULT_RANGE: Final = "now-7d"
"""One range for all dashboards: a link from one to the next keeps it."""
HEATMAP_ROWS: Final = 25

TASKS: Final = Metric(operation="count_distinct", field="task.id", label="Tasks")
COST_KNOWN: Final = Exists("cost.usd")  # the sum of unknown amounts would be $0.00
COST: Final = Metric(operation="sum", field="cost.usd", label="USD")
WASTE: Final = Metric(operation="sum", field="cost.waste_usd", label="USD")
DURATION: Final = "usage.duration_ms"
FAMILIES: Final = Terms(field="task.family", label="Family", size=25, is_by_count=True)
LARGEST_FAMILIES: Final = Terms(field="task.family", label="Family", size=10, is_by_count=True, has_other_bucket=True)
NEWEST: Final = Metric(operation="max", field=model.TIME_FIELD, label="Newest")
TASK_ROWS: Final = Terms(field="task.id", label="Task", size=20, order_by=NEWEST)
CONTAINER_ROWS: Final = Terms(field="container.name", label="Container", size=10, has_missing_bucket=True)

# Families of the same name in several accounts or Regions are different families.
FAMILY_ROWS: Final = (
    FAMILIES,
    Terms(field="cloud.account.id", label="Account", size=10, is_by_count=True, has_missing_bucket=True),
    Terms(field="cloud.region", label="Region", size=10, is_by_count=True, has_missing_bucket=True),
)

FAMILY_CONTROL: Final = Control(field="task.family", label="Family")
OUTCOME_CONTROLS: Final = (
    Control(field="task.status", label="Outcome"),
    Control(field="task.out_of_memory", label="Out of memory"),
)
TASK_CONTROL: Final = Control(field="task.id", label="Task")
PLACE_CONTROLS: Final = (
    Control(field="cloud.account.id", label="Account"),
    Control(field="cloud.region", label="Region"),
    Control(field="orchestrator.cluster.name", label="Cluster"),
)

_SUCCESS, _FAILURE = Is("event.outcome", "success"), Is("event.outcome", "failure")
_STOPPED = Is("task.status", "stopped")
FAILED: Final = _FAILURE
NOT_SUCCESSFUL: Final = Not(_SUCCESS)
OUT_OF_MEMORY: Final = AnyOf(
    (Is("task.stop_category", "oom"), Is("task.out_of_memory", value=True), Is("task.likely_out_of_memory", value=True))
)
OUTCOMES: Final = (
    Case(label="Success", condition=_SUCCESS, colour=model.SUCCESS_COLOUR),
    Case(label="Failure", condition=AllOf((_FAILURE, Not(OUT_OF_MEMORY))), colour=model.FAILURE_COLOUR),
    Case(label="Out of memory", condition=AllOf((_FAILURE, OUT_OF_MEMORY)), colour=model.OUT_OF_MEMORY_COLOUR),
    Case(label="Stopped", condition=AllOf((Not(_SUCCESS), Not(_FAILURE), _STOPPED)), colour=model.STOPPED_COLOUR),
    Case(label="Unknown", condition=AllOf((Not(_SUCCESS), Not(_FAILURE), Not(_STOPPED))), colour=model.UNKNOWN_COLOUR),
)
"""Each run has exactly one of these outcomes."""


def latest(field: str, label: str) -> Metric:
    """The value of the latest document that has the field."""
    return Metric(operation="latest", field=field, label=label)


def highest(field: str, label: str, colour: str | None = None) -> Metric:
    """The maximum."""
    return Metric(operation="max", field=field, label=label, colour=colour)


def average(field: str, label: str, colour: str | None = None) -> Metric:
    """The unweighted mean."""
    return Metric(operation="average", field=field, label=label, colour=colour)


class Options(TypedDict, total=False):
    """What a panel may have in addition to its kind, texts and metrics: see ``Panel``."""

    index: Index
    terms: tuple[Terms, ...]
    cases: tuple[Case, ...]
    has_time_axis: bool
    time_field: str
    condition: Condition | None
    bands: tuple[Band, ...]
    is_logarithmic: bool
    is_stacked: bool
    limit: int | None
    axis: str
    width: int
    height: int


def panel(kind: Kind, key: str, title: str, description: str, *metrics: Metric, **options: Unpack[Options]) -> Panel:
    """A panel of this kind."""
    return Panel(kind=kind, key=key, title=title, description=description, metrics=metrics, **options)


def number(key: str, title: str, description: str, metric: Metric, **options: Unpack[Options]) -> Panel:
    """One large number over the reports."""
    options["height"] = 7
    return panel("number", key, title, description, metric, **options)


def bars(key: str, title: str, description: str, metric: Metric, **options: Unpack[Options]) -> Panel:
    """Stacked bars over the end times of runs, or over the times of notices."""
    options.setdefault("terms", (LARGEST_FAMILIES,))
    options["has_time_axis"] = True
    return panel("bars", key, title, description, metric, **options)


def ranking(key: str, title: str, description: str, *metrics: Metric, **options: Unpack[Options]) -> Panel:
    """Horizontal bars of families. Without a condition, families that have no value are left out."""
    options.setdefault("terms", (FAMILIES,))
    options.setdefault("condition", Exists(metrics[0].field))
    return panel("ranking", key, title, description, *metrics, **options)


def heatmap(key: str, title: str, description: str, metric: Metric, **options: Unpack[Options]) -> Panel:
    """Families over the end times of their runs, in the full width.

    Without another condition, runs without a measurement are left out: they would be the lowest values.
    """
    options.setdefault("condition", Exists(metric.field))
    options.setdefault("bands", model.PERCENT_BANDS)
    options |= {"terms": (FAMILIES,), "has_time_axis": True, "width": 48}
    return panel("heatmap", key, title, description, metric, **options)


def table(key: str, title: str, description: str, *metrics: Metric, **options: Unpack[Options]) -> Panel:
    """A table in the full width."""
    options.setdefault("height", 20)
    options["width"] = 48
    return panel("table", key, title, description, *metrics, **options)


def _part_of_the_time(part: str, label: str, colour: str) -> Metric:
    return average(f"usage.time.{part}.percent", label, colour)


COST_TOTAL: Final = number(
    "cost-total",
    "Cost (USD)",
    "Fargate list price of the tasks that have one.",
    COST,
    width=10,
    condition=COST_KNOWN,
)
WASTE_TOTAL: Final = number(
    "waste-total",
    "Could be saved (USD)",
    "The amount that the recommended sizes would have saved.",
    WASTE,
    width=10,
    condition=Exists("cost.waste_usd"),
)
LATEST_TASK: Final = latest("task.id", "Latest task")
LATEST_CHARTS: Final = latest("links.run", "Charts")
TIME_PARTS: Final = (
    _part_of_the_time("on_cpu", "On CPU", model.HIGH_COLOUR),
    _part_of_the_time("waiting_for_cpu", "CPU wait", "#9fc9e2"),
    _part_of_the_time("disk", "Disk", "#8e6c3a"),
    _part_of_the_time("network", "Network", "#7b4fa3"),
    _part_of_the_time("sleep", "Sleep", "#c5b4e3"),
    _part_of_the_time("lock", "Lock", "#d4679b"),
    _part_of_the_time("pipe", "Pipe", "#2a9d9d"),
    _part_of_the_time("child", "Child", "#a8d5d5"),
    _part_of_the_time("other", "Other", model.SIZE_COLOUR),
)
"""The parts of the wall time in percent. A run's parts add up to 100."""
