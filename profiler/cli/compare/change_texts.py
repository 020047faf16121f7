"""The comparison of two sets for a person: the sets, the metrics, and which of them exceed ``--fail-above``."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct

from profiler.cli.printing import UNKNOWN
from profiler.cli.styled_text import EMPTY, Column, Line, Span, table, wrapped
from profiler.core.timestamps import format_local, local_zone
from profiler.record.record_model import known_peak_source
from profiler.record.units import format_percent, format_value
from profiler.record.worth_a_word import counted_cpu_wait, cpu_wait_percent
from profiler.runs.comparison.compared_metrics import MedianChange, MetricChange
from profiler.runs.comparison.run_sets import RunSet
from profiler.runs.past_runs.run_source import start_ns
from profiler.sizing.trend import FEW_RUNS, MIN_RUNS

_MANY_PERCENT = 1000
_SEEN_PERCENT = 5
_MIN_WAIT_POINTS = 10
_STYLES: Mapping[str, str] = {"more": "bad", "less": "good"}
METRIC_TITLES = ("", "A", "B", "Change", "95 % interval", "Verdict")
_METRIC_COLUMNS = tuple(
    Column(title, is_right=title in METRIC_TITLES[1:5], folds=title == "Verdict") for title in METRIC_TITLES
)


def comparison_lines(sets: Sequence[RunSet], changes: Sequence[MetricChange], width: int | None) -> Iterator[Line]:
    """Draw both sets, then the metrics that a run has."""
    columns = [Column(name, is_right=name == "Runs", folds=name in ("Runs of", "Left out")) for name in set_titles()]
    yield from table(columns, set_rows(sets), width=width)
    for sentence in conditions_of_comparison(sets):
        yield from wrapped(sentence, width, first="")
    yield EMPTY
    rows: list[tuple[str | Span, ...]] = [
        (*row[:-1], Span(row[-1], _STYLES.get(one.change.verdict, "")))
        for one, row in zip(known_changes(changes), metric_rows(changes), strict=True)
    ]
    yield from table(_METRIC_COLUMNS, rows, width=width)
    for sentence in limits_of_comparison(sets, changes):
        yield from wrapped(sentence, width, first="")


def conditions_of_comparison(sets: Sequence[RunSet]) -> Iterator[str]:
    """Other differences between the sets that can explain a change before the code does."""
    waits, counted = (
        [[wait for record in one.records if (wait := read(record)) is not None] for one in sets]
        for read in (lambda record: cpu_wait_percent(record.metrics), counted_cpu_wait)
    )
    if all(waits):
        a, b = map(median, waits)
        if any(map(median, counted)) and abs(a - b) >= _MIN_WAIT_POINTS:
            yield (
                f"Threads that could run waited for a CPU {format_percent(a)} of the time in A and {format_percent(b)} "
                "in B: other work on the machine may explain a change in duration."
            )
    kernel = [sum(known_peak_source(record.metrics) == "kernel" for record in one.records) for one in sets]
    peaks = [sum(record.metrics.max_memory_used_mb is not None for record in one.records) for one in sets]
    if all(peaks) and 0 < sum(kernel) < sum(peaks):
        yield (
            f"The memory peak is the kernel's in {kernel[0]} of {peaks[0]} runs of A and in {kernel[1]} of {peaks[1]} "
            "of B. The others were sampled and may have been higher."
        )


def set_titles() -> tuple[str, ...]:
    """The titles of the columns of the sets."""
    return ("", "Runs of", "Runs", f"Started ({local_zone()})", "Left out")


def set_rows(sets: Sequence[RunSet]) -> Iterator[tuple[str, ...]]:
    """A row for each set."""
    for name, one in zip("AB", sets, strict=True):
        days = sorted((format_local(start_ns(report)) or "")[:10] for report in one.reports)
        started = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
        yield name, one.text, str(len(one.reports)), started, one.left_out_text or UNKNOWN


def metric_rows(changes: Sequence[MetricChange]) -> Iterator[tuple[str, ...]]:
    """A row for each metric that a run has."""
    for one in known_changes(changes):
        change, unit = one.change, one.metric.unit
        yield (
            one.metric.title,
            UNKNOWN if change.a is None else format_value(change.a, unit),
            UNKNOWN if change.b is None else format_value(change.b, unit),
            percent_text(change.change_percent),
            interval_text(change),
            FEW_RUNS if min(one.known_a, one.known_b) < MIN_RUNS else change.verdict,
        )


def known_changes(changes: Sequence[MetricChange]) -> Sequence[MetricChange]:
    """The metrics that at least one run has; all metrics if no run has any."""
    return [one for one in changes if one.known_a or one.known_b] or changes


def limits_of_comparison(sets: Sequence[RunSet], changes: Sequence[MetricChange]) -> Iterator[str]:
    """The metrics that not all runs have, and how many runs are needed where there are too few."""
    titles: dict[str, list[str]] = {}
    for one in known_changes(changes):
        counts = zip("AB", (one.known_a, one.known_b), sets, strict=True)
        parts = [
            f"{known} of {len(of.reports)} runs of {name}" for name, known, of in counts if known < len(of.reports)
        ]
        if parts:
            titles.setdefault(" and ".join(parts), []).append(one.metric.title)
    for runs, metrics in titles.items():
        yield f"Known for {runs}: {', '.join(metrics)}."
    few = [one for one in changes if one.known_a and one.known_b and one.change.verdict == "too few runs"]
    needed = [f"{one.metric.title} {one.change.runs_needed}" for one in few if one.change.runs_needed is not None]
    if needed:
        yield f"To see a change of {_SEEN_PERCENT} %, about this many runs per side are needed: {', '.join(needed)}."
    elif any(min(one.known_a, one.known_b) < MIN_RUNS for one in few):
        yield f"At least {MIN_RUNS} runs per side are needed."


def percent_text(percent: float | None) -> str:
    """A change, with its sign."""
    if percent is None:
        return UNKNOWN
    return f"{round(percent, 1) + 0.0:+.1f} %" if abs(percent) < _MANY_PERCENT else f"{percent:+.3g} %"


def interval_text(change: MedianChange) -> str:
    """The 95 % interval of a change. An end that is unknown is unbounded."""
    low, high = change.low_percent, change.high_percent
    if low is None:
        return UNKNOWN if high is None else f"at most {percent_text(high)}"
    return f"{percent_text(low)} or more" if high is None else f"{percent_text(low)[:-2]} to {percent_text(high)}"


class ChangeLimit(Struct, frozen=True, kw_only=True):
    """The result of a limit: the metrics whose whole interval is above it, and those whose result is unknown."""

    percent: float
    exceeded: tuple[MetricChange, ...]
    undecided: tuple[MetricChange, ...]

    def sentences(self) -> Iterator[str]:
        """The sentences about the metrics."""
        if self.exceeded:
            listed = ", ".join(
                f"{_names(one)} {percent_text(one.change.change_percent)} ({interval_text(one.change)})"
                for one in self.exceeded
            )
            yield f"B is above A by more than {self.percent:g} %: {listed}."
        if self.undecided:
            listed = ", ".join(map(_why_undecided, self.undecided))
            yield f"It is unknown whether B is above A by more than {self.percent:g} %: {listed}."


def check_limit(changes: Sequence[MetricChange], percent: float, *, needs_all: bool) -> ChangeLimit:
    """Check the changes. ``needs_all``: metrics that no run has are undecided, because the user named them."""
    proven = (one for one in changes if one.change.verdict == "more" and one.change.low_percent is not None)
    exceeded = tuple(one for one in proven if (one.change.low_percent or 0) > percent)
    undecided = tuple(one for one in changes if _is_undecided(one, percent, needs_all=needs_all))
    return ChangeLimit(percent=percent, exceeded=exceeded, undecided=undecided)


def _is_undecided(one: MetricChange, percent: float, *, needs_all: bool) -> bool:
    change = one.change
    if not (one.known_a and one.known_b):
        return needs_all or bool(one.known_a or one.known_b)
    if change.verdict == "too few runs":
        return change.high_percent is None or change.high_percent > percent
    return change.verdict == "more" and change.low_percent is None


def _why_undecided(one: MetricChange) -> str:
    change = one.change
    if not (one.known_a and one.known_b):
        return _names(one, f"no run of {'B' if one.known_a else 'A'} has it")
    if change.verdict == "more":
        return _names(one, "its median is 0 in A")
    return _names(one, FEW_RUNS if min(one.known_a, one.known_b) < MIN_RUNS else change.verdict)


def _names(one: MetricChange, *more: str) -> str:
    return f"{one.metric.title} ({', '.join((one.metric.name, *more))})"
