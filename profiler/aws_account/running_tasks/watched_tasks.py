"""What ``task-profiler watch`` shows: the running batches, with their usual durations, refreshed."""

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.running_tasks.cluster_tasks import RunningTasks
from profiler.aws_account.running_tasks.running_runs import FollowedLogs, RunningRun, RunningRuns
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import parse_ns
from profiler.record.family_identity import UsualDuration, family_key
from profiler.runs.past_runs.families import UsualDurations


class WatchedRun(Struct, frozen=True, kw_only=True):
    """A run, the time since its start, and how long its family usually takes."""

    run: RunningRun
    elapsed_ms: float | None
    usual: UsualDuration | None

    @property
    def share(self) -> float | None:
        """The elapsed time as a share of the usual one."""
        if self.elapsed_ms is None or self.usual is None or not self.usual.median_ms:
            return None
        return self.elapsed_ms / self.usual.median_ms


class WatchedTasks(Struct, kw_only=True):
    """Reads the running tasks of a cluster and of its log groups; without a cluster, of ``log_groups`` alone."""

    collected: RunningRuns
    logs: FollowedLogs
    usual: UsualDurations
    log_groups: tuple[str, ...] = ()
    cluster: RunningTasks | None = None
    clock: Clock
    _found: tuple[RunningRun, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        return self.log_groups if self.cluster is None else self.cluster.groups

    def refresh(self) -> tuple[str, ...]:
        """Read the new data. Returns a sentence about each unreadable part."""
        tasks = None
        refused: tuple[str, ...] = ()
        now_ns = self.clock.wall_ns()
        if self.cluster is not None:
            try:
                tasks = self.cluster.read(now_ns)
                refused = self.cluster.problems
            except TaskProfilerError as error:
                return (str(error),)  # the last data stay
        problems = self.logs.read(self.groups, self.collected.add)
        self._found = self.collected.refresh(now_ns, tasks)
        self._find_notices()
        return (*refused, *problems)

    def _find_notices(self) -> None:
        """Look for the texts of notices that only a checkpoint lists."""
        unread = [notice for run in self._found for notice in run.notices if notice.message is None]
        for notice in unread:
            at_ns = parse_ns(notice.at)
            if at_ns is not None:
                self.logs.read_notice(self.groups, at_ns, self.collected.add)
        if unread:
            self._found = tuple(replace(run, notices=self.collected.notices_of(run.report)) for run in self._found)

    @property
    def lacks_usual(self) -> bool:
        """Whether :meth:`read_usual` has anything to read. Such a read can take long."""
        return bool(self.usual.lacks(family_key(run.report.record) for run in self._found))

    def read_usual(self) -> tuple[str, ...]:
        """Read the usual durations of new families. Returns a sentence if that failed."""
        try:
            self.usual.read(family_key(run.report.record) for run in self._found)
        except TaskProfilerError as error:
            return (f"The usual durations are unknown. {error}",)
        return ()

    def runs(self) -> tuple[WatchedRun, ...]:
        """The runs at this moment: those that have ended, then the largest share of the usual duration first."""
        now_ns = self.clock.wall_ns()
        watched = [
            WatchedRun(run=run, elapsed_ms=run.elapsed_ms(now_ns), usual=self.usual.of(family_key(run.report.record)))
            for run in self._found
        ]
        return tuple(sorted(watched, key=lambda one: (one.run.is_running, -(one.share or 0), -(one.elapsed_ms or 0))))
