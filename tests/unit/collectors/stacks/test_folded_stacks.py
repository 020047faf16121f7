from collections import Counter
from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.stacks.folded_stacks import MAX_BYTES, MAX_STEPS, FoldedStacks
from profiler.record.activity_model import StacksLine
from tests.fakes import START_NS, seconds

_names = st.text(min_size=1, max_size=30)
_samples = st.lists(
    st.tuples(st.integers(0, 5000), st.dictionaries(_names, st.integers(1, 50), max_size=6)), min_size=1, max_size=200
)


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


def test_the_last_step_ends_with_the_run() -> None:
    folded = FoldedStacks()
    folded.add(START_NS + seconds(2), {"a": 1})
    (step,) = folded.steps(START_NS, START_NS + seconds(2.4))
    assert (step.offset_ms, step.duration_ms) == (2000, 400)


def test_without_samples_there_are_no_steps() -> None:
    assert FoldedStacks().steps(START_NS) == ()


def test_steps_are_merged_in_a_long_run_and_nothing_is_lost() -> None:
    folded = FoldedStacks()
    for second in range(0, 7200, 10):
        folded.add(START_NS + seconds(second), {"a": 1})
    steps = folded.steps(START_NS)
    assert MAX_STEPS / 2 <= len(steps) <= MAX_STEPS
    assert sum(step.stacks["a"] for step in steps) == 720


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


@given(st.lists(st.dictionaries(st.text(max_size=300), st.integers(1, 10**6), max_size=20), max_size=40))
def test_no_text_makes_the_line_longer_than_the_limit(samples: list[dict[str, int]]) -> None:
    folded = FoldedStacks(max_bytes=3000)
    for second, stacks in enumerate(samples):
        folded.add(START_NS + seconds(second), stacks)
    assert len(msgspec.json.encode(folded.steps(START_NS))) <= 3000 + 2
    assert MAX_BYTES < 200_000
