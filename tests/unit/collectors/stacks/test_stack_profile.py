from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.collectors.stacks.py_spy import StackFrame, ThreadStack
from profiler.collectors.stacks.stack_profile import (
    MAX_MOMENTS,
    MAX_STEPS,
    TOP_FUNCTIONS,
    FoldedStacks,
    FunctionCounts,
    StackMoments,
    StackProfile,
)
from profiler.core.timestamps import format_ms
from profiler.readers.container_sample import ResourceLimits
from profiler.record.activity_model import NO_STACKS, StackMoment
from profiler.record.stacks_line import StacksLine
from tests.fakes import START_NS, sample, seconds
from tests.values import present


def running(*frames: tuple[str, int]) -> ThreadStack:
    return ThreadStack(
        frames=tuple(StackFrame(name, "job.py", line) for name, line in frames), is_active=True
    )


def waiting(*names: str) -> ThreadStack:
    return ThreadStack(
        frames=tuple(StackFrame(name, "job.py", 1) for name in names), is_active=False
    )


def test_self_and_total_are_shares_of_the_running_samples() -> None:
    counts = FunctionCounts()
    for _ in range(3):
        counts.add_stack(running(("<module>", 10), ("parse", 5)))
    counts.add_stack(running(("<module>", 11), ("write", 7)))
    for _ in range(10):
        counts.add_stack(waiting("<module>", "recv"))
    found = [
        (each.function, each.line, each.self_percent, each.total_percent)
        for each in counts.top_functions()
    ]
    assert found == [
        ("parse", 5, 75.0, 75.0),
        ("write", 7, 25.0, 25.0),
        ("<module>", 10, 0.0, 100.0),
    ]
    # A recursive function counts once.
    counts = FunctionCounts()
    counts.add_stack(running(("f", 1), ("f", 2), ("f", 2), ("f", 3)))
    (top,) = counts.top_functions()
    assert top.self_percent == 100.0
    assert top.total_percent == 100.0
    assert top.line == 3


def test_at_most_ten_functions_are_shown_and_the_memory_is_bounded() -> None:
    counts = FunctionCounts()
    for index in range(12_000):
        counts.add_stack(running(("main", 1), (f"f{index}", index)))
    assert len(counts.top_functions()) == TOP_FUNCTIONS
    assert len(counts._functions) <= 5001
    assert counts.top_functions()[0].self_percent == 0.0


def test_a_process_without_stacks_is_no_sample() -> None:
    """A process without stacks is no sample and without a running thread there are no functions."""
    profile = StackProfile()
    profile.add_dumps([(waiting("f"),)], START_NS)
    of_waiting = present(profile.stacks_of_run("py-spy 1"))
    assert of_waiting.source == "py-spy 1"
    assert of_waiting.samples == 1
    assert of_waiting.top == ()
    profile = StackProfile()
    profile.add_dumps([()], START_NS)
    assert profile.stacks_of_run("py-spy") is NO_STACKS
    profile.add_dumps(
        [(), (running(("f", 1)),), (waiting("g"), running(("f", 1)))], START_NS + seconds(1)
    )
    stacks = profile.stacks_of_run("py-spy")
    assert present(stacks).samples == 2
    (step,) = profile.folded.steps_of_run(START_NS)
    assert step.stacks == {"f (job.py)": 2, "g (job.py) [waiting]": 1}


_names = st.text(min_size=1, max_size=30)
_samples = st.lists(
    st.tuples(st.integers(0, 5000), st.dictionaries(_names, st.integers(1, 50), max_size=6)),
    min_size=1,
    max_size=200,
)


def line_of(folded: FoldedStacks, started_ns: int = START_NS) -> bytes:
    steps = folded.steps_of_run(started_ns)
    return msgspec.json.encode(
        StacksLine(type="task.stacks", task_id="t" * 36, container="c" * 255, steps=steps)
    )


def test_counts_are_kept_by_step_with_their_offsets() -> None:
    folded = FoldedStacks()
    for second in (2, 3, 3.5, 30):
        folded.add_sample(START_NS + seconds(second), {"a": 1, "b": 2})
    found = [
        (step.offset_ms, step.duration_ms, dict(step.stacks))
        for step in folded.steps_of_run(START_NS)
    ]
    assert found == [
        (2000, 1000, {"b": 2, "a": 1}),
        (3000, 10_000, {"b": 4, "a": 2}),
        (30_000, 1000, {"b": 2, "a": 1}),
    ]


@given(_samples)
def test_steps_are_ordered_and_do_not_overlap(samples: list[tuple[int, dict[str, int]]]) -> None:
    folded = FoldedStacks()
    total: Counter[str] = Counter()
    for second, stacks in sorted(samples, key=lambda sample: sample[0]):
        folded.add_sample(START_NS + seconds(second), stacks)
        total.update(stacks)
    steps = folded.steps_of_run(START_NS)
    assert len(steps) <= MAX_STEPS
    for step, following in pairwise(steps):
        assert step.offset_ms + step.duration_ms <= following.offset_ms
    kept: Counter[str] = Counter()
    for step in steps:
        kept.update(step.stacks)
    assert kept == total


def test_the_line_never_exceeds_200_kb_and_common_stacks_survive() -> None:
    folded = FoldedStacks()
    for second in range(0, 4000, 2):
        rare = {
            f"<module> (job.py);function_{second}_{index} ({'x' * 80}.py)": 1 for index in range(8)
        }
        folded.add_sample(
            START_NS + seconds(second), {"<module> (job.py);common (job.py)": 5, **rare}
        )
        assert sum(map(len, folded._steps.values())) < 3000
    assert len(line_of(folded)) <= 200_000
    assert (
        sum(
            step.stacks.get("<module> (job.py);common (job.py)", 0)
            for step in folded.steps_of_run(START_NS)
        )
        == 10_000
    )


_SIZES = ResourceLimits(vcpu=2, memory_bytes=1000)


def stack(
    *names: str, line: int = 1, is_main: bool = True, is_active: bool = False, own: bool = True
) -> ThreadStack:
    frames = tuple(StackFrame(name, "job.py", line, own) for name in names)
    return ThreadStack(frames=frames, is_active=is_active, is_main=is_main)


class Run:
    """Feeds the usage of a run, second by second, and a sample of the stacks whenever one is to
    be taken.
    """

    def __init__(self, step: float = 1) -> None:
        self.moments = StackMoments()
        self.step, self.at, self.cpu = step, 0.0, 0.0
        self.sampled: list[float] = []

    def go_on(
        self,
        until: float,
        *,
        vcpu: float = 0.5,
        memory: Callable[[float], float] = lambda _: 100,
        stacks: tuple[ThreadStack, ...] = (stack("<module>", "f"),),
    ) -> "Run":
        while self.at < until:
            usage = sample(START_NS + seconds(self.at), self.cpu, int(memory(self.at)))
            self.moments.add_usage(usage, _SIZES, seconds(self.at))
            for tenth in range(round(self.step)):
                if self.moments.is_sampling(seconds(self.at + tenth)):
                    self.sampled.append(self.at + tenth)
                    at_ns = START_NS + seconds(self.at + tenth)
                    self.moments.add_stacks(stacks, at_ns)
            self.at += self.step
            self.cpu += vcpu * self.step
        return self

    def found(self) -> tuple[StackMoment, ...]:
        return self.moments.stack_moments()


def time_at(second: float) -> str:
    return format_ms(START_NS + seconds(second))


def test_half_a_minute_of_no_or_full_cpu_use_is_a_moment() -> None:
    """Nothing on a CPU or all vCPUs in use for 30 seconds is a moment from its beginning."""
    (moment,) = (
        Run().go_on(100).go_on(145, vcpu=0, stacks=(stack("<module>", "recv"),)).go_on(200).found()
    )
    assert moment.kind == "idle"
    assert moment.samples == 16
    assert moment.from_at == time_at(100)
    assert moment.to_at == time_at(145)
    assert moment.stack == ("<module> (job.py:1)", "recv (job.py:1)")
    assert moment.percent == 93.8  # the last of them sees that it goes on
    (moment,) = Run().go_on(10, vcpu=0.1).go_on(60, vcpu=1.92).go_on(90).found()
    assert moment.kind == "saturated"
    assert moment.from_at == time_at(10)


def test_an_idle_moment_of_a_few_seconds_has_the_samples_that_were_taken_anyway() -> None:
    def in_seconds(idle: int) -> tuple[StackMoment, ...]:
        moments = StackMoments()
        cpu = 0.0
        for at in range(20):
            is_idle = 5 <= at < 5 + idle
            moments.add_usage(sample(START_NS + seconds(at), cpu, 100), _SIZES, seconds(at))
            assert not moments.is_sampling(seconds(at))
            cpu += 0 if is_idle else 0.5
            each = stack("<module>", "wait" if is_idle else "work", is_active=not is_idle)
            moments.add_stacks((each,), START_NS + seconds(at))
        return moments.stack_moments()

    (moment,) = in_seconds(4)
    assert moment.kind == "idle"
    assert moment.stack[-1] == "wait (job.py:1)"
    assert (moment.from_at, moment.to_at) == (time_at(5), time_at(9))
    assert in_seconds(1) == ()


def test_the_one_sample_of_a_short_idle_moment_may_be_before_the_reading_that_shows_it() -> None:
    """Of a local run the waiting threads are read every few seconds."""
    moments = StackMoments()
    for at, cpu in ((0, 0.0), (1, 1.0), (2, 2.0), (3, 2.0), (4, 2.0), (5, 2.0), (6, 3.0)):
        moments.add_usage(sample(START_NS + seconds(at), cpu, 100), _SIZES, seconds(at))
        if at == 2:
            main = replace(stack("<module>", "wait"), kernel_id=7)
            listener = replace(stack("serve"), kernel_id=8)
            moments.add_stacks((main, listener), START_NS + seconds(2.2))
        moments.on_waits({7: 1e9})
    (moment,) = moments.stack_moments()
    assert (moment.stack[-1], moment.samples) == ("wait (job.py:1)", 1)


def test_whose_waits_held_an_idle_moment_back_is_asked_once_and_after_each_sample() -> None:
    moments = StackMoments()
    asked = []
    for at, cpu in enumerate((0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0, 4.0)):
        moments.add_usage(sample(START_NS + seconds(at), cpu, 100), _SIZES, seconds(at))
        if moments.wants_waits:
            moments.on_waits({7: 1e9} if at > 3 else {8: 1e9})
            asked.append(at)
        if at == 4:
            main = replace(stack("<module>", "wait"), kernel_id=7)
            listener = replace(stack("serve"), kernel_id=8)
            moments.add_stacks((main, listener), START_NS + seconds(4.2))
    assert asked == [3, 5]
    (moment,) = moments.stack_moments()
    assert (moment.stack[-1], moment.samples) == ("wait (job.py:1)", 1)


def moment_of(*stacks: ThreadStack, held_back_ns: Mapping[int, float]) -> str | None:
    """The innermost function of an idle moment in which all samples are these."""
    run = Run().go_on(10)
    run.moments.on_waits(held_back_ns)
    found = run.go_on(60, vcpu=0, stacks=stacks).go_on(70, stacks=stacks).found()
    return found[0].stack[-1].partition(" ")[0] if found else None


def test_an_idle_moment_names_a_thread_whose_wait_held_the_run_back() -> None:
    """Not one that waits for somebody to come, or does little, though its function is the user's
    and that of the main thread is Python's.
    """
    queue = StackFrame("get", "queue.py")
    main = ThreadStack(
        frames=(StackFrame("take_orders", "job.py", is_own=True), queue),
        is_active=False,
        is_main=True,
        kernel_id=7,
    )
    listener = replace(stack("serve", is_main=False), kernel_id=8)
    ticker = replace(stack("tick", is_main=False), kernel_id=9)
    worker = replace(stack("fetch", is_main=False), kernel_id=10)
    every = (main, listener, ticker)
    assert moment_of(*every, held_back_ns={7: 1.5e9, 9: 1e5}) == "get"
    assert moment_of(*every, worker, held_back_ns={7: 1.5e9, 9: 1e5, 10: 1.5e9}) == "fetch"
    # Of a child that is no Python program, its parent is what is known.
    assert moment_of(*every, held_back_ns={7: 1e9, 99: 2e9}) == "get"
    assert moment_of(listener, held_back_ns={}) == "serve"


def test_what_runs_in_a_sample_is_not_what_an_idle_moment_waits_for() -> None:
    """It began before the reading of the usage that shows the moment's end."""
    running = replace(stack("<module>", "burn", is_active=True), kernel_id=7)
    assert moment_of(running, held_back_ns={}) is None
    run = Run().go_on(10).go_on(50, vcpu=0, stacks=(stack("<module>", "wait"),))
    burning = (running, stack("<module>", "tick"))
    (moment,) = run.go_on(60, vcpu=0, stacks=burning).go_on(70, stacks=burning).found()
    assert moment.stack[-1] == "wait (job.py:1)"
    assert moment.percent == 100


def test_a_thread_that_only_py_spy_takes_for_running_has_its_function_in_an_idle_moment() -> None:
    """Of Python before 3.11, py-spy does not know the kernel's id of a thread, nor its state."""
    waiting = stack("<module>", "execute", is_active=True)
    assert moment_of(waiting, held_back_ns={7: 1e9}) == "execute"


def test_memory_that_is_high_and_rises_is_a_moment() -> None:
    """Memory that is high and rises is a moment and a usual run has none."""
    run = Run().go_on(200, memory=lambda at: min(at * 5, 950))
    (moment,) = run.found()
    assert moment.kind == "memory"
    assert moment.from_at == time_at(160)
    assert run.sampled == [float(at) for at in range(160, 200)]
    # If it does not rise, there is no moment; nor in a usual run, nor in a short pause of close
    # samples.
    assert Run().go_on(600).found() == Run(step=0.1).go_on(40).go_on(65, vcpu=0).found() == ()
    assert Run().go_on(200, memory=lambda _: 950).found() == ()
    # A leap is seen at once.
    assert Run().go_on(50).go_on(53, memory=lambda _: 900).sampled == [50.0, 51.0, 52.0]


def test_a_long_moment_is_sampled_for_60_seconds_and_again_after_10_minutes() -> None:
    run = Run().go_on(1600, vcpu=0)
    assert run.sampled == [
        float(at) for first in (30, 690, 1350) for at in range(first, first + 60)
    ]
    (moment,) = run.found()
    assert moment.samples == 180


def test_idle_workers_do_not_hide_the_main_thread_and_a_deep_stack_is_cut() -> None:
    workers = tuple(stack("_bootstrap", "_worker", is_main=False, own=False) for _ in range(16))
    deep = stack("<module>", *(f"f{index}" for index in range(500)))
    (moment,) = Run().go_on(60, vcpu=0, stacks=(*workers, deep)).found()
    assert len(moment.stack) == 39
    assert moment.stack[8] == "…"
    assert moment.stack[-1] == "f499 (job.py:1)"
    assert moment.percent == 100


def test_the_most_frequent_lines_are_shown() -> None:
    run = Run().go_on(35, vcpu=0, stacks=(stack("f", line=3),))
    run.go_on(36, vcpu=0, stacks=(stack("f", line=9),)).go_on(38, vcpu=0, stacks=(stack("g"),))
    (moment,) = run.found()
    assert moment.stack == ("f (job.py:3)",)
    assert moment.samples == 8
    assert moment.percent == 75.0


def test_of_many_moments_those_with_most_samples_are_kept_in_their_order() -> None:
    run = Run()
    for index in range(8):
        run.go_on(run.at + 40 + index, vcpu=0).go_on(run.at + 700)
    found = run.found()
    assert len(found) == MAX_MOMENTS
    assert [moment.samples for moment in found] == sorted(moment.samples or 0 for moment in found)
