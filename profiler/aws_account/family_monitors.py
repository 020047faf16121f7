"""Which families have a current monitor: one that ``taskdef add-monitor`` would not change."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.planned_family import Action, PlannedFamily, plan_addition
from profiler.aws_account.rollout import Rollout
from profiler.aws_account.rollout_request import RolloutRequest
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.sizing.resize_limits import ResizeAction
from profiler.task_definitions.monitor_changes import AddMonitorOptions

MonitorState = Literal[
    "current",
    "outdated",
    "missing",
    "wrapper",
    "instance",
    "service",
    "owned",
    "impossible",
    "unknown",
]
_STATES: dict[Action | ResizeAction, MonitorState] = {
    "up to date": "current",
    "update monitor": "outdated",
    "add monitor": "missing",
    "on instance": "instance",  # the monitor of its instances reports its tasks
    "skipped": "service",
    "refused": "impossible",  # by add-monitor
}


class FamilyMonitor(Struct, frozen=True, kw_only=True):
    """A family, the plan of add-monitor for it, and the schedules and rules that start it."""

    # ``wrapper``: the batch starts with ``task-profiler run``; ``owned``: by another service;
    # ``unknown``: no definition was read.
    state: MonitorState
    planned: PlannedFamily
    targets: tuple[ScheduledTarget, ...] = ()

    @property
    def stale_targets(self) -> tuple[ScheduledTarget, ...]:
        """The targets that start a task without a current monitor."""
        if self.state in ("wrapper", "instance", "owned"):
            return ()
        return tuple(
            target
            for target in self.targets
            if self.state != "current" or target in self.planned.pinned
        )


def plan_monitors(
    open_client: OpenClient,
    clusters: tuple[str, ...] = (),
    *,
    scheduled: bool,
    now_ns: int,
    on_problem: Callable[[str], object],
    services: bool = False,
    read_revision: Callable[[str], bytes] | None = None,
) -> Rollout:
    """The rollout to the families of clusters (names or ARNs; none: all clusters), which is only
    planned. ``services``: also to the families that services run.
    """
    return Rollout(
        open_client=open_client,
        request=RolloutRequest(clusters=clusters, scheduled=scheduled, services=services),
        plan_change=partial(plan_addition, options=AddMonitorOptions()),
        adds=True,
        wall_ns=lambda: now_ns,
        read_revision=read_revision,
        names_starters=not scheduled,  # a schedule starts them
        on_step=on_problem,
        on_problem=on_problem,
    )


def read_monitors(rollout: Rollout, families: Iterable[str]) -> Iterator[FamilyMonitor]:
    """The monitor of each family: one call of ECS for each, and one for each revision that a
    schedule names.
    """
    for planned in rollout.plan_families(families):
        state = _STATES.get(planned.action, "unknown")
        if planned.owner is not None:
            state = "owned"
        if planned.is_wrapped and state in ("missing", "owned", "impossible"):
            state = "wrapper"
        targets = []
        if planned.counts_targets:
            for target in rollout.starters.selected_targets:
                if target.family == planned.family:
                    targets.append(target)
        yield FamilyMonitor(state=state, planned=planned, targets=tuple(targets))
