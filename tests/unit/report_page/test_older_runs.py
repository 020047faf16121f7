"""The runs of the page after those that may have details, of which only a row is kept."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MINUTE, NS_PER_MS, format_ms, parse_ns
from profiler.report_page.older_runs import OlderRuns
from profiler.report_page.page_data import PageRequest, build_page_data
from profiler.report_page.page_run import priced_run
from profiler.report_page.page_series import Run
from profiler.sizing.prices import PriceOverrides
from tests.report_page import parsed, run_of
from tests.runs import report

PRICES = PriceOverrides(hour_usd=3)
REQUEST = PageRequest(generated_at="2026-11-20T06:00:00.000Z", version="1", price_overrides=PRICES)


def runs_of(count: int, **fields: Any) -> list[Run]:
    """The newest first, each ten minutes, of two families, of which one is of two Regions."""
    runs = []
    newest_ns = parse_ns(REQUEST.generated_at) or 0
    for number in range(1, count + 1):
        own: dict[str, Any] = {
            "family": f"family-{number % 2}",
            "region": "eu-west-1" if number % 4 else "us-east-1",
            "task_id": sha256(str(number).encode()).hexdigest()[:32],
            "started_at": format_ms(newest_ns - number * 10 * NS_PER_MINUTE),
        }
        runs.append(run_of(report(**own, **fields)))
    return runs


def older_of(runs: Sequence[Run], whole: int, max_bytes: int = 1_000_000) -> OlderRuns:
    older = OlderRuns(max_bytes)
    for run in runs[whole:]:
        older.add_run(priced_run(run, PRICES, None), runs[0].past.started_ns // NS_PER_MS)
    return older


@pytest.mark.parametrize("launch_type", ["FARGATE", "LOCAL", "EC2"])
def test_an_older_run_has_the_row_of_a_whole_one(launch_type: str) -> None:
    """Also its price, and if it does not count, neither a price nor the row's own family."""
    runs = runs_of(40, launch_type=launch_type)
    for unconfirmed in (7, 23):
        run = runs[unconfirmed]
        runs[unconfirmed] = replace(run, past=replace(run.past, counts=False))
    all_whole = parsed(build_page_data(runs, REQUEST).text)
    made = build_page_data(runs[:10], REQUEST, older_of(runs, 10))
    assert made.runs == 40
    assert made.without_details == 30
    page = parsed(made.text)
    assert page["runs"] == all_whole["runs"]
    assert page["lastNight"] == all_whole["lastNight"]
    assert page["leftOut"] == {"runs": 0, "details": 30}
    families = {run["family"] for run in page["runs"]}
    assert len(families) == 3 + 1
    unconfirmed_rows = [run for run in page["runs"] if run["family"].endswith(" (unconfirmed)")]
    assert len(unconfirmed_rows) == 2
    assert not any("usd" in run for run in unconfirmed_rows)
    assert sum("usd" in run for run in page["runs"]) == (38 if launch_type == "EC2" else 0)


def test_runs_that_do_not_count_are_in_no_night() -> None:
    runs = runs_of(8)
    runs[5] = replace(runs[5], past=replace(runs[5].past, counts=False))
    page = parsed(build_page_data(runs, REQUEST).text)
    short = parsed(build_page_data(runs[:2], REQUEST, older_of(runs, 2)).text)
    assert short["lastNight"] == page["lastNight"]


def test_only_rows_for_which_the_page_has_room_are_kept() -> None:
    runs = runs_of(3000)
    older = older_of(runs, 10, max_bytes=4_000)
    assert older.count == 2990
    assert len(older.keys) < 2500
    limited = PageRequest(generated_at=REQUEST.generated_at, version="1", max_bytes=8_000)
    made = build_page_data(runs[:10], limited, older)
    page = parsed(made.text)
    assert 0 < made.runs < 3000
    assert page["leftOut"]["runs"] == 3000 - made.runs
    assert len(made.text) <= 8_000


def test_the_newest_rows_are_kept_for_the_sentence_of_the_night_alone() -> None:
    older = older_of(runs_of(400), 10)
    assert len(older.keys) == 390
    assert len(older.newest) == 6 * 24 - 10
