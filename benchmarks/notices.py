"""Precision and recall of the notices over generated nights with injected faults.

    python -m benchmarks.notices [--nights 30] [--monitor-nights 2] [--seed 1] [--json FILE]

The batches come from benchmarks/night_batches.py, and know nothing of the detectors. A notice is right if the run has
the fault that it names. The same seed gives the same nights. The batches of the first nights also go through the
monitor's loop, on a fake clock, which must print the same notices.
"""

import argparse
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.figures import BenchmarkResult, Figure, markdown_table, print_and_save
from benchmarks.night_batches import (
    FARGATE_PERIOD,
    FAULTS,
    HEALTHY,
    MIB,
    POLLS_WITH_IO,
    SILENT_POLLS,
    Batch,
    Point,
    night,
)
from profiler.aggregation.run_notices import NoticeReading, NoticeSettings, RunNotices
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from tests.fakes import START_NS
from tests.unit.monitor.test_loop import OWN, World

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


class _MonitoredBatch(World):
    """A task whose batch is a generated one, for the monitor's loop on a fake clock."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch_ends=batch.end_seconds + 0.5, expected_seconds=batch.expected_seconds)
        self.stop.max_simulated_seconds = batch.end_seconds + 100
        self._batch = batch
        self._lines_seen = 0
        self._points = batch.points(self._has_printed)
        self._point: Point | None = None
        self._next = next(self._points, None)
        self.task_at, self.stats_at = self._generated_task, self._generated_stats

    def _has_printed(self, _: int) -> bool:
        before, self._lines_seen = self._lines_seen, len(self.output.lines)
        return self._lines_seen > before

    def _container_at(self, at: float) -> ContainerMetadata:
        attempts = [second for second in self._batch.course.restarts if at >= second]
        return replace(
            self.batch(at),
            docker_id=f"b{len(attempts)}",
            started_ns=START_NS + (max(attempts, default=0)) * NS_PER_SECOND,
            memory_limit_bytes=self._batch.course.memory_limit_mb * MIB,
            network_mode="awsvpc",
        )

    def _generated_task(self, at: float) -> TaskMetadata:
        disk = None if self._point is None else self._point.disk_used_mb
        return replace(
            self.usual_task(at),
            launch_type="FARGATE" if self._batch.traits.is_fargate else "EC2",
            memory_limit_bytes=None,
            containers=(self._container_at(at), OWN),
            ephemeral_storage_used_mib=disk,
            ephemeral_storage_size_mib=None if disk is None else self._batch.course.disk_size_mb,
        )

    def _generated_stats(self, at: float) -> StatsReading | Unavailable:
        while self._next is not None and self._next.at_seconds <= at:
            self._point, self._next = self._next, next(self._points, None)
        if self._point is None or (at - self._point.at_seconds > FARGATE_PERIOD and at < self._batch.end_seconds):
            return Unavailable("no answer")
        sample = replace(self._point.sample, read_ns=START_NS + self._point.sample.read_ns)
        docker_id = self._container_at(self._point.at_seconds).docker_id or ""
        return StatsReading(samples={docker_id: sample}, without_stats=frozenset(), refused={})


def watch_by_monitor(batch: Batch) -> Outcome:
    """Run the monitor's loop over a batch's readings, and read the lines that it prints."""
    world = _MonitoredBatch(batch).run()
    assert world.is_sound
    lines = [line for line in world.printed() if line["type"] == "task.notice"]
    found = {line["notice"]["kind"]: ((parse_ns(line["time"]) or 0) - START_NS) // NS_PER_SECOND for line in lines}
    assert len(found) == len(lines)  # once for each kind
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


def differences(seeds: Iterable[int]) -> tuple[int, list[str]]:
    """Compare the monitor's lines with the detectors' findings: the number of batches, and those that differ."""
    count, found = 0, []
    for seed in seeds:
        for batch, again in zip(night(seed), night(seed), strict=True):
            count += 1
            by_detectors, by_monitor = watch(batch).notices, watch_by_monitor(again).notices
            if set(by_detectors) != set(by_monitor):
                found.append(f"night {seed}, {batch.name}: {by_detectors} and {by_monitor}")
    return count, found


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
    parser.add_argument("--monitor-nights", type=int, default=2, help="nights that also go through the monitor's loop")
    parser.add_argument("--seed", type=int, default=1, help="the first night")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    outcomes = measure(range(options.seed, options.seed + options.nights))
    count, different = differences(range(options.seed, options.seed + options.monitor_nights))
    for line in different:
        print(line, file=sys.stderr)
    by_monitor = Figure(
        name="batches whose notices the monitor's loop prints differently",
        value=len(different),
        unit="",
        digits=0,
        at_most=0,
        note=f"of {count}",
    )
    title = f"Notices of running batches: {len(outcomes)} runs of {options.nights} generated nights"
    tables = (fault_table(outcomes), healthy_table(outcomes))
    result = BenchmarkResult(title=title, figures=(*figures(outcomes), by_monitor), tables=tables)
    print_and_save(result, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
