"""Writes the dashboard that is imported: `python grafana/build.py`, or `make grafana`."""

import json
import sys
from pathlib import Path
from typing import Any, Final

if __package__ in {None, ""}:  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grafana.model import Panel, Query, Row, Variable
from grafana.panels import DESCRIPTION, ROWS, TITLE, VARIABLES

FILE: Final = Path(__file__).parent / "task-profiler.json"

Json = dict[str, Any]

_UID: Final = "task-profiler"
_SCHEMA_VERSION: Final = 39  # Grafana 10.4 and newer read it as it is, later ones migrate it
_COLUMNS: Final = 24
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_DANGER: Final = {
    "mode": "absolute",
    "steps": [{"color": "green", "value": None}, {"color": "orange", "value": 0.8}, {"color": "red", "value": 0.95}],
}
_ONE_COLOUR: Final = {"mode": "absolute", "steps": [{"color": "green", "value": None}]}


def built() -> str:
    """The file's text."""
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> Json:
    return {
        "uid": _UID,
        "title": TITLE,
        "description": DESCRIPTION,
        "tags": ["ecs", "batch", "task-profiler"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # one cursor over all charts
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource_variable(), *(_variable(one) for one in VARIABLES)]},
        "panels": _panels(),
    }


def _datasource_variable() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": "PrometheusVariableQueryEditor-VariableQuery", "qryType": 1},
        "refresh": 2,  # when the time range changes: tasks come and go
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panels() -> list[Json]:
    """Rows as Grafana has them: an open one is followed by its panels, a collapsed one holds them."""
    found: list[Json] = []
    next_id, y = 1, 0
    for row in ROWS:
        heading = _heading(row, next_id, y)
        panels, height = _placed(row, next_id + 1, y + 1)
        found.append(heading)
        if row.collapsed:
            heading["panels"] = panels
        else:
            found += panels
        next_id += 1 + len(panels)
        y += 1 + height
    return found


def _heading(row: Row, number: int, y: int) -> Json:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": row.collapsed,
        "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
        "panels": [],
    }


def _placed(row: Row, first_id: int, top: int) -> tuple[list[Json], int]:
    """The row's panels in reading order, and how high they are together."""
    found: list[Json] = []
    x, y, line_height = 0, top, 0
    for number, panel in enumerate(row.panels, start=first_id):
        if x + panel.width > _COLUMNS:
            x, y, line_height = 0, y + line_height, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        found.append({"id": number, "gridPos": place, **_panel(panel)})
        x += panel.width
        line_height = max(line_height, panel.height)
    return found, y + line_height - top


def _panel(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0, "thresholds": _ONE_COLOUR}
    if panel.largest is not None:
        defaults["max"] = panel.largest
    found: Json = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "targets": [_target(query, chr(ord("A") + n), panel) for n, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {"fillOpacity": 40 if panel.stacked else 8, "showPoints": "auto", "stacking": stacking}
        found["options"] = {
            "legend": {"showLegend": True, "displayMode": "table", "placement": "bottom", "calcs": ["mean", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    elif panel.kind == "stat":
        defaults["thresholds"] = _DANGER if panel.largest is not None else _ONE_COLOUR
        found["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    else:
        found["options"] = {"showHeader": True}
        found["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]
    return found


def _target(query: Query, ref_id: str, panel: Panel) -> Json:
    is_table = panel.kind == "table"
    return {
        "refId": ref_id,
        "datasource": _DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "format": "table" if is_table else "time_series",
        "instant": is_table,
        "range": not is_table,
    }


def main() -> int:
    """Write the file."""
    FILE.write_text(built(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
