"""Fits the saved objects to the version of the server."""

import json
import re
from collections.abc import Container, Iterator
from typing import Any, Final

from profiler.search_setup.dashboard_import import UiVersion

_FIRST_LINKS: Final = (8, 12)
_DASHBOARD_LINK: Final = re.compile(r"\[([^]]+)\]\(#/view/([\w-]+)\)")
_SEPARATOR: Final = " · "
_LINKS_WIDTH: Final = 32  # of 48 columns
_LINK_OPTIONS: Final = {"openInNewTab": False, "useCurrentFilters": True, "useCurrentDateRange": True}

SavedObject = dict[str, Any]


def fit_objects(objects: list[SavedObject], version: UiVersion) -> list[SavedObject]:
    """Use what this version knows beyond the format of the Lens file; the classic charts fit any version.

    Kibana 8.12 has links between dashboards that keep the time range and the filters; an address in a text cannot.
    """
    is_lens = any(item["type"] == "lens" for item in objects)
    return list(_with_links(objects)) if is_lens and (version.major, version.minor) >= _FIRST_LINKS else objects


def _with_links(objects: list[SavedObject]) -> Iterator[SavedObject]:
    """Move the links to dashboards from the text into a separate object; links to other pages stay."""
    texts = {item["id"]: text for item in objects if (text := _navigation_text(item)) is not None}
    for item in objects:
        if item["id"] in texts:
            yield from _split_navigation(item, texts[item["id"]])
        elif item["type"] == "dashboard":
            yield _with_links_panel(item, texts)
        else:
            yield item


def _navigation_text(saved_object: SavedObject) -> str | None:
    """The text of a visualization that links to dashboards."""
    state = saved_object.get("attributes", {}).get("visState")
    text = json.loads(state).get("params", {}).get("markdown") if state else None
    return text if isinstance(text, str) and _DASHBOARD_LINK.search(text) else None


def _split_navigation(saved_object: SavedObject, text: str) -> Iterator[SavedObject]:
    links, references = [], []
    for order, (label, dashboard) in enumerate(_DASHBOARD_LINK.findall(text)):
        name = f"link_{dashboard}_dashboard"
        kind = {"type": "dashboardLink", "destinationRefName": name, "options": _LINK_OPTIONS}
        links.append({"id": dashboard, "label": label, "order": order, **kind})
        references.append({"name": name, "type": "dashboard", "id": dashboard})
    attributes = saved_object["attributes"]
    state = json.loads(attributes["visState"])
    state["params"]["markdown"] = _SEPARATOR.join(
        link for link in text.split(_SEPARATOR) if not _DASHBOARD_LINK.fullmatch(link)
    )
    yield {**saved_object, "attributes": {**attributes, "visState": json.dumps(state, separators=(",", ":"))}}
    yield {
        "type": "links",
        "id": saved_object["id"],
        "attributes": {"title": attributes["title"], "description": "", "layout": "horizontal", "links": links},
        "references": references,
    }


def _with_links_panel(dashboard: SavedObject, navigations: Container[str]) -> SavedObject:
    """Place the links in the panel of the text, and the rest of the text next to them."""
    panels = json.loads(dashboard["attributes"]["panelsJSON"])
    targets = {reference["name"]: reference["id"] for reference in dashboard["references"]}
    for panel in panels:
        target = targets.get(f"{panel['panelIndex']}:{panel['panelRefName']}", "")
        if target in navigations:
            index, grid = f"{panel['panelIndex']}-links", panel["gridData"]
            place = {"panelIndex": index, "gridData": {**grid, "w": _LINKS_WIDTH, "i": index}}
            links = {**panel, **place, "type": "links", "panelRefName": f"panel_{index}"}
            grid |= {"x": grid["x"] + _LINKS_WIDTH, "w": grid["w"] - _LINKS_WIDTH}
            text = json.dumps([links, *panels], separators=(",", ":"))
            return {
                **dashboard,
                "attributes": {**dashboard["attributes"], "panelsJSON": text},
                "references": [
                    *dashboard["references"],
                    {"name": f"{index}:panel_{index}", "type": "links", "id": target},
                ],
            }
    return dashboard
