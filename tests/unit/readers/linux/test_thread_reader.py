"""The counters and waits of threads, from a folder that looks like ``/proc``."""

import os
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.readers.linux import proc
from profiler.readers.linux.connection_waits import AskStream
from profiler.readers.linux.cpu_pressure import PressureFiles
from profiler.readers.linux.look import ThreadsLook
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.sockets import TcpStreamState, UnknownSockets
from profiler.readers.linux.thread_counters import (
    ReadingNumberAndTime,
    ThreadFiles,
    open_thread,
)
from profiler.readers.linux.thread_reader import ThreadReader
from profiler.readers.linux.wait_types import MEMORY, STOPPED, TRACED, BlockedThread, Helpers, Wait
from profiler.record.activity_model import WaitKind
from tests import fakes
from tests.fakes import seconds
from tests.open_files import open_files
from tests.values import present

SLEEPING = "230 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"
LOCKED = "202 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"
UNTIL = "202 0x8 0x89 0x0 0x40 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"  # the time at 0x40
ALL_SIGNALS = 0x7FFBFEFF  # as the kernel shows them: without SIGKILL and SIGSTOP
ACCEPTING = "43 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"
WAITS_FOR_CHILD = "61 0xffffffff 0x0 0x0 0x0 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"
RECEIVING = "45 0x3 0x0 0x1 0x0 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"
CONNECTED = "0: 0100007F:9C40 0903000A:1538 01 0:0 0:0 0 1000 0 501 1 0\n"
POLLING_FOR_A_TIME = "232 0x4 0x0 0x1 0x1f4 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"
POLLING = "232 0x4 0x0 0x1 0xffffffff 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"
SYNCING = "162 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"
READING = "0 0x3 0x0 0x1 0x0 0x0 0x0 0x7ffd8c1b0e20 0x7f2b5e51a007\n"
IN_A_PAGE_FAULT = "-1 0x7ffd8c1b0e20 0x7f2b5e51a007\n"


class Shown:
    """A look, and what all threads do by the looks so far; None is a thread that can run."""

    def __init__(self, look: ThreadsLook, present: dict[int, BlockedThread | None]) -> None:
        self.look = look
        self.growth = look.growth
        self.pressure = look.pressure
        self.sees_calls = look.sees_calls
        self.is_behind = look.is_behind
        self.blocked = [blocked for blocked in present.values() if blocked is not None]
        self.waits = Counter(blocked.wait for blocked in self.blocked)
        self.shows_work = None in present.values()


class _PlayedSockets(UnknownSockets):
    """Connections that a function knows."""

    def __init__(self, ask: AskStream) -> None:
        self._ask = ask

    def ask_stream_state(self, inode: int, stream: bytes) -> TcpStreamState | None:
        return self._ask(inode, stream)


class FakeMachine:
    """A folder with threads. Their CPU clock is the sum of what they ran."""

    def __init__(self, folder: Path, machine: str = "x86_64") -> None:
        self.folder = folder
        self.waits_for_disks(1)
        self.cost_ns = 0
        self.clocks: dict[int, int] = {}
        self.strangers: set[int] = set()
        self.asked: list[int] = []  # the connections
        self.while_asked: Callable[[], None] = lambda: None
        self.came_before: float = 0
        self.ends: dict[int, int] = {}  # the inodes of connections on this machine, by their ports
        self.reader = ThreadReader(
            self._own_cpu_ns,
            str(folder),
            machine,
            cpu_clock=lambda pid, _: self.clocks.get(pid),
            sockets=_PlayedSockets(self._ask),
            is_of_batch=lambda pid: pid not in self.strangers,
        )
        self._cpu_ns = 0
        self._present: dict[int, BlockedThread | None] = {}

    def close(self) -> None:
        self.reader.close()

    def waits_for_disks(self, threads: int, *, waited: float = 0, is_counted: bool = True) -> None:
        """So many threads of the whole machine wait for disks now, and any did for so long."""
        ticks = round(100 * waited * (os.cpu_count() or 1))
        (self.folder / "stat").write_text(f"cpu 9 9 9 9 {ticks} 0\nprocs_blocked {threads}\n")
        (self.folder / "pressure").mkdir(exist_ok=True)
        pressure = f"some avg10=0.00 total={round(waited * 1e6)}\n" if is_counted else ""
        (self.folder / "pressure" / "io").write_text(pressure)

    def _ask(self, inode: int, stream: bytes) -> TcpStreamState:
        self.asked.append(inode)
        self.while_asked()
        found = self.ends.get(int.from_bytes(stream[1:3], "big"), inode)
        return TcpStreamState(
            received_bytes=len(self.asked),
            owes=False,
            inode=found,
            came_before_ns=seconds(self.came_before),
        )

    def _own_cpu_ns(self) -> int:
        self._cpu_ns += self.cost_ns
        return self._cpu_ns

    def thread(
        self,
        pid: int,
        tid: int = 0,
        *,
        run: float = 1,
        wait: float = 0,
        state: str = "S",
        call: str | None = SLEEPING,
        blocked: int = 0,
        stack: int = 1,
        faults: int = 1,
        disk_ticks: int = 0,
    ) -> None:
        folder = self.folder / str(pid) / "task" / str(tid or pid)
        folder.mkdir(parents=True, exist_ok=True)
        write_in_place(folder / "schedstat", f"{seconds(run)} {seconds(wait)} 5\n")
        # The address of the stack is the 28th field, the blocked signals are the 32nd one, the major
        # faults are the 12th, the ticks of waits for a disk the 42nd.
        fields = f"{state} {'1 ' * 8}{faults} {'1 ' * 15}{stack} 1 1 1 {blocked} 3"
        fields += f" {'1 ' * 8}{disk_ticks} 0"
        write_in_place(folder / "stat", f"{tid or pid} (a job)) {fields}\n")
        if call is not None:
            write_in_place(folder / "syscall", call)

    def read(self, *processes: ProcessReading, at: float = 1, is_required: bool = False) -> Shown:
        self.reader.follow(processes)
        look = self.reader.look(seconds(at), is_fresh=True, is_required=is_required)
        return self._shown(present(look))

    def look(self, at: float) -> Shown:
        """A look between two readings of the processes."""
        return self._shown(present(self.reader.look(seconds(at))))

    def _shown(self, look: ThreadsLook) -> Shown:
        for grown in look.growth or ():
            self._present.pop(grown.thread, None)
        for thread in look.ended:
            self._present.pop(thread, None)
        self._present.update({seen.thread: seen.blocked for seen in look.seen})
        return Shown(look, self._present)


def write_in_place(file: Path, text: str) -> None:
    """Write a file without emptying it first: ext4 would put each one on the disk at once, which
    takes a millisecond.
    """
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT), "w") as opened:
        opened.write(text)
        opened.truncate()


def growth_of(sample: Shown | ThreadsLook) -> list[tuple[int, int]]:
    """The times on a CPU and waiting for one."""
    return [(grown.run_ns, grown.wait_ns) for grown in sample.growth or ()]


@pytest.fixture
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeMachine]:
    with closing(FakeMachine(tmp_path, getattr(request, "param", "x86_64"))) as opened:
        yield opened


without_system_calls = pytest.mark.parametrize("machine", ["riscv64"], indirect=True)


def process(
    pid: int = 7,
    *,
    cpu: float = 1,
    threads: int = 1,
    state: str = "S",
    start: int = 1,
    blocks_signals: bool = False,
    shows_function: bool = False,
) -> ProcessReading:
    return fakes.process(
        pid,
        started_ticks=start,
        own_cpu_ns=seconds(cpu),
        threads=threads,
        state=state,
        blocks_signals=blocks_signals,
        shows_function=shows_function,
    )


def test_the_growth_since_the_last_reading_is_never_negative(machine: FakeMachine) -> None:
    machine.thread(7, run=1, wait=0.5)
    assert growth_of(machine.read(process())) == [(seconds(1), seconds(0.5))]
    machine.thread(7, run=1.25, wait=0.75)
    assert growth_of(machine.read(process(cpu=1.25), at=2)) == [(seconds(0.25), seconds(0.25))]
    machine.thread(7, run=0.5, wait=3)  # of a new process with the same id
    assert growth_of(machine.read(process(cpu=0.5, start=2), at=5)) == [(seconds(0.5), seconds(3))]
    machine.thread(7, run=0.25)  # of another thread, which has executed a program
    assert growth_of(machine.read(process(cpu=0.75, start=2), at=6)) == [(0, 0)]
    machine.thread(7, run=0.5, wait=0.25)
    assert growth_of(machine.read(process(cpu=1, start=2), at=7)) == [
        (seconds(0.25), seconds(0.25))
    ]


def test_only_processes_and_threads_that_ran_are_read_and_asked_again(machine: FakeMachine) -> None:
    machine.thread(7)
    first = process()
    assert machine.read(first).waits == Counter([Wait("sleep")])
    shutil.rmtree(machine.folder / "7")
    for reading in (first, process()):
        sample = machine.read(reading, at=2)
        assert sample.growth == []
        assert sample.waits == {Wait("sleep"): 1}
    machine.read()
    machine.thread(7, call=LOCKED)
    machine.thread(7, 8)
    assert machine.read(process(threads=2)).waits == {Wait("lock"): 1, Wait("sleep"): 1}
    machine.thread(7, call=SLEEPING)  # the change is not seen
    machine.thread(7, 8, run=1.1, call=LOCKED)
    assert machine.read(process(cpu=1.1, threads=2), at=2).waits == Counter(
        [Wait("lock"), Wait("lock")]
    )


@without_system_calls
def test_a_sample_says_whether_a_thread_could_run_also_without_system_calls(
    machine: FakeMachine,
) -> None:
    machine.thread(7, state="R")
    assert machine.read(process(state="R")).shows_work
    machine.thread(7, state="S", run=1.1)
    assert not machine.read(process(cpu=1.1), at=2).shows_work


def test_the_pressure_of_the_machine_is_read(machine: FakeMachine) -> None:
    (machine.folder / "pressure").mkdir(exist_ok=True)
    (machine.folder / "pressure" / "cpu").write_text("some avg10=5.97 total=516\n")
    machine.thread(7)
    pressure = machine.read(process()).pressure
    assert pressure is not None
    assert pressure.waited_ns == 516_000


@without_system_calls
def test_without_system_calls_the_pressure_is_read_where_threads_wait_and_at_times(
    machine: FakeMachine,
) -> None:
    def reads(run: float, wait: float, state: str = "S") -> list[bool]:
        found = []
        for _ in range(10):
            spent[0] += 1
            at, used[0], waited[0] = spent[0], used[0] + run, waited[0] + wait
            machine.thread(7, run=used[0], wait=waited[0], state=state)
            look = machine.read(process(cpu=used[0], state=state), at=at)
            found.append(look.pressure is not None)
        return found

    spent, used, waited = [0], [0.0], [0.0]
    reads(0.01, 0.01)
    assert sum(reads(0.01, 0.01)) == 2
    assert all(reads(0.01, 0.2))
    assert all(reads(0.2, 0.0))
    assert all(reads(0.01, 0.0, "R"))
    assert all(reads(0.0, 0.0, "R"))  # waits for a CPU, and has not run
    assert sum(reads(0.01, 0.01)) == 2


def test_a_kernel_without_pressure_files_shows_none(machine: FakeMachine) -> None:
    machine.thread(7)
    pressure = machine.read(process()).pressure
    assert pressure is not None
    assert pressure.waited_ns is None


def test_threads_that_begin_and_end(machine: FakeMachine) -> None:
    machine.thread(7)
    machine.read(process())
    machine.thread(7, 8, run=0.25)
    assert growth_of(machine.read(process(cpu=1.25, threads=2), at=2)) == [(seconds(0.25), 0)]
    shutil.rmtree(machine.folder / "7" / "task" / "8")
    os.truncate(machine.folder / "7" / "task" / "7" / "schedstat", 0)
    assert machine.read(process(cpu=1.5), at=3).growth == []


def test_a_thread_on_a_cpu_and_a_zombie_wait_for_nothing(machine: FakeMachine) -> None:
    machine.thread(7, call="running\n", state="R")
    machine.thread(7, 8, call=LOCKED)
    sample = machine.read(process(state="R", threads=2))
    assert sample.waits == {Wait("lock"): 1}
    assert sample.sees_calls is True
    assert sample.shows_work is True
    machine.thread(7, run=2)
    assert not machine.read(process(cpu=2, threads=2), at=3).shows_work
    for pid in (18, 9):
        machine.thread(pid, call=IN_A_PAGE_FAULT, state="Z")
    machine.thread(9, 10, call=LOCKED)  # the other threads of a process may go on
    sample = machine.read(process(18, state="Z"), process(9, state="Z", threads=2), at=9)
    assert sample.waits == {Wait("lock"): 1}
    assert sample.shows_work is False


def test_no_thread_lives_once_all_have_ended(machine: FakeMachine) -> None:
    """Of a process whose first thread has ended, the others may go on, also unread."""
    machine.thread(7, call=IN_A_PAGE_FAULT, state="Z")
    machine.thread(7, 8, call=LOCKED)
    leader = process(state="Z", threads=2)
    assert not machine.read(leader).look.have_all_ended
    assert not machine.read(leader, at=2).look.have_all_ended
    os.truncate(machine.folder / "7" / "task" / "8" / "schedstat", 0)
    machine.thread(7, run=1.1, call=IN_A_PAGE_FAULT, state="Z")
    zombie = process(cpu=1.1, state="Z")
    assert machine.read(zombie, at=3).look.have_all_ended
    with_the_reading = machine.reader.look_with_reading(seconds(4))
    assert with_the_reading is not None
    assert with_the_reading.have_all_ended
    assert machine.read(at=5).look.have_all_ended


def test_all_have_ended_at_the_last_reading(machine: FakeMachine) -> None:
    machine.thread(7)
    assert not machine.read(process()).look.have_all_ended
    assert machine.reader.read_last(seconds(2)).have_all_ended


def test_who_waits_for_a_files_lock_is_asked_for_its_next_holder_when_the_last_one_ends(
    machine: FakeMachine, tmp_path: Path
) -> None:
    """A thread that waits does not run meanwhile."""
    locked = tmp_path / "locked"
    locked.touch()
    at = locked.stat()
    place = f"{os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:{at.st_ino}"

    def is_held_by(pid: int) -> None:
        row = f"1: FLOCK  ADVISORY  WRITE {pid} {place} 0 EOF\n"
        write_in_place(machine.folder / "locks", row)

    machine.thread(7, call=SLEEPING.replace("230 0x0 0x0", "73 0x3 0x2"))  # flock
    (machine.folder / "7" / "fd").mkdir()
    (machine.folder / "7" / "fd" / "3").symlink_to(locked)
    (machine.folder / "7" / "fdinfo").mkdir()
    (machine.folder / "7" / "fdinfo" / "3").write_text("mnt_id:\t31\n")
    (machine.folder / "7" / "mountinfo").write_text("31 29 8:1 / / rw - ext4 /dev/sda rw\n")
    for pid in (8, 9):
        machine.thread(pid)
    is_held_by(8)
    shown = machine.read(process(7), process(8), process(9))
    assert [each.helper_pids for each in shown.blocked if each.is_for_file_lock] == [{8}]
    is_held_by(9)
    shown = machine.read(process(7), process(8), process(9), at=2)
    assert [each.helper_pids for each in shown.blocked if each.is_for_file_lock] == [{8}]
    shown = machine.read(process(7), process(9), at=3)
    assert [each.helper_pids for each in shown.blocked if each.is_for_file_lock] == [{9}]


def test_nobody_is_asked_in_a_step_without_blocked_time(machine: FakeMachine) -> None:
    machine.thread(7, run=1)
    machine.thread(8, run=1, call=LOCKED)  # it only waits
    machine.read(process(), process(8))
    machine.thread(7, run=2)
    assert machine.read(process(cpu=2), process(8), at=2).waits == Counter([Wait("lock")])
    assert machine.read(process(cpu=2), process(8), at=2.5).waits == Counter(
        [Wait("sleep"), Wait("lock")]
    )


@without_system_calls
@pytest.mark.parametrize(
    ("state", "expected"), [("D", [Wait("disk")]), ("S", [Wait("other")]), ("R", [])]
)
def test_without_the_system_call_the_state_shows_the_disk(
    machine: FakeMachine, state: str, expected: list[Wait]
) -> None:
    machine.thread(7, state=state)
    machine.thread(8, 8, state=state)
    machine.thread(8, 9, state=state)
    sample = machine.read(process(state=state), process(8, threads=2, state="S"))
    assert sample.waits == Counter(expected * 3)
    assert all(blocked.is_hidden for blocked in sample.blocked)
    assert sample.sees_calls is False


@without_system_calls
def test_without_the_system_call_a_parent_in_vfork_does_not_wait_for_the_disk(
    machine: FakeMachine,
) -> None:
    machine.thread(7)
    sample = machine.read(process(state="D", blocks_signals=True))
    assert sample.waits == {Wait("other"): 1}


@without_system_calls
def test_one_of_several_threads_in_vfork_does_not_wait_for_the_disk(machine: FakeMachine) -> None:
    machine.thread(7, state="D", blocked=ALL_SIGNALS)
    machine.thread(7, 8, state="D", blocked=ALL_SIGNALS & ~1)
    sample = machine.read(process(threads=2))
    assert sample.waits == {Wait("other"): 1, Wait("disk"): 1}


@without_system_calls
@pytest.mark.parametrize("threads", [1, 2])
def test_a_thread_that_always_blocks_all_signals_waits_for_the_disk(
    machine: FakeMachine, threads: int
) -> None:
    machine.thread(7, blocked=ALL_SIGNALS)
    machine.thread(7, 8)
    machine.read(process(threads=threads, blocks_signals=True))
    for tid in (7, 8):
        machine.thread(7, tid, run=1.1, state="D", blocked=ALL_SIGNALS)
    sample = machine.read(process(cpu=1.2, threads=threads, state="D", blocks_signals=True), at=2)
    assert sample.waits[Wait("disk")] == 1


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("threads", [1, 2])
def test_who_sleeps_uninterruptibly_waits_for_a_disk_only_while_the_machine_always_does(
    tmp_path: Path, threads: int, level: int
) -> None:
    """As in a frozen group, or a program that waits for a module of the kernel."""
    with closing(FakeMachine(tmp_path, "x86_64" if level == 2 else "riscv64")) as machine:
        for tid in range(7, 7 + threads):
            machine.thread(7, tid, state="D", call=IN_A_PAGE_FAULT)
        asleep = process(threads=threads, state="D")
        shown: list[list[tuple[str, bool]]] = []
        for at, waiting in enumerate((1, 1, 0, 1), start=1):
            machine.waits_for_disks(waiting)
            look = machine.read(asleep, at=at).look
            shown.append(
                [
                    (seen.blocked.wait.kind, seen.is_correction)
                    for seen in look.seen
                    if seen.blocked is not None
                ]
            )
    # Nobody is asked again once a look has found no such wait.
    kinds = (("disk", False), ("disk", True), ("other", True))
    assert shown == [*([kind] * threads for kind in kinds), []]


@without_system_calls
@pytest.mark.parametrize(
    ("size", "kind"), [("900 30 20 1 0 9 0", "other"), ("900 9 8 1 0 9 0", "disk")]
)
def test_a_child_in_its_parents_memory_shows_a_vfork(
    machine: FakeMachine, size: str, kind: str
) -> None:
    machine.thread(7, state="D")
    (machine.folder / "7" / "task" / "7" / "children").write_text("8 ")
    (machine.folder / "7" / "statm").write_text("900 30 20 1 0 9 0\n")
    (machine.folder / "8").mkdir()
    (machine.folder / "8" / "statm").write_text(f"{size}\n")
    assert machine.read(process(state="D")).waits == {Wait(kind): 1}


@without_system_calls
def test_who_has_run_since_may_have_waited_for_a_disk_before(machine: FakeMachine) -> None:
    """The counters of several threads are read in turn."""
    machine.thread(7, state="D")
    machine.thread(7, 8)
    asleep = process(threads=2, cpu=2)
    machine.read(asleep)
    machine.waits_for_disks(0)
    machine.thread(7, run=1.1, state="D")
    assert machine.read(asleep, at=2).waits[Wait("disk")] == 1


@without_system_calls
@pytest.mark.parametrize("is_counted", [True, False], ids=["pressure", "iowait"])
@pytest.mark.parametrize(("waited", "kind"), [(0.01, "other"), (0.03, "disk")])
def test_short_waits_for_a_disk_are_known_by_how_long_the_machine_waited(
    machine: FakeMachine, waited: float, kind: str, *, is_counted: bool
) -> None:
    machine.waits_for_disks(0, is_counted=is_counted)
    machine.thread(7)
    machine.read(process())
    cpus = os.cpu_count() or 1
    machine.waits_for_disks(0, waited=waited / cpus, is_counted=is_counted)
    machine.thread(7, run=1.1, state="D")
    asleep = process(cpu=1.1, state="D")
    assert machine.read(asleep, at=2).waits == {Wait(kind): 1}
    machine.waits_for_disks(0, waited=1, is_counted=is_counted)  # another thread of the machine
    assert machine.read(asleep, at=3).waits == {Wait("other"): 1}


@without_system_calls
@pytest.mark.parametrize("threads", [1, 2])
def test_what_the_kernel_counts_of_a_thread_says_more_than_the_machine(
    machine: FakeMachine, threads: int
) -> None:
    def read(at: float, *, faults: int, disk_ticks: int) -> str:
        machine.waits_for_disks(0, waited=0.5 * at)
        for tid in (7, 8):
            machine.thread(7, tid, run=0.1 * at, state="D", faults=faults, disk_ticks=disk_ticks)
        asleep = process(cpu=0.2 * at, state="D", threads=threads)
        (wait,) = machine.read(asleep, at=at, is_required=True).waits
        return wait.kind

    read(1, faults=0, disk_ticks=0)
    assert read(2, faults=0, disk_ticks=0) == "disk"  # the kernel may count nothing of threads
    assert read(3, faults=1, disk_ticks=0) == "disk"
    assert read(4, faults=1, disk_ticks=3) == "disk"
    assert read(5, faults=1, disk_ticks=3) == "other"  # such as vfork, beside others' disks


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("call_usermodehelper_exec", "other"),
        ("rpc_wait_bit_killable", "disk"),
        ("folio_wait_bit_common", "other"),
    ],
)
def test_the_kernels_function_says_what_no_counter_does(
    machine: FakeMachine, place: str, kind: str
) -> None:
    machine.waits_for_disks(1 if "helper" in place else 0)
    machine.thread(7, state="D", call=IN_A_PAGE_FAULT)
    (machine.folder / "7" / "task" / "7" / "wchan").write_text(place)
    assert machine.read(process(state="D")).waits == {Wait(kind): 1}


@given(states=st.lists(st.sampled_from("SSSDRTZ"), min_size=2, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_process_of_one_thread_shows_its_last_state(states: list[str], tmp_path: Path) -> None:
    shown = {"S": Wait("other"), "T": STOPPED.wait, "D": Wait("disk")}
    with closing(FakeMachine(tmp_path, machine="riscv64")) as machine:
        for number, state in enumerate(states, start=1):
            machine.thread(7, run=0.1 * number)
            machine.thread(8, state="D")
            sample = machine.read(
                process(cpu=0.1 * number, state=state), process(8, state="D"), at=number
            )
            waits = Counter([Wait("disk")])
            if state in shown:
                waits[shown[state]] += 1
            assert sample.waits == waits
            assert sample.shows_work == (state == "R")
            assert len(sample.growth or ()) == (2 if number == 1 else 1)


@without_system_calls
def test_a_thread_that_has_ended_waits_no_longer_without_system_calls(machine: FakeMachine) -> None:
    machine.thread(7)
    assert machine.read(process()).waits == {Wait("other"): 1}
    machine.thread(7, 8)
    machine.read(process(cpu=1.1, threads=2), at=2)
    os.truncate(machine.folder / "7" / "task" / "8" / "schedstat", 0)  # as of an ended thread
    for at in (3, 4):
        machine.thread(7, run=1 + 0.1 * at)
        sample = machine.read(process(cpu=1 + 0.1 * at), at=at, is_required=True)
    assert sample.waits == {Wait("other"): 1}


@without_system_calls
def test_a_wait_that_ends_in_a_known_sleep_is_within_its_step(machine: FakeMachine) -> None:
    """Linux counts some sleeps as waits for a CPU: one that is longer than the step is none."""
    for at, wait in ((1, 0.0), (2, 0.2), (3, 0.3), (4, 60.3)):
        machine.thread(7, run=0.1 * at, wait=wait)
        sample = machine.read(process(cpu=0.1 * at), at=at)
    assert growth_of(sample) == [(seconds(0.1), 0)]


@without_system_calls
def test_a_frozen_process_does_not_wait_for_the_disk(machine: FakeMachine, tmp_path: Path) -> None:
    machine.reader = ThreadReader(
        lambda: 0, str(tmp_path), "riscv64", is_frozen=lambda pid: pid == 7
    )
    machine.thread(7, state="D")
    machine.thread(8, state="D")
    sample = machine.read(process(state="D"), process(8, state="D"))
    assert sample.waits == {STOPPED.wait: 1, Wait("disk"): 1}


def test_a_group_of_version_2_that_is_frozen_is_stopped(
    machine: FakeMachine, tmp_path: Path
) -> None:
    """The kernel shows the system calls in which its threads were."""
    events = tmp_path / "events"
    machine.reader = ThreadReader(
        lambda: 0,
        str(tmp_path),
        "x86_64",
        open_pressure=lambda _: PressureFiles(None, None, os.open(events, os.O_RDONLY)),
    )
    for at, (is_frozen, waits) in enumerate(((0, Wait("sleep")), (1, STOPPED.wait)), start=1):
        events.write_text(f"populated 1\nfrozen {is_frozen}\n")
        machine.thread(7, run=at)
        assert machine.read(process(cpu=at), at=2 * at).waits == {waits: 1}


@pytest.mark.parametrize("machine_kind", ["x86_64", "riscv64"], ids=["level 2", "level 1"])
def test_threads_of_a_group_of_version_1_that_is_frozen_are_stopped_though_none_ran(
    machine: FakeMachine, tmp_path: Path, machine_kind: str
) -> None:
    """Linux 6.1 and later freeze most waits where they are."""
    state = tmp_path / "freezer.state"
    machine.reader = ThreadReader(
        lambda: 0,
        str(tmp_path),
        machine_kind,
        open_pressure=lambda _: PressureFiles(None, freezer=os.open(state, os.O_RDONLY)),
    )
    machine.thread(7, run=1)
    write_in_place(state, "THAWED\n")
    before = machine.read(process(cpu=1), at=2).waits
    assert STOPPED.wait not in before
    write_in_place(state, "FROZEN\n")
    assert machine.read(process(cpu=1), at=4).waits == {STOPPED.wait: 1}
    write_in_place(state, "THAWED\n")
    assert machine.read(process(cpu=1), at=6).waits == before


def test_a_process_in_a_frozen_group_of_its_own_is_stopped(
    machine: FakeMachine, tmp_path: Path
) -> None:
    frozen = {7}
    machine.reader = ThreadReader(
        lambda: 0, str(tmp_path), "x86_64", is_frozen=lambda pid: pid in frozen
    )
    machine.thread(7, run=1, state="D")
    assert machine.read(process(state="D", cpu=1), at=2).waits == {STOPPED.wait: 1}
    frozen.clear()
    machine.thread(7, run=2, state="D")
    assert machine.read(process(state="D", cpu=2), at=4).waits == {Wait("sleep"): 1}


def waits_in(machine: FakeMachine, kernel_function: str) -> None:
    write_in_place(machine.folder / "7" / "task" / "7" / "wchan", kernel_function)


@pytest.mark.parametrize("kernel_function", ["get_signal", "do_freezer_trap"])
def test_a_thread_in_a_frozen_group_that_it_entered_later_was_stopped_since_it_ran_last(
    machine: FakeMachine, kernel_function: str
) -> None:
    machine.thread(7, run=1)
    waits_in(machine, kernel_function)
    assert machine.read(process(cpu=1), at=2).waits == {Wait("sleep"): 1}
    frozen = machine.read(process(cpu=1), at=4)
    assert [(seen.blocked, seen.is_correction) for seen in frozen.look.seen] == [(STOPPED, True)]
    assert machine.read(process(cpu=1), at=6).waits == {STOPPED.wait: 1}
    machine.thread(7, run=2)
    waits_in(machine, "hrtimer_nanosleep")
    assert machine.read(process(cpu=2), at=8).waits == {Wait("sleep"): 1}
    assert machine.read(process(cpu=2), at=10).waits == {Wait("sleep"): 1}


@pytest.mark.parametrize(
    ("kernel_function", "state"),
    [("hrtimer_nanosleep", "S"), ("0", "S"), ("", "S"), ("get_signal", "R"), ("get_signal", "D")],
)
def test_a_thread_that_waits_anywhere_else_is_in_no_frozen_group(
    machine: FakeMachine, kernel_function: str, state: str
) -> None:
    """The kernel does not show everybody the function; a thread that takes a signal is in it, too,
    and one that writes its memory to the disk.
    """
    machine.thread(7, run=1)
    waits_in(machine, kernel_function)
    machine.read(process(cpu=1), at=2)
    machine.thread(7, run=1, state=state)
    assert STOPPED.wait not in machine.read(process(cpu=1), at=4).waits


@pytest.mark.parametrize(
    ("call", "is_stopped"), [(SLEEPING, False), (LOCKED, False), (SYNCING, True)]
)
def test_of_the_threads_of_a_process_one_that_sleeps_elsewhere_is_enough(
    machine: FakeMachine, call: str, *, is_stopped: bool
) -> None:
    """A thread that waits for the disk enters the frozen group only after it."""
    machine.thread(7, run=1)
    machine.read(process(cpu=1), at=1)
    machine.thread(7, run=1.1)
    waits_in(machine, "get_signal")
    machine.thread(7, 8, run=0.01, call=call)
    (machine.folder / "7" / "task" / "8" / "wchan").write_text("elsewhere")
    machine.read(process(cpu=2, threads=2), at=2)
    waits = machine.read(process(cpu=2, threads=2), at=4).waits
    assert (STOPPED.wait in waits) is is_stopped


def test_a_thread_that_waits_in_another_call_is_parsed_again(machine: FakeMachine) -> None:
    for at, (call, wait) in enumerate(
        ((SLEEPING, "sleep"), (LOCKED, "lock"), (LOCKED, "lock"), (SLEEPING, "sleep")), start=1
    ):
        machine.thread(7, run=at / 10, call=call)
        assert machine.read(process(cpu=at), at=at).waits == {Wait(wait): 1}


def test_a_thread_that_runs_again_before_the_next_look_is_in_no_frozen_group(
    machine: FakeMachine,
) -> None:
    machine.thread(7, run=1)
    waits_in(machine, "get_signal")
    machine.read(process(cpu=1), at=2)
    machine.thread(7, run=2)
    assert machine.read(process(cpu=2), at=4).waits == {Wait("sleep"): 1}


def test_nobody_looks_whether_a_process_that_has_just_run_is_in_a_frozen_group(
    machine: FakeMachine,
) -> None:
    machine.thread(7, run=1)
    machine.thread(7, 8, run=1)
    waits_in(machine, "get_signal")
    (machine.folder / "7" / "task" / "8" / "wchan").write_text("get_signal")
    machine.read(process(cpu=1, threads=2), at=2)
    machine.thread(7, 8, run=2)
    assert STOPPED.wait not in machine.read(process(cpu=2, threads=2), at=4).waits
    assert STOPPED.wait in machine.read(process(cpu=2, threads=2), at=6).waits


def test_a_reading_in_which_nothing_ran_is_a_look_that_asks_no_thread(
    machine: FakeMachine,
) -> None:
    machine.thread(7, run=1)
    machine.clocks[7] = seconds(1)
    machine.read(process(cpu=1), at=1)
    assert machine.look(at=2).look.is_still
    machine.thread(7, run=1.5, call=LOCKED)  # nobody reads it
    machine.reader.follow([process(cpu=1)])
    look = machine.reader.look_with_reading(seconds(3))
    assert look is not None
    assert look.is_still
    assert (look.has_other_waits, look.open_ns, look.readings) == (False, 0, 1)
    machine.reader.leave_out_reading()
    machine.reader.follow([process(cpu=1.5)])
    look = machine.reader.look_with_reading(seconds(4))
    assert look is not None
    assert [seen.blocked and seen.blocked.wait for seen in look.seen] == [Wait("lock")]
    assert (look.has_other_waits, look.readings) == (True, 2)
    machine.reader.leave_out_reading()
    machine.reader.follow([process(cpu=1.5)])
    assert machine.reader.is_steady
    look = machine.reader.look_with_reading(seconds(6))
    assert look is not None
    assert (look.is_still, look.readings) == (True, 2)
    machine.thread(9, run=1)
    machine.reader.follow([process(cpu=1.5), process(pid=9, cpu=1)])
    assert not machine.reader.is_steady


def test_a_look_says_whether_it_found_other_waits_and_what_the_counters_leave_open(
    machine: FakeMachine,
) -> None:
    def found(at: int, run: float, call: str = SLEEPING) -> tuple[bool, float]:
        for thread in (7, 8):
            machine.thread(7, thread, run=run, call=call)
        machine.clocks[7] = seconds(2 * run)
        look = machine.look(at=at).look
        assert look.open_ns is not None
        return look.has_other_waits, round(look.open_ns / seconds(1), 3)

    machine.thread(7, run=1)
    machine.thread(7, 8, run=1)
    machine.read(process(cpu=2, threads=2), at=1)
    assert found(2, run=1.1) == (False, 0.1)
    assert found(3, run=1.3) == (False, 0.2)  # both at once or in turn
    assert found(4, run=1.4, call=LOCKED) == (True, 0.1)
    assert found(5, run=1.5, call=LOCKED) == (False, 0.1)
    (machine.folder / "7" / "task" / "8" / "schedstat").write_text("")
    machine.clocks[7] = seconds(3.1)
    assert machine.look(at=6).look.has_other_waits  # one has ended


@pytest.mark.parametrize(("seconds_later", "is_seen"), [(8, True), (12, False)])
def test_a_thread_that_has_slept_for_long_is_not_asked_whether_it_can_run(
    machine: FakeMachine, seconds_later: int, *, is_seen: bool
) -> None:
    machine.thread(7, run=1)
    machine.read(process(cpu=1), at=2)
    machine.thread(7, run=1.1)
    machine.clocks[7] = seconds(1.1)
    assert not machine.look(at=3).look.is_still
    assert machine.look(at=4).look.is_still
    machine.thread(7, run=1.1, state="R")
    look = machine.look(at=3 + seconds_later).look
    assert ([seen.blocked for seen in look.seen] == [None]) is is_seen
    assert look.is_still is not is_seen


def test_a_page_fault_waits_for_the_disk_and_a_stopped_process_is_stopped(
    machine: FakeMachine,
) -> None:
    machine.thread(7, state="D", call=IN_A_PAGE_FAULT)
    assert machine.read(process(state="D")).waits == Counter([Wait("disk")])
    assert machine.read(process(state="T"), at=2).waits == Counter([STOPPED.wait])
    (traced,) = machine.read(process(state="t"), at=3).look.seen
    assert traced.blocked == TRACED


def test_a_wait_for_memory_under_the_groups_limit_is_no_disk(machine: FakeMachine) -> None:
    machine.thread(7, state="D", call=IN_A_PAGE_FAULT)
    (machine.folder / "7" / "task" / "7" / "wchan").write_text("mem_cgroup_oom_synchronize")
    assert machine.read(process(state="D")).blocked == [MEMORY]


@without_system_calls
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("stack", "wait"), [(0, Wait("disk")), (0x7FFD8C1B0E20, MEMORY.wait)])
def test_without_system_calls_the_kernels_function_is_read_only_where_the_stack_is_shown(
    machine: FakeMachine, threads: int, stack: int, wait: Wait
) -> None:
    for tid in range(7, 7 + threads):
        machine.thread(7, tid, state="D", stack=stack)
        (machine.folder / f"7/task/{tid}/wchan").write_text("mem_cgroup_oom_synchronize")
    reading = process(state="D", threads=threads, shows_function=stack > 0)
    assert machine.read(reading).waits == {wait: threads}


@pytest.mark.parametrize("level", [1, 2])
def test_a_group_that_waits_for_memory_most_of_the_time_reads_no_disk(
    machine: FakeMachine, tmp_path: Path, level: int
) -> None:
    kind = "x86_64" if level == 2 else "riscv64"
    pressure = tmp_path / "memory.pressure"
    machine.reader = ThreadReader(
        lambda: 0,
        str(tmp_path),
        kind,
        open_pressure=lambda _: PressureFiles(None, memory=os.open(pressure, os.O_RDONLY)),
    )
    waited = ((0, Wait("disk")), (0, Wait("disk")), (600_000, MEMORY.wait), (900_000, Wait("disk")))
    for at, (total_us, wait) in enumerate(waited, start=1):
        write_in_place(pressure, f"some total=9000000\nfull avg10=1.00 total={total_us}\n")
        machine.thread(7, run=0.1 * at, state="D", call=IN_A_PAGE_FAULT)
        assert machine.read(process(state="D", cpu=0.1 * at), at=at).waits == {wait: 1}


def opens_named_pipe(folder: Path, pipe: Path) -> None:
    """The process of this folder has the named pipe open."""
    for name in ("fd", "fdinfo"):
        (folder / name).mkdir()
    (folder / "mountinfo").write_text("31 29 8:1 / /data rw - ext4 /dev/sda rw\n")
    (folder / "fdinfo" / "3").write_text("pos:\t0\nmnt_id:\t31\n")
    (folder / "fd" / "3").symlink_to(pipe)


@pytest.mark.parametrize(("state", "kind"), [("S", "pipe"), ("D", "disk")])
def test_an_interruptible_read_of_a_named_pipe_is_for_a_pipe(
    machine: FakeMachine, state: str, kind: str
) -> None:
    machine.thread(7, state=state, call=READING)
    os.mkfifo(machine.folder / "pipe")
    opens_named_pipe(machine.folder / "7", machine.folder / "pipe")
    waits = machine.read(process(state=state)).waits
    assert [wait.kind for wait in waits] == [kind]


def test_who_opens_a_named_pipe_later_is_found(machine: FakeMachine) -> None:
    machine.thread(7, run=0.001, call=READING)
    os.mkfifo(machine.folder / "pipe")
    opens_named_pipe(machine.folder / "7", machine.folder / "pipe")
    (before,) = machine.read(process(), at=1).blocked
    assert not before.helper_pids
    machine.thread(7, run=0.002, call=READING)
    machine.thread(8, run=0.001)
    opens_named_pipe(machine.folder / "8", machine.folder / "pipe")
    later = machine.read(process(cpu=2), process(8), at=7).blocked
    assert {8} in [blocked.helper_pids for blocked in later]


def test_a_refused_system_call(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.thread(7, state="D")
    machine.thread(8)
    opened = os.open

    def refuse(path: str, flags: int) -> int:
        if path.endswith("7/syscall"):
            raise PermissionError(path)
        return opened(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    sample = machine.read(process(state="D"), process(8))
    assert sample.waits == {Wait("disk"): 1, Wait("sleep"): 1}
    assert [blocked.is_hidden for blocked in sample.blocked] == [True, False]
    assert sample.sees_calls is True


def test_the_system_call_of_a_thread_is_opened_once_and_may_be_refused_later(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, read = os.open, os.pread
    calls: list[int] = []

    def note(path: str | Path, flags: int) -> int:
        descriptor = opened(path, flags)
        if str(path).endswith("/syscall") and flags == os.O_RDONLY:
            calls.append(descriptor)
        return descriptor

    def refuse(descriptor: int, size: int, offset: int) -> bytes:
        if descriptor in calls:
            raise PermissionError
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "open", note)
    for at, call, kind in ((1, SLEEPING, "sleep"), (2, LOCKED, "lock"), (3, SLEEPING, "sleep")):
        machine.thread(7, run=0.1 * at, call=call)
        assert machine.read(process(cpu=at), at=at).waits == {Wait(kind): 1}
    assert len(calls) == 1
    monkeypatch.setattr(os, "pread", refuse)
    machine.thread(7, run=0.4)
    (blocked,) = machine.read(process(cpu=4), at=4).blocked
    assert blocked.is_hidden


@pytest.mark.parametrize(
    ("place", "kind", "helpers"),
    [
        ("do_syscall_64", "sleep", "nobody"),
        ("futex_do_wait", "sleep", "threads"),
        ("0", "other", "nobody"),
    ],
)
def test_a_wait_with_a_timeout_goes_on_after_a_stop(
    machine: FakeMachine, place: str, kind: str, helpers: Helpers
) -> None:
    """The kernel shows another call then, with the same arguments, as after Ctrl-Z and ``fg``."""
    machine.thread(7, call=UNTIL.replace("202", "219", 1))
    (machine.folder / "7/task/7/wchan").write_text(place)
    (blocked,) = machine.read(process()).blocked
    assert blocked == BlockedThread(wait=Wait(kind), helpers=helpers)


def test_a_kernel_that_does_not_count(machine: FakeMachine) -> None:
    machine.thread(7, run=0)
    assert machine.read(process()).growth is None
    for name in ("7/task/7/schedstat", "7/task/7/stat"):
        (machine.folder / name).unlink()
    sample = machine.read(process(cpu=2, start=2), at=2)
    assert sample.growth is None
    assert sample.waits == {Wait("sleep"): 1}


def test_a_blocked_thread_did_not_wait_for_a_cpu(machine: FakeMachine) -> None:
    machine.thread(7)
    machine.read(process())
    for at in (2, 3):
        machine.read(process(), at=at)
    machine.thread(7, run=1.1, wait=4)
    assert growth_of(machine.read(process(cpu=1.1), at=5)) == [(seconds(0.1), 0)]
    machine.thread(7, run=1.2, wait=4.5)
    assert growth_of(machine.read(process(cpu=1.2), at=6)) == [(seconds(0.1), seconds(0.5))]
    machine.thread(7, run=1.3, wait=9)
    last = machine.reader.read_last(seconds(6.1))
    assert growth_of(last) == [(seconds(0.1), 0)]
    assert last.seen == []
    machine.thread(8, call="running\n")  # one that was not blocked may have waited for long
    for at in (7, 8):
        machine.read(process(8, state="R"), at=at)
    machine.thread(8, run=1.1, wait=2, call="running\n")
    assert growth_of(machine.read(process(8, cpu=1.1, state="R"), at=9)) == [
        (seconds(0.1), seconds(2))
    ]


class TestLooksBetweenTheReadings:
    """They read only what has run since the last one, by the clocks of the processes."""

    @pytest.fixture
    def running(self, machine: FakeMachine) -> FakeMachine:
        machine.thread(7)
        machine.thread(9, call=LOCKED)
        machine.clocks = {7: 1, 9: 1}
        machine.read(process(), process(9))
        machine.look(1.1)
        return machine

    def test_only_processes_that_ran(self, running: FakeMachine) -> None:
        running.thread(7, run=1.01, call=LOCKED)
        running.thread(9, run=1.01, call=SLEEPING)
        running.clocks[7] = 2
        shown = running.look(1.2)
        assert growth_of(shown) == [(seconds(1.01) - seconds(1), 0)]
        assert shown.waits == {Wait("lock"): 2}

    def test_threads_that_are_new(self, running: FakeMachine) -> None:
        running.thread(7, 8, run=0.01)
        running.clocks[7] = 2
        assert running.look(1.2).waits == {Wait("sleep"): 2, Wait("lock"): 1}

    def test_a_process_that_was_stopped_since_or_goes_on(self, running: FakeMachine) -> None:
        """The calls of its threads are the same meanwhile."""
        running.thread(7, 8, run=0.01, call=LOCKED)
        running.clocks[7] = 2
        assert running.look(1.2).waits == {Wait("sleep"): 1, Wait("lock"): 2}
        for turn, (state, waits) in enumerate(
            (
                ("T", {STOPPED.wait: 2, Wait("lock"): 1}),
                ("S", {Wait("sleep"): 1, Wait("lock"): 2}),
                ("t", {Wait("sleep"): 1, Wait("lock"): 2}),  # its tracer lets it go on at once
            ),
            start=1,
        ):
            running.thread(7, run=1 + turn / 100, state=state)
            running.thread(7, 8, run=0.01 + turn / 100, state=state, call=LOCKED)
            running.clocks[7] += 1
            assert running.look(1.2 + turn / 10).waits == waits

    def test_a_process_with_a_tracer_has_the_state_of_the_reading(
        self, running: FakeMachine
    ) -> None:
        """A later one would find the tracer or the process able to run, in turns."""
        shown = running.read(process(state="t"), process(9), at=1.2)
        assert shown.blocked.count(TRACED) == 1
        running.thread(7, run=1.01)
        running.clocks[7] = 2
        assert running.look(1.3).blocked.count(TRACED) == 1

    def test_a_process_that_goes_on_at_the_next_reading(self, running: FakeMachine) -> None:
        """Its stop was seen between two readings that say the same; no thread has run since."""
        running.thread(7, 8, run=0.01, call=LOCKED)
        running.read(process(threads=2), process(9), at=1.2)
        for thread, run, call in ((0, 1.01, SLEEPING), (8, 0.02, LOCKED)):
            running.thread(7, thread, run=run, state="T", call=call)
        running.clocks[7] = 2
        assert running.look(1.3).waits == {STOPPED.wait: 2, Wait("lock"): 1}
        for thread, run, call in ((0, 1.01, SLEEPING), (8, 0.02, LOCKED)):
            running.thread(7, thread, run=run, call=call)
        shown = running.read(process(threads=2), process(9), at=2)
        assert shown.waits == {Wait("sleep"): 1, Wait("lock"): 2}

    @pytest.mark.parametrize(
        ("call", "kind"),
        [(WAITS_FOR_CHILD, "child"), (SLEEPING, "sleep"), (ACCEPTING, "network")],
    )
    def test_a_child_that_began_since(self, call: str, kind: str, running: FakeMachine) -> None:
        """The parent waits for it, asks again and again whether it has ended, or waits for somebody
        to come until the handler of a signal says so.
        """
        running.thread(7, run=1.01, call=call)
        (running.folder / "7" / "task" / "7" / "children").write_text("12 ")
        running.thread(12, run=0.01, call=READING)
        stat = f"12 (gzip) S 7 {'1 ' * 15}1 0 5 {'1 ' * 30}"
        (running.folder / "12" / "stat").write_text(stat)
        running.clocks[7] = 2
        shown = running.look(1.2)
        assert shown.look.processes[12].parent == 7
        assert shown.waits == {Wait(kind): 1, Wait("lock"): 1, Wait("other"): 1}
        assert not shown.look.misses_child

    def test_a_child_that_another_thread_of_many_began(self, running: FakeMachine) -> None:
        """In Java, one thread starts a child, waits for a lock, and a second one waits for it."""
        for number in range(71, 81):
            running.thread(7, number, run=0.01, call=LOCKED)
        running.read(process(threads=11), process(9), at=1.2)
        running.thread(7, run=1.01, call=WAITS_FOR_CHILD)
        running.thread(7, 75, run=0.02, call=LOCKED)
        (running.folder / "7" / "task" / "75" / "children").write_text("12 ")
        running.thread(12, run=0.01)
        (running.folder / "12" / "stat").write_text(f"12 (gzip) S 7 {'1 ' * 15}1 0 5 {'1 ' * 30}")
        running.clocks[7] = 2
        shown = running.look(1.3)
        assert shown.waits[Wait("sleep")] == 1
        assert not shown.look.misses_child

    def test_a_look_reads_how_many_threads_of_the_machine_can_run_beside_itself(
        self, running: FakeMachine
    ) -> None:
        loads = running.folder / "loadavg"
        running.reader.follow([process(), process(9)])
        for turn, (able, beside) in enumerate(((1, 0), (23, 22), (0, None))):
            loads.write_text(f"0.25 2.41 4.02 {able}/96 11\n")
            running.thread(7, run=1.01 + turn / 100)
            running.clocks[7] = 2 + turn
            assert running.look(1.2 + turn / 10).look.able_on_machine == beside

    def test_who_sleeps_has_no_new_child_if_none_began_on_the_machine(
        self, running: FakeMachine
    ) -> None:
        loads = running.folder / "loadavg"
        loads.write_text("0.25 2.41 4.02 2/96 11\n")
        running.reader.follow([process(), process(9)], 11)
        (running.folder / "7" / "task" / "7" / "children").write_text("12 ")
        running.thread(12, run=0.01, call=READING)
        (running.folder / "12" / "stat").write_text(f"12 (gzip) S 7 {'1 ' * 15}1 0 5 {'1 ' * 30}")
        for turn, newest in enumerate((11, 12)):
            loads.write_text(f"0.25 2.41 4.02 2/96 {newest}\n")
            running.thread(7, run=1.01 + turn / 100)
            running.clocks[7] = 2 + turn
            shown = running.look(1.2 + turn / 10)
            assert (12 in shown.look.processes) == (newest == 12)

    @pytest.mark.parametrize(
        ("adopter", "is_of_batch", "waits"),
        [
            # It adopts the orphan itself, the one that started it does so, or the very first one.
            (7, True, {Wait("pipe"): 1, Wait("sleep"): 1, Wait("lock"): 1}),
            (3, True, {Wait("pipe"): 1, Wait("sleep"): 1, Wait("lock"): 1}),
            (1, True, {Wait("pipe"): 1, Wait("sleep"): 1, Wait("lock"): 1}),
            (1, False, {Wait("pipe"): 1, Wait("lock"): 1}),
        ],
    )
    def test_a_new_process_whose_parent_has_ended(
        self, adopter: int, waits: Mapping[Wait, int], running: FakeMachine, *, is_of_batch: bool
    ) -> None:
        """A double fork leaves the work to it, for which its parent's parent waits at a pipe."""
        if not is_of_batch:
            running.strangers.add(12)
        folder = running.folder
        for descriptors in (folder / "7" / "fd", folder / "12" / "fd"):
            descriptors.mkdir(parents=True, exist_ok=True)
            (descriptors / "3").symlink_to("pipe:[44]")
        parent = 3 if adopter == 3 else 0
        job, child = (replace(process(pid), parent_pid=of) for pid, of in ((7, parent), (9, 7)))
        running.read(job, child, at=1.2)
        adopts = folder / str(adopter) / "task" / str(adopter)
        adopts.mkdir(parents=True, exist_ok=True)
        (adopts / "children").write_text("9 12 ")
        running.thread(12, run=0.01)
        (folder / "12" / "stat").write_text(f"12 (job) S {adopter} {'1 ' * 15}1 0 5 {'1 ' * 30}")
        running.thread(7, run=1.02, call=READING)
        running.clocks[7] = 2
        shown = running.look(1.3)
        assert shown.waits == waits
        if is_of_batch:
            assert shown.look.processes[12].parent == adopter
            (waiting,) = [each for each in shown.blocked if each.wait.kind == "pipe"]
            assert 12 in waiting.helper_pids

    def test_the_children_of_several_sleepers_are_listed_once(
        self, running: FakeMachine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = Mock(wraps=proc.read_or_none)
        monkeypatch.setattr(proc, "read_or_none", read)
        running.thread(7, run=1.01)
        for number in (71, 72):
            running.thread(7, number, run=0.01)
        running.clocks[7] = 2
        running.look(1.2)
        listed = [path for (path,), _ in read.call_args_list if path.endswith("/children")]
        folder = f"{running.folder}/7/task"
        # The first thread adopts, too.
        assert [listed.count(f"{folder}/{number}/children") for number in (7, 71, 72)] == [2, 1, 1]

    def test_a_child_that_ended_meanwhile_is_missed(self, running: FakeMachine) -> None:
        running.thread(7, run=1.01, call=WAITS_FOR_CHILD)
        running.clocks[7] = 2
        assert running.look(1.2).look.misses_child
        running.thread(7, run=1.02, call=SLEEPING)
        running.clocks[7] = 3
        assert not running.look(1.3).look.misses_child

    @pytest.mark.parametrize("call", [None, SLEEPING])
    def test_so_is_one_that_is_asked_after_its_parent_and_has_ended(
        self, call: str | None, running: FakeMachine
    ) -> None:
        running.thread(7, run=1.01, call=WAITS_FOR_CHILD)
        running.thread(12, run=0.01, call=call)
        child = replace(process(12), parent_pid=7)
        shown = running.read(process(cpu=1.01), process(9), child, at=1.2)
        assert (12 in shown.look.ended) == (call is None)
        assert shown.look.misses_child == (call is None)

    def test_a_thread_that_waits_for_a_cpu_and_has_not_run(self, running: FakeMachine) -> None:
        running.thread(9, state="R", call=LOCKED)
        assert running.look(1.2).shows_work
        running.thread(9, run=1.01, state="S", call=LOCKED)
        running.clocks[9] = 2
        assert not running.look(1.3).shows_work

    def test_all_threads_that_wait_for_a_cpu_are_seen(self, running: FakeMachine) -> None:
        running.thread(7, state="R", call=SLEEPING)
        running.thread(9, state="R", call=LOCKED)
        assert [seen.blocked for seen in running.look(1.2).look.seen] == [None, None]

    def test_a_thread_that_was_asked_is_not_looked_at_again(self, running: FakeMachine) -> None:
        running.thread(7, run=1.01, state="R", call=LOCKED)  # it is woken after it was asked
        running.clocks[7] = 2
        assert [seen.thread for seen in running.look(1.2).look.seen] == [7]

    def test_who_has_run_before_a_timeout_was_woken(self, running: FakeMachine) -> None:
        """It is seen when it can run, or when it waits again."""
        (running.folder / "7" / "mem").write_bytes(bytes(64) + struct.pack("=qq", 2, 0))
        for at, run, state, was_woken in (
            (1.2, 1.01, "S", False),
            (1.3, 1.02, "S", True),
            (1.4, 1.02, "R", True),
            (1.5, 1.03, "S", False),
            (2.1, 1.04, "S", False),
        ):
            running.thread(7, run=run, state=state, call=UNTIL)
            running.clocks[7] = round(100 * run)
            (seen,) = running.look(at).look.seen
            assert (seen.was_woken, seen.blocked is None) == (was_woken, state == "R")

    @pytest.mark.parametrize(
        ("run", "waited", "state", "was_due"),
        [
            (1.3, 0, "R", True),
            (1.2, 0.1, "R", True),
            (1.5, 0, "R", False),
            (1.3, 0, "S", None),
            (1.1, 0, "R", None),
        ],
    )
    def test_who_works_since_a_timeout_was_not_told(
        self,
        running: FakeMachine,
        run: float,
        waited: float,
        state: str,
        *,
        was_due: bool | None,
    ) -> None:
        (running.folder / "7" / "mem").write_bytes(bytes(64) + struct.pack("=qq", 2, 0))
        running.thread(7, run=1.01, call=UNTIL)
        running.clocks[7] = 101
        assert running.look(1.2).look.seen[0].was_due is None
        call = "running" if state == "R" else UNTIL
        running.thread(7, run=run, wait=waited, state=state, call=call)
        running.clocks[7] = round(100 * run)
        assert running.look(2.29).look.seen[0].was_due is was_due

    def test_who_is_stopped_before_a_timeout_was_not_woken(self, running: FakeMachine) -> None:
        (running.folder / "7" / "mem").write_bytes(bytes(64) + struct.pack("=qq", 60, 0))
        running.thread(7, run=1.01, call=UNTIL)
        running.clocks[7] = 2
        (seen,) = running.look(1.2).look.seen
        assert present(seen.blocked).until_ns == seconds(60)
        running.thread(7, run=1.02, state="T", call=UNTIL)
        shown = running.read(process(cpu=3, state="T"), process(9), at=2)
        stopped = {seen.thread: seen for seen in shown.look.seen}[7]
        assert (stopped.blocked, stopped.was_woken) == (STOPPED, False)

    @pytest.mark.parametrize(
        ("at", "run", "state", "came_before", "expected"),
        [
            pytest.param(1.9, 1.26, "R", 0.05, True, id="it works since the timeout"),
            pytest.param(1.9, 1.26, "R", 0.25, None, id="something came then, too"),
            pytest.param(1.9, 1.02, "S", 0.05, None, id="it worked at some time"),
            pytest.param(1.9, 1.01, "R", 0.2, None, id="it has not run yet"),
            pytest.param(1.5, 1.02, "S", 0.05, False, id="before the timeout"),
        ],
    )
    def test_whether_a_timeout_ended_a_poll_is_told_by_the_begin_of_the_work(
        self,
        running: FakeMachine,
        at: float,
        run: float,
        state: str,
        came_before: float,
        expected: bool | None,  # noqa: FBT001
    ) -> None:
        """The poll of half a second began between 1.15, when something came last, and 1.2 s."""
        folder = running.folder / "7"
        for name in ("fd", "fdinfo", "net"):
            (folder / name).mkdir()
        (folder / "fd" / "501").symlink_to("socket:[501]")
        (folder / "net" / "tcp").write_text(CONNECTED)
        (folder / "fdinfo" / "4").write_text("tfd: 501 events: 19 data: 0\n")
        running.came_before = 0.05
        running.thread(7, run=1.01, call=POLLING_FOR_A_TIME)
        running.clocks[7] = 2
        (seen,) = running.look(1.2).look.seen
        blocked = present(seen.blocked)
        assert (blocked.until_ns, blocked.until_within_ns) == (seconds(1.65), seconds(0.05))
        running.came_before = came_before
        call = "running\n" if run > 1.1 else POLLING_FOR_A_TIME
        running.thread(7, run=run, state=state, call=call)
        running.clocks[7] = round(100 * run)
        (seen,) = running.look(at).look.seen
        assert seen.came == (True,)
        assert seen.timed_out is expected

    @pytest.mark.parametrize(
        ("accepted", "run", "expected"),
        [
            pytest.param("4", 1.11, False, id="nobody came"),
            pytest.param("5", 1.11, True, id="somebody came to a process of its network"),
            pytest.param("", 1.11, True, id="unknown"),
            pytest.param("5", 1.0105, None, id="it has hardly worked"),
        ],
    )
    def test_whether_a_client_may_have_come_is_asked_where_work_followed(
        self, running: FakeMachine, accepted: str, run: float, *, expected: bool | None
    ) -> None:
        folder = running.folder / "7"
        for name in ("fd", "fdinfo", "net"):
            (folder / name).mkdir()
        (folder / "fd" / "501").symlink_to("socket:[501]")
        listening = CONNECTED.replace("0903000A:1538 01", "00000000:0000 0A")
        (folder / "net" / "tcp").write_text(listening)
        (folder / "fdinfo" / "4").write_text("tfd: 501 events: 19 data: 0\n")
        counters = folder / "net" / "snmp"
        names = "Ip: Forwarding\nIp: 1\nTcp: ActiveOpens PassiveOpens InSegs\n"
        counters.write_text(f"{names}Tcp: 9 4 90\n")
        running.thread(7, run=1.01, call=POLLING_FOR_A_TIME)
        running.clocks[7] = 2
        (seen,) = running.look(1.2).look.seen
        blocked = present(seen.blocked)
        assert blocked.is_timeout_of_listeners
        assert blocked.until_ns is not None
        counters.write_text(f"{names}Tcp: 9 {accepted} 90\n" if accepted else "")
        running.thread(7, run=run, call=POLLING_FOR_A_TIME)
        running.clocks[7] = 3
        (seen,) = running.look(1.9).look.seen
        assert seen.has_client is expected

    def test_what_other_threads_add_to_a_wait_is_seen_after_they_have_run(
        self, running: FakeMachine
    ) -> None:
        """A poller of Java's virtual threads waits on, and gets connections meanwhile; that of
        tokio gets a child.
        """
        folder = running.folder / "7"
        for name in ("fd", "fdinfo", "net"):
            (folder / name).mkdir()
        for number in (501, 502):
            (folder / "fd" / str(number)).symlink_to(f"socket:[{number}]")
        (folder / "fd" / "503").symlink_to("anon_inode:[pidfd]")
        (folder / "net" / "tcp").write_text(
            CONNECTED + CONNECTED.replace("501", "502").replace("1538", "1539")
        )
        watched = folder / "fdinfo" / "4"
        watched.write_text("pos:\t0\n")
        running.thread(7, 8, run=0.01, call=POLLING)
        running.clocks[7] = 2
        running.look(1.2)
        for turn, lines, expected in (
            (1, 1, [(8, False)]),  # it watches something: this is another wait
            (2, 1, []),
            (3, 2, [(8, True)]),  # it watches more in the same wait
            (4, 3, [(8, True)]),  # also, a child
        ):
            entries = [f"tfd: {number} events: 40000001 data: 0\n" for number in (501, 502, 503)]
            watched.write_text("".join(entries[:lines]))
            running.thread(7, run=1 + turn / 100, call=LOCKED)
            running.clocks[7] = 2 + turn
            polling = [seen for seen in running.look(1.2 + turn / 10).look.seen if seen.thread == 8]
            assert [(seen.thread, seen.is_correction) for seen in polling] == expected
            for seen in polling:
                blocked = present(seen.blocked)
                assert len(blocked.connections) == min(lines, 2)
                assert (blocked.otherwise is not None) == (lines > 2)

    def test_a_connection_is_asked_once_in_a_look(self, running: FakeMachine) -> None:
        """It says what came in the wait before, and with how much the next one begins."""
        (running.folder / "7" / "fd").mkdir()
        (running.folder / "7" / "fd" / "3").symlink_to("socket:[501]")
        (running.folder / "7" / "net").mkdir()
        (running.folder / "7" / "net" / "tcp").write_text(CONNECTED)
        for turn in range(3):
            running.thread(7, run=1.01 + turn / 100, call=RECEIVING)
            running.clocks[7] = 2 + turn
            (seen,) = running.look(1.2 + turn / 10).look.seen
            assert seen.came == (() if turn == 0 else (True,))
        assert running.asked == [501, 501, 501]

    def test_what_comes_while_a_connection_is_asked_ends_the_wait(
        self, running: FakeMachine
    ) -> None:
        """The answer is no message of before: the thread does not wait for somebody to come."""
        (running.folder / "7" / "fd").mkdir()
        (running.folder / "7" / "fd" / "3").symlink_to("socket:[501]")
        (running.folder / "7" / "net").mkdir()
        (running.folder / "7" / "net" / "tcp").write_text(CONNECTED)
        running.thread(7, run=1.01, call=RECEIVING)
        running.clocks[7] = 2
        running.while_asked = lambda: running.thread(7, run=1.01, call="running\n")
        (seen,) = running.look(1.2).look.seen
        assert seen.blocked is None

    def test_each_connection_of_a_look_has_its_own_other_end(self, running: FakeMachine) -> None:
        """Two clients of two servers of the run, on the ports 5432 and 5433."""
        running.ends = {5432: 601, 5433: 602}
        ends = {7: (501, "1538"), 9: (502, "1539")}
        for server, end in ((10, 601), (11, 602)):
            (running.folder / str(server) / "fd").mkdir(parents=True)
            (running.folder / str(server) / "fd" / "3").symlink_to(f"socket:[{end}]")
            running.thread(server, run=0.001)
        for client, (inode, port) in ends.items():
            folder = running.folder / str(client)
            (folder / "fd").mkdir()
            (folder / "fd" / "3").symlink_to(f"socket:[{inode}]")
            (folder / "net").mkdir()
            line = f"0: 0100007F:9C40 0100007F:{port} 01 0:0 0:0 0 1000 0 {inode} 1 0\n"
            (folder / "net" / "tcp").write_text(line)
            running.thread(client, run=1.01, call=RECEIVING)
        shown = running.read(*[process(pid, cpu=2) for pid in (7, 9, 10, 11)], at=1.2)
        helpers = {seen.process: seen.blocked for seen in shown.look.seen}
        assert present(helpers[7]).helper_pids == {10}
        assert present(helpers[9]).helper_pids == {11}

    def test_what_was_read_of_ended_processes_is_known(self, running: FakeMachine) -> None:
        assert running.reader.take_read_ended_ns() == 0
        running.reader.follow([process()])
        assert running.reader.take_read_ended_ns() == seconds(1)
        assert running.look(1.2).waits == {Wait("sleep"): 1}


def test_many_threads_are_asked_in_turn(machine: FakeMachine) -> None:
    for tid in range(7, 107):
        machine.thread(7, tid)
    reading = process(threads=100)
    samples = [machine.read(reading, at=at) for at in (1, 2, 3)]
    assert [sum(sample.waits.values()) for sample in samples] == [64, 100, 100]


def test_what_threads_ran_that_are_left_for_later_is_known_by_the_clock_of_their_process(
    machine: FakeMachine,
) -> None:
    """Each second all run for 1 ms and wait for 4 ms, and one of them for longer."""
    machine.cost_ns = seconds(0.0003)
    counted_ns = 0
    read_in_each: Counter[int] = Counter()
    for at in range(1, 30):
        for tid in range(7, 207):
            machine.thread(7, tid, run=0.001 * at, wait=(0.2 if tid == 8 else 0.004) * at)
        look = machine.read(process(cpu=0.2 * at, threads=200), at=at).look
        growth = look.growth or ()
        counted_ns += look.later_run_ns + look.unread_run_ns
        counted_ns += sum([grown.run_ns for grown in growth if grown.steps == 1])
        read_in_each.update([grown.thread for grown in growth if grown.steps == 1])
        assert max(Counter([grown.thread for grown in growth]).values()) == 1
    assert counted_ns == pytest.approx(seconds(0.2 * 29), rel=0.05)
    assert read_in_each[8] > 20
    machine.reader.follow([])
    assert machine.reader.take_read_ended_ns() == pytest.approx(seconds(0.2 * 29), rel=0.01)


@without_system_calls
def test_every_thread_has_its_turn_however_many_there_are(machine: FakeMachine) -> None:
    steps: Counter[int] = Counter()
    for at in range(1, 42):
        for tid in range(10, 110):
            machine.thread(10, tid, run=0.001 * at)
        sample = machine.read(process(10, cpu=at, threads=100), at=at)
        assert at == 1 or len(sample.growth or ()) <= 64
        steps.update({grown.thread: grown.steps for grown in sample.growth or ()})
    assert all(31 < steps[tid] <= 41 for tid in range(10, 110))
    machine.thread(10, 11, run=1)
    assert machine.read(process(10, cpu=42, threads=100), at=42, is_required=True).growth


@without_system_calls
@pytest.mark.parametrize("skips", [True, False], ids=["skipped", "all followed"])
@pytest.mark.parametrize(("state", "kind", "most"), [("D", "disk", 20), ("S", "other", 40)])
def test_threads_without_system_calls_are_read_together_and_ever_more_rarely(
    machine: FakeMachine, state: str, kind: WaitKind, most: int, *, skips: bool
) -> None:
    turns = []
    for at in range(1, 561):
        for pid, tid in ((10, 10), (10, 11), (20, 20), (20, 21)):
            machine.thread(pid, tid, run=0.001 * at, state=state, call=None)
        processes = (process(10, cpu=at, threads=2), process(20, cpu=at, threads=2))
        if skips and machine.reader.skip_if_all_asleep(processes, seconds(at)):
            continue
        sample = machine.read(*processes, at=at)
        assert sample.waits == {Wait(kind): 4}  # as they were when they were asked
        if sample.growth:
            turns.append(at)
            assert len(sample.growth) == 4
    gaps = [later - earlier for earlier, later in pairwise(turns)]
    assert turns[:25] == [*range(1, 20), 21, 23, 25, 27, 29, 32]
    assert gaps == sorted(gaps)
    assert gaps[-3:] == [most] * 3


@without_system_calls
def test_threads_that_have_waited_for_a_disk_have_their_turns_more_often_for_a_while(
    machine: FakeMachine,
) -> None:
    turns = []
    for at in range(1, 1500):
        for tid in (10, 11):
            state = "D" if at < 600 else "S"
            machine.thread(10, tid, run=0.001 * at, state=state, call=None)
        if machine.read(process(10, cpu=at, threads=2), at=at).growth:
            turns.append(at)
    gaps = {earlier: later - earlier for earlier, later in pairwise(turns)}
    assert {gap for at, gap in gaps.items() if 400 < at < 960} == {20}
    assert {gap for at, gap in gaps.items() if at > 1040} == {40}


@without_system_calls
def test_a_reading_that_shows_more_than_threads_without_a_turn_is_not_skipped(
    machine: FakeMachine,
) -> None:
    shell = process(5)
    for pid, tid in ((5, 5), (10, 10), (10, 11), (20, 20)):
        machine.thread(pid, tid, run=0.001)
    for at in range(1, 41):
        machine.read(shell, process(10, cpu=at, threads=2), at=at)
    assert machine.reader.skip_if_all_asleep((shell, process(10, cpu=42, threads=2)), seconds(42))
    assert not machine.reader.skip_if_all_asleep(
        (process(5, cpu=2), process(10, cpu=42, threads=2)), seconds(42)
    )
    assert not machine.reader.skip_if_all_asleep((shell,), seconds(42))
    assert not machine.reader.skip_if_all_asleep(
        (shell, process(10, cpu=42, threads=2), process(20)), seconds(42)
    )
    assert not machine.reader.skip_if_all_asleep(
        (shell, process(10, cpu=42, threads=2, start=2)), seconds(42)
    )
    assert not machine.reader.skip_if_all_asleep(
        (shell, process(20, cpu=42, threads=2)), seconds(42)
    )


@without_system_calls
def test_without_system_calls_the_first_looks_between_the_readings_ask_for_the_states(
    machine: FakeMachine,
) -> None:
    machine.thread(7, state="S")
    machine.thread(8, run=0.5, state="R")
    assert not machine.reader.can_look_between  # before the first look
    machine.read(process(), process(8, cpu=0.5, state="R"))
    machine.clocks = {7: seconds(1), 8: seconds(0.5)}
    assert machine.look(1.1).shows_work
    machine.thread(7, run=1.04, wait=0.05, state="D")
    machine.thread(8, run=0.5, state="S")  # it has hardly run
    machine.clocks[7] = seconds(1.04)
    found = machine.look(1.2)
    assert growth_of(found) == [(seconds(0.04), seconds(0.05))]
    assert not found.shows_work
    assert found.waits == {Wait("disk"): 1, Wait("other"): 1}
    del machine.clocks[8]
    write_in_place(machine.folder / "8" / "task" / "8" / "schedstat", "")
    assert machine.look(1.3).look.ended == [8]
    machine.thread(7, run=1.24, wait=0.05, state="S")
    after = machine.read(process(cpu=1.24), at=2)
    assert growth_of(after) == [(seconds(0.2), 0)]
    assert after.waits == {Wait("other"): 1}


@without_system_calls
def test_without_system_calls_a_look_between_the_readings_finds_new_children(
    machine: FakeMachine,
) -> None:
    machine.thread(7)
    machine.read(process())
    machine.clocks = {7: seconds(1)}
    (machine.folder / "7" / "task" / "7" / "children").write_text("12 ")
    machine.thread(12, run=0.2, state="R")
    (machine.folder / "12" / "stat").write_text(f"12 (job) R 7 {'1 ' * 15}1 0 5 {'1 ' * 30}")
    assert machine.look(1.2).shows_work


@without_system_calls
@pytest.mark.parametrize(
    ("processes", "threads", "looks"), [(1, 1, 240), (8, 1, 240), (9, 1, 0), (1, 2, 0)]
)
def test_so_many_looks_of_so_few_processes_lie_between_the_readings(
    machine: FakeMachine, processes: int, threads: int, looks: int
) -> None:
    for pid in range(7, 7 + processes):
        machine.thread(pid)
        machine.clocks[pid] = seconds(1)
    machine.read(*[process(pid, threads=threads) for pid in machine.clocks])
    taken = 0
    while machine.reader.can_look_between:
        taken += 1
        machine.look(1 + taken / 5)
    assert taken == looks


IDLE = process(30)


def read_regulars(
    machine: FakeMachine, at: int
) -> tuple[ProcessReading, ProcessReading, ProcessReading]:
    """Two processes that have run again, and one that has not."""
    for pid in (10, 20):
        machine.thread(pid, run=0.001 * at, wait=0.002 * at, call=None)
    return process(10, cpu=at), process(20, cpu=at), IDLE


def see_regulars(machine: FakeMachine, readings: int) -> tuple[dict[int, ThreadsLook], int]:
    """Two processes that run in each step and sleep at each reading, and one that sleeps; returns
    the looks, by when they were taken, and when the next reading is the first one after a look.
    """
    looks: dict[int, ThreadsLook] = {}
    machine.thread(30, run=0.5)
    at = 0
    while at < readings or at not in looks:
        at += 1
        processes = read_regulars(machine, at)
        if machine.reader.skip_if_all_asleep(processes, seconds(at)) is None:
            looks[at] = machine.read(*processes, at=at).look
    return looks, at + 1


@without_system_calls
def test_processes_that_run_in_each_step_and_sleep_at_each_reading_are_read_ever_more_rarely(
    machine: FakeMachine,
) -> None:
    looks, _ = see_regulars(machine, 200)
    gaps = [later - earlier for earlier, later in pairwise(looks)]
    assert gaps == sorted(gaps)
    assert gaps[:39] == [1] * 39
    assert gaps[-3:] == [4, 4, 4]
    assert [look.readings for look in looks.values()] == [1, *gaps]
    assert [look.peeks for look in looks.values()] == [0, *[gap - 1 for gap in gaps]]
    assert not any(look.able_peeks for look in looks.values())
    last = max(looks)
    assert {grown.steps for look in looks.values() for grown in look.growth or ()} == {1}
    for column, per_reading in enumerate((0.001, 0.002)):
        grown = [growth_of(look) for look in looks.values()]
        total = sum(each[column] for growth in grown for each in growth)
        assert total == pytest.approx(
            2 * seconds(per_reading * last) + (column == 0) * seconds(0.5)
        )


@without_system_calls
def test_a_reading_that_shows_more_than_regular_work_is_not_skipped(machine: FakeMachine) -> None:
    _, at = see_regulars(machine, 120)
    first, second, idle = read_regulars(machine, at)
    for shown in (
        (process(10, cpu=at, state="R"), second, idle),
        (process(10, cpu=at, state="D"), second, idle),
        (process(10, cpu=at, state="T"), second, idle),
        (process(10, cpu=at, threads=2), second, idle),
        (process(10, cpu=at, start=2), second, idle),
        (process(10, cpu=at, blocks_signals=True), second, idle),
        (first, second, process(30, cpu=2)),
        (first, second, idle, process(40)),
        (first, second),
    ):
        assert machine.reader.skip_if_all_asleep(shown, seconds(at)) is None
    assert machine.reader.skip_if_all_asleep((first, second, idle), seconds(at))
    # Who did not run in a step may have slept for long.
    later = process(20, cpu=at + 1)
    assert machine.reader.skip_if_all_asleep((first, later, idle), seconds(at + 1)) is None
    third = process(10, cpu=at + 1)
    assert (
        machine.reader.skip_if_all_asleep((third, later, process(30, cpu=2)), seconds(at + 1))
        is None
    )


@without_system_calls
def test_a_process_that_begins_again_after_skipped_readings_was_still_until_the_last_of_them(
    machine: FakeMachine,
) -> None:
    """The kernel may call its sleep a wait for a CPU, which can be no longer than the step."""
    _, at = see_regulars(machine, 120)
    assert machine.reader.skip_if_all_asleep(read_regulars(machine, at), seconds(at))
    machine.thread(30, run=0.6, wait=1.5, call=None)
    first, second, _ = read_regulars(machine, at + 1)
    look = machine.read(first, second, process(30, cpu=2), at=at + 1).look
    (grown,) = [each for each in look.growth or () if each.thread == 30]
    assert (grown.run_ns, grown.wait_ns, grown.span_ns) == (seconds(0.1), 0, seconds(1))
    assert look.readings == 2


@without_system_calls
def test_while_a_thread_can_run_no_reading_is_skipped(machine: FakeMachine) -> None:
    _, at = see_regulars(machine, 120)
    machine.thread(30, run=0.6, state="R", call=None)
    first, second, _ = read_regulars(machine, at)
    able = process(30, cpu=2, state="R")
    machine.read(first, second, able, at=at)
    for later in range(at + 1, at + 4):
        processes = (*read_regulars(machine, later)[:2], able)
        assert machine.reader.skip_if_all_asleep(processes, seconds(later)) is None
        machine.read(*processes, at=later)


@without_system_calls
def test_between_two_turns_a_process_that_has_ended_shows_nothing(machine: FakeMachine) -> None:
    for pid, state in ((10, "D"), (20, "S")):
        machine.thread(pid, state=state)
        machine.thread(pid, pid + 1, state=state)
    for at in range(1, 26):
        machine.read(process(10, cpu=at, threads=2), process(20, cpu=at, threads=2), at=at)
    sample = machine.read(process(20, cpu=26, threads=2), at=26)
    assert sample.waits == {Wait("other"): 2}
    assert sample.is_behind


@without_system_calls
def test_the_state_of_a_thread_that_has_ended_is_not_read_from_another_one(
    machine: FakeMachine,
) -> None:
    machine.thread(7, state="D")
    machine.thread(7, 8, state="D")
    assert machine.read(process(threads=2)).waits == {Wait("disk"): 2}
    for tid in (7, 8):
        machine.thread(7, tid, run=1.001, state="S")
    os.truncate(machine.folder / "7" / "task" / "8" / "stat", 0)  # as of an ended thread's file
    assert machine.read(process(cpu=2, threads=2), at=2).waits == {Wait("other"): 1}


def test_more_threads_than_a_reading_may_cost_are_read_in_several(machine: FakeMachine) -> None:
    machine.cost_ns = seconds(0.0004)  # of each look at the clock, after 16 threads
    steps: Counter[int] = Counter()
    most = 0
    shares: list[float] = []
    for at in range(1, 40):
        for tid in range(7, 87):
            machine.thread(7, tid, run=0.0001 * at)
        machine.thread(300, run=0.0001 * at, call=LOCKED)
        sample = machine.read(process(cpu=at, threads=80), process(300, cpu=at), at=at)
        assert sample.waits
        shares.append(sample.look.asked_share)
        grown = {each.thread: each.steps for each in sample.growth or ()}
        most = max(most, *grown.values())
        steps.update(grown)
    assert len(steps) == 81
    assert most > 1
    assert min(steps.values()) > 39 - 10
    assert shares[0] == 1
    assert 0 < shares[-1] < 1


@pytest.mark.parametrize("place", range(3, 80, 11))
def test_where_not_all_can_be_asked_each_thread_has_its_turn(
    machine: FakeMachine, place: int
) -> None:
    """Whichever of them waits for a CPU, and has not run yet."""
    threads = range(8, 88)
    for tid in (7, *threads):
        machine.thread(7, tid, call=LOCKED)
    machine.read(process(threads=81), at=1)
    machine.read(process(cpu=2, threads=81), at=2)
    machine.cost_ns = seconds(0.0004)  # of each look at the clock, after 16 threads
    machine.thread(7, threads[place], call="running", state="R")
    found: list[int] = []
    for at in range(3, 15):
        machine.thread(7, run=1 + at / 10, call=LOCKED)
        look = machine.read(process(cpu=at, threads=81), at=at).look
        found += [each.thread for each in look.seen if each.blocked is None]
    assert threads[place] in found


@pytest.mark.parametrize(("count", "cost"), [(120, 0.0004), (120, 0), (80, 0.0004)])
def test_a_look_that_leaves_some_of_many_threads_for_later_is_enough(
    machine: FakeMachine, count: int, cost: float
) -> None:
    machine.cost_ns = seconds(cost)  # of each look at the clock, after 16 threads
    for at in range(1, 40):
        for tid in range(7, 7 + count):
            machine.thread(7, tid, run=0.0001 * at)
        sample = machine.read(process(cpu=at, threads=count), at=at)
    assert sample.look.is_behind is (cost > 0)
    assert machine.reader.is_one_enough(sample.look) is (cost > 0 and count >= 100)
    assert not machine.reader.is_one_enough(None)
    assert not machine.reader.is_one_enough(replace(sample.look, has_other_waits=True))


def test_where_not_all_can_be_read_each_process_has_its_turn(machine: FakeMachine) -> None:
    machine.cost_ns = seconds(0.0004)
    turns: Counter[int] = Counter()
    pids = (10, 30, 50)
    for at in range(1, 51):
        for pid in pids:
            for tid in range(pid, pid + 11):
                machine.thread(pid, tid, run=0.0001 * at)
        sample = machine.read(*(process(pid, cpu=at, threads=11) for pid in pids), at=at)
        if at > 30:  # what it may cost in advance is spent
            turns.update({grown.process for grown in sample.growth or ()})
    assert min(turns[pid] for pid in pids) >= 8


def test_where_not_all_can_be_read_who_works_is_looked_at_in_each_look(
    machine: FakeMachine,
) -> None:
    """Each process has one thread that uses much of a CPU, and ten that help it."""
    machine.cost_ns = seconds(0.0004)
    pids = (10, 30, 50, 70, 90)
    for at in range(1, 51):
        for pid in pids:
            machine.thread(pid, run=0.1 * at, state="R", call=SLEEPING)
            for tid in range(pid + 1, pid + 11):
                machine.thread(pid, tid, run=0.0001 * at)
        sample = machine.read(*(process(pid, cpu=at, threads=11) for pid in pids), at=at)
        if at > 30:  # what it may cost in advance is spent
            assert sample.look.is_behind
            assert {seen.thread for seen in sample.look.seen} >= set(pids)


def test_between_two_looks_the_states_of_those_that_work_are_read(machine: FakeMachine) -> None:
    machine.thread(7, run=1)
    machine.read(process())
    machine.thread(7, run=1.5)
    machine.read(process(cpu=2), at=2)
    for state in "RSSR":
        machine.thread(7, run=1.5, state=state)
        machine.reader.peek()
    look = machine.look(2.5).look
    assert (look.peeks, look.able_peeks) == (4, 2)
    assert machine.look(2.6).look.peeks == 0


@pytest.mark.parametrize(("others", "peeks"), [("", 1), ("S", 1), ("R", 2)])
def test_states_say_nothing_once_one_that_works_has_ended(
    others: str, peeks: int, machine: FakeMachine
) -> None:
    """The next job may have begun, which is unknown until the next reading."""
    jobs = (8, 9)[: 1 + len(others)]
    for at in (1, 2, 3):
        for pid in jobs:
            machine.thread(pid, run=0.4 * at, state="R")
        machine.read(*[process(pid, cpu=0.4 * at, state="R") for pid in jobs], at=at)
    machine.reader.peek()
    machine.thread(8, run=1.2, state="Z")
    for pid in jobs[1:]:
        machine.thread(pid, run=1.2, state=others)
    machine.reader.peek()
    assert machine.reader.can_peek == (others == "R")
    look = machine.look(3.5).look
    assert (look.peeks, look.able_peeks) == (peeks, peeks)


def test_no_look_is_left_out_for_the_states_between_looks(machine: FakeMachine) -> None:
    """These have the share that :class:`LookTimes` gives to them."""
    machine.thread(7, run=1)
    machine.read(process())
    machine.thread(7, run=1.5)
    machine.read(process(cpu=2), at=2)
    machine.cost_ns = seconds(0.001)
    for _ in range(100):
        machine.reader.peek()
    machine.cost_ns = 0
    assert machine.look(2.5).look.peeks == 100


def test_states_say_nothing_where_processes_begin_or_many_threads_work_little(
    machine: FakeMachine,
) -> None:
    for tid in range(7, 25):
        machine.thread(7, tid, run=0)
    machine.thread(30, run=0.01)
    both = (process(threads=18), process(30))
    for at, processes, peeks in ((1, both[:1], 0), (2, both, 0), (3, both, 1), (4, both[:1], 0)):
        machine.thread(7, run=0.1 * at)
        machine.read(process(cpu=0.1 * at, threads=18), *processes[1:], at=at)
        machine.reader.peek()
        assert machine.look(at + 0.1).look.peeks == peeks
    machine.thread(7, run=0.409)
    for tid in range(8, 25):
        machine.thread(7, tid, run=0.009)
    machine.read(*both[:1], at=5)
    machine.read(process(cpu=2, threads=18), at=6)
    machine.reader.peek()
    assert machine.look(6.1).look.peeks == 0


@pytest.mark.parametrize(("threads", "peeks"), [(8, 12), (18, 0)])
def test_states_of_all_are_read_if_they_are_few_and_any_may_do_the_work_next(
    threads: int, peeks: int, machine: FakeMachine
) -> None:
    """As those of Go, of which one wakes for a moment, and then does the work of another one."""
    ran = dict.fromkeys(range(7, 7 + threads), 0.0)
    found = found_able = 0
    for at in range(1, 15):
        for tid in ran:
            ran[tid] += 0.2 if tid == 7 + at % threads else 0.001
            machine.thread(7, tid, run=ran[tid])
        look = machine.read(process(cpu=sum(ran.values()), threads=threads), at=at).look
        found, found_able = found + look.peeks, found_able + look.able_peeks
        next_one = 7 + (at + 1) % threads
        machine.thread(7, next_one, run=ran[next_one], state="R")
        machine.reader.peek()
    assert (found, found_able) == (peeks, peeks)


def test_states_say_nothing_of_those_that_have_not_worked_for_long(machine: FakeMachine) -> None:
    machine.thread(7, run=1)
    machine.read(process())
    machine.thread(7, run=1.5)
    machine.read(process(cpu=2), at=2)
    assert machine.reader.can_peek
    for at in range(3, 40):
        machine.read(process(cpu=2), at=at)
    assert not machine.reader.can_peek


def test_states_of_those_that_cannot_be_asked_are_read(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refuse(path: str | Path, flags: int) -> int:
        if path == f"{machine.folder}/30/task/30/syscall":
            raise PermissionError(path)
        return opened(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    for at in (1, 2, 3):
        machine.thread(7, run=0.1 * at)
        machine.thread(30, run=0.1 * at, state="SSR"[at - 1])
        machine.read(process(cpu=0.1 * at), process(30, cpu=0.1 * at), at=at)
        machine.reader.peek()
    assert machine.look(3.5).look.able_peeks == 1


@without_system_calls
@pytest.mark.parametrize(
    ("runs", "can_peek"), [((0.1, 0.05), True), ((0.1, 0.05, 0), True), ((0.3,), False)]
)
def test_without_system_calls_states_are_read_of_several_that_work(
    machine: FakeMachine, runs: tuple[float, ...], *, can_peek: bool
) -> None:
    """Also while they have no turn, and where others are read each time."""
    tids = range(8, 8 + len(runs))
    peeks = able_peeks = 0
    for at in range(1, 120):
        machine.thread(7, run=0)
        for tid, run in zip(tids, runs, strict=True):
            machine.thread(7, tid, run=run * at, state="R" if at % 2 else "S")
        machine.thread(30, run=0.001 * at)
        pool = process(cpu=0.1 * at, threads=1 + len(runs))
        look = machine.read(pool, process(30, cpu=0.001 * at), at=at).look
        assert machine.reader.can_peek == can_peek or at < 3
        peeks, able_peeks = peeks + look.peeks, able_peeks + look.able_peeks
        machine.reader.peek()
    assert peeks == pytest.approx(118 if can_peek else 0, abs=2)
    assert able_peeks == pytest.approx(peeks / 2, abs=1)


@without_system_calls
def test_without_system_calls_states_say_nothing_of_those_that_work_little(
    machine: FakeMachine,
) -> None:
    for at in range(1, 60):
        for tid in range(7, 11):
            machine.thread(7, tid, run=0.015 * at)
        machine.read(process(cpu=0.1 * at, threads=4), at=at)
        assert not machine.reader.can_peek


def test_states_say_nothing_where_threads_work_that_end_unread(machine: FakeMachine) -> None:
    machine.thread(7, 8, run=0)
    for at, ended, can_peek in ((1, 0.0, False), (2, 0.0, True), (3, 0.1, False)):
        machine.thread(7, run=0.1 * at)
        machine.read(process(cpu=0.1 * at + ended, threads=2), at=at)
        assert machine.reader.can_peek == can_peek


def test_a_sample_has_only_what_was_read_of_the_threads_that_may_have_run(
    machine: FakeMachine,
) -> None:
    machine.cost_ns = seconds(0.0005)
    for tid in range(7, 87):
        machine.thread(7, tid, state="D", call=IN_A_PAGE_FAULT)
    assert machine.read(process(threads=80)).waits[Wait("disk")] > 1
    for tid in range(7, 87):
        machine.thread(7, tid, run=1.001)
    samples = [machine.read(process(cpu=at, threads=80), at=at) for at in range(2, 30)]
    assert samples[-1].waits.keys() == {Wait("sleep")}


def test_expensive_readings_pause_but_a_required_one_is_made(machine: FakeMachine) -> None:
    machine.thread(7)
    machine.cost_ns = seconds(0.03)
    assert machine.read(process()).waits
    assert machine.reader.look(seconds(2)) is None
    assert machine.read(process(), at=2, is_required=True).waits
    assert machine.read(process(), at=100).waits


def test_files_are_closed(machine: FakeMachine, tmp_path: Path) -> None:
    for pid in range(7, 400):
        machine.thread(pid)
    machine.read(*(process(pid) for pid in range(7, 400)))
    assert 0 < len(open_files(tmp_path)) <= 256
    machine.read(process(), at=2)
    machine.reader.close()
    assert not open_files(tmp_path)


@without_system_calls
def test_the_files_of_thousands_of_threads_stay_within_the_limit_and_are_closed(
    machine: FakeMachine,
    tmp_path: Path,
) -> None:
    for tid in range(7, 607):
        machine.thread(7, tid)
    for at in range(1, 20):
        machine.read(process(cpu=at, threads=600), at=at, is_required=at == 1)
    assert len(open_files(tmp_path)) == 256
    for tid in range(8, 607):
        shutil.rmtree(machine.folder / "7" / "task" / str(tid))
    machine.reader.close()
    assert not open_files(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=40).filter(lambda text: b"\0" not in text))
def test_any_counters_can_be_read(tmp_path: Path, text: bytes) -> None:
    with closing(FakeMachine(tmp_path)) as machine:
        machine.thread(7)
        (tmp_path / "7" / "task" / "7" / "schedstat").write_bytes(text)
        machine.read(process())


def test_it_is_known_how_often_a_thread_was_on_a_cpu_since_its_wait(tmp_path: Path) -> None:
    thread = open_thread(7, str(tmp_path), ThreadFiles(), ReadingNumberAndTime(0, 0))
    for number, slices in enumerate((5, 7, 8), start=1):
        write_in_place(tmp_path / "schedstat", f"{number} 0 {slices}\n")
        now = ReadingNumberAndTime(number, seconds(number))
        thread.read_growth(ReadingNumberAndTime(number - 1, 0), now, 7)
        if number == 1:
            thread.is_stale = False  # it was asked
    assert thread.work_begin_bounds(seconds(3), is_able=False).turns == 3
