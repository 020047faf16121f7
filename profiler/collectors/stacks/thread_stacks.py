"""The call stacks in py-spy's JSON. The process may be hostile, so every text is cut and cleaned."""

import re

import msgspec
from msgspec import Struct

from profiler.core.text import on_one_line
from profiler.readers import Unavailable
from profiler.record.activity_model import WAITING_SUFFIX

_MAX_TEXT_CHARS = 100
_MAX_LINE = 10_000_000
# A deep recursion keeps this many of its outermost and innermost frames.
_MAX_OUTER, _MAX_INNER = 15, 60
# Code that is installed with a batch, but is not its team's.
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/python\d[\d.]*\.zip/|^<(?!string>|stdin>)")
# A thread whose innermost frame is in one of these waits for other threads or for child processes.
_WAITS_FOR_OTHERS = re.compile(
    r"(?:.*/)?(?:threading|queue|subprocess|multiprocessing/\w+|concurrent/futures/\w+|joblib/parallel)\.py"
)


class Frame(Struct, frozen=True):
    """A function on a stack, and the line that it executes. ``is_own``: the file belongs to no library."""

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
        """The function with the line that it executes."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{self.function} ({place})" if self.file else self.function


_LEFT_OUT = Frame("…", "")


class ThreadStack(Struct, frozen=True, kw_only=True):
    """A thread's stack, outermost function first. ``is_active``: it runs or could. ``thread_id`` is Python's."""

    frames: tuple[Frame, ...]
    is_active: bool
    is_main: bool = False
    thread_id: int = 0

    @property
    def folded(self) -> str:
        """The functions, separated by semicolons, with a suffix if the thread waits."""
        text = ";".join(frame.text for frame in shortened(self.frames))
        return text if self.is_active else text + WAITING_SUFFIX

    @property
    def rank(self) -> int:
        """How informative this stack is: 0 is the best rank."""
        has_own = any(frame.is_own for frame in self.frames)
        waits_for_others = not self.is_active and _WAITS_FOR_OTHERS.fullmatch(self.frames[-1].file) is not None
        if has_own and not waits_for_others:
            return 0 if self.is_active else 1 if self.is_main else 2
        return 3 if self.is_main else 4 if has_own else 5


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
    return tuple(
        ThreadStack(
            frames=tuple(map(_clean, reversed(thread.frames))),
            is_active=thread.active,
            is_main=thread.thread_name == "MainThread" or thread.os_thread_id == pid,
            thread_id=thread.thread_id,
        )
        for thread in threads
        if thread.frames
    )


def shortened(frames: tuple[Frame, ...], outer: int = _MAX_OUTER, inner: int = _MAX_INNER) -> tuple[Frame, ...]:
    """The frames of a stack; for a very deep one, only the outermost and the innermost."""
    if len(frames) <= outer + inner:
        return frames
    return (*frames[:outer], _LEFT_OUT, *frames[-inner:])


def _clean(frame: _Frame) -> Frame:
    short = frame.short_filename or frame.filename.rpartition("/")[2]
    line = frame.line if frame.line is not None and 0 < frame.line <= _MAX_LINE else None
    is_own = _LIBRARY.search(frame.filename) is None
    return Frame(_word(frame.name) or "?", _word(short), line, is_own)


def _word(text: str) -> str:
    """The text on one line without the separator of folded stacks. A long text is cut at its beginning."""
    clean = on_one_line(text[-_MAX_TEXT_CHARS:]).replace(";", ",")
    return clean if len(text) <= _MAX_TEXT_CHARS else f"…{clean[1:]}"
