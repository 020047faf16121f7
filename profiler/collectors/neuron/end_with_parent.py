"""Executes another program that the kernel kills when its parent thread ends.

Runs as a separate program (``python -I -S end_with_parent.py PARENT PROGRAM ARGUMENT…``) and is
never imported: between fork and exec in a process with threads, only a few system calls are safe.
Signal settings that the interpreter changed for itself are restored.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, program: str, arguments: list[str]) -> None:
    """Tie this process to ``parent``, then execute ``program``; exits if one of them fails."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("The parent process has ended already.")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execv(program, [program, *arguments])  # noqa: S606  executing a program is the purpose
    except OSError as error:
        sys.exit(f"{program} cannot be executed: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
