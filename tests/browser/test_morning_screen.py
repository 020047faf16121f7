"""The morning screen: a cell for each family and night, its name, what it opens, keyboard,
filters, widths.
"""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page

from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.record_model import Report
from tests import shown_runs
from tests.browser.conftest import LOOKS, MISSED, OVERFLOW, Opener, page_of, ready, violations
from tools.waiting import wait_until

pytestmark = pytest.mark.browser
LONG = "nightly-export-of-orders-and-invoices-to-the-warehouse-of-eu"
FOCUSED = "document.activeElement.getAttribute('aria-label')"
KILLED = shown_runs.out_of_memory()


def at(report: Report, days_ago: int, family: str = "nightly-etl") -> Report:
    """The run, some days before."""
    started_at = format_ms(shown_runs.STARTED_NS - days_ago * 86_400 * NS_PER_SECOND)
    task_id = f"{family}-{report.record.task_id[:8]}-{days_ago}"
    return replace(
        report, record=replace(report.record, family=family, started_at=started_at, task_id=task_id)
    )


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    etl, failed = shown_runs.etl(), shown_runs.failure()
    reports = [
        at(etl, 10),
        at(etl, 2),
        at(KILLED, 0),
        at(failed, 0),
        at(etl, 0),
        at(failed, 1, LONG),
    ]
    return page_of(
        tmp_path_factory.mktemp("nights"),
        *reports,
        at(shown_runs.unmeasured(), 9, LONG),
        more=MISSED,
    )


def names(tab: Page) -> list[str]:
    found: list[str] = tab.evaluate(
        "[...document.querySelectorAll('#morning a')].map((one) => one.ariaLabel)"
    )
    return found


def test_a_cell_names_its_night_and_opens_the_killed_run(opened: Opener, nights: Path) -> None:
    """Red is for kills, failures and 90 % alone. Each run is in one tile."""
    tab = opened(nights)
    kinds = tab.evaluate(
        "[...document.querySelectorAll('#morning a')].map((one) => one.className.trim())"
    )
    assert kinds == [
        "heat memory",
        "heat memory",
        "killed  two",
        "unmeasured",
        "heat memory failed two",
    ]
    tiles = tab.locator("#tiles .tile:has(.outcome)").all_inner_texts()
    assert tiles == ["4\nSucceeded", "2\nFailed", "1\nOut of memory"]
    assert tab.evaluate(
        "document.querySelector('#failed + .panel').contains(document.getElementById('morning'))"
    )
    assert names(tab) == [
        "nightly-etl, 2026-11-09, memory peak 81 %, success",
        "nightly-etl, 2026-11-17, memory peak 81 %, success",
        "nightly-etl, 2026-11-19, memory peak 99 %, 1 killed, 1 failed, 3 runs",
        f"{LONG}, 2026-11-10, memory peak not measured, success",
        f"{LONG}, 2026-11-18, memory peak 81 %, failed",
    ]
    assert tab.locator("#morning tbody td:empty").count() == 2 * 11 - 5
    assert tab.locator("#morning a.killed").inner_text() == "99\n✕!"
    counts = tab.locator("#morning td.count")
    assert counts.count() == 11
    assert (
        counts.last.get_attribute("aria-label")
        == "2026-11-19, 3 runs, 1 success, 1 failure, 1 out of memory"
    )
    row = tab.locator("#morning tbody tr").first.inner_text()
    assert "19m 42s" in row
    assert "$" in row
    tab.get_by_role("link", name=re.compile("2026-11-19, .* killed")).click()
    tab.wait_for_selector("#detail[open] .verdict.bad")
    assert tab.evaluate("location.hash") == f"#run=nightly-etl-{KILLED.record.task_id[:8]}-0"


def test_arrow_keys_move_between_the_cells(opened: Opener, nights: Path) -> None:
    tab = opened(nights)
    tab.locator("#morning-choice button").last.focus()
    while tab.evaluate("document.activeElement.id || document.activeElement.tagName") != "A":
        tab.keyboard.press("Tab")
    assert "2026-11-19" in tab.evaluate(FOCUSED)
    for key, expected in (
        ("ArrowDown", "2026-11-18"),
        ("ArrowLeft", "2026-11-10"),
        ("ArrowUp", "2026-11-09"),
    ):
        tab.keyboard.press(key)
        assert expected in tab.evaluate(FOCUSED)
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#detail[open] .verdict.good")
    tab.keyboard.press("Escape")
    assert "2026-11-09" in tab.evaluate(FOCUSED)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.closest('#morning') === null"), "one stop"


def test_the_filters_hold_and_the_time_zone_is_the_readers(opened: Opener, nights: Path) -> None:
    tab = opened(nights, "#outcome=failure", zone="Asia/Tokyo")
    assert names(tab)[-1].startswith(f"{LONG}, 2026-11-19 12:00, ")
    assert tab.inner_text("#morning-title") == "Families by hour"
    tab.select_option("#outcome", "")
    ready(tab)
    assert names(tab)[0].startswith("nightly-etl, 2026-11-10, ")
    tab.fill("#from", "2030-01-01")
    ready(tab)
    assert tab.inner_text("#morning") == "No run matches the filters."


@LOOKS
def test_the_nights_scroll_in_their_own_box(
    opened: Opener, nights: Path, width: int, theme: str
) -> None:
    tab = opened(nights, width=width, theme=theme)
    assert tab.evaluate(OVERFLOW) == 0
    box = "document.querySelector('#morning .nights')"
    assert tab.evaluate(f"{box}.scrollWidth > {box}.clientWidth") == (width == 390)
    name = tab.locator("#morning tbody th").first
    before = name.bounding_box()
    tab.evaluate(f"{box}.scrollLeft = 0")
    assert name.bounding_box() == before, "the family stays"
    assert violations(tab) == []


def test_no_night_shows_a_part_of_its_numbers(opened: Opener, nights: Path) -> None:
    """The right half of 94 % is 4."""
    tab = opened(nights, width=390)
    covered = """() => {
      const names = document.querySelector("#morning thead .name").getBoundingClientRect().right;
      return [...document.querySelectorAll("#morning .night")]
        .map((night) => night.getBoundingClientRect())
        .filter(({ left, right }) => left < names - 1 && right > names + 1).length;
    }"""
    box = "document.querySelector('#morning .nights')"
    assert tab.evaluate(covered) == 0
    tab.evaluate(f"{box}.scrollLeft = 40")
    assert tab.evaluate(covered) == 0
    for width in (361, 372, 383, 412):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate(f"{box}.scrollLeft = {box}.scrollWidth")
        wait_until(lambda: tab.evaluate(covered) == 0, f"whole nights at {width} pixels")


def test_families_beyond_the_first_are_shown_on_demand(opened: Opener, tmp_path: Path) -> None:
    runs = [at(shown_runs.etl(), number % 4, f"family-{number:02d}") for number in range(34)]
    tab = opened(page_of(tmp_path, *runs, at(KILLED, 4, "killed-one")))
    assert tab.locator("#morning tbody tr").count() == 30
    assert tab.locator("#morning tbody tr", has_text="killed-one").count() == 1
    assert "30 of 35 families" in tab.inner_text("#morning").replace("\u00a0", " ")
    tab.click("#morning-all")
    assert tab.locator("#morning tbody tr").count() == 35
    tab.click("#night-controls [data-width=all]")
    assert tab.locator("#night .lane").count() == 30
    assert tab.inner_text("#night-left-out").startswith("Not drawn: 5 more families.")
    tab.click("#night-left-out >> text=Show all 35 families")
    assert tab.locator("#night .lane").count() == 35
    assert tab.evaluate("document.activeElement.id") == "night-all"
    tab.click("#night-left-out >> text=Show 30 families")
    assert tab.locator("#night .lane").count() == 30


def test_the_heatmap_shows_a_peak_or_an_average_and_the_address_keeps_it(
    opened: Opener, nights: Path
) -> None:
    tab = opened(nights)
    tab.click("#morning-choice button:has-text('Average CPU')")
    assert tab.evaluate("location.hash") == "#statistic=cpu"
    assert tab.evaluate("document.activeElement.textContent") == "Average CPU"
    assert ", average CPU " in names(tab)[0]
    other = opened(nights, "#statistic=cpu")
    assert other.locator("#morning-choice [aria-pressed=true]").all_inner_texts() == ["Average CPU"]
    assert not other.is_visible("#clear"), "it is no filter"


def test_the_page_begins_with_the_last_night_and_its_failures(opened: Opener, nights: Path) -> None:
    tab = opened(nights)
    shown = tab.inner_text("#last-night")
    etl = "(nightly-etl)"
    assert shown == (
        f"Nothing ran last night. Night of 2026-11-19: 3 runs, 1 missed {etl}, "
        f"1 killed for memory {etl}, 1 failed {etl}, 1 succeeded, $0.090."
    )
    assert tab.locator("#failures tbody tr").count() == 2
    tab.click("#last-night a >> nth=0")
    tab.wait_for_selector("#detail[open] .verdict.bad")
    assert tab.evaluate("location.hash") == f"#run=nightly-etl-{KILLED.record.task_id[:8]}-0"


def test_a_reader_in_another_time_zone_sees_whose_night_the_sentence_is_of(
    opened: Opener, nights: Path
) -> None:
    assert "time zone" not in opened(nights).inner_text("#last-night")
    shown = opened(nights, zone="Asia/Tokyo").inner_text("#last-night")
    assert shown.endswith(
        "2026-11-19 12:00 to 2026-11-20 12:00 UTC, the time zone of the computer that made this "
        "page."
    )


def test_a_page_of_few_runs_is_the_list_alone(opened: Opener, tmp_path: Path) -> None:
    page = page_of(tmp_path, *(at(shown_runs.etl(), day) for day in range(20)))
    tab = opened(page)
    assert tab.locator("#all > :visible h2").all_inner_texts() == ["Runs"]
    assert not tab.is_visible("#filters")
    other = opened(page, "#outcome=failure")
    assert other.is_visible("#clear"), "a filter of the address can be removed"


def test_a_run_that_is_gone_and_a_bad_date_are_said_in_words(opened: Opener, nights: Path) -> None:
    tab = opened(nights, "#from=2026-02-30&run=gone")
    assert tab.inner_text("#troubles").startswith(
        "“2026-02-30” is not a date and is ignored: write YYYY-MM-DD."
    )
    assert "This page has no run “gone”" in tab.inner_text("#troubles")
    tab.fill("#from", "2026-11-20")
    ready(tab)
    assert "date" not in tab.inner_text("#troubles")
    tab.click("#runs tbody a >> nth=0")
    tab.wait_for_selector("#detail[open] dl.facts")
    assert not tab.is_visible("#troubles")
    tab.keyboard.press("Escape")
    tab.fill("#to", "soon")
    tab.keyboard.press("Tab")
    assert "“soon” is not a date" in tab.inner_text("#troubles")
