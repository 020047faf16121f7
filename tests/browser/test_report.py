"""The page in a real browser."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page

from profiler.record.record_model import Container
from tests.awkward_runs import RUNS as RUNS_OF_EACH_KIND
from tests.awkward_runs import recommended
from tests.browser.conftest import (
    LIMIT_MS,
    MANY,
    MISSED,
    OVERFLOW,
    RUNS,
    Opener,
    count,
    make_page,
    page_of,
    ready,
    wait_for_count,
)
from tests.report_page import INJECTIONS
from tests.runs import lines
from tests.runs import report as sized_run
from tools.example_runs import generate_runs

pytestmark = pytest.mark.browser
# At the first cell of the morning screen: the tables of a print.
PRINT_EARLY = """new MutationObserver((_, observer) => {
  if (!document.querySelector("#morning tbody a")) return;
  observer.disconnect();
  window.dispatchEvent(new Event("beforeprint"));
  setTimeout(() => { window.printed = document.querySelectorAll("#all table").length; }, 0);
}).observe(document, { childList: true, subtree: true });"""


def test_the_overview_is_drawn_without_the_chart_library(opened: Opener, dashboard: Path) -> None:
    tab = opened(dashboard)
    families = {report.record.family for report, _ in generate_runs(RUNS, max_points=300)}
    assert tab.locator("#morning tbody tr").count() == len(families)
    assert tab.locator("#morning td.count").count() == 7, "nights"
    assert tab.locator("#morning a").count() > 5 * len(families)
    counts = tab.locator("#morning td.count").all_inner_texts()
    assert sum(int(count) for count in counts) == RUNS
    assert not tab.evaluate("'Plotly' in window")


def test_no_page_is_wider_than_its_window(
    opened: Opener, dashboard: Path, ecs_dashboard: Path
) -> None:
    """Local runs, and runs with places and costs: a table that does not fit has fewer columns."""
    for page in (dashboard, ecs_dashboard):
        tab = opened(page)
        for width in (390, 641, 700, 900, 981, 1115, 1161, 1440, 1441, 1700):
            tab.set_viewport_size({"width": width, "height": 900})
            assert tab.evaluate(OVERFLOW) == 0, (page, width)
        assert tab.locator("#runs th:visible").count() == tab.locator("#runs th").count()


WIDER_THAN_ITS_PANEL = """[...document.querySelectorAll('table:not(.nights table)')].filter((one) =>
    one.getBoundingClientRect().right > one.parentElement.getBoundingClientRect().right + 0.5
).map((one) => one.closest('[id]').id)"""
# From a small phone to a large screen, with both sides of each width that changes a table.
WIDTHS: Sequence[int] = (
    *(320, 360, 389, 390, 640, 641, 760, 761, 980, 981, 1010, 1011, 1160, 1161, 1180, 1181),
    *(1240, 1241, 1300, 1301, 1440, 1441, 1479, 1480, 1679, 1680, 1900),
)


def test_no_table_of_awkward_runs_is_wider_than_its_panel(opened: Opener, tmp_path: Path) -> None:
    """Jobs above their request, shared GPUs, amounts on Spot, runs out of memory: each has the
    longest text of a column.
    """
    made = [recommended(make) for make in RUNS_OF_EACH_KIND.values()]
    named = [
        replace(one, record=replace(one.record, family=name, task_id=f"{number:032x}"))
        for number, (name, one) in enumerate(zip(RUNS_OF_EACH_KIND, made, strict=True))
    ]
    # In one night, or the runs of a month would cost less than a tenth of a cent.
    (tmp_path / "lines").write_bytes(lines(named).replace(b"2025-11-20T", b"2026-11-20T"))
    tab = opened(make_page(tmp_path / "page.html", "--from", str(tmp_path / "lines")))
    on_spot = list(RUNS_OF_EACH_KIND).index("Spot")
    for address, shown in (("", "#runs"), (f"#run={on_spot:032x}", "#detail[open] dl.facts")):
        tab.evaluate("(one) => { location.hash = one }", address)
        tab.wait_for_selector(shown)
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            assert tab.evaluate(WIDER_THAN_ITS_PANEL) == [], (address, width)
            assert tab.evaluate(OVERFLOW) == 0, (address, width)


def test_no_table_of_a_workflow_is_wider_than_a_phone(opened: Opener, tmp_path: Path) -> None:
    """Upper-case names of families, hours, and gigabytes, without GPUs."""
    runs_of_night = [
        sized_run(number, family="BISMARK.BASERECALIBRATOR", peak_mb=36_557, size=(16, 65_536))
        for number in range(3)
    ]
    tab = opened(page_of(tmp_path, *runs_of_night))
    for width in (320, 360, 389, 390, 640):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate(WIDER_THAN_ITS_PANEL) == [], width


def open_run(tab: Page, family: str) -> None:
    tab.click(f"#runs tbody tr:has-text('{family}') a >> nth=0")
    tab.wait_for_selector(
        "#detail[open] #run-plot .scatterlayer path.js-line >> nth=0", state="attached"
    )


def test_dark_and_light(opened: Opener, dashboard: Path) -> None:
    tab = opened(dashboard, theme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    text = "getComputedStyle(document.querySelector('#morning tbody th span')).color"
    dark = tab.evaluate(ground), tab.evaluate(text)
    tab.click("#theme")
    ready(tab)
    light = tab.evaluate(ground), tab.evaluate(text)
    assert all(one != other for one, other in zip(dark, light, strict=True))
    tab.emulate_media(color_scheme="light")
    tab.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_selector("html[data-theme=dark]", state="attached")
    ready(tab)
    dark_ground, dark_text = dark
    assert tab.evaluate(ground) == dark_ground
    assert tab.evaluate(text) == dark_text


def test_printing_at_once_has_all_tables_and_an_old_browser_a_sentence(
    browser: Browser, dashboard: Path
) -> None:
    tab = browser.new_page()
    tab.set_default_timeout(LIMIT_MS)
    tab.add_init_script(PRINT_EARLY)
    tab.goto(dashboard.as_uri())
    tab.wait_for_function("() => window.printed !== undefined")
    assert tab.evaluate("window.printed") == 4
    tab.add_init_script("delete window.DecompressionStream")
    tab.goto(dashboard.as_uri())
    assert tab.inner_text("#unsupported").startswith("This page needs a newer browser")
    tab.close()


def test_charts_are_whole_on_paper_and_as_wide_as_before_after_it(
    opened: Opener, dashboard: Path
) -> None:
    tab = opened(dashboard, theme="dark")
    open_run(tab, "nightly-etl")
    width = "document.querySelector('#run-plot .main-svg').clientWidth"
    before = tab.evaluate(width)
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    ready(tab)
    assert 600 < tab.evaluate(width) < 700
    assert tab.evaluate("document.getElementById('run-plot').offsetHeight") < 1030
    tab.emulate_media(media="print")
    assert (
        tab.evaluate(
            "Math.max(...[...document.querySelectorAll('main table')].map((one) => "
            "one.offsetWidth))"
        )
        < 700
    )
    tab.emulate_media(media="screen")
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    ready(tab)
    assert tab.evaluate(width) == before
    assert tab.get_attribute("html", "data-theme") == "dark"


def test_text_from_records_is_only_text(opened: Opener, tmp_path: Path) -> None:
    reports = []
    for day, text in enumerate(INJECTIONS, start=1):
        names: dict[str, Any] = {
            "task_id": text,
            "family": text,
            "cluster": text,
            "container": Container(name=text),
        }
        started_at = f"2026-11-{day:02d}T06:00:00.000Z"
        reports.append(
            sized_run(
                labels={text: text}, status="failure", started_at=started_at, region=None, **names
            )
        )
    tab = opened(page_of(tmp_path, *reports, more=MISSED), width=400)
    labels = tab.locator("#morning tbody th").all_text_contents()
    assert len(labels) == len(INJECTIONS)
    assert {"&lt;i&gt;", "2026-01-01", "1", "__proto__"} <= set(labels)
    assert any(label.startswith("<b>bold</b><br>") for label in labels)
    assert tab.locator("#all img, #all svg a").count() == 0
    addresses = tab.evaluate(
        "[...document.querySelectorAll('#all a')].map((one) => one.getAttribute('href'))"
    )
    assert all(one.startswith(f"{tab.url}#run=") for one in addresses)
    for place in range(len(INJECTIONS)):
        tab.click(f"#runs tbody tr:nth-child({place + 1}) a")
        tab.wait_for_selector("#detail[open] dl")
        assert tab.locator("#detail a, #detail img").count() == 0
        tab.click("#close")
    tab.select_option("#family", INJECTIONS[0])
    wait_for_count(tab, 1)
    ready(tab)
    assert tab.evaluate("window.hurt") is None
    assert tab.evaluate(OVERFLOW) <= 0
    ready(tab)


def test_five_thousand_runs(opened: Opener, long_dashboard: Path) -> None:
    assert long_dashboard.stat().st_size < 8e6
    tab = opened(long_dashboard)
    assert count(tab) == MANY
    assert tab.locator("#runs tbody tr").count() == 100
    assert tab.inner_text("#page-range") == f"1 to 100 of {MANY:,}"
    newest = tab.inner_text("#runs tbody tr >> nth=0")
    tab.click("#page-after")
    assert tab.inner_text("#page-range") == f"101 to 200 of {MANY:,}"
    assert tab.inner_text("#runs tbody tr >> nth=0") != newest
    tab.click("#page-before")
    assert tab.is_disabled("#page-before")
    assert tab.inner_text("#runs tbody tr >> nth=0") == newest


LINES_OF_FAMILY = """(() => {
    const range = document.createRange();
    range.selectNodeContents(document.querySelector("#sizing td.family"));
    return new Set([...range.getClientRects()].filter((box) => box.width).map((box) => box.top)).size;
})()"""


@pytest.mark.parametrize(
    ("family", "lines"), [("markduplicates", 1), ("samtools_flagstats_of_all", 2)]
)
def test_on_a_phone_a_name_is_broken_between_its_words(
    tmp_path: Path, opened: Opener, family: str, lines: int
) -> None:
    runs = [sized_run(number, family=family) for number in range(6)]
    tab = opened(page_of(tmp_path, *runs, more=MISSED), width=390)
    assert tab.evaluate(LINES_OF_FAMILY) == lines
    table = "document.querySelector('#sizing table')"
    assert tab.evaluate(f"{table}.offsetWidth <= {table}.parentElement.clientWidth")


def test_the_right_size_is_in_the_table_and_opens_to_sizes_and_reasons(
    tmp_path: Path, opened: Opener
) -> None:
    tab = opened(page_of(tmp_path, *(sized_run(number) for number in range(6)), more=MISSED))
    toggle = tab.locator("#sizing td.advice button")
    assert toggle.inner_text().replace("\u00a0", " ") == "0.25 vCPU, 512 MB"
    assert tab.locator("#sizing td.change").inner_text().startswith("saves 75\u00a0%")
    assert tab.locator("#sizing .opened").count() == 0
    toggle.press("Enter")
    assert toggle.get_attribute("aria-expanded") == "true"
    reason = tab.locator("#sizing .reasons li").first.inner_text().replace("\u00a0", " ")
    assert reason.startswith("6 runs in 5d 00h used up to 400 MB or more of memory (sampled)")
    marks = tab.locator("#sizing .opened tbody td:last-child").all_inner_texts()
    assert {"current", "recommended"} <= set(marks)
    tab.locator("#runs tbody a").first.click()
    tab.locator("#detail-body", has_text="0.25 vCPU, 512 MB recommended: saves 75 %").wait_for()
