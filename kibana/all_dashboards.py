"""The definitions of all dashboards and panels.

``classic.py`` and ``lens.py`` generate each product's files from them. ``aggregations.py`` compiles their searches.
"""

from dataclasses import replace
from typing import Final

from kibana.conditions import Above, Below
from kibana.dashboard_model import SIZE_COLOUR, USED_COLOUR, Dashboard, Panel
from kibana.overview_panels import OVERVIEW
from kibana.run_panels import GPU, NEURON, RUN
from kibana.shared_panels import (
    COST,
    FAMILIES,
    FAMILY_CONTROL,
    FAMILY_ROWS,
    LARGEST_FAMILIES,
    LATEST_TASK,
    PLACE_CONTROLS,
    TABLE_HEIGHT,
    TASKS,
    WASTE,
    average,
    highest,
    number,
)

_SAVING: Final = "recommendation.saving_percent"
_HAS_WASTE: Final = Above("cost.waste_usd", 0)
_WASTED: Final = replace(WASTE, label="Waste (USD)", colour=USED_COLOUR)

_RIGHT_SIZING: Final = Dashboard(
    key="right-sizing",
    title="Right-sizing",
    description="Unused capacity of tasks, its cost, the recommended size, and families that are too small.",
    controls=(*PLACE_CONTROLS, FAMILY_CONTROL),
    time_range="now-30d",
    panels=(
        number("sizing-cost", "Cost (USD)", "Fargate list price of all tasks.", COST, width=16),
        number(
            "sizing-waste",
            "Could be saved (USD)",
            "The amount that the recommended sizes would have saved.",
            WASTE,
            width=16,
        ),
        replace(
            number(
                "sizing-too-small",
                "Tasks that are too small",
                "Tasks for which a larger size is recommended.",
                replace(TASKS, label="Too small"),
                width=16,
            ),
            condition=Below(_SAVING, 0),
        ),
        Panel(
            key="waste-by-family",
            title="Waste by family (USD)",
            description="The amount that the recommended size would have saved. Families without waste are left out.",
            index="reports",
            kind="ranking",
            metrics=(_WASTED,),
            terms=(FAMILIES,),
            condition=_HAS_WASTE,
        ),
        Panel(
            key="waste-over-time",
            title="Waste over time (USD)",
            description="The amount that the recommended size would have saved, by end time of the runs.",
            index="reports",
            kind="bars",
            metrics=(_WASTED,),
            terms=(LARGEST_FAMILIES,),
            has_time_axis=True,
            condition=_HAS_WASTE,
        ),
        Panel(
            key="memory-peak-against-size",
            title="Memory peak against size (MB)",
            description="The highest memory peak and the largest memory size of all runs of a family.",
            index="reports",
            kind="ranking",
            metrics=(
                highest("usage.memory.used_mb.max", "Peak (MB)", USED_COLOUR),
                highest("usage.memory.size_mb", "Size (MB)", SIZE_COLOUR),
            ),
            terms=(FAMILIES,),
        ),
        Panel(
            key="saving-by-family",
            title="Possible saving by family (%)",
            description="Mean saving of the runs that could be smaller, in percent of the cost of a run.",
            index="reports",
            kind="ranking",
            metrics=(average(_SAVING, "Saving %", USED_COLOUR),),
            terms=(FAMILIES,),
            condition=Above(_SAVING, 0),
        ),
        Panel(
            key="too-small-table",
            title="Too small",
            description=(
                "Families of which some runs need a larger size, with the largest recommendation, by account and "
                "Region."
            ),
            index="reports",
            kind="table",
            metrics=(
                TASKS,
                highest("usage.cpu.size", "vCPU"),
                highest("recommendation.vcpu", "Advised vCPU"),
                highest("usage.memory.size_mb", "Memory MB"),
                highest("recommendation.memory_mb", "Advised MB"),
                highest("usage.memory.percent.max", "Memory peak %"),
                LATEST_TASK,
            ),
            terms=FAMILY_ROWS,
            condition=Below(_SAVING, 0),
            width=48,
            height=12,
        ),
        Panel(
            key="right-size-table",
            title="Recommended size by family",
            description=(
                "The largest recommendation over all runs of a family: a size that is enough for each of them, by "
                "account and Region. The 25 families with the most waste."
            ),
            index="reports",
            kind="table",
            metrics=(
                _WASTED,
                TASKS,
                highest("usage.cpu.size", "vCPU"),
                highest("recommendation.vcpu", "Advised vCPU"),
                highest("usage.cpu.percent.max", "CPU peak %"),
                highest("usage.memory.size_mb", "Memory MB"),
                highest("recommendation.memory_mb", "Advised MB"),
                highest("usage.memory.used_mb.max", "Peak MB"),
            ),
            terms=FAMILY_ROWS,
            width=48,
            height=TABLE_HEIGHT,
        ),
    ),
)

DASHBOARDS: Final = (OVERVIEW, RUN, _RIGHT_SIZING, GPU, NEURON)
PANELS: Final[tuple[Panel, ...]] = tuple(panel for dashboard in DASHBOARDS for panel in dashboard.panels)
