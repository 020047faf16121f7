from profiler.readers.linux.cpu_pressure import CpuPressure, CpuWaitLimits


def test_a_throttled_group_waited_at_least_the_mean_of_its_cpus() -> None:
    """A throttled group waited at least the mean and at most the sum of its CPUs."""
    before = CpuPressure(waited_ns=5, throttled_ns=100, cpus=4)
    limits = CpuPressure(waited_ns=7, throttled_ns=500, cpus=4).limits_since(before)
    assert limits == CpuWaitLimits(least_ns=100, most_ns=402)


def test_what_the_machines_threads_waited_is_certain_of_no_group() -> None:
    before = CpuPressure(waited_ns=5)
    assert CpuPressure(waited_ns=905).limits_since(before).least_ns == 0


def test_what_the_groups_threads_waited_is_certain() -> None:
    before = CpuPressure(waited_ns=5, is_of_group=True)
    limits = CpuPressure(waited_ns=905, is_of_group=True).limits_since(before)
    assert limits == CpuWaitLimits(least_ns=900, most_ns=900)


def test_the_counters_of_the_machine_and_of_a_group_are_not_compared() -> None:
    before = CpuPressure(waited_ns=5)
    limits = CpuPressure(waited_ns=905, is_of_group=True).limits_since(before)
    assert limits == CpuWaitLimits()


def test_counters_of_another_group_that_are_smaller_are_no_negative_time() -> None:
    before = CpuPressure(throttled_ns=100)
    assert CpuPressure(throttled_ns=50).limits_since(before) == CpuWaitLimits()


def test_the_first_counters_limit_nothing() -> None:
    assert CpuPressure(waited_ns=5, throttled_ns=9).limits_since(None) == CpuWaitLimits()
