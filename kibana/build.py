"""Generate the dashboard files, index templates and ingest pipeline: `python kibana/build.py`, or `make kibana`."""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a script, which puts only this folder on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kibana.classic_format import build_classic_objects
from kibana.index_definitions.index_templates import build_index_templates
from kibana.index_definitions.ingest_pipeline import build_ingest_pipeline
from kibana.lens_format import build_lens_objects
from kibana.saved_objects import to_json

FOLDER = Path(__file__).parent


def build_dashboards() -> dict[str, str]:
    """Generate the text of each dashboard file, by file name."""
    flavours = {"opensearch-dashboards.ndjson": build_classic_objects, "kibana.ndjson": build_lens_objects}
    return {
        name: "".join(f"{to_json(saved_object)}\n" for saved_object in objects()) for name, objects in flavours.items()
    }


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
