"""What outputs tell of a run beside its numbers, as rows that are made once.

The terminal, Slack, the events and the report page print the rows that there are, and choose and
word nothing themselves.
"""

from msgspec import Struct

from profiler.core.text import as_sentence
from profiler.record.held_huge_pages import huge_pages_text
from profiler.record.mapped_files import files_text
from profiler.record.record_model import Metrics


class StoryRow(Struct, frozen=True):
    """A row: its label, and its text without a full stop, which is never empty."""

    name: str
    text: str

    @property
    def sentence(self) -> str:
        return as_sentence(self.text)


def memory_rows(metrics: Metrics) -> list[StoryRow]:
    """What the memory used lacks: kept pages of files, and huge pages."""
    rows = (
        StoryRow("files", files_text(metrics)),
        StoryRow("huge", huge_pages_text(metrics)),
    )
    return [row for row in rows if row.text]
