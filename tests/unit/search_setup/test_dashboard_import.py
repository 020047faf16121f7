"""Importing dashboards, against answers in the shapes of real servers; what each version of
Kibana gets.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from profiler.core.errors import TaskProfilerError
from profiler.search_setup.cluster_requests import ServerResponse
from profiler.search_setup.dashboard_import import (
    Flavour,
    UiVersion,
    choose_flavour,
    dashboard_objects,
    existing_objects,
    fit_objects,
    import_dashboards,
    read_version,
)
from profiler.search_setup.search_servers import DashboardsServer

OBJECTS: list[dict[str, Any]] = [
    {"type": "index-pattern", "id": "a", "attributes": {"title": "task-reports-*"}},
    {"type": "dashboard", "id": "b"},
]


class FakeUi(DashboardsServer):
    def __init__(self, *, version: str = "8.11.0", answer: ServerResponse | None = None) -> None:
        self._version, self._answer = version, answer

    def status(self) -> ServerResponse:
        return ServerResponse(status=200, body={"name": "ui", "version": {"number": self._version}})

    def import_objects(self, file_name: str, content: bytes) -> ServerResponse:
        count = len([json.loads(line) for line in content.splitlines()])
        return self._answer or ServerResponse(
            status=200, body={"success": True, "successCount": count}
        )

    def find_objects(self, objects: Sequence[tuple[str, str]]) -> ServerResponse:
        found = [{"type": kind, "id": identity} for kind, identity in objects]
        absent = {"error": {"statusCode": 404, "message": "Not found"}}
        return self._answer or ServerResponse(
            status=200, body={"saved_objects": [found[0], {**found[1], **absent}]}
        )


def test_each_server_gets_the_charts_it_knows() -> None:
    """Each server gets the charts it knows and Lens or something else at the address is refused by
    name.
    """
    asked: tuple[tuple[str, Flavour | None], ...] = (
        ("2.19.2", None),
        ("7.17.29", None),
        ("8.1.3", None),
    )
    asked += (("8.11.0", "classic"), ("8.2.0", None), ("8.11.0-SNAPSHOT", None))
    found = [
        choose_flavour(read_version(FakeUi(version=version)), flavour) for version, flavour in asked
    ]
    assert found == ["classic"] * 4 + ["lens"] * 2
    said = r"OpenSearch Dashboards 2\.19 cannot show the Lens charts.*--flavour classic"
    with pytest.raises(TaskProfilerError, match=said):
        choose_flavour(read_version(FakeUi(version="2.19.2")), "lens")
    for other in ("", "x", "8", "8.x", "8.1x"):
        with pytest.raises(TaskProfilerError, match="no Kibana or OpenSearch Dashboards"):
            read_version(FakeUi(version=other))


def test_objects_that_are_there_already() -> None:
    assert existing_objects(FakeUi(), OBJECTS) == frozenset({("index-pattern", "a")})
    for no_list in (
        ServerResponse(status=404),
        ServerResponse(status=200, body={"saved_objects": {}}),
    ):
        assert existing_objects(FakeUi(answer=no_list), OBJECTS) is None


def test_a_prefix_renames_the_data_views_and_the_indices_of_a_ratio() -> None:
    text = "".join(json.dumps(one) for one in dashboard_objects("classic", "team"))
    assert "team-checkpoints-*" in text
    assert r"index_pattern\":\"team-reports-*" in text
    assert "task-reports-*" not in text


@pytest.mark.parametrize("flavour", ["classic", "lens"])
def test_a_prefix_renames_the_indices_inside_the_drawings(flavour: Flavour) -> None:
    searched = set()
    for item in dashboard_objects(flavour, "team"):
        state = json.loads(item["attributes"].get("visState", "{}"))
        if state.get("type") != "vega":
            continue
        for data in json.loads(state["params"]["spec"])["data"]:
            if "url" in data:
                searched.add(data["url"]["index"])
    assert searched == {"team-reports-*", "team-reports-*,team-checkpoints-*"}


REFUSALS: list[tuple[ServerResponse, str]] = [
    (
        ServerResponse(status=422, body={"message": "belongs to a more recent version"}),
        "another --flavour may fit",
    ),
    (ServerResponse(status=500, body={"message": "Invalid Version"}), "Invalid Version"),
    (ServerResponse(status=200, body={"success": True, "successCount": 1}), "1 of 2 objects"),
    (
        ServerResponse(
            status=200,
            body={"success": False, "errors": [{"error": {"type": "missing_references"}}]},
        ),
        "0 of 2 objects .*missing_references",
    ),
    (ServerResponse(status=200, body="<html>"), "0 of 2 objects"),
]


@pytest.mark.parametrize(("answer", "said"), REFUSALS)
def test_http_200_is_not_success(answer: ServerResponse, said: str) -> None:
    with pytest.raises(TaskProfilerError, match=said):
        import_dashboards(FakeUi(answer=answer), OBJECTS, "lens")


def fitted(major: int, minor: int) -> list[dict[str, Any]]:
    return fit_objects(dashboard_objects("lens", "task"), UiVersion(major=major, minor=minor))


def test_opensearch_dashboards_older_kibanas_and_classic_charts_get_the_file() -> None:
    assert fitted(8, 11) == dashboard_objects("lens", "task")
    classic = dashboard_objects("classic", "task")
    assert fit_objects(classic, UiVersion(major=2, minor=19)) == classic
    assert fit_objects(classic, UiVersion(major=8, minor=12)) == classic


def test_the_page_shows_how_many_objects_a_current_kibana_gets() -> None:
    page = Path("docs/dashboards.md").read_text()
    assert f"imported: {len(fitted(9, 0))} objects (lens)" in page


def test_links_keep_the_time_range_and_the_filters() -> None:
    from_8_12 = fitted(8, 12)
    objects = {(one["type"], one["id"]): one for one in from_8_12}
    (links,) = (one for (kind, _), one in objects.items() if kind == "links")
    dashboards = {identity for kind, identity in objects if kind == "dashboard"}
    targets = {one["name"]: one["id"] for one in links["references"]}
    assert {
        targets[one["destinationRefName"]] for one in links["attributes"]["links"]
    } == dashboards
    for one in links["attributes"]["links"]:
        assert one["type"] == "dashboardLink"
        assert one["options"] == {
            "openInNewTab": False,
            "useCurrentFilters": True,
            "useCurrentDateRange": True,
        }
    text = json.loads(objects["visualization", links["id"]]["attributes"]["visState"])["params"][
        "markdown"
    ]
    assert "(#/view/" not in text
    assert text.count("(discover#/view/") == 2
    # Every dashboard has the links beside the text.
    ids = list[str]()
    for dashboard in (one for one in from_8_12 if one["type"] == "dashboard"):
        first, second, *others = json.loads(dashboard["attributes"]["panelsJSON"])
        assert first["type"] == "links"
        assert second["type"] == "visualization"
        grid, beside = first["gridData"], second["gridData"]
        assert grid["x"] == 0
        assert grid["w"] == beside["x"]
        assert beside["x"] + beside["w"] == 48
        names = [reference["name"] for reference in dashboard["references"]]
        assert f"{first['panelIndex']}:{first['panelRefName']}" in names
        assert grid["i"] == first["panelIndex"]
        ids += [panel["panelIndex"] for panel in (first, second, *others)]
    assert len(ids) == len(set(ids))
