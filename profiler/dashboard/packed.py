"""The runs as rows of values, no longer than a page can bear. Pure.

Every text that several runs have in common stands in the page once. What does not fit goes in
this order: first what is shown of a single run only, then whole runs, the oldest first.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from profiler.dashboard.embedded import to_script_json

SHARED_TEXTS = frozenset({"family", "container", "outcome", "peakBy", "cluster", "launch", "labels", "warnings"})
# What is shown of a run that is opened, and may be long.
DETAILS = frozenset({"gpus", "labels", "warnings"})
# The other half of what the rows leave is for the runs' courses.
_SHARE_OF_DETAILS = 0.5
_COMMA = 1
_NULL = len("null")


class PackedRuns(Struct, frozen=True, kw_only=True):
    """As many runs as fit, each with its values in the order of ``fields``; a shared text is its place in ``texts``."""

    fields: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    texts: Sequence[str]
    without_details: int


def pack_runs(runs: Sequence[Mapping[str, Any]], max_bytes: int) -> PackedRuns:
    """The runs, newest first, in at most so many bytes; the newest is there in any case."""
    fields = tuple(dict.fromkeys(name for run in runs for name in run))
    texts = _TextTable()
    rows: list[list[object]] = []
    left_bytes = max_bytes - len(to_script_json(fields))
    for run in runs:
        values, length = texts.encode_values(run, [None if field in DETAILS else field for field in fields])
        if length + _COMMA > left_bytes and rows:
            texts.undo()
            break
        rows.append(values)
        left_bytes -= length + _COMMA
    without = _add_details(rows, runs, fields, texts, round(left_bytes * _SHARE_OF_DETAILS))
    return PackedRuns(fields=fields, rows=rows, texts=texts.all, without_details=without)


def _add_details(
    rows: Sequence[list[object]],
    runs: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
    texts: "_TextTable",
    left_bytes: int,
) -> int:
    """Fill in the details where they fit; says for how many runs they did not."""
    places = [place for place, field in enumerate(fields) if field in DETAILS]
    without = 0
    for row, run in zip(rows, runs, strict=False):
        values, length = texts.encode_values(run, [fields[place] for place in places])
        more_bytes = length - len(to_script_json([None] * len(places)))
        if more_bytes > left_bytes:
            texts.undo()
            without += 1
            continue
        left_bytes -= more_bytes
        for place, value in zip(places, values, strict=True):
            row[place] = value
    return without


class _TextTable:
    """The texts so far, and where each stands."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}
        self._size_before = 0

    def encode_values(self, run: Mapping[str, Any], fields: Iterable[str | None]) -> tuple[list[object], int]:
        """A run's values of these fields, with places for texts, and how long they and the new texts are."""
        self._size_before = len(self.all)
        values = [None if field is None else self._value(field, run.get(field)) for field in fields]
        new_bytes = sum(len(to_script_json(text)) + _COMMA for text in self.all[self._size_before :])
        return values, len(to_script_json(values)) + new_bytes

    def undo(self) -> None:
        """Forget the texts that were new in the last run."""
        for text in self.all[self._size_before :]:
            del self._places[text]
        del self.all[self._size_before :]

    def _value(self, field: str, value: object) -> object:
        if field not in SHARED_TEXTS or value is None:
            return value
        return [self._place(text) for text in value] if isinstance(value, list) else self._place(str(value))

    def _place(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.all)
            self.all.append(text)
        return self._places[text]
