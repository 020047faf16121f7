"""One neuron-monitor as a process: started, listened to, and ended so that nothing of it is left.

It is the leader of a session and group of its own, finds its configuration in memory (the root
file system may be read-only), and dies with the thread that started it (see ``leash``). Its exit is
looked at without being collected until its group was killed: till then nobody else can get its number.
"""

import math
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.sources import Unavailable

if TYPE_CHECKING:
    import subprocess

_CHUNK_BYTES = 64 * 1024
_MAX_STDERR_BYTES = 4096
_REAP_TIMEOUT_SECONDS = 1.0
_LEASH_SCRIPT = str(Path(__file__).with_name("leash.py"))


class WakeEvent:
    """Cuts a wait short from another thread."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def close(self) -> None:
        """Nobody waits any more."""
        os.close(self.descriptor)

    def set(self) -> None:
        """End the wait, or the next one."""
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """The next wait waits again."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is set."""
        if select.select([self.descriptor], [], [], seconds)[0]:
            self.clear()


class NeuronProcess:
    """A running neuron-monitor. ``is_output_closed`` says that no more output will come."""

    def __init__(self, popen: "subprocess.Popen[bytes]", output: int, errors: int, wake: WakeEvent) -> None:
        self._popen = popen
        self.pid = popen.pid
        self._stdout = output
        self._stderr = errors
        self._wake = wake
        self._poll = select.poll()
        for descriptor in (output, errors, wake.descriptor):
            self._poll.register(descriptor, select.POLLIN)
        os.set_blocking(errors, False)
        self._lock = threading.Lock()
        self._is_reaped = False
        self._is_stderr_closed = False
        self._has_exited = False
        self._stderr_tail = b""
        self.is_output_closed = False

    def read(self, max_seconds: float) -> bytes:
        """Wait for output, so long at most or until woken; what came, empty if nothing did."""
        # What it wrote just before its end is still to be read.
        milliseconds = 0 if self._has_exited else math.ceil(max(max_seconds, 0) * 1000)
        ready = {descriptor for descriptor, _ in self._poll.poll(milliseconds)}
        if self._wake.descriptor in ready:
            self._wake.clear()
        if self._stderr in ready:
            self._read_stderr()
        if self._stdout in ready:
            chunk = os.read(self._stdout, _CHUNK_BYTES)
            self.is_output_closed = not chunk
            return chunk
        # A descendant that outlives it may hold the pipe open.
        self.is_output_closed = self._has_exited and not ready
        self._has_exited = self._check_exited()
        return b""

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and all that it started. Any thread may call this."""
        self._signal(signal.SIGKILL)

    def close(self) -> str:
        """Kill what is left, collect it and say how it ended, with the last line of its complaints."""
        import subprocess  # noqa: PLC0415  as below

        self.kill()
        with self._lock:
            self._is_reaped = True
        with suppress(subprocess.TimeoutExpired):
            # One that hangs in the driver cannot be waited for.
            self._popen.wait(_REAP_TIMEOUT_SECONDS)
        self._read_stderr()
        for stream in (self._popen.stdout, self._popen.stderr):
            if stream is not None:
                stream.close()
        lines = self._stderr_tail.decode("utf-8", "replace").split("\n")
        last_error_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{_describe_exit(self._popen.returncode)}{': ' if last_error_line else ''}{last_error_line}"

    def _read_stderr(self) -> None:
        try:
            chunk = os.read(self._stderr, _CHUNK_BYTES)
        except BlockingIOError:
            return
        self._stderr_tail = (self._stderr_tail + chunk)[-_MAX_STDERR_BYTES:]
        if not chunk and not self._is_stderr_closed:
            self._is_stderr_closed = True
            self._poll.unregister(self._stderr)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock, suppress(ProcessLookupError, PermissionError):
            if not self._is_reaped:
                os.killpg(self.pid, number)

    def _check_exited(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True


def start_process(program: str, configuration: bytes, wake: WakeEvent) -> NeuronProcess | Unavailable:
    """Start ``program`` with a configuration; the reason if this machine refuses it."""
    import subprocess  # noqa: PLC0415  half a MiB that only a monitor with devices needs

    try:
        descriptor = _write_memory_file(configuration)
        try:
            leash = (sys.executable, "-I", "-S", _LEASH_SCRIPT, str(os.getpid()))
            popen = subprocess.Popen(  # noqa: S603  an absolute path, found where root installs
                (*leash, program, "-c", f"/proc/self/fd/{descriptor}"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                pass_fds=(descriptor,),
            )
        finally:
            os.close(descriptor)
    except OSError as error:
        return Unavailable(f"it cannot be started: {error.strerror}")
    if popen.stdout is None or popen.stderr is None:
        raise AssertionError("A process was started without the pipes that were asked for.")
    return NeuronProcess(popen, popen.stdout.fileno(), popen.stderr.fileno(), wake)


def _write_memory_file(content: bytes) -> int:
    """A file without a name that only this process and its children can read."""
    descriptor = os.memfd_create("neuron-monitor.json")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return descriptor


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "it does not end, even when killed"
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
