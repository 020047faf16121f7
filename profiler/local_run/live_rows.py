"""The live view of ``run --live``: CPU and memory of the command in two rows at the bottom of the terminal."""

from typing import TYPE_CHECKING

from profiler.aggregation.container_usage import vcpu_between
from profiler.aggregation.task_record import ResourceLimits
from profiler.local_run.terminal_rows import GREEN, RED, BottomRows, Part, bar
from profiler.readers.container_sample import ContainerSample
from profiler.record.units import MIB

if TYPE_CHECKING:
    from profiler.record.notice_model import NoticeLine

ROWS = 2
_LABEL_WIDTH = 6
_GIB = 1024 * MIB
_NEAR_LIMIT_SHARE = 0.9
_SHORT_NOTICES = {"memory": "memory runs out"}


class LiveView:
    """Draws the last sample."""

    def __init__(self, rows: BottomRows, sizes: ResourceLimits, started_ns: int) -> None:
        self._rows = rows
        self._sizes = sizes
        self._started_ns = started_ns
        self._last: ContainerSample | None = None
        self._notices: tuple[str, ...] = ()

    def on_sample(self, sample: ContainerSample) -> None:
        """Show a sample."""
        rows = live_rows(sample, self._last, self._sizes, self._started_ns)
        *bar_parts, numbers = rows[0]  # a narrow terminal cuts off the numbers
        rows[0] = (*bar_parts, *((f"  {kind}", RED) for kind in self._notices), numbers)
        self._rows.draw(rows)
        self._last = sample

    def on_notice(self, line: "NoticeLine") -> None:
        """Show the kind of a notice from now on."""
        self._notices = (*self._notices, _SHORT_NOTICES.get(line.notice.kind, line.notice.kind))

    def close(self) -> None:
        """Remove the view."""
        self._rows.close()


def live_rows(
    sample: ContainerSample, before: ContainerSample | None, sizes: ResourceLimits, started_ns: int
) -> list[tuple[Part, ...]]:
    """The two rows; an unknown value is a dash."""
    vcpu = vcpu_between(before, sample)
    unit, digits = ("MB", 0) if (sizes.memory_bytes or 0) < _GIB else ("GB", 2)  # one unit for both numbers
    per_unit = MIB if unit == "MB" else _GIB
    memory = None if sample.memory_used_bytes is None else sample.memory_used_bytes / per_unit
    memory_size = None if sizes.memory_bytes is None else sizes.memory_bytes / per_unit
    seconds = max(sample.read_ns - started_ns, 0) // 1_000_000_000
    threads = "" if sample.pids is None else f"{sample.pids} thread{'' if sample.pids == 1 else 's'}"
    values = _with_limit(vcpu, sizes.vcpu, "vCPU", 2), _with_limit(memory, memory_size, unit, digits)
    width = max(map(len, values))
    return [
        _row("CPU", _share(vcpu, sizes.vcpu), f"{values[0]:<{width}} {seconds // 60}:{seconds % 60:02d}"),
        _row("memory", _share(memory, memory_size), f"{values[1]:<{width}} {threads}"),
    ]


def _row(label: str, share: float, text: str) -> tuple[Part, ...]:
    return (
        (f"{label:<{_LABEL_WIDTH}} ", ""),
        *bar(share, RED if share >= _NEAR_LIMIT_SHARE else GREEN),
        (f" {text}", ""),
    )


def _share(value: float | None, size: float | None) -> float:
    return value / size if value is not None and size else 0


def _with_limit(value: float | None, size: float | None, unit: str, digits: int) -> str:
    shown = "-" if value is None else f"{value:,.{digits}f}"
    limit = "" if size is None else f" of {_without_zeros(f'{size:,.{digits}f}')}"
    return f"{shown}{limit} {unit}"


def _without_zeros(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".") if "." in decimal else decimal
