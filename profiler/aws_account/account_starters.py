"""What starts the tasks of an account, or submits its jobs: schedules, rules, and states of Step
Functions, with what starts their state machines.
"""

from collections.abc import Callable, Collection

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.eventbridge_calls import ScheduleReader
from profiler.aws_account.scheduled_targets import ScheduledTarget, schedule_of
from profiler.aws_account.state_machines import StateMachineReader
from profiler.schedules.schedule_model import Schedule


class AccountStarterReader:
    """Reads an account. ``on_problem`` gets a sentence about state machines that could not be read.

    ``states_with_due_times``, ``machine_schedules`` and ``outer_states`` know what was listed last.
    """

    def __init__(
        self,
        open_client: OpenClient,
        on_problem: Callable[[str], object],
        *,
        of_jobs: bool = False,
    ) -> None:
        self.schedules = ScheduleReader(open_client)
        self.machines = StateMachineReader(
            open_client, on_problem, lambda: self.schedules.machine_versions
        )
        self._of_jobs = of_jobs

    def scheduled_targets(self) -> tuple[ScheduledTarget, ...]:
        """The targets of schedules and rules. Raises TaskProfilerError."""
        return self.schedules.read_targets(of_jobs=self._of_jobs)

    def starting_states(self) -> tuple[ScheduledTarget, ...]:
        """The states that start tasks, or those that submit jobs, as far as they can be read."""
        return tuple(
            state for state in self.machines.starting_states() if state.is_of_job is self._of_jobs
        )

    def states_with_due_times(
        self, states: Collection[ScheduledTarget]
    ) -> tuple[ScheduledTarget, ...]:
        """Those of the states whose state machine a schedule or a rule starts, also through others.
        Raises TaskProfilerError.
        """
        around = {
            name: {name, *(outer.machine_name for outer in self.outer_states((name,)))}
            for name in {state.machine_name for state in states}
        }
        started = self.schedules.started_machines(frozenset[str]().union(*around.values()))
        return tuple(state for state in states if around[state.machine_name] & started)

    def machine_schedules(self, names: Collection[str]) -> tuple[Schedule, ...]:
        """What starts the state machines of these names at due times. Raises TaskProfilerError."""
        return tuple(map(schedule_of, self.schedules.machine_targets(names)))

    def outer_states(self, names: Collection[str]) -> tuple[ScheduledTarget, ...]:
        """The states that execute the state machines of these names, also through others."""
        return self.machines.outer_states(names)
