"""The notices in the example account: what the monitor finds in a run's course, and what agrees with
a schedule's run.
"""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from profiler.aggregation.idle_time import NoticeReading
from profiler.aggregation.run_notices import RunNotices
from profiler.core.timestamps import NS_PER_MS, format_datetime, format_ms
from profiler.record.batch_job import NO_JOB
from profiler.record.family_statistics import HighestPeak
from profiler.record.notice_model import (
    NoticedSchedule,
    NoticeLine,
    ScheduleNotice,
    ScheduleNoticeKind,
    ScheduleNoticeLine,
)
from profiler.record.record_model import Record, Report
from profiler.record.units import MIB, format_duration
from tools.example_fleet import UsageCourse
from tools.example_runs import Batch

# Of a family's usual duration, as its owner expects.
_EXPECTED: Final = 1.5
_MISSED_SHARE, _LATE_SHARE = 0.01, 0.02
_LATE_MS: Final = 22 * 60_000
_GRACE: Final = timedelta(minutes=15)
_WORK_BYTES_PER_STEP: Final = 20_000_000


def run_notices(
    report: Report, batch: Batch, drawn: UsageCourse, earlier: HighestPeak
) -> Iterator[NoticeLine]:
    """Yield the lines that a monitor with an expected duration prints while this run goes on.

    ``earlier``: the highest peak of the family's earlier successes.
    """
    record = report.record
    started_ns = _ns(record.started_at)
    step_ns = round((record.metrics.duration_ms or 0) * NS_PER_MS / len(drawn.cpu))
    notices = RunNotices(
        started_ns,
        expected_seconds=60 * _EXPECTED * batch.minutes,
        interval_ns=step_ns,
        earlier_peak=lambda: earlier,
    )
    cpu_ns = network_bytes = 0
    for number, (cpu, memory) in enumerate(zip(drawn.cpu, drawn.memory, strict=True), 1):
        cpu_ns += round(cpu * batch.vcpu * step_ns)
        network_bytes += 0 if drawn.is_waiting(number - 1) else _WORK_BYTES_PER_STEP
        reading = NoticeReading(
            at_ns=started_ns + number * step_ns,
            cpu_ns=cpu_ns,
            network_bytes=network_bytes,
            block_bytes=0,
            memory_used_bytes=round(memory * batch.memory_mb * MIB),
            memory_size_bytes=batch.memory_mb * MIB,
        )
        for finding in (*notices.add_reading(reading), *notices.find_if_overdue(reading.at_ns)):
            notice = notices.raise_notice(finding, lambda _: None)
            elapsed_ms = round((finding.at_ns - started_ns) / NS_PER_MS)
            yield NoticeLine(
                time=format_ms(finding.at_ns), notice=notice, record=_running(record, elapsed_ms)
            )


def schedule_notice(run: Report, batch: Batch, rng: random.Random) -> ScheduleNoticeLine | None:
    """Return the line on the schedule of a run; None for most runs, and for jobs.

    Of kind ``missed``, it is in place of the run.
    """
    record = run.record
    if record.batch != NO_JOB:
        return None
    started_at = datetime.fromisoformat(record.started_at or "")
    drawn = rng.random()
    if drawn < _MISSED_SHARE:
        told_at = started_at + _GRACE
        message = (
            f"{_was_due(batch, started_at)}, and no task had started by {told_at:%H:%M} UTC. "
            "RunTask was refused, because the capacity is unavailable at this time."
        )
        return _schedule_line(record, "missed", message, started_at, told_at)
    if drawn < _MISSED_SHARE + _LATE_SHARE:
        due_at = started_at - timedelta(milliseconds=_LATE_MS)
        message = (
            f"{_was_due(batch, due_at)}. The task started {format_duration(_LATE_MS)} after the due "
            "time."
        )
        return _schedule_line(record, "late", message, due_at, started_at)
    return None


def _running(record: Record, elapsed_ms: int) -> Record:
    """The record of a run before its end."""
    return replace(
        record,
        status="running",
        exit_code=None,
        likely_out_of_memory=None,
        finished_at=None,
        metrics=replace(record.metrics, duration_ms=elapsed_ms),
    )


def _was_due(batch: Batch, due_at: datetime) -> str:
    return f"{batch.family} was due on {due_at:%Y-%m-%d} at {due_at:%H:%M} UTC"


def _schedule_line(
    record: Record, kind: ScheduleNoticeKind, message: str, due_at: datetime, told_at: datetime
) -> ScheduleNoticeLine:
    return ScheduleNoticeLine(
        time=format_datetime(told_at),
        notice=ScheduleNotice(kind=kind, message=message, due_at=format_datetime(due_at)),
        schedule=NoticedSchedule(
            kind="schedule",
            name=record.family or "",
            group="default",
            expression=f"cron({due_at.minute} {due_at.hour} * * ? *)",
        ),
        cluster=record.cluster,
        family=record.family,
        region=record.region,
        account_id=record.account_id,
    )


def _ns(time: str | None) -> int:
    return round(datetime.fromisoformat(time or "").timestamp() * 1000) * NS_PER_MS
