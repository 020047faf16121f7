import os
from pathlib import Path

from profiler.collectors.stacks.python_processes import MAX_PROCESSES, PythonProcesses, living_processes, runs_python
from profiler.readers.linux import proc
from tests.values import present


class Machine:
    """Processes by their ids: the program, and what it used."""

    def __init__(self) -> None:
        self.programs: dict[int, str] = {}
        self.cpu_ns: dict[int, int] = {}
        self.decided: list[int] = []
        self.processes = PythonProcesses(self.runs, lambda pid: self.programs[pid], lambda pid: self.cpu_ns.get(pid, 0))

    def runs(self, pid: int) -> tuple[str, bool | None]:
        self.decided.append(pid)
        program = self.programs[pid]
        return program, None if program == "secret" else "python" in program

    def choose(self, at: float = 0) -> list[int]:
        return [pid for pid, _ in self.processes.choose([(pid, 1) for pid in self.programs], at)]


def test_only_python_processes_are_chosen_and_each_is_looked_at_once() -> None:
    machine = Machine()
    machine.programs = {1: "/bin/sh", 2: "/usr/bin/python3.11", 3: "/usr/bin/java"}
    assert [machine.choose(), machine.choose()] == [[2], [2]]
    assert machine.decided == [1, 2, 3]
    assert machine.processes.found_python
    assert not machine.processes.is_refused


def test_a_process_that_executes_another_program_is_looked_at_again() -> None:
    machine = Machine()
    machine.programs = {1: "/bin/sh"}
    assert machine.choose() == []
    machine.programs = {1: "/usr/bin/python3"}
    assert machine.choose() == [1]


def test_the_busiest_since_the_last_sample_come_first() -> None:
    machine = Machine()
    machine.programs = dict.fromkeys(range(1, 21), "python3")
    machine.cpu_ns = {pid: 1000 - pid for pid in machine.programs}
    assert machine.choose() == list(range(1, MAX_PROCESSES + 1))
    machine.cpu_ns[7] += 9
    machine.cpu_ns[20] += 50
    assert machine.choose()[:3] == [20, 7, 1]


def test_a_process_that_may_not_be_read_is_not_tried_again() -> None:
    machine = Machine()
    machine.programs = {1: "secret", 2: "python3"}
    assert machine.choose() == [2]
    assert machine.processes.is_refused
    assert not machine.processes.add_failure((2, 1), 0, "Permission Denied: Try running again with sudo")
    assert machine.choose(1000) == []
    assert machine.decided == [1, 2]


def test_a_process_that_keeps_failing_is_tried_less_and_less_often() -> None:
    machine = Machine()
    machine.programs = {1: "python3"}
    reason = "Unsupported version of Python: 3.15.0"
    tried = {at: machine.processes.add_failure((1, 1), at, reason) for at in range(4000) if machine.choose(at)}
    seconds = list(tried)
    assert (seconds[:9], seconds[-1] - seconds[-2]) == ([0, 1, 2, 3, 4, 5, 7, 11, 19], 600)
    assert sum(tried.values()) == 1  # reported


def test_a_program_runs_python_by_its_name_or_by_its_library(tmp_path: Path) -> None:
    maps = "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0\n"
    programs = (
        ("/usr/sbin/uwsgi", maps, True),
        ("/usr/bin/pypy3", "", False),
        ("/usr/bin/python3.12 (deleted)", "", True),
    )
    for pid, (program, mapped, expected) in enumerate(programs):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "exe").symlink_to(program)
        (folder / "maps").write_text(mapped)
        assert runs_python(pid, str(tmp_path))[1] is expected
    assert runs_python(9, str(tmp_path)) == ("", False)


def test_processes_have_their_start() -> None:
    stat = proc.parse_stat(proc.read("/proc/self/stat") or b"")
    assert living_processes([os.getpid(), 2**22 + 1]) == ((os.getpid(), present(stat).started_ticks),)
