"""The command line, the only place where real clocks, sources and sinks are built.

``monitor`` comes first and apart: it must catch SIGTERM before anything heavy is imported, and
it never imports what the other commands need (click, rich). ``healthcheck`` is asked once a
minute beside the batch, and goes without them, too.
"""

import sys
import time

from profiler.core.signals import SignalHandler


def main() -> None:
    """The ``task-profiler`` command."""
    if sys.argv[1:] == ["monitor"]:
        stop = SignalHandler(time.monotonic_ns)
        stop.install()
        from profiler.cli.wiring.monitor import run_monitor  # after the signals are caught

        sys.exit(run_monitor(stop))
    if sys.argv[1:] == ["healthcheck"]:
        from profiler.cli.wiring.healthcheck import run_healthcheck  # click would double what it costs

        sys.exit(run_healthcheck())
    from profiler.cli.app import run_command_line  # click is not for the monitor

    run_command_line()
