"""A record as one JSON line below 64 KiB.

Long lists are cut to their limits. If the line is still too long, whole parts are removed one after the other until
it fits. In both cases ``truncated`` is true in the record.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from profiler.record.activity_model import Stacks, TimeBreakdown
from profiler.record.record_model import Monitor, Process, Record, Report, Series, encode

MAX_LINE_BYTES = 64 * 1024
MAX_PART_BYTES = 16 * 1024
MAX_CONTAINERS = 20
MAX_GPUS = 32
MAX_NEURON_CORES = 128
MAX_PROCESSES = 10
MAX_WARNINGS = 20
MAX_WARNING_LENGTH = 3000  # enough for a warning that lists all settings, each with a bad value and the valid ones
MAX_WARNING_CHARACTERS = 10_000  # of all warnings together
MAX_ARGUMENTS_LENGTH = 500
MAX_WAIT_TARGETS = 9
MAX_COMMANDS = 9
MAX_FUNCTIONS = 10
MAX_MOMENTS = 5
MAX_FRAMES = 50
MAX_TEXT_LENGTH = 200  # of a target, a command, a function, a file and a frame
# The limits of AWS; tags whose name begins with "aws:" do not count there.
MAX_TAGS = 50
MAX_TAG_NAME_LENGTH = 128
MAX_TAG_VALUE_LENGTH = 256
MAX_TAGS_BYTES = 20 * 1024  # of all tags together in JSON: enough for 50 of the longest ones in ASCII
# The parts of a record that are removed from a line that is too long, the least important one first.
_REMOVABLE_PARTS: tuple[dict[str, object], ...] = (
    {"series": None},
    {"stacks": None},
    {"containers": ()},
    {"neuron": None},
    {"gpus": ()},
    {"processes": ()},
    {"interval": None},
    {"tags": None},
    {"time_breakdown": None},
    {"monitor": None},
)


def encode_line(report: Report, members: Mapping[str, Any] | None = None) -> bytes:
    """Encode a report as one JSON line without newline, shorter than 64 KiB.

    Args:
        report: The report.
        members: Additional members of the line's root object. Parts of the record are removed first to make room for
            them; if that is not enough, the members are left out.
    """
    if not members:
        return _encode_within(report, MAX_LINE_BYTES)
    added = b"," + msgspec.json.encode(members)[1:-1]
    line = _encode_within(report, MAX_LINE_BYTES - len(added))[:-1] + added + b"}"
    return line if len(line) < MAX_LINE_BYTES else _encode_within(report, MAX_LINE_BYTES)


def without_lists(record: Record) -> Record:
    """The record for the line of a notice: the identity, the metrics and what the run waited for, within the limits.

    What is left fits into a line below 64 KiB.
    """
    lists: dict[str, object] = dict.fromkeys(("series", "stacks", "neuron", "interval", "monitor"))
    return _within_limits(replace(record, **lists, containers=(), gpus=(), processes=()))


def short_line(line: bytes) -> bytes:
    """A report line for a log driver that splits lines of more than 16 KiB: above that, without the commands over time.

    Docker gives lines to its drivers in parts of that size, and not all of them put the parts together again.
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
    shortened = replace(report, record=_within_limits(report.record))
    line = encode(shortened)
    series = shortened.record.series
    without_commands: dict[str, object] = {"series": series and replace(series, processes=())}
    for empty_part in (without_commands, *_REMOVABLE_PARTS):
        if len(line) < limit_bytes:
            break
        shortened = replace(shortened, record=replace(shortened.record, truncated=True, **empty_part))
        line = encode(shortened)
    return line


def _within_limits(record: Record) -> Record:
    shortened = replace(
        record,
        containers=record.containers[:MAX_CONTAINERS],
        gpus=record.gpus[:MAX_GPUS],
        processes=tuple(_truncate_arguments(process) for process in record.processes[:MAX_PROCESSES]),
        neuron=record.neuron and replace(record.neuron, cores=record.neuron.cores[:MAX_NEURON_CORES]),
        monitor=record.monitor and _truncate_warnings(record.monitor),
        tags=record.tags and _truncate_tags(record.tags),
        time_breakdown=record.time_breakdown and _truncate_targets(record.time_breakdown),
        stacks=record.stacks and _truncate_stacks(record.stacks),
        series=record.series and _truncate_commands(record.series),
    )
    return shortened if shortened == record else replace(shortened, truncated=True)


def _truncate_warnings(monitor: Monitor) -> Monitor:
    kept: list[str] = []
    characters_left = MAX_WARNING_CHARACTERS
    for text in monitor.warnings[:MAX_WARNINGS]:
        if characters_left > 0:
            kept.append(truncate_text(text, min(MAX_WARNING_LENGTH, characters_left)))
            characters_left -= len(kept[-1])
    return replace(monitor, warnings=tuple(kept))


def _truncate_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """The tags within their limits; the user's come before those that AWS has added."""
    kept: dict[str, str] = {}
    bytes_left = MAX_TAGS_BYTES
    for name in sorted(tags, key=lambda name: name.startswith("aws:"))[:MAX_TAGS]:
        short_name = truncate_text(name, MAX_TAG_NAME_LENGTH)
        short_value = truncate_text(tags[name], MAX_TAG_VALUE_LENGTH)
        bytes_left -= len(msgspec.json.encode({short_name: short_value}))
        if bytes_left >= 0:
            kept[short_name] = short_value
    return kept


def _truncate_targets(breakdown: TimeBreakdown) -> TimeBreakdown:
    targets = (replace(row, target=_text(row.target)) for row in breakdown.waiting_for[:MAX_WAIT_TARGETS])
    return replace(breakdown, waiting_for=tuple(targets))


def _truncate_stacks(stacks: Stacks) -> Stacks:
    """The stacks within their limits; of a long stack the innermost functions."""
    top = (replace(row, function=_text(row.function), file=_text(row.file)) for row in stacks.top[:MAX_FUNCTIONS])
    moments = (
        replace(moment, stack=tuple(map(_text, moment.stack[-MAX_FRAMES:]))) for moment in stacks.moments[:MAX_MOMENTS]
    )
    return replace(stacks, source=_text(stacks.source), top=tuple(top), moments=tuple(moments))


def _truncate_commands(series: Series) -> Series:
    commands = (replace(row, command=_text(row.command)) for row in series.processes[:MAX_COMMANDS])
    return replace(series, processes=tuple(commands))


def _text(text: str) -> str:
    return truncate_text(text, MAX_TEXT_LENGTH)


def _truncate_arguments(process: Process) -> Process:
    if process.arguments is None or len(process.arguments) <= MAX_ARGUMENTS_LENGTH:
        return process
    return replace(process, arguments=truncate_text(process.arguments, MAX_ARGUMENTS_LENGTH))


def truncate_text(text: str, limit: int) -> str:
    """Cut a text that has more characters than the limit; the last character is then an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
