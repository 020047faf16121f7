"""The command group. A command's module is imported only when the command runs."""

import sys
from importlib import import_module

import click

from profiler.cli.printing import report_stdout_errors
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.text import printable
from profiler.core.version import __version__

_MARGINS = 6  # the columns next to the texts in click's list of commands
# The module of each command, and the first sentence of its help.
COMMANDS = {
    "monitor": (
        "profiler.cli.monitor_command",
        "Run as a sidecar of an ECS task. All settings are environment variables.",
    ),
    "run": ("profiler.cli.run_command", "Run a command and report its CPU, memory and I/O."),
    "setup": ("profiler.cli.setup", "Set up an AWS account: image, forwarder, monitors."),
    "taskdef": ("profiler.cli.taskdef.taskdef_group", "Add the monitor to ECS task definitions, and remove it."),
    "replay": (
        "profiler.cli.replay_command",
        "Send the reports in a log group through the forwarder again.",
    ),
    "notify": (
        "profiler.cli.notify_command",
        "Print the notification of a stopped task and send it.",
    ),
    "kibana": (
        "profiler.cli.kibana_command",
        "Set up Elasticsearch or OpenSearch, and their dashboards.",
    ),
    "show": (
        "profiler.cli.show",
        "Show one run: verdict, resource usage, comparison, advice.",
    ),
    "schedules": (
        "profiler.cli.schedules",
        "List the schedules that start ECS tasks, and what became of them.",
    ),
    "watch": ("profiler.cli.watch", "Show what runs now: time, CPU, memory, notices."),
    "history": ("profiler.cli.history_command", "List past runs, newest first."),
    "report": (
        "profiler.cli.report_command",
        "Write an HTML page of past runs, with charts.",
    ),
    "recommend": (
        "profiler.cli.recommend_command",
        "Recommend task sizes based on past runs.",
    ),
    "compare": (
        "profiler.cli.compare",
        "Compare two sets of runs: medians, changes, verdicts.",
    ),
    "doctor": (
        "profiler.cli.doctor",
        "Show what can be measured in this container and what to change in the task definition.",
    ),
    "schema": ("profiler.cli.app:schema", "Print the JSON Schema of the record."),
}


class _LazyGroup(click.Group):
    """Imports a command's module only to run the command or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  click's signature
        """List the commands as click does, without their modules, which take longer than everything else."""
        limit = formatter.width - _MARGINS - max(map(len, COMMANDS))
        rows = [
            (name, click.Command(name, help=sentence).get_short_help_str(limit))
            for name, (_, sentence) in COMMANDS.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown name, name the one that was probably meant."""
        name = args[0]
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        raise UsageError(f"Unknown command {name!r}: {_suggestion(args)}")


def _suggestion(words: list[str]) -> str:
    """What the user probably meant: a similar name, or to profile a program of this name."""
    from difflib import get_close_matches  # only for a wrong command
    from shlex import join
    from shutil import which

    if which(words[0]) is not None:
        return f"to profile this program, write task-profiler run -- {join(words)}"
    similar = get_close_matches(words[0], COMMANDS, n=1)
    if similar:
        return f"did you mean {similar[0]}?"
    return "task-profiler --help lists the commands."


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: task-profiler run -- python etl.py --date 2026-11-20",
)
@click.option("--debug", is_flag=True, help="Print a traceback on failure.")
@click.version_option(__version__, prog_name="task-profiler", message="%(prog)s %(version)s")
def group(debug: bool) -> None:
    """Show the CPU, memory and cost of every batch run."""


def run_command_line() -> None:
    """Parse the arguments and run the command. An error becomes one sentence on stderr and the exit code."""
    report_stdout_errors()
    try:
        sys.exit(group.main(prog_name="task-profiler", standalone_mode=False))
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # click 8.1 prints the help itself
            click.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        _fail(error.format_message(), error.exit_code)
    except TaskProfilerError as error:
        if "--debug" in sys.argv[1:]:
            raise
        _fail(printable(str(error)), error.exit_code)


def _fail(message: str, exit_code: int) -> None:
    click.echo(f"task-profiler: {message}", err=True)
    sys.exit(exit_code)


@click.command("schema", epilog="Example: task-profiler schema > task-report.schema.json")
def schema() -> None:
    """Print the JSON Schema of the record."""
    import json  # not for the other commands

    from profiler.record.record_model import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
