"""Divides the time of steps in which threads ended before their counters were read.

Such threads may have waited for a CPU, which nobody saw: what is left of these steps beside the
time on a CPU is not simply blocked. The samples are moments, and each shows whether a thread could
run. Their number limits how much of the time threads can have been blocked, and how much they must
have waited for a CPU. What lies between these limits is unknown.
"""

import math
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.readers.linux.waited_target import Wait

# The limits contain the true share in nine of ten cases (Wilson's interval of a proportion).
_STANDARD_SCORE = 1.645


class UnreadParts(Struct, frozen=True, kw_only=True):
    """What remains of the steps beside what was read, in nanoseconds."""

    waiting_ns: int
    blocked_ns: Mapping[Wait, int]
    unknown_ns: int


class UnreadTime(Struct):
    """The sums over these steps.

    ``known_ns`` was on a CPU, or seen to wait for one. ``possible_ns`` is the most that other
    threads can have waited, ``certain_ns`` the least. Each of the ``samples`` showed a thread that
    could run (``working_samples``), or the wait to which ``blocked_ns`` adds the length of the
    step.
    """

    length_ns: int = 0
    known_ns: int = 0
    possible_ns: int = 0
    certain_ns: int = 0
    samples: int = 0
    working_samples: int = 0
    blocked_ns: Counter[Wait] = field(default_factory=Counter)

    def add(
        self, *, length_ns: int, known_ns: int, possible_ns: int | None, certain_ns: int = 0
    ) -> None:
        """Add a step; ``possible_ns`` is None if nothing limits the waits that were not seen."""
        left_ns = length_ns - known_ns
        self.length_ns += length_ns
        self.known_ns += known_ns
        self.possible_ns += left_ns if possible_ns is None else min(possible_ns, left_ns)
        self.certain_ns += min(certain_ns, left_ns)

    def add_working_sample(self) -> None:
        """Add a sample that showed a thread that could run."""
        self.samples += 1
        self.working_samples += 1

    def add_blocked_sample(self, waits: Mapping[Wait, int]) -> None:
        """Add a sample that showed only waits, with the part of the step of each."""
        self.samples += 1
        self.blocked_ns.update(waits)

    def merge(self, other: "UnreadTime") -> None:
        """Count the steps of another one, too."""
        self.length_ns += other.length_ns
        self.known_ns += other.known_ns
        self.possible_ns += other.possible_ns
        self.certain_ns += other.certain_ns
        self.samples += other.samples
        self.working_samples += other.working_samples
        self.blocked_ns.update(other.blocked_ns)

    def copy(self) -> "UnreadTime":
        return replace(self, blocked_ns=self.blocked_ns.copy())

    def parts(self) -> UnreadParts:
        """Divide what was not read: by the samples, within the limits that the kernel's pressure
        leaves.
        """
        left_ns = self.length_ns - self.known_ns
        least, most = proportion_limits(self.working_samples, self.samples)
        waiting_ns = min(max(round(least * self.length_ns) - self.known_ns, 0), left_ns)
        # The group may have waited while what the samples show was blocked.
        certain_ns = min(self.certain_ns, max(round(most * self.length_ns) - self.known_ns, 0))
        waiting_ns = min(max(waiting_ns, certain_ns), self.possible_ns)
        # By the samples alone, and by what no thread of the machine can have waited.
        by_samples_ns = round((1 - most) * self.length_ns)
        by_pressure_ns = min(left_ns - self.possible_ns, round((1 - least) * self.length_ns))
        blocked_ns = min(max(by_samples_ns, by_pressure_ns, 0), left_ns - waiting_ns)
        shown_ns = self.blocked_ns.total()
        blocked = {
            wait: blocked_ns * time_ns // shown_ns for wait, time_ns in self.blocked_ns.items()
        }
        unknown_ns = left_ns - waiting_ns - sum(blocked.values())
        return UnreadParts(waiting_ns=waiting_ns, blocked_ns=blocked, unknown_ns=unknown_ns)


def proportion_limits(count: int, samples: int) -> tuple[float, float]:
    """Between which limits a proportion lies that ``count`` of the samples showed."""
    if not samples:
        return 0.0, 1.0
    share = count / samples
    square = _STANDARD_SCORE**2 / samples
    middle = (share + square / 2) / (1 + square)
    variance = share * (1 - share) / samples + square / (4 * samples)
    reach = _STANDARD_SCORE * math.sqrt(variance) / (1 + square)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)
