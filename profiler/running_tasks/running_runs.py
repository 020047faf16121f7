"""The runs that go on, from the lines of their monitors and from the tasks that ECS lists.

The monitor writes a checkpoint a minute into its own log stream, notices too, and the report into the batch's stream.
So a run goes on if its newest line is a young checkpoint or notice, and no report came. ECS knows it better.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, parse_ns
from profiler.past_runs.run_source import CHECKPOINT, RunFilter
from profiler.record.notice_model import NoticeLine, decode_notice
from profiler.record.record_model import SCHEMA_VERSION, Interval, Report, decode, known_status
from profiler.record.units import span_ms

LINE_TYPES = ("task.checkpoint", "task.notice", "task.report")
# The monitor writes a checkpoint a minute. Without one for so long, the task was lost or its report is elsewhere.
MAX_SILENCE_NS = 600 * NS_PER_SECOND
_USUAL_PERIOD_NS = 60 * NS_PER_SECOND
_LATE_PERIODS = 2.5
# A line that is read again must not bring a run back that has ended.
_KEPT_NS = 3600 * NS_PER_SECOND
_RUNNING = "running"

RunKey = tuple[str, str]


class SeenNotice(Struct, frozen=True, kw_only=True):
    """A notice of the monitor; the message is None if only the checkpoint names it."""

    kind: str
    at: str | None = None
    message: str | None = None


class RunningRun(Struct, frozen=True, kw_only=True):
    """A run that goes on, or that has just ended.

    Attributes:
        report: The newest checkpoint, the report, or what ECS knows. Its status is that of the run.
        notices: The notices, in the order of time.
        silent_ms: The time since the newest line, if that is longer than usual.
    """

    report: Report
    notices: tuple[SeenNotice, ...] = ()
    silent_ms: int | None = None

    @property
    def key(self) -> RunKey:
        """The task and the container."""
        return self.report.record.task_id, self.report.record.container.name

    @property
    def is_running(self) -> bool:
        """Whether the run goes on."""
        return known_status(self.report.record) == _RUNNING

    @property
    def interval(self) -> Interval:
        """The measurements since the checkpoint before the newest one; empty without a checkpoint."""
        return self.report.record.interval or Interval()

    def elapsed_ms(self, now_ns: int) -> float | None:
        """The time since the start; of an ended run its duration. It never is less than in the newest checkpoint."""
        record = self.report.record
        measured_ms = record.metrics.duration_ms
        if not self.is_running:
            return measured_ms
        since_start_ms = span_ms(parse_ns(record.started_at), now_ns)
        known = [value for value in (since_start_ms, measured_ms) if value is not None]
        return max(known, default=None)


class RunningRuns:
    """Collects lines, and says which runs go on.

    Args:
        selection: Which runs count.
    """

    def __init__(self, selection: RunFilter) -> None:
        self._selection = selection
        self._newest: dict[RunKey, Report] = {}
        self._notices: dict[RunKey, dict[str, SeenNotice]] = {}
        self._shown: dict[RunKey, RunningRun] = {}

    def add(self, message: str) -> None:
        """Take a line of a log stream. Other lines are ignored, and lines may come repeatedly and in any order."""
        text = message.strip()
        if not text.startswith("{") or not any(f'"{name}"' in text for name in LINE_TYPES):
            return
        try:
            if '"task.notice"' in text:
                line = decode_notice(text.encode(errors="replace"))
                if isinstance(line, NoticeLine):
                    self._add_notice(line)
            else:
                self._add_report(decode(text.encode(errors="replace"), has_course=False))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return

    def _add_notice(self, line: NoticeLine) -> None:
        report = Report(time=line.time, type="task.checkpoint", schema_version=SCHEMA_VERSION, record=line.record)
        if self._selection.matches(report):
            key = _key(report)
            notice = SeenNotice(kind=line.notice.kind, at=line.time, message=line.notice.message)
            self._notices.setdefault(key, {})[notice.kind] = notice
            self._add_report(report)

    def _add_report(self, report: Report) -> None:
        if self._selection.matches(report):
            known = self._newest.get(_key(report))
            if known is None or _precedence(report) > _precedence(known):
                self._newest[_key(report)] = report

    def refresh(self, now_ns: int, tasks: Sequence[Report] | None = None) -> tuple[RunningRun, ...]:
        """The runs that go on, and those that have ended since the last refresh.

        Args:
            now_ns: The time now.
            tasks: What ECS knows of its tasks; those with another status than running have ended. None: ECS was not
                asked.
        """
        if tasks is None:
            found = [self._run(report, now_ns) for report in self._newest.values()]
            running = {run.key: run for run in found if run.is_running and _is_young(run.report, now_ns)}
        else:
            found = [run for task in tasks if self._selection.matches(task) for run in self._of_task(task, now_ns)]
            running = {run.key: run for run in found if run.is_running}
        ended = [run for run in found if not run.is_running and run.key in self._shown]
        self._shown = running
        self._forget(now_ns)
        return (*running.values(), *ended)

    def _of_task(self, task: Report, now_ns: int) -> Iterable[RunningRun]:
        """The runs of a task: those of its monitor's lines, else the task itself."""
        lines = [report for (task_id, _), report in self._newest.items() if task_id == task.record.task_id]
        if not lines:
            return (self._run(task, now_ns),)
        status = known_status(task.record)
        return [self._run(_with_end(line, task) if status != _RUNNING else line, now_ns) for line in lines]

    def notices_of(self, report: Report) -> tuple[SeenNotice, ...]:
        """The notices of a run, in the order of time. The newest checkpoint also names those of unread lines."""
        notices = dict(self._notices.get(_key(report), {}))
        for raised in report.record.notices:
            notices.setdefault(raised.kind, SeenNotice(kind=raised.kind, at=raised.at))
        return tuple(sorted(notices.values(), key=lambda notice: notice.at or ""))

    def _run(self, report: Report, now_ns: int) -> RunningRun:
        silent_ns = now_ns - (parse_ns(report.time) or now_ns)
        is_late = report.record.interval is not None and silent_ns > _LATE_PERIODS * _period_ns(report)
        return RunningRun(
            report=report,
            notices=self.notices_of(report),
            silent_ms=silent_ns // NS_PER_MS if is_late else None,
        )

    def _forget(self, now_ns: int) -> None:
        old = [
            key
            for key, report in self._newest.items()
            if key not in self._shown and (parse_ns(report.time) or 0) < now_ns - _KEPT_NS
        ]
        for key in old:
            del self._newest[key]
            self._notices.pop(key, None)


def _key(report: Report) -> RunKey:
    return report.record.task_id, report.record.container.name


def _precedence(report: Report) -> tuple[bool, bool, int]:
    """A report counts before checkpoints, and these before the records of notices, which have no interval."""
    return report.type != CHECKPOINT, report.record.interval is not None, parse_ns(report.time) or 0


def _with_end(line: Report, task: Report) -> Report:
    """The monitor's line with the end that ECS reports, unless the line itself is the report."""
    if line.type != CHECKPOINT:
        return line
    end = task.record
    return replace(line, record=replace(line.record, status=end.status, exit_code=end.exit_code))


def _period_ns(report: Report) -> int:
    """The time between two checkpoints, as the newest one shows it."""
    interval = report.record.interval or Interval()
    begin_ns, end_ns = parse_ns(interval.started_at), parse_ns(interval.finished_at)
    return _USUAL_PERIOD_NS if begin_ns is None or end_ns is None else max(end_ns - begin_ns, _USUAL_PERIOD_NS)


def _is_young(report: Report, now_ns: int) -> bool:
    limit_ns = max(MAX_SILENCE_NS, _LATE_PERIODS * _period_ns(report))
    return now_ns - (parse_ns(report.time) or 0) < limit_ns
