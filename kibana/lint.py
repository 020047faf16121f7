"""What an import takes and yet cannot be drawn, or breaks: rules over a file of saved objects.

I: envelope. J: JSON in strings. R: references. D: dashboards. L: Lens. A: classic aggregations. H: heatmaps.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kibana.lint_charts import classic_findings, lens_findings
from kibana.lint_finding import Finding, Json, name_of

_UUID_VERSION = 5
_GRID_COLUMNS = 48
_ENVELOPE = {"type": str, "id": str, "attributes": dict, "references": list}
_ATTRIBUTES: Final[Mapping[str, frozenset[str]]] = {
    "index-pattern": frozenset({"title", "timeFieldName", "fields", "fieldFormatMap", "name"}),
    "visualization": frozenset(
        {"title", "description", "version", "kibanaSavedObjectMeta", "uiStateJSON", "visState", "savedSearchRefName"}
    ),
    "lens": frozenset({"title", "description", "visualizationType", "state"}),
    "dashboard": frozenset(
        {"title", "description", "kibanaSavedObjectMeta", "timeRestore", "timeFrom", "timeTo", "refreshInterval"}
        | {"panelsJSON", "optionsJSON", "hits", "version"}
    ),
}
_JSON_STRINGS: Final = ("fields", "fieldFormatMap", "visState", "uiStateJSON", "panelsJSON", "optionsJSON")
# The newest stamps that the oldest product of a flavour knows.
_CLASSIC_STAMPS: Final = {"index-pattern": (7, 6, 0), "visualization": (7, 10, 0), "dashboard": (7, 9, 3)}
_LENS_STAMPS: Final = {"index-pattern": (7, 11, 0), "lens": (7, 16, 0), "dashboard": (7, 16, 0)}
_CORE_STAMP: Final = (7, 16, 0)


def findings(text: str) -> list[Finding]:
    """All that is wrong with a file; an empty list is what one wants."""
    found: list[Finding] = []
    objects: list[Json] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            one = json.loads(line)
        except ValueError:
            one = None
        if isinstance(one, dict) and all(isinstance(one.get(key), kind) for key, kind in _ENVELOPE.items()):
            objects.append(one)
        else:
            found.append(Finding("I02", f"Line {number} is no saved object with type, id, attributes and references."))
    is_lens = any(one["type"] == "lens" for one in objects)
    found += _duplicates(objects)
    known = {(one["type"], one["id"]) for one in objects}
    for one in objects:
        found += _envelope(one, is_lens=is_lens)
        found += _content(one, known)
    return found


def _content(one: Json, known: set[tuple[str, str]]) -> Iterator[Finding]:
    broken = list(_json_strings(one))
    yield from broken
    if broken:  # the rest would only say the same again
        return
    yield from _references(one, known)
    if one["type"] == "index-pattern":
        yield from _data_view(one)
    elif one["type"] == "dashboard":
        yield from _dashboard(one)
    elif one["type"] == "visualization":
        yield from classic_findings(one)
    elif one["type"] == "lens":
        yield from lens_findings(one)


def _duplicates(objects: Sequence[Json]) -> Iterator[Finding]:
    counts = Counter((one["type"], one["id"]) for one in objects)
    for (kind, identity), count in counts.items():
        if count > 1:
            yield Finding("I01", f"{kind} {identity} is in the file {count} times; the server refuses all of it.")


def _envelope(one: Json, *, is_lens: bool) -> Iterator[Finding]:
    kind, name = one["type"], name_of(one)
    allowed = _LENS_STAMPS if is_lens else _CLASSIC_STAMPS
    if kind not in allowed:
        yield Finding("I03", f"{name} is of a type that the products of this file do not have.")
        return
    if unknown := sorted(set(one["attributes"]) - _ATTRIBUTES[kind]):
        yield Finding("I05", f"{name} has attributes that the strict mapping refuses: {', '.join(unknown)}.")
    stamp = _version(one.get("migrationVersion", {}).get(kind))
    core = one.get("coreMigrationVersion")
    if stamp is None:
        yield Finding("I04", f"{name} has no stamp: all migrations since 0 would run over it.")
    elif stamp > allowed[kind] or (core is not None and (_version(core) or _CORE_STAMP) > _CORE_STAMP):
        yield Finding("I06", f"{name} has a stamp that the oldest product does not know; it refuses the whole file.")
    if core is not None and not is_lens:
        yield Finding("I06", f"{name} has a core stamp, which OpenSearch Dashboards does not know.")
    if not _is_stable_id(one["id"]):
        yield Finding("I07", f"{name} has an id that is no UUID of version 5.")


def _version(text: object) -> tuple[int, ...] | None:
    if isinstance(text, str) and re.fullmatch(r"\d+\.\d+\.\d+", text):
        return tuple(int(part) for part in text.split("."))
    return None


def _is_stable_id(text: str) -> bool:
    try:
        return UUID(text).version == _UUID_VERSION
    except ValueError:
        return False


def _json_strings(one: Json) -> Iterator[Finding]:
    attributes = one["attributes"]
    members = {key: attributes[key] for key in _JSON_STRINGS if key in attributes}
    if one["type"] in {"visualization", "dashboard"}:
        meta = attributes.get("kibanaSavedObjectMeta")
        members["searchSourceJSON"] = meta.get("searchSourceJSON") if isinstance(meta, dict) else None
    for key, text in members.items():
        try:
            json.loads(text)
        except (TypeError, ValueError):
            yield Finding("J01", f"{name_of(one)}: {key} is no JSON in a string.")


def _references(one: Json, known: set[tuple[str, str]]) -> Iterator[Finding]:
    name = name_of(one)
    try:
        targets = {entry["name"]: (entry["type"], entry["id"]) for entry in one["references"]}
    except (KeyError, TypeError):
        yield Finding("R01", f"{name} has a reference without name, type or id.")
        return
    if len(targets) != len(one["references"]):
        yield Finding("R01", f"{name} has two references of one name.")
    for kind, identity in targets.values():
        if (kind, identity) not in known:
            rule = "R02" if kind == "index-pattern" else "R03"
            yield Finding(rule, f"{name} refers to the {kind} {identity}, which is not in the file.")
    used = _used_names(one)
    for missing in sorted(used - set(targets)):
        yield Finding("R04", f"{name} names the reference {missing}, which it does not have.")
    for unused in sorted(set(targets) - used):
        yield Finding("R05", f"{name} has the reference {unused}, which nothing in it names.")


def _used_names(one: Json) -> set[str]:
    attributes = one["attributes"]
    if one["type"] == "lens":
        layers = attributes.get("state", {}).get("datasourceStates", {}).get("indexpattern", {}).get("layers", {})
        own = {f"indexpattern-datasource-layer-{layer}" for layer in layers}
        return own | {"indexpattern-datasource-current-indexpattern"} | set(_ref_names(attributes))
    parts = [json.loads(attributes.get("kibanaSavedObjectMeta", {}).get("searchSourceJSON", "{}"))]
    parts.append(json.loads(attributes.get("visState", "{}")))
    used = {name for part in parts for name in _ref_names(part)}
    is_prefixed = one.get("coreMigrationVersion") is not None  # since 7.11
    for panel in json.loads(attributes.get("panelsJSON", "[]")):
        prefix = f"{panel.get('panelIndex')}:" if is_prefixed else ""
        used |= {f"{prefix}{name}" for name in _ref_names(panel)}
    return used


def _ref_names(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.endswith("RefName") and isinstance(inner, str):
                yield inner
            else:
                yield from _ref_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _ref_names(inner)


def _data_view(one: Json) -> Iterator[Finding]:
    """A Kibana that knows Lens's dialect of 7.16 knows the precise durations of 7.14, too."""
    formats = json.loads(one["attributes"].get("fieldFormatMap", "{}"))
    outputs = {entry.get("params", {}).get("outputFormat") for entry in formats.values()}
    if "humanizePrecise" in outputs and one.get("coreMigrationVersion") is None:
        yield Finding("I08", f"{name_of(one)} has a format on which OpenSearch Dashboards fails when it draws.")


def _dashboard(one: Json) -> Iterator[Finding]:
    name = name_of(one)
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(one["attributes"].get("panelsJSON", "[]")):
        number, grid = panel.get("panelIndex"), panel.get("gridData", {})
        if number != grid.get("i"):
            yield Finding("D01", f"{name}: panel {number} and its place on the grid have different numbers.")
        if not panel.get("version"):
            yield Finding("D02", f"{name}: panel {number} has no version, on which 7.17's migrations fail.")
        if "panelRefName" not in panel:
            yield Finding("D04", f"{name}: panel {number} shows nothing.")
        x, y, width, height = (grid.get(key, -1) for key in "xywh")
        cells = {(column, row) for column in range(x, x + width) for row in range(y, y + height)}
        if x < 0 or y < 0 or not cells or x + width > _GRID_COLUMNS or cells & taken:
            yield Finding("D03", f"{name}: panel {number} leaves the grid or covers another panel.")
        taken |= cells
