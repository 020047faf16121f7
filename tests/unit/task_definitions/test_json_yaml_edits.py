"""A changed value in a text: everything else keeps its bytes, in every form of JSON and YAML."""

import json
from io import BytesIO
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from profiler.core.errors import TaskProfilerError
from profiler.record.record_model import TaskSize
from profiler.task_definitions.definition_json import ChangedDefinition
from profiler.task_definitions.definition_texts import change_text
from profiler.task_definitions.monitor_changes import AddMonitorOptions, add_monitor, remove_monitor
from profiler.task_definitions.size_changes import with_size
from tests.cases import each_case

SMALL = TaskSize(vcpu=0.25, memory_mb=512)
CONTAINERS = {"containerDefinitions": [{"name": "batch"}]}


def changed(data: bytes, after: dict[str, Any]) -> bytes:
    return change_text(data, "t", lambda *_: ChangedDefinition(definition=after)).after


def resized(text: str, encoding: str = "utf-8") -> str:
    done = change_text(
        text.encode(encoding), "t", lambda definition, *_: with_size(definition, SMALL)
    )
    again = change_text(done.after, "t", lambda definition, *_: with_size(definition, SMALL))
    assert not again.is_changed
    return done.after.decode(encoding)


def with_monitor(text: str) -> str:
    """The text with the monitor, from which its removal makes the text again, to the byte."""
    options = AddMonitorOptions(image="team/task-profiler:1")
    added = change_text(
        text.encode(), "t", lambda one, _, region: add_monitor(one, options, template_region=region)
    ).after
    assert change_text(added, "t", lambda one, *_: remove_monitor(one)).after.decode() == text
    return added.decode()


ONE_LINE = (
    '{"family":"nightly","cpu":"1024","memory":"2 '
    'GB","containerDefinitions":[{"name":"batch","image":"e"}]}'
)
TABS = (
    '{\r\n\t"memory" : "2048",\r\n\t"containerDefinitions": [ {"name": "batch", "command": '
    '["\\u00fc", "ü"]} ],\r\n\t"cpu":"1 vCPU"\r\n}'
)
YAML_FORMS = """\
# The nightly job.
family: nightly
cpu: '1024'   # one
memory: "2048"
containerDefinitions: [{name: batch, image: 'etl:26',  command: [a,   b]}]  # as ever
tags:

- {key: a,   value: "1"}
"""
BLOCKS = """\
family: nightly
cpu: "1024"
containerDefinitions:
-   name: batch
    environment:
    -   name: A
        value: |-
          two
          lines
memory: "2048"
...
"""
TEMPLATE = """\
Transform: AWS::Serverless-2016-10-31
Conditions: {Debug: !Equals [!Ref Stage, dev]}
Resources:
    Queue: {Type: AWS::SQS::Queue}
    Task:
        Type: "AWS::ECS::TaskDefinition"
        Properties:
            Cpu: 1024 # one
            Memory: '2048'
            Family: !Sub
                - ${Stage}-nightly
                - {Stage: !Ref Stage}
            ContainerDefinitions:
            - Name: !If [Debug, debug, batch]
              Image:
                Fn::Sub: ${Registry}/etl:26
              Memory: "256"
              LogConfiguration:
                LogDriver: awslogs
                Options:
                  awslogs-group: !If
                    - Debug
                    - !Ref DebugLog
                    - !Sub "/ecs/${Stage}, all"
                  awslogs-region: !Ref AWS::Region

            # the end
            - !If [Debug, {Name: shell}, !Ref AWS::NoValue]
    Last: {Type: AWS::SQS::Queue}
"""
JSON_TEMPLATE = (
    '{"Resources": {"Task": {"Type": "AWS::ECS::TaskDefinition", "Properties": {"Cpu": 1024, '
    '"Memory": "2048", "ContainerDefinitions": [{"Name": "batch", "Image": {"Ref": '
    '"Image"}}]}}}}'
)


@each_case(
    ("text", "old"),
    [
        *((text, ("1024", "2 GB")) for text in (ONE_LINE, "\ufeff" + ONE_LINE + "\n\n")),
        *((text, ("1 vCPU", "2048")) for text in (TABS, TABS.replace("\r", ""))),
        *(
            (text, ("1024", "2048"))
            for text in (YAML_FORMS, "\ufeff" + YAML_FORMS.replace("\n", "\r\n"), BLOCKS)
        ),
        *(
            (text, ("1024", "2048"))
            for text in (TEMPLATE, TEMPLATE.replace("\n", "\r\n").rstrip(), JSON_TEMPLATE)
        ),
    ],
)
def test_only_the_size_changes(text: str, old: tuple[str, str]) -> None:
    expected = text.replace(old[0], "256").replace(old[1], "512")
    assert resized(text) == expected
    if text.isascii() and "family:" not in text and text.startswith("{"):
        assert resized(text, "utf-16") == expected


B = '"containerDefinitions": [{"name": "b"}]'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{{ {B} }}", f'{{ "cpu": "256", "memory": "512", {B} }}'),
        (f'{{"a":1,{B}}}', f'{{"cpu":"256","memory":"512","a":1,{B}}}'),
        (f"{{\n  {B}\n}}", f'{{\n  "cpu": "256",\n  "memory": "512",\n  {B}\n}}'),
        (
            f'{{"cpu"\t:\n 1024 ,"a" : 1e3, {B}}}',
            f'{{"cpu"\t:\n "256","memory": "512" ,"a" : 1e3, {B}}}',
        ),
        (
            "containerDefinitions:\n- name: b\ncpu: 1",
            "containerDefinitions:\n- name: b\ncpu: '256'\nmemory: '512'",
        ),
        (f"---\n{{cpu: '1', {B}}}", f"---\n{{cpu: '256', memory: '512', {B}}}"),
    ],
)
def test_a_missing_size_becomes_the_first_member(text: str, expected: str) -> None:
    assert resized(text) == expected


@pytest.mark.diagonal
@pytest.mark.parametrize("text", [ONE_LINE, TABS, YAML_FORMS, BLOCKS, TEMPLATE, JSON_TEMPLATE])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_monitor_is_added_in_style_and_removed_to_the_byte(text: str, newline: str) -> None:
    """The monitor is added in the style of the text and removed to the byte."""
    text = text.replace("\r\n", "\n").replace("\n", newline).replace('"1 vCPU"', '"256"')
    added = with_monitor(text)
    assert added.count(newline) == added.count("\n")
    assert ("\n" in added) is ("\n" in text)
    if text.startswith("Transform"):  # functions of several lines are referred to on one
        assert (
            added.count("awslogs-group: !If [Debug, !Ref DebugLog, !Sub '/ecs/${Stage}, all']") == 1
        )
        assert f"Value: !If [Debug, debug, batch]{newline}" in added
        full = f"Fn::If: [Debug,{newline}                  debug, batch]"
        whole = with_monitor(
            text.replace("!If [Debug, debug, batch]", f"{newline}                {full}")
        )
        assert whole.count('{"Fn::If": [Debug, debug, batch]}') == 2


@pytest.mark.parametrize("value", ["!Ref Cpu", "{Ref: Cpu}", '!FindInMap [A, B, "C"]'])
def test_a_size_that_only_a_deployment_knows_is_refused(value: str) -> None:
    with pytest.raises(
        TaskProfilerError, match=r"Task: The task's cpu is .*: set 256 at its source\."
    ):
        resized(TEMPLATE.replace("1024 #", f"{value} #"))


def values_of(
    texts: st.SearchStrategy[str], keys: st.SearchStrategy[str]
) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )


values = values_of(
    st.text(max_size=5) | st.sampled_from(["a: b", "- a", "# a", "yes", "1"]), st.text(max_size=5)
)
objects = st.dictionaries(
    st.text(max_size=5) | st.sampled_from(["cpu", "memory", "a"]), values, max_size=5
)
encodings = st.sampled_from(["utf-8", "utf-16", "utf-8-sig"])


@example(
    before={"a": [1]}, after={"a": [2]}, indent=None, ascii_only=True, code="utf-8"
)  # nothing of a list is kept
@given(
    before=objects,
    after=objects,
    indent=st.none() | st.integers(0, 4),
    ascii_only=st.booleans(),
    code=encodings,
)
def test_any_json_becomes_any_other_and_has_its_bytes_again(
    before: dict[str, Any],
    after: dict[str, Any],
    indent: int | None,
    *,
    ascii_only: bool,
    code: str,
) -> None:
    before, after = {**before, **CONTAINERS}, {**after, **CONTAINERS}
    data = json.dumps(before, indent=indent, ensure_ascii=ascii_only).encode(code, "surrogatepass")
    found = changed(data, after)
    assert json.loads(found) == after
    assert json.detect_encoding(found) == json.detect_encoding(data)
    assert changed(data, before) == data


letters = st.text("ab:#-'\"{}[],&*!|>%@ \\ü", max_size=5).filter(lambda text: text[:1] != ":")
keys = st.text(
    "ab#-'{[&*!ü", min_size=1, max_size=5
)  # the library does not read all others that it writes
yaml_values = values_of(letters | st.sampled_from(["yes", "1", "two\nlines\n", "x\n\n"]), keys)
yaml_objects = st.dictionaries(keys | st.sampled_from(["cpu", "memory"]), yaml_values, max_size=5)


@settings(deadline=None)
@example(
    before={"a": ["x"], "b": {"c": 1}},
    after={"a": ["y"], "b": {"d": 1}},
    flow=False,
    indents=(2, 2, 0),
)
@given(
    yaml_objects,
    yaml_objects,
    st.booleans() | st.none(),
    st.sampled_from([(2, 2, 0), (2, 4, 2), (4, 6, 4)]),
)
def test_any_yaml_becomes_any_other(
    before: dict[str, Any],
    after: dict[str, Any],
    flow: bool | None,  # noqa: FBT001  hypothesis passes by position
    indents: tuple[int, int, int],
) -> None:
    yaml = YAML(typ="rt")
    yaml.default_flow_style, yaml.explicit_start = flow, True
    yaml.indent(*indents)
    out = BytesIO()
    yaml.dump({**before, **CONTAINERS, "z": 1}, out)
    after = {**after, **CONTAINERS, "z": 1}
    assert YAML(typ="safe", pure=True).load(changed(out.getvalue(), after)) == after
