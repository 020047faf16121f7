"""A program that computes and sleeps uninterruptibly in turn, which is not always for a disk.

python -m tests.programs.uninterruptible WAIT SECONDS FOLDER|PROGRAM
"""

import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.programs.phases import compute, phase, rounds, run_child, started, write_down

_WORK_SECONDS, _WAIT_SECONDS = 0.3, 0.9
_FILE_BYTES, _BLOCK_BYTES = 8 << 20, 4096


def _read_directly(folder: Path) -> None:
    """Reads that take tens of microseconds each."""
    path = folder / "read"
    if not path.exists():
        path.write_bytes(os.urandom(_FILE_BYTES))
        os.sync()
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with phase("disk"), mmap.mmap(-1, _BLOCK_BYTES) as block:
        for number, _ in enumerate(rounds(_WAIT_SECONDS)):
            os.preadv(file, [block], number * 37 * _BLOCK_BYTES % _FILE_BYTES)
    os.close(file)


def _sync(folder: Path) -> None:
    file = os.open(folder / "written", os.O_WRONLY | os.O_CREAT)
    with phase("disk"):
        for number, _ in enumerate(rounds(_WAIT_SECONDS)):
            os.pwrite(file, b"x" * _BLOCK_BYTES, number % 64 * _BLOCK_BYTES)
            os.fsync(file)
    os.close(file)


def _vfork(program: Path) -> None:
    run_child("sleep", str(program), str(_WAIT_SECONDS))


_WAITS: dict[str, Callable[[Path], None]] = {
    function.__name__.removeprefix("_"): function for function in (_read_directly, _sync, _vfork)
}


def main() -> None:
    started()
    for _ in rounds(float(sys.argv[2])):
        compute(_WORK_SECONDS)
        _WAITS[sys.argv[1]](Path(sys.argv[3]))
    write_down()


if __name__ == "__main__":
    main()
