"""The end of ``run``. No number is cut: a narrow terminal gets shorter texts."""

import sys
from collections.abc import Iterable, Sequence
from itertools import chain, product
from operator import attrgetter

from msgspec.structs import replace

from profiler.cli.standard_streams import STDERR, terminal_columns
from profiler.cli.styled_text import (
    INDENT,
    RESET,
    Line,
    Span,
    build_line,
    cut_end,
    render_lines,
    shows_colours,
    wrapped_lines,
)
from profiler.cli.terminal.next_step import may_name_size, next_step
from profiler.cli.terminal.page_parts import LABEL_WIDTH, MAX_WIDTH, View, label_span
from profiler.core.ecs_terms import SHORT_ID_LENGTH
from profiler.core.optional_math import any_known, known_values, median
from profiler.core.text import columns_of, printable
from profiler.core.timestamps import with_local_times
from profiler.record.fact_list import (
    CPU_TIME,
    DURATION,
    MEMORY_PEAK,
    NumberRow,
    number_fact,
    wait_name,
)
from profiler.record.hardware import UNREAD_GPU
from profiler.record.record_model import Metrics, Record, Report, Series
from profiler.record.run_outcome import SIGKILL_EXIT_CODE, Outcome
from profiler.record.run_summary import BESIDE_MEMORY, DOT, Story
from profiler.record.run_usage import RunUsage
from profiler.record.units import (
    MIB,
    format_memory,
    format_time_share,
    format_value,
)
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.verdict_sentence import VerdictSentences, verdict_of

MAX_LINES = 8
# On a narrower terminal, lines wrap.
_LEAST_WIDTH = 40
_LABEL_WIDTH = LABEL_WIDTH - 1
# A longer text is cut.
_MAX_WRAPPED = 3
_PIPE_WIDTH = 80
_FILE_ENCODING = "utf-8"


class EndView(View, frozen=True, kw_only=True):
    """``printed``: warnings printed before.

    ``history``: options by which ``show`` finds the run; None: it cannot.
    """

    max_lines: int = MAX_LINES
    history: Sequence[str] | None = ()
    printed: Sequence[str] = ()


def end_page_lines(report: Report, earlier: Sequence[Record], view: EndView) -> list[Line]:
    """Draw the end of a run.

    ``earlier`` are comparable successes of its family, the newest first.
    """
    run = PastRun(report=report, line=b"")  # it has a report: this one
    record = run.record
    story = run.story
    verdict = verdict_of(run, view.now_ns)
    if _has_curves(record.series):
        pointer = _command_if_fits("show", record.task_id[:SHORT_ID_LENGTH], view)
    else:
        pointer = ""
    head = _head_lines(verdict, record, story.usage, pointer, view)
    has_pointer = any(pointer in span.text for span in chain.from_iterable(head))
    waited_for = [f"{format_time_share(wait.percent)} {wait_name(wait)}" for wait in story.waits]
    # With options the sentence would be too long.
    if view.history or not may_name_size(record, story.outcome):
        recommend = ""
    else:
        recommend = _command_if_fits("recommend", record.family or "", view)
    advice = next_step(record, story, recommend)
    parts = [
        (0, head),
        (1, _evidence_lines(verdict, story.outcome, view)),
        (4, _unread_gpu_lines(story, view)),
        (4, _warning_lines(story, view)),
        *_usage_lines_by_order(record, story, view),
        *(
            (6, _wrapped_lines(row.name, row.text, view))
            for row in story.rows_named(*BESIDE_MEMORY)
        ),
        (6, _labelled_lines("waits", DOT.join(waited_for), view)),
        (7, _io_lines(record, story, view)),
        (5, _change_lines(record, earlier, view)),
        (3, _wrapped_lines("advice", advice, view)),
        (8, () if has_pointer else _labelled_lines("more", pointer, view)),
    ]
    left = view.max_lines
    shown: dict[int, tuple[Line, ...]] = {}
    for place, (_, lines) in sorted(enumerate(parts), key=lambda part: part[1][0]):
        if len(lines) <= left:
            left -= len(lines)
            shown[place] = lines
    return list(chain.from_iterable(shown[place] for place in sorted(shown)))


def _io_lines(record: Record, story: Story, view: EndView) -> tuple[Line, ...]:
    """The bytes, unless the run read and wrote less than 1 MiB."""
    metrics = record.metrics
    most_bytes = max(metrics.block_read_bytes or 0, metrics.block_write_bytes or 0)
    if most_bytes < MIB:
        return ()
    return _labelled_lines("I/O", story.first_text_named("I/O"), view)


def _change_lines(record: Record, earlier: Sequence[Record], view: EndView) -> tuple[Line, ...]:
    if not earlier:
        return ()
    from profiler.cli.terminal.show_comparison import change_spans  # not for the first run

    spans = change_spans(record, earlier, view.now_ns, view.width - len(INDENT) - _LABEL_WIDTH)
    if spans:
        return (build_line(label_span("change", width=_LABEL_WIDTH), *spans),)
    return ()


def _command_if_fits(name: str, argument: str, view: EndView) -> str:
    """A command for more about the run; "" for a run that is in no history, or if it does not
    fit on a line.
    """
    if view.history is None:
        return ""
    import shlex  # the shortest runs print no command

    command = f"task-profiler {name} {shlex.join((argument, *view.history))}"
    if len(INDENT) + _LABEL_WIDTH + len(command) <= view.width:
        return command
    return ""


def _head_lines(
    verdict: VerdictSentences, record: Record, usage: RunUsage, pointer: str, view: EndView
) -> tuple[Line, ...]:
    """The verdict, and other facts that fit on its line: memory of a run without a curve, CPU
    time, how to see more.
    """
    dot = Span("● ", verdict.tone)
    text = printable(verdict.text.removesuffix("."))
    rows = _lines_after_label(text, dot, view, verdict.tone)[:_MAX_WRAPPED]
    room = view.width - columns_of(dot.text + text)
    facts = _facts_text(record, usage, room)
    room -= len(facts)
    if len(pointer) >= room - 1:
        pointer = ""
    end = pointer and pointer.rjust(room)
    return (build_line(*rows[0], facts, Span(end, "dim")), *rows[1:])


def one_line_end(report: Report, view: EndView) -> Line:
    """One of several runs: the verdict, how to see more, and other facts that fit on the line."""
    record = replace(report.record, series=None)  # without a curve, the memory peak is a fact
    run = PastRun(report=report, line=b"")  # it has a report: this one
    verdict = verdict_of(run, view.now_ns)
    pointer = _command_if_fits("show", record.task_id[:SHORT_ID_LENGTH], view)
    room = view.width - (len(pointer) + 2 if pointer else 0)
    text = cut_end(printable(f"● {verdict.text.removesuffix('.')}"), room)
    facts = _facts_text(record, run.story.usage, room - columns_of(text))
    if pointer:
        end = pointer.rjust(view.width - columns_of(text) - len(facts))
    else:
        end = ""
    return build_line(Span(text, verdict.tone), facts, Span(end, "dim"))


def _facts_text(record: Record, usage: RunUsage, room: int) -> str:
    """The GPUs and NeuronCores of a run without their curve, the memory peak of one without a
    curve, and the CPU time, as far as there is room.
    """
    facts = ""
    devices = _device_texts(usage, record.series)
    metrics = record.metrics
    peak = number_fact(MEMORY_PEAK, record).list_text
    peaks: list[str] = []
    if metrics.has_memory and not _has_curves(record.series):
        if metrics.memory_size_mb:
            peaks.append(f"{peak} of {format_memory(metrics.memory_size_mb)}")
        peaks.append(peak)
    cpu_time: list[str] = []
    if metrics.cpu_seconds is not None:
        cpu_time.append(f"{number_fact(CPU_TIME, record).text} of CPU time")
    for texts in (devices, peaks, cpu_time):
        left = room - len(facts) - len(" · ")
        text = next((text for text in texts if len(text) <= left), "")
        if text:
            facts += f" · {text}"
    return facts


def _evidence_lines(verdict: VerdictSentences, outcome: Outcome, view: EndView) -> tuple[Line, ...]:
    is_kill = outcome.ran_out_of_memory or outcome.exit_code == SIGKILL_EXIT_CODE
    is_explained = is_kill or outcome.cause in ("gpu-oom", "gpu-error")
    if not (verdict.evidence and (is_explained or verdict.tone == "warning")):
        return ()
    return _lines_after_label(verdict.evidence, Span(INDENT), view)[:_MAX_WRAPPED]


def _has_curves(series: Series | None) -> bool:
    if series is None:
        return False
    return any_known(*(series.vcpu_used or ()), *(series.memory_used_mb or ()))


def _device_texts(usage: RunUsage, series: Series | None) -> list[str]:
    """The use of the GPUs and of the NeuronCores that no curve shows: first texts with both, then
    with one, each from the longest to the shortest.
    """
    gpu_curve = series.gpu_utilization_percent if series else None
    neuron_curve = series.neuron_utilization_percent if series else None
    gpu = _unless_drawn(usage.gpus.part_texts, gpu_curve)
    neuron = _unless_drawn(usage.neuron.part_texts, neuron_curve)
    both = sorted(map(DOT.join, product(gpu, neuron)), key=len, reverse=True)
    return [*both, *gpu, *neuron]


def _unless_drawn(parts: Sequence[str], curve: Sequence[float | None] | None) -> list[str]:
    if any_known(*(curve or ())):
        return []
    return [", ".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _unread_gpu_lines(story: Story, view: EndView) -> tuple[Line, ...]:
    """The warning of unread GPUs, alone: one command makes the next run have them."""
    if UNREAD_GPU not in [row.text for row in story.rows_named("warning")]:
        return ()
    return _labelled_lines("warning", UNREAD_GPU, view)


def _warning_lines(story: Story, view: EndView) -> tuple[Line, ...]:
    rows = story.rows_named("ECC", "warning")
    told = (*view.printed, UNREAD_GPU)
    warnings = [row.text for row in rows if row.text not in told]
    if not warnings:
        return ()
    text = with_local_times(warnings[0])
    if len(warnings) > 1:
        more = f" (and {len(warnings) - 1} more)"
        room = view.width - len(INDENT) - _LABEL_WIDTH - len(more)
        text = cut_end(printable(text), room) + more
    return _labelled_lines("warning", text, view)


def _usage_lines_by_order(
    record: Record, story: Story, view: EndView
) -> Iterable[tuple[int, tuple[Line, ...]]]:
    """The curves and the bar of the time, each after its rank."""
    shares = [share.percent.value for share in story.time]
    if record.series is None and not any_known(*shares, story.covered_percent):
        return ()
    from profiler.cli.terminal.end_usage import usage_lines_by_order  # not for the shortest runs

    return usage_lines_by_order(record, story, view, _LABEL_WIDTH)


def _labelled_lines(name: str, text: str, view: EndView) -> tuple[Line, ...]:
    if not text:
        return ()
    room = view.width - len(INDENT) - _LABEL_WIDTH
    return (build_line(label_span(name, width=_LABEL_WIDTH), cut_end(printable(text), room)),)


def _wrapped_lines(name: str, text: str, view: EndView) -> tuple[Line, ...]:
    rows = _lines_after_label(text, label_span(name, width=_LABEL_WIDTH), view)
    if len(rows) <= _MAX_WRAPPED:
        return rows
    rest = " ".join(row[-1].text for row in rows[_MAX_WRAPPED - 1 :])
    return *rows[: _MAX_WRAPPED - 1], *_labelled_lines("", rest, view)


def _lines_after_label(text: str, first: Span, view: EndView, style: str = "") -> tuple[Line, ...]:
    room = view.width - len(first.text)
    rows = wrapped_lines(text, view.width, first, style=style)
    return tuple(build_line(start, Span(cut_end(rest.text, room), style)) for start, rest in rows)


def printed_end(
    report: Report,
    earlier: Sequence[Record],
    now_ns: int,
    *,
    is_file: bool,
    is_one_line: bool,
    history: Sequence[str] | None,
    printed: Sequence[str],
) -> bytes:
    """Draw the end of a run, or only a line of it, for a file or standard error.

    For the parameters, see EndView.
    """
    view = EndView(width=_PIPE_WIDTH, now_ns=now_ns, history=history)
    encoding = _FILE_ENCODING
    is_colourful = False
    before = b""
    if not is_file:
        if sys.stderr:
            encoding = sys.stderr.encoding or _FILE_ENCODING
        is_colourful = shows_colours(STDERR)
        # The command may have left the cursor within a line, and a colour: the end begins on its
        # own line.
        before = RESET.encode() * is_colourful + b"\n"
        view = replace(view, width=_stderr_width(), max_lines=MAX_LINES - 1, printed=printed)
    if is_one_line:
        row = render_lines(
            [one_line_end(report, view)], is_coloured=is_colourful, encoding=encoding
        )
        return before.removesuffix(b"\n") + row
    lines = end_page_lines(report, earlier, view)
    return before + render_lines(lines, is_coloured=is_colourful, encoding=encoding)


def printed_summary(successes: Sequence[Metrics], *, is_file: bool) -> bytes:
    """The median and range of duration, memory peak and CPU time, below an empty line.

    One run has none.
    """
    texts = []
    for row in (DURATION, MEMORY_PEAK, CPU_TIME):
        text = _median_and_range(row, successes)
        if text:
            texts.append(text if row is DURATION else f"{row.name} {text}")
    medians = ", ".join(texts)
    if len(successes) < 2 or not medians:  # noqa: PLR2004
        return b""
    sentence = f"Median of {len(successes)} runs: {medians}."
    rows = wrapped_lines(sentence, _PIPE_WIDTH if is_file else _stderr_width())
    return b"\n" + render_lines(rows, is_coloured=False, encoding=_FILE_ENCODING)


def _stderr_width() -> int:
    """The used columns of the terminal, within limits; 80 in a pipe, and on a terminal without a
    size.
    """
    return min(max(terminal_columns(STDERR) or _PIPE_WIDTH, _LEAST_WIDTH), MAX_WIDTH)


def _median_and_range(row: NumberRow, runs: Sequence[Metrics]) -> str:
    read = attrgetter(row.path.removeprefix("metrics."))
    numbers = sorted(known_values(map(read, runs)))
    if not numbers:
        return ""
    least = format_value(numbers[0], row.unit)
    most = format_value(numbers[-1], row.unit)
    if least == most:
        return least
    number, _, unit = least.partition(" ")
    if unit == most.partition(" ")[2]:
        least = number
    return f"{format_value(median(numbers), row.unit)} ({least} to {most})"
