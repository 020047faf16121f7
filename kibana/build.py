"""Generate the dashboard files and index templates: `python kibana/build.py`, or `make kibana`."""

import sys
from collections.abc import Iterator
from itertools import chain
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
from kibana.saved_objects import drawing_object, navigation, saved_search, to_json

FOLDER = Path(__file__).parent
DASHBOARDS: Final = (OVERVIEW, RUN, RIGHT_SIZING, GPU, NEURON)
PANELS: Final = tuple(chain.from_iterable(dashboard.charts for dashboard in DASHBOARDS))
DRAWINGS: Final = tuple(chain.from_iterable(dashboard.drawings for dashboard in DASHBOARDS))
SEARCHES: Final = (FAILURES, NEWEST_RUNS)


def _objects(form: ModuleType) -> Iterator[Json]:
    """The objects of a file. An object follows the objects that it refers to."""
    is_lens = form is lens_format
    for index in get_args(Index):
        yield data_view(index, is_lens=is_lens)
    for search in SEARCHES:
        yield saved_search(search, is_lens=is_lens)
    yield navigation(DASHBOARDS, SEARCHES)
    for dashboard in DASHBOARDS:
        yield from form.chart_objects(dashboard)
        for drawing in dashboard.drawings:
            yield drawing_object(drawing)
    for dashboard in DASHBOARDS:
        yield form.saved_dashboard(dashboard)


def _lines(form: ModuleType) -> str:
    """The text of a file: its objects, each with the versions of its format."""
    versions = form.VERSIONS
    text = ""
    for item in _objects(form):
        stamped = {**item, "migrationVersion": {item["type"]: versions[item["type"]]}}
        if "core" in versions:
            stamped["coreMigrationVersion"] = versions["core"]
        text += f"{to_json(stamped)}\n"
    return text


def build_files() -> dict[str, str]:
    """Generate the text of every file, by its path in this folder."""
    files = {
        "opensearch-dashboards.ndjson": _lines(classic_format),
        "kibana.ndjson": _lines(lens_format),
    }
    for name, template in build_index_templates().items():
        files[f"index-templates/{name}.json"] = template
    return files


if __name__ == "__main__":
    for file_name, text in build_files().items():
        (FOLDER / file_name).write_text(text, encoding="utf-8")
