"""The plan for many runs a day on AWS, worked out by hand for round numbers, and its page."""

from pathlib import Path

import pytest

from benchmarks.plan import Assumed, Measured, formulas_table, scaling_limits, scaling_limits_table

ROUND = Measured(
    checkpoints_per_run=4,
    report_disk_bytes=1000,
    checkpoint_disk_bytes=500,
    slowest_panel_seconds_per_million=0.5,
    direct_requests_per_second=100,
)
PLAIN = Assumed(peak_factor=10)


def test_limits_are_in_the_order_in_which_they_are_reached() -> None:
    found = scaling_limits()
    assert [step.runs_per_day for step in found] == sorted(step.runs_per_day for step in found)
    assert len(found) == 11


def test_limits_by_hand() -> None:
    found = {step.limit.split(",")[0]: step.runs_per_day for step in scaling_limits(ROUND, PLAIN)}
    # 10 a second in the busiest minute, a tenth of it on average; for 2 % of the tasks
    assert found["GetLogEvents"] == pytest.approx(86_400 / 0.02)
    assert found["`Ingestion=direct`"] == pytest.approx(864_000)
    assert found["One stream shard"] == pytest.approx(8_640_000)
    assert found["CreateLogStream"] == pytest.approx(216_000)
    assert found["Fargate launches"] == pytest.approx(1_728_000)
    assert found["PutLogEvents"] == pytest.approx(5000 / 5 * 8640)
    assert found["A month's reports fill a shard of 50 GB"] == pytest.approx(50e6 / 30.4)
    assert found["A panel over 30 days takes 10 s on one shard"] == pytest.approx(20e6 / 30.4)


def test_the_page_shows_the_limits() -> None:
    page = Path(__file__).parents[3] / "docs" / "contributing" / "scale.md"
    assert scaling_limits_table() in page.read_text()
    assert len(formulas_table().splitlines()) - 2 == len(scaling_limits())
