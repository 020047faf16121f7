"""Writes the files that are imported: `python kibana/build.py`, or `make kibana`."""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kibana.classic import classic_objects
from kibana.lens import lens_objects
from kibana.lint import findings
from kibana.objects import dumped

FOLDER = Path(__file__).parent


def built() -> dict[str, str]:
    """The text of each file, by its name."""
    flavours = {"opensearch-dashboards.ndjson": classic_objects, "kibana.ndjson": lens_objects}
    return {name: "".join(f"{dumped(one)}\n" for one in objects()) for name, objects in flavours.items()}


def main() -> int:
    """Write the files, unless the lint finds something in one of them."""
    files = built()
    found = [f"{name}: {finding.rule}: {finding.text}" for name, text in files.items() for finding in findings(text)]
    if found:
        sys.stderr.write("\n".join(found) + "\n")
        return 1
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
