"""Runs as rows of values, with a table of the texts that repeat, so that thousands of runs fit into a page."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from profiler.html_report.page import to_script_json
from profiler.html_report.run_fields import DETAILS, SHARED_TEXTS

_COMMA_BYTES = 1
# The time series get the other half of the bytes that the rows leave.
_DETAILS_SHARE = 0.5


class PackedRuns(Struct, frozen=True, kw_only=True):
    """Runs as rows of values in the order of ``fields``. A shared text is given by its index in ``texts``."""

    fields: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    texts: Sequence[str]
    without_details: int


def pack_runs(runs: Sequence[Mapping[str, Any]], max_bytes: int) -> PackedRuns:
    """Pack the newest runs that fit into ``max_bytes``; always at least one.

    Args:
        runs: The fields of each run, newest first.
        max_bytes: Limit on the length of rows and texts as JSON.
    """
    fields = tuple(dict.fromkeys(name for run in runs for name in run))
    texts = _TextTable()
    rows: list[list[object]] = []
    left_bytes = max_bytes - len(to_script_json(fields))
    for run in runs:
        values, length = texts.encode_values(run, [None if field in DETAILS else field for field in fields])
        if length + _COMMA_BYTES > left_bytes and rows:
            texts.undo()
            break
        rows.append(values)
        left_bytes -= length + _COMMA_BYTES
    without_details = _add_details(rows, runs, fields, texts, round(left_bytes * _DETAILS_SHARE))
    return PackedRuns(fields=fields, rows=rows, texts=texts.texts, without_details=without_details)


def _add_details(
    rows: Sequence[list[object]],
    runs: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
    texts: "_TextTable",
    left_bytes: int,
) -> int:
    """Add the details of the runs for which they fit. Returns the number of the other runs."""
    columns_of_details = [column for column, field in enumerate(fields) if field in DETAILS]
    without_details = 0
    for row, run in zip(rows, runs, strict=False):
        values, length = texts.encode_values(run, [fields[column] for column in columns_of_details])
        more_bytes = length - len(to_script_json([None] * len(columns_of_details)))
        if more_bytes > left_bytes:
            texts.undo()
            without_details += 1
            continue
        left_bytes -= more_bytes
        for column, value in zip(columns_of_details, values, strict=True):
            row[column] = value
    return without_details


class _TextTable:
    """The shared texts and their indices."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._indices: dict[str, int] = {}
        self._count_before = 0

    def encode_values(self, run: Mapping[str, Any], fields: Iterable[str | None]) -> tuple[list[object], int]:
        """Return the run's values of these fields, and their length as JSON with that of texts new to the table."""
        self._count_before = len(self.texts)
        values = [None if field is None else self._encode_value(field, run.get(field)) for field in fields]
        new_bytes = sum(len(to_script_json(text)) + _COMMA_BYTES for text in self.texts[self._count_before :])
        return values, len(to_script_json(values)) + new_bytes

    def undo(self) -> None:
        """Remove the texts that the last call of ``encode_values`` added."""
        for text in self.texts[self._count_before :]:
            del self._indices[text]
        del self.texts[self._count_before :]

    def _encode_value(self, field: str, value: object) -> object:
        if field not in SHARED_TEXTS or value is None:
            return value
        return [self._index(text) for text in value] if isinstance(value, list) else self._index(str(value))

    def _index(self, text: str) -> int:
        if text not in self._indices:
            self._indices[text] = len(self.texts)
            self.texts.append(text)
        return self._indices[text]
