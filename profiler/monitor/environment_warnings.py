"""Warnings about what is around the batch: an instance that swaps, and outputs of the monitor that nobody reads."""

from collections.abc import Callable, Iterator

from profiler.collectors.collector import Collector
from profiler.core.deadline_writer import Output
from profiler.readers.ecs.task_metadata import runs_on_instance
from profiler.readers.linux.host import SwapCounters
from profiler.record.record_model import Record, with_warnings
from profiler.record.units import MIB


class SwapWarning(Collector):
    """Compares the instance's swap counters with those at :meth:`start`: earlier swapping does not count."""

    def __init__(self, read: Callable[[], SwapCounters | None]) -> None:
        self._read = read
        self._before: SwapCounters | None = None

    def start(self) -> None:
        self._before = self._read()

    def add_to_record(self, record: Record) -> Record:
        """Add a warning if at least 1 MiB was swapped while the task ran on an instance."""
        now = self._read() if runs_on_instance(record.launch_type) else None
        if now is None or self._before is None:
            return record
        out_mib = (now.out_bytes - self._before.out_bytes) // MIB
        in_mib = (now.in_bytes - self._before.in_bytes) // MIB
        if max(out_mib, in_mib) < 1:
            return record
        amounts = f"{out_mib} MiB out, {in_mib} MiB back in"
        return with_warnings(
            record,
            (f"The instance swapped while the batch ran ({amounts}): give it more memory, or fewer tasks at a time.",),
        )


class OutputWarning(Collector):
    """Counts the lines that were dropped because nobody read the monitor's outputs, which may be the same."""

    def __init__(self, stdout: Output, stderr: Output) -> None:
        self._names = {stdout: "standard output"} | ({} if stderr is stdout else {stderr: "standard error"})

    def add_to_record(self, record: Record) -> Record:
        return with_warnings(record, self._sentences())

    def _sentences(self) -> Iterator[str]:
        for output, name in self._names.items():
            if output.dropped:
                lines = "1 line was" if output.dropped == 1 else f"{output.dropped} lines were"
                yield f"The monitor's {name} was not read for a while (a log driver that hangs?): {lines} dropped."
