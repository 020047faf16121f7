"""For how long anything could run, and for how long anything did, by the counters of the threads
between two looks, and by how many threads the looks found that could run.

The counters leave a range where threads of several processes may have run at the same time or one
after the other. There the looks decide how many could run together, over all such stretches of the
run: stretch by stretch it would be wrong, as two equal bursts lie on the lower bound.
"""

import math
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.blocked_time import BlockedTime
from profiler.aggregation.stretch import Stretch

# The bounds of a stretch lie apart if the range is a larger part of it.
_OPEN_DIVISOR = 10
_BUCKETS = 64
# The looks say how many threads could run together only if the counted threads used at least so
# many times what the others used.
_COUNTED_TIMES = 10
# Threads that the looks find in turn, one or sometimes two at once, run for as long as the counters
# say of all of them; those that the looks find together, so many at once, each at its own times.
_TOGETHER_THREADS = 1.8
# In so much of the time, all threads run together, as is assumed before a look has found none.
_TOGETHER_SHARE = 0.03
# So many threads of others can run on a machine, as is assumed before a look; and at least so many.
_ASSUMED_OTHERS = 1
_LEAST_OTHERS = 0.05
_MAX_EXPONENT = 700
_Sums = TypeVar("_Sums", bound=Struct)


class _OpenStretchBucket(Struct):
    """Open stretches of which about the same share is on a CPU."""

    run_ns: float = 0
    low_ns: float = 0
    span_ns: float = 0


class _LookedStretches(Struct):
    """Sums over the open stretches whose looks say whether a thread could run. ``looked_ns`` is the
    length of those whose looks found that, ``threads_ns`` the same times how many threads could.
    ``counted_looks`` have found ``counted_threads`` that could, and those are all.
    """

    length_ns: float = 0
    low_ns: float = 0
    span_ns: float = 0
    able_ns: float = 0
    looked_ns: float = 0
    threads_ns: float = 0
    used_ns: float = 0
    uncounted_ns: float = 0
    unread_ns: float = 0
    counted_looks: float = 0
    counted_threads: float = 0

    def add(self, stretch: Stretch, low_ns: int, span_ns: int, part: float) -> None:
        """Add a part of a stretch."""
        length_ns = stretch.length_ns
        self.length_ns += part * length_ns
        self.low_ns += part * low_ns
        self.span_ns += part * span_ns
        self.able_ns += part * stretch.able_time_by_look_ns
        if not stretch.able_ns:
            self.unread_ns += part * stretch.unread_ns
        self.looked_ns += part * stretch.able_ns
        threads = 1 if stretch.counts_no_threads else max(stretch.able_threads, 1)
        self.threads_ns += part * stretch.able_ns * threads
        if stretch.able_threads and not stretch.counts_no_threads:
            self.counted_looks += part
            self.counted_threads += part * stretch.able_threads
        used_ns = stretch.run_ns + stretch.wait_ns
        self.used_ns += part * used_ns
        uncounted_ns = stretch.uncounted_ns + (used_ns if stretch.counts_no_threads else 0)
        self.uncounted_ns += part * uncounted_ns

    @property
    def are_together(self) -> bool:
        """Whether the looks found more threads at once than those which run in turn."""
        return self.counted_threads > _TOGETHER_THREADS * self.counted_looks

    @property
    def able_at_own_times_ns(self) -> float:
        """For how long a thread could run, if each that could, also those that the looks did not
        find, could at its own times.
        """
        if not self.threads_ns:
            return self.able_ns
        # Peeks do not count the threads.
        threads_ns = self.threads_ns * self.able_ns / self.looked_ns
        times_as_many = self.used_ns / threads_ns
        unable = max(1 - self.able_ns / self.length_ns, 0.0)
        more_ns: float = (1 - unable**times_as_many) * self.length_ns
        return min(more_ns, self.able_ns * times_as_many)


class _OtherThreads(Struct):
    """How many threads of others could run on the machine at the looks: the sum of what is beyond
    the run's own by their counters, and the weights of the looks in it.
    """

    threads: float = 0
    weight: float = 0

    def add(self, stretch: Stretch, part: float) -> None:
        """Add a part of a stretch; no thread of a group can run while its quota is used up."""
        if stretch.able_on_machine is None or stretch.throttled_ns:
            return
        own = stretch.able_threads_by_counters
        # The more of the run's threads can run, the less the number at a moment is the mean one.
        weight = part / (1 + own) ** 2
        self.threads += weight * (stretch.able_on_machine - own)
        self.weight += weight

    @property
    def mean(self) -> float:
        return max((_ASSUMED_OTHERS + self.threads) / (1 + self.weight), _LEAST_OTHERS)


class _OwnTimes(Struct):
    """Sums over open stretches: for how long a thread could run by their looks, and at own times,
    that is if each thread could at its own times. ``variance_ns2`` says how much these two differ
    by chance.
    """

    low_ns: float = 0
    span_ns: float = 0
    unread_ns: float = 0
    by_looks_ns: float = 0
    at_own_times_ns: float = 0
    variance_ns2: float = 0

    def add(self, stretch: Stretch, low_ns: int, span_ns: int, part: float, others: float) -> None:
        """Add a part of a stretch; so many threads of ``others`` can run on the machine."""
        length_ns = stretch.length_ns
        self.low_ns += part * low_ns
        self.span_ns += part * span_ns
        able_share = 1.0
        if not stretch.able_ns:
            self.unread_ns += part * stretch.unread_ns
            able_share = _able_share_if_none_was_found(stretch, low_ns / length_ns, others)
        able_share = (able_share + stretch.able_peeks) / (1 + stretch.peeks)
        self.by_looks_ns += part * able_share * length_ns
        used_ns = stretch.run_ns + stretch.wait_ns
        if stretch.asked_share == 1 and _COUNTED_TIMES * stretch.uncounted_ns > used_ns:
            self.at_own_times_ns += part * able_share * length_ns
            return
        own_share = -math.expm1(-stretch.able_threads_by_counters)
        self.at_own_times_ns += part * max(own_share * length_ns, low_ns)
        self.variance_ns2 += part * own_share * (1 - own_share) * length_ns**2

    @property
    def able_ns(self) -> float:
        """For how long a thread could run: the looks count as far as they differ from own times
        by more than chance, as by the estimator of James and Stein.
        """
        more_ns = self.by_looks_ns - self.at_own_times_ns
        if more_ns**2 <= self.variance_ns2:
            return self.at_own_times_ns
        return self.at_own_times_ns + more_ns - self.variance_ns2 / more_ns


class _LostRuns(Struct):
    """Sums over the stretches in which threads have run of which nobody knows for how long: what
    was busy of them, and what was counted. Those threads ran and waited for a CPU like the counted
    ones.
    """

    fixed_ns: float = 0
    span_ns: float = 0
    counted_ns: float = 0
    run_ns: float = 0
    wait_ns: float = 0

    def add(self, stretch: Stretch, fixed_ns: float, span_ns: float, part: float) -> None:
        """Add a part of a stretch."""
        self.fixed_ns += part * fixed_ns
        self.span_ns += part * span_ns
        self.counted_ns += part * stretch.bounded_run_ns
        self.run_ns += part * stretch.run_ns
        self.wait_ns += part * stretch.wait_ns

    def uncounted_run_ns(self, open_share: float) -> float:
        """For how long these threads ran, beyond what was counted."""
        if not self.run_ns:
            return 0.0
        busy_ns = self.fixed_ns + open_share * self.span_ns
        run_part = self.run_ns / (self.run_ns + self.wait_ns)
        return max(run_part * busy_ns - self.counted_ns, 0.0)


def _add_sums(sums: _Sums, others: _Sums) -> None:
    """Add the sums of other stretches."""
    for name in sums.__struct_fields__:
        setattr(sums, name, getattr(sums, name) + getattr(others, name))


def _able_share_if_none_was_found(stretch: Stretch, low_share: float, others: float) -> float:
    """How probably a thread could run that a look did not ask, which found none.

    If each can at its own times, the number of threads that can run has a Poisson distribution, and
    so has the number of those of others: the more can on the machine, the likelier one is the
    run's. But the look may be one after a time in which all threads have run together, for as short
    as the counters allow.
    """
    threads = stretch.able_threads_by_counters
    unasked = (1 - stretch.asked_share) * threads
    # The logarithm of how much likelier the number on the machine makes it that one could run.
    likelier = unasked
    if stretch.able_on_machine is not None and not stretch.throttled_ns:
        likelier = stretch.able_on_machine * math.log1p(unasked / others)
    together = _TOGETHER_SHARE / (1 - _TOGETHER_SHARE) * (1 - low_share)
    return -math.expm1(-likelier) / (
        1 + together * math.exp(min(threads - likelier, _MAX_EXPONENT))
    )


class BusyTime(Struct):
    """The sums over all stretches, in constant memory; those of open stretches once more of the
    ones whose looks say whether a thread could run: ``sure``, and once more ``own``, if each thread
    could at its own times, and ``partial`` where a look did not ask all. ``looked_ns`` is the
    length of all stretches whose looks found that, ``threads_ns`` the same times how many threads
    could.
    """

    length_ns: float = 0
    closed_busy_ns: float = 0
    closed_on_cpu_ns: float = 0
    open_low_ns: float = 0
    open_span_ns: float = 0
    looked_ns: float = 0
    threads_ns: float = 0
    sure: _LookedStretches = field(default_factory=_LookedStretches)
    own: _OwnTimes = field(default_factory=_OwnTimes)
    partial: _OwnTimes = field(default_factory=_OwnTimes)
    others: _OtherThreads = field(default_factory=_OtherThreads)
    buckets: dict[int, _OpenStretchBucket] = field(default_factory=dict)
    lost: _LostRuns = field(default_factory=_LostRuns)

    def add_part_of_interval(self, stretch: Stretch, part: float = 1.0) -> BlockedTime:
        """Add a part of a stretch; returns what is left of it."""
        low_ns, high_ns = stretch.able_time_bounds_ns()
        length_ns = stretch.length_ns
        span_ns = high_ns - low_ns
        self.length_ns += part * length_ns
        self.others.add(stretch, part)
        if stretch.able_threads and not stretch.counts_no_threads:
            self.looked_ns += part * stretch.able_ns
            self.threads_ns += part * stretch.able_ns * stretch.able_threads
        if _OPEN_DIVISOR * span_ns <= length_ns:
            busy_ns = low_ns + span_ns / 2
            self.closed_busy_ns += part * busy_ns
            self.closed_on_cpu_ns += part * min(stretch.bounded_run_ns, busy_ns)
            if stretch.has_lost_runs:
                self.lost.add(stretch, busy_ns, 0, part)
            return BlockedTime(part * (length_ns - busy_ns), 0.0)
        self.open_low_ns += part * low_ns
        self.open_span_ns += part * span_ns
        if stretch.has_lost_runs:
            self.lost.add(stretch, low_ns, span_ns, part)
        if not stretch.is_unsure:
            if stretch.asked_share < 1:
                self.partial.add(stretch, low_ns, span_ns, part, self.others.mean)
            else:
                self.sure.add(stretch, low_ns, span_ns, part)
                self.own.add(stretch, low_ns, span_ns, part, self.others.mean)
        # From this share of the range on, the whole CPU time fits into the busy time.
        number = min(max((stretch.bounded_run_ns - low_ns) * _BUCKETS // span_ns, 0), _BUCKETS)
        bucket = self.buckets.setdefault(number, _OpenStretchBucket())
        bucket.run_ns += part * stretch.bounded_run_ns
        bucket.low_ns += part * low_ns
        bucket.span_ns += part * span_ns
        return BlockedTime(part * (length_ns - low_ns), part * span_ns)

    @property
    def open_share(self) -> float:
        """Which share of the open ranges was busy.

        The looks say how many threads could run when any could, and the counters for how long all
        of them could: a look that comes late, because others use the CPUs, finds more of both. Of
        more threads than the looks found, each could run at its own times: the share of the time in
        which none could is a power of what it would be. Where the looks find more together, each
        stretch has a share of its own.

        A look that did not ask all threads which may be able to run has missed some of these.
        """
        sure, partial = self.sure, self.partial
        span_ns = sure.span_ns + partial.span_ns
        if not span_ns:
            return 0.0
        able_ns = sure.able_ns
        if sure.are_together:
            able_ns = self.own.able_ns
        elif _COUNTED_TIMES * sure.uncounted_ns <= sure.used_ns:
            able_ns = sure.able_at_own_times_ns
        able_ns += partial.able_ns
        if self.looked_ns:
            # A thread that ends in a stretch is not found by the look at its end.
            unread_ns = sure.unread_ns + partial.unread_ns
            able_ns = max(able_ns, unread_ns * self.looked_ns / self.threads_ns)
        return min(max((able_ns - sure.low_ns - partial.low_ns) / span_ns, 0.0), 1.0)

    @property
    def busy_ns(self) -> float:
        return self.closed_busy_ns + self.open_low_ns + self.open_share * self.open_span_ns

    @property
    def on_cpu_ns(self) -> float:
        """The busy time on a CPU: waiting is claimed only where the counters prove it, or by those
        of threads like the ones that nobody could read.
        """
        share = self.open_share
        total_ns = self.closed_on_cpu_ns
        for number, bucket in self.buckets.items():
            if number <= share * _BUCKETS:
                total_ns += bucket.run_ns
            else:
                total_ns += bucket.low_ns + share * bucket.span_ns
        return min(total_ns + self.lost.uncounted_run_ns(share), self.busy_ns)

    def merge(self, other: "BusyTime") -> None:
        """Add the sums of other stretches."""
        self.length_ns += other.length_ns
        self.closed_busy_ns += other.closed_busy_ns
        self.closed_on_cpu_ns += other.closed_on_cpu_ns
        self.open_low_ns += other.open_low_ns
        self.open_span_ns += other.open_span_ns
        self.looked_ns += other.looked_ns
        self.threads_ns += other.threads_ns
        _add_sums(self.sure, other.sure)
        _add_sums(self.own, other.own)
        _add_sums(self.partial, other.partial)
        _add_sums(self.others, other.others)
        _add_sums(self.lost, other.lost)
        for number, bucket in other.buckets.items():
            own = self.buckets.setdefault(number, _OpenStretchBucket())
            own.run_ns += bucket.run_ns
            own.low_ns += bucket.low_ns
            own.span_ns += bucket.span_ns

    def copy(self) -> "BusyTime":
        buckets = {number: replace(bucket) for number, bucket in self.buckets.items()}
        return replace(
            self,
            sure=replace(self.sure),
            own=replace(self.own),
            partial=replace(self.partial),
            others=replace(self.others),
            buckets=buckets,
            lost=replace(self.lost),
        )
