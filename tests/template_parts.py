"""The parameters and queries of the template."""

from collections.abc import Mapping
from typing import Any

from profiler.record.record_model import json_schema
from tests.cloudformation import template

PARAMETERS: dict[str, Any] = template()["Parameters"]


QUERIES = {name: one["Text"] for name, one in template()["Mappings"]["Query"].items()}


def properties_of(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties of a part of the schema, through references and "or null"."""
    for option in [part, *part.get("anyOf", [])]:
        if "$ref" in option:
            return dict(schema["$defs"][option["$ref"].rsplit("/", 1)[-1]]["properties"])
    return {}


def is_in_the_record(path: str) -> bool:
    schema = json_schema()
    part: Mapping[str, Any] = schema
    for name in path.split("."):
        properties = properties_of(part, schema)
        if name not in properties:
            return False
        part = properties[name]
    return not properties_of(part, schema)  # a number or a text, no object
