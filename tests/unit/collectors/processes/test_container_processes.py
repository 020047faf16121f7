"""The process source on folders that look like /proc, with texts recorded from Linux 5.10 and
6.18.
"""

import string
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from profiler.collectors.processes.container_processes import ContainerProcesses, ProcessSnapshot
from profiler.collectors.processes.discovery import is_in_container
from profiler.collectors.processes.machine_processes import MachineProcesses
from profiler.readers.linux import proc
from tests.fakes import FakeClock
from tests.open_files import open_files

MIB = 2**20
BATCH, OTHER = "c0ffee" * 10 + "abcd", "deadbe" * 10 + "abcd"
V1 = "12:pids:/ecs/0123/{id}\n4:memory:/ecs/0123/{id}\n1:name=systemd:/ecs/0123/{id}\n0::/\n"
V2_PRIVATE = "0::/../{id}\n"
V2_SYSTEMD = "0::/ecstasks.slice/ecstasks-0123.slice/docker-{id}.scope\n"
FARGATE = "9:memory:/ecs/aa11/{id}\n"


class OnlyContainer(ContainerProcesses):
    """The processes of the only container that is followed: each reading is a tick."""

    def read_snapshot(self) -> ProcessSnapshot:
        self._machine.mark_out_of_date()
        return super().read_snapshot()


class FakeProc:
    """A folder like /proc whose processes come, change and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sources = ExitStack()
        self.clock = FakeClock()
        self.cpu_ns: dict[int, int] = {}
        self.newest_id = 1
        self.given(1)

    def given(self, pid: int) -> None:
        self.newest_id = pid
        (self.folder / "loadavg").write_text(f"0.02 0.10 0.09 2/184 {pid}\n")

    def process(
        self,
        pid: int,
        *,
        name: str = "python3",
        docker_id: str = BATCH,
        cgroup: str = V1,
        parent: int = 0,
        state: str = "S",
        started: int = 1000,
        faults: int = 10,
        rss: int = 100,
        virtual: int = 3,
        anonymous: int | None = None,
        mark: int | None = None,
        cpu_ticks: int = 0,
        children_ticks: int = 0,
        threads: int = 1,
        arguments: tuple[str, ...] = (),
        ending: bool = False,
        forked: bool = False,
        divided: bool = True,
    ) -> None:
        """Sizes are in MiB. Not ``divided``: as in gVisor."""
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "cgroup").write_text(cgroup.format(id=docker_id))
        (folder / "cmdline").write_bytes(
            b"".join(word.encode() + b"\0" for word in (name, *arguments))
        )
        flags = 4194304 | 4 * ending | 64 * forked
        fields = [
            state,
            parent,
            7,
            7,
            0,
            -1,
            flags,
            faults,
            0,
            0,
            0,
            cpu_ticks,
            0,
            children_ticks,
            0,
            20,
            0,
            threads,
        ]
        fields += [0, started, virtual * MIB, rss * 256, 18446744073709551615, *[0] * 27]
        (folder / "stat").write_text(f"{pid} ({name}) " + " ".join(map(str, fields)) + "\n")
        status = f"Name:\t{name}\nState:\t{state}\nPid:\t{pid}\n"
        (folder / "statm").write_text(f"9000 {rss * 256} 0 0 0 0 0\n")
        if state != "Z" and not divided:
            status += f"VmRSS:\t{rss * 1024} kB\n"
        elif state != "Z":
            anonymous = rss if anonymous is None else anonymous
            status += (
                f"VmHWM:\t{(mark or rss) * 1024} kB\nVmRSS:\t{rss * 1024} "
                f"kB\nRssAnon:\t{anonymous * 1024} kB\n"
            )
        (folder / "status").write_text(status + f"Threads:\t{threads}\nSigIgn:\t0000000000000000\n")

    def gone(self, pid: int) -> None:
        for path in (self.folder / str(pid)).iterdir():
            path.write_text("")  # who has it open can read nothing any more, as in /proc
            path.unlink()
        (self.folder / str(pid)).rmdir()

    def read_source(self) -> ContainerProcesses:
        """A source that has been read once."""
        source = self.source()
        source.read_snapshot()
        return source

    def source(self, docker_id: str = BATCH, *, with_arguments: bool = False) -> ContainerProcesses:
        listing = MachineProcesses(self.clock.monotonic_ns, str(self.folder))
        source = OnlyContainer(docker_id, listing, self.cpu_ns.get, with_arguments=with_arguments)
        return self._sources.enter_context(closing(source))

    def close(self) -> None:
        self._sources.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[FakeProc]:
    with closing(FakeProc(tmp_path)) as opened:
        yield opened


def pids(snapshot: ProcessSnapshot) -> list[int]:
    return [process.pid for process in snapshot.processes]


@pytest.mark.parametrize("cgroup", [V1, V2_PRIVATE, V2_SYSTEMD])
def test_a_containers_processes_are_those_in_its_control_group(
    machine: FakeProc, cgroup: str
) -> None:
    machine.process(1, name="pause", docker_id=OTHER, cgroup=cgroup)
    without_proc = MachineProcesses(machine.clock.monotonic_ns, str(machine.folder / "nowhere"))
    nowhere = ContainerProcesses(BATCH, without_proc)
    assert nowhere.read_snapshot() == ProcessSnapshot()
    assert machine.source().read_snapshot() == ProcessSnapshot(last_pid=1)
    machine.process(7, cgroup=cgroup)
    machine.process(8, cgroup=cgroup, parent=7, started=1001)
    machine.process(30, name="task-profiler", docker_id=OTHER, cgroup=cgroup)
    snapshot = machine.source().read_snapshot()
    assert pids(snapshot) == [7, 8]
    assert snapshot.main_pid == 7
    assert snapshot.ended == ()


def test_an_id_that_begins_like_another_is_not_taken_for_it(
    machine: FakeProc,
) -> None:
    """An id that begins like another is not taken for it and the first process came from outside."""
    machine.process(7, docker_id="aa11-123", cgroup=FARGATE, started=900)
    machine.process(8, docker_id="aa11-1234567890", cgroup=FARGATE)
    machine.process(20, docker_id="aa11-123", cgroup=FARGATE, started=500)
    machine.process(21, docker_id="aa11-123", cgroup=FARGATE, started=400, parent=20)
    snapshot = machine.source("aa11-123").read_snapshot()
    assert pids(snapshot) == [7, 20, 21]
    assert snapshot.main_pid == 20
    assert is_in_container(str(machine.folder / "8"), "aa11-1234567890")


def test_what_a_process_holds_and_has_used(machine: FakeProc) -> None:
    machine.process(7, rss=100, anonymous=80, mark=900, cpu_ticks=150, children_ticks=20, threads=3)
    machine.cpu_ns[7] = 1_503_000_000
    (process,) = machine.source().read_snapshot().processes
    assert process.name == "python3"
    assert process.own_cpu_ns == 1_503_000_000
    assert process.children_cpu_ns == 200_000_000
    assert process.rss_bytes == 100 * MIB
    assert process.share_bytes == 80 * MIB, "without the pages of files"
    assert process.peak_bytes == 900 * MIB
    assert process.threads == 3


def shares(source: ContainerProcesses) -> list[float]:
    return [(process.share_bytes or 0) / MIB for process in source.read_snapshot().processes]


def test_anonymous_memory_counts_and_of_forks_what_they_allocated(
    machine: FakeProc,
) -> None:
    machine.process(7, rss=100, anonymous=80)
    source = machine.source()
    assert shares(source) == [80]
    machine.process(8, rss=50, anonymous=20, parent=7, name="gzip")
    machine.process(9, rss=350, anonymous=330, parent=7, forked=True)  # it grew before it was seen
    machine.process(
        10, rss=100, anonymous=80, parent=7, forked=True, name="renamed"
    )  # perhaps of another parent
    machine.given(10)
    assert shares(source) == [80, 20, 330 - 100, 0]
    machine.process(
        10, rss=120, anonymous=110, parent=7, faults=30
    )  # it has executed another program
    assert shares(source) == [80, 20, 330 - 100, 110]
    for ended in (7, 8, 10):
        machine.gone(ended)
    assert shares(source) == [330]


def test_where_no_part_of_the_memory_is_known_nothing_counts_twice_and_nothing_vanishes(
    machine: FakeProc,
) -> None:
    machine.process(7, rss=73, divided=False)
    machine.process(8, rss=53, parent=7, divided=False, arguments=("load.py",))
    machine.process(9, rss=75, parent=7, divided=False)  # a fork has its parent's words
    assert shares(machine.source()) == [73, 53, 2]


class Simulated(Struct):
    """A process, and its anonymous pages by their numbers, of which forks have the same."""

    name: str
    parent: int
    pages: set[int]
    mark: int
    forked: bool = False


def act(processes: dict[int, Simulated], action: str, which: int, new: set[int]) -> None:
    pid = sorted(processes)[which % len(processes)]
    one = processes[pid]
    if action == "fork":
        processes[max(new)] = Simulated(
            one.name, pid, one.pages.copy(), len(one.pages), forked=True
        )
    elif action == "execute" and one.forked:
        processes[pid] = Simulated(f"tool{pid}", one.parent, set(), 0)
    elif action == "end" and len(processes) > 1:
        del processes[pid]
        for other in processes.values():
            other.parent = 1 if other.parent == pid else other.parent
    elif action in ("free", "copy"):  # a copy of inherited pages
        one.pages.difference_update(sorted(one.pages)[: len(new)])
    if action in ("allocate", "copy"):
        one.pages |= new
        one.mark = max(one.mark, len(one.pages))


ACTIONS = st.sampled_from(
    ("read", "fork", "allocate", "allocate", "copy", "free", "execute", "end")
)


@given(
    history=st.lists(
        st.tuples(ACTIONS, st.integers(0, 9), st.integers(1, 300)), min_size=4, max_size=24
    )
)
def test_the_shares_are_never_more_than_all_processes_hold_nor_less_than_one(
    history: Sequence[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    processes = {7: Simulated("a", 0, set(range(100)), 100)}
    with closing(FakeProc(tmp_path_factory.mktemp("proc"))) as machine:
        source, written = machine.source(), set[int]()
        for step, (action, which, count) in enumerate([*history, ("read", 0, 1)], start=1):
            act(processes, action, which, set(range(1000 * step, 1000 * step + count)))
            if action == "read":
                for pid in written - processes.keys():
                    machine.gone(pid)
                for pid, one in processes.items():
                    facts: dict[str, Any] = {
                        "name": one.name,
                        "forked": one.forked,
                        "parent": one.parent,
                    }
                    machine.process(pid, faults=step, rss=len(one.pages), mark=one.mark, **facts)
                written = set(processes)
                machine.given(10**6 + step)
                held = [one.pages for one in processes.values()]
                assert max(map(len, held)) <= sum(shares(source)) <= len(set[int]().union(*held))


def test_an_ended_process_is_reported_once_with_its_last_memory(machine: FakeProc) -> None:
    machine.process(7)
    machine.process(8, rss=300, parent=7, name="worker")
    machine.given(8)
    source = machine.read_source()
    machine.process(8, state="Z", rss=0, parent=7, name="worker")
    snapshot = source.read_snapshot()
    assert [(process.name, process.rss_bytes) for process in snapshot.ended] == [
        ("worker", 300 * MIB)
    ]
    assert [process.rss_bytes for process in snapshot.processes] == [100 * MIB, None]
    machine.gone(8)
    snapshot = source.read_snapshot()
    assert snapshot.ended == ()
    assert pids(snapshot) == [7]
    # Who gives back its memory has ended.
    machine.process(9, rss=300, parent=7)
    machine.given(9)
    source.read_snapshot()
    for state in "RZ":
        machine.process(9, rss=0, parent=7, state=state, ending=True)
        assert [process.rss_bytes for process in source.read_snapshot().ended] == (
            [300 * MIB] if state == "R" else []
        )


def test_ids_without_a_process_are_counted_as_missed(machine: FakeProc) -> None:
    machine.process(7)
    machine.given(7)
    source = machine.source()
    assert source.read_snapshot().missed_pids == 0
    machine.process(10, parent=7)
    machine.given(12)
    assert source.read_snapshot().missed_pids == 4
    assert source.read_snapshot().missed_pids == 0


@pytest.mark.parametrize("cgroup", [V1, "4:memory:/\n0::/\n"])
def test_who_is_found_only_while_it_ends_was_not_seen(machine: FakeProc, cgroup: str) -> None:
    """Giving back much memory takes a while; cgroup v1 shows the process in no container
    meanwhile.
    """
    machine.process(7)
    machine.given(7)
    source = machine.read_source()
    machine.process(8, parent=7, state="R", rss=0, ending=True, cgroup=cgroup)
    machine.given(8)
    snapshot = source.read_snapshot()
    assert snapshot.ended == ()
    assert snapshot.missed_pids == 1
    machine.process(8, parent=7, state="Z", rss=0, ending=True, cgroup=cgroup)
    snapshot = source.read_snapshot()
    assert snapshot.ended == ()
    assert snapshot.missed_pids == 0


def test_no_scan_while_no_id_was_assigned(
    machine: FakeProc,
) -> None:
    """No scan while no id was assigned and a number given out again is another process."""
    machine.process(7)
    source = machine.read_source()
    machine.process(8, parent=7)
    assert pids(source.read_snapshot()) == [7]
    machine.clock.advance(61)
    assert pids(source.read_snapshot()) == [7, 8]
    machine.gone(7)
    machine.process(7, rss=5, started=9000)
    assert [process.started_ticks for process in source.read_snapshot().ended] == [1000]
    machine.clock.advance(61)
    assert [
        process.started_ticks for process in source.read_snapshot().processes if process.pid == 7
    ] == [9000]


def test_a_script_has_its_name_and_arguments_only_if_enabled(machine: FakeProc) -> None:
    machine.process(7, arguments=("load.py",))
    source = machine.source()
    names = [source.read_snapshot().processes[0].name]
    machine.process(7, arguments=("export.py", "--day", "1"), faults=30)
    arguments = [
        one.read_snapshot().processes[0].arguments
        for one in (machine.source(), machine.source(with_arguments=True))
    ]
    assert arguments == [(), ("export.py", "--day", "1")]
    names += [source.read_snapshot().processes[0].name]
    machine.process(7, state="Z", faults=40)
    names += [source.read_snapshot().processes[0].name]
    assert names == ["python3 load.py", "python3 export.py", "python3 export.py"]


@pytest.mark.slow
def test_many_processes_are_followed_without_keeping_all_their_files_open(
    machine: FakeProc,
) -> None:
    for pid in range(2, 302):
        machine.process(pid, started=pid)
    source = machine.source()
    assert len(source.read_snapshot().processes) == 300
    assert len(source.read_snapshot().processes) == 300
    files = [name for _, name in open_files(machine.folder) if not name.endswith("/loadavg")]
    assert len(files) == 200
    source.close()
    assert not open_files(machine.folder)


@given(st.text(string.printable, max_size=30), st.integers(1, 2**22), st.integers(0, 2**40))
def test_any_name_of_a_command_can_be_read(name: str, pid: int, ticks: int) -> None:
    fields = ["R", 1, *[0] * 9, ticks, 0, 0, 0, 20, 0, 1, 0, 77, 0, 5, *[0] * 28]
    stat = proc.parse_stat(f"{pid} ({name}) {' '.join(map(str, fields))}\n".encode())
    assert stat is not None
    assert stat.name == name
    assert stat.state == "R"
    assert stat.cpu_ticks == ticks
    assert stat.started_ticks == 77
    assert stat.resident_pages == 5


def test_at_most_4_kib_of_a_command_line_are_kept(tmp_path: Path) -> None:
    secret = "0123456789abcdef" * 1000
    (tmp_path / "cmdline").write_bytes(
        b"python\0job.py\0" + b"--day\0" + secret.encode() + b"\0--last\0"
    )
    assert proc.read_arguments(str(tmp_path)) == ("job.py", "--day", "…")
    (tmp_path / "cmdline").write_bytes(b"python\0" + b"x\0" * 10_000)
    assert sum(len(word) + 1 for word in proc.read_arguments(str(tmp_path))) <= 4096
    assert proc.read_arguments(str(tmp_path / "missing")) == ()


@given(st.binary(max_size=300), st.integers(1, 60))
def test_a_cut_argument_shows_no_part_of_itself(end: bytes, position: int) -> None:
    """Part of a secret can be too short to look like one."""
    words = proc.parse_command_line(
        b"job\0" + b"x" * (4096 - 5 - position) + b"\0" + b"s" * (position + 1) + end
    )
    assert "s" not in "".join(words[1:])


def test_the_rings_of_packet_sockets_are_those_that_the_containers_processes_map(
    machine: FakeProc,
) -> None:
    machine.process(7, rss=20, virtual=150)
    ring = "7f3175432000-7f317d432000 rw-s 00000000 00:09 18028425       socket:[18028425]\n"
    (machine.folder / "7" / "maps").write_text(ring)
    assert machine.read_source().ring_bytes() == 128 * MIB
