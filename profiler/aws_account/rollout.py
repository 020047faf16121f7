"""Changes the task definitions of many families: plans, registers revisions and moves schedules."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, note_only_first
from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.clusters_and_log_groups import create_log_group
from profiler.aws_account.family_starters import FamilyStarters
from profiler.aws_account.instance_monitors import InstanceMonitorReader
from profiler.aws_account.job_reverts import plan_uncovering, restore_older_revision
from profiler.aws_account.overlapping_permissions import UNKNOWN_STREAMS, read_streams
from profiler.aws_account.owned_families import (
    plan_left_to_owner,
    plan_left_to_person,
    plan_left_to_service,
)
from profiler.aws_account.pinned_targets import PinnedTargetPlanner, move_target
from profiler.aws_account.planned_family import (
    LeftAloneError,
    PlanChange,
    PlannedFamily,
    check_obstacle,
)
from profiler.aws_account.registered_definitions import (
    AccountDefinitions,
    TaskDefinitions,
    glob_prefix,
    revision_of,
)
from profiler.aws_account.registered_job_definitions import JobDefinitions
from profiler.aws_account.revision_registration import (
    register_or_find,
    register_overtaken_again,
    restoring_plan,
)
from profiler.aws_account.rollout_policies import RolePolicies
from profiler.aws_account.rollout_request import RolloutRequest
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.starter_roles import StarterRoleReader
from profiler.aws_account.target_placement import TargetClusterReader
from profiler.core.ecs_terms import family_of
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import first_known
from profiler.core.text import did_you_mean, listed, names_and_more
from profiler.record.family_identity import PROOF_FAMILY
from profiler.task_definitions.containers import read_containers
from profiler.task_definitions.definition_difference import Part
from profiler.task_definitions.definition_json import (
    ChangedDefinition,
    TaskDefinitionDocument,
    read_described,
)


class _ResizedFamily(Struct, frozen=True, kw_only=True):
    """A family that got a size: the targets with which it was planned, its revision, and the
    targets that were moved to it.
    """

    planned: PlannedFamily
    targets: tuple[ScheduledTarget, ...]
    arn: str
    moved: list[ScheduledTarget]

    def have_starters_changed(self, targets: Iterable[ScheduledTarget]) -> bool:
        """Whether somebody has changed what starts the family, but for the revision. Raises
        TaskProfilerError.
        """
        then = {target.identity_key: target for target in self.targets}
        return any(
            target.identity_key not in then
            or then[target.identity_key]
            .pinned_to(target.definition_arn)
            .changed_field_names(target)
            for target in targets
        )

    def target_before_move(self, target: ScheduledTarget) -> ScheduledTarget:
        """The target, pinned to the revision that it had before it was moved."""
        then = [
            moved.definition_arn
            for moved in self.moved
            if moved.identity_key == target.identity_key
        ]
        return replace(target, definition_arn=then[0]) if then else target


class Rollout(Struct, kw_only=True, dict=True):
    """Plans and changes the families of one account and Region."""

    open_client: OpenClient
    request: RolloutRequest
    plan_change: PlanChange
    part: Part = (
        "monitor"  # what ``plan_change`` changes, and what pinned targets may differ by to be moved
    )
    # ``plan_change`` says of the families of services why it leaves them alone.
    plans_services: bool = False
    adds: bool = (
        False  # monitors, which the families of a cluster with an instance monitor do not need
    )
    image: str | None = None  # of the monitor, if its repository has a name of the user's own
    names_starters: bool = False
    wall_ns: Callable[[], int]  # the time after which a target must still be due
    # Asked before a target is moved, and before a monitor changes; sizes ask for themselves.
    owners: CloudFormationOwners | None = None
    read_revision: Callable[[str], bytes] | None = None  # in place of one call for each
    jobs: JobDefinitions | None = None  # in place of task definitions
    on_step: Callable[[str], object]
    on_problem: Callable[[str], object]
    counts: Counter[str] = field(default_factory=Counter)  # steps, and ``unmatched`` globs
    done: list[PlannedFamily] = []  # whose revisions were registered
    _left_alone: dict[str, list[str]] = {}  # the families by the sentence about their obstacle
    _sized: list["_ResizedFamily"] = []
    _groups: set[str] = set()

    @property
    def is_of_jobs(self) -> bool:
        """Whether it is about job definitions of AWS Batch."""
        return self.jobs is not None

    @cached_property
    def _definitions(self) -> AccountDefinitions:
        return self.jobs or TaskDefinitions(self.open_client("ecs"))

    @cached_property
    def starters(self) -> FamilyStarters:
        """What starts the families."""
        request = self.request
        selects_by_targets = bool(request.clusters or request.scheduled)
        is_sized = self.part == "size" and request.is_act  # an input can override the size
        return FamilyStarters(
            open_client=self.open_client,
            request=request,
            definitions=self._definitions,
            needs_targets=request.update_schedules or selects_by_targets or is_sized,
            names_starters=self.names_starters,
            is_of_jobs=self.is_of_jobs,
            on_problem=self.on_problem,
        )

    @cached_property
    def policies(self) -> RolePolicies:
        """The policies of the families' task roles."""
        return RolePolicies(
            open_client=self.open_client,
            reads_roles=self.request.attach_policy,
            owners=self.owners,
            on_step=self.on_step,
            on_problem=self.on_problem,
            note_failure=self._note_failure,
        )

    @cached_property
    def starter_roles(self) -> StarterRoleReader:
        """The roles of what starts the families."""
        return StarterRoleReader(self.open_client, self._definitions.newest_withdrawn)

    @cached_property
    def _pinned_targets(self) -> PinnedTargetPlanner:
        return PinnedTargetPlanner(
            part=self.part,
            globs=self.request.job_definitions if self.is_of_jobs else self.request.globs,
            image=self.image,
            owners=self.owners,
            roles=self.starter_roles,
            clusters=TargetClusterReader(self.open_client, self.on_problem),
            describe=self._describe_definition,
            describe_again=self._definitions.describe,
            wall_ns=self.wall_ns,
            moves=self.request.update_schedules,
        )

    @cached_property
    def _note_unread_role(self) -> Callable[[str], object]:
        return note_only_first(self.on_problem)

    @cached_property
    def _note_unread_revisions(self) -> Callable[[str], object]:
        return note_only_first(self.on_problem)

    @cached_property
    def _instance_monitors(self) -> InstanceMonitorReader:
        return InstanceMonitorReader(self.open_client("ecs"), self.on_problem)

    def selected_families(self) -> tuple[str, ...]:
        """The selected families; globs without a match are reported.

        Raises TaskProfilerError if none is selected.
        """
        request = self.request
        definitions = self._definitions
        seen = (
            self.starters.clusters_by_family.keys()
            if request.clusters or request.scheduled
            else None
        )
        matching = {
            glob: definitions.families(glob) if seen is None else definitions.families(glob) & seen
            for glob in request.globs or ("*",)
        }
        selected = set[str]().union(*matching.values())
        unmatched = [glob for glob, families in matching.items() if not families]
        if PROOF_FAMILY not in request.globs:
            selected.discard(PROOF_FAMILY)
        where = f" in {listed(request.clusters, 'or')}" if request.clusters else ""
        started = " that a schedule or a rule starts" if request.scheduled else ""
        unselected = (
            f"{started} is selected by {listed(map(repr, unmatched), 'or')}{where}: check the names"
        )
        exact = [glob for glob in unmatched if glob_prefix(glob) == glob]
        known = definitions.families("*") if exact else ()
        what = "job definition" if self.is_of_jobs else "task definition family"
        sentence = (
            f"No {what} with an active revision{unselected} and the Region."
            f"{did_you_mean(map(family_of, exact), known)}"
        )
        if not selected:
            raise TaskProfilerError(sentence)
        if unmatched:
            self.on_problem(sentence)
            self.counts["unmatched"] = len(unmatched)
        return tuple(sorted(selected))

    def other_streams(self, families: Collection[str]) -> dict[str, frozenset[str]]:
        """The log streams of the batches of the account's other families, by family."""
        try:
            others = self._definitions.families("*").difference(families)
        except TaskProfilerError as error:
            self.on_problem(f"{error} {UNKNOWN_STREAMS}")
            return {}
        return read_streams(sorted(others), self._describe_definition, self.on_problem)

    def plan_families(self, families: Iterable[str]) -> Iterator[PlannedFamily]:
        """Plan each family. Families of services are skipped unless the request includes them."""
        of_services: frozenset[str] = frozenset()
        if not (self.request.services or self.plans_services):
            of_services = self.starters.families_of_services
        for family in families:
            if family in of_services:
                planned = PlannedFamily(
                    family=family,
                    action="skipped",
                    notes=("A service runs it: --services includes it.",),
                )
            else:
                planned = self._plan_family(family)
            yield replace(planned, started_by=self.starters.starters_by_family.get(family, ()))

    def _plan_family(self, family: str) -> PlannedFamily:
        """Plan the change of the latest active revision.

        A family that cannot be read or changed gets the reason.
        """
        try:
            document = read_described(self._describe_definition, family)
        except TaskProfilerError as error:
            return PlannedFamily(family=family, action="failed", notes=(str(error),))
        owner = document.owner or self.starters.owner_by_clusters(family)
        if owner is None:
            planned = self._plan_change(family, document)
        else:
            planned = plan_left_to_service(family, document, owner, self.part)
        if self.owners is not None and self.part == "monitor" and planned.is_new_revision:
            planned = plan_left_to_owner(planned, document, self.owners, self._describe_definition)
            planned = self._left_to_person(planned, document)
        if planned.action in ("refused", "on instance"):
            planned = self._pinned_targets.plan_with_dead_targets(
                planned, self.starters.starting_targets
            )
            return self._pinned_targets.plan_with_refused_inputs(
                planned, self.starters.starting_targets
            )
        self._pinned_targets.remember_revision(planned.revision, document)
        planned = self._pinned_targets.plan_with_pinned_targets(
            planned, self.starters.starting_targets
        )
        planned = self._pinned_targets.plan_with_refused_inputs(
            planned, self.starters.starting_targets
        )
        if self.jobs is not None and planned.action == "revert":
            planned = plan_uncovering(
                planned,
                self.jobs,
                self.starters.starting_targets,
                are_states_known=self.starters.are_states_known,
            )
        # An act asks again; who only looks at monitors registers nothing, and has no owners.
        if self.owners is not None and not self.request.is_act:
            planned = self._pinned_targets.plan_with_refused_roles(
                planned, self.starters.starting_targets
            )
        if not planned.added_monitor_log_group or not planned.is_new_revision:
            return planned
        note = (
            f"--register creates the log group {planned.added_monitor_log_group} if it does "
            f"not exist."
        )
        return replace(planned, notes=(*planned.notes, note))

    def _left_to_person(
        self, planned: PlannedFamily, document: TaskDefinitionDocument
    ) -> PlannedFamily:
        """The plan without a monitor that somebody has taken back, unless the user names the
        family.
        """
        if planned.action != "add monitor" or planned.family in self.request.globs:
            return planned
        try:
            return plan_left_to_person(planned, document, self._definitions)
        except TaskProfilerError as error:
            self._note_unread_revisions(
                f"{error} It is unknown whether somebody has taken a monitor back."
            )
            return planned

    def _describe_definition(self, name: str) -> bytes:
        return (self.read_revision or self._definitions.describe)(name)

    def _plan_change(self, family: str, document: TaskDefinitionDocument) -> PlannedFamily:
        """The plan without its targets; nothing changes if it is refused, or if an instance
        monitor replaces it.
        """
        same = ChangedDefinition(
            definition=document.definition, containers=read_containers(document.definition)
        )
        unchanged = PlannedFamily(family=family, action="refused", document=document, changed=same)
        starters = self.starters.starters_by_family.get(
            family, ()
        )  # if they cannot be read, nothing is refused
        try:
            planned = self.plan_change(family, document, starters)
        except TaskProfilerError as error:
            planned = replace(unchanged, notes=(str(error),))
        if self.adds and planned.changed.old_monitor is None:
            clusters = self.starters.clusters_by_family.get(family, ())
        else:
            clusters = ()
        if not self._instance_monitors.is_family_reported(family, document.definition, clusters):
            return planned
        note = "The monitor of its instances reports it."
        same = replace(same, batch=planned.changed.batch)
        return replace(unchanged, action="on instance", notes=(note,), changed=same)

    def pinned_sentence(
        self, planned: Iterable[PlannedFamily], of_all: Iterable[PlannedFamily]
    ) -> str | None:
        """How many schedules and rules of the families go on starting another revision, unless
        they are moved: of those of all families of the plan.

        Those in other clusters than the request's count, because --update-schedules moves them,
        too. Of those of a monitor, it can leave some, which the family's notes name.
        """
        pins = moved = 0
        for family_plan in planned:
            living = family_plan.living_targets
            movable = [target for target in living if target in family_plan.movable]
            moved += len(movable)
            pins += len(movable if self.part == "size" else living)
        families = {family_plan.family for family_plan in of_all if family_plan.counts_targets}
        if not pins or self.request.update_schedules:
            return None
        targets = [
            target for target in self.starters.scheduled_targets if target.family in families
        ]
        verb = "is" if pins == 1 else "are"
        where = (
            " in all clusters"
            if len(self.starters.targets_in_clusters(targets)) < len(targets)
            else ""
        )
        which = "them" if moved == pins else f"{moved or 'none'} of them"
        return (
            f"{pins} of {len(targets)} schedules and rules{where} {verb} pinned to another "
            f"revision, which they go on starting: --register --update-schedules moves {which}."
        )

    def carry_out_plan(self, planned: PlannedFamily) -> PlannedFamily:
        """Carry a plan out.

        Returns the executed plan: another one if the definition has changed meanwhile.
        """
        if not (planned.is_new_revision or self._targets_to_move(planned)):
            return planned
        try:
            planned = self._plan_if_unhindered(planned)
            arn = planned.revision_arn
            if planned.uncovered_arn and self.jobs is not None:
                restore_older_revision(planned, planned.uncovered_arn, self.jobs)
                older = revision_of(planned.uncovered_arn)
                self.on_step(f"deregistered {planned.revision}: {older} is the newest again")
                self.counts["deregistered"] += 1
                self.done.append(planned)
                return planned
            if planned.is_new_revision:
                arn = register_or_find(self._definitions, planned)
                self.on_step(f"registered {revision_of(arn)}")
                register_overtaken_again(self._definitions, planned, arn)
                self.counts["registered"] += 1
                self.done.append(planned)
                self._check_registered(planned, arn)
        except TaskProfilerError as error:
            self._note_failure(planned.family, error)
            return planned
        moved: list[ScheduledTarget] = []
        if planned.is_new_revision and self.part == "size":
            own = self.starters.starting_targets_of(planned.family, self.starters.scheduled_targets)
            self._sized.append(_ResizedFamily(planned=planned, targets=own, arn=arn, moved=moved))
        for target in self._targets_to_move(planned):
            try:
                outcome, sentence = self._pinned_targets.move_if_unchanged(
                    self.starters.schedules, planned, target, arn, self.starters.shown
                )
            except TaskProfilerError as error:
                self._note_failure(planned.family, error)
                continue
            if outcome != "unchanged":
                self.on_step(sentence)
                self.counts[outcome] += 1
            if outcome == "moved":
                moved.append(target)
        mended = [dead for dead in planned.dead if dead.is_movable and dead.target in moved]
        return replace(planned, dead=tuple(dead for dead in planned.dead if dead not in mended))

    def _plan_if_unhindered(self, planned: PlannedFamily) -> PlannedFamily:
        """The plan as it is now, which nothing hinders. Raises TaskProfilerError."""
        check_obstacle(planned)
        planned = self._plan_again(planned)
        check_obstacle(planned)
        if planned.is_new_revision:
            self._pinned_targets.check_roles(
                planned, self.starters.starting_targets, self._note_unread_role
            )
        return planned

    def put_back_unfit(self) -> None:
        """Read once more what starts the families that got a size, and put those back whose size
        it does not allow any more: a schedule may be made, and a rule edited, after the last
        reading before a registration.
        """
        if not self._sized:
            return
        try:
            targets = self.starters.read_targets_again()
        except TaskProfilerError as error:
            self.on_problem(
                f"{error} It is unknown whether somebody has changed meanwhile what starts the "
                "families: look at their schedules and rules."
            )
            self.counts["failed"] += 1
            return
        for sized in self._sized:
            family = sized.planned.family
            own = self.starters.starting_targets_of(family, targets)
            try:
                if sized.have_starters_changed(own):
                    moved = [target for target in own if target.kind != "state"]
                    self.starters.scheduled_targets = tuple(map(sized.target_before_move, moved))
                    self._plan_sized_again(sized)
            except TaskProfilerError as error:
                self._note_failure(family, error)
        self.starters.scheduled_targets = targets

    def _check_registered(self, planned: PlannedFamily, arn: str) -> None:
        """Say of a registered revision if a role does not let its schedule start it: nobody knew
        its number before.
        """
        try:
            self._pinned_targets.check_registered_starts(
                planned, self.starters.starting_targets, arn
            )
        except TaskProfilerError as error:
            self._note_failure(planned.family, error)

    def _plan_sized_again(self, sized: _ResizedFamily) -> None:
        """Put a family back if its plan is another one now. Raises TaskProfilerError."""
        again = self._plan_change(sized.planned.family, sized.planned.document)
        notes = " ".join(again.notes)
        if again.action == "failed":
            new = revision_of(sized.arn)
            raise TaskProfilerError(
                f"It is unknown whether {new} still fits what starts it. {notes}"
            )
        if again.changed.definition != sized.planned.changed.definition:
            self._put_size_back(sized, notes)

    def _put_size_back(self, sized: _ResizedFamily, why: str) -> None:
        """Register the revision again that a size has replaced, and move the targets back that were
        moved to it.
        """
        planned = sized.planned
        new = revision_of(sized.arn)
        problem = f"{new} does not fit any more what starts it"
        restored: str | None = None
        try:
            back = restoring_plan(self._definitions, planned, sized.arn)
            if back is None:
                problem += ", and is not the newest revision any more: call it again"
            else:
                restored = register_or_find(self._definitions, back)
                self.done.remove(planned)
                self.counts["registered"] -= 1
                register_overtaken_again(self._definitions, back, restored)
                problem += (
                    f", so {planned.revision} was registered again as {revision_of(restored)}: "
                    "call it again"
                )
                self._check_registered(planned, restored)
        except TaskProfilerError as error:
            why = f"{why} {error}"
        self._note_failure(planned.family, TaskProfilerError(f"{problem}. {why}"))
        for target in sized.moved:
            # Its own revision may have another size than the newest one had.
            is_of_newest = target.pinned_revision == planned.revision
            old_arn = first_known(restored if is_of_newest else None, target.definition_arn)
            try:
                self._move_back(target, new, old_arn)
            except TaskProfilerError as error:
                self._note_failure(planned.family, error)

    def _move_back(self, target: ScheduledTarget, new: str | None, old_arn: str) -> None:
        """Move a target back from the ``new`` revision, unless somebody has moved it since: to
        ``old_arn``, or to its own old one if only that may be started. Raises TaskProfilerError.
        """
        current = self.starters.schedules.read_target_now(target)
        if current is None or current.pinned_revision != new:
            return
        if not self._pinned_targets.role_allows_revision(current, old_arn):
            old_arn = target.definition_arn
        without = move_target(self.starters.schedules, current, old_arn)
        self.on_step(f"moved {current.title} to {revision_of(old_arn)}{without}")
        self.counts["moved"] -= 1

    def _targets_to_move(self, planned: PlannedFamily) -> tuple[ScheduledTarget, ...]:
        if planned.action == "failed" or not self.request.update_schedules:
            return ()
        return planned.movable if self.part == "size" else planned.pinned

    def _read_again(self, family: str) -> None:
        """Read what the plan of a family was made from again. Raises TaskProfilerError."""
        if self.owners is not None:
            self.owners.forget_answers()
        if not self.starters.is_read_again:
            self.starter_roles.forget_answers()
        self.starters.read_again(family)

    def _plan_again(self, planned: PlannedFamily) -> PlannedFamily:
        """The plan from the present definition, so that the new revision undoes no deployment.
        Raises TaskProfilerError if it fails.
        """
        self._read_again(planned.family)
        self._create_log_group(planned)
        (current,) = self.plan_families((planned.family,))
        notes = " ".join(current.notes)
        if current.action == "failed":
            raise TaskProfilerError(notes)
        if current.action == "skipped":
            self.on_step(f"{current.family} is left alone now: {notes}")
        elif current.document != planned.document:
            start = (
                f"{current.family} changed meanwhile, so it is planned again from "
                f"{current.revision}"
            )
            self.on_step(f"{start}: {current.action} {notes}".rstrip())
        elif planned.is_new_revision and not current.is_new_revision and not current.obstacle:
            self.on_step(f"{current.family} is left alone now: {notes}")
        elif current.changed.definition != planned.changed.definition:
            self.on_step(
                f"{current.family} is planned again, because what starts it has changed: "
                f"{current.action} {notes}"
            )
        self._create_log_group(current)
        return current

    def _create_log_group(self, planned: PlannedFamily) -> None:
        group = planned.added_monitor_log_group
        if not group or not planned.is_new_revision or group in self._groups:
            return
        if create_log_group(self.open_client, group):
            self.on_step(f"created the log group {group}")
        self._groups.add(group)

    def _note_failure(self, subject: str, error: TaskProfilerError) -> None:
        self.counts["failed"] += 1
        if isinstance(error, LeftAloneError):  # often that of all families
            self._left_alone.setdefault(str(error), []).append(subject)
        else:
            self.on_problem(f"{subject}: {error}")

    def name_left_alone(self) -> None:
        """Say each obstacle once, with the families that were left alone for it."""
        for sentence, families in self._left_alone.items():
            self.on_problem(f"{names_and_more(families)}: {sentence}")
        self._left_alone.clear()

    def leave_without_policy(self, planned: Iterable[PlannedFamily]) -> None:
        """Say of the families that are left alone why they get no policy, either."""
        for family_plan in planned:
            if family_plan.is_left_alone:
                try:
                    check_obstacle(family_plan)
                except TaskProfilerError as error:
                    self._note_failure(family_plan.family, error)
        self.name_left_alone()
