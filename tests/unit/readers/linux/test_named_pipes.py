"""What a thread waits for that sleeps interruptibly in a read of a descriptor with a path."""

import os
from pathlib import Path

import pytest

from profiler.readers.linux.named_pipes import kind_of_io_wait

PID = 7
DESCRIPTOR = 3
MOUNTS = "29 1 8:1 / / rw - ext4 /dev/sda rw\n31 29 0:40 / /data rw - {type} source rw\n"


def reading(folder: Path, *, filesystem: str, mount_id: int = 31) -> None:
    """A process that has a named pipe open, in a mount of this type."""
    process = folder / str(PID)
    (process / "fdinfo").mkdir(parents=True)
    (process / "fd").mkdir()
    (process / "mountinfo").write_text(MOUNTS.format(type=filesystem))
    info = f"pos:\t0\nflags:\t0100000\nmnt_id:\t{mount_id}\nino:\t5\n"
    (process / "fdinfo" / str(DESCRIPTOR)).write_text(info)
    os.mkfifo(process / "fd" / str(DESCRIPTOR))


@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "overlay", "tmpfs"])
def test_a_named_pipe_is_a_pipe(tmp_path: Path, filesystem: str) -> None:
    reading(tmp_path, filesystem=filesystem)
    assert kind_of_io_wait(PID, DESCRIPTOR, str(tmp_path)) == "pipe"


@pytest.mark.parametrize("filesystem", ["nfs4", "fuse.s3", "fuse", "cifs", "lustre"])
def test_a_file_system_that_may_sleep_interruptibly_is_not_asked(
    tmp_path: Path, filesystem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading(tmp_path, filesystem=filesystem)
    asked: list[str] = []
    monkeypatch.setattr(os, "stat", asked.append)
    assert kind_of_io_wait(PID, DESCRIPTOR, str(tmp_path)) == "disk"
    assert asked == []


def test_a_mount_that_is_not_listed_is_a_disk(tmp_path: Path) -> None:
    reading(tmp_path, filesystem="ext4", mount_id=99)
    assert kind_of_io_wait(PID, DESCRIPTOR, str(tmp_path)) == "disk"


def test_a_process_that_has_ended_is_a_disk(tmp_path: Path) -> None:
    assert kind_of_io_wait(PID, DESCRIPTOR, str(tmp_path)) == "disk"


def test_a_file_of_the_kernel_is_neither() -> None:
    with Path("/proc/self/status").open() as file:
        assert kind_of_io_wait(os.getpid(), file.fileno()) == "other"
