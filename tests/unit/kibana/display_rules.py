"""Lint rules for what a reader sees: fields, formats, links, time ranges and colours.

The letter of a rule is its subject: F = fields of data views, C = colours, T = time ranges.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, get_args

from kibana.dashboard_model import Index, Json
from kibana.index_definitions.index_templates import data_view_fields
from kibana.panel_builders import OUTCOMES

_OUTCOME_COLOURS: Final = {case.label: case.colour for case in OUTCOMES}
_TASK_FIELD: Final = "task.id"
_UNREADABLE_DURATIONS: Final = frozenset({"asMilliseconds", "asSeconds", None})


class Finding(NamedTuple):
    """A violation of one rule. ``text`` is a sentence that names the object and the problem."""

    rule: str
    text: str


def lint_display(objects: Sequence[Json], *, is_lens: bool) -> Iterator[Finding]:
    """Check all objects of a file. Their strings of JSON are valid."""
    dashboards = {obj["id"] for obj in objects if obj["type"] == "dashboard"}
    visualizations = {obj["id"]: obj for obj in objects if obj["type"] == "visualization"}
    for obj in objects:
        name = f"{obj['type']} {obj['attributes'].get('title', obj['id'])!r}"
        if obj["type"] == "index-pattern":
            yield from _data_view(obj, name, dashboards)
        elif obj["type"] == "dashboard":
            yield from _time_range(obj, name)
            if not is_lens:
                yield from _classic_colours(obj, visualizations)
        elif obj["type"] == "visualization" and "colors" in obj["attributes"].get("uiStateJSON", ""):
            yield Finding("C02", f"{name} has its colours in uiStateJSON, which OpenSearch Dashboards ignores.")
        elif obj["type"] == "lens":
            yield from _lens_colours(obj, name)


def _data_view(obj: Json, name: str, dashboards: set[str]) -> Iterator[Finding]:
    attributes = obj["attributes"]
    index = next((kind for kind in get_args(Index) if f"-{kind}-" in str(attributes.get("title"))), None)
    if index is None or json.loads(attributes.get("fields", "[]")) != data_view_fields(index):
        yield Finding("F01", f"{name} does not have the fields of the index template: no panel is drawn before a run.")
    formats = json.loads(attributes.get("fieldFormatMap", "{}"))
    for field, entry in formats.items():
        params = entry.get("params", {})
        if entry.get("id") == "duration" and params.get("outputFormat") in _UNREADABLE_DURATIONS:
            yield Finding("F02", f"{name} shows {field} in seconds: long durations are hard to read.")
    link = formats.get(_TASK_FIELD, {})
    address = str(link.get("params", {}).get("urlTemplate"))
    is_complete = (
        "{{value}}" in address and "time:" in address and any(f"/view/{known}?" in address for known in dashboards)
    )
    if link.get("id") != "url" or not address.startswith("../app/dashboards#") or not is_complete:
        yield Finding("F03", f"{name} has task ids without a link to the dashboard of one run.")


def _time_range(obj: Json, name: str) -> Iterator[Finding]:
    attributes = obj["attributes"]
    start, end = attributes.get("timeFrom"), attributes.get("timeTo")
    if attributes.get("timeRestore") is not True or not str(start).startswith("now-") or end != "now":
        yield Finding("T01", f"{name} has no time range: it would show the last 15 minutes.")


def _classic_colours(dashboard: Json, visualizations: dict[str, Json]) -> Iterator[Finding]:
    targets = {entry["name"]: entry["id"] for entry in dashboard["references"] if isinstance(entry, dict)}
    for panel in json.loads(dashboard["attributes"].get("panelsJSON", "[]")):
        drawn = visualizations.get(str(targets.get(str(panel.get("panelRefName")))))
        if drawn is None:
            continue
        colours = panel.get("embeddableConfig", {}).get("vis", {}).get("colors", {})
        wanted = _labels(json.loads(drawn["attributes"].get("visState", "{}")))
        wrong = [label for label in wanted if colours.get(label) != _OUTCOME_COLOURS.get(label, colours.get(label))]
        if missing := sorted({*(label for label in wanted if label not in colours), *wrong}):
            yield Finding(
                "C01", f"visualization {drawn['attributes'].get('title')!r} lacks the colours of {', '.join(missing)}."
            )


def _labels(state: Json) -> list[str]:
    """The legend labels that have a fixed colour: those of filters, and of colour ranges."""
    labels = [
        str(part.get("label"))
        for entry in state.get("aggs", [])
        if entry["type"] == "filters"
        for part in entry["params"].get("filters", [])
    ]
    ranges = state.get("params", {}).get("colorsRange", [])
    return labels + [f"{entry['from']:,} - {entry['to']:,}" for entry in ranges]


def _lens_colours(obj: Json, name: str) -> Iterator[Finding]:
    """An outcome is a column with a filter; Kibana 7.16 and later give a column the colour of its yConfig."""
    state = obj["attributes"].get("state", {})
    layers = state.get("datasourceStates", {}).get("indexpattern", {}).get("layers", {})
    columns = {key: column for layer in layers.values() for key, column in layer.get("columns", {}).items()}
    drawn = state.get("visualization", {}).get("layers", [])
    colours = {entry.get("forAccessor"): entry.get("color") for part in drawn for entry in part.get("yConfig", [])}
    accessors = {accessor for part in drawn for accessor in part.get("accessors", [])}
    wanted = {
        key: _OUTCOME_COLOURS[column["label"]] for key, column in columns.items() if _is_outcome(key, column, accessors)
    }
    if missing := sorted(columns[key]["label"] for key, colour in wanted.items() if colours.get(key) != colour):
        yield Finding("C01", f"{name} lacks the colours of {', '.join(missing)}.")


def _is_outcome(key: str, column: Json, accessors: set[str]) -> bool:
    return key in accessors and "filter" in column and column.get("label") in _OUTCOME_COLOURS
