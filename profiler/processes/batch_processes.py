"""What is known of one batch's processes: readings in, aggregates of constant size out. Pure."""

from msgspec import Struct

from profiler.known import largest
from profiler.processes.agreement import Agreement, Reading
from profiler.processes.memory_kills import Counted, KillWatch
from profiler.processes.process_totals import ProcessTotals, ShowArguments
from profiler.sources.cgroup_counters import GroupPeak
from profiler.sources.container_cgroup import GroupReading
from profiler.sources.container_stats import ContainerSample
from profiler.sources.processes import Census
from profiler.sources.tree_cpu import TreeCpu
from profiler.sources.tree_memory import TreeMemory
from profiler.usage import ContainerUsage

# A rate over a step of a few milliseconds is mostly the rounding of the counters.
_SHORTEST_STEP = 0.5


class Moment(Struct, frozen=True, kw_only=True):
    """When a container was read, on both clocks, and in which of its lives.

    ``started_ns`` is when that life began, None if its counters may be older.
    """

    life: str
    monotonic_ns: int
    wall_ns: int
    started_ns: int | None = None


class BatchProcesses:
    """Follows one batch container by name, through all its lives.

    CPU time and memory are the control group's where that can be read, else the processes'.
    """

    def __init__(self, interval_ns: int, show_arguments: ShowArguments) -> None:
        self._shortest_step_ns = round(_SHORTEST_STEP * interval_ns)
        self._life: str | None = None
        self._tree_cpu = TreeCpu()
        self._tree_memory = TreeMemory()
        self._earlier_lives_ns = 0
        self._this_life_ns = 0
        self._fed_ns: int | None = None
        self._threads = 0
        self._end_was_seen = False
        self._largest_mark_bytes: int | None = None
        self._group_used_bytes: int | None = None
        self.group_peak = GroupPeak()
        self.has_read = False
        self.usage = ContainerUsage(interval_ns)
        self.totals = ProcessTotals(show_arguments)
        self.kills = KillWatch()
        self.agreement = Agreement()

    def add(self, census: Census, group: GroupReading | None, machine_kills: int | None, moment: Moment) -> None:
        """Take a reading of the processes and of their control group, if that can be read."""
        if moment.life != self._life:
            self._begin(moment.life)
        processes = census.processes
        is_alive = any(process.rss_bytes is not None for process in processes)
        self.has_read = self.has_read or is_alive
        self.totals.add(processes)
        group_kills = None if group is None else group.oom_kills
        self.kills.add(Counted(in_container=group_kills, on_machine=machine_kills), census.ended, census.unseen)
        tree_bytes = self._tree_memory.add(processes)
        self._largest_mark_bytes = largest(self._largest_mark_bytes, *(process.peak_bytes for process in processes))
        self._count_cpu(self._tree_cpu.add(processes, 0))
        used_bytes = self._add_group(group, is_alive=is_alive)
        if is_alive:
            self._threads = sum(process.threads for process in processes)
            self._feed(tree_bytes if used_bytes is None else used_bytes, self._threads, moment)

    def add_group(self, group: GroupReading, moment: Moment) -> None:
        """Take a reading of the control group alone, when it was not the processes' turn."""
        self._feed(self._add_group(group, is_alive=True), self._threads, moment)

    @property
    def cpu_ns(self) -> int:
        """All CPU time that was seen."""
        return self._earlier_lives_ns + self._this_life_ns

    @property
    def reads_group(self) -> bool:
        """Whether the control group could be read."""
        return self.group_peak.size_bytes is not None or self._group_used_bytes is not None

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that was seen, by the marks of the processes too: the truth is no less.

        Where the processes share memory that is counted at each of them, no sum is trusted, but the
        mark of the largest.
        """
        of_processes = self._largest_mark_bytes if self.agreement.counts_twice else self._tree_memory.peak_bytes
        return largest(of_processes, self._group_used_bytes)

    def _begin(self, life: str) -> None:
        self._life = life
        self._earlier_lives_ns += self._this_life_ns
        self._this_life_ns = 0
        self._tree_cpu = TreeCpu()
        self._end_was_seen = False

    def _count_cpu(self, cpu_ns: int | None) -> None:
        self._this_life_ns = max(self._this_life_ns, cpu_ns or 0)

    def _add_group(self, group: GroupReading | None, *, is_alive: bool) -> int | None:
        """Take the group's counters; returns the memory in use.

        Its mark tells everything up to now. Between the last reading and an end that was not seen
        it may have risen once more.
        """
        before = self.group_peak
        if group is None:
            holds_all = before.holds_all and (self._end_was_seen or not self.reads_group)
            self.group_peak = GroupPeak(
                size_bytes=before.size_bytes, cache_bytes=before.cache_bytes, holds_all=holds_all
            )
            return None
        self._end_was_seen = not is_alive
        cache_bytes = 0 if group.memory is None else group.memory.cache_bytes or 0
        self.group_peak = GroupPeak(
            size_bytes=largest(before.size_bytes, group.peak_bytes),
            cache_bytes=max(before.cache_bytes, cache_bytes),
            holds_all=before.holds_all,
        )
        self._count_cpu(group.cpu_ns)
        used_bytes = None if group.memory is None else group.memory.used_bytes
        self._group_used_bytes = largest(self._group_used_bytes, used_bytes)
        return used_bytes

    def _feed(self, memory_bytes: int | None, threads: int, moment: Moment) -> None:
        cpu_ns = self._this_life_ns
        self.agreement.measured(Reading(moment.wall_ns, cpu_ns, memory_bytes))
        if self._fed_ns is not None and moment.monotonic_ns - self._fed_ns < self._shortest_step_ns:
            return
        self._fed_ns = moment.monotonic_ns
        sample = ContainerSample(read_ns=moment.wall_ns, cpu_ns=cpu_ns, memory_used_bytes=memory_bytes, pids=threads)
        self.usage.add(sample, docker_id=moment.life, received_ns=moment.monotonic_ns, started_ns=moment.started_ns)
