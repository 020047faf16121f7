"""The notices of running tasks among the lines of an invocation, and which of them are sent.

They are sent after their documents are written. Any program can print such a line into its own log,
so at most eight of a log stream are sent, with a table eight of all invocations. A notice that is
older than a day or replayed is indexed alone: its run is over, and the table may have forgotten it.
So is one of a run that has ended since, as far as the lines of the invocation and the search
cluster know: it came late, such as after a redrive.

A notice about memory is a forecast. Where the search cluster knows what earlier successes of the
family reached, a run above that is announced instead, whether its monitor has printed a notice or
only a checkpoint, and nothing else.

A record of a stream whose notice a channel did not accept is repeated for 15 minutes at most: it
holds up its shard, and a wrong setting of a channel must not cost reports.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.core.optional_math import known_members, known_values
from profiler.core.timestamps import parse_datetime
from profiler.forwarder.document_updates import run_document_id
from profiler.forwarder.function_settings import NoticeSettings
from profiler.forwarder.invocation import ForwarderError, call_collecting_error
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.forwarder.notifications.memory_checkpoints import (
    FullestCheckpoints,
    NearFullCheckpoint,
    Peaks,
    ReadPeaks,
    family_container_of,
)
from profiler.forwarder.notifications.notification import (
    NoticeChannel,
    notice_key,
    notification_key,
    post_to_accepting_channels,
)
from profiler.record.family_statistics import HighestPeak
from profiler.record.memory_news import MEMORY_NOTICE, notice_if_news, notice_of_checkpoint
from profiler.record.notice_model import NoticeLine
from profiler.record.record_model import Report

MAX_NOTICES_OF_A_STREAM = 8
MAX_AGE = timedelta(days=1)
MAX_AGE_IN_STREAM = timedelta(minutes=15)
_MAX_TOLD = 10_000


# Its task, container and kind.
NoticeKey = tuple[str, str, str]
# When those of the runs ended that have, by the ids of their documents.
ReadEnds = Callable[[Sequence[str]], Mapping[str, datetime]]


class _HeldNotice(Struct, frozen=True):
    """A notice with its time, and the Kinesis record that contains it."""

    line: NoticeLine
    at: datetime
    source: str | None


class RunningTaskNotices(Struct):
    """Holds the notices of an invocation, and sends them. Without one, no setting is read."""

    settings: Callable[[], NoticeSettings]
    channels: Callable[[NoticeSettings], Sequence[NoticeChannel]]
    now: Callable[[], datetime]
    once: Idempotently = lambda _key, work: work()
    warn: Callable[[str], None] = lambda _sentence: None
    peaks: ReadPeaks = lambda _wanted: {}
    ends: ReadEnds = lambda _runs: {}
    # The keys of notices about memory that every channel has, also of earlier invocations.
    told: set[str] = field(default_factory=set)
    # By log stream: its notices by task, container and kind.
    _held: dict[str, dict[NoticeKey, _HeldNotice]] = field(default_factory=dict)
    _near_full: FullestCheckpoints = field(default_factory=FullestCheckpoints)
    # The ends of the invocation's reports, by run: each as its document has it.
    _ends: dict[str, str | None] = field(default_factory=dict)

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
        key = _notice_key(line)
        if len(held) < MAX_NOTICES_OF_A_STREAM:
            held.setdefault(key, _HeldNotice(line, written, source))
        elif key not in held:
            self._warn_of_omitted_notices(place)

    def add_checkpoint(self, report: Report, place: str, source: str | None = None) -> None:
        """Hold a checkpoint of the log stream ``place`` that shows most of the memory in use."""
        written = parse_datetime(report.time)
        if written is not None and self.now() - written <= MAX_AGE:
            self._near_full.add(NearFullCheckpoint(place, report, source))

    def add_end(self, run: str, finished_at: str | None) -> None:
        """Remember that a run has ended, by the report in a log stream of its task."""
        self._ends[run] = finished_at

    def select_notices_to_send(self) -> list[NoticeLine]:
        """Keep the notices of runs that go on, and of those about memory the ones that are news;
        return those that no monitor has printed.

        To be called once, before ``send_notices``.
        """
        news = self._select_memory_news()
        held: list[NoticeLine] = []
        for notices in self._held.values():
            held += [notice.line for notice in notices.values()]
        runs = list(dict.fromkeys(map(_run_id_of_notice, [*held, *(line for _, line in news)])))
        if not runs:
            return []
        ends = {**self.ends(runs), **self._find_known_ends(runs)}
        for place, notices in self._held.items():
            for key, notice in [*notices.items()]:
                if self._has_ended(notice.line, ends, place):
                    del notices[key]
        new = [item for item in news if not self._has_ended(item[1], ends, item[0].place)]
        for near_full, line in new:
            self.add(line, near_full.place, near_full.source)
        return [line for _, line in new]

    def _find_known_ends(self, runs: Sequence[str]) -> Mapping[str, datetime]:
        ends = {run: parse_datetime(self._ends[run]) for run in runs if run in self._ends}
        return known_members(ends)

    def _has_ended(self, line: NoticeLine, ends: Mapping[str, datetime], place: str) -> bool:
        """Whether the run has ended since the notice, which is logged. A container that was
        started again is a later one.
        """
        written = parse_datetime(line.time)
        ended = ends.get(_run_id_of_notice(line))
        if written is None or ended is None or ended < written:
            return False
        self.warn(f"Notifications in {place[:200]} are not sent, because their runs have ended.")
        return True

    def _select_memory_news(self) -> list[tuple[NearFullCheckpoint, NoticeLine]]:
        """Keep the notices about memory that are news; the notice of each checkpoint that is worth
        one.
        """
        forecasts = []
        for place, notices in self._held.items():
            for key, held in notices.items():
                if held.line.notice.kind == MEMORY_NOTICE:
                    forecasts.append((place, key, held.line))
        near_full = [
            item
            for item in self._near_full.iterate_fullest()
            if notice_key(item.report.record, MEMORY_NOTICE) not in self.told
        ]
        settings = call_collecting_error(self.settings, []) if forecasts or near_full else None
        if settings is None:  # send raises the error
            return []
        near_full = [
            item
            for item in near_full
            if settings.selects("running", item.report.record.family or "unknown")
        ]
        wanted = [(place, family_container_of(line.record)) for place, _, line in forecasts]
        wanted += [(item.place, family_container_of(item.report.record)) for item in near_full]
        peaks = self.peaks(wanted)
        for place, key, line in forecasts:
            self._keep_forecast_if_news(place, key, peaks.get(family_container_of(line.record)))
        news: dict[NoticeKey, tuple[NearFullCheckpoint, NoticeLine]] = {}
        for item in near_full:
            for line in self._notices_of_checkpoint(item, peaks):
                news.setdefault(_notice_key(line), (item, line))
        return list(news.values())

    def _keep_forecast_if_news(self, place: str, key: NoticeKey, peak: HighestPeak | None) -> None:
        """Drop a forecast that is no news, or say what the news is."""
        if peak is None:
            return
        held = self._held[place].pop(key)
        news = notice_if_news(held.line, peak)
        if news is not None:
            self._held[place][key] = replace(held, line=news)

    def _notices_of_checkpoint(
        self, near_full: NearFullCheckpoint, peaks: Peaks
    ) -> Iterator[NoticeLine]:
        """The notice that a checkpoint is worth, unless it is held."""
        peak = peaks.get(family_container_of(near_full.report.record))
        line = None if peak is None else notice_of_checkpoint(near_full.report, peak)
        if line is None:
            return
        if any(_notice_key(line) in notices for notices in self._held.values()):
            return
        yield line

    def send_notices(self, errors: list[ForwarderError]) -> list[str]:
        """Send the selected notices, add errors to ``errors``; return the Kinesis records to
        deliver again.
        """
        held: list[tuple[str, _HeldNotice]] = []
        for place, notices in self._held.items():
            held += [(place, notice) for notice in notices.values()]
        settings = call_collecting_error(self.settings, errors) if held else None
        refused = [notice for _, notice in held]
        if settings is not None:
            refused = []
            failed: list[ForwarderError] = []
            channels = self.channels(settings)
            for place, notice in held:
                if not self._is_settled(notice.line, place, settings, channels, failed):
                    refused.append(notice)
            # Most notices fail for the same reason.
            errors += {str(error): error for error in failed}.values()
        now = self.now()
        to_repeat = [notice for notice in refused if abs(now - notice.at) <= MAX_AGE_IN_STREAM]
        return list(known_values(notice.source for notice in to_repeat))

    def _is_settled(
        self,
        line: NoticeLine,
        place: str,
        settings: NoticeSettings,
        channels: Sequence[NoticeChannel],
        failed: list[ForwarderError],
    ) -> bool:
        """Post a notice that is to be sent. False, and errors in ``failed``, if some channel lacks
        it.
        """
        own: list[ForwarderError] = []
        is_selected = settings.selects("running", line.record.family or "unknown")
        if is_selected and call_collecting_error(partial(self._may_send, line, place), own):
            post_to_accepting_channels(channels, line, "failure", self.once, own)
        failed += own
        if own:
            return False
        if line.notice.kind == MEMORY_NOTICE:
            self._remember_as_told(notification_key(line))
        return True

    def _remember_as_told(self, key: str) -> None:
        """A run above its family's peak has a checkpoint each minute."""
        if len(self.told) >= _MAX_TOLD:
            self.told.clear()
        self.told.add(key)

    def _may_send(self, line: NoticeLine, place: str) -> bool:
        """Whether the notice is one of the first eight of its log stream: each of these keeps a
        numbered key.
        """
        own = notification_key(line)
        keys = (f"{place}#notice-{number}" for number in range(MAX_NOTICES_OF_A_STREAM))
        is_first = any(self.once(key, lambda: own) == own for key in keys)
        if not is_first:
            self._warn_of_omitted_notices(place)
        return is_first

    def _warn_of_omitted_notices(self, place: str) -> None:
        number = MAX_NOTICES_OF_A_STREAM
        self.warn(
            f"Only {number} notifications in {place[:200]} are sent: the log stream has more."
        )


def _run_id_of_notice(line: NoticeLine) -> str:
    return run_document_id(line.record.task_id, line.record.container.name)


def _notice_key(line: NoticeLine) -> NoticeKey:
    return line.record.task_id, line.record.container.name, line.notice.kind
