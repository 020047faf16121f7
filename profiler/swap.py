"""Whether the instance swapped while the batch ran: it explains a slow batch, and nothing else shows it.

Swap belongs to the instance and not to a task: it is reported, never attributed. Fargate has none.
"""

from collections.abc import Callable

from profiler.figures import MIB
from profiler.sources.instance import SwapCounters
from profiler.sources.task_metadata import TaskMetadata


class SwapTracker:
    """Compares the instance's counters with those at ``begin``."""

    def __init__(self, read: Callable[[], SwapCounters | None]) -> None:
        self._read = read
        self._before: SwapCounters | None = None

    def start(self) -> None:
        """What was swapped before does not count."""
        self._before = self._read()

    def notes(self, task: TaskMetadata) -> tuple[str, ...]:
        """A sentence if at least 1 MiB was moved, for a task that runs on an instance."""
        now = self._read() if task.runs_on_instance else None
        if now is None or self._before is None:
            return ()
        out_mib = (now.out_bytes - self._before.out_bytes) // MIB
        in_mib = (now.in_bytes - self._before.in_bytes) // MIB
        if max(out_mib, in_mib) < 1:
            return ()
        moved = f"{out_mib} MiB out, {in_mib} MiB back in"
        return (f"The instance swapped while the batch ran ({moved}): give it more memory, or fewer tasks at a time.",)
