"""The running batches, from the lines of their monitors and from the tasks that ECS lists.

A run goes on if its newest line is a recent checkpoint or notice, and no report came. ECS's own
status precedes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, span_ms
from profiler.record.impossible_values import is_too_long
from profiler.record.line_trust import AccountTrust, LineVerdict, StreamTrust, claim_of
from profiler.record.notice_model import NoticeEvidence, NoticeLine, decode_notice_json
from profiler.record.record_model import (
    CHECKPOINT,
    NO_INTERVAL,
    SCHEMA_VERSION,
    Interval,
    Report,
    decode,
    known_status,
)
from profiler.runs.past_runs.log_group_runs import MissingLogGroupError, ReadPages
from profiler.runs.past_runs.lost_runs import (
    LATE_PERIODS,
    MAX_SILENCE_NS,
    checkpoint_period_ns,
    is_silent,
)
from profiler.runs.past_runs.run_source import RunFilter

LINE_TYPES = ("task.checkpoint", "task.notice", "task.report")
_RUNNING = "running"

RunKey = tuple[str, str]
# Takes a line, what its log stream vouches for, and CloudWatch's timestamp in milliseconds.
AddLine = Callable[[str, StreamTrust, int], LineVerdict | None]
# Lines arrive seconds after they were written, and their times come from other clocks. A repeated
# line does no harm.
_OVERLAP_MS = 120_000
# How long a run is listed after its end: nobody looks at the screen all the time.
_SHOWN_AFTER_END_NS = 5 * 60 * NS_PER_SECOND
LINE_FILTER_PATTERN = "{ " + " || ".join(f'$.type = "{name}"' for name in LINE_TYPES) + " }"


class SeenNotice(Struct, frozen=True, kw_only=True):
    """A notice of the monitor; message and evidence are None if its line is older than the first
    read.
    """

    kind: str
    at: str | None = None
    message: str | None = None
    evidence: NoticeEvidence | None = None


class RunningRun(Struct, frozen=True, kw_only=True):
    """A run that goes on, or that has just ended. ``silent_ms`` is longer than usual, or None."""

    report: Report
    notices: tuple[SeenNotice, ...] = ()
    silent_ms: int | None = None

    @property
    def is_running(self) -> bool:
        return known_status(self.report.record) == _RUNNING

    @property
    def newest_interval(self) -> Interval:
        """The measurements since the checkpoint before the newest one; empty without a
        checkpoint.
        """
        return self.report.record.interval

    def elapsed_ms(self, now_ns: int) -> float | None:
        """The time since the start; for an ended run, its duration.

        It is never less than in the newest checkpoint.
        """
        record = self.report.record
        measured_ms = record.metrics.duration_ms
        if not self.is_running:
            return measured_ms
        since_start_ms = span_ms(record.started_ns, now_ns)
        return max_known(since_start_ms, measured_ms)


class RunningRuns(Struct):
    """Collects lines, and finds the runs that are still running."""

    selection: RunFilter = RunFilter()
    _newest: dict[RunKey, Report] = {}
    _notices: dict[RunKey, dict[str, SeenNotice]] = {}
    _shown: dict[RunKey, RunningRun] = {}
    _ended: dict[RunKey, tuple[int, RunningRun]] = {}  # when it was first seen
    _confirmed: set[RunKey] = set()  # CloudWatch Logs vouches for the task

    def add_line(self, message: str, trust: StreamTrust, timestamp_ms: int) -> LineVerdict | None:
        """Take a line of a log stream, with CloudWatch's timestamp. Returns whether it counts;
        None: it is no line of ours.

        Other lines, and those of other tasks than the stream's, are ignored. Lines may come
        repeatedly and in any order.
        """
        text = message.strip()
        if not text.startswith("{") or not any(f'"{name}"' in text for name in LINE_TYPES):
            return None
        if is_too_long(text):
            return None
        try:
            line = _decode_line(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if line is None:
            return None
        verdict = trust.judge_line(claim_of(line), timestamp_ms)
        if verdict.counts:
            self._add_line(line, is_confirmed=verdict.is_confirmed)
        return verdict

    def _add_line(self, line: Report | NoticeLine, *, is_confirmed: bool) -> None:
        """Keep the report if it counts more than the known one, and the notice.

        A confirmed line replaces what others said of its task.
        """
        report, notice = _report_of(line)
        if not self.selection.matches(report):
            return
        key = container_key(report)
        if is_confirmed and key not in self._confirmed:
            # What was said of the task by others does not count any more.
            self._confirmed.add(key)
            self._newest.pop(key, None)
            self._notices.pop(key, None)
        if key in self._confirmed and not is_confirmed:
            return
        if notice is not None:
            self._notices.setdefault(key, {})[notice.kind] = notice
        known = self._newest.get(key)
        if known is None or _report_precedence(report) > _report_precedence(known):
            self._newest[key] = report

    def current_runs(
        self, now_ns: int, tasks: Sequence[Report] | None = None
    ) -> tuple[RunningRun, ...]:
        """The runs that go on, and those that were shown and have ended less than five minutes
        ago, the newest end first.

        ``tasks`` None: ECS was not asked.
        """
        if tasks is None:
            runs = [self._running_run(report, now_ns) for report in self._newest.values()]
        else:
            runs = []
            for task in tasks:
                if self.selection.matches(task):
                    runs += self._runs_of_task(task, now_ns)
        running = {}
        for run in runs:
            key = container_key(run.report)
            if not run.is_running and key in self._shown:
                self._ended[key] = now_ns, run
            # ECS says of its tasks whether they run.
            elif run.is_running and (tasks is not None or not is_silent(run.report, now_ns)):
                running[key] = run
        for key, (seen_ns, _) in self._ended.items():
            line = self._newest.get(key)
            if line is not None and line.type != CHECKPOINT:  # it may come after ECS's end
                self._ended[key] = seen_ns, self._running_run(line, now_ns)
        return self._with_ended(running, now_ns)

    def _with_ended(self, running: dict[RunKey, RunningRun], now_ns: int) -> tuple[RunningRun, ...]:
        """The runs that go on, and those that have just ended; keeps both."""
        self._shown = running
        oldest_ns = now_ns - _SHOWN_AFTER_END_NS
        self._ended = {
            key: end
            for key, end in self._ended.items()
            if end[0] > oldest_ns and key not in running
        }
        return (*running.values(), *(run for _, run in reversed(self._ended.values())))

    def _runs_of_task(self, task: Report, now_ns: int) -> Iterable[RunningRun]:
        """The runs of a task, from its monitor's lines; without lines, the task itself."""
        has_ended = known_status(task.record) != _RUNNING
        runs = []
        for (task_id, _), report in self._newest.items():
            if task_id == task.record.task_id:
                line = _with_end(report, task) if has_ended else report
                runs.append(self._running_run(line, now_ns))
        return runs or [self._running_run(task, now_ns)]

    def notices_of(self, report: Report) -> tuple[SeenNotice, ...]:
        """The notices of a run, in the order of time.

        The newest checkpoint also lists notices of unread lines.
        """
        notices = dict(self._notices.get(container_key(report), {}))
        for raised in report.record.notices:
            notices.setdefault(raised.kind, SeenNotice(kind=raised.kind, at=raised.at))
        return tuple(sorted(notices.values(), key=lambda notice: notice.at or ""))

    def _running_run(self, report: Report, now_ns: int) -> RunningRun:
        silent_ns = now_ns - (report.time_ns or now_ns)
        is_late = (
            report.record.interval is not NO_INTERVAL
            and silent_ns > LATE_PERIODS * checkpoint_period_ns(report)
        )
        return RunningRun(
            report=report,
            notices=self.notices_of(report),
            silent_ms=silent_ns // NS_PER_MS if is_late else None,
        )


def _decode_line(text: str) -> Report | NoticeLine | None:
    """The line; None for a notice about a schedule. Raises the errors of decoding."""
    if '"task.notice"' not in text:
        return decode(text.encode(errors="replace"))
    notice = decode_notice_json(text.encode(errors="replace"))
    return notice if isinstance(notice, NoticeLine) else None


def _report_of(line: Report | NoticeLine) -> tuple[Report, SeenNotice | None]:
    """The line as a report; a notice is a checkpoint without measurements of an interval."""
    if not isinstance(line, NoticeLine):
        return line, None
    report = Report(
        time=line.time, type=CHECKPOINT, schema_version=SCHEMA_VERSION, record=line.record
    )
    notice = line.notice
    seen = SeenNotice(
        kind=notice.kind, at=line.time, message=notice.message, evidence=notice.evidence
    )
    return report, seen


def container_key(report: Report) -> RunKey:
    """The task and the container."""
    return report.record.task_id, report.record.container.name


def _report_precedence(report: Report) -> tuple[bool, bool, int]:
    """A report counts before checkpoints, and these before the records of notices, which have no
    interval.
    """
    return (
        report.type != CHECKPOINT,
        report.record.interval is not NO_INTERVAL,
        report.time_ns or 0,
    )


class LocalRunsInProgress(RunningRuns, kw_only=True):
    """The runs in progress on this machine, which ``read`` lists, and those that have just ended:
    their reports, which ``read_ended`` finds by the id.
    """

    read: Callable[[], Iterable[Report]]
    read_ended: Callable[[str], Report | None]

    def current_runs(
        self,
        now_ns: int,
        tasks: Sequence[Report] | None = None,  # noqa: ARG002  the base's
    ) -> tuple[RunningRun, ...]:
        running = {container_key(report): RunningRun(report=report) for report in self.read()}
        for key in self._shown.keys() - running.keys():
            report = self.read_ended(key[0])
            if report is not None:
                self._ended[key] = now_ns, RunningRun(report=report)
        return self._with_ended(running, now_ns)


def _with_end(line: Report, task: Report) -> Report:
    """The monitor's line with the end that ECS reports, unless the line itself is the report."""
    if line.type != CHECKPOINT:
        return line
    end = task.record
    record = replace(
        line.record,
        status=end.status,
        exit_code=end.exit_code,
        likely_out_of_memory=end.likely_out_of_memory or line.record.likely_out_of_memory,
    )
    return replace(line, record=record)


class MonitorLogFollower(Struct):
    """Reads the lines of monitors.

    The first read of a group is the time in which a running task writes a line.
    """

    read_pages: ReadPages
    clock: Clock
    trust: AccountTrust = AccountTrust()
    _read_until_ms: dict[str, int] = {}
    _missing: dict[str, str] = {}

    def read_new_lines(self, groups: Iterable[str], add: AddLine) -> tuple[str, ...]:
        """Read the new lines of the groups.

        Returns a sentence for each group that could not be read.
        """
        problems = []
        for group in groups:
            now_ms = self.clock.wall_ns() // NS_PER_MS
            oldest_ms = now_ms - MAX_SILENCE_NS // NS_PER_MS
            start_ms = max(self._read_until_ms.get(group, 0) - _OVERLAP_MS, oldest_ms)
            newest_ms = 0
            try:
                # Without an end: the clock of AWS may be ahead of this one.
                for page in self.read_pages(
                    logGroupName=group, startTime=start_ms, filterPattern=LINE_FILTER_PATTERN
                ):
                    for event in page["events"]:
                        newest_ms = max(newest_ms, event["timestamp"])
                        self._add_event(group, event, add)
            except TaskProfilerError as error:
                problems.append(self._problem_of(group, error))
                continue
            # This clock may also be ahead of AWS's.
            self._read_until_ms[group] = min(
                now_ms, max(newest_ms, self._read_until_ms.get(group, 0)) or now_ms
            )
        return tuple(problems)

    def _problem_of(self, group: str, error: TaskProfilerError) -> str:
        """The sentence about a group that cannot be read. That of a missing one, which may name a
        similar group, is made once, because it lists the groups.
        """
        if not isinstance(error, MissingLogGroupError):
            return str(error)
        if group not in self._missing:
            self._missing[group] = str(error.told())
        return self._missing[group]

    def _add_event(self, group: str, event: Mapping[str, Any], add: AddLine) -> None:
        """Add a line; once more if its stream may be an instance monitor's, of which nobody knew
        before.
        """
        place = group, event["logStreamName"]
        trust = self.trust.trust_in_stream(*place)
        verdict = add(event["message"], trust, event["timestamp"])
        if verdict is not None and self.trust.is_decided_by_monitors(trust, group, verdict):
            self.trust = self.trust.trust_with_monitors(group)
            add(event["message"], self.trust.trust_in_stream(*place), event["timestamp"])
