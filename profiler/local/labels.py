"""Labels of a run: short texts by name, some found out, some given."""

import re
from collections.abc import Iterable, Mapping

from profiler.errors import UsageError

MAX_LABELS = 32
MAX_LABEL_CHARS = 256
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)


def parse_labels(words: Iterable[str]) -> dict[str, str]:
    """The labels in ``k=v`` words. Raises UsageError for the first that is none."""
    labels: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(
                f"--label {word!r} is no label: write name=value, the name of at most 64 letters, digits, '_', '.' "
                "and '-', beginning with a letter."
            )
        if len(value) > MAX_LABEL_CHARS:
            raise UsageError(f"--label {name} is longer than {MAX_LABEL_CHARS} characters: shorten its value.")
        labels[name] = value
    if len(labels) > MAX_LABELS:
        raise UsageError(f"There are more than {MAX_LABELS} labels: leave some out.")
    return labels


def build_default_labels(*, host: str | None, user: str | None, git_commit: str | None) -> dict[str, str]:
    """What is found out by itself; absent facts make no label."""
    facts = {"host": host, "user": user, "gitCommit": git_commit}
    return {name: value[:MAX_LABEL_CHARS] for name, value in facts.items() if value}


def merge_labels(found: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """All labels; a given one wins over a found one of the same name."""
    return {**found, **given}
