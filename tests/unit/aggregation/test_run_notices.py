"""The notices of one run: what is idle or grows is found in time, and what only looks like it is
not.
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.aggregation.idle_time import NoticeReading
from profiler.aggregation.run_notices import (
    MIN_RUN_NS,
    GrowthFit,
    LimitGrowthFinder,
    NoticeFinding,
    RunNotices,
)
from profiler.core.timestamps import format_ms
from profiler.readers.linux.wait_types import Wait
from profiler.record.notice_model import Notice, NoticeEvidence
from profiler.record.units import MIB
from tests.fakes import START_NS, seconds
from tests.values import present

SIZE = 1000.0
WAITED = Wait("network", "10.0.3.9:5432")


def growth_in(
    used_at: Callable[[float], float | None], *, minutes: float = 180, step: float = 10
) -> tuple[float, GrowthFit] | None:
    """The minute in which the growth of a quantity, a share of its size, is found; None if
    never.
    """
    growth = LimitGrowthFinder(0)
    for tick in range(int(60 * minutes / step) + 1):
        at = tick * step
        used = used_at(at / 60)
        if used is not None and used >= 1:
            return None
        if used is not None and (result := growth.add_reading(seconds(at), SIZE * used, SIZE)):
            return at / 60, result
    return None


@pytest.mark.parametrize(
    ("minutes", "step"), [(24, 1), (24, 10), (24, 60), (40, 10), (90, 10), (600, 30)]
)
def test_a_leak_is_found_before_its_end_and_not_before_its_last_15_minutes(
    minutes: float, step: float
) -> None:
    """It uses 10 % at first and all after so many minutes."""
    at, growth = present(growth_in(lambda at: 0.1 + 0.9 * at / minutes, minutes=minutes, step=step))
    assert max(minutes - 15.2, 20) <= at < minutes - 2
    assert growth.used >= 0.7 * SIZE
    assert growth.minutes_left == pytest.approx(minutes - at, rel=0.3)
    assert growth.since_ns / seconds(60) == pytest.approx(0.75 * at, rel=0.1)
    assert growth.per_minute == pytest.approx(900 / minutes, rel=0.2)


@pytest.mark.parametrize(("start", "minutes"), [(120, 20), (300, 60), (600, 60), (1200, 30)])
def test_a_leak_that_begins_late_is_found(start: float, minutes: float) -> None:
    """The last quarter is longer than the leak."""
    result = present(
        growth_in(lambda at: 0.3 + 0.7 * max(at - start, 0) / minutes, minutes=start + minutes)
    )
    assert start + minutes - 15.2 <= result[0] < start + minutes - 1
    assert growth_in(
        lambda at: 0.1 + 0.8 * at / 60 + 0.05 * (at % 2) / 2, minutes=64
    )  # with a sawtooth


def test_growth_below_70_percent_or_in_20_minutes_is_none() -> None:
    """Growth without a size below 70 percent or in the first 20 minutes is none."""
    assert growth_in(lambda at: 0.1 + 0.89 * at / 20, minutes=MIN_RUN_NS / seconds(60) - 1) is None
    growth = LimitGrowthFinder(0)
    assert not any(growth.add_reading(seconds(at), at, None) for at in range(0, 7200, 10))
    assert growth_in(lambda at: 0.69 * at / 60, minutes=60) is None


@given(
    period=st.floats(0.5, 19),
    low=st.floats(0.05, 0.6),
    height=st.floats(0.1, 0.39),
    step=st.sampled_from([5, 10]),
    phase=st.floats(0, 1),
)
@settings(max_examples=12, deadline=None)
def test_a_sawtooth_is_no_growth(
    period: float, low: float, height: float, step: float, phase: float
) -> None:
    assert (
        growth_in(lambda at: low + height * ((at / period + phase) % 1), minutes=60, step=step)
        is None
    )


@given(period=st.floats(20, 60), seed=st.integers(0, 100))
@settings(max_examples=6, deadline=None)
def test_a_slow_sawtooth_is_no_growth_after_its_first_tooth(period: float, seed: int) -> None:
    tops = random.Random(seed)
    heights = [0.95] + [0.9 + 0.05 * tops.random() for _ in range(20)]
    growth = LimitGrowthFinder(0)
    for at in range(0, 4 * 3600, 10):
        tooth, part = divmod(at / 60 / period, 1)
        used = SIZE * (0.2 + (heights[int(tooth)] - 0.2) * part)
        assert growth.add_reading(seconds(at), used, SIZE) is None or tooth == 0


@given(
    rise=st.floats(0.1, 15),
    level=st.floats(0.5, 0.97),
    noise=st.floats(0, 0.01),
    seed=st.integers(0, 100),
)
@settings(max_examples=20, deadline=None)
def test_a_plateau_is_no_growth(rise: float, level: float, noise: float, seed: int) -> None:
    jitter = random.Random(seed)
    assert (
        growth_in(lambda at: min(at / rise, 1) * level + noise * jitter.random(), minutes=60)
        is None
    )


@given(steps=st.lists(st.floats(1, 19), min_size=1, max_size=6), top=st.floats(0.7, 0.98))
@settings(max_examples=20, deadline=None)
def test_a_staircase_that_has_ended_is_no_growth(steps: list[float], top: float) -> None:
    ended = (top - 0.1) / len(steps)
    assert (
        growth_in(lambda at: 0.1 + ended * sum(at >= begin for begin in steps), minutes=90) is None
    )


def test_a_long_leak_that_has_ended_is_no_growth() -> None:
    """The last quarter of the run still shows it."""
    assert growth_in(lambda at: 0.1 + 0.75 * min(at / 300, 1), minutes=400) is None


def test_missing_readings_are_no_growth() -> None:
    """Neither in the last quarter nor before it: a restarted monitor does not know the usage of
    before.
    """
    assert growth_in(lambda at: 0.1 + 0.8 * at / 60 if at < 40 else None, minutes=54) is None
    assert (
        growth_in(lambda at: 0.1 + 0.8 * at / 60 if at < 45 or at > 52 else None, minutes=53)
        is None
    )
    assert growth_in(lambda at: 0.1 + 0.8 * at / 60 if at > 43 else None, minutes=54) is None
    assert growth_in(lambda at: 0.1 + 0.8 * at / 60 if at > 30 else None, minutes=54) is not None


def found(
    *,
    minutes: float = 60,
    memory_per_minute: float = 0,
    disk_per_minute: float = 0,
    **values: float | None,
) -> list[tuple[float, NoticeFinding]]:
    """What is found in which minute of an idle run that starts with 10 % of its memory and disk."""
    notices = RunNotices(START_NS, **values)  # type: ignore[arg-type]
    findings: list[tuple[float, NoticeFinding]] = []
    for at in range(0, int(60 * minutes) + 1, 10):
        at_ns = START_NS + seconds(at)
        reading = NoticeReading(
            at_ns=at_ns,
            cpu_ns=at * 1000,
            network_bytes=20 * at,
            block_bytes=0,
            memory_used_bytes=round(MIB * (100 + memory_per_minute * at / 60)),
            memory_size_bytes=1000 * MIB,
            disk_used_mb=2000 + disk_per_minute * at / 60,
            disk_size_mb=20_000,
        )
        findings += [
            (at / 60, finding)
            for finding in (*notices.add_reading(reading), *notices.find_if_overdue(at_ns))
        ]
    return findings


def notice(finding: NoticeFinding, wait: Wait | None = None) -> Notice:
    return RunNotices(START_NS).raise_notice(finding, lambda _: wait)


def test_a_stuck_run() -> None:
    ((at, finding),) = found()
    assert at == 30
    assert notice(finding, WAITED) == Notice(
        kind="stuck",
        message="The run used less than 0.01 vCPU and 1 KB/s of network and disk for 30 minutes; "
        "it has waited mostly for the network (10.0.3.9:5432).",
        since=format_ms(START_NS),
        evidence=NoticeEvidence(
            minutes=30,
            vcpu_used=0,
            network_bytes_per_second=20,
            block_bytes_per_second=0,
            waiting_for="the network (10.0.3.9:5432)",
        ),
    )


def test_what_a_run_waits_for_is_named_as_far_as_it_is_known() -> None:
    ((_, finding),) = found()
    assert notice(finding).message.endswith("for 30 minutes.")
    for wait, words in (
        (Wait("lock"), "a lock"),
        (Wait("network"), "the network"),
        (Wait("network", "network"), "the network"),
        (Wait("disk", "/data/in"), "the disk (/data/in)"),
    ):
        said = notice(finding, wait)
        assert said.message.endswith(f"; it has waited mostly for {words}.")
        assert present(said.evidence).waiting_for == words


def test_the_wait_is_that_of_the_time_that_the_notice_is_about() -> None:
    asked: list[int] = []
    for _, finding in found(expected_seconds=3000):
        RunNotices(START_NS).raise_notice(finding, asked.append)
    assert asked == [
        START_NS,
        START_NS,
    ]  # since it is idle, and the whole time of what takes too long


def test_an_overdue_run() -> None:
    ((at, finding),) = found(stuck_minutes=0, expected_seconds=3000.4)
    assert at == 3010 / 60
    assert notice(finding, WAITED) == Notice(
        kind="overdue",
        message=(
            "The run has taken 50m 10s; 50m 00s were expected; it has waited mostly for the "
            "network (10.0.3.9:5432)."
        ),
        since=format_ms(START_NS + seconds(3000.4)),
        evidence=NoticeEvidence(
            elapsed_seconds=3010, expected_seconds=3000.4, waiting_for="the network (10.0.3.9:5432)"
        ),
    )


def test_memory_that_grows_to_its_limit() -> None:
    ((at, finding),) = found(stuck_minutes=0, memory_per_minute=30, minutes=29)
    assert at == 20
    assert notice(finding, WAITED) == Notice(
        kind="memory",
        message="The run uses 700 MB of 1,000 MB of memory (70 %), and has grown by 30.0 MB a minute "
        "for 5 minutes: at this rate, it reaches the limit in 10 minutes.",
        since=format_ms(START_NS + seconds(910)),
        evidence=NoticeEvidence(
            minutes=4.8, used_mb=700, size_mb=1000, growth_mb_per_minute=30, minutes_left=10
        ),
    )
    ((_, finding),) = found(stuck_minutes=0, disk_per_minute=500, minutes=35)
    assert finding.kind == "disk"
    assert "of 19.5 GB of ephemeral storage" in notice(finding).message


_COUNTS = ("cpu_ns", "network_bytes", "block_bytes", "own_line_ns", "memory_used_bytes")
_SIZES = ("memory_size_bytes", "disk_used_mb", "disk_size_mb")


@given(
    st.lists(
        st.builds(
            NoticeReading,
            at_ns=st.integers(0, 2**62),
            **dict.fromkeys(_COUNTS, st.none() | st.integers(0, 2**62)),
            **dict.fromkeys(_SIZES, st.none() | st.floats(0, 2**62)),
        )
    )
)
@settings(max_examples=40, deadline=None)
def test_any_readings_give_notices_that_can_be_described(readings: list[NoticeReading]) -> None:
    notices = RunNotices(0, stuck_minutes=0.001, expected_seconds=1)
    for reading in readings:
        for finding in (*notices.add_reading(reading), *notices.find_if_overdue(reading.at_ns)):
            assert notices.raise_notice(finding, lambda _: None).message.endswith(".")
