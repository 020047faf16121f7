"""Runs and reports the command of ``task-profiler run``.

This module does what comes before the command's process is forked, and what comes after its end. Its imports delay
the command. :mod:`profiler.cli.wiring.build_session` is imported while the kernel moves the process into its control
group, or before the fork if the kernel does that at once (:mod:`profiler.local_run.prepared_run`).
"""

import gc
import math
import os
from collections.abc import Iterable

from profiler.cli.run_options import RunOptions
from profiler.core.clock import SystemClock
from profiler.core.deadline_writer import Output
from profiler.core.errors import UsageError
from profiler.core.files import dup_above_standard_streams
from profiler.core.text import printable
from profiler.local_run.labels import parse_labels
from profiler.local_run.launch import MAX_NAME_CHARS
from profiler.local_run.prepared_run import prepare_run

# The exit code waits at most this long for a reader of the report, which is in the history, too.
_MAX_OUTPUT_SECONDS = 5.0


def run_command(options: RunOptions) -> int:
    """Run the command of the options and report what it used. Returns the exit code.

    Raises:
        UsageError: before the start, for options that cannot work.
    """
    if not options.words:
        raise UsageError("The command to run is missing: write it after --, as in task-profiler run -- python etl.py")
    if math.isnan(options.interval_seconds):
        raise UsageError("--interval must be a number of seconds.")
    if options.name is not None and not options.name.strip():
        raise UsageError("--name is empty: give the run a name or omit the option.")
    if options.name is not None and len(options.name) > MAX_NAME_CHARS:
        raise UsageError(
            f"--name has {len(options.name)} characters, but a family has at most {MAX_NAME_CHARS}: use a shorter name."
        )
    if options.history_file is not None and (options.no_history or not options.history_file):
        raise UsageError("--history needs a file name and excludes --no-history: omit one of them.")
    own_labels = parse_labels(options.labels)
    descriptor = None if options.output is None else _open_output(options.output)
    with prepare_run(options.words, os.environb, SystemClock(), _import_session) as prepared:
        from profiler.cli.wiring.build_session import RunSession  # see the module's docstring

        session = RunSession(options, own_labels, prepared.clock)
        gc.freeze()  # the modules are no garbage
        gc.enable()
        finished = session.run(prepared)
    stderr = session.stderr
    if finished.startup_error is not None:
        stderr.write(f"task-profiler: {finished.startup_error}\n".encode(errors="surrogateescape"))
    _warn(stderr, (*session.problems, *finished.warnings))
    line, printed = session.lines(finished.report)
    _write_report(printed + b"\n", descriptor, options.output, stderr)
    _warn(stderr, session.add_to_history(line, finished))
    session.stop_collectors()
    stderr.drain(_MAX_OUTPUT_SECONDS)
    return finished.exit_code


def _import_session() -> None:
    import profiler.cli.wiring.build_session  # noqa: F401  see the module's docstring


def _warn(stderr: Output, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        stderr.write(f"task-profiler: {printable(sentence)}\n".encode())


def _open_output(path: str) -> int:
    """Open the file before the command starts, so that a wrong path is refused before the run."""
    try:
        # Without O_NONBLOCK, opening a pipe without a reader would block forever.
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
        os.set_blocking(opened, True)
        return dup_above_standard_streams(opened)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"--output {path} cannot be written ({reason}): choose another file.") from error


def _write_report(line: bytes, descriptor: int | None, path: str | None, stderr: Output) -> None:
    """Write the line to the file, else to stderr. A failure does not change the exit code."""
    if descriptor is not None:
        reason = Output(descriptor, _MAX_OUTPUT_SECONDS).write(line)
        if reason is None:
            return
        stderr.write(f"task-profiler: --output {path} {reason}.\n".encode(errors="replace"))
    stderr.keep(line)
