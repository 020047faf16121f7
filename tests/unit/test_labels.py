from pathlib import Path

import pytest

from profiler.errors import UsageError
from profiler.local.labels import build_default_labels, merge_labels, parse_labels
from profiler.sources.working_folder import git_commit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_labels_are_name_and_value() -> None:
    assert parse_labels(["team=data", "a.b-c_1=x=y", "empty="]) == {"team": "data", "a.b-c_1": "x=y", "empty": ""}


@pytest.mark.parametrize("word", ["team", "=x", "1a=x", "a b=x", "é=x", "a" * 65 + "=x", "a=" + "x" * 257])
def test_a_bad_label_is_refused_in_a_sentence(word: str) -> None:
    with pytest.raises(UsageError, match="--label"):
        parse_labels([word])


def test_too_many_labels_are_refused() -> None:
    with pytest.raises(UsageError, match="more than 32"):
        parse_labels([f"l{index}=x" for index in range(33)])


def test_given_labels_win_over_found_ones() -> None:
    found = build_default_labels(host="box", user=None, git_commit=COMMIT)
    assert found == {"host": "box", "gitCommit": COMMIT}
    assert merge_labels(found, {"host": "other"}) == {"host": "other", "gitCommit": COMMIT}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_commit_of_a_branch(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(tmp_path / ".git" / "refs" / "heads" / "main", COMMIT + "\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert git_commit(below) == COMMIT


def test_the_commit_of_a_packed_branch_and_of_a_detached_head(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(
        tmp_path / ".git" / "packed-refs",
        f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{COMMIT} refs/heads/main\n",
    )
    assert git_commit(tmp_path) == COMMIT
    write(tmp_path / ".git" / "HEAD", "f" * 40 + "\n")
    assert git_commit(tmp_path) == "f" * 40


def test_the_commit_of_a_worktree(tmp_path: Path) -> None:
    main = tmp_path / "main" / ".git"
    write(main / "refs" / "heads" / "topic", COMMIT)
    write(main / "worktrees" / "topic" / "HEAD", "ref: refs/heads/topic\n")
    write(main / "worktrees" / "topic" / "commondir", "../..\n")
    write(tmp_path / "topic" / ".git", f"gitdir: {main / 'worktrees' / 'topic'}\n")
    assert git_commit(tmp_path / "topic") == COMMIT


@pytest.mark.parametrize(
    "head", ["", "ref: ../../../etc/passwd", "ref: /etc/passwd", "ref: refs/heads/none", "nonsense"]
)
def test_a_broken_repository_has_no_commit(tmp_path: Path, head: str) -> None:
    write(tmp_path / ".git" / "HEAD", head)
    assert git_commit(tmp_path) is None


def test_unreadable_files_are_no_commit(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert git_commit(tmp_path) is None
