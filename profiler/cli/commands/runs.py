"""``run`` and ``compare``, ``show``, ``history``, ``report`` and ``recommend``; ``watch`` and ``schedules``.

The options of ``run`` are in ``profiler.cli.run_options``. click parses only the command lines that its
:func:`~profiler.cli.run_options.parse_usual` does not.
"""

from collections.abc import Callable
from typing import Any

import click

from profiler.cli.options import (
    Decorated,
    Number,
    PastRunsCommand,
    Quantity,
    WholeNumber,
    add_options,
    completes,
    family_arguments,
    filter_options,
    flag,
    implemented_in,
    last_option,
    on_fargate_option,
    option,
    past_run_options,
    policy_options,
    repeatable,
    source_options,
)
from profiler.cli.run_options import RUN_OPTIONS, Amount, RunOption, RunOptions, with_stacks_value

# The names of profiler.runs.comparison.compared_metrics.COMPARED_METRICS, whose module is slow to import.
METRIC_NAMES = (
    "durationMs",
    "cpuSeconds",
    "maxMemoryUsedMB",
    "memoryAverageMB",
    "blockReadBytes",
    "blockWriteBytes",
    "costUsd",
)
_LOG_LINES = 10
_MAX_LISTED = 1_000_000
_PERCENT = Number(0, 10_000)


class _RunCommand(click.Command):
    """The command ``run``, with one option whose value is optional."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_stacks_value(args))


def _run_option(one: RunOption) -> Callable[[Decorated], Decorated]:
    if one.default is False:
        return flag(one.names, one.text)
    if one.default == ():
        return repeatable(one.names, one.metavar, one.text)
    more: dict[str, Any] = {"shell_complete": completes(families=True)} if one.field == "name" else {}
    if isinstance(one.values, Amount):
        parser, least, most = one.values.parser, one.values.least, one.values.most
        more["type"] = WholeNumber(int(least), int(most)) if parser == "int" else Quantity(parser, least, most)
    elif one.values is not None:
        more["type"] = click.Choice(one.values)
    shown = one.default is not None and not one.metavar.startswith("[")
    return option(one.names, one.metavar, one.text, default=one.default, show_default=shown, **more)


@click.command(
    "run",
    cls=_RunCommand,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="Example: task-profiler run --name nightly-etl --output runs.jsonl -- python etl.py --date 2026-11-20",
)
@add_options(*map(_run_option, RUN_OPTIONS))
@click.argument("words", metavar="-- CMD [ARG]...", nargs=-1, type=click.UNPROCESSED)
def run(**options: Any) -> int:  # noqa: ANN401  click has checked the types
    """Run a command and report its CPU, memory and I/O.

    The command's input, output, signals and exit code do not change, except for --runs and for an
    exceeded budget. When it ends, the report is printed to stderr, and the run is added to the local
    history (task-profiler history).
    """
    from profiler.cli.wiring.build_run import run_command  # not for the help

    return run_command(RunOptions(**options))


@click.command(
    "compare",
    cls=PastRunsCommand,
    epilog="Example: task-profiler compare nightly-etl@25 nightly-etl@26 --fail-above 10% --from runs.jsonl",
)
@click.argument("a", metavar="A", shell_complete=completes(families=True, ids=True))
@click.argument("b", metavar="B", shell_complete=completes(families=True, ids=True))
@past_run_options
@filter_options
@last_option(10_000, 50, "Use the N newest successes of each set.")
@option("--container", "NAME", "Compare this container, if the tasks have reports of several.")
@repeatable(
    "--metric names", "NAME", f"Compare only this metric: {', '.join(METRIC_NAMES)}.", type=click.Choice(METRIC_NAMES)
)
@option("--fail-above limit_percent", "PERCENT", "Exit with 3 if a metric's whole interval is above it.", type=_PERCENT)
@on_fargate_option
@flag("--json as_json", "Print one JSON object instead.")
@option(
    *("--format output_format", "", "Print tables; github: annotations, and a table in $GITHUB_STEP_SUMMARY."),
    type=click.Choice(["text", "github"]),
    default="text",
)
@implemented_in("profiler.cli.compare_command", "compare_sets")
def compare() -> None:
    """Compare two sets of runs: medians, changes, verdicts.

    A is the base. A and B are each a family, FAMILY@REVISION, FAMILY@LABEL=VALUE, or run IDs joined by
    commas. Only a family's successes count.
    """


@click.command(
    "show", cls=PastRunsCommand, epilog="Example: task-profiler show nightly-etl --from logs:/ecs/nightly-etl --logs"
)
@click.argument("names", metavar="[RUN|FAMILY]", nargs=-1, shell_complete=completes(families=True, ids=True))
@source_options
@option(
    "--against",
    "RUN|last-success",
    "Compare with this run. A failed run is compared with its family's last success by default.",
    shell_complete=completes(ids=True),
)
@click.option(
    "--logs",
    "log_count",
    metavar="[N]",
    is_flag=False,
    flag_value=str(_LOG_LINES),
    type=WholeNumber(1, 1_000),
    help=f"Also show the batch's last N log lines ({_LOG_LINES}) before each moment and the end.",
)
@flag("--stacks as_stacks", "Show the call stacks: functions with their shares.")
@flag("--json as_json", "Print the report line; with --stacks, the line of the call stacks.")
@implemented_in("profiler.cli.show_command", "show_run")
def show() -> None:
    """Show one run: verdict, resource usage, comparison, advice.

    RUN is a task ID or its beginning, or TASK-ID/CONTAINER. FAMILY selects its newest run. The default
    is the newest run of all. If several containers of the task have a report, all are shown.
    """


@click.command(
    "history", cls=PastRunsCommand, epilog="Example: task-profiler history 'nightly-*' --status failure --last 5"
)
@click.argument("families", metavar="[FAMILY]...", nargs=-1, shell_complete=completes(families=True, ids=True))
@source_options
@last_option(_MAX_LISTED, 20, "Show the N newest runs.")
@flag("--json as_json", "Print the stored report lines instead of a table.")
@flag("--delete", "Delete runs from the local history: the arguments are their ids, or the beginnings of them.")
@implemented_in("profiler.cli.history_command", "list_history")
def history() -> None:
    """List past runs, newest first.

    FAMILY can be a shell pattern; the default is all families.
    """


@click.command(
    "report",
    cls=PastRunsCommand,
    epilog="Example: task-profiler report --from report-lines.jsonl -o batches.html --open",
)
@family_arguments
@option("-o --output out", "FILE", "File to write or replace (- for standard output).", default="task-report.html")
@source_options
@option("--last", "N", "Show the N newest runs.", type=WholeNumber(1, _MAX_LISTED))
@option("--run run_id", "ID", "Show only this run: a task ID or its beginning.", shell_complete=completes(ids=True))
@on_fargate_option
@flag("--json as_json", "Print the file, its bytes and the number of runs as JSON.")
@flag("--open opens", "Open the page in a browser.")
@implemented_in("profiler.cli.report_command", "write_report")
def report() -> None:
    """Write an HTML page of past runs, with charts.

    FAMILY can be a shell pattern; the default is all families.
    """


@click.command(
    "recommend",
    cls=PastRunsCommand,
    epilog="Example: task-profiler recommend nightly-etl --from https://search:9200",
)
@family_arguments
@source_options
@last_option(10_000, 50, "Use the N newest runs of each family.")
@policy_options
@flag("--faster", "Recommend the next larger vCPU size to tasks that used all of their vCPUs.")
@on_fargate_option
@flag("--sizes with_sizes", "Also print the cost and the duration at each size.")
@flag("--json as_lines", "Print one JSON object per family instead of a table.")
@flag("--check", "Exit with 3 if a family may run out of memory, or for a saving of at least --min-saving.")
@option("--min-saving min_saving_percent", "PERCENT", "Minimum saving for --check.", type=Number(0, 100), default=10)
@option("--min-saving-usd", "USD", "Also the minimum saving a month for --check.", type=Number(0, 1e9), default=0)
@implemented_in("profiler.cli.recommend_command", "recommend_sizes")
def recommend() -> None:
    """Recommend task sizes based on past runs.

    FAMILY can be a shell pattern; the default is all families, without the reasons.
    Failed, stopped and killed runs are included.
    """


@click.command("watch", cls=PastRunsCommand, epilog="Example: task-profiler watch nightly-etl --from logs:/ecs/jobs")
@click.argument("name", metavar="[FAMILY|TASK]", required=False, shell_complete=completes(families=True))
@past_run_options
@option("--cluster", "NAME", "Ask ECS for the running tasks of this cluster.")
@flag("--once", "Print one table and end, as without a terminal.")
@flag("--json as_json", "Print one JSON line for each running task and end.")
@implemented_in("profiler.cli.watch_command", "watch_runs")
def watch() -> None:
    """Show what runs now: time, CPU, memory, notifications.

    FAMILY is a family or a pattern of families, TASK the beginning of a task ID. Without them, tasks of services are
    left out. Without logs:GLOB in --from and without --cluster, local runs are shown. CPU and memory come from the
    newest checkpoint, the usual duration (of 14 days) from https://HOST in --from, else from the log groups.
    """


@click.command(
    "schedules", cls=PastRunsCommand, epilog="Example: task-profiler schedules --cluster jobs --from logs:/ecs/jobs"
)
@family_arguments
@option("--cluster", "NAME", "Only schedules that start tasks in this ECS cluster.")
@flag("--json as_lines", "Print one JSON object per schedule instead of a table.")
@past_run_options
@implemented_in("profiler.cli.schedules_command", "list_schedules")
def schedules() -> None:
    """List the schedules that start ECS tasks, and what became of them.

    FAMILY can be a shell pattern; the default is all families.
    These are the schedules of EventBridge Scheduler and the rules of EventBridge in one Region. The usual duration
    comes from the last successes in --from. Only https://HOST there also shows what became of due times of more than
    an hour ago.
    """
