"""What a container used in its task's control group, which outlives the containers' own groups.

The CPU time of a container that has ended is the group's less that of the task's other containers,
those that Docker is starting included.
The group's high-water mark is the container's own only if no other container has shared the group.
Both are absent where another container's part is unknown.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from profiler.core.clock import Clock
from profiler.core.optional_math import first_known, known_values
from profiler.core.timestamps import NEVER_NS
from profiler.monitor.instance.instance_container import InstanceContainer, is_pause_container
from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.task_groups import OpenGroup, UnopenedGroup
from profiler.readers.ecs.task_metadata import TaskMetadata

# A container that Docker has not described yet.
UNKNOWN_SHARER = "a container that was not inspected"


def sharers_of(
    container: InstanceContainer, task: TaskMetadata, *, lacks_containers: bool
) -> frozenset[str]:
    """The Docker ids of the others that had used the group when it was read at the end of
    ``container``.

    ``lacks_containers``: one of the task's containers was not inspected.
    """
    sharers: set[str] = set()
    for other in task.containers:
        if other.docker_id == container.docker_id:
            continue
        has_started = first_known(other.started_ns, NEVER_NS) < container.at_end_ns
        if has_started and not is_pause_container(other.name):
            sharers.add(other.docker_id or UNKNOWN_SHARER)
    if lacks_containers:
        sharers.add(UNKNOWN_SHARER)
    return container.starting_at_end.union(sharers)


def read_totals(
    container: InstanceContainer, group: OpenGroup | UnopenedGroup
) -> GroupReading | Unavailable:
    """The group's totals at the end of ``container``.

    A mark that has not risen since the container's last sample is the container's.
    """
    reading = group.read_totals()
    if isinstance(reading, Unavailable):
        return reading
    last = container.last
    if last is not None and reading.peak_bytes == container.task_mark_bytes:
        return replace(reading, peak_bytes=last.memory_usage_peak_bytes)
    return reading


def keep_totals(
    container: InstanceContainer,
    reading: GroupReading,
    others: Sequence[InstanceContainer],
    others_cpu_ns: Mapping[str, int | None],
) -> None:
    """Keep what is the container's: another attempt, or another container, would add to it."""
    if (reading.peak_bytes or 0) >= (container.at_end.peak_bytes or 0):
        container.at_end = reading
    known_ns = known_values(others_cpu_ns.values())
    if reading.cpu_ns is not None and len(known_ns) == len(others_cpu_ns):
        container.cpu_ns = max(reading.cpu_ns - sum(known_ns), container.cpu_ns or 0)
        container.counted = frozenset(others_cpu_ns)
    is_only_program = all(other.is_pause for other in others)
    if reading.oom_kills and is_only_program:
        container.was_out_of_memory = True
    if reading.oom_kills == 0:
        container.excludes_memory_kill = True


def cpu_ns_now(container: InstanceContainer, sharers: AbstractSet[str], clock: Clock) -> int | None:
    """The CPU time of a container in the group; None if it is known only of some time ago."""
    if container.has_ended:
        is_known = container.is_cpu_time_known(sharers)
    else:
        is_known = isinstance(container.read_sample(clock.wall_ns()), ContainerSample)
    if is_known and container.cpu_ns is not None:
        return container.cpu_ns
    return 0 if container.is_pause else None


def final_sample(container: InstanceContainer, sharers: AbstractSet[str]) -> ContainerSample:
    """The totals at the end, which replace the last ones before it."""
    last = container.last or ContainerSample(read_ns=0)
    memory = container.at_end.memory
    reclaimable_bytes = None if memory is None else memory.reclaimable_bytes
    peak_bytes = container.at_end.peak_bytes
    is_complete = not sharers and peak_bytes is not None and reclaimable_bytes is not None
    return replace(
        last,
        read_ns=max(container.finished_ns or 0, last.read_ns + 1),
        cpu_ns=container.cpu_ns if container.is_cpu_time_known(sharers) else None,
        memory_used_bytes=None,
        memory_usage_peak_bytes=peak_bytes if is_complete else None,
        memory_cache_bytes=reclaimable_bytes if is_complete else None,
        is_mark_complete=is_complete,
    )
