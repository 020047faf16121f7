"""Generate the dashboard files to import: `python kibana/build.py`, or `make kibana`."""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a script, which puts only this folder on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kibana.classic import build_classic_objects
from kibana.lens import build_lens_objects
from kibana.lint import lint_file
from kibana.objects import to_json

FOLDER = Path(__file__).parent


def build_files() -> dict[str, str]:
    """Generate the text of each file, by file name."""
    flavours = {"opensearch-dashboards.ndjson": build_classic_objects, "kibana.ndjson": build_lens_objects}
    return {
        name: "".join(f"{to_json(saved_object)}\n" for saved_object in objects()) for name, objects in flavours.items()
    }


def main() -> int:
    """Lint the files and write them. Returns 1 and writes nothing if the lint has findings."""
    files = build_files()
    found = [f"{name}: {finding.rule}: {finding.text}" for name, text in files.items() for finding in lint_file(text)]
    if found:
        sys.stderr.write("\n".join(found) + "\n")
        return 1
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
