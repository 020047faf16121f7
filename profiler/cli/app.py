"""The command group. A command's module is imported only when the command runs."""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import groupby
from typing import ClassVar

import click

from profiler.cli.interruption import exit_code_of_exception, signals_end_command
from profiler.cli.options import WholeSentenceGroup
from profiler.cli.printing import replace_standard_streams, safe_message_text, say
from profiler.core.errors import TaskProfilerError
from profiler.core.version import __version__

# The heading of each command in the help (without one, it is not listed), its module, and the
# help's first sentence.
COMMANDS = {
    "run": ("Profile", "run_command", "Run a command and report its CPU, memory and I/O."),
    "compare": (
        "Profile",
        "compare_command",
        "Compare two sets of runs: medians, changes, verdicts.",
    ),
    "show": (
        "Look back",
        "show_command",
        "Show one run: verdict, resource usage, comparison, advice.",
    ),
    "history": ("Look back", "history_command", "List past runs, newest first."),
    "report": ("Look back", "report_command", "Write an HTML page of past runs, with charts."),
    "recommend": ("Look back", "recommend_command", "Recommend task sizes based on past runs."),
    "watch": ("Now", "watch_command", "Show what runs now: time, CPU, memory, notifications."),
    "schedules": (
        "Now",
        "schedules_command",
        "List the schedules that start ECS tasks or submit jobs, and what became of them.",
    ),
    "setup": ("AWS", "setup.setup_commands", "Set up an AWS account: image, forwarder, monitors."),
    "taskdef": (
        "AWS",
        "taskdef_command",
        "Change task definitions: add or remove the monitor, and resize.",
    ),
    "doctor": (
        "AWS",
        "doctor.doctor_command",
        "Check this container, a definition, a job, a cluster or the forwarder: what to change.",
    ),
    "replay": (
        "AWS",
        "replay_command",
        "Send the reports in a log group through the forwarder again.",
    ),
    "kibana": (
        "AWS",
        "kibana_command",
        "Set up Elasticsearch or OpenSearch, and their dashboards.",
    ),
    "notify": (
        "AWS",
        "notify_command",
        "Print the notification of a stopped task, and send it with --yes.",
    ),
    "monitor": ("", "monitor_command", "Run as a sidecar of an ECS task."),
    "completion": (
        "Shell",
        "completion_command",
        (
            "Print the script that completes commands, options, families, runs and files in this "
            "shell."
        ),
    ),
    "schema": ("", "app", "Print the JSON Schema of the record."),
}


_NO_MEMORY = TaskProfilerError(
    "The memory does not suffice: select fewer runs, or raise the limit (ulimit -v)."
)


class _LazyGroup(WholeSentenceGroup):
    groups: ClassVar[Mapping[str, Sequence[str]]] = {
        "setup": ("batch-instances", "image", "proof", "redrive", "stack"),
        "taskdef": ("add-monitor", "container", "remove-monitor", "resize"),
        "kibana": ("import",),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002  click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f"profiler.cli.{COMMANDS[cmd_name][1]}"), cmd_name
        )
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands below their headings, without their modules, which take longer than
        everything else.
        """
        for heading, rows in groupby(COMMANDS.items(), key=lambda row: row[1][0]):
            if heading:
                with formatter.section(heading):
                    formatter.write_dl([(name, sentence) for name, (_, _, sentence) in rows])


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
    """Parse the arguments and run the command.

    An error becomes one sentence on stderr and the exit code.
    """
    replace_standard_streams()
    if "_TASK_PROFILER_COMPLETE" in os.environ:
        # Only for completion in a shell.
        from profiler.cli.completion_command import complete_file_names

        complete_file_names()
    try:
        with signals_end_command():
            code = group.main(prog_name="task-profiler", standalone_mode=False)
        sys.exit(code)
    except click.exceptions.Abort as aborted:
        # A question of click hides the cause, not the context.
        exit_code = exit_code_of_exception(aborted.__context__)
        # The question itself says nothing about the end of its input.
        if exit_code == 1 or _wants_json():
            click.echo(
                _error_text("The command was ended before it was done.", exit_code), err=True
            )
        sys.exit(exit_code)
    except click.ClickException as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            click.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        # Of a list of choices, each is on a line.
        message = error.format_message().replace("\n\t", " ").replace("\n", " ")
        if isinstance(error, click.UsageError):
            from profiler.cli.wrong_options import usage_sentence  # only after an error

            message = usage_sentence(error, message, sys.argv[1:])
        exit_code = error.exit_code
    except (TaskProfilerError, MemoryError) as error:
        if "--debug" in sys.argv[1:]:
            raise
        known_error = error if isinstance(error, TaskProfilerError) else _NO_MEMORY
        message = str(known_error)
        exit_code = known_error.exit_code
    click.echo(_error_text(message, exit_code), err=True)
    sys.exit(exit_code)


def _wants_json() -> bool:
    from profiler.cli.json_error import wants_json  # only after an error

    return wants_json(sys.argv[1:])


def _error_text(message: str, exit_code: int) -> str:
    from profiler.cli.json_error import error_line  # only after an error

    return error_line(message, exit_code) if _wants_json() else safe_message_text(message)


@click.command(
    "schema",
    context_settings={"ignore_unknown_options": True},
    epilog="Example: task-profiler schema recommend > recommend.schema.json",
)
@click.argument("command", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
def schema(command: tuple[str, ...]) -> None:
    """Print the JSON Schema of the record.

    COMMAND is a command whose --json is described instead, such as watch, watch --queue or taskdef
    resize, or error: the line that a command with --json prints on stderr if it fails.
    """
    # Not for the other commands.
    import json

    from profiler.record.record_model import json_schema

    described = json_schema()
    if command:
        from profiler.cli.json_lines import schema_of_command_lines  # imports most commands

        described = schema_of_command_lines(" ".join(command))
    say(json.dumps(described, indent=2))
