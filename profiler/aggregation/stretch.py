"""The time between two looks: what the counters of threads, and the look at its end, say of it."""

from collections.abc import Sequence

from msgspec import Struct

from profiler.readers.linux.thread_counters import ThreadTimeGrowth


class Stretch(Struct):
    """The time between two looks.

    ``run_ns`` and ``wait_ns`` are sums over the threads, ``longest_ns`` the most that one of them
    ran and waited for a CPU. ``unread_ns`` ran in threads whose counters nobody read, ``later_ns``
    in those of living processes that are left for later looks.
    ``least_ns`` and ``most_ns``: how long threads waited for a CPU, by the kernel's own counters,
    None if these do not limit it. ``throttled_ns``: how long the group was stopped because its
    quota was used up, a sum over the CPUs, on which nothing of it ran meanwhile. ``able_ns`` is the
    part that belongs to looks which found a thread that could run, ``able_threads`` how many the
    look at its end found; these are not all if it ``counts_no_threads``. ``is_unsure``: it could
    not ask enough threads. Those of the threads that may be able to run which it asked have used
    the ``asked_share`` of what all have. When it began, ``able_on_machine`` threads of the whole
    machine could run, None if unknown.
    In between, ``able_peeks`` of the ``peeks`` found a thread that could run. ``has_lost_waits``:
    one that could run at the begin has ended, and nobody read for how long it waited for a CPU;
    ``has_lost_runs``: nor for how long it ran, of which no total tells.
    """

    start_ns: int
    end_ns: int
    cpus: int = 1
    run_ns: int = 0
    wait_ns: int = 0
    longest_ns: int = 0
    unread_ns: int = 0
    later_ns: int = 0
    least_ns: int = 0
    most_ns: int | None = None
    throttled_ns: int = 0
    able_ns: int = 0
    able_threads: int = 0
    counts_no_threads: bool = False
    is_unsure: bool = False
    asked_share: float = 1.0
    able_on_machine: int | None = None
    peeks: int = 0
    able_peeks: int = 0
    has_lost_waits: bool = False
    has_lost_runs: bool = False

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def bounded_run_ns(self) -> int:
        """What ran, at most the whole stretch on each CPU."""
        return self.run_ns + self.unread_ns + self.later_ns

    @property
    def able_threads_by_counters(self) -> float:
        """How many threads could run, on average."""
        return (self.bounded_run_ns + self.wait_ns) / self.length_ns

    @property
    def uncounted_ns(self) -> int:
        """What ran in threads of which nobody read for how long they waited for a CPU."""
        lost_ns = self.length_ns if self.has_lost_waits else 0
        return self.unread_ns + self.later_ns + lost_ns

    @property
    def able_time_by_look_ns(self) -> float:
        """The part in which a thread could run, by the look at its end and the peeks before."""
        return (self.able_ns + self.able_peeks * self.length_ns) / (1 + self.peeks)

    @property
    def is_uninformative(self) -> bool:
        """Whether the look at its end says nothing about blocked time."""
        return self.length_ns > 0 and (self.is_unsure or 2 * self.able_ns >= self.length_ns)

    @property
    def room_on_all_cpus_ns(self) -> int:
        """How much more can have run in the stretch, on all CPUs."""
        used_ns = self.bounded_run_ns + self.throttled_ns
        return max(max(self.cpus, 1) * self.length_ns - used_ns, 0)

    @property
    def room_in_turn_ns(self) -> int:
        """How much more can have run while no other thread ran, or waited for a CPU."""
        used_ns = self.bounded_run_ns + max(self.wait_ns, self.throttled_ns)
        return min(max(self.length_ns - used_ns, 0), self.room_on_all_cpus_ns)

    def add_thread_time(self, run_ns: int, wait_ns: int, used_ns: int = 0) -> tuple[int, int]:
        """Add what one thread ran and waited for a CPU, as far as there is room beside the
        ``used_ns`` that were added of it before; returns what was added of both.
        """
        length_ns = self.end_ns - self.start_ns
        room_ns = max(length_ns - used_ns, 0)
        if run_ns + wait_ns > room_ns:
            run_ns = min(run_ns, room_ns)
            wait_ns = min(wait_ns, room_ns - run_ns)
        self.run_ns += run_ns
        self.wait_ns += wait_ns
        if used_ns + run_ns + wait_ns > self.longest_ns:
            self.longest_ns = min(used_ns + run_ns + wait_ns, length_ns)
        return run_ns, wait_ns

    def add_short_times(self, growth: Sequence[ThreadTimeGrowth]) -> int:
        """Add what threads ran and waited for a CPU if there is room for each; returns the sum of
        their waits.
        """
        wait_ns = sum([grown.wait_ns for grown in growth])
        self.run_ns += sum([grown.run_ns for grown in growth])
        self.wait_ns += wait_ns
        longest_ns = max([grown.run_ns + grown.wait_ns for grown in growth], default=0)
        self.longest_ns = max(self.longest_ns, longest_ns)
        return wait_ns

    def add_parts_of_threads(
        self, times_ns: Sequence[tuple[int, int]], run_part: float, wait_part: float
    ) -> None:
        """Add these parts of what each thread ran and waited for a CPU, as far as there is room:
        mostly, there is for each, and their sums are added at once.
        """
        longest_ns = max([run_part * run_ns + wait_part * wait_ns for run_ns, wait_ns in times_ns])
        if longest_ns > self.length_ns:
            for run_ns, wait_ns in times_ns:
                self.add_thread_time(round(run_part * run_ns), round(wait_part * wait_ns))
            return
        self.run_ns += round(run_part * sum([run_ns for run_ns, _ in times_ns]))
        self.wait_ns += round(wait_part * sum([wait_ns for _, wait_ns in times_ns]))
        self.longest_ns = max(self.longest_ns, round(longest_ns))

    def take_late_throttled_ns(self) -> int:
        """Take out the throttled time for which there is no room: it was counted at its end."""
        most_ns = max(max(self.cpus, 1) * self.length_ns - self.bounded_run_ns, 0)
        late_ns = max(self.throttled_ns - most_ns, 0)
        self.throttled_ns -= late_ns
        return late_ns

    def able_time_bounds_ns(self) -> tuple[int, int]:
        """The shortest and the longest time for which a thread could run."""
        length_ns = self.length_ns
        together_ns = (self.bounded_run_ns + self.throttled_ns) // max(self.cpus, 1)
        low_ns = max(self.longest_ns, self.least_ns, together_ns)
        waited_ns = max(self.wait_ns, self.least_ns, self.throttled_ns)
        # Threads that nobody read may have waited, too.
        if self.unread_ns or self.later_ns or self.has_lost_waits:
            unread_ns = length_ns if self.most_ns is None else self.most_ns
            waited_ns = max(waited_ns, unread_ns)
        low_ns = min(low_ns, length_ns)
        return low_ns, max(min(self.bounded_run_ns + waited_ns, length_ns), low_ns)


def fill_able_stretches(stretches: Sequence[Stretch], unread_ns: int) -> int:
    """Let what ran in processes that nobody read fill the stretches whose looks found a thread that
    could run, in turn with the threads that were read. Returns what found no room.
    """
    rooms = [(stretch, stretch.room_in_turn_ns) for stretch in stretches if stretch.able_ns]
    return unread_ns - _fill_rooms_equally(rooms, unread_ns)


def spread_unread(stretches: Sequence[Stretch], after: Stretch, unread_ns: int) -> int:
    """Spread what ran in processes that nobody read over stretches, and the time ``after`` them in
    which no look was taken yet, as far as there is room: first in turn with the threads that were
    read, then beside them, and last where none of these ran, which begin all processes. Returns
    what found no room.
    """
    active = [*[stretch for stretch in stretches if stretch.run_ns], after]
    unread_ns -= _fill_rooms_equally(
        [(stretch, stretch.room_in_turn_ns) for stretch in active], unread_ns
    )
    unread_ns -= _fill_rooms_equally(
        [(stretch, stretch.room_on_all_cpus_ns) for stretch in active], unread_ns
    )
    return unread_ns - _fill_rooms_equally(
        [(stretch, stretch.room_on_all_cpus_ns) for stretch in stretches], unread_ns
    )


def _fill_rooms_equally(rooms: Sequence[tuple[Stretch, int]], unread_ns: int) -> int:
    """Fill the same share of all rooms; returns how much found room."""
    total_ns = sum([room_ns for _, room_ns in rooms])
    share = min(unread_ns / total_ns, 1.0) if total_ns else 0.0
    filled_ns = 0
    for stretch, room_ns in rooms:
        part_ns = int(share * room_ns)
        stretch.unread_ns += part_ns
        filled_ns += part_ns
    return filled_ns
