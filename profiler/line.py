"""A record as one line below 64 KiB, whatever the task.

Long lists are cut to their limits first; if that is not enough the lists go one after the other,
those of the batch itself last. The line says ``truncated`` then.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from profiler.record import Monitor, Process, Record, Report, encode

LARGEST_LINE_BYTES = 64 * 1024
MOST_CONTAINERS = 20
MOST_GPUS = 32
MOST_NEURON_CORES = 128
MOST_PROCESSES = 10
MOST_WARNINGS = 20
LONGEST_WARNING = 2500  # holds one that names all settings, each with a bad value and what it may be
MOST_WARNING_CHARACTERS = 10_000  # together
LONGEST_TEXT = 500


def encode_line(report: Report, members: Mapping[str, Any] | None = None) -> bytes:
    """The JSON line without its newline, shorter than 64 KiB.

    ``members`` stand at the line's root beside those of the report. Lists of the record go before
    they do; where not even that is enough, they are left out.
    """
    if not members:
        return _shortened(report, LARGEST_LINE_BYTES)
    added = b"," + msgspec.json.encode(members)[1:-1]
    line = _shortened(report, LARGEST_LINE_BYTES - len(added))[:-1] + added + b"}"
    return line if len(line) < LARGEST_LINE_BYTES else _shortened(report, LARGEST_LINE_BYTES)


def _shortened(report: Report, limit_bytes: int) -> bytes:
    shortened = replace(report, record=_within_limits(report.record))
    line = encode(shortened)
    lists: tuple[dict[str, object], ...] = (
        {"containers": ()},
        {"neuron": None},
        {"gpus": ()},
        {"processes": ()},
        {"interval": None},
        {"monitor": None},
    )
    for fields in lists:
        if len(line) < limit_bytes:
            break
        shortened = replace(shortened, record=replace(shortened.record, truncated=True, **fields))
        line = encode(shortened)
    return line


def _within_limits(record: Record) -> Record:
    shortened = replace(
        record,
        containers=record.containers[:MOST_CONTAINERS],
        gpus=record.gpus[:MOST_GPUS],
        processes=tuple(_short_name(process) for process in record.processes[:MOST_PROCESSES]),
        neuron=record.neuron and replace(record.neuron, cores=record.neuron.cores[:MOST_NEURON_CORES]),
        monitor=record.monitor and _short_warnings(record.monitor),
    )
    return shortened if shortened == record else replace(shortened, truncated=True)


def _short_warnings(monitor: Monitor) -> Monitor:
    kept: list[str] = []
    left = MOST_WARNING_CHARACTERS
    for text in monitor.warnings[:MOST_WARNINGS]:
        if left > 0:
            kept.append(shortened(text, min(LONGEST_WARNING, left)))
            left -= len(kept[-1])
    return replace(monitor, warnings=tuple(kept))


def _short_name(process: Process) -> Process:
    if process.arguments is None or len(process.arguments) <= LONGEST_TEXT:
        return process
    return replace(process, arguments=shortened(process.arguments, LONGEST_TEXT))


def shortened(text: str, limit: int) -> str:
    """The text; one of more characters than the limit loses its end."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
