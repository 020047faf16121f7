"""Builds the Slack message of an ended task."""

from collections.abc import Iterator, Sequence

from forwarder.notices import value_formats
from forwarder.notices.ended_task import EndedTask
from forwarder.notices.links import links_of
from forwarder.notices.slack_blocks import (
    MAX_HEADER_LENGTH,
    MAX_NAME_LENGTH,
    MAX_SECTION_LENGTH,
    MAX_SENTENCE_LENGTH,
    JsonObject,
    SlackMessage,
    buttons,
    code_line,
    context,
    escape_text,
    names_in_a_row,
    plain_text,
    section,
    short,
    utf16_length,
    value_fields,
)
from profiler.record.hardware import gpu_totals, neuron_totals
from profiler.record.record_model import Distribution, MemoryKills, Metrics, Record, TaskSize

# Limits for readability.
_MAX_REVISION_LENGTH = 30
_MAX_REASON_LENGTH = 1000
_MAX_NAMES = 5
_MAX_PROCESSES = 3
_MAX_REASONS = 5
_MAX_LOG_LINE_LENGTH = 300
_LOG_TITLE, _CODE_FENCE = "*Last lines of the log*", "```"

_NOT_MEASURED = Distribution()


def message(notice: EndedTask, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of one stopped task. Never raises, because an error here would lose the notice."""
    blocks = (
        {"type": "header", "text": plain_text(_title(notice))},
        context(_location(notice)),
        _fields(notice),
        section(usage_lines(notice.metrics, notice.record), formatted=True),
        section(_cause_lines(notice)),
        _log(notice.log_lines),
        section(_advice(notice)),
        section(_why(notice)),
        context(_note(notice)),
        buttons(links_of(notice, kibana_url)),
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
        None if outcome.exit_code is None else f"exit code {short(value_formats.exit_code(outcome.exit_code))}",
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
    return names_in_a_row(named)


def _fields(notice: EndedTask) -> JsonObject | None:
    started = notice.task.started_at
    named = (
        ("Duration", value_formats.duration(notice.duration_ms)),
        ("Billed", _billed(notice.record) if notice.record is not None and notice.is_complete else None),
        ("Exit code", value_formats.exit_code(notice.outcome.exit_code)),
        ("Started", None if started is None else f"{started:%Y-%m-%d %H:%M:%S} UTC"),
    )
    return value_fields(named)


def _billed(record: Record) -> str:
    parts = (
        value_formats.duration(record.metrics.billed_duration_ms),
        value_formats.dollars(None if record.cost is None else record.cost.usd),
    )
    return ", ".join(part for part in parts if part)


def usage_lines(metrics: Metrics, record: Record | None) -> list[str]:
    """Return what the run used of its CPU, memory and accelerators, as far as known."""
    cpu = metrics.cpu_utilization_percent or _NOT_MEASURED
    memory = metrics.memory_utilization_percent or _NOT_MEASURED
    cpu_used = value_formats.usage(cpu.avg, cpu.max, size=value_formats.vcpu(metrics.vcpu_size))
    memory_used = value_formats.usage(
        memory.avg,
        memory.max,
        peak=value_formats.memory(metrics.max_memory_used_mb),
        size=value_formats.memory(metrics.memory_size_mb),
    )
    series = None if record is None else record.series
    return [
        f"*CPU*  {cpu_used}" if cpu_used else "",
        _code("" if series is None else value_formats.series(series.vcpu_used or (), metrics.vcpu_size)),
        f"*Memory*  {memory_used}" if memory_used else "",
        _code("" if series is None else value_formats.series(series.memory_used_mb or (), metrics.memory_size_mb)),
        *([] if record is None else [*_accelerators(record), _largest_processes(record)]),
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
    shown = (value_formats.process(process, escape_text(process.name, MAX_NAME_LENGTH)) for process in largest)
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
    return section([f"{_LOG_TITLE}\n{_CODE_FENCE}\n{text}\n{_CODE_FENCE}"], formatted=True) if text.strip() else None


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
    names = dict.fromkeys(escape_text(process.name, MAX_NAME_LENGTH) for process in kills.processes[:_MAX_NAMES])
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
    reasons = (escape_text(reason, MAX_SENTENCE_LENGTH) for reason in advice.reasons[:_MAX_REASONS])
    suggested = None if size is None else value_formats.suggested_size(size, advice.saving_percent)
    return [suggested or "", *(f"• {reason}" for reason in reasons if reason)]


def _why(notice: EndedTask) -> list[str]:
    comparison = None if notice.comparison is None else notice.comparison.text
    sentences = (comparison, value_formats.longest_wait(notice))
    return [escape_text(sentence, MAX_SENTENCE_LENGTH) for sentence in sentences if sentence]


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
