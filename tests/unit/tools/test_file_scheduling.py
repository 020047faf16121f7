"""Which process of the tests gets which file."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.conftest import pytest_xdist_make_scheduler
from tests.file_scheduling import FileScheduling


class Process:
    """A process of pytest-xdist, and what it was told. Its tests end in the order it got them."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.told: list[int] = []
        self.ended = 0
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Session:
    """Files of so many tests, and processes that run them."""

    def __init__(self, kind: type[LoadFileScheduling], files: list[int], processes: int) -> None:
        config: Any = SimpleNamespace(
            getvalue=lambda _name: ["popen"] * processes,
            option=SimpleNamespace(loadscopereorder=False),
        )
        self.scheduler: Any = kind(config, Producer("", enabled=False))
        self.names = [f"test_{n}.py::test_{m}" for n, size in enumerate(files) for m in range(size)]
        self.processes = [Process(f"gw{n}") for n in range(processes)]
        for process in self.processes:
            self.scheduler.add_node(process)
        for process in self.processes:
            self.scheduler.add_node_collection(process, self.names)
        self.scheduler.schedule()

    def end_a_test(self, process: Process) -> bool:
        """Whether the process had one."""
        if process.ended == len(process.told):
            return False
        self.scheduler.mark_test_complete(process, process.told[process.ended])
        process.ended += 1
        return True

    def seen(self) -> list[Any]:
        told = [(process.told, process.shutting_down) for process in self.processes]
        return [told, self.scheduler.tests_finished, self.scheduler.has_pending]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=12),
    st.integers(1, 4),
    st.lists(st.integers(0, 3), max_size=80),
)
def test_each_process_gets_what_pytest_xdist_gives_it(
    files: list[int], processes: int, ends: list[int]
) -> None:
    theirs, ours = (
        Session(kind, files, processes) for kind in (LoadFileScheduling, FileScheduling)
    )
    for number in ends:
        for session in (theirs, ours):
            session.end_a_test(session.processes[number % processes])
        assert ours.seen() == theirs.seen()


def test_another_process_gets_what_a_crashed_one_has_not_run() -> None:
    session = Session(FileScheduling, [3, 2, 3, 2], 2)
    crashed, other = session.processes
    assert all(session.end_a_test(crashed) for _ in range(4))
    assert session.scheduler.remove_node(crashed) == session.names[crashed.told[4]]
    while session.end_a_test(other):
        pass
    assert sorted(crashed.told[:4] + other.told) == list(range(10))


@pytest.mark.parametrize(("distribution", "is_ours"), [("loadfile", True), ("loadscope", False)])
def test_files_are_given_to_processes_so(distribution: str, *, is_ours: bool) -> None:
    config: Any = SimpleNamespace(
        getoption=lambda _name: distribution, getvalue=lambda _name: ["popen"]
    )
    made = pytest_xdist_make_scheduler(config, Producer("", enabled=False))
    assert isinstance(made, FileScheduling) is is_ours
