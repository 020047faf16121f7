"""The command line, the only place where real clocks, sources and sinks are created.

``monitor`` and ``run`` start without click. The monitor must catch SIGTERM before it imports
anything heavy, and it shares the task's memory. ``run`` delays every command that it profiles.
"""

import gc
import os
import sys
import time

TYPE_CHECKING = False  # type checkers treat this name as true; importing typing would cost time
if TYPE_CHECKING:
    from typing import NoReturn

# The collector of garbage would search thousands of decoded records again and again: a tenth of a
# command's time.
_NEW_OBJECTS_TO_COLLECT = 50_000


_INTERRUPTED = 130  # a shell's code for SIGINT


def main() -> None:
    """Run the ``task-profiler`` command."""
    if sys.argv[1:] == ["monitor"]:
        run_monitor_process()
    try:
        _run_command()
    except KeyboardInterrupt:  # while it is imported, before it handles signals itself
        os._exit(_INTERRUPTED)


def _run_command() -> None:
    gc.set_threshold(_NEW_OBJECTS_TO_COLLECT)
    from profiler.cli.fast_module_finder import find_own_modules_first

    find_own_modules_first()
    if sys.argv[1:2] == ["run"]:
        exit_code = run_without_click(sys.argv[2:])
        if exit_code is not None:
            # Everything is written and closed. The interpreter would take 10 ms to free the memory.
            os._exit(exit_code)
    from profiler.cli.app import run_command_line  # click is only for the other commands

    run_command_line()


def run_monitor_process() -> "NoReturn":
    """Run the monitor and end the process with exit code 0: Airflow and Dagster take another one
    for a failed batch.

    An interpreter that shuts down removes its signal handlers first, and a SIGTERM would then set
    the exit code 143.
    """
    try:
        from profiler.core.signal_handler import SignalHandler  # `run` handles signals itself

        stop = SignalHandler(time.monotonic_ns)
        stop.install()
        # After the signal handlers are installed.
        gc.disable()  # as in run_without_click
        from profiler.cli.fast_module_finder import find_own_modules_first

        find_own_modules_first()
        from profiler.cli.stub_modules import import_msgspec, unused_modules_deferred

        with unused_modules_deferred():
            import_msgspec()
            from profiler.cli.wiring.build_monitor import run_monitor
        gc.freeze()  # the modules are not garbage
        gc.enable()
        run_monitor(stop)
    # The last handler: there is nothing to report without a running loop.
    except BaseException as error:  # noqa: BLE001
        from profiler.core.errors import TaskProfilerError

        if not isinstance(error, TaskProfilerError):  # a defect, whose text may quote secrets
            error = TaskProfilerError(
                f"The monitor failed ({type(error).__name__}) and reports nothing: report this "
                "line as a defect of task-profiler."
            )
        _print_error(error)
    finally:
        os._exit(0)


def run_without_click(arguments: list[str]) -> int | None:
    """Run and report a command; returns None, and does nothing, for help and for errors, which
    click prints.
    """
    gc.disable()  # the collector would search the imported modules for garbage again and again
    from profiler.cli.stub_modules import import_msgspec, unused_modules_deferred

    with unused_modules_deferred():
        from profiler.cli.run_options import parse_usual_arguments

        values = parse_usual_arguments(arguments)
        if values is not None:
            # Only with options that are valid: each import delays the command.
            import_msgspec()
            from profiler.cli.chosen_run_options import RunOptions
            from profiler.cli.wiring.run_and_report import run_command
    if values is None:
        gc.enable()
        return None
    from profiler.core.errors import TaskProfilerError

    try:
        # Enables the collector again before the command starts.
        return run_command(RunOptions(**values))
    except TaskProfilerError as error:
        _print_error(error)
        return error.exit_code
    except KeyboardInterrupt:  # hardly any run is interrupted before its command starts
        return _INTERRUPTED


def _print_error(error: Exception) -> None:
    if sys.stderr is not None:  # None: the caller has closed it
        from profiler.cli.printing import wrapped_to_terminal

        sys.stderr.write(wrapped_to_terminal(f"task-profiler: {error}") + "\n")
        sys.stderr.flush()
