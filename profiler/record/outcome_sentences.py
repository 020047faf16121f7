"""The sentences for the ways in which a run ends, its causes and exit codes."""

import signal
from collections.abc import Mapping

from profiler.record.run_outcome import FIRST_SIGNAL_EXIT_CODE, Status

PREDICATES: Mapping[Status, str] = {
    "success": "succeeded",
    "failure": "failed",
    "stopped": "was stopped",
    "running": "is running",
    "unknown": "ended with an unknown result",
}
_CAUSES: Mapping[str, str] = {
    "oom": "Out of memory: the container was killed because it exceeded its memory limit",
    "spot": "AWS reclaimed the Spot capacity",
    "user": "A person or a program stopped the task",
    "scheduler": "The ECS scheduler stopped the task",
    "infrastructure": "AWS stopped the task because of a problem with the underlying infrastructure",
    "image": "The container's image could not be pulled",
    "resources": "ECS could not get the resources that the task needs to start",
}


def describe_cause(category: str | None, exit_code: int | None = None) -> str | None:
    """Why the task stopped, or why it did not start: a sentence without its full stop; None if the cause is unknown."""
    if category == "exit" and exit_code is not None:
        return f"The container exited with code {describe_exit_code(exit_code)}"
    return _CAUSES.get(category or "")


def describe_exit_code(exit_code: int) -> str:
    """The exit code, with the name of the signal that it reports: ``1``, ``137 (SIGKILL)``."""
    try:
        return f"{exit_code} ({signal.Signals(exit_code - FIRST_SIGNAL_EXIT_CODE).name})"
    except ValueError:
        return str(exit_code)
