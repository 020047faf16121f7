"""Builds the source of past runs that the options select, and reads the prices of the environment."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from profiler.cli.options import SourceOptions, parse_tags, parse_time
from profiler.cli.printing import warn
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.timestamps import NS_PER_MS
from profiler.record.units import format_count
from profiler.runs.past_runs.run_source import OpenProgress, RunFilter, RunSource, no_progress

if TYPE_CHECKING:
    from profiler.aws_account.aws_errors import OpenClient
    from profiler.runs.past_runs.log_group_runs import ReadPages
    from profiler.sizing.prices import PriceOverrides


def open_source(
    options: SourceOptions, *, keeps_stacks: bool = False, keeps_notices: bool = False, shows_progress: bool = True
) -> RunSource:
    """Open the source. Raises UsageError if the options name several, TaskProfilerError if it is not there.

    Files and log groups are read only once, and keep call stacks and notices about schedules only on request. The
    modules of a source are imported only for that source.
    """
    _check_only_one(options)
    show = _show_progress if shows_progress else no_progress
    now_ns = SystemClock().wall_ns()
    if options.source is not None:
        from profiler.runs.past_runs.record_files import FileRuns

        return FileRuns(options.source, now_ns, keeps_stacks=keeps_stacks)
    if options.url is not None:
        from profiler.cli.wiring.aws_options import search_session

        session = search_session(options)  # a missing Region is an error before the slow imports
        from profiler.runs.past_runs.search_runs import IndexedRuns
        from profiler.search_setup.search_servers import ClusterServer

        return IndexedRuns(ClusterServer(options.url, session), options.prefix, show)
    if options.groups:
        from profiler.runs.past_runs.log_group_runs import LogGroupRuns

        return LogGroupRuns(open_pages(options), log_groups(options), now_ns, show, keeps_notices=keeps_notices)
    if options.insights:
        return _container_insights(options, now_ns, show)
    from profiler.runs.history.history_file import history_path
    from profiler.runs.history.run_database import HistoryStore
    from profiler.runs.past_runs.local_history import LocalRuns

    path = history_path(options.history_file, os.environ)
    store = HistoryStore(path, SystemClock())
    store.add_abandoned_runs()
    if options.history_file is not None and not os.path.lexists(path):
        raise TaskProfilerError(f"The history file {path} does not exist: check --history.")
    return LocalRuns(store)


def source_of_advice(options: SourceOptions, source: RunSource) -> RunSource | None:
    """The source of a whole family's runs; None for log groups, because weeks of logs would be read only for advice."""
    return None if options.groups else source


def run_filter(options: SourceOptions, *, run: str | None = None, reads_checkpoints: bool = False) -> RunFilter:
    """The filter that the options describe. Raises UsageError for a time or a tag that is not valid."""
    now_ms = SystemClock().wall_ns() // NS_PER_MS
    since_ns = None if options.since is None else parse_time(options.since, now_ms) * NS_PER_MS
    until_ns = None if options.until is None else parse_time(options.until, now_ms) * NS_PER_MS
    if since_ns is not None and until_ns is not None and since_ns >= until_ns:
        raise UsageError("--since is not before --until: use an earlier --since or a later --until.")
    return RunFilter(
        families=options.families,
        clusters=options.clusters,
        accounts=options.accounts,
        regions=options.regions,
        tags=parse_tags(options.tags),
        statuses=options.statuses,
        since_ns=since_ns,
        until_ns=until_ns,
        run=run,
        reads_checkpoints=reads_checkpoints,
    )


def _check_only_one(options: SourceOptions) -> None:
    sources = (
        ("--history", options.history_file is not None),
        ("--from", options.source is not None),
        ("--elasticsearch", options.url is not None),
        ("--log-group", bool(options.groups)),
        ("--container-insights", bool(options.insights)),
    )
    given = [name for name, is_given in sources if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: use one source of runs.")
    if options.with_services and not options.insights:
        raise UsageError("--services is for --container-insights: other sources have the tasks of services.")


def _container_insights(options: SourceOptions, now_ns: int, show: OpenProgress) -> RunSource:
    from profiler.aws_account.clusters_and_log_groups import matching_clusters  # only for this source
    from profiler.runs.past_runs.container_insights import DEFAULT_DAYS, ContainerInsightsRuns, InsightsSelection
    from profiler.settings import SettingsReader
    from profiler.sizing.prices import PriceOverrides

    open_client = _clients(options)
    open_client("logs")  # not by several threads
    clusters, missing = matching_clusters(open_client, options.insights)
    selected = InsightsSelection(
        clusters=clusters,
        since_ns=parse_time(options.since or f"{DEFAULT_DAYS}d", now_ns // NS_PER_MS) * NS_PER_MS,
        now_ns=now_ns,
        with_services=options.with_services,
        prices=SettingsReader(os.environ).prices() or PriceOverrides(),
        missing=missing,
    )
    return ContainerInsightsRuns(open_pages(options), selected, show)


@contextmanager
def _show_progress() -> Iterator[Callable[[int, float], None]]:
    from profiler.cli.progress import progress_row  # only for reads that may take long

    with progress_row() as show:
        yield lambda runs, share: show(format_count(runs, "run"), share)


def log_groups(options: SourceOptions) -> tuple[str, ...]:
    """The log groups of the options. Raises TaskProfilerError if a pattern matches none."""
    from profiler.aws_account.clusters_and_log_groups import matching_log_groups  # only for this source

    return matching_log_groups(_clients(options), options.groups)


def open_pages(options: SourceOptions) -> "ReadPages":
    """The function that reads log groups."""
    open_client = _clients(options)

    def read_pages(**parameters: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401  boto3's own
        from profiler.aws_account.aws_errors import aws_errors  # botocore, only for this source

        client = open_client("logs")  # without a Region, botocore is not imported
        with aws_errors(f"{parameters['logGroupName']} cannot be read", "logs:FilterLogEvents on the log group"):
            yield from client.get_paginator("filter_log_events").paginate(**parameters)

    return read_pages


def _clients(options: SourceOptions) -> "OpenClient":
    from profiler.cli.wiring.aws_options import open_clients  # only for sources in AWS

    return open_clients(options.region, options.profile)


def price_overrides(on_fargate: str | None = None) -> "PriceOverrides":
    """Read the prices that replace the table's. Problems, and a Region without a known price, are warnings.

    Raises UsageError for what is not a Region.
    """
    if on_fargate == "":
        raise UsageError("--on-fargate is empty: name a Region, such as eu-west-1, or leave the option out.")
    from profiler.settings import SettingsReader, problems_message  # only for commands that calculate costs
    from profiler.sizing.prices import UNPRICED_REGIONS, PriceOverrides, is_priced

    reader = SettingsReader(os.environ)
    prices = reader.prices() or PriceOverrides()
    if reader.problems:
        warn(problems_message(reader.problems))
    if on_fargate is not None and not is_priced(on_fargate, prices):
        settings = "set TASK_PROFILER_PRICE_VCPU_HOUR and TASK_PROFILER_PRICE_GB_HOUR."
        if on_fargate not in UNPRICED_REGIONS:
            raise UsageError(f"Fargate is not known in a Region {on_fargate!r}: check the name, or {settings}")
        warn(f"Fargate's prices in {on_fargate} are unknown: {settings}")
    return prices
