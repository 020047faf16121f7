"""``task-profiler compare``: two sets of runs, metric by metric: for a person, as JSON, and for
GitHub Actions.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import click
from msgspec.structs import replace

from profiler.cli.github_format import (
    annotation_command,
    append_to_summary,
    escaped_markdown,
    markdown_table,
    write_annotations,
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
from profiler.cli.printing import warn, warn_of_notes, write_json_lines
from profiler.cli.styled_text import write_lines
from profiler.cli.tables import Column, table_width
from profiler.cli.terminal.comparison_tables import (
    METRIC_COLUMNS,
    change_percent_text,
    changes_to_show,
    comparison_lines,
    conditions_of_comparison,
    interval_text,
    limits_of_comparison,
    metric_rows,
    number_text,
    set_columns,
    set_rows,
)
from profiler.cli.wiring.open_past_runs import open_source, price_overrides, run_filter
from profiler.core.errors import UsageError
from profiler.core.optional_math import first_known, known
from profiler.record.measured import Approximately, AtLeast, Measured
from profiler.record.model_base import JsonLine
from profiler.record.record_model import UNKNOWN_COST
from profiler.runs.comparison.change_interval import NOT_COMPARABLE, MedianChange
from profiler.runs.comparison.compared_metrics import (
    COMPARED_METRICS,
    MetricChange,
    compare_metrics,
)
from profiler.runs.comparison.run_sets import RunSet, read_run_sets
from profiler.sizing.run_facts import priced_as_if_on_fargate

_SIGNIFICANT_DIGITS = 15
_DIGITS = 7  # enough that an interval above 0 does not begin at 0
_METRIC_NAMES = tuple(metric.name for metric in COMPARED_METRICS)


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
    f"Compare only this metric: {', '.join(_METRIC_NAMES)}.",
    type=click.Choice(_METRIC_NAMES),
)
@option(
    "--fail-above limit_percent",
    "PERCENT",
    (
        "Exit with 3 if a metric's whole interval is above it; shares of time count only with "
        "--metric."
    ),
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
    overrides = price_overrides(on_fargate)
    selection = run_filter(options)
    source = open_source(options)
    with warn_of_notes(source):
        sets, remarks = read_run_sets(source, (a, b), selection, last, container)
    for remark in remarks:
        warn(remark)
    price = partial(priced_as_if_on_fargate, overrides=overrides, on_fargate=on_fargate)
    a_records = [*map(price, sets[0].records)]
    b_records = [*map(price, sets[1].records)]
    if on_fargate is not None and not any(
        record.cost != UNKNOWN_COST for record in (*a_records, *b_records)
    ):
        warn(
            f"No run has a price on Fargate in {on_fargate}: its machine has a size that Fargate "
            "does not have, or the price is unknown. task-profiler recommend --on-fargate prices "
            "the sizes that Fargate has."
        )
    metrics = [metric for metric in COMPARED_METRICS if not names or metric.name in names]
    changes = compare_metrics(a_records, b_records, metrics)
    limited = changes if names else changes_limited_by_default(changes)
    exceeded, sentences = changes_above_limit_and_sentences(limited, limit_percent)
    conditions = list(conditions_of_comparison(sets))
    if as_json:
        # The object has no field for these sentences.
        for run_set in sets:
            if run_set.left_out_text:
                warn(f"Left out of {run_set.text}: {run_set.left_out_text}.")
        for sentence in conditions:
            warn(sentence)
        write_json_lines([comparison_document(sets, changes)])
    else:
        width = table_width() if output_format == "text" else None
        write_lines(comparison_lines(sets, changes, width))
    if output_format == "github" and not as_json:
        write_annotations(limit_annotations(sets, exceeded, limit_percent or 0))
        notes = [*conditions, *limits_of_comparison(sets, changes), *remarks, *sentences]
        append_github_summary(sets, changes, notes, os.environ)
    for sentence in sentences:
        warn(sentence)
    return 3 if exceeded else 0


def changes_limited_by_default(changes: Sequence[MetricChange]) -> Sequence[MetricChange]:
    """The changes that count where no metric is named."""
    return [compared for compared in changes_to_show(changes) if not compared.metric.is_share]


def changes_above_limit_and_sentences(
    changes: Sequence[MetricChange], percent: float | None
) -> tuple[list[MetricChange], list[str]]:
    """The metrics whose whole interval is above the limit, and sentences about them and the
    unknown ones.
    """
    if percent is None:
        return [], []
    exceeded: list[MetricChange] = []
    above: list[str] = []
    undecided: list[str] = []
    for compared in changes:
        change = compared.change
        name = f"{compared.metric.row.name} ({compared.metric.name})"
        if change.verdict == "more" and (change.low_percent or 0) > percent:
            exceeded.append(compared)
            above.append(
                f"{name} {change_percent_text(change.change_percent)} ({interval_text(change)})"
            )
        elif _may_be_above(change, percent):
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


def _may_be_above(change: MedianChange, percent: float) -> bool:
    """Whether a change that is not above the limit for certain may be above it."""
    if change.verdict == "more":
        return change.low_percent is None
    if change.verdict in ("too few runs", NOT_COMPARABLE):
        return first_known(change.high_percent, math.inf) > percent
    return False


class SetDocument(JsonLine, frozen=True, kw_only=True):
    """One of the sets, as it was given, and its runs that count.

    ``at_least`` names the metrics whose median may have been larger, ``estimated`` those whose
    median may also have been smaller: the table marks them by ≥ and ≈.
    """

    set: str
    runs: int
    at_least: Sequence[str]
    estimated: Sequence[str]


class ComparisonDocument(JsonLine, frozen=True, kw_only=True):
    """Both sets, of which ``a`` is the base, and the change of each metric by its name."""

    a: SetDocument
    b: SetDocument
    metrics: Mapping[str, MedianChange]


def comparison_document(
    sets: Sequence[RunSet], changes: Sequence[MetricChange]
) -> ComparisonDocument:
    """The line of ``--json``."""
    medians = [
        {one.metric.name: one.a for one in changes},
        {one.metric.name: one.b for one in changes},
    ]
    a, b = map(_set_document, sets, medians)
    metrics = {}
    for compared in changes:
        change = compared.change
        metrics[compared.metric.name] = replace(
            change,
            a=known(_without_rounding_error, change.a),
            b=known(_without_rounding_error, change.b),
            change_percent=known(_rounded_percent, change.change_percent),
            low_percent=known(_rounded_percent, change.low_percent),
            high_percent=known(_rounded_percent, change.high_percent),
        )
    return ComparisonDocument(a=a, b=b, metrics=metrics)


def _set_document(run_set: RunSet, medians: Mapping[str, Measured]) -> SetDocument:
    return SetDocument(
        set=run_set.text,
        runs=len(run_set.reports),
        at_least=[name for name, median in medians.items() if isinstance(median, AtLeast)],
        estimated=[name for name, median in medians.items() if isinstance(median, Approximately)],
    )


def _rounded_percent(percent: float) -> float:
    return round(percent, _DIGITS) + 0.0  # not -0.0


def _without_rounding_error(value: float) -> float:
    """The value without a rounding error, and a whole number without its decimal point."""
    rounded = float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def limit_annotations(
    sets: Sequence[RunSet], exceeded: Sequence[MetricChange], percent: float
) -> Iterator[str]:
    """A workflow command for each metric above the limit."""
    for compared in exceeded:
        change = compared.change
        metric = compared.metric
        before = number_text(compared.a, metric.row.unit)
        after = number_text(compared.b, metric.row.unit)
        message = (
            f"{metric.row.name} {change_percent_text(change.change_percent)} "
            f"({interval_text(change)}), above the limit of {percent:g} %: {after} in "
            f"{sets[1].text}, {before} in {sets[0].text}."
        )
        title = f"task-profiler compare: {metric.name}"
        yield f"{annotation_command('error', title, message)}\n"


def _column_titles(columns: Sequence[Column]) -> Sequence[str]:
    return [column.title for column in columns]


def append_github_summary(
    sets: Sequence[RunSet],
    changes: Sequence[MetricChange],
    sentences: Sequence[str],
    environment: Mapping[str, str],
) -> None:
    """Append the tables and the sentences to the summary.

    A summary that cannot be written is a warning.
    """
    title = f"{sets[1].text} compared with {sets[0].text}"
    lines = [
        f"### {escaped_markdown(title)}",
        "",
        *markdown_table(_column_titles(METRIC_COLUMNS), metric_rows(changes)),
        "",
        *markdown_table(_column_titles(set_columns()), set_rows(sets)),
    ]
    for sentence in sentences:
        lines += ["", escaped_markdown(sentence)]
    append_to_summary(lines, environment)
