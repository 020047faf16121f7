"""The identity of a family, and its name among others."""

from hypothesis import given
from hypothesis import strategies as st

from profiler.record.family_identity import FamilyKey, family_key, family_labels
from tests.runs import report

keys = st.builds(
    FamilyKey,
    st.sampled_from(["etl", "load"]),
    st.sampled_from([None, "111122223333", "444455556666"]),
    st.sampled_from([None, "eu-west-1", "us-east-1"]),
)


def test_account_and_region_are_named_only_where_families_of_one_name_differ_in_them() -> None:
    dev, live = FamilyKey("etl", "1", "eu-west-1"), FamilyKey("etl", "2", "eu-west-1")
    far, other = FamilyKey("etl", "2", "us-east-1"), FamilyKey("load", "3", "us-east-1")
    assert family_labels([dev, other]) == {dev: "etl", other: "load"}
    assert family_labels([dev, live, other]) == {dev: "etl (1)", live: "etl (2)", other: "load"}
    assert family_labels([live, far]) == {live: "etl (eu-west-1)", far: "etl (us-east-1)"}
    unknown = FamilyKey("etl")
    assert family_labels([dev, unknown])[unknown] == "etl (unknown account, unknown Region)"


@given(st.lists(keys, unique=True))
def test_every_family_has_its_own_label(found: list[FamilyKey]) -> None:
    assert len(set(family_labels(found).values())) == len(found)


def test_an_empty_account_is_an_unknown_one_and_a_run_without_a_family_has_its_containers_name() -> None:
    assert family_key(report(family=None, account_id="", region="").record) == FamilyKey("batch")
