"""One neuron-monitor subprocess: configured, started, read line by line, and stopped without leftovers."""

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

from profiler.core.background import WakeEvent
from profiler.sources import Unavailable

if TYPE_CHECKING:
    import subprocess


MAX_LINE_BYTES = 16 * 1024 * 1024


class LineSplitter:
    """Puts lines together again; empty ones are passed over.

    A line above ``max_bytes`` is dropped as soon as it is known to be one, and the next line
    begins after its newline. ``dropped`` counts these, and the half line at the end of a stream.
    """

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._is_skipping = False
        self.dropped = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; the lines that they complete, without their newlines."""
        lines = []
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._append(end)
            line, self._buffer = bytes(self._buffer), bytearray()
            if line:
                lines.append(line)
            self._is_skipping = False
        self._append(rest)
        return lines

    def finish(self) -> bool:
        """No more bytes come; says whether that cut a line in half."""
        cut = bool(self._buffer)
        self.dropped += cut
        self._buffer, self._is_skipping = bytearray(), False
        return cut

    def _append(self, part: bytes) -> None:
        if self._is_skipping:
            return
        if len(self._buffer) + len(part) > self._max_bytes:
            self._buffer, self._is_skipping = bytearray(), True
            self.dropped += 1
        else:
            self._buffer += part


_HARDWARE_PERIOD_SECONDS = 5
_CORES = {"type": "neuroncore_counters"}
_MEMORY = {"type": "memory_used"}
_EXECUTIONS = {"type": "execution_stats"}
_INFERENCES = {"type": "inference_stats"}
_EVERY_PROCESS = {"tag_filter": ".*"}
_RUNTIME_DAEMON = {"address": "unix:/run/neuron.sock"}


def neuron_period_seconds(interval_seconds: float) -> int:
    """The period for a sampling interval.

    neuron-monitor takes whole seconds only: it reads "1.0s" and "0.5s" as its default of 5 s, and
    prints nothing at all for "500ms".
    """
    return max(1, int(interval_seconds))


def configurations(period_seconds: int) -> tuple[bytes, ...]:
    """The same request as JSON for neuron-monitor of three ages, to be tried in this order.

    Since October 2022 the executions are ``execution_stats``; for a year before they were
    ``inference_stats``; before that (runtime 1.x) a daemon was watched by its address, and the
    hardware's counters were asked of it.
    """
    period = f"{period_seconds}s"
    hardware = {"period": f"{max(period_seconds, _HARDWARE_PERIOD_SECONDS)}s"}
    node = [{"type": "neuron_hw_counters", **hardware}]
    daemon = [_CORES, _MEMORY, _INFERENCES, {"type": "hw_counters", **hardware}]
    runtimes: tuple[tuple[dict[str, object], list[dict[str, str]]], ...] = (
        ({**_EVERY_PROCESS, "metrics": [_CORES, _MEMORY, _EXECUTIONS]}, node),
        ({**_EVERY_PROCESS, "metrics": [_CORES, _MEMORY, _INFERENCES]}, node),
        ({**_RUNTIME_DAEMON, "metrics": daemon}, []),
    )
    return tuple(
        msgspec.json.encode({"period": period, "neuron_runtimes": [runtime], "system_metrics": system})
        for runtime, system in runtimes
    )


_CHUNK_BYTES = 64 * 1024
_MAX_STDERR_BYTES = 4096
_REAP_TIMEOUT_SECONDS = 1.0
_LEASH_SCRIPT = str(Path(__file__).with_name("leash.py"))


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
        import subprocess  # as below

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
    import subprocess  # half a MiB that only a monitor with devices needs

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
