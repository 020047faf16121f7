"""The monitor in a task definition: which container it watches, what it is given, when it is
refused, and removed.
"""

import copy
import json
from typing import Any

import pytest
from botocore.loaders import create_loader
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import TaskProfilerError
from profiler.core.version import __version__
from profiler.task_definitions.definition_difference import difference
from profiler.task_definitions.definition_json import ChangedDefinition
from profiler.task_definitions.monitor_changes import (
    AddMonitorOptions,
    add_monitor,
    log_group_note,
    remove_monitor,
)
from profiler.task_definitions.monitor_container import default_image
from profiler.task_definitions.permissions import report_streams
from tests.cases import each_case
from tests.sidecars import awslogs, definitions_with_sidecars
from tests.values import any_json

ROLE = "arn:aws:iam::111122223333:role/nightly-task"
IMAGE = "registry.example.com/task-profiler:1"
LOGS = awslogs("/ecs/nightly", region="us-west-2")
BATCH = {"name": "batch", "image": "etl:26", "essential": True, "logConfiguration": LOGS}
NAMES_BATCH = [{"name": "TASK_PROFILER_CONTAINER", "value": "batch"}]
HELPER = {"name": "helper", "image": "proxy:1", "essential": False}
SECOND = {"name": "second", "image": "etl:26", "logConfiguration": LOGS}
NEURON_0 = {
    "hostPath": "/dev/neuron0",
    "containerPath": "/dev/neuron0",
    "permissions": ["read", "write"],
}


def definition(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "family": "nightly",
        "taskRoleArn": ROLE,
        "containerDefinitions": list(containers),
        **fields,
    }


def added(
    given_definition: dict[str, Any], *, image: str | None = IMAGE, **options: Any
) -> ChangedDefinition:
    return add_monitor(given_definition, AddMonitorOptions(image=image, **options))


def monitor_in(result: ChangedDefinition) -> dict[str, Any]:
    containers: Any = result.definition["containerDefinitions"]
    (monitor,) = [one for one in containers if one["name"] == "task-monitor"]
    assert isinstance(monitor, dict)
    return monitor


def refusal(given_definition: dict[str, Any], **options: Any) -> str:
    with pytest.raises(TaskProfilerError) as refused:
        added(given_definition, **options)
    assert refused.value.exit_code == 1
    message = str(refused.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_the_monitor_gets_neuron_devices_alone_and_those_by_requirement_are_noted() -> None:
    """tests/unit/deployment/test_taskdef_files.py has the whole containers of all kinds."""
    batch = {
        **BATCH,
        "linuxParameters": {"devices": [NEURON_0, {"hostPath": "/dev/infiniband/uverbs0"}]},
    }
    capabilities = {"capabilities": {"add": ["IPC_LOCK"]}}
    assert monitor_in(added(definition(batch)))["linuxParameters"] == {
        **capabilities,
        "devices": [NEURON_0],
    }
    result = added(
        definition({**BATCH, "resourceRequirements": [{"type": "NeuronDevice", "value": "ALL"}]})
    )
    assert monitor_in(result)["linuxParameters"] == capabilities
    assert "linuxParameters.devices" in result.notes[0]


MODES = ["on", "moments", "off"]


@pytest.mark.parametrize("mode", MODES)
def test_stacks_get_shared_process_ids_the_capability_and_root(mode: str) -> None:
    result = added(definition(BATCH), stacks=mode)
    plain = monitor_in(added(definition(BATCH)))
    assert result.definition["pidMode"] == "task"
    assert monitor_in(result) == plain | {
        "user": "0",
        "environment": [*NAMES_BATCH, {"name": "TASK_PROFILER_STACKS", "value": mode}],
        "linuxParameters": {"capabilities": {"add": ["SYS_PTRACE"]}},
        "dockerLabels": {"task-profiler.pid-mode": "added"},
    }


def test_an_existing_monitor_gets_and_changes_stacks_and_keeps_its_other_parameters() -> None:
    own = {"initProcessEnabled": True, "capabilities": {"drop": ["ALL"], "add": ["KILL"]}}
    old = {**monitor_in(added(definition(BATCH))), "linuxParameters": own}
    on = added(definition(BATCH, old), stacks="on")
    access = {**own, "capabilities": {"drop": ["ALL"], "add": ["KILL", "SYS_PTRACE"]}}
    assert monitor_in(on)["linuxParameters"] == access
    assert monitor_in(on)["user"] == "0"
    assert on.changes == (
        "The monitor's user changes from 65532 to 0.",
        "The monitor's environment changes: TASK_PROFILER_STACKS.",
        "The monitor's linuxParameters changes: capabilities.",
    )
    moments = added(dict(on.definition), stacks="moments")
    assert {"name": "TASK_PROFILER_STACKS", "value": "moments"} in monitor_in(moments)[
        "environment"
    ]
    assert monitor_in(moments)["linuxParameters"] == monitor_in(on)["linuxParameters"]
    assert added(dict(moments.definition)).definition == moments.definition


def test_the_log_options_are_those_of_the_batch_without_multiline_options() -> None:
    options = {**LOGS["options"], "mode": "non-blocking", "awslogs-create-group": "true"}
    joining = {"awslogs-multiline-pattern": "^INFO", "awslogs-datetime-format": "%Y"}
    logs = {"logDriver": "awslogs", "options": options | joining, "secretOptions": []}
    copied = monitor_in(added(definition({**BATCH, "logConfiguration": logs})))["logConfiguration"]
    assert copied == {"logDriver": "awslogs", "options": options}


@pytest.mark.parametrize(
    "logs", [None, {"logDriver": "splunk"}, {"logDriver": "awsfirelens", "options": {}}]
)
def test_a_batch_without_awslogs_gets_a_report_in_the_monitors_own_stream(
    logs: dict[str, Any] | None,
) -> None:
    result = added(definition({**BATCH, "logConfiguration": logs}), region="us-west-2")
    assert monitor_in(result)["logConfiguration"] == LOGS
    assert {"name": "TASK_PROFILER_LOG_GROUP", "value": "/ecs/nightly"} in monitor_in(result)[
        "environment"
    ]
    own = (
        "The batch 'batch' does not log by awslogs, so the report goes to the monitor's own log "
        "stream in the log group"
    )
    assert result.notes == (f"{own} /ecs/nightly.", log_group_note("/ecs/nightly"))


def test_the_log_group_of_the_options_overrides_awslogs_also_in_an_existing_monitor() -> None:
    result = added(definition(BATCH), log_group="/ecs/reports")
    options = {**LOGS["options"], "awslogs-group": "/ecs/reports"}
    variable = {"name": "TASK_PROFILER_LOG_GROUP", "value": "/ecs/reports"}
    assert monitor_in(result)["logConfiguration"] == {**LOGS, "options": options}
    assert monitor_in(result)["environment"] == [*NAMES_BATCH, variable]
    assert "/ecs/reports" in result.notes[0]
    result = added(definition({"name": "batch"}))
    assert "awslogs-region" not in monitor_in(result)["logConfiguration"]["options"]
    assert "--region" in result.notes[2]
    for batch in (BATCH, {**BATCH, "logConfiguration": {"logDriver": "splunk"}}):
        once = added(definition(batch), region="us-west-2")
        moved = added(dict(once.definition), log_group="/ecs/reports", region="us-west-2")
        assert (
            moved.definition
            == added(definition(batch), log_group="/ecs/reports", region="us-west-2").definition
        )
        assert added(dict(moved.definition), region="us-west-2").definition == moved.definition, (
            "kept by the next run"
        )


def test_the_own_stream_is_one_variable_and_needs_no_role() -> None:
    given = definition(BATCH, taskRoleArn="")
    result = added(given, report_stream="monitor")
    environment = [*NAMES_BATCH, {"name": "TASK_PROFILER_REPORT_STREAM", "value": "monitor"}]
    assert monitor_in(result) == {**monitor_in(added(given)), "environment": environment}
    assert result.notes == ()
    assert report_streams(result, "") == frozenset()
    assert added(given, report_stream="batch") == added(given)


@pytest.mark.parametrize("place", [0, 1])
def test_a_monitor_before_other_containers_moves_to_the_end(place: int) -> None:
    """Airflow reads the log stream of the first container."""
    monitor = monitor_in(added(definition(BATCH)))
    others = [BATCH, HELPER]
    before = definition(*others[:place], monitor, *others[place:])
    result = added(copy.deepcopy(before))
    assert result.definition["containerDefinitions"] == [*others, monitor]
    assert result.changes == ("The monitor moves to the end of the containers.",)
    assert added(dict(result.definition)).changes == ()
    assert difference(before, result.definition) == "monitor"


@each_case(
    "linux",
    [
        {"placementConstraints": [{"expression": "attribute:ecs.os-type == linux"}]},
        {"placementConstraints": [{"expression": "attribute:ecs.os-type != windows"}]},
        {"placementConstraints": [{"expression": "not (attribute:ecs.os-type == windows)"}]},
        {"placementConstraints": [{"expression": "attribute:ecs.os-type not_in [windows]"}]},
        {"placementConstraints": [{"expression": "attribute:stack == windows"}]},
        {"runtimePlatform": {"operatingSystemFamily": "LINUX"}},
        {"volumes": [{"name": "windows"}]},
        {"placementConstraints": [{"expression": "attribute:stack != linux"}]},
        {"placementConstraints": [{"expression": "attribute:ecs.os-type in [linux, windows]"}]},
        {"placementConstraints": [{"expression": "not (attribute:ecs.os-type != linux)"}]},
        {
            "placementConstraints": [
                {"expression": "attribute:ecs.os-type == windows || attribute:ecs.os-type == linux"}
            ]
        },
    ],
)
def test_a_definition_that_does_not_ask_for_windows_gets_a_monitor(linux: dict[str, Any]) -> None:
    for image in (
        "team/windows:1",
        "mcr.microsoft.com/dotnet/runtime:8.0",
        "team/nanoserver-reports:1",
        "team/microsoft/iis:1",
    ):
        given = definition({**BATCH, "image": image}, **linux)
        assert added(dict(given)).monitor is not None


TEN = [BATCH, *({**HELPER, "name": f"helper-{number}"} for number in range(9))]
WINDOWS = {"runtimePlatform": {"operatingSystemFamily": "windows_server_2019_full"}}
FOREIGN = "'task-monitor' is not Task Profiler's"


@each_case(
    ("given_definition", "options", "words"),
    [
        (definition(BATCH, SECOND, HELPER), {}, ("(batch, second)", "--container")),
        (definition(HELPER), {}, ("helper", "--container")),
        (definition(BATCH, HELPER), {"container": "missing"}, ("'missing'", "batch, helper")),
        (
            definition(BATCH, HELPER),
            {"container": "task-monitor"},
            ("'task-monitor'", "batch, helper"),
        ),
        (
            definition(BATCH, **WINDOWS),
            {"stacks": "on"},
            ("windows_server_2019_full", "does not work"),
        ),
        (
            definition(BATCH, networkMode="none"),
            {},
            ("networkMode is none", "'task-profiler run -- CMD' instead"),
        ),
        (
            definition(
                BATCH,
                placementConstraints=[
                    {"type": "memberOf", "expression": "attribute:ecs.os-type == windows"}
                ],
            ),
            {},
            ("Windows, by the placement", "does not work"),
        ),
        *(
            (
                definition(BATCH, placementConstraints=[{"expression": expression}]),
                {},
                ("Windows, by the placement", "does not work"),
            )
            for expression in (
                "attribute:ecs.os-type != linux",
                "attribute:ecs.os-type not_in [linux]",
                "attribute:ecs.os-type == windows and attribute:team != linux",
                "not(attribute:ecs.os-type == linux)",
            )
        ),
        (
            definition(BATCH, volumes=[{"name": "v", "host": {"sourcePath": "C:\\data"}}]),
            {},
            ("Windows, by the path C:", "does not work"),
        ),
        *(
            (definition({**BATCH, **given}), {}, ("Windows, by the path C:", "does not work"))
            for given in (
                {"workingDirectory": "C:\\app"},
                {"mountPoints": [{"sourceVolume": "v", "containerPath": "C:/data"}]},
            )
        ),
        (
            definition(
                BATCH,
                volumes=[{"name": "v", "fsxWindowsFileServerVolumeConfiguration": {"a": "b"}}],
            ),
            {},
            ("Windows, by its volume of FSx", "does not work"),
        ),
        (
            definition({**BATCH, "image": "mcr.microsoft.com/windows/servercore/iis"}),
            {},
            ("Windows, by the image mcr.microsoft.com/windows", "does not work"),
        ),
        *(
            (definition({**BATCH, "image": image}), {}, (f"by the image {image}", "does not work"))
            for image in (
                "docker.io/microsoft/iis",
                "golang:1.22-windowsservercore-ltsc2022",
                "mcr.microsoft.com/dotnet/runtime:8.0-nanoserver-ltsc2022",
            )
        ),
        (definition({"image": "etl:26"}), {}, ("container number 1", 'give it a "name"')),
        (definition(BATCH, {"name": "", "image": "etl:26"}), {}, ("container number 2",)),
        (definition({**BATCH, "memory": 512}, memory=".5 gb"), {}, ("No memory is left", "512")),
        (definition(*TEN), {}, ("allows 10",)),
        (
            definition({**BATCH, "memory": 481}, memory="512"),
            {},
            ("No memory is left", "so that 32 MiB are free"),
        ),
        (
            definition({**BATCH, "memoryReservation": 2048}, memory="2 GB"),
            {},
            ("No memory is left", "2048 MiB"),
        ),
        (
            definition({**BATCH, "memory": 1400}, memory="1.3GB"),
            {},
            ("No memory is left", "1331.2 MiB"),
        ),
        (
            definition(BATCH, {"name": "task-monitor", "image": "other/agent:1"}),
            {},
            (FOREIGN, "other/agent:1"),
        ),
        (
            definition(BATCH, {"name": "task-monitor", "image": "o:1", "command": ["monitor"]}),
            {},
            (FOREIGN,),
        ),
        (definition(BATCH, {"name": "task-monitor"}), {"image": None}, (FOREIGN, "not set")),
    ],
)
def test_what_is_refused_and_why(
    given_definition: dict[str, Any], options: dict[str, Any], words: Any
) -> None:
    message = refusal(given_definition, **options)
    assert [word for word in words if word not in message] == []


def test_a_task_with_memory_left_is_not() -> None:
    tight = ({"memory": 480}, "512")  # room for the reservation, not for the limit
    enough = [({"memory": 384}, "512"), ({"memoryReservation": 256}, "0.5GB"), ({}, "512")]
    for sizes, task_memory in (tight, *enough, ({"memory": 512}, None), ({"memory": 512}, "odd")):
        result = added(definition({**BATCH, **sizes}, memory=task_memory))
        assert monitor_in(result)["memoryReservation"] == 32
        assert len(result.notes) == (sizes == {"memory": 480})


def test_the_default_image_is_in_the_registry_of_the_definitions_account_and_noted() -> None:
    """botocore's data have the domain of each partition, such as c2s.ic.gov.

    Without an account, it has no registry.
    """
    for partition in create_loader().load_data("partitions")["partitions"]:
        region, domain = (
            partition["outputs"][name] for name in ("implicitGlobalRegion", "dnsSuffix")
        )
        arn = f"arn:{partition['id']}:ecs:{region}:111122223333:task-definition/nightly:26"
        assert (
            default_image(arn)
            == f"111122223333.dkr.ecr.{region}.{domain}/task-profiler:{__version__}"
        )
    result = added(definition(BATCH), image=None)
    assert (
        monitor_in(result)["image"]
        == default_image(None)
        == default_image("odd")
        == f"task-profiler:{__version__}"
    )
    assert [word for word in (default_image(None), "--image") if word not in result.notes[0]] == []


def test_a_changed_flag_is_said_in_the_words_of_the_definition() -> None:
    once: Any = added(definition(BATCH)).definition
    batch, monitor = once["containerDefinitions"]
    result = added(definition(batch, {**monitor, "essential": True}))
    assert result.notes == ("The monitor's essential changes from true to false.",)


def test_another_image_changes_nothing_but_the_image() -> None:
    once: Any = added(definition(BATCH)).definition
    result = added(once, image=f"{IMAGE}.1")
    batch, monitor = once["containerDefinitions"]
    assert result.definition == definition(batch, {**monitor, "image": f"{IMAGE}.1"})
    assert result.notes == (f"The monitor's image changes from {IMAGE} to {IMAGE}.1.",)


def test_a_monitor_is_known_by_its_repository_the_image_option_the_setting_or_the_command() -> None:
    ours = {"name": "task-monitor", "image": "team-task-profiler:1"}
    assert monitor_in(added(definition(BATCH, ours), image=None))["image"] == ours["image"]
    once = added(definition(BATCH), image="own:1")
    assert monitor_in(added(dict(once.definition), image="own:2"))["image"] == "own:2"
    # A mirror may have any name: what was added must be found again without --image.
    for image in (None, "own:1"):
        assert added(dict(once.definition), image=image).definition == once.definition
    assert monitor_in(added(dict(once.definition), image="different:2"))["image"] == "different:2"
    assert remove_monitor(once.definition).definition == definition(BATCH)
    unset = {**monitor_in(once), "environment": []}
    assert "own:1" in refusal(definition(BATCH, unset), image="different:2")
    # The owner's batch may have the monitor's name and the setting: nothing removes it.
    wraps = {"entryPoint": ["task-profiler", "run", "--"], "command": ["python", "job.py"]}
    for of_batch in ({"essential": True}, wraps):
        named = {**monitor_in(once), **of_batch}
        with pytest.raises(TaskProfilerError, match="not Task Profiler's"):
            remove_monitor(definition(BATCH, named))
    other = {**monitor_in(added(definition(BATCH))), "name": "sidecar"}
    assert added(definition(BATCH, other)).definition == definition(BATCH, other)
    wrapped = {
        **BATCH,
        "image": IMAGE,
        "entryPoint": ["task-profiler", "run", "--"],
        "command": ["monitor"],
    }
    assert added(definition(wrapped)).old_monitor is None


def test_an_old_monitor_is_brought_to_the_present_form() -> None:
    """An old monitor is brought to the present form and keeps what its owner added."""
    variables = {"TASK_PROFILER_CHECKPOINT_SECONDS": "300", "NVIDIA_VISIBLE_DEVICES": "0"}
    owned: dict[str, Any] = {
        "environment": [{"name": name, "value": value} for name, value in variables.items()],
        "dockerLabels": {"team": "data"},
        "user": "0",
        "readonlyRootFilesystem": False,
        "memory": 256,
        "dependsOn": [{"containerName": "init", "condition": "SUCCESS"}],
        "x-odd": 1,
    }
    joined = {
        **LOGS,
        "options": {**LOGS["options"], "awslogs-datetime-format": "%Y", "mode": "non-blocking"},
    }
    old = {
        "name": "task-monitor",
        "image": "task-profiler:0",
        "stopTimeout": 30,
        "logConfiguration": joined,
        **owned,
    }
    gpu_batch = {**BATCH, "resourceRequirements": [{"type": "GPU", "value": "1"}]}
    result = added(definition(gpu_batch, old), image=None)
    monitor = monitor_in(result)
    assert {name for name, value in owned.items() if monitor[name] != value} == {
        "environment",
        "dependsOn",
    }
    assert monitor["dependsOn"] == [
        *owned["dependsOn"],
        {"containerName": "batch", "condition": "START"},
    ]
    added_variables = {"TASK_PROFILER_CONTAINER": "batch", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
    assert {
        one["name"]: one["value"] for one in monitor["environment"]
    } == variables | added_variables
    assert monitor["logConfiguration"]["options"] == {**LOGS["options"], "mode": "non-blocking"}
    new = {
        "image": "task-profiler:0",
        "essential": False,
        "stopTimeout": 120,
        "command": ["monitor"],
    }
    assert {**monitor, **new, "memoryReservation": 32} == monitor
    changed = {
        "command",
        "essential",
        "dependsOn",
        "stopTimeout",
        "memoryReservation",
        "environment",
    }
    assert {word for note in result.notes for word in changed if word in note} == changed
    assert any("from 30 to 120" in note for note in result.notes)
    assert added(dict(result.definition), image=None).notes == ()


def test_a_stricter_dependency_of_an_existing_monitor_does_not_change() -> None:
    once = monitor_in(added(definition(BATCH)))
    monitor = {name: value for name, value in once.items() if name != "dependsOn"} | {
        "essential": True
    }
    on_monitor, on_helper = (
        [{"containerName": name, "condition": "START"}] for name in ("task-monitor", "helper")
    )
    batch = {**BATCH, "dependsOn": on_monitor}
    assert added(definition(batch, monitor)).definition == definition(batch, monitor)
    # Through another container: ECS would refuse the circle.
    given = definition(
        {**BATCH, "dependsOn": on_helper}, {**HELPER, "dependsOn": on_monitor}, monitor
    )
    assert added(given).definition == given


def test_an_existing_monitor_is_not_replaced_for_another_container() -> None:
    once = added(definition(BATCH, SECOND), container="second")
    assert monitor_in(once)["environment"] == [
        {"name": "TASK_PROFILER_CONTAINER", "value": "second"}
    ]
    again = added(dict(once.definition), container="batch")
    assert again.definition == once.definition
    assert "'batch'" in again.notes[0]
    assert added(dict(once.definition), container="second").notes == ()
    assert "'missing'" in refusal(dict(once.definition), container="missing")


def test_settings_override_what_the_owner_set() -> None:
    once = added(definition(BATCH), settings={"TASK_PROFILER_TAGS": "true"})
    tags = {"name": "TASK_PROFILER_TAGS", "value": "true"}
    assert monitor_in(once)["environment"] == [*NAMES_BATCH, tags]
    own = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    owned = {**monitor_in(once), "environment": [own, tags, *NAMES_BATCH]}
    again = added(definition(BATCH, owned), settings={"TASK_PROFILER_TAGS": "false", "A": "1"})
    changed = [own, {**tags, "value": "false"}, *NAMES_BATCH, {"name": "A", "value": "1"}]
    assert monitor_in(again) == {**owned, "environment": changed}
    assert again.changes == ("The monitor's environment changes: TASK_PROFILER_TAGS, A.",)
    assert added(dict(again.definition)).changes == ()


def test_an_existing_monitor_gets_the_name_of_its_batch() -> None:
    """An existing monitor gets the name of its batch and that of a renamed one is corrected."""
    once = monitor_in(added(definition(BATCH)))
    monitor = {name: value for name, value in once.items() if name != "environment"}
    result = added(definition(BATCH, HELPER, monitor))
    assert monitor_in(result)["environment"] == NAMES_BATCH
    assert result.notes == ("The monitor gets environment.",)
    renamed = {**BATCH, "name": "etl"}
    again = monitor_in(added(definition(renamed, {**once, "dependsOn": []})))
    assert again["environment"] == [{"name": "TASK_PROFILER_CONTAINER", "value": "etl"}]


# When two revisions are the same job, with another monitor or without

KINDS = definitions_with_sidecars()


def monitored(
    definition: dict[str, Any], image: str = "team/task-profiler:1", **options: Any
) -> Any:
    options_given = AddMonitorOptions(container="etl", image=image, region="us-east-1", **options)
    return json.loads(json.dumps(add_monitor(definition, options_given).definition))


def deployed(definition: dict[str, Any]) -> dict[str, Any]:
    """What a deployment does: another image of the batch."""
    return dict(json.loads(json.dumps(definition).replace("etl:1", "etl:2")))


def as_returned(definition: dict[str, Any]) -> dict[str, Any]:
    """What ECS adds to a definition that it returns, and lists in another order."""
    changed = copy.deepcopy(definition) | {"placementConstraints": []}
    for container in changed["containerDefinitions"]:
        container.setdefault("cpu", 0)
        for field in (
            "environment",
            "mountPoints",
            "portMappings",
            "volumesFrom",
            "systemControls",
        ):
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
def test_another_version_of_the_job_is_another_difference(kind: str) -> None:
    bare = KINDS[kind]
    for changed in (deployed(bare), {**bare, "memory": "8192"}, {**bare, "tags": []}):
        assert difference(changed, bare) == difference(changed, monitored(bare)) == "other"
        assert difference(monitored(changed), monitored(bare)) == "other"


def test_another_programs_monitor_is_another_difference_unless_its_image_is_named() -> None:
    bare = KINDS["xray"]
    monitor = {"name": "task-monitor", "image": "a:1"}
    foreign = {**bare, "containerDefinitions": [*bare["containerDefinitions"], monitor]}
    assert difference(foreign, bare) == "other"
    assert difference(foreign, bare, "a:2") == "monitor"


# Definitions of all kinds to which a monitor can be added.


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


odd_fields = st.dictionaries(
    st.text(min_size=1, max_size=8).map("x-{}".format), any_json, max_size=3
)
texts = st.text(max_size=4)
helpers = st.builds(
    lambda name, known, odd: {
        **odd,
        "image": "helper:1",
        **known,
        "name": f"helper-{name}",
        "essential": False,
    },
    st.text(min_size=1, max_size=8),
    some(
        memory=st.integers(4, 1024),
        memoryReservation=st.integers(4, 1024),
        resourceRequirements=st.sampled_from(
            [
                [{"type": "GPU", "value": "1"}],
                [{"type": "GPU", "sharingStrategy": {"nvidiaMps": {"maxComputePercent": 25}}}],
            ]
        ),
        dependsOn=st.just([{"containerName": "batch", "condition": "START"}]),
        logConfiguration=any_json,
        environment=any_json,
    ),
    odd_fields,
)
definitions = st.builds(
    lambda batch, others, at, size, odd: definition(
        *others[:at], {**batch, **BATCH}, *others[at:], **odd, **size
    ),
    odd_fields,
    st.lists(helpers, max_size=4),
    st.integers(0, 4),
    some(
        cpu=any_json,
        memory=st.sampled_from(["8192", "16 GB", "32GB"]),
        tags=st.lists(st.fixed_dictionaries({"key": texts, "value": texts})),
        pidMode=st.sampled_from(["task", "host"]),
    ),
    odd_fields,
)
variables = st.dictionaries(st.sampled_from(["TASK_PROFILER_TAGS", "HTTPS_PROXY", "A"]), texts)
access = some(shared_pids=st.booleans(), stacks=st.sampled_from(MODES), settings=variables)


@given(definitions, access)
def test_only_the_monitor_is_added_to_any_definition_once_and_can_be_removed(
    before: dict[str, Any], options: dict[str, Any]
) -> None:
    kept = copy.deepcopy(before)
    once = added(before, **options)
    after: Any = once.definition
    own = dict.fromkeys(("containerDefinitions", "pidMode"))
    assert {**after, **own} == {**kept, **own}
    assert after["containerDefinitions"][:-1] == kept["containerDefinitions"]
    assert after["containerDefinitions"][-1]["name"] == "task-monitor"
    assert added(after, **options).definition == added(after).definition == after
    removed = remove_monitor(after)
    assert json.dumps(removed.definition) == json.dumps(kept)
    assert removed.old_monitor == once.monitor
    assert remove_monitor(before).old_monitor is None
    assert before == kept


def test_removing_removes_dependencies_on_the_monitor_and_no_foreign_monitor() -> None:
    monitor = {"name": "task-monitor", "image": IMAGE, "essential": True}
    on_monitor, on_helper = (
        {"containerName": name, "condition": "START"} for name in ("task-monitor", "helper")
    )
    batch = {**BATCH, "dependsOn": [on_monitor]}
    second = {**SECOND, "dependsOn": [on_monitor, on_helper]}
    removed = remove_monitor(definition(batch, monitor, second, pidMode="task"))
    assert removed.definition == definition(
        BATCH, {**SECOND, "dependsOn": [on_helper]}, pidMode="task"
    )
    assert len(removed.notes) == 2
    with pytest.raises(TaskProfilerError, match="is not Task Profiler's"):
        remove_monitor(definition(BATCH, {"name": "task-monitor", "image": "other:1"}))


@pytest.mark.parametrize("container", [None, "batch"])
def test_the_batchs_image_as_that_of_the_monitor_is_told_apart(container: str | None) -> None:
    """Whoever gives --image the batch's image is told what it is for."""
    one = definition({"name": "batch", "image": "etl:26"})
    told = refusal(one, image="etl:27", container=container)
    assert told.startswith("This definition has no container besides the monitor:")
    assert told.endswith("--image names the monitor's image, and not the batch's.")
    assert monitor_in(added(one, image="monitor:1", container=container))
