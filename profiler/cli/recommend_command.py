"""``task-profiler recommend``: recommends task sizes from past runs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from profiler.cli.options import Number, SourceOptions, WholeNumber, on_fargate_option, source_options
from profiler.cli.printing import UNKNOWN, warn, write_out
from profiler.cli.styled_text import EMPTY, INDENT, Column, Line, Span, line, table, table_width, wrapped, write_lines
from profiler.cli.wiring.configured_prices import price_overrides
from profiler.cli.wiring.open_past_runs import open_source, run_filter
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.text import printable
from profiler.past_runs.families import read_families
from profiler.past_runs.run_source import RunFilter, RunSource, is_pattern, no_run_sentence
from profiler.record.family_identity import FamilyKey, family_labels, place_columns
from profiler.record.record_model import TaskSize
from profiler.record.units import format_task_size, format_usd
from profiler.sizing.advice import Advice, advise, as_json
from profiler.sizing.choose_size import Policy
from profiler.sizing.duration_factors import DurationFactor
from profiler.sizing.evidence import LAST_RUNS, Evidence
from profiler.sizing.what_if import runs_per_month
from profiler.task_definitions.definition_files import apply_size, read_definition_file

_WRONG_SIZE_EXIT_CODE = 3
_MAX_RUNS = 10_000
# A program that reads the reasons gets every line whole.
_PIPE_COLUMNS = 10_000
_PERCENT = Number(0, 10_000)
_GAP = 2
_FAMILY_COLUMN = Column("Family", folds=True)
_COLUMNS = (
    Column("Runs", is_right=True),
    Column("Current", folds=True),
    Column("Recommended", folds=True),
    Column("Saving", is_right=True),
)
_SIZES_COLUMNS = (
    Column("Size"),
    *(Column(title, is_right=True) for title in ("Times as long", "Run", "Month", "Saving")),
    Column(""),
)


@click.command("recommend", epilog="Example: task-profiler recommend nightly-etl --elasticsearch https://search:9200")
@click.argument("names", metavar="[FAMILY]...", nargs=-1)
@source_options
@click.option(
    "--last",
    metavar="N",
    type=WholeNumber(1, _MAX_RUNS),
    default=LAST_RUNS,
    show_default=True,
    help="Use the N newest runs of each family.",
)
@click.option(
    "--max-slowdown",
    "max_slowdown_percent",
    metavar="PERCENT",
    type=_PERCENT,
    default=Policy().max_slowdown_percent,
    show_default=True,
    help="How much longer a run may take than at the current size.",
)
@click.option(
    "--memory-margin",
    "memory_margin_percent",
    metavar="PERCENT",
    type=_PERCENT,
    default=Policy().memory_margin_percent,
    show_default=True,
    help="Margin above the required memory.",
)
@click.option(
    "--faster", is_flag=True, help="Recommend the next larger vCPU size to tasks that used all of their vCPUs."
)
@on_fargate_option
@click.option("--sizes", "with_sizes", is_flag=True, help="Also print the cost and the duration at each size.")
@click.option("--json", "as_lines", is_flag=True, help="Print one JSON object per family instead of a table.")
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 3 if a family may run out of memory, or could save at least --min-saving.",
)
@click.option(
    "--min-saving",
    "min_saving_percent",
    metavar="PERCENT",
    type=Number(0, 100),
    default=10,
    show_default=True,
    help="Minimum saving for --check.",
)
@click.option(
    "--apply", "definition_file", metavar="FILE", help="Write the recommended size to the task definition in FILE."
)
def command(
    *,
    options: SourceOptions,
    names: tuple[str, ...],
    last: int,
    max_slowdown_percent: float,
    memory_margin_percent: float,
    faster: bool,
    on_fargate: str | None,
    with_sizes: bool,
    as_lines: bool,
    check: bool,
    min_saving_percent: float,
    definition_file: str | None,
) -> int:
    """Recommend task sizes based on past runs.

    FAMILY can be a shell pattern, as in --family; the default is all families. Failed, stopped and
    killed runs are included. Runs come from the local history unless --from, --elasticsearch or
    --log-group is given.
    """
    definition = None if definition_file is None else read_definition_file(Path(definition_file))
    named = (*names, *options.families)
    families = named or (definition.families if definition is not None else ())
    clock = SystemClock()
    selection = run_filter(replace(options, families=families), clock)
    source = open_source(options, os.environ, clock)
    policy = Policy(
        memory_margin_percent=memory_margin_percent,
        max_slowdown_percent=max_slowdown_percent,
        faster=faster,
    )
    families_evidence = _read_evidence(source, selection, last, on_fargate)
    target = None if definition is None else definition.target
    overrides = price_overrides(os.environ, on_fargate)
    advices = [advise(evidence, policy, overrides, target) for evidence in families_evidence]
    if definition is not None and len(advices) > 1:
        raise UsageError(
            "--apply takes one family: name it before the options; --account and --task-region select one of several "
            "families of the same name."
        )
    if as_lines:
        write_out(_lines(advices))
    elif advices:
        write_lines(_table(advices, table_width(), with_sizes=with_sizes), os.environ)
    if definition is not None:
        if not advices:
            raise TaskProfilerError(f"{definition.path} was not changed: no run of its family was measured.")
        warn(apply_size(definition, advices[0].choice.size))
    return _WRONG_SIZE_EXIT_CODE if check and _has_problem(advices, min_saving_percent) else 0


def _labels(advices: Sequence[Advice]) -> Mapping[FamilyKey, str]:
    return family_labels([advice.evidence.family for advice in advices])


def _has_problem(advices: Sequence[Advice], min_saving_percent: float) -> bool:
    """Print a sentence for each family with a risk or a saving; return whether there is one."""
    fails, labels = False, _labels(advices)
    for advice in advices:
        problem = advice.risk or advice.possible_saving(min_saving_percent)
        if problem is not None:
            fails = True
            warn(f"{printable(labels[advice.evidence.family])} fails the check: {problem}.")
    return fails


def _read_evidence(source: RunSource, selection: RunFilter, last: int, on_fargate: str | None) -> list[Evidence]:
    """The evidence of the measured families. Families without runs or measurements are named on standard error."""
    found = read_families(source, selection, last, on_fargate)
    for note in found.notes:
        warn(note)
    if not found.families:
        raise TaskProfilerError(no_run_sentence(source, selection))
    keys = [family.family for family in found.families]
    for name in sorted(set(selection.families) - {key.name for key in keys}):
        if not is_pattern(name):
            warn(f"No run of {name} in {source.place}.")
    labels = family_labels(keys)
    for family in found.families:
        if family.evidence is None:
            warn(f"No run of {labels[family.family]} was measured, so its size cannot be recommended.")
    return [family.evidence for family in found.families if family.evidence is not None]


def _lines(advices: Sequence[Advice]) -> bytes:
    return b"".join(msgspec.json.encode(as_json(advice)) + b"\n" for advice in advices)


def _table(advices: Sequence[Advice], width: int | None, *, with_sizes: bool) -> Iterator[Line]:
    """One row per family, then the sizes and the reasons of each."""
    regions = {advice.evidence.on_fargate for advice in advices} - {None}
    for region in regions:
        header = (
            f"Runs outside Fargate are treated as if they had run on Fargate in {region}: the machine counts as the "
            "current size unless the task has one, and whole seconds are billed, at least 60."
        )
        yield from wrapped(header, width or _PIPE_COLUMNS, first="")
        yield EMPTY
    places = place_columns([advice.evidence.family for advice in advices])
    columns = (_FAMILY_COLUMN, *(Column(title) for title, _ in places), *_COLUMNS)
    rows = (
        (advice.family, *(get(advice.evidence.family) or UNKNOWN for _, get in places), *_row(advice))
        for advice in advices
    )
    yield from table(columns, rows, gap=_GAP, width=width)
    labels = _labels(advices)
    for advice in advices:
        yield EMPTY
        yield line(Span(labels[advice.evidence.family], "bold"))
        if with_sizes and advice.choice.options:
            yield from ((Span(INDENT), *row) for row in table(_SIZES_COLUMNS, _sizes(advice), gap=_GAP))
            yield EMPTY
        for reason in advice.reasons:
            yield from wrapped(reason, width or _PIPE_COLUMNS, first=f"{INDENT}- ")


def _row(advice: Advice) -> tuple[str | Span, ...]:
    choice = advice.choice
    return (
        str(advice.evidence.runs),
        _size(choice.current),
        Span(_size(choice.size), "bold" if choice.changes else ""),
        _percent(choice.saving_percent),
    )


def _sizes(advice: Advice) -> Iterator[tuple[str, ...]]:
    """One row per size, with the upper bounds of its costs."""
    choice, monthly_runs = advice.choice, runs_per_month(advice.evidence)
    for option in choice.options:
        usd = option.usd_per_run
        marks = (
            (choice.current, "current"),
            (choice.size, "recommended"),
        )
        size = TaskSize(vcpu=option.size.vcpu, memory_mb=option.size.memory_mb)
        names = [name for marked, name in marks if marked == size]
        if not option.acceptable:
            names.append("too slow" if option.holds_memory else "too little memory")
        factor = option.factor
        yield (
            _size(size),
            UNKNOWN if factor is None else _factor(factor),
            UNKNOWN if usd is None else format_usd(usd),
            UNKNOWN if usd is None or monthly_runs is None else format_usd(usd * monthly_runs),
            _percent(option.saving_percent),
            ", ".join(names),
        )


def _factor(factor: DurationFactor) -> str:
    least, most = f"{factor.min:.2f}", f"{factor.max:.2f}"
    return least if least == most else f"{least} to {most}"


def _percent(percent: float | None) -> str:
    return UNKNOWN if percent is None else f"{percent:.0f} %"


def _size(size: TaskSize | None) -> str:
    return (None if size is None else format_task_size(size.vcpu, size.memory_mb)) or UNKNOWN
