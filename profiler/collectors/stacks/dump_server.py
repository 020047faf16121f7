"""Runs py-spy for the profiler: for each line on the standard input its calls, which are separated
by ``|`` and run at the same time. The first word of a call is its deadline in seconds; the word
``OUTPUT`` stands for a file instead of the standard output.

Runs as a separate program (``python -I -S dump_server.py PROGRAM``) and is never imported. It has
one thread, so it can limit a call between fork and exec. ``run`` does not count the calls, which
are its children, as the command's. It ends with its standard input. The answer to a call is a line
with the exit status (negative: the signal), the CPU time in microseconds and a length, followed by
that many bytes: the standard output or, if the call failed, standard error. The CPU time is that of
the call and of this program since the answer before, at first since its start. All answers to a
line come together, in the order of its calls.
"""

import os
import resource
import signal
import sys
import time

_MAX_OUTPUT_BYTES = 8 * 1024 * 1024
_OUTPUT = "OUTPUT"


def main(program: str) -> None:
    """Answer each line until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends the recordings only
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.nice(
        5
    )  # at most half the weight of a usual process: enough to read a stack before it has changed
    before_seconds = 0.0
    for line in sys.stdin.buffer:
        started = [_start_call(program, call.split()) for call in line.decode().split("|")]
        answers = []
        for call in started:
            status, cpu_seconds, output = _answer_of_call(*call)
            own_seconds = time.process_time()
            cpu_seconds += own_seconds - before_seconds
            before_seconds = own_seconds
            answers.append(b"%d %d %d\n" % (status, cpu_seconds * 1_000_000, len(output)) + output)
        sys.stdout.buffer.write(b"".join(answers))
        sys.stdout.buffer.flush()


def _start_call(program: str, words: list[str]) -> tuple[int, int, int]:
    """Start a call; returns its process, and the files of its output and its errors."""
    output = os.memfd_create("output")
    errors = os.memfd_create("errors")
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(int(words[0]))  # the alarm outlasts the exec and ends py-spy
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_OUTPUT_BYTES, _MAX_OUTPUT_BYTES))
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # they are ignored
                signal.signal(number, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDWR)
            printed = output
            arguments = words[1:]
            if _OUTPUT in arguments:
                # py-spy opens the file again, and prints other words to its standard output.
                os.set_inheritable(output, True)  # noqa: FBT003  it has no name
                arguments[arguments.index(_OUTPUT)] = f"/dev/fd/{output}"
                printed = nothing
            for descriptor, standard in ((nothing, 0), (printed, 1), (errors, 2)):
                os.dup2(descriptor, standard)
            # Running py-spy is the purpose.
            os.execve(program, [program, *arguments], {})  # noqa: S606
        finally:
            os._exit(126)
    return pid, output, errors


def _answer_of_call(pid: int, output: int, errors: int) -> tuple[int, float, bytes]:
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    text = os.pread(output if code == 0 else errors, _MAX_OUTPUT_BYTES, 0)
    os.close(output)
    os.close(errors)
    return code, used.ru_utime + used.ru_stime, text


if __name__ == "__main__":
    main(sys.argv[1])
