"""A night of workflows, as public traces of them are: many families, most with a few dozen runs
within hours, some with one; durations that differ by chance alone, from a tenth of a second to
hours; long names with points; sizes that are far above most peaks, and one that is not.
"""

from collections.abc import Iterator, Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.record.record_model import Report
from tests.fakes import START_NS
from tests.runs import report

HOURS = 6
RUNS = 40
_SPREAD = 0.6  # the standard deviation of the logarithms
GB = 1024


class Process(Struct, frozen=True, kw_only=True):
    """A family of a workflow: its median duration and peak, its size, and how many runs it has.

    ``slower``: how many times as long its later inputs take.
    """

    name: str
    median_ms: float
    peak_mb: float
    size: tuple[float, float]
    runs: int = RUNS
    slower: float = 1.0


PROCESSES: Sequence[Process] = (
    *(
        Process(
            name=f"SEQ.ALIGN_{number}.SORT_AND_INDEX.SAMTOOLS_SORT_{number}",
            median_ms=60_000 * (1 + number),
            peak_mb=300 * (1 + number),
            size=(4, 16 * GB),
        )
        for number in range(30)
    ),
    *(
        Process(
            name=f"SEQ.PREPARE.GENOME_{number}",
            median_ms=120,
            peak_mb=8,
            size=(1, 6 * GB),
            runs=1,
        )
        for number in range(8)
    ),
    Process(name="SEQ.MARKDUPLICATES", median_ms=500_000, peak_mb=15_900, size=(4, 16 * GB)),
)
# Its larger inputs are the last of each night.
ORDERED = Process(
    name="SEQ.ORDERED", median_ms=90_000, peak_mb=2000, size=(1, 8 * GB), runs=RUNS, slower=4.0
)


def workflow_night(*more: Process, seed: int = 20261127) -> Iterator[Report]:
    """The reports of the night, the oldest run first."""
    random = Random(seed)
    reports = []
    for process in (*PROCESSES, *more):
        for number in range(process.runs):
            reports.append(_run(process, number, random))
    yield from sorted(reports, key=lambda made: made.record.started_at or "")


def _run(process: Process, number: int, random: Random) -> Report:
    after_ms = HOURS * 3_600_000 * (number + random.random()) / process.runs
    factor = process.slower if 2 * number >= process.runs else 1.0
    duration_ms = round(factor * process.median_ms * random.lognormvariate(0, _SPREAD))
    peak_mb = process.peak_mb * min(random.lognormvariate(0, 0.02), 1.02)
    started_ns = START_NS + round(after_ms) * NS_PER_MS
    ended_ns = started_ns + duration_ms * NS_PER_MS
    made = report(
        family=process.name,
        task_id=f"{process.name}-{number}",
        size=process.size,
        peak_mb=round(peak_mb, 1),
        metrics={
            "duration_ms": duration_ms,
            "billed_duration_ms": max(60_000, -(-duration_ms // 1000) * 1000),
            "memory_peak_source": "kernel",
        },
        started_at=format_ms(started_ns),
        finished_at=format_ms(ended_ns),
    )
    return replace(made, time=format_ms(ended_ns))
