"""Write the JSON Schemas of the commands' ``--json`` into docs/json.

python -m tools.command_schemas
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profiler.cli.json_lines import JSON_LINES, schema_of_command_lines
from profiler.record.record_model import Report

_FOLDER = Path(__file__).resolve().parent.parent / "docs" / "json"


def written_schemas() -> Mapping[Path, Mapping[str, Any]]:
    """The schemas by their files; that of the record is in the package."""
    schemas = {}
    for words, types in JSON_LINES.items():
        if types != (Report,):
            name = words.replace("--", "").replace("  ", " ").replace(" ", "-")
            schemas[_FOLDER / f"{name}.schema.json"] = schema_of_command_lines(words)
    return schemas


if __name__ == "__main__":
    for path, schema in written_schemas().items():
        path.write_text(f"{json.dumps(schema, indent=2)}\n")
