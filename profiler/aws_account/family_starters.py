"""What starts the families of an account, as a rollout needs it: targets and services, the tasks
in its clusters, and how that has changed since the plan.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cached_property

from msgspec import Struct

from profiler.aws_account.account_starters import AccountStarterReader
from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.clusters_and_log_groups import raise_on_missing_cluster
from profiler.aws_account.eventbridge_calls import ScheduleReader
from profiler.aws_account.registered_definitions import AccountDefinitions
from profiler.aws_account.rollout_request import RolloutRequest
from profiler.aws_account.scheduled_targets import UNKNOWN_VALUE, ScheduledTarget
from profiler.aws_account.started_tasks import (
    SCHEDULE,
    SERVICE,
    starters_of_families,
)
from profiler.core.ecs_terms import cluster_name
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known_values
from profiler.record.family_owner import FamilyOwner, owner_of_cluster
from profiler.schedules.schedule_model import Schedule


class FamilyStarters(Struct, kw_only=True, dict=True):
    """What starts the families of one account and Region, read once, and again before an act."""

    open_client: OpenClient
    request: RolloutRequest
    definitions: AccountDefinitions
    needs_targets: bool  # an act or a selection by them: it fails if they cannot be read
    names_starters: bool
    is_of_jobs: bool
    on_problem: Callable[[str], object]
    # The targets that the printed plan was made from, by their keys; empty before the first step.
    shown: dict[tuple[str, ...], ScheduledTarget] = {}
    is_read_again: bool = False  # for the first family of an act
    _lacks_targets: bool = False  # they cannot be read, which the plan says

    @cached_property
    def _reader(self) -> AccountStarterReader:
        return AccountStarterReader(self.open_client, self.on_problem, of_jobs=self.is_of_jobs)

    @property
    def schedules(self) -> ScheduleReader:
        """Reads and moves single schedules and rules."""
        return self._reader.schedules

    @property
    def are_states_known(self) -> bool:
        """Whether all state machines could be read."""
        return self._reader.machines.are_all_known

    @cached_property
    def scheduled_targets(self) -> tuple[ScheduledTarget, ...]:
        """All targets of schedules and rules that start ECS tasks, in all clusters; or those that
        submit jobs.
        """
        try:
            return self._reader.scheduled_targets()
        except TaskProfilerError as error:
            if self.needs_targets:
                raise
            self.on_problem(f"{error} The plan lacks pinned schedules.")
            self._lacks_targets = True
            return ()

    @cached_property
    def _starting_states(self) -> tuple[ScheduledTarget, ...]:
        """The states of Step Functions that start tasks, or those that submit jobs, as far as they
        can be read. They are never moved.
        """
        return self._reader.starting_states()

    @property
    def starting_targets(self) -> tuple[ScheduledTarget, ...]:
        """What starts tasks or submits jobs: the targets, and states of Step Functions."""
        return (*self.scheduled_targets, *self._starting_states)

    def starting_targets_of(
        self, family: str, targets: Iterable[ScheduledTarget]
    ) -> tuple[ScheduledTarget, ...]:
        """What starts a family: those of the targets, and states of Step Functions."""
        return tuple(
            target for target in (*targets, *self._starting_states) if target.family == family
        )

    def machine_schedules(self, names: Collection[str]) -> tuple[Schedule, ...]:
        """What starts the state machines of these names at due times. Raises TaskProfilerError."""
        _ = self.scheduled_targets  # which lists it
        return self._reader.machine_schedules(names)

    def outer_states(self, names: Collection[str]) -> tuple[ScheduledTarget, ...]:
        """The states that start executions of the state machines of these names."""
        _ = self._starting_states  # which lists them
        return self._reader.outer_states(names)

    def check_reads(self) -> None:
        """Raise TaskProfilerError if the schedules are needed, or the services, and cannot be
        read.
        """
        _ = self.scheduled_targets, self.families_of_services

    @cached_property
    def selected_targets(self) -> tuple[ScheduledTarget, ...]:
        """The targets in the clusters of the request."""
        return self.targets_in_clusters(self.scheduled_targets)

    def targets_in_clusters(
        self, targets: Iterable[ScheduledTarget]
    ) -> tuple[ScheduledTarget, ...]:
        """The targets that start tasks in the clusters of the request; all if it names none."""
        names = set(map(cluster_name, self.request.clusters))
        return tuple(
            target for target in targets if not names or cluster_name(target.cluster_arn) in names
        )

    @cached_property
    def _seen_families(self) -> Mapping[str, Mapping[str, set[str]]]:
        """The families of the tasks in each cluster, and who started them.

        Raises TaskProfilerError.
        """
        ecs = self.open_client("ecs")
        clusters = self.request.clusters or self.definitions.clusters()
        seen = {}
        for cluster in clusters:
            with raise_on_missing_cluster(self.open_client, cluster):
                seen[cluster] = starters_of_families(ecs, cluster)
        return seen

    @cached_property
    def families_of_services(self) -> frozenset[str]:
        """The families of the account's services. Raises TaskProfilerError."""
        return self.definitions.families_of_services()

    @cached_property
    def clusters_by_family(self) -> Mapping[str, frozenset[str]]:
        """The clusters of the request in which the families run, as far as they select them."""
        request = self.request
        clusters_by_family = dict[str, set[str]]()
        if request.clusters or request.scheduled:
            targets = self.selected_targets  # which are listed before what they execute
            states = self.targets_in_clusters(
                self._reader.states_with_due_times(self._starting_states)
            )
            for target in (*targets, *states):
                clusters = clusters_by_family.setdefault(target.family, set())
                if UNKNOWN_VALUE not in target.cluster_arn:
                    clusters.add(target.cluster_arn)
        if request.clusters and not request.scheduled:
            for cluster, families in self._seen_families.items():
                for family in families:
                    clusters_by_family.setdefault(family, set()).add(cluster)
        return {family: frozenset(clusters) for family, clusters in clusters_by_family.items()}

    @cached_property
    def starters_by_family(self) -> Mapping[str, tuple[str, ...]]:
        if not self.names_starters:
            return {}
        starters = {target.family: {SCHEDULE} for target in self.scheduled_targets}
        try:
            for families in self._seen_families.values():
                starters |= {
                    family: names | starters.get(family, set())
                    for family, names in families.items()
                }
        except TaskProfilerError as error:
            self.on_problem(
                f"{error} Without it, the plan shows only the schedules that start the families."
            )
        return {family: tuple(sorted(names)) for family, names in starters.items()}

    def seen_starters(self, family: str) -> tuple[str, ...]:
        """What started the tasks of a family that ECS lists; empty if they may not be read."""
        names: set[str] = set()
        with suppress(TaskProfilerError):
            for families in self._seen_families.values():
                names |= families.get(family, set())
        return tuple(sorted(names))

    def owner_by_clusters(self, family: str) -> FamilyOwner | None:
        """The service in whose clusters the family's tasks run, as far as the plan reads them."""
        clusters: Iterable[str] = ()
        if self.request.scheduled:
            clusters = self.clusters_by_family.get(family, ())
        elif self.names_starters or self.request.clusters:
            with suppress(TaskProfilerError):  # the plan says it
                clusters = [
                    cluster
                    for cluster, families in self._seen_families.items()
                    if families.get(family, set()) - {SERVICE}
                ]
        owners = (owner_of_cluster(cluster_name(cluster)) for cluster in clusters)
        return next(filter(None, owners), None)

    def read_targets_again(self) -> tuple[ScheduledTarget, ...]:
        """All targets as they are now, and the states. Raises TaskProfilerError."""
        if self._lacks_targets:
            return ()
        targets = self._reader.scheduled_targets()
        self.__dict__.pop("_starting_states", None)
        return targets

    def read_again(self, family: str) -> None:
        """Read what the plan was made from again, because a person may have been asked meanwhile:
        before the first family, the schedules, rules, states and services of all; before each other
        one, its own schedules and rules, and those that are newer. Raises TaskProfilerError.
        """
        if not self.is_read_again:
            # Nothing is replaced before all is read: the next family reads again after an error.
            targets = self.read_targets_again()
            if "families_of_services" in self.__dict__:
                self.families_of_services = self.definitions.families_of_services()
            self.shown.update({target.identity_key: target for target in self.scheduled_targets})
            self.scheduled_targets = targets
            self.is_read_again = True
        elif not self._lacks_targets:
            self.scheduled_targets = self._targets_now(family)

    def _targets_now(self, family: str) -> tuple[ScheduledTarget, ...]:
        """The targets, of which those of a family, and newer ones, are read again."""
        current: list[ScheduledTarget] = []
        for target in self.scheduled_targets:
            again = self.schedules.read_target_now(target) if target.family == family else target
            current += known_values((again,))
        current += self.schedules.changed_since_read(of_jobs=self.is_of_jobs)
        return tuple({target.identity_key: target for target in current}.values())
