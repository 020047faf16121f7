"""Parts that both flavours share: ids, the envelope of a saved object, data views, the dashboard grid, filters."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from kibana.model import TIME_FIELD, Control, Dashboard, Index, Json, Panel

_GRID_COLUMNS = 48
# Kibana 7.14 added the precise format. OpenSearch Dashboards and older versions of Kibana fail to draw it.
_PRECISE_DURATION = {"inputFormat": "milliseconds", "outputFormat": "humanizePrecise", "outputPrecision": 1}
_PLAIN_DURATION = {"inputFormat": "milliseconds", "outputFormat": "asSeconds", "outputPrecision": 1, "showSuffix": True}
_DURATIONS = ("usage.duration_ms", "usage.billed_duration_ms", "usage.init_duration_ms")
_BYTES_FORMAT = {"id": "bytes", "params": {"pattern": "0,0.0 b"}}
_DOLLAR_FORMAT = {"id": "number", "params": {"pattern": "$0,0.0000"}}
_ONE_DIGIT_FORMAT = {"id": "number", "params": {"pattern": "0,0.[0]"}}
_FORMATS: Final[Mapping[str, Json]] = {
    "usage.network.rx_bytes": _BYTES_FORMAT,
    "usage.network.tx_bytes": _BYTES_FORMAT,
    "usage.block.read_bytes": _BYTES_FORMAT,
    "usage.block.write_bytes": _BYTES_FORMAT,
    "cost.usd": _DOLLAR_FORMAT,
    "cost.waste_usd": _DOLLAR_FORMAT,
    "usage.cpu.percent.avg": _ONE_DIGIT_FORMAT,
    "usage.memory.percent.avg": _ONE_DIGIT_FORMAT,
    "interval.cpu_percent": _ONE_DIGIT_FORMAT,
    "interval.memory_mb": _ONE_DIGIT_FORMAT,
}
_CHECKPOINT_PREFIX = "interval."  # of fields that only checkpoints have


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPosition:
    """The position of a panel on its dashboard's grid of 48 columns."""

    number: int
    type: str
    id: str
    x: int
    y: int
    width: int
    height: int


def object_id(kind: str, key: str) -> str:
    """An id that is the same in every build.

    So a repeated import replaces objects, and links stay valid. `forwarder.notices.wording` contains one of these ids.
    """
    return str(uuid5(NAMESPACE_URL, f"task-profiler/{kind}/{key}"))


def to_json(value: object) -> str:
    """Serialize in one fixed format, so that generated files can be compared byte by byte."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def reference(name: str, kind: str, target: str) -> Json:
    """A reference to another saved object. Its name determines its use."""
    return {"name": name, "type": kind, "id": target}


def data_view_reference(name: str, index: Index) -> Json:
    """A reference to the data view of reports or checkpoints."""
    return reference(name, "index-pattern", object_id("data-view", index))


def saved_object(
    kind: str, identity: str, attributes: Json, references: Sequence[Json], migration_versions: Mapping[str, str]
) -> Json:
    """One line of the file. ``migration_versions``: the format versions of this flavour by type, and of ``core``."""
    core = {"coreMigrationVersion": migration_versions["core"]} if "core" in migration_versions else {}
    return {
        "type": kind,
        "id": identity,
        "attributes": attributes,
        "references": list(references),
        "migrationVersion": {kind: migration_versions[kind]},
        **core,
    }


def data_view(index: Index, migration_versions: Mapping[str, str], *, has_precise_durations: bool) -> Json:
    """The data view of reports or checkpoints. Its field list is empty: the product reads it from the cluster."""
    duration = {"id": "duration", "params": _PRECISE_DURATION if has_precise_durations else _PLAIN_DURATION}
    formats = {
        **dict.fromkeys(_DURATIONS, duration),
        **{
            name: field_format
            for name, field_format in _FORMATS.items()
            if index == "checkpoints" or not name.startswith(_CHECKPOINT_PREFIX)
        },
    }
    attributes = {
        "title": f"task-{index}-*",
        "timeFieldName": TIME_FIELD,
        "fields": "[]",
        "fieldFormatMap": to_json(formats),
    }
    return saved_object("index-pattern", object_id("data-view", index), attributes, (), migration_versions)


def place_panels(panels: Sequence[Panel], kind: str, *, number: int = 1, top: int = 0) -> tuple[GridPosition, ...]:
    """Place panels from left to right and from top to bottom, in rows of 48 columns."""
    positions: list[GridPosition] = []
    x, y, row_height = 0, top, 0
    for offset, panel in enumerate(panels):
        if x + panel.width > _GRID_COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        identity = object_id(kind, panel.key)
        position = GridPosition(
            number=number + offset, type=kind, id=identity, x=x, y=y, width=panel.width, height=panel.height
        )
        positions.append(position)
        x, row_height = x + panel.width, max(row_height, panel.height)
    return tuple(positions)


def dashboard_object(
    dashboard: Dashboard,
    positions: Sequence[GridPosition],
    *,
    filters: Sequence[Json],
    references: Sequence[Json],
    panel_version: str,
    has_panel_prefix: bool,
    migration_versions: Mapping[str, str],
) -> Json:
    """The saved object of a dashboard.

    Args:
        dashboard: The dashboard.
        positions: The panels with their positions.
        filters: The filters of the filter bar.
        references: References of the filters.
        panel_version: The format version of each panel.
        has_panel_prefix: Whether the name of a panel's reference begins with its number, as since 7.11.
        migration_versions: See `saved_object`.
    """
    panel_references = [
        reference(
            f"{position.number}:panel_{position.number}" if has_panel_prefix else f"panel_{position.number}",
            position.type,
            position.id,
        )
        for position in positions
    ]
    time_range: Json = {"timeRestore": False}
    if dashboard.time_range is not None:
        time_range = {"timeRestore": True, "timeFrom": dashboard.time_range, "timeTo": "now"}
        time_range["refreshInterval"] = {"pause": True, "value": 0}
    source = {"query": {"query": "", "language": "kuery"}, "filter": list(filters)}
    attributes = {
        "title": dashboard.title,
        "description": dashboard.description,
        "hits": 0,
        "version": 1,
        **time_range,
        "optionsJSON": to_json({"useMargins": True, "hidePanelTitles": False}),
        "panelsJSON": to_json([_panel(position, panel_version) for position in positions]),
        "kibanaSavedObjectMeta": {"searchSourceJSON": to_json(source)},
    }
    identity = object_id("dashboard", dashboard.key)
    return saved_object("dashboard", identity, attributes, [*references, *panel_references], migration_versions)


def _panel(position: GridPosition, version: str) -> Json:
    number = str(position.number)
    return {
        "version": version,
        "type": position.type,
        "gridData": {"x": position.x, "y": position.y, "w": position.width, "h": position.height, "i": number},
        "panelIndex": number,
        "embeddableConfig": {"enhancements": {}},
        "panelRefName": f"panel_{number}",
    }


def exclusion_filter(field: str, value: str, reference_name: str) -> Json:
    """A filter that excludes documents in which ``field`` has ``value``."""
    return {
        "meta": {
            "alias": None,
            "disabled": False,
            "negate": True,
            "type": "phrase",
            "key": field,
            "params": {"query": value},
            "indexRefName": reference_name,
        },
        "query": {"match_phrase": {field: value}},
        "$state": {"store": "appState"},
    }


def disabled_filter(control: Control, reference_name: str) -> Json:
    """A disabled filter in the filter bar, for the user to edit."""
    return {
        "meta": {
            "alias": f"{control.label}: edit to choose",
            "disabled": True,
            "negate": False,
            "type": "exists",
            "key": control.field,
            "value": "exists",
            "indexRefName": reference_name,
        },
        "exists": {"field": control.field},
        "$state": {"store": "appState"},
    }
