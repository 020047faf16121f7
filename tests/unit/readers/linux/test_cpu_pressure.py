import pytest

from profiler.core.timestamps import NS_PER_US
from profiler.readers.linux.cpu_pressure import (
    CpuPressure,
    CpuWaitBounds,
    parse_pressure_ns,
    parse_throttled_ns,
)


def counters(
    *, waited_us: int | None = None, throttled_us: int | None = None, is_of_group: bool = False
) -> CpuPressure:
    """The counters of a machine with four CPUs."""
    pressure, cpu_stat = b"", b""
    if waited_us is not None:
        pressure = b"some avg10=5.97 avg60=23.48 total=%d\nfull avg10=0.00 total=9\n" % waited_us
    if throttled_us is not None:
        cpu_stat = b"nr_periods 9\nthrottled_usec %d\n" % throttled_us
    return CpuPressure(pressure=pressure, cpu_stat=cpu_stat, is_of_group=is_of_group, cpus=4)


def test_a_throttled_group_waited_at_least_the_mean_of_its_cpus() -> None:
    """A throttled group waited at least the mean and at most the sum of its CPUs."""
    before = counters(waited_us=5, throttled_us=100)
    limits = counters(waited_us=7, throttled_us=500).cpu_wait_bounds_since(before)
    assert limits == CpuWaitBounds(
        least_ns=100 * NS_PER_US, most_ns=402 * NS_PER_US, throttled_ns=400 * NS_PER_US
    )


def test_what_the_machines_threads_waited_is_certain_of_no_group() -> None:
    before = counters(waited_us=5)
    assert counters(waited_us=905).cpu_wait_bounds_since(before).least_ns == 0


def test_what_the_groups_threads_waited_is_certain() -> None:
    before = counters(waited_us=5, is_of_group=True)
    limits = counters(waited_us=905, is_of_group=True).cpu_wait_bounds_since(before)
    assert limits == CpuWaitBounds(least_ns=900 * NS_PER_US, most_ns=900 * NS_PER_US)


def test_the_counters_of_the_machine_and_of_a_group_are_not_compared() -> None:
    before = counters(waited_us=5)
    limits = counters(waited_us=905, is_of_group=True).cpu_wait_bounds_since(before)
    assert limits == CpuWaitBounds()


def test_counters_of_another_group_that_are_smaller_are_no_negative_time() -> None:
    before = counters(throttled_us=100)
    assert counters(throttled_us=50).cpu_wait_bounds_since(before) == CpuWaitBounds()


def test_the_first_counters_limit_nothing() -> None:
    assert counters(waited_us=5, throttled_us=9).cpu_wait_bounds_since(None) == CpuWaitBounds()


def test_the_time_in_which_all_waited_is_another_line() -> None:
    text = b"some avg10=0.00 total=7\nfull avg10=0.00 total=5\n"
    assert parse_pressure_ns(text) == 7 * NS_PER_US
    assert parse_pressure_ns(text, b"full ") == 5 * NS_PER_US


@pytest.mark.parametrize("text", [b"", b"some total=x\n", b"full total=9\n"])
def test_an_unknown_format_has_no_pressure(text: bytes) -> None:
    assert parse_pressure_ns(text) is None


@pytest.mark.parametrize("text", [b"", b"throttled_time x\n", b"usage_usec 5\n"])
def test_an_unknown_format_has_no_throttled_time(text: bytes) -> None:
    assert parse_throttled_ns(text) is None
