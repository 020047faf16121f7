"""The process source: the processes of another container of the task, followed from reading to reading.

They are visible where the task shares its process ids (``"pidMode": "task"``); which are the
container's, ``/proc/PID/cgroup`` tells. Everything here can be read as any user.

Cheap by leaving out what cannot have changed: new processes are looked for only when the kernel
has given out a process id since, and memory that saw no page fault has not grown, so the costly
``status`` is not asked for it again.
"""

import os
from collections.abc import Callable

from msgspec import Struct

from profiler.sources import proc
from profiler.sources.container_processes import is_in_container
from profiler.sources.followed_process import CpuClock, FollowedProcess
from profiler.sources.process_tree import ProcessReading, own_cpu_ns
from profiler.times import NS_PER_SECOND

# Each keeps two files open; the usual limit is 1024 of them.
_MOST_KEPT_OPEN = 100
# Who was moved into the container's control group took no new id: everybody is looked at now and then.
_LOOK_AT_ALL_NS = 60 * NS_PER_SECOND


class Census(Struct, frozen=True, kw_only=True):
    """Who is there now, and who has ended since the last reading, as last seen alive.

    ``unseen``: so many ids were given out since then and are of nobody alive now, be it to threads or
    in other containers; 0 where the kernel does not tell. ``first_pid`` is the process that the
    container was started with.
    """

    processes: tuple[ProcessReading, ...] = ()
    ended: tuple[ProcessReading, ...] = ()
    unseen: int = 0
    first_pid: int | None = None


class ContainerProcesses:
    """Follows the processes of one container; to be used from one thread.

    With several processes a process's share of the memory is its anonymous memory: whose the
    pages of files are, only a process's own user may know.
    """

    def __init__(
        self,
        docker_id: str,
        monotonic_ns: Callable[[], int],
        proc_folder: str = "/proc",
        cpu_clock: CpuClock = own_cpu_ns,
        *,
        with_arguments: bool = False,
    ) -> None:
        self._docker_id = docker_id
        self._monotonic_ns = monotonic_ns
        self._folder = proc_folder
        self._cpu_clock = cpu_clock
        self._with_arguments = with_arguments
        self._ns_per_tick = NS_PER_SECOND // os.sysconf("SC_CLK_TCK")
        self._followed: dict[int, FollowedProcess] = {}
        self._listed: set[int] = set()
        self._newest_id: int | None = None
        self._look_at_all_ns = 0
        self._first_pid: int | None = None

    def read(self) -> Census:
        """The container's processes now; none where they are not visible."""
        unseen = self._find_new()
        ended, never_alive = self._look_at_each()
        if self._first_pid not in self._followed:
            self._first_pid = self._eldest()
        readings = (followed.reading for followed in self._followed.values())
        return Census(
            processes=tuple(reading for reading in readings if reading is not None),
            ended=tuple(ended),
            unseen=unseen + never_alive,
            first_pid=self._first_pid,
        )

    def close(self) -> None:
        """Let go of the files."""
        for followed in self._followed.values():
            followed.close()
        self._followed.clear()

    def _find_new(self) -> int:
        """Begin to follow who is new; returns how many ids went to nobody that is there now."""
        newest_id, before, now_ns = self._newest_given_id(), self._newest_id, self._monotonic_ns()
        looks_at_all = now_ns >= self._look_at_all_ns
        if newest_id is not None and newest_id == before and not looks_at_all:
            return 0
        listed = set(proc.all_pids(self._folder))
        appeared = listed - self._listed
        # After the largest id the small ones are given out again: each may be somebody else's then.
        starts_again = newest_id is not None and before is not None and newest_id < before
        ending = 0
        for pid in sorted(listed if looks_at_all or starts_again else appeared):
            if pid in self._followed:
                continue
            if is_in_container(f"{self._folder}/{pid}", self._docker_id):
                self._follow(pid)
            elif pid in appeared and self._is_ending(pid):
                ending += 1
        if looks_at_all:
            self._look_at_all_ns = now_ns + _LOOK_AT_ALL_NS
        self._listed, self._newest_id = listed, newest_id
        if newest_id is None or before is None:
            return 0
        return max(newest_id - before - len(appeared), 0) + ending

    def _is_ending(self, pid: int) -> bool:
        """Whether it is as good as gone: from then on cgroup v1 shows it in no container."""
        stat = proc.parse_stat(proc.read(f"{self._folder}/{pid}/stat") or b"")
        return stat is None or stat.is_ending

    def _newest_given_id(self) -> int | None:
        """The id that this namespace gave out last: the last word of ``/proc/loadavg``."""
        words = (proc.read(f"{self._folder}/loadavg") or b"").split()
        return int(words[-1]) if words and words[-1].isdigit() else None

    def _follow(self, pid: int) -> None:
        keep_open = len(self._followed) < _MOST_KEPT_OPEN
        self._followed[pid] = FollowedProcess(
            pid,
            self._folder,
            self._cpu_clock,
            self._ns_per_tick,
            keep_open=keep_open,
            with_arguments=self._with_arguments,
        )

    def _look_at_each(self) -> tuple[list[ProcessReading], int]:
        """Read all; returns those that have ended since, and how many were found too late to be seen alive.

        They stay until their parents have waited for them.
        """
        several = len(self._followed) > 1
        ended: list[ProcessReading] = []
        never_alive = 0
        for pid, followed in list(self._followed.items()):
            was_alive = followed.is_alive
            if not followed.look(several=several):
                followed.close()
                del self._followed[pid]
                self._listed.discard(pid)
            if not was_alive or followed.is_alive:
                continue
            if followed.last_alive is None:
                never_alive += 1
            else:
                ended.append(followed.last_alive)
        return ended, never_alive

    def _eldest(self) -> int | None:
        """The first that was started from outside; ``docker exec`` starts others later."""
        from_outside = (
            followed.reading
            for followed in self._followed.values()
            if followed.reading is not None and followed.parent_pid not in self._followed
        )
        eldest = min(from_outside, key=lambda reading: (reading.started_ticks, reading.pid), default=None)
        return None if eldest is None else eldest.pid
