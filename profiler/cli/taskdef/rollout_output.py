"""The options of a rollout over the families of an account, its plan as a table, and its summary."""

import functools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.rollout import Rollout, RolloutRequest
from profiler.aws_account.rollout_plan import PlanChange, PlannedFamily
from profiler.cli.options import Decorated
from profiler.cli.printing import UNKNOWN, warn
from profiler.cli.progress import progress_row
from profiler.cli.styled_text import Column, Line, render_lines, table, table_width, write_lines
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.task_definitions.permissions import policy

_GAP = 2
_COLUMNS = tuple(Column(title, folds=True) for title in ("FAMILY", "BATCH", "ACTION", "NOTES"))


def rollout_options(function: Decorated) -> Decorated:
    """Add the options of :class:`RolloutRequest`, which the function takes together as ``request``."""

    @functools.wraps(function)
    def command(**values: Any) -> int | None:  # noqa: ANN401  the values of all options
        own = {name: values.pop(name) for name in RolloutRequest.__struct_fields__ if name in values}
        return function(request=RolloutRequest(**own), **values)

    decorated: Decorated = command
    for option in reversed(
        (
            click.option(
                "--family", "globs", metavar="GLOB", multiple=True, help="Plan these families of ECS. Repeatable."
            ),
            click.option(
                "--cluster",
                "clusters",
                metavar="NAME",
                multiple=True,
                help="Plan the families of the tasks seen in this cluster or targeted by schedules there. Repeatable.",
            ),
            click.option(
                "--scheduled", is_flag=True, help="Only families that an EventBridge rule or schedule starts."
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
        decorated = option(decorated)
    return decorated


def check_destination(request: RolloutRequest, *, has_files: bool, in_place: bool, out: str | None) -> None:
    """Refuse options that contradict each other. Raises UsageError."""
    is_account = bool(request.globs or request.clusters)
    if has_files == is_account or "" in (*request.globs, *request.clusters):
        raise UsageError("Name task definitions: a FILE (- is standard input), --family GLOB or --cluster NAME.")
    if is_account and (in_place or out is not None):
        raise UsageError("--in-place and -o write files: with --family or --cluster, use --register.")
    needs_account = request.register or request.print_policy or request.attach_policy or request.services
    needs_account = needs_account or request.scheduled or request.update_schedules
    if not is_account and needs_account:
        raise UsageError(
            "--register, --update-schedules, --scheduled, --services, --policy and --attach-policy need --family or "
            "--cluster: a file has no revision to compare with."
        )
    if request.update_schedules and not request.register:
        raise UsageError("--update-schedules needs --register: without it the plan names the pinned schedules.")


def roll_out(
    request: RolloutRequest,
    plan_change: PlanChange,
    open_client: OpenClient,
    *,
    image: str | None,
    check_plan: Callable[[tuple[PlannedFamily, ...]], object] = len,
) -> int:
    """Print the plan of an account's families, and carry it out as requested. Returns the exit code.

    Raises:
        TaskProfilerError: if the families cannot be listed, if there are none, or from ``check_plan``, which is called
            before anything is changed.
    """
    rollout = Rollout(open_client, request, plan_change, image=image, on_step=click.echo, on_problem=warn)
    families = rollout.families()
    planned = _with_progress("Reading task definitions", rollout.plan(families), len(families))
    if request.print_policy:  # to standard output, for a program
        click.echo(render_lines(_plan_table(planned, None), is_coloured=False, encoding="utf-8"), err=True, nl=False)
        _print_policy(planned)
    else:
        write_lines(_plan_table(planned, table_width()), os.environ)
    check_plan(planned)
    policies = tuple(rollout.policies(planned))
    for policy_note in filter(None, (one.note for one in policies)):
        warn(policy_note)
    if request.attach_policy:
        rollout.attach_policies(policies)
    if request.register:
        planned, before = _with_progress("Registering", rollout.register(planned), len(planned)), planned
        if request.attach_policy:
            changed = [new for new, old in zip(planned, before, strict=True) if new.document != old.document]
            rollout.attach_policies(rollout.policies(changed))
    rollout.counts["failed"] += sum(family.action == "failed" for family in planned)
    if request.register or request.attach_policy:
        _print_summary(planned, rollout.counts)
    return 1 if rollout.counts["failed"] or rollout.counts["unmatched"] else 0


def _with_progress(title: str, steps: Iterable[PlannedFamily], count: int) -> tuple[PlannedFamily, ...]:
    """Take the steps, and show their progress on the terminal."""
    done: list[PlannedFamily] = []
    with progress_row(os.environ) as show:
        show(title, 0)
        for step in steps:
            done.append(step)
            show(title, len(done) / count)
    return tuple(done)


def _plan_table(planned: Sequence[PlannedFamily], width: int | None) -> list[Line]:
    """The plan as a table of ``width`` columns; None: no limit."""
    rows = ((family.family, family.batch or UNKNOWN, family.action, " ".join(family.notes)) for family in planned)
    return table(_COLUMNS, rows, gap=_GAP, width=width)


def _print_policy(planned: Sequence[PlannedFamily]) -> None:
    """Print the policy that all planned families need. Raises TaskProfilerError if they need none."""
    streams = frozenset[str]().union(*(family.streams for family in planned))
    if not streams:
        raise TaskProfilerError(
            "No selected family needs a permission, because no report is written to a batch's log stream: see the plan."
        )
    click.echo(json.dumps(policy(streams), indent=2))


def _print_summary(planned: Sequence[PlannedFamily], counts: Counter[str]) -> None:
    actions = Counter(family.action for family in planned)
    parts = {
        "registered": counts["registered"],
        "schedules moved": counts["moved"],
        "schedules skipped": counts["skipped"],
        "policies attached": counts["attached"],
        "unchanged": actions["up to date"] + actions["no monitor"],
        "skipped": actions["skipped"],
        "refused": actions["refused"],
        "failed": counts["failed"],
    }
    warn(f"{len(planned)} families: " + ", ".join(f"{count} {what}" for what, count in parts.items() if count) + ".")
