"""``task-profiler run`` of programs that know what they need: pages of files are not memory used,
mapped or not, and all that the kernel cannot drop is.

The proof is the kernel's: a program whose files are larger than its group runs to its end there.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.record.record_model import Metrics, Record
from tests.integration.profiled import (
    RUN,
    counts_memory,
    entering,
    limited_group,
    python,
    report_of,
    run,
)
from tests.values import present
from tools.waiting import LIMIT_SECONDS, READINGS, READINGS_OF_FILES

_MIB = 2**20
_FILE_MIB = 600
_OWN_MIB = 45  # at most: the interpreter, page tables, what the kernel keeps of the file
_HELD_MIB = 100
_READS = READINGS + READINGS_OF_FILES + "import ctypes, mmap, os, sys\n"
_TOUCHES = """
def touch(pages, turns=1):
    for _ in range(turns):
        for place in range(0, len(pages), 4096): pages[place]
def fill(pages):
    for place in range(0, len(pages), 4096): pages[place] = 1
libc = ctypes.CDLL(None)
def lock(pages):
    place = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert libc.mlock(ctypes.c_void_p(place), ctypes.c_size_t(len(pages))) == 0
"""


def _program(lines: str) -> tuple[str, ...]:
    """It has the file as its argument, and is read ten times after it has done its work, four times
    of them whole: the profiler wakes up for its first quick readings, too.
    """
    ends = "wait_for_readings(10)\nwait_until_read('/proc/self/io', count=4)\n"
    return python(f"{_READS}{_TOUCHES}{lines}\n{ends}")


_OPEN = "file = open(sys.argv[1], 'r+b')\n"
_MAPPED = {
    "like numpy.memmap and LMDB": (
        f"{_OPEN}pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\ntouch(pages, 2)"
    ),
    "like a library": (
        f"{_OPEN}pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, "
        "prot=mmap.PROT_READ | mmap.PROT_EXEC)\ntouch(pages, 2)"
    ),
    "changed": f"{_OPEN}pages = mmap.mmap(file.fileno(), 0)\nfill(pages)\ntouch(pages)",
}
_READ = f"{_OPEN}for _ in range(2):\n    file.seek(0)\n    while file.read(2**20): pass"
_HELD = {
    "anonymous": f"pages = mmap.mmap(-1, {_HELD_MIB} << 20, flags=mmap.MAP_PRIVATE)\nfill(pages)",
    "a copy of a mapped file": (
        f"{_OPEN}pages = mmap.mmap(file.fileno(), {_HELD_MIB} << 20, flags=mmap.MAP_PRIVATE, "
        "prot=mmap.PROT_READ | mmap.PROT_WRITE)\nfill(pages)"
    ),
    "a file in memory that is mapped twice": (
        f"number = os.memfd_create('x')\nos.ftruncate(number, {_HELD_MIB} << 20)\n"
        "views = [mmap.mmap(number, 0) for _ in range(2)]\nfor view in views: fill(view)"
    ),
    "a file in tmpfs": (
        f"path = f'/dev/shm/test-{{os.getpid()}}'\nopen(path, 'wb').write(bytes({_HELD_MIB} << 20))"
        "\nimport atexit\natexit.register(os.unlink, path)"
    ),
    "a segment that nobody has attached": (
        f"number = libc.shmget(0, {_HELD_MIB} << 20, 0o600)\nlibc.shmat.restype = ctypes.c_void_p\n"
        "place = libc.shmat(number, None, 0)\n"
        f"ctypes.memset(place, 1, {_HELD_MIB} << 20)\nlibc.shmdt(ctypes.c_void_p(place))\n"
        "import atexit\natexit.register(libc.shmctl, number, 0, None)"
    ),
    "a locked file": (f"{_OPEN}pages = mmap.mmap(file.fileno(), {_HELD_MIB} << 20)\nlock(pages)"),
}


pytestmark = pytest.mark.skipif(
    not counts_memory(), reason="no control group can be made here that counts memory"
)


@pytest.fixture(autouse=True)
def _history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def file() -> Iterator[Path]:
    """A file without blocks, of which no page is in memory: each page that is read is charged to
    the reader.
    """
    path = Path(f"/var/tmp/task-profiler-mapped-{os.getpid()}")
    with path.open("wb") as empty:
        empty.truncate(_FILE_MIB * _MIB)
    try:
        yield path
    finally:
        path.unlink()


def _mapped_mb(metrics: Metrics) -> float:
    return present(metrics.memory_mapped_file_mb.max)


def _record(*words: str) -> Record:
    finished = run(*words, options=("--interval", "0.1"))
    assert finished.returncode == 0, finished.stderr
    return report_of(finished.stderr).record


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("lines", _MAPPED.values(), ids=_MAPPED.keys())
def test_a_mapped_file_is_not_used_and_said_apart(lines: str, file: Path) -> None:
    metrics = _record(*_program(lines), str(file)).metrics
    assert present(metrics.max_memory_used_mb) < _OWN_MIB
    assert 0.95 * _FILE_MIB < _mapped_mb(metrics) < 1.05 * _FILE_MIB
    assert present(present(metrics.memory_cache_mb).max) > 0.95 * _FILE_MIB
    assert present(metrics.memory_usage_peak_mb) > 0.95 * _FILE_MIB


@pytest.mark.slow
def test_a_file_that_is_read_is_not_mapped(file: Path) -> None:
    metrics = _record(*_program(_READ), str(file)).metrics
    assert present(metrics.max_memory_used_mb) < _OWN_MIB
    assert _mapped_mb(metrics) < 20  # the interpreter's own
    assert present(present(metrics.memory_cache_mb).max) > 0.95 * _FILE_MIB


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("lines", _HELD.values(), ids=_HELD.keys())
def test_what_the_kernel_cannot_drop_is_used_once(lines: str, file: Path) -> None:
    if "lock(" in lines and os.geteuid() != 0:
        pytest.skip("needs root to lock memory")
    record = _record(*_program(lines), str(file))
    metrics = record.metrics
    assert _HELD_MIB < present(metrics.max_memory_used_mb) < _HELD_MIB + _OWN_MIB
    assert not any("locked pages of files" in warning for warning in record.monitor.warnings)
    # A busy machine lets the program take its memory slowly, and it holds it for a part of the run.
    assert present(present(metrics.memory_used_mb).p95) > _HELD_MIB


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("heap_mib", [0, 110])
def test_a_locked_file_that_another_group_has_read_is_a_doubt(file: Path, heap_mib: int) -> None:
    """The kernel charges a page to the group that read it first, here the test's."""
    if os.geteuid() != 0:
        pytest.skip("needs root to lock memory")
    with file.open("rb") as cached:
        assert len(cached.read(_HELD_MIB << 20)) == _HELD_MIB << 20
    lines = f"heap = bytearray(b'x') * ({heap_mib} << 20)\n{_HELD['a locked file']}"
    record = _record(*_program(lines), str(file))
    metrics = record.metrics
    assert present(metrics.max_memory_used_mb) < _OWN_MIB + heap_mib
    held_mib = _HELD_MIB + heap_mib
    # With a small heap, that may be a part of what is locked.
    assert held_mib <= present(metrics.memory_used_bound_mb) < held_mib + _OWN_MIB
    assert record.recommendation.memory_mb is None
    assert any("locked pages of files" in warning for warning in record.monitor.warnings)


@pytest.mark.slow
def test_a_locked_heap_beside_a_mapped_file_is_no_doubt(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to lock memory")
    with file.open("rb") as cached:
        assert len(cached.read(_HELD_MIB << 20)) == _HELD_MIB << 20
    lines = (
        f"heap = mmap.mmap(-1, {_HELD_MIB} << 20, flags=mmap.MAP_PRIVATE)\nlock(heap)\n"
        f"{_OPEN}pages = mmap.mmap(file.fileno(), {_HELD_MIB} << 20)\ntouch(pages)"
    )
    record = _record(*_program(lines), str(file))
    assert _HELD_MIB < present(record.metrics.max_memory_used_mb) < _HELD_MIB + _OWN_MIB
    assert record.metrics.memory_used_bound_mb is None
    assert not any("locked pages of files" in warning for warning in record.monitor.warnings)


_SQLITE = f"""
import sqlite3
base = sqlite3.connect(sys.argv[2])
base.execute("PRAGMA mmap_size = 1073741824")
base.execute("CREATE TABLE rows AS WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 "
    "FROM numbers LIMIT {_HELD_MIB}) SELECT zeroblob(1000000) AS x FROM numbers")
base.commit()
for _ in range(3): base.execute("SELECT sum(length(hex(substr(x, 999000)))) FROM rows").fetchone()
"""


@pytest.mark.slow
def test_a_database_that_sqlite_maps_is_not_used(file: Path, tmp_path: Path) -> None:
    base = Path(f"/var/tmp/{tmp_path.name}-{os.getpid()}.db")
    try:
        metrics = _record(*_program(_SQLITE), str(file), str(base)).metrics
    finally:
        base.unlink()
    assert present(metrics.max_memory_used_mb) < _OWN_MIB
    assert _mapped_mb(metrics) > 0.9 * _HELD_MIB


_KILLED = "wait_for_readings(10)\nos.kill(os.getpid(), 9)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit_mib", "end"), [(64, ""), (128, ""), (256, ""), (512, ""), (64, _KILLED), (256, _KILLED)]
)
def test_a_program_needs_no_more_in_a_small_group(limit_mib: int, end: str, file: Path) -> None:
    words = _program(f"{_MAPPED['like numpy.memmap and LMDB']}\n{end}")
    command = (*RUN, "--json", "--interval", "0.1", "--", *words, str(file))
    with limited_group(limit_mib) as group:
        done = subprocess.run(
            entering(group, *command), check=False, capture_output=True, timeout=LIMIT_SECONDS
        )
        kills = (group / "memory.oom_control").read_text().split()[-1]
    assert kills == "0"
    record = report_of(done.stderr).record
    assert record.exit_code == (137 if end else 0)
    assert record.likely_out_of_memory is False
    metrics = record.metrics
    assert metrics.memory_size_mb == limit_mib
    assert present(metrics.max_memory_used_mb) < _OWN_MIB
    assert _mapped_mb(metrics) > 0.3 * limit_mib
    advised = record.recommendation
    assert (advised.memory_mb or 0) <= limit_mib


_FREES_LAZILY = f"""
pages = mmap.mmap(-1, {_HELD_MIB} << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
fill(pages)
wait_for_readings(10)
pages.madvise(8)  # MADV_FREE
wait_for_readings(20)
"""


def test_lazily_freed_memory_is_used_until_it_is_freed(file: Path) -> None:
    metrics = _record(*_program(_FREES_LAZILY), str(file)).metrics
    assert present(metrics.max_memory_used_mb) > _HELD_MIB
    assert present(present(metrics.memory_used_mb).p50) < _OWN_MIB
    assert _mapped_mb(metrics) < 20
