"""One listing of the processes for several containers, on folders that look like /proc."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from profiler.collectors.processes.machine_processes import MachineProcesses
from profiler.readers.linux import proc
from tests.fakes import FakeClock

FIRST, SECOND = "c0ffee" * 10 + "abcd", "deadbe" * 10 + "abcd"


class FakeMachine:
    """A folder like /proc, and how often it was listed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.listings = 0
        self.processes = MachineProcesses(self.clock.monotonic_ns, str(folder))
        self.assign(1)
        list_pids = proc.numeric_entries

        def count_listing(listed: str) -> list[int]:
            self.listings += 1
            return list_pids(listed)

        monkeypatch.setattr(proc, "numeric_entries", count_listing)

    def assign(self, newest: int) -> None:
        (self.folder / "loadavg").write_text(f"0.02 0.10 0.09 2/184 {newest}\n")

    def start(self, pid: int, docker_id: str) -> None:
        (self.folder / str(pid)).mkdir(exist_ok=True)
        (self.folder / str(pid) / "cgroup").write_text(f"0::/../{docker_id}\n")

    def tick(self, *docker_ids: str) -> list[Sequence[int]]:
        """The new processes of the containers that are read in a tick."""
        self.processes.mark_out_of_date()
        taken = [self.processes.take_new(docker_id) for docker_id in docker_ids]
        return [sorted(new.pids) for new in taken]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return FakeMachine(tmp_path, monkeypatch)


def test_one_listing_finds_the_processes_of_all_containers(machine: FakeMachine) -> None:
    machine.start(7, FIRST)
    machine.start(8, SECOND)
    machine.start(9, "of nobody")
    for docker_id in (FIRST, SECOND):
        machine.processes.follow(docker_id)
    assert machine.tick(FIRST, SECOND) == [[7], [8]]
    machine.start(10, SECOND)
    machine.assign(10)
    assert machine.tick(FIRST, SECOND) == [[], [10]]
    assert machine.listings == 2


def test_nothing_is_listed_while_no_id_was_assigned(machine: FakeMachine) -> None:
    machine.processes.follow(FIRST)
    for _ in range(5):
        machine.tick(FIRST)
    assert machine.listings == 1


def test_a_container_that_is_read_rarely_gets_what_appeared_since(machine: FakeMachine) -> None:
    machine.processes.follow(FIRST)
    machine.processes.follow(SECOND)
    machine.tick(FIRST, SECOND)
    machine.start(7, SECOND)
    machine.assign(9)  # 8 and 9 have ended
    machine.tick(FIRST)
    machine.start(12, SECOND)
    machine.assign(12)  # and 10 and 11
    machine.processes.mark_out_of_date()
    machine.processes.take_new(FIRST)
    new = machine.processes.take_new(SECOND)
    assert sorted(new.pids) == [7, 12]
    assert new.missed_pids == 9 - 1 - 1 + 12 - 9 - 1


def test_what_was_missed_before_a_container_was_followed_is_not_its_own(
    machine: FakeMachine,
) -> None:
    machine.processes.follow(FIRST)
    machine.tick(FIRST)
    machine.assign(50)
    machine.tick(FIRST)
    machine.processes.follow(SECOND)
    machine.processes.mark_out_of_date()
    assert machine.processes.take_new(SECOND).missed_pids == 0


def test_a_container_that_is_followed_later_has_its_older_processes(machine: FakeMachine) -> None:
    machine.start(7, SECOND)
    machine.processes.follow(FIRST)
    machine.tick(FIRST)
    machine.processes.follow(SECOND)
    assert machine.tick(FIRST, SECOND) == [[], [7]]


def test_an_id_that_another_containers_process_got_is_that_ones(machine: FakeMachine) -> None:
    """The ids start again at small ones; meanwhile the first container was not read."""
    machine.processes.follow(FIRST)
    machine.processes.follow(SECOND)
    machine.assign(30_000)
    machine.tick(FIRST, SECOND)
    machine.start(30_001, FIRST)
    machine.assign(30_001)
    machine.tick(SECOND)
    machine.start(30_001, SECOND)
    machine.assign(7)
    assert machine.tick(FIRST, SECOND) == [[], [30_001]]
