"""The JSON Schema of the record."""

from inspect import cleandoc
from typing import Any

import msgspec

from profiler.record import SCHEMA_VERSION, Report


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a line."""
    schema = msgspec.json.schema(Report)
    for definition in schema["$defs"].values():
        # Python 3.13 takes the indentation out of docstrings, older ones keep it.
        definition["description"] = cleandoc(definition["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Task Profiler report, schema version " + SCHEMA_VERSION,
        **schema,
    }
