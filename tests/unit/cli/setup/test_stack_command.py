"""``setup stack`` asks on a terminal, and no answer is no: a change set that is left over would be in the way."""

import io
import sys

import pytest

from profiler.cli.setup.stack_command import _ask


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
