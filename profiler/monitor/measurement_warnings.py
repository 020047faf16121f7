"""Warnings about the measurement: a clock that was set, restarts, impossible values, swapping, outputs nobody reads."""

from collections.abc import Callable, Iterator

from profiler.aggregation.task_record import RecordPart
from profiler.collectors.collector import Collector
from profiler.core.deadline_writer import Output
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.ecs.task_metadata import runs_on_instance
from profiler.readers.linux.host import SwapCounters
from profiler.record.record_model import Record
from profiler.record.units import MIB, format_count


class SwapWarning(Collector):
    """Compares the instance's swap counters with those at :meth:`start`: earlier swapping does not count."""

    def __init__(self, read: Callable[[], SwapCounters | None]) -> None:
        self._read = read
        self._before: SwapCounters | None = None

    def start(self) -> None:
        self._before = self._read()

    def part(self, record: Record) -> RecordPart:
        """Return a warning if at least 1 MiB was swapped while the task ran on an instance."""
        now = self._read() if runs_on_instance(record.launch_type) else None
        if now is None or self._before is None:
            return RecordPart()
        out_mib = (now.out_bytes - self._before.out_bytes) // MIB
        in_mib = (now.in_bytes - self._before.in_bytes) // MIB
        if max(out_mib, in_mib) < 1:
            return RecordPart()
        amounts = f"{out_mib} MiB out, {in_mib} MiB back in"
        text = f"The instance swapped while the batch ran ({amounts}): give it more memory, or fewer tasks at a time."
        return RecordPart(warnings=(text,))


class OutputWarning(Collector):
    """Counts the lines that were dropped because nobody read the monitor's outputs, which may be the same."""

    def __init__(self, stdout: Output, stderr: Output) -> None:
        self._names = {stdout: "standard output"} | ({} if stderr is stdout else {stderr: "standard error"})

    def part(self, record: Record) -> RecordPart:  # noqa: ARG002  of no record
        return RecordPart(warnings=tuple(self._sentences()))

    def _sentences(self) -> Iterator[str]:
        for output, name in self._names.items():
            if output.dropped:
                lines = "1 line was" if output.dropped == 1 else f"{output.dropped} lines were"
                yield f"The monitor's {name} was not read for a while (a log driver that hangs?): {lines} dropped."


def clock_was_set(jumped_ns: int) -> str:
    """The warning that the wall clock was set during the run."""
    direction = "forward" if jumped_ns > 0 else "back"
    return (
        f"The wall clock was set {direction} by {abs(jumped_ns) / NS_PER_SECOND:.0f} s during the run: "
        "times after it are off by that much; durations are corrected."
    )


def was_restarted(count: int) -> str:
    """The warning that ECS restarted the container in place."""
    times = "once" if count == 1 else f"{count} times"
    return f"ECS restarted the container {times}: the values cover all attempts that were seen."


def was_impossible(count: int) -> str:
    """The warning that the task stats had values that this machine cannot reach."""
    return (
        f"The task stats had {format_count(count, 'value')} of CPU time or memory that cannot be right on this "
        "machine: left out."
    )
