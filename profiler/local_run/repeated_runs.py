"""What ``task-profiler run --runs N`` does before and between the runs, so that none has an effect on the next."""

import os
import signal
import time
import warnings
from contextlib import suppress

from profiler.core.errors import UsageError
from profiler.local_run.prepared_run import OTHER_SIGNALS, STOP_SIGNALS, asks_to_stop

_STDIN = 0
_CLEAR_PEAK = b"5"  # proc(5), clear_refs


def begin_runs() -> None:
    """Make standard input empty for all runs: the first one would read what the others need. Raises UsageError."""
    # Python 3.12 warns of a fork beside threads, and raises with PYTHONWARNINGS=error: a thread may still write the
    # last report. The forked process only executes the command.
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        null = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        raise UsageError(
            f"--runs needs {os.devnull} as the command's input ({error.strerror}): omit --runs."
        ) from error
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
