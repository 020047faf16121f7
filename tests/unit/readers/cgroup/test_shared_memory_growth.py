"""The growth of shared memory that a command without a group of its own may have made."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.readers.cgroup.hierarchy import read_own_cgroups
from profiler.readers.cgroup.shared_memory_growth import SharedMemory
from tests.cgroup_files import write_files

_KIB = 1024
_GROUPS = {
    "v1": (
        "4:memory:/job\n",
        "1 0 0:1 / /m rw - cgroup cgroup rw,memory\n",
        "m/job",
        "total_shmem",
    ),
    "v2": ("0::/job\n", "3 0 0:3 / /u rw - cgroup2 cgroup2 rw\n", "u/job", "shmem"),
}


class _Machine:
    """A folder with the files of a machine and of the group of this process."""

    def __init__(self, root: Path, version: str) -> None:
        membership, mounts, self._group, self._name = _GROUPS[version]
        self._root = root
        write_files(root, {"proc/self/cgroup": membership, "proc/self/mountinfo": mounts})
        self.has(machine_kib=100, group_kib=10)
        self.members(os.getpid())
        self.shared = self.new_shared()

    def new_shared(self) -> SharedMemory:
        """The growth from now on."""
        return SharedMemory(read_own_cgroups(str(self._root)), str(self._root / "proc"))

    def has(self, *, machine_kib: int, group_kib: int) -> None:
        """The shared memory now; the files stay the same ones, as the kernel's do."""
        self._write("proc/meminfo", f"MemTotal: 1 kB\nShmem:  {machine_kib} kB\n")
        self._write(f"{self._group}/memory.stat", f"anon 1\n{self._name} {group_kib * _KIB}\n")

    def members(self, *pids: int) -> None:
        self._write(f"{self._group}/cgroup.procs", "".join(f"{pid}\n" for pid in pids))

    def _write(self, name: str, text: str) -> None:
        write_files(self._root, {name: text})

    def add_group_below(self) -> None:
        (self._root / self._group / "below").mkdir()


@pytest.fixture(params=_GROUPS)
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[_Machine]:
    made = _Machine(tmp_path, request.param)
    yield made
    made.shared.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which is stopped: it uses no CPU time."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        _stop(process)
        yield process
        process.kill()


def test_the_growth_is_the_groups(machine: _Machine) -> None:
    assert machine.shared.growth_bytes() == 0
    machine.has(machine_kib=900, group_kib=310)
    assert machine.shared.growth_bytes() == 300 * _KIB


def test_what_others_free_does_not_hide_what_comes_after(machine: _Machine) -> None:
    machine.has(machine_kib=100, group_kib=4)
    assert machine.shared.growth_bytes() == 0
    machine.has(machine_kib=100, group_kib=10)
    assert machine.shared.growth_bytes() == 6 * _KIB


def test_without_a_group_that_counts_it_is_the_machines(tmp_path: Path) -> None:
    write_files(tmp_path, {"meminfo": "AnonPages: 1 kB\nShmem:  100 kB\nSlab: 1 kB\n"})
    shared = SharedMemory(read_own_cgroups(str(tmp_path)), str(tmp_path))
    write_files(tmp_path, {"meminfo": "MemTotal: 1 kB\nShmem:  300 kB\n"})
    assert shared.growth_bytes() == 200 * _KIB
    assert not shared.is_growth_of(())
    shared.close()


def test_gvisor_tells_no_shared_memory_apart(tmp_path: Path) -> None:
    """Its files in memory and System V segments count as anonymous memory."""
    text = "MemTotal: 1 kB\nAnonPages: {} kB\nShmem: 0 kB\n"
    write_files(tmp_path, {"meminfo": text.format(100)})
    shared = SharedMemory(read_own_cgroups(str(tmp_path)), str(tmp_path))
    write_files(tmp_path, {"meminfo": text.format(300)})
    assert shared.has_all_memory
    assert shared.growth_bytes() == 200 * _KIB
    assert shared.read_now_bytes() == 0
    assert shared.memory_limits() == (200 * _KIB, 300 * _KIB)
    write_files(tmp_path, {"meminfo": text.format(50)})
    assert shared.memory_limits() == (0, 50 * _KIB)
    write_files(tmp_path, {"meminfo": "MemTotal: 1 kB\n"})
    assert shared.memory_limits() is None
    shared.close()


def test_linux_tells_no_limits_of_a_commands_memory(machine: _Machine) -> None:
    assert machine.shared.memory_limits() is None


def test_without_both_files_the_growth_is_unknown(tmp_path: Path) -> None:
    cgroups = read_own_cgroups(str(tmp_path))
    assert SharedMemory(cgroups, str(tmp_path)).growth_bytes() is None


def test_a_group_without_others_has_only_the_commands_growth(machine: _Machine) -> None:
    machine.members(os.getpid(), 4711)
    assert machine.shared.is_growth_of({4711})


@pytest.fixture
def beside(machine: _Machine, other: subprocess.Popen[bytes]) -> Iterator[SharedMemory]:
    """The growth since a time at which the other process was a member of the group."""
    machine.members(os.getpid(), other.pid)
    shared = machine.new_shared()
    yield shared
    shared.close()


def _runs(other: subprocess.Popen[bytes]) -> None:
    """It uses CPU time, and is stopped again."""
    other.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, other.pid, os.WCONTINUED)
    _stop(other)


def test_a_process_that_does_not_run_makes_nothing(beside: SharedMemory) -> None:
    assert beside.is_growth_of(())
    assert beside.is_growth_of(())


def test_a_process_that_has_run_may_have_made_the_growth(
    machine: _Machine, beside: SharedMemory, other: subprocess.Popen[bytes]
) -> None:
    assert beside.is_growth_of(())
    _runs(other)
    assert not beside.is_growth_of(())
    machine.members(os.getpid())
    assert not beside.is_growth_of(()), "it may have ended since"


def test_a_process_that_has_run_before_the_first_question_may_have_made_the_growth(
    beside: SharedMemory, other: subprocess.Popen[bytes]
) -> None:
    _runs(other)
    assert not beside.is_growth_of(())


def test_a_process_that_has_ended_may_have_made_the_growth(
    machine: _Machine, beside: SharedMemory
) -> None:
    machine.members(os.getpid())
    assert not beside.is_growth_of(())


def test_a_new_member_is_the_commands_only_as_a_child_of_its_processes(
    machine: _Machine, other: subprocess.Popen[bytes]
) -> None:
    assert machine.shared.is_growth_of(())
    machine.members(os.getpid(), other.pid)
    assert not machine.shared.is_growth_of(())
    assert machine.shared.is_growth_of({os.getpid()})


@pytest.mark.parametrize("pids", [(), (0,), tuple(range(100_000, 100_050))])
def test_a_group_whose_members_are_unknown_or_many_may_have_made_it(
    machine: _Machine, pids: tuple[int, ...]
) -> None:
    own = (os.getpid(),) if pids else ()
    machine.members(*own, *pids)
    assert not machine.shared.is_growth_of(())


def test_groups_below_may_have_made_it(machine: _Machine) -> None:
    machine.add_group_below()
    assert not machine.shared.is_growth_of(())
