"""The capacity plan: results for round numbers, calculated by hand, and its page."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.plan import (
    formulas_table,
    loads,
    loads_table,
    prices,
    prices_table,
    scaling_limits,
    scaling_limits_table,
)
from benchmarks.plan_inputs import ASSUMED, MEASURED, TUNED, TUNED_MEASURED, Assumed, Measured

ROUND = Measured(
    report_line_bytes=1000,
    checkpoint_line_bytes=500,
    checkpoints_per_run=4,
    report_disk_bytes=1000,
    checkpoint_disk_bytes=500,
    slowest_panel_seconds_per_million=0.5,
    documents_per_second=1000,
    direct_requests_per_second=100,
)
PLAIN = Assumed(peak_factor=10, retention_days=100, copies=2, overhead=1.5, node_data_gb=100)


def test_loads_of_a_million_runs_a_day_by_hand() -> None:
    """11.574 a second. A run stores 1000 + 4 × 500 = 3000 bytes: 3 GB a day, × 100 d × 2 × 1.5 = 900 GB."""
    found = {load.name: load.value(1_000_000) for load in loads(ROUND, PLAIN)}
    assert found["runs a second, mean"] == pytest.approx(11.574, rel=1e-4)
    assert found["runs a second, busiest minute"] == pytest.approx(115.74, rel=1e-4)
    assert found["concurrent forward_logs, busiest minute"] == pytest.approx(3.472, rel=1e-3)
    assert found["concurrent task_stopped, busiest minute"] == pytest.approx(81.02, rel=1e-3)
    assert found["log lines with checkpoints, GB a day"] == pytest.approx(3)
    assert found["reports per month, GB"] == pytest.approx(30.4)
    assert found["disk, TB"] == pytest.approx(0.9)
    assert found["nodes"] == 9


def test_nodes_are_at_least_three_and_suffice_for_the_write_rate() -> None:
    """By hand: 20 million runs with 5 documents, 10 × 2 / 86,400 of it a second, are 23,148 documents a second."""
    (nodes,) = (load for load in loads(ROUND, Assumed(node_data_gb=1e9)) if load.name == "nodes")
    assert nodes.value(1) == 3
    assert nodes.value(20_000_000) == 24


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


def test_prices_of_a_million_runs_by_hand() -> None:
    found = {price.name: price.usd for price in prices(1_000_000, ROUND, PLAIN)}
    assert found["CloudWatch Logs: reports"] == pytest.approx(0.53)  # 1 GB
    assert found["CloudWatch Logs: checkpoints"] == pytest.approx(1.06)  # 2 GB
    assert found["forward_logs: reports"] == pytest.approx(0.4, rel=1e-3)  # 0.20 + 15,000 GB s
    assert found["forward_logs: checkpoints"] == pytest.approx(1.6, rel=1e-3)
    assert found["data stream"] == 0
    assert found["task_stopped, once per task"] == pytest.approx(0.2 + 4.667 + 1.25, rel=1e-3)
    assert found["cluster: nodes"] == pytest.approx(9 * 0.178 * 730 / 30.4)
    assert found["cluster: disks"] == pytest.approx(900 * 0.122 / 30.4)


@given(st.floats(1000, 1e9))
def test_the_tuned_settings_never_cost_more(runs_per_day: float) -> None:
    plain, tuned = (
        sum(price.usd for price in prices(runs_per_day, measured, assumed))
        for measured, assumed in ((MEASURED, ASSUMED), (TUNED_MEASURED, TUNED))
    )
    # With few runs, the data stream still costs a whole shard.
    stream_usd = next(price.usd for price in prices(runs_per_day, TUNED_MEASURED, TUNED) if price.name == "data stream")
    assert tuned - stream_usd <= plain


def test_the_page_shows_the_limits() -> None:
    page = Path(__file__).parents[3] / "docs" / "contributing" / "scale.md"
    assert scaling_limits_table() in page.read_text()


def test_every_table_has_a_row_for_each_of_its_entries() -> None:
    rows = {table: len(table().splitlines()) - 2 for table in (loads_table, formulas_table, prices_table)}
    assert rows == {
        loads_table: len(loads()),
        formulas_table: len(scaling_limits()),
        prices_table: len(prices(1, MEASURED, ASSUMED)) + 1,  # the sum
    }
