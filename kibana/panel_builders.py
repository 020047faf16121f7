"""Parts that the panels of several dashboards share: metrics, buckets, controls and the outcomes
of a run.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kibana import colours
from kibana import dashboard_model as model
from kibana.dashboard_model import ColouredCase, Control, Kind, Panel, PanelMetric, TermsBuckets

TASKS: Final = PanelMetric(operation="count_distinct", field="task.id", label="Tasks")
COST_KNOWN: Final = "cost.usd: *"  # the sum of unknown amounts would be $0.00
DURATION: Final = "usage.duration_ms"
FAMILIES: Final = TermsBuckets(
    field="task.family", label="Family", size=25, order_by=model.BY_COUNT
)

# Families of the same name in several accounts or Regions are different families.
FAMILY_ROWS: Final = (
    FAMILIES,
    TermsBuckets(
        field="cloud.account.id",
        label="Account",
        size=10,
        order_by=model.BY_COUNT,
        has_missing_bucket=True,
    ),
    TermsBuckets(
        field="cloud.region",
        label="Region",
        size=10,
        order_by=model.BY_COUNT,
        has_missing_bucket=True,
    ),
)

FAMILY_CONTROL: Final = Control(field="task.family", label="Family")
OUTCOME_CONTROL: Final = Control(field="task.outcome", label="Outcome")
QUEUE_CONTROL: Final = Control(field="batch.queue", label="Job queue", is_optional=True)
TASK_CONTROL: Final = Control(field="task.id", label="Task")
PLACE_CONTROLS: Final = (
    Control(field="cloud.account.id", label="Account"),
    Control(field="cloud.region", label="Region", is_optional=True),
    Control(field="orchestrator.cluster.name", label="Cluster"),
)
"""The cluster of a run usually names its Region, too."""

NOT_SUCCESSFUL: Final = 'not event.outcome: "success"'
FAILED: Final = 'event.outcome: "failure"'
_STOPPED = 'task.status: "stopped"'
# A document from before task.event_outcome has the words of then.
OUT_OF_MEMORY: Final = (
    'task.outcome: "oom" or (not task.event_outcome: * and '
    "(task.out_of_memory: true or task.likely_out_of_memory: true))"
)
_NEITHER = f"{NOT_SUCCESSFUL} and not {FAILED} and not ({OUT_OF_MEMORY})"
OUTCOMES: Final = (
    ColouredCase(
        label="Success",
        condition=f'event.outcome: "success" and not ({OUT_OF_MEMORY})',
        colour=colours.SUCCESS,
    ),
    ColouredCase(
        label="Failure", condition=f"{FAILED} and not ({OUT_OF_MEMORY})", colour=colours.FAILURE
    ),
    ColouredCase(label="Out of memory", condition=OUT_OF_MEMORY, colour=colours.OUT_OF_MEMORY),
    ColouredCase(label="Stopped", condition=f"{_NEITHER} and {_STOPPED}", colour=colours.STOPPED),
    ColouredCase(
        label="Unknown", condition=f"{_NEITHER} and not {_STOPPED}", colour=colours.UNKNOWN
    ),
)
"""Each run has exactly one of these outcomes."""


latest = partial(PanelMetric, "latest")  # the value of the latest document that has the field
highest = partial(PanelMetric, "max")
average = partial(PanelMetric, "average")  # unweighted


_DEFAULTS: Final[Mapping[Kind, model.Json]] = {
    "number": {"height": 7},
    "bars": {"has_time_axis": True},
    "ranking": {"terms": (FAMILIES,)},
    "heatmap": {
        "terms": (FAMILIES,),
        "has_time_axis": True,
        "bands": colours.PERCENT_BANDS,
        "width": 48,
    },
    "table": {"height": 20, "width": 48},
}
"""The options of each kind of panel.

Bars and heatmaps are over the end times of runs, or the times of notices.
"""


def panel(
    kind: Kind,
    key: str,
    title: str,
    description: str,
    *metrics: PanelMetric,
    **options: Any,  # noqa: ANN401  fields
) -> Panel:
    """A panel with other fields.

    By default, a ranking and a heatmap leave out what lacks the first value.
    """
    if kind in {"ranking", "heatmap"}:
        options.setdefault("condition", f"{metrics[0].field}: *")
    options = _DEFAULTS.get(kind, {}) | options
    return Panel(
        kind=kind, key=key, title=title, description=description, metrics=metrics, **options
    )


number = partial(panel, "number")
bars = partial(panel, "bars")
ranking = partial(panel, "ranking")
heatmap = partial(panel, "heatmap")
table = partial(panel, "table")
line = partial(panel, "line")


LATEST_TASK: Final = latest("task.id", "Latest task")
TIME_PARTS: Final = tuple(
    average(f"usage.time.{part}.percent", label, colour)
    for part, label, colour in (
        ("on_cpu", "On CPU", colours.HIGH),
        ("waiting_for_cpu", "CPU wait", "#9fc9e2"),
        ("disk", "Disk", "#8e6c3a"),
        ("network", "Network", "#7b4fa3"),
        ("sleep", "Sleep", "#c5b4e3"),
        ("lock", "Lock", "#d4679b"),
        ("pipe", "Pipe", "#2a9d9d"),
        ("child", "Child", "#a8d5d5"),
        ("other", "Other", colours.SIZE),
    )
)
"""The parts of the wall time in percent. A run's parts add up to 100."""
