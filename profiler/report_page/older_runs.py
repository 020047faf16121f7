"""The runs of the report page after those that may have details: a row each, as JSON, so that
memory depends on what the page shows.
"""

import zlib
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.core.timestamps import MS_PER_DAY
from profiler.record.family_identity import FamilyKey, family_key
from profiler.report_page.page_rows import PageRun
from profiler.report_page.page_run import family_text, page_run
from profiler.report_page.page_series import COMPRESSION_LEVEL, GZIP_BITS, Run, to_json

# The page has room for the details and the time series of fewer.
MAX_WHOLE_RUNS = 25_000
_BASE64_GROWTH = 4 / 3


class OlderRuns(Struct):
    """Keeps the rows until they alone fill a page of ``max_bytes``; the others are only counted.

    ``keys`` are the families of the rows, ``newest`` those within a day of the newest run, for the
    sentence of the last night, and ``left_out`` the places of those that do not count.
    """

    max_bytes: int
    count: int = 0
    are_local: bool = True
    keys: list[FamilyKey] = []
    newest: list[PageRun] = []
    left_out: list[int] = []
    _texts: list[str] = []
    _unconfirmed: set[int] = set()
    _same: dict[FamilyKey, FamilyKey] = {}
    _bytes: float = 0
    _compress: "zlib._Compress" = field(
        default_factory=lambda: zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, GZIP_BITS)
    )

    def add_run(self, run: Run, newest_ms: int) -> None:
        """Add the next run, which is priced. ``newest_ms`` is the start of the newest one."""
        self.count += 1
        self.are_local &= run.record.launch_type == "LOCAL"
        if self._bytes > self.max_bytes:
            return
        row = page_run(run, "")
        key = family_key(run.record)
        self.keys.append(self._same.setdefault(key, key))
        if len(self.newest) == len(self._texts) and (row.began or 0) > newest_ms - MS_PER_DAY:
            if not run.past.counts:
                self.left_out.append(len(self.newest))
            self.newest.append(row)
        fields = row.as_json()
        fields.pop("family", None)
        fields.pop("name", None)
        text = to_json(fields)
        if not run.past.counts:
            self._unconfirmed.add(len(self._texts))
        self._texts.append(text)
        self._bytes += _BASE64_GROWTH * len(self._compress.compress(text.encode("ascii")))

    def rows_of_night(self, labels: Mapping[FamilyKey, str]) -> Iterator[PageRun]:
        """The rows for the sentence of the last night, with the labels of their families."""
        for key, row in zip(self.keys, self.newest, strict=False):
            label = labels[key]
            yield replace(row, family=label, name=_family_unless_label(key, label))

    def json_rows(self, labels: Mapping[FamilyKey, str]) -> Iterator[str]:
        """The rows as JSON."""
        for row, (key, text) in enumerate(zip(self.keys, self._texts, strict=True)):
            label = family_text(labels[key], counts=row not in self._unconfirmed)
            named = {"family": label}
            name = _family_unless_label(key, label)
            if name is not None:
                named["name"] = name
            yield f"{text.removesuffix('}')},{to_json(named).removeprefix('{')}"


def _family_unless_label(key: FamilyKey, label: str) -> str | None:
    """The family itself, if its label on the page is another text."""
    return None if label == key.name else key.name
