"""What ``task-profiler watch`` shows: the runs that go on, with their usual durations, refreshed."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import parse_ns
from profiler.past_runs.usual_times import UsualDuration, UsualDurations
from profiler.record.family_identity import family_key
from profiler.running_tasks.cluster_tasks import RunningTasks
from profiler.running_tasks.followed_logs import FollowedLogs
from profiler.running_tasks.running_runs import RunningRun, RunningRuns


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


class WatchedTasks:
    """Reads the running tasks of log groups, or of a cluster.

    Args:
        runs: Collects the lines of the monitors.
        logs: Reads them.
        usual: Knows the usual durations.
        groups: The log groups.
        cluster: Lists the tasks of a cluster and their log groups; None: ``groups`` alone are read.
        clock: Gives the time now.
    """

    def __init__(
        self,
        runs: RunningRuns,
        logs: FollowedLogs,
        usual: UsualDurations,
        *,
        groups: Sequence[str] = (),
        cluster: RunningTasks | None = None,
        clock: Clock,
    ) -> None:
        self._runs = runs
        self._logs = logs
        self._usual = usual
        self._groups = tuple(groups)
        self._cluster = cluster
        self._clock = clock
        self._found: tuple[RunningRun, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """The log groups that are read."""
        return self._groups if self._cluster is None else self._cluster.groups

    def refresh(self) -> tuple[str, ...]:
        """Read what is new. Returns a sentence about each thing that could not be read."""
        tasks = None
        now_ns = self._clock.wall_ns()
        if self._cluster is not None:
            try:
                tasks = self._cluster.read(now_ns)
            except TaskProfilerError as error:
                return (str(error),)  # what was seen last stays
        problems = self._logs.read(self.groups, self._runs.add)
        self._found = self._runs.refresh(now_ns, tasks)
        self._find_notices()
        return problems

    def _find_notices(self) -> None:
        """Look for the texts of notices that only a checkpoint names."""
        unread = [notice for run in self._found for notice in run.notices if notice.message is None]
        for notice in unread:
            at_ns = parse_ns(notice.at)
            if at_ns is not None:
                self._logs.read_notice(self.groups, at_ns, self._runs.add)
        if unread:
            self._found = tuple(replace(run, notices=self._runs.notices_of(run.report)) for run in self._found)

    @property
    def lacks_usual(self) -> bool:
        """Whether :meth:`read_usual` has something to read, which can take long."""
        return bool(self._usual.lacks(family_key(run.report.record) for run in self._found))

    def read_usual(self) -> tuple[str, ...]:
        """Read the usual durations of new families. Returns a sentence if that failed."""
        try:
            self._usual.read(family_key(run.report.record) for run in self._found)
        except TaskProfilerError as error:
            return (f"The usual durations are unknown. {error}",)
        return ()

    def runs(self) -> tuple[WatchedRun, ...]:
        """The runs at this moment: those that have ended, then the largest share of the usual duration first."""
        now_ns = self._clock.wall_ns()
        watched = [
            WatchedRun(run=run, elapsed_ms=run.elapsed_ms(now_ns), usual=self._usual.of(family_key(run.report.record)))
            for run in self._found
        ]
        return tuple(sorted(watched, key=_order))


def _order(watched: WatchedRun) -> tuple[bool, float, float]:
    return watched.run.is_running, -(watched.share or 0), -(watched.elapsed_ms or 0)
