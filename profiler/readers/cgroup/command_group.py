"""Measures a command in its own control group, if the group can be created without side effects.

It is below the group of this process, so that all limits above still hold. Some programs (the JVM,
.NET, Node) look for limits in their own group only: a memory limit is repeated there; where that
fails, or a CPU limit is, no group is made. A hierarchy that also distributes CPU or I/O is not
used: a new group would change the share that the command gets.

In version 2 every group counts CPU time, and memory if the group above enables that controller, or
can be made to because it is this process's alone. If the profiler is killed, the next one removes
the group when it is empty.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from profiler.core.optional_math import excess, known
from profiler.readers.cgroup.accounting_group import (
    AccountingCgroup,
    CgroupFilesystem,
    Sleep,
    member_pids,
    try_lock,
    try_remove,
)
from profiler.readers.cgroup.hierarchy import (
    CPUACCT,
    MEMORY,
    UNIFIED,
    CgroupLocation,
    ProcessCgroups,
    parse_membership,
)
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.linux import proc
from profiler.readers.memory_usage import MemoryReading

if TYPE_CHECKING:
    from profiler.readers.cgroup.controller_delegation import CgroupDelegation

_PREFIX = "task-profiler-"
_RUN_ID_CHARS = 8
_HEXADECIMAL = frozenset("0123456789abcdef")
_MAKE_TRIES = 3
# Controllers that only count or only limit: a group without a limit has no effect there.
_NEUTRAL_CONTROLLERS = frozenset((MEMORY, CPUACCT, "pids", "hugetlb", "rdma", "misc", UNIFIED))


class CommandCgroup:
    """The groups of one command: none, one, or one each for CPU and memory."""

    name = "cgroup"

    def __init__(
        self,
        groups: Iterable[AccountingCgroup] = (),
        filesystem: CgroupFilesystem | None = None,
        delegation: "CgroupDelegation | None" = None,
    ) -> None:
        self._groups = tuple(groups)
        self._filesystem = filesystem or CgroupFilesystem()
        self._delegation = delegation
        self._baseline_cpu_ns = 0
        self._entered = b""
        self._text_of_member = ""  # of the last process that was in the group of the memory

    def enter_groups(self) -> None:
        """Enter the groups, which may take the kernel 20 ms (version 2).

        The forked process calls this.
        """
        self._entered = b"".join(b"1" if group.move_self_into() else b"0" for group in self._groups)

    def start_counting(self) -> bytes:
        """Let the counters start here, before the forked process executes the command; for
        :meth:`on_started`.

        The message has the interpreter's CPU time, to about 0.1 ms, and the groups entered. The
        memory's mark is reset if the kernel can (version 1, and 2 since Linux 6.12); it has less
        than 256 KiB of the interpreter's.
        """
        # Reading the process's CPU time makes the kernel update the counter, and the group's, too.
        time.process_time_ns()
        base_ns = self._counted_cpu_ns()
        for group in self._groups:
            group.reset_peak()
        return b"%d %s" % (base_ns or 0, self._entered)

    def on_started(self, message: bytes) -> None:
        """Remove the groups that could not be entered, by the message of :meth:`start_counting`."""
        base, _, joined = message.partition(b" ")
        self._baseline_cpu_ns = int(base) if base.isdigit() else 0
        entered: list[AccountingCgroup] = []
        for position, group in enumerate(self._groups):
            if joined[position : position + 1] == b"1":
                entered.append(group)
            else:
                group.remove_group(self._filesystem, time.sleep)
        self._groups = tuple(entered)

    @property
    def is_used(self) -> bool:
        return bool(self._groups)

    @property
    def is_entered_at_once(self) -> bool:
        """Whether a group counts the memory, and the kernel moves a process into the groups
        without a wait.
        """
        hierarchies = {group.hierarchy for group in self._groups}
        return self.counts_memory and UNIFIED not in hierarchies

    @property
    def counts_memory(self) -> bool:
        return any(group.counts_memory for group in self._groups)

    @property
    def has_cpu_accounting(self) -> bool:
        return any(group.counts_cpu for group in self._groups)

    def cpu_ns(self) -> int | None:
        """The CPU time of the command and all its descendants, whether or not a process has
        waited for them.
        """
        return excess(self._counted_cpu_ns(), self._baseline_cpu_ns)

    def read_memory(self) -> MemoryReading | None:
        return known(
            lambda group: group.read_memory_parts(group.read_usage_text()), self._memory_group()
        )

    def swap_bytes(self) -> int | None:
        return known(AccountingCgroup.swap_bytes, self._memory_group())

    def memory_peak_bytes(self) -> int | None:
        return known(AccountingCgroup.mark_bytes, self._memory_group())

    def oom_kills(self) -> int | None:
        return known(AccountingCgroup.oom_kills, self._memory_group())

    def counts_memory_of(self, pid: int) -> bool:
        """Whether the group counts the memory of a process.

        True for a process that has ended: its group is unknown.
        """
        group = self._memory_group()
        if group is None:
            return False
        text = proc.read_text(f"/proc/{pid}/cgroup")
        if text == self._text_of_member:
            return True
        path = parse_membership(text).get(group.hierarchy)
        if path is None or path == group.path or path.startswith(group.path + "/"):
            self._text_of_member = text
            return True
        # Version 1 shows the group / for a process that is ending, from do_exit() on
        # (proc_cgroup_show in the kernel).
        return path == "/" and proc.read_stat(f"/proc/{pid}").is_exiting

    def remove(self, sleep: Sleep) -> None:
        if self._delegation is not None:
            self._delegation.undo_and_forget()
        for group in self._groups:
            group.remove_group(self._filesystem, sleep)
        self._groups = ()
        self._delegation = None

    def _counted_cpu_ns(self) -> int | None:
        return next((group.cpu_ns() for group in self._groups if group.counts_cpu), None)

    def _memory_group(self) -> AccountingCgroup | None:
        return next((group for group in self._groups if group.counts_memory), None)


def make_command_cgroup(
    cgroups: ProcessCgroups, own_pid: int, run_id: str, filesystem: CgroupFilesystem | None = None
) -> CommandCgroup:
    """Create the groups for a command, below those of this process, whose files list it as
    ``own_pid``.
    """
    filesystem = filesystem or CgroupFilesystem()
    name = f"{_PREFIX}{own_pid}-{run_id[:_RUN_ID_CHARS]}"
    groups: list[AccountingCgroup] = []
    delegation = None
    limits = cgroups.smallest_limits()
    for above, counts_cpu, counts_memory in _candidate_locations(cgroups, limits):
        if groups and groups[-1].counts_cpu:
            break
        # If the folder does not list this process, it is not the folder of its group.
        if b"%d" % own_pid not in member_pids(above.folder):
            continue
        _remove_stale_groups(above.folder, filesystem)
        if above.hierarchy == UNIFIED and counts_memory:
            # Version 1 needs none.
            from profiler.readers.cgroup.controller_delegation import delegate_controller

            delegation = delegate_controller(
                above.folder, own_pid, f"{name}-self", MEMORY, filesystem
            )
        open_group = partial(
            AccountingCgroup, above, counts_cpu=counts_cpu, counts_memory=counts_memory
        )
        limit_bytes = limits.memory_bytes if counts_memory else None
        group = _make_group(above.folder, name, open_group, limit_bytes, filesystem)
        if group is not None:
            groups.append(group)
        elif delegation is not None:
            delegation.undo_and_forget()
            delegation = None
    return CommandCgroup(groups, filesystem, delegation)


def _candidate_locations(
    cgroups: ProcessCgroups, limits: ResourceLimits
) -> Iterable[tuple[CgroupLocation, bool, bool]]:
    """Where groups may be created, and whether they count CPU and memory.

    The caller stops when one counts CPU.
    """
    v1_memory = _location_if_neutral(cgroups.location_in(MEMORY))
    v1_cpu = _location_if_neutral(cgroups.location_in(CPUACCT))
    v2 = _location_if_neutral(cgroups.location_in(UNIFIED))
    if v1_memory is not None:
        yield v1_memory, v1_cpu is not None and v1_memory.folder == v1_cpu.folder, True
    if v1_cpu is not None:
        yield v1_cpu, True, False
    if v2 is not None and (limits.vcpu is None or cgroups.has_v1_controller("cpu")):
        yield v2, True, not cgroups.has_v1_controller(MEMORY)


def _location_if_neutral(location: CgroupLocation | None) -> CgroupLocation | None:
    """The location, or None if a new group there would affect the command or other processes."""
    if location is None:
        return None
    enabled_below = proc.read_text(f"{location.folder}/cgroup.subtree_control").split()
    return location if location.controllers.union(enabled_below) <= _NEUTRAL_CONTROLLERS else None


def _make_group(
    above: str,
    name: str,
    open_group: Callable[[str], AccountingCgroup],
    limit_bytes: float | None,
    filesystem: CgroupFilesystem,
) -> AccountingCgroup | None:
    group = None
    for attempt in range(_MAKE_TRIES):
        # Another profiler may remove the group before it is locked, by its name.
        own_name = f"{name}-{attempt}" if attempt else name
        try:
            filesystem.make_folder(f"{above}/{own_name}")
            group = open_group(own_name)
            break
        except OSError:
            try_remove(f"{above}/{own_name}", filesystem)
    if group is not None and limit_bytes is not None and not group.set_memory_limit(limit_bytes):
        group.remove_group(filesystem, time.sleep)
        return None
    return group


def _remove_stale_groups(above: str, filesystem: CgroupFilesystem) -> None:
    """Remove the empty groups of profilers that were killed."""
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(above)  # noqa: PTH208  only names are needed
    for name in names:
        if not _is_of_profiler(name):
            continue
        claim = try_lock(f"{above}/{name}")
        if claim is not None:
            try_remove(f"{above}/{name}", filesystem)
            os.close(claim)


def _is_of_profiler(name: str) -> bool:
    """Whether a group's name is one that :func:`make_command_cgroup` gives: others have empty
    groups, too.
    """
    pid, _, rest = name.removeprefix(_PREFIX).partition("-")
    run_id, *_ = rest.split("-")
    is_run_id = len(run_id) == _RUN_ID_CHARS and set(run_id) <= _HEXADECIMAL
    return name.startswith(_PREFIX) and pid.isdigit() and is_run_id
