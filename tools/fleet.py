"""Simulated runs of a fleet on ECS: families, schedules, failures and growth.

The same seed gives the same runs.

tools/example_runs.py simulates a few local runs with all samples. This module simulates millions of
runs of hundreds of families, without samples. The number of runs per family has a Zipf
distribution. Half of the families start on the hour, as schedules do, the others at random times.
"""

import bisect
import math
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

from msgspec import Struct

from profiler.record.record_model import Report
from tools.example_runs import Batch, draw_outcome
from tools.fleet_record import RunProfile, generate_report

FIRST_DAY = datetime(2026, 11, 1, tzinfo=UTC)
_DAY_SECONDS = 86_400
_HOUR_SECONDS = 3600
_ZIPF_EXPONENT = 0.9
# Fargate sizes (vCPU, GiB), with the percentage of families that have them.
_SIZES = {
    (0.25, 0.5): 18,
    (0.25, 1.0): 12,
    (0.5, 1.0): 20,
    (0.5, 2.0): 8,
    (1.0, 2.0): 16,
    (1.0, 4.0): 8,
    (2.0, 4.0): 8,
    (4.0, 8.0): 6,
    (4.0, 16.0): 3,
    (8.0, 32.0): 1,
}
_MEDIAN_MINUTES = 4.0
_MINUTES_SPREAD = 1.1
_MAX_MINUTES = 360.0
_GROWING_SHARE = 0.1
_GPU_SHARE = 0.03
_ON_THE_HOUR_SHARE = 0.5
_STOPPED_SHARE = 0.005
_MAX_DELAY_SECONDS = 240.0
_HOURS = tuple(range(24))


class Fleet(Struct, frozen=True, kw_only=True):
    """The parameters of a fleet. ``runs_per_day`` is the total over all families."""

    runs_per_day: int
    days: int = 30
    families: int = 200
    seed: int = 20261101
    first_day: datetime = FIRST_DAY

    @property
    def end(self) -> datetime:
        """The end of the fleet's time range (exclusive)."""
        return self.first_day + timedelta(days=self.days)


class FleetFamily(Struct, frozen=True, kw_only=True):
    """A family, its share of all runs, and whether its runs start on the hour."""

    batch: Batch
    share: float
    starts_on_the_hour: bool


def generate_families(fleet: Fleet) -> tuple[FleetFamily, ...]:
    """Generate the fleet's families, the most frequent first. Shares add up to 1."""
    rng = random.Random(fleet.seed)
    weights = [1 / (index + 1) ** _ZIPF_EXPONENT for index in range(fleet.families)]
    return tuple(
        _make_family(index, weight / sum(weights), rng) for index, weight in enumerate(weights)
    )


def _make_family(index: int, share: float, rng: random.Random) -> FleetFamily:
    ((vcpu, memory_gib),) = rng.choices(list(_SIZES), list(_SIZES.values()))
    nightly = tuple(sorted(rng.sample(_HOURS[:6], k=rng.randint(1, 3))))
    batch = Batch(
        family=f"batch-{index:04d}",
        hours=rng.choice((nightly, _HOURS, _HOURS[8:20])),
        minutes=min(rng.lognormvariate(math.log(_MEDIAN_MINUTES), _MINUTES_SPREAD), _MAX_MINUTES),
        vcpu=vcpu,
        memory_mb=int(memory_gib * 1024),
        cpu=rng.betavariate(2, 3),
        memory=0.05 + 0.85 * rng.betavariate(2, 3),
        growth=rng.uniform(0.1, 0.5) if rng.random() < _GROWING_SHARE else 0,
        failure_rate=rng.lognormvariate(math.log(0.01), 0.8),
        read_mb_s=rng.lognormvariate(0, 1.5),
        written_mb_s=rng.lognormvariate(-1, 1.5),
        gpu=rng.uniform(0.1, 0.95) if rng.random() < _GPU_SHARE else None,
    )
    return FleetFamily(
        batch=batch, share=share, starts_on_the_hour=rng.random() < _ON_THE_HOUR_SHARE
    )


def generate_runs(fleet: Fleet) -> Iterator[Report]:
    """Yield all runs in order of their start, exactly ``runs_per_day`` on each day."""
    all_families = generate_families(fleet)
    boundaries = [0.0, *accumulate(family.share for family in all_families)]
    # Each day has its own random generator, so that its runs do not depend on the number of days.
    for day in range(fleet.days):
        rng = random.Random(f"{fleet.seed}/{day}")
        midnight = fleet.first_day + timedelta(days=day)
        progress = day / max(fleet.days - 1, 1)
        for second, index in _starts(
            all_families, _runs_per_family(boundaries, fleet.runs_per_day, rng), rng
        ):
            profile = draw_profile(all_families[index].batch, progress, rng)
            yield generate_report(
                all_families[index].batch, profile, midnight + timedelta(seconds=second), rng
            )


def _runs_per_family(boundaries: Sequence[float], count: int, rng: random.Random) -> list[int]:
    """Draw the number of runs of each family on one day, by systematic sampling.

    Equidistant marks with a random offset are laid over the cumulated shares. A family has one run
    for each mark in its share. So the sum is exact, and rare families run on some days.
    """
    offset = rng.random()
    marks = [(number + offset) / count for number in range(count)]
    below = [bisect.bisect_left(marks, bound) for bound in boundaries]
    # The last share ends at 1, regardless of rounding errors.
    return [later - earlier for earlier, later in pairwise([*below[:-1], count])]


def _starts(
    all_families: Sequence[FleetFamily], counts: Sequence[int], rng: random.Random
) -> list[tuple[float, int]]:
    """Draw the start of each run: the second of the day and the index of the family, in order of
    time.
    """
    starts = []
    for index, count in enumerate(counts):
        family = all_families[index]
        for number in range(count):
            hour = family.batch.hours[number % len(family.batch.hours)]
            if family.starts_on_the_hour:
                delay_seconds = min(rng.expovariate(1 / 20), _MAX_DELAY_SECONDS)
            else:
                delay_seconds = _HOUR_SECONDS * rng.random()
            starts.append((hour * _HOUR_SECONDS + delay_seconds, index))
    return sorted(starts)


def draw_profile(
    batch: Batch, progress: float, rng: random.Random, *, stopped_share: float = _STOPPED_SHARE
) -> RunProfile:
    """Draw the profile of a run.

    ``progress`` is the elapsed share of the fleet's time range, for memory growth.
    """
    level = min(batch.memory + batch.growth * progress + rng.gauss(0, 0.03), 1.05)
    status, exit_code, is_killed = draw_outcome(level, batch, rng)
    duration_ms = 60_000 * batch.minutes * rng.lognormvariate(0, 0.18)
    if status == "failure":
        duration_ms *= rng.uniform(0.3, 0.9)
    is_stopped = rng.random() < stopped_share
    return RunProfile(
        status="stopped" if is_stopped else status,
        exit_code=None if is_stopped else exit_code,
        is_killed=is_killed and not is_stopped,
        duration_ms=max(int(duration_ms), 1),
        init_ms=rng.randint(9_000, 40_000),
        cpu=min(max(batch.cpu + rng.gauss(0, 0.05), 0.005), 1.0),
        memory=0.998 if is_killed else min(max(level, 0.01), 0.98),
    )
