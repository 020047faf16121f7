"""Measure the HTML report: time of the command, size of the file, and time to the first heatmap
in Chromium.

The heatmap is the morning screen. Its time is that from opening the page until a frame with its
cells is painted. The start of Chromium does not count.

    python -m benchmarks.report_page [--json FILE]

The runs are like runs of ECS tasks: each has a time series of 60 steps. Requires Debian's chromium;
the environment variable CHROMIUM names another executable.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace
from playwright.sync_api import Browser, sync_playwright

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from profiler.record.record_model import Report, Series, TaskSize, encode
from profiler.record.units import MIB
from tools.example_runs import UsageStep, generate_runs

_CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
_CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
)
_SERIES_STEPS = 60
_MAX_MB = 8
_MS_PER_SECOND = 1000
_MARKS = ("first-heatmap", "ready")
# The fastest counts: the first one also starts the browser's processes.
_OPENINGS = 3
# Number of runs, and the longest time to the first heatmap in seconds.
_PAGES = ((200, 1), (5000, 1))


def ecs_run(report: Report, points: tuple[UsageStep, ...]) -> Report:
    """Turn a run of the history into one of an ECS task."""
    record = report.record
    series = Series(
        started_at=record.started_at or "",
        step_ms=points[0].elapsed_ms if points else 1000,
        vcpu_used=tuple(_three_digits(point.vcpu_used) for point in points),
        memory_used_mb=tuple(
            _three_digits((point.memory_used_bytes or 0) / MIB) for point in points
        ),
    )
    metrics = record.metrics
    size = TaskSize(vcpu=metrics.vcpu_size, memory_mb=metrics.memory_size_mb)
    ecs = replace(
        record,
        launch_type="FARGATE",
        region="us-west-2",
        cluster="jobs",
        revision="7",
        log_group=f"/ecs/{record.family}",
        log_stream=f"ecs/batch/{record.task_id}",
        series=series,
        task_size=size,
    )
    return replace(report, record=ecs)


def _seconds_to_draw(browser: Browser, page: Path) -> list[float]:
    """Open the page; return the seconds of each mark."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
    seconds = [
        float(tab.get_attribute("html", f"data-{mark}") or 0) / _MS_PER_SECOND for mark in _MARKS
    ]
    tab.close()
    return seconds


def _three_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def measure(folder: Path, count: int, max_seconds: float) -> Iterator[Figure]:
    """Make the page of ``count`` runs and open it."""
    source, page = folder / "lines", folder / "page.html"
    with source.open("wb") as file:
        for report, points in generate_runs(count, max_points=_SERIES_STEPS):
            file.write(encode(ecs_run(report, points)) + b"\n")
    command = (sys.executable, "-m", "profiler", "report", "--from", str(source), "-o", str(page))
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    yield Figure(f"{count} runs: command", time.perf_counter() - began, "s")
    yield Figure(f"{count} runs: size", page.stat().st_size / 1e6, "MB", digits=1, at_most=_MAX_MB)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(_CHROMIUM), args=list(_CHROMIUM_OPTIONS)
        )
        first, ready = min(_seconds_to_draw(browser, page) for _ in range(_OPENINGS))
        browser.close()
    yield Figure(f"{count} runs: first heatmap", first, "s", at_most=max_seconds)
    yield Figure(f"{count} runs: everything drawn", ready, "s")


def main() -> None:
    """Measure both pages, and print or write the figures."""
    parser = benchmark_parser(__doc__)
    arguments = parser.parse_args()
    title = "HTML report"
    if _CHROMIUM.exists():
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            figures = tuple(figure for page in _PAGES for figure in measure(Path(folder), *page))
        result = BenchmarkResult(title, figures=figures)
    else:
        result = BenchmarkResult(title, skip_reason=f"{_CHROMIUM} is missing")
    result.print_and_save(arguments.json)


if __name__ == "__main__":
    main()
