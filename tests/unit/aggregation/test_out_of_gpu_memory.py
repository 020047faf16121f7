"""The memory of programs on a GPU of 80 GB, by what they do before they fail with exit code 1."""

from collections.abc import Callable

import pytest

from profiler.aggregation.out_of_gpu_memory import GpuMemoryGrowth
from profiler.core.timestamps import NS_PER_SECOND
from tests.cases import each_case
from tests.nvml_tape import Tape

LIMIT = 81_559 << 20
GB = 1 << 30


def growth(
    curve: Callable[[float], float], end: float, hertz: float, others: float = 0
) -> GpuMemoryGrowth:
    """Readings of a curve (share of the memory at a second) up to the end of the processes."""
    memory = GpuMemoryGrowth()
    reading = 0
    while reading / hertz <= end:
        at = reading / hertz
        share = curve(at)
        if share > 0:
            own = round(share * LIMIT)
            used = own + round(others * LIMIT) if reading % round(max(hertz, 1)) == 0 else None
            memory.add_reading(round(at * NS_PER_SECOND), own, used)
        reading += 1
    return memory


def ramp(*points: tuple[float, float]) -> Callable[[float], float]:
    """Straight lines between (second, share)."""

    def share(at: float) -> float:
        before = points[0]
        for point in points:
            if point[0] >= at:
                width = point[0] - before[0]
                if width <= 0:
                    return point[1]
                return before[1] + (point[1] - before[1]) * (at - before[0]) / width
            before = point
        return points[-1][1]

    return share


def jumps(*points: tuple[float, float]) -> Callable[[float], float]:
    """The share of the last (second, share) that has passed."""
    return lambda at: max(
        ((second, share) for second, share in points if second <= at), default=(0, 0)
    )[1]


def both(
    first: Callable[[float], float], until: float, then: Callable[[float], float]
) -> Callable[[float], float]:
    return lambda at: first(at) if at < until else then(at)


NO_LACK = {
    "JAX takes 75 % at its start, and fails after 3 s": (jumps((1, 0.006), (1.2, 0.753)), 4.2),
    "JAX takes 75 %, and fails after a minute": (jumps((1, 0.006), (1.2, 0.753)), 61.2),
    "JAX may take 95 %, and fails after 3 s": (jumps((1, 0.006), (1.2, 0.953)), 4.2),
    "TensorFlow takes all of it, and fails at its first step": (jumps((2, 0.01), (2.3, 0.97)), 5),
    "vLLM loads its weights, takes its cache, and fails": (
        both(ramp((0, 0.01), (8, 0.55)), 8.5, jumps((8.5, 0.9))),
        11,
    ),
    "vLLM records its graphs after that, and fails": (
        both(ramp((0, 0.01), (8, 0.55)), 8.5, ramp((8.5, 0.9), (14, 0.925))),
        15,
    ),
    "a training has held 93 % for an hour, and fails": (
        ramp((0, 0.01), (60, 0.93), (3600, 0.93)),
        3600,
    ),
    "a program that holds half fails": (ramp((0, 0.01), (5, 0.5), (20, 0.5)), 20),
    "a program that grows to 80 % fails": (ramp((0, 0.01), (10, 0.8)), 10.4),
    "one array of 60 %, and then one that is too large": (jumps((1, 0.01), (2, 0.6)), 3),
}
LACK = {
    "a model that is too large is loaded": (ramp((0, 0.008), (4, 0.97)), 4.6),
    "the activations of the first batch are too large": (
        ramp((0, 0.4), (30, 0.4), (33, 0.985)),
        33.5,
    ),
    "a batch that is longer than all before": (
        ramp((0, 0.1), (600, 0.82), (3000, 0.82), (3003, 0.96)),
        3004,
    ),
    "a leak": (ramp((0, 0.5), (3000, 0.96), (3004, 0.99), (3005, 0.999)), 3005.5),
}


@each_case("what", NO_LACK)
@each_case("hertz", [10, 3, 1])
def test_memory_that_is_taken_on_purpose_is_no_lack(what: str, hertz: float) -> None:
    curve, end = NO_LACK[what]
    assert growth(curve, end, hertz).memory_at_limit(LIMIT) is None


@pytest.mark.parametrize("what", [name for name in LACK if name != "a leak"])
@pytest.mark.parametrize("hertz", [10, 3])
def test_memory_that_grows_to_the_limit_is_a_lack(what: str, hertz: float) -> None:
    curve, end = LACK[what]
    assert growth(curve, end, hertz).memory_at_limit(LIMIT) is not None


@pytest.mark.parametrize(("steps", "is_lack"), [((0.87, 0.93), False), ((0.85, 0.89, 0.93), True)])
def test_less_than_three_rises_are_no_growth(steps: tuple[float, ...], *, is_lack: bool) -> None:
    curve = jumps((0, 0.8), *enumerate(steps, start=1))
    assert (growth(curve, 4, 10).memory_at_limit(LIMIT) is not None) == is_lack


@pytest.mark.parametrize(("held", "is_lack"), [(6.0, True), (12.0, False)])
def test_growth_that_ended_long_before_the_failure_is_no_lack(
    held: float, *, is_lack: bool
) -> None:
    curve = ramp((0, 0.01), (4, 0.97), (4 + held, 0.97))
    assert (growth(curve, 4 + held, 3).memory_at_limit(LIMIT) is not None) == is_lack


@pytest.mark.parametrize(("step", "is_lack"), [(0.01, False), (0.017, True)])
def test_little_growth_after_a_pool_is_no_lack(step: float, *, is_lack: bool) -> None:
    """Three rises, of 3 or 5.1 % in all."""
    curve = jumps(
        (0, 0.01), (1, 0.9), *((2 + number, 0.9 + (number + 1) * step) for number in range(3))
    )
    assert (growth(curve, 5, 10).memory_at_limit(LIMIT) is not None) == is_lack


def test_a_slow_leak_is_left_to_the_log() -> None:
    curve, end = LACK["a leak"]
    assert growth(curve, end, 10).memory_at_limit(LIMIT) is None


def test_the_limit_of_mps_is_each_processs_own() -> None:
    """What other programs hold does not count against it, nor the sum of several processes."""
    memory = growth(ramp((0, 0.005), (3, 0.049)), 3.3, 10, others=0.2)
    assert memory.memory_at_limit(LIMIT) is None
    found = memory.memory_at_process_limit(4 * GB)
    assert found is not None
    assert found.used_bytes == found.own_bytes < 4 * GB
    small = growth(ramp((0, 0.005), (3, 0.02)), 3.3, 10, others=0.2)
    assert small.memory_at_process_limit(4 * GB) is None
    several = GpuMemoryGrowth()
    for number in range(30):
        several.add_reading(
            number * NS_PER_SECOND // 10, 4 * number * GB // 30, None, number * GB // 30
        )
    assert several.memory_at_process_limit(4 * GB) is None


def test_what_other_programs_hold_counts() -> None:
    memory = growth(ramp((0, 0.01), (3, 0.28)), 3.3, 10, others=0.7)
    found = memory.memory_at_limit(LIMIT)
    assert found is not None
    assert found.own_bytes < 0.3 * LIMIT
    assert found.used_bytes > 0.97 * LIMIT


@pytest.mark.parametrize("hertz", [20, 10, 5])
def test_pytorchs_growth_on_a_real_gpu_is_seen(hertz: int) -> None:
    tape = Tape("oom")
    assert held(tape, hertz).memory_at_limit(tape.total_bytes) is not None


def test_readings_once_a_second_do_not_tell_growth_from_a_pool() -> None:
    tape = Tape("oom")
    assert held(tape, 1).memory_at_limit(tape.total_bytes) is None


def held(tape: Tape, hertz: int) -> GpuMemoryGrowth:
    """The memory of a tape's program, read so many times a second."""
    memory = GpuMemoryGrowth()
    for index in range(round(tape.ended * hertz)):
        row = tape.at(index / hertz)
        if row.processes:
            at_ns = round(index / hertz * NS_PER_SECOND)
            memory.add_reading(at_ns, row.processes[0][1], row.used_bytes)
    return memory
