"""Parts that both flavours share: ids, the envelope of a saved object, references, links, the
dashboard grid.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from kibana.dashboard_model import (
    COLUMN_WIDTHS,
    TIME_FIELD,
    Dashboard,
    Drawing,
    Index,
    Json,
    Panel,
    PanelStack,
    SavedSearch,
    kuery,
)

SOURCE: Final = "kibanaSavedObjectMeta.searchSourceJSON"
# The row of links and dropdown lists, above the first chart. A dropdown list of OpenSearch
# Dashboards needs 250 pixels, and four rows of the grid.
_TOP_HEIGHT: Final = 4
MAX_FILTERS: Final = 4
"""The dropdown lists that fit beside the links."""
_FILTER_WIDTH: Final = 10
_LINKS_HEIGHT: Final = 2
_TOOLBAR_HEIGHT: Final = 1
_PAGES_HEIGHT: Final = 2
"""A table of OpenSearch Dashboards has a line for its download, and one for its pages.

Kibana's has neither.
"""
_NO_SEARCH: Json = {"query": {"query": "", "language": "kuery"}, "filter": []}
_FILTER_INDEX: Final = f"{SOURCE}.filter[0].meta.index"
_UNCONFIRMED: Final[Json] = {
    "bool": {
        "filter": [{"term": {"task.confirmed": False}}],
        "must_not": [{"term": {"task.voucher": "trusted-group"}}],
    }
}
"""The runs that do not count: see ``counts`` in profiler/record/line_trust.py."""
_SEARCH_PERIOD = "(time:(from:now-7d,to:now))"
_GRID_COLUMNS = 48
_FITTED_ROWS: Final[Json] = {"rowHeight": -1}
"""A row of a list of documents in Kibana 8 is as high as its content, and not three lines.

Other versions ignore it.
"""
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
"""The widths of the columns of a list of documents in Kibana.

The others, such as the family's, share the rest.
"""


def object_id(kind: str, key: str) -> str:
    """An id that each build repeats: an import replaces objects, links stay valid, and
    ``run_links.py`` has one.
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


def saved_object(kind: str, identity: str, attributes: Json, references: Sequence[Json]) -> Json:
    """One line of the file, still without the version of its format."""
    return {"type": kind, "id": identity, "attributes": attributes, "references": list(references)}


def classic_visualization(
    identity: str,
    state: Json,
    references: Sequence[Json],
    *,
    description: str = "",
    source: Json | None = None,
) -> Json:
    """A visualization that is not of Lens.

    ``source`` is its search; None: it has none of its own.
    """
    attributes = {
        "title": state["title"],
        "description": description,
        "version": 1,
        "visState": to_json(state),
        "uiStateJSON": "{}",
        "kibanaSavedObjectMeta": {"searchSourceJSON": to_json(source or _NO_SEARCH)},
    }
    return saved_object("visualization", identity, attributes, references)


def saved_search(search: SavedSearch, *, is_lens: bool) -> Json:
    """The saved object of a list of documents."""
    source = {
        "query": kuery(search.condition),
        "filter": [],
        "highlightAll": False,  # a task that is chosen by its link would be yellow
        "version": True,
        "indexRefName": f"{SOURCE}.index",
    }
    widths = {
        name: {"width": _GRID_WIDTHS[name]}
        for name in (TIME_FIELD, *search.columns)
        if name in _GRID_WIDTHS
    }
    attributes = {
        "title": search.title,
        "description": search.description,
        "hits": 0,
        "columns": list(search.columns),
        "sort": [[TIME_FIELD, "desc"]],
        "version": 1,
        **({"grid": {"columns": widths}} if is_lens else {}),
        "kibanaSavedObjectMeta": {"searchSourceJSON": to_json(source)},
    }
    references = [data_view_reference(f"{SOURCE}.index", "reports")]
    return saved_object("search", object_id("search", search.key), attributes, references)


def navigation(dashboards: Sequence[Dashboard], searches: Sequence[SavedSearch]) -> Json:
    """A text with links for the top of each dashboard.

    Relative addresses stay in the same space.
    """
    links = [f"[{one.title}](#/view/{object_id('dashboard', one.key)})" for one in dashboards]
    links += [
        f"[{one.title}](discover#/view/{object_id('search', one.key)}?_g={_SEARCH_PERIOD})"
        for one in searches
    ]
    params = {"fontSize": 9, "openLinksInNewTab": False, "markdown": " · ".join(links)}
    state = {"title": "Task Profiler: links", "type": "markdown", "aggs": [], "params": params}
    return classic_visualization(object_id("visualization", "navigation"), state, ())


def filter_key(dashboard: Dashboard, field: str) -> str:
    """The key of a dropdown list that is a visualization."""
    return f"{dashboard.key}-filter-{field}"


def dashboard_object(
    dashboard: Dashboard,
    kind: str,
    settings: Callable[[Panel], Json],
    *,
    is_lens: bool,
    filters: Sequence[str] = (),
    more_attributes: Mapping[str, Json] | None = None,
    references: Sequence[Json] = (),
) -> Json:
    """The saved object of a dashboard: links, controls and panels.

    ``settings`` returns a chart's on the dashboard. ``filters``: the fields of the dropdown lists
    that are visualizations, beside the links.
    """
    if filters:
        links_x = MAX_FILTERS * _FILTER_WIDTH
        top = (links_x, 0, _GRID_COLUMNS - links_x, _TOP_HEIGHT)
    else:
        top = (0, 0, _GRID_COLUMNS, _LINKS_HEIGHT)
    links = ("visualization", "navigation")
    placed = [_panel(dashboard, "navigation", links, top, {"hidePanelTitles": True})]
    for number, field in enumerate(filters):
        shown = ("visualization", filter_key(dashboard, field))
        place = (number * _FILTER_WIDTH, 0, _FILTER_WIDTH, _TOP_HEIGHT)
        settings_of_list = {"hidePanelTitles": True}
        placed.append(_panel(dashboard, f"filter-{field}", shown, place, settings_of_list))
    placed += _placed_panels(dashboard, kind, settings, top=top[3], is_lens=is_lens)
    panels = []
    panel_references = []
    for number, panel in enumerate(placed, start=1):
        name = f"panel_{panel['panelIndex']}" if is_lens else f"panel_{number}"
        prefix = f"{panel['panelIndex']}:" if is_lens else ""
        target = panel.pop("id")
        panels.append({"version": "7.16.0" if is_lens else "7.10.0", **panel, "panelRefName": name})
        panel_references.append(reference(f"{prefix}{name}", panel["type"], target))
    attributes = {
        "title": dashboard.title,
        "description": dashboard.description,
        "hits": 0,
        "version": 1,
        "timeRestore": True,
        "timeFrom": "now-7d",  # one range for all dashboards: a link from one to the next keeps it
        "timeTo": "now",
        "refreshInterval": {"pause": True, "value": 0},
        **(more_attributes or {}),
        "optionsJSON": to_json({"useMargins": True, "hidePanelTitles": False}),
        "panelsJSON": to_json(panels),
        "kibanaSavedObjectMeta": {"searchSourceJSON": to_json(_panel_search_source(dashboard))},
    }
    if not dashboard.shows_unconfirmed:
        panel_references.append(data_view_reference(_FILTER_INDEX, "reports"))
    identity = object_id("dashboard", dashboard.key)
    return saved_object("dashboard", identity, attributes, [*references, *panel_references])


def _panel_search_source(dashboard: Dashboard) -> Json:
    """The search of all panels: a filter that can be switched off leaves unconfirmed runs out."""
    if dashboard.shows_unconfirmed:
        return _NO_SEARCH
    meta: Json = {
        "alias": "Unconfirmed runs",
        "disabled": False,
        "negate": True,
        "type": "custom",
        "key": "query",
        "value": to_json(_UNCONFIRMED),
        "indexRefName": _FILTER_INDEX,
    }
    added = {"meta": meta, "query": _UNCONFIRMED, "$state": {"store": "appState"}}
    return {**_NO_SEARCH, "filter": [added]}


def drawing_object(drawing: Drawing) -> Json:
    """The visualization of a drawing, which is the same in both products."""
    state = {
        "title": drawing.title,
        "type": "vega",
        "aggs": [],
        "params": {"spec": to_json(drawing.spec)},
    }
    identity = object_id("visualization", drawing.key)
    return classic_visualization(identity, state, (), description=drawing.description)


def _placed_panels(
    dashboard: Dashboard,
    kind: str,
    settings: Callable[[Panel], Json],
    *,
    top: int,
    is_lens: bool,
) -> Iterator[Json]:
    x = 0
    y = top
    row_height = 0
    for item in dashboard.panels:
        if x + item.width > _GRID_COLUMNS:
            x = 0
            y = y + row_height
            row_height = 0
        own_y = y
        for panel in item.panels if isinstance(item, PanelStack) else (item,):
            height = panel.height
            if is_lens and isinstance(panel, Panel) and panel.kind == "table":
                height -= _TOOLBAR_HEIGHT
                if not panel.is_short:
                    height -= _PAGES_HEIGHT
            place = (x, own_y, panel.width, height)
            if isinstance(panel, Panel):
                target = (kind, panel.key)
                own = settings(panel)
            elif isinstance(panel, Drawing):
                target = ("visualization", panel.key)
                own = {}
            else:
                target = ("search", panel.key)
                own = _FITTED_ROWS
            yield _panel(dashboard, panel.key, target, place, own)
            own_y += height
        x = x + item.width
        row_height = max(row_height, own_y - y)


def _panel(
    dashboard: Dashboard,
    key: str,
    target: tuple[str, str],
    place: tuple[int, int, int, int],
    settings: Json,
) -> Json:
    """A panel, with the id of its object.

    Kibana keeps a panel whose own id is on the next dashboard, too.
    """
    own_id = object_id("panel", f"{dashboard.key}/{key}")
    return {
        "type": target[0],
        "id": object_id(*target),
        "gridData": {**dict(zip("xywh", place, strict=True)), "i": own_id},
        "panelIndex": own_id,
        "embeddableConfig": {**settings, "enhancements": {}},
    }
