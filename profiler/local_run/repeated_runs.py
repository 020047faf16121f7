"""What ``task-profiler run --runs N`` does between two runs, so that nothing of one is left for the next."""

import os
import signal
import time
from contextlib import suppress

from profiler.local_run.prepared_run import OTHER_SIGNALS, STOP_SIGNALS, asks_to_stop

_STDIN = 0
_CLEAR_PEAK = b"5"  # proc(5), clear_refs


def use_empty_input() -> None:
    """Make standard input empty for all runs: the first one would read what the others need. Raises OSError."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, _STDIN)
    if null == _STDIN:
        os.set_inheritable(null, True)  # noqa: FBT003  os has no keyword
    else:
        os.close(null)


def leave_run() -> float:
    """Reset the high-water mark of this process's memory, if possible; returns the CPU time that it has used so far."""
    with suppress(OSError):
        descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
        try:
            os.write(descriptor, _CLEAR_PEAK)
        finally:
            os.close(descriptor)
    return time.process_time()


def take_stop_signal() -> int | None:
    """The signal that came after a run and asks to stop, if any. Others were for the command, which has ended."""
    while (info := signal.sigtimedwait((*STOP_SIGNALS, *OTHER_SIGNALS), 0)) is not None:
        if asks_to_stop(info.si_signo):
            return info.si_signo
    return None
