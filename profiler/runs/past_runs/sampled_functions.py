"""What ran in the moments in which call stacks were sampled, in a few words."""

import re
import sys
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.record.activity_model import StackMoment
from profiler.record.record_model import Record
from profiler.record.units import format_count, format_percent

_MAX_NAME_LENGTH = 40
# A stack in fewer samples than this has its share in brackets.
_MOST_PERCENT = 90
# A share of fewer samples is random.
MIN_SAMPLES = 10
_FRAME = re.compile(r"(?P<name>.*) \((?P<file>.*?)(?P<line>:\d+)?\)", re.DOTALL)


class Frame(Struct, frozen=True):
    """A function of a call stack, its file, and whether it is the user's own code."""

    name: str
    file: str
    is_own: bool

    @property
    def short_name(self) -> str:
        """The function, or the file of code outside functions."""
        is_file = self.name == "<module>" and self.file
        name = self.file.rpartition("/")[2] if is_file else self.name.rpartition("<locals>.")[2]
        return name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 1] + "…"


def frame_of(text: str, own_files: Collection[str] | None = None) -> Frame:
    """The function in a text like ``load_orders (etl/load.py:40)``, with or without the line.

    ``own_files`` are the files of the user's code. In a record of schema 1.2 or earlier they are unknown (None): the
    short name of a file is a guess, because it does not show whether the file is a package's.
    """
    found = _FRAME.fullmatch(text)
    name, file = (text, "") if found is None else (found["name"], found["file"])
    if own_files is not None:
        return Frame(name, file, file in own_files)
    module = file.partition("/")[0].removesuffix(".py")
    return Frame(name, file, not file.startswith("<frozen") and module not in sys.stdlib_module_names)


def frames_of(moment: StackMoment) -> list[Frame]:
    """The functions of a moment's stack, from the outermost on."""
    frames = [frame_of(text) for text in moment.stack]
    if len(moment.own) != len(frames):
        return frames
    return [replace(frame, is_own=is_own) for frame, is_own in zip(frames, moment.own, strict=True)]


def what_ran(frames: Sequence[Frame]) -> str:
    """The innermost two own functions, followed by the innermost function if it belongs to other code."""
    own = [frame for frame in frames if frame.is_own]
    # Code without its own name, a module, a comprehension or a lambda, ends with >.
    shown = ([frame for frame in own if not frame.name.endswith(">")] or own)[-2:]
    if frames and not frames[-1].is_own:
        shown.append(frames[-1])
    return " → ".join(dict.fromkeys(frame.short_name for frame in shown))


class SampledStack(Struct, frozen=True, kw_only=True):
    """The functions of a moment, with its time in milliseconds after the start of the run."""

    kind: str
    start_ms: float
    end_ms: float
    functions: str
    share: str
    is_in_socket: bool


def sampled_stacks(record: Record) -> Iterator[SampledStack]:
    """The functions of the moments of a run whose times are known."""
    started_ns = parse_ns(record.started_at)
    if record.stacks is None or started_ns is None:
        return
    for moment in record.stacks.moments[:5]:
        from_ns, functions, share = parse_ns(moment.from_at), what_ran(frames_of(moment)), _share(moment)
        if from_ns is None or not functions:
            continue
        start_ms = max((from_ns - started_ns) / NS_PER_MS, 0)
        to_ns = parse_ns(moment.to_at)
        yield SampledStack(
            kind=moment.kind,
            start_ms=start_ms,
            end_ms=start_ms if to_ns is None else max((to_ns - started_ns) / NS_PER_MS, start_ms),
            functions=functions,
            share=share,
            is_in_socket=not share and frame_of(moment.stack[-1]).file in {"socket.py", "ssl.py"},
        )


def _share(moment: StackMoment) -> str:
    percent = moment.percent
    if percent is None or percent >= _MOST_PERCENT:
        return ""
    if moment.samples is not None and moment.samples < MIN_SAMPLES:
        return f" ({round(percent / 100 * moment.samples)} of only {format_count(moment.samples, 'sample')})"
    return f" ({format_percent(percent)} of the samples)"


def peer_waited_for(record: Record, stack: SampledStack, length_ms: float) -> str | None:
    """The address that an idle stretch waited for; None unless the record shows it.

    The time breakdown covers the whole run. It shows the peer of a stretch if all other waits of the run together are
    shorter than the stretch; of a stretch in a socket, all that are or may be waits for the network.
    """
    times, duration_ms = record.time_breakdown, record.metrics.duration_ms
    peers = [] if times is None else [one for one in times.waiting_for if one.kind == "network" and ":" in one.target]
    if times is None or not peers or not duration_ms:
        return None
    largest = max(peers, key=lambda peer: peer.percent)
    if stack.is_in_socket and times.network_percent is not None:
        waits = times.network_percent + (times.other_percent or 0)
    else:
        waits = 100 - (times.on_cpu_percent or 0) - (times.waiting_for_cpu_percent or 0)
    return largest.target if (waits - largest.percent) / 100 * duration_ms < length_ms else None
