"""Runs py-spy for the profiler: one call at a time, for each line of arguments on the standard
input.

Runs as a separate program (``python -I -S dump_server.py PROGRAM``) and is never imported. It has
one thread, so it can limit a call between fork and exec. ``run`` does not count the calls, which
are its children, as the command's. It ends with its standard input. The answer to a line is a line
with the exit status (negative: the signal), the CPU time in microseconds and a length, followed by
that many bytes: the standard output or, if the call failed, standard error.
"""

import os
import resource
import signal
import sys
import time

_MAX_OUTPUT_BYTES = 8 * 1024 * 1024


def main(program: str) -> None:
    """Answer each line until the standard input ends."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.nice(
        5
    )  # at most half the weight of a usual process: enough to read a stack before it has changed
    before_seconds = time.process_time()
    for line in sys.stdin.buffer:
        status, cpu_seconds, output = _call(program, line.decode().split())
        own_seconds = time.process_time()
        cpu_seconds += own_seconds - before_seconds
        before_seconds = own_seconds
        sys.stdout.buffer.write(
            b"%d %d %d\n" % (status, cpu_seconds * 1_000_000, len(output)) + output
        )
        sys.stdout.buffer.flush()


def _call(program: str, arguments: list[str]) -> tuple[int, float, bytes]:
    output = os.memfd_create("output")
    errors = os.memfd_create("errors")
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(5)  # the alarm outlasts the exec and ends py-spy
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_OUTPUT_BYTES, _MAX_OUTPUT_BYTES))
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                signal.signal(number, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for descriptor, standard in ((nothing, 0), (output, 1), (errors, 2)):
                os.dup2(descriptor, standard)
            # Running py-spy is the purpose.
            os.execve(program, [program, *arguments], {})  # noqa: S606
        finally:
            os._exit(126)
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    text = os.pread(output if code == 0 else errors, _MAX_OUTPUT_BYTES, 0)
    os.close(output)
    os.close(errors)
    return code, used.ru_utime + used.ru_stime, text


if __name__ == "__main__":
    main(sys.argv[1])
