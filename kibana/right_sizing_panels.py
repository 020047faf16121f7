"""The dashboard of sizes: unused capacity, its cost, and the recommended sizes."""

from dataclasses import replace
from typing import Final

from kibana.conditions import AllOf, Compared, Exists, Is, Not
from kibana.dashboard_model import SIZE_COLOUR, USED_COLOUR, Dashboard, Metric, Terms
from kibana.panel_builders import (
    COST,
    COST_KNOWN,
    COST_TOTAL,
    DEFAULT_RANGE,
    FAMILIES,
    FAMILY_CONTROL,
    FAMILY_ROWS,
    LATEST_TASK,
    PLACE_CONTROLS,
    TASKS,
    WASTE,
    WASTE_TOTAL,
    bars,
    highest,
    latest,
    number,
    ranking,
    table,
)

_SAVING: Final = "recommendation.saving_percent"
_HAS_WASTE: Final = Compared("cost.waste_usd", ">", 0)
_IS_TOO_SMALL: Final = Compared(_SAVING, "<", 0)
# A Fargate task is paid once: the reports of its other containers have no cost.
_COST_UNKNOWN: Final = AllOf((Not(COST_KNOWN), Not(Is("task.launch_type", "FARGATE"))))
_WASTED: Final = replace(WASTE, label="Waste (USD)", colour=USED_COLOUR)
# One order for all rows: the family with the most waste first.
_LARGEST_WASTE: Final = replace(FAMILIES, order_by=WASTE, is_by_count=False)
_FAMILY_ROWS: Final = tuple(replace(terms, order_by=WASTE, is_by_count=False) for terms in FAMILY_ROWS)


def _newest_advice(*before: Metric) -> tuple[Metric, ...]:
    """The sizes, the advice and the saving of one run: the newest."""
    return (
        *before,
        LATEST_TASK,
        latest("usage.cpu.size", "vCPU"),
        latest("recommendation.vcpu", "Advised CPU"),
        latest("usage.memory.size_mb", "Memory MB"),
        latest("recommendation.memory_mb", "Advised MB"),
        latest("usage.memory.percent.max", "Peak %"),
        latest(_SAVING, "Saving %"),
    )


RIGHT_SIZING: Final = Dashboard(
    key="right-sizing",
    title="Right-sizing",
    description="Unused capacity of tasks, its cost, the recommended size, and families that are too small.",
    controls=(*PLACE_CONTROLS, FAMILY_CONTROL),
    time_range=DEFAULT_RANGE,
    panels=(
        replace(COST_TOTAL, key="sizing-cost", width=16),
        replace(WASTE_TOTAL, key="sizing-waste", width=16),
        number(
            "sizing-too-small",
            "Tasks that are too small",
            "Tasks for which a larger size is recommended.",
            replace(TASKS, label="Too small"),
            width=16,
            condition=_IS_TOO_SMALL,
        ),
        ranking(
            "waste-by-family",
            "Waste by family (USD)",
            "The amount that the recommended size would have saved. Families without waste are left out.",
            _WASTED,
            terms=(_LARGEST_WASTE,),
            condition=_HAS_WASTE,
        ),
        bars(
            "waste-over-time",
            "Waste over time (USD)",
            "The amount that the recommended size would have saved, by end time of the runs.",
            _WASTED,
            condition=_HAS_WASTE,
        ),
        ranking(
            "memory-peak-against-size",
            "Memory peak against size (MB)",
            "The highest memory peak and the largest memory size of all runs of a family.",
            highest("usage.memory.used_mb.max", "Peak (MB)", USED_COLOUR),
            highest("usage.memory.size_mb", "Size (MB)", SIZE_COLOUR),
            terms=(_LARGEST_WASTE,),
            axis="Memory (MB)",
            width=48,
            height=20,
        ),
        table(
            "too-small-table",
            "Too small",
            "Families of which some runs need a larger size, by account and Region. The columns after the number of "
            "tasks are of the newest such run.",
            *_newest_advice(TASKS)[:-1],
            terms=FAMILY_ROWS,
            condition=_IS_TOO_SMALL,
            height=12,
        ),
        table(
            "right-size-table",
            "Recommended size by family",
            "Size, recommendation and saving of the newest run that could be smaller, by account and Region. The 25 "
            "families that wasted the most in all such runs. Families without a known cost are below.",
            *_newest_advice(replace(WASTE, label="Total waste")),
            terms=_FAMILY_ROWS,
            condition=AllOf((_HAS_WASTE, Exists("recommendation.vcpu"))),
        ),
        table(
            "cost-table",
            "Cost by family",
            "Fargate list price of the runs that have one.",
            replace(COST, label="Cost (USD)"),
            TASKS,
            LATEST_TASK,
            terms=_FAMILY_ROWS,
            condition=COST_KNOWN,
            height=12,
        ),
        table(
            "no-cost-table",
            "Families without a known cost",
            "Runs on EC2 instances and GPUs have no list price. The sizes are of the newest run.",
            *_newest_advice(TASKS, highest("usage.gpu.count", "GPUs"))[:-1],
            terms=(
                FAMILIES,
                Terms(field="task.launch_type", label="Runs on", size=5, is_by_count=True, has_missing_bucket=True),
            ),
            condition=_COST_UNKNOWN,
            height=12,
        ),
    ),
)
