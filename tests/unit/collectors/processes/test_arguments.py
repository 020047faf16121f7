import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.processes.process_reader import redact
from profiler.readers.linux import proc


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["job.py", "--day", "2026-11-20", "-v"], "job.py --day 2026-11-20 -v"),
        (["--password", "hunter2", "--user", "me"], "--password … --user me"),
        (["--db-password=hunter2", "API_KEY=abc", "token:xyz"], "--db-password=… API_KEY=… token:…"),
        (["--api-key", "--verbose"], "--api-key --verbose"),
        (["postgres://me:hunter2@db:5432/x"], "postgres://…@db:5432/x"),
        (["AKIAIOSFODNN7EXAMPLE1234"], "…"),
        (["--key-column", "id", "s3://bucket/input/part-00001.parquet"], "--key-column id s3://bucket/input/part-00001.parquet"),
        (["--query", "select 1", ""], "--query select 1 "),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_not_shown(words: list[str], shown: str) -> None:
    assert redact(words) == shown


@given(
    st.lists(st.text()),
    st.text(min_size=8, alphabet="abcdefgh12345"),
    st.sampled_from(["password", "TOKEN", "client-secret"]),
)
def test_the_value_of_a_secret_option_is_never_shown(others: list[str], value: str, name: str) -> None:
    words = [*others, f"--{name}", value]
    assert value not in redact(words) or value in redact(others)
    assert value not in redact([f"{name}={value}"])


def _mask_by_definition(word: str) -> str:
    """Masks opaque tokens as the definition reads, in quadratic time."""
    return re.sub(r"(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+_=-]{24,}", "…", re.sub(r"(\w+://)[^/@\s]+@", r"\1…@", word))


@given(st.text(alphabet="ab1 /@:+é\u0661") | st.text(alphabet="aB1/+ ", min_size=20, max_size=200))
def test_the_fast_form_masks_what_the_definition_masks(word: str) -> None:
    assert redact([word]) == _mask_by_definition(word)


@given(
    st.sampled_from(["a", "1", "a/", "://", "a://", "a://b", "_=", "a ", "a@", "--a-", "key=", "a" * 23 + "/"]),
    st.sampled_from(["", "1", "@", " 1a", "=", "://x@y"]),
)
def test_a_long_word_takes_linear_time(unit: str, end: str) -> None:
    """With quadratic time this test would run for minutes."""
    word = unit * (300_000 // len(unit)) + end
    assert len(redact([word])) <= len(word)


def test_at_most_4_kib_of_a_command_line_are_kept(tmp_path: Path) -> None:
    secret = "0123456789abcdef" * 1000
    (tmp_path / "cmdline").write_bytes(b"python\0job.py\0" + b"--day\0" + secret.encode() + b"\0--last\0")
    assert proc.read_arguments(str(tmp_path)) == ("job.py", "--day", "…")
    (tmp_path / "cmdline").write_bytes(b"python\0" + b"x\0" * 10_000)
    assert sum(len(word) + 1 for word in proc.read_arguments(str(tmp_path))) <= 4096
    assert proc.read_arguments(str(tmp_path / "missing")) == ()


@given(st.binary(max_size=300), st.integers(1, 60))
def test_a_cut_argument_shows_no_part_of_itself(end: bytes, position: int) -> None:
    """Part of a secret can be too short to look like one."""
    arguments = proc.parse_arguments(b"job\0" + b"x" * (4096 - 5 - position) + b"\0" + b"s" * (position + 1) + end)
    assert "s" not in "".join(arguments)
