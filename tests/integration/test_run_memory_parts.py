"""``task-profiler run`` against what the kernel says of the command's own control group: each page
counts once, and nothing counts that the kernel would drop.

Each program prints the group's counters at the time of its largest use.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from profiler.record.record_model import NO_RECOMMENDATION, Record
from tests.integration.profiled import alone, counts_memory, python, report_of, run
from tests.values import present
from tools.waiting import READINGS

_MIB = 2**20
_SLACK_MIB = 16  # the interpreter, and what it needs meanwhile


pytestmark = pytest.mark.skipif(
    not counts_memory(), reason="no control group can be made here that counts memory"
)

# Prints the counters of its own group: of version 1, else of version 2.
_COUNTERS = f"""{READINGS}
import json, sys
def print_counters():
    paths = dict(line.strip().split(":", 2)[1:] for line in open("/proc/self/cgroup"))
    v1 = "/sys/fs/cgroup/memory" + paths.get("memory", "")
    folder = v1 if "memory" in paths else "/sys/fs/cgroup" + paths[""]
    stat = dict(line.split() for line in open(folder + "/memory.stat"))
    names = ("total_shmem", "total_rss", "total_cache") if "memory" in paths else (
        "shmem", "anon", "file")
    print(json.dumps(dict(zip(("shmem", "anonymous", "cache"), [int(stat[n]) for n in names]))))
    sys.stdout.flush()
"""
_SHARED_MIB, _FILE_MIB = 100, 200
_SHARED_AND_FILE = f"""{_COUNTERS}
import mmap
shared = mmap.mmap(-1, {_SHARED_MIB << 20})
for place in range(0, len(shared), 4096): shared[place] = 1
with open(sys.argv[1], "rb", buffering=0) as file:
    for turn in range(2):
        file.seek(0)
        while file.read(2**20): pass
wait_for_readings(10)
print_counters()
"""
_FREES_LAZILY = f"""{_COUNTERS}
import mmap
pages = mmap.mmap(-1, {_SHARED_MIB << 20}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for place in range(0, len(pages), 4096): pages[place] = 1
pages.madvise(8)  # MADV_FREE
wait_for_readings(10)
print_counters()
"""
_DELETES = """
import os
def write(path):
    with open(path, "wb", buffering=0) as file:
        for _ in range(50): file.write(bytes(2**20))
"""
_PRINTS_IO = """
with open("/proc/self/io") as file: print(file.read().replace(": ", " "))
"""


@pytest.fixture(autouse=True)
def _history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def file_on_disk() -> Iterator[Path]:
    """A file of which no page is in memory: the first reader's group is charged."""
    path = Path(f"/var/tmp/task-profiler-test-{os.getpid()}")
    with path.open("wb") as writing:
        for _ in range(_FILE_MIB):
            writing.write(os.urandom(_MIB))
        writing.flush()
        os.fsync(writing.fileno())
        os.posix_fadvise(writing.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        yield path
    finally:
        path.unlink()


@pytest.fixture
def disk_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The current folder is on a disk: the kernel counts no writes to tmpfs."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        monkeypatch.chdir(folder)
        yield


def _run(*words: str) -> tuple[Record, str]:
    finished = run(*words, options=("--interval", "0.1"))
    assert finished.returncode == 0, finished.stderr
    return report_of(finished.stderr).record, finished.stdout.decode()


def _mib(counters: Mapping[str, int], name: str) -> float:
    return counters[name] / _MIB


@pytest.mark.slow
def test_shared_memory_counts_once_beside_a_file_that_was_read(file_on_disk: Path) -> None:
    record, printed = _run(*python(_SHARED_AND_FILE), str(file_on_disk))
    counters = json.loads(printed)
    needed_mib = _mib(counters, "shmem") + _mib(counters, "anonymous")
    assert _mib(counters, "cache") >= _SHARED_MIB + 0.9 * _FILE_MIB  # the file is in the group
    peak_mib = present(record.metrics.max_memory_used_mb)
    assert needed_mib <= peak_mib < needed_mib + _SLACK_MIB
    assert present(record.metrics.memory_usage_peak_mb) > needed_mib + 0.9 * _FILE_MIB


def test_lazily_freed_memory_is_no_page_cache() -> None:
    """It can be dropped, but was used: the group's mark without page cache is the peak."""
    record, printed = _run(*python(_FREES_LAZILY))
    counters = json.loads(printed)
    assert _mib(counters, "cache") < _SLACK_MIB
    metrics = record.metrics
    assert present(metrics.max_memory_used_mb) >= _SHARED_MIB
    assert present(metrics.memory_usage_peak_mb) < _SHARED_MIB + _SLACK_MIB
    assert present(present(metrics.memory_cache_mb).max) >= 0.9 * _SHARED_MIB
    assert present(present(metrics.memory_mapped_file_mb).max) < _SLACK_MIB


def _walked_folder(folder: Path) -> Path:
    """16,000 files, without their inodes and directory entries in memory where that may be
    arranged.
    """
    for number in range(16):
        below = folder / f"{number:02}"
        below.mkdir(parents=True)
        for name in range(1000):
            os.mknod(f"{below}/{name:04}")
    return folder


def _drops_of_entries() -> int:
    """How often the kernel has looked for inodes and directory entries to drop."""
    counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counters["slabs_scanned"]) + int(counters["drop_slab"])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to empty the kernel's caches")
def test_directory_entries_that_can_be_dropped_are_not_needed(tmp_path: Path) -> None:
    """find holds 8 MB, and runs in a group of so much: the rest is inodes and their names.

    Where the kernel puts them into memory that other programs have left, the machine has hardly
    more of them, and version 1 of the groups shows nothing: then the record says so.
    """
    folder = _walked_folder(Path(f"/var/tmp/{tmp_path.name}-{os.getpid()}"))
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("2")
        drops_before = _drops_of_entries()
        walk = f"find {folder} -ls > /dev/null; sleep 1"
        record, _ = _run("sh", "-c", f"{walk}; exec true")
    finally:
        shutil.rmtree(folder)
    metrics = record.metrics
    used_mib = present(metrics.max_memory_used_mb)
    usage_mib = present(metrics.memory_usage_peak_mb)
    if usage_mib <= 18 and _drops_of_entries() > drops_before:
        pytest.skip("the kernel has dropped entries during the walk")
    assert usage_mib > 18  # a kilobyte for each file
    average_mib = present(present(metrics.memory_used_mb).avg)
    is_marked = any("kernel memory" in warning for warning in present(record.monitor).warnings)
    is_known = used_mib < usage_mib and average_mib < 0.6 * usage_mib
    assert is_known or is_marked


_PIPES = f"""{READINGS}
import fcntl, os
ends = []
for _ in range(100):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, 1031, 2**20)  # F_SETPIPE_SZ
    os.set_blocking(writer, False)
    try:
        while True: os.write(writer, bytes(65536))
    except BlockingIOError: ends.append((reader, writer))
wait_for_readings(10)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for large pipes")
def test_the_kernels_memory_in_pipes_is_needed() -> None:
    with alone("kernel-memory"):
        record, _ = _run(*python(_PIPES))
    assert present(record.metrics.max_memory_used_mb) > 100
    if Path("/sys/fs/cgroup/memory").is_dir():
        assert any("kernel memory" in text for text in present(record.monitor).warnings)


_TCP = f"""{READINGS}
import socket
server = socket.create_server(("127.0.0.1", 0))
ends = []
queued = 0
while queued < 120 << 20:
    writer = socket.create_connection(server.getsockname())
    ends += [writer, server.accept()[0]]
    writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    writer.setblocking(False)
    refusals = 0
    while refusals < 3:
        try:
            queued += writer.send(bytes(65536))
            refusals = 0
        except BlockingIOError:
            refusals += 1
            time.sleep(0.001)
wait_for_readings(20)
"""


_UDP = f"""{READINGS}
import socket
ends = []
for _ in range(700):
    reader = socket.socket(type=socket.SOCK_DGRAM)
    reader.bind(("127.0.0.1", 0))
    writer = socket.socket(type=socket.SOCK_DGRAM)
    writer.connect(reader.getsockname())
    for _ in range(20): writer.send(bytes(8000))
    writer.close()
    ends.append(reader)
wait_for_readings(20)
"""
_RING = f"""{READINGS}
import mmap, socket, struct
ring = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
block = 2**20
ring.setsockopt(263, 5, struct.pack("IIII", block, 100, 2048, 100 * (block // 2048)))
pages = mmap.mmap(ring.fileno(), 100 * block)
for at in range(0, len(pages), 4096): pages[at] = 0
wait_for_readings(20)
"""


@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/memory").is_dir(), reason="version 2 counts the queues of sockets"
)
@pytest.mark.parametrize("program", [_TCP, _UDP])
def test_queues_of_sockets_which_version_1_does_not_count_are_a_warning_and_no_value(
    program: str,
) -> None:
    _is_warned_of(program)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes packet sockets")
def test_packet_rings_which_no_group_counts_are_a_warning_and_no_value() -> None:
    assert _is_warned_of(_RING) >= 100


def _is_warned_of(program: str) -> float:
    """The most that the program may have used, in MiB."""
    with alone("kernel-memory"):
        record, _ = _run(*python(program))
    assert present(record.metrics.max_memory_used_mb) < 60
    assert record.metrics.memory_peak_source == "sampled"
    assert any("kernel memory grew" in text for text in present(record.monitor).warnings)
    assert record.recommendation == NO_RECOMMENDATION
    return present(record.metrics.memory_used_bound_mb)


_WRITES_PARTS = """
import os
with open("table", "w+b") as file:
    for _ in range(64):
        file.write(bytes(2**20))
    file.flush()
    os.fsync(file.fileno())
    for part in range({parts}):
        os.pwrite(file.fileno(), bytes(8192), part * 640_000 // 8192 * 8192)
        os.fdatasync(file.fileno())
"""


@pytest.mark.usefixtures("disk_folder")
def test_a_file_that_is_deleted_before_it_reached_a_disk_was_not_written() -> None:
    own = f"{_DELETES}write('own')\nos.unlink('own'){_PRINTS_IO}"
    record, printed = _run(*python(own))
    counters = dict(line.split() for line in printed.splitlines() if line)
    stored_bytes = int(counters["write_bytes"]) - int(counters["cancelled_write_bytes"])
    assert int(counters["write_bytes"]) >= 50 * _MIB
    assert abs(present(record.metrics.block_write_bytes) - stored_bytes) < _MIB


@pytest.mark.usefixtures("disk_folder")
@pytest.mark.parametrize("parts", [0, 100])
def test_bytes_written_are_not_more_than_a_program_wrote_without_a_word(parts: int) -> None:
    """The kernel may count a whole large page for each write to a part of it (Linux 6.16, ext4)."""
    record, _ = _run(*python(_WRITES_PARTS.format(parts=parts)))
    wrote_bytes = 64 * _MIB + parts * 8192
    warnings = present(record.monitor).warnings
    is_marked = any("may be too high" in one for one in warnings)
    more_bytes = present(record.metrics.block_write_bytes) - wrote_bytes
    assert (more_bytes < _MIB and not is_marked) or (is_marked and parts)


@pytest.mark.usefixtures("disk_folder")
def test_a_child_may_delete_what_another_child_wrote() -> None:
    interpreter, option, code = python(f"{_DELETES}write('childs')")
    deletes = '"$@"; sh -c "rm childs"; true'
    record, _ = _run("sh", "-c", deletes, "sh", interpreter, option, code)
    assert present(record.metrics.block_write_bytes) < 10 * _MIB
    kept, _ = _run("sh", "-c", '"$@"; true', "sh", interpreter, option, code)
    assert present(kept.metrics.block_write_bytes) >= 50 * _MIB
