"""Generate the dashboard files, index templates and ingest pipeline: `python kibana/build.py`, or `make kibana`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

if __package__ in {None, ""}:  # run as a script, which puts only this folder on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kibana import classic_format, lens_format
from kibana.dashboard_model import Index, Json
from kibana.index_definitions import build_index_templates, build_ingest_pipeline, data_view
from kibana.overview_panels import OVERVIEW, RIGHT_SIZING
from kibana.run_panels import FAILURES, GPU, NEURON, NEWEST_RUNS, RUN
from kibana.saved_objects import navigation, saved_search, to_json

FOLDER = Path(__file__).parent
DASHBOARDS: Final = (OVERVIEW, RUN, RIGHT_SIZING, GPU, NEURON)
PANELS: Final = tuple(panel for dashboard in DASHBOARDS for panel in dashboard.charts)
SEARCHES: Final = (FAILURES, NEWEST_RUNS)


def build_dashboards() -> dict[str, str]:
    """Generate the text of each dashboard file, by file name."""
    flavours = {"opensearch-dashboards.ndjson": False, "kibana.ndjson": True}
    return {
        name: "".join(f"{to_json(one)}\n" for one in _objects(is_lens=is_lens)) for name, is_lens in flavours.items()
    }


def _objects(*, is_lens: bool) -> Iterator[Json]:
    """The lines of a file, each with the versions of its format. An object follows the objects that it refers to."""
    versions = lens_format.VERSIONS if is_lens else classic_format.VERSIONS
    core = {"coreMigrationVersion": versions["core"]} if "core" in versions else {}
    charts = lens_format.lens_charts if is_lens else classic_format.classic_charts
    objects = (
        *(data_view(index, is_lens=is_lens) for index in get_args(Index)),
        *(saved_search(search, is_lens=is_lens) for search in SEARCHES),
        navigation(DASHBOARDS, SEARCHES),
        *(chart for dashboard in DASHBOARDS for chart in charts(dashboard)),
        *map(lens_format.lens_dashboard if is_lens else classic_format.classic_dashboard, DASHBOARDS),
    )
    for one in objects:
        yield {**one, "migrationVersion": {one["type"]: versions[one["type"]]}, **core}


def build_files() -> dict[str, str]:
    """Generate the text of every file, by its path in this folder."""
    templates = {f"index-templates/{name}.json": text for name, text in build_index_templates().items()}
    return {**build_dashboards(), **templates, "ingest/task-profiler.json": build_ingest_pipeline()}


def main() -> None:
    """Write all files."""
    for name, text in build_files().items():
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
