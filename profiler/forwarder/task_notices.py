"""Announces the notices of running tasks that are among the lines of an invocation, after their documents are written.

Any program can print the line of a notice into its own log. Therefore an invocation sends at most eight notices of a
log stream; all of them are indexed. A notice that is older than a day, or is sent again by ``task-profiler replay``, is
indexed and not sent: its run is over, and the table of the sent ones may no longer contain it.

A record of a stream whose notice a channel did not accept is repeated until the notice is 15 minutes old: it holds up
the records after it in its shard, and a wrong setting of a channel must not cost the reports in them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from profiler.core.timestamps import parse_datetime
from profiler.forwarder.delivery_errors import ForwarderError, attempt
from profiler.forwarder.function_settings import NoticeSettings
from profiler.forwarder.notices.announcements import Idempotently, NoticeChannel, announce
from profiler.record.notice_model import NoticeLine

MAX_NOTICES_OF_A_STREAM = 8
MAX_AGE = timedelta(days=1)
MAX_AGE_IN_STREAM = timedelta(minutes=15)
_MAX_SHOWN_LENGTH = 200


class TaskNotices(Struct):
    """Holds the notices of an invocation, and sends them.

    ``settings`` may raise SettingsError. Without a notice, neither it nor ``channels`` and ``once`` are called.
    """

    settings: Callable[[], NoticeSettings]
    channels: Callable[[NoticeSettings], Sequence[NoticeChannel]]
    now: Callable[[], datetime]
    once: Callable[[NoticeSettings], Idempotently] = lambda _settings: lambda _key, work: work()
    warn: Callable[[str], None] = lambda _sentence: None
    # By log stream: its notices by task, container and kind, each with the record that contains it.
    _held: dict[str, dict[tuple[str, str, str], tuple[NoticeLine, str | None]]] = {}
    _warned: set[str] = set()

    @property
    def is_empty(self) -> bool:
        return not self._held

    def add(self, line: NoticeLine, place: str, source: str | None = None) -> None:
        """Hold a notice that is neither too old nor beyond the limit of its log stream, which is ``place``.

        ``source`` is the record of the Kinesis stream that contains it.
        """
        written, where = parse_datetime(line.time), place[:_MAX_SHOWN_LENGTH]
        if written is None or self.now() - written > MAX_AGE:
            self._warn_once(f"Notifications in {where} are not sent, because they are older than a day.")
            return
        held = self._held.setdefault(place, {})
        key = (line.record.task_id, line.record.container.name, line.notice.kind)
        if len(held) < MAX_NOTICES_OF_A_STREAM:
            held.setdefault(key, (line, source))
        elif key not in held:
            number = MAX_NOTICES_OF_A_STREAM
            self._warn_once(f"Only {number} notifications in {where} are sent: the log stream has more.")

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self.warn(sentence)

    def announce(self, errors: list[ForwarderError]) -> list[str]:
        """Send the notices that the settings select. The errors of the channels are added to ``errors``.

        Returns the records of the stream to deliver again: those with a notice that a channel did not accept.
        """
        held = [] if self.is_empty else [each for notices in self._held.values() for each in notices.values()]
        settings = attempt(self.settings, errors) if held else None
        failed: list[ForwarderError] = []
        refused = held
        if settings is not None:
            channels, once = self.channels(settings), self.once(settings)
            refused = []
            for line, source in held:
                before = len(failed)
                if settings.selects("running", line.record.family or "unknown"):
                    announce(channels, line, "failure", once, failed)
                if len(failed) > before:
                    refused.append((line, source))
        errors += {str(error): error for error in failed}.values()  # most notices fail for the same reason
        return [source for line, source in refused if source is not None and self._is_repeated(line)]

    def _is_repeated(self, line: NoticeLine) -> bool:
        written = parse_datetime(line.time)
        return written is not None and abs(self.now() - written) <= MAX_AGE_IN_STREAM
