"""CloudFormation templates: the monitor is added and removed, functions and comments are kept."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.definition_texts import (
    ChangedText,
    change_text,
    located_definitions,
    read_definitions,
    read_job,
)
from profiler.task_definitions.monitor_changes import AddMonitorOptions, add_monitor, remove_monitor
from tests.cases import each_case

YAML = """\
# The nightly job.
Resources:
  Task:
    Type: AWS::ECS::TaskDefinition
    Properties:
      Family: !Sub "${AWS::StackName}-nightly"
      TaskRoleArn: !GetAtt Role.Arn
      Memory: '1024'
      ContainerDefinitions:
        - Name: !Sub ${AWS::StackName}-batch
          Image: !Ref Image   # pushed by CI
          Environment:
            - {Name: A, Value: !If [X, "1", !Ref AWS::NoValue]}
          LogConfiguration:
            LogDriver: awslogs
            Options:
              awslogs-group: !Ref LogGroup
              awslogs-region: !Ref AWS::Region
              awslogs-stream-prefix: ecs
"""
ADDED = """\
        - Name: task-monitor
          Image: team/task-profiler:1
          Command:
            - monitor
          Essential: false
          DependsOn:
            - ContainerName: !Sub ${AWS::StackName}-batch
              Condition: START
          StopTimeout: 120
          MemoryReservation: 32
          Memory: 128
          User: '65532'
          ReadonlyRootFilesystem: true
          Environment:
            - Name: TASK_PROFILER_CONTAINER
              Value: !Sub ${AWS::StackName}-batch
          LogConfiguration:
            LogDriver: awslogs
            Options:
              awslogs-group: !Ref LogGroup
              awslogs-region: !Ref AWS::Region
              awslogs-stream-prefix: ecs
"""


def add(data: bytes, **options: Any) -> ChangedText:
    given_options = AddMonitorOptions(image="team/task-profiler:1", **options)
    return change_text(
        data,
        "t.yaml",
        lambda one, _, region: add_monitor(one, given_options, template_region=region),
    )


def remove(data: bytes) -> bytes:
    return change_text(data, "t.yaml", lambda definition, *_: remove_monitor(definition)).after


def test_yaml_gets_the_container_and_keeps_every_other_line() -> None:
    added = add(YAML.encode())
    assert added.after.decode() == YAML + ADDED
    assert added.notes == ()
    assert add(added.after).after == added.after
    assert remove(added.after).decode() == YAML


@pytest.mark.parametrize("field", ["Environment", "DependsOn", "Command", "LogConfiguration"])
def test_a_function_in_place_of_a_field_of_the_monitor_is_no_error(field: str) -> None:
    monitor = (
        f"        - {{Name: task-monitor, Image: team/task-profiler:1, {field}: !If [X, !Ref A, "
        "!Ref B]}\n"
    )
    added = add((YAML + monitor).encode())
    assert f"Task: The monitor's {field[0].lower()}{field[1:]} changes: " in " ".join(added.notes)


def template(*containers: Any, **properties: Any) -> bytes:
    task = {
        "Type": "AWS::ECS::TaskDefinition",
        "Properties": {"ContainerDefinitions": list(containers), **properties},
    }
    return json.dumps(
        {"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}, "Task": task}}, indent=4
    ).encode()


def test_json_gets_the_container_and_its_own_log_in_the_stacks_region() -> None:
    """A text that looks like a function stays a text."""
    batch = {"Name": "!Ref Name", "Image": {"Ref": "Image"}, "Memory": "512"}
    before = template(batch, Memory="1024")
    added = add(before)
    containers = json.loads(added.after)["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    assert containers[0] == batch
    assert containers[1]["Environment"][0]["Value"] == "!Ref Name"
    assert containers[1]["LogConfiguration"]["Options"] == {
        "awslogs-group": "/ecs/Task",
        "awslogs-region": {"Ref": "AWS::Region"},
        "awslogs-stream-prefix": "ecs",
    }
    assert "Task: The batch '!Ref Name' does not log by awslogs" in added.notes[0]
    assert json.loads(remove(added.after)) == json.loads(before)
    assert added.after.startswith(b'{\n    "Resources"')


def test_a_family_that_only_a_deployment_knows_names_no_log_group() -> None:
    before = YAML.replace("LogDriver: awslogs", "LogDriver: splunk").encode()
    with pytest.raises(
        TaskProfilerError, match=r"knows the family \(!Sub .*\): name the group with --log-group"
    ):
        add(before)
    added = add(before, log_group="/ecs/nightly").after
    assert b"awslogs-group: /ecs/nightly\n" in added
    assert add(added).after == added
    # Nor do such log options.
    batch = {
        "Name": "b",
        "LogConfiguration": {"LogDriver": "awslogs", "Options": {"Fn::If": ["A", {}, {}]}},
    }
    added = add(template(batch, Family="n")).after
    assert b'"awslogs-group": "/ecs/n"' in added
    assert add(added).after == added


@pytest.mark.parametrize("no", ["'false'", "false", "no", "Off"])
def test_a_templates_flag_may_be_a_text(no: str) -> None:
    side = f"        - {{Name: side, Image: proxy, Essential: {no}}}\n"
    added = add((YAML + side).encode()).after.decode()
    assert added == YAML + side + ADDED
    in_quotes = re.sub("(Essential|ReadonlyRootFilesystem): (true|false)\n", r"\1: '\2'\n", added)
    assert add(in_quotes.encode()).after.decode() == in_quotes


def test_a_monitor_before_the_batch_moves_to_the_end() -> None:
    start, containers, batch = YAML.partition("      ContainerDefinitions:\n")
    before = (start + containers + ADDED + batch).encode()
    changed = add(before)
    assert changed.after.decode() == YAML + ADDED
    assert changed.notes == ("Task: The monitor moves to the end of the containers.",)
    assert not add(changed.after).is_changed
    lacking = re.sub(r" +DependsOn:\n.*\n.*\n", "", YAML + ADDED).replace("\n", "\r\n").encode()
    mended = add(lacking).after
    assert mended.count(b"DependsOn:\r\n") == 1
    assert mended.count(b"\r\n") == mended.count(b"\n")


@each_case(
    ("data", "sentence"),
    [
        (b'{"AWS::ECS::TaskDefinition"', "not valid JSON"),
        (b"Resources:\n  A: 1\n B: 2\n", "not valid YAML: correct the mistake in line 3"),
        (b"family: etl\ncontainers:\n  - name: etl\n", "t.yaml is YAML without Resources"),
        (b"family: etl\ncontainerDefinitions: []\n", "t.yaml is not a task definition"),
        (b"A: 1\nA: 2\n", "not valid YAML: correct the mistake"),
        (b"A: 1\n---\nA: 2\n", "not valid YAML: correct the mistake"),
        (b"A: &x 1\nB: *x\n", "has an alias in line 2: write the value in place of"),
        (b"A: \xff\n", "not a text in UTF-8"),
        (b'{"Transform": "x"}', "t.yaml is JSON without Resources"),
        (b"\t- a", "not valid YAML: correct the mistake in line 1"),
        (b"[" * 100_000, "t.yaml has too many levels"),
        (b'{"containerDefinitions": [{}], "a": ' + b"[" * 600 + b"]" * 600 + b"}", "many levels"),
        (b'{"containerDefinitions": [{}], "a": ' + b"[" * 100 + b"]" * 100 + b"}", "many levels"),
        (b"Resources: " + b"{a: " * 3000 + b"}" * 3000, "too many levels"),
        (b"containerDefinitions: [{}]\na: " + b"[" * 100 + b"]" * 100, "too many levels"),
        (b"\n".join(b" " * level + b"a:" for level in range(102)), "too many levels"),
        (
            b"Resources:\n  A:\n    Type: AWS::SQS::Queue\n",
            "template without a task definition: give",
        ),
        (
            template().replace(
                b'"ContainerDefinitions": []', b'"ContainerDefinitions": {"Ref": "X"}'
            ),
            "as a list",
        ),
        (template({"Name": "a"}, {"Name": "b"}), "Task: Several containers could be the batch"),
    ],
)
def test_what_cannot_be_changed_is_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(TaskProfilerError, match=sentence) as refused:
        add(data)
    assert "\n" not in str(refused.value)


def test_a_file_of_terraform_gets_the_ways_for_terraform() -> None:
    resource = b'resource "aws_ecs_task_definition" "etl" {}'
    with pytest.raises(TaskProfilerError, match="taskdef container --format terraform prints"):
        read_definitions(resource, "jobs.tf")


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("jobs.tf.json", '{"resource": {"aws_ecs_task_definition": {}}}', "terraform"),
        ("app.ts", 'import * as ecs from "aws-cdk-lib/aws-ecs";\nconst a: number = 1;\n', "cdk"),
        ("app.py", "from aws_cdk import aws_ecs as ecs\n", "cdk"),
        ("main.go", "package main\n", "cdk"),
    ],
)
def test_code_gets_the_ways_for_code(name: str, text: str, language: str) -> None:
    for read in (read_definitions, read_job, located_definitions):
        with pytest.raises(TaskProfilerError) as refused:
            read(text.encode(), name)
        assert f"taskdef container --format {language} prints" in str(refused.value)
        assert "resize --write-sizes FILE" in str(refused.value)


def test_a_definition_in_json_is_one_whatever_its_name() -> None:
    text = b'{"family": "etl", "containerDefinitions": [{"name": "etl", "image": "etl:1"}]}'
    ((definition, _),) = read_definitions(text, "definition.py")
    assert definition["family"] == "etl"


@pytest.mark.parametrize(
    ("data", "families"),
    [
        (b"\xef\xbb\xbf " + template({"Name": "a"}), ["Task"]),
        (b'{"family": "nightly", "containerDefinitions": [{"name": "Resources"}]}', ["nightly"]),
        (b"# Jobs\n---\nfamily: nightly\ncontainerDefinitions: [{name: a}]\n", ["nightly"]),
        (
            b"'Resources': {A: {Type: AWS::ECS::TaskDefinition, Properties: {ContainerDefinitions: []}}}\r\n",
            ["A"],
        ),
    ],
)
def test_a_text_is_a_definition_or_a_template_in_json_or_yaml(
    data: bytes, families: list[str]
) -> None:
    assert [definition["family"] for definition, _ in read_definitions(data, "t")] == families


keys = st.text("Ab-", min_size=1, max_size=4)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.just({"Ref": "X"})
    | st.just({"Fn::Sub": "y"}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@given(values, values)
def test_anything_in_a_definition_is_kept(in_container: Any, in_properties: Any) -> None:
    before = template(
        {"Name": "batch", "Image": "etl:26", "XOwn": in_container}, YOwn=in_properties
    )
    added = add(before).after
    containers = json.loads(added)["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    assert [one["Name"] for one in containers] == ["batch", "task-monitor"]
    assert json.loads(remove(added)) == json.loads(before)


comments = st.sampled_from(["", "   # pushed by CI", " # !Ref X"])
scalars = st.sampled_from(
    ["batch", '"a: b"', "'0755'", "!Ref Image", "!Sub '${A}:1'", "yes", "0x1F", "2026-11-21", '""']
)


@given(
    st.lists(st.tuples(scalars, comments), min_size=1, max_size=4),
    st.sampled_from(["", "      PidMode: task\n", "      PidMode: host  # as ever\n"]),
    st.booleans(),
    st.sampled_from([None, "on"]),
)
def test_any_yaml_is_given_back_to_the_byte(
    fields: list[tuple[str, str]],
    mode: str,
    shared_pids: bool,  # noqa: FBT001  hypothesis passes by name
    stacks: str | None,
) -> None:
    lines = "".join(
        f"          X{n}: {value}{comment}\n" for n, (value, comment) in enumerate(fields)
    )
    before = YAML.replace("          Environment:\n", f"{lines}          Environment:\n")
    before = before.replace("      Memory: '1024'\n", f"      Memory: '1024'\n{mode}")
    added = add(before.encode(), shared_pids=shared_pids, stacks=stacks).after
    assert b"task-monitor" in added
    assert remove(added).decode() == before
