"""The live view of ``run --live``: rows with a label, the value now, a picture as wide as there
is room, and a text.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby
from os import terminal_size
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.aggregation.container_usage import mean_vcpu_between
from profiler.aggregation.time_series import RunSeries
from profiler.core.background_call import start_thread
from profiler.core.optional_math import excess, first_known, known, known_values
from profiler.core.text import columns_of, printable, words_if_known
from profiler.core.timestamps import MS_PER_SECOND, NS_PER_MS, NS_PER_SECOND
from profiler.local_run.terminal_rows import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    BottomRows,
    Part,
    Row,
    bar,
)
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.sparkline import LEAST_MB, LEAST_VCPU, curve_top, draw_sparkline
from profiler.record.units import MIB, format_count, format_memory, format_part, format_vcpu

if TYPE_CHECKING:
    from profiler.record.family_statistics import UsualDuration
    from profiler.record.notice_model import NoticeLine

MAX_PICTURE_WIDTH = 96
_MIN_PICTURE_WIDTH = 16
_LABEL_WIDTH = 7
_VALUE_WIDTH = 10
# The pictures keep their width while the texts get a little longer and shorter.
_TEXT_WIDTH_STEP = 4
_MAX_NAME_CHARS = 24
_UNKNOWN = "-"
# The command may be sampled more often.
_MIN_DRAW_PAUSE_NS = NS_PER_SECOND // 4
# Shorter runs do not read the history. The read thus does not disturb the fine samples of the first
# seconds.
_USUAL_AFTER_NS = 2 * NS_PER_SECOND
# With fewer successes, or if some take several times as long as others, the time left would be a
# guess.
_MIN_USUAL_RUNS = 3
_MAX_P95_TO_MEDIAN = 3

ReadUsual = Callable[[], "UsualDuration | None"]


class NamedProcesses(Struct, frozen=True):
    """The running processes of one name."""

    name: str
    count: int
    vcpu: float
    memory_bytes: int


class LiveFigures(Struct, frozen=True, kw_only=True):
    """The contents of the rows; None is unknown.

    The courses cover the run so far, in vCPU and bytes.
    """

    elapsed_ms: float
    vcpu: float | None = None
    vcpu_course: Sequence[float | None] = ()
    vcpu_limit: float | None = None
    memory_bytes: float | None = None
    memory_digits: Sequence[float | None] = ()
    memory_limit_bytes: float | None = None
    threads: int | None = None
    processes: Sequence[NamedProcesses] = ()
    usual: "UsualDuration | None" = None
    notices: Sequence[str] = ()


def live_rows(figures: LiveFigures, terminal: terminal_size) -> list[Row]:
    """The rows that the terminal has room for, the most important ones first."""
    vcpu = words_if_known("{:.2f} vCPU", figures.vcpu) or _UNKNOWN
    used = first_known(known(_format_bytes, figures.memory_bytes), _UNKNOWN)
    course = figures.memory_digits
    limit_bytes = figures.memory_limit_bytes
    cpu_top, draw_cpu = _curve_text_and_drawing(
        figures.vcpu_course, figures.vcpu_limit, format_vcpu, YELLOW, LEAST_VCPU
    )
    memory_top, draw_memory = _curve_text_and_drawing(
        course, limit_bytes, _format_bytes, RED, LEAST_MB * MIB
    )
    notices = "  ".join(figures.notices)
    texts = f"{notices} {cpu_top}".lstrip(), memory_top, _time_text(figures)
    room = terminal.columns - _LABEL_WIDTH - _VALUE_WIDTH - 1
    width = min(
        room - -(-max(map(len, texts)) // _TEXT_WIDTH_STEP) * _TEXT_WIDTH_STEP, MAX_PICTURE_WIDTH
    )
    if width < _MIN_PICTURE_WIDTH:  # a narrow terminal has the curves alone
        texts = (notices, "", "")
        width = max(room - len(notices), 0)
    cpu_text, memory_text, time_text = texts
    rows: list[Row] = [
        (
            *_label_and_value("CPU", vcpu),
            *draw_cpu(width),
            (f" {notices}", RED),
            (cpu_text[len(notices) :], DIM),
        ),
        (*_label_and_value("Memory", used), *draw_memory(width), (f" {memory_text}", DIM)),
        _time_row(figures, width if time_text else 0),
        _processes_row(figures.processes, terminal.columns),
    ]
    return rows[: max(terminal.lines // 3, 1)]


def _label_and_value(label: str, value: str) -> tuple[Part, Part]:
    return (f"{label:<{_LABEL_WIDTH}}", BOLD), (f"{value:<{_VALUE_WIDTH}}", "")


def _curve_text_and_drawing(
    course: Sequence[float | None],
    limit: float | None,
    format_value: Callable[[float], str],
    limit_colour: str,
    least_top: float,
) -> tuple[str, Callable[[int], list[Part]]]:
    """The text for the top of a curve, its limit or its peak, and a function that draws the
    curve in a width.
    """
    peak = max(known_values(course), default=0.0)
    top, is_to_limit = curve_top(peak, limit, least_top)
    shown = format_value(top)
    if limit is not None and not is_to_limit:
        shown = format_part(shown, format_value(limit))
    if is_to_limit:
        name = "limit "
    elif peak == top:
        name = "peak "
    else:
        name = ""
    full_colour = limit_colour if is_to_limit else GREEN

    def draw(width: int) -> list[Part]:
        drawn = draw_sparkline(course, width=width, top=top)
        runs = groupby(f"{drawn:<{width}}", key=lambda character: character == "█")
        return [("".join(run), full_colour if is_full else GREEN) for is_full, run in runs]

    return f"▔ {name}{shown}", draw


def _format_bytes(size_bytes: float) -> str:
    return format_memory(size_bytes / MIB)


def _time_text(figures: LiveFigures) -> str:
    """The usual duration and what is left of it; empty if that is unknown."""
    elapsed_ms = figures.elapsed_ms
    usual = figures.usual
    if usual is None:
        return ""
    if usual.is_exceeded_by(elapsed_ms):
        return f"longer than usual (p95 {_clock_text(usual.p95_ms)})"
    about = f"of about {_clock_text(usual.median_ms)}"
    if elapsed_ms >= usual.median_ms:
        return about
    # Rounded as they are shown.
    left_seconds = usual.median_ms // MS_PER_SECOND - elapsed_ms // MS_PER_SECOND
    return f"{about}, {_clock_text(left_seconds * MS_PER_SECOND)} left"


def _time_row(figures: LiveFigures, bar_width: int) -> Row:
    """The elapsed time beside the usual one or, without it, beside the number of processes."""
    now = _clock_text(figures.elapsed_ms)
    usual = figures.usual
    head = _label_and_value("Time", now)
    text = _time_text(figures)
    if usual is None:
        return (*head, (_counts_text(figures), DIM))
    bar_colour = GREEN
    colour = DIM
    if usual.is_exceeded_by(figures.elapsed_ms):
        bar_colour = YELLOW
        colour = YELLOW
    if not bar_width:
        return head[0], (now, ""), (f" {text}", colour)
    share = figures.elapsed_ms / usual.median_ms if usual.median_ms else 1
    return *head, *bar(share, bar_colour, width=bar_width), (f" {text}", colour)


def _counts_text(figures: LiveFigures) -> str:
    """The numbers of processes and threads."""
    processes = sum(named.count for named in figures.processes)
    if not processes:
        return ""
    text = format_count(processes, "process")
    if figures.threads is not None:
        text += f", {format_count(figures.threads, 'thread')}"
    return text


def _clock_text(milliseconds: float) -> str:
    """Format as ``1:05`` or ``3:12:00``."""
    minutes, seconds = divmod(int(milliseconds / MS_PER_SECOND), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"


def _processes_row(processes: Sequence[NamedProcesses], columns: int) -> Row:
    """The programs that there is room for, at least one."""
    parts: list[Part] = [(f"{'Top':<{_LABEL_WIDTH}}", BOLD)]
    room = columns - _LABEL_WIDTH
    for named in processes:
        before = " · " if len(parts) > 1 else ""
        name = printable(named.name)
        if len(name) > _MAX_NAME_CHARS:
            name = name[: _MAX_NAME_CHARS - 1] + "…"
        count = f" ×{named.count}" if named.count > 1 else ""
        numbers = f"{count} {named.vcpu:.1f} vCPU {_format_bytes(named.memory_bytes)}"
        room -= len(before) + columns_of(name) + len(numbers)
        if room < 0 and before:
            break
        parts += ((before, DIM), (name, ""), (numbers, DIM))
    return parts


class LiveView:
    """Draws the run so far, at most four times a second.

    ``read_usual`` is called once, in a thread, and may hang.
    """

    def __init__(
        self,
        rows: BottomRows,
        sizes: ResourceLimits,
        started_ns: int,
        read_usual: ReadUsual | None = None,
    ) -> None:
        self._rows = rows
        self._sizes = sizes
        self._started_ns = started_ns
        self._read_usual = read_usual
        self._usual: UsualDuration | None = None
        self._course = RunSeries(started_ns, NS_PER_SECOND // 50, MAX_PICTURE_WIDTH)
        self._last = ContainerSample(read_ns=started_ns, cpu_ns=0)
        self._drawn = self._last
        self._drawn_cpu_ns: Mapping[tuple[int, int], int] = {}
        self._notices: tuple[str, ...] = ()

    def on_sample(self, sample: ContainerSample, processes: Sequence[ProcessReading]) -> None:
        """Count a sample and its processes, and draw if the next drawing is due."""
        last = self._last
        self._last = sample
        used_ns = excess(sample.cpu_ns, last.cpu_ns)
        if used_ns is not None:
            self._course.add_cpu(last.read_ns, sample.read_ns, used_ns)
        if sample.memory_used_bytes is not None:
            held_ns = max(sample.read_ns - last.read_ns, 0)
            self._course.add_memory(sample.read_ns, sample.memory_used_bytes, held_ns=held_ns)
        if self._read_usual is not None and sample.read_ns - self._started_ns >= _USUAL_AFTER_NS:
            read = self._read_usual
            self._read_usual = None
            start_thread(
                threading.Thread(
                    target=lambda: self._keep_usual(read), name="usual-duration", daemon=True
                )
            )
        if sample.read_ns - self._drawn.read_ns >= _MIN_DRAW_PAUSE_NS:
            figures = self._figures(sample, processes)
            self._rows.draw(lambda terminal: live_rows(figures, terminal))
            self._drawn = sample
            self._drawn_cpu_ns = {process.identity: process.own_cpu_ns for process in processes}

    def on_notice(self, line: "NoticeLine") -> None:
        kind = line.notice.kind
        self._notices = (*self._notices, "memory runs out" if kind == "memory" else kind)

    def close(self) -> None:
        self._rows.close()

    def _keep_usual(self, read_usual: ReadUsual) -> None:
        """Read the usual duration, and keep it if it says something about this run."""
        usual = read_usual()
        if usual is None or usual.runs < _MIN_USUAL_RUNS:
            return
        if usual.p95_ms <= _MAX_P95_TO_MEDIAN * usual.median_ms:
            self._usual = usual

    def _figures(self, sample: ContainerSample, processes: Sequence[ProcessReading]) -> LiveFigures:
        elapsed_ns = sample.read_ns - self._drawn.read_ns
        return LiveFigures(
            elapsed_ms=(sample.read_ns - self._started_ns) / NS_PER_MS,
            vcpu=mean_vcpu_between(self._drawn, sample),
            vcpu_course=[
                used_ns / covered_ns if covered_ns else None
                for used_ns, covered_ns in self._course.cpu.cells
            ],
            vcpu_limit=self._sizes.vcpu,
            memory_bytes=sample.memory_used_bytes,
            memory_digits=self._course.memory.cells,
            memory_limit_bytes=self._sizes.memory_bytes,
            threads=sample.pids,
            processes=top_processes(processes, self._drawn_cpu_ns, elapsed_ns),
            usual=self._usual,
            notices=self._notices,
        )


def top_processes(
    processes: Sequence[ProcessReading],
    before_cpu_ns: Mapping[tuple[int, int], int],
    elapsed_ns: int,
) -> list[NamedProcesses]:
    """The processes by name, by CPU and by memory alternately.

    ``before_cpu_ns``: the CPU times ``elapsed_ns`` ago.
    """
    totals: dict[str, tuple[int, int, int]] = {}
    for process in processes:
        if process.share_bytes is None:  # a zombie
            continue
        count, cpu_ns, memory_bytes = totals.get(process.name, (0, 0, 0))
        used_ns = max(process.own_cpu_ns - before_cpu_ns.get(process.identity, 0), 0)
        totals[process.name] = count + 1, cpu_ns + used_ns, memory_bytes + process.share_bytes
    named = [
        NamedProcesses(name, count, cpu_ns / max(elapsed_ns, 1), memory_bytes)
        for name, (count, cpu_ns, memory_bytes) in totals.items()
    ]
    by_cpu = sorted(named, key=lambda processes: -processes.vcpu)
    by_memory = sorted(named, key=lambda processes: -processes.memory_bytes)
    largest = {
        processes.name: processes
        for processes in chain.from_iterable(zip(by_cpu, by_memory, strict=True))
    }
    return list(largest.values())
