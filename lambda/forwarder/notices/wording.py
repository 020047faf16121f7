"""Formats the numbers, causes and links of a notice. A value that is unknown is None."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit
from uuid import NAMESPACE_URL, uuid5

from forwarder.notices.notice import AcceleratorUse, Notice, ProcessUse, SizeAdvice
from profiler.record.run_outcome import EndStatus, describe_cause, describe_exit_code
from profiler.record.sparkline import GAP, sparkline
from profiler.record.units import format_duration, format_memory, format_task_size, format_usd, format_vcpu

TASK_RUN_DASHBOARD_ID = uuid5(NAMESPACE_URL, "task-profiler/dashboard/task-run")
"""The id of the dashboard "Task run" in Kibana."""

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}", re.ASCII)
# The AWS partitions with a console on the public internet. Isolated partitions (iso) do not have one.
_CONSOLE_DOMAINS = {
    "cn-": "console.amazonaws.cn",
    "us-gov-": "console.amazonaws-us-gov.com",
    "eusc-": "console.amazonaws-eusc.eu",
}
_ISOLATED = re.compile(r"-iso[a-z]?-", re.ASCII)
_URL_SAFE_CHARACTERS = ":/?#[]@!$&'()*+,;=%~"
_MARGIN_BEFORE_START = timedelta(hours=1)
_MARGIN_AFTER_END = timedelta(minutes=5)


def log_stream(region: str | None, group: str | None, stream: str | None) -> str | None:
    """Return the address of a log stream in the CloudWatch console."""
    console = _console_url(region)
    if console is None or not group or not stream:
        return None
    place = f"log-groups/log-group/{_encoded_twice(group)}/log-events/{_encoded_twice(stream)}"
    return f"{console}/cloudwatch/home?region={region}#logsV2:{place}"


def ecs_task(region: str | None, cluster: str | None, task_id: str) -> str | None:
    """Return the address of the task in the ECS console, which shows a task for about an hour after it stopped."""
    console = _console_url(region)
    if console is None or not cluster or not task_id:
        return None
    task = f"clusters/{_encoded_once(cluster)}/tasks/{_encoded_once(task_id)}"
    return f"{console}/ecs/v2/{task}/configuration?region={region}"


def kibana_task(
    kibana_url: str | None, task_id: str, started: datetime | None, duration_ms: float | None = None
) -> str | None:
    """Return the address of the dashboard "Task run" for one task.

    The address contains a time range. It starts an hour before the task, which includes the image pull, or 30 days ago
    if the start is unknown. It ends a few minutes after the task, so that the run fills the charts, or now if the end
    is unknown.
    """
    base = _valid_url(kibana_url)
    if base is None or not task_id:
        return None
    start = "now-30d" if started is None else f"{_margin_before(started):%Y-%m-%dT%H:%M:%S.000Z}"
    query = f"task.id:{_kql(task_id)}"
    end = _end_with_margin(started, duration_ms)
    period = f"_g=(time:(from:{_rison(start)},to:{end}))"
    filtered = f"_a=(query:(language:kuery,query:{_rison(query)}))"
    return f"{base}/app/dashboards#/view/{TASK_RUN_DASHBOARD_ID}?{period}&{filtered}"


def _margin_before(started: datetime) -> datetime:
    try:
        return started.astimezone(UTC) - _MARGIN_BEFORE_START
    except OverflowError:  # in year 1
        return started.replace(tzinfo=UTC)


def _end_with_margin(started: datetime | None, duration_ms: float | None) -> str:
    if started is None or duration_ms is None:
        return "now"
    try:
        ended = started.astimezone(UTC) + timedelta(milliseconds=duration_ms) + _MARGIN_AFTER_END
    except (OverflowError, ValueError):  # after year 9999, or not a number
        return "now"
    return _rison(f"{ended:%Y-%m-%dT%H:%M:%S.000Z}")


def _console_url(region: str | None) -> str | None:
    if region is None or not _REGION.fullmatch(region) or _ISOLATED.search(region):
        return None
    domains = (domain for prefix, domain in _CONSOLE_DOMAINS.items() if region.startswith(prefix))
    return f"https://{region}.{next(domains, 'console.aws.amazon.com')}"


def _encoded_once(text: str) -> str:
    return quote(sanitize(text), safe="")


def _encoded_twice(text: str) -> str:
    """Encode a name as the CloudWatch console does after the ``#``: percent-encoded twice, with ``$`` for ``%``."""
    return quote(_encoded_once(text), safe="").replace("%", "$")


def _kql(text: str) -> str:
    """Return a phrase of Kibana's query language."""
    escaped = sanitize(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _rison(text: str) -> str:
    """Return a percent-encoded string of Rison, the notation of Kibana's addresses."""
    escaped = text.replace("!", "!!").replace("'", "!'")
    return f"'{quote(escaped, safe='!:')}'".replace("%27", "'")


def _valid_url(text: str | None) -> str | None:
    """Return the address, percent-encoded, if Slack accepts it for a button; else None."""
    address = quote(sanitize(text or "").strip(), safe=_URL_SAFE_CHARACTERS).rstrip("/")
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return None
    return address if usable else None


VERDICTS: dict[EndStatus, str] = {
    "success": "✅ Success",
    "failure": "❌ Failure",
    "stopped": "⏹️ Stopped",
    "unknown": "❔ Ended, result unknown",
}
_OOM_BUT_SUCCESS = (
    "A process in the container was killed because memory ran out, but the container exited successfully."
)
_BAR_CELLS = 10
_SPARKLINE_WIDTH = 40
_MIN_SPARKLINE_VALUES = 3
_NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
_WHOLE_PERCENT = 100
_IDLE_BELOW_PERCENT = 1
_MAX_MS = 1e15


def valid_number(value: float | None) -> float | None:
    """Return ``value`` if it is finite and not negative, else None."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def duration(milliseconds: float | None) -> str | None:
    """Format a duration; None if it is unknown or implausible."""
    value = valid_number(milliseconds)
    return None if value is None or value > _MAX_MS else format_duration(value)


def memory(size_mb: float | None) -> str | None:
    """Format a size of memory; None if it is unknown."""
    value = valid_number(size_mb)
    return None if value is None else format_memory(value)


def vcpu(count: float | None) -> str | None:
    """Format a number of vCPUs; None if it is unknown."""
    value = valid_number(count)
    return None if value is None else format_vcpu(value)


def dollars(value: float | None) -> str | None:
    """Format US dollars; None if they are unknown."""
    usd = valid_number(value)
    return None if usd is None else format_usd(usd)


def exit_code(code: int | None) -> str | None:
    """Return the code, with the name of the signal for codes that shells and Docker use for a signal."""
    return None if code is None else describe_exit_code(code)


def bar(percent: float) -> str:
    """Draw a bar of ten cells: ``▰▰▰▰▱▱▱▱▱▱`` for 42 %."""
    filled = round(min(percent, _WHOLE_PERCENT) / _WHOLE_PERCENT * _BAR_CELLS)
    return "▰" * filled + "▱" * (_BAR_CELLS - filled)


def usage(average: float | None, maximum: float | None, *, peak: str | None = None, size: str | None = None) -> str:
    """Return a bar, the average and the peak in percent, as far as known. ``peak`` is the peak with its unit."""
    average, maximum = valid_number(average), valid_number(maximum)
    peak_text = peak if maximum is None else f"{_percent(maximum)}{f' ({peak})' if peak else ''}"
    parts = [
        None if average is None else f"{_percent(average)} avg",
        None if peak_text is None else f"peak {peak_text}",
    ]
    text = ", ".join(part for part in parts if part)
    if not text:
        return ""
    shown = maximum if average is None else average
    drawn = "" if shown is None else f"{bar(shown)}  "
    return f"{drawn}{text}{f' of {size}' if size else ''}"


def series(values: Sequence[float | None], size: float | None) -> str:
    """Draw a series on the scale of ``size``, or of its largest value; empty with fewer than three measured values.

    Slack would cut spaces at both ends off, so a gap is drawn as a space that does not break.
    """
    measured = [value for value in values if valid_number(value) is not None]
    if len(measured) < _MIN_SPARKLINE_VALUES:
        return ""
    top = valid_number(size) or max(value for value in measured if value is not None)
    return sparkline(values, width=_SPARKLINE_WIDTH, top=top).replace(GAP, _NO_BREAK_SPACE)


def process(used: ProcessUse, name: str) -> str | None:
    """Return the processes of a name with their memory peak; ``name`` is their escaped name. None without a peak."""
    peak = memory(used.maximum_memory_mb)
    if peak is None or not name:
        return None
    number = 1 if used.count is None else max(used.count, 1)
    holders = used.holders or 1
    together = "" if number == holders else f" in {holders} of them"
    return f"{name} ({'' if number == 1 else f'{number}×, '}peak {peak}{together})"


def accelerators(used: AcceleratorUse | None, name: str, names: str) -> str:
    """Return the use of the GPUs or Neuron cores, with a clear statement if they were idle."""
    if used is None or used.count < 1:
        return ""
    peak = memory(used.maximum_memory_mb)
    peak_memory = None if peak is None else f"peak memory {peak}"
    average, maximum = valid_number(used.average_percent), valid_number(used.maximum_percent)
    busiest = average if maximum is None else maximum
    if busiest is not None and busiest < _IDLE_BELOW_PERCENT:
        text = f"{bar(busiest)}  idle the whole time: allocated and paid for, but not used"
    else:
        text = usage(average, maximum)
    parts = "; ".join(part for part in (text, peak_memory) if part)
    return f"*{used.count} {name if used.count == 1 else names}*  {parts or 'use unknown'}"


def cause(notice: Notice) -> str | None:
    """Return a sentence on why the task stopped."""
    if notice.verdict == "success":
        return _OOM_BUT_SUCCESS if notice.category == "oom" else None
    sentence = describe_cause(notice.category, notice.exit_code)
    return None if sentence is None else f"{sentence}."


def memory_at_oom(notice: Notice) -> str | None:
    """Return the memory peak and limit of a run that ran out of memory, as far as known."""
    peak, limit = memory(notice.numbers.memory_maximum_mb), memory(notice.numbers.memory_size_mb)
    parts = [None if peak is None else f"measured peak {peak}", None if limit is None else f"limit {limit}"]
    text = ", ".join(part for part in parts if part)
    return f"Memory: {text}." if text else None


def suggested_size(advice: SizeAdvice) -> str | None:
    """Return the size to try next and the saving."""
    text = format_task_size(valid_number(advice.vcpu), valid_number(advice.memory_mb))
    return f"Size to try next: {text}{_saving(advice.saving_percent)}." if text else None


def _saving(percent: float | None) -> str:
    if percent is None or not math.isfinite(percent) or abs(percent) < 1:
        return ""
    return f" (saves {_percent(percent)})" if percent > 0 else f" (costs {_percent(-percent)} more)"


def _percent(value: float) -> str:
    """Format with one decimal below 1 %; never as 0 if the value is not 0."""
    text = f"{value:.{0 if value >= 1 else 1}f}".removesuffix(".0")
    return f"{value:.1g} %" if text == "0" and value else f"{text} %"


def sanitize(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, and replace characters that cannot be printed with spaces."""
    whole = text.encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else " " for character in whole)
