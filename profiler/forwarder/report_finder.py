"""A stopped task's batch and monitor: their log streams, how the task ended, and the report,
else last checkpoint.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import MONITOR_NAME, LogTarget
from profiler.core.json_fields import mapping_or_empty, mappings_in_list
from profiler.core.optional_math import known_values
from profiler.forwarder.invocation import (
    DeliveryError,
    ForwarderError,
    InvocationTime,
    ThrottledError,
)
from profiler.forwarder.line_kinds import (
    decode_report_line,
    is_profiler_line,
)
from profiler.forwarder.report_verification import CONTAINER_ID, OWN_STREAM, LogStreamClaim
from profiler.forwarder.stopped_task_reads import PAGE_LINES, MissingStreamError, StreamLine
from profiler.record.line_trust import TrustedGroups, claim_of
from profiler.record.record_model import CHECKPOINT, UNKNOWN_COST, Cost, Report
from profiler.record.stopped_task import StoppedTask

# Reserved at the end of an invocation for the document and the notice; at most half of the time
# that is left.
WAIT_RESERVED_SECONDS = 10.0
# The pauses between attempts to find a report, with jitter: GetLogEvents has 10 to 30 calls a
# second for an account and Region (https://docs.aws.amazon.com/general/latest/gr/cwl_region.html),
# and tasks stop by the hundred.
_FIRST_PAUSE_SECONDS = 2.0
_PAUSE_GROWTH = 3
_RETRY_PAUSE_SECONDS = 4.0
_MIN_PAUSE_SHARE = 0.2  # of the whole wait
# Lines of a stream once the time is up, or without a monitor; before, a page.
_MAX_LINES = 20_000
_MAX_LINES_UNEXPECTED = 2_000


class TaskContainers(Struct, frozen=True, kw_only=True):
    """The names of the batch and the monitor, None where unknown, and the known log streams by
    container.
    """

    batch: str | None
    monitor: str | None
    candidates: tuple[str, ...] = ()  # the batch, or all containers that could be it
    reported: tuple[
        str, ...
    ] = ()  # those with a report: the monitor does not know which are essential
    default: str | None = (
        None  # the candidate under which a run is recorded if nothing distinguishes them
    )
    prints_report: bool = False  # into the monitor's stream, as all checkpoints
    logs: Mapping[str, LogTarget] = {}
    labels: Mapping[str, Mapping[str, str]] = {}  # the ``dockerLabels`` by container

    @property
    def batch_labels(self) -> Mapping[str, str]:
        return self.labels.get(self.batch or "", {})

    @property
    def batch_log(self) -> LogTarget | None:
        return self.logs.get(self.batch or "")

    @property
    def monitor_log(self) -> LogTarget | None:
        return self.logs.get(self.monitor or "")

    @property
    def possible_report_logs(self) -> tuple[LogTarget, ...]:
        """The log streams that may have the report."""
        return known_values((self.batch_log, self.monitor_log))

    def log_with_line(self, line: "ReportLine | None") -> LogTarget | None:
        """The log stream that has this report or checkpoint."""
        is_printed = line is not None and (self.prints_report or not line.is_final)
        return (self.monitor_log if is_printed else None) or self.batch_log


def identify_containers(
    definition: Mapping[str, object] | None, task: StoppedTask
) -> TaskContainers:
    """Identify the containers from the definition that ECS describes; without one, from the
    event's containers.
    """
    # forward_logs imports this module for ReportLine, and identifies no containers.
    from profiler.core.container_roles import TaskContainer, container_roles
    from profiler.task_definitions.containers import (
        calls_cloudwatch_logs,
        log_target,
        read_containers,
        requested_batch,
        roles_of,
    )

    containers = read_containers(definition or {})
    if not containers:
        listed = [
            TaskContainer(name=container.name, image=container.image)
            for container in task.containers
        ]
        roles = container_roles(listed)
        return TaskContainers(batch=roles.batch, monitor=roles.monitor, candidates=roles.candidates)
    requested = requested_batch(containers)
    roles = roles_of(containers, requested=requested)
    measured = [replace(container, essential=None) for container in containers]
    ids = {container.name: container.runtime_id for container in task.containers}
    targets = {
        container.name: log_target(container, task.arn, ids.get(container.name))
        for container in containers
    }
    monitors = [container for container in containers if container.name == roles.monitor]
    return TaskContainers(
        batch=roles.batch,
        monitor=roles.monitor,
        candidates=roles.candidates,
        reported=container_roles(measured, requested=requested).candidates,
        default=next(iter(roles.candidates), None),
        prints_report=any(not calls_cloudwatch_logs(monitor.environment) for monitor in monitors),
        logs={
            name: LogTarget(group=target.group, stream=target.stream, region=target.region)
            for name, target in targets.items()
            if target.group and target.stream
        },
        labels={
            str(container.get("name")): {
                label: str(value)
                for label, value in mapping_or_empty(container.get("dockerLabels")).items()
            }
            for container in mappings_in_list((definition or {}).get("containerDefinitions"))
        },
    )


class ReportLine(Struct, frozen=True):
    """A report or checkpoint, its line, and whether it is in the search cluster already.

    ``claim``: its log stream.
    """

    report: Report
    text: str
    is_indexed: bool = False
    claim: LogStreamClaim = OWN_STREAM

    @property
    def is_final(self) -> bool:
        return self.report.type != CHECKPOINT


class _StreamTail(Struct):
    """What was read of a log stream, the newest line first, and the pages that follow.

    ``has_report``: a report or checkpoint of the batch is among the lines.
    """

    pages: Iterator[Sequence[StreamLine]]
    lines: list[StreamLine] = []
    has_report: bool = False
    is_whole: bool = False
    has_failed: bool = False  # the pages that follow are lost
    is_missing: bool = False


class ReportFinder(Struct):
    """Finds the report of one task's run, as long as the document and the notice still have
    their time.

    A line counts if its log stream is the task's: see :mod:`profiler.record.line_trust`. A report
    of a trusted log group, whose stream names no task, counts if there is no other one. CloudWatch
    Logs may answer with a page of any length that is not the end: the pages of a stream are read
    until the report is found or the stream begins; in the first attempts, for the newest lines
    alone. DeliveryError: a stream could not be read.
    """

    # The pages of a log stream, the newest line first; none if it may not be read. Raises
    # MissingStreamError, DeliveryError.
    newest_pages: Callable[[LogTarget], Iterator[Sequence[StreamLine]]]
    budget: InvocationTime
    task: StoppedTask
    containers: TaskContainers
    trusted_groups: TrustedGroups = TrustedGroups()
    has_time: bool = True  # all requested lines were read
    _reserved_seconds: float = 0
    _slowest_read_seconds: float = 0
    _end_seconds: float = math.inf  # of the invocation, left when the wait is over
    _wait_seconds: float = 0
    _tails: dict[LogTarget, _StreamTail] = {}
    _checkpoint: ReportLine | None = None

    def find(
        self,
        streams: Sequence[LogTarget],
        wait_seconds: float,
        *,
        is_expected: bool = True,
        find_indexed: Callable[[], ReportLine | None] | None = None,
    ) -> ReportLine | None:
        """Return the report from the cluster, in half of the wait, else from a log stream; else
        the last checkpoint. ``streams``: the batch's and the monitor's.
        """
        left_seconds = self.budget.remaining_seconds()
        self._reserved_seconds = min(WAIT_RESERVED_SECONDS, left_seconds / 2)
        self._wait_seconds = min(wait_seconds, left_seconds - WAIT_RESERVED_SECONDS)
        self._end_seconds = left_seconds - self._wait_seconds
        report = None
        if find_indexed is not None:
            with suppress(ForwarderError):  # writing to the search cluster reports the cause
                report = self._look_until_found(
                    find_indexed,
                    self._end_seconds + self._wait_seconds / 2,
                    is_expected=is_expected,
                )
        return report or self._find_in_streams(streams, is_expected=is_expected) or self._checkpoint

    def _find_in_streams(
        self, streams: Sequence[LogTarget], *, is_expected: bool
    ) -> ReportLine | None:
        """Return the report from a log stream."""
        try:
            report = self._look_until_found(
                partial(self._look_in_newest_lines, streams),
                self._end_seconds,
                is_expected=is_expected,
            )
            return report or self._look_in_older_lines(streams, is_expected=is_expected)
        except ThrottledError:
            self.has_time = False
            return None

    def _look_until_found(
        self, look: Callable[[], ReportLine | None], end_seconds: float, *, is_expected: bool
    ) -> ReportLine | None:
        """Look for the report; if it is expected, until it is found or the time is up."""
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            report = look()
            if report is not None or not (
                is_expected and self._wait_before_next_attempt(pause_seconds, end_seconds)
            ):
                return report
            pause_seconds *= _PAUSE_GROWTH

    def _look_in_newest_lines(
        self, streams: Sequence[LogTarget], most: int = PAGE_LINES, *, again: bool = True
    ) -> ReportLine | None:
        """Look for the report in the newest lines of each stream, and keep the last checkpoint."""
        unproven = None
        for stream in streams:
            newest = None
            for page in self._read_pages(stream, most, again=again):
                of_batch = [
                    line
                    for line in self._reports_in_lines(stream, page)
                    if self.containers.batch in (None, line.report.record.container.name)
                ]
                newest = newest or next(iter(of_batch), None)
                report = next((line for line in of_batch if line.is_final), None)
                if report is not None and not _cannot_be_vouched_for(report):
                    return report
                unproven = unproven or report
                if newest is not None:  # no older page has a report of the same run
                    self._tails[stream].has_report = True
                    break
            self._checkpoint = newest or self._checkpoint
        return unproven

    def _look_in_older_lines(
        self, streams: Sequence[LogTarget], *, is_expected: bool
    ) -> ReportLine | None:
        """Look for the report in what the attempts have not read of the streams."""
        unread = [
            stream
            for stream in streams
            if (tail := self._tails.get(stream)) and not (tail.has_report or tail.is_whole)
        ]
        return self._look_in_newest_lines(
            unread, _MAX_LINES if is_expected else _MAX_LINES_UNEXPECTED, again=False
        )

    def _wait_before_next_attempt(self, seconds: float, end_seconds: float) -> bool:
        """Wait before another attempt.

        Returns False, without waiting, if the time is (nearly) up.
        """
        left_seconds = self.budget.remaining_seconds() - end_seconds
        if left_seconds <= _MIN_PAUSE_SHARE * self._wait_seconds:
            return False
        self.budget.sleep(min(seconds, left_seconds) * (0.5 + self.budget.jitter() / 2))
        return True

    def task_cost(self, line: ReportLine) -> Cost:
        """The cost of the task of this report: of several reports, only the last one has it."""
        record = line.report.record
        containers = self.containers
        others = [name for name in containers.reported if name != record.container.name]
        if record.cost != UNKNOWN_COST or not line.is_final or not others:
            return record.cost
        logs = (*map(containers.logs.get, others), containers.monitor_log)
        try:
            return self._cost_in(known_values(logs))
        except ForwarderError:
            return UNKNOWN_COST

    def _cost_in(self, streams: Sequence[LogTarget]) -> Cost:
        """The cost of the task from the report of any of its containers; UNKNOWN_COST if no stream
        has one.
        """
        for stream in streams:
            for page in self._read_pages(stream, PAGE_LINES):
                for line in self._reports_in_lines(stream, page):
                    cost = line.report.record.cost
                    if cost != UNKNOWN_COST and line.is_final and not _cannot_be_vouched_for(line):
                        return cost
        return UNKNOWN_COST

    def may_exist(self, stream: LogTarget | None) -> bool:
        """Whether there may be such a log stream: it was not looked for in vain."""
        if stream is None:
            return False
        return stream not in self._tails or not self._tails[stream].is_missing

    def read_last_lines(self, stream: LogTarget | None, count: int) -> tuple[str, ...]:
        """Return the newest lines of a stream without Task Profiler's own, the newest last."""
        if stream is None or count < 1:
            return ()
        tail = self._tails.get(stream)
        pages = self._read_pages(stream, PAGE_LINES, again=tail is None or not tail.lines)
        newest = (line.text for line in chain.from_iterable(pages))
        lines = (text for text in newest if not is_profiler_line(text))
        return tuple(islice(lines, count))[::-1]

    def last_lines_already_read(self, stream: LogTarget | None, count: int) -> tuple[str, ...]:
        """The newest of the lines that were read of a stream so far, the newest last."""
        if stream is None or stream not in self._tails:
            return ()
        lines = (line.text for line in self._tails[stream].lines)
        lines = (text for text in lines if not is_profiler_line(text))
        return tuple(islice(lines, count))[::-1]

    def _reports_in_lines(
        self, stream: LogTarget, lines: Iterable[StreamLine]
    ) -> Iterator[ReportLine]:
        """The reports and checkpoints of the task's containers in lines of a stream."""
        # The task's definition may give the monitor another name than usual.
        monitor = self.containers.monitor or MONITOR_NAME
        trust = self.trusted_groups.trust_in_stream(
            self.task.account_id, stream.group, stream.stream, monitor=monitor
        )
        for line in lines:
            report = decode_report_line(line.text)
            if not isinstance(report, Report) or report.record.task_id != self.task.id:
                continue
            said = claim_of(report)
            verdict = trust.judge_line(said, line.timestamp_ms)
            if verdict.awaits_container_id_check:
                # ECS's event names the container that has this id.
                speakers = (report.record.container.name, monitor)
                ids = (one.runtime_id for one in self.task.containers if one.name in speakers)
                if stream.stream not in ids:
                    continue
            if verdict.is_confirmed:
                yield ReportLine(report, line.text)
            elif verdict.voucher:
                claim = LogStreamClaim(voucher=verdict.voucher, stream=stream.stream)
                yield ReportLine(report, line.text, claim=claim)

    def _read_pages(
        self, stream: LogTarget, most: int, *, again: bool = True
    ) -> Iterator[Sequence[StreamLine]]:
        """The newest lines of a stream, the newest first, in parts that are read as they are
        needed, until there are ``most``.

        ``again``: begin with what was written since it was read before.
        """
        tail = self._read_tail(stream) if again else self._tails[stream]
        position = 0
        while True:
            yield tail.lines[position:]
            position = len(tail.lines)
            if position >= most or not self._read_older_page(tail):
                return

    def _read_tail(self, stream: LogTarget) -> _StreamTail:
        """The newest lines, and those that were read before.

        A first read that fails is repeated until the wait is over, while a slow page would fit.
        """
        before = self._tails.get(stream)
        tail = _StreamTail(self.newest_pages(stream))
        while not tail.lines:
            try:
                if not self._read_next_page(tail):
                    break
            except DeliveryError:
                if before is not None:
                    return before
                if not self._wait_before_next_attempt(_RETRY_PAUSE_SECONDS, self._end_seconds):
                    raise
                tail = _StreamTail(self.newest_pages(stream))
        if before is not None:
            tail = self._tail_joined_to_earlier(tail, before)
            tail.has_report = before.has_report
        self._tails[stream] = tail
        return tail

    def _tail_joined_to_earlier(self, tail: _StreamTail, before: _StreamTail) -> _StreamTail:
        """The lines since the last attempt in front of those that it has read."""
        if not tail.lines:
            return before
        if before.has_failed:
            return tail
        known_line = next(iter(before.lines), None)
        while known_line not in tail.lines:
            if len(tail.lines) >= PAGE_LINES or not self._read_older_page(tail):
                return tail
        new = tail.lines[: tail.lines.index(known_line)]
        return replace(before, lines=[*new, *before.lines])

    def _read_older_page(self, tail: _StreamTail) -> bool:
        """Read another page of a stream. False at its beginning, without time, or if it fails."""
        try:
            return self._read_next_page(tail)
        except DeliveryError:
            tail.has_failed = True
            self.has_time = False
            return False

    def _read_next_page(self, tail: _StreamTail) -> bool:
        """Read a page, if there is one and a slow page would fit."""
        if tail.is_whole or tail.has_failed:
            return False
        before_seconds = self.budget.remaining_seconds()
        self.has_time = before_seconds - self._slowest_read_seconds >= self._reserved_seconds
        if not self.has_time:
            return False
        try:
            page = next(tail.pages, None)
        except MissingStreamError:
            tail.is_missing = True
            page = None
        read_seconds = before_seconds - self.budget.remaining_seconds()
        self._slowest_read_seconds = max(self._slowest_read_seconds, read_seconds)
        tail.is_whole = page is None
        tail.lines += page or ()
        return not tail.is_whole


def _cannot_be_vouched_for(line: ReportLine) -> bool:
    """Whether not even the task's event can vouch for the report's log stream."""
    return not line.claim.is_own and line.claim.voucher != CONTAINER_ID
