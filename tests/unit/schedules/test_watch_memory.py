"""Tasks that were seen before ECS forgot them."""

import pytest

from profiler.schedules.schedule_model import ClusterTasks, StartedTask, TaskMemory

MINUTE = 60_000_000_000


def reading(now: int, *names: str, stopped: int | None = None) -> dict[str, ClusterTasks]:
    stopped_ns = None if stopped is None else stopped * MINUTE
    tasks = tuple(StartedTask(arn=name, family="etl", created_ns=0, stopped_ns=stopped_ns) for name in names)
    return {"jobs": ClusterTasks(tasks=tasks, read_ns=now * MINUTE, known_since_ns=(now - 60) * MINUTE)}


def names(clusters: dict[str, ClusterTasks]) -> set[str]:
    return {task.arn for task in clusters["jobs"].tasks or ()}


@pytest.mark.parametrize(("now", "remembered", "since"), [(158, {"a", "b"}, 40), (161, {"b"}, 101)])
def test_a_stopped_task_is_remembered_until_a_gap_of_an_hour(now: int, remembered: set[str], since: int) -> None:
    memory = TaskMemory()
    memory.add(reading(100, "a", stopped=99))
    known = memory.add(reading(now, "b"))
    assert names(known) == remembered
    assert known["jobs"].known_since_ns == since * MINUTE


def test_a_task_is_known_as_it_was_read_last() -> None:
    memory = TaskMemory()
    memory.add(reading(100, "a"))
    (task,) = memory.add(reading(105, "a", stopped=104))["jobs"].tasks or ()
    assert task.stopped_ns == 104 * MINUTE


def test_a_reading_that_failed_does_not_empty_the_memory() -> None:
    memory = TaskMemory()
    memory.add(reading(100, "a", stopped=99))
    failed = {"jobs": ClusterTasks(problem="Throttled.")}
    assert memory.add(failed) == failed
    assert names(memory.add(reading(110, "b"))) == {"a", "b"}


def test_the_memory_ends_after_two_days() -> None:
    memory = TaskMemory()
    for now in range(100, 4000, 50):
        known = memory.add(reading(now, f"{now}", stopped=now))
    assert known["jobs"].known_since_ns == (now - 2880) * MINUTE
    assert len(names(known)) == 2880 // 50 + 1
