"""The size of a definition, the limits of its containers, and definitions that differ by the
size alone.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import TaskProfilerError
from profiler.record.record_model import TaskSize
from profiler.task_definitions.definition_difference import difference
from profiler.task_definitions.monitor_changes import AddMonitorOptions, add_monitor
from profiler.task_definitions.size_changes import SeenMemory, with_size

SMALL = TaskSize(vcpu=0.25, memory_mb=512)
MONITOR = {
    "name": "task-monitor",
    "image": "team/task-profiler:1",
    "memory": 128,
    "memoryReservation": 32,
}


def definition(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "family": "nightly",
        "cpu": "1024",
        "memory": "2048",
        "containerDefinitions": list(containers),
        **more,
    }


def needs(**needs_mb: float) -> SeenMemory:
    return SeenMemory(needs_mb=needs_mb)


def sizes(found: Any) -> dict[str, dict[str, int]]:
    """The limits of each container."""
    names = ("cpu", "memory", "memoryReservation")
    return {
        one["name"]: {name: one[name] for name in names if name in one}
        for one in found.definition["containerDefinitions"]
    }


@pytest.mark.parametrize(
    ("batch", "lowered"),
    [
        ({"cpu": 512}, {"cpu": 256}),
        ({"memory": 2048}, {"memory": 480}),  # the monitor's reservation stays free
        ({"memory": 2048, "memoryReservation": 400}, {"memory": 512, "memoryReservation": 400}),
        ({"memory": 400, "memoryReservation": 128}, {"memory": 400, "memoryReservation": 128}),
        ({"memoryReservation": 2016}, {"memoryReservation": 480}),
        ({}, {}),
    ],
)
def test_what_does_not_fit_is_lowered_and_what_fits_and_the_monitor_stay(
    batch: dict[str, int], lowered: dict[str, int]
) -> None:
    found = with_size(
        definition({"name": "batch", **batch}, MONITOR, tags=[{"key": "a"}]),
        SMALL,
        needs(batch=400.2),
    )
    assert found.definition["cpu"] == "256"
    assert found.definition["memory"] == "512"
    assert sizes(found) == {
        "batch": lowered,
        "task-monitor": {"memory": 128, "memoryReservation": 32},
    }
    assert len(found.notes) == sum(batch[name] != lowered[name] for name in batch)
    assert found.definition["tags"] == [{"key": "a"}]


def test_the_largest_reservation_is_lowered_first_and_a_change_is_named() -> None:
    router = {"name": "router", "memoryReservation": 50}
    found = with_size(
        definition({"name": "batch", "memory": 1900}, router), SMALL, needs(batch=400, router=20)
    )
    assert sizes(found) == {"batch": {"memory": 462}, "router": {"memoryReservation": 50}}
    assert found.notes == (
        "The memory of 'batch' is lowered from 1900 to 462 MiB, because ECS refuses more.",
    )


@pytest.mark.parametrize(
    ("containers", "seen", "sentence"),
    [
        (
            [{"name": "a", "memory": 2048}],
            {},
            "need 2048 MiB, more than the task's 512, which ECS refuses: lower",
        ),
        ([{"name": "a", "memory": 2048, "memoryReservation": 100}], {}, "need 2048 MiB"),
        ([{"name": "a", "memory": 400}, {"name": "b", "memory": 200}], {"a": 350}, "need 550 MiB"),
        (
            [{"name": "a", "memory": 400}, {**MONITOR, "memoryReservation": 200}],
            {"a": 350},
            "need 550 MiB",
        ),
        (
            [{"name": "a", "cpu": 200}, {**MONITOR, "cpu": 255}],
            {"a": 350},
            "need 257 CPU units, more than",
        ),
    ],
)
def test_no_memory_is_lowered_below_the_need_or_if_that_is_not_known(
    containers: list[dict[str, Any]], seen: dict[str, float], sentence: str
) -> None:
    with pytest.raises(TaskProfilerError, match=sentence):
        with_size(definition(*containers), SMALL, needs(**seen))


def test_no_memory_is_lowered_below_what_docker_starts_a_container_with() -> None:
    batch = {"name": "batch", "memoryReservation": 500}
    given = definition(batch, {"name": "a", "memory": 60}, {"name": "b", "memoryReservation": 60})
    seen = needs(batch=500, a=1.2, b=1.2)
    assert sizes(with_size(given, SMALL, seen))["a"]["memory"] == 6
    assert sizes(with_size(given, SMALL, seen))["b"]["memoryReservation"] == 6
    batch["memoryReservation"] = 504
    with pytest.raises(TaskProfilerError, match="more than the task's 512"):
        with_size(given, SMALL, needs(batch=504, a=1.2, b=1.2))


def test_a_limit_at_which_a_run_was_killed_is_raised_above_it() -> None:
    seen = SeenMemory(needs_mb={"batch": 480.5, "side": 90}, killed_mb={"batch": 400, "side": 64})
    before = definition(
        {"name": "batch", "memory": 400, "memoryReservation": 64},
        {"name": "side", "memory": 80},
        MONITOR,
    )
    assert seen.killed_limits(before) == {"batch": 400}
    assert seen.task_mb(before) == 481
    found = with_size(before, TaskSize(), seen)
    assert sizes(found)["batch"] == {"memory": 481, "memoryReservation": 64}
    assert found.notes == (
        "The memory of 'batch' is raised from 400 to 481 MiB, because a run was killed at this limit.",
    )
    assert with_size(found.definition, TaskSize(), seen).definition == found.definition


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ({"batch": 900, "log_router": 100}, {"batch": 230, "log_router": 25}),
        ({"batch": 1000, "a": 22, "b": 2}, {"batch": 248, "a": 5, "b": 2}),
        ({"batch": 200, "log_router": 50}, {"batch": 200, "log_router": 50}),
    ],
    ids=["in proportion", "not below the least", "what fits stays"],
)
def test_shares_of_the_cpu_keep_their_proportions(
    units: dict[str, int], expected: dict[str, int]
) -> None:
    containers = [{"name": name, "cpu": amount} for name, amount in units.items()]
    found = sizes(with_size(definition(*containers), SMALL))
    assert {name: limits["cpu"] for name, limits in found.items()} == expected


memories = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(0, 1024),
        "memory": st.integers(6, 2048),
        "memoryReservation": st.integers(6, 512),
    },
)


@given(
    st.lists(memories, min_size=1, max_size=4),
    st.lists(st.integers(1, 600), min_size=4, max_size=4),
)
def test_the_result_fits_keeps_each_need_and_differs_by_the_size_alone(
    containers: list[dict[str, int]], amounts: list[int]
) -> None:
    named = [{"name": str(number), **one} for number, one in enumerate(containers)]
    before = definition(*named, MONITOR)
    try:
        found = with_size(
            before, SMALL, needs(**{str(number): need for number, need in enumerate(amounts)})
        )
    except TaskProfilerError:
        return
    limits = sizes(found)
    assert sum(one.get("memoryReservation", one.get("memory", 0)) for one in limits.values()) <= 512
    assert sum(one.get("cpu", 0) for one in limits.values()) <= 256
    assert all(one.get("memory", 0) <= 512 for one in limits.values())
    for number, (one, need) in enumerate(zip(named, amounts, strict=False)):
        for field in set(one) & {"memory", "memoryReservation"}:
            assert limits[str(number)][field] >= min(int(str(one[field])), need, 512)
    assert difference(before, found.definition, part="size") == "size"
    assert difference(before, found.definition) == "other"
    assert with_size(found.definition, SMALL, needs()).definition == found.definition


def test_tags_about_a_size_are_a_difference_of_the_size_alone() -> None:
    before = definition({"name": "batch"}, tags=[{"key": "team", "value": "data"}])
    tags = [*before["tags"], {"key": "task-profiler:resized-from", "value": "7/1024/2048"}]
    monitored = add_monitor(before, AddMonitorOptions(image="team/task-profiler:1")).definition
    after = ({**before, "tags": tags}, {**before, "tags": tags[1:]}, monitored)
    assert [difference(before, one, part="size") for one in after] == ["size", "other", "other"]


def test_a_cpu_of_0_is_a_number_and_no_word_of_a_deployment() -> None:
    assert with_size(definition(cpu="0"), SMALL).definition["cpu"] == "256"
    with pytest.raises(TaskProfilerError, match="only a deployment knows: set 256"):
        with_size(definition(cpu="${Cpu}"), SMALL)
