"""A page of memory counts once, however often it is mapped: ``task-profiler run`` with a control
group and without one, and the monitor, against programs whose memory is known.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from profiler.readers.cgroup.hierarchy import read_own_cgroups
from profiler.readers.cgroup.shared_memory_growth import SharedMemory
from profiler.record.record_model import Record, decode
from tests.integration.profiled import RUN, as_nobody, report_of, system_python
from tests.integration.sidecar import Sidecar
from tests.programs import mappings
from tests.simulation.known_runs import WITHOUT_GROUPS
from tests.task_endpoint import Task, TaskEndpoint
from tests.values import present
from tools.moto_server import FakeAws
from tools.waiting import LIMIT_SECONDS, remove_group, wait_until

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root to make a control group and to become somebody else"
)
_MIB = 2**20
_PROGRAM = Path(mappings.__file__)
_SIZE_MIB = mappings.SIZE // _MIB
_SLACK_MIB = 16  # an interpreter, and what its fork copies
_SECONDS = "1"  # at least: the program holds the memory for most of its life
_HEAP_MIB = 64
_JAVA = (
    *(f"-Xms{_HEAP_MIB}m", f"-Xmx{_HEAP_MIB}m", "-XX:+AlwaysPreTouch", "-XX:-UsePerfData"),
    *("-Xshare:auto", "-XX:TieredStopAtLevel=1"),
)
# Sleeps until the profiler has woken up for some readings, however slow the machine is.
_SLEEP = """
import java.nio.file.*;
public class Sleep {
    static long wakeUps() throws Exception {
        long parent = ProcessHandle.current().parent().get().pid();
        String status = Files.readString(Path.of("/proc/" + parent + "/status"));
        String after = status.substring(status.indexOf("\\nvoluntary_ctxt_switches:") + 25);
        return Long.parseLong(after.substring(0, after.indexOf("\\n")).trim());
    }
    public static void main(String[] words) throws Exception {
        long last = wakeUps() + 40;
        for (int turn = 0; turn < 9000 && wakeUps() < last; turn++) Thread.sleep(100);
    }
}
"""

_RunAs = Callable[..., Record]


@pytest.fixture(scope="module")
def program() -> str:
    return system_python()


@contextmanager
def _folder_for_all() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="task-profiler-test-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder on a disk that every user can read, with the program."""
    with _folder_for_all() as folder:
        shutil.copy(_PROGRAM, folder)
        yield folder


def _record(command: Sequence[str], words: Sequence[str], *, exit_code: int = 0) -> Record:
    done = subprocess.run(
        (*command, "--json", "--no-history", "--", *words),
        capture_output=True,
        check=False,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == exit_code, done.stderr
    line, *_ = [line for line in done.stderr.splitlines() if line.startswith(b"{")]
    return decode(line).record


@pytest.fixture(params=["root", "nobody"])
def run_as(request: pytest.FixtureRequest, code_for_all: Path) -> _RunAs:
    """Runs a command with a control group of its own, or as a user who can make none."""
    command: Sequence[str] = RUN
    if request.param == "nobody":
        command = (*as_nobody(code_for_all), "run")
    return lambda *words, options=(), **more: _record((*command, *options), words, **more)


def _peak_mib(record: Record) -> float:
    return present(record.metrics.max_memory_used_mb)


def _assert_rows_within(record: Record) -> None:
    for row in record.processes:
        assert (row.max_memory_used_mb or 0) <= _peak_mib(record)


_WAYS = {
    "once": (("views", "1"), 1, _SIZE_MIB),
    "a ring buffer": (("views", "2"), 1, _SIZE_MIB),
    "three views of one memory": (("views", "3"), 1, _SIZE_MIB),
    "a segment that is attached three times": (("segment", "3"), 1, _SIZE_MIB),
    "forks that share": (("forks", "2", "0"), 3, _SIZE_MIB),
    "forks that copy": (("forks", "2", "50"), 3, 2 * _SIZE_MIB),
    "shared memory of forks": (("shared", "2"), 3, _SIZE_MIB),
    "threads": (("threads", "4"), 1, _SIZE_MIB),
}


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(("way", "processes", "true_mib"), _WAYS.values(), ids=_WAYS)
def test_a_page_counts_once(
    run_as: _RunAs, program: str, place: Path, way: Sequence[str], processes: int, true_mib: int
) -> None:
    kind, *more = way
    record = run_as(program, str(place / _PROGRAM.name), kind, _SECONDS, *more)
    slack_mib = processes * _SLACK_MIB
    assert true_mib <= _peak_mib(record) < true_mib + slack_mib
    median_mib = present(present(record.metrics.memory_used_mb).p50)
    assert true_mib <= median_mib < true_mib + slack_mib
    _assert_rows_within(record)


@pytest.mark.slow
@pytest.mark.parametrize("readings", [0, 20], ids=["before a reading", "after some"])
def test_what_only_the_marks_show_is_a_bound(readings: int, program: str, place: Path) -> None:
    """Without a control group: memory that is mapped four times, and that nobody has read."""
    times = 4
    words = ("unseen", _SECONDS, str(times), str(readings))
    record = _record((*WITHOUT_GROUPS, *RUN), (program, str(place / _PROGRAM.name), *words))
    assert _peak_mib(record) < _SIZE_MIB + _SLACK_MIB
    warnings = " ".join(present(record.monitor).warnings)
    bounds_mib = map(int, re.findall(r"memory peak may have been (\d+) MB", warnings))
    assert max((_peak_mib(record), *bounds_mib)) > times * _SIZE_MIB * 0.9


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("start", [(), WITHOUT_GROUPS], ids=["in a group", "without a group"])
def test_a_file_that_only_the_marks_show_is_no_memory(
    start: Sequence[str], program: str, place: Path
) -> None:
    words = ("unseen_file", _SECONDS, str(place / "gone"), "20")
    record = _record((*start, *RUN), (program, str(place / _PROGRAM.name), *words))
    assert _peak_mib(record) < _SLACK_MIB


@pytest.mark.slow
def test_two_views_of_a_file_are_no_used_memory(run_as: _RunAs, program: str, place: Path) -> None:
    (place / "file").write_bytes(bytes(mappings.SIZE))
    words = (program, str(place / _PROGRAM.name), "file", _SECONDS, "2", str(place / "file"))
    record = run_as(*words)
    assert _peak_mib(record) < _SLACK_MIB
    mapped_mib = present(present(record.metrics.memory_mapped_file_mb).max)
    assert mapped_mib < _SIZE_MIB + _SLACK_MIB


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("start", [(), WITHOUT_GROUPS], ids=["in a group", "without a group"])
def test_a_file_that_is_locked_in_memory_is_used(
    start: Sequence[str], program: str, place: Path
) -> None:
    with (place / "file").open("wb") as file:
        file.truncate(mappings.SIZE)  # no page of it is charged to this test's group
    words = (program, str(place / _PROGRAM.name), "locked", _SECONDS, str(place / "file"))
    record = _record((*start, *RUN), words)
    assert _SIZE_MIB <= _peak_mib(record) < _SIZE_MIB + _SLACK_MIB
    mapped_mib = present(present(record.metrics.memory_mapped_file_mb).max)
    assert mapped_mib < _SLACK_MIB


@pytest.mark.slow
def test_below_a_shell_it_counts_once_and_within_a_budget(
    run_as: _RunAs, program: str, place: Path
) -> None:
    words = f"{program} {place / _PROGRAM.name} views {_SECONDS} 3; true"
    record = run_as("sh", "-c", words, options=("--max-memory", f"{_SIZE_MIB + 50}MB"))
    assert _SIZE_MIB <= _peak_mib(record) < _SIZE_MIB + _SLACK_MIB
    _assert_rows_within(record)
    run_as("sh", "-c", words, options=("--max-memory", f"{_SIZE_MIB - 50}MB"), exit_code=3)


@pytest.fixture
def of_root(program: str) -> Iterator[str]:
    """A Python that any user runs as root, whose shares that user may not read."""
    setuid = Path(f"/var/tmp/task-profiler-test-{os.getpid()}-setuid-once")
    shutil.copy(os.path.realpath(program), setuid)
    setuid.chmod(0o4755)
    yield str(setuid)
    setuid.unlink()


@contextmanager
def _most_shared() -> Iterator[Callable[[], float]]:
    """The most shared memory in the group of the tests meanwhile, in MiB: others make some, too."""
    shared, ended = SharedMemory(read_own_cgroups()), threading.Event()
    sizes = [shared.read_now_bytes() or 0]

    def follow() -> None:
        while not ended.wait(0.01):
            sizes.append(shared.read_now_bytes() or 0)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield lambda: max(sizes) / _MIB
    finally:
        ended.set()
        thread.join()
        shared.close()


@pytest.mark.slow
def test_where_the_share_is_not_readable_the_shared_memory_that_there_is_bounds_it(
    run_as: _RunAs, of_root: str, place: Path
) -> None:
    with _most_shared() as most_shared_mib:
        record = run_as(of_root, "-I", "-S", str(place / _PROGRAM.name), "views", _SECONDS, "3")
    warnings = " ".join(
        text for text in present(record.monitor).warnings if "kernel memory" not in text
    )
    is_known = _SIZE_MIB <= _peak_mib(record) < _SIZE_MIB + _SLACK_MIB
    assert is_known or "The memory peak may have been" in warnings
    assert _peak_mib(record) < _SIZE_MIB + _SLACK_MIB
    bounds_mib = map(int, re.findall(r"memory peak may have been (\d+) MB", warnings))
    others_mib = max(most_shared_mib() - _SIZE_MIB, 0)
    assert max(bounds_mib, default=0) < 2 * _SIZE_MIB + others_mib


@pytest.fixture(scope="module")
def sleeper() -> Iterator[tuple[str, ...]]:
    """A Java program with a heap of its full size that sleeps."""
    java, compiler = shutil.which("java"), shutil.which("javac")
    if java is None or compiler is None:
        pytest.skip("needs a JDK")
    with _folder_for_all() as folder:
        (folder / "Sleep.java").write_text(_SLEEP)
        subprocess.run((compiler, "-d", str(folder), str(folder / "Sleep.java")), check=True)
        yield (java, "-cp", str(folder), *_JAVA)


@pytest.mark.slow  # where a JDK is: `make test` runs while it is installed
@pytest.mark.parametrize("collector", ["UseZGC", "UseG1GC"])
def test_java_needs_its_heap_once(run_as: _RunAs, sleeper: tuple[str, ...], collector: str) -> None:
    """ZGC maps its heap three times."""
    record = run_as(*sleeper, f"-XX:+{collector}", "Sleep")
    assert _HEAP_MIB <= _peak_mib(record) < 2 * _HEAP_MIB
    assert present(present(record.metrics.memory_used_mb).p50) < 2 * _HEAP_MIB
    _assert_rows_within(record)


def test_a_kill_far_below_the_limit_is_not_for_memory(program: str, place: Path) -> None:
    """The RSS is 300 MiB in a group of 320."""
    above = read_own_cgroups().location_in("memory")
    if above is None:
        pytest.skip("needs version 1 of the memory controller")
    group = Path(above.folder, f"test-page-counts-once-{os.getpid()}")
    group.mkdir()
    killed = ("timeout", "-s", "KILL", "2.5", program, str(place / _PROGRAM.name), "views")
    command = (*RUN, "--json", "--no-history", "--", *killed, "60", "3")
    enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
    try:
        (group / "memory.limit_in_bytes").write_text(str(320 * _MIB))
        done = subprocess.run(
            ("sh", "-c", enter, "sh", *command),
            check=False,
            capture_output=True,
            timeout=LIMIT_SECONDS,
        )
    finally:
        remove_group(group)
    record = report_of(done.stderr).record
    assert record.exit_code == 137
    assert not record.likely_out_of_memory
    assert _peak_mib(record) < _SIZE_MIB + 3 * _SLACK_MIB


class _RealBatch(Task):
    """A task whose batch has a real process, and statistics of known memory."""

    def _sample(self, name: str) -> dict[str, object]:
        sample = super()._sample(name)
        memory = {
            "rss": 8 * _MIB,
            "cache": _SIZE_MIB * _MIB,  # shared memory, which is in no list of files
            "mapped_file": _SIZE_MIB * _MIB,
            "active_file": 0,
            "inactive_file": 0,
        }
        memory |= {f"total_{key}": size for key, size in memory.items()}
        usage_bytes = (_SIZE_MIB + 8) * _MIB
        sample["memory_stats"] = {"usage": usage_bytes, "stats": memory, "limit": 2**29}
        return sample


@pytest.fixture
def batch_group() -> Iterator[tuple[_RealBatch, Path]]:
    """A control group that has the batch's Docker id, and counts no memory."""
    folder = Path("/sys/fs/cgroup/pids")
    if not folder.is_dir():
        pytest.skip("needs version 1 of the control groups")
    task = _RealBatch(2)
    group = folder / task.docker_id("batch")
    group.mkdir()
    yield task, group
    remove_group(group)


@pytest.mark.slow
def test_the_monitor_beside_the_batchs_processes_counts_it_once(
    aws: FakeAws,
    new_lines: Callable[[], list[dict[str, Any]]],
    batch_group: tuple[_RealBatch, Path],
) -> None:
    task, group = batch_group
    words = (sys.executable, str(_PROGRAM), "views", "1000", "3")
    enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
    with (
        TaskEndpoint(task) as endpoint,
        subprocess.Popen(("sh", "-c", enter, "sh", *words)) as batch,
    ):
        status = Path(f"/proc/{batch.pid}/status")
        mapped = f"RssShmem:\t{3 * _SIZE_MIB * 1024:>8} kB"
        try:
            wait_until(lambda: mapped in status.read_text(), "the mapped memory")
            with Sidecar(aws.environment(), endpoint=endpoint) as sidecar:
                sidecar.wait_for_samples(10)
                batch.kill()
                sidecar.end_batch()
                sidecar.finish()
        finally:
            batch.kill()
    (report,) = new_lines()
    record = report["record"]
    assert "processes" in record["sampling"]["sources"]
    assert record["metrics"]["maxMemoryUsedMB"] == pytest.approx(_SIZE_MIB + 8, abs=4)
    largest_mib = max(row.get("maxMemoryUsedMB", 0) for row in record["processes"])
    assert _SIZE_MIB < largest_mib <= record["metrics"]["maxMemoryUsedMB"]
    assert not record.get("likelyOutOfMemory")
