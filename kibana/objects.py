"""What both flavours share: ids, the envelope of a saved object, data views, and where panels stand."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from kibana.model import TIME_FIELD, Choice, Dashboard, Index, Panel

Json = dict[str, Any]

_GRID_COLUMNS = 48
# The precise one came with Kibana 7.14; OpenSearch Dashboards and older ones fail on it when they draw.
_PRECISE = {"inputFormat": "milliseconds", "outputFormat": "humanizePrecise", "outputPrecision": 1}
_PLAIN = {"inputFormat": "milliseconds", "outputFormat": "asSeconds", "outputPrecision": 1, "showSuffix": True}
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
_REPORTS_LACK = "interval."  # fields of checkpoints only


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a panel stands on its dashboard's grid of 48 columns."""

    number: int
    type: str
    id: str
    x: int
    y: int
    width: int
    height: int


def object_id(kind: str, key: str) -> str:
    """The same id in every build: importing again replaces, and links hold.

    `forwarder.notices.wording` knows one of them.
    """
    return str(uuid5(NAMESPACE_URL, f"task-profiler/{kind}/{key}"))


def dumped(value: object) -> str:
    """The one way in which JSON is written here, so that files can be compared."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def reference(name: str, kind: str, target: str) -> Json:
    """A pointer to another object; what it is for is in its name."""
    return {"name": name, "type": kind, "id": target}


def data_view_reference(name: str, index: Index) -> Json:
    """A pointer to the data view of reports or checkpoints."""
    return reference(name, "index-pattern", object_id("data-view", index))


def saved_object(
    kind: str, identity: str, attributes: Json, references: Sequence[Json], stamps: Mapping[str, str]
) -> Json:
    """One line of the file. ``stamps``: the versions in which this flavour is written, by type, and ``core``."""
    core = {"coreMigrationVersion": stamps["core"]} if "core" in stamps else {}
    return {
        "type": kind,
        "id": identity,
        "attributes": attributes,
        "references": list(references),
        "migrationVersion": {kind: stamps[kind]},
        **core,
    }


def data_view(index: Index, stamps: Mapping[str, str], *, has_precise_durations: bool) -> Json:
    """The data view of reports or checkpoints. Its list of fields is empty: the product asks the cluster for it."""
    duration = {"id": "duration", "params": _PRECISE if has_precise_durations else _PLAIN}
    formats = {
        **dict.fromkeys(_DURATIONS, duration),
        **{name: one for name, one in _FORMATS.items() if index == "checkpoints" or not name.startswith(_REPORTS_LACK)},
    }
    attributes = {
        "title": f"task-{index}-*",
        "timeFieldName": TIME_FIELD,
        "fields": "[]",
        "fieldFormatMap": dumped(formats),
    }
    return saved_object("index-pattern", object_id("data-view", index), attributes, (), stamps)


def places(panels: Sequence[Panel], kind: str, *, number: int = 1, top: int = 0) -> tuple[Place, ...]:
    """The panels from left to right and from top to bottom, in rows of 48 columns."""
    placed: list[Place] = []
    x, y, row_height = 0, top, 0
    for offset, panel in enumerate(panels):
        if x + panel.width > _GRID_COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        identity = object_id(kind, panel.key)
        place = Place(number=number + offset, type=kind, id=identity, x=x, y=y, width=panel.width, height=panel.height)
        placed.append(place)
        x, row_height = x + panel.width, max(row_height, panel.height)
    return tuple(placed)


def dashboard_object(
    dashboard: Dashboard,
    placed: Sequence[Place],
    *,
    filters: Sequence[Json],
    references: Sequence[Json],
    panel_version: str,
    panel_prefix: bool,
    stamps: Mapping[str, str],
) -> Json:
    """The dashboard. ``panel_prefix``: since 7.11 the name of a panel's reference begins with its number."""
    panel_references = [
        reference(
            f"{place.number}:panel_{place.number}" if panel_prefix else f"panel_{place.number}", place.type, place.id
        )
        for place in placed
    ]
    period: Json = {"timeRestore": False}
    if dashboard.period is not None:
        period = {"timeRestore": True, "timeFrom": dashboard.period, "timeTo": "now"}
        period["refreshInterval"] = {"pause": True, "value": 0}
    source = {"query": {"query": "", "language": "kuery"}, "filter": list(filters)}
    attributes = {
        "title": dashboard.title,
        "description": dashboard.description,
        "hits": 0,
        "version": 1,
        **period,
        "optionsJSON": dumped({"useMargins": True, "hidePanelTitles": False}),
        "panelsJSON": dumped([_panel(place, panel_version) for place in placed]),
        "kibanaSavedObjectMeta": {"searchSourceJSON": dumped(source)},
    }
    identity = object_id("dashboard", dashboard.key)
    return saved_object("dashboard", identity, attributes, [*references, *panel_references], stamps)


def _panel(place: Place, version: str) -> Json:
    number = str(place.number)
    return {
        "version": version,
        "type": place.type,
        "gridData": {"x": place.x, "y": place.y, "w": place.width, "h": place.height, "i": number},
        "panelIndex": number,
        "embeddableConfig": {"enhancements": {}},
        "panelRefName": f"panel_{number}",
    }


def unless_filter(field: str, value: str, reference_name: str) -> Json:
    """A filter that leaves out the documents in which ``field`` is ``value``."""
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


def offered_filter(choice: Choice, reference_name: str) -> Json:
    """A filter that stands switched off in the filter bar, to be edited."""
    return {
        "meta": {
            "alias": f"{choice.label}: edit to choose",
            "disabled": True,
            "negate": False,
            "type": "exists",
            "key": choice.field,
            "value": "exists",
            "indexRefName": reference_name,
        },
        "exists": {"field": choice.field},
        "$state": {"store": "appState"},
    }
