"""Prepares a run: takes over the signals, makes the control group, and forks the process of the command.

In version 2 the kernel takes some 20 ms to move the process into the group. The caller imports the rest of the profiler
meanwhile, so this module imports little. Version 1 needs no wait, and the rest is imported before the fork: each page
of memory that this process changes while the other one shares it is copied, which takes 4 ms for that import.
"""

import os
import signal
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

from msgspec import Struct

from profiler.core.clock import Clock
from profiler.local_run.launch import (
    CallerSignals,
    Environment,
    HeldCommand,
    StartedCommand,
    StartFailure,
    Words,
    restore_caller_environment,
)
from profiler.readers.cgroup.command_group import CommandCgroup, make_command_cgroup
from profiler.readers.cgroup.hierarchy import Cgroups, read_own_cgroups
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessTree, list_children

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
OTHER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
HANDLED_SIGNALS = frozenset((*STOP_SIGNALS, *OTHER_SIGNALS, signal.SIGTSTP, signal.SIGCONT, signal.SIGCHLD))
_Session = TypeVar("_Session")


class StartedRun(Struct, frozen=True, kw_only=True):
    """A command that runs, with its start by the monotonic clock and by the wall clock."""

    command: StartedCommand
    started_ns: int
    started_wall_ns: int


class PreparedRun(Struct, frozen=True, kw_only=True):
    """The state before the command starts.

    ``preexisting_children`` are the descendants of this process that are not the command's. ``floor_bytes`` is the
    high-water mark of this process's memory at the fork; None if unknown. ``oom_kills_before`` counts the kills in the
    control group of this process. ``earlier_cpu_seconds`` is the CPU time that this process used for earlier runs.
    """

    run_id: str
    cgroups: Cgroups
    own_cgroup: CommandCgroup
    oom_kills_before: int | None
    preexisting_children: tuple[int, ...]
    floor_bytes: int | None
    held: HeldCommand
    clock: Clock
    earlier_cpu_seconds: float = 0.0

    def execute(self) -> StartedRun | StartFailure:
        """Start the command. Its time starts just before its process executes it."""
        # Otherwise the command's process would stop before it executes the command, and this process would wait for it.
        stop_if_pending()
        started_wall_ns, started_ns = self.clock.wall_ns(), self.clock.monotonic_ns()
        started = self.held.execute()
        if isinstance(started, StartFailure):
            return started
        exec_ns = started_ns
        if started.measured is not None:
            text, _, joined = started.measured.partition(b" ")
            exec_ns = int(text)
            self.own_cgroup.on_started(joined)
        return StartedRun(command=started, started_ns=exec_ns, started_wall_ns=started_wall_ns + exec_ns - started_ns)


def take_over_signals() -> CallerSignals:
    """Block the signals that are handled, and give SIGCHLD its default action; returns their earlier state.

    They remain blocked, so that none is lost between two runs, and so that the report is written. Call it once.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL) == signal.SIG_IGN
    return CallerSignals(mask=frozenset(mask), ignored=frozenset({signal.SIGCHLD} if ignored else ()))


def asks_to_stop(number: int) -> bool:
    """Whether a signal to this process asks to stop: not if the caller ignores it, as ``nohup`` does with SIGHUP."""
    return number in STOP_SIGNALS and signal.getsignal(number) != signal.SIG_IGN


def is_asked_to_stop() -> bool:
    """Whether a blocked signal asks to stop. It remains pending."""
    return any(map(asks_to_stop, signal.sigpending()))


def stop_if_pending() -> None:
    """Stop this process now if SIGTSTP, which is blocked, is pending."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTSTP,))
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTSTP,))


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

    The command starts when :meth:`PreparedRun.execute` is called. Without this call, its process ends at the end of the
    ``with`` block. The control group is removed there, too.

    ``make_session`` makes the run's other parts. It is called before the fork if the kernel moves a process into the
    group at once, else after it. Raises NoProcessError if the kernel makes no process for the command.
    """
    run_id = str(uuid.uuid4())
    cgroups = read_own_cgroups()
    own_cgroup = make_command_cgroup(cgroups, os.getpid(), run_id)

    def measure() -> bytes:
        counted = own_cgroup.start_counting()
        return b"%d %s" % (clock.monotonic_ns(), counted)

    try:
        oom_kills_before = cgroups.oom_kills()
        # All descendants, because the kernel makes this process the parent of a descendant whose own parent ends.
        preexisting_children: tuple[int, ...] = ()
        if list_children(os.getpid(), threads=1):
            tree = ProcessTree(os.getpid(), (), clock.monotonic_ns)
            preexisting_children = tuple(pid for pid, _ in tree.identities())
        caller_environment = read_caller_environment(environment)
        session = make_session() if own_cgroup.is_entered_at_once else None
        with HeldCommand(words, caller_environment, signals, own_cgroup.enter, measure) as held:
            prepared = PreparedRun(
                run_id=run_id,
                cgroups=cgroups,
                own_cgroup=own_cgroup,
                oom_kills_before=oom_kills_before,
                preexisting_children=preexisting_children,
                floor_bytes=proc.parse_status(proc.read("/proc/self/status") or b"").peak_bytes,
                held=held,
                clock=clock,
                earlier_cpu_seconds=earlier_cpu_seconds,
            )
            yield prepared, make_session() if session is None else session
    finally:
        own_cgroup.remove(clock.sleep)


def read_caller_environment(environment: Environment) -> Environment:
    """The environment without the variable that Python added."""
    return restore_caller_environment(environment, proc.read("/proc/self/environ"))


def begin_runs() -> None:
    """Prepare several runs of one command: none may have an effect on the next.

    Standard input is made empty for all of them: the first one would read what the others need.
    """
    # Python 3.12 warns of a fork while threads run, and raises with PYTHONWARNINGS=error: a thread may still write the
    # last report. The forked process only executes the command.
    warnings.simplefilter("ignore", DeprecationWarning)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null != 0:
        os.close(null)


def leave_run() -> float:
    """Reset the high-water mark of this process's memory, if possible; returns the CPU time that it has used so far."""
    with suppress(OSError):
        descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
        try:
            os.write(descriptor, b"5")  # proc(5), clear_refs
        finally:
            os.close(descriptor)
    return time.process_time()


def take_stop_signal() -> int | None:
    """The signal after a run that asks to stop, if any. Other signals were for the command, which has ended."""
    while (info := signal.sigtimedwait((*STOP_SIGNALS, *OTHER_SIGNALS), 0)) is not None:
        if asks_to_stop(info.si_signo):
            return info.si_signo
    return None
