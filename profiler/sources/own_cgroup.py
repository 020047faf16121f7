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
from profiler.sources.cgroup import UNIFIED, Cgroups, Place, parse_membership
from profiler.sources.cgroup_counters import V1_CPU, V1_MEMORY, V2_CPU, V2_MEMORY, MemoryReading
from profiler.sources.cgroup_delegation import Aside, step_aside
from profiler.sources.counting_group import (
    Counters,
    CountingGroup,
    Folders,
    KernelFolders,
    Sleep,
    claimed,
    members,
    removed,
)

_PREFIX = "task-profiler-"
_REFUGE = "-self"
_MEMORY, _CPU = "memory", "cpuacct"
# Controllers that only count or only limit: a group below without a limit changes nothing there.
_HARMLESS = frozenset((_MEMORY, _CPU, "pids", "hugetlb", "rdma", "misc", UNIFIED))


class OwnCgroup:
    """The groups of one command: none, one, or one for CPU and one for memory."""

    name = "cgroup"

    def __init__(
        self, groups: Iterable[CountingGroup] = (), folders: Folders | None = None, aside: Aside | None = None
    ) -> None:
        self._groups = tuple(groups)
        self._folders = folders or KernelFolders()
        self._aside = aside
        self._base_ns = 0

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

    def started(self, answer: bytes) -> None:
        """Hear what :meth:`join` said; groups that could not be joined are removed."""
        base, _, joined = answer.partition(b" ")
        self._base_ns = int(base) if base.isdigit() else 0
        entered = tuple(group for group, flag in zip(self._groups, joined, strict=False) if flag == ord("1"))
        for group in self._groups:
            if group not in entered:
                group.remove(self._folders, _no_pause)
        self._groups = entered

    @property
    def used(self) -> bool:
        """Whether the command is in any group of its own."""
        return bool(self._groups)

    @property
    def counts_cpu(self) -> bool:
        """Whether a group counts the command's CPU time."""
        return any(group.cpu is not None for group in self._groups)

    def cpu_ns(self) -> int | None:
        """The CPU time of all that ever ran in the group, whoever waited for it."""
        counted = (group.cpu_ns() for group in self._groups if group.cpu is not None)
        counted_ns = next(counted, None)
        return None if counted_ns is None else max(counted_ns - self._base_ns, 0)

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

    def holds(self, pid: int) -> bool:
        """Whether a process's memory counts here. True if it is gone: nothing can be told of it then."""
        group = self._memory_group()
        if group is None:
            return False
        membership = (proc.read(f"/proc/{pid}/cgroup") or b"").decode(errors="replace")
        path = parse_membership(membership).get(group.hierarchy)
        return path is None or path == group.path or path.startswith(group.path + "/")

    def remove(self, sleep: Sleep) -> None:
        """Remove the groups. What still runs in them goes back to where the command was started."""
        if self._aside is not None:
            self._aside.go_back()
        for group in self._groups:
            group.remove(self._folders, sleep)
        self._groups, self._aside = (), None

    def _memory_group(self) -> CountingGroup | None:
        return next((group for group in self._groups if group.memory is not None), None)


class _Wish(Struct, frozen=True, kw_only=True):
    """A group that would be of use."""

    hierarchy: str
    place: Place
    counters: Counters
    memory_limit_bytes: int | None = None


def make_own_cgroup(cgroups: Cgroups, own_pid: int, run_id: str, folders: Folders | None = None) -> OwnCgroup:
    """Groups for a command of the process ``own_pid``, which ``cgroups`` tells where it is."""
    folders = folders or KernelFolders()
    name = f"{_PREFIX}{own_pid}-{run_id[:8]}"
    groups: list[CountingGroup] = []
    aside = None
    for wish in _wishes(cgroups):
        if groups and any(group.cpu is not None for group in groups):
            break
        # A folder that does not list us is another process's, however it came about.
        if b"%d" % own_pid not in members(wish.place.folder):
            continue
        _sweep(wish.place.folder, folders)
        if wish.counters.memory is V2_MEMORY:
            aside = step_aside(wish.place.folder, own_pid, name + _REFUGE, _MEMORY, folders)
        made = _made(wish, name, folders)
        if made is not None:
            groups.append(made)
        elif aside is not None:
            aside.go_back()
            aside = None
    return OwnCgroup(groups, folders, aside)


def _wishes(cgroups: Cgroups) -> Iterable[_Wish]:
    """Where a group might be made: for memory, then for CPU, the best first, until one counts CPU."""
    limits = cgroups.limits()
    v1_memory, v1_cpu, v2 = (_harmless(cgroups.place(hierarchy)) for hierarchy in (_MEMORY, _CPU, UNIFIED))
    if v1_memory is not None and _bounded_from_above(v1_memory):
        cpu = V1_CPU if v1_memory == v1_cpu else None
        yield _Wish(
            hierarchy=_MEMORY,
            place=v1_memory,
            counters=Counters(cpu=cpu, memory=V1_MEMORY),
            memory_limit_bytes=limits.memory_bytes,
        )
    if v1_cpu is not None:
        yield _Wish(hierarchy=_CPU, place=v1_cpu, counters=Counters(cpu=V1_CPU))
    if v2 is not None and (limits.vcpu is None or cgroups.counts("cpu")):
        if cgroups.counts(_MEMORY):
            yield _Wish(hierarchy=UNIFIED, place=v2, counters=Counters(cpu=V2_CPU))
        else:
            yield _Wish(
                hierarchy=UNIFIED,
                place=v2,
                counters=Counters(cpu=V2_CPU, memory=V2_MEMORY),
                memory_limit_bytes=limits.memory_bytes,
            )


def _harmless(place: Place | None) -> Place | None:
    """Only where being in a group of its own changes nothing for the command or for others."""
    if place is None:
        return None
    handed_down = (proc.read(str(place.folder / "cgroup.subtree_control")) or b"").decode("ascii", "replace").split()
    return place if place.controllers.union(handed_down) <= _HARMLESS else None


def _bounded_from_above(place: Place) -> bool:
    """Before Linux 5.11 the limits of a version 1 memory group could be set not to hold below it."""
    return (proc.read(str(place.folder / "memory.use_hierarchy")) or b"1").strip() == b"1"


def _made(wish: _Wish, name: str, folders: Folders) -> CountingGroup | None:
    folder = wish.place.folder / name
    try:
        folders.make(folder)
    except OSError:
        return None
    try:
        group = CountingGroup(folder, wish.hierarchy, f"{wish.place.group.rstrip('/')}/{name}", wish.counters)
    except OSError:
        removed(folder, folders)
        return None
    if wish.memory_limit_bytes is not None and not group.limit_memory(wish.memory_limit_bytes):
        group.remove(folders, _no_pause)
        return None
    return group


def _sweep(above: Path, folders: Folders) -> None:
    """Remove what profilers that were killed have left, where nothing runs any more."""
    try:
        names = os.listdir(above)  # noqa: PTH208  names
    except OSError:
        return
    for name in names:
        claim = claimed(above / name) if name.startswith(_PREFIX) else None
        if claim is not None:
            removed(above / name, folders)
            os.close(claim)


def _no_pause(_seconds: float) -> None:
    """For a group that nothing has run in."""
