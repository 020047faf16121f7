"""What the tests of notices share: a channel, the table of what was done, and the line of a report."""

from collections.abc import Callable
from typing import Any, get_args

from profiler.forwarder.batch_report import ReportLine
from profiler.forwarder.invocation import ForwarderError
from profiler.forwarder.notices.announcements import Announcement, ChannelKind
from profiler.forwarder.task_lines import read_line
from profiler.record.record_model import Report


class FakeChannel:
    """Keeps what it posted, or raises its error."""

    def __init__(
        self, name: str = "slack", *kinds: ChannelKind, is_selective: bool = True, error: ForwarderError | None = None
    ) -> None:
        self.name, self.is_selective, self.error = name, is_selective, error
        self.kinds = kinds or get_args(ChannelKind)
        self.posted: list[Any] = []

    def accepts(self, kind: ChannelKind) -> bool:
        return kind in self.kinds

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:
        assert kind in self.kinds
        if self.error is not None:
            raise self.error
        self.posted.append(announcement)


class KeyTable:
    """Does work once for a key; an error of the work leaves the key."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.asked = 0

    def once(self, key: str, work: Callable[[], object]) -> None:
        self.asked += 1
        if key not in self.done:
            work()
            self.done.add(key)


def report_line(text: str) -> ReportLine:
    line = read_line(text)
    assert isinstance(line, Report)
    return ReportLine(line, text)
