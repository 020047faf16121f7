"""What ran in the moments in which call stacks were sampled, in a few words."""

import re
import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct

from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.record.activity_model import StackMoment, TimeBreakdown
from profiler.record.record_model import Record

_MAX_MOMENTS = 5
_MAX_OWN_FUNCTIONS = 2
_MAX_NAME_LENGTH = 40
_MODULE = "<module>"
# Ends the name of code without a name of its own: a module, a comprehension, a lambda.
_UNNAMED = ">"
_INNER = "<locals>."
_ARROW = " → "
_PERCENT = 100
# A stack in fewer samples than this has its share in brackets.
_MOST_PERCENT = 90
# A call in a socket waits for the peer that has this share of all waits for the network.
_NEARLY_ALL = 0.8
_SOCKET_MODULES = frozenset({"socket.py", "ssl.py"})
_FRAME = re.compile(r"(?P<name>.*) \((?P<file>.*?)(?P<line>:\d+)?\)", re.DOTALL)
_PACKAGES = re.compile(r"(^|/)(site-packages|dist-packages|lib\d*/python\d[^/]*)/")
_PACKAGES_FOLDER = re.compile(r"(^|\()[^()]*?\b(?:site-packages|dist-packages)/")
_FROZEN = "<frozen"


class Frame(Struct, frozen=True):
    """A function of a call stack and its file."""

    name: str
    file: str

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own code, and not of Python or of a package."""
        top = self.file.partition("/")[0].removesuffix(".py")
        is_known = self.file.startswith(_FROZEN) or top in sys.stdlib_module_names
        return not is_known and _PACKAGES.search(self.file) is None

    @property
    def short_name(self) -> str:
        """The function, or the file of code outside functions."""
        is_file = self.name == _MODULE and self.file
        name = self.file.rpartition("/")[2] if is_file else self.name.rpartition(_INNER)[2]
        return name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 1] + "…"


def frame_of(text: str) -> Frame:
    """The function in a text like ``load_orders (etl/load.py:40)``, with or without the line."""
    found = _FRAME.fullmatch(text)
    return Frame(text, "") if found is None else Frame(found["name"], found["file"])


def without_packages_folder(text: str) -> str:
    """A function's text, or a file, without the folder of packages in which the file is."""
    return _PACKAGES_FOLDER.sub(r"\1", text)


def what_ran(stack: Sequence[str]) -> str:
    """The innermost own functions, followed by the innermost function if that is another one's."""
    frames = [frame_of(text) for text in stack]
    own = [frame for frame in frames if frame.is_own]
    shown = ([frame for frame in own if not frame.name.endswith(_UNNAMED)] or own)[-_MAX_OWN_FUNCTIONS:]
    if frames and not frames[-1].is_own:
        shown.append(frames[-1])
    return _ARROW.join(dict.fromkeys(frame.short_name for frame in shown))


class SampledStack(Struct, frozen=True, kw_only=True):
    """What ran in a moment, in milliseconds after the start of the run."""

    kind: str
    start_ms: float
    end_ms: float
    functions: str
    share: str
    is_in_socket: bool


def sampled_stacks(record: Record) -> Iterator[SampledStack]:
    """What ran in the moments of a run whose times are known."""
    started_ns = parse_ns(record.started_at)
    if record.stacks is None or started_ns is None:
        return
    for moment in record.stacks.moments[:_MAX_MOMENTS]:
        from_ns, functions = parse_ns(moment.from_at), what_ran(moment.stack)
        if from_ns is None or not functions:
            continue
        start_ms = max((from_ns - started_ns) / NS_PER_MS, 0)
        to_ns = parse_ns(moment.to_at)
        yield SampledStack(
            kind=moment.kind,
            start_ms=start_ms,
            end_ms=start_ms if to_ns is None else max((to_ns - started_ns) / NS_PER_MS, start_ms),
            functions=functions,
            share=_share(moment),
            is_in_socket=frame_of(moment.stack[-1]).file in _SOCKET_MODULES,
        )


def _share(moment: StackMoment) -> str:
    percent = moment.percent
    return "" if percent is None or percent >= _MOST_PERCENT else f" ({percent:.0f} % of the samples)"


def peer_waited_for(record: Record, stack: SampledStack, length_ms: float) -> str | None:
    """The address that an idle stretch waited for; None unless the record shows it.

    The time breakdown is that of the whole run. It shows the peer of a stretch if a call in a socket can hardly be one
    to another peer, or if all other waits of the run together are shorter than the stretch.
    """
    times, duration_ms = record.time_breakdown, record.metrics.duration_ms
    peers = [] if times is None else [one for one in times.waiting_for if one.kind == "network" and ":" in one.target]
    if times is None or not peers or not duration_ms:
        return None
    largest = max(peers, key=lambda peer: peer.percent)
    if stack.is_in_socket:
        is_shown = largest.percent >= _NEARLY_ALL * (times.network_percent or _PERCENT)
    else:
        is_shown = (_blocked_percent(times) - largest.percent) / _PERCENT * duration_ms < length_ms
    return largest.target if is_shown else None


def _blocked_percent(times: TimeBreakdown) -> float:
    return _PERCENT - (times.on_cpu_percent or 0) - (times.waiting_for_cpu_percent or 0)
