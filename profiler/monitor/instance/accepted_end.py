"""When the end of a container counts as its last one, so that it is reported.

The first row that applies decides; without one, the end is accepted:

| wait for                   | while                                        | at most           |
|----------------------------|----------------------------------------------|-------------------|
| Docker's inspection        | it has not shown the exit code               | 30 s              |
| another attempt            | the agent has not excluded one               | 2 s, 30 s with a  |
|                            |                                              | restart policy    |
| the task's own monitor     | the task has one and has not stopped         | 60 s              |
"""

from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.instance.instance_container import InstanceContainer
from profiler.readers.ecs.task_metadata import STOPPED, TaskMetadata, monitor_container_of

# Docker may hang or be restarting; from then on its event is enough, although its time is that of
# Docker's answer.
_MAX_INSPECT_NS = 30 * NS_PER_SECOND
# A restart policy starts a container again 0.2 to 0.4 s after its end, on a busy machine later.
_MAX_SETTLE_NS = 2 * NS_PER_SECOND
_MAX_RESTART_NS = 30 * NS_PER_SECOND
# Whether the task's own monitor starts is known when the task has stopped.
_MAX_OWN_MONITOR_NS = 60 * NS_PER_SECOND


def is_last_end(container: InstanceContainer, answer: TaskMetadata, waited_ns: int) -> bool:
    """Whether no attempt follows the end of ``container``, for all that is known.

    ``answer`` is the agent's last one, empty without any; ``waited_ns`` is the time since the end.
    """
    if _awaits_inspection(container) and waited_ns < _MAX_INSPECT_NS:
        return False
    has_policy = answer.container_or_name_only(container.name).has_restart_policy
    max_restart_ns = _MAX_RESTART_NS if has_policy else _MAX_SETTLE_NS
    if _may_start_again(container.name, answer) and waited_ns < max_restart_ns:
        return False
    return not _awaits_monitor(container.name, answer) or waited_ns >= _MAX_OWN_MONITOR_NS


def _awaits_inspection(container: InstanceContainer) -> bool:
    """Whether Docker may still show the exit code, which the event of the end may lack."""
    return container.inspected.exit_code is None and not container.is_removed


def _may_start_again(name: str, answer: TaskMetadata) -> bool:
    """The agent decides on another attempt before it lists the container as STOPPED."""
    known = answer.container_or_name_only(name)
    if not answer.lists_container(name):
        return True
    if not known.has_restart_policy:
        return False
    return not (known.is_stopped or answer.is_stop_requested)


def _awaits_monitor(name: str, answer: TaskMetadata) -> bool:
    """Whether the task's own monitor may start still, which then reports the task."""
    monitor = monitor_container_of(answer)
    return monitor is not None and monitor.name != name and answer.known_status != STOPPED
