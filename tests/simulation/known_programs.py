"""Programs whose phases are known, for the comparison with the time breakdown and the call
stacks.

    python known_programs.py TRUTH_FILE SERVER_PORT DISK_FILE PHASE:SECONDS …

The file alone is the program: it uses only the standard library. A phase is one function. After
each phase the program appends a JSON line to ``TRUTH_FILE``: when the phase began and ended, the
CPU time of its processes, and the time that they waited for a CPU. The server at ``SERVER_PORT`` of
the loopback interface (known_runs.py) answers after the number of seconds that it receives.
``DISK_FILE`` is read past the page cache.
"""

import contextlib
import ctypes
import itertools
import json
import mmap
import multiprocessing
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

_BLOCK_BYTES = 1 << 19
_MIN_GRAIN_SECONDS, _MAX_GRAIN_SECONDS = 0.02, 0.08
_GROWTH_BYTES, _GROWTH_PAUSE_SECONDS = 1 << 20, 0.1
_HOLD_SECONDS = 600
_FIRST_OWN_ARGUMENT = 4
_WORKERS, _WORKER_SECONDS = 32, 0.005
_SHORT_SECONDS = 0.1
_MIN_TURN_SECONDS, _MAX_TURN_SECONDS = 0.01, 0.03
_PROGRESS_SECONDS, _PROGRESS_CHARACTERS = 0.1, 5000
_ENTRIES_OFFSET, _READ = 0x10000000, 22  # of an io_uring
_START_TICKS = 19  # in /proc/self/stat, counted from the state


# Runs for the seconds; returns the nanoseconds that other threads and processes of the phase waited
# for a CPU.
Phase = Callable[[float], int | None]


def cpu_wait_ns() -> int:
    """How long the calling thread has waited for a CPU."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def _cpu_seconds() -> float:
    usage = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in usage)


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def compute_half(seconds: float) -> None:
    """Half the time one thread computes, half the time it sleeps.

    A period would coincide with that of the samples.
    """
    until, randomness = time.monotonic() + seconds, random.Random(1)
    while time.monotonic() < until:
        _spin(randomness.uniform(_MIN_GRAIN_SECONDS, _MAX_GRAIN_SECONDS))
        time.sleep(randomness.uniform(_MIN_GRAIN_SECONDS, _MAX_GRAIN_SECONDS))


def _server() -> tuple[str, int]:
    return "127.0.0.1", int(sys.argv[2])


def _ask(seconds: float) -> socket.socket:
    connection = socket.create_connection(_server())
    connection.settimeout(None)
    connection.sendall(f"{seconds}\n".encode())
    return connection


def receive(seconds: float) -> None:
    """Wait in recv for an answer."""
    with _ask(seconds) as connection:
        connection.recv(1)


def ask_again(
    seconds: float, most_on_cpu: float = _MAX_TURN_SECONDS, most_waiting: float = _MAX_TURN_SECONDS
) -> None:
    """Compute for 10 ms or more, then wait in recv for an answer, again and again."""
    until, randomness = time.monotonic() + seconds, random.Random(1)
    with socket.create_connection(_server()) as connection:
        while time.monotonic() < until:
            _spin(randomness.uniform(_MIN_TURN_SECONDS, most_on_cpu))
            connection.sendall(f"{randomness.uniform(_MIN_TURN_SECONDS, most_waiting)}\n".encode())
            connection.recv(1)


def _ask_beside(bystander: Callable[[], object], work: Phase) -> Phase:
    """The work, beside a thread that calls the bystander again and again."""

    def phase(seconds: float) -> None:
        has_ended = False

        def stand_by() -> None:
            while not has_ended:
                bystander()

        thread = threading.Thread(target=stand_by)
        thread.start()
        work(seconds)
        has_ended = True
        thread.join()

    return phase


def _show_progress() -> None:
    """One step of a progress bar, of a tenth of a second."""
    bar = "".join("#" for _ in range(_PROGRESS_CHARACTERS))
    Path(os.devnull).write_text(bar)
    time.sleep(_PROGRESS_SECONDS)


def _ask_in_shell(script: str, seconds: float) -> int:
    """The work as a program of a shell's script, which waits for it."""
    return _run_program(["sh", "-c", script, "sh"], f"ask_again:{seconds}")


def _run_program(prefix: Sequence[str], phase: str) -> int:
    """Run a phase as a program of its own; returns how long it waited for a CPU."""
    with tempfile.NamedTemporaryFile() as truth:
        program = [sys.executable, __file__, truth.name, *sys.argv[2:4], phase]
        subprocess.run([*prefix, *program], check=True)
        waits = [json.loads(line).get("wait_seconds", 0.0) for line in truth.read().splitlines()]
    return int(1e9 * sum(waits))


def pool_of_one(seconds: float) -> int:
    """The work in the only process of a pool, whose parent has threads that wait for pipes and
    locks.
    """
    with multiprocessing.get_context("fork").Pool(1) as pool:
        waited_ns = pool.apply(_waited, (ask_again, seconds))
        pool.close()
        pool.join()
    return int(waited_ns)


def read_disk(seconds: float) -> None:
    """Read blocks past the page cache."""
    descriptor = os.open(sys.argv[3], os.O_RDONLY | os.O_DIRECT)
    blocks = os.fstat(descriptor).st_size // _BLOCK_BYTES
    until = time.monotonic() + seconds
    with mmap.mmap(-1, _BLOCK_BYTES) as buffer:
        for number in itertools.count():
            os.preadv(descriptor, [buffer], number % blocks * _BLOCK_BYTES)
            if time.monotonic() >= until:
                break
    os.close(descriptor)


def read_disk_by_ring(seconds: float) -> None:
    """Read blocks past the page cache by the requests of an io_uring, with its raw system calls."""
    system_call, parameters = ctypes.CDLL(None).syscall, bytearray(120)
    ring = system_call(425, 4, (ctypes.c_char * len(parameters)).from_buffer(parameters))
    if ring < 0:
        raise RuntimeError("the kernel permits no ring")
    tail_at, array_at, head_at = (
        struct.unpack_from("I", parameters, place)[0] for place in (44, 64, 80)
    )
    descriptor = os.open(sys.argv[3], os.O_RDONLY | os.O_DIRECT)
    blocks = os.fstat(descriptor).st_size // _BLOCK_BYTES
    until = time.monotonic() + seconds
    with mmap.mmap(-1, _BLOCK_BYTES) as buffer, mmap.mmap(ring, 4096) as queues:
        entries = mmap.mmap(ring, 256, offset=_ENTRIES_OFFSET)
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        for number in itertools.count():
            place = number % blocks * _BLOCK_BYTES
            entries[:32] = struct.pack(
                "<BBHiQQII", _READ, 0, 0, descriptor, place, address, _BLOCK_BYTES, 0
            )
            struct.pack_into("I", queues, array_at + number % 4 * 4, 0)
            struct.pack_into("I", queues, tail_at, number + 1)
            system_call(426, ring, 1, 1, 1, None, 0)
            struct.pack_into("I", queues, head_at, number + 1)
            if time.monotonic() >= until:
                break
    os.close(descriptor)
    os.close(ring)


class _AlarmError(Exception):
    pass


def _raise_alarm(*_: object) -> None:
    raise _AlarmError


def wait_for_lock(seconds: float) -> None:
    """Wait for a lock that nothing releases."""
    lock = threading.Lock()
    lock.acquire()
    signal.signal(signal.SIGALRM, _raise_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with contextlib.suppress(_AlarmError):
        lock.acquire()


def wait_for_held_lock(seconds: float) -> None:
    """Wait for a limited time for a lock whose thread receives."""
    lock, is_held = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            receive(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    lock.acquire(timeout=_HOLD_SECONDS)
    thread.join()


def wait_for_event(seconds: float) -> None:
    """Wait for an event that does not come: a sleep by a futex."""
    threading.Event().wait(seconds)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def read_pipe(seconds: float) -> None:
    """Wait for a pipe into which nothing writes."""
    reader, writer = os.pipe()
    signal.signal(signal.SIGALRM, _raise_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with contextlib.suppress(_AlarmError):
        os.read(reader, 1)
    os.close(reader)
    os.close(writer)


def pause(seconds: float) -> None:
    """Wait for a signal, which counts as other."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.pause()


def read_socket_pair(seconds: float) -> int:
    """Wait for a child by a socket pair; the child waits for a signal."""
    own, others = socket.socketpair()
    if os.fork() == 0:
        pause(seconds)
        others.send(f"{cpu_wait_ns()}".encode())
        os._exit(0)
    waited_ns = int(own.recv(64))
    os.wait()
    own.close()
    others.close()
    return waited_ns


def short_processes(seconds: float) -> int:
    """Run processes one after the other, each of which ends before it is read often."""
    until, waited_ns = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        waited_ns += sum(_in_processes([_compute_shortly]))
    return waited_ns


def _compute_shortly() -> int:
    until = time.process_time() + _SHORT_SECONDS
    while time.process_time() < until:
        sum(range(1000))
    return cpu_wait_ns()


def run_child(seconds: float) -> int:
    """Wait for a program that shows no known kind."""
    return _run_program([], f"pause:{seconds}")


def threads_of_many_kinds(seconds: float) -> int:
    """A thread receives, one sleeps, one waits for an event, and the main thread for all of them."""
    waits: list[int] = []

    def work(phase: Phase) -> None:
        waits.append(_waited(phase, seconds))

    _in_threads([partial(work, phase) for phase in (receive, sleep, wait_for_event)])
    return sum(waits)


def _in_threads(works: Sequence[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _in_processes(works: Sequence[Callable[[], object]]) -> list[Any]:
    """Run each in a process of its own. Returns what they return."""
    reader, writer = os.pipe()
    children = []
    for work in works:
        pid = os.fork()
        if pid == 0:
            os.write(writer, f"{json.dumps(work())}\n".encode())
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        return [json.loads(line) for line in lines]


def _waited(phase: Phase, seconds: float) -> int:
    phase(seconds)
    return cpu_wait_ns()


def _phases_in_processes(*phases: Phase) -> Phase:
    """Each phase in a process of its own, and their parent waits for all of them."""
    return lambda seconds: sum(
        _in_processes([partial(_waited, phase, seconds) for phase in phases])
    )


def _herd(threads: int, seconds: float) -> int:
    """Threads that wake together once a second, on one CPU: on several, the kernel wakes some of
    them at the same time, and their CPU times are no sum.

    The time until the last of them runs, less their CPU time, is waited.

    They pass on Python's lock only when they sleep: threads that wait for it would wake again and
    again.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    sys.setswitchinterval(_HOLD_SECONDS)
    began, cpu_before = time.monotonic(), _cpu_seconds()
    late: dict[int, float] = {}

    def work() -> None:
        for number in range(1, int(seconds)):
            time.sleep(max(began + number - time.monotonic(), 0))
            late[number] = max(late.get(number, 0), time.monotonic() - began - number)

    _in_threads([work] * threads)
    _sleep_until(began + seconds)
    os.sched_setaffinity(0, allowed)
    return max(round(1e9 * (sum(late.values()) - _cpu_seconds() + cpu_before)), 0)


def _sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0))


def _compute_together(began: float, seconds: float) -> list[float]:
    """Compute for a moment once a second; returns how long after each second that was done."""
    ends = []
    for number in range(1, int(seconds)):
        _sleep_until(began + number)
        until = time.process_time() + _WORKER_SECONDS
        while time.process_time() < until:
            sum(range(1000))
        ends.append(time.monotonic() - began - number)
    return ends


def pool_of_32(seconds: float) -> int:
    """32 processes compute together on one CPU for a moment once a second.

    The time until the last of them has computed, less their CPU time, is waited. The kernel's own
    count is no witness: while another one of them computes, nobody waits for the whole.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    began, cpu_before = time.monotonic(), _cpu_seconds()
    ends_of_all = _in_processes([partial(_compute_together, began, seconds)] * _WORKERS)
    _sleep_until(began + seconds)
    os.sched_setaffinity(0, allowed)
    busy_seconds = float(sum(map(max, zip(*ends_of_all, strict=True))))
    return max(round(1e9 * (busy_seconds - _cpu_seconds() + cpu_before)), 0)


def grow(_: float) -> None:
    """Use more memory until something kills the process."""
    kept = []
    while True:
        kept.append(b"x" * _GROWTH_BYTES)
        time.sleep(_GROWTH_PAUSE_SECONDS)


_FUNCTIONS: tuple[Phase, ...] = (
    *(
        compute_half,
        receive,
        read_disk,
        read_disk_by_ring,
        wait_for_lock,
        sleep,
        read_pipe,
        pause,
        run_child,
    ),
    *(threads_of_many_kinds, ask_again, pool_of_one, pool_of_32, grow),
    *(wait_for_held_lock, wait_for_event, read_socket_pair, short_processes),
)
PHASES: dict[str, Phase] = {
    "compute": _spin,
    "processes_of_many_kinds": _phases_in_processes(receive, sleep, pause),
    "computing_process": _phases_in_processes(_spin, receive),
    "ask_beside_heartbeat": _ask_beside(partial(time.sleep, _PROGRESS_SECONDS), ask_again),
    "ask_rarely_beside_heartbeat": _ask_beside(
        partial(time.sleep, _PROGRESS_SECONDS),
        partial(ask_again, most_on_cpu=0.05, most_waiting=_MIN_TURN_SECONDS),
    ),
    "ask_beside_progress": _ask_beside(_show_progress, ask_again),
    "ask_in_substitution": partial(_ask_in_shell, 'out=$("$@")'),
    "ask_in_pipeline": partial(_ask_in_shell, '"$@" | tee /dev/null'),
    **{phase.__name__: phase for phase in _FUNCTIONS},
    **{f"herd_{threads}": partial(_herd, threads) for threads in (128, 300, 600, 2400)},
}


def _start() -> dict[str, object]:
    """The time from the start of the process until now as a phase of its own."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_START_TICKS])
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - round(
        1e9 * ticks / os.sysconf("SC_CLK_TCK")
    )
    now_ns, times = (
        time.time_ns(),
        {"cpu_seconds": _cpu_seconds(), "wait_seconds": cpu_wait_ns() / 1e9},
    )
    return {"phase": "start", "began_ns": now_ns - age_ns, "ended_ns": now_ns, **times}


def main() -> None:
    with Path(sys.argv[1]).open("a") as truth:
        print(json.dumps(_start()), file=truth, flush=True)
        for argument in sys.argv[_FIRST_OWN_ARGUMENT:]:
            name, _, seconds = argument.partition(":")
            before = time.time_ns(), _cpu_seconds(), cpu_wait_ns()
            print(json.dumps({"began": name, "at_ns": before[0]}), file=truth, flush=True)
            others_wait_ns = PHASES[name](float(seconds)) or 0
            phase = {
                "phase": name,
                "began_ns": before[0],
                "ended_ns": time.time_ns(),
                "cpu_seconds": _cpu_seconds() - before[1],
                "wait_seconds": (cpu_wait_ns() - before[2] + others_wait_ns) / 1e9,
            }
            print(json.dumps(phase), file=truth, flush=True)


if __name__ == "__main__":
    main()
