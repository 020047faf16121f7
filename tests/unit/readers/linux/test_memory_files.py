"""The files in memory that a process writes, as this process does here."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux.memory_files import MemoryMounts, WrittenMemoryFiles, read_memory_mounts

_MIB = 2**20
_ALL_MIB = 100
_OWN = (os.getpid(),)


@pytest.fixture
def path() -> Iterator[Path]:
    """A path in tmpfs."""
    folder = Path("/dev/shm")
    if not folder.is_dir() or folder.stat().st_dev not in read_memory_mounts().devices:
        pytest.skip("/dev/shm is no tmpfs here")
    path = folder / f"task-profiler-test-{os.getpid()}"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def files() -> WrittenMemoryFiles:
    return WrittenMemoryFiles(time.time_ns(), read_memory_mounts)


def _held_mib(files: WrittenMemoryFiles, growth_mib: int = _ALL_MIB) -> float:
    files.find_open_files(_OWN, lambda: growth_mib * _MIB)
    return files.held_bytes() / _MIB


def test_an_open_file_counts_until_it_is_deleted_and_closed(
    files: WrittenMemoryFiles, path: Path
) -> None:
    with path.open("wb", buffering=0) as writing:
        writing.write(bytes(3 * _MIB))
        assert _held_mib(files) == 3
    assert _held_mib(files) == 3, "closed"
    with path.open("r+b"):
        path.unlink()
        assert _held_mib(files) == 3, "deleted and open"
    assert _held_mib(files) == 0


def test_a_file_that_was_seen_grows_after_it_is_closed(
    files: WrittenMemoryFiles, path: Path
) -> None:
    with path.open("wb", buffering=0) as writing:
        writing.write(bytes(_MIB))
        assert _held_mib(files) == 1
    with path.open("ab", buffering=0) as writing:
        writing.write(bytes(_MIB))
    assert files.held_bytes() == 2 * _MIB


def test_a_file_without_a_name_counts(files: WrittenMemoryFiles) -> None:
    descriptor = os.memfd_create("test")
    os.write(descriptor, bytes(2 * _MIB))
    assert _held_mib(files) == 2
    os.close(descriptor)
    assert files.held_bytes() == 0


def test_a_file_without_a_name_counts_by_the_descriptor_of_another_process(
    files: WrittenMemoryFiles,
) -> None:
    """A child that inherits it and ends: a look finds it again."""
    descriptor = os.memfd_create("test")
    os.write(descriptor, bytes(2 * _MIB))
    with subprocess.Popen(("sleep", "1000"), pass_fds=(descriptor,)) as child:
        files.find_open_files((child.pid,), lambda: _ALL_MIB * _MIB)
        child.kill()
    assert files.held_bytes() == 0
    assert files.has_lost
    assert _held_mib(files) == 2
    assert not files.has_lost
    os.close(descriptor)


def test_a_lost_file_waits_for_the_next_look_as_long_as_that_takes(
    files: WrittenMemoryFiles,
) -> None:
    """A child that inherits it ends, and the budget allows no look for some readings; what was
    there before stays out.
    """
    descriptor = os.memfd_create("test")
    os.write(descriptor, bytes(3 * _MIB))
    with subprocess.Popen(("sleep", "1000"), pass_fds=(descriptor,)) as child:
        files.find_open_files((child.pid,), lambda: 2 * _MIB)
        child.kill()
    for _ in range(3):
        assert files.held_bytes() == 0, "no process is known to have it"
        assert files.has_lost
    os.write(descriptor, bytes(_MIB))
    assert _held_mib(files) == 3, "2 MiB, and 1 that was written since"
    os.close(descriptor)
    assert files.held_bytes() == 0
    assert files.has_lost
    assert _held_mib(files) == 0
    assert not files.has_lost, "nobody has it"


@pytest.mark.parametrize("growth_mib", [0, 1, _ALL_MIB])
def test_a_file_that_is_found_again_counts_whatever_others_freed_meanwhile(
    files: WrittenMemoryFiles, growth_mib: int
) -> None:
    """A child that inherits it ends, after others have freed as much as it has."""
    descriptor = os.memfd_create("test")
    os.write(descriptor, bytes(3 * _MIB))
    with subprocess.Popen(("sleep", "1000"), pass_fds=(descriptor,)) as child:
        files.find_open_files((child.pid,), lambda: 2 * _MIB)
        assert files.held_bytes() == 2 * _MIB, "1 MiB was there before"
        child.kill()
    new = os.memfd_create("test")
    os.write(new, bytes(5 * _MIB))
    room_mib = min(max(growth_mib - 2, 0), 5)
    assert _held_mib(files, growth_mib) == 2 + room_mib
    assert not files.has_lost
    os.close(descriptor)
    os.close(new)
    assert _held_mib(files, growth_mib) == 0
    other = os.memfd_create("test")
    os.write(other, bytes(3 * _MIB))
    assert _held_mib(files, growth_mib) == min(growth_mib, 3), "a new file is in the growth"
    os.close(other)


def test_another_file_with_the_same_name_does_not_count(
    files: WrittenMemoryFiles, path: Path
) -> None:
    with path.open("wb", buffering=0) as writing:
        writing.write(bytes(_MIB))
        files.find_open_files(_OWN, lambda: _ALL_MIB * _MIB)
    path.with_suffix(".new").write_bytes(bytes(2 * _MIB))
    path.with_suffix(".new").replace(path)
    assert files.held_bytes() == 0


def test_a_file_that_is_only_read_does_not_count(files: WrittenMemoryFiles, path: Path) -> None:
    path.write_bytes(bytes(_MIB))
    with path.open("rb"):
        assert _held_mib(files) == 0


def test_a_file_that_was_not_written_since_the_start_does_not_count(path: Path) -> None:
    files = WrittenMemoryFiles(time.time_ns() + 60 * NS_PER_SECOND, read_memory_mounts)
    with path.open("wb", buffering=0) as writing:
        writing.write(bytes(_MIB))
        assert _held_mib(files) == 0


def test_what_exceeds_all_growth_was_there_before(files: WrittenMemoryFiles, path: Path) -> None:
    path.write_bytes(bytes(5 * _MIB))
    with path.open("ab", buffering=0) as writing:
        writing.write(bytes(2 * _MIB))
        assert _held_mib(files, growth_mib=2) == 2
        writing.write(bytes(2 * _MIB))
        assert _held_mib(files) == 4


def test_what_is_written_before_the_growth_is_read_was_not_there_before(
    files: WrittenMemoryFiles, path: Path
) -> None:
    with path.open("wb", buffering=0) as writing:
        writing.write(bytes(_MIB))

        def growth_bytes() -> int:
            writing.write(bytes(3 * _MIB))
            return 4 * _MIB

        files.find_open_files(_OWN, growth_bytes)
        assert files.held_bytes() == 4 * _MIB


def test_known_files_leave_room_for_new_ones(files: WrittenMemoryFiles) -> None:
    """200 files are followed, in whichever looks they are found."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    descriptors: list[int] = []
    held: list[int] = []
    for number in (120, 60, 60):
        for _ in range(number):
            descriptors.append(os.memfd_create("test"))
            os.write(descriptors[-1], bytes(page_bytes))
        files.find_open_files(_OWN, lambda: _ALL_MIB * _MIB)
        held.append(files.held_bytes() // page_bytes)
    for descriptor in descriptors:
        os.close(descriptor)
    assert held == [120, 180, 200]


def test_a_file_on_a_disk_does_not_count() -> None:
    files = WrittenMemoryFiles(time.time_ns(), lambda: MemoryMounts(frozenset()))
    descriptor = os.memfd_create("test")
    os.write(descriptor, bytes(_MIB))
    assert _held_mib(files) == 0
    os.close(descriptor)


def test_a_file_on_another_file_system_is_not_looked_at(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``stat`` of a file on a network that does not answer would not return."""
    mounts = MemoryMounts(
        devices=read_memory_mounts().devices,
        places=((f"{tmp_path}/", False), (f"{path.parent}/", True), ("/", False)),
    )
    files = WrittenMemoryFiles(time.time_ns(), lambda: mounts)
    statuses = []

    def noted(place: str, **options: bool) -> os.stat_result:
        statuses.append(str(Path(place).readlink()) if place.startswith("/proc/") else place)
        return status(place, **options)

    status = os.stat
    with (tmp_path / "elsewhere").open("wb"), path.open("wb", buffering=0) as writing:
        writing.write(bytes(_MIB))
        monkeypatch.setattr(os, "stat", noted)
        held_mib = _held_mib(files)
        monkeypatch.undo()
    assert held_mib == 1
    assert set(statuses) == {str(path)}


def test_a_mount_inside_of_tmpfs_is_not_in_memory() -> None:
    mounts = MemoryMounts(
        devices=frozenset(), places=(("/tmp/share/", False), ("/tmp/", True), ("/", False))
    )
    assert mounts.may_hold("/tmp/file")
    assert mounts.may_hold("/memfd:buffer (deleted)")
    assert not mounts.may_hold("/tmp/share/file")
    assert not mounts.may_hold("/tmpfile")
    assert not mounts.may_hold("socket:[1]")
