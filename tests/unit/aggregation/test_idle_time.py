"""How long a batch is idle: a steady background is, a poll is not, and the monitor's own lines
do not count.
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.aggregation.idle_time import IdleDetector, NoticeReading
from tests.cases import each_case
from tests.fakes import seconds
from tests.values import present

Rates = tuple[float, float, float]  # vCPU, bytes a second of network and of disk
WINDOW_SECONDS = 30 * 60
IDLE: Rates = (0.0, 0.0, 0.0)


def add(idle: IdleDetector, *values: int | None) -> bool:
    """Add the time and the counters of a reading, in the order of its fields."""
    fields = dict(zip(NoticeReading.__struct_fields__, values, strict=False))
    return idle.add_reading(NoticeReading(**fields))  # type: ignore[arg-type]


def stuck_after(
    rates_at: Callable[[float], Rates],
    *,
    step: float = 10,
    minutes: float = 90,
    window: float = WINDOW_SECONDS,
) -> float | None:
    """The seconds after which a batch with these rates is stuck; None if it never is."""
    idle = IdleDetector(seconds(window), max_step_ns=seconds(30))
    cpu = network = block = 0.0
    at = 0.0
    while at <= 60 * minutes:
        if add(idle, seconds(at), round(cpu), round(network), round(block)):
            return at
        at += step
        rates = rates_at(at)
        cpu, network, block = (
            cpu + 1e9 * rates[0] * step,
            network + rates[1] * step,
            block + rates[2] * step,
        )
    return None


def polling(
    every: float, size: float, *, step: float = 10, floor: float = 0, disk: bool = False
) -> Callable[[float], Rates]:
    """A poll of so many bytes every so many seconds, in the steps of the statistics."""

    def rates_at(at: float) -> Rates:
        polls = int(at / every) - int((at - step) / every)
        rate = floor + polls * size / step
        return (0, 0, rate) if disk else (0, rate, 0)

    return rates_at


@each_case("step", [1, 10])
@each_case(
    "rates",
    [IDLE, (0.0099, 0, 0), (0, 1000, 0), (0, 0, 1000), (0.000004, 1000, 1000), (0.009, 20, 9)],
)
def test_a_steady_background_below_the_limits_is_idle(rates: Rates, step: float) -> None:
    assert stuck_after(lambda _: rates, step=step) == WINDOW_SECONDS


@pytest.mark.parametrize("rates", [(0.0101, 0, 0), (0, 1025, 0), (0, 0, 1025)])
def test_one_step_at_a_limit_starts_the_time_again(rates: Rates) -> None:
    assert stuck_after(lambda at: rates if at == 600 else IDLE) == 600 + WINDOW_SECONDS
    assert stuck_after(lambda _: rates) is None


@given(
    step=st.sampled_from([1, 5, 10]),
    every=st.floats(12, 1200),
    size=st.floats(400, 100_000),
    floor=st.floats(0, 8),
    disk=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_a_batch_that_polls_is_not_stuck(
    step: float, every: float, size: float, floor: float, *, disk: bool
) -> None:
    rates_at = polling(every, size, step=step, floor=floor, disk=disk)
    assert stuck_after(rates_at, step=step, minutes=45) is None


@given(
    step=st.sampled_from([1, 10]),
    every=st.floats(1, 10),
    size=st.floats(350, 2000),
    cpu_ms=st.floats(0.1, 8),
)
@settings(max_examples=10, deadline=None)
def test_a_batch_that_polls_in_every_step_is_not_stuck(
    step: float, every: float, size: float, cpu_ms: float
) -> None:
    """Its bytes look like a background, but they take CPU time."""
    rates_at = polling(every, size, step=step)
    assert (
        stuck_after(
            lambda at: (rates_at(at)[1] / size * cpu_ms / 1000, *rates_at(at)[1:]), step=step
        )
        is None
    )


@given(seed=st.integers(0, 1000), low=st.floats(0, 300), high=st.floats(300, 900))
@settings(max_examples=10, deadline=None)
def test_a_background_that_varies_is_idle(seed: int, low: float, high: float) -> None:
    """An occasional step that looks like a poll only delays the notice."""
    noise = random.Random(seed)
    assert (
        stuck_after(
            lambda _: (0.000004, noise.uniform(low, high), noise.uniform(0, 50)), minutes=240
        )
        is not None
    )


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_reading_starts_the_time_again(missing: int) -> None:
    idle = IdleDetector(seconds(60), max_step_ns=seconds(30))
    for at in range(0, 60, 10):
        assert not add(idle, seconds(at), 0, 0, 0)
    unknown = [None if place == missing else 0 for place in range(3)]
    for at, counters, since_ns in ((60, unknown, None), (70, [0, 0, 0], seconds(70))):
        assert add(idle, seconds(at), *counters) is False
        assert idle.since_ns == since_ns
    gap = IdleDetector(seconds(60), max_step_ns=seconds(30))
    assert [add(gap, seconds(at), 0, 0, 0) for at in (0, 30, 61, 91, 120, 121)] == [False] * 5 + [
        True
    ]


def test_the_largest_values_of_the_idle_time() -> None:
    idle = IdleDetector(seconds(60), max_step_ns=seconds(30))
    cpu_ns = network = block = 0
    for at in range(0, 80, 10):
        add(idle, seconds(at), cpu_ns, network, block)
        cpu_ns, network, block = cpu_ns + 10_000_000 + at * 100_000, network + 100, block + 50
    assert idle.vcpu == pytest.approx(0.0016)
    assert idle.network == pytest.approx(10)
    assert idle.block == pytest.approx(5)


def run_with_own_lines(
    polls: Callable[[int], bool],
    *,
    is_silent: bool = True,
    poll_ms: float = 0,
    other_cpu_ms: Callable[[int], float] = lambda _: 0,
) -> int | None:
    """The monitor writes 20 KB a minute through the batch's interface unless it is silent near
    the end.
    """
    idle = IdleDetector(seconds(WINDOW_SECONDS), max_step_ns=seconds(30))
    cpu_ns, network, line_ns = 0, 0, None
    for at in range(0, 3 * WINDOW_SECONDS, 10):
        if add(idle, seconds(at), cpu_ns, network, 0, line_ns):
            return at
        if at % 60 == 0 and not (is_silent and idle.wants_silence(seconds(at))):
            line_ns, network = seconds(at), network + 20_000
        cpu_ns += round(1e6 * other_cpu_ms(at))
        if polls(at):
            cpu_ns, network = cpu_ns + round(1e6 * poll_ms), network + 2000
    return None


def test_the_lines_of_the_monitor_are_not_the_activity_of_the_batch() -> None:
    assert run_with_own_lines(lambda _: False) == WINDOW_SECONDS
    assert run_with_own_lines(lambda _: False, is_silent=False) is None


def test_a_poll_beside_a_line_of_the_monitor_is_seen() -> None:
    """While no line is written, or by its CPU time."""
    assert run_with_own_lines(lambda at: at % 60 == 0) is None
    assert run_with_own_lines(lambda at: at % 60 == 30) is None
    assert run_with_own_lines(lambda at: at % 300 == 0) == WINDOW_SECONDS
    assert run_with_own_lines(lambda at: at % 300 == 0, poll_ms=2) is None


def test_cpu_time_without_bytes_beside_a_line_of_the_monitor_is_idle() -> None:
    """Health checks and garbage collections take as much at other times."""
    noise = random.Random(1)
    for other_cpu_ms in (
        lambda at: noise.uniform(40, 60) * (at % 30 == 0),
        lambda _: 60 if noise.random() < 0.1 else 10,
    ):
        assert (
            present(run_with_own_lines(lambda _: False, other_cpu_ms=other_cpu_ms))
            <= WINDOW_SECONDS + 60
        )


def test_silence_is_only_for_a_batch_that_is_nearly_stuck() -> None:
    idle = IdleDetector(seconds(WINDOW_SECONDS), max_step_ns=seconds(30))
    assert not idle.wants_silence(0)
    for at in range(0, WINDOW_SECONDS - 20, 10):
        assert idle.wants_silence(seconds(at)) == (at >= WINDOW_SECONDS - 180)
        add(idle, seconds(at), 0, 0, 0)
    assert idle.wants_silence(seconds(WINDOW_SECONDS))
    assert not idle.wants_silence(seconds(WINDOW_SECONDS + 60))  # readings are missing


@pytest.mark.parametrize("window", [3, 30, 60, 120])
def test_there_is_no_silence_for_a_busy_batch_however_short_the_window_is(window: int) -> None:
    idle = IdleDetector(seconds(window), max_step_ns=seconds(30))
    for at in range(0, 600, 10):
        add(idle, seconds(at), seconds(at), 0, 0)
        assert not any(idle.wants_silence(seconds(at + later)) for later in range(15))
