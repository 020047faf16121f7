"""For how long anything could run, and for how long anything did, by the counters of the threads
between two looks, and by how many looks found a thread that could run.

The counters leave a range where threads of several processes may have run at the same time or one
after the other. There the share of the looks decides, over all such stretches of the run together:
stretch by stretch it would be wrong, as two equal bursts lie on the lower bound.
"""

from msgspec import Struct, field
from msgspec.structs import replace

# The bounds of a stretch lie apart if the range is a larger part of it.
_OPEN_DIVISOR = 10
_BUCKETS = 64


class Stretch(Struct):
    """The time between two looks.

    ``run_ns`` and ``wait_ns`` are sums over the threads, ``longest_ns`` the most that one of them
    ran and waited for a CPU. ``unread_ns`` ran in threads whose counters nobody read.
    ``least_ns`` and ``most_ns``: how long threads waited for a CPU, by the kernel's own counters,
    None if these do not limit it. ``throttled_ns``: how long the group was stopped because its
    quota was used up, a sum over the CPUs, on which nothing of it ran meanwhile. ``able_ns`` is the
    part that belongs to looks which found a thread that could run.
    """

    start_ns: int
    end_ns: int
    cpus: int = 1
    run_ns: int = 0
    wait_ns: int = 0
    longest_ns: int = 0
    unread_ns: int = 0
    least_ns: int = 0
    most_ns: int | None = None
    throttled_ns: int = 0
    able_ns: int = 0

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def ran_ns(self) -> int:
        """What ran, at most the whole stretch on each CPU."""
        return self.run_ns + self.unread_ns

    @property
    def is_mostly_able(self) -> bool:
        return 2 * self.able_ns >= self.length_ns

    def add(self, run_ns: int, wait_ns: int) -> None:
        """Add what one thread ran and waited for a CPU in the stretch."""
        self.run_ns += run_ns
        self.wait_ns += wait_ns
        self.longest_ns = max(self.longest_ns, min(run_ns + wait_ns, self.length_ns))

    def bounds(self) -> tuple[int, int]:
        """For how long at least, and at most, a thread could run."""
        length_ns = self.length_ns
        together_ns = (self.ran_ns + self.throttled_ns) // max(self.cpus, 1)
        low_ns = max(self.longest_ns, self.least_ns, together_ns)
        waited_ns = max(self.wait_ns, self.least_ns, self.throttled_ns)
        if self.unread_ns:  # threads that nobody read may have waited, too
            unread_ns = length_ns if self.most_ns is None else self.most_ns
            waited_ns = max(waited_ns, unread_ns)
        low_ns = min(low_ns, length_ns)
        return low_ns, max(min(self.ran_ns + waited_ns, length_ns), low_ns)


class BlockedTime(Struct, frozen=True):
    """What is left of a stretch beside the busy time: ``fixed_ns``, less the share of ``open_ns``
    that the looks of the whole run leave to the busy time.
    """

    fixed_ns: float = 0.0
    open_ns: float = 0.0

    def __add__(self, other: "BlockedTime") -> "BlockedTime":
        """The sum of both."""
        return BlockedTime(self.fixed_ns + other.fixed_ns, self.open_ns + other.open_ns)

    def part(self, share: float) -> "BlockedTime":
        return BlockedTime(share * self.fixed_ns, share * self.open_ns)

    def total_ns(self, open_share: float) -> float:
        """Its length, given which share of the open ranges was busy."""
        return max(self.fixed_ns - open_share * self.open_ns, 0.0)


class _Bucket(Struct):
    """Open stretches of which about the same share is on a CPU."""

    run_ns: float = 0
    low_ns: float = 0
    span_ns: float = 0


class BusyTime(Struct):
    """The sums over all stretches, in constant memory."""

    length_ns: float = 0
    closed_busy_ns: float = 0
    closed_on_cpu_ns: float = 0
    open_low_ns: float = 0
    open_span_ns: float = 0
    open_able_ns: float = 0
    buckets: dict[int, _Bucket] = field(default_factory=dict)

    def add(self, stretch: Stretch, part: float = 1.0) -> BlockedTime:
        """Add a part of a stretch; returns what is left of it."""
        low_ns, high_ns = stretch.bounds()
        length_ns = stretch.length_ns
        span_ns = high_ns - low_ns
        self.length_ns += part * length_ns
        if _OPEN_DIVISOR * span_ns <= length_ns:
            busy_ns = low_ns + span_ns / 2
            self.closed_busy_ns += part * busy_ns
            self.closed_on_cpu_ns += part * min(stretch.ran_ns, busy_ns)
            return BlockedTime(part * (length_ns - busy_ns), 0.0)
        self.open_low_ns += part * low_ns
        self.open_span_ns += part * span_ns
        self.open_able_ns += part * stretch.able_ns
        # From this share of the range on, the whole CPU time fits into the busy time.
        number = min(max((stretch.ran_ns - low_ns) * _BUCKETS // span_ns, 0), _BUCKETS)
        bucket = self.buckets.setdefault(number, _Bucket())
        bucket.run_ns += part * stretch.ran_ns
        bucket.low_ns += part * low_ns
        bucket.span_ns += part * span_ns
        return BlockedTime(part * (length_ns - low_ns), part * span_ns)

    @property
    def open_share(self) -> float:
        """Which share of the open ranges was busy."""
        if not self.open_span_ns:
            return 0.0
        return min(max((self.open_able_ns - self.open_low_ns) / self.open_span_ns, 0.0), 1.0)

    @property
    def busy_ns(self) -> float:
        return self.closed_busy_ns + self.open_low_ns + self.open_share * self.open_span_ns

    @property
    def on_cpu_ns(self) -> float:
        """Of the busy time, all that ran: waiting is claimed only where the counters prove it."""
        share = self.open_share
        total_ns = self.closed_on_cpu_ns
        for number, bucket in self.buckets.items():
            if number <= share * _BUCKETS:
                total_ns += bucket.run_ns
            else:
                total_ns += bucket.low_ns + share * bucket.span_ns
        return min(total_ns, self.busy_ns)

    def copy(self) -> "BusyTime":
        buckets = {number: replace(bucket) for number, bucket in self.buckets.items()}
        return replace(self, buckets=buckets)
