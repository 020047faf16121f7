"""The comparison in GitHub Actions: error annotations, and a table in the summary of the job.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from profiler.cli.compare.change_limit import ChangeLimit
from profiler.cli.compare.change_texts import (
    METRIC_TITLES,
    SET_TITLES,
    interval_text,
    metric_rows,
    percent_text,
    set_rows,
)
from profiler.cli.styled_text import Line
from profiler.comparison.compared_metrics import MetricChange
from profiler.comparison.run_sets import RunSet
from profiler.core.errors import TaskProfilerError
from profiler.core.text import on_one_line, printable
from profiler.record.units import format_value

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_TITLE = "task-profiler compare"
_COMMAND_START = "##["
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#!|~&])")


def without_commands(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines without workflow commands of the older form, which may be anywhere in a line."""
    return (tuple(replace(span, text=span.text.replace(_COMMAND_START, "##(")) for span in one) for one in lines)


def annotations(sets: Sequence[RunSet], limit: ChangeLimit) -> Iterator[str]:
    """A workflow command for each metric above the limit."""
    for one in limit.exceeded:
        change = one.change
        before, after = (format_value(value or 0, one.metric.unit) for value in (change.a, change.b))
        message = (
            f"{one.metric.title} {percent_text(change.change_percent)} ({interval_text(change)}), above the limit of "
            f"{limit.percent:g} %: {after} in {sets[1].text}, {before} in {sets[0].text}."
        )
        yield f"::error title={_property(f'{_TITLE}: {one.metric.name}')}::{_data(message)}\n"


def append_summary(
    sets: Sequence[RunSet], changes: Sequence[MetricChange], sentences: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Append the tables and the sentences to the summary. Raises TaskProfilerError if that cannot be done."""
    path = environment.get(SUMMARY_VARIABLE)
    if not path:
        raise TaskProfilerError(f"{SUMMARY_VARIABLE} is not set, so no summary was written: GitHub Actions sets it.")
    parts = (
        "",
        f"### {_markdown(f'{sets[1].text} compared with {sets[0].text}')}",
        "",
        *_table(METRIC_TITLES, metric_rows(changes)),
        "",
        *_table(SET_TITLES, set_rows(sets)),
        *(line for sentence in sentences for line in ("", _markdown(sentence))),
    )
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write("\n".join(parts) + "\n")
    except OSError as error:
        raise TaskProfilerError(
            f"The summary {path} cannot be written ({error.strerror}): check {SUMMARY_VARIABLE}."
        ) from error


def _table(titles: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield _row(titles)
    yield _row(["---"] * len(titles), escape=str)
    for row in rows:
        yield _row(row)


def _row(cells: Sequence[str], escape: Callable[[str], str] | None = None) -> str:
    return f"| {' | '.join(map(escape or _markdown, cells))} |"


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", on_one_line(text))


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
