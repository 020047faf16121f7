"""Runs and reports the command of ``task-profiler run``.

This module does what comes before the command's process is forked, and what comes after its end.
Its imports delay the command. :mod:`profiler.cli.wiring.build_session` is imported while the kernel
moves the process into its control group, or before the fork if the kernel does that at once
(:mod:`profiler.local_run.prepared_run`).
"""

import gc
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from profiler.cli.chosen_run_options import RunOptions
from profiler.core.clock import SystemClock
from profiler.core.deadline_writer import Output
from profiler.core.errors import FIRST_SIGNAL_EXIT_CODE, UsageError
from profiler.core.files import dup_above_standard_streams
from profiler.core.optional_math import any_known, known
from profiler.local_run.local_labels import parse_labels
from profiler.local_run.prepared_run import (
    MAX_NAME_CHARS,
    NoProcessError,
    execute_in_place,
    low_limit_text,
    prepare_for_several_runs,
    prepare_run,
    read_caller_environment,
    restart_own_usage,
    take_over_signals,
    take_stop_signal,
)

if TYPE_CHECKING:
    from profiler.cli.wiring.build_session import RunSession
    from profiler.local_run.report_file import ReportFile
    from profiler.local_run.run_budgets import GpuUse
    from profiler.local_run.run_plan import RunResult
    from profiler.record.record_model import Metrics, Record

_STDERR = 2
_OVER_BUDGET = 3
# The exit code waits at most this long for a reader of the report, which is in the history, too.
_MAX_OUTPUT_SECONDS = 5.0


def run_command(options: RunOptions) -> int:
    """Run the command, once or several times, and report.

    Returns the exit code. Raises UsageError before the start.
    """
    runner = _CommandRunner(options)
    reason = low_limit_text()
    try:
        exit_code = runner.run_unprofiled(reason) if reason else runner.run_all()
    except NoProcessError as error:
        exit_code = runner.run_unprofiled(f"no process can be made for it ({error})")
    runner.stderr.drain(_MAX_OUTPUT_SECONDS)
    return exit_code


class _CommandRunner:
    """Runs the command of the options.

    Each run is complete: with its own id, control group, report and history.
    """

    def __init__(self, options: RunOptions) -> None:
        _check_options(options)
        self._options = options
        self._labels = parse_labels(options.labels)
        self._file = known(_open_file, options.output)
        if options.runs > 1:
            prepare_for_several_runs()
        self.stderr = Output(_STDERR)
        self._notes = self.stderr
        if options.quiet:
            self._notes = Output(dup_above_standard_streams(os.open(os.devnull, os.O_WRONLY)))
        self._clock = SystemClock()
        self._signals = take_over_signals(self._clock)
        self._session: RunSession | None = None
        self._exported: list[Record] = []
        self._successes: list[Metrics] = []
        self._memory_bounds_mb: list[float | None] = []
        self._gpu_uses: list[GpuUse] = []

    def run_all(self) -> int:
        """Run the command until the last run, the first failure, or a signal; returns the exit
        code.
        """
        exit_code = 0
        is_success = True
        for _ in range(self._options.runs):
            exit_code, is_success = self._run_next()
            if not is_success:
                break
        if self._options.runs > 1 and self._session is not None:
            self._write_report(self._session.printed_summary(self._successes))
        if is_success:
            exit_code = self._check_budgets()
        if self._session is not None:
            self._export(self._session)
        return exit_code

    def run_unprofiled(self, reason: str) -> int:
        """Execute the command in place of this process, once.

        Returns the exit code if it does not start.
        """
        _warn(self._notes, (f"The command runs without a profile: {reason}.",))
        self._notes.drain(_MAX_OUTPUT_SECONDS)
        failure = execute_in_place(
            self._options.words, read_caller_environment(os.environb), self._signals
        )
        _warn(self.stderr, (failure.reason,))
        return failure.exit_code

    def _run_next(self) -> tuple[int, bool]:
        """Run the command once; returns the exit code, and whether the command succeeded by
        itself.
        """
        is_first = self._session is None
        earlier_cpu_seconds = 0.0
        if not is_first:
            earlier_cpu_seconds = restart_own_usage()
        options = self._options
        with prepare_run(
            options.words,
            os.environb,
            self._clock,
            self._signals,
            self._make_session,
            earlier_cpu_seconds=earlier_cpu_seconds,
        ) as (prepared, session):
            self._session = session
            # After the fork: a signal of the terminal from now on is also for the forked process.
            stop_signal = None if is_first else take_stop_signal()
            if stop_signal is not None:
                return FIRST_SIGNAL_EXIT_CODE + stop_signal, False
            if is_first:
                gc.freeze()  # the modules are not garbage
                gc.enable()
            finished = session.run(prepared)
        try:
            self._report(session, finished)
        # The command has ended, and the exit code is its own.
        except Exception as error:  # noqa: BLE001
            _warn(self.stderr, (f"The run was not reported ({error!r}): report it as a defect.",))
        is_success = finished.exit_code == 0 and not finished.got_stop_signal
        if is_success:
            self._successes.append(finished.report.record.metrics)
            self._memory_bounds_mb.append(finished.memory_bound_mb)
            self._keep_gpu_use(finished.report.record)
        return finished.exit_code, is_success

    def _report(self, session: "RunSession", finished: "RunResult") -> None:
        """Print the run and add it to the history."""
        if finished.startup_error is not None:
            from profiler.cli.printing import wrapped_to_terminal  # most commands start

            said = wrapped_to_terminal(f"task-profiler: {finished.startup_error}")
            self.stderr.write(said.encode(errors="surrogateescape") + b"\n")
        _warn(self._notes, (*session.problems, *finished.warnings))
        line, printed = session.record_and_printed_lines(finished)
        self._write_report(printed)
        _warn(self._notes, session.add_to_history(line, finished))
        session.stop_collectors()
        if self._options.otlp:
            self._exported.append(finished.report.record)

    def _keep_gpu_use(self, record: "Record") -> None:
        limits = (self._options.max_gpu_memory_mb, self._options.max_gpu_idle_percent)
        if limits != (None, None):
            from profiler.local_run.run_budgets import gpu_use  # most runs have no budget

            self._gpu_uses.append(gpu_use(record))

    def _export(self, session: "RunSession") -> None:
        """Export the runs after the last one: the imported modules stay in memory, and would
        count for the next run.
        """
        for later, record in zip(reversed(range(len(self._exported))), self._exported, strict=True):
            reason = session.export(record)
            if reason is not None:  # a server that does not answer delays the exit once
                _warn(self._notes, (f"{reason} Later runs are not exported." if later else reason,))
                break

    def _make_session(self) -> "RunSession":
        from profiler.cli.wiring.build_session import RunSession  # see the module's docstring

        return RunSession(self._options, self._labels, self._clock, self._notes)

    def _check_budgets(self) -> int:
        options = self._options
        limits = {
            "memory_mb": options.max_memory_mb,
            "duration_ms": options.max_duration_ms,
            "cpu_seconds": options.max_cpu_seconds,
            "gpu_memory_mb": options.max_gpu_memory_mb,
            "gpu_idle_percent": options.max_gpu_idle_percent,
        }
        if not any_known(*limits.values()):
            return 0
        from profiler.local_run.run_budgets import failed_budgets  # most runs have no budget

        sentences = failed_budgets(
            self._successes,
            **limits,
            memory_bounds_mb=self._memory_bounds_mb,
            gpu_uses=self._gpu_uses,
        )
        _warn(self.stderr, sentences)
        return _OVER_BUDGET if sentences else 0

    def _write_report(self, printed: bytes) -> None:
        """Write the lines to the file, else to stderr. A failure does not change the exit code."""
        output = self._notes
        if self._file is not None:
            output = self.stderr
            reason = self._file.append(printed)
            if reason is None:
                return
            sentence = f"task-profiler: --output {self._options.output} {reason}.\n"
            output.write(sentence.encode(errors="replace"))
        if printed:
            output.keep(printed)


def _open_file(path: str) -> "ReportFile":
    from profiler.local_run.report_file import ReportFile  # most runs print the line

    return ReportFile(path, _MAX_OUTPUT_SECONDS)


def _check_options(options: RunOptions) -> None:
    if not options.words:
        raise UsageError(
            "The command to run is missing: write it after --, as in task-profiler run -- python "
            "etl.py"
        )
    if options.name is not None and not options.name.strip():
        raise UsageError("--name is empty: give the run a name or omit the option.")
    if options.name is not None and len(options.name) > MAX_NAME_CHARS:
        raise UsageError(
            f"--name has {len(options.name)} characters, but a family has at most "
            f"{MAX_NAME_CHARS}: use a shorter name."
        )
    if options.live and options.quiet:
        raise UsageError("--live prints what --quiet does not: omit one of them.")


def _warn(stderr: Output, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        from profiler.cli.printing import safe_message_text  # most runs have no messages

        stderr.write(safe_message_text(sentence).encode() + b"\n")
