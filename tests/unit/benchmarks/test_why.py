"""The comparison of time breakdowns and call stacks with programs whose phases are known."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import why_programs
from benchmarks.why import (
    KINDS,
    PARTS,
    SCENARIOS,
    Row,
    breakdown_figures,
    phase_arguments,
    right_samples,
    said_parts,
    stack_figures,
    table,
    true_parts,
)
from benchmarks.why_batch import PhaseTruth, answering_server, read_truth
from profiler.record.activity_model import StacksLine, StackStep, TimeBreakdown
from tests.fakes import seconds

STARTED_NS = seconds(1_000)


def phase(name: str, began: float, ended: float, cpu: float = 0, wait: float = 0) -> PhaseTruth:
    began_ns, ended_ns = STARTED_NS + seconds(began), STARTED_NS + seconds(ended)
    return PhaseTruth(phase=name, began_ns=began_ns, ended_ns=ended_ns, cpu_seconds=cpu, wait_seconds=wait)


def step(offset: float, duration: float, **stacks: int) -> StackStep:
    folded = {f"main (why_programs.py);{name} (why_programs.py) [waiting]": count for name, count in stacks.items()}
    return StackStep(offset_ms=round(offset * 1000), duration_ms=round(duration * 1000), stacks=folded)


def line(*steps: StackStep) -> StacksLine:
    return StacksLine(type="task.stacks", task_id="1", container="batch", steps=steps)


def test_a_phase_is_on_a_cpu_then_waits_for_one_and_the_rest_is_its_kind() -> None:
    phases = [phase("compute", 0, 4, cpu=3, wait=2), phase("receive", 4, 10, cpu=1)]
    parts = true_parts(phases, sees_calls=True)
    assert parts == pytest.approx({**dict.fromkeys(PARTS, 0), "onCpu": 40, "waitingForCpu": 10, "network": 50})


def test_more_than_one_thread_on_a_cpu_counts_as_the_whole_time() -> None:
    parts = true_parts([phase("computing_process", 0, 4, cpu=7, wait=1)], sees_calls=True)
    assert parts["onCpu"] == 100


@pytest.mark.parametrize(("name", "part"), [("read_disk", "disk"), ("receive", "other"), ("sleep", "other")])
def test_without_privileges_only_the_disk_is_known(name: str, part: str) -> None:
    assert true_parts([phase(name, 0, 1)], sees_calls=False)[part] == 100


def test_the_parts_of_the_record_are_those_that_it_has() -> None:
    assert said_parts(TimeBreakdown(on_cpu_percent=40, network_percent=60, covered_percent=99)) == {
        "onCpu": 40,
        "network": 60,
    }


def test_a_sample_is_right_if_its_innermost_own_function_runs_at_that_time() -> None:
    phases = [phase("receive", 0, 10), phase("sleep", 10, 20)]
    stacks = line(step(0, 10, receive=9, sleep=1), step(10, 10, sleep=8, receive=2))
    assert right_samples(phases, STARTED_NS, stacks) == (17, 20)


def test_a_sample_at_a_change_of_phases_may_name_both() -> None:
    phases = [phase("receive", 0, 10), phase("sleep", 10, 20)]
    assert right_samples(phases, STARTED_NS, line(step(9, 2, receive=1, sleep=1))) == (2, 2)


def test_a_sample_without_an_own_function_is_wrong() -> None:
    foreign = StackStep(offset_ms=0, duration_ms=1000, stacks={"<module> (other.py)": 3})
    assert right_samples([phase("sleep", 0, 1)], STARTED_NS, line(foreign)) == (0, 3)


def test_differences_of_over_three_points_are_bold() -> None:
    right = Row(scenario="a", mode="run", truth={"sleep": 100}, said={"sleep": 98, "onCpu": 2})
    wrong = Row(scenario="b", mode="run", truth={"sleep": 100}, said={"sleep": 96, "onCpu": 4})
    assert "**" not in table([right])
    assert "**4.0**" in table([right, wrong])
    (figure,) = breakdown_figures([right, wrong], [], [])
    assert (figure.value, figure.is_met, figure.note) == (4, False, "1 of 2 programs")


def test_the_worst_program_is_named() -> None:
    (figure,) = stack_figures({"a": (10, 10), "b": (8, 10)})
    assert (figure.value, figure.note) == (90, "18 of 20; least in b: 80 %")


def test_each_phase_has_a_kind_and_each_scenario_known_phases() -> None:
    assert KINDS.keys() == why_programs.PHASES.keys() | {"start"}
    assert {name for scenario in SCENARIOS for name in scenario.phases} <= KINDS.keys()
    assert phase_arguments(SCENARIOS[2], 30) == ["read_disk:20.000", "sleep:10.000"]


def test_a_phase_in_which_the_program_was_killed_ends_with_the_reading(tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    truth.write_text(json.dumps({"began": "grow", "at_ns": 5}) + "\n")
    (killed,) = read_truth(truth)
    assert (killed.phase, killed.began_ns) == ("grow", 5)
    assert killed.ended_ns > 5


def test_the_phases_run_and_write_their_truth(tmp_path: Path) -> None:
    truth, disk_file = tmp_path / "truth", tmp_path / "disk"
    disk_file.write_bytes(os.urandom(1 << 20))
    names = [name for name in why_programs.PHASES if name not in ("grow", "read_disk")]  # tmpfs may have no O_DIRECT
    with answering_server() as port:
        program = [sys.executable, why_programs.__file__, str(truth), str(port), str(disk_file)]
        subprocess.run([*program, *(f"{name}:0.02" for name in names)], check=True, timeout=60)
    assert [written.phase for written in read_truth(truth)] == ["start", *names]
