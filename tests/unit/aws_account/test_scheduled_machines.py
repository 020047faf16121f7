"""The executions of state machines, as ListExecutions pages them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from profiler.aws_account.scheduled_machines import read_executions
from profiler.core.timestamps import NS_PER_SECOND
from profiler.schedules.schedule_model import ClusterTasks, Schedule

ARN = "arn:aws:states:eu-west-1:123456789012:stateMachine:nightly"
NOW = datetime(2026, 11, 28, 8, tzinfo=UTC)
SINCE = timedelta(days=3)
SCHEDULE = Schedule(
    kind="schedule",
    name="nightly",
    expression="cron(0 2 * * ? *)",
    cluster_arn=ARN,
    definition_arn="etl",
    machine_arn=ARN,
)


class Listing:
    """Step Functions with these pages of executions; ``read`` counts those that were read."""

    def __init__(self, pages: Sequence[Sequence[Mapping[str, object]]]) -> None:
        self._pages = pages
        self.read = 0

    def get_paginator(self, operation: str) -> "Listing":
        assert operation == "list_executions"
        return self

    def paginate(self, **selection: str) -> Iterator[Mapping[str, Any]]:
        assert selection == {"stateMachineArn": ARN}
        for number, executions in enumerate(self._pages, 1):
            self.read = number
            yield {"executions": executions, "nextToken": "more"}


def began(hours_ago: float, **more: object) -> Mapping[str, object]:
    return {"name": f"{hours_ago}", "startDate": NOW - timedelta(hours=hours_ago), **more}


def listed(*pages: Sequence[Mapping[str, object]]) -> tuple[ClusterTasks, Listing]:
    listing = Listing(pages)
    now_ns, since_ns = (_ns(moment) for moment in (NOW, NOW - SINCE))
    return read_executions(lambda _: listing, [SCHEDULE], now_ns, since_ns)[ARN], listing


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * NS_PER_SECOND


def names(found: ClusterTasks) -> list[str]:
    return [task.arn.rpartition("/")[2] for task in found.tasks or ()]


@pytest.mark.parametrize(
    ("old", "read", "has_second"),
    [
        (began(300), 1, False),
        (began(300, redriveCount=0), 1, False),
        (began(300, redriveCount=1, redriveDate=NOW), 2, True),
    ],
)
def test_an_old_execution_that_was_redriven_ends_no_listing(
    old: Mapping[str, object], read: int, *, has_second: bool
) -> None:
    """It may be listed by the time at which it was started again."""
    found, listing = listed([old, began(1)], [began(6)])
    assert listing.read == read
    assert names(found) == ["1", "6"][: 2 if has_second else 1]


def test_what_lies_behind_a_cut_listing_is_not_known() -> None:
    again = began(300, redriveCount=1, redriveDate=NOW)
    found, listing = listed(*([began(hours), again] for hours in (1, 2, 3, 4, 5, 6)))
    assert listing.read == 5
    assert found.known_since_ns == _ns(NOW - timedelta(hours=5))
