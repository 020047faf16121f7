"""Generate the dashboard file to import: `python grafana/build_grafana.py`, or `make grafana`."""

import json
import sys
from itertools import starmap
from pathlib import Path
from typing import Any, Final

if __package__ in {None, ""}:  # run as a script, which puts only this folder on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grafana.grafana_panels import ROWS, VARIABLES, Panel, Query, Row

FILE: Final = Path(__file__).parent / "task-profiler.json"

Json = dict[str, Any]

_UID: Final = "task-profiler"
_SCHEMA_VERSION: Final = 39  # Grafana 10.4 reads it directly, newer versions migrate it
_COLUMNS: Final = 24
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_LIMIT_THRESHOLDS: Final = {
    "mode": "absolute",
    "steps": [
        {"color": "green", "value": None},
        {"color": "orange", "value": 0.8},
        {"color": "red", "value": 0.95},
    ],
}
_TASK_LINK: Final = {
    "title": "Show only this task",
    "url": f"/d/{_UID}?var-family=${{__field.labels.task_family}}&var-task=${{__field.labels.task_id}}&${{__url_time_range}}&${{datasource:queryparam}}",
}
_NO_THRESHOLDS: Final = {"mode": "absolute", "steps": [{"color": "green", "value": None}]}


def render_dashboard() -> str:
    """Generate the text of the file."""
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> Json:
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    return {
        "uid": _UID,
        "title": "Task Profiler",
        "description": "Resource usage of running ECS batch tasks: containers, GPUs, NeuronCores, and the "
        "EC2 instance.",
        "tags": ["ecs", "batch", "task-profiler"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # shared crosshair
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [{**source, "current": {}}, *starmap(_variable, VARIABLES)]},
        "panels": _panels(),
    }


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {
            "query": query,
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
            "qryType": 1,
        },
        "refresh": 2,  # on time range change, because the list of tasks depends on it
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panels() -> list[Json]:
    """Rows and panels in Grafana's structure: an open row precedes its panels, a collapsed row
    contains them.
    """
    result: list[Json] = []
    next_id, y = 1, 0
    for row in ROWS:
        panels, height = _arrange(row, next_id + 1, y + 1)
        heading = {
            "id": next_id,
            "type": "row",
            "title": row.title,
            "collapsed": row.is_collapsed,
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            "panels": panels if row.is_collapsed else [],
        }
        result += [heading] if row.is_collapsed else [heading, *panels]
        next_id += 1 + len(panels)
        y += 1 + height
    return result


def _arrange(row: Row, first_id: int, top: int) -> tuple[list[Json], int]:
    """Arrange a row's panels in reading order. Returns the panels and their total height."""
    result: list[Json] = []
    x, y, line_height = 0, top, 0
    for number, panel in enumerate(row.panels, start=first_id):
        if x + panel.width > _COLUMNS:
            x, y, line_height = 0, y + line_height, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        result.append({"id": number, "gridPos": place, **_panel(panel)})
        x += panel.width
        line_height = max(line_height, panel.height)
    return result, y + line_height - top


def _panel(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0, "thresholds": _NO_THRESHOLDS}
    if panel.axis_max is not None:
        defaults["max"] = panel.axis_max
    result: Json = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "targets": [
            _target(query, chr(ord("A") + n), panel) for n, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
    if panel.kind == "timeseries":
        defaults["links"] = [_TASK_LINK]
        stacking = {"mode": "normal" if panel.is_stacked else "none", "group": "A"}
        defaults["custom"] = {
            "fillOpacity": 40 if panel.is_stacked else 8,
            "showPoints": "auto",
            "stacking": stacking,
        }
        result["options"] = {
            "legend": {
                "showLegend": True,
                "displayMode": "table",
                "placement": "bottom",
                "calcs": ["mean", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    elif panel.kind == "stat":
        defaults["thresholds"] = _LIMIT_THRESHOLDS if panel.axis_max is not None else _NO_THRESHOLDS
        result["options"] = {
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "colorMode": "value",
            "graphMode": "area",
        }
    else:
        result["options"] = {"showHeader": True}
        result["transformations"] = [
            {"id": "organize", "options": {"excludeByName": {"Time": True}}}
        ]
    return result


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


if __name__ == "__main__":
    FILE.write_text(render_dashboard(), encoding="utf-8")
