"""Builds what ``task-profiler run`` needs in addition to the command: collectors, history,
labels and the live view.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.cli.chosen_run_options import RunOptions
from profiler.cli.wiring.build_collectors import accelerator_collectors, read_placement
from profiler.collectors.collector import Collectors
from profiler.core.background_call import BackgroundCall, NoCall, RepeatedCall
from profiler.core.clock import Clock
from profiler.core.deadline_writer import Output
from profiler.core.log import Log
from profiler.core.text import printable
from profiler.core.timestamps import NS_PER_SECOND
from profiler.local_run.local_labels import MAX_LABEL_CHARS, airflow_labels, checked_out_commit
from profiler.local_run.local_record import TaskPlacement, read_limits
from profiler.local_run.prepared_run import PreparedRun
from profiler.local_run.run_plan import BuildSoFar, RunPlan, RunResult, RunSurroundings
from profiler.local_run.session import run_to_end
from profiler.readers.cgroup.hierarchy import read_own_cgroups
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.host import read_host
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.batch_job import BatchJob, job_of_variables
from profiler.record.bounded_json_line import encode_line
from profiler.record.record_model import Metrics, Record, Report
from profiler.record.run_labels import COMMIT
from profiler.settings import SettingsReader, endpoint_address, problems_message

if TYPE_CHECKING:
    from profiler.local_run.live_view import LiveView
    from profiler.record.family_statistics import HighestPeak
    from profiler.record.notice_model import NoticeLine
    from profiler.runs.history.recorder import HistoryRecorder
    from profiler.runs.history.run_database import HistoryStore

_T = TypeVar("_T")

_STDERR = 2
# The end of a shorter run waits so long for the task metadata endpoint, which may answer later.
_MAX_PLACEMENT_SECONDS = 1.0
# The notices do not wait for the history.
_MAX_HISTORY_SECONDS = 10.0
_VIEW_AFTER_NS = NS_PER_SECOND // 4


class RunSession:
    """The run of one command, with the real sources and sinks.

    ``problems`` are sentences about invalid settings.
    """

    def __init__(
        self, options: RunOptions, labels: Mapping[str, str], clock: Clock, stderr: Output
    ) -> None:
        self._options = options
        self._clock = clock
        self._format = _report_format(options)
        self._recorder = _history_recorder(options, clock)
        prints_json = options.output is None and self._format == "json"
        self._view = _NoView(stderr, prints_json=prints_json)
        if options.live and os.isatty(_STDERR) and os.environ.get("TERM") != "dumb":
            self._view = _LateView(options, clock, stderr)
        settings = SettingsReader(os.environ)
        prices = settings.prices()
        accelerators = accelerator_collectors(
            settings.accelerators(),
            clock,
            Log(),
            options.interval_seconds,
            is_local=True,
            hour_usd=None if prices is None else prices.hour_usd,
        )
        self._plan = RunPlan(
            name=options.name,
            interval_seconds=options.interval_seconds,
            labels=labels,
            surroundings=_Surroundings(options, clock, self._view, self._recorder),
            collectors=Collectors(*accelerators),
            prices=prices,
            series_points=settings.value("series_points"),
            max_history_steps=self._recorder.max_steps,
            stuck_minutes=settings.value("stuck_minutes"),
            expected_seconds=settings.value("expected_seconds"),
        )
        self.problems = (problems_message(settings.problems),) if settings.problems else ()

    def run(self, prepared: PreparedRun) -> RunResult:
        if self._options.stacks != "off":
            from profiler.cli.wiring.build_stacks import with_local_stacks  # most runs have none

            collectors = with_local_stacks(self._plan.collectors, self._options.stacks, prepared)
            self._plan = replace(self._plan, collectors=collectors)
        result = run_to_end(prepared, self._plan)
        self._view.close()
        return result

    def record_and_printed_lines(self, result: RunResult) -> tuple[bytes, bytes]:
        """The report as a record line, and as the lines to print."""
        line = encode_line(result.report)
        if self._options.quiet and self._options.output is None:
            return line, b""
        if self._format == "human":
            with suppress(Exception):  # a defect of the picture must not lose the run
                return line, self._printed_end(result)
        if self._format in ("human", "json"):
            return line, line + b"\n"
        # JSON does without the catalogue of metrics.
        from profiler.record.report_text_and_emf import report_text

        return line, report_text(result.report).encode(errors="replace") + b"\n"

    def _printed_end(self, result: RunResult) -> bytes:
        """The end for a person; empty if a sentence on standard error contains everything."""
        is_file = self._options.output is not None
        has_history = self._recorder.has_place
        if result.startup_error is not None and not is_file:
            return b""
        report = result.report
        wait: Callable[[], tuple[Report, tuple[Record, ...]] | None] = _found_nothing
        history = None
        is_one_line = self._options.runs > 1 and not (self._options.live or is_file)
        from profiler.cli.terminal.end_page import printed_end  # not before the command has ended

        if has_history and not is_one_line:
            # Not for the report as JSON. Its thread needs modules of the end: it would wait for
            # this one's imports again and again.
            from profiler.cli.local_family_history import report_and_comparable_records

            find = partial(report_and_comparable_records, report, self._plan.prices, self._options)
            wait = self._recorder.search_history(find)
        if has_history:
            history = ("--from", "history") if os.environ.get("TASK_PROFILER_FROM") else ()
        report, earlier = wait() or (report, ())
        return printed_end(
            report,
            earlier,
            self._clock.wall_ns(),
            is_file=is_file,
            is_one_line=is_one_line,
            history=history,
            printed=result.warnings,
        )

    def printed_summary(self, successes: Sequence[Metrics]) -> bytes:
        if self._format != "human":
            return b""
        from profiler.cli.terminal.end_page import printed_summary  # most commands run once

        return printed_summary(successes, is_file=self._options.output is not None)

    def add_to_history(self, line: bytes, result: RunResult) -> tuple[str, ...]:
        """Add a run that started to the history, unless ``--no-history`` is given; returns
        sentences about failures.
        """
        if result.startup_error is not None:
            return ()
        return self._recorder.add_run(line, result.report, result.series, result.stacks_line)

    def export(self, record: Record) -> str | None:
        """Export the run by OpenTelemetry's protocol; returns sentences about failures."""
        try:
            from profiler.cli.wiring.build_export import export_run  # most runs are not exported

            return export_run(record, os.environ, self._clock)
        # A defect of the export must not change the exit code.
        except Exception as error:  # noqa: BLE001
            return (
                f"The run was not exported ({type(error).__name__}): report this as a defect of "
                "task-profiler."
            )

    def stop_collectors(self) -> None:
        self._plan.collectors.stop()


class _NoRecorder:
    """Nothing is recorded."""

    max_steps = 0
    has_place = False

    def keep_so_far(self, build_so_far: BuildSoFar) -> None: ...

    def search_history(self, _find: Callable[[HistoryStore], _T]) -> Callable[[], _T | None]:
        return _found_nothing

    def add_run(self, *_run: object) -> tuple[str, ...]:
        return ()


def _found_nothing() -> None:
    """Nothing was looked for."""


def _history_recorder(options: RunOptions, clock: Clock) -> HistoryRecorder | _NoRecorder:
    if options.no_history:
        return _NoRecorder()
    from profiler.runs.history.recorder import HistoryRecorder  # only where it is needed

    return HistoryRecorder(os.environ, clock, options.words)


def _report_format(options: RunOptions) -> str:
    """``auto`` is for a person, also off a terminal.

    It is for a program in a file, and in ECS, where the task's log stream has the report.
    """
    if options.as_json:
        return "json"
    if options.output_format != "auto":
        return options.output_format
    if options.output is not None or endpoint_address(os.environ) is not None:
        return "json"
    return "human"


class _Surroundings(Struct, RunSurroundings):
    """The surroundings of a run on this machine: the terminal and the history."""

    _options: RunOptions
    _clock: Clock
    _view: _NoView
    _recorder: HistoryRecorder | _NoRecorder
    _placement: NoCall[TaskPlacement] = NoCall()

    def find_labels(self) -> Mapping[str, str]:
        """Host, user, git commit of the working directory, and runner, as far as known."""
        facts: dict[str, str | None] = {"host": os.uname().nodename, "user": str(os.getuid())}
        with suppress(KeyError):  # in many containers, the user has no name
            facts["user"] = pwd.getpwuid(os.getuid()).pw_name
        with suppress(OSError):
            facts[COMMIT] = checked_out_commit(os.getcwd())
        labels = {name: value[:MAX_LABEL_CHARS] for name, value in facts.items() if value}
        return {**labels, **airflow_labels(os.environ)}

    def find_batch_job(self) -> BatchJob:
        return job_of_variables(os.environ)

    def request_placement(self) -> NoCall[TaskPlacement]:
        endpoint = endpoint_address(os.environ)
        # All runs of this process have the same task.
        if endpoint is not None and not self._placement.was_made:
            read = partial(read_placement, *endpoint)
            self._placement = RepeatedCall(read, self._clock, _MAX_PLACEMENT_SECONDS)
        return self._placement

    def request_earlier_peak(self) -> NoCall[HighestPeak]:
        if self._options.no_history:
            return NoCall()
        from profiler.cli.local_family_history import highest_peak_of  # most runs do without it

        return BackgroundCall(
            partial(highest_peak_of, self._options, self._clock), self._clock, _MAX_HISTORY_SECONDS
        )

    def import_for_end(self) -> None:
        """Import what the history needs."""
        if self._options.no_history:
            return
        from profiler.cli.stub_modules import define_plain_sqlite  # `run` has imported it

        define_plain_sqlite()
        with suppress(ImportError):  # a Python without SQLite; the recorder reports it
            import profiler.core.redaction
            import profiler.runs.history.run_database  # noqa: F401

    def on_sample(self, sample: ContainerSample, processes: Sequence[ProcessReading]) -> None:
        self._view.on_sample(sample, processes)

    def on_notice(self, line: NoticeLine) -> None:
        self._view.on_notice(line)

    def before_stop(self) -> None:
        self._view.close()

    def keep_so_far(self, build: BuildSoFar) -> None:
        self._recorder.keep_so_far(build)


class _NoView:
    """Prints notices on standard error in place of a live view: as JSON where the report will be
    printed as JSON, else as sentences.
    """

    def __init__(self, stderr: Output, *, prints_json: bool = False) -> None:
        self._stderr = stderr
        self._prints_json = prints_json

    def on_sample(self, sample: ContainerSample, processes: Sequence[ProcessReading]) -> None: ...

    def on_notice(self, line: NoticeLine) -> None:
        from profiler.record.notice_model import encode_notice_line  # most runs have no notice

        if self._prints_json:
            printed = encode_notice_line(line)
        else:
            from profiler.cli.standard_streams import without_ci_commands  # as above

            printed = without_ci_commands(
                f"task-profiler: {printable(line.notice.message)}"
            ).encode()
        self._stderr.write(printed + b"\n")

    def close(self) -> None: ...


class _LateView(_NoView):
    """The live view, which is made some time after the start: its imports delay nothing, and
    short runs have none.
    """

    def __init__(self, options: RunOptions, clock: Clock, stderr: Output) -> None:
        super().__init__(stderr)
        self._options = options
        self._clock = clock
        self._started_ns = clock.wall_ns()
        self._view: LiveView | None = None
        self._has_failed = False

    def on_sample(self, sample: ContainerSample, processes: Sequence[ProcessReading]) -> None:
        if self._has_failed or sample.read_ns - self._started_ns < _VIEW_AFTER_NS:
            return
        try:
            self._view = self._view or self._make()
            self._view.on_sample(sample, processes)
        except Exception:  # noqa: BLE001  a defect of the view must not end the sampling
            self._has_failed = True
            self.close()

    def on_notice(self, line: NoticeLine) -> None:
        if self._view is not None:
            self._view.on_notice(line)

    def close(self) -> None:
        if self._view is not None:
            self._view.close()

    def _make(self) -> LiveView:
        # See the class's docstring. Most runs have no view.
        from profiler.cli.local_family_history import usual_duration_of
        from profiler.cli.progress import stderr_rows
        from profiler.cli.standard_streams import encode_text, stdout_encoding
        from profiler.local_run.live_view import LiveView

        encoding = stdout_encoding()
        usual_duration = None
        if not self._options.no_history:
            usual_duration = partial(usual_duration_of, self._options, self._clock)

        def write(text: str) -> None:
            # If the terminal is closed or stopped, the command and the report continue.
            self._stderr.write(encode_text(text, encoding, "replace"))

        return LiveView(
            stderr_rows(write),
            read_limits(read_own_cgroups(), read_host()),
            self._started_ns,
            usual_duration,
        )
