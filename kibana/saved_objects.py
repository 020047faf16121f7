"""Parts that both flavours share: ids, the envelope of a saved object, references, links, the dashboard grid."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from kibana.conditions import kuery
from kibana.dashboard_model import COLUMN_WIDTHS, TIME_FIELD, Dashboard, Index, Json, Panel, SavedSearch

SOURCE: Final = "kibanaSavedObjectMeta.searchSourceJSON"
NAVIGATION_HEIGHT: Final = 3
_NAVIGATION = "Task Profiler: links"
_NO_SEARCH: Json = {"query": {"query": "", "language": "kuery"}, "filter": []}
_SEARCH_PERIOD = "(time:(from:now-7d,to:now))"
_GRID_COLUMNS = 48
_FITTED_ROWS: Final = {"rowHeight": -1}
"""A row of a list of documents in Kibana 8 is as high as its content, and not three lines. Other versions ignore it."""
_GRID_WIDTHS: Final[Mapping[str, int]] = {
    TIME_FIELD: 180,
    "task.id": COLUMN_WIDTHS["task.id"],
    "task.status": 110,
    "usage.duration_ms": 115,
    "usage.cpu.percent.max": 130,
    "usage.memory.percent.max": 160,
    "links.run": 105,
    "links.logs": 75,
    "links.task": 95,
}
"""The widths of the columns of a list of documents in Kibana. The others, such as the family's, share the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPosition:
    """The position of a panel on its dashboard's grid of 48 columns, and its ``settings`` on that dashboard.

    ``panel_id`` is unique over all dashboards: Kibana keeps a panel with the same id when it opens another dashboard.
    """

    panel_id: str
    type: str
    id: str
    x: int
    y: int
    width: int
    height: int
    settings: Json = field(default_factory=dict)


def object_id(kind: str, key: str) -> str:
    """An id that is the same in every build.

    So a repeated import replaces objects, and links stay valid. ``run_links.py`` has one of these ids.
    """
    return str(uuid5(NAMESPACE_URL, f"task-profiler/{kind}/{key}"))


def to_json(value: object) -> str:
    """Serialize in one fixed format, so that generated files can be compared byte by byte."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def reference(name: str, kind: str, target: str) -> Json:
    """A reference to another saved object. Its name determines its use."""
    return {"name": name, "type": kind, "id": target}


def data_view_reference(name: str, index: Index) -> Json:
    """A reference to the data view of these documents."""
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


def classic_visualization(
    identity: str,
    state: Json,
    references: Sequence[Json],
    migration_versions: Mapping[str, str],
    *,
    description: str = "",
    source: Json | None = None,
) -> Json:
    """A visualization that is not of Lens. ``source`` is its search; None: it has none of its own."""
    attributes = {
        "title": state["title"],
        "description": description,
        "version": 1,
        "visState": to_json(state),
        "uiStateJSON": "{}",
        "kibanaSavedObjectMeta": {"searchSourceJSON": to_json(source or _NO_SEARCH)},
    }
    return saved_object("visualization", identity, attributes, references, migration_versions)


def panel_id(dashboard: Dashboard, key: str) -> str:
    """The id of a panel on its dashboard."""
    return object_id("panel", f"{dashboard.key}/{key}")


def saved_search(search: SavedSearch, migration_versions: Mapping[str, str]) -> Json:
    """The saved object of a list of documents."""
    source = {
        "query": kuery(search.condition),
        "filter": [],
        "highlightAll": False,  # a task that is chosen by its link would be yellow
        "version": True,
        "indexRefName": f"{SOURCE}.index",
    }
    widths = {name: {"width": _GRID_WIDTHS[name]} for name in (TIME_FIELD, *search.columns) if name in _GRID_WIDTHS}
    attributes = {
        "title": search.title,
        "description": search.description,
        "hits": 0,
        "columns": list(search.columns),
        "sort": [[TIME_FIELD, "desc"]],
        "version": 1,
        **({"grid": {"columns": widths}} if "lens" in migration_versions else {}),
        "kibanaSavedObjectMeta": {"searchSourceJSON": to_json(source)},
    }
    references = [data_view_reference(f"{SOURCE}.index", search.index)]
    return saved_object("search", object_id("search", search.key), attributes, references, migration_versions)


def navigation(
    dashboards: Sequence[Dashboard], searches: Sequence[SavedSearch], migration_versions: Mapping[str, str]
) -> Json:
    """A text with links to all dashboards and saved searches, for the top of each dashboard.

    The addresses are relative, so that they stay in the same space. The products keep pinned filters between
    dashboards. A dashboard opens with its own time range: no address means "the current one". Discover is another page,
    which would open with the last 15 minutes.
    """
    links = [f"[{one.title}](#/view/{object_id('dashboard', one.key)})" for one in dashboards]
    links += [f"[{one.title}](discover#/view/{object_id('search', one.key)}?_g={_SEARCH_PERIOD})" for one in searches]
    params = {"fontSize": 12, "openLinksInNewTab": False, "markdown": " · ".join(links)}
    state = {"title": _NAVIGATION, "type": "markdown", "aggs": [], "params": params}
    return classic_visualization(_navigation_id(), state, (), migration_versions)


def _navigation_id() -> str:
    return object_id("visualization", "navigation")


def navigation_position(dashboard: Dashboard) -> GridPosition:
    """The links at the top of a dashboard."""
    return GridPosition(
        panel_id=panel_id(dashboard, "navigation"),
        type="visualization",
        id=_navigation_id(),
        x=0,
        y=0,
        width=_GRID_COLUMNS,
        height=NAVIGATION_HEIGHT,
        settings={"hidePanelTitles": True},
    )


def place_panels(
    dashboard: Dashboard, kind: str, *, top: int, settings: Callable[[Panel], Json] = lambda _: {}
) -> tuple[GridPosition, ...]:
    """Place panels from left to right and from top to bottom, in rows of 48 columns."""
    positions: list[GridPosition] = []
    x, y, row_height = 0, top, 0
    for panel in dashboard.panels:
        if x + panel.width > _GRID_COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        target = kind if isinstance(panel, Panel) else "search"
        position = GridPosition(
            panel_id=panel_id(dashboard, panel.key),
            type=target,
            id=object_id(target, panel.key),
            x=x,
            y=y,
            width=panel.width,
            height=panel.height,
            settings=settings(panel) if isinstance(panel, Panel) else dict(_FITTED_ROWS),
        )
        positions.append(position)
        x, row_height = x + panel.width, max(row_height, panel.height)
    return tuple(positions)


def dashboard_object(
    dashboard: Dashboard,
    positions: Sequence[GridPosition],
    *,
    panel_version: str,
    has_panel_prefix: bool,
    migration_versions: Mapping[str, str],
    more_attributes: Mapping[str, Json] | None = None,
    references: Sequence[Json] = (),
) -> Json:
    """The saved object of a dashboard.

    Args:
        dashboard: The dashboard.
        positions: The panels with their positions.
        panel_version: The format version of each panel.
        has_panel_prefix: Whether the name of a panel's reference begins with its id, as since 7.11.
        migration_versions: See `saved_object`.
        more_attributes: Attributes that only this flavour has.
        references: The references of these attributes.
    """
    panel_references = [
        reference(
            f"{position.panel_id}:panel_{position.panel_id}" if has_panel_prefix else f"panel_{number}",
            position.type,
            position.id,
        )
        for number, position in enumerate(positions, start=1)
    ]
    attributes = {
        "title": dashboard.title,
        "description": dashboard.description,
        "hits": 0,
        "version": 1,
        "timeRestore": True,
        "timeFrom": dashboard.time_range,
        "timeTo": "now",
        "refreshInterval": {"pause": True, "value": 0},
        **(more_attributes or {}),
        "optionsJSON": to_json({"useMargins": True, "hidePanelTitles": False}),
        "panelsJSON": to_json(
            [
                _panel(position, panel_version, position.panel_id if has_panel_prefix else str(number))
                for number, position in enumerate(positions, start=1)
            ]
        ),
        "kibanaSavedObjectMeta": {"searchSourceJSON": to_json(_NO_SEARCH)},
    }
    identity = object_id("dashboard", dashboard.key)
    return saved_object("dashboard", identity, attributes, [*references, *panel_references], migration_versions)


def _panel(position: GridPosition, version: str, name: str) -> Json:
    return {
        "version": version,
        "type": position.type,
        "gridData": {
            "x": position.x,
            "y": position.y,
            "w": position.width,
            "h": position.height,
            "i": position.panel_id,
        },
        "panelIndex": position.panel_id,
        "embeddableConfig": {**position.settings, "enhancements": {}},
        "panelRefName": f"panel_{name}",
    }
