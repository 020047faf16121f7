"""How a run ended: the words of records, documents and notifications.

The lists are closed for writers. A reader treats a word that only a newer version knows as unknown.
"""

from typing import Literal

EndStatus = Literal["success", "failure", "stopped", "unknown"]
Status = Literal["success", "failure", "stopped", "running", "unknown"]
StopCategory = Literal["oom", "spot", "user", "scheduler", "infrastructure", "image", "resources", "exit", "unknown"]
OutOfMemoryEvidence = Literal["kernel-counter", "exit-137-at-limit", "memory-at-limit"]

# Shells and Docker report the end by a signal as 128 + its number.
FIRST_SIGNAL_EXIT_CODE = 128
SIGKILL_EXIT_CODE = 137  # from the kernel's OOM killer, or from ECS after the stop timeout
SIGTERM_EXIT_CODE = 143  # from ECS, to stop a container


def end_status(exit_code: int | None, *, was_stopped: bool, has_failed: bool = False) -> EndStatus:
    """The status of a run that has ended.

    Args:
        exit_code: The batch's exit code; None if it is unknown.
        was_stopped: Whether a stop was requested before the end. It takes precedence over the exit code: a batch that
            handles SIGTERM exits with 0 although its work is not done.
        has_failed: Whether a failure is known without an exit code.
    """
    if was_stopped:
        return "stopped"
    if exit_code == 0:
        return "success"
    return "failure" if exit_code is not None or has_failed else "unknown"
