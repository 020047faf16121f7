"""What the stack samples of one batch show: its most frequent functions, its moments, and the
stacks over time.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

import msgspec
from msgspec import Struct, field

from profiler.aggregation.container_usage import mean_vcpu_between
from profiler.collectors.stacks.py_spy import StackFrame, ThreadStack, shorten_stack
from profiler.core.optional_math import difference, first_known, min_known
from profiler.core.timestamps import LONG_AGO_NS, NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.record.activity_model import (
    NO_STACKS,
    WAITING_SUFFIX,
    MomentKind,
    StackFunction,
    StackMoment,
    Stacks,
)
from profiler.record.mention_limits import SATURATED_SHARE, max_idle_vcpu
from profiler.record.stacks_line import StackStep

MAX_MOMENTS = 5
_WINDOW_NS = 30 * NS_PER_SECOND
_MIN_MOMENT_NS = 2 * NS_PER_SECOND
_HIGH_MEMORY = 0.8
# Closer samples add nothing: the window would only become longer.
_MIN_STEP_NS = NS_PER_SECOND * 9 // 10
_MAX_STACKS = 200
# A thread whose wait held back less than this share of the most is no reason for an idle moment.
_MIN_HELD_BACK = 0.1
# That nothing has run since a reading of the usage shows the next one: so many samples of the
# stacks may have been taken meanwhile.
_MAX_RECENT = 8
_PERCENT_DIGITS = 1
# The frames that are kept of a very deep stack, because the record's line has 64 KiB.
_OUTER_FRAMES = 8
_INNER_FRAMES = 30
TOP_FUNCTIONS = 10
_MAX_FUNCTIONS = 5000
# A program may compile any number of texts, each as a file of its own.
_MAX_OWN_FILES = 5000
# The part of the JSON line for the stacks. The rest of the 200 KB is for other members, such as the
# user's files.
MAX_BYTES = 186_000
MAX_STEPS = 120
# Below this number of steps, rare stacks are dropped before further steps are merged.
_MIN_STEPS = 12
_FIRST_STEP_NS = NS_PER_SECOND
# A step in which no sample was due belongs to the last one before, up to the slow period of the
# samples.
_MAX_GAP_NS = 10 * NS_PER_SECOND
_STEP_BYTES = len(b'{"offsetMs":999999999,"durationMs":999999999,"stacks":{}},')
_COUNT_BYTES = len(b":,999999")

_Key = tuple[str, str, bool]  # function, file, and whether it is the user's


class _Moment:
    def __init__(self, kind: MomentKind, from_ns: int) -> None:
        self.kind = kind
        self.from_ns = from_ns
        self.to_ns = from_ns
        self.samples = 0
        self._stacks: Counter[tuple[StackFrame, ...]] = Counter()

    @property
    def is_shown(self) -> bool:
        """Whether it has samples, and is not too short."""
        return self.samples > 0 and self.to_ns - self.from_ns >= _MIN_MOMENT_NS

    def add_stacks(self, stacks: Collection[tuple[StackFrame, ...]]) -> None:
        self.add_counts(1, Counter(stacks))

    def add_counts(self, samples: int, counts: Counter[tuple[StackFrame, ...]]) -> None:
        self.samples += samples
        self._stacks.update(counts)
        if len(self._stacks) > _MAX_STACKS:
            self._stacks = Counter(dict(self._stacks.most_common(_MAX_STACKS // 2)))

    def stack_moment(self) -> StackMoment:
        """The stack that was seen most often, regardless of lines, with its most frequent lines."""
        by_functions: defaultdict[tuple[str, ...], Counter[tuple[StackFrame, ...]]] = defaultdict(
            Counter
        )
        for frames, count in self._stacks.items():
            by_functions[tuple(frame.text for frame in frames)][frames] = count
        most = max(by_functions.values(), key=Counter.total)
        ((frames, _),) = most.most_common(1)
        return StackMoment(
            kind=self.kind,
            from_at=format_ms(self.from_ns),
            to_at=format_ms(self.to_ns),
            samples=self.samples,
            stack=tuple(frame.text_with_line for frame in frames),
            own=tuple(frame.is_own for frame in frames),
            percent=min(round(100 * most.total() / self.samples, _PERCENT_DIGITS), 100.0),
        )


class StackMoments:
    """Finds the moments of one batch in the samples of its usage, and collects their stacks.

    Memory rises, nothing runs, or all vCPUs are in use. A moment lasts as long as its condition.
    Fast samples are taken for its first 60 s, and again every 10 minutes. A moment of a few seconds
    in which nothing runs has the samples that were taken anyway.
    """

    def __init__(self) -> None:
        self._window: deque[ContainerSample] = deque()
        self._idle_since_ns: int | None = None
        self._present: dict[MomentKind, _Moment] = {}
        self._short: _Moment | None = None  # nothing has run so far, for less than 30 s
        self._sampled_until_ns: dict[MomentKind, int] = {}
        self._past: list[_Moment] = []
        self._recent: deque[tuple[int, Sequence[ThreadStack]]] = deque(maxlen=_MAX_RECENT)
        # Of the present idle moment, until it is known whose waits held it back.
        self._late: list[Sequence[ThreadStack]] = []
        # The work that the wait of each thread holds back, by the kernel's ids; empty if unknown.
        self._held_back_ns: Mapping[int, float] = {}
        self._is_asked_since_begin = False  # of the present idle moment

    @property
    def wants_waits(self) -> bool:
        """Whether nothing has run for a while, and nobody has said since the last sample whose
        waits hold the run back. To ask costs more than to read the usage.
        """
        if self._idle_moment is None:
            return False
        return bool(self._late) or not self._is_asked_since_begin

    @property
    def _idle_moment(self) -> _Moment | None:
        return self._present.get("idle", self._short)

    def add_usage(self, sample: ContainerSample, sizes: ResourceLimits, now_ns: int) -> None:
        if self._window:
            last = self._window[-1]
            if sample.read_ns - last.read_ns < _MIN_STEP_NS:
                return
            vcpu = mean_vcpu_between(last, sample)
            if first_known(vcpu, math.inf) > max_idle_vcpu(sizes.vcpu):
                self._idle_since_ns = None
                self._add_late_samples()
                self._keep_moment(self._short)
                self._short = None
            else:
                self._idle_since_ns = self._idle_since_ns or last.read_ns
                self._follow_short(self._idle_since_ns, sample.read_ns)
        self._window.append(sample)
        while len(self._window) > 1 and sample.read_ns - self._window[1].read_ns >= _WINDOW_NS:
            self._window.popleft()
        for kind, from_ns in self._condition_starts_ns(sample, sizes):
            self._follow(kind, from_ns, sample.read_ns, now_ns)

    def is_sampling(self, now_ns: int) -> bool:
        return any(now_ns < self._sampled_until_ns.get(kind, 0) for kind in self._present)

    def on_waits(self, held_back_ns: Mapping[int, float]) -> None:
        """The work that the wait of each thread holds back now."""
        self._held_back_ns = held_back_ns
        self._is_asked_since_begin = True
        self._add_late_samples()

    def add_stacks(self, stacks: Sequence[ThreadStack], at_ns: int) -> None:
        """Count the most informative ones of the stacks that were read at one time; of those in
        an idle moment, of the threads whose waits hold the run back, as soon as that is known.
        """
        self._recent.append((at_ns, stacks))
        for moment in self._present.values():
            if moment.kind != "idle":
                moment.add_stacks(_best_ranked(stacks))
        if self._idle_moment is not None:
            self._late.append(stacks)
            if len(self._late) > _MAX_RECENT:  # nobody says it
                self._add_late_samples()

    def _add_late_samples(self) -> None:
        """Add the samples that wait to the idle moment, by what is known of the waits."""
        moment = self._idle_moment
        for stacks in self._late:
            if moment is not None:
                self._add_to_idle(moment, stacks)
        self._late = []

    def _add_to_idle(self, moment: _Moment, stacks: Sequence[ThreadStack]) -> None:
        waiting = self._critical_waiting_stacks(stacks)
        if waiting:
            moment.add_stacks(_best_ranked(waiting))

    def _critical_waiting_stacks(self, stacks: Sequence[ThreadStack]) -> Sequence[ThreadStack]:
        """The stacks of the threads whose waits hold the run back; none while a thread runs.

        Of a thread whose kernel's id it does not know (Python before 3.11, or in another namespace
        of processes), py-spy says that it runs.
        """
        if any(stack.is_active and stack.kernel_id for stack in stacks):
            return ()
        most_ns = max([self._held_back_ns.get(stack.kernel_id, 0) for stack in stacks])
        return [
            stack
            for stack in stacks
            if self._held_back_ns.get(stack.kernel_id, 0) >= _MIN_HELD_BACK * most_ns
        ]

    def add_recording(self, stacks: Sequence[ThreadStack], samples: int, from_ns: int) -> None:
        """Count what ran in a recording, for the moments that had begun before it."""
        counts: Counter[tuple[StackFrame, ...]] = Counter()
        for stack in stacks:
            frames = shorten_stack(stack.frames, _OUTER_FRAMES, _INNER_FRAMES)
            counts[frames] += stack.count
        for moment in self._present.values():
            if moment.from_ns <= from_ns and moment.kind != "idle":
                moment.add_counts(samples, counts)

    def stack_moments(self) -> tuple[StackMoment, ...]:
        self._add_late_samples()
        sampled = [moment for moment in (*self._past, *self._present.values()) if moment.samples]
        if self._short is not None and self._short.is_shown:
            sampled.append(self._short)
        most = sorted(sampled, key=lambda moment: -moment.samples)[:MAX_MOMENTS]
        return tuple(
            moment.stack_moment() for moment in sorted(most, key=lambda moment: moment.from_ns)
        )

    def _follow_short(self, from_ns: int, read_ns: int) -> None:
        if "idle" in self._present:
            return
        if self._short is None:
            self._short = _Moment("idle", from_ns)
            self._is_asked_since_begin = False
            self._late = [stacks for at_ns, stacks in self._recent if at_ns >= from_ns]
        self._short.to_ns = read_ns

    def _keep_moment(self, moment: _Moment | None) -> None:
        if moment is not None and moment.is_shown:
            self._past = sorted((*self._past, moment), key=lambda each: -each.samples)[:20]

    def _condition_starts_ns(
        self, sample: ContainerSample, sizes: ResourceLimits
    ) -> tuple[tuple[MomentKind, int | None], ...]:
        """The time since which the condition of each kind holds; None if it does not hold."""
        first = self._window[0]
        idle_ns = self._idle_since_ns
        saturated_ns = None
        rising_ns = None
        if idle_ns is not None and sample.read_ns - idle_ns < _WINDOW_NS:
            idle_ns = None
        if sizes.vcpu and sample.read_ns - first.read_ns >= _WINDOW_NS:
            vcpu = first_known(mean_vcpu_between(first, sample), 0.0)
            if vcpu >= SATURATED_SHARE * sizes.vcpu:
                saturated_ns = first.read_ns
        used_bytes = first_known(sample.memory_used_bytes, 0)
        size_bytes = sizes.memory_bytes
        if size_bytes and used_bytes >= _HIGH_MEMORY * size_bytes:
            least_bytes = min_known(*[earlier.memory_used_bytes for earlier in self._window])
            if used_bytes - (least_bytes or 0) >= 0.01 * size_bytes:
                rising_ns = sample.read_ns
        return ("memory", rising_ns), ("idle", idle_ns), ("saturated", saturated_ns)

    def _follow(self, kind: MomentKind, from_ns: int | None, read_ns: int, now_ns: int) -> None:
        moment = self._present.get(kind)
        if from_ns is None:
            self._keep_moment(self._present.pop(kind, None))
            return
        if moment is None:
            moment = _Moment(kind, from_ns)
            if kind == "idle" and self._short is not None:
                moment = self._short
                self._short = None
            self._present[kind] = moment
        moment.to_ns = read_ns
        until_ns = self._sampled_until_ns.get(kind, LONG_AGO_NS)
        if now_ns >= until_ns + 600 * NS_PER_SECOND:
            self._sampled_until_ns[kind] = now_ns + 60 * NS_PER_SECOND


def _best_ranked(stacks: Iterable[ThreadStack]) -> Collection[tuple[StackFrame, ...]]:
    """The frames of the most informative stacks, at least of one."""
    by_rank: defaultdict[int, set[tuple[StackFrame, ...]]] = defaultdict(set)
    for stack in stacks:
        by_rank[stack.rank].add(shorten_stack(stack.frames, _OUTER_FRAMES, _INNER_FRAMES))
    return by_rank[min(by_rank)]


class _Function(Struct):
    """How often a function was on the stack of a running thread, how often it was the innermost
    one, and its lines.
    """

    total: int = 0
    innermost: int = 0
    lines: Counter[int] = field(default_factory=Counter)

    @property
    def usual_line(self) -> int | None:
        """The line that was seen most often, the first one of several."""
        return min(self.lines, key=lambda line: (-self.lines[line], line), default=None)


class FunctionCounts:
    """How often each function was on the stack of a running thread."""

    def __init__(self) -> None:
        self.running = 0
        self._functions: dict[_Key, _Function] = {}

    def add_stack(self, stack: ThreadStack) -> None:
        """Count a stack; a recursive function counts once, with its last line.

        Waiting threads do not count.
        """
        if not stack.is_active:
            return
        self.running += stack.count
        lines = {(frame.function, frame.file, frame.is_own): frame.line for frame in stack.frames}
        for key, line in lines.items():
            function = self._functions.setdefault(key, _Function())
            function.total += stack.count
            if line is not None:
                function.lines[line] += stack.count
        innermost = stack.frames[-1]
        key = (innermost.function, innermost.file, innermost.is_own)
        self._functions[key].innermost += stack.count
        if len(self._functions) > _MAX_FUNCTIONS:
            ranked = sorted(self._functions.items(), key=lambda each: -each[1].total)
            self._functions = dict(ranked[: _MAX_FUNCTIONS // 2])

    def top_functions(self) -> tuple[StackFunction, ...]:
        ranked = sorted(
            self._functions.items(), key=lambda each: (-each[1].innermost, -each[1].total, each[0])
        )
        functions = []
        for (function, file, is_own), count in ranked[:TOP_FUNCTIONS]:
            functions.append(
                StackFunction(
                    function=function,
                    file=file,
                    line=count.usual_line,
                    self_percent=self._percent(count.innermost),
                    total_percent=self._percent(count.total),
                    own=is_own or None,
                )
            )
        return tuple(functions)

    def _percent(self, count: int) -> float:
        return round(100 * count / self.running, _PERCENT_DIGITS)


class FoldedStacks:
    """Counts folded stacks in equal steps within a fixed size: if there are too many, the length
    doubles.
    """

    def __init__(self) -> None:
        self._step_ns = _FIRST_STEP_NS
        self._origin_ns: int | None = None
        self._steps: dict[int, Counter[str]] = {}
        self._bytes = 0

    def add_sample(self, at_ns: int, stacks: Mapping[str, int]) -> None:
        """Count the stacks of one sample. Samples are added in ascending order of time."""
        self._origin_ns = first_known(self._origin_ns, at_ns)
        index = max(at_ns - self._origin_ns, 0) // self._step_ns
        if index not in self._steps:
            self._bytes += _STEP_BYTES
        step = self._steps.setdefault(index, Counter())
        self._bytes += sum(map(_encoded_bytes, stacks.keys() - step.keys()))
        step.update(stacks)
        while len(self._steps) > MAX_STEPS or (
            self._bytes > MAX_BYTES and len(self._steps) > _MIN_STEPS
        ):
            merged: defaultdict[int, Counter[str]] = defaultdict(Counter)
            for place, counts in self._steps.items():
                merged[place // 2].update(counts)
            self._steps = dict(merged)
            self._step_ns *= 2
            self._measure()
        if self._bytes > MAX_BYTES:
            self._drop_rare_stacks()

    def steps_of_run(
        self, started_ns: int | None, finished_ns: int | None = None
    ) -> tuple[StackStep, ...]:
        """The steps with samples, by their offsets from the start of the run, or from the first
        sample if unknown.
        """
        origin_ns = self._origin_ns or 0
        started_ns = first_known(started_ns, origin_ns)
        first_ns = origin_ns - started_ns
        indexes = sorted(self._steps)
        steps = []
        for index, following in zip(indexes, (*indexes[1:], None), strict=True):
            offset_ns = max(first_ns + index * self._step_ns, 0)
            end_ns = first_ns + (index + 1) * self._step_ns
            if following is not None:
                end_ns = min(
                    max(end_ns, offset_ns + _MAX_GAP_NS), first_ns + following * self._step_ns
                )
            end_ns = min(end_ns, first_known(difference(finished_ns, started_ns), end_ns))
            offset_ms = offset_ns // NS_PER_MS
            duration_ms = max(end_ns // NS_PER_MS - offset_ms, 0)
            counts = dict(self._steps[index].most_common())
            steps.append(StackStep(offset_ms=offset_ms, duration_ms=duration_ms, stacks=counts))
        return tuple(steps)

    def _drop_rare_stacks(self) -> None:
        """Keep the stacks that were seen most often in the whole run, up to three quarters of
        the size.
        """
        totals: Counter[str] = Counter()
        present: Counter[str] = Counter()
        for step in self._steps.values():
            totals.update(step)
            present.update(step.keys())
        left = 3 * MAX_BYTES // 4 - len(self._steps) * _STEP_BYTES
        kept = set()
        for stack, _ in totals.most_common():
            left -= present[stack] * _encoded_bytes(stack)
            if left < 0:
                break
            kept.add(stack)
        for step in self._steps.values():
            for stack in step.keys() - kept:
                del step[stack]
        self._steps = {index: step for index, step in self._steps.items() if step}
        self._measure()

    def _measure(self) -> None:
        self._bytes = sum(
            _STEP_BYTES + sum(map(_encoded_bytes, step)) for step in self._steps.values()
        )


def _encoded_bytes(stack: str) -> int:
    return len(msgspec.json.encode(stack)) + _COUNT_BYTES


def _folded_counts(stacks: Iterable[ThreadStack]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for stack in stacks:
        counts[stack.folded] += stack.count
    return counts


def _samples_of_busiest(recording: Iterable[ThreadStack]) -> int:
    """How many samples of a process had a running thread, at least: those of the busiest one."""
    counts: Counter[int] = Counter()
    for stack in recording:
        counts[stack.thread_id] += stack.count
    return max(counts.values(), default=0)


class StackProfile:
    """The samples of one batch. A sample is one reading of one process."""

    def __init__(self) -> None:
        self.samples = 0
        self.functions = FunctionCounts()
        self.folded = FoldedStacks()
        self.moments = StackMoments()
        self._own_files: set[str] = set()

    def add_dumps(self, dumps: Sequence[Collection[ThreadStack]], wall_ns: int) -> None:
        stacks = list(chain.from_iterable(dumps))
        if not stacks:
            return
        self.samples += sum(map(bool, dumps))
        self._add_functions(stacks)
        self.folded.add_sample(wall_ns, _folded_counts(stacks))
        self.moments.add_stacks(stacks, wall_ns)

    def add_recordings(
        self, recordings: Sequence[Collection[ThreadStack]], from_ns: int, until_ns: int
    ) -> None:
        """Add what ran in several processes in a time (wall clock). Its samples are spread evenly
        over it: a recording does not tell when each was taken.
        """
        stacks = list(chain.from_iterable(recordings))
        if not stacks:
            return
        samples = sum(map(_samples_of_busiest, recordings))
        self.samples += samples
        self._add_functions(stacks)
        counts = _folded_counts(stacks)
        steps = max(round((until_ns - from_ns) / NS_PER_SECOND), 1)
        for step in range(steps):
            part: Counter[str] = Counter()
            for text, count in counts.items():
                part[text] = count * (step + 1) // steps - count * step // steps
            part = +part  # without zeros
            if part:
                self.folded.add_sample(from_ns + step * (until_ns - from_ns) // steps, part)
        self.moments.add_recording(stacks, samples, from_ns)

    def _add_functions(self, stacks: Iterable[ThreadStack]) -> None:
        for stack in stacks:
            self.functions.add_stack(stack)
            if len(self._own_files) < _MAX_OWN_FILES:
                self._own_files.update(frame.file for frame in stack.frames if frame.is_own)

    def own_files(self, steps: Iterable[StackStep]) -> tuple[str, ...]:
        """The files of the user's code in the stacks of these steps, until the line is full."""
        files: set[str] = set()
        for stack in set[str]().union(*[step.stacks for step in steps]):
            for text in stack.removesuffix(WAITING_SUFFIX).split(";"):
                files.add(text.removesuffix(")").rpartition(" (")[2])
        own = []
        left_bytes = 12_000
        for file in sorted(files & self._own_files):
            left_bytes -= len(msgspec.json.encode(file)) + 1
            if left_bytes >= 0:
                own.append(file)
        return tuple(own)

    def stacks_of_run(self, source: str) -> Stacks:
        if not self.samples:
            return NO_STACKS
        running = self.functions.running
        top = self.functions.top_functions()
        moments = self.moments.stack_moments()
        return Stacks(
            source=source,
            samples=self.samples,
            running_samples=running,
            top=top,
            moments=moments,
        )
