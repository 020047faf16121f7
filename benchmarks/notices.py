"""Precision and recall of the notices over generated nights with injected faults.

    python -m benchmarks.notices [--nights 30] [--seed 1] [--json FILE]

The batches come from benchmarks/night_batches.py, and know nothing of the detectors. A notice is right if the run has
the fault that it names. The same seed gives the same nights.
"""

import argparse
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from benchmarks.figures import BenchmarkResult, Figure, markdown_table, print_and_save
from benchmarks.night_batches import FAULTS, HEALTHY, MIB, POLLS_WITH_IO, SILENT_POLLS, Batch, Point, night
from profiler.aggregation.run_notices import NoticeReading, NoticeSettings, RunNotices
from profiler.core.timestamps import NS_PER_SECOND

KINDS = ("stuck", "overdue", "memory", "disk")
_CHECKPOINT_SECONDS = 60


class Outcome(Struct, frozen=True, kw_only=True):
    """A run and the notices that it got, with the second of each."""

    name: str
    fault: str | None
    since_seconds: int
    end_seconds: int
    notices: Mapping[str, int]


def watch(batch: Batch) -> Outcome:
    """Run the detectors over a batch's readings, as the monitor does. On Fargate, its lines pass the same network."""
    notices = RunNotices(NoticeSettings(expected_seconds=batch.expected_seconds), 0)
    is_fargate, own_line_ns = batch.traits.is_fargate, None

    def prints(second: int) -> bool:
        nonlocal own_line_ns
        now_ns = second * NS_PER_SECOND
        if second % _CHECKPOINT_SECONDS or (is_fargate and notices.wants_silence(now_ns)):
            return False
        own_line_ns = now_ns if is_fargate else None
        return True

    found: dict[str, int] = {}
    for point in batch.points(prints):
        reading = _reading(point, batch, own_line_ns)
        overdue = notices.overdue(reading.at_ns)
        for finding in (*notices.add(reading), *(() if overdue is None else (overdue,))):
            found.setdefault(finding.kind, point.at_seconds)
    return Outcome(
        name=batch.name,
        fault=batch.fault,
        since_seconds=batch.since_seconds,
        end_seconds=batch.end_seconds,
        notices=found,
    )


def _reading(point: Point, batch: Batch, own_line_ns: int | None) -> NoticeReading:
    sample = point.sample
    return NoticeReading(
        at_ns=sample.read_ns,
        cpu_ns=sample.cpu_ns,
        network_bytes=_sum(sample.network_rx_bytes, sample.network_tx_bytes),
        block_bytes=_sum(sample.block_read_bytes, sample.block_write_bytes),
        memory_used_bytes=sample.memory_used_bytes,
        memory_size_bytes=batch.course.memory_limit_mb * MIB,
        disk_used_mb=point.disk_used_mb,
        disk_size_mb=batch.course.disk_size_mb,
        own_line_ns=own_line_ns,
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def expected_kind(outcome: Outcome) -> str | None:
    """The notice that the run should get."""
    return None if outcome.fault is None else FAULTS[outcome.fault][0]


class Score(Struct, frozen=True, kw_only=True):
    """The counts of one kind of notice. ``asleep`` are the notices of batches that did nothing on purpose."""

    right: int
    wrong: int
    missed: int
    asleep: int = 0

    @property
    def precision(self) -> float:
        """The share of the notices that were right, in percent."""
        return 100 * self.right / max(self.right + self.wrong, 1)

    @property
    def recall(self) -> float:
        """The share of the faults that were noticed, in percent."""
        return 100 * self.right / max(self.right + self.missed, 1)


def score(kind: str, outcomes: Iterable[Outcome]) -> Score:
    """Count the right, wrong and missing notices of a kind."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        is_raised, is_expected = kind in outcome.notices, expected_kind(outcome) == kind
        if kind == "stuck" and outcome.name in SILENT_POLLS:
            counts["asleep"] += is_raised
        elif is_raised or is_expected:
            counts["right" if is_raised and is_expected else "wrong" if is_raised else "missed"] += 1
    return Score(right=counts["right"], wrong=counts["wrong"], missed=counts["missed"], asleep=counts["asleep"])


def minutes(outcome: Outcome, kind: str) -> float:
    """How early a notice came: before the end of the run, or (``stuck``, ``overdue``) after the fault began."""
    at_seconds = outcome.notices[kind]
    if kind in {"memory", "disk"}:
        return (outcome.end_seconds - at_seconds) / 60
    return (at_seconds - outcome.since_seconds) / 60


def fault_table(outcomes: Sequence[Outcome]) -> str:
    """Per fault: how many runs were noticed, and when."""
    rows = []
    for fault, (kind, _) in FAULTS.items():
        runs = [outcome for outcome in outcomes if outcome.fault == fault]
        if kind is None:
            rows.append([fault, "none", f"{sum(bool(run.notices) for run in runs)} of {len(runs)}", ""])
            continue
        times = sorted(minutes(run, kind) for run in runs if kind in run.notices)
        word = "before the end" if kind in {"memory", "disk"} else "after it began"
        shown = f"{times[0]:.0f} to {times[-1]:.0f}, median {statistics.median(times):.0f} {word}" if times else ""
        rows.append([fault, kind, f"{len(times)} of {len(runs)}", shown])
    return markdown_table(["fault", "notice", "noticed", "minutes"], rows, right_aligned=(2,))


def healthy_table(outcomes: Sequence[Outcome]) -> str:
    """Per healthy batch: the notices that it got."""
    raised: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        if outcome.fault is None:
            raised[outcome.name].update(list(outcome.notices))
    runs = Counter(outcome.name for outcome in outcomes if outcome.fault is None)
    rows = [[name, str(runs[name]), *(str(raised[name][kind]) for kind in KINDS)] for name in HEALTHY]
    return markdown_table(["healthy batch", "runs", *KINDS], rows, right_aligned=range(1, 2 + len(KINDS)))


def measure(seeds: Iterable[int]) -> tuple[Outcome, ...]:
    """Watch all batches of the nights."""
    return tuple(watch(batch) for seed in seeds for batch in night(seed))


def figures(outcomes: Sequence[Outcome]) -> list[Figure]:
    """The figures of each kind, and the false notices of polls."""
    found = []
    for kind in KINDS:
        counts = score(kind, outcomes)
        note = f"{counts.right} right, {counts.wrong} wrong, {counts.missed} missed"
        found += [
            Figure(name=f"{kind}, precision", value=counts.precision, unit="%", digits=1, note=note),
            Figure(name=f"{kind}, recall", value=counts.recall, unit="%", digits=1),
        ]
    polls = [outcome for outcome in outcomes if outcome.name in POLLS_WITH_IO]
    silent = [outcome for outcome in outcomes if outcome.name in SILENT_POLLS]
    return [
        *found,
        Figure(
            name="false stuck, batches that poll with I/O",
            value=sum("stuck" in outcome.notices for outcome in polls),
            unit="",
            digits=0,
            at_most=0,
            note=f"of {len(polls)}",
        ),
        Figure(
            name="stuck, batches that sleep or poll without I/O",
            value=sum("stuck" in outcome.notices for outcome in silent),
            unit="",
            digits=0,
            note=f"of {len(silent)}",
        ),
    ]


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Precision and recall of the notices over generated nights.")
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1, help="the first night")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    outcomes = measure(range(options.seed, options.seed + options.nights))
    title = f"Notices: {len(outcomes)} runs of {options.nights} nights"
    result = BenchmarkResult(
        title=title, figures=tuple(figures(outcomes)), tables=(fault_table(outcomes), healthy_table(outcomes))
    )
    print_and_save(result, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
