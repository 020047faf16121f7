"""Programs that wait until they have been read wait for no lost inode."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.profiled import python
from tools.waiting import LIMIT_SECONDS, READINGS_OF_FILES, wait_until

_DROPS_CACHES = Path("/proc/sys/vm/drop_caches")
_INODES = "2"


@pytest.mark.skipif(not os.access(_DROPS_CACHES, os.W_OK), reason="needs root to drop caches")
def test_a_reading_is_noticed_after_the_kernel_has_forgotten_the_inode() -> None:
    program = f"{READINGS_OF_FILES}wait_until_read('/proc/self/io', count=1)\n"
    with subprocess.Popen(python(program)) as process:
        folder = Path("/proc", str(process.pid))

        def has_watch() -> bool:
            with suppress(OSError):  # a file that the starting interpreter has closed
                return any(
                    "inotify wd" in info.read_text() for info in (folder / "fdinfo").iterdir()
                )
            return False

        try:
            wait_until(has_watch, "the program's watch")
            _DROPS_CACHES.write_text(_INODES)
            (folder / "io").read_bytes()
            assert process.wait(LIMIT_SECONDS) == 0
        finally:
            process.kill()
