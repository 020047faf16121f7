"""Moments of a run: what stands out is named where it is, and nothing else is; and the sentence
of its verdict.
"""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.activity_model import (
    NO_BREAKDOWN,
    StackMoment,
    Stacks,
    TimeBreakdown,
    WaitTarget,
)
from profiler.record.mention_limits import SATURATED_SHARE, max_idle_vcpu
from profiler.record.record_model import (
    Container,
    MemoryKills,
    Metrics,
    PeakSource,
    Record,
    Report,
    Series,
)
from profiler.record.stop_causes import EventEnd
from profiler.runs.past_runs.past_run import NO_TASK_EVENT, PastRun, TaskEvent
from profiler.runs.past_runs.run_moments import (
    MIN_STRETCH_STEPS,
    find_moments,
    series_length_ms,
)
from profiler.runs.past_runs.stack_functions import frame_of_text, what_ran_text
from profiler.runs.past_runs.verdict_sentence import verdict_of
from tests.cases import each_case
from tests.fakes import START_NS
from tests.shown_runs import (
    NOW_NS,
    STARTED_NS,
    etl,
    failure,
    local,
    out_of_memory,
    running,
    stopped,
    waiting,
)
from tests.values import present

STEP_MS = 10_000
SIZE = 2.0
LIMIT_MB = 1000.0


def record(
    cpu: Sequence[float | None] = (),
    memory: Sequence[float | None] = (),
    *,
    duration_ms: float | None = None,
    peak_at_ms: float | None = None,
    size: float | None = SIZE,
    limit_mb: float | None = LIMIT_MB,
) -> Record:
    started_at = format_ms(START_NS)
    metrics = Metrics(
        duration_ms=duration_ms,
        vcpu_size=size,
        memory_size_mb=limit_mb,
        max_memory_used_mb=max((value for value in memory if value is not None), default=None),
        max_memory_used_at=None
        if peak_at_ms is None
        else format_ms(START_NS + round(peak_at_ms * 1_000_000)),
    )
    vcpu_used, memory_used_mb = tuple(cpu) or None, tuple(memory) or None
    series = Series(
        started_at=started_at, step_ms=STEP_MS, vcpu_used=vcpu_used, memory_used_mb=memory_used_mb
    )
    return Record(
        task_id="t",
        container=Container(name="batch"),
        started_at=started_at,
        metrics=metrics,
        series=series,
    )


def texts(made: Record) -> list[str]:
    return [moment.text for moment in find_moments(made)]


shares = st.lists(
    st.none() | st.sampled_from([0.0, 0.01, 0.03, 1.0, 1.89, 1.95, 2.0, 2.1]), max_size=60
)
sizes_mb = st.lists(st.none() | st.floats(0, 1200), max_size=60)


@given(
    cpu=shares, memory=sizes_mb, ended=st.floats(0, 1.2), peak_at=st.none() | st.floats(-1e6, 1e6)
)
def test_every_moment_lies_in_the_run_and_in_order(
    cpu: list[float | None], memory: list[float | None], ended: float, peak_at: float | None
) -> None:
    """Also if the run ended within the last step, and if the time of the peak is wrong."""
    duration_ms = ended * max(len(cpu), len(memory)) * STEP_MS
    made = record(cpu, memory, duration_ms=duration_ms or None, peak_at_ms=peak_at)
    moments = find_moments(made)
    assert list(moments) == sorted(moments, key=lambda moment: moment.start_ms)
    for moment in moments:
        assert 0 <= moment.start_ms <= moment.end_ms <= series_length_ms(made, present(made.series))


def test_the_words_of_each_kind() -> None:
    cpu = [0.5] * 3 + [2.0] * 6 + [0.0] * 4 + [1.0] * 6
    memory = [100.0] * 18 + [950.0]
    made = record(cpu, memory, duration_ms=185_000, peak_at_ms=184_500)
    assert texts(made) == [
        "used all of its 2 vCPU from +30s to +1m 30s, 32 % of the run",
        "idle from +1m 30s to +2m 10s",
        "memory peak ≥950 MB at +3m 05s, 95 % of 1,000 MB",
    ]
    assert "at +3m," in texts(record(cpu, memory, duration_ms=185_000, peak_at_ms=186_000))[-1], (
        "after the end"
    )


def test_two_steps_are_no_stretch_and_a_gap_ends_one() -> None:
    """Two steps are no stretch a gap ends one and a flat memory near its limit stands out."""
    assert texts(record([1.0] * 10, size=64)) == [], "one busy vCPU of many is not idle"
    for cpu in ([2.0, 2.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, None, 0.0, 0.0]):
        assert texts(record(cpu)) == []
    busy = "used all of its 2 vCPU from +40s to the end, 43 % of the run"
    assert texts(record([0.0, 0.0, 0.0, None, 2.0, 2.0, 2.0])) == ["idle from +0s to +30s", busy]
    three = [0.0] * 3 + [1.0] + [0.0] * 5 + [1.0] + [0.0] * 4 + [1.0]
    assert texts(record(three)) == ["idle from +40s to +1m 30s", "idle from +1m 40s to +2m 20s"], (
        "the two longest"
    )
    assert texts(record(memory=[900.0] * 9)) == ["memory peak ≥900 MB at +0s, 90 % of 1,000 MB"]
    assert (
        texts(record(memory=[899.0] * 9)) == texts(record(memory=[900.0] * 9, limit_mb=None)) == []
    )


def with_wait(run: Record, cpu_wait: Sequence[float]) -> Record:
    """The run, whose threads waited so many CPUs long in each step."""
    return replace(run, series=replace(present(run.series), cpu_wait=tuple(cpu_wait)))


def test_a_run_that_waits_for_a_cpu_is_not_idle() -> None:
    run = record([0.0] * 6)
    assert texts(with_wait(run, [0.9] * 6)) == []
    assert texts(with_wait(run, [0.05] * 6)) == ["idle from +0s to the end"]
    assert texts(with_wait(run, [0.9] * 3 + [0.0] * 3)) == ["idle from +30s to the end"]


def test_without_waits_over_time_the_wait_of_the_whole_run_decides() -> None:
    run = record([0.0] * 6, duration_ms=60_000)
    waited = replace(run.metrics, cpu_wait_seconds=30, cpu_wait_percent=95)
    assert texts(replace(run, metrics=waited)) == []


def test_a_stretch_up_to_the_last_reading_is_not_up_to_the_end() -> None:
    """The series of checkpoints may end before the run, and a run in progress has not ended."""
    last = "to the last reading"
    assert texts(record([1.0] * 3 + [0.0] * 6, duration_ms=180_000)) == [f"idle from +30s {last}"]
    assert texts(replace(record([0.0] * 6, duration_ms=60_000), status="running")) == [
        f"idle from +0s {last}"
    ]
    busy = f"used all of its 2 vCPU from +0s {last}, 50 % of the run"
    assert texts(record([2.0] * 6, duration_ms=120_000)) == [busy]


@pytest.mark.parametrize(("peak_mb", "source", "expected"), [
    (950, "kernel", ("memory peak 950 MB between samples (kernel), 95 % of 1,000 MB; highest sample 800 MB at "
        "+20s")),
    (805, "kernel", "memory peak 805 MB at +20s, 81 % of 1,000 MB"),
    (950, "sampled", ("memory peak ≥950 MB at an unknown time, 95 % of 1,000 MB; highest sample 800 MB at "
        "+20s")),
    (805, "sampled", "memory peak ≥805 MB at +20s, 81 % of 1,000 MB"),
])  # fmt: skip
def test_a_peak_that_no_sample_saw_has_no_time(
    peak_mb: int, source: PeakSource, expected: str
) -> None:
    made = record(memory=[100.0, 100.0, 800.0, 100.0])
    metrics = replace(made.metrics, max_memory_used_mb=peak_mb, memory_peak_source=source)
    assert texts(replace(made, metrics=metrics)) == [expected]


@given(cpu=shares)
def test_a_stretch_is_what_it_is_called(cpu: list[float | None]) -> None:
    """And as long as it can be, without a gap in it."""
    for moment in find_moments(record(cpu)):
        low, high = (
            (SATURATED_SHARE * SIZE, math.inf)
            if moment.kind == "saturated"
            else (0, max_idle_vcpu(SIZE))
        )
        first, after = round(moment.start_ms / STEP_MS), round(moment.end_ms / STEP_MS)
        assert after - first >= MIN_STRETCH_STEPS
        assert all(value is not None and low <= value <= high for value in cpu[first:after])
        assert all(value is None or not low <= value <= high for value in cpu[after : after + 1])


LOAD = ("<module> (job.py:14)", "load_orders (etl/load.py:40)", "recv (socket.py:706)")
QUERY = ("<module> (job.py:14)", "load_orders (etl/load.py:40)")


def at(seconds: float) -> str:
    return format_ms(STARTED_NS + round(seconds * NS_PER_SECOND))


def moment(
    kind: str, start: float, end: float, stack: tuple[str, ...] = LOAD, **values: Any
) -> StackMoment:
    return StackMoment(kind=kind, from_at=at(start), to_at=at(end), stack=stack, **values)


def moment_texts(*moments: StackMoment, **record: Any) -> list[str]:
    """The moments of a run of 19m 42s, idle from +9m 30s to +12m 40s."""
    made = waiting(stacks=Stacks(source="", moments=moments), **record).record
    return [found.text for found in find_moments(made)]


def functions_of(stack: Sequence[str]) -> str:
    return what_ran_text([frame_of_text(text) for text in stack])


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


def test_an_idle_moment_has_its_stack_though_the_run_waited_for_a_cpu_before_and_after() -> None:
    """In the steps at its ends; a moment within a step has that step's wait."""
    run = record([2.0, 0.0, 0.0, 0.0, 2.0], duration_ms=50_000)
    stack = Stacks(source="", moments=(moment("idle", 7, 42),))
    run = replace(run, stacks=stack, started_at=at(0))
    assert texts(with_wait(run, [0.9, 0.0, 0.0, 0.0, 0.9])) == [
        "idle from +10s to +40s: load_orders → recv"
    ]
    short = Stacks(source="", moments=(moment("idle", 2, 8),))
    assert texts(with_wait(replace(run, stacks=short), [0.9, 0.0, 0.0, 0.0, 0.9])) == [
        "idle from +10s to +40s"
    ]


def test_a_record_of_schema_1_2_has_own_code_by_short_names() -> None:
    """A record of schema 1.2 has own code as far as short names show it."""
    own = ("job.py", "etl/load.py", "/app/etl/load.py", "<string>", "library/python/load.py")
    for file in (*own, "socket.py", "concurrent/futures/thread.py", "<frozen runpy>"):
        assert (
            frame_of_text(f"f ({file}:7)").is_own
            is frame_of_text(f"f ({file})").is_own
            is (file in own)
        )


@each_case(
    ("stack", "text"),
    [
        (LOAD, "load_orders → recv"),
        (QUERY, "load_orders"),
        (("<module> (etl/job.py:14)",), "job.py"),
        (("<module> (job.py:1)", "a (a.py:1)", "b (b.py:2)", "c (c.py:3)"), "b → c"),
        (("a (a.py:1)", "b (b.py:2)", "get (queue.py:3)", "wait (threading.py:4)"), "a → b → wait"),
        (
            ("a (a.py:1)", "run (asyncio/runners.py:1)", "b (b.py:2)", "recv (socket.py:3)"),
            "a → b → recv",
        ),
        (
            ("main (a.py:1)", "main.<locals>.<listcomp> (a.py:1)", "main.<locals>.grow (a.py:2)"),
            "main → grow",
        ),
        (
            ("main.<locals>.<lambda> (a.py:1)", "Lock.acquire (threading.py:2)"),
            "<lambda> → Lock.acquire",
        ),
        (("fib (a.py:1)", "fib (a.py:1)", "fib (a.py:1)"), "fib"),
        (("wait (threading.py:4)",), "wait"),
        (("x" * 99,), "x" * 39 + "…"),
        ((), ""),
    ],
)
def test_the_innermost_own_functions_name_a_stack(stack: tuple[str, ...], text: str) -> None:
    assert functions_of(stack) == text


def test_a_stretch_of_the_series_has_the_stack_that_was_sampled_in_it() -> None:
    """A second stack with the same functions adds nothing; one with others is a moment of its
    own.
    """
    both = "idle from +9m 30s to +12m 40s: load_orders"
    for second, expected in (
        (QUERY, [both]),
        (("main (job.py:3)",), [both, "idle from +11m 40s to +12m: main"]),
    ):
        shown = moment_texts(moment("idle", 600, 660, QUERY), moment("idle", 700, 720, second))
        assert [text for text in shown if "idle" in text] == expected


def test_a_share_of_few_samples_says_so() -> None:
    for samples, share in (
        (3, "1 of only 3 samples"),
        (30, "33 % of the samples"),
        (None, "33 % of the samples"),
    ):
        shown = moment_texts(moment("saturated", 240, 300, QUERY, percent=33.3, samples=samples))
        (busy,) = [text for text in shown if "used" in text]
        assert busy.endswith(f"32 % of the run: load_orders ({share})")


def test_moments_outside_the_stretches_are_their_own_in_the_order_of_time() -> None:
    shown = moment_texts(
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


@each_case(
    ("stack", "seconds", "times", "is_named"),
    [
        (LOAD, 60, waits(), True),
        (LOAD, 60, waits(percent=44), False),  # 71 s of waits for other peers
        (LOAD, 120, waits(percent=44), True),
        (LOAD, 60, waits(other_percent=10, covered_percent=91), False),
        (LOAD, 60, waits("3 connections"), False),
        (LOAD, 60, waits("other"), False),
        (LOAD, 60, NO_BREAKDOWN, False),
        (LOAD, 60, TimeBreakdown(on_cpu_percent=100), False),
        (QUERY, 60, waits(), False),  # 140 s of other waits
        (QUERY, 180, waits(), True),
    ],
)
def test_an_idle_stretch_names_the_peer_only_if_the_record_shows_it(
    stack: tuple[str, ...], seconds: int, times: TimeBreakdown, *, is_named: bool
) -> None:
    shown = moment_texts(moment("idle", 0, seconds, stack), time_breakdown=times, series=None)
    assert shown == [
        f"idle from +0s to +{seconds // 60}m: {functions_of(stack)}"
        + (", waiting for 10.0.3.9:5432" if is_named else "")
    ]


def words(report: Report, event: TaskEvent = NO_TASK_EVENT, now_ns: int = NOW_NS) -> str:
    verdict = verdict_of(PastRun(report=report, event=event, line=b""), now_ns)
    return f"{verdict.tone}: {verdict.text} {verdict.evidence or ''}".strip()


def changed(report: Report, **record: object) -> Report:
    return replace(report, record=replace(report.record, **record))


KILLED = "bad: ETL ran out of memory after 14m 06s."
AT_PEAK = " at ≥4 GB of its 4 GB (99 %)"
STOPPED = "warning: ETL was stopped after 19m 42s."
HALF_DONE = "warning: nightly-etl succeeded in 19m 42s, but ran out of memory."
INCOMPLETE = "for lack of memory: the result may be incomplete."
UNKNOWN = changed(etl(), status="unknown", exit_code=None, finished_at=None, metrics=Metrics())
UNSEEN = "The monitor did not see the end of the batch."
UNSEEN_LOCALLY = "The profiler did not see the end of the command."
OOM_ERROR = "OutOfMemoryError: Container killed due to memory usage"
REPORTED = TaskEvent(end=EventEnd(cause="oom", out_of_memory=True, reason=OOM_ERROR))
NOT_PULLED = "CannotPullContainerError: not found"
NO_IMAGE = TaskEvent(end=EventEnd(cause="image", reason=NOT_PULLED))
PULL = f"The container's image could not be pulled: {NOT_PULLED}"
BY_COUNTER = changed(out_of_memory(), out_of_memory_evidence="kernel-counter")
BY_SIGNAL = changed(failure(), exit_code=139, likely_out_of_memory=None)
BELOW_LIMIT = "No sample reached the memory limit: at most 81 % of 4 GB was seen."
IN_PART = "The run left no report: the numbers come from its last checkpoint."
ANN = "Stopped by ann"
BY_EXIT = TaskEvent(end=EventEnd(cause="failure", exit_code=143))
BY_USER = TaskEvent(end=EventEnd(cause="user", reason=f"{ANN}."))
# The run, what is said of it, and ECS's event if there is one.
ENDS: tuple[tuple[Any, ...], ...] = (
    (etl(), "good: ETL succeeded in 19m 42s."),
    (
        out_of_memory(),
        f"{KILLED} It was killed{AT_PEAK}, exit code 137 (SIGKILL). No stop was requested.",
    ),
    (BY_COUNTER, f"{KILLED} The kernel counted the kill{AT_PEAK}."),
    (out_of_memory(), f"{KILLED} ECS reported: {OOM_ERROR}.", REPORTED),
    *(
        (
            changed(local(), memory_kills=MemoryKills(count=count)),
            f"{HALF_DONE} The kernel killed {it} {INCOMPLETE}",
        )
        for count, it in ((1, "a process"), (2, "2 processes"))
    ),
    (failure(), f"bad: ETL failed with exit code 3 after 19m 42s. {BELOW_LIMIT}"),
    (BY_SIGNAL, "bad: ETL failed with exit code 139 (SIGSEGV) after 19m 42s."),
    (
        changed(UNKNOWN, status="failure", started_at=None),
        f"bad: ETL did not start. {PULL}.",
        NO_IMAGE,
    ),
    (
        stopped(),
        f"{STOPPED} The task was stopped before the batch ended, with exit code 143 (SIGTERM).",
        BY_EXIT,
    ),
    (
        changed(stopped(), exit_code=None),
        f"{STOPPED} A person or a program stopped the task: {ANN}.",
        BY_USER,
    ),
    (UNKNOWN, f"warning: ETL ended with an unknown result. {UNSEEN}"),
    (
        changed(UNKNOWN, launch_type="LOCAL"),
        f"warning: The result of ETL is unknown. {UNSEEN_LOCALLY}",
    ),
    (
        changed(running(), status="unknown"),
        f"warning: ETL ended after 12m 00s with an unknown result. {IN_PART}",
    ),
    (
        changed(etl(), status="vaporized"),
        f"warning: ETL ended after 19m 42s with an unknown result. {UNSEEN}",
    ),
)


@each_case("end", ENDS)
def test_each_kind_of_end(end: tuple[Any, ...]) -> None:
    report, said, *event = end
    assert words(report, *event) == said.replace("ETL", "nightly-etl:26")


def test_a_run_that_goes_on_and_one_that_was_lost() -> None:
    so_far = "neutral: nightly-etl:26 is running, for 12m 00s so far."
    last = "This is its last checkpoint: the numbers are not final."
    assert words(running(), now_ns=STARTED_NS + 730 * NS_PER_SECOND) == f"{so_far} {last}"
    assert words(running()).startswith(
        "warning: nightly-etl:26 was running when it was last seen, 5h 48m ago."
    )
