"""``task-profiler healthcheck``: asked by Docker once a minute, so it starts without click."""

import os
import sys
import time
from pathlib import Path

from profiler.core.errors import TaskProfilerError
from profiler.monitor.healthcheck import check_monitor

_DEFAULT_PERIOD_SECONDS = 1.0


def run_healthcheck() -> int:
    """0 if the monitor of this container is awake, else 1 and a sentence."""
    try:
        check_monitor(Path("/proc"), _period_seconds(), time.sleep)
    except TaskProfilerError as error:
        sys.stderr.write(f"task-profiler: {error}\n")
        return error.exit_code
    return 0


def _period_seconds() -> float:
    """The monitor's own reading of this setting would cost as much time as all the rest; it falls back like this."""
    try:
        return float(os.environ.get("TASK_PROFILER_INTERVAL_SECONDS", ""))
    except ValueError:
        return _DEFAULT_PERIOD_SECONDS
