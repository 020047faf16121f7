"""The parts of a run's wall time: on a CPU, waiting for a CPU, and blocked by what the run waited
for.
"""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.busy_time import BlockedTime, BusyTime
from profiler.aggregation.critical_thread import HIDDEN
from profiler.readers.linux.waits import Wait
from profiler.record.activity_model import TimeBreakdown, WaitTarget

_KINDS = ("disk", "network", "sleep", "pipe", "lock", "child")
_SEEN_WITHOUT_PRIVILEGE = ("disk",)
_OTHER = "other"
# System calls that could not be read for a longer part of the run hide too much.
_MAX_HIDDEN_SHARE = 0.05
_MAX_TARGETS_SHOWN = 8
_MAX_TARGETS_KEPT = 64
_REST = Wait(_OTHER, _OTHER)
_PERCENT_DIGITS = 1
_UNITS = 1000  # 100 % in tenths


class _Sum(Struct):
    """The blocked time of a wait: see :class:`BlockedTime`."""

    fixed_ns: float = 0.0
    open_ns: float = 0.0

    def add(self, blocked: BlockedTime, share: float) -> None:
        self.fixed_ns += share * blocked.fixed_ns
        self.open_ns += share * blocked.open_ns

<<<<<<< HEAD
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
=======
    def total_ns(self, open_share: float) -> float:
        return max(self.fixed_ns - open_share * self.open_ns, 0.0)
>>>>>>> main


class TimeParts(Struct):
    """The sums over stretches, in constant memory; blocked time that was not divided is of unknown
    kind.
    """

    busy: BusyTime = field(default_factory=BusyTime)
    covered_ns: float = 0
    kinds: dict[str, _Sum] = field(default_factory=dict)
    targets: dict[Wait, _Sum] = field(default_factory=dict)

    def divide(self, blocked: BlockedTime, shares: Mapping[Wait, float]) -> None:
        """Divide blocked time among the waits of a look."""
        for wait, share in shares.items():
            self.kinds.setdefault(wait.kind, _Sum()).add(blocked, share)
            if wait.target is not None:
                self.targets.setdefault(wait, _Sum()).add(blocked, share)
        if len(self.targets) > _MAX_TARGETS_KEPT:
            self._forget_targets()

    def _forget_targets(self) -> None:
        """Keep the targets with the most time, and the sum of the rest."""
        by_time = sorted(self.targets, key=lambda wait: -self.targets[wait].fixed_ns)
        rest = self.targets.setdefault(_REST, _Sum())
        for wait in by_time[_MAX_TARGETS_KEPT // 2 :]:
            if wait != _REST:
                forgotten = self.targets.pop(wait)
                rest.fixed_ns += forgotten.fixed_ns
                rest.open_ns += forgotten.open_ns

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
            busy=self.busy.copy(),
            kinds={kind: replace(total) for kind, total in self.kinds.items()},
            targets={wait: replace(total) for wait, total in self.targets.items()},
        )

    def breakdown(
        self, *, sees_calls: bool, has_waits: bool, duration_ns: int | None
    ) -> TimeBreakdown | None:
        """The sums in percent; None without any. ``otherPercent`` is the time of unknown kind."""
        length_ns = round(self.busy.length_ns)
        if not length_ns:
            return None
        open_share = self.busy.open_share
        hidden = self.kinds.get(HIDDEN.kind, _Sum())
        is_full = sees_calls and hidden.total_ns(open_share) <= _MAX_HIDDEN_SHARE * length_ns
        on_cpu_ns = round(self.busy.on_cpu_ns)
        parts = {"on_cpu": on_cpu_ns}
        if has_waits:
            parts["waiting_for_cpu"] = max(round(self.busy.busy_ns) - on_cpu_ns, 0)
        for kind in _KINDS if is_full else _SEEN_WITHOUT_PRIVILEGE:
            parts[kind] = round(self.kinds.get(kind, _Sum()).total_ns(open_share))
        parts[_OTHER] = max(length_ns - sum(parts.values()), 0)
        percents = percents_of(parts)
        covered = 100 * self.covered_ns / max(duration_ns or 0, length_ns)
        return TimeBreakdown(
            **{f"{name}_percent": percent for name, percent in percents.items()},
            waiting_for=self._waiting_for(percents, open_share) if is_full else (),
            covered_percent=round(min(covered, 100.0), _PERCENT_DIGITS),
        )

    def _waiting_for(
        self, percents: Mapping[str, float], open_share: float
    ) -> tuple[WaitTarget, ...]:
        """The targets with the most time, each at most its kind's ``percents``; the others
        together.
        """
        times_ns = {wait: total.total_ns(open_share) for wait, total in self.targets.items()}
        rest_ns = times_ns.pop(_REST, 0.0)
        by_time = sorted(times_ns, key=lambda wait: -times_ns[wait])
        rest_ns += sum(times_ns[wait] for wait in by_time[_MAX_TARGETS_SHOWN:])
        rows = [
            WaitTarget(
                kind=wait.kind,
                target=wait.target or "",
                percent=min(self._percent(times_ns[wait]), percents[wait.kind]),
            )
            for wait in by_time[:_MAX_TARGETS_SHOWN]
        ]
        rows.append(WaitTarget(kind=_OTHER, target=_OTHER, percent=self._percent(rest_ns)))
        return tuple(row for row in rows if row.percent)

    def _percent(self, time_ns: float) -> float:
        return round(100 * time_ns / self.busy.length_ns, _PERCENT_DIGITS)


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
