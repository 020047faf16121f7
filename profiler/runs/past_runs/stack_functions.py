"""The call stacks of a run as functions: the name of each frame, and what ran at a moment."""

import re
import sys
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.record.activity_model import StackMoment
from profiler.record.record_model import Record
from profiler.record.units import format_count, format_percent

_MAX_NAME_LENGTH = 40
# A stack in fewer samples than this has its share in brackets.
_MAX_PERCENT = 90
# A share of fewer samples is random.
MIN_SAMPLES = 10
_FRAME = re.compile(r"(?P<name>.*) \((?P<file>.*?)(?P<line>:\d+)?\)", re.DOTALL)


class ShownFrame(Struct, frozen=True):
    """A function of a call stack, its file, and whether it is the user's own code."""

    name: str
    file: str
    is_own: bool

    @property
    def short_name(self) -> str:
        """The function, or the file of code outside functions."""
        if self.name == "<module>" and self.file:
            name = self.file.rpartition("/")[2]
        else:
            name = self.name.rpartition("<locals>.")[2]
        if len(name) > _MAX_NAME_LENGTH:
            name = name[: _MAX_NAME_LENGTH - 1] + "…"
        return name


def frame_of_text(text: str, own_files: Collection[str] | None = None) -> ShownFrame:
    """The function in a text like ``load_orders (etl/load.py:40)``, with or without the line.

    ``own_files`` are the files of the user's code; None in a record of schema 1.2 or earlier, where
    it is a guess.
    """
    name = text
    file = ""
    frame = _FRAME.fullmatch(text)
    if frame:
        name = frame["name"]
        file = frame["file"]
    if own_files is not None:
        return ShownFrame(name, file, file in own_files)
    module = file.partition("/")[0].removesuffix(".py")
    is_python = file.startswith("<frozen") or module in sys.stdlib_module_names
    return ShownFrame(name, file, is_own=not is_python)


def frames_of_moment(moment: StackMoment) -> list[ShownFrame]:
    """The functions of a moment's stack, from the outermost on."""
    frames = [frame_of_text(text) for text in moment.stack]
    if len(moment.own) != len(frames):
        return frames
    return [replace(frame, is_own=is_own) for frame, is_own in zip(frames, moment.own, strict=True)]


def what_ran_text(frames: Sequence[ShownFrame]) -> str:
    """The innermost two own functions, followed by the innermost function if it belongs to other
    code.
    """
    own = [frame for frame in frames if frame.is_own]
    # Code without its own name, a module, a comprehension or a lambda, ends with >.
    named = [frame for frame in own if not frame.name.endswith(">")]
    shown = named[-2:] or own[-2:]
    if frames and not frames[-1].is_own:
        shown.append(frames[-1])
    return " → ".join(dict.fromkeys(frame.short_name for frame in shown))


class SampledStack(Struct, frozen=True):
    """The functions of a sampled moment; its times are milliseconds after the start of the run."""

    kind: str
    start_ms: float
    end_ms: float
    functions: str
    share: str
    is_in_socket: bool


def sampled_stacks(record: Record) -> Iterator[SampledStack]:
    """The first five moments whose times and functions are known."""
    started_ns = record.started_ns
    if started_ns is None:
        return
    for moment in record.stacks.moments[:5]:
        from_ns = moment.from_ns
        functions = what_ran_text(frames_of_moment(moment))
        share = _share_text(moment)
        if from_ns is None or not functions:
            continue
        start_ms = max((from_ns - started_ns) / NS_PER_MS, 0)
        end_ms = max(((moment.to_ns or 0) - started_ns) / NS_PER_MS, start_ms)
        is_in_socket = not share and frame_of_text(moment.stack[-1]).file in {"socket.py", "ssl.py"}
        yield SampledStack(moment.kind, start_ms, end_ms, functions, share, is_in_socket)


def _share_text(moment: StackMoment) -> str:
    percent = first_known(moment.percent, _MAX_PERCENT)
    samples = first_known(moment.samples, MIN_SAMPLES)
    if percent >= _MAX_PERCENT:
        return ""
    if samples < MIN_SAMPLES:
        count = round(percent / 100 * samples)
        return f" ({count} of only {format_count(samples, 'sample')})"
    return f" ({format_percent(percent)} of the samples)"
