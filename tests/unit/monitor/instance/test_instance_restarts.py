"""Monitors of an instance that follow one another: each run has one report, however they end.

A monitor that is stopped leaves a checkpoint of each task that goes on; one that is killed leaves
nothing, and may be killed while it writes its last lines.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.instance_lives import Instance, Life
from tests.instance_world import FakeContainer

TASKS = 60


def boxes_of(seed: int) -> list[FakeContainer]:
    picks = random.Random(seed)
    boxes = []
    for number in range(TASKS):
        start = picks.uniform(0, 60)
        end = start + picks.choice([0.4, 3, 20, 90, 500])
        boxes.append(
            FakeContainer(task=f"{number:02}", runs=((start, end),), exit_code=picks.choice([0, 3]))
        )
    return boxes


LIVES = {
    "stopped once": [Life(0, 40), Life(42, 200)],
    "killed once": [Life(0, 40, is_killed=True), Life(42, 200)],
    "killed at its tenth line": [Life(0, 40, lines=10), Life(42, 200)],
    "away for a minute": [Life(0, 30), Life(90, 200)],
    "restarted in a loop": [
        *(Life(at, at + 2, is_killed=at % 3 == 0) for at in range(0, 60, 3)),
        Life(60, 200),
    ],
}


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("lives", LIVES.values(), ids=LIVES.keys())
def test_each_run_has_one_report_however_its_monitors_end(
    lives: Sequence[Life], tmp_path: Path
) -> None:
    boxes = boxes_of(len(lives))
    instance = Instance(boxes, tmp_path)
    for life in lives:
        instance.live(life, put_seconds=5)
    reports = instance.reports()
    for box in boxes:
        end = box.runs[0][1] or 0
        assert reports[box.task] == (1 if end < 195 else 0), (box.task, box.runs)
    for line in instance.lines():
        box = boxes[int(line["record"]["taskId"])]
        assert line["record"].get("exitCode") == (
            box.exit_code if line["type"] == "task.report" else None
        )


def test_a_stop_leaves_a_report_or_a_checkpoint_of_each_of_sixty_runs(tmp_path: Path) -> None:
    """Within the 30 seconds of ECS, although CloudWatch Logs refuses each report."""
    boxes = boxes_of(7)
    instance = Instance(boxes, tmp_path)
    instance.streams.refused = True
    fakes = instance.live(Life(0, 40), put_seconds=20)
    assert fakes.now < 40 + 30
    reports, checkpoints = instance.reports(), instance.checkpoints()
    ended = {box.task for box in boxes if (box.runs[0][1] or 0) < 40}
    begun = {box.task for box in boxes if box.runs[0][0] < 39}
    assert set(reports) == ended
    assert set(reports.values()) == {1}
    assert sorted(line["record"]["taskId"] for line in checkpoints) == sorted(begun - ended)
    second = instance.live(Life(41, 50))
    assert set(instance.reports()) > ended
    assert set(instance.reports().values()) == {1}
    assert second.now < 50 + 30


def test_a_missing_log_stream_costs_no_other_run(tmp_path: Path) -> None:
    boxes = [FakeContainer(task=f"{number}", runs=((2.0, 12.0),)) for number in range(5)]
    instance = Instance(boxes, tmp_path)
    instance.streams.missing = "ecs/batch/3"
    instance.live(Life(0, 20))
    assert {target.stream for target, _ in instance.streams.lines} == {
        f"ecs/batch/{number}" for number in (0, 1, 2, 4)
    }
    (printed,) = map(json.loads, instance.output.lines)
    assert printed["record"]["taskId"] == "3"
