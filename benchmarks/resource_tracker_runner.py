"""Run a command under resource-tracker, which has no command-line interface.

python resource_tracker_runner.py SERIES.csv -- COMMAND …
"""

import subprocess
import sys
import threading

from resource_tracker import ProcessTracker


def main() -> None:
    """Track the command's process once a second from a thread, as in the documentation of
    resource-tracker.
    """
    process = subprocess.Popen(sys.argv[3:])
    settings = {"pid": process.pid, "interval": 1, "output_file": sys.argv[1]}
    threading.Thread(target=ProcessTracker, kwargs=settings, daemon=True).start()
    sys.exit(process.wait())


if __name__ == "__main__":
    main()
