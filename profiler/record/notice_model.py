"""Notices: the monitor's line about a run that may need attention, and the forwarder's about a
schedule.
"""

import re
from typing import Annotated, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Meta, field

from profiler.record.measured import Number
from profiler.record.model_base import Model
from profiler.record.record_model import SCHEMA_VERSION, Record

NoticeKind = Literal["stuck", "overdue", "memory", "disk"]
ScheduleNoticeKind = Literal["missed", "late", "overlapped", "slow"]

# A reader passes a word on that only a newer writer knows.
_AnyNoticeKind = Annotated[str, Meta(extra_json_schema={"examples": list(get_args(NoticeKind))})]
_AnyScheduleNoticeKind = Annotated[
    str, Meta(extra_json_schema={"examples": list(get_args(ScheduleNoticeKind))})
]


class NoticeEvidence(Model, frozen=True, kw_only=True):
    """The numbers behind a notice; what does not belong to its kind is absent.

    ``stuck``: the largest values of any step since ``since``. ``overdue``: the time since the start
    and the expected one. ``memory`` and ``disk``: what is used of the size, its growth, and the
    minutes until it reaches the size at this growth; ``earlierPeakMB`` is the highest peak of the
    family's last ``earlierRuns`` successes, where these are known. ``waitingFor`` is what it waited
    for longest since ``since``; an ``overdue`` run, since its start.
    """

    minutes: Number | None = None
    vcpu_used: float | None = None
    network_bytes_per_second: Number | None = None
    block_bytes_per_second: Number | None = None
    waiting_for: str | None = None
    elapsed_seconds: Number | None = None
    expected_seconds: Number | None = None
    used_mb: Number | None = field(default=None, name="usedMB")
    size_mb: Number | None = field(default=None, name="sizeMB")
    growth_mb_per_minute: float | None = field(default=None, name="growthMBPerMinute")
    minutes_left: float | None = None
    earlier_peak_mb: Number | None = field(default=None, name="earlierPeakMB")
    earlier_runs: Number | None = None


class Notice(Model, frozen=True, kw_only=True):
    """Why a running batch may need attention.

    ``message`` is one sentence with the numbers. ``since`` is the time from which on the condition
    was met.
    """

    kind: _AnyNoticeKind
    message: str
    since: str | None = None
    evidence: NoticeEvidence | None = None


class NoticeLine(Model, frozen=True, kw_only=True, tag_field="type", tag="task.notice"):
    """A notice as a JSON line. ``record`` has the identity of the run and its metrics so far."""

    time: str
    schema_version: str = field(default_factory=lambda: SCHEMA_VERSION)
    notice: Notice
    record: Record


class NoticedSchedule(Model, frozen=True, kw_only=True):
    """A schedule of EventBridge Scheduler (``kind``: ``schedule``; ``group``: its group) or a
    rule (its event bus).
    """

    kind: str
    name: str
    group: str | None = None
    expression: str | None = None
    time_zone: str | None = None


class ScheduleNotice(Model, frozen=True, kw_only=True):
    """The outcome of a due time.

    ``reason`` is AWS's reason where there is one; ``taskId`` is the task or the job concerned;
    ``nextDueAt`` is the next due time after the notice.
    """

    kind: _AnyScheduleNoticeKind
    message: str
    due_at: str | None = None
    next_due_at: str | None = None
    reason: str | None = None
    task_id: str | None = None


class ScheduleNoticeLine(Model, frozen=True, kw_only=True, tag_field="type", tag="schedule.notice"):
    """A notice about a schedule as a JSON line; of one that submits jobs to a ``queue`` of AWS
    Batch, ``family`` is their definition's name.
    """

    time: str
    schema_version: str = field(default_factory=lambda: SCHEMA_VERSION)
    notice: ScheduleNotice
    schedule: NoticedSchedule
    cluster: str | None = None
    queue: str | None = None
    family: str | None = None
    region: str | None = None
    account_id: str | None = None

    @property
    def is_of_jobs(self) -> bool:
        """Whether the schedule submits jobs of AWS Batch."""
        return self.queue is not None

    @property
    def families(self) -> tuple[str, ...]:
        """The families in ``family``: a state machine may start several, and a rule has several
        targets.
        """
        return tuple(family for family in (self.family or "").split(", ") if family)


AnyNoticeLine: TypeAlias = NoticeLine | ScheduleNoticeLine

_BEGINNING = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:task|schedule)\.notice"')
_encoder = msgspec.json.Encoder()


def encode_notice_line(line: AnyNoticeLine) -> bytes:
    """Encode a notice as one JSON line, without newline."""
    return _encoder.encode(line)


def is_notice_line(line: bytes) -> bool:
    """Whether the line is a notice, of any version and perhaps damaged."""
    return bool(_BEGINNING.match(line))


def decode_notice_json(line: bytes | str) -> AnyNoticeLine:
    """Decode a JSON line.

    Impossible values of the record count as missing. Raises msgspec.DecodeError.
    """
    # Only readers import it.
    from profiler.record.impossible_values import decode_leniently, without_impossible

    notice = decode_leniently(cast("type[AnyNoticeLine]", AnyNoticeLine), line)
    return without_impossible(notice) or notice
