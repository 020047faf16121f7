"""The true parts of a run's time, of the phases that its threads have timed themselves.

In a phase a thread waits for what the phase names, and then, to see its end, for a CPU. Where the
work of several threads lies upon each other, the time on a CPU has bounds: they may have run at the
same time or one after the other. What nothing runs in belongs to the phases of that moment alike.
"""

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

PARTS = ("onCpu", "waitingForCpu", "disk", "network", "sleep", "lock", "pipe", "child", "other")


class Phase(Struct, frozen=True):
    """A phase of a thread, as it wrote it down."""

    kind: str
    began_ns: int
    ended_ns: int
    on_cpu_ns: int
    waited_ns: int

    @property
    def running(self) -> float:
        """The share on a CPU."""
        return self.on_cpu_ns / max(self.ended_ns - self.began_ns, self.on_cpu_ns, 1)

    @property
    def runnable(self) -> float:
        """The share on a CPU or waiting for one."""
        used_ns = self.on_cpu_ns + self.waited_ns
        return used_ns / max(self.ended_ns - self.began_ns, used_ns, 1)

    def stretches(self) -> "Iterator[Phase]":
        """The wait of a phase of a known kind, then the time on a CPU or waiting for one."""
        used_ns = self.on_cpu_ns + self.waited_ns
        blocked_until_ns = self.ended_ns - used_ns
        if self.kind not in PARTS or blocked_until_ns <= self.began_ns:
            yield self
        else:
            yield Phase(self.kind, self.began_ns, blocked_until_ns, 0, 0)
            yield Phase(self.kind, blocked_until_ns, self.ended_ns, self.on_cpu_ns, self.waited_ns)


class Part(Struct, frozen=True):
    """The bounds of a part, in percent of the run's time."""

    least: float
    most: float


def read_phases(folder: Path) -> tuple[Phase, ...]:
    """What all processes of a run have written into the folder."""
    return tuple(
        Phase(*row)
        for path in sorted(folder.glob("*.json"))
        for row in json.loads(path.read_text())
    )


def true_parts(phases: Sequence[Phase], seconds: float, cpus: int) -> dict[str, Part]:
    """The parts of a run of this length on this many CPUs.

    The time in which no thread was in a phase, and the rest of a phase of no known kind, may belong
    to any part.
    """
    least = dict.fromkeys(PARTS, 0.0)
    most = dict.fromkeys(PARTS, 0.0)
    known_ns = 0.0
    for length_ns, together in _moments(
        [stretch for each in phases for stretch in each.stretches()]
    ):
        known_ns += length_ns
        busy = 1 - math.prod(1 - each.runnable for each in together)
        running = [each.running for each in together]
        upper = min(sum(running), busy)
        lower = max(running) if cpus > 1 else upper
        _add(least, most, "onCpu", length_ns * lower, length_ns * upper)
        _add(least, most, "waitingForCpu", length_ns * (busy - upper), length_ns * (busy - lower))
        for each in together:
            blocked_ns = length_ns * (1 - busy) / len(together)
            if each.kind in PARTS:
                _add(least, most, each.kind, blocked_ns, blocked_ns)
            else:
                known_ns -= blocked_ns
    unknown_ns = max(1e9 * seconds - known_ns, 0.0)
    percent = 100 / (known_ns + unknown_ns)
    return {
        part: Part(percent * least[part], percent * (most[part] + unknown_ns)) for part in PARTS
    }


def _add(
    least: dict[str, float], most: dict[str, float], part: str, least_ns: float, most_ns: float
) -> None:
    least[part] += least_ns
    most[part] += most_ns


def _moments(phases: Sequence[Phase]) -> Iterator[tuple[int, list[Phase]]]:
    """The stretches in which the same phases go on, and their length."""
    begins = sorted(phases, key=lambda each: each.began_ns)
    borders = sorted({at for each in phases for at in (each.began_ns, each.ended_ns)})
    going_on: list[Phase] = []
    started = 0
    for begin_ns, end_ns in itertools.pairwise(borders):
        while started < len(begins) and begins[started].began_ns <= begin_ns:
            going_on.append(begins[started])
            started += 1
        going_on = [each for each in going_on if each.ended_ns > begin_ns]
        if going_on:
            yield end_ns - begin_ns, going_on
