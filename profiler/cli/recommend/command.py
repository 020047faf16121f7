"""``task-profiler recommend``: wires the sources of past runs to the recommendation."""

import os
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from profiler.cli.output import printable, render, write_out
from profiler.cli.recommend.output import DefinitionFile, apply_size, read_definition
from profiler.cli.recommend.sources import PastRuns, RunQuery, find_families
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.search.setup import DEFAULT_PREFIX
from profiler.settings import problems_message, read_price_settings
from profiler.sizing.advice import Advice, advise, as_json
from profiler.sizing.evidence import LAST_RUNS
from profiler.sizing.policy import Policy
from profiler.sizing.prices import PriceOverrides

_WRONG_SIZE_EXIT_CODE = 3
_MAX_RUNS = 10_000
_WILDCARDS = frozenset("*?[")
_PERCENT = click.FloatRange(0, 1000)


@click.command("recommend", epilog="Example: task-profiler recommend nightly-etl --elasticsearch https://search:9200")
@click.argument("families", metavar="[FAMILY]...", nargs=-1)
@click.option("--from", "source", metavar="FILE", help="Record lines instead of the history; - is standard input.")
@click.option(
    "--elasticsearch", "url", metavar="URL", help="Elasticsearch or OpenSearch with the forwarder's documents."
)
@click.option("--prefix", metavar="P", default=DEFAULT_PREFIX, show_default=True, help="Beginning of the index names.")
@click.option("--api-key", metavar="KEY", help="Sign in by API key (default: the forwarder's variable).")
@click.option("--user", metavar="NAME:PASSWORD", help="Sign in by name (default: the forwarder's variables).")
@click.option("--log-group", "groups", metavar="GROUP", multiple=True, help="Ask CloudWatch Logs; may be repeated.")
@click.option("--since", metavar="TIME", default="30d", show_default=True, help="With --log-group: 12h, 30d, ISO time.")
@click.option(
    "--history",
    "file",
    metavar="FILE",
    help="History file (default: TASK_PROFILER_HISTORY, else task-profiler/history.sqlite3 in XDG_DATA_HOME).",
)
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1, _MAX_RUNS),
    default=LAST_RUNS,
    show_default=True,
    help="Look at the N newest runs of each family.",
)
@click.option(
    "--cpu-margin",
    "cpu_margin_percent",
    metavar="PERCENT",
    type=_PERCENT,
    default=Policy().cpu_margin_percent,
    show_default=True,
    help="vCPU above what was needed.",
)
@click.option(
    "--memory-margin",
    "memory_margin_percent",
    metavar="PERCENT",
    type=_PERCENT,
    default=Policy().memory_margin_percent,
    show_default=True,
    help="Memory above what was needed.",
)
@click.option("--json", "as_lines", is_flag=True, help="One JSON object a family and line, instead of a table.")
@click.option("--check", is_flag=True, help="Exit with 3 if a family has not the recommended size.")
@click.option("--apply", "definition_file", metavar="FILE", help="Write the size into the task definition in FILE.")
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
    """Recommend a task size for each FAMILY, or for all, from past runs.

    FAMILY may be a shell pattern. Runs come from the local history, or from one of --from,
    --elasticsearch and --log-group. Failed, stopped and killed runs count too.
    """
    given = [name for name, value in _sources(source, url, groups, file) if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} are several sources of runs: name one of them.")
    definition = None if definition_file is None else read_definition(Path(definition_file))
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
    found = find_families(query, os.environ, SystemClock())
    advices = _advices(found, query.families, policy, _price_overrides(), definition)
    if definition is not None and len(advices) > 1:
        raise UsageError("--apply is for one family: name it before the options.")
    if advices:
        write_out(_lines(advices) if as_lines else _table(advices))
    if definition is not None:
        if not advices:
            raise TaskProfilerError(f"{definition.path} was left as it is: measure a run of its family first.")
        click.echo(f"task-profiler: {printable(apply_size(definition, advices[0]))}", err=True)
    return _WRONG_SIZE_EXIT_CODE if check and any(advice.choice.changes for advice in advices) else 0


def _sources(
    source: str | None, url: str | None, groups: tuple[str, ...], file: str | None
) -> Sequence[tuple[str, object]]:
    return (("--from", source is not None), ("--elasticsearch", url), ("--log-group", groups), ("--history", file))


def _price_overrides() -> PriceOverrides:
    own, problems = read_price_settings(os.environ)
    if problems:
        click.echo(f"task-profiler: {problems_message(problems)}", err=True)
    return own


def _advices(
    found: PastRuns,
    query: Sequence[str],
    policy: Policy,
    price_overrides: PriceOverrides,
    definition: DefinitionFile | None,
) -> list[Advice]:
    for note in found.notes:
        click.echo(f"task-profiler: {printable(note)}", err=True)
    if not found.families:
        of_what = f" of {', '.join(query)}" if query else ""
        raise TaskProfilerError(f"There is no run{of_what} in {found.place}: {found.remedy}.")
    for name in sorted(set(query) - {name for name, _ in found.families}):
        if not _WILDCARDS & set(name):
            click.echo(f"task-profiler: There is no run of {printable(name)} in {found.place}.", err=True)
    target = None if definition is None else definition.target
    advices = []
    for name, evidence in found.families:
        if evidence is None:
            told = f"No run of {name} was measured, so nothing can be said about its size."
            click.echo(f"task-profiler: {printable(told)}", err=True)
        else:
            advices.append(advise(evidence, policy, price_overrides, target))
    return advices


def _lines(advices: Sequence[Advice]) -> bytes:
    return b"".join(msgspec.json.encode(as_json(advice)) + b"\n" for advice in advices)


def _table(advices: Sequence[Advice]) -> bytes:
    from profiler.cli.recommend.output import sentences, table  # rich is not for --json

    return render(table(advices), *sentences(advices))
