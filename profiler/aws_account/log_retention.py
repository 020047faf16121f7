"""Since when log groups have their lines: CloudWatch Logs deletes what is older than a group's
retention, and a group has nothing from before its creation.
"""

from collections.abc import Iterable, Iterator, Sequence

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.clusters_and_log_groups import list_log_groups
from profiler.core.clock import Clock
from profiler.core.completeness import Gap
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import positive_number
from profiler.core.text import first_names
from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS
from profiler.record.units import format_count

_MAX_NAMED = 3
# A window of days begins a moment before as many days, and CloudWatch Logs deletes later.
_NEARLY_NS = NS_PER_HOUR
# Below, a window is told in hours.
_SHORT_NS = 2 * NS_PER_DAY


def log_gaps(
    open_client: OpenClient,
    names: Iterable[str],
    region: str | None,
    *,
    since_ns: int,
    now_ns: int,
) -> Iterator[Gap]:
    """The groups that do not reach back to a time. One that does not exist has no lines to lack.

    Raises TaskProfilerError.
    """
    window_ns = now_ns - since_ns
    for name in names:
        group = next(list_log_groups(open_client, name), {})  # sorted: the shortest name is first
        if group.get("logGroupName") != name:
            continue
        kept_days = positive_number(group.get("retentionInDays"))
        created_ms = positive_number(group.get("creationTime")) or 0
        age_ns = now_ns - round(created_ms) * NS_PER_MS
        kept_ns = round(kept_days * NS_PER_DAY) if kept_days else window_ns
        reaching_ns = window_ns
        words = "keeps {}"
        if kept_ns < window_ns - _NEARLY_NS:
            reaching_ns = kept_ns
        if age_ns < min(window_ns, kept_ns) - _NEARLY_NS:
            reaching_ns = max(age_ns, 0)
            words = "is {} old"
        if reaching_ns < window_ns:
            reaching, window = _part_and_window_texts(reaching_ns, window_ns)
            reason = f"The log group {name} {words.format(reaching)}, the window has {window}."
            yield Gap(place=name, reason=reason, group=(region, name))


class AwsLogRetention:
    """What log groups lack of the times for which they were read. Each group is asked for once."""

    def __init__(self, open_client: OpenClient, region: str | None, clock: Clock) -> None:
        self._open_client = open_client
        self._region = region
        self._clock = clock
        self._asked: set[str] = set()
        self._lacking: dict[str, str] = {}
        self._unknown: list[str] = []

    @property
    def sentences(self) -> Sequence[str]:
        named = tuple(self._lacking.values())
        if len(named) > _MAX_NAMED:
            count = format_count(len(named) - 1, "other log group")
            named = (named[0], f"{count} do not reach back as far as the window, either.")
        return (*named, *self._unknown)

    def groups_lacking(self, groups: Sequence[str], since_ns: int) -> frozenset[str]:
        """The groups that are known not to reach back to a time."""
        unasked = [group for group in groups if group not in self._asked]
        self._asked.update(unasked)
        # Read here: a time before that of ``since_ns`` would make the window a day shorter.
        now_ns = self._clock.wall_ns()
        gaps = log_gaps(self._open_client, unasked, self._region, since_ns=since_ns, now_ns=now_ns)
        try:
            self._lacking.update((gap.place, gap.reason) for gap in gaps)
        except TaskProfilerError as error:
            which = first_names(unasked)
            self._unknown.append(f"It is unknown how far back {which} can be read. {error}")
        return frozenset(groups) & self._lacking.keys()


def _part_and_window_texts(part_ns: int, window_ns: int) -> tuple[str, str]:
    """A part of the window, and the window, in words that differ: in days, of a short window in
    hours, in both where the days are the same.
    """
    kept_days = part_ns == part_ns // NS_PER_DAY * NS_PER_DAY
    if window_ns < _SHORT_NS:
        part = _days_text(part_ns) if kept_days else _hours_text(part_ns)
        return part, _hours_text(window_ns)
    if part_ns // NS_PER_DAY == window_ns // NS_PER_DAY:
        return _days_and_hours_text(part_ns), _days_and_hours_text(window_ns)
    return _days_text(part_ns), _days_text(window_ns).removesuffix(" days")


def _hours_text(length_ns: int) -> str:
    hours = length_ns // NS_PER_HOUR
    return format_count(hours, "hour") if hours else "less than an hour"


def _days_text(length_ns: int) -> str:
    days = length_ns // NS_PER_DAY
    return format_count(days, "day") if days else "less than a day"


def _days_and_hours_text(length_ns: int) -> str:
    hours = length_ns % NS_PER_DAY // NS_PER_HOUR
    rest = f" and {format_count(hours, 'hour')}" if hours else ""
    return f"{_days_text(length_ns)}{rest}"
