"""The rows of ``run --live``: CPU and memory over the run so far, the time left, and the largest processes.

The rows have the same columns: a label, the value now, a picture as wide as there is room, and a text.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.core.text import columns_of, printable
from profiler.local_run.terminal_rows import BOLD, DIM, GREEN, RED, YELLOW, Part, Row, Terminal, bar
from profiler.record.sparkline import LEAST_VCPU, curve_top, sparkline
from profiler.record.units import MIB, format_count, format_memory, format_vcpu

if TYPE_CHECKING:
    from profiler.past_runs.usual_times import UsualDuration

MAX_PICTURE_WIDTH = 96
_MIN_PICTURE_WIDTH = 16
_LABEL_WIDTH, _VALUE_WIDTH = 7, 10
# The pictures keep their width while the texts get a little longer and shorter.
_TEXT_WIDTH_STEP = 4
# The rows take at most a third of the terminal.
_MAX_SHARE = 3
_MAX_NAME_CHARS = 24
_UNKNOWN = "-"
_MS_PER_SECOND = 1000


class NamedProcesses(Struct, frozen=True):
    """The running processes of one name."""

    name: str
    count: int
    vcpu: float
    memory_bytes: int


class LiveFigures(Struct, frozen=True, kw_only=True):
    """What the rows show; None is unknown. The courses are those of the run so far, in vCPU and bytes."""

    elapsed_ms: float
    vcpu: float | None = None
    vcpu_course: Sequence[float | None] = ()
    vcpu_limit: float | None = None
    memory_bytes: float | None = None
    memory_course: Sequence[float | None] = ()
    memory_limit_bytes: float | None = None
    threads: int | None = None
    processes: Sequence[NamedProcesses] = ()
    usual: "UsualDuration | None" = None
    notices: Sequence[str] = ()


class _Glyphs(Struct, frozen=True):
    full: str
    top: str
    times: str
    dot: str
    ellipsis: str
    is_ascii: bool = False


_BLOCKS = _Glyphs("█", "▔", "×", " · ", "…")
_ASCII = _Glyphs("#", "^", "x", ", ", "...", is_ascii=True)

# Texts for the right side of a row, the longest first: the first one that fits is shown.
_Texts = tuple[str, str, str]


def live_rows(figures: LiveFigures, terminal: Terminal, *, ascii_only: bool) -> list[Row]:
    """The rows that the terminal has room for, the most important ones first."""
    glyphs = _ASCII if ascii_only else _BLOCKS
    cpu = _Curve("CPU", figures.vcpu_course, figures.vcpu_limit, format_vcpu, limit_colour=YELLOW, least_top=LEAST_VCPU)
    memory = _Curve("Memory", figures.memory_course, figures.memory_limit_bytes, _format_bytes, limit_colour=RED)
    notices = "  ".join(figures.notices)
    cpu_texts = cpu.texts(glyphs)
    cpu_texts = (f"{notices} {cpu_texts[0]}", f"{notices} {cpu_texts[2]}", notices) if notices else cpu_texts
    texts = cpu_texts, memory.texts(glyphs), (_time_text(figures), "", "")
    width, level = _picture_width(texts, terminal.columns)
    vcpu = _UNKNOWN if figures.vcpu is None else f"{figures.vcpu:.2f} vCPU"
    memory_now = _UNKNOWN if figures.memory_bytes is None else _format_bytes(figures.memory_bytes)
    cpu_text, memory_text, time_text = (of_row[level] for of_row in texts)
    rows: list[Row] = [
        (*cpu.parts(vcpu, width, glyphs), (f" {notices}", RED), (cpu_text[len(notices) :], DIM)),
        (*memory.parts(memory_now, width, glyphs), (f" {memory_text}", DIM)),
        _time_row(figures, width if time_text else 0, terminal.columns, glyphs),
        _processes_row(figures.processes, terminal.columns, glyphs),
    ]
    return rows[: max(terminal.rows // _MAX_SHARE, 1)]


def _picture_width(texts: Sequence[_Texts], columns: int) -> tuple[int, int]:
    """The width of the pictures, and which texts leave room for it."""
    room = columns - _LABEL_WIDTH - _VALUE_WIDTH - 1
    for level in range(2):
        longest = -(-max(len(of_row[level]) for of_row in texts) // _TEXT_WIDTH_STEP) * _TEXT_WIDTH_STEP
        if room - longest >= _MIN_PICTURE_WIDTH:
            return min(room - longest, MAX_PICTURE_WIDTH), level
    return max(room - max(len(of_row[2]) for of_row in texts), 0), 2


def _head(label: str, value: str) -> tuple[Part, Part]:
    return (f"{label:<{_LABEL_WIDTH}}", BOLD), (f"{value:<{_VALUE_WIDTH}}", "")


class _Curve:
    """A course and its scale."""

    def __init__(
        self,
        label: str,
        course: Sequence[float | None],
        limit: float | None,
        format_value: Callable[[float], str],
        *,
        limit_colour: str,
        least_top: float = 0.0,
    ) -> None:
        self._label = label
        self._course = course
        self._limit = limit
        self._format = format_value
        self._peak = max((value for value in course if value is not None), default=0.0)
        self._top, self._is_to_limit = curve_top(max(self._peak, least_top), limit)
        self._limit_colour = limit_colour if self._is_to_limit else GREEN

    def texts(self, glyphs: _Glyphs) -> _Texts:
        """What the top of the curve is: the limit, or the peak if that is far below the limit."""
        top = self._format(self._top)
        if self._limit is None or self._is_to_limit:
            shown = top
        else:
            number, _, unit = top.partition(" ")
            limit = self._format(self._limit)
            shown = f"{number if limit.endswith(f' {unit}') else top} of {limit}"
        name = "limit " if self._is_to_limit else "peak " if self._peak == self._top else ""
        return f"{glyphs.top} {name}{shown}", f"{glyphs.top} {shown}", f"{glyphs.top} {top}"

    def parts(self, value: str, width: int, glyphs: _Glyphs) -> list[Part]:
        """The label, the value and the curve; what is at the limit has another colour."""
        drawn = sparkline(self._course, width=width, top=self._top, ascii_only=glyphs.is_ascii)
        runs = groupby(f"{drawn:<{width}}", key=lambda character: character == glyphs.full)
        return [
            *_head(self._label, value),
            *(("".join(run), self._limit_colour if is_full else GREEN) for is_full, run in runs),
        ]


def _format_bytes(size_bytes: float) -> str:
    return format_memory(size_bytes / MIB)


def _time_text(figures: LiveFigures) -> str:
    """How long the run takes compared with the usual."""
    elapsed_ms, usual = figures.elapsed_ms, figures.usual
    if usual is None:
        return ""
    if elapsed_ms > usual.p95_ms:
        return f"longer than usual (p95 {_clock(usual.p95_ms)})"
    about = f"of about {_clock(usual.median_ms)}"
    if elapsed_ms >= usual.median_ms:
        return about
    left_seconds = usual.median_ms // _MS_PER_SECOND - elapsed_ms // _MS_PER_SECOND  # of what is shown
    return f"{about}, {_clock(left_seconds * _MS_PER_SECOND)} left"


def _time_row(figures: LiveFigures, bar_width: int, columns: int, glyphs: _Glyphs) -> Row:
    now, usual = _clock(figures.elapsed_ms), figures.usual
    head, text = _head("Time", now), _time_text(figures)
    if usual is None:
        return (*head, (_counts(figures), DIM))
    bar_colour, colour = (YELLOW, YELLOW) if figures.elapsed_ms > usual.p95_ms else (GREEN, DIM)
    if bar_width:
        share = figures.elapsed_ms / usual.median_ms if usual.median_ms else 1
        return (
            *head,
            *bar(share, bar_colour, width=bar_width, ascii_only=glyphs.is_ascii),
            (f" {text}", colour),
        )
    if len(shown := f" {text}") > columns - _LABEL_WIDTH - len(now):
        shown = f", {text.rpartition(', ')[2].partition(' (')[0]}"
    return head[0], (now, ""), (shown, colour)


def _clock(milliseconds: float) -> str:
    """Format as ``1:05`` or ``3:12:00``."""
    minutes, seconds = divmod(int(milliseconds / _MS_PER_SECOND), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _counts(figures: LiveFigures) -> str:
    processes = sum(named.count for named in figures.processes)
    threads = "" if figures.threads is None else f", {format_count(figures.threads, 'thread')}"
    return f"{processes} process{'' if processes == 1 else 'es'}{threads}" if processes else ""


def _processes_row(processes: Sequence[NamedProcesses], columns: int, glyphs: _Glyphs) -> Row:
    """As many of the processes as fit."""
    parts: list[Part] = [(f"{'Top':<{_LABEL_WIDTH}}", BOLD)]
    room = columns - _LABEL_WIDTH
    for named in processes:
        before = glyphs.dot if len(parts) > 1 else ""
        name, numbers = _entry(named, glyphs)
        room -= len(before) + columns_of(name) + len(numbers)
        if room < 0 and before:
            break
        parts += ((before, DIM), (name, ""), (numbers, DIM))
    return parts


def _entry(named: NamedProcesses, glyphs: _Glyphs) -> tuple[str, str]:
    name = printable(named.name)
    if len(name) > _MAX_NAME_CHARS:
        name = name[: _MAX_NAME_CHARS - len(glyphs.ellipsis)] + glyphs.ellipsis
    count = f" {glyphs.times}{named.count}" if named.count > 1 else ""
    return name, f"{count} {named.vcpu:.1f} vCPU {_format_bytes(named.memory_bytes)}"
