"""``task-profiler recommend``: recommends task sizes from past runs."""

import os
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from profiler.cli.options import history_option, search_options
from profiler.cli.output import UNKNOWN, plain_table, printable, render, warn, write_out
from profiler.cli.taskdef.definition_files import DefinitionFile, apply_size, read_definition_file
from profiler.cli.wiring.run_sources import PastRuns, RunQuery, find_families
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.record.model import TaskSize
from profiler.record.units import format_task_size
from profiler.settings import problems_message, read_price_settings
from profiler.sizing.advice import Advice, advise, as_json
from profiler.sizing.evidence import LAST_RUNS
from profiler.sizing.policy import Policy
from profiler.sizing.prices import PriceOverrides

_WRONG_SIZE_EXIT_CODE = 3
_COLOURS = {"high": "green", "medium": "yellow", "low": "red"}
_MAX_RUNS = 10_000
_WILDCARDS = frozenset("*?[")
_PERCENT = click.FloatRange(0, 1000)


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
    "--cpu-margin",
    "cpu_margin_percent",
    metavar="PERCENT",
    type=_PERCENT,
    default=Policy().cpu_margin_percent,
    show_default=True,
    help="Margin above the required vCPU.",
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
@click.option("--json", "as_lines", is_flag=True, help="Print one JSON object per family and line, without a table.")
@click.option("--check", is_flag=True, help="Exit with 3 if a family does not have the recommended size.")
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
    cpu_margin_percent: float,
    memory_margin_percent: float,
    as_lines: bool,
    check: bool,
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
    policy = Policy(cpu_margin_percent=cpu_margin_percent, memory_margin_percent=memory_margin_percent, last_runs=last)
    runs = find_families(query, os.environ, SystemClock())
    advices = _advices(runs, query.families, policy, _price_overrides(), definition)
    if definition is not None and len(advices) > 1:
        raise UsageError("--apply is for one family: name it before the options.")
    if advices:
        write_out(_lines(advices) if as_lines else _table(advices))
    if definition is not None:
        if not advices:
            raise TaskProfilerError(f"{definition.path} was not changed: measure a run of its family first.")
        warn(apply_size(definition, advices[0].choice.size))
    return _WRONG_SIZE_EXIT_CODE if check and any(advice.choice.changes for advice in advices) else 0


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


def _table(advices: Sequence[Advice]) -> bytes:
    """One row per family, then the reasons of each. Family names are never read as markup."""
    from rich.padding import Padding  # rich is not for --json
    from rich.text import Text

    families = plain_table(column_gap=2)
    families.add_column("Family", overflow="fold")
    families.add_column("Runs", justify="right", no_wrap=True)
    families.add_column("Current", no_wrap=True)
    families.add_column("Recommended", no_wrap=True)
    families.add_column("Saving", justify="right", no_wrap=True)
    families.add_column("Confidence", no_wrap=True)
    reasons: list[Padding | Text] = []
    for advice in advices:
        choice = advice.choice
        families.add_row(
            Text(printable(advice.family)),
            str(advice.evidence.runs),
            _size(choice.current),
            Text(_size(choice.size), style="bold" if choice.changes else ""),
            UNKNOWN if choice.saving_percent is None else f"{choice.saving_percent:.0f} %",
            Text(advice.confidence, style=_COLOURS[advice.confidence]),
        )
        reasons.append(Text(f"\n{printable(advice.family)}", style="bold"))
        reasons.extend(Padding(Text(f"- {printable(one)}"), (0, 0, 0, 2), expand=False) for one in advice.reasons)
    return render(families, *reasons)


def _size(size: TaskSize | None) -> str:
    return (None if size is None else format_task_size(size.vcpu, size.memory_mb)) or UNKNOWN
