"""Reads the stacks of a process through py-spy.

It may be hostile, so every text in the JSON is cut and cleaned.
"""

import os
import re
import select
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from profiler.core.files import find_program
from profiler.core.json_levels import within_levels
from profiler.core.text import on_one_line
from profiler.readers import Unavailable
from profiler.record.activity_model import WAITING_SUFFIX

if TYPE_CHECKING:
    import subprocess

_MAX_TEXT_CHARS = 100
_MAX_LINE = 10_000_000
_MAX_REASON_CHARS = 160
# A call that takes longer is ended; the answer of the server may take some seconds more.
_DEADLINE_SECONDS = 5
_ANSWER_SECONDS = 3
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


class StackFrame(Struct, frozen=True):
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


_LEFT_OUT = StackFrame("…", "")
_Answer = tuple[int, bytes]  # the exit status and the output


class ThreadStack(Struct, frozen=True, kw_only=True):
    """A thread's stack, outermost function first, and how often it was seen.

    ``is_active``: it runs or could. ``thread_id`` is Python's; in a recording the kernel's, which
    otherwise is ``kernel_id``, 0 if unknown.
    """

    frames: tuple[StackFrame, ...]
    is_active: bool
    is_main: bool = False
    thread_id: int = 0
    kernel_id: int = 0
    count: int = 1

    @property
    def folded(self) -> str:
        text = ";".join(frame.text for frame in shorten_stack(self.frames))
        return text if self.is_active else text + WAITING_SUFFIX

    @property
    def rank(self) -> int:
        """How informative this stack is: 0 is the best rank."""
        has_own = any(frame.is_own for frame in self.frames)
        waits_for_others = not self.is_active and bool(
            _WAITS_FOR_OTHERS.fullmatch(self.frames[-1].file)
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
        threads = _decoder.decode(within_levels(output))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Unavailable("its output is not the JSON of py-spy")
    # Else they are those of another namespace: the main thread has the id of its process.
    knows_ids = any(thread.os_thread_id == pid for thread in threads)
    stacks = []
    for thread in threads:
        if not thread.frames:
            continue
        stack = ThreadStack(
            frames=tuple(map(_shown_frame, reversed(thread.frames))),
            is_active=thread.active,
            is_main=thread.thread_name == "MainThread" or thread.os_thread_id == pid,
            thread_id=thread.thread_id,
            kernel_id=(thread.os_thread_id or 0) if knows_ids else 0,
        )
        stacks.append(stack)
    return tuple(stacks)


def shorten_stack(
    frames: tuple[StackFrame, ...], outer: int = _MAX_OUTER, inner: int = _MAX_INNER
) -> tuple[StackFrame, ...]:
    """The frames of a stack; for a very deep one, only the outermost and the innermost."""
    if len(frames) <= outer + inner:
        return frames
    return (*frames[:outer], _LEFT_OUT, *frames[-inner:])


def _shown_frame(frame: _Frame) -> StackFrame:
    short = frame.short_filename or frame.filename.rpartition("/")[2]
    line = frame.line if 0 < (frame.line or 0) <= _MAX_LINE else None
    return StackFrame(
        _folded_frame_text(frame.name) or "?",
        _folded_frame_text(short),
        line,
        is_own=not _LIBRARY.search(frame.filename),
    )


def _folded_frame_text(text: str) -> str:
    """The text on one line without the separator of folded stacks.

    A long text is cut at its beginning.
    """
    clean = on_one_line(text[-_MAX_TEXT_CHARS:]).replace(";", ",")
    if len(text) > _MAX_TEXT_CHARS:
        return f"…{clean[1:]}"
    return clean


class ProcessStacks(Struct, frozen=True, kw_only=True):
    """The stacks of one process, or the reason why they are missing."""

    stacks: tuple[ThreadStack, ...] = ()
    failure: str | None = None


def find_py_spy(search_path: str | None, interpreter: str) -> str | None:
    """Find py-spy in the interpreter's folder, then in the absolute folders of ``search_path``
    (as in PATH).
    """
    # Texts only.
    return find_program("py-spy", os.path.dirname(interpreter), search_path)  # noqa: PTH120


_RECORDED_THREAD = re.compile(r"thread \((\d+)\)(?:: (.*))?", re.DOTALL)
_RECORDED_FRAME = re.compile(r"(.*) \((.*):(\d+)\)", re.DOTALL)


def decode_recording(output: bytes) -> tuple[ThreadStack, ...] | Unavailable:
    """The stacks of running threads in the output of ``py-spy record --format raw --threads``.

    Lines that are torn or have another form are left out.
    """
    stacks = []
    has_other_lines = False
    for text in output.decode(errors="replace").split("\n"):
        if not text.strip():
            continue
        words, _, number = text.rpartition(" ")
        thread, *frames = words.split(";")
        found = _RECORDED_THREAD.fullmatch(thread)
        if not (found and frames and number.isdecimal()):
            has_other_lines = True
            continue
        stack = ThreadStack(
            frames=tuple(map(_recorded_frame, frames)),
            is_active=True,
            is_main=found[2] == "MainThread",
            thread_id=int(found[1]),
            count=min(int(number), _MAX_LINE),
        )
        stacks.append(stack)
    if has_other_lines and not stacks:
        return Unavailable("its output is not the recording of py-spy")
    return tuple(stacks)


def _recorded_frame(text: str) -> StackFrame:
    found = _RECORDED_FRAME.fullmatch(text)
    if not found:
        return _shown_frame(_Frame(name=text))
    name, file, line = found.groups()
    return _shown_frame(_Frame(name, file, short_file(file), int(line[:9])))


@lru_cache(maxsize=5000)
def short_file(path: str) -> str:
    """The file from its outermost package on, as py-spy shortens it for a dump."""
    folder, _, name = path.rpartition("/")
    while folder and os.path.exists(f"{folder}/__init__.py"):  # noqa: PTH110  many files
        folder, _, package = folder.rpartition("/")
        name = f"{package}/{name}"
    return name


class PySpy:
    """Calls py-spy through ``dump_server.py``, unless it is not installed: then its ``program``
    is "", and it is never started. ``library_path``: the ``LD_LIBRARY_PATH`` that this interpreter
    may need (those of Software Collections and of modules of a computing cluster do).

    ``cpu_ns`` is the CPU time of the server and of all its calls, as of the last answer. Only one
    thread may call it; any thread may ``kill`` or ``interrupt`` it.
    """

    def __init__(self, program: str, library_path: str | None = None) -> None:
        self._program = program
        self._library_path = library_path
        self.is_installed = bool(program)
        self._server: subprocess.Popen[bytes] | None = None
        self._version: str | None = None
        self._is_recording = False
        self.cpu_ns = 0

    @property
    def pid(self) -> int | None:
        return None if self._server is None else self._server.pid

    @property
    def version(self) -> str:
        """The name of the program and its version."""
        if self._version is None:
            (answer,) = self._run_calls([f"{_DEADLINE_SECONDS} --version"], _DEADLINE_SECONDS)
            if isinstance(answer, Unavailable) or answer[0]:
                words = ""
            else:
                words = answer[1].decode(errors="replace")
            self._version = on_one_line(words).strip()[:_MAX_REASON_CHARS] or "py-spy"
        return self._version

    def start(self) -> None:
        """Start the server, which waits for calls, unless it was started before."""
        import subprocess  # only where stacks are enabled

        if self._server is not None:
            return
        # Without the rest of the environment, which py-spy does not need and which may contain
        # secrets.
        environment = {"LD_LIBRARY_PATH": self._library_path} if self._library_path else {}
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
                env=environment,
                start_new_session=True,
            )

    def dump_stacks(self, pid: int) -> ProcessStacks:
        """The stacks of a process now."""
        call = f"{_DEADLINE_SECONDS} dump --nonblocking --json --pid {pid}"
        (answer,) = self._run_calls([call], _DEADLINE_SECONDS)
        return _dump_of_answer(answer, lambda output: decode_dump(output, pid))

    def record_stacks(
        self, pids: Sequence[int], seconds: int, rate_hz: int
    ) -> tuple[ProcessStacks, ...]:
        """What ran in these processes for so long, or until their end, in this order."""
        deadline_seconds = seconds + _DEADLINE_SECONDS
        calls = []
        for pid in pids:
            calls.append(
                f"{deadline_seconds} record --nonblocking --format raw --threads --full-filenames "
                f"--output OUTPUT --duration {seconds} --rate {rate_hz} --pid {pid}"
            )
        self._is_recording = True
        answers = self._run_calls(calls, deadline_seconds)
        self._is_recording = False
        return tuple(_dump_of_answer(answer, decode_recording) for answer in answers)

    def interrupt(self) -> None:
        """End a recording in progress, which then answers with what it has."""
        if self._is_recording:
            self._send(signal.SIGINT)

    def kill(self) -> None:
        """End the server, and with it a call in progress."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to the server and its calls, if it runs."""
        if self._server is not None and self._server.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._server.pid, number)

    def close(self) -> None:
        """End the server and close its pipes. Only the thread that calls may do this."""
        if self._server is not None:
            with (
                suppress(OSError),
                self._server,
            ):  # which closes the pipes and waits; a call may not be written yet
                self.kill()

    def _run_calls(
        self, calls: Sequence[str], deadline_seconds: int
    ) -> list[_Answer | Unavailable]:
        """The answers to calls that run at the same time."""
        server = self._server
        if server is None or server.stdin is None or server.stdout is None:
            return [Unavailable("it cannot be started") for _ in calls]
        poll = select.poll()
        answers: list[_Answer | Unavailable] = []
        try:
            poll.register(server.stdout, select.POLLIN)
            server.stdin.write("|".join(calls).encode() + b"\n")
            server.stdin.flush()
            # The server's own deadline of a call is shorter. It writes its answers together.
            has_answered = bool(poll.poll(1000 * (deadline_seconds + _ANSWER_SECONDS)))
            for _ in calls:
                head = server.stdout.readline() if has_answered else b""
                status, cpu_us, length = map(int, head.split())
                self.cpu_ns += cpu_us * 1000
                answers.append((status, server.stdout.read(length)))
        except (OSError, ValueError):
            self.kill()
            reason = "the process that calls it has ended or does not answer"
            answers += [Unavailable(reason) for _ in calls[len(answers) :]]
        return answers


def _dump_of_answer(
    answer: _Answer | Unavailable,
    decode: Callable[[bytes], tuple[ThreadStack, ...] | Unavailable],
) -> ProcessStacks:
    if isinstance(answer, Unavailable):
        return ProcessStacks(failure=answer.reason)
    status, output = answer
    if status == -signal.SIGINT:  # it was interrupted before it began
        return ProcessStacks()
    stacks = Unavailable(_failure_reason(status, output)) if status else decode(output)
    if isinstance(stacks, Unavailable):
        return ProcessStacks(failure=stacks.reason)
    return ProcessStacks(stacks=stacks)


def _failure_reason(status: int, errors: bytes) -> str:
    if status < 0:
        return f"it was ended by signal {-status}, after its deadline or too much output"
    first = f"exit code {status}"
    for line in errors[:4096].decode(errors="replace").split("\n"):
        words = on_one_line(line).strip()
        if words:
            first = words
            break
    return first.removeprefix("Error: ")[:_MAX_REASON_CHARS]
