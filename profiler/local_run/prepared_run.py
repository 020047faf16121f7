"""Prepares a run: takes over the signals, makes the control group, and forks the process of the
command.

In version 2 the kernel takes some 20 ms to move the process into the group. The caller imports the
rest of the profiler meanwhile, so this module imports little. Version 1 needs no wait, and the rest
is imported before the fork: to copy the pages that both processes share would take 4 ms.
"""

import errno
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self, TypeVar

from msgspec import Struct

from profiler.core.clock import Clock
from profiler.core.text import without_surrogates
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.cgroup.command_group import CommandCgroup, make_command_cgroup
from profiler.readers.cgroup.hierarchy import ProcessCgroups, machine_oom_kills, read_own_cgroups
from profiler.readers.linux import proc
from profiler.readers.linux.interpreters import is_interpreter
from profiler.readers.linux.process_tree import ProcessTree, list_children

if TYPE_CHECKING:
    from profiler.readers.cgroup.shared_memory_growth import SharedMemory

# The limit of a task definition's family.
MAX_NAME_CHARS = 255
NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_EXECUTE = b"x"
_MAX_FIRST_LINE_BYTES = 256  # the kernel reads no more of a script's first line
# With these errors, execvp tries the next folder of PATH.
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_REFUSED = (errno.EACCES, errno.EPERM)

Environment = Mapping[bytes, bytes]
Words = tuple[str, ...]


class CallerSignals(Struct, frozen=True, kw_only=True):
    """The signals that the caller had blocked and ignored when this process started.

    The command inherits them. ``set_alarm`` sets the caller's alarm in the calling process.
    """

    mask: frozenset[int]
    ignored: frozenset[int]
    set_alarm: Callable[[], None]


class StartFailure(Struct, frozen=True, kw_only=True):
    """The command could not be started: the exit code of a shell in this case, and the reason as
    a sentence.
    """

    exit_code: int
    reason: str


def _shorten_name(name: str) -> str:
    # Imports the record's types, so only after the fork.
    from profiler.record.bounded_json_line import truncate_text

    return truncate_text(name, MAX_NAME_CHARS)


def family_name(name: str | None, words: Sequence[str]) -> str:
    """The family of a run: its name, else the name of an interpreter's script, else the base
    name of the command.
    """
    if name is None:
        command = words[0]
        if any(map(str.isspace, command)) and not _is_found(command):
            # A whole command line as one word cannot be started, and may have a password.
            command = (command.split() or [command])[0]
        name = os.path.basename(command.rstrip("/")) or command
        if is_interpreter(name):
            from profiler.readers.linux.script_names import name_of_code  # imported after the start

            name = name_of_code(words) or name
    return _shorten_name(without_surrogates(name))


def _is_found(command: str) -> bool:
    """Whether a command is a path to a file, or the name of a program in PATH."""
    from shutil import which  # hardly any command has a space in its name

    return os.path.exists(command) or which(command) is not None


class NoProcessError(Exception):
    """The kernel made no process for the command."""


def low_limit_text() -> str:
    """The limit that is too low, as a part of a sentence: the profiler may fail, or leave the
    command too little.
    """
    limits = [
        ("n", resource.RLIMIT_NOFILE, 32, 1),
        ("v", resource.RLIMIT_AS, 65_536, 1024),
        ("d", resource.RLIMIT_DATA, 32_768, 1024),
        ("s", resource.RLIMIT_STACK, 192, 1024),  # the interpreter crashes at 80
    ]
    if os.geteuid() != 0:  # root has no limit of processes
        limits.append(("u", resource.RLIMIT_NPROC, 16, 1))
    for option, kind, least, unit in limits:
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < least * unit:
            return f"ulimit -{option} is {limit // unit}; set it to {least} or more"
    return ""


def execute_in_place(
    words: Words, environment: Environment, signals: CallerSignals
) -> StartFailure:
    """Execute the command in place of this process. Returns only if that fails."""
    paths = _candidate_paths(words[0], environment)
    _restore_signal_state(signals)
    errors = _exec_first_usable(paths, words, environment)
    return _start_failure(words[0], zip(paths, errors, strict=False))


class HeldCommand(Struct, eq=False):
    """A forked process that executes a command when :meth:`execute` is called, and else ends
    with the ``with`` block.

    It calls ``enter`` at once, which may be slow, and ``measure``, whose result is one line, last
    before the exec. Neither raises. The program is searched as ``execvp`` does. The caller must
    have blocked the signals that it handles, and SIGCHLD must have its default action: the kernel
    discards exit codes while it is ignored.

    ``posix_spawn`` is not used: glibc's leaves two of its own signals ignored in the command, and
    it cannot make a signal ignored that is not ignored here.
    """

    words: Words
    _environment: Environment
    _signals: CallerSignals
    _enter: Callable[[], None]
    _measure: Callable[[], bytes]
    _paths: tuple[str, ...] = ()
    _process: tuple[int, int, int] | None = None

    def __enter__(self) -> Self:
        """Fork the process, unless the program does not exist. Raises NoProcessError."""
        self._paths = _candidate_paths(self.words[0], self._environment)
        if self._paths:
            try:
                self._process = _fork(self._execute_in_child, self._enter)
            except OSError as error:
                raise NoProcessError(error.strerror or str(error)) from error
        return self

    def __exit__(self, *_error: object) -> None:
        """End the forked process if it has not been released."""
        if self._process is not None:
            pid, *pipes = self._process
            self._process = None
            for pipe in pipes:
                os.close(pipe)
            os.waitpid(pid, 0)

    def execute(self) -> tuple[int, bytes] | StartFailure:
        """Release the forked process; returns its id, and its CPU time and measurements unless a
        signal ended it.
        """
        if self._process is None:
            return _start_failure(self.words[0], ())
        pid, gate, output_pipe = self._process
        self._process = None
        with suppress(BrokenPipeError):  # a signal has ended the process
            os.write(gate, _EXECUTE)
        os.close(gate)
        with os.fdopen(output_pipe, "rb") as pipe:
            output, _, errors = pipe.read().partition(b"\n")
        if errors:
            os.waitpid(pid, 0)
            return _start_failure(
                self.words[0], zip(self._paths, map(int, errors.split()), strict=False)
            )
        return pid, output

    def _execute_in_child(self, output: int) -> None:
        """Execute the command.

        Writes the CPU time of this process until now, then the errors if all paths fail.
        """
        _restore_signal_state(self._signals)
        measured = self._measure()
        os.write(output, b"%d %s\n" % (time.process_time_ns(), measured))
        errors = _exec_first_usable(self._paths, self.words, self._environment)
        os.write(output, b" ".join(b"%d" % number for number in errors))


def _fork(execute: Callable[[int], None], enter: Callable[[], None]) -> tuple[int, int, int]:
    """Return the pid of a new process, a pipe to release it with one byte, and one to read what
    it writes.
    """
    output, child_output = os.pipe()
    child_gate, gate = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(gate)  # with this copy open, the child would not notice the end of the parent
            enter()
            if os.read(child_gate, 1) == _EXECUTE:
                execute(child_output)
        finally:
            os._exit(_NOT_EXECUTABLE)
    os.close(child_gate)
    os.close(child_output)
    return pid, gate, output


def read_caller_environment(own: Environment) -> Environment:
    """The environment without the variable that Python adds when it starts in the C locale (PEP
    538).
    """
    initial = proc.read_or_none("/proc/self/environ")
    if initial is None or any(entry.startswith(b"LC_CTYPE=") for entry in initial.split(b"\0")):
        return own
    return {name: value for name, value in own.items() if name != b"LC_CTYPE"}


def _candidate_paths(name: str, environment: Environment) -> tuple[str, ...]:
    """The files that may be the program, in the order of PATH; a name with a slash is a path."""
    if "/" in name:
        return (name,)
    folders = os.get_exec_path(
        {os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()}
    )
    # "" is the current folder.
    paths = [os.path.join(folder, name) for folder in folders] if name else []
    return tuple(filter(os.path.exists, paths))


def _exec_first_usable(paths: Iterable[str], words: Words, environment: Environment) -> list[int]:
    """Execute the first usable program, or script without ``#!``, as ``execvp`` does.

    Returns the error numbers.
    """
    errors: list[int] = []
    for path in paths:
        number = _exec_program(path, words, environment)
        if number == errno.ENOEXEC:
            number = _exec_program("/bin/sh", ("/bin/sh", path, *words[1:]), environment)
        errors.append(number)
        if number not in (*_ABSENT, *_REFUSED):
            break
    return errors


def _exec_program(path: str, words: Words, environment: Environment) -> int:
    """Returns only after a failure: its error number."""
    try:
        os.execve(path, words, environment)  # noqa: S606  running a command is the purpose
    except OSError as error:
        return error.errno or errno.EINVAL


def _start_failure(name: str, attempts: Iterable[tuple[str, int]]) -> StartFailure:
    """The reason of the first path that exists but failed; ``attempts`` are the paths with their
    error numbers.
    """
    unusable: StartFailure | None = None
    for path, number in attempts:
        if number in _REFUSED:
            is_folder = os.path.isdir(path)  # a word of the command line
            program = f"permission denied; if it is a program, run chmod +x {path}"
            unusable = unusable or _not_executable(path, "it is a folder" if is_folder else program)
        elif number not in _ABSENT:
            return _not_executable(path, os.strerror(number))
        elif os.path.exists(path):  # a word of the command line
            unusable = unusable or _not_executable(path, _missing_interpreter(path))
    if unusable is not None:
        return unusable
    where = "does not exist" if "/" in name else "was not found in PATH"
    advice = "check its spelling"
    name = _shorten_name(name)
    if not frozenset(" |&;<>$`*?\n").isdisjoint(name):
        from profiler.core.redaction import redact  # only after an error

        name = redact([name])
        advice = f"for a shell's command line, write sh -c {name!r}"
    reason = f"The command {name!r} {where}; {advice}."
    return StartFailure(exit_code=NOT_FOUND, reason=reason)


def _missing_interpreter(path: str) -> str:
    """Which interpreter a script's first line names, and what to do; a binary names its loader."""
    first = b""
    with suppress(OSError), open(path, "rb") as file:
        first = file.readline(_MAX_FIRST_LINE_BYTES)
    if not first.startswith(b"#!"):
        return "the loader or library that it names does not exist: build it for this machine"
    if first.endswith(b"\r\n"):
        from shlex import quote  # only after an error

        return f"its lines end as on Windows: run sed -i 's/\\r$//' {quote(path)}"
    words = first[2:].split()
    name = repr(os.fsdecode(words[0])) if words else "of its first line"
    return f"the interpreter {name} does not exist: correct the first line, or install it"


def _not_executable(path: str, reason: str) -> StartFailure:
    return StartFailure(
        exit_code=_NOT_EXECUTABLE, reason=f"{_shorten_name(path)} cannot be executed: {reason}."
    )


def _restore_signal_state(signals: CallerSignals) -> None:
    """Give this process the signals of the caller, which the command inherits."""
    for number in signals.ignored:
        signal.signal(number, signal.SIG_IGN)
    # Python ignores these two signals from its start; their earlier state is unknown.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    # Python's own handler would swallow a pending Ctrl-C; the default action ends the child.
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signals.set_alarm()
    signal.pthread_sigmask(signal.SIG_SETMASK, signals.mask)


_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_JOB_SIGNALS = frozenset((signal.SIGTSTP, signal.SIGCONT, signal.SIGCHLD))
# These act on this process: no process can block the first two, six report its own faults,
# the terminal stops background processes by two, and Python ignores the last two.
_UNHANDLED_SIGNALS = frozenset(
    (
        *(signal.SIGKILL, signal.SIGSTOP),
        *(signal.SIGILL, signal.SIGTRAP, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV),
        *(signal.SIGSYS, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ),
    )
)
# The C library keeps the numbers before SIGRTMIN.
_REAL_TIME_SIGNALS = range(signal.SIGRTMIN, signal.SIGRTMAX + 1)
HANDLED_SIGNALS = frozenset((*range(1, 32), *_REAL_TIME_SIGNALS)) - _UNHANDLED_SIGNALS
_SHORTEST_ALARM_SECONDS = 1e-6  # 0 is no alarm
_Session = TypeVar("_Session")


class StartedRun(Struct, frozen=True, kw_only=True):
    """A command that runs, with its start by the monotonic clock and by the wall clock."""

    pid: int
    startup_cpu_ns: int
    started_ns: int
    started_wall_ns: int

    def wall_ns(self, monotonic_ns: int) -> int:
        """Convert a monotonic time to wall time, without the clock changes since the start."""
        return self.started_wall_ns + monotonic_ns - self.started_ns


class PreparedRun(Struct, frozen=True, kw_only=True):
    """The state before the command starts.

    ``preexisting_children`` are the descendants of this process that are not the command's.
    ``floor_bytes`` is the high-water mark of this process's memory at the fork.
    ``oom_kills_before`` counts the kills in this process's group; where no group's are known,
    ``machine_oom_kills_before`` counts the machine's. ``shared_memory`` has what there was before
    the start; None if a group counts the command's.
    """

    run_id: str
    cgroups: ProcessCgroups
    own_cgroup: CommandCgroup
    oom_kills_before: int | None
    machine_oom_kills_before: int | None
    shared_memory: "SharedMemory | None"
    preexisting_children: tuple[int, ...]
    floor_bytes: int | None
    held: HeldCommand
    clock: Clock
    earlier_cpu_seconds: float = 0.0

    def execute(self) -> StartedRun | StartFailure:
        """Start the command. Its time starts just before its process executes it."""
        # Otherwise the command's process would stop before it executes the command, and this
        # process would wait for it.
        stop_if_pending()
        started_wall_ns = self.clock.wall_ns()
        started_ns = self.clock.monotonic_ns()
        started = self.held.execute()
        if isinstance(started, StartFailure):
            return started
        pid, output = started
        exec_ns = started_ns
        startup_cpu_ns = 0
        if output:
            *times_ns, joined = output.split(b" ", 2)
            startup_cpu_ns, exec_ns = map(int, times_ns)
            self.own_cgroup.on_started(joined)
        exec_wall_ns = started_wall_ns + exec_ns - started_ns
        return StartedRun(
            pid=pid, startup_cpu_ns=startup_cpu_ns, started_ns=exec_ns, started_wall_ns=exec_wall_ns
        )


def take_over_signals(clock: Clock) -> CallerSignals:
    """Block the handled signals for good, give SIGCHLD its default action, stop the alarm, and
    return their state from before.

    A process that executes another program keeps its alarm, so that ``perl -e 'alarm 60; exec
    @ARGV'`` is a usual time limit.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL) == signal.SIG_IGN
    left_seconds, repeat_seconds = signal.setitimer(signal.ITIMER_REAL, 0)
    due_ns = clock.monotonic_ns() + round(left_seconds * NS_PER_SECOND)

    def set_alarm() -> None:
        if left_seconds:
            seconds = (due_ns - clock.monotonic_ns()) / NS_PER_SECOND
            seconds = max(seconds, _SHORTEST_ALARM_SECONDS)
            signal.setitimer(signal.ITIMER_REAL, seconds, repeat_seconds)

    return CallerSignals(
        mask=frozenset(mask),
        ignored=frozenset({signal.SIGCHLD} if ignored else ()),
        set_alarm=set_alarm,
    )


def asks_to_stop(number: int) -> bool:
    """Whether a signal to this process asks to stop: not if the caller ignores it, as ``nohup``
    does with SIGHUP.
    """
    return number in _STOP_SIGNALS and signal.getsignal(number) != signal.SIG_IGN


def is_asked_to_stop() -> bool:
    """Whether a blocked signal asks to stop. It remains pending."""
    return any(map(asks_to_stop, signal.sigpending()))


def stop_if_pending() -> None:
    """Stop this process now if SIGTSTP, which is blocked, is pending."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTSTP,))
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTSTP,))


def new_run_id() -> str:
    """A random UUID (version 4, RFC 9562). Python's module takes 0.3 ms to import."""
    number = bytearray(os.urandom(16))
    number[6] = number[6] & 0x0F | 0x40  # the version
    number[8] = number[8] & 0x3F | 0x80  # the variant
    digits = number.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _own_descendants(clock: Clock) -> tuple[int, ...]:
    """All descendants, because the kernel makes this process the parent of a descendant whose own
    parent ends.
    """
    if not list_children(os.getpid(), threads=1):
        return ()
    identities = ProcessTree(os.getpid(), (), clock.monotonic_ns).identities()
    return tuple(pid for pid, _ in identities)


@contextmanager
def prepare_run(
    words: Words,
    environment: Mapping[bytes, bytes],
    clock: Clock,
    signals: CallerSignals,
    make_session: Callable[[], _Session],
    *,
    earlier_cpu_seconds: float = 0.0,
) -> Iterator[tuple[PreparedRun, _Session]]:
    """Prepare the run of a command in ``environment``, after :func:`take_over_signals`.

    Raises NoProcessError.

    ``make_session`` makes the run's other parts, before the fork if the kernel moves a process into
    the group at once.
    """
    run_id = new_run_id()
    cgroups = read_own_cgroups()
    own_cgroup = make_command_cgroup(cgroups, os.getpid(), run_id)
    shared_memory = None
    if not own_cgroup.counts_memory:
        # Only where it is needed.
        from profiler.readers.cgroup.shared_memory_growth import SharedMemory

        shared_memory = SharedMemory(cgroups)

    def measure() -> bytes:
        counted = own_cgroup.start_counting()
        return b"%d %s" % (clock.monotonic_ns(), counted)

    try:
        oom_kills_before = cgroups.oom_kills()
        machine_oom_kills_before = None
        if oom_kills_before is None and not own_cgroup.counts_memory:
            machine_oom_kills_before = machine_oom_kills()
        preexisting_children = _own_descendants(clock)
        session = None
        if own_cgroup.is_entered_at_once:
            session = make_session()
        with HeldCommand(
            words, read_caller_environment(environment), signals, own_cgroup.enter_groups, measure
        ) as held:
            prepared = PreparedRun(
                run_id=run_id,
                cgroups=cgroups,
                own_cgroup=own_cgroup,
                oom_kills_before=oom_kills_before,
                machine_oom_kills_before=machine_oom_kills_before,
                shared_memory=shared_memory,
                preexisting_children=preexisting_children,
                floor_bytes=proc.parse_status(
                    proc.read_or_none("/proc/self/status") or b""
                ).peak_bytes,
                held=held,
                clock=clock,
                earlier_cpu_seconds=earlier_cpu_seconds,
            )
            if session is None:
                session = make_session()
            yield prepared, session
    finally:
        if shared_memory is not None:
            shared_memory.close()
        own_cgroup.remove(clock.sleep)


def prepare_for_several_runs() -> None:
    """Prepare several runs of one command: standard input is empty, or the first would read what
    the others need.
    """
    import warnings  # most commands run once

    # Python 3.12 warns of a fork while threads run, and raises with PYTHONWARNINGS=error: a thread
    # may still write the last report. The forked process only executes the command.
    warnings.simplefilter("ignore", DeprecationWarning)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null != 0:
        os.close(null)


def restart_own_usage() -> float:
    """Reset the high-water mark of this process's memory, if possible; returns the CPU time that
    it has used so far.
    """
    # Imports little.
    with suppress(OSError), open("/proc/self/clear_refs", "wb", buffering=0) as file:
        file.write(b"5")  # proc(5), clear_refs
    return time.process_time()


def take_stop_signal() -> int | None:
    """The signal after a run that asks to stop, if any.

    Other signals were for the command, which has ended.
    """
    while (info := signal.sigtimedwait(HANDLED_SIGNALS - _JOB_SIGNALS, 0)) is not None:
        if asks_to_stop(info.si_signo):
            return info.si_signo
    return None
