"""Judge memory sizes and memory notices by recorded runs of real workflows, which are not part of
this repository.

    python -m benchmarks.recorded_runs [--traces FOLDER] [--curves FOLDER] [--json FILE]

- **Sizes**: each run of a family is given a size by all runs before it, at least 20, in the order of
  their starts. A run that needs more is killed: all of its size is wasted for as long as it takes,
  else what it does not use. ``FOLDER/*.csv`` has ``process``, ``start`` and ``realtime`` in
  milliseconds, and ``peak_rss`` in bytes, as the kernel counts it. Processes with fewer than 34 runs
  are left out. (Such as those of https://github.com/dos-group/sizey.)
- **Notices**: the family of a run are all others of its kind, and its size is 1.2 times their
  highest peak. A runaway is a curve that would need 1.3 times the size. It is announced if a line
  of the monitor that is news was written before the kill. ``FOLDER/KIND.csv.gz`` has ``run``,
  ``seconds`` and ``MB``. (Such as those of https://github.com/long2mao1/k-segments-traces.)
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import Struct

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from profiler.aggregation.idle_time import NoticeReading
from profiler.aggregation.run_notices import RunNotices
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.family_statistics import LAST_SUCCESSES, HighestPeak, highest_peak_of
from profiler.record.memory_news import MemoryNow, memory_news_text
from profiler.record.units import MIB
from profiler.record.unusual import MIN_RUNS
from profiler.sizing.memory_margin import PeakPrecision, memory_margin, spread_of_needs
from profiler.sizing.run_collector import LAST_RUNS

_MIN_FAMILY_RUNS: Final = 34
_KNOWN_RUNS: Final = 20
# A fixed margin, with which the family's own is compared.
_FIXED: Final = 1.2
_RUNAWAY: Final = 1.3
_MIN_ANNOUNCED_PERCENT: Final = 95
_CHECKPOINT_SECONDS: Final = 60.0
_MS_PER_HOUR: Final = 3_600_000
_GB: Final = 1e9

# The size of the next run, by the needs of the runs before it.
SizeRule = Callable[[Sequence[float]], float]


class RecordedRun(Struct, frozen=True, kw_only=True):
    """How long a run took, and its memory peak."""

    start_ms: float
    duration_ms: float
    peak_bytes: float


class WastedMemory(Struct, kw_only=True):
    """What runs wasted at the sizes that a rule gave them."""

    runs: int = 0
    killed: int = 0
    gb_hours: float = 0

    def add_run(self, run: RecordedRun, size_bytes: float) -> None:
        is_killed = run.peak_bytes > size_bytes
        unused_bytes = size_bytes if is_killed else size_bytes - run.peak_bytes
        self.runs += 1
        self.killed += is_killed
        self.gb_hours += unused_bytes / _GB * run.duration_ms / _MS_PER_HOUR


def own_margin(needs: Sequence[float]) -> float:
    """The size with the family's own margin, of peaks that the kernel knows."""
    margin = memory_margin(spread_of_needs(needs), PeakPrecision(source="kernel"))
    return max(needs) * margin.factor


def own_margin_of_last(needs: Sequence[float]) -> float:
    """The same by the runs that ``recommend`` reads."""
    return own_margin(needs[-LAST_RUNS:])


def fixed_margin(needs: Sequence[float]) -> float:
    """The size with a margin of 20 %."""
    return max(needs) * _FIXED


def families_of(path: Path) -> Iterator[list[RecordedRun]]:
    """The runs of each process in a file, in the order of their starts."""
    families: dict[str, list[RecordedRun]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            run = RecordedRun(
                start_ms=float(row["start"]),
                duration_ms=float(row["realtime"] or 0),
                peak_bytes=float(row["peak_rss"] or 0),
            )
            if run.duration_ms and run.peak_bytes:
                families[row["process"]].append(run)
    for runs in families.values():
        if len(runs) >= _MIN_FAMILY_RUNS:
            yield sorted(runs, key=lambda run: (run.start_ms, run.duration_ms))


def replay_runs(runs: Sequence[RecordedRun], rule: SizeRule, waste: WastedMemory) -> None:
    """Give each run a size by those before it."""
    needs = [run.peak_bytes for run in runs[:_KNOWN_RUNS]]
    for run in runs[_KNOWN_RUNS:]:
        waste.add_run(run, rule(needs))
        needs.append(run.peak_bytes)


def size_figures(folder: Path) -> Iterator[Figure]:
    """Compare the own margin with a fixed one."""
    families = [runs for path in sorted(folder.glob("*.csv")) for runs in families_of(path)]
    fixed = WastedMemory()
    own = WastedMemory()
    of_last = WastedMemory()
    for runs in families:
        replay_runs(runs, fixed_margin, fixed)
        replay_runs(runs, own_margin, own)
        replay_runs(runs, own_margin_of_last, of_last)
    note = f"{own.runs:,} runs of {len(families)} families"
    yield Figure("Wasted with a margin of 20 %", fixed.gb_hours, "GB-hours", 0, note=note)
    yield Figure("Killed with a margin of 20 %", fixed.killed, "runs", 0)
    yield Figure("Wasted with the own margin", own.gb_hours, "GB-hours", 0)
    yield Figure("Killed with the own margin", own.killed, "runs", 0, at_most=fixed.killed)
    yield Figure("Wasted with that of the last 50 runs", of_last.gb_hours, "GB-hours", 0)
    yield Figure("Killed with that of the last 50 runs", of_last.killed, "runs", 0)
    yield Figure("Wasted, as a share", own.gb_hours / fixed.gb_hours, "", at_most=0.65)


def peak_figures(folder: Path) -> Iterator[Figure]:
    """Count the runs that would be announced although their size holds them, each judged by the
    last runs before it.
    """
    runs = 0
    false = 0
    for path in sorted(folder.glob("*.csv")):
        for family in families_of(path):
            peaks_mb = [run.peak_bytes / MIB for run in family]
            for number in range(MIN_RUNS, len(peaks_mb)):
                peak = highest_peak_of(peaks_mb[max(number - LAST_SUCCESSES, 0) : number])
                size_mb = _FIXED * peak.peak_mb
                runs += 1
                is_news = peak.is_exceeded_by(peaks_mb[number], size_mb)
                false += is_news and peaks_mb[number] <= size_mb
    note = f"{false} of {runs:,}"
    yield Figure("Normal runs announced, by their peaks", 100 * false / runs, "%", 1, 1, note=note)


# The memory in MB at a second of the run.
Curve = Sequence[tuple[float, float]]


class AnnouncedRuns(Struct, kw_only=True):
    """How runs were announced. ``seen``: the runaways of which a recorded reading before the kill
    is above what earlier runs reached; the others rise over their size between two readings.
    ``at_kill``: also by the reading that is above the size.
    """

    runs: int = 0
    false: int = 0
    seen: int = 0
    runaways: int = 0
    at_kill: int = 0
    leads_seconds: list[float] = []


def curves_of(path: Path) -> Mapping[str, Curve]:
    """The memory of each run in a file."""
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            curves[row["run"]].append((float(row["seconds"]), float(row["MB"])))
    return {name: sorted(curve) for name, curve in curves.items()}


def written_lines(
    curve: Curve, size_mb: float, *, with_early: bool
) -> Iterator[tuple[float, float]]:
    """When the monitor writes a checkpoint, and the largest memory since the one before; with or
    without those that it writes because memory fills.
    """
    notices = RunNotices(0)
    next_seconds = curve[0][0] + _CHECKPOINT_SECONDS
    highest_mb = 0.0
    for seconds, used_mb in curve:
        while seconds >= next_seconds:
            yield next_seconds, highest_mb
            next_seconds += _CHECKPOINT_SECONDS
            highest_mb = 0.0
            notices.is_fuller = False
        highest_mb = max(highest_mb, used_mb)
        reading = NoticeReading(
            at_ns=round(seconds * NS_PER_SECOND),
            memory_used_bytes=round(used_mb * MIB),
            memory_size_bytes=size_mb * MIB,
        )
        notices.add_reading(reading)
        if with_early and notices.is_fuller:
            yield seconds, highest_mb
            highest_mb = 0.0
            notices.is_fuller = False


def _first_news(lines: Iterator[tuple[float, float]], size_mb: float, peak: HighestPeak) -> float:
    """The second of the first line that is news; infinite without one."""
    for seconds, used_mb in lines:
        if memory_news_text(MemoryNow(used_mb=used_mb, size_mb=size_mb), peak):
            return seconds
    return float("inf")


def count_announced(folder: Path, *, with_early: bool) -> AnnouncedRuns:
    """Judge each run of each kind by the others."""
    found = AnnouncedRuns(leads_seconds=[])
    for path in sorted(folder.glob("*.csv.gz")):
        curves = curves_of(path)
        peaks = {name: max(used for _, used in curve) for name, curve in curves.items()}
        for name, curve in curves.items():
            others = [peak_mb for other, peak_mb in peaks.items() if other != name]
            peak = highest_peak_of(others)
            _count_announcement(curve, peak, found, with_early=with_early)
    return found


def _count_announcement(
    curve: Curve, peak: HighestPeak, found: AnnouncedRuns, *, with_early: bool
) -> None:
    size_mb = _FIXED * peak.peak_mb
    found.runs += 1
    lines = written_lines(curve, size_mb, with_early=with_early)
    found.false += _first_news(lines, size_mb, peak) < float("inf")
    scale = _RUNAWAY * size_mb / max(used for _, used in curve)
    runaway = [(seconds, used * scale) for seconds, used in curve]
    killed_seconds = next(seconds for seconds, used in runaway if used > size_mb)
    alive = [(seconds, used) for seconds, used in runaway if seconds < killed_seconds]
    first = float("inf")
    if alive:
        lines = written_lines(alive, size_mb, with_early=with_early)
        first = _first_news(lines, size_mb, peak)
    if first < killed_seconds:
        found.runaways += 1
        found.leads_seconds.append(killed_seconds - first)
    found.seen += _first_news(iter(alive), size_mb, peak) < killed_seconds
    readings = ((seconds, used) for seconds, used in runaway if seconds <= killed_seconds)
    found.at_kill += _first_news(iter(readings), size_mb, peak) <= killed_seconds


def notice_figures(folder: Path) -> Iterator[Figure]:
    """Count which normal runs and which runaways are announced."""
    early = count_announced(folder, with_early=True)
    each_minute = count_announced(folder, with_early=False)
    runs = early.runs
    lead = median(early.leads_seconds) / 60
    share = 100 * early.runaways / early.seen
    yield Figure("Normal runs announced", early.false, "runs", 0, note=f"of {runs}")
    yield Figure("Runaways announced before the kill", early.runaways, "runs", 0, note=f"of {runs}")
    yield Figure("Runaways that a reading before the kill shows", early.seen, "runs", 0)
    yield Figure("Announced of those", share, "%", 0, at_least=_MIN_ANNOUNCED_PERCENT)
    yield Figure("Their lead in the median", lead, "minutes", 1)
    yield Figure("The same with a checkpoint each minute only", each_minute.runaways, "runs", 0)
    yield Figure("The same, at the kill counted as well", early.at_kill, "runs", 0)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--traces", type=Path, help="folder with the runs of workflows")
    parser.add_argument("--curves", type=Path, help="folder with the memory of runs over time")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    if arguments.traces is not None:
        figures += [*size_figures(arguments.traces), *peak_figures(arguments.traces)]
    if arguments.curves is not None:
        figures += notice_figures(arguments.curves)
    result = BenchmarkResult(title="Recorded runs", figures=tuple(figures))
    result.print_and_save(arguments.json)


if __name__ == "__main__":
    main()
