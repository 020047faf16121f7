"""The command line, the only place where real clocks, sources and sinks are created.

``monitor`` and ``healthcheck`` start without click and rich. The monitor must catch SIGTERM before it imports
anything heavy, and it shares the task's memory. The health check runs once a minute in the same container.
"""

import os
import sys
import time

from profiler.core.signals import SignalHandler

_DEFAULT_PERIOD_SECONDS = 1.0


def main() -> None:
    """Run the ``task-profiler`` command."""
    if sys.argv[1:] == ["monitor"]:
        stop = SignalHandler(time.monotonic_ns)
        stop.install()
        from profiler.cli.wiring.monitor import run_monitor  # after the signal handlers are installed

        sys.exit(run_monitor(stop))
    if sys.argv[1:] == ["healthcheck"]:
        sys.exit(run_healthcheck())
    from profiler.cli.app import run_command_line  # click is not for the monitor

    run_command_line()


def run_healthcheck() -> int:
    """Check the monitor of this container; returns 0, or 1 with a sentence on stderr."""
    from pathlib import Path  # click would double the cost of the check

    from profiler.core.errors import TaskProfilerError
    from profiler.monitor.healthcheck import check_monitor

    try:
        check_monitor(Path("/proc"), _period_seconds(), time.sleep)
    except TaskProfilerError as error:
        sys.stderr.write(f"task-profiler: {error}\n")
        return error.exit_code
    return 0


def _period_seconds() -> float:
    """The sampling period, with the same default for an invalid value as in profiler.settings.

    Importing that module would take as long as the rest of the check.
    """
    try:
        return float(os.environ.get("TASK_PROFILER_INTERVAL_SECONDS", ""))
    except ValueError:
        return _DEFAULT_PERIOD_SECONDS
