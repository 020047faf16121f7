"""Whether the signals that Docker logged for a container were ECS's stop of its task.

The agent asks Docker to stop a container only after it wants the task (or the container) to be
STOPPED. Docker then sends the container's stop signal (SIGTERM, or the image's STOPSIGNAL), and
SIGKILL after the stop timeout. ``docker stop`` and ``docker kill`` of another program log the same
events, so the agent is asked after each signal:

| the agent's answer             | the container's stop signal | another signal, such as SIGKILL |
|--------------------------------|-----------------------------|---------------------------------|
| it wants the task to run       | not ECS's                   | not ECS's                       |
| STOPPED, the container runs    | ECS's                       | ECS's                           |
| STOPPED, the container, too    | ECS's                       | not ECS's                       |
| none                           | ECS's                       | not ECS's                       |

In the third row, the end of the container itself may have stopped the task.
"""

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import first_known, known_values
from profiler.readers.ecs.task_metadata import STOPPED, TaskMetadata


class StopSignals(Struct, frozen=True, kw_only=True):
    """The signals of one attempt, by the wall-clock time of Docker's event.

    ``stop_ns`` is the first stop signal, ``other_ns`` the first other one, as long as the agent has
    not denied them; ``confirmed_ns`` is the first one that it confirmed. ``awaits_answer``: the
    agent has not answered since the last signal.
    """

    stop_ns: int | None = None
    other_ns: int | None = None
    confirmed_ns: int | None = None
    was_denied: bool = False
    awaits_answer: bool = False

    @property
    def signalled_ns(self) -> int | None:
        """When ECS's stop signalled the container; None without a stop."""
        return first_known(self.confirmed_ns, self.stop_ns)

    @property
    def is_stop_denied(self) -> bool:
        """Whether all signals were another program's."""
        return self.was_denied and self.signalled_ns is None

    def with_signal(self, time_ns: int, *, is_stop_signal: bool) -> "StopSignals":
        """Add a signal, about which the agent is to be asked."""
        if self.confirmed_ns is not None:
            return self
        if is_stop_signal:
            return replace(self, stop_ns=first_known(self.stop_ns, time_ns), awaits_answer=True)
        return replace(self, other_ns=first_known(self.other_ns, time_ns), awaits_answer=True)

    def with_answer(self, answer: TaskMetadata, name: str) -> "StopSignals":
        """Add the agent's ``answer`` after the signals of the container ``name``."""
        if not self.awaits_answer:
            return self
        container = answer.container_or_name_only(name)
        if not (answer.is_stop_requested or container.desired_status == STOPPED):
            return StopSignals(was_denied=True)
        if container.is_stopped:
            return replace(self, awaits_answer=False)
        times_ns = known_values((self.stop_ns, self.other_ns))
        return replace(self, confirmed_ns=min(times_ns), awaits_answer=False)
