"""When two revisions are the same job, with another monitor or without."""

import copy
import json
from typing import Any

import pytest

from profiler.task_definitions.monitor_changes import AddMonitorOptions, add_monitor, difference
from tests.sidecars import definitions_with_sidecars

KINDS = definitions_with_sidecars()


def monitored(definition: dict[str, Any], image: str = "team/task-profiler:1", **options: Any) -> Any:
    options_given = AddMonitorOptions(container="etl", image=image, region="us-east-1", **options)
    return json.loads(json.dumps(add_monitor(definition, options_given).definition))


def deployed(definition: dict[str, Any]) -> dict[str, Any]:
    """What a deployment does: another image of the batch."""
    changed = copy.deepcopy(definition)
    batch = next(one for one in changed["containerDefinitions"] if one["name"] == "etl")
    batch["image"] = batch["image"].replace("etl:1", "etl:2")
    return changed


def as_returned(definition: dict[str, Any]) -> dict[str, Any]:
    """What ECS adds to a definition that it returns, and lists in another order."""
    changed = copy.deepcopy(definition) | {"placementConstraints": []}
    for container in changed["containerDefinitions"]:
        container.setdefault("cpu", 0)
        for field in ("environment", "mountPoints", "portMappings", "volumesFrom", "systemControls"):
            container.setdefault(field, [])
        container["environment"] = container["environment"][::-1]
    return changed | {"tags": changed["tags"][::-1]}


@pytest.mark.parametrize("kind", KINDS)
def test_another_monitor_is_a_difference_of_the_monitor_alone(kind: str) -> None:
    bare = KINDS[kind]
    first, second = monitored(bare), monitored(bare, "team/task-profiler:2", shared_pids=True)
    for one, other in ((bare, first), (first, bare), (first, second), (second, bare)):
        assert difference(one, other) == "monitor"
        assert difference(as_returned(one), other) == "monitor"
        assert difference(as_returned(one), one) == "none"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change",
    [deployed, lambda one: {**one, "memory": "8192"}, lambda one: {**one, "tags": []}],
    ids=["image", "memory", "tags"],
)
def test_another_version_of_the_job_is_another_difference(kind: str, change: Any) -> None:
    bare = KINDS[kind]
    assert difference(change(bare), bare) == "other"
    assert difference(change(bare), monitored(bare)) == "other"
    assert difference(monitored(change(bare)), monitored(bare)) == "other"


def test_another_programs_monitor_is_another_difference_unless_its_image_is_named() -> None:
    bare = KINDS["xray"]
    foreign = {
        **bare,
        "containerDefinitions": [*bare["containerDefinitions"], {"name": "task-monitor", "image": "a:1"}],
    }
    assert difference(foreign, bare) == "other"
    assert difference(foreign, bare, "a:2") == "monitor"
