"""``task-profiler history``: past runs as a table."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice

import click
import msgspec
from msgspec import Struct

from profiler.cli.options import (
    PastRunsCommand,
    SourceOptions,
    Text,
    completes,
    flag,
    gathered,
    last_option,
    source_options,
)
from profiler.cli.printing import (
    UNKNOWN,
    say_sentence,
    value_text,
    warn,
    warn_of_notes,
    write_record_lines,
)
from profiler.cli.standard_streams import terminal_columns
from profiler.cli.styled_text import OUTCOME_STYLES, Line, Span, cut_end, write_lines
from profiler.cli.tables import Column, aligned_table
from profiler.cli.wiring.open_past_runs import open_source, run_filter
from profiler.core.ecs_terms import SHORT_ID_LENGTH
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.timestamps import format_local, local_zone
from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.family_identity import FamilyKey, PlaceColumn, place_columns
from profiler.record.gpu_facts import GPU_COLUMNS, gpu_cells
from profiler.record.mapped_files import mixed_memory_note
from profiler.record.run_usage import cpu_use_of
from profiler.record.units import (
    format_count,
    format_duration,
    format_memory,
    format_share,
)
from profiler.runs.past_runs.lost_runs import LOST
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_lookup import no_run_sentence
from profiler.runs.past_runs.run_source import unconfirmed_note

_COLUMNS = (
    Column("Result"),
    Column("Time", is_right=True, rank=1),
    Column("CPU", is_right=True, rank=4),
    Column("Memory", is_right=True, rank=2),
    Column("", is_right=True, rank=5),
)
_GPU_COLUMNS = tuple(
    Column(title, is_right=True, rank=rank) for rank, (title, _) in enumerate(GPU_COLUMNS, start=2)
)
_COMMAND = Column("Command", is_cut=True, rank=6)
_JOB_COLUMNS = (
    Column("Job", is_cut=True, is_name=True),
    Column("Attempt", is_right=True, rank=3),
    Column("Queue", rank=4),
)
_MAX_NAME_CHARS = 128  # of AWS Batch


@click.command(
    "history",
    cls=PastRunsCommand,
    epilog="Example: task-profiler history 'nightly-*' --status failure --last 5",
)
@click.argument(
    "families",
    metavar="[FAMILY]...",
    nargs=-1,
    type=Text(),
    shell_complete=completes(families=True, ids=True),
)
@source_options
@last_option(1_000_000, 20, "Show the N newest runs.")
@flag("--json as_json", "Print the stored report lines instead of a table.")
@flag(
    "--delete",
    "Delete runs from the local history: the arguments are their ids, or the beginnings of them.",
)
@gathered(SourceOptions, "options")
def history(*, options: SourceOptions, last: int, as_json: bool, delete: bool) -> None:
    """List past runs, newest first.

    FAMILY can be a shell pattern; the default is all families.
    """
    if delete and not options.families:
        raise UsageError("--delete needs ids of runs: task-profiler history --delete RUN.")
    selection = run_filter(
        replace(options, families=()) if delete else options, reads_checkpoints=True
    )
    source = open_source(options)
    if delete:
        # SQLite, which other sources do not need.
        from profiler.runs.past_runs.local_history import LocalRuns

        if not isinstance(source, LocalRuns) or not selection.is_empty:
            raise UsageError(
                "--delete is for ids in the local history: add --from history, and no other option."
            )
        say_sentence(
            f"Deleted {format_count(source.history.delete_runs(options.families), 'run')}."
        )
        return
    unconfirmed = 0
    chosen: list[PastRun] = []
    lines: list[bytes] = []  # a run in memory is seven times as large
    with warn_of_notes(source):
        runs = source.runs(selection)
        for run in islice(runs, last):
            unconfirmed += not run.counts
            if as_json:
                lines.append(_json_line(run))
            else:
                chosen.append(run)
        has_more = next(runs, None) is not None
    if not (chosen or lines):
        raise TaskProfilerError(no_run_sentence(source, selection))
    if as_json:
        write_record_lines(lines)
    else:
        _write_run_table(chosen)
    note = unconfirmed_note(unconfirmed)
    if note:
        warn(note)
    if has_more:
        shown = "run is" if last == 1 else f"{last} runs are"
        warn(f"Only the newest {shown} shown: --last N shows more.")


def _write_run_table(runs: Sequence[PastRun]) -> None:
    retries = set()
    for run in runs:
        if run.event.retry_of:
            retries.add(run.record.task_id)
    write_lines(run_table_lines(runs, terminal_columns(), retries))
    note = mixed_memory_note([run.record for run in runs])
    if note:
        warn(note)


def _json_line(run: PastRun) -> bytes:
    """The stored line; the line of a run in progress begins with its family and the time since
    its start.
    """
    record = run.record
    if run.has_record or record.status != "running":
        return run.json_line()
    shown = {"family": record.family, "elapsedMs": record.metrics.duration_ms}
    return msgspec.json.encode({**shown, **msgspec.json.decode(run.json_line())})


def run_table_lines(
    runs: Sequence[PastRun], width: int | None, retries: Collection[str] = ()
) -> list[Line]:
    """Build a table with one line per run, in ``width`` columns.

    ``retries`` are the task ids of retries.
    """
    families = [run.family for run in runs]
    shown = _ShownColumns(
        places=place_columns(families),
        has_jobs=any(run.record.batch is not NO_JOB for run in runs),
        has_gpus=any(run.record.gpus for run in runs),
        has_commands=any(run.command for run in runs),
    )
    rows = [
        shown.cells(run, family, is_retry=run.record.task_id in retries)
        for run, family in zip(runs, families, strict=True)
    ]
    return aligned_table(shown.columns(), rows, gap=1, width=width)


class _ShownColumns(Struct, frozen=True, kw_only=True):
    """Which columns the table has beside those of every run."""

    places: Sequence[PlaceColumn]
    has_jobs: bool
    has_gpus: bool
    has_commands: bool

    def columns(self) -> list[Column]:
        columns = [
            Column("Run"),
            Column(f"Started ({local_zone()})"),
            Column("Family", is_cut=True, is_name=True),
            *(Column(title, rank=3) for title, _ in self.places),
        ]
        if self.has_jobs:
            columns += _JOB_COLUMNS
        columns += _COLUMNS
        if self.has_gpus:
            columns += _GPU_COLUMNS
        if self.has_commands:
            columns.append(_COMMAND)
        return columns

    def cells(self, run: PastRun, family: FamilyKey, *, is_retry: bool) -> tuple[str | Span, ...]:
        """A cell for each of the columns."""
        record = run.record
        metrics = record.metrics
        result = _run_end_text(run)
        if is_retry:
            result += " retry"
        if not run.counts:
            result += " unconfirmed"
        cells: list[str | Span] = [
            record.task_id[:SHORT_ID_LENGTH],
            format_local(record.started_ns) or UNKNOWN,
            record.family or UNKNOWN,
            *(get(family) or UNKNOWN for _, get in self.places),
        ]
        if self.has_jobs:
            cells += _job_cells(record.batch)
        cells += (
            Span(result, OUTCOME_STYLES.get(run.outcome.count_group, "")),
            value_text(metrics.duration_ms, format_duration),
            cpu_use_of(record).text or UNKNOWN,
            metrics.memory_peak.text(format_memory) or UNKNOWN,
            format_share(metrics.max_memory_used_mb, metrics.memory_size_mb),
        )
        if self.has_gpus:
            cells += gpu_cells(record)
        if self.has_commands:
            cells.append(run.command or "")
        return tuple(cells)


def _job_cells(job: BatchJob) -> list[str]:
    """The job's name or the beginning of its id, its attempt, and its queue."""
    name = job.job_name or (job.job_id or UNKNOWN)[:SHORT_ID_LENGTH]
    if job.array_index is not None:
        name = f"{name}:{job.array_index}"
    texts = (name, value_text(job.attempt, str), job.queue or UNKNOWN)
    return [cut_end(text, _MAX_NAME_CHARS) for text in texts]


def _run_end_text(run: PastRun) -> str:
    """How the run ended: its status, its exit code, and another cause than these."""
    outcome = run.outcome
    record = run.record
    words = [record.status if record.status == LOST else outcome.status]
    if outcome.exit_code:
        words.append(str(outcome.exit_code))
    if outcome.cause == "oom":
        words.append("OOM")
    elif outcome.cause not in (outcome.status, "unknown"):
        words.append(outcome.cause)
    return " ".join(words)
