"""What the processes of a run did, for the report page: the time breakdown, the use by command,
and the call stacks.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

from profiler.record.activity_model import StacksLine, TimeBreakdown
from profiler.record.hardware import short_processor_name
from profiler.record.record_model import Metrics, Record, Report
from profiler.record.worth_a_word import MIN_COVERED_PERCENT, is_cpu_wait_partial, is_long_cpu_wait
from profiler.report_page.page_series import (
    compressed,
    finite_number,
    known_column,
    to_json,
    without_none,
)

StacksOf = Callable[[Report], StacksLine | None]

# The newest runs have these texts, as long as all of them together are not longer.
MAX_CHARACTERS = 1_500_000
# To read the stacks of a run takes milliseconds in a local history, and a request to a log group.
_MAX_RUNS_WITH_STACKS = 50
_PARTS = [
    field
    for field in TimeBreakdown.__struct_fields__
    if field.endswith("_percent") and field != "covered_percent"
]


def activity_fields(record: Record) -> dict[str, Any]:
    """The time's parts in TimeBreakdown's order, and the stacks.

    ``hasActivity``: the run may have a long text.
    """
    breakdown = record.time_breakdown or TimeBreakdown()
    stacks = record.stacks
    processor = record.processor
    parts = [finite_number(getattr(breakdown, field)) for field in _PARTS]
    is_covered = (breakdown.covered_percent or 0) >= MIN_COVERED_PERCENT
    waited = record.metrics if is_long_cpu_wait(record) else Metrics()
    functions = [
        [
            one.function,
            one.file,
            one.line,
            finite_number(one.self_percent),
            finite_number(one.total_percent),
        ]
        for one in (stacks.top if stacks else ())
    ]
    return without_none(
        {
            "time": parts if any(parts) else None,
            "targets": [
                [one.kind, one.target, finite_number(one.percent)] for one in breakdown.waiting_for
            ]
            or None,
            "covered": None if is_covered else breakdown.covered_percent,
            "cpuWaitSeconds": waited.cpu_wait_seconds,
            "cpuWait": waited.cpu_wait_percent,
            "cpuWaitPartial": is_cpu_wait_partial(record) or None,
            "processor": short_processor_name(processor.model)
            if processor and processor.model
            else None,
            "hasActivity": has_activity(record) or None,
            "stackSource": stacks and stacks.source,
            "samples": stacks
            and (stacks.samples if stacks.running_samples is None else stacks.running_samples),
            "functions": functions or None,
        }
    )


def has_activity(record: Record) -> bool:
    """Whether the run has processes over time or call stacks."""
    return record.stacks is not None or bool(record.series and record.series.processes)


def activity_texts(records: Iterable[Report], stacks_of: StacksOf, max_characters: int) -> str:
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
            has_stacks = report.record.stacks is not None and stacks_left > 0
            stacks_left -= has_stacks
            line = _activity_text(report.record, stacks_of(report) if has_stacks else None, left)
        left -= len(line) + 1
        lines.append(line)
    return "\n".join(lines).rstrip("\n")


def _activity_text(record: Record, stacks: StacksLine | None, max_characters: int) -> str:
    """The text with the stacks, without them if it is too long, or an empty one."""
    processes = _processes(record)
    for content in ({**processes, **_steps(stacks)}, processes):
        text = compressed(to_json(content)) if content else ""
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
    wait = known_column(series.cpu_wait)
    processes = [
        (one.command, known_column(one.vcpu_used), known_column(one.memory_used_mb))
        for one in series.processes
    ]
    length = max(
        len(column or ())
        for column in (wait, *(column for _, *both in processes for column in both))
    )
    if not length:
        return {}
    end_ms = min(length * series.step_ms, record.metrics.duration_ms or math.inf)
    found: dict[str, Any] = {
        "steps": [length, series.step_ms, round(max(end_ms, (length - 1) * series.step_ms))]
    }
    if known := [one for one in processes if one[1] or one[2]]:
        found["processes"] = known
    if any(wait or ()):
        found["wait"] = wait
    return found


def _steps(stacks: StacksLine | None) -> dict[str, Any]:
    """Offset and length in ms of each step, and how often each stack was seen in it."""
    steps = [
        (
            step.offset_ms,
            step.duration_ms,
            {stack: count for stack, count in step.stacks.items() if count > 0},
        )
        for step in (stacks.steps if stacks else ())
    ]
    return {"stacks": steps} if any(counts for _, _, counts in steps) else {}
