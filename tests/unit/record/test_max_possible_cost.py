"""The bound of a run's own cost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.timestamps import format_datetime
from profiler.record.max_possible_cost import (
    MAX_GB_HOUR_USD,
    MAX_VCPU_HOUR_USD,
    most_on_fargate_usd,
)
from profiler.record.record_model import Record, decode
from profiler.sizing.prices import PRICE_TABLE

STARTED = datetime(2026, 3, 1, 10, tzinfo=UTC)


def record_of(usd: float, hours: float = 1, **changes: Any) -> Record:
    record = {
        "taskId": "1",
        "container": {"name": "batch"},
        "launchType": "FARGATE",
        "taskSize": {"vcpu": 1, "memoryMB": 4096},
        "startedAt": format_datetime(STARTED),
        "finishedAt": format_datetime(STARTED + timedelta(hours=hours)),
        "cost": {"usd": usd},
    }
    line = {"time": "2026-03-01T11:00:00Z", "type": "task.report", "record": record | changes}
    return decode(msgspec.json.encode(line)).record


def has_cost(usd: float, hours: float = 1, **changes: Any) -> bool:
    cost = record_of(usd, hours, **changes).cost
    return cost.usd is not None


def test_the_bound_is_a_hundred_times_the_highest_price_of_a_region() -> None:
    rows = [row for architectures in PRICE_TABLE.values() for row in architectures]
    assert 100 * max(row[0] or 0 for row in rows) == pytest.approx(MAX_VCPU_HOUR_USD, rel=0.1)
    assert 100 * max(row[1] or 0 for row in rows) == pytest.approx(MAX_GB_HOUR_USD, rel=0.1)


@pytest.mark.parametrize("usd", [0.0, 0.0001, 0.06, 0.3, 3.0, 8.0])
def test_an_honest_cost_is_kept(usd: float) -> None:
    assert has_cost(usd)


@pytest.mark.parametrize(
    ("usd", "hours", "changes"),
    [
        (1e17, 1, {}),
        (1e17, 1, {"launchType": "EC2", "taskSize": None}),
        (20, 1, {}),
        (20, 0, {}),
        (1e5, 1, {"taskSize": {"vcpu": 1e6, "memoryMB": 1e9}}),
        (2e6, 1e6, {"launchType": "EC2"}),
    ],
)
def test_a_cost_beyond_size_and_time_is_unknown(
    usd: float, hours: float, changes: dict[str, Any]
) -> None:
    assert not has_cost(usd, hours, **changes)


def test_every_run_may_cost_what_is_not_looked_at() -> None:
    assert most_on_fargate_usd(0, 0, 0) >= 3.0


def test_a_machine_of_ec2_may_be_dear() -> None:
    assert has_cost(400, launchType="EC2")
    assert has_cost(400, launchType=None, taskSize=None)


def test_a_shared_task_waited_before_its_container_started() -> None:
    """Of several containers, the last report has the cost of the whole task."""
    assert not has_cost(60, 0.01)
    assert has_cost(60, 0.01, metrics={"initDurationMs": 10 * 3_600_000})


def test_a_saving_of_more_than_all_is_unknown() -> None:
    absurd = record_of(0.1, recommendation={"savingPercent": 1e12}).recommendation
    assert absurd.saving_percent is None
    costs_more = record_of(0.1, recommendation={"savingPercent": -300}).recommendation
    assert costs_more.saving_percent == -300


@given(usd=st.floats(0, 1e30), hours=st.floats(-1e6, 1e6), vcpu=st.floats(0, 1e9))
def test_no_run_costs_more_than_a_machine_for_60_days(
    usd: float, hours: float, vcpu: float
) -> None:
    size = {"vcpu": vcpu, "memoryMB": 1e9}
    cost = record_of(usd, hours, taskSize=size).cost
    assert (cost.usd or 0) <= 1_000 * 24 * 60
