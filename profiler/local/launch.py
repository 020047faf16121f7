"""Starts a command with the environment, signals and files that it would have without the profiler."""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from profiler.record.json_line import truncate_text

# The limit of a task definition's family.
MAX_NAME_CHARS = 255
NOT_FOUND = 127
NOT_EXECUTABLE = 126
_SHELL = "/bin/sh"
# Python ignores these two signals from its start; their earlier state is unknown.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# Python adds this variable to its own environment when it starts in the C locale (PEP 538).
_LOCALE_VARIABLE = b"LC_CTYPE"

Environment = Mapping[bytes, bytes]
Words = tuple[str, ...]


class StartedCommand(Struct, frozen=True, kw_only=True):
    """A running command.

    ``startup_cpu_ns`` is the CPU time that its process used before it executed the command. ``hook_output`` is the
    result of the pre-exec hook.
    """

    pid: int
    startup_cpu_ns: int
    hook_output: bytes = b""


class StartFailure(Struct, frozen=True, kw_only=True):
    """The command could not be started: the exit code of a shell in this case, and the reason as a sentence."""

    exit_code: int
    reason: str


PreExecHook = Callable[[], bytes]
_Start = Callable[[str, Words], StartedCommand]
_WriteLine = Callable[[bytes], None]
_Exec = Callable[[_WriteLine], None]


def shorten_name(name: str) -> str:
    """Shorten a name to the limit of a family."""
    return truncate_text(name, MAX_NAME_CHARS)


def _no_output() -> bytes:
    return b""


def _nothing() -> None:
    return None


def launch(
    words: Words,
    environment: Environment,
    mask: Iterable[int],
    pre_exec_hook: PreExecHook = _no_output,
    *,
    meanwhile: Callable[[], None] = _nothing,
) -> StartedCommand | StartFailure:
    """Start a command; the program is searched as ``execvp`` does.

    The command gets ``environment`` and the signal ``mask``, and inherits from this process the open files, the process
    group and the signals that were ignored when this process started. The caller must have blocked the signals that it
    handles and left SIGCHLD unchanged. Afterwards SIGCHLD has its default action, because the kernel discards exit
    codes while it is ignored.

    Args:
        words: The program and its arguments.
        environment: The environment of the command.
        mask: The signals that are blocked in the command.
        pre_exec_hook: Called in the command's process as the last action before the exec. It must not raise; its
            result, one line, becomes ``hook_output``.
        meanwhile: Called in this process while the command's process starts. It must not raise.
    """
    previous = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ignored = (signal.SIGCHLD,) if previous == signal.SIG_IGN else ()

    def start(path: str, arguments: Words) -> StartedCommand:
        def exec_command(write_line: _WriteLine) -> None:
            _restore_signal_state(mask, ignored)
            hook_output = pre_exec_hook()
            write_line(b"%d %s\n" % (time.process_time_ns(), hook_output))
            os.execve(path, arguments, environment)  # noqa: S606  running a command is the purpose

        return _fork(exec_command, meanwhile)

    return _start_first_usable(words, _candidate_paths(words[0], environment), start)


def restore_caller_environment(own: Mapping[bytes, bytes], initial: bytes | None) -> Environment:
    """The environment without the variable that Python added; ``initial`` is ``/proc/self/environ``."""
    if initial is None or any(entry.startswith(_LOCALE_VARIABLE + b"=") for entry in initial.split(b"\0")):
        return own
    return {name: value for name, value in own.items() if name != _LOCALE_VARIABLE}


def _candidate_paths(name: str, environment: Environment) -> tuple[str, ...]:
    if "/" in name:
        return (name,)
    folders = os.get_exec_path({os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()})
    paths = [os.path.join(folder, name) for folder in folders] if name else []  # noqa: PTH118  "" is the current folder
    return tuple(filter(os.path.exists, paths))


def _start_first_usable(words: Words, paths: tuple[str, ...], start: _Start) -> StartedCommand | StartFailure:
    """Try one path after the other, as ``execvp`` does; the first path that exists but fails gives the reason."""
    name = words[0]
    unusable: StartFailure | None = None
    for path in paths:
        shown = shorten_name(path)
        try:
            return _start_with_shell_fallback(path, words, start)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.exists(path):  # noqa: PTH110  a word of the command line
                reason = f"{shown} cannot be executed: the interpreter it names does not exist."
                unusable = unusable or StartFailure(exit_code=NOT_EXECUTABLE, reason=reason)
        except PermissionError:
            reason = f"{shown} cannot be executed: {_refusal_reason(path)}."
            unusable = unusable or StartFailure(exit_code=NOT_EXECUTABLE, reason=reason)
        except OSError as error:
            return StartFailure(exit_code=NOT_EXECUTABLE, reason=f"{shown} cannot be executed: {error.strerror}.")
    where = "does not exist" if "/" in name else "was not found in PATH"
    reason = f"The command {shorten_name(name)!r} {where}; check its spelling."
    return unusable or StartFailure(exit_code=NOT_FOUND, reason=reason)


def _refusal_reason(path: str) -> str:
    if os.path.isdir(path):  # noqa: PTH112  a word of the command line
        return "it is a folder"
    return f"permission denied; if it is a program, run chmod +x {path}"


def _start_with_shell_fallback(path: str, words: Words, start: _Start) -> StartedCommand:
    """Start the program; run a script without ``#!`` by the shell, as ``execvp``, ``env`` and every shell do."""
    try:
        return start(path, words)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    return start(_SHELL, (_SHELL, path, *words[1:]))


def _fork(exec_command: _Exec, meanwhile: Callable[[], None]) -> StartedCommand:
    """Fork a child that executes the command; raises the child's OSError if that fails.

    ``posix_spawn`` is not used: the one of glibc leaves two of its own signals ignored in the command, and it cannot
    make a signal ignored that is not ignored here. The child reports the CPU time of the fork, which is subtracted from
    that of the command.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_child(exec_command, writing)
    os.close(writing)
    meanwhile()  # the kernel may take some 20 ms to move the child into its control group
    with os.fdopen(reading, "rb") as pipe:
        output, _, failure = pipe.read().partition(b"\n")
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    cpu_ns, _, hook_output = output.partition(b" ")
    return StartedCommand(pid=pid, startup_cpu_ns=int(cpu_ns or 0), hook_output=hook_output)


def _run_child(exec_command: _Exec, output: int) -> None:
    """Execute the command in the child. The function never returns, so no other code of the interpreter runs."""
    try:
        exec_command(lambda text: _write(output, text))
    except OSError as error:
        _write(output, b"%d" % (error.errno or errno.EINVAL))
    finally:
        os._exit(NOT_EXECUTABLE)


def _write(descriptor: int, text: bytes) -> None:
    os.write(descriptor, text)


def _restore_signal_state(mask: Iterable[int], ignored: Iterable[signal.Signals]) -> None:
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    # Python's own handler would swallow a pending Ctrl-C; the default action ends the child.
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
