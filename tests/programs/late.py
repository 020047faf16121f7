"""Wait for a signal, then become another command: a monitor starts meanwhile.

python -m tests.programs.late SECONDS COMMAND …
"""

import os
import signal
import sys
import time

from tests.programs.phases import SINCE_NS, phase, started, write_down


def main() -> None:
    started()
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    with phase("other"):
        signal.pause()
    write_down()
    os.environ[SINCE_NS] = str(time.monotonic_ns())
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
