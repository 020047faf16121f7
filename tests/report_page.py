"""Runs for tests of the report page, and its data as the page's script reads it."""

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from profiler.record.record_model import (
    NOT_MEASURED,
    Container,
    Distribution,
    Interval,
    Record,
    RecordType,
    Report,
    encode,
)
from profiler.record.stacks_line import StacksLine
from profiler.report_page.html_document import read_assets, render_page
from profiler.report_page.page_data import PageRequest, build_page_data
from profiler.report_page.page_series import Run
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.step_series import StepSeries

INJECTIONS = (
    "</script><script>window.hurt=1</script>",
    "<!--<script>",
    "]]><img src=x onerror='window.hurt=1'>",
    "<b>bold</b><br><a href='javascript:window.hurt=1'>link</a>",
    "&lt;i&gt;",
    "%{y}$\\alpha$",
    "\"'`${window.hurt=1}",
    "\x00\x1b[31m",
    "2026-01-01",
    "1",
    "constructor",
    "__proto__",
    "\u202egnorw\u2028\u2029",
    "x" * 300,
)


def report(
    task_id: str = "t",
    *,
    day: int = 1,
    kind: RecordType = "task.report",
    minute: int = 0,
    **record: Any,
) -> Report:
    known = {"family": "etl", "container": Container(name="batch"), "status": "success"}
    known["started_at"] = f"2026-11-{day:02d}T06:00:00.000Z"
    made = Record(task_id=task_id, **{**known, **record})
    return Report(time=f"2026-11-{day:02d}T06:{minute:02d}:00.000Z", type=kind, record=made)


def checkpoint(
    minute: int,
    *,
    begun: int | None = None,
    vcpu: float | None = 0.5,
    memory_mb: float | None = 100.0,
    **record: Any,
) -> Report:
    """The checkpoint of a minute, whose interval begins with the minute ``begun``."""
    interval = Interval(
        started_at=None if begun is None else f"2026-11-01T06:{begun:02d}:00.000Z",
        finished_at=f"2026-11-01T06:{minute:02d}:00.000Z",
        vcpu_used=NOT_MEASURED if vcpu is None else Distribution(avg=vcpu),
        memory_used_mb=NOT_MEASURED if memory_mb is None else Distribution(avg=1.0, max=memory_mb),
    )
    return report(
        status="running", kind="task.checkpoint", minute=minute, interval=interval, **record
    )


class Step(NamedTuple):
    ends_ms: int
    vcpu_used: float | None = None
    memory_mb: float | None = None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_mb: float | None = None
    neuron_percent: float | None = None


def step(
    elapsed_ms: int, vcpu: float | None = 1.0, memory_mb: float | None = 10.0, **more: Any
) -> Step:
    return Step(elapsed_ms, vcpu, memory_mb, **more)


def series_of(steps: Iterable[Step]) -> StepSeries:
    columns: dict[str, Any] = dict(
        zip(Step._fields, map(list, zip(*steps, strict=True)), strict=False)
    )
    return StepSeries(**columns)


def rows(series: StepSeries) -> tuple[Step, ...]:
    columns = (getattr(series, name) or [None] * len(series.ends_ms) for name in Step._fields)
    return tuple(Step(*values) for values in zip(*columns, strict=True))


def run_of(one: Report, steps: Iterable[Step] | StepSeries = ()) -> Run:
    series = steps if isinstance(steps, StepSeries) else series_of(steps)
    return Run(past=PastRun(report=one, line=encode(one)), steps=series)


def content(runs: Sequence[Run]) -> Any:
    return unpacked(
        build_page_data(
            runs, PageRequest(generated_at="2026-11-20T06:00:00.000Z", version="1")
        ).text
    )


def parsed(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def unpacked(data: str) -> Any:
    """Parse the data as the page's script does, and join the fields and details of each run."""
    found = parsed(data)
    details = found.pop("details")
    found["runs"] = [run | (more or {}) for run, more in zip(found["runs"], details, strict=True)]
    return found


def write_page(file: Path, runs: Sequence[Run], lines: Sequence[StacksLine]) -> Path:
    by_task = {line.task_id: line for line in lines}
    data = build_page_data(
        runs,
        PageRequest(
            generated_at="2026-11-20T10:00:00.000Z",
            version="1",
            stacks_of=lambda report: by_task.get(report.record.task_id),
        ),
    )
    file.write_text(render_page(data, read_assets(), title="Test"), "utf-8")
    return file
