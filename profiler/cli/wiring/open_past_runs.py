"""Builds the source of past runs, and of the evidence in them, that the options select."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.cli.options import SourceOptions, parse_tags, parse_time
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.timestamps import NS_PER_MS
from profiler.past_runs.run_source import OnProgress, PastRun, RunFilter, RunSource, no_progress
from profiler.record.model import Report

if TYPE_CHECKING:
    from rich.progress import Progress

    from profiler.cli.wiring.aws_clients import AwsOptions
    from profiler.cli.wiring.search_servers import ClusterServer
    from profiler.past_runs.families import FamilySource

_STDERR = 2
_LOGS_PERMISSION = "logs:FilterLogEvents on the log group"


def open_source(options: SourceOptions, environment: Mapping[str, str], clock: Clock) -> RunSource:
    """Open the source. Raises UsageError if the options name several, TaskProfilerError if it is not there."""
    _check_only_one(options)
    if options.source is not None:
        from profiler.past_runs.record_files import FileRuns  # only for this source

        return FileRuns(options.source)
    if options.url is not None:
        return _cluster(options, options.url, environment)
    if options.groups:
        return _log_groups(options, environment, clock)
    return _history(options.history_file, environment, clock)


def open_families(
    options: SourceOptions, source: RunSource, environment: Mapping[str, str], on_fargate: str | None = None
) -> "FamilySource":
    """The evidence of the families in the source of the options. In a cluster, only their last runs are read."""
    if options.url is None:
        from profiler.past_runs.families import RunFamilies  # only for recommendations

        return RunFamilies(source, on_fargate)
    from profiler.past_runs.search_families import ClusterFamilies

    return ClusterFamilies(_server(options, options.url, environment), options.prefix, on_fargate)


def run_filter(
    options: SourceOptions, clock: Clock, *, run: str | None = None, reads_checkpoints: bool = False
) -> RunFilter:
    """The filter that the options describe. Raises UsageError for a time or a tag that is not valid."""
    now_ms = clock.wall_ns() // NS_PER_MS
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
    )
    given = [name for name, is_given in sources if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: use one source of runs.")


def _history(file: str | None, environment: Mapping[str, str], clock: Clock) -> RunSource:
    from profiler.history.recorder import history_path  # SQLite and the recorder are only for this source
    from profiler.history.run_database import HistoryStore
    from profiler.past_runs.local_history import LocalRuns

    path = history_path(file, environment)
    store = HistoryStore(path, clock)
    store.add_abandoned_runs()
    if file is not None and not os.path.lexists(path):
        raise TaskProfilerError(f"The history file {path} does not exist: check --history.")
    return LocalRuns(Path(path), store)


def _cluster(options: SourceOptions, url: str, environment: Mapping[str, str]) -> RunSource:
    from profiler.past_runs.search_runs import ClusterRuns  # only for this source

    bar = _ProgressBar()
    server = _server(options, url, environment)
    return _WithProgress(ClusterRuns(server, options.prefix, bar.on_progress()), bar)


def _server(options: SourceOptions, url: str, environment: Mapping[str, str]) -> "ClusterServer":
    from profiler.cli.wiring.search_servers import ClusterServer, open_session  # requests, only for this source

    return ClusterServer(url, open_session(options.api_key, options.user, environment, options.ca_file))


def _log_groups(options: SourceOptions, environment: Mapping[str, str], clock: Clock) -> RunSource:
    from profiler.past_runs.log_groups import LogGroupRuns  # only for this source

    bar = _ProgressBar()
    paginator = _Paginator(options, environment)
    return _WithProgress(LogGroupRuns(paginator, options.groups, clock.wall_ns(), bar.on_progress()), bar)


class _WithProgress:
    """A source whose reads are shown by a progress bar on a terminal."""

    def __init__(self, source: RunSource, bar: "_ProgressBar") -> None:
        self._source = source
        self._bar = bar
        self.place = source.place
        self.remedy = source.remedy

    @property
    def notes(self) -> Sequence[str]:
        """See profiler.past_runs.run_source."""
        return self._source.notes

    def runs(self, wanted: RunFilter) -> Iterator[PastRun]:
        """See profiler.past_runs.run_source."""
        try:
            yield from self._source.runs(wanted)
        finally:
            self._bar.close()

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        """See profiler.past_runs.run_source."""
        return self._source.checkpoints(run)


class _ProgressBar:
    """A bar on standard error, if that is a terminal. rich is imported with the first progress."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: Any = None

    def on_progress(self) -> OnProgress:
        """The function that receives the progress."""
        return self.update if _is_terminal() else no_progress

    def update(self, runs: int, part: float) -> None:
        """Show the number of runs and the part that was read; 0: unknown."""
        from rich.console import Console  # only on a terminal, for reads that take long
        from rich.progress import BarColumn, Progress, TextColumn

        if self._progress is None:
            columns = (TextColumn("{task.description}"), BarColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("runs", total=None)
            self._progress.start()
        self._progress.update(self._task, description=f"{runs} runs", completed=part, total=1 if part else None)

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class _Paginator:
    """The paginator of FilterLogEvents; its client is created with the first page. Errors of AWS become sentences."""

    def __init__(self, options: SourceOptions, environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = environment
        self._client: Any = None  # slow to make, so it is made once

    def paginate(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401  boto3's own
        """See profiler.past_runs.log_groups."""
        from profiler.aws_account.aws_errors import aws_errors  # botocore, only for this source
        from profiler.cli.wiring.aws_clients import aws_client  # botocore, only for this source

        with aws_errors(f"{parameters['logGroupName']} cannot be read", _LOGS_PERMISSION):
            self._client = self._client or aws_client("logs", aws_options_of(self._options), self._environment)
            yield from self._client.get_paginator("filter_log_events").paginate(**parameters)


def aws_options_of(options: SourceOptions) -> "AwsOptions":
    """The region and the profile of the options."""
    from profiler.cli.wiring.aws_clients import AwsOptions  # only for sources in AWS

    return AwsOptions(region=options.region, profile=options.profile)


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and os.isatty(_STDERR)
    except OSError:
        return False
