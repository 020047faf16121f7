"""The page in a real browser. Screenshots are stored in each test's tmp_path."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page

from profiler.history.history_points import Point
from profiler.history.run_database import HistoryStore
from profiler.record.record_model import Container, Distribution, Interval, Metrics, Record, Report, encode
from tests.browser.conftest import MANY, RUNS, Opener, make_page, ready
from tests.fakes import FakeClock
from tests.runs import lines
from tests.runs import report as sized_run
from tools.example_runs import runs

pytestmark = pytest.mark.browser
INJECTIONS = (
    "</script><script>window.hurt=1</script>",
    "<img src=x onerror='window.hurt=1'>",
    "<b>bold</b><br><a href='javascript:window.hurt=1'>link</a>",
    "&lt;i&gt;",
    "%{y}$\\alpha$",
    "2026-01-01",
    "1",
    "constructor",
    "__proto__",
    "\u202egnorw\u2028",
    "x" * 300,
)
# Returns the number of colours in a heatmap's image.
PAINTED = """async (id) => {
  const image = new Image();
  image.src = document.querySelector(`#${id} .hm image`).getAttribute("href");
  await image.decode();
  const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const data = canvas.getImageData(0, 0, image.naturalWidth, image.naturalHeight).data;
  const colours = new Set();
  for (let at = 0; at < data.length; at += 4) if (data[at + 3]) colours.add(data.slice(at, at + 3).join());
  return colours.size;
}"""
# Returns the largest difference of a channel between a heatmap's cell in the first row and its panel.
CONTRAST = """async (id) => {
  const image = new Image();
  const place = document.getElementById(id);
  image.src = place.querySelector(".hm image").getAttribute("href");
  await image.decode();
  const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const panel = getComputedStyle(place.closest(".panel")).backgroundColor.match(/\\d+/g);
  const cell = canvas.getImageData(5, 5, 1, 1).data;
  return cell[3] ? Math.max(...panel.map((value, at) => Math.abs(value - cell[at]))) : 0;
}"""
# Returns [rows, columns, cells with a value] of Plotly's data.
CELLS = """(id) => { const z = document.getElementById(id).data[0].z;
  return [z.length, z[0].length, z.flat().filter((cell) => cell !== null).length]; }"""
# At the first cell of the morning screen: whether the chart library has been evaluated, and the charts of a print.
PRINT_EARLY = """new MutationObserver((_, observer) => {
  if (!document.querySelector("#morning tbody a")) return;
  observer.disconnect();
  window.hadLibrary = "Plotly" in window;
  window.dispatchEvent(new Event("beforeprint"));
  setTimeout(() => { window.printed = document.querySelectorAll(".chart .plot-container").length; }, 0);
}).observe(document, { childList: true, subtree: true });"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def count(tab: Page) -> int:
    return int(tab.get_attribute("#runs", "data-count") or "-1")


def wait_for_count(tab: Page, expected: int) -> None:
    tab.wait_for_selector(f"#runs[data-count='{expected}']")


def families() -> dict[str, int]:
    found: dict[str, int] = {}
    for report, _ in runs(RUNS, max_points=300):
        family = report.record.family or ""
        found[family] = found.get(family, 0) + 1
    return found


def test_the_charts_are_drawn(opened: Opener, dashboard: Path, tmp_path: Path) -> None:
    tab = opened(dashboard)
    for heat in ("heat-cpu", "heat-memory"):
        rows, columns, cells = tab.evaluate(CELLS, heat)
        assert rows == len(families())
        assert columns == 7, "nights"
        assert cells > 5 * len(families())
        assert tab.evaluate(PAINTED, heat) > 5
        assert tab.evaluate(
            "(id) => { const t = document.getElementById(id).data[0]; return [t.zmin, t.zmax]; }", heat
        ) == [0, 100]
    assert tab.locator("#count .bars .point path").count() >= 7
    assert tab.locator("#duration .scatterlayer .point").count() == cells
    assert (
        tab.locator("#count").evaluate("place => place.data.flatMap((trace) => trace.y).reduce((a, b) => a + b)")
        == RUNS
    )
    tab.screenshot(path=tmp_path / "light.png", full_page=True)


def test_a_cell_is_the_mean_of_its_runs(opened: Opener, tmp_path: Path) -> None:
    lines = []
    for place, (percent, hour) in enumerate(((20.0, 6), (40.0, 6), (90.0, 18))):
        metrics = Metrics(cpu_utilization_percent=Distribution(avg=percent))
        record = Record(
            task_id=str(place),
            family="etl",
            container=Container(name="batch"),
            status="success",
            started_at=f"2026-11-20T{hour:02d}:00:0{place}.000Z",
            metrics=metrics,
        )
        lines.append(encode(Report(time="2026-11-21T00:00:00.000Z", type="task.report", record=record)))
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join(lines))
    tab = opened(make_page(tmp_path / "page.html", "--from", str(file)))
    assert tab.inner_text("#heat-memory") == "No run in this selection has a measured peak memory percentage."
    tab.click("button[data-statistic=average] >> nth=0")
    ready(tab)
    cells = tab.evaluate("document.getElementById('heat-cpu').data[0].z[0].filter((cell) => cell !== null)")
    assert cells == [30, 90]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_used_differs_visibly_from_nothing_measured(opened: Opener, tmp_path: Path, theme: str) -> None:
    idle = sized_run(peak_mb=0, metrics={"vcpu_used": Distribution(max=0.0)})
    (tmp_path / "lines").write_bytes(lines([idle]))
    tab = opened(make_page(tmp_path / "page.html", "--from", str(tmp_path / "lines")), theme=theme)
    for heat in ("heat-cpu", "heat-memory"):
        assert tab.evaluate(CELLS, heat)[2] == 1
        assert tab.evaluate(CONTRAST, heat) >= 16


def test_no_run_is_lost_in_the_hour_that_comes_twice(opened: Opener, tmp_path: Path) -> None:
    """In the night in which summer time ends, later runs have an earlier local time."""
    lines = []
    for place, minute in enumerate(("00:30", "00:50", "01:05", "01:10")):
        record = Record(
            task_id=str(place),
            family="etl",
            container=Container(name="batch"),
            status="running" if place == 3 else "success",
            started_at=f"2026-10-25T{minute}:00.000Z",
            metrics=Metrics(duration_ms=1000.0 * 10**place, cpu_utilization_percent=Distribution(avg=10.0)),
        )
        lines.append(encode(Report(time="2026-10-25T02:00:00.000Z", type="task.report", record=record)))
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join(lines))
    tab = opened(make_page(tmp_path / "page.html", "--from", str(file)), zone="Europe/Berlin")
    counted = tab.locator("#count").evaluate("place => place.data.flatMap((trace) => trace.y).reduce((a, b) => a + b)")
    assert counted == 4
    tab.click("button[data-statistic=average] >> nth=0")
    ready(tab)
    cells = tab.evaluate("document.getElementById('heat-cpu').data[0].z[0].filter((cell) => cell !== null)")
    assert set(cells) == {10}
    tile = tab.locator("#tiles .tile", has_text="Median duration").locator("b").inner_text()
    assert tile == "10.0 s", "of the three that have ended"


def test_filters_hold_for_everything(opened: Opener, dashboard: Path) -> None:
    tab = opened(dashboard)
    assert count(tab) == RUNS
    tab.select_option("#family", label="thumbnails")
    wait_for_count(tab, families()["thumbnails"])
    ready(tab)
    assert tab.evaluate(CELLS, "heat-cpu")[0] == 1
    assert tab.inner_text("#tiles .tile:first-child b") == str(families()["thumbnails"])
    assert tab.locator("#sizing tbody tr").count() == 1
    tab.select_option("#family", "")
    tab.select_option("#outcome", "failure")
    ready(tab)
    assert 0 < count(tab) < RUNS
    assert set(tab.locator("#runs .outcome").all_inner_texts()) == {"failure"}


def test_search_and_sorting(opened: Opener, dashboard: Path) -> None:
    tab = opened(dashboard)
    tab.fill("#search", "MAIL success")
    expected = sum(
        1
        for one, _ in runs(RUNS, max_points=300)
        if one.record.family == "mail-digest" and one.record.status == "success"
    )
    wait_for_count(tab, expected)
    tab.fill("#search", "no such thing")
    wait_for_count(tab, 0)
    tab.fill("#search", "")
    wait_for_count(tab, RUNS)
    tab.click("#runs th:has-text('Peak memory') button")
    assert tab.get_attribute("#runs th:has-text('Peak memory')", "aria-sort") == "descending"
    assert tab.inner_text("#runs tbody tr:first-child td:nth-child(2)") == "train-ranker"


def open_run(tab: Page, family: str) -> None:
    tab.click(f"#runs tbody tr:has-text('{family}') a >> nth=0")
    tab.wait_for_selector("#detail[open] #run-plot .scatterlayer path.js-line >> nth=0", state="attached")


def lines_of(tab: Page) -> dict[str, list[list[float | None]]]:
    """The lines of the run's chart by name."""
    found: dict[str, list[list[float | None]]] = tab.evaluate(
        "Object.fromEntries(document.getElementById('run-plot').data.map(({ name, x, y }) => [name, [[...x], [...y]]]))"
    )
    return found


def titles(tab: Page) -> list[str]:
    texts: list[str] = tab.evaluate(
        "document.getElementById('run-plot').layout.annotations.map((one) => one.text.match(/<b>(.*?)<.b>/)?.[1])"
    )
    return [text for text in texts if text]


def test_a_click_on_a_run_shows_its_time_series(opened: Opener, dashboard: Path, tmp_path: Path) -> None:
    tab = opened(dashboard)
    open_run(tab, "nightly-etl")
    assert len(lines_of(tab)["mb"][1]) > 100
    annotations = tab.evaluate("document.getElementById('run-plot').layout.annotations.map((one) => one.text)")
    assert "limit 4 GB" in annotations, "its memory peak is near the limit"
    tab.screenshot(path=tmp_path / "run.png")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#detail", state="hidden")
    assert tab.locator("#run-plot").count() == 0


def test_each_measured_quantity_has_a_chart(opened: Opener, dashboard: Path, tmp_path: Path) -> None:
    tab = opened(dashboard)
    everywhere = ["CPU, in vCPU", "Memory", "I/O, in MB/s"]
    devices = ["Mean GPU utilization", "GPU memory, all GPUs"]
    for family, expected in (("nightly-etl", everywhere), ("train-ranker", [*everywhere, *devices])):
        open_run(tab, family)
        assert titles(tab) == expected
        tab.screenshot(path=tmp_path / f"{family}.png")
        tab.click("#close")


def test_rates_and_readings_reach_back_to_the_last_that_was_known(opened: Opener, tmp_path: Path) -> None:
    """In MB/s: 2 MB in the first second, 6 MB in the next three. The third second has no measurement."""
    mb = 2**20
    points = (
        Point(elapsed_ms=1000, vcpu_used=0.5, memory_used_bytes=mb, block_read_bytes=2 * mb, gpu_percent=40.0),
        Point(elapsed_ms=2000, vcpu_used=0.5, memory_used_bytes=mb),
        Point(elapsed_ms=4000, vcpu_used=0.5, memory_used_bytes=mb, block_read_bytes=6 * mb, gpu_percent=60.0),
        Point(elapsed_ms=7000, vcpu_used=0.5, memory_used_bytes=mb, block_read_bytes=0),
        Point(elapsed_ms=9000, vcpu_used=0.5, memory_used_bytes=mb, gpu_percent=80.0),
    )
    record = Record(
        task_id="a",
        container=Container(name="batch"),
        status="success",
        started_at="2026-11-20T06:00:00.000Z",
        metrics=Metrics(duration_ms=9000),
    )
    report = Report(time="2026-11-20T06:00:09.000Z", type="task.report", record=record)
    line = encode(report)
    file = tmp_path / "history.sqlite3"
    HistoryStore(file, FakeClock()).add(line, report, points, max_runs=1)
    tab = opened(make_page(tmp_path / "page.html", "--history", str(file), "--run", "a"))
    series = lines_of(tab)
    assert series["read"] == [[0, 1000, 4000, 7000, 9000], [2, 2, 2, 0, None]]
    # The gap before the last GPU reading is too long to be closed.
    assert series["gpu"] == [[0, 1000, 4000, 7000, 9000], [40, 40, 60, None, 80]]


def test_a_run_without_io_and_gpus_has_no_charts_of_them(opened: Opener, tmp_path: Path) -> None:
    record = Record(
        task_id="a", container=Container(name="batch"), status="running", started_at="2026-11-20T06:00:00.000Z"
    )
    interval = Interval(vcpu_used=Distribution(avg=0.5), memory_used_mb=Distribution(max=10.0))
    checkpoint = replace(record, interval=interval)
    file = tmp_path / "lines"
    file.write_bytes(encode(Report(time="2026-11-20T06:01:00.000Z", type="task.checkpoint", record=checkpoint)))
    tab = opened(make_page(tmp_path / "page.html", "--from", str(file), "--run", "a"))
    assert titles(tab) == ["CPU, in vCPU", "Memory"]


def test_one_run_alone(opened: Opener, history: Path, tmp_path: Path) -> None:
    *_, (last, _) = runs(RUNS, max_points=300)
    page = make_page(tmp_path / "one.html", "--history", str(history), "--run", last.record.task_id)
    tab = opened(page, width=400)
    assert tab.is_hidden("#all")
    assert tab.inner_text("#one h2 >> nth=0") == last.record.family
    assert tab.locator("#run-plot .scatterlayer path.js-line").count() > 2
    assert tab.evaluate(OVERFLOW) <= 0
    tab.screenshot(path=tmp_path / "one.png", full_page=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_scrolls_one_way_only(opened: Opener, dashboard: Path, tmp_path: Path, theme: str) -> None:
    tab = opened(dashboard, width=400, theme=theme)
    assert tab.evaluate(OVERFLOW) <= 0
    assert tab.get_attribute("html", "data-theme") == theme
    tab.screenshot(path=tmp_path / f"phone-{theme}.png", full_page=True)
    tab.click("#runs tbody tr a >> nth=0")
    tab.wait_for_selector("#detail[open] #run-plot .scatterlayer path.js-line >> nth=0", state="attached")
    assert tab.evaluate(OVERFLOW) <= 0
    assert tab.evaluate(
        "document.getElementById('detail').scrollWidth <= document.getElementById('detail').clientWidth"
    )


def test_dark_and_light(opened: Opener, dashboard: Path, tmp_path: Path) -> None:
    tab = opened(dashboard, theme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    text = "getComputedStyle(document.querySelector('#heat-cpu .ytick text')).fill"
    dark = tab.evaluate(ground), tab.evaluate(text)
    tab.screenshot(path=tmp_path / "dark.png", full_page=True)
    tab.click("#theme")
    ready(tab)
    light = tab.evaluate(ground), tab.evaluate(text)
    assert all(one != other for one, other in zip(dark, light, strict=True))
    tab.emulate_media(color_scheme="light")
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_selector("html[data-theme=dark]", state="attached")
    ready(tab)
    assert (tab.evaluate(ground), tab.evaluate(text)) == dark


def test_on_paper_it_is_light(opened: Opener, dashboard: Path, tmp_path: Path) -> None:
    tab = opened(dashboard, theme="dark")
    assert tab.pdf(path=tmp_path / "page.pdf").startswith(b"%PDF")
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    ready(tab)
    assert tab.get_attribute("html", "data-theme") == "light"
    tab.emulate_media(media="print")
    assert tab.is_hidden("#filters")
    assert tab.is_visible("#heat-cpu .hm image")


def test_the_first_chart_needs_no_library_and_printing_at_once_has_all_charts(
    browser: Browser, dashboard: Path
) -> None:
    tab = browser.new_page()
    tab.add_init_script(PRINT_EARLY)
    tab.goto(dashboard.as_uri())
    tab.wait_for_function("window.printed !== undefined")
    assert not tab.evaluate("window.hadLibrary")
    assert tab.evaluate("window.printed") == 4
    tab.close()


def test_charts_are_whole_on_paper_and_as_wide_as_before_after_it(opened: Opener, dashboard: Path) -> None:
    tab = opened(dashboard, theme="dark")
    widths = "[...document.querySelectorAll('.chart')].map((one) => one.querySelector('.main-svg').clientWidth)"
    before = tab.evaluate(widths)
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    ready(tab)
    on_paper = tab.evaluate(widths)
    assert len(set(on_paper)) == 1
    assert 600 < on_paper[0] < 700
    assert all(
        height < 1030 for height in tab.evaluate("[...document.querySelectorAll('.chart')].map((o) => o.offsetHeight)")
    )
    tab.emulate_media(media="print")
    assert tab.evaluate("Math.max(...[...document.querySelectorAll('main table')].map((one) => one.offsetWidth))") < 700
    tab.emulate_media(media="screen")
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    ready(tab)
    assert tab.evaluate(widths) == before
    assert tab.get_attribute("html", "data-theme") == "dark"


def test_text_from_records_is_only_text(opened: Opener, tmp_path: Path) -> None:
    lines = []
    for day, text in enumerate(INJECTIONS, start=1):
        record = Record(
            task_id=text,
            family=text,
            cluster=text,
            labels={text: text},
            container=Container(name=text),
            status="failure",
            started_at=f"2026-11-{day:02d}T06:00:00.000Z",
            metrics=Metrics(
                duration_ms=1000,
                memory_size_mb=512,
                max_memory_used_mb=100,
                vcpu_size=1,
                vcpu_used=Distribution(max=0.5),
                memory_utilization_percent=Distribution(avg=50.0),
            ),
        )
        lines.append(encode(Report(time="2026-11-20T06:00:00.000Z", type="task.report", record=record)))
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join(lines))
    tab = opened(make_page(tmp_path / "page.html", "--from", str(file)), width=400)
    assert tab.evaluate(CELLS, "heat-cpu")[0] == len(INJECTIONS)
    labels = tab.locator("#heat-cpu .ytick text").all_text_contents()
    assert len(labels) == len(INJECTIONS)
    assert {"&lt;i&gt;", "2026-01-01", "1", "__proto__"} <= set(labels)
    assert any(label.startswith("<b>bold</b><br>") for label in labels)
    assert tab.locator("#all img, #all svg a").count() == 0
    addresses = tab.evaluate("[...document.querySelectorAll('#all a')].map((one) => one.getAttribute('href'))")
    assert all(one.startswith(f"{tab.url}#run=") for one in addresses)
    for place in range(len(INJECTIONS)):
        tab.click(f"#runs tbody tr:nth-child({place + 1}) a")
        tab.wait_for_selector("#detail[open] dl")
        assert tab.locator("#detail a, #detail img").count() == 0
        tab.click("#close")
    tab.select_option("#family", INJECTIONS[0])
    wait_for_count(tab, 1)
    ready(tab)
    assert tab.evaluate(PAINTED, "heat-cpu") > 0  # a single cell has a size, too
    tab.hover("#heat-cpu .nsewdrag")
    tab.screenshot(path=tmp_path / "hover.png")
    tab.wait_for_selector("#heat-cpu .hoverlayer text")
    assert INJECTIONS[0] in (tab.locator("#heat-cpu .hoverlayer .hovertext").text_content() or "")
    assert tab.evaluate("window.hurt") is None
    assert tab.evaluate(OVERFLOW) <= 0
    ready(tab)


def test_five_thousand_runs(opened: Opener, long_dashboard: Path, dashboard: Path, tmp_path: Path) -> None:
    for file, number in ((dashboard, RUNS), (long_dashboard, MANY)):
        tab = opened(file)
        marks = {
            name: tab.get_attribute("html", f"data-{name}") for name in ("first-heatmap", "usage-heatmap", "ready")
        }
        size_mb = file.stat().st_size / 1e6
        print(f"{number} runs: {size_mb:.1f} MB, milliseconds: {marks}")  # noqa: T201  measured, not asserted
        assert count(tab) == number
        assert size_mb < 8
        assert tab.evaluate(PAINTED, "heat-cpu") > 5
        assert tab.locator("#runs tbody tr").count() == 100
    assert tab.inner_text("#page-range") == f"1 to 100 of {MANY}"
    newest = tab.inner_text("#runs tbody tr >> nth=0")
    tab.click("#page-after")
    assert tab.inner_text("#page-range") == f"101 to 200 of {MANY}"
    assert tab.inner_text("#runs tbody tr >> nth=0") != newest
    tab.click("#page-before")
    assert tab.is_disabled("#page-before")
    assert tab.inner_text("#runs tbody tr >> nth=0") == newest
    tab.screenshot(path=tmp_path / "many.png")


def test_the_right_size_is_in_the_table_and_opens_to_sizes_and_reasons(tmp_path: Path, opened: Opener) -> None:
    file = tmp_path / "lines"
    file.write_bytes(lines(sized_run(number) for number in range(6)))
    tab = opened(make_page(tmp_path / "page.html", "--from", str(file)))
    toggle = tab.locator("#sizing td.advice button")
    assert toggle.inner_text().replace("\u00a0", " ") == "0.25 vCPU, 512 MB"
    assert tab.locator("#sizing td.change").inner_text().startswith("saves 75 %")
    assert tab.locator("#sizing .opened").count() == 0
    toggle.press("Enter")
    assert toggle.get_attribute("aria-expanded") == "true"
    assert (
        tab.locator("#sizing .reasons li")
        .first.inner_text()
        .startswith("6 runs used at most 400 MB of memory (sampled)")
    )
    marks = tab.locator("#sizing .opened tbody td:last-child").all_inner_texts()
    assert {"current", "recommended"} <= set(marks)
    tab.locator("#runs tbody a").first.click()
    assert "0.25 vCPU, 512 MB: saves 75 %" in tab.inner_text("#detail-body")


HOST = {"memory_size_mb": 8192, "vcpu_size": 4}


def test_only_a_known_size_that_is_enough_fits(tmp_path: Path, opened: Opener) -> None:
    runs = {
        "right": sized_run(0, size=(0.25, 512)),
        "unknown": sized_run(1, size=None, metrics=HOST),
        "killed": sized_run(2, size=None, metrics=HOST, launch_type="LOCAL", likely_out_of_memory=True),
        "largest": sized_run(3, peak_mb=250_000, size=(32, 244 * 1024)),
    }
    file = tmp_path / "lines"
    file.write_bytes(lines(replace(run, record=replace(run.record, family=name)) for name, run in runs.items()))
    tab = opened(make_page(tmp_path / "page.html", "--from", str(file)))
    names = tab.locator("#sizing td.family").all_inner_texts()
    changes = tab.locator("#sizing td.change").all_inner_texts()
    assert dict(zip(names, changes, strict=True)) == {
        "right": "fits",
        "unknown": "current size unknown",
        "killed": "ran out of memory",
        "largest": "more is needed",
    }


def test_a_browser_without_decompression_shows_a_sentence(browser: Browser, dashboard: Path) -> None:
    tab = browser.new_page()
    tab.add_init_script("delete window.DecompressionStream")
    tab.goto(dashboard.as_uri())
    assert tab.inner_text("#unsupported").startswith("This page needs a newer browser")
    tab.close()


def test_a_current_browser_is_not_called_old(opened: Opener, dashboard: Path) -> None:
    assert opened(dashboard).is_hidden("#unsupported")
