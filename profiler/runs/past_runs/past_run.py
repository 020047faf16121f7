"""One past run, and how it ended."""

from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import LogTarget
from profiler.core.optional_math import known_members
from profiler.core.timestamps import parse_ns
from profiler.record.batch_job import NO_JOB
from profiler.record.model_base import json_name
from profiler.record.record_model import Record, Report, encode
from profiler.record.run_outcome import Outcome
from profiler.record.run_summary import Story, story_of
from profiler.record.stop_causes import NO_EVENT, EventEnd, outcome_of

if TYPE_CHECKING:
    from profiler.record.family_identity import FamilyKey
    from profiler.record.line_trust import Voucher
    from profiler.record.report_head import ReportHead

# The fields of a record that ECS decides.
IDENTITY_NAMES = (
    "account_id",
    "region",
    "availability_zone",
    "cluster",
    "task_arn",
    "family",
    "revision",
    "launch_type",
    "batch",
)


class TaskEvent(Struct, frozen=True, kw_only=True):
    """ECS's data on the end of a task. ``end`` says nothing if only a retry was written."""

    end: EventEnd = NO_EVENT
    stop_code: str | None = None
    started_by: str | None = None
    retry_of: str | None = None
    retried_as: str | None = None


NO_TASK_EVENT: Final = TaskEvent()


class PastRun(Struct, frozen=True, kw_only=True, dict=True):
    """One run: its report, or the last checkpoint of a run without a report.

    Where ECS's event corrected identity, status or times, they differ from those in ``line``, the
    record line (None: the run left none). ``checkpoints`` are in no particular order. ``command``
    is redacted; only the local history has it. ``is_confirmed``: ECS's event, or the name of the
    log stream, vouches for the task and its family; a file is its reader's own word. ``counts``:
    whether it does in advice, comparisons and checks; else it is only listed, as unconfirmed.
    ``place``: the log stream in which CloudWatch Logs has the line; the record's own log stream is
    the line's word. ``voucher``: what vouches for a line of this stream. ``container_ids``:
    Docker's, of the batch and the monitor, from ECS's event.
    """

    report: Report
    line: bytes | None = None
    command: str | None = None
    checkpoints: tuple[Report, ...] = ()
    event: TaskEvent = NO_TASK_EVENT
    is_confirmed: bool = True
    counts: bool = True
    voucher: "Voucher | None" = None
    place: LogTarget | None = None
    container_ids: tuple[str, ...] = ()

    @property
    def record(self) -> Record:
        """The record of its report."""
        return self.report.record

    @property
    def family(self) -> "FamilyKey":
        """The family of its record."""
        from profiler.record.family_identity import family_key  # not for `run`

        return family_key(self.record)

    @property
    def has_record(self) -> bool:
        """Whether a monitor or a profiler has written of the run."""
        return self.line is not None

    @cached_property
    def outcome(self) -> Outcome:
        """How the run ended, by its report and ECS's event."""
        return outcome_of(self.record, self.event.end, is_confirmed=self.is_confirmed)

    @cached_property
    def story(self) -> Story:
        """What outputs tell of the run."""
        return story_of(self.record, self.outcome)

    @property
    def has_end_of_event(self) -> bool:
        """Whether ECS's event says how the run ended: of a task's containers, only the batch's."""
        return self.event.end.cause != "unknown"

    @property
    def started_at(self) -> str:
        """The start, or the time of the line if the start is unknown."""
        return self.record.started_at or self.report.time

    @property
    def started_ns(self) -> int:
        """The start in nanoseconds since 1970; 0 if no time of the run can be parsed."""
        return report_start_ns(self.report)

    def with_record(self, record: Record) -> "PastRun":
        """The run with another record in its report."""
        return replace(self, report=replace(self.report, record=record))

    def json_line(self) -> bytes:
        """The record line, with the identity that ECS's event corrected; for a run without a
        record, a line with all known values.
        """
        if self.line is None:
            return encode(self.report)
        return _with_identity_of(self.record, self.line)


def _with_identity_of(record: Record, line: bytes) -> bytes:
    """The line with the record's identity. Everything else stays, also what is unknown here."""
    from profiler.core.json_fields import decoded_or_none  # not for `run`

    document = decoded_or_none(msgspec.json.decode, line)
    if not isinstance(document, dict) or not isinstance(document.get("record"), dict):
        return line
    written = document["record"]
    identity = known_members({name: getattr(record, name) for name in IDENTITY_NAMES})
    corrected = {
        **written,
        **{json_name(name): msgspec.to_builtins(value) for name, value in identity.items()},
    }
    if record.batch is NO_JOB:
        corrected.pop("batch", None)
    if corrected == written:
        return line
    return msgspec.json.encode({**document, "record": corrected})


# Task, container, start.
RunKey = tuple[str, str, str]


def run_key(report: "Report | ReportHead") -> RunKey:
    """The identity of a report's run: task, container, start."""
    record = report.record
    return record.task_id, record.container.name, record.started_at or ""


def report_start_ns(report: "Report | ReportHead") -> int:
    """The start of a report's run in nanoseconds since 1970; 0 if no time of the report can be
    parsed.
    """
    return parse_ns(report.record.started_at) or parse_ns(report.time) or 0
