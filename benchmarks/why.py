"""Compare the time breakdown and the call stacks with programs whose phases are known.

    python -m benchmarks.why [--quick] [--scenario NAME …] [--json FILE]

The programs (benchmarks/why_programs.py) write down themselves when each phase began and ended, how much CPU time it
used and how long it waited for a CPU. Each program runs by ``task-profiler run``, beside a monitor with ``SYS_PTRACE``
and beside one without. The rest of a phase's time belongs to the phase's kind. A run's parts and a program's parts are
compared in percent of the wall time.

Limits on CPU, memory and disk need root and cgroup v1; without them these programs are left out.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.figures import BenchmarkResult, Figure, markdown_table, print_and_save
from benchmarks.why_batch import MODES, Limits, Mode, Observation, PhaseTruth, can_limit, observe
from profiler.core.timestamps import parse_ns
from profiler.record.activity_model import WAITING_SUFFIX, StacksLine, TimeBreakdown, WaitKind

MAX_POINTS = 3.0
_MIN_RIGHT_PERCENT = 95.0
_MAX_WAIT_DIFFERENCE_PERCENT = 3.0
_PROGRAM_FILE = " (why_programs.py)"
_QUICK_DIVISOR = 4

# What a phase waits for, where it is not on a CPU.
KINDS: dict[str, WaitKind] = {
    "start": "other",
    "compute": "other",
    "compute_half": "sleep",
    "receive": "network",
    "receive_with_timeout": "network",
    "receive_in_event_loop": "network",
    "read_disk": "disk",
    "wait_for_lock": "lock",
    "sleep": "sleep",
    "read_pipe": "pipe",
    "pause": "other",
    "run_child": "child",
    "threads_of_many_kinds": "network",
    "processes_of_many_kinds": "network",
    "sleeping_processes": "sleep",
    "computing_process": "network",
    "grow": "sleep",
}
# The innermost of a program's own functions in a phase, where that is not the phase itself.
_OWN_FUNCTIONS = {
    "compute": {"compute", "_spin"},
    "compute_half": {"compute_half", "_spin"},
    "receive": {"receive", "_ask"},
    "receive_with_timeout": {"receive_with_timeout", "_ask"},
    "receive_in_event_loop": {"receive_in_event_loop", "read"},
    "run_child": {"run_child", "pause"},
    "threads_of_many_kinds": {"threads_of_many_kinds", "receive", "sleep", "wait_for_lock"},
    "processes_of_many_kinds": {"_in_processes", "receive", "sleep", "pause"},
    "sleeping_processes": {"_in_processes", "sleep"},
    "computing_process": {"_in_processes", "_spin", "compute", "receive"},
}
PARTS = ("onCpu", "waitingForCpu", "disk", "network", "sleep", "lock", "pipe", "child", "other")
_KNOWN_WITHOUT_PRIVILEGES = frozenset({"disk", "other"})


class Scenario(Struct, frozen=True, kw_only=True):
    """A program, and the surroundings that it needs. ``phases`` are names and their share of the duration."""

    name: str
    phases: Mapping[str, float]
    limits: Limits = Limits()
    has_neighbour: bool = False
    modes: tuple[Mode, ...] = MODES
    seconds: float = 60


SCENARIOS = (
    Scenario(
        name="one process",
        phases={
            "compute": 1,
            "receive": 1,
            "receive_with_timeout": 1,
            "receive_in_event_loop": 1,
            "wait_for_lock": 1,
            "sleep": 1,
            "read_pipe": 1,
            "run_child": 1,
            "compute_half": 1,
        },
    ),
    Scenario(
        name="threads and processes",
        phases={
            "threads_of_many_kinds": 1,
            "processes_of_many_kinds": 1,
            "sleeping_processes": 1,
            "computing_process": 1,
        },
        seconds=40,
    ),
    Scenario(name="slow disk", phases={"read_disk": 2, "sleep": 1}, limits=Limits(has_slow_disk=True), seconds=30),
    Scenario(name="CPU limit", phases={"compute": 3, "receive": 1}, limits=Limits(cpus=0.25), seconds=40),
    Scenario(name="busy neighbour", phases={"compute": 2, "sleep": 1}, has_neighbour=True, seconds=30),
    Scenario(
        name="growth until SIGKILL", phases={"grow": 1}, limits=Limits(memory_mib=400), modes=("run",), seconds=30
    ),
)


class Row(Struct, frozen=True, kw_only=True):
    """A scenario in one mode: the program's parts, and the record's."""

    scenario: str
    mode: Mode
    truth: Mapping[str, float]
    said: Mapping[str, float]

    @property
    def is_right(self) -> bool:
        """Whether each part is within 3 points."""
        return self.largest_difference <= MAX_POINTS

    @property
    def largest_difference(self) -> float:
        """The largest difference of a part, in points."""
        return max(abs(self.truth.get(part, 0) - self.said.get(part, 0)) for part in PARTS)


def is_privileged(mode: Mode) -> bool:
    """Whether the profiler sees system calls."""
    return mode != "monitor without SYS_PTRACE"


def true_parts(phases: Sequence[PhaseTruth], *, sees_calls: bool) -> dict[str, float]:
    """The parts of a program's wall time in percent, as the record defines them."""
    seconds = dict.fromkeys(PARTS, 0.0)
    for phase in phases:
        on_cpu = min(phase.seconds, phase.cpu_seconds)
        waiting = min(phase.seconds - on_cpu, phase.wait_seconds)
        kind = KINDS[phase.phase]
        seconds["onCpu"] += on_cpu
        seconds["waitingForCpu"] += waiting
        seconds[kind if sees_calls or kind in _KNOWN_WITHOUT_PRIVILEGES else "other"] += (
            phase.seconds - on_cpu - waiting
        )
    total = sum(seconds.values())
    return {part: 100 * value / total for part, value in seconds.items()}


def said_parts(breakdown: TimeBreakdown) -> dict[str, float]:
    """The parts of the record in percent."""
    fields = msgspec.to_builtins(breakdown)
    return {part: fields[f"{part}Percent"] for part in PARTS if f"{part}Percent" in fields}


def right_samples(phases: Sequence[PhaseTruth], started_ns: int, line: StacksLine) -> tuple[int, int]:
    """The number of samples that name a function of their time, and the number of all samples."""
    right = everything = 0
    for step in line.steps:
        from_ns = started_ns + step.offset_ms * 1_000_000
        to_ns = from_ns + step.duration_ms * 1_000_000
        running = [phase for phase in phases if phase.began_ns < to_ns and phase.ended_ns > from_ns]
        expected = {name for phase in running for name in _OWN_FUNCTIONS.get(phase.phase, {phase.phase})}
        for stack, count in step.stacks.items():
            frames = stack.removesuffix(WAITING_SUFFIX).split(";")
            own = [frame.removesuffix(_PROGRAM_FILE) for frame in frames if frame.endswith(_PROGRAM_FILE)]
            everything += count
            right += count * bool(own and own[-1] in expected)
    return right, everything


def duration_of(scenario: Scenario, *, quick: bool) -> float:
    """The seconds of a scenario."""
    return scenario.seconds / (_QUICK_DIVISOR if quick else 1)


def phase_arguments(scenario: Scenario, seconds: float) -> list[str]:
    """The phases with their durations, as the program expects them."""
    shares = sum(scenario.phases.values())
    return [f"{name}:{seconds * share / shares:.3f}" for name, share in scenario.phases.items()]


def observe_scenario(scenario: Scenario, mode: Mode, *, quick: bool) -> Observation:
    """Run a scenario in one mode."""
    seconds = duration_of(scenario, quick=quick)
    interval = 1 / _QUICK_DIVISOR if quick else 1
    return observe(
        phase_arguments(scenario, seconds),
        mode,
        limits=scenario.limits,
        has_neighbour=scenario.has_neighbour,
        interval_seconds=interval,
    )


def row_of(scenario: Scenario, mode: Mode, seen: Observation) -> Row:
    """Compare an observation's parts."""
    breakdown = seen.record.time_breakdown
    if breakdown is None:
        raise SystemExit(f"{scenario.name}, {mode}: the record has no time breakdown.")
    truth = true_parts(seen.phases, sees_calls=is_privileged(mode))
    return Row(scenario=scenario.name, mode=mode, truth=truth, said=said_parts(breakdown))


def wait_difference_percent(seen: Observation) -> float | None:
    """The difference of the CPU wait from the time that the control group was throttled; None if it was not limited."""
    waited = seen.record.metrics.cpu_wait_seconds
    if waited is None or not seen.throttled_seconds:
        return None
    return 100 * abs(waited - seen.throttled_seconds) / seen.throttled_seconds


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table: what the record says, and the truth. Differences of over 3 points are bold."""
    lines = []
    for row in rows:
        largest = f"{row.largest_difference:.1f}"
        cells = [_cell(row.said.get(part), row.truth.get(part)) for part in PARTS]
        lines.append([row.scenario, row.mode, *cells, largest if row.is_right else f"**{largest}**"])
    head = ["program", "by", *PARTS, "largest difference"]
    return markdown_table(head, lines, right_aligned=range(2, len(head)))


def _cell(said: float | None, truth: float | None) -> str:
    if not said and not truth:
        return ""
    return f"{said or 0:.1f} ({truth or 0:.1f})"


def named_target_percent(row: Row, seen: Observation) -> float | None:
    """The time with the right address or path, as a share of the time for network and disk.

    None without such time, and without the privilege to see it.
    """
    breakdown, true_percent = seen.record.time_breakdown, row.truth.get("network", 0) + row.truth.get("disk", 0)
    if breakdown is None or not true_percent or not is_privileged(row.mode):
        return None
    right = {f"127.0.0.1:{seen.port}", seen.disk_file}
    return 100 * sum(target.percent for target in breakdown.waiting_for if target.target in right) / true_percent


def breakdown_figures(rows: Sequence[Row], named_percents: Sequence[float], waits: Sequence[float]) -> Iterator[Figure]:
    """The differences of the parts, of the targets and of the CPU wait."""
    for mode in MODES:
        differences = [row.largest_difference for row in rows if row.mode == mode]
        if differences:
            yield Figure(
                name=f"largest difference of a part, {mode}",
                value=max(differences),
                unit="points",
                at_most=MAX_POINTS,
                note=f"{sum(value <= MAX_POINTS for value in differences)} of {len(differences)} programs",
            )
    if named_percents:
        yield Figure(
            name="network and disk time with the right target, least", value=min(named_percents), unit="%", digits=1
        )
    if waits:
        yield Figure(
            name="wait for a CPU, difference from the time that the group was throttled",
            value=max(waits),
            unit="%",
            at_most=_MAX_WAIT_DIFFERENCE_PERCENT,
        )


def stack_figures(samples: Mapping[str, tuple[int, int]]) -> Iterator[Figure]:
    """The share of the samples that name a function of their time, in all programs and in the worst."""
    right, everything = (sum(numbers) for numbers in zip(*samples.values(), strict=True))
    worst, (worst_right, worst_all) = min(samples.items(), key=lambda item: item[1][0] / item[1][1])
    yield Figure(
        name="stack samples that name the right function",
        value=100 * right / everything,
        unit="%",
        digits=1,
        at_least=_MIN_RIGHT_PERCENT,
        note=f"{right} of {everything}; least in {worst}: {100 * worst_right / worst_all:.0f} %",
    )


def measure(scenarios: Sequence[Scenario], *, quick: bool) -> BenchmarkResult:
    """Run all programs in all modes that this machine allows."""
    rows: list[Row] = []
    named_percents: list[float] = []
    waits: list[float] = []
    samples: dict[str, tuple[int, int]] = {}
    for scenario in scenarios:
        for mode in scenario.modes:
            if not can_limit() and (mode != "run" or scenario.limits != Limits()):
                print(f"{scenario.name}, {mode}: not measured, because it needs root and cgroup v1")
                continue
            seen = observe_scenario(scenario, mode, quick=quick)
            row = row_of(scenario, mode, seen)
            rows.append(row)
            print(table([row]), flush=True)
            named = named_target_percent(row, seen)
            wait = wait_difference_percent(seen) if scenario.limits.cpus else None
            named_percents += [] if named is None else [named]
            waits += [] if wait is None else [wait]
            started_ns = parse_ns(seen.record.started_at)
            if seen.stacks is not None and started_ns is not None:
                samples[f"{scenario.name}, {mode}"] = right_samples(seen.phases, started_ns, seen.stacks)
    measured = {name: counts for name, counts in samples.items() if counts[1]}
    figures = (
        *breakdown_figures(rows, named_percents, waits),
        *(stack_figures(measured) if measured else ()),
    )
    return BenchmarkResult(title="Where the time went", figures=figures, tables=(table(rows),))


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(description="Compare time breakdown and call stacks with known programs.")
    parser.add_argument("--quick", action="store_true", help="a quarter of the time, with a quarter of the interval")
    parser.add_argument("--scenario", nargs="+", choices=names, default=names, help="programs to run")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in options.scenario]
    print_and_save(measure(scenarios, quick=options.quick), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
