"""What the tests of notices share: a channel, the table of what was done, and the line of a
report.
"""

from collections.abc import Callable
from typing import Any

from msgspec import field

from profiler.core.notice_channels import ChannelKind
from profiler.forwarder.invocation import ForwarderError, InProgressError
from profiler.forwarder.line_kinds import decode_report_line
from profiler.forwarder.notifications.notification import NoticeChannel, Notification
from profiler.forwarder.report_finder import ReportLine
from profiler.record.record_model import Report


class FakeChannel(NoticeChannel):
    """Keeps what it posted, or raises its error."""

    error: ForwarderError | None = None
    posted: list[Any] = field(default_factory=list)


def fake_channel(
    name: str = "slack",
    *kinds: ChannelKind,
    check: Callable[[Notification], object] = lambda _notification: None,
) -> FakeChannel:
    """A channel for these kinds, or for both. ``check`` may raise the error of a notification."""

    def post(notification: Notification, kind: ChannelKind) -> None:
        assert channel.accepts(kind)
        if channel.error is not None:
            raise channel.error
        check(notification)
        channel.posted.append(notification)

    channel = FakeChannel(name, post, lambda kind: not kinds or kind in kinds)
    return channel


class KeyTable:
    """Does work once for a key, and keeps the result; an error of the work leaves the key. A key
    whose work goes on in another invocation is busy.
    """

    def __init__(self) -> None:
        self.done: dict[str, Any] = {}
        self.busy: set[str] = set()
        self.asked = 0

    def once(self, key: str, work: Callable[[], Any]) -> Any:
        self.asked += 1
        if key in self.busy:
            raise InProgressError("Another invocation is posting it.")
        if key not in self.done:
            self.busy.add(key)
            try:
                self.done[key] = work()
            finally:
                self.busy.discard(key)
        return self.done[key]


def report_line(text: str) -> ReportLine:
    line = decode_report_line(text)
    assert isinstance(line, Report)
    return ReportLine(line, text)
