"""Builds the Slack messages of ended tasks and of notices: blocks within Slack's limits, of
escaped texts.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from profiler.core.ecs_terms import cluster_name
from profiler.core.optional_math import known, known_values
from profiler.core.redaction import redact, redact_line
from profiler.core.text import as_sentence, first_whole_letters, on_one_line, words_if_known
from profiler.core.timestamps import parse_datetime
from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.job_notice import JobNotice
from profiler.forwarder.notifications import value_formats
from profiler.forwarder.notifications.embedded_texts import without_emphasis
from profiler.forwarder.notifications.event_details import run_title, schedule_title
from profiler.forwarder.notifications.next_steps import (
    NextStep,
    is_command_shown_whole,
    steps_after_due_time,
    steps_after_job,
    steps_after_run,
    steps_shown_whole,
    steps_while_running,
)
from profiler.forwarder.notifications.notification import NightSummary, Notification, SummaryLine
from profiler.forwarder.notifications.run_advice import advice_after
from profiler.forwarder.run_links import (
    RunLinks,
    links_of_job,
    links_of_line,
    links_of_schedule_notice,
)
from profiler.record.batch_job import BatchJob
from profiler.record.gpu_facts import cause_sentence
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import (
    Metrics,
    Record,
    Series,
)
from profiler.record.run_summary import GPU_NOTES, Story, story_of
from profiler.record.run_usage import RunUsage
from profiler.record.sparkline import LEAST_MB, LEAST_VCPU
from profiler.record.stop_causes import outcome_of
from profiler.record.units import format_duration, format_memory

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
# A sentence that ends with a command, whose names AWS limits to 255 characters.
_MAX_COMMAND_SENTENCE_LENGTH = 1000
_BUTTONS = {"log_stream": "Log stream", "ecs_task": "ECS task", "kibana": "Kibana"}
# A text is truncated to this length before it is sanitized, which bounds the time for it.
_MAX_INPUT_LENGTH = 20_000
_LOG_TITLE = "Last lines of the log"
_CODE_FENCE = "```"
# These characters would end a link.
_LINK_BREAK = re.compile(r"[|<>\s]")

_SIGN = "⚠️ "
# A line of a summary, which has a link or a command, fits into a section.
_MAX_LINK_LENGTH = 2000
# On a lock screen.
_MAX_REASON_LENGTH = 150
_MAX_LINE_LENGTH = 2000


class SlackMessage(Struct, frozen=True, kw_only=True):
    """A message to Slack. Notifications and screen readers use ``text`` instead of the blocks."""

    text: str
    blocks: list[JsonObject]


def escape_text(text: str, max_length: int) -> str:
    """Return ``text`` on one line, escaped, truncated to ``max_length`` UTF-16 units, but never
    within an entity.
    """
    return _escape_and_truncate(" ".join(on_one_line(text[:_MAX_INPUT_LENGTH]).split()), max_length)


def _escape_and_truncate(clean: str, max_length: int) -> str:
    """Return the printable text escaped, truncated to ``max_length`` UTF-16 units, but never
    within an entity.
    """
    if utf16_length(clean.translate(_ESCAPES)) <= max_length:
        return clean.translate(_ESCAPES)
    lengths = accumulate(utf16_length(character.translate(_ESCAPES)) for character in clean)
    end = sum(1 for _ in takewhile(lambda length: length <= max_length - len("…"), lengths))
    return first_whole_letters(clean, end).rstrip().translate(_ESCAPES) + "…"


def plain_text_object(text: str) -> JsonObject:
    """A text object without formatting; ``:words:`` do not become emoji."""
    return {"type": "plain_text", "text": text, "emoji": False}


def mrkdwn_text_object(text: str) -> JsonObject:
    """Return a text object with formatting, in which Slack does not turn addresses and names
    into links.
    """
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units.

    Slack's unit is not documented; this is the larger of the two possible.
    """
    return len(text) + sum(character >= _FIRST_SUPPLEMENTARY for character in text)


def buttons_block(links: RunLinks) -> JsonObject | None:
    """Return a button for each known address."""
    elements = []
    for action, url in asdict(links).items():
        if url and len(url) <= MAX_URL_LENGTH:
            text = plain_text_object(_BUTTONS[action])
            elements.append({"type": "button", "action_id": action, "text": text, "url": url})
    return {"type": "actions", "elements": elements} if elements else None


def section_block(lines: Iterable[str], *, formatted: bool = False) -> JsonObject | None:
    """Return a section with the lines that are not empty; a line that does not fit is left out."""
    text = ""
    for line in lines:
        longer = f"{text}\n{line}" if text and line else text + line
        if utf16_length(longer) <= MAX_SECTION_LENGTH:
            text = longer
    if not text:
        return None
    return {
        "type": "section",
        "text": mrkdwn_text_object(text) if formatted else plain_text_object(text),
    }


def value_fields_block(named: Iterable[tuple[str, str | datetime | None]]) -> JsonObject | None:
    """Return a section with the values that are known, each below its name."""
    fields = []
    for name, value in named:
        if isinstance(value, datetime):
            fields.append(mrkdwn_text_object(f"*{name}*\n{_time_in_reader_zone(value)}"))
        elif value:
            text = escape_text(without_emphasis(value), MAX_VALUE_LENGTH)
            fields.append(mrkdwn_text_object(f"*{name}*\n{text}"))
    return {"type": "section", "fields": fields} if fields else None


def names_in_a_row(named: Iterable[tuple[str, str | None]]) -> str:
    """Return the known names in a row, each after its label."""
    texts = []
    for name, value in named:
        text = escape_text(value or "", MAX_NAME_LENGTH)
        if text:
            texts.append(f"{name} {text}".strip())
    return "  ·  ".join(texts)


def context_block(text: str) -> JsonObject | None:
    """Return a context block; None without text."""
    if text:
        return {"type": "context", "elements": [plain_text_object(text)]}
    return None


def slack_message_of(notification: Notification, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of a notification.

    Never raises, because an error here would lose the notice.
    """
    if isinstance(notification, EndedRun):
        return ended_task_message(notification, kibana_url=kibana_url)
    if isinstance(notification, JobNotice):
        return _job_message(notification)
    if isinstance(notification, NoticeLine):
        return _run_notice_message(notification, kibana_url=kibana_url)
    if isinstance(notification, NightSummary):
        return _night_message(notification)
    return _schedule_notice_message(notification, kibana_url=kibana_url)


def ended_task_message(notice: EndedRun, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of one stopped task."""
    story = story_of(notice.record, notice.outcome)
    named = (
        ("cluster", notice.task.cluster),
        ("", notice.task.region),
        ("task", notice.task.id),
        ("container", notice.container),
        *_job_name_labels(notice.record.batch),
    )
    return _message_with_header(
        _ended_task_title(notice),
        _fallback_text(notice),
        context_block(names_in_a_row(named)),
        _value_fields_of_run(notice),
        section_block(usage_lines(notice.record, story), formatted=True),
        section_block(_cause_lines(notice, story)),
        _log_block(notice.log_lines, notice.other_failed_container),
        _commands_block(steps_after_run(notice)),
        section_block(_advice_lines(notice)),
        section_block(_comparison_and_note_sentences(notice, story)),
        context_block(value_formats.numbers_source_sentence(notice, story)),
        buttons_block(notice.console_links(kibana_url)),
    )


def _job_name_labels(job: BatchJob) -> Iterator[tuple[str, str | None]]:
    """The job of AWS Batch, its attempt and its queue, for a row of names."""
    yield "job", job.job_name
    yield "" if job.job_name else "job", job.job_id
    yield "attempt", known(str, job.attempt)
    yield "queue", job.queue


def _ended_task_title(notice: EndedRun) -> str:
    tail = escape_text(words_if_known(":{}", notice.task.revision), 30)
    head = f"{value_formats.end_headline(notice)} · "
    room = MAX_HEADER_LENGTH - utf16_length(head) - utf16_length(tail)
    return f"{head}{escape_text(notice.family, room)}{tail}"


def _fallback_text(notice: EndedRun) -> str:
    outcome = notice.outcome
    parts = [_ended_task_title(notice)]
    code = outcome.exit_code_text
    if code and outcome.cause != "failure":
        parts.append(f"exit code {escape_text(code, MAX_VALUE_LENGTH)}")
    text = ", ".join(parts)
    last_line = _last_log_line_text(notice)
    has_reason = outcome.cause in ("failure", "dependency") and last_line
    return f"{text}: {last_line}" if has_reason else text


def _last_log_line_text(notice: EndedRun) -> str:
    """The newest line of the log, which tells why a container has exited, without secrets: a lock
    screen shows it to everybody.
    """
    lines = (redact(line[:_MAX_LINE_LENGTH].split()) for line in reversed(notice.log_lines))
    return escape_text(next(filter(None, lines), ""), _MAX_REASON_LENGTH)


def _value_fields_of_run(notice: EndedRun) -> JsonObject | None:
    named = (
        ("Duration", known(format_duration, notice.duration_ms)),
        value_formats.billed_or_cost(notice),
        ("Exit code", notice.outcome.exit_code_text),
        ("Started", notice.task.started_at),
        ("Created", None if notice.has_started else notice.task.created_at),
        ("Stopped", None if notice.has_started else notice.task.stopped_at),
    )
    return value_fields_block(named)


def usage_lines(record: Record, story: Story) -> list[str]:
    """Return the run's usage of CPU, memory and accelerators, as far as known."""
    usage = story.usage
    cpu, memory = value_formats.cpu_and_memory_words(story)
    cpu_used = value_formats.words_with_bar(cpu, usage.cpu.percent)
    memory_used = value_formats.words_with_bar(memory, usage.memory.percent)
    series = record.series or Series(started_at="", step_ms=0)
    lines = []
    if cpu_used:
        lines.append(f"*CPU*  {cpu_used}")
    lines.append(value_formats.draw_series(series.vcpu_used, usage.cpu.curve_limit, LEAST_VCPU))
    if memory_used:
        lines.append(f"*Memory*  {memory_used}")
    lines.append(value_formats.draw_series(series.memory_used_mb, usage.memory.size_mb, LEAST_MB))
    lines += _accelerator_lines(usage)
    return lines


def _accelerator_lines(usage: RunUsage) -> Iterator[str]:
    for fact in usage.devices:
        if fact.number.value and fact.name == "GPU":
            yield f"*{fact.sentence}*  {value_formats.gpu_usage_words(usage.gpus)}"
        elif fact.number.value:
            yield f"*{fact.sentence}*  {value_formats.neuron_usage_words(usage.neuron)}"


def _commands_block(steps: Sequence[NextStep]) -> JsonObject | None:
    """A code block with the commands, one a line, as far as they fit."""
    lines: list[str] = []
    left = MAX_SECTION_LENGTH - 2 * len(_CODE_FENCE)
    for step in steps_shown_whole(steps):
        line = step.command.translate(_ESCAPES)
        left -= utf16_length(line) + 1
        if left >= 0:
            lines.append(line)
    text = "\n".join(lines)
    return section_block([f"{_CODE_FENCE}{text}{_CODE_FENCE}"], formatted=True) if lines else None


def _log_block(lines: Sequence[str], container: str | None) -> JsonObject | None:
    """Return a code block with the newest lines that fit into a section, without secrets;
    ``container``: whose they are, if not the batch's.
    """
    title = f"*{_LOG_TITLE}*"
    if container:
        title = f"*{_LOG_TITLE} of {escape_text(without_emphasis(container), MAX_NAME_LENGTH)}*"
    shown: list[str] = []
    left = MAX_SECTION_LENGTH - utf16_length(f"{title}\n{_CODE_FENCE}\n{_CODE_FENCE}")
    for line in reversed(lines):
        indented = redact_line(on_one_line(line[:_MAX_INPUT_LENGTH].expandtabs(4))).rstrip()
        text = _escape_and_truncate(
            indented.replace("`", "'"), 300
        )  # three backticks would end the block
        left -= utf16_length(text) + 1
        if left < 0:
            break
        shown.insert(0, text)
    text = "\n".join(shown)
    if not text.strip():
        return None
    return section_block([f"{title}\n{_CODE_FENCE}\n{text}\n{_CODE_FENCE}"], formatted=True)


def _cause_lines(notice: EndedRun, story: Story) -> list[str]:
    outcome = notice.outcome
    lines: list[str | None] = []
    unusual = value_formats.unusual_success_words(notice)
    lines.append(words_if_known("Success, but {}.", unusual))
    cause = cause_sentence(outcome, notice.record)
    lines.append(escape_text(cause, MAX_SENTENCE_LENGTH))
    if outcome.ran_out_of_memory:
        lines.append(_out_of_memory_line(notice.metrics))
    if outcome.status == "failure":
        lines.append(story.first_sentence_named("memory limit"))
    for sentence in value_formats.gpu_memory_sentences(notice):
        lines.append(escape_text(sentence, MAX_SENTENCE_LENGTH))
    # ECS does not report killed child processes, a frequent cause of failures.
    lines.append(escape_text(story.first_sentence_named("killed"), 1000))
    if outcome.status != "success" and notice.additional_reason:
        reason = escape_text(notice.additional_reason, 1000)
        lines.append(f"Reason from ECS: {reason}" if reason else None)
    lines.append(escape_text(notice.reduced_memory or "", _MAX_COMMAND_SENTENCE_LENGTH))
    lines.append(escape_text(notice.retry.sentence, MAX_SENTENCE_LENGTH))
    return [line for line in lines if line]


def _out_of_memory_line(metrics: Metrics) -> str | None:
    """The peak and the limit of a run that ran out of memory."""
    sizes = []
    peak = metrics.memory_peak.text(format_memory)
    if peak:
        sizes.append(f"measured peak {peak}")
    limit = known(format_memory, metrics.memory_size_mb)
    if limit:
        sizes.append(f"limit {limit}")
    return f"Memory: {', '.join(sizes)}." if sizes else None


def _advice_lines(notice: EndedRun) -> list[str]:
    advice = advice_after(notice)
    lines = [advice.size]
    for reason in filter(None, advice.reasons[:5]):  # the line is anybody's: one can be empty
        text = escape_text(as_sentence(reason), MAX_SENTENCE_LENGTH)
        lines.append(f"• {text}")
    return [*lines, *(step.command.translate(_ESCAPES) for step in steps_shown_whole(advice.steps))]


def _comparison_and_note_sentences(notice: EndedRun, story: Story) -> list[str]:
    sentences = [notice.comparison.text, value_formats.longest_wait_sentence(notice) or ""]
    said = (
        *value_formats.gpu_memory_sentences(notice),
        cause_sentence(notice.outcome, notice.record),
    )
    notes = [row.sentence for row in story.rows_named(*GPU_NOTES)]
    sentences += [note for note in notes if note not in said]
    return [escape_text(sentence, MAX_SENTENCE_LENGTH) for sentence in sentences]


def _run_notice_message(line: NoticeLine, *, kibana_url: str | None) -> SlackMessage:
    record = line.record
    notice = line.notice
    location = (
        ("cluster", cluster_name(record.cluster)),
        ("", record.region),
        ("task", record.task_id),
        ("container", record.container.name),
    )
    values = (
        ("Running for", known(format_duration, record.metrics.duration_ms)),
        ("Since", parse_datetime(notice.since)),
        ("Started", parse_datetime(record.started_at)),
    )
    return _message_with_place(
        run_title(line),
        notice.message,
        location,
        value_fields_block(values),
        section_block(usage_lines(record, story_of(record, outcome_of(record))), formatted=True),
        _commands_block(steps_while_running(line)),
        buttons_block(links_of_line(line, kibana_url)),
    )


def _schedule_notice_message(line: ScheduleNoticeLine, *, kibana_url: str | None) -> SlackMessage:
    schedule = line.schedule
    notice = line.notice
    name = words_if_known("{}/", schedule.group) + schedule.name
    location = (
        ("cluster", cluster_name(line.cluster)),
        ("queue", line.queue),
        ("", line.region),
        ("definition" if line.is_of_jobs else "family", line.family),
        ("rule" if schedule.kind == "rule" else "schedule", name),
        ("job" if line.is_of_jobs else "task", notice.task_id),
    )
    expression = f"{schedule.expression or ''} {schedule.time_zone or ''}".strip()
    return _message_with_place(
        schedule_title(line),
        notice.message,
        location,
        value_fields_block(
            (
                ("Due", parse_datetime(notice.due_at)),
                ("Next due", parse_datetime(notice.next_due_at)),
                ("Schedule", expression),
            )
        ),
        _commands_block(steps_after_due_time(line)),
        buttons_block(links_of_schedule_notice(line, kibana_url)),
    )


def _job_message(notice: JobNotice) -> SlackMessage:
    """The message of a job's end, or of a job that cannot start."""
    sign = "✅" if notice.is_success else "❌"
    header = escape_text(f"{sign} {notice.title}", MAX_HEADER_LENGTH)
    job = notice.job
    identity = job.batch_job_of_attempt()
    named = (
        ("job", job.id),
        ("queue", identity.queue),
        ("definition", identity.job_definition),
        ("", job.region),
    )
    reduced_memory = escape_text(notice.reduced_memory or "", _MAX_COMMAND_SENTENCE_LENGTH)
    sentence = " ".join(
        filter(None, (escape_text(notice.facts_and_advice_text, 1000), reduced_memory))
    )
    text = f"{header}: {sentence}" if sentence else header
    return _message_with_header(
        header,
        text,
        context_block(names_in_a_row(named)),
        section_block([sentence]),
        _commands_block(steps_after_job(notice)),
        buttons_block(links_of_job(job)),
    )


def _night_message(summary: NightSummary) -> SlackMessage:
    below_header = as_sentence(summary.sentence.removeprefix(f"{summary.title}: "))
    lines = [f"• {_night_summary_line(line)}" for line in summary.lines]
    return _message_with_header(
        escape_text(summary.title, MAX_HEADER_LENGTH),
        escape_text(summary.sentence, MAX_SECTION_LENGTH),
        *_section_blocks([escape_text(without_emphasis(below_header), MAX_SECTION_LENGTH), *lines]),
    )


def _section_blocks(lines: Iterable[str]) -> Iterator[JsonObject]:
    """The lines in as few sections as hold them. Each line, formatted, fits into one."""
    text = ""
    for line in lines:
        longer = f"{text}\n{line}" if text else line
        if utf16_length(longer) > MAX_SECTION_LENGTH:
            yield {"type": "section", "text": mrkdwn_text_object(text)}
            longer = line
        text = longer
    yield {"type": "section", "text": mrkdwn_text_object(text)}


def _night_summary_line(line: SummaryLine) -> str:
    """The line with its time in the reader's zone, its link, and its command as code."""
    text = escape_text(without_emphasis(line.text), MAX_SENTENCE_LENGTH)
    if line.at:
        seconds = int(line.at.timestamp())
        text += f", <!date^{seconds}^{{time}}|{line.at:%H:%M} UTC>"
    link = words_if_known(" · <{}|open>", known(lambda url: url.translate(_ESCAPES), line.url))
    if utf16_length(link) <= _MAX_LINK_LENGTH and not _LINK_BREAK.search(line.url or ""):
        text += link
    if line.command and is_command_shown_whole(line.command):
        text += f" `{line.command.translate(_ESCAPES)}`"
    return text


def _message_with_place(
    title: str,
    sentence: str,
    location: Iterable[tuple[str, str | None]],
    *blocks: JsonObject | None,
) -> SlackMessage:
    header = _SIGN + escape_text(title, MAX_HEADER_LENGTH - utf16_length(_SIGN))
    shown = context_block(names_in_a_row(location)), section_block([escape_text(sentence, 1000)])
    return _message_with_header(
        header, f"{header}: {escape_text(sentence, MAX_SENTENCE_LENGTH)}", *shown, *blocks
    )


def _message_with_header(header: str, text: str, *blocks: JsonObject | None) -> SlackMessage:
    """A message without the blocks that would be empty."""
    shown = known_values(blocks)
    return SlackMessage(
        text=text, blocks=[{"type": "header", "text": plain_text_object(header)}, *shown]
    )


def _time_in_reader_zone(moment: datetime) -> str:
    """A time that Slack shows in the reader's time zone; where it cannot, as after the ``|``."""
    text = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    try:
        seconds = int(moment.timestamp())
    except OverflowError:  # at the ends of the calendar
        return text
    return f"<!date^{seconds}^{{date_num}} {{time_secs}}|{text}>"
