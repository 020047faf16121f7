"""``task-profiler compare``: two sets of runs, metric by metric."""

import os
from collections.abc import Mapping, Sequence

import click
import msgspec
from msgspec.structs import replace

from profiler.cli.compare.change_limit import ChangeLimit, Percent, check_limit
from profiler.cli.compare.change_texts import comparison_lines, limits_of_comparison
from profiler.cli.options import SourceOptions, WholeNumber, on_fargate_option, source_options
from profiler.cli.printing import warn, write_out
from profiler.cli.styled_text import table_width, write_lines
from profiler.cli.wiring.configured_prices import price_overrides
from profiler.cli.wiring.open_past_runs import open_source, run_filter
from profiler.comparison.compared_metrics import COMPARED_METRICS, MetricChange, compare_metrics
from profiler.comparison.run_sets import RunSet, SetSelection, read_run_sets
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.record.record_model import Record
from profiler.sizing.on_fargate import cost_on_fargate
from profiler.sizing.prices import PriceOverrides

_ABOVE_LIMIT_EXIT_CODE = 3
_LAST_RUNS = 50
_MAX_RUNS = 10_000
_MAX_PERCENT = 10_000
_DIGITS = 7  # so that an interval that is above 0 does not begin at 0
_SIGNIFICANT_DIGITS = 15


@click.command(
    "compare", epilog="Example: task-profiler compare nightly-etl@25 nightly-etl@26 --fail-above 10% --from runs.jsonl"
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@source_options
@click.option(
    "--last",
    metavar="N",
    type=WholeNumber(1, _MAX_RUNS),
    default=_LAST_RUNS,
    show_default=True,
    help="Use the N newest successes of each set.",
)
@click.option("--container", metavar="NAME", help="Compare this container, if the tasks have reports of several.")
@click.option(
    "--metric",
    "names",
    metavar="NAME",
    type=click.Choice([metric.name for metric in COMPARED_METRICS]),
    multiple=True,
    help=f"Compare only this metric: {', '.join(metric.name for metric in COMPARED_METRICS)}. Repeatable.",
)
@click.option(
    "--fail-above",
    "limit_percent",
    metavar="PERCENT",
    type=Percent(0, _MAX_PERCENT),
    help="Exit with 3 if the whole 95 % interval of a metric's change is above PERCENT, such as 10%.",
)
@on_fargate_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="Print tables or one JSON object; github: annotations, and a table in $GITHUB_STEP_SUMMARY.",
)
def command(
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
    """Compare two sets of runs: medians, changes, verdicts.

    A is the base. A and B are each a family, FAMILY@REVISION, FAMILY@LABEL=VALUE, or run IDs joined by
    commas. Of a family, only successes count. Runs come from the local history unless --from,
    --elasticsearch or --log-group is given.
    """
    if not (a and b):
        raise UsageError("The name of a set is empty: name a family or run IDs.")
    if options.families or options.statuses:
        raise UsageError("--family and --status do not apply: A and B name the families, of which successes count.")
    clock = SystemClock()
    selection = SetSelection(runs=run_filter(options, clock), last=last, container=container)
    source = open_source(options, os.environ, clock)
    try:
        sets, remarks = read_run_sets(source, (a, b), selection)
    finally:
        for note in source.notes:
            warn(note)
    for remark in remarks:
        warn(remark)
    overrides = PriceOverrides() if on_fargate is None else price_overrides(os.environ, on_fargate)
    a_records, b_records = ([_priced(record, on_fargate, overrides) for record in one.records] for one in sets)
    if on_fargate is not None and not any(record.cost for record in (*a_records, *b_records)):
        warn(
            f"No run has a price on Fargate in {on_fargate}: its machine has a size that Fargate does not have, or the "
            "price is unknown. task-profiler recommend --on-fargate prices the sizes that Fargate has."
        )
    metrics = [metric for metric in COMPARED_METRICS if not names or metric.name in names]
    changes = compare_metrics(a_records, b_records, metrics)
    limit = None if limit_percent is None else check_limit(changes, limit_percent, needs_all=bool(names))
    sentences = () if limit is None else tuple(limit.sentences())
    if output_format == "json":
        _warn_about_left_out(sets)
        write_out(msgspec.json.encode(comparison_as_json(sets, changes)) + b"\n")
    elif output_format == "text":
        write_lines(comparison_lines(sets, changes, table_width()), os.environ)
    else:
        _write_for_github(sets, changes, limit, [*limits_of_comparison(sets, changes), *remarks, *sentences])
    for sentence in sentences:
        warn(sentence)
    return _ABOVE_LIMIT_EXIT_CODE if limit is not None and limit.exceeded else 0


def _priced(record: Record, on_fargate: str | None, overrides: PriceOverrides) -> Record:
    return replace(record, cost=cost_on_fargate(record, on_fargate, overrides))


def _warn_about_left_out(sets: Sequence[RunSet]) -> None:
    """Say on standard error what the object has no place for."""
    for one in sets:
        if one.left_out_text:
            warn(f"Left out of {one.text}: {one.left_out_text}.")


def _write_for_github(
    sets: Sequence[RunSet], changes: Sequence[MetricChange], limit: ChangeLimit | None, sentences: Sequence[str]
) -> None:
    from profiler.cli.compare import github_output  # only for this format

    write_lines(github_output.without_commands(comparison_lines(sets, changes, None)), os.environ)
    if limit is not None:
        write_out("".join(github_output.annotations(sets, limit)).encode(errors="replace"))
    try:
        github_output.append_summary(sets, changes, sentences, os.environ)
    except TaskProfilerError as error:
        warn(str(error))


def comparison_as_json(sets: Sequence[RunSet], changes: Sequence[MetricChange]) -> Mapping[str, object]:
    """The object of ``--format json``; unknown figures are null."""
    a, b = ({"set": one.text, "runs": len(one.reports)} for one in sets)
    return {"a": a, "b": b, "metrics": {one.metric.name: _change_as_json(one) for one in changes}}


def _change_as_json(one: MetricChange) -> Mapping[str, object]:
    change = one.change
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
