"""``task-profiler kibana import`` against a server that answers as Kibana and OpenSearch
Dashboards do.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.command_line import run_here
from tests.documentation import blocks, is_shortened
from tests.fake_dashboards import PlayedDashboards


@pytest.fixture
def played(request: pytest.FixtureRequest) -> Iterator[PlayedDashboards]:
    with PlayedDashboards(getattr(request, "param", "8.11.0")) as server:
        yield server


import_ = partial(run_here, {}, "kibana", "import")


@pytest.mark.parametrize(
    ("played", "flavour"),
    [("8.11.0", "lens"), ("7.10.2", "classic"), ("2.19.2", "classic")],
    indirect=["played"],
)
def test_dashboards_and_templates_go_through_one_address(
    played: PlayedDashboards, flavour: str
) -> None:
    for _ in range(2):
        done = import_("--url", played.url, "--prefix", "team")
        assert done.returncode == 0, done.stderr
    assert f"objects ({flavour})" in done.stdout
    assert "/_index_template/team-reports" in played.put
    indices = ["team-reports", "team-checkpoints", "team-notices"]
    assert [path.rsplit("-", 1)[0] for path in played.put][-3:] == [
        f"/{index}" for index in indices
    ]
    name, objects = played.imports[-1]
    assert name == f"task-profiler-{flavour}.ndjson"
    titles = {one["attributes"]["title"] for one in objects if one["type"] == "index-pattern"}
    assert titles == {f"{index}-*" for index in indices}


@pytest.mark.parametrize("played", ["9.0.0"], indirect=True)
def test_an_import_says_what_the_page_shows(played: PlayedDashboards) -> None:
    (shown,) = (block.text for block in blocks(Path("docs/dashboards.md"), "text"))
    assert is_shortened(shown, import_("--url", played.url).stdout)


def test_an_import_says_what_it_overwrites_and_can_leave_it(played: PlayedDashboards) -> None:
    assert "overwrit" not in import_("--url", played.url).stdout
    count = len(played.imports[0][1])
    played.imports = [(name, objects[1:]) for name, objects in played.imports]
    assert (
        f"kept: {count - 1} existing objects"
        in import_("--url", played.url, "--keep-existing").stdout
    )
    assert len(played.imports[-1][1]) == 1
    again = import_("--url", played.url)
    assert (
        f"overwriting: {count} existing objects and your edits of them; --keep-existing keeps them"
        in again.stdout
    )
    assert again.stdout.index("overwriting") < again.stdout.index("imported")


def test_a_dry_run_imports_nothing(played: PlayedDashboards) -> None:
    done = import_("--url", played.url, "--dry-run")
    assert "would import" in done.stdout
    rows = [
        *map(json.loads, import_("--url", played.url, "--dry-run", "--json").stdout.splitlines())
    ]
    assert [f"{row['action']}: {row['what']}" for row in rows] == done.stdout.splitlines()
    assert played.imports == []
    assert played.put == {}


def test_without_a_console_the_dashboards_are_installed_in_the_wanted_flavour(
    played: PlayedDashboards,
) -> None:
    played.has_console = False
    done = import_("--url", played.url, "--flavour", "classic")
    assert done.returncode == 0
    assert "give --elasticsearch URL" in done.stderr
    ((_, objects),) = played.imports
    assert "lens" not in {one["type"] for one in objects}


def test_usage() -> None:
    for option in ("--url", "--elasticsearch"):
        done = import_(option, "localhost:5601")
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1
        assert "add http:// or https://" in done.stderr
    nothing = import_()
    assert nothing.returncode == 2, nothing.stderr
    assert nothing.stderr.count("\n") == 1
    assert import_("--url", "http://127.0.0.1:9").returncode == 1
    assert import_("--elasticsearch", "http://x", "--prefix", "Not Good").returncode == 2
    assert import_("--elasticsearch", "http://x", "--user", "nobody").returncode == 2
