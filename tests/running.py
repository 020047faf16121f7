"""Lines of tasks that run now, for ``task-profiler watch``."""

from typing import Any

from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.notice_model import Notice, NoticeLine, encode_notice
from profiler.record.record_model import Distribution, Interval, Report, encode
from tests.runs import report

MINUTE_NS = 60 * NS_PER_SECOND
MESSAGE = "The run used less than 0.01 vCPU and 1 KB/s of network and disk for 30 minutes."


def checkpoint_at(
    now_ns: int, minutes: float = 10, *, age_seconds: float = 20, period_minutes: float = 1, **record: Any
) -> Report:
    """The newest checkpoint of a run that started so many minutes ago."""
    time_ns = now_ns - round(age_seconds * NS_PER_SECOND)
    started_ns = now_ns - round(minutes * MINUTE_NS)
    interval = Interval(
        started_at=format_ms(time_ns - round(period_minutes * MINUTE_NS)),
        finished_at=format_ms(time_ns),
        vcpu_used=Distribution(avg=0.4, max=0.9),
        memory_used_mb=Distribution(avg=900, max=1024),
    )
    measured = {"duration_ms": (time_ns - started_ns) / 1e6, "billed_duration_ms": None}
    known: dict[str, Any] = {
        "status": "running",
        "exit_code": None,
        "started_at": format_ms(started_ns),
        "finished_at": None,
        "interval": interval,
    }
    made = report(metrics=measured, **{**known, **record})
    return replace(made, time=format_ms(time_ns), type="task.checkpoint")


def ended(running: Report, status: str = "success", exit_code: int = 0) -> Report:
    """The report of the same run, a second after the checkpoint."""
    record = replace(running.record, status=status, exit_code=exit_code, interval=None)
    return replace(running, type="task.report", record=record)


def text(made: Report) -> str:
    """The line as the log stream has it."""
    return encode(made).decode()


def notice_text(running: Report, kind: str = "stuck") -> str:
    """The line of a notice about a run, from the time of its checkpoint."""
    record = replace(running.record, interval=None)
    return encode_notice(
        NoticeLine(time=running.time, notice=Notice(kind=kind, message=MESSAGE), record=record)
    ).decode()
