"""``task-profiler compare``: two sets of runs, metric by metric.

In GitHub Actions: error annotations, and a table in the summary of the job.
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from profiler.cli.compare.change_texts import (
    METRIC_TITLES,
    ChangeLimit,
    check_limit,
    comparison_lines,
    conditions_of_comparison,
    interval_text,
    limits_of_comparison,
    metric_rows,
    percent_text,
    set_rows,
    set_titles,
)
from profiler.cli.options import SourceOptions, gathered
from profiler.cli.printing import say, warn, warned_notes, write_json_lines
from profiler.cli.styled_text import table_width, write_lines
from profiler.cli.wiring.open_past_runs import open_source, price_overrides, run_filter
from profiler.core.clock import SystemClock
from profiler.core.errors import UsageError
from profiler.core.text import on_one_line, printable
from profiler.record.units import format_value
from profiler.runs.comparison.compared_metrics import COMPARED_METRICS, MedianChange, MetricChange, compare_metrics
from profiler.runs.comparison.run_sets import RunSet, SetSelection, read_run_sets
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_facts import cost_on_fargate

_SIGNIFICANT_DIGITS = 15
_DIGITS = 7  # enough that an interval above 0 does not begin at 0
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#!|~&])")


@gathered(SourceOptions, "options")
def compare_sets(
    *,
    options: SourceOptions,
    a: str,
    b: str,
    last: int,
    container: str | None,
    names: tuple[str, ...],
    limit_percent: float | None,
    on_fargate: str | None,
    output_format: str,
) -> int:
    """Compare two sets of runs: medians, changes, verdicts."""
    if not (a and b):
        raise UsageError("The name of a set is empty: name a family or run IDs.")
    if options.families or options.statuses:
        raise UsageError("--family and --status do not apply: A and B name the families, of which successes count.")
    clock = SystemClock()
    selection = SetSelection(runs=run_filter(options, clock), last=last, container=container)
    source = open_source(options, os.environ, clock)
    with warned_notes(source):
        sets, remarks = read_run_sets(source, (a, b), selection)
    for remark in remarks:
        warn(remark)
    overrides = PriceOverrides() if on_fargate is None else price_overrides(os.environ, on_fargate)
    a_records, b_records = (
        [replace(record, cost=cost_on_fargate(record, on_fargate, overrides)) for record in one.records] for one in sets
    )
    if on_fargate is not None and not any(record.cost for record in (*a_records, *b_records)):
        warn(
            f"No run has a price on Fargate in {on_fargate}: its machine has a size that Fargate does not have, or the "
            "price is unknown. task-profiler recommend --on-fargate prices the sizes that Fargate has."
        )
    metrics = [metric for metric in COMPARED_METRICS if not names or metric.name in names]
    changes = compare_metrics(a_records, b_records, metrics)
    limit = None if limit_percent is None else check_limit(changes, limit_percent, needs_all=bool(names))
    sentences = () if limit is None else tuple(limit.sentences())
    conditions = list(conditions_of_comparison(sets))
    if output_format == "json":
        left_out = (f"Left out of {one.text}: {one.left_out_text}." for one in sets if one.left_out_text)
        for sentence in (*left_out, *conditions):  # the object has no field for them
            warn(sentence)
        write_json_lines([comparison_as_json(sets, changes)])
    elif output_format == "text":
        write_lines(comparison_lines(sets, changes, table_width()))
    else:
        write_lines(comparison_lines(sets, changes, None))
        if limit is not None:
            say("".join(annotations(sets, limit)), end="")
        notes = [*conditions, *limits_of_comparison(sets, changes), *remarks, *sentences]
        append_summary(sets, changes, notes, os.environ)
    for sentence in sentences:
        warn(sentence)
    return 3 if limit is not None and limit.exceeded else 0


def comparison_as_json(sets: Sequence[RunSet], changes: Sequence[MetricChange]) -> Mapping[str, object]:
    """The object of ``--format json``; unknown figures are null."""
    a, b = ({"set": one.text, "runs": len(one.reports)} for one in sets)
    return {"a": a, "b": b, "metrics": {one.metric.name: _change_as_json(one.change) for one in changes}}


def _change_as_json(change: MedianChange) -> Mapping[str, object]:
    return {
        "a": _plain(change.a),
        "b": _plain(change.b),
        "changePercent": _rounded(change.change_percent),
        "lowPercent": _rounded(change.low_percent),
        "highPercent": _rounded(change.high_percent),
        "verdict": change.verdict,
        "runsNeeded": change.runs_needed,
    }


def _rounded(percent: float | None) -> float | None:
    return None if percent is None else round(percent, _DIGITS) + 0.0


def _plain(value: float | None) -> float | None:
    """The value without a rounding error, and a whole number without its decimal point."""
    rounded = value if value is None else float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    return int(rounded) if rounded is not None and rounded.is_integer() else rounded


def annotations(sets: Sequence[RunSet], limit: ChangeLimit) -> Iterator[str]:
    """A workflow command for each metric above the limit."""
    for one in limit.exceeded:
        change = one.change
        before, after = (format_value(value or 0, one.metric.unit) for value in (change.a, change.b))
        message = (
            f"{one.metric.title} {percent_text(change.change_percent)} ({interval_text(change)}), above the limit of "
            f"{limit.percent:g} %: {after} in {sets[1].text}, {before} in {sets[0].text}."
        )
        title = _data(f"task-profiler compare: {one.metric.name}").replace(":", "%3A").replace(",", "%2C")
        yield f"::error title={title}::{_data(message)}\n"


def append_summary(
    sets: Sequence[RunSet], changes: Sequence[MetricChange], sentences: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Append the tables and the sentences to the summary. A summary that cannot be written is a warning."""
    path = environment.get(SUMMARY_VARIABLE)
    if not path:
        warn(f"{SUMMARY_VARIABLE} is not set, so no summary was written: GitHub Actions sets it.")
        return
    parts = (
        "",
        f"### {_markdown(f'{sets[1].text} compared with {sets[0].text}')}",
        "",
        *_table(METRIC_TITLES, metric_rows(changes)),
        "",
        *_table(set_titles(), set_rows(sets)),
        *(line for sentence in sentences for line in ("", _markdown(sentence))),
    )
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write("\n".join(parts) + "\n")
    except OSError as error:
        warn(f"The summary {path} cannot be written ({error.strerror}): check {SUMMARY_VARIABLE}.")


def _table(titles: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    for cells in (titles, ["---"] * len(titles), *rows):
        yield f"| {' | '.join(map(_markdown, cells))} |"


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", on_one_line(text))


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")
