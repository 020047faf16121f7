"""The money of a month from a day of Container Insights: by the schedules, or by what was seen."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from profiler.core.timestamps import DAYS_PER_MONTH
from tests.command_line import run_here
from tests.container_insights import MINUTE_MS, PERFORMANCE, PlayedAccount, PlayedLogs, minutes

# Some hours ago.
START_MS = (time.time_ns() // 60_000_000_000 - 300) * MINUTE_MS
HOUR_MS = 60 * MINUTE_MS
FAMILIES = 40


@pytest.fixture
def account() -> Iterator[PlayedAccount]:
    with PlayedAccount("jobs") as account:
        yield account


def put_run(logs: PlayedLogs, family: str, started_ms: int = START_MS, **own: Any) -> None:
    """A run of twelve minutes that uses little of its 2 vCPU and 8 GB."""
    task = {"TaskDefinitionFamily": family, "TaskId": f"{family}-{started_ms}", **own}
    logs.put(PERFORMANCE, minutes(started_ms, 12, cpu=200, memory=900, size=(2048, 8192), **task))


def recommend(logs: PlayedLogs, *words: str) -> Any:
    return run_here(logs.environment(), "recommend", *words, "--from", "insights:jobs")


def months(logs: PlayedLogs, *words: str) -> dict[str, Mapping[str, Any]]:
    done = recommend(logs, "--json", *words)
    assert done.returncode == 0, done.stderr
    return {one["family"]: one for one in map(json.loads, done.stdout.splitlines())}


def test_a_familys_schedule_gives_the_runs_of_its_month(account: PlayedAccount) -> None:
    put_run(account, "often")
    put_run(account, "by-rule")
    put_run(account, "unscheduled")
    account.schedules = {"often": "rate(15 minutes)"}
    account.rules = {"by-rule": "cron(0 2 ? * MON *)"}
    found = months(account)
    assert found["often"]["monthBasis"] == "schedule"
    assert found["often"]["runsPerMonth"] == pytest.approx(96 * DAYS_PER_MONTH, 0.01)
    assert found["by-rule"]["monthBasis"] == "schedule"
    assert found["by-rule"]["runsPerMonth"] == pytest.approx(DAYS_PER_MONTH / 7, 0.01)
    assert found["unscheduled"]["monthBasis"] == "nightly"
    assert found["unscheduled"]["runsPerMonth"] == pytest.approx(DAYS_PER_MONTH, 0.01)
    assert found["often"]["savingUsdPerMonth"] > 50 * found["by-rule"]["savingUsdPerMonth"] > 0


def test_without_a_schedule_the_window_shows_how_often_a_day(account: PlayedAccount) -> None:
    for number in range(16):
        put_run(account, "each-quarter", START_MS + number * 15 * MINUTE_MS)
    found = months(account)["each-quarter"]
    assert found["monthBasis"] == "window"
    assert found["runsPerMonth"] == pytest.approx(16 * DAYS_PER_MONTH, 0.01)


@pytest.mark.slow
def test_all_runs_of_a_day_count_not_only_the_last_fifty(account: PlayedAccount) -> None:
    for number in range(70):
        put_run(account, "each-quarter", START_MS - number * 15 * MINUTE_MS)
    found = months(account)["each-quarter"]
    assert found["runs"] == 50
    assert found["monthBasis"] == "window"
    assert found["runsPerMonth"] == pytest.approx(70 * DAYS_PER_MONTH, 0.01)


@pytest.mark.slow
def test_one_listing_serves_forty_families(account: PlayedAccount) -> None:
    for number in range(FAMILIES):
        put_run(account, f"family-{number}")
        account.schedules[f"family-{number}"] = f"cron({number} 2 * * ? *)"
    found = recommend(account)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    money = [line for line in lines if "≈ $" in line and line.strip().startswith("family-")]
    assert len(money) == FAMILIES
    (total,) = [line for line in lines if line.startswith("Total")]
    assert "≈ $" in total
    assert f"{FAMILIES} of {FAMILIES} families, ≈ $" in found.stdout
    assert "≈ is an estimate: by the schedules of 40 families." in found.stdout
    schedules = [one for one in account.calls if one.startswith("scheduler./schedules/")]
    assert len(schedules) == FAMILIES, "ListSchedules has no expressions"
    assert len(account.calls) == FAMILIES + 2, "one listing of the schedules, and of the rules"


def test_without_rights_to_eventbridge_a_note_names_them() -> None:
    with PlayedLogs("jobs") as logs:
        put_run(logs, "nightly-etl")
        found = recommend(logs, "nightly-etl")
    assert found.returncode == 0
    assert "The rules of EventBridge could not be read" in found.stderr
    assert "allow events:ListEventBuses, events:ListRules" in found.stderr
    assert "allow scheduler:ListSchedules and scheduler:GetSchedule" in found.stderr
    assert "≈ $" in found.stdout
    assert "≈ is an estimate: one run a night assumed of 1 family." in found.stdout
    assert "a month at 30 runs, if it runs nightly" in found.stdout


def test_measured_months_need_no_call(account: PlayedAccount) -> None:
    for number in range(6):
        put_run(account, "nightly-etl", START_MS - number * 6 * HOUR_MS)
    found = months(account, "nightly-etl")["nightly-etl"]
    assert found["monthBasis"] == "measured"
    assert account.calls == []


def test_a_schedule_of_another_family_does_not_count(account: PlayedAccount) -> None:
    put_run(account, "nightly-etl")
    account.schedules = {"nightly": "rate(1 hour)", "nightly-etl-2": "rate(1 hour)"}
    assert months(account)["nightly-etl"]["monthBasis"] == "nightly"


@pytest.mark.parametrize("place", [{"AccountID": "444455556666"}, {"Region": "eu-west-1"}])
def test_a_schedule_of_another_account_or_region_does_not_count(
    account: PlayedAccount, place: Mapping[str, Any]
) -> None:
    put_run(account, "nightly-etl", **place)
    account.schedules = {"nightly-etl": "rate(1 hour)"}
    assert months(account)["nightly-etl"]["monthBasis"] == "nightly"


def test_a_schedule_that_is_off_does_not_count(account: PlayedAccount) -> None:
    put_run(account, "nightly-etl")
    account.schedules = {"nightly-etl": "rate(1 hour)"}
    account.disabled = {"nightly-etl"}
    assert months(account)["nightly-etl"]["monthBasis"] == "nightly"


def test_one_run_in_a_longer_retention_is_no_nightly_one(account: PlayedAccount) -> None:
    put_run(account, "other", START_MS - 10 * 24 * HOUR_MS)
    put_run(account, "monthly")
    found = months(account, "monthly")["monthly"]
    assert found["monthBasis"] == "window"
    assert found["runsPerMonth"] == pytest.approx(DAYS_PER_MONTH / 10, 0.05)


def test_a_universal_target_is_a_schedule_in_its_account(account: PlayedAccount) -> None:
    put_run(account, "nightly-etl")
    account.schedules = {"nightly-etl": "cron(0 2 * * ? *)"}
    account.universal = {"nightly-etl"}
    found = months(account)["nightly-etl"]
    assert found["monthBasis"] == "schedule"
    assert found["runsPerMonth"] == pytest.approx(2 * DAYS_PER_MONTH, 0.01), "it starts two tasks"
