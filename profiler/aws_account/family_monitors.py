"""Which families have a current monitor: the plan of ``taskdef add-monitor``, which is not carried out.

A monitor is current if ``add-monitor`` without further options would change nothing.
"""

from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.rollout import Action, PlannedFamily, Rollout, RolloutRequest, plan_addition
from profiler.aws_account.scheduled_targets import ScheduledTarget, is_timed, schedule_of
from profiler.schedules.schedule_model import Schedule
from profiler.task_definitions.containers import read_containers
from profiler.task_definitions.monitor_changes import AddMonitorOptions

MonitorState = Literal["current", "outdated", "missing", "wrapper", "service", "impossible", "unknown"]
_STATES: dict[Action, MonitorState] = {
    "up to date": "current",
    "update monitor": "outdated",
    "add monitor": "missing",
    "skipped": "service",
    "refused": "impossible",
}


class FamilyMonitor(Struct, frozen=True, kw_only=True):
    """A family, the plan of add-monitor for it, and the schedules and rules that start it.

    State ``wrapper``: the batch starts with ``task-profiler run``. ``service``: a service runs the family.
    ``impossible``: add-monitor refuses, and there are no ``targets``. ``unknown``: ECS did not return the definition.
    """

    state: MonitorState
    planned: PlannedFamily
    targets: tuple[ScheduledTarget, ...] = ()

    @property
    def family(self) -> str:
        return self.planned.family

    @property
    def stale(self) -> tuple[ScheduledTarget, ...]:
        """The targets that start a task without a current monitor."""
        if self.state == "wrapper":
            return ()
        return tuple(target for target in self.targets if self.state != "current" or target in self.planned.pinned)


class FamilyMonitors:
    """Looks at the families of clusters (names or ARNs; none: all clusters).

    ``scheduled``: only families count that a schedule or a rule starts. ``on_problem`` gets a sentence about an
    unreadable part.
    """

    def __init__(
        self,
        open_client: OpenClient,
        clusters: tuple[str, ...] = (),
        *,
        scheduled: bool,
        on_problem: Callable[[str], object],
    ) -> None:
        options = AddMonitorOptions()
        self._rollout = Rollout(
            open_client=open_client,
            request=RolloutRequest(clusters=clusters, scheduled=scheduled),
            plan_change=lambda family, document, started_by: plan_addition(family, document, options, started_by),
            image=None,
            names_starters=not scheduled,  # a schedule starts them
            on_step=on_problem,
            on_problem=on_problem,
        )

    def families(self) -> tuple[str, ...]:
        """The names of the families. Raises TaskProfilerError if they cannot be listed, or if none is found."""
        return self._rollout.families()

    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules and timed rules of the account."""
        return tuple(schedule_of(target) for target in self._rollout.targets if is_timed(target))

    def read(self, families: tuple[str, ...]) -> Iterator[FamilyMonitor]:
        """The monitor of each family: one call of ECS for each, and one for each revision that a schedule names."""
        for planned in self._rollout.plan(families):
            state = _state(planned)
            counts = state in ("current", "wrapper", "missing", "outdated")
            targets = self._rollout.selected_targets if counts else ()
            own = tuple(target for target in targets if target.family == planned.family)
            yield FamilyMonitor(state=state, planned=planned, targets=own)


def _state(planned: PlannedFamily) -> MonitorState:
    state = _STATES.get(planned.action, "unknown")
    definition = {} if planned.document is None else planned.document.definition
    is_wrapped = any(container.wraps_batch for container in read_containers(definition))
    return "wrapper" if is_wrapped and state in ("missing", "impossible") else state
