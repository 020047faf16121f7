"""``task-profiler watch``: the tasks that run now."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from profiler.cli.options import (
    SourceOptions,
    WholeNumber,
    add_options,
    aws_options,
    ca_file_option,
    search_options,
)
from profiler.cli.printing import encodable, is_terminal, warn, write_out
from profiler.cli.styled_text import (
    ASCII,
    BLOCKS,
    MIN_COLUMNS,
    Glyphs,
    Span,
    is_coloured,
    line,
    table_width,
    wrapped,
    write_lines,
)
from profiler.cli.watch.alternate_screen import alternate_screen, draw, screen_size
from profiler.cli.watch.watch_lines import json_lines, watch_lines
from profiler.cli.wiring.open_watch import open_watched_tasks
from profiler.core.clock import Clock, SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.running_tasks.watched_tasks import WatchedTasks

# FilterLogEvents is called at most once in so many seconds for each log group.
_SECONDS_BETWEEN_READS = 15
_SIGNAL_BASE = 128

_watch_options = add_options(
    click.option(
        "--log-group",
        "groups",
        metavar="GROUP",
        multiple=True,
        help="Read this log group of monitors or batches in CloudWatch, or those that match * ? []. Repeatable.",
    ),
    click.option("--cluster", metavar="NAME", help="Ask ECS for the running tasks of this cluster."),
    click.option(
        "--elasticsearch",
        "url",
        metavar="URL",
        help="Read past runs from this Elasticsearch or OpenSearch instead of the log groups.",
    ),
    search_options,
    ca_file_option,
    aws_options,
    click.option(
        "--days",
        metavar="N",
        type=WholeNumber(0, 365),
        default=14,
        show_default=True,
        help="Take the usual duration from the last 20 successes of each family in N days; 0: from none.",
    ),
    click.option("--once", is_flag=True, help="Print one table and end, as without a terminal."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON line for each running task and end."),
)


@click.command("watch", epilog="Example: task-profiler watch nightly-etl --log-group /ecs/jobs")
@click.argument("name", metavar="[FAMILY|TASK]", required=False)
@_watch_options
def command(
    name: str | None,
    groups: tuple[str, ...],
    cluster: str | None,
    days: int,
    once: bool,
    as_json: bool,
    **search_and_aws: Any,  # noqa: ANN401  the values of options
) -> None:
    """Show what runs now: time, CPU, memory, notices.

    FAMILY is a family or a pattern of families, TASK the beginning of a task ID. Without them, tasks of services are
    left out. CPU and memory are those of the newest checkpoint of the monitor. Ctrl-C ends it.
    """
    if name == "":
        raise UsageError("The name is empty: give a family or a task ID, or omit it.")
    if bool(groups) == (cluster is not None):
        raise UsageError("Name either log groups (--log-group GROUP) or a cluster (--cluster NAME).")
    options = SourceOptions(groups=groups, **search_and_aws)
    clock = SystemClock()
    watched = open_watched_tasks(name, options, cluster, days, os.environ, clock)
    place = cluster or " and ".join(groups)
    if as_json or once or not is_terminal() or os.environ.get("TERM") == "dumb":
        _print_once(watched, place, as_json=as_json)
        return
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, frame: sys.exit(_SIGNAL_BASE + number))  # noqa: ARG005  signal's signature
    with alternate_screen():
        _watch(watched, partial(_draw, watched, place), clock)


def _print_once(watched: WatchedTasks, place: str, *, as_json: bool) -> None:
    problems = watched.refresh()
    runs = watched.runs()
    if problems and not runs:
        raise TaskProfilerError(problems[0])
    for sentence in (*problems, *watched.read_usual()):
        warn(sentence)
    runs = watched.runs()
    if as_json:
        write_out(json_lines(runs))
    else:
        write_lines(watch_lines(runs, place, width=table_width(), height=None, glyphs=_glyphs()), os.environ)


def _watch(watched: WatchedTasks, show: Callable[[Sequence[str]], None], clock: Clock) -> None:
    """Read and draw until a signal ends it. What cannot be read is a sentence, and is read again."""
    show(("Reading what runs now …",))
    while True:
        problems = watched.refresh()
        if watched.lacks_usual:
            show((*problems, "Reading the usual durations …"))
            problems += watched.read_usual()
        for _ in range(_SECONDS_BETWEEN_READS):
            show(problems)
            clock.sleep(1)


def _draw(watched: WatchedTasks, place: str, sentences: Sequence[str]) -> None:
    columns, rows = screen_size()
    below = [row for sentence in sentences for row in wrapped(sentence, columns, first="")][: rows // 3]
    height = max(rows - len(below), 1)
    runs = watched.runs()
    lines = [line(Span(place, "bold"))]  # without a run and with a sentence, nothing is known of what runs
    if runs or not sentences:
        lines = watch_lines(runs, place, width=max(columns, MIN_COLUMNS), height=height, glyphs=_glyphs())
    draw([*lines, *below], is_coloured=is_coloured(os.environ))


def _glyphs() -> Glyphs:
    return BLOCKS if encodable(BLOCKS.average + BLOCKS.rest + BLOCKS.ellipsis) else ASCII
