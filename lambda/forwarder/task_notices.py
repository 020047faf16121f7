"""Announces the notices of running tasks that are among the lines of an invocation, after their documents are written.

Any program can print the line of a notice into its own log. Therefore at most eight notices of a task are announced in
an invocation; all of them are indexed. A notice that is older than a day, or is sent again by ``task-profiler replay``,
is indexed and not announced: its run is over, and the table of the announced ones may have forgotten it.

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

MAX_NOTICES_OF_A_TASK = 8
MAX_AGE = timedelta(days=1)
MAX_AGE_IN_STREAM = timedelta(minutes=15)
_UNKNOWN = "unknown"
_MAX_SHOWN_LENGTH = 100


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
        # By task: its notices by container and kind, each with the record of the stream that contains it.
        self._held: dict[str, dict[tuple[str, str], tuple[NoticeLine, str | None]]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to announce."""
        return not self._held

    def add(self, line: NoticeLine, source: str | None = None) -> None:
        """Hold a notice that is neither old nor one too many. ``source`` is the stream's record that contains it."""
        record, kind = line.record, line.notice.kind
        named = f"The notice {kind} of task {record.task_id[:_MAX_SHOWN_LENGTH]} is not announced"
        written = parse_datetime(line.time)
        if written is None or self._now() - written > MAX_AGE:
            self._warn(f"{named}: it is older than a day.")
            return
        of_task = self._held.setdefault(record.task_id, {})
        if len(of_task) < MAX_NOTICES_OF_A_TASK:
            of_task.setdefault((record.container.name, kind), (line, source))
        elif (record.container.name, kind) not in of_task:
            self._warn(f"{named}: the task has more than {MAX_NOTICES_OF_A_TASK} in one invocation.")

    def announce(self, errors: list[ForwarderError]) -> list[str]:
        """Announce the notices that the settings select. The errors of the channels are added to ``errors``.

        Returns:
            The records of the stream to deliver again: those with a notice that a channel did not accept.
        """
        if self.is_empty:
            return []
        settings = attempt(self._settings, errors)
        channels = [] if settings is None else self._channels(settings)
        repeated: list[str] = []
        for line, source in [held for of_task in self._held.values() for held in of_task.values()]:
            before = len(errors)
            if settings is not None and settings.selects("running", line.record.family or _UNKNOWN):
                announce(channels, line, "failure", self._once(settings), errors)
            if (settings is None or len(errors) > before) and source is not None and self._is_repeated(line):
                repeated.append(source)
        return repeated

    def _is_repeated(self, line: NoticeLine) -> bool:
        written = parse_datetime(line.time)
        return written is not None and abs(self._now() - written) <= MAX_AGE_IN_STREAM
