"""What a blocked thread waits for, by its system call, its descriptors and the tables of
sockets.
"""

import os
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.files import open_or_none
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.shared_links import parse_shared_mappings
from profiler.readers.linux.sockets import (
    KernelSockets,
    Socket,
    SocketTable,
    TcpStreamState,
    parse_inet,
    parse_peer_inode,
    parse_stream_state,
    parse_streams,
)
from profiler.readers.linux.system_calls import (
    SystemCall,
    waiting_calls_of_machine,
)
from profiler.readers.linux.wait_types import BlockedThread, Wait
from profiler.readers.linux.waited_target import WaitResolver, lock_holder_pids
from tests.fakes import seconds
from tests.values import present


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_wait_that_no_argument_changes_is_the_same(machine: str) -> None:
    calls = waiting_calls_of_machine(machine)
    resolver = WaitResolver(calls, "/nowhere", lambda: 0)
    names: set[str] = set()
    for number, (name, _) in calls.items():
        call = SystemCall(number, (1, 2, 3, 4, 5, 6))
        blocked = resolver.unconditional_wait(call)
        if blocked is not None:
            names.add(name)
            assert blocked == resolver.resolve_wait(1, call, 0, 0)
            assert blocked.wait.kind not in ("disk", "other"), "these are asked for more"
    assert names == {"nanosleep", "clock_nanosleep", "accept", "accept4"} & {
        name for name, _ in calls.values()
    }


@pytest.mark.parametrize(
    ("machine", "number", "place", "name"),
    [
        ("x86_64", 219, b"futex_wait_queue", "futex"),
        ("x86_64", 219, b"poll_schedule_timeout.constprop.0", "poll"),
        ("x86_64", 219, b"do_syscall_64", "nanosleep"),
        ("aarch64", 128, b"futex_do_wait", "futex"),
        ("aarch64", 128, b"hrtimer_nanosleep", "nanosleep"),
    ],
)
def test_the_call_that_goes_on_after_a_stop(
    machine: str, number: int, place: bytes, name: str
) -> None:
    resolver = WaitResolver(waiting_calls_of_machine(machine), "/proc", lambda: 0)
    call = SystemCall(number, (1, 2, 3, 4, 5, 6))
    assert resolver.is_restarted(call)
    original = resolver.restarted_call(call, place)
    assert waiting_calls_of_machine(machine)[original.number][0] == name
    assert original.arguments == call.arguments
    assert not resolver.is_restarted(original)
    assert resolver.restarted_call(call, b"0") == resolver.restarted_call(call, b"") == call


PID = 7
NUMBERS = {name: number for number, (name, _) in waiting_calls_of_machine("x86_64").items()}
INET_HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n"
)
UNIX_HEAD = "Num       RefCount Protocol Flags    Type St Inode Path\n"
NOT_A_TIMEOUT = 0xFFFFFFFF


PEER, NO_PEER, KNOWN_PEER = "0903000A:1538", "00000000:0000", Wait("network", "10.0.3.9:5432")


def inet_line(remote: str, inode: int) -> str:
    return (
        f"   0: 0100007F:9C40 {remote} 01 00000000:00000000 00:00000000 00000000  1000        0 "
        f"{inode} 1 0\n"
    )


def unix_line(inode: int, path: str = "") -> str:
    return f"0000000000000000: 00000003 00000000 00000000 0001 03 {inode}{path}\n"


class FakeProcess:
    """The folder of a process with descriptors, socket tables and memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / str(PID)
        for name in ("fd", "fdinfo", "net"):
            (self.folder / name).mkdir(parents=True)
        self.resolver = WaitResolver(
            waiting_calls_of_machine("x86_64"),
            str(folder),
            lambda: 0,
            wall_ahead_ns=lambda: seconds(1000),
        )

    def opens(self, **links: str) -> None:
        for name, link in links.items():
            (self.folder / "fd" / name.removeprefix("fd")).symlink_to(link)

    def mounted(self, filesystem: str, descriptor: int) -> None:
        """What the descriptor has open is in such a file system."""
        (self.folder / "mountinfo").write_text(f"31 29 8:1 / /data rw - {filesystem} /dev/sda rw\n")
        (self.folder / "fdinfo" / str(descriptor)).write_text("pos:\t0\nmnt_id:\t31\n")

    def table(self, name: str, *lines: str) -> None:
        (self.folder / "net" / name).write_text(
            (UNIX_HEAD if name == "unix" else INET_HEAD) + "".join(lines)
        )

    def blocked(self, name: str, *arguments: int, now: float = 0) -> BlockedThread:
        call = SystemCall(NUMBERS[name], (*arguments, 0, 0, 0, 0, 0, 0)[:6])
        return self.resolver.resolve_wait(PID, call, seconds(now), seconds(now - 1))

    def waits(self, name: str, *arguments: int, now: float = 0) -> Wait:
        return self.blocked(name, *arguments, now=now).wait

    def blocked_in_poll(self, descriptors: Iterable[int], timeout: int) -> BlockedThread:
        memory = b"".join(struct.pack("=ihh", number, 1, 0) for number in descriptors)
        (self.folder / "mem").write_bytes(bytes(64) + memory)
        return self.blocked("poll", 64, len(memory) // 8, timeout)

    def polls(self, descriptors: Iterable[int], timeout: int) -> Wait:
        return self.blocked_in_poll(descriptors, timeout).wait


@pytest.fixture
def process(tmp_path: Path) -> Iterator[FakeProcess]:
    fake = FakeProcess(tmp_path)
    yield fake
    fake.resolver.end_look()


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("clock_nanosleep", (), "sleep"),
        ("futex", (), "lock"),
        ("futex", (8, 0x89, 0, 4096), "sleep"),  # FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG
        ("futex", (8, 0x180, 0, 4096), "sleep"),
        ("futex", (8, 0x86, 0, 4096), "lock"),  # FUTEX_LOCK_PI: a thread holds it
        ("futex_wait", (8, 0, 0, 0, 4096), "sleep"),
        ("futex_waitv", (8, 1, 0, 0), "lock"),
        ("semop", (8, 1, 1), "lock"),
        ("semtimedop", (8, 1, 1, 0), "lock"),
        ("semtimedop", (8, 1, 1, 4096), "sleep"),
        ("msgrcv", (8, 4096, 8, 0, 0), "pipe"),
        ("mq_timedreceive", (99, 4096, 8, 0, 0), "pipe"),
        ("flock", (3,), "lock"),
        ("fcntl", (3, 7), "lock"),
        ("fcntl", (3, 1), "other"),
        ("wait4", (), "child"),
        ("vfork", (), "child"),
        ("accept4", (3,), "network"),
        ("io_getevents", (), "disk"),
        ("poll", (0, 0, 5000), "sleep"),
        ("poll", (0, 0, NOT_A_TIMEOUT), "sleep"),
        ("select", (0, 0, 0, 0, 4096), "sleep"),
        ("read", (99,), "other"),
    ],
)
def test_calls_that_say_all(
    process: FakeProcess, name: str, arguments: tuple[int, ...], kind: str
) -> None:
    assert process.waits(name, *arguments) == Wait(kind)
    for in_no_table in (SystemCall(427, (3, 0, 1, 0, 0, 0)), SystemCall(-1)):
        assert process.resolver.resolve_wait(PID, in_no_table, 0, 0).wait == Wait("other")


def test_a_read_waits_for_its_descriptor(process: FakeProcess) -> None:
    expected = {
        "/data/orders.parquet": Wait("disk", "/data/orders.parquet"),
        "/tmp/scratch (deleted)": Wait("disk", "/tmp/scratch"),
        "pipe:[88]": Wait("pipe"),
        **dict.fromkeys(("/dev/pts/0", "/dev/null", "anon_inode:[eventfd]"), Wait("other")),
        "anon_inode:[timerfd]": Wait("sleep"),
        "anon_inode:[pidfd]": Wait("child"),
        "/" + "a" * 400: Wait("disk", "/" + "a" * 254 + "…"),
        "/caf\udce9": Wait("disk", "/caf?"),  # bytes that are no text are replaced
    }
    process.opens(**{f"fd{number}": link for number, link in enumerate(expected)})
    assert {link: process.waits("read", number) for number, link in enumerate(expected)} == expected


def test_a_socket_leads_to_its_peer(process: FakeProcess) -> None:
    process.opens(fd3="socket:[501]", fd4="socket:[502]", fd5="socket:[503]")
    process.table("tcp", inet_line(PEER, 501))
    remotes = {
        502: "00000000000000000000000001000000:1538",
        503: "0000000000000000FFFF00000903000A:01BB",
    }
    process.table("tcp6", *(inet_line(remote, inode) for inode, remote in remotes.items()))
    assert process.waits("recvfrom", 3) == KNOWN_PEER
    assert process.waits("read", 4) == Wait("network", "[::1]:5432")
    assert process.waits("connect", 5) == Wait("network", "10.0.3.9:443")
    # A number in another column is not the inode.
    process.opens(fd6="socket:[1000]")
    process.table("tcp", inet_line(PEER, 501), inet_line("0A03000A:1538", 1000))
    assert process.waits("recvfrom", 6) == Wait("network", "10.0.3.10:5432")


def test_a_socket_in_no_table_has_no_peer_and_is_looked_up_again_later(
    process: FakeProcess,
) -> None:
    process.opens(fd3="socket:[501]")
    assert process.waits("recvfrom", 3) == Wait("network")
    process.table("tcp", inet_line(PEER, 501))
    assert process.waits("recvfrom", 3, now=5) == Wait("network")
    assert process.waits("recvfrom", 3, now=11) == KNOWN_PEER


def test_a_unix_socket_needs_no_search_among_the_connections(process: FakeProcess) -> None:
    (process.folder / "net" / "tcp").mkdir()
    process.opens(fd3="socket:[501]", fd4="socket:[502]")
    process.table("unix", unix_line(501, " /run/postgresql/.s.PGSQL.5432"), unix_line(502))
    assert process.waits("recvmsg", 3) == Wait("network", "/run/postgresql/.s.PGSQL.5432")
    assert process.waits("recvmsg", 4) == Wait("network", "unix socket")


def test_a_mutex_that_a_thread_holds_is_a_lock(process: FakeProcess) -> None:
    (process.folder / "mem").write_bytes(bytes(64) + struct.pack("=III", 2, 1, 99))
    held = (64, 0x89, 2, 4096)
    assert process.waits("futex", *held) == Wait("sleep")  # 99 is no thread of the process
    (process.folder / "task" / "99").mkdir(parents=True)
    assert process.waits("futex", *held) == Wait("lock")
    assert process.waits("futex", 64, 0x89, 1, 4096) == Wait("sleep")
    assert process.waits("futex", 1 << 62, 0x89, 2, 4096) == Wait("sleep")


@pytest.mark.parametrize(
    ("operation", "end"),
    [(0x80, 12.5), (0x89, 3.5), (0x189, 3.5 - 1000), (0x8B, None)],
    ids=["FUTEX_WAIT", "FUTEX_WAIT_BITSET", "by the wall clock", "FUTEX_WAIT_REQUEUE_PI"],
)
def test_when_a_timeout_ends_a_wait_at_the_earliest(
    operation: int, end: float | None, process: FakeProcess
) -> None:
    """One that is relative counts from the last moment before which the wait had not begun."""
    (process.folder / "mem").write_bytes(bytes(64) + struct.pack("=qq", 3, seconds(0.5)))
    blocked = process.blocked("futex", 8, operation, 0, 64, now=10)
    assert blocked.until_ns == (None if end is None else seconds(end))
    assert process.blocked("futex", 8, operation, 0, 1 << 62, now=10).until_ns is None


def test_a_timeout_of_a_day_is_that_of_a_wait_for_other_threads(process: FakeProcess) -> None:
    for hours, kind in ((6, "sleep"), (24, "lock")):
        timeout = struct.pack("=qq", 3600 * hours, 0)
        (process.folder / "mem").write_bytes(bytes(64) + timeout)
        blocked = process.blocked("futex", 8, 0x80, 0, 64, now=hours)
        assert (blocked.wait.kind, blocked.helpers) == (kind, "threads")


@pytest.mark.parametrize(("seconds_left", "kind"), [(2, "sleep"), (24 * 3600, "lock")])
def test_a_wait_that_was_there_first_is_no_longer_on_a_machine_that_is_up_for_a_day(
    process: FakeProcess, seconds_left: int, kind: str
) -> None:
    """Nobody knows since when the thread waits (0)."""
    up = 86_400
    timeout = struct.pack("=qq", up + seconds_left, 0)
    (process.folder / "mem").write_bytes(bytes(64) + timeout)
    call = SystemCall(NUMBERS["futex"], (8, 0x89, 0, 64, 0, 0))
    assert process.resolver.resolve_wait(PID, call, seconds(up), 0).wait.kind == kind


def test_few_timeouts_are_read_in_a_look(process: FakeProcess) -> None:
    (process.folder / "mem").write_bytes(bytes(64) + struct.pack("=qq", 3, 0))
    for now in (10, 11):
        ends = [process.blocked("futex", 8, 0x89, 0, 64, now=now).until_ns for _ in range(100)]
        assert ends == [seconds(3)] * 16 + [None] * 84


def test_a_loop_that_waits_for_its_own_wake_up_for_a_limited_time(process: FakeProcess) -> None:
    process.opens(fd5="anon_inode:[eventfd]", fd6="anon_inode:[timerfd]")
    (process.folder / "fdinfo" / "4").write_text("tfd:        5 events:       19\n")
    assert process.blocked("epoll_wait", 4, 0, 8, 2500, now=10).until_ns == seconds(11.5)
    assert process.blocked("epoll_wait", 4, 0, 8, NOT_A_TIMEOUT).helpers == "threads"
    (process.folder / "fdinfo" / "4").write_text("tfd:        6 events:       19\n")
    assert process.blocked("epoll_wait", 4, 0, 8, 2500, now=10).until_ns is None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("epoll_wait", (4, 0, 8, 3500), id="in milliseconds"),
        pytest.param("epoll_pwait2", (4, 0, 8, 64), id="a struct timespec"),
    ],
)
def test_when_a_timeout_ends_a_poll_of_connections(
    process: FakeProcess, name: str, arguments: tuple[int, ...]
) -> None:
    """The poll began after the look before, and after what came last: 0.4 s ago, on one of both."""
    states = {501: 9.0, 502: 0.4}
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        ask_stream=lambda inode, _: TcpStreamState(
            7, owes=False, inode=inode, came_before_ns=seconds(states[inode])
        ),
    )
    process.opens(fd5="socket:[501]", fd6="socket:[502]")
    process.table("tcp", *(inet_line(PEER, inode) for inode in (501, 502)))
    (process.folder / "mem").write_bytes(bytes(64) + struct.pack("=qq", 3, seconds(0.5)))
    watched = process.folder / "fdinfo" / "4"
    watched.write_text("tfd: 5 events: 19\ntfd: 6 events: 19\n")
    blocked = process.blocked(name, *arguments, now=10)
    assert (blocked.until_ns, blocked.until_within_ns) == (seconds(13.1), seconds(0.4))
    states[502] = 5.0
    blocked = process.blocked(name, *arguments, now=11)
    assert (blocked.until_ns, blocked.until_within_ns) == (seconds(13.5), seconds(1))


def test_the_end_of_a_short_poll_is_always_near(process: FakeProcess) -> None:
    process.opens(fd5="socket:[501]")
    process.table("tcp", inet_line(PEER, 501))
    (process.folder / "fdinfo" / "4").write_text("tfd: 5 events: 19\n")
    for timeout_ms, within_ns in ((249, None), (250, seconds(1))):
        blocked = process.blocked("epoll_wait", 4, 0, 8, timeout_ms, now=10)
        assert blocked.until_within_ns == within_ns
        assert blocked.until_ns == seconds(9) + timeout_ms * NS_PER_MS


def test_a_socket_pair_is_a_pipe_and_a_client_has_its_servers_path(process: FakeProcess) -> None:
    # The kernel knows no peer of 505; that of 507 is in another network namespace.
    peers = {501: 502, 502: 501, 503: 504, 507: 999}
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        peer_inode=peers.get,
    )
    process.table(
        "unix",
        *(unix_line(inode) for inode in (501, 502, 503, 505, 507)),
        unix_line(504, " /run/postgresql/.s.PGSQL.5432"),
    )
    process.opens(fd3="socket:[501]", fd4="socket:[503]", fd5="socket:[505]", fd6="socket:[507]")
    assert process.waits("recvmsg", 3) == Wait("pipe")
    assert process.waits("recvmsg", 4) == Wait("network", "/run/postgresql/.s.PGSQL.5432")
    assert process.waits("recvmsg", 5) == Wait("network", "unix socket")
    assert process.waits("recvmsg", 6) == Wait("network", "unix socket")
    assert process.polls([3], NOT_A_TIMEOUT) == Wait("pipe")
    assert process.polls([3, 4], 5) == Wait("network", "/run/postgresql/.s.PGSQL.5432")


def test_the_processes_of_the_batch_at_the_other_ends_of_unix_connections(
    process: FakeProcess,
) -> None:
    """A server's end has its path, and so has the client's for us; of a listening one nobody is."""
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        peer_inode={501: 502, 502: 501}.get,
        batch_pids=lambda: (PID, 8, 9),
    )
    process.table("unix", unix_line(501), unix_line(502, " /tmp/listener"))
    process.opens(fd3="socket:[501]")
    blocked = process.blocked("recvmsg", 3)
    assert (blocked.helpers, blocked.wait) == ("nobody", Wait("network", "/tmp/listener"))
    server = process.folder.parent / "8" / "fd"
    server.mkdir(parents=True)
    (server / "5").symlink_to("socket:[502]")
    blocked = process.blocked("recvmsg", 3, now=6)
    assert blocked.helper_pids == {8}
    process.opens(fd4="socket:[502]")  # as after a fork
    assert process.blocked("recvmsg", 4, now=6).helper_pids == {PID}
    assert not blocked.may_wait_for_children


def test_a_unix_connection_that_was_not_accepted_yet_gets_its_other_end(
    process: FakeProcess,
) -> None:
    """The kernel knows no other end until then. Where it never does, it is asked ever more
    rarely.
    """
    ends: dict[int, int] = {}
    asked: list[int] = []

    def peer_inode(inode: int) -> int | None:
        asked.append(inode)
        return ends.get(inode)

    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        peer_inode=peer_inode,
        batch_pids=lambda: (PID, 8),
    )
    server = process.folder.parent / "8" / "fd"
    server.mkdir(parents=True)
    process.table("unix", unix_line(501), unix_line(503))
    process.opens(fd3="socket:[501]", fd4="socket:[503]")
    assert process.waits("recvmsg", 3) == Wait("network", "unix socket")
    process.table("unix", unix_line(501), unix_line(502, " /tmp/listener"), unix_line(503))
    (server / "5").symlink_to("socket:[502]")
    ends[501] = 502
    blocked = process.blocked("recvmsg", 3, now=0.2)
    assert blocked.helper_pids == {8}
    assert blocked.wait == Wait("network", "/tmp/listener")
    asked.clear()
    for number in range(500):
        process.waits("recvmsg", 4, now=number / 5)
    assert 8 < len(asked) < 20


@pytest.mark.parametrize(
    ("asks", "table", "receives", "from_whom", "pids"),
    [
        ("0100007F:1538", "udp", "0100007F:1538", "0100007F:9C40", {8}),
        ("0100007F:1538", "udp", "0100007F:1538", "00000000:0000", {8}),
        ("0100007F:1538", "udp", "00000000:1538", "00000000:0000", {8}),
        pytest.param(
            *("0100007F:1538", "udp6", f"{32 * '0'}:1538", f"{32 * '0'}:0000", {8}), id="both IPs"
        ),
        ("0100007F:1538", "udp", "0100007F:1539", "00000000:0000", set()),
        ("0100007F:1538", "udp", "0100007F:1538", "0100007F:9C41", set()),
        ("0903000A:1538", "udp", "00000000:1538", "00000000:0000", set()),
    ],
)
def test_a_process_of_the_batch_that_receives_what_is_sent_by_udp(
    process: FakeProcess, asks: str, table: str, receives: str, from_whom: str, pids: set[int]
) -> None:
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        batch_pids=lambda: (PID, 8),
    )
    server = process.folder.parent / "8" / "fd"
    server.mkdir(parents=True)
    (server / "5").symlink_to("socket:[502]")
    line = inet_line(from_whom, 502).replace("0100007F:9C40", receives, 1)
    process.table("udp", inet_line(asks, 501), *([line] if table == "udp" else []))
    process.table("udp6", *([line] if table == "udp6" else []))
    process.opens(fd3="socket:[501]")
    assert process.blocked("recvfrom", 3).helper_pids == pids


def test_many_udp_sockets_that_are_looked_up_together_read_each_table_twice(
    process: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for the sockets, and once for who receives what they send."""
    opened: Counter[str] = Counter()

    def opens(path: str) -> int | None:
        opened[path.rpartition("/")[2]] += 1
        return open_or_none(path)

    monkeypatch.setattr("profiler.readers.linux.sockets.open_or_none", opens)
    receives = inet_line("00000000:0000", 600).replace("0100007F:9C40", "0100007F:1538", 1)
    asking = [inet_line("0100007F:1538", inode) for inode in range(500, 540)]
    process.table("udp", *asking, receives)
    process.table("udp6")
    sockets = SocketTable(str(process.folder.parent), lambda: 0, lambda _inode: None)
    found = sockets.find_sockets(PID, range(500, 540), 0)
    assert [one.end_inode for one in found] == [600] * 40
    assert opened["udp"] == 2
    assert opened["udp6"] == 1


def test_few_processes_are_asked_at_once_for_a_connection_that_is_new(process: FakeProcess) -> None:
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        peer_inode={501: 502, 503: 504}.get,
        batch_pids=lambda: (PID, 8),
    )
    server = process.folder.parent / "8" / "fd"
    server.mkdir(parents=True)
    process.table("unix", *[unix_line(inode, " /tmp/listener") for inode in range(501, 505)])
    process.opens(fd3="socket:[501]", fd4="socket:[503]")
    assert process.blocked("recvmsg", 3).helper_pids == frozenset()
    (server / "5").symlink_to("socket:[504]")
    assert process.blocked("recvmsg", 4, now=0.2).helper_pids == {8}


def test_both_ends_of_a_socket_pair_in_one_process_are_its_own_wake_up(
    process: FakeProcess,
) -> None:
    peers = {501: 509, 509: 501}
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        peer_inode=peers.get,
    )
    process.table("unix", unix_line(501), unix_line(509))
    process.opens(fd3="socket:[501]", fd4="socket:[509]")
    assert process.polls([3], 5) == Wait("sleep")


def test_a_loop_that_watches_both_ends_of_a_connection_waits_for_itself(
    process: FakeProcess,
) -> None:
    """A client and its server in one loop; if the server has another one, that answers."""
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        peer_inode={501: 601, 601: 501}.get,
        batch_pids=lambda: (PID, 8),
    )
    process.table("unix", unix_line(501), unix_line(601, " /tmp/listener"))
    process.opens(fd3="socket:[501]", fd4="socket:[601]")
    assert process.polls([3, 4], 900) == Wait("sleep")
    assert process.blocked_in_poll([3, 4], -1).helpers == "threads"
    blocked = process.blocked_in_poll([3], 900)
    assert blocked.wait == Wait("network", "/tmp/listener")
    assert blocked.helper_pids == {PID}
    other = process.folder.parent / "8" / "fd"
    other.mkdir(parents=True)
    (other / "5").symlink_to("socket:[601]")
    assert process.blocked("recvmsg", 3, now=6).helper_pids == {8}, "this process has inherited it"


@pytest.mark.parametrize(
    ("flags", "heir", "blocked"),
    [
        (("00", "01"), "pipe:[88]", (Wait("pipe"), "memory", {8})),
        (("04000", "01"), "pipe:[88]", (Wait("sleep"), "nobody", frozenset())),
        (("00", "04001"), "pipe:[88]", (Wait("sleep"), "nobody", frozenset())),
        (("00", "01"), "pipe:[89]", (Wait("sleep"), "nobody", frozenset())),
        ((None, "01"), "pipe:[88]", (Wait("sleep"), "nobody", frozenset())),
    ],
    ids=["queue", "own wake-up", "read in vain only", "nobody has it", "not readable"],
)
def test_a_blocking_pipe_of_which_others_have_the_ends_too_is_one_to_them(
    process: FakeProcess,
    flags: Sequence[str | None],
    heir: str,
    blocked: tuple[Wait, str, Collection[int]],
) -> None:
    """So are the queues of Python's multiprocessing; who wakes its own loop must not block."""
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        batch_pids=lambda: (PID, 8),
    )
    process.opens(fd3="pipe:[88]", fd4="pipe:[88]")
    for descriptor, text in zip((3, 4), flags, strict=True):
        if text is not None:
            path = process.folder / "fdinfo" / str(descriptor)
            path.write_text(f"pos:\t0\nflags:\t{text}\nmnt_id:\t14\n")
    other = process.folder.parent / "8" / "fd"
    other.mkdir(parents=True)
    (other / "3").symlink_to(heir)
    found = process.blocked_in_poll([3], 300)
    assert (found.wait, found.helpers, found.helper_pids) == blocked
    assert found.has_timeout


def test_a_blocking_socket_pair_is_one_to_the_child_that_has_its_ends_too(
    process: FakeProcess,
) -> None:
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        peer_inode={501: 509, 509: 501}.get,
        batch_pids=lambda: (PID, 8),
    )
    process.table("unix", unix_line(501), unix_line(509))
    process.opens(fd3="socket:[501]", fd4="socket:[509]")
    (process.folder / "fdinfo" / "3").write_text("pos:\t0\nflags:\t02\n")
    other = process.folder.parent / "8" / "fd"
    other.mkdir(parents=True)
    assert process.polls([3], 300) == Wait("sleep")
    (other / "4").symlink_to("socket:[509]")
    found = process.blocked("poll", 64, 1, 300, now=6)
    assert found.wait == Wait("pipe")
    assert found.helper_pids == {8}


def test_neighbours_that_socketpair_did_not_make_are_no_own_wake_up(process: FakeProcess) -> None:
    """A server that accepts two clients one after the other, or connects to another one after it
    listens, has sockets with neighbouring inodes.
    """
    peers = {502: 601, 601: 502, 503: 602, 602: 503, 506: 603, 603: 506}
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        peer_inode=peers.get,
        batch_pids=lambda: (PID, 8, 9, 10),
    )
    accepted = [unix_line(inode, " /tmp/listener") for inode in (502, 503)]
    clients = [unix_line(inode) for inode in (506, 507, 509, 510, 601, 602)]
    listener = unix_line(505, " /tmp/listener").replace("00000000 0001", "00010000 0001")
    process.table("unix", *accepted, *clients, listener, unix_line(603, " /tmp/last"))
    for pid, inode in ((8, 601), (9, 602), (10, 603)):
        other = process.folder.parent / str(pid) / "fd"
        other.mkdir(parents=True)
        (other / "3").symlink_to(f"socket:[{inode}]")
    inodes = (502, 503, 505, 506, 507, 509, 510)
    process.opens(**{f"fd{inode - 500}": f"socket:[{inode}]" for inode in inodes})

    for numbers, pids in (((5, 2, 3), {8, 9}), ((5, 6), {10}), ((5, 2, 6), {8, 10})):
        assert process.blocked_in_poll(numbers, 100).helper_pids == pids
    # Of these the kernel knows no other end: a client in another network beside one in this, and a
    # pair.
    assert process.polls([7], 100) == Wait("network", "unix socket")
    assert process.polls([9], 100) == Wait("sleep")


def _question_about(inode: int) -> bytes:
    """A question that nobody has waited for the answer of."""
    any_number = 0xFFFF_FFFF
    request = struct.pack("=BBHIIIII", 1, 0, 0, any_number, inode, 4, any_number, any_number)
    return struct.pack("=IHHII", 16 + len(request), 20, 1, 99, 0) + request


def test_the_kernel_knows_the_other_end_of_a_socket_pair() -> None:
    own, other = socket.socketpair()
    with own, other, closing(KernelSockets()) as kernel:
        inode, other_inode = (os.fstat(each.fileno()).st_ino for each in (own, other))
        for _ in range(2):
            assert kernel.ask_peer_inode(inode) == other_inode
            assert kernel.ask_peer_inode(0) is None
        os.write(present(kernel._connection), _question_about(other_inode))
        assert kernel.ask_peer_inode(inode) is None, "the answer to an earlier question"
        assert kernel.ask_peer_inode(inode) == other_inode


def _came(resolver: WaitResolver, blocked: BlockedThread) -> tuple[bool | None, ...]:
    return tuple(arrival.came for arrival in resolver.read_arrivals(blocked))


@given(st.binary(max_size=80))
def test_an_answer_of_the_kernel_may_be_anything(message: bytes) -> None:
    parse_peer_inode(message)
    header = struct.pack("=IHHII", 16 + len(message), 20, 0, 0, 0)
    parse_peer_inode(header + message)
    inodes = [0, int.from_bytes(message[68:72], sys.byteorder)]
    list(parse_streams(message, inodes))
    list(parse_streams(header + message, inodes))
    parse_stream_state(message, 0)
    parse_stream_state(header + message, int.from_bytes(message[68:72], sys.byteorder))


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_kernel_lists_the_sockets_that_its_tables_have(
    family: socket.AddressFamily, address: str
) -> None:
    with socket.create_server((address, 0), family=family) as listening:
        own = socket.create_connection(listening.getsockname()[:2])
        other, _ = listening.accept()
        with own, other, closing(KernelSockets()) as kernel:
            inodes = [os.fstat(each.fileno()).st_ino for each in (listening, own, other)]
            from_tables = SocketTable("/proc", lambda: 0, lambda _: None)
            for _ in range(2):
                found = kernel.find_streams(inodes)
                in_tables = from_tables.find_sockets(os.getpid(), inodes, 0)
                assert [found[inode] for inode in inodes] == in_tables
                assert found[inodes[0]].listens
                assert kernel.find_streams([0xFFFF_FFFF]) == {}
                assert kernel.ask_stream_state(inodes[1], found[inodes[1]].stream) is not None


def test_a_socket_that_the_kernel_lists_is_searched_in_no_table(process: FakeProcess) -> None:
    """One that it does not list, as in another network namespace, is."""
    process.table("tcp", inet_line("0903000A:1538", 501), inet_line("0903000A:1539", 502))
    listed = {501: Socket("10.0.3.10:80")}
    sockets = SocketTable(str(process.folder.parent), lambda: 0, lambda _: None, lambda _: listed)
    found = sockets.find_sockets(PID, [501, 502], 0)
    assert [one.peer for one in found] == ["10.0.3.10:80", "10.0.3.9:5433"]


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_kernel_knows_what_came_on_a_connection(
    family: socket.AddressFamily, address: str, tmp_path: Path
) -> None:
    with socket.create_server((address, 0), family=family) as listening:
        own = socket.create_connection(listening.getsockname()[:2])
        other, _ = listening.accept()
    with own, other, closing(KernelSockets()) as kernel:
        other.sendall(b"hello")
        own.recv(5)
        pids = [os.getpid()]
        resolver = WaitResolver(
            waiting_calls_of_machine("x86_64"),
            "/proc",
            lambda: 0,
            ask_stream=kernel.ask_stream_state,
            batch_pids=lambda: pids,
        )
        call = SystemCall(NUMBERS["recvfrom"], (own.fileno(), 0, 0, 0, 0, 0))
        blocked = resolver.resolve_wait(os.getpid(), call, 0, 0)
        assert blocked.helper_pids == {os.getpid()}, "both ends are its own"
        connected = {0: Socket(stream=blocked.connections[0].stream)}
        (link,) = resolver._connections.links_of_ends(connected)
        assert link == str(Path("/proc/self/fd", str(other.fileno())).readlink())
        assert blocked.may_be_idle
        assert [each.received_bytes for each in blocked.connections] == [5]
        assert _came(resolver, blocked) == (False,)
        own.sendall(b"?")
        other.recv(1)
        (arrival,) = resolver.read_arrivals(blocked)
        assert (arrival.came, arrival.segments, arrival.sent) == (False, 0, 1)
        other.sendall(b"!")
        own.recv(1)
        (arrival,) = resolver.read_arrivals(blocked)
        assert (arrival.came, arrival.segments, arrival.sent) == (True, 1, 1)
        assert arrival.is_answer
        blocked = resolver.resolve_wait(os.getpid(), call, 0, 0)
        other.sendall(b"row")
        own.recv(3)
        assert resolver.read_arrivals(blocked)[0].came
        own.sendall(b"?")
        other.sendall(b"!")
        own.recv(1)
        (arrival,) = resolver.read_arrivals(blocked)
        assert not arrival.is_answer, "something came unasked"
        (inode, stream) = (blocked.connections[0].inode, blocked.connections[0].stream)
        assert kernel.ask_stream_state(inode + 1, stream) is None  # another socket's addresses
        own.close()
        other.close()
        (arrival,) = resolver.read_arrivals(blocked)
        assert (arrival.came, arrival.is_closed) == (None, True)


@pytest.mark.parametrize("is_here", [True, False])
def test_a_connection_of_another_network_has_no_end_in_this_one(
    process: FakeProcess, *, is_here: bool
) -> None:
    """A container without the monitor's network has the same address of its own."""
    known = {501: TcpStreamState(7, owes=False, inode=501)} if is_here else {}
    other = TcpStreamState(7, owes=False, inode=601)
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        lambda: 0,
        ask_stream=lambda inode, _: known.get(inode) if inode else other,
        batch_pids=lambda: (PID, 8),
    )
    server = process.folder.parent / "8" / "fd"
    server.mkdir(parents=True)
    (server / "5").symlink_to("socket:[601]")
    process.table("tcp", inet_line("0100007F:1538", 501))
    process.opens(fd3="socket:[501]")
    assert process.blocked("recvfrom", 3).helper_pids == ({8} if is_here else frozenset())


class TestWaitsForSomebodyToCome:
    """What may be a wait for somebody to come, if nothing comes."""

    @pytest.fixture(autouse=True)
    def resolver(self, process: FakeProcess) -> None:
        self.received = {501: 7, 502: 7, 503: 0}
        process.resolver = WaitResolver(
            waiting_calls_of_machine("x86_64"),
            str(process.folder.parent),
            lambda: 0,
            ask_stream=self._ask,
        )
        process.opens(
            fd1="socket:[501]",
            fd2="socket:[502]",
            fd3="socket:[503]",
            fd4="socket:[504]",
            fd5="anon_inode:[pidfd]",
            fd7="socket:[777]",
        )
        process.table("tcp", *(inet_line(PEER, inode) for inode in (501, 502, 503, 504)))

    def _ask(self, inode: int, _stream: bytes) -> TcpStreamState | None:
        received = self.received.get(inode)
        return None if received is None else TcpStreamState(received, owes=False)

    def test_accept_and_sockets_without_a_peer(self, process: FakeProcess) -> None:
        assert process.blocked("accept", 7).may_be_idle
        assert process.blocked("recvfrom", 7).may_be_idle
        polled = process.blocked_in_poll([7], 500)
        assert (polled.wait, polled.may_be_idle, polled.has_timeout) == (
            Wait("network"),
            True,
            True,
        )

    def test_connections_on_which_something_has_come(self, process: FakeProcess) -> None:
        assert process.blocked("recvfrom", 1).may_be_idle
        assert process.blocked_in_poll([1, 2, 7], NOT_A_TIMEOUT).may_be_idle

    def test_a_client_may_go_on_polling(self, process: FakeProcess) -> None:
        assert process.blocked_in_poll([1], 500).may_go_on
        assert not process.blocked_in_poll([1], NOT_A_TIMEOUT).may_go_on
        assert not process.blocked_in_poll([7], 500).may_go_on

    def test_a_loop_that_has_timers_may_go_on(self, process: FakeProcess) -> None:
        watches(process, 4, fd1="1")
        assert process.blocked("epoll_wait", 4, 0, 8, 500).may_go_on
        assert not process.blocked("epoll_wait", 4, 0, 8, NOT_A_TIMEOUT).may_go_on

    def test_not_where_it_owes_a_greeting_or_cannot_be_asked_or_sends(
        self, process: FakeProcess
    ) -> None:
        assert not process.blocked("recvfrom", 3).may_be_idle
        assert not process.blocked("recvfrom", 4).may_be_idle
        assert not process.blocked("sendto", 1).may_be_idle
        assert not process.blocked("connect", 1).may_be_idle
        assert not process.blocked_in_poll([1, 3], NOT_A_TIMEOUT).may_be_idle

    def test_what_comes_is_seen_later(self, process: FakeProcess) -> None:
        blocked = process.blocked_in_poll([1, 2], NOT_A_TIMEOUT)
        self.received[502] = 9
        assert _came(process.resolver, blocked) == (False, True)

    def test_a_child_beside_it(self, process: FakeProcess) -> None:
        blocked = process.blocked_in_poll([1, 5], NOT_A_TIMEOUT)
        assert present(blocked.otherwise).wait == Wait("child")
        assert blocked.may_wait_for_children


@pytest.mark.parametrize(
    ("link", "helpers", "limited"),
    [
        ("anon_inode:[eventfd]", "threads", "nobody"),
        ("anon_inode:[signalfd]", "children", "children"),
        ("anon_inode:[pidfd]", "children", "children"),
        ("anon_inode:inotify", "nobody", "nobody"),
    ],
)
def test_a_descriptor_by_which_others_tell_leads_to_them(
    link: str, helpers: str, limited: str, process: FakeProcess
) -> None:
    process.opens(fd3=link)
    for blocked in (process.blocked("read", 3), process.blocked_in_poll([3], NOT_A_TIMEOUT)):
        assert (blocked.helpers, blocked.wait.kind in ("other", "child")) == (helpers, True)
        assert blocked.may_be_idle == (link == "anon_inode:inotify")
    blocked = process.blocked_in_poll([3], 2000)
    assert (blocked.wait, blocked.helpers) == (Wait("sleep"), limited)


def test_who_watches_files_beside_its_own_wake_up_may_wait_for_its_threads_or_children(
    process: FakeProcess,
) -> None:
    process.opens(fd3="anon_inode:inotify", fd4="anon_inode:[eventfd]", fd5="/dev/null")
    blocked = process.blocked_in_poll([3, 4], NOT_A_TIMEOUT)
    assert blocked.may_be_idle
    assert present(blocked.otherwise).helpers == "memory"
    assert blocked.may_wait_for_children
    assert not process.blocked_in_poll([3, 4, 5], NOT_A_TIMEOUT).may_be_idle


def test_messages_and_semaphores_between_processes_lead_to_the_others(
    process: FakeProcess, tmp_path: Path
) -> None:
    process.opens(fd3="/orders")
    other = tmp_path / "12" / "fd"
    other.mkdir(parents=True)
    (other / "7").symlink_to("/orders")
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(tmp_path),
        lambda: 0,
        batch_pids=lambda: (12, 13, PID),
    )
    assert process.blocked("mq_timedreceive", 3).helper_pids == {12}
    for name in ("semop", "semtimedop", "msgrcv", "msgsnd"):
        blocked = process.blocked(name, 1, 64, 1, 1)
        assert blocked.helpers == "memory"
        assert blocked.helper_pids == {12, 13}
        assert blocked.may_wait_for_children


def test_a_wait_for_a_signal_for_a_limited_time_is_a_sleep(process: FakeProcess) -> None:
    assert process.waits("rt_sigtimedwait", 1, 2, 3) == Wait("sleep")
    assert process.waits("rt_sigtimedwait", 1, 2, 0) == Wait("other")
    assert process.waits("pause", 1, 2, 3) == Wait("other")


@pytest.mark.parametrize(("name", "command"), [("flock", 0), ("fcntl", 7), ("fcntl", 38)])
def test_the_lock_of_a_file_leads_to_the_processes_that_hold_it(
    name: str, command: int, process: FakeProcess, tmp_path: Path
) -> None:
    locked, other = tmp_path / "locked", tmp_path / "other"
    locked.touch()
    other.touch()
    process.opens(fd3=str(locked))
    process.mounted("ext4", 3)
    assert process.blocked(name, 3, command).helpers == "nobody"
    number = count(1)
    (tmp_path / "locks").write_text(
        "".join(
            f"{next(number)}: {words} {os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:"
            f"{at.st_ino} 0 EOF\n"
            for words, at in (
                ("FLOCK  ADVISORY  WRITE 12", locked.stat()),
                ("-> FLOCK  ADVISORY  WRITE 13", locked.stat()),
                ("OFDLCK ADVISORY  READ -1", locked.stat()),
                (f"POSIX  ADVISORY  WRITE {PID}", locked.stat()),
                ("FLOCK  ADVISORY  WRITE 14", other.stat()),
            )
        )
    )
    blocked = process.blocked(name, 3, command)
    assert (blocked.wait, blocked.helper_pids) == (Wait("lock"), frozenset((12,)))
    assert blocked.may_wait_for_children


@pytest.mark.parametrize("filesystem", ["nfs4", "fuse.sshfs", "ceph"])
def test_a_locked_file_whose_status_may_never_come_is_not_asked_for_it(
    filesystem: str, process: FakeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / "locked"
    locked.touch()
    process.opens(fd3=str(locked))
    process.mounted(filesystem, 3)
    monkeypatch.setattr(os, "stat", Mock(side_effect=AssertionError))
    blocked = process.blocked("flock", 3)
    assert (blocked.wait, blocked.helpers) == (Wait("lock"), "nobody")


@given(st.binary(max_size=80))
def test_the_kernels_locks_may_be_anything(locks: bytes) -> None:
    lock_holder_pids(locks, b"00:1e:1")
    lock_holder_pids(locks + b"00:1e:1", b"00:1e:1")


def test_who_works_for_a_thread_that_waits(process: FakeProcess) -> None:
    assert process.blocked("wait4", 12).helper_pids == {12}
    assert process.blocked("wait4", 0xFFFFFFFF).helper_pids == frozenset()
    assert process.blocked("waitid", 1, 13).helper_pids == {13}
    assert process.blocked("waitid", 0, 13).helper_pids == frozenset()
    assert process.blocked("futex").helpers == "threads"
    assert process.blocked("flock", 3).helpers == "nobody"


def test_a_pipe_leads_to_the_processes_at_its_other_ends(
    process: FakeProcess, tmp_path: Path
) -> None:
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"), str(tmp_path), lambda: 0, batch_pids=lambda: (PID, 8, 9)
    )
    process.opens(fd3="pipe:[88]")
    for pid, link in ((8, "pipe:[88]"), (9, "pipe:[99]")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "1").symlink_to(link)
    blocked = process.blocked("read", 3)
    assert blocked.helpers == "pipe"
    assert blocked.helper_pids == {8}
    assert process.blocked_in_poll([3], 500) == replace(blocked, has_timeout=True)
    assert process.blocked_in_poll([3], NOT_A_TIMEOUT) == blocked


@pytest.mark.parametrize(
    ("own", "others", "helpers"),
    [
        ("/dev/ptmx", "/dev/pts/7", {8}),
        ("/dev/pts/ptmx", "/dev/pts/7", {8}),
        ("/dev/pts/7", "/dev/ptmx", {8}),
        # A terminal that is not the one, or that is not this run's.
        ("/dev/ptmx", "/dev/pts/6", set()),
        ("/dev/pts/6", "/dev/ptmx", set()),
        ("/dev/pts/7", "/dev/pts/7", set()),
    ],
)
def test_a_pseudoterminal_leads_to_the_processes_at_its_other_end(
    process: FakeProcess, tmp_path: Path, own: str, others: str, helpers: set[int]
) -> None:
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"), str(tmp_path), lambda: 0, batch_pids=lambda: (PID, 8)
    )
    for pid, link in ((PID, own), (8, others)):
        folder = tmp_path / str(pid)
        for name in ("fd", "fdinfo"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "fd" / "3").symlink_to(link)
        if link.endswith("ptmx"):
            (folder / "fdinfo" / "3").write_text("pos:\t0\nmnt_id:\t24\ntty-index:\t7\n")
    process.opens(fd4="/dev/null")  # the standard input
    blocked = process.blocked("read", 3)
    assert blocked.wait.kind == ("pipe" if helpers else "other")
    assert blocked.helper_pids == helpers
    assert process.blocked_in_poll([3, 4], NOT_A_TIMEOUT) == blocked
    if helpers:
        assert process.blocked_in_poll([3], 500) == replace(blocked, has_timeout=True)


def test_a_pipe_among_hundreds_of_open_files(process: FakeProcess, tmp_path: Path) -> None:
    """A virtual machine of Java has all its archives open before."""
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"), str(tmp_path), lambda: 0, batch_pids=lambda: (PID, 8)
    )
    process.opens(fd3="pipe:[88]")
    (tmp_path / "8" / "fd").mkdir(parents=True)
    for number in range(500):
        (tmp_path / "8" / "fd" / str(number)).symlink_to(f"/jars/{number}.jar")
    (tmp_path / "8" / "fd" / "500").symlink_to("pipe:[88]")
    assert process.blocked("read", 3).helper_pids == {8}


_MAPS = (
    "5000-7000 rw-p 00000000 00:00 0  [heap]\n"
    "8000-9000 rw-s 00000000 00:1d {inode}  /dev/shm/sem.mp-a b (deleted)\n"
)


class TestLocksOfProcesses:
    """A futex without the private flag."""

    @pytest.fixture(autouse=True)
    def batch(self, process: FakeProcess, tmp_path: Path) -> None:
        self.pids = [PID, 8, 9]
        process.resolver = WaitResolver(
            waiting_calls_of_machine("x86_64"),
            str(tmp_path),
            lambda: 0,
            batch_pids=lambda: self.pids,
        )
        for pid, inode in ((PID, 4), (8, 4), (9, 5), (10, 4)):
            (tmp_path / str(pid)).mkdir(exist_ok=True)
            (tmp_path / str(pid) / "maps").write_text(_MAPS.format(inode=inode))

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [("futex", (0x8010, 0x109, 0)), ("futex_wait", (0x8010, 0, 0, 2))],
    )
    def test_it_leads_to_the_processes_that_share_its_memory(
        self, name: str, arguments: tuple[int, ...], process: FakeProcess
    ) -> None:
        blocked = process.blocked(name, *arguments)
        assert (blocked.wait, blocked.helpers) == (Wait("lock"), "memory")
        assert blocked.helper_pids == {8}
        assert blocked.may_wait_for_children

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("futex", (0x8010, 0x189, 0)),
            ("futex_wait", (0x8010, 0, 0, 0x82)),
            ("futex_waitv", (0x8010, 1, 0, 0)),
            ("futex", (0x5010, 0x109, 77)),
        ],
        ids=["private", "private since 2023", "of many", "pthread_join"],
    )
    def test_of_threads(self, name: str, arguments: tuple[int, ...], process: FakeProcess) -> None:
        blocked = process.blocked(name, *arguments)
        assert (blocked.helpers, blocked.helper_pids) == ("threads", frozenset())

    def test_the_end_of_a_thread(self, process: FakeProcess, tmp_path: Path) -> None:
        """pthread_join waits until the kernel removes the thread's id from its memory."""
        (tmp_path / str(PID) / "task" / "77").mkdir(parents=True)
        for operation, thread, awaited in ((0x109, 77, 77), (0x109, 78, None), (0x189, 77, None)):
            blocked = process.blocked("futex", 0x5010, operation, thread)
            assert (blocked.wait, blocked.helper_thread) == (Wait("lock"), awaited)

    def test_one_with_a_timeout_is_a_sleep(self, process: FakeProcess) -> None:
        blocked = process.blocked("futex", 0x8010, 0x109, 0, 64)
        assert blocked.wait == Wait("sleep")
        assert blocked.helper_pids == {8}

    def test_processes_that_begin_later_are_asked_at_once(self, process: FakeProcess) -> None:
        assert process.blocked("futex", 0x8010, 0x109, 0).helper_pids == {8}
        self.pids.append(10)
        assert process.blocked("futex", 0x8010, 0x109, 0).helper_pids == {8, 10}

    def test_the_memory_of_a_process_is_read_once_in_a_look_and_then_rarely(
        self, process: FakeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It costs some ms: a batch of twelve processes had one look in several seconds."""
        read: Counter[str] = Counter()

        def noted(path: str) -> bytes | None:
            read[Path(path).parent.name] += 1
            return read_file(path)

        read_file = proc.read_or_none
        monkeypatch.setattr(proc, "read_or_none", noted)
        (tmp_path / str(PID) / "maps").write_text("8000-a000 rw-s 00000000 00:1d 4\n")
        (tmp_path / "9" / "maps").write_text("5000-7000 rw-p 00000000 00:00 0  [heap]\n")
        for now in (0, 20, 40, 61):
            for address in (0x8010, 0x9010):
                blocked = process.blocked("futex", address, 0x109, 0, now=now)
                assert blocked.helper_pids == {8}
        assert read == {str(PID): 2, "8": 2, "9": 4}

    def test_memory_that_is_only_read_has_no_lock(
        self, process: FakeProcess, tmp_path: Path
    ) -> None:
        (tmp_path / str(PID) / "maps").write_text("8000-9000 r--s 00000000 00:1d 4 /gconv\n")
        assert process.blocked("futex", 0x8010, 0x109, 0).helpers == "threads"

    def test_memory_that_cannot_be_read_belongs_to_the_process(
        self, process: FakeProcess, tmp_path: Path
    ) -> None:
        (tmp_path / str(PID) / "maps").unlink()
        assert process.blocked("futex", 0x8010, 0x109, 0).helpers == "threads"

    def test_of_few_locks_it_is_asked_in_which_memory_they_are(
        self, process: FakeProcess, tmp_path: Path
    ) -> None:
        (tmp_path / str(PID) / "maps").write_text("0-8000000 rw-s 00000000 00:1d 4\n")
        asked = [process.blocked("futex", 4096 * n, 0x109, 0).helpers for n in range(40)]
        assert asked == ["memory"] * 16 + ["threads"] * 24


@given(st.binary(max_size=200))
def test_the_maps_of_a_process_may_be_anything(maps: bytes) -> None:
    parse_shared_mappings(maps)
    parse_shared_mappings(maps + _MAPS.encode())


@pytest.mark.parametrize(
    ("links", "remotes", "polled", "timeout", "expected"),
    [
        (
            ("socket:[501]", "pipe:[9]", "socket:[777]"),
            {501: PEER, 777: NO_PEER},
            [0, 1, 2, -1],
            9,
            KNOWN_PEER,
        ),
        (
            ("socket:[501]", "socket:[502]"),
            {501: PEER, 502: PEER},
            [0, 1],
            9,
            Wait("network", "2 connections"),
        ),
        (("pipe:[8]", "pipe:[9]", "pipe:[9]"), {}, [0], 9, Wait("pipe")),  # from another process
        (("pipe:[8]", "pipe:[9]", "pipe:[9]"), {}, [1], 9, Wait("sleep")),  # both ends are its own
        (("socket:[777]",), {777: NO_PEER}, [0], NOT_A_TIMEOUT, Wait("network")),
        (("anon_inode:[pidfd]",), {}, [0], NOT_A_TIMEOUT, Wait("child")),
    ],
)
def test_several_descriptors(
    process: FakeProcess,
    links: Sequence[str],
    remotes: dict[int, str],
    polled: list[int],
    timeout: int,
    expected: Wait,
) -> None:
    process.opens(**{f"fd{number}": link for number, link in enumerate(links)})
    process.table("tcp", *(inet_line(remote, inode) for inode, remote in remotes.items()))
    assert process.polls(polled, timeout) == expected


def test_select(process: FakeProcess) -> None:
    process.opens(fd3="socket:[501]", fd65="socket:[502]")
    process.table("tcp", inet_line(PEER, 501), inet_line(PEER, 502))
    (process.folder / "mem").write_bytes(bytes(64) + struct.pack("=QQ", 1 << 3, 1 << 1))
    assert process.waits("select", 66, 64, 0, 0, 0) == Wait("network", "2 connections")
    assert process.waits("select", 60, 64, 0, 0, 0) == KNOWN_PEER


def test_an_asynchronous_loop_with_its_own_wake_up_sleeps(process: FakeProcess) -> None:
    process.opens(fd4="anon_inode:[eventpoll]", fd5="socket:[900]", fd6="socket:[901]")
    process.table("unix", unix_line(900), unix_line(901))
    (process.folder / "fdinfo" / "4").write_text(
        "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data: 5\n"
    )
    assert process.waits("epoll_wait", 4, 0, 1, 2000) == Wait("sleep")
    assert process.waits("epoll_wait", 4, 0, 1, NOT_A_TIMEOUT) == Wait("other")


def watches(process: FakeProcess, descriptor: int, **events: str) -> None:
    """What an epoll descriptor has in its list, with the events in the kernel's digits."""
    lines = [
        f"tfd: {name.removeprefix('fd'):>8} events: {how:>8} data:                0  pos:0\n"
        for name, how in events.items()
    ]
    (process.folder / "fdinfo" / str(descriptor)).write_text("pos:\t0\n" + "".join(lines))


def test_an_epoll_that_watches_others(process: FakeProcess) -> None:
    """So Java waits for all its virtual threads: each connection is reported once."""
    process.opens(
        fd4="anon_inode:[eventpoll]",
        fd5="anon_inode:[eventpoll]",
        fd6="anon_inode:[eventpoll]",
        fd7="socket:[501]",
        fd8="socket:[502]",
    )
    process.table("tcp", inet_line(PEER, 501), inet_line(PEER, 502))
    watches(process, 4, fd5="40000019", fd6="40000019", fd4="40000019")
    watches(process, 5, fd7="40000000")
    watches(process, 6)
    nothing = process.blocked("epoll_wait", 4, 0, 1, NOT_A_TIMEOUT)
    assert (nothing.wait, nothing.helpers, nothing.others_add) == (Wait("other"), "threads", True)
    watches(process, 6, fd7="40000001", fd8="40000000")
    asked = process.blocked("epoll_wait", 4, 0, 1, NOT_A_TIMEOUT)
    assert (asked.wait, asked.others_add) == (KNOWN_PEER, True)
    assert process.polls([4], NOT_A_TIMEOUT) == KNOWN_PEER
    (process.folder / "fdinfo" / "6").unlink()
    assert process.waits("epoll_wait", 4, 0, 1, NOT_A_TIMEOUT) == Wait("other")


def test_an_epoll_to_which_any_thread_adds(process: FakeProcess) -> None:
    process.opens(fd4="anon_inode:[eventpoll]", fd7="socket:[501]")
    process.table("tcp", inet_line(PEER, 501))
    for events, wait, others_add in (
        ("2019", KNOWN_PEER, False),  # again and again
        ("80000019", KNOWN_PEER, True),  # at an edge, as tokio
        ("40000001", KNOWN_PEER, True),
        ("40000000", Wait("other"), True),
    ):
        watches(process, 4, fd7=events)
        blocked = process.blocked("epoll_wait", 4, 0, 1, NOT_A_TIMEOUT)
        assert (blocked.wait, blocked.others_add) == (wait, others_add)
    watches(process, 4)
    empty = process.blocked("epoll_wait", 4, 0, 1, NOT_A_TIMEOUT)
    assert (empty.wait, empty.helpers, empty.others_add) == (Wait("other"), "threads", True)
    assert process.waits("epoll_wait", 4, 0, 1, 2000) == Wait("sleep")


def test_a_list_that_is_not_readable(process: FakeProcess) -> None:
    assert process.waits("poll", 64, 1, NOT_A_TIMEOUT) == Wait("other")
    (process.folder / "mem").write_bytes(bytes(64))
    assert process.waits("poll", 0xB4 << 56, 1, NOT_A_TIMEOUT) == Wait("other")
    assert process.waits("epoll_wait", 4, 0, 1, 2000) == Wait("other")


@given(st.integers(0, 2**32 - 1), st.integers(1, 65535))
def test_every_address_is_shown_as_it_is_written(address: int, port: int) -> None:
    packed = address.to_bytes(4, "big")
    word = int.from_bytes(packed, "little")
    parsed = parse_inet(inet_line(f"{word:08X}:{port:04X}", 1).encode())
    assert parsed.peer == f"{'.'.join(map(str, packed))}:{port}"


def slow_clock() -> Callable[[], int]:
    """A CPU clock by which each search for a peer takes 9 ms."""
    return partial(next, count(seconds(0.0045), seconds(0.0045)))


def test_the_search_for_peers_has_a_limit_of_its_own(process: FakeProcess) -> None:
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"), str(process.folder.parent), slow_clock()
    )
    process.opens(**{f"fd{number}": f"socket:[{9000 + number}]" for number in range(20)})
    process.table(
        "tcp", *(inet_line(f"0100007F:{5000 + number:04X}", 9000 + number) for number in range(20))
    )
    found = []
    for number in range(20):
        wait = process.waits("recvfrom", number, now=1)
        assert wait.kind == "network"
        assert process.resolver.sockets.has_postponed == (wait.target is None)
        found.append(wait.target)
    known = [target for target in found if target]
    assert 1 < len(known) < 10
    assert process.resolver.sockets.lookup_cpu_ns < seconds(0.1)
    assert process.waits("recvfrom", 19, now=1.5).target is None
    assert process.waits("recvfrom", 19, now=100).target == "127.0.0.1:5019"
    assert not process.resolver.sockets.has_postponed


def test_the_search_for_the_ends_of_socket_pairs_has_the_same_limit(process: FakeProcess) -> None:
    asked: list[int] = []

    def peer_inode(inode: int) -> int:
        asked.append(inode)
        return inode ^ 1

    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"),
        str(process.folder.parent),
        slow_clock(),
        peer_inode=peer_inode,
    )
    process.opens(**{f"fd{number}": f"socket:[{9000 + number}]" for number in range(0, 40, 2)})
    process.table("unix", *(unix_line(9000 + number) for number in range(40)))
    assert process.polls(range(0, 40, 2), NOT_A_TIMEOUT) == Wait("network")
    assert process.resolver.sockets.has_postponed
    assert len(asked) < 6
    for second in range(1, 300):
        last = process.waits("recvmsg", 38, now=10 * second)
    assert last == Wait("pipe")
    asked.clear()
    process.waits("recvmsg", 38, now=10_000)  # a pair remains one
    assert asked == []


def test_the_path_of_a_server_is_known_where_no_budget_is_left(process: FakeProcess) -> None:
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"), str(process.folder.parent), slow_clock()
    )
    process.opens(fd3="socket:[9003]")
    process.table("unix", unix_line(9003, " /tmp/listener"))
    for number in range(5):  # spends the budget
        process.resolver.sockets.find_sockets(PID, [number], 0)
    assert process.waits("recvmsg", 3) == Wait("network", "/tmp/listener")
    assert not process.resolver.sockets.has_postponed


def test_several_sockets_are_network_as_long_as_one_of_them_is_not_known(
    process: FakeProcess,
) -> None:
    process.resolver = WaitResolver(
        waiting_calls_of_machine("x86_64"), str(process.folder.parent), slow_clock()
    )
    process.opens(fd3="socket:[9003]", fd4="socket:[9004]", fd5="socket:[9005]")
    process.table("tcp", inet_line("0100007F:1538", 9004))
    for number in range(5):  # spends the budget
        process.resolver.sockets.find_sockets(PID, [number], 0)
    assert process.polls([3, 4, 5], timeout=5) == Wait("network")


def test_a_table_is_read_up_to_the_wanted_socket(
    process: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table is read up to the wanted socket and the known ones are bounded."""
    process.opens(fd3="socket:[9003]")
    process.table("tcp", *(inet_line("0100007F:1538", 9000 + number) for number in range(1500)))
    read, sizes = os.read, []

    def count(descriptor: int, size: int) -> bytes:
        sizes.append(size)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", count)
    assert process.waits("recvfrom", 3) == Wait("network", "127.0.0.1:5432")
    assert sum(sizes) < 2048
    sockets = process.resolver.sockets
    for start in range(0, 1500, 500):
        sockets.find_sockets(PID, range(start, start + 500), 0)
    assert len(sockets._known) <= 1024
