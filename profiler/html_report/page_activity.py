"""What the processes of a run did, for the report page: the time breakdown, the use by command, and the call stacks.

The use by command and the stacks are long, and only an opened run shows them. Each run has a compressed text of its
own, which the page reads when the run is opened.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from profiler.html_report.limited_gzip import compressed_json
from profiler.html_report.page_series import known_column
from profiler.html_report.rounding import round_to
from profiler.past_runs.sampled_functions import without_packages_folder
from profiler.record.activity_model import StacksLine, TimeBreakdown
from profiler.record.hardware import short_processor_name
from profiler.record.record_model import Record, Report

StacksOf = Callable[[Report], StacksLine | None]

# The newest runs have these texts, as long as all of them together are not longer.
MAX_CHARACTERS = 1_500_000
# To read the stacks of a run takes milliseconds in a local history, and a request to a log group.
_MAX_RUNS_WITH_STACKS = 50
_DIGITS = 3
# Below that, nobody sees the line in the chart.
_MIN_SHOWN_WAIT = 0.05


def no_stacks(_report: Report) -> None:
    """No run has stacks."""


def activity_fields(record: Record) -> dict[str, Any]:
    """Return the fields of an opened run: the parts of its time, and what its stacks have in common.

    ``time`` are the percentages in the order of :class:`TimeBreakdown`. ``hasActivity``: the run has a text of
    :func:`activity_texts` if the page has room for it.
    """
    breakdown, stacks, metrics, processor = record.time_breakdown, record.stacks, record.metrics, record.processor
    fields = {
        "time": None if breakdown is None else _parts(breakdown),
        "targets": None
        if breakdown is None
        else [[one.kind, one.target, round_to(one.percent, digits=1)] for one in breakdown.waiting_for] or None,
        "covered": None if breakdown is None else round_to(breakdown.covered_percent, digits=1),
        "cpuWaitSeconds": round_to(metrics.cpu_wait_seconds),
        "cpuWait": round_to(metrics.cpu_wait_percent, digits=1),
        "processor": short_processor_name(processor.model) if processor and processor.model else None,
        "hasActivity": has_activity(record) or None,
        "stackSource": None if stacks is None else stacks.source,
        "functions": None
        if stacks is None
        else [
            [
                one.function,
                without_packages_folder(one.file),
                one.line,
                round_to(one.self_percent, 1),
                round_to(one.total_percent, 1),
            ]
            for one in stacks.top
        ]
        or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def has_activity(record: Record) -> bool:
    """Whether the run has processes over time or call stacks."""
    return record.stacks is not None or bool(record.series and record.series.processes)


def activity_texts(records: Iterable[Report], stacks_of: StacksOf, max_characters: int) -> str:
    """Return a line for each run, newest first: what its processes did, or nothing. Lines at the end can be missing.

    Args:
        records: The reports, newest first.
        stacks_of: Reads the stacks of a run that has some.
        max_characters: The limit on the length of all lines.
    """
    lines, left, stacks_left = [], min(max_characters, MAX_CHARACTERS), _MAX_RUNS_WITH_STACKS
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
    steps = _steps(stacks)
    for content in ({**processes, **steps}, processes):
        text = compressed_json(content) if content else ""
        if len(text) < max_characters:
            return text
    return ""


def _processes(record: Record) -> dict[str, Any]:
    """The steps as in ``series_columns``, threads waiting for a CPU, and vCPU and MB of each command."""
    series = record.series
    if series is None or series.step_ms <= 0:
        return {}
    wait = known_column(series.cpu_wait, _DIGITS)
    processes = [
        (one.command, known_column(one.vcpu_used, _DIGITS), known_column(one.memory_used_mb, _DIGITS))
        for one in series.processes
    ]
    length = max(len(column or ()) for column in (wait, *(column for _, *both in processes for column in both)))
    if not length:
        return {}
    end_ms = min(length * series.step_ms, record.metrics.duration_ms or math.inf)
    found: dict[str, Any] = {"steps": [length, series.step_ms, round(max(end_ms, (length - 1) * series.step_ms))]}
    if known := [one for one in processes if one[1] or one[2]]:
        found["processes"] = known
    if max((value for value in wait or () if value is not None), default=0) >= _MIN_SHOWN_WAIT:
        found["wait"] = wait
    return found


def _steps(stacks: StacksLine | None) -> dict[str, Any]:
    """Offset and length in ms of each step, and how often each stack was seen in it."""
    steps = [(step.offset_ms, step.duration_ms, _counts(step.stacks)) for step in (stacks.steps if stacks else ())]
    return {"stacks": steps} if any(counts for _, _, counts in steps) else {}


def _counts(stacks: Mapping[str, int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for stack, count in stacks.items():
        if count > 0:
            name = without_packages_folder(stack)
            counts[name] = counts.get(name, 0) + count
    return counts


def _parts(breakdown: TimeBreakdown) -> list[float | None] | None:
    percents = (
        breakdown.on_cpu_percent,
        breakdown.waiting_for_cpu_percent,
        breakdown.disk_percent,
        breakdown.network_percent,
        breakdown.sleep_percent,
        breakdown.lock_percent,
        breakdown.pipe_percent,
        breakdown.child_percent,
        breakdown.other_percent,
    )
    parts = [round_to(percent, digits=1) for percent in percents]
    return parts if any(parts) else None
