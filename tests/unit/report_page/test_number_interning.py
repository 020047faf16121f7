"""Equal numbers of many runs' curves are one object."""

from msgspec.structs import asdict

from profiler.record.record_model import Series
from profiler.report_page.number_interning import SharedNumbers
from profiler.runs.step_series import StepSeries


def curves() -> Series:
    """Curves whose numbers are objects of their own."""
    return Series(
        started_at="2026-11-01T00:00:00.000Z",
        step_ms=1000,
        vcpu_used=(float("0.5"), None, float("2")),
        memory_used_mb=(float("1234.5"), float("2"), None),
    )


def steps() -> StepSeries:
    return StepSeries(ends_ms=[int("1000"), int("2000")], vcpu_used=[float("2"), float("1000")])


def test_equal_numbers_of_two_runs_are_one_object() -> None:
    numbers = SharedNumbers()
    first, second = (numbers.share_in_record(curves()) for _ in range(2))
    assert first == second == curves()
    assert first.vcpu_used is not None
    assert second.memory_used_mb is not None
    assert first.vcpu_used[2] is second.memory_used_mb[1]
    of_steps = [numbers.share_in_steps(steps()) for _ in range(2)]
    assert of_steps[0].ends_ms[0] is of_steps[1].ends_ms[0]
    assert of_steps[0].vcpu_used[0] is first.vcpu_used[2]


def test_a_whole_number_stays_one() -> None:
    """As JSON, 1000 and 1000.0 differ."""
    shared = SharedNumbers().share_in_steps(steps())
    values = {name: list(column) for name, column in asdict(shared).items()}
    assert values == {name: list(column) for name, column in asdict(steps()).items()}
    assert isinstance(shared.ends_ms[0], int)
    assert isinstance(shared.vcpu_used[1], float)


def test_numbers_beyond_the_limit_are_not_kept() -> None:
    numbers = SharedNumbers()
    numbers.share_in_steps(StepSeries(vcpu_used=[number / 8 for number in range(70_000)]))
    first, second = (
        numbers.share_in_steps(StepSeries(vcpu_used=[float("8750.5"), float("0.125")])).vcpu_used
        for _ in range(2)
    )
    assert first == second == (8750.5, 0.125)
    assert first[0] is not second[0]
    assert first[1] is second[1]
