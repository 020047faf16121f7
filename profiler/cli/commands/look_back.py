"""``show``, ``history``, ``report`` and ``recommend``; ``watch`` and ``schedules``."""

import click

from profiler.cli.options import (
    MAX_RUNS,
    Number,
    PastRunsCommand,
    WholeNumber,
    aws_options,
    ca_file_option,
    completes,
    family_arguments,
    flag,
    implemented_in,
    last_option,
    on_fargate_option,
    option,
    past_run_options,
    repeatable,
    search_options,
    source_options,
)

_LOG_LINES = 10
_PERCENT = Number(0, 10_000)


@click.command(
    "show", cls=PastRunsCommand, epilog="Example: task-profiler show nightly-etl --log-group /ecs/nightly-etl --logs"
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
    Runs come from the local history unless --from, --elasticsearch, --log-group or --container-insights is given.
    """


@click.command(
    "history", cls=PastRunsCommand, epilog="Example: task-profiler history 'nightly-*' --status failure --last 5"
)
@click.argument("names", metavar="[FAMILY]...", nargs=-1, shell_complete=completes(families=True, ids=True))
@source_options
@last_option(MAX_RUNS, 20, "Show the N newest runs.")
@flag("--json as_json", "Print the stored report lines instead of a table.")
@flag("--delete", "Delete runs from the local history: the arguments are their ids, or the beginnings of them.")
@implemented_in("profiler.cli.history_command", "list_history")
def history() -> None:
    """List past runs, newest first.

    FAMILY can be a shell pattern, as in --family; the default is all families. Runs come from the local
    history unless --from, --elasticsearch, --log-group or --container-insights is given.
    """


@click.command(
    "report",
    cls=PastRunsCommand,
    epilog="Example: task-profiler report --from report-lines.jsonl -o batches.html --open",
)
@family_arguments
@option("-o --output out", "FILE", "File to write or replace (- for standard output).", default="task-report.html")
@source_options
@option("--last", "N", "Show the N newest runs.", type=WholeNumber(1, MAX_RUNS))
@option(
    "--run run_id",
    "ID",
    "Show only this run: a task ID or its beginning, or TASK-ID/CONTAINER.",
    shell_complete=completes(ids=True),
)
@on_fargate_option
@flag("--json as_json", "Print the file, its bytes and the number of runs as JSON.")
@flag("--open opens", "Open the page in a browser.")
@implemented_in("profiler.cli.report_command", "write_report")
def report() -> None:
    """Write an HTML page of past runs, with charts.

    FAMILY can be a shell pattern, as in --family; the default is all families. Runs come from the local
    history unless --from, --elasticsearch, --log-group or --container-insights is given.
    """


@click.command(
    "recommend",
    cls=PastRunsCommand,
    epilog="Example: task-profiler recommend nightly-etl --elasticsearch https://search:9200",
)
@family_arguments
@source_options
@last_option(10_000, 50, "Use the N newest runs of each family.")
@option(
    "--max-slowdown max_slowdown_percent",
    "PERCENT",
    "How much longer a run may take than at the current size.",
    type=_PERCENT,
    default=25,
)
@option(
    "--memory-margin memory_margin_percent", "PERCENT", "Margin above the required memory.", type=_PERCENT, default=20
)
@flag("--faster", "Recommend the next larger vCPU size to tasks that used all of their vCPUs.")
@on_fargate_option
@flag("--sizes with_sizes", "Also print the cost and the duration at each size.")
@flag("--json as_lines", "Print one JSON object per family instead of a table.")
@flag("--check", "Exit with 3 if a family may run out of memory, or could save at least --min-saving.")
@option("--min-saving min_saving_percent", "PERCENT", "Minimum saving for --check.", type=Number(0, 100), default=10)
@option("--apply definition_file", "FILE", "Write the recommended size to the task definition in FILE.")
@implemented_in("profiler.cli.recommend_command", "recommend_sizes")
def recommend() -> None:
    """Recommend task sizes based on past runs.

    FAMILY can be a shell pattern, as in --family; the default is all families, without the reasons.
    Failed, stopped and killed runs are included. Runs come from the local history unless --from, --elasticsearch,
    --log-group or --container-insights is given.
    """


@click.command("watch", cls=PastRunsCommand, epilog="Example: task-profiler watch nightly-etl --log-group /ecs/jobs")
@click.argument("name", metavar="[FAMILY|TASK]", required=False, shell_complete=completes(families=True))
@repeatable(
    "--log-group groups",
    "GROUP",
    "Read this log group of monitors or batches in CloudWatch, or those that match * ? [].",
)
@option("--cluster", "NAME", "Ask ECS for the running tasks of this cluster.")
@option("--elasticsearch url", "URL", "Read past runs from this Elasticsearch or OpenSearch instead of the log groups.")
@search_options
@ca_file_option
@aws_options
@option(
    "--days",
    "N",
    "Take the usual duration from the last 20 successes of each family in N days; 0: from none.",
    type=WholeNumber(0, 365),
    default=14,
)
@flag("--once", "Print one table and end, as without a terminal.")
@flag("--json as_json", "Print one JSON line for each running task and end.")
@implemented_in("profiler.cli.watch_command", "watch_runs")
def watch() -> None:
    """Show what runs now: time, CPU, memory, notifications.

    FAMILY is a family or a pattern of families, TASK the beginning of a task ID. Without them, tasks of services are
    left out. Without --log-group and --cluster, local runs are shown. CPU and memory come from the
    newest checkpoint. Ctrl-C ends it.
    """


@click.command(
    "schedules", cls=PastRunsCommand, epilog="Example: task-profiler schedules --cluster jobs --log-group /ecs/jobs"
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
    comes from the last successes in --elasticsearch, --log-group or --from. Only --elasticsearch also
    shows what became of due times of more than an hour ago.
    """
