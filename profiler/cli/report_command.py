"""``task-profiler report``: the report page, one HTML file of past runs."""

import webbrowser
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from profiler.cli.options import (
    PastRunsCommand,
    SourceOptions,
    WholeNumber,
    completes,
    family_arguments,
    flag,
    gathered,
    on_fargate_option,
    option,
    source_options,
)
from profiler.cli.printing import say_sentence, warn, warn_of_notes, write_json_lines
from profiler.cli.progress import ShowProgress, progress_row
from profiler.cli.recommended_months import months_of_families
from profiler.cli.standard_streams import write_out
from profiler.cli.wiring.open_past_runs import (
    open_source,
    price_overrides,
    reads_local_only,
    run_filter,
)
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import STANDARD_OUTPUT, write_atomically
from profiler.core.optional_math import known_values
from profiler.core.text import printable
from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.core.version import __version__
from profiler.record.family_identity import FamilyKey
from profiler.record.family_statistics import MonthlyTasks
from profiler.record.model_base import JsonLine
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import Report
from profiler.record.stacks_line import StacksLine
from profiler.record.units import format_count, format_memory
from profiler.report_page.html_document import read_assets, render_page
from profiler.report_page.number_interning import SharedNumbers
from profiler.report_page.older_runs import MAX_WHOLE_RUNS, OlderRuns
from profiler.report_page.page_data import MAX_BYTES, PageData, PageRequest, build_page_data
from profiler.report_page.page_run import priced_run
from profiler.report_page.page_series import Run, steps_per_run
from profiler.runs.past_runs.family_evidence import (
    EvidenceCollector,
    earlier_successes,
    evidence_of_family,
    last_success,
)
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_lookup import find_run, no_run_sentence
from profiler.runs.past_runs.run_source import RunFilter, RunSource, unconfirmed_note
from profiler.runs.past_runs.schedule_notices import due_ns_of_notice
from profiler.runs.step_series import StepSeries, downsample, steps_of_checkpoints, steps_of_record
from profiler.sizing.advice import advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.evidence import Evidence
from profiler.sizing.prices import PriceOverrides

# Reading more runs from the history would take more than half a minute.
_MAX_POINTS = 1_500_000
_BEGINNING_BYTES = 64


class PageDocument(JsonLine, frozen=True, kw_only=True):
    """The page that was written, as ``--json`` prints it."""

    file: str
    bytes: int
    runs: int


@click.command(
    "report",
    cls=PastRunsCommand,
    epilog="Example: task-profiler report --from report-lines.jsonl -o batches.html --open",
)
@family_arguments
@option(
    "-o --output out",
    "FILE",
    "File to write or replace (- for standard output).",
    default="task-report.html",
)
@source_options
@option("--last", "N", "Show the N newest runs.", type=WholeNumber(1, 1_000_000))
@option(
    "--run run_id",
    "ID",
    "Show only this run: a task ID or its beginning.",
    shell_complete=completes(ids=True),
)
@on_fargate_option
@flag("--json as_json", "Print the file, its bytes and the number of runs as JSON.")
@flag("--open opens", "Open the page in a browser.")
@gathered(SourceOptions, "options")
def report(
    options: SourceOptions,
    out: str,
    last: int | None,
    run_id: str | None,
    on_fargate: str | None,
    as_json: bool,
    opens: bool,
) -> None:
    """Write an HTML page of past runs, with charts.

    FAMILY can be a shell pattern; the default is all families.
    """
    if out == STANDARD_OUTPUT and (opens or as_json):
        raise UsageError(f"{'--open' if opens else '--json'} needs a file: name one with --output.")
    path = Path(out)
    if out != STANDARD_OUTPUT:
        _check_replaces_a_page(path)
    assets = read_assets()
    overrides = price_overrides(on_fargate)
    source = open_source(options, keeps_stacks=True)
    selection = run_filter(options, run=run_id, reads_checkpoints=not reads_local_only(options))
    older = OlderRuns(MAX_BYTES)
    families = EvidenceCollector(on_fargate)
    reader = _RunReader(source, overrides, on_fargate, older, families, SharedNumbers())
    runs = reader.read_whole_runs(selection, last)
    now_ns = SystemClock().wall_ns()
    evidence = [*reader.read_evidence(selection, runs)]
    is_one = run_id is not None
    request = PageRequest(
        generated_at=format_ms(now_ns),
        version=__version__,
        only_one=is_one,
        price_overrides=overrides,
        on_fargate=on_fargate,
        evidence=evidence,
        months={} if is_one else _months_of_page(reader, evidence, options, now_ns),
        stacks_of=CallStacksReader(source).read,
        notices=() if is_one else _read_notices(source, selection, runs),
    )
    data = build_page_data(runs, request, older)
    title = "Task report"
    if is_one:
        title = f"{runs[0].record.family or 'Task'} {runs[0].past.started_at}"
    missing = [printable(sentence) for sentence in source.completeness.sentences]
    text = render_page(data, assets, title=printable(title), missing=missing)
    page = text.encode("utf-8", errors="replace")
    if out == STANDARD_OUTPUT:
        write_out(page)
    else:
        _write_page(path, page)
        shown = 1 if is_one else data.runs
        if as_json:
            write_json_lines([PageDocument(file=out, bytes=len(page), runs=shown)])
        else:
            size = format_memory(len(page) / 1_000_000)
            say_sentence(printable(f"{path}: {format_count(shown, 'run')}, {size}"))
    note = unconfirmed_note(sum(not run.past.counts for run in runs))
    if note:
        warn(note)
    if not is_one:
        _warn_about_omissions(data, len(runs) + older.count)
    if opens and not webbrowser.open(path.resolve().as_uri()):
        warn(f"No browser could be started: open {path} yourself.")


def _check_replaces_a_page(path: Path) -> None:
    """Raises UsageError for a file with something else, such as the records that are read."""
    try:
        if not path.is_file():
            return
        with path.open("rb") as file:
            beginning = file.read(_BEGINNING_BYTES)
    except (OSError, ValueError):  # the page cannot be written either, and the reason is said then
        return
    if beginning and not beginning.lstrip().startswith(b"<"):
        raise UsageError(f"{path} exists and is no HTML page: name another file with --output.")


def _write_page(path: Path, page: bytes) -> None:
    try:
        write_atomically(path, page)
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror}): name another file with --output."
        raise TaskProfilerError(message) from error


def _months_of_page(
    reader: "_RunReader", evidence: Sequence[Evidence | None], options: SourceOptions, now_ns: int
) -> Mapping[FamilyKey, MonthlyTasks]:
    """The months of the families whose runs do not show one, as ``recommend`` estimates them."""
    overrides = reader.price_overrides
    advices = [advise_on_size(found, SizePolicy(), overrides) for found in known_values(evidence)]
    tasks_read = reader.families.tasks_read(reader.source)
    return months_of_families(advices, tasks_read, reader.source, options, now_ns)


def _warn_about_omissions(data: PageData, runs: int) -> None:
    if data.runs < runs:
        older = format_count(runs - data.runs, "older run")
        warn(
            f"A page of 8 MB has no room for {older} of {runs:,}: select runs by FAMILY, --last or "
            "--since."
        )
    if data.without_details:
        warn(
            "A page of 8 MB has no room for labels, processes, GPUs and the like of "
            f"{format_count(data.without_details, 'run')}: task-profiler report --run ID shows "
            "them for one run."
        )


class CallStacksReader:
    """Reads call stacks until a read fails, because the page is more important than the stacks."""

    def __init__(self, source: RunSource) -> None:
        self._source: RunSource | None = source

    def read(self, of_run: Report) -> StacksLine | None:
        """Return the stacks of a run; None if it has none, or after a failure."""
        try:
            return None if self._source is None else self._source.stacks(of_run)
        except TaskProfilerError as error:
            self._source = None
            warn(f"The page lacks call stacks. {error}")
            return None


class _RunReader(Struct, frozen=True):
    """Reads the runs of the page: the newest ones whole, and a row of each ``older`` one.
    ``families`` get them all.
    """

    source: RunSource
    price_overrides: PriceOverrides
    on_fargate: str | None
    older: OlderRuns
    families: EvidenceCollector
    numbers: SharedNumbers

    def read_whole_runs(self, selected: RunFilter, last: int | None) -> tuple[Run, ...]:
        """The runs that are read whole. Raises TaskProfilerError without a run."""
        source = self.source
        with warn_of_notes(source):
            if not selected.run:
                past = self._newest_without_lines(islice(source.runs(selected), last))
            else:
                run = find_run(source, selected)
                success = last_success(run, earlier_successes(run, source), source)
                past = (run,) if success is None else (run, success)
        if not past:
            raise TaskProfilerError(no_run_sentence(source, selected))
        with progress_row() as show_progress:
            return tuple(_runs_with_series(past, source, self.numbers, show_progress))

    def read_evidence(
        self, selected: RunFilter, runs: Sequence[Run]
    ) -> Collection[Evidence | None]:
        """The evidence of the families that were read; of one run, that of its family."""
        if not selected.run:
            return self.families.evidence_of_families()
        source = self.source.family_source(runs[0].past)
        return [evidence_of_family(runs[0].past, source, self.on_fargate)]

    def _newest_without_lines(self, runs: Iterator[PastRun]) -> tuple[PastRun, ...]:
        """The newest runs, without their lines, which the page does not show."""
        newest = []
        for run in islice(runs, MAX_WHOLE_RUNS):
            self.families.add_run(run)
            newest.append(self._without_line(run) if run.has_record else run)
        newest_ms = max((run.started_ns for run in newest), default=0) // NS_PER_MS
        for run in runs:
            self.families.add_run(run)
            steps = downsample(_steps_of_run(run), steps_per_run(MAX_WHOLE_RUNS))
            priced = priced_run(Run(past=run, steps=steps), self.price_overrides, self.on_fargate)
            self.older.add_run(priced, newest_ms)
        return tuple(newest)

    def _without_line(self, run: PastRun) -> PastRun:
        """A run that takes less memory."""
        record = run.record
        if record.series is not None:
            record = replace(record, series=self.numbers.share_in_record(record.series))
        return replace(run.with_record(record), line=b"")


def _steps_of_run(run: PastRun) -> StepSeries:
    """The series of the record, or of the checkpoints if they have more steps."""
    both = steps_of_record(run.record), steps_of_checkpoints(run.checkpoints)
    return max(both, key=lambda steps: len(steps.ends_ms))


def _read_notices(
    source: RunSource, selection: RunFilter, runs: Sequence[Run]
) -> tuple[ScheduleNoticeLine, ...]:
    """The notices about due times since the oldest run; none if they cannot be read: the runs
    are more important.
    """
    oldest_ns = min((run.past.started_ns for run in runs if run.past.started_ns), default=0)
    try:
        notices = source.schedule_notices(selection)
    except TaskProfilerError as error:
        warn(f"The page lacks missed runs. {error}")
        return ()
    return tuple(line for line in notices if (due_ns_of_notice(line) or 0) >= oldest_ns)


def _runs_with_series(
    past: Sequence[PastRun],
    source: RunSource,
    numbers: SharedNumbers,
    show_progress: ShowProgress,
) -> Iterator[Run]:
    """Add the time series that the page has room for: reading the series of 10,000 runs would
    take minutes.
    """
    max_steps = steps_per_run(len(past))
    left_points = _MAX_POINTS
    stored = source.steps(past)
    for number, run in enumerate(past):
        show_progress(format_count(len(past), "run"), number / len(past))
        steps = next(stored) if left_points > 0 else StepSeries()
        left_points -= len(steps.ends_ms)
        if not steps.ends_ms:
            steps = _steps_of_run(run)
        yield Run(past=run, steps=numbers.share_in_steps(downsample(steps, max_steps)))
