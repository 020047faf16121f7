"""A control group of the command's own, wherever one can be made without changing anything for anybody.

It is made below the group that this process is in, so that every limit from there upwards holds
as before. Programs that look for their limits (the JVM, .NET, Node) may look in their own group
only: a memory limit is repeated there, and where one cannot be, or a CPU limit stands in the same
hierarchy, there is no group. Version 1 has a hierarchy for each controller: a group is
made in those of ``memory`` and ``cpuacct``. In version 2 every group counts CPU time; memory it
counts where the group above hands that controller down, or can be made to because it is ours
alone (see :mod:`profiler.sources.cgroup_delegation`). A hierarchy that also shares out CPU or I/O
is left alone: there a group of its own would change how much the command gets.

What fails (no rights, a read-only mount, a kernel that refuses) leaves things as they were. If
the profiler is killed, the command goes on in its group; the next profiler there removes what is
empty by then.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from profiler.sources import proc
from profiler.sources.cgroup import UNIFIED, CgroupLocation, Cgroups, parse_membership
from profiler.sources.cgroup_counters import V1_CPU, V1_MEMORY, V2_CPU, V2_MEMORY, MemoryReading
from profiler.sources.cgroup_delegation import CgroupDelegation, delegate_controller
from profiler.sources.counting_group import (
    AccountingCgroup,
    CgroupFilesystem,
    Counters,
    KernelCgroupFilesystem,
    Sleep,
    member_pids,
    try_lock,
    try_remove,
)

_PREFIX = "task-profiler-"
_LEAF_SUFFIX = "-self"
_MEMORY, _CPU = "memory", "cpuacct"
# Controllers that only count or only limit: a group below without a limit changes nothing there.
_NEUTRAL_CONTROLLERS = frozenset((_MEMORY, _CPU, "pids", "hugetlb", "rdma", "misc", UNIFIED))


class CommandCgroup:
    """The groups of one command: none, one, or one for CPU and one for memory."""

    name = "cgroup"

    def __init__(
        self,
        groups: Iterable[AccountingCgroup] = (),
        filesystem: CgroupFilesystem | None = None,
        delegation: CgroupDelegation | None = None,
    ) -> None:
        self._groups = tuple(groups)
        self._filesystem = filesystem or KernelCgroupFilesystem()
        self._delegation = delegation
        self._baseline_cpu_ns = 0

    def join(self) -> bytes:
        """For the command's process just before it executes the command: into the groups, and say which.

        The answer also holds the CPU time counted so far, which is the forked interpreter's: the
        command's begins there, to about 0.1 ms. The memory's high-water mark is set back, where
        the kernel lets us (version 1, and version 2 since Linux 6.12). The pages that the
        interpreter has written since it joined are still in it, until the command replaces them.
        They are fewer than the 256 KiB that the kernel takes from a group at a time for each
        CPU, which is as fine as its counter is.
        """
        joined = [group.enter() for group in self._groups]
        # Asking for the process's own CPU time has the kernel settle it, with the group too.
        time.process_time_ns()
        base_ns = next((group.cpu_ns() for group in self._groups if group.cpu is not None), None)
        for group in self._groups:
            group.reset_peak()
        return b"%d %s" % (base_ns or 0, b"".join(b"1" if entered else b"0" for entered in joined))

    def on_started(self, answer: bytes) -> None:
        """Hear what :meth:`join` said; groups that could not be joined are removed."""
        base, _, joined = answer.partition(b" ")
        self._baseline_cpu_ns = int(base) if base.isdigit() else 0
        entered = tuple(group for group, flag in zip(self._groups, joined, strict=False) if flag == ord("1"))
        for group in self._groups:
            if group not in entered:
                group.remove(self._filesystem, _no_sleep)
        self._groups = entered

    @property
    def is_used(self) -> bool:
        """Whether the command is in any group of its own."""
        return bool(self._groups)

    @property
    def has_cpu_accounting(self) -> bool:
        """Whether a group counts the command's CPU time."""
        return any(group.cpu is not None for group in self._groups)

    def cpu_ns(self) -> int | None:
        """The CPU time of all that ever ran in the group, whoever waited for it."""
        counted = (group.cpu_ns() for group in self._groups if group.cpu is not None)
        counted_ns = next(counted, None)
        return None if counted_ns is None else max(counted_ns - self._baseline_cpu_ns, 0)

    def memory(self) -> MemoryReading | None:
        """The group's memory now."""
        group = self._memory_group()
        return None if group is None else group.memory_now()

    def memory_peak_bytes(self) -> int | None:
        """The kernel's high-water mark of the group, page cache included."""
        group = self._memory_group()
        return None if group is None else group.memory_peak_bytes()

    def oom_kills(self) -> int | None:
        """How many processes of the group were killed for want of memory."""
        group = self._memory_group()
        return None if group is None else group.oom_kills()

    def contains(self, pid: int) -> bool:
        """Whether a process's memory counts here. True if it is gone: nothing can be told of it then."""
        group = self._memory_group()
        if group is None:
            return False
        membership = (proc.read(f"/proc/{pid}/cgroup") or b"").decode(errors="replace")
        path = parse_membership(membership).get(group.hierarchy)
        return path is None or path == group.path or path.startswith(group.path + "/")

    def remove(self, sleep: Sleep) -> None:
        """Remove the groups. What still runs in them goes back to where the command was started."""
        if self._delegation is not None:
            self._delegation.revert()
        for group in self._groups:
            group.remove(self._filesystem, sleep)
        self._groups, self._delegation = (), None

    def _memory_group(self) -> AccountingCgroup | None:
        return next((group for group in self._groups if group.memory is not None), None)


class _Candidate(Struct, frozen=True, kw_only=True):
    """A group that would be of use."""

    hierarchy: str
    location: CgroupLocation
    counters: Counters
    memory_limit_bytes: int | None = None


def make_command_cgroup(
    cgroups: Cgroups, own_pid: int, run_id: str, filesystem: CgroupFilesystem | None = None
) -> CommandCgroup:
    """Groups for a command of the process ``own_pid``, which ``cgroups`` tells where it is."""
    filesystem = filesystem or KernelCgroupFilesystem()
    name = f"{_PREFIX}{own_pid}-{run_id[:8]}"
    groups: list[AccountingCgroup] = []
    delegation = None
    for candidate in _candidates(cgroups):
        if groups and any(group.cpu is not None for group in groups):
            break
        # A folder that does not list us is another process's, however it came about.
        if b"%d" % own_pid not in member_pids(candidate.location.folder):
            continue
        _remove_stale_groups(candidate.location.folder, filesystem)
        if candidate.counters.memory is V2_MEMORY:
            delegation = delegate_controller(
                candidate.location.folder, own_pid, name + _LEAF_SUFFIX, _MEMORY, filesystem
            )
        made = _make_group(candidate, name, filesystem)
        if made is not None:
            groups.append(made)
        elif delegation is not None:
            delegation.revert()
            delegation = None
    return CommandCgroup(groups, filesystem, delegation)


def _candidates(cgroups: Cgroups) -> Iterable[_Candidate]:
    """Where a group might be made: for memory, then for CPU, the best first, until one counts CPU."""
    limits = cgroups.limits()
    v1_memory, v1_cpu, v2 = (
        _location_if_neutral(cgroups.location(hierarchy)) for hierarchy in (_MEMORY, _CPU, UNIFIED)
    )
    if v1_memory is not None and _uses_hierarchy(v1_memory):
        cpu = V1_CPU if v1_memory == v1_cpu else None
        yield _Candidate(
            hierarchy=_MEMORY,
            location=v1_memory,
            counters=Counters(cpu=cpu, memory=V1_MEMORY),
            memory_limit_bytes=limits.memory_bytes,
        )
    if v1_cpu is not None:
        yield _Candidate(hierarchy=_CPU, location=v1_cpu, counters=Counters(cpu=V1_CPU))
    if v2 is not None and (limits.vcpu is None or cgroups.has_v1_controller("cpu")):
        if cgroups.has_v1_controller(_MEMORY):
            yield _Candidate(hierarchy=UNIFIED, location=v2, counters=Counters(cpu=V2_CPU))
        else:
            yield _Candidate(
                hierarchy=UNIFIED,
                location=v2,
                counters=Counters(cpu=V2_CPU, memory=V2_MEMORY),
                memory_limit_bytes=limits.memory_bytes,
            )


def _location_if_neutral(location: CgroupLocation | None) -> CgroupLocation | None:
    """Only where being in a group of its own changes nothing for the command or for others."""
    if location is None:
        return None
    handed_down = (proc.read(str(location.folder / "cgroup.subtree_control")) or b"").decode("ascii", "replace").split()
    return location if location.controllers.union(handed_down) <= _NEUTRAL_CONTROLLERS else None


def _uses_hierarchy(location: CgroupLocation) -> bool:
    """Before Linux 5.11 the limits of a version 1 memory group could be set not to hold below it."""
    return (proc.read(str(location.folder / "memory.use_hierarchy")) or b"1").strip() == b"1"


def _make_group(candidate: _Candidate, name: str, filesystem: CgroupFilesystem) -> AccountingCgroup | None:
    folder = candidate.location.folder / name
    try:
        filesystem.make(folder)
    except OSError:
        return None
    try:
        group = AccountingCgroup(
            folder, candidate.hierarchy, f"{candidate.location.group.rstrip('/')}/{name}", candidate.counters
        )
    except OSError:
        try_remove(folder, filesystem)
        return None
    if candidate.memory_limit_bytes is not None and not group.set_memory_limit(candidate.memory_limit_bytes):
        group.remove(filesystem, _no_sleep)
        return None
    return group


def _remove_stale_groups(above: Path, filesystem: CgroupFilesystem) -> None:
    """Remove what profilers that were killed have left, where nothing runs any more."""
    try:
        names = os.listdir(above)  # noqa: PTH208  names
    except OSError:
        return
    for name in names:
        claim = try_lock(above / name) if name.startswith(_PREFIX) else None
        if claim is not None:
            try_remove(above / name, filesystem)
            os.close(claim)


def _no_sleep(_seconds: float) -> None:
    """For a group that nothing has run in."""
