"""The control group of another container, found through one of its processes.

``/proc/PID/root`` is the container's file system with its own group. The kernel permits access to a
process of the same user with at least its capabilities (both root, as Docker starts them), or with
SYS_PTRACE. The files stay open: with Docker's systemd driver the group exists only 4 to 150 ms
longer than the last process.
"""

from msgspec import Struct

from profiler.core.optional_math import any_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.cgroup.hierarchy import (
    CPUACCT,
    HUGETLB,
    MEMORY,
    GroupCounters,
    ProcessCgroups,
    parse_membership,
    parse_number,
)
from profiler.readers.linux import proc
from profiler.readers.memory_usage import MemoryReading

# The kernel brings memory.stat up to date every 2 s; before, it may lack 256 KiB for each CPU of
# the machine.
_MAX_LATE_NS = 4 * NS_PER_SECOND


class IdleGroupCheck(Struct):
    """Whether a group's CPU time and its memory in use have been the same since ``_since_ns``, so
    that its other counters need not be read. ``_is_known``: they were read when they were up to
    date.
    """

    _counters: tuple[int | bytes, ...] = ()
    _since_ns: int = 0
    _is_known: bool = False

    def is_still_idle(self, counters: tuple[int | bytes, ...], now_ns: int) -> bool:
        """Whether these counters are the same as before; if not, the others are to be read now."""
        if counters != self._counters:
            self._counters = counters
            self._since_ns = now_ns
            self._is_known = False
        if self._is_known:
            return True
        self._is_known = now_ns - self._since_ns > _MAX_LATE_NS
        return False


class GroupReading(Struct, frozen=True, kw_only=True):
    """A container's counters; None if unreadable.

    ``is_empty``: no process was there before the mark was read.
    """

    memory: MemoryReading | None = None
    peak_bytes: int | None = None  # page cache included
    oom_kills: int | None = None
    huge_page_bytes: int | None = None
    cpu_ns: int | None = None
    is_empty: bool | None = None

    @property
    def has_mark(self) -> bool:
        """Whether the high-water mark and its page cache are known: a group's files disappear
        one by one.
        """
        return (
            self.peak_bytes is not None
            and self.memory is not None
            and self.memory.cache_bytes is not None
        )


class ContainerCgroup(GroupCounters):
    """The group of a container, read as a whole."""

    def __init__(
        self,
        memory_folder: str | None,
        cpu_folder: str | None,
        huge_folder: str | None = None,
        *,
        is_v1: bool,
    ) -> None:
        super().__init__(memory_folder, cpu_folder, huge_folder, is_v1=is_v1)
        self._was_empty = False
        self._rest = IdleGroupCheck()
        self._last_reading: GroupReading | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._files)

    @property
    def events_descriptor(self) -> int | None:
        """``cgroup.events``, to poll; None once the group was empty: a removed file counts as
        changed forever.
        """
        return None if self._was_empty else self._files.get(self._names.events)

    def read_counters(self, now_ns: int | None = None) -> GroupReading | None:
        """The counters now; None for a removed group.

        ``now_ns`` (monotonic): the last reading is returned again if nothing ran since then.
        Emptiness, by which the mark is final, is read before it.
        """
        names = self._names
        # Parsed later: every moment counts.
        events = proc.reread_file(self._files, names.events)
        peak = proc.reread_file(self._files, names.peak)
        usage = self.read_usage_text()
        cpu_ns = self.cpu_ns()
        is_at_rest = False
        if now_ns is not None and cpu_ns is not None:
            is_at_rest = self._rest.is_still_idle((cpu_ns, usage, peak, events), now_ns)
        if is_at_rest and self._last_reading is not None:
            return self._last_reading
        memory = self.read_memory_parts(usage)
        # 1 while a living process is in the group or in a group below it
        populated = proc.number_after(events, b"populated ")
        peak_bytes = parse_number(peak)
        self._was_empty = not populated
        if not any_known(peak_bytes, memory, cpu_ns):
            return None
        self._last_reading = GroupReading(
            memory=memory,
            peak_bytes=peak_bytes,
            oom_kills=self.oom_kills(),
            huge_page_bytes=self.huge_page_bytes(),
            cpu_ns=cpu_ns,
            is_empty=None if populated is None else populated == 0,
        )
        return self._last_reading


def find_container_cgroup(
    pid: int, docker_id: str, proc_folder: str = "/proc"
) -> ContainerCgroup | None:
    """The group of the container in which a process runs; None if it is not readable for this
    process.
    """
    process = f"{proc_folder}/{pid}"
    paths = parse_membership(proc.read_text(f"{process}/cgroup"))
    groups: dict[str, str] = {}
    for name, path in paths.items():
        group = container_group(path, docker_id)
        if group is not None:
            groups[name] = group
    cgroups = ProcessCgroups(f"{process}/root", groups, proc.read_text(f"{process}/mountinfo"))
    memory_folder = next(iter(cgroups.folders_upwards(MEMORY)), None)
    cpu_folder = next(iter(cgroups.folders_upwards(CPUACCT)), None)
    huge_folder = next(iter(cgroups.folders_upwards(HUGETLB)), None)
    counters = ContainerCgroup(memory_folder, cpu_folder, huge_folder, is_v1=MEMORY in groups)
    return counters if counters.is_open else None


def container_group(path: str, docker_id: str) -> str | None:
    """The path of the container's group.

    A process may be in a group below it that was made inside the container.
    """
    before, docker_id, after = path.partition(docker_id)
    return f"{before}{docker_id}{after.partition('/')[0]}" if docker_id else None
