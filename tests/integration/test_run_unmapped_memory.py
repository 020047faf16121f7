"""``task-profiler run`` without a control group of its own: files in memory, System V segments,
page tables, socket queues, and processes that ``/proc`` hides.

The profiler runs as another user, who can make no group.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from profiler.readers.cgroup.hierarchy import read_own_cgroups
from profiler.readers.linux.memory_files import read_memory_mounts
from profiler.record.record_model import NO_RECOMMENDATION, Record, decode
from tests.integration.profiled import alone, as_nobody, entering, limited_group, system_python
from tests.values import present
from tools.waiting import LIMIT_SECONDS, READINGS

_SIZE_MIB = 150
_SLACK_MIB = 20  # the interpreter
_MEMORY = Path("/dev/shm")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else"),
    pytest.mark.skipif(
        not _MEMORY.is_dir() or _MEMORY.stat().st_dev not in read_memory_mounts().devices,
        reason="/dev/shm is no tmpfs here",
    ),
]
_needs_mounts = pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
_HIDING = (
    *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
    # A mount of its own: a remount would hide the processes of the whole machine.
    'mount -t proc -o hidepid=2 proc /proc && exec "$@"',
    "sh",
)


@pytest.fixture
def program() -> str:
    return system_python()


@pytest.fixture
def path() -> Iterator[Path]:
    path = _MEMORY / f"task-profiler-test-{os.getpid()}"
    yield path
    path.unlink(missing_ok=True)


class _RunAsNobody(Protocol):
    def __call__(self, *words: str, before: Sequence[str] = ()) -> Record: ...


@pytest.fixture
def run_as_nobody(tmp_path: Path, code_for_all: Path) -> _RunAsNobody:
    report = tmp_path / "report"
    report.touch(0o666)

    def run(*words: str, before: Sequence[str] = ()) -> Record:
        program = (*before, *as_nobody(code_for_all))
        options = ("--json", "--no-history", "--interval", "0.1")
        with report.open("wb") as file:
            finished = subprocess.run(
                (*program, "run", *options, "--", *words),
                stderr=file,
                check=False,
                cwd="/",
                timeout=LIMIT_SECONDS,
            )
        assert finished.returncode == 0, report.read_bytes()
        return decode(report.read_bytes().splitlines()[-1]).record

    return run


def _peak_mib(record: Record) -> float:
    return present(record.metrics.max_memory_used_mb)


def _warnings(record: Record) -> str:
    return " ".join(present(record.monitor).warnings)


_WRITE = f"""{READINGS}
import sys
with open(sys.argv[1], "wb", buffering=0) as file:
    for _ in range(int(sys.argv[2])):
        file.write(bytes(1 << 20))
        time.sleep(0.002)
    wait_for_readings(10)
hold_for_most()
"""


def test_files_that_the_command_writes_into_memory_count(
    run_as_nobody: _RunAsNobody, path: Path, program: str
) -> None:
    record = run_as_nobody(program, "-c", _WRITE, str(path), str(_SIZE_MIB))
    assert _SIZE_MIB <= _peak_mib(record) < _SIZE_MIB + _SLACK_MIB
    assert present(present(record.metrics.memory_used_mb).avg) > _SIZE_MIB / 2
    control = run_as_nobody(program, "-c", _WRITE, str(path), "1")
    assert _peak_mib(control) < _SLACK_MIB


_SHARED = f"""{READINGS}
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size={_SIZE_MIB} << 20)
for place in range({_SIZE_MIB}): memory.buf[place << 20 : place + 1 << 20] = bytes(1 << 20)
wait_for_readings(10)
memory.close()
hold_for_most()
memory.unlink()
"""


# The child inherits the descriptor, and maps what only its parent holds afterwards.
_SHARED_BY_A_CHILD = f"""{READINGS}
import mmap, os
memory = os.memfd_create("memory")
os.ftruncate(memory, {_SIZE_MIB} << 20)
if not os.fork():
    pages = mmap.mmap(memory, {_SIZE_MIB} << 20)
    for place in range(0, len(pages), 4096): pages[place] = 1
    wait_for_readings(10)
    os._exit(0)
os.wait()
hold_for_most()
"""


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("lines", [_SHARED, _SHARED_BY_A_CHILD], ids=["process", "child"])
def test_shared_memory_counts_once_while_it_is_mapped_and_after(
    run_as_nobody: _RunAsNobody, program: str, lines: str
) -> None:
    record = run_as_nobody(program, "-c", lines)
    assert _SIZE_MIB <= _peak_mib(record) < _SIZE_MIB + 2 * _SLACK_MIB  # two interpreters
    after_the_mapping = present(present(record.metrics.memory_used_mb).p50)
    assert after_the_mapping > _SIZE_MIB


_FREES_LAZILY = f"""{READINGS}
import mmap
pages = mmap.mmap(-1, {_SIZE_MIB} << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for place in range(0, len(pages), 4096): pages[place] = 1
wait_for_readings(10)
pages.madvise(8)  # MADV_FREE
wait_for_readings(10)
hold_for_most()
"""


@pytest.mark.slow
def test_lazily_freed_memory_is_used_until_it_is_freed(
    run_as_nobody: _RunAsNobody, program: str
) -> None:
    metrics = run_as_nobody(program, "-c", _FREES_LAZILY).metrics
    assert present(metrics.max_memory_used_mb) > _SIZE_MIB
    assert present(present(metrics.memory_used_mb).p50) < _SLACK_MIB


_BY_ANOTHER = f"""
import sys
with open(sys.argv[1], "wb", buffering=0) as file:
    for _ in range({_SIZE_MIB}): file.write(bytes(1 << 20))
    sys.stdin.read()
"""


_WAITS = f"{READINGS}wait_for_readings(20)\n"


def test_what_another_program_made_is_a_warning_and_no_value(
    run_as_nobody: _RunAsNobody, path: Path, program: str
) -> None:
    """The command starts to wait, then the other program begins to write."""
    begins = f"until [ -e {path}.go ]; do sleep 0.05; done"
    waits = f"touch {path}.go; until [ $(stat -c %s {path} || echo 0) -ge {_SIZE_MIB << 20} ]"
    words = ("sh", "-c", f"{begins}; exec {program} -c '{_BY_ANOTHER}' {path}")
    with subprocess.Popen(words, stdin=subprocess.PIPE) as other:
        try:
            until = f'{waits}; do sleep 0.1; done 2> /dev/null; exec "$@"'
            record = run_as_nobody("sh", "-c", until, "sh", program, "-c", _WAITS)
        finally:
            other.kill()
            path.with_name(f"{path.name}.go").unlink(missing_ok=True)
    assert _peak_mib(record) < _SLACK_MIB
    assert "it is unknown which program made them" in _warnings(record)
    assert record.recommendation == NO_RECOMMENDATION


_SEGMENT = f"""{READINGS}
import ctypes, sys
attached, is_held = map(int, sys.argv[1:3])
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
size = {_SIZE_MIB} << 20
segment = libc.shmget(0, size, 0o1600)
addresses = [libc.shmat(segment, None, 0) for _ in range(attached or 1)]
ctypes.memset(addresses[0], 1, size)
if not attached: libc.shmdt(addresses[0])
print("made", flush=True)
if sys.argv[3:]: open(sys.argv[3], "w").close()
hold_for_most() if is_held else sys.stdin.read()
libc.shmctl(segment, 0, None)
"""


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("attached", [0, 1, 3])
def test_a_segment_counts_once_while_it_exists(
    run_as_nobody: _RunAsNobody, program: str, attached: int
) -> None:
    record = run_as_nobody(program, "-c", _SEGMENT, str(attached), "1")
    assert _SIZE_MIB <= _peak_mib(record) < _SIZE_MIB + _SLACK_MIB
    median_mib = present(present(record.metrics.memory_used_mb).p50)
    assert 0.9 * _SIZE_MIB <= median_mib < _SIZE_MIB + _SLACK_MIB
    # None if another program's kernel memory grows meanwhile.
    advice = record.recommendation
    assert not any("short spike" in reason for reason in advice.reasons)


_FILE = f"""{READINGS}
import sys
with open(sys.argv[4], "wb", buffering=0) as file:
    for _ in range({_SIZE_MIB}): file.write(bytes(1 << 20))
    wait_for_readings(10)
open(sys.argv[3], "w").close()
hold_for_most()
"""


# The profiler knows the file by the child's descriptor, and after its end only by the parent's.
_FILE_OF_A_CHILD = f"""{READINGS}
import sys
memory = os.memfd_create("memory")
if not os.fork():
    for _ in range({_SIZE_MIB}): os.write(memory, bytes(1 << 20))
    wait_for_readings(10)
    open(sys.argv[3], "w").close()
    while os.path.exists(sys.argv[4].removesuffix(".own")): time.sleep(0.01)
    os._exit(0)
os.wait()
hold_for_most()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "made", [_SEGMENT, _FILE, _FILE_OF_A_CHILD], ids=["segment", "file", "child"]
)
def test_what_another_program_frees_hides_neither_segment_nor_file(
    run_as_nobody: _RunAsNobody, path: Path, program: str, made: str
) -> None:
    """The other program frees as much, after the command has made its own."""
    path.write_bytes(bytes(_SIZE_MIB << 20))
    go = path.with_name(f"{path.name}.go")
    own = path.with_name(f"{path.name}.own")
    frees = f"until [ -e {go} ]; do sleep 0.01; done; rm {path}"
    with subprocess.Popen(("sh", "-c", frees)) as other:
        try:
            record = run_as_nobody(program, "-c", made, "0", "1", str(go), str(own))
        finally:
            go.touch()
            other.wait()
            go.unlink()
            own.unlink(missing_ok=True)
    assert _SIZE_MIB <= _peak_mib(record) < _SIZE_MIB + _SLACK_MIB
    median_mib = present(present(record.metrics.memory_used_mb).p50)
    assert 0.9 * _SIZE_MIB <= median_mib < _SIZE_MIB + _SLACK_MIB


@contextmanager
def _apart() -> Iterator[Sequence[str]]:
    """The beginning of a command in a group of its own, if that counts memory by itself: in the
    tests' group, another test may make shared memory, too.
    """
    if read_own_cgroups().location_in("memory") is None:
        yield ()
        return
    with limited_group(512) as group:
        yield entering(group)


@pytest.mark.slow
def test_a_segment_of_another_program_is_a_warning_and_no_value(
    run_as_nobody: _RunAsNobody, path: Path, program: str
) -> None:
    """The command starts to wait, then the other program makes the segment."""
    go = path.with_name(f"{path.name}.go")
    begins = f"until [ -e {go} ]; do sleep 0.05; done"
    until = f"until ipcs -mb | grep -q {_SIZE_MIB << 20}; do sleep 0.1; done"
    waits = f'touch {go}; {until}; exec "$@"'
    made = (program, "-c", _SEGMENT, "0", "0")
    words = ("sh", "-c", f'{begins}; exec "$@"', "sh", *made)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as other:
        try:
            record = run_as_nobody("sh", "-c", waits, "sh", program, "-c", _WAITS)
            with _apart() as apart:
                before = run_as_nobody(program, "-c", _WAITS, before=apart)
        finally:
            go.touch()
            other.communicate()
            go.unlink()
    assert _peak_mib(record) < _SLACK_MIB
    assert "it is unknown which program made them" in _warnings(record)
    assert record.recommendation == NO_RECOMMENDATION
    assert _peak_mib(before) < _SLACK_MIB
    assert "unknown which program" not in _warnings(before)


_PAGE_TABLES = f"""{READINGS}
import mmap
size = {_SIZE_MIB} << 29  # a page of the page tables has the addresses of 2 MiB
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
pages = mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ)
pages.madvise(15)  # MADV_NOHUGEPAGE
for place in range(0, size, 2 << 20): pages[place]
hold_for_most()
"""


_BELOW_A_SHELL = ("sh", "-c", 'export PROFILER=$PPID; "$@"; true', "sh")


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("shell", [(), _BELOW_A_SHELL])
def test_page_tables_count(
    run_as_nobody: _RunAsNobody, program: str, shell: tuple[str, ...]
) -> None:
    record = run_as_nobody(*shell, program, "-c", _PAGE_TABLES)
    assert _SIZE_MIB <= _peak_mib(record) < _SIZE_MIB + _SLACK_MIB
    assert record.metrics.memory_peak_source == "sampled"
    assert present(present(record.metrics.memory_used_mb).p95) > _SIZE_MIB


_STACKS_MIB = 12
_THREADS = f"""{READINGS}
import threading
threading.stack_size(2**16)
ends = threading.Event()
for _ in range({_STACKS_MIB} << 6): threading.Thread(target=ends.wait, daemon=True).start()
hold_for_most()
"""


def test_the_stacks_of_threads_in_the_kernel_count(
    run_as_nobody: _RunAsNobody, program: str
) -> None:
    record = run_as_nobody(*_BELOW_A_SHELL, program, "-c", _THREADS)
    of_processes = [process.max_memory_used_mb or 0 for process in record.processes]
    of_kernel_mib = _peak_mib(record) - sum(of_processes)
    assert _STACKS_MIB <= of_kernel_mib < 1.5 * _STACKS_MIB


_SOCKETS = f"""{READINGS}
import resource, socket
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
pairs = []
queued = 0
while queued < {_SIZE_MIB} << 20:
    pairs.append(socket.socketpair())
    pairs[-1][0].setblocking(False)
    try:
        while True: queued += pairs[-1][0].send(bytes(4096))
    except BlockingIOError:
        pass
wait_for_readings(20)
"""


def test_memory_of_the_kernel_that_nobody_accounts_for_is_a_warning_and_no_value(
    run_as_nobody: _RunAsNobody, program: str
) -> None:
    with alone("kernel-memory"):
        record = run_as_nobody(program, "-c", _SOCKETS)
    assert _peak_mib(record) < _SLACK_MIB
    assert "the machine's kernel memory grew during the run" in _warnings(record)
    assert record.recommendation == NO_RECOMMENDATION


_HOLDS = f"{READINGS}held = b'x' * ({_SIZE_MIB} << 20)\nwait_for_readings(20)\nhold_for_most()\n"


@pytest.fixture
def of_root(program: str) -> Iterator[str]:
    """A program that any user runs as root, and that holds memory."""
    setuid = Path(f"/var/tmp/task-profiler-test-{os.getpid()}-setuid")
    shutil.copy(os.path.realpath(program), setuid)
    setuid.chmod(0o4755)
    yield str(setuid)
    setuid.unlink()


@pytest.mark.slow
@_needs_mounts
def test_processes_that_proc_hides_make_the_memory_a_lower_bound(
    run_as_nobody: _RunAsNobody, of_root: str
) -> None:
    words = (*_BELOW_A_SHELL, of_root, "-I", "-S", "-c", _HOLDS)
    record = run_as_nobody(*words, before=_HIDING)
    assert record.metrics.memory_peak_source == "sampled"
    assert "hidepid" in _warnings(record)
    assert record.recommendation == NO_RECOMMENDATION
    seen = run_as_nobody(*words)
    assert "hidepid" not in _warnings(seen)
    assert present(present(seen.metrics.memory_used_mb).avg) > _SIZE_MIB / 2


@_needs_mounts
def test_a_command_without_hidden_processes_is_not_marked(run_as_nobody: _RunAsNobody) -> None:
    record = run_as_nobody("sh", "-c", "sleep 0.3; true", before=_HIDING)
    assert "hidepid" not in _warnings(record)
