"""The delegation of a controller (version 2) to the groups below this process's own one."""

import os
import signal
from contextlib import suppress
from typing import NoReturn

from profiler.core.files import dup_above_standard_streams
from profiler.readers.cgroup.accounting_group import (
    CALLING_PROCESS,
    PROCS_FILE,
    CgroupFilesystem,
    member_pids,
    try_remove,
    try_write,
)
from profiler.readers.linux import proc

_SUBTREE_CONTROL = "cgroup.subtree_control"
_INIT_PID = 1


class CgroupDelegation:
    """Moves this process to a leaf below its own group, which meanwhile enables a controller for
    the groups below it.

    Meanwhile version 2 lets no process enter the group itself (EBUSY): a helper reverts it if this
    process is killed.
    """

    def __init__(
        self, group: str, leaf: str, controller: str, filesystem: CgroupFilesystem
    ) -> None:
        self._group = group
        self._leaf = leaf
        self._controller = controller
        self._filesystem = filesystem
        self._helper: tuple[int, int] | None = None

    def enable(self, *, with_helper: bool) -> bool:
        """Enable the controller; False if the kernel refuses.

        The first process of a container needs no helper.
        """
        if not try_write(f"{self._leaf}/{PROCS_FILE}", CALLING_PROCESS) or (
            with_helper and not self._start_helper()
        ):
            return False
        return try_write(f"{self._group}/{_SUBTREE_CONTROL}", f"+{self._controller}".encode())

    def undo_and_forget(self) -> None:
        if self._helper is not None:
            pid, writer = self._helper
            self._helper = None
            # The helper was killed, and reaped with the command's orphans.
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            os.close(writer)
        self._undo_delegation()

    def _undo_delegation(self) -> None:
        try_write(f"{self._group}/{_SUBTREE_CONTROL}", f"-{self._controller}".encode())
        try_write(f"{self._group}/{PROCS_FILE}", CALLING_PROCESS)
        try_remove(self._leaf, self._filesystem)

    def _start_helper(self) -> bool:
        """Fork a process that waits for the end of this process, which closes the other end of
        the pipe.
        """
        reader, writer = (dup_above_standard_streams(descriptor) for descriptor in os.pipe())
        try:
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            return False
        if pid == 0:
            self._undo_after_parent(reader)
        os.close(reader)
        self._helper = pid, writer
        return True

    def _undo_after_parent(self, reader: int) -> NoReturn:
        """Undo the change when this process's parent has ended.

        The process holds no file of the parent meanwhile.
        """
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            os.setsid()  # signals of the terminal are not for this process
            for descriptor in proc.numeric_entries("/proc/self/fd"):
                if descriptor != reader:
                    with suppress(OSError):
                        os.close(descriptor)
            os.read(reader, 1)
            self._undo_delegation()
        finally:
            os._exit(0)


def delegate_controller(
    group: str, own_pid: int, name: str, controller: str, filesystem: CgroupFilesystem
) -> CgroupDelegation | None:
    """Enable ``controller`` below this process's group, from a leaf; None if that cannot be:
    nothing is changed.
    """
    available = proc.read_text(f"{group}/cgroup.controllers").split()
    enabled = proc.read_or_none(f"{group}/{_SUBTREE_CONTROL}")
    if (
        controller not in available
        or enabled is None
        or enabled.split()
        or not _is_exclusive(group, own_pid)
    ):
        return None
    leaf = f"{group}/{name}"
    try:
        filesystem.make_folder(leaf)
    except OSError:
        return None
    delegation = CgroupDelegation(group, leaf, controller, filesystem)
    if delegation.enable(with_helper=own_pid != _INIT_PID):
        return delegation
    delegation.undo_and_forget()
    return None


def _is_exclusive(group: str, own_pid: int) -> bool:
    if member_pids(group) != (b"%d" % own_pid,):
        return False
    try:
        with os.scandir(group) as entries:
            has_groups = any(entry.is_dir() for entry in entries)
    except OSError:
        return False
    return not has_groups and (own_pid == _INIT_PID or _has_delegate_xattr(group))


def _has_delegate_xattr(group: str) -> bool:
    """Whether systemd has marked the group as delegated."""
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False
