"""Which processes on a GPU are the run's: by the control group of a container, or by descent.

The driver lists processes by their ids in the pid namespace of the caller, without those that it
cannot see; older drivers by the host's ids. So an id counts only if there is such a process here.
"""

import os
from collections.abc import Callable, Collection, Hashable
from pathlib import Path
from typing import Protocol

from profiler.core.optional_math import first_known
from profiler.readers.linux import proc

# CUDA's server of MPS, which has the contexts of its clients: no program of anybody.
_MPS_SERVER = b"nvidia-cuda-mps"
MPS_SERVER = "mps-server"
_OWN = "own"
_OTHER = "other"
_MAX_GENERATIONS = 1000
# The kernel's number of the machine's first pid namespace (PROC_PID_INIT_INO).
_FIRST_NAMESPACE = 0xEFFFFFFC
# Whether an identity is a run's; None if that cannot be said.
Owns = Callable[[Hashable], bool | None]


class GpuOwners(Protocol):
    """``identify`` is called when a process is listed, ``owner_of`` when its run is known.

    An identity is None if there is no such process here. ``owner_of`` returns None if the run's
    processes cannot be seen here. ``forget_except`` forgets the processes that are not listed any
    more, whose ids may be used again. ``sees_all``: no process of the machine is hidden from the
    lists.
    """

    @property
    def sees_all(self) -> bool: ...
    def identify(self, pid: int) -> Hashable: ...
    def owner_of(self, batch: str) -> Owns | None: ...
    def forget_except(self, pids: Collection[int]) -> None: ...


class NoOwners:
    """The processes of the batch are not visible."""

    sees_all = False

    def identify(self, pid: int) -> Hashable:  # noqa: ARG002
        return None

    def owner_of(self, batch: str) -> Owns | None:  # noqa: ARG002
        return None

    def forget_except(self, pids: Collection[int]) -> None: ...


class _Identities:
    """The identities of the processes that are listed."""

    def __init__(self, *, sees_all: bool | None) -> None:
        self._known: dict[int, Hashable] = {}
        self.sees_all = first_known(sees_all, is_in_first_namespace())

    def identify(self, pid: int) -> Hashable:
        if pid not in self._known:
            identity = self._look_up(pid)
            if identity is None:
                return None
            self._known[pid] = identity
        return self._known[pid]

    def forget_except(self, pids: Collection[int]) -> None:
        for pid in self._known.keys() - set(pids):
            del self._known[pid]

    def _look_up(self, pid: int) -> Hashable:
        raise NotImplementedError


class Descendants(_Identities):
    """The processes of ``run``'s command: they descend from this process.

    ``read_status`` returns the parent's id and the name of a process; None if there is none.
    """

    def __init__(
        self,
        own_pid: int,
        read_status: Callable[[int], tuple[int, bytes] | None] | None = None,
        *,
        sees_all: bool | None = None,
    ) -> None:
        super().__init__(sees_all=sees_all)
        self._own_pid = own_pid
        self._read_status = read_status or _read_status

    def _look_up(self, pid: int) -> Hashable:
        status = self._read_status(pid)
        if status is None:
            return None
        if status[1].startswith(_MPS_SERVER):
            return MPS_SERVER
        for _ in range(2):  # a parent may end meanwhile
            is_own = self._descends(pid)
            if is_own is not None:
                return (_OWN if is_own else _OTHER, pid)
            if self._read_status(pid) is None:
                return None  # it ended meanwhile
        return (_OTHER, pid)

    def _descends(self, pid: int) -> bool | None:
        """Whether a process descends from this one; None if an ancestor cannot be read: it has
        ended, or ``/proc`` hides it.
        """
        ancestor = pid
        for _ in range(_MAX_GENERATIONS):
            if ancestor == self._own_pid:
                return True
            if ancestor <= 1:
                return False
            parent = self._read_status(ancestor)
            if parent is None:
                return None
            ancestor = parent[0]
        return False

    def owner_of(self, batch: str) -> Owns | None:  # noqa: ARG002
        return _is_descendant


def _is_descendant(identity: Hashable) -> bool | None:
    return isinstance(identity, tuple) and identity[0] == _OWN


def _read_status(pid: int) -> tuple[int, bytes] | None:
    stat = proc.read_or_none(f"/proc/{pid}/stat")
    if not stat:
        return None
    # The name may have spaces and parentheses.
    name = stat[stat.find(b"(") + 1 : stat.rfind(b")")]
    fields = stat[stat.rfind(b")") + 2 :].split()
    return (int(fields[1]), name) if len(fields) > 1 else None


class GroupMembers(_Identities):
    """The processes of a monitor's batches, by the Docker id in their control groups.

    ``docker_id_of`` returns the id of a batch, None if its processes are not visible here.
    """

    def __init__(
        self,
        docker_id_of: Callable[[str], str | None],
        is_group_of: Callable[[str, bytes], bool],
        read_groups: Callable[[int], bytes | None] = lambda pid: proc.read_or_none(
            f"/proc/{pid}/cgroup"
        ),
        read_name: Callable[[int], bytes | None] = lambda pid: proc.read_or_none(
            f"/proc/{pid}/comm"
        ),
        *,
        sees_all: bool | None = None,
    ) -> None:
        super().__init__(sees_all=sees_all)
        self._docker_id_of = docker_id_of
        self._is_group_of = is_group_of
        self._read_groups = read_groups
        self._read_name = read_name

    def _look_up(self, pid: int) -> Hashable:
        groups = self._read_groups(pid)
        if groups is None:
            return None
        if (self._read_name(pid) or b"").startswith(_MPS_SERVER):
            return MPS_SERVER
        return groups

    def owner_of(self, batch: str) -> Owns | None:
        docker_id = self._docker_id_of(batch)
        if docker_id is None:
            return None
        is_group_of = self._is_group_of

        def owns(identity: Hashable) -> bool | None:
            return is_group_of(docker_id, identity) if isinstance(identity, bytes) else None

        return owns


def is_in_first_namespace() -> bool:
    """Whether this process sees the ids of all processes of the machine: in no container."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _FIRST_NAMESPACE
    except OSError:
        return False


def descendants_of_this_process() -> Descendants:
    """The processes that descend from this one."""
    return Descendants(os.getpid())
