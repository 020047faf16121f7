"""``setup stack`` asks on a terminal, and no answer is no: a change set that is left over would be in the way."""

import io
import sys
from pathlib import Path

import click
import pytest

from profiler.account_setup.stack_deployment import StackRequest
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


def test_a_secret_may_come_from_a_file_or_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[StackRequest] = []
    monkeypatch.setattr("profiler.cli.setup.stack_output.deploy", lambda *given, **_: requests.append(given[0]))
    (tmp_path / "webhook").write_text("https://hooks.slack.com/a\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("key\n"))
    words = ["--slack-failure-webhook", f"@{tmp_path}/webhook", "--api-key", "@-", "--otlp-headers", "a=b"]
    stack_.main(words, standalone_mode=False)
    assert [request.secrets for request in requests] == [
        {
            "SlackSecretId": {"slack_failure_webhook_url": "https://hooks.slack.com/a"},
            "ElasticsearchSecretId": {"api_key": "key"},
            "OtlpSecretId": {"otlp_headers": "a=b"},
        }
    ]


def test_a_secret_that_cannot_be_read_is_not_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "hunter2").write_bytes(b"\xff")
    for value, said in (("@hunter2:b", "No such file or directory"), (f"@{tmp_path}/hunter2", "it is not text")):
        with pytest.raises(click.BadParameter, match=rf"cannot be read \({said}\): check its path") as error:
            stack_.main(["--user", value], standalone_mode=False)
        assert "hunter2" not in error.value.format_message()
