"""When a record is wrong about a program that knows how its time was spent."""

import pytest
from msgspec.structs import replace

from profiler.record.activity_model import TimeBreakdown
from tests.looked_run import LookedRun
from tests.timed_runs import Observation
from tests.true_parts import PARTS, Part


def observed(
    truth: dict[str, float], said: TimeBreakdown, waited_seconds: float = 0.0
) -> Observation:
    parts = {part: Part(truth.get(part, 0.0), truth.get(part, 0.0)) for part in PARTS}
    record = replace(LookedRun().record(10.0), time_breakdown=said)
    return Observation(truth=parts, record=record, waited_seconds=waited_seconds)


def test_each_part_is_within_its_points_and_beside_others_within_twice_these() -> None:
    seen = observed(
        {"onCpu": 25, "sleep": 75},
        TimeBreakdown(on_cpu_percent=29, sleep_percent=71, covered_percent=100),
    )
    assert seen.wrong(4) == {}
    assert seen.wrong(3).keys() == {"onCpu", "sleep"}
    assert seen.wrong(3, is_alone=False) == {}
    assert seen.wrong(1.9, is_alone=False).keys() == {"onCpu", "sleep"}


def test_a_wait_of_another_kind_is_wrong_even_if_looks_are_missing() -> None:
    seen = observed(
        {"sleep": 75}, TimeBreakdown(sleep_percent=55, network_percent=20, covered_percent=90)
    )
    assert seen.wrong(6).keys() == {"network", "sleep"}


def test_what_no_look_explains_is_other_and_missing_once() -> None:
    truth = {"onCpu": 40.0, "network": 30.0, "sleep": 30.0}
    once = observed(
        truth,
        TimeBreakdown(
            on_cpu_percent=40,
            network_percent=25,
            sleep_percent=25,
            other_percent=10,
            covered_percent=90,
        ),
    )
    assert once.wrong(3) == {}
    twice = observed(
        truth,
        TimeBreakdown(
            on_cpu_percent=40,
            network_percent=20,
            sleep_percent=20,
            other_percent=20,
            covered_percent=90,
        ),
    )
    # All of it may be the network's or the sleep's.
    assert len(twice.wrong(3)) == len({"other", "network"})


@pytest.mark.parametrize(("waited_seconds", "is_wrong"), [(0.0, True), (2.0, False)])
def test_beside_others_looks_may_be_missing_while_the_profiler_waited_for_a_cpu(
    waited_seconds: float,
    is_wrong: bool,  # noqa: FBT001
) -> None:
    seen = observed(
        {"other": 50, "sleep": 50},
        TimeBreakdown(sleep_percent=50, covered_percent=50),
        waited_seconds,
    )
    assert ("covered" in seen.wrong(3, is_alone=False)) is is_wrong
    assert "covered" in seen.wrong(3)
