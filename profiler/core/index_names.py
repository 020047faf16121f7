"""The names of the indices: one index for each kind of document and each month, or each day."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from profiler.core.ecs_terms import MAX_RUN_LENGTH

IndexKind: TypeAlias = Literal["reports", "checkpoints", "logs", "notices"]
IndexPeriod: TypeAlias = Literal["month", "day"]

DEFAULT_PREFIX = "task"
# The periods, and how the name of an index writes the time.
INDEX_PERIODS: Mapping[str, str] = {"month": "%Y.%m", "day": "%Y.%m.%d"}
# The end of an index's name: a month, or a day.
_PERIOD = re.compile(r"-(\d{4})\.(\d{2})(?:\.(\d{2}))?", re.ASCII)


class IndexNames(Struct, frozen=True, kw_only=True):
    """The names of the indices that begin with the prefix, each of one period."""

    prefix: str = DEFAULT_PREFIX
    period: IndexPeriod = "month"

    def index_name(self, kind: IndexKind, moment: datetime) -> str:
        """The index for a document of this kind and moment (UTC): ``task-reports-2026.03``."""
        return f"{self.prefix}-{kind}-{_period_of(moment.date(), self.period)}"

    def names_for_runs(self, ended: datetime) -> str:
        """The indices that can have a run that ended then (UTC), whatever start its report claims,
        separated by commas: ``task-reports-2026.02*,task-reports-2026.03*``.
        """
        return _months_of_runs(self.prefix, (ended - MAX_RUN_LENGTH).date(), ended.date())


@lru_cache(maxsize=64)
def _period_of(day: date, period: IndexPeriod) -> str:
    return day.strftime(INDEX_PERIODS[period])


@lru_cache(maxsize=64)
def _months_of_runs(prefix: str, first: date, last: date) -> str:
    """The monthly and daily indices of these days, and of a day on each side."""
    month = (first - timedelta(days=1)).replace(day=1)
    patterns = []
    while month <= last + timedelta(days=1):
        patterns.append(f"{prefix}-reports-{month:%Y.%m}*")
        month = (month + timedelta(days=31)).replace(day=1)
    return ",".join(patterns)


def may_have_runs_since(index: str, since: datetime) -> bool:
    """Whether the index can have a run that started since then. It has those whose images were
    pulled in its month or day (UTC), and whose batches started within a day.
    """
    end = _end_of_period(index)
    return end is None or end + timedelta(days=1) > since


def _end_of_period(name: str) -> datetime | None:
    """When the month or the day of an index ends (UTC); None for another name."""
    match = _PERIOD.fullmatch(name, max(name.rfind("-"), 0))
    if not match:
        return None
    year, month, day = match.groups()
    try:
        began = datetime(int(year), int(month), int(day or 1), tzinfo=UTC)
        if day is not None:
            return began + timedelta(days=1)
        return (began + timedelta(days=31)).replace(day=1)
    except (ValueError, OverflowError):
        return None
