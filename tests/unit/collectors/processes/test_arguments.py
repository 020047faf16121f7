import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.processes.redaction import redact


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
