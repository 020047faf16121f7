"""The end of ``run`` on a terminal: what happened, what the command used, where its time went, and what to do.

Nothing is wrapped into more lines than the page has, and no number is cut: a narrow terminal gets shorter texts.
"""

import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.cli.charts.series_curve import Curve, percent_text
from profiler.cli.charts.time_lines import longest_waits, short_legend, time_bar, wait_name
from profiler.cli.run_end.changes import change_spans
from profiler.cli.run_end.next_step import next_step
from profiler.cli.styled_text import INDENT, Glyphs, Line, Span, line, shorten, wrapped
from profiler.core.text import columns_of, printable
from profiler.past_runs.run_source import PastRun
from profiler.past_runs.verdict_sentence import Verdict, verdict_of
from profiler.record.activity_model import WaitTarget
from profiler.record.hardware import gpu_totals
from profiler.record.record_model import Metrics, Record, Report, Series, known_status
from profiler.record.run_outcome import SIGKILL_EXIT_CODE
from profiler.record.sparkline import LEAST_VCPU
from profiler.record.units import MIB, format_duration, format_memory, format_vcpu

MAX_LINES = 8
# Below _LEAST_WIDTH columns, what is too long is cut.
_LEAST_WIDTH, MAX_WIDTH = 40, 120
_LABEL_WIDTH = 8
_CURVE_SHARE = 0.36
_MIN_CURVE, _MAX_CURVE = 12, 60
_ID_LENGTH = 8
# A longer text is cut.
_MAX_WRAPPED = 3
_PERCENT = 100
_MEMORY = "Memory"
# A peak this much above every reading lasted shorter than the time between two of them.
_SPIKE, _MIN_SPIKE_MB = 1.25, 10
_MIN_WAIT_PERCENT = 10
_MIN_IO_BYTES = MIB
_MS_PER_SECOND = 1000


class EndView(Struct, frozen=True, kw_only=True):
    """What the end is drawn for.

    Attributes:
        width: The columns of the terminal.
        glyphs: The characters that it shows.
        now_ns: The time now.
        max_lines: How many lines there may be.
        history: The options by which ``show`` finds the run in the history, usually none; None: it is in no history.
    """

    width: int
    glyphs: Glyphs
    now_ns: int
    max_lines: int = MAX_LINES
    history: Sequence[str] | None = ()


class _Part(Struct, frozen=True):
    """Lines of the page. Those with the highest rank are left out first."""

    rank: int
    lines: tuple[Line, ...]


def end_lines(report: Report, last: Record | None, view: EndView) -> list[Line]:
    """Draw the end of a run. ``last`` is the last success of its family, if it can be compared."""
    record, columns = report.record, view.width
    view = replace(view, width=max(columns, _LEAST_WIDTH))
    verdict = verdict_of(PastRun(report=report), view.now_ns)
    pointer = _command("show", record.task_id[:_ID_LENGTH], view) if _has_curves(record.series) else ""
    head = _head(verdict, record, pointer, view)
    has_pointer = any(pointer in span.text for row in head for span in row)
    waits = [] if record.time_breakdown is None else longest_waits(record.time_breakdown)
    # With options the sentence would be too long.
    recommend = "" if view.history else _command("recommend", record.family or "", view)
    advice = next_step(record, waits, view.glyphs, recommend)
    parts = [
        _Part(0, head),
        _Part(1, _evidence(verdict, record, view)),
        _Part(4, _warning(record, view)),
        *_usage(record, view),
        _Part(6, () if advice is not None and advice.names_wait else _labelled("waits", _waits(waits, view), view)),
        _Part(7, _labelled("I/O", _io(record.metrics, view.glyphs), view)),
        _Part(5, _change(record, last, view)),
        _Part(3, () if advice is None else _wrapped("advice", advice.text, view)),
        _Part(8, () if has_pointer else _labelled("more", pointer, view)),
    ]
    return [_cut(row, columns, view.glyphs) for row in _fitting(parts, view.max_lines)]


def _command(name: str, argument: str, view: EndView) -> str:
    """A command for more about the run; "" for a run that is in no history, or if it does not fit on a line."""
    command = "" if view.history is None else f"task-profiler {name} {shlex.join((argument, *view.history))}"
    return command if len(INDENT) + _LABEL_WIDTH + len(command) <= view.width else ""


def _fitting(parts: Sequence[_Part], max_lines: int) -> list[Line]:
    """The lines in their order; those of the highest rank are left out if there are too many."""
    shown: set[int] = set()
    for place in sorted(range(len(parts)), key=lambda place: parts[place].rank):
        if len(parts[place].lines) <= max_lines:
            max_lines -= len(parts[place].lines)
            shown.add(place)
    return [row for place, part in enumerate(parts) if place in shown for row in part.lines]


def _cut(row: Line, columns: int, glyphs: Glyphs) -> Line:
    """The line without what the terminal would wrap."""
    if columns_of("".join(span.text for span in row)) <= columns:
        return row
    left = columns - len(glyphs.ellipsis)
    spans: list[Span] = []
    for span in row:
        text = span.text
        while text and columns_of(text) > left:
            text = text[:-1]
        left -= columns_of(text)
        spans.append(Span(text, span.style))
        if text != span.text:
            break
    return (*spans, Span(glyphs.ellipsis))


def _head(verdict: Verdict, record: Record, pointer: str, view: EndView) -> tuple[Line, ...]:
    """The verdict, and what else fits on its line: memory of a run without a curve, CPU time, how to see more."""
    dot, separator = view.glyphs.dot, view.glyphs.separator
    text = printable(verdict.text.removesuffix("."))
    first, *more = _rows(text, f"{dot} ", view, verdict.tone)[:_MAX_WRAPPED]
    room = view.width - columns_of(f"{dot} {text}")
    ends = []
    for texts in (_peak_alone(record, view.glyphs), _cpu_time(record.metrics)):
        fact = next((separator + text for text in texts if len(separator) + len(text) <= room), "")
        room -= len(fact)
        ends.append(Span(fact))
    if pointer and len(pointer) < room - 1:
        ends.append(Span(pointer.rjust(room), "dim"))
    return (line(Span(first[0].text, verdict.tone), *first[1:], *ends), *more)


def _evidence(verdict: Verdict, record: Record, view: EndView) -> tuple[Line, ...]:
    """How the verdict is known, if that is not obvious."""
    is_kill = record.likely_out_of_memory or record.exit_code == SIGKILL_EXIT_CODE
    if verdict.evidence is None or not (is_kill or known_status(record) in ("stopped", "unknown")):
        return ()
    return _rows(verdict.evidence, INDENT, view)[:_MAX_WRAPPED]


def _cpu_time(metrics: Metrics) -> tuple[str, ...]:
    seconds = metrics.cpu_seconds
    return () if seconds is None else (f"{format_duration(seconds * _MS_PER_SECOND)} of CPU time",)


def _peak_alone(record: Record, glyphs: Glyphs) -> tuple[str, ...]:
    """The memory peak of a run that was too short for a curve."""
    metrics = record.metrics
    if metrics.max_memory_used_mb is None or _has_curves(record.series):
        return ()
    peak = f"memory peak {_at_least(metrics, glyphs)}{format_memory(metrics.max_memory_used_mb)}"
    return (f"{peak} of {format_memory(metrics.memory_size_mb)}", peak) if metrics.memory_size_mb else (peak,)


def _has_curves(series: Series | None) -> bool:
    columns = () if series is None else (series.vcpu_used, series.memory_used_mb)
    return any(value is not None for column in columns for value in column or ())


def _at_least(metrics: Metrics, glyphs: Glyphs) -> str:
    """Before a peak that is only the highest reading."""
    return "" if metrics.memory_peak_source == "kernel" else glyphs.at_least


def _warning(record: Record, view: EndView) -> tuple[Line, ...]:
    warnings = () if record.monitor is None else record.monitor.warnings
    more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
    return _wrapped("warning", warnings[0] + more, view) if warnings else ()


def _usage(record: Record, view: EndView) -> Iterator[_Part]:
    """The curves with their limits, and the bar of the time below them."""
    available = view.width - len(INDENT) - _LABEL_WIDTH - 1
    curve_width = min(max(int(available * _CURVE_SHARE), _MIN_CURVE), _MAX_CURVE)
    room = available - curve_width
    rows = [
        (curve, next((text for text in texts if len(text) <= room), shorten(texts[-1], room, view.glyphs)))
        for curve, texts in _curves(record, view.glyphs)
        if curve.is_measured
    ]
    times = record.time_breakdown
    legend = () if times is None else short_legend(times, room, view.glyphs)
    longest = max((*(len(text) for _, text in rows), sum(len(span.text) for span in legend)), default=0)
    curve_width = min(available - longest, _MAX_CURVE)
    for number, (curve, text) in enumerate(rows):
        drawn = f"{curve.drawn(curve_width, view.glyphs)} "
        style = "red" if curve.label == _MEMORY and curve.is_near_limit else "green"
        yield _Part(2 + (number > 1), (line(_label(curve.label, "bold"), Span(drawn, style), text),))
    if times is not None and legend:
        bar = time_bar(times, curve_width, view.glyphs)
        yield _Part(4, (line(_label("Time", "bold"), *bar, " ", *legend),))


def _curves(record: Record, glyphs: Glyphs) -> Iterator[tuple[Curve, Sequence[str]]]:
    """The curves, each with its text for people, from the longest to the shortest."""
    metrics, series = record.metrics, record.series
    if series is None:
        return
    cpu = Curve("CPU", series.vcpu_used, metrics.vcpu_size, format_vcpu, least_top=LEAST_VCPU)
    top = cpu.limit_text(glyphs).replace(" vCPU of", " of")
    if cpu.is_to_limit:
        top = top.replace(glyphs.limit, f"{glyphs.limit} limit")
    average = None if metrics.vcpu_used is None else metrics.vcpu_used.avg
    yield cpu, _with_details(top, () if average is None else (f"average {_vcpu_text(average)}",))
    peak_mb, size_mb = metrics.max_memory_used_mb, metrics.memory_size_mb
    memory = Curve(_MEMORY, series.memory_used_mb, size_mb, format_memory, peak=peak_mb)
    yield memory, _memory_texts(memory, metrics, glyphs)
    gpus = gpu_totals(record.gpus)
    gpu_average = None if gpus is None else gpus.utilization_percent.avg
    yield (
        Curve("GPU", series.gpu_utilization_percent, _PERCENT, percent_text),
        _with_details(
            f"{glyphs.limit} 100 %", () if gpu_average is None else (f"average {percent_text(gpu_average)}",)
        ),
    )


def _vcpu_text(vcpu: float) -> str:
    text = format_vcpu(vcpu).removesuffix(" vCPU")
    return "below 0.01" if text == "0" else text


def _with_details(text: str, details: Sequence[str]) -> tuple[str, ...]:
    return tuple(", ".join((text, *details[:count])) for count in range(len(details), -1, -1))


def _memory_texts(curve: Curve, metrics: Metrics, glyphs: Glyphs) -> tuple[str, ...]:
    """The peak, its share of the limit, and the value at the top of the curve."""
    peak_mb, size_mb = metrics.max_memory_used_mb, metrics.memory_size_mb
    if peak_mb is None:
        return (curve.limit_text(glyphs),)
    peak = f"{_at_least(metrics, glyphs)}{format_memory(peak_mb)}"
    share = "" if not size_mb or peak_mb < size_mb / _PERCENT else f"{_PERCENT * peak_mb / size_mb:.0f} %"
    highest = max(curve.known, default=peak_mb)
    spike = " (short spike)" if peak_mb > max(_SPIKE * highest, highest + _MIN_SPIKE_MB) else ""
    if curve.is_to_limit and size_mb:
        limit, text = format_memory(size_mb), f"peak {peak} ({share})"
        return (
            f"{glyphs.limit} limit {limit}, {text}{spike}",
            f"{glyphs.limit} limit {limit}, {text}",
            f"{glyphs.limit} {limit}, {text}",
            f"{glyphs.limit} {limit}, peak {share}",
        )
    top = f"{glyphs.limit} peak {peak}"
    of_size = f"{share and ', '}{share} of {format_memory(size_mb)}" if size_mb else ""
    return (f"{top}{of_size}{spike}", f"{top}{of_size}", top)


def _waits(waits: Sequence[WaitTarget], view: EndView) -> str:
    return view.glyphs.separator.join(
        f"{min(wait.percent, _PERCENT):.0f} % {wait_name(wait)}" for wait in waits if wait.percent >= _MIN_WAIT_PERCENT
    )


def _io(metrics: Metrics, glyphs: Glyphs) -> str:
    """What was read from disk and written to it, if it is worth a line."""
    amounts = (("read", metrics.block_read_bytes), ("wrote", metrics.block_write_bytes))
    return glyphs.separator.join(
        f"{verb} {format_memory(size / MIB)}" for verb, size in amounts if size is not None and size >= _MIN_IO_BYTES
    )


def _change(record: Record, last: Record | None, view: EndView) -> tuple[Line, ...]:
    width = view.width - len(INDENT) - _LABEL_WIDTH
    spans = () if last is None else change_spans(record, last, view.now_ns, width, view.glyphs)
    return (line(_label("change", "dim"), *spans),) if spans else ()


def _label(label: str, style: str) -> Span:
    return Span(f"{INDENT}{label:<{_LABEL_WIDTH}}", style)


def _labelled(label: str, text: str, view: EndView) -> tuple[Line, ...]:
    """One line, cut if it is too long; none without a text."""
    room = view.width - len(INDENT) - _LABEL_WIDTH
    return (line(_label(label, "dim"), shorten(printable(text), room, view.glyphs)),) if text else ()


def _wrapped(label: str, text: str, view: EndView) -> tuple[Line, ...]:
    rows = _rows(text, f"{INDENT}{label:<{_LABEL_WIDTH}}", view)
    if not rows:
        return ()
    first = line(_label(label, "dim"), *rows[0][1:])
    if len(rows) <= _MAX_WRAPPED:
        return first, *rows[1:]
    rest = " ".join("".join(span.text for span in row).strip() for row in rows[_MAX_WRAPPED - 1 :])
    return first, *rows[1 : _MAX_WRAPPED - 1], *_labelled("", rest, view)


def _rows(text: str, first: str, view: EndView, style: str = "") -> tuple[Line, ...]:
    """The wrapped text; a word that is longer than a line is cut."""
    text, room = printable(text), view.width - len(first)
    # Wrapping counts characters, of which some take two columns.
    width = view.width - columns_of(text) + len(text)
    rows = wrapped(text, width, first=first, style=style)
    return tuple(line(row[0], Span(shorten(row[1].text, room, view.glyphs), style)) for row in rows)
