"""What the processes of a run did, for the report page: the time breakdown, the use by command,
and the call stacks.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

from profiler.core.optional_math import first_known, known
from profiler.record.activity_model import NO_STACKS, Stacks, TimeBreakdown
from profiler.record.equal_steps import rounded_column
from profiler.record.hardware import short_processor_name
from profiler.record.mention_limits import (
    MIN_COVERED_PERCENT,
)
from profiler.record.record_model import Record, Report
from profiler.record.run_summary import Story
from profiler.record.stacks_line import StacksLine
from profiler.report_page.page_rows import PageFunction, RunActivity
from profiler.report_page.page_series import compressed_base64, finite_or_none, to_json
from profiler.runs.step_series import Column

CallStacksOf = Callable[[Report], StacksLine | None]

# The newest runs have these texts, as long as all of them together are not longer.
MAX_CHARACTERS = 1_500_000
# To read the stacks of a run takes milliseconds in a local history, and a request to a log group.
_MAX_RUNS_WITH_STACKS = 50
_PARTS = [
    field
    for field in TimeBreakdown.__struct_fields__
    if field.endswith("_percent") and field != "covered_percent"
]


def activity_of(record: Record, story: Story) -> RunActivity:
    """Where the time of a run went."""
    breakdown = record.time_breakdown
    stacks = record.stacks
    parts = [finite_or_none(getattr(breakdown, field)) for field in _PARTS]
    targets = []
    for target in breakdown.waiting_for:
        targets.append((target.kind, target.target, finite_or_none(target.percent)))
    is_covered = (breakdown.covered_percent or 0) >= MIN_COVERED_PERCENT
    return RunActivity(
        time=parts if any(parts) else None,
        targets=targets or None,
        covered=None if is_covered else breakdown.covered_percent,
        cpu_wait=story.first_sentence_named("CPU wait") or None,
        cpu_wait_partial=story.usage.cpu.is_wait_partial or None,
        processor=_processor_name(record),
        has_activity=has_activity(record) or None,
        stack_source=stacks.source or None,
        samples=_running_samples(stacks),
        functions=_function_rows(stacks) or None,
    )


def _processor_name(record: Record) -> str | None:
    if not record.processor.model:
        return None
    return short_processor_name(record.processor.model)


def _running_samples(stacks: Stacks) -> int | None:
    """The samples in which a thread was running; all of them in records without that number."""
    return first_known(stacks.running_samples, stacks.samples)


def _function_rows(stacks: Stacks) -> list[PageFunction]:
    rows: list[PageFunction] = []
    for function in stacks.top:
        self_percent = finite_or_none(function.self_percent)
        total_percent = finite_or_none(function.total_percent)
        row = (function.function, function.file, function.line, self_percent, total_percent)
        rows.append(row)
    return rows


def has_activity(record: Record) -> bool:
    """Whether the run has processes over time or call stacks."""
    return record.stacks is not NO_STACKS or bool(record.series and record.series.processes)


def activity_texts(records: Iterable[Report], stacks_of: CallStacksOf, max_characters: int) -> str:
    """A compressed text for each run, newest first: its processes, or nothing.

    Lines at the end can be missing.
    """
    lines = []
    left = min(max_characters, MAX_CHARACTERS)
    stacks_left = _MAX_RUNS_WITH_STACKS
    for report in records:
        if left <= 0:
            break
        line = ""
        if has_activity(report.record):
            stacks = None
            if report.record.stacks is not NO_STACKS and stacks_left > 0:
                stacks_left -= 1
                stacks = stacks_of(report)
            line = _activity_text(report.record, stacks, left)
        left -= len(line) + 1
        lines.append(line)
    return "\n".join(lines).rstrip("\n")


def _activity_text(record: Record, stacks: StacksLine | None, max_characters: int) -> str:
    """The text with the stacks, without them if it is too long, or an empty one."""
    processes = _processes(record)
    for content in ({**processes, **_stack_steps(stacks)}, processes):
        if not content:
            return ""
        text = compressed_base64(to_json(content))
        if len(text) < max_characters:
            return text
    return ""


def _processes(record: Record) -> dict[str, Any]:
    """The steps as in ``series_columns``, threads waiting for a CPU, and vCPU and MB of each
    command.
    """
    series = record.series
    if series is None:
        return {}
    wait = known(rounded_column, series.cpu_wait)
    processes: list[tuple[str, Column | None, Column | None]] = []
    length = len(wait or ())
    for process in series.processes:
        vcpu_used = known(rounded_column, process.vcpu_used)
        memory_used_mb = known(rounded_column, process.memory_used_mb)
        length = max(length, len(vcpu_used or ()), len(memory_used_mb or ()))
        if vcpu_used or memory_used_mb:
            processes.append((process.command, vcpu_used, memory_used_mb))
    if not length:
        return {}
    end_ms = min(length * series.step_ms, record.metrics.duration_ms or math.inf)
    content: dict[str, Any] = {
        "steps": [length, series.step_ms, round(max(end_ms, (length - 1) * series.step_ms))]
    }
    if processes:
        content["processes"] = processes
    if any(wait or ()):
        content["wait"] = wait
    return content


def _stack_steps(stacks: StacksLine | None) -> dict[str, Any]:
    """Offset and length in ms of each step, and how often each stack was seen in it."""
    if stacks is None:
        return {}
    steps: list[tuple[int, int, dict[str, int]]] = []
    for step in stacks.steps:
        counts = {stack: count for stack, count in step.stacks.items() if count > 0}
        steps.append((step.offset_ms, step.duration_ms, counts))
    if not any(counts for _, _, counts in steps):
        return {}
    return {"stacks": steps}
