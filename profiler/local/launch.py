"""Starts a command so that it finds everything as if nothing stood between it and its caller."""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from profiler.local.names import short_name

NOT_FOUND = 127
NOT_EXECUTABLE = 126
_SHELL = "/bin/sh"
# Python ignores these two from its start; what came before cannot be seen any more.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# Python sets this one itself, in its own environment, when it starts in the C locale (PEP 538).
_SET_BY_PYTHON = b"LC_CTYPE"

Environment = Mapping[bytes, bytes]
Words = tuple[str, ...]


class Started(Struct, frozen=True, kw_only=True):
    """A running command; ``own_cpu_ns`` of its process's CPU time went into starting it.

    ``answer`` is what its process had to say just before it became the command.
    """

    pid: int
    own_cpu_ns: int
    answer: bytes = b""


class NotStarted(Struct, frozen=True, kw_only=True):
    """The command could not be started: the exit code a shell gives then, and a sentence."""

    exit_code: int
    reason: str


LastWords = Callable[[], bytes]
_Start = Callable[[str, Words], Started]
_Tell = Callable[[bytes], None]
_Become = Callable[[_Tell], None]


def _silence() -> bytes:
    return b""


def launch(
    words: Words, environment: Environment, mask: Iterable[int], last_words: LastWords = _silence
) -> Started | NotStarted:
    """Start a command found as ``execvp`` finds it.

    ``last_words`` is called in the command's process as the last thing before it becomes the
    command; it may not raise. What it returns, one line, is the caller's answer.

    It gets ``environment``, the signal ``mask``, and from this process the open files, the
    process group and what was ignored when this process began. The caller has blocked the
    signals it handles and left SIGCHLD as it found it; afterwards SIGCHLD is at its default,
    because the kernel throws exit codes away while it is ignored.
    """
    children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ignored = (signal.SIGCHLD,) if children == signal.SIG_IGN else ()

    def start(path: str, arguments: Words) -> Started:
        def become(tell: _Tell) -> None:
            _restore_signals(mask, ignored)
            answer = last_words()
            tell(b"%d %s\n" % (time.process_time_ns(), answer))
            os.execve(path, arguments, environment)  # noqa: S606  to run a command is what this is for

        return _fork(become)

    return _search(words, _places(words[0], environment), start)


def callers_environment(own: Mapping[bytes, bytes], initial: bytes | None) -> Environment:
    """The environment as the caller gave it; ``initial`` is ``/proc/self/environ``."""
    if initial is None or any(entry.startswith(_SET_BY_PYTHON + b"=") for entry in initial.split(b"\0")):
        return own
    return {name: value for name, value in own.items() if name != _SET_BY_PYTHON}


def _places(name: str, environment: Environment) -> tuple[str, ...]:
    if "/" in name:
        return (name,)
    folders = os.get_exec_path({os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()})
    paths = [os.path.join(folder, name) for folder in folders] if name else []  # noqa: PTH118  "" is the current folder
    return tuple(filter(os.path.exists, paths))


def _search(words: Words, places: tuple[str, ...], start: _Start) -> Started | NotStarted:
    """Try one place after the other, as ``execvp`` does; one that is there but unusable is remembered."""
    name = words[0]
    unusable: NotStarted | None = None
    for path in places:
        shown = short_name(path)
        try:
            return _start_or_interpret(path, words, start)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.exists(path):  # noqa: PTH110  a word of the command line, not a path of ours
                reason = f"{shown} cannot be executed: the interpreter it names does not exist."
                unusable = unusable or NotStarted(exit_code=NOT_EXECUTABLE, reason=reason)
        except PermissionError:
            reason = f"{shown} cannot be executed: {_why_refused(path)}."
            unusable = unusable or NotStarted(exit_code=NOT_EXECUTABLE, reason=reason)
        except OSError as error:
            return NotStarted(exit_code=NOT_EXECUTABLE, reason=f"{shown} cannot be executed: {error.strerror}.")
    where = "does not exist" if "/" in name else "was not found in PATH"
    reason = f"The command {short_name(name)!r} {where}; check its spelling."
    return unusable or NotStarted(exit_code=NOT_FOUND, reason=reason)


def _why_refused(path: str) -> str:
    if os.path.isdir(path):  # noqa: PTH112  a word of the command line, not a path of ours
        return "it is a folder"
    return f"permission denied; if it is a program, run chmod +x {path}"


def _start_or_interpret(path: str, words: Words, start: _Start) -> Started:
    """A script without ``#!`` is the shell's, as for ``execvp``, ``env`` and every shell."""
    try:
        return start(path, words)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    return start(_SHELL, (_SHELL, path, *words[1:]))


def _fork(become: _Become) -> Started:
    """Have a child become the command; raises its OSError if it cannot.

    Not ``posix_spawn``: glibc's leaves two of its own signals ignored in the command, and it
    cannot make a signal ignored that is not ignored here. What the fork of an interpreter costs
    is told by the child and taken off the command's account.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _end_as_command(become, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told, _, failure = pipe.read().partition(b"\n")
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    cpu_ns, _, answer = told.partition(b" ")
    return Started(pid=pid, own_cpu_ns=int(cpu_ns or 0), answer=answer)


def _end_as_command(become: _Become, told: int) -> None:
    """In the child: nothing of the interpreter may run after this, whatever happens."""
    try:
        become(lambda text: _tell(told, text))
    except OSError as error:
        _tell(told, b"%d" % (error.errno or errno.EINVAL))
    finally:
        os._exit(NOT_EXECUTABLE)


def _tell(descriptor: int, text: bytes) -> None:
    os.write(descriptor, text)


def _restore_signals(mask: Iterable[int], ignored: Iterable[signal.Signals]) -> None:
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    # Python's own handler would swallow a Ctrl-C that waits here; the default ends the child.
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
