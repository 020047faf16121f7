"""Lets the kernel start arm64 programs with Debian's qemu-user-static, for the length of a
block.
"""

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.engine import CommandFailedError, run_command

# One line in the format of /proc/sys/fs/binfmt_misc/register, from Debian's package
# qemu-user-static. Its flag F opens the emulator at the registration, so that it also works in
# containers, where its path does not exist.
_REGISTRATION = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
_ENTRY = _BINFMT / "qemu-aarch64"


class EmulatorMissingError(Exception):
    """This machine cannot start arm64 programs. The text says what is missing."""


@contextlib.contextmanager
def arm64_programs() -> Iterator[None]:
    """Register the emulator and remove it at the end. An existing registration is used and kept."""
    if platform.machine() == "aarch64":
        yield
        return
    with contextlib.ExitStack() as stack:
        if not (_BINFMT / "register").exists():
            _mount()
            stack.callback(run_command, "umount", str(_BINFMT))
        if not _ENTRY.exists():
            _register()
            stack.callback(_ENTRY.write_text, "-1")
        yield


def _mount() -> None:
    if os.geteuid() != 0:
        raise EmulatorMissingError("mounting binfmt_misc needs root")
    try:
        run_command("mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT))
    except CommandFailedError as error:
        raise EmulatorMissingError(f"the kernel has no binfmt_misc ({error})") from error


def _register() -> None:
    if not _REGISTRATION.exists():
        raise EmulatorMissingError("Debian's package qemu-user-static is not installed")
    if os.geteuid() != 0:
        raise EmulatorMissingError("registering the emulator needs root")
    (_BINFMT / "register").write_text(_REGISTRATION.read_text())
