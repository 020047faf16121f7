"""The notices of running tasks among the lines of an invocation, and which of them are sent.

The notices among the lines of an invocation are sent after their documents are written. Any program can print the
line of a notice into its own log. Therefore at most eight notices of a log stream, and so of a run, are sent; all of
them are indexed. With a table of the sent ones, this is the number of all invocations. A notice that is older than a
day, or is sent again by ``task-profiler replay``, is indexed and not sent: its run is over, and the table may no longer
contain it.

A record of a stream whose notice a channel did not accept is repeated until the notice is 15 minutes old: it holds up
the records after it in its shard, and a wrong setting of a channel must not cost the reports in them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from msgspec import Struct

from profiler.core.timestamps import parse_datetime
from profiler.forwarder.function_settings import NoticeSettings
from profiler.forwarder.invocation import ForwarderError, attempt
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.forwarder.notifications.posting import NoticeChannel, notification_key, notify
from profiler.record.notice_model import NoticeLine

MAX_NOTICES_OF_A_STREAM = 8
MAX_AGE = timedelta(days=1)
MAX_AGE_IN_STREAM = timedelta(minutes=15)


class TaskNotices(Struct):
    """Holds the notices of an invocation, and sends them.

    ``settings`` may raise SettingsError. Without a notice, neither it nor ``channels`` and ``once`` are called.
    ``warn`` gets the same sentence for each notice that is not sent for the same reason.
    """

    settings: Callable[[], NoticeSettings]
    channels: Callable[[NoticeSettings], Sequence[NoticeChannel]]
    now: Callable[[], datetime]
    once: Callable[[NoticeSettings], Idempotently] = lambda _settings: lambda _key, work: work()
    warn: Callable[[str], None] = lambda _sentence: None
    # By log stream: its notices by task, container and kind, each with its time and the record that contains it.
    _held: dict[str, dict[tuple[str, str, str], tuple[NoticeLine, datetime, str | None]]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._held

    def add(self, line: NoticeLine, place: str, source: str | None = None) -> None:
        """Hold a notice that is neither too old nor beyond the limit of its log stream, which is ``place``.

        ``source`` is the record of the Kinesis stream that contains it.
        """
        written, where = parse_datetime(line.time), place[:200]
        if written is None or self.now() - written > MAX_AGE:
            self.warn(f"Notifications in {where} are not sent, because they are older than a day.")
            return
        held = self._held.setdefault(place, {})
        key = (line.record.task_id, line.record.container.name, line.notice.kind)
        if len(held) < MAX_NOTICES_OF_A_STREAM:
            held.setdefault(key, (line, written, source))
        elif key not in held:
            self._warn_of_more(place)

    def send(self, errors: list[ForwarderError]) -> list[str]:
        """Send the notices that the settings select. The errors of the channels are added to ``errors``.

        Returns the records of the stream to deliver again: those with a notice that a channel did not accept.
        """
        held = [(place, *each) for place, notices in self._held.items() for each in notices.values()]
        settings = attempt(self.settings, errors) if held else None
        failed: list[ForwarderError] = []
        refused = held
        if settings is not None:
            channels, once = self.channels(settings), self.once(settings)
            refused = []
            for place, line, written, source in held:
                before = len(failed)
                is_selected = settings.selects("running", line.record.family or "unknown")
                if is_selected and attempt(partial(self._may_send, line, place, once), failed):
                    notify(channels, line, "failure", once, failed)
                if len(failed) > before:
                    refused.append((place, line, written, source))
        errors += {str(error): error for error in failed}.values()  # most notices fail for the same reason
        now = self.now()
        return [source for *_, at, source in refused if source is not None and abs(now - at) <= MAX_AGE_IN_STREAM]

    def _may_send(self, line: NoticeLine, place: str, once: Idempotently) -> bool:
        """Whether the notice is one of the first eight of its log stream: each of these keeps a numbered key."""
        own = notification_key(line)
        keys = (f"{place}#notice-{number}" for number in range(MAX_NOTICES_OF_A_STREAM))
        is_first = any(once(key, lambda: own) == own for key in keys)
        if not is_first:
            self._warn_of_more(place)
        return is_first

    def _warn_of_more(self, place: str) -> None:
        number = MAX_NOTICES_OF_A_STREAM
        self.warn(f"Only {number} notifications in {place[:200]} are sent: the log stream has more.")
