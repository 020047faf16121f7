"""Reads the stacks of a process through py-spy.

It may be hostile, so every text in the JSON is cut and cleaned.
"""

import os
import re
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from profiler.core.files import find_program
from profiler.core.text import on_one_line
from profiler.readers import Unavailable
from profiler.record.activity_model import WAITING_SUFFIX

if TYPE_CHECKING:
    import subprocess

_MAX_TEXT_CHARS = 100
_MAX_LINE = 10_000_000
_MAX_REASON_CHARS = 160
_DEADLINE_MS = 8000
# A deep recursion keeps this many of its outermost and innermost frames.
_MAX_OUTER = 15
_MAX_INNER = 60
# Code that is installed with a batch, but is not its team's.
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/python\d[\d.]*\.zip/|^<(?!string>|stdin>)"
)
# A thread whose innermost frame is in one of these waits for other threads or for child processes.
_WAITS_FOR_OTHERS = re.compile(
    r"(?:.*/)?(?:threading|queue|subprocess|multiprocessing/\w+|concurrent/futures/\w+"
    r"|joblib/parallel)\.py"
)


class Frame(Struct, frozen=True):
    """A function on a stack, and the line that it executes.

    ``is_own``: the file belongs to no library.
    """

    function: str
    file: str
    line: int | None = None
    is_own: bool = False

    @property
    def text(self) -> str:
        """The function as a part of a folded stack."""
        return f"{self.function} ({self.file})" if self.file else self.function

    @property
    def text_with_line(self) -> str:
        if not self.file or self.line is None:
            return self.text
        return f"{self.function} ({self.file}:{self.line})"


_LEFT_OUT = Frame("…", "")


class ThreadStack(Struct, frozen=True, kw_only=True):
    """A thread's stack, outermost function first.

    ``is_active``: it runs or could. ``thread_id`` is Python's.
    """

    frames: tuple[Frame, ...]
    is_active: bool
    is_main: bool = False
    thread_id: int = 0

    @property
    def folded(self) -> str:
        text = ";".join(frame.text for frame in shortened(self.frames))
        return text if self.is_active else text + WAITING_SUFFIX

    @property
    def rank(self) -> int:
        """How informative this stack is: 0 is the best rank."""
        has_own = any(frame.is_own for frame in self.frames)
        waits_for_others = (
            not self.is_active and _WAITS_FOR_OTHERS.fullmatch(self.frames[-1].file) is not None
        )
        if has_own and not waits_for_others:
            if self.is_active:
                return 0
            if self.is_main:
                return 1
            return 2
        if self.is_main:
            return 3
        if has_own:
            return 4
        return 5


class _Frame(Struct):
    name: str
    filename: str = ""
    short_filename: str | None = None
    line: int | None = None


class _Thread(Struct):
    thread_id: int
    frames: list[_Frame]
    active: bool
    thread_name: str | None = None
    os_thread_id: int | None = None


_decoder = msgspec.json.Decoder(list[_Thread])


def decode_dump(output: bytes, pid: int) -> tuple[ThreadStack, ...] | Unavailable:
    """The stacks in the output of ``py-spy dump --json``."""
    try:
        threads = _decoder.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Unavailable("its output is not the JSON of py-spy")
    stacks = []
    for thread in threads:
        if not thread.frames:
            continue
        stack = ThreadStack(
            frames=tuple(map(_clean, reversed(thread.frames))),
            is_active=thread.active,
            is_main=thread.thread_name == "MainThread" or thread.os_thread_id == pid,
            thread_id=thread.thread_id,
        )
        stacks.append(stack)
    return tuple(stacks)


def shortened(
    frames: tuple[Frame, ...], outer: int = _MAX_OUTER, inner: int = _MAX_INNER
) -> tuple[Frame, ...]:
    """The frames of a stack; for a very deep one, only the outermost and the innermost."""
    if len(frames) <= outer + inner:
        return frames
    return (*frames[:outer], _LEFT_OUT, *frames[-inner:])


def _clean(frame: _Frame) -> Frame:
    short = frame.short_filename or frame.filename.rpartition("/")[2]
    line = frame.line
    if line is not None and not 0 < line <= _MAX_LINE:
        line = None
    return Frame(
        _word(frame.name) or "?", _word(short), line, is_own=_LIBRARY.search(frame.filename) is None
    )


def _word(text: str) -> str:
    """The text on one line without the separator of folded stacks.

    A long text is cut at its beginning.
    """
    clean = on_one_line(text[-_MAX_TEXT_CHARS:]).replace(";", ",")
    if len(text) > _MAX_TEXT_CHARS:
        return f"…{clean[1:]}"
    return clean


class Dump(Struct, frozen=True, kw_only=True):
    """The stacks of one process, or the reason why they are missing; and the CPU time of the
    reading.
    """

    stacks: tuple[ThreadStack, ...] = ()
    failure: str | None = None
    cpu_ns: int = 0


def find_py_spy(search_path: str | None, interpreter: str) -> str | None:
    """Find py-spy in the interpreter's folder, then in the absolute folders of ``search_path``
    (as in PATH).
    """
    # Texts only.
    return find_program("py-spy", os.path.dirname(interpreter), search_path)  # noqa: PTH120


class PySpy:
    """Calls py-spy through ``dump_server.py``.

    Only one thread may call it; any thread may ``kill`` it.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._server: subprocess.Popen[bytes] | None = None
        self._version: str | None = None

    @property
    def pid(self) -> int | None:
        return None if self._server is None else self._server.pid

    @property
    def version(self) -> str:
        """The name of the program and its version."""
        if self._version is None:
            answer = self._call("--version")
            if isinstance(answer, Unavailable) or answer[0]:
                words = ""
            else:
                words = answer[2].decode(errors="replace")
            self._version = on_one_line(words).strip()[:_MAX_REASON_CHARS] or "py-spy"
        return self._version

    def start(self) -> None:
        """Start the server, which waits for calls, unless it was started before."""
        import subprocess  # only where stacks are enabled

        if self._server is not None:
            return
        # Without the environment, which py-spy does not need and which may contain secrets.
        with suppress(OSError):
            # This interpreter, and a file of this package.
            self._server = subprocess.Popen(  # noqa: S603
                (
                    sys.executable,
                    "-I",
                    "-S",
                    str(Path(__file__).with_name("dump_server.py")),
                    self._program,
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )

    def dump(self, pid: int) -> Dump:
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
        if self._server is not None:
            with (
                suppress(OSError),
                self._server,
            ):  # which closes the pipes and waits; a call may not be written yet
                self.kill()

    def _call(self, arguments: str) -> tuple[int, int, bytes] | Unavailable:
        """The exit status, the CPU time and the output of a call."""
        server = self._server
        if server is None or server.stdin is None or server.stdout is None:
            return Unavailable("it cannot be started")
        poll = select.poll()
        try:
            poll.register(server.stdout, select.POLLIN)
            server.stdin.write(arguments.encode() + b"\n")
            server.stdin.flush()
            # The server's own deadline of a call is shorter. It writes an answer as a whole.
            head = server.stdout.readline() if poll.poll(_DEADLINE_MS) else b""
            status, cpu_us, length = map(int, head.split())
            return status, cpu_us * 1000, server.stdout.read(length)
        except (OSError, ValueError):
            self.kill()
            return Unavailable("the process that calls it has ended or does not answer")


def _reason(status: int, errors: bytes) -> str:
    if status < 0:
        return f"it was ended by signal {-status}, after 5 s or too much output"
    first = f"exit code {status}"
    for line in errors[:4096].decode(errors="replace").split("\n"):
        words = on_one_line(line).strip()
        if words:
            first = words
            break
    return first.removeprefix("Error: ")[:_MAX_REASON_CHARS]
