"""A recommended size holds what the containers of a task reserve together, as a resize finds it in
the definition.
"""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aws_account.resize_plan import _seen_memory_of_containers
from profiler.core.ecs_terms import MONITOR_NAME
from profiler.record.record_model import Metrics, Report, TaskSize
from profiler.sizing.choose_size import SizePolicy, memory_margin_of
from tests.family_windows import window_of
from tests.runs import evidence_of, report
from tests.sized_runs import advice, reasons, size

_MONITOR = Metrics(max_memory_used_mb=15, memory_size_mb=128)
_LIMITS = {"memory": 128, "memoryReservation": 32}


def runs(*peaks_mb: float, others: dict[str, Metrics] | None = None, **more: Any) -> list[Report]:
    beside = {MONITOR_NAME: _MONITOR} if others is None else others
    return [report(day, peak_mb=mb, others=beside, **more) for day, mb in enumerate(peaks_mb)]


@pytest.mark.parametrize(("peak_mb", "memory_mb"), [(435, 512), (440, 1024)])
def test_what_the_monitor_reserves_keeps_a_size_from_getting_smaller(
    peak_mb: float, memory_mb: int
) -> None:
    """With its 15 MB and a margin of 10 %, 440 MB would fit into 512 MB; with its 32 MB, not."""
    assert size(runs(*[peak_mb] * 25)) == (0.25, memory_mb)
    assert size(runs(*[peak_mb] * 25, others={})) == (0.25, 512)


def test_it_makes_no_size_larger() -> None:
    at_limit = advice(runs(*[440] * 25, size=(0.25, 512)))
    assert at_limit.choice.is_current_size_right
    assert at_limit.choice.size.memory_mb == 512


def test_the_reason_names_what_may_be_reserved() -> None:
    found = reasons(*runs(*[440] * 25))
    assert "Its containers may reserve up to 516 MB together, the monitor's included: a" in found
    assert "reserve" not in reasons(*runs(*[400] * 25))


def test_a_limit_of_its_own_bounds_what_a_container_reserves() -> None:
    limited = runs(*[440] * 25, metrics={"memory_size_mb": 450})
    assert size(limited) == (0.25, 512)


def test_the_other_containers_of_a_job_keep_what_they_have() -> None:
    job: dict[str, Any] = {"cluster": "AWSBatch-x", "family": "job"}
    assert size(runs(*[360] * 25)) == (0.25, 512)
    assert size(runs(*[360] * 25, **job)) == (0.25, 1024)


_used = st.floats(min_value=1, max_value=900).map(lambda mb: round(mb, 1))


@given(
    st.tuples(_used, _used),
    st.integers(1, 25),
    st.none() | st.integers(100, 2047),
    st.none() | st.integers(100, 2047),
    st.booleans(),
)
def test_no_definition_asks_for_more_than_the_advice(
    need_mb: tuple[float, float],
    days: int,
    batch_limit_mb: int | None,
    proxy_limit_mb: int | None,
    is_reserved: bool,  # noqa: FBT001  hypothesis's argument
) -> None:
    """Whatever the containers reserve in it, as limits or as reservations, if all need the most in
    one run. What different runs needed, only the definition adds up.
    """
    reports = []
    for day in range(days):
        batch_mb, proxy_mb = (round(mb * (day + 1) / days, 1) for mb in need_mb)
        proxy = Metrics(max_memory_used_mb=proxy_mb, memory_size_mb=proxy_limit_mb or 2048)
        reports.append(
            report(
                day,
                peak_mb=batch_mb,
                others={MONITOR_NAME: _MONITOR, "proxy": proxy},
                metrics={"memory_size_mb": batch_limit_mb or 2048},
            )
        )
    evidence = evidence_of(reports)
    margin = memory_margin_of(evidence, SizePolicy())
    field = "memoryReservation" if is_reserved else "memory"
    containers = [
        {"name": "batch", "image": "etl", field: batch_limit_mb or 2000},
        {"name": "proxy", "image": "proxy", field: proxy_limit_mb or 2000},
        {"name": MONITOR_NAME, "image": "task-profiler:1", **_LIMITS},
    ]
    seen = _seen_memory_of_containers(window_of(reports), TaskSize(vcpu=1, memory_mb=2048), margin)
    asked_mb = seen.task_mb({"containerDefinitions": containers})
    # Each is rounded up, and Docker starts none with less than 6 MB.
    rounding_mb = 6 * len(containers)
    assert asked_mb <= max(evidence.needs.apart.least_task_memory_mb(margin), 512) + rounding_mb


def test_the_monitors_part_is_what_the_command_reserves_for_it() -> None:
    found = reasons(*runs(*[440] * 25))
    (least,) = re.findall(r"up to (\d+) MB together", found)
    assert int(least) == 440 * 1.1 + _LIMITS["memoryReservation"]
