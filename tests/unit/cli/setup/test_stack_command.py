"""``setup stack`` asks on a terminal, and no answer is no: a change set that is left over would be in the way."""

import io
import sys

import pytest

from profiler.cli.setup import stack_command
from profiler.cli.setup.stack_command import _ask, stack_


class Interrupted:
    """Ctrl-C."""

    def readline(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("typed", "answer"),
    [(io.StringIO("y\n"), True), (io.StringIO("\n"), False), (io.StringIO(""), False), (Interrupted(), False)],
)
def test_only_yes_is_yes(monkeypatch: pytest.MonkeyPatch, typed: object, answer: object) -> None:
    monkeypatch.setattr(sys, "stdin", typed)
    assert _ask("Apply?") is answer


def test_without_standard_input_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's standard input is None if the caller has closed it."""
    answers = []
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(stack_command, "is_terminal", lambda: True)
    monkeypatch.setattr("profiler.cli.setup.stack_output.remove", lambda *given, **_: answers.append(given[2]("?")))
    stack_.main(["--delete"], standalone_mode=False)
    assert answers == [True]
