"""Wait until a monitor looks, then become another command.

python -m tests.programs.late signal|read COMMAND …

``signal``: until SIGALRM comes; one that comes once there is a handler is not lost. ``read``: until
somebody else has read this process twice, by the same /proc.
"""

import os
import signal
import sys
import time
from collections.abc import Callable

from tests.programs.phases import SINCE_NS, phase, started, write_down
from tools.waiting import READINGS_OF_FILES


def _wait_for_signal() -> None:
    signal.sigwait({signal.SIGALRM})


def _wait_until_read() -> None:
    names: dict[str, Callable[[str], None]] = {}
    exec(READINGS_OF_FILES, names)
    names["wait_until_read"]("/proc/thread-self/schedstat")


_WAITS: dict[str, tuple[str, Callable[[], None]]] = {
    "signal": ("other", _wait_for_signal),
    "read": ("sleep", _wait_until_read),
}


def main() -> None:
    started()
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    # It shows that the signal is blocked: the kernel shows no blocked signal as such in sigwait.
    signal.signal(signal.SIGALRM, lambda *_: None)
    kind, wait = _WAITS[sys.argv[1]]
    with phase(kind):
        wait()
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)
    write_down()
    os.environ[SINCE_NS] = str(time.monotonic_ns())
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
