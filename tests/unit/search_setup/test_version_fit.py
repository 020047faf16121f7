"""Which saved objects each version of Kibana gets."""

import json
from typing import Any

from profiler.search_setup.dashboard_import import UiVersion, dashboard_objects
from profiler.search_setup.version_fit import fit_objects


def fitted(major: int, minor: int) -> list[dict[str, Any]]:
    return fit_objects(dashboard_objects("lens", "task"), UiVersion(major=major, minor=minor))


def test_the_file_is_the_format_of_older_versions() -> None:
    assert fitted(8, 11) == dashboard_objects("lens", "task")


def test_opensearch_dashboards_and_classic_charts_stay() -> None:
    classic = dashboard_objects("classic", "task")
    assert fit_objects(classic, UiVersion(major=2, minor=19)) == classic
    assert fit_objects(classic, UiVersion(major=8, minor=12)) == classic


def test_links_keep_the_time_range_and_the_filters() -> None:
    objects = {(one["type"], one["id"]): one for one in fitted(8, 12)}
    (links,) = (one for (kind, _), one in objects.items() if kind == "links")
    dashboards = {identity for kind, identity in objects if kind == "dashboard"}
    targets = {one["name"]: one["id"] for one in links["references"]}
    assert {targets[one["destinationRefName"]] for one in links["attributes"]["links"]} == dashboards
    for one in links["attributes"]["links"]:
        assert one["type"] == "dashboardLink"
        assert one["options"] == {"openInNewTab": False, "useCurrentFilters": True, "useCurrentDateRange": True}
    text = json.loads(objects["visualization", links["id"]]["attributes"]["visState"])["params"]["markdown"]
    assert "(#/view/" not in text
    assert text.count("(discover#/view/") == 2


def test_every_dashboard_has_the_links_beside_the_text() -> None:
    ids = list[str]()
    for dashboard in (one for one in fitted(8, 12) if one["type"] == "dashboard"):
        first, second, *others = json.loads(dashboard["attributes"]["panelsJSON"])
        assert (first["type"], second["type"]) == ("links", "visualization")
        grid, beside = first["gridData"], second["gridData"]
        assert (grid["x"], grid["w"], beside["x"] + beside["w"]) == (0, beside["x"], 48)
        names = [reference["name"] for reference in dashboard["references"]]
        assert f"{first['panelIndex']}:{first['panelRefName']}" in names
        assert grid["i"] == first["panelIndex"]
        ids += [panel["panelIndex"] for panel in (first, second, *others)]
    assert len(ids) == len(set(ids))
