"""Announces the notices of running tasks that are among the lines of an invocation, after their documents are written.

Any program can print the line of a notice into its own log. Therefore at most eight notices of a log stream are
announced in an invocation; all of them are indexed. A notice that is older than a day, or is sent again by
``task-profiler replay``, is indexed and not announced: its run is over, and the table of the announced ones may have
forgotten it.

A record of a stream whose notice a channel did not accept is repeated until the notice is 15 minutes old: it holds up
the records after it in its shard, and a wrong setting of a channel must not cost the reports in them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from forwarder.delivery_errors import ForwarderError, attempt
from forwarder.function_settings import NoticeSettings
from forwarder.notices.channel import NoticeChannel, announce
from forwarder.notices.idempotency import Idempotently
from profiler.core.timestamps import parse_datetime
from profiler.record.notice_model import NoticeLine

MAX_NOTICES_OF_A_STREAM = 8
MAX_AGE = timedelta(days=1)
MAX_AGE_IN_STREAM = timedelta(minutes=15)
_UNKNOWN = "unknown"
_MAX_SHOWN_LENGTH = 200


class TaskNotices:
    """Holds the notices of an invocation, and announces them.

    Args:
        settings: reads the settings; may raise SettingsError. Not called without a notice, like the next two.
        channels: returns the channels.
        once: returns the guard that posts a notice only once for a key.
        now: returns the time.
        warn: logs a sentence.
    """

    def __init__(
        self,
        settings: Callable[[], NoticeSettings],
        *,
        channels: Callable[[NoticeSettings], Sequence[NoticeChannel]],
        once: Callable[[NoticeSettings], Idempotently] = lambda _settings: lambda _key, work: work(),
        now: Callable[[], datetime],
        warn: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self._settings = settings
        self._channels = channels
        self._once = once
        self._now = now
        self._warn = warn
        # By log stream: its notices by task, container and kind, each with the record that contains it.
        self._held: dict[str, dict[tuple[str, str, str], tuple[NoticeLine, str | None]]] = {}
        self._warned: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to announce."""
        return not self._held

    def add(self, line: NoticeLine, place: str, source: str | None = None) -> None:
        """Hold a notice that is neither old nor one too many.

        Args:
            line: The notice.
            place: The log stream that contains it.
            source: The record of the Kinesis stream that contains it.
        """
        written = parse_datetime(line.time)
        if written is None or self._now() - written > MAX_AGE:
            self._warn_once(f"Notices in {place[:_MAX_SHOWN_LENGTH]} are not announced: they are older than a day.")
            return
        held = self._held.setdefault(place, {})
        key = (line.record.task_id, line.record.container.name, line.notice.kind)
        if len(held) < MAX_NOTICES_OF_A_STREAM:
            held.setdefault(key, (line, source))
        elif key not in held:
            self._warn_once(
                f"Only {MAX_NOTICES_OF_A_STREAM} notices in {place[:_MAX_SHOWN_LENGTH]} are announced: there are more."
            )

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._warn(sentence)

    def announce(self, errors: list[ForwarderError]) -> list[str]:
        """Announce the notices that the settings select. The errors of the channels are added to ``errors``.

        Returns:
            The records of the stream to deliver again: those with a notice that a channel did not accept.
        """
        if self.is_empty:
            return []
        settings = attempt(self._settings, errors)
        channels = [] if settings is None else self._channels(settings)
        once = None if settings is None else self._once(settings)
        repeated: list[str] = []
        failed: list[ForwarderError] = []
        for line, source in [each for held in self._held.values() for each in held.values()]:
            before = len(failed)
            if (
                settings is not None
                and once is not None
                and settings.selects("running", line.record.family or _UNKNOWN)
            ):
                announce(channels, line, "failure", once, failed)
            if (settings is None or len(failed) > before) and source is not None and self._is_repeated(line):
                repeated.append(source)
        errors += {str(error): error for error in failed}.values()  # most notices fail for the same reason
        return repeated

    def _is_repeated(self, line: NoticeLine) -> bool:
        written = parse_datetime(line.time)
        return written is not None and abs(self._now() - written) <= MAX_AGE_IN_STREAM
