"""MkDocs hook: the pages are written for GitHub, and two of its rules differ from MkDocs'
Markdown parser.

- Links that leave docs/ become addresses in the repository.
- The content of a list item is indented by four spaces, and a list begins after an empty line.

``DOCS_REF`` is the branch or tag that the addresses point to. The default is ``main``.
"""

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )(\.\./[^)\s#]+)", re.MULTILINE)
_FENCE = re.compile(r"(`{3,}|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|\d+[.)]) +")
_INDENT = 4


class BrokenLinkError(Exception):
    """A link to a file that the repository does not have. MkDocs prints the message and fails."""


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: object) -> str:  # noqa: ANN401
    """Translate a page.

    MkDocs calls this before it parses the page, and is not installed where mypy runs.
    """
    repository = str(config["repo_url"])
    return indent_lists(
        link_to_repository(
            markdown, page.file.src_uri, repository, os.environ.get("DOCS_REF", "main")
        )
    )


def link_to_repository(markdown: str, page: str, repository: str, ref: str) -> str:
    """Replace links to files outside of docs/. ``page`` is relative to docs/.

    Raises:
        BrokenLinkError: The repository has no such file.
    """

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), match[2]))
        if path.startswith("docs/") or path == "docs":
            return match[0]
        target = ROOT / path
        if not target.exists():
            raise BrokenLinkError(f"docs/{page} has a link to {path}, which does not exist.")
        return f"{match[1]}{repository}/{'tree' if target.is_dir() else 'blob'}/{ref}/{path}"

    return _LINK.sub(replace, markdown)


def indent_lists(markdown: str) -> str:
    """Indent the content of list items by four spaces for each level, and put an empty line
    before each list.
    """
    return "\n".join(_indented(markdown.split("\n")))


def _indented(rows: list[str]) -> Iterator[str]:
    offsets: list[int] = []  # the column at which the content of each open list item begins
    fence = ""
    before = ""
    for row in rows:
        text = row.lstrip(" ")
        column = len(row) - len(text)
        if fence:
            yield _indented_line(row, offsets)
            fence = "" if text.startswith(fence) else fence
        elif not text:
            yield ""
        else:
            while offsets and column < offsets[-1]:
                offsets.pop()
            item = _ITEM.match(text)
            if (
                item
                and before
                and not _ITEM.match(before.lstrip(" "))
                and not _continues_list_item(before, column)
            ):
                yield ""
            yield _indented_line(row, offsets)
            if item:
                offsets.append(column + item.end())
            opening = _FENCE.match(text)
            fence = opening[1] if opening else ""
        before = row


def _continues_list_item(before: str, column: int) -> bool:
    """Whether the line above is indented further: it continues an item of the same list."""
    return len(before) - len(before.lstrip(" ")) > column


def _indented_line(row: str, offsets: list[int]) -> str:
    """The line, indented for the open list items."""
    offset = offsets[-1] if offsets else 0
    inner = row[min(offset, len(row) - len(row.lstrip(" "))) :]
    return f"{' ' * _INDENT * len(offsets)}{inner}" if inner else ""
