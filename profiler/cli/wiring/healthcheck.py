"""``task-profiler healthcheck``, which starts without click because Docker runs it once a minute."""

import os
import sys
import time
from pathlib import Path

from profiler.core.errors import TaskProfilerError
from profiler.monitor.healthcheck import check_monitor

_DEFAULT_PERIOD_SECONDS = 1.0


def run_healthcheck() -> int:
    """Check the monitor of this container; returns 0, or 1 with a sentence on stderr."""
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
