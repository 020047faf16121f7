"""One run as a page of at most 40 lines: verdict, facts, usage, series with moments, comparison, advice."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, tzinfo

from msgspec import Struct

from profiler.cli.charts.series_curve import Curve, percent_text
from profiler.cli.charts.time_lines import time_lines
from profiler.cli.show.sections import Section, arrange
from profiler.cli.show.size_lines import advice_texts, what_if_texts
from profiler.cli.show.two_runs import Comparison, changed_rows, comparison_lines
from profiler.cli.styled_text import BLOCKS, INDENT, Glyphs, Line, Span, line, shorten, wrapped
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.past_runs.moments import Moment, find_moments, series_length_ms
from profiler.past_runs.run_source import PastRun
from profiler.past_runs.verdict_sentence import Verdict, verdict_of
from profiler.record.hardware import gpu_totals, neuron_totals, processor_difference, short_processor_name
from profiler.record.record_model import Distribution, Metrics, Number, Process, Record, Series, TaskSize, known_status
from profiler.record.units import (
    MIB,
    format_count,
    format_duration,
    format_memory,
    format_task_size,
    format_usd,
    format_vcpu,
)
from profiler.sizing.advice import Advice

MAX_LINES = 40
MAX_WIDTH = 120
_LABEL_WIDTH = 9
_BAR_WIDTH = 20
_VALUE_WIDTH = 9
_ID_LENGTH = 12
_PERCENT = 100
_MAX_PROCESSES = 3
_MAX_GPUS = 4
_MAX_WARNINGS = 3
_MAX_NOTICES = 8
_MAX_NUMBERED = 9  # on the axis, where each number has one character
_NO_DISTRIBUTION = Distribution()


class View(Struct, frozen=True, kw_only=True):
    """What the page is drawn for: the width and the characters of the terminal, the time now, and the time zone."""

    width: int
    glyphs: Glyphs
    now_ns: int
    zone: tzinfo | None = None


def page_lines(
    run: PastRun, view: View, series: Series | None, comparison: Comparison | None, advice: Advice | None
) -> list[Line]:
    """Draw the page of a run.

    Args:
        run: The run.
        view: The terminal.
        series: The time series; None: the run has none.
        comparison: The run to compare with; None: no comparison. A complete one comes on top of the 40 lines.
        advice: The recommended size; None: unknown.
    """
    record = run.report.record
    moments = find_moments(record, series)
    sections = (
        Section(lines=tuple(_head(verdict_of(run, view.now_ns), view)), min_lines=1),
        Section(lines=tuple(_facts(record, view)), min_lines=1),
        Section(lines=tuple(_usage(record, view)), rank=1),
        Section(lines=tuple(time_lines(record, view.width, view.glyphs)), rank=2),
        Section(lines=tuple(_series(record, series, moments, view)), rank=2),
        Section(lines=tuple(_others(record, view)), rank=5),
        Section(lines=tuple(_compared(record, comparison, view)), rank=4),
        Section(lines=tuple(_advice(record, advice, view)), rank=3),
    )
    # A complete comparison was asked for, so it is never cut.
    extra = len(comparison.rows) if comparison is not None and comparison.is_complete else 0
    return arrange(sections, MAX_LINES + extra)


def _head(verdict: Verdict, view: View) -> Iterator[Line]:
    first, *more = wrapped(verdict.text, view.width, first=f"{view.glyphs.dot} ", style=verdict.tone)
    yield line(Span(first[0].text, verdict.tone), *first[1:])
    yield from more
    if verdict.evidence is not None:
        yield from wrapped(verdict.evidence, view.width)


def _labelled(label: str, text: str, view: View) -> Iterator[Line]:
    if text:
        rows = wrapped(text, view.width, first=f"{INDENT}{label:<{_LABEL_WIDTH}}")
        for number, row in enumerate(rows):
            yield line(Span(row[0].text, "dim"), *row[1:]) if number == 0 else row


def _facts(record: Record, view: View) -> Iterator[Line]:
    separator = view.glyphs.separator
    size, metrics = record.task_size, record.metrics
    limits = TaskSize(vcpu=metrics.vcpu_size, memory_mb=metrics.memory_size_mb) if size is None else size
    launch = " ".join(word for word in (_launch_type(record), record.cpu_architecture) if word)
    identity = (
        record.task_id[:_ID_LENGTH],
        f"container {record.container.name}" if record.task_arn else "",
        f"cluster {record.cluster}" if record.cluster else "",
        *(f"{name} {value}" for name, value in _labels(record) if not record.cluster),
    )
    yield from _labelled("run", separator.join(part for part in identity if part), view)
    yield from _labelled("when", _when(record, view), view)
    place = record.availability_zone or record.region
    size_text = format_task_size(limits.vcpu, limits.memory_mb)
    parts = (size_text, _devices(record, view.glyphs), launch, _processor(record), place)
    yield from _labelled("size", separator.join(part for part in parts if part), view)
    yield from _labelled("cost", _cost(record), view)
    yield from _labelled("notices", separator.join(_notices(record, view)), view)


def _notices(record: Record, view: View) -> Iterator[str]:
    """The notices that the monitor wrote while the batch ran, each with its time."""
    for notice in record.notices[:_MAX_NOTICES]:
        at = _local(notice.at, view)
        yield notice.kind if at is None else f"{notice.kind} at {at:%H:%M:%S}"


def _labels(record: Record) -> Iterator[tuple[str, str]]:
    """The labels of a local run, without the user: host and commit are what differs between runs."""
    for name, value in (record.labels or {}).items():
        if name == "gitCommit":
            yield "commit", value[:_ID_LENGTH]
        elif name != "user":
            yield name, value


def _processor(record: Record) -> str | None:
    model = None if record.processor is None else record.processor.model
    return model and short_processor_name(model)


def _devices(record: Record, glyphs: Glyphs) -> str:
    names = {gpu.name or "GPU" for gpu in record.gpus}
    if names:
        return f"{len(record.gpus)}{glyphs.times} {names.pop() if len(names) == 1 else 'GPU'}"
    return "" if record.neuron is None else format_count(len(record.neuron.cores), "NeuronCore")


def _launch_type(record: Record) -> str:
    words = {
        "FARGATE": "Fargate",
        "MANAGED_INSTANCES": "Managed Instances",
        "LOCAL": "this machine" if not record.task_arn else "ECS",
    }
    return words.get(record.launch_type or "", record.launch_type or "")


def _when(record: Record, view: View) -> str:
    started = _local(record.started_at, view)
    if started is None:
        return ""
    finished = _local(record.finished_at, view)
    text = f"{started:%a %Y-%m-%d %H:%M:%S}"
    if finished is not None:
        day = "" if finished.date() == started.date() else f"{finished:%a %Y-%m-%d }"
        text += f" {view.glyphs.arrow} {day}{finished:%H:%M:%S}"
    text += f" {started:%Z}"
    metrics = record.metrics
    if metrics.duration_ms is not None:
        text += f"{view.glyphs.separator}{format_duration(metrics.duration_ms)}"
    if metrics.init_duration_ms is not None:
        text += f" + {format_duration(metrics.init_duration_ms)} start-up"
    return text


def _local(text: str | None, view: View) -> datetime | None:
    moment_ns = parse_ns(text)
    return None if moment_ns is None else datetime.fromtimestamp(moment_ns // NS_PER_SECOND).astimezone(view.zone)


def _cost(record: Record) -> str:
    usd = None if record.cost is None else record.cost.usd
    if usd is None:
        return ""
    billed_ms = record.metrics.billed_duration_ms
    return format_usd(usd) + ("" if billed_ms is None else f" for {format_duration(billed_ms)} billed")


class _Bar(Struct, frozen=True, kw_only=True):
    """A row of the usage table: average, 95th percentile and peak, and the size that is the full bar."""

    label: str
    values: tuple[float | None, float | None, float | None]
    size: float | None
    format_value: Callable[[float], str]
    note: str
    before_peak: str = ""

    @property
    def shares(self) -> list[float | None]:
        """The values in percent of the size."""
        return [None if value is None or not self.size else _PERCENT * value / self.size for value in self.values]

    @property
    def texts(self) -> list[str]:
        """The values for people; an unknown one is a dash."""
        texts = ["-" if value is None else self.format_value(value) for value in self.values]
        return [*texts[:-1], self.before_peak + texts[-1]]


def _usage(record: Record, view: View) -> Iterator[Line]:
    bars = tuple(_bars(record, view.glyphs))
    if not bars:
        if record.sampling is not None and record.sampling.samples == 0:
            what = (
                "No sample was taken" if known_status(record) == "unknown" else "The run ended before its first sample"
            )
            text = f"{what}: CPU and memory were not measured."
            yield from wrapped(text, view.width, style="dim")
        return
    head = "".join(f"{name:>{_VALUE_WIDTH}}" for name in ("average", "95 %", "peak"))
    yield line(Span(f"{' ' * (len(INDENT) + _LABEL_WIDTH + _BAR_WIDTH)}{head}", "dim"))
    for bar in bars:
        texts = "".join(f"{text:>{_VALUE_WIDTH}}" for text in bar.texts)
        room = view.width - len(INDENT) - _LABEL_WIDTH - _BAR_WIDTH - len(texts) - 2
        yield line(
            Span(f"{INDENT}{shorten(bar.label, _LABEL_WIDTH - 1, view.glyphs):<{_LABEL_WIDTH}}", "bold"),
            *_drawn(bar, view.glyphs),
            texts,
            Span(f"  {bar.note}" if len(bar.note) <= room else "", "dim"),
        )


def _drawn(bar: _Bar, glyphs: Glyphs) -> Iterator[Span]:
    """The bar: filled up to the average, lighter up to the 95th percentile, and lightest up to the peak."""
    if not bar.size:
        yield Span(" " * _BAR_WIDTH)
        return
    done, shares = 0, bar.shares
    style = _style(shares[-1])
    for share, character in zip(shares, (glyphs.average, glyphs.p95, glyphs.peak), strict=True):
        cells = done if share is None else max(done, _cells(share))
        yield Span(character * (cells - done), style)
        done = cells
    yield Span(glyphs.rest * (_BAR_WIDTH - done), "dim")


def _cells(share: float) -> int:
    """The cells of a share; any use at all has one cell, and only a full use has all."""
    if share <= 0:
        return 0
    cells = int(min(share, _PERCENT) / _PERCENT * _BAR_WIDTH + 0.5)
    return min(max(cells, 1), _BAR_WIDTH if share >= _PERCENT - 1 else _BAR_WIDTH - 1)


def _style(peak_share: float | None) -> str:
    near_limit, high = 95, 80
    if peak_share is None or peak_share < high:
        return "green"
    return "yellow" if peak_share < near_limit else "red"


def _bars(record: Record, glyphs: Glyphs) -> Iterator[_Bar]:
    metrics = record.metrics
    cpu, size = metrics.vcpu_used, metrics.vcpu_size
    if cpu is not None:
        note = _of(size, format_vcpu)
        yield _Bar(label="CPU", values=(cpu.avg, cpu.p95, cpu.max), size=size, format_value=_plain, note=note)
    memory = metrics.memory_used_mb or _NO_DISTRIBUTION
    peak_mb, size = metrics.max_memory_used_mb, metrics.memory_size_mb
    if peak_mb is not None or memory.avg is not None:
        yield _Bar(
            label="Memory",
            values=(memory.avg, memory.p95, memory.max if peak_mb is None else peak_mb),
            size=size,
            format_value=format_memory,
            note=_of(size, format_memory),
            before_peak="" if peak_mb is None or metrics.memory_peak_source == "kernel" else glyphs.at_least,
        )
    yield from _device_bars(record)


def _of(size: Number | None, format_value: Callable[[float], str]) -> str:
    return "" if size is None else f"of {format_value(size)}"


def _plain(value: float) -> str:
    return format_vcpu(value).removesuffix(" vCPU")


def _device_bars(record: Record) -> Iterator[_Bar]:
    for gpu in record.gpus[:_MAX_GPUS] if len(record.gpus) <= _MAX_GPUS else ():
        use = gpu.utilization_percent or _NO_DISTRIBUTION
        memory = gpu.memory_used_mb or _NO_DISTRIBUTION
        number = "" if gpu.index is None else f" {gpu.index}"
        yield _percent_bar(f"GPU{number}", use, _of_memory(memory.max, gpu.memory_size_mb))
    if len(record.gpus) > _MAX_GPUS:
        gpus = gpu_totals(record.gpus)
        if gpus is not None:
            note = f"{format_count(len(record.gpus), 'GPU')} together"
            yield _percent_bar("GPUs", gpus.utilization_percent, note)
    neuron = neuron_totals(record.neuron)
    if neuron is not None and record.neuron is not None:
        memory_note = _of_memory(neuron.device_memory_used_mb.max, record.neuron.device_memory_size_mb)
        yield _percent_bar("Neuron", neuron.utilization_percent, memory_note)


def _percent_bar(label: str, use: Distribution, note: str) -> _Bar:
    values = use.avg, use.p95, use.max
    return _Bar(label=label, values=values, size=_PERCENT, format_value=percent_text, note=note)


def _of_memory(used_mb: float | None, size_mb: Number | None) -> str:
    if used_mb is None:
        return ""
    return format_memory(used_mb) + (f" of {format_memory(size_mb)}" if size_mb else "")


def _series(record: Record, series: Series | None, moments: Sequence[Moment], view: View) -> Iterator[Line]:
    """The curves with their axis, and the moments."""
    if series is not None:
        yield from _curves(record, series, moments, view)
    for number, moment in enumerate(moments, start=1):
        text = moment.text.replace(BLOCKS.arrow, view.glyphs.arrow).replace(BLOCKS.ellipsis, view.glyphs.ellipsis)
        yield from wrapped(text, view.width, first=f"{' ' * (len(INDENT) + _LABEL_WIDTH)}{number} ")


def _curves(record: Record, series: Series, moments: Sequence[Moment], view: View) -> Iterator[Line]:
    """The curves over the width of the terminal, and the axis with the numbers of the moments."""
    metrics = record.metrics
    curves = [
        Curve("CPU", series.vcpu_used, metrics.vcpu_size, format_vcpu),
        Curve("Memory", series.memory_used_mb, metrics.memory_size_mb, format_memory),
        Curve("GPU", series.gpu_utilization_percent, _PERCENT, percent_text),
        Curve("Neuron", series.neuron_utilization_percent, _PERCENT, percent_text),
    ]
    shown = [curve for curve in curves if curve.is_measured]
    if not shown:
        return
    names = [curve.limit_text(view.glyphs) for curve in shown]
    end = format_duration(series_length_ms(record, series))
    width = max(view.width - len(INDENT) - _LABEL_WIDTH - max(map(len, (*names, end))) - 1, 20)
    for curve, name in zip(shown, names, strict=True):
        drawn = curve.drawn(width, view.glyphs)
        yield line(Span(f"{INDENT}{curve.label:<{_LABEL_WIDTH}}", "bold"), f"{drawn:<{width}} ", Span(name, "dim"))
    yield _axis(series_length_ms(record, series), moments, width)


def _axis(length_ms: float, moments: Sequence[Moment], width: int) -> Line:
    """The time axis: 0, the length of the run, and between them the number of each moment where it begins."""
    cells = [" "] * width
    for number, moment in reversed(list(enumerate(moments[:_MAX_NUMBERED], start=1))):
        place = min(int(moment.start_ms / max(length_ms, 1) * width), width - 1)
        while place + 1 < width and cells[place] != " ":
            place += 1
        cells[place] = str(number)
    if cells[0] == " ":
        cells[0] = "0"
    return line(" " * (len(INDENT) + _LABEL_WIDTH), Span(f"{''.join(cells)} {format_duration(length_ms)}", "dim"))


def _others(record: Record, view: View) -> Iterator[Line]:
    kills = record.memory_kills
    if kills is not None:
        named = ", ".join(
            process.name
            + ("" if process.max_memory_used_mb is None else f" at {format_memory(process.max_memory_used_mb)}")
            for process in kills.processes
        )
        text = f"{kills.count} {'process' if kills.count == 1 else 'processes'} by the kernel, for lack of memory"
        yield from _labelled("killed", text + (f": {named}" if named else ""), view)
    yield from _labelled("I/O", _io(record.metrics, view.glyphs), view)
    yield from _labelled("largest", _processes(record, view.glyphs), view)
    yield from _labelled("stacks", _stacks(record), view)
    for warning in () if record.monitor is None else record.monitor.warnings[:_MAX_WARNINGS]:
        yield from _labelled("warning", warning, view)


def _stacks(record: Record) -> str:
    if record.stacks is None or not record.stacks.samples:
        return ""
    return f"{format_count(record.stacks.samples, 'sample')}: --stacks shows the functions"


def _io(metrics: Metrics, glyphs: Glyphs) -> str:
    def text(prefix: str, size_bytes: int | None) -> str:
        return "" if size_bytes is None else f"{prefix} {format_memory(size_bytes / MIB)}"

    disk = [text("read", metrics.block_read_bytes), text("wrote", metrics.block_write_bytes)]
    network = [text("received", metrics.network_rx_bytes), text("sent", metrics.network_tx_bytes)]
    groups = (", ".join(filter(None, disk)), ", ".join(filter(None, network)))
    return glyphs.separator.join(filter(None, groups))


def _processes(record: Record, glyphs: Glyphs) -> str:
    texts = []
    for process in record.processes[:_MAX_PROCESSES]:
        count = "" if process.count in (None, 1) else f" {glyphs.times}{process.count}"
        values = (
            _process_memory(process),
            None if process.cpu_seconds is None else f"{format_duration(process.cpu_seconds * 1000)} of CPU",
        )
        known = ", ".join(value for value in values if value)
        texts.append(f"{process.name}{count}" + (f" ({known})" if known else ""))
    return glyphs.separator.join(texts)


def _process_memory(process: Process) -> str | None:
    """The memory at the highest moment; with the number of the processes that held it if others have the name too."""
    if process.max_memory_used_mb is None:
        return None
    holders = process.max_memory_used_processes or 1
    together = "" if process.count in (None, holders) else f" in {holders} of them"
    return format_memory(process.max_memory_used_mb) + together


def _compared(record: Record, comparison: Comparison | None, view: View) -> Iterator[Line]:
    if comparison is None:
        return
    if comparison.other is None:
        yield from wrapped(f"No {comparison.name} to compare with.", view.width, style="dim")
        return
    other = comparison.other.report.record
    when = _local(other.started_at, view)
    started = "" if when is None else f" of {when:%a %Y-%m-%d %H:%M}"
    yield from wrapped(
        f"Compared with the {comparison.name}{started} ({other.task_id[:_ID_LENGTH]}):", view.width, style="bold"
    )
    rows = comparison.rows if comparison.is_complete else changed_rows(comparison.rows)
    if not rows:
        yield line(Span(f"{INDENT}Every number differs by less than 5 %.", "dim"))
    yield from comparison_lines(rows, view.glyphs)
    difference = processor_difference(record, other, f"the {comparison.name}")
    if difference is not None:
        yield from wrapped(f"This run {difference}.", view.width)


def _advice(record: Record, advice: Advice | None, view: View) -> Iterator[Line]:
    for label, texts in (
        ("what if", what_if_texts(advice, record, view.glyphs)),
        ("advice", advice_texts(advice, record)),
    ):
        for number, text in enumerate(texts):
            yield from _labelled(label if number == 0 else "", text, view)
