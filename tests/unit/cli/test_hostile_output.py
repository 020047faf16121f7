"""Texts of others in the output of commands: on a terminal, in the log of a CI job, in files."""

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.cli.printing import json_without_controls, safe_message_text
from profiler.cli.standard_streams import without_ci_commands
from profiler.cli.styled_text import build_line, render_lines
from profiler.cli.tables import Column, aligned_table
from tests.command_line import run_here
from tests.runs import lines, report

COMMANDS = [
    *("::error title=x::y", "  ::add-mask::x", "##[error]x", "a ##[group]b"),
    *("##vso[task.setvariable variable=x]y", "a ##vso[build.addbuildtag]x"),
    "##teamcity[buildStatus text='x']",
]


def is_command(row: str) -> bool:
    """As the runner of GitHub Actions, Azure Pipelines or TeamCity reads a line of the log."""
    return row.lstrip().startswith("::") or any(
        sign in row for sign in ("##[", "##vso[", "##teamcity[")
    )


@pytest.mark.parametrize("text", COMMANDS)
def test_a_line_is_no_workflow_command(text: str) -> None:
    assert not is_command(without_ci_commands(text))
    rendered = render_lines([build_line(text)], is_coloured=False, encoding="utf-8").decode()
    assert not is_command(rendered)
    for row in aligned_table([Column("Family")], [[text]]):
        assert not is_command(render_lines([row], is_coloured=False, encoding="utf-8").decode())
    assert not any(map(is_command, safe_message_text(text).splitlines()))


@pytest.mark.parametrize("text", ["a::b", "std::vector", "# [x]", "", ": :", "## x", "##vso"])
def test_ordinary_lines_stay(text: str) -> None:
    assert without_ci_commands(text) == text


@pytest.mark.diagonal
@pytest.mark.parametrize("family", ["::error title=x::y", "##[error]x", "##vso[task.complete]x"])
@pytest.mark.parametrize(
    "words",
    [
        ("history",),
        ("history", "--json"),
        ("recommend",),
        ("recommend", "{}"),
        ("recommend", "--json"),
        ("recommend", "--check"),
        ("show",),
        ("show", "--json"),
        ("compare", "{}@1", "{}@2"),
        ("compare", "{}@1", "{}@2", "--format", "github"),
        ("report", "-o", "page.html"),
        ("taskdef", "resize", "--cluster", "{}"),
    ],
    ids=" ".join,
)
def test_no_command_prints_a_familys_name_as_a_workflow_command(
    words: tuple[str, ...], family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = [report(number, family=family, revision=str(1 + number % 2)) for number in range(12)]
    Path("runs").write_bytes(lines(made))
    done = run_here({}, *(word.replace("{}", family) for word in words), "--from", "runs")
    rows = (done.stdout + done.stderr).splitlines()
    assert rows
    assert [row for row in rows if is_command(row)] == []


@given(st.dictionaries(st.text(), st.text() | st.integers()))
def test_json_has_the_same_content_and_only_printable_characters(document: dict[str, Any]) -> None:
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:  # a lone surrogate
        return
    readable = json_without_controls(encoded)
    assert msgspec.json.decode(readable) == document
    assert readable.decode().isprintable()
    assert not any(sign in readable for sign in (b"##[", b"##vso[", b"##teamcity["))


@pytest.mark.parametrize("text", COMMANDS)
def test_json_has_no_sign_of_a_command(text: str) -> None:
    readable = json_without_controls(msgspec.json.encode({"family": text}))
    assert msgspec.json.decode(readable) == {"family": text}
    assert not is_command(readable.decode())


def test_json_on_a_terminal_has_no_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").write_bytes(lines([report(family="a\u009b2J\u202eb\u00e9")]))
    for words in (("recommend", "--json"), ("history", "--json"), ("show", "--json")):
        done = run_here({}, *words, "--from", "runs")
        assert done.stdout.strip().isprintable()
        assert "\\u009b" in done.stdout
        assert "\\u202e" in done.stdout
        assert "\u00e9" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("history", "--from", "joe:PASSWORD@h:9200"),
        ("recommend", "--from", "joe:PASSWORD@h:9200/jobs"),
        ("history", "--from", "https://joe:PASSWORD@h:9200"),
        ("history", "--from", "ftp://joe:PASSWORD@h"),
        ("kibana", "import", "--url", "joe:PASSWORD@h"),
        ("kibana", "import", "--url", "http://joe:PASSWORD@h"),
        ("kibana", "import", "--url", "http://h", "--elasticsearch", "joe:PASSWORD@h:9200"),
    ],
    ids=" ".join,
)
def test_an_address_with_credentials_is_refused_without_them(words: tuple[str, ...]) -> None:
    done = run_here({}, *words)
    assert done.returncode == 2
    assert "PASSWORD" not in (done.stdout + done.stderr).replace("ELASTICSEARCH_PASSWORD", "")
    assert "credentials" in done.stderr


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o664, 0o664), (None, 0o600)])
def test_a_page_has_the_permissions_of_the_file_or_the_umask(
    before: int | None, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").write_bytes(lines([report()]))
    page = Path("page.html")
    if before is not None:
        page.touch()
        page.chmod(before)
    previous = os.umask(0o077)
    try:
        assert run_here({}, "report", "--from", "runs", "-o", "page.html").returncode == 0
    finally:
        os.umask(previous)
    assert stat.S_IMODE(page.stat().st_mode) == after
