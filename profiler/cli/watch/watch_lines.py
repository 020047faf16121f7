"""The running tasks as lines for the terminal and as JSON."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from profiler.cli.printing import UNKNOWN
from profiler.cli.styled_text import Column, Glyphs, Line, Span, line, table, wrapped
from profiler.record.family_identity import family_key, place_columns
from profiler.record.record_model import known_status
from profiler.record.run_outcome import PREDICATES
from profiler.record.units import format_count, format_duration, format_memory, format_vcpu
from profiler.running_tasks.running_runs import RunningRun
from profiler.running_tasks.watched_tasks import WatchedRun

_ID_LENGTH = 8
# A terminal with so many columns has room for long bars.
_WIDE = 110
_BAR_WIDTH, _SHORT_BAR_WIDTH = 20, 8
_COLOURS = {"success": "green", "failure": "red", "stopped": "yellow"}
_FIRST_COLUMNS = (Column("Run"), Column("Family", folds=True))
_COLUMNS = (
    Column("Time", is_right=True),
    Column("Of p95"),
    Column("Median", is_right=True),
    Column("p95", is_right=True),
    Column("vCPU", is_right=True),
    Column("Memory", is_right=True),
    Column("", folds=True),
)


def json_lines(runs: Iterable[WatchedRun]) -> bytes:
    """One JSON line for each run; what is unknown is null."""
    return b"".join(msgspec.json.encode(_document(run)) + b"\n" for run in runs)


def _document(watched: WatchedRun) -> dict[str, object]:
    run, usual = watched.run, watched.usual
    record = run.report.record
    usual_ms = usual and {"medianMs": round(usual.median_ms), "p95Ms": round(usual.p95_ms), "runs": usual.runs}
    return {
        "taskId": record.task_id,
        "container": record.container.name or None,
        "cluster": record.cluster,
        "family": record.family,
        "status": known_status(record),
        "startedAt": record.started_at,
        "elapsedMs": None if watched.elapsed_ms is None else round(watched.elapsed_ms),
        "usual": usual_ms,
        "vcpuUsed": _vcpu_used(run),
        "vcpuSize": record.metrics.vcpu_size,
        "memoryUsedMB": _memory_used_mb(run),
        "memorySizeMB": record.metrics.memory_size_mb,
        "notices": [{"kind": one.kind, "at": one.at, "message": one.message} for one in run.notices],
    }


def _vcpu_used(run: RunningRun) -> float | None:
    """The mean of the newest checkpoint's interval."""
    used = run.interval.vcpu_used
    return None if used is None else used.avg


def _memory_used_mb(run: RunningRun) -> float | None:
    """The highest reading in the newest checkpoint's interval."""
    used = run.interval.memory_used_mb
    return None if used is None else used.avg if used.max is None else used.max


def watch_lines(
    runs: Sequence[WatchedRun], place: str, *, width: int | None, height: int | None, glyphs: Glyphs
) -> list[Line]:
    """A title, the table, and the notices.

    Args:
        runs: The runs in the order in which they are shown.
        place: Where they run.
        width: The columns of the terminal; None: no limit.
        height: The rows that there are for the lines; None: no limit. Other runs are only counted.
        glyphs: The characters of bars.
    """
    running = sum(watched.run.is_running for watched in runs)
    title = line(Span(f"{place}: {f'{running} running' if running else 'nothing runs'}", "bold"))
    if not runs:
        return [title]
    count = len(runs) if height is None else max(height - 3 - min(_notices(runs), height // 3), 1)
    rows = _table(runs[:count], width, glyphs)
    while height is not None and len(rows) > height - 2 and count > 1:  # rows that are folded
        count -= 1
        rows = _table(runs[:count], width, glyphs)
    shown, left = runs[:count], len(runs[count:])
    more = [line(Span(f"{glyphs.ellipsis} and {format_count(left, 'more task')}", "dim"))] if left else []
    lines = [title, *rows, *more]
    for watched in shown:
        record = watched.run.report.record
        name = f"{record.task_id[:_ID_LENGTH]} {family_key(record).name}"
        for notice in watched.run.notices:
            if notice.message is not None:
                text = f"{name}, {notice.kind}: {notice.message}"
                lines += wrapped(text, width or _WIDE, first="! ", style="yellow")
    return lines[:height]


def _notices(runs: Iterable[WatchedRun]) -> int:
    return sum(len(watched.run.notices) for watched in runs)


def _table(runs: Sequence[WatchedRun], width: int | None, glyphs: Glyphs) -> list[Line]:
    keys = [family_key(watched.run.report.record) for watched in runs]
    places = place_columns(keys)
    is_wide = width is None or width >= _WIDE
    columns = (*_FIRST_COLUMNS, *(Column(name) for name, _ in places), *_COLUMNS)
    rows = (
        (
            watched.run.report.record.task_id[:_ID_LENGTH],
            key.name or UNKNOWN,
            *(get(key) or UNKNOWN for _, get in places),
            *_cells(watched, _BAR_WIDTH if is_wide else _SHORT_BAR_WIDTH, glyphs),
        )
        for watched, key in zip(runs, keys, strict=True)
    )
    return table(columns, rows, gap=2 if is_wide else 1, width=width)


def _cells(watched: WatchedRun, bar_width: int, glyphs: Glyphs) -> Iterator[str | Span]:
    run, usual = watched.run, watched.usual
    metrics = run.report.record.metrics
    yield UNKNOWN if watched.elapsed_ms is None else format_duration(watched.elapsed_ms)
    yield _bar(watched, bar_width, glyphs)
    yield UNKNOWN if usual is None else format_duration(usual.median_ms)
    yield UNKNOWN if usual is None else format_duration(usual.p95_ms)
    yield _of_size(_vcpu_used(run), metrics.vcpu_size, lambda value: format_vcpu(value).removesuffix(" vCPU"))
    yield _of_size(_memory_used_mb(run), metrics.memory_size_mb, format_memory)
    yield _state(run)


def _bar(watched: WatchedRun, width: int, glyphs: Glyphs) -> Span | str:
    """The elapsed time up to the 95th percentile: green up to the median, and red after the 95th percentile."""
    usual, elapsed_ms = watched.usual, watched.elapsed_ms
    if usual is None or elapsed_ms is None or not usual.p95_ms:
        return UNKNOWN
    filled = min(int(width * elapsed_ms / usual.p95_ms), width)
    colour = "red" if elapsed_ms > usual.p95_ms else "yellow" if elapsed_ms > usual.median_ms else "green"
    return Span(glyphs.average * filled + glyphs.rest * (width - filled), colour)


def _of_size(used: float | None, size: float | None, format_value: Callable[[float], str]) -> str:
    """``0.4 / 2`` or ``2.5 / 4 GB``: a unit that both have is written once."""
    texts = [UNKNOWN if value is None else format_value(value) for value in (used, size)]
    unit = texts[1].partition(" ")[2]
    return f"{texts[0].removesuffix(f' {unit}') if unit else texts[0]} / {texts[1]}"


def _state(run: RunningRun) -> Span | str:
    record = run.report.record
    if not run.is_running:
        code = f" ({record.exit_code})" if record.exit_code else ""
        return Span(f"{PREDICATES[known_status(record)]}{code}", _COLOURS.get(record.status, ""))
    silent = () if run.silent_ms is None else (f"last seen {format_duration(run.silent_ms)} ago",)
    return Span(", ".join((*(notice.kind for notice in run.notices), *silent)), "yellow")
