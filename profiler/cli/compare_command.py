"""``task-profiler compare``: two sets of runs, metric by metric: for a person, as JSON, and for
GitHub Actions.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

import click
from msgspec.structs import replace

from profiler.cli.github_format import (
    annotation,
    append_to_summary,
    markdown,
    markdown_table,
)
from profiler.cli.options import (
    Number,
    PastRunsCommand,
    SourceOptions,
    completes,
    filter_options,
    flag,
    gathered,
    last_option,
    on_fargate_option,
    option,
    past_run_options,
    repeatable,
)
from profiler.cli.printing import UNKNOWN, say, warn, warned_notes, write_json_lines
from profiler.cli.styled_text import (
    EMPTY,
    Column,
    Line,
    Span,
    table,
    table_width,
    wrapped,
    write_lines,
)
from profiler.cli.wiring.open_past_runs import open_source, price_overrides, run_filter
from profiler.core.errors import UsageError
from profiler.core.optional_math import known
from profiler.core.timestamps import format_local, local_zone
from profiler.record.record_model import Record, known_peak_source
from profiler.record.units import format_count, format_percent, format_value
from profiler.record.unusual import FEW_RUNS, MIN_POINTS, MIN_RUNS
from profiler.record.worth_a_word import (
    counted_cpu_wait,
    cpu_wait_percent,
    is_cpu_partial,
    is_cpu_wait_partial,
)
from profiler.runs.comparison.compared_metrics import (
    COMPARED_METRICS,
    MedianChange,
    MetricChange,
    compare_metrics,
)
from profiler.runs.comparison.run_sets import RunSet, read_run_sets
from profiler.runs.past_runs.run_source import start_ns
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_facts import cost_on_fargate

_SIGNIFICANT_DIGITS = 15
_DIGITS = 7  # enough that an interval above 0 does not begin at 0
_MANY_PERCENT = 1000
_SEEN_PERCENT = 5
_NAMES = tuple(metric.name for metric in COMPARED_METRICS)
_STYLES: Mapping[str, str] = {"more": "bad", "less": "good"}


@click.command(
    "compare",
    cls=PastRunsCommand,
    epilog=(
        "Example: task-profiler compare nightly-etl@25 nightly-etl@26 --fail-above 10% --from "
        "runs.jsonl"
    ),
)
@click.argument("a", metavar="A", shell_complete=completes(families=True, ids=True))
@click.argument("b", metavar="B", shell_complete=completes(families=True, ids=True))
@past_run_options
@filter_options
@last_option(10_000, 50, "Use the N newest successes of each set.")
@option("--container", "NAME", "Compare this container, if the tasks have reports of several.")
@repeatable(
    "--metric names",
    "NAME",
    f"Compare only this metric: {', '.join(_NAMES)}.",
    type=click.Choice(_NAMES),
)
@option(
    "--fail-above limit_percent",
    "PERCENT",
    "Exit with 3 if a metric's whole interval is above it.",
    type=Number(0, 10_000),
)
@on_fargate_option
@flag("--json as_json", "Print one JSON object instead.")
@option(
    *(
        "--format output_format",
        "",
        "Print tables; github: annotations, and a table in $GITHUB_STEP_SUMMARY.",
    ),
    type=click.Choice(["text", "github"]),
    default="text",
)
@gathered(SourceOptions, "options")
def compare(
    *,
    options: SourceOptions,
    a: str,
    b: str,
    last: int,
    container: str | None,
    names: tuple[str, ...],
    limit_percent: float | None,
    on_fargate: str | None,
    as_json: bool,
    output_format: str,
) -> int:
    """Compare two sets of runs: medians, changes, verdicts.

    A is the base. A and B are each a family, FAMILY@REVISION, FAMILY@LABEL=VALUE, or run IDs joined
    by commas. Only a family's successes count.
    """
    if not (a and b):
        raise UsageError("The name of a set is empty: name a family or run IDs.")
    overrides = PriceOverrides() if on_fargate is None else price_overrides(on_fargate)
    selection = run_filter(options)
    source = open_source(options)
    with warned_notes(source):
        sets, remarks = read_run_sets(source, (a, b), selection, last, container)
    for remark in remarks:
        warn(remark)
    a_records, b_records = (_priced(run_set, on_fargate, overrides) for run_set in sets)
    if on_fargate is not None and not any(record.cost for record in (*a_records, *b_records)):
        warn(
            f"No run has a price on Fargate in {on_fargate}: its machine has a size that Fargate "
            "does not have, or the price is unknown. task-profiler recommend --on-fargate prices "
            "the sizes that Fargate has."
        )
    metrics = [metric for metric in COMPARED_METRICS if not names or metric.name in names]
    changes = compare_metrics(a_records, b_records, metrics)
    exceeded, sentences = check_limit(changes if names else _known_changes(changes), limit_percent)
    conditions = list(_conditions_of_comparison(sets))
    if as_json:
        # The object has no field for these sentences.
        for run_set in sets:
            if run_set.left_out_text:
                warn(f"Left out of {run_set.text}: {run_set.left_out_text}.")
        for sentence in conditions:
            warn(sentence)
        write_json_lines([comparison_as_json(sets, changes)])
    else:
        write_lines(
            comparison_lines(sets, changes, table_width() if output_format == "text" else None)
        )
    if output_format == "github" and not as_json:
        say("".join(annotations(sets, exceeded, limit_percent or 0)), end="")
        notes = [*conditions, *_limits_of_comparison(sets, changes), *remarks, *sentences]
        append_summary(sets, changes, notes, os.environ)
    for sentence in sentences:
        warn(sentence)
    return 3 if exceeded else 0


def _priced(run_set: RunSet, on_fargate: str | None, overrides: PriceOverrides) -> Sequence[Record]:
    """The records of the set with their prices, in the Region of Fargate if there is one."""
    priced = []
    for record in run_set.records:
        priced.append(replace(record, cost=cost_on_fargate(record, on_fargate, overrides)))
    return priced


def comparison_lines(
    sets: Sequence[RunSet], changes: Sequence[MetricChange], width: int | None
) -> Iterator[Line]:
    """Draw both sets, then the metrics that a run has."""
    titles, *rows = _set_rows(sets)
    columns = [
        Column(title, is_right=title == "Runs", folds=title in ("Runs of", "Left out"))
        for title in titles
    ]
    yield from table(columns, rows, width=width)
    for sentence in _conditions_of_comparison(sets):
        yield from wrapped(sentence, width)
    yield EMPTY
    titles, *rows = _metric_rows(changes)
    columns = [
        Column(title, is_right=title not in ("", "Verdict"), folds=title == "Verdict")
        for title in titles
    ]
    styled: list[Sequence[str | Span]] = []
    for *figures, verdict in rows:
        styled.append((*figures, Span(verdict, _STYLES.get(verdict, ""))))
    yield from table(columns, styled, width=width)
    for sentence in _limits_of_comparison(sets, changes):
        yield from wrapped(sentence, width)


def _conditions_of_comparison(sets: Sequence[RunSet]) -> Iterator[str]:
    """Other differences between the sets that can explain a change before the code does."""
    a, b = (run_set.records for run_set in sets)
    a_wait = _median_of(cpu_wait_percent(record.metrics) for record in a)
    b_wait = _median_of(cpu_wait_percent(record.metrics) for record in b)
    counted = _median_of(map(counted_cpu_wait, a)) or _median_of(map(counted_cpu_wait, b))
    are_apart = a_wait is not None and b_wait is not None and abs(a_wait - b_wait) >= MIN_POINTS
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
    a_kernel, a_peaks = _peak_counts(a)
    b_kernel, b_peaks = _peak_counts(b)
    if a_peaks and b_peaks and 0 < a_kernel + b_kernel < a_peaks + b_peaks:
        yield (
            f"The memory peak is the kernel's in {a_kernel} of {a_peaks} runs of A and in "
            f"{b_kernel} of {b_peaks} of B. The others were sampled and may have been higher."
        )


def _median_of(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def _wait_text(percent: float | None, records: Sequence[Record]) -> str:
    least = "at least " if any(map(is_cpu_wait_partial, records)) else ""
    return least + format_percent(percent or 0)


def _peak_counts(records: Sequence[Record]) -> tuple[int, int]:
    """How many memory peaks are the kernel's, and how many are known."""
    kernel = sum(known_peak_source(record.metrics) == "kernel" for record in records)
    return kernel, sum(record.metrics.max_memory_used_mb is not None for record in records)


def _set_rows(sets: Sequence[RunSet]) -> Iterator[tuple[str, ...]]:
    yield "", "Runs of", "Runs", f"Started ({local_zone()})", "Left out"
    for name, runs in zip("AB", sets, strict=True):
        days = sorted((format_local(start_ns(report)) or "")[:10] for report in runs.reports)
        started = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
        yield name, runs.text, str(len(runs.reports)), started, runs.left_out_text or UNKNOWN


def _metric_rows(changes: Sequence[MetricChange]) -> Iterator[tuple[str, ...]]:
    yield "", "A", "B", "Change", "95 % interval", "Verdict"
    for compared in _known_changes(changes):
        change = compared.change
        unit = compared.metric.unit
        has_few = min(compared.known_a, compared.known_b) < MIN_RUNS
        yield (
            compared.metric.title,
            _value_text(change.a, unit),
            _value_text(change.b, unit),
            _percent_text(change.change_percent),
            _interval_text(change),
            FEW_RUNS if has_few else change.verdict,
        )


def _value_text(value: float | None, unit: str) -> str:
    """The value; a few KB, whose change would have no visible cause, are not 0 MB."""
    if value is None:
        return UNKNOWN
    text = format_value(value, unit)
    is_hidden = value > 0 and unit == "bytes" and text == format_value(0, unit)
    return f"{value / 1024:.2g} KB" if is_hidden else text


def _known_changes(changes: Sequence[MetricChange]) -> Sequence[MetricChange]:
    """The metrics that at least one run has; all metrics if no run has any."""
    return [compared for compared in changes if compared.known_a or compared.known_b] or changes


def _limits_of_comparison(sets: Sequence[RunSet], changes: Sequence[MetricChange]) -> Iterator[str]:
    titles: dict[str, list[str]] = {}
    for compared in _known_changes(changes):
        counts = zip("AB", (compared.known_a, compared.known_b), sets, strict=True)
        parts = []
        for name, count, runs in counts:
            if count < len(runs.reports):
                parts.append(f"{count} of {len(runs.reports)} runs of {name}")
        if parts:
            titles.setdefault(" and ".join(parts), []).append(compared.metric.title)
    for counted_runs, metrics in titles.items():
        yield f"Known for {counted_runs}: {', '.join(metrics)}."
    yield from _runs_needed(changes)


def _runs_needed(changes: Sequence[MetricChange]) -> Iterator[str]:
    has_few = False
    needed = []
    for compared in changes:
        least_known = min(compared.known_a, compared.known_b)
        if not least_known or compared.change.verdict != "too few runs":
            continue
        has_few |= least_known < MIN_RUNS
        if compared.change.runs_needed is not None:
            needed.append(f"{compared.metric.title} {compared.change.runs_needed}")
    if needed:
        yield (
            f"To see a change of {_SEEN_PERCENT} %, about this many runs per side are needed: "
            f"{', '.join(needed)}."
        )
    elif has_few:
        yield f"At least {MIN_RUNS} runs per side are needed."


def _percent_text(percent: float | None) -> str:
    if percent is None:
        return UNKNOWN
    if abs(percent) < _MANY_PERCENT:
        return f"{round(percent, 1) + 0.0:+.1f} %"
    return f"{percent:+.3g} %"


def _interval_text(change: MedianChange) -> str:
    """The 95 % interval of a change. An end that is unknown is unbounded."""
    low = change.low_percent
    high = change.high_percent
    if low is None:
        return UNKNOWN if high is None else f"at most {_percent_text(high)}"
    if high is None:
        return f"{_percent_text(low)} or more"
    return f"{_percent_text(low)[:-2]} to {_percent_text(high)}"


def check_limit(
    changes: Sequence[MetricChange], percent: float | None
) -> tuple[list[MetricChange], list[str]]:
    """The metrics whose whole interval is above the limit, and sentences about them and the
    unknown ones.
    """
    if percent is None:
        return [], []
    exceeded = []
    above = []
    undecided = []
    for compared in changes:
        change = compared.change
        name = f"{compared.metric.title} ({compared.metric.name})"
        may_be_above = change.high_percent is None or change.high_percent > percent
        if change.verdict == "more" and (change.low_percent or 0) > percent:
            exceeded.append(compared)
            above.append(
                f"{name} {_percent_text(change.change_percent)} ({_interval_text(change)})"
            )
        elif (change.verdict == "more" and change.low_percent is None) or (
            change.verdict == "too few runs" and may_be_above
        ):
            undecided.append(name)
    sentences = []
    if above:
        sentences.append(f"B is above A by more than {percent:g} %: {', '.join(above)}.")
    if undecided:
        sentences.append(
            f"It is unknown whether B is above A by more than {percent:g} %: "
            f"{', '.join(undecided)}."
        )
    return exceeded, sentences


def comparison_as_json(
    sets: Sequence[RunSet], changes: Sequence[MetricChange]
) -> Mapping[str, object]:
    """The object of ``--format json``; unknown figures are null."""
    a, b = ({"set": runs.text, "runs": len(runs.reports)} for runs in sets)
    metrics = {}
    for compared in changes:
        change = compared.change
        metrics[compared.metric.name] = replace(
            change,
            a=known(_plain, change.a),
            b=known(_plain, change.b),
            change_percent=known(_rounded, change.change_percent),
            low_percent=known(_rounded, change.low_percent),
            high_percent=known(_rounded, change.high_percent),
        )
    return {"a": a, "b": b, "metrics": metrics}


def _rounded(percent: float) -> float:
    return round(percent, _DIGITS) + 0.0  # not -0.0


def _plain(value: float) -> float:
    """The value without a rounding error, and a whole number without its decimal point."""
    rounded = float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def annotations(
    sets: Sequence[RunSet], exceeded: Sequence[MetricChange], percent: float
) -> Iterator[str]:
    """A workflow command for each metric above the limit."""
    for compared in exceeded:
        change = compared.change
        metric = compared.metric
        before = _value_text(change.a or 0, metric.unit)
        after = _value_text(change.b or 0, metric.unit)
        message = (
            f"{metric.title} {_percent_text(change.change_percent)} "
            f"({_interval_text(change)}), above the limit of {percent:g} %: {after} in "
            f"{sets[1].text}, {before} in {sets[0].text}."
        )
        title = f"task-profiler compare: {metric.name}"
        yield f"{annotation('error', title, message)}\n"


def append_summary(
    sets: Sequence[RunSet],
    changes: Sequence[MetricChange],
    sentences: Sequence[str],
    environment: Mapping[str, str],
) -> None:
    """Append the tables and the sentences to the summary.

    A summary that cannot be written is a warning.
    """
    metric_titles, *metric_rows = _metric_rows(changes)
    set_titles, *set_rows = _set_rows(sets)
    lines = [
        f"### {markdown(f'{sets[1].text} compared with {sets[0].text}')}",
        "",
        *markdown_table(metric_titles, metric_rows),
        "",
        *markdown_table(set_titles, set_rows),
    ]
    for sentence in sentences:
        lines += ["", markdown(sentence)]
    append_to_summary(lines, environment)
