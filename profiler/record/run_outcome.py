"""How a run ended: the words of records, documents and notifications, and their sentences."""

import signal
from collections.abc import Mapping
from typing import Literal

EndStatus = Literal["success", "failure", "stopped", "unknown"]
Status = Literal["success", "failure", "stopped", "running", "unknown"]
StopCategory = Literal[
    "oom", "spot", "user", "scheduler", "infrastructure", "image", "resources", "exit", "unknown"
]
OutOfMemoryEvidence = Literal["kernel-counter", "exit-137-at-limit", "memory-at-limit"]

# Shells and Docker report the end by a signal as 128 + its number.
FIRST_SIGNAL_EXIT_CODE = 128
SIGKILL_EXIT_CODE = 137  # from the kernel's OOM killer, or from ECS after the stop timeout
SIGTERM_EXIT_CODE = 143  # from ECS, to stop a container

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
    "infrastructure": (
        "AWS stopped the task because of a problem with the underlying infrastructure"
    ),
    "image": "The container's image could not be pulled",
    "resources": "ECS could not get the resources that the task needs to start",
}

_SHORT_CAUSES: Mapping[str, str] = {
    "oom": "Out of memory",
    "spot": "Spot capacity reclaimed",
    "user": "Stopped on request",
    "scheduler": "Stopped by the ECS scheduler",
    "infrastructure": "Stopped by AWS",
    "image": "Image could not be pulled",
    "resources": "No resources to start",
}
_SHORT_ENDS: Mapping[EndStatus, str] = {
    "success": "Success",
    "failure": "Failure",
    "stopped": "Stopped",
    "unknown": "Outcome unknown",
}


def short_cause(status: EndStatus, category: StopCategory, exit_code: int | None) -> str:
    """Why the task ended, in at most four words for a title: ``Out of memory``, ``Exit code 3``."""
    if status == "failure" and category == "exit" and exit_code is not None:
        return f"Exit code {describe_exit_code(exit_code)}"
    if status == "success":
        return _SHORT_ENDS[status]
    return _SHORT_CAUSES.get(category, _SHORT_ENDS[status])


def end_status(exit_code: int | None, *, was_stopped: bool, has_failed: bool = False) -> EndStatus:
    """The status of a run that has ended.

    ``has_failed``: a failure is known without an exit code.

    A requested stop takes precedence: a batch that handles SIGTERM exits with 0 although its work
    is not done.
    """
    if was_stopped:
        return "stopped"
    if exit_code == 0:
        return "success"
    if exit_code is not None or has_failed:
        return "failure"
    return "unknown"


def describe_cause(category: str | None, exit_code: int | None = None) -> str | None:
    """Why the task stopped, or why it did not start: a sentence without its full stop; None if
    the cause is unknown.
    """
    if category == "exit" and exit_code is not None:
        return f"The container exited with code {describe_exit_code(exit_code)}"
    return _CAUSES.get(category or "")


def describe_exit_code(exit_code: int) -> str:
    """The exit code, with the name of the signal that it reports: ``1``, ``137 (SIGKILL)``."""
    try:
        return f"{exit_code} ({signal.Signals(exit_code - FIRST_SIGNAL_EXIT_CODE).name})"
    except ValueError:
        return str(exit_code)
