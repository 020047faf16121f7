"""The command group. A command's module is imported only when the command runs."""

import sys
from importlib import import_module

import click

from profiler import __version__
from profiler.cli.output import report_stdout_errors
from profiler.core.errors import TaskProfilerError, UsageError

_COMMANDS = {
    "monitor": "profiler.cli.monitor",
    "run": "profiler.cli.run",
    "taskdef": "profiler.cli.taskdef.commands",
    "replay": "profiler.cli.replay",
    "notify": "profiler.cli.notify",
    "kibana": "profiler.cli.kibana",
    "show": "profiler.cli.show",
    "history": "profiler.cli.history",
    "report": "profiler.cli.report",
    "recommend": "profiler.cli.recommend",
    "doctor": "profiler.cli.doctor",
    "healthcheck": "profiler.cli.monitor:healthcheck",
    "schema": "profiler.cli.app:schema",
}


class _LazyGroup(click.Group):
    """Imports a command's module only to run the command or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown name, name the one that was probably meant."""
        name = args[0]
        if name in _COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        raise UsageError(f"There is no command {name!r}: {_suggestion(args)}")


def _suggestion(words: list[str]) -> str:
    """What the user probably meant: a similar name, or to profile a program of this name."""
    from difflib import get_close_matches  # only for a wrong command
    from shlex import join
    from shutil import which

    if which(words[0]) is not None:
        return f"to profile it, write task-profiler run -- {join(words)}"
    similar = get_close_matches(words[0], _COMMANDS, n=1)
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
    """Shows what a batch run used: the REPORT line that Amazon ECS does not print."""


def run_command_line() -> None:
    """Parse the arguments and run the command. An error becomes one sentence on stderr and the exit code."""
    report_stdout_errors()
    try:
        sys.exit(group.main(prog_name="task-profiler", standalone_mode=False))
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except TaskProfilerError as error:
        if "--debug" in sys.argv[1:]:
            raise
        _fail(str(error), error.exit_code)


def _fail(message: str, exit_code: int) -> None:
    click.echo(f"task-profiler: {message}", err=True)
    sys.exit(exit_code)


@click.command("schema", epilog="Example: task-profiler schema > task-report.schema.json")
def schema() -> None:
    """Print the JSON Schema of the record."""
    import json  # not for the other commands

    from profiler.record.model import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
