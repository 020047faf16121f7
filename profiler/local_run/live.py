"""The live view of ``run --live``: two lines at the bottom of the terminal.

The command writes to the same terminal, so the view must not redraw lines in place. It removes the bottom rows from the
scrolling region (DECSTBM, like the progress bar of apt), and the command's output scrolls above them.
"""

from collections.abc import Callable
from io import StringIO

from msgspec import Struct
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from profiler.aggregation.container_usage import vcpu_between
from profiler.aggregation.task_record import ResourceLimits
from profiler.readers.ecs.container_stats import ContainerSample
from profiler.record.units import MIB

ROWS = 2
_MIN_TERMINAL_ROWS = 6
_MIN_TERMINAL_COLUMNS = 30
_BAR_WIDTH = 30
_PERCENT = 100
_GIB = 1024 * MIB

_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"
_CLEAR_LINE = "\x1b[2K"


class Terminal(Struct, frozen=True, kw_only=True):
    """The current size of a terminal."""

    columns: int
    rows: int


class LiveView:
    """Draws the last sample.

    Args:
        get_terminal: Returns the terminal's size.
        write: Writes to the terminal at once.
        sizes: The limits that the bars are relative to.
        started_ns: The start of the command by the wall clock.
    """

    def __init__(
        self, get_terminal: Callable[[], Terminal], write: Callable[[str], None], sizes: ResourceLimits, started_ns: int
    ) -> None:
        self._get_terminal = get_terminal
        self._write = write
        self._sizes = sizes
        self._started_ns = started_ns
        self._last: ContainerSample | None = None
        self._terminal: Terminal | None = None

    def on_sample(self, sample: ContainerSample) -> None:
        """Show a sample; nothing is shown in a terminal that is too small."""
        terminal = self._get_terminal()
        if terminal.rows < _MIN_TERMINAL_ROWS or terminal.columns < _MIN_TERMINAL_COLUMNS:
            self.close()
            return
        if terminal != self._terminal:
            self._write(_reserve_rows(terminal, first=self._terminal is None))
            self._terminal = terminal
        lines = render(sample, self._last, self._sizes, self._started_ns, terminal.columns)
        self._last = sample
        self._write(_draw_at_bottom(lines, terminal))

    def close(self) -> None:
        """Clear the view and restore the scrolling region."""
        if self._terminal is not None:
            cleared = _draw_at_bottom([""] * ROWS, self._terminal)
            self._write(f"{cleared}{_SAVE_CURSOR}\x1b[r{_RESTORE_CURSOR}")
            self._terminal = None


def render(
    sample: ContainerSample, before: ContainerSample | None, sizes: ResourceLimits, started_ns: int, columns: int
) -> list[str]:
    """The two lines, not wider than the terminal; an unknown value is a dash."""
    vcpu = vcpu_between(before, sample)
    unit, digits = ("MB", 0) if (sizes.memory_bytes or 0) < _GIB else ("GB", 2)  # one unit for both numbers
    per_unit = MIB if unit == "MB" else _GIB
    memory = None if sample.memory_used_bytes is None else sample.memory_used_bytes / per_unit
    memory_size = None if sizes.memory_bytes is None else sizes.memory_bytes / per_unit
    seconds = max(sample.read_ns - started_ns, 0) // 1_000_000_000
    threads = "" if sample.pids is None else f"{sample.pids} thread{'' if sample.pids == 1 else 's'}"
    table = Table.grid(padding=(0, 1))
    table.add_row(
        "CPU",
        _progress_bar(vcpu, sizes.vcpu),
        _format_with_limit(vcpu, sizes.vcpu, "vCPU", 2),
        f"{seconds // 60}:{seconds % 60:02d}",
    )
    table.add_row(
        "memory", _progress_bar(memory, memory_size), _format_with_limit(memory, memory_size, unit, digits), threads
    )
    console = Console(
        file=StringIO(), force_terminal=True, width=columns, color_system="standard", legacy_windows=False
    )
    with console.capture() as capture:
        console.print(table, no_wrap=True, overflow="crop", crop=True)
    return capture.get().splitlines()[:ROWS]


def _progress_bar(value: float | None, size: float | None) -> ProgressBar:
    share = _PERCENT * value / size if value is not None and size else 0
    style = "red" if share >= 90 else "green"  # noqa: PLR2004  near the limit
    return ProgressBar(total=_PERCENT, completed=share, width=_BAR_WIDTH, complete_style=style, finished_style="red")


def _format_with_limit(value: float | None, size: float | None, unit: str, digits: int) -> str:
    shown = "-" if value is None else f"{value:,.{digits}f}"
    limit = "" if size is None else f" of {_without_zeros(f'{size:,.{digits}f}')}"
    return f"{shown}{limit} {unit}"


def _without_zeros(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".") if "." in decimal else decimal


def _reserve_rows(terminal: Terminal, *, first: bool) -> str:
    """The control codes that remove the bottom rows from the scrolling region and keep the cursor above them."""
    make_room = "\n" * ROWS + f"\x1b[{ROWS}A" if first else ""
    return f"{make_room}{_SAVE_CURSOR}\x1b[1;{terminal.rows - ROWS}r{_RESTORE_CURSOR}"


def _draw_at_bottom(lines: list[str], terminal: Terminal) -> str:
    drawn = "".join(f"\x1b[{terminal.rows - ROWS + 1 + row};1H{_CLEAR_LINE}{line}" for row, line in enumerate(lines))
    return f"{_SAVE_CURSOR}{drawn}{_RESTORE_CURSOR}"
