"""The table of a real GPU's programs finds what is wrong: played with tapes, whose truth is known."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.gpu.beside_truth import ASKED, Asked, Row, sentences_of
from tests.gpu.known_programs import PROGRAMS
from tests.gpu_runs import gpu_run

SHORT = {"used_seconds": 0.197, "first_seconds": 4.1, "held_mb": 838.0}


def row(tape: str, asked: Asked, truth: Mapping[str, Any], **more: Any) -> Row:
    record = gpu_run(tape).record
    sentences = tuple(sentences_of(gpu_run(tape)))
    return Row(
        asked=asked, record=record, truth=truth, sentences=sentences, **{"joules": None, **more}
    )


def test_each_row_is_of_a_known_program() -> None:
    named = {asked.name for asked in ASKED} | {asked.beside for asked in ASKED if asked.beside}
    assert named == set(PROGRAMS)


def test_what_is_true_has_no_fault() -> None:
    began = gpu_run("short").record.gpus[0].first_used_seconds
    truth = {**SHORT, "first_seconds": began}
    assert list(row("short", Asked(name="short"), truth).faults()) == []
    oom = Asked(name="oom", says=("ran out of GPU memory",))
    assert list(row("oom", oom, {"held_mb": 78_000.0}).faults()) == []
    neighbour = Asked(name="no-gpu", is_own=False)
    assert list(row("neighbour", neighbour, {}).faults()) == []


@pytest.mark.parametrize(
    ("truth", "fault"),
    [
        ({"used_seconds": 1.2}, "use s 1.2, not 0.3"),
        ({"first_seconds": 1.0}, "first s 1, not "),
        ({"held_mb": 2000.0}, "MB 2000, not 84"),
        ({"copied_gb_per_second": 52.0}, "GB/s 52, not absent"),
    ],
)
def test_a_number_that_is_not_the_true_one_is_named(truth: Mapping[str, Any], fault: str) -> None:
    (found,) = row("short", Asked(name="short"), truth).faults()
    assert found.startswith(fault)


def test_words_that_lack_or_should_not_be_there_are_named() -> None:
    asked = Asked(name="short", says=("more workers",), never=("idle",), is_own=False)
    assert list(row("short", asked, {}).faults()) == [
        "has a GPU",
        "does not say 'more workers'",
        "says 'idle'",
    ]
    assert list(row("neighbour", Asked(name="two"), {}).faults()) == ["has no GPU"]


def test_the_energy_is_between_that_of_two_windows() -> None:
    joules = gpu_run("short").record.gpus[0].energy_joules or 0
    asked = Asked(name="short")
    assert list(row("short", asked, {}, joules=(joules - 1, joules + 1)).faults()) == []
    (fault,) = row("short", asked, {}, joules=(joules + 1, joules + 2)).faults()
    assert fault.startswith("J ")
