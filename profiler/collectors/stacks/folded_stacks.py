"""The stacks of a run over time: how often each was seen in each step, within a fixed size.

Neighbouring steps are merged while samples arrive, so that the memory does not grow with the run.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.record.activity_model import StackStep

# Of the JSON line; the rest of the 200 KB is for its other members.
MAX_BYTES = 198_000
MAX_STEPS = 120
# Below this number of steps, rare stacks are dropped before further steps are merged.
MIN_STEPS = 12
_FIRST_STEP_NS = NS_PER_SECOND
# A step in which no sample was due belongs to the last one before, up to the slow period of the samples.
_MAX_GAP_NS = 10 * NS_PER_SECOND
_STEP_BYTES = len(b'{"offsetMs":999999999,"durationMs":999999999,"stacks":{}},')
_COUNT_BYTES = len(b":,999999")
_KEPT_SHARE = 0.75


class FoldedStacks:
    """Counts folded stacks in steps of equal length, which doubles when there are too many of them."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._step_ns = _FIRST_STEP_NS
        self._origin_ns: int | None = None
        self._steps: dict[int, Counter[str]] = {}
        self._bytes_of: dict[str, int] = {}
        self._bytes = 0

    def add(self, at_ns: int, stacks: Mapping[str, int]) -> None:
        """Count the stacks of a sample at a time (wall clock, in ascending order)."""
        if self._origin_ns is None:
            self._origin_ns = at_ns
        index = max(at_ns - self._origin_ns, 0) // self._step_ns
        step = self._steps.get(index)
        if step is None:
            step = self._steps[index] = Counter()
            self._bytes += _STEP_BYTES
        for stack, count in stacks.items():
            if stack not in step:
                self._bytes += self._size_of(stack)
            step[stack] += count
        self._shrink()

    def steps(self, started_ns: int | None, finished_ns: int | None = None) -> tuple[StackStep, ...]:
        """The steps in which there were samples, with their offsets from the start of the run.

        If this is unknown, they are from the first sample.
        """
        if self._origin_ns is None:
            return ()
        started_ns = self._origin_ns if started_ns is None else started_ns
        first_ns = self._origin_ns - started_ns
        indexes = sorted(self._steps)
        found = []
        for index, following in zip(indexes, (*indexes[1:], None), strict=True):
            offset_ns = max(first_ns + index * self._step_ns, 0)
            end_ns = first_ns + (index + 1) * self._step_ns
            if following is not None:
                end_ns = min(max(end_ns, offset_ns + _MAX_GAP_NS), first_ns + following * self._step_ns)
            if finished_ns is not None:
                end_ns = min(end_ns, finished_ns - started_ns)
            offset_ms = offset_ns // NS_PER_MS
            duration_ms = max(end_ns // NS_PER_MS - offset_ms, 0)
            counts = dict(self._steps[index].most_common())
            found.append(StackStep(offset_ms=offset_ms, duration_ms=duration_ms, stacks=counts))
        return tuple(found)

    def _size_of(self, stack: str) -> int:
        size = self._bytes_of.get(stack)
        if size is None:
            size = self._bytes_of[stack] = len(msgspec.json.encode(stack)) + _COUNT_BYTES
        return size

    def _shrink(self) -> None:
        while len(self._steps) > MAX_STEPS or (self._bytes > self._max_bytes and len(self._steps) > MIN_STEPS):
            self._merge_steps()
        if self._bytes > self._max_bytes:
            self._drop_rare_stacks()

    def _merge_steps(self) -> None:
        merged: dict[int, Counter[str]] = {}
        for index, step in self._steps.items():
            merged.setdefault(index // 2, Counter()).update(step)
        self._steps = merged
        self._step_ns *= 2
        self._measure()

    def _drop_rare_stacks(self) -> None:
        """Keep the stacks that were seen most often in the whole run, up to three quarters of the size."""
        totals: Counter[str] = Counter()
        present: Counter[str] = Counter()
        for step in self._steps.values():
            totals.update(step)
            present.update(step.keys())
        left = _KEPT_SHARE * self._max_bytes - len(self._steps) * _STEP_BYTES
        kept = set()
        for stack, _ in totals.most_common():
            left -= present[stack] * self._size_of(stack)
            if left < 0:
                break
            kept.add(stack)
        for step in self._steps.values():
            for stack in step.keys() - kept:
                del step[stack]
        self._steps = {index: step for index, step in self._steps.items() if step}
        self._measure()

    def _measure(self) -> None:
        present = {stack for step in self._steps.values() for stack in step}
        self._bytes_of = {stack: size for stack, size in self._bytes_of.items() if stack in present}
        self._bytes = len(self._steps) * _STEP_BYTES + sum(
            self._size_of(stack) for step in self._steps.values() for stack in step
        )
