"""The dashboards of all runs: the overview, and the sizes with their unused capacity and its
cost.
"""

from typing import Final

from msgspec.structs import replace

from kibana import colours
from kibana import dashboard_model as model
from kibana import panel_builders as parts
from kibana.cost_drawings import COST_BY_DAY, RESIZES, SAVINGS, TOO_SMALL
from kibana.dashboard_model import (
    ColouredCase,
    Dashboard,
    Panel,
    PanelMetric,
    PanelStack,
    TermsBuckets,
)
from kibana.money_tiles import SAVING_TILE, cost_tile
from kibana.night_drawings import DURATIONS, NIGHTS
from kibana.run_panels import NEWEST_RUNS
from kibana.usage_drawings import USAGES

_NOTICES_HEIGHT = 11

_TILES: Final = PanelStack(
    panels=(
        parts.number("task-count", "Tasks", "Tasks that ended.", parts.TASKS, width=10, height=5),
        parts.number(
            "failure-rate",
            "Failure rate",
            "Failed tasks, in percent of all tasks that ended. A stopped task did not fail.",
            replace(parts.TASKS, label="of all tasks failed", share_of=parts.FAILED),
            width=10,
            height=6,
            bands=colours.FAILURE_RATE_BANDS,
        ),
        parts.number(
            "out-of-memory-count",
            "Killed: out of memory",
            "Tasks that ran out of memory, as ECS or the monitor reports.",
            replace(parts.TASKS, label="Out of memory"),
            width=10,
            height=6,
            condition=parts.OUT_OF_MEMORY,
            bands=colours.NO_FAILURE_BANDS,
        ),
        cost_tile("cost-total", height=5),
    )
)


_NOTICES: Final = PanelMetric(operation="count", field=model.TIME_FIELD, label="Notifications")


def _notice_bars(
    key: str, title: str, description: str, dataset: str, by_kind: dict[str, str]
) -> Panel:
    """Bars of the kinds of a dataset, in their colours.

    Kinds that only a newer version writes are the last case.
    """
    is_kind = {kind: f'notice.kind: "{kind}"' for kind in by_kind}
    others = " and ".join(f"not {condition}" for condition in is_kind.values())
    cases = (
        *(
            ColouredCase(label=kind.capitalize(), condition=is_kind[kind], colour=colour)
            for kind, colour in by_kind.items()
        ),
        ColouredCase(label="Other", condition=others, colour=colours.SIZE),
    )
    return parts.bars(
        key,
        title,
        description,
        _NOTICES,
        cases=cases,
        index="notices",
        condition=f'event.dataset: "{dataset}"',
        height=_NOTICES_HEIGHT,
    )


_NOTICE_PANELS: Final = (
    _notice_bars(
        "missed-runs",
        "Missed and late runs",
        (
            "Schedules that started no task, or a late one; runs that overlap, or take longer "
            "than usual."
        ),
        "schedule.notice",
        {
            "missed": colours.FAILURE,
            "late": colours.UNKNOWN,
            "overlapped": "#7b4fa3",
            "slow": colours.USED,
        },
    ),
    _notice_bars(
        "running-notices",
        "Notifications while running",
        (
            "What the monitor detected before the task ended: no progress, too long, memory or "
            "disk almost full."
        ),
        "task.notice",
        {
            "stuck": colours.FAILURE,
            "overdue": colours.UNKNOWN,
            "memory": colours.OUT_OF_MEMORY,
            "disk": "#8e6c3a",
        },
    ),
    parts.table(
        "latest-notices",
        "Notifications: the latest by family and kind",
        "The number of notifications, and the latest of each kind.",
        replace(_NOTICES, label="Count"),  # a longer heading is cut
        parts.latest("notice.message", "Latest notification"),
        parts.LATEST_TASK,
        parts.latest(model.TIME_FIELD, "Time"),
        terms=(
            TermsBuckets(
                field="task.family",
                label="Family",
                size=20,
                order_by=model.BY_COUNT,
                has_missing_bucket=True,
            ),
            TermsBuckets(field="notice.kind", label="Kind", size=10, order_by=model.BY_COUNT),
        ),
        index="notices",
        height=_NOTICES_HEIGHT,
    ),
)

OVERVIEW: Final = Dashboard(
    key="task-overview",
    title="Task overview",
    description="Number of tasks, failures, notifications, durations, resource usage and cost.",
    controls=(*parts.PLACE_CONTROLS, parts.FAMILY_CONTROL, parts.OUTCOME_CONTROL),
    panels=(
        NIGHTS,
        _TILES,
        parts.bars(
            "task-count-by-outcome",
            "Task Count by outcome",
            (
                "Tasks by end time. Stopped: a user, a Spot interruption, a service or AWS ended "
                "the task."
            ),
            parts.TASKS,
            cases=parts.OUTCOMES,
        ),
        DURATIONS,
        *USAGES,
        parts.table(
            "failures",
            "Failures and reasons",
            (
                "Tasks that did not succeed, and the newest of them: its cause and the "
                "reason that ECS gives."
            ),
            parts.TASKS,
            parts.latest("task.outcome", "Cause"),
            parts.latest("task.stopped_reason", "Reason"),
            parts.latest("task.exit_code", "Exit code"),
            parts.LATEST_TASK,
            parts.latest("links.run", "Charts"),
            parts.latest(model.TIME_FIELD, "Latest end"),
            terms=(
                TermsBuckets(field="task.family", label="Family", size=50, order_by=model.BY_COUNT),
                TermsBuckets(field="task.status", label="Outcome", size=5, order_by=model.BY_COUNT),
            ),
            condition=parts.NOT_SUCCESSFUL,
            height=15,
        ),
        NEWEST_RUNS,
        *_NOTICE_PANELS,
        parts.ranking(
            "time-by-family",
            "Where the time went by family (%)",
            "Mean parts of the duration, for the 25 families with the most runs. A part is the "
            "mean of the runs in which it is known.",
            *parts.TIME_PARTS,
            condition=f"{parts.TIME_PARTS[0].field}: *",
            is_stacked=True,
            axis="% of the duration",
            width=48,
            height=20,
        ),
        parts.table(
            "families",
            "Families",
            f"The 25 families with the most reports, by account and Region. {model.MIXED_MEMORY}",
            parts.TASKS,
            parts.average(parts.DURATION, "Mean duration"),
            parts.highest(parts.DURATION, "Longest"),
            parts.highest("usage.memory.percent.max", "Memory peak %"),
            parts.LATEST_TASK,
            terms=parts.FAMILY_ROWS,
        ),
    ),
)


_WAS_TOO_SMALL: Final = "recommendation.saving_percent < 0"
# A Fargate task is paid once: the reports of its other containers have no cost.
_COST_UNKNOWN: Final = f'not {parts.COST_KNOWN} and not task.launch_type: "FARGATE"'
RIGHT_SIZING: Final = Dashboard(
    key="right-sizing",
    title="Right-sizing",
    description=(
        "Unused capacity of tasks, its cost, the recommended size, and families that are too small."
    ),
    controls=(*parts.PLACE_CONTROLS, parts.FAMILY_CONTROL, parts.QUEUE_CONTROL),
    panels=(
        SAVINGS,
        PanelStack(
            panels=(
                cost_tile("sizing-cost", height=7),
                SAVING_TILE,
                parts.number(
                    "sizing-too-small",
                    "Tasks that were too small",
                    "Tasks for which a larger size is recommended. Families that still have too "
                    "little are below.",
                    replace(parts.TASKS, label="Too small"),
                    width=10,
                    height=7,
                    condition=_WAS_TOO_SMALL,
                ),
            )
        ),
        RESIZES,
        COST_BY_DAY,
        TOO_SMALL,
        parts.table(
            "no-cost-table",
            "Families without a known cost",
            "Runs on EC2 instances and GPUs have no list price. The sizes are of the newest run.",
            parts.TASKS,
            parts.highest("usage.gpu.count", "GPUs"),
            parts.LATEST_TASK,
            parts.latest("usage.cpu.size", "vCPU"),
            parts.latest("recommendation.vcpu", "→ vCPU"),
            parts.latest("usage.memory.size_mb", "MB"),
            parts.latest("recommendation.memory_mb", "→ MB"),
            parts.latest("usage.memory.percent.max", "Peak %"),
            terms=(
                parts.FAMILIES,
                TermsBuckets(
                    field="task.launch_type",
                    label="Runs on",
                    size=5,
                    order_by=model.BY_COUNT,
                    has_missing_bucket=True,
                ),
            ),
            condition=_COST_UNKNOWN,
            is_short=True,
            height=7,
        ),
    ),
)
