"""A notice as a Slack message: Block Kit within Slack's limits. Pure.

https://docs.slack.dev/reference/block-kit . What is not known is left out, never shown as 0.
"""

from collections.abc import Iterable

from msgspec import Struct

from forwarder import links, wording
from forwarder.notice import KilledProcesses, Notice, RunNumbers, SizeAdvice
from forwarder.slack_text import JsonObject, escape_text, mrkdwn, plain_text, utf16_length

TASK_RUN_DASHBOARD_ID = links.TASK_RUN_DASHBOARD_ID

# Slack's limits; longer makes it refuse the whole message (invalid_blocks).
MAX_HEADER_LENGTH = 150
MAX_SECTION_LENGTH = 3000
MAX_FIELD_LENGTH = 2000
MAX_URL_LENGTH = 3000
# Ours: what people read.
_MAX_NAME_LENGTH = 120
_MAX_REVISION_LENGTH = 30
_MAX_REASON_LENGTH = 1000
_MAX_SENTENCE_LENGTH = 400
_MAX_VALUE_LENGTH = 60
_MAX_NAMES = 5
_MAX_REASONS = 5


class SlackMessage(Struct, frozen=True, kw_only=True):
    """What Slack is sent; ``text`` stands for the blocks in notifications and screen readers."""

    text: str
    blocks: list[JsonObject]


def message(notice: Notice, *, kibana_url: str | None) -> SlackMessage:
    """The message of one ended task. Never raises: a notice that cannot be drawn would be a notice lost."""
    blocks = (
        {"type": "header", "text": plain_text(_title(notice))},
        _context(_location(notice)),
        _fields(notice),
        _section(_usage(notice.numbers), formatted=True),
        _section(_cause_lines(notice)),
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
    took = wording.duration(notice.numbers.duration_ms)
    parts = (
        _title(notice),
        None if took is None else f"after {took}",
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
    started = wording.parse_moment(notice.started_at)
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
    vcpu, memory = wording.valid_number(numbers.vcpu_size), wording.valid_number(numbers.memory_size_mb)
    peak = wording.valid_number(numbers.memory_maximum_mb)
    cpu_used = wording.usage(
        numbers.cpu_average_percent,
        numbers.cpu_maximum_percent,
        size=None if vcpu is None else f"{wording.number(vcpu, 3)} vCPU",
    )
    memory_used = wording.usage(
        numbers.memory_average_percent,
        numbers.memory_maximum_percent,
        peak=None if peak is None else f"{wording.number(peak, 0)} MB",
        size=None if memory is None else f"{wording.number(memory, 0)} MB",
    )
    return [
        f"*CPU*  {cpu_used}" if cpu_used else "",
        f"*Memory*  {memory_used}" if memory_used else "",
        wording.accelerators(numbers.gpus, "GPU", "GPUs"),
        wording.accelerators(numbers.neuron, "Neuron core", "Neuron cores"),
    ]


def _cause_lines(notice: Notice) -> list[str]:
    cause = wording.cause(notice)
    lines = [cause]
    if notice.category == "oom":
        lines += [wording.memory_at_oom(notice)]
    if notice.numbers.killed is not None:
        lines += [_killed(notice.numbers.killed)]
    if notice.verdict != "success" and notice.reason:
        reason = escape_text(notice.reason, _MAX_REASON_LENGTH)
        lines += [f"ECS says: {reason}" if reason else None]
    return [line for line in lines if line]


def _killed(killed: KilledProcesses) -> str:
    """A child that is killed is often why a batch fails, and nothing that ECS hears of."""
    names = dict.fromkeys(escape_text(name, _MAX_NAME_LENGTH) for name in killed.names[:_MAX_NAMES])
    text = ", ".join(name for name in names if name)
    number = "one" if killed.count == 1 else killed.count
    return f"The kernel killed {number} of its processes for want of memory{f': {text}' if text else ''}."


def _advice(notice: Notice) -> list[str]:
    advice = notice.numbers.advice
    if advice is None or _contradicts_out_of_memory(notice, advice):
        return []
    reasons = (escape_text(reason, _MAX_SENTENCE_LENGTH) for reason in advice.reasons[:_MAX_REASONS])
    return [wording.suggested_size(advice) or "", *(f"• {reason}" for reason in reasons if reason)]


def _contradicts_out_of_memory(notice: Notice, advice: SizeAdvice) -> bool:
    """No more memory for a run that had too little: the numbers it rests on were taken before the end."""
    limit, memory = wording.valid_number(notice.numbers.memory_size_mb), wording.valid_number(advice.memory_mb)
    return notice.category == "oom" and limit is not None and memory is not None and memory <= limit


def _note(notice: Notice) -> str:
    if notice.is_complete:
        return ""
    if _is_measured(notice.numbers):
        return "The run left no report: these are the numbers of its last checkpoint."
    return "No report of the run was found: only what ECS says is shown."


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
    started = wording.parse_moment(notice.started_at)
    named = (
        ("Log stream", "log_stream", links.log_stream(notice.region, notice.log_group, notice.log_stream)),
        ("ECS task", "ecs_task", links.ecs_task(notice.region, notice.cluster, notice.task_id)),
        ("Kibana", "kibana", links.kibana_task(kibana_url, notice.task_id, started)),
    )
    buttons = [
        {"type": "button", "action_id": action, "text": plain_text(name), "url": url}
        for name, action, url in named
        if url is not None and len(url) <= MAX_URL_LENGTH
    ]
    return {"type": "actions", "elements": buttons} if buttons else None


def _section(lines: Iterable[str], *, formatted: bool = False) -> JsonObject | None:
    """The lines that hold something; those that would not fit are left out whole."""
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
