"""Two sets of runs as tables and sentences: what differs, by how much, and what can explain it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median

from profiler.cli.printing import UNKNOWN
from profiler.cli.styled_text import EMPTY, Line, Span, wrapped_lines
from profiler.cli.tables import Column, aligned_table
from profiler.core.optional_math import difference, known_members, known_values
from profiler.core.text import listed
from profiler.core.timestamps import format_local, local_zone
from profiler.record.cpu_wait import cpu_wait_percent, is_cpu_wait_partial, notable_cpu_wait_percent
from profiler.record.mapped_files import INCLUDES_FILES
from profiler.record.measured import Exactly, Measured, known_numbers, measured_from
from profiler.record.mention_limits import (
    is_cpu_partial,
)
from profiler.record.record_model import Record
from profiler.record.record_paths import Unit
from profiler.record.spot_price import is_on_spot
from profiler.record.units import format_count, format_percent, format_value
from profiler.record.unusual import FEW_RUNS, MIN_POINTS, MIN_RUNS
from profiler.runs.comparison.change_interval import NOT_COMPARABLE, MedianChange
from profiler.runs.comparison.compared_metrics import (
    MetricChange,
    are_costs_apart,
    memory_meaning_of_both,
)
from profiler.runs.comparison.run_sets import RunSet
from profiler.runs.past_runs.past_run import report_start_ns

_MANY_PERCENT = 1000
_SEEN_PERCENT = 5
_STYLES: Mapping[str, str] = {"more": "bad", "less": "good"}
METRIC_COLUMNS = (
    Column(""),
    Column("A", is_right=True),
    Column("B", is_right=True),
    Column("Change", is_right=True),
    Column("95 % interval", is_right=True),
    Column("Verdict", folds=True),
)


def comparison_lines(
    sets: Sequence[RunSet], changes: Sequence[MetricChange], width: int | None
) -> Iterator[Line]:
    """Draw both sets, then the metrics that a run has."""
    yield from aligned_table(set_columns(), set_rows(sets), width=width)
    for sentence in conditions_of_comparison(sets):
        yield from wrapped_lines(sentence, width)
    yield EMPTY
    styled_rows: list[Sequence[str | Span]] = []
    for compared, (*figures, verdict) in zip(
        changes_to_show(changes), metric_rows(changes), strict=True
    ):
        style = "" if compared.metric.is_share else _STYLES.get(verdict, "")
        styled_rows.append((*figures, Span(verdict, style)))
    yield from aligned_table(METRIC_COLUMNS, styled_rows, width=width)
    for sentence in limits_of_comparison(sets, changes):
        yield from wrapped_lines(sentence, width)


def conditions_of_comparison(sets: Sequence[RunSet]) -> Iterator[str]:
    """Other differences between the sets that can explain a change before the code does."""
    a, b = [run_set.records for run_set in sets]
    a_wait = _median_of_known(cpu_wait_percent(record.metrics) for record in a)
    b_wait = _median_of_known(cpu_wait_percent(record.metrics) for record in b)
    counted = _median_of_known(map(notable_cpu_wait_percent, a)) or _median_of_known(
        map(notable_cpu_wait_percent, b)
    )
    are_apart = abs(difference(a_wait, b_wait) or 0) >= MIN_POINTS
    if counted and are_apart:
        yield (
            f"Threads that could run waited for a CPU {_wait_text(a_wait, a)} of the time in "
            f"A and {_wait_text(b_wait, b)} in B: other work on the machine may explain a "
            "change in duration."
        )
    partial = sum(map(is_cpu_partial, (*a, *b)))
    if partial:
        yield (
            f"The CPU time of {format_count(partial, 'run')} is the measured part's average over "
            "the whole duration."
        )
    if are_costs_apart((*a, *b)):
        yield (
            f"On Spot ran {_count_on_spot(a)} of A and {_count_on_spot(b)} of B. Their cost is the "
            "least that Spot costs, so the change of the cost is not known."
        )
    yield from _memory_conditions(a, b)


def _memory_conditions(a: Sequence[Record], b: Sequence[Record]) -> Iterator[str]:
    """What the memory values of the runs count, and how their peaks were found."""
    meaning = memory_meaning_of_both(a, b)
    if meaning != "same":
        a_files, b_files = [sum(run.metrics.counts_files for run in runs) for runs in (a, b)]
        change = "and is left out"
        if meaning == "differs":
            change = "so the change of the memory is not known"
        which = [
            f"{format_count(count, 'run')} of {name}"
            for name, count in (("A", a_files), ("B", b_files))
            if count
        ]
        yield f"The memory of {listed(which)} may {INCLUDES_FILES}, {change}."
    a_kernel, a_peaks = _peak_counts(a)
    b_kernel, b_peaks = _peak_counts(b)
    if a_peaks and b_peaks and 0 < a_kernel + b_kernel < a_peaks + b_peaks:
        yield (
            f"The memory peak is the kernel's in {a_kernel} of {a_peaks} runs of A and in "
            f"{b_kernel} of {b_peaks} of B. The others were sampled and may have been higher."
        )


def _median_of_known(values: Iterable[float | None]) -> float | None:
    numbers = known_values(values)
    return median(numbers) if numbers else None


def _wait_text(percent: float | None, records: Sequence[Record]) -> str:
    is_least = any(is_cpu_wait_partial(record) for record in records)
    return measured_from(percent or 0, is_least=is_least).sentence_words(format_percent)


def _count_on_spot(records: Sequence[Record]) -> str:
    return format_count(sum(is_on_spot(record.cost) for record in records), "run")


def _peak_counts(records: Sequence[Record]) -> tuple[int, int]:
    """How many memory peaks are the kernel's, and how many are known."""
    peaks = known_numbers(record.metrics.memory_peak for record in records)
    kernel = sum(isinstance(peak, Exactly) for peak in peaks)
    return kernel, len(peaks)


def set_columns() -> Sequence[Column]:
    """The columns of :func:`set_rows`."""
    return (
        Column(""),
        Column("Runs of", folds=True, is_name=True),
        Column("Runs", is_right=True),
        Column(f"Started ({local_zone()})"),
        Column("Left out", folds=True),
    )


def set_rows(sets: Sequence[RunSet]) -> Iterator[tuple[str, ...]]:
    """A row for each set."""
    for name, runs in zip("AB", sets, strict=True):
        days = sorted((format_local(report_start_ns(report)) or "")[:10] for report in runs.reports)
        started = days[0]
        if days[-1] != days[0]:
            started = f"{days[0]} to {days[-1]}"
        yield name, runs.text, str(len(runs.reports)), started, runs.left_out_text or UNKNOWN


def metric_rows(changes: Sequence[MetricChange]) -> Iterator[tuple[str, ...]]:
    """A row for each metric that a run has: see ``METRIC_COLUMNS``."""
    for compared in changes_to_show(changes):
        change = compared.change
        unit = compared.metric.row.unit
        verdict: str = change.verdict
        has_few = min(compared.known_a, compared.known_b) < MIN_RUNS
        if has_few and verdict != NOT_COMPARABLE:
            verdict = FEW_RUNS
        yield (
            compared.metric.row.name,
            number_text(compared.a, unit),
            number_text(compared.b, unit),
            change_percent_text(change.change_percent),
            interval_text(change),
            verdict,
        )


def number_text(number: Measured, unit: Unit) -> str:
    """The number with its mark; ``-`` if it is unknown."""
    return number.text(partial(_value_text, unit=unit)) or UNKNOWN


def _value_text(value: float, unit: Unit) -> str:
    """A few KB, whose change would have no visible cause, are not 0 MB."""
    text = format_value(value, unit)
    if value > 0 and unit == "bytes" and text == format_value(0, unit):
        return f"{value / 1024:.2g} KB"
    return text


def changes_to_show(changes: Sequence[MetricChange]) -> Sequence[MetricChange]:
    """The metrics that at least one run has; all metrics if no run has any."""
    return [compared for compared in changes if compared.known_a or compared.known_b] or changes


def limits_of_comparison(sets: Sequence[RunSet], changes: Sequence[MetricChange]) -> Iterator[str]:
    """How many runs have a metric, if not all, and how many would be needed."""
    a_count, b_count = [len(run_set.reports) for run_set in sets]
    titles_by_counts: dict[str, list[str]] = {}
    for compared in changes_to_show(changes):
        counts: list[str] = []
        if compared.known_a < a_count:
            counts.append(f"{compared.known_a:,} of {a_count:,} runs of A")
        if compared.known_b < b_count:
            counts.append(f"{compared.known_b:,} of {b_count:,} runs of B")
        if counts:
            titles = titles_by_counts.setdefault(" and ".join(counts), [])
            titles.append(compared.metric.row.name)
    for counted_runs, titles in titles_by_counts.items():
        yield f"Known for {counted_runs}: {', '.join(titles)}."
    yield from _runs_needed(changes)


def _runs_needed(changes: Sequence[MetricChange]) -> Iterator[str]:
    has_few = False
    needed: dict[str, int | None] = {}
    for compared in changes:
        least_known = min(compared.known_a, compared.known_b)
        if not least_known or compared.change.verdict != "too few runs":
            continue
        has_few |= least_known < MIN_RUNS
        needed[compared.metric.row.name] = compared.change.runs_needed
    known_needs = known_members(needed)
    numbers = set(known_needs.values())
    change = f"To see a change of {_SEEN_PERCENT} %, about"
    if len(numbers) == 1 and known_needs == needed:
        yield f"{change} {numbers.pop():,} runs per side are needed."
    elif known_needs:
        named = ", ".join(f"{name} {runs:,}" for name, runs in known_needs.items())
        yield f"{change} this many runs per side are needed: {named}."
    elif has_few:
        yield f"At least {MIN_RUNS} runs per side are needed."


def change_percent_text(percent: float | None) -> str:
    """The change with its sign; ``=`` if it reads 0, and ``-`` if it is unknown."""
    if percent is None:
        return UNKNOWN
    return f"{_signed_percent_text(percent)} %" if round(percent, 1) else "="


def _signed_percent_text(percent: float) -> str:
    if abs(percent) < _MANY_PERCENT:
        rounded = round(percent, 1)
        return f"{rounded:+.1f}" if rounded else "0.0"
    return f"{percent:+,.0f}"


def interval_text(change: MedianChange) -> str:
    """The 95 % interval of a change. An end that is unknown is unbounded."""
    low = change.low_percent
    high = change.high_percent
    if low is None:
        return UNKNOWN if high is None else f"at most {_signed_percent_text(high)} %"
    if high is None:
        return f"{_signed_percent_text(low)} % or more"
    return f"{_signed_percent_text(low)} to {_signed_percent_text(high)} %"
