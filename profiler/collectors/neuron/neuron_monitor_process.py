"""One neuron-monitor subprocess, from its configuration to an end that leaves nothing behind."""

import math
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from profiler.core.threads import WakeEvent
from profiler.readers import Unavailable

if TYPE_CHECKING:
    import subprocess

_MAX_LINE_BYTES = 16 * 1024 * 1024
_RUNTIME_GROUPS = ("neuroncore_counters", "memory_used", "execution_stats")
_CHUNK_BYTES = 64 * 1024


class LineSplitter:
    """Splits bytes into lines (up to 450 kB) and skips empty ones. A line above 16 MiB is no report."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add the next bytes; returns the lines that they complete, without newlines."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest if len(rest) <= _MAX_LINE_BYTES else b"too long"
        return [line for line in lines if line]


def neuron_period_seconds(interval_seconds: float) -> int:
    """The reporting period for a sampling interval: whole seconds, at least 1.

    neuron-monitor takes "1.0s" and "0.5s" for its default of 5 s, and prints nothing for "500ms".
    """
    return max(1, int(interval_seconds))


def configuration(period_seconds: int) -> bytes:
    """The configuration as JSON for the neuron-monitor of October 2022 and later."""
    return msgspec.json.encode(
        {
            "period": f"{period_seconds}s",
            "neuron_runtimes": [{"tag_filter": ".*", "metrics": [{"type": group} for group in _RUNTIME_GROUPS]}],
            "system_metrics": [{"type": "neuron_hw_counters", "period": f"{max(period_seconds, 5)}s"}],
        }
    )


class NeuronProcess:
    """A running neuron-monitor. ``is_output_closed`` is True when no more output will come."""

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
        """Wait for output until the timeout or the wake event; returns it, or empty bytes."""
        # After the exit, the pipe may still hold the last output.
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
        # A descendant that outlives the process may hold the pipe open.
        self.is_output_closed = self._has_exited and not ready
        try:
            self._has_exited = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            self._has_exited = True
        return b""

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process group. Any thread may call this."""
        self._signal(signal.SIGKILL)

    def close(self) -> str:
        """Kill and reap the process; returns how it ended, with the last line of its stderr."""
        import subprocess  # see start_process

        self.kill()
        with self._lock:
            self._is_reaped = True
        with suppress(subprocess.TimeoutExpired):
            # A process that hangs in the driver cannot be reaped.
            self._popen.wait(1)
        self._read_stderr()
        for stream in (self._popen.stdout, self._popen.stderr):
            if stream is not None:
                stream.close()
        last_error_line = self._stderr_tail.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
        return f"{_describe_exit(self._popen.returncode)}{': ' if last_error_line else ''}{last_error_line}"

    def _read_stderr(self) -> None:
        try:
            chunk = os.read(self._stderr, _CHUNK_BYTES)
        except BlockingIOError:
            return
        self._stderr_tail = (self._stderr_tail + chunk)[-4096:]
        if not chunk and not self._is_stderr_closed:
            self._is_stderr_closed = True
            self._poll.unregister(self._stderr)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock, suppress(ProcessLookupError, PermissionError):
            if not self._is_reaped:
                os.killpg(self.pid, number)


def start_process(program: str, configuration: bytes, wake: WakeEvent) -> NeuronProcess | Unavailable:
    """Start ``program`` with a configuration; returns the reason if the start fails."""
    import subprocess  # 0.5 MiB that only a monitor with Neuron devices needs

    try:
        descriptor = os.memfd_create("neuron-monitor.json")  # only this process and its children can read it
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(configuration)
            starter = str(Path(__file__).with_name("end_with_parent.py"))
            tied = (sys.executable, "-I", "-S", starter, str(os.getpid()))
            popen = subprocess.Popen(  # noqa: S603  an absolute path, found in folders of root
                (*tied, program, "-c", f"/proc/self/fd/{descriptor}"),
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
        raise AssertionError("The process was started without pipes.")
    return NeuronProcess(popen, popen.stdout.fileno(), popen.stderr.fileno(), wake)


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "it does not end, even when killed"
    if code == 0:  # ``run`` may have reaped it with all other children: the code is then lost
        return "it ended"
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
