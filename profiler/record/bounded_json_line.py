"""A record as one JSON line below 64 KiB: long lists are cut, then whole parts are removed until
it fits.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from profiler.core.optional_math import known
from profiler.record.activity_model import NO_BREAKDOWN, NO_STACKS, Stacks, TimeBreakdown
from profiler.record.model_base import MAX_LINE_BYTES
from profiler.record.record_model import (
    NO_INTERVAL,
    NO_MONITOR,
    NO_NEURON,
    GpuIdle,
    Monitor,
    Neuron,
    Record,
    Report,
    Series,
    encode,
    without_large_parts,
)

Row = TypeVar("Row", bound=msgspec.Struct)

MAX_PART_BYTES = 16 * 1024
MAX_CONTAINERS = 20
MAX_GPUS = 32
MAX_NEURON_CORES = 128
MAX_WARNINGS = 20
# Enough for a warning that lists all settings, each with a bad value and the valid ones.
MAX_WARNING_LENGTH = 3000
MAX_WARNING_CHARACTERS = 10_000  # of all warnings together
MAX_ARGUMENTS_LENGTH = 500
MAX_FUNCTIONS = 10
MAX_MOMENTS = 5
MAX_FRAMES = 50
MAX_TEXT_LENGTH = 200  # of a target, a command, a function, a file and a frame
# The parts of a record that are removed from a line that is too long, the least important one
# first.
_REMOVABLE_PARTS: tuple[dict[str, object], ...] = (
    {"series": None},
    {"stacks": NO_STACKS},
    {"containers": ()},
    {"neuron": NO_NEURON},
    {"gpus": ()},
    {"gpu_idle": None},
    {"processes": ()},
    {"interval": NO_INTERVAL},
    {"tags": None},
    {"time_breakdown": NO_BREAKDOWN},
    {"monitor": NO_MONITOR},
)


def encode_line(report: Report, members: Mapping[str, Any] | None = None) -> bytes:
    """Encode a report as one JSON line without newline, shorter than 64 KiB, with ``members`` of
    its root object.

    Parts of the record are removed to make room for the members; if that is not enough, these are
    left out.
    """
    if not members:
        return _encode_within(report, MAX_LINE_BYTES)
    added = b"," + msgspec.json.encode(members)[1:-1]
    line = _encode_within(report, MAX_LINE_BYTES - len(added))[:-1] + added + b"}"
    if len(line) < MAX_LINE_BYTES:
        return line
    return _encode_within(report, MAX_LINE_BYTES)


def without_lists(record: Record) -> Record:
    """The record for the line of a notice below 64 KiB: identity, metrics and waits, within the
    limits.
    """
    shortened = replace(
        without_large_parts(record),
        neuron=NO_NEURON,
        interval=NO_INTERVAL,
        monitor=NO_MONITOR,
        containers=(),
        gpus=(),
    )
    return _record_within_limits(shortened)


def shortened_line(line: bytes) -> bytes:
    """The line without the commands over time if it is above 16 KiB: some of Docker's log
    drivers would split it.
    """
    if len(line) <= MAX_PART_BYTES:
        return line
    document = msgspec.json.decode(line)
    record = document["record"]
    if record.get("series", {}).pop("processes", None) is None:
        return line
    record["truncated"] = True
    return msgspec.json.encode(document)


def _encode_within(report: Report, limit_bytes: int) -> bytes:
    shortened = replace(report, record=_record_within_limits(report.record))
    line = encode(shortened)
    series = known(_without_commands, shortened.record.series)
    without_commands: dict[str, object] = {"series": series}
    for empty_part in (without_commands, *_REMOVABLE_PARTS):
        if len(line) < limit_bytes:
            break
        shortened = replace(
            shortened, record=replace(shortened.record, truncated=True, **empty_part)
        )
        line = encode(shortened)
    return line


def _without_commands(series: Series) -> Series:
    return replace(series, processes=())


def _record_within_limits(record: Record) -> Record:
    shortened = replace(
        record,
        containers=record.containers[:MAX_CONTAINERS],
        gpus=record.gpus[:MAX_GPUS],
        processes=_rows_with_truncated_texts(
            record.processes, "arguments", limit=MAX_ARGUMENTS_LENGTH
        ),
        neuron=_truncate_cores(record.neuron),
        monitor=_truncate_warnings(record.monitor),
        time_breakdown=_truncate_targets(record.time_breakdown),
        gpu_idle=known(_truncate_idle_targets, record.gpu_idle),
        stacks=_truncate_stacks(record.stacks),
    )
    if shortened == record:
        return shortened
    return replace(shortened, truncated=True)


def _truncate_cores(neuron: Neuron) -> Neuron:
    if len(neuron.cores) <= MAX_NEURON_CORES:
        return neuron
    return replace(neuron, cores=neuron.cores[:MAX_NEURON_CORES])


def _truncate_idle_targets(idle: GpuIdle) -> GpuIdle:
    return replace(
        idle,
        waiting_for=_truncate_targets(idle.waiting_for),
        waiting_before=_truncate_targets(idle.waiting_before),
    )


def _truncate_warnings(monitor: Monitor) -> Monitor:
    if monitor is NO_MONITOR:
        return monitor
    kept: list[str] = []
    characters_left = MAX_WARNING_CHARACTERS
    for text in monitor.warnings[:MAX_WARNINGS]:
        if characters_left > 0:
            kept.append(truncate_text(text, min(MAX_WARNING_LENGTH, characters_left)))
            characters_left -= len(kept[-1])
    return replace(monitor, warnings=tuple(kept))


def _truncate_targets(breakdown: TimeBreakdown) -> TimeBreakdown:
    if breakdown is NO_BREAKDOWN:
        return breakdown
    return replace(
        breakdown, waiting_for=_rows_with_truncated_texts(breakdown.waiting_for, "target")
    )


def _truncate_stacks(stacks: Stacks) -> Stacks:
    """The stacks within their limits; of a long stack the innermost functions."""
    if stacks is NO_STACKS:
        return stacks
    moments = []
    for moment in stacks.moments[:MAX_MOMENTS]:
        stack = tuple(map(_truncated, moment.stack[-MAX_FRAMES:]))
        moments.append(replace(moment, stack=stack, own=moment.own[-MAX_FRAMES:]))
    top = _rows_with_truncated_texts(stacks.top[:MAX_FUNCTIONS], "function", "file")
    return replace(stacks, source=_truncated(stacks.source), top=top, moments=tuple(moments))


def _rows_with_truncated_texts(
    rows: Sequence[Row], *names: str, limit: int = MAX_TEXT_LENGTH
) -> tuple[Row, ...]:
    """The rows, with these texts of theirs within the limit."""
    shortened = []
    for row in rows:
        texts = {name: _truncated(getattr(row, name), limit) for name in names}
        shortened.append(replace(row, **texts))
    return tuple(shortened)


def _truncated(text: str | None, limit: int = MAX_TEXT_LENGTH) -> str | None:
    return None if text is None else truncate_text(text, limit)


def truncate_text(text: str, limit: int) -> str:
    """Cut a text that has more characters than the limit; the last character is then an
    ellipsis.
    """
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"
