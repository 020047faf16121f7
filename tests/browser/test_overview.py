"""The overview: the night chart, the selection in the address, CSV, money, keyboard."""

import csv
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page

from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.batch_job import BatchJob
from profiler.record.notice_model import encode_notice_line
from profiler.record.record_model import AverageAndMaximum, Container, Cost
from tests import shown_runs
from tests.browser.conftest import (
    LOOKS,
    MISSED,
    OVERFLOW,
    RUNS,
    Opener,
    count,
    page_of,
    ready,
    violations,
    wait_for_count,
)
from tests.fakes import START_NS
from tests.runs import report as run_report

pytestmark = pytest.mark.browser
KILLED = shown_runs.out_of_memory().record
LANES = "[...document.querySelectorAll('#night .lane .name')].map((one) => one.textContent)"
BARS = "[...document.querySelectorAll('#night .lane a')].map((one) => one.ariaLabel)"
FOCUSED = "document.activeElement.ariaLabel"


def bars(tab: Page) -> Counter[str]:
    return Counter(name.rpartition(", ")[2] for name in tab.evaluate(BARS))


@pytest.mark.parametrize("width", [390, 700, 1040, 1440])
def test_every_tile_has_room_for_its_texts(opened: Opener, ecs_dashboard: Path, width: int) -> None:
    tab = opened(ecs_dashboard, width=width)
    assert tab.locator("#tiles .tile").count() > 7
    cut = tab.evaluate(
        "[...document.querySelectorAll('#tiles .tile')].filter((one) => one.scrollWidth > "
        "one.clientWidth).map((one) => one.textContent)"
    )
    assert cut == []


@pytest.mark.parametrize("width", [360, 390])
def test_a_date_of_the_runs_is_whole_on_a_phone(opened: Opener, tmp_path: Path, width: int) -> None:
    """Also beside the long names of a workflow's families."""
    failed = shown_runs.failure()
    name = "RNASEQ.BEDGRAPH_TO_BIGWIG_REVERSE.UCSC_BEDGRAPHTOBIGWIG"
    long = replace(failed, record=replace(failed.record, family=name, task_id="long"))
    tab = opened(page_of(tmp_path, *shown_runs.night(), long), width=width)
    lines = tab.evaluate(
        """[...document.querySelectorAll('tbody .time a')].map((one) => {
          const texts = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
          const date = document.createRange();
          date.selectNodeContents(texts.nextNode());
          if (date.endOffset > 'YYYY-MM-DD'.length) date.setEnd(date.endContainer, 'YYYY-MM-DD'.length);
          return date.getClientRects().length;
        })"""
    )
    assert len(lines) > 3
    assert {*lines} == {1}
    assert tab.evaluate(OVERFLOW) == 0


def test_the_night_chart_has_lanes_of_families_and_bars_of_runs(
    opened: Opener, ecs_dashboard: Path
) -> None:
    """The night chart has lanes of families and bars of runs and moves by days."""
    tab = opened(ecs_dashboard)
    assert tab.inner_text("#night-range") == "2026-11-19 12:00 to 2026-11-20 12:00"
    assert tab.is_disabled("#night-later")
    tab.click("#night-earlier")
    assert tab.inner_text("#night-range") == "2026-11-18 12:00 to 2026-11-19 12:00"
    assert bars(tab).total() == 1
    tab.click("#night a")
    tab.wait_for_selector("#detail[open] .verdict.good")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#detail", state="hidden")
    tab.click("#night-controls button:has-text('All')")
    assert bars(tab) == {"success": 5, "failure": 1, "out of memory": 2, "stopped": 1, "unknown": 1}
    lanes = tab.evaluate(LANES)
    assert "nightly-etl" in lanes
    assert len(lanes) == len(set(lanes)) == 8
    colours = tab.evaluate(
        "[...new Set([...document.querySelectorAll('#night a')].map((one) => "
        "getComputedStyle(one).backgroundColor))]"
    )
    assert len(colours) == 5, "the outcome is the colour"


def test_back_from_a_run_keeps_the_overview_and_the_focus(
    opened: Opener, ecs_dashboard: Path
) -> None:
    tab = opened(ecs_dashboard)
    tab.evaluate("document.querySelector('#morning table').dataset.kept = 'yes'")
    first = tab.locator("#runs tbody a").first
    address = first.evaluate("(one) => one.hash")
    first.click()
    tab.wait_for_selector("#detail[open] dl.facts")
    assert tab.evaluate("location.hash") == address
    tab.go_back()
    tab.wait_for_selector("#detail", state="hidden")
    assert tab.evaluate("location.hash") == ""
    ready(tab)
    assert tab.evaluate("document.querySelector('#morning table').dataset.kept") == "yes"
    assert tab.evaluate("document.activeElement === document.querySelector('#runs a')")


@pytest.mark.parametrize("place", ["#night a", "#runs tbody a"])
def test_a_run_is_a_link_that_opens_in_another_tab_with_the_filters(
    opened: Opener, ecs_dashboard: Path, place: str
) -> None:
    tab = opened(ecs_dashboard, "#outcome=failure")
    link = tab.locator(place).first
    assert (
        link.evaluate("(one) => one.href")
        == f"{ecs_dashboard.as_uri()}#outcome=failure&run=invoices-1"
    )
    with tab.context.expect_page() as waiting:
        link.click(button="middle")
    other = waiting.value
    other.wait_for_selector("#detail[open] dl.facts")
    assert other.evaluate("location.hash") == "#outcome=failure&run=invoices-1"
    assert not tab.is_visible("#detail")


def test_arrow_keys_move_between_the_bars_and_enter_opens_one(
    opened: Opener, ecs_dashboard: Path
) -> None:
    tab = opened(ecs_dashboard)
    tab.click("#night-controls button:has-text('All')")
    tab.keyboard.press("Tab")
    assert tab.evaluate(FOCUSED) == "nightly-etl, 2026-11-20 03:12, 14m 06s, out of memory"
    before = "nightly-etl, 2026-11-19"
    for key, expected in (
        ("ArrowLeft", before),
        ("ArrowDown", "laptop, "),
        ("ArrowDown", "invoices"),
    ):
        tab.keyboard.press(key)
        assert tab.evaluate(FOCUSED).startswith(expected)
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#detail[open] dl.facts")
    assert tab.evaluate("location.hash") == "#run=invoices-1"
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#detail", state="hidden")
    assert tab.evaluate(FOCUSED).startswith("invoices")
    tab.keyboard.press("Tab")
    assert not tab.evaluate("document.activeElement.closest('#night') !== null"), "one stop"


def test_filters_are_kept_in_the_address(opened: Opener, dashboard: Path) -> None:
    tab = opened(dashboard)
    tab.select_option("#family", "thumbnails")
    tab.select_option("#outcome", "success")
    tab.fill("#search", "batch-1")
    tab.wait_for_function("() => location.hash.includes('search')")
    tab.click("#runs th:has-text('Duration') button")
    address = tab.evaluate("location.hash")
    assert address == "#family=thumbnails&outcome=success&search=batch-1&sort=-ms"
    expected = count(tab)
    other = opened(dashboard, address)
    assert count(other) == expected < RUNS
    assert other.input_value("#family") == "thumbnails"
    assert other.get_attribute("#runs th:has-text('Duration')", "aria-sort") == "descending"
    other.click("#clear")
    wait_for_count(other, RUNS)
    assert other.evaluate("location.hash") in {"#sort=-ms", ""}


def test_days_clusters_and_tags_select_runs(opened: Opener, tmp_path: Path) -> None:
    places = (("data", "jobs"), ("data", "night"), ("shop", "night"))
    runs = [
        replace(one, record=replace(one.record, tags={"team": team}, cluster=cluster))
        for one, (team, cluster) in zip(shown_runs.night(), places, strict=True)
    ]
    tab = opened(page_of(tmp_path, *runs, more=MISSED))
    for id_, expected in (("#from", 2), ("#to", 1)):
        tab.fill(id_, "2026-11-19")
        wait_for_count(tab, expected)
    tab.click("#clear")
    wait_for_count(tab, 3)
    for id_, chosen, expected in (("#tag", "team=data", 2), ("#cluster", "night", 1)):
        tab.select_option(id_, chosen)
        wait_for_count(tab, expected)
    assert tab.evaluate("location.hash") == "#cluster=night&tag=team%3Ddata"


def test_the_selection_is_saved_as_csv(opened: Opener, tmp_path: Path) -> None:
    odd = replace(
        shown_runs.failure(),
        record=replace(shown_runs.failure().record, family='=1+1,"x"', task_id="odd"),
    )
    job = run_report(
        task_id="job",
        size=None,
        metrics={"vcpu_size": 8, "vcpu_share": 4},
        launch_type="EC2",
        batch=BatchJob(job_id="j"),
        finished_at=KILLED.finished_at,
    )
    tab = opened(page_of(tmp_path, *shown_runs.night(), odd, job))
    with tab.expect_download() as waiting:
        tab.click("#csv")
    with Path(waiting.value.path()).open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert waiting.value.suggested_filename == "task-runs.csv"
    assert len(rows) == 5
    by_id = {row["taskId"]: row for row in rows}
    assert (by_id["job"]["vcpuSize"], by_id["job"]["vcpuShare"]) == ("", "4"), "what it asked for"
    assert by_id["odd"]["family"] == '\'=1+1,"x"', "a spreadsheet does not run it"
    killed = by_id[KILLED.task_id]
    assert killed["outcome"] == "out of memory"
    assert killed["startedAt"] == KILLED.started_at
    numbers = float(killed["durationMs"]), float(killed["maxMemoryUsedMB"])
    assert numbers == (KILLED.metrics.duration_ms, KILLED.metrics.max_memory_used_mb)


def test_a_table_of_runs_says_which_of_them_may_count_mapped_files(
    opened: Opener, tmp_path: Path
) -> None:
    apart = {"memory_mapped_file_mb": AverageAndMaximum(avg=900, max=1700)}
    older = run_report(0, peak_mb=1900)
    newer = run_report(1, peak_mb=150, metrics=apart)
    mixed = opened(page_of(tmp_path, older, newer)).inner_text("#runs .note")
    assert mixed.startswith("The memory of 1 run may include pages of mapped files")
    assert not opened(page_of(tmp_path, newer)).locator("#runs .note").count()


def test_families_in_several_accounts_are_apart_and_accounts_can_be_chosen(
    opened: Opener, tmp_path: Path
) -> None:
    places = [
        ("111122223333", "eu-west-1"),
        ("444455556666", "eu-west-1"),
        ("444455556666", "us-east-1"),
    ]
    reports = [
        run_report(
            number, account_id=account, region=region, task_id=f"{account}-{region}-{number}"
        )
        for account, region in places
        for number in range(2)
    ]
    tab = opened(page_of(tmp_path, *reports, more=MISSED))
    assert "6 runs of 3 families" in tab.inner_text("#about")
    sized = tab.locator("#sizing td.family").all_inner_texts()
    assert sorted(sized) == [f"nightly ({account}, {region})" for account, region in places]
    heads = tab.locator("#runs th").all_inner_texts()
    assert {"Account", "Region"} <= {head.strip() for head in heads}
    tab.select_option("#account", "444455556666")
    wait_for_count(tab, 4)
    tab.select_option("#region", "us-east-1")
    wait_for_count(tab, 2)


def test_a_task_with_two_reports_is_paid_once_and_shows_both(
    opened: Opener, tmp_path: Path
) -> None:
    """The report of each container has the cost of the whole task until then."""
    both = [
        run_report(
            container=Container(name=name),
            task_id="both",
            cost=Cost(usd=usd),
            metrics={"duration_ms": ms},
        )
        for name, usd, ms in (("batch", 0.5, 500_000), ("side", 0.25, 250_000))
    ]
    page = page_of(tmp_path, *both, run_report(1, cost=Cost(usd=1)), more=MISSED)
    tab = opened(page, "#run=both")
    assert "$1.50\nCost of these runs" in tab.inner_text("#tiles")
    shown = tab.inner_text("#detail-body .run-head + .note")
    assert shown.startswith("Container ")
    other = "side" if "Container batch" in shown else "batch"
    tab.click(f"#detail-body .run-head + .note a:has-text('{other}')")
    assert f"Container {other}." in tab.inner_text("#detail-body .run-head + .note")
    assert tab.evaluate("location.hash") == f"#run=both%2F{other}"
    again = opened(page, f"#run=both%2F{other}")
    assert f"Container {other}." in again.inner_text("#detail-body .run-head + .note")


def test_the_night_chart_says_how_many_runs_it_does_not_draw(
    opened: Opener, tmp_path: Path
) -> None:
    hour_ns = 3600 * NS_PER_SECOND
    started = [format_ms(START_NS + number * hour_ns // 2000) for number in range(6010)]
    reports = [
        run_report(task_id=f"task-{number}", started_at=one) for number, one in enumerate(started)
    ]
    tab = opened(page_of(tmp_path, *reports))
    left_out = tab.inner_text("#night-left-out")
    assert left_out.startswith("The oldest 10 of 6,010 runs in this period are not drawn")
    assert bars(tab).total() == 6000


def test_a_missed_run_is_a_mark_and_a_row_of_a_table(opened: Opener, tmp_path: Path) -> None:
    missed = shown_runs.missed_notice()
    long = {"due_at": "2026-11-20T05:00:00.000Z", "message": "without-a-break" * 100}
    alone = replace(missed, family="alone", notice=replace(missed.notice, **long))
    notices = b"\n".join(encode_notice_line(one) for one in (missed, alone))
    tab = opened(page_of(tmp_path, *shown_runs.night(), more=notices))
    marks = tab.locator("#night .lane .mark")
    assert marks.count() == 2
    assert marks.first.get_attribute("aria-label") == missed.notice.message
    assert tab.evaluate(LANES) == ["nightly-etl", "alone"]
    assert "2 missed" in (tab.get_attribute("#night [role=group]", "aria-label") or "")
    assert missed.notice.message in tab.inner_text("#notices tbody")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.click("#night-earlier")
    assert tab.inner_text("#notices") == ""
    tab.click("#night-later")
    tab.select_option("#outcome", "out of memory")
    ready(tab)
    assert marks.count() == 0


def test_a_row_shows_the_course_of_the_memory_and_its_share(
    opened: Opener, ecs_dashboard: Path
) -> None:
    """A row of the table shows the course of the memory and its share of the limit."""
    tab = opened(ecs_dashboard)
    row = tab.locator("#runs tbody tr", has_text="invoices")
    course = row.locator(".course path").get_attribute("d") or ""
    assert course.startswith("M0 ")
    assert course.endswith("V4H100"), "the memory grows to its peak"
    assert course.count("H") == 24
    assert (
        row.locator(".course .bar i").get_attribute("style")
        == "width: 80.8105%; --tone: var(--memory);"
    )
    unmeasured = tab.locator("#runs tbody tr", has_text="unmeasured-one")
    assert unmeasured.locator("svg, .bar").count() == 0


@LOOKS
def test_the_overview_and_an_opened_run_have_no_violation(
    opened: Opener, ecs_dashboard: Path, theme: str, width: int
) -> None:
    tab = opened(ecs_dashboard, theme=theme, width=width)
    tab.locator("#sizing td.advice button").first.click()
    assert violations(tab) == []
    tab = opened(
        ecs_dashboard, f"#run={shown_runs.out_of_memory().record.task_id}", theme=theme, width=width
    )
    tab.wait_for_selector("#detail[open] .facts")
    assert violations(tab) == []
