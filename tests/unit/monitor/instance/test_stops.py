"""Whether a signal that Docker logged is ECS's stop of the task, or another program's."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from profiler.monitor.instance.stop_signals import StopSignals
from profiler.readers import Unavailable
from profiler.readers.docker.ecs_container import EcsContainer
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from tests.instance_world import FakeContainer, FakeInstance

SIGINT = 2
SIGKILL = 9


def box(**changes: Any) -> FakeContainer:
    return FakeContainer(**{"runs": ((2.0, 12.4),), **changes})


def by_another_program(**changes: Any) -> FakeContainer:
    return box(is_stopped_by_ecs=False, **changes)


CASES: dict[str, tuple[FakeContainer, str]] = {
    "SIGKILL of another program": (
        by_another_program(killed_at=12.35, signal=SIGKILL, exit_code=137),
        "failure",
    ),
    "SIGTERM of another program": (by_another_program(killed_at=12.35, exit_code=143), "failure"),
    "SIGTERM of another program, and the batch exits with 0": (
        by_another_program(killed_at=12.35),
        "success",
    ),
    "docker stop of another program, with SIGKILL after its timeout": (
        by_another_program(killed_at=3.0, forced_at=12.35, exit_code=137),
        "failure",
    ),
    "StopTask": (box(killed_at=12.35, exit_code=143), "stopped"),
    "StopTask, and the batch exits with 0": (box(killed_at=12.35), "stopped"),
    "StopTask, and SIGKILL after the stop timeout": (
        box(killed_at=3.0, forced_at=12.35, exit_code=137),
        "stopped",
    ),
    "StopTask of which only SIGKILL was seen": (box(forced_at=12.35, exit_code=137), "stopped"),
    "StopTask with the image's stop signal": (
        box(killed_at=12.35, signal=SIGINT, stop_signal=SIGINT, exit_code=130),
        "stopped",
    ),
}


@pytest.mark.parametrize(("stopped_box", "status"), CASES.values(), ids=CASES.keys())
def test_a_signal_is_a_stop_if_the_agent_stops_the_task(
    stopped_box: FakeContainer, status: str, tmp_path: Path
) -> None:
    record = FakeInstance(stopped_box, folder=tmp_path).run().record()
    assert record["status"] == status
    assert record["exitCode"] == stopped_box.exit_code


SILENT: dict[str, tuple[FakeContainer, str]] = {
    "SIGKILL": (box(killed_at=12.35, signal=SIGKILL, exit_code=137), "failure"),
    "SIGTERM": (box(killed_at=12.35, exit_code=143), "stopped"),
    "SIGTERM, then SIGKILL": (box(killed_at=3.0, forced_at=12.35, exit_code=137), "stopped"),
    "the image's stop signal": (
        box(killed_at=12.35, signal=SIGINT, stop_signal=SIGINT, exit_code=130),
        "stopped",
    ),
    "SIGTERM, which is not the image's stop signal": (
        box(killed_at=12.35, stop_signal=SIGINT, exit_code=143),
        "failure",
    ),
    "SIGINT, which is not the image's stop signal": (
        box(killed_at=12.35, signal=SIGINT, exit_code=130),
        "failure",
    ),
}


@pytest.mark.parametrize(("stopped_box", "status"), SILENT.values(), ids=SILENT.keys())
def test_without_the_agents_answer_only_the_stop_signal_is_a_stop(
    stopped_box: FakeContainer, status: str, tmp_path: Path
) -> None:
    fakes = FakeInstance(stopped_box, folder=tmp_path)
    fakes.tasks["0123"] = None
    assert fakes.run().record()["status"] == status


def test_a_stop_after_a_signal_of_another_program_is_a_stop(tmp_path: Path) -> None:
    fakes = FakeInstance(
        by_another_program(killed_at=3.0, forced_at=12.35, exit_code=137), folder=tmp_path
    )

    def stopped_at_10(task: TaskMetadata) -> TaskMetadata:
        return replace(task, desired_status="STOPPED") if fakes.now > 10 else task

    fakes.change = stopped_at_10
    assert fakes.run().record()["status"] == "stopped"


def test_many_signals_ask_the_agent_at_most_five_times_a_second(tmp_path: Path) -> None:
    """A program may signal a container a hundred times a second, as a way to talk to it."""
    signalled = by_another_program(signal=10, killed_at=3.0)
    fakes = FakeInstance(signalled, folder=tmp_path)
    events_of = fakes.events._events_of

    def flood(of_box: FakeContainer) -> Any:
        yield from events_of(of_box)
        for number in range(100):
            at = 4 + number / 100
            yield at, fakes.events._event("kill", of_box, at, signal=10)

    with patch.object(fakes.events, "_events_of", flood):
        record = fakes.run().record()
    assert record["status"] == "success"
    assert len(fakes.asked) < 20


def answer(*, desired: str, container_desired: str = "RUNNING", known: str) -> TaskMetadata:
    batch = ContainerMetadata(name="batch", known_status=known, desired_status=container_desired)
    return TaskMetadata(desired_status=desired, containers=(batch,))


def test_the_agents_stop_of_one_container_is_a_stop() -> None:
    signals = StopSignals().with_signal(5, is_stop_signal=False)
    word = answer(desired="RUNNING", container_desired="STOPPED", known="RUNNING")
    assert signals.with_answer(word, "batch").signalled_ns == 5


def test_a_confirmed_stop_is_not_denied_later() -> None:
    signals = StopSignals().with_signal(5, is_stop_signal=True)
    confirmed = signals.with_answer(answer(desired="STOPPED", known="RUNNING"), "batch")
    later = confirmed.with_signal(6, is_stop_signal=False)
    assert later.with_answer(answer(desired="RUNNING", known="RUNNING"), "batch") == confirmed


def test_an_answer_from_before_a_signal_does_not_count() -> None:
    signals = StopSignals().with_answer(answer(desired="RUNNING", known="RUNNING"), "batch")
    assert not signals.was_denied
    assert signals.with_signal(5, is_stop_signal=True).signalled_ns == 5


def test_a_batch_that_docker_showed_only_before_its_start_is_reported_after_its_stop(
    tmp_path: Path,
) -> None:
    """Docker hangs from its start on, so that only its events show that it ran."""
    fakes = FakeInstance(
        FakeContainer(runs=((5.0, 8.0),), killed_at=7.5, exit_code=143), folder=tmp_path
    )

    def created_then_hung(inspected: EcsContainer) -> EcsContainer | Unavailable:
        if fakes.now < 5.1:
            return replace(
                inspected, is_running=False, started_ns=None, finished_ns=None, exit_code=None
            )
        return Unavailable("it did not answer", timed_out=True) if fakes.now < 12 else inspected

    fakes.docker.change = created_then_hung
    fakes.change = lambda task: replace(
        task, known_status=task.desired_status if fakes.now > 8 else "RUNNING"
    )
    record = fakes.run().record()
    assert record["status"] == "stopped"
    assert record["exitCode"] == 143
    assert record["metrics"]["durationMs"] == 3000
