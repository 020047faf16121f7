"""Numbers and causes in the words of a notice. What is not known, or is no number, is None. Pure."""

import math
import signal
from datetime import UTC, datetime
from itertools import pairwise

from forwarder.notice import AcceleratorUse, Notice, SizeAdvice, StopCategory, Verdict

VERDICTS: dict[Verdict, str] = {
    "success": "✅ Success",
    "failure": "❌ Failure",
    "stopped": "⏹️ Stopped",
    "unknown": "❔ Ended, result unknown",
}
_CAUSES: dict[StopCategory, str] = {
    "oom": "Out of memory: the container was killed because it wanted more memory than it may have.",
    "spot": "AWS took the Spot capacity back.",
    "user": "Somebody, or a program, stopped the task.",
    "scheduler": "The ECS scheduler stopped the task.",
    "image": "The container's image could not be pulled.",
    "resources": "ECS could not get what the task needs to start.",
}
_OOM_BUT_SUCCESS = "Something in the container was killed for memory, but the container ended with success."
_BAR_CELLS = 10
_WHOLE_PERCENT = 100
_IDLE_BELOW_PERCENT = 1
_MS_PER_SECOND = 1000
_SECONDS_PER_MINUTE = 60
_UNITS = ((86_400, "d"), (3600, "h"), (_SECONDS_PER_MINUTE, "min"), (1, "s"))
_MAX_MS = 1e15
_FIRST_SIGNAL_CODE = 128


def valid_number(value: float | None) -> float | None:
    """``value`` if it is a number that something can have used."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def number(value: float, digits: int = 2) -> str:
    """At most so many digits after the point and no zeros at the end; never 0 for what is not 0."""
    text = f"{value:.{digits}f}"
    if digits:
        text = text.rstrip("0").rstrip(".")
    return f"{value:.1g}" if text in {"0", "-0"} and value else text


def duration(milliseconds: float | None) -> str | None:
    """The two largest units: ``850 ms``, ``12.3 s``, ``4 min 5 s``, ``2 h 13 min``, ``3 d 4 h``."""
    value = valid_number(milliseconds)
    if value is None or value > _MAX_MS:
        return None
    if value < _MS_PER_SECOND:
        return f"{value:.0f} ms"
    seconds = value / _MS_PER_SECOND
    if seconds < _SECONDS_PER_MINUTE:
        return f"{math.floor(seconds * 10) / 10:g} s"
    for (large, large_name), (small, small_name) in pairwise(_UNITS):
        if seconds >= large:
            small_count = int(seconds % large // small)
            return f"{int(seconds // large)} {large_name}" + (f" {small_count} {small_name}" if small_count else "")
    return None


def dollars(value: float | None) -> str | None:
    """US dollars, with more digits for small sums."""
    usd = valid_number(value)
    if usd is None:
        return None
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${number(usd, 5)}"


def exit_code(code: int | None) -> str | None:
    """The code, with the signal's name where shells and Docker mean one by it."""
    if code is None:
        return None
    try:
        return f"{code} ({signal.Signals(code - _FIRST_SIGNAL_CODE).name})"
    except ValueError:
        return str(code)


def parse_moment(time: str | None) -> datetime | None:
    """A time of ISO 8601, in UTC; one without a zone is in UTC."""
    try:
        parsed = datetime.fromisoformat(time or "")
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def bar(percent: float) -> str:
    """``▰▰▰▰▱▱▱▱▱▱`` for 42 %."""
    filled = round(min(percent, _WHOLE_PERCENT) / _WHOLE_PERCENT * _BAR_CELLS)
    return "▰" * filled + "▱" * (_BAR_CELLS - filled)


def usage(average: float | None, maximum: float | None, *, peak: str | None = None, size: str | None = None) -> str:
    """Bar, average and peak against the size, as far as they are known; ``peak`` is the peak in its own unit."""
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


def accelerators(used: AcceleratorUse | None, name: str, names: str) -> str:
    """What the GPUs or Neuron cores did; one that idled is said plainly."""
    if used is None or used.count < 1:
        return ""
    memory = valid_number(used.maximum_memory_mb)
    peak_memory = None if memory is None else f"peak memory {number(memory, 0)} MB"
    average, maximum = valid_number(used.average_percent), valid_number(used.maximum_percent)
    busiest = average if maximum is None else maximum
    if busiest is not None and busiest < _IDLE_BELOW_PERCENT:
        text = f"{bar(busiest)}  idle the whole time: allocated, paid for and not used"
    else:
        text = usage(average, maximum)
    parts = "; ".join(part for part in (text, peak_memory) if part)
    return f"*{used.count} {name if used.count == 1 else names}*  {parts or 'use not known'}"


def cause(notice: Notice) -> str | None:
    """Why it ended, in plain words."""
    if notice.verdict == "success":
        return _OOM_BUT_SUCCESS if notice.category == "oom" else None
    if notice.category == "exit" and notice.exit_code is not None:
        return f"The container ended with exit code {exit_code(notice.exit_code)}."
    return _CAUSES.get(notice.category)


def memory_at_oom(notice: Notice) -> str | None:
    """For a run out of memory: peak and limit, as far as they are known."""
    peak, limit = valid_number(notice.numbers.memory_maximum_mb), valid_number(notice.numbers.memory_size_mb)
    parts = [
        None if peak is None else f"measured peak {number(peak, 1)} MB",
        None if limit is None else f"limit {number(limit, 1)} MB",
    ]
    text = ", ".join(part for part in parts if part)
    return f"Memory: {text}." if text else None


def suggested_size(advice: SizeAdvice) -> str | None:
    """The size to try next and what it saves."""
    vcpu, memory = valid_number(advice.vcpu), valid_number(advice.memory_mb)
    sizes = [
        None if vcpu is None else f"{number(vcpu, 3)} vCPU",
        None if memory is None else f"{number(memory, 0)} MB memory",
    ]
    text = " and ".join(size for size in sizes if size)
    return f"Size to try next: {text}{_saving(advice.saving_percent)}." if text else None


def _saving(percent: float | None) -> str:
    if percent is None or not math.isfinite(percent) or abs(percent) < 1:
        return ""
    return f" (saves {_percent(percent)})" if percent > 0 else f" (costs {_percent(-percent)} more)"


def _percent(value: float) -> str:
    return f"{number(value, 0 if value >= 1 else 1)} %"
