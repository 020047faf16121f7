"""The dashboard of sizes: unused capacity, its cost, and the recommended sizes."""

from dataclasses import replace
from typing import Final

from kibana.conditions import Above, AllOf, Below, Is, Not
from kibana.dashboard_model import SIZE_COLOUR, USED_COLOUR, Dashboard, Terms
from kibana.panel_builders import (
    COST,
    COST_KNOWN,
    FAMILIES,
    FAMILY_CONTROL,
    FAMILY_ROWS,
    LATEST_TASK,
    PLACE_CONTROLS,
    TASKS,
    WASTE,
    WASTE_KNOWN,
    average,
    bars,
    highest,
    number,
    ranking,
    table,
)

_SAVING: Final = "recommendation.saving_percent"
_HAS_WASTE: Final = Above("cost.waste_usd", 0)
# A Fargate task is paid once: the reports of its other containers have no cost.
_COST_UNKNOWN: Final = AllOf((Not(COST_KNOWN), Not(Is("task.launch_type", "FARGATE"))))
_WASTED: Final = replace(WASTE, label="Waste (USD)", colour=USED_COLOUR)

RIGHT_SIZING: Final = Dashboard(
    key="right-sizing",
    title="Right-sizing",
    description="Unused capacity of tasks, its cost, the recommended size, and families that are too small.",
    controls=(*PLACE_CONTROLS, FAMILY_CONTROL),
    time_range="now-30d",
    panels=(
        number(
            "sizing-cost",
            "Cost (USD)",
            "Fargate list price of the tasks that have one.",
            COST,
            width=16,
            condition=COST_KNOWN,
        ),
        number(
            "sizing-waste",
            "Could be saved (USD)",
            "The amount that the recommended sizes would have saved.",
            WASTE,
            width=16,
            condition=WASTE_KNOWN,
        ),
        number(
            "sizing-too-small",
            "Tasks that are too small",
            "Tasks for which a larger size is recommended.",
            replace(TASKS, label="Too small"),
            width=16,
            condition=Below(_SAVING, 0),
        ),
        ranking(
            "waste-by-family",
            "Waste by family (USD)",
            "The amount that the recommended size would have saved. Families without waste are left out.",
            _WASTED,
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
            axis="Memory (MB)",
        ),
        ranking(
            "saving-by-family",
            "Possible saving by family (%)",
            "Mean saving of the runs that could be smaller, in percent of the cost of a run.",
            average(_SAVING, "Saving %", USED_COLOUR),
            condition=Above(_SAVING, 0),
        ),
        table(
            "too-small-table",
            "Too small",
            "Families of which some runs need a larger size, with the largest recommendation, by account and Region.",
            TASKS,
            highest("usage.cpu.size", "vCPU"),
            highest("recommendation.vcpu", "Advised vCPU"),
            highest("usage.memory.size_mb", "Memory MB"),
            highest("recommendation.memory_mb", "Advised MB"),
            highest("usage.memory.percent.max", "Memory peak %"),
            LATEST_TASK,
            terms=FAMILY_ROWS,
            condition=Below(_SAVING, 0),
            height=12,
        ),
        table(
            "right-size-table",
            "Recommended size by family",
            "The largest recommendation over all runs of a family: a size that is enough for each of them, by "
            "account and Region. The 25 families with the most waste. Families without a known cost are below.",
            _WASTED,
            TASKS,
            highest("usage.cpu.size", "vCPU"),
            highest("recommendation.vcpu", "Advised vCPU"),
            highest("usage.cpu.percent.max", "CPU peak %"),
            highest("usage.memory.size_mb", "Memory MB"),
            highest("recommendation.memory_mb", "Advised MB"),
            highest("usage.memory.used_mb.max", "Peak MB"),
            terms=FAMILY_ROWS,
            condition=WASTE_KNOWN,
        ),
        table(
            "cost-table",
            "Cost by family",
            "Fargate list price of the runs that have one, and what the recommended sizes would have saved.",
            replace(COST, label="Cost (USD)"),
            replace(WASTE, label="Saving (USD)"),
            TASKS,
            LATEST_TASK,
            terms=FAMILY_ROWS,
            condition=COST_KNOWN,
            height=12,
        ),
        table(
            "no-cost-table",
            "Families without a known cost",
            "Runs on EC2 instances and GPUs have no list price. The largest recommendation of each family.",
            TASKS,
            highest("usage.cpu.size", "vCPU"),
            highest("recommendation.vcpu", "Advised vCPU"),
            highest("usage.memory.size_mb", "Memory MB"),
            highest("recommendation.memory_mb", "Advised MB"),
            highest("usage.memory.used_mb.max", "Peak MB"),
            LATEST_TASK,
            terms=(
                FAMILIES,
                Terms(field="task.launch_type", label="Runs on", size=5, order_by_metric=0, has_missing_bucket=True),
            ),
            condition=_COST_UNKNOWN,
            height=12,
        ),
    ),
)
