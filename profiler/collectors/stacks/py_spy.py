"""Finds py-spy, and reads the stacks of a process through it."""

import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.collectors.stacks.thread_stacks import ThreadStack, decode_dump
from profiler.core.files import find_program
from profiler.core.text import on_one_line
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable

if TYPE_CHECKING:
    import subprocess

_MAX_REASON_CHARS = 160


class Dump(Struct, frozen=True, kw_only=True):
    """The stacks of one process, or the reason why they are missing; and the CPU time of the reading."""

    stacks: tuple[ThreadStack, ...] = ()
    failure: str | None = None
    cpu_ns: int = 0


def find_py_spy(search_path: str | None, interpreter: str) -> str | None:
    """Find py-spy in the interpreter's folder, then in the absolute folders of ``search_path`` (as in PATH)."""
    return find_program("py-spy", os.path.dirname(interpreter), search_path)  # noqa: PTH120  texts only


class PySpy:
    """Calls py-spy through ``dump_server.py``. Only one thread may call it; any thread may ``kill`` it."""

    def __init__(self, program: str, monotonic_ns: Callable[[], int]) -> None:
        self._program = program
        self._monotonic_ns = monotonic_ns
        self._server: subprocess.Popen[bytes] | None = None
        self._version: str | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the server; None before its start."""
        return None if self._server is None else self._server.pid

    @property
    def version(self) -> str:
        """The name of the program and its version."""
        if self._version is None:
            answer = self._call("--version")
            words = "" if isinstance(answer, Unavailable) or answer[0] else answer[2].decode(errors="replace")
            self._version = on_one_line(words).strip()[:_MAX_REASON_CHARS] or "py-spy"
        return self._version

    def start(self) -> None:
        """Start the server, which waits for calls."""
        import subprocess  # only where stacks are enabled

        # Without the environment, which py-spy does not need and which may contain secrets.
        with suppress(OSError):
            self._server = subprocess.Popen(  # noqa: S603  this interpreter, and a file of this package
                (sys.executable, "-I", "-S", str(Path(__file__).with_name("dump_server.py")), self._program),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                bufsize=0,
                start_new_session=True,
            )

    def dump(self, pid: int) -> Dump:
        """Read the stacks of all threads of a Python process."""
        answer = self._call(f"dump --nonblocking --json --pid {pid}")
        if isinstance(answer, Unavailable):
            return Dump(failure=answer.reason)
        status, cpu_ns, output = answer
        stacks = Unavailable(_reason(status, output)) if status else decode_dump(output, pid)
        if isinstance(stacks, Unavailable):
            return Dump(failure=stacks.reason, cpu_ns=cpu_ns)
        return Dump(stacks=stacks, cpu_ns=cpu_ns)

    def kill(self) -> None:
        """End the server, and with it a call in progress."""
        if self._server is not None and self._server.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the server and close its pipes. Only the thread that calls may do this."""
        server = self._server
        if server is not None:
            self.kill()
            for stream in (server.stdin, server.stdout):
                if stream is not None:
                    stream.close()
            server.wait()

    def _call(self, arguments: str) -> tuple[int, int, bytes] | Unavailable:
        """The exit status, the CPU time and the output of a call."""
        server = self._server
        if server is None or server.stdin is None or server.stdout is None:
            return Unavailable("it cannot be started")
        deadline_ns = self._monotonic_ns() + 8 * NS_PER_SECOND  # longer than the server's own deadline of a call
        try:
            server.stdin.write(arguments.encode() + b"\n")
            answer, end = bytearray(), -1
            while end < 0 or len(answer) < end:
                chunk = self._read(server.stdout.fileno(), deadline_ns)
                if not chunk:
                    self.kill()
                    return Unavailable("the process that calls it has ended or does not answer")
                answer += chunk
                if end < 0 and b"\n" in answer:
                    head = bytes(answer[: answer.index(b"\n")])
                    status, cpu_us, length = map(int, head.split())
                    end = len(head) + 1 + length
        except (OSError, ValueError) as error:
            self.kill()
            return Unavailable(f"the process that calls it has ended ({type(error).__name__})")
        return status, cpu_us * 1000, bytes(answer[len(head) + 1 :])

    def _read(self, descriptor: int, deadline_ns: int) -> bytes:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        left_ms = max(deadline_ns - self._monotonic_ns(), 0) * 1000 / NS_PER_SECOND
        return os.read(descriptor, 262_144) if poll.poll(left_ms) else b""


def _reason(status: int, errors: bytes) -> str:
    if status < 0:
        return f"it was ended by signal {-status}, after 5 s or too much output"
    lines = (on_one_line(line).strip() for line in errors[:4096].decode(errors="replace").split("\n"))
    first = next((line for line in lines if line), f"exit code {status}")
    return first.removeprefix("Error: ")[:_MAX_REASON_CHARS]
