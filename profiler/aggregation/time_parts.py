"""How the time of steps is divided: on a CPU, waiting for a CPU, and blocked by what the run
waited for.

The blocked part of a step belongs to the kind that the sample at its end shows. Of threads that
wait for a CPU at the same time, the longest wait counts, and also the wait of one that began in the
step, which may follow another.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.unread_time import UnreadTime
from profiler.readers.linux.cpu_pressure import CpuWaitLimits
from profiler.readers.linux.thread_times import ThreadSample
from profiler.readers.linux.waited_target import TIMER, Wait
from profiler.record.activity_model import TimeBreakdown, WaitTarget

# The first of these kinds that any thread shows counts. A thread that waits for other threads is
# the weaker evidence.
_KINDS = ("disk", "network", "sleep", "pipe", "lock", "child")
# A thread that waits for a futex for a limited time may be what others wait for, or a bystander.
_ORDER = ("disk", "network", "sleep", "pipe", TIMER.kind, "lock", "child", "other")
# They show nothing in a partial sample: another thread may have shown more.
_WEAK_KINDS = (TIMER.kind, "lock", "child", "other")
# Others show nothing while a thread is on a CPU: what that thread waits for before or after counts,
# and not a thread that only waits, such as a progress bar that sleeps, or a shell that waits for a
# job's output.
_STRONG_KINDS = ("disk", "network")
_SEEN_WITHOUT_PRIVILEGE = ("disk",)
_OTHER = "other"
# System calls that could not be read for a longer part of the run hide too much.
_MAX_HIDDEN_SHARE = 0.05
_MAX_TARGETS_SHOWN = 8
_MAX_TARGETS_KEPT = 64
_REST = (_OTHER, _OTHER)
_PERCENT_DIGITS = 1
_UNITS = 1000  # 100 % in tenths


class ShownWait(Struct, frozen=True, gc=False):
    """The kind that the sample at ``at_ns`` shows, and how many of the threads of this kind wait
    for which target.
    """

    at_ns: int
    kind: str
    targets: tuple[tuple[str | None, int], ...] = ()
    is_hidden: bool = False

    def is_like(self, other: "ShownWait") -> bool:
        """Whether both show the same wait; the number of threads may differ."""
        return self.kind == other.kind and dict(self.targets).keys() == dict(other.targets).keys()

    def divide(self, time_ns: int) -> Iterator[tuple[Wait, int]]:
        """Divide a time among the waits, by the number of their threads."""
        threads = sum(count for _, count in self.targets)
        return (
            (Wait(self.kind, target), time_ns * count // threads) for target, count in self.targets
        )


def shown_wait(sample: ThreadSample, at_ns: int) -> ShownWait | None:
    """What the sample shows; None if no thread is blocked, or another thread's wait counts."""
    kinds = {wait.kind for wait in sample.waits}
    kind = next((kind for kind in _ORDER if kind in kinds), None)
    if kind is None or (sample.is_partial and kind in _WEAK_KINDS):
        return None
    if sample.has_running and kind not in _STRONG_KINDS:
        return None
    targets = tuple(
        (wait.target, count) for wait, count in sample.waits.items() if wait.kind == kind
    )
    if kind == TIMER.kind:
        kind = "sleep"
    return ShownWait(at_ns, kind, targets, is_hidden=sample.has_refused and kind == _OTHER)


class TimeStep(Struct):
    """A step of the run, until its division is final.

    ``covered_ns`` is the part that the sample at its end covers, ``unknown_ns`` the part of which
    it shows nothing. ``longest_ns`` is the longest wait of a thread for a CPU, ``brief_ns`` the
    wait of a thread that began in the step. ``has_unread``: threads have ended unread, while
    threads waited for a CPU within the limits of ``cpu_wait``; ``shows_work`` is of the sample at
    its end. ``gpu_idle_ns``: for how long all GPUs were idle, None if it is not known yet.
    """

    start_ns: int
    end_ns: int
    run_ns: int
    covered_ns: int
    unknown_ns: int
    shown: ShownWait | None
    longest_ns: int = 0
    brief_ns: int = 0
    has_unread: bool = False
    shows_work: bool = False
    cpu_wait: CpuWaitLimits = CpuWaitLimits()
    gpu_idle_ns: int | None = None

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def idle_ns(self) -> int:
        return max(self.length_ns - self.run_ns, 0)

    @property
    def wait_ns(self) -> int:
        return self.longest_ns + self.brief_ns


def _nearest(step: TimeStep, before: ShownWait | None, after: ShownWait | None) -> ShownWait | None:
    """The sample that is nearer to the middle of the step."""
    if before is None or after is None:
        return before or after
    middle_ns = (step.start_ns + step.end_ns) // 2
    if abs(after.at_ns - middle_ns) < abs(before.at_ns - middle_ns):
        return after
    return before


class TimeParts(Struct):
    """The sums over steps. ``undecided_ns`` is the blocked time that no sample explains so far."""

    length_ns: int = 0
    undecided_ns: int = 0
    on_cpu_ns: int = 0
    waiting_ns: int = 0
    covered_ns: int = 0
    hidden_ns: int = 0
    blocked_ns: Counter[str] = field(default_factory=Counter)
    targets_ns: Counter[tuple[str, str]] = field(default_factory=Counter)
    unread: UnreadTime = field(default_factory=UnreadTime)

    def add(
        self, step: TimeStep, part_ns: int, before: ShownWait | None, after: ShownWait | None
    ) -> None:
        """Add ``part_ns`` of the time of a step; ``before`` and ``after`` are the samples around
        it.

        Blocked time that no sample covers belongs to what the samples around it show, if that is
        the same.
        """
        shown = step.shown
        if self.undecided_ns and shown is not None:
            self.add_blocked(self.undecided_ns, shown)
            self.undecided_ns = 0
        if not part_ns:  # as the idle part of each step without a GPU
            return
        on_cpu_ns = min(step.length_ns, step.run_ns)
        waiting_ns = min(step.length_ns - on_cpu_ns, step.wait_ns)
        on_cpu_ns = on_cpu_ns * part_ns // step.length_ns
        waiting_ns = waiting_ns * part_ns // step.length_ns
        self.length_ns += part_ns
        self.on_cpu_ns += on_cpu_ns
        self.waiting_ns += waiting_ns
        self.covered_ns += step.covered_ns * part_ns // step.length_ns
        if step.has_unread:
            self._add_unread(step, part_ns, on_cpu_ns + waiting_ns)
            return
        blocked_ns = part_ns - on_cpu_ns - waiting_ns
        end = shown or after
        if step.unknown_ns and (before is None or (end is not None and not before.is_like(end))):
            unknown_ns = blocked_ns * step.unknown_ns // step.length_ns
            self.blocked_ns[_OTHER] += unknown_ns
            blocked_ns -= unknown_ns
        if shown is None:
            shown = _nearest(step, before, after)
        if shown is None:
            self.undecided_ns += blocked_ns
        else:
            self.add_blocked(blocked_ns, shown)

    def _add_unread(self, step: TimeStep, part_ns: int, known_ns: int) -> None:
        """Add a step of whose threads some were not read; what its sample does not cover is
        unknown.
        """
        sampled_ns = step.length_ns - step.unknown_ns
        gap_ns = (part_ns - known_ns) * step.unknown_ns // step.length_ns
        self.blocked_ns[_OTHER] += gap_ns
        length_ns = part_ns * sampled_ns // step.length_ns
        possible_ns = step.cpu_wait.most_ns
        if possible_ns is not None:
            possible_ns = max(possible_ns - step.wait_ns, 0) * part_ns // step.length_ns
        certain_ns = max(step.cpu_wait.least_ns - step.wait_ns, 0) * part_ns // step.length_ns
        self.unread.add(
            length_ns=length_ns,
            known_ns=length_ns - (part_ns - known_ns - gap_ns),
            possible_ns=possible_ns,
            certain_ns=certain_ns,
        )
        if step.shows_work:
            self.unread.add_working_sample()
        elif step.shown is not None:
            self.unread.add_blocked_sample(dict(step.shown.divide(length_ns)))
            if step.shown.is_hidden:
                self.hidden_ns += part_ns - known_ns

    def settle(self) -> None:
        """Divide what is open: blocked time without a sample, and the steps with unread threads."""
        self.blocked_ns[_OTHER] += self.undecided_ns
        parts = self.unread.parts()
        self.unread = UnreadTime()
        self.waiting_ns += parts.waiting_ns
        self.blocked_ns[_OTHER] += parts.unknown_ns
        self.covered_ns = max(self.covered_ns - parts.unknown_ns, 0)
        for wait, blocked_ns in parts.blocked_ns.items():
            self.blocked_ns[wait.kind] += blocked_ns
            if wait.target is not None and blocked_ns:
                self.targets_ns[wait.kind, wait.target] += blocked_ns

    def add_blocked(self, blocked_ns: int, shown: ShownWait) -> None:
        """Add blocked time, divided among the threads of the kind that counts."""
        if shown.is_hidden:
            self.hidden_ns += blocked_ns
        self.blocked_ns[shown.kind] += blocked_ns
        for wait, time_ns in shown.divide(blocked_ns):
            if wait.target is not None and blocked_ns:
                self.targets_ns[wait.kind, wait.target] += time_ns
        if len(self.targets_ns) > _MAX_TARGETS_KEPT:
            kept = Counter(dict(self.targets_ns.most_common(_MAX_TARGETS_KEPT // 2)))
            kept[_REST] += self.targets_ns.total() - kept.total()
            self.targets_ns = kept

    def merge(self, other: "TimeParts") -> None:
        """Count the steps of another one, too."""
        for name in (
            "length_ns",
            "undecided_ns",
            "on_cpu_ns",
            "waiting_ns",
            "covered_ns",
            "hidden_ns",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.blocked_ns.update(other.blocked_ns)
        self.targets_ns.update(other.targets_ns)
        self.unread.merge(other.unread)

    def copy(self) -> "TimeParts":
        return replace(
            self,
            blocked_ns=self.blocked_ns.copy(),
            targets_ns=self.targets_ns.copy(),
            unread=self.unread.copy(),
        )

    def breakdown(
        self, *, sees_calls: bool, has_waits: bool, duration_ns: int | None
    ) -> TimeBreakdown:
        """The sums in percent. ``otherPercent`` is the time of unknown kind."""
        is_full = sees_calls and self.hidden_ns <= _MAX_HIDDEN_SHARE * self.length_ns
        parts = {"on_cpu": self.on_cpu_ns}
        if has_waits:
            parts["waiting_for_cpu"] = self.waiting_ns
        for kind in _KINDS if is_full else _SEEN_WITHOUT_PRIVILEGE:
            parts[kind] = self.blocked_ns[kind]
        parts[_OTHER] = self.length_ns - sum(parts.values())
        percents = percents_of(parts)
        covered = 100 * self.covered_ns / max(duration_ns or 0, self.length_ns)
        return TimeBreakdown(
            **{f"{name}_percent": percent for name, percent in percents.items()},
            waiting_for=self._waiting_for(percents) if is_full else (),
            covered_percent=round(covered, _PERCENT_DIGITS),
        )

    def _waiting_for(self, percents: Mapping[str, float]) -> tuple[WaitTarget, ...]:
        """The targets with the most time, each at most its kind's ``percents``; the others
        together.
        """
        rest_ns = 0
        rows: list[WaitTarget] = []
        for (kind, target), time_ns in self.targets_ns.most_common():
            if (kind, target) == _REST or len(rows) == _MAX_TARGETS_SHOWN:
                rest_ns += time_ns
                continue
            percent = min(self._percent(time_ns), percents[kind])
            rows.append(WaitTarget(kind=kind, target=target, percent=percent))
        rows.append(WaitTarget(kind=_OTHER, target=_OTHER, percent=self._percent(rest_ns)))
        return tuple(row for row in rows if row.percent)

    def _percent(self, time_ns: int) -> float:
        return round(100 * time_ns / self.length_ns, _PERCENT_DIGITS)


def percents_of(parts: Mapping[str, int]) -> dict[str, float]:
    """Shares in percent with one decimal that add up to 100, by the method of the largest
    remainder.
    """
    total = sum(parts.values())
    units = {name: value * _UNITS // total for name, value in parts.items()}
    by_remainder = sorted(parts, key=lambda name: -(parts[name] * _UNITS % total))
    for name in by_remainder[: _UNITS - sum(units.values())]:
        units[name] += 1
    return {name: round(100 * value / _UNITS, _PERCENT_DIGITS) for name, value in units.items()}
