"""The phases of a container, and what it used of its task's group."""

import re
from typing import get_args

import pytest
from msgspec.structs import replace

from profiler.monitor.instance import instance_container
from profiler.monitor.instance.group_totals import UNKNOWN_SHARER, sharers_of
from profiler.monitor.instance.instance_container import InstanceContainer, Phase, Seen, next_phase
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.task_groups import OpenGroup
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from tests.fakes import START_NS, seconds
from tests.instance_world import FakeContainer

_ROW = re.compile(r"^\| (\w+) +\| (\w+) +\| (\w+) +\|", re.MULTILINE)


def test_the_docstring_has_the_table_of_the_phases() -> None:
    rows = _ROW.findall(instance_container.__doc__ or "")
    documented = {(phase, seen): to for phase, seen, to in rows if phase != "phase"}
    coded = {
        (phase, seen): next_phase(phase, seen)
        for phase in get_args(Phase)
        for seen in get_args(Seen)
    }
    changes = {key: to for key, to in coded.items() if to != key[0]}
    assert documented == changes


@pytest.mark.parametrize("seen", get_args(Seen))
def test_a_lost_container_stays_lost(seen: Seen) -> None:
    assert next_phase("lost", seen) == "lost"


def ended_at_10() -> InstanceContainer:
    container = InstanceContainer(FakeContainer().inspect(10))
    container.at_end_ns = START_NS + seconds(10)
    return container


def task_of(*containers: ContainerMetadata) -> TaskMetadata:
    return TaskMetadata(containers=containers)


def test_a_container_that_started_before_the_end_shares_the_group() -> None:
    before = ContainerMetadata(name="before", docker_id="b", started_ns=START_NS + seconds(9))
    after = ContainerMetadata(name="after", docker_id="a", started_ns=START_NS + seconds(11))
    never = ContainerMetadata(name="never", docker_id="n")
    pause = ContainerMetadata(name="~internal~ecs~pause", docker_id="p", started_ns=START_NS)
    own = ContainerMetadata(name="batch", docker_id="0123-batch", started_ns=START_NS)
    task = task_of(before, after, never, pause, own)
    assert sharers_of(ended_at_10(), task, lacks_containers=False) == {"b"}


class WritingGroup(OpenGroup):
    """The group of an attempt that has written so many bytes."""

    def __init__(self, written_bytes: int | None) -> None:
        self._written_bytes = written_bytes

    def read_sample(self, read_ns: int) -> ContainerSample:
        return ContainerSample(read_ns=read_ns, block_write_bytes=self._written_bytes)

    def close(self) -> None:
        pass


def test_the_bytes_of_an_attempt_are_added_to_those_of_the_attempts_before() -> None:
    container = InstanceContainer(FakeContainer().inspect(5))
    totals = []
    for attempt, written_bytes in enumerate((100, 150, None)):
        if attempt:
            container.end_attempt(0, None)
            container.begin_again()
        container.group = WritingGroup(written_bytes)
        taken = container.read_sample(attempt)
        assert isinstance(taken, ContainerSample)
        totals.append(taken.block_write_bytes)
        assert taken.block_read_bytes is None
    assert totals == [100, 250, 250]


@pytest.mark.parametrize(("mode", "received"), [("bridge", 1700), ("container:0a1b", 900)])
def test_the_network_of_an_attempt_begins_at_0_unless_it_is_the_tasks(
    mode: str, received: int
) -> None:
    inspected = replace(FakeContainer().inspect(5), network_mode=mode)
    container = InstanceContainer(inspected, group=WritingGroup(1))
    container.read_sample(0, lambda _pid: (800, 1))
    container.end_attempt(0, None)
    container.begin_again()
    container.group = WritingGroup(1)
    taken = container.read_sample(1, lambda _pid: (900, 1))
    assert isinstance(taken, ContainerSample)
    assert taken.network_rx_bytes == received


def test_a_container_without_an_id_or_an_inspection_is_an_unknown_sharer() -> None:
    nameless = ContainerMetadata(name="other", started_ns=START_NS)
    assert sharers_of(ended_at_10(), task_of(nameless), lacks_containers=False) == {UNKNOWN_SHARER}
    assert sharers_of(ended_at_10(), task_of(), lacks_containers=True) == {UNKNOWN_SHARER}
