"""The live view of ``run --live`` at the bottom of the terminal: collects what it shows, in constant memory."""

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from profiler.aggregation.container_usage import vcpu_between
from profiler.aggregation.task_record import ResourceLimits
from profiler.aggregation.time_series import RunSeries
from profiler.core.threads import start_thread
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.local_run.live_rows import MAX_PICTURE_WIDTH, LiveFigures, NamedProcesses, live_rows
from profiler.local_run.terminal_rows import BottomRows
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.process_tree import ProcessReading

if TYPE_CHECKING:
    from profiler.past_runs.usual_times import UsualDuration
    from profiler.record.notice_model import NoticeLine

_FIRST_STEP_NS = NS_PER_SECOND // 50
# The command may be sampled more often.
_MIN_DRAW_PAUSE_NS = NS_PER_SECOND // 4
# Shorter runs do not read the history, and the fine samples of the first seconds are not disturbed by it.
_USUAL_AFTER_NS = 2 * NS_PER_SECOND
# With fewer successes, or if some take several times as long as others, the time left would be a guess.
_MIN_USUAL_RUNS = 3
_MAX_P95_TO_MEDIAN = 3
_SHORT_NOTICES = {"memory": "memory runs out"}

ReadUsual = Callable[[], "UsualDuration | None"]


class LiveView:
    """Draws the run so far, at most four times a second.

    Args:
        rows: Where to draw.
        sizes: The limits.
        started_ns: The start of the run (wall clock).
        read_usual: Reads how long such runs usually take. It is called once, in a thread, and may hang.
        ascii_only: Draw with ASCII characters.
    """

    def __init__(
        self,
        rows: BottomRows,
        sizes: ResourceLimits,
        started_ns: int,
        read_usual: ReadUsual | None = None,
        *,
        ascii_only: bool = False,
    ) -> None:
        self._rows = rows
        self._sizes = sizes
        self._started_ns = started_ns
        self._read_usual = read_usual
        self._ascii_only = ascii_only
        self._usual: UsualDuration | None = None
        self._course = RunSeries(started_ns, _FIRST_STEP_NS, MAX_PICTURE_WIDTH)
        self._last = self._drawn = ContainerSample(read_ns=started_ns, cpu_ns=0)
        self._drawn_cpu_ns: Mapping[tuple[int, int], int] = {}
        self._notices: tuple[str, ...] = ()

    def on_sample(self, sample: ContainerSample, processes: Sequence[ProcessReading]) -> None:
        """Count a sample and the processes that it was made of, and draw if it is time to."""
        self._add_to_course(sample)
        if self._read_usual is not None and sample.read_ns - self._started_ns >= _USUAL_AFTER_NS:
            read, self._read_usual = self._read_usual, None
            start_thread(threading.Thread(target=lambda: self._keep_usual(read), name="usual-duration", daemon=True))
        if sample.read_ns - self._drawn.read_ns >= _MIN_DRAW_PAUSE_NS:
            figures = self._figures(sample, processes)
            self._rows.draw(lambda terminal: live_rows(figures, terminal, ascii_only=self._ascii_only))
            self._drawn = sample
            self._drawn_cpu_ns = {process.identity: process.own_cpu_ns for process in processes}

    def on_notice(self, line: "NoticeLine") -> None:
        """Show the kind of a notice from now on."""
        self._notices = (*self._notices, _SHORT_NOTICES.get(line.notice.kind, line.notice.kind))

    def close(self) -> None:
        """Remove the view."""
        self._rows.close()

    def _keep_usual(self, read_usual: ReadUsual) -> None:
        usual = read_usual()
        if usual is not None and usual.runs >= _MIN_USUAL_RUNS and usual.p95_ms <= _MAX_P95_TO_MEDIAN * usual.median_ms:
            self._usual = usual

    def _add_to_course(self, sample: ContainerSample) -> None:
        last, self._last = self._last, sample
        if last.cpu_ns is not None and sample.cpu_ns is not None:
            self._course.add_cpu(last.read_ns, sample.read_ns, max(sample.cpu_ns - last.cpu_ns, 0))
        if sample.memory_used_bytes is not None:
            held_ns = max(sample.read_ns - last.read_ns, 0)
            self._course.add_memory(sample.read_ns, sample.memory_used_bytes, held_ns=held_ns)

    def _figures(self, sample: ContainerSample, processes: Sequence[ProcessReading]) -> LiveFigures:
        elapsed_ns = sample.read_ns - self._drawn.read_ns
        return LiveFigures(
            elapsed_ms=(sample.read_ns - self._started_ns) / NS_PER_MS,
            vcpu=vcpu_between(self._drawn, sample),
            vcpu_course=[
                used_ns / covered_ns if covered_ns else None for used_ns, covered_ns in self._course.cpu.cells
            ],
            vcpu_limit=self._sizes.vcpu,
            memory_bytes=sample.memory_used_bytes,
            memory_course=self._course.memory.cells,
            memory_limit_bytes=self._sizes.memory_bytes,
            threads=sample.pids,
            processes=top_processes(processes, self._drawn_cpu_ns, elapsed_ns),
            usual=self._usual,
            notices=self._notices,
        )


def top_processes(
    processes: Sequence[ProcessReading], before_cpu_ns: Mapping[tuple[int, int], int], elapsed_ns: int
) -> list[NamedProcesses]:
    """The processes by name, the largest by CPU and the largest by memory alternately.

    Args:
        processes: All processes.
        before_cpu_ns: The CPU time of those that ran ``elapsed_ns`` ago; the others are younger.
        elapsed_ns: The time in which the CPU time was used.
    """
    totals: dict[str, tuple[int, int, int]] = {}
    for process in processes:
        if process.share_bytes is None:  # a zombie
            continue
        count, cpu_ns, memory_bytes = totals.get(process.name, (0, 0, 0))
        used_ns = max(process.own_cpu_ns - before_cpu_ns.get(process.identity, 0), 0)
        totals[process.name] = count + 1, cpu_ns + used_ns, memory_bytes + process.share_bytes
    named = [
        NamedProcesses(name, count, cpu_ns / max(elapsed_ns, 1), memory_bytes)
        for name, (count, cpu_ns, memory_bytes) in totals.items()
    ]
    by_cpu = sorted(named, key=lambda processes: -processes.vcpu)
    by_memory = sorted(named, key=lambda processes: -processes.memory_bytes)
    largest = {processes.name: processes for processes in chain.from_iterable(zip(by_cpu, by_memory, strict=True))}
    return list(largest.values())
