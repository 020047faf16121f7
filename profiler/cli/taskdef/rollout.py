"""The task definitions of an account: plans the change of many families, and carries the plan out on request."""

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.monitor_log_groups import LogGroups
from profiler.aws_account.registered_definitions import TaskDefinitions, previous_revision, revision_of
from profiler.aws_account.role_policies import attach_policy
from profiler.aws_account.rollout_plan import Change, PlannedFamily, Planner
from profiler.aws_account.schedules import ScheduledTarget, Schedules
from profiler.cli.options import Decorated
from profiler.cli.printing import UNKNOWN, warn
from profiler.cli.progress import progress_row
from profiler.cli.styled_text import Column, Line, render_lines, table, table_width, write_lines
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.task_definitions.document import TaskDefinitionDocument
from profiler.task_definitions.permissions import POLICY_NAME, policy

_GAP = 2
_COLUMNS = tuple(Column(title, folds=True) for title in ("FAMILY", "BATCH", "ACTION", "NOTES"))
_SERVICE_REASON = "A service runs it: --services includes it."


class RolloutRequest(Struct, frozen=True, kw_only=True):
    """Which families to change, and what to do besides printing the plan."""

    globs: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    register: bool = False
    update_schedules: bool = False
    print_policy: bool = False
    attach_policy: bool = False
    services: bool = False


def rollout_options(function: Decorated) -> Decorated:
    """Add the options that select families and carry the plan out."""
    for option in reversed(
        (
            click.option(
                "--family", "families", metavar="GLOB", multiple=True, help="Plan these families of ECS. Repeatable."
            ),
            click.option(
                "--cluster",
                "clusters",
                metavar="NAME",
                multiple=True,
                help="Plan the families of the tasks seen in this cluster or targeted by schedules there. Repeatable.",
            ),
            click.option("--services", is_flag=True, help="Include families that services run."),
            click.option("--register", is_flag=True, help="Register the planned revisions."),
            click.option(
                "--update-schedules",
                is_flag=True,
                help="With --register: move EventBridge rules and schedules to the new revision, if the revision that "
                "they are pinned to differs by the monitor alone.",
            ),
        )
    ):
        function = option(function)
    return function


def check_destination(request: RolloutRequest, *, has_files: bool, in_place: bool, out: str | None) -> None:
    """Refuse options that contradict each other. Raises UsageError."""
    is_account = bool(request.globs or request.clusters)
    if has_files == is_account or "" in (*request.globs, *request.clusters):
        raise UsageError("Name task definitions: a FILE (- is standard input), --family GLOB or --cluster NAME.")
    if is_account and (in_place or out is not None):
        raise UsageError("--in-place and -o write files: with --family or --cluster, use --register.")
    needs_account = request.register or request.print_policy or request.attach_policy or request.services
    if not is_account and (needs_account or request.update_schedules):
        raise UsageError(
            "--register, --update-schedules, --services, --policy and --attach-policy need --family or --cluster: "
            "a file has no revision to compare with."
        )
    if request.update_schedules and not request.register:
        raise UsageError("--update-schedules needs --register: without it the plan names the pinned schedules.")


class Rollout:
    """Plans and changes the families of one account and Region.

    Args:
        open_client: Makes boto3's client of a service.
        request: Which families, and what to do.
        change: Computes the change of one definition; raises TaskProfilerError if it is refused.
        image: The monitor's image, if its repository has a name of the user's own.
    """

    def __init__(
        self,
        open_client: OpenClient,
        request: RolloutRequest,
        change: Callable[[TaskDefinitionDocument], Change],
        *,
        image: str | None,
    ) -> None:
        self._open = open_client
        self._request = request
        self._definitions = TaskDefinitions(open_client("ecs"))
        self._schedules = Schedules(open_client("events"), open_client("scheduler"))
        self._log_groups = LogGroups(open_client)
        self._change = change
        self._image = image
        self._counts: Counter[str] = Counter()

    def run(self) -> int:
        """Print the plan and carry it out as requested. Returns the exit code.

        Raises:
            TaskProfilerError: if the families cannot be listed, or if there are none.
        """
        targets = self._targets()
        planner = Planner(self._definitions.describe, self._change, targets=targets, image=self._image)
        planned = self._plan(planner, self._families(targets))
        request = self._request
        if request.print_policy:  # to standard output, for a program
            click.echo(render_lines(plan_table(planned, None), is_coloured=False, encoding="utf-8"), err=True, nl=False)
            print_policy(planned)
        else:
            write_lines(plan_table(planned, table_width()), os.environ)
        if request.attach_policy:
            self._attach_policies(planned)
        if request.register:
            planned, before = self._register(planner, planned), planned
            if request.attach_policy:
                self._attach_policies(
                    [one for one, old in zip(planned, before, strict=True) if one.document != old.document]
                )
        self._counts["failed"] += sum(one.action == "failed" for one in planned)
        if request.register or request.attach_policy:
            self._print_summary(planned)
        return 1 if self._counts["failed"] or self._counts["unmatched"] else 0

    def _plan(self, planner: Planner, families: Sequence[str]) -> tuple[PlannedFamily, ...]:
        of_services = frozenset() if self._request.services else self._definitions.families_of_services()
        planned = []
        with progress_row(os.environ) as show:
            for number, family in enumerate(families):
                show("Reading task definitions", number / len(families))
                if family in of_services:
                    planned.append(PlannedFamily(family=family, action="skipped", notes=(_SERVICE_REASON,)))
                else:
                    planned.append(self._with_log_group_note(planner.plan(family)))
        return tuple(planned)

    def _with_log_group_note(self, planned: PlannedFamily) -> PlannedFamily:
        change = planned.change
        if change is None or change.log_group is None or not change.is_new_revision:
            return planned
        note = self._log_groups.creation_note(change.log_group)
        return planned if note is None else replace(planned, notes=(*planned.notes, note))

    def _targets(self) -> tuple[ScheduledTarget, ...]:
        try:
            return self._schedules.targets()
        except TaskProfilerError as error:
            if self._request.update_schedules or self._request.clusters:
                raise
            warn(f"{error} The plan names no pinned schedules.")
            return ()

    def _families(self, targets: Sequence[ScheduledTarget]) -> tuple[str, ...]:
        """The selected families. Globs that select none of them are named."""
        request = self._request
        seen: set[str] = set()
        for cluster in request.clusters:
            seen |= self._definitions.families_of_tasks(cluster)
            seen |= {one.family for one in targets if one.is_in(cluster)}
        selected: set[str] = set()
        unmatched = []
        for glob in request.globs or ("*",):
            families = self._definitions.families(glob)
            matching = families & seen if request.clusters else families
            selected |= matching
            if not matching:
                unmatched.append(glob)
        where = f" in {' or '.join(request.clusters)}" if request.clusters else ""
        unselected = f"is selected by {' or '.join(map(repr, unmatched))}{where}: check the"
        if not selected:
            raise TaskProfilerError(
                f"No task definition family with an active revision {unselected} globs, the cluster's name and the "
                "Region."
            )
        if unmatched:
            warn(f"No task definition family with an active revision {unselected} glob and the Region.")
            self._counts["unmatched"] = len(unmatched)
        return tuple(sorted(selected))

    def _register(self, planner: Planner, planned: Sequence[PlannedFamily]) -> tuple[PlannedFamily, ...]:
        """Carry the plan out. Returns what was carried out: another plan where a definition has changed meanwhile."""
        done = []
        with progress_row(os.environ) as show:
            for number, one in enumerate(planned):
                show("Registering", number / len(planned))
                done.append(self._carry_out(planner, one))
        return tuple(done)

    def _carry_out(self, planner: Planner, planned: PlannedFamily) -> PlannedFamily:
        moves = planned.pinned if self._request.update_schedules else ()
        if planned.change is None or not (planned.change.is_new_revision or moves):
            return planned
        try:
            planned = self._planned_again(planner, planned)
            planned, arn = self._register_revision(planner, planned)
        except TaskProfilerError as error:
            self._print_failure(planned.family, error)
            return planned
        for target in planned.pinned if self._request.update_schedules else ():
            self._attempt(planned.family, lambda target=target: self._move(planner, planned, target, arn))  # type: ignore[misc]
        return planned

    def _planned_again(self, planner: Planner, planned: PlannedFamily) -> PlannedFamily:
        """The plan from what is there at this moment, so that the new revision undoes no deployment."""
        current = planner.plan(planned.family)
        if current.document != planned.document:
            self._print_new_plan(current)
        change = current.change
        if change is None or change.log_group is None or not change.is_new_revision:
            return current
        if not self._log_groups.create(change.log_group):
            return current
        click.echo(f"created the log group {change.log_group}")
        return self._planned_again(planner, current)  # a throttled call may have taken its time

    def _print_new_plan(self, planned: PlannedFamily) -> None:
        notes = " ".join(self._with_log_group_note(planned).notes)
        if planned.action == "failed":
            warn(f"{planned.family}: {notes}")
            return
        start = f"{planned.family} changed meanwhile, so it is planned again from {planned.revision}"
        click.echo(f"{start}: {planned.action} {notes}".rstrip())

    def _register_revision(self, planner: Planner, planned: PlannedFamily) -> tuple[PlannedFamily, str]:
        """Register the new revision, and return the plan that it is from, and its ARN.

        ECS registers without a condition, so a deployment at the same moment shows only afterwards, by its number. The
        family is then planned again from it, and registered again even without a change: the latest revision counts.
        """
        if planned.change is None or not planned.change.is_new_revision:
            return planned, planned.revision_arn
        known = {planned.revision}
        while True:
            arn = self._definitions.register(planned.definition)
            click.echo(f"registered {revision_of(arn)}")
            self._counts["registered"] += 1
            previous = previous_revision(arn)
            if previous in known or not self._definitions.is_active(previous):
                return planned, arn
            known.add(revision_of(arn) or "")
            planned = planner.plan(planned.family, previous)
            self._print_new_plan(planned)
            if planned.action == "failed":
                return planned, arn

    def _move(self, planner: Planner, planned: PlannedFamily, target: ScheduledTarget, arn: str) -> None:
        """Move a pinned target, unless it is pinned to another version of the job at this moment."""
        current = self._schedules.read(target)
        while current is not None and current.is_pin_of(arn):
            found = planner.pin_difference(planned, current)
            if found == "other":
                self._skip(current, f"pinned to {current.pinned_revision}")
            if found != "monitor":
                return
            current = self._schedules.move(current, arn)
            if current is not None and current.pinned_revision == revision_of(arn):
                click.echo(f"moved {current.title} to {revision_of(arn)}")
                self._counts["moved"] += 1
                return
        self._skip(target, f"no longer pinned to a revision of {planned.family}")

    def _skip(self, target: ScheduledTarget, reason: str) -> None:
        click.echo(f"{target.title} skipped: {reason}")
        self._counts["skipped"] += 1

    def _attempt(self, family: str, step: Callable[[], None]) -> None:
        try:
            step()
        except TaskProfilerError as error:
            self._print_failure(family, error)

    def _print_failure(self, family: str, error: TaskProfilerError) -> None:
        warn(f"{family}: {error}")
        self._counts["failed"] += 1

    def _attach_policies(self, planned: Sequence[PlannedFamily]) -> None:
        streams: dict[str, frozenset[str]] = {}
        for one in planned:
            if one.change is not None and one.task_role is not None and one.change.streams:
                role = one.task_role.rpartition("/")[2]
                streams[role] = streams.get(role, frozenset()) | one.change.streams
        iam = self._open("iam")
        for role, wanted in sorted(streams.items()):
            self._attempt(role, lambda role=role, wanted=wanted: self._attach_policy(iam, role, wanted))  # type: ignore[misc]

    def _attach_policy(self, iam: Any, role: str, streams: frozenset[str]) -> None:  # noqa: ANN401  as in ecs.py
        if attach_policy(iam, role, streams):
            click.echo(f"attached the policy {POLICY_NAME} to the role {role}")
            self._counts["attached"] += 1

    def _print_summary(self, planned: Sequence[PlannedFamily]) -> None:
        actions = Counter(one.action for one in planned)
        kept = actions["up to date"] + actions["no monitor"]
        parts = {
            "registered": self._counts["registered"],
            "schedules moved": self._counts["moved"],
            "schedules skipped": self._counts["skipped"],
            "policies attached": self._counts["attached"],
            "unchanged": kept,
            "skipped": actions["skipped"],
            "refused": actions["refused"],
            "failed": self._counts["failed"],
        }
        warn(
            f"{len(planned)} families: " + ", ".join(f"{count} {what}" for what, count in parts.items() if count) + "."
        )


def plan_table(planned: Sequence[PlannedFamily], width: int | None) -> list[Line]:
    """The plan as a table of ``width`` columns; None: no limit."""
    rows = (
        (one.family, (one.change.batch if one.change is not None else "") or UNKNOWN, one.action, " ".join(one.notes))
        for one in planned
    )
    return table(_COLUMNS, rows, gap=_GAP, width=width)


def print_policy(planned: Sequence[PlannedFamily]) -> None:
    """Print the policy that all planned families need. Raises TaskProfilerError if they need none."""
    streams = frozenset[str]().union(*(one.change.streams for one in planned if one.change is not None))
    if not streams:
        raise TaskProfilerError(
            "No selected family needs a permission, because no report is written to a batch's log stream: see the plan."
        )
    click.echo(json.dumps(policy(streams), indent=2))
