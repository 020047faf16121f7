"""``task-profiler completion``: the script that lets a shell complete command lines, and what it
completes.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
)

from profiler.core.errors import UsageError
from profiler.core.text import listed

PROGRAM = "task-profiler"
# With this variable, the program answers the shell instead of running a command. It is click's own.
VARIABLE = "_TASK_PROFILER_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")
# Shells do not divide such a word, and no character in it needs quotes.
_WORD = re.compile(r"[A-Za-z0-9_.+-]+")


class _KeepsFiles(ShellComplete):
    """Leaves names of files, which this program cannot complete, to the shell."""

    def get_completions(self, args: list[str], incomplete: str) -> "list[CompletionItem[Any]]":
        return super().get_completions(args, incomplete) or [
            CompletionItem(incomplete, type="file")
        ]


def complete_file_names() -> None:
    """Let the shells complete the names of files."""
    for shell in _SHELLS:
        base = get_completion_class(shell)
        if base is not None and not issubclass(base, _KeepsFiles):
            add_completion_class(type(base.__name__, (_KeepsFiles, base), {}), shell)


def families_and_run_ids(
    sources: Sequence[str] | None, incomplete: str, *, families: bool, ids: bool
) -> list[str]:
    """The families and the ids of runs in the local history, unless the options select another
    source.
    """
    # Only for completion in a shell.
    from profiler.core.clock import SystemClock
    from profiler.core.ecs_terms import SHORT_ID_LENGTH
    from profiler.core.errors import TaskProfilerError
    from profiler.runs.history.history_file import history_path
    from profiler.runs.history.run_database import HistoryStore

    kind, _, file = (sources or ("history",))[0].partition(":")
    if kind != "history" or len(sources or ()) > 1:
        return []
    try:
        store = HistoryStore(history_path(os.environ, file), SystemClock())
        known_families, known_ids = store.family_names_and_run_ids(incomplete, 50)
    except TaskProfilerError:
        return []
    names: list[str] = []
    if families:
        names += known_families
    if ids:
        shown = SHORT_ID_LENGTH if len(incomplete) < SHORT_ID_LENGTH else None
        names += [run_id[:shown] for run_id in known_ids]
    return [name for name in dict.fromkeys(names) if _WORD.fullmatch(name)]


class _Shell(click.Choice[str]):
    """A shell whose completion click can write."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        if value not in self.choices:
            raise UsageError(
                f"There is no completion for {value!r}: name {listed(self.choices, 'or')}, as in "
                f"{PROGRAM} completion {self.choices[0]}."
            )
        return super().convert(value, param, ctx)


@click.command(
    "completion", epilog="Example: task-profiler completion bash > ~/.task-profiler.bash"
)
@click.argument("shell", type=_Shell(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, families, runs and files in this shell.

    Let the shell read it when it starts, as with eval "$(task-profiler completion bash)" in
    ~/.bashrc.
    """
    chosen = get_completion_class(shell)
    if chosen is not None:
        click.echo(chosen(context.find_root().command, {}, PROGRAM, VARIABLE).source(), nl=False)
