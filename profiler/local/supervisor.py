"""Stands between a command and its caller: passes signals on, stops with it, reaps what it leaves.

Signals are blocked and waited for (``sigtimedwait``): none is lost, no handler interrupts a
reading, and each tells who sent it.
"""

import ctypes
import os
import resource
import signal
from collections.abc import Callable, Container

from msgspec import Struct

from profiler.clock import Clock
from profiler.sources import proc
from profiler.times import NS_PER_SECOND

_FORWARDED_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGTSTP,
)
HANDLED_SIGNALS = frozenset((*_FORWARDED_SIGNALS, signal.SIGCONT, signal.SIGCHLD))
_TERMINAL_STOP_SIGNALS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_STOP_REQUEST_SIGNAL = signal.SIGTERM
_SI_KERNEL = 0x80  # SI_KERNEL
_PR_SET_CHILD_SUBREAPER = 36
_TERMINAL = "/dev/tty"
_RUSAGE_BLOCK_BYTES = 512
_BYTES_PER_KIB = 1024
_EXIT_BY_SIGNAL = 128


class ReapedUsage(Struct, frozen=True, kw_only=True):
    """What the kernel counted for ended processes and for all that these had waited for."""

    cpu_ns: int = 0
    block_read_bytes: int = 0
    block_write_bytes: int = 0
    max_rss_bytes: int = 0

    @property
    def blocks(self) -> proc.BlockBytes:
        """What they read from and wrote to storage."""
        return proc.BlockBytes(read_bytes=self.block_read_bytes, write_bytes=self.block_write_bytes)

    def with_added(self, cpu_seconds: float, blocks: tuple[int, int], max_rss_bytes: int) -> "ReapedUsage":
        """These and one more."""
        return ReapedUsage(
            cpu_ns=self.cpu_ns + round(cpu_seconds * NS_PER_SECOND),
            block_read_bytes=self.block_read_bytes + blocks[0] * _RUSAGE_BLOCK_BYTES,
            block_write_bytes=self.block_write_bytes + blocks[1] * _RUSAGE_BLOCK_BYTES,
            max_rss_bytes=max(self.max_rss_bytes, max_rss_bytes),
        )


class CommandExit(Struct, frozen=True, kw_only=True):
    """How the command ended.

    ``was_only_process``: the kernel knows of no other process that it started. ``ignored_sigchld``: it did
    not wait for its children, so the kernel gave their CPU time to nobody.
    """

    exit_code: int
    is_stop_requested: bool
    was_only_process: bool
    ignored_sigchld: bool
    reaped: ReapedUsage


def become_subreaper() -> bool:
    """Have orphans of the command come to this process, so that they are seen and counted."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class Supervisor:
    """Follows one command until it ends. ``unrelated_children`` are this process's other children.

    ``before_stop`` is called before this process stops with the command.
    """

    def __init__(
        self, pid: int, clock: Clock, unrelated_children: Container[int], before_stop: Callable[[], None] = lambda: None
    ) -> None:
        self.pid = pid
        self._clock = clock
        self._unrelated_children = unrelated_children
        self._before_stop = before_stop
        self._own_pid = os.getpid()
        self._had_terminal = _has_terminal()
        self._forwarded: set[int] = set()
        self._orphans = 0
        self.reaped = ReapedUsage()

    def wait_until_exit(self, deadline_ns: int) -> bool:
        """Wait until the deadline (monotonic) or the command's end; says whether it has ended."""
        while True:
            left_ns = deadline_ns - self._clock.monotonic_ns()
            info = signal.sigtimedwait(HANDLED_SIGNALS, max(left_ns, 0) / NS_PER_SECOND)
            if info is None:
                return False
            if info.si_signo == signal.SIGCHLD:
                if self._reap_others():
                    return True
                self._stop_with_command()
            elif info.si_signo == signal.SIGCONT:
                self._continue_with_command()
            else:
                self._forward(info)

    def finish(self) -> CommandExit:
        """Reap the ended command and every orphan that has ended too."""
        had_children, ignored_sigchld = self._zombie_children_state()
        _, status, used = os.wait4(self.pid, 0)
        self._add_usage(used)
        self._reap_others()
        code = os.waitstatus_to_exitcode(status)
        ended_by_signal = -code if code < 0 else code - _EXIT_BY_SIGNAL
        return CommandExit(
            exit_code=_EXIT_BY_SIGNAL - code if code < 0 else code,
            is_stop_requested=bool(self._forwarded & {ended_by_signal, _STOP_REQUEST_SIGNAL}),
            was_only_process=not (had_children or ignored_sigchld or self._orphans),
            ignored_sigchld=ignored_sigchld,
            reaped=self.reaped,
        )

    def _zombie_children_state(self) -> tuple[bool, bool]:
        """Whether the command waited for a child (which has left page faults), and whether it ignored SIGCHLD.

        Both stay readable until the command is reaped; unreadable counts as a child.
        """
        stat = proc.parse_stat(proc.read(f"/proc/{self.pid}/stat") or b"")
        status = proc.parse_status(proc.read(f"/proc/{self.pid}/status") or b"")
        waited = stat is None or stat.children_faults > 0 or stat.children_cpu_ticks > 0
        return waited, bool(status.ignored_signals >> (signal.SIGCHLD - 1) & 1)

    def _reap_others(self) -> bool:
        """Reap orphans that came here; True when the command itself has ended (it is not reaped)."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None or ended.si_pid == self.pid:
                return ended is not None
            _, _, used = os.wait4(ended.si_pid, 0)
            if ended.si_pid not in self._unrelated_children:
                self._orphans += 1
                self._add_usage(used)

    def _add_usage(self, used: resource.struct_rusage) -> None:
        self.reaped = self.reaped.with_added(
            used.ru_utime + used.ru_stime, (used.ru_inblock, used.ru_oublock), used.ru_maxrss * _BYTES_PER_KIB
        )

    def _forward(self, info: signal.struct_siginfo) -> None:
        is_from_terminal = self._is_from_terminal(info)
        if not is_from_terminal and self._is_from_command(info.si_pid):
            return
        self._forwarded.add(info.si_signo)
        # The terminal signals its whole foreground group: the command has it already if it is in ours.
        if not (is_from_terminal and os.getpgid(self.pid) == os.getpgrp()):
            os.kill(self.pid, info.si_signo)

    def _is_from_terminal(self, info: signal.struct_siginfo) -> bool:
        """Whether the whole foreground group was signalled, by the terminal or, when it is gone, for it.

        A terminal that hangs up tells the session's leader only; what the leader, a shell, then
        tells its jobs looks like a signal from anybody.
        """
        is_from_kernel: bool = info.si_code == _SI_KERNEL
        if info.si_signo != signal.SIGHUP:
            return is_from_kernel
        if os.getsid(0) == self._own_pid:
            return False
        return is_from_kernel or (self._had_terminal and not _has_terminal())

    def _is_from_command(self, sender: int) -> bool:
        """Whether the command or a descendant signals its group or its parent: it does not want it back."""
        pid = sender
        while pid not in (0, 1, self._own_pid):
            stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
            if stat is None:
                return False
            pid = stat.parent_pid
        return pid == self._own_pid and sender != self._own_pid

    def _stop_with_command(self) -> None:
        """If the terminal stopped the command, stop too, so that the shell sees its job stopped."""
        stopped = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
        if stopped is None or stopped.si_status not in _TERMINAL_STOP_SIGNALS:
            return
        self._before_stop()
        # The kernel drops this one where no shell could continue us (an orphaned process group).
        os.kill(self._own_pid, signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTSTP,))
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTSTP,))

    def _continue_with_command(self) -> None:
        stat = proc.parse_stat(proc.read(f"/proc/{self.pid}/stat") or b"")
        if stat is not None and stat.state == proc.STOPPED:
            os.kill(self.pid, signal.SIGCONT)


def _has_terminal() -> bool:
    try:
        descriptor = os.open(_TERMINAL, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    os.close(descriptor)
    return True
