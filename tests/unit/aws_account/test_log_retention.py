"""What log groups lack of a window."""

from types import SimpleNamespace
from unittest.mock import MagicMock

from profiler.aws_account.log_retention import AwsLogRetention, log_gaps
from profiler.core.optional_math import known_members
from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS, NS_PER_SECOND
from tests.cases import each_case
from tests.fakes import FakeClock

GROUP = "/ecs/payroll"
KEEPS_14_DAYS = {"logGroupName": GROUP, "retentionInDays": 14, "creationTime": 0}


def test_a_window_that_is_chosen_after_the_reader_was_opened_keeps_its_days() -> None:
    logs, clock = MagicMock(), FakeClock()
    page = {"logGroups": [KEEPS_14_DAYS]}
    logs.get_paginator = lambda _name: SimpleNamespace(paginate=lambda **_: [page])
    kept = AwsLogRetention(lambda _service: logs, "us-east-1", clock)
    clock.advance(1)
    assert kept.groups_lacking((GROUP,), clock.wall_ns() - 20 * NS_PER_DAY) == {GROUP}
    assert kept.sentences == ("The log group /ecs/payroll keeps 14 days, the window has 20.",)


@each_case(
    ("kept_days", "age_hours", "window_hours", "said"),
    [
        (1, 10_000, 36, "keeps 1 day, the window has 36 hours."),
        (1, 10_000, 24, ""),
        (1, 10_000, 12, ""),
        (1, 10_000, 30 * 24, "keeps 1 day, the window has 30."),
        (1, 3, 36, "is 3 hours old, the window has 36 hours."),
        (None, 5, 12, "is 5 hours old, the window has 12 hours."),
        (None, 0.5, 12, "is less than an hour old, the window has 12 hours."),
        (None, 30, 36, "is 30 hours old, the window has 36 hours."),
        (None, 30, 30 * 24, "is 1 day old, the window has 30."),
        (None, 36, 36, ""),
        (30, 10_000, 30 * 24, ""),
        (7, 10_000, 180, "keeps 7 days, the window has 7 days and 12 hours."),
        (14, 170, 181, "is 7 days and 2 hours old, the window has 7 days and 13 hours."),
        (None, 48.5, 50, "is 2 days old, the window has 2 days and 2 hours."),
        (7, 10_000, 192, "keeps 7 days, the window has 8."),
    ],
)
def test_a_part_of_a_day_is_missing_too(
    kept_days: int | None, age_hours: float, window_hours: int, said: str
) -> None:
    now_ns = 50_000 * NS_PER_HOUR
    created_ms = round(now_ns - age_hours * NS_PER_HOUR) // NS_PER_MS
    group = {"logGroupName": GROUP, "creationTime": created_ms, "retentionInDays": kept_days}
    logs = MagicMock()
    logs.get_paginator = lambda _name: SimpleNamespace(
        paginate=lambda **_: [{"logGroups": [known_members(group)]}]
    )
    since_ns = now_ns - window_hours * NS_PER_HOUR
    # The reading begins some seconds after the window was chosen.
    now_ns += 5 * NS_PER_SECOND
    gaps = log_gaps(lambda _: logs, [GROUP], "us-east-1", since_ns=since_ns, now_ns=now_ns)
    found = [gap.reason for gap in gaps]
    assert found == ([f"The log group {GROUP} {said}"] if said else [])
