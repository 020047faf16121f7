"""The budgets of ``run``."""

from profiler.local_run.run_budgets import failed_budgets
from profiler.record.record_model import Metrics


def check(
    *runs: Metrics, memory_mb: float | None = None, duration_ms: float | None = None, cpu_seconds: float | None = None
) -> tuple[str, ...]:
    limits = {"memory_mb": memory_mb, "duration_ms": duration_ms, "cpu_seconds": cpu_seconds}
    return failed_budgets(runs, **limits, memory_bounds_mb=[None] * len(runs))


def test_memory_below_a_known_bound_is_within_the_budget() -> None:
    limits = {"memory_mb": 500, "duration_ms": None, "cpu_seconds": None}
    for bound_mb, failed in ((None, 1), (30, 0), (500, 0), (501, 1)):
        assert len(failed_budgets([Metrics()], **limits, memory_bounds_mb=[bound_mb])) == failed


def test_the_sentence_names_all_exceeded_budgets_with_value_and_limit() -> None:
    run = Metrics(max_memory_used_mb=1228.8, duration_ms=720_000, cpu_seconds=75)
    (sentence,) = check(run, memory_mb=900, duration_ms=600_000, cpu_seconds=60)
    assert sentence == (
        "The run exceeded the budget: "
        "memory 1.2 GB (limit 900 MB), duration 12m 00s (limit 10m 00s) and CPU time 1m 15s (limit 1m 00s)."
    )
    assert check(run, memory_mb=2048, duration_ms=600_000, cpu_seconds=75) == (
        "The run exceeded the budget: duration 12m 00s (limit 10m 00s).",
    )
    assert check(run, memory_mb=1228.8) == check(run) == ()


def test_a_value_just_above_its_limit_is_written_exactly() -> None:
    run = Metrics(max_memory_used_mb=900.004, duration_ms=600_000.4, cpu_seconds=60.000001)
    (sentence,) = check(run, memory_mb=900, duration_ms=600_000, cpu_seconds=60)
    assert sentence == (
        "The run exceeded the budget: "
        "memory 900.004 MB (limit 900 MB), duration 600.0004 s (limit 600 s) and CPU time 60.000001 s (limit 60 s)."
    )
    assert check(Metrics(duration_ms=1.914), duration_ms=1) == (
        "The run exceeded the budget: duration 1.914 ms (limit 1 ms).",
    )


def test_a_budget_that_could_not_be_checked_is_not_kept() -> None:
    unknown = "could not be measured, and so the budget could not be checked: omit this budget if the command is "
    run = Metrics(duration_ms=2)
    assert check(run, memory_mb=900, duration_ms=1) == (
        "The run exceeded the budget: duration 2 ms (limit 1 ms).",
        f"The memory of the run {unknown}always this short.",
    )
    assert check(run, Metrics(max_memory_used_mb=5, duration_ms=3), run, memory_mb=900, duration_ms=9) == (
        f"The memory of 2 of 3 runs {unknown}always this short.",
    )
