"""Builds the Slack message of a notice: Block Kit within Slack's limits; external text is sanitized and escaped."""

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Any

from msgspec import Struct

from forwarder.notices import wording
from forwarder.notices.notice import KilledProcesses, Notice, ProcessUse, RunNumbers, SizeAdvice
from forwarder.notices.wording import sanitize
from profiler.core.timestamps import parse_datetime

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
_MAX_REASONS = 5
_MAX_LOG_LINE_LENGTH = 300
_LOG_TITLE, _CODE_FENCE, _TAB_WIDTH = "*Last lines of the log*", "```", 4
# A text is truncated to this length before it is sanitized, which bounds the time for it.
_MAX_INPUT_LENGTH = 20_000


class SlackMessage(Struct, frozen=True, kw_only=True):
    """What is sent to Slack. Notifications and screen readers use ``text`` instead of the blocks."""

    text: str
    blocks: list[JsonObject]


def escape_text(text: str, max_length: int) -> str:
    """Return ``text`` on one line, escaped, truncated to ``max_length`` UTF-16 units, but never within an entity."""
    return _cut(" ".join(sanitize(text[:_MAX_INPUT_LENGTH]).split()), max_length)


def code_line(text: str, max_length: int) -> str:
    """Return one line for a code block, with its indentation, escaped and truncated as by ``escape_text``.

    A backtick, three of which would end the block, becomes an apostrophe.
    """
    return _cut(sanitize(text[:_MAX_INPUT_LENGTH].expandtabs(_TAB_WIDTH)).rstrip().replace("`", "'"), max_length)


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


def message(notice: Notice, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of one stopped task. Never raises, because an error here would lose the notice."""
    blocks = (
        {"type": "header", "text": plain_text(_title(notice))},
        _context(_location(notice)),
        _fields(notice),
        _section(_usage(notice.numbers), formatted=True),
        _section(_cause_lines(notice)),
        _log(notice.log_lines),
        _section(_advice(notice)),
        _section([escape_text(notice.comparison or "", _MAX_SENTENCE_LENGTH)]),
        _context(_note(notice)),
        _buttons(notice, kibana_url),
    )
    return SlackMessage(text=_fallback(notice), blocks=[block for block in blocks if block is not None])


def _title(notice: Notice) -> str:
    revision = "" if notice.revision is None else f":{notice.revision}"
    verdict = wording.VERDICTS[notice.verdict]
    tail = escape_text(revision, _MAX_REVISION_LENGTH)
    head = f"{verdict} · "
    return head + escape_text(notice.family, MAX_HEADER_LENGTH - utf16_length(head) - utf16_length(tail)) + tail


def _fallback(notice: Notice) -> str:
    duration = wording.duration(notice.numbers.duration_ms)
    parts = (
        _title(notice),
        None if duration is None else f"after {duration}",
        None if notice.exit_code is None else f"exit code {_short(wording.exit_code(notice.exit_code))}",
        "out of memory" if notice.category == "oom" else None,
    )
    return ", ".join(part for part in parts if part)


def _location(notice: Notice) -> str:
    named = (
        ("cluster", notice.cluster),
        ("", notice.region),
        ("task", notice.task_id),
        ("container", notice.container),
    )
    texts = ((name, escape_text(value or "", _MAX_NAME_LENGTH)) for name, value in named)
    return "  ·  ".join(f"{name} {text}".strip() for name, text in texts if text)


def _fields(notice: Notice) -> JsonObject | None:
    numbers = notice.numbers
    started = parse_datetime(notice.started_at, default_zone=UTC)
    billed = wording.duration(numbers.billed_duration_ms)
    cost = wording.dollars(numbers.cost_usd)
    named = (
        ("Duration", wording.duration(numbers.duration_ms)),
        ("Billed", ", ".join(text for text in (billed, cost) if text)),
        ("Exit code", wording.exit_code(notice.exit_code)),
        ("Started", None if started is None else f"{started:%Y-%m-%d %H:%M:%S} UTC"),
    )
    fields = [mrkdwn(f"*{name}*\n{_short(value)}") for name, value in named if value]
    return {"type": "section", "fields": fields} if fields else None


def _usage(numbers: RunNumbers) -> list[str]:
    cpu_used = wording.usage(
        numbers.cpu_average_percent,
        numbers.cpu_maximum_percent,
        size=wording.vcpu(numbers.vcpu_size),
    )
    memory_used = wording.usage(
        numbers.memory_average_percent,
        numbers.memory_maximum_percent,
        peak=wording.memory(numbers.memory_maximum_mb),
        size=wording.memory(numbers.memory_size_mb),
    )
    return [
        f"*CPU*  {cpu_used}" if cpu_used else "",
        _code(wording.series(numbers.series.vcpu_used, numbers.vcpu_size)),
        f"*Memory*  {memory_used}" if memory_used else "",
        _code(wording.series(numbers.series.memory_used_mb, numbers.memory_size_mb)),
        wording.accelerators(numbers.gpus, "GPU", "GPUs"),
        wording.accelerators(numbers.neuron, "Neuron core", "Neuron cores"),
        _largest_processes(numbers.processes),
    ]


def _largest_processes(processes: Iterable[ProcessUse]) -> str:
    shown = (wording.process(used, escape_text(used.name, _MAX_NAME_LENGTH)) for used in processes)
    text = ", ".join(process for process in shown if process)
    return f"*Largest processes*  {text}" if text else ""


def _code(text: str) -> str:
    """Return the text in a font whose characters all have one width."""
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


def _cause_lines(notice: Notice) -> list[str]:
    cause = wording.cause(notice)
    lines = [cause]
    if notice.category == "oom":
        lines += [wording.memory_at_oom(notice)]
    if notice.numbers.killed is not None:
        lines += [_killed(notice.numbers.killed)]
    if notice.verdict != "success" and notice.reason:
        reason = escape_text(notice.reason, _MAX_REASON_LENGTH)
        lines += [f"Reason from ECS: {reason}" if reason else None]
    return [line for line in lines if line]


def _killed(killed: KilledProcesses) -> str:
    """A killed child process is often why a batch fails, and ECS does not report it."""
    names = dict.fromkeys(escape_text(name, _MAX_NAME_LENGTH) for name in killed.names[:_MAX_NAMES])
    text = ", ".join(name for name in names if name)
    number = "one" if killed.count == 1 else killed.count
    return f"The kernel killed {number} of the run's processes because memory ran out{f': {text}' if text else ''}."


def _advice(notice: Notice) -> list[str]:
    advice = notice.numbers.advice
    if advice is None or _contradicts_out_of_memory(notice, advice):
        return []
    reasons = (escape_text(reason, _MAX_SENTENCE_LENGTH) for reason in advice.reasons[:_MAX_REASONS])
    return [wording.suggested_size(advice) or "", *(f"• {reason}" for reason in reasons if reason)]


def _contradicts_out_of_memory(notice: Notice, advice: SizeAdvice) -> bool:
    """Whether the advice gives no more memory to a run that ran out of memory: its numbers are from before the end."""
    limit, memory = wording.valid_number(notice.numbers.memory_size_mb), wording.valid_number(advice.memory_mb)
    return notice.category == "oom" and limit is not None and memory is not None and memory <= limit


def _note(notice: Notice) -> str:
    if notice.is_complete:
        return ""
    if _is_measured(notice.numbers):
        return "There is no report: these numbers come from the last checkpoint."
    return "There is no report: these numbers come from ECS alone."


def _is_measured(numbers: RunNumbers) -> bool:
    measured = (
        numbers.cpu_average_percent,
        numbers.cpu_maximum_percent,
        numbers.memory_average_percent,
        numbers.memory_maximum_percent,
        numbers.memory_maximum_mb,
        numbers.gpus,
        numbers.neuron,
    )
    return any(value is not None for value in measured)


def _buttons(notice: Notice, kibana_url: str | None) -> JsonObject | None:
    started = parse_datetime(notice.started_at, default_zone=UTC)
    named = (
        ("Log stream", "log_stream", wording.log_stream(notice.region, notice.log_group, notice.log_stream)),
        ("ECS task", "ecs_task", wording.ecs_task(notice.region, notice.cluster, notice.task_id)),
        ("Kibana", "kibana", wording.kibana_task(kibana_url, notice.task_id, started, notice.numbers.duration_ms)),
    )
    buttons = [
        {"type": "button", "action_id": action, "text": plain_text(name), "url": url}
        for name, action, url in named
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
