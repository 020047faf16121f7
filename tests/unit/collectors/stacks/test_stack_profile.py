from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.stacks.py_spy import Frame, ThreadStack
from profiler.collectors.stacks.stack_profile import (
    MAX_STEPS,
    TOP_FUNCTIONS,
    FoldedStacks,
    FunctionCounts,
    StackProfile,
)
from profiler.record.activity_model import StacksLine
from tests.fakes import START_NS, seconds
from tests.values import present

_PATHS = st.lists(st.sampled_from("abcdefghijklmnop"), min_size=1, max_size=8)


def running(*frames: tuple[str, int]) -> ThreadStack:
    return ThreadStack(frames=tuple(Frame(name, "job.py", line) for name, line in frames), is_active=True)


def waiting(*names: str) -> ThreadStack:
    return ThreadStack(frames=tuple(Frame(name, "job.py", 1) for name in names), is_active=False)


def test_self_and_total_are_shares_of_the_running_samples() -> None:
    counts = FunctionCounts()
    for _ in range(3):
        counts.add(running(("<module>", 10), ("parse", 5)))
    counts.add(running(("<module>", 11), ("write", 7)))
    for _ in range(10):
        counts.add(waiting("<module>", "recv"))
    found = [(each.function, each.line, each.self_percent, each.total_percent) for each in counts.top()]
    assert found == [("parse", 5, 75.0, 75.0), ("write", 7, 25.0, 25.0), ("<module>", 10, 0.0, 100.0)]


def test_recursion_counts_once() -> None:
    counts = FunctionCounts()
    counts.add(running(("f", 1), ("f", 2), ("f", 2), ("f", 3)))
    (top,) = counts.top()
    assert (top.self_percent, top.total_percent, top.line) == (100.0, 100.0, 3)


def test_at_most_ten_functions_are_shown_and_the_memory_is_bounded() -> None:
    counts = FunctionCounts()
    for index in range(12_000):
        counts.add(running(("main", 1), (f"f{index}", index)))
    assert len(counts.top()) == TOP_FUNCTIONS
    assert len(counts._total) <= 5001
    assert counts.top()[0].self_percent == 0.0


def test_without_a_running_thread_there_are_no_functions() -> None:
    profile = StackProfile()
    profile.add([(waiting("f"),)], START_NS)
    stacks = present(profile.record("py-spy 1"))
    assert (stacks.source, stacks.samples, stacks.top) == ("py-spy 1", 1, ())


def test_a_process_without_stacks_is_no_sample() -> None:
    profile = StackProfile()
    profile.add([()], START_NS)
    assert profile.record("py-spy") is None
    profile.add([(), (running(("f", 1)),), (waiting("g"), running(("f", 1)))], START_NS + seconds(1))
    stacks = profile.record("py-spy")
    assert present(stacks).samples == 2
    (step,) = profile.folded.steps(START_NS)
    assert step.stacks == {"f (job.py)": 2, "g (job.py) [waiting]": 1}


_names = st.text(min_size=1, max_size=30)
_samples = st.lists(
    st.tuples(st.integers(0, 5000), st.dictionaries(_names, st.integers(1, 50), max_size=6)), min_size=1, max_size=200
)


@given(st.lists(_PATHS, min_size=1, max_size=60))
def test_the_shares_fit_together(paths: list[list[str]]) -> None:
    counts = FunctionCounts()
    for path in paths:
        counts.add(running(*((name, 1) for name in path)))
    top = counts.top()
    for each in top:
        assert 0 <= (each.self_percent or 0) <= (each.total_percent or 0) <= 100
    assert sum(each.self_percent or 0 for each in top) <= 100 + 0.1 * len(top)
    if len({name for path in paths for name in path}) <= TOP_FUNCTIONS:
        assert sum(each.self_percent or 0 for each in top) == pytest.approx(100, abs=0.1 * len(top))


def line_of(folded: FoldedStacks, started_ns: int = START_NS) -> bytes:
    steps = folded.steps(started_ns)
    return msgspec.json.encode(StacksLine(type="task.stacks", task_id="t" * 36, container="c" * 255, steps=steps))


def test_counts_are_kept_by_step_with_their_offsets() -> None:
    folded = FoldedStacks()
    for second in (2, 3, 3.5, 30):
        folded.add(START_NS + seconds(second), {"a": 1, "b": 2})
    found = [(step.offset_ms, step.duration_ms, dict(step.stacks)) for step in folded.steps(START_NS)]
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
        folded.add(START_NS + seconds(second), stacks)
        total.update(stacks)
    steps = folded.steps(START_NS)
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
        rare = {f"<module> (job.py);function_{second}_{index} ({'x' * 80}.py)": 1 for index in range(8)}
        folded.add(START_NS + seconds(second), {"<module> (job.py);common (job.py)": 5, **rare})
        assert len(folded._bytes_of) < 3000
    assert len(line_of(folded)) <= 200_000
    assert sum(step.stacks.get("<module> (job.py);common (job.py)", 0) for step in folded.steps(START_NS)) == 10_000
