"""The health check of the image: whether this container's monitor still wakes up.

The existence of the process proves nothing, because the container ends with it. But a working monitor sleeps and wakes
at every tick, and the kernel counts that in a file that everybody can read (``voluntary_ctxt_switches``, proc(5)). No
port, file or communication with the monitor is needed.

Docker starts a new process for each check while the batch runs. So this module imports only the errors of this package
and cheap parts of the standard library.
"""

from collections.abc import Callable
from pathlib import Path

from profiler.core.errors import TaskProfilerError

_COMMAND = b"monitor"
_CONTEXT_SWITCHES = "voluntary_ctxt_switches:"
_STEP_SECONDS = 0.25
# Twice the longest timeout of a read of the metadata endpoint.
_TIMEOUT_SECONDS = 10.0
# With a longer sampling period the timeout could pass between two ticks: then only the process is checked.
MAX_PERIOD_SECONDS = 5.0


def check_monitor(proc: Path, period_seconds: float, sleep: Callable[[float], None]) -> None:
    """Return when the monitor has woken up, at the latest after 10 seconds.

    Args:
        proc: The folder ``/proc``.
        period_seconds: The monitor's sampling period.
        sleep: Waits between two reads of the counter.

    Raises:
        TaskProfilerError: if there is no monitor in this container, or if it does not wake.
    """
    process = _find_monitor(proc)
    if process is None:
        raise TaskProfilerError("No monitor runs in this container: start it with 'task-profiler monitor'.")
    before = _wakeup_count(process)
    if period_seconds > MAX_PERIOD_SECONDS and before is not None:
        return
    for _ in range(int(_TIMEOUT_SECONDS / _STEP_SECONDS)):
        sleep(_STEP_SECONDS)
        now = _wakeup_count(process)
        if now is None:
            raise TaskProfilerError("The monitor ended during the check: its container ends too.")
        if now != before:
            return
    raise TaskProfilerError(f"The monitor has not woken for {_TIMEOUT_SECONDS:g} seconds: restart its container.")


def _find_monitor(proc: Path) -> Path | None:
    """The monitor's folder in /proc. A shared process namespace also shows processes of other containers."""
    group = _read(proc / "self" / "cgroup")
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        arguments = (_read(process / "cmdline") or b"").rstrip(b"\0").split(b"\0")
        if arguments[-1] == _COMMAND and _read(process / "cgroup") == group:
            return process
    return None


def _wakeup_count(process: Path) -> int | None:
    """How often the main thread has woken up; None if the process has ended."""
    for line in (_read(process / "status") or b"").decode("ascii", "replace").splitlines():
        name, _, value = line.partition("\t")
        if name == _CONTEXT_SWITCHES and value.isdigit():
            return int(value)
    return None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return None
