"""What the call stacks say about the moments of a run."""

from collections.abc import Sequence
from typing import Any

import pytest

from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.activity_model import StackMoment, Stacks, TimeBreakdown, WaitTarget
from profiler.runs.past_runs import moments
from profiler.runs.past_runs.moments import find_moments, frame_of
from tests.shown_runs import STARTED_NS, waiting

LOAD = ("<module> (job.py:14)", "load_orders (etl/load.py:40)", "recv (socket.py:706)")
QUERY = ("<module> (job.py:14)", "load_orders (etl/load.py:40)")


def at(seconds: float) -> str:
    return format_ms(STARTED_NS + round(seconds * NS_PER_SECOND))


def moment(kind: str, start: float, end: float, stack: tuple[str, ...] = LOAD, **values: Any) -> StackMoment:
    return StackMoment(kind=kind, from_at=at(start), to_at=at(end), stack=stack, **values)


def texts(*moments: StackMoment, **record: Any) -> list[str]:
    """The moments of a run of 19m 42s, idle from +9m 30s to +12m 40s."""
    made = waiting(stacks=Stacks(source="", moments=moments), **record).record
    return [found.text for found in find_moments(made)]


def what_ran(stack: Sequence[str]) -> str:
    return moments.what_ran([frame_of(text) for text in stack])


def waits(target: str = "10.0.3.9:5432", percent: float = 48.3, **parts: Any) -> TimeBreakdown:
    return TimeBreakdown(
        on_cpu_percent=40,
        network_percent=50,
        sleep_percent=9,
        other_percent=parts.pop("other_percent", 1),
        waiting_for=(
            WaitTarget(kind="network", target=target, percent=percent),
            WaitTarget(kind="disk", target="/data:1", percent=90),
        ),
        **parts,
    )


def test_a_record_of_schema_1_2_has_own_code_as_far_as_short_names_show_it() -> None:
    own = ("job.py", "etl/load.py", "/app/etl/load.py", "<string>", "library/python/load.py")
    for file in (*own, "socket.py", "concurrent/futures/thread.py", "<frozen runpy>"):
        assert frame_of(f"f ({file}:7)").is_own is frame_of(f"f ({file})").is_own is (file in own)


@pytest.mark.parametrize(
    ("stack", "text"),
    [
        (LOAD, "load_orders → recv"),
        (QUERY, "load_orders"),
        (("<module> (etl/job.py:14)",), "job.py"),
        (("<module> (job.py:1)", "a (a.py:1)", "b (b.py:2)", "c (c.py:3)"), "b → c"),
        (("a (a.py:1)", "b (b.py:2)", "get (queue.py:3)", "wait (threading.py:4)"), "a → b → wait"),
        (("a (a.py:1)", "run (asyncio/runners.py:1)", "b (b.py:2)", "recv (socket.py:3)"), "a → b → recv"),
        (("main (a.py:1)", "main.<locals>.<listcomp> (a.py:1)", "main.<locals>.grow (a.py:2)"), "main → grow"),
        (("main.<locals>.<lambda> (a.py:1)", "Lock.acquire (threading.py:2)"), "<lambda> → Lock.acquire"),
        (("fib (a.py:1)", "fib (a.py:1)", "fib (a.py:1)"), "fib"),
        (("wait (threading.py:4)",), "wait"),
        (("x" * 99,), "x" * 39 + "…"),
        ((), ""),
    ],
)
def test_the_innermost_own_functions_name_a_stack(stack: tuple[str, ...], text: str) -> None:
    assert what_ran(stack) == text


def test_a_stretch_of_the_series_has_the_stack_that_was_sampled_in_it() -> None:
    """A second stack with the same functions adds nothing; one with others is a moment of its own."""
    other = ("main (job.py:3)",)
    idle = [text for text in texts(moment("idle", 600, 660, QUERY), moment("idle", 700, 720, QUERY)) if "idle" in text]
    assert idle == ["idle from +9m 30s to +12m 40s: load_orders"]
    idle = [text for text in texts(moment("idle", 600, 660, QUERY), moment("idle", 700, 720, other)) if "idle" in text]
    assert idle == ["idle from +9m 30s to +12m 40s: load_orders", "idle from +11m 40s to +12m: main"]


@pytest.mark.parametrize(
    ("samples", "share"), [(3, "1 of only 3 samples"), (30, "33 % of the samples"), (None, "33 % of the samples")]
)
def test_a_share_of_few_samples_says_so(samples: int | None, share: str) -> None:
    shown = texts(moment("saturated", 240, 300, QUERY, percent=33.3, samples=samples))
    (busy,) = [text for text in shown if "used" in text]
    assert busy.endswith(f"32 % of the run: load_orders ({share})")


def test_moments_outside_the_stretches_are_their_own_in_the_order_of_time() -> None:
    shown = texts(
        moment("memory", 900, 960, percent=71.7),
        moment("idle", 60, 120),
        moment("saturated", 1000, 1060),
        moment("a newer kind", 1, 2),
    )
    assert shown == [
        "idle from +1m to +2m: load_orders → recv",
        "used all of its 2 vCPU from +3m 10s to +9m 30s, 32 % of the run",
        "idle from +9m 30s to +12m 40s",
        "memory rose from +15m to +16m while load_orders → recv ran (72 % of the samples)",
        "used all of its 2 vCPU from +16m 40s to +17m 40s: load_orders → recv",
        "memory peak ≥3.2 GB at +19m 06s, 81 % of 4 GB",
    ]


@pytest.mark.parametrize(
    ("stack", "seconds", "times", "is_named"),
    [
        (LOAD, 60, waits(), True),
        (LOAD, 60, waits(percent=44), False),  # 71 s of waits for other peers
        (LOAD, 120, waits(percent=44), True),
        (LOAD, 60, waits(other_percent=10, covered_percent=91), False),
        (LOAD, 60, waits("3 connections"), False),
        (LOAD, 60, waits("other"), False),
        (LOAD, 60, None, False),
        (LOAD, 60, TimeBreakdown(on_cpu_percent=100), False),
        (QUERY, 60, waits(), False),  # 140 s of other waits
        (QUERY, 180, waits(), True),
    ],
)
def test_an_idle_stretch_names_the_peer_only_if_the_record_shows_it(
    stack: tuple[str, ...], seconds: int, times: TimeBreakdown | None, *, is_named: bool
) -> None:
    shown = texts(moment("idle", 0, seconds, stack), time_breakdown=times, series=None)
    assert shown == [
        f"idle from +0s to +{seconds // 60}m: {what_ran(stack)}" + (", waiting for 10.0.3.9:5432" if is_named else "")
    ]
