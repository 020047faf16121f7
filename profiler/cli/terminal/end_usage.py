"""The curves of a run at its end, each with its texts, and the bar of its time."""

from collections.abc import Iterator, Sequence

from profiler.cli.styled_text import INDENT, Line, Span, build_line, cut_end, displayed_columns
from profiler.cli.terminal.page_parts import View, label_span
from profiler.cli.terminal.run_curves import CPU, GPU, MEMORY, Curve, run_curves, use_style
from profiler.cli.terminal.time_bar import short_legend, time_bar
from profiler.record.fact_list import GPU_AVERAGE, NEURON_AVERAGE, VCPU_AVERAGE, number_fact
from profiler.record.measured import UNKNOWN, scaled_number
from profiler.record.record_model import Record
from profiler.record.run_summary import Story
from profiler.record.run_usage import MemoryUse, RunUsage
from profiler.record.units import (
    format_memory,
    format_memory_share,
    format_percent,
    format_share,
)

_CURVE_SHARE = 0.36
_MIN_CURVE = 12
_MAX_CURVE = 60


def usage_lines_by_order(
    record: Record, story: Story, view: View, label_width: int
) -> Iterator[tuple[int, tuple[Line, ...]]]:
    """The lines, each after its rank: of a page that is too long, the highest ranks are left out
    first.
    """
    available = view.width - len(INDENT) - label_width - 1
    curve_width = min(max(int(available * _CURVE_SHARE), _MIN_CURVE), _MAX_CURVE)
    room = available - curve_width
    rows: list[tuple[Curve, str]] = []
    for curve, texts in _curves(record, story.usage):
        text = next((text for text in texts if len(text) <= room), cut_end(texts[-1], room))
        rows.append((curve, text))
    legend = short_legend(story, room)
    longest = max(displayed_columns(legend), *(len(text) for _, text in rows), 0)
    curve_width = min(available - longest, _MAX_CURVE)
    for number, (curve, text) in enumerate(rows):
        style = use_style(curve.label, is_full=curve.is_near_limit)
        drawn = Span(f"{curve.draw_curve(curve_width)} ", style)
        rank = 2 + (number > 1 and curve.label != GPU)
        yield rank, (build_line(label_span(curve.label, "bold", label_width), drawn, text),)
    if legend:
        bar = time_bar(story.time, curve_width)
        yield 2, (build_line(label_span("Time", "bold", label_width), *bar, " ", *legend),)


def _curves(record: Record, usage: RunUsage) -> Iterator[tuple[Curve, Sequence[str]]]:
    """The curves, each with its texts, from the longest to the shortest."""
    if record.series is None:
        return
    for curve in run_curves(usage, record.series):
        if curve.label == MEMORY:
            yield curve, _memory_texts(curve, usage.memory)
            continue
        top = curve.limit_text
        if curve.is_to_limit and not (curve.label == CPU and usage.cpu.is_asked):
            top = top.replace("▔", "▔ limit")
        average = _average_text(curve.label, record)
        texts = [f"{top}, average {average}", top] if average else [top]
        memory = usage.gpus.memory_text if curve.label == GPU else ""
        if memory:
            texts.insert(0, f"{texts[0]}, {memory}")
        yield curve, texts


def _average_text(curve_label: str, record: Record) -> str:
    """The mean use of the CPUs, the GPUs or the NeuronCores; "" if it is unknown."""
    rows = {CPU: VCPU_AVERAGE, GPU: GPU_AVERAGE}
    average = number_fact(rows.get(curve_label, NEURON_AVERAGE), record)
    return "" if average.number is UNKNOWN else average.text.removesuffix(" vCPU")


def _memory_texts(curve: Curve, memory: MemoryUse) -> tuple[str, ...]:
    peak_mb = memory.peak.value
    size_mb = memory.size_mb
    if peak_mb is None:
        return (curve.limit_text,)
    peak = memory.peak_text_if_known
    top = f"▔ peak {peak}"
    if not size_mb:
        return (top, top)
    share = ""
    if peak_mb >= size_mb / 100:
        share = format_share(peak_mb, size_mb)
    limit = format_memory(size_mb)
    if curve.is_to_limit:
        long = f"{limit}, peak {peak} ({share})"
        short = "peak " + scaled_number(memory.peak, 100 / size_mb).text(format_percent)
        return (f"▔ limit {long}", f"▔ {long}", f"▔ {limit}, {short}", f"▔ {short}")
    if share:
        return (f"{top}, {format_memory_share(peak_mb, size_mb)}", top)
    return (f"{top} of {limit}", top)
