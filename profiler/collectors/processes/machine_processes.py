"""The processes of the machine: one listing finds the new ones of all containers that are followed,
and counts short ones that ended before they were seen.
"""

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct, field

from profiler.collectors.processes.discovery import is_group_of
from profiler.core.optional_math import difference
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux import proc

# A process that is moved into a container's group gets no new id.
_FULL_SCAN_NS = 60 * NS_PER_SECOND


class NewProcesses(Struct, frozen=True):
    """What appeared since a container asked last.

    ``pids`` are the ids of its processes. ``missed_pids`` is the number of ids that the machine
    assigned and no live process has, such as those of short processes and of threads.
    """

    pids: Collection[int] = ()
    missed_pids: int = 0


class _Followed(Struct):
    """What a container has not asked for yet: its new processes, and the missed ids after the
    first ``missed_before``, None before it has asked.
    """

    pids: set[int] = field(default_factory=set)
    missed_before: int | None = None


class MachineProcesses:
    """Lists the processes when the first container asks after :meth:`mark_out_of_date`. Not
    thread-safe. ``last_pid`` is the id that was assigned last before that, None if unknown.
    """

    def __init__(self, monotonic_ns: Callable[[], int], proc_folder: str = "/proc") -> None:
        self.folder = proc_folder
        self.monotonic_ns = monotonic_ns
        self._followed: dict[str, _Followed] = {}
        self._is_current = False
        self._known_pids: set[int] = set()
        self.last_pid: int | None = None
        self._last_pid_file = proc.LoadFile(proc_folder)
        self._missed_pids = 0
        self._next_full_scan_ns = 0

    def mark_out_of_date(self) -> None:
        """What was listed is out of date: list the processes again when a container asks."""
        self._is_current = False

    def follow(self, docker_id: str) -> None:
        """Find all processes of a container, which may have run for long."""
        self._followed[docker_id] = _Followed()
        self._next_full_scan_ns = 0
        self._is_current = False

    def forget(self, docker_id: str) -> None:
        """Follow a container no longer."""
        self._followed.pop(docker_id, None)
        if not self._followed:
            self._last_pid_file.close()

    def on_ended(self, pid: int) -> None:
        """A process has ended: a new one may get its id."""
        self._known_pids.discard(pid)

    def take_new(self, docker_id: str) -> NewProcesses:
        """The processes of a followed container that appeared since the last call."""
        if not self._is_current:
            self._is_current = True
            self._list_new_processes()
        followed = self._followed[docker_id]
        pids = followed.pids
        missed_pids = difference(self._missed_pids, followed.missed_before) or 0
        followed.missed_before = self._missed_pids
        if pids:
            followed.pids = set()
        return NewProcesses(pids, missed_pids)

    def _list_new_processes(self) -> None:
        """Look for new processes, unless no id was assigned."""
        last_pid = self._last_pid_file.last_pid()
        before = self.last_pid
        now_ns = self.monotonic_ns()
        is_full_scan = now_ns >= self._next_full_scan_ns
        if last_pid is not None and last_pid == before and not is_full_scan:
            return
        listed = set(proc.numeric_entries(self.folder))
        appeared = listed - self._known_pids
        # After the largest id the kernel starts again at small ones: a known id may then be a new
        # process.
        ahead = difference(last_pid, before)
        has_wrapped = (ahead or 0) < 0
        ending = self._assign_to_containers(
            listed if is_full_scan or has_wrapped else appeared, appeared
        )
        if is_full_scan:
            self._next_full_scan_ns = now_ns + _FULL_SCAN_NS
        self._known_pids = listed
        self.last_pid = last_pid
        if ahead is not None:
            self._missed_pids += max(ahead - len(appeared), 0) + ending

    def _assign_to_containers(self, pids: Iterable[int], appeared: Collection[int]) -> int:
        """Give processes to their containers; returns how many appeared that are of none, because
        they have ended.
        """
        ending = 0
        for pid in pids:
            groups = proc.read_or_none(f"{self.folder}/{pid}/cgroup") or b""
            is_followed = False
            for docker_id, followed in self._followed.items():
                if is_group_of(docker_id, groups):
                    followed.pids.add(pid)
                    is_followed = True
                else:
                    followed.pids.discard(pid)  # another process had the id
            if not is_followed and pid in appeared:
                # From its exit on, cgroup v1 shows a process in no container.
                ending += proc.read_stat(f"{self.folder}/{pid}").is_exiting
        return ending
