"""Builds the Slack messages of ended tasks and of notices: blocks within Slack's limits, of
escaped texts.
"""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from profiler.core.ecs_terms import cluster_name
from profiler.core.optional_math import known
from profiler.core.text import as_sentence, on_one_line
from profiler.core.timestamps import parse_datetime
from profiler.forwarder.notifications import value_formats
from profiler.forwarder.notifications.event_details import run_title, schedule_title
from profiler.forwarder.notifications.notification import (
    EndedTask,
    NightSummary,
    Notification,
    SummaryLine,
)
from profiler.forwarder.run_links import RunLinks, links_of_line, links_of_schedule_notice
from profiler.record.hardware import (
    gpu_idle_texts,
    gpu_totals,
    neuron_totals,
    visible_memory_advice,
)
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import Distribution, MemoryKills, Metrics, Record, TaskSize
from profiler.record.run_outcome import describe_exit_code
from profiler.record.sparkline import LEAST_MB, LEAST_VCPU
from profiler.record.spot_price import is_on_spot
from profiler.record.units import format_duration, format_memory, format_usd, format_vcpu

JsonObject = dict[str, Any]

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_FIRST_SUPPLEMENTARY = "\U00010000"
# Slack's limits; Slack refuses a longer message (invalid_blocks).
MAX_HEADER_LENGTH = 150
MAX_SECTION_LENGTH = 3000
MAX_URL_LENGTH = 3000
# Limits for readability.
MAX_NAME_LENGTH = 120
MAX_SENTENCE_LENGTH = 400
MAX_VALUE_LENGTH = 60
_BUTTONS = {"log_stream": "Log stream", "ecs_task": "ECS task", "kibana": "Kibana"}
# A text is truncated to this length before it is sanitized, which bounds the time for it.
_MAX_INPUT_LENGTH = 20_000
# These characters would end a link.
_LINK_BREAK = re.compile(r"[|<>\s]")
_LOG_TITLE, _CODE_FENCE = "*Last lines of the log*", "```"

_NOT_MEASURED = Distribution()
_SIGN = "⚠️ "
_NO_REPORT = "There is no report: the numbers are from the last checkpoint, or from ECS alone."


class SlackMessage(Struct, frozen=True, kw_only=True):
    """A message to Slack. Notifications and screen readers use ``text`` instead of the blocks."""

    text: str
    blocks: list[JsonObject]


def escape_text(text: str, max_length: int) -> str:
    """Return ``text`` on one line, escaped, truncated to ``max_length`` UTF-16 units, but never
    within an entity.
    """
    return _cut(" ".join(on_one_line(text[:_MAX_INPUT_LENGTH]).split()), max_length)


def _cut(clean: str, max_length: int) -> str:
    """Return the printable text escaped, truncated to ``max_length`` UTF-16 units, but never
    within an entity.
    """
    if utf16_length(clean.translate(_ESCAPES)) <= max_length:
        return clean.translate(_ESCAPES)
    lengths = accumulate(utf16_length(character.translate(_ESCAPES)) for character in clean)
    end = sum(1 for _ in takewhile(lambda length: length <= max_length - len("…"), lengths))
    return clean[:end].rstrip().translate(_ESCAPES) + "…"


def plain_text(text: str) -> JsonObject:
    """A text object without formatting; ``:words:`` do not become emoji."""
    return {"type": "plain_text", "text": text, "emoji": False}


def mrkdwn(text: str) -> JsonObject:
    """Return a text object with formatting, in which Slack does not turn addresses and names
    into links.
    """
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units.

    Slack's unit is not documented; this is the larger of the two possible.
    """
    return len(text) + sum(character >= _FIRST_SUPPLEMENTARY for character in text)


def buttons(links: RunLinks) -> JsonObject | None:
    """Return a button for each known address."""
    elements = [
        {"type": "button", "action_id": action, "text": plain_text(_BUTTONS[action]), "url": url}
        for action, url in asdict(links).items()
        if url is not None and len(url) <= MAX_URL_LENGTH
    ]
    return {"type": "actions", "elements": elements} if elements else None


def section(lines: Iterable[str], *, formatted: bool = False) -> JsonObject | None:
    """Return a section with the lines that are not empty; a line that does not fit is left out."""
    text = ""
    for line in lines:
        longer = f"{text}\n{line}" if text and line else text + line
        if utf16_length(longer) <= MAX_SECTION_LENGTH:
            text = longer
    if not text:
        return None
    return {"type": "section", "text": mrkdwn(text) if formatted else plain_text(text)}


def value_fields(named: Iterable[tuple[str, str | None]]) -> JsonObject | None:
    """Return a section with the values that are known, each below its name."""
    fields = [
        mrkdwn(f"*{name}*\n{escape_text(value, MAX_VALUE_LENGTH)}")
        for name, value in named
        if value
    ]
    return {"type": "section", "fields": fields} if fields else None


def names_in_a_row(named: Iterable[tuple[str, str | None]]) -> str:
    """Return the known names in a row, each after its label."""
    texts = ((name, escape_text(value or "", MAX_NAME_LENGTH)) for name, value in named)
    return "  ·  ".join(f"{name} {text}".strip() for name, text in texts if text)


def context(text: str) -> JsonObject | None:
    """Return a context block; None without text."""
    return {"type": "context", "elements": [plain_text(text)]} if text else None


def message_of(notification: Notification, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of a notification.

    Never raises, because an error here would lose the notice.
    """
    if isinstance(notification, EndedTask):
        return ended_task_message(notification, kibana_url=kibana_url)
    if isinstance(notification, NoticeLine):
        return _run_notice_message(notification, kibana_url=kibana_url)
    if isinstance(notification, NightSummary):
        return _night_message(notification)
    return _schedule_notice_message(notification, kibana_url=kibana_url)


def ended_task_message(notice: EndedTask, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of one stopped task."""
    named = (
        ("cluster", notice.task.cluster),
        ("", notice.task.region),
        ("task", notice.task.id),
        ("container", notice.container),
    )
    return _message(
        _title(notice),
        _fallback(notice),
        context(names_in_a_row(named)),
        _fields(notice),
        section(usage_lines(notice.metrics, notice.record), formatted=True),
        section(_cause_lines(notice)),
        _log(notice.log_lines),
        _command(notice),
        section(_advice(notice)),
        section(_why(notice)),
        context("" if notice.is_complete else _NO_REPORT),
        buttons(notice.links(kibana_url)),
    )


def _title(notice: EndedTask) -> str:
    revision = "" if notice.task.revision is None else f":{notice.task.revision}"
    tail = escape_text(revision, 30)
    title = (
        "⚠️ Success, but unlike its family"
        if notice.unusual
        else value_formats.TITLES[notice.outcome.status]
    )
    head = f"{title} · "
    return (
        head
        + escape_text(notice.family, MAX_HEADER_LENGTH - utf16_length(head) - utf16_length(tail))
        + tail
    )


def _fallback(notice: EndedTask) -> str:
    duration, outcome = known(format_duration, notice.duration_ms), notice.outcome
    code = known(describe_exit_code, outcome.exit_code)
    parts = (
        _title(notice),
        duration and f"after {duration}",
        code and f"exit code {escape_text(code, MAX_VALUE_LENGTH)}",
        "out of memory" if outcome.category == "oom" else None,
    )
    return ", ".join(part for part in parts if part)


def _fields(notice: EndedTask) -> JsonObject | None:
    billed = known(format_duration, notice.metrics.billed_duration_ms)
    cost = known(format_usd, None if notice.cost is None else notice.cost.usd)
    if cost is not None and is_on_spot(notice.cost):
        cost = f"≥ {cost} (Spot)"
    named = (
        ("Duration", known(format_duration, notice.duration_ms)),
        ("Billed", ", ".join(filter(None, (billed, cost)))),
        ("Exit code", known(describe_exit_code, notice.outcome.exit_code)),
        ("Started", _moment(notice.task.started_at)),
    )
    return value_fields(named)


def usage_lines(metrics: Metrics, record: Record | None) -> list[str]:
    """Return the run's usage of CPU, memory and accelerators, as far as known."""
    cpu = metrics.cpu_utilization_percent or _NOT_MEASURED
    memory = metrics.memory_utilization_percent or _NOT_MEASURED
    cpu_used = value_formats.usage(cpu.avg, cpu.max, size=known(format_vcpu, metrics.vcpu_size))
    size = known(format_memory, metrics.memory_size_mb)
    memory_used = value_formats.usage(
        memory.avg, memory.max, peak=value_formats.peak(metrics), size=size
    )
    cpu_curve = memory_curve = ""
    if record is not None and record.series is not None:
        cpu_curve = value_formats.series(
            record.series.vcpu_used or (), metrics.vcpu_size, LEAST_VCPU
        )
        memory_curve = value_formats.series(
            record.series.memory_used_mb or (), metrics.memory_size_mb, LEAST_MB
        )
    return [
        f"*CPU*  {cpu_used}" if cpu_used else "",
        cpu_curve and f"`{cpu_curve}`",
        f"*Memory*  {memory_used}" if memory_used else "",
        memory_curve and f"`{memory_curve}`",
        *([] if record is None else _accelerators(record)),
    ]


def _accelerators(record: Record) -> Iterator[str]:
    gpus, neuron = gpu_totals(record.gpus), neuron_totals(record.neuron)
    if gpus is not None and gpus.count:
        yield value_formats.accelerators(
            gpus.count, gpus.utilization_percent, gpus.memory_used_mb.max, "GPU"
        )
    if neuron is not None and neuron.cores:
        peak_mb = neuron.device_memory_used_mb.max
        yield value_formats.accelerators(
            neuron.cores, neuron.utilization_percent, peak_mb, "Neuron core"
        )


def _command(notice: EndedTask) -> JsonObject | None:
    """The command that shows a run that did not succeed.

    Its log group is the definition's: a record's can be false.
    """
    if notice.outcome.status == "success" or notice.record is None or notice.report_log is None:
        return None
    words = ("task-profiler", "show", notice.task.id, "--from", f"logs:{notice.report_log.group}")
    text = shlex.join(
        on_one_line(word).replace("`", "") for word in words
    )  # three backticks would end the block
    return section([f"{_CODE_FENCE}{text.translate(_ESCAPES)}{_CODE_FENCE}"], formatted=True)


def _log(lines: Sequence[str]) -> JsonObject | None:
    """Return a code block with the newest lines that fit into a section."""
    shown: list[str] = []
    left = MAX_SECTION_LENGTH - len(f"{_LOG_TITLE}\n{_CODE_FENCE}\n{_CODE_FENCE}")
    for line in reversed(lines):
        indented = on_one_line(line[:_MAX_INPUT_LENGTH].expandtabs(4)).rstrip()
        text = _cut(indented.replace("`", "'"), 300)  # three backticks would end the block
        left -= utf16_length(text) + 1
        if left < 0:
            break
        shown.insert(0, text)
    text = "\n".join(shown)
    return (
        section([f"{_LOG_TITLE}\n{_CODE_FENCE}\n{text}\n{_CODE_FENCE}"], formatted=True)
        if text.strip()
        else None
    )


def _cause_lines(notice: EndedTask) -> list[str]:
    outcome = notice.outcome
    unusual = value_formats.unusual(notice)
    lines = [None if unusual is None else f"Success, but {unusual}.", value_formats.cause(outcome)]
    if outcome.category == "oom":
        peak = value_formats.peak(notice.metrics)
        limit = known(format_memory, notice.metrics.memory_size_mb)
        sizes = (peak and f"measured peak {peak}", limit and f"limit {limit}")
        lines += [f"Memory: {', '.join(filter(None, sizes))}." if any(sizes) else None]
    if outcome.status == "failure" and notice.record is not None:
        seen = visible_memory_advice(notice.record, is_out_of_memory=outcome.category == "oom")
        lines += [seen and as_sentence(seen)]
    kills = None if notice.record is None else notice.record.memory_kills
    if kills is not None and kills.count > 0:
        lines += [_killed(kills)]
    if outcome.status != "success" and notice.reason:
        reason = escape_text(notice.reason, 1000)
        lines += [f"Reason from ECS: {reason}" if reason else None]
    if notice.reduced_memory is not None:
        lines += [escape_text(notice.reduced_memory, MAX_SENTENCE_LENGTH)]
    if notice.retry is not None:
        lines += [escape_text(notice.retry.sentence, MAX_SENTENCE_LENGTH)]
    return [line for line in lines if line]


def _killed(kills: MemoryKills) -> str:
    """A line about killed child processes, a frequent cause of failures that ECS does not
    report.
    """
    names = dict.fromkeys(
        escape_text(process.name, MAX_NAME_LENGTH) for process in kills.processes[:5]
    )
    text = ", ".join(name for name in names if name)
    number = "one" if kills.count == 1 else kills.count
    return (
        f"The kernel killed {number} of the run's processes because memory ran "
        f"out{f': {text}' if text else ''}."
    )


def _advice(notice: EndedTask) -> list[str]:
    record = notice.record
    if record is None or record.recommendation is None:
        return []
    advice, limit, size, command = record.recommendation, notice.metrics.memory_size_mb, "", ""
    if TaskSize(vcpu=advice.vcpu, memory_mb=advice.memory_mb) != record.task_size:
        vcpu, memory_mb = advice.vcpu or math.inf, advice.memory_mb or math.inf
        was = record.task_size or TaskSize(vcpu=notice.metrics.vcpu_size, memory_mb=limit)
        is_smaller = vcpu < (was.vcpu or 0) or memory_mb < (was.memory_mb or 0)
        has_no_more = notice.outcome.category == "oom" and memory_mb <= (limit or 0)
        if has_no_more or (notice.outcome.status == "failure" and is_smaller):
            return []  # the numbers are from before the end, and do not show what the run needed
        size = value_formats.recommended_size(advice)
        if size:
            command = f"task-profiler taskdef resize {escape_text(notice.family, MAX_NAME_LENGTH)}"
    reasons = (escape_text(reason, MAX_SENTENCE_LENGTH) for reason in advice.reasons[:5])
    return [size, *(f"• {reason}" for reason in reasons if reason), command]


def _why(notice: EndedTask) -> list[str]:
    comparison = None if notice.comparison is None else notice.comparison.text
    idle = () if notice.record is None else map(as_sentence, gpu_idle_texts(notice.record))
    sentences = (comparison, value_formats.longest_wait(notice), *idle)
    return [escape_text(sentence, MAX_SENTENCE_LENGTH) for sentence in sentences if sentence]


def _run_notice_message(line: NoticeLine, *, kibana_url: str | None) -> SlackMessage:
    record, notice = line.record, line.notice
    location = (
        ("cluster", cluster_name(record.cluster)),
        ("", record.region),
        ("task", record.task_id),
        ("container", record.container.name),
    )
    values = (
        ("Running for", known(format_duration, record.metrics.duration_ms)),
        ("Since", _moment(parse_datetime(notice.since))),
        ("Started", _moment(parse_datetime(record.started_at))),
    )
    return _notice_message(
        run_title(line),
        notice.message,
        location,
        value_fields(values),
        section(usage_lines(record.metrics, record), formatted=True),
        buttons(links_of_line(line, kibana_url)),
    )


def _schedule_notice_message(line: ScheduleNoticeLine, *, kibana_url: str | None) -> SlackMessage:
    schedule, notice = line.schedule, line.notice
    name = schedule.name if schedule.group is None else f"{schedule.group}/{schedule.name}"
    location = (
        ("cluster", cluster_name(line.cluster)),
        ("", line.region),
        ("family", line.family),
        ("rule" if schedule.kind == "rule" else "schedule", name),
        ("task", notice.task_id),
    )
    expression = f"{schedule.expression or ''} {schedule.time_zone or ''}".strip()
    return _notice_message(
        schedule_title(line),
        notice.message,
        location,
        value_fields((("Due", _moment(parse_datetime(notice.due_at))), ("Schedule", expression))),
        buttons(links_of_schedule_notice(line, kibana_url)),
    )


def _night_message(summary: NightSummary) -> SlackMessage:
    sentence = escape_text(summary.sentence, MAX_SECTION_LENGTH)
    lines = [f"• {_summary_line(line)}" for line in summary.lines]
    return _message(
        escape_text(summary.title, MAX_HEADER_LENGTH),
        sentence,
        section([sentence, *lines], formatted=True),
    )


def _summary_line(line: SummaryLine) -> str:
    """The line with its time in the reader's zone, its link, and its command as code."""
    text = escape_text(line.text, MAX_SENTENCE_LENGTH)
    if line.at is not None:
        seconds = int(line.at.timestamp())
        text += f", <!date^{seconds}^{{time}}|{line.at:%H:%M} UTC>"
    if (
        line.url is not None
        and len(line.url) <= MAX_URL_LENGTH
        and not _LINK_BREAK.search(line.url)
    ):
        text += f" · <{line.url.translate(_ESCAPES)}|open>"
    if line.command is not None:
        command = escape_text(line.command.replace("`", ""), MAX_SENTENCE_LENGTH)
        text += f" `{command}`"
    return text


def _notice_message(
    title: str,
    sentence: str,
    location: Iterable[tuple[str, str | None]],
    *blocks: JsonObject | None,
) -> SlackMessage:
    header = _SIGN + escape_text(title, MAX_HEADER_LENGTH - utf16_length(_SIGN))
    shown = context(names_in_a_row(location)), section([escape_text(sentence, 1000)])
    return _message(
        header, f"{header}: {escape_text(sentence, MAX_SENTENCE_LENGTH)}", *shown, *blocks
    )


def _message(header: str, text: str, *blocks: JsonObject | None) -> SlackMessage:
    """A message without the blocks that would be empty."""
    shown = (block for block in blocks if block is not None)
    return SlackMessage(text=text, blocks=[{"type": "header", "text": plain_text(header)}, *shown])


def _moment(moment: datetime | None) -> str | None:
    return known("{:%Y-%m-%d %H:%M:%S} UTC".format, moment)
