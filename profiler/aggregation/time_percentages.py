"""The parts of a run's wall time: on a CPU, waiting for a CPU, and blocked by what the run waited
for.
"""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.blocked_time import BlockedTime
from profiler.aggregation.busy_time import BusyTime
from profiler.aggregation.sorted_waits import HIDDEN
from profiler.readers.linux.wait_types import Wait
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown, WaitTarget

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


class _BlockedSum(Struct):
    """The blocked time of a wait: see :class:`BlockedTime`."""

    fixed_ns: float = 0.0
    open_ns: float = 0.0

    def add_share_of(self, blocked: "BlockedTime | _BlockedSum", share: float) -> None:
        self.fixed_ns += share * blocked.fixed_ns
        self.open_ns += share * blocked.open_ns

    def total_ns(self, open_share: float) -> float:
        return max(self.fixed_ns - open_share * self.open_ns, 0.0)


class TimeParts(Struct):
    """The sums over stretches, in constant memory; blocked time that was not divided is of unknown
    kind.
    """

    busy: BusyTime = field(default_factory=BusyTime)
    covered_ns: float = 0
    kinds: dict[str, _BlockedSum] = field(default_factory=dict)
    targets: dict[Wait, _BlockedSum] = field(default_factory=dict)

    def divide_blocked_time(self, blocked: BlockedTime, shares: Mapping[Wait, float]) -> None:
        """Divide blocked time among the waits of a look."""
        for wait, share in shares.items():
            self.kinds.setdefault(wait.kind, _BlockedSum()).add_share_of(blocked, share)
            if wait.target is not None:
                self.targets.setdefault(wait, _BlockedSum()).add_share_of(blocked, share)
        if len(self.targets) > _MAX_TARGETS_KEPT:
            self._forget_targets()

    def merge(self, other: "TimeParts") -> None:
        """Add the sums of other stretches."""
        self.busy.merge(other.busy)
        self.covered_ns += other.covered_ns
        for kind, total in other.kinds.items():
            self.kinds.setdefault(kind, _BlockedSum()).add_share_of(total, 1.0)
        for wait, total in other.targets.items():
            self.targets.setdefault(wait, _BlockedSum()).add_share_of(total, 1.0)
        if len(self.targets) > _MAX_TARGETS_KEPT:
            self._forget_targets()

    def _forget_targets(self) -> None:
        """Keep the targets with the most time, and the sum of the rest."""
        by_time = sorted(self.targets, key=lambda wait: -self.targets[wait].fixed_ns)
        rest = self.targets.setdefault(_REST, _BlockedSum())
        for wait in by_time[_MAX_TARGETS_KEPT // 2 :]:
            if wait != _REST:
                forgotten = self.targets.pop(wait)
                rest.fixed_ns += forgotten.fixed_ns
                rest.open_ns += forgotten.open_ns

    def copy(self) -> "TimeParts":
        return replace(
            self,
            busy=self.busy.copy(),
            kinds={kind: replace(total) for kind, total in self.kinds.items()},
            targets={wait: replace(total) for wait, total in self.targets.items()},
        )

    def percent_breakdown(
        self, *, sees_calls: bool, has_waits: bool, duration_ns: int | None
    ) -> TimeBreakdown:
        """The sums in percent, if there are any. ``otherPercent`` is the time of unknown kind."""
        length_ns = round(self.busy.length_ns)
        if not length_ns:
            return NO_BREAKDOWN
        open_share = self.busy.open_share
        hidden = self.kinds.get(HIDDEN.kind, _BlockedSum())
        is_full = sees_calls and hidden.total_ns(open_share) <= _MAX_HIDDEN_SHARE * length_ns
        on_cpu_ns = round(self.busy.on_cpu_ns)
        parts = {"on_cpu": on_cpu_ns}
        if has_waits:
            parts["waiting_for_cpu"] = max(round(self.busy.busy_ns) - on_cpu_ns, 0)
        for kind in _KINDS if is_full else _SEEN_WITHOUT_PRIVILEGE:
            parts[kind] = round(self.kinds.get(kind, _BlockedSum()).total_ns(open_share))
        parts[_OTHER] = max(length_ns - sum(parts.values()), 0)
        percents = percents_of(parts)
        covered = 100 * self.covered_ns / max(duration_ns or 0, length_ns)
        return TimeBreakdown(
            **{f"{name}_percent": percent for name, percent in percents.items()},
            waiting_for=self._wait_targets(percents, open_share, is_full=is_full),
            covered_percent=round(min(covered, 100.0), _PERCENT_DIGITS),
        )

    def _wait_targets(
        self, percents: Mapping[str, float], open_share: float, *, is_full: bool
    ) -> tuple[WaitTarget, ...]:
        """The targets with the most time, each at most its kind's ``percents``; the others
        together. Unless it ``is_full``, only the words for what is no kind: stopped, memory.
        """
        times_ns = {
            wait: total.total_ns(open_share)
            for wait, total in self.targets.items()
            if is_full or wait.kind == _OTHER
        }
        rest_ns = times_ns.pop(_REST, 0.0)
        by_time = sorted(times_ns, key=lambda wait: -times_ns[wait])
        rest_ns += sum(times_ns[wait] for wait in by_time[_MAX_TARGETS_SHOWN:])
        rows = [
            WaitTarget(
                kind=wait.kind,
                target=wait.target or "",
                percent=min(self._percent_of_time(times_ns[wait]), percents[wait.kind]),
            )
            for wait in by_time[:_MAX_TARGETS_SHOWN]
        ]
        rows.append(WaitTarget(kind=_OTHER, target=_OTHER, percent=self._percent_of_time(rest_ns)))
        return tuple(row for row in rows if row.percent)

    def _percent_of_time(self, time_ns: float) -> float:
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
