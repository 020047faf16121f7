"""The task definitions of an account: plans the change of many families, and carries the plan out on request."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from msgspec import Struct

from profiler.cli.options import Decorated
from profiler.cli.output import warn
from profiler.cli.taskdef.ecs import OpenClient, TaskDefinitions, revision_of, translate_errors
from profiler.cli.taskdef.plan import Change, PlannedFamily, plan_families, plan_table
from profiler.cli.taskdef.schedules import ScheduledTarget, Schedules
from profiler.cli.text import table_width, write_lines
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.taskdef.document import TaskDefinitionDocument
from profiler.taskdef.permissions import POLICY_NAME, merged_policy, policy, read_policy

_EXISTS = "ResourceAlreadyExistsException"
_MISSING = "NoSuchEntity"


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
                help="With --register: move pinned targets of EventBridge rules and schedules to the new revision.",
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
        has_monitor: Whether a revision (ECS's response) has the monitor. A pinned target of a family without a new
            revision moves only if its revision has it; None: it always moves.
    """

    def __init__(
        self,
        open_client: OpenClient,
        request: RolloutRequest,
        change: Callable[[TaskDefinitionDocument], Change],
        *,
        has_monitor: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._open = open_client
        self._request = request
        self._change = change
        self._has_monitor = has_monitor
        self._definitions = TaskDefinitions(open_client("ecs"))
        self._schedules = Schedules(open_client("events"), open_client("scheduler"))
        self._counts: Counter[str] = Counter()

    def run(self) -> int:
        """Print the plan and carry it out as requested. Returns the exit code.

        Raises:
            TaskProfilerError: if the families cannot be listed, or if there are none.
        """
        planned = self._plan()
        request = self._request
        if request.print_policy:
            self._print_policy(planned)
        else:
            write_lines(plan_table(planned, table_width()), os.environ)
        self._counts["failed"] += sum(one.action == "failed" for one in planned)
        if request.attach_policy:
            self._attach_policies(planned)
        if request.register:
            with _progress("Registering", len(planned)) as advance:
                for one in planned:
                    self._attempt(one.family, lambda one=one: self._carry_out(one))  # type: ignore[misc]
                    advance()
        if request.register or request.attach_policy:
            self._print_summary(planned)
        return 1 if self._counts["failed"] else 0

    def _plan(self) -> tuple[PlannedFamily, ...]:
        targets = self._targets()
        families = self._families(targets)
        if not families:
            raise TaskProfilerError(
                "No task definition family with an active revision is selected: check the globs, the cluster's name "
                "and the Region."
            )
        of_services = frozenset() if self._request.services else self._definitions.families_of_services()
        with _progress("Reading task definitions", len(families)) as advance:
            return plan_families(
                families,
                self._definitions.describe,
                self._change,
                targets=targets,
                of_services=of_services,
                on_family=advance,
            )

    def _targets(self) -> tuple[ScheduledTarget, ...]:
        try:
            return self._schedules.targets()
        except TaskProfilerError as error:
            if self._request.update_schedules or self._request.clusters:
                raise
            warn(f"{error} The plan names no pinned schedules.")
            return ()

    def _families(self, targets: Sequence[ScheduledTarget]) -> tuple[str, ...]:
        request = self._request
        active = self._definitions.families(request.globs or ("*",))
        if not request.clusters:
            return active
        seen: set[str] = set()
        for cluster in request.clusters:
            seen |= self._definitions.families_of_tasks(cluster)
            seen |= {one.family for one in targets if one.is_in(cluster)}
        return tuple(family for family in active if family in seen)

    def _carry_out(self, planned: PlannedFamily) -> None:
        change = planned.change
        if change is None:
            return
        arn = planned.revision_arn
        if change.is_new_revision:
            if change.log_group is not None:
                self._create_log_group(change.log_group)
            arn = self._definitions.register(change.definition)
            click.echo(f"registered {revision_of(arn)}")
            self._counts["registered"] += 1
        if not self._request.update_schedules:
            return
        for target in planned.pinned:
            if change.is_new_revision or self._follows(target):
                self._attempt(planned.family, lambda target=target: self._move(target, arn))  # type: ignore[misc]

    def _follows(self, target: ScheduledTarget) -> bool:
        """Whether a pinned target moves although its family gets no new revision."""
        if self._has_monitor is None:
            return True
        return self._has_monitor(self._definitions.describe(str(target.pinned_revision)))

    def _move(self, target: ScheduledTarget, arn: str) -> None:
        self._schedules.move(target, arn)
        click.echo(f"moved {target.title} to {revision_of(arn)}")
        self._counts["moved"] += 1

    def _create_log_group(self, name: str) -> None:
        """Create the log group of the monitor unless it exists: ECS does not start a container without it."""
        logs = self._open("logs")
        with translate_errors(f"the log group {name!r} was not created, so no revision was registered"):
            try:
                logs.create_log_group(logGroupName=name)
            except logs.exceptions.ClientError as error:
                if error.response["Error"]["Code"] != _EXISTS:
                    raise

    def _attempt(self, family: str, step: Callable[[], None]) -> None:
        try:
            step()
        except TaskProfilerError as error:
            warn(f"{family}: {error}")
            self._counts["failed"] += 1

    def _print_policy(self, planned: Sequence[PlannedFamily]) -> None:
        streams = frozenset[str]().union(*(one.change.streams for one in planned if one.change is not None))
        if not streams:
            raise TaskProfilerError(
                "No selected family needs a permission, because no report is put into a batch's log stream: look at "
                "the plan without --policy."
            )
        click.echo(json.dumps(policy(streams), indent=2))

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
        with translate_errors(f"the policy of the role {role!r} was not changed"):
            existing = _existing_policy(iam, role)
            merged = merged_policy(existing, streams)
            if merged == existing:
                return
            iam.put_role_policy(RoleName=role, PolicyName=POLICY_NAME, PolicyDocument=json.dumps(merged))
        click.echo(f"attached the policy {POLICY_NAME} to the role {role}")
        self._counts["attached"] += 1

    def _print_summary(self, planned: Sequence[PlannedFamily]) -> None:
        actions = Counter(one.action for one in planned)
        kept = actions["up to date"] + actions["no monitor"]
        parts = {
            "registered": self._counts["registered"],
            "schedules moved": self._counts["moved"],
            "policies attached": self._counts["attached"],
            "unchanged": kept,
            "left": actions["left"],
            "refused": actions["refused"],
            "failed": self._counts["failed"],
        }
        warn(
            f"{len(planned)} families: " + ", ".join(f"{count} {what}" for what, count in parts.items() if count) + "."
        )


def _existing_policy(iam: Any, role: str) -> Mapping[str, object] | None:  # noqa: ANN401  boto3 makes its clients at run time
    try:
        return read_policy(iam.get_role_policy(RoleName=role, PolicyName=POLICY_NAME)["PolicyDocument"])
    except iam.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != _MISSING:
            raise
        return None


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error if that is a terminal; yields the function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)
