"""Generated memory curves: which runs are announced, where their family is known.

A family's runs have one shape and sizes of their own: growth until the input ends, a second phase,
a sawtooth, a plateau, page cache. The task's size is 1.2 times the largest peak. A runaway is a
curve that would need 1.3 times the size. What is asked at each checkpoint is the product's own
question, of a ``Family`` to which all other runs were added. Memory that rises from what is usual
to the size within a minute is left out: for that, the monitor writes checkpoints as memory fills.
"""

import math
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

import pytest
from msgspec import Struct

from profiler.aggregation.idle_time import NoticeReading
from profiler.aggregation.run_notices import RunNotices
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.family_statistics import LAST_SUCCESSES, Family, FamilyRun, HighestPeak
from profiler.record.memory_news import MemoryNow, memory_news_text
from profiler.record.units import MIB
from tests.values import present

SEED: Final = 20261126
FAMILIES: Final = 30
RUNS: Final = LAST_SUCCESSES + 1
CHECKPOINT_SECONDS: Final = 60
SIZE_TO_PEAK: Final = 1.2
RUNAWAY_TO_SIZE: Final = 1.3
MAX_FALSE_SHARE: Final = 0.01
MIN_ANNOUNCED_SHARE: Final = 0.95
# How much the peaks of a family's runs differ, as the standard deviation of their logarithms.
NOISES: Final = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)

# The memory at each checkpoint, as a share of the run's peak.
Shape = Callable[[Random, int], list[float]]


def growth(_rng: Random, steps: int) -> list[float]:
    """The program keeps what it reads, until its input ends."""
    return [(step + 1) / steps for step in range(steps)]


def second_phase(rng: Random, steps: int) -> list[float]:
    """A quiet first phase, then a sort of a few minutes."""
    first = rng.uniform(0.2, 0.6)
    begin = steps - max(steps // 10, 8)
    later = [first + (1 - first) * (step + 1) / (steps - begin) for step in range(steps - begin)]
    return [first * rng.uniform(0.97, 1) for _ in range(begin)] + later


def sawtooth(rng: Random, steps: int) -> list[float]:
    """A garbage collector."""
    period = rng.randrange(8, 20)
    curve = [0.4 + 0.6 * (step % period) / (period - 1) for step in range(steps)]
    return [*curve[:-1], 1.0]


def plateau(rng: Random, steps: int) -> list[float]:
    """A table is loaded, and the work does not need more."""
    loaded = max(steps // rng.randrange(3, 8), 1)
    return [min((step + 1) / loaded, 1.0) * rng.uniform(0.99, 1) for step in range(steps - 1)] + [1]


def page_cache(rng: Random, steps: int) -> list[float]:
    """Reads fill the cache, of which most is dropped now and then."""
    curve = []
    level = 0.1
    for _ in range(steps):
        level = level + rng.uniform(0, 0.1) if level < 0.9 else 0.3
        curve.append(min(level, 1.0))
    return [*curve[:-1], 1.0]


SHAPES: Final[tuple[Shape, ...]] = (growth, second_phase, sawtooth, plateau, page_cache)


class Curve(Struct, frozen=True):
    """The memory of a run at each checkpoint, in MB."""

    readings_mb: tuple[float, ...]

    @property
    def peak_mb(self) -> float:
        return max(self.readings_mb)


def family_curves(rng: Random, shape: Shape) -> list[Curve]:
    usual_mb = math.exp(rng.uniform(math.log(200), math.log(50_000)))
    noise = rng.choice(NOISES)
    curves = []
    for _ in range(RUNS):
        peak_mb = usual_mb * math.exp(rng.gauss(0, noise))
        steps = rng.randrange(20, 200)
        curves.append(Curve(tuple(peak_mb * share for share in shape(rng, steps))))
    return curves


def runs_of(curves: Iterable[Curve]) -> list[FamilyRun]:
    return [
        FamilyRun(
            task_id=str(number),
            container="batch",
            ended_ns=number,
            outcome="success",
            peak_mb=curve.peak_mb,
        )
        for number, curve in enumerate(curves)
    ]


def family_of(runs: Iterable[FamilyRun]) -> Family:
    family = Family()
    for run in runs:
        family.add_run(run)
    return family


def first_news(curve: Curve, family: Family, size_mb: float) -> int | None:
    """The checkpoint at which the run is announced, before it needs more than the size."""
    peak = family.highest_peak("batch")
    assert peak is not None
    for number, used_mb in enumerate(curve.readings_mb):
        if used_mb > size_mb:
            return None
        now = MemoryNow(used_mb=used_mb, size_mb=size_mb)
        if memory_news_text(now, peak):
            return number
    return None


def scaled(curve: Curve, peak_mb: float) -> Curve:
    times = peak_mb / curve.peak_mb
    return Curve(tuple(used * times for used in curve.readings_mb))


# A second of a CPU for each.
@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, marks=() if shape is growth else pytest.mark.slow) for shape in SHAPES],
)
def test_of_normal_runs_hardly_any_is_announced_and_of_runaways_nearly_all(shape: Shape) -> None:
    rng = Random(f"{SEED} {shape.__name__}")
    false, announced, count = 0, 0, 0
    for _ in range(FAMILIES):
        curves = family_curves(rng, shape)
        runs = runs_of(curves)
        size_mb = SIZE_TO_PEAK * max(curve.peak_mb for curve in curves)
        for number, curve in enumerate(curves):
            others = family_of([*runs[:number], *runs[number + 1 :]])
            count += 1
            false += first_news(curve, others, size_mb) is not None
            runaway = scaled(curve, RUNAWAY_TO_SIZE * size_mb)
            announced += first_news(runaway, others, size_mb) is not None
    assert false <= MAX_FALSE_SHARE * count, (false, count)
    assert announced >= MIN_ANNOUNCED_SHARE * count, (announced, count)


def line_before_kill(readings_mb: Iterable[float], usual: HighestPeak, size_mb: float) -> bool:
    """Whether the monitor, which reads memory each second, writes a line that is news before the
    run needs more than its size.
    """
    notices = RunNotices(0)
    for second, used_mb in enumerate(readings_mb):
        if used_mb > size_mb:
            return False
        reading = NoticeReading(
            at_ns=second * NS_PER_SECOND,
            memory_used_bytes=round(used_mb * MIB),
            memory_size_bytes=size_mb * MIB,
        )
        notices.add_reading(reading)
        now = MemoryNow(used_mb=used_mb, size_mb=size_mb)
        if notices.is_fuller and memory_news_text(now, usual):
            return True
        notices.is_fuller = False
    return False


def usual_peak(rng: Random) -> HighestPeak:
    return present(family_of(runs_of(family_curves(rng, plateau))).highest_peak("batch"))


def test_what_rises_within_a_minute_is_announced_by_the_lines_of_the_monitor() -> None:
    rng = Random(SEED)
    announced = 0
    for _ in range(FAMILIES):
        usual = usual_peak(rng)
        size_mb = SIZE_TO_PEAK * usual.peak_mb
        rise_seconds = rng.randrange(15, CHECKPOINT_SECONDS)
        rise = (RUNAWAY_TO_SIZE - 0.5) / rise_seconds
        readings_mb = [size_mb * (0.5 + rise * second) for second in range(2 * rise_seconds)]
        announced += line_before_kill(readings_mb, usual, size_mb)
    assert announced >= MIN_ANNOUNCED_SHARE * FAMILIES


def test_what_jumps_over_the_size_between_two_readings_has_only_those_of_a_normal_run() -> None:
    """As a sort that allocates 10 GB in a second: of 72 real curves, scaled to a runaway, ten end
    so, and the other 62 are announced. Until it is killed, it is nowhere above what an earlier
    success reached, so that a rule about levels that announced it would announce that success, too.
    """
    rng = Random(SEED)
    for _ in range(FAMILIES):
        usual = usual_peak(rng)
        size_mb = SIZE_TO_PEAK * usual.peak_mb
        first_mb = rng.uniform(0.7, 1) * usual.peak_mb
        before_mb = [first_mb + (usual.peak_mb - first_mb) * step / 60 for step in range(61)]
        after_mb = RUNAWAY_TO_SIZE * size_mb
        assert not line_before_kill([*before_mb, after_mb], usual, size_mb)
        assert not line_before_kill([*before_mb, *reversed(before_mb)], usual, size_mb)
        # One reading between them is enough.
        between_mb = rng.uniform(usual.expected_mb, size_mb)
        assert line_before_kill([*before_mb, between_mb, after_mb], usual, size_mb)
