"""What a process has seen of tasks and rules, which AWS forgets or does not return."""

from collections.abc import Iterable, Mapping

from profiler.core.timestamps import NS_PER_SECOND
from profiler.schedules.schedule_model import ClusterTasks, Schedule

# A schedule retries for a day at most, and a flexible window lasts a day at most.
_KEPT_NS = 2 * 86_400 * NS_PER_SECOND
# CloudTrail shows most calls within five minutes.
_SETTLED_NS = 15 * 60 * NS_PER_SECOND
# EventBridge needs a moment to use a change.
_EFFECTIVE_NS = 60 * NS_PER_SECOND


class TaskMemory:
    """Adds the tasks that were read before to those that were read now."""

    def __init__(self) -> None:
        self._clusters: dict[str, ClusterTasks] = {}

    def add(self, clusters: Mapping[str, ClusterTasks]) -> dict[str, ClusterTasks]:
        """Remember the tasks of clusters. Returns the clusters with all tasks that are known."""
        merged = {arn: _merged(self._clusters.get(arn), cluster) for arn, cluster in clusters.items()}
        self._clusters |= {arn: cluster for arn, cluster in merged.items() if cluster.tasks is not None}
        return merged


def _merged(before: ClusterTasks | None, now: ClusterTasks) -> ClusterTasks:
    """A gap of more than an hour between two readings hides tasks, so the earlier ones do not count then."""
    if before is None or before.tasks is None or now.tasks is None or before.read_ns < now.known_since_ns:
        return now
    oldest_ns = now.read_ns - _KEPT_NS
    kept = {task.arn: task for task in before.tasks if task.stopped_ns is not None and task.stopped_ns > oldest_ns}
    return ClusterTasks(
        tasks=tuple((kept | {task.arn: task for task in now.tasks}).values()),
        read_ns=now.read_ns,
        known_since_ns=max(before.known_since_ns, oldest_ns),
    )


class RuleMemory:
    """Keeps the time since which each rule was seen without a change."""

    def __init__(self) -> None:
        self._since_ns: dict[Schedule, int] = {}

    def add(self, schedules: Iterable[Schedule], now_ns: int) -> None:
        """Remember the rules that were read now. One that is not among them counts as new later."""
        self._since_ns = {one: self._since_ns.get(one, now_ns) for one in schedules if one.kind == "rule"}

    def is_settled(self, schedule: Schedule, now_ns: int) -> bool:
        """Whether CloudTrail shows every change that has an effect on earlier due times."""
        return schedule.kind != "rule" or now_ns - self._since_ns.get(schedule, now_ns) >= _SETTLED_NS

    def was_seen_before(self, schedule: Schedule, due_ns: int) -> bool:
        """Whether the schedule is unchanged since before the due time. AWS returns the change of schedules only."""
        return schedule.kind != "rule" or self._since_ns.get(schedule, due_ns) <= due_ns - _EFFECTIVE_NS
