"""The command line, the only place where real clocks, sources and sinks are created.

``monitor`` and ``healthcheck`` start without click and rich. The monitor must catch SIGTERM before it imports
anything heavy, and it shares the task's memory. The health check runs once a minute in the same container.
"""

import sys
import time

from profiler.core.signals import SignalHandler


def main() -> None:
    """Run the ``task-profiler`` command."""
    if sys.argv[1:] == ["monitor"]:
        stop = SignalHandler(time.monotonic_ns)
        stop.install()
        from profiler.cli.wiring.monitor import run_monitor  # after the signal handlers are installed

        sys.exit(run_monitor(stop))
    if sys.argv[1:] == ["healthcheck"]:
        from profiler.cli.wiring.healthcheck import run_healthcheck  # click would double its cost

        sys.exit(run_healthcheck())
    from profiler.cli.app import run_command_line  # click is not for the monitor

    run_command_line()
