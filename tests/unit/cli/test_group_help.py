"""The help of the whole program, which imports no command."""

import subprocess
import sys

import click
import pytest

from profiler.cli.app import COMMANDS, group


@pytest.mark.parametrize("words", [(), ("taskdef",), ("kibana",)])
def test_without_a_command_the_help_is_printed_as_it_is(words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", "profiler", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: task-profiler")


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_the_list_of_commands_is_what_click_would_make_of_their_own_help(columns: int) -> None:
    context = click.Context(group)
    shown, expected = click.HelpFormatter(width=columns), click.HelpFormatter(width=columns)
    group.format_commands(context, shown)
    click.Group.format_commands(group, context, expected)
    assert shown.getvalue() == expected.getvalue()
    assert all(name in shown.getvalue() for name in COMMANDS)
