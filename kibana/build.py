"""Generate the dashboard files and index templates: `python kibana/build.py`, or `make kibana`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final, get_args

if __package__ in {None, ""}:  # run as a script, which puts only this folder on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kibana import classic_format, lens_format
from kibana.dashboard_model import Index, Json
from kibana.index_definitions import build_index_templates, data_view
from kibana.overview_panels import OVERVIEW, RIGHT_SIZING
from kibana.run_panels import FAILURES, GPU, NEURON, NEWEST_RUNS, RUN
from kibana.saved_objects import navigation, saved_search, to_json

FOLDER = Path(__file__).parent
DASHBOARDS: Final = (OVERVIEW, RUN, RIGHT_SIZING, GPU, NEURON)
PANELS: Final = tuple(panel for dashboard in DASHBOARDS for panel in dashboard.charts)
SEARCHES: Final = (FAILURES, NEWEST_RUNS)


def _objects(form: ModuleType) -> Iterator[Json]:
    """The lines of a file, each with the versions of its format.

    An object follows the objects that it refers to.
    """
    versions = form.VERSIONS
    is_lens = form is lens_format
    core = {"coreMigrationVersion": versions["core"]} if "core" in versions else {}
    objects = (
        *(data_view(index, is_lens=is_lens) for index in get_args(Index)),
        *(saved_search(search, is_lens=is_lens) for search in SEARCHES),
        navigation(DASHBOARDS, SEARCHES),
        *(chart for dashboard in DASHBOARDS for chart in form.charts(dashboard)),
        *map(form.saved_dashboard, DASHBOARDS),
    )
    for one in objects:
        yield {**one, "migrationVersion": {one["type"]: versions[one["type"]]}, **core}


def build_files() -> dict[str, str]:
    """Generate the text of every file, by its path in this folder."""
    formats = {"opensearch-dashboards.ndjson": classic_format, "kibana.ndjson": lens_format}
    dashboards = {
        name: "".join(f"{to_json(one)}\n" for one in _objects(form))
        for name, form in formats.items()
    }
    templates = {
        f"index-templates/{name}.json": text for name, text in build_index_templates().items()
    }
    return {**dashboards, **templates}


if __name__ == "__main__":
    for file_name, text in build_files().items():
        (FOLDER / file_name).write_text(text, encoding="utf-8")
