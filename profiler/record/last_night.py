"""A night in one sentence, with which the morning message and the report page begin.

On the page, a night lasts from noon to noon: a failure at 22:30 and a success at 00:01 are in one
night. The last night is the one that contains this morning, also in the afternoon.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta, tzinfo
from itertools import islice

from msgspec import Struct

from profiler.core.text import shown_of
from profiler.core.timestamps import NS_PER_SECOND, instant_of_local
from profiler.record.measured import Measured
from profiler.record.run_outcome import OUT_OF_MEMORY
from profiler.record.units import format_count, format_usd

NOON = time(12)
MIDNIGHT = time(0)
MISSED = "missed"
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
    """The night that begins at noon of ``day``, or at ``begins_at``, and lasts until the same time
    of the next day.

    Without ``zone``, in the time zone of this machine.
    """

    day: date
    zone: tzinfo | None = None
    begins_at: time = NOON

    @property
    def start_ns(self) -> int:
        return self._begin_on_ns(self.day)

    @property
    def end_ns(self) -> int:
        return self._begin_on_ns(self.day + timedelta(days=1))

    def _begin_on_ns(self, day: date) -> int:
        moment = datetime.combine(day, self.begins_at, self.zone)
        if self.zone is None:
            moment = instant_of_local(moment)
        return round(moment.timestamp()) * NS_PER_SECOND

    @property
    def title(self) -> str:
        return f"Last night ({self.day_text})"

    @property
    def day_text(self) -> str:
        return f"{self.day.day} {self.day:%B}"


def last_night(now: datetime) -> Night:
    """The night that contains this morning, in the zone of ``now``."""
    zone = now.tzinfo
    if zone is None:
        raise ValueError("The time has no zone.")
    return Night(day=now.date() - timedelta(days=1), zone=zone)


class NightTextPiece(Struct, frozen=True, kw_only=True):
    """A piece of the sentence: the number of runs of an ``outcome``, the name of a ``family`` with
    such runs, or words between them.
    """

    text: str
    outcome: str | None = None
    family: str | None = None


def count_runs(outcomes_and_families: Iterable[tuple[str, str]]) -> RunCounts:
    """The runs by outcome and family, each in the order of the first one."""
    counts: dict[str, dict[str, int]] = {}
    for outcome, family in outcomes_and_families:
        families = counts.setdefault(outcome, {})
        families[family] = families.get(family, 0) + 1
    return counts


def severity_rank(outcome: str) -> int:
    """The place of an outcome in the sentence."""
    return list(_PREDICATES).index(outcome) if outcome in _PREDICATES else len(_PREDICATES)


def night_text_pieces(
    title: str,
    counts: RunCounts,
    cost: Measured,
    others: Mapping[str, int] | None = None,
) -> Iterator[NightTextPiece]:
    """The pieces of the sentence of a night, what went wrong first.

    ``others``: the runs by outcome of families that are not in ``counts``.
    """
    unnamed = others or {}
    parts = []
    for outcome in _PREDICATES:
        if sum(counts.get(outcome, {}).values()) or unnamed.get(outcome):
            parts.append(outcome)
    if not parts:
        yield NightTextPiece(text=f"{title}: nothing ran.")
        return
    yield NightTextPiece(text=f"{title}: {number_of_runs_text(counts, unnamed)}")
    for outcome in parts:
        yield NightTextPiece(text=", ")
        yield from _outcome_text_pieces(outcome, counts.get(outcome, {}), unnamed.get(outcome, 0))
    price = cost.text(format_usd)
    yield NightTextPiece(text=f", {price}." if price else ".")


def _outcome_text_pieces(
    outcome: str, families: Mapping[str, int], others: int
) -> Iterator[NightTextPiece]:
    """The runs of one outcome, such as "2 failed (a, b)", and those of ``others``."""
    runs = sum(families.values()) + others
    yield NightTextPiece(text=f"{runs:,} {_PREDICATES[outcome]}", outcome=outcome)
    if outcome in _UNNAMED or not families:
        return
    separator = " ("
    shown = _MAX_NAMED if others else shown_of(len(families), _MAX_NAMED)
    for family, family_runs in islice(families.items(), shown):
        yield NightTextPiece(text=separator)
        name = family if family_runs == 1 else f"{family} ×{family_runs:,}"
        yield NightTextPiece(text=name, outcome=outcome, family=family)
        separator = ", "
    more = len(families) - shown
    if others:
        yield NightTextPiece(text=" and others)")
    else:
        yield NightTextPiece(text=f" and {more:,} more)" if more > 0 else ")")


def number_of_runs_text(counts: RunCounts, others: Mapping[str, int] | None = None) -> str:
    """The number of the runs, such as "27 runs". A missed due time is no run."""
    runs = sum(number for outcome, number in (others or {}).items() if outcome != MISSED)
    for outcome, families in counts.items():
        if outcome != MISSED:
            runs += sum(families.values())
    return format_count(runs, "run")


def night_sentence(
    title: str,
    counts: RunCounts,
    cost: Measured,
    others: Mapping[str, int] | None = None,
) -> str:
    """The sentence of a night: see ``night_text_pieces``.

    Such as "Last night (24 November): 3 runs, 1 failed (etl), 2 succeeded, $4.10.".
    """
    return "".join(piece.text for piece in night_text_pieces(title, counts, cost, others))
