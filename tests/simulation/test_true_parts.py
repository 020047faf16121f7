"""The true parts of runs whose phases are written by hand."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.true_parts import Part, Phase, true_parts

_SECOND = 10**9


def _phase(kind: str, begin: float, end: float, on_cpu: float = 0, waited: float = 0) -> Phase:
    return Phase(kind, *(round(_SECOND * value) for value in (begin, end, on_cpu, waited)))


def _part(least: float, most: float) -> Any:
    return Part(pytest.approx(least), pytest.approx(most))  # type: ignore[arg-type]


def _exactly(percent: float) -> Any:
    return _part(percent, percent)


def test_one_thread_in_turns() -> None:
    phases = (_phase("any", 0, 1, on_cpu=0.6, waited=0.4), _phase("sleep", 1, 4, on_cpu=0.3))
    truth = true_parts(phases, 4, cpus=2)
    assert truth["onCpu"] == _exactly(100 * 0.9 / 4)
    assert truth["waitingForCpu"] == _exactly(10)
    assert truth["sleep"] == _exactly(100 * 2.7 / 4)
    assert truth["network"] == _exactly(0)


def test_threads_that_wait_share_a_moment_in_which_none_runs() -> None:
    phases = (
        _phase("network", 0, 4),
        _phase("any", 0, 1, on_cpu=1),
        _phase("disk", 1, 3),
        _phase("sleep", 3, 4),
    )
    truth = true_parts(phases, 4, cpus=2)
    assert truth["onCpu"] == _exactly(25)
    assert truth["disk"] == _exactly(25)
    assert truth["network"] == _exactly(37.5)
    assert truth["sleep"] == _exactly(12.5)


@pytest.mark.parametrize("others", [False, True])
def test_threads_that_name_themselves_share_by_the_work_that_their_waits_held_back(
    *, others: bool
) -> None:
    """The first one works for 0.3 s after its wait, the other one for 0.1 s before and after."""
    between = (_phase("others", 3, 3.001),) if others else ()
    first = (_phase("network", 0, 3, on_cpu=0.1), *between, _phase("any", 3.001, 3.2, on_cpu=0.2))
    second = (_phase("any", 0, 0.1, on_cpu=0.1), _phase("sleep", 0.1, 3, on_cpu=0.1))
    phases = [replace(each, thread=1) for each in first]
    truth = true_parts(phases + [replace(each, thread=2) for each in second], 3.2, cpus=2)
    blocked = truth["network"].least + truth["sleep"].least
    assert truth["network"].least / blocked == pytest.approx(0.75, abs=0.01)
    alike = true_parts([*first, *second], 3.2, cpus=2)
    assert alike["network"].least / blocked == pytest.approx(0.5, abs=0.01)


def test_an_interpreter_runs_one_thread_and_a_wait_for_others_ends_with_work() -> None:
    phases = (
        _phase("others", 0, 4, on_cpu=0.1, waited=0.3),
        _phase("network", 0, 2),
        _phase("network", 0, 3),
        _phase("python", 2, 3, on_cpu=0.5),
        _phase("python", 3, 3.6, on_cpu=0.5),
    )
    truth = true_parts(phases, 4, cpus=2)
    assert truth["network"] == _exactly(50)
    assert truth["onCpu"] == _exactly(100 * 1.1 / 4)
    assert truth["waitingForCpu"] == _exactly(100 * 0.9 / 4)


def test_computations_may_lie_upon_each_other_but_not_on_one_cpu() -> None:
    half = _phase("any", 0, 1, on_cpu=0.5, waited=0.5)
    two = true_parts((half, half), 1, cpus=2)
    assert (two["onCpu"], two["waitingForCpu"]) == (Part(50, 100), Part(0, 50))
    one = true_parts((half, half), 1, cpus=1)
    assert (one["onCpu"], one["waitingForCpu"]) == (Part(100, 100), Part(0, 0))


def test_what_no_thread_timed_may_be_anything() -> None:
    truth = true_parts((_phase("sleep", 1, 3), _phase("any", 3, 4, on_cpu=0.5)), 5, cpus=2)
    assert truth["sleep"] == _part(40, 90)
    assert truth["onCpu"] == _part(10, 60)


def test_threads_that_time_no_phases_may_run_in_any() -> None:
    phases = (
        _phase("any", 0, 1, on_cpu=1),
        _phase("sleep", 1, 4),
        _phase("disk", 4, 5),
        _phase("beside", 5, 5, on_cpu=1.5),
    )
    truth = true_parts(phases, 5, cpus=2)
    assert truth["onCpu"] == _part(20, 50)
    assert truth["sleep"] == _part(30, 60)
    assert truth["disk"] == _part(0, 20)
