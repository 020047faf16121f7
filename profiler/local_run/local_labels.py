"""Labels of a local run, short texts by name: the user's, Airflow's, and the git commit.

The git commit is read from git's files, without a process.
"""

import os
import re
from collections.abc import Iterable, Mapping

from profiler.core.errors import UsageError
from profiler.core.text import without_surrogates

MAX_LABELS = 32
MAX_LABEL_CHARS = 256
# Compiled at its use, which takes 0.1 ms.
_NAME = r"[A-Za-z][A-Za-z0-9_.-]{0,63}"
_COMMIT_LENGTHS = (40, 64)
_HEX_DIGITS = frozenset("0123456789abcdef")
# The variables that the usual runners set for a command. Task tokens of Step Functions are secrets:
# never add them.
_AIRFLOW_LABELS: Mapping[str, str] = {
    "AIRFLOW_CTX_DAG_ID": "airflow.dag",
    "AIRFLOW_CTX_TASK_ID": "airflow.task",
    "AIRFLOW_CTX_DAG_RUN_ID": "airflow.run",
}


def parse_labels(words: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` words. Raises UsageError for the first one that is not a label."""
    labels: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(_NAME, name):
            raise UsageError(
                f"--label {word!r} is not a label: write name=value, with a name of at most 64 "
                "letters, digits, '_', '.' and '-' that begins with a letter."
            )
        if len(value) > MAX_LABEL_CHARS:
            raise UsageError(
                f"--label {name} is longer than {MAX_LABEL_CHARS} characters: shorten its value."
            )
        labels[name] = value
    if len(labels) > MAX_LABELS:
        raise UsageError(f"There are more than {MAX_LABELS} labels: leave some out.")
    return labels


def airflow_labels(environment: Mapping[str, str]) -> dict[str, str]:
    """The labels that Airflow's environment variables give.

    Bytes that are not UTF-8 become ``?``.
    """
    labels: dict[str, str] = {}
    for variable, label in _AIRFLOW_LABELS.items():
        value = environment.get(variable, "").strip()
        if value:
            labels[label] = without_surrogates(value)[:MAX_LABEL_CHARS]
    return labels


def checked_out_commit(folder: str) -> str | None:
    """The commit checked out in the nearest repository at or above ``folder``; None without a
    repository.
    """
    while True:
        git = os.path.join(folder, ".git")
        if os.path.exists(git):
            # In a worktree or submodule, .git is a file with the path of the folder.
            link = _text_of_file(git) if os.path.isfile(git) else ""
            if link:
                git = os.path.join(folder, link.removeprefix("gitdir: "))
            return _commit_of(git)
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _commit_of(git: str) -> str | None:
    """The commit that HEAD names in a folder of git, directly or by a branch."""
    head = _text_of_file(os.path.join(git, "HEAD"))
    if not head.startswith("ref: "):
        return _commit_or_none(head)
    reference = head.removeprefix("ref: ")
    for folder in (git, os.path.join(git, _text_of_file(os.path.join(git, "commondir")))):
        commit = _commit_or_none(_text_of_file(os.path.join(folder, reference)))
        if commit is None:  # a large repository has 40 MB of packed references
            packed_refs = _text_of_file(os.path.join(folder, "packed-refs"))
            commit = _commit_or_none(
                f"{packed_refs}\n".partition(f" {reference}\n")[0].rpartition("\n")[2]
            )
        if commit is not None:
            return commit
    return None


def _commit_or_none(text: str) -> str | None:
    """The text if it is a commit, in SHA-1 or SHA-256."""
    if len(text) not in _COMMIT_LENGTHS or not set(text) <= _HEX_DIGITS:
        return None
    return text


def _text_of_file(path: str) -> str:
    """The text of a file; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError, ValueError):
        return ""
