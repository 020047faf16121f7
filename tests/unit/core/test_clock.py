"""The budget of expensive work."""

from profiler.core.clock import CpuBudget


def test_work_begins_when_the_cpu_time_of_what_was_before_has_accrued() -> None:
    now_ns = cpu_ns = 0
    budget = CpuBudget(0.01, 300, lambda: now_ns, lambda: cpu_ns)
    for is_urgent, is_allowed, passed_ns in (
        (False, True, 5_000),  # of the 100 ns at the start, 20 are left
        (False, False, 2_000),  # 70: less than the last piece cost
        (True, True, 1_000),
        (True, True, 1_000),  # 20, and then 60 too much
        (True, False, 100_000),
    ):
        assert budget.begin(is_urgent=is_urgent) == is_allowed
        if is_allowed:
            cpu_ns += 80
            budget.end()
        now_ns += passed_ns
    assert budget.begin(is_urgent=False)
