"""Builds what reads the running tasks that the options select."""

from collections.abc import Mapping

from msgspec.structs import replace

from profiler.cli.options import SourceOptions
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import log_groups, open_pages, open_source
from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_SECOND
from profiler.past_runs.run_source import RunFilter, RunSource
from profiler.past_runs.usual_times import UsualDurations
from profiler.running_tasks.cluster_tasks import RunningTasks
from profiler.running_tasks.followed_logs import FollowedLogs
from profiler.running_tasks.running_runs import RunningRuns
from profiler.running_tasks.watched_tasks import WatchedTasks

_NS_PER_DAY = 86_400 * NS_PER_SECOND


def open_watched_tasks(
    name: str | None,
    options: SourceOptions,
    cluster: str | None,
    days: int,
    environment: Mapping[str, str],
    clock: Clock,
) -> WatchedTasks:
    """What reads the running tasks of the log groups or of the cluster; ``days``: how far back past runs are read."""

    def past_runs() -> RunSource | None:
        selected = replace(options, groups=() if options.url is not None else watched.groups)
        if selected.url is None and not selected.groups:
            return None
        return open_source(selected, without_progress, clock)

    # A row with the progress would be in the table.
    without_progress = {**environment, "TERM": "dumb"}
    clients = open_clients(options.region, options.profile)
    watched = WatchedTasks(
        RunningRuns(RunFilter(run=name)),
        FollowedLogs(open_pages(options), clock),
        UsualDurations(past_runs if days else None, max(clock.wall_ns() - days * _NS_PER_DAY, 0)),
        groups=log_groups(options),
        cluster=None if cluster is None else RunningTasks(clients, cluster, with_services=name is not None),
        clock=clock,
    )
    return watched
