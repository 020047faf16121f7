"""The notices of running tasks among the lines of an invocation, and which of them are sent.

They are sent after their documents are written. Any program can print such a line into its own log,
so at most eight of a log stream are sent, with a table eight of all invocations. A notice that is
older than a day or replayed is indexed
alone: its run is over, and the table may have forgotten it.

A record of a stream whose notice a channel did not accept is repeated for 15 minutes at most: it
holds up its shard, and a wrong setting of a channel must not cost reports.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from msgspec import Struct

from profiler.core.timestamps import parse_datetime
from profiler.forwarder.function_settings import NoticeSettings
from profiler.forwarder.invocation import ForwarderError, attempt
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.forwarder.notifications.notification import NoticeChannel, notification_key, notify
from profiler.record.notice_model import NoticeLine

MAX_NOTICES_OF_A_STREAM = 8
MAX_AGE = timedelta(days=1)
MAX_AGE_IN_STREAM = timedelta(minutes=15)


class TaskNotices(Struct):
    """Holds the notices of an invocation, and sends them. Without one, no setting is read."""

    settings: Callable[[], NoticeSettings]
    channels: Callable[[NoticeSettings], Sequence[NoticeChannel]]
    now: Callable[[], datetime]
    once: Idempotently = lambda _key, work: work()
    warn: Callable[[str], None] = lambda _sentence: None
    # By log stream: its notices by task, container and kind, each with its time and the record that
    # contains it.
    _held: dict[str, dict[tuple[str, str, str], tuple[NoticeLine, datetime, str | None]]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._held

    def add(self, line: NoticeLine, place: str, source: str | None = None) -> None:
        """Hold a notice of the log stream ``place`` unless old or one too many.

        ``source``: its Kinesis record.
        """
        written = parse_datetime(line.time)
        where = place[:200]
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
        """Send the selected notices, add errors to ``errors``; return the Kinesis records to
        deliver again.
        """
        held = []
        for place, notices in self._held.items():
            held += [(place, *notice) for notice in notices.values()]
        settings = attempt(self.settings, errors) if held else None
        failed: list[ForwarderError] = []
        refused = held
        if settings is not None:
            channels = self.channels(settings)
            refused = []
            for place, line, written, source in held:
                before = len(failed)
                is_selected = settings.selects("running", line.record.family or "unknown")
                if is_selected and attempt(partial(self._may_send, line, place), failed):
                    notify(channels, line, "failure", self.once, failed)
                if len(failed) > before:
                    refused.append((place, line, written, source))
        errors += {
            str(error): error for error in failed
        }.values()  # most notices fail for the same reason
        now = self.now()
        return [
            source
            for *_, at, source in refused
            if source is not None and abs(now - at) <= MAX_AGE_IN_STREAM
        ]

    def _may_send(self, line: NoticeLine, place: str) -> bool:
        """Whether the notice is one of the first eight of its log stream: each of these keeps a
        numbered key.
        """
        own = notification_key(line)
        keys = (f"{place}#notice-{number}" for number in range(MAX_NOTICES_OF_A_STREAM))
        is_first = any(self.once(key, lambda: own) == own for key in keys)
        if not is_first:
            self._warn_of_more(place)
        return is_first

    def _warn_of_more(self, place: str) -> None:
        number = MAX_NOTICES_OF_A_STREAM
        self.warn(
            f"Only {number} notifications in {place[:200]} are sent: the log stream has more."
        )
