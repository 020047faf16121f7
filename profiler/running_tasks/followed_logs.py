"""Log groups that are read again and again by FilterLogEvents, each time only what is new."""

from collections.abc import Callable, Iterable

from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS
from profiler.past_runs.log_group_runs import ReadPages
from profiler.running_tasks.running_runs import LINE_TYPES, MAX_SILENCE_NS

# Lines arrive seconds after they were written, and by other clocks. What is read again does no harm.
_OVERLAP_MS = 120_000
PATTERN = "{ " + " || ".join(f'$.type = "{name}"' for name in LINE_TYPES) + " }"
_NOTICES = '{ $.type = "task.notice" }'
_AROUND_NOTICE_MS = 60_000


class FollowedLogs:
    """Reads the lines of monitors. The first read of a group is the time in which a running task writes a line.

    Args:
        read_pages: Reads the pages of FilterLogEvents.
        clock: Gives the time now.
    """

    def __init__(self, read_pages: ReadPages, clock: Clock) -> None:
        self._read_pages = read_pages
        self._clock = clock
        self._read_until_ms: dict[str, int] = {}
        self._sought: set[tuple[str, int]] = set()

    def read(self, groups: Iterable[str], add: Callable[[str], None]) -> tuple[str, ...]:
        """Read what is new in the groups. Returns a sentence for each group that could not be read."""
        problems = []
        for group in groups:
            now_ms = self._clock.wall_ns() // NS_PER_MS
            oldest_ms = now_ms - MAX_SILENCE_NS // NS_PER_MS
            start_ms = max(self._read_until_ms.get(group, 0) - _OVERLAP_MS, oldest_ms)
            newest_ms = 0
            try:
                # Without an end: the clock of AWS may be ahead of this one.
                for page in self._read_pages(logGroupName=group, startTime=start_ms, filterPattern=PATTERN):
                    for event in page["events"]:
                        newest_ms = max(newest_ms, event["timestamp"])
                        add(event["message"])
            except TaskProfilerError as error:
                problems.append(str(error))
                continue
            # This clock may be ahead of that of AWS, too.
            self._read_until_ms[group] = min(now_ms, max(newest_ms, self._read_until_ms.get(group, 0)) or now_ms)
        return tuple(problems)

    def read_notice(self, groups: Iterable[str], at_ns: int, add: Callable[[str], None]) -> None:
        """Look once for a notice from before the first read. One that is not found stays without its text."""
        at_ms = at_ns // NS_PER_MS
        for group in groups:
            if (group, at_ms) in self._sought:
                continue
            self._sought.add((group, at_ms))
            start_ms, end_ms = at_ms - _AROUND_NOTICE_MS, at_ms + _AROUND_NOTICE_MS
            try:
                for page in self._read_pages(
                    logGroupName=group, startTime=start_ms, endTime=end_ms, filterPattern=_NOTICES
                ):
                    for event in page["events"]:
                        add(event["message"])
            except TaskProfilerError:
                continue
