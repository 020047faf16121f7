"""Which git commit a folder is at, read from git's own files: no git needed, no process started."""

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)  # SHA-1 or SHA-256
_MAX_FILE_BYTES = 16 * 1024 * 1024


def git_commit(folder: Path) -> str | None:
    """The commit checked out in the nearest repository at or above ``folder``, None if there is none."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.exists():
            return _commit_of(_git_folder(git))
    return None


def _git_folder(git: Path) -> Path:
    """``.git`` itself, or what it points to in a worktree or submodule."""
    link = _read(git) if git.is_file() else None
    return git.parent / link.removeprefix("gitdir: ") if link is not None else git


def _commit_of(git: Path) -> str | None:
    head = _read(git / "HEAD")
    if head is None or not head.startswith("ref: "):
        return _commit(head)
    reference = head.removeprefix("ref: ")
    if ".." in reference.split("/") or reference.startswith("/"):
        return None
    shared = _read(git / "commondir")
    for place in (git, git / shared if shared is not None else git):
        commit = _commit(_read(place / reference)) or _packed_ref(place, reference)
        if commit is not None:
            return commit
    return None


def _packed_ref(git: Path, reference: str) -> str | None:
    for line in (_read(git / "packed-refs") or "").splitlines():
        commit, _, name = line.partition(" ")
        if name == reference:
            return _commit(commit)
    return None


def _commit(text: str | None) -> str | None:
    return text if text is not None and _COMMIT.fullmatch(text) else None


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            return None
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError, ValueError):
        return None
