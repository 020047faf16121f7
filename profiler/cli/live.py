"""Wires the live view to the terminal on stderr."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.clock import Clock

if TYPE_CHECKING:
    from profiler.local.live import LiveView

_STDERR = 2


def live_view(clock: Clock) -> "LiveView | None":
    """The view, or None where stderr is no terminal. rich is imported here, so only for --live."""
    if not os.isatty(_STDERR):
        return None
    from profiler.local.live import LiveView, Terminal  # noqa: PLC0415  draws by rich
    from profiler.local.local_record import effective_sizes  # noqa: PLC0415
    from profiler.sources.cgroup import read_own_cgroups  # noqa: PLC0415
    from profiler.sources.host import read_host  # noqa: PLC0415

    def measure() -> Terminal:
        try:
            size = os.get_terminal_size(_STDERR)
        except OSError:
            return Terminal(columns=0, rows=0)
        return Terminal(columns=size.columns, rows=size.lines)

    def write(text: str) -> None:
        try:
            os.write(_STDERR, text.encode())
        except OSError:
            # The terminal is gone; the command and its report are not concerned.
            return

    sizes = effective_sizes(read_own_cgroups(Path("/")).limits(), read_host(), len(os.sched_getaffinity(0)))
    return LiveView(measure, write, sizes, clock.wall_ns())
