"""Runs of a whole fleet on ECS, made up: families, their schedules, failures and growth. Pure; the same for a seed.

A family is like one of tools/example_runs.py, which draws a few local runs second by second; here
there are hundreds of families and millions of runs, each with its summary alone. Families differ in
how often they run as words do in a text (Zipf); half of them start at the full hour, as schedules do,
the others whenever something comes in.
"""

import bisect
import math
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

from msgspec import Struct

from benchmarks.fleet_record import Course, report
from profiler.record.model import Report
from tools.example_runs import Batch, ending

FIRST_DAY = datetime(2026, 11, 1, tzinfo=UTC)
_DAY_SECONDS, _HOUR_SECONDS = 86_400, 3600
_ZIPF = 0.9
# vCPU and GiB that Fargate knows, with how many families in a hundred have them.
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
_MEDIAN_MINUTES, _MINUTES_SPREAD = 4.0, 1.1
_LONGEST_MINUTES = 360.0
_GROWING_SHARE, _GPU_SHARE, _ON_THE_HOUR_SHARE = 0.1, 0.03, 0.5
_STOPPED_SHARE = 0.005
_LATE_SECONDS = 240.0
_HOURS = tuple(range(24))


class Fleet(Struct, frozen=True, kw_only=True):
    """What is asked for: so many families with so many runs a day, all together, for so many days."""

    runs_per_day: int
    days: int = 30
    families: int = 200
    seed: int = 20261101
    first_day: datetime = FIRST_DAY

    @property
    def end(self) -> datetime:
        """No run starts then or later."""
        return self.first_day + timedelta(days=self.days)


class Family(Struct, frozen=True, kw_only=True):
    """A family, its share of all runs, and when they start."""

    batch: Batch
    share: float
    on_the_hour: bool


def families(fleet: Fleet) -> tuple[Family, ...]:
    """The fleet's families, those that run most first. Shares add up to 1."""
    chance = random.Random(fleet.seed)  # noqa: S311  no secrets
    weights = [1 / (place + 1) ** _ZIPF for place in range(fleet.families)]
    return tuple(_family(place, weight / sum(weights), chance) for place, weight in enumerate(weights))


def _family(place: int, share: float, chance: random.Random) -> Family:
    ((vcpu, memory_gib),) = chance.choices(list(_SIZES), list(_SIZES.values()))
    nightly = tuple(sorted(chance.sample(_HOURS[:6], k=chance.randint(1, 3))))
    batch = Batch(
        family=f"batch-{place:04d}",
        hours=chance.choice((nightly, _HOURS, _HOURS[8:20])),
        minutes=min(chance.lognormvariate(math.log(_MEDIAN_MINUTES), _MINUTES_SPREAD), _LONGEST_MINUTES),
        vcpu=vcpu,
        memory_mb=int(memory_gib * 1024),
        cpu=chance.betavariate(2, 3),
        memory=0.05 + 0.85 * chance.betavariate(2, 3),
        growth=chance.uniform(0.1, 0.5) if chance.random() < _GROWING_SHARE else 0,
        fails=chance.lognormvariate(math.log(0.01), 0.8),
        read_mb_s=chance.lognormvariate(0, 1.5),
        written_mb_s=chance.lognormvariate(-1, 1.5),
        gpu=chance.uniform(0.1, 0.95) if chance.random() < _GPU_SHARE else None,
    )
    return Family(batch=batch, share=share, on_the_hour=chance.random() < _ON_THE_HOUR_SHARE)


def runs(fleet: Fleet) -> Iterator[Report]:
    """All runs by the time of their start, exactly ``runs_per_day`` of them on each day."""
    members = families(fleet)
    bounds = [0.0, *accumulate(one.share for one in members)]
    # A day at a time, with its own chance: a day's runs do not depend on how many days are asked for.
    for day in range(fleet.days):
        chance = random.Random(f"{fleet.seed}/{day}")  # noqa: S311  no secrets
        midnight = fleet.first_day + timedelta(days=day)
        when = day / max(fleet.days - 1, 1)
        for second, place in _starts(members, _counts(bounds, fleet.runs_per_day, chance), chance):
            course = _course(members[place].batch, when, chance)
            yield report(members[place].batch, course, midnight + timedelta(seconds=second), chance)


def _counts(bounds: Sequence[float], count: int, chance: random.Random) -> list[int]:
    """How often each family runs on a day: systematic sampling, so that rare ones have their days and the sum is exact.

    Equidistant marks are laid over the shares, from an offset by chance; a family runs once for each that falls into
    its share.
    """
    offset = chance.random()
    marks = [(number + offset) / count for number in range(count)]
    below = [bisect.bisect_left(marks, bound) for bound in bounds]
    # The last share ends at 1, rounded or not.
    return [later - earlier for earlier, later in pairwise([*below[:-1], count])]


def _starts(members: Sequence[Family], counts: Sequence[int], chance: random.Random) -> list[tuple[float, int]]:
    """Seconds of the day and places of families, in order."""
    starts = []
    for place, count in enumerate(counts):
        family = members[place]
        for number in range(count):
            hour = family.batch.hours[number % len(family.batch.hours)]
            late = (
                min(chance.expovariate(1 / 20), _LATE_SECONDS)
                if family.on_the_hour
                else _HOUR_SECONDS * chance.random()
            )
            starts.append((hour * _HOUR_SECONDS + late, place))
    return sorted(starts)


def _course(batch: Batch, when: float, chance: random.Random) -> Course:
    """How a run goes: ``when`` from 0 to 1 is its place in the fleet's time, for what grows."""
    level = min(batch.memory + batch.growth * when + chance.gauss(0, 0.03), 1.05)
    status, code, killed = ending(level, batch, chance)
    duration_ms = 60_000 * batch.minutes * chance.lognormvariate(0, 0.18)
    if status == "failure":
        duration_ms *= chance.uniform(0.3, 0.9)
    is_stopped = chance.random() < _STOPPED_SHARE
    return Course(
        status="stopped" if is_stopped else status,
        exit_code=None if is_stopped else code,
        killed=killed and not is_stopped,
        duration_ms=max(int(duration_ms), 1),
        init_ms=chance.randint(9_000, 40_000),
        cpu=min(max(batch.cpu + chance.gauss(0, 0.05), 0.005), 1.0),
        memory=0.998 if killed else min(max(level, 0.01), 0.98),
    )
