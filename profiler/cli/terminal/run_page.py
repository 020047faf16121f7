"""One run as a page of at most 40 lines: verdict, facts, usage, series with moments, comparison,
advice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from profiler.cli.printing import value_text
from profiler.cli.styled_text import (
    INDENT,
    Line,
    Span,
    build_line,
    cut_end,
    room_after,
    with_short_words,
)
from profiler.cli.terminal.page_parts import (
    LABEL_WIDTH,
    PageText,
    Part,
    Section,
    View,
    fit_sections,
    indented,
    label_span,
    labelled_once,
)
from profiler.cli.terminal.run_curves import CPU, MEMORY, run_curves, use_style
from profiler.cli.terminal.show_comparison import comparison_parts
from profiler.cli.terminal.time_bar import time_parts
from profiler.core.ecs_terms import SHORT_ID_LENGTH, is_billed_by_size
from profiler.core.optional_math import known
from profiler.core.text import words_if_known
from profiler.core.timestamps import local_time, parse_ns, with_local_times
from profiler.record.device_totals import GpuTotals
from profiler.record.gpu_facts import gpu_memory_text, gpu_percent_text
from profiler.record.hardware import short_processor_name
from profiler.record.mention_limits import is_near_limit
from profiler.record.record_model import (
    NOT_MEASURED,
    UNKNOWN_SIZE,
    Distribution,
    Gpu,
    RaisedNotice,
    Record,
    Series,
    TaskSize,
)
from profiler.record.run_labels import COMMIT, short_commit_label
from profiler.record.run_summary import BESIDE_MEMORY, DOT, UNSEEN_LIMITS, Story, StoryRow
from profiler.record.run_usage import RunUsage
from profiler.record.spot_price import ON_DEMAND_PRICE, is_on_spot
from profiler.record.units import (
    format_bare_vcpu,
    format_count,
    format_duration,
    format_memory,
    format_percent,
    format_vcpu,
)
from profiler.runs.comparison.run_changes import NO_COMPARISON, RunComparison
from profiler.runs.past_runs.past_run import PastRun, TaskEvent
from profiler.runs.past_runs.run_moments import RunMoment, find_moments, series_length_ms
from profiler.runs.past_runs.verdict_sentence import verdict_of
from profiler.sizing.size_summary import NO_SIZE_STORY, SizeStory, advice_lines

MAX_LINES = 40
_MAX_BAR_WIDTH = 20
_MIN_BAR_WIDTH = 4  # on a terminal without room for these, there is no bar
_MIN_CURVE_WIDTH = 10
_VALUE_WIDTH = 9
_FULL = 0.99
_MAX_COMMAND = 200
_MAX_GPUS = 4
_MAX_WARNINGS = 3
_MAX_NOTICES = 8
_MAX_NUMBERED = 9  # on the axis, where each number has one character
_LOCAL = "this machine"
_LAUNCH_TYPES: Mapping[str, str] = {
    "FARGATE": "Fargate",
    "MANAGED_INSTANCES": "Managed Instances",
    "LOCAL": _LOCAL,
}


def page_lines(
    run: PastRun,
    view: View,
    series: Series | None = None,
    comparison: RunComparison = NO_COMPARISON,
    sizes: SizeStory = NO_SIZE_STORY,
) -> list[Line]:
    """Draw the page of a run. A complete comparison comes on top of the 40 lines."""
    record = run.record
    story = run.story
    moments = find_moments(record, series)
    verdict = verdict_of(run, view.now_ns)
    start = Span("● ", verdict.tone)
    said = with_short_words(verdict.text, room_after((start,), view.width))
    head = PageText(start, said, verdict.tone)
    sections: Sequence[Section] = (
        (0, (head, indented(verdict.evidence))),
        (0, _fact_texts(run, story, view)),
        (
            1,
            (*_usage_table(record, story, view), *_texts_of_rows(story.rows_named(*BESIDE_MEMORY))),
        ),
        (2, (*time_parts(story, view), *_gpu_use_texts(story))),
        (2, _curve_parts(record, story.usage, series, moments, view)),
        (5, _other_rows(record, story)),
        (4, comparison_parts(comparison)),
        (3, _size_texts(sizes, story)),
    )
    max_lines = MAX_LINES
    if comparison.is_complete:
        # The user requested a complete comparison, so it is never cut.
        max_lines += len(comparison.rows)
    return fit_sections(sections, view.width, max_lines)


def _fact_texts(run: PastRun, story: Story, view: View) -> Iterator[PageText]:
    """What the run was, in the order of the page; the texts that it does not have are empty."""
    record = run.record
    job = cut_end(story.first_text_named("job"), _MAX_COMMAND)
    command = cut_end(run.command or "", _MAX_COMMAND)
    cost = _cost_text(record, story.first_text_named("cost"))
    has_log = record.log_group is not None and record.log_stream is not None
    source = log = ""
    if record.is_sampled_each_minute:
        source = "Container Insights, sampled each minute: shorter peaks were not seen"
    if record.status == "failure" and has_log and not view.reads_log:
        log = f"{record.log_group}: --logs shows the last lines"
    texts = {
        "run": _identity_text(record),
        "job": job,
        "command": command,
        "retry": _retries_text(run.event),
        "when": _time_text(record),
        "size": _size_and_place_text(record, story.usage),
        "source": source,
        "cost": cost,
        "log": log,
        "notices": DOT.join(map(_notice_text, record.notices[:_MAX_NOTICES])),
    }
    for name, text in texts.items():
        yield PageText(label_span(name), text)


def _identity_text(record: Record) -> str:
    """The ids of a task's run; of a local run the labels, because host and commit differ."""
    texts = [record.task_id[:SHORT_ID_LENGTH]]
    if record.task_arn:
        texts.append(f"container {record.container.name}")
    if record.cluster:
        texts.append(f"cluster {record.cluster}")
        return DOT.join(filter(None, texts))
    for name, value in (record.labels or {}).items():
        if name == COMMIT:
            texts.append(f"commit {short_commit_label(record)}")
        elif name != "user":
            texts.append(f"{name} {value}")
    return DOT.join(filter(None, texts))


def _retries_text(event: TaskEvent) -> str:
    texts: list[str] = []
    if event.retry_of:
        texts.append(f"retry of {event.retry_of[:SHORT_ID_LENGTH]}")
    if event.retried_as:
        texts.append(f"retried as {event.retried_as[:SHORT_ID_LENGTH]}")
    return DOT.join(texts)


def _size_and_place_text(record: Record, usage: RunUsage) -> str:
    """The size, the devices, the kind of machine, and its place."""
    limits = record.task_size
    if limits == UNKNOWN_SIZE:
        limits = TaskSize(vcpu=usage.cpu.size, memory_mb=usage.memory.size_mb)
    launch_type = _LAUNCH_TYPES.get(record.launch_type or "", record.launch_type)
    if launch_type == _LOCAL and record.task_arn:
        launch_type = "ECS"
    machine = " ".join(filter(None, (launch_type, record.cpu_architecture)))
    processor = ""
    if record.processor.model:
        processor = short_processor_name(record.processor.model)
    size = limits.text
    place = record.availability_zone or record.region
    devices = [fact.text for fact in usage.devices]
    return DOT.join(filter(None, (size, *devices, machine, processor, place)))


def _notice_text(notice: RaisedNotice) -> str:
    return notice.kind + words_if_known(" at {:%H:%M:%S}", known(local_time, parse_ns(notice.at)))


def _time_text(record: Record) -> str:
    started = known(local_time, record.started_ns)
    finished = known(local_time, record.finished_ns)
    metrics = record.metrics
    if started is None:
        return ""
    text = f"{started:%a %Y-%m-%d %H:%M:%S}"
    if finished is not None:
        if finished.tzname() != started.tzname():  # at the change of summer time
            text += f" {started:%Z}"
        text += " → "
        if finished.date() != started.date():
            text += f"{finished:%a %Y-%m-%d }"
        text += f"{finished:%H:%M:%S}"
    text += f" {finished or started:%Z}"
    text += words_if_known(" · {}", known(format_duration, metrics.duration_ms))
    return text + words_if_known(" + {} start-up", known(format_duration, metrics.init_duration_ms))


def _cost_text(record: Record, text: str) -> str:
    """The cost. Only the task's event shows Spot: without it, the text contains the price."""
    if not text:
        return ""
    billed_ms = record.metrics.billed_duration_ms
    if is_billed_by_size(record.launch_type):
        text += words_if_known(" for {} billed", known(format_duration, billed_ms))
    if (record.cost.price_basis or "").endswith(ON_DEMAND_PRICE) and not is_on_spot(record.cost):
        text += f", {ON_DEMAND_PRICE}"
    return text


class _Bar(Struct, frozen=True):
    """A row of the usage table. ``size`` is the full bar."""

    label: str
    use: Distribution
    size: float | None
    format_value: Callable[[float], str]
    note: str
    peak_text: str = ""


def _texts_of_rows(rows: Iterable[StoryRow]) -> Iterator[PageText]:
    for row in rows:
        yield PageText(label_span(row.name), row.text)


def _usage_table(record: Record, story: Story, view: View) -> Iterator[Part]:
    bars = tuple(_bars(record, story.usage))
    if not bars:
        for row in story.rows_named("unmeasured"):
            yield indented(row.sentence, "dim")
        return
    head = _aligned_columns("average", "95 %", "peak")
    begin = len(INDENT) + LABEL_WIDTH
    width = min(view.width - begin - len(head), _MAX_BAR_WIDTH)
    width = width if width >= _MIN_BAR_WIDTH else 0
    yield build_line(Span(f"{' ' * (begin + width)}{head}", "dim"))
    for bar in bars:
        use = bar.use
        average = value_text(use.avg, bar.format_value)
        p95 = value_text(use.p95, bar.format_value)
        peak = bar.peak_text or value_text(use.max, bar.format_value)
        texts = _aligned_columns(average, p95, peak)
        parts = [
            label_span(cut_end(bar.label, LABEL_WIDTH - 1), "bold"),
            *_drawn_bar(bar, width),
            Span(texts),
        ]
        room = view.width - begin - width - len(texts) - 2
        if len(bar.note) <= room:
            parts.append(Span(f"  {bar.note}", "dim"))
        yield build_line(*parts)


def _aligned_columns(*texts: str) -> str:
    return "".join(f"{text:>{_VALUE_WIDTH}}" for text in texts)


def _drawn_bar(bar: _Bar, width: int) -> Iterator[Span]:
    """The bar: filled up to the average, lighter up to the 95th percentile, and lightest up to
    the peak.
    """
    if not bar.size or not width:
        yield Span(" " * width)
        return
    done = 0
    use = bar.use
    style = use_style(bar.label, is_full=is_near_limit(use.max, bar.size))
    for value, character in ((use.avg, "█"), (use.p95, "▓"), (use.max, "░")):
        cells = max(done, _cell_count((value or 0) / bar.size, width))
        yield Span(character * (cells - done), style)
        done = cells
    yield Span("·" * (width - done), "dim")


def _cell_count(share: float, width: int) -> int:
    """The cells of a share; any use at all has one cell, and only a full use has all."""
    if share >= _FULL:
        return width
    return min(max(int(share * width + 0.5), int(share > 0)), width - 1)


def _bars(record: Record, usage: RunUsage) -> Iterator[_Bar]:
    cpu = usage.cpu
    if cpu.used != NOT_MEASURED:
        word = "asked for" if cpu.is_more_than_asked else "of"
        yield _Bar(
            CPU,
            cpu.used,
            cpu.size,
            format_bare_vcpu,
            _use_of_size_text(cpu.size, format_vcpu, word),
        )
    memory = usage.memory
    if record.metrics.has_memory or memory.used.avg is not None:
        note = _use_of_size_text(memory.size_mb, format_memory)
        yield _Bar(
            MEMORY, memory.used, memory.size_mb, format_memory, note, memory.peak_text_if_known
        )
    yield from _gpu_bars(record.gpus, usage.gpus)
    neuron = usage.neuron
    if neuron.is_watched:
        yield _Bar("Neuron", neuron.utilization_percent, 100, format_percent, neuron.memory_text)


def _gpu_bars(gpus: Sequence[Gpu], totals: GpuTotals) -> Iterator[_Bar]:
    """A bar for each GPU; many have one together."""
    if len(gpus) > _MAX_GPUS:
        memory = totals.memory_text
        note = f"{format_count(len(gpus), 'GPU')} together{memory and f', {memory}'}"
        yield _Bar("GPUs", totals.utilization_percent, 100, totals.use_text, note)
        return
    for gpu in gpus:
        name = "GPU" + words_if_known(" {}", gpu.index)
        as_text = partial(gpu_percent_text, gpu)
        yield _Bar(name, gpu.utilization_percent, 100, as_text, gpu_memory_text(gpu))


def _use_of_size_text(
    size: float | None, format_size: Callable[[float], str], word: str = "of"
) -> str:
    return words_if_known(word + " {}", known(format_size, size))


def _curve_parts(
    record: Record,
    usage: RunUsage,
    series: Series | None,
    moments: Sequence[RunMoment],
    view: View,
) -> Iterator[Part]:
    if series is not None:
        yield from _curves_and_axis(record, usage, series, moments, view)
    for number, moment in enumerate(moments, start=1):
        yield PageText(Span(f"{label_span('').text}{number} "), moment.text)


def _curves_and_axis(
    record: Record, usage: RunUsage, series: Series, moments: Sequence[RunMoment], view: View
) -> Iterator[Line]:
    curves = run_curves(usage, series)
    if not curves:
        return
    length_ms = series_length_ms(record, series)
    longest = len(format_duration(length_ms))
    for curve in curves:
        longest = max(longest, len(curve.limit_text))
    width = max(view.width - len(INDENT) - LABEL_WIDTH - longest - 1, _MIN_CURVE_WIDTH)
    for curve in curves:
        drawn = f"{curve.draw_curve(width):<{width}} "
        yield build_line(label_span(curve.label, "bold"), drawn, Span(curve.limit_text, "dim"))
    yield _time_axis(length_ms, moments, width)


def _time_axis(length_ms: float, moments: Sequence[RunMoment], width: int) -> Line:
    """The time axis: 0, the length of the run, and between them the number of each moment where
    it begins.
    """
    cells = [" "] * width
    numbered = sorted(
        (moment.start_ms, number) for number, moment in enumerate(moments[:_MAX_NUMBERED], start=1)
    )
    least = 0
    for left, (start_ms, number) in zip(range(len(numbered), 0, -1), numbered, strict=True):
        # After the previous number, with room for the next ones.
        place = min(max(int(start_ms / max(length_ms, 1) * width), least), width - left)
        cells[place] = str(number)
        least = place + 1
    if cells[0] == " ":
        cells[0] = "0"
    return build_line(
        label_span("", ""), Span(f"{''.join(cells)} {format_duration(length_ms)}", "dim")
    )


def _gpu_use_texts(story: Story) -> Iterator[PageText]:
    """The sentences on the GPUs without their full stops, the first after the label."""
    idle = [row.text for row in story.rows_named("GPU idle")]
    work = DOT.join(filter(None, (*idle[1:], story.first_text_named("GPU work"))))
    yield from labelled_once("GPU", (*idle[:1], work, story.first_text_named("GPU error")))


def _other_rows(record: Record, story: Story) -> Iterator[PageText]:
    yield from _texts_of_rows(story.rows_named("ECC", "killed", "I/O", "largest"))
    if record.stacks.samples:
        samples = format_count(record.stacks.samples, "sample")
        yield PageText(label_span("stacks"), f"{samples}: --stacks shows the functions")
    for warning in story.rows_named("warning")[:_MAX_WARNINGS]:
        yield PageText(label_span(warning.name), with_local_times(warning.text))


def _size_texts(sizes: SizeStory, story: Story) -> Iterator[PageText]:
    """How the family grows, what less vCPU would take, and what to change: the size, the GPUs' use,
    and the limits that the program does not see.
    """
    changes = [row.text for row in story.rows_named("GPU remedy", *UNSEEN_LIMITS)]
    advice = advice_lines(story, sizes)
    yield PageText(label_span("trend"), DOT.join(sizes.trend))
    yield from labelled_once("what if", sizes.what_if)
    yield from labelled_once("advice", (*advice, *changes))
