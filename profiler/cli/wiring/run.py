"""Runs and reports the command of ``task-profiler run``."""

import math
import os
import pwd
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from profiler.cli.output import printable
from profiler.cli.run_options import RunOptions
from profiler.cli.wiring.collectors import local_collectors
from profiler.cli.wiring.ecs import task_lookup
from profiler.collectors.base import stop_collectors
from profiler.core.clock import Clock, SystemClock
from profiler.core.errors import UsageError
from profiler.core.files import dup_above_standard_streams
from profiler.local.labels import build_default_labels, git_commit, parse_labels, runner_labels
from profiler.local.session import OnSample, RunContext, RunRequest, fan_out, run
from profiler.record.json_line import encode_line
from profiler.record.model import Report
from profiler.settings import problems_message, read_price_settings, read_series_points

if TYPE_CHECKING:
    from profiler.history.recorder import HistoryRecorder
    from profiler.local.live import LiveView

_STDERR = 2


def run_command(options: RunOptions) -> int:
    """Run the command of the options and report what it used. Returns the exit code.

    Raises:
        UsageError: before the start, for options that cannot work.
    """
    history_file, output = options.history_file, options.output
    if not options.words:
        raise UsageError("There is no command to run: write it after --, as in task-profiler run -- python etl.py")
    if math.isnan(options.interval_seconds):
        raise UsageError("--interval must be a number of seconds.")
    if options.name is not None and not options.name.strip():
        raise UsageError("--name is empty: give the run a name or leave the option out.")
    if history_file is not None and (options.no_history or not history_file):
        raise UsageError("--history needs a file name, and excludes --no-history: leave one of them out.")
    own_labels = parse_labels(options.labels)
    descriptor = None if output is None else _open_output(output)
    clock = SystemClock()
    recorder = None if options.no_history else _history_recorder(history_file, clock)
    view = _live_view(clock) if options.live else None
    request = RunRequest(
        argv=options.words, family=options.name, interval_seconds=options.interval_seconds, labels=own_labels
    )
    gpu_listener = None if recorder is None else recorder.timeline.add_gpu
    found = local_collectors(os.environ, clock, options.interval_seconds, gpu_listener)
    prices, price_problems = read_price_settings(os.environ)
    series_points, series_problems = read_series_points(os.environ)
    context = RunContext(
        find_labels=_find_labels,
        fetch_placement=task_lookup(os.environ),
        collectors=found.collectors,
        prices=prices,
        series_points=series_points,
        pause=view.close if view is not None else lambda: None,
        meanwhile=_import_for_the_report if recorder is None else _import_for_the_history,
    )
    finished = run(request, os.environb, clock, fan_out(_listeners(recorder, view)), context)
    if view is not None:
        view.close()
    if finished.startup_error is not None:
        _write_all(_STDERR, f"task-profiler: {finished.startup_error}\n".encode(errors="surrogateescape"))
    _warn((*found.problems, *_setting_warnings((*price_problems, *series_problems)), *finished.warnings))
    line = encode_line(finished.report)
    printed = line if options.output_format == "json" else _text_line(finished.report)
    _write_report(printed + b"\n", descriptor, output)
    _warn(() if recorder is None else recorder.add(line, finished.report))
    stop_collectors(found.collectors.all)
    return finished.exit_code


def _import_for_the_report() -> None:
    import profiler.sizing.advice  # noqa: F401  while the command starts, not when the user waits for its end


def _import_for_the_history() -> None:
    _import_for_the_report()
    with suppress(ImportError):  # a Python without SQLite; the recorder reports it
        import profiler.history.store  # noqa: F401


def _history_recorder(file: str | None, clock: Clock) -> "HistoryRecorder":
    from profiler.history.recorder import HistoryRecorder  # not with --no-history

    return HistoryRecorder(file, os.environ, clock)


def _listeners(recorder: "HistoryRecorder | None", view: "LiveView | None") -> list[OnSample]:
    listeners: list[OnSample] = []
    if recorder is not None:
        listeners.append(recorder.timeline.add)
    if view is not None:
        listeners.append(view.on_sample)
    return listeners


def _text_line(report: Report) -> bytes:
    from profiler.record.text_line import report_text  # the catalogue of metrics, which JSON does without

    return report_text(report).encode(errors="replace")


def _setting_warnings(problems: tuple[str, ...]) -> tuple[str, ...]:
    return (problems_message(problems),) if problems else ()


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        _write_all(_STDERR, f"task-profiler: {printable(sentence)}\n".encode())


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


def _write_report(line: bytes, descriptor: int | None, path: str | None) -> None:
    """Write the line to the file, else to stderr. A failure does not change the exit code."""
    if descriptor is not None:
        reason = _write_all(descriptor, line)
        if reason is None:
            return
        _write_all(_STDERR, f"task-profiler: --output {path} cannot be written ({reason}).\n".encode(errors="replace"))
    _write_all(_STDERR, line)


def _write_all(descriptor: int, data: bytes) -> str | None:
    """Write all data. Returns the reason if that fails."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError as error:
            return error.strerror or str(error)
    return None


def _find_labels() -> dict[str, str]:
    """Find the default labels: host, user, git commit of the working directory, and runner, as far as known."""
    try:
        commit = git_commit(os.getcwd())
    except OSError:
        commit = None
    found = build_default_labels(host=os.uname().nodename, user=_user(), git_commit=commit)
    return {**found, **runner_labels(os.environ)}


def _user() -> str:
    """Return the user's name, or the user id if it has no name, as in many containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _live_view(clock: Clock) -> "LiveView | None":
    """Create the view for ``--live``; None if standard error is not a terminal."""
    if not os.isatty(_STDERR):
        return None
    from profiler.local.build_record import effective_sizes
    from profiler.local.live import LiveView, Terminal  # imports rich, which is only for --live
    from profiler.sources.cgroup.hierarchy import read_own_cgroups
    from profiler.sources.linux.host import read_host

    def measure() -> Terminal:
        try:
            size = os.get_terminal_size(_STDERR)
        except OSError:
            return Terminal(columns=0, rows=0)
        return Terminal(columns=size.columns, rows=size.lines)

    def write(text: str) -> None:
        try:
            os.write(_STDERR, text.encode())
        except OSError:
            return  # The terminal has closed; command and report go on.

    sizes = effective_sizes(read_own_cgroups().limits(), read_host(), len(os.sched_getaffinity(0)))
    return LiveView(measure, write, sizes, clock.wall_ns())
