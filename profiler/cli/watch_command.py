"""``task-profiler watch``: the tasks that run now, as lines for the terminal and as JSON."""

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import click

from profiler.aws_account.clusters_and_log_groups import matching_log_groups
from profiler.aws_account.registered_definitions import TaskDefinitions
from profiler.aws_account.running_tasks.running_runs import (
    LocalRunsInProgress,
    MonitorLogFollower,
    RunningRun,
    RunningRuns,
)
from profiler.aws_account.running_tasks.watched_tasks import (
    RunningTaskLister,
    WatchedRun,
    WatchedTasks,
)
from profiler.cli.aws_names import CLUSTER
from profiler.cli.interruption import keep_finalizers_quiet
from profiler.cli.options import (
    PastRunsCommand,
    SourceOptions,
    Text,
    completes,
    flag,
    gathered,
    option,
    past_run_options,
)
from profiler.cli.printing import UNKNOWN, value_text, warn, write_json_lines
from profiler.cli.standard_streams import STDOUT, screen_size, stdout_encoding, write_out
from profiler.cli.styled_text import (
    OUTCOME_STYLES,
    Line,
    Span,
    build_line,
    cut_line,
    render_lines,
    shows_colours,
    wrapped_lines,
    write_lines,
)
from profiler.cli.tables import MIN_COLUMNS, Column, aligned_table, table_width
from profiler.cli.wiring.aws_options import check_region, open_clients
from profiler.cli.wiring.open_log_groups import log_trust, page_reader
from profiler.cli.wiring.open_past_runs import open_source, parse_source, source_names
from profiler.core.clock import Clock, SystemClock
from profiler.core.ecs_terms import SHORT_ID_LENGTH, run_id_in
from profiler.core.errors import FIRST_SIGNAL_EXIT_CODE, TaskProfilerError, UsageError
from profiler.core.optional_math import first_known, known
from profiler.core.text import listed
from profiler.core.timestamps import NS_PER_MS
from profiler.record.family_identity import family_key, place_columns
from profiler.record.family_statistics import UsualDuration
from profiler.record.line_trust import AccountTrust
from profiler.record.model_base import JsonLine
from profiler.record.record_model import Report
from profiler.record.run_outcome import PREDICATES
from profiler.record.stop_causes import outcome_of
from profiler.record.task_needs import vcpu_size
from profiler.record.units import format_bare_vcpu, format_count, format_duration, format_memory
from profiler.runs.past_runs.family_evidence import FamilyCache, usual_since_ns
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from profiler.runs.past_runs.run_source import RunFilter, RunSource

# FilterLogEvents is called at most once in this many seconds for each log group.
_SECONDS_BETWEEN_READS = 15
# Of this machine's runs, which are a file: `run` writes a short one down each second.
_SECONDS_BETWEEN_LOCAL_READS = 1

# The alternate screen, where lines are cut and no cursor is shown, and back to the rows and the
# cursor from before.
_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE = b"\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME = b"\x1b[H"
_CLEAR_REST_OF_LINE = b"\x1b[K"
_CLEAR_BELOW = b"\x1b[J"
# A terminal with at least this many columns has room for long bars.
_WIDE = 110
_COLUMNS = (
    Column("Time", is_right=True),
    Column("Of p95"),
    *(Column(title, is_right=True) for title in ("Median", "p95", "vCPU", "Memory")),
    Column("", folds=True),
)


@click.command(
    "watch",
    cls=PastRunsCommand,
    epilog="Example: task-profiler watch nightly-etl --from logs:/ecs/jobs",
)
@click.argument(
    "name",
    metavar="[FAMILY|TASK]",
    required=False,
    type=Text(),
    shell_complete=completes(families=True),
)
@past_run_options
@option("--cluster", "NAME", "Ask ECS for the running tasks of this cluster.", type=CLUSTER)
@option("--queue", "NAME", "List the jobs of this queue of AWS Batch instead.")
@flag("--once", "Print one table and end, as without a terminal.")
@flag("--json as_json", "Print one JSON line for each running task and end.")
@gathered(SourceOptions, "options")
def watch(
    name: str | None,
    options: SourceOptions,
    cluster: str | None,
    queue: str | None,
    once: bool,
    as_json: bool,
) -> None:
    """Show what runs now: time, CPU, memory, notifications.

    FAMILY is a family or a pattern of families, TASK the beginning of a task ID. Without them,
    tasks of services are left out. Without logs:GLOB in --from and without --cluster, local runs
    are shown. CPU and memory come from the newest checkpoint, the usual duration from https://HOST
    in --from (of 90 days), else from the log groups (of 14 days). --queue lists what runs, starts
    and waits in a queue, since when, and AWS's reason.
    """
    is_once = as_json or once or not os.isatty(STDOUT) or os.environ.get("TERM") == "dumb"
    if queue is not None:
        if name is not None or cluster is not None:
            raise UsageError("--queue lists all jobs of a queue: leave FAMILY and --cluster out.")
        _watch_queue(queue, options, as_json=as_json, is_once=is_once)
        return
    name = known(run_id_in, name)
    groups = source_names(options, "logs") if cluster is None else ()
    place = cluster or listed(groups)
    if cluster is None and not groups:
        place = "This machine"
    else:  # on a terminal, errors are shown, and AWS is asked again
        check_region(options.region, options.profile)
    clock = SystemClock()
    watched = open_watched_tasks(name, options, groups, cluster, clock)
    if is_once:
        _print_once(watched, place, name, as_json=as_json)
        return
    with _screen_until_signal() as ending:
        _draw_until_signal(watched, partial(_draw, watched, place, name=name), clock, ending)


def _watch_queue(queue: str, options: SourceOptions, *, as_json: bool, is_once: bool) -> None:
    """Print the jobs of the queue, or draw them until a signal."""
    # Not for other commands.
    from profiler.cli.watch_queue import print_queue, watch_queue

    open_client = open_clients(options.region, options.profile)
    clock = SystemClock()
    if is_once:
        print_queue(open_client, queue, clock, as_json=as_json)
        return
    with _screen_until_signal() as ending:
        while True:
            watch_queue(open_client, queue, clock, _redraw)
            for _ in range(_SECONDS_BETWEEN_READS):
                ending.exit_if_signalled()
                clock.sleep(1)


class _EndBySignal:
    """The end by a signal.

    The exception of a signal's handler is lost where Python calls the handler in a finalizer: the
    next row of the table ends the command then.
    """

    def __init__(self) -> None:
        self._code: int | None = None

    def on_signal(self, number: int, _frame: object) -> None:
        self._code = FIRST_SIGNAL_EXIT_CODE + number
        keep_finalizers_quiet()
        self.exit_if_signalled()

    def exit_if_signalled(self) -> None:
        if self._code is not None:
            sys.exit(self._code)


@contextmanager
def _screen_until_signal() -> Iterator[_EndBySignal]:
    """Show the alternate screen during the block, which a signal ends."""
    ending = _EndBySignal()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ending.on_signal)
    with alternate_screen():
        yield ending


def _print_once(watched: WatchedTasks, place: str, name: str | None, *, as_json: bool) -> None:
    problems = watched.read_new_data()
    if problems and not watched.runs_now():
        raise TaskProfilerError(problems[0])
    for sentence in (*problems, *watched.read_usual()):
        warn(sentence)
    runs = watched.runs_now()
    if watched.has_unread_similar:
        watched.read_similar()
    if not as_json:
        lines = watch_lines(
            runs, place, name=name, similar=watched.similar, width=table_width(), height=None
        )
        write_lines(lines)
        return
    if watched.similar:
        warn(watched.similar)
    write_json_lines(map(running_document, runs))


def _draw_until_signal(
    watched: WatchedTasks, show: Callable[[Sequence[str]], None], clock: Clock, ending: _EndBySignal
) -> None:
    """Read and draw until a signal.

    An unreadable part is shown as a sentence, and is read again.
    """
    show(("Reading what runs now …",))
    while True:
        problems = watched.read_new_data()
        if watched.has_unread_usual:
            show((*problems, "Reading the usual durations …"))
            problems += watched.read_usual()
        if watched.has_unread_similar and not problems:
            show(("Reading the names of the families …",))
            watched.read_similar()
        for _ in range(watched.seconds_between_reads):
            ending.exit_if_signalled()
            show(problems)
            clock.sleep(1)


def _draw(
    watched: WatchedTasks, place: str, sentences: Sequence[str], *, name: str | None = None
) -> None:
    """Draw the table over the last one, with the sentences below it."""
    columns, rows = screen_size()
    below: list[Line] = []
    for sentence in sentences:
        below += wrapped_lines(sentence, columns)
    below = below[: rows // 3]
    height = max(rows - len(below), 1)
    runs = watched.runs_now()
    # Without a run and with a sentence, the running tasks are unknown.
    lines = [build_line(Span(place, "bold"))]
    if runs or not sentences:
        lines = watch_lines(
            runs,
            place,
            name=name,
            similar=watched.similar,
            width=max(columns, MIN_COLUMNS),
            height=height,
        )
    shown = [cut_line(one, columns) for one in (*lines, *below)][:rows]
    _redraw(render_lines(shown, is_coloured=shows_colours(), encoding=stdout_encoding()))


def _redraw(text: bytes) -> None:
    drawn = text.removesuffix(b"\n").replace(b"\n", _CLEAR_REST_OF_LINE + b"\r\n")
    write_out(_HOME + drawn + _CLEAR_REST_OF_LINE + _CLEAR_BELOW)


@contextmanager
def alternate_screen() -> Iterator[None]:
    """Show the alternate screen of standard output during the block, however the block ends or
    is suspended.
    """
    try:
        signal.signal(signal.SIGTSTP, _suspend)
        write_out(_ENTER)
        yield
    finally:
        with suppress(OSError):  # the terminal was closed
            os.write(STDOUT, _LEAVE)


def _suspend(number: int, _frame: object) -> None:
    write_out(_LEAVE)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.signal(number, _suspend)
    write_out(_ENTER)


def open_watched_tasks(
    name: str | None,
    options: SourceOptions,
    groups: Sequence[str],
    cluster: str | None,
    clock: Clock,
) -> WatchedTasks:
    """Open the reader of the tasks of the cluster or the log groups, or of the local runs.

    Other sources: past runs.
    """
    is_local = cluster is None and not groups
    past = tuple(text for text in options.sources if parse_source(text).kind != "logs")
    since_ns = usual_since_ns(clock.wall_ns(), reads_logs=not (past or is_local))

    def running_here() -> Iterator[Report]:
        return (run.report for run in open_source(SourceOptions()).running(named))

    def past_runs() -> RunSource | None:
        if past or is_local:  # a row of progress would be in the table
            return open_source(replace(options, sources=past), shows_progress=False)
        if watched.groups:
            return LogGroupRuns(
                page_reader(open_client),
                watched.groups,
                clock.wall_ns(),
                trust=trust,
                since_ms=since_ns // NS_PER_MS,
            )
        return None

    def family_names() -> Collection[str]:
        if cluster is not None:  # also without a running task
            return TaskDefinitions(open_client("ecs")).families("*")
        source = past_runs()
        return () if source is None else source.family_names()

    open_client = open_clients(options.region, options.profile)
    trust = AccountTrust()
    named = RunFilter(run=name or "")
    collected: LocalRunsInProgress | RunningRuns = LocalRunsInProgress(
        named, read=running_here, read_ended=_ended_here
    )
    seconds = _SECONDS_BETWEEN_LOCAL_READS
    if not is_local:
        seconds = _SECONDS_BETWEEN_READS
        trust = log_trust(open_client)
        collected = RunningRuns(named)
    tasks = None
    if cluster is not None:
        tasks = RunningTaskLister(open_client, cluster, with_services=name is not None)
    watched = WatchedTasks(
        seconds_between_reads=seconds,
        collected=collected,
        logs=MonitorLogFollower(page_reader(open_client), clock, trust),
        families=FamilyCache(past_runs, since_ns),
        log_groups=matching_log_groups(open_client, groups),
        cluster=tasks,
        clock=clock,
        family_names=family_names,
    )
    return watched


def _ended_here(run_id: str) -> Report | None:
    """The report of a run of this machine."""
    ended = open_source(SourceOptions()).runs(RunFilter(run=run_id))
    return next((run.report for run in ended), None)


class UsualDocument(JsonLine, frozen=True, kw_only=True):
    """The usual duration of the family's runs: the median and the 95th percentile of so many."""

    median_ms: int
    p95_ms: int
    runs: int


class NoticeDocument(JsonLine, frozen=True, kw_only=True):
    """Why the run may need attention."""

    kind: str
    at: str | None
    message: str | None


class RunningDocument(JsonLine, frozen=True, kw_only=True):
    """A task that runs now, or has just ended.

    ``vcpuUsed`` is the mean and ``memoryUsedMB`` the most since the checkpoint before the newest.
    ``vcpuSize`` of a job that nothing limits is what it asked for.
    """

    task_id: str
    container: str | None
    cluster: str | None
    family: str | None
    status: str
    started_at: str | None
    elapsed_ms: int | None
    usual: UsualDocument | None
    vcpu_used: float | None
    vcpu_size: float | None
    memory_used_mb: float | None
    memory_size_mb: float | None
    notices: tuple[NoticeDocument, ...]


def running_document(watched: WatchedRun) -> RunningDocument:
    """The line of ``--json``."""
    run = watched.run
    record = run.report.record
    (vcpu_used, memory_used_mb) = _used_vcpu_and_memory(run)
    notices = []
    for notice in run.notices:
        notices.append(NoticeDocument(kind=notice.kind, at=notice.at, message=notice.message))
    return RunningDocument(
        task_id=record.task_id,
        container=record.container.name or None,
        cluster=record.cluster,
        family=record.family,
        status=outcome_of(record).status,
        started_at=record.started_at,
        elapsed_ms=known(round, watched.elapsed_ms),
        usual=known(_usual_document, watched.usual),
        vcpu_used=vcpu_used,
        vcpu_size=vcpu_size(record),
        memory_used_mb=memory_used_mb,
        memory_size_mb=record.metrics.memory_size_mb,
        notices=tuple(notices),
    )


def _usual_document(usual: UsualDuration) -> UsualDocument:
    return UsualDocument(
        median_ms=round(usual.median_ms), p95_ms=round(usual.p95_ms), runs=usual.runs
    )


def _used_vcpu_and_memory(run: RunningRun) -> tuple[float | None, float | None]:
    """The mean of the vCPUs and the highest memory in MB in the newest checkpoint's interval; a
    local run's reading.
    """
    vcpu = run.newest_interval.vcpu_used
    memory_mb = run.newest_interval.memory_used_mb
    return vcpu.avg, first_known(memory_mb.max, memory_mb.avg)


def watch_lines(
    runs: Sequence[WatchedRun],
    place: str,
    *,
    name: str | None = None,
    similar: str = "",
    width: int | None,
    height: int | None,
) -> list[Line]:
    """A title, the table, and the notices, in ``height`` rows; the other runs are only counted.

    None: no limit.

    ``name`` is the family or task that was searched; None: all runs. ``similar`` is a sentence
    about what may be meant, if nothing runs.
    """
    running = sum(watched.run.is_running for watched in runs)
    if running:
        what = f"{running} running"
    elif name is None:
        what = "nothing runs"
    else:
        what = f"nothing runs that matches {name!r}"
    title = build_line(Span(f"{place}: {what}", "bold"))
    if not runs:
        return [title, build_line(similar)] if similar else [title]
    count = len(runs)
    if height is not None:
        notices = sum(len(watched.run.notices) for watched in runs)
        count = max(height - 3 - min(notices, height // 3), 1)
        runs = _with_room_for_running(runs, count)
    rows = _table_lines(runs[:count], width)
    while height is not None and len(rows) > height - 2 and count > 1:  # rows that are folded
        count -= 1
        rows = _table_lines(runs[:count], width)
    shown = runs[:count]
    left = len(runs[count:])
    lines = [title, *rows]
    if left:
        lines.append(build_line(Span(f"… and {format_count(left, 'more task')}", "dim")))
    for watched in shown:
        record = watched.run.report.record
        name = f"{record.task_id[:SHORT_ID_LENGTH]} {family_key(record).name}"
        for notice in watched.run.notices:
            if notice.message is not None:
                lines += wrapped_lines(
                    f"{name}, {notice.kind}: {notice.message}", width or _WIDE, "! ", style="yellow"
                )
    return lines[:height]


def _with_room_for_running(runs: Sequence[WatchedRun], rows: int) -> list[WatchedRun]:
    """The runs with at most a third of the rows of those that have ended at the top, unless the
    others leave more; the rest of these is last.
    """
    ended = [watched for watched in runs if not watched.run.is_running]
    running = [watched for watched in runs if watched.run.is_running]
    most = max(rows // 3, rows - len(running))
    return [*ended[:most], *running, *ended[most:]]


def _table_lines(runs: Sequence[WatchedRun], width: int | None) -> list[Line]:
    keys = [family_key(watched.run.report.record) for watched in runs]
    places = place_columns(keys)
    is_wide = first_known(width, _WIDE) >= _WIDE
    columns = (
        Column("Run"),
        Column("Family", folds=True),
        *(Column(name) for name, _ in places),
        *_COLUMNS,
    )
    rows: list[tuple[str | Span, ...]] = []
    for watched, key in zip(runs, keys, strict=True):
        run = watched.run
        usual = watched.usual
        record = watched.run.report.record
        metrics = record.metrics
        (vcpu, memory_mb) = _used_vcpu_and_memory(run)
        median = UNKNOWN
        p95 = UNKNOWN
        if usual is not None:
            median = format_duration(usual.median_ms)
            p95 = format_duration(usual.p95_ms)
        cells = (
            value_text(watched.elapsed_ms, format_duration),
            _progress_bar(watched, 20 if is_wide else 8),
            median,
            p95,
            _use_of_size_text(vcpu, vcpu_size(record), format_bare_vcpu),
            _use_of_size_text(memory_mb, metrics.memory_size_mb, format_memory),
            _state_text(run),
        )
        names = (key.name or UNKNOWN, *(get(key) or UNKNOWN for _, get in places))
        rows.append((record.task_id[:SHORT_ID_LENGTH], *names, *cells))
    return aligned_table(columns, rows, gap=2 if is_wide else 1, width=width)


def _progress_bar(watched: WatchedRun, width: int) -> Span | str:
    usual = watched.usual
    elapsed_ms = watched.elapsed_ms
    if usual is None or elapsed_ms is None or not usual.p95_ms:
        return UNKNOWN
    filled = min(int(width * elapsed_ms / usual.p95_ms), width)
    if usual.is_exceeded_by(elapsed_ms):
        colour = "red"
    elif elapsed_ms > usual.median_ms:
        colour = "yellow"
    else:
        colour = "green"
    return Span("█" * filled + "·" * (width - filled), colour)


def _use_of_size_text(
    used: float | None, size: float | None, format_value: Callable[[float], str]
) -> str:
    """``0.4 / 2`` or ``2.5 / 4 GB``: a unit that both have is written once."""
    size_text = value_text(size, format_value)
    used_text = value_text(used, format_value)
    unit = size_text.partition(" ")[2]
    if unit:
        used_text = used_text.removesuffix(f" {unit}")
    return f"{used_text} / {size_text}"


def _state_text(run: RunningRun) -> Span | str:
    record = run.report.record
    if not run.is_running:
        outcome = outcome_of(record)
        text = outcome.title if outcome.cause == "oom" else PREDICATES[outcome.status]
        if outcome.exit_code:
            text += f" ({outcome.exit_code})"
        return Span(text, OUTCOME_STYLES.get(outcome.count_group, ""))
    texts = [notice.kind for notice in run.notices]
    if run.silent_ms is not None:
        texts.append(f"last seen {format_duration(run.silent_ms)} ago")
    return Span(", ".join(texts), "yellow")
