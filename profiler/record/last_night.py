"""The last night in one sentence, with which the morning message begins.

A night lasts from noon to noon: a failure at 22:30 and a success at 00:01 are in one night. The
last night is the one that contains this morning, also in the afternoon.
"""

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, tzinfo

from msgspec import Struct

from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.units import format_usd

MISSED = "missed"
OUT_OF_MEMORY = "out of memory"
# What needs a reader is first, each with what the sentence calls it.
_PREDICATES: Mapping[str, str] = {
    MISSED: "missed",
    OUT_OF_MEMORY: "killed for memory",
    "failure": "failed",
    "stopped": "stopped",
    "unknown": "unknown",
    "running": "running",
    "success": "succeeded",
}
_UNNAMED = ("running", "success")
_MAX_NAMED = 3

# The runs of a night: outcome, then family, then their number; the family to be named first is
# first. A due time without a task is ``MISSED``, and no run.
RunCounts = Mapping[str, Mapping[str, int]]


class Night(Struct, frozen=True, kw_only=True):
    """The night that begins on ``day`` in this zone."""

    day: date
    zone: tzinfo

    @property
    def start_ns(self) -> int:
        return self._ns(self.day)

    @property
    def end_ns(self) -> int:
        return self._ns(self.day + timedelta(days=1))

    def _ns(self, day: date) -> int:
        return round(datetime.combine(day, time(12), self.zone).timestamp()) * NS_PER_SECOND

    @property
    def title(self) -> str:
        return f"Last night ({self.day.day} {self.day:%B})"


def last_night(now: datetime) -> Night:
    """The night that contains this morning, in the zone of ``now``."""
    zone = now.tzinfo
    if zone is None:
        raise ValueError("The time has no zone.")
    return Night(day=now.date() - timedelta(days=1), zone=zone)


class NightPart(Struct, frozen=True, kw_only=True):
    """The runs of one outcome: ``text`` such as "2 failed", and the families that are named, with
    the number of their runs. ``more_families`` are not named.
    """

    outcome: str
    text: str
    families: Mapping[str, int] = {}
    more_families: int = 0

    def __str__(self) -> str:
        """The text with the named families."""
        if not self.families:
            return self.text
        names = [name if runs == 1 else f"{name} ×{runs}" for name, runs in self.families.items()]
        more = ""
        if self.more_families:
            more = f" and {self.more_families} more"
        return f"{self.text} ({', '.join(names)}{more})"


def night_parts(counts: RunCounts) -> tuple[NightPart, ...]:
    """The parts of the sentence, worst first."""
    parts = []
    for outcome, predicate in _PREDICATES.items():
        families = counts.get(outcome, {})
        runs = sum(families.values())
        if runs == 0:
            continue
        named = {} if outcome in _UNNAMED else dict(list(families.items())[:_MAX_NAMED])
        parts.append(
            NightPart(
                outcome=outcome,
                text=f"{runs} {predicate}",
                families=named,
                more_families=len(families) - len(named) if named else 0,
            )
        )
    return tuple(parts)


def number_of_runs(counts: RunCounts) -> str:
    """The number of the runs, such as "27 runs". A missed due time is no run."""
    runs = 0
    for outcome, families in counts.items():
        if outcome != MISSED:
            runs += sum(families.values())
    return "1 run" if runs == 1 else f"{runs} runs"


def night_sentence(night: Night, counts: RunCounts, usd: float | None) -> str:
    """The sentence of the last night.

    Such as "Last night (24 November): 3 runs, 1 failed (etl), 2 succeeded, $4.10.".
    """
    parts = night_parts(counts)
    if not parts:
        return f"{night.title}: nothing ran."
    words = [number_of_runs(counts), *map(str, parts)]
    if usd is not None:
        words.append(format_usd(usd))
    return f"{night.title}: {', '.join(words)}."
