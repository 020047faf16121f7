"""A record as one line below 64 KiB, whatever the task.

Long lists are cut to their limits first; if that is not enough the lists go one after the other,
those of the batch itself last. The line says ``truncated`` then.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from profiler.record import Monitor, Process, Record, Report, encode

MAX_LINE_BYTES = 64 * 1024
MAX_CONTAINERS = 20
MAX_GPUS = 32
MAX_NEURON_CORES = 128
MAX_PROCESSES = 10
MAX_WARNINGS = 20
MAX_WARNING_LENGTH = 2500  # holds one that names all settings, each with a bad value and what it may be
MAX_WARNING_CHARACTERS = 10_000  # together
MAX_ARGUMENTS_LENGTH = 500


def encode_line(report: Report, members: Mapping[str, Any] | None = None) -> bytes:
    """The JSON line without its newline, shorter than 64 KiB.

    ``members`` stand at the line's root beside those of the report. Lists of the record go before
    they do; where not even that is enough, they are left out.
    """
    if not members:
        return _encode_within(report, MAX_LINE_BYTES)
    added = b"," + msgspec.json.encode(members)[1:-1]
    line = _encode_within(report, MAX_LINE_BYTES - len(added))[:-1] + added + b"}"
    return line if len(line) < MAX_LINE_BYTES else _encode_within(report, MAX_LINE_BYTES)


def _encode_within(report: Report, limit_bytes: int) -> bytes:
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
        containers=record.containers[:MAX_CONTAINERS],
        gpus=record.gpus[:MAX_GPUS],
        processes=tuple(_truncate_arguments(process) for process in record.processes[:MAX_PROCESSES]),
        neuron=record.neuron and replace(record.neuron, cores=record.neuron.cores[:MAX_NEURON_CORES]),
        monitor=record.monitor and _truncate_warnings(record.monitor),
    )
    return shortened if shortened == record else replace(shortened, truncated=True)


def _truncate_warnings(monitor: Monitor) -> Monitor:
    kept: list[str] = []
    left = MAX_WARNING_CHARACTERS
    for text in monitor.warnings[:MAX_WARNINGS]:
        if left > 0:
            kept.append(truncate_text(text, min(MAX_WARNING_LENGTH, left)))
            left -= len(kept[-1])
    return replace(monitor, warnings=tuple(kept))


def _truncate_arguments(process: Process) -> Process:
    if process.arguments is None or len(process.arguments) <= MAX_ARGUMENTS_LENGTH:
        return process
    return replace(process, arguments=truncate_text(process.arguments, MAX_ARGUMENTS_LENGTH))


def truncate_text(text: str, limit: int) -> str:
    """The text; one of more characters than the limit loses its end."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
