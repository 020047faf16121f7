"""The command line, the only place where real clocks, sources and sinks are built.

``monitor`` comes first and apart: it must catch SIGTERM before anything heavy is imported, and
it never imports what the other commands need (click, rich).
"""

import sys

from profiler.stop import StopSignals


def main() -> None:
    """The ``task-profiler`` command."""
    if sys.argv[1:] == ["monitor"]:
        stop = StopSignals()
        stop.install()
        from profiler.cli.monitor import run_monitor  # noqa: PLC0415  after the signals are caught

        sys.exit(run_monitor(stop))
    from profiler.cli.commands import run_command_line  # noqa: PLC0415  click is not for the monitor

    run_command_line()
