"""Whether this container's monitor still wakes up: the question of the image's health check.

That its process exists proves nothing, as the container ends with it. But a monitor that works
sleeps and wakes at every tick, and the kernel counts that for anybody to read
(``voluntary_ctxt_switches``, proc(5)): no port, no file and no word with the monitor are needed.

The check is a process of its own, started again and again beside the batch. So this imports
nothing of ours but the errors, and only cheap parts of the standard library.
"""

from collections.abc import Callable
from pathlib import Path

from profiler.errors import TaskProfilerError

_COMMAND = b"monitor"
_CONTEXT_SWITCHES = "voluntary_ctxt_switches:"
_STEP_SECONDS = 0.25
# The longest that it waits for one answer of the metadata endpoint, and twice for good measure.
_TIMEOUT_SECONDS = 10.0
# A sampling period beyond this outlasts the patience: then only the process is looked for.
MAX_PERIOD_SECONDS = 5.0


def check_monitor(proc: Path, period_seconds: float, sleep: Callable[[float], None]) -> None:
    """Return when the monitor was seen to wake, at the latest after 10 seconds.

    ``proc`` is the folder ``/proc``; ``period_seconds`` is the monitor's sampling period.
    Raises TaskProfilerError if there is no monitor in this container, or if it does not wake.
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
            raise TaskProfilerError("The monitor ended while it was looked at: its container ends, too.")
        if now != before:
            return
    raise TaskProfilerError(f"The monitor has not woken for {_TIMEOUT_SECONDS:g} seconds: restart its container.")


def _find_monitor(proc: Path) -> Path | None:
    """Its folder in /proc. With a shared process namespace other containers' processes are there, too."""
    group = _read(proc / "self" / "cgroup")
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        arguments = (_read(process / "cmdline") or b"").rstrip(b"\0").split(b"\0")
        if arguments[-1] == _COMMAND and _read(process / "cgroup") == group:
            return process
    return None


def _wakeup_count(process: Path) -> int | None:
    """How often its main thread has woken, None if it is gone."""
    for line in (_read(process / "status") or b"").decode("ascii", "replace").splitlines():
        name, _, value = line.partition("\t")
        if name == _CONTEXT_SWITCHES and value.isdigit():
            return int(value)
    return None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # gone in the meantime
        return None
