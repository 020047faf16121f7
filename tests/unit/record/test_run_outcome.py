"""The words and sentences of how a run ended."""

import pytest

from profiler.record.run_outcome import EndStatus, describe_cause, end_status


@pytest.mark.parametrize(
    ("exit_code", "was_stopped", "has_failed", "status"),
    [
        (0, False, False, "success"),
        (0, False, True, "success"),
        (0, True, False, "stopped"),
        (1, False, False, "failure"),
        (143, True, False, "stopped"),
        (None, True, True, "stopped"),
        (None, False, True, "failure"),
        (None, False, False, "unknown"),
    ],
)
def test_a_stop_takes_precedence_over_the_exit_code(
    *, exit_code: int | None, was_stopped: bool, has_failed: bool, status: EndStatus
) -> None:
    assert end_status(exit_code, was_stopped=was_stopped, has_failed=has_failed) == status


@pytest.mark.parametrize(
    ("category", "exit_code", "sentence"),
    [
        ("spot", 143, "AWS reclaimed the Spot capacity"),
        ("exit", 137, "The container exited with code 137 (SIGKILL)"),
        ("exit", None, None),
        ("unknown", None, None),
        ("a later word", None, None),
        (None, 1, None),
    ],
)
def test_a_cause_is_a_sentence_if_it_is_known(
    category: str | None, exit_code: int | None, sentence: str | None
) -> None:
    assert describe_cause(category, exit_code) == sentence
