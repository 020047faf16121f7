"""What ``setup stack`` prints and asks: the changes as a table, the events, the outputs, and what stays."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from msgspec.structs import replace

from profiler.account_setup.stack_changes import Change, ChangeSet, StackChanges, StackEvent
from profiler.account_setup.stack_deployment import StackDeployment, StackPlan, StackRequest
from profiler.account_setup.stack_removal import remains
from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.stack_state import StackState, obstacle, read_state
from profiler.cli.printing import warn
from profiler.cli.setup.stack_cluster import SearchCluster
from profiler.cli.styled_text import Column, Span, table, table_width, write_lines
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError

_GAP = 2
_CHANGE_COLUMNS = tuple(Column(title, folds=True) for title in ("ACTION", "RESOURCE", "TYPE", "REPLACEMENT"))
_OUTPUT_COLUMNS = (Column("OUTPUT"), Column("VALUE"))
_STYLES = {"Add": "green", "Modify": "yellow", "Remove": "red"}
_REPLACEMENTS = {"True": "yes", "False": "no", "Conditional": "possible"}

Confirm = Callable[[str], bool]


def deploy(
    request: StackRequest,
    open_client: OpenClient,
    confirm: Confirm,
    cluster: SearchCluster | None,
    *,
    dry_run: bool,
) -> int:
    """Create or update the stack. Returns the exit code: 1 if the user did not confirm the changes."""
    changes = StackChanges(request.name, open_client, SystemClock(), _print_event)
    deployment = StackDeployment(_with_engine(request, cluster), open_client, changes, click.echo)
    plan, bucket = deployment.plan()
    if dry_run:
        for sentence in deployment.describe(plan, bucket):
            click.echo(sentence)
        return 0
    change_set = deployment.prepare(plan, bucket)
    try:
        if change_set is not None:
            _print_changes(change_set.changes)
            if not confirm(f"Apply these {len(change_set.changes)} changes?"):
                changes.discard(change_set)
                click.echo("Nothing was changed.")
                return 1
        deployment.store_secrets(plan)
        if cluster is not None:
            cluster.install(plan.effective("IndexPrefix") or "task")
    except BaseException:  # also Ctrl-C: a change set that nobody will apply must not stay
        if change_set is not None:
            changes.discard(change_set)
        raise
    _finish(plan, changes, change_set)
    return 0


def _with_engine(request: StackRequest, cluster: SearchCluster | None) -> StackRequest:
    """The request with the product that the cluster is, unless a parameter names it."""
    if cluster is None:
        return request
    cluster.find_engine()
    if cluster.engine is None or any(text.startswith("SearchEngine=") for text in request.parameters):
        return request
    return replace(request, settings={**request.settings, "SearchEngine": cluster.engine})


def _finish(plan: StackPlan, changes: StackChanges, change_set: ChangeSet | None) -> None:
    if change_set is None:
        click.echo(f"The stack {plan.state.name} is up to date: nothing changed.")
        return
    with _interruption_explained(plan.state.name):
        state = changes.apply(change_set)
    if state.outputs:
        write_lines(table(_OUTPUT_COLUMNS, sorted(state.outputs.items()), gap=_GAP), os.environ)
    click.echo(f"The stack {state.place} is deployed: version {state.version}.")


@contextmanager
def _interruption_explained(name: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        warn(f"CloudFormation goes on with the stack {name}: repeat the command later to see the result.")
        raise


def remove(name: str, open_client: OpenClient, confirm: Confirm, *, dry_run: bool) -> int:
    """Delete the stack, and print what stays. Returns the exit code."""
    state = read_state(open_client, name)
    if state.stack_id is None:
        click.echo(f"There is no stack {name}: nothing to delete.")
        return 0
    if state.phase == "in progress":
        raise TaskProfilerError(str(obstacle(state)))
    if dry_run:
        click.echo(f"would delete the stack {state.place} ({_describe(state)})")
    elif not confirm(f"Delete the stack {state.place} ({_describe(state)})?"):
        click.echo("Nothing was deleted.")
        return 1
    changes = StackChanges(name, open_client, SystemClock(), _print_event)
    with _interruption_explained(name):
        kept = () if dry_run else changes.delete(state.stack_id)
    click.echo("These would stay:" if dry_run else f"The stack {state.place} is deleted. These stay:")
    if dry_run and state.phase != "absent":
        click.echo("  queues with events that failed")
    for sentence in remains(state, kept):
        click.echo(f"  {sentence}")
    return 0


def _describe(state: StackState) -> str:
    return f"version {state.version}" if state.version else str(state.status)


def _print_changes(changes: tuple[Change, ...]) -> None:
    rows = [
        (
            Span(change.action, _STYLES.get(change.action, "")),
            change.resource,
            change.type,
            _REPLACEMENTS.get(change.replacement or "", ""),
        )
        for change in changes
    ]
    write_lines(table(_CHANGE_COLUMNS, rows, gap=_GAP, width=table_width()), os.environ)


def _print_event(event: StackEvent) -> None:
    reason = f": {event.reason}" if event.reason else ""
    click.echo(f"{event.status}  {event.resource}{reason}")
