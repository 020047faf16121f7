"""``task-profiler schedules``: what should have run, what came of it, and what is due next."""

import os
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from profiler.cli.options import SourceOptions, past_run_options
from profiler.cli.printing import warn, write_out
from profiler.cli.schedules.judged_account import family_key_of, judge_account, read_schedules
from profiler.cli.schedules.schedule_rows import order_of, schedule_row, table_lines
from profiler.cli.styled_text import table_width, write_lines
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import open_source
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND
from profiler.past_runs.run_source import RunSource
from profiler.past_runs.usual_times import UsualDurations
from profiler.schedules.schedule_model import Schedule

_USUAL_NS = 14 * 86_400 * NS_PER_SECOND


@click.command("schedules", epilog="Example: task-profiler schedules --cluster jobs --log-group /ecs/jobs")
@click.option("--cluster", "cluster", metavar="NAME", help="Only schedules that start tasks in this ECS cluster.")
@click.option("--json", "as_lines", is_flag=True, help="Print one JSON object per schedule instead of a table.")
@past_run_options
def command(*, cluster: str | None, as_lines: bool, **past_runs: Any) -> None:  # noqa: ANN401  the values of options
    """List the schedules that start ECS tasks, and what became of them.

    These are the schedules of EventBridge Scheduler and the rules of EventBridge in one Region. The
    usual duration is that of the last successes in --elasticsearch, --log-group or --from. Only
    --elasticsearch also shows what became of due times of more than an hour ago.
    """
    options, clock = SourceOptions(**past_runs), SystemClock()
    has_past = options.source is not None or options.url is not None or bool(options.groups)
    past = open_source(options, os.environ, clock) if has_past else None
    open_client = open_clients(options.region, options.profile)
    schedules = read_schedules(open_client, cluster)
    now_ns = clock.wall_ns()
    judged = judge_account(schedules, open_client, past if options.url is not None else None, clock, now_ns)
    usual = _usual_durations(past, schedules, now_ns)
    rows = [schedule_row(one, usual.of(family_key_of(one.schedule)), now_ns) for one in judged]
    rows.sort(key=order_of)
    if as_lines:
        write_out(b"".join(msgspec.json.encode(row.as_json()) + b"\n" for row in rows))
    else:
        write_lines(table_lines(rows, table_width()), os.environ)


def _usual_durations(past: RunSource | None, schedules: Iterable[Schedule], now_ns: int) -> UsualDurations:
    usual = UsualDurations(lambda: past, now_ns - _USUAL_NS)
    try:
        usual.read(map(family_key_of, schedules))
    except TaskProfilerError as error:
        warn(f"The usual durations are unknown. {error}")
    return usual
