"""Advice from Container Insights' minutes, against the advice from whole records of the same
generated runs.

A run is a series of one second: phases of computing and waiting with noise, memory that grows and
shrinks by phases. The whole record has all of its seconds and the kernel's peak; Container Insights
has the means of its minutes, of which some are lost. Both are asked for a size with the same
margin. Families whose peak is far above every minute are left out.
"""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.record_assembly import with_cpu_demand
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.statistics import TimeWeightedStatistics
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import Metrics, Report, Sampling, TaskSize
from profiler.runs.past_runs.container_insights_record import (
    MinuteValues,
    PerformanceEvent,
    SeenTask,
    run_of_minutes,
)
from profiler.sizing.advice import advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.memory_margin import MINUTE_PERCENT
from profiler.sizing.prices import PriceOverrides
from tests.container_insights import MINUTE_MS, task_minute
from tests.fakes import START_NS
from tests.runs import evidence_of
from tests.values import present

SEED: Final = 20261122
RUNS: Final = 3
MIN_AGREEMENT: Final = 0.95
MIN_AGREEMENT_OF_FEW: Final = 0.85
MIN_PEAK_MARGIN: Final = 1.2
MAX_HIDDEN_PEAK: Final = 1.15
SIZES: Final = ((0.25, 1024), (0.5, 2048), (1, 4096), (2, 8192), (4, 16384))
_START_MS: Final = START_NS // 1_000_000
_DAY_MS: Final = 86_400_000
_LOST_SHARE: Final = 0.02
NOISES: Final = (0.02, 0.05, 0.1)
_MEMORY_NOISE: Final = 0.002


# A part of a run: its seconds, its CPU, the CPUs that its threads can use, its memory, and how much
# CPU varies.
Phase = tuple[int, float, int, float, float]


class Run(Struct, frozen=True):
    """The seconds of a run, and the kernel's memory peak."""

    started_ms: int
    size: tuple[float, int]
    vcpu: Sequence[float]
    memory_mb: Sequence[float]
    peak_mb: float


def family(chance: random.Random) -> list[Run]:
    """The runs of a family: the same phases, with other lengths."""
    vcpu, memory_mb = chance.choice(SIZES)
    parallel = chance.choice((0.05, 0.3, 0.6, 1.0, 1.0, vcpu, vcpu))
    largest_mb = memory_mb * 10 ** chance.uniform(-1.5, -0.2)
    levels = [
        min(parallel * chance.choice((0.1, 0.4, 0.7, 1.0)), vcpu)
        for _ in range(chance.randint(1, 6))
    ]
    threads = max(math.ceil(parallel), 1)
    phases = [
        (
            chance.randint(120, 1200),
            level,
            threads,
            largest_mb * chance.uniform(0.3, 1),
            chance.choice(NOISES),
        )
        for level in levels
    ]
    spike = chance.choice((*[1.0] * 7, 1.01, 1.03, 1.1))
    return [run(chance, phases, (vcpu, memory_mb), number, spike) for number in range(RUNS)]


def run(
    chance: random.Random,
    phases: Sequence[Phase],
    size: tuple[float, int],
    number: int,
    spike: float,
) -> Run:
    """One run, which begins at any second of a minute."""
    vcpu: list[float] = []
    memory: list[float] = []
    held_mb = 20.0
    for seconds, level, threads, memory_mb, noise in phases:
        for _ in range(max(round(seconds * chance.uniform(0.8, 1.2)), 1)):
            held_mb += (memory_mb - held_mb) / 20
            vcpu.append(min(level * math.exp(chance.gauss(0, noise)), threads, size[0]))
            memory.append(held_mb * math.exp(chance.gauss(0, _MEMORY_NOISE)))
    started_ms = _START_MS + number * _DAY_MS + chance.randrange(MINUTE_MS)
    return Run(started_ms, size, vcpu, memory, max(memory) * spike)


def whole(run: Run, number: int) -> Report:
    """The report of a monitor that saw each second and the success, with the kernel's peak.

    Without a success, no smaller size is recommended. Container Insights does not know how a run
    ended.
    """
    vcpu, memory_mb = run.size
    statistics, demand = TimeWeightedStatistics(), CpuDemand(vcpu)
    for used in run.vcpu:
        statistics.add_value(used, NS_PER_SECOND)
        demand.add_step(used, NS_PER_SECOND)
    made = by_minute(run, number)
    metrics = Metrics(
        duration_ms=1000 * len(run.vcpu),
        billed_duration_ms=1000 * len(run.vcpu) + 20_000,
        init_duration_ms=20_000,
        max_memory_used_mb=run.peak_mb,
        memory_peak_source="kernel",
        memory_size_mb=memory_mb,
        vcpu_size=vcpu,
        vcpu_used=statistics.distribution(digits=5),
    )
    metrics = with_cpu_demand(metrics, demand, vcpu_size=vcpu, max_threads=None)
    size = TaskSize(vcpu=vcpu, memory_mb=memory_mb)
    sampling = Sampling(stats_period_ms=1000)
    record = replace(
        made.record, status="success", sampling=sampling, metrics=metrics, task_size=size
    )
    return replace(made, record=record)


def by_minute(run: Run, number: int, chance: random.Random | None = None) -> Report:
    """The run that Container Insights saw.

    Each minute's value is the mean of its seconds in the run.
    """
    events = list(minutes_of(run, number))
    kept = [event for event in events if chance is None or chance.random() > _LOST_SHARE] or events
    task = SeenTask("jobs", kept[0][0])
    for event in kept:
        task.add_event(*event)
    return present(run_of_minutes(task, None, {"batch": None}, PriceOverrides())).report


def minutes_of(run: Run, number: int) -> Iterator[tuple[PerformanceEvent, MinuteValues]]:
    ends_ms = [run.started_ms + 1000 * second for second in range(1, len(run.vcpu) + 1)]
    by_end: dict[int, list[int]] = {}
    for second, end_ms in enumerate(ends_ms):
        by_end.setdefault(-(-end_ms // MINUTE_MS) * MINUTE_MS, []).append(second)
    units, memory_mb = round(1024 * run.size[0]), run.size[1]
    for end_ms, seconds in by_end.items():
        cpu = 1024 * sum(run.vcpu[second] for second in seconds) / len(seconds)
        memory = round(sum(run.memory_mb[second] for second in seconds) / len(seconds))
        event = task_minute(
            end_ms,
            run.started_ms,
            cpu=cpu,
            memory=memory,
            size=(units, memory_mb),
            TaskId=f"{number:032x}",
        )
        yield msgspec.convert(event, PerformanceEvent), msgspec.convert(event, MinuteValues)


@pytest.mark.parametrize(
    ("families", "agreement"),
    [(20, MIN_AGREEMENT_OF_FEW), pytest.param(300, MIN_AGREEMENT, marks=pytest.mark.slow)],
)
def test_minutes_give_the_advice_of_whole_records(families: int, agreement: float) -> None:
    chance = random.Random(SEED)
    same = compared = 0
    for _ in range(families):
        runs = family(chance)
        if any(len(run.vcpu) < 600 for run in runs):
            continue
        insights = [by_minute(run, number, chance) for number, run in enumerate(runs)]
        peak_mb = max(run.peak_mb for run in runs)
        if peak_mb > MAX_HIDDEN_PEAK * max(
            one.record.metrics.max_memory_used_mb or 0 for one in insights
        ):
            continue
        seen = advise_on_size(evidence_of(insights), SizePolicy(), PriceOverrides()).choice.size
        reports = (whole(run, number) for number, run in enumerate(runs))
        known = advise_on_size(
            evidence_of(reports),
            SizePolicy(memory_margin_percent=MINUTE_PERCENT),
            PriceOverrides(),
        )
        compared += 1
        same += seen == known.choice.size
        assert (seen.memory_mb or 0) >= MIN_PEAK_MARGIN * peak_mb
    assert compared > families / 2
    assert same >= agreement * compared
