"""What log groups lack of a window."""

from types import SimpleNamespace
from unittest.mock import MagicMock

from profiler.aws_account.kept_logs import KeptLogs
from profiler.core.timestamps import NS_PER_DAY
from tests.fakes import FakeClock

GROUP = "/ecs/payroll"
KEEPS_14_DAYS = {"logGroupName": GROUP, "retentionInDays": 14, "creationTime": 0}


def test_a_window_that_is_chosen_after_the_reader_was_opened_keeps_its_days() -> None:
    logs, clock = MagicMock(), FakeClock()
    page = {"logGroups": [KEEPS_14_DAYS]}
    logs.get_paginator = lambda _name: SimpleNamespace(paginate=lambda **_: [page])
    kept = KeptLogs(lambda _service: logs, "us-east-1", clock)
    clock.advance(1)
    assert kept.lacking((GROUP,), clock.wall_ns() - 20 * NS_PER_DAY) == {GROUP}
    assert kept.sentences == ("The log group /ecs/payroll keeps 14 days, the window has 20.",)
