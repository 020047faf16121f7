from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import UsageError
from profiler.local_run.labels import (
    MAX_LABEL_CHARS,
    git_commit,
    parse_labels,
    runner_labels,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_labels_are_name_and_value() -> None:
    assert parse_labels(["team=data", "a.b-c_1=x=y", "empty="]) == {"team": "data", "a.b-c_1": "x=y", "empty": ""}


@pytest.mark.parametrize("word", ["team", "=x", "1a=x", "a b=x", "é=x", "a" * 65 + "=x", "a=" + "x" * 257])
def test_a_bad_label_is_refused_in_a_sentence(word: str) -> None:
    with pytest.raises(UsageError, match="--label"):
        parse_labels([word])


RUNNERS = {
    "AWS_BATCH_JOB_ID": "4c8d2c6e:3",
    "AWS_BATCH_JOB_ATTEMPT": "2",
    "AWS_BATCH_JOB_ARRAY_INDEX": "3",
    "AIRFLOW_CTX_DAG_ID": "nightly",
    "AIRFLOW_CTX_TASK_ID": "extract",
    "AIRFLOW_CTX_DAG_RUN_ID": "scheduled__2026-11-20T00:00:00+00:00",
}


def test_only_what_is_present_is_a_label_and_never_a_task_token() -> None:
    environment = {"AWS_BATCH_JOB_ID": "x", "AIRFLOW_CTX_DAG_ID": " ", "TASK_TOKEN": "secret", "HOME": "/root"}
    assert runner_labels(environment) == {"batch.job": "x"}
    assert runner_labels({}) == {}


@given(st.dictionaries(st.sampled_from(sorted(RUNNERS)), st.text(st.characters(exclude_categories=()), max_size=400)))
def test_labels_of_any_environment_are_valid_text_within_their_limit(environment: dict[str, str]) -> None:
    for value in runner_labels(environment).values():
        assert 0 < len(value) <= MAX_LABEL_CHARS
        assert value.encode()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_commit_of_a_branch(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(tmp_path / ".git" / "refs" / "heads" / "main", COMMIT + "\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert git_commit(str(below)) == COMMIT


def test_the_commit_of_a_packed_branch_and_of_a_detached_head(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(
        tmp_path / ".git" / "packed-refs",
        f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{COMMIT} refs/heads/main\n",
    )
    assert git_commit(str(tmp_path)) == COMMIT
    write(tmp_path / ".git" / "HEAD", "f" * 40 + "\n")
    assert git_commit(str(tmp_path)) == "f" * 40


def test_the_commit_of_a_worktree(tmp_path: Path) -> None:
    main = tmp_path / "main" / ".git"
    write(main / "refs" / "heads" / "topic", COMMIT)
    write(main / "worktrees" / "topic" / "HEAD", "ref: refs/heads/topic\n")
    write(main / "worktrees" / "topic" / "commondir", "../..\n")
    write(tmp_path / "topic" / ".git", f"gitdir: {main / 'worktrees' / 'topic'}\n")
    assert git_commit(str(tmp_path / "topic")) == COMMIT


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "nonsense"])
def test_a_broken_repository_has_no_commit(tmp_path: Path, head: str) -> None:
    write(tmp_path / ".git" / "HEAD", head)
    assert git_commit(str(tmp_path)) is None


def test_the_runners_are_labels_under_plain_names() -> None:
    assert runner_labels(RUNNERS) == {
        "batch.job": "4c8d2c6e:3",
        "batch.attempt": "2",
        "batch.array_index": "3",
        "airflow.dag": "nightly",
        "airflow.task": "extract",
        "airflow.run": "scheduled__2026-11-20T00:00:00+00:00",
    }
