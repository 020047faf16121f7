"""Fits dashboards to a version, imports them, and checks each object: HTTP 200 does not mean
success.
"""

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list
from profiler.search_setup.cluster_requests import rejection_text, version_of
from profiler.search_setup.search_servers import DashboardsServer
from profiler.search_setup.template_install import setup_folder, with_index_prefix

Flavour = Literal["classic", "lens"]
SavedObject = dict[str, Any]

_LAST_OPENSEARCH_DASHBOARDS = 3  # OpenSearch Dashboards has versions 1 to 3, Kibana from 4
_FIRST_LENS = (8, 2)  # older versions show errors for the newest value of a date
_DASHBOARD_FILES: Mapping[Flavour, str] = {
    "classic": "opensearch-dashboards.ndjson",
    "lens": "kibana.ndjson",
}
_FIRST_LINKS: Final = (8, 12)
_DASHBOARD_LINK: Final = re.compile(r"\[([^]]+)\]\(#/view/([\w-]+)\)")
# The id of the text with the links (kibana/saved_objects.py).
_NAVIGATION: Final = str(uuid5(NAMESPACE_URL, "task-profiler/visualization/navigation"))
_SEPARATOR: Final = " · "
_LINKS_WIDTH: Final = 32  # of 48 columns


class UiVersion(Struct, frozen=True, kw_only=True):
    """The version of Kibana or OpenSearch Dashboards."""

    major: int
    minor: int

    @property
    def is_opensearch(self) -> bool:
        return self.major <= _LAST_OPENSEARCH_DASHBOARDS

    @property
    def flavour(self) -> Flavour:
        """Lens for Kibana from 8.2, classic charts for older versions and for OpenSearch
        Dashboards.
        """
        if not self.is_opensearch and (self.major, self.minor) >= _FIRST_LENS:
            return "lens"
        return "classic"

    def __str__(self) -> str:
        """Name and version."""
        product = "OpenSearch Dashboards" if self.is_opensearch else "Kibana"
        return f"{product} {self.major}.{self.minor}"


def read_version(ui: DashboardsServer) -> UiVersion:
    """Ask the server for its version.

    Raises TaskProfilerError if it is neither of the two products.
    """
    response = ui.status()
    version = version_of(response)
    parts = re.match(r"(\d+)\.(\d+)(?:\.|$)", str(version.get("number")), re.ASCII)
    if not parts:
        raise TaskProfilerError(
            f"There is no Kibana or OpenSearch Dashboards at {response.address} "
            f"({rejection_text(response)}): check URL and sign-in."
        )
    return UiVersion(major=int(parts[1]), minor=int(parts[2]))


def choose_flavour(version: UiVersion, requested: Flavour | None) -> Flavour:
    """The requested flavour, else the version's.

    Raises TaskProfilerError if the server does not know it.
    """
    if requested == "lens" and version.flavour != "lens":
        raise TaskProfilerError(
            f"{version} cannot show the Lens charts, which need Kibana 8.2: leave out --flavour, "
            "or use --flavour classic."
        )
    return requested or version.flavour


def dashboard_objects(flavour: Flavour, prefix: str) -> list[dict[str, Any]]:
    """The dashboards of this installation, with this index prefix."""
    lines = (setup_folder() / _DASHBOARD_FILES[flavour]).read_text(encoding="utf-8").splitlines()
    return [with_index_prefix(line, prefix) for line in lines]


def existing_objects(
    ui: DashboardsServer, objects: Sequence[Mapping[str, Any]]
) -> frozenset[tuple[str, str]] | None:
    """Types and ids of those objects that the server has already; None if it does not list them."""
    response = ui.find_objects(
        [(str(saved_object["type"]), str(saved_object["id"])) for saved_object in objects]
    )
    entries = mapping_or_empty(response.body).get("saved_objects")
    if not response.is_success or not isinstance(entries, list):
        return None
    existing = set()
    for entry in mappings_in_list(entries):
        if "error" not in entry:
            existing.add((str(entry.get("type")), str(entry.get("id"))))
    return frozenset(existing)


def import_dashboards(
    ui: DashboardsServer, objects: list[dict[str, Any]], flavour: Flavour
) -> None:
    """Import all objects. Raises TaskProfilerError unless the response confirms each of them."""
    content = "".join(
        json.dumps(saved_object, separators=(",", ":")) + "\n" for saved_object in objects
    ).encode()
    response = ui.import_objects(f"task-profiler-{flavour}.ndjson", content)
    body = mapping_or_empty(response.body)
    if (
        response.is_success
        and body.get("success") is True
        and body.get("successCount") == len(objects)
    ):
        return
    if response.is_success:
        errors = json.dumps(body.get("errors") or "")[:1000]
        reason = f"{body.get('successCount', 0)} of {len(objects)} objects were imported {errors}"
    else:
        reason = rejection_text(response)
        if response.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            reason += "; another --flavour may fit this server"
    raise TaskProfilerError(f"The dashboards were not imported: {reason}.")


def fit_objects(objects: list[SavedObject], version: UiVersion) -> list[SavedObject]:
    """The objects as this version shows them best: from 8.12 on, Kibana has links between
    dashboards that keep time range and filters, unlike those in a text.
    """
    is_lens = any(item["type"] == "lens" for item in objects)
    if not is_lens or (version.major, version.minor) < _FIRST_LINKS:
        return objects
    fitted: list[SavedObject] = []
    for item in objects:
        if item["id"] == _NAVIGATION:
            fitted += _split_navigation(item)
        elif item["type"] == "dashboard":
            fitted.append(_with_links_panel(item))
        else:
            fitted.append(item)
    return fitted


def _split_navigation(saved_object: SavedObject) -> tuple[SavedObject, SavedObject]:
    """Move the links to dashboards from the text into a separate object; links to other pages
    stay.
    """
    links = []
    references = []
    attributes = saved_object["attributes"]
    state = json.loads(attributes["visState"])
    text = state["params"]["markdown"]
    for order, (label, dashboard) in enumerate(_DASHBOARD_LINK.findall(text)):
        name = f"link_{dashboard}_dashboard"
        kind = {
            "type": "dashboardLink",
            "destinationRefName": name,
            "options": {
                "openInNewTab": False,
                "useCurrentFilters": True,
                "useCurrentDateRange": True,
            },
        }
        links.append({"id": dashboard, "label": label, "order": order, **kind})
        references.append({"name": name, "type": "dashboard", "id": dashboard})
    state["params"]["markdown"] = _SEPARATOR.join(
        link for link in text.split(_SEPARATOR) if not _DASHBOARD_LINK.fullmatch(link)
    )
    rest = {
        **saved_object,
        "attributes": {**attributes, "visState": json.dumps(state, separators=(",", ":"))},
    }
    shown = {
        "title": attributes["title"],
        "description": "",
        "layout": "horizontal",
        "links": links,
    }
    return rest, {"type": "links", "id": _NAVIGATION, "attributes": shown, "references": references}


def _with_links_panel(dashboard: SavedObject) -> SavedObject:
    """Place the links in the panel of the text, which is the first one, and the rest of the text
    next to them.
    """
    attributes = dashboard["attributes"]
    text, *panels = json.loads(attributes["panelsJSON"])
    index = f"{text['panelIndex']}-links"
    grid = text["gridData"]
    place = {"panelIndex": index, "gridData": {**grid, "w": _LINKS_WIDTH, "i": index}}
    links = {**text, **place, "type": "links", "panelRefName": f"panel_{index}"}
    grid |= {"x": grid["x"] + _LINKS_WIDTH, "w": grid["w"] - _LINKS_WIDTH}
    reference = {"name": f"{index}:panel_{index}", "type": "links", "id": _NAVIGATION}
    return {
        **dashboard,
        "attributes": {
            **attributes,
            "panelsJSON": json.dumps([links, text, *panels], separators=(",", ":")),
        },
        "references": [*dashboard["references"], reference],
    }
