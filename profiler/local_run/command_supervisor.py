"""Supervises a command: forwards signals, stops and continues with it, and reaps its orphans.

Signals are blocked and waited for (``sigtimedwait``): none is lost, and the sender of each is
known.
"""

import os
import resource
import signal
from collections.abc import Callable, Container
from contextlib import suppress

from msgspec import Struct

from profiler.core.clock import Clock
from profiler.core.errors import FIRST_SIGNAL_EXIT_CODE
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.local_run.prepared_run import HANDLED_SIGNALS, asks_to_stop, stop_if_pending
from profiler.readers.linux import proc

# Here, because most runs import this module before they fork the command's process: while that
# exists, each page that the import changes is copied.
with suppress(ImportError):  # become_subreaper does without it
    import _ctypes  # noqa: F401

_SI_KERNEL = 0x80  # siginfo.h
# The kernel sends these for the CPU time of this process.
_OWN_TIME_SIGNALS = (signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF)
# The terminal sends these.
_TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)
_RUSAGE_BLOCK_BYTES = 512
_MIN_STOP_NS = NS_PER_SECOND // 10  # shorter: the kernel has discarded the signal
_MIN_DELAY_NS = NS_PER_SECOND  # shorter: the machine was busy


class ReapedUsage(Struct, frozen=True, kw_only=True):
    """The kernel's resource usage of reaped processes and of the children that these had waited
    for.

    ``unread_write_bytes`` of the blocks are from rusage, because ``/proc/PID/io`` was not readable.
    ``changed_bytes``: what their calls for writing have changed of files at most.
    ``faulted_bytes`` are the pages of all page faults of the process with the largest RSS. Each
    page of its own memory takes one, if it has no huge pages; a file is mapped by 16 pages at once.
    """

    cpu_ns: int = 0
    blocks: proc.ProcessBlockBytes = proc.ProcessBlockBytes()
    unread_write_bytes: int = 0
    changed_bytes: int = 0
    max_rss_bytes: int = 0
    faulted_bytes: int = 0


class CommandExit(Struct, frozen=True, kw_only=True):
    """How the command ended.

    ``was_only_process``: the kernel has counted no other process of the command.
    ``ignored_sigchld``: the kernel discarded its children's CPU time. ``got_stop_signal``: this
    process was asked to stop. ``delays_ns``: how long this process did not run although it was to
    read or the command had ended; ``end_delay_ns`` is the last part of it, in which the command
    ended.
    """

    exit_code: int
    is_stop_requested: bool
    was_only_process: bool
    ignored_sigchld: bool
    reaped: ReapedUsage
    got_stop_signal: bool = False
    delays_ns: int = 0
    end_delay_ns: int = 0


def become_subreaper() -> None:
    """Let orphans of the command become children of this process (prctl), so that they are
    counted.
    """
    arguments = (36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    try:
        # The package ctypes creates some forty types when it is imported, which takes 2 ms of every
        # run.
        from _ctypes import call_function, dlopen, dlsym

        prctl = dlsym(dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: this program
        call_function(prctl, arguments)
    except (ImportError, AttributeError):
        # The module _ctypes is private: a later Python may change it.
        import ctypes

        ctypes.CDLL(None).prctl(*arguments)


class Supervisor:
    """Supervises one command until it ends.

    ``before_stop`` is called before this process stops with the command. ``stops`` are the times
    in which both were stopped (monotonic).
    """

    def __init__(
        self,
        pid: int,
        clock: Clock,
        unrelated_children: Container[int],
        before_stop: Callable[[], None],
    ) -> None:
        self.pid = pid
        self._clock = clock
        self._unrelated_children = unrelated_children
        self._before_stop = before_stop
        self._own_pid = os.getpid()
        self._had_terminal = _has_terminal()
        self._forwarded: set[int] = set()
        self._got_stop = False  # a SIGTSTP, since this process was continued
        self._orphans = 0
        self._delays_ns = 0
        self._end_delay_ns = 0
        self.reaped = ReapedUsage()
        self.stops: list[tuple[int, int]] = []

    def wait_until_exit(self, deadline_ns: int) -> bool:
        """Wait until the deadline (monotonic) or the command's end; returns True if the command
        has ended.
        """
        while True:
            info = self._wait_for_signal(deadline_ns)
            # After a stop of this process, Python may return a signal that was never sent, with a
            # random number.
            if info is None or info.si_signo not in HANDLED_SIGNALS:
                # A thread that somebody's start-up file of Python has started does not block
                # SIGCHLD, so that the kernel can give it the only one, which is lost there.
                return self._reap_others()
            if info.si_signo == signal.SIGCHLD:
                if self._reap_others():
                    return True
                self._stop_with_command()
            elif info.si_signo == signal.SIGCONT:
                self._got_stop = False
                if self._is_command_stopped():
                    self._send(signal.SIGCONT)
            else:
                self._got_stop = self._got_stop or info.si_signo == signal.SIGTSTP
                self._forward(info)
                if info.si_signo == signal.SIGTSTP and self._is_command_stopped():
                    self._stop(is_asked=True)

    def wait(self) -> None:
        """Wait until the command has ended."""
        while not self.wait_until_exit(self._clock.monotonic_ns() + NS_PER_SECOND):
            pass

    def _wait_for_signal(self, deadline_ns: int) -> signal.struct_siginfo | None:
        """The next signal, None at the deadline. Counts what it came later, as after a SIGSTOP."""
        began_ns = self._clock.monotonic_ns()
        left_ns = max(deadline_ns - began_ns, 0)
        info = signal.sigtimedwait(HANDLED_SIGNALS, left_ns / NS_PER_SECOND)
        delay_ns = self._clock.monotonic_ns() - began_ns - left_ns
        self._end_delay_ns = delay_ns if delay_ns >= _MIN_DELAY_NS else 0
        self._delays_ns += self._end_delay_ns
        return info

    def reap_all(self) -> CommandExit:
        """Reap the ended command and all orphans that have ended."""
        # Readable until the command is reaped: the page faults of a child that it waited for (an
        # unreadable state counts as a child), and whether it ignored SIGCHLD.
        folder = f"/proc/{self.pid}" if proc.shows_own_pids() else ""
        stat = proc.read_stat(folder)
        had_children = stat is proc.GONE or stat.children_faults > 0 or stat.children_cpu_ticks > 0
        ignored_signals = proc.parse_status(
            proc.read_or_none(f"{folder}/status") or b""
        ).ignored_signals
        ignored_sigchld = bool(ignored_signals >> (signal.SIGCHLD - 1) & 1)
        io = _read_io(self.pid)
        _, status, used = os.wait4(self.pid, 0)
        self._add_usage(used, io)
        self._reap_others()
        code = os.waitstatus_to_exitcode(status)
        if code < 0:  # the negative number of a signal
            code = FIRST_SIGNAL_EXIT_CODE - code
        ended_by_signal = code - FIRST_SIGNAL_EXIT_CODE
        return CommandExit(
            exit_code=code,
            is_stop_requested=bool(self._forwarded & {ended_by_signal, signal.SIGTERM}),
            was_only_process=not (had_children or ignored_sigchld or self._orphans),
            ignored_sigchld=ignored_sigchld,
            reaped=self.reaped,
            got_stop_signal=any(map(asks_to_stop, self._forwarded)),
            delays_ns=self._delays_ns,
            end_delay_ns=self._end_delay_ns,
        )

    def _reap_others(self) -> bool:
        """Reap ended orphans; returns True if the command itself has ended (it is not reaped)."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None or ended.si_pid == self.pid:
                return ended is not None
            # Read first, because a collector that notices the end of its child forgets the child's
            # id.
            is_unrelated = ended.si_pid in self._unrelated_children
            io = b"" if is_unrelated else _read_io(ended.si_pid)
            try:
                _, _, used = os.wait4(ended.si_pid, 0)
            except ChildProcessError:  # the collector has reaped it
                continue
            if not is_unrelated:
                self._orphans += 1
                self._add_usage(used, io)

    def _add_usage(self, used: resource.struct_rusage, io: bytes) -> None:
        """Add a reaped process; ``io`` is empty if its own count was not readable."""
        before = self.reaped
        blocks = proc.parse_io(io)
        changed_bytes = proc.parse_changed_bytes(io)
        unread_write_bytes = 0
        if blocks is None:
            unread_write_bytes = used.ru_oublock * _RUSAGE_BLOCK_BYTES
            blocks = proc.ProcessBlockBytes(
                read_bytes=used.ru_inblock * _RUSAGE_BLOCK_BYTES,
                write_bytes=unread_write_bytes,
            )
        max_rss_bytes = used.ru_maxrss * 1024
        faulted_bytes = before.faulted_bytes
        if max_rss_bytes > before.max_rss_bytes:
            faulted_bytes = (used.ru_minflt + used.ru_majflt) * resource.getpagesize()
        self.reaped = ReapedUsage(
            cpu_ns=before.cpu_ns + round((used.ru_utime + used.ru_stime) * NS_PER_SECOND),
            blocks=before.blocks + blocks,
            unread_write_bytes=before.unread_write_bytes + unread_write_bytes,
            changed_bytes=before.changed_bytes + first_known(changed_bytes, blocks.write_bytes),
            max_rss_bytes=max(before.max_rss_bytes, max_rss_bytes),
            faulted_bytes=faulted_bytes,
        )

    def _forward(self, info: signal.struct_siginfo) -> None:
        """Send the signal to the command, unless it comes from there, has been there or is for this
        process.
        """
        if info.si_code == _SI_KERNEL and info.si_signo in _OWN_TIME_SIGNALS:
            return
        is_from_terminal = self._is_from_terminal(info)
        if not is_from_terminal and self._is_from_command(info.si_pid):
            return
        self._forwarded.add(info.si_signo)
        # The terminal signals its whole foreground group: a command in this process's group has the
        # signal already.
        if not (is_from_terminal and os.getpgid(self.pid) == os.getpgrp()):
            self._send(info.si_signo)

    def _is_from_terminal(self, info: signal.struct_siginfo) -> bool:
        """Whether the signal was sent to the whole foreground group, by the terminal or after
        its hang-up.

        On a hang-up the kernel signals only the session's leader, a shell, which then signals its
        jobs.
        """
        is_from_kernel: bool = info.si_code == _SI_KERNEL
        if info.si_signo != signal.SIGHUP:
            return is_from_kernel and info.si_signo in _TERMINAL_SIGNALS
        if os.getsid(0) == self._own_pid:
            return False
        return is_from_kernel or (self._had_terminal and not _has_terminal())

    def _is_from_command(self, sender: int) -> bool:
        """Whether the command or a descendant sent the signal to its group or parent: it is not
        forwarded back.
        """
        pid = sender
        while pid not in (0, 1, self._own_pid):
            pid = proc.read_stat(f"/proc/{pid}").parent_pid
        return pid == self._own_pid and sender != self._own_pid

    def _stop_with_command(self) -> None:
        """If the terminal stopped the command, or whoever stopped this process, stop this process
        too, so that the shell sees a stopped job.

        A command that somebody else stops may be continued alone: then nobody continues this
        process. The terminal stops this process's group, or the command's if it has another one.
        """
        if self._take_stop() not in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            return
        # Of two pending signals, the kernel gives SIGCHLD before SIGTSTP.
        is_asked = self._got_stop or signal.SIGTSTP in signal.sigpending()
        if is_asked or (_has_terminal() and os.getpgid(self.pid) != os.getpgrp()):
            self._stop(is_asked=is_asked)

    def _stop(self, *, is_asked: bool) -> None:
        """Stop this process until somebody continues it.

        The kernel discards the signal if no shell could continue this process (an orphaned process
        group, as in ``docker run -it``). If the terminal asked this process (``is_asked``), the
        command goes on then, as it does without this process.
        """
        self._before_stop()
        stopped_ns = self._clock.monotonic_ns()
        os.kill(self._own_pid, signal.SIGTSTP)
        stop_if_pending()
        self._got_stop = False
        self._take_stop()  # it may be reported only now, and needs no second stop
        continued_ns = self._clock.monotonic_ns()
        if continued_ns - stopped_ns >= _MIN_STOP_NS:
            self.stops.append((stopped_ns, continued_ns))
        elif is_asked and self._is_command_stopped():
            self._send(signal.SIGCONT)

    def _take_stop(self) -> int | None:
        """The signal that stopped the command; None if the kernel has no stop left to report."""
        try:
            stopped = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            # The command has just ended, and the signal that reports it is pending.
            return None
        return None if stopped is None else stopped.si_status

    def _is_command_stopped(self) -> bool:
        return proc.read_stat(f"/proc/{self.pid}").state == proc.STOPPED

    def _send(self, number: int) -> None:
        with suppress(PermissionError):  # the command belongs to another user now, as with sudo
            os.kill(self.pid, number)


def _read_io(pid: int) -> bytes:
    """The I/O of an ended process that is not reaped; empty if it is another user's, or if the
    kernel shows that of an ended process to root alone.

    It has the children that the process waited for, as rusage has, and the cancelled writes.
    """
    return proc.read_or_none(f"/proc/{pid}/io") or b""


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    os.close(descriptor)
    return True
