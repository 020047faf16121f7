"""The line of advice: each text follows from numbers, and the most useful one is chosen."""

from typing import Any

import pytest

from profiler.cli.styled_text import BLOCKS
from profiler.cli.terminal.next_step import next_step
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.record_model import Distribution, Recommendation, TaskSize
from tests.unit.cli.terminal.test_end_page import etl
from tests.values import present

RECOMMEND = "task-profiler recommend etl"
ENOUGH = f"2 vCPU, 2.5 GB would have been enough ({RECOMMEND})."


def advice(metrics: dict[str, Any] | None = None, waits: tuple[WaitTarget, ...] = (), **record: Any) -> str | None:
    step = next_step(etl(metrics, **record).record, waits, BLOCKS, RECOMMEND)
    return None if step is None else step.text


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({}, ENOUGH),
        ({"max_memory_used_mb": 4000}, "only 96 MB of memory was left: with a little more data it would be killed."),
        (
            {"vcpu_saturated_percent": 80.0},
            "it used all of its CPU (2 vCPU) for 80 % of the time: with 4 vCPU it would take 0.6 to 1× as long.",
        ),
        (
            {"vcpu_saturated_percent": 80.0, "max_pids": 2},
            (
                "it used all of its CPU (2 vCPU) for 80 % of the time, but with at most 2 threads: "
                "more CPUs would hardly help."
            ),
        ),
        (
            {"cpu_wait_percent": 30.0, "cpu_wait_seconds": 6.0},
            "its threads waited 6.0 s in total for a CPU: up to 9 threads shared 2 vCPU, perhaps with other programs.",
        ),
        (
            {"cpu_wait_percent": 30.0, "cpu_wait_seconds": 6.0, "max_pids": 2},
            "its threads waited 6.0 s in total for a CPU: other programs used the CPUs, or it works in short bursts.",
        ),
        (
            {"vcpu_used": Distribution(avg=0.98, p95=1.0, max=1.2)},
            "it kept one of 2 CPUs busy: more CPUs help only if it works in parallel.",
        ),
        ({"vcpu_used": Distribution(avg=0.98, p95=1.9, max=2)}, ENOUGH),
    ],
)
def test_the_advice_follows_from_the_numbers(metrics: dict[str, Any], expected: str) -> None:
    assert advice(metrics) == expected


def test_out_of_memory_comes_first_whatever_the_end() -> None:
    text = "give it more memory than 4 GB or process less data at a time."
    assert advice({"vcpu_saturated_percent": 90.0}, likely_out_of_memory=True) == text
    unsized = advice({"memory_size_mb": None}, likely_out_of_memory=True, status="failure", recommendation=None)
    assert unsized == text.replace(" than 4 GB", "")
    sized = advice(likely_out_of_memory=True, status="failure", recommendation=Recommendation(vcpu=1, memory_mb=5120))
    assert sized == f"give it 5 GB of memory ({RECOMMEND}) or process less data at a time."


def test_a_long_wait_is_named_unless_its_kind_is_unknown() -> None:
    waits = (
        WaitTarget(kind="other", target="other", percent=60),
        WaitTarget(kind="network", target="db:5432", percent=55),
    )
    step = present(next_step(etl().record, waits, BLOCKS, RECOMMEND))
    assert step.text == "55 % of the time it waited for db:5432 (network): more CPU or memory would not help there."
    assert step.names_wait
    assert advice(waits=waits[:1]) == ENOUGH


@pytest.mark.parametrize(
    ("lock", "named"), [(53, "53 % of the time it waited for a lock:"), (45, "46 % of the time it waited for db:5432")]
)
def test_a_target_is_not_named_beside_a_longer_wait_without_one(lock: float, named: str) -> None:
    waits = (WaitTarget(kind="network", target="db:5432", percent=46),)
    times = TimeBreakdown(on_cpu_percent=1, network_percent=46, lock_percent=lock, waiting_for=waits)
    assert (advice(waits=waits, time_breakdown=times) or "").startswith(named)


def test_a_failed_run_and_a_task_with_a_size_get_no_size() -> None:
    assert advice(status="failure", exit_code=1) is None
    assert advice(task_size=TaskSize(vcpu=2, memory_mb=4096)) is None
    assert advice(recommendation=None) is None
    assert advice({"duration_ms": 999}) is None
