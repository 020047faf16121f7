"""Parses and opens the sources of past runs that the options select, and reads the prices of the
environment.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from profiler.aws_account.clusters_and_log_groups import matching_clusters, matching_log_groups
from profiler.cli.options import SourceOptions, parse_tags, parse_time
from profiler.cli.printing import warn, warn_if_partial
from profiler.cli.progress import progress_row
from profiler.cli.wiring.aws_options import open_clients, search_session
from profiler.cli.wiring.open_log_groups import (
    log_trust,
    open_cluster_groups,
    open_log_groups,
    page_reader,
    warn_of_failed_source,
)
from profiler.core.clock import SystemClock
from profiler.core.ecs_terms import cluster_name
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.index_names import DEFAULT_PREFIX
from profiler.core.optional_math import first_known, known
from profiler.core.redaction import without_credentials
from profiler.core.text import did_you_mean, listed, similar_name
from profiler.core.timestamps import LONG_AGO_NS, NEVER_NS, NS_PER_MS, NS_PER_SECOND
from profiler.core.web_addresses import NO_PORT, has_usable_port, meant_address
from profiler.record.batch_job import BatchJob
from profiler.record.run_labels import BATCH_PREFIX
from profiler.record.units import format_count
from profiler.runs.history.history_file import HISTORY_VARIABLE, history_path
from profiler.runs.past_runs.joined_runs import JoinedRuns
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.run_source import OpenProgress, RunFilter, RunSource, no_progress
from profiler.settings import SettingsReader, problems_message
from profiler.sizing.prices import PriceOverrides, has_any_price

if TYPE_CHECKING:
    from profiler.runs.past_runs.search_runs import IndexedRuns


_KINDS = ("history", "logs", "insights")
_JSON = (b"{", b"[")
_DATABASE = b"SQLite format 3\0"
_NO_HOST = re.compile(r"//(?:[/:?#]|\Z)")
_LIST = re.compile(r"[,\s]")
_LOG_GROUP_ARN = re.compile(
    r"arn:aws[a-z-]*:logs:(?P<region>[a-z0-9-]+):\d+:log-group:(?P<name>[^:]+)(?::\*)?", re.ASCII
)
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}(?:/\S*)?", re.ASCII)


class SourceReference(NamedTuple):
    """A source of runs: its kind, and its file, address, pattern or cluster; "" for the default
    history.
    """

    kind: Literal["history", "file", "search", "logs", "insights"]
    name: str


def parse_source(text: str) -> SourceReference:
    """Parse what ``--from`` takes. Raises UsageError for what is no source."""
    kind, colon, name = text.partition(":")
    is_kind_alone = kind in _KINDS and not name
    if not colon:
        is_kind_alone = is_kind_alone and kind != "history" and not os.path.lexists(text)
    if not text or is_kind_alone:
        raise UsageError(
            f"--from {text!r} has no name: write history:FILE, logs:GLOB or insights:CLUSTER."
        )
    match kind.lower():
        case "http" | "https" if name.startswith("//"):
            if _NO_HOST.match(name):
                raise UsageError(f"--from {text!r} names no host: write {kind}://HOST.")
            has_credentials = without_credentials(text) != text  # which a later error is about
            if not has_credentials and not has_usable_port(text):
                raise UsageError(f"--from {text!r}: {NO_PORT}")
            return SourceReference("search", text)
    match kind:
        case "logs" | "insights" if colon:
            _check_no_log_group_arn(name)
            if _LIST.search(name):
                raise UsageError(f"--from {text!r} is one name: give --from for each of several.")
            return SourceReference(kind, name)
        case "history":
            return SourceReference("history", name)
    if not os.path.lexists(text):
        _check_no_log_group_arn(text)
        _check_no_address(text)
        _check_no_kind(text)
    return SourceReference("file", text)


def _check_no_log_group_arn(text: str) -> None:
    """Raise UsageError for the ARN of a log group: the account and the Region are options."""
    arn = _LOG_GROUP_ARN.fullmatch(text)
    if arn:
        raise UsageError(
            f"--from takes a log group's name, and {text!r} is an ARN: write --from "
            f"logs:{arn['name']} --region {arn['region']}."
        )


def _check_no_address(text: str) -> None:
    """Raise UsageError for an address that is not one of a web server."""
    if without_credentials(text) != text:
        raise UsageError(
            "--from: the address contains credentials: leave them out, and set ELASTICSEARCH_USER "
            "and ELASTICSEARCH_PASSWORD."
        )
    meant = meant_address(text)
    if meant:
        raise UsageError(f"--from {text!r} is not an address: write {meant}.")
    scheme = text.partition("://")[0]
    if "://" in text and scheme.lower() != "file":
        raise UsageError(
            f"--from {text!r}: {scheme.lower()}:// is not supported: copy the lines into a file, "
            "and name it."
        )
    if _HOST_AND_PORT.fullmatch(text):
        raise UsageError(
            f"--from {text!r} is an address without a scheme: write https://{text}, or http://."
        )


def _check_no_kind(text: str) -> None:
    """Raise UsageError for a source whose kind is spelled wrong."""
    kind, colon, name = text.partition(":")
    if not (colon and kind and name):
        return
    if kind.lower() == "file":
        name = f"/{name.lstrip('/')}" if name.startswith("//") else name
        raise UsageError(f"--from {text!r}: a file has no kind before it: write {name}.")
    meant = similar_name(kind, _KINDS)
    # As nightly is not insights.
    if meant is not None and meant[0] == kind[0].lower():
        raise UsageError(f"--from {text!r} is of no known kind: write {meant}:{name}.")


def source_names(options: SourceOptions, kind: str) -> tuple[str, ...]:
    """The names of the options' sources of this kind."""
    return tuple(
        source.name for source in map(parse_source, options.sources) if source.kind == kind
    )


def reads_local_only(options: SourceOptions) -> bool:
    """Whether all runs are of the local history."""
    if not options.sources:
        return not options.clusters
    return len(source_names(options, "history")) == len(options.sources)


def reads_aws(options: SourceOptions) -> bool:
    """Whether runs are CloudWatch Logs', read with the account's credentials."""
    if not options.sources:
        return bool(options.clusters)
    return any(parse_source(text).kind in ("logs", "insights") for text in options.sources)


def open_source(
    options: SourceOptions,
    *,
    name: str | None = None,
    keeps_stacks: bool = False,
    shows_progress: bool = True,
    whole_since_ns: int | None = None,
) -> RunSource:
    """Open the sources; without one, the log groups of the clusters, else the local history.

    ``name``: a run or a family, if only one is wanted. ``whole_since_ns``: all runs since then are
    needed. Raises UsageError for an invalid source, TaskProfilerError if none can be opened.
    """
    sources = [parse_source(text) for text in dict.fromkeys(options.sources)] or [
        SourceReference("history", "")
    ]
    if options.with_services and not any(source.kind == "insights" for source in sources):
        raise UsageError(
            "--services is for --from insights:CLUSTER: other sources have the tasks of services."
        )
    show = show_progress if shows_progress else no_progress
    source: RunSource
    if not options.sources and options.clusters:
        source = open_cluster_groups(options, name, show)
    else:
        open_one = partial(
            _open_one,
            options=options,
            show=show,
            keeps_stacks=keeps_stacks,
            whole_since_ns=whole_since_ns,
        )
        source = _open_all(sources, open_one)
    warn_if_partial(source)
    return source


def _open_all(
    sources: Sequence[SourceReference], open_one: Callable[[SourceReference], RunSource]
) -> RunSource:
    """Open the sources as one. Raises TaskProfilerError if none can be opened."""
    if len(sources) == 1:
        return open_one(sources[0])
    opened = []
    unopened = []
    for number, source in enumerate(sources, 1):
        try:
            opened.append(open_one(source))
        except TaskProfilerError as error:
            if isinstance(error, UsageError) or (number == len(sources) and not opened):
                raise
            warn_of_failed_source(error)
            unopened.append(source.name)
    return JoinedRuns(opened, warn_of_failed_source, unopened)


def _open_one(
    source: SourceReference,
    options: SourceOptions,
    show: OpenProgress,
    *,
    keeps_stacks: bool,
    whole_since_ns: int | None,
) -> RunSource:
    """Open one source. Raises TaskProfilerError."""
    now_ns = SystemClock().wall_ns()
    match source.kind:
        case "file":
            return FileRuns(source.name, now_ns, keeps_stacks=keeps_stacks)
        case "search":
            return open_search(source.name, options, show)
        case "logs":
            open_client = open_clients(options.region, options.profile)
            groups = matching_log_groups(open_client, (source.name,))
            trust = log_trust(open_client)
            return open_log_groups(open_client, groups, trust, show, whole_since_ns=whole_since_ns)
        case "insights":
            return _open_container_insights(source.name, options, now_ns, show)
    return _open_history(source.name)


def _check_history(path: str, file: str) -> None:
    """Raise TaskProfilerError for a file that is no database, with how it is named."""
    try:
        with Path(path).open("rb") as opened:
            beginning = opened.read(len(_DATABASE))
    except OSError:  # who opens it next says why
        return
    if beginning[:1] in _JSON:
        raise TaskProfilerError(f"{path} is JSON and no history: write --from {file}.")
    if not _DATABASE.startswith(beginning):  # an empty file is a history without runs
        raise TaskProfilerError(
            f"{path} is no history, which is an SQLite database: name one, or write --from {file} "
            "for a file of record lines."
        )


def _open_history(file: str) -> RunSource:
    # SQLite, which other sources do not need.
    from profiler.runs.history.run_database import HistoryStore
    from profiler.runs.past_runs.local_history import LocalRuns

    path = history_path(os.environ, file)
    if file and not os.path.lexists(path):
        raise TaskProfilerError(f"The history file {path} does not exist: check --from.")
    if file:
        _check_history(path, file)
    named_by = "--from history:FILE" if file else HISTORY_VARIABLE
    store = HistoryStore(path, SystemClock(), named_by=named_by)
    store.add_abandoned_runs()
    return LocalRuns(store)


def open_search(
    url: str, options: SourceOptions, show: OpenProgress = no_progress
) -> "IndexedRuns":
    """Open the forwarder's documents.

    The last part of the address's path is the prefix of the index names.
    """
    # A missing Region is an error before the slow imports.
    session = search_session(url, options.region, options.profile, os.environ)
    # With requests, which no other source needs.
    from profiler.record.family_statistics import WINDOW_DAYS
    from profiler.runs.past_runs.search_runs import IndexedRuns
    from profiler.search_setup.search_servers import ClusterServer, checked_address

    scheme, _, place = checked_address(url).partition("://")
    address, _, prefix = place.rpartition("/") if "/" in place else (place, "", "")
    now = datetime.fromtimestamp(SystemClock().wall_ns() / NS_PER_SECOND, UTC)
    return IndexedRuns(
        ClusterServer(f"{scheme}://{address}", session),
        prefix or DEFAULT_PREFIX,
        show,
        advice_since=now - timedelta(days=WINDOW_DAYS),
    )


def run_filter(
    options: SourceOptions, *, run: str | None = None, reads_checkpoints: bool = False
) -> RunFilter:
    """The filter that the options describe.

    Raises UsageError for a time, a tag or a label that is not valid.
    """
    now_ms = SystemClock().wall_ns() // NS_PER_MS

    def time_ns(text: str) -> int:
        return parse_time(text, now_ms) * NS_PER_MS

    since_ns = known(time_ns, options.since)
    until_ns = known(time_ns, options.until)
    if first_known(since_ns, LONG_AGO_NS) >= first_known(until_ns, NEVER_NS):
        raise UsageError(
            "--since is not before --until: use an earlier --since or a later --until."
        )
    if (since_ns or 0) > now_ms * NS_PER_MS:
        raise UsageError(f"--since {options.since} is in the future: use an earlier time.")
    return RunFilter(
        families=options.families,
        clusters=tuple(cluster_name(cluster) or cluster for cluster in options.clusters),
        accounts=options.accounts,
        regions=options.regions,
        tags=parse_tags(options.tags),
        labels=_parse_labels(options.labels),
        statuses=options.statuses,
        since_ns=since_ns,
        until_ns=until_ns,
        run=run or "",
        reads_checkpoints=reads_checkpoints,
    )


def _parse_labels(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Parse ``NAME=VALUE``. Raises UsageError, also for a member that no job of AWS Batch has."""
    labels = parse_tags(texts, "--label", "NAME=VALUE", "label's name")
    values = [f"{BATCH_PREFIX}{name}" for name in BatchJob.__struct_fields__]
    for name, _ in labels:
        if name.startswith(BATCH_PREFIX) and name not in values:
            raise UsageError(
                f"--label {name}: a job has no such value.{did_you_mean([name], values)} There are "
                f"{listed(values)}."
            )
    return labels


def _open_container_insights(
    cluster: str, options: SourceOptions, now_ns: int, show: OpenProgress
) -> RunSource:
    # Slow to import, and seldom needed.
    from profiler.runs.past_runs.container_insights import DEFAULT_DAYS, ContainerInsightsRuns

    open_client = open_clients(options.region, options.profile)
    open_client("logs")  # not by several threads
    return ContainerInsightsRuns(
        page_reader(open_client),
        matching_clusters(open_client, cluster),
        SettingsReader(os.environ).prices() or PriceOverrides(),
        show,
        since_ns=parse_time(options.since or f"{DEFAULT_DAYS}d", now_ns // NS_PER_MS) * NS_PER_MS,
        now_ns=now_ns,
        with_services=options.with_services,
    )


@contextmanager
def show_progress() -> Iterator[Callable[[int, float], None]]:
    """Show the number of runs on a terminal."""
    with progress_row() as show:
        yield lambda runs, share: show(format_count(runs, "run"), share)


def price_overrides(on_fargate: str | None = None) -> PriceOverrides:
    """Read the prices that replace the table's; problems are warnings.

    Raises UsageError for what is not a Region.
    """
    reader = SettingsReader(os.environ)
    prices = reader.prices() or PriceOverrides()
    if reader.problems:
        warn(problems_message(reader.problems))
    if on_fargate is not None and not has_any_price(on_fargate, prices):
        from botocore.session import Session  # slow

        settings = "set TASK_PROFILER_PRICE_VCPU_HOUR and TASK_PROFILER_PRICE_GB_HOUR."
        names = Session()
        if not any(
            on_fargate in names.get_available_regions("ecs", partition)
            for partition in names.get_available_partitions()
        ):
            raise UsageError(
                f"ECS is not known in a Region {on_fargate!r}: check the name, or {settings}"
            )
        warn(f"Fargate's prices in {on_fargate} are unknown: {settings}")
    return prices
