"""The file of ``taskdef resize --write-sizes`` beside others who write it."""

import json
from pathlib import Path

import pytest

from profiler.aws_account.planned_family import PlannedFamily
from profiler.cli.write_sizes_option import open_sizes_target
from profiler.core.errors import TaskProfilerError
from profiler.sizing.resize_limits import ResizeDecision
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument

SMALL = {"cpu": 256, "memory": 512, "why": "Saves 75 %."}


def smaller(family: str) -> PlannedFamily:
    return PlannedFamily(
        family=family,
        action="resize",
        document=TaskDefinitionDocument(definition={"cpu": "1024", "memory": "2048"}),
        changed=ChangedDefinition(definition={"cpu": "256", "memory": "512"}),
        resize=ResizeDecision(action="resize", reason="saves 75 %", runs=25),
    )


def test_what_others_write_while_the_families_are_read_stays(tmp_path: Path) -> None:
    file = tmp_path / "sizes.json"
    mine, others = open_sizes_target(str(file)), open_sizes_target(str(file))
    others.write_sizes_of_plan([smaller("orders")])
    set_by_hand = {**json.loads(file.read_text()), "control": {"cpu": 2048, "memory": 8192}}
    file.write_text(json.dumps(set_by_hand))
    assert mine.write_sizes_of_plan([smaller("nightly"), smaller("control")]) == [
        smaller("nightly")
    ]
    assert json.loads(file.read_text()) == {**set_by_hand, "nightly": SMALL, "orders": SMALL}


def test_a_file_that_others_have_damaged_meanwhile_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "sizes.json"
    mine = open_sizes_target(str(file))
    file.write_text("<<<<<<< HEAD\n")
    with pytest.raises(TaskProfilerError, match="is not valid JSON"):
        mine.write_sizes_of_plan([smaller("nightly")])
    assert file.read_text() == "<<<<<<< HEAD\n"


def test_a_link_to_itself_is_named(tmp_path: Path) -> None:
    file = tmp_path / "sizes.json"
    file.symlink_to(file)
    with pytest.raises(TaskProfilerError, match="cannot be read"):
        open_sizes_target(str(file))
    assert file.is_symlink()


def test_a_link_to_a_file_that_is_not_there_yet_stays(tmp_path: Path) -> None:
    file = tmp_path / "sizes.json"
    file.symlink_to(tmp_path / "new.json")
    open_sizes_target(str(file)).write_sizes_of_plan([smaller("nightly")])
    assert file.is_symlink()
    assert json.loads((tmp_path / "new.json").read_text()) == {"nightly": SMALL}
