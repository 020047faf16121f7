"""Tasks that a process has seen: ECS forgets a stopped task after an hour, a process that runs for longer does not."""

from collections.abc import Mapping

from profiler.core.timestamps import NS_PER_SECOND
from profiler.schedules.schedule_model import ClusterTasks

# A schedule retries for a day at most, and a flexible window lasts a day at most.
_KEPT_NS = 2 * 86_400 * NS_PER_SECOND


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
