"""What ``setup stack`` prints: the changes as a table, the events, the outputs, and what stays."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cached_property

import requests
from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.forwarder_stack import (
    ForwarderStack,
    change_obstacle,
    check_is_own_stack,
    export_lines,
    read_forwarder,
    read_last_deleted_stack,
)
from profiler.aws_account.setup.change_sets import (
    ChangeSet,
    CloudFormationEvent,
    HalfDeletedError,
    ResourceChange,
    StackChanger,
    StillRunningError,
)
from profiler.aws_account.setup.forwarder_deployment import (
    DeploymentPlan,
    DeploymentRequest,
    ForwarderDeployment,
    filter_sentences,
)
from profiler.aws_account.setup.group_filters import FilterPlan, GroupFilters, removal_command
from profiler.aws_account.setup.remaining_resources import read_remaining_resources
from profiler.aws_account.setup.template_parameters import why_stack_does_nothing
from profiler.cli.printing import (
    NOT_APPLIED,
    say,
    say_done,
    say_sentence,
    warn,
    write_json_lines,
)
from profiler.cli.styled_text import Span, write_lines
from profiler.cli.tables import Column, aligned_table, folding_columns, table_width
from profiler.core.clock import SystemClock
from profiler.core.commands_to_copy import command_line, template_command
from profiler.core.errors import TaskProfilerError
from profiler.record.units import format_count
from profiler.search_setup.cluster_requests import Engine, RejectedError, detect_product
from profiler.search_setup.search_servers import ClusterServer
from profiler.search_setup.template_install import install_templates, setup_files

_STYLES = {"Add": "green", "Modify": "yellow", "Remove": "red"}
_MAX_FAILURES = 10
_REPLACEMENTS = {"True": "yes", "False": "no", "Conditional": "possible"}


class ForwarderCluster:
    """A cluster that this machine may not reach, as the functions can be in another network."""

    def __init__(self, url: str, session: requests.Session) -> None:
        self._url = url
        self._server = ClusterServer(url, session)
        self._silence: TaskProfilerError | None = None

    @cached_property
    def engine(self) -> Engine | None:
        """The cluster's product; None if the cluster does not answer."""
        try:
            return detect_product(self._server).engine
        except TaskProfilerError as error:
            self._silence = error
            return None

    def warn_of_no_answer(self, prefix: str) -> None:
        """Say that somebody must install the index templates, if the cluster has not answered."""
        if self._silence is not None:
            self._warn(self._silence, prefix)

    def install_templates(
        self, prefix: str, period: str, on_step: Callable[[str], object] = say
    ) -> None:
        """Install the index templates, and the indices of the month or day (``period``).

        Raises RejectedError.
        """
        if self.engine is None:
            self.warn_of_no_answer(prefix)
            return
        try:
            steps = install_templates(
                self._server,
                setup_files(),
                prefix=prefix,
                now=datetime.now(UTC),
                dry_run=False,
                period=period,
            )
            done = 0
            for step in steps:
                done += step.done
                if not step.done:
                    on_step(f"skipped: {step.what}")
        except RejectedError:  # without the template, the first report would get other field types
            raise
        except TaskProfilerError as error:
            self._warn(error, prefix)
        else:
            on_step(f"installed: {done} index templates, policies and indices")

    def _warn(self, error: TaskProfilerError, prefix: str) -> None:
        warn(
            "The index templates are not installed; run "
            f"{template_command(self._url, prefix)} where the cluster can be "
            f"reached, before the first report ({error})"
        )


class DeploymentOutput(Struct, frozen=True, kw_only=True):
    """Prints the steps, or, unless ``is_applied``, the plan.

    With ``as_json``, steps go to stderr.
    """

    is_applied: bool
    as_json: bool

    def print_step(self, sentence: str) -> None:
        """Print a step: with JSON, on standard error."""
        say_done(sentence, as_json=self.as_json)

    def print_event(self, event: CloudFormationEvent) -> None:
        reason = f": {event.reason}" if event.reason else ""
        self.print_step(f"{event.status}  {event.resource}{reason}")

    def print_plan(self, stack: str, sentences: Iterable[str]) -> None:
        """Print a plan that is not carried out."""
        if self.as_json:
            write_json_lines(
                [{"stack": stack, "isApplied": False, "plan": [*map(str.strip, sentences)]}]
            )
            return
        for sentence in sentences:
            say_sentence(sentence)
        say_sentence(NOT_APPLIED)


def deploy_forwarder(
    request: DeploymentRequest,
    open_client: OpenClient,
    cluster: ForwarderCluster | None,
    output: DeploymentOutput,
) -> int:
    """Create or update the stack. Returns 1 if a log group could not be subscribed.

    The cluster's product is a setting, unless a parameter sets it.
    """
    if cluster is not None:
        request = _with_engine(request, cluster.engine)
    changes = StackChanger(request.name, open_client, SystemClock(), output.print_event)
    deployment = ForwarderDeployment(request, open_client, changes, output.print_step)
    plan, bucket = deployment.plan_deployment()
    reason, options = why_stack_does_nothing(plan.parameter_values_after)
    if reason:
        warn(f"The stack {plan.state.name} {reason}: add {' '.join(options)}.")
    if not output.is_applied:
        _warn_of_no_answer(cluster, plan)
        output.print_plan(request.name, deployment.plan_lines(plan, bucket))
        return 0
    change_set = deployment.upload_and_create_change_set(plan, bucket)
    with nullcontext() if change_set is None else changes.discarded_on_error(change_set):
        changes.check_planned_state(plan.state, "changed")
        if change_set is not None and not output.as_json:
            _print_changes(change_set.changes)
        secrets = deployment.plan_secrets(plan)
        # Before a sign-in is stored that running functions take: the cluster may refuse them.
        if cluster is not None:
            cluster.install_templates(
                plan.parameter_values_after["IndexPrefix"],
                plan.parameter_values_after["IndexPeriod"],
                output.print_step,
            )
        deployment.store_secrets(plan, secrets)
        if change_set is not None:
            changes.read_earlier(change_set.stack_id)
    state = plan.state
    if change_set is not None:
        if plan.filters.delete:
            output.print_step(f"If this command is killed, {_removal_commands(plan.filters)}")
        with _explain_interruption(state.name, plan.filters):
            state = changes.apply_change_set(change_set)
        if state.possible_action == "absent":
            raise TaskProfilerError(
                f"The stack {plan.state.name} was deployed, and somebody has deleted it since: run "
                f"the command again.{_lost_filters_sentence(plan.filters)}"
            )
    rest = (
        "The stack is deployed, but not all subscription filters are: repeat the command, which "
        f"does the rest.{_lost_filters_sentence(plan.filters)}"
    )
    with _explain_remaining_filters(plan.filters, rest):
        failures = deployment.put_filters(plan, state, change_set)
    _print_result(plan, state, change_set, failures, output)
    return 1 if failures else 0


def _with_engine(request: DeploymentRequest, engine: Engine | None) -> DeploymentRequest:
    """The request with the cluster's product as a setting, unless a parameter sets it."""
    is_set = any(text.startswith("SearchEngine=") for text in request.parameters)
    if engine is None or is_set:
        return request
    return replace(request, settings={**request.settings, "SearchEngine": engine})


def _warn_of_no_answer(cluster: ForwarderCluster | None, plan: DeploymentPlan) -> None:
    if cluster is not None:
        cluster.warn_of_no_answer(plan.parameter_values_after["IndexPrefix"])


def _print_result(
    plan: DeploymentPlan,
    state: ForwarderStack,
    change_set: ChangeSet | None,
    failures: Sequence[str],
    output: DeploymentOutput,
) -> None:
    """Print what was deployed, and warn of log groups that are not subscribed."""
    _warn_of_log_groups(failures)
    if output.as_json:
        made = () if change_set is None else change_set.changes
        document = {
            "stack": state.name,
            "isApplied": True,
            "version": state.version,
            "changes": made,
            "logGroups": plan.filters.groups,
            "failures": failures,
        }
        write_json_lines([document | {"outputs": state.outputs}])
    elif change_set is None:
        say_sentence(f"The stack {state.name} is up to date: nothing changed.")
    else:
        if state.outputs:
            write_lines(
                aligned_table((Column("OUTPUT"), Column("VALUE")), sorted(state.outputs.items()))
            )
        say_sentence(f"The stack {state.name_and_region} is deployed: version {state.version}.")
        for line in export_lines(plan.parameter_values_after):
            say(line)


def _warn_of_log_groups(failures: Sequence[str]) -> None:
    for sentence in failures[:_MAX_FAILURES]:
        warn(sentence)
    if len(failures) > _MAX_FAILURES:
        warn(f"{len(failures) - _MAX_FAILURES} more log groups have such an error.")
    if failures:
        warn(
            f"{format_count(len(failures), 'log group')} must be looked at: run the command again, "
            "which does the rest."
        )


@contextmanager
def _explain_interruption(name: str, filters: FilterPlan) -> Iterator[None]:
    """Say that CloudFormation goes on, and which filters only this run knows."""
    stays = _lost_filters_sentence(filters)
    try:
        yield
    except KeyboardInterrupt:
        warn(
            f"CloudFormation goes on with the stack {name}: repeat the command later to see the "
            f"result.{stays}"
        )
        raise
    except StillRunningError as error:
        raise StillRunningError(f"{error}{stays}") from error.__cause__


def _lost_filters_sentence(filters: FilterPlan) -> str:
    """The sentence about the filters that a later run would leave, if any."""
    return f" Then {_removal_commands(filters)}" if filters.delete else ""


def _removal_commands(filters: FilterPlan) -> str:
    """The commands for the filters that a later run would leave, because the stack names their log
    groups no more.
    """
    commands = "; ".join(removal_command(group, filters.name) for group in filters.delete)
    return f"delete the filters that a later run does not find: {commands}"


@contextmanager
def _explain_remaining_filters(filters: FilterPlan, sentence: str) -> Iterator[None]:
    """Say after Ctrl-C that some of the filters may be left to do."""
    try:
        yield
    except KeyboardInterrupt:
        if filters.put or filters.delete:
            warn(sentence)
        raise


@contextmanager
def _explain_deleted_filters(name: str, filters: FilterPlan) -> Iterator[None]:
    """Say of a stack that is not deleted that the filters are: its functions get no line."""
    try:
        yield
    except (StillRunningError, HalfDeletedError):  # no update can subscribe it again
        raise
    except TaskProfilerError as error:
        if not filters.delete:
            raise
        groups = format_count(len(filters.delete), "log group")
        command = command_line("setup", "stack", "--name", name, "--yes")
        raise TaskProfilerError(
            f"{error} The subscription filters of {groups} are deleted, so nothing from there is "
            f"forwarded: delete the stack later, or subscribe again with {command}"
        ) from error


def delete_forwarder(name: str, open_client: OpenClient, output: DeploymentOutput) -> None:
    """Delete the subscription filters and the stack, and print the remaining resources.

    The stack stays if a filter is left, because its parameters name the log groups: then it raises
    TaskProfilerError.
    """
    state = read_forwarder(open_client, name)
    if state.possible_action == "in progress":
        raise TaskProfilerError(str(change_obstacle(state)))
    if state.stack_id is None:
        _print_deleted(name, open_client, output)
        return
    check_is_own_stack(state)
    problems: list[str] = []
    filters = GroupFilters(state.name, open_client, problems.append)
    filter_plan = filters.plan_deletion(state)
    if problems and output.is_applied:  # its parameters alone name the groups
        raise TaskProfilerError(f"The stack {name} is not deleted. {problems[0]}")
    if not output.is_applied:
        for problem in problems:
            warn(problem)
        stays = read_remaining_resources(open_client, state, (), warn)
        output.print_plan(name, _deletion_sentences(state, filter_plan, stays))
        return
    changes = StackChanger(name, open_client, SystemClock(), output.print_event)
    changes.read_earlier(state.stack_id)
    command = command_line("setup", "stack", "--name", name, "--yes")
    rest = (
        f"The stack {name} is not deleted, but some of its subscription filters may be: repeat the "
        f"command, or subscribe again with {command}"
    )
    with _explain_remaining_filters(filter_plan, rest):
        failures = filters.carry_out(filter_plan, None, SystemClock(), output.print_step)
    if failures:
        _warn_of_log_groups(failures)
        raise TaskProfilerError(f"The stack {name} is not deleted, because filters of it are left.")
    changes.check_planned_state(state, "deleted")
    with _explain_interruption(name, FilterPlan()), _explain_deleted_filters(name, filter_plan):
        events = changes.delete_stack(state.stack_id)
    kept = [*read_remaining_resources(open_client, state, events, warn)]
    head = f"The stack {state.name_and_region} is deleted. These stay:"
    _print_remaining_resources(name, head, kept, output, is_deleted=True)


def _print_deleted(name: str, open_client: OpenClient, output: DeploymentOutput) -> None:
    """Print what stays of a stack that is deleted already, perhaps by a command that was killed
    before it could say it.
    """
    head = f"There is no stack {name}: nothing to delete."
    kept: tuple[str, ...] = ()
    try:
        gone = read_last_deleted_stack(open_client, name)
        if gone is not None and gone.stack_id is not None:
            changes = StackChanger(name, open_client, SystemClock(), output.print_event)
            events = changes.kept_resource_events(gone.stack_id)
            kept = tuple(read_remaining_resources(open_client, gone, events, warn))
            head += " These stay of the last one, unless somebody has deleted them:"
    except TaskProfilerError as error:
        warn(f"What stays of a stack that was deleted before is unknown. {error}")
    _print_remaining_resources(name, head, kept, output, is_deleted=False)


def _deletion_sentences(
    state: ForwarderStack, filters: FilterPlan, stays: Iterable[str]
) -> Iterator[str]:
    what = f"version {state.version}" if state.version else state.status
    yield f"would delete the stack {state.name_and_region} ({what})"
    yield from filter_sentences(filters)
    yield "These would stay:"
    if state.possible_action != "absent":
        yield "  queues with events that failed"
    for sentence in stays:
        yield f"  {sentence}"


def _print_remaining_resources(
    name: str, head: str, kept: Sequence[str], output: DeploymentOutput, *, is_deleted: bool
) -> None:
    if output.as_json:
        write_json_lines([{"stack": name, "isApplied": is_deleted, "remains": kept}])
        return
    say(head)
    for sentence in kept:
        say(f"  {sentence}")


def _print_changes(changes: tuple[ResourceChange, ...]) -> None:
    rows = []
    for change in changes:
        action = Span(change.action, _STYLES.get(change.action, ""))
        replacement = change.replacement or ""
        rows.append((action, change.resource, change.type, _REPLACEMENTS.get(replacement, "")))
    columns = folding_columns("ACTION", "RESOURCE", "TYPE", "REPLACEMENT")
    write_lines(aligned_table(columns, rows, width=table_width()))
