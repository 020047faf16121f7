"""The identity of a family, and its name among others."""

from profiler.record.family_identity import FamilyKey, family_key, family_labels
from tests.runs import report


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
