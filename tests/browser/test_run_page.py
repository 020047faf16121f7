"""One run on the page: verdict, linked charts, markers, comparison, processes and devices."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from profiler.forwarder.run_links import ecs_task, log_stream
from tests import shown_runs
from tests.browser.conftest import Opener, page_of
from tests.browser.test_report import OVERFLOW
from tests.values import present

pytestmark = pytest.mark.browser
KILLED = shown_runs.out_of_memory().record
LAYOUT = "document.getElementById('run-plot').layout"
PLOT = "#run-plot .nsewdrag >> nth=0"


def text_of(tab: Page) -> str:
    return tab.inner_text("#detail-body").replace("\u00a0", " ")


def annotations(tab: Page) -> list[str]:
    texts: list[str] = tab.evaluate(f"{LAYOUT}.annotations.map((one) => one.text)")
    return texts


def shown_range(tab: Page) -> list[float]:
    limits: list[float] = tab.evaluate(f"{LAYOUT}.xaxis.range")
    return limits


def test_an_out_of_memory_run_has_a_sentence_a_mark_and_its_last_success(opened: Opener, ecs_dashboard: Path) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    assert "ran out of memory after 14m 06s" in tab.inner_text(".verdict.bad")
    assert {"start", "killed: out of memory", "limit 4 GB"} <= set(annotations(tab))
    ends = tab.evaluate(f"{LAYOUT}.shapes.filter((one) => one.name === 'oom').map((one) => one.x0)")
    assert ends == [846_000]
    names = tab.evaluate("document.getElementById('run-plot').data.map((trace) => trace.name)")
    assert {"vcpu", "mb", "vcpu of the other run", "mb of the other run", "memory peak"} <= set(names)
    assert "last success" in tab.locator(".compare select option:checked").inner_text()
    assert "memory peak ≥4 GB at +14m 04s" in text_of(tab).lower().replace("gb", "GB")
    tab.select_option(".compare select", "")
    names = tab.evaluate("document.getElementById('run-plot').data.map((trace) => trace.name)")
    assert not any("other run" in name for name in names)


def test_the_links_lead_to_log_stream_and_task(opened: Opener, ecs_dashboard: Path) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    links = dict(tab.evaluate("[...document.querySelectorAll('#detail a')].map((one) => [one.textContent, one.href])"))
    assert links == {
        "Log stream": log_stream(KILLED.region, KILLED.log_group, KILLED.log_stream),
        "ECS task": ecs_task(KILLED.region, KILLED.cluster, KILLED.task_id),
        "Open the other run": f"{ecs_dashboard.as_uri()}#run={shown_runs.etl().record.task_id}",
    }


def test_charts_share_one_time_axis_that_zooms_and_pans(opened: Opener, ecs_dashboard: Path) -> None:
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
    assert dragged == pytest.approx([whole[0] + 0.2 * length, whole[0] + 0.6 * length], abs=0.02 * length)
    tab.click(".plot-head button[aria-label=Later]")
    tab.wait_for_function(f"(before) => {LAYOUT}.xaxis.range[0] > before", arg=dragged[0])
    tab.click(".plot-head button:has-text('Whole run')")
    tab.wait_for_function(f"(whole) => {LAYOUT}.xaxis.range[1] === whole", arg=whole[1])


def test_one_cursor_reads_all_charts_by_mouse_and_by_keyboard(opened: Opener, ecs_dashboard: Path) -> None:
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


def test_the_strip_zooms_by_drag_handles_keys_and_resets(opened: Opener, ecs_dashboard: Path) -> None:
    tab = opened(ecs_dashboard, f"#run={KILLED.task_id}")
    strip = tab.locator(".strip")
    assert strip.locator("path").count() == 2, "CPU and memory of the whole run"
    start, end = shown_range(tab)
    box = present(strip.bounding_box())
    middle = box["y"] + box["height"] / 2

    def drag(from_share: float, to_share: float) -> list[float]:
        tab.mouse.move(box["x"] + from_share * box["width"], middle)
        tab.mouse.down()
        tab.mouse.move(box["x"] + to_share * box["width"], middle, steps=4)
        tab.mouse.up()
        tab.wait_for_timeout(50)
        return [(ms - start) / (end - start) for ms in shown_range(tab)]

    assert drag(0.3, 0.6) == pytest.approx([0.3, 0.6], abs=0.01), "a new window"
    assert "Shown: +4m " in tab.inner_text(".shown")
    assert drag(0.4, 0.5) == pytest.approx([0.4, 0.7], abs=0.01), "the window is moved"
    assert drag(0.7, 0.9) == pytest.approx([0.4, 0.9], abs=0.01), "its end is moved"
    assert drag(0.6, 0.3) == pytest.approx([0.1, 0.6], abs=0.01), "the window is moved back"
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


def test_another_run_to_compare_with_leaves_the_shown_part_and_the_place(opened: Opener, ecs_dashboard: Path) -> None:
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


def test_what_was_recorded_is_shown(opened: Opener, ecs_dashboard: Path) -> None:
    for task_id, expected in {
        "laptop-1": ("The kernel killed 2 processes because the memory was exhausted.", "worker", "Processes"),
        "train-1": ("GPUs", "Peak temperature"),
        "infer-1": ("NeuronCores", "NeuronCore"),
        "unmeasured-one-1": ("This page has no time series for this run",),
        "running-one-1": ("running",),
    }.items():
        tab = opened(ecs_dashboard, f"#run={task_id}")
        tab.wait_for_selector("#detail[open] dl.facts")
        assert [text for text in expected if text not in text_of(tab)] == []


def test_a_run_fits_a_phone_without_broken_words(opened: Opener, tmp_path: Path) -> None:
    page = page_of(tmp_path, *shown_runs.night(), options=("--run", KILLED.task_id))
    tab = opened(page, width=390, theme="dark")
    assert tab.evaluate(OVERFLOW) <= 0
    narrow: list[Any] = tab.evaluate(
        """[...document.querySelectorAll('td, th, dt')].filter((one) => {
          const longest = Math.max(...one.textContent.split(/\\s+/).map((word) => word.length));
          return one.offsetWidth && longest <= 14 && one.clientWidth < longest * 4;
        }).map((one) => one.textContent)"""
    )
    assert narrow == []
