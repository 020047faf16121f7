"""Which processes on a GPU are the run's: by the control group of a container, or by descent.

The driver lists processes by their ids in the pid namespace of the caller, without those that it
cannot see; older drivers by the host's ids. So an id counts only if there is such a process here.
"""

import os
from collections.abc import Callable, Collection
from typing import Protocol

from profiler.core.optional_math import known
from profiler.readers.linux import proc

# CUDA's own server of MPS, which has the contexts of its clients: no program of anybody.
_MPS_SERVER = b"nvidia-cuda-mps"
MPS_SERVER = "mps-server"


class GpuOwners(Protocol):
    """``identify`` is called when a process is listed, ``owner_of`` when its run is known.

    An identity is None if there is no such process here. ``owner_of`` returns None if the run's
    processes cannot be seen here.
    """

    def identify(self, pid: int) -> object: ...
    def owner_of(self, batch: str) -> Callable[[object], bool | None] | None: ...
    def keep(self, pids: Collection[int]) -> None: ...


class NoOwners:
    """The processes of the batch are not visible."""

    def identify(self, pid: int) -> object:  # noqa: ARG002
        return None

    def owner_of(self, batch: str) -> Callable[[object], bool | None] | None:  # noqa: ARG002
        return None

    def keep(self, pids: Collection[int]) -> None: ...


class Descendants:
    """For ``run``: its command's processes descend from this process.

    ``read_status`` returns the parent's id and the name of a process; None if there is none.
    """

    def __init__(
        self,
        own_pid: int | None = None,
        is_unrelated: Callable[[int], bool] = lambda _: False,
        read_status: Callable[[int], tuple[int, bytes] | None] | None = None,
    ) -> None:
        self._own_pid = own_pid or os.getpid()
        self._is_unrelated = is_unrelated
        self._read = read_status or _read_status
        self._known: dict[int, object] = {}

    def identify(self, pid: int) -> object:
        if pid not in self._known:
            identity = self._look_up(pid)
            if identity is None:
                return None
            self._known[pid] = identity
        return self._known[pid]

    def _look_up(self, pid: int) -> object:
        status = self._read(pid)
        if status is None:
            return None
        if status[1].startswith(_MPS_SERVER):
            return MPS_SERVER
        ancestor = pid
        for _ in range(1000):
            if ancestor == self._own_pid:
                return ("own", pid)
            if ancestor <= 1 or self._is_unrelated(ancestor):
                break
            parent = self._read(ancestor)
            if parent is None:
                break
            ancestor = parent[0]
        return ("other", pid)

    def owner_of(self, batch: str) -> Callable[[object], bool | None] | None:  # noqa: ARG002
        return _is_own

    def keep(self, pids: Collection[int]) -> None:
        """Forget the processes that are not listed any more: their ids may be used again."""
        if self._known.keys() - set(pids):
            self._known = {pid: self._known[pid] for pid in pids if pid in self._known}


def _is_own(identity: object) -> bool | None:
    if identity == MPS_SERVER:
        return None
    return isinstance(identity, tuple) and identity[0] == "own"


def _read_status(pid: int) -> tuple[int, bytes] | None:
    stat = proc.read(f"/proc/{pid}/stat")
    if not stat:
        return None
    name = stat[stat.find(b"(") + 1 : stat.rfind(b")")]
    fields = stat[stat.rfind(b")") + 2 :].split()
    return (int(fields[1]), name) if len(fields) > 1 else None


class ContainerProcesses:
    """For a monitor: by the Docker id in the control groups of a process.

    ``docker_id_of`` returns the id of a batch, None if its processes are not visible here.
    """

    def __init__(
        self,
        docker_id_of: Callable[[str], str | None],
        is_group_of: Callable[[str, bytes], bool],
        read_groups: Callable[[int], bytes | None] = lambda pid: proc.read(f"/proc/{pid}/cgroup"),
        read_name: Callable[[int], bytes | None] = lambda pid: proc.read(f"/proc/{pid}/comm"),
    ) -> None:
        self._docker_id_of = docker_id_of
        self._is_group_of = is_group_of
        self._read_groups = read_groups
        self._read_name = read_name
        self._known: dict[int, object] = {}

    def identify(self, pid: int) -> object:
        if pid not in self._known:
            groups = self._read_groups(pid)
            if groups is None:
                return None
            if (self._read_name(pid) or b"").startswith(_MPS_SERVER):
                self._known[pid] = MPS_SERVER
            else:
                self._known[pid] = groups
        return self._known[pid]

    def owner_of(self, batch: str) -> Callable[[object], bool | None] | None:
        docker_id = self._docker_id_of(batch)
        return known(self._owner, docker_id)

    def _owner(self, docker_id: str) -> Callable[[object], bool | None]:
        def owns(identity: object) -> bool | None:
            if not isinstance(identity, bytes):
                return None
            return self._is_group_of(docker_id, identity)

        return owns

    def keep(self, pids: Collection[int]) -> None:
        if self._known.keys() - set(pids):
            self._known = {pid: self._known[pid] for pid in pids if pid in self._known}
