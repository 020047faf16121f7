"""Starts the command ``task-profiler``.

Installed, it is the only module of ours outside of the package ``profiler``.

A user's ``PYTHONPATH``, which is for the user's command, may contain a ``profiler.py`` or another
``msgspec``. If such a variable is set, the interpreter executes this file again with ``-I`` before
it imports anything of ours.
"""

import os
import sys

_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")


def main() -> None:
    """Run the command, isolated from the variables of the user's Python."""
    if not sys.flags.isolated and sys.executable and any(map(os.environ.get, _VARIABLES)):
        try:
            # Pathlib is slow.
            words = (sys.executable, "-I", os.path.abspath(__file__), *sys.argv[1:])  # noqa: PTH100
            os.execve(sys.executable, words, _first_environment())  # noqa: S606  this interpreter
        except OSError:
            pass  # without isolation the command may still start
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    if folder not in sys.path:  # the package is in a folder of PYTHONPATH
        sys.path.insert(0, folder)
    from profiler.cli import main as run  # after the package can be found

    run()


def _first_environment() -> dict[bytes, bytes]:
    """The environment without what Python added to its own one (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            entries = [entry.partition(b"=") for entry in file.read().split(b"\0")]
    except OSError:
        return dict(os.environb)
    return {name: value for name, separator, value in reversed(entries) if separator}


if __name__ == "__main__":
    main()
