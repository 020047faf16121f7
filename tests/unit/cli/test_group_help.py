"""The help of the whole program, which imports no command."""

import click
import pytest

from profiler.cli.app import COMMANDS, group


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_the_list_of_commands_is_what_click_would_make_of_their_own_help(columns: int) -> None:
    context = click.Context(group)
    shown, expected = click.HelpFormatter(width=columns), click.HelpFormatter(width=columns)
    group.format_commands(context, shown)
    click.Group.format_commands(group, context, expected)
    assert shown.getvalue() == expected.getvalue()
    assert all(name in shown.getvalue() for name in COMMANDS)
