"""One run as a page of at most 40 lines: verdict, facts, usage, series with moments, comparison,
advice.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.cli.printing import value_text
from profiler.cli.styled_text import INDENT, Line, Span, line, shorten, wrapped
from profiler.cli.terminal.page_parts import (
    CPU,
    LABEL_WIDTH,
    MEMORY,
    Section,
    View,
    arrange,
    io_text,
    label,
    labelled,
    local,
    peak_text,
    run_curves,
    time_lines,
    use_style,
)
from profiler.cli.terminal.size_lines import advice_texts, what_if_texts
from profiler.cli.terminal.two_runs import RunComparison, compared_lines
from profiler.core.timestamps import with_local_times
from profiler.record.hardware import (
    GpuTotals,
    gpu_idle_texts,
    gpu_totals,
    neuron_totals,
    short_processor_name,
)
from profiler.record.process_rows import (
    are_processes_partial,
    is_other_processes,
    shown_name,
)
from profiler.record.record_model import (
    Distribution,
    Process,
    Record,
    Series,
    TaskSize,
    is_sampled_each_minute,
    known_status,
)
from profiler.record.spot_price import ON_DEMAND_PRICE, is_on_spot
from profiler.record.units import (
    AT_LEAST,
    format_count,
    format_duration,
    format_memory,
    format_percent,
    format_task_size,
    format_usd,
    format_vcpu,
)
from profiler.record.worth_a_word import is_near_limit
from profiler.runs.past_runs.moments import Moment, find_moments, series_length_ms
from profiler.runs.past_runs.run_source import PastRun
from profiler.runs.past_runs.verdict_sentence import verdict_of
from profiler.sizing.advice import Advice

MAX_LINES = 40
_BAR_WIDTH = 20
_VALUE_WIDTH = 9
_ID_LENGTH = 12
_FULL = 0.99
_MAX_PROCESSES = 3
_MAX_GPUS = 4
_MAX_WARNINGS = 3
_MAX_NOTICES = 8
_MAX_NUMBERED = 9  # on the axis, where each number has one character
_NO_DISTRIBUTION = Distribution()


def page_lines(
    run: PastRun,
    view: View,
    series: Series | None,
    comparison: RunComparison | None,
    advice: Advice | None,
) -> list[Line]:
    """Draw the page of a run. A complete comparison comes on top of the 40 lines."""
    record = run.report.record
    moments = find_moments(record, series)
    verdict = verdict_of(run, view.now_ns)
    first = wrapped(verdict.text, view.width, Span("● ", verdict.tone), style=verdict.tone)
    sections: Sequence[Section] = (
        (0, (*first, *wrapped(verdict.evidence or "", view.width, INDENT))),
        (0, _facts(run, view)),
        (1, _usage(record, view)),
        (2, (*time_lines(record, view.width), *_gpu_use(record, view))),
        (2, _series(record, series, moments, view)),
        (5, _others(record, view)),
        (4, compared_lines(record, comparison, view)),
        (3, _advice(record, advice, view)),
    )
    # The user requested a complete comparison, so it is never cut.
    extra = len(comparison.rows) if comparison is not None and comparison.is_complete else 0
    return arrange(sections, MAX_LINES + extra)


def _facts(run: PastRun, view: View) -> Iterator[Line]:
    record = run.report.record
    event = run.event
    size = record.task_size
    metrics = record.metrics
    if size is None:
        limits = TaskSize(vcpu=metrics.vcpu_size, memory_mb=metrics.memory_size_mb)
    else:
        limits = size
    words = {
        "FARGATE": "Fargate",
        "MANAGED_INSTANCES": "Managed Instances",
        "LOCAL": "this machine" if not record.task_arn else "ECS",
    }
    launch_type = words.get(record.launch_type or "", record.launch_type)
    launch = " ".join(word for word in (launch_type, record.cpu_architecture) if word)
    identity = (
        record.task_id[:_ID_LENGTH],
        f"container {record.container.name}" if record.task_arn else "",
        f"cluster {record.cluster}" if record.cluster else "",
        # Of a local run, the labels: host and commit differ between runs.
        *(
            f"commit {value[:_ID_LENGTH]}" if name == "gitCommit" else f"{name} {value}"
            for name, value in (record.labels or {}).items()
            if name != "user" and not record.cluster
        ),
    )
    yield from labelled("run", " · ".join(filter(None, identity)), view)
    yield from labelled("command", shorten(run.command or "", 200), view)
    retries: list[str] = []
    if event is not None and event.retry_of:
        retries.append(f"retry of {event.retry_of[:8]}")
    if event is not None and event.retried_as:
        retries.append(f"retried as {event.retried_as[:8]}")
    yield from labelled("retry", " · ".join(retries), view)
    yield from labelled("when", _when(record), view)
    place = record.availability_zone or record.region
    size_text = format_task_size(limits.vcpu, limits.memory_mb)
    model = None if record.processor is None else record.processor.model
    parts = (size_text, _devices(record), launch, model and short_processor_name(model), place)
    yield from labelled("size", " · ".join(filter(None, parts)), view)
    if is_sampled_each_minute(record):
        yield from labelled(
            "source", "Container Insights, sampled each minute: shorter peaks were not seen", view
        )
    yield from labelled("cost", _cost(record), view)
    noticed = [(notice.kind, local(notice.at)) for notice in record.notices[:_MAX_NOTICES]]
    notices = (kind if at is None else f"{kind} at {at:%H:%M:%S}" for kind, at in noticed)
    yield from labelled("notices", " · ".join(notices), view)


def _devices(record: Record) -> str:
    names = {gpu.name or "GPU" for gpu in record.gpus}
    if names:
        return f"{len(record.gpus)}× {names.pop() if len(names) == 1 else 'GPU'}"
    return "" if record.neuron is None else format_count(len(record.neuron.cores), "NeuronCore")


def _when(record: Record) -> str:
    started = local(record.started_at)
    finished = local(record.finished_at)
    metrics = record.metrics
    if started is None:
        return ""
    text = f"{started:%a %Y-%m-%d %H:%M:%S}"
    if finished is not None:
        zone = (
            "" if finished.tzname() == started.tzname() else f" {started:%Z}"
        )  # at the change of summer time
        day = "" if finished.date() == started.date() else f"{finished:%a %Y-%m-%d }"
        text += f"{zone} → {day}{finished:%H:%M:%S}"
    text += f" {finished or started:%Z}"
    if metrics.duration_ms is not None:
        text += f" · {format_duration(metrics.duration_ms)}"
    if metrics.init_duration_ms is not None:
        text += f" + {format_duration(metrics.init_duration_ms)} start-up"
    return text


def _cost(record: Record) -> str:
    """The cost. Only the task's event shows Spot: without it, the text contains the price."""
    if record.cost is None or record.cost.usd is None:
        return ""
    billed_ms = record.metrics.billed_duration_ms
    usd = format_usd(record.cost.usd)
    spot = is_on_spot(record.cost)
    listed = not spot and (record.cost.price_basis or "").endswith(ON_DEMAND_PRICE)
    billed = "" if billed_ms is None else f" for {format_duration(billed_ms)} billed"
    return f"{f'≥ {usd} (Spot)' if spot else usd}{billed}{f', {ON_DEMAND_PRICE}' if listed else ''}"


class _Bar(Struct, frozen=True):
    """A row of the usage table. ``size`` is the full bar."""

    label: str
    use: Distribution
    size: float | None
    format_value: Callable[[float], str]
    note: str
    peak_text: str = ""


def _usage(record: Record, view: View) -> Iterator[Line]:
    bars = tuple(_bars(record))
    if not bars:
        if record.sampling is not None and record.sampling.samples == 0:
            if known_status(record) == "unknown":
                what = "No sample was taken"
            else:
                what = "The run ended before its first sample"
            text = f"{what}: CPU and memory were not measured."
            yield from wrapped(text, view.width, INDENT, style="dim")
        return
    head = "".join(f"{name:>{_VALUE_WIDTH}}" for name in ("average", "95 %", "peak"))
    yield line(Span(f"{' ' * (len(INDENT) + LABEL_WIDTH + _BAR_WIDTH)}{head}", "dim"))
    for bar in bars:
        use = bar.use
        average, p95, peak = (
            value_text(value, bar.format_value) for value in (use.avg, use.p95, use.max)
        )
        texts = "".join(f"{text:>{_VALUE_WIDTH}}" for text in (average, p95, bar.peak_text or peak))
        room = view.width - len(INDENT) - LABEL_WIDTH - _BAR_WIDTH - len(texts) - 2
        yield line(
            label(shorten(bar.label, LABEL_WIDTH - 1), "bold"),
            *_drawn(bar),
            texts,
            Span(f"  {bar.note}" if len(bar.note) <= room else "", "dim"),
        )


def _drawn(bar: _Bar) -> Iterator[Span]:
    """The bar: filled up to the average, lighter up to the 95th percentile, and lightest up to
    the peak.
    """
    if not bar.size:
        yield Span(" " * _BAR_WIDTH)
        return
    done = 0
    use = bar.use
    style = use_style(bar.label, is_near_limit=is_near_limit(use.max, bar.size))
    for value, character in ((use.avg, "█"), (use.p95, "▓"), (use.max, "░")):
        cells = max(done, _cells((value or 0) / bar.size))
        yield Span(character * (cells - done), style)
        done = cells
    yield Span("·" * (_BAR_WIDTH - done), "dim")


def _cells(share: float) -> int:
    """The cells of a share; any use at all has one cell, and only a full use has all."""
    if share >= _FULL:
        return _BAR_WIDTH
    return min(max(int(share * _BAR_WIDTH + 0.5), int(share > 0)), _BAR_WIDTH - 1)


def _bars(record: Record) -> Iterator[_Bar]:
    metrics = record.metrics
    cpu = metrics.vcpu_used
    size = metrics.vcpu_size
    if cpu is not None:
        note = "" if size is None else f"of {format_vcpu(size)}"
        yield _Bar(CPU, cpu, size, lambda value: format_vcpu(value).removesuffix(" vCPU"), note)
    memory = metrics.memory_used_mb or _NO_DISTRIBUTION
    size = metrics.memory_size_mb
    if metrics.max_memory_used_mb is not None:
        memory = replace(memory, max=metrics.max_memory_used_mb)
    if metrics.max_memory_used_mb is not None or memory.avg is not None:
        note = "" if size is None else f"of {format_memory(size)}"
        yield _Bar(MEMORY, memory, size, format_memory, note, peak_text(metrics))
    gpus = gpu_totals(record.gpus)
    if gpus is not None and len(record.gpus) > _MAX_GPUS:
        note = f"{format_count(len(record.gpus), 'GPU')} together"
        yield _Bar("GPUs", gpus.utilization_percent, 100, format_percent, note)
    for gpu in record.gpus if len(record.gpus) <= _MAX_GPUS else ():
        used = gpu.memory_used_mb or _NO_DISTRIBUTION
        number = "" if gpu.index is None else f" {gpu.index}"
        note = _of_memory(used.max, gpu.memory_size_mb)
        yield _Bar(
            f"GPU{number}", gpu.utilization_percent or _NO_DISTRIBUTION, 100, format_percent, note
        )
    neuron = neuron_totals(record.neuron)
    if neuron is not None and record.neuron is not None:
        note = _of_memory(neuron.device_memory_used_mb.max, record.neuron.device_memory_size_mb)
        yield _Bar("Neuron", neuron.utilization_percent, 100, format_percent, note)


def _of_memory(used_mb: float | None, size_mb: float | None) -> str:
    if used_mb is None:
        return ""
    return format_memory(used_mb) + (f" of {format_memory(size_mb)}" if size_mb else "")


def _series(
    record: Record, series: Series | None, moments: Sequence[Moment], view: View
) -> Iterator[Line]:
    shown = () if series is None else run_curves(record, series)
    if series is not None and shown:
        names = [curve.limit_text for curve in shown]
        length_ms = series_length_ms(record, series)
        longest = max(map(len, (*names, format_duration(length_ms))))
        width = max(view.width - len(INDENT) - LABEL_WIDTH - longest - 1, 20)
        for curve, name in zip(shown, names, strict=True):
            drawn = curve.drawn(width)
            yield line(label(curve.label, "bold"), f"{drawn:<{width}} ", Span(name, "dim"))
        yield _axis(length_ms, moments, width)
    for number, moment in enumerate(moments, start=1):
        yield from wrapped(moment.text, view.width, f"{' ' * (len(INDENT) + LABEL_WIDTH)}{number} ")


def _axis(length_ms: float, moments: Sequence[Moment], width: int) -> Line:
    """The time axis: 0, the length of the run, and between them the number of each moment where
    it begins.
    """
    cells = [" "] * width
    for number, moment in reversed(list(enumerate(moments[:_MAX_NUMBERED], start=1))):
        place = min(int(moment.start_ms / max(length_ms, 1) * width), width - 1)
        while place + 1 < width and cells[place] != " ":
            place += 1
        cells[place] = str(number)
    if cells[0] == " ":
        cells[0] = "0"
    return line(label("", ""), Span(f"{''.join(cells)} {format_duration(length_ms)}", "dim"))


def _gpu_use(record: Record, view: View) -> Iterator[Line]:
    sentence, *rest = (*gpu_idle_texts(record),) or ("",)
    active = (gpu_totals(record.gpus) or GpuTotals()).sm_active_percent.avg
    if active is not None:
        rest.append(f"SM active {format_percent(active)}")
    yield from labelled("GPU", sentence, view)
    yield from labelled("" if sentence else "GPU", " · ".join(rest), view)


def _others(record: Record, view: View) -> Iterator[Line]:
    kills = record.memory_kills
    if kills is not None:
        named = ", ".join(
            process.name
            + (
                ""
                if process.max_memory_used_mb is None
                else f" at {format_memory(process.max_memory_used_mb)}"
            )
            for process in kills.processes
        )
        text = f"{format_count(kills.count, 'process')} by the kernel, for lack of memory"
        yield from labelled("killed", text + (f": {named}" if named else ""), view)
    yield from labelled("I/O", io_text(record.metrics), view)
    yield from labelled("largest", _processes(record), view)
    samples = record.stacks and record.stacks.samples
    if samples:
        yield from labelled(
            "stacks", f"{format_count(samples, 'sample')}: --stacks shows the functions", view
        )
    for warning in () if record.monitor is None else record.monitor.warnings[:_MAX_WARNINGS]:
        yield from labelled("warning", with_local_times(warning), view)


def _processes(record: Record) -> str:
    named = [row for row in record.processes if not is_other_processes(row)]
    others = [row for row in record.processes if is_other_processes(row)]
    least = AT_LEAST if are_processes_partial(record.processes) else ""
    texts = []
    for process in (*named[:_MAX_PROCESSES], *others):
        bound = "" if is_other_processes(process) else least
        known = ", ".join(_process_values(process, bound))
        count = "" if process.count in (None, 1) else f" ×{process.count}"
        texts.append(f"{shown_name(process)}{count}" + (f" ({known})" if known else ""))
    return " · ".join(texts)


def _process_values(process: Process, least: str) -> Iterator[str]:
    """Memory and CPU time; ``least`` marks a CPU time that is a lower bound."""
    if process.max_memory_used_mb is not None:
        # The processes of this name that held the peak.
        holders = process.max_memory_used_processes or 1
        together = "" if process.count in (None, holders) else f" in {holders} of them"
        yield format_memory(process.max_memory_used_mb) + together
    if process.cpu_seconds is not None:
        yield f"{least}{format_duration(process.cpu_seconds * 1000)} of CPU"


def _advice(record: Record, advice: Advice | None, view: View) -> Iterator[Line]:
    for name, texts in (
        ("what if", what_if_texts(advice, record)),
        ("advice", advice_texts(advice, record)),
    ):
        for number, text in enumerate(texts):
            yield from labelled("" if number else name, text, view)
