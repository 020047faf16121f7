"""``task-profiler watch --queue``: the jobs of a queue that wait, start and run."""

from collections.abc import Callable, Sequence

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.running_tasks.queued_jobs import MAX_JOBS, QueuedJob, read_queue
from profiler.cli.printing import UNKNOWN, value_text, write_json_lines
from profiler.cli.standard_streams import screen_size, stdout_encoding
from profiler.cli.styled_text import (
    Line,
    Span,
    build_line,
    cut_line,
    render_lines,
    shows_colours,
    wrapped_lines,
    write_lines,
)
from profiler.cli.tables import Column, aligned_table, table_width
from profiler.core.clock import Clock
from profiler.core.commands_to_copy import command_line
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import excess
from profiler.core.text import words_if_known
from profiler.core.timestamps import NS_PER_MS
from profiler.record.batch_job_detail import PENDING, RUNNABLE, RUNNING, STARTING
from profiler.record.units import format_count, format_duration

_COLUMNS = (
    Column("Status"),
    Column("Job", is_cut=True, is_name=True),
    Column("For", is_right=True),
    Column("Id", rank=1),
    Column("Why", is_cut=True, rank=2),
)
_STYLES = {RUNNING: "green", STARTING: "", RUNNABLE: "yellow", PENDING: ""}
# An array waits while children of it do.
_WAITING = (RUNNABLE, PENDING)


def print_queue(open_client: OpenClient, queue: str, clock: Clock, *, as_json: bool) -> None:
    """Print the jobs once. Raises TaskProfilerError."""
    jobs = read_queue(open_client, queue)
    if as_json:
        write_json_lines(jobs)
        return
    write_lines(queue_lines(queue, jobs, clock.wall_ns(), table_width()))


def watch_queue(
    open_client: OpenClient, queue: str, clock: Clock, draw: Callable[[bytes], None]
) -> None:
    """Read and draw once. What cannot be read is a sentence, and is read again."""
    columns, rows = screen_size()
    try:
        jobs = read_queue(open_client, queue)
        lines = queue_lines(queue, jobs, clock.wall_ns(), columns)
    except TaskProfilerError as error:
        lines = [build_line(Span(queue, "bold")), *wrapped_lines(str(error), columns)]
    shown = [cut_line(one, columns) for one in lines[:rows]]
    text = render_lines(shown, is_coloured=shows_colours(), encoding=stdout_encoding())
    draw(text)


def queue_lines(
    queue: str, jobs: Sequence[QueuedJob], now_ns: int, width: int | None
) -> list[Line]:
    """The table, and what to ask about the first job that waits."""
    head = build_line(Span(queue, "bold"), f"  {_counts_text(jobs)}")
    if not jobs:
        return [head]
    rows = []
    for job in jobs:
        name = job.job_name + words_if_known(" [{}]", job.children)
        duration = value_text(excess(now_ns / NS_PER_MS, job.since_ms), format_duration)
        status = Span(job.status, _STYLES[job.status])
        rows.append((status, name or UNKNOWN, duration, job.job_id, job.reason or ""))
    lines = [head, *aligned_table(_COLUMNS, rows, gap=1, width=width)]
    waiting = next((job for job in jobs if job.status in _WAITING), None)
    if waiting is not None:
        lines.append(build_line(Span(f"Why: {command_line('doctor', waiting.job_id)}", "dim")))
    return lines


def _counts_text(jobs: Sequence[QueuedJob]) -> str:
    """The jobs by status: ``2 jobs RUNNING, 100+ jobs RUNNABLE, 1 array PENDING``."""
    texts = []
    for status in _STYLES:
        number = sum(job.status == status for job in jobs)
        more = "+" if number == MAX_JOBS else ""
        kind = "array" if status == PENDING else "job"
        if number:
            texts.append(f"{format_count(number, kind).replace(' ', f'{more} ', 1)} {status}")
    return ", ".join(texts) or "no job waits, starts or runs"
