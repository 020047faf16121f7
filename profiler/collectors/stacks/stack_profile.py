"""What the stack samples of one batch show: its most frequent functions, its moments, and the stacks over time."""

from collections import Counter
from collections.abc import Collection, Sequence

from profiler.collectors.stacks.folded_stacks import FoldedStacks
from profiler.collectors.stacks.stack_moments import StackMoments
from profiler.collectors.stacks.thread_stacks import ThreadStack
from profiler.record.activity_model import StackFunction, Stacks

TOP_FUNCTIONS = 10
_MAX_FUNCTIONS = 5000
_MAX_LINES = 200
_PERCENT_DIGITS = 1

_Key = tuple[str, str]  # function and file


class FunctionCounts:
    """How often each function was on the stack of a running thread, within a fixed size."""

    def __init__(self) -> None:
        self._running = 0
        self._self: Counter[_Key] = Counter()
        self._total: Counter[_Key] = Counter()
        self._lines: dict[_Key, Counter[int]] = {}

    def add(self, stack: ThreadStack) -> None:
        """Count a stack; a recursive function counts once in ``total``. Waiting threads do not count."""
        if not stack.is_active:
            return
        self._running += 1
        seen: set[_Key] = set()
        for frame in reversed(stack.frames):
            key = frame.function, frame.file
            if key in seen:
                continue
            seen.add(key)
            if frame.line is not None:
                lines = self._lines.setdefault(key, Counter())
                lines[frame.line] += 1
                if len(lines) > _MAX_LINES:
                    self._lines[key] = Counter(dict(lines.most_common(_MAX_LINES // 2)))
        self._total.update(seen)
        innermost = stack.frames[-1]
        self._self[innermost.function, innermost.file] += 1
        if len(self._total) > _MAX_FUNCTIONS:
            self._drop_rare()

    def top(self) -> tuple[StackFunction, ...]:
        """The functions that ran most often themselves, then those that were most often on the stack."""
        ranked = sorted(self._total, key=lambda key: (-self._self[key], -self._total[key], key))
        return tuple(
            StackFunction(
                function=function,
                file=file,
                line=self._most_frequent_line((function, file)),
                self_percent=self._percent(self._self[function, file]),
                total_percent=self._percent(self._total[function, file]),
            )
            for function, file in ranked[:TOP_FUNCTIONS]
        )

    def _most_frequent_line(self, key: _Key) -> int | None:
        lines = self._lines.get(key)
        return min(lines, key=lambda line: (-lines[line], line)) if lines else None

    def _percent(self, count: int) -> float:
        return round(100 * count / self._running, _PERCENT_DIGITS)

    def _drop_rare(self) -> None:
        kept = dict(self._total.most_common(_MAX_FUNCTIONS // 2))
        self._total = Counter(kept)
        self._self = Counter({key: count for key, count in self._self.items() if key in kept})
        self._lines = {key: lines for key, lines in self._lines.items() if key in kept}


class StackProfile:
    """The samples of one batch. A sample is one reading of one process."""

    def __init__(self) -> None:
        self.samples = 0
        self.functions = FunctionCounts()
        self.folded = FoldedStacks()
        self.moments = StackMoments()

    def add(self, dumps: Sequence[Collection[ThreadStack]], wall_ns: int) -> None:
        """Add the stacks of processes that were read at one time."""
        stacks = [stack for dump in dumps for stack in dump]
        if not stacks:
            return
        self.samples += sum(1 for dump in dumps if dump)
        for stack in stacks:
            self.functions.add(stack)
        self.folded.add(wall_ns, Counter(stack.folded for stack in stacks))
        self.moments.add_stacks(stacks)

    def record(self, source: str) -> Stacks | None:
        """The record's part; None without samples."""
        if not self.samples:
            return None
        return Stacks(source=source, samples=self.samples, top=self.functions.top(), moments=self.moments.record())
