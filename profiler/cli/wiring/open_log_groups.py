"""Opens log groups as sources of past runs: those of the options, and where commands name things
in AWS and no source, those that the families' newest task definitions name.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import click
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, aws_errors, noted_errors
from profiler.aws_account.clusters_and_log_groups import missing_log_group_error
from profiler.aws_account.forwarder_stack import read_forwarder, task_stopped_log_group
from profiler.aws_account.log_retention import AwsLogRetention, log_gaps
from profiler.cli.options import SOURCE_FAILED, SourceOptions, variable_hint
from profiler.cli.printing import warn
from profiler.cli.wiring.aws_options import open_clients
from profiler.core.clock import SystemClock
from profiler.core.commands_to_copy import command_line
from profiler.core.ecs_terms import family_of
from profiler.core.errors import TaskProfilerError
from profiler.core.text import listed
from profiler.core.timestamps import NS_PER_MS
from profiler.record.family_identity import matches_any
from profiler.record.line_trust import (
    AccountTrust,
    InstanceMonitorGroup,
    MonitorTasks,
    TrustedGroups,
    read_trusted_globs,
)
from profiler.runs.past_runs.joined_runs import JoinedRuns
from profiler.runs.past_runs.log_group_runs import LogGroupRuns, MissingLogGroupError, ReadPages
from profiler.runs.past_runs.log_places import (
    AnyLogPlace,
    DefinedLogPlaces,
    LogOptions,
    log_options_of,
)
from profiler.runs.past_runs.report_agreement import ENDED_TYPE, EndedTaskLines
from profiler.runs.past_runs.run_source import OpenProgress, RunSource, is_pattern

ReadDefinition = Callable[[str], Mapping[str, object]]
"""The newest task definition of a family. Raises TaskProfilerError."""


def warn_of_failed_source(error: TaskProfilerError) -> None:
    """Warn about a source that failed while others are read.

    The command's exit code becomes 1: see PastRunsCommand.
    """
    context = click.get_current_context()
    warn(f"{error}{variable_hint(str(error), context)}")
    context.meta[SOURCE_FAILED] = True


def log_trust(open_client: OpenClient) -> AccountTrust:
    """Which lines of the log groups count.

    The account is unknown if STS does not answer: then no run is confirmed.
    """
    account_id: str | None = None
    region: str | None = None
    problems: list[str] = []
    what = "The account of the log groups is unknown, so no run is confirmed"
    with noted_errors(problems.append, what, "sts:GetCallerIdentity"):
        region = str(open_client("logs").meta.region_name)
        # It needs no permission.
        account_id = str(open_client("sts").get_caller_identity()["Account"])
    problem = next(iter(problems), "")
    return AccountTrust(
        account_id=account_id,
        problem=problem,
        region=region,
        groups=TrustedGroups(globs=read_trusted_globs(os.environ), tasks=_AskedTasks(open_client)),
        find_monitors=partial(_find_monitors, open_client, account_id),
    )


def _find_monitors(
    open_client: OpenClient, account_id: str | None
) -> Sequence[InstanceMonitorGroup]:
    # With botocore, which commands that read a file do without.
    from profiler.aws_account.instance_monitor_log_groups import find_monitor_groups

    return find_monitor_groups(open_client, account_id, warn)


class _AskedTasks:
    """ECS's word on the tasks of instance monitors, asked when a line needs it."""

    def __init__(self, open_client: OpenClient) -> None:
        self._open_client = open_client

    @cached_property
    def _tasks(self) -> MonitorTasks:
        from profiler.aws_account.instance_monitors import EcsMonitorTasks  # as above

        return EcsMonitorTasks(self._open_client("ecs"), warn)

    def has_stream(self, monitor: InstanceMonitorGroup, log_stream: str) -> bool | None:
        return self._tasks.has_stream(monitor, log_stream)

    def is_on_ec2(self, monitor: InstanceMonitorGroup, id_of_task: str) -> bool:
        return self._tasks.is_on_ec2(monitor, id_of_task)


def page_reader(open_client: OpenClient) -> ReadPages:
    """The function that reads log groups."""

    def read_pages(**parameters: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401  boto3's own
        client = open_client("logs")  # without a Region, botocore is not imported
        group = parameters["logGroupName"]
        what = f"{group} cannot be read"
        try:
            with aws_errors(what, "logs:FilterLogEvents on the log group"):
                yield from client.get_paginator("filter_log_events").paginate(**parameters)
        except TaskProfilerError as error:
            if isinstance(error.__cause__, client.exceptions.ResourceNotFoundException):
                told = partial(missing_log_group_error, open_client, group)
                raise MissingLogGroupError(str(error), told) from error.__cause__
            raise

    return read_pages


def defined_log_places(
    open_client: OpenClient, definitions: Mapping[str, Mapping[str, object]] | None = None
) -> DefinedLogPlaces:
    """Where the task definitions of the Region send their lines, read when a run needs them.

    A family without a definition may be anywhere; so may all if ECS refuses, which is a warning.
    ``definitions``: of all families whose runs are wanted, if these were read; then only their
    older revisions are.
    """
    # With botocore, which commands that read a file do without.
    from profiler.aws_account.registered_definitions import TaskDefinitions, may_definition_exist
    from profiler.task_definitions.definition_json import read_described

    opened: list[TaskDefinitions] = []
    refusals: list[TaskProfilerError] = []

    def log_options_of_definition(name: str) -> LogOptions | None:
        if refusals:
            return None
        if definitions is not None and name in definitions:
            return log_options_of(definitions[name])
        if definitions is not None and family_of(name) not in definitions:
            return {}
        try:
            if not opened:
                opened.append(TaskDefinitions(open_client("ecs")))
            return log_options_of(read_described(opened[0].describe, name).definition)
        except TaskProfilerError as error:
            if may_definition_exist(error):
                refusals.append(error)
                warn(f"It is unknown whether runs are where their families log. {error}")
            return None

    return DefinedLogPlaces(log_options_of_definition, reads_revisions=True)


def open_log_groups(
    open_client: OpenClient,
    names: Iterable[str],
    trust: AccountTrust,
    show: OpenProgress,
    *,
    places: AnyLogPlace | None = None,
    whole_since_ns: int | None = None,
) -> LogGroupRuns:
    """Open log groups of one Region. One that cannot be read is a warning while others are.

    ``places`` None: those of the Region's task definitions. ``whole_since_ns``: all runs since then
    are needed. A group that does not reach so far back is a gap.
    """

    def warn_about(_group: str, error: TaskProfilerError) -> None:
        warn_of_failed_source(error)

    clock = SystemClock()
    now_ns = clock.wall_ns()
    pages = page_reader(open_client)
    groups = tuple(names)
    source = LogGroupRuns(pages, groups, now_ns, show, trust, on_unread=warn_about)
    source.places = places or defined_log_places(open_client)
    if whole_since_ns is None:
        source.kept = AwsLogRetention(open_client, trust.region, clock)
    else:
        for gap in log_gaps(
            open_client, groups, trust.region, since_ns=whole_since_ns, now_ns=now_ns
        ):
            source.add_gap(gap)
    return source


def read_ended_tasks(open_client: OpenClient, stack: str, since_ns: int) -> EndedTaskLines:
    """What the stack's task_stopped has said about tasks since a time; ``gaps``: since when it can
    have.

    Raises TaskProfilerError without such a stack, or if its lines cannot be read.
    """
    state = read_forwarder(open_client, stack)
    if state.possible_action == "absent":
        raise TaskProfilerError(
            f"There is no stack {stack!r} in this account and Region, whose function task_stopped "
            "says what ECS knows of each task: name another one by --stack, or deploy it with "
            f"{command_line('setup', 'stack')}."
        )
    ended = EndedTaskLines(task_stopped_log_group(stack))
    pages = page_reader(open_client)(
        logGroupName=ended.group,
        startTime=since_ns // NS_PER_MS,
        filterPattern=f'{{ $.type = "{ENDED_TYPE}" }}',
    )
    for page in pages:
        for event in page["events"]:
            ended.add_line(event["logStreamName"], event["message"])
    now_ns = SystemClock().wall_ns()
    region = str(open_client("logs").meta.region_name)
    ended.gaps = tuple(
        log_gaps(open_client, (ended.group,), region, since_ns=since_ns, now_ns=now_ns)
    )
    return ended


def open_defined_groups(
    options: SourceOptions,
    families: Iterable[str],
    read_definition: ReadDefinition,
    show: OpenProgress,
    whole_since_ns: int | None = None,
) -> RunSource:
    """Open the log groups that the families' definitions name, and say so.

    ``whole_since_ns`` as in :func:`open_log_groups`. Raises TaskProfilerError if they name none.
    """
    # With botocore, which commands that read a file do without.
    from profiler.aws_account.family_log_groups import find_log_groups

    found = find_log_groups(families, read_definition)
    if not found.groups:
        reason = " ".join(found.problems) or "No family is selected."
        raise TaskProfilerError(f"{reason} Name the source of the runs by --from.")
    for problem in found.problems:
        warn(problem)
    if found.is_partial:
        click.get_current_context().meta[SOURCE_FAILED] = True
    warn(found.where_runs_are_read)
    open_client = open_clients(options.region, options.profile)
    region = str(open_client("logs").meta.region_name)
    trust = log_trust(open_client)
    places = defined_log_places(open_client)
    sources = [
        open_log_groups(
            open_clients(place, options.profile),
            names,
            replace(trust, region=place),
            show,
            places=places,
            whole_since_ns=whole_since_ns,
        )
        for place, names in found.names_by_region(region).items()
    ]
    if len(sources) == 1:
        return sources[0]
    for source in sources:
        source.raises_last = False  # of one of several Regions
    return JoinedRuns(sources, warn_of_failed_source)


def open_cluster_groups(options: SourceOptions, name: str | None, show: OpenProgress) -> RunSource:
    """Open the log groups of the families of the clusters in the options.

    ``name``: a run or a family, if only one is wanted. Raises TaskProfilerError.
    """
    # Slow to import, and not for files.
    from profiler.aws_account.family_log_groups import families_of_clusters
    from profiler.aws_account.registered_definitions import TaskDefinitions
    from profiler.task_definitions.definition_json import read_described

    open_client = open_clients(options.region, options.profile)
    wanted = options.families
    if not wanted or any(map(is_pattern, wanted)):
        found = families_of_clusters(open_client, options.clusters, _warn_as_failure)
        families = tuple(family for family in found if matches_any(family, wanted))
    else:
        families = wanted
    if name in families:
        families = (name,)
    if not families:
        clusters = listed(options.clusters, "or")
        raise TaskProfilerError(
            f"No family of {clusters} matches {listed(wanted, 'or')}: check the names, or name the "
            "source of the runs by --from."
        )
    definitions = TaskDefinitions(open_client("ecs"))

    def read_definition(family: str) -> Mapping[str, object]:
        return read_described(definitions.describe, family).definition

    return open_defined_groups(options, families, read_definition, show)


def _warn_as_failure(sentence: str) -> None:
    warn_of_failed_source(TaskProfilerError(sentence))
