"""The true parts of a run's time, of the phases that its threads have timed themselves.

In a phase a thread waits for what the phase names, and then, to see its end, for a CPU. Where the
work of several threads lies upon each other, the time on a CPU has bounds: they may have run at the
same time or one after the other, except in one interpreter, which runs one at a time. What nothing
runs in belongs to the phases of that moment, each in proportion to the work that its wait held back:
the CPU time of its thread until its next wait, or since the one before, whichever is more. Of
programs whose phases do not name their thread, it belongs to all alike. The CPU time of threads that time no phases, as
a virtual machine's compilers, is written as one phase without a length: it may lie in any phase.
"""

import bisect
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

FOR_OTHERS, INTERPRETED, BESIDE = "others", "python", "beside"
OF_LEVEL_1 = ("onCpu", "waitingForCpu", "disk")
_MIN_WAIT_FOR_OTHERS_NS = 10_000_000
PARTS = ("onCpu", "waitingForCpu", "disk", "network", "sleep", "lock", "pipe", "child", "other")


class Phase(Struct, frozen=True):
    """A phase of a thread, as it wrote it down."""

    kind: str
    began_ns: int
    ended_ns: int
    on_cpu_ns: int
    waited_ns: int
    thread: int = 0
    weight: float = 1.0

    @property
    def running(self) -> float:
        """The share on a CPU."""
        return self.on_cpu_ns / max(self.ended_ns - self.began_ns, self.on_cpu_ns, 1)

    @property
    def runnable(self) -> float:
        """The share on a CPU or waiting for one."""
        used_ns = self.on_cpu_ns + self.waited_ns
        return used_ns / max(self.ended_ns - self.began_ns, used_ns, 1)

    @property
    def is_wait(self) -> bool:
        """Whether the thread waits in it; a short wait for others is one for the interpreter."""
        blocked_ns = self.ended_ns - self.began_ns - self.on_cpu_ns - self.waited_ns
        if self.kind == FOR_OTHERS:
            return blocked_ns >= _MIN_WAIT_FOR_OTHERS_NS
        return self.kind in PARTS

    def stretches(self) -> "Iterator[Phase]":
        """The wait of a phase of a known kind, then the time on a CPU or waiting for one."""
        used_ns = self.on_cpu_ns + self.waited_ns
        blocked_until_ns = self.ended_ns - used_ns
        if self.kind not in PARTS or blocked_until_ns <= self.began_ns:
            yield self
        else:
            yield replace(self, ended_ns=blocked_until_ns, on_cpu_ns=0, waited_ns=0)
            yield replace(self, began_ns=blocked_until_ns)


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
    beside_ns = sum(each.on_cpu_ns for each in phases if each.kind == BESIDE)
    phases = _with_weights([each for each in phases if each.kind != BESIDE])
    working, phases = _split_off_working(phases)
    interpreted = _union(working)
    known_ns = float(sum(end_ns - begin_ns for begin_ns, end_ns in interpreted))
    on_cpu_ns = min(sum(each.on_cpu_ns for each in working), known_ns)
    _add(least, most, "onCpu", on_cpu_ns, on_cpu_ns)
    _add(least, most, "waitingForCpu", known_ns - on_cpu_ns, known_ns - on_cpu_ns)
    for length_ns, together in _moments(
        [
            part
            for each in phases
            for stretch in each.stretches()
            for part in _outside(stretch, interpreted)
        ]
    ):
        known_ns += length_ns
        busy = 1 - math.prod(1 - each.runnable for each in together)
        running = [each.running for each in together]
        upper = min(sum(running), busy)
        lower = max(running) if cpus > 1 else upper
        _add(least, most, "onCpu", length_ns * lower, length_ns * upper)
        _add(least, most, "waitingForCpu", length_ns * (busy - upper), length_ns * (busy - lower))
        weights = sum(each.weight for each in together)
        for each in together:
            blocked_ns = length_ns * (1 - busy) * each.weight / weights
            if each.kind in PARTS:
                _add(least, most, each.kind, blocked_ns, blocked_ns)
            else:
                known_ns -= blocked_ns
    for part in PARTS:
        if part == "onCpu":
            most[part] = min(most[part] + beside_ns, known_ns)
        else:
            least[part] = max(least[part] - beside_ns, 0.0)
    unknown_ns = max(1e9 * seconds - known_ns, 0.0)
    percent = 100 / (known_ns + unknown_ns)
    return {
        part: Part(percent * least[part], percent * (most[part] + unknown_ns)) for part in PARTS
    }


def as_level_1_knows(truth: Mapping[str, Part]) -> dict[str, Part]:
    """The true parts without those that only level 2 tells apart, which are in ``other``."""
    known = {part: truth[part] for part in OF_LEVEL_1}
    hidden = [truth[part] for part in truth if part not in known]
    unknown = Part(sum(part.least for part in hidden), sum(part.most for part in hidden))
    return {part: known.get(part, Part(0, 0)) for part in truth} | {"other": unknown}


def _with_weights(phases: Sequence[Phase]) -> list[Phase]:
    """The phases with what their waits held back, if all name their thread."""
    if not all(each.thread for each in phases):
        return list(phases)
    threads: dict[int, list[Phase]] = {}
    for each in sorted(phases, key=lambda each: each.began_ns):
        threads.setdefault(each.thread, []).append(each)
    weighted: list[Phase] = []
    for of_thread in threads.values():
        works_ns = [0]  # before the first wait, between two of them, after the last one
        for each in of_thread:
            if each.is_wait:
                works_ns.append(0)
            works_ns[-1] += each.on_cpu_ns
        waits = 0
        for each in of_thread:
            waits += each.is_wait
            held_back_ns = max(works_ns[max(waits - 1, 0)], works_ns[waits])
            weighted.append(replace(each, weight=1.0 + held_back_ns))
    return weighted


def _split_off_working(phases: Sequence[Phase]) -> tuple[list[Phase], list[Phase]]:
    """The phases in which a thread of an interpreter works, and of waits for others the ends in
    which they could run; and the other phases.
    """
    working: list[Phase] = []
    rest: list[Phase] = []
    for each in phases:
        if each.kind == INTERPRETED:
            working.append(each)
        elif each.kind == FOR_OTHERS:
            used_ns = each.on_cpu_ns + each.waited_ns
            began_ns = max(each.ended_ns - used_ns, each.began_ns)
            working.append(replace(each, kind=INTERPRETED, began_ns=began_ns))
        else:
            rest.append(each)
    return working, rest


def _union(phases: Sequence[Phase]) -> list[tuple[int, int]]:
    """The stretches in which at least one of the phases goes on."""
    union: list[tuple[int, int]] = []
    for each in sorted(phases, key=lambda each: each.began_ns):
        if union and each.began_ns <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], each.ended_ns))
        else:
            union.append((each.began_ns, each.ended_ns))
    return union


def _outside(phase: Phase, stretches: Sequence[tuple[int, int]]) -> Iterator[Phase]:
    """The parts of a phase outside the stretches; each has its share of the counters."""
    length_ns = max(phase.ended_ns - phase.began_ns, 1)
    began_ns = phase.began_ns
    first = bisect.bisect_left(stretches, (began_ns, began_ns))
    for begin_ns, end_ns in (*stretches[max(first - 1, 0) :], (phase.ended_ns, phase.ended_ns)):
        until_ns = min(begin_ns, phase.ended_ns)
        if until_ns > began_ns:
            share = (until_ns - began_ns) / length_ns
            yield replace(
                phase,
                began_ns=began_ns,
                ended_ns=until_ns,
                on_cpu_ns=round(share * phase.on_cpu_ns),
                waited_ns=round(share * phase.waited_ns),
            )
        began_ns = max(began_ns, end_ns)
        if began_ns >= phase.ended_ns:
            return


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
