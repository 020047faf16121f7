"""Becomes another program, which the kernel kills as soon as the thread that started it is gone.

Run as a program of its own (``python -I -S leash.py PARENT PROGRAM ARGUMENT…``) and never imported:
between fork and exec of a process with threads only a few system calls are safe, and Python's
``preexec_fn`` is not among them. What the interpreter changed for itself is changed back.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, program: str, arguments: list[str]) -> None:
    """Tie this process to ``parent``, then become ``program``; exits if either cannot be."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("The process that started this one is gone already.")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execv(program, [program, *arguments])  # noqa: S606  to become a program is what this is for
    except OSError as error:
        sys.exit(f"{program} cannot be executed: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
