"""CloudFormation templates in JSON and YAML: changes their task definitions and keeps everything else.

An intrinsic function, such as ``!Sub`` or ``{"Ref": …}``, counts as a text that is not known before the deployment. The
changed definition refers to it unchanged. Comments and quotes of YAML are kept.
"""

import copy
import json
import re
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, TypeAlias

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping
from profiler.core.text import install_hint
from profiler.task_definitions.container_snippets import camel_case, pascal_case
from profiler.task_definitions.definition_json import ChangedDefinition, ChangedText, json_style, read_json

_TYPE = "AWS::ECS::TaskDefinition"
_CONTAINERS = "ContainerDefinitions"
_RESOURCES = "Resources"
# The sections of a template that a task definition cannot have.
_SECTIONS = (_RESOURCES, "AWSTemplateFormatVersion", "Transform")
_JSON = re.compile(rb"(\xef\xbb\xbf)?\s*[{\[]")
_YAML_LINE = re.compile(rb"^(---|%YAML|[\w\"'][^\n]*:(\s|$))", re.MULTILINE)
_REF = "Ref"
_NUMBERS = ("memory", "memoryReservation", "stopTimeout", "cpu")
_SEQUENCE = re.compile(r"^( *)[^\s#-][^\n]*:[ \t]*\n( *)- ", re.MULTILINE)
_MAPPING = re.compile(r"^\S[^\n]*:[ \t]*\n( +)\S", re.MULTILINE)
# Changes a definition: (definition, the template's reference to the Region of the stack).
ChangeInTemplate: TypeAlias = Callable[[Mapping[str, object], Mapping[str, object]], ChangedDefinition]
# No line of a template is folded.
_WIDTH = 2**16


def is_template(data: bytes) -> bool:
    """Whether this is to be read as a template: text that looks like YAML, or JSON with a template's sections."""
    if not _JSON.match(data):
        return _YAML_LINE.search(data) is not None
    try:
        document = json.loads(data)
    except ValueError:
        return False
    return isinstance(document, dict) and any(section in document for section in _SECTIONS)


def change_template(data: bytes, source_name: str, change: ChangeInTemplate) -> ChangedText:
    """Change each task definition of a template, which ``source_name`` names in error messages.

    Raises TaskProfilerError if it cannot be read or has no task definition, or a definition cannot be changed.
    """
    is_json = _JSON.match(data) is not None
    template = read_json(data, source_name) if is_json else _read_yaml(data, source_name)
    before = copy.deepcopy(template)
    notes: list[str] = []
    for logical_id, resource in _task_definitions(template, source_name, "JSON" if is_json else "YAML").items():
        notes += (f"{logical_id}: {note}" for note in _change_resource(logical_id, resource, change))
    if template == before:
        return ChangedText(before=data, after=data, is_changed=False, notes=tuple(notes))
    if is_json:
        changed = json_style(data)(template)
    else:
        out = BytesIO()
        _yaml_library(data).dump(template, out)
        changed = out.getvalue()
    return ChangedText(before=data, after=changed, is_changed=changed != data, notes=tuple(notes))


def _task_definitions(template: Any, source_name: str, language: str) -> dict[str, dict[str, Any]]:  # noqa: ANN401
    """The resources of the template that are task definitions. Raises TaskProfilerError if there are none."""
    resources = template.get(_RESOURCES) if isinstance(template, dict) else None
    if not isinstance(resources, dict):
        raise TaskProfilerError(
            f"{source_name} is {language} without Resources, so it is not a CloudFormation template: give a template, "
            "or a task definition in JSON."
        )
    definitions = {
        str(name): resource
        for name, resource in resources.items()
        if isinstance(resource, dict) and resource.get("Type") == _TYPE
    }
    if not definitions:
        raise TaskProfilerError(
            f"{source_name} is a CloudFormation template without a task definition: give the template whose Resources "
            f"have the type {_TYPE}."
        )
    return definitions


def _change_resource(logical_id: str, resource: dict[str, Any], change: ChangeInTemplate) -> tuple[str, ...]:
    properties = resource.get("Properties")
    containers = properties.get(_CONTAINERS) if isinstance(properties, dict) else None
    if not isinstance(properties, dict) or not isinstance(containers, list) or _is_function(containers):
        raise TaskProfilerError(
            f"{logical_id} has no list of ContainerDefinitions, or a function in its place: write the containers as a "
            "list."
        )
    functions: dict[str, Any] = {}
    raw = [container for container in containers if isinstance(container, dict) and not _is_function(container)]
    view = mapping(camel_case(_plain({**properties, _CONTAINERS: raw}, functions)))
    numbered = [
        # Templates may write numbers as texts.
        {"name": "", **one} | {name: int(one[name]) for name in _NUMBERS if str(one.get(name)).isdecimal()}
        for one in _list(view)
    ]
    definition = {"family": logical_id, **view, "containerDefinitions": numbered}
    try:
        changed = change(definition, {_REF: "AWS::Region"})
    except TaskProfilerError as error:
        raise TaskProfilerError(f"{logical_id}: {error}") from error
    _write_back(properties, raw, definition, changed.definition, functions)
    return changed.notes


def _write_back(
    properties: dict[str, Any],
    raw: list[dict[str, Any]],
    before: Mapping[str, object],
    after: Mapping[str, object],
    functions: Mapping[str, Any],
) -> None:
    """Write what differs between the two definitions into the properties."""
    _update(properties, before, after, functions, ignored=("containerDefinitions", "family"))
    containers = properties[_CONTAINERS]
    left = {container["name"]: container for container in _list(after)}
    kept = [old["name"] for old in _list(before) if old["name"] in left]
    for node, old in zip(raw, _list(before), strict=True):
        new = left.pop(old["name"], None)
        is_moved = new is _list(after)[-1] and old["name"] != kept[-1]
        if new is None or is_moved:
            del containers[next(index for index, container in enumerate(containers) if container is node)]
        if new is not None:
            _update(node, old, new, functions)
        if is_moved:
            containers.append(node)
    containers.extend(_restored(pascal_case(container), functions) for container in left.values())


def _update(
    node: dict[str, Any],
    before: Mapping[str, object],
    after: Mapping[str, object],
    functions: Mapping[str, Any],
    ignored: tuple[str, ...] = (),
) -> None:
    for name in (*before, *(name for name in after if name not in before)):
        if name in ignored or before.get(name) == after.get(name):
            continue
        ((field, value),) = mapping(pascal_case({name: after.get(name)})).items()
        if name in after:
            node[field] = _restored(value, functions)
        else:
            del node[field]


def _list(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    containers: list[dict[str, Any]] = definition["containerDefinitions"]
    return containers


def _is_function(node: object) -> bool:
    tag = getattr(getattr(node, "tag", None), "value", None)  # of ruamel.yaml's nodes
    if tag is not None and tag.startswith("!") and not tag.startswith("!!"):
        return True
    if not isinstance(node, dict) or len(node) != 1:
        return False
    (name,) = node
    return name == _REF or str(name).startswith("Fn::")


def _plain(node: Any, functions: dict[str, Any]) -> Any:  # noqa: ANN401  a template's node
    """The node without functions and without the types of the YAML library."""
    if _is_function(node):
        name = _function_text(node)
        functions[name] = node
        return name
    if isinstance(node, dict):
        return {str(name): _plain(item, functions) for name, item in node.items()}
    if isinstance(node, list):
        return [_plain(item, functions) for item in node]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (int, float):
        if isinstance(node, kind):
            return kind(node)
    return str(node)


def _function_text(node: Any) -> str:  # noqa: ANN401  as above
    """A readable name of the function."""
    tag = getattr(getattr(node, "tag", None), "value", None)
    value = getattr(node, "value", node)
    written = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return f"{tag} {written}" if tag is not None else written


def _restored(value: Any, functions: Mapping[str, Any]) -> Any:  # noqa: ANN401  as above
    if isinstance(value, str):
        return copy.deepcopy(functions[value]) if value in functions else value
    if isinstance(value, dict) and not _is_function(value):
        return {name: _restored(item, functions) for name, item in value.items()}
    return [_restored(item, functions) for item in value] if isinstance(value, list) else value


def _yaml_library(data: bytes) -> Any:  # noqa: ANN401  a class of an optional library
    try:
        from ruamel.yaml import YAML
    except ImportError as error:
        raise TaskProfilerError(f"Templates in YAML need ruamel.yaml: {install_hint('ruamel.yaml')}.") from error
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    written = data.decode(errors="replace")
    sequence, indent = _SEQUENCE.search(written), _MAPPING.search(written)
    offset = len(sequence[2]) - len(sequence[1]) if sequence else 2
    yaml.indent(mapping=len(indent[1]) if indent else 2, sequence=max(offset, 0) + 2, offset=max(offset, 0))
    return yaml


def _read_yaml(data: bytes, source_name: str) -> Any:  # noqa: ANN401  a template
    yaml = _yaml_library(data)
    from ruamel.yaml.error import YAMLError

    try:
        return yaml.load(data)
    except (YAMLError, ValueError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f" in line {line + 1}"
        raise TaskProfilerError(f"{source_name} is not valid YAML: correct the mistake{where}.") from error
