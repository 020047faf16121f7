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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "it is not text"),
        (b" \r\n", "it is empty"),
        (b"a" * 65_537, "it is too long"),
        (None, "No such file or directory"),
    ],
)
def test_a_secret_that_cannot_be_read_is_not_in_the_error(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "hunter2").write_bytes(content)
    with pytest.raises(click.BadParameter, match=rf"cannot be read \({said}\): check it") as error:
        stack_.main(["--user", f"@{tmp_path}/hunter2"], standalone_mode=False)
    assert "hunter2" not in error.value.format_message()


@pytest.mark.parametrize(("given", "said"), [(None, "standard input is closed"), (io.StringIO(""), "it is empty")])
def test_standard_input_without_a_secret_is_an_error(
    monkeypatch: pytest.MonkeyPatch, given: io.StringIO | None, said: str
) -> None:
    """As of the second of two options that read it."""
    monkeypatch.setattr(sys, "stdin", given)
    with pytest.raises(click.BadParameter, match=said):
        stack_.main(["--api-key", "@-"], standalone_mode=False)


def test_a_file_of_windows_is_read_without_its_byte_order_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[StackRequest] = []
    monkeypatch.setattr("profiler.cli.setup.stack_output.deploy", lambda *given, **_: requests.append(given[0]))
    (tmp_path / "user").write_bytes(b"\xef\xbb\xbfbob:a b\r\n")
    stack_.main(["--user", f"@{tmp_path}/user"], standalone_mode=False)
    assert requests[0].secrets == {"ElasticsearchSecretId": {"username": "bob", "password": "a b"}}
