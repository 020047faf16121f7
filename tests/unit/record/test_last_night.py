"""The last night: its bounds, and its sentence."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.last_night import (
    MISSED,
    last_night,
    night_sentence,
)
from profiler.record.measured import UNKNOWN, AtLeast, Exactly, total_of_known
from profiler.record.run_outcome import OUT_OF_MEMORY

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_NS = 3600 * NS_PER_SECOND


@pytest.mark.parametrize("hour", [0, 8, 12, 13, 23])
def test_the_last_night_contains_this_morning(hour: int) -> None:
    night = last_night(datetime(2026, 11, 25, hour, tzinfo=BERLIN))
    assert night.day == date(2026, 11, 24)
    assert night.title == "Last night (24 November)"
    morning_ns = round(datetime(2026, 11, 25, 6, tzinfo=BERLIN).timestamp()) * NS_PER_SECOND
    assert night.start_ns < morning_ns < night.end_ns


def test_a_night_lasts_from_noon_to_noon_across_the_end_of_summer_time() -> None:
    night = last_night(datetime(2026, 10, 25, 8, tzinfo=BERLIN))
    noon = datetime(2026, 10, 24, 10, tzinfo=UTC)
    assert night.start_ns == round(noon.timestamp()) * NS_PER_SECOND
    assert night.end_ns - night.start_ns == 25 * HOUR_NS


def test_the_sentence_names_what_went_wrong_first() -> None:
    night = last_night(datetime(2026, 11, 25, 8, tzinfo=UTC))
    counts = {
        "success": {"a": 30, "b": 7},
        "failure": {"dwh-load": 1},
        OUT_OF_MEMORY: {"nightly-etl": 1},
    }
    assert night_sentence(night.title, counts, Exactly(4.1)) == (
        "Last night (24 November): 39 runs, 1 killed for memory (nightly-etl), "
        "1 failed (dwh-load), 37 succeeded, $4.10."
    )


def test_what_runs_on_spot_cost_is_a_lower_bound() -> None:
    night = last_night(datetime(2026, 11, 25, 8, tzinfo=UTC))
    cost = total_of_known([UNKNOWN, Exactly(4.1), AtLeast(1)])
    assert night_sentence(night.title, {"success": {"a": 1}}, cost).endswith(
        "1 succeeded, ≥ $5.10."
    )


def test_three_families_are_named_and_a_missed_due_time_is_no_run() -> None:
    night = last_night(datetime(2026, 11, 25, 8, tzinfo=UTC))
    counts = {"failure": {"a": 2, "b": 1, "c": 1, "d": 1, "e": 3}, MISSED: {"report": 1}}
    assert night_sentence(night.title, counts, UNKNOWN) == (
        "Last night (24 November): 8 runs, 1 missed (report), 8 failed (a ×2, b, c and 2 more)."
    )
    counts = {"failure": dict.fromkeys("abcd", 1)}
    assert night_sentence(night.title, counts, UNKNOWN).endswith("4 failed (a, b, c, d).")


def test_a_night_without_runs_is_said() -> None:
    night = last_night(datetime(2026, 11, 25, 8, tzinfo=UTC))
    assert (
        night_sentence(night.title, {"success": {}}, UNKNOWN)
        == "Last night (24 November): nothing ran."
    )


def test_the_runs_of_families_without_a_name_are_counted() -> None:
    counts = {"failure": {"a": 1}, "success": {"a": 1}}
    others = {"failure": 2, "success": 60, MISSED: 1}
    assert night_sentence("Since 08:00", counts, UNKNOWN, others) == (
        "Since 08:00: 64 runs, 1 missed, 3 failed (a and others), 61 succeeded."
    )
