"""A task definition with a monitor for each of two batches: which one is changed or removed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.monitor_changes import AddMonitorOptions, add_monitor, remove_monitor
from tests.sidecars import ACCOUNT, IMAGE, REGION, TASK_ROLE, awslogs

_REGISTRY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
_DIGEST = f"{_REGISTRY}/team/task-profiler@sha256:{'a' * 64}"
_LOAD, _EXPORT = (
    {"name": name, "image": f"{_REGISTRY}/{name}:1", "logConfiguration": awslogs()}
    for name in ("load", "export")
)


def monitor(name: str, batch: str, image: str = IMAGE) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "essential": False,
        "dependsOn": [{"containerName": batch, "condition": "START"}],
    }


def definition(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"family": "jobs", "taskRoleArn": TASK_ROLE, "containerDefinitions": list(containers)}


def names(changed: Any) -> list[str]:
    return [container["name"] for container in changed.definition["containerDefinitions"]]


_TWO = definition(
    monitor("watches-load", "load"), monitor("watches-export", "export", _DIGEST), _LOAD, _EXPORT
)


@pytest.mark.parametrize(
    ("batch", "changed", "other"),
    [("load", "watches-load", "watches-export"), ("export", "watches-export", "watches-load")],
)
def test_the_monitor_of_the_chosen_batch_is_changed_and_the_other_one_is_named(
    batch: str, changed: str, other: str
) -> None:
    result = add_monitor(_TWO, AddMonitorOptions(container=batch))
    assert result.monitor is not None
    assert (result.batch, result.monitor.name) == (batch, changed)
    assert names(result) == [other, "load", "export", changed]
    assert result.definition["containerDefinitions"][0] in _TWO["containerDefinitions"]  # type: ignore[index]
    (note,) = [note for note in result.notes if note.startswith("Of several monitors")]
    assert note == (
        f"Of several monitors, this is about {changed!r}: to change another one ({other}), name "
        "its batch with --container."
    )


_IMAGES = (IMAGE, _DIGEST, f"{_REGISTRY}/task-profiler", "task-profiler:1")


@given(
    st.permutations(
        [
            monitor("watches-load", "load"),
            monitor("watches-export", "export", _DIGEST),
            _LOAD,
            _EXPORT,
        ]
    ),
    st.sampled_from([None, "load", "export"]),
    st.sampled_from([None, *_IMAGES]),
    st.sampled_from(["also-load", "task-monitor"]),
)
def test_a_second_run_changes_nothing_whatever_the_order_of_the_monitors(
    containers: list[dict[str, Any]], batch: str | None, image: str | None, third: str
) -> None:
    given_definition = definition(monitor(third, "load", "task-profiler"), *containers)
    options = AddMonitorOptions(container=batch, image=image)
    once = add_monitor(given_definition, options)
    assert once.changes
    again = add_monitor(once.definition, options)
    assert again.definition == once.definition
    assert again.changes == ()


def test_one_monitor_is_removed_and_the_others_are_named() -> None:
    removed = remove_monitor(_TWO)
    assert names(removed) == ["watches-load", "load", "export"]
    assert removed.notes == (
        (
            "Of several monitors, 'watches-export' is removed: to remove another one "
            "(watches-load), repeat the command."
        ),
    )
    assert names(remove_monitor(removed.definition)) == ["load", "export"]


def test_another_program_with_the_monitors_name_is_refused_but_for_a_batch_that_has_its_own() -> (
    None
):
    foreign = {"name": "task-monitor", "image": "other:1"}
    given_definition = definition(foreign, monitor("watches-load", "load"), _LOAD, _EXPORT)
    result = add_monitor(given_definition, AddMonitorOptions(container="load"))
    assert names(result)[-1] == "watches-load"
    with pytest.raises(TaskProfilerError, match="is not Task Profiler's"):
        add_monitor(given_definition, AddMonitorOptions(container="export"))
