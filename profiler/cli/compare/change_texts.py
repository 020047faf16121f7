"""The comparison of two sets for a person: the sets, and a table of the metrics."""

from collections.abc import Iterator, Mapping, Sequence

from profiler.cli.printing import UNKNOWN
from profiler.cli.styled_text import EMPTY, Column, Line, Span, table, wrapped
from profiler.comparison.compared_metrics import MetricChange
from profiler.comparison.median_change import MIN_RUNS, MedianChange
from profiler.comparison.run_sets import RunSet
from profiler.record.units import format_value

_GAP = 2
_DATE_LENGTH = 10
_PIPE_COLUMNS = 10_000
_MANY_PERCENT = 1000
_SEEN_PERCENT = 5
_STYLES: Mapping[str, str] = {"more": "bad", "less": "good"}
SET_TITLES = ("", "Runs of", "Runs", "Started", "Left out")
METRIC_TITLES = ("", "A", "B", "Change", "95 % interval", "Verdict")
_SET_COLUMNS = tuple(
    Column(title, is_right=title == "Runs", folds=title in ("Runs of", "Left out")) for title in SET_TITLES
)
_METRIC_COLUMNS = tuple(
    Column(title, is_right=title in METRIC_TITLES[1:5], folds=title == "Verdict") for title in METRIC_TITLES
)


def comparison_lines(sets: Sequence[RunSet], changes: Sequence[MetricChange], width: int | None) -> Iterator[Line]:
    """Draw both sets, then the metrics that a run has."""
    yield from table(_SET_COLUMNS, set_rows(sets), gap=_GAP, width=width)
    yield EMPTY
    rows: list[tuple[str | Span, ...]] = [
        (*row[:-1], Span(row[-1], _STYLES.get(one.change.verdict, "")))
        for one, row in zip(known_changes(changes), metric_rows(changes), strict=True)
    ]
    yield from table(_METRIC_COLUMNS, rows, gap=_GAP, width=width)
    for sentence in limits_of_comparison(sets, changes):
        yield from wrapped(sentence, width or _PIPE_COLUMNS, first="")


def set_rows(sets: Sequence[RunSet]) -> Iterator[tuple[str, ...]]:
    """A row for each set."""
    for name, one in zip("AB", sets, strict=True):
        days = sorted((report.record.started_at or report.time)[:_DATE_LENGTH] for report in one.reports)
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
            change.verdict,
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
        yield f"To see a change of {_SEEN_PERCENT} %, about this many runs a side are needed: {', '.join(needed)}."
    elif any(min(one.known_a, one.known_b) < MIN_RUNS for one in few):
        yield f"At least {MIN_RUNS} runs a side are needed."


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
