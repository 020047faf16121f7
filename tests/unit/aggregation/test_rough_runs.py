"""Any run with restarts, holes in the readings and steps of the wall clock, against what really happened."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.container_usage import ContainerUsage
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.host import Host
from tests.fakes import START_NS, seconds
from tests.values import present

VCPU = 4
MIB = 2**20
HOST = Host(vcpu=VCPU, memory_bytes=2**34)


class Attempt(NamedTuple):
    """From ``start`` to ``end`` a container uses ``vcpu``."""

    start: int
    end: int
    vcpu: float


class Run(NamedTuple):
    """All times are seconds since the start. The agent refreshes its statistics every ``period``.

    In ``holes`` the endpoint does not answer. At ``clock_steps`` the wall clock is set by so many seconds. The metadata
    is read ``metadata_lag`` after a restart.
    """

    attempts: tuple[Attempt, ...]
    period: int
    holes: tuple[tuple[int, int], ...]
    clock_steps: tuple[tuple[int, int], ...]
    are_counters_continued: bool
    has_new_ids: bool
    metadata_lag: int

    def shift(self, at: float) -> int:
        return sum(step for moment, step in self.clock_steps if moment <= at)

    def attempt_at(self, at: float) -> int | None:
        """The number of the attempt that runs then."""
        return next((number for number, one in enumerate(self.attempts) if one.start < at <= one.end), None)

    def counter(self, at: int, number: int) -> float:
        first = 0 if self.are_counters_continued else number
        return sum((min(at, one.end) - one.start) * one.vcpu for one in self.attempts[first : number + 1])

    @property
    def cpu_seconds(self) -> float:
        return sum((one.end - one.start) * one.vcpu for one in self.attempts)

    def readings(self) -> Iterator[tuple[int, int, int]]:
        """When the statistics were refreshed and when they arrive, and the number of the attempt."""
        for taken in range(self.period, self.attempts[-1].end + 1, self.period):
            arrives = taken + min(self.period - 1, 2)
            number = self.attempt_at(taken)
            is_lost = any(begin <= arrives < end for begin, end in self.holes)
            if number is not None and not is_lost:
                yield taken, arrives, number


@st.composite
def runs(draw: st.DrawFn) -> Run:
    period = draw(st.sampled_from([1, 10]))
    attempts: list[Attempt] = []
    at = 0
    for _ in range(draw(st.integers(1, 3))):
        lasts = draw(st.integers(6, 30)) * period
        attempts.append(Attempt(at, at + lasts, draw(st.sampled_from([0.25, 1.0, 4.0]))))
        at += lasts + draw(st.integers(0, 3))
    moments = st.integers(5 * period, attempts[-1].end)
    holes = draw(st.lists(moments, max_size=2))
    steps = draw(st.lists(st.tuples(moments, st.sampled_from([-3600, -100, 100, 3600])), max_size=1))
    has_new_ids = draw(st.booleans())
    return Run(
        attempts=tuple(attempts),
        period=period,
        holes=tuple((begin, begin + draw(st.integers(1, 4)) * period) for begin in holes),
        clock_steps=tuple(steps),
        are_counters_continued=not has_new_ids and draw(st.booleans()),
        has_new_ids=has_new_ids,
        metadata_lag=draw(st.integers(0, 10)),
    )


def measured(run: Run) -> ContainerUsage:
    usage = ContainerUsage(seconds(1), 2000, HOST)
    for taken, arrives, number in run.readings():
        attempt = run.attempts[number]
        # A new container is known by its metadata; a restart in place is noticed later.
        known = attempt if run.has_new_ids or arrives >= attempt.start + run.metadata_lag else run.attempts[0]
        usage.add(
            ContainerSample(
                read_ns=START_NS
                + seconds(taken + run.shift(taken))
                - taken,  # a set clock never shows the same nanosecond
                cpu_ns=seconds(run.counter(taken, number)),
                memory_used_bytes=100 * MIB,
            ),
            epoch=str(number) if run.has_new_ids else "same",
            received_ns=seconds(arrives),
            started_ns=START_NS,
            attempt_started_ns=START_NS + seconds(known.start + run.shift(known.start)),
        )
    return usage


@given(runs())
def test_the_cpu_time_is_the_sum_over_all_attempts_within_a_step(run: Run) -> None:
    usage, seen = measured(run), list(run.readings())
    assert usage.cpu_seconds is not None
    assert usage.cpu_seconds <= run.cpu_seconds + 1e-6
    unseen = 0.0
    for number, attempt in enumerate(run.attempts):
        last = max((taken for taken, _, of in seen if of == number), default=attempt.start)
        unseen += (attempt.end - last) * attempt.vcpu
    longest_step = max((later[0] - earlier[0] for earlier, later in itertools.pairwise(seen)), default=0)
    assert usage.cpu_seconds >= run.cpu_seconds - unseen - VCPU * longest_step - 1e-6
    assert usage.impossible == 0


@given(runs())
def test_the_series_holds_all_cpu_time_and_no_rate_is_above_the_real_ones(run: Run) -> None:
    usage = measured(run)
    assert present(usage.series).cpu_ns == round((usage.cpu_seconds or 0) * 1e9)
    assert present(usage.run.vcpu.maximum) <= max(attempt.vcpu for attempt in run.attempts) * (1 + 1e-6)
    longest = max(later[0] - earlier[0] for earlier, later in itertools.pairwise(run.readings()))
    assert usage.steps_ms.maximum == pytest.approx(longest * 1000)


@given(runs())
def test_the_memory_is_known_where_it_was_read_and_nowhere_else(run: Run) -> None:
    usage, taken = measured(run), [taken for taken, _, _ in run.readings()]
    series = present(None if usage.series is None else usage.series.values())
    assert series.step_ms == 1000
    values = series.memory_used_mb or ()
    known = {second for second, value in enumerate(values) if value is not None}
    # A step of the series counts as read if the period before a reading touches it.
    read = {second for at in taken for second in range(at - run.period - 1, at)}
    assert known <= read
    assert {at - 1 for at in taken} <= known
