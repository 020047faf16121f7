"""The readers of an instance's tasks on a real Docker daemon: its API, its events, and the kernel's own groups."""

from collections.abc import Iterator
from functools import partial

import pytest

from profiler.core.clock import SystemClock
from profiler.core.log import Log
from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.docker_api import ContainerEvent, DockerApi, DockerEvents, connect_docker
from profiler.readers.docker.ecs_container import EcsContainer
from profiler.readers.docker.task_groups import InstanceCgroups, OpenGroup
from tests.e2e.engine import Engine
from tests.e2e.images import BASE_IMAGE
from tests.e2e.kernel import remove_cgroup
from tools.waiting import wait_until

pytestmark = pytest.mark.e2e

_PARENT = "/ecs/e2e0task0profiler0readers"
_LABELS = ("com.amazonaws.ecs.task-arn=arn:aws:ecs:us-east-1:1:task/jobs/1", "com.amazonaws.ecs.container-name=batch")
_WORK = (
    "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}); "
    "held = bytearray(b'x' * (100 << 20)); del held; end = time.process_time() + 0.5\n"
    "while time.process_time() < end: pass\n"
    "print('ready', flush=True); signal.sigwait({signal.SIGUSR1})"
)


class World:
    """A container of a task, and what reads it."""

    def __init__(self, engine: Engine) -> None:
        path, self.clock = str(engine.api.socket_path), SystemClock()
        self.api = DockerApi(path, self.clock)
        self.events = DockerEvents(partial(connect_docker, path), lambda: None, Log(), self.clock)
        self.seen: list[ContainerEvent] = []
        self._engine = engine
        self.events.start()
        wait_until(lambda: None in self.events.take(), 60, "the stream")
        labels = [f"--label={label}" for label in _LABELS]
        limits = (f"--cgroup-parent={_PARENT}", "--memory=256m", "--env=SECRET=canary", "--network=none")
        command = (BASE_IMAGE, "python3", "-c", _WORK)
        self.docker_id = engine.command("run", "--detach", *labels, *limits, *command).strip()
        wait_until(lambda: "ready" in engine.logs(self.docker_id)[0], 60, "the batch")

    def inspect(self) -> EcsContainer:
        found = self.api.inspect(self.docker_id)
        assert isinstance(found, EcsContainer)
        return found

    def go_on(self) -> None:
        """Let the batch end."""
        self._engine.command("kill", "--signal=USR1", self.docker_id)
        self.wait_for("die")

    def remove(self) -> None:
        self._engine.command("rm", "--force", self.docker_id)

    def wait_for(self, action: str) -> None:
        def has_come() -> bool:
            self.seen += [
                event for event in self.events.take() if event is not None and event.docker_id == self.docker_id
            ]
            return any(event.action == action for event in self.seen)

        wait_until(has_come, 60, f"the event {action}")


@pytest.fixture
def world(engine: Engine) -> Iterator[World]:
    if not engine.owns_cgroups:
        pytest.skip("it needs root and Docker's cgroupfs driver")
    world = World(engine)
    yield world
    world.remove()
    world.events.stop(10)
    world.api.close()
    remove_cgroup(_PARENT)


def test_a_container_is_seen_from_its_start_to_its_removal(world: World) -> None:
    listed, running = world.api.containers(), world.inspect()
    assert not isinstance(listed, Unavailable)
    assert (world.docker_id, True) in [(one.docker_id, one.is_running) for one in listed]
    assert (running.cgroup_parent, running.memory_limit_bytes, running.is_running) == (_PARENT, 256 << 20, True)
    world.go_on()
    ended = world.inspect()
    assert (ended.exit_code, ended.is_running) == (0, False)
    assert "canary" not in repr((listed, running, ended))
    world.remove()
    world.wait_for("destroy")
    mine = [(event.action, event.signal, event.exit_code) for event in world.seen]
    assert mine == [("start", None, None), ("kill", 10, None), ("die", None, 0), ("destroy", None, None)]
    removed = world.api.inspect(world.docker_id)
    assert isinstance(removed, Unavailable)
    assert removed.is_gone


def test_the_group_of_a_task_outlives_that_of_its_container(world: World) -> None:
    cgroups = InstanceCgroups()
    group, task = cgroups.open_container(world.docker_id, _PARENT), cgroups.open_task(_PARENT)
    assert isinstance(group, OpenGroup)
    assert isinstance(task, OpenGroup)
    sample = group.sample(world.clock.wall_ns())
    assert isinstance(sample, ContainerSample)
    assert (sample.memory_usage_peak_bytes or 0) >= 100 << 20
    assert (sample.cpu_ns or 0) >= 500_000_000
    assert (sample.pids, sample.memory_limit_bytes) == (1, 256 << 20)
    world.go_on()
    gone, totals = group.sample(world.clock.wall_ns()), task.totals()
    assert isinstance(gone, Unavailable)
    assert gone.is_gone
    assert isinstance(totals, GroupReading)
    assert (totals.peak_bytes or 0) >= 100 << 20
    assert (totals.cpu_ns or 0) >= (sample.cpu_ns or 0)
    group.close()
    task.close()
