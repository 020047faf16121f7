"""What a thread waits for that waits for the requests of an io_uring: from a folder like /proc,
and of a real ring.
"""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.system_calls import SystemCall, waiting_calls_of_machine
from profiler.readers.linux.thread_reader import ThreadReader
from profiler.readers.linux.wait_types import BlockedThread, Wait
from profiler.readers.linux.waited_target import WaitResolver
from tests import fakes
from tests.values import present
from tools.waiting import wait_until

PID, RING, INODE, QUEUE = 7, 3, 4711, 4096
LIMITS, TIMEOUT = 256, 4000  # addresses
DESCRIPTORS = {
    5: "/data/orders.bin",
    6: "socket:[80]",
    7: "pipe:[88]",
    8: "/data/lines.bin",
    9: "/dev/pts/0",
}
REGISTERED, UNUSED = 1, (0, 0)


class FakeRing:
    """The folder of a process with a ring whose queue has eight entries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / str(PID)
        for name in ("fd", "fdinfo", "net"):
            (self.folder / name).mkdir(parents=True)
        for number, link in DESCRIPTORS.items():
            (self.folder / "fd" / str(number)).symlink_to(link)
        (self.folder / "maps").write_text(
            "00400000-00401000 r-xp 10000000 fe:00 99                         "
            "/usr/bin/job\n00002000-00003000 rw-s 10000000 00:10 4712                       "
            f"anon_inode:[io_uring]\n00001000-00002000 rw-s 10000000 00:10 {INODE}                "
            f"     anon_inode:[io_uring]\n00003000-00004000 rw-s 00000000 00:10 {INODE}           "
            "          anon_inode:[io_uring]\n"
        )
        self.looks = 0
        self.resolver = WaitResolver(waiting_calls_of_machine("x86_64"), str(folder), lambda: 0)

    def waits(
        self, requests: Sequence[tuple[int, int]], completed: int = 0, *, has_memory: bool = True
    ) -> Wait:
        """The wait after these requests, of which some are completed."""
        return self.blocked(requests, completed, has_memory=has_memory).wait

    def blocked(
        self,
        requests: Sequence[tuple[int, int]],
        completed: int = 0,
        *,
        has_memory: bool = True,
        operation: int = 22,
        flags_of_call: int = 1,
        timeout: int = 0,
    ) -> BlockedThread:
        """What the thread waits for after these requests, which have a descriptor and flags; the
        last one is for this operation. The call has limits at the begin of the memory.
        """
        queue = bytearray(8 * 64)
        for number, (descriptor, flags) in enumerate(requests):
            if (descriptor, flags) != UNUSED:
                place, is_last = number % 8 * 64, number == len(requests) - 1
                code = operation if is_last else 22
                struct.pack_into("<BBHi", queue, place, code, flags, 0, descriptor)
        memory = bytearray(QUEUE if has_memory else 0)
        if has_memory:
            struct.pack_into("<16xQ", memory, LIMITS, timeout)
        (self.folder / "mem").write_bytes(memory + queue)
        (self.folder / "fdinfo" / str(RING)).write_text(
            f"pos:\t0\nino:\t{INODE}\nSqMask:\t0x7\nSqHead:\t{len(requests)}\nCachedSqHead:\t{len(requests)}\nCachedCqTail:\t{completed}\nUserFiles:\t2\n "
            "   0: /data/first.bin\n    1: /data/second.bin\nUserBufs:\t1\n    1: "
            "0x7f8000000000/4096\nPollList:\n  op=22, task_works=0\n"
        )
        self.looks += 1  # the memory is read again
        call = SystemCall(426, (RING, 1, 1, flags_of_call, LIMITS, 24))
        return self.resolver.resolve_wait(PID, call, self.looks, 0)


_CASES: tuple[tuple[Sequence[tuple[int, int]], int, Wait], ...] = (
    ([(5, 0)], 0, Wait("disk", "/data/orders.bin")),
    ([(6, 0)], 0, Wait("network")),
    ([(7, 0)], 0, Wait("pipe")),
    ([(9, 0)], 0, Wait("other")),
    ([(-1, 0)], 0, Wait("other")),
    ([(6, 0), (7, 0), (5, 0)], 0, Wait("disk", "/data/orders.bin")),
    ([(5, 0), (8, 0)], 0, Wait("disk")),
    ([(5, 0), (6, 0)], 1, Wait("network")),
    ([(5, 0)] * 8 + [(6, 0)], 8, Wait("network")),  # in the place of the first one
    ([(5, 0), (-1, 0)], 1, Wait("other")),
    (
        [(5, 0), UNUSED],
        1,
        Wait("disk", "/data/orders.bin"),
    ),  # the entries are not used in their order
    ([(5, 0)], 1, Wait("other")),
    ([(5, 0)], 30, Wait("other")),  # a request that completes again and again
    ([(1, REGISTERED)], 0, Wait("disk", "/data/second.bin")),
    ([(2, REGISTERED)], 0, Wait("other")),
)


def test_the_wait_for_requests_that_are_not_completed(tmp_path: Path) -> None:
    ring = FakeRing(tmp_path)
    for requests, completed, expected in _CASES:
        assert ring.waits(requests, completed) == expected, requests


@pytest.mark.parametrize(
    ("operation", "flags", "timeout", "kind"),
    [
        (11, 1, 0, "sleep"),
        (15, 1, 0, "sleep"),  # of the request before it
        (22, 9, TIMEOUT, "sleep"),
        (22, 9, 0, "other"),  # only signals are limited
        (22, 1, TIMEOUT, "other"),
    ],
)
def test_a_ring_that_waits_for_a_limited_time(
    operation: int, flags: int, timeout: int, kind: str, tmp_path: Path
) -> None:
    """It sleeps, if there is no other request; a socket may have an answer before."""
    wait = partial(
        FakeRing(tmp_path).blocked, operation=operation, flags_of_call=flags, timeout=timeout
    )
    assert wait([(-1, 0)]).wait == Wait(kind)
    assert wait([(6, 0), (-1, 0)]).has_timeout == (kind == "sleep")
    assert wait([(6, 0), (-1, 0)]).wait.kind == "network"
    assert wait([(5, 0), (-1, 0)]) == BlockedThread(wait=Wait("disk", "/data/orders.bin"))


def test_several_sockets_of_a_ring_are_watched_as_those_of_a_poll(tmp_path: Path) -> None:
    """To a listener and an unconnected one somebody may come."""
    ring = FakeRing(tmp_path)
    (ring.folder / "fd" / "10").symlink_to("socket:[81]")
    blocked = ring.blocked([(6, 0), (10, 0)])
    assert blocked.may_be_idle
    assert blocked.wait.kind == "network"


def test_a_ring_that_is_not_readable_shows_nothing(tmp_path: Path) -> None:
    ring = FakeRing(tmp_path)
    assert ring.waits([(5, 0)], has_memory=False) == Wait("other")
    (ring.folder / "maps").unlink()
    other = WaitResolver(waiting_calls_of_machine("x86_64"), str(ring.folder.parent), lambda: 0)
    assert other.resolve_wait(PID, SystemCall(426, (RING, 1, 1, 1, 0, 0)), 0, 0).wait == Wait(
        "other"
    )
    (ring.folder / "fdinfo" / str(RING)).write_text("pos:\t0\nSqThread:\t-1\n")  # of an old kernel
    assert ring.resolver.resolve_wait(
        PID, SystemCall(426, (RING, 1, 1, 1, 0, 0)), 0, 0
    ).wait == Wait("other")


# Reads its standard input by a ring: the raw system calls io_uring_setup and io_uring_enter, with
# two shared mappings.
_READS_BY_RING = """
import ctypes, mmap, struct
call = ctypes.CDLL(None, use_errno=True).syscall
parameters = bytearray(120)
ring = call(425, 4, (ctypes.c_char * 120).from_buffer(parameters))
if ring < 0:
    raise SystemExit(3)
array, tail = struct.unpack_from("I", parameters, 64)[0], struct.unpack_from("I", parameters, 44)[0]
queues = mmap.mmap(ring, 4096, offset=0)
entries = mmap.mmap(ring, 256, offset=0x10000000)
buffer = ctypes.create_string_buffer(64)
entries[:32] = struct.pack("<BBHiQQII", 22, 0, 0, 0, 0, ctypes.addressof(buffer), 64, 0)
struct.pack_into("I", queues, array, 0)
struct.pack_into("I", queues, tail, 1)
print("ready", flush=True)
call(426, ring, 1, 1, 1, None, 0)
"""


def wait_of_ring(pid: int) -> Wait | None:
    """What the thread of a process waits for, as soon as it waits."""
    wait_until(
        lambda: (proc.read_or_none(f"/proc/{pid}/syscall") or b"").startswith(b"426 "),
        "the call to wait",
    )
    reader = ThreadReader(time.thread_time_ns)
    stat = present(proc.parse_stat(proc.read_or_none(f"/proc/{pid}/stat") or b""))
    reading: ProcessReading = fakes.process(pid, state=stat.state, own_cpu_ns=1)
    reader.follow([reading])
    look = present(reader.look(time.monotonic_ns(), is_fresh=True))
    reader.close()
    blocked = [seen.blocked for seen in look.seen if seen.blocked is not None]
    return blocked[0].wait if blocked else None


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="has no table of calls")
def test_a_real_ring() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connected,
    ):
        peer = f"127.0.0.1:{server.getsockname()[1]}"
        for given, expected in (
            (subprocess.PIPE, Wait("pipe")),
            (connected.fileno(), Wait("network", peer)),
        ):
            program = (sys.executable, "-c", _READS_BY_RING)
            with subprocess.Popen(
                program, stdin=given, stdout=subprocess.PIPE, text=True
            ) as process:
                try:
                    if not present(process.stdout).readline():
                        pytest.skip("the kernel permits no ring")
                    wait = wait_of_ring(process.pid)
                finally:
                    process.kill()
            if wait == Wait("other"):
                pytest.skip("the kernel lets nobody read the queue of a ring")
            assert wait == expected
