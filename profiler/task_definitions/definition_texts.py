"""Changes the task definitions in a text: JSON, YAML, or a CloudFormation template in either of
them; a job definition of AWS Batch in JSON or YAML; and its file.

What a change does not concern keeps its place and its form. An intrinsic function of a template,
such as ``!Sub`` or ``{"Ref": …}``, counts as a text that is not known before the deployment: a
changed definition refers to it unchanged.
"""

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.files import read_text_file, write_atomically
from profiler.core.json_fields import mapping_or_empty
from profiler.core.optional_math import known
from profiler.task_definitions.container_snippets import FREE_KEYS, camel_case, pascal_case
from profiler.task_definitions.definition_json import (
    JOB_ANSWER,
    ChangedDefinition,
    TaskDefinitionDocument,
    check_definition,
    is_job_definition,
    read_document,
)
from profiler.task_definitions.job_definitions import (
    JobDefinition,
    read_job_definition,
)
from profiler.task_definitions.json_yaml_edits import EditFinder, MemberNames, TextEdit, with_edits
from profiler.task_definitions.json_yaml_style import TEMPLATE_REGION, Function, TextStyle, style_of
from profiler.task_definitions.json_yaml_tree import (
    Node,
    decoded_text,
    encoded_like,
    json_tree,
    read_json,
    yaml_tree,
)

_TYPE = "AWS::ECS::TaskDefinition"
_JOB_TYPE = "AWS::Batch::JobDefinition"
_CONTAINERS = "ContainerDefinitions"
_RESOURCES = "Resources"
# The sections of a template that a task definition cannot have.
_SECTIONS = (_RESOURCES, "AWSTemplateFormatVersion", "Transform")
_JSON = re.compile(rb"(\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\s\0]*[{\[]")
_TERRAFORM_REMEDY = (
    "the module in taskdef/terraform, or paste the container that task-profiler taskdef container "
    "--format terraform prints"
)
_BY_CDK = "what task-profiler taskdef container --format cdk prints"
# Files of code: the ends of their names, what they are, and what gives a monitor to their
# definitions.
_CODE = (
    ((".tf", ".tf.json"), "a file of Terraform", _TERRAFORM_REMEDY),
    (
        (".ts", ".mts", ".js", ".mjs", ".cjs", ".py", ".java", ".cs", ".go"),
        "a program",
        _BY_CDK,
    ),
)
_YAML_LINE = re.compile(rb"^(\xef\xbb\xbf)?(---|%YAML|[\w\"'][^\n]*:(\s|$))", re.MULTILINE)
_UNCHANGED = (
    "{} was not changed, because its form does not allow to change the definition alone: change it "
    "by hand."
)
_NUMERIC_TASK_FIELDS = ("cpu", "memory")
_CONTAINER_NUMBERS = ("memory", "memoryReservation", "stopTimeout", "cpu")
_CONTAINER_FLAGS = ("essential", "readonlyRootFilesystem")
# CloudFormation reads YAML 1.1, and flags in quotes.
_FLAGS = dict.fromkeys(("true", "yes", "on"), True) | dict.fromkeys(("false", "no", "off"), False)
_TEMPLATE_NAMES = MemberNames(lambda name: name[:1].lower() + name[1:], pascal_case, FREE_KEYS)
# Changes a definition: (definition, the ARN of its revision, the text that is a template's Region
# of the stack).
ChangeDefinition: TypeAlias = Callable[
    [Mapping[str, object], str | None, str | None], ChangedDefinition
]
ChangeJob: TypeAlias = Callable[[JobDefinition], ChangedDefinition]


class ChangedText(Struct, frozen=True, kw_only=True):
    """A text before and after a change, in one style.

    ``is_changed`` is False if it is right already.
    """

    before: bytes
    after: bytes
    is_changed: bool
    notes: tuple[str, ...] = ()


class _DefinitionInText(Struct, frozen=True, kw_only=True):
    """A definition in a text.

    ``logical_id`` is the name of a template's resource, empty for a whole document.
    """

    node: Node
    definition: Mapping[str, object]
    logical_id: str = ""

    def changed_by(self, change: ChangeDefinition) -> ChangedDefinition:
        """The changed definition. Raises TaskProfilerError, which names the resource."""
        if not self.logical_id:
            return change(self.definition, None, None)
        try:
            return change(self.definition, None, TEMPLATE_REGION)
        except TaskProfilerError as error:
            raise TaskProfilerError(f"{self.logical_id}: {error}") from error


class LocatedDefinition(Struct, frozen=True, kw_only=True):
    """A definition in a text, and the lines in which its ``cpu`` and ``memory`` are plain values.

    ``is_only_read``: the text is no JSON of a definition, in which ``resize`` writes sizes.
    """

    definition: Mapping[str, object]
    size_lines: Mapping[str, int]
    is_only_read: bool


class _SourceText(Struct, frozen=True, kw_only=True):
    """A text that is not a response of ECS. ``rest`` is its value without the definitions."""

    text: str
    root: Node
    is_yaml: bool
    is_template: bool
    places: tuple[_DefinitionInText, ...]
    rest: object


def read_definitions(
    data: bytes, source_name: str
) -> tuple[tuple[Mapping[str, object], str | None], ...]:
    """The definitions of a text, and the ARN of a revision that ECS returned.

    Raises TaskProfilerError.
    """
    document = _document_of_response(data, source_name)
    if document:
        return ((document.definition, document.arn),)
    return tuple((place.definition, None) for place in _read_source(data, source_name).places)


def located_definitions(data: bytes, source_name: str) -> tuple[LocatedDefinition, ...]:
    """The definitions of a text, with the lines of their sizes. Raises TaskProfilerError."""
    document = _document_of_response(data, source_name)
    if document is not None:
        return (
            LocatedDefinition(definition=document.definition, size_lines={}, is_only_read=False),
        )
    source = _read_source(data, source_name)
    names = _TEMPLATE_NAMES if source.is_template else MemberNames()
    located = []
    for place in source.places:
        lines = {}
        for child in place.node.children:
            name = names.read(child.key)
            is_plain = child.node.kind == "scalar" and not _is_function(child.node)
            if name in _NUMERIC_TASK_FIELDS and is_plain:
                lines[name] = source.text.count("\n", 0, child.node.start) + 1
        located.append(
            LocatedDefinition(
                definition=place.definition,
                size_lines=lines,
                is_only_read=source.is_yaml or source.is_template,
            )
        )
    return tuple(located)


def change_text(
    data: bytes, source_name: str, change: ChangeDefinition, *, keeps_form: bool = False
) -> ChangedText:
    """Change the definition in a text, or each one in a template.

    Raises TaskProfilerError, with ``source_name``.

    A response of ECS becomes the definition in it, unless ``keeps_form``.
    """
    document = None if keeps_form else _document_of_response(data, source_name)
    if document is not None:
        changed = change(document.definition, document.arn, None)
        text = decoded_text(data, source_name)
        style = style_of(text, json_tree(text, source_name), is_yaml=False)
        before = f"{style.lines(document.definition, '')}\n".encode()
        after = f"{style.lines(changed.definition, '')}\n".encode()
        return ChangedText(before=before, after=after, is_changed=True, notes=changed.notes)
    source = _read_source(data, source_name)
    finder = EditFinder(
        text=source.text,
        style=style_of(source.text, source.root, is_yaml=source.is_yaml),
        keeps_types=source.is_template,
    )
    names = _TEMPLATE_NAMES if source.is_template else MemberNames()
    edits: list[TextEdit] = []
    notes: list[str] = []
    wanted: list[object] = []
    for place in source.places:
        changed = place.changed_by(change)
        edits += finder.edits(place.node, place.definition, changed.definition, names)
        for note in changed.notes:
            notes.append(f"{place.logical_id}: {note}" if place.logical_id else note)
        wanted.append(changed.definition)
    after = data
    if edits:
        after = encoded_like(with_edits(source.text, edits), data)
        _check_only_wanted_changes(source, wanted, after, source_name)
    return ChangedText(before=data, after=after, is_changed=after != data, notes=tuple(notes))


def read_job(data: bytes, source_name: str) -> JobDefinition | None:
    """The job definition in a text; None if it is another one. Raises TaskProfilerError."""
    root = _job_root(data, source_name)
    if root is None:
        return None
    return read_job_definition(
        mapping_or_empty(_plain_value(root, "", is_template=False)), source_name
    )


def change_job_text(data: bytes, source_name: str, change: ChangeJob) -> ChangedText | None:
    """Change the job definition in a text; None if it is another text.

    Raises TaskProfilerError, with ``source_name``. An answer of AWS Batch becomes the definition in
    it.
    """
    root = _job_root(data, source_name)
    if root is None:
        return None
    text = decoded_text(data, source_name)
    is_yaml = not _JSON.match(data)
    document = mapping_or_empty(_plain_value(root, text, is_template=False))
    job = read_job_definition(document, source_name)
    changed = change(job)
    style = style_of(text, root, is_yaml=is_yaml)
    if job.arn or JOB_ANSWER in document:
        before = f"{style.lines(job.definition, '')}\n".encode()
        after = f"{style.lines(changed.definition, '')}\n".encode()
        return ChangedText(before=before, after=after, is_changed=True, notes=changed.notes)
    finder = EditFinder(text=text, style=style)
    edits = finder.edits(root, job.definition, changed.definition, MemberNames())
    after = encoded_like(with_edits(text, edits), data) if edits else data
    again = read_job(after, source_name)
    if again is None or again.definition != changed.definition:
        raise TaskProfilerError(_UNCHANGED.format(source_name))
    return ChangedText(before=data, after=after, is_changed=after != data, notes=changed.notes)


def _job_root(data: bytes, source_name: str) -> Node | None:
    """The tree of a text that is a job definition. Raises TaskProfilerError."""
    _check_kind(data, source_name)
    if not _JSON.match(data):
        text = decoded_text(data, source_name)
        root = yaml_tree(text, source_name)
    else:
        read_json(data, source_name)  # the tree is of valid JSON
        root = json_tree(decoded_text(data, source_name), source_name)
    is_other = any(name in root.members for name in (*_SECTIONS, "containerDefinitions"))
    return root if is_job_definition(root.members) and not is_other else None


def _check_kind(data: bytes, source_name: str) -> None:
    """Raise TaskProfilerError for an empty file, or one of Terraform or of a program."""
    if not data.strip():
        raise TaskProfilerError(
            f"{source_name} is empty: give the file of a task definition, a job definition or a "
            "CloudFormation template."
        )
    if _JSON.match(data) and not source_name.endswith(".tf.json"):
        return
    for endings, kind, monitor in _CODE:
        if source_name.endswith(endings):
            raise TaskProfilerError(
                f"{source_name} is {kind}, which no command changes: for a monitor, use {monitor}; "
                "for sizes, let it read the file that taskdef resize --write-sizes FILE writes."
            )


def _check_only_wanted_changes(
    source: _SourceText, wanted: list[object], after: bytes, source_name: str
) -> None:
    """Raise TaskProfilerError unless the changed text has the wanted definitions, and everything
    else as before.
    """
    try:
        changed = _read_source(after, source_name)
        definitions = [_without_functions_in_lists(place.definition) for place in changed.places]
        is_right = (
            definitions == [*map(_without_functions_in_lists, wanted)]
            and changed.rest == source.rest
        )
    except TaskProfilerError:
        is_right = False
    if not is_right:
        raise TaskProfilerError(_UNCHANGED.format(source_name))


def _without_functions_in_lists(value: object) -> object:
    """The value without the functions in lists, which no change removes."""
    if isinstance(value, dict):
        return {name: _without_functions_in_lists(item) for name, item in value.items()}
    if isinstance(value, list):
        return [
            _without_functions_in_lists(item) for item in value if not isinstance(item, Function)
        ]
    return value


def _document_of_response(data: bytes, source_name: str) -> TaskDefinitionDocument | None:
    """The document if the text is a response of ECS. Raises TaskProfilerError."""
    _check_kind(data, source_name)
    if not _JSON.match(data) and (
        source_name.endswith((".yaml", ".yml")) or _YAML_LINE.search(data)
    ):
        return None
    value = read_json(data, source_name)
    if isinstance(value, dict) and any(section in value for section in _SECTIONS):
        return None
    document = read_document(data, source_name)
    if not document.is_from_ecs:
        return None
    return document


def _read_source(data: bytes, source_name: str) -> _SourceText:
    """Raises TaskProfilerError."""
    is_yaml = not _JSON.match(data)
    text = decoded_text(data, source_name)
    root = yaml_tree(text, source_name) if is_yaml else json_tree(text, source_name)
    described = root.members.get("taskDefinition", root)
    if "containerDefinitions" in described.members:
        definition = mapping_or_empty(_plain_value(described, text, is_template=False))
        check_definition(definition, source_name)
        place = _DefinitionInText(node=described, definition=definition)
        outside = None
        if described is not root:
            outside = {
                **mapping_or_empty(_plain_value(root, text, is_template=False)),
                "taskDefinition": None,
            }
        return _SourceText(
            text=text, root=root, is_yaml=is_yaml, is_template=False, places=(place,), rest=outside
        )
    resources = _task_definitions(root, source_name, "YAML" if is_yaml else "JSON")
    places = tuple(
        _place_of_resource(logical_id, node, text) for logical_id, node in resources.items()
    )
    rest = mapping_or_empty(_plain_value(root, text, is_template=True))
    for logical_id in resources:
        resource = mapping_or_empty(mapping_or_empty(rest[_RESOURCES])[logical_id])
        rest = {
            **rest,
            _RESOURCES: {
                **mapping_or_empty(rest[_RESOURCES]),
                logical_id: {**resource, "Properties": None},
            },
        }
    return _SourceText(
        text=text, root=root, is_yaml=is_yaml, is_template=True, places=places, rest=rest
    )


def _task_definitions(root: Node, source_name: str, language: str) -> dict[str, Node]:
    """The resources of the template that are task definitions.

    Raises TaskProfilerError if there are none.
    """
    resources = root.members.get(_RESOURCES)
    if resources is None or resources.kind != "mapping":
        if is_job_definition(root.members):
            check_definition(root.members, source_name)
        raise TaskProfilerError(
            f"{source_name} is {language} without Resources and without containerDefinitions: "
            "give a CloudFormation template or a task definition."
        )
    members = resources.members.items()
    definitions = {name: resource for name, resource in members if _type_of(resource) == _TYPE}
    if not definitions:
        other = ""
        if any(_type_of(resource) == _JOB_TYPE for resource in resources.members.values()):
            other = " (job definitions of AWS Batch are changed in a JSON or YAML of their own)"
        raise TaskProfilerError(
            f"{source_name} is a CloudFormation template without a task definition{other}: give "
            f"the template whose Resources have the type {_TYPE}."
        )
    return definitions


def _type_of(resource: Node) -> object:
    """The type of a template's resource; None without one."""
    return known(attrgetter("scalar"), resource.members.get("Type"))


def _place_of_resource(logical_id: str, resource: Node, text: str) -> _DefinitionInText:
    """The definition of a template's resource, with the names and types of the API."""
    properties = resource.members.get("Properties")
    containers = None
    if properties is not None:
        containers = properties.members.get(_CONTAINERS)
    if (
        properties is None
        or containers is None
        or containers.kind != "sequence"
        or _is_function(containers)
    ):
        raise TaskProfilerError(
            f"{logical_id} has no list of ContainerDefinitions, or a function in its place: write "
            "the containers as a list."
        )
    view = mapping_or_empty(camel_case(_plain_value(properties, text, is_template=True)))
    # Templates may write numbers and flags as texts, and texts as numbers.
    typed: list[object] = []
    for container in _list_or_empty(view["containerDefinitions"]):
        if isinstance(container, dict):
            typed.append(_with_types(container))
        else:
            typed.append(container)
    definition = {"family": logical_id, **view, "containerDefinitions": typed}
    for name in _NUMERIC_TASK_FIELDS:
        if isinstance(view.get(name), int):
            definition[name] = str(view[name])
    return _DefinitionInText(node=properties, definition=definition, logical_id=logical_id)


def _with_types(container: Mapping[str, object]) -> Mapping[str, object]:
    """The container with numbers and flags in place of their texts, and with a name."""
    typed = {"name": "", **container}
    for name in _CONTAINER_NUMBERS:
        written = str(container.get(name))
        if written.isdecimal():
            typed[name] = int(written)
    for name in _CONTAINER_FLAGS:
        word = str(container.get(name)).lower()
        if word in _FLAGS:
            typed[name] = _FLAGS[word]
    return typed


def _list_or_empty(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _is_function(node: Node) -> bool:
    """Whether it is an intrinsic function, in the short form or the full one."""
    if node.tag:
        return True
    if node.kind != "mapping" or len(node.children) != 1:
        return False
    key = node.children[0].key
    return key == "Ref" or key.startswith("Fn::")


def _plain_value(node: Node, text: str, *, is_template: bool) -> object:
    """The value of the node; in a template, with functions as texts."""
    value = node.scalar
    if node.kind == "mapping":
        value = {
            name: _plain_value(item, text, is_template=is_template)
            for name, item in node.members.items()
        }
    elif node.kind == "sequence":
        value = [_plain_value(child.node, text, is_template=is_template) for child in node.children]
    if not is_template or not _is_function(node):
        return value
    flow = TextStyle(is_yaml=True).one_line(value)  # on one line, in brackets
    if node.tag:
        flow = f"{node.tag} {flow}"
    written = text[node.start : node.end]
    if "\n" in written:
        written = flow
    name = flow
    if not node.tag and node.children[0].key == "Ref":
        name = f"!Ref {node.children[0].node.scalar}"
    elif node.kind == "scalar":
        name = f"{node.tag} {node.scalar}"
    value = _plain_value(node, text, is_template=False)
    return Function.of(name, value, written=written, flow=flow)


def read_bytes(path: Path, content: str = "a task definition") -> bytes:
    """Read the file of this content. Raises TaskProfilerError if it cannot be read, or is too
    large, as a device that never ends.
    """
    try:
        with path.open("rb") as file:
            return read_text_file(file, str(path), content)
    except OSError as error:
        raise TaskProfilerError(
            f"{path} cannot be read ({error.strerror}): name the file of {content}."
        ) from error


def write_definition(path: Path, content: bytes, *, remedy: str) -> None:
    """Replace the file, with its permissions, also behind a link.

    Raises TaskProfilerError with the remedy.
    """
    try:
        write_atomically(path.resolve(), content)
    except OSError as error:
        raise TaskProfilerError(
            f"{path} cannot be written ({error.strerror}): {remedy}."
        ) from error
