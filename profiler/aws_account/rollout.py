"""Changes the task definitions of many families: plans, registers revisions, moves schedules and
attaches policies.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.clusters_and_log_groups import create_log_group
from profiler.aws_account.instance_monitors import InstanceMonitors
from profiler.aws_account.registered_definitions import TaskDefinitions, revision_of
from profiler.aws_account.report_paths import attach_policy, plan_policy, task_role
from profiler.aws_account.scheduled_targets import ScheduledTarget, Schedules
from profiler.aws_account.stack_ownership import StackOwners
from profiler.aws_account.started_tasks import (
    AIRFLOW,
    SCHEDULE,
    starter_notes,
    starters_of_families,
)
from profiler.core.ecs_terms import cluster_name
from profiler.core.errors import TaskProfilerError
from profiler.sizing.resize_policy import Resize, ResizeAction
from profiler.task_definitions.containers import (
    DefinedContainer,
    monitor_of,
    needs_put,
    read_containers,
)
from profiler.task_definitions.definition_difference import Difference, Part, difference
from profiler.task_definitions.definition_json import (
    ChangedDefinition,
    TaskDefinitionDocument,
    read_document,
)
from profiler.task_definitions.monitor_changes import (
    AddMonitorOptions,
    add_monitor,
    default_image_note,
    log_group_note,
    remove_monitor,
)
from profiler.task_definitions.monitor_container import default_image
from profiler.task_definitions.permissions import (
    POLICY_NAME,
    RolePolicy,
    planned_policy,
    report_streams,
)
from profiler.task_definitions.size_changes import without_size_tags

_NewRevision = Literal["add monitor", "update monitor", "remove monitor", "resize", "revert"]
Action = Literal[
    _NewRevision, "up to date", "no monitor", "on instance", "skipped", "refused", "failed"
]


class PlannedFamily(Struct, frozen=True, kw_only=True):
    """One family of the plan, from ``document`` (None if it cannot be read) to ``changed``."""

    family: str
    action: Action | ResizeAction
    notes: tuple[str, ...] = ()  # with the reason if nothing can be done
    document: TaskDefinitionDocument | None = None
    changed: ChangedDefinition = ChangedDefinition(definition={})
    problems: tuple[str, ...] = ()  # what ``doctor`` would find afterwards
    started_by: tuple[str, ...] = ()  # empty if no task was seen, and no schedule
    pinned: tuple[ScheduledTarget, ...] = ()  # they start another revision than the plan's last
    movable: tuple[ScheduledTarget, ...] = ()  # those of them that --update-schedules may move
    unmonitored: tuple[ScheduledTarget, ...] = ()  # those of them without a monitor
    resize: Resize | None = None
    obstacle: str | None = None  # why tasks of the new revision would not start

    @property
    def is_new_revision(self) -> bool:
        return self.action in get_args(_NewRevision)

    @property
    def revision_arn(self) -> str:
        """Of the revision that the plan starts from; empty without one."""
        return (None if self.document is None else self.document.arn) or ""

    @property
    def revision(self) -> str:
        return revision_of(self.revision_arn) or self.family

    @property
    def log_group(self) -> str | None:
        """The log group of the stream of an added monitor, if the report goes there."""
        return None if self.changed.monitor is None else self.changed.monitor.own_log_group

    @property
    def streams(self) -> frozenset[str]:
        """The ARNs of the log streams that the task role must allow."""
        return report_streams(self.changed, self.revision_arn)


# Plans the change of a family's definition: (family, definition, who starts it). Raises
# TaskProfilerError if refused.
PlanChange: TypeAlias = Callable[[str, TaskDefinitionDocument, Sequence[str]], PlannedFamily]


def plan_addition(
    family: str,
    document: TaskDefinitionDocument,
    started_by: Sequence[str] = (),
    *,
    options: AddMonitorOptions,
) -> PlannedFamily:
    """Plan to add the monitor. Raises TaskProfilerError if it is refused."""
    if AIRFLOW in started_by:
        options = replace(options, default_report_stream="monitor")
    added = add_monitor(document.definition, options, revision_arn=document.arn)
    monitor = added.monitor or DefinedContainer(name="")
    # The plan shows the default image once, and whether the log group exists.
    general = {
        default_image_note(options.image or default_image(document.arn)),
        log_group_note(monitor.own_log_group),
    }
    action: Action = "update monitor" if added.old_monitor else "add monitor"
    if added.definition == document.definition:
        action = "up to date"
    return PlannedFamily(
        family=family,
        action=action,
        notes=(
            *(note for note in added.notes if note not in general),
            *starter_notes(started_by, is_printed=not needs_put(monitor.environment)),
        ),
        document=document,
        changed=added,
    )


def plan_removal(family: str, document: TaskDefinitionDocument, image: str | None) -> PlannedFamily:
    """Plan to remove the monitor. Raises TaskProfilerError if it is refused."""
    removed = remove_monitor(document.definition, image)
    log_group = None if removed.old_monitor is None else removed.old_monitor.own_log_group
    kept = () if log_group is None else (f"The log group {log_group} is kept.",)
    return PlannedFamily(
        family=family,
        action="remove monitor" if removed.old_monitor else "no monitor",
        notes=(*removed.notes, *kept),
        document=document,
        changed=removed,
    )


def _check_obstacle(planned: PlannedFamily) -> None:
    """Raise TaskProfilerError if the family must be left alone."""
    if planned.obstacle is not None:
        raise TaskProfilerError(f"It is left alone. {planned.obstacle}")


class RolloutRequest(Struct, frozen=True, kw_only=True):
    """The families to change, and the steps to take in addition to the plan."""

    globs: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    scheduled: bool = False
    register: bool = False
    update_schedules: bool = False
    print_policy: bool = False
    attach_policy: bool = False
    yes: bool = False
    services: bool = False


class Rollout(Struct, kw_only=True, dict=True):
    """Plans and changes the families of one account and Region."""

    open_client: OpenClient
    request: RolloutRequest
    plan_change: PlanChange
    part: Part = (
        "monitor"  # what ``plan_change`` changes, and what pinned targets may differ by to be moved
    )
    adds: bool = (
        False  # monitors, which the families of a cluster with an instance monitor do not need
    )
    image: str | None = None  # of the monitor, if its repository has a name of the user's own
    names_starters: bool = False
    owners: StackOwners | None = None  # asked before a target is moved
    read_revision: Callable[[str], bytes] | None = None  # in place of one call for each
    on_step: Callable[[str], object]
    on_problem: Callable[[str], object]
    counts: Counter[str] = field(default_factory=Counter)  # steps, and ``unmatched`` globs
    done: list[PlannedFamily] = []  # whose revisions were registered
    _groups: set[str] = set()
    _revisions: dict[
        str, Mapping[str, object]
    ] = {}  # many schedules may start one revision, which never changes

    @cached_property
    def _definitions(self) -> TaskDefinitions:
        return TaskDefinitions(self.open_client("ecs"))

    @cached_property
    def _schedules(self) -> Schedules:
        return Schedules(self.open_client)

    @cached_property
    def targets(self) -> tuple[ScheduledTarget, ...]:
        """All targets of schedules and rules that start ECS tasks, in all clusters."""
        try:
            return self._schedules.targets()
        except TaskProfilerError as error:
            is_size = self.part == "size" and self.request.register  # an input can override it
            if self.request.update_schedules or self.request.clusters or self.request.scheduled:
                raise
            if is_size:
                raise
            self.on_problem(f"{error} The plan lacks pinned schedules.")
            return ()

    def check_targets(self) -> None:
        """Raise TaskProfilerError if the schedules are needed and cannot be read."""
        _ = self.targets

    @cached_property
    def selected_targets(self) -> tuple[ScheduledTarget, ...]:
        """The targets in the clusters of the request."""
        names = set(map(cluster_name, self.request.clusters))
        return tuple(
            target
            for target in self.targets
            if not names or cluster_name(target.cluster_arn) in names
        )

    @cached_property
    def _seen(self) -> Mapping[str, Mapping[str, set[str]]]:
        """The families of the tasks in each cluster, and who started them.

        Raises TaskProfilerError.
        """
        ecs = self.open_client("ecs")
        clusters = self.request.clusters or self._definitions.clusters()
        return {cluster: starters_of_families(ecs, cluster) for cluster in clusters}

    @cached_property
    def _clusters_of(self) -> Mapping[str, frozenset[str]]:
        """The clusters of the request in which the families run, as far as they select them."""
        request = self.request
        found = dict[str, set[str]]()
        for target in self.selected_targets if request.clusters or request.scheduled else ():
            found.setdefault(target.family, set()).add(target.cluster_arn)
        for cluster, families in (
            self._seen.items() if request.clusters and not request.scheduled else ()
        ):
            for family in families:
                found.setdefault(family, set()).add(cluster)
        return {family: frozenset(clusters) for family, clusters in found.items()}

    @cached_property
    def _instance_monitors(self) -> InstanceMonitors:
        return InstanceMonitors(self.open_client("ecs"), self.on_problem)

    @cached_property
    def _starters(self) -> Mapping[str, tuple[str, ...]]:
        if not self.names_starters:
            return {}
        found = {target.family: {SCHEDULE} for target in self.targets}
        try:
            for families in self._seen.values():
                found |= {
                    family: names | found.get(family, set()) for family, names in families.items()
                }
        except TaskProfilerError as error:
            self.on_problem(
                f"{error} Without it, the plan shows only the schedules that start the families."
            )
        return {family: tuple(sorted(names)) for family, names in found.items()}

    def seen_starters(self, family: str) -> tuple[str, ...]:
        """What started the tasks of a family that ECS lists; empty if they may not be read."""
        names: set[str] = set()
        with suppress(TaskProfilerError):
            for families in self._seen.values():
                names |= families.get(family, set())
        return tuple(sorted(names))

    def families(self) -> tuple[str, ...]:
        """The selected families; globs without a match are reported.

        Raises TaskProfilerError if none is selected.
        """
        request = self.request
        definitions = self._definitions
        seen = self._clusters_of.keys() if request.clusters or request.scheduled else None
        matching = {
            glob: definitions.families(glob) if seen is None else definitions.families(glob) & seen
            for glob in request.globs or ("*",)
        }
        selected = set[str]().union(*matching.values())
        unmatched = [glob for glob, families in matching.items() if not families]
        where = f" in {' or '.join(request.clusters)}" if request.clusters else ""
        started = " that a schedule or a rule starts" if request.scheduled else ""
        unselected = (
            f"{started} is selected by {' or '.join(map(repr, unmatched))}{where}: check the names"
        )
        sentence = f"No task definition family with an active revision{unselected} and the Region."
        if not selected:
            raise TaskProfilerError(sentence)
        if unmatched:
            self.on_problem(sentence)
            self.counts["unmatched"] = len(unmatched)
        return tuple(sorted(selected))

    def plan(self, families: Iterable[str]) -> Iterator[PlannedFamily]:
        """Plan each family. Families of services are skipped unless the request includes them."""
        of_services: frozenset[str] = frozenset()
        if not self.request.services:
            of_services = self._definitions.families_of_services()
        for family in families:
            if family in of_services:
                planned = PlannedFamily(
                    family=family,
                    action="skipped",
                    notes=("A service runs it: --services includes it.",),
                )
            else:
                planned = self._plan(family)
            yield replace(planned, started_by=self._starters.get(family, ()))

    def _plan(self, family: str) -> PlannedFamily:
        """Plan the change of the latest active revision.

        A family that cannot be read or changed gets the reason.
        """
        try:
            document = read_document(self._describe(family), family)
        except TaskProfilerError as error:
            return PlannedFamily(family=family, action="failed", notes=(str(error),))
        planned = self._changed(family, document)
        if planned.action in ("refused", "on instance"):
            return planned
        self._revisions[planned.revision] = document.definition
        notes = [*planned.notes]
        pinned = []
        unmonitored = []
        movable: list[ScheduledTarget] = []
        for target in self.targets:
            if not target.is_pin_of(planned.revision_arn):
                continue
            try:
                found = self._pin_difference(planned, target)
                obstacle = None if found == "none" else self._obstacle(planned, target, found)
                starts_monitor = (
                    self.part == "size"
                    or monitor_of(self._pinned_definition(target), self.image) is not None
                )
            except TaskProfilerError as error:
                found = "other"
                obstacle = f". {error}"
                starts_monitor = True
            if found == "none":
                continue
            pinned.append(target)
            notes.append(
                f"The {target.title} is pinned to {target.pinned_revision}{obstacle or '.'}"
            )
            if obstacle is None:
                movable.append(target)
            if not starts_monitor:
                unmonitored.append(target)
        if planned.log_group is not None and planned.is_new_revision:
            notes.append(
                f"--register creates the log group {planned.log_group} if it does not exist."
            )
        return replace(
            planned,
            notes=tuple(notes),
            pinned=tuple(pinned),
            movable=tuple(movable),
            unmonitored=tuple(unmonitored),
        )

    def _describe(self, name: str) -> bytes:
        return (self.read_revision or self._definitions.describe)(name)

    def _obstacle(
        self, planned: PlannedFamily, target: ScheduledTarget, found: Difference
    ) -> str | None:
        """Why --update-schedules leaves a pinned target as it is, after its revision's name; None
        if it moves the target. Raises TaskProfilerError.

        For a size, a target is moved once: from the revision that this call replaces, or an equal
        older one. Somebody has put any other one there, and may have a reason.
        """
        if found == "other":
            return f", which differs by more than the {self.part}: --update-schedules skips it."
        if self.part != "size" or target.pinned_revision == planned.revision:
            return None
        if any(fnmatchcase(planned.family, glob) for glob in self.request.globs):
            return None
        name_it = f"name the family to move it: task-profiler taskdef resize {planned.family}"
        if not planned.is_new_revision:
            return f", although a newer revision differs only by the size: {name_it}."
        number = (target.pinned_revision or "").rpartition(":")[2]
        is_older = number.isdecimal() and int(number) < int(planned.revision.rpartition(":")[2])
        replaced = {} if planned.document is None else planned.document.definition
        pinned = without_size_tags(self._pinned_definition(target))
        if is_older and difference(pinned, without_size_tags(replaced)) == "none":
            return None
        return f", which has another size than {planned.revision}: {name_it}."

    def _changed(self, family: str, document: TaskDefinitionDocument) -> PlannedFamily:
        """The plan without its targets; nothing changes if it is refused, or if an instance
        monitor replaces it.
        """
        same = ChangedDefinition(
            definition=document.definition, containers=read_containers(document.definition)
        )
        unchanged = PlannedFamily(family=family, action="refused", document=document, changed=same)
        try:
            planned = self.plan_change(family, document, self._starters.get(family, ()))
        except TaskProfilerError as error:
            planned = replace(unchanged, notes=(str(error),))
        if self.adds and planned.changed.old_monitor is None:
            clusters = self._clusters_of.get(family, ())
        else:
            clusters = ()
        if not self._instance_monitors.reports_family(family, document.definition, clusters):
            return planned
        note = "The monitor of its instances reports it."
        same = replace(same, batch=planned.changed.batch)
        return replace(unchanged, action="on instance", notes=(note,), changed=same)

    def _pin_difference(self, planned: PlannedFamily, target: ScheduledTarget) -> Difference:
        """How a pinned target's revision differs from the one that the plan ends with.

        Raises TaskProfilerError.
        """
        if target.pinned_revision == planned.revision:
            return self.part if planned.is_new_revision else "none"
        return difference(
            self._pinned_definition(target), planned.changed.definition, self.image, part=self.part
        )

    def _pinned_definition(self, target: ScheduledTarget) -> Mapping[str, object]:
        revision = target.pinned_revision or ""
        if revision not in self._revisions:
            self._revisions[revision] = read_document(self._describe(revision), revision).definition
        return self._revisions[revision]

    def pinned_sentence(self, planned: Sequence[PlannedFamily]) -> str | None:
        """How many schedules and rules of the families go on starting another revision, unless
        they are moved.
        """
        pins = sum(len(one.movable if self.part == "size" else one.pinned) for one in planned)
        families = {one.family for one in planned}
        if not pins or self.request.update_schedules:
            return None
        targets = sum(target.family in families for target in self.targets)
        return (
            f"{pins} of {targets} schedules and rules are pinned to another revision, which they "
            "go on starting: --register --update-schedules moves them."
        )

    def register(self, planned: PlannedFamily) -> PlannedFamily:
        """Carry a plan out.

        Returns the executed plan: another one if the definition has changed meanwhile.
        """
        if not (planned.is_new_revision or self._moves(planned)):
            return planned
        try:
            _check_obstacle(planned)
            planned = self._planned_again(planned)
            _check_obstacle(planned)
            arn = planned.revision_arn
            if planned.is_new_revision:
                arn = self._definitions.register(planned.changed.definition)
                self.on_step(f"registered {revision_of(arn)}")
                self.counts["registered"] += 1
                self.done.append(planned)
        except TaskProfilerError as error:
            self._fail(planned.family, error)
            return planned
        for target in self._moves(planned):
            try:
                self._move(planned, target, arn)
            except TaskProfilerError as error:
                self._fail(planned.family, error)
        return planned

    def _moves(self, planned: PlannedFamily) -> tuple[ScheduledTarget, ...]:
        if not self.request.update_schedules:
            return ()
        return planned.movable if self.part == "size" else planned.pinned

    def _planned_again(self, planned: PlannedFamily) -> PlannedFamily:
        """The plan from the present definition, so that the new revision undoes no deployment."""
        self._create_log_group(planned)
        current = self._plan(planned.family)
        if current.document != planned.document:
            notes = " ".join(current.notes)
            if current.action == "failed":
                self.on_problem(f"{current.family}: {notes}")
            else:
                start = (
                    f"{current.family} changed meanwhile, so it is planned again from "
                    f"{current.revision}"
                )
                self.on_step(f"{start}: {current.action} {notes}".rstrip())
            self._create_log_group(current)
        return current

    def _create_log_group(self, planned: PlannedFamily) -> None:
        group = planned.log_group
        if group is None or not planned.is_new_revision or group in self._groups:
            return
        if create_log_group(self.open_client, group):
            self.on_step(f"created the log group {group}")
        self._groups.add(group)

    def _move(self, planned: PlannedFamily, target: ScheduledTarget, arn: str) -> None:
        """Move a pinned target, unless it is pinned to another version of the job at this
        moment.
        """
        current = self._schedules.read(target)
        if current is None or not current.is_pin_of(arn):
            self._skip(target, f"no longer pinned to a revision of {planned.family}")
            return
        pinned_difference = self._pin_difference(planned, current)
        if pinned_difference == "none":
            return
        obstacle = self._obstacle(planned, current, pinned_difference)
        if obstacle is not None:
            self._skip(current, f"pinned to {current.pinned_revision}")
            return
        owner = None if self.owners is None else self.owners.of_target(current)
        if owner is not None:
            self._skip(current, f"{owner}: set {revision_of(arn)} there")
            return
        self._schedules.move(current, arn)
        self.on_step(f"moved {current.title} to {revision_of(arn)}")
        self.counts["moved"] += 1

    def _skip(self, target: ScheduledTarget, reason: str) -> None:
        self.on_step(f"{target.title} skipped: {reason}")
        self.counts["skipped"] += 1

    def _fail(self, subject: str, error: TaskProfilerError) -> None:
        self.on_problem(f"{subject}: {error}")
        self.counts["failed"] += 1

    def policies(self, planned: Iterable[PlannedFamily]) -> Iterator[RolePolicy]:
        """The policy of each task role; without ``attach_policy``, the roles are not read."""
        streams: dict[str, frozenset[str]] = {}
        for family in planned:
            role = task_role(family.changed.definition)
            if role is not None and family.streams:
                streams[role] = streams.get(role, frozenset()) | family.streams
        for role, needed_streams in sorted(streams.items()):
            try:
                if self.request.attach_policy:
                    yield plan_policy(self.open_client, role, needed_streams)
                else:
                    yield planned_policy(role, needed_streams)
            except TaskProfilerError as error:
                if self.request.attach_policy:
                    self._fail(role, error)

    def attach_policies(self, policies: Iterable[RolePolicy]) -> None:
        for policy in (one for one in policies if one.document is not None):
            try:
                attach_policy(self.open_client, policy)
                self.on_step(f"attached the policy {POLICY_NAME} to the role {policy.role}")
                self.counts["attached"] += 1
            except TaskProfilerError as error:
                self._fail(policy.role, error)
