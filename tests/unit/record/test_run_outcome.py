"""The words and sentences of how a run ended, and of the family that it belongs to."""

import pytest

from profiler.record.family_identity import FamilyKey, family_key, family_labels
from profiler.record.run_outcome import EndStatus, describe_cause, end_status
from tests.runs import report


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


def test_account_and_region_are_named_only_where_families_of_one_name_differ_in_them() -> None:
    dev, live = FamilyKey("etl", "1", "eu-west-1"), FamilyKey("etl", "2", "eu-west-1")
    far, other = FamilyKey("etl", "2", "us-east-1"), FamilyKey("load", "3", "us-east-1")
    assert family_labels([dev, other]) == {dev: "etl", other: "load"}
    assert family_labels([dev, live, other]) == {dev: "etl (1)", live: "etl (2)", other: "load"}
    assert family_labels([live, far]) == {live: "etl (eu-west-1)", far: "etl (us-east-1)"}
    unknown = FamilyKey("etl")
    assert family_labels([dev, unknown])[unknown] == "etl (unknown account, unknown Region)"


def test_an_empty_account_is_an_unknown_one_and_a_run_without_a_family_has_its_containers_name() -> None:
    assert family_key(report(family=None, account_id="", region="").record) == FamilyKey("batch")
