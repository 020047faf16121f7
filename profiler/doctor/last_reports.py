"""The newest report of each family in the last days, from a search cluster or from log groups."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from profiler.core.timestamps import NS_PER_SECOND
from profiler.past_runs.log_group_runs import ReadPages
from profiler.past_runs.run_source import RunFilter, RunSource

DAYS = 8  # a weekly run, and a day
# Of each log group, for each of the three stretches of time that the source reads.
_MAX_PAGES = 5


class LastReports(Struct, frozen=True, kw_only=True):
    """The times of the newest reports, in nanoseconds since 1970, by family.

    ``unread``: log groups that were not read to the end. ``is_known`` False: nothing could be read.
    """

    newest_ns: Mapping[str, int] = {}
    unread: frozenset[str] = frozenset()
    is_known: bool = True


class LimitedPages:
    """Reads only some pages of each log group: a group with much output has thousands.

    Attributes:
        unread: The groups that have more pages.
    """

    def __init__(self, read_pages: ReadPages) -> None:
        self._read_pages = read_pages
        self.unread: set[str] = set()

    def __call__(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401  boto3's own
        """Yield the first pages of FilterLogEvents."""
        for count, page in enumerate(self._read_pages(**parameters), start=1):
            yield page
            if count == _MAX_PAGES and page.get("nextToken"):
                self.unread.add(parameters["logGroupName"])
                return


def newest_reports(
    source: RunSource,
    families: frozenset[str],
    account_id: str | None,
    region: str | None,
    now_ns: int,
    *,
    awaited: frozenset[str] | None = None,
) -> Mapping[str, int]:
    """The start of the newest run of each family that was read. Raises TaskProfilerError.

    Reading ends when each of ``awaited`` has one; None: each family.
    """
    newest: dict[str, int] = {}
    awaited = families if awaited is None else awaited
    since_ns = max(now_ns - DAYS * 86_400 * NS_PER_SECOND, 0)
    if awaited:
        for run in source.last_runs(RunFilter(since_ns=since_ns), 1):
            record = run.report.record
            is_here = record.account_id in (None, account_id) and record.region in (None, region)
            if record.family in families and is_here and run.line is not None:
                newest[record.family] = max(newest.get(record.family, 0), run.started_ns)
            if awaited <= newest.keys():
                break
    return newest
