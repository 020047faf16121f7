"""One run on the page: verdict, linked charts, markers, comparison, devices, and what its
processes did.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from playwright.sync_api import Locator, Page

from profiler.forwarder.run_links import ecs_task_url, log_stream_url
from profiler.record import activity_model as activity
from profiler.record import stacks_line
from profiler.record.record_model import Report
from profiler.runs.step_series import steps_of_record
from tests import shown_runs
from tests.awkward_runs import shared_cpu
from tests.browser.conftest import LOOKS, MISSED, OVERFLOW, Opener, Theme, page_of, violations
from tests.gpu_runs import gpu_run
from tests.report_page import INJECTIONS, run_of, write_page
from tests.values import present
from tools.waiting import wait_until

pytestmark = pytest.mark.browser
KILLED = shown_runs.out_of_memory().record
LAYOUT = "document.getElementById('run-plot').layout"
PLOT = "#run-plot .nsewdrag >> nth=0"
# The numbers of sentences whose unit, or whose next part of a duration, is on another line.
PARTED_NUMBERS = r"""() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const parted = [];
  const NUMBER = /[\d.]+[dhms]?[ \u00a0](\d+[hms]|%|[KMG]?B|vCPU|GPUs?|ms)(?!\w)/g;
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    for (const found of text.data.matchAll(/[\d.]+[dhms]?[ \u00a0](\d+[hms]|%|[KMG]?B|vCPU|GPUs?|ms)(?!\w)/g)) {
      const range = document.createRange();
      range.setStart(text, found.index);
      range.setEnd(text, found.index + found[0].length);
      const lines = new Set([...range.getClientRects()].map((one) => Math.round(one.top)));
      if (lines.size > 1) parted.push(text.data);
    }
  }
  return parted;
}"""


def text_of(tab: Page) -> str:
    return tab.inner_text("#detail-body").replace("\u00a0", " ")


def annotations(tab: Page) -> list[str]:
    texts: list[str] = tab.evaluate(f"{LAYOUT}.annotations.map((one) => one.text)")
    return texts


def shown_range(tab: Page) -> list[float]:
    limits: list[float] = tab.evaluate(f"{LAYOUT}.xaxis.range")
    return limits


def test_a_killed_run_has_a_sentence_a_mark_links_and_its_last_success(
    opened: Opener, ecs_dashboard: Path
) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    verdict = tab.inner_text(".verdict.bad").replace("\u00a0", " ")
    assert "ran out of memory after 14m 06s" in verdict
    assert {"start", "Out of memory", "limit 4 GB"} <= set(annotations(tab))
    ends = tab.evaluate(f"{LAYOUT}.shapes.filter((one) => one.name === 'oom').map((one) => one.x0)")
    assert ends == [846_000]
    names = tab.evaluate("document.getElementById('run-plot').data.map((trace) => trace.name)")
    assert {"vcpu", "mb", "vcpu of the other run", "mb of the other run", "memory peak"} <= set(
        names
    )
    assert "last success" in tab.locator(".compare select option:checked").inner_text()
    assert "memory peak ≥4 GB at +14m 04s" in text_of(tab).lower().replace("gb", "GB")
    links = dict(
        tab.evaluate(
            "[...document.querySelectorAll('#detail a')].map((one) => [one.textContent, one.href])"
        )
    )
    assert links == {
        "Log stream": log_stream_url(KILLED.region, KILLED.log_group, KILLED.log_stream),
        "ECS task": ecs_task_url(KILLED.region, KILLED.cluster, KILLED.task_id),
        "Open the other run": f"{ecs_dashboard.as_uri()}#run={shown_runs.etl().record.task_id}",
    }
    tab.select_option(".compare select", "")
    names = tab.evaluate("document.getElementById('run-plot').data.map((trace) => trace.name)")
    assert not any("other run" in name for name in names)


def test_charts_share_one_time_axis_that_zooms_and_pans(
    opened: Opener, ecs_dashboard: Path
) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    axes = tab.evaluate(f"Object.keys({LAYOUT}).filter((name) => name.startsWith('xaxis'))")
    assert axes == ["xaxis"], "every chart is on it"
    whole = shown_range(tab)
    box = present(tab.locator(PLOT).bounding_box())
    middle = box["y"] + box["height"] / 2
    tab.mouse.move(box["x"] + 0.2 * box["width"], middle)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=5)
    tab.mouse.up()
    tab.wait_for_function(f"(whole) => {LAYOUT}.xaxis.range[0] > whole", arg=whole[0] + 1000)
    length = whole[1] - whole[0]
    dragged = shown_range(tab)
    assert dragged == pytest.approx(
        [whole[0] + 0.2 * length, whole[0] + 0.6 * length], abs=0.02 * length
    )
    tab.click(".plot-head button[aria-label=Later]")
    tab.wait_for_function(f"(before) => {LAYOUT}.xaxis.range[0] > before", arg=dragged[0])
    tab.click(".plot-head button:has-text('Whole run')")
    tab.wait_for_function(f"(whole) => {LAYOUT}.xaxis.range[1] === whole", arg=whole[1])


def test_one_cursor_reads_all_charts_by_mouse_and_by_keyboard(
    opened: Opener, ecs_dashboard: Path
) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    slider = tab.get_by_role("slider", name="Time in the run")
    slider.focus()
    tab.keyboard.press("End")
    text = slider.get_attribute("aria-valuetext") or ""
    assert text.startswith("+14m 06s, 2026-11-20 03:26:51: CPU ")
    assert "vCPU" in text
    assert "GB" in text
    tab.keyboard.press("ArrowLeft")
    assert (slider.get_attribute("aria-valuetext") or "").startswith("+14m 00s")
    before = shown_range(tab)
    tab.keyboard.press("+")
    tab.wait_for_function(f"(whole) => {LAYOUT}.xaxis.range[0] > whole", arg=before[0])
    tab.keyboard.press("0")
    tab.wait_for_function(f"(whole) => {LAYOUT}.xaxis.range[0] === whole", arg=before[0])
    tab.hover(PLOT)
    assert tab.locator(".cursor").is_visible()
    assert tab.inner_text(".card").startswith("+")


def test_the_clock_of_the_cursor_is_the_start_plus_the_time_since_then(
    opened: Opener, ecs_dashboard: Path
) -> None:
    """Where the pointer is between two seconds, the clock was a second behind."""
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    box = present(tab.locator(PLOT).bounding_box())
    for pixel in range(120, 150):
        tab.mouse.move(box["x"] + pixel, box["y"] + 30)
        title = tab.inner_text(".card b")
        minutes, seconds = map(int, re.findall(r"\d+", title.partition(",")[0]))
        since = timedelta(minutes=minutes, seconds=seconds)
        began = datetime(2026, 11, 20, 3, 12, 45, tzinfo=UTC)
        assert title.endswith(f"{began + since:%Y-%m-%d %H:%M:%S}"), title


def test_the_strip_zooms_by_drag_handles_keys_and_resets(
    opened: Opener, ecs_dashboard: Path
) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    strip = tab.locator(".strip")
    assert strip.locator("path").count() == 2, "CPU and memory of the whole run"
    start, end = shown_range(tab)
    box = present(strip.bounding_box())
    middle = box["y"] + box["height"] / 2

    def drag(from_share: float, to_share: float, *, shows: tuple[float, float]) -> None:
        tab.mouse.move(box["x"] + from_share * box["width"], middle)
        tab.mouse.down()
        tab.mouse.move(box["x"] + to_share * box["width"], middle, steps=4)
        tab.mouse.up()
        wanted = pytest.approx(
            [start + share * (end - start) for share in shows], abs=0.01 * (end - start)
        )
        wait_until(lambda: shown_range(tab) == wanted, f"{shows} of the run to be shown")

    drag(0.3, 0.6, shows=(0.3, 0.6))  # a new window
    assert "Shown: +4m " in tab.inner_text(".shown")
    drag(0.4, 0.5, shows=(0.4, 0.7))  # the window is moved
    drag(0.7, 0.9, shows=(0.4, 0.9))  # its end is moved
    drag(0.6, 0.3, shows=(0.1, 0.6))  # the window is moved back
    tab.mouse.dblclick(box["x"] + 0.3 * box["width"], middle)
    tab.wait_for_function(f"(whole) => {LAYOUT}.xaxis.range[1] === whole", arg=end)
    handle = tab.get_by_role("slider", name="Start of the shown part")
    handle.focus()
    tab.keyboard.press("PageDown")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function(f"(ms) => {LAYOUT}.xaxis.range[0] > ms", arg=90_000)
    assert (handle.get_attribute("aria-valuetext") or "").startswith("+1m 3")
    tab.keyboard.press("Escape")
    tab.wait_for_function(f"(whole) => {LAYOUT}.xaxis.range[0] === whole", arg=start)
    assert tab.locator("#detail[open]").count() == 1
    tab.keyboard.press("Escape")
    assert tab.locator("#detail[open]").count() == 0


def test_another_run_to_compare_with_leaves_the_shown_part_and_the_place(
    opened: Opener, ecs_dashboard: Path
) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    tab.click(".part:has(h3:text-is('Moments')) button >> nth=0")
    before = shown_range(tab)
    assert before[1] < 800_000
    select = tab.locator(".compare select")
    select.focus()
    tab.evaluate("document.getElementById('detail').scrollTop = 120")
    for index in range(select.locator("option").count()):
        select.select_option(index=index)
        assert shown_range(tab) == before
        assert tab.evaluate("document.activeElement.tagName") == "SELECT"
        assert tab.evaluate("document.getElementById('detail').scrollTop") == 120
    link = tab.get_by_role("link", name="Open the other run")
    assert "#run=" in (link.get_attribute("href") or "")


def test_the_recommended_size_follows_the_verdict(opened: Opener, ecs_dashboard: Path) -> None:
    """On a phone it is on the first screen."""
    tab = opened(ecs_dashboard, "#run=train-1", width=390)
    tab.wait_for_selector("#detail[open] dl.facts")
    place = "(name) => document.querySelector(`#detail ${name}`).getBoundingClientRect().top"
    assert tab.evaluate(place, ".verdict") < tab.evaluate(place, ".lead") < 600


def test_the_sizes_are_a_picture_that_keys_read(opened: Opener, ecs_dashboard: Path) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    plot = tab.locator(".sizes-plot")
    shown = tab.inner_text(".size-text")
    assert shown.startswith("2 vCPU, 5 GB: as long as now, ")
    assert shown.endswith(", recommended.")
    assert plot.get_attribute("aria-valuetext") == shown
    plot.focus()
    tab.keyboard.press("ArrowLeft")
    assert tab.inner_text(".size-text").startswith("2 vCPU, 4 GB: ")
    assert tab.inner_text(".size-text").endswith(", current size, too little memory.")
    assert tab.is_visible(".size-cursor")
    tab.keyboard.press("End")
    assert plot.get_attribute("aria-valuenow") == plot.get_attribute("aria-valuemax")
    tab.hover(".sizes-plot .nsewdrag >> nth=0", position={"x": 5, "y": 40})
    assert plot.get_attribute("aria-valuenow") == "1"


@LOOKS
def test_the_picture_of_the_sizes_fits_without_overlap(
    opened: Opener, ecs_dashboard: Path, width: int, theme: str
) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}", width=width, theme=theme)
    assert tab.locator(".sizes-plot .annotation-text").count() >= 2
    assert tab.evaluate(OVERLAPPING_TEXTS, ".sizes-plot .chart") == []
    assert tab.evaluate(DIALOG_OVERFLOW) <= 0
    assert violations(tab) == []


def test_sizes_without_a_price_or_duration_have_no_picture(
    opened: Opener, ecs_dashboard: Path
) -> None:
    tab = opened(ecs_dashboard, "#run=train-1")
    tab.wait_for_selector("#detail[open] dl.facts")
    assert tab.locator(".lead").count() == 3  # its GPUs, the size beside them, and its CPUs
    assert tab.locator(".sizes-chart").count() == 0


def test_what_was_recorded_is_shown(opened: Opener, ecs_dashboard: Path) -> None:
    for task_id, expected in {
        "laptop-1": (
            "The kernel killed 2 processes for lack of memory: worker.",
            "worker",
            "Processes",
        ),
        "train-1": ("GPUs", "Peak memory", "none seen"),
        "infer-1": ("NeuronCores", "NeuronCore"),
        "unmeasured-one-1": (
            "The run ended before its first sample: CPU and memory were not measured.",
        ),
        "running-one-1": ("running",),
    }.items():
        tab = opened(ecs_dashboard, f"#run={task_id}")
        tab.wait_for_selector("#detail[open] dl.facts")
        assert [text for text in expected if text not in text_of(tab)] == []


def test_a_run_without_a_sample_is_not_promised_one_on_another_page(
    opened: Opener, ecs_dashboard: Path
) -> None:
    text = text_of(opened(ecs_dashboard, "#run=unmeasured-one-1"))
    assert "CPU and memory were not measured." in text
    assert "A page for one run has room" not in text


def test_a_run_fits_a_phone_without_broken_words(opened: Opener, tmp_path: Path) -> None:
    page = page_of(tmp_path, *shown_runs.night(), options=("--run", KILLED.task_id))
    tab = opened(page, width=390, theme="dark")
    assert tab.is_hidden("#all")
    assert tab.inner_text("#one h2 >> nth=0") == f"{KILLED.family}:{KILLED.revision}"
    assert tab.locator("#run-plot .scatterlayer path.js-line").count() > 2
    assert tab.evaluate(OVERFLOW) <= 0
    narrow: list[Any] = tab.evaluate(
        """[...document.querySelectorAll('td, th, dt')].filter((one) => {
          const longest = Math.max(...one.textContent.split(/\\s+/).map((word) => word.length));
          return one.offsetWidth && longest <= 14 && one.clientWidth < longest * 4;
        }).map((one) => one.textContent)"""
    )
    assert narrow == []


# The words between the separators of a name that stand on more than one line.
BROKEN_WORDS = """(selector) => [...document.querySelectorAll(selector)].flatMap((place) => {
  const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT), broken = [];
  while (texts.nextNode()) {
    for (const { 0: word, index } of texts.currentNode.data.matchAll(/[A-Z]+/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, index);
      range.setEnd(texts.currentNode, index + word.length);
      if (new Set([...range.getClientRects()].map((one) => one.top)).size > 1) broken.push(word);
    }
  }
  return broken;
})"""


def test_a_long_name_in_upper_case_is_broken_between_its_words(
    opened: Opener, tmp_path: Path
) -> None:
    name = "NFCORE_SAREK:SAREK:GATK4_BASERECALIBRATOR_SPARK"
    runs = [
        replace(made, record=replace(made.record, family=name, log_group=f"/ecs/{name}"))
        for made in shown_runs.night()
    ]
    page = page_of(tmp_path, *runs)
    tab = opened(page, width=390)
    assert name in tab.inner_text("#last-night")
    assert tab.evaluate(BROKEN_WORDS, "#last-night") == []
    tab = opened(page, f"#run={KILLED.task_id}", width=390)
    tab.wait_for_selector("#detail[open] dl.facts")
    assert f"{name}:26" in tab.inner_text("#run-title")
    assert tab.evaluate(BROKEN_WORDS, "#run-title, .verdict, .facts") == []


@pytest.mark.parametrize("width", [390, 700, 1000, 1440])
def test_the_tables_have_room_for_long_words_of_names(
    opened: Opener, tmp_path: Path, width: int
) -> None:
    """A table of runs on GPUs, too, is as wide as its panel."""
    kinds = (*shown_runs.night(), shown_runs.failure(), shown_runs.gpu())
    runs = [
        replace(made, record=replace(made.record, family=name, task_id=f"{name}-{number}"))
        for name in ("NFCORE_SAREK_HAPLOTYPECALLER", "GATK4_BASERECALIBRATOR")
        for number, made in enumerate(kinds)
    ]
    tab = opened(page_of(tmp_path, *runs, more=MISSED), width=width)
    names = ".family, #morning tbody .name, #night .name"
    assert tab.locator(names).count() > len(runs)
    assert tab.evaluate(BROKEN_WORDS, names) == []
    assert (
        tab.evaluate(
            """[...document.querySelectorAll(":is(#failures, #sizing, #runs) table")]
            .filter((one) => one.offsetWidth > one.closest(".panel").clientWidth)
            .map((one) => one.closest("[id]").id)"""
        )
        == []
    )


WAITING = shown_runs.waiting()
ADDRESS = f"#run={WAITING.record.task_id}"
DIALOG_OVERFLOW = "((one) => one.scrollWidth - one.clientWidth)(document.getElementById('detail'))"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page that the command made of a record, its stacks, and an older run."""
    stacks = msgspec.json.encode(shown_runs.waiting_stacks())
    return page_of(
        tmp_path_factory.mktemp("activity"), shown_runs.etl(days_ago=1), WAITING, more=stacks
    )


def written(file: Path, report: Report, stacks: stacks_line.StacksLine) -> Path:
    run = replace(run_of(report), steps=steps_of_record(report.record))
    return write_page(file, [run], [stacks])


def frame(tab: Page, name: str) -> Locator:
    return tab.locator(".frame", has_text=name)


def share(tab: Page, name: str) -> float:
    """The width of a frame as a share of the flame graph."""
    width: float = frame(tab, name).evaluate(
        "(one) => one.offsetWidth / one.parentElement.clientWidth"
    )
    return width


def deep_run() -> tuple[Report, stacks_line.StacksLine]:
    """3,000 stacks of 60 functions, and nine commands with names of 80 characters."""
    series = present(WAITING.record.series)
    processes = [
        activity.ProcessSeries(
            command=f"python3 {'long_name_' * 7}{number}"[:80],
            vcpu_used=tuple(None if step == 30 else 0.2 for step in range(119)),
            memory_used_mb=(100.0,) * 119,
        )
        for number in range(8)
    ]
    processes.append(
        activity.ProcessSeries(command="other", vcpu_used=(0.1,) * 119, memory_used_mb=None)
    )
    record = replace(WAITING.record, series=replace(series, processes=tuple(processes)))
    stacks = {
        ";".join(
            f"function_{(number * depth) % 97} (package/module_{depth}.py)" for depth in range(60)
        ): 1 + number % 9
        for number in range(3000)
    }
    step = stacks_line.StackStep(offset_ms=0, duration_ms=1_182_000, stacks=stacks)
    return replace(WAITING, record=record), replace(shown_runs.waiting_stacks(), steps=(step,))


def test_the_time_is_a_bar_and_processes_are_layers(opened: Opener, page: Path) -> None:
    """The time is a bar and processes are layers with a legend and a card."""
    tab = opened(page, ADDRESS)
    parts = "[...document.querySelectorAll('.time-bar span')]"
    widths: Sequence[float] = tab.evaluate(
        f"{parts}.map((one) => one.getBoundingClientRect().width)"
    )
    expected = [31.2, 4.1, 3.0, 55.4, 5.0, 1.3]
    assert [100 * width / sum(widths) for width in widths] == pytest.approx(expected, abs=0.5)
    shown = tab.inner_text("section:has(.time-bar)").replace("\u00a0", " ")
    for text in (
        *("on CPU 31 %", "waiting for CPU 4 %", "network 55 %", "other 1 %"),
        *("10.0.3.9:5432", "48 %", "[2600:1f14::7]:443", "/data/orders-2025.parquet"),
    ):
        assert text in shown
    # 4.6 % of the time in which they could run, and 99 % of the run: as in the terminal, not worth
    # a word.
    assert "Threads waited" not in shown
    assert "Samples cover" not in shown

    titles = [text.strip() for text in annotations(tab)]
    assert {"<b>vCPU by process</b>", "<b>Memory by process</b>"} <= set(titles)
    assert titles.count("limit 4 GB") == 2
    assert tab.locator(".legend[aria-label=Processes] li").all_inner_texts() == [
        "python3 export.py",
        "gzip",
        "other",
    ]
    slider = tab.get_by_role("slider", name="Time in the run")
    slider.focus()
    tab.keyboard.press("End")
    card = tab.locator(".card")
    assert card.is_visible()
    assert (
        card.inner_text()
        .replace("\n", " ")
        .startswith("+19m 42s, 2026-11-20 03:32:27 this run other run CPU 1.1")
    )
    for value in (
        "memory",
        "3.2 GB",
        "threads waiting for a CPU",
        "python3 export.py",
        "0.88 vCPU",
        "2.9 GB",
    ):
        assert value in card.inner_text()
    assert "python3 export.py" in (slider.get_attribute("aria-valuetext") or "")
    box, place = present(card.bounding_box()), present(tab.locator(".run-plot").bounding_box())
    assert place["x"] <= box["x"]
    assert box["x"] + box["width"] <= place["x"] + place["width"]


def test_frames_are_as_wide_as_their_shares_of_the_samples_in_the_zoomed_range(
    opened: Opener, page: Path
) -> None:
    tab = opened(page, ADDRESS)
    assert "412 stacks in the whole run" in tab.inner_text("#detail")
    assert share(tab, "parse_row") == pytest.approx(174 / 412, abs=0.01)
    assert share(tab, "load_orders") == pytest.approx(66 / 412, abs=0.01)
    name = frame(tab, "recv").get_attribute("aria-label")
    assert name == "recv (socket.py): 66 stacks, 16 %, waiting"
    heights = tab.evaluate(
        "[...document.querySelectorAll('.frame')].map((one) => one.offsetHeight)"
    )
    assert len(set(heights)) == 1
    tab.click("button:has-text('Memory rose from')")
    tab.wait_for_function(f"() => {LAYOUT}.xaxis.range[0] > 400000")
    assert (
        "262 stacks from +15m 00s to +16m 00s (of steps from +8m 00s to +19m 43s)"
        in tab.inner_text("#detail")
    )
    assert share(tab, "merge") == pytest.approx(172 / 262, abs=0.01)
    tab.click(".part button:text-is('Whole run')")
    tab.wait_for_function(f"() => {LAYOUT}.xaxis.range[0] <= 0")
    assert "412 stacks in the whole run" in tab.inner_text("#detail")
    slider = tab.get_by_role("slider", name="Time in the run")
    slider.focus()
    tab.keyboard.press("Home")
    for _ in range(2):
        tab.keyboard.press("+")
    tab.wait_for_function(f"() => {LAYOUT}.xaxis.range[1] < 400000")
    assert "92 stacks from +0 ms" in tab.inner_text("#detail")
    tab.keyboard.press("0")
    tab.wait_for_function(f"() => {LAYOUT}.xaxis.range[1] > 400000")
    tab.click("button:text-is('Running only')")
    assert frame(tab, "recv").count() == 0
    assert share(tab, "parse_row") == pytest.approx(174 / 346, abs=0.01)


def test_the_flame_graph_is_used_by_keyboard_alone(opened: Opener, page: Path) -> None:
    tab = opened(page, ADDRESS)
    focused = partial(tab.evaluate, "document.activeElement.textContent")
    tab.focus(".frame[tabindex='0']")
    assert focused() == "all stacks"
    for key, name in (
        ("ArrowDown", "<module> (job.py)"),
        ("ArrowDown", "transform (etl/transform.py)"),
        ("ArrowRight", "merge (etl/merge.py)"),
        ("ArrowRight", "load_orders (etl/load.py)"),
        ("ArrowRight", "load_orders (etl/load.py)"),
        ("ArrowLeft", "merge (etl/merge.py)"),
        ("ArrowUp", "<module> (job.py)"),
        ("Home", "all stacks"),
    ):
        tab.keyboard.press(key)
        assert focused() == name
    assert tab.inner_text(".flame-text").startswith("all stacks: 412 stacks")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        tab.keyboard.press(key)
    assert focused() == "merge (etl/merge.py)"
    assert share(tab, "merge") == pytest.approx(1, abs=0.01)
    assert frame(tab, "parse_row").count() == 0
    tab.keyboard.press("Escape")
    assert tab.locator("#detail[open]").count() == 1
    assert frame(tab, "parse_row").count() == 1
    assert focused() == "all stacks"
    tab.keyboard.press("Escape")
    assert tab.locator("#detail[open]").count() == 0


def test_a_click_zooms_and_search_marks_frames(opened: Opener, page: Path) -> None:
    tab = opened(page, ADDRESS)
    tab.get_by_label("Search", exact=True).last.fill("ETL/load")
    assert tab.locator(".frame.match").all_inner_texts() == ["load_orders (etl/load.py)"]
    assert "16 % of the stacks match" in tab.inner_text("#detail")
    tab.keyboard.press("Escape")
    assert tab.locator(".frame.match").count() == 0
    frame(tab, "load_orders").click()
    assert share(tab, "load_orders") == pytest.approx(1, abs=0.01)
    assert tab.locator(".frame.caller").all_inner_texts() == ["all stacks", "<module> (job.py)"]
    frame(tab, "all stacks").click()
    assert share(tab, "load_orders") < 0.2


@pytest.mark.parametrize("made", [shown_runs.waiting, shown_runs.gpu, shared_cpu])
def test_no_number_is_parted_from_its_unit(
    opened: Opener, tmp_path: Path, made: Callable[[], Report]
) -> None:
    one = made()
    page = write_page(
        tmp_path / "page.html", [replace(run_of(one), steps=steps_of_record(one.record))], []
    )
    tab = opened(page, f"#run={one.record.task_id}", width=390)
    assert tab.evaluate(PARTED_NUMBERS) == []


@LOOKS
def test_deep_stacks_and_long_names_fit(
    opened: Opener, tmp_path: Path, width: int, theme: str
) -> None:
    tab = opened(written(tmp_path / "page.html", *deep_run()), ADDRESS, width=width, theme=theme)
    assert 100 < tab.locator(".frame").count() <= 1500
    assert tab.evaluate(OVERFLOW) <= 0
    assert tab.evaluate(DIALOG_OVERFLOW) <= 0
    tab.locator(".frame").nth(40).click()
    tab.get_by_role("slider", name="Time in the run").focus()
    tab.keyboard.press("PageDown")
    assert tab.evaluate(DIALOG_OVERFLOW) <= 0
    assert violations(tab) == []


def test_no_text_of_a_process_or_function_becomes_html(opened: Opener, tmp_path: Path) -> None:
    processes = tuple(
        activity.ProcessSeries(command=one, vcpu_used=(0.1,) * 119) for one in INJECTIONS
    )
    targets = tuple(activity.WaitTarget(kind=one, target=one, percent=1.0) for one in INJECTIONS)
    times: dict[str, Any] = {"from_at": "2026-11-20T03:13:00Z", "to_at": "2026-11-20T03:14:00Z"}
    moments = tuple(
        activity.StackMoment(kind=one, stack=(one,), percent=1.0, **times) for one in INJECTIONS
    )
    record = replace(
        WAITING.record,
        series=replace(present(WAITING.record.series), processes=processes),
        time_breakdown=activity.TimeBreakdown(on_cpu_percent=100.0, waiting_for=targets),
        stacks=activity.Stacks(source=INJECTIONS[0], moments=moments),
    )
    step = stacks_line.StackStep(
        offset_ms=0, duration_ms=1_182_000, stacks={f"{one};{one}": 1 for one in INJECTIONS}
    )
    stacks = replace(shown_runs.waiting_stacks(), steps=(step,))
    tab = opened(written(tmp_path / "page.html", replace(WAITING, record=record), stacks), ADDRESS)
    frames = tab.locator(".frame")
    assert frames.count() > 2 * len(INJECTIONS)
    for number in range(frames.count()):
        frames.nth(number).hover()
    tab.get_by_role("slider", name="Time in the run").focus()
    tab.keyboard.press("End")
    assert tab.evaluate("window.hurt") is None
    assert tab.locator("#detail :is(img, b > a, script)").count() == 0
    assert tab.evaluate(DIALOG_OVERFLOW) <= 0


# The texts of the charts and of the time lane that overlap each other or leave their chart.
OVERLAPPING_TEXTS = """(chart) => {
  const plot = document.querySelector(chart).getBoundingClientRect();
  const texts = [...document.querySelectorAll(`${chart} :is(.annotation-text, .xtick text, .ytick text, .y2tick text)`)]
    .concat([...document.querySelectorAll(".time-bar i")])
    .map((one) => [one.textContent, one.getBoundingClientRect()]).filter(([, box]) => box.width);
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  return texts.filter(([, box], at) =>
    box.left < plot.left - 1 || box.right > plot.right + 1 || texts.slice(at + 1).some(([, other]) => meet(box, other))
  ).map(([text]) => text);
}"""


def test_on_a_phone_no_text_overlaps_and_the_card_leaves_what_it_describes_free(
    opened: Opener, tmp_path: Path
) -> None:
    """A run with devices, and a kernel peak near the limit."""
    report, stacks = deep_run()
    devices = replace(
        present(report.record.series),
        gpu_utilization_percent=tuple(float(step) for step in range(119)),
        neuron_utilization_percent=(50.0,) * 119,
    )
    peak = {"max_memory_used_mb": 4000, "memory_peak_source": "kernel", "max_memory_used_at": None}
    metrics = replace(report.record.metrics, vcpu_size=16, **peak)
    report = replace(report, record=replace(report.record, series=devices, metrics=metrics))
    steps = steps_of_record(report.record)
    count = len(steps.ends_ms)
    bytes_and_gpu = {
        "block_read_bytes": [2**24],
        "block_write_bytes": [2**30],
        "gpu_memory_mb": [90_000],
    }
    steps = replace(steps, **{name: value * count for name, value in bytes_and_gpu.items()})
    run = replace(run_of(report), steps=steps)
    tab = opened(write_page(tmp_path / "page.html", [run], [stacks]), ADDRESS, width=390)
    assert tab.evaluate(OVERLAPPING_TEXTS, "#run-plot") == []
    assert tab.evaluate(
        "[...document.querySelectorAll('.time-bar i')].every((one) => one.offsetWidth <= "
        "one.parentElement.offsetWidth)"
    )
    card = tab.locator(".card")
    count = tab.evaluate("document.querySelectorAll('#run-plot .subplot').length")
    assert count == 9, "every chart that a run can have"
    for number in range(count):
        plots = f"[...document.getElementById('run-plot').querySelectorAll('.nsewdrag')][{number}]"
        for share in (0.02, 0.5, 0.98):
            chart = tab.evaluate(
                f"(share) => {{ const one = {plots}; one.scrollIntoView({{block: 'center'}});"
                " const box = one.getBoundingClientRect(); const x = box.left + share * box.width;"
                " one.dispatchEvent(new PointerEvent('pointermove',"
                " {bubbles: true, pointerType: 'touch', clientX: x, clientY: box.top + 30}));"
                " return {top: box.top, bottom: box.bottom}; }",
                share,
            )
            box = present(card.bounding_box())
            assert box["y"] + box["height"] <= chart["top"] or box["y"] >= chart["bottom"]
            assert 0 <= box["x"] <= 390 - box["width"]
            assert -box["height"] < box["y"] < 900
    for text in (
        "CPU",
        "memory",
        "102 MB/s",
        "87.9 GB",
        "GPUs",
        "NeuronCores",
        "threads waiting for a CPU",
        "other",
    ):
        assert text in card.inner_text()
    moments = tab.inner_text(".part:has(h3:text-is('Moments'))").replace("\u00a0", " ")
    assert (
        "Memory peak 3.9 GB between samples (kernel), 98 % of 4 GB; highest sample 3.2 GB at "
        "+19m 40s"
    ) in moments


@LOOKS
def test_a_gpu_is_said_first_and_fits(
    opened: Opener, tmp_path: Path, width: int, theme: Theme
) -> None:
    runs = [gpu_run(tape) for tape in ("starved", "beside", "illegal")]
    file = page_of(tmp_path, *runs)
    tab = opened(file, width=width, theme=theme)
    assert tab.evaluate(OVERFLOW) <= 0
    assert {"3 %", "shared", "6 %"} <= {*tab.locator("#runs td.gpus").all_inner_texts()}
    said = {
        "starved": "GPU 3 %, ≥1.7 GB of 79.6 GB, idle 30 % between its work.",
        "beside": "GPU shared with other programs, own memory ≥838 MB of 79.6 GB.",
        "illegal": "GPU 6 %, ≥621 MB of 79.6 GB.",
    }
    for name, sentence in said.items():
        tab = opened(file, f"#run={name}-run", width=width, theme=theme)
        lead = tab.inner_text("#detail-body .lead >> nth=0").replace("\u00a0", " ")
        assert lead == sentence
        place = tab.evaluate(
            "(() => { const [table, room] = ['[aria-label=GPUs]', '#detail-body'].map((one) =>"
            " document.querySelector(one).getBoundingClientRect()); return room.right - table.right })()"
        )
        assert place >= -1, name
    assert "Errors (Xid)" in text_of(tab)
    assert violations(tab) == []
