"""Builds the Slack message of a notice: Block Kit within Slack's limits; external text is sanitized and escaped."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from forwarder.notices import value_formats
from forwarder.notices.ended_task import EndedTask
from forwarder.notices.links import links_of
from profiler.core.text import on_one_line
from profiler.record.hardware import gpu_totals, neuron_totals
from profiler.record.record_model import Distribution, MemoryKills, Record, TaskSize

JsonObject = dict[str, Any]

ELLIPSIS = "…"
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_FIRST_SUPPLEMENTARY = "\U00010000"
# Slack's limits; Slack refuses a longer message (invalid_blocks).
MAX_HEADER_LENGTH = 150
MAX_SECTION_LENGTH = 3000
MAX_URL_LENGTH = 3000
# Limits for readability.
_MAX_NAME_LENGTH = 120
_MAX_REVISION_LENGTH = 30
_MAX_REASON_LENGTH = 1000
_MAX_SENTENCE_LENGTH = 400
_MAX_VALUE_LENGTH = 60
_MAX_NAMES = 5
_MAX_PROCESSES = 3
_MAX_REASONS = 5
_MAX_LOG_LINE_LENGTH = 300
_LOG_TITLE, _CODE_FENCE, _TAB_WIDTH = "*Last lines of the log*", "```", 4
# A text is truncated to this length before it is sanitized, which bounds the time for it.
_MAX_INPUT_LENGTH = 20_000


_NOT_MEASURED = Distribution()


class SlackMessage(Struct, frozen=True, kw_only=True):
    """What is sent to Slack. Notifications and screen readers use ``text`` instead of the blocks."""

    text: str
    blocks: list[JsonObject]


def escape_text(text: str, max_length: int) -> str:
    """Return ``text`` on one line, escaped, truncated to ``max_length`` UTF-16 units, but never within an entity."""
    return _cut(" ".join(on_one_line(text[:_MAX_INPUT_LENGTH]).split()), max_length)


def code_line(text: str, max_length: int) -> str:
    """Return one line for a code block, with its indentation, escaped and truncated as by ``escape_text``.

    A backtick, three of which would end the block, becomes an apostrophe.
    """
    return _cut(on_one_line(text[:_MAX_INPUT_LENGTH].expandtabs(_TAB_WIDTH)).rstrip().replace("`", "'"), max_length)


def _cut(clean: str, max_length: int) -> str:
    """Return the printable text escaped, truncated to ``max_length`` UTF-16 units, but never within an entity."""
    if _escaped_length(clean) <= max_length:
        return clean.translate(_ESCAPES)
    left = max_length - len(ELLIPSIS)
    for end, character in enumerate(clean):
        left -= _escaped_length(character)
        if left < 0:
            return clean[:end].rstrip().translate(_ESCAPES) + ELLIPSIS
    return clean.translate(_ESCAPES)


def plain_text(text: str) -> JsonObject:
    """Return a text object without formatting; ``:words:`` do not become emoji."""
    return {"type": "plain_text", "text": text, "emoji": False}


def mrkdwn(text: str) -> JsonObject:
    """Return a text object with formatting, in which Slack does not turn addresses and names into links."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units. Slack's unit is not documented; this is the larger of the two possible."""
    return len(text) + sum(character >= _FIRST_SUPPLEMENTARY for character in text)


def _escaped_length(text: str) -> int:
    """Return the length in UTF-16 units after escaping."""
    return utf16_length(text.translate(_ESCAPES))


def message(notice: EndedTask, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of one stopped task. Never raises, because an error here would lose the notice."""
    blocks = (
        {"type": "header", "text": plain_text(_title(notice))},
        _context(_location(notice)),
        _fields(notice),
        _section(_usage(notice), formatted=True),
        _section(_cause_lines(notice)),
        _log(notice.log_lines),
        _section(_advice(notice)),
        _section(_why(notice)),
        _context(_note(notice)),
        _buttons(notice, kibana_url),
    )
    return SlackMessage(text=_fallback(notice), blocks=[block for block in blocks if block is not None])


def _title(notice: EndedTask) -> str:
    revision = "" if notice.task.revision is None else f":{notice.task.revision}"
    tail = escape_text(revision, _MAX_REVISION_LENGTH)
    head = f"{value_formats.title(notice)} · "
    return head + escape_text(notice.family, MAX_HEADER_LENGTH - utf16_length(head) - utf16_length(tail)) + tail


def _fallback(notice: EndedTask) -> str:
    duration, outcome = value_formats.duration(notice.duration_ms), notice.outcome
    parts = (
        _title(notice),
        None if duration is None else f"after {duration}",
        None if outcome.exit_code is None else f"exit code {_short(value_formats.exit_code(outcome.exit_code))}",
        "out of memory" if outcome.category == "oom" else None,
    )
    return ", ".join(part for part in parts if part)


def _location(notice: EndedTask) -> str:
    named = (
        ("cluster", notice.task.cluster),
        ("", notice.task.region),
        ("task", notice.task.id),
        ("container", notice.container),
    )
    texts = ((name, escape_text(value or "", _MAX_NAME_LENGTH)) for name, value in named)
    return "  ·  ".join(f"{name} {text}".strip() for name, text in texts if text)


def _fields(notice: EndedTask) -> JsonObject | None:
    started = notice.task.started_at
    named = (
        ("Duration", value_formats.duration(notice.duration_ms)),
        ("Billed", _billed(notice.record) if notice.record is not None and notice.is_complete else None),
        ("Exit code", value_formats.exit_code(notice.outcome.exit_code)),
        ("Started", None if started is None else f"{started:%Y-%m-%d %H:%M:%S} UTC"),
    )
    fields = [mrkdwn(f"*{name}*\n{_short(value)}") for name, value in named if value]
    return {"type": "section", "fields": fields} if fields else None


def _billed(record: Record) -> str:
    parts = (
        value_formats.duration(record.metrics.billed_duration_ms),
        value_formats.dollars(None if record.cost is None else record.cost.usd),
    )
    return ", ".join(part for part in parts if part)


def _usage(notice: EndedTask) -> list[str]:
    metrics = notice.metrics
    cpu = metrics.cpu_utilization_percent or _NOT_MEASURED
    memory = metrics.memory_utilization_percent or _NOT_MEASURED
    cpu_used = value_formats.usage(cpu.avg, cpu.max, size=value_formats.vcpu(metrics.vcpu_size))
    memory_used = value_formats.usage(
        memory.avg,
        memory.max,
        peak=value_formats.memory(metrics.max_memory_used_mb),
        size=value_formats.memory(metrics.memory_size_mb),
    )
    series = None if notice.record is None else notice.record.series
    return [
        f"*CPU*  {cpu_used}" if cpu_used else "",
        _code("" if series is None else value_formats.series(series.vcpu_used or (), metrics.vcpu_size)),
        f"*Memory*  {memory_used}" if memory_used else "",
        _code("" if series is None else value_formats.series(series.memory_used_mb or (), metrics.memory_size_mb)),
        *([] if notice.record is None else [*_accelerators(notice.record), _largest_processes(notice.record)]),
    ]


def _accelerators(record: Record) -> Iterator[str]:
    gpus, neuron = gpu_totals(record.gpus), neuron_totals(record.neuron)
    if gpus is not None and gpus.count:
        yield value_formats.accelerators(gpus.count, gpus.utilization_percent, gpus.memory_used_mb.max, "GPU")
    if neuron is not None and neuron.cores:
        peak_mb = neuron.device_memory_used_mb.max
        yield value_formats.accelerators(neuron.cores, neuron.utilization_percent, peak_mb, "Neuron core")


def _largest_processes(record: Record) -> str:
    """Return the largest processes. A single process is the batch itself, whose memory is already shown."""
    if len(record.processes) == 1 and record.processes[0].count in {None, 1}:
        return ""
    largest = sorted(record.processes, key=lambda process: -(process.max_memory_used_mb or 0))[:_MAX_PROCESSES]
    shown = (value_formats.process(process, escape_text(process.name, _MAX_NAME_LENGTH)) for process in largest)
    text = ", ".join(process for process in shown if process)
    return f"*Largest processes*  {text}" if text else ""


def _code(text: str) -> str:
    """Return the text in a monospaced font."""
    return f"`{text}`" if text else ""


def _log(lines: Sequence[str]) -> JsonObject | None:
    """Return a code block with as many of the newest lines as fit into a section."""
    shown: list[str] = []
    left = MAX_SECTION_LENGTH - len(f"{_LOG_TITLE}\n{_CODE_FENCE}\n{_CODE_FENCE}")
    for line in reversed(lines):
        text = code_line(line, _MAX_LOG_LINE_LENGTH)
        left -= utf16_length(text) + 1
        if left < 0:
            break
        shown.insert(0, text)
    text = "\n".join(shown)
    return _section([f"{_LOG_TITLE}\n{_CODE_FENCE}\n{text}\n{_CODE_FENCE}"], formatted=True) if text.strip() else None


def _cause_lines(notice: EndedTask) -> list[str]:
    outcome = notice.outcome
    unusual = value_formats.unusual(notice)
    lines = [None if unusual is None else f"Success, but {unusual}.", value_formats.cause(outcome)]
    if outcome.category == "oom":
        lines += [value_formats.memory_at_oom(notice)]
    kills = None if notice.record is None else notice.record.memory_kills
    if kills is not None and kills.count > 0:
        lines += [_killed(kills)]
    if outcome.status != "success" and notice.reason:
        reason = escape_text(notice.reason, _MAX_REASON_LENGTH)
        lines += [f"Reason from ECS: {reason}" if reason else None]
    return [line for line in lines if line]


def _killed(kills: MemoryKills) -> str:
    """A killed child process is often why a batch fails, and ECS does not report it."""
    names = dict.fromkeys(escape_text(process.name, _MAX_NAME_LENGTH) for process in kills.processes[:_MAX_NAMES])
    text = ", ".join(name for name in names if name)
    number = "one" if kills.count == 1 else kills.count
    return f"The kernel killed {number} of the run's processes because memory ran out{f': {text}' if text else ''}."


def _advice(notice: EndedTask) -> list[str]:
    record = notice.record
    if record is None or record.recommendation is None:
        return []
    size, advice = value_formats.new_size(record), record.recommendation
    if size is not None and _contradicts_out_of_memory(notice, size):
        return []
    reasons = (escape_text(reason, _MAX_SENTENCE_LENGTH) for reason in advice.reasons[:_MAX_REASONS])
    suggested = None if size is None else value_formats.suggested_size(size, advice.saving_percent)
    return [suggested or "", *(f"• {reason}" for reason in reasons if reason)]


def _why(notice: EndedTask) -> list[str]:
    comparison = None if notice.comparison is None else notice.comparison.text
    sentences = (comparison, value_formats.longest_wait(notice))
    return [escape_text(sentence, _MAX_SENTENCE_LENGTH) for sentence in sentences if sentence]


def _contradicts_out_of_memory(notice: EndedTask, size: TaskSize) -> bool:
    """Whether the size gives no more memory to a run that ran out of memory: its numbers are from before the end."""
    limit, memory = (
        value_formats.valid_number(notice.metrics.memory_size_mb),
        value_formats.valid_number(size.memory_mb),
    )
    return notice.outcome.category == "oom" and limit is not None and memory is not None and memory <= limit


def _note(notice: EndedTask) -> str:
    if notice.is_complete:
        return ""
    if notice.record is not None and _is_measured(notice.record):
        return "There is no report: these numbers come from the last checkpoint."
    return "There is no report: these numbers come from ECS alone."


def _is_measured(record: Record) -> bool:
    metrics = record.metrics
    cpu = metrics.cpu_utilization_percent or _NOT_MEASURED
    memory = metrics.memory_utilization_percent or _NOT_MEASURED
    values = (cpu.avg, cpu.max, memory.avg, memory.max, metrics.max_memory_used_mb)
    return any(value is not None for value in values) or any(_accelerators(record))


def _buttons(notice: EndedTask, kibana_url: str | None) -> JsonObject | None:
    names = {"log_stream": "Log stream", "ecs_task": "ECS task", "kibana": "Kibana"}
    buttons = [
        {"type": "button", "action_id": action, "text": plain_text(names[action]), "url": url}
        for action, url in links_of(notice, kibana_url).items()
        if url is not None and len(url) <= MAX_URL_LENGTH
    ]
    return {"type": "actions", "elements": buttons} if buttons else None


def _section(lines: Iterable[str], *, formatted: bool = False) -> JsonObject | None:
    """Return a section with the lines that are not empty; a line that does not fit is left out."""
    text = ""
    for line in lines:
        longer = f"{text}\n{line}" if text and line else text + line
        if utf16_length(longer) <= MAX_SECTION_LENGTH:
            text = longer
    if not text:
        return None
    return {"type": "section", "text": mrkdwn(text) if formatted else plain_text(text)}


def _context(text: str) -> JsonObject | None:
    return {"type": "context", "elements": [plain_text(text)]} if text else None


def _short(value: str | None) -> str:
    return escape_text(value or "", _MAX_VALUE_LENGTH)
