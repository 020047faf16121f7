"""The time breakdown and the call stacks of programs whose phases are known (`make bench-why`).

The programs (known_programs.py) write down themselves when each phase began and ended, how much CPU
time it used and how long it waited for a CPU. Each program runs by ``task-profiler run``, beside a
monitor with ``SYS_PTRACE`` and beside one without. The rest of a phase's time belongs to the
phase's kind. Another witness of the wait for a CPU is the time for which a limited control group
was throttled.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from profiler.core.timestamps import parse_ns
from profiler.record.activity_model import WAITING_SUFFIX, WaitKind
from profiler.record.cpu_wait import is_cpu_wait_partial
from profiler.record.record_model import decode
from profiler.record.stacks_line import StacksLine
from tests.simulation import known_programs
from tests.simulation.known_runs import (
    MODES,
    Limits,
    Mode,
    Observation,
    PhaseTruth,
    answering_server,
    can_limit,
    observe,
    read_truth,
)
from tests.values import present
from tools.waiting import LIMIT_SECONDS

_MAX_POINTS = 3.0
_MIN_RIGHT_PERCENT = 95.0
_MAX_WAIT_DIFFERENCE_PERCENT = 3.0
# When its quota is renewed, a group waits for the end of the time slice of another program, which
# is no throttled time.
_MAX_SLICE_SECONDS = 0.004
_PROGRAM_FILE = " (known_programs.py)"
_QUICK_DIVISOR = 4 if os.environ.get("QUICK") else 1
_HERDS = (128, 300, 600, 2400)

# A thread or a process computes and waits for the network in turn, beside others that only wait.
_BYSTANDERS = (
    *("ask_again", "ask_beside_heartbeat", "ask_rarely_beside_heartbeat", "ask_beside_progress"),
    *("ask_in_substitution", "ask_in_pipeline", "pool_of_one"),
)

# What a phase waits for, where it is not on a CPU.
_KINDS: dict[str, WaitKind] = {
    **dict.fromkeys(("start", "compute", "pause"), "other"),
    **dict.fromkeys(
        ("receive", "threads_of_many_kinds", "processes_of_many_kinds", "computing_process"),
        "network",
    ),
    **dict.fromkeys(("sleep", "compute_half", "pool_of_32", "grow"), "sleep"),
    **dict.fromkeys((f"herd_{threads}" for threads in _HERDS), "sleep"),
    **dict.fromkeys(_BYSTANDERS, "network"),
    **dict.fromkeys(("read_disk", "read_disk_by_ring"), "disk"),
    "wait_for_lock": "lock",
    "wait_for_held_lock": "network",
    "wait_for_event": "sleep",
    **dict.fromkeys(("read_pipe", "read_socket_pair"), "pipe"),
    **dict.fromkeys(("run_child", "short_processes"), "child"),
}
# The innermost of a program's own functions in a phase, where that is not the phase itself.
_OWN_FUNCTIONS = {
    "compute": {"_spin"},
    "compute_half": {"compute_half", "_spin"},
    "receive": {"receive", "_ask"},
    "run_child": {"run_child", "_run_program", "pause"},
    "read_socket_pair": {"read_socket_pair", "pause"},
    "wait_for_held_lock": {"wait_for_held_lock", "hold", "receive", "_ask"},
    "threads_of_many_kinds": {"_in_threads", "receive", "sleep", "wait_for_event"},
    "processes_of_many_kinds": {"_in_processes", "receive", "sleep", "pause"},
    "computing_process": {"_in_processes", "_spin", "receive"},
    **{f"herd_{threads}": {"_herd", "_in_threads", "work"} for threads in _HERDS},
    **{
        name: {"ask_again", "_spin", "stand_by", "_show_progress", "_run_program", name}
        for name in _BYSTANDERS
    },
    "pool_of_32": {"pool_of_32", "_in_processes", "_compute_together", "_sleep_until"},
}
_PARTS = ("onCpu", "waitingForCpu", "disk", "network", "sleep", "lock", "pipe", "child", "other")
_KNOWN_WITHOUT_PRIVILEGES = frozenset({"disk", "other"})
# A thread that waits for the requests of an io_uring sleeps interruptibly, as for anything else.
_SHOWN_BY_CALLS = frozenset({"read_disk_by_ring"})


class Scenario(Struct, frozen=True, kw_only=True):
    """A program, and the surroundings that it needs.

    ``phases`` are names and their share of the duration.
    """

    phases: Mapping[str, float]
    seconds: float
    limits: Limits = Limits()
    modes: tuple[Mode, ...] = MODES

    def arguments(self) -> list[str]:
        """The phases with their durations, as the program expects them."""
        unit_seconds = self.seconds / _QUICK_DIVISOR / sum(self.phases.values())
        return [f"{name}:{unit_seconds * share:.3f}" for name, share in self.phases.items()]


_ONE_PROCESS = (
    "compute",
    "receive",
    "wait_for_lock",
    "sleep",
    "read_pipe",
    "run_child",
    "compute_half",
)
_WITH_OTHERS = ("wait_for_event", "wait_for_held_lock", "read_socket_pair")
_MANY = ("threads_of_many_kinds", "processes_of_many_kinds", "computing_process")
_SCENARIOS = {
    "one process": Scenario(phases=dict.fromkeys(_ONE_PROCESS, 1), seconds=60),
    "timeouts and socket pairs": Scenario(phases=dict.fromkeys(_WITH_OTHERS, 1), seconds=30),
    "threads and processes": Scenario(phases=dict.fromkeys(_MANY, 1), seconds=40),
    **{
        f"{threads} threads that wake together": Scenario(phases={f"herd_{threads}": 1}, seconds=40)
        for threads in _HERDS
    },
    "work beside others": Scenario(phases=dict.fromkeys(_BYSTANDERS, 1), seconds=105),
    "pool of 32 processes": Scenario(phases={"pool_of_32": 1}, seconds=30),
    "slow disk": Scenario(
        phases={"read_disk": 2, "read_disk_by_ring": 2, "sleep": 1},
        limits=Limits(has_slow_disk=True),
        seconds=50,
    ),
    "CPU limit": Scenario(
        phases={"compute": 3, "receive": 1}, limits=Limits(cpus=0.25), seconds=40
    ),
    "growth until SIGKILL": Scenario(
        phases={"grow": 1}, limits=Limits(memory_mib=400), modes=("run",), seconds=30
    ),
}


def true_parts(phases: Sequence[PhaseTruth], *, sees_calls: bool) -> dict[str, float]:
    """The parts of a program's wall time in percent, as the record defines them."""
    spent = dict.fromkeys(_PARTS, 0.0)
    for phase in phases:
        on_cpu = min(phase.seconds, phase.cpu_seconds)
        waiting = min(phase.seconds - on_cpu, phase.wait_seconds)
        kind = _KINDS[phase.phase]
        is_shown = kind in _KNOWN_WITHOUT_PRIVILEGES and phase.phase not in _SHOWN_BY_CALLS
        if not (sees_calls or is_shown):
            kind = "other"
        spent["onCpu"] += on_cpu
        spent["waitingForCpu"] += waiting
        spent[kind] += phase.seconds - on_cpu - waiting
    total = sum(spent.values())
    return {part: 100 * value / total for part, value in spent.items()}


def right_samples(
    phases: Sequence[PhaseTruth], started_ns: int, line: StacksLine
) -> tuple[int, int]:
    """The number of samples that name a function of their time, and the number of all samples."""
    right = everything = 0
    for step in line.steps:
        from_ns = started_ns + step.offset_ms * 1_000_000
        to_ns = from_ns + step.duration_ms * 1_000_000
        running = [phase for phase in phases if phase.began_ns < to_ns and phase.ended_ns > from_ns]
        expected = {
            name for phase in running for name in _OWN_FUNCTIONS.get(phase.phase, {phase.phase})
        }
        for stack, count in step.stacks.items():
            frames = stack.removesuffix(WAITING_SUFFIX).split(";")
            own = [
                frame.removesuffix(_PROGRAM_FILE)
                for frame in frames
                if frame.endswith(_PROGRAM_FILE)
            ]
            everything += count
            right += count * bool(
                own and own[-1].rpartition(".")[2] in expected
            )  # qualified since Python 3.11
    return right, everything


def problems(seen: Observation, *, sees_calls: bool) -> list[str]:
    """What the record says otherwise than the program and the kernel."""
    breakdown, found = present(seen.record.time_breakdown), []
    fields, truth = msgspec.to_builtins(breakdown), true_parts(seen.phases, sees_calls=sees_calls)
    said = {part: fields.get(f"{part}Percent", 0) for part in _PARTS}
    differences = {part: said[part] - truth[part] for part in _PARTS}
    shown = (
        f"{part} {said[part]:.1f} ({truth[part]:.1f})"
        for part in _PARTS
        if said[part] or truth[part]
    )
    sys.stdout.write("; ".join(shown) + "\n")
    if max(map(abs, differences.values())) > _MAX_POINTS:
        found.append(f"differences of the parts in points: {differences}")
    waited, throttled = seen.record.metrics.cpu_wait_seconds, seen.throttled_seconds
    if waited is not None and throttled:
        tolerance = throttled * _MAX_WAIT_DIFFERENCE_PERCENT / 100
        longest = throttled + tolerance + seen.throttles * _MAX_SLICE_SECONDS
        if not throttled - tolerance <= waited <= longest:
            found.append(f"{waited:.2f} s wait for a CPU, and throttled for {throttled:.2f} s")
    targets = {target.target for target in breakdown.waiting_for}
    if (
        sees_calls
        and truth["network"] + truth["disk"]
        and not targets & {f"127.0.0.1:{seen.port}", seen.disk_file}
    ):
        found.append(f"the target of the network or the disk is missing: {targets}")
    return found


@pytest.mark.accuracy
@pytest.mark.parametrize("mode", MODES)
def test_the_record_says_what_the_programs_did(mode: Mode) -> None:
    found: dict[str, list[str]] = {}
    right = everything = 0
    for name, scenario in _SCENARIOS.items():
        if mode not in scenario.modes or (
            not can_limit() and (mode != "run" or scenario.limits != Limits())
        ):
            continue  # limits and the monitor's group need root and version 1 of the control groups
        sys.stdout.write(f"\n{name}, {mode}\n")
        seen = observe(
            scenario.arguments(), mode, limits=scenario.limits, interval_seconds=1 / _QUICK_DIVISOR
        )
        if wrong := problems(seen, sees_calls=mode != "monitor without SYS_PTRACE"):
            found[name] = wrong
        started_ns = parse_ns(seen.record.started_at)
        if seen.stacks is not None and started_ns is not None:
            counts = right_samples(seen.phases, started_ns, seen.stacks)
            sys.stdout.write(f"{counts[0]} of {counts[1]} stack samples name the right function\n")
            right, everything = right + counts[0], everything + counts[1]
    assert found == {}
    assert 100 * right >= _MIN_RIGHT_PERCENT * everything


@pytest.mark.accuracy
@pytest.mark.skipif(not can_limit(), reason="needs root and version 1 of the control groups")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cpus", [0.25, None])
def test_what_nobody_saw_of_short_processes_is_no_kind(mode: Mode, cpus: float | None) -> None:
    """Without a limit, programs that compute on every CPU make the processes wait."""
    others: list[subprocess.Popen[bytes]] = []
    if cpus is None:
        compute = "while True: sum(range(1000))"
        for _ in range(2 * (os.cpu_count() or 1)):
            others.append(subprocess.Popen([sys.executable, "-c", compute]))
    try:
        seen = observe(
            [f"short_processes:{40 / _QUICK_DIVISOR}"],
            mode,
            limits=Limits(cpus=cpus),
            interval_seconds=1 / _QUICK_DIVISOR,
        )
    finally:
        for process in others:
            process.kill()
            process.wait()
    truth = true_parts(seen.phases, sees_calls=mode != "monitor without SYS_PTRACE")
    made = present(seen.record.time_breakdown)
    fields = msgspec.to_builtins(made)
    said = {part: fields.get(f"{part}Percent", 0) for part in _PARTS}
    sys.stdout.write(f"\n{mode}: {said} ({truth}), {made.covered_percent} covered\n")
    for part in ("onCpu", "waitingForCpu", "disk", "network", "sleep", "lock", "pipe", "child"):
        assert said[part] <= truth[part] + _MAX_POINTS, part
    assert abs(said["onCpu"] - truth["onCpu"]) <= _MAX_POINTS
    assert said["waitingForCpu"] >= truth["waitingForCpu"] / 2


# 600 threads wake together once a second and end. The program writes down the sum of what they
# waited for a CPU.
_HERD_PROGRAM = """
import sys, threading, time
sys.setswitchinterval(600)
began, waited_ns = time.monotonic(), []
def waited():
    with open("/proc/thread-self/schedstat") as counters:
        waited_ns.append(int(counters.read().split()[1]))
def work():
    for second in (1, 2, 3):
        time.sleep(max(began + second - time.monotonic(), 0))
        sum(range(3000))
    waited()
threads = [threading.Thread(target=work) for _ in range(600)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
waited()
with open(sys.argv[1], "w") as truth:
    truth.write(str(sum(waited_ns) / 1e9))
"""


@pytest.mark.accuracy
def test_what_the_threads_of_a_herd_waited_is_complete_or_a_lower_bound(tmp_path: Path) -> None:
    truth, output = tmp_path / "truth", tmp_path / "report.json"
    options = ("--output", str(output), "--no-history")
    program = (sys.executable, "-c", _HERD_PROGRAM, str(truth))
    subprocess.run(
        [sys.executable, "-m", "profiler", "run", *options, "--", *program],
        check=True,
        timeout=LIMIT_SECONDS,
    )
    record, waited = (
        decode(output.read_bytes().splitlines()[-1]).record,
        float(truth.read_text()),
    )
    said = present(record.metrics.cpu_wait_seconds)
    sys.stdout.write(
        f"\nherd: {said:.2f} s of {waited:.2f} s, partial: {is_cpu_wait_partial(record)}\n"
    )
    assert said <= waited * 1.03
    assert is_cpu_wait_partial(record) or said >= waited * 0.97


@pytest.mark.slow
def test_each_phase_runs_and_writes_its_truth(tmp_path: Path) -> None:
    assert _KINDS.keys() == known_programs.PHASES.keys() | {"start"}
    truth, disk_file = tmp_path / "truth", tmp_path / "disk"
    disk_file.write_bytes(bytes(1 << 20))
    left_out = ("grow", "read_disk", "read_disk_by_ring")  # tmpfs may have no O_DIRECT
    names = [name for name in known_programs.PHASES if name not in left_out]
    with answering_server() as port:
        program = [sys.executable, known_programs.__file__, str(truth), str(port), str(disk_file)]
        subprocess.run(
            [*program, *(f"{name}:0.02" for name in names)], check=True, timeout=LIMIT_SECONDS
        )
    assert [written.phase for written in read_truth(truth)] == ["start", *names]
