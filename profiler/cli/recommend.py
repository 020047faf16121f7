"""``task-profiler recommend``: recommends task sizes from past runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from profiler.cli.options import history_option, search_options
from profiler.cli.output import UNKNOWN, plain_table, printable, render, warn, write_out
from profiler.cli.taskdef.definition_files import DefinitionFile, apply_size, read_definition_file
from profiler.cli.wiring.run_sources import PastRuns, RunQuery, find_families
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.record.model import TaskSize
from profiler.record.units import format_task_size, format_usd
from profiler.settings import problems_message, read_price_settings
from profiler.sizing.advice import Advice, advise, as_json
from profiler.sizing.duration import DurationFactor
from profiler.sizing.evidence import LAST_RUNS
from profiler.sizing.policy import Policy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.what_if import runs_per_month

if TYPE_CHECKING:
    from rich.table import Table

_WRONG_SIZE_EXIT_CODE = 3
_MAX_RUNS = 10_000
_WILDCARDS = frozenset("*?[")
_PERCENT = click.FloatRange(0, 10_000)
_SIZES_COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("Size", "left"),
    ("Times as long", "right"),
    ("Run", "right"),
    ("Month", "right"),
    ("Saving", "right"),
    ("", "left"),
)


@click.command("recommend", epilog="Example: task-profiler recommend nightly-etl --elasticsearch https://search:9200")
@click.argument("families", metavar="[FAMILY]...", nargs=-1)
@click.option("--from", "source", metavar="FILE", help="Read record lines from FILE; - is standard input.")
@click.option(
    "--elasticsearch", "url", metavar="URL", help="Read the forwarder's documents from Elasticsearch or OpenSearch."
)
@search_options
@click.option("--log-group", "groups", metavar="GROUP", multiple=True, help="Query CloudWatch Logs. Repeatable.")
@click.option(
    "--since", metavar="TIME", default="30d", show_default=True, help="Start of --log-group: 12h, 30d, or an ISO time."
)
@history_option("file")
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1, _MAX_RUNS),
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
@click.option("--faster", is_flag=True, help="Give a task that used all of its vCPUs the next larger vCPU size.")
@click.option("--sizes", "with_sizes", is_flag=True, help="Print what each size would cost and how long it would take.")
@click.option("--json", "as_lines", is_flag=True, help="Print one JSON object per family and line, without a table.")
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 3 if a family may run out of memory, or if the recommended size saves enough.",
)
@click.option(
    "--min-saving",
    "min_saving_percent",
    metavar="PERCENT",
    type=click.FloatRange(0, 100),
    default=10,
    show_default=True,
    help="The saving that is enough for --check.",
)
@click.option("--apply", "definition_file", metavar="FILE", help="Write the size to the task definition in FILE.")
def command(
    *,
    families: tuple[str, ...],
    source: str | None,
    url: str | None,
    prefix: str,
    api_key: str | None,
    user: str | None,
    groups: tuple[str, ...],
    since: str,
    file: str | None,
    last: int,
    max_slowdown_percent: float,
    memory_margin_percent: float,
    faster: bool,
    with_sizes: bool,
    as_lines: bool,
    check: bool,
    min_saving_percent: float,
    definition_file: str | None,
) -> int:
    """Recommend a task size for each FAMILY, or for all families, from past runs.

    FAMILY may be a shell pattern. Runs are read from the local history, or from one of --from,
    --elasticsearch and --log-group. Failed, stopped and killed runs are included.
    """
    _check_sources(source, url, groups, file)
    definition = None if definition_file is None else read_definition_file(Path(definition_file))
    query = RunQuery(
        families=families or (definition.families if definition is not None else ()),
        last=last,
        source=source,
        url=url,
        prefix=prefix,
        api_key=api_key,
        user=user,
        groups=groups,
        since=since,
        history_file=file,
    )
    policy = Policy(
        memory_margin_percent=memory_margin_percent,
        max_slowdown_percent=max_slowdown_percent,
        faster=faster,
        last_runs=last,
    )
    runs = find_families(query, os.environ, SystemClock())
    advices = _advices(runs, query.families, policy, _price_overrides(), definition)
    if definition is not None and len(advices) > 1:
        raise UsageError("--apply is for one family: name it before the options.")
    if advices:
        write_out(_lines(advices) if as_lines else _table(advices, with_sizes=with_sizes))
    if definition is not None:
        if not advices:
            raise TaskProfilerError(f"{definition.path} was not changed: measure a run of its family first.")
        warn(apply_size(definition, advices[0].choice.size))
    return _WRONG_SIZE_EXIT_CODE if check and _has_problem(advices, min_saving_percent) else 0


def _has_problem(advices: Sequence[Advice], min_saving_percent: float) -> bool:
    """Print a sentence for each family with a risk or a saving; return whether there is one."""
    found = False
    for advice in advices:
        problem = advice.risk or advice.possible_saving(min_saving_percent)
        if problem is not None:
            found = True
            warn(f"{printable(advice.family)} fails the check: {problem}.")
    return found


def _check_sources(source: str | None, url: str | None, groups: tuple[str, ...], file: str | None) -> None:
    options = (
        ("--from", source is not None),
        ("--elasticsearch", bool(url)),
        ("--log-group", bool(groups)),
        ("--history", bool(file)),
    )
    given = [name for name, is_given in options if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} are several sources of runs: use one of them.")


def _price_overrides() -> PriceOverrides:
    price_overrides, problems = read_price_settings(os.environ)
    if problems:
        warn(problems_message(problems))
    return price_overrides


def _advices(
    runs: PastRuns,
    patterns: Sequence[str],
    policy: Policy,
    price_overrides: PriceOverrides,
    definition: DefinitionFile | None,
) -> list[Advice]:
    for note in runs.notes:
        warn(note)
    if not runs.families:
        of_family = f" of {', '.join(patterns)}" if patterns else ""
        raise TaskProfilerError(f"There is no run{of_family} in {runs.place}: {runs.remedy}.")
    for name in sorted(set(patterns) - {name for name, _ in runs.families}):
        if not _WILDCARDS & set(name):
            warn(f"There is no run of {name} in {runs.place}.")
    target = None if definition is None else definition.target
    advices = []
    for name, evidence in runs.families:
        if evidence is None:
            warn(f"No run of {name} was measured, so its size cannot be recommended.")
        else:
            advices.append(advise(evidence, policy, price_overrides, target))
    return advices


def _lines(advices: Sequence[Advice]) -> bytes:
    return b"".join(msgspec.json.encode(as_json(advice)) + b"\n" for advice in advices)


def _table(advices: Sequence[Advice], *, with_sizes: bool) -> bytes:
    """One row per family, then the sizes and the reasons of each. Family names are never read as markup."""
    from rich.padding import Padding  # rich is not for --json
    from rich.text import Text

    families = plain_table(column_gap=2)
    families.add_column("Family", overflow="fold")
    families.add_column("Runs", justify="right", no_wrap=True)
    families.add_column("Current", no_wrap=True)
    families.add_column("Recommended", no_wrap=True)
    families.add_column("Saving", justify="right", no_wrap=True)
    details: list[Padding | Text] = []
    for advice in advices:
        choice = advice.choice
        families.add_row(
            Text(printable(advice.family)),
            str(advice.evidence.runs),
            _size(choice.current),
            Text(_size(choice.size), style="bold" if choice.changes else ""),
            _percent(choice.saving_percent),
        )
        details.append(Text(f"\n{printable(advice.family)}", style="bold"))
        if with_sizes and choice.options:
            details.append(Padding(_sizes(advice), (0, 0, 1, 2), expand=False))
        details.extend(Padding(Text(f"- {printable(one)}"), (0, 0, 0, 2), expand=False) for one in advice.reasons)
    return render(families, *details)


def _sizes(advice: Advice) -> "Table":
    """One row per size, with the upper bounds of its costs."""
    table = plain_table(column_gap=2)
    for name, justify in _SIZES_COLUMNS:
        table.add_column(name, justify=justify, no_wrap=True)
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
        table.add_row(
            _size(size),
            UNKNOWN if factor is None else _factor(factor),
            UNKNOWN if usd is None else format_usd(usd),
            UNKNOWN if usd is None or monthly_runs is None else format_usd(usd * monthly_runs),
            _percent(option.saving_percent),
            ", ".join(names),
        )
    return table


def _factor(factor: DurationFactor) -> str:
    least, most = f"{factor.min:.2f}", f"{factor.max:.2f}"
    return least if least == most else f"{least} to {most}"


def _percent(percent: float | None) -> str:
    return UNKNOWN if percent is None else f"{percent:.0f} %"


def _size(size: TaskSize | None) -> str:
    return (None if size is None else format_task_size(size.vcpu, size.memory_mb)) or UNKNOWN
