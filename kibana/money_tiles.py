"""Amounts of money as large numbers, with the digits of the other screens: the products' formats
of numbers have the same digits for $845 as for a tenth of a cent.
"""

from typing import Final

from kibana import vega_parts as vega
from kibana.dashboard_model import Drawing, Json
from kibana.vega_parts import signal


def _total_data(field: str) -> Json:
    found = {"total": {"sum": {"field": field}}, "known": {"value_count": {"field": field}}}
    return {
        "name": "total",
        "url": vega.search("task-reports-*", found),
        "format": {"property": "aggregations"},
    }


def _tile(key: str, title: str, description: str, *, field: str, height: int) -> Drawing:
    place = {
        "x": signal("width / 2"),
        "y": signal("height / 2"),
        "align": {"value": "center"},
        "fontSize": signal("min(44, height * 0.5, width / 6)"),
        "fontWeight": {"value": "bold"},
    }
    text = f"datum.known.value ? {vega.usd_text('datum.total.value')} : '-'"
    return Drawing(
        key=key,
        title=title,
        description=description,
        spec=vega.frame(
            [_total_data(field)], [vega.label("total", text, place, style=vega.STRONG_LABEL)]
        ),
        width=10,
        height=height,
    )


def cost_tile(key: str, height: int) -> Drawing:
    """The list price of the tasks that have one."""
    return _tile(
        key,
        "Cost (USD)",
        "Fargate list price of the tasks that have one.",
        field="cost.usd",
        height=height,
    )


SAVING_TILE: Final = _tile(
    "waste-total",
    "Possible saving of these runs (USD)",
    "What the recommended sizes would have saved of the runs in the time range.",
    field="cost.waste_usd",
    height=8,
)
