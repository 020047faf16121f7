"""The moments that stacks are to explain: memory rises, nothing runs, or all vCPUs are in use.

One lasts as long as its condition. Fast samples are taken for its first 60 s, and again every 10 minutes.
"""

from collections import Counter, deque
from collections.abc import Iterable

from profiler.aggregation.container_usage import vcpu_between
from profiler.aggregation.task_record import ResourceLimits
from profiler.collectors.stacks.thread_stacks import Frame, ThreadStack, shortened
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.readers.container_sample import ContainerSample
from profiler.record.activity_model import MomentKind, StackMoment
from profiler.record.worth_a_word import SATURATED_SHARE, idle_vcpu

MAX_MOMENTS = 5
_WINDOW_NS = 30 * NS_PER_SECOND
_HIGH_MEMORY = 0.8
# Closer samples add nothing: the window would only become longer.
_MIN_STEP_NS = NS_PER_SECOND * 9 // 10
_MAX_STACKS = 200
_PERCENT_DIGITS = 1
# The frames that are kept of a very deep stack, because the record's line has 64 KiB.
_OUTER_FRAMES, _INNER_FRAMES = 8, 30


class _Moment:
    """One moment: how often each stack was seen in it, with its lines."""

    def __init__(self, kind: MomentKind, from_ns: int) -> None:
        self.kind = kind
        self.from_ns = from_ns
        self.to_ns = from_ns
        self.samples = 0
        self._stacks: Counter[tuple[Frame, ...]] = Counter()

    def add(self, stacks: Iterable[tuple[Frame, ...]]) -> None:
        self.samples += 1
        self._stacks.update(set(stacks))
        if len(self._stacks) > _MAX_STACKS:
            self._stacks = Counter(dict(self._stacks.most_common(_MAX_STACKS // 2)))

    def record(self) -> StackMoment:
        """The stack that was seen most often, regardless of lines, with its most frequent lines."""
        functions: Counter[tuple[str, ...]] = Counter()
        for frames, count in self._stacks.items():
            functions[tuple(frame.text for frame in frames)] += count
        ((most, count),) = functions.most_common(1)
        lines = {frames: n for frames, n in self._stacks.items() if tuple(frame.text for frame in frames) == most}
        frames = max(lines, key=lines.__getitem__)
        return StackMoment(
            kind=self.kind,
            from_at=format_ms(self.from_ns),
            to_at=format_ms(self.to_ns),
            samples=self.samples,
            stack=tuple(frame.text_with_line for frame in frames),
            own=tuple(frame.is_own for frame in frames),
            percent=min(round(100 * count / self.samples, _PERCENT_DIGITS), 100.0),
        )


class StackMoments:
    """Finds the moments of one batch in the samples of its usage, and collects the stacks of these moments."""

    def __init__(self) -> None:
        self._window: deque[ContainerSample] = deque()
        self._idle_since_ns: int | None = None
        self._present: dict[MomentKind, _Moment] = {}
        self._sampled_until_ns: dict[MomentKind, int] = {}
        self._past: list[_Moment] = []

    def add_usage(self, sample: ContainerSample, sizes: ResourceLimits, now_ns: int) -> None:
        """Compare the usage with the conditions; ``now_ns`` is monotonic."""
        last = self._window[-1] if self._window else None
        if last is not None and 0 <= sample.read_ns - last.read_ns < _MIN_STEP_NS:
            return
        if last is not None and sample.read_ns < last.read_ns:  # the clock was set
            self._window.clear()
            self._idle_since_ns = None
        elif last is not None:
            vcpu = vcpu_between(last, sample)
            is_idle = vcpu is not None and vcpu <= idle_vcpu(sizes.vcpu)
            self._idle_since_ns = (self._idle_since_ns or last.read_ns) if is_idle else None
        self._window.append(sample)
        while len(self._window) > 1 and sample.read_ns - self._window[1].read_ns >= _WINDOW_NS:
            self._window.popleft()
        for kind, from_ns in self._conditions(sample, sizes):
            self._follow(kind, from_ns, sample.read_ns, now_ns)

    def is_sampling(self, now_ns: int) -> bool:
        """Whether samples are to be taken at the fast rate."""
        return any(now_ns < self._sampled_until_ns.get(kind, 0) for kind in self._present)

    def add_stacks(self, stacks: Iterable[ThreadStack]) -> None:
        """Count the most informative ones of the stacks that were read at one time."""
        if not self._present:
            return
        ranked = [(stack.rank, shortened(stack.frames, _OUTER_FRAMES, _INNER_FRAMES)) for stack in stacks]
        if not ranked:
            return
        best = min(rank for rank, _ in ranked)
        chosen = [frames for rank, frames in ranked if rank == best]
        for moment in self._present.values():
            moment.add(chosen)

    def record(self) -> tuple[StackMoment, ...]:
        """The moments with the most samples, in the order of time."""
        sampled = [moment for moment in (*self._past, *self._present.values()) if moment.samples]
        most = sorted(sampled, key=lambda moment: -moment.samples)[:MAX_MOMENTS]
        return tuple(moment.record() for moment in sorted(most, key=lambda moment: moment.from_ns))

    def _conditions(self, sample: ContainerSample, sizes: ResourceLimits) -> tuple[tuple[MomentKind, int | None], ...]:
        """The time since which the condition of each kind holds; None if it does not hold."""
        first, idle_ns, saturated_ns = self._window[0], self._idle_since_ns, None
        if idle_ns is not None and sample.read_ns - idle_ns < _WINDOW_NS:
            idle_ns = None
        vcpu = vcpu_between(first, sample) if sample.read_ns - first.read_ns >= _WINDOW_NS else None
        if vcpu is not None and sizes.vcpu and vcpu >= SATURATED_SHARE * sizes.vcpu:
            saturated_ns = first.read_ns
        return ("memory", self._rising_since(sample, sizes)), ("idle", idle_ns), ("saturated", saturated_ns)

    def _rising_since(self, sample: ContainerSample, sizes: ResourceLimits) -> int | None:
        used, size = sample.memory_used_bytes, sizes.memory_bytes
        if used is None or not size or used < _HIGH_MEMORY * size:
            return None
        earlier = [one.memory_used_bytes for one in self._window if one.memory_used_bytes is not None]
        return sample.read_ns if used - min(earlier) >= 0.01 * size else None

    def _follow(self, kind: MomentKind, from_ns: int | None, read_ns: int, now_ns: int) -> None:
        moment = self._present.get(kind)
        if from_ns is None:
            if moment is not None and self._present.pop(kind).samples:
                self._past = sorted((*self._past, moment), key=lambda each: -each.samples)[:20]
            return
        if moment is None:
            moment = self._present[kind] = _Moment(kind, from_ns)
        moment.to_ns = read_ns
        until_ns = self._sampled_until_ns.get(kind)
        if until_ns is None or now_ns >= until_ns + 600 * NS_PER_SECOND:
            self._sampled_until_ns[kind] = now_ns + 60 * NS_PER_SECOND
