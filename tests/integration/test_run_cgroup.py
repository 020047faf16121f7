"""``task-profiler run`` with a control group of the command's own, on this machine's kernel.

And the helper process of a delegated group, on a folder that stands for the group.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from profiler.readers.cgroup.accounting_group import CgroupFilesystem, try_lock
from profiler.readers.cgroup.command_group import make_command_cgroup
from profiler.readers.cgroup.controller_delegation import CgroupDelegation
from profiler.readers.cgroup.hierarchy import read_own_cgroups
from profiler.readers.linux.process_tree import list_children
from profiler.record.record_model import NO_READINGS, Record, decode
from tests.integration.profiled import (
    PYTHON,
    RUN,
    as_nobody,
    entering,
    is_memory_unsure,
    limited_group,
    python,
    report_of,
    run,
)
from tests.values import present, without_caused_by_others
from tools.waiting import LIMIT_SECONDS, READINGS, wait_until

_MIB = 2**20


def _can_be_made() -> tuple[bool, bool]:
    """Whether a group can be made here that counts CPU, and one that counts memory."""
    own = make_command_cgroup(read_own_cgroups(), os.getpid(), "probe")
    try:
        return own.has_cpu_accounting, own.read_memory() is not None
    finally:
        own.remove(time.sleep)


_COUNTS_CPU, _COUNTS_MEMORY = _can_be_made()
_needs_cpu = pytest.mark.skipif(
    not _COUNTS_CPU, reason="no control group can be made here that counts CPU time"
)
_needs_memory = pytest.mark.skipif(
    not _COUNTS_MEMORY, reason="no control group can be made here that counts memory"
)
_needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and a mount namespace of its own",
)


def _left_over() -> list[Path]:
    cgroups = read_own_cgroups()
    places = filter(None, map(cgroups.location_in, ("memory", "cpuacct", "")))
    return [group for place in places for group in Path(place.folder).glob("task-profiler-*")]


def _is_in_use(group: Path) -> bool:
    with suppress(OSError):
        if (group / "cgroup.procs").read_text():
            return True
    claim = try_lock(str(group))
    if claim is not None:
        os.close(claim)
    return claim is None


@pytest.fixture(autouse=True)
def _leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Only groups of this test's profilers count: others profile here, and kill profilers, at
    the same time.
    """
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    pids = set()

    class RecordedPopen(subprocess.Popen[Any]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            pids.add(str(self.pid))

    monkeypatch.setattr(subprocess, "Popen", RecordedPopen)
    yield
    assert [
        group
        for group in _left_over()
        if group.name.split("-")[2] in pids and not _is_in_use(group)
    ] == []


def _run(*words: str, options: Sequence[str] = (), **settings: Any) -> tuple[Record, bytes]:
    finished = run(*words, options=options, **settings)
    assert finished.returncode == 0, finished.stderr
    return report_of(finished.stderr).record, finished.stdout


def _sources(record: Record) -> tuple[str, ...]:
    return present(record.sampling).sources


# --- CPU time ------------------------------------------------------------------------------------

# The last wait ends, with an error, when there are no children any more. The group's counter also
# has what their forks and ends cost, which depends on the machine.
_IGNORES = (
    "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor i in "
    "range(8):\n    if os.fork() == 0:\n        end = time.process_time() + 0.15\n        while "
    "time.process_time() < end: pass\n        os._exit(0)\ntry: os.wait()\nexcept "
    "ChildProcessError: pass\nfrom profiler.readers.cgroup.hierarchy import GroupCounters, "
    "read_own_cgroups\ngroups = read_own_cgroups()\ngroup = groups.location_in('cpuacct') or "
    "groups.location_in('')\ncounters = GroupCounters(None, group.folder, is_v1=group.hierarchy == "
    "'cpuacct')\nprint(time.process_time(), counters.cpu_ns() / 1e9, flush=True)\nos._exit(0)\n"
)


@_needs_cpu
def test_cpu_seconds_are_those_of_the_control_group() -> None:
    """Nobody waits for the children: the kernel counts them for the group alone."""
    record, printed = _run(sys.executable, "-c", _IGNORES)
    own, counted = map(float, printed.split())
    assert (
        8 * 0.15 + own <= present(record.metrics.cpu_seconds) < 1.05 * counted
    )  # more by the end of the last process
    assert not without_caused_by_others(present(record.monitor).warnings)
    assert "cgroup" in _sources(record)


# --- memory --------------------------------------------------------------------------------------

_SPIKE = (
    "import time\ntime.sleep({})\nblock = bytearray(800 * 2**20)\ntime.sleep(0.4)\ndel "
    "block\ntime.sleep(0.3)\n"
)
_ONE_OF_SEVERAL = "sleep 1.2 & sleep 1.3 & {} -c '{}' & wait"


@pytest.mark.diagonal(1)
@_needs_memory
@pytest.mark.parametrize("phase_seconds", [0, 0.3, 0.75])
def test_a_spike_of_one_of_several_processes_is_the_kernels_at_any_phase(
    phase_seconds: float,
) -> None:
    record, _ = _run("sh", "-c", _ONE_OF_SEVERAL.format(PYTHON, _SPIKE.format(phase_seconds)))
    metrics = record.metrics
    assert metrics.memory_peak_source == "kernel" or is_memory_unsure(record)
    assert metrics.max_memory_used_mb is not None
    assert 800 <= metrics.max_memory_used_mb < 830
    assert metrics.memory_usage_peak_mb == metrics.max_memory_used_mb
    assert present(metrics.memory_used_mb).max == metrics.max_memory_used_mb


_READS_TWICE = f"""{READINGS}
import sys
with open(sys.argv[1], "rb", buffering=0) as file:
    for turn in range(2):
        file.seek(0)
        while file.read(2**20): pass
    wait_for_readings(20)
"""


_MAPS_FILE = (
    f"{READINGS}import mmap, sys\nbegan = time.monotonic()\nfile = open(sys.argv[1], 'rb')\n"
    "pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
    "touched = sum(pages[place] for place in range(0, len(pages), 4096))\nwait_for_readings(10)\n"
    # The pages are there for half of the time, however slow the machine is.
    "time.sleep(time.monotonic() - began)\n"
)
_MAPPED_MIB = 100


@pytest.mark.diagonal(1)
@_needs_memory
@pytest.mark.parametrize("is_only_process", [True, False])
def test_a_mapped_file_is_not_used(tmp_path: Path, *, is_only_process: bool) -> None:
    """Its pages were in memory before, and the kernel can drop them."""
    data = tmp_path / "mapped"
    data.write_bytes(bytes(_MAPPED_MIB * _MIB))
    words = (*python(_MAPS_FILE), str(data))
    shell = ("sh", "-c", 'export PROFILER=$PPID; "$@"; true', "sh", *words)
    record, _ = _run(
        *(words if is_only_process else shell), options=("--max-memory", f"{_MAPPED_MIB // 2}MB")
    )
    metrics, series = record.metrics, record.series
    assert present(metrics.max_memory_used_mb) < 40
    assert present(metrics.memory_used_mb).max == metrics.max_memory_used_mb
    assert max(value or 0 for value in present(series).memory_used_mb or ()) < 40
    largest = max((process.max_memory_used_mb or 0 for process in record.processes), default=0)
    assert largest <= present(metrics.max_memory_used_mb)


@pytest.mark.slow
@_needs_memory
def test_a_file_that_is_read_twice_is_not_memory_that_is_needed(tmp_path: Path) -> None:
    """The command needs 4 to 11 MiB, by its Python. The file is page cache, in its active part since it was
    read again.
    """
    file = tmp_path / "file"
    with file.open("wb") as writing:
        for _ in range(500):
            writing.write(bytes(_MIB))
        writing.flush()
        os.fsync(writing.fileno())
        # Pages that are in memory already would be charged to this process, not to the command.
        os.posix_fadvise(writing.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        record, _ = _run(*python(_READS_TWICE), str(file), options=("--interval", "0.1"))
    finally:
        file.unlink(missing_ok=True)
    metrics = record.metrics
    assert metrics.max_memory_used_mb is not None
    assert 2 < metrics.max_memory_used_mb < 20
    assert present(metrics.memory_used_mb).max == metrics.max_memory_used_mb
    assert metrics.memory_cache_mb != NO_READINGS
    assert 490 < present(metrics.memory_cache_mb.max) < 540
    assert present(metrics.memory_usage_peak_mb) > 490


@_needs_memory
def test_a_child_killed_for_memory_is_known(tmp_path: Path) -> None:
    """The command limits a group below its own, as a batch system does; its child dies there."""
    place = read_own_cgroups().location_in("memory")
    if place is None:
        pytest.skip("needs version 1 of the memory controller")
    program = (
        "import os, subprocess\nfrom pathlib import Path\n"
        "from profiler.readers.cgroup.hierarchy import read_own_cgroups\n"
        "group = Path(read_own_cgroups().location_in('memory').folder)\n"
        "assert group.name.startswith('task-profiler-'), group\n"
        f"(group / 'memory.limit_in_bytes').write_text('{64 * _MIB}')\n"
        "subprocess.run(['sh', '-c', 'exec " + PYTHON + ' -c "x = bytearray(2**28)"' + "'])\n"
        "(group / 'memory.limit_in_bytes').write_text('-1')\nraise SystemExit(3)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    record = report_of(run(sys.executable, "-c", program, env=environment).stderr).record
    assert record.exit_code == 3
    assert record.status == "failure"
    assert record.likely_out_of_memory is True


# Holds 93 % of the 512 MB of its group until it is killed, as by a watchdog, or needs more.
_AT_LIMIT = python(
    f"{READINGS}x = b'a' * (465 << 20)\nwait_for_readings(20)\nos.kill(os.getpid(), 9)"
)
_ABOVE_LIMIT = python("x = b'a' * (900 << 20)")


@pytest.mark.slow
@_needs_memory
@_needs_mounts
@pytest.mark.parametrize("has_own_group", [True, False])
@pytest.mark.parametrize(
    ("words", "evidence"), [(_AT_LIMIT, None), (_ABOVE_LIMIT, "kernel-counter")]
)
def test_a_program_that_kills_at_the_limit_is_not_the_kernel(
    words: tuple[str, ...], evidence: str | None, *, has_own_group: bool
) -> None:
    command = (*RUN, "--json", "--interval", "0.1", "--", *words)
    with limited_group(512) as group:
        if not has_own_group:
            read_only = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
            command = ("unshare", "--mount", "sh", "-c", read_only, str(group), *command)
        done = subprocess.run(
            entering(group, *command), check=False, capture_output=True, timeout=LIMIT_SECONDS
        )
    record = report_of(done.stderr).record
    assert record.exit_code == 137
    assert record.likely_out_of_memory is (evidence is not None)
    assert record.out_of_memory_evidence == evidence
    assert (record.metrics.memory_usage_peak_mb is not None) is has_own_group


# --- what the command leaves ---------------------------------------------------------------------


def test_what_the_command_leaves_is_neither_awaited_nor_killed() -> None:
    """What the command leaves is neither awaited nor killed and goes on where the profiler was
    started.
    """
    reading, writing = os.pipe()
    program = (
        "import os, sys\nif os.fork() == 0:\n    sys.stdin.readline()\n    "
        "print(open('/proc/self/cgroup').read(), flush=True)\n    os._exit(0)\n"
    )
    with os.fdopen(writing, "wb", buffering=0) as to_the_orphan:
        command = (*RUN, "--output", "/dev/null", "--", *python(program))
        process = subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE)
        os.close(reading)
        assert process.wait(LIMIT_SECONDS) == 0
        to_the_orphan.write(b"go\n")
        with present(process.stdout) as output:
            assert output.read().decode().split() == Path("/proc/self/cgroup").read_text().split()


_MOVES = f"""{READINGS}
import os, sys
wait_for_readings(10)
with open(sys.argv[1] + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))
kept = bytearray(100 << 20)
for place in range(0, len(kept), 4096): kept[place] = 1
wait_for_readings(10)
hold_for_most()
"""


@_needs_memory
def test_a_command_that_moves_itself_into_another_group_counts_there() -> None:
    """As ``systemd-run --scope`` moves its own process."""
    with limited_group(1000, f"test-moved-{os.getpid()}") as group:
        done = run(*python(_MOVES), str(group), options=("--interval", "0.1"))
    assert done.returncode == 0, done.stderr
    metrics = report_of(done.stderr).record.metrics
    assert 100 <= present(metrics.max_memory_used_mb) < 140
    assert metrics.memory_usage_peak_mb is None


@_needs_cpu
def test_a_killed_profilers_group_is_removed_by_the_next() -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        (*RUN, "--", "sh", "-c", "echo $$; read line"), stdin=reading, stdout=subprocess.PIPE
    )
    os.close(reading)
    with present(process.stdout) as output:
        command_pid = int(output.readline())
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_SECONDS)
        assert any(str(process.pid) in group.name for group in _left_over())
        assert Path(f"/proc/{command_pid}").exists()
        os.close(writing)
        assert output.read() == b""
    # The command's process has ended when its output is closed; whoever adopted it may not have
    # waited for it yet.
    wait_until(lambda: not _is_running(command_pid), "the command's end")
    _run("true")
    assert not any(str(process.pid) in group.name for group in _left_over())


@_needs_cpu
def test_killed_processes_that_still_free_their_memory_leave_no_group(tmp_path: Path) -> None:
    """``timeout`` kills itself together with what it started, and nobody waits for that."""
    filled = tmp_path / "filled"
    program = (
        f"import pathlib, time; x = b'a' * (500 << 20); pathlib.Path({str(filled)!r}).touch();"
        " time.sleep(1000)"
    )
    killing = f"until [ -e {filled} ]; do sleep 0.05; done; kill -KILL 0"
    script = f"{shlex.join(python(program))} & {killing}"
    done = run("setsid", "--wait", "sh", "-c", script, options=("--interval", "0.1"))
    assert done.returncode == 128 + signal.SIGKILL, done.stderr


# --- where no group can be made ------------------------------------------------------------------


_BURN_IN_SHELL = ("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_an_unprivileged_user_falls_back(tmp_path: Path, code_for_all: Path) -> None:
    report = tmp_path / "report"
    report.touch(0o666)
    report.chmod(0o666)
    with report.open("wb") as file:
        command = (*as_nobody(code_for_all), "run", "--json", "--")
        finished = subprocess.run(
            (*command, *_BURN_IN_SHELL), stderr=file, check=False, cwd="/", timeout=LIMIT_SECONDS
        )
    lines = [line for line in report.read_bytes().splitlines() if line.startswith(b"{")]
    assert finished.returncode == 0, report.read_bytes()
    record = decode(lines[-1]).record
    assert _sources(record) == ("processes",)
    assert present(record.metrics.cpu_seconds) > 0
    assert record.metrics.memory_usage_peak_mb is None
    assert not without_caused_by_others(present(record.monitor).warnings)


# The kernel lets no one read /proc/self/io of a process that has changed its user.
_READS_ITSELF = (
    "from profiler.cli import main\n"
    "from _ctypes import call_function, dlopen, dlsym\n"
    "call_function(dlsym(dlopen(None, 0), 'prctl'), (4, 1, 0, 0, 0))  # PR_SET_DUMPABLE\nmain()\n"
)


@pytest.mark.diagonal(1)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize("then", ["sleep 2.5", "true"])
def test_a_file_that_is_deleted_unwritten_counts_for_no_user_as_written_without_a_word(
    then: str, code_for_all: Path
) -> None:
    deletes = f"head -c 100M /dev/zero > file; rm file; {then}; cat /proc/$$/io"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # on a disk
        Path(folder).chmod(0o777)
        command = (*as_nobody(code_for_all, _READS_ITSELF), "run", "--json", "--")
        finished = subprocess.run(
            (*command, "sh", "-c", deletes),
            capture_output=True,
            check=True,
            cwd=folder,
            timeout=LIMIT_SECONDS,
        )
    lines = [line for line in finished.stderr.splitlines() if line.startswith(b"{")]
    record = decode(lines[-1]).record
    warnings = present(record.monitor).warnings
    is_marked = any("deleted before they were stored" in one for one in warnings)
    counted = dict(line.split(": ") for line in finished.stdout.decode().splitlines())
    # The kernel may have stored a part of it before the file was deleted.
    stored_bytes = int(counted["write_bytes"]) - int(counted["cancelled_write_bytes"])
    more_bytes = present(record.metrics.block_write_bytes) - stored_bytes
    is_unsampled = then == "true"
    assert abs(more_bytes) < 10 * _MIB or (is_marked and is_unsampled)


_IGNORES_ITS_CHILDREN = ("env", "--ignore-signal=CHLD", "true")


@pytest.mark.diagonal(1)
@_needs_mounts
@pytest.mark.parametrize(
    ("namespace", "words", "is_said"),
    [
        (("unshare", "--pid", "--fork"), _BURN_IN_SHELL, False),
        (("unshare", "--pid", "--fork", "--mount-proc"), _BURN_IN_SHELL, False),
        ((), _IGNORES_ITS_CHILDREN, True),
    ],
)
def test_only_a_process_that_ignores_its_children_is_said_to_do_so(
    namespace: tuple[str, ...], words: tuple[str, ...], code_for_all: Path, *, is_said: bool
) -> None:
    """In the old ``/proc`` of another pid namespace the ids are those of unrelated processes."""
    program = (*as_nobody(code_for_all), "run", "--json", "--", *words)
    finished = subprocess.run(
        (*namespace, *program),
        capture_output=True,
        check=True,
        cwd="/",
        env={**os.environ, "PROFILER": "self"},  # whose ids are visible in every /proc
        timeout=LIMIT_SECONDS,
    )
    lines = [line for line in finished.stderr.splitlines() if line.startswith(b"{")]
    record = decode(lines[-1]).record
    warnings = present(record.monitor).warnings
    assert any("ignores the end of its children" in one for one in warnings) is is_said
    assert (present(record.sampling).cpu_covered_percent == 0) is is_said


@pytest.mark.slow
@_needs_cpu
@_needs_mounts
def test_orphans_that_end_with_the_command_leave_no_group() -> None:
    """In a pid namespace, where they are the profiler's at once: some are between ending and
    being gone.
    """
    orphans = "for i in 1 2 3 4 5 6 7 8; do (true &) ; done; exit 0"
    command = ("unshare", "--pid", "--fork", "--mount-proc", *RUN, "--", "sh", "-c", orphans)
    for _ in range(5):
        subprocess.run(command, capture_output=True, check=True, timeout=LIMIT_SECONDS)


@pytest.fixture
def group(tmp_path: Path) -> Path:
    for folder in (tmp_path, tmp_path / "leaf"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").write_text("")
    (tmp_path / "cgroup.subtree_control").write_text("")
    return tmp_path


def _delegation(group: Path) -> CgroupDelegation:
    return CgroupDelegation(str(group), str(group / "leaf"), "memory", CgroupFilesystem())


def _subtree_control(group: Path) -> str:
    return (group / "cgroup.subtree_control").read_text()


def test_the_helper_reverts_the_delegation_of_a_killed_process(group: Path) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _delegation(group).enable(with_helper=True)
        os.write(writer, b"1")
        signal.pause()
    try:
        assert os.read(reader, 1) == b"1"
        assert _subtree_control(group) == "+memory"
        (helper,) = list_children(pid, threads=1)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)
    wait_until(lambda: _subtree_control(group) == "-memory", "the helper's change")
    wait_until(lambda: not _is_running(helper), "the helper's end")
    assert (group / "cgroup.procs").read_text() == "0"


def _is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and ") Z " not in stat.read_text()


def test_the_helper_is_gone_after_the_revert(group: Path) -> None:
    before = set(list_children(os.getpid(), threads=1))
    delegation = _delegation(group)
    assert delegation.enable(with_helper=True)
    (helper,) = set(list_children(os.getpid(), threads=1)) - before
    wait_until(lambda: os.getsid(helper) == helper, "the helper's start")
    os.kill(helper, signal.SIGTERM)  # blocked
    os.kill(helper, signal.SIGSTOP)
    delegation.undo_and_forget()
    assert set(list_children(os.getpid(), threads=1)) == before
    assert _subtree_control(group) == "-memory"
